"""Inference that works for any model, derived from its log-joint.

It has mean field, Gibbs sampling, estimators, fitted hyper-parameters, and scores of units. Words that all files here
use:

- A *site* is one latent variable of the model, or an array of them. *Globals* are the sites that all units of data
    share, *locals* those of one unit.
- *Statistics* are the sufficient statistics t(x) of a site's exponential family, *natural* its natural parameters.
- `size` says how many components exist. Arrays are padded to `capacity` slots for components, and `on` holds the masks
    of the entries that exist, by axis.
"""
