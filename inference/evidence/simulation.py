"""Data drawn from a model at one size with their latent variables, and their evidence from both sides.

Simulated data are shaped like other data (`simulated_like`). The latent variables that they were drawn with make them
useful. Given the data, they are an exact draw of the posterior at no cost: (latents, data) was drawn from the joint, in
whichever order. Parameters are drawn from their priors too. Data drawn at fixed parameters, such as those of a fit,
would look more like the real data. But their latents would not be a draw of the posterior with parameters integrated
out, so nothing exact could be said about their evidence.

The evidence of simulated data has bounds on both sides with no assumption about convergence (`anneal_simulated`).
Forward paths run as always. Backward paths begin at the latents that the data were drawn with (`true_state`). Then each
end holds by itself. The log of the average of the forward estimates is above log p(data) by more than c nats with
probability at most e^−c. Likewise minus the log of the average of the backward ones is below it (Markov's inequality;
Grosse, Ghahramani & Adams 2015; Grosse, Ancha & Roy 2016).

All particles of one group may begin at the same draw. The average over them is unbiased whether or not they depend on
each other, and the sweep at temperature 1 before the first weight makes them differ.
"""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from scipy.sparse import csr_array

from lvsearch.inference.annealing.dispatch import Effort, TwoSided, both_ways, temperature_profile
from lvsearch.inference.annealing.generic import GenericChain
from lvsearch.inference.chains import Chain, State
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import counts_of, documents
from lvsearch.inference.data.images import annotated_images, has_tokens
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.estimate import pad_axes
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.evidence.hidden_markov import HiddenMarkovChain, PathState
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain, NormalState
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture, HyperMixtureState
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState
from lvsearch.inference.evidence.poisson_factorization import FactorState, PoissonFactorizationChain
from lvsearch.inference.evidence.unigram_mixtures import UnigramMixtureChain
from lvsearch.inference.factorizations.anchored import AnchoredFactorization, NearState
from lvsearch.inference.kits import chain_kit
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, HyperTopicState
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.contract import Model, Site, Statistics, Unit
from lvsearch.models.kernels import full_precision, kernel
from lvsearch.models.units import AnnotatedImage, BagOfWords, GroupOfRows, Row


class Simulated(NamedTuple):
    """Data and the latent variables that they were drawn with.

    | field | meaning |
    |---|---|
    | `data` | one batch with all units; each single observation (a token) has a column of its own |
    | `globals` | {variable that all units share: its statistics}, with `size` entries on size axes |
    | `locals` | {variable of each unit: statistics of every unit of the batch}, units leading |
    | `size` | the size that they were drawn at |
    """

    data: Dataset
    globals: dict[str, Statistics]
    locals: dict[str, Statistics]
    size: tuple[int, ...]


def simulated_like(data: Dataset, model: Model, size: tuple[int, ...], key: Key[Array, ""]) -> Simulated:
    """Draw data from the model at `size`: parameters from their priors, then the units' latent variables, then the
    units.

    There are as many units as `data` has, each as long, with the same cells missing. All are drawn at once, padded to
    the longest.

    Raises ValueError for parameters without a prior.
    """
    weights = [np.asarray(batch.weight) for batch in data.batches]
    units = _stack_batches([one_a_column(batch.units) for batch in data.batches])
    with jax.enable_x64(True):
        g, l, units = jax.tree.map(np.asarray, _simulate(model, key, size, units, data.extents))
    batch = Batch(units, np.concatenate(weights))
    return Simulated(
        Dataset.of_batches((batch,), (np.concatenate(data.unit_ids),), data.extents, data.n_units), g, l, size
    )


@eqx.filter_jit
@full_precision
def _simulate(
    model: Model, key: Key[Array, ""], size: tuple[int, ...], units: Unit, extents: Mapping[str, int]
) -> tuple[dict[str, Statistics], dict[str, Statistics], Unit]:
    """Return what `Model.simulate` draws: statistics of globals and of locals, and units. It is compiled; `size` is
    static.

    Globals are the latent variables that all units share, locals those of one unit.

    units: say how many units there are and how long each is.
    extents: lengths of the axes that the data decide, such as {"word": number of words}.
    """
    return model.simulate(key, size, units, extents)


@singledispatch
def one_a_column(units: Unit) -> Unit:
    """Return units with a column for every single observation, so that no column stands for several copies.

    Raises TypeError for a type of unit of which it is not known whether its columns have counts.
    """
    raise TypeError(
        f"got units of type {type(units).__name__}, expected a type of which it is known whether a column stands for "
        "several observations: register how with lvsearch.inference.evidence.simulation.one_a_column"
    )


@one_a_column.register(Row)
@one_a_column.register(GroupOfRows)
def _single_cells(units: Row | GroupOfRows) -> Row | GroupOfRows:
    """Return rows and groups of rows as they are: a cell is one observation."""
    return units


@one_a_column.register
def _one_token_a_column_of_documents(units: BagOfWords) -> BagOfWords:
    """Return documents with one column for each token, instead of one for each different word."""
    return BagOfWords(*_one_column_for_each_token(units.words, units.counts))


@one_a_column.register
def _one_token_a_column_of_images(units: AnnotatedImage) -> AnnotatedImage:
    """Return images with one column for each token of the caption, instead of one for each different word."""
    return AnnotatedImage(units.regions, units.present, *_one_column_for_each_token(units.words, units.counts))


def pack_simulated(data: Dataset) -> Dataset:
    """Return simulated data in the form that engines expect of such units: one column for equal words, in batches.

    data: the field `data` of a `Simulated`.
    """
    return _pack_by_type(data.batches[0].units, data)


@singledispatch
def _pack_by_type(units: Unit, data: Dataset) -> Dataset:
    """Return simulated data in the form that engines expect, by the type of the units.

    By default they are returned as they are. This is valid data for every engine: other forms are only faster.

    units: the units of the only batch of `data`.
    """
    return data


@_pack_by_type.register
def _pack_documents(units: BagOfWords, data: Dataset) -> Dataset:
    """Return simulated documents in batches, with one column for each different word."""
    return documents(counts_of(data))


@_pack_by_type.register
def _pack_rows(units: Row, data: Dataset) -> Dataset:
    """Return simulated rows in the order of the data set, in batches."""
    in_order = _units_in_order(data, units)
    return rows(np.where(in_order.observed, np.asarray(in_order.value, np.float64), 0.0), in_order.observed)


@_pack_by_type.register
def _pack_images(units: AnnotatedImage, data: Dataset) -> Dataset:
    """Return simulated images with captions in batches, with one column for each different word of a caption."""
    images = _units_in_order(data, units)
    image, column = np.nonzero(images.counts)
    ones = np.ones(len(image), np.int32)
    captions = csr_array((ones, (image, images.words[image, column])), (data.n_units, data.extents["word"]))
    captions.sum_duplicates()
    present = np.asarray(images.present)
    n_tokens = data.extents["dim"] if has_tokens(data) else None
    return annotated_images(images.regions[present], present.sum(1), captions, n_tokens)


def _units_in_order(data: Dataset, units: Any) -> Any:
    """Return the units of the only batch of a data set in the order of the data set, without padding."""
    ids = data.unit_ids[0]
    real = np.flatnonzero(ids >= 0)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[real[np.argsort(ids[real])]], units)


def _one_column_for_each_token(words: Any, counts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (word ids, counts of 0 or 1) with a column for every token, (unit, token) each.

    words, counts: the different words of each unit and how often each occurs, (unit, column).
    """
    copies = np.asarray(counts).astype(np.int64)
    lengths = copies.sum(-1)
    here = np.arange(max(1, int(lengths.max(initial=0)))) < lengths[:, None]
    ids = np.zeros(here.shape, np.int32)
    ids[here] = np.repeat(np.asarray(words).ravel(), copies.ravel())
    return ids, here.astype(np.float64)


def _stack_batches(units: list[Unit]) -> Unit:
    """Return all batches of units as one, the shorter ones padded with zeros, which stand for nothing in every type of
    unit.
    """

    def concatenate(*leaves: Any) -> np.ndarray:
        """Return one array of each batch joined along the units, padded to the longest."""
        arrays = [np.asarray(leaf) for leaf in leaves]
        widths = np.max([array.shape[1:] for array in arrays], axis=0, initial=0)
        padding = [[(0, 0), *((0, int(w - n)) for w, n in zip(widths, a.shape[1:], strict=True))] for a in arrays]
        return np.concatenate([np.pad(array, pad) for array, pad in zip(arrays, padding, strict=True)])

    return jax.tree.map(concatenate, *units)


def true_state(chain: Chain, simulated: Simulated, particles: int) -> State:
    """Return a state of a chain with `particles` copies of the latent variables that simulated data were drawn with.

    chain: the chain of `simulated.data` at `simulated.size`.
    simulated: the data with the latent variables that they were drawn with.

    Raises ValueError for a type of chain that cannot begin there.
    """
    return chain_kit(chain).states.true_state(chain, simulated, particles)


def anneal_simulated(chain: Chain, key: Key[Array, ""], simulated: Simulated, work: Effort) -> TwoSided:
    """Anneal forward, and backward from the true latent variables, and return both estimates of log p(data | size), in
    nats.

    The temperatures are chosen by a pilot run.

    chain: the chain of `simulated.data` at `simulated.size`.
    simulated: the data with the latent variables that they were drawn with.
    work: how many temperatures and particles.
    """
    key_pilot, key_paths = jax.random.split(key)
    with jax.enable_x64(True):
        truth = true_state(chain, simulated, work.islands * work.particles)
    return both_ways(chain, key_paths, work, temperature_profile(chain, key_pilot, work), truth)[0]


# ── the state of each chain ─────────────────────────────────────────────────────────────────────────────────────────


def true_topic_state(chain: CollapsedTopics, simulated: Simulated, particles: int) -> TopicState:
    """Return a state of a topic model with the true topic of every token.

    Proportions and topics are integrated out, so their true values are not used.
    """
    unit, ids = simulated.data.batches[0].units, simulated.data.unit_ids[0]
    row, column = np.nonzero(np.asarray(unit.counts))
    document, word = ids[row], np.asarray(unit.words)[row, column]
    topic = np.argmax(simulated.locals["assignment"], -1)[row, column]
    real = np.flatnonzero(chain.word >= 0)
    # Equal tokens of a document are interchangeable, so tokens are matched after sorting by document and word.
    own, order = real[np.lexsort((chain.word[real], chain.document[real]))], np.lexsort((word, document))
    same = np.array_equal(chain.document[own], document[order])
    if not same or not np.array_equal(chain.word[own], word[order]):
        raise ValueError("got a chain of other data than the simulated ones, expected a chain of simulated.data")
    assignment = np.full((len(chain.word), particles), -1, np.int32)
    assignment[own] = topic[order][:, None]
    return chain.state_of_topics(jnp.asarray(assignment))


def true_hyper_topic_state(chain: HyperTopics, simulated: Simulated, particles: int) -> HyperTopicState:
    """Return a state of a topic model with the true topic of every token, and the true hyper-parameters that have
    priors.
    """

    def log_value(name: str, course: Any) -> Array | None:
        """Return the log of one true hyper-parameter for every particle; None if it has no prior."""
        return None if course is None else jnp.full(particles, simulated.globals[name].log_value)

    return HyperTopicState(
        true_topic_state(chain.topics, simulated, particles),
        log_value("concentration", chain.total),
        log_value("topic_concentration", chain.eta),
    )


_state_from_labels = kernel(brief=True)(lambda chain, labels, *more: chain.state_from_labels(labels, *more))


def true_mixture_state(chain: CollapsedMixtureChain, simulated: Simulated, particles: int) -> CollapsedState:
    """Return a state of a mixture with the true component and variant of every row.

    Weights and parameters are integrated out, so their true values are not used.
    """
    return _state_from_labels(chain, _true_labels(simulated, particles))


def true_hyper_mixture_state(chain: HyperMixture, simulated: Simulated, particles: int) -> HyperMixtureState:
    """Return a state of a mixture with the true component of every row, and the true hyper-parameters that have
    priors.
    """

    def copies(name: str) -> Array:
        """Return the log of one true hyper-parameter, (column, particle)."""
        value = np.atleast_1d(np.asarray(simulated.globals[name].log_value, np.float64))
        return jnp.asarray(np.repeat(value[:, None], particles, axis=1))

    return _state_from_labels(chain, _true_labels(simulated, particles), {name: copies(name) for name in chain.courses})


def true_document_labels(chain: UnigramMixtureChain, simulated: Simulated, particles: int) -> CollapsedState:
    """Return a state of a mixture of unigrams with the true topic of every document.

    Weights and topics are integrated out, so their true values are not used.
    """
    (ids,) = simulated.data.unit_ids
    topics = np.zeros(simulated.data.n_units, int)
    topics[ids[ids >= 0]] = np.argmax(simulated.locals["topic"], -1)[ids >= 0]
    return _state_from_labels(chain, chain.labels_of(topics, particles))


def true_normal_state(chain: IndependentNormalChain, simulated: Simulated, particles: int) -> NormalState:
    """Return a state of a mixture with the true component of every row, and the true weights, means, precisions and
    rates.
    """
    g, more = simulated.globals, chain.capacity - simulated.size[0]

    def copies(leaf: Any, *, padding: float | None = None) -> Array:
        """Return an array repeated for every particle on a new last axis, with empty components of value `padding`
        added.
        """
        array = np.asarray(leaf, np.float64)
        if padding is not None:
            array = np.pad(array, [(0, more), *[(0, 0)] * (array.ndim - 1)], constant_values=padding)
        return jnp.asarray(np.repeat(array[..., None], particles, axis=-1))

    return NormalState(
        _true_labels(simulated, particles),
        copies(g["weights"], padding=-np.inf),
        copies(g["mean"].value, padding=0.0),
        copies(-g["precision"].negative_value, padding=1.0),
        copies(-g["rate"].negative_value),
    )


def true_path_state(chain: HiddenMarkovChain, simulated: Simulated, particles: int) -> PathState:
    """Return a state of a hidden Markov model with the true hidden state of every row.

    All parameters are integrated out, so their true values are not used.
    """
    (ids,), units = simulated.data.unit_ids, simulated.data.batches[0].units
    present = np.asarray(units.present) & (ids >= 0)[:, None]
    order = np.argsort(np.broadcast_to(ids[:, None], present.shape)[present], kind="stable")
    labels = np.full(chain.elements, -1, np.int32)
    labels[: len(order)] = np.argmax(simulated.locals["path"].state, -1)[present][order]
    return chain.state_from_labels(jnp.asarray(np.repeat(labels[:, None], particles, axis=1)))


def true_factor_state(chain: PoissonFactorizationChain, simulated: Simulated, particles: int) -> FactorState:
    """Return a state of a Poisson factorisation with the true intensities and factors.

    The factor that each count belongs to is summed out.
    """
    more = chain.capacity - simulated.size[0]

    def copies(log_values: Any) -> Array:
        """Return log values (row or word, factor), the same for every particle, as (row or word, factor, particle).

        Factors beyond those of the truth are added behind, up to the capacity, with log value 0.
        """
        padded = np.pad(np.asarray(log_values, np.float64), [(0, 0), (0, more)])
        return jnp.asarray(np.repeat(padded[..., None], particles, axis=-1))

    noise = None
    if chain.model.inferred:
        noise = jnp.full(particles, float(simulated.globals["noise_shape"].log_value))
    return FactorState(
        copies(simulated.locals["intensities"].log_value), copies(simulated.globals["factors"].log_value.T), noise
    )


def true_factor_state_near_fit(chain: AnchoredFactorization, simulated: Simulated, particles: int) -> NearState:
    """Return a state of a Poisson factorisation on its path around a fit, with the true intensities and factors.

    Rows are in the order of the data set.
    """
    (ids,), more = simulated.data.unit_ids, chain.capacity - simulated.size[0]
    rows = np.flatnonzero(ids >= 0)[np.argsort(ids[ids >= 0], kind="stable")]

    def copies(log_values: Any) -> Array:
        """Return an array repeated for every particle on a new first axis, with empty factors added."""
        return jnp.asarray(np.repeat(np.pad(log_values, [(0, 0), (0, more)])[None], particles, axis=0))

    noise = None
    if chain.inferred:
        noise = jnp.full(particles, float(simulated.globals["noise_shape"].log_value))
    return NearState(
        copies(np.asarray(simulated.locals["intensities"].log_value, np.float64)[rows]),
        copies(np.asarray(simulated.globals["factors"].log_value.T, np.float64)),
        noise,
    )


def true_gibbs_state(chain: GenericChain, simulated: Simulated, particles: int) -> GibbsState:
    """Return a state of any model with the true statistics of every latent variable, 0 at elements that do not
    exist.
    """
    model, size, capacity = chain.model, simulated.size, chain.capacity
    lengths = {axis: mask.shape[0] for axis, mask in model.active(size, capacity).items()}

    def padded(site: Site, statistics: Statistics) -> Statistics:
        """Return the statistics of a local variable with zeros in the array slots of components that do not exist."""
        wanted = [None, *(lengths.get(axis) for axis in site.axes)]  # units lead

        def pad(leaf: np.ndarray) -> np.ndarray:
            return np.pad(leaf, [(0, (n or have) - have) for n, have in zip(wanted, leaf.shape, strict=False)])

        return jax.tree.map(pad, statistics)

    l = {name: padded(site, simulated.locals[name]) for name, site in model.locals().items()}
    one = GibbsState(pad_axes(model, simulated.globals, size, capacity), (l,))
    return jax.tree.map(lambda leaf: jnp.asarray(np.repeat(np.asarray(leaf, np.float64)[None], particles, 0)), one)


def _true_labels(simulated: Simulated, particles: int) -> Array:
    """Return the true label of each row, which is its component and variant, (row, particle), the same for all
    particles.
    """
    label = np.argmax(simulated.locals["component"], -1)
    if "variant" in simulated.locals:
        variants = np.asarray(simulated.locals["variant"])
        label = label * variants.shape[-1] + np.argmax(variants[np.arange(len(label)), label], -1)
    return jnp.asarray(np.repeat(label[:, None].astype(np.int32), particles, axis=1))
