"""`lv.models.check` finds each mistake that nothing else reports, and names it. The model is that of an example."""

import runpy
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from test_structure import ROOT

import lvsearch as lv
from lvsearch.models import AnnotatedImage, BagOfWords, GroupOfRows, Row, Site, families
from lvsearch.models.checks.invariance import with_other_missing_cells

PoissonMixture: Any = runpy.run_path(str(ROOT / "examples" / "poisson_mixture.py"))["PoissonMixture"]
COUNTS = np.array([[3, 0, 1], [0, 4, 1], [2, 1, 0], [0, 5, 2], [7, 1, 1], [1, 0, 0]], float)
POINTS = lv.Points.from_array(COUNTS)


class MaskForgotten(PoissonMixture):
    """The density of every rate, of those too that do not exist."""

    def log_prior(self, g, on):
        rates = g["rates"]
        of_rates = (self.shape - 1) * rates.log_value + self.rate * rates.negative_value
        constant = self.shape * jnp.log(self.rate) - gammaln(self.shape)
        return gammaln(on["component"].sum() * 1.0) + (of_rates + constant).sum()


class CapacityCounted(PoissonMixture):
    """The Dirichlet's constant of as many components as there are places."""

    def log_prior(self, g, on):
        return super().log_prior(g, on) + gammaln(len(on["component"]) * 1.0)


class LinearTermNotMasked(PoissonMixture):
    """Empty places have statistics of 0, so that the value is right, and a gradient."""

    def log_prior(self, g, on):
        return super().log_prior(g, on) + g["rates"].negative_value.sum()


class EveryPlaceExists(PoissonMixture):
    """A mask that knows no size."""

    def active(self, size, capacity):
        return {"component": jnp.ones(capacity[0], bool)}


class SquaredIndicator(PoissonMixture):
    """A term that is a square of a statistic."""

    def log_unit(self, g, l, unit, on):
        return super().log_unit(g, l, unit, on) + (l["kind"] ** 2).sum()


class LogOfExpectation(PoissonMixture):
    """log λ is written as the logarithm of −(−λ), not as the statistic that it is."""

    def log_unit(self, g, l, unit, on):
        of_kind = g["weights"] + (unit.value * jnp.log(-g["rates"].negative_value)).sum(1)
        return (l["kind"] * of_kind).sum()


class PriorNotLinear(PoissonMixture):
    """A prior in which two statistics of one site are multiplied."""

    def log_prior(self, g, on):
        product = g["rates"].log_value * g["rates"].negative_value
        return super().log_prior(g, on) + jnp.where(on["component"][:, None], product, 0.0).sum()


class MisspeltGlobalAxis(PoissonMixture):
    """dims for dim."""

    def globals(self):
        return {**super().globals(), "rates": Site(families.Gamma(), ("component", "dims"))}


class MisspeltLocalAxis(PoissonMixture):
    """components for component."""

    def locals(self):
        return {"kind": Site(families.Categorical(), ("components",))}


class WrongRepresentation(PoissonMixture):
    """The name of a site that there was once."""

    representation: ClassVar[str] = "kinds"


class WrongFamily(PoissonMixture):
    """Rates are read as those of a Gamma, and declared to be normal."""

    def globals(self):
        return {**super().globals(), "rates": Site(families.Gaussian(), ("component", "dim"))}


class FamilyWithoutParentheses(PoissonMixture):
    """The class for the family."""

    def locals(self):
        return {"kind": Site(families.Categorical, ("component",))}  # pyright: ignore[reportArgumentType]


class SignOfRate(PoissonMixture):
    """x ~ Poisson(λ) with +λ in place of −λ: no Gamma."""

    def log_unit(self, g, l, unit, on):
        cells = unit.value * g["rates"].log_value - 9 * g["rates"].negative_value
        return (l["kind"] * (g["weights"] + cells.sum(1))).sum()


class ObservedForgotten(PoissonMixture):
    """Missing cells are read."""

    def log_unit(self, g, l, unit, on):
        cells = unit.value * g["rates"].log_value + g["rates"].negative_value
        return (l["kind"] * (g["weights"] + cells.sum(1))).sum()


class NoSymmetry(PoissonMixture):
    """Components can be renamed, and the model says that they cannot."""

    def log_symmetry(self, size, natural):
        return 0.0


class FirstComponentIsSpecial(PoissonMixture):
    """A term for the first component alone."""

    def log_prior(self, g, on):
        return super().log_prior(g, on) + g["weights"][0]


class WrongMean(families.Gamma):  # pyright: ignore[reportGeneralTypeIssues]
    """A Gamma whose mean forgets its shape."""

    def mean(self, natural, event_mask=None):
        shape, rate = natural.log_value + 1, natural.negative_value
        return families.GammaStatistics(jnp.log(shape) - jnp.log(rate), -shape / rate)


class OwnFamily(PoissonMixture):
    """Rates of a family of one's own."""

    def globals(self):
        return {**super().globals(), "rates": Site(WrongMean(), ("component", "dim"))}


class NotTraced(PoissonMixture):
    """A setting that is no number among the hyper-parameters."""

    kind: str = "plain"


MISTAKES = [
    (MaskForgotten, ["log_prior of MaskForgotten", "places that hold nothing", "'component'", "'rates'", "jnp.where"]),
    (CapacityCounted, ["log_prior of CapacityCounted", "places that hold nothing", "'component'"]),
    (LinearTermNotMasked, ["gradient by the site 'rates' at places that hold nothing, got 1, expected 0"]),
    (EveryPlaceExists, ["active of EveryPlaceExists", "5 entries of 'component' exist in 5 places and 3 in 3"]),
    (SquaredIndicator, ["log_unit of SquaredIndicator", "not linear", "'kind'", "multilinear"]),
    (LogOfExpectation, ["log_unit of LogOfExpectation", "not linear", "rates.negative_value"]),
    (PriorNotLinear, ["log_prior of PriorNotLinear", "not linear", "rates.negative_value that moves with"]),
    (MisspeltGlobalAxis, ["global site 'rates'", "'dims'", "did you mean 'dim'"]),
    (MisspeltLocalAxis, ["local site 'kind'", "'components'", "did you mean 'component'"]),
    (WrongRepresentation, ["representation='kinds'", "did you mean 'kind'"]),
    (WrongFamily, ["log_prior of WrongFamily", "log_value", "rates: GaussianStatistics(value, negative_half_square)"]),
    (FamilyWithoutParentheses, ["local site 'kind'", "Categorical() with parentheses"]),
    (SignOfRate, ["'rates'", "no Gamma", "sign"]),
    (NoSymmetry, ["log_symmetry of NoSymmetry is 0", "log 3!"]),
    (FirstComponentIsSpecial, ["log_symmetry of FirstComponentIsSpecial", "renaming them moves"]),
    (OwnFamily, ["WrongMean", "'rates'", "not the gradient", "log_value"]),
    (NotTraced, ["kind", "'plain'", "static=True"]),
]


@pytest.mark.parametrize(("model", "said"), MISTAKES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_mistake_is_named(model, said):
    with pytest.raises(ValueError, match=model.__name__ if model is not OwnFamily else "OwnFamily") as error:
        lv.models.check(model(), POINTS)
    assert all(words in str(error.value) for words in said), str(error.value)


def test_cells_that_were_not_observed_count_for_nothing():
    """Whole rows say nothing about missing ones; rows with a missing cell do."""
    lv.models.check(ObservedForgotten(), POINTS)
    holed = lv.Points.from_array(np.where(COUNTS == 7, np.nan, COUNTS), missing="nan")
    lv.models.check(PoissonMixture(), holed)
    with pytest.raises(ValueError, match="log_unit of ObservedForgotten reads what was not observed"):
        lv.models.check(ObservedForgotten(), holed)


HiddenMarkov: Any = runpy.run_path(str(ROOT / "examples" / "hidden_markov.py"))["HiddenMarkov"]


class SlicesForgotten(HiddenMarkov):
    """Neighbouring states interact, and the site does not say so."""

    def locals(self):
        return {"path": super().locals()["path"]._replace(slices=None)}


class PresentForgotten(HiddenMarkov):
    """A constant for each step, of those too that are padding."""

    def log_unit(self, g, l, unit, on):
        return super().log_unit(g, l, unit, on) - 0.5 * len(unit.present)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (SlicesForgotten, r"not linear in the statistics of the site 'path'.*Site\(slices=…\)"),
        (PresentForgotten, "counts padding: 2 empty entries more in every unit"),
    ],
)
def test_elements_that_interact_are_found(model, said):
    sequences = lv.Groups.from_arrays([np.arange(n, dtype=float)[:, None] for n in (3, 5, 4)])
    with pytest.raises(ValueError, match=said):
        lv.models.check(model(), sequences)


class CountsForgotten(lv.models.LDA):  # pyright: ignore[reportGeneralTypeIssues]
    """Every column a token, whether or not there is one."""

    def log_unit(self, g, l, unit, on):
        return super().log_unit(g, l, BagOfWords(unit.words, jnp.ones_like(unit.counts)), on)


class CountsForgottenAtOneWord(lv.models.LDA):  # pyright: ignore[reportGeneralTypeIssues]
    """Every column a token, and those without one a token of word 0."""

    def log_unit(self, g, l, unit, on):
        words = jnp.where(unit.counts > 0, unit.words, 0)
        return super().log_unit(g, l, BagOfWords(words, jnp.ones_like(unit.counts)), on)


class LengthCounted(lv.models.LDA):  # pyright: ignore[reportGeneralTypeIssues]
    """A constant for each column."""

    def log_unit(self, g, l, unit, on):
        return super().log_unit(g, l, unit, on) + unit.counts.shape[-1]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        pytest.param(CountsForgotten, "reads what was not observed", marks=pytest.mark.slow),
        (CountsForgottenAtOneWord, "no copies of 'assignment'"),
        pytest.param(LengthCounted, "2 empty entries more in every unit", marks=pytest.mark.slow),
    ],
)
def test_padding_that_counts_is_found(model, said):
    texts = lv.Corpus.from_texts(["ant bee cat ant", "bee dog", "ant dog dog cat bee"])
    with pytest.raises(ValueError, match=said):
        lv.models.check(model(1.0), texts)


def test_padding_of_word_0_is_disturbed():
    """Packers pad with word 0, so that another word must stand there for the check to look at anything."""
    words, counts = np.array([[3, 1, 0, 0], [2, 0, 5, 0]]), np.array([[1, 2, 0, 0], [1, 1, 1, 0]])
    other = with_other_missing_cells(BagOfWords(words, counts))
    assert other.words.tolist() == [[3, 1, 5, 5], [2, 0, 5, 5]]
    present = np.array([[True, True, True, False]] * 2)
    image = with_other_missing_cells(AnnotatedImage(words, present, words, counts))
    assert image.words.tolist() == other.words.tolist()
    assert image.regions.tolist() == [[3, 1, 0, 5], [2, 0, 5, 5]]


def test_what_is_no_family_is_refused_without_a_hint_that_is_empty():
    class FamilyOfNone(PoissonMixture):
        def locals(self):
            return {"kind": Site(None, ("component",))}  # pyright: ignore[reportArgumentType]

    with pytest.raises(ValueError, match=r"the family None, expected one of lv\.models\.families$"):
        lv.models.check(FamilyOfNone(), POINTS)


def test_the_report_says_what_was_found():
    report = lv.models.check(PoissonMixture(), POINTS, size=(4,))
    assert (report.model, report.size, report.n_units) == ("PoissonMixture", (4,), 4)
    assert [name for name, _ in report.findings] == [
        "declared",
        "multilinear",
        "empty places",
        "padding",
        "log-normalisers",
        "relabellings",
    ]
    assert "log 4! = 3.178" in str(report)


def test_data_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"got list as data, expected such as lv\.Points"):
        lv.models.check(PoissonMixture(), COUNTS.tolist())


def test_fits_and_searches_look_first():
    with pytest.raises(ValueError, match="log_prior of MaskForgotten counts places that hold nothing"):
        lv.fit(MaskForgotten(), POINTS, size=2)
    with pytest.raises(ValueError, match="global site 'rates' of MisspeltGlobalAxis"):
        lv.search(MisspeltGlobalAxis(), POINTS, prior=lv.sizes.Poisson(2), max_size=2, progress=False)


def test_only_models_of_ones_own_are_looked_at_and_once(monkeypatch):
    """Another value of a hyper-parameter is the same structure; a part of one's own makes a model one's own."""
    from lvsearch.bridges import guards

    looked = []
    monkeypatch.setattr(guards.models, "check", lambda model, data, size: looked.append((type(model), size)))
    monkeypatch.setattr(guards, "_CHECKED", set())
    data = POINTS.dataset()

    class OwnComponents(lv.models.KnownCovarianceComponents):  # pyright: ignore[reportGeneralTypeIssues]
        pass

    for model in (lv.models.FiniteMixture(), PoissonMixture(), PoissonMixture(2.0, 3.0)):
        guards.check_own(model, data, (1,))
    assert looked == [(PoissonMixture, (2,))]
    guards.check_own(lv.models.FiniteMixture(OwnComponents(1.0)), data, (5,))
    assert looked[1:] == [(lv.models.FiniteMixture, (5,))]
    parts = lv.models.MixedComponents((lv.models.DiagonalComponents(), OwnComponents(1.0)), [[0, 1], [2]])
    guards.check_own(lv.models.FiniteMixture(parts), data, (5,))
    assert looked[2:] == [(lv.models.FiniteMixture, (5,))]


# ── what a model need not say ───────────────────────────────────────────────────────────────────────────────────────


def test_optional_members_say_what_is_missing():
    model = PoissonMixture()
    units = Row(COUNTS, np.ones(COUNTS.shape, bool))
    assert model.describe() == "PoissonMixture: shape=1.0, rate=0.1"
    assert model.extents(units) == {}
    assert model.ceiling(units) == np.inf
    assert not model.nested
    with pytest.raises(ValueError, match=r"no plug-in form: give it plug_in\(\)"):
        lv.fit(model, POINTS, size=2, evidence="plug-in")
    with pytest.raises(NotImplementedError, match=r"give it simulate\(key, size, units, extents\)"):
        model.simulate(jax.random.key(0), (2,), units, {"dim": 3})
    with pytest.raises(NotImplementedError, match="give it draw_unit"):
        model.draw_unit(jax.random.key(0), {}, {}, units, {})


def test_families_are_promised():
    assert "families" in lv.models.__all__
    for name in families.__all__:
        assert (getattr(lv.models.families, name).__doc__ or "").strip(), name


# ── what describes a unit ───────────────────────────────────────────────────────────────────────────────────────────


class RowsOfGroups(lv.models.Model):
    """Each row of a group is of one of `size` kinds: its describing site has as many elements as the group has rows."""

    size_names: ClassVar[tuple[str, ...]] = ("kinds",)
    unit_type: ClassVar[type] = GroupOfRows
    representation: ClassVar[str] = "kind"
    precision: np.ndarray = eqx.field(converter=lv.models.hyperparameter, default=4.0)

    def globals(self):
        return {"means": Site(families.Gaussian(), ("kind", "dim"))}

    def locals(self):
        return {"kind": Site(families.Categorical(), ("row", "kind"))}

    def extents(self, unit):
        return {"row": jnp.asarray(unit.present)}

    def active(self, size, capacity):
        return {"kind": lv.models.first(size[0], capacity[0])}

    def log_prior(self, g, on):
        density = g["means"].negative_half_square * 0.01 + 0.5 * jnp.log(0.01 / (2 * jnp.pi))
        return jnp.where(on["kind"][:, None], density, 0.0).sum()

    def log_unit(self, g, l, unit, on):
        x, means = jnp.where(unit.observed, unit.value, 0.0)[:, None], g["means"]
        density = self.precision * (x * means.value + means.negative_half_square - x**2 / 2)
        density = density + 0.5 * jnp.log(self.precision / (2 * jnp.pi))
        cells = jnp.where(unit.observed[:, None], density, 0.0).sum(-1) - jnp.log(on["kind"].sum() * 1.0)
        return jnp.where(unit.present[:, None], l["kind"] * cells, 0.0).sum()

    def log_symmetry(self, size, natural):
        return lv.models.log_relabellings(np.concatenate(natural["means"], axis=1))


@pytest.mark.thorough
@pytest.mark.parametrize("lengths", [(1, 5, 3), pytest.param((1, 5, 3, 17), marks=pytest.mark.slow)])
def test_transform_returns_no_padding(lengths):
    """One array for each group, as long as the group, of the kinds that there are."""
    rng = np.random.default_rng(0)
    groups = lv.Groups.from_arrays([rng.normal(size=(n, 2)) for n in lengths])
    parts = lv.fit(RowsOfGroups(), groups, size=3).transform(groups)
    assert [part.shape for part in parts] == [(n, 3) for n in lengths]
    np.testing.assert_allclose(np.concatenate(parts).sum(1), 1, rtol=1e-5)
