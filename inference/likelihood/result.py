"""What an estimator returns, and the contract that every estimator keeps."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Float64, Key
from scipy import sparse

from lvsearch.inference.likelihood.documents import TopicSet

Bias = Literal["lower", "upper", "unbiased"]


class LikelihoodEstimate(NamedTuple):
    """Per document, over possible documents only or over all: log p̂ in nats, its standard error, effective samples."""

    log_likelihood: Float64[np.ndarray, " document"]
    standard_error: Float64[np.ndarray, " document"]
    effective_sample_size: Float64[np.ndarray, " document"]


@dataclass(frozen=True)
class DocumentLikelihood:
    """Per-document log p(w | α, β) in nats; scores add over documents.

    bias: "unbiased" (on p, so low by about half a squared standard error on log p), "lower" or "upper" (stays on that
    side on average, however many samples; for "bounds" the certified lower end).
    standard_error is on the log scale, 0 for deterministic methods: the spread of the samples, more than that where few
    of them share the weight (`average_of_weights`), and no more than the certified interval leaves room for. Where the
    estimate lies outside that interval it stays as it is, with an error that reaches the far end at 2, and a warning.
    effective_sample_size is the number of independent samples, chains or islands worth the same, NaN for deterministic
    methods: below ten or so an error is a guess, but for "ais", whose eight islands have a Student's error.
    `lower` and `upper`: certified ends, of method "bounds" only.
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
        """log p of all documents together, nats."""
        return float(np.sum(self.log_likelihood))

    @property
    def total_standard_error(self) -> float:
        """Monte Carlo error of `total`, nats: documents are estimated independently."""
        return float(np.sqrt(np.sum(self.standard_error**2)))


class SamplingMethod(Protocol):
    """An estimator from random samples. A frozen dataclass: its fields are its settings."""

    @property
    def bias(self) -> Bias: ...

    @property
    def samples(self) -> int: ...

    def estimate(
        self, topics: TopicSet, counts: sparse.csr_array, samples: int, key: Key[Array, " "]
    ) -> LikelihoodEstimate: ...
