"""Fits made by several workers at once, and entered as one process would have made them."""
