"""The posterior over the members of a `Mixture` prior, that is, of a weighted set of priors over sizes.

p(member m | data) ∝ weight_m Σ_s p_m(s) p(data | s). The members differ only in how they weigh the sizes s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lvsearch.sizing.logspace import log_sum, log_times
from lvsearch.sizing.posterior import antithetic_errors, share_of_total, softmax, sum_of_others
from lvsearch.sizing.sizes import Mixture, Size
from lvsearch.sizing.witness import WitnessSearch


@dataclass(frozen=True)
class MemberPosterior:
    """The posterior probabilities of the members of a mixture prior. Arrays are (members,).

    members: each member prior in words.
    weight: the prior probability of each member.
    probability: the estimated posterior probability; None for plug-in evidence, which proves intervals only.
    probability_lower, probability_upper: 5 % and 95 % points over the errors of the evidence, or proved ends.
    """

    members: tuple[str, ...]
    weight: tuple[float, ...]
    probability: Float[np.ndarray, " members"] | None
    probability_lower: Float[np.ndarray, " members"]
    probability_upper: Float[np.ndarray, " members"]


def estimated_members(
    prior: Mixture,
    sizes: Sequence[Size],
    estimate: Float[np.ndarray, " sizes"],
    standard_error: Float[np.ndarray, " sizes"],
) -> MemberPosterior:
    """Estimate the posterior probability of each member prior, averaged over Gaussian errors of the sizes' evidence.

    prior: the mixture.
    sizes: the sizes tried.
    estimate, standard_error: their log evidence and its standard error, nats.

    Returns the mean over the errors, with the 5 % and 95 % points. Sizes that were not tried take no part.
    """
    log_pmf = np.array([[member.log_pmf(size) for size in sizes] for member in prior.priors])
    evidence = estimate + standard_error * antithetic_errors(len(sizes))
    top = np.maximum(evidence.max(axis=1, keepdims=True), -np.finfo(float).max)
    with np.errstate(divide="ignore"):
        each = np.log(np.exp(evidence - top) @ np.exp(log_pmf).T)
    probability = softmax(each + np.log(prior.weights))
    low, high = np.quantile(probability, [0.05, 0.95], axis=0)
    return MemberPosterior(_member_names(prior), prior.weights, probability.mean(axis=0), low, high)


def proved_members(prior: Mixture, search: WitnessSearch) -> MemberPosterior:
    """Return proved intervals on the posterior probability of each member prior.

    The evidence of an unvisited size is at most the ceiling of the search. If models are nested, it is at least that
    of its best witness (a visited smaller size).

    prior: the mixture. search: the sizes tried with their evidence, and the unvisited sizes.
    """
    lower, upper = [], []
    for weight, member in zip(np.log(prior.weights).tolist(), prior.priors, strict=True):
        low = [log_times(member.log_pmf(record.size), record.evidence.lower) for record in search.records]
        high = [log_times(member.log_pmf(record.size), record.evidence.upper) for record in search.records]
        for region in search.regions:
            if search.nested:
                low.append(log_times(member.log_box(region.lower, region.upper), region.log_witness))
            high.append(log_times(member.log_box_upper(region.lower, region.upper), search.ceiling))
        lower.append(weight + log_sum(low))
        upper.append(weight + log_sum(high))
    low, high = np.array(lower), np.array(upper)
    return MemberPosterior(
        _member_names(prior),
        prior.weights,
        None,
        share_of_total(low, sum_of_others(high), undefined=0.0),
        share_of_total(high, sum_of_others(low), undefined=1.0),
    )


def _member_names(prior: Mixture) -> tuple[str, ...]:
    """Return each member prior of the mixture in words."""
    return tuple(member.describe() for member in prior.priors)
