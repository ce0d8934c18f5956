"""Units of a two-level process at given shared variables: contents, q of tables, bound, shares, predictive density.

A *unit* is a document or a group of rows, a *member* a word or a row, and a *part* a topic or a component. To the
kernels a group of rows is a document. Its rows are its words, once each, over a vocabulary of all rows. Only the model
knows what a member is and how probable it is under each part (`HierarchicalProcess.log_likelihoods`).

The predictive density of rows of a group under a fitted HDP mixture, with components integrated out over q, is

    p(x | group j, data) ≈ Σ_k E[θ_jk] ∫ p(x | φ_k) q(φ_k) dφ + (1 − Σ_k E[θ_jk]) ∫ p(x | φ) p(φ) dφ

Here φ_k are the parameters of component k, and θ_j are the components' shares of the group's own rows. For a new group
E[θ_k] = E[β_k], the shared weights. The density integrates to 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import csr_array

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.data.packing import PackedDocuments, pack
from lvsearch.inference.data.rows import rows_of, rows_of_groups
from lvsearch.inference.engine.describing import Described
from lvsearch.inference.engine.estimate import (
    Estimate,
    beliefs_at,
    capacity_of,
    padded_natural,
    point_of,
    recorded_beliefs_and_bound,
)
from lvsearch.inference.hdp.kernel import Globals, TablePosterior, settle_documents
from lvsearch.inference.kits import model_kit
from lvsearch.inference.mixtures.predictive import weighted_predictive
from lvsearch.inference.topics import kernel as kernels
from lvsearch.models.contract import Latents, Model
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.kernels import kernel


class Contents(NamedTuple):
    """The units (documents or groups of rows) of a data set.

    counts: (unit, member), how often each unit has each member (word or row).
    members: the members as `log_likelihoods` takes them, with float64 leaves and members on the leading axis.
    """

    counts: csr_array
    members: Any


def contents_of(model: HierarchicalProcess, data: Dataset) -> Contents:
    """Return the units (documents or groups of rows) of a data set as counts of members (words or rows), in its
    order.
    """
    return model_kit(model).contents_of(model, data)


def no_contents(model: Model, data: Dataset) -> Contents:
    """Raise NotImplementedError: the units of this type of model are not known as counts of members."""
    raise NotImplementedError(f"got a {type(model).__name__}, expected a process of two levels: HDP or HDPMixture")


def contents_of_documents(model: HDP, data: Dataset) -> Contents:
    """Return documents as counts of words."""
    counts = counts_of(data)
    return Contents(counts, np.arange(counts.shape[1]))


_members = kernel(brief=True)(lambda model, rows: model.members(rows))


def contents_of_groups(model: HDPMixture, data: Dataset) -> Contents:
    """Return groups as counts of rows: each group has its own rows once.

    Raises ValueError for rows without a density.
    """
    rows, sizes = rows_of_groups(data)
    model.components.check(rows)
    with jax.enable_x64(True):
        members = jax.tree.map(np.asarray, _members(model, rows))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    n_rows = len(rows.value)
    counts = csr_array((np.ones(n_rows), np.arange(n_rows), ends), shape=(len(sizes), n_rows))
    return Contents(counts, members)


DESCRIBE_SWEEPS, DESCRIBE_TOLERANCE = 100, 1e-3
"""The most sweeps over a unit when it is described, and the change of its expected members per part that ends them."""
NOTHING = 700.0
"""How many nats below the best part a part without information about a member is put: e^−700 is as good as 0."""


class Packed(NamedTuple):
    """Packed units (documents or groups of rows).

    | field | meaning |
    |---|---|
    | `documents` | the units in tiles, blocks of fixed size with slots for units |
    | `real` | which slots hold a unit, (batch, tile, document) |
    | `lengths` | how many members (words or rows) each unit has, (batch, tile, document) |
    | `members` | all words of the vocabulary, or all rows, as `HierarchicalProcess.log_likelihoods` takes them |
    """

    documents: PackedDocuments
    real: np.ndarray
    lengths: np.ndarray
    members: Any


def packed_documents(documents: PackedDocuments) -> Packed:
    """Return packed documents as packed units whose members are the words of the vocabulary."""
    return packed_units(documents, np.arange(documents.n_words))


def packed_units(documents: PackedDocuments, members: Any) -> Packed:
    """Return packed units, with which slots hold one and how many members it has.

    A tile is a block of fixed size with slots for documents.

    Units are documents or groups of rows.

    documents: the units in tiles.
    members: all words of the vocabulary, or all rows, as `HierarchicalProcess.log_likelihoods` takes them.
    """
    return Packed(documents, documents.documents >= 0, documents.lengths, members)


def seat_largest(
    in_documents: Float[np.ndarray, "batch tile document topic"], capacity: int, tables: int, alpha: float
) -> TablePosterior:
    """Return tables for every document that point at its topics, largest first, float32.

    A document's tokens sit at tables, each of which serves one topic. Each table has as many words as its topic has in
    the document. Tables beyond the number of topics point at the same topics again, without words.

    in_documents: expected words of each topic in every document.
    capacity: the number of topics that arrays have room for.
    tables: the number of tables of a document.
    alpha: the concentration of a document's weights of tables.
    """
    n_topics = in_documents.shape[-1]
    order = np.argsort(-in_documents, axis=-1, kind="stable")[..., :tables]
    words = np.take_along_axis(in_documents, order, axis=-1)
    again = np.arange(tables) % n_topics
    fresh = np.arange(tables) < n_topics
    hits = 1 + np.where(fresh, words[..., again], 0.0)
    beyond = np.cumsum((hits - 1)[..., ::-1], axis=-1)[..., ::-1] - (hits - 1)
    pointers = np.zeros((*in_documents.shape[:-1], tables, capacity), np.float32)
    np.put_along_axis(pointers, order[..., again][..., None], 1.0, axis=-1)
    return TablePosterior(pointers, hits.astype(np.float32), (alpha + np.maximum(beyond, 0.0)).astype(np.float32))


def bound_at(
    model: HierarchicalProcess,
    natural: Latents,
    size: tuple[int, ...],
    packed: Packed,
    seating: TablePosterior,
    sweeps: int,
) -> tuple[float, TablePosterior]:
    """Return the evidence lower bound in float64 at exactly the given shared variables, nats, and the tables it
    holds for.

    Units are documents or groups of rows. The members of a unit sit at tables, each of which serves one part.

    natural: natural parameters of the variables that all units share.
    seating: q of the units' tables, to begin with.
    sweeps: coordinate steps of every unit before the bound is computed.
    """
    capacity = capacity_of(size)
    with jax.enable_x64(True):
        beliefs, total = recorded_beliefs_and_bound(model, natural, size, capacity)
        seen, log_alpha = globals_of(model, beliefs.mean, packed.members, size, capacity=capacity)
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), seating)
        settled, bounds = settle_documents(packed.documents.tiles, wide, seen, sweeps=sweeps)
        total += float(np.asarray(bounds)[packed.real].sum() + packed.real.sum() * model.tables * np.asarray(log_alpha))
    return total, jax.tree.map(np.asarray, settled)


@kernel(static_argnames=("capacity",), brief=True)
@counted
def globals_of(
    model: HierarchicalProcess,
    mean: Latents,
    members: Any,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> tuple[Globals, Array]:
    """Return what units see of the shared variables, and E[log α] of the unit-level concentration α.

    Parts are topics or components; units are documents or groups of rows.

    mean: expected statistics of the shared variables.
    members: all words of the vocabulary, or all rows, as `HierarchicalProcess.log_likelihoods` takes them.
    size, capacity: the truncation, and the number of parts that arrays have room for.
    """
    on = model.active(size, capacity)
    exists = on[model.axes.part]
    log_weights = jnp.where(exists, model.log_weights(mean, on), -jnp.inf)
    log_likelihoods = jnp.where(exists, model.log_likelihoods(mean, members), 0.0)
    log_alpha, alpha = model.log_and_value(mean, model.levels[1])
    dtype = log_likelihoods.dtype
    return Globals(log_likelihoods, log_weights, jnp.asarray(alpha, dtype)), jnp.asarray(log_alpha, dtype)


# ── units at the globals' posterior means ───────────────────────────────────────────────────────────────────────────


class Shares(NamedTuple):
    """Shares of the parts (topics or components) in every unit.

    A tile is a block of fixed size with slots for documents.

    Units are documents or groups of rows.

    gamma: Dirichlet parameters of the shares, with one more entry for all parts beyond the truncation, (batch, tile,
        document, part).
    lower: a lower bound on the unit's log probability, (batch, tile, document), nats.
    """

    gamma: np.ndarray
    lower: np.ndarray


def shares_at_means(model: HierarchicalProcess, estimate: Estimate, packed: Packed) -> Shares:
    """Run mean field for units' shares of the parts, with the shared variables at their posterior means.

    Members are tokens or rows; parts are topics or components; units are documents or groups of rows.

    The prior of the shares is Dirichlet(α β_k), with α the unit-level concentration and β the shared weights. The parts
    beyond the truncation are one entry of that Dirichlet, with no information about members. q leaves it at its prior,
    so that the bound is one on the process.
    """
    (n_parts,) = estimate.size
    size, (capacity,) = estimate.size, capacity_of((n_parts + 1,))
    with jax.enable_x64(True):
        wide = padded_natural(model, estimate.natural, size, (capacity,), np.float64)
        seen, _ = globals_of(
            model, point_of(model, wide, size, capacity=(capacity,)), packed.members, size, capacity=(capacity,)
        )
    # log-likelihoods relative to the best part; the entry beyond the truncation has none
    log_likelihoods = np.array(seen.log_topics)
    highest = log_likelihoods[:, :n_parts].max(1, keepdims=True)
    log_likelihoods[:, n_parts:] = highest - NOTHING
    weights = np.where(np.arange(capacity) < n_parts, np.exp(log_likelihoods - highest), 0.0)
    # the Dirichlet prior of the shares, α times the shared weights, what is left of them last
    alpha = np.zeros(capacity)
    shares, left = model.expected_weights(estimate.natural)
    total = model.expected_concentration(model.levels[1], estimate.natural)
    alpha[: n_parts + 1] = total * np.append(shares, left)
    alpha32 = np.where(alpha > 0, np.maximum(alpha, 1e-20), 0).astype(np.float32)
    gamma, _ = kernels.document_pass(
        packed.documents.tiles,
        weights.astype(np.float32),
        kernels.start_state(packed.documents, weights, alpha32).proportions,
        alpha32,
        sweeps=DESCRIBE_SWEEPS,
        tolerance=np.float32(DESCRIBE_TOLERANCE),
    )
    # the passes ran in float32; the bound at their result is computed in float64
    with jax.enable_x64(True):
        wide_gamma = np.asarray(gamma, np.float64)
        alpha64 = np.maximum(alpha, alpha32.astype(np.float64))
        lower = kernels.document_bounds(packed.documents.tiles, log_likelihoods, wide_gamma, alpha64)
    return Shares(wide_gamma[..., : n_parts + 1], np.asarray(lower))


def packed_alone(model: HierarchicalProcess, data: Dataset) -> tuple[Packed, Contents]:
    """Return the units of a data set packed in one batch, and their contents.

    Units are documents or groups of rows.
    """
    contents = contents_of(model, data)
    return packed_units(pack(contents.counts, n_batches=1), contents.members), contents


def describe_units_of_process(model: HierarchicalProcess, estimate: Estimate, data: Dataset) -> Described:
    """Describe units by their expected shares of the parts (unit, part), and by the bound on each unit's log
    probability.

    Parts are topics or components; units are documents or groups of rows.

    Only parts within the truncation are listed, and rows sum to 1. The shared variables are at their posterior means.
    """
    packed, _ = packed_alone(model, data)
    found = shares_at_means(model, estimate, packed)
    known = found.gamma[..., :-1]
    proportions = known / known.sum(-1, keepdims=True)
    return Described(packed.documents.gather(proportions), packed.documents.gather(found.lower))


def seat_units(
    model: HierarchicalProcess, estimate: Estimate, data: Dataset, sweeps: int
) -> tuple[Packed, Contents, TablePosterior, Globals]:
    """Return packed units, their contents, q of their tables, and what they see of the shared variables, in float64.

    Units are documents or groups of rows. The members of a unit sit at tables, each of which serves one part.

    The tables are updated by `sweeps` coordinate steps at q of the shared variables.
    """
    packed, contents = packed_alone(model, data)
    capacity = capacity_of(estimate.size)
    gamma = shares_at_means(model, estimate, packed).gamma[..., :-1]
    shares, _ = model.expected_weights(estimate.natural)
    prior = model.expected_concentration(model.levels[1], estimate.natural) * shares
    start = seat_largest(np.maximum(gamma - prior, 0), capacity[0], model.tables, float(prior.sum()))
    _, seating = bound_at(model, estimate.natural, estimate.size, packed, start, sweeps)
    with jax.enable_x64(True):
        mean = beliefs_at(model, estimate.natural, estimate.size, capacity, np.float64).mean
        seen, _ = globals_of(model, mean, packed.members, estimate.size, capacity=capacity)
    return packed, contents, seating, jax.tree.map(np.asarray, seen)


def group_predictive_log_density(
    estimate: Estimate, rows: Dataset, group: Dataset | None = None
) -> Float[np.ndarray, " rows"]:
    """Return log p(row | group, fitted data) of each row, in the order of `rows`, nats, float64.

    rows: a data set of rows.
    group: a data set of one group, with the rows of it that are known; None for a new group.

    Raises ValueError for a model that is no `HDPMixture`, rows without a density, and more groups than one.
    """
    model = estimate.model
    if not isinstance(model, HDPMixture):
        raise ValueError(f"got a fit of {model.describe()}, expected one of an HDPMixture")
    units, _ = rows_of(rows)
    model.components.check(units)
    weights, left = model.expected_weights(estimate.natural)
    if group is not None:
        if group.n_units != 1:
            raise ValueError(f"got {group.n_units} groups, expected the one that the rows belong to")
        packed, _ = packed_alone(model, group)
        gamma = packed.documents.gather(shares_at_means(model, estimate, packed).gamma)[0]
        weights, left = gamma[:-1] / gamma.sum(), float(gamma[-1] / gamma.sum())
    return weighted_predictive(model.components, estimate.natural["components"], weights, left, units)
