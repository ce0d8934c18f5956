"""Read tables as people have them: data frames, delimited files, JSON, Excel and Arrow, of texts or of numbers."""
