"""Inference that works for any model, derived from its log-joint.

It has mean field, Gibbs sampling, estimators, fitted hyper-parameters, and scores of units.
"""
