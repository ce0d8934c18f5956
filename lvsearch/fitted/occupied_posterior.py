"""`lv.occupied`: how many parts of a process the data occupy, from chains of its sampler; and such answers in one table
or picture with those of a size search.

A Dirichlet-process mixture has no size; what corresponds to "how many components" is how many some row is in. A finite
mixture of size K has K components, occupied or not: footnote 1 of Chiang & Poole. Their tables can be read together, as
long as one says which is which.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from lvsearch.data.kinds import data_for
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.diagnostics import bulk_effective_sample_size, rhat
from lvsearch.inference.mixtures.occupied import OccupiedCounts, occupied_along, occupied_over_chains
from lvsearch.inference.processes import LogPrior, occupied_chains, occupied_sampler
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import whole_number
from lvsearch.pictures.style import dressed, palette_of
from lvsearch.progress import progress_bar
from lvsearch.seeds import checked_seed
from lvsearch.sizing.posterior import format_probability
from lvsearch.sizing.words import counted, is_or_are, sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Z_95 = 1.6448536269514722
"""The 5 % and 95 % points of a Gaussian, in standard deviations."""
SHOWN = 1e-3
"""Numbers whose 95 % point is lower are left outside a picture."""
MOST_RHAT, FEWEST_EFFECTIVE = 1.05, 100
"""R̂ above which, and effective draws of all chains below which, chains have not given an answer."""


@dataclass(frozen=True, repr=False, eq=False)
class OccupiedPosterior:
    """A posterior over how many parts of a process some data are in, from chains of an exact sampler.

    Errors are from the spread within and between several chains, in effective draws; of one chain, by batch means,
    which know nothing of what it did not reach.

    | field | shape | meaning |
    |---|---|---|
    | `names` | | what is counted: ("occupied components",); for trees nodes at level 1, 2, …, the root at level 0 |
    | `counts` | (chain, sweep, name) | after every sweep, those left out too |
    | `burn_in` | | sweeps of each chain left out at its beginning |
    | `log_prior` | a (count,) per name | log p(1), log p(2), … before any data, nats; None where it is not known |
    """

    names: tuple[str, ...]
    counts: Int[np.ndarray, "chain sweep name"]
    burn_in: int
    log_prior: tuple[LogPrior, ...]

    def posterior(self) -> pd.DataFrame:
        """As `SearchResult.posterior("estimate")`: a row per number, in the column `size`.

        `standard_error` is that of the probability; `probability_lower` and `probability_upper` are its 5 % and 95 %
        points. There is no evidence per size: those columns are NaN. Where several things are counted a first column,
        `counted`, names them.
        """
        each = self.tables()
        if len(each) == 1:
            return each[0]
        return pd.concat(dict(zip(self.names, each, strict=True)), names=["counted"]).reset_index(0)

    def tables(self) -> list[pd.DataFrame]:
        """The table of each number, in the order of `names`."""
        return [occupied_table(*pair) for pair in zip(self._frequencies(), self.log_prior, strict=True)]

    @property
    def rhat(self) -> float:
        """Rank-normalised split R̂ (Vehtari et al. 2021), the largest of the numbers: near 1 where chains agree."""
        return max(rhat(draws) for draws in self._kept())

    @property
    def effective_sample_size(self) -> float:
        """Bulk effective draws of all chains together (Vehtari et al. 2021), the fewest of the numbers that vary; NaN
        where none does."""
        each = [bulk_effective_sample_size(draws) for draws in self._kept()]
        return min((size for size in each if not np.isnan(size)), default=float("nan"))

    @property
    def agree(self) -> bool:
        """Whether the chains, begun far apart, have come to the same answer and have moved often enough to say it; of
        one chain, whether its two halves have."""
        return self.rhat <= MOST_RHAT and not self.effective_sample_size < FEWEST_EFFECTIVE

    def describe(self) -> str:
        """A sentence for each number: the most probable one, its standard error, and the fewest that hold 95 %; first
        of all, where it is so, that the chains do not agree, and that there is only one."""
        found = " ".join(
            f"{in_words(name, frequencies)}." for name, frequencies in zip(self.names, self._frequencies(), strict=True)
        )
        one = len(self.counts) == 1
        if one:
            found = f"{found} From one chain, which knows nothing of what it did not reach: chains=4 compares several."
        if self.agree:
            return found
        apart = "One chain does not agree with itself" if one else "The chains do not agree"
        subject = apart if self.rhat > MOST_RHAT else "Too few effective draws"
        return (
            f"{subject}: not an answer yet (R-hat {self.rhat:.2f}, expected at most {MOST_RHAT}; "
            f"{self.effective_sample_size:.0f} effective draws, expected at least {FEWEST_EFFECTIVE}). Ask for more "
            f"draws. So far: {found}"
        )

    def __repr__(self) -> str:
        chains, sweeps, _ = self.counts.shape
        effective = self.effective_sample_size
        worth = "which never change" if np.isnan(effective) else f"{effective:.0f} effective draws"
        return (
            f"{self.describe()}\n  {chains} chains from different starts, {sweeps - self.burn_in} draws of each after "
            f"{self.burn_in} sweeps that are left out; R-hat {self.rhat:.3f}, {worth}"
        )

    def plot_posterior(self, ax: "Axes | None" = None) -> "Axes":
        """Bars of probability for each number, with the 5 % to 95 % range of the error; returns the axes."""
        axes = plot_side_by_side(dict(zip(self.names, self.tables(), strict=True)), ax)
        axes.set_xlabel("number")
        if not self.agree:
            axes.set_title("The chains do not agree: not an answer yet")
        return axes

    def _kept(self) -> list[Int[np.ndarray, "chain draw"]]:
        return [self.counts[:, self.burn_in :, i] for i in range(len(self.names))]

    def _frequencies(self) -> list[OccupiedCounts]:
        if len(self.counts) == 1:
            return [occupied_along(draws[0]) for draws in self._kept()]
        return [occupied_over_chains(self.counts[..., i], self.burn_in) for i in range(len(self.names))]


def occupied(
    model: Model, data: Any, *, chains: int = 4, draws: int = 1000, seed: int = 0, progress: bool = True
) -> OccupiedPosterior:
    """How many, for a process: the posterior over how many of its parts the data occupy, from its exact sampler.

    model: one whose `size` is a truncation and no size: `lv.models.DPMixture`, `HDP`, `HDPMixture`, `HLDA`. data: as
    for `lv.search`. chains: from starts far apart, few parts and many; errors come from all of them. draws: kept of
    each chain, one a sweep; as many sweeps before them are left out. progress: a bar, a step for each chain.

    Raises ValueError for a model of another kind, bad data, fewer than 2 chains or 4 draws.
    """
    if not isinstance(model, Model) or not model.process:
        raise ValueError(
            f"got {model!r}, expected a model of a process, such as lv.models.DPMixture(): others have sizes, and "
            "lv.search(model, data, prior=…) says how many"
        )
    chains = whole_number("chains", chains, least=2)  # which are compared
    draws = whole_number("draws", draws, least=4)
    seed = checked_seed(seed)
    prepare_programs()
    sampler = occupied_sampler(model, data_for(model, data).dataset())
    with progress_bar(chains, f"chains of {2 * draws} sweeps", "chain", wanted=progress) as bar:
        counts = occupied_chains(sampler, jax.random.key(seed), chains=chains, sweeps=2 * draws, done=bar.update)
    return OccupiedPosterior(sampler.names, counts, draws, sampler.log_prior(int(counts.max())))


def in_words(name: str, counts: OccupiedCounts) -> str:
    """Such as "3 occupied components are most probable: 0.480 ± 0.020; 2–4 hold 95 %", without a full stop."""
    order = np.argsort(-counts.probability, kind="stable")
    enough = int(np.searchsorted(np.cumsum(counts.probability[order]), 0.95 - 1e-12)) + 1
    best = int(order[0])
    number = int(counts.sizes[best])
    held = sizes_in_words([(int(size),) for size in counts.sizes[order[:enough]]])
    probability = format_probability(float(counts.probability[best]))
    return (
        f"{counted(number, name)} {is_or_are(number)} most probable: {probability} "
        f"± {_error_in_words(float(counts.standard_error[best]))}; {held} hold{'s' if enough == 1 else ''} 95 %"
    )


def _error_in_words(error: float) -> str:
    return f"{error:.3f}" if error >= 5e-4 else "<0.001"


def occupied_table(counts: OccupiedCounts, log_prior: Float[np.ndarray, " blocks"] | None = None) -> pd.DataFrame:
    """As `SearchResult.posterior("estimate")`: a row per number of occupied components.

    log_prior: log p(K) for K = 1, 2, …; None where it is not known. `standard_error` is that of the probability, by
    Monte Carlo, and `probability_lower`, `probability_upper` follow from it; there is no evidence per size, so those
    columns are NaN."""
    prior = np.full(len(counts.sizes), np.nan)
    known = np.zeros(0) if log_prior is None else log_prior
    within = (counts.sizes >= 1) & (counts.sizes <= len(known))
    prior[within] = known[counts.sizes[within] - 1]
    reach = Z_95 * counts.standard_error
    return pd.DataFrame(
        {
            "size": counts.sizes,
            "log_prior": prior,
            "log_evidence_lower": np.nan,
            "log_evidence_upper": np.nan,
            "log_evidence": np.nan,
            "standard_error": counts.standard_error,
            "probability": counts.probability,
            "probability_lower": np.clip(counts.probability - reach, 0, 1),
            "probability_upper": np.clip(counts.probability + reach, 0, 1),
        }
    )


def side_by_side(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Probabilities of each number of components, a column per table, 0 where a table does not have it.

    tables: name -> `SearchResult.posterior()` of one size variable, or `OccupiedPosterior.posterior()`.
    """
    columns = {name: table.set_index("size")["probability"] for name, table in tables.items()}
    return pd.DataFrame(columns).sort_index().fillna(0.0)


def plot_side_by_side(tables: Mapping[str, pd.DataFrame], ax: "Axes | None" = None) -> "Axes":
    """Bars of probability for each number of components, one colour per table, with the 5 % to 95 % range of each."""
    from matplotlib.ticker import MaxNLocator

    axes = dressed(ax, 6.0, 3.4)
    palette, width = palette_of(axes), 0.8 / max(1, len(tables))
    for place, (name, table) in enumerate(tables.items()):
        shown = table[table["probability_upper"] > SHOWN]
        at = shown["size"] + (place - (len(tables) - 1) / 2) * width
        axes.bar(at, shown["probability"], 0.9 * width, label=name, color=palette.of_part(place), alpha=0.75)
        ends = shown["probability_lower"], shown["probability_upper"]
        axes.vlines(at, *ends, color=palette.ink, linewidth=1.2)
    axes.set_xlabel("components (finite: size; process: occupied)")
    axes.set_ylabel("probability")
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, labelcolor=palette.ink)
    return axes
