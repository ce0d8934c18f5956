"""Fits made by several workers at once, and recorded in the order in which one process would have made them."""
