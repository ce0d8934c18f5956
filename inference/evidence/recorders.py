"""Recorders and readers of the annealing chains' states.

A recorder says which quantities of a state are written down, under the names of the model. A reader returns a state of
a collapsed chain as latent variables of its model. With them the parameters that these chains integrate out are drawn
(`lvsearch.inference.sampling.parameters`). The same chains are annealed for the evidence and sampled by `lv.sample`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.annealing.generic import GenericChain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.evidence.hidden_markov import HiddenMarkovChain, PathState
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain, NormalState
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture, HyperMixtureState
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState
from lvsearch.inference.evidence.poisson_factorization import FactorState, PoissonFactorizationChain
from lvsearch.inference.evidence.unigram_mixtures import UnigramMixtureChain
from lvsearch.inference.sampling.parameters import (
    STEPS,
    LabelReader,
    LatentsReader,
    SiteValues,
    existing,
    one_hot,
    places_in_batches,
    site_value,
)
from lvsearch.inference.sampling.trace import Quantity, Recorder, rows_of_units
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, HyperTopicState
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.contract import Model
from lvsearch.models.families import IndicatorFamily, MarkovChainStatistics
from lvsearch.models.lda import LDA

OCCUPIED = "occupied"
"""The name of the quantity that counts the components with at least one part of the data. It does not change when
components are renamed.
"""


# ── collapsed mixtures ──────────────────────────────────────────────────────────────────────────────────────────────


class MixtureRecorder(Recorder):
    """A recorder of the number of `occupied` components, of the `rows` in each, and on request of the `component` of
    each row.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: CollapsedMixtureChain, state: CollapsedState) -> tuple[Array, ...]:
        """Return the recorded quantities of each particle: occupied (particle,), rows (particle, component), component
        (particle, unit).

        The last is there on request only. Padding has weight 0, so no component counts it.
        """
        rows = jnp.round(state.counts).astype(jnp.int32).T
        each = () if self.order is None else (chain.names.components(state.labels[self.order]).T,)
        return (_number_used(rows), rows, *each)


def mixture_recorder(chain: CollapsedMixtureChain, data: Dataset, *, units: bool) -> MixtureRecorder:
    """Return the recorder of a mixture's labels.

    units: whether the component of each row is recorded too.
    """
    return MixtureRecorder(_counted_rows(int(chain.size), data, units), rows_of_units(data) if units else None)


class HyperMixtureRecorder(Recorder):
    """A recorder of the hyper-parameters that have priors, in the components' coordinates, and of all that
    `MixtureRecorder` has.
    """

    mixture: MixtureRecorder

    def values(self, chain: HyperMixture, state: HyperMixtureState) -> tuple[Array, ...]:
        """Return the recorded quantities of each particle, in the order of `quantities`: hyper-parameters, then those
        of the labels.
        """
        hyper = [
            jnp.exp(state.log_hyper[name]).T if axes else jnp.exp(state.log_hyper[name][0])
            for name, axes in chain.component.hyper_axes.items()
            if name in chain.courses
        ]
        return (*hyper, *self.mixture.values(chain.mixture, state.mixture))


def hyper_mixture_recorder(chain: HyperMixture, data: Dataset, *, units: bool) -> HyperMixtureRecorder:
    """Return the recorder of a mixture whose hyper-parameters have priors.

    units: whether the component of each row is recorded too.
    """
    mixture = mixture_recorder(chain.mixture, data, units=units)
    hyper = tuple(
        Quantity(name, axes, (chain.n_dims,) * len(axes), False)
        for name, axes in chain.component.hyper_axes.items()
        if name in chain.courses
    )
    return HyperMixtureRecorder((*hyper, *mixture.quantities), mixture)


class NormalRecorder(Recorder):
    """A recorder of all that `MixtureRecorder` has, and of `weights`, `mean`, `precision`, `rate` in the model's
    coordinates.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: IndependentNormalChain, state: NormalState) -> tuple[Array, ...]:
        """Return the recorded quantities of each particle, in the order of `quantities`, each (particle, …).

        Components that do not exist lie beyond the quantities' shapes.
        """
        here = state.labels[:, None] == jnp.arange(chain.capacity)[:, None]
        rows = jnp.where(jnp.asarray(chain.weight)[:, None, None] > 0, here, False).sum(0).T.astype(jnp.int32)
        mean, precision, rate = (jnp.moveaxis(leaf, -1, 0) for leaf in (state.mean, state.precision, state.rate))
        each = () if self.order is None else (state.labels[self.order].T,)
        return (_number_used(rows), rows, jnp.exp(state.log_weights).T, mean, precision, rate, *each)


def normal_recorder(chain: IndependentNormalChain, data: Dataset, *, units: bool) -> NormalRecorder:
    """Return the recorder of a mixture with independent priors of means and precisions.

    units: whether the component of each row is recorded too.
    """
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
    """Return the descriptions of the quantities `occupied`, `rows`, and, if `units`, `component`.

    size: the number of components.
    """
    counted = Quantity(OCCUPIED, (), (), False), Quantity("rows", ("component",), (size,), True)
    return (*counted, Quantity("component", ("unit",), (data.n_units,), True, "component")) if units else counted


def _number_used(counts: Array) -> Array:
    """Return how many entries of the last axis are positive, as int32; the last axis is gone."""
    return (counts > 0).sum(-1).astype(jnp.int32)


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class PathRecorder(Recorder):
    """A recorder of the number of `occupied` hidden states, of the `rows` in each, and on request of the `state` of
    each row.
    """

    def values(self, chain: HiddenMarkovChain, state: PathState) -> tuple[Array, ...]:
        """Return (the number of occupied states (particle,), the rows in each state (particle, state), the state of
        each row (particle, row)). Padding is in no state.

        The last is there on request only.
        """
        rows = state.mixture.counts.T.astype(jnp.int32)
        each = (state.labels.T,) if len(self.quantities) > 2 else ()
        return _number_used(rows), rows, *each


def path_recorder(chain: HiddenMarkovChain, data: Dataset, *, units: bool) -> PathRecorder:
    """Return the recorder of a hidden Markov model.

    units: whether the state of each row is recorded too. Rows are those of all sequences, one sequence after another.
    """
    counted = Quantity(OCCUPIED, (), (), False), Quantity("rows", ("state",), (int(chain.size),), True)
    each = Quantity(
        "state", ("row",), (int(np.sum(chain.present)),), True, "state"
    )  # padding comes last and is cut off
    return PathRecorder((*counted, each) if units else counted)


# ── mixtures of unigrams ────────────────────────────────────────────────────────────────────────────────────────────


class UnigramMixtureRecorder(Recorder):
    """A recorder of the number of `occupied` topics, of the `documents` and the `tokens` in each, and on request of the
    `topic` of each document.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: UnigramMixtureChain, state: CollapsedState) -> tuple[Array, ...]:
        """Return (occupied (particle,), documents (particle, topic), tokens (particle, topic), topic (particle, unit)).

        The last is there on request only.
        """
        documents, tokens = (jnp.round(each).astype(jnp.int32).T for each in (state.counts, state.natural.tokens))
        each = () if self.order is None else (state.labels[self.order].T,)
        return (_number_used(documents), documents, tokens, *each)


def unigram_mixture_recorder(chain: UnigramMixtureChain, data: Dataset, *, units: bool) -> UnigramMixtureRecorder:
    """Return the recorder of a mixture of unigrams.

    units: whether the topic of each document is recorded too.
    """
    size = int(chain.size)
    counted = (
        Quantity(OCCUPIED, (), (), False),
        Quantity("documents", ("topic",), (size,), True),
        Quantity("tokens", ("topic",), (size,), True),
    )
    if not units:
        return UnigramMixtureRecorder(counted, None)
    each = Quantity("topic", ("unit",), (data.n_units,), True, "topic")
    return UnigramMixtureRecorder((*counted, each), chain.places_of_documents())


# ── factors ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class FactorRecorder(Recorder):
    """A recorder of `factors`, of the `noise_shape` if it has a prior, and on request of the `intensities` of each
    row.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: PoissonFactorizationChain, state: FactorState) -> tuple[Array, ...]:
        """Return the recorded quantities of each particle, in the order of `quantities`, each (particle, …).

        Factors that do not exist lie beyond the quantities' shapes.
        """
        factors = jnp.exp(jnp.moveaxis(state.log_factors, 0, -1))  # (factor, particle, dim)
        noise = () if state.log_noise is None else (jnp.exp(state.log_noise),)
        each = () if self.order is None else (jnp.exp(jnp.moveaxis(state.log_intensities[self.order], -1, 0)),)
        return (jnp.moveaxis(factors, 1, 0), *noise, *each)


def factor_recorder(chain: PoissonFactorizationChain, data: Dataset, *, units: bool) -> FactorRecorder:
    """Return the recorder of a Poisson factorisation.

    units: whether the intensities of each row are recorded too.
    """
    size = int(chain.size)
    factors = Quantity("factors", ("factor", "dim"), (size, chain.exposed.shape[1]), True)
    noise = (Quantity("noise_shape", (), (), False),) if chain.model.inferred else ()
    each = (Quantity("intensities", ("unit", "factor"), (data.n_units, size), True),) if units else ()
    return FactorRecorder((factors, *noise, *each), rows_of_units(data) if units else None)


# ── collapsed topics ────────────────────────────────────────────────────────────────────────────────────────────────


class TopicRecorder(Recorder):
    """A recorder of the number of `occupied` topics, of the `tokens` in each, and on request of those of each document.

    The last are called `document_tokens`.
    """

    def values(self, chain: CollapsedTopics, state: TopicState) -> tuple[Array, ...]:
        """Return the recorded quantities of each particle: occupied (particle,), tokens (particle, topic), and those by
        document.

        The last are (particle, document, topic), on request only. All are whole numbers, which the chain keeps as
        floats.
        """
        tokens = state.topic_total.sum(0).T.astype(jnp.int32)
        in_documents = (jnp.moveaxis(state.document_topic, -1, 0).astype(jnp.int32),)
        return (_number_used(tokens), tokens, *(in_documents if len(self.quantities) > 2 else ()))


def topic_recorder(chain: CollapsedTopics, data: Dataset, *, units: bool) -> TopicRecorder:
    """Return the recorder of a topic model's token counts.

    units: whether the tokens of each document and topic are recorded too.
    """
    n_topics = int((chain.alpha > 0).sum())
    counted = Quantity(OCCUPIED, (), (), False), Quantity("tokens", ("topic",), (n_topics,), True)
    each = Quantity("document_tokens", ("unit", "topic"), (data.n_units, n_topics), True)
    return TopicRecorder((*counted, each) if units else counted)


class HyperTopicRecorder(Recorder):
    """A recorder of `concentration` and `topic_concentration` if they have priors, and of all that `TopicRecorder`
    has.
    """

    topics: TopicRecorder

    def values(self, chain: HyperTopics, state: HyperTopicState) -> tuple[Array, ...]:
        """Return the recorded quantities of each particle, in the order of `quantities`: hyper-parameters, then token
        counts.
        """
        free = [jnp.exp(each) for each in (state.log_total, state.log_eta) if each is not None]
        return (*free, *self.topics.values(chain.topics, state.topics))


def hyper_topic_recorder(chain: HyperTopics, data: Dataset, *, units: bool) -> HyperTopicRecorder:
    """Return the recorder of a topic model whose hyper-parameters have priors.

    units: whether the tokens of each document and topic are recorded too.
    """
    topics = topic_recorder(chain.topics, data, units=units)
    names = {"concentration": chain.total, "topic_concentration": chain.eta}
    free = tuple(Quantity(name, (), (), False) for name, course in names.items() if course is not None)
    return HyperTopicRecorder((*free, *topics.quantities), topics)


# ── any model ───────────────────────────────────────────────────────────────────────────────────────────────────────


class GenericRecorder(Recorder):
    """A recorder of the latent variables of any model by their names, and of `occupied`, computed from its indicators.

    Variables are recorded as values, not as sufficient statistics. A variable of several arrays is recorded as several
    quantities, such as `components.mean`. An indicator that stands for several copies is recorded as the share of its
    copies in each entry.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: GenericChain, state: GibbsState) -> tuple[Array, ...]:
        """Return the recorded quantities of each particle, in the order of `quantities`, each (particle, …)."""
        return (*_count_occupied(chain, state).values(), *_site_values(chain, state).arrays(chain.model, self.order))


def generic_recorder(chain: GenericChain, data: Dataset, *, units: bool) -> GenericRecorder:
    """Return the recorder of any model that is sampled by the generic chain.

    units: whether the variables of each unit are recorded too.
    """
    with jax.enable_x64(True):
        counted, found = jax.eval_shape(_counted_and_values, chain, jax.random.key(0))
        exists = existing(chain.model, tuple(int(n) for n in chain.size), chain.capacity)
    quantities = [Quantity(name, (), (), False) for name in counted]
    quantities += found.quantities(chain.model, exists, data.n_units if units else None)
    return GenericRecorder(tuple(quantities), rows_of_units(data) if units else None)


def _counted_and_values(chain: GenericChain, key: Array) -> tuple[dict[str, Array], SiteValues]:
    """Return how many components are occupied (`_count_occupied`) and the values of all latent variables, in a first
    state of one particle.
    """
    state = chain.init(key, 1)
    return _count_occupied(chain, state), _site_values(chain, state)


def _site_values(chain: GenericChain, state: GibbsState) -> SiteValues:
    """Return the values of all latent variables of a state."""
    on = chain.model.active(chain.size, chain.capacity)
    return SiteValues(
        {name: site_value(site, state.globals[name], on) for name, site in chain.model.globals().items()},
        {name: [site_value(site, l[name], on) for l in state.locals] for name, site in chain.model.locals().items()},
    )


def _count_occupied(chain: GenericChain, state: GibbsState) -> dict[str, Array]:
    """Return {name of the quantity: (particle,)}: for each size axis, how many of its entries some unit's indicator has
    chosen.
    """
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


# ── readers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def reader_of_mixtures(chain: CollapsedMixtureChain | HyperMixture, model: Model, data: Dataset) -> LabelReader:
    """Return the reader of a mixture's labels, and of its hyper-parameters that have priors.

    One step draws weights and components where a component's parameters are one latent variable of the model, since the
    two are then independent given the labels.
    """
    hyper = tuple(chain.courses) if isinstance(chain, HyperMixture) else ()
    others = set(model.globals()).difference(hyper, ["weights"])
    steps, names = 1 if len(others) == 1 else STEPS, chain.names
    return LabelReader(model, (chain.size,), (names.capacity,), steps, places_in_batches(data), names.n_variants, hyper)


def reader_of_unigram_mixtures(chain: UnigramMixtureChain, model: Model, data: Dataset) -> LabelReader:
    """Return the reader of the topics of a mixture of unigrams' documents."""
    of_units = chain.places_of_documents()
    places = tuple(of_units[np.maximum(ids, 0)] for ids in data.unit_ids)
    return LabelReader(model, (chain.size,), (chain.capacity,), 1, places)


# ── readers of paths ────────────────────────────────────────────────────────────────────────────────────────────────


class PathReader(LatentsReader):
    """The reader of the hidden paths of sequences.

    | field | meaning |
    |---|---|
    | `places` | for each batch, where each row of each sequence stands in the chain, (sequence, row); −1 for padding |
    """

    places: tuple[Int[np.ndarray, "sequence row"], ...]

    def known(self, state: PathState) -> GibbsState:
        """Return the path of each sequence: its states and its steps from one state to the next."""
        found = []
        for places in self.places:
            labels = jnp.where(places >= 0, state.labels.T[:, places], -1)
            here = one_hot(labels, self.capacity[0])  # (particle, sequence, row, state)
            before = jnp.concatenate([jnp.zeros_like(here[:, :, :1]), here[:, :, :-1]], axis=2)
            found.append({"path": MarkovChainStatistics(here, before[..., :, None] * here[..., None, :])})
        return GibbsState({}, tuple(found))


def reader_of_hidden_markov(chain: HiddenMarkovChain, model: Model, data: Dataset) -> PathReader:
    """Return the reader of the paths of a hidden Markov model. In the chain sequences stand one after another, in the
    order of the data set.
    """
    pairs = zip(data.batches, data.unit_ids, strict=True)
    masks = [np.asarray(batch.units.present) & (ids >= 0)[:, None] for batch, ids in pairs]
    lengths = np.zeros(data.n_units, np.int64)
    for ids, mask in zip(data.unit_ids, masks, strict=True):
        lengths[ids[ids >= 0]] = mask.sum(1)[ids >= 0]
    first = np.cumsum(lengths) - lengths
    places = tuple(
        np.where(mask, first[np.maximum(ids, 0)][:, None] + np.cumsum(mask, axis=1) - 1, -1)
        for ids, mask in zip(data.unit_ids, masks, strict=True)
    )
    return PathReader(model, (chain.size,), (chain.capacity,), 1, places)


# ── readers of topics ───────────────────────────────────────────────────────────────────────────────────────────────


class TopicReader(LatentsReader):
    """The reader of the topics of all tokens, and of hyper-parameters that have priors.

    A batch has a column for each distinct word of a document; its tokens are read as the share of each topic in them.

    | field | meaning |
    |---|---|
    | `site` | the name of the tokens' topics in the model |
    | `shapes` | (documents, columns) of each batch |
    | `column` | the column that each token belongs to, in the columns of all batches end to end, (token,) |
    | `share` | 1 over the number of tokens of this column, 0 for padding, (token,) |
    """

    site: str = eqx.field(static=True)
    shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    column: Int[np.ndarray, " token"]
    share: Float[np.ndarray, " token"]

    def known(self, state: TopicState) -> GibbsState:
        """Return the share of each topic in the tokens of each word of each document."""
        topics, n_columns = self.capacity[0], sum(rows * columns for rows, columns in self.shapes)
        particle = jnp.arange(state.assignment.shape[1])
        shares = jnp.zeros((len(particle), n_columns, topics), jnp.float64)
        share = jnp.asarray(self.share, jnp.float64)[:, None]
        shares = shares.at[particle, self.column[:, None], jnp.maximum(state.assignment, 0)].add(share)
        begin, found = 0, []
        for rows, columns in self.shapes:
            end = begin + rows * columns
            found.append({self.site: shares[:, begin:end].reshape(len(particle), rows, columns, topics)})
            begin = end
        return GibbsState({}, tuple(found))


class HyperTopicReader(TopicReader):
    """The reader of the topics of all tokens and of hyper-parameters that have priors.

    `inferred` is the LDA with these priors, and `model` the same with their means in place of them.
    """

    inferred: LDA

    def known(self, state: HyperTopicState) -> GibbsState:
        """Return the share of each topic in the tokens of each word of each document."""
        return super().known(state.topics)

    def numbers(self, state: HyperTopicState) -> tuple[Array | None, Array | None]:
        """Return Σα and η of each particle, (particle,); None for one that has no prior."""
        total, eta = (None if each is None else jnp.exp(each) for each in (state.log_total, state.log_eta))
        return total, eta

    def model_with(self, numbers: tuple[Array | None, Array | None]) -> LDA:
        """Return the LDA with Σα and η of one particle."""
        return self.inferred.with_numbers(*numbers)


def reader_of_topics(chain: CollapsedTopics, model: Model, data: Dataset) -> TopicReader:
    """Return the reader of the topics of all tokens."""
    return TopicReader(*_tokens_in_batches(chain, model, data))


def reader_of_hyper_topics(chain: HyperTopics, model: LDA, data: Dataset) -> HyperTopicReader:
    """Return the reader of the topics of all tokens and of hyper-parameters."""
    return HyperTopicReader(*_tokens_in_batches(chain.topics, model.at_prior_means(), data), inferred=model)


def _tokens_in_batches(chain: CollapsedTopics, model: Model, data: Dataset) -> tuple[Any, ...]:
    """Return the fields of a `TopicReader`, in their order.

    Raises ValueError for a chain of other documents.
    """
    n_words = data.extents["word"]
    keys, counts, shapes = [], [], []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        count = np.asarray(batch.units.counts)
        key = np.asarray(ids, np.int64)[:, None] * n_words + np.asarray(batch.units.words)
        keys.append(np.where(count > 0, key, -1).ravel())
        counts.append(count.ravel())
        shapes.append(count.shape)
    key, count = np.concatenate(keys), np.concatenate(counts)
    order, real = np.argsort(key, kind="stable"), chain.word >= 0
    own = chain.document.astype(np.int64) * n_words + chain.word
    column = order[np.minimum(np.searchsorted(key[order], own), len(key) - 1)]
    if not np.array_equal(key[column[real]], own[real]):
        raise ValueError("got a chain of other documents, expected one that was made of these data")
    share = np.where(real, 1 / np.maximum(count[column], 1), 0.0)
    (site,) = (name for name, each in model.locals().items() if each.copies is not None)
    size, capacity = np.asarray((chain.alpha > 0).sum()), len(chain.alpha)
    return model, (size,), (capacity,), 1, site, tuple(shapes), np.where(real, column, 0), share
