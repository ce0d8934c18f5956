"""`lv.occupied`: the posterior over how many components of a nonparametric process the data occupy, from MCMC chains.

A Dirichlet-process mixture has no size. Its counterpart of "how many components" is the number of components that some
row is in. A finite mixture of size K has K components, occupied or not (footnote 1 of Chiang & Poole). Both kinds of
answer can be shown in one table or picture, as long as each is named.
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
from lvsearch.inference.diagnostics import FEWEST_EFFECTIVE, MOST_RHAT, bulk_effective_sample_size, rhat
from lvsearch.inference.mixtures.partitions import OccupiedCounts, occupied_along, occupied_over_chains
from lvsearch.inference.processes import LogPrior, occupied_chains, occupied_sampler
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import checked_seed, whole_number
from lvsearch.pictures.style import in_house_style, palette_of
from lvsearch.progress import progress_bar
from lvsearch.sizing.posterior import format_probability
from lvsearch.sizing.words import is_or_are, sizes_in_words, with_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Z_95 = 1.6448536269514722
"""The 95 % point of a Gaussian, in standard deviations from the mean; −Z_95 is the 5 % point."""
SHOWN = 1e-3
"""A picture leaves out numbers whose 95 % point of the probability is below this."""


@dataclass(frozen=True, repr=False, eq=False)
class OccupiedPosterior:
    """A posterior over the number of components of a process that some data occupy, from chains of an exact sampler.

    A component (cluster, topic, or node of a tree) is occupied if it holds at least one observation. Errors come from
    the spread within and between chains, in effective draws. With one chain they come from batch means, which cannot
    see regions that the chain did not reach.

    | field | shape | meaning |
    |---|---|---|
    | `names` | | what is counted: ("occupied components",); for trees nodes at level 1, 2, …, the root at level 0 |
    | `counts` | (chain, sweep, name) | the number of occupied components after every sweep, burn-in included |
    | `burn_in` | | sweeps at the beginning of each chain that are left out |
    | `log_prior` | a (count,) per name | log p(1), log p(2), … before any data, nats; None where it is not known |
    """

    names: tuple[str, ...]
    counts: Int[np.ndarray, "chain sweep name"]
    burn_in: int
    log_prior: tuple[LogPrior, ...]

    def posterior(self) -> pd.DataFrame:
        """Return the posterior as a table like `SearchResult.posterior("estimate")`: a row per number of components.

        Column `size` is the number. `standard_error` is the Monte Carlo error of `probability`; `probability_lower` and
        `probability_upper` are its 5 % and 95 % points. The columns of the log evidence are NaN: a process has no
        evidence per size. Where several things are counted, the first column, `counted`, names them.
        """
        each = self.tables()
        if len(each) == 1:
            return each[0]
        return pd.concat(dict(zip(self.names, each, strict=True)), names=["counted"]).reset_index(0)

    def tables(self) -> list[pd.DataFrame]:
        """Return one table of the posterior for each thing that is counted (such as each level of a tree).

        The tables are in the order of `names`, with the columns that `posterior` describes.
        """
        return [occupied_table(*pair) for pair in zip(self._frequencies(), self.log_prior, strict=True)]

    @property
    def rhat(self) -> float:
        """The rank-normalised split R̂ of the chains, near 1 where they agree; the largest over the things counted.

        Source: Vehtari et al. (2021).
        """
        return max(rhat(draws) for draws in self._draws())

    @property
    def effective_sample_size(self) -> float:
        """The bulk effective sample size of all chains together, in draws; the smallest over the things counted.

        It is NaN if no number varies. Source: Vehtari et al. (2021).
        """
        each = [bulk_effective_sample_size(draws) for draws in self._draws()]
        return min((size for size in each if not np.isnan(size)), default=float("nan"))

    @property
    def agree(self) -> bool:
        """True if R̂ is at most 1.05 and there are at least 100 effective draws, or no number varies.

        Chains begin far apart, so that agreement means something. Of a single chain, its two halves must agree.
        """
        return self.rhat <= MOST_RHAT and not self.effective_sample_size < FEWEST_EFFECTIVE

    def describe(self) -> str:
        """Return the posterior in words, a sentence for each thing that is counted (components, or nodes of a level).

        A sentence has the most probable number, its probability with standard error, and the fewest numbers that hold
        95 %. If the chains do not agree, the text says so first. If there is only one chain, the text says so too.
        """
        found = " ".join(
            f"{in_words(name, frequencies)}." for name, frequencies in zip(self.names, self._frequencies(), strict=True)
        )
        one = len(self.counts) == 1
        if one:
            found = f"{found} From one chain, whose error cannot show what it missed: chains=4 compares several."
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
        """Return the posterior in sentences, with the number of chains and draws, R̂ and the effective draws."""
        chains, sweeps, _ = self.counts.shape
        effective = self.effective_sample_size
        worth = "which never change" if np.isnan(effective) else f"{effective:.0f} effective draws"
        return (
            f"{self.describe()}\n  {chains} chains from different starts, {sweeps - self.burn_in} draws of each after "
            f"{self.burn_in} sweeps that are left out; R-hat {self.rhat:.3f}, {worth}"
        )

    def plot_posterior(self, ax: "Axes | None" = None) -> "Axes":
        """Draw bars of the probability of each number of components, and return the axes.

        Lines are the 5 % to 95 % range of each probability under its Monte Carlo error.

        ax: the axes to draw on; None for a new figure.
        """
        axes = plot_side_by_side(dict(zip(self.names, self.tables(), strict=True)), ax)
        axes.set_xlabel(f"number of {self.names[0]}" if len(self.names) == 1 else "number")
        if not self.agree:
            axes.set_title("The chains do not agree: not an answer yet")
        return axes

    def _draws(self) -> list[Int[np.ndarray, "chain draw"]]:
        """Return the numbers of occupied components after the burn-in, one array (chains, draws) per thing counted."""
        return [self.counts[:, self.burn_in :, i] for i in range(len(self.names))]

    def _frequencies(self) -> list[OccupiedCounts]:
        """Return the estimated probability of each number with its Monte Carlo error, once per thing counted."""
        if len(self.counts) == 1:
            return [occupied_along(draws[0]) for draws in self._draws()]
        return [occupied_over_chains(self.counts[..., i], self.burn_in) for i in range(len(self.names))]


def occupied(
    model: Model, data: Any, *, chains: int = 4, draws: int = 1000, seed: int = 0, progress: bool = True
) -> OccupiedPosterior:
    """Return the posterior over how many components of a nonparametric process the data occupy, by MCMC.

    A component is occupied if it holds at least one observation.

    model: a nonparametric process: `lv.models.DPMixture`, `HDP`, `HDPMixture` or `HLDA`.
    data: the data, or a form from which the model's data can be made, such as a matrix or texts.
    chains: the number of chains, at least 2. They start far apart, with few components and with many; errors come from
        all of them.
    draws: the number of draws kept of each chain, one for each sweep. As many sweeps before them are left out.
    progress: show a progress bar with a step for each chain.

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
    """Return a posterior in words: "3 occupied components are most probable: 0.480 ± 0.020; 2–4 hold 95 %".

    name: the plural noun of what is counted, such as "occupied components".
    counts: the estimated probability of each number.

    The text has no full stop.
    """
    order = np.argsort(-counts.probability, kind="stable")
    enough = int(np.searchsorted(np.cumsum(counts.probability[order]), 0.95 - 1e-12)) + 1
    best = int(order[0])
    number = int(counts.sizes[best])
    held = sizes_in_words([(int(size),) for size in counts.sizes[order[:enough]]])
    probability = format_probability(float(counts.probability[best]))
    return (
        f"{with_noun(number, name)} {is_or_are(number)} most probable: {probability} "
        f"± {_error_in_words(float(counts.standard_error[best]))}; {held} hold{'s' if enough == 1 else ''} 95 %"
    )


def _error_in_words(error: float) -> str:
    """Return the standard error of a probability with three decimals, or "<0.001" below 0.0005."""
    return f"{error:.3f}" if error >= 5e-4 else "<0.001"


def occupied_table(counts: OccupiedCounts, log_prior: Float[np.ndarray, " blocks"] | None = None) -> pd.DataFrame:
    """Return a table like `SearchResult.posterior("estimate")`: a row per number of occupied components.

    counts: the estimated probability of each number, with its standard error.
    log_prior: log p(K) before any data, for K = 1, 2, … occupied components, nats; None where it is not known.

    `standard_error` is the Monte Carlo error of `probability`; `probability_lower` and `probability_upper` are 1.645
    errors below and above it. The columns of the log evidence are NaN: a process has no evidence per size.
    """
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
    """Return a table of the probability of each number of components (rows) under several posteriors (columns).

    A number that a posterior does not list has probability 0 there.

    tables: {name: `SearchResult.posterior()` of one size variable, or `OccupiedPosterior.posterior()`}.
    """
    columns = {name: table.set_index("size")["probability"] for name, table in tables.items()}
    return pd.DataFrame(columns).sort_index().fillna(0.0)


def plot_side_by_side(tables: Mapping[str, pd.DataFrame], ax: "Axes | None" = None) -> "Axes":
    """Draw bars of the probability of each number of components, one colour per posterior, and return the axes.

    Lines are the 5 % to 95 % range of each probability.

    tables: {name: `SearchResult.posterior()` of one size variable, or `OccupiedPosterior.posterior()`}.
    ax: the axes to draw on; None for a new figure.
    """
    from matplotlib.ticker import MaxNLocator

    axes = in_house_style(ax, 6.0, 3.4)
    palette, width = palette_of(axes), 0.8 / max(1, len(tables))
    for place, (name, table) in enumerate(tables.items()):
        shown = table[table["probability_upper"] > SHOWN]
        at = shown["size"] + (place - (len(tables) - 1) / 2) * width
        axes.bar(at, shown["probability"], 0.9 * width, label=name, color=palette.colour_of_part(place), alpha=0.75)
        ends = shown["probability_lower"], shown["probability_upper"]
        axes.vlines(at, *ends, color=palette.ink, linewidth=1.2)
    axes.set_xlabel("components (finite: size; process: occupied)")
    axes.set_ylabel("probability")
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, labelcolor=palette.ink)
    return axes
