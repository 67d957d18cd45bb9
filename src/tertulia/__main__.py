"""`python -m tertulia` is the same as `tertulia`."""

from tertulia.cli.main import run

run()
