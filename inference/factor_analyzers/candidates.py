"""Candidates for the component and the scores of one row, their importance weights, and the choice of one by weight.

A row's component and scores f together have no closed form given all other rows. With the parameters integrated out,
the row is Student's t about a line in f. So J candidates f_kj are drawn in each component k from a distribution q_k
near that of the scores there, with weights

    ω_kj = (what the label adds) Normal(f_kj; 0, I) (what the row adds in k with these scores) / q_k(f_kj).

Their average over j, summed over k, is an unbiased estimate of the row's predictive density, whatever q_k is
(`row_by_row` computes it; here candidates are only drawn, weighed and chosen). To move a row, its current scores
replace one candidate of its component, and a candidate is chosen in proportion to the weights. This leaves π_t, the
distribution at the chain's temperature, unchanged and is its own time reversal (Tjelmeland 2004; Andrieu, Doucet &
Holenstein 2010, §4: iterated importance sampling).

The state of a chain over labels and scores of rows (`ScoredLabels`) is here too, since candidates are drawn given it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.factor_analyzers.regressions import Regressions, RegressionSums, log_row, score_proposal

LogHyper = dict[str, Float[Array, "column particle"]]
"""Log of each hyper-parameter by name, (column, particle), with one column if all columns of the data share a value."""


class ScoredLabels(NamedTuple):
    """Labels and scores of all rows, with particles side by side.

    | field | meaning | shape |
    |---|---|---|
    | `labels` | the component of each row, −1 for a row in none | (row, particle) |
    | `scores` | the coordinates of each row on its component's factors | (row, factor, particle) |
    | `log_hyper` | log of each hyper-parameter by name | (column, particle) |
    | `counts` | the number of rows of each component | (component, particle) |
    | `sums` | sums over the rows of each component, from which the posterior of its parameters follows | |
    """

    labels: Int[Array, "row particle"]
    scores: Float[Array, "row factor particle"]
    log_hyper: LogHyper
    counts: Float[Array, "component particle"]
    sums: RegressionSums


CANDIDATES = 2
"""The number of candidate scores drawn in each component for one row."""
FROM_PRIOR = 0.1
"""The probability with which a candidate is drawn from the prior of the scores, which keeps weights bounded."""


class Candidates(NamedTuple):
    """Candidate scores of one row in each component, and their log importance weights.

    Weights are in nats, and −∞ in components that do not exist.
    """

    scores: Float[Array, "component candidate factor particle"]
    log_weight: Float[Array, "component candidate particle"]


def draw_candidates(
    key: Key[Array, ""],
    found: Regressions,
    row: tuple[Float[Array, " dim"], Float[Array, ""]],
    log_label: Float[Array, "component particle"],
    exists: Bool[Array, " component"],
    current: tuple[Int[Array, " particle"], Float[Array, "factor particle"]] | None,
) -> Candidates:
    """Draw candidate scores for a row in every component, with their log importance weights.

    found: the posterior of each component's parameters given the other rows.
    row: the row's coordinates, and 1 if it has cells, else 0.
    log_label: log of the prior weight of each label given the other labels, unnormalised, nats.
    exists: which components exist.
    current: a label and scores that replace the first candidate of their component; None for none.
    """
    y, known = row
    near = score_proposal(found, y, known)
    key_noise, key_prior = jax.random.split(key)
    shape = len(log_label), CANDIDATES, found.centre.shape[2] - 1, log_label.shape[1]
    noise = jax.random.normal(key_noise, shape, y.dtype)
    # q_k is a mixture of the Gaussian near the scores' posterior and of their prior
    from_prior = jax.random.uniform(key_prior, (*shape[:2], 1, shape[3]), y.dtype) < FROM_PRIOR
    scores = jnp.where(from_prior, noise, near.draw(noise))
    if current is not None:
        here = jnp.arange(len(log_label))[:, None, None, None] == current[0]
        scores = jnp.where(here & (jnp.arange(CANDIDATES) == 0)[:, None, None], current[1], scores)
    # ω = label × prior of the scores × what the row adds, over q_k
    log_prior = -0.5 * (scores**2).sum(2)
    log_q = jnp.logaddexp(jnp.log1p(-FROM_PRIOR) + near.log_density(scores), jnp.log(FROM_PRIOR) + log_prior)
    weight = log_label[:, None] + log_prior - log_q + log_row(found, scores, y, known)
    return Candidates(scores, jnp.where(exists[:, None, None], weight, -jnp.inf))


def choose_candidate(
    candidates: Candidates, uniform: Float[Array, " particle"], size: Int[Array | np.ndarray, ""]
) -> tuple[Int[Array, " particle"], Float[Array, "factor particle"]]:
    """Choose a component and its scores for each particle, with probability in proportion to the importance weights.

    uniform: one uniform random number of each particle.
    size: the number of components. The first `size` of the components exist.

    Returns labels (particle,) and scores (factor, particle).
    """
    weight = candidates.log_weight.reshape(-1, len(uniform))
    cumulative = jnp.cumsum(jnp.exp(weight - weight.max(0)), axis=0)
    flat_index = (cumulative < uniform * cumulative[-1]).sum(0, dtype=jnp.int32)
    flat_index = jnp.minimum(flat_index, jnp.asarray(size * CANDIDATES, jnp.int32) - 1)
    flat = candidates.scores.reshape(-1, *candidates.scores.shape[2:])
    return flat_index // CANDIDATES, jnp.take_along_axis(flat, flat_index[None, None], axis=0)[0]
