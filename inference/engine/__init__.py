"""What is derived from any log-joint: mean field, Gibbs sampling, estimators, hyper-parameters, scores."""
