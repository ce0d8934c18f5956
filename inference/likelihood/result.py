"""The results of estimators of likelihoods, and the protocol that every sampling estimator keeps."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Float64, Key
from scipy import sparse

from lvsearch.inference.likelihood.documents import TopicSet

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
