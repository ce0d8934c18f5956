"""Turn texts into words: how a text is cut, which words count, and a list of every word that was left out."""
