"""The evidence of one size by annealing: the paths, each a `Chain`, from what can be drawn to the posterior."""
