"""LDA at a fixed size: its kernel, its estimator, its collapsed sampler."""
