"""What the units of a two-level process hold, in the one form that its kernels know: counts of members.

To the kernels a group of rows is a document: its rows are its words, once each, over a vocabulary that is all rows.
What a member is, and how probable under each part, only the model knows (`HierarchicalProcess.log_likelihoods`).
"""

from functools import singledispatch
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from lvsearch.inference.data import Batch, Dataset
from lvsearch.inference.documents import counts_of
from lvsearch.models.hdp import HDP
from lvsearch.models.hdp_mixture import HDPMixture
from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.units import GroupOfRows, Row

GROUPS_STEP = 8
"""Batches are padded to a multiple of this many groups: folds whose sizes differ by one share their programs."""


class Contents(NamedTuple):
    """`counts` (unit, member): how often each unit has each member; `members`: as `log_likelihoods` takes them, float64
    leaves, members leading."""

    counts: csr_array
    members: Any


@singledispatch
def contents_of(model: HierarchicalProcess, data: Dataset) -> Contents:
    """The units of a data set in its order."""
    raise NotImplementedError(f"no contents of units for {type(model).__name__}")


@contents_of.register
def _(model: HDP, data: Dataset) -> Contents:
    counts = counts_of(data)
    return Contents(counts, np.arange(counts.shape[1]))


@contents_of.register
def _(model: HDPMixture, data: Dataset) -> Contents:
    """Raises ValueError for rows without a density."""
    rows, sizes = rows_of_groups(data)
    model.components.check(rows)
    with jax.enable_x64(True):
        members = jax.tree.map(np.asarray, model.members(rows))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    n_rows = len(rows.value)
    counts = csr_array((np.ones(n_rows), np.arange(n_rows), ends), shape=(len(sizes), n_rows))
    return Contents(counts, members)


def rows_of_groups(data: Dataset) -> tuple[Row, Int[np.ndarray, " group"]]:
    """(all rows, those of one group next to each other in the order of the groups, how many each group has)."""
    values, observed, owners = [], [], []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        present = np.asarray(batch.units.present) & (ids >= 0)[:, None]
        values.append(np.asarray(batch.units.value)[present])
        observed.append(np.asarray(batch.units.observed)[present])
        owners.append(np.broadcast_to(ids[:, None], present.shape)[present])
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    rows = Row(np.concatenate(values)[order], np.concatenate(observed)[order])
    return rows, np.bincount(owner, minlength=data.n_units)


def groups_of_rows(
    values: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"], sizes: Int[np.ndarray, " group"]
) -> Dataset:
    """Groups as padded batches of `GroupOfRows`, float64; engines cast to their own precision.

    values, observed: all rows, those of one group next to each other. sizes: rows of each group, 0 for none. Groups are
    padded to the next power of two, so that there are few lengths to compile.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    lengths = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    batches, unit_ids = [], []
    for length in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == length)
        ids = np.pad(chosen, (0, -len(chosen) % GROUPS_STEP), constant_values=-1)
        real = np.where(ids >= 0, sizes[ids], 0)
        present = np.arange(length) < real[:, None]
        at = np.where(present, starts[ids][:, None] + np.arange(length), 0)
        known = observed[at] & present[..., None]
        units = GroupOfRows(np.where(known, values[at], 0.0), known, present)
        batches.append(Batch(units, (ids >= 0).astype(np.float32)))
        unit_ids.append(ids)
    return Dataset(tuple(batches), tuple(unit_ids), {"dim": values.shape[1]}, len(sizes))
