"""The shared parts of sampling estimators of log p(document): results, protocol, averages of weights, loop over tiles.

Averages have errors that do not trust a handful of weights. Weights of counts are ratios Γ(a + x)/Γ(a): `log_rising`
computes their logs without the cancellation of two large logs.

A tile is a group of documents of one padded length. The loop over tiles runs in float32 where that is safe.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Float64, Key
from scipy import sparse
from scipy.special import logsumexp, ndtr, stdtrit

from lvsearch.inference.likelihood.documents import (
    DocumentTile,
    Pad,
    TopicSet,
    impossible_documents,
    map_tiles,
    padded_lengths,
    tiles,
)

Bias = Literal["lower", "upper", "unbiased"]
"""The side of log p(document) on which estimates lie on average. "unbiased" means unbiased for p itself."""


class LikelihoodEstimate(NamedTuple):
    """Estimates of log p(document), nats: their values, standard errors, and effective numbers of samples."""

    log_likelihood: Float64[np.ndarray, " document"]
    standard_error: Float64[np.ndarray, " document"]
    effective_sample_size: Float64[np.ndarray, " document"]


@dataclass(frozen=True)
class DocumentLikelihood:
    """Estimates of log p(document) under fixed topics, nats. They add over documents.

    `bias`: "unbiased" on p, so low by about half a squared standard error on log p. "lower" or "upper" stays on that
        side on average, however many samples; for "bounds" it is the certified lower end.
    `standard_error`: on the log scale, 0 for deterministic methods. It is the spread of the samples, and more than that
        if few of them share the weight (`average_of_weights`, `average_of_chains`). It is no more than the certified
        interval leaves room for. An estimate outside that interval stays as it is, with an error that reaches the far
        end at 2, and a warning.
    `effective_sample_size`: the number of independent samples, chains or particle groups worth the same, NaN for
        deterministic methods. Below ten or so an error is a guess, except for "ais", whose eight particle groups have a
        Student's error, and for "lrs" and "lr", whose errors allow for it.
    `lower`, `upper`: certified ends, of method "bounds" only.
    `method`, `samples`, `seconds`: the method, its number of samples (None without), and the time it took.
    """

    method: str
    samples: int | None
    bias: Bias
    log_likelihood: Float64[np.ndarray, " document"]
    standard_error: Float64[np.ndarray, " document"]
    effective_sample_size: Float64[np.ndarray, " document"]
    seconds: float
    lower: Float64[np.ndarray, " document"] | None = None
    upper: Float64[np.ndarray, " document"] | None = None

    @property
    def total(self) -> float:
        """The log probability of all documents together, nats."""
        return float(np.sum(self.log_likelihood))

    @property
    def total_standard_error(self) -> float:
        """The Monte Carlo error of `total`, in nats; documents are estimated independently."""
        return float(np.sqrt(np.sum(self.standard_error**2)))


class SamplingMethod(Protocol):
    """An estimator from random samples. It is a frozen dataclass whose fields are its settings."""

    @property
    def bias(self) -> Bias:
        """The side of log p on which the method's estimates lie on average."""
        ...

    @property
    def samples(self) -> int:
        """The number of samples that the method draws for each document by default."""
        ...

    def estimate(
        self, topics: TopicSet, counts: sparse.csr_array, samples: int, key: Key[Array, " "]
    ) -> LikelihoodEstimate:
        """Estimate log p of each document, nats, from `samples` samples.

        A document's draws depend on the key, its row and its words.

        topics: checked topics and Dirichlet parameters.
        counts: word counts, (document, word).
        """
        ...


FEW, TAIL = 4.0, 8.0
"""Two constants by which errors of averages of importance weights grow when few samples carry them.

FEW: effective samples at which a squared error is doubled. TAIL: by which the correction for an unseen tail falls
    e-fold, in effective samples.

They were chosen on log-normal weights: 10 of spread 1 cover 92 % at 2 errors (delta method: 85), of spread 3 some 80 %
(36).
"""

DEEPEST = 20.0  # nats below the largest weight: what lies deeper adds nothing, and is taken to lie there


def average_of_weights(log_weights: Float64[np.ndarray, "document sample"]) -> LikelihoodEstimate:
    """Return the log of each document's mean importance weight, its standard error, and the effective number of
    samples.

    The effective number is Kish's, (Σw)²/Σw². While many samples share the weight, the error is the delta method's,
    sd/(mean √S) for S samples. When few do, the largest weights may not have been seen. If log weights above their
    median m were the upper half of a normal of variance s², log E w would be m + s²/2. What the average lacks of it is
    added in quadrature, times e^(−effective/TAIL). Both parts are uncertain themselves, so the square grows by 1 +
    FEW/effective (at 10 equal samples that is Student's tail).

    log_weights: (document, sample), nats.
    """
    samples = log_weights.shape[1]
    log_sum = np.asarray(logsumexp(log_weights, axis=1))
    effective = np.exp(2 * log_sum - np.asarray(logsumexp(2 * log_weights, axis=1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.maximum(1 / effective - 1 / samples, 0.0) * samples / (samples - 1)
    log_mean = log_sum - np.log(samples)
    seen = np.maximum(log_weights, log_weights.max(axis=1, keepdims=True) - DEEPEST)
    middle = np.median(seen, axis=1)
    upper = 2 * np.mean(np.maximum(seen - middle[:, None], 0.0) ** 2, axis=1)
    missing = np.maximum(middle + upper / 2 - log_mean, 0.0)
    square = (variance + missing**2 * np.exp(-effective / TAIL)) * (1 + FEW / effective)
    return LikelihoodEstimate(log_mean, np.sqrt(square), effective)


def average_of_islands(
    log_estimates: Float64[np.ndarray, "document island"], variance: Float64[np.ndarray, "document island"]
) -> LikelihoodEstimate:
    """Return the log of the mean of independent unbiased estimates, with an error from the spread of their logs.

    An estimate that is a product of many factors has a nearly normal log, of variance v. With I groups of particles
    ("islands"), the log of their mean has the squared error v/I from the mean of the logs. It has v²/(2(I − 1)) more,
    since v itself, and so the distance v/2 between the mean of a log and the log of a mean, is estimated. I − 1 degrees
    of freedom make the error Student's: the factor is such that 2 errors cover 95.4 %. Simulated normal logs of
    standard deviation .2, .5, .8, 1.2, 2 in 8 groups are covered in 95.1, 94.8, 94.1, 92.7 and 90.0 %.

    If some groups miss a mode, the logs are skewed, and eight groups that all found it agree better than they should.
    So the error is at least that of `variance`, which such luck does not make small.

    log_estimates: log of each group's estimate of p, nats.
    variance: the relative variance of each group's estimate, by its own particles.

    Returns: the log mean, its standard error, and Kish's effective number of groups.
    """
    islands = log_estimates.shape[1]
    log_sum = np.asarray(logsumexp(log_estimates, axis=1))
    effective = np.exp(2 * log_sum - np.asarray(logsumexp(2 * log_estimates, axis=1)))
    spread = np.var(log_estimates, axis=1, ddof=1)
    student = stdtrit(islands - 1, ndtr(2.0)) / 2
    square = student**2 * (spread / islands + spread**2 / (2 * (islands - 1)))
    error = np.sqrt(np.maximum(square, variance.mean(axis=1) / islands))
    return LikelihoodEstimate(log_sum - np.log(islands), error, effective)


def average_of_chains(log_weights: Float64[np.ndarray, "document chain"]) -> LikelihoodEstimate:
    """Return the log of the mean weight of independent chains, its standard error, and the effective number of chains.

    A chain's weight is a product of many factors, so its log is nearly normal, of mean m and variance v, and the log of
    the mean weight is m + v/2. The standard error is the larger of two. `average_of_islands` computes one that is right
    if log weights are normal. `average_of_weights` computes one that does not assume so. If v is above about 1, a few
    very large weights make up most of the mean. A small number of chains may contain none of them, and the average is
    then too low. The amount by which it falls short of m + v/2 is added in quadrature. The truth lies within two errors
    of 20 chains of simulated normal logs of standard deviation .3, 1, 2 and 4 in 96, 96, 93 and 94 % (with
    `average_of_weights` alone in 96, 93, 83 and 79 %).

    log_weights: (document, chain), nats.
    """
    plain = average_of_weights(log_weights)
    seen = np.maximum(log_weights, log_weights.max(axis=1, keepdims=True) - DEEPEST)
    normal = average_of_islands(seen, np.zeros_like(seen))
    log_normal_mean = seen.mean(axis=1) + np.var(seen, axis=1, ddof=1) / 2
    missing = np.maximum(log_normal_mean - plain.log_likelihood, 0.0)
    error = np.hypot(np.maximum(plain.standard_error, normal.standard_error), missing)
    return plain._replace(standard_error=error)


# ── rising factorials ─────────────────────────────────────────────────────────────────────────────────────────────────


STIRLING_FROM = 30.0
"""The a from which log Γ(a + x)/Γ(a) is computed by Stirling's series.

Its first term left out is then below 1/(1680 a⁷) = 3e−14. Below this a, the values of gammaln are small enough to be
subtracted.
"""


def log_rising(a: Float[Array, "..."], x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the log of the rising factorial (a)_x = Γ(a + x)/Γ(a), for a > 0 and x ≥ 0, elementwise.

    At a = 10⁴ the difference of two float32 gammalns is wrong by hundredths, at 10⁶ by units. Here the error is a few
    roundings of x log a. Stirling: log (a)_x = (a + x − ½) log(1 + x/a) + x (log a − 1) + R(a + x) − R(a), with R(a) =
    1/(12a) − 1/(360a³) + 1/(1260a⁵).
    """
    small, large = jnp.minimum(a, STIRLING_FROM), jnp.maximum(a, STIRLING_FROM)
    remainder = lambda b: (1 / 12 - (1 / 360 - 1 / (1260 * b * b)) / (b * b)) / b  # noqa: E731
    series = (large + x - 0.5) * jnp.log1p(x / large) + x * (jnp.log(large) - 1) + remainder(large + x)
    return jnp.where(a < STIRLING_FROM, gammaln(small + x) - gammaln(small), series - remainder(large))


TileEstimate = Callable[[DocumentTile, Float[Array, "word topic"], Float[Array, " topic"]], LikelihoodEstimate]
"""A function that estimates log p of the documents of one tile, padding included.

It takes the tile, p(word | topic) as (word, topic), and the Dirichlet parameters (topic,).
"""


def estimate_tiles(
    topics: TopicSet,
    counts: sparse.csr_array,
    one_tile: TileEstimate,
    *,
    tokens: bool,
    height_of: Callable[[int], int],
    pad: Pad = padded_lengths,
) -> LikelihoodEstimate:
    """Run an estimator on tiles of documents (groups of one padded length), and return estimates for every document.

    Words are rescaled before they become float32, and the logs of the divisors are added back in float64. So nothing
    underflows, and most of log p never passes through float32.

    one_tile: the estimator for one tile.
    tokens: True if a slot of a tile is one token, False if it is a distinct word with its count.
    height_of: the wanted number of documents of a tile, for a padded length.
    pad: chooses the padded lengths.

    Returns −inf ± 0 for a document with an impossible word, and 0 ± 0 for an empty document.
    """
    topics = topics.active()
    scaled, log_divisor = topics.rescaled()
    word_topic, alpha = jnp.asarray(scaled), jnp.asarray(topics.alpha)  # float32, or the caller's enable_x64

    impossible = impossible_documents(topics, counts)
    log_likelihood = counts @ log_divisor
    log_likelihood[impossible] = -np.inf
    error, effective = np.zeros(counts.shape[0]), np.full(counts.shape[0], np.nan)

    def work(tile: DocumentTile) -> tuple[DocumentTile, LikelihoodEstimate]:
        return tile, one_tile(tile, word_topic, alpha)

    rows = np.flatnonzero(~impossible & (np.diff(counts.indptr) > 0))
    pieces = tiles(counts, rows, tokens=tokens, height_of=height_of, pad=pad)
    for tile, estimate in map_tiles(work, pieces):
        real = len(tile.rows)
        log_likelihood[tile.rows] += estimate.log_likelihood[:real]
        error[tile.rows] = estimate.standard_error[:real]
        effective[tile.rows] = estimate.effective_sample_size[:real]
    return LikelihoodEstimate(log_likelihood, error, effective)
