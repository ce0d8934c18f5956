"""Find, open and read files of texts and of counts, whole or one block at a time."""
