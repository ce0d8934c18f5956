"""Checks of an answer: audits of the evidence, other priors, fewer units, and components that come back in other
fits.
"""
