"""The search over sizes: its loop, and the evaluators that fit a model at one size and measure its evidence."""
