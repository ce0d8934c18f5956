"""Checks of a search's answer: audit of the evidence, other priors, fewer units, and components found again."""
