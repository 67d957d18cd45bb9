"""The built-in bots, one file each; `tertulia.talk.table` lists them."""
