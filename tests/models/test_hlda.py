"""The truncated-tree model: sizes of several dimensions, paths of several lengths, its evidence by enumeration."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest
import tree_oracles as oracle
from scipy.special import gammaln

import lvsearch as lv
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.meanfield import ascend, cast
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.trees import tree_hyper
from lvsearch.models import HLDA

WORDS = ((0, 2, 0), (2,), (1, 0))
COUNTS = np.array([[2, 0, 1, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
HYPER = {"branching": 0.7, "levels": (1.5, 0.6, 2.0), "topics": (0.9, 0.3, 0.5)}


def data_of(counts: np.ndarray) -> Dataset:
    return documents(lv.Corpus.from_matrix(counts).counts)


def bound_of(
    model: HLDA, counts: np.ndarray, size: tuple[int, ...], starts: int = 2, capacity: tuple[int, ...] | None = None
) -> float:
    data, capacity = cast(data_of(counts), np.float64), capacity or size
    bounds = []
    for start in range(starts):
        begin = scattered_start(model, jax.random.key(start), data, size, capacity, np.float64)
        bounds.append(ascend(model, data, begin, size, capacity=capacity, sweeps=60, tolerance=1e-8).trace[-1])
    return max(bounds)


@pytest.fixture
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.thorough
def test_bound_is_below_the_infinite_trees_evidence(wide):
    """Exact, over all trees and levels; whatever the truncation, of the infinite tree."""
    _, exact = oracle.posterior(WORDS, tree_hyper(3, **HYPER), 4)
    for size in ((1, 1), (2, 3)):
        assert bound_of(HLDA(3, **HYPER), COUNTS, size, capacity=(2, 3)) < exact


@pytest.mark.slow
def test_a_tree_of_one_path_is_a_topic_model_of_its_levels(wide):
    """With one branch a level nothing is left but sticks: the bound adds log E V for each document, and LDA's."""
    model = HLDA(2, branching=0.5, levels=1.3, topics=0.4)
    counts = np.array([[3, 0, 1], [0, 2, 0]])
    lda = lv.models.LDA(concentration=np.array([1.3, 1.3]), topic_concentration=0.4)
    data = cast(data_of(counts), np.float64)
    begin = scattered_start(lda, jax.random.key(0), data, (2,), (2,), np.float64)
    topics = ascend(lda, data, begin, (2,), capacity=(2,), sweeps=400, tolerance=1e-10).trace[-1]
    # the stick's part is exact: log ∫ V² Beta(V | 1, γ) dV, γ = 0.5
    stick = float(np.log(0.5) + gammaln(3) + gammaln(0.5) - gammaln(3.5))
    assert bound_of(model, counts, (1,), starts=4) == pytest.approx(topics + stick, abs=0.05)


@pytest.mark.slow
def test_paths_of_several_lengths(wide):
    """Lengths get a posterior of their own, and the bound stays below the saturated ceiling."""
    model = HLDA(3, **HYPER, lengths=(2, 3))
    assert "paths of 2, 3 levels" in model.describe()
    bound = bound_of(model, COUNTS, (2, 2), starts=1)
    assert np.isfinite(bound)
    assert bound < model.ceiling(data_of(COUNTS).batches[0].units)
    g, l, units = model.simulate(jax.random.key(0), (2, 3), data_of(COUNTS).batches[0].units, {"word": 4})
    assert l["path"].shape == (3, 2 + 6)
    assert g["topic_word_3"].shape == (2, 3, 4)
    assert l["assignment_3"].shape == (*units.words.shape, 6, 3)


@pytest.fixture(scope="module")
def two_groups() -> np.ndarray:
    """Two groups of documents with words of their own, a word in common."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 10)
    counts = np.concatenate([rng.poisson(4, (20, 2)), np.zeros((20, 8), int)], axis=1)
    counts[np.arange(20)[:, None], 2 + 4 * group[:, None] + np.arange(4)] = rng.poisson(3, (20, 4)) + 1
    return counts


@pytest.mark.thorough
def test_fit_and_transform(two_groups):
    """Three branches, of which two are used, and the group is read off."""
    fitted = lv.fit(HLDA(2, 1.0, 1.0, 0.2), two_groups, size=3, starts=3)
    paths = fitted.transform(two_groups)
    assert paths.shape == (20, 3)
    np.testing.assert_allclose(paths.sum(1), 1, atol=1e-5)
    chosen = paths.argmax(1)
    assert len(set(chosen[:10])) == len(set(chosen[10:])) == 1
    assert chosen[0] != chosen[10]
    tree = lv.mean_field_tree(fitted, n_words=3)
    assert [node.level for node in tree.nodes] == [0, 1, 1]
    assert sum(node.documents for node in tree.children(0)) == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "depth=0, expected a whole number from 1 to 100"),
        ({"branching": -1.0}, "branching"),
        ({"levels": (1.0, 2.0)}, "3 levels"),
        ({"topics": 0.0}, "positive"),
        ({"lengths": (4,)}, "depth, 3"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        HLDA(**arguments)


def test_there_is_no_plug_in_form():
    with pytest.raises(ValueError, match="no plug-in form"):
        lv.fit(HLDA(2), COUNTS, size=2, evidence="plug-in")
