"""Draws of the parameters that a chain integrates out, and the descriptions of a model's latent variables as recorded
quantities.

A collapsed chain draws which component, topic or hidden state each part of the data belongs to, with weights and
parameters integrated out. Given these indicators and the hyper-parameters, the parameters are drawn from their
complete conditionals, by Gibbs steps from the gradient of the model's log-joint (`lvsearch.inference.engine.gibbs`).
Where they are independent of each other given these, one step draws them exactly, and everything together is a draw
from the posterior. Where they are not, as the means and the common precision of a tied mixture, 30 steps from 0 come
very near to it. Each type of chain says how its states are read as latent variables
of its model (`latents_reader`); nothing else here knows which chain it is.

A *chain* is a sampler with its data; its states hold several *particles*, which are Markov chains side by side. A
*site* is a latent variable of the model. *Globals* are shared by all units of data, *locals* belong to one unit.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.chains import Sampler, State
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.gibbs import GibbsState, draw_unknown
from lvsearch.inference.engine.meanfield_starts import blank_globals, blank_unit
from lvsearch.inference.engine.summed_out import log_unit_summed
from lvsearch.inference.kits import chain_kit
from lvsearch.inference.sampling.trace import LOG_LIKELIHOOD, UNIT, Quantity, Recorder, rows_of_units
from lvsearch.models.contract import Latents, Masks, Model, Site, Statistics, Unit
from lvsearch.models.families import GammaStatistics, IndicatorFamily

STEPS = 30
"""The number of Gibbs steps for the parameters of a draw where several of them depend on each other given the
indicators.
"""


class LatentsReader(eqx.Module):
    """The base of readers, which return the latent variables that the states of one type of chain hold.

    | field | meaning |
    |---|---|
    | `model`, `size` | the model whose variables are drawn, and how many components it has, traced |
    | `capacity` | how many array slots there are for components |
    | `steps` | Gibbs steps that draw the other variables: 1 where they are independent given those of the state |
    """

    model: Model
    size: tuple[Any, ...]
    capacity: tuple[int, ...] = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    @abstractmethod
    def known(self, state: State) -> GibbsState:
        """Return the statistics of the latent variables that a state holds, with particles on the first axis.

        Locals have units on the second axis. What the state does not hold is 0 where the log-joint does not depend on
        it, such as the scores of a row in components that it does not belong to.
        """

    def numbers(self, state: State) -> Any:
        """Return hyper-parameters that a state holds as arrays with particles on the first axis, for `model_with`.

        Only for hyper-parameters in which the log-joint is no sum over statistics. By default there are none: ().
        """
        return ()

    def model_with(self, numbers: Any) -> Model:
        """Return the model at the hyper-parameters of one particle (`numbers` without its first axis)."""
        return self.model


class LabelReader(LatentsReader):
    """The reader of chains whose states have one label for each unit: its component, and its variant.

    A variant is one of several ways in which a row may arise in its component, such as one of the precisions of a
    Student's t.

    | field | meaning |
    |---|---|
    | `places` | for each batch, where the label of each unit stands in the chain, (unit,) |
    | `n_variants` | V: label k V + v is variant v of component k; 1 where components have no variants |
    | `hyper` | names of the hyper-parameters that the states hold, in `log_hyper` |
    """

    places: tuple[Int[np.ndarray, " unit"], ...]
    n_variants: int = eqx.field(static=True, default=1)
    hyper: tuple[str, ...] = eqx.field(static=True, default=())

    def known(self, state: Any) -> GibbsState:
        """Return the hyper-parameters that a state holds, and each unit's component and variant, one-hot.

        state: has `labels`, (place, particle), and `log_hyper`, {name: (number, particle)}.
        """
        hyper = {}
        for name in self.hyper:
            log_values = state.log_hyper[name]
            log_value = log_values.T if self.model.globals()[name].axes else log_values[0]
            hyper[name] = GammaStatistics(log_value, -jnp.exp(log_value))
        return GibbsState(hyper, tuple(self._indicators(state.labels[places].T) for places in self.places))

    def _indicators(self, labels: Int[Array, "particle unit"]) -> dict[str, Array]:
        """Return {name of a variable: its indicators, (particle, unit, …)} of the units of one batch."""
        component = one_hot(labels // self.n_variants, self.capacity[0])
        found = {self.model.representation: component}
        if self.n_variants > 1:
            variant = one_hot(labels % self.n_variants, self.n_variants)
            found["variant"] = component[..., None] * variant[..., None, :]
        return found


def places_in_batches(data: Dataset) -> tuple[Int[np.ndarray, " unit"], ...]:
    """Return where each unit of each batch stands in the batches put end to end, padding included, (unit,) each."""
    lengths = [len(ids) for ids in data.unit_ids]
    ends = np.cumsum(lengths).tolist()
    return tuple(np.arange(end - length, end) for length, end in zip(lengths, ends, strict=True))


def one_hot(labels: Int[Array, "*unit"], number: int) -> Float[Array, "*unit label"]:
    """Return indicators of labels on a new last axis of length `number`, float64; all 0 for a label of −1."""
    return jax.nn.one_hot(labels, number, dtype=jnp.float64)


def latents_reader(chain: Sampler, model: Model, data: Dataset) -> LatentsReader | None:
    """Return the reader of a chain's states, or None for a chain whose recorder has all parameters of the model.

    model, data: the model and the data set that the chain was made of.

    Raises TypeError for a type of chain that says neither.
    """
    return chain_kit(chain).states.latents_reader(chain, model, data)


def no_reader_needed(chain: Sampler, model: Model, data: Dataset) -> None:
    """Return None, the reader of a chain whose own recorder has all parameters of the model."""


class ParameterRecorder(Recorder):
    """A recorder of all that the chain's own recorder has, and of the parameters that the chain integrates out.

    | field | meaning |
    |---|---|
    | `own` | the chain's own recorder |
    | `reader` | what the chain's states hold |
    | `batches`, `unit_ids` | the units of data, and the number of each |
    | `blank` | {name: statistics of 0} of all globals |
    | `order` | where each unit stands in the batches put end to end, (unit,); None: locals are not recorded |
    | `has_likelihood` | whether log p(unit given the globals) is recorded, with indicators summed out; needs `order` |
    """

    own: Recorder
    reader: LatentsReader
    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]
    blank: dict[str, Statistics]
    order: Int[np.ndarray, " units"] | None
    has_likelihood: bool = eqx.field(static=True)

    def values(self, chain: Any, state: State) -> tuple[Array | np.ndarray, ...]:
        """Return the values of the chain's own recorder alone: parameters are not known, but drawn (`draw`)."""
        return self.own.values(chain, state)

    def draw(self, key: Key[Array, ""], chain: Any, state: State) -> tuple[Array | np.ndarray, ...]:
        """Return the values of the chain's own recorder, and draws of all other latent variables given the state.

        key: the random key of the draw. Each is (particle, …).
        """
        drawn = self.drawn_sites(key, state)
        found = drawn.arrays(self.reader.model, self.order)
        if self.has_likelihood:
            found.append(_concatenate_batches(drawn.log_likelihood)[:, self.order])
        return (*self.own.draw(key, chain, state), *found)

    def drawn_sites(self, key: Key[Array, ""], state: State) -> "SiteValues":
        """Return the values of the latent variables that the state does not hold, drawn given those that it holds.

        key: the random key of the draw. Without `order`, locals are left out.
        """
        model, capacity = self.reader.model, self.reader.capacity
        on, known = model.active(self.reader.size, capacity), self.reader.known(state)
        held = {*known.globals, *known.locals[0]}
        globals_, locals_ = (
            [name for name in sites if name not in held] for sites in (model.globals(), model.locals())
        )
        if self.order is None:
            locals_ = []
        fixed = frozenset({*model.globals(), *model.locals()}.difference(globals_, locals_))
        indicators = tuple(model.locals()) if self.has_likelihood else ()

        def one(particle: tuple[Array, GibbsState, Any]) -> tuple[GibbsState, list[Array]]:
            """Return all latent variables of one particle, and log p(unit given the globals) of each batch's units."""
            own_key, state, numbers = particle
            blank = (
                jax.vmap(lambda unit: blank_unit(model, unit, on, jnp.float64).mean)(batch.units)
                for batch in self.batches
            )
            begin = tuple({**nothing, **own} for nothing, own in zip(blank, state.locals, strict=True))
            begin = GibbsState({**self.blank, **state.globals}, begin)
            own_model, steps = self.reader.model_with(numbers), self.reader.steps
            drawn = draw_unknown(own_model, own_key, begin, self.batches, self.unit_ids, on, fixed=fixed, steps=steps)
            if not indicators:
                return drawn, []

            def log_likelihood(unit: Unit, values: Latents) -> Array:
                return log_unit_summed(own_model, drawn.globals, values, unit, on, indicators)[0]

            pairs = zip(self.batches, drawn.locals, strict=True)
            return drawn, [jax.vmap(log_likelihood)(batch.units, values) for batch, values in pairs]

        keys = jax.random.split(key, len(jax.tree.leaves(known)[0]))
        drawn, log_likelihood = jax.lax.map(one, (keys, known, self.reader.numbers(state)))
        return SiteValues(
            {name: site_value(model.globals()[name], drawn.globals[name], on) for name in globals_},
            {name: [site_value(model.locals()[name], l[name], on) for l in drawn.locals] for name in locals_},
            tuple(log_likelihood),
        )


def with_parameters(own: Recorder, chain: Sampler, model: Model, data: Dataset, *, units: bool) -> Recorder:
    """Return a recorder of what `own` records and of all parameters that the chain integrates out.

    own: the chain's own recorder. model, data: the model and the data set that the chain was made of.
    units: whether variables of each unit that the chain integrates out, such as topic proportions, are recorded too,
        and log p(unit given all that the units share) where its indicators can be summed out.
    """
    reader = latents_reader(chain, model, data)
    if reader is None:
        return own
    capacity = reader.capacity
    with jax.enable_x64(True):
        blank = jax.tree.map(np.asarray, blank_globals(model, data.extents, capacity, capacity, np.float64).mean)
        order = rows_of_units(data) if units else None
        has_likelihood = units and indicators_can_be_summed_out(model)
        fields = reader, data.batches, data.unit_ids, blank, order, has_likelihood
        record = ParameterRecorder(own.quantities, own, *fields)
        shapes = jax.eval_shape(
            lambda record, chain, key: record.drawn_sites(key, chain.init(key, 1)),
            record,
            chain,
            jax.random.key(0),
        )
        exists = existing(model, tuple(int(n) for n in reader.size), capacity)
    found = shapes.quantities(model, exists, data.n_units)
    if has_likelihood:
        found.append(Quantity(LOG_LIKELIHOOD, (UNIT,), (data.n_units,), labelled=False))
    return replace(record, quantities=(*own.quantities, *found))


def indicators_can_be_summed_out(model: Model) -> bool:
    """Return True if all latent variables of a unit are indicators that can be summed out together."""
    sites = model.locals().values()
    return all(isinstance(s.family, IndicatorFamily) and s.slices is None and s.gate is None for s in sites)


# ── latent variables as recorded quantities ─────────────────────────────────────────────────────────────────────────


class SiteValues(NamedTuple):
    """The values of some latent variables in the states of all particles, and log p(unit) given them; or their shapes.

    | field | meaning |
    |---|---|
    | `globals` | name of a variable that all units share -> its value, (particle, …) |
    | `locals` | name of a variable of each unit -> for each batch its value, (particle, unit, …) |

    | `log_likelihood` | for each batch log p(unit given the globals), (particle, unit), nats; () if not asked for |

    A value is an array, or a NamedTuple of arrays. Quantities and arrays are in the order in which the model names its
    variables, which dictionaries do not keep: JAX sorts the names of those that it returns.
    """

    globals: dict[str, Any]
    locals: dict[str, list[Any]]
    log_likelihood: tuple[Array, ...] = ()

    def quantities(self, model: Model, exists: Mapping[str, int], n_units: int | None) -> list[Quantity]:
        """Return the descriptions of the quantities that the variables are recorded as: globals, then locals.

        exists: how many entries exist on each size axis (`existing`). n_units: the number of units; None without
            locals.
        """
        found = []
        for name, site in model.globals().items():
            if name in self.globals:
                found += _quantities(site, _shapes_by_field(name, self.globals[name]), exists)
        for name, site in model.locals().items() if n_units is not None else ():
            if name not in self.locals:
                continue
            shapes = [_shapes_by_field(name, value) for value in self.locals[name]]
            longest = {field: tuple(np.max([s[field][1:] for s in shapes], axis=0).tolist()) for field in shapes[0]}
            found += [
                Quantity(q.name, ("unit", *q.axes), (n_units, *q.shape), q.labelled)
                for q in _quantities(site, longest, exists)
            ]
        return found

    def arrays(self, model: Model, order: Int[np.ndarray | Array, " units"] | None) -> list[Array]:
        """Return the recorded arrays, (particle, …), in the order of `quantities`.

        order: where each unit stands in the batches put end to end, (unit,); None leaves locals out.
        """
        found = jax.tree.leaves([self.globals[name] for name in model.globals() if name in self.globals])
        for name in model.locals() if order is not None else ():
            if name not in self.locals:
                continue
            leaves = zip(*(jax.tree.leaves(batch) for batch in self.locals[name]), strict=True)
            found += [_concatenate_batches(leaf)[:, order] for leaf in leaves]
        return found


def site_value(site: Site, statistics: Statistics, on: Masks) -> Any:
    """Return the value x of a latent variable from its sufficient statistics t(x).

    If one element of the variable stands for several copies, the statistics themselves are returned.

    on: {axis: mask of the entries that exist}.
    """
    return statistics if site.copies is not None else site.family.value(statistics, site.event_mask(on))


def existing(model: Model, size: tuple[int, ...], capacity: tuple[int, ...]) -> dict[str, int]:
    """Return how many entries exist on each size axis of a model, the first so many of its capacity."""
    return {axis: int(np.sum(mask)) for axis, mask in model.active(size, capacity).items()}


def _shapes_by_field(name: str, value: Any) -> dict[str, tuple[int, ...]]:
    """Return {name of the quantity: its shape without the particles} for each array of a latent variable.

    name: the name of the variable. value: its array, or a NamedTuple of arrays.
    """
    fields = getattr(type(value), "_fields", None)  # the arrays of a site are one, or a NamedTuple
    if fields is None:
        return {name: value.shape[1:]}
    return {f"{name}.{field}": getattr(value, field).shape[1:] for field in fields}


def _quantities(site: Site, shapes: Mapping[str, tuple[int, ...]], exists: Mapping[str, int]) -> list[Quantity]:
    """Return the descriptions of the quantities that one latent variable is recorded as.

    A square matrix may name its axis once; the second is then called `<axis>_across`.

    site: the variable.
    shapes: {name of the quantity: its shape without the particles}.
    exists: how many entries exist on each size axis.
    """
    found = []
    for field, shape in shapes.items():
        axes = (*site.axes, *(f"{axis}_across" for axis in site.axes[-1:]))[: len(shape)]
        lengths = tuple(exists.get(axis, length) for axis, length in zip(axes, shape, strict=True))
        found.append(Quantity(field, axes, lengths, any(axis in exists for axis in site.axes)))
    return found


def _concatenate_batches(batches: tuple[Array, ...]) -> Array:
    """Return one array (particle, row, …) of all batches one after another, shorter units padded with 0.

    batches: one array (particle, row, …) for each batch.
    """
    longest = np.max([leaf.shape[2:] for leaf in batches], axis=0).astype(int)
    padded = [
        jnp.pad(leaf, [(0, 0), (0, 0), *((0, int(n) - have) for n, have in zip(longest, leaf.shape[2:], strict=True))])
        for leaf in batches
    ]
    return jnp.concatenate(padded, axis=1)
