"""The baselines of topic models: against enumeration, against the generic engine, and what they refuse."""

from functools import partial

import jax
import numpy as np
import pytest
import word_mixture_oracles as oracles
from compiled import Compiled
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import gammaln

import lvsearch as lv
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.engine.estimator import GenericEstimator
from lvsearch.inference.evidence import (
    CollapsedMixtureChain,
    Effort,
    UnigramMixtureChain,
    anneal,
    anneal_simulated,
    evidence_chain,
    simulated_like,
    temperature_profile,
)
from lvsearch.inference.likelihood import (
    CollapsedDirichlet,
    Corners,
    FoldedIn,
    TrainingDocuments,
    document_completion,
    document_likelihood,
    fold_in,
    split_documents,
)
from lvsearch.inference.word_mixtures import (
    PLSIEstimator,
    PLSISettings,
    UnigramMixtureEstimator,
    choose_tempering,
    document_proportions,
)
from lvsearch.inference.word_mixtures.plsi import log_likelihood, point_topics
from lvsearch.models import LDA, PLSI, MixtureOfUnigrams, Unigram
from lvsearch.models.families import PointSimplex

COUNTS = np.array(
    [[2, 0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 2, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 3, 0]]
)
TOPICS = np.array([[0.3, 0.1, 0.05, 0.2, 0.05, 0.2, 0.1], [0.05, 0.4, 0.1, 0.1, 0.2, 0.05, 0.1]])
NEW = np.array([[1, 2, 0, 0, 0, 0, 1], [0, 0, 3, 1, 0, 2, 0], [0, 0, 0, 0, 0, 0, 0]])
DATA = documents(csr_array(COUNTS))


def planted(seed: int = 0, documents_each: int = 20) -> np.ndarray:
    """Counts (60, 12) of three kinds of documents, each with four words of its own and a little of the others."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(3), np.full(4, 0.22)) + 0.01
    return np.concatenate([rng.multinomial(25, topic / topic.sum(), documents_each) for topic in topics])


# ── estimators ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_unigram_evidence_is_exact():
    """The bound of a fit without latents is the evidence, which has a closed form."""
    fit = UnigramMixtureEstimator(Unigram(0.4), DATA).fit((1,), jax.random.key(0), None)
    exact = oracles.log_dirichlet_multinomial(COUNTS.sum(0), 0.4)
    assert fit.log_lower == pytest.approx(exact, abs=1e-5)
    assert fit.log_lower <= exact + 1e-5 <= fit.log_upper + 2e-5


@pytest.mark.slow  # the unigram's evidence and the mixture's fit have their oracles around here
def test_mixture_of_one_topic_is_the_unigram_and_lda_of_one():
    sizes = [lv.fit(model, COUNTS, size=1, seed=0) for model in (Unigram(0.4), MixtureOfUnigrams(0.8, 0.4))]
    exact = oracles.log_dirichlet_multinomial(COUNTS.sum(0), 0.4)
    assert [fit.evidence.lower for fit in sizes] == pytest.approx([exact] * 2, abs=1e-5)
    topics = [fit.table("topic_word").to_numpy() for fit in (*sizes, lv.fit(LDA(1.0, 0.4), COUNTS, size=1, seed=0))]
    np.testing.assert_allclose(topics[1], topics[0], rtol=1e-6)
    np.testing.assert_allclose(topics[2], topics[0], rtol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        MixtureOfUnigrams(0.8, 0.4),
        pytest.param(MixtureOfUnigrams(None, None, PointSimplex(0.2)), marks=pytest.mark.slow),
    ],
)
def test_mixture_fits_as_the_generic_engine_does(model):
    """From its own fit the generic engine has nothing to gain and says the same bound."""
    fit = UnigramMixtureEstimator(model, DATA).fit((2,), jax.random.key(1), None)
    generic = GenericEstimator(model, DATA, sweeps=200, tolerance=1e-9).fit((2,), jax.random.key(0), fit)
    assert generic.log_lower == pytest.approx(fit.log_lower, abs=2e-3)
    assert fit.log_lower <= oracles.mixture_log_evidence(COUNTS, 2, 0.8, 0.4) or model.estimated


def test_annealing_finds_the_kinds_that_are_there():
    counts = planted()
    fit = lv.fit(MixtureOfUnigrams(1.0, 0.1), counts, size=3, seed=0)
    kinds = np.asarray(fit.transform(counts)).argmax(1).reshape(3, -1)
    assert np.all(kinds == kinds[:, :1])
    assert len(set(kinds[:, 0])) == 3


@pytest.mark.parametrize("tempering", [1.0, 0.7])
def test_a_pass_of_plsi_is_the_em_step(tempering):
    counts = COUNTS[[0, 1, 2, 4]]
    model = PLSI(0.0, tempering)
    fitting = PLSIEstimator(
        model, documents(csr_array(counts)), PLSISettings(passes=1, document_sweeps=1, start_tokens=2.0)
    )
    start = fitting.begin(2, 8, jax.random.key(0))
    topics = np.asarray(start.counts, np.float64)[:, :2].T
    topics /= topics.sum(1, keepdims=True)
    theta, expected = oracles.em_step(counts, np.full((4, 2), 0.5), topics, tempering)
    state, _ = fitting.climb(start, 2)
    np.testing.assert_allclose(fitting.packed.gather(state.proportions)[:, :2], theta, atol=1e-5)
    found = np.asarray(state.counts)[:, :2].T
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), expected, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("smoothing", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
def test_momentum_saves_passes_and_ends_where_em_stands_still(smoothing):
    counts = planted()
    after = {}
    for momentum in (0.0, 0.9):
        settings = PLSISettings(passes=2000, tolerance=1e-7, momentum=momentum)
        fitting = PLSIEstimator(PLSI(smoothing), documents(csr_array(counts)), settings)
        state, passes = fitting.climb(fitting.begin(4, 8, jax.random.key(1)), 4)
        topics = np.asarray(state.counts, np.float64)[:, :4].T + smoothing
        topics /= topics.sum(1, keepdims=True)
        theta = fitting.packed.gather(state.proportions)[:, :4].astype(np.float64)
        for _ in range(200):
            theta, _ = oracles.em_step(counts, theta, topics, 1.0)
        after[momentum] = passes, (counts * np.log(np.maximum(theta @ topics, 1e-30))).sum()
    assert after[0.9][0] < after[0.0][0]
    assert after[0.9][1] == pytest.approx(after[0.0][1], rel=1e-3)


@pytest.mark.thorough
def test_plsi_reports_the_likelihood_of_its_estimates():
    """At the proportions that are best for its topics; higher with more topics, and never above the saturated model."""
    counts, bounds = planted(documents_each=2), []
    for size in (1, 2, 3):
        fit = lv.fit(PLSI(), counts, size=size, seed=0)
        topics = point_topics(fit.estimate)
        best = sum(oracles.best_proportions(row, topics)[1] for row in counts)
        assert fit.evidence.lower == pytest.approx(best, abs=0.05)
        bounds.append(fit.evidence.lower)
    assert bounds[0] < bounds[1] < bounds[2] <= PLSI().ceiling(documents(csr_array(counts)).batches[0].units)


def test_tempering_is_lowered_until_prediction_suffers():
    counts = csr_array(planted())
    chosen = choose_tempering(counts, 6, key=jax.random.key(0), smoothing=0.1)
    exponents, scores = zip(*chosen.tried, strict=True)
    np.testing.assert_allclose(exponents, 0.9 ** np.arange(len(exponents)))
    assert chosen.best == exponents[int(np.argmin(scores))]
    assert np.all(np.diff(scores)[:-1] <= 0)
    assert scores[0] > min(scores)  # six topics for three kinds: EM overfits
    with pytest.raises(ValueError, match="at least 10"):
        choose_tempering(counts[:5], 2, key=jax.random.key(0))


# ── likelihoods ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_corners_sum_over_topics():
    weights = np.array([0.3, 0.7])
    found = document_likelihood(TOPICS, Corners(weights), NEW, method="exact")
    exact = [oracles.mixture_log_likelihood(row, weights, TOPICS) for row in NEW]
    np.testing.assert_allclose(found.log_likelihood, exact, rtol=1e-12, atol=1e-12)


def test_training_documents_sum_over_their_proportions():
    """Mixtures whose topics are the training documents' distributions over words."""
    theta, weights = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]), np.array([0.5, 0.2, 0.3])
    found = document_likelihood(TOPICS, TrainingDocuments(theta, weights), NEW, method="exact")
    exact = [oracles.mixture_log_likelihood(row, weights, theta @ TOPICS) for row in NEW]
    np.testing.assert_allclose(found.log_likelihood, exact, rtol=1e-12, atol=1e-12)


def test_a_document_of_one_topic_has_the_same_probability_under_all():
    """With one topic LDA, corners and training documents are the unigram model."""
    topic = TOPICS[:1]
    dirichlet = document_likelihood(topic, np.ones(1), NEW, method="exact").log_likelihood
    for other in (Corners(np.ones(1)), TrainingDocuments(np.ones((4, 1)), np.full(4, 0.25))):
        np.testing.assert_allclose(document_likelihood(topic, other, NEW, method="exact").log_likelihood, dirichlet)


def test_folding_in_finds_the_best_proportions():
    theta = fold_in(TOPICS, csr_array(NEW))
    likelihood = log_likelihood(theta, TOPICS, csr_array(NEW))
    for row, found in zip(NEW[:2], likelihood, strict=False):
        assert found == pytest.approx(oracles.best_proportions(row, TOPICS)[1], abs=1e-3)
    np.testing.assert_allclose(theta[2], 0.5)  # nothing observed


def test_collapsed_updates_find_the_highest_point_in_the_softmax_basis():
    """Against SciPy's optimum; a document without words has the prior mean, and 1e-6 of α is folding in."""
    alpha, counts = np.array([0.7, 0.2]), csr_array(NEW)
    found = CollapsedDirichlet(alpha).expected(TOPICS, counts)
    for row, theta in zip(NEW[:2], found, strict=False):

        def loss(first: float, row: np.ndarray = row) -> float:
            point = np.array([first, 1 - first])
            return -float(alpha @ np.log(point) + row @ np.log(point @ TOPICS))

        best = minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-10}).x
        np.testing.assert_allclose(theta, [best, 1 - best], atol=1e-3)
    np.testing.assert_allclose(found[2], alpha / alpha.sum())
    np.testing.assert_allclose(
        CollapsedDirichlet(1e-6 * alpha).expected(TOPICS, counts)[:2], fold_in(TOPICS, counts)[:2], atol=1e-5
    )
    draws = CollapsedDirichlet(alpha).sample(TOPICS, counts[[0]], 4000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(0), found[0], atol=0.02)
    with pytest.raises(ValueError, match="one each"):
        CollapsedDirichlet(np.ones(3)).expected(TOPICS, counts)
    with pytest.raises(ValueError, match="positive"):
        CollapsedDirichlet(np.zeros(2))
    with pytest.raises(ValueError, match="alpha as an array"):
        CollapsedDirichlet(alpha).log_likelihood(TOPICS, counts)


def test_completion_predicts_by_the_expected_proportions():
    observed, held_out = NEW, np.array([[0, 1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0]])
    weights = np.array([0.3, 0.7])
    joint = np.array([[w * np.prod(t**row) for w, t in zip(weights, TOPICS, strict=True)] for row in observed])
    corner = joint / joint.sum(1, keepdims=True)
    points = np.array([[0.9, 0.1], [0.2, 0.8]])
    mixed = np.array([[w * np.prod(t**row) for w, t in zip(weights, points @ TOPICS, strict=True)] for row in observed])
    folded = np.array([oracles.best_proportions(row, TOPICS)[0] for row in observed])
    folded[2] = 0.5
    expected = {
        "corners": (Corners(weights), corner),
        "training documents": (TrainingDocuments(points, weights), mixed / mixed.sum(1, keepdims=True) @ points),
        "folded in": (FoldedIn(), folded),
    }
    for name, (prior, theta) in expected.items():
        found = document_completion(TOPICS, prior, observed, held_out)
        exact = (held_out * np.log(theta @ TOPICS)).sum(1)
        np.testing.assert_allclose(found.log_score, exact, atol=2e-3 if name == "folded in" else 1e-9, err_msg=name)


def test_what_is_impossible_is_infinitely_surprising():
    """A corner that holds a document's words is missing: −inf, not NaN; the perplexity of all is ∞."""
    split = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    both = np.array([[1, 0, 1]])
    corners = Corners(np.array([0.5, 0.5]))
    assert document_completion(split, corners, both, [[0, 1, 0]]).log_score[0] == -np.inf
    assert document_completion(split, corners, both, [[0, 1, 0]]).perplexity == np.inf
    assert np.isfinite(document_completion(split, FoldedIn(), both, [[0, 1, 0]]).log_score[0])
    assert document_likelihood(split, corners, both, method="exact").log_likelihood[0] == -np.inf


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        pytest.param(Unigram(0.1), np.ndarray, marks=pytest.mark.slow),
        (MixtureOfUnigrams(1.0, 0.1), Corners),
        pytest.param(PLSI(0.1), TrainingDocuments, marks=pytest.mark.slow),
        pytest.param(LDA(1.0, 0.1), np.ndarray, marks=pytest.mark.slow),
    ],
)
def test_proportions_of_a_fit_are_what_the_functions_take(model, kind):
    counts = planted(documents_each=6)
    train, test = lv.Corpus.from_matrix(csr_array(counts)).split(0.3, seed=0)
    observed, rest = split_documents(test, 0.5, seed=0)
    size = 1 if isinstance(model, Unigram) else 3
    fit = lv.fit(model, train, size=size, seed=0)
    prior = document_proportions(fit.model, fit.estimate, train.dataset())
    assert type(prior) is kind
    score = document_completion(fit.table("topic_word").to_numpy(), prior, observed, rest)
    assert score.perplexity < (15 if size == 1 else 10)


def test_a_fitted_plsi_scores_new_documents_by_the_training_documents():
    counts = planted(documents_each=4)
    fit = lv.fit(PLSI(0.1), counts, size=3, seed=0)
    topics, theta = point_topics(fit.estimate), fit.transform(counts)
    weights = counts.sum(1) / counts.sum()
    exact = [oracles.mixture_log_likelihood(row, weights, theta @ topics) for row in planted(seed=1)[:3]]
    np.testing.assert_allclose(fit.score_units(planted(seed=1)[:3]), exact, rtol=1e-5)
    low, high = fit.interval_units(planted(seed=1)[:3])
    assert np.all(low < fit.score_units(planted(seed=1)[:3]))
    assert np.all(fit.score_units(planted(seed=1)[:3]) < high)


# ── the annealed evidence of mixtures of unigrams ───────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_sparse_and_dense_paths_have_the_same_densities():
    """Documents as rows of counts have a multinomial coefficient that token sequences have not."""
    model, dense_data = MixtureOfUnigrams(0.8, 0.4), rows(COUNTS.astype(float), np.ones(COUNTS.shape, bool))
    rng = np.random.default_rng(0)
    topics = rng.integers(0, 3, len(COUNTS))
    with jax.enable_x64(True):
        sparse = UnigramMixtureChain.from_data(model, DATA, 3, 8)
        dense = CollapsedMixtureChain.from_data(model.as_rows(), dense_data, 3, 8)
        begun = Compiled(sparse).state_from_labels(sparse.labels_of(topics, 1))
        ours = float(Compiled(sparse).log_density(begun)[0])
        padded = np.zeros((dense.elements, 1), int)
        padded[: len(COUNTS), 0] = topics
        begun = Compiled(dense).state_from_labels(jax.numpy.asarray(padded))
        theirs = float(Compiled(dense).log_density(begun)[0])
    coefficients = (gammaln(COUNTS.sum(1) + 1) - gammaln(COUNTS + 1).sum(1)).sum()
    assert ours == pytest.approx(theirs - coefficients, abs=1e-9)


@pytest.mark.thorough
def test_annealed_evidence_of_mixtures_of_unigrams_is_the_exact_one():
    model, exact = MixtureOfUnigrams(0.8, 0.4), oracles.mixture_log_evidence(COUNTS, 3, 0.8, 0.4)
    chain = evidence_chain(model, DATA, (3,), None)
    assert isinstance(chain, UnigramMixtureChain)
    work = Effort(30, 4, 16)
    (found,) = anneal(chain, jax.random.key(0), work, temperature_profile(chain, jax.random.key(1), work))
    assert np.mean(found.forward) == pytest.approx(exact, abs=0.1)
    assert np.mean(found.backward) == pytest.approx(exact, abs=0.1)


@pytest.mark.slow
def test_backward_paths_begin_with_the_documents_topics():
    """Of simulated documents a word in several columns is one word; the truth's labels are in the chain's order."""
    model = MixtureOfUnigrams(0.8, 0.3)
    simulated = simulated_like(documents(csr_array(planted(documents_each=5))), model, (3,), jax.random.key(4))
    chain = evidence_chain(model, simulated.data, (3,), None)
    found = anneal_simulated(chain, jax.random.key(0), simulated, Effort(30, 2, 8))
    assert np.mean(found.backward) == pytest.approx(np.mean(found.forward), abs=2.0)


@pytest.mark.slow
def test_search_says_how_many_kinds_of_documents(tmp_path):
    result = lv.search(
        MixtureOfUnigrams(1.0, 0.3), planted(), prior=lv.sizes.Poisson(3), max_size=4, starts=1, progress=False
    )
    assert result.best_size == (3,)
    result.save(tmp_path / "run")
    assert lv.load(tmp_path / "run").best.model.describe() == result.best.model.describe()
    assert result.best.topics(n_words=2).shape == (3, 2)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_has_no_answer_says_why():
    with pytest.raises(ValueError, match="only size"):
        lv.fit(Unigram(), COUNTS, size=2)
    with pytest.raises(ValueError, match="nothing to search"):
        lv.search(Unigram(), COUNTS, max_size=2)
    with pytest.raises(ValueError, match='evidence="plug-in"'):
        lv.search(PLSI(), COUNTS, max_size=2, progress=False)
    with pytest.raises(ValueError, match="no probability"):
        document_likelihood(TOPICS, FoldedIn(), NEW, method="exact")
    with pytest.raises(ValueError, match='method="exact"'):
        document_likelihood(TOPICS, Corners(np.array([0.3, 0.7])), NEW, method="mfi", key=jax.random.key(0))
    with pytest.raises(ValueError, match="one for each"):
        document_likelihood(TOPICS, Corners(np.ones(1)), NEW, method="exact")
    wrong = {
        "a distribution": partial(Corners, np.array([0.3, 0.3])),
        "rows do not sum": partial(TrainingDocuments, np.array([[0.3, 0.3]]), np.ones(1)),
        "exponent": partial(PLSI, tempering=0.0),
        "pseudo-counts": partial(PLSI, smoothing=-1.0),
        "one positive": partial(MixtureOfUnigrams, 1.0, [0.1, 0.2]),
        "exactly where": partial(MixtureOfUnigrams, None, 0.1),
    }
    for message, make in wrong.items():
        with pytest.raises(ValueError, match=message):
            make()


def test_a_folder_keeps_plsi(tmp_path):
    result = lv.search(PLSI(0.1, 0.9), planted(), max_size=3, evidence="plug-in", starts=1, progress=False)
    result.save(tmp_path / "run")
    assert lv.load(tmp_path / "run").best.model.describe() == result.best.model.describe()
    assert capacity_of(result.best_size) == (8,)


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "model",
    [
        *(pytest.param(model, marks=pytest.mark.slow) for model in (LDA(0.3, 0.1), MixtureOfUnigrams(1.0, 0.1))),
        PLSI(0.1),
    ],
)
def test_recommend_names_what_belongs_with_the_words_there_are(model):
    """A unit with two of the four words of a kind is told the other two, with a probability inside its interval."""
    fit = lv.fit(model, planted(), size=3, seed=0)
    unit = np.zeros((1, 12), int)
    unit[0, [0, 1]] = 3
    table = fit.recommend(unit, n=3, seed=1)
    assert set(table["word"][:2]) == {"term2", "term3"}
    inside = (table["lower"] <= table["probability"] * 1.05) & (table["probability"] <= table["upper"] * 1.05)
    assert inside[:2].all()
    assert (table["upper"] > table["lower"])[:2].all()
    whole = fit.recommend(unit, n=12)
    assert len(whole) == 10
    assert whole["probability"].sum() == pytest.approx(1)
    assert fit.recommend(np.ones((1, 12), int)).empty
    with pytest.raises(ValueError, match="expected one"):
        fit.recommend(np.repeat(unit, 2, 0))


@pytest.mark.thorough
def test_a_text_is_coloured_by_its_topics():
    kinds = ["apple pear plum cherry " * 3, "iron tin zinc copper " * 3]
    fit = lv.fit(LDA(0.2, 0.1), lv.Corpus.from_texts(kinds * 6), size=2, seed=0)
    found = fit.coloured("Apple, pear & <unknown> iron.", n_topics=2, threshold=0.6)
    assert "".join(found.pieces) == "Apple, pear & <unknown> iron."
    assert found.words["known"].tolist() == [True, True, False, True]
    topic = found.words["topic"].tolist()
    assert topic[0] == topic[1] != topic[3]
    assert topic[2] == -1
    assert found.colours()[0] is not None
    shown = found._repr_html_()
    assert "&lt;" in shown
    assert "<unknown>" not in shown
    with pytest.raises(ValueError, match="none in the vocabulary"):
        fit.coloured("nothing here")
