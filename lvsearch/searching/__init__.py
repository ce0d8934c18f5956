"""The search itself: what it asks of a fit, which size it tries next, and the loop."""
