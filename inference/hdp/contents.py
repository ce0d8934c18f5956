"""The units of a two-level process as counts of members, the one form that its kernels know.

A unit is a document or a group of rows, and a member a word or a row. To the kernels a group of rows is a document. Its
rows are its words, once each, over a vocabulary of all rows. Only the model knows what a member is and how probable it
is under each part (`HierarchicalProcess.log_likelihoods`).
"""

from functools import singledispatch
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.sparse import csr_array

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.data.groups import rows_of_groups
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


@singledispatch
def contents_of(model: HierarchicalProcess, data: Dataset) -> Contents:
    """Return the units (documents or groups of rows) of a data set as counts of members (words or rows), in its
    order.
    """
    raise NotImplementedError(f"no contents of units for {type(model).__name__}")


@contents_of.register
def _contents_of_documents(model: HDP, data: Dataset) -> Contents:
    """Return documents as counts of words."""
    counts = counts_of(data)
    return Contents(counts, np.arange(counts.shape[1]))


_members = kernel(brief=True)(lambda model, rows: model.members(rows))


@contents_of.register
def _contents_of_groups(model: HDPMixture, data: Dataset) -> Contents:
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
