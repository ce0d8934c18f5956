"""The estimator of the mixture of unigrams, and of the unigram model: each sweep is two products of sparse counts.

With q(z_d) at its optimum, r_dk ∝ exp(E[log π_k] + Σ_w n_dw E[log β_kw]), the bound is

    Σ_d log Σ_k exp(…) − KL(q(π) ‖ p(π)) − Σ_k KL(q(β_k) ‖ p(β_k)),      nats,

and the global parameters are updated by Σ_d r_dk and Σ_d r_dk n_dw (Blei 2004, §3.4.3). With point estimates the KL
terms are absent, the sum is the likelihood itself and the method is EM (Nigam et al. 2000). The generic engine, and
`FiniteMixture`'s kernel on rows, give the same bounds. They hold a row as long as the vocabulary for each document,
while the counts here stay sparse. Everything is float64.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float64
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln, logsumexp, softmax

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.data.memory import MemoryPlan, Part
from lvsearch.inference.engine.describing import Described, bound_units, describe_units
from lvsearch.inference.engine.estimate import ROUNDING, Estimate, just_above
from lvsearch.inference.engine.estimator import BaseEstimator, estimator
from lvsearch.inference.word_mixtures.starts import seeded_counts
from lvsearch.models.families import PointSimplex
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams
from lvsearch.models.unigram import Unigram

FIRST_TEMPERATURE = 0.5
"""The annealing starts at this number divided by the mean number of tokens per document.

At that temperature a document's words hardly say which topic it belongs to.
"""


@dataclass(frozen=True)
class UnigramMixtureSettings:
    """Settings of the estimator: effort and stopping rules.

    | field | meaning |
    |---|---|
    | `sweeps` | the most sweeps |
    | `tolerance` | a sweep that gains less than this share of the bound is the last one; §3.6.1 has 1e-5 |
    | `annealing` | sweeps of a fit from scratch in which r_dk ∝ exp(t · …), t rising to 1; 0 for none |
    | `start_tokens` | tokens of the documents that a topic added to another fit starts from; §3.6 has two |

    Without annealing, documents of a hundred words stay in the topic that they are first put in. On AP (η = 0.05, K =
    20 and 100) the bound after six sweeps from five documents a topic, as in §3.6, was 73,000 and 64,000 nats lower.
    """

    sweeps: int = 200
    tolerance: float = 1e-6
    annealing: int = 50
    start_tokens: float = 2.0


class ExpectedCounts(NamedTuple):
    """The sums over documents that update the parameters: Σ_d r_dk n_dw (topic, word) and Σ_d r_dk (topic,)."""

    words: Float64[np.ndarray, "topic word"]
    documents: Float64[np.ndarray, " topic"]


class UnigramMixtureEstimator(BaseEstimator):
    """Fits `MixtureOfUnigrams`, and `Unigram`, which is the same with one topic."""

    model: MixtureOfUnigrams | Unigram

    def __init__(
        self,
        model: MixtureOfUnigrams | Unigram,
        data: Dataset,
        settings: UnigramMixtureSettings = UnigramMixtureSettings(),
    ):
        super().__init__(model)
        self.settings = settings
        self.counts = csr_array(counts_of(data), dtype=np.float64)
        self.transposed = csr_array(self.counts.T)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return the bytes held: counts twice, and per topic five arrays of words and four of documents, in float64."""
        n_docs, n_words = self.counts.shape[0], self.counts.shape[1]
        return MemoryPlan(
            (
                Part("counts", 2 * 12 * self.counts.nnz),
                Part("beliefs about topics", 5 * 8 * size[0] * n_words),
                Part("topics of documents", 4 * 8 * size[0] * n_docs),
            )
        )

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit the model by coordinate ascent.

        Without `start`, documents are put in topics at random, and deterministic annealing comes first. With `start`,
        its topics are kept and each new topic begins with a few documents.
        """
        (n_topics,) = size
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        sums = (
            self._random_counts(n_topics, random) if start is None else self._counts_from_fit(n_topics, random, start)
        )
        sweeps = 0
        if start is None and n_topics > 1 and self.settings.annealing:
            coldest = FIRST_TEMPERATURE / max(1.0, self.counts.sum() / self.counts.shape[0])
            for temperature in np.geomspace(coldest, 1.0, self.settings.annealing):
                shares = self._e_step(self._posterior(sums), temperature)[0]
                sums, sweeps = self._sum_over_documents(shares), sweeps + 1
        # coordinate ascent: responsibilities at these parameters, then the parameters at these responsibilities
        last = -np.inf
        for _ in range(self.settings.sweeps if n_topics > 1 else 1):
            shares, bound = self._e_step(self._posterior(sums))
            sums, sweeps = self._sum_over_documents(shares), sweeps + 1
            if bound - last < self.settings.tolerance * abs(bound):
                break
            last = bound
        # the bound is computed at exactly the float32 parameters that are returned
        natural = {name: leaf.astype(np.float32) for name, leaf in self._posterior(sums).items()}
        lower = self._e_step({name: leaf.astype(np.float64) for name, leaf in natural.items()})[1]
        # point estimates have a likelihood, and one topic has one labelling: in both cases the bound is exact
        known = has_point_estimates(self.model) or n_topics == 1
        upper = just_above(lower) if known else np.inf
        kept = {name: natural[name] for name in self.model.globals()}
        return Estimate(self.model, size, kept, lower, upper, sweeps)

    def _random_counts(self, n_topics: int, random: np.random.Generator) -> ExpectedCounts:
        """Return the expected counts when every document is in a random topic."""
        return self._sum_over_documents(np.eye(n_topics)[random.integers(0, n_topics, self.counts.shape[0])])

    def _counts_from_fit(self, n_topics: int, random: np.random.Generator, start: Estimate) -> ExpectedCounts:
        """Return the expected counts of the topics of a fit, and of new topics that begin with a few documents each."""
        prior, kept = self._prior(), min(start.size[0], n_topics)
        words = np.maximum(start.natural["topic_word"][:kept].astype(np.float64) - prior.words, 0)
        documents = np.maximum(start.natural["weights"][:kept].astype(np.float64) - prior.documents, 0)
        new = seeded_counts(self.counts, n_topics - kept, self.settings.start_tokens, random)
        more = np.full(n_topics - kept, self.counts.shape[0] / n_topics)
        return ExpectedCounts(np.concatenate([words, new]), np.concatenate([documents, more]))

    def _sum_over_documents(self, shares: Float64[np.ndarray, "document topic"]) -> ExpectedCounts:
        """Return the expected counts of documents that belong to topics by `shares`."""
        return ExpectedCounts(np.asarray(self.transposed @ shares).T, shares.sum(0))

    def _prior(self) -> ExpectedCounts:
        """Return the natural parameters of the priors, shapes (1, 1) and (1,); 0 for point estimates."""
        if has_point_estimates(self.model):
            return ExpectedCounts(np.zeros((1, 1)), np.zeros(1))
        return ExpectedCounts(np.array([[_eta(self.model) - 1]]), np.array([_weight_concentration(self.model) - 1]))

    def _posterior(self, sums: ExpectedCounts) -> dict[str, np.ndarray]:
        """Return the natural parameters of q, which are those of the prior plus the expected counts."""
        prior = self._prior()
        return {"weights": sums.documents + prior.documents, "topic_word": sums.words + prior.words}

    def _e_step(
        self, natural: dict[str, np.ndarray], temperature: float = 1.0
    ) -> tuple[Float64[np.ndarray, "document topic"], float]:
        """Return (r, bound): the responsibilities r_dk, and the evidence bound at these global parameters, nats.

        temperature: t; where it is not 1, the responsibilities are r^t normalised.
        """
        if has_point_estimates(self.model):
            log_weights, log_topics, divergence = *log_point_estimates(self.model, natural), 0.0
        else:  # E[log π], E[log β] and the KL terms of their Dirichlet distributions
            topics, weights = natural["topic_word"] + 1, natural["weights"] + 1
            log_topics = digamma(topics) - digamma(topics.sum(1, keepdims=True))
            log_weights = digamma(weights) - digamma(weights.sum())
            of_topics = _dirichlet_divergence(topics, log_topics, _eta(self.model))
            divergence = of_topics.sum() + _dirichlet_divergence(
                weights, log_weights, _weight_concentration(self.model)
            )
        logits = np.asarray(self.counts @ log_topics.T) + log_weights
        total = np.asarray(logsumexp(logits, axis=1))
        return softmax(temperature * logits, axis=1), float(total.sum() - divergence)


@estimator.register(MixtureOfUnigrams)
@estimator.register(Unigram)
def _unigram_mixture_estimator(model: MixtureOfUnigrams | Unigram, data: Dataset) -> UnigramMixtureEstimator:
    """Return the estimator of a mixture of unigrams, or of a unigram model."""
    return UnigramMixtureEstimator(model, data)


@describe_units.register(MixtureOfUnigrams)
@describe_units.register(Unigram)
def _describe(model: MixtureOfUnigrams | Unigram, estimate: Estimate, data: Dataset) -> Described:
    """Return p(topic | document) and log p(document) at the posterior-mean parameters. Both are exact."""
    weights, topics = mean_parameters(estimate)
    logits = np.asarray(csr_array(counts_of(data), dtype=np.float64) @ np.log(topics).T) + np.log(weights)
    total = np.asarray(logsumexp(logits, axis=1))
    return Described(np.exp(logits - total[:, None]), total)


@bound_units.register(MixtureOfUnigrams)
@bound_units.register(Unigram)
def _bound(model: MixtureOfUnigrams | Unigram, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds on each document's log-probability: the exact value rounded outwards, nats."""
    value = describe_units(model, estimate, data).log_lower
    slack = ROUNDING * (1 + np.abs(value))
    return value - slack, value + slack


def mean_parameters(estimate: Estimate) -> tuple[Float64[np.ndarray, " topic"], Float64[np.ndarray, "topic word"]]:
    """Return (weights, p(word | topic)) at their posterior means, or at the point estimates. Each row sums to 1."""
    model = estimate.model
    assert isinstance(model, MixtureOfUnigrams | Unigram)
    natural = {name: leaf.astype(np.float64) for name, leaf in estimate.natural.items()}
    natural = {"weights": np.zeros(estimate.size), **natural}  # the unigram model has no weights: any numbers will do
    if has_point_estimates(model):
        log_weights, log_topics = log_point_estimates(model, natural)
        return np.exp(log_weights), np.exp(log_topics)
    weights, topics = natural["weights"] + 1, natural["topic_word"] + 1
    return weights / weights.sum(), topics / topics.sum(1, keepdims=True)


def has_point_estimates(model: MixtureOfUnigrams | Unigram) -> bool:
    """Return whether the parameters are point estimates."""
    return isinstance(model.topics, PointSimplex)


def log_point_estimates(
    model: MixtureOfUnigrams | Unigram, natural: dict[str, np.ndarray]
) -> tuple[Float64[np.ndarray, " topic"], Float64[np.ndarray, "topic word"]]:
    """Return the point estimates as (log π, log β)."""
    assert isinstance(model.topics, PointSimplex)
    log_weights = _log_point(PointSimplex(), natural["weights"])
    return log_weights, _log_point(model.topics, natural["topic_word"])


def _log_point(family: PointSimplex, natural: np.ndarray) -> np.ndarray:
    """Return the logarithm of `PointSimplex.mean`, in float64."""
    counts = np.maximum(natural, 0) + family.smoothing
    total = counts.sum(-1, keepdims=True)
    counts = np.where(total > 0, counts, 1.0)
    raised = np.maximum(counts / counts.sum(-1, keepdims=True), family.floor)
    return np.log(raised / raised.sum(-1, keepdims=True))


def _dirichlet_divergence(concentration: np.ndarray, expected_log: np.ndarray, prior: float) -> np.ndarray:
    """Return KL(Dirichlet(concentration) ‖ Dirichlet(prior, …)) over the last axis, nats."""
    n = concentration.shape[-1]
    own = gammaln(concentration.sum(-1)) - gammaln(concentration).sum(-1)
    other = gammaln(n * prior) - n * gammaln(prior)
    return np.asarray(own - other + ((concentration - prior) * expected_log).sum(-1))


def _eta(model: MixtureOfUnigrams | Unigram) -> float:
    """Return the topics' concentration η."""
    return float(np.asarray(model.topic_concentration))


def _weight_concentration(model: MixtureOfUnigrams | Unigram) -> float:
    """Return the weights' concentration a. A single topic has weight 1, and any number will do."""
    return float(np.asarray(model.concentration)) if isinstance(model, MixtureOfUnigrams) else 1.0
