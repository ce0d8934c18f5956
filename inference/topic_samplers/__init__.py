"""Samplers of LDA at a fixed size with topics and proportions integrated out, and annealed evidence built on them."""
