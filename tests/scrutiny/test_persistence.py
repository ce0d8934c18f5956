"""Which components come back: similarities against enumeration and closed forms, planted components found again."""

from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_searches import rewritten, searched

import lvsearch as lv
from lvsearch.comparison.similarity import ComponentMembers, member_similarity, partners, row_affinity
from lvsearch.files.storage import CorruptFolderError
from lvsearch.models.units import Row
from lvsearch.pictures import style
from lvsearch.reports.page import page_of
from lvsearch.reports.report import write_report
from lvsearch.scrutiny.persistence import Persistence, Recurrence
from lvsearch.searching.evaluators import ModelEvaluator

C = lv.models.components
FAR = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


def hard(labels: Any, size: int) -> ComponentMembers:
    return ComponentMembers(np.eye(size)[np.asarray(labels)], np.ones(len(labels)), "row")


def soft(seed: int, n: int, size: int) -> ComponentMembers:
    random = np.random.default_rng(seed)
    return ComponentMembers(random.dirichlet(np.full(size, 0.4), n), np.ones(n), "row")


# ── members ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_components_in_another_order_are_the_same():
    first = soft(0, 40, 3)
    order = [2, 0, 1]
    found = member_similarity(first, first._replace(shares=first.shares[:, order]))
    np.testing.assert_allclose(found[order, [0, 1, 2]], 1.0)
    np.testing.assert_allclose(partners(found), 1.0)
    assert (found < 0.999).sum() == 6


def test_chance_is_what_all_orders_of_the_observations_have_in_common():
    """By enumeration of all 720 orders of six observations, with hard and with soft shares."""
    levels = np.arange(0, 129, 8) / 128  # shares between which the levels tell exactly
    random = np.random.default_rng(3)
    shares = random.choice(levels, (6, 2)), random.choice(levels, (6, 2))
    first, second = (ComponentMembers(each, np.ones(6), "row") for each in shares)
    both = np.mean([np.minimum(first.shares[list(p), :1], second.shares[:, :1]).sum() for p in permutations(range(6))])
    one, other = first.amount[0], second.amount[0]
    chance = both / (one + other - both)
    now = np.minimum(first.shares[:, 0], second.shares[:, 0]).sum()
    expected = (now / (one + other - now) - chance) / (1 - chance)
    assert member_similarity(first, second)[0, 0] == pytest.approx(max(expected, 0.0), abs=1e-12)
    assert 0 < chance < 1


def test_unrelated_components_are_as_similar_as_chance():
    found = member_similarity(hard(np.arange(3000) % 3, 3), hard(np.arange(3000) // 1000, 3))
    np.testing.assert_allclose(found, 0.0, atol=0.002)


def test_weights_are_copies():
    first, second, times = soft(1, 12, 3), soft(2, 12, 2), np.arange(12) % 4 + 1
    weighted = member_similarity(
        first._replace(weight=times.astype(np.float64)), second._replace(weight=times.astype(np.float64))
    )
    copied = [
        ComponentMembers(np.repeat(each.shares, times, axis=0), np.ones(times.sum()), "row") for each in (first, second)
    ]
    np.testing.assert_allclose(weighted, member_similarity(*copied), atol=1e-12)


def test_above_a_half_no_two_components_claim_the_same():
    random = np.random.default_rng(0)
    for _ in range(200):
        found = member_similarity(hard(random.integers(0, 3, 12), 3), hard(random.integers(0, 4, 12), 4))
        assert ((found > 0.5).sum(axis=0) <= 1).all()
        assert ((found > 0.5).sum(axis=1) <= 1).all()


def test_what_members_cannot_tell():
    """One component of all is itself; equal shares of everything are nothing; an empty one is like no other."""
    whole, halves = hard(np.zeros(20, int), 1), ComponentMembers(np.full((20, 2), 0.5), np.ones(20), "row")
    assert member_similarity(whole, whole).item() == 1
    np.testing.assert_array_equal(member_similarity(halves, halves), 0.0)
    np.testing.assert_array_equal(member_similarity(whole, hard(np.arange(20) % 2, 2)), 0.0)
    empty = hard(np.arange(20) % 2, 3)
    np.testing.assert_allclose(member_similarity(empty, empty), np.diag([1.0, 1.0, 0.0]), atol=1e-12)
    little = 0.3 * np.linspace(0, 1, 20)[:, None]  # of every row, but of none the most
    left = ComponentMembers(np.hstack([0.7 * (1 - little), 0.3 * (1 - little), little]), np.ones(20), "row")
    assert left.occupied.tolist() == [True, False, False]
    assert member_similarity(left, left)[2, 2] == 0
    features = ComponentMembers(np.array([[0.9, 0.8, 0.2], [0.1, 0.1, 0.2]]), np.ones(2), "row")
    assert features.occupied.tolist() == [True, True, True]
    with pytest.raises(ValueError, match="got shares of 20 and of 3 observations"):
        member_similarity(whole, hard([0, 0, 0], 1))


def test_partners_are_one_to_one():
    """The first would rather have what the second has; with one component too few somebody has none."""
    np.testing.assert_allclose(partners(np.array([[0.9, 0.6], [0.8, 0.0]])), [0.6, 0.8])
    np.testing.assert_allclose(partners(np.array([[0.9], [0.8]])), [0.9, 0.0])


# ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────────


def bernoulli_affinity(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.prod(np.sqrt(p * q) + np.sqrt((1 - p) * (1 - q))))


P, Q, MEAN, OTHER = np.array([0.2, 0.7]), np.array([0.6, 0.9]), np.array([0.0, 1.0]), np.array([1.5, 0.0])
RATE, FASTER = np.array([2.0, 5.0]), np.array([4.0, 9.0])
CASES = {
    "bernoulli": (
        C.BernoulliComponents(),
        (np.log(P), np.log1p(-P)),
        (np.log(Q), np.log1p(-Q)),
        bernoulli_affinity(P, Q),
    ),
    "gaussian": (
        C.KnownCovarianceComponents(np.array([1.0, 4.0])),
        (MEAN / [1, 2], -0.5 * (MEAN / [1, 2]) ** 2),
        (OTHER / [1, 2], -0.5 * (OTHER / [1, 2]) ** 2),
        float(np.exp(-0.125 * ((MEAN - OTHER) ** 2 / [1, 4]).sum())),
    ),
    "poisson": (
        C.PoissonComponents(),
        (np.log(RATE), -RATE),
        (np.log(FASTER), -FASTER),
        float(np.exp(-0.5 * ((np.sqrt(RATE) - np.sqrt(FASTER)) ** 2).sum())),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_affinities_are_the_closed_forms(name: str):
    """Within three standard errors of so many draws; of a component with itself 1 exactly."""
    component, first, second, exact = CASES[name]
    kind = component.family.statistics_type
    with jax.enable_x64(True):
        one, two = (kind(*(jnp.asarray(each)[None] for each in leaves)) for leaves in (first, second))
    like = Row(np.ones((4, 2)), np.ones((4, 2), bool))
    found = row_affinity(component, one, two, like, jax.random.key(0))
    assert found is not None
    assert found.item() == pytest.approx(exact, abs=0.07)
    same = row_affinity(component, one, one, like, jax.random.key(0))
    assert same is not None
    assert same.item() == pytest.approx(1.0)


# ── whole ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def result() -> lv.SearchResult:
    """Three clusters far from each other."""
    random = np.random.default_rng(1)
    points = lv.Points.from_array(np.repeat(FAR, 30, axis=0) + random.normal(size=(90, 2)), columns=["x", "y"])
    model = lv.models.FiniteMixture(C.KnownCovarianceComponents(np.eye(2), pseudo_count=0.05))
    prior = lv.sizes.Table([0.01, 0.01, 0.97, 0.01])
    return lv.search(model, points, prior=prior, evidence="bound", max_size=4, starts=2, seed=0, progress=False)


@cache
def found(size: int | None = None) -> Persistence:
    return result().persistence(size, bootstraps=6, starts=2, progress=False)


@pytest.mark.thorough
def test_planted_clusters_come_back_and_the_halves_of_one_do_not():
    planted = found()
    assert planted.size == (3,)
    assert len(planted.stable(0.9)) == 3
    assert planted.probability().min() == pytest.approx(6.5 / 7)
    assert planted.describe().startswith("3 of 3 components come back with probability 0.9 or more")
    samples = [each for each in planted.recurrences if each.source == "samples"]
    few = replace(planted, recurrences=tuple(samples[:2]))  # 2.5 / 3 is below 0.9: it said that none comes back
    assert few.describe().startswith("3 of 3 components come back in every sample, but samples are too few for")
    cut = found(4)
    table = cut.table()
    assert len(cut.names) == 4
    assert len(cut.stable()) == 3
    assert table["probability"].iloc[3] < 0.1
    assert table["rows"].sum() == pytest.approx(90, abs=0.2)
    assert table["parameters"].max() > 0.9
    assert (table["lower"] < table["probability"]).all()
    assert (table["probability"] < table["upper"]).all()


@pytest.mark.thorough
def test_the_table_is_of_the_fits_that_were_made():
    planted = found()
    assert [r.source for r in planted.recurrences].count("samples") == 6
    assert [r.source for r in planted.recurrences].count("starts") == 2
    weights = [r.weight for r in planted.recurrences if r.source == "sizes"]
    assert sum(weights) == pytest.approx(1)
    here = Recurrence("samples", (3,), 1.0, (0.6, 0.4, 0.9), ())
    there = Recurrence("samples", (3,), 1.0, (0.7, 0.3, 0.5), ())
    own = replace(
        planted,
        recurrences=(
            here,
            there,
            replace(here, source="sizes", weight=0.25),
            replace(there, source="sizes", weight=0.75),
        ),
    )
    np.testing.assert_array_equal(own.exists(), [[True, False, True], [True, False, False]])  # ½ is not above ½
    np.testing.assert_allclose(own.probability(), [2.5 / 3, 0.5 / 3, 1.5 / 3])
    table = own.table()
    assert table.index.tolist() == [0, 2, 1]
    np.testing.assert_allclose(table["sizes"], [1.0, 0.25, 0.0])
    np.testing.assert_allclose(table["worst"], [0.6, 0.5, 0.3])
    assert np.isnan(table["starts"]).all()
    assert np.isnan(table["parameters"]).all()


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_and_another_does_not():
    again = result().persistence(bootstraps=2, starts=1, seed=4, progress=False)
    assert again == result().persistence(bootstraps=2, starts=1, seed=4, progress=False)
    other = result().persistence(bootstraps=2, starts=1, seed=5, progress=False)
    assert again.recurrences[-1] != other.recurrences[-1]


@pytest.mark.thorough
def test_it_goes_onto_the_card_into_the_report_and_into_the_folder(tmp_path: Path):
    kept = result().with_persistence(found())
    assert f"persistence: {found().describe()}" in kept.summary()
    assert kept.stable(0.5).equals(found().stable(0.5))
    kept.save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run")
    assert loaded.scrutiny.persistence == found()
    assert loaded.stable().equals(found().stable())
    assert kept.with_prior(lv.sizes.Poisson(2)).scrutiny.persistence is None
    write_report(kept, tmp_path / "report")
    assert (tmp_path / "report" / "persistence.csv").read_text().count("\n") == 4
    parts = page_of(kept).parts
    assert parts is not None
    assert parts.drawings[-1].title == "Which of 3 components come back"

    def shortened(body: Any, arrays: Any) -> None:
        body["persistence"]["recurrences"][0]["members"] = [1.0]

    with pytest.raises(CorruptFolderError, match="another number of components"):
        lv.load(rewritten(tmp_path / "run", tmp_path / "other", shortened))


@pytest.mark.thorough
@pytest.mark.parametrize("palette", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_the_picture_has_a_row_for_each_component(palette: style.Palette):
    with style.with_palette(palette):
        axes = found(4).plot()
    assert [label.get_text().split()[0] for label in axes.get_yticklabels()] == [str(k) for k in found(4).table().index]
    assert axes.get_title("left") == "Which of 4 components come back"


@pytest.mark.thorough
def test_what_is_refused():
    with pytest.raises(ValueError, match="got bootstraps=0"):
        result().persistence(bootstraps=0)
    with pytest.raises(ValueError, match="threshold=1"):
        result().persistence(threshold=1)
    with pytest.raises(ValueError, match="got probability=2"):
        result().stable(2)
    with pytest.raises(ValueError, match="got on='words'"):
        found().similarities(on="words")
    of_function = lv.search(lv.from_function(lambda size: -float((size[0] - 2) ** 2)), max_size=3, progress=False)
    with pytest.raises(ValueError, match="over a plain function say: it has no components"):
        of_function.persistence()
    training = result().training
    assert training is not None
    with pytest.raises(ValueError, match="got 1 row"):
        replace(result(), training=training.select([0])).persistence()
    blocks = ModelEvaluator(
        lv.models.LatentBlockModel(C.BernoulliComponents()),
        lv.Points.from_array(np.eye(3)).dataset(),
        evidence="bound",
        seed=0,
    )
    with pytest.raises(ValueError, match="expected one with components of one kind"):
        replace(result(), evaluator=blocks).persistence()


@pytest.mark.thorough
def test_topics_are_compared_token_by_token():
    fit = searched("bound").fit(3)
    members = fit.members()
    np.testing.assert_allclose(members.shares.sum(1), 1)
    assert members.weight.sum() == fit.training.n_observations
    assert members.noun == "token"
    first = slice(0, int((fit.training.counts[0] > 0).sum()))  # pyright: ignore[reportAttributeAccessIssue]
    assert np.ptp(members.shares[first], axis=0).max() > 0.2  # words of one document are in different topics
    own = fit.affinity(fit)
    assert own is not None
    np.testing.assert_allclose(np.diag(own), 1, atol=1e-6)
    assert fit.component_names() == tuple(fit.names())
    kept = searched("plug-in").persistence(3, bootstraps=1, starts=0, progress=False)
    assert {r.source: r.size for r in kept.recurrences}["samples"] == searched("plug-in").best_size
    assert "tokens" in kept.table()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sequences", "features", "documents", "images"])
def test_other_models_have_components_that_come_back(kind: str):
    random = np.random.default_rng(2)
    if kind == "sequences":
        paths = [np.repeat(random.integers(0, 3, 8), 5) for _ in range(12)]
        data: Any = lv.Groups.from_arrays(
            [FAR[z] + random.normal(size=(40, 2)) for z in paths], names=list("abcdefghijkl")
        )
        model: Any = lv.models.HiddenMarkov(C.KnownCovarianceComponents(np.eye(2), pseudo_count=0.05))
    elif kind == "features":
        data = (random.random((80, 2)) < 0.5) @ np.eye(2, 5) * 6 + random.normal(size=(80, 5)) * 0.3
        model = lv.models.IBP(loading_precision=0.1, noise_precision=10.0)
    elif kind == "images":
        data = lv.PairedCorpus.from_arrays(
            [9.0 * (n % 2) + random.normal(size=(3, 2)) for n in range(20)], [["ab"[n % 2]] * 2 for n in range(20)]
        )
        model = lv.models.GMMixture()
    else:
        data = np.concatenate([np.eye(3, dtype=int)[[k]] * 30 + random.poisson(1, (15, 3)) for k in range(3)])
        model = lv.models.MixtureOfUnigrams()
    n = 2 if kind in ("features", "images") else 3
    prior = lv.sizes.Table(np.eye(n)[-1])
    one = lv.search(model, data, prior=prior, evidence="bound", max_size=n, exhaustive=True, starts=3, progress=False)
    persistence = one.persistence(bootstraps=6, starts=1, progress=False)
    table = persistence.table()
    assert len(table) == n
    assert (table["probability"] > 0.5).all()
    assert (table["parameters"] > 0.5).all() or kind == "images"


def test_groups_may_be_drawn_several_times():
    groups = lv.Groups.from_arrays([np.ones((n, 1)) for n in (1, 2, 3)], names=["a", "b", "a (2)"])
    drawn = groups.part(np.array([0, 0, 2, 0, 1]), "drawn")
    assert drawn.sizes.tolist() == [1, 1, 3, 1, 2]
    assert drawn.names == ("a", "a (3)", "a (2)", "a (4)", "b")
    assert groups.select([2, 1]).names == ("a (2)", "b")
