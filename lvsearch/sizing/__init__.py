"""Which sizes to believe in: priors, evidence, bounds and posteriors over sizes; no JAX."""
