"""Annealing any chain from a known distribution q to the posterior and back, which estimates the evidence.

The files hold the paths and their temperatures, the generic chain of any model, and how much work an annealing does.
"""
