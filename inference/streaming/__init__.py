"""Topics of documents that are read a piece at a time: memoized passes over files, and stochastic steps."""
