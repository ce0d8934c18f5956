"""Samplers of LDA at a fixed size, topics and proportions integrated out; its annealed evidence is made of them."""
