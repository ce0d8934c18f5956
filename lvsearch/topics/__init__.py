"""What a topic is, for people: its words, its coherence, where it is talked about, which topics are near it."""
