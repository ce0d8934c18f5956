"""Tables as people have them: data frames, delimited files, JSON, Excel, Arrow; texts in a column, or numbers."""
