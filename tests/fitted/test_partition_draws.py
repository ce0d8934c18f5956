"""Pairs of rows, the closest partition and its ball, against loops over pairs and over all partitions."""

import itertools

import jax
import numpy as np
import pandas as pd
import partition_oracles as exact
import pytest

import lvsearch as lv
from lvsearch.fitted import partition_draws
from lvsearch.fitted.partition_draws import (
    LOSSES,
    MOST_ROWS,
    Partition,
    _alike_side_by_side,
    closest_partition,
    coclustering,
)
from lvsearch.models.units import Row

ROWS, NAMES = 6, pd.Index(list("abcdef"))


def random_draws(seed: int, n_draws: int = 40, rows: int = ROWS) -> np.ndarray:
    """Draws around one partition: some rows go elsewhere."""
    rng = np.random.default_rng(seed)
    centre = rng.integers(0, 3, rows)
    return np.where(rng.random((n_draws, rows)) < 0.25, rng.integers(0, 4, (n_draws, rows)), centre)


def binder(one: np.ndarray, other: np.ndarray) -> float:
    pairs = list(itertools.combinations(range(len(one)), 2))
    return sum((one[i] == one[j]) != (other[i] == other[j]) for i, j in pairs) / len(pairs)


def information(one: np.ndarray, other: np.ndarray) -> float:
    """H(one | other) + H(other | one), bits."""
    n, total = len(one), 0.0
    for i in range(n):
        both = np.sum((one == one[i]) & (other == other[i]))
        total += np.log2(np.sum(one == one[i]) / both) + np.log2(np.sum(other == other[i]) / both)
    return total / n


ORACLES = {"vi": information, "binder": binder}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_those_of_loops_over_rows_and_pairs(loss: str):
    draws = random_draws(0)
    expected = [ORACLES[loss](draws[0], draw) for draw in draws]
    np.testing.assert_allclose(LOSSES[loss].distances(draws[0], draws), expected, atol=1e-12)


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 8), marks=pytest.mark.slow)], ids=["one", "more"])
@pytest.mark.parametrize("loss", LOSSES)
def test_no_partition_is_closer(loss: str, seeds: range):
    everyone = [np.array(labels) for labels in exact.partitions(ROWS)]
    assert len(everyone) == 203
    for seed in seeds:
        draws = random_draws(seed)
        least = min(LOSSES[loss].distances(each, draws).mean() for each in everyone)
        found = closest_partition(draws, NAMES, loss)
        assert found.expected_loss == pytest.approx(least, abs=1e-9)
        assert found.expected_loss == pytest.approx(
            np.mean([ORACLES[loss](found.labels.to_numpy(), draw) for draw in draws])
        )


def test_the_ball_is_the_smallest_that_holds_95_percent_and_its_ends_lie_in_it():
    draws = random_draws(3, n_draws=200, rows=12)
    found = closest_partition(draws, pd.RangeIndex(12))
    far = np.array([information(found.labels.to_numpy(), draw) for draw in draws])
    assert (far <= found.radius + 1e-9).mean() >= 0.95
    assert (far < found.radius - 1e-9).mean() < 0.95
    inside = draws[far <= found.radius + 1e-9]
    numbers = [len(set(draw)) for draw in inside]
    ends = {name: getattr(found, name).to_numpy() for name in ("fewest", "most", "farthest")}
    assert len(set(ends["fewest"])) == min(numbers)
    assert len(set(ends["most"])) == max(numbers)
    assert information(ends["farthest"], found.labels.to_numpy()) == pytest.approx(found.radius)
    assert all(information(each, found.labels.to_numpy()) <= found.radius + 1e-9 for each in ends.values())


def test_a_search_with_some_of_the_draws_says_so(monkeypatch: pytest.MonkeyPatch):
    """The closest partition of 4,000 rows is searched for with 100 draws, and nothing said so."""
    draws = random_draws(3, n_draws=200, rows=12)
    assert "searched" not in str(closest_partition(draws, pd.RangeIndex(12)))
    monkeypatch.setattr(partition_draws, "SEARCHED_LABELS", 0)
    found = closest_partition(draws, pd.RangeIndex(12))
    assert (found.draws, found.searched) == (200, 100)
    assert str(found).endswith("It was searched for with 100 of them.")


def test_pairs_and_certainty_are_shares_of_draws():
    draws = random_draws(1)
    table, found = coclustering(draws, NAMES), closest_partition(draws, NAMES)
    for (i, one), (j, other) in itertools.product(enumerate(NAMES), repeat=2):
        assert table.loc[one, other] == pytest.approx(np.mean(draws[:, i] == draws[:, j]))
    labels = found.labels.to_numpy()
    for i in range(ROWS):
        others = [j for j in range(ROWS) if j != i and labels[j] == labels[i]]
        alone = np.mean([np.sum(draw == draw[i]) == 1 for draw in draws])
        expected = np.mean([table.iloc[i, j] for j in others]) if others else alone
        assert found.certainty.iloc[i] == pytest.approx(expected)
        for cluster in range(len(found.sizes)):
            members = [j for j in range(ROWS) if j != i and labels[j] == cluster]
            if members:
                assert found.shares.iloc[i, cluster] == pytest.approx(np.mean([table.iloc[i, j] for j in members]))
    assert found.sizes == sorted(found.sizes, reverse=True)
    shown = found.table()
    assert shown.index.equals(NAMES)
    assert shown.columns.tolist() == ["cluster", "certainty", "second", "second_share"]
    assert (shown["second"] != shown["cluster"]).all()
    rest = found.shares.to_numpy()[np.eye(len(found.sizes), dtype=bool)[labels] == 0].reshape(ROWS, -1)
    np.testing.assert_allclose(shown["second_share"], rest.max(axis=1))


def test_some_rows_can_be_named_and_too_many_are_refused():
    draws = random_draws(2)
    chosen = coclustering(draws, NAMES, ["e", "a"])
    pd.testing.assert_frame_equal(chosen, coclustering(draws, NAMES).loc[["e", "a"], ["e", "a"]])
    for rows in (["a", "z"], ["a", "a"]):
        with pytest.raises(ValueError, match="do not choose one row each"):
            coclustering(draws, NAMES, rows)
    many = np.zeros((2, MOST_ROWS + 1), int)
    with pytest.raises(ValueError, match=r"got 5,001 rows, expected at most 5,000.*Name some of them"):
        coclustering(many, pd.RangeIndex(MOST_ROWS + 1))
    assert coclustering(many, pd.RangeIndex(MOST_ROWS + 1), [0, 7]).shape == (2, 2)


def test_one_row_is_one_cluster():
    found = closest_partition(np.zeros((9, 1), int), pd.RangeIndex(1))
    assert found.labels.tolist() == [0]
    assert found.certainty.tolist() == [1.0]
    assert found.table().columns.tolist() == ["cluster", "certainty"]
    assert found.describe().startswith("1 cluster of 1 row. 95 % of 9 draws")


def test_the_sentence_has_numbers_that_can_be_read():
    found = closest_partition(random_draws(0), NAMES)
    assert isinstance(found, Partition)
    assert "of 2.6 bits (variation of information)" in str(found)
    assert "% of the pairs (Binder's loss)" in str(closest_partition(random_draws(0), NAMES, "binder"))


# ── of searches ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def found() -> lv.SearchResult:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(0, 0.5, (24, 2)) + 4 * (np.arange(24) % 2)[:, None], columns=["x", "y"])
    rows.index = pd.Index([f"row {number}" for number in range(24)], name="who")
    return lv.search(lv.models.FiniteMixture(), rows, max_size=2, seed=0, progress=False)


@pytest.mark.thorough
def test_a_search_says_which_rows_belong_together(found: lv.SearchResult, tmp_path):
    partition, pairs = found.partition(), found.coclustering()
    assert partition.is_settled
    assert partition.sizes == [12, 12]
    assert partition.labels.tolist() == [0, 1] * 12
    assert partition.labels.index.equals(pairs.index)
    assert pairs.index.name == "who"
    assert pairs.loc["row 0", "row 2"] > 0.9
    assert pairs.loc["row 0", "row 1"] < 0.1
    # kept draws are those of each chain but for its first quarter, every eighth sweep
    chains = found.partitions
    assert chains is not None
    assert partition.draws == chains.chains * (chains.sweeps - chains.sweeps // 128 * 32) // 8
    found.save(tmp_path / "kept")
    again = lv.load(tmp_path / "kept")
    pd.testing.assert_frame_equal(again.coclustering(), pairs)


@pytest.mark.thorough
def test_the_picture_orders_rows_by_cluster(found: lv.SearchResult):
    axes = found.plot_coclustering()
    shown = axes.images[0].get_array()
    assert shown is not None
    assert shown.shape == (24, 24)
    assert shown[:12, :12].min() > 0.8
    assert shown[:12, 12:].max() < 0.2
    assert "2 clusters of 12, 12 rows" in "\n".join(text.get_text() for text in axes.texts)


def test_rows_of_a_cluster_that_are_often_together_stand_side_by_side():
    """Cluster 0 has two halves, whose rows are interleaved; cluster 1 comes after it."""
    halves = np.array([0, 1, 0, 1, 0, 1, 2, 2])
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    together = np.select([np.equal.outer(halves, halves), np.equal.outer(labels, labels)], [0.9, 0.4], 0.1)
    np.fill_diagonal(together, 1.0)
    order = _alike_side_by_side(together, labels)
    assert sorted(order[:6].tolist()) == [0, 1, 2, 3, 4, 5]
    assert halves[order[:6]].tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    assert order[6:].tolist() == [6, 7]


@pytest.mark.thorough
def test_where_no_partitions_were_drawn_it_says_what_to_do(found: lv.SearchResult):
    with pytest.raises(ValueError, match=r"got no draws of partitions.*search again with this prior"):
        found.with_prior(lv.sizes.Poisson(2)).coclustering()
    with pytest.raises(ValueError, match="got loss='variation', expected one of 'vi', 'binder'"):
        found.partition("variation")
    rng = np.random.default_rng(1)
    topics = lv.search(lv.models.LDA(), rng.poisson(1.0, (8, 5)), max_size=1, evidence="bound", progress=False)
    with pytest.raises(ValueError, match='got a search with evidence="bound", expected one of a mixture of rows'):
        topics.partition()


@pytest.mark.slow
def test_pairs_are_together_and_the_ball_holds_the_truth_as_often_as_said():
    """Truth from the prior, a hundred rows from the model: sixty times, some ten minutes."""
    random, n_rows, prior = np.random.default_rng(0), 100, lv.sizes.Geometric(0.25)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents(0.0, 0.1, 2.0, 1.0), 1.0)
    every = Row(np.zeros((n_rows, 2)), np.ones((n_rows, 2), bool))
    weights = np.exp([prior.log_pmf((size,)) for size in range(1, 13)])
    said, true, inside = [], [], []
    for trial in range(60):
        size = int(random.choice(12, p=weights / weights.sum())) + 1
        _, local, drawn = model.simulate(jax.random.key(trial), (size,), every, {"dim": 2})
        truth = np.asarray(local["component"]).argmax(1)
        found = lv.mixture_posterior(
            model, np.asarray(drawn.value), prior=prior, max_size=12, precision=0.02, seed=trial
        )
        pairs = np.triu_indices(n_rows, 1)
        said.append(found.coclustering().to_numpy()[pairs])
        true.append((truth[:, None] == truth)[pairs])
        closest = found.partition()
        inside.append(information(closest.labels.to_numpy(), truth) <= closest.radius + 1e-9)
    for low, high in ((0, 1.01), (0, 0.1), (0.1, 0.3), (0.3, 0.7), (0.7, 0.9), (0.9, 1.01)):
        # pairs of one data set hang together, so that data sets are counted
        apart = np.array([(t - s)[(low <= s) & (s < high)].sum() for s, t in zip(said, true, strict=True)])
        assert abs(apart.sum()) < 4 * np.sqrt((apart**2).sum()), (low, high)
    assert 0.95 - 4 * np.sqrt(0.95 * 0.05 / 60) < np.mean(inside)
