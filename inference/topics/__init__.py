"""LDA at a fixed size: its kernel and its estimator."""
