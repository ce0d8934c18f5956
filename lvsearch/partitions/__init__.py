"""Compute the posterior of the number of components by chains over partitions of rows."""
