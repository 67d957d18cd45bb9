"""The built-in bots, one file each; `tertulia.talk.registry` lists them."""
