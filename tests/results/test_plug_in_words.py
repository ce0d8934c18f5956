"""What plug-in evidence proves is of its fits, not of sizes: said wherever it is shown, and why fits are three."""

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest

import lvsearch as lv
from lvsearch.reports.report import write_report
from lvsearch.results.card import card, headline, summary
from lvsearch.results.plots import plot_bounds, plot_posterior

matplotlib.use("Agg")

OF_FITS = "of these fits"


@cache
def three_kinds() -> lv.Corpus:
    """Sixty documents of forty words, of three kinds that share no word."""
    topics = np.kron(np.eye(3), np.full(10, 0.1))
    rng = np.random.default_rng(0)
    return lv.Corpus.from_matrix(np.stack([rng.multinomial(40, topics[kind % 3]) for kind in range(60)]))


@cache
def searched(starts: int | None = None) -> lv.SearchResult:
    return lv.search(
        lv.models.LDA(1.0),
        three_kinds(),
        prior=lv.sizes.Poisson(4),
        evidence="plug-in",
        max_size=4,
        starts=starts,
        seed=0,
        progress=False,
    )


@cache
def settled() -> lv.SearchResult:
    """Nested evidence under which one size is nearly sure."""
    return lv.search(
        lv.from_function(lambda size: -60.0 if size[0] < 3 else -1.0, nested=True, ceiling=0.0),
        prior=lv.sizes.Table([0.01, 0.01, 0.95, 0.03]),
        max_size=4,
        progress=False,
    )


@pytest.mark.thorough
def test_one_fit_of_a_size_may_prove_what_is_false_of_the_size():
    """Grown from a poor fit of two topics, three kinds share two topics: P(3) at most 0 is true of that fit alone."""
    alone, usual = (searched(starts).posterior().set_index("size") for starts in (1, None))
    assert alone.loc[3, "probability_upper"] < 1e-6
    assert usual.loc[3, "probability_upper"] > 0.1
    assert usual.loc[3, "log_evidence_lower"] > alone.loc[3, "log_evidence_lower"] + 500
    assert searched().settings.starts == 3
    assert all(len(visit.trials) == 3 for visit in searched().visits)


@pytest.mark.slow
def test_the_best_of_the_usual_fits_is_within_a_nat_of_the_best_of_many():
    """Of kinds that share nothing; where they share some, growth finds rarer and better ones: see the benchmark."""
    many = lv.search(
        lv.models.LDA(1.0),
        three_kinds(),
        prior=lv.sizes.Poisson(4),
        evidence="plug-in",
        max_size=3,
        starts=8,
        seed=5,
        progress=False,
    )
    ends = [result.visits[2].evidence.lower for result in (searched(), many)]
    assert ends[0] == pytest.approx(ends[1], abs=1.0)


@pytest.mark.parametrize(
    "result", [pytest.param(searched, id="a model"), pytest.param(settled, id="a function", marks=pytest.mark.smoke)]
)
@pytest.mark.parametrize("write", [headline, summary, card], ids=lambda write: write.__name__)
def test_words_say_of_what(result, write):
    text = write(result())
    assert OF_FITS in text
    assert "certified" not in text


def test_a_size_that_stands_out_does_so_of_these_fits():
    assert headline(settled()).startswith("size 3 has probability 0.9")
    assert headline(settled()).endswith(f"({OF_FITS}, if gains diminish).")
    assert "of these fits, if gains diminish: size 3 has probability" in summary(settled())


def test_the_card_says_how_far_fits_ended_apart():
    assert "a better one may have been missed" in summary(searched())
    assert "may have been missed" not in summary(searched(1))  # nothing is known of that
    assert "may have been missed" not in summary(settled())  # a function gives what it gives
    assert "3 fits of each size" in summary(searched())
    assert "1 fit of each size" in summary(settled())


@pytest.mark.parametrize("kind", ["certified", "diminishing"])
def test_pictures_say_so(kind):
    for ax in (plot_posterior(searched(), kind=kind), plot_bounds(searched())):
        legend = ax.get_legend()
        text = " ".join([ax.get_title(loc="left"), *(each.get_text() for each in ax.texts)])
        assert OF_FITS in text
        assert "certified" not in text
        assert legend is None or sum(OF_FITS in each.get_text() for each in legend.get_texts()) == 2


@pytest.mark.thorough
def test_reports_and_predictions_say_so(tmp_path: Path):
    path = write_report(searched(), tmp_path)
    assert OF_FITS in path.read_text()
    assert "certified" not in path.read_text()
    assert all(OF_FITS in line for line in searched().predict(three_kinds()).describe().splitlines())


def test_bounds_and_intervals_say_so_themselves():
    certified, diminishing = searched().certified(), settled().diminishing()
    assert certified.describe().startswith("proved of these fits: ")
    assert certified.describe().endswith("not of the best parameters of a size.")
    assert diminishing.describe().startswith("of these fits, if gains diminish: ")
    free = lv.search(lv.from_function(lambda size: -1.0), prior=lv.sizes.Poisson(2), max_size=3, progress=False)
    assert free.certified().describe().startswith("certified: ")  # nothing there is at fitted parameters
    assert OF_FITS not in free.summary()
