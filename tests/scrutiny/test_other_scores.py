"""The scores of other libraries: each against its definition written out, and all of them on a search whose answer is
known."""

from dataclasses import replace
from functools import cache
from itertools import combinations, permutations, product
from typing import Any

import jax
import mixture_cases
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp, psi
from scipy.stats import multivariate_normal

import lvsearch as lv
from lvsearch.command import cli
from lvsearch.inference.evidence import Effort
from lvsearch.inference.topic_samplers import chain as topic_chain
from lvsearch.inference.topic_samplers import size_gain
from lvsearch.inference.topic_samplers.paths import log_word_likelihoods
from lvsearch.pictures.style import in_house_style
from lvsearch.results import scoring
from lvsearch.scrutiny import other_scores
from lvsearch.scrutiny.other_scores import OtherScores, SizeScore
from lvsearch.searching import evaluators
from lvsearch.topics.topic_scores import (
    arun,
    bayesian_information_criterion,
    cao_juan,
    deveaud,
    log_harmonic_mean,
    term_agreement,
    umass_coherence,
    variational_perplexity,
)

SEED = 4
ETA, TOTAL = 0.1, 2.0


def topics(n_topics: int = 3, n_words: int = 5, seed: int = SEED) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(n_words, 0.6), n_topics)


# ── each score against its definition ───────────────────────────────────────────────────────────────────────────────


def test_bic_of_three_documents():
    """Two topics over four words are six free probabilities; the documents are the sample."""
    likelihood = np.log(0.3) + np.log(0.2) + np.log(0.05)
    expected = -2 * likelihood + 6 * np.log(3)
    assert bayesian_information_criterion(likelihood, 2, 4, 3) == pytest.approx(expected, rel=1e-14)


def test_cosines_divergences_and_singular_values_pair_by_pair():
    words = topics()
    pairs = list(combinations(range(3), 2))
    cosines = [words[a] @ words[b] / np.sqrt((words[a] @ words[a]) * (words[b] @ words[b])) for a, b in pairs]
    assert cao_juan(words) == pytest.approx(np.mean(cosines), rel=1e-12)
    kl = {
        (a, b): sum(p * np.log(p / q) for p, q in zip(words[a], words[b], strict=True))
        for a, b in permutations(range(3), 2)
    }
    assert deveaud(words) == pytest.approx(sum((kl[a, b] + kl[b, a]) / 2 for a, b in pairs) / (3 * 2), rel=1e-12)
    shares, lengths = np.random.default_rng(1).dirichlet(np.ones(3), 7), np.array([3, 9, 4, 4, 1, 2, 6])
    singular = np.sqrt(np.sort(np.linalg.eigvalsh(words @ words.T))[::-1])
    tokens = sum(n * share for n, share in zip(lengths, shares, strict=True)) / 9
    expected = sum((s - t) * np.log(s / t) for s, t in zip(singular, tokens, strict=True))
    assert arun(words, shares, lengths) == pytest.approx(expected, rel=1e-10)


def test_indices_of_the_same_topics_are_extreme():
    """So that no direction is taken for the other: equal topics have cosine 1 and divergence 0, disjoint ones 0 and a
    large one."""
    same, apart = np.tile(topics(1), (3, 1)), np.kron(np.eye(2), [0.5, 0.5])
    assert cao_juan(same) == pytest.approx(1.0)
    assert cao_juan(apart) == 0.0
    assert deveaud(same) == pytest.approx(0.0, abs=1e-12)
    assert deveaud(apart) > 100  # zeros count as the smallest number there is
    assert not other_scores.CAO_JUAN.largest
    assert other_scores.DEVEAUD.largest
    for index in (cao_juan, deveaud):
        assert np.isnan(index(topics(1)))
    assert np.isnan(arun(topics(1), np.ones((2, 1)), np.array([1, 2])))
    assert np.isnan(arun(topics(6, 5), np.full((2, 6), 1 / 6), np.array([1, 2])))


def test_one_index_hangs_on_the_numbering_of_topics():
    """As its docstring says; the others do not."""
    words, shares, lengths = topics(), np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]]), np.array([5, 8])
    order = [2, 0, 1]
    assert abs(arun(words[order], shares[:, order], lengths) - arun(words, shares, lengths)) > 0.1
    assert cao_juan(words[order]) == pytest.approx(cao_juan(words), rel=1e-12)
    assert deveaud(words[order]) == pytest.approx(deveaud(words), rel=1e-12)


def test_umass_of_three_documents():
    """Documents {a, b}, {a}, {b, c}: D(a) = 2, D(b) = 2, D(c) = 1, D(a, b) = 1, D(b, c) = 1; word d occurs nowhere."""
    counts = csr_array(np.array([[2, 1, 0, 0], [1, 0, 0, 0], [0, 3, 1, 0]]))
    expected = np.log(2 / 2) + np.log(1 / 2) + np.log(2 / 2)  # (b after a), (c after a), (c after b)
    assert umass_coherence(np.array([[0, 1, 2]]), counts)[0] == pytest.approx(expected, rel=1e-12)
    turned = np.log(2 / 1) + np.log(2 / 2) + np.log(1 / 1)  # (b after c), (a after b), (a after c)
    assert umass_coherence(np.array([[2, 1, 0]]), counts)[0] == pytest.approx(turned, rel=1e-12)
    assert umass_coherence(np.array([[3, 0]]), counts)[0] == 0.0
    with pytest.raises(ValueError, match="at least 2"):
        umass_coherence(np.array([[1]]), counts)


def test_agreement_of_words_by_sets():
    first, second = topics(3, 8, 1), topics(3, 8, 2)

    def jaccard(one, other):
        ranked = [np.argsort(-each).tolist() for each in (one, other)]
        cut = [[set(words[:depth]) for words in ranked] for depth in range(1, 6)]
        return np.mean([len(a & b) / len(a | b) for a, b in cut])

    best = max(np.mean([jaccard(first[k], second[p[k]]) for k in range(3)]) for p in permutations(range(3)))
    assert term_agreement(first, second, 5) == pytest.approx(best, rel=1e-12)
    assert term_agreement(first, first[[1, 2, 0]], 5) == 1.0


def bound(concentration, alpha, eta, counts):
    """The mean-field bound of documents and topics, nats, document by document and word by word; γ settled."""
    n_topics, n_words = concentration.shape
    log_beta = psi(concentration) - psi(concentration.sum(1, keepdims=True))
    total = 0.0
    for row in counts:
        gamma = np.ones(n_topics)
        for _ in range(2000):
            weights = np.exp(psi(gamma))[:, None] * np.exp(log_beta)
            before, gamma = gamma, alpha + (weights / weights.sum(0)) @ row
            if np.abs(gamma - before).max() < 1e-12:
                break
        log_theta = psi(gamma) - psi(gamma.sum())
        for word in range(n_words):
            total += row[word] * logsumexp(log_theta + log_beta[:, word])
        total += gammaln(n_topics * alpha) - n_topics * gammaln(alpha) + ((alpha - 1) * log_theta).sum()
        total -= gammaln(gamma.sum()) - gammaln(gamma).sum() + ((gamma - 1) * log_theta).sum()
    for topic in range(n_topics):
        total += gammaln(n_words * eta) - n_words * gammaln(eta) + ((eta - 1) * log_beta[topic]).sum()
        own = concentration[topic]
        total -= gammaln(own.sum()) - gammaln(own).sum() + ((own - 1) * log_beta[topic]).sum()
    return total


def test_perplexity_is_the_bound_written_out():
    rng = np.random.default_rng(3)
    concentration, counts = rng.gamma(2.0, 3.0, (3, 6)), rng.poisson(1.5, (5, 6))
    expected = np.exp(-bound(concentration, 0.4, 0.2, counts) / counts.sum())
    assert variational_perplexity(concentration, 0.4, 0.2, csr_array(counts)) == pytest.approx(expected, rel=1e-4)


def test_harmonic_mean_against_enumeration():
    """At one topic it is the evidence; at two, of so few tokens that a chain sees everything, it is near it."""
    corpus, model = lv.Corpus.from_matrix(np.array([[2, 0, 1], [0, 2, 0], [1, 1, 0]])), lv.models.LDA(1.0, 0.5)
    words = np.repeat(np.tile(np.arange(3), 3), corpus.counts.toarray().ravel())
    documents = np.repeat(np.repeat(np.arange(3), 3), corpus.counts.toarray().ravel())

    def log_sides(z, size):
        of_words, of_documents = np.zeros((size, 3)), np.zeros((3, size))
        np.add.at(of_words, (z, words), 1)
        np.add.at(of_documents, (documents, z), 1)
        given = (gammaln(1.5) - gammaln(1.5 + of_words.sum(1)) + (gammaln(0.5 + of_words) - gammaln(0.5)).sum(1)).sum()
        alpha, lengths = 1.0 / size, of_documents.sum(1)
        prior = (gammaln(1.0) - gammaln(1.0 + lengths)).sum() + (gammaln(alpha + of_documents) - gammaln(alpha)).sum()
        return given, prior

    def drawn(size, draws):
        return log_word_likelihoods(
            model, corpus.dataset(), size, draws=draws, warmup=20, thin=1, key=jax.random.key(1)
        )

    exact = {
        size: logsumexp([sum(log_sides(np.array(z), size)) for z in product(range(size), repeat=len(words))])
        for size in (1, 2)
    }
    np.testing.assert_allclose(drawn(1, 3), exact[1], rtol=1e-6)
    draws = drawn(2, 4000)
    possible = {round(log_sides(np.array(z), 2)[0], 4) for z in product(range(2), repeat=len(words))}
    assert set(np.round(draws, 4)) <= possible
    assert log_harmonic_mean(draws) == pytest.approx(exact[2], abs=0.15)
    assert log_harmonic_mean(np.log([1.0, 0.5, 0.25])) == pytest.approx(np.log(3 / 7))


HELD_OUT_SAMPLES = 16
"""Importance samples for each held-out document: few, since numbers from the same draws are compared."""


@pytest.fixture(autouse=True)
def few_held_out_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "SAMPLES", HELD_OUT_SAMPLES)


# ── on a search ─────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def searched() -> lv.SearchResult:
    """Three topics of four words each that share none, documents of one or two topics. Its paths are short, which
    is enough where topics are so far apart."""
    rng = np.random.default_rng(SEED)
    words = np.kron(np.eye(3), [0.4, 0.3, 0.2, 0.1])
    shares = rng.dirichlet(np.full(3, 0.3), 50)
    counts = np.stack([rng.multinomial(20, share @ words) for share in shares])
    corpus = lv.Corpus.from_matrix(counts)
    train, test = corpus.split(test_fraction=0.2, seed=0)
    model, prior = lv.models.LDA(TOTAL, ETA), lv.sizes.Poisson(3)
    settings = {"max_size": 4, "starts": 1, "exhaustive": True, "seed": SEED, "progress": False}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluators, "effort", lambda chain, trial: Effort(24, 2, 8))
        return lv.search(model, train, prior=prior, held_out=test, **settings)


@cache
def found() -> OtherScores:
    return searched().other_scores(draws=3, samples=1, n_words=4, progress=False)


@pytest.mark.slow
def test_separated_topics_are_found_by_the_posterior_and_by_most_scores():
    assert searched().best_size == found().best == (3,)
    assert found().sizes == ((1,), (2,), (3,), (4,))
    for name in ("BIC", "perplexity", "held-out likelihood", "NPMI coherence"):
        assert found().chosen[name] == (3,)
        assert name in found().agreeing


@pytest.mark.thorough
def test_the_scores_are_of_the_fits_of_the_search():
    """Recomputed from the fits by other ways: the bound of the search itself, the topics' own methods."""
    result, table = searched(), found().table().set_index("size")
    train, test = result.training, result.held_out
    for size in (1, 3):
        fit, row = result.fit(size), table.loc[size]
        assert row["perplexity"] == pytest.approx(np.exp(-fit.estimate.log_lower / train.n_tokens), rel=1e-3)
        concentration = fit.estimate.natural["topic_word"].astype(float) + 1
        held_out = bound(concentration, TOTAL / size, ETA, test.counts.toarray()) / test.n_tokens
        assert row["log_perplexity"] == pytest.approx(held_out, rel=1e-3)
        assert row["NPMI coherence"] == pytest.approx(fit.coherence(4).mean())
        likelihood = fit.score_units(train).sum()
        assert row["BIC"] == pytest.approx(-2 * likelihood + size * 11 * np.log(len(train)), rel=1e-9)
    compared = result.compare_held_out(test, samples=HELD_OUT_SAMPLES).set_index("size")["log_p_per_token"]
    np.testing.assert_allclose(table["held-out likelihood"], compared, rtol=1e-9)
    posterior = result.posterior().set_index("size")
    np.testing.assert_allclose(table["probability"], posterior["probability"])
    np.testing.assert_allclose(table["log_evidence"], posterior["log_evidence"])
    assert table.loc[1, "Griffiths2004"] == pytest.approx(table.loc[1, "log_evidence"], abs=0.01)
    assert table.loc[3, "Griffiths2004"] > table.loc[3, "log_evidence"] + 10
    assert table.loc[3, "stability"] > table.loc[4, "stability"]
    pairs = ["CaoJuan2009", "Arun2010", "Deveaud2014", "stability"]
    assert table.loc[1, pairs].isna().all()


@pytest.mark.thorough
def test_what_is_not_asked_for_is_left_out():
    small = searched().other_scores(sizes=[5, 3], draws=0, samples=0, progress=False, n_words=3)
    assert "stability" not in small.chosen
    assert "Griffiths2004" not in small.chosen
    table = small.table()
    assert table["size"].tolist() == [3, 5]
    assert np.isnan(table["probability"][1])  # 5 was not searched
    assert np.isfinite(table["BIC"][1])
    without = replace(searched(), held_out=None).other_scores(sizes=[2], draws=0, samples=0, progress=False)
    assert not {"log_perplexity", "held-out likelihood"} & set(without.chosen)


@pytest.mark.slow
def test_after_a_search_by_gains_the_sizes_it_fitted_are_scored(monkeypatch: pytest.MonkeyPatch):
    """Such a search has a probability for every size up to twice the largest that it tried: all of them were fitted."""
    corpus = searched().training
    for module in (topic_chain, size_gain):
        monkeypatch.setattr(module, "MOST_FROM_PRIOR", 0)
    result = lv.search(lv.models.LDA(TOTAL, ETA), corpus, max_size=24, starts=1, seed=SEED, progress=False)
    assert result.curve is not None
    scores = result.other_scores(draws=0, samples=0, progress=False)
    assert scores.sizes == tuple(sorted(visit.size for visit in result.visits))
    assert len(scores.sizes) < 12


@pytest.mark.thorough
def test_bad_questions_are_refused():
    result = searched()
    with pytest.raises(ValueError, match="draws=-1"):
        result.other_scores(draws=-1)
    with pytest.raises(ValueError, match="n_words=1"):
        result.other_scores(n_words=1)
    with pytest.raises(ValueError, match="no sizes"):
        result.other_scores(sizes=[])
    settings = {"max_size": 1, "starts": 1, "progress": False}
    with pytest.raises(ValueError, match="expected LDA"):
        lv.search(lv.models.MixtureOfUnigrams(), result.training, evidence="bound", **settings).other_scores()
    with pytest.raises(ValueError, match="expected annealed evidence"):
        lv.search(lv.models.LDA(), result.training, evidence="bound", **settings).other_scores()


def made_up(values: dict[other_scores.ScoreKind, list[float]], together: tuple[int, ...] = (2, 3)) -> OtherScores:
    scores = tuple(SizeScore(kind, np.array(numbers)) for kind, numbers in values.items())
    sizes = tuple((size,) for size in together)
    return OtherScores(
        ((1,), (2,), (3,), (4,)), np.array([0, 0.4, 0.6, 0]), np.full(4, -9.0), scores, (3,), sizes, "topics"
    )


def test_what_scores_name():
    nan, inf = np.nan, np.inf
    scores = made_up(
        {
            other_scores.BIC: [5.0, 1.0, 1.0, 7.0],
            other_scores.NPMI: [0.1, 0.2, 0.1, 0.4],
            other_scores.CAO_JUAN: [nan, 0.3, 0.4, -inf],
            other_scores.STABILITY: [nan] * 4,
        }
    )
    assert scores.chosen == {"BIC": (2,), "NPMI coherence": (4,), "CaoJuan2009": (2,), "stability": None}
    assert scores.agreeing == ("BIC", "CaoJuan2009")
    choices = scores.choices().set_index("score")
    assert choices["at_end"].tolist() == [False, True, True, False]
    assert choices["undecided"].tolist() == [True, False, True, False]
    assert choices["wanted"].tolist() == ["smallest", "largest", "smallest", "largest"]
    assert pd.isna(choices.loc["stability", "size"])
    assert scores.describe() == (
        "3 topics are most probable; the evidence cannot choose between 2 and 3. 2 of 3 scores name one of these; "
        "not so NPMI coherence 4."
    )
    alone = made_up({other_scores.BIC: [5.0, 3.0, 1.0, 7.0]}, together=(3,))
    assert alone.describe() == "3 topics are most probable, apart from every other size tried. 1 of 1 score name 3 too."
    assert "how readable topics are" in str(scores)


def test_the_picture_has_a_row_for_each_score_and_marks_what_it_names():
    scores = made_up({other_scores.BIC: [5.0, 1.0, 2.0, 7.0], other_scores.STABILITY: [np.nan] * 4})
    axes = in_house_style(None)
    caption = scores.draw(axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["posterior", "BIC", "stability"]
    dots = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert dots == [3, 2]
    assert scores.describe() in caption.text
    assert scores.plot().get_figure().get_size_inches()[1] == pytest.approx(scores.height)


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_the_command_scores_a_search_that_was_made(tmp_path, capsys):
    searched().save(tmp_path / "run")
    assert cli.main(["scores", str(tmp_path / "run"), "--draws", "0", "--samples", "0", "--quiet", "--no-cache"]) == 0
    printed = capsys.readouterr().out
    assert "3 topics are most probable" in printed
    assert "What they measure" in printed
    report = tmp_path / "run" / "report"
    assert pd.read_csv(report / "other_scores.csv")["size"].tolist() == [1, 2, 3, 4]
    chosen = pd.read_csv(report / "other_score_choices.csv").set_index("score")["size"]
    assert chosen["BIC"] == 3
    assert (report / "other_scores.png").stat().st_size > 10_000
    assert str(report) in printed
    assert "\n\nWritten: other_scores.csv" in printed  # it began with a backslash and an n


@pytest.mark.slow
def test_the_command_searches_first_where_it_is_given_documents(tmp_path, capsys):
    lines = ["apple pear plum apple", "iron zinc tin iron", "apple plum tin", "zinc iron pear iron"] * 3
    (tmp_path / "docs.txt").write_text("\n".join(lines))
    run = ["scores", "--texts", str(tmp_path / "docs.txt"), "--out", str(tmp_path / "run"), "--max-size", "2"]
    few = ["--starts", "1", "--held-out", "0", "--draws", "2", "--samples", "1", "--quiet", "--no-cache"]
    assert cli.main([*run, *few]) == 0
    assert "Griffiths2004" in capsys.readouterr().out
    report = tmp_path / "run" / "report"
    assert {"index.html", "other_scores.csv", "other_scores.png"} <= {path.name for path in report.iterdir()}
    assert lv.load(tmp_path / "run").settings.keep == 64


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected the folder of a search"),
        (("run", "--texts", "docs.txt"), "expected the folder of a search"),
        (("run", "--out", "new"), "expected the folder of a search"),
        (("--texts", "docs.txt"), "expected the folder of a search"),
        (("run", "--draws", "-1"), "got --draws -1"),
        (("none-there",), "no folder"),
    ],
)
def test_mistakes_in_the_command_end_in_one_line(arguments, said, capsys):
    assert cli.main(["scores", *arguments, "--no-cache"]) == cli.WRONG
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_former_name_of_the_command_works_and_says_so(capsys):
    assert cli.main(["audit", "none-there", "--no-cache"]) == cli.WRONG
    error = capsys.readouterr().err
    assert error.splitlines()[0] == "lvsearch: lvsearch audit is now called lvsearch scores"
    assert "no folder" in error.splitlines()[1]
    assert cli.main(["--help"]) == 0
    assert "audit" not in capsys.readouterr().out


# ── mixtures of rows ────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def search_of_rows(kind: Any = lv.models.DiagonalComponents) -> lv.SearchResult:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.5, (40, 2)) @ [[1, 0.6], [0, 0.8]] + 4 * (np.arange(40) % 2)[:, None]
    train, test = lv.Points.from_array(rows).split(0.2, seed=0)
    model = lv.models.FiniteMixture(kind.scaled_to(train.values))
    return lv.search(model, train, evidence="bound", max_size=3, starts=1, held_out=test, seed=0, progress=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "of_component"),
    [
        (lv.models.DiagonalComponents, 2 + 2),
        pytest.param(lv.models.FullCovarianceComponents, 2 + 3, marks=pytest.mark.slow),
    ],
)
def test_criteria_of_mixtures_are_their_formulas(kind: Any, of_component: int):
    result = search_of_rows(kind)
    scores = result.other_scores(sizes=(1, 2, 3), progress=False)
    table, rows = scores.table().set_index("size"), np.asarray(result.training)
    n = len(rows)
    for size in (1, 2, 3):
        fit = result.fit(size)
        likelihood, number = log_likelihood_by_hand(fit, rows), size - 1 + size * of_component
        shares = fit.memberships().to_numpy()
        entropy = -(shares * np.log(np.maximum(shares, 1e-300))).sum()
        expected = {
            "BIC": -2 * likelihood + number * np.log(n),
            "ICL": -2 * likelihood + number * np.log(n) + 2 * entropy,
            "adjusted BIC": -2 * likelihood + number * np.log((n + 2) / 24),
            "CAIC": -2 * likelihood + number * (np.log(n) + 1),
            "AIC": -2 * likelihood + 2 * number,
            "relative entropy": 1 - entropy / (n * np.log(size)) if size > 1 else np.nan,
        }
        for name, value in expected.items():
            assert table.loc[size, name] == pytest.approx(value, rel=1e-5, abs=1e-4, nan_ok=True), (size, name)
    held_out = result.compare_held_out().set_index("size")["log_p_per_cell"]
    for size in held_out.index:
        assert table.loc[size, "held-out likelihood"] == pytest.approx(held_out[size], rel=1e-6)
    assert scores.chosen["BIC"] == (2,)
    assert scores.plot().get_xlabel() == "number of components"


def log_likelihood_by_hand(fit: Any, rows: np.ndarray) -> float:
    """Σ log Σ_k w_k Normal(row; mean_k, covariance_k) at the fit's estimates, by SciPy."""
    each = [
        np.log(fit.weights()[k]) + multivariate_normal(fit.means().loc[k], fit.covariances()[k]).logpdf(rows)
        for k in range(fit.size[0])
    ]
    return float(np.logaddexp.reduce(each, axis=0).sum())


@pytest.mark.thorough
def test_one_component_is_rejected_where_there_are_two():
    result = search_of_rows()
    one, two = (result.likelihood_ratio_test(size, samples=9, progress=False) for size in (1, 2))
    assert one.p_value == 0.1  # none of 9 tables gains as much
    assert two.p_value > 0.2
    assert one.simulated.shape == (9,)
    assert one.statistic > one.simulated.max()
    fewer, more = (log_likelihood_by_hand(result.fit(size), np.asarray(result.training)) for size in (1, 2))
    assert one.statistic == pytest.approx(2 * (more - fewer), rel=1e-3)  # the fits of the search have other starts
    assert str(one).startswith("2 components gain")
    assert "over 1; 0 of 9 tables drawn from the fit with 1 gain as much: p = 0.1." in str(one)
    nothing = replace(one, statistic=0.0)
    assert nothing.p_value == 1
    assert "gain nothing in log-likelihood over 1" in str(nothing)
    again = result.likelihood_ratio_test(1, samples=9, progress=False)
    np.testing.assert_array_equal(again.simulated, one.simulated)
    failed = replace(one, simulated=np.append(one.simulated[:8], np.nan))
    assert failed.p_value == 0.2
    assert "1 of them had no fit" in str(failed)
    for wrong in ({"samples": 0}, {"size": 0}):
        with pytest.raises(ValueError, match="got"):
            result.likelihood_ratio_test(**wrong, progress=False)


@pytest.mark.slow
def test_the_likelihood_ratio_test_rejects_as_often_as_it_says():
    """Forty tables of one group and of two: the p-value for the true number is at most 1/5 in about a fifth of them."""
    rng, rejected = np.random.default_rng(4), []
    for number in range(40):
        groups = 1 + number % 2
        rows = rng.normal(0, 1, (60, 2)) + 4.0 * (np.arange(60) % groups)[:, None]
        model = lv.models.FiniteMixture(lv.models.FullCovarianceComponents.scaled_to(rows))
        result = lv.search(model, rows, evidence="bound", max_size=2, starts=1, seed=0, progress=False)
        rejected.append(result.likelihood_ratio_test(groups, samples=9, seed=number, progress=False).p_value <= 0.2)
    assert 2 <= sum(rejected) <= 16  # 8 expected; outside by chance twice in a thousand


COLUMNS = 4
NUMBERS = {
    "student": (lv.models.StudentComponents(lv.models.FullCovarianceComponents()), 14),
    "levels": (lv.models.LevelComponents((1, 2, 3)), 8),
    "categories": (lv.models.CategoricalComponents((2, 2)), 2),
    "poisson": (lv.models.PoissonComponents(), 4),
    "negative binomial": (lv.models.NegativeBinomialComponents(2.0), 4),
    "mixed": (
        lv.models.MixedComponents([lv.models.DiagonalComponents(), lv.models.PoissonComponents()], [(0, 1, 3), (2,)]),
        7,
    ),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_free_parameters_are_counted(kind: str):
    component, number = NUMBERS[kind]
    assert component.free_parameters(COLUMNS) == number
    assert lv.models.FiniteMixture(component).free_parameters(3, COLUMNS) == 2 + 3 * number


@pytest.mark.parametrize("kind", mixture_cases.CASES, ids=lambda kind: kind.name)
def test_free_parameters_of_every_kind_are_counted(kind: mixture_cases.Kind):
    assert kind.component.free_parameters(kind.rows.shape[1]) == kind.n_parameters


def test_free_parameters_that_components_share_count_once():
    assert lv.models.TiedMixture().free_parameters(3, COLUMNS) == 2 + 3 * 4 + 10
    assert lv.models.IndependentNormalMixture().free_parameters(3, COLUMNS) == 2 + 3 * 8
