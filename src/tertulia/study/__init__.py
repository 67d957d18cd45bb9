"""Studies with people as data: what a study asks, of whom, in which order, and what the page may know.

Everything here is pure: no SQL, no HTTP, no bots. The store keeps what participants answer, the web joins the two.
A study is one TOML file on top of one of ten presets.
"""
