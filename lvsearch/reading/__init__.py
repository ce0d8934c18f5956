"""Files of texts and of counts: how they are found, opened and read, at once or a block at a time."""
