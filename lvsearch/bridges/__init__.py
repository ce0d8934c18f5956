"""Bridges to other people's code: plain functions of the size, and NumPyro models in both directions."""
