"""The answer with less data: whether the most supported size stays the same from few units to many, or grows.

A unit is one observation of the model: a document or row.

No model is true, and exact evidence with enough data finds that out. Where clusters are not quite as the model says, it
asks for two or three components in the place of each. Fewer data cannot see such a small difference. So a posterior
given m of n units is coarsened: it accepts models whose distance from the truth is below about 1/m nats per unit.
Miller & Dunson (2019) do this with a power posterior, which raises the likelihood to m/n. Here m units are taken in
random orders, as Huggins & Miller (2023) do, and the logs of their evidence are averaged over the orders.

How much to coarsen is a choice that data cannot make. So the result shows all of it, and reads off one number. For
every m it finds the largest size that m units *support*, k with P(K ≥ k | m units) ≥ .95. This size climbs from 1. It
stays where further components would only mend the model. It climbs again when there are enough data to mend it with.
The size at which it stays for the longest stretch of log m is reported, like the longest bar of a persistence diagram.

This is not a probability that the size is true, and nothing is proved. The estimates are forward ones, which are low on
average. Their noise is averaged over the orders and not bounded: tenths of nats for mixtures of some hundred rows, and
nats for topics. `tests/benchmarks/README.md` shows how often the size was right where models were wrong on purpose.

The picture shows which sizes different numbers of units support.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int
from scipy.special import softmax

from lvsearch.files.plain_text import visible
from lvsearch.pictures.style import Caption, draw_captioned, palette_of
from lvsearch.sizing.sizes import SizePrior
from lvsearch.sizing.words import had_not_finished, is_or_are, sizes_in_words, with_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SUPPORTED = 0.95
"""Units support a size k if the probability of size k or more, given these units, is at least this number."""
SHARE = 0.9
"""The share of the range of log m (m units) that the sizes in `Robustness.together` hold together."""
RESAMPLED = 400
"""The number of bootstrap samples of the orders."""
ARRAYS = ("units", "log_evidence", "log_prior")
"""The names of the fields that are arrays."""


@dataclass(frozen=True)
class Robustness:
    """The result of `SearchResult.robustness`: the evidence of the first m units, for each m and in several orders.

    A unit is a document or row. m units support size k if P(K ≥ k | m units) ≥ 0.95. `size` is the answer, the size
    that is the largest supported one over the longest stretch of log m. `describe()` says it in words.

    | field | shape | meaning |
    |---|---|---|
    | `units` | (mark,) | numbers of units m, increasing; each stands for the stretch of log m up to the next |
    | `log_evidence` | (order, mark, size) | log p̂(the first m units of the order | size), nats |
    | `log_prior` | (size,) | log p(size) of sizes 1, 2, …, up to a constant, nats |
    | `n_units` | | the number of units of the data searched |
    | `unit_name`, `size_name` | | plural nouns, such as "rows" and "components" |
    | `unfinished` | | why the search had not finished when this was computed; None if it had |
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
        """The posterior probability of each size given m units, (numbers of units, sizes); rows sum to 1.

        The log evidence is averaged over the orders of the units.
        """
        return _posterior(self.log_evidence.mean(0), self.log_prior)

    @cached_property
    def supported(self) -> Int[np.ndarray, " mark"]:
        """The largest size k with P(K ≥ k | m units) ≥ 0.95, for each number of units m, (numbers of units,)."""
        return _largest_supported(self.probability)

    @cached_property
    def share(self) -> Float64[np.ndarray, " size"]:
        """The share of the range of log m in which each size is the largest supported one, (sizes,); they sum to 1.

        The share is averaged over bootstrap samples of the orders of the units.
        """
        return self._shares.mean(0)

    @property
    def size(self) -> int:
        """The answer: the size that is the largest supported one over the longest stretch of log m (m units)."""
        return int(np.argmax(self.share)) + 1

    @cached_property
    def confidence(self) -> float:
        """The share of bootstrap samples of the orders of the units in which `size` has the longest stretch.

        It is a confidence about the random orders, not about the data.
        """
        return float((self._shares.argmax(1) + 1 == self.size).mean())

    @cached_property
    def together(self) -> tuple[int, ...]:
        """The smallest set of sizes that are the largest supported ones over 90 % of the range of log m, increasing."""
        order = np.argsort(-self.share, kind="stable")
        enough = int(np.searchsorted(np.cumsum(self.share[order]), SHARE - 1e-9)) + 1
        return tuple(sorted((order[:enough] + 1).tolist()))

    @property
    def stretch(self) -> tuple[int, int] | None:
        """The ends of the longest range of numbers of units m at which `size` is the largest supported size.

        Supported means P(K ≥ size | m units) ≥ .95, with the log evidence averaged over the random orders of the units.
        At every m of the range that was looked at, `size` is the largest supported size. Ranges are compared by their
        length in log m. The value is None if there is no such m: `size` then won only in bootstrap samples of the
        orders.
        """
        runs = self._runs
        if not runs:
            return None
        first, end = max(runs, key=lambda run: self._widths[run[0] : run[1]].sum())
        return int(self.units[first]), int(self.units[end - 1])

    @property
    def grows(self) -> bool:
        """True if the largest number of units supports a larger size than `size`."""
        return bool(self.supported[-1] > self.size)

    @property
    def limited(self) -> bool:
        """True if the largest number of units supports the largest size that was tried, so that there may be more."""
        return bool(self.supported[-1] == len(self.log_prior))

    def describe(self) -> str:
        """Return the supported size and the numbers of units that support it, in a sentence or two.

        One more sentence follows if the search had not finished.
        """
        taken = int(self.units[-1])
        most = f"{taken:,}" if taken == self.n_units else f"{taken:,} of {self.n_units:,}"
        between = "{} to {}".format(*self.stretch) if self.stretch else "in most samples of the orders some"
        noun = with_noun(self.size, self.size_name)
        longest = (
            f"the longest of its {len(self._runs)} stretches, which are longer together than those of any other size"
            if len(self._runs) > 1
            else "the longest stretch"
        )
        held = f"{noun} {is_or_are(self.size)} what {between} {self.unit_name} support, {longest}"
        largest, tried = int(self.supported[-1]), ", the largest size that was tried" if self.limited else ""
        if self.grows:
            more = f"{'at least ' if self.limited else ''}{largest}{tried}"
            end = f"{most} support {more}: more {self.unit_name} ask for more, to mend the model perhaps."
        elif self.limited:
            end = f"{most} support {largest}{tried}: more may be supported."
        else:
            end = f"no more are supported by {most}."
        early = had_not_finished(self.unfinished)
        return f"{held}; {end}" + (f" {early[0].upper()}{early[1:]}." if early else "")

    def with_prior(self, prior: SizePrior) -> "Robustness":
        """Return a copy with the same evidence under another prior over sizes. Nothing is computed again.

        Raises ValueError for a prior that gives no size of this check any probability.
        """
        if not self.allows(prior):
            raise ValueError(
                f"got a prior that gives no probability to any size from 1 to {len(self.log_prior)}, the sizes of this "
                "check; expected some: search again with this prior, and ask robustness() of the new result"
            )
        return replace(self, log_prior=np.array([prior.log_pmf(size) for size in self._sizes]))

    def allows(self, prior: SizePrior) -> bool:
        """Return True if a prior over sizes gives some size of this check any probability."""
        return any(prior.log_pmf(size) > -np.inf for size in self._sizes)

    def under(self, prior: SizePrior) -> "Robustness":
        """Return a copy under another prior over sizes. Deprecated: it warns; call `with_prior` instead."""
        warnings.warn("Robustness.under is called Robustness.with_prior now", DeprecationWarning, stacklevel=2)
        return self.with_prior(prior)

    def table(self) -> pd.DataFrame:
        """Return a table with a row per number of units m.

        Columns are `units` (m), `supported` (the largest size that m units support), and the posterior probability of
        each size 1, 2, … given m units.
        """
        sizes = {size: self.probability[:, size - 1] for size in range(1, len(self.log_prior) + 1)}
        return pd.DataFrame({"units": self.units, "supported": self.supported, **sizes})

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the probability of each size given m units as shades, and the largest supported size as a line.

        ax: matplotlib axes; None makes a new figure.

        Returns the axes.
        """
        return draw_captioned(ax, self.draw)

    def draw(self, axes: "Axes") -> Caption:
        """Draw the probability of each size given m units on existing axes, and return a caption without drawing it."""
        _draw_shades(self, axes)
        text = (
            f"Shade: probability of each size given so many {self.unit_name}. Line: what they support "
            f"(probability {SUPPORTED:.0%}), thick where it is {self.size}. {self.describe()}"
        )
        noun = with_noun(self.size, self.size_name)
        return Caption(f"{noun} over the longest stretch of {self.unit_name}", text)

    def to_stored(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the result as JSON data and {name: array}, the two parts of a stored folder."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ARRAYS}, arrays

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Robustness":
        """Return the result that `to_stored` encoded. Raises KeyError and TypeError for anything else."""
        found = cls(**{name: np.asarray(arrays[name]) for name in ARRAYS}, **stored)
        shape = found.log_evidence.shape
        if len(shape) != 3 or not shape[0] or shape[1:] != (*found.units.shape, *found.log_prior.shape):
            raise TypeError(f"evidence of shape {shape} for {found.units.shape} marks, {found.log_prior.shape} sizes")
        if found.units[0] < 1 or np.any(np.diff(found.units) < 1) or np.isnan(found.log_evidence).any():
            raise TypeError("numbers of units that do not increase, or evidence that is no number")
        return found

    def __str__(self) -> str:
        """Return the result in words, with the sizes that hold 90 % of the range of log m."""
        sizes = sizes_in_words([(size,) for size in self.together])
        return f"{self.describe()} 90 % of the stretch of log {self.unit_name}: {sizes}."

    @property
    def _sizes(self) -> tuple[tuple[int], ...]:
        """The sizes that were tried: (1,), (2,) and so on."""
        return tuple((size,) for size in range(1, len(self.log_prior) + 1))

    @cached_property
    def _widths(self) -> Float64[np.ndarray, " mark"]:
        """The length in log m of the stretch of numbers of units that each entry of `units` stands for."""
        return np.diff(np.log(np.append(self.units, self.units[-1] + 1)))

    @cached_property
    def _runs(self) -> tuple[tuple[int, int], ...]:
        """The runs of places in `units` without a gap at which `size` is the largest supported size, as (first, end).

        The end is the place after the last one.
        """
        held = np.concatenate([[False], self.supported == self.size, [False]])
        changes = np.flatnonzero(np.diff(held)).tolist()
        return tuple(zip(changes[::2], changes[1::2], strict=True))

    @cached_property
    def _shares(self) -> Float64[np.ndarray, "sample size"]:
        """The share of the range of log m in which each size is the largest supported one, (bootstrap samples, sizes).

        Bootstrap samples are of the orders of the units.
        """
        widths = self._widths
        rng, n_orders = np.random.default_rng(0), len(self.log_evidence)
        found = np.zeros((RESAMPLED, len(self.log_prior)))
        for row in found:
            chosen = rng.integers(n_orders, size=n_orders)
            supported = _largest_supported(_posterior(self.log_evidence[chosen].mean(0), self.log_prior))
            np.add.at(row, supported - 1, widths)
        return found / widths.sum()


def _posterior(
    log_evidence: Float64[np.ndarray, "mark size"], log_prior: Float64[np.ndarray, " size"]
) -> Float64[np.ndarray, "mark size"]:
    """Return the posterior probability of each size given m units, (numbers of units, sizes); rows sum to 1.

    log_evidence: log p(the first m units | size), nats. log_prior: log p(size), nats, up to a constant.
    """
    return softmax(log_evidence + log_prior, axis=-1)


def _largest_supported(probability: Float64[np.ndarray, "mark size"]) -> Int[np.ndarray, " mark"]:
    """Return the largest size k with P(K ≥ k | m units) ≥ 0.95 (`SUPPORTED`), for each number of units m.

    probability: of each size given m units; rows sum to 1.
    """
    at_least = np.cumsum(probability[:, ::-1], axis=1)[:, ::-1]
    at_least[:, 0] = 1.0  # exactly, without rounding errors
    return (at_least >= SUPPORTED).sum(1)


# ── the picture ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _draw_shades(found: Robustness, axes: "Axes") -> None:
    """Draw the probability of each size given m units as shades, and the largest supported size as a line.

    The line is thick where it is the size that is supported over the longest stretch.
    """
    from matplotlib.colors import LinearSegmentedColormap

    palette, units, supported, n_sizes = palette_of(axes), found.units, found.supported, len(found.log_prior)
    shades = LinearSegmentedColormap.from_list("probability", [palette.background, palette.band, palette.main])
    edges = np.append(units, units[-1] * 1.05)
    # the square root makes sizes with a probability of a few hundredths visible
    axes.pcolormesh(
        edges, np.arange(n_sizes + 1) + 0.5, np.sqrt(found.probability.T), cmap=shades, vmin=0.0, vmax=1.3, linewidth=0
    )
    axes.step(edges, np.append(supported, supported[-1]), where="post", color=palette.ink, linewidth=1.4, zorder=4)
    held = np.where(supported == found.size, float(found.size), np.nan)
    axes.step(
        edges,
        np.append(held, held[-1]),
        where="post",
        color=palette.accent,
        linewidth=4.5,
        zorder=5,
        solid_capstyle="butt",
    )
    axes.grid(visible=False)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_yticks(np.arange(1, n_sizes + 1))
    axes.set_ylim(0.5, n_sizes + 0.5)
    axes.set_xlim(units[0], edges[-1])
    axes.set_xlabel(f"number of {visible(found.unit_name)} taken", parse_math=False)
    axes.set_ylabel(f"number of {visible(found.size_name)}", parse_math=False)
