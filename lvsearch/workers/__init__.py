"""Make fits by several workers at once, and record them in the order in which one process would have made them."""
