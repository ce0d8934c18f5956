"""Exponential families and pure log-joints. No inference, no I/O, no search."""
