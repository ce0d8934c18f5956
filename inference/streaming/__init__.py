"""Topics of documents that are read one piece at a time: memoized passes over files, and stochastic steps."""
