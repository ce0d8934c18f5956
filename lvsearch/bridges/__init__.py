"""Bridges to other people's code: functions of the size, and NumPyro models in both directions."""
