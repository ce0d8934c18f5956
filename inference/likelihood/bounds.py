"""A certified interval on log p(document | α, β): deterministic, searched in float32, proved in float64.

A document has n_w tokens of word w, N in all. β_kw is the probability of word w in topic k, and θ are the document's
topic proportions, Dirichlet(α) a priori. With f(θ) = Σ_w n_w log (θᵀβ)_w and p(document | α, β) = E_{θ ~ Dir(α)}
e^{f(θ)}:

  lower   the evidence lower bound at any γ, with the word indicators at their optimum                        (1)
          Σ_w n_w log Σ_k e^{E log θ_k} β_kw + KL-terms, E log θ_k = ψ(γ_k) − ψ(Σγ)
  upper   f is concave and g·θ₀ = N for g = ∇f(θ₀), so f(θ) ≤ f(θ₀) − N + g·θ at any θ₀, hence
          log p ≤ f(θ₀) − N + max_k g_k                                                                       (2)
          log p ≤ f(θ₀) − N + log E_{Dir(α)} e^{g·θ}                                                          (3)

Here q(θ) = Dirichlet(γ) and ψ is the digamma function. (3) is never above (2) at the same θ₀. Its gradient is ∇²f(θ₀)
(m − θ₀), with m the mean of Dir(α) tilted by e^{g·θ}. Since ∇²f is negative, m − θ₀ is a direction of descent. The
search climbs f by EM, which nearly minimises (2), and then descends (3) from there. Its steps are chosen by
backtracking, since m swings from face to face of the simplex. Any θ₀ gives a proof.

The expectation is a power series with positive terms. With r = (g − min g)/G in [0, 1], G = max g − min g, A = Σα,

  E e^{g·θ} = e^{min g} Σ_m (G^m / m!) μ_m,   μ_m = E (r·θ)^m,   E θ_k (r·θ)^m = α_k ω_k,m μ_m / (A + m)       (4)
  μ_{m+1} / μ_m = Σ_k α_k r_k ω_k,m / (A + m),   ω_k,m+1 = 1 + r_k ω_k,m (m + 1) μ_m / ((A + m) μ_{m+1})       (5)

from Π_k (1 − r_k t)^{−α_k} = Σ_m (A)_m μ_m t^m / m!. Nothing is subtracted, so relative errors only add up. Since μ_m
falls with m, the terms left out after m = M add at most

  μ_M G^{M+1}/(M+1)! · 1/(1 − G/(M+2)),                                                                        (6)

which is added to the sum.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import digamma
from jaxtyping import Array, Float, Float64
from scipy import sparse

from lvsearch.inference.compiles import counted
from lvsearch.inference.likelihood.documents import (
    DocumentTile,
    TopicSet,
    impossible_documents,
    map_tiles,
    read_counts,
    read_topics,
    tiles,
)
from lvsearch.inference.likelihood.sampling_estimates import log_rising
from lvsearch.models.kernels import kernel

ROUNDING_SLACK = 1e-9
"""Both ends move outwards by this × (1 + |end|), over a thousand times the float64 error of sums this long."""

TILE_CELLS = 1 << 17  # distinct words × documents × topics per call: a float32 tile of half a megabyte stays in cache
LOWER_STEPS = 200
CLIMB_STEPS = 100
TIGHTEN_STEPS = 10
FIRST_STEP = 0.1  # towards m
SERIES_TERMS = 3  # most terms of (4), per token
MOST_TERMS = 1 << 20  # and in all: seconds for the longest documents, well below where a float32 stops counting


class Interval(NamedTuple):
    """Certified lower and upper ends of log p(document | alpha, topics), nats; both are −inf for an impossible
    document.
    """

    lower: Float64[np.ndarray, " document"]
    upper: Float64[np.ndarray, " document"]


class ExpansionPoints(NamedTuple):
    """The points at which the bounds of one document are proved. Any values give bounds, and good values give tight
    ones.

    gamma: parameters of the Dirichlet of the lower bound; 0 for inactive topics.
    contact: the topic proportions at which the log-likelihood is replaced by its tangent, for the upper bound.
    """

    gamma: Float[Array, " topic"]  # of (1); 0 where inactive
    contact: Float[Array, " topic"]  # θ₀ of (2) and (3)


# --------------------------------------------------------------------------- the terms, for one document, any dtype


def log_fit(theta: Float[Array, " topic"], beta: Float[Array, "slot topic"], counts: Float[Array, " slot"]):
    """Return the log-likelihood of a document's words at given topic proportions, nats, and its gradient (topic,).

    theta: topic proportions.
    beta: p(word | topic) of the document's distinct words.
    counts: how often each of these words occurs; slots of count 0 contribute nothing.
    """
    word = jnp.where(counts > 0, beta @ theta, 1.0)
    return jnp.sum(counts * jnp.log(word)), (counts / word) @ beta


def lower_bound(gamma, alpha, beta, counts) -> Float[Array, " "]:
    """Return the evidence lower bound on log p(document) at q(proportions) = Dirichlet(gamma), nats.

    gamma, alpha: Dirichlet parameters of q and of the prior, (topic,).
    beta: p(word | topic) of the document's distinct words, (slot, topic).
    counts: how often each of these words occurs, (slot,).
    """
    on = alpha > 0
    a, c = jnp.where(on, alpha, 1.0), jnp.where(on, gamma, 1.0)
    expected_log = digamma(c) - digamma(jnp.sum(gamma))
    fit, _ = log_fit(jnp.where(on, jnp.exp(expected_log), 0.0), beta, counts)
    n = jnp.where(on, c - a, 0.0)
    per_topic = jnp.where(on, log_rising(a, n) - n * expected_log, 0.0)
    return fit + jnp.sum(per_topic) - log_rising(jnp.sum(alpha), jnp.sum(n))


def most_terms(n_tokens: Float[Array, " "]) -> Float[Array, " "]:
    """Return the largest number of terms of the power series that are summed for the upper bound of a document.

    A document that needs more terms is cut there. Its bound is still valid, but looser.

    n_tokens: the number of tokens of the document.
    """
    return jnp.minimum(SERIES_TERMS * (n_tokens + 50), MOST_TERMS)


def log_tilted_mass(slope: Float[Array, " topic"], alpha: Float[Array, " topic"], log_tolerance: float, terms):
    """Return an upper bound on log E e^{slope·θ} for θ ~ Dirichlet(alpha), and the mean (topic,) of that Dirichlet
    so tilted.

    It is computed by the power series (4)–(6) of the file's docstring. The bound is at most a factor of about 1 +
    e^{log_tolerance} too large. Topics with alpha 0 are left out. A series that would need more than `terms` terms is
    cut there. The result is still a bound, though perhaps +inf, and then (2) remains.
    """
    on = alpha > 0
    floor = jnp.min(jnp.where(on, slope, jnp.inf))
    top = jnp.max(jnp.where(on, slope, -jnp.inf)) - floor
    flat = top <= 0
    ratio = jnp.where(on, jnp.where(flat, 1.0, (slope - floor) / jnp.where(flat, 1.0, top)), 0.0)
    log_top, total = jnp.log(top), jnp.sum(alpha)

    def log_tail(m, log_term):
        """Return the log of a bound on the terms of the series after the m-th."""
        beyond = top / (m + 2)
        converges = beyond < 0.9999
        return jnp.where(
            converges, log_term + log_top - jnp.log(m + 1) - jnp.log1p(-jnp.where(converges, beyond, 0.0)), jnp.inf
        )

    def unfinished(carry):
        """Return whether the terms left out may still matter, and another one may be added."""
        m, log_term, log_sum, _, _ = carry
        return (log_tail(m, log_term) > log_sum + log_tolerance) & (m < terms)

    def add_term(carry):
        """Add one term of the series to the sum and to the mean."""
        m, log_term, log_sum, omega, mean = carry
        # recurrence (5); `fall` is μ_{m+1} / μ_m
        fall = jnp.sum(alpha * ratio * omega) / (total + m)
        omega = 1 + ratio * omega * (m + 1) / ((total + m) * fall)
        m = m + 1
        log_term = log_term + log_top - jnp.log(m) + jnp.log(fall)
        new_sum = jnp.logaddexp(log_sum, log_term)
        mean = mean * jnp.exp(log_sum - new_sum) + jnp.exp(log_term - new_sum) * alpha * omega / (total + m)
        return m, log_term, new_sum, omega, mean

    zero = jnp.zeros((), alpha.dtype)
    start = zero, zero, zero, jnp.ones_like(alpha), alpha / total
    m, log_term, log_sum, _, mean = lax.while_loop(unfinished, add_term, start)
    return floor + jnp.logaddexp(log_sum, log_tail(m, log_term)), mean


# ------------------------------------------------------------------------------- search (float32), for one document


def fit_gamma(alpha, beta, counts) -> Float[Array, " topic"]:
    """Return the Dirichlet parameters at which the evidence lower bound of one document is highest, (topic,).

    They are found by coordinate ascent.

    alpha: Dirichlet parameters of the prior, (topic,).
    beta: p(word | topic) of the document's distinct words, (slot, topic).
    counts: how often each of these words occurs, (slot,).
    """
    on = alpha > 0
    n_tokens = jnp.sum(counts)
    start = jnp.where(on, alpha + n_tokens / jnp.sum(on), 0.0)

    def ascend(carry):
        """Make one coordinate step of the Dirichlet parameters."""
        step, gamma, _ = carry
        c = jnp.where(on, gamma, 1.0)
        weight = jnp.where(on, jnp.exp(digamma(c) - digamma(jnp.sum(gamma))), 0.0)
        new = alpha + weight * log_fit(weight, beta, counts)[1]
        return step + 1, new, jnp.sum(jnp.abs(new - gamma)) > 1e-4 * n_tokens

    return lax.while_loop(lambda carry: (carry[0] < LOWER_STEPS) & carry[2], ascend, (0, start, n_tokens > 0))[1]


def find_points(alpha, beta, counts) -> ExpansionPoints:
    """Return the points at which the bounds of one document are nearly tightest.

    The lower bound's point is found by coordinate ascent. The upper bound's is found by multiplicative EM to the peak
    of the likelihood, and then descent of the bound.

    alpha: Dirichlet parameters of the prior, (topic,).
    beta: p(word | topic) of the document's distinct words, (slot, topic).
    counts: how often each of these words occurs, (slot,).
    """
    n_tokens = jnp.sum(counts)
    gamma = fit_gamma(alpha, beta, counts)

    def climb(carry):
        """Make one EM step of the topic proportions towards the peak of the likelihood."""
        step, theta, _ = carry
        slope = log_fit(theta, beta, counts)[1]
        new = theta * slope
        return step + 1, new / jnp.sum(new), jnp.max(slope) > n_tokens + 0.01

    # EM to the peak of f, where (2) is nearly least
    start = jnp.where(alpha > 0, gamma + 1e-3, 0.0)
    peak = lax.while_loop(
        lambda carry: (carry[0] < CLIMB_STEPS) & carry[2], climb, (0, start / jnp.sum(start), n_tokens > 0)
    )[1]

    def contact_bound(theta):
        """Return the upper bound at topic proportions theta, nats, and the mean towards which it falls."""
        fit, slope = log_fit(theta, beta, counts)
        log_mass, mean = log_tilted_mass(slope, alpha, -9.0, most_terms(n_tokens))
        return fit - n_tokens + log_mass, mean

    def tighten(carry, _):
        """Try one step towards the mean, keep it if the upper bound falls, and adapt the step's length."""
        theta, value, mean, step = carry
        new = theta + step * (mean - theta)
        new_value, new_mean = contact_bound(new)
        better = new_value < value
        kept = jax.tree.map(lambda a, b: jnp.where(better, a, b), (new, new_value, new_mean), (theta, value, mean))
        return (*kept, jnp.where(better, jnp.minimum(2 * step, 1.0), step / 4)), None

    # descent of (3) from there, towards the tilted mean
    start = (peak, *contact_bound(peak), jnp.asarray(FIRST_STEP, alpha.dtype))
    (contact, *_), _ = lax.scan(tighten, start, length=TIGHTEN_STEPS)
    return ExpansionPoints(gamma, contact)


# -------------------------------------------------------------------------------- proof (float64), for one document


def prove(points: ExpansionPoints, alpha, beta, counts) -> tuple[Float[Array, " "], Float[Array, " "]]:
    """Return the lower and the upper end of one document's interval at the given points, nats, before rounding
    outwards.

    alpha: Dirichlet parameters of the prior, (topic,).
    beta: p(word | topic) of the document's distinct words, (slot, topic).
    counts: how often each of these words occurs, (slot,).
    """
    # An α below float32's range was inactive in the search, so its γ is α.
    lower = lower_bound(jnp.maximum(points.gamma, alpha), alpha, beta, counts)
    n_tokens = jnp.sum(counts)
    fit, slope = log_fit(points.contact, beta, counts)
    log_mass, _ = log_tilted_mass(slope, alpha, -25.0, most_terms(n_tokens))
    # (2) is looser than (3), but it still holds if the series was cut too short.
    return lower, fit - n_tokens + jnp.fmin(jnp.max(slope), log_mass)


@kernel()
@counted
def gamma_tile(word_topic, alpha, words, counts) -> Float[Array, "document topic"]:
    """Return the Dirichlet parameters of the best lower bound (`fit_gamma`) for each document of a tile.

    A tile is a group of documents of one padded length.

    word_topic: p(word | topic), (word, topic).
    alpha: Dirichlet parameters of the prior, (topic,).
    words, counts: distinct words of each document and how often they occur, (document, slot).
    """
    return jax.vmap(lambda w, n: fit_gamma(alpha, word_topic[w], n))(words, counts.astype(alpha.dtype))


@kernel()
@counted
def find_tile(word_topic, alpha, words, counts) -> ExpansionPoints:
    """Return the points of nearly tightest bounds (`find_points`) for each document of a tile.

    A tile is a group of documents of one padded length.

    word_topic: p(word | topic), (word, topic).
    alpha: Dirichlet parameters of the prior, (topic,).
    words, counts: distinct words of each document and how often they occur, (document, slot).
    """
    return jax.vmap(lambda w, n: find_points(alpha, word_topic[w], n))(words, counts.astype(alpha.dtype))


@kernel()
@counted
def prove_tile(word_topic, alpha, words, counts, points):
    """Return the lower and the upper ends (`prove`) for each document of a tile, (document,) each, nats.

    A tile is a group of documents of one padded length.

    word_topic: p(word | topic), (word, topic).
    alpha: Dirichlet parameters of the prior, (topic,).
    words, counts: distinct words of each document and how often they occur, (document, slot).
    points: the points at which bounds are proved.
    """
    one = lambda w, n, p: prove(p, alpha, word_topic[w], n)  # noqa: E731
    return jax.vmap(one)(words, counts.astype(alpha.dtype), points)


# -------------------------------------------------------------------------------------------------------- for people


def saturated_ceiling(counts: sparse.csr_array) -> Float64[np.ndarray, " document"]:
    """Return, for each document, the log-likelihood of its words at their own frequencies, nats.

    It is Σ_w n_w log(n_w / N) with n_w tokens of word w and N in all, which no bag-of-words mixture exceeds. It is
    rounded outwards, but never above 0.
    """
    lengths = np.asarray(counts.sum(axis=1), np.float64)
    data = counts.data.astype(np.float64)
    terms = data * np.log(data / np.repeat(lengths, np.diff(counts.indptr)))
    value = np.add.reduceat(np.append(terms, 0.0), counts.indptr[:-1]) * (np.diff(counts.indptr) > 0)
    return np.minimum(value + ROUNDING_SLACK * (1 + np.abs(value)), 0.0)


def document_bounds(topics: Any, alpha: Any, counts: Any) -> Interval:
    """Return certified lower and upper ends of log p(document | alpha, topics), (document,) each, nats.

    The upper end never exceeds `saturated_ceiling`, nor 0.

    topics: p(word | topic), (topic, word); rows of active topics sum to 1.
    alpha: Dirichlet parameters of the topic proportions, (topic,). A topic with alpha 0 is inactive: its row may hold
        anything and weighs nothing, so that padded models of one capacity share one compilation.
    counts: word counts, sparse, (document, word).

    Raises ValueError in the same cases as `read_topics` and `read_counts`.
    """
    topic_set = read_topics(topics, alpha)
    return bounds_of(topic_set, read_counts(counts, topic_set.word_topic.shape[0]))


def distinct_word_tiles(counts: sparse.csr_array, rows: np.ndarray, n_topics: int) -> Iterator[DocumentTile]:
    """Yield the documents `rows` in tiles (groups of one padded length) of distinct words, small enough to stay in
    cache.
    """
    return tiles(counts, rows, tokens=False, height_of=lambda length: TILE_CELLS // (length * n_topics))


def bounds_of(topics: TopicSet, counts: sparse.csr_array) -> Interval:
    """Return certified ends of log p(document) for inputs that were checked already, nats.

    Raises FloatingPointError if an end is not finite for a possible document.
    """
    impossible = impossible_documents(topics, counts)
    lower, upper = np.zeros(counts.shape[0]), np.zeros(counts.shape[0])
    lower[impossible] = upper[impossible] = -np.inf
    rows = np.flatnonzero(~impossible & (np.diff(counts.indptr) > 0))
    # rescaling a word's probabilities moves no optimum, and keeps rare words within float32
    single = jnp.asarray(topics.rescaled()[0], jnp.float32), jnp.asarray(topics.alpha, jnp.float32)
    with jax.enable_x64(True):
        double = jnp.asarray(topics.word_topic, jnp.float64), jnp.asarray(topics.alpha, jnp.float64)

    def work(tile: DocumentTile) -> tuple[DocumentTile, np.ndarray, np.ndarray]:
        """Find the points in float32 and prove the ends in float64, for one tile.

        A tile is a group of documents of one padded length.
        """
        found = jax.tree.map(np.asarray, find_tile(*single, tile.words, tile.counts))
        with jax.enable_x64(True):
            points = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), found)
            low, high = prove_tile(*double, tile.words, tile.counts, points)
            return tile, np.asarray(low), np.asarray(high)

    for tile, low, high in map_tiles(work, distinct_word_tiles(counts, rows, len(topics.alpha))):
        lower[tile.rows], upper[tile.rows] = low[: len(tile.rows)], high[: len(tile.rows)]
    finite = ~impossible & (np.diff(counts.indptr) > 0)
    broken = finite & ~(np.isfinite(lower) & np.isfinite(upper))
    if broken.any():
        raise FloatingPointError(
            f"no finite interval for documents {np.flatnonzero(broken)[:5]}: please report this case"
        )
    lower[finite] -= ROUNDING_SLACK * (1 + np.abs(lower[finite]))
    upper[finite] += ROUNDING_SLACK * (1 + np.abs(upper[finite]))
    return Interval(lower, np.where(impossible, upper, np.minimum(upper, saturated_ceiling(counts))))
