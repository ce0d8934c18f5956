"""The persistence of components: how often each component of one fit comes back in fits that differ by chance.

The same search on the same data may give 8, 14 and 12 components. This module says which of them are the same. Each
component of one fit, the reference, is looked for in other fits: at other sizes, from other starts, and of data whose
units were drawn anew. Components are matched one to one. A component *exists* in another fit if the similarity of its
partner there is above ½, where 0 is chance and 1 is the same (`lvsearch.comparison.similarity`). How often it exists is
a number for each component. The picture has a row per component, with the similarity of its partners in other fits.

A component that persists need not be true. A wrong model may divide the same cluster in the same way in every sample of
the data, and both halves then persist.

References: Hennig (2007), *Cluster-wise assessment of cluster stability*, for the coefficient and the bootstrap; Hennig
(2008), *Dissolution point and isolation robustness*, for the threshold ½.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lvsearch.comparison.similarity import HALF
from lvsearch.files.plain_text import visible
from lvsearch.models.plain_arguments import one_of, real_number
from lvsearch.pictures.style import Caption, draw_captioned, palette_of
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import had_not_finished, sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_ROWS = 40
"""The largest number of components drawn; those that persist least are left out."""
ROW, MARGIN, LEAST = 0.42, 1.7, 3.2
"""The height of a row, the space around all rows, and the smallest height of a picture, in inches."""
LONGEST, LINES = 30, 2
"""The largest numbers of characters in a line of a name, and of its lines."""
SPREAD = 0.22
"""Half the height over which the dots of a row are spread, as a share of the row."""
TEXT_AT, RIGHT = 1.045, 1.3
"""The position of the probabilities, and the right end of the picture, on the axis of similarities."""


class Similarities(NamedTuple):
    """The similarity of each component to its partner in other fits, from 0 (chance) to 1 (the same).

    samples: in fits of resampled data.
    starts: in fits of the same data from other starts.
    sizes: in fits of the same data at other sizes.
    """

    samples: Float[np.ndarray, "sample component"]
    starts: Float[np.ndarray, "start component"]
    sizes: Float[np.ndarray, "size component"]


def draw_persistence(table: pd.DataFrame, found: Similarities, threshold: float, kind: str, axes: "Axes") -> Caption:
    """Draw the similarity of each component's partners on existing axes, and return a caption without drawing it.

    table: the table of a `Persistence`, with a row per component in the order in which they are drawn.
    found: the similarities in the other fits.
    threshold: the similarity above which a component exists in another fit; the area above it is shaded.
    kind: the plural noun for components, such as "topics".
    """
    palette = palette_of(axes)
    order = table.index.to_numpy()[:MOST_ROWS]
    axes.axvspan(threshold, 1.02, color=palette.band, linewidth=0, zorder=0)
    axes.hlines(np.arange(len(order) - 1) + 0.5, -0.02, RIGHT, color=palette.grid, linewidth=0.7, zorder=1)
    for row, component in enumerate(order):
        # other starts below the middle of the row and other sizes above it, since the axis runs downwards
        colour = palette.colour_of_part(int(component))
        for others, marker, size, below in ((found.starts, "|", 6.0, 0.3), (found.sizes, "D", 4.0, -0.3)):
            values = others[:, component]
            axes.plot(
                values,
                np.full(len(values), row + below),
                marker,
                color=palette.muted,
                markersize=size,
                markerfacecolor="none",
                zorder=2,
            )
        values = np.sort(found.samples[:, component])
        axes.plot(values, row + _spread(len(values)), "o", color=colour, markersize=4.5, alpha=0.65, zorder=3)
        at = table.loc[component]
        axes.annotate(
            f"{at['probability']:.2f} ({at['lower']:.2f}–{at['upper']:.2f})",
            (TEXT_AT, row),
            va="center",
            fontsize=8.5,
            color=palette.ink,
            parse_math=False,
        )
    axes.set_xlim(-0.02, RIGHT)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_xlabel("similarity of the partner: 0 chance, 1 the same")
    axes.xaxis.set_label_coords(0.5 / RIGHT, -0.12 if len(order) < 8 else -0.06)
    axes.set_yticks(range(len(order)), [_label(int(k), str(table.loc[k, "name"])) for k in order])
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
        tick.set_fontsize(8.5)
    left_out = f"; {len(table) - len(order)} more are left out" if len(table) > len(order) else ""
    return Caption(
        f"Which of {len(table)} {kind} come back",
        "dots: fits of samples of the data, at sizes drawn from the posterior; | other starts, ◇ other sizes of the "
        "same data. Where it is shaded a component counts as the same; beside it the probability of that in one more "
        f"sample, with its 90 % interval{left_out}",
    )


def _spread(n: int) -> Float[np.ndarray, " dot"]:
    """Return vertical offsets for n dots of one row, (n,), as shares of the row; neighbouring dots get different ones.

    Every third dot has the same offset.
    """
    return (np.arange(n) % 3 - 1) * SPREAD / 2


def _label(number: int, name: str) -> str:
    """Return the number and the name of a component, broken into at most two lines of 30 characters."""
    lines = textwrap.wrap(visible(f"{number}  {name}"), LONGEST, drop_whitespace=False)
    return "\n".join(line.strip() for line in lines[:LINES]) + ("…" if len(lines) > LINES else "")


Source = Literal["sizes", "starts", "samples"]
PROBABILITY = 0.9
"""The probability of coming back from which a component counts as stable."""
LEVEL = 0.9
"""The probability that the interval of a component's probability holds."""


@dataclass(frozen=True)
class Recurrence:
    """One other fit, and how similar each component of the reference fit is to its partner in the other fit.

    | field | meaning |
    |---|---|
    | `source` | what differs: "sizes", "starts", or "samples" (resampled data, where size and start differ too) |
    | `size` | the size of the other fit |
    | `weight` | the share of the other fit among the fits of the same source |
    | `members` | similarity of each component's partner by the observations in both, 0 … 1; 0 without a partner |
    | `parameters` | similarity of each component's partner by parameters; empty if there are none to compare |
    """

    source: Source
    size: Size
    weight: float
    members: tuple[float, ...]
    parameters: tuple[float, ...]


@dataclass(frozen=True)
class Persistence:
    """The result of `SearchResult.persistence`: how often each component of one fit comes back in other fits.

    `table()` has a row per component, and `stable()` the rows of the components that come back reliably.

    | field | meaning |
    |---|---|
    | `size`, `size_names` | the size of the reference fit, and the plural nouns that it counts |
    | `names` | a name for each component of the reference fit |
    | `amounts` | the number of observations in each component |
    | `noun` | the word for an observation: "row", "token" |
    | `recurrences` | the other fits |
    | `failed` | how many other fits failed |
    | `threshold` | the similarity above which a component exists in another fit |
    | `seed` | the seed of starts and samples |
    | `unfinished` | why the search had not finished when this was computed; None if it had |
    """

    size: Size
    size_names: tuple[str, ...]
    names: tuple[str, ...]
    amounts: tuple[float, ...]
    noun: str
    recurrences: tuple[Recurrence, ...]
    failed: int
    threshold: float
    seed: int
    unfinished: str | None = None

    def similarities(self, source: Source = "samples", on: str = "members") -> Float[np.ndarray, "fit component"]:
        """Return the similarity of each component to its partner in each other fit, (fits, components).

        0 is chance and 1 is the same component. It is NaN where the similarity is not known.

        source: the fits: "samples" (of resampled data), "starts" (from other starts) or "sizes" (at other sizes).
        on: what is compared: "members" (the observations in a component) or "parameters".

        Raises ValueError for another value of `on`.
        """
        one_of("on", on, ("members", "parameters"))
        unknown = (float("nan"),) * len(self.names)
        fits = [r for r in self.recurrences if r.source == source]
        rows = [(r.members if on == "members" else r.parameters) or unknown for r in fits]
        return np.array(rows, np.float64).reshape(len(rows), len(self.names))

    def exists(self, source: Source = "samples", on: str = "members") -> Bool[np.ndarray, "fit component"]:
        """Return True where a component exists in another fit, (fits, components): its partner is similar enough.

        source: the fits: "samples" (of resampled data), "starts" (from other starts) or "sizes" (at other sizes).
        on: what is compared: "members" (the observations in a component) or "parameters".
        """
        return self.similarities(source, on) > self.threshold

    def probability(self, on: str = "members") -> Float[np.ndarray, " component"]:
        """Return the probability that each component exists in the fit of one more resampled data set, (components,).

        If it exists in k of n samples, this is (k + ½) / (n + 1), the mean under Jeffreys' prior. NaN without samples.

        on: what is compared: "members" (the observations in a component) or "parameters".
        """
        found = self.exists("samples", on)
        if not len(found) or np.isnan(self.similarities("samples", on)).any():
            return np.full(len(self.names), np.nan)
        return (found.sum(axis=0) + 0.5) / (len(found) + 1)

    def table(self) -> pd.DataFrame:
        """Return a table with a row for each component of the reference fit, the most persistent first.

        A component exists in another fit if its partner there is similar enough. A column without fits is NaN.

        - `name`, and `rows` (or `tokens`, …), the number of observations in the component.
        - `probability` that it exists in one more resampled data set, with `lower` and `upper`, its 90 % interval.
        - `similarity`, the median over samples of its partner's similarity, and `worst`, the smallest.
        - `sizes`: the share of the posterior over sizes at whose fits it exists.
        - `starts`: the share of fits from scratch in which it exists.
        - `parameters`: the probability if components are compared by parameters.
        - `parameter_similarity`: the median, where 0 is as similar as the nearest other component of the reference.
        """
        members, affinities = self.similarities(), self.similarities(on="parameters")
        lower, upper = self._interval()
        nothing = np.full(len(self.names), np.nan)
        table = pd.DataFrame(
            {
                "name": list(self.names),
                f"{self.noun}s": np.round(self.amounts, 1),
                "probability": self.probability(),
                "lower": lower,
                "upper": upper,
                "similarity": np.median(members, axis=0) if len(members) else nothing,
                "worst": members.min(axis=0) if len(members) else nothing,
                "sizes": self._share("sizes"),
                "starts": self._share("starts"),
                "parameters": self.probability("parameters"),
                "parameter_similarity": np.median(affinities, axis=0) if len(affinities) else nothing,
            },
            index=pd.RangeIndex(len(self.names), name="component"),
        )
        return table.sort_values(["probability", "similarity"], ascending=False, kind="stable")

    def stable(self, probability: float | int = PROBABILITY) -> pd.DataFrame:
        """Return the rows of `table` for components that exist in a resampled data set with at least this probability.

        With n samples the probability is (n + ½) / (n + 1) at most. Raises ValueError unless it is between 0 and 1.
        """
        probability = real_number("probability", probability, least=0, most=1)
        table = self.table()
        return table.loc[table["probability"].to_numpy() >= probability]

    def describe(self) -> str:
        """Return how many components come back, and in which fits, as a sentence without a full stop."""
        samples = [r for r in self.recurrences if r.source == "samples"]
        probability, many = self.probability(), len(self.names)
        lasting = int((probability >= PROBABILITY).sum())
        fleeting = int((probability < HALF).sum())
        highest = (len(samples) + 0.5) / (len(samples) + 1)  # the probability of a component in every sample
        certain = f"with probability {PROBABILITY:g} or more"
        if samples and highest < PROBABILITY:
            lasting = int((probability > highest - 1e-9).sum())
            certain = f"in every sample, but samples are too few for a probability of {PROBABILITY:g} (bootstraps=)"
        text = (
            f"{lasting} of {many} {self.size_names[0]} {_come(lasting)} back {certain}: "
            f"looked for in fits of {len(samples)} samples of the data, each from a start of its own, "
            f"{self._at_sizes()}"
        )
        if fleeting:
            text += f"; {fleeting} {_come(fleeting)} back in fewer than half of them"
        if self.failed:
            text += f"; {self.failed} fit(s) failed and are left out"
        if self.unfinished is not None:
            text += f"; {had_not_finished(self.unfinished)}"
        return text

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the similarity of each component's partner in every other fit, in a row per component; return the axes.

        ax: matplotlib axes; None makes a new figure.
        """
        rows = min(len(self.names), MOST_ROWS)
        return draw_captioned(ax, self.draw, height=max(LEAST, MARGIN + ROW * rows))

    def draw(self, axes: "Axes") -> Caption:
        """Draw the similarity of each component's partners on existing axes; return a caption without drawing it."""
        found = Similarities(*(self.similarities(source) for source in ("samples", "starts", "sizes")))
        return draw_persistence(self.table(), found, self.threshold, self.size_names[0], axes)

    def summary(self) -> str:
        """Return the result in words, followed by the table of components as text."""
        return f"{self.describe()}.\n{self.table().round(3).to_string()}"

    def __str__(self) -> str:
        """Return the result in words, followed by the table of components as text."""
        return self.summary()

    def to_json(self) -> dict[str, Any]:
        """Return all fields of the result as JSON data, from which `from_json` restores it."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Persistence":
        """Return the result that `to_json` encoded. Raises KeyError and TypeError for anything else."""
        recurrences = tuple(
            Recurrence(
                entry["source"],
                tuple(entry["size"]),
                entry["weight"],
                tuple(entry["members"]),
                tuple(entry["parameters"]),
            )
            for entry in stored["recurrences"]
        )
        many = len(stored["names"])
        if any(len(r.members) != many or len(r.parameters) not in (0, many) for r in recurrences):
            raise TypeError(f"similarities of another number of components than {many}")
        values = {field.name: stored[field.name] for field in fields(cls) if field.name != "unfinished"}
        values["unfinished"] = stored.get("unfinished")  # which older folders do not know
        for name in ("size", "size_names", "names", "amounts"):
            values[name] = tuple(values[name])
        return cls(**{**values, "recurrences": recurrences})

    def _at_sizes(self) -> str:
        """Return the sizes of the fits of resampled data in words, such as "at size 3"."""
        sizes = {r.size for r in self.recurrences if r.source == "samples"}
        drawn = "size" if len(sizes) == 1 else "sizes drawn from the posterior,"
        return f"at {drawn} {sizes_in_words(sorted(sizes)) if sizes else 'none'}"

    def _share(self, source: Source) -> Float[np.ndarray, " component"]:
        """Return the weighted share of fits in which each component exists, (components,); NaN without such fits.

        source: the fits: "samples" (of resampled data), "starts" (from other starts) or "sizes" (at other sizes).
        """
        weight = np.array([r.weight for r in self.recurrences if r.source == source])
        if not weight.sum() > 0:
            return np.full(len(self.names), np.nan)
        return weight @ self.exists(source) / weight.sum()

    def _interval(self) -> tuple[Float[np.ndarray, " component"], Float[np.ndarray, " component"]]:
        """Return the 5 % and 95 % points of the probability that each component exists in one more sample.

        Both arrays are (components,). The prior is Jeffreys'; without samples the points are NaN.
        """
        from scipy.special import betaincinv

        found = self.exists()
        if not len(found):
            return np.full(len(self.names), np.nan), np.full(len(self.names), np.nan)
        times = found.sum(axis=0)
        a, b, tail = times + 0.5, len(found) - times + 0.5, (1 - LEVEL) / 2
        return betaincinv(a, b, tail), betaincinv(a, b, 1 - tail)


def _come(many: int) -> str:
    """Return the verb that agrees with a number: "comes" for 1, and "come" for other numbers."""
    return "comes" if many == 1 else "come"
