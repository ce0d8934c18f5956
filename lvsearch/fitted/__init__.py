"""Fitted models of one size with their methods (tables, scores, pictures), posterior draws, and occupied components."""
