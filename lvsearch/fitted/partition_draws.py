"""Find which rows belong together, from draws of partitions: probabilities of pairs, and one partition for them all.

A partition puts every row into one cluster. Draws of the posterior of partitions have different numbers of clusters,
and their clusters have no names that could be compared. Two questions do not depend on names:

- How probable is it that two rows are in one cluster? It is the share of the draws in which they are (`coclustering`).
- Which partition is closest to the draws on average? It minimises the posterior expectation of a loss between two
  partitions (`closest_partition`). Around it, the smallest ball that holds 95 % of the draws says how sure it is.

With n rows, of which n_k are in cluster k of one partition, m_l in cluster l of the other, and n_kl in both, the losses
are

    VI     = [Σ_k f(n_k) + Σ_l f(m_l) − 2 Σ_kl f(n_kl)] / n,               f(x) = x log₂ x,      in bits
    Binder = [Σ_k f(n_k) + Σ_l f(m_l) − 2 Σ_kl f(n_kl)] / (n (n − 1)),     f(x) = x².

VI is the variation of information (Meilă 2007), and at most log₂ n. Binder's loss is the share of the pairs that are
together in one partition but not in the other. It likes to split off single rows, which VI does less (Wade & Ghahramani
2018).

Source: Wade & Ghahramani (2018), *Bayesian cluster analysis: point estimation and credible balls*, §3 and §4; Dahl,
Johnson & Müller (2022), *Search algorithms and loss functions for Bayesian clustering*, for the search row by row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.models.plain_arguments import one_of
from lvsearch.pictures.style import Caption, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 5000
"""The most rows of a table of pairs; with 5,000 it takes 200 MB."""
HELD = 0.95
"""The posterior probability of the credible ball."""
CANDIDATES = 32
"""The number of draws that are tried as beginnings of the search for the closest partition."""
CLIMBS = 4
"""The number of the best beginnings from which the search goes on row by row."""
MOST_PASSES = 50
"""The most passes over all rows of one such search; it ends before if no row moves."""
SEARCHED_LABELS, FEWEST_SEARCHED = 400_000, 100
"""The search for the closest partition looks at so many labels of draws: of 4,000 rows at 100 draws, evenly spaced. It
looks at so many draws at least. The expected loss and the ball are of all draws.
"""
MOST_DRAWN_ROWS = 1000
"""The most rows in a picture of pairs; of more rows some are drawn, evenly spaced."""
MOST_TREE_ROWS = 2000
"""The most rows of which a tree of clusters is made, whose cuts are beginnings too."""


NOT_SETTLED = "Not an answer yet: the chains do not agree, or are not precise enough. So far: "
"""The beginning of what is said of draws of chains that have not settled."""


class PartitionLoss(NamedTuple):
    """A loss between two partitions of n rows: [Σ f(n_k) + Σ f(m_l) − 2 Σ f(n_kl)] / `divisor`(n).

    | field | meaning |
    |---|---|
    | `name` | what it is called in words |
    | `function` | f, of an array of numbers of rows |
    | `divisor` | of the number of rows n |
    | `in_words` | (an amount of it, the number of rows n) -> the amount in words |
    """

    name: str
    function: Callable[[np.ndarray], np.ndarray]
    divisor: Callable[[int], float]
    in_words: Callable[[float, int], str]

    def distances(
        self, labels: Int[np.ndarray, " row"], draws: Int[np.ndarray, "draw row"]
    ) -> Float[np.ndarray, " draw"]:
        """Return the loss between one partition and each draw, (draw,).

        labels: the cluster of each row, numbered from 0. draws: the cluster of each row in each draw.
        """
        n_clusters, n_places = int(labels.max()) + 1, int(draws.max()) + 1
        own = self.function(np.bincount(labels).astype(float)).sum()
        found = np.empty(len(draws))
        for number, draw in enumerate(draws):
            both = np.bincount(labels * n_places + draw, minlength=n_clusters * n_places).astype(float)
            others = self.function(both.reshape(n_clusters, n_places).sum(0)).sum()
            found[number] = own + others - 2 * self.function(both).sum()
        return np.maximum(found, 0.0) / self.divisor(len(labels))


LOSSES = {
    "vi": PartitionLoss(
        "variation of information",
        lambda x: x * np.log2(np.maximum(x, 1.0)),
        float,
        lambda amount, n: f"{amount:.2f} of {np.log2(n):.1f} bits",
    ),
    "binder": PartitionLoss(
        "Binder's loss",
        np.square,
        lambda n: float(max(n * (n - 1), 1)),
        lambda amount, n: f"{100 * amount:.1f} % of the pairs",
    ),
}
"""The losses between partitions, by the name that callers give."""


@dataclass(frozen=True, repr=False, eq=False)
class Partition:
    """The partition that is closest to draws of the posterior on average, and how far the draws lie from it.

    | field | shape | meaning |
    |---|---|---|
    | `labels` | (row,) | the cluster of each row; 0 is the largest cluster |
    | `shares` | (row, cluster) | how often a row is with a row of the cluster, on average over its rows and the draws |
    | `loss` | | "vi" or "binder" |
    | `expected_loss` | | the average loss between this partition and a draw, in bits, or as a share of the pairs |
    | `radius` | | the loss within which 95 % of the draws lie: the radius of the credible ball, in the same unit |
    | `fewest` | (row,) | of the draws in the ball with the fewest clusters, the one farthest from `labels` |
    | `most` | (row,) | of the draws in the ball with the most clusters, the one farthest from `labels` |
    | `farthest` | (row,) | the draw in the ball that is farthest from `labels` |
    | `draws` | | the number of draws |
    | `searched` | | the number of draws, evenly spaced among all, with which the partition was searched for |
    | `is_settled` | | whether the chains agree and are precise enough; if not, the description begins by saying so |

    A row does not count among the rows of its own cluster. If it is alone there, its share is how often it is alone.
    `labels`, `fewest`, `most` and `farthest` are series with the names of the rows, and `shares` a table with them.
    """

    labels: pd.Series
    shares: pd.DataFrame
    loss: str
    expected_loss: float
    radius: float
    fewest: pd.Series
    most: pd.Series
    farthest: pd.Series
    draws: int
    searched: int
    is_settled: bool = True

    @property
    def sizes(self) -> list[int]:
        """The number of rows in each cluster, the largest first."""
        return self.labels.value_counts().sort_index().tolist()

    @property
    def certainty(self) -> pd.Series:
        """The probability that a row is with another row of its cluster, on average over these, as a series.

        It is low for a row between clusters, and for all rows of a cluster that many draws split in two.
        """
        own = self.shares.to_numpy()[np.arange(len(self.labels)), self.labels.to_numpy()]
        return pd.Series(own, self.labels.index, name="certainty")

    def table(self) -> pd.DataFrame:
        """Return the cluster of each row and its second choice, as a table with a row for each row of the data.

        The columns are `cluster`, `certainty`, `second` (the other cluster whose rows it is with most often) and
        `second_share` (how probable that is, on average over its rows). With a single cluster there is no second.
        """
        columns = {"cluster": self.labels, "certainty": self.certainty}
        if len(self.sizes) > 1:
            others = self.shares.to_numpy().copy()
            others[np.arange(len(others)), self.labels.to_numpy()] = -1.0
            columns |= {"second": others.argmax(axis=1), "second_share": others.max(axis=1)}
        return pd.DataFrame(columns, index=self.labels.index)

    def describe(self) -> str:
        """Return the partition in one or two sentences."""
        loss, sizes = LOSSES[self.loss], self.sizes
        shown = ", ".join(map(str, sizes[:8])) + (", …" if len(sizes) > 8 else "")
        rows = "rows" if sum(sizes) > 1 else "row"
        fewest, most = (len(np.unique(each)) for each in (self.fewest, self.most))
        between = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        told = "" if self.is_settled else NOT_SETTLED
        some = f" It was searched for with {self.searched:,} of them." if self.searched < self.draws else ""
        return (
            f"{told}{len(sizes)} {'clusters' if len(sizes) > 1 else 'cluster'} of {shown} {rows}. 95 % of "
            f"{self.draws:,} draws differ from this partition by at most {loss.in_words(self.radius, sum(sizes))} "
            f"({loss.name}); these draws have {between} clusters.{some}"
        )

    __repr__ = describe


def coclustering(
    draws: Int[np.ndarray, "draw row"], index: pd.Index, rows: Sequence[Any] | None = None
) -> pd.DataFrame:
    """Return how probable it is that two rows are in one cluster, as a table (row, row) with 1 on its diagonal.

    draws: the cluster of each row in each draw of the posterior.
    index: the names of the rows.
    rows: names of the rows to compare; by default all of them.

    Raises ValueError for more than 5,000 rows, and for unknown or repeated names.
    """
    if rows is not None:
        index, draws = _chosen(rows, index, draws)
    n_rows = draws.shape[1]
    if n_rows > MOST_ROWS:
        raise ValueError(
            f"got {n_rows:,} rows, expected at most {MOST_ROWS:,}: a table of pairs would take {8e-9 * n_rows**2:.1f} "
            "GB. Name some of them: rows=…"
        )
    together = np.zeros((n_rows, n_rows), np.uint32)
    for draw in draws:
        together += draw[:, None] == draw
    return pd.DataFrame(together / len(draws), index=index, columns=index)


def closest_partition(draws: Int[np.ndarray, "draw row"], index: pd.Index, loss: str = "vi") -> Partition:
    """Return the partition with the smallest expected loss under draws of the posterior, and its credible ball.

    It is searched for from the best draws and the best cuts of a tree of clusters. From each of these, one row after
    another goes to the cluster where the expected loss is smallest, until none moves.

    draws: the cluster of each row in each draw, numbered from 0.
    index: the names of the rows.
    loss: "vi" or "binder".

    Raises ValueError for another loss.
    """
    measure = LOSSES[one_of("loss", loss, tuple(LOSSES))]
    looked_at = min(len(draws), max(FEWEST_SEARCHED, SEARCHED_LABELS // draws.shape[1]))
    some = draws[np.unique(np.linspace(0, len(draws) - 1, looked_at).astype(int))]
    begun = sorted(_beginnings(some), key=lambda each: measure.distances(each, some).mean())
    climbed = [_moved_row_by_row(labels, some, measure) for labels in begun[:CLIMBS]]
    labels = _largest_first(min(climbed, key=lambda each: measure.distances(each, draws).mean()))

    # the ball is the smallest that holds so many draws
    far = measure.distances(labels, draws)
    radius = float(np.sort(far)[math.ceil(HELD * len(draws)) - 1])
    numbers = np.array([len(np.unique(draw)) for draw in draws])
    inside = np.flatnonzero(far <= radius)

    def clusters(of_row: Int[np.ndarray, " row"]) -> pd.Series:
        """Return the clusters of all rows as a series, the largest 0."""
        return pd.Series(_largest_first(of_row), index, name="cluster")

    return Partition(
        labels=clusters(labels),
        shares=pd.DataFrame(_shares(labels, draws), index, pd.RangeIndex(int(labels.max()) + 1, name="cluster")),
        loss=loss,
        expected_loss=float(far.mean()),
        radius=radius,
        fewest=clusters(draws[max(inside, key=lambda s: (-numbers[s], far[s]))]),
        most=clusters(draws[max(inside, key=lambda s: (numbers[s], far[s]))]),
        farthest=clusters(draws[max(inside, key=lambda s: far[s])]),
        draws=len(draws),
        searched=len(some),
    )


def draw_coclustering(draws: Int[np.ndarray, "draw row"], found: Partition, axes: "Axes") -> Caption:
    """Draw how probable it is that two rows are together as shaded squares, and return a caption.

    Rows are ordered by their cluster in the partition. Within it, rows that are often together stand side by side.
    Lines separate the clusters.

    draws: the cluster of each row in each draw. found: the partition. axes: matplotlib axes to draw on.
    """
    from matplotlib.colors import LinearSegmentedColormap

    palette, labels = palette_of(axes), found.labels.to_numpy()
    order = np.lexsort((-found.certainty.to_numpy(), labels))
    n_rows = len(order)
    if n_rows > MOST_DRAWN_ROWS:
        order = order[np.linspace(0, n_rows - 1, MOST_DRAWN_ROWS).astype(int)]
    together = coclustering(draws[:, order], pd.RangeIndex(len(order))).to_numpy()
    moved = _alike_side_by_side(together, labels[order])
    order, together = order[moved], together[np.ix_(moved, moved)]
    shades = LinearSegmentedColormap.from_list("together", [palette.background, palette.band, palette.main])
    shown = axes.imshow(together, cmap=shades, vmin=0.0, vmax=1.0, interpolation="nearest")
    ends = np.flatnonzero(np.diff(labels[order])) + 0.5
    for end in ends:
        axes.axhline(end, color=palette.ink, linewidth=0.7)
        axes.axvline(end, color=palette.ink, linewidth=0.7)
    bounds = np.array([-0.5, *ends, len(order) - 0.5])
    wide = np.diff(bounds) > 0.03 * len(order)  # narrower clusters have no room for a number
    middles = (bounds[:-1] + bounds[1:])[wide] / 2
    names = [str(number) for number in np.unique(labels[order])[wide]]
    axes.set_xticks(middles, names)
    axes.set_yticks(middles, names)
    axes.set_xlabel("rows by cluster, those often together side by side")
    axes.set_ylabel("rows by cluster")
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(True)
    bar = axes.figure.colorbar(shown, ax=axes)
    bar.set_label("probability of being together", color=palette.ink)
    bar.ax.tick_params(labelsize=10, colors=palette.muted)
    bar.outline.set_edgecolor(palette.faint)
    some = f" {MOST_DRAWN_ROWS:,} of {n_rows:,} rows are drawn." if n_rows > MOST_DRAWN_ROWS else ""
    return Caption("How probable it is that two rows are together", found.describe() + some)


def _alike_side_by_side(
    together: Float[np.ndarray, "row row"], labels: Int[np.ndarray, " row"]
) -> Int[np.ndarray, " row"]:
    """Return an order of the rows in which those of a cluster that are often together stand side by side, (row,).

    Within each cluster it is that of the leaves of a tree (average linkage).

    together: the probability that two rows are together. labels: the cluster of each row, increasing.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage  # imported here: it takes a tenth of a second
    from scipy.spatial.distance import squareform

    parts = []
    for cluster in np.unique(labels):
        members = np.flatnonzero(labels == cluster)
        if len(members) > 2:
            apart = squareform(1 - together[np.ix_(members, members)], checks=False)
            members = members[leaves_list(linkage(apart, "average"))]
        parts.append(members)
    return np.concatenate(parts)


def _chosen(
    rows: Sequence[Any], index: pd.Index, draws: Int[np.ndarray, "draw row"]
) -> tuple[pd.Index, Int[np.ndarray, "draw chosen"]]:
    """Return (the names of some rows, the draws of these rows). Raises ValueError for unknown and repeated names."""
    names = pd.Index(rows)
    places = index.get_indexer_for(names)
    unknown = names[places < 0] if len(places) == len(names) else names[:0]
    if len(unknown) or len(places) != len(names) or not names.is_unique:
        strange = f"unknown: {list(unknown[:3])}" if len(unknown) else "some name is there twice"
        raise ValueError(f"got rows with names that do not choose one row each ({strange}), expected names of rows")
    return names, draws[:, places]


def _beginnings(draws: Int[np.ndarray, "draw row"]) -> list[Int[np.ndarray, " row"]]:
    """Return partitions from which to search: some draws, evenly spaced, and cuts of a tree of clusters.

    The tree joins rows by how often they are together on average; each cut has as many clusters as some draw.
    """
    chosen = np.unique(np.linspace(0, len(draws) - 1, CANDIDATES).astype(int))
    begun = [by_appearance(draws[s]) for s in chosen]
    n_rows = draws.shape[1]
    if not 1 < n_rows <= MOST_TREE_ROWS:
        return begun
    from scipy.cluster.hierarchy import fcluster, linkage  # imported here: it takes a tenth of a second
    from scipy.spatial.distance import squareform

    apart = 1 - coclustering(draws, pd.RangeIndex(n_rows)).to_numpy()
    tree = linkage(squareform(apart, checks=False), "average")
    numbers = {len(np.unique(draw)) for draw in draws}
    return [*begun, *(by_appearance(fcluster(tree, number, "maxclust")) for number in sorted(numbers))]


def _moved_row_by_row(
    labels: Int[np.ndarray, " row"], draws: Int[np.ndarray, "draw row"], loss: PartitionLoss
) -> Int[np.ndarray, " row"]:
    """Return the partition after each row went, in turn, where the expected loss is smallest, until none moves.

    A row may begin a cluster of its own while there is one without rows; there is one more than any draw has.
    """
    n_draws, n_rows = draws.shape
    n_places = max(int(labels.max()), int(draws.max())) + 2
    labels, each = labels.copy(), np.arange(n_draws)
    step = np.diff(loss.function(np.arange(n_rows + 1.0)))  # f(x + 1) − f(x)
    counts = np.bincount(labels, minlength=n_places)
    both = np.zeros((n_places, n_draws, int(draws.max()) + 1), np.int64)
    for draw in range(n_draws):
        np.add.at(both[:, draw], (labels, draws[draw]), 1)
    for _ in range(MOST_PASSES):
        moved = False
        for row in range(n_rows):
            old, theirs = labels[row], draws[:, row]
            counts[old] -= 1
            both[old, each, theirs] -= 1
            # what the loss gains where the row joins each cluster
            gained = step[counts] - 2 * step[both[:, each, theirs]].mean(1)
            new = int(np.argmin(gained))
            new = old if gained[old] <= gained[new] + 1e-9 else new
            counts[new] += 1
            both[new, each, theirs] += 1
            labels[row], moved = new, moved or new != old
        if not moved:
            break
    return by_appearance(labels)


def _shares(labels: Int[np.ndarray, " row"], draws: Int[np.ndarray, "draw row"]) -> Float[np.ndarray, "row cluster"]:
    """Return how often each row is with the rows of each cluster, on average over these and the draws, (row, cluster).

    A row does not count among those of its own cluster. If it is alone there, it is the share of the draws in which it
    is alone.
    """
    n_rows, n_clusters = len(labels), int(labels.max()) + 1
    own, each = np.eye(n_clusters, dtype=bool)[labels], np.arange(n_rows)
    others = np.bincount(labels) - own  # the rows of each cluster, without the row itself
    found = np.zeros((n_rows, n_clusters))
    for draw in draws:
        n_places = int(draw.max()) + 1
        both = np.bincount(draw * n_clusters + labels, minlength=n_places * n_clusters).reshape(n_places, n_clusters)
        shares = (both[draw] - own) / np.maximum(others, 1)
        alone = others[each, labels] == 0
        shares[each[alone], labels[alone]] = np.bincount(draw)[draw][alone] == 1
        found += shares
    return found / len(draws)


def _largest_first(labels: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """Return the labels with clusters numbered by their size, the largest 0; of equal ones the first row decides."""
    numbered = by_appearance(labels)
    return np.argsort(np.argsort(-np.bincount(numbered), kind="stable"))[numbered]
