"""Topics in the form that users see: their words, names, coherence, prevalence, and maps of similar topics."""
