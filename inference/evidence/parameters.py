"""Readers of the states of collapsed chains, which return them as latent variables of their models.

With them the parameters that these chains integrate out are drawn (`lvsearch.inference.sampling.parameters`). The same
chains are annealed for the evidence and sampled by `lv.sample`.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.annealing.generic import GenericChain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.evidence.hidden_markov import HiddenMarkovChain, PathState
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.poisson_factorization import PoissonFactorizationChain
from lvsearch.inference.evidence.unigram_mixtures import UnigramMixtureChain
from lvsearch.inference.sampling.parameters import (
    STEPS,
    LabelReader,
    LatentsReader,
    latents_reader,
    one_hot,
    places_in_batches,
    records_all_parameters,
)
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, HyperTopicState
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.contract import Model
from lvsearch.models.families import MarkovChainStatistics
from lvsearch.models.lda import LDA

for _chain in (GenericChain, IndependentNormalChain, PoissonFactorizationChain):
    latents_reader.register(_chain, records_all_parameters)


@latents_reader.register(CollapsedMixtureChain)
@latents_reader.register(HyperMixture)
def _reader_of_mixtures(chain: CollapsedMixtureChain | HyperMixture, model: Model, data: Dataset) -> LabelReader:
    """Return the reader of a mixture's labels, and of its hyper-parameters that have priors.

    One step draws weights and components where a component's parameters are one latent variable of the model, since the
    two are then independent given the labels.
    """
    hyper = tuple(chain.courses) if isinstance(chain, HyperMixture) else ()
    others = set(model.globals()).difference(hyper, ["weights"])
    steps, names = 1 if len(others) == 1 else STEPS, chain.names
    return LabelReader(model, (chain.size,), (names.capacity,), steps, places_in_batches(data), names.n_variants, hyper)


@latents_reader.register
def _reader_of_unigram_mixtures(chain: UnigramMixtureChain, model: Model, data: Dataset) -> LabelReader:
    """Return the reader of the topics of a mixture of unigrams' documents."""
    of_units = chain.places_of_documents()
    places = tuple(of_units[np.maximum(ids, 0)] for ids in data.unit_ids)
    return LabelReader(model, (chain.size,), (chain.capacity,), 1, places)


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────────────────────


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


@latents_reader.register
def _reader_of_hidden_markov(chain: HiddenMarkovChain, model: Model, data: Dataset) -> PathReader:
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


# ── topics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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


@latents_reader.register
def _reader_of_topics(chain: CollapsedTopics, model: Model, data: Dataset) -> TopicReader:
    """Return the reader of the topics of all tokens."""
    return TopicReader(*_tokens_in_batches(chain, model, data))


@latents_reader.register
def _reader_of_hyper_topics(chain: HyperTopics, model: LDA, data: Dataset) -> HyperTopicReader:
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
