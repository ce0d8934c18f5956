"""The evidence p(data | size), annealed from a fit or the prior to the posterior, and back.

The chains of the different models are defined here. The annealing itself is in `lvsearch.inference.annealing`.
"""

import warnings
from typing import Any

from lvsearch.inference.annealing.dispatch import (
    Effort,
    TwoSided,
    anchored_chain,
    anneal,
    both_ways,
    bytes_while_annealed,
    draws_in_one_direction,
    effort,
    evidence_chain,
    first_gain,
    gain_of_last_part,
    path_needs_fit,
    sampled_chain,
    temperature_profile,
)
from lvsearch.inference.annealing.generic import GenericChain, flat_chain
from lvsearch.inference.annealing.particles import Annealed, Profile, backward, forward, pilot, schedule
from lvsearch.inference.annealing.prefixes import grow, sequential
from lvsearch.inference.evidence.hidden_markov import HiddenMarkovChain
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain, IndependentNormalParts, log_marginals
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.poisson_factorization import PoissonFactorizationChain
from lvsearch.inference.evidence.simulation import Simulated, anneal_simulated, simulated_like, true_state
from lvsearch.inference.evidence.unigram_mixtures import UnigramMixtureChain
from lvsearch.inference.topic_samplers.chain import CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, hyper_topics
from lvsearch.inference.topic_samplers.topic_state import GivenFactors

__all__ = [
    "Annealed",
    "CollapsedMixtureChain",
    "CollapsedTopics",
    "Effort",
    "GenericChain",
    "GivenFactors",
    "HiddenMarkovChain",
    "HyperMixture",
    "HyperTopics",
    "IndependentNormalChain",
    "IndependentNormalParts",
    "PoissonFactorizationChain",
    "Profile",
    "Simulated",
    "TwoSided",
    "UnigramMixtureChain",
    "anchored_chain",
    "anneal",
    "anneal_simulated",
    "backward",
    "both_ways",
    "bytes_while_annealed",
    "collapsed_topics",
    "draws_in_one_direction",
    "effort",
    "evidence_chain",
    "first_gain",
    "flat_chain",
    "forward",
    "gain_of_last_part",
    "grow",
    "hyper_topics",
    "log_marginals",
    "path_needs_fit",
    "pilot",
    "sampled_chain",
    "schedule",
    "sequential",
    "simulated_like",
    "temperature_profile",
    "true_state",
]


def __getattr__(name: str) -> Any:
    """Return `temperature_profile` under its former name `pace`, which is deprecated: it warns."""
    if name == "pace":
        warnings.warn("evidence.pace is called evidence.temperature_profile now", DeprecationWarning, stacklevel=2)
        return temperature_profile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
