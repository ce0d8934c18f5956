"""`lv.mixture_posterior`: the posteriors of the number of components and of the number of occupied ones, from chains.

A component is occupied if some row is in it. If it is known which rows are together, the probability of every number K
of components has a closed form. So chains over partitions of the rows give the posterior of all K at once. No fit and
no evidence is needed (`lvsearch.inference.allocation_chains`).

A block model has two numbers, of row clusters and of column clusters. Its tables have one axis for each of them.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float64, Int

from lvsearch.data.base import Data
from lvsearch.data.kinds import data_for
from lvsearch.data.points import Points, row_index
from lvsearch.fitted.mixture_draws import MixtureDraws, draw_mixtures, drawn_hyperparameters
from lvsearch.fitted.partition_draws import Partition, closest_partition, coclustering
from lvsearch.inference.allocation_chains import (
    NO_DRAWS,
    AllocationDraws,
    AllocationTrace,
    RowMixture,
    allocation_chain,
    has_allocation_chain,
    run_chains,
    supported_sizes,
)
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.diagnostics import CLOSE_RHAT, MOST_RHAT
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import checked_seed, real_number, whole_number
from lvsearch.sizing.posterior import EstimatedPosterior, MemberPosterior, format_probability
from lvsearch.sizing.sizes import Mixture, Size, SizePrior, weak
from lvsearch.sizing.witness import per_variable
from lvsearch.sizing.words import first_to_last, size_text, sizes_in_words

LEFT_OUT, MOST_SIZES, MOST_OF_EACH_SIZE = 1e-6, 2000, 64
"""The prior probability of all sizes beyond the largest one in the table, and the largest size that a table can have:
of one size variable, and of each of several. Larger sizes have no probability.

Tables of two size variables take up to 4,096 numbers for each chain and block of sweeps. Under the default prior,
larger sizes hold a fourteenth of the prior, but next to nothing of the posterior of more than a few rows and columns.
"""
FEWEST_SWEEPS = 256
"""The number of sweeps of each chain before it is first checked whether the chains agree."""
FEWEST_LABELS = 150_000
"""The number of labels that each chain draws by default at least, if its sweeps are enough: some ten seconds."""
HELD = 0.95
SHOWN = 1e-4
"""The posterior probability of the smallest and of the largest size that tables of a search begin and end with."""
TAIL = 1.645
"""How many standard errors lie between a mean and its 5 % and 95 % points."""


@dataclass(frozen=True, repr=False, eq=False)
class MixturePosterior:
    r"""The posterior of the number of components K of a mixture, and of the number K₊ that some row is in.

    For features of rows (`lv.models.IBP`), K is the number of features that can be used, and K₊ of those that some row
    has. For block models (`lv.models.LatentBlockModel`), K is a pair: the numbers of row clusters and of column
    clusters. Then tables have the axes (size, size) and (number, number).

    Returned by `lv.mixture_posterior`. `posterior()` and `occupied()` are its tables.

    | field | shape | meaning |
    |---|---|---|
    | `log_prior` | (size,) | log p(K) of K = 1, 2, …, nats, over the sizes in the table |
    | `probability` | (size,) | p(K \| rows) |
    | `monte_carlo_error` | (size,) | its standard error from the sampling alone |
    | `occupied_probability` | (number,) | p(K₊ \| rows) of K₊ = `fewest_occupied` and the numbers after it |
    | `occupied_error` | (number,) | its standard error from the sampling alone |
    | `rhat` | | the larger R̂ over the chains of K₊ and of log p(rows \| partition) |
    | `effective_sample_size` | | the number of independent draws of K₊ that all chains together are worth |
    | `chains`, `sweeps` | | the number of chains, and of sweeps of each, also those left out at the beginning |
    | `precision` | | the Monte Carlo error that was asked for |
    | `fewest_occupied` | | the first K₊ of the table: 1, or 0 if some draw had no feature in use |
    | `counted` | | what is counted: "components", "features", or "row clusters and column clusters" |
    | `size_is_limit` | | True if K is only a limit, so that K₊ is the answer, and its errors count |
    | `recorded` | | draws of partitions with the components' hyper-parameters, from which `draws` makes whole ones |
    | `model`, `training` | | the model, and the rows; None where they are not known |

    `recorded` is empty where a row may have several features, and where nothing is known under a prior.
    """

    log_prior: Float64[np.ndarray, "*size"]
    probability: Float64[np.ndarray, "*size"]
    monte_carlo_error: Float64[np.ndarray, "*size"]
    occupied_probability: Float64[np.ndarray, "*number"]
    occupied_error: Float64[np.ndarray, "*number"]
    rhat: float
    effective_sample_size: float
    chains: int
    sweeps: int
    precision: float
    fewest_occupied: int = 1
    counted: str = "components"
    size_is_limit: bool = False
    recorded: AllocationDraws = NO_DRAWS
    model: Model | None = None
    training: Data | None = None

    @classmethod
    def from_trace(
        cls,
        trace: AllocationTrace,
        log_prior: Float64[np.ndarray, "*size"],
        precision: float,
        model: Model,
    ) -> "MixturePosterior":
        """Return the posterior of the number of components from a finished run.

        trace: the recorded chains.
        log_prior: log p(K) of K = 1, 2, …, nats.
        precision: the Monte Carlo error that was asked for; it is only stored.
        model: the model whose sizes the chains compared.
        """
        return cls(
            log_prior,
            *trace.sizes(),
            *trace.occupied(),
            trace.rhat,
            trace.effective_sample_size,
            len(trace.log_rows),
            trace.sweeps,
            precision,
            trace.fewest_parts,
            " and ".join(name.replace("_", " ") for name in model.size_names),
            model.size_is_limit,
            trace.draws,
            model,
        )

    def under(self, log_prior: Float64[np.ndarray, "*size"], trace: AllocationTrace) -> "MixturePosterior | None":
        """Return the posterior of K, the number of components, under another prior of K, from the same draws.

        Each K is weighed anew. Nothing is known of the number of occupied components under another prior: its fields
        are empty.

        log_prior: log p(K) of the same K = 1, 2, …, nats.
        trace: what the chains visited under their own prior.

        Returns: the posterior, or None if the prior gives no visited number any probability.
        """
        if np.allclose(np.exp(log_prior), np.exp(self.log_prior), rtol=1e-4, atol=1e-9):
            return self
        weights = trace.size_probability * _prior_ratio(log_prior, self.log_prior)
        if not weights.sum() > 0:
            return None
        probability, error = _shares_over_chains(weights)
        error = np.maximum(error, self.monte_carlo_error.min())
        nothing = np.zeros((0,) * log_prior.ndim)
        return replace(
            self,
            log_prior=log_prior,
            probability=probability,
            monte_carlo_error=error,
            occupied_probability=nothing,
            occupied_error=nothing,
            recorded=NO_DRAWS,
        )

    @property
    def size_chances(self) -> Float64[np.ndarray, "*size"]:
        """The probability that each of the sizes 1, 2, … is the answer, (size,), which says what sizes are worth a fit.

        It is p(K | rows). If K is only a limit, it is the probability that K features are in use, where K is the next
        size that the prior allows; no feature in use counts as size 1.
        """
        if not self.size_is_limit or not self.occupied_probability.size:
            return self.probability
        allowed, chances = np.flatnonzero(self.probability > 0), np.zeros(len(self.probability))
        numbers = self.fewest_occupied + np.arange(len(self.occupied_probability))
        next_allowed = np.searchsorted(allowed, np.maximum(numbers, 1) - 1)
        exists = next_allowed < len(allowed)
        np.add.at(chances, allowed[next_allowed[exists]], self.occupied_probability[exists])
        return chances

    def place_of(self, size: Size) -> Size | None:
        """Return the index of a size in the tables over sizes, such as (1, 2) for the size (2, 3); None if it is beyond
        them.
        """
        if any(number > most for number, most in zip(size, self.probability.shape, strict=True)):
            return None
        return tuple(number - 1 for number in size)

    @property
    def log_evidence(self) -> Float64[np.ndarray, "*size"]:
        """log p(rows | K) of K = 1, 2, … components up to one constant, (size,), in nats.

        It is −∞ if no draw could have so few components, or if the prior gave K no probability.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(self.probability) - self.log_prior
        return np.where(np.isfinite(found), found, -np.inf)

    @property
    def log_evidence_error(self) -> Float64[np.ndarray, "*size"]:
        """The Monte Carlo standard error of `log_evidence`, (size,), in nats; infinite if no draw could have so few
        components.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.where(self.probability > 0, self.monte_carlo_error / self.probability, np.inf)

    @property
    def is_settled(self) -> bool:
        """True if the chains agree (R̂) and no probability of a size has a Monte Carlo error above `precision`.

        If K₊ is the answer, this must hold of its probabilities too.
        """
        return self.rhat <= MOST_RHAT and self.largest_error <= self.precision

    @property
    def largest_error(self) -> float:
        """The largest Monte Carlo error of the probability of a size, or of a K₊ if that is the answer."""
        of_number = self.occupied_error.max(initial=0.0) if self.size_is_limit else 0.0
        return float(max(self.monte_carlo_error.max(), of_number))

    def posterior(self) -> pd.DataFrame:
        """Return the table of K, the number of components, with a row for each K.

        Columns: `size`, `log_prior` (nats), `probability`, `monte_carlo_error`. A block model has two columns in place
        of `size`: `row_clusters` and `column_clusters`.
        """
        return pd.DataFrame(
            {
                **self._number_columns("size", self.probability.shape, 1),
                "log_prior": self.log_prior.ravel(),
                "probability": self.probability.ravel(),
                "monte_carlo_error": self.monte_carlo_error.ravel(),
            }
        )

    def occupied(self) -> pd.DataFrame:
        """Return the table of the number of occupied components, with a row for each number up to the largest that was
        visited.

        Columns: `occupied`, `probability`, `monte_carlo_error`. A block model has two columns in place of `occupied`:
        `row_clusters` and `column_clusters`.
        """
        return pd.DataFrame(
            {
                **self._number_columns("occupied", self.occupied_probability.shape, self.fewest_occupied),
                "probability": self.occupied_probability.ravel(),
                "monte_carlo_error": self.occupied_error.ravel(),
            }
        )

    def _number_columns(self, name: str, shape: tuple[int, ...], first: int) -> dict[str, Int[np.ndarray, " number"]]:
        """Return the columns of a table that say which numbers its rows are about, {name: numbers}.

        name: the name of the column where one number is counted; else columns are called as the model's size variables.
        shape: how many numbers there are of each. first: the first number of each.
        """
        names = (name,) if self.model is None or len(shape) == 1 else self.model.size_names
        numbers = (each.ravel() + first for each in np.indices(shape))
        return dict(zip(names, numbers, strict=True))

    def coclustering(self, rows: Sequence[Any] | None = None) -> pd.DataFrame:
        """Return how probable it is that two rows are in one cluster, as a table (row, row) with 1 on its diagonal.

        It is averaged over all numbers of components. Partitions are recorded after every eighth sweep of each chain,
        without the first quarter of the sweeps.

        rows: names of the rows to compare; by default all rows.

        Raises ValueError for more than 5,000 rows, unknown rows, and where no partitions were drawn: of features of
        rows, under another prior than that of the chains, and in a folder from before partitions were kept.
        """
        draws, index = self.drawn_partitions()
        return coclustering(draws, index, rows)

    def partition(self, loss: str = "vi") -> Partition:
        """Return the partition of the rows that is closest to the draws on average, and its 95 % credible ball.

        The number of its clusters need not be the most probable number of components, which may be empty or small.

        loss: "vi", the variation of information, or "binder", the share of pairs that are together in one partition but
            not in the other.

        Raises ValueError for another loss, and where no partitions were drawn, as `coclustering`.
        Source: Wade & Ghahramani (2018), *Bayesian cluster analysis*.
        """
        draws, index = self.drawn_partitions()
        return replace(closest_partition(draws, index, loss), is_settled=self.is_settled)

    def draws(self, draws: int = 1000, seed: int = 0) -> MixtureDraws:
        """Return draws of everything: the number of components, who is where, weights and parameters of components.

        draws: about how many: equally many of each chain, evenly spaced over its partitions. If there are fewer
            partitions, some are used several times, with weights and parameters drawn anew.
        seed: decides the random numbers.

        Raises ValueError where no partitions were drawn, as `coclustering`.
        Source: Miller & Harrison (2018), §7.
        """
        self.drawn_partitions()  # it raises where there are none
        if self.model is not None and not isinstance(self.model, RowMixture):
            raise ValueError(
                f"got chains over partitions under {type(self.model).__name__}, expected a mixture of rows: of other "
                "models lv.sample(model, data, size=…, parameters=True) draws the parameters of one size"
            )
        if not isinstance(self.model, RowMixture) or not isinstance(self.training, Points):
            raise ValueError("got a posterior without its rows, expected one from lv.search or lv.mixture_posterior")
        number, seed = whole_number("draws", draws, least=1), checked_seed(seed)
        found = draw_mixtures(self.model, self.training, self.log_prior, self.recorded, number, seed)
        return replace(found, is_settled=self.is_settled)

    def drawn_partitions(self) -> tuple[Int[np.ndarray, "draw row"], pd.Index]:
        """Return (the partitions of all chains, (draw, row), the names of the rows).

        Raises ValueError where there are none.
        """
        n_draws, n_rows, n_chains = self.recorded.groups.shape
        if self.size_is_limit:
            raise ValueError(
                "got features of rows, expected a mixture of rows: a row may have several features, so that rows have "
                "no partition"
            )
        if not n_draws:
            raise ValueError(
                "got no draws of partitions, which are known under the prior of the search only, and not in folders of "
                "older versions: search again with this prior"
            )
        index = row_index(self.training) if isinstance(self.training, Points) else pd.RangeIndex(n_rows)
        groups = np.asarray(self.recorded.groups)
        return groups.transpose(0, 2, 1).reshape(n_draws * n_chains, n_rows), index

    @property
    def lacks_hyperparameters(self) -> bool:
        """True if partitions were recorded without hyper-parameters that have priors, as older folders have them."""
        if not isinstance(self.model, RowMixture):
            return False
        return drawn_hyperparameters(self.model) != set(self.recorded.log_hyper)

    @property
    def can_draw(self) -> bool:
        """True if `draws` has draws of everything: of a mixture of rows whose partitions were recorded, together with
        the hyper-parameters that have priors.
        """
        return isinstance(self.model, RowMixture) and bool(self.recorded.groups.size) and not self.lacks_hyperparameters

    def occupied_summary(self) -> tuple[tuple[Size, ...], Size, float]:
        """Return the 95 % credible set of the number of occupied components (in increasing order), its mode, and the
        mode's probability.

        Numbers are given as sizes, with a number for each size variable.
        """
        first, table = self.fewest_occupied, self.occupied_probability
        best = tuple(int(place) + first for place in np.unravel_index(int(np.argmax(table)), table.shape))
        return tuple(_credible_set(table, first)), best, float(table.max())

    @property
    def name_in_use(self) -> str:
        """The name of what K₊ counts: "occupied components", or "features in use"."""
        return f"{self.counted} in use" if self.size_is_limit else f"occupied {self.counted}"

    def describe_occupied(self) -> str | None:
        """Return a sentence on the number of occupied components; None if nothing is known of it."""
        if not self.occupied_probability.size:
            return None
        return _in_words(self.name_in_use, self.occupied_probability, self.fewest_occupied)

    def describe(self) -> str:
        """Return one sentence on the number of components and one on the number of occupied ones.

        If the chains do not agree yet, the text begins by saying so.
        """
        occupied = self.describe_occupied()
        found = _in_words(self.counted, self.probability)
        found = found if occupied is None else f"{found} {occupied}"
        if self.is_settled:
            return found
        return (
            f"Not an answer yet: after {self.sweeps} sweeps of each chain R-hat is {self.rhat:.2f}, expected at most "
            f"{MOST_RHAT}, and the largest Monte Carlo error {self.largest_error:.3f}, expected at most "
            f"{self.precision:g}. Ask for more sweeps. So far: {found}"
        )

    def __repr__(self) -> str:
        """Return the posterior in words, with a line on the chains, their R-hat and their errors."""
        effective = self.effective_sample_size
        in_use = self.name_in_use
        worth = f"{in_use} never change" if math.isnan(effective) else f"effective draws of {in_use}: {effective:.0f}"
        return (
            f"{self.describe()}\n  {self.chains} chains, {self.sweeps} sweeps of each; R-hat {self.rhat:.3f}; largest "
            f"Monte Carlo error {self.largest_error:.3f}; {worth}"
        )


def mixture_posterior(
    model: Any,
    data: Any,
    *,
    prior: Any = None,
    max_size: int | Size | None = None,
    precision: float | int = 0.01,
    sweeps: int = 4096,
    fewest_sweeps: int | None = None,
    seed: int = 0,
) -> MixturePosterior:
    """Draw partitions of the rows in many chains and return the posterior of the number of components.

    Chains are lengthened until R-hat of the number of occupied components and of log p(rows | partition) is at most
    1.02, and every Monte Carlo error at most `precision`. Searches ask for an R-hat of 1.05; here draws of everything
    may be wanted (`draws`).

    model: `lv.models.FiniteMixture`, `TiedMixture` or `IndependentNormalMixture`, whose parameters are integrated out;
        `LatentBlockModel`, with partitions of the columns too; or `IBP`, for which features of the rows are drawn
        instead of partitions.
    data: rows, as for `lv.search`, (row, column).
    prior: over sizes, from `lv.sizes`; by default the weak one of `lv.search`.
    max_size: the largest size; the prior is truncated there. By default the size beyond which the prior leaves 1e-6. A
        block model has two, one number for both or a tuple, of at most 64 each, which is the default.
    precision: the largest Monte Carlo error of a p(K | rows).
    sweeps: the largest number of sweeps per chain. If they are used up, and R-hat is above 1.05 or an error above
        `precision`, the result says that it is not an answer yet.
    fewest_sweeps: the smallest number of sweeps per chain, for more independent draws of the parameters than the
        probabilities need. It is rounded up to a multiple of 32. By default it is 256, or more where rows are few: as
        many as draw 150,000 labels in each chain (1,000 sweeps of 150 rows), if `sweeps` are enough.
    seed: the seed of the chains.

    Raises ValueError for another model, estimated parameters, a prior over another number of size variables, bad data
    and bad numbers.
    Source: Miller & Harrison (2018); Frühwirth-Schnatter, Malsiner-Walli & Grün (2021) for `dynamic` concentrations;
        Wyse & Friel (2012) for block models.
    """
    if not has_allocation_chain(model):
        raise ValueError(
            f"got {model!r}, expected lv.models.FiniteMixture(…), TiedMixture(…) or IndependentNormalMixture(…) with a "
            "concentration, LatentBlockModel(…) or IBP(…): for other models lv.search(model, data) says how many"
        )
    precision = real_number("precision", precision, above=0, below=1)
    sweeps = whole_number("sweeps", sweeps, least=FEWEST_SWEEPS)
    fewest = None if fewest_sweeps is None else whole_number("fewest_sweeps", fewest_sweeps, least=FEWEST_SWEEPS)
    dimension = len(model.size_names)
    largest = None if max_size is None else per_variable(max_size, dimension)
    log_prior = tabulated_prior(weak(dimension) if prior is None else prior, largest, dimension)
    seed = checked_seed(seed)
    prepare_programs()
    rows = data_for(model, data)
    units = rows.dataset()
    if fewest is None:
        fewest = min(sweeps, max(FEWEST_SWEEPS, FEWEST_LABELS // units.n_units))
    trace = run_chains(
        lambda places: allocation_chain(model, units, log_prior, places),
        jax.random.key(seed),
        precision=float(precision),
        most_sweeps=max(sweeps, fewest),
        fewest_sweeps=fewest,
        of_parts=model.size_is_limit,
        most_rhat=CLOSE_RHAT,
    )
    found = MixturePosterior.from_trace(trace, log_prior, float(precision), model)
    return replace(found, training=rows)


def tabulated_prior(prior: Any, largest: Size | None, dimension: int = 1) -> Float64[np.ndarray, "*size"]:
    """Return the log prior probability of K = 1, 2, … components, normalised, (size,), in nats.

    prior: one of `lv.sizes` over as many size variables as the model has.
    largest: the largest size, a number for each size variable. None ends the table of one size variable once the prior
        probability beyond is at most `LEFT_OUT`. With several it goes on to `MOST_OF_EACH_SIZE`, or as far as the prior
        goes, since evidence may rise by more than a prior falls, and the table costs little.
    dimension: the number of size variables. The table has an axis for each of them.

    Raises ValueError for a bad prior or size, and if the prior gives the allowed sizes no probability.
    """
    if not isinstance(prior, SizePrior) or prior.dimension != dimension:
        variables = "one size" if dimension == 1 else f"{dimension} sizes"
        raise ValueError(
            f"got prior={prior!r}, expected one of lv.sizes over {variables}, such as lv.sizes.Poisson(10)"
            f"{'' if dimension == 1 else ' combined by lv.sizes.Product(…)'}"
        )
    most = largest_tabulated(dimension)
    if largest is not None and not 1 <= min(largest) <= max(largest) <= most:
        raise ValueError(f"got max_size={size_text(largest)}, expected a size from 1 to {most}")
    ends = largest or tuple(_end_of_table(prior, variable, dimension, most) for variable in range(dimension))
    log_prior = supported_sizes(lambda *size: prior.log_pmf(size), *ends)
    if not np.isfinite(log_prior).any():
        told = None if largest is None else size_text(largest)
        raise ValueError(f"got max_size={told}, which {prior.describe()} gives no probability; expected a larger one")
    return log_prior


def largest_tabulated(dimension: int) -> int:
    """Return the largest size in tables over sizes, of each of `dimension` size variables."""
    return MOST_SIZES if dimension == 1 else MOST_OF_EACH_SIZE


def _end_of_table(prior: SizePrior, variable: int, dimension: int, most: int) -> int:
    """Return the first size beyond which a prior leaves at most `LEFT_OUT`, or nothing if there are several size
    variables, in one of these; `most` if there is none up to there.

    variable: the number of the size variable, from 0. dimension: how many there are.
    """
    least = math.log(LEFT_OUT) if dimension == 1 else -math.inf
    lower = np.ones(dimension, int)
    for size in range(1, most):
        lower[variable] = size + 1
        if prior.log_mass(tuple(lower.tolist())) <= least:
            return size
    return most


def members_from_chains(
    prior: Mixture, trace: AllocationTrace, log_prior: Float64[np.ndarray, "*size"]
) -> MemberPosterior:
    """Return the posterior of the members of a mixture prior from chains over partitions.

    The probability of member m is proportional to weight_m Σ_K p_m(K) p(rows | K). Under the prior of the chains
    p(rows | K) is proportional to p(K | rows) / p(K). The sum is linear in what the chains average, so that improbable
    sizes, whose log evidence is known badly, do no harm. The 5 % and 95 % points are those of the Monte Carlo error.

    prior: the mixture of priors over K.
    trace: what the chains visited under their own prior.
    log_prior: log p(K) of K = 1, 2, … under the prior of the chains, nats.
    """
    sizes = [tuple(place + 1 for place in places) for places in np.ndindex(log_prior.shape)]
    log_pmf = np.array([[member.log_pmf(size) for size in sizes] for member in prior.priors], np.float64)
    of_chains = trace.size_probability.reshape(len(trace.size_probability), -1)
    weights = of_chains @ _prior_ratio(log_pmf, log_prior.ravel()).T * np.array(prior.weights)
    probability, error = _shares_over_chains(weights)
    error = np.maximum(error, trace.sizes()[1].min())
    return MemberPosterior(
        tuple(member.describe() for member in prior.priors),
        prior.weights,
        probability,
        np.clip(probability - TAIL * error, 0.0, 1.0),
        np.clip(probability + TAIL * error, 0.0, 1.0),
    )


def _prior_ratio(
    log_prior: Float64[np.ndarray, "*prior_and_size"], of_chains: Float64[np.ndarray, "*size"]
) -> Float64[np.ndarray, "*prior_and_size"]:
    """Return p(K) under other priors, divided by p(K) under the prior of the chains; 0 where the latter excludes K.

    log_prior: log p(K) of K = 1, 2, … under one or more other priors, nats. of_chains: the same of the chains, nats.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(of_chains > -np.inf, np.exp(log_prior - of_chains), 0.0)


def _shares_over_chains(
    weights: Float64[np.ndarray, "chain *kind"],
) -> tuple[Float64[np.ndarray, "*kind"], Float64[np.ndarray, "*kind"]]:
    """Return the share of each kind in the total weight, and its standard error from the spread over chains.

    weights: the weight of each kind in each chain, (chain, kind), or (chain, size, size); the total must be above 0.
    """
    of_chains = weights.sum(tuple(range(1, weights.ndim)), keepdims=True)
    total = of_chains.mean()
    share = weights.mean(0) / total
    # a ratio of averages over chains: its error is that of what each chain's weights exceed their share by
    beyond = weights - share * of_chains
    return share, beyond.std(0, ddof=1) / np.sqrt(len(beyond)) / total


def _in_words(name: str, probability: Float64[np.ndarray, "*number"], first: int = 1) -> str:
    """Return the most probable number and the 95 % set in words, such as "6 components are most probable (0.31); …".

    name: what is counted, in the plural. probability: of the numbers `first`, `first` + 1, …, of each size variable.
    """
    best, held = np.unravel_index(int(np.argmax(probability)), probability.shape), _credible_set(probability, first)
    number = tuple(int(place) + first for place in best)
    singular = re.sub(r"s\b", "", name, count=1)
    subject = f"1 {singular} is" if number == (1,) else f"{size_text(number)} {name} are"
    share = format_probability(float(probability[best]))
    told = sizes_in_words(held) if len(number) == 1 else first_to_last(held)
    return f"{subject} most probable ({share}); {told} hold{'s' if len(held) == 1 else ''} 95 %."


def _credible_set(probability: Float64[np.ndarray, "*number"], first: int = 1) -> list[Size]:
    """Return the most probable numbers that hold 95 % between them, in increasing order, as sizes.

    probability: of the numbers `first`, `first` + 1, …, of each size variable.
    """
    flat = probability.ravel()
    order = np.argsort(-flat, kind="stable")
    enough = order[: int(np.searchsorted(np.cumsum(flat[order]), HELD)) + 1]
    places = zip(*np.unravel_index(np.sort(enough), probability.shape), strict=True)
    return [tuple(int(place) + first for place in each) for each in places]


def estimate_from_chains(found: MixturePosterior) -> EstimatedPosterior:
    """Return the posterior of sizes in the form that searches have it.

    It goes from the first to the last size with a probability of at least `SHOWN`; of several size variables it has the
    sizes with such a probability alone. It has the 5 % and 95 % points of the Monte Carlo error. While the chains do
    not agree, all sizes of the 95 % set count as undecided.
    """
    return _estimate(found.probability, found.monte_carlo_error, 1, found.is_settled)


def estimate_of_number_in_use(found: MixturePosterior) -> EstimatedPosterior:
    """Return the posterior of the number of components that some row is in, in the form of `estimate_from_chains`."""
    return _estimate(found.occupied_probability, found.occupied_error, found.fewest_occupied, found.is_settled)


def _estimate(
    of_numbers: Float64[np.ndarray, "*number"], errors: Float64[np.ndarray, "*number"], first: int, is_settled: bool
) -> EstimatedPosterior:
    """Return the posterior of the numbers `first`, `first` + 1, … in the form that searches have it.

    of_numbers, errors: their probabilities and Monte Carlo errors, (number,), or (number, number) for two size
        variables.
    is_settled: whether the chains agree.
    """
    flat = of_numbers.ravel()
    rows = np.flatnonzero(flat >= min(SHOWN, flat.max()))
    if of_numbers.ndim == 1:
        rows = np.arange(rows[0], rows[-1] + 1)
    probability, error = flat[rows], errors.ravel()[rows]
    places = zip(*np.unravel_index(rows, of_numbers.shape), strict=True)
    sizes = tuple(tuple(int(place) + first for place in each) for each in places)
    best = int(np.argmax(probability))
    order = np.argsort(-probability, kind="stable")
    together = set(order[: int(np.searchsorted(np.cumsum(probability[order]), HELD * (1 - 1e-12))) + 1].tolist())
    indistinguishable = tuple(size for row, size in enumerate(sizes) if row in together)
    return EstimatedPosterior(
        sizes,
        probability,
        np.clip(probability - TAIL * error, 0.0, 1.0),
        np.clip(probability + TAIL * error, 0.0, 1.0),
        sizes[best],
        indistinguishable,
        () if is_settled else indistinguishable,
    )
