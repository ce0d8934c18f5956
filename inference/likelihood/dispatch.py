"""The public entry to likelihoods of documents: a method's name picks the object that does the work."""

import time
import warnings
from typing import Any

import numpy as np
from jaxtyping import Array, Key
from scipy import sparse

from lvsearch.inference.likelihood.annealed import AnnealedImportance
from lvsearch.inference.likelihood.bounds import bounds_of
from lvsearch.inference.likelihood.documents import TopicSet, impossible_documents, read_counts, read_topics
from lvsearch.inference.likelihood.exact import exact_log_likelihood
from lvsearch.inference.likelihood.harmonic_mean import HarmonicMean
from lvsearch.inference.likelihood.left_to_right import LeftToRight
from lvsearch.inference.likelihood.mean_field_importance import MeanFieldImportance
from lvsearch.inference.likelihood.proportions import Proportions
from lvsearch.inference.likelihood.sampling_estimates import DocumentLikelihood, LikelihoodEstimate, SamplingMethod
from lvsearch.models.plain_arguments import one_of

SAMPLING: dict[str, SamplingMethod] = {
    "ais": AnnealedImportance(),
    "lrs": LeftToRight(particles=False),
    "lr": LeftToRight(particles=True),
    "mfi": MeanFieldImportance(order=1),
    "mfi2": MeanFieldImportance(order=2),
    "hm": HarmonicMean(),
}
"""The methods that draw samples, by name."""

FEW_SAMPLES = 20.0
"""Estimates with fewer effective samples than this are compared with their certified intervals."""

SURE = 4.0
"""Number of errors by which an estimate must lie outside its interval to be named in a warning.

Among thousands of documents, a few lie more than 2 errors outside by chance.
"""

ROUNDING = 1e-5
"""The relative rounding error of an estimate from float32 samples. An interval may be left by this much."""

METHODS: tuple[str, ...] = (*SAMPLING, "exact", "bounds")
"""The names of all methods: the sampling ones, "exact" and "bounds"."""


def document_likelihood(
    topics: Any,
    alpha: Any,
    docs: Any,
    *,
    method: str = "ais",
    samples: int | None = None,
    key: Key[Array, " "] | None = None,
    certify: bool = True,
) -> DocumentLikelihood:
    """Return log p(document | alpha, topics) of every document under fixed topics, in nats.

    topics: (K topics, V words), row k is p(word | topic k) and sums to 1.
    alpha: (K,) Dirichlet parameters of a document's topic proportions; a topic with α_k = 0 is off. Or another
        distribution of proportions (`Corners` of a mixture of unigrams, `TrainingDocuments` of pLSI), which
        `method="exact"` sums.
    docs: sparse or dense word counts (D documents, V words), or anything with `.counts`, such as `lv.Corpus`.
    method: one of the table below.
    samples: how many samples. By default 200 for mfi, mfi2, hm; 128 for ais, rounded down to a multiple of 8; 100 for
        lr, lrs.
    key: `jax.random.key(seed)`, which sampling methods need. A document's draws depend on the key, its row and its
        words, not on the documents around it.
    certify: compare estimates with certified intervals, as below. False leaves the errors as the samples give them, and
        does not compile two programs for each length of documents.

        method   what                                        cost per document        bias (see DocumentLikelihood)
        ais      annealed from mean field, with resampling   50 samples · L K         unbiased
        lrs      left-to-right, 2√samples chains             samples · L² K / 2 (+ᵃ)  unbiased
        lr       left-to-right, a chain per sample           samples · L² K / 2 (+ᵃ)  unbiased
        mfi      importance sampling, mean-field proposal    samples · W K            unbiased
        mfi2     the same, second-order proposal             samples · W K            unbiased
        hm       harmonic mean (warns)                       samples · L K            upper
        exact    dynamic programming over topic counts       K binom(L + K − 1, K)    none; refuses above 10⁸ updates
        bounds   certified lower and upper end               iterations · W K         lower (and .upper)

        L tokens, W distinct words, K topics. ᵃ if some α_k < 1: for the descent to α, up to 100 L K per chain of lr, as
        much again per 2 sweeps of lrs.

    The truth lies within two stated errors of ais, lrs and lr in 95 to 97 % of 240 documents of 30 to 300 tokens, drawn
    from the model at 50 topics and α from .01 to 1 (`tests/benchmarks/document_likelihood_coverage.py`). Errors of lrs
    and lr are two to six times those of ais there.
    At α of 10⁻⁴ and below none is known to be true. Errors of mfi and mfi2 are too small. A set of topics that explains
    the document but was never sampled adds nothing to their spread.

    Sampling runs in float32, or in float64 inside `jax.enable_x64(True)`. Deciding sums are always float64. A word with
    probability zero under every topic gives −inf and a warning. If fewer than 20 effective samples carry an estimate
    (always so with ais and lrs), its certified interval is computed too. It caps the error, and a RuntimeWarning says
    how many estimates contradict theirs.

    Raises ValueError for malformed input, for α_k outside {0} ∪ [10⁻³⁰, 10⁶] and for documents of more than 2²⁴ tokens.

    Sources: Neal 2001; Del Moral, Doucet & Jasra 2006 (ais); Buntine 2009 (hm, mfi, mfi2, lr, lrs); Wallach, Murray,
        Salakhutdinov & Mimno 2009 (lr).
    """
    one_of("method", method, tuple(METHODS))
    if isinstance(alpha, Proportions):
        return _discrete(topics, alpha, docs, method, samples)
    # check the input, and warn of documents that cannot occur
    topic_set = read_topics(topics, alpha)
    counts = read_counts(docs, topic_set.word_topic.shape[0])
    impossible = int(impossible_documents(topic_set, counts).sum())
    if impossible:
        warnings.warn(
            f"{impossible} of {counts.shape[0]} documents hold a word that no topic can produce: their log-likelihood "
            f"is -inf. Smooth the topics, or drop those words and say so",
            RuntimeWarning,
            stacklevel=2,
        )
    if method in SAMPLING:
        return _sample(method, topic_set, counts, samples, key, certify)
    if samples is not None:
        raise ValueError(f"got samples={samples} with method {method!r}, which is deterministic; leave samples out")
    # deterministic methods: no error, no number of samples
    start = time.perf_counter()
    nothing, none_effective = np.zeros(counts.shape[0]), np.full(counts.shape[0], np.nan)
    if method == "exact":
        value = exact_log_likelihood(topic_set, counts)
        return DocumentLikelihood(method, None, "unbiased", value, nothing, none_effective, time.perf_counter() - start)
    ends = bounds_of(topic_set, counts)
    return DocumentLikelihood(
        method, None, "lower", ends.lower, nothing, none_effective, time.perf_counter() - start, ends.lower, ends.upper
    )


def _discrete(topics: Any, proportions: Proportions, docs: Any, method: str, samples: int | None) -> DocumentLikelihood:
    """Return the exact likelihood of every document under a distribution of topic proportions that can be summed.

    Raises ValueError for another method than "exact", and for a number of samples.
    """
    if method != "exact" or samples is not None:
        raise ValueError(
            f'got method {method!r} and samples={samples} for {type(proportions).__name__}, expected method="exact" '
            "without samples: its sum over proportions is taken as it stands"
        )
    start = time.perf_counter()
    rows = np.asarray(topics, np.float64)
    word_topic = read_topics(rows, np.ones(len(rows))).word_topic
    value = proportions.log_likelihood(word_topic.T, read_counts(docs, word_topic.shape[0]))
    nothing, none_effective = np.zeros(len(value)), np.full(len(value), np.nan)
    return DocumentLikelihood(method, None, "unbiased", value, nothing, none_effective, time.perf_counter() - start)


def _sample(
    method: str,
    topic_set: TopicSet,
    counts: sparse.csr_array,
    samples: int | None,
    key: Key[Array, " "] | None,
    certify: bool,
) -> DocumentLikelihood:
    """Return the likelihood of every document by a sampling method.

    samples: the number of samples; None for the method's own.
    certify: True to compare errors with certified intervals where few samples carry an estimate.

    Raises ValueError without a key, and for fewer than 2 samples.
    """
    estimator = SAMPLING[method]
    if key is None:
        raise ValueError(f"got no key for the sampling method {method!r}; pass key=jax.random.key(0), or another seed")
    samples = estimator.samples if samples is None else samples
    if samples < 2:
        raise ValueError(f"got samples={samples}; expected at least 2, so that an error can be estimated")
    start = time.perf_counter()
    estimate = estimator.estimate(topic_set, counts, samples, key)
    if certify and estimator.bias == "unbiased":
        estimate = held_to_bounds(topic_set, counts, estimate)
    return DocumentLikelihood(method, samples, estimator.bias, *estimate, time.perf_counter() - start)


def held_to_bounds(topic_set: TopicSet, counts: sparse.csr_array, estimate: LikelihoodEstimate) -> LikelihoodEstimate:
    """Return the estimates with standard errors that agree with their certified intervals.

    Only documents with fewer than `FEW_SAMPLES` effective samples change. The truth lies in the interval, so no error
    needs to exceed the distance to the far end. Half that distance is a standard error that covers at 2, and is the
    largest that makes sense. An estimate further outside than 2 of its errors gets that error. If one is further
    outside than SURE errors, which chance hardly explains, a warning says so.
    """
    doubtful = np.flatnonzero(estimate.effective_sample_size < FEW_SAMPLES)
    if not doubtful.size:
        return estimate
    ends = bounds_of(topic_set, counts[doubtful])
    value, error = estimate.log_likelihood[doubtful], estimate.standard_error[doubtful]
    outside = np.maximum(np.maximum(ends.lower - value, value - ends.upper), 0.0)
    widest = np.maximum(value - ends.lower, ends.upper - value) / 2
    rounding = ROUNDING * (1 + np.abs(value))
    contradicts, surely = outside > 2 * error + rounding, outside > SURE * error + rounding
    standard_error = estimate.standard_error.copy()
    standard_error[doubtful] = np.where(contradicts, widest, np.minimum(error, widest))
    if surely.any():
        worst = int(np.argmax(np.where(surely, outside, -1.0)))
        warnings.warn(
            f"{int(surely.sum())} of {counts.shape[0]} estimates lie outside their certified intervals, by up to "
            f"{outside[worst]:.3g} nats (document {int(doubtful[worst])}): too few samples found where the likelihood "
            f'is. Their errors now reach across the interval; pass more samples, or use method="bounds"',
            RuntimeWarning,
            stacklevel=4,
        )
    return estimate._replace(standard_error=standard_error)
