"""The posterior of the number of components of a mixture, from Markov chains over partitions of the rows."""
