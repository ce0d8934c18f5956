"""The class `FittedPopulations`: a fitted admixture model with ancestries of individuals and frequencies of alleles."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.comparison.similarity import word_affinity
from lvsearch.data.corpus import Corpus
from lvsearch.files.plain_text import visible
from lvsearch.fitted.model import FittedModel, comparable_fit
from lvsearch.models.admixture import Admixture
from lvsearch.pictures.style import Caption, draw_captioned, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POPULATION = "population"


@dataclass(frozen=True, repr=False)
class FittedPopulations(FittedModel[Admixture]):
    """A fitted admixture model, whose individuals inherit from several populations.

    `transform` returns each individual's expected shares of the populations, (individuals, populations).
    """

    _useful_calls: ClassVar[tuple[str, ...]] = ("ancestry()", "frequencies()", "plot_ancestry()", "transform(new)")

    def ancestry(self, data: Any = None) -> pd.DataFrame:
        """Return the expected share of each population in each individual's genome, (individuals, populations).

        Rows sum to 1.

        data: the individuals; by default the training data.
        """
        individuals = self._data_as(Corpus, data)
        shares = np.asarray(self._describe(individuals).representation, np.float64)
        names = individuals.document_names
        index = pd.RangeIndex(len(shares), name="individual") if names is None else pd.Index(names, name="individual")
        return pd.DataFrame(shares, index=index, columns=pd.RangeIndex(shares.shape[1], name=POPULATION))

    def frequencies(self) -> pd.DataFrame:
        """Return the expected frequency of each allele in each population, as a table (alleles × populations).

        Rows are indexed by (locus, allele). The rows of one locus sum to 1 in every column.
        """
        table = self.table("frequencies").astype(np.float64).T
        pairs = [str(word).rpartition("=")[::2] for word in table.index]
        table.index = pd.MultiIndex.from_tuples(pairs, names=["locus", "allele"])
        return table

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "population other"]:
        """Return how alike each population of this fit is to each population of another fit, from 0 to 1.

        The number is the Bhattacharyya coefficient Σ √(p q) over the alleles of one locus, averaged over loci. p and q
        are the allele frequencies in the two populations.

        other: a fit of the same model to individuals with the same loci and alleles.

        Returns (populations of this fit, populations of `other`).
        """
        other = comparable_fit(FittedPopulations, other, self.training)
        first, second = (each.table("frequencies").to_numpy(np.float64) for each in (self, other))
        return word_affinity(first, second) / len(self.model.alleles)

    def plot_ancestry(self, ax: "Axes | None" = None) -> "Axes":
        """Draw a bar for each training individual, divided into its shares of the populations, and return the axes.

        Individuals with the same label are side by side. Within a label they are ordered by the population that they
        have most of, and by that share.

        ax: the axes to draw on; None for a new figure.
        """
        return draw_captioned(ax, self.draw_ancestry, height=3.2)

    def draw_ancestry(self, axes: "Axes") -> Caption:
        """Draw the bars of `plot_ancestry` on existing axes, and return their caption without drawing it."""
        individuals, shares = self._data_as(Corpus, None), self.ancestry().to_numpy()
        labels = individuals.document_labels
        named = np.array(labels if labels is not None else [""] * len(shares))
        leading = shares.argmax(1)
        order = np.lexsort((-shares[np.arange(len(shares)), leading], leading, named))
        below, palette = np.zeros(len(shares)), palette_of(axes)
        for population, column in enumerate(shares[order].T):
            colour = palette.colour_of_part(population)
            axes.bar(np.arange(len(shares)), column, bottom=below, width=1.0, color=colour)
            below += column
        if labels is not None:
            names = sorted(set(labels))
            places = [np.flatnonzero(named[order] == name) for name in names]
            axes.set_xticks([place.mean() for place in places], list(map(visible, names)), parse_math=False)
            for place in places[1:]:
                axes.axvline(place[0] - 0.5, color=palette.background, linewidth=1.5)
        else:
            axes.set_xticks([])
        axes.set_xlim(-0.5, len(shares) - 0.5)
        axes.set_ylim(0, 1)
        axes.set_ylabel("share of the genome")
        return Caption(
            f"Ancestry of {len(shares):,} individuals in {shares.shape[1]} populations",
            "A column for each individual, its colours the populations; expected shares under the fit",
        )
