"""Pictures say what the tables say, name their kind, and leave pyplot alone where axes are given."""

import math
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import lvsearch as lv
from lvsearch.data.corpus import Corpus
from lvsearch.pictures.style import DARK, with_palette
from lvsearch.results.plots import plot_bounds, plot_held_out, plot_posterior, plot_progress
from lvsearch.searching.controller import SearchState
from lvsearch.sizing.posterior import in_percent


def axes():
    """Axes that pyplot does not know."""
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def words(ax) -> str:
    """Everything written on a picture, on one line."""
    texts = [ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel()]
    texts += [text.get_text() for text in (*ax.texts, *ax.get_xticklabels())]
    legend = ax.get_legend()
    texts += [] if legend is None else [text.get_text() for text in legend.get_texts()]
    return " ".join(" ".join(texts).split())


def searched(function, **options):
    prior = options.pop("prior", lv.sizes.Poisson(4))
    search = {name: options.pop(name) for name in ("max_size", "exhaustive") if name in options}
    return lv.search(lv.from_function(function, **options), prior=prior, progress=False, **search)


@pytest.fixture(scope="module")
def uncertain():
    """Sizes 4 to 6 within their errors, the others far below."""
    evidence = {4: -101.0, 5: -100.0, 6: -100.5}
    return searched(
        lambda size: lv.Evidence(evidence.get(size[0], -150.0 - size[0]), standard_error=2.0),
        size_names=("clusters",),
        max_size=9,
        exhaustive=True,
    )


@pytest.fixture(scope="module")
def rising():
    """Nested evidence that levels off at 5, whose certified bounds have a useful ceiling."""
    return searched(
        lambda size: lv.Evidence(-30.0 / min(size[0], 5) - 0.5, -30.0 / min(size[0], 5)),
        nested=True,
        ceiling=0.0,
        max_size=8,
    )


def test_the_estimate_shows_means_and_what_cannot_be_told_apart(uncertain):
    """No bars of error: here they would reach from 0 to nearly 1 on three sizes."""
    ax = plot_posterior(uncertain, axes())
    table = uncertain.posterior().set_index("size")
    lines = np.array(ax.collections[0].get_segments())
    shown = table.loc[lines[:, 0, 0].astype(int)]
    np.testing.assert_allclose(lines[:, :, 1], np.column_stack([np.zeros(len(shown)), shown["probability"]]))
    assert len(ax.collections) == 2  # the lines and their ends
    together = [size[0] for size in uncertain.estimated.indistinguishable]
    (band,) = ax.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == (min(together) - 0.5, max(together) + 0.5)
    text = words(ax)
    chance = in_percent(table["probability"][5])
    assert f"5 clusters ({chance}); 95 %: 4–6" in text
    assert "estimate over the sizes tried" in text
    low, high = (f"{table[f'probability_{end}'][5]:.3f}" for end in ("lower", "upper"))
    assert f"an exact one would give between {low} and {high}, with 90 % probability" in text
    assert "number of clusters" in text


def test_no_picture_prints_a_bare_one():
    certain = searched(lambda size: -1000.0 * abs(size[0] - 3), max_size=5, exhaustive=True)
    text = words(plot_posterior(certain, axes()))
    assert "3: >0.999" in text
    assert text.startswith("Size 3 ")
    assert "Size 3 (more than 99 %). " in text  # no range: no other size may be the best
    assert "1.000" not in text


def test_the_limit_is_named_when_the_best_touches_it():
    growing = searched(lambda size: 10.0 * size[0], max_size=4, exhaustive=True)
    assert "4 is the largest size allowed" in words(plot_posterior(growing, axes()))


@pytest.mark.parametrize("kind", ["certified", "diminishing"])
def test_intervals_reach_from_end_to_end_and_include_the_unvisited(rising, kind):
    ax = plot_posterior(rising, axes(), kind=kind)
    table = rising.posterior(kind)
    bottoms = [bar.get_y() for bar in ax.patches]
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(bottoms, table["probability_lower"])
    np.testing.assert_allclose(tops, table["probability_upper"])
    text = words(ax)
    assert {"certified": "intervals proved of these fits", "diminishing": "if gains diminish"}[kind] in text
    assert "certified" not in text  # of a size nothing is
    assert "visited" in text


def test_vacuous_intervals_say_so(rising):
    vacuous = searched(lambda size: -1e4 / size[0], nested=True, ceiling=0.0, max_size=4)
    ax = plot_posterior(vacuous, axes(), kind="certified")
    assert "No single size is proved any probability" in words(ax)
    assert not ax.patches  # no bars from 0 to 1
    assert "No single size" not in words(plot_posterior(rising, axes(), kind="diminishing"))


def test_a_certified_posterior_of_marginal_evidence_is_refused(uncertain):
    with pytest.raises(ValueError, match="certified posterior under marginal evidence"):
        plot_posterior(uncertain, axes(), kind="certified")
    with pytest.raises(ValueError, match="expected one of"):
        plot_posterior(uncertain, axes(), kind="sure")


def test_evidence_is_relative_to_the_best_with_every_fit(uncertain):
    ax = plot_bounds(uncertain, axes())
    dots = ax.lines[0].get_xydata()
    starts = uncertain.starts().sort_values("size")
    np.testing.assert_allclose(dots[:, 0], starts["size"])
    np.testing.assert_allclose(dots[:, 1], starts["log_evidence"] + 100.0)
    text = words(ax)
    assert "nats" in text
    assert "the scale is logarithmic below" in text
    assert "certified, no assumption" in text
    assert ax.get_ylim()[1] > 0
    assert ax.get_ylim()[0] < starts["log_evidence"].min() + 100.0  # every size is inside the frame
    band = ax.collections[1].get_paths()[0].vertices
    table = uncertain.posterior().sort_values("size")
    for sign in (-1, 1):
        edge = table["log_evidence"] + 100.0 + sign * table["standard_error"]
        points = np.column_stack([table["size"], edge])
        assert all(np.isclose(band, point).all(axis=1).any() for point in points)


def test_the_scale_of_evidence_is_linear_over_at_least_a_nat():
    """One size that is surely the best, and known without an error: the picture is of nats, not of their millionths."""
    sure = searched(lambda size: -1000.0 * abs(size[0] - 2), max_size=3, exhaustive=True)
    for plot in (plot_bounds, plot_progress):
        ax = plot(sure, axes())
        assert "logarithmic below −1 (dotted)" in words(ax)
    alone = searched(lambda size: -1000.0, max_size=1, exhaustive=True)
    for plot in (plot_bounds, plot_progress):
        assert plot(alone, axes()).get_ylim()[0] <= -1


def test_components_of_sequences_are_matched_by_the_rows_that_they_share(uncertain, monkeypatch):
    """Units that differ in length, such as sequences, have a list of arrays in the place of one array."""

    class Fit:
        def transform(self, data):
            return [np.eye(2), np.eye(2)[:1]]

    monkeypatch.setattr(type(uncertain), "fit", lambda self, size: Fit())
    sequences = replace(uncertain, training=lv.Groups.from_arrays([np.ones((2, 1)), np.ones((1, 1))]))
    assert sequences.component_map(4).overlap.to_numpy().tolist() == [[2.0, 0.0], [0.0, 1.0]]
    sequences.plot_component_map(4, ax=axes())


@pytest.mark.parametrize("nested", [True, False])
def test_a_search_without_a_fit_has_no_picture_and_says_why(nested):
    """Every fit failed, or the search was stopped before its first fit."""
    hopeless = searched(lambda size: math.nan, max_size=2, nested=nested, ceiling=0.0)
    begun = replace(hopeless, state=SearchState())
    for plot in (plot_posterior, plot_bounds, plot_progress):
        with pytest.raises(ValueError, match="no fit succeeded"):
            plot(hopeless, axes())
        with pytest.raises(ValueError, match="no size was visited"):
            plot(begun, axes())
    assert list(begun.bounds()) == list(hopeless.bounds())
    assert list(begun.starts()) == list(hopeless.starts())


def test_bounds_of_nested_evidence_follow_the_expansions(rising):
    ax = plot_bounds(rising, axes())
    table = rising.bounds()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), table["log_lower"])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), table["log_upper"])
    (drawn,) = [each for each in ax.collections if isinstance(each, LineCollection)]
    intervals = np.array([segment[:, 1] for segment in drawn.get_segments()])
    np.testing.assert_allclose(intervals[:, 1] - intervals[:, 0], 0.5)
    text = words(ax)
    assert "proved of these fits, not of the best parameters of a size" in text
    assert "certified" not in text
    assert "gains diminish" in text
    assert "in the order of expansion" in text
    assert [line.get_text() for line in ax.get_legend().get_texts()][:2] == [
        "lower bound, proved of these fits",
        "upper bound, proved of these fits",
    ]


@pytest.mark.parametrize("nested", [True, False])
def test_several_size_variables_stand_side_by_side(nested):
    prior = lv.sizes.Product(lv.sizes.Poisson(2), lv.sizes.Poisson(3))
    result = searched(
        lambda size: -10.0 / min(size[0] * size[1], 4) - 1.0,
        prior=prior,
        size_names=("topics", "regions"),
        nested=nested,
        ceiling=0.0,
        max_size=2 if nested else 3,
    )
    for draw in (plot_posterior, plot_bounds):
        ax = draw(result, axes())
        assert "1×2" in words(ax)
        ax.figure.canvas.draw()


def test_held_out_differences_are_drawn_with_their_errors():
    comparison = pd.DataFrame(
        {
            "size": [3, 5, 9],
            "log_p_per_token": [-5.0, -4.9, -4.95],
            "difference_per_token": [-0.1, 0.0, -0.05],
            "standard_error": [0.02, 0.0, 0.03],
        }
    )
    comparison.attrs = {
        "reference": (5,),
        "size_names": ("size",),
        "unit": "topics",
        "nouns": Corpus.nouns,
        "n_units": 20,
        "n_observations": 1234,
        "estimator": "some estimator",
    }
    ax = plot_held_out(comparison, axes())
    bars = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(bars, [[-0.12, -0.08], [0, 0], [-0.08, -0.02]])
    assert "20 documents, 1,234 tokens" in words(ax)
    assert "some estimator" in words(ax)


def test_given_axes_are_used_and_pyplot_is_left_alone(uncertain):
    before = plt.get_fignums()
    ax = axes()
    assert uncertain.plot_posterior(ax) is ax
    assert uncertain.plot_bounds(other := axes()) is other
    assert plt.get_fignums() == before


def test_without_axes_there_is_a_new_figure(uncertain):
    uncertain.plot_posterior()
    assert plt.get_fignums()


def test_time_is_that_of_the_fits_and_the_best_so_far_never_falls(uncertain, rising):
    ax = plot_progress(uncertain, axes())
    spent = np.cumsum([visit.seconds for visit in uncertain.visits])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), spent)
    assert (np.diff(ax.lines[0].get_ydata()) >= 0).all()
    assert ax.lines[0].get_ydata()[-1] == 0.0
    bounds = plot_progress(rising, axes())
    np.testing.assert_allclose(bounds.lines[0].get_ydata(), rising.bounds()["log_lower"])
    assert "proved of these fits" in words(bounds)


@pytest.mark.parametrize("nested", [False, True])
def test_sizes_of_no_evidence_are_named_and_not_drawn(nested):
    """log p(data | size) = −∞ is an answer, not a failure, and has no place on an axis of nats."""
    result = searched(
        lambda size: -math.inf if size[0] == 3 else -2 * abs(size[0] - 5.0) - 100,
        max_size=8,
        exhaustive=True,
        nested=nested,
        **({"ceiling": 0.0} if nested else {}),
    )
    pictures = [plot(result, ax=axes()) for plot in (plot_bounds, plot_progress)]
    for ax in pictures:
        ax.figure.canvas.draw()
        assert nested or "not drawn: 3, whose evidence is −∞" in words(ax)
    if not nested:
        assert len(pictures[1].collections[1].get_offsets()) == 7


def test_doubled_sizes_are_on_a_logarithmic_axis_and_a_dark_picture_is_dark():
    climbing = searched(lambda size: -10.0 / size[0], prior=lv.sizes.Geometric(0.001), max_size=64)
    with with_palette(DARK):
        ax = plot_bounds(climbing)
    assert ax.get_xscale() == ("log" if len(climbing.visits) < 32 else "linear")
    assert ax.xaxis.label.get_color() == DARK.ink


@pytest.mark.slow  # the fits of block models take long to compile
def test_a_map_of_components_of_blocks_names_both_sizes_and_whose_components_they_are():
    """Its title was "From 2 to 2: what split, what merged" for sizes 2×1 and 2×2."""
    cells = np.kron(np.eye(2), np.ones((4, 4)))
    sizes = {"max_size": (2, 2), "exhaustive": True, "evidence": "bound"}
    found = lv.search(lv.models.LatentBlockModel(), cells, progress=False, starts=1, **sizes)
    assert "Row clusters from 2×1 to 2×2: what split, what merged" in words(found.plot_component_map((2, 1), ax=axes()))


def test_one_size_that_is_not_drawn_is_in_the_singular():
    evidence = {1: -1.0, 2: -50.0, 3: -60.0, 4: -70.0}
    found = searched(lambda size: lv.Evidence(evidence[size[0]], standard_error=0.1), max_size=4, exhaustive=True)
    assert "1 other size: below 0.001." in words(plot_posterior(found, axes()))
