"""Fitted populations: the ancestry of individuals and the frequencies of alleles, for people."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.comparison.similarity import word_affinity
from lvsearch.data.corpus import Corpus
from lvsearch.files.plain_text import visible
from lvsearch.fitted.model import FittedModel
from lvsearch.models.admixture import Admixture
from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import dressed, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POPULATION = "population"


@dataclass(frozen=True)
class FittedPopulations(FittedModel):
    """Admixed populations at one size. `transform` gives the expected ancestry, (individuals, populations)."""

    @property
    def model(self) -> Admixture:
        """The model with the hyper-parameters of this fit."""
        model = self.estimate.model
        assert isinstance(model, Admixture)
        return model

    def ancestry(self, data: Any = None) -> pd.DataFrame:
        """Return the expected share of each individual's genome from each population; rows sum to 1.

        data: by default the training data.
        """
        individuals = self._individuals(data)
        shares = np.asarray(self._describe(individuals).representation, np.float64)
        names = individuals.document_names
        index = pd.RangeIndex(len(shares), name="individual") if names is None else pd.Index(names, name="individual")
        return pd.DataFrame(shares, index=index, columns=pd.RangeIndex(shares.shape[1], name=POPULATION))

    def frequencies(self) -> pd.DataFrame:
        """Return the expected frequency of each allele in each population.

        Rows are (locus, allele). The rows of a locus sum to 1 in every column.
        """
        table = self.table("frequencies").astype(np.float64).T
        pairs = [str(word).rpartition("=")[::2] for word in table.index]
        table.index = pd.MultiIndex.from_tuples(pairs, names=["locus", "allele"])
        return table

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "population other"]:
        """Return Σ √(p q) over the alleles of a locus, averaged over loci, for each population of this fit and of
        another.
        """
        assert isinstance(other, FittedPopulations)
        first, second = (each.table("frequencies").to_numpy(np.float64) for each in (self, other))
        return word_affinity(first, second) / len(self.model.alleles)

    def plot_ancestry(self, ax: "Axes | None" = None) -> "Axes":
        """Draw a column for each training individual, divided into its shares of the populations, and return the axes.

        Individuals of one named population are side by side, in the order of their largest shares.
        """
        axes = dressed(ax, height=3.2)
        write_caption(axes, self.draw_ancestry(axes))
        return axes

    def draw_ancestry(self, axes: "Axes") -> Caption:
        """Draw the picture of `plot_ancestry` on existing axes, and return its caption, which is not written."""
        individuals, shares = self._individuals(None), self.ancestry().to_numpy()
        labels = individuals.document_labels
        named = np.array(labels if labels is not None else [""] * len(shares))
        leading = shares.argmax(1)
        order = np.lexsort((-shares[np.arange(len(shares)), leading], leading, named))
        below, palette = np.zeros(len(shares)), palette_of(axes)
        for population, column in enumerate(shares[order].T):
            colour = palette.of_part(population)
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

    def _individuals(self, data: Any) -> Corpus:
        """Return the data as a `Corpus` like the training data."""
        individuals = self.training if data is None else self.training.like_this(data)
        assert isinstance(individuals, Corpus)
        return individuals
