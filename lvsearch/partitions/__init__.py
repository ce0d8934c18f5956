"""How many components, from chains over partitions of rows, for people."""
