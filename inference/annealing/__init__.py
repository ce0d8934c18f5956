"""Annealing any chain from q to the posterior and back: paths and their schedules, the generic chain, effort."""
