"""Occupied parts of a two-level process, by direct assignment.

A chain begins with all members in one part, in many (documents dealt to topics with all their words, rows to the
nearest of a few of them), or in between.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int32

from lvsearch.inference.collapsed_topics import expand
from lvsearch.inference.compiles import counted
from lvsearch.inference.data import Dataset
from lvsearch.inference.hdp import gibbs, group_gibbs
from lvsearch.inference.hdp.chain import next_state
from lvsearch.inference.hdp.contents import contents_of
from lvsearch.inference.hdp.franchise import Emission, Emitted, Franchise, empty_state
from lvsearch.inference.hdp.weights import prior_mean
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.mixtures.starts import nearest_rows, start_groups
from lvsearch.inference.processes import LogPrior, OccupiedSampler, occupied_sampler
from lvsearch.models.hdp import HDP
from lvsearch.models.hdp_mixture import HDPMixture
from lvsearch.models.hierarchical_process import HierarchicalProcess


class Members(NamedTuple):
    """`unit_of` each member, `n_units`, what members say of parts, and (key, parts) -> a grouping of them to begin
    with; `places` for parts at first."""

    unit_of: Int32[np.ndarray, " member"]
    n_units: int
    emission: Emission
    grouped: Callable[[Array, int], Int[np.ndarray, " member"]]
    places: int


@occupied_sampler.register
def occupied_topics(model: HDP, data: Dataset) -> OccupiedSampler:
    """In float32. Raises ValueError for counts that are not whole numbers."""
    tokens = expand(data)
    document = np.asarray(tokens.document)
    emission = gibbs.word_counts(model, tokens, data.extents["word"])

    def dealt(key: Array, parts: int) -> Int[np.ndarray, " member"]:
        return np.asarray(jax.random.permutation(key, data.n_units))[document] % parts

    members = Members(document, data.n_units, emission, dealt, gibbs.FIRST_CAPACITY)

    def chain(key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
        return part_counts(model, members, key, number, sweeps)

    return OccupiedSampler(("occupied topics",), chain, _unknown)


@occupied_sampler.register
def occupied_shared_components(model: HDPMixture, data: Dataset) -> OccupiedSampler:
    """In float64. Raises ValueError for rows without a density."""
    counts, rows = contents_of(model, data)
    sizes = np.diff(counts.indptr)
    unit_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    with jax.enable_x64(True):
        emission = group_gibbs.row_emission(model, rows)

    def near(key: Array, parts: int) -> Int[np.ndarray, " member"]:
        return nearest_rows(key, rows.coordinates, rows.observed, parts)

    members = Members(unit_of, len(sizes), emission, near, group_gibbs.FIRST_CAPACITY)

    def chain(key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
        with jax.enable_x64(True):
            return part_counts(model, members, key, number, sweeps)

    return OccupiedSampler(("occupied components",), chain, _unknown)


def part_counts(
    model: HierarchicalProcess, members: Members, key: Array, number: int, sweeps: int
) -> Int[np.ndarray, "sweep name"]:
    """Parts in use after each sweep of a chain, in the session's floating type."""
    key_start, key_sweeps = jax.random.split(key)
    groups = start_groups(number, len(members.unit_of))
    state = grouped(model, members, members.grouped(key_start, groups))
    counts = np.zeros((sweeps, 1), np.int64)
    for sweep in range(sweeps):
        key_sweep = jax.random.fold_in(key_sweeps, sweep)
        state = next_state(model, state, members.unit_of, members.emission, key_sweep)
        counts[sweep] = (np.asarray(state.total) > 0).sum()
    return counts


def grouped(model: HierarchicalProcess, members: Members, labels: Int[np.ndarray, " member"]) -> Franchise:
    """The state of a grouping: concentrations at their prior means, weights as if every member were a table."""
    labels = by_appearance(labels).astype(np.int32)
    places = members.places
    while places <= labels.max(initial=0) + 1:
        places *= 2
    in_unit = np.zeros((members.n_units, places), np.int32)
    np.add.at(in_unit, (members.unit_of, labels), 1)
    gamma, alpha = (prior_mean(model.given(level)) for level in model.levels)
    state = empty_state(len(labels), members.n_units, members.emission, places, gamma, alpha)
    total = in_unit.sum(0)
    return state._replace(
        assignments=jnp.asarray(labels),
        in_unit=jnp.asarray(in_unit),
        total=jnp.asarray(total.astype(np.int32)),
        emitted=_emitted(members.emission, labels, places=places),
        beta=jnp.asarray(total / (len(labels) + gamma), state.beta.dtype),
        left=jnp.asarray(gamma / (len(labels) + gamma), state.left.dtype),
    )


@partial(jax.jit, static_argnames=("places",))
@counted
def _emitted(emission: Emission, labels: Int32[Array, " member"], *, places: int) -> Emitted:
    """What the members of each part say, added one by one."""

    def add(emitted: Any, x: tuple[Array, Array]) -> tuple[Any, None]:
        return emission.given(emitted, *x), None

    numbered = jnp.arange(len(labels), dtype=jnp.int32), labels
    return jax.lax.scan(add, emission.empty(places), numbered)[0]


def _unknown(most: int) -> tuple[LogPrior, ...]:
    """No closed form: two levels of seatings."""
    return (None,)
