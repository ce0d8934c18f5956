"""How the answer depends on how much data it is asked of: a size that holds from few units to many, or one that grows.

No model is true, and exact evidence of enough data finds that out: where clusters are not quite what the model says,
it asks for two or three of its own in the place of each. Fewer data cannot see so small a difference. A posterior given
m of n units is coarsened: it takes models for true whose distance from what made the data is below about 1/m nats a
unit (Miller & Dunson 2019, whose power posterior raises the likelihood to m/n; here m units are taken, in random
orders, as Huggins & Miller 2023 do, and the logarithms of their evidence averaged over the orders).

How much to coarsen is a choice that no data can make. So all of it is shown, and one number is read off: for every m
the largest size that m units *support*, k with P(K ≥ k | m units) ≥ .95. It climbs from 1, stays where further
components would only mend the model, and climbs again when there are data enough to mend it with. The size at which it
stays for the longest stretch of log m is the one reported, like the longest bar of a persistence diagram. What is
not claimed: a probability that this size is true; nor is anything proved. The estimates are forward ones, low on
average, their noise averaged over the orders and not bounded: it is tenths of nats for mixtures of some hundred rows,
and nats for topics. How often it was, where models were wrong on purpose, is in
`tests/benchmarks/README.md`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int
from scipy.special import softmax

from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import dressed
from lvsearch.scrutiny.robustness_plot import draw_robustness
from lvsearch.sizing.sizes import SizePrior
from lvsearch.sizing.words import counted, had_not_finished, is_or_are, sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUPPORTED = 0.95
"""Probability that there are so many at least, from which on m units support it."""
SHARE = 0.9
"""Of the stretch of log m, that the sizes of `together` hold between them."""
RESAMPLED = 400
"""Bootstrap samples of the orders."""
ARRAYS = ("units", "log_evidence", "log_prior")
"""Fields that are arrays."""


@dataclass(frozen=True)
class Robustness:
    """What `SearchResult.robustness` found.

    | field | shape | meaning |
    |---|---|---|
    | `units` | (mark,) | numbers of units m, increasing; each stands for the stretch of log m up to the next |
    | `log_evidence` | (order, mark, size) | log p̂(the first m units of the order | size), nats |
    | `log_prior` | (size,) | of sizes 1, 2, …, up to a constant |
    | `n_units` | | units of the data searched |
    | `unit_name`, `size_name` | | such as "rows" and "components" |
    | `unfinished` | | why the search had not come to its end when this was asked; None where it had |
    """

    units: Int[np.ndarray, " mark"]
    log_evidence: Float64[np.ndarray, "order mark size"]
    log_prior: Float64[np.ndarray, " size"]
    n_units: int
    unit_name: str
    size_name: str
    unfinished: str | None = None

    @cached_property
    def probability(self) -> Float64[np.ndarray, "mark size"]:
        """Of each size, given m units: from the logarithms of the evidence, averaged over the orders."""
        return _posterior(self.log_evidence.mean(0), self.log_prior)

    @cached_property
    def supported(self) -> Int[np.ndarray, " mark"]:
        """The largest size that m units support."""
        return _supported(self.probability)

    @cached_property
    def share(self) -> Float64[np.ndarray, " size"]:
        """Of the stretch of log m, where each size is supported: averaged over bootstrap samples of the orders."""
        return self._shares.mean(0)

    @property
    def size(self) -> int:
        """The size supported over the longest stretch."""
        return int(np.argmax(self.share)) + 1

    @cached_property
    def confidence(self) -> float:
        """Share of bootstrap samples of the orders in which `size` has the longest stretch: of the orders, not of the
        data."""
        return float((self._shares.argmax(1) + 1 == self.size).mean())

    @cached_property
    def together(self) -> tuple[int, ...]:
        """The fewest sizes that hold 90 % of the stretch between them."""
        order = np.argsort(-self.share, kind="stable")
        enough = int(np.searchsorted(np.cumsum(self.share[order]), SHARE - 1e-9)) + 1
        return tuple(sorted((order[:enough] + 1).tolist()))

    @property
    def stretch(self) -> tuple[int, int] | None:
        """The least and the largest m at which `size` is the one supported; None where that is so in samples of the
        orders alone, and not in their average."""
        held = self.units[self.supported == self.size]
        return (int(held[0]), int(held[-1])) if len(held) else None

    @property
    def grows(self) -> bool:
        """Whether all units taken support more than `size`."""
        return bool(self.supported[-1] > self.size)

    @property
    def limited(self) -> bool:
        """Whether the largest size looked at is the one supported of all units taken: there may be more."""
        return bool(self.supported[-1] == len(self.log_prior))

    def describe(self) -> str:
        """The answer in a sentence or two, and one more where it is of an unfinished search."""
        taken = int(self.units[-1])
        most = f"{taken:,}" if taken == self.n_units else f"{taken:,} of {self.n_units:,}"
        between = "{} to {}".format(*self.stretch) if self.stretch else "in most samples of the orders some"
        noun = counted(self.size, self.size_name)
        held = f"{noun} {is_or_are(self.size)} what {between} {self.unit_name} support, the longest stretch"
        if self.grows:
            more = f"{'at least ' if self.limited else ''}{int(self.supported[-1])}"
            end = f"{most} support {more}: more {self.unit_name} ask for more, to mend the model perhaps."
        else:
            end = f"no more are supported by {most}."
        early = had_not_finished(self.unfinished)
        return f"{held}; {end}" + (f" {early[0].upper()}{early[1:]}." if early else "")

    def under(self, prior: SizePrior) -> "Robustness":
        """The same evidence under another prior over sizes."""
        log_prior = np.array([prior.log_pmf((size,)) for size in range(1, len(self.log_prior) + 1)])
        return replace(self, log_prior=log_prior)

    def table(self) -> pd.DataFrame:
        """A row per number of units: units, supported, and a column with the probability of each size."""
        sizes = {size: self.probability[:, size - 1] for size in range(1, len(self.log_prior) + 1)}
        return pd.DataFrame({"units": self.units, "supported": self.supported, **sizes})

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Probability of each size given so many units, shaded, and the largest size that they support, as a line."""
        axes = dressed(ax)
        write_caption(axes, self.draw(axes))
        return axes

    def draw(self, axes: "Axes") -> Caption:
        """`plot` on axes that are there, without the words, which are returned."""
        draw_robustness(self.units, self.probability, self.supported, self.size, (self.unit_name, self.size_name), axes)
        text = (
            f"Shade: probability of each size given so many {self.unit_name}. Line: what they support "
            f"(probability {SUPPORTED:.0%}), thick where it is {self.size}. {self.describe()}"
        )
        noun = counted(self.size, self.size_name)
        return Caption(f"{noun} over the longest stretch of {self.unit_name}", text)

    def to_stored(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """As settings for a file, and arrays beside them."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ARRAYS}, arrays

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Robustness":
        """The inverse of `to_stored`. Raises KeyError and TypeError for anything else."""
        found = cls(**{name: np.asarray(arrays[name]) for name in ARRAYS}, **stored)
        shape = found.log_evidence.shape
        if len(shape) != 3 or not shape[0] or shape[1:] != (*found.units.shape, *found.log_prior.shape):
            raise TypeError(f"evidence of shape {shape} for {found.units.shape} marks, {found.log_prior.shape} sizes")
        if found.units[0] < 1 or np.any(np.diff(found.units) < 1) or np.isnan(found.log_evidence).any():
            raise TypeError("numbers of units that do not increase, or evidence that is no number")
        return found

    def __str__(self) -> str:
        sizes = sizes_in_words([(size,) for size in self.together])
        return f"{self.describe()} 90 % of the stretch of log {self.unit_name}: {sizes}."

    @cached_property
    def _shares(self) -> Float64[np.ndarray, "sample size"]:
        widths = np.diff(np.log(np.append(self.units, self.units[-1] + 1)))
        rng, n_orders = np.random.default_rng(0), len(self.log_evidence)
        found = np.zeros((RESAMPLED, len(self.log_prior)))
        for row in found:
            chosen = rng.integers(n_orders, size=n_orders)
            supported = _supported(_posterior(self.log_evidence[chosen].mean(0), self.log_prior))
            np.add.at(row, supported - 1, widths)
        return found / widths.sum()


def _posterior(
    log_evidence: Float64[np.ndarray, "mark size"], log_prior: Float64[np.ndarray, " size"]
) -> Float64[np.ndarray, "mark size"]:
    return softmax(log_evidence + log_prior, axis=-1)


def _supported(probability: Float64[np.ndarray, "mark size"]) -> Int[np.ndarray, " mark"]:
    at_least = np.cumsum(probability[:, ::-1], axis=1)[:, ::-1]
    at_least[:, 0] = 1.0  # but for rounding
    return (at_least >= SUPPORTED).sum(1)
