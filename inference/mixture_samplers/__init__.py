"""MCMC samplers of Dirichlet-process mixtures with any kind of component. Variational fits are compared with their
draws.

| sampler | mixture weights and component parameters | what one sweep draws | posterior of |
|---|---|---|---|
| `collapsed_gibbs` | integrated out | the rows in turn, each given all others (Eq. 5.12–5.14) | the Dirichlet process |
| `blocked_gibbs` | sampled | all rows at once (§5.3.2) | the process truncated at T components |
| `slice_sampler` | sampled, as many as are needed | all rows at once, given slice variables | the Dirichlet process |

Between sweeps the state of a chain is the label of every row and the concentration α. Weights and parameters are drawn
afresh in each sweep.
"""

from lvsearch.inference.diagnostics import RunLength, autocorrelation, raftery_lewis
from lvsearch.inference.mixture_samplers.sampler import MixtureTrace
from lvsearch.inference.mixture_samplers.sweeps import (
    blocked_gibbs,
    collapsed_gibbs,
    occupied_components,
    slice_sampler,
)

__all__ = [
    "MixtureTrace",
    "RunLength",
    "autocorrelation",
    "blocked_gibbs",
    "collapsed_gibbs",
    "occupied_components",
    "raftery_lewis",
    "slice_sampler",
]
