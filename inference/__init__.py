"""How beliefs are updated at a fixed size: engines, samplers, kernels, estimators."""
