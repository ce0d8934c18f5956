"""Priors, evidence, bounds and posteriors over model sizes, and the choice of the next size to try; no JAX."""
