"""The public entry: a method's name picks a frozen object that does the work."""

import time
import warnings
from typing import Any, Literal

import numpy as np
from jaxtyping import Array, Key

from lvsearch.inference.likelihood.bounds import bounds_of
from lvsearch.inference.likelihood.documents import impossible_documents, read_counts, read_topics
from lvsearch.inference.likelihood.exact import exact_log_likelihood
from lvsearch.inference.likelihood.harmonic_mean import HarmonicMean
from lvsearch.inference.likelihood.left_to_right import LeftToRight
from lvsearch.inference.likelihood.mean_field_importance import MeanFieldImportance
from lvsearch.inference.likelihood.result import DocumentLikelihood, SamplingMethod

Method = Literal["lrs", "lr", "mfi", "mfi2", "hm", "exact", "bounds"]

SAMPLING: dict[str, SamplingMethod] = {
    "lrs": LeftToRight(independent_chains=False, bias="consistent"),
    "lr": LeftToRight(independent_chains=True, bias="lower"),
    "mfi": MeanFieldImportance(order=1),
    "mfi2": MeanFieldImportance(order=2),
    "hm": HarmonicMean(),
}

METHODS: tuple[str, ...] = (*SAMPLING, "exact", "bounds")


def document_likelihood(
    topics: Any,
    alpha: Any,
    docs: Any,
    *,
    method: str = "lrs",
    samples: int | None = None,
    key: Key[Array, " "] | None = None,
) -> DocumentLikelihood:
    """log p(w | α, β) of every document under fixed topics, in nats.

    topics: (K, V), row k is p(word | topic k) and sums to 1. alpha: (K,) Dirichlet parameters (α_k = 0: topic off).
    docs: sparse or dense counts (D, V), or anything with `.counts` such as `lv.Corpus`.

    method   what                                        cost per document        bias (see DocumentLikelihood)
    lrs      left-to-right sequential sampler            samples · L² K / 2       consistent
    lr       left-to-right particles                     samples · L² K / 2       lower
    mfi      importance sampling, mean-field proposal    samples · L K            unbiased
    mfi2     the same, second-order proposal             samples · L K            unbiased
    hm       harmonic mean (warns)                       samples · L K            upper
    exact    dynamic programming over topic counts       K binom(L + K − 1, K)    none; refuses above 10⁸ updates
    bounds   certified lower and upper end               iterations · W K         lower (and .upper)

    samples: 200 for mfi, mfi2, hm and 100 for lr, lrs unless given. key: `jax.random.key(seed)`, required by the
    sampling methods; a document's draws depend on the key, its row and its words, not on the documents around it.

    Sampling runs in float32, or in float64 inside `jax.enable_x64(True)`; deciding sums are float64 always.
    A word with probability zero under every topic gives −inf and a warning. Raises ValueError for malformed input.
    Sources: Buntine 2009 (hm, mfi, mfi2, lr, lrs); Wallach, Murray, Salakhutdinov & Mimno 2009 (lr).
    """
    if method not in METHODS:
        raise ValueError(f"got method {method!r}; expected one of {', '.join(METHODS)}")
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
        return _sample(method, topic_set, counts, samples, key)
    if samples is not None:
        raise ValueError(f"got samples={samples} with method {method!r}, which is deterministic; leave samples out")
    start = time.perf_counter()
    nothing, none_effective = np.zeros(counts.shape[0]), np.full(counts.shape[0], np.nan)
    if method == "exact":
        value = exact_log_likelihood(topic_set, counts)
        return DocumentLikelihood(method, None, "unbiased", value, nothing, none_effective, time.perf_counter() - start)
    ends = bounds_of(topic_set, counts)
    return DocumentLikelihood(
        method, None, "lower", ends.lower, nothing, none_effective, time.perf_counter() - start, ends.lower, ends.upper
    )


def _sample(method: str, topic_set, counts, samples: int | None, key: Key[Array, " "] | None) -> DocumentLikelihood:
    estimator = SAMPLING[method]
    if key is None:
        raise ValueError(f"got no key for the sampling method {method!r}; pass key=jax.random.key(0), or another seed")
    samples = estimator.samples if samples is None else samples
    if samples < 2:
        raise ValueError(f"got samples={samples}; expected at least 2, so that an error can be estimated")
    start = time.perf_counter()
    estimate = estimator.estimate(topic_set, counts, samples, key)
    return DocumentLikelihood(method, samples, estimator.bias, *estimate, time.perf_counter() - start)
