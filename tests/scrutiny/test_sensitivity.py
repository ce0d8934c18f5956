"""Whether an answer hangs on the numbers in the model's priors: the searches made, and what is said of them."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.reports.report import write_report
from lvsearch.results.repeated_searches import hyperparameters, with_hyperparameter
from lvsearch.scrutiny.scrutiny import Scrutiny
from lvsearch.scrutiny.sensitivity import Sensitivity, Variant

ROWS = np.array([[-2.1], [-1.9], [-2.4], [1.8], [2.2], [2.0], [2.5]])
SETTINGS = {"evidence": "annealed", "max_size": 2, "seed": 3, "progress": False}


def model(concentration: float = 1.0, rate: float = 0.5) -> lv.models.FiniteMixture:
    return lv.models.FiniteMixture(lv.models.KnownCovarianceComponents([[rate]], pseudo_count=0.2), concentration)


@cache
def searched(concentration: float = 1.0) -> lv.SearchResult:
    return lv.search(model(concentration), ROWS, **SETTINGS)


@cache
def found() -> Sensitivity:
    return searched().sensitivity(["concentration"], factor=4, progress=False)


def test_numbers_in_priors_are_found_where_they_are():
    diagonal = lv.models.FiniteMixture(lv.models.DiagonalComponents(0.0, [1.0, 2.0], 0.3, 2.5, 0.7), 0.8)
    assert hyperparameters(diagonal) == {
        "components.pseudo_count": 0.3,
        "components.shape": 2.5,
        "components.rate": 0.7,
        "concentration": 0.8,
    }
    of_topics = hyperparameters(lv.models.LDA(GammaPrior(2.0, 4.0), 0.1))
    assert of_topics == {"concentration.shape": 2.0, "concentration.rate": 4.0, "topic_concentration": 0.1}
    changed = with_hyperparameter(diagonal, "components.shape", 5.0)
    assert hyperparameters(changed) == {**hyperparameters(diagonal), "components.shape": 5.0}
    assert np.array_equal(changed.components.scale, [1.0, 2.0])


@pytest.mark.thorough
def test_every_variant_is_the_search_of_that_model():
    variants = {variant.name: variant for variant in found().variants}
    assert list(variants) == ["as searched", "concentration ÷ 4", "concentration × 4"]
    for name, concentration in (("as searched", 1.0), ("concentration ÷ 4", 0.25), ("concentration × 4", 4.0)):
        posterior = searched(concentration).posterior()
        assert variants[name].posterior.probability.tolist() == posterior["probability"].tolist()
        whole = logsumexp(posterior["log_prior"] + posterior["log_evidence"])
        assert variants[name].log_evidence == pytest.approx(whole, abs=1e-9)
    assert variants["concentration × 4"].value == 4.0


@pytest.mark.thorough
def test_the_search_itself_is_left_alone():
    before = searched().posterior()
    found()
    assert searched().posterior().equals(before)


@pytest.mark.thorough
def test_what_cannot_be_varied_is_refused():
    result = searched()
    with pytest.raises(ValueError, match=r"got the hyper-parameter 'rate', expected one of .*'concentration'"):
        result.sensitivity(["rate"])
    with pytest.raises(ValueError, match="got the hyper-parameter 'rate'"):
        result.sensitivity("rate")
    for factor in (1.0, 0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="expected a finite number above 1"):
            result.sensitivity(factor=factor)
    with pytest.raises(ValueError, match="expected annealed evidence"):
        lv.search(model(), ROWS, **{**SETTINGS, "evidence": "bound"}).sensitivity()
    of_function = lv.search(lv.from_function(lambda size: -float(size[0])), max_size=2, progress=False)
    with pytest.raises(ValueError, match="without a model"):
        of_function.sensitivity()


@pytest.mark.thorough
def test_it_is_kept_and_shown_with_the_search(tmp_path):
    """On the card, the page and the report, in the folder; another prior over sizes weighs every variant anew."""
    kept = searched().with_sensitivity(found())
    assert f"other priors: {found().describe()}" in " ".join(kept.summary().split())
    kept.save(tmp_path / "run")
    again = lv.load(tmp_path / "run")
    assert again.scrutiny.sensitivity == found()
    pd.testing.assert_frame_equal(again.scrutiny.sensitivity.table(), found().table())
    write_report(kept, tmp_path / "report")
    assert "What other priors say" in (tmp_path / "report" / "index.html").read_text()
    assert (tmp_path / "report" / "other_priors.png").exists()
    assert len(pd.read_csv(tmp_path / "report" / "other_priors.csv")) == 3
    prior = lv.sizes.Table([0.9, 0.1])
    anew = kept.with_prior(prior).scrutiny.sensitivity.variants
    for changed, concentration in zip(anew, (1.0, 0.25, 4.0), strict=True):
        posterior = searched(concentration).with_prior(prior).posterior()
        assert changed.posterior.probability.tolist() == posterior["probability"].tolist()
    assert lv.resume(tmp_path / "run", progress=False).scrutiny.sensitivity == found()  # of the same fits: it stays


# ── in words, of made-up posteriors ─────────────────────────────────────────────────────────────────────────────────


def variant(name: str, factor: float, *weights: float) -> Variant:
    sizes, n = tuple((size,) for size in range(1, len(weights) + 1)), len(weights)
    return Variant(name, factor, factor, sizes, (0.0,) * n, tuple(np.log(weights).tolist()), (1e-3,) * n)


def test_an_answer_that_stays_and_one_that_moves():
    base = variant("", 1.0, 0.01, 0.68, 0.30, 0.01)
    stays = Sensitivity((base, variant("rate", 0.5, 0.01, 0.5, 0.48, 0.01)), ("components",))
    assert stays.describe() == (
        "2 components: most probable under 1 of 1 changed priors. No variant rules out 2–3; some keep 2–3."
    )
    moves = Sensitivity((*stays.variants, variant("rate", 2.0, 0.01, 0.02, 0.96, 0.01)), ("components",))
    assert moves.describe() == (
        "2 components: most probable under 1 of 2 changed priors, not under rate × 2: 3. No variant rules out 3; some "
        "keep 2–3."
    )
    apart = Sensitivity((variant("", 1.0, 0.99, 0.01), variant("rate", 3.0, 0.01, 0.99)), ("components",))
    assert "1 component: most probable under 0 of 1" in apart.describe()
    assert "No size is kept by all: between them they keep 1–2." in apart.describe()


def test_a_search_without_an_answer_is_said():
    lost = Variant("rate", 3.0, 3.0, (), (), (), ())
    partly = Sensitivity((variant("", 1.0, 0.2, 0.8), variant("rate", 1 / 3, 0.3, 0.7), lost), ("components",))
    assert partly.describe().endswith("1 of the searches found no answer.")
    table = partly.table()
    assert table["best"].tolist() == ["2", "2", ""]
    assert np.isnan(table["probability_of_answer"].iloc[2])
    assert table["probability_of_answer"].iloc[1] == pytest.approx(0.7, abs=0.01)


def unsettled(name: str, factor: float) -> Variant:
    """A variant whose evidence is known to 40 nats only."""
    return Variant(name, factor, factor, ((1,), (2,), (3,)), (0.0,) * 3, (-300.0, -290.0, -291.0), (1.0, 40.0, 40.0))


def test_a_search_without_a_single_number_has_no_answer_to_ask_about():
    """It named a most probable size with percentages, where the search itself says "No single number yet"."""
    found = Sensitivity((unsettled("", 1.0), variant("rate", 3.0, 0.1, 0.8, 0.1)), ("components",))
    assert found.describe().startswith(
        "The search has no single number yet, so there is no answer whose sensitivity could be asked"
    )
    assert found.disagreeing == ()
    assert found.table()["best"].tolist() == ["", "2"]
    assert found.table()["probability_of_answer"].isna().all()
    assert found.plot().get_title(loc="left").startswith("No single number yet")


def test_only_variants_with_a_single_number_are_counted():
    variants = (variant("", 1.0, 0.1, 0.1, 0.8), variant("rate", 3.0, 0.1, 0.8, 0.1), unsettled("shape", 3.0))
    found = Sensitivity(variants, ("components",))
    assert found.describe().startswith("3 components: most probable under 0 of 1 changed priors, not under rate × 3: 2")
    assert found.describe().endswith(" 1 more of the searches had no single number yet.")
    assert found.table()["best"].tolist() == ["3", "2", ""]
    assert np.isnan(found.table()["probability_of_answer"].iloc[2])


def test_a_prior_without_any_size_of_the_search_is_refused():
    found = Sensitivity((variant("", 1.0, 0.1, 0.9), variant("rate", 3.0, 0.1, 0.1, 0.8)), ("components",))
    with pytest.raises(ValueError, match=r"no probability to any size that the original search tried \(1–2\)"):
        found.with_prior(lv.sizes.Table([0.0, 0.0, 1.0]))
    only_original = Sensitivity((found.variants[1], found.variants[0]), ("components",))
    assert (
        only_original.with_prior(lv.sizes.Table([0.0, 0.0, 1.0]))
        .describe()
        .endswith("1 of the searches found no answer.")
    )
    checks = Scrutiny(sensitivity=found)
    assert checks.with_prior(lv.sizes.Table([0.0, 0.0, 1.0])).sensitivity is None
    assert checks.with_prior(lv.sizes.Uniform(2)).sensitivity is not None


@pytest.mark.thorough
def test_the_picture_has_a_row_of_dots_for_each():
    axes = found().plot()
    axes.figure.canvas.draw()
    assert [label.get_text() for label in axes.get_yticklabels()] == [v.name for v in found().variants]
    sizes = [collection.get_sizes().sum() for collection in axes.collections if len(collection.get_offsets())]
    assert len(sizes) == 3
    two = Variant("", 1.0, None, ((1, 1),), (0.0,), (0.0,), (0.0,))
    with pytest.raises(ValueError, match="got 2 size variables"):
        Sensitivity((two,), ("rows", "columns")).plot()
