"""Searches over two and three size variables against brute force; dependent priors; posteriors over priors."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.pictures.style import in_house_style
from lvsearch.results.plots import draw_lattice
from lvsearch.sizing import sizes
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.witness import WitnessSearch

BOXES = {2: (5, 4), 3: (4, 3, 3)}


def lattice(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(n + 1 for n in index) for index in np.ndindex(*shape)]


def random_values(shape: tuple[int, ...], nested: bool, seed: int) -> dict[tuple[int, ...], float]:
    """log p(data | size) ≤ −1 of every size; never falling along either axis where nested."""
    rng = np.random.default_rng(seed)
    raw = -1.0 - rng.gamma(1.2, 4.0, shape)
    if nested:
        for axis in range(len(shape)):
            raw = np.maximum.accumulate(raw, axis=axis)
    return {size: float(raw[tuple(n - 1 for n in size)]) for size in lattice(shape)}


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), dimension=st.sampled_from([2, 3]), nested=st.booleans(), wide=st.booleans())
def test_every_step_holds_the_exact_sum_and_is_no_looser_than_the_papers(seed, dimension, nested, wide):
    """lower ≤ exact ≤ upper after every expansion, whatever its values; our lower end is never below the paper's, which
    takes one min-witness for all unvisited sizes."""
    shape = BOXES[dimension]
    values = random_values(shape, nested, seed)
    weights = np.random.default_rng(seed + 1).gamma(0.8, size=shape)
    prior = sizes.Table(weights / weights.sum())
    exact = logsumexp([prior.log_pmf(size) + value for size, value in values.items()])
    search = WitnessSearch(prior, ceiling=-1.0, nested=nested)
    before = -math.inf
    while (size := search.next_size()) is not None:
        half = 0.4 if wide else 0.0
        search.record(size, Evidence(values[size] - half, min(values[size] + half, -1.0)))
        bounds = search.bounds()
        assert bounds.log_lower <= exact + 1e-10
        assert exact <= bounds.log_upper + 1e-10
        if nested and search.min_witness is not None:
            visited = {record.size: record.evidence.lower for record in search.records}
            outside = math.log(max(1e-300, 1 - sum(math.exp(prior.log_pmf(s)) for s in visited)))
            paper = logsumexp(
                [*(prior.log_pmf(s) + low for s, low in visited.items()), outside + visited[search.min_witness]]
            )
            assert bounds.log_lower >= paper - 1e-9
            assert bounds.log_lower >= before - 1e-10
        before = bounds.log_lower
    assert set(search.generated) == set(values)
    if not wide:
        assert bounds.log_lower == pytest.approx(exact, abs=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seed", "dimension"),
    [
        (0, 2),
        pytest.param(1, 3, marks=pytest.mark.slow),
        *(pytest.param(seed, 2 + seed % 2, marks=pytest.mark.slow) for seed in range(2, 12)),
    ],
)
def test_a_marginal_search_finds_what_all_sizes_would_say(seed, dimension):
    """One mode anywhere, steep in some variables and flat in others, and little noise: the sizes tried hold what
    matters of the posterior over all of them, and it is found without visiting every one."""
    rng = np.random.default_rng(seed)
    most = (10, 8, 4)[:dimension]
    mode = [int(rng.integers(1, n + 1)) for n in most]
    slope, noise = rng.uniform(1.5, 6.0, dimension), rng.normal(0, 0.3, most)

    def value(size: tuple[int, ...]) -> float:
        away = sum(s * abs(n - m) for n, m, s in zip(size, mode, slope, strict=True))
        return -40.0 - away + float(noise[tuple(n - 1 for n in size)])

    names = ("rows", "columns", "layers")[:dimension]
    result = lv.search(lv.from_function(value, size_names=names), max_size=most, progress=False)
    every = lattice(most)
    exact = np.array([result.prior.log_pmf(size) + value(size) for size in every])
    exact = dict(zip(every, np.exp(exact - logsumexp(exact)), strict=True))
    assert sum(exact[visit.size] for visit in result.visits) > 0.98
    assert exact[result.best_size] == max(exact.values())
    assert len(result.visits) < len(every)


@pytest.mark.thorough
def test_a_board_that_has_clusters_on_both_sides_only_together_is_found():
    """No row clusters without column clusters: one step along either axis gains nothing."""

    def value(size: tuple[int, ...]) -> float:
        return -50.0 * max(0, 3 - min(size)) - 2.0 * (size[0] + size[1])

    result = lv.search(lv.from_function(value, size_names=("rows", "columns")), max_size=(9, 9), progress=False)
    assert result.best_size == (3, 3)
    assert "3 rows × 3 columns" in result.summary()


# ── dependent sizes ─────────────────────────────────────────────────────────────────────────────────────────────────


def two_geometric(size: tuple[int, ...]) -> float:
    """The second variable's rate depends on the first: 0.5^a (1 − r) r^(b − 1), r = 0.6 / a."""
    a, b = size
    rate = 0.6 / a
    return a * math.log(0.5) + math.log(1 - rate) + (b - 1) * math.log(rate)


def outside(shape: tuple[int, int]) -> float:
    """Exactly what lies outside a box, summed far out."""
    inside = math.fsum(math.exp(two_geometric(size)) for size in lattice(shape))
    return 1.0 - inside


@settings(max_examples=15, deadline=None)
@given(
    shape=st.tuples(st.integers(3, 9), st.integers(2, 8)),
    lower=st.tuples(st.integers(1, 10), st.integers(1, 10)),
    widths=st.tuples(st.one_of(st.none(), st.integers(1, 6)), st.one_of(st.none(), st.integers(1, 6))),
    slack=st.floats(1.0, 3.0),
)
def test_masses_of_a_joint_with_a_tail_hold_the_exact_ones(shape, lower, widths, slack):
    tail = min(0.999, slack * outside(shape) + 1e-12)
    prior = sizes.Joint(two_geometric, shape, tail=tail)
    upper = tuple(None if width is None else low + width for low, width in zip(lower, widths, strict=True))
    ends = tuple(60 if end is None else end for end in upper)
    exact = logsumexp(
        [two_geometric(size) for size in product(*(range(a, b) for a, b in zip(lower, ends, strict=True)))]
    )
    assert prior.log_box(lower, upper) <= exact + 1e-9
    assert prior.log_box_upper(lower, upper) >= exact - 1e-9
    if all(end is not None and end - 1 <= most for end, most in zip(upper, shape, strict=True)):
        assert prior.log_box(lower, upper) == prior.log_box_upper(lower, upper)
    assert prior.log_pmf(lower) == pytest.approx(two_geometric(lower))
    assert prior.log_mass_upper((1, 1)) == 0.0


def test_bounds_under_a_joint_with_a_tail_hold_the_sum_over_all_sizes():
    def value(size: tuple[int, ...]) -> float:
        return -6.0 / size[0] - 3.0 / size[1]

    exact = logsumexp([two_geometric(size) + value(size) for size in lattice((60, 60))])
    prior = sizes.Joint(two_geometric, (6, 4), tail=1.1 * outside((6, 4)))
    search = WitnessSearch(prior, ceiling=0.0)
    for _ in range(12):
        size = search.next_size()
        assert size is not None
        search.record(size, value(size))
        assert search.bounds().log_lower <= exact <= search.bounds().log_upper


def test_a_joint_whose_tail_is_wrong_is_refused():
    with pytest.raises(ValueError, match="must hold a probability from"):
        sizes.Joint(two_geometric, (3, 2), tail=0.5 * outside((3, 2)))
    with pytest.raises(ValueError, match="must hold a probability from"):
        sizes.Joint(lambda size: two_geometric(size) + 1.0, (6, 4), tail=0.1)
    with pytest.raises(ValueError, match="below 1"):
        sizes.Joint(two_geometric, (3, 2), tail=1.0)
    heavier = sizes.Joint(
        lambda size: -1.0 if size == (9, 9) else two_geometric(size), (6, 4), tail=1.1 * outside((6, 4))
    )
    with pytest.raises(ValueError, match="tail bounds the mass"):
        heavier.log_pmf((9, 9))


# ── an uncertain prior ──────────────────────────────────────────────────────────────────────────────────────────────

MEMBERS = sizes.Mixture(
    [0.5, 0.3, 0.2], [sizes.Product(sizes.Poisson(rate), sizes.Poisson(2.0)) for rate in (1.0, 4.0, 12.0)]
)


def member_truth(values: dict[tuple[int, ...], float]) -> np.ndarray:
    log = [
        math.log(weight) + logsumexp([member.log_pmf(size) + value for size, value in values.items()])
        for weight, member in zip(MEMBERS.weights, MEMBERS.priors, strict=True)
    ]
    return np.exp(np.array(log) - logsumexp(log))


@pytest.mark.slow
def test_the_posterior_over_the_members_of_a_mixture():
    """Exact where every size that matters was tried, held by the proved interval at every step."""
    values = {size: -0.5 * abs(size[0] - 5) - 4.0 * abs(size[1] - 2) for size in lattice((9, 3))}
    evaluator = lv.from_function(lambda size: values[size], size_names=("rows", "columns"))
    result = lv.search(evaluator, prior=MEMBERS, max_size=(9, 3), exhaustive=True, progress=False)
    table = result.prior_members()
    np.testing.assert_allclose(table["probability"], member_truth(values), atol=1e-9)
    assert table["probability"].idxmax() == 1
    assert "rate 4" in table["prior"][1]
    rising = {size: -9.0 / size[0] - 4.0 / size[1] for size in lattice((60, 40))}
    nested = lv.from_function(lambda size: rising[size], size_names=("rows", "columns"), ceiling=0.0, nested=True)
    for most in ((2, 1), (5, 4)):
        proved = lv.search(nested, prior=MEMBERS, max_size=most, progress=False).prior_members()
        assert (proved["probability_lower"] <= member_truth(rising) + 1e-12).all()
        assert (proved["probability_upper"] >= member_truth(rising) - 1e-12).all()
        assert "probability" not in proved
    with pytest.raises(ValueError, match=r"expected a lv\.sizes\.Mixture"):
        result.with_prior(sizes.weak(2)).prior_members()


def test_a_limit_that_decides_one_of_the_numbers_stands_in_the_headline():
    function = lv.from_function(
        lambda size: -9.0 * (size[0] - 2) ** 2 + 9.0 * size[1], size_names=("row_clusters", "column_clusters"), calls=1
    )
    prior = sizes.Product(sizes.Uniform(5), sizes.Uniform(20))
    found = lv.search(function, prior=prior, max_size=(5, 15), progress=False)
    assert repr(found).startswith(
        "Still rising at 2 row clusters × 15 column clusters, the most column clusters allowed"
    )
    axes = in_house_style(None)
    assert draw_lattice(found, axes).title.startswith("Still rising at")  # the picture says what the sentence says
    dotted = {(int(line.get_ydata()[0]), int(line.get_xdata()[0])) for line in axes.get_lines()}
    assert dotted
    assert found.best_size not in dotted  # though so many squares leave no room for numbers
    whole = lv.search(
        function, prior=sizes.Product(sizes.Uniform(5), sizes.Uniform(1)), max_size=(5, 1), progress=False
    )
    assert repr(whole).startswith("2 row clusters × 1 column cluster (")
