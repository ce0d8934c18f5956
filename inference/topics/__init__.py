"""LDA at a fixed size: its kernels and its estimator."""
