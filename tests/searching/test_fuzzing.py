"""Drawn data inside fixed shapes, so that nothing is compiled twice: nothing dropped or changed, bounds in order."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.data.base import Data
from lvsearch.data.kinds import decode_data, encode_data
from lvsearch.inference.compiles import compiles, compiles_since
from lvsearch.inference.trees import Allocation, log_joint, tree_hyper
from lvsearch.searching.evaluators import data_ceiling
from lvsearch.texts.analyzer import compose, fold_case, to_lower

PHASES = (Phase.explicit, Phase.generate)  # an example that is not the smallest will do: shrinking fits takes minutes
EXAMPLES = settings(deadline=None, max_examples=25, derandomize=True, phases=PHASES)
MANY = settings(deadline=None, max_examples=100, derandomize=True, phases=PHASES)
N_DOCUMENTS, N_WORDS, N_ROWS, N_COLUMNS = 6, 5, 7, 2
CONCENTRATIONS = st.floats(1e-6, 1e6)
NUMBERS = st.integers(-(10**8), 10**8).map(lambda whole: whole / 128)  # none so small that its column is refused
NAMES = st.lists(st.text(max_size=12), min_size=5, max_size=5, unique=True)


def stored(data: Data) -> Data:
    """As a folder would give it back."""
    entry, held = encode_data(data)
    return decode_data(entry, held, Path("memory"))


def assert_probabilities(values: Any) -> None:
    values = np.asarray(values, np.float64)
    assert np.all((values >= 0) & np.isfinite(values))
    np.testing.assert_allclose(values.sum(-1), 1, atol=1e-5)


@pytest.fixture(scope="module")
def warm() -> dict[str, int]:
    """Compiles of before the drawn fits: one of each has been made."""
    for data, fitted in (
        fit_corpus(np.ones((N_DOCUMENTS, N_WORDS), np.int64), 1.0, 1.0),
        fit_rows(np.arange(N_ROWS * N_COLUMNS, dtype=float).reshape(N_ROWS, N_COLUMNS), 1.0),
    ):
        fitted.transform(data)
    return dict(compiles())


# ── fits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fit_corpus(counts: np.ndarray, alpha: float, eta: float) -> tuple[lv.Corpus, lv.FittedModel]:
    corpus = lv.Corpus.from_matrix(counts)
    return corpus, lv.fit(lv.models.LDA(alpha, eta), corpus, size=2, seed=0)


@pytest.mark.thorough
@EXAMPLES
@given(arrays(np.int64, (N_DOCUMENTS, N_WORDS), elements=st.integers(1, 1000)), CONCENTRATIONS, CONCENTRATIONS)
def test_topics_of_drawn_corpora(warm: dict[str, int], counts: np.ndarray, alpha: float, eta: float):
    """Every cell is positive: documents of other numbers of distinct words would be of another shape."""
    corpus, fitted = fit_corpus(counts, alpha, eta)
    assert_probabilities(fitted.transform(corpus))
    assert_probabilities(fitted.table("topic_word"))
    assert -math.inf < fitted.estimate.log_lower <= data_ceiling(lv.models.LDA(alpha, eta), corpus.dataset()) + 1e-3
    assert compiles_since(warm) == {}


def fit_rows(values: np.ndarray, concentration: float) -> tuple[lv.Points, lv.FittedModel]:
    points = lv.Points.from_array(values)
    kind = lv.models.KnownCovarianceComponents(np.eye(N_COLUMNS))
    return points, lv.fit(lv.models.FiniteMixture(kind, concentration), points, size=2, seed=0)


@pytest.mark.thorough
@EXAMPLES
@given(arrays(np.float64, (N_ROWS, N_COLUMNS), elements=NUMBERS), CONCENTRATIONS)
def test_clusters_of_drawn_rows(warm: dict[str, int], values: np.ndarray, concentration: float):
    points, fitted = fit_rows(values, concentration)
    assert_probabilities(fitted.transform(points))
    assert math.isfinite(fitted.estimate.log_lower)
    assert compiles_since(warm) == {}


# ── data: nothing dropped, nothing changed ──────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@MANY
@given(arrays(np.int64, (4, 5), elements=st.integers(0, 2**31 - 1)), NAMES)
def test_corpora_come_back(counts: np.ndarray, words: list[str]):
    counts[0, 0] = max(1, counts[0, 0])
    corpus = lv.Corpus.from_matrix(counts, words, document_names=words[:4])
    np.testing.assert_array_equal(corpus.counts.toarray(), counts)
    for same in (corpus, stored(corpus)):
        assert (same.vocabulary, same.document_names) == (tuple(words), tuple(words[:4]))
        np.testing.assert_array_equal(same.counts.toarray(), counts)
    first, second = corpus.split(0.5, seed=1)
    assert first.n_tokens + second.n_tokens == counts.sum()


@pytest.mark.thorough
@MANY
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_texts_lose_no_word(texts: list[str]):
    """Without limits, stop words and a pattern of everything but spaces, tokens are those of `str.split` on them.

    Texts are spelled as corpora spell them first: composed, in lower case, without soft hyphens. Words that differ in
    case alone, such as ß and ss, are one.
    """
    split = [compose(to_lower(compose(text))).split(" ") for text in texts]
    expected = sum(len([word for word in words if word]) for words in split)
    if not expected:
        with pytest.raises(ValueError, match="without a single word"):
            lv.Corpus.from_texts(texts, stop_words=None, token_pattern=r"[^ ]+")
        return
    corpus = lv.Corpus.from_texts(texts, stop_words=None, token_pattern=r"[^ ]+")
    assert corpus.n_tokens == expected
    words = {word for words in split for word in words if word}
    assert words.issuperset(corpus.vocabulary)
    assert sorted(map(fold_case, corpus.vocabulary)) == sorted(set(map(fold_case, words)))


@MANY
@given(arrays(np.float64, (3, 2), elements=NUMBERS), arrays(np.bool_, (3, 2)))
def test_rows_come_back(values: np.ndarray, observed: np.ndarray):
    observed[0] = True
    observed[:, 1] |= True
    points = lv.Points.from_array(np.where(observed, values, np.nan), missing="nan")
    for same in (points, stored(points)):
        np.testing.assert_array_equal(same.observed, observed)
        np.testing.assert_array_equal(same.values[observed], values[observed])


@pytest.mark.thorough
@MANY
@given(st.data())
def test_pairs_come_back(data: st.DataObject):
    n_images = data.draw(st.integers(1, 4))
    regions = [
        data.draw(arrays(np.float64, (data.draw(st.integers(0, 3)), 2), elements=NUMBERS)) for _ in range(n_images)
    ]
    captions = [data.draw(st.lists(st.text(min_size=1, max_size=4), max_size=4)) for _ in range(n_images)]
    regions[0], captions[0] = np.ones((1, 2)), ["one"]
    pairs = lv.PairedCorpus.from_arrays([r if len(r) else [] for r in regions], captions)
    same = stored(pairs)
    assert isinstance(same, lv.PairedCorpus)
    for each in (pairs, same):
        np.testing.assert_array_equal(each.regions, np.concatenate(regions))
        assert each.region_counts.tolist() == [len(r) for r in regions]
        assert [sorted(set(each.caption(i))) for i in range(n_images)] == [sorted(set(words)) for words in captions]
        assert each.captions.n_tokens == sum(map(len, captions))


# ── priors and lattices ─────────────────────────────────────────────────────────────────────────────────────────────

PRIORS = st.one_of(
    st.floats(1e-6, 1e4).map(lv.sizes.Poisson),
    st.floats(1e-6, 1 - 1e-6).map(lv.sizes.Geometric),
    st.tuples(st.floats(1.001, 1e4), st.floats(1e-3, 1e4)).map(lambda pair: lv.sizes.NegativeBinomial(*pair)),
    st.integers(1, 1000).map(lv.sizes.Uniform),
)


@MANY
@given(PRIORS, st.integers(1, 50), st.integers(1, 50))
def test_masses_of_drawn_priors(prior: lv.sizes.SizePrior, begin: int, width: int):
    """Of sizes one by one and of all from a size on: between 0 and 1, falling, and one less its parts."""
    each = np.array([prior.log_pmf((size,)) for size in range(begin, begin + width)])
    tail, after = prior.log_mass((begin,)), prior.log_mass((begin + width,))
    assert not np.isnan(each).any()
    assert np.all(each <= 1e-12)
    assert after <= tail <= 1e-12
    together = logsumexp([after, *each])
    assert together == pytest.approx(tail, abs=1e-9) or (together == tail == -math.inf)
    assert prior.log_mass((1,)) == pytest.approx(0, abs=1e-9)


@MANY
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.integers(1, 9))
def test_bounds_on_drawn_lattices(seed: int, scale: float, steps: int):
    """Likelihoods that no component can lower, over two size variables: the proved bounds hold the sum over all."""
    random = np.random.default_rng(seed)
    shape = (5, 4)
    rising = np.cumsum(np.cumsum(random.exponential(scale, shape), 0), 1)
    log_likelihood = rising - rising[-1, -1] - random.exponential(scale)
    prior = lv.sizes.Table(random.dirichlet(np.full(20, 0.5)).reshape(shape))
    truth = logsumexp([prior.log_pmf((i + 1, j + 1)) + log_likelihood[i, j] for i, j in product(range(5), range(4))])
    search = lv.WitnessSearch(prior, ceiling=float(log_likelihood.max()), max_size=shape)
    for _ in range(steps):
        size = search.next_size()
        if size is None:
            break
        search.record(size, float(log_likelihood[size[0] - 1, size[1] - 1]))
        found = search.bounds()
        assert found.log_lower <= truth + 1e-9 * (1 + abs(truth))
        assert truth <= found.log_upper + 1e-9 * (1 + abs(truth))


# ── trees ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@MANY
@given(st.integers(0, 2**32 - 1), CONCENTRATIONS, CONCENTRATIONS, CONCENTRATIONS)
def test_trees_do_not_depend_on_names_or_order(seed: int, branching: float, levels: float, topics: float):
    """log p(w, z, c) is a number, the same under other names of nodes and another order of documents."""
    random = np.random.default_rng(seed)
    counts = csr_array(random.integers(0, 4, (5, 6)) + np.eye(5, 6, dtype=np.int64))
    middle, leaf = random.integers(0, 2, 5), random.integers(0, 2, 5)
    paths = np.stack([np.zeros(5, np.int64), 1 + middle, 10 + 2 * middle + leaf], axis=1)
    split = np.array([random.multinomial(int(n), [0.2, 0.3, 0.5]) for n in counts.data])
    hyper = tree_hyper(3, branching, levels, topics)
    whole = log_joint(counts, Allocation(paths, split), hyper).total
    assert math.isfinite(whole)
    renamed = 100 + random.permutation(20)[paths]
    assert log_joint(counts, Allocation(renamed, split), hyper).total == pytest.approx(whole, rel=1e-9, abs=1e-9)
    order = random.permutation(5)
    rows = [slice(counts.indptr[d], counts.indptr[d + 1]) for d in order]
    moved = Allocation(paths[order], np.concatenate([split[row] for row in rows]))
    assert log_joint(counts[order], moved, hyper).total == pytest.approx(whole, rel=1e-9, abs=1e-9)
