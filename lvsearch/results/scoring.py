"""The scores of other libraries on the fits of a search: what `SearchResult.other_scores` is made of.

What is found is an `lvsearch.scrutiny.other_scores.OtherScores`, which says what it means.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.data.corpus import Corpus
from lvsearch.fitted.topics import FittedTopics
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.engine.unit_scores import score_units
from lvsearch.inference.topic_samplers.word_likelihood import log_word_likelihoods
from lvsearch.interrupts import pressed
from lvsearch.models.lda import LDA
from lvsearch.models.plain_arguments import whole_number
from lvsearch.progress import progress_bar
from lvsearch.results.auditing import audited_search
from lvsearch.results.findings import Findings
from lvsearch.results.heldout import SAMPLES, require_comparable
from lvsearch.results.persisting import fitted_from_scratch
from lvsearch.scrutiny import other_scores as kinds
from lvsearch.scrutiny.other_scores import OtherScores, ScoreKind, SizeScore
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.seeds import LARGEST_SEED, checked_seed
from lvsearch.sizing.sizes import Size, as_size
from lvsearch.topics.coherence import npmi_coherence, umass_coherence
from lvsearch.topics.perplexity import variational_perplexity
from lvsearch.topics.size_indices import (
    arun,
    bayesian_information_criterion,
    cao_juan,
    deveaud,
    log_harmonic_mean,
    term_agreement,
)

WARMUP, THIN = 100, 5
"""Sweeps before the first draw of a harmonic mean, and from one to the next."""
SHARE = 0.8
"""Of the documents, in a sample that stability is asked of (Greene et al. 2014, §4)."""
AGREEING_WORDS = 20
"""Of each topic, compared between samples (the same)."""


@dataclass(frozen=True)
class _Scored:
    """What scores of one size are computed from."""

    evaluator: ModelEvaluator
    training: Corpus
    test: Corpus | None
    fit: FittedTopics
    capacity: tuple[int, ...]
    n_words: int
    draws: int
    samples: int
    key: Key[Array, ""]

    @property
    def topic_word(self) -> Float[np.ndarray, "topic word"]:
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
    """`SearchResult.other_scores`, which says what it takes and raises."""
    evaluator, training = _scored_search(result)
    draws, samples = whole_number("draws", draws, least=0), whole_number("samples", samples, least=0)
    n_words = whole_number("n_words", n_words, least=2)
    seed, found = checked_seed(seed), result.estimated
    given = result.held_out if test is None else test
    unseen = None if given is None else cast(Corpus, require_comparable(training.like_this(given)))
    chosen = found.sizes if sizes is None else _given_sizes(result, sizes)
    prepare_programs()
    scores = _wanted(unseen is not None, draws, samples)
    values = np.full((len(scores), len(chosen)), np.nan)
    bar = progress_bar(values.size, "scores", "score", wanted=progress)
    for column, size in enumerate(chosen):
        fit = cast(FittedTopics, result.fit(size))
        key = jax.random.fold_in(jax.random.key(seed), size[0])
        of = _Scored(evaluator, training, unseen, fit, capacity_of(max(chosen)), n_words, draws, samples, key)
        for row, score in enumerate(scores.values()):
            if pressed():
                raise KeyboardInterrupt
            values[row, column] = score(of)
            bar.update()
    bar.close()
    probability = dict(zip(found.sizes, found.probability.tolist(), strict=True))
    tried, _, log_evidence, _ = result.estimates()
    estimate = dict(zip(tried, log_evidence.tolist(), strict=True))
    return OtherScores(
        tuple(chosen),
        np.array([probability.get(size, np.nan) for size in chosen]),
        np.array([estimate.get(size, np.nan) for size in chosen]),
        tuple(SizeScore(kind, row) for kind, row in zip(scores, values, strict=True)),
        found.best,
        found.indistinguishable,
        evaluator.size_names[0],
    )


def _wanted(held_out: bool, draws: int, samples: int) -> dict[ScoreKind, Callable[[_Scored], float]]:
    """The scores that there are data for and that were asked for, in the order in which they are shown."""
    every = {
        kinds.BIC: _bic,
        kinds.PERPLEXITY: lambda of: _perplexity(of, of.training),
        kinds.LOG_PERPLEXITY: _log_perplexity,
        kinds.HELD_OUT: _held_out,
        kinds.UMASS: lambda of: float(umass_coherence(_top(of), of.training.counts).mean()),
        kinds.NPMI: lambda of: float(npmi_coherence(_top(of), of.training.counts).mean()),
        kinds.GRIFFITHS: _griffiths,
        kinds.CAO_JUAN: lambda of: cao_juan(of.topic_word),
        kinds.ARUN: lambda of: arun(of.topic_word, of.fit.proportions, of.training.observations_per_unit),
        kinds.DEVEAUD: lambda of: deveaud(of.topic_word),
        kinds.STABILITY: _stability,
    }
    asked = {kinds.LOG_PERPLEXITY: held_out, kinds.HELD_OUT: held_out, kinds.GRIFFITHS: draws, kinds.STABILITY: samples}
    return {kind: score for kind, score in every.items() if asked.get(kind, True)}


def _bic(of: _Scored) -> float:
    likelihood = float(of.fit.score_units(of.training).sum())
    (n_topics,) = of.fit.estimate.size
    return bayesian_information_criterion(likelihood, n_topics, of.training.n_terms, len(of.training))


def _perplexity(of: _Scored, documents: Corpus) -> float:
    eta = float(cast(LDA, of.fit.model).numbers_by_name()["topic_concentration"])
    concentration = np.asarray(of.fit.estimate.natural[of.fit.model.topic_site], np.float64) + 1
    return variational_perplexity(concentration, float(of.fit.alpha[0]), eta, documents.counts)


def _log_perplexity(of: _Scored) -> float:
    assert of.test is not None
    return -float(np.log(_perplexity(of, of.test)))


def _held_out(of: _Scored) -> float:
    assert of.test is not None
    key = jax.random.key(0)  # one for all sizes: differences share its noise
    estimate, data = of.fit.estimate, of.test.dataset()
    scored = score_units(estimate.model, estimate, data, capacity=of.capacity, samples=SAMPLES, key=key)
    return float(scored.per_unit.sum()) / of.test.n_tokens


def _griffiths(of: _Scored) -> float:
    (size,) = of.fit.size
    model = cast(LDA, of.evaluator.base_model)
    return log_harmonic_mean(
        log_word_likelihoods(
            model, of.evaluator.data, size, draws=of.draws, warmup=WARMUP, thin=THIN, key=jax.random.fold_in(of.key, 1)
        )
    )


def _stability(of: _Scored) -> float:
    """The mean agreement with fits of samples of the documents; NaN for one topic, and where no fit was a number."""
    (size,) = of.fit.size
    if size < 2:
        return float("nan")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(of.key, 2))).ravel())
    n_documents, agreements = len(of.training), []
    for _ in range(of.samples):
        chosen = np.sort(rng.permutation(n_documents)[: max(1, round(SHARE * n_documents))])
        data = of.training.part(chosen, "a sample of them").dataset()
        seed = int(rng.integers(LARGEST_SEED))
        other = fitted_from_scratch(of.evaluator, data, of.fit.size, seed, of.training)
        if other is not None:
            theirs = other.table(of.fit.model.topic_site).to_numpy(np.float64)
            agreements.append(term_agreement(of.topic_word, theirs, AGREEING_WORDS))
    return float(np.mean(agreements)) if agreements else float("nan")


def _top(of: _Scored) -> np.ndarray:
    return np.argsort(-of.topic_word, axis=1, kind="stable")[:, : of.n_words]


def _scored_search(result: Findings) -> tuple[ModelEvaluator, Corpus]:
    """The evaluator and the documents of a search that has topics to score. ValueError, saying why, for any other."""
    evaluator, training = audited_search(result)
    model = evaluator.base_model
    if not isinstance(model, LDA) or not isinstance(training, Corpus) or model.inferred or np.ndim(model.numbers()[0]):
        raise ValueError(
            f"got a search of {model.describe()}; expected LDA with numbers for its concentrations, one total for "
            "documents: the scores of other libraries are of that model"
        )
    return evaluator, training


def _given_sizes(result: Findings, sizes: Iterable[Size | int]) -> tuple[Size, ...]:
    chosen = tuple(sorted({as_size(size, result.prior.dimension) for size in sizes}))
    if not chosen:
        raise ValueError("got no sizes, expected at least one, or None for those that the search tried")
    return chosen
