"""Samplers of Dirichlet-process mixtures for every kind of component, with which variational fits are compared.

| sampler | weights and parameters | a sweep | of |
|---|---|---|---|
| `collapsed_gibbs` | integrated out | rows in turn, given all others (Eq. 5.12–5.14) | the process |
| `blocked_gibbs` | sampled | all rows at once (§5.3.2) | the process truncated at T |
| `slice_sampler` | sampled, as many sticks as are needed | all rows at once, given slices | the process |

Between sweeps a chain consists of labels and α. Everything else is drawn afresh given them.
"""

from lvsearch.inference.diagnostics import RunLength, autocorrelation, raftery_lewis
from lvsearch.inference.mixture_samplers.blocked import blocked_gibbs
from lvsearch.inference.mixture_samplers.collapsed import collapsed_gibbs
from lvsearch.inference.mixture_samplers.occupied import occupied_components
from lvsearch.inference.mixture_samplers.slices import slice_sampler
from lvsearch.inference.mixture_samplers.trace import MixtureTrace

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
