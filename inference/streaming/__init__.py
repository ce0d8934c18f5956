"""Fits of topics to documents that are read from disk piece by piece: memoized passes, and stochastic steps."""
