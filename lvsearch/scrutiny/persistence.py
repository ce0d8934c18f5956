"""Which components exist: how often each one of a fit comes back in fits that differ in what chance decides.

The same search on the same data may give 8, 14 and 12 components. Which of them are the same? Each component of one
fit, the reference, is looked for in other fits: at other sizes, from other starts, of data whose units were drawn anew.
Components are matched one to one; one *exists* in another fit if its partner there is more than half of the way from
chance to being the same (`lvsearch.fitted.similarity`). How often it does is a number for each component.

What it does not say: that a component is true. A wrong model may cut the same cluster in two in the same way in every
sample of the data, and both halves persist then.

References: Hennig (2007), *Cluster-wise assessment of cluster stability*, whose coefficient and bootstrap these are;
Hennig (2008), *Dissolution point and isolation robustness*, on the threshold ½.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lvsearch.fitted.similarity import HALF
from lvsearch.pictures.captions import Caption
from lvsearch.scrutiny.persistence_plot import Similarities, draw_persistence, plot_persistence
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import had_not_finished, sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Source = Literal["sizes", "starts", "samples"]
PROBABILITY = 0.9
LEVEL = 0.9
"""Of the interval beside a probability."""


@dataclass(frozen=True)
class Recurrence:
    """One other fit, and how much of each component of the reference is in it.

    | field | meaning |
    |---|---|
    | `source` | what sets it apart: another of the "sizes", of the "starts", or of "samples", where all of it changes |
    | `size` | of this fit |
    | `weight` | its share among the fits of one source |
    | `members` | for each component of the reference: similarity of its partner by members, 0 … 1; 0 without one |
    | `parameters` | the same by parameters; empty where components have none to compare |
    """

    source: Source
    size: Size
    weight: float
    members: tuple[float, ...]
    parameters: tuple[float, ...]


@dataclass(frozen=True)
class Persistence:
    """What `SearchResult.persistence` found.

    | field | meaning |
    |---|---|
    | `size`, `size_names` | of the reference fit |
    | `names` | what people may call each of its components |
    | `amounts` | observations in each |
    | `noun` | what those are: "row", "token" |
    | `recurrences` | the other fits |
    | `failed` | how many more were not a number |
    | `threshold` | the similarity above which a component exists in another fit |
    | `seed` | of starts and samples |
    | `unfinished` | why the search had not come to its end when this was asked; None where it had |
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
        """Of each component's partner in each fit of one source: 0 is chance, 1 the same; NaN where not known.

        on: "members" or "parameters". ValueError for another word.
        """
        if on not in ("members", "parameters"):
            raise ValueError(f"got on={on!r}, expected 'members' or 'parameters'")
        unknown = (float("nan"),) * len(self.names)
        of = [r for r in self.recurrences if r.source == source]
        rows = [(r.members if on == "members" else r.parameters) or unknown for r in of]
        return np.array(rows, np.float64).reshape(len(rows), len(self.names))

    def exists(self, source: Source = "samples", on: str = "members") -> Bool[np.ndarray, "fit component"]:
        """Whether each component exists in each fit of one source."""
        return self.similarities(source, on) > self.threshold

    def probability(self, on: str = "members") -> Float[np.ndarray, " component"]:
        """That each component exists in the fit of one more sample: (k + ½) / (n + 1) if it does in k of n, the mean
        under Jeffreys' prior. NaN without samples."""
        found = self.exists("samples", on)
        if not len(found) or np.isnan(self.similarities("samples", on)).any():
            return np.full(len(self.names), np.nan)
        return (found.sum(axis=0) + 0.5) / (len(found) + 1)

    def table(self) -> pd.DataFrame:
        """A row for each component of the reference fit, those that persist first.

        `name`, `rows` (`tokens`…: how many are in it); `probability` that it exists in one more sample, `lower` and
        `upper` ends that hold it with probability 0.9 as far as so few samples can say; `similarity`, the median of its
        partners', and `worst`; `sizes`: the share of the posterior over sizes at whose fits it exists; `starts`: of the
        fits from scratch; `parameters`: probability by parameters, and `parameter_similarity`, where 0 is the nearest
        other component of the reference. NaN where there are no such fits.
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
        """The rows of `table` that exist with at least this probability; n samples show (n + ½) / (n + 1) at most.
        ValueError unless it is between 0 and 1."""
        if not 0 <= probability <= 1:
            raise ValueError(f"got probability={probability}, expected a number from 0 to 1")
        table = self.table()
        return table.loc[table["probability"].to_numpy() >= probability]

    def describe(self) -> str:
        """How many come back, and what that was asked of: a sentence without a full stop."""
        samples = [r for r in self.recurrences if r.source == "samples"]
        probability, many = self.probability(), len(self.names)
        lasting = int((probability >= PROBABILITY).sum())
        fleeting = int((probability < HALF).sum())
        text = (
            f"{lasting} of {many} {self.size_names[0]} {_come(lasting)} back with probability {PROBABILITY:g} or more: "
            f"looked for in fits of {len(samples)} samples of the data, each from a start of its own, "
            f"{self._at_sizes()}"
        )
        if fleeting:
            text += f"; {fleeting} {_come(fleeting)} back in fewer than half of them"
        if self.failed:
            text += f"; {self.failed} fit(s) were no number and are left out"
        if self.unfinished is not None:
            text += f"; {had_not_finished(self.unfinished)}"
        return text

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The similarity of each component's partner in every other fit, a row for each. Returns the axes."""
        return plot_persistence(self.table(), self._drawn(), self.threshold, self.size_names[0], ax)

    def draw(self, axes: "Axes") -> Caption:
        """`plot` on axes as they are; the caption is returned, not written."""
        return draw_persistence(self.table(), self._drawn(), self.threshold, self.size_names[0], axes)

    def summary(self) -> str:
        """`describe` and the table as text."""
        return f"{self.describe()}.\n{self.table().round(3).to_string()}"

    def __str__(self) -> str:
        return self.summary()

    def to_json(self) -> dict[str, Any]:
        """As settings for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Persistence":
        """The inverse of `to_json`. Raises KeyError and TypeError for anything else."""
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

    def _drawn(self) -> Similarities:
        return Similarities(*(self.similarities(source) for source in ("samples", "starts", "sizes")))

    def _at_sizes(self) -> str:
        sizes = {r.size for r in self.recurrences if r.source == "samples"}
        drawn = "size" if len(sizes) == 1 else "sizes drawn from the posterior,"
        return f"at {drawn} {sizes_in_words(sorted(sizes)) if sizes else 'none'}"

    def _share(self, source: Source) -> Float[np.ndarray, " component"]:
        weight = np.array([r.weight for r in self.recurrences if r.source == source])
        if not weight.sum() > 0:
            return np.full(len(self.names), np.nan)
        return weight @ self.exists(source) / weight.sum()

    def _interval(self) -> tuple[Float[np.ndarray, " component"], Float[np.ndarray, " component"]]:
        """Of the probability: 5 % and 95 % points under Jeffreys' prior."""
        from scipy.special import betaincinv

        found = self.exists()
        if not len(found):
            return np.full(len(self.names), np.nan), np.full(len(self.names), np.nan)
        times = found.sum(axis=0)
        a, b, tail = times + 0.5, len(found) - times + 0.5, (1 - LEVEL) / 2
        return betaincinv(a, b, tail), betaincinv(a, b, 1 - tail)


def _come(many: int) -> str:
    return "comes" if many == 1 else "come"
