"""Fits and draws of one size, for people: tables, captions, clusters, occupied components."""
