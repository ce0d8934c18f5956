"""MCMC samplers and annealing paths of LDA in which topics and proportions are integrated out."""
