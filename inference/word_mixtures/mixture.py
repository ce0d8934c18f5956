"""The estimator of the mixture of unigrams, and of the unigram model: each sweep is two products of sparse counts.

Let n_dw be the count of word w in document d, π the topics' weights, and β_k the distribution over words of topic k.
With q(z_d) of every document's topic at its optimum, r_dk ∝ exp(E[log π_k] + Σ_w n_dw E[log β_kw]), the bound is

    Σ_d log Σ_k exp(…) − KL(q(π) ‖ p(π)) − Σ_k KL(q(β_k) ‖ p(β_k)),      nats,

and the global parameters are updated by Σ_d r_dk and Σ_d r_dk n_dw (Blei 2004, §3.4.3). With point estimates the KL
terms are absent, the sum is the likelihood itself and the method is EM (Nigam et al. 2000). The generic mean field, and
`FiniteMixture`'s kernel on rows, give the same bounds. They hold a row as long as the vocabulary for each document,
while the counts here stay sparse. Everything is float64.

Topics of this mixture and of pLSI start from a few documents each (`seeded_counts`; Blei 2004, §3.6).

`document_proportions` is the distribution of a new document's topic proportions under any fitted model of documents;
`document_likelihood` and `document_completion` take it as their argument α. `with_more_words` makes a start for a
larger vocabulary of a fit of any of them.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, cast

import jax
import numpy as np
from jaxtyping import Array, Float64, Int
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln, logsumexp, softmax

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of, deal_documents
from lvsearch.inference.engine.describing import Described, describe_units
from lvsearch.inference.engine.estimate import ROUNDING, Estimate, just_above
from lvsearch.inference.engine.estimator import BaseEstimator, MemoryPlan, Part
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.inference.kits import model_kit
from lvsearch.inference.likelihood.proportions import Corners
from lvsearch.models.contract import Model
from lvsearch.models.families import PointSimplex
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams, Unigram
from lvsearch.models.topic_model import TopicModel

DOCUMENTS_PER_TOPIC = 5
"""The number of documents that a topic begins with, as in §3.6."""


def seeded_counts(
    counts: csr_array, n_topics: int, tokens: float, random: np.random.Generator
) -> Float64[np.ndarray, "topic word"]:
    """Return pseudo-counts for topics to start from, (topic, word): each topic has the words of a few documents.

    These words are scaled to `tokens` tokens in all. One more token is spread unevenly over the vocabulary, so that no
    two topics are alike. No document is used twice before all were used. If there are many topics, each gets fewer
    documents.

    counts: the count of each word in each document, (document, word).
    n_topics: the number of topics.
    tokens: how many tokens of its documents a topic gets.
    """
    n_docs, n_words = counts.shape[0], counts.shape[1]
    out = np.empty((n_topics, n_words))
    for topic, chosen in enumerate(deal_documents(n_docs, n_topics, DOCUMENTS_PER_TOPIC, random)):
        words = np.asarray(counts[chosen].sum(0), np.float64)
        spread = random.uniform(0.5, 1.5, n_words)
        out[topic] = tokens * words / max(words.sum(), 1.0) + spread / spread.sum()
    return out


FIRST_TEMPERATURE = 0.5
"""The annealing starts at this number divided by the mean number of tokens per document.

At that temperature a document's words hardly say which topic it belongs to.
"""


@dataclass(frozen=True)
class UnigramMixtureSettings:
    """Settings of a fit of a mixture of unigrams: how much work it does, and when it ends.

    | field | meaning |
    |---|---|
    | `sweeps` | the most sweeps of coordinate ascent |
    | `tolerance` | a sweep that gains less than this share of the bound is the last one; §3.6.1 has 1e-5 |
    | `annealing` | sweeps of deterministic annealing before a fit from nothing; 0 for none |
    | `start_tokens` | tokens of the documents that a topic added to another fit starts from; §3.6 has two |

    In annealing sweeps the log responsibilities are multiplied by t, which rises to 1. Without annealing, documents of
    a hundred words stay in the topic that they are first put in. On AP (η = 0.05, K = 20 and 100 topics) the bound
    after six sweeps from five documents a topic, as in §3.6, was 73,000 and 64,000 nats lower.
    """

    sweeps: int = 200
    tolerance: float = 1e-6
    annealing: int = 50
    start_tokens: float = 2.0


class ExpectedCounts(NamedTuple):
    """The sums over documents that update the parameters, with r_dk the probability that document d is in topic k.

    `words`: Σ_d r_dk n_dw, how often each topic is expected to have written each word, (topic, word).
    `documents`: Σ_d r_dk, the expected number of documents of each topic, (topic,).
    """

    words: Float64[np.ndarray, "topic word"]
    documents: Float64[np.ndarray, " topic"]


class UnigramMixtureEstimator(BaseEstimator):
    """The estimator of `MixtureOfUnigrams`, in which each document has one topic, and of `Unigram`, which has one
    topic.
    """

    model: MixtureOfUnigrams | Unigram

    def __init__(
        self,
        model: MixtureOfUnigrams | Unigram,
        data: Dataset,
        settings: UnigramMixtureSettings = UnigramMixtureSettings(),
    ):
        """Count the words of the documents; nothing is fitted."""
        super().__init__(model)
        self.settings = settings
        self.counts = csr_array(counts_of(data), dtype=np.float64)
        self.transposed = csr_array(self.counts.T)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return how many bytes one fit holds, part by part.

        These are the counts twice, and in float64 five arrays (topic, word) and four (topic, document).

        size: (number of topics,).
        """
        n_docs, n_words = self.counts.shape[0], self.counts.shape[1]
        return MemoryPlan(
            (
                Part("counts", 2 * 12 * self.counts.nnz),
                Part("beliefs about topics", 5 * 8 * size[0] * n_words),
                Part("topics of documents", 4 * 8 * size[0] * n_docs),
            )
        )

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit one number of topics by coordinate ascent and return the fit.

        size: (number of topics,).
        key: the random key of the start.
        start: a fit of another size, whose topics are kept; each new topic begins with a few documents. None puts
            documents in topics at random, and begins with deterministic annealing.
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
        """Return the expected counts when every document is in one topic drawn at random."""
        return self._sum_over_documents(np.eye(n_topics)[random.integers(0, n_topics, self.counts.shape[0])])

    def _counts_from_fit(self, n_topics: int, random: np.random.Generator, start: Estimate) -> ExpectedCounts:
        """Return the expected counts of a fit's topics, and of new topics that begin with a few documents each."""
        prior, kept = self._prior(), min(start.size[0], n_topics)
        words = np.maximum(start.natural["topic_word"][:kept].astype(np.float64) - prior.words, 0)
        documents = np.maximum(start.natural["weights"][:kept].astype(np.float64) - prior.documents, 0)
        new = seeded_counts(self.counts, n_topics - kept, self.settings.start_tokens, random)
        more = np.full(n_topics - kept, self.counts.shape[0] / n_topics)
        return ExpectedCounts(np.concatenate([words, new]), np.concatenate([documents, more]))

    def _sum_over_documents(self, shares: Float64[np.ndarray, "document topic"]) -> ExpectedCounts:
        """Return the expected counts that follow from the probabilities `shares` of each document's topic."""
        return ExpectedCounts(np.asarray(self.transposed @ shares).T, shares.sum(0))

    def _prior(self) -> ExpectedCounts:
        """Return the natural parameters of the priors of topics and weights, shapes (1, 1) and (1,); 0 for point
        estimates.
        """
        if has_point_estimates(self.model):
            return ExpectedCounts(np.zeros((1, 1)), np.zeros(1))
        return ExpectedCounts(np.array([[_eta(self.model) - 1]]), np.array([_weight_concentration(self.model) - 1]))

    def _posterior(self, sums: ExpectedCounts) -> dict[str, np.ndarray]:
        """Return the natural parameters of q(weights) and q(topics) by name: those of the prior plus the expected
        counts.
        """
        prior = self._prior()
        return {"weights": sums.documents + prior.documents, "topic_word": sums.words + prior.words}

    def _e_step(
        self, natural: dict[str, np.ndarray], temperature: float = 1.0
    ) -> tuple[Float64[np.ndarray, "document topic"], float]:
        """Return the probability of each topic of each document, and the bound on the log evidence at fixed parameters,
        in nats.

        natural: natural parameters of q(weights) and q(topics) by name.
        temperature: log probabilities are multiplied by this number before normalising; 1 for no annealing.

        Returns: (probabilities r_dk, (document, topic); bound). The bound is that of the probabilities at temperature
            1, whatever `temperature` is.
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


def describe_documents_of_unigrams(model: MixtureOfUnigrams | Unigram, estimate: Estimate, data: Dataset) -> Described:
    """Return p(topic | document) and log p(document) of each document at the posterior-mean parameters. Both are
    exact.
    """
    weights, topics = mean_parameters(estimate)
    logits = np.asarray(csr_array(counts_of(data), dtype=np.float64) @ np.log(topics).T) + np.log(weights)
    total = np.asarray(logsumexp(logits, axis=1))
    return Described(np.exp(logits - total[:, None]), total)


def bound_documents_of_unigrams(
    model: MixtureOfUnigrams | Unigram, estimate: Estimate, data: Dataset
) -> tuple[np.ndarray, np.ndarray]:
    """Return (lower, upper) bounds on each document's log-probability: the exact value rounded outwards, in nats."""
    value = describe_units(model, estimate, data).log_lower
    slack = ROUNDING * (1 + np.abs(value))
    return value - slack, value + slack


def mean_parameters(estimate: Estimate) -> tuple[Float64[np.ndarray, " topic"], Float64[np.ndarray, "topic word"]]:
    """Return (weights of the topics, probability of each word in each topic) of a fit; the rows of both sum to 1.

    They are posterior means, or the point estimates.
    """
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
    """Return True if the model's parameters are point estimates, and False if they have priors."""
    return isinstance(model.topics, PointSimplex)


def log_point_estimates(
    model: MixtureOfUnigrams | Unigram, natural: dict[str, np.ndarray]
) -> tuple[Float64[np.ndarray, " topic"], Float64[np.ndarray, "topic word"]]:
    """Return the logarithms of the point estimates of (weights of the topics, probability of each word in each topic).

    natural: the fit's natural parameters "weights" and "topic_word".
    """
    assert isinstance(model.topics, PointSimplex)
    log_weights = _log_point(PointSimplex(), natural["weights"])
    return log_weights, _log_point(model.topics, natural["topic_word"])


def _log_point(family: PointSimplex, natural: np.ndarray) -> np.ndarray:
    """Return the log of the distribution that `PointSimplex` estimates from counts, over the last axis, float64.

    natural: the counts, (…, entry).
    """
    counts = np.maximum(natural, 0) + family.smoothing
    total = counts.sum(-1, keepdims=True)
    counts = np.where(total > 0, counts, 1.0)
    raised = np.maximum(counts / counts.sum(-1, keepdims=True), family.floor)
    return np.log(raised / raised.sum(-1, keepdims=True))


def _dirichlet_divergence(concentration: np.ndarray, expected_log: np.ndarray, prior: float) -> np.ndarray:
    """Return KL(Dirichlet(concentration) ‖ Dirichlet(prior, …, prior)) over the last axis, in nats.

    concentration: (…, entry).
    expected_log: E[log p] under the first distribution, (…, entry).
    prior: the concentration of each entry in the second one.
    """
    n = concentration.shape[-1]
    own = gammaln(concentration.sum(-1)) - gammaln(concentration).sum(-1)
    other = gammaln(n * prior) - n * gammaln(prior)
    return np.asarray(own - other + ((concentration - prior) * expected_log).sum(-1))


def _eta(model: MixtureOfUnigrams | Unigram) -> float:
    """Return η, the concentration of the topics' Dirichlet prior."""
    return float(np.asarray(model.topic_concentration))


def _weight_concentration(model: MixtureOfUnigrams | Unigram) -> float:
    """Return the concentration of each topic's weight. A single topic has weight 1, and any number will do."""
    return float(np.asarray(model.concentration)) if isinstance(model, MixtureOfUnigrams) else 1.0


# ── topic proportions of new documents ────────────────────────────────────────────────────────────────────────────────


def document_proportions(model: TopicModel, estimate: Estimate, training: Dataset) -> Any:
    """Return the distribution of a new document's topic proportions under a fit (`ModelKit.document_proportions`).

    It is the parameters of a Dirichlet distribution, (topic,), or a `Proportions`.

    training: the documents that were fitted.

    Raises ValueError for models whose documents have no proportions on one simplex.
    """
    return model_kit(model).document_proportions(model, estimate, training)


def no_proportions(model: Model, estimate: Estimate, training: Dataset) -> NoReturn:
    """Raise ValueError: the units of this type of model have no proportions on one simplex."""
    raise ValueError(f"{type(model).__name__} has no distribution of document proportions on one simplex")


def proportions_of_topic_model(model: TopicModel, estimate: Estimate, training: Dataset) -> Any:
    """Return the parameters of the Dirichlet distribution that a topic model gives the proportions, (topic,).

    Raises ValueError for topic models whose proportions have none.
    """
    prior = model.proportions_prior(estimate.size, estimate.natural)
    return no_proportions(model, estimate, training) if prior is None else prior


def proportions_of_unigram_mixture(model: MixtureOfUnigrams, estimate: Estimate, training: Dataset) -> Corners:
    """Return a distribution on the corners of the simplex, with the fitted topic weights: each document has one
    topic.
    """
    return Corners(mean_parameters(estimate)[0])


def with_more_words(estimate: Estimate, tokens: Float64[np.ndarray, " new"] | Int[np.ndarray, " new"]) -> Estimate:
    """Return a fit of a model of documents over a vocabulary with new words after the old ones, to begin a fit from.

    The tokens of each new word are divided among the topics in proportion to the topics' own tokens. So every topic
    gives a new word the same probability, and the other words of its documents decide to which topic it goes. At the
    prior alone it would be a thousand times as probable in a topic of a hundred tokens as in one of a hundred thousand,
    and small topics would draw all new words.

    tokens: the number of tokens of each new word in the data that will be fitted.

    Its bounds on the evidence are unknown: −∞ and ∞.
    """
    size, site = estimate.size, cast(TopicModel, estimate.model).topic_site
    old, n_old = estimate.natural[site], estimate.natural[site].shape[1]
    extents = {"word": n_old + len(tokens)}
    model = cast(TopicModel, estimate.model.on_longer_axes(extents))
    on, blank = model.active(size, size), blank_globals(model, extents, size, size).mean

    def log_prior(topics: Array) -> Array:
        return model.log_prior({**blank, model.topic_site: topics}, on)

    # the prior's natural parameters, (topic, word); 0 where topics are estimated
    prior = np.asarray(jax.grad(log_prior)(blank[model.topic_site]), np.float64)
    own = np.maximum(old.astype(np.float64) - prior[:, :n_old], 0.0).sum(1)
    shares = own / own.sum() if own.sum() > 0 else np.full(len(own), 1 / len(own))
    new = prior[:, n_old:] + shares[:, None] * np.asarray(tokens, np.float64)
    topics = np.concatenate([old, new.astype(old.dtype)], axis=1)
    natural = {**estimate.natural, model.topic_site: topics}
    return estimate._replace(model=model, natural=natural, log_lower=-np.inf, log_upper=np.inf)
