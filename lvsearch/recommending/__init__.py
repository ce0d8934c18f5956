"""Find the smallest size that predicts held-out units as well as any, and report it."""
