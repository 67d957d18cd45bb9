"""Recipes: each a config and a plain function `train(config, progress)` that leaves a folder which explains itself."""
