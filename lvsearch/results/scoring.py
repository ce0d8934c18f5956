"""Compute scores that other libraries use to choose a number of topics or of components, on the fits of a search.

`SearchResult.other_scores` calls `score_sizes`.

The result is a `lvsearch.scrutiny.other_scores.OtherScores`, whose docstring says how to read it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import xlogy

from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.data.points import Points
from lvsearch.fitted.clusters import simulated_rows
from lvsearch.fitted.mixture_draws import log_likelihoods
from lvsearch.inference.allocation_chains import RowMixture
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.engine.describing import score_units
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.topic_samplers.paths import log_word_likelihoods
from lvsearch.interrupts import was_interrupted
from lvsearch.models.lda import LDA
from lvsearch.models.plain_arguments import LARGEST_SEED, checked_seed, whole_number
from lvsearch.progress import progress_bar
from lvsearch.results.findings import SAMPLES, Findings
from lvsearch.results.heldout import require_comparable
from lvsearch.results.persisting import fitted_from_scratch
from lvsearch.results.repeated_searches import annealed_search, search_of_model
from lvsearch.scrutiny import other_scores as kinds
from lvsearch.scrutiny.other_scores import LikelihoodRatioTest, OtherScores, ScoreKind, SizeScore
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.univariate import as_sizes
from lvsearch.topics.topic_scores import (
    arun,
    bayesian_information_criterion,
    cao_juan,
    deveaud,
    log_harmonic_mean,
    npmi_coherence,
    term_agreement,
    umass_coherence,
    variational_perplexity,
)

WARMUP, THIN = 100, 5
"""The number of sweeps before the first draw of the harmonic mean (WARMUP), and from one draw to the next (THIN)."""
SHARE = 0.8
"""The share of the documents in each sample that stability is measured on (Greene et al. 2014, §4)."""
AGREEING_WORDS = 20
"""How many of each topic's most probable words are compared between samples (Greene et al. 2014, §4)."""


@dataclass(frozen=True)
class _FitToScore:
    """The fit of one size and everything else that its scores are computed from.

    evaluator: the model with its data.
    training: the documents or rows that were searched.
    test: held-out ones, or None.
    fit: the fit that is scored.
    capacity: the number of topics to which arrays are padded when held-out units are scored, one for all sizes.
    n_words: the number of words of each topic that the coherence uses.
    draws: the number of Gibbs draws that the harmonic mean uses.
    samples: the number of samples of documents that the stability uses.
    key: the random key of this size.
    """

    evaluator: ModelEvaluator
    training: Any
    test: Any
    fit: Any
    capacity: tuple[int, ...]
    n_words: int
    draws: int
    samples: int
    key: Key[Array, ""]

    @property
    def topic_word(self) -> Float[np.ndarray, "topic word"]:
        """The mean probability of each word in each topic, (topic, word)."""
        return self.fit.table(self.fit.model.topic_site).to_numpy(np.float64)


def score_sizes(
    result: Findings,
    test: object,
    sizes: Iterable[Size | int] | None,
    *,
    draws: int,
    samples: int,
    n_words: int,
    seed: int,
    progress: bool,
) -> OtherScores:
    """Return every score at every size. `SearchResult.other_scores` calls this function.

    result: a search of LDA with annealed evidence, or of a mixture of rows.
    test: held-out documents or rows; None for those that the search kept. Without any, scores of held-out data are
        left out.
    sizes: the sizes to score; None for the sizes that the search tried. Chains over partitions try few; then it is all
        sizes up to one beyond the largest that was fitted.
    draws: the number of draws of a Gibbs chain for Griffiths2004; 0 leaves the score out.
    samples: the number of samples of documents for stability; 0 leaves the score out.
    n_words: the number of words of each topic for coherence, at least 2.
    seed: the seed of draws and samples.
    progress: show a progress bar with a step for each score of each size.

    Raises ValueError for models other than these, for LDA with evidence that is not annealed or concentrations that are
    no numbers, and for counts that are too small.
    """
    evaluator, training = _scored_search(result)
    of_topics = isinstance(evaluator.base_model, LDA)
    draws, samples = whole_number("draws", draws, least=0), whole_number("samples", samples, least=0)
    n_words = whole_number("n_words", n_words, least=2)
    seed, found = checked_seed(seed), result.estimated
    given = result.held_out if test is None else test
    unseen = None if given is None else require_comparable(training.like_this(given))
    # a search by gains has a probability for every size up to the largest, but fits of those tried alone
    fitted = tuple(sorted(visit.size for visit in result.visits if not visit.failed and visit.size in found.sizes))
    if result.partitions is not None:
        fitted = tuple((number,) for number in range(1, max(visit.size[0] for visit in result.visits) + 2))
    chosen = fitted if sizes is None else as_sizes(sizes, result.prior.dimension)
    prepare_programs()
    held_out = unseen is not None
    scores = _functions_by_kind(held_out, draws, samples) if of_topics else _functions_of_mixtures(held_out)
    # a row per score and a column per size; each size has a random key of its own, made from the seed
    values = np.full((len(scores), len(chosen)), np.nan)
    with progress_bar(values.size, "scores", "score", wanted=progress) as bar:
        for column, size in enumerate(chosen):
            key = jax.random.fold_in(jax.random.key(seed), size[0])
            scored = _FitToScore(
                evaluator, training, unseen, result.fit(size), capacity_of(max(chosen)), n_words, draws, samples, key
            )
            for row, score in enumerate(scores.values()):
                if was_interrupted():
                    raise KeyboardInterrupt
                values[row, column] = score(scored)
                bar.update()
    probability = dict(zip(found.sizes, found.probability.tolist(), strict=True))
    tried, _, log_evidence, _ = result.estimates()
    estimate = dict(zip(tried, log_evidence.tolist(), strict=True))
    # chains over partitions know the evidence up to a constant alone, and all sizes that they leave out are improbable
    absent, estimate = (np.nan, estimate) if result.partitions is None else (0.0, {})
    return OtherScores(
        tuple(chosen),
        np.array([probability.get(size, absent) for size in chosen]),
        np.array([estimate.get(size, np.nan) for size in chosen]),
        tuple(SizeScore(kind, row) for kind, row in zip(scores, values, strict=True)),
        found.best,
        found.indistinguishable,
        evaluator.size_names[0],
    )


def _functions_by_kind(held_out: bool, draws: int, samples: int) -> dict[ScoreKind, Callable[[_FitToScore], float]]:
    """Return {kind of score: function that computes it}, in the order in which scores are shown.

    held_out: True if there are held-out documents; else the scores of held-out documents are left out.
    draws, samples: the numbers of Gibbs draws and of samples of documents; scores that use them are left out for 0.
    """
    every = {
        kinds.BIC: _bic,
        kinds.PERPLEXITY: lambda scored: _perplexity(scored, scored.training),
        kinds.LOG_PERPLEXITY: _log_perplexity,
        kinds.HELD_OUT: _held_out,
        kinds.UMASS: lambda scored: float(umass_coherence(_top_words(scored), scored.training.counts).mean()),
        kinds.NPMI: lambda scored: float(npmi_coherence(_top_words(scored), scored.training.counts).mean()),
        kinds.GRIFFITHS: _griffiths,
        kinds.CAO_JUAN: lambda scored: cao_juan(scored.topic_word),
        kinds.ARUN: lambda scored: arun(
            scored.topic_word, scored.fit.proportions, scored.training.observations_per_unit
        ),
        kinds.DEVEAUD: lambda scored: deveaud(scored.topic_word),
        kinds.STABILITY: _stability,
    }
    asked = {kinds.LOG_PERPLEXITY: held_out, kinds.HELD_OUT: held_out, kinds.GRIFFITHS: draws, kinds.STABILITY: samples}
    return {kind: score for kind, score in every.items() if asked.get(kind, True)}


def _bic(scored: _FitToScore) -> float:
    """Return the Bayesian information criterion (BIC) of the fit; the smallest value chooses the size."""
    likelihood = float(scored.fit.score_units(scored.training).sum())
    (n_topics,) = scored.fit.estimate.size
    return bayesian_information_criterion(likelihood, n_topics, scored.training.n_terms, len(scored.training))


def _perplexity(scored: _FitToScore, documents: Corpus) -> float:
    """Return the perplexity per token of `documents` by the variational bound, as scikit-learn computes it."""
    eta = float(cast(LDA, scored.fit.model).numbers_by_name()["topic_concentration"])
    concentration = np.asarray(scored.fit.estimate.natural[scored.fit.model.topic_site], np.float64) + 1
    return variational_perplexity(concentration, float(scored.fit.alpha[0]), eta, documents.counts)


def _log_perplexity(scored: _FitToScore) -> float:
    """Return the variational bound on log p per held-out token, in nats, like gensim's `log_perplexity`."""
    assert scored.test is not None
    return -float(np.log(_perplexity(scored, scored.test)))


def _held_out(scored: _FitToScore) -> float:
    """Return the log-likelihood per token or cell of the held-out units, as `compare_held_out` has it, in nats."""
    assert scored.test is not None
    key = jax.random.key(0)  # one for all sizes: differences share its noise
    estimate, data = scored.fit.estimate, scored.test.dataset()
    scores = score_units(estimate.model, estimate, data, capacity=scored.capacity, samples=SAMPLES, key=key)
    return float(scores.per_unit.sum()) / float(scored.test.observations_per_unit.sum())


def _griffiths(scored: _FitToScore) -> float:
    """Return the log of the harmonic mean of the words' likelihoods over draws of a Gibbs chain, in nats.

    Source: Griffiths & Steyvers (2004).
    """
    (size,) = scored.fit.size
    model = cast(LDA, scored.evaluator.base_model)
    return log_harmonic_mean(
        log_word_likelihoods(
            model,
            scored.evaluator.data,
            size,
            draws=scored.draws,
            warmup=WARMUP,
            thin=THIN,
            key=jax.random.fold_in(scored.key, 1),
        )
    )


def _stability(scored: _FitToScore) -> float:
    """Return how far the fit's topics agree with those of fits of samples of the documents, from 0 to 1.

    The agreement is that of the topics' most probable words, averaged over samples of four fifths of the documents. It
    is NaN for one topic, and if no fit of a sample succeeded.
    """
    (size,) = scored.fit.size
    if size < 2:
        return float("nan")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(scored.key, 2))).ravel())
    n_documents, agreements = len(scored.training), []
    for _ in range(scored.samples):
        chosen = np.sort(rng.permutation(n_documents)[: max(1, round(SHARE * n_documents))])
        data = scored.training.part(chosen, "a sample of them").dataset()
        seed = int(rng.integers(LARGEST_SEED))
        other = fitted_from_scratch(scored.evaluator, data, scored.fit.size, seed, scored.training)
        if other is not None:
            theirs = other.table(scored.fit.model.topic_site).to_numpy(np.float64)
            agreements.append(term_agreement(scored.topic_word, theirs, AGREEING_WORDS))
    return float(np.mean(agreements)) if agreements else float("nan")


def _top_words(scored: _FitToScore) -> np.ndarray:
    """Return the indices of each topic's most probable words, most probable first, (topic, n_words)."""
    return np.argsort(-scored.topic_word, axis=1, kind="stable")[:, : scored.n_words]


def _functions_of_mixtures(held_out: bool) -> dict[ScoreKind, Callable[[_FitToScore], float]]:
    """Return {kind of score: function that computes it} for mixtures of rows, in the order in which they are shown.

    held_out: True if there are held-out rows; else the scores of held-out rows are left out.
    """

    def criterion(charge: Callable[[int], float]) -> Callable[[_FitToScore], float]:
        """Return the function for −2 log p(rows at the estimates) + charge(number of rows) × free parameters."""

        def score(scored: _FitToScore) -> float:
            n_rows, n_dims = scored.training.shape
            number = scored.fit.model.free_parameters(scored.fit.size[0], n_dims)
            return -2 * _log_likelihood_at_estimates(scored.fit, scored.training) + charge(n_rows) * number

        return score

    bic = criterion(np.log)
    every = {
        kinds.MIXTURE_BIC: bic,
        kinds.ICL: lambda scored: bic(scored) + 2 * _entropy(scored),
        kinds.ADJUSTED_BIC: criterion(lambda n: np.log((n + 2) / 24)),
        kinds.CAIC: criterion(lambda n: np.log(n) + 1),
        kinds.AIC: criterion(lambda n: 2.0),
        kinds.ENTROPY: _relative_entropy,
        kinds.MIXTURE_HELD_OUT: _held_out,
    }
    return {kind: score for kind, score in every.items() if held_out or kind is not kinds.MIXTURE_HELD_OUT}


def _log_likelihood_at_estimates(fit: Any, rows: Points) -> float:
    """Return log p(rows | weights and parameters at their posterior means) under a fit of a mixture, in nats.

    Posterior means stand in for the maximum of the likelihood, which Gaussians do not have, as in mclust with a prior
    (Fraley & Raftery 2007).
    """
    return float(log_likelihoods(fit.model.components, *_estimates(fit), rows).sum())


def _estimates(fit: Any) -> tuple[Any, Float[np.ndarray, "one component"]]:
    """Return (parameters, weights) of a fit of a mixture at their posterior means, as one draw of both."""
    model, natural = fit.model, fit.estimate.natural
    weights, _ = model.expected_weights(natural)
    with jax.enable_x64(True):
        at_means = model.expected_components(jax.tree.map(jnp.asarray, natural))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], at_means), weights[None]


def _entropy(scored: _FitToScore) -> float:
    """Return −Σ q log q over rows and components, where q are the fit's memberships, in nats."""
    shares = scored.fit.memberships().to_numpy()
    return float(-xlogy(shares, shares).sum())


def _relative_entropy(scored: _FitToScore) -> float:
    """Return 1 − entropy / (n log K), from 0 to 1; NaN for one component."""
    (size,) = scored.fit.size
    return 1 - _entropy(scored) / (len(scored.training) * np.log(size)) if size > 1 else float("nan")


def likelihood_ratio_of_one_more(
    result: Findings, size: Size | int | None, *, samples: int, seed: int, progress: bool
) -> LikelihoodRatioTest:
    """Return the bootstrap likelihood-ratio test of K components against K + 1.
    `SearchResult.likelihood_ratio_test` calls this function.

    result: a search of a mixture of rows.
    size: K; None for the best size.
    samples: the number of simulated tables.
    seed: the seed of simulated tables and of the starts of fits.
    progress: show a progress bar with a step for each fit.

    Raises ValueError for other models, for sizes that are no number of components, and for no samples.
    """
    evaluator, training = _scored_search(result)
    if isinstance(evaluator.base_model, LDA):
        raise ValueError("got a search of LDA, expected one of a mixture of rows: topics have no such test here")
    rows = cast(Points, training)
    size = result.best_size if size is None else as_sizes([size], 1)[0]
    samples, seed = whole_number("samples", samples, least=1), checked_seed(seed)
    (number,), key, names = size, jax.random.key(seed), evaluator.size_names[0]
    prepare_programs()
    with progress_bar(2 * (samples + 1), "likelihood ratios", "fit", wanted=progress) as bar:

        def fit(rows: Points, number: int, sample: int) -> Any:
            if was_interrupted():
                raise KeyboardInterrupt
            start = int(np.random.default_rng((seed, sample, number)).integers(LARGEST_SEED))
            found = fitted_from_scratch(evaluator, rows.dataset(), (number,), start, rows)
            bar.update()
            return found

        def both(rows: Points, sample: int) -> tuple[Any, float]:
            """Return (the fit of K, twice the gain in log-likelihood by one more component, NaN if a fit failed).

            A loss counts as no gain, since K components are a special case of K + 1.
            """
            fewer, more = (fit(rows, each, sample) for each in (number, number + 1))
            if fewer is None or more is None:
                return fewer, float("nan")
            gain = _log_likelihood_at_estimates(more, rows) - _log_likelihood_at_estimates(fewer, rows)
            return fewer, 2 * max(gain, 0.0)

        null, observed = both(rows, 0)
        if np.isnan(observed):
            raise ValueError(
                f"got a fit of {number} or {number + 1} {names} that failed, expected sizes that can be fit"
            )
        simulated = []
        for sample in range(1, samples + 1):
            own_key = jax.random.fold_in(key, sample)
            values = simulated_rows(null.model.components, own_key, *_estimates(null), rows)[0]
            simulated.append(both(replace(rows, values=values), sample)[1])
    return LikelihoodRatioTest(number, observed, np.array(simulated), names)


def _scored_search(result: Findings) -> tuple[ModelEvaluator, Data]:
    """Return the evaluator and the training data of a search whose fits can be scored.

    Raises ValueError, with the reason, for models that are neither LDA nor a mixture of rows with parameters that are
    integrated out, and for LDA whose evidence is not annealed.
    """
    evaluator, training = search_of_model(result)
    model = evaluator.base_model
    if isinstance(model, LDA) and not model.inferred and not np.ndim(model.numbers()[0]) and model.seeds is None:
        annealed_search(result, "other_scores")  # raises where the evidence is not annealed
        return evaluator, training
    if isinstance(model, RowMixture) and model.concentration is not None:
        return evaluator, training
    raise ValueError(
        f"got a search of {model.describe()}; expected LDA without seeds and with numbers for its concentrations, one "
        "total for documents, or FiniteMixture, TiedMixture or IndependentNormalMixture with a concentration: the "
        "scores of other libraries are of these models"
    )
