"""The smallest size that predicts as well as any: how it is found, and what is said of it."""
