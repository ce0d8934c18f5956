"""The record of a run: which quantities of a chain's states are recorded, and the trace of their draws with its
diagnostics.

A recorded quantity has a name, a shape, and named axes. The trace is what all samplers return: the draws of several
chains, and diagnostics of whether to trust them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Float64, Int, Key, Shaped

from lvsearch.inference.chains import Sampler
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.diagnostics import (
    FEWEST_EFFECTIVE,
    MOST_RHAT,
    bulk_effective_sample_size,
    mean_effective_sample_size,
    rhat,
)
from lvsearch.inference.kits import chain_kit

UNIT = "unit"
"""The axis of the units of data, such as documents or rows."""


class Quantity(NamedTuple):
    """A number, or an array of numbers, that is recorded of every draw of every chain.

    | field | meaning |
    |---|---|
    | `name` | its name, such as "occupied" |
    | `axes` | names of its own axes, which come after the axes chain and draw; () for a number |
    | `shape` | the lengths of these axes without padding; None for an axis whose length varies between draws |
    | `labelled` | True if its values change when components are renamed (label switching) |
    | `index_into` | the name of an axis, if the values are places on it, as each row's component is; else None |

    Neither draws nor chains need to agree on a labelled quantity. Along an axis of length None, draws are padded with 0
    to the longest one.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int | None, ...]
    labelled: bool
    index_into: str | None = None

    @property
    def renamed_axis(self) -> str | None:
        """The axis along which values change places when components are renamed: the first axis other than "unit". None
        without one.
        """
        own = [axis for axis in self.axes if axis != UNIT]
        return own[0] if self.labelled and self.index_into is None and own else None

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return True if an array of this shape can be one draw of the quantity."""
        pairs = zip(shape, self.shape, strict=True) if len(shape) == len(self.shape) else [(0, 1)]
        return all(expected in (None, length) for length, expected in pairs)


class Recorder(eqx.Module):
    """The base of recorders, which say what is recorded of the states of one type of chain.

    `quantities` is what it records (a tuple of `Quantity`: name, axes, shape). A subclass has `values`, which returns
    their values in the present states. It is a pytree whose `quantities` are static.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    @abstractmethod
    def values(self, chain: Any, state: Any) -> tuple[Array | np.ndarray, ...]:
        """Return the values of all quantities in the present states of a chain, in the order of `quantities`.

        chain: the sampler.
        state: its states, one for each particle (chain).

        Returns: for each quantity an array (particle, …), whose axes are at least as long as the quantity's. What is
            longer is cut off.
        """

    def draw(self, key: Key[Array, ""], chain: Any, state: Any) -> tuple[Array | np.ndarray, ...]:
        """Return what is recorded of the present states: `values`, unless a subclass also draws variables given the
        states.

        key: the random key of the draw. The rest is as in `values`.
        """
        return self.values(chain, state)


class Nothing(Recorder):
    """A recorder of no quantities. The run loop records the log density all the same."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True, default=())

    def values(self, chain: Any, state: Any) -> tuple[Array, ...]:
        """Return (), since nothing is recorded."""
        return ()


def recorder(chain: Sampler, data: Dataset, *, units: bool) -> Recorder:
    """Return the recorder for a chain of some data (`StatesKit.recorder`).

    chain: the sampler.
    data: the data that it runs on.
    units: True to record what belongs to each unit (document, row) too, such as a document's topics. These arrays are
        (chain, draw, unit, …) and may be large.

    Raises TypeError for a type of chain that has none: its draws would hold nothing but the log density.
    """
    return chain_kit(chain).states.recorder(chain, data, units=units)


def rows_of_units(data: Dataset) -> Int[np.ndarray, " units"]:
    """Return where each unit (document, row) stands in the batches put end to end, padding included, (unit,)."""
    ids = np.concatenate([np.asarray(each) for each in data.unit_ids])
    rows = np.zeros(data.n_units, np.int64)
    rows[ids[ids >= 0]] = np.flatnonzero(ids >= 0)
    return rows


LOG_DENSITY, LOG_LIKELIHOOD = "log_density", "log_likelihood"
"""Names of quantities: log p(state, data), and log p(unit given all that the units share), both in nats."""
MOST_MATCHINGS = 100
"""The largest number of times that draws are matched to the averages of their components; mostly a few suffice."""
FEWEST_DRAWS = 4
"""The fewest draws of a chain for which diagnostics are computed: each of its halves must be able to vary."""


@dataclass(frozen=True, repr=False, eq=False)
class Trace:
    """The draws of several chains, and the states in which the chains are now.

    | field | shape | meaning |
    |---|---|---|
    | `quantities` | | what was recorded, in the order of `values` |
    | `values` | (chain, draw, …) each | the draws of each quantity; `trace["name"]` finds one by its name |
    | `log_density` | (chain, draw) | log p(state, data), nats, without the parameters that are integrated out |
    | `state` | | arrays of the chains' states after the last sweep, to continue from |
    | `key` | | data of the random key of the run |
    | `sweep` | | how many sweeps each chain made, with the warm-up |
    | `warmup`, `thin` | | sweeps before the first draw's; sweeps from one draw to the next |
    | `asked` | | how many draws of each chain were asked for; an interrupted run has fewer |
    """

    quantities: tuple[Quantity, ...]
    values: tuple[np.ndarray, ...]
    log_density: Float64[np.ndarray, "chain draw"]
    state: tuple[np.ndarray, ...]
    key: np.ndarray
    sweep: int
    warmup: int
    thin: int
    asked: int

    @property
    def chains(self) -> int:
        """The number of chains."""
        return self.log_density.shape[0]

    @property
    def draws(self) -> int:
        """The number of draws of each chain."""
        return self.log_density.shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the recorded quantities, without the log density."""
        return tuple(quantity.name for quantity in self.quantities)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the draws of one quantity by its name, (chain, draw, …); "log_density" is a name too.

        Raises KeyError, with all names, for another name.
        """
        if name == LOG_DENSITY:
            return self.log_density
        if name not in self.names:
            raise KeyError(f"got {name!r}, expected one of {', '.join((LOG_DENSITY, *self.names))}")
        return self.values[self.names.index(name)]

    def diagnostics(self) -> pd.DataFrame:
        """Return a table that says whether the chains agree, and how many independent draws theirs are worth.

        It has a row for the log density and one for each quantity.

        | column | meaning |
        |---|---|
        | `mean`, `standard_error` | for a single number: the average of all draws and its Monte Carlo error |
        | `rhat` | rank-normalised split R̂, the largest of its elements (Vehtari et al. 2021) |
        | `effective_sample_size` | bulk effective draws of all chains together, the fewest of its elements |
        | `note` | why numbers are missing, or not to be believed; "" if nothing is wrong |

        NaN stands for numbers that are not known. A quantity that never changed has NaN, and so has one with fewer than
        4 draws. A quantity that changes when components are renamed has NaN too: chains that agree may still name them
        differently, and so may draws of one chain.
        """
        names = (LOG_DENSITY, *self.names)
        return table_of_diagnostics(names, [self._diagnosed(name) for name in names])

    def largest_rhat(self, names: Sequence[str]) -> float:
        """Return the largest R̂ of the log density and of some quantities, of those that are known; NaN if none is.

        names: the quantities. Raises KeyError for one that was not recorded.
        """
        each = [self._diagnosed(name)[2] for name in (LOG_DENSITY, *names)]
        return max((value for value in each if not np.isnan(value)), default=float("nan"))

    def _diagnosed(self, name: str) -> tuple[float, float, float, float, str]:
        """Return the row of one quantity in the table of `diagnostics`."""
        labelled = any(quantity.labelled for quantity in self.quantities if quantity.name == name)
        return diagnosed(self[name], labelled=labelled)

    def every(self, step: int) -> "Trace":
        """Return the trace with every `step`-th draw of each chain alone, which can be continued at this pace.

        Raises ValueError for a step below 1.
        """
        if step < 1:
            raise ValueError(f"got step={step}, expected a whole number of at least 1")
        kept = slice(step - 1, None, step)
        values = tuple(each[:, kept] for each in self.values)
        return replace(self, values=values, log_density=self.log_density[:, kept], thin=step * self.thin)

    def relabelled(self, by: str) -> "Trace":
        """Return the trace with components matched between all draws of all chains, so that they can be averaged.

        Draws name their components in any order. Here they are renamed so that the values of one quantity are as close
        as possible to their own averages over all draws: in turn each draw is matched to the averages, and these are
        computed again, until no draw changes (the alternation of Stephens 2000, with squared distances). The draw with
        the highest log density names them at first. Each number is divided by its standard deviation over all draws and
        components beforehand.

        by: a quantity that tells components apart and has a value for each, such as "topic_word", "components.mean", or
            "components.precision" where they differ in width alone. Its first axis (other than "unit") is the one whose
            entries are renamed, in all quantities that have it.

        Renamed quantities are no longer `labelled`, so that `diagnostics` says of them too whether chains agree. Where
        they do not, components of different chains differ in more than their names, or `by` does not tell them apart.
        A relabelled trace cannot be continued.

        Raises ValueError for a trace without draws, for a quantity that does not depend on names, and for one between
        components, such as "transitions", whose columns have other names in every draw. Raises KeyError for one that
        was not recorded.
        """
        values = self[by]
        candidates = [q for q in self.quantities if q.renamed_axis is not None and q.axes.count(q.renamed_axis) == 1]
        axis = next((q.renamed_axis for q in candidates if q.name == by), None)
        if axis is None:
            expected = ", ".join(q.name for q in candidates)
            raise ValueError(
                f"got by={by!r}, which does not have one value for each component; expected one of: {expected}"
            )
        if not self.draws:
            raise ValueError("got a trace without draws, expected one with some")
        place = next(q.axes.index(axis) for q in self.quantities if q.name == by)
        entries = np.moveaxis(values, 2 + place, 2)
        order = _matching_orders(entries.reshape(-1, *entries.shape[2:]), self.log_density.ravel())
        order = order.reshape(self.chains, self.draws, -1)
        # quantities that depend on the names of other components too, as blocks do of a matrix's columns, still do
        others = {q.renamed_axis for q in self.quantities} - {axis, None}
        quantities = [
            q._replace(labelled=False) if axis in (*q.axes, q.index_into) and not others.intersection(q.axes) else q
            for q in self.quantities
        ]
        arrays = [_renamed(v, q, axis, order) for q, v in zip(self.quantities, self.values, strict=True)]
        return replace(self, quantities=tuple(quantities), values=tuple(arrays))

    def intervals(self, name: str, probability: float = 0.95) -> pd.DataFrame:
        """Return the mean of each number of a quantity over all draws, and its interval, as a table.

        name: the quantity. Of a `labelled` one this says something only after `relabelled`.
        probability: that of each interval. Its ends are quantiles of the draws of all chains, with equal probabilities
            below and above; each number is taken by itself.

        The index is the number's place on the quantity's own axes; of two axes with one name the second has a 2 behind
        it, as "state" (from) and "state_2" (to) of transitions. The columns are `mean`, `lower` and `upper`.

        Raises KeyError for a name that was not recorded, ValueError for a probability outside of (0, 1), and for a
        trace without draws.
        """
        values = self[name]
        if not 0 < probability < 1 or not self.draws:
            raise ValueError(f"got probability={probability} and {self.draws} draws; expected one in (0, 1), and draws")
        axes = distinct_names(next((q.axes for q in self.quantities if q.name == name), ()))
        flat = values.reshape(self.chains * self.draws, -1)
        lower, upper = np.quantile(flat, [0.5 - probability / 2, 0.5 + probability / 2], axis=0)
        shape = values.shape[2:]
        index = pd.MultiIndex.from_product([range(n) for n in shape], names=axes) if len(axes) > 1 else None
        if len(axes) == 1:
            index = pd.RangeIndex(shape[0], name=axes[0])
        return pd.DataFrame({"mean": flat.mean(0), "lower": lower, "upper": upper}, index=index)

    @property
    def agree(self) -> bool:
        """True if R̂ and effective draws of the log density and of all other known quantities are within their limits.

        The limits are R̂ of at most 1.05 and at least 100 effective draws. False if those of the log density are
        unknown.
        """
        table = self.diagnostics()
        rhats, effective = table["rhat"].to_numpy(), table["effective_sample_size"].to_numpy()
        known = not np.isnan(effective[0])  # of the log density, which is the first row
        return bool(known and not np.any((rhats > MOST_RHAT) | (effective < FEWEST_EFFECTIVE)))

    def describe(self) -> str:
        """Return the trace in words: how many draws there are, whether the chains agree, and if not, what to do."""
        made = f"{self.draws} draws of each of {self.chains} chain{'s' if self.chains > 1 else ''}"
        if self.draws < self.asked:
            made += f", of {self.asked} that were asked for"
        if not self.draws:
            return f"{made}: stopped after {self.sweep} sweeps, nothing is known yet."
        table = self.diagnostics()
        notes = dict(zip(table.index, table["note"].tolist(), strict=True))
        if notes[LOG_DENSITY]:
            return f"{made}: not an answer yet. The log density: {notes[LOG_DENSITY]}."
        worst = f"R-hat {table['rhat'].max():.3f}, {table['effective_sample_size'].min():.0f} effective draws"
        verdict = (
            f"{'The chains agree' if self.chains > 1 else 'Its two halves agree'} ({worst})."
            if self.agree
            else f"Not an answer yet ({worst}; expected at most {MOST_RHAT} and at least {FEWEST_EFFECTIVE}): ask for "
            "more draws."
        )
        alone = " One chain knows nothing of what it did not reach: ask for several." if self.chains == 1 else ""
        noted = [f"\n  {q.name}: {notes[q.name]}" for q in self.quantities if notes[q.name] and not q.labelled]
        return f"{made}. {verdict}{alone}{''.join(noted)}"

    def __repr__(self) -> str:
        """Return the description of the trace, with the names of the recorded quantities and how often draws were
        recorded.
        """
        recorded = ", ".join(f"{q.name} ({', '.join(('chain', 'draw', *q.axes))})" for q in self.quantities)
        pace = "one draw a sweep" if self.thin == 1 else f"one draw in {self.thin} sweeps"
        return f"{self.describe()}\n  {recorded or 'the log density alone'}; {pace} after {self.warmup} of warm-up"

    def to_arviz(self) -> Any:
        """Return the draws as an ArviZ `DataTree`, or as an `InferenceData` with ArviZ 0.x.

        Its groups are `posterior` with the quantities, `sample_stats` with the log density as `lp`, and, where it was
        recorded, `log_likelihood` with that of the units (`units`), for `az.loo` and `az.compare`.

        Raises ImportError if ArviZ is not installed.
        """
        posterior = dict(zip(self.names, self.values, strict=True))
        dims = {q.name: list(q.axes) for q in self.quantities}
        groups = {"posterior": posterior, "sample_stats": {"lp": self.log_density}}
        if LOG_LIKELIHOOD in posterior:
            groups[LOG_LIKELIHOOD] = {"units": posterior.pop(LOG_LIKELIHOOD)}
            dims["units"] = dims.pop(LOG_LIKELIHOOD)
        return arviz_data(groups, dims)

    def to_storage(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """Return all that is needed to store the trace, for `from_storage` to read.

        Returns: (settings for JSON, arrays by group and name). The groups are "draws" and "position".
        """
        settings = {
            "quantities": [[q.name, list(q.axes), list(q.shape), q.labelled, q.index_into] for q in self.quantities],
            **{name: getattr(self, name) for name in ("sweep", "warmup", "thin", "asked")},
        }
        arrays = {
            "draws": {LOG_DENSITY: self.log_density, **_numbered(self.values)},
            "position": {"key": self.key, **_numbered(self.state)},
        }
        return settings, arrays

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, Mapping[str, np.ndarray]]) -> "Trace":
        """Return the trace that `to_storage` turned into settings and arrays.

        settings, arrays: the two results of `to_storage`, as read from files.

        Raises KeyError for parts that are missing, and ValueError for shapes that do not fit and settings of the wrong
        type.
        """
        quantities = tuple(
            Quantity(name, tuple(axes), tuple(shape), *rest)  # folders of older versions lack the last of the rest
            for name, axes, shape, *rest in settings["quantities"]
        )
        counts = [settings[name] for name in ("sweep", "warmup", "thin", "asked")]
        # everything that a damaged file could hold is refused here, not where it is used
        named = all(isinstance(text, str) for q in quantities for text in (q.name, *q.axes))
        named = named and all(isinstance(q.index_into, str | None) for q in quantities)
        lengths = [length for q in quantities for length in q.shape if length is not None]
        if not named or not all(type(number) is int and number >= 0 for number in (*counts, *lengths)):
            raise ValueError(
                "got settings of a trace that are not names and whole numbers; restore the folder from a copy"
            )
        draws, position = arrays["draws"], arrays["position"]
        values = tuple(draws[str(i)] for i in range(len(quantities)))
        found = draws[LOG_DENSITY].shape
        if len(found) != 2 or any(array.dtype.kind not in "biuf" for array in (draws[LOG_DENSITY], *values)):
            raise ValueError(
                "got draws of a trace that are not numbers by chain and draw; restore the folder from a copy"
            )
        if any(v.shape[:2] != found or not q.fits(v.shape[2:]) for q, v in zip(quantities, values, strict=True)):
            raise ValueError(
                "got draws of a trace whose shapes do not fit their quantities; restore the folder from a copy"
            )
        return cls(
            quantities,
            values,
            draws[LOG_DENSITY],
            tuple(position[str(i)] for i in range(len(position) - 1)),
            position["key"],
            *counts,
        )


def _matching_orders(
    entries: Shaped[np.ndarray, "draw component ..."], log_density: Float64[np.ndarray, " draw"]
) -> Int[np.ndarray, "draw component"]:
    """Return the component of each draw that takes each place, (draw, place), so that draws agree as well as possible.

    The sum of squared distances of all components from the averages of their places is made as small as alternating
    steps make it: match each draw to the averages, then compute these anew.

    entries: the values by which components are matched. log_density: of each draw; the highest one names the places.
    """
    from scipy.optimize import linear_sum_assignment  # imported here: it takes a tenth of a second

    flat = np.asarray(entries, np.float64).reshape(*entries.shape[:2], -1)
    spread = flat.std(axis=(0, 1))
    flat = flat / np.where(spread > 0, spread, 1.0)
    averages, order = flat[np.argmax(log_density)], np.full(flat.shape[:2], -1)
    for _ in range(MOST_MATCHINGS):
        gain = np.einsum("dkf,pf->dkp", flat, averages, optimize=True) - 0.5 * (averages**2).sum(1)
        found = np.stack([linear_sum_assignment(each.T, maximize=True)[1] for each in gain])
        if np.array_equal(found, order):
            break
        order = found
        averages = np.take_along_axis(flat, order[:, :, None], axis=1).mean(0)
    return order


def _renamed(
    values: Shaped[np.ndarray, "chain draw ..."],
    quantity: Quantity,
    axis: str,
    order: Int[np.ndarray, "chain draw component"],
) -> Shaped[np.ndarray, "chain draw ..."]:
    """Return a quantity's values with components renamed, in whatever place they have.

    axis: the axis whose entries are renamed. order: the component of each draw that takes each place.
    """
    if quantity.index_into == axis:
        new_names, flat = np.argsort(order, axis=2), values.reshape(*values.shape[:2], -1)
        values = np.take_along_axis(new_names, flat, axis=2).reshape(values.shape).astype(values.dtype)
    for place, name in enumerate(quantity.axes):
        if name == axis:
            index = np.expand_dims(order, [2 + other for other in range(len(quantity.axes)) if other != place])
            values = np.take_along_axis(values, index, axis=2 + place)
    return values


def table_of_diagnostics(names: Sequence[str], rows: Sequence[tuple[float, float, float, float, str]]) -> pd.DataFrame:
    """Return the table of `Trace.diagnostics`.

    names: of the quantities. rows: what `diagnosed` says of each.
    """
    columns = ["mean", "standard_error", "rhat", "effective_sample_size", "note"]
    return pd.DataFrame(rows, columns=columns, index=pd.Index(names, name="quantity"))


def arviz_data(
    groups: Mapping[str, Mapping[str, np.ndarray]],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Any] | None = None,
) -> Any:
    """Return groups of arrays as an ArviZ `DataTree`, or as an `InferenceData` with ArviZ 0.x.

    groups: {name of a group: {name of a quantity: its draws, (chain, draw, …)}}; `observed_data` has no draws.
    dims: {name of a quantity: its own axes}, after chain and draw.
    coords: {axis: names of its entries}; by default they are numbered.

    Raises ImportError if ArviZ is not installed.
    """
    try:
        import arviz  # pyright: ignore[reportMissingImports] — an extra
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ, which is not installed: pip install 'lvsearch[arviz]'") from error
    taken = {name for group in groups.values() for name in group}
    # a dimension and a variable of one name cannot stand in one data set
    renamed = {
        name: [f"{axis}_index" if axis in taken else axis for axis in distinct_names(axes)]
        for name, axes in dims.items()
    }
    named = {} if coords is None else {"coords": dict(coords)}
    if arviz.__version__.startswith("0."):  # the last for Python 3.11
        return arviz.from_dict(**groups, dims=renamed, **named)
    return arviz.from_dict(groups, dims=renamed, **named)


def distinct_names(axes: Sequence[str]) -> list[str]:
    """Return names of axes in which the second of the same name has a 2 behind it, such as state, state_2."""
    return [f"{axis}_{n}" if (n := 1 + axes[:place].count(axis)) > 1 else axis for place, axis in enumerate(axes)]


def _numbered(arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    """Return arrays as a dictionary with their positions "0", "1", … as keys."""
    return {str(place): array for place, array in enumerate(arrays)}


def diagnosed(
    draws: Float[np.ndarray, "chain draw ..."] | Any, *, labelled: bool
) -> tuple[float, float, float, float, str]:
    """Return one row of the table of `Trace.diagnostics`: (mean, standard error, R̂, effective draws, note).

    Mean and standard error are of a single number, and NaN for arrays. R̂ is the worst and effective draws the fewest
    over the elements. What cannot be computed is NaN; the note says why.

    draws: the draws of one quantity, (chain, draw, …).
    labelled: True if the quantity changes when components are renamed; then all but the mean is NaN.
    """
    nan, (chains, n_draws) = float("nan"), draws.shape[:2]
    elements = np.asarray(draws, np.float64).reshape(chains, n_draws, int(np.prod(draws.shape[2:])))
    single = draws.ndim == 2
    mean = float(elements.mean()) if single and n_draws else nan
    if labelled:
        return mean, nan, nan, nan, "changes with the names of components, so neither chains nor draws need agree on it"
    if n_draws < FEWEST_DRAWS:
        return mean, nan, nan, nan, f"fewer than {FEWEST_DRAWS} draws of a chain"
    if not np.all(np.isfinite(elements)):
        return mean, nan, nan, nan, "not a number, or not finite, somewhere"
    if not elements.shape[2]:
        return mean, nan, nan, nan, "has no elements"
    still = np.ptp(elements, axis=1) == 0  # (chain, element)
    moving = elements[:, :, np.ptp(elements, axis=(0, 1)) > 0]  # elements with more than one value
    if not moving.shape[2]:
        return mean, nan, nan, nan, "never moved, so how fast the chains move is unknown"
    worst = max(rhat(moving[..., i]) for i in range(moving.shape[2]))
    stuck = int(still.all(1).sum())
    if stuck:  # that chains disagree can be seen then, that they agree cannot
        return mean, nan, worst if worst > MOST_RHAT else nan, nan, f"{stuck} of {chains} chains never moved"
    fewest = min(bulk_effective_sample_size(moving[..., i]) for i in range(moving.shape[2]))
    error = float(elements.std() / np.sqrt(mean_effective_sample_size(elements[..., 0]))) if single else nan
    return mean, error, worst, fewest, "some elements never moved" if still.all(0).any() else ""
