"""Comparisons of fits: which components of two fits are the same, and how similar they are."""
