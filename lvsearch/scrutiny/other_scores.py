"""The scores by which people choose a number of topics, compared with the posterior over it, on the same fits.

None of them is a probability. Most of them measure something else than how many topics the documents have. Each names
one number without an error. This module reports the number each score names, what the score measures, and whether the
posterior rules that number out. A score that names another number may still be right about what it measures.

The picture has a row for each score, since no two scores have a scale in common.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.pictures.size_axis import SizeAxis
from lvsearch.pictures.style import Caption, draw_captioned, lay_out, palette_of
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import between_in_words, is_or_are, with_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class ScoreKind:
    """A kind of score by which people choose a number of topics.

    name: such as "BIC".
    largest: True if the largest value chooses the size, False if the smallest value does.
    measures: what the score measures, in words.
    source: the paper or library that it comes from.
    """

    name: str
    largest: bool
    measures: str
    source: str


BIC = ScoreKind(
    "BIC",
    False,
    "fit of the topics at their estimates, less log D for every free probability of every topic: an approximation for "
    "few parameters and many documents, which charges a topic for all the words that it does not use",
    "Schwarz 1978",
)
PERPLEXITY = ScoreKind(
    "perplexity",
    False,
    "the mean-field bound on the evidence, per token of the training documents; the bound is low by an unknown amount "
    "that grows with the number of topics",
    "scikit-learn, LatentDirichletAllocation.perplexity of what was fitted",
)
LOG_PERPLEXITY = ScoreKind(
    "log_perplexity",
    True,
    "the same bound for held-out documents, which pay for all topics once more: the fewer they are, the fewer topics "
    "it names",
    "gensim, LdaModel.log_perplexity of held-out documents",
)
HELD_OUT = ScoreKind(
    "held-out likelihood",
    True,
    "how well the fit predicts documents that it has not seen, log p per token by importance sampling; flat beyond the "
    "topics that are there, since further ones cost a prediction little",
    "Wallach et al. 2009; Buntine 2009",
)
UMASS = ScoreKind(
    "UMass coherence",
    True,
    "whether the most probable words of a topic share documents with each other; common words do, and so do those of "
    "few broad topics",
    "Mimno et al. 2011, the mean over topics",
)
NPMI = ScoreKind(
    "NPMI coherence",
    True,
    "whether the most probable words of a topic share documents more often than by chance: how readable topics are, "
    "not how many",
    "Bouma 2009; Lau, Newman & Baldwin 2014, the mean over topics",
)
GRIFFITHS = ScoreKind(
    "Griffiths2004",
    True,
    "meant to be the evidence itself, but the harmonic mean has no finite variance: from any number of draws it is how "
    "likely words are given the topic of every token, which further topics raise",
    "Griffiths & Steyvers 2004, ldatuning",
)
CAO_JUAN = ScoreKind(
    "CaoJuan2009",
    False,
    "how far topics point in different directions, mean cosine over pairs; not whether the documents need them",
    "Cao et al. 2009, ldatuning",
)
ARUN = ScoreKind(
    "Arun2010",
    False,
    "whether the singular values of the topics are like the tokens of each; ldatuning scales neither to sum to 1, so "
    "that it falls with every topic as long as there are far fewer topics than documents",
    "Arun et al. 2010, ldatuning",
)
DEVEAUD = ScoreKind(
    "Deveaud2014",
    True,
    "how differently topics use words, mean Jeffreys divergence over pairs; rare words decide it, through the prior on "
    "topics",
    "Deveaud, SanJuan & Bellot 2014, ldatuning",
)
STABILITY = ScoreKind(
    "stability",
    True,
    "whether fits of other samples of the documents have the same topics, by their words; few broad topics come back "
    "as surely as the right ones",
    "Greene, O'Callaghan & Cunningham 2014",
)

OF_MIXTURES = (
    "fit at the estimates, less a charge for every free parameter, an approximation that is rough where rows are few "
    "or components empty; "
)
MIXTURE_BIC = ScoreKind("BIC", False, OF_MIXTURES + "the charge is log n", "Schwarz 1978; mclust, poLCA")
AIC = ScoreKind("AIC", False, OF_MIXTURES + "the charge is 2: it names more components than there are", "Akaike 1974")
CAIC = ScoreKind("CAIC", False, OF_MIXTURES + "the charge is log n + 1", "Bozdogan 1987")
ADJUSTED_BIC = ScoreKind("adjusted BIC", False, OF_MIXTURES + "the charge is log((n + 2) / 24)", "Sclove 1987")
ICL = ScoreKind(
    "ICL",
    False,
    "BIC with a further charge for rows whose component is uncertain: how many groups stand apart, not how many "
    "components the density needs",
    "Biernacki, Celeux & Govaert 2000; mclust",
)
ENTROPY = ScoreKind(
    "relative entropy",
    True,
    "how surely rows belong to one component, from 0 to 1, of two components or more; few groups that stand far apart "
    "are surer than the right ones",
    "Ramaswamy et al. 1993; poLCA",
)
MIXTURE_HELD_OUT = ScoreKind(
    "held-out likelihood",
    True,
    "how well the fit predicts rows that it has not seen, log p per cell; flat beyond the components that are there",
    "Smyth 2000",
)


@dataclass(frozen=True)
class SizeScore:
    """The values of one kind of score at each size, (sizes,); NaN where a value is not known."""

    kind: ScoreKind
    values: Float[np.ndarray, " size"]

    @property
    def place(self) -> int | None:
        """The index in `values` of the size with the best value, the smallest of equal ones; None if none is finite."""
        known = np.flatnonzero(np.isfinite(self.values))
        if not len(known):
            return None
        values = self.values[known] if self.kind.largest else -self.values[known]
        return int(known[np.argmax(values)])

    @property
    def at_end(self) -> bool:
        """True if the best value is at the first or last size with a value; sizes beyond may then be better."""
        known = np.flatnonzero(np.isfinite(self.values))
        return self.place in (known[0], known[-1]) if len(known) else False


@dataclass(frozen=True)
class OtherScores:
    """The result of `SearchResult.other_scores`: the value of each score at each size, beside the posterior.

    | field | shape | meaning |
    |---|---|---|
    | `sizes` | (size,) | the sizes that were scored, increasing |
    | `probability` | (size,) | posterior probability of each size; NaN for a size that the search did not try |
    | `log_evidence` | (size,) | log p(data | size) as the search estimates it, nats; NaN where it does not |
    | `scores` | (score,) | the values of each score |
    | `best`, `together` | | the most probable size, and the sizes that cannot be told apart from it |
    | `size_name` | | what sizes count, such as "topics" |
    """

    sizes: tuple[Size, ...]
    probability: Float[np.ndarray, " size"]
    log_evidence: Float[np.ndarray, " size"]
    scores: tuple[SizeScore, ...]
    best: Size
    together: tuple[Size, ...]
    size_name: str

    @property
    def height(self) -> float:
        """The height of the picture of all scores, in inches, in which every score's row has room."""
        return MARGIN + ROW * (len(self.scores) + 1)

    @property
    def chosen(self) -> dict[str, Size | None]:
        """The size that each score chooses, as {name of the score: size}; None where the score has no value."""
        return {score.kind.name: None if score.place is None else self.sizes[score.place] for score in self.scores}

    @property
    def agreeing(self) -> tuple[str, ...]:
        """The names of the scores that choose a size which the posterior cannot tell from the most probable one."""
        return tuple(name for name, size in self.chosen.items() if size in self.together)

    def table(self) -> pd.DataFrame:
        """Return a table with a row per size: `size`, `probability`, `log_evidence` (nats), and a column per score."""
        return pd.DataFrame(
            {
                "size": [size for (size,) in self.sizes],
                "probability": self.probability,
                "log_evidence": self.log_evidence,
                **{score.kind.name: score.values for score in self.scores},
            }
        )

    def choices(self) -> pd.DataFrame:
        """Return a table with a row per score, which says what size the score chooses.

        - score: the name of the score
        - wanted: "largest" or "smallest", the value that chooses the size
        - size: the size that the score chooses; <NA> if it has no value
        - undecided: True if the posterior cannot tell the chosen size from the most probable one
        - probability: the posterior probability of the chosen size
        - at_end: True if the chosen size is the first or the last size with a value
        - measures, source: what the score measures, and its source
        """
        rows = []
        for score in self.scores:
            place = score.place
            rows.append(
                {
                    "score": score.kind.name,
                    "wanted": "largest" if score.kind.largest else "smallest",
                    "size": pd.NA if place is None else self.sizes[place][0],
                    "undecided": place is not None and self.sizes[place] in self.together,
                    "probability": np.nan if place is None else float(self.probability[place]),
                    "at_end": score.at_end,
                    "measures": score.kind.measures,
                    "source": score.kind.source,
                }
            )
        return pd.DataFrame(rows).astype({"size": "Int64"})

    def describe(self) -> str:
        """Return the most probable size, and how many scores choose it or another size, in a sentence or two."""
        (best,) = self.best
        told = "apart from every other size tried"
        if len(self.together) > 1:
            told = f"the evidence cannot choose between {between_in_words(self.together)}"
        named = {name: size for name, size in self.chosen.items() if size is not None}
        others = [f"{name} {size[0]}" for name, size in named.items() if name not in self.agreeing]
        what = "one of these" if len(self.together) > 1 else f"{best} too"
        agree = f"{len(named) - len(others)} of {with_noun(len(named), 'scores')} name {what}"
        return (
            f"{with_noun(best, self.size_name)} {is_or_are(best)} most probable"
            f"{'; ' if len(self.together) > 1 else ', '}{told}. {agree}"
            f"{'; not so ' + ', '.join(others) if others else ''}."
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw a row for the posterior and for each score, and return the axes.

        Upwards is better. A dot marks the size that the score chooses. Sizes that the posterior does not rule out are
        shaded.

        ax: matplotlib axes; None makes a new figure.
        """
        return draw_captioned(ax, self.draw, height=self.height)

    def draw(self, axes: "Axes") -> Caption:
        """Draw a row for the posterior and for each score on existing axes, and return a caption without drawing it."""
        _draw_curves(self, axes)
        lay_out(axes)  # names take room, and the caption must know how much is left
        text = "Each score from its worst value to its best (upwards), a dot at the size that it names; shaded: what "
        return Caption(
            "What other scores name",
            f"{text}the posterior leaves open. Orange: a score names another. {self.describe()}",
        )

    def __str__(self) -> str:
        """Return the result in words, the table of choices, and what each score measures, as text."""
        table = self.choices()[["score", "wanted", "size", "undecided", "probability", "at_end"]]
        shown = table.round(3).to_string(index=False)
        measured = "\n".join(
            f"  {score.kind.name}: {score.kind.measures} ({score.kind.source})." for score in self.scores
        )
        return f"{self.describe()}\n\n{shown}\n\nWhat they measure:\n{measured}"


@dataclass(frozen=True)
class LikelihoodRatioTest:
    """The result of `SearchResult.likelihood_ratio_test`: can K components be rejected in favour of K + 1?

    | field | shape | meaning |
    |---|---|---|
    | `size` | | K, the number of components under the null hypothesis |
    | `statistic` | | 2 [log L(K + 1) − log L(K)] of the data, at least 0, with log L at the estimates of a fit, nats |
    | `simulated` | (sample,) | the same of tables drawn from the fit with K components; NaN where a fit failed |
    | `size_name` | | what sizes count, such as "components" |
    """

    size: int
    statistic: float
    simulated: Float[np.ndarray, " sample"]
    size_name: str

    @property
    def p_value(self) -> float:
        """An estimate of the probability of a statistic at least as large if the fit with K components is the truth.

        It is (1 + the number of simulated statistics at least as large) / (1 + the number of samples), and so never
        below 1 / (1 + the number of samples). A sample whose fit failed counts as one that is at least as large. Where
        the fit with K + 1 has no higher likelihood, it is 1.
        """
        smaller = np.sum(self.simulated < self.statistic)
        return float(1 + len(self.simulated) - smaller) / (1 + len(self.simulated))

    def describe(self) -> str:
        """Return the result in a sentence or two."""
        more, number = f"{self.size + 1} {self.size_name}", len(self.simulated)
        if not self.statistic:
            return f"{more} gain nothing in log-likelihood over {self.size}: nothing to test (p = 1)."
        failed = int(np.isnan(self.simulated).sum())
        as_large = number - int(np.sum(self.simulated < self.statistic))
        noted = f" {failed} of them had no fit and count as gaining as much." if failed else ""
        return (
            f"{more} gain {self.statistic:.1f} in twice the log-likelihood over {self.size}; {as_large} of {number} "
            f"tables drawn from the fit with {self.size} gain as much: p = {self.p_value:.3g}.{noted}"
        )

    __str__ = describe


# ── the picture ───────────────────────────────────────────────────────────────────────────────────────────────────────


ROW, MARGIN = 0.46, 1.8
"""The height of a row, and the space around all rows, in inches."""
HEIGHT = 0.72
"""The height of the curve in a row, as a share of the row."""


def _draw_curves(found: OtherScores, axes: "Axes") -> None:
    """Draw a curve over sizes in a row for the posterior and for each score, from its worst value to its best.

    A dot marks the best value, in another colour where the posterior rules its size out. NaN is left out. The sizes
    that the posterior does not rule out are shaded.
    """
    rows = {"posterior": found.probability}
    rows |= {score.kind.name: score.values if score.kind.largest else -score.values for score in found.scores}
    sizes, palette, where = found.sizes, palette_of(axes), SizeAxis.from_sizes(found.sizes)
    at = where.positions(sizes)
    for size in set(found.together) & set(sizes):
        axes.axvspan(*where.edges(size), color=palette.band, linewidth=0, zorder=0)
    for row, values in enumerate(rows.values()):
        known = np.isfinite(values)
        if not known.any():
            continue
        low, high = values[known].min(), values[known].max()
        height = (values - low) / (high - low) if high > low else np.where(known, 0.5, np.nan)
        y = row + HEIGHT * (0.5 - height)
        colour = palette.main if row == 0 else palette.faint
        axes.plot(at[known], y[known], "-", marker=".", markersize=3, color=colour, linewidth=1.2, zorder=2)
        best = int(np.flatnonzero(known)[np.argmax(values[known])])
        dot = palette.main if sizes[best] in found.together else palette.accent
        axes.plot(at[best], y[best], "o", color=dot, markersize=7, zorder=4)
    axes.set_yticks(range(len(rows)), [visible(name) for name in rows], parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    where.ticks(axes)
    axes.hlines(np.arange(len(rows) - 1) + 0.5, *axes.get_xlim(), color=palette.grid, linewidth=0.7, zorder=1)
    axes.grid(visible=False)
    axes.set_xlabel(f"number of {visible(found.size_name.replace('_', ' '))}", parse_math=False)
