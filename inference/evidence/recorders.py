"""Recorders of the chains' states: which quantities of a state are written down, under the names of the model.

A chain of a type without a recorder has its log density recorded alone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.annealing.generic import GenericChain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.evidence.hidden_markov import HiddenMarkovChain, PathState
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain, NormalState
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture, HyperMixtureState
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState
from lvsearch.inference.evidence.poisson_factorization import FactorState, PoissonFactorizationChain
from lvsearch.inference.sampling.recording import Quantity, Recorder, recorder, rows_of_units
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, HyperTopicState
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.contract import Model, Site, Statistics
from lvsearch.models.families import IndicatorFamily

OCCUPIED = "occupied"
"""The quantity that counts the components with at least one part of the data. It does not depend on their names."""


# ── collapsed mixtures ──────────────────────────────────────────────────────────────────────────────────────────────


class MixtureRecorder(Recorder):
    """Records the number of `occupied` components, the `rows` of each, and on request the `component` of each row."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    order: Int[np.ndarray, " units"] | None

    def values(self, chain: CollapsedMixtureChain, state: CollapsedState) -> tuple[Array, ...]:
        """Return the quantities of each particle. Padding has weight 0, so no component counts it."""
        rows = jnp.round(state.counts).astype(jnp.int32).T
        each = () if self.order is None else (chain.names.components(state.labels[self.order]).T,)
        return (_number_used(rows), rows, *each)


@recorder.register
def _(chain: CollapsedMixtureChain, data: Dataset, *, units: bool) -> MixtureRecorder:
    """Return the recorder of a mixture."""
    return MixtureRecorder(_counted_rows(int(chain.size), data, units), rows_of_units(data) if units else None)


class HyperMixtureRecorder(Recorder):
    """Records the hyper-parameters that have priors, in the components' coordinates, and all that `MixtureRecorder`
    does.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    mixture: MixtureRecorder

    def values(self, chain: HyperMixture, state: HyperMixtureState) -> tuple[Array, ...]:
        """Return the quantities of each particle, in the order of `quantities`."""
        hyper = [
            jnp.exp(state.log_hyper[name]).T if axes else jnp.exp(state.log_hyper[name][0])
            for name, axes in chain.component.hyper_axes.items()
            if name in chain.courses
        ]
        return (*hyper, *self.mixture.values(chain.mixture, state.mixture))


@recorder.register
def _(chain: HyperMixture, data: Dataset, *, units: bool) -> HyperMixtureRecorder:
    """Return the recorder of a mixture whose hyper-parameters have priors."""
    mixture = cast(MixtureRecorder, recorder(chain.mixture, data, units=units))
    hyper = tuple(
        Quantity(name, axes, (chain.n_dims,) * len(axes), False)
        for name, axes in chain.component.hyper_axes.items()
        if name in chain.courses
    )
    return HyperMixtureRecorder((*hyper, *mixture.quantities), mixture)


class NormalRecorder(Recorder):
    """Records all that `MixtureRecorder` does, and `weights`, `mean`, `precision`, `rate` in the model's
    coordinates.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    order: Int[np.ndarray, " units"] | None

    def values(self, chain: IndependentNormalChain, state: NormalState) -> tuple[Array, ...]:
        """Return the quantities of each particle. Components that do not exist lie beyond the quantities' shapes."""
        here = state.labels[:, None] == jnp.arange(chain.capacity)[:, None]
        rows = jnp.where(jnp.asarray(chain.weight)[:, None, None] > 0, here, False).sum(0).T.astype(jnp.int32)
        mean, precision, rate = (jnp.moveaxis(leaf, -1, 0) for leaf in (state.mean, state.precision, state.rate))
        each = () if self.order is None else (state.labels[self.order].T,)
        return (_number_used(rows), rows, jnp.exp(state.log_weights).T, mean, precision, rate, *each)


@recorder.register
def _(chain: IndependentNormalChain, data: Dataset, *, units: bool) -> NormalRecorder:
    """Return the recorder of a mixture with independent priors of means and precisions."""
    size, n_dims = int(chain.size), chain.values.shape[1]
    used, rows, *each = _counted_rows(size, data, units)
    sites = (
        Quantity("weights", ("component",), (size,), True),
        Quantity("mean", ("component", "dim"), (size, n_dims), True),
        Quantity("precision", ("component", "dim"), (size, n_dims), True),
        Quantity("rate", ("dim",), (n_dims,), False),
    )
    return NormalRecorder((used, rows, *sites, *each), rows_of_units(data) if units else None)


def _counted_rows(size: int, data: Dataset, units: bool) -> tuple[Quantity, ...]:
    """Return the quantities `occupied`, `rows`, and, if `units`, `component`."""
    counted = Quantity(OCCUPIED, (), (), False), Quantity("rows", ("component",), (size,), True)
    return (*counted, Quantity("component", ("unit",), (data.n_units,), True)) if units else counted


def _number_used(counts: Array) -> Array:
    """Return how many entries of the last axis are positive, as int32."""
    return (counts > 0).sum(-1).astype(jnp.int32)


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class PathRecorder(Recorder):
    """Records the number of `occupied` states and the `rows` of each."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def values(self, chain: HiddenMarkovChain, state: PathState) -> tuple[Array, ...]:
        """Return the quantities of each particle. Padding is in no state."""
        here = (state.labels[..., None] == jnp.arange(chain.capacity)) & jnp.asarray(chain.present)[:, None]
        rows = here.sum(1).astype(jnp.int32)
        return _number_used(rows), rows


@recorder.register
def _(chain: HiddenMarkovChain, data: Dataset, *, units: bool) -> PathRecorder:
    """Return the recorder of a hidden Markov model; the state of each row is not recorded."""
    rows = Quantity("rows", ("state",), (int(chain.size),), True)
    return PathRecorder((Quantity(OCCUPIED, (), (), False), rows))


# ── factors ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class FactorRecorder(Recorder):
    """Records `factors`, the `noise_shape` if it has a prior, and on request the `intensities` of each row."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    order: Int[np.ndarray, " units"] | None

    def values(self, chain: PoissonFactorizationChain, state: FactorState) -> tuple[Array, ...]:
        """Return the quantities of each particle. Factors that do not exist lie beyond the quantities' shapes."""
        factors = jnp.exp(jnp.moveaxis(state.log_factors, 0, -1))  # (factor, particle, dim)
        noise = () if state.log_noise is None else (jnp.exp(state.log_noise),)
        each = () if self.order is None else (jnp.exp(jnp.moveaxis(state.log_intensities[self.order], -1, 0)),)
        return (jnp.moveaxis(factors, 1, 0), *noise, *each)


@recorder.register
def _(chain: PoissonFactorizationChain, data: Dataset, *, units: bool) -> FactorRecorder:
    """Return the recorder of a Poisson factorisation."""
    size = int(chain.size)
    factors = Quantity("factors", ("factor", "dim"), (size, chain.exposed.shape[1]), True)
    noise = (Quantity("noise_shape", (), (), False),) if chain.model.inferred else ()
    each = (Quantity("intensities", ("unit", "factor"), (data.n_units, size), True),) if units else ()
    return FactorRecorder((factors, *noise, *each), rows_of_units(data) if units else None)


# ── collapsed topics ────────────────────────────────────────────────────────────────────────────────────────────────


class TopicRecorder(Recorder):
    """Records the number of `occupied` topics, the `tokens` of each, and on request those of each document,
    `document_tokens`.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def values(self, chain: CollapsedTopics, state: TopicState) -> tuple[Array, ...]:
        """Return the quantities of each particle. They are whole numbers, which the chain keeps as floats."""
        tokens = state.topic_total.sum(0).T.astype(jnp.int32)
        in_documents = (jnp.moveaxis(state.document_topic, -1, 0).astype(jnp.int32),)
        return (_number_used(tokens), tokens, *(in_documents if len(self.quantities) > 2 else ()))


@recorder.register
def _(chain: CollapsedTopics, data: Dataset, *, units: bool) -> TopicRecorder:
    """Return the recorder of a topic model."""
    n_topics = int((chain.alpha > 0).sum())
    counted = Quantity(OCCUPIED, (), (), False), Quantity("tokens", ("topic",), (n_topics,), True)
    each = Quantity("document_tokens", ("unit", "topic"), (data.n_units, n_topics), True)
    return TopicRecorder((*counted, each) if units else counted)


class HyperTopicRecorder(Recorder):
    """Records `concentration` and `topic_concentration` if they have priors, and all that `TopicRecorder` does."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    topics: TopicRecorder

    def values(self, chain: HyperTopics, state: HyperTopicState) -> tuple[Array, ...]:
        """Return the quantities of each particle, in the order of `quantities`."""
        free = [jnp.exp(each) for each in (state.log_total, state.log_eta) if each is not None]
        return (*free, *self.topics.values(chain.topics, state.topics))


@recorder.register
def _(chain: HyperTopics, data: Dataset, *, units: bool) -> HyperTopicRecorder:
    """Return the recorder of a topic model whose hyper-parameters have priors."""
    topics = cast(TopicRecorder, recorder(chain.topics, data, units=units))
    names = {"concentration": chain.total, "topic_concentration": chain.eta}
    free = tuple(Quantity(name, (), (), False) for name, course in names.items() if course is not None)
    return HyperTopicRecorder((*free, *topics.quantities), topics)


# ── any model ───────────────────────────────────────────────────────────────────────────────────────────────────────


class GenericRecorder(Recorder):
    """Records the sites of any model by their names, as values and not as statistics, and `occupied` from its
    indicators.

    A site of several arrays is recorded as several quantities, such as `components.mean`. An indicator with copies is
    recorded as the share of its copies in each entry.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    order: Int[np.ndarray, " units"] | None

    def values(self, chain: GenericChain, state: GibbsState) -> tuple[Array, ...]:
        """Return the quantities of each particle, in the order of `quantities`."""
        found = _sites(chain, state)
        each = [*found.occupied.values(), *jax.tree.leaves([*found.globals.values()])]
        if self.order is not None:
            for batches in found.locals.values():
                leaves = zip(*(jax.tree.leaves(batch) for batch in batches), strict=True)
                each += [_concatenate_batches(leaf)[:, self.order] for leaf in leaves]
        return tuple(each)


class _Sites(NamedTuple):
    """The values of all sites of a state.

    | field | meaning |
    |---|---|
    | `occupied` | name of the quantity -> (particle,) |
    | `globals` | site -> its value |
    | `locals` | site -> its value for the units of each batch |
    """

    occupied: dict[str, Array]
    globals: dict[str, Any]
    locals: dict[str, list[Any]]


@recorder.register
def _(chain: GenericChain, data: Dataset, *, units: bool) -> GenericRecorder:
    """Return the recorder of any model that is sampled by the generic chain."""
    with jax.enable_x64(True):
        found = jax.eval_shape(lambda c, key: _sites(c, c.init(key, 1)), chain, jax.random.key(0))
        on = chain.model.active(tuple(int(n) for n in chain.size), chain.capacity)
    exists = {axis: int(np.sum(mask)) for axis, mask in on.items()}  # the first so many of the capacity
    quantities = [Quantity(name, (), (), False) for name in found.occupied]
    for name, site in chain.model.globals().items():
        quantities += _quantities(name, site, _by_field(name, found.globals[name]), exists)
    if units:
        for name, site in chain.model.locals().items():
            batches = [_by_field(name, value) for value in found.locals[name]]
            longest = {field: tuple(np.max([b[field][1:] for b in batches], axis=0).tolist()) for field in batches[0]}
            quantities += [
                Quantity(q.name, ("unit", *q.axes), (data.n_units, *q.shape), q.labelled)
                for q in _quantities(name, site, longest, exists)
            ]
    return GenericRecorder(tuple(quantities), rows_of_units(data) if units else None)


def _sites(chain: GenericChain, state: GibbsState) -> _Sites:
    """Return the values of all sites of a state."""
    return _Sites(
        _occupied(chain, state),
        {name: _value(chain, site, state.globals[name]) for name, site in chain.model.globals().items()},
        {name: [_value(chain, site, l[name]) for l in state.locals] for name, site in chain.model.locals().items()},
    )


def _value(chain: GenericChain, site: Site, statistics: Statistics) -> Any:
    """Return the value x of a site from its statistics t(x); the statistics themselves if the site has copies."""
    if site.copies is not None:
        return statistics
    mask = site.event_mask(chain.model.active(chain.size, chain.capacity))
    return site.family.value(statistics, mask)


def _by_field(name: str, value: Any) -> dict[str, tuple[int, ...]]:
    """Return {name of the quantity: its shape without the particles} for each array of a site."""
    fields = getattr(type(value), "_fields", None)  # the arrays of a site are one, or a NamedTuple
    if fields is None:
        return {name: value.shape[1:]}
    return {f"{name}.{field}": getattr(value, field).shape[1:] for field in fields}


def _quantities(
    name: str, site: Site, shapes: Mapping[str, tuple[int, ...]], exists: Mapping[str, int]
) -> list[Quantity]:
    """Return the quantities of one site, from the shapes of its arrays by name.

    An axis that the site does not name is the other side of a matrix over its last axis.

    exists: how many entries exist on each size axis.
    """
    found = []
    for field, shape in shapes.items():
        axes = (*site.axes, *(f"{axis}_across" for axis in site.axes[-1:]))[: len(shape)]
        lengths = tuple(exists.get(axis, length) for axis, length in zip(axes, shape, strict=True))
        found.append(Quantity(field, axes, lengths, any(axis in exists for axis in site.axes)))
    return found


def _occupied(chain: GenericChain, state: GibbsState) -> dict[str, Array]:
    """Return {name: (particle,)}: for each size axis, how many of its entries some unit's indicator has chosen."""
    model: Model = chain.model
    axes = list(model.active(chain.size, chain.capacity))
    found = {}
    for axis in axes:
        used = jnp.zeros((), bool)
        for name, site in model.locals().items():
            if not isinstance(site.family, IndicatorFamily) or axis not in site.axes:
                continue
            place = site.axes.index(axis) + 2  # after particles and units
            for batch, l in zip(chain.batches, state.locals, strict=True):
                chosen = site.family.probability(l[name]) > 0
                real = jnp.asarray(batch.weight).reshape(-1, *[1] * (chosen.ndim - 2)) > 0
                chosen = jnp.where(real, chosen, False)
                used = used | chosen.any([a for a in range(1, chosen.ndim) if a != place])
        if used.ndim:
            found[OCCUPIED if len(axes) == 1 else f"{OCCUPIED}_{axis}"] = used.sum(-1).astype(jnp.int32)
    return found


def _concatenate_batches(batches: tuple[Array, ...]) -> Array:
    """Return one array (particle, row, …) of all batches one after another, shorter units padded with 0."""
    longest = np.max([leaf.shape[2:] for leaf in batches], axis=0).astype(int)
    padded = [
        jnp.pad(leaf, [(0, 0), (0, 0), *((0, int(n) - have) for n, have in zip(longest, leaf.shape[2:], strict=True))])
        for leaf in batches
    ]
    return jnp.concatenate(padded, axis=1)
