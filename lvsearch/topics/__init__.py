"""Topics for people: their words, names, coherence, prevalence, and maps of similar topics."""
