"""From a profile to an environment that runs a prefix: base, layers, recipes, serving."""
