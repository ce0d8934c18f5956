"""Priors against sums in 50-digit decimals, far in the tail too; boxes, tilted tails, storage, errors."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvsearch.sizing import sizes
from lvsearch.sizing.words import is_or_are, with_noun

INFINITE = [
    sizes.Poisson(10),
    sizes.Poisson(0.3, shifted=True),
    sizes.Poisson(41.7),
    sizes.Geometric(0.23),
    sizes.NegativeBinomial(17.0, 2.6),
    sizes.NegativeBinomial(3.2, 0.4),
    sizes.Mixture([0.3, 0.7], [sizes.Poisson(4.5), sizes.Geometric(0.4)]),
]


def exact_pmf(prior, n_sizes):
    """p(1), p(2), … as 50-digit decimals, by recursion."""
    if isinstance(prior, sizes.Mixture):
        parts = [exact_pmf(part, n_sizes) for part in prior.priors]
        weights = [Decimal(w) / sum(map(Decimal, prior.weights)) for w in prior.weights]
        return [sum(w * p for w, p in zip(weights, row, strict=True)) for row in zip(*parts, strict=True)]
    values = []
    if isinstance(prior, sizes.Poisson):
        rate = Decimal(prior.rate)
        term = (-rate).exp() if prior.shifted else (-rate).exp() * rate / (1 - (-rate).exp())
        for s in range(1, n_sizes + 1):
            values.append(term)
            term = term * rate / (s if prior.shifted else s + 1)
        return values
    if isinstance(prior, sizes.Geometric):
        p = Decimal(prior.p)
        return [p * (1 - p) ** (s - 1) for s in range(1, n_sizes + 1)]
    r, m = Decimal(prior.concentration), Decimal(prior.mean) - 1
    term = (r * (r / (r + m)).ln()).exp()
    for k in range(n_sizes):
        values.append(term)
        term = term * (k + r) / (k + 1) * m / (r + m)
    return values


def assert_same_log(got, exact, relative=1e-12):
    expected = float(exact.ln())
    assert abs(got - expected) <= relative * abs(expected) + 1e-300, (got, expected)


@pytest.mark.parametrize("prior", INFINITE, ids=lambda prior: prior.describe()[:30])
def test_masses_and_boxes_agree_with_decimal_sums_far_into_the_tail(prior):
    with localcontext() as context:
        context.prec = 50
        pmf = exact_pmf(prior, 6000)
        tails = np.cumsum(np.array(pmf[::-1], dtype=object))[::-1]
        reached = [n for n in (2, 3, 5, 9, 14, 40, 41, 42, 77, 150, 301, 900, 2000, 4000) if prior.log_mass(n) > -2500]
        assert min(prior.log_mass(n) for n in reached) < -400
        for n in reached:
            assert_same_log(prior.log_pmf(n), pmf[n - 1], 2e-12)
            assert_same_log(prior.log_mass(n), tails[n - 1])
        for start, end in ((1, 2), (1, 9), (2, 40), (7, 8), (7, 19), (35, 47), (40, 200), (150, 160), (150, 400)):
            assert_same_log(prior.log_box((start,), (end,)), sum(pmf[start - 1 : end - 1]), 2e-12)
        for start, slope in ((1, 0.1), (6, -0.7), (6, 0.05), (60, 0.11), (60, -5.0), (23, -0.02)):
            tilt = Decimal(slope).exp()
            if prior.log_tilted_mass(start, slope) < math.inf:
                exact = sum(p * tilt**j for j, p in enumerate(pmf[start - 1 :]))
                assert_same_log(prior.log_tilted_mass(start, slope), exact, 3e-12)
    assert prior.log_mass(1) == 0.0
    assert prior.log_box((3,), (3,)) == -math.inf


def test_tilted_tails_diverge_exactly_where_they_should():
    assert sizes.Geometric(0.23).log_tilted_mass(4, 0.27) == math.inf  # log(1 / 0.77) = 0.2614
    assert sizes.Geometric(0.23).log_tilted_mass(4, 0.26) < math.inf
    assert sizes.NegativeBinomial(17.0, 2.6).log_tilted_mass(4, 0.2) == math.inf
    assert sizes.Poisson(10).log_tilted_mass(4, 5.0) == pytest.approx(10 * math.exp(5) - 10 - 20, rel=1e-6)
    assert sizes.Poisson(10).log_tilted_mass(4, 1e6) == math.inf
    assert sizes.Table([0.2, 0.5, 0.3]).log_tilted_mass(2, 800.0) == pytest.approx(math.log(0.3) + 800)
    assert sizes.Table([0.2, 0.5, 0.3]).log_tilted_mass(4, 1.0) == -math.inf


def test_negative_binomial_is_what_its_docstring_says():
    prior = sizes.NegativeBinomial(mean=7.5, concentration=1.8)
    s = np.arange(1, 3000)
    p = np.exp([prior.log_pmf(int(size)) for size in s])
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert (p * s).sum() == pytest.approx(7.5, rel=1e-10)
    assert (p * (s - 7.5) ** 2).sum() == pytest.approx(6.5 + 6.5**2 / 1.8, rel=1e-9)
    geometric = sizes.Geometric(1 / 7.5)
    assert sizes.NegativeBinomial(7.5, 1.0).log_mass(90) == pytest.approx(geometric.log_mass(90), rel=1e-12)
    assert sizes.NegativeBinomial(11.0, 1e9).log_mass(80) == pytest.approx(
        sizes.Poisson(10, shifted=True).log_mass(80), rel=1e-5
    )


@pytest.mark.parametrize(
    "prior", [sizes.Poisson(1e4), sizes.NegativeBinomial(1e4, 1e5), sizes.NegativeBinomial(1e4, 0.01)]
)
def test_large_sizes_stay_finite_and_falling(prior):
    masses = [prior.log_mass(size) for size in (1, 2, 100, 5000, 9999, 10001, 12000, 30000, 10**6)]
    assert masses == sorted(masses, reverse=True)
    assert masses[0] == 0.0
    assert masses[-1] < -5.0
    assert all(math.isfinite(mass) for mass in masses)


def test_product_regions_agree_with_direct_summation_in_a_tail_of_minus_400():
    prior = sizes.Product(sizes.Poisson(6), sizes.Geometric(0.31), sizes.NegativeBinomial(4.0, 2.2))
    corner, ends = (120, 23, 44), (None, 31, None)
    with localcontext() as context:
        context.prec = 50
        rows = [exact_pmf(part, 1500) for part in prior.priors]
        exact = Decimal(1)
        for row, start, end in zip(rows, corner, ends, strict=True):
            exact *= sum(row[start - 1 : None if end is None else end - 1])
        assert float(exact.ln()) < -250
        assert_same_log(prior.log_box(corner, ends), exact)
        exact = Decimal(math.prod(sum(row[169:]) for row in rows))
        assert float(exact.ln()) < -400
        assert_same_log(prior.log_mass((170, 170, 170)), exact)
    assert prior.dimension == 3
    assert prior.log_mass((1, 1, 1)) == 0.0


def test_table_joint_and_product_of_tables_are_one_thing():
    weights = np.arange(1.0, 13.0).reshape(3, 4) ** 2
    table = sizes.Table(weights / weights.sum())
    joint = sizes.Joint(lambda size: 2.0 * math.log(4 * (size[0] - 1) + size[1]) - 77.0, shape=(3, 4))
    for lower, upper in (((1, 1), (None, None)), ((2, 1), (None, 3)), ((1, 2), (3, None)), ((4, 1), (None, None))):
        box = weights[lower[0] - 1 : upper[0] and upper[0] - 1, lower[1] - 1 : upper[1] and upper[1] - 1]
        expected = math.log(box.sum() / weights.sum()) if box.size else -math.inf
        assert table.log_box(lower, upper) == pytest.approx(expected, rel=1e-12, abs=1e-15)
        assert joint.log_box(lower, upper) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert joint.log_pmf((3, 5)) == -math.inf
    assert joint.table().log_pmf((3, 2)) == pytest.approx(math.log(100 / weights.sum()))
    first, second = np.array([0.1, 0.9]), np.array([0.2, 0.0, 0.8])
    both = sizes.Product(sizes.Table(first), sizes.Table(second))
    outer = sizes.Table(np.outer(first, second))
    assert both.log_mass((2, 2)) == pytest.approx(outer.log_mass((2, 2)), rel=1e-12)
    assert both.log_pmf((1, 2)) == outer.log_pmf((1, 2)) == -math.inf


@settings(max_examples=60, deadline=None)
@given(rate=st.floats(0.01, 300.0), start=st.integers(1, 700), width=st.integers(1, 80), shifted=st.booleans())
def test_a_mass_is_the_sum_of_its_parts(rate, start, width, shifted):
    prior = sizes.Poisson(rate, shifted)
    parts = np.logaddexp(prior.log_box((start,), (start + width,)), prior.log_mass(start + width))
    # The log of a mass near 1 has the mass' relative error as absolute error: a few 1e-13 in SciPy's incomplete gamma.
    assert parts == pytest.approx(prior.log_mass(start), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(
    "prior", [*INFINITE, sizes.Table([0.1, 0.2, 0.3, 0.25, 0.15])], ids=lambda p: p.describe()[:30]
)
def test_a_prior_without_small_sizes_is_the_other_given_the_rest(prior):
    at_least = sizes.AtLeast(prior, 3)
    assert (at_least.first, prior.first) == ((3,), (1,))
    held = prior.log_mass(3)
    assert [at_least.log_pmf(size) for size in (1, 2)] == [-math.inf, -math.inf]
    for size in (3, 4, 5):
        assert at_least.log_pmf(size) == pytest.approx(prior.log_pmf(size) - held, rel=1e-12)
    assert at_least.log_mass(1) == pytest.approx(0.0, abs=1e-12)
    assert at_least.log_mass(5) == pytest.approx(prior.log_mass(5) - held, rel=1e-12)
    assert at_least.log_box((1,), (3,)) == -math.inf
    assert at_least.log_box((1,), (5,)) == pytest.approx(
        np.logaddexp(at_least.log_pmf(3), at_least.log_pmf(4)), abs=1e-12
    )
    direct = np.logaddexp.reduce([at_least.log_pmf(size) - 0.4 * (size - 2) for size in range(2, 400)])
    assert at_least.log_tilted_mass(2, -0.4) == pytest.approx(direct, rel=1e-9)


def test_small_sizes_go_only_where_there_are_any():
    prior = sizes.Poisson(10)
    assert sizes.without_smaller(prior, (1,)) is prior
    without = sizes.without_smaller(prior, (3,))
    assert without == sizes.AtLeast(prior, 3)
    assert sizes.without_smaller(without, (2,)) is without
    with pytest.raises(ValueError, match="sizes from 4 on"):
        sizes.AtLeast(sizes.Uniform(3), 4)


STORED = [
    *INFINITE,
    sizes.AtLeast(sizes.Poisson(3), 2),
    sizes.Table([0.1, 0.2, 0.7]),
    sizes.Product(sizes.Poisson(3), sizes.Table([[0.25, 0.75]])),
]


@pytest.mark.parametrize("prior", STORED, ids=lambda prior: prior.describe()[:30])
def test_priors_are_stored_and_described(prior):
    copy = sizes.from_json(prior.to_json())
    assert copy == prior
    assert hash(copy) == hash(prior)
    assert copy.log_mass((2,) * prior.dimension) == prior.log_mass((2,) * prior.dimension)
    assert len(prior.describe()) > 10


def test_command_line_forms():
    assert sizes.parse("weak") == sizes.weak()
    assert sizes.parse("poisson:10") == sizes.Poisson(10.0)
    assert sizes.parse("poisson-shifted:2.5") == sizes.Poisson(2.5, shifted=True)
    assert sizes.parse("geometric:0.1") == sizes.Geometric(0.1)
    assert sizes.parse("negative-binomial:20,3") == sizes.NegativeBinomial(20.0, 3.0)
    assert sizes.parse("table:0.25,0.75") == sizes.Table([0.25, 0.75])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: sizes.Poisson(0), "rate=0, expected a finite number above 0"),
        (lambda: sizes.Poisson(math.nan), "above 0"),
        (lambda: sizes.Geometric(1.0), "above 0 and below 1"),
        (lambda: sizes.NegativeBinomial(1.0, 2.0), "mean=1.0, expected a finite number above 1"),
        (lambda: sizes.Table([0.5, 0.6]), "sum to 1"),
        (lambda: sizes.Table([1.5, -0.5]), "at least 0"),
        (lambda: sizes.Table([0.5, math.nan]), "at least 0"),
        (lambda: sizes.Mixture([0.5, 0.5], [sizes.Poisson(1), sizes.Table([[1.0]])]), "dimension"),
        (lambda: sizes.Joint(lambda size: math.nan, (2, 2)).log_mass((1, 1)), "NaN"),
        (lambda: sizes.Joint(lambda size: 0.0, (2, 2)).to_json(), "code is not stored"),
        (lambda: sizes.Poisson(1).log_pmf(0), "from 1 on"),
        (lambda: sizes.Poisson(1).log_pmf((2, 3)), r"got size=\(2, 3\), expected a whole number"),
        (lambda: sizes.Product(sizes.Poisson(1), sizes.Poisson(2)).log_tilted_mass(1, 0.0), "one size variable"),
        (lambda: sizes.parse("poisson"), "expected one of"),
        (lambda: sizes.parse("poisson:1,2"), "number of parameters"),
        (lambda: sizes.parse("cauchy:3"), "expected one of"),
        (lambda: sizes.from_json({"type": "cauchy"}), "Not a stored size prior"),
    ],
)
def test_bad_input_is_explained(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_uniform_is_a_table_with_a_name():
    prior, table = sizes.Uniform(7), sizes.Table(np.full(7, 1 / 7))
    for size in (1, 7, 8):
        assert prior.log_pmf((size,)) == pytest.approx(table.log_pmf((size,)), abs=1e-12)
        assert prior.log_mass((size,)) == pytest.approx(table.log_mass((size,)), abs=1e-12)
    assert sizes.from_json(prior.to_json()) == sizes.parse("uniform:7") == prior
    assert prior.describe() == "uniform on 1…7"
    with pytest.raises(ValueError, match="largest=0, expected a whole number from 1"):
        sizes.Uniform(0)


def test_the_weak_prior_makes_every_component_five_percent_less_probable():
    assert sizes.weak().log_pmf((8,)) - sizes.weak().log_pmf((7,)) == pytest.approx(math.log(0.95))
    assert sizes.weak(2).log_pmf((3, 4)) == pytest.approx(sizes.weak().log_pmf((3,)) + sizes.weak().log_pmf((4,)))


def test_numbers_of_things_are_read_aloud_right():
    assert [with_noun(1, name) for name in ("topics", "occupied components", "nodes at level 1", "data")] == [
        "1 topic",
        "1 occupied component",
        "1 node at level 1",
        "1 data",
    ]
    assert with_noun(3, "occupied components") == "3 occupied components"
    assert (is_or_are(1), is_or_are(2)) == ("is", "are")
