"""`MixtureDraws`: whole draws of a mixture of rows from its posterior over all numbers of components.

Chains over partitions integrate weights and parameters out. What they keep of a draw is which rows are together, and
the components' hyper-parameters (`lvsearch.inference.allocation_chains`). All else is drawn from its distribution given
these, so that draws of everything together come from the posterior:

1. the number of components K, from p(K | partition). The t parts of the partition get the first t components; the
   others are empty;
2. weights and parameters of all K components, by Gibbs steps from the gradient of the model's log-joint
   (`lvsearch.inference.engine.gibbs`). One step draws from the distribution itself where each component's parameters
   are one latent variable. Where they are several, as means and precisions with independent priors, 30 steps are made,
   which come very near to it.

Source: Miller & Harrison (2018), §7, for parameters after chains over partitions; Papastamoulis & Iliopoulos (2010) for
the relabelling of `relabelled`, by a reference partition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Float64, Int

from lvsearch.data.points import Points, row_index
from lvsearch.fitted.clusters import checked_columns, simulated_rows
from lvsearch.fitted.partition_draws import CANDIDATES, LOSSES, NOT_SETTLED
from lvsearch.inference.allocation_chains import (
    AllocationDraws,
    PartitionChain,
    RowMixture,
    allocation_chain,
    concentrations_by_size,
    log_seats_of_a_new_row,
    size_probabilities,
)
from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.engine.gibbs import GibbsState, draw_unknown
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.sampling.parameters import STEPS
from lvsearch.inference.sampling.trace import arviz_data, diagnosed, table_of_diagnostics
from lvsearch.models.components import Component
from lvsearch.models.families import GammaStatistics, VectorGaussianStatistics
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.kernels import kernel
from lvsearch.models.plain_arguments import checked_seed, whole_number
from lvsearch.models.units import Row
from lvsearch.pictures.style import Caption, draw_captioned, palette_of
from lvsearch.sizing.prediction import PredictionEstimate, estimate_prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AT_ONCE = 16
"""The number of draws that are computed at once, side by side."""
SIMULATED = 1
"""A number folded into the random key of simulated rows, so that it differs from the key of the parameters."""
HELD = 0.95
"""The posterior probability of all intervals and bands."""
POINTS_OF_ONE_COLUMN, POINTS_OF_TWO_COLUMNS = 200, 60
"""The numbers of points on each axis at which a density is computed."""
ENCLOSED = (0.95, 0.8, 0.5)
"""The shares of new rows that the lines in a picture of two columns enclose."""
BARS = 30
"""The number of bars of the histogram behind the density of one column."""
MARGIN = 0.1
"""The share of a column's range by which the points go beyond its smallest and its largest cell."""


@dataclass(frozen=True, repr=False, eq=False)
class MixtureDraws:
    """Draws of everything in a mixture of rows: the number of components, who is where, weights and parameters.

    They are draws from the posterior over all numbers of components. Made by `result.draws()` and by
    `lv.mixture_posterior(…).draws()`. Draws are ordered chain by chain.

    | field | shape | meaning |
    |---|---|---|
    | `model`, `training` | | the mixture, and the rows that it was searched on |
    | `log_prior` | (size,) | log prior probability of K = 1, 2, … components, nats |
    | `chains` | | the number of chains, each with equally many draws |
    | `n_components` | (draw,) | K, the number of components |
    | `labels` | (draw, row) | the component of each row |
    | `weights` | (draw, component) | the components' weights, 0 beyond the K components |
    | `parameters` | (draw, component, …) | parameters as their kind stores them; `means()`, `covariances()` read them |
    | `hyperparameters` | {name: (draw, …)} | hyper-parameters that have priors, in the coordinates of the components |
    | `agreement` | | of `relabelled` draws: the share of rows with the component that the reference draw has them in |
    | `is_settled` | | whether the chains agree and are precise enough; if not, the description begins by saying so |

    Unless draws are relabelled, components have no names that could be compared: those with rows come first, in the
    order of their first row, and the empty ones follow.
    """

    model: RowMixture
    training: Points
    log_prior: Float64[np.ndarray, " size"]
    chains: int
    n_components: Int[np.ndarray, " draw"]
    labels: Int[np.ndarray, "draw row"]
    weights: Float64[np.ndarray, "draw component"]
    parameters: Any
    hyperparameters: Mapping[str, Float64[np.ndarray, "draw ..."]]
    agreement: float | None = None
    is_settled: bool = True

    def __len__(self) -> int:
        """Return the number of draws."""
        return len(self.n_components)

    @property
    def is_relabelled(self) -> bool:
        """True if components were matched between the draws (`relabelled`)."""
        return self.agreement is not None

    @property
    def occupied(self) -> Int[np.ndarray, " draw"]:
        """The number of components with rows in each draw, (draw,)."""
        return np.array([len(np.unique(labels)) for labels in self.labels])

    def describe(self) -> str:
        """Return in one sentence what the draws are of."""
        ends = [0.5 - HELD / 2, 0.5 + HELD / 2]
        few, many = np.quantile(self.occupied, ends, method="inverted_cdf").astype(int)
        number = f"{few}" if few == many else f"{few} to {many}"
        components = "component holds" if (few, many) == (1, 1) else "components hold"
        chains = f"{self.chains} chains" if self.chains > 1 else "1 chain"
        told = "" if self.is_settled else NOT_SETTLED
        if self.agreement is None:
            return f"{told}{len(self):,} draws of {chains}; {number} {components} rows in 95 % of them."
        matched = f"{100 * self.agreement:.0f} % of rows are in the component that the reference draw has them in."
        return f"{told}{len(self):,} draws in which {number} {components} rows, matched by their rows: {matched}"

    __repr__ = describe

    # ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────

    def means(self) -> Float64[np.ndarray, "draw component column"]:
        """Return the mean of a row under each component, (draw, component, column); NaN beyond the K components."""
        return self._where_it_exists(_means)

    def covariances(self) -> Float64[np.ndarray, "draw component column column"]:
        """Return the covariance of a row under each component, (draw, component, column, column); NaN beyond the K
        components.
        """
        return self._where_it_exists(_covariances)

    def diagnostics(self) -> pd.DataFrame:
        """Return a table that says whether the chains agree, and how many independent draws theirs are worth.

        It has a row for log p(training rows | weights, parameters) and one for each quantity that does not depend on
        how components are numbered. R̂ (`rhat`) should be at most 1.05, better 1.02, and `effective_sample_size` some
        hundreds at least. `lvsearch.inference.sampling.Trace.diagnostics` documents the columns. Longer chains:
        `result.mixture_posterior(fewest_sweeps=…).draws()`.
        """
        numbers = {
            "log_likelihood": self.log_likelihood().sum(axis=1),
            "n_components": self.n_components,
            "occupied": self.occupied,
            "largest_weight": self.weights.max(axis=1),
            **self.hyperparameters,
        }
        by_chain = (each.reshape(self.chains, -1, *each.shape[1:]).astype(float) for each in numbers.values())
        return table_of_diagnostics(tuple(numbers), [diagnosed(each, labelled=False) for each in by_chain])

    def relabelled(self, occupied: int | None = None) -> "MixtureDraws":
        """Return the draws with one number of components that hold rows, with components matched between the draws.

        The draw whose partition is closest to those of the others is the reference, and names the components, the one
        with most rows 0. In every other draw components get the names under which most rows agree with it. Empty
        components come last. `agreement` says how well this went: where it is far below 1, a component may be another
        one in another draw, and its interval mixes both.

        occupied: the number of components with rows; by default the most frequent one.

        Draws of all chains become one chain, since chains differ in how many they have. Raises ValueError if no draw
        has this number.
        """
        numbers = self.occupied
        wanted = int(np.bincount(numbers).argmax()) if occupied is None else whole_number("occupied", occupied, least=1)
        chosen = np.flatnonzero(numbers == wanted)
        if not len(chosen):
            raise ValueError(f"got occupied={wanted}, expected a number that some draw has: {sorted(set(numbers))}")
        labels = self.labels[chosen]
        tried = np.unique(np.linspace(0, len(chosen) - 1, CANDIDATES).astype(int))
        reference = labels[min(tried, key=lambda place: LOSSES["vi"].distances(labels[place], labels).mean())]
        by_size = np.argsort(-np.bincount(reference), kind="stable")
        reference = np.argsort(by_size)[reference]
        order = np.stack([_matching_order(each, reference, self.weights.shape[1]) for each in labels])

        named = np.take_along_axis(np.argsort(order, axis=1), labels, axis=1)

        def in_order(leaf: np.ndarray) -> np.ndarray:
            return np.take_along_axis(leaf[chosen], order.reshape(*order.shape, *[1] * (leaf.ndim - 2)), axis=1)

        return replace(
            self,
            chains=1,
            n_components=self.n_components[chosen],
            labels=named,
            weights=in_order(self.weights),
            parameters=jax.tree.map(in_order, self.parameters),
            hyperparameters={name: each[chosen] for name, each in self.hyperparameters.items()},
            agreement=float((named == reference).mean()),
        )

    def table(self) -> pd.DataFrame:
        """Return each weight and each mean of the components with its 95 % interval, as a table with a row for each.

        Only of `relabelled()` draws, where components are matched. The index is (component, what), where `what` is
        "weight" or the name of a column. The columns are `mean`, `lower` and `upper`; each number by
        itself lies between the latter two with 95 % probability. Empty components are left out, so that weights may sum
        to less than 1.

        Raises ValueError for draws that are not relabelled.
        """
        if not self.is_relabelled:
            raise ValueError("got draws whose components have no names, expected relabelled() ones")
        number = int(self.occupied[0])
        of_component = np.concatenate([self.weights[:, :number, None], self.means()[:, :number]], axis=2)
        ends = np.quantile(of_component, [0.5 - HELD / 2, 0.5 + HELD / 2], axis=0)
        names = pd.MultiIndex.from_product([range(number), ["weight", *self.training.columns]])
        columns = {"mean": of_component.mean(0).ravel(), "lower": ends[0].ravel(), "upper": ends[1].ravel()}
        return pd.DataFrame(columns, index=names.set_names(["component", "what"]))

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_likelihood(self, data: Any = None) -> Float64[np.ndarray, "draw row"]:
        """Return log p(row | weights, parameters) of each row in each draw, (draw, row), in nats.

        Components of the rows are summed out, so that rows are independent of each other given a draw.

        data: the rows; by default the training rows. Raises ValueError for other columns.
        """
        points = self.training if data is None else self.training.like_this(data)
        return log_likelihoods(self.model.components, self.parameters, self.weights, points)

    def log_predictive(self, data: Any) -> pd.DataFrame:
        """Return log p(row | training rows) of each new row, from all draws, as a table with a row for each.

        The probability is averaged over draws, and then its logarithm is taken. Given the partition and the
        hyper-parameters of a draw, the number of components, weights and parameters are integrated out in closed form.
        For Student's t this is not possible, and the drawn ones are used. Each row is scored by itself, without what
        the other new rows would tell. From `relabelled()` draws it is given their number of components with rows.

        data: the new rows.

        The columns are `log_predictive` and `monte_carlo_error`, its standard error from the sampling alone, both in
        nats. The error comes from how chains differ, and is NaN for a single chain.

        Raises ValueError for other columns.
        """
        points = self.training.like_this(data)
        each = self._log_predictive(points)
        found = np.logaddexp.reduce(each, axis=0) - np.log(len(self))
        # relative to the average of all draws: the average of each chain, (chain, row)
        of_chains = np.exp(each - found).reshape(self.chains, -1, each.shape[1]).mean(axis=1)
        several = self.chains > 1
        error = of_chains.std(axis=0, ddof=1) / np.sqrt(self.chains) if several else np.full(len(found), np.nan)
        return pd.DataFrame({"log_predictive": found, "monte_carlo_error": error}, index=row_index(points))

    def predict(self, data: Any) -> PredictionEstimate:
        """Return how probable new rows are given the training rows, averaged over all draws, in nats.

        `log_whole_set` is the log of the average over draws of the probability of all rows together. Where there are
        many rows a few draws decide it, and it tends to be too low. `log_per_unit` is the sum of `log_predictive`, in
        which each row has an average of its own; compare models by it.

        data: the new rows. Raises ValueError for other columns.
        """
        each, weights = self.log_likelihood(data), np.full(len(self), 1 / len(self))
        method = "partitions and hyper-parameters drawn, all else integrated out"
        if not self._knows_labels:
            method = "mixtures with their parameters drawn"
        estimate = estimate_prediction(weights, each, self.training.nouns.unit, method)
        doubt = "" if self.is_settled else ", of chains that do not agree yet or are not precise enough"
        return replace(
            estimate,
            log_per_unit=float(self.log_predictive(data)["log_predictive"].to_numpy().sum()),
            averaged_over=f"{len(self):,} draws of all sizes and parameters{doubt}",
        )

    def density(self, columns: Sequence[Any] | None = None) -> pd.DataFrame:
        """Return the density of one or two columns with a 95 % band, as a table with a row for each point.

        The points are evenly spaced, and go a tenth of the column's range beyond its smallest and its largest cell. For
        counts the points are the whole numbers, and the density is a probability.

        columns: the names of one or two columns; by default the first.

        The table has the values of the columns, `density`, and `lower` and `upper`, between which the density at this
        point lies with 95 % probability. The band is that of the density, not of new rows.

        Raises ValueError for unknown names, for more than two, and for kinds of components without a density of single
        columns.
        """
        asked = self.training.columns[:1] if columns is None else columns
        names = checked_columns(self.training, asked, (1, 2))
        chosen = tuple(self.training.columns.index(name) for name in names)
        each = [self._points_along(column, len(chosen)) for column in chosen]
        values = np.stack([axis.ravel() for axis in np.meshgrid(*each, indexing="ij")], axis=1)
        with jax.enable_x64(True), np.errstate(divide="ignore"):
            found = np.exp(
                _log_marginals(self.model.components, self.parameters, np.log(self.weights), values, columns=chosen)
            )
        lower, upper = np.quantile(found, [0.5 - HELD / 2, 0.5 + HELD / 2], axis=0)
        axes = {name: values[:, place] for place, name in enumerate(names)}
        return pd.DataFrame({**axes, "density": found.mean(0), "lower": lower, "upper": upper})

    def plot_density(self, columns: Sequence[Any] | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the density of one or two columns, and return the axes.

        Of one column: the density with its 95 % band over a histogram of the cells. Of two: the rows, with lines that
        enclose the densest half, 80 % and 95 % of new rows.

        columns: the names of one or two columns; by default the first.
        ax: the axes to draw on; None for a new figure.

        Raises ValueError as `density` does.
        """
        table = self.density(columns)
        return draw_captioned(ax, partial(self._draw_density, table))

    # ── new rows, and other programs ────────────────────────────────────────────────────────────────────────────────

    def simulate(self, seed: int = 0) -> Float64[np.ndarray, "draw row column"]:
        """Draw rows from each draw of the mixture, as many as there are training rows, (draw, row, column).

        They are draws from the posterior predictive distribution of other data like these, to compare with the data.
        Cells that are missing in the data are NaN. Rows of counts whose total is not modelled have the totals of the
        data.

        seed: decides all random numbers. Raises ValueError for a seed that is none.
        """
        key = jax.random.fold_in(jax.random.key(checked_seed(seed)), SIMULATED)
        return simulated_rows(self.model.components, key, self.parameters, self.weights, self.training)

    def to_arviz(self, seed: int = 0) -> Any:
        """Return the draws as an ArviZ `DataTree`, or as an `InferenceData` with ArviZ 0.x.

        | group | what it has |
        |---|---|
        | `posterior` | `n_components`, `occupied`, hyper-parameters; of `relabelled` draws `weight` and `mean` too |
        | `log_likelihood` | log p(row \\| draw) of each row, for `az.loo` and `az.compare` |
        | `posterior_predictive` | rows as in the data, drawn anew (`simulate`), for `az.plot_ppc` |
        | `observed_data` | the rows |

        seed: decides the rows of `posterior_predictive`.

        Raises ImportError if ArviZ is not installed.
        """
        posterior = {"n_components": self.n_components, "occupied": self.occupied, **self.hyperparameters}
        dims = {"rows": ["row", "column"]}
        hyper_axes = self.model.globals()
        dims |= {name: list(hyper_axes[name].axes) for name in self.hyperparameters}
        if self.is_relabelled:
            number = int(self.occupied[0])
            posterior |= {"weight": self.weights[:, :number], "mean": self.means()[:, :number]}
            dims |= {"weight": ["component"], "mean": ["component", "column"]}
        drawn = {
            "posterior": posterior,
            "log_likelihood": {"rows": self.log_likelihood()},
            "posterior_predictive": {"rows": self.simulate(seed)},
        }
        groups = {
            group: {name: each.reshape(self.chains, -1, *each.shape[1:]) for name, each in arrays.items()}
            for group, arrays in drawn.items()
        }
        coords = {"row": row_index(self.training).to_numpy(), "column": list(self.training.columns)}
        return arviz_data({**groups, "observed_data": {"rows": np.asarray(self.training)}}, dims, coords)

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _knows_labels(self) -> bool:
        """False if rows have latent variables of their own, variants (Student's t) or missing cells, without which a
        partition does not say how probable a new row is.
        """
        return self.model.components.n_variants == 1 and not self.model.components.partial_rows

    def _log_predictive(self, points: Points) -> Float64[np.ndarray, "draw row"]:
        """Return log p(row | partition and hyper-parameters) of new rows in each draw, (draw, row), in nats.

        Of kinds whose rows have latent variables of their own (variants, missing cells) it is log p(row | parameters).

        points: the new rows.
        """
        if not self._knows_labels:
            return self.log_likelihood(points)
        parts = np.stack([by_appearance(each) for each in self.labels])
        # one chain has all rows, the new ones without labels, so that their statistics lie alike
        known, new = self.training, points
        values = np.concatenate([known.values, new.values])
        rows = Points(values, np.concatenate([known.observed, new.observed]), known.columns).dataset()
        chain = allocation_chain(self.model, rows, self.log_prior, int(parts.max()) + 2)
        assert isinstance(chain, PartitionChain)  # as all mixtures of rows have
        positions = np.flatnonzero(np.asarray(chain.mixture.weight) > 0)
        labels = np.full((chain.mixture.elements, len(self)), -1, np.int32)
        labels[positions[: len(known)]] = parts.T
        counts = np.stack([np.bincount(each, minlength=chain.n_places) for each in parts])
        concentrations = concentrations_by_size(self.model, len(self.log_prior))
        log_seats = log_seats_of_a_new_row(self.log_prior, concentrations, counts).T
        log_hyper = {name: np.log(each).reshape(len(self), -1).T for name, each in self.hyperparameters.items()}
        found = []
        with jax.enable_x64(True):
            for first in range(0, len(self), AT_ONCE):
                # the last call repeats draws, since all calls have the same length
                some = np.minimum(np.arange(first, first + AT_ONCE), len(self) - 1)
                own = {name: each[:, some] for name, each in log_hyper.items()}
                each = _predictive(chain, labels[:, some], own, log_seats[:, some], positions[len(known) :])
                found.append(np.asarray(each).T[: len(self) - first])
        return np.concatenate(found)

    def _where_it_exists(self, moment: Callable[[Component, Any], Array]) -> np.ndarray:
        """Return a moment of the rows of each component, (draw, component, …), NaN beyond the K components.

        moment: (kind of component, parameters) -> the moment of each component of each draw.
        """
        with jax.enable_x64(True):
            found = np.asarray(moment(self.model.components, self.parameters))
        exists = np.arange(self.weights.shape[1]) < self.n_components[:, None]
        return np.where(exists.reshape(*exists.shape, *[1] * (found.ndim - 2)), found, np.nan)

    def _points_along(self, column: int, n_columns: int) -> Float64[np.ndarray, " point"]:
        """Return the points of one column at which its density is computed, the smallest first.

        n_columns: how many columns the density is of. Kinds of components that refuse fractions get whole numbers.
        """
        cells = self.training.values[:, column]
        low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
        if self._takes(column, low) and not self._takes(column, low + 0.5):
            return np.arange(low, high + 1)
        beyond = MARGIN * (high - low or 1.0)
        number = POINTS_OF_ONE_COLUMN if n_columns == 1 else POINTS_OF_TWO_COLUMNS
        return np.linspace(low - beyond, high + beyond, number)

    def _takes(self, column: int, value: float) -> bool:
        """Return True if the kind of components takes a row in which one column has this value and all others miss."""
        seen = np.arange(len(self.training.columns)) == column
        try:
            self.model.components.check(Row(np.where(seen, value, 0.0)[None], seen[None]))
        except ValueError:
            return False
        return True

    def _draw_density(self, table: pd.DataFrame, axes: "Axes") -> Caption:
        """Draw the density of one or two columns on existing axes, and return a caption.

        table: that of `density`.
        """
        palette, names = palette_of(axes), list(table.columns[:-3])
        if len(names) == 1:
            cells = self.training.values[:, self.training.columns.index(names[0])]
            axes.hist(cells[~np.isnan(cells)], bins=BARS, density=True, color=palette.muted, alpha=0.25)
            axes.fill_between(
                table[names[0]], table["lower"], table["upper"], color=palette.band, alpha=0.7, linewidth=0
            )
            axes.plot(table[names[0]], table["density"], color=palette.main)
            axes.set_xlabel(str(names[0]))
            axes.set_ylabel("density")
            axes.set_ylim(bottom=0)
            band = (
                "Line: the density, averaged over the draws. At each value it lies in the band with 95 % probability."
            )
            return Caption(f"The density of {names[0]}", f"{band} Bars: the data. {self.describe()}")
        across, along = (np.unique(table[name]) for name in names)
        rows = self.training.values[:, [self.training.columns.index(name) for name in names]]
        axes.scatter(*rows.T, s=8, color=palette.muted, linewidth=0)
        heights = table["density"].to_numpy().reshape(len(across), len(along))
        falling = np.sort(heights, axis=None)[::-1]
        held = np.searchsorted(np.cumsum(falling) / falling.sum(), ENCLOSED)
        axes.contour(across, along, heights.T, levels=np.unique(falling[held]), colors=[palette.main], linewidths=1.2)
        axes.set_xlabel(str(names[0]))
        axes.set_ylabel(str(names[1]))
        said = "Lines enclose half, 80 % and 95 % of new rows, where they are densest, averaged over the draws. "
        said += "Points: the rows of the data."
        return Caption(f"The density of {names[0]} and {names[1]}", f"{said} {self.describe()}")


def draw_mixtures(
    model: RowMixture,
    training: Points,
    log_prior: Float64[np.ndarray, " size"],
    recorded: AllocationDraws,
    draws: int,
    seed: int,
) -> MixtureDraws:
    """Return whole draws of a mixture, made from recorded partitions and hyper-parameters.

    model: the mixture that chains ran over. training: its rows.
    log_prior: log p(K) of K = 1, 2, … under which they ran, nats.
    recorded: the partitions of all chains, with their hyper-parameters.
    draws: about how many to make: equally many of each chain, evenly spaced. If there are fewer partitions, some are
        used several times, with other numbers of components, weights and parameters.
    seed: decides all random numbers.

    Raises ValueError if hyper-parameters were not recorded.
    """
    n_recorded, n_rows, chains = recorded.groups.shape
    hyper_axes = {name: site.axes for name, site in model.globals().items() if name in drawn_hyperparameters(model)}
    if set(hyper_axes) != set(recorded.log_hyper):
        raise ValueError(
            "got draws of partitions without their hyper-parameters, as folders of older versions have them; expected "
            "those of this version: search again"
        )
    each = max(1, -(-draws // chains))
    kept = np.round(np.linspace(0, n_recorded - 1, each)).astype(int)
    # (draw, row, chain) -> draws of one chain after the other
    labels = np.stack([by_appearance(one) for one in recorded.groups[kept].transpose(2, 0, 1).reshape(-1, n_rows)])
    log_hyper = {
        name: recorded.log_hyper[name][kept].transpose(2, 0, 1).reshape(len(labels), -1) for name in hyper_axes
    }
    log_hyper = {name: each if hyper_axes[name] else each[:, 0] for name, each in log_hyper.items()}
    sizes = _drawn_sizes(model, log_prior, labels, np.random.default_rng(seed))
    capacity = capacity_of((int(sizes.max()),))
    data = training.dataset()
    several_latents = len(model.globals()) - len(log_hyper) > 2 or len(set(model.locals()) - {"cells"}) > 1
    with jax.enable_x64(True):
        log_weights, parameters = _parameters_given_labels(
            model,
            jax.random.split(jax.random.key(seed), len(labels)),
            labels,
            sizes,
            log_hyper,
            None if recorded.cells is None else _all_cells(training, np.asarray(recorded.cells)[kept]),
            data.batches,
            data.unit_ids,
            blank_globals(model, data.extents, capacity, capacity, np.float64).mean,
            capacity=capacity,
            steps=STEPS if several_latents else 1,
        )
    exists = np.arange(capacity[0]) < sizes[:, None]
    weights = np.where(exists, np.exp(np.asarray(log_weights)), 0.0)
    hyper = {name: np.exp(each) for name, each in log_hyper.items()}
    parameters = jax.tree.map(np.asarray, parameters)
    return MixtureDraws(model, training, log_prior, chains, sizes, labels, weights, parameters, hyper)


def log_likelihoods(
    component: Component, parameters: Any, weights: Float64[np.ndarray, "draw component"], points: Points
) -> Float64[np.ndarray, "draw row"]:
    """Return log Σ_k w_k p(row | θ_k) of each row under each of several mixtures, (draw, row), in nats.

    component: the kind of component. parameters: statistics of θ, (draw, component, …). weights: w.
    points: the rows.
    """
    units = rows_of(points.dataset())[0]
    with jax.enable_x64(True), np.errstate(divide="ignore"):
        units = Row(np.asarray(units.value), np.asarray(units.observed))
        return np.asarray(_log_likelihoods(component, parameters, np.log(weights), units))


def drawn_hyperparameters(model: RowMixture) -> set[str]:
    """Return the names of the latent variables of a mixture that chains over partitions draw as hyper-parameters."""
    return {"rate"} if isinstance(model, IndependentNormalMixture) else set(model.components.inferred)


def _drawn_sizes(
    model: RowMixture,
    log_prior: Float64[np.ndarray, " size"],
    labels: Int[np.ndarray, "draw row"],
    random: np.random.Generator,
) -> Int[np.ndarray, " draw"]:
    """Draw the number of components of each draw given its partition, (draw,).

    log_prior: log p(K) of K = 1, 2, …, nats. labels: the part of each row, numbered from 0. random: it changes.
    """
    parts = labels.max(axis=1) + 1
    counts = np.stack([np.bincount(each, minlength=parts.max()) for each in labels])
    probability = size_probabilities(log_prior, concentrations_by_size(model, len(log_prior)), counts)
    below = np.cumsum(probability, axis=1) < random.random((len(labels), 1)) * probability.sum(axis=1, keepdims=True)
    return np.maximum(below.sum(axis=1) + 1, parts)


def _all_cells(
    training: Points, cells: Float64[np.ndarray, "recorded partial dim chain"]
) -> Float64[np.ndarray, "draw row dim"]:
    """Return the cells of all rows in each draw, those of one chain after the other; 0 for rows that lack none.

    cells: of the rows that lack some cells, but not all.
    """
    seen = training.observed
    partial = np.flatnonzero(seen.any(axis=1) & ~seen.all(axis=1))
    each = cells.transpose(3, 0, 1, 2).reshape(-1, *cells.shape[1:3])
    every = np.zeros((len(each), *seen.shape))
    every[:, partial] = each[:, : len(partial)]  # the rest is padding
    return every


def _matching_order(
    labels: Int[np.ndarray, " row"], reference: Int[np.ndarray, " row"], n_places: int
) -> Int[np.ndarray, " place"]:
    """Return which component takes each place so that most rows agree with a reference, (place,).

    labels, reference: the components of the rows, numbered from 0, as many in both. n_places: the number of places;
    components without rows stay where they are.
    """
    from scipy.optimize import linear_sum_assignment  # imported here: it takes a tenth of a second

    number = int(reference.max()) + 1
    both = np.zeros((number, number), int)
    np.add.at(both, (reference, labels), 1)
    order = np.arange(n_places)
    order[:number] = linear_sum_assignment(both, maximize=True)[1]
    return order


@kernel(static_argnames=("capacity", "steps"), once=True)
def _parameters_given_labels(
    model: RowMixture,
    keys: Array,
    labels: Int[Array, "draw row"],
    sizes: Int[Array, " draw"],
    log_hyper: Mapping[str, Float[Array, "draw ..."]],
    cells: Float[Array, "draw row dim"] | None,
    batches: tuple[Batch, ...],
    unit_ids: tuple[Array, ...],
    blank: Mapping[str, Any],
    *,
    capacity: tuple[int, ...],
    steps: int,
) -> tuple[Float[Array, "draw component"], Any]:
    """Draw weights and parameters given the components of the rows and hyper-parameters, by Gibbs steps.

    keys: a random key for each draw. labels: the component of each row. sizes: the number of components.
    log_hyper: the logarithm of each hyper-parameter that has a prior, by name.
    cells: of each row in the components' coordinates, where missing cells are latent variables; else None.
    batches, unit_ids: the rows, and the number of each.
    blank: {name: statistics of 0} of all latent variables that rows share.
    capacity: how many array slots there are for components. steps: the number of Gibbs steps.

    Returns: (log weights, statistics of the components' parameters, (draw, component, …)).
    """
    hyper = {name: GammaStatistics(each, -jnp.exp(each)) for name, each in log_hyper.items()}
    fixed = frozenset({"component", "cells", *hyper})
    log_variants = jnp.asarray(getattr(model.components, "log_variants", np.zeros(1)))

    def one(draw: Any) -> tuple[Array, Any]:
        key, components, size, own_hyper, own_cells = draw
        on = model.active((size,), capacity)

        def locals_of(number: int, ids: Array) -> dict[str, Any]:
            found: dict[str, Any] = {"component": jax.nn.one_hot(components[jnp.maximum(ids, 0)], capacity[0])}
            if "variant" in model.locals():
                shape = len(ids), capacity[0]
                drawn = jax.random.categorical(jax.random.fold_in(key, number), log_variants, shape=shape)
                found["variant"] = jax.nn.one_hot(drawn, len(log_variants))
            if own_cells is not None:
                c = own_cells[jnp.maximum(ids, 0)]
                c = jnp.broadcast_to(c[:, None], (len(ids), *capacity, c.shape[-1]))
                found["cells"] = VectorGaussianStatistics(c, -0.5 * c[..., :, None] * c[..., None, :])
            return found

        each = tuple(locals_of(number, jnp.asarray(ids)) for number, ids in enumerate(unit_ids))
        state = GibbsState({**blank, **own_hyper}, each)

        key_steps = jax.random.fold_in(key, STEPS)
        state = draw_unknown(model, key_steps, state, batches, unit_ids, on, fixed=fixed, steps=steps)
        return state.globals["weights"], model.component_statistics(state.globals)

    return jax.lax.map(one, (keys, labels, sizes, hyper, cells), batch_size=AT_ONCE)


@kernel(once=True)
def _predictive(
    chain: PartitionChain,
    labels: Int[Array, "row draw"],
    log_hyper: Mapping[str, Float[Array, "number draw"]],
    log_seats: Float[Array, "place draw"],
    rows: Int[Array, " new"],
) -> Float[Array, "new draw"]:
    """Return log p(row | partition, hyper-parameters) of some rows (`PartitionChain.log_predictive`), compiled."""
    return chain.log_predictive(labels, dict(log_hyper), log_seats, rows)


@kernel(once=True)
def _log_likelihoods(
    component: Component, parameters: Any, log_weights: Float[Array, "draw component"], units: Row
) -> Float[Array, "draw row"]:
    """Return log Σ_k w_k p(row | θ_k) of each row in each draw, (draw, row), in nats.

    parameters: statistics of θ, (draw, component, …). log_weights: log w. units: the rows.
    """

    def one(draw: tuple[Any, Array]) -> Array:
        statistics, log_weight = draw
        return jax.vmap(lambda row: jax.nn.logsumexp(log_weight + component.log_densities(statistics, row)))(units)

    return jax.lax.map(one, (parameters, log_weights), batch_size=AT_ONCE)


@kernel(static_argnames=("columns",), once=True)
def _log_marginals(
    component: Component,
    parameters: Any,
    log_weights: Float[Array, "draw component"],
    values: Float[Array, "point chosen"],
    *,
    columns: tuple[int, ...],
) -> Float[Array, "draw point"]:
    """Return the log-density of some columns at several points in each draw, (draw, point), in nats.

    parameters: statistics of the components, (draw, component, …). log_weights: of the components, nats.
    values: the columns' values at the points. columns: their numbers.
    """

    def one(draw: tuple[Any, Array]) -> Array:
        statistics, log_weight = draw
        each = component.marginal_log_densities(statistics, columns, values)
        return jax.nn.logsumexp(jnp.where(log_weight > -jnp.inf, each, 0.0) + log_weight, axis=1)

    return jax.lax.map(one, (parameters, log_weights), batch_size=AT_ONCE)


@kernel(once=True)
def _means(component: Component, parameters: Any) -> Float[Array, "draw component column"]:
    """Return the mean of a row under each component of each draw; covariances, which may be large, are not computed."""
    return jax.lax.map(jax.vmap(lambda one: component.moments(one)[0]), parameters, batch_size=AT_ONCE)


@kernel(once=True)
def _covariances(component: Component, parameters: Any) -> Float[Array, "draw component column column"]:
    """Return the covariance of a row under each component of each draw."""
    return jax.lax.map(jax.vmap(lambda one: component.moments(one)[1]), parameters, batch_size=AT_ONCE)
