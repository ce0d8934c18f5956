"""Data as batches of padded units, how they are packed, and what memory that takes."""
