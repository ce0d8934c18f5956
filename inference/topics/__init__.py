"""Fits of LDA with a given number of topics: fast kernels, the estimator, and descriptions of documents."""
