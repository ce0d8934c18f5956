"""The change of the prior by the assignments of one row, for many nodes of the search at once.

A node is a matrix of features of the rows placed so far. The opened columns of a node (features that some row has) fall
into groups with equal histories, side by side in left-ordered form. A row takes the first c columns of a group of g
(any other choice gives the same class). So each column's bit within a group adds one increment, and the prior after the
row is linear in the bits:

  log prior(node + row) = base + bits · gain + new[j],     j new features.

This holds for the best completion of `prior`, and for the class of the rows so far.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.special import gammaln

from lvsearch.inference.features.prior import best_gains, harmonic, log_weight, unopened_best


class Columns(NamedTuple):
    """The opened columns (features that some row has) of many nodes, in left order.

    A node is a matrix of features of the rows placed so far.

    ones: how many rows have each feature; 0 where unopened.
    same: whether a column equals the one before it.
    """

    ones: Int64[np.ndarray, "node feature"]
    same: Bool[np.ndarray, "node feature"]

    @property
    def opened(self) -> Bool[np.ndarray, "node feature"]:
        """The mask of columns (features) that some row has."""
        return self.ones > 0

    @property
    def count(self) -> Int64[np.ndarray, " node"]:
        """The number of opened columns of each node. They come first.

        A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.
        """
        return self.opened.sum(axis=1)

    def after(self, bits: Bool[np.ndarray, "node feature"]) -> "Columns":
        """Return the columns once each node's next row has the features `bits`. Newly opened columns follow the
        opened ones.

        A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.
        """
        twins = (bits[:, 1:] == bits[:, :-1]) & (self.ones[:, 1:] == 0) & (self.ones[:, :-1] == 0) & bits[:, 1:]
        split = self.same[:, 1:] & (bits[:, 1:] == bits[:, :-1])
        same = np.zeros_like(self.same)
        same[:, 1:] = split | twins
        return Columns(self.ones + bits, same)

    def resize(self, capacity: int) -> "Columns":
        """Return the columns with room for `capacity` features; the new ones are unopened."""
        extra = ((0, 0), (0, capacity - self.ones.shape[1]))
        return Columns(np.pad(self.ones, extra), np.pad(self.same, extra))


class Gains(NamedTuple):
    """The terms of the prior after a row with features `bits` and j new ones: base + bits · bit + new[:, j], nats."""

    base: Float64[np.ndarray, " node"]
    bit: Float64[np.ndarray, "node feature"]
    new: Float64[np.ndarray, "node count"]


def best_completion_gains(
    columns: Columns, depth: Int64[np.ndarray, " node"], n_rows: int, alpha: float, most_new: int
) -> Gains:
    """Return the terms of the prior after each node's next row, for the best completion to `n_rows` rows.

    A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.

    columns: the opened columns of each node.
    depth: how many rows each node has placed.
    alpha: the mean number of features of a row.
    most_new: new features are listed for j = 0, …, most_new.
    """
    remaining = n_rows - depth - 1

    def one(ones: np.ndarray) -> np.ndarray:
        """Return the most that one column adds to the log prior, nats, from the rows that have it now."""
        ends = log_weight(ones, n_rows), log_weight(ones + remaining[:, None], n_rows)
        return np.log(alpha) + np.maximum(*ends)

    def group(ones: int, size: int, node: int) -> np.ndarray:
        """Return the most that 0 … `size` equal columns with `ones` ones add to the log prior of one node, nats.

        A node is a matrix of features of the rows placed so far.
        """
        return best_gains(ones, size, int(remaining[node]), n_rows, alpha)

    new = np.stack([best_gains(1, most_new, int(r), n_rows, alpha) for r in remaining])
    rest = np.array([unopened_best(int(r), n_rows, alpha) for r in remaining])
    base, bit = _gains(columns, one, group)
    return Gains(base - alpha * harmonic(n_rows) + rest, bit, new)


def class_gains(columns: Columns, depth: Int64[np.ndarray, " node"], alpha: float, most_new: int) -> Gains:
    """Return the terms of the prior of the rows placed so far and the next one, for each node.

    A feature is opened if a placed row has it.

    Unlike `best_completion_gains` it needs no knowledge of later rows, so it serves a search over a stream.

    columns: the opened columns of each node.
    depth: how many rows each node has placed.
    alpha: the mean number of features of a row.
    most_new: new features are listed for j = 0, …, most_new.
    """
    n_rows = depth + 1

    def one(ones: np.ndarray) -> np.ndarray:
        """Return the terms that single columns add to the log prior, nats, from the rows that have them."""
        return np.log(alpha) + log_weight(ones, n_rows[:, None])

    def group(ones: int, size: int, node: int) -> np.ndarray:
        """Return the terms that 0 … `size` equal columns with `ones` ones add to the log prior of one node, nats.

        A node is a matrix of features of the rows placed so far.
        """
        counts = np.arange(size + 1)
        return counts * (np.log(alpha) + log_weight(ones, int(n_rows[node]))) - gammaln(counts + 1)

    counts = np.arange(most_new + 1)
    new = counts * np.log(alpha / n_rows)[:, None] - gammaln(counts + 1)
    base, bit = _gains(columns, one, group)
    return Gains(base - alpha * np.array([harmonic(int(n)) for n in n_rows]), bit, new)


def _gains(columns: Columns, one, group) -> tuple[np.ndarray, np.ndarray]:
    """Return the prior's base (node,) and its gain by each bit (node, feature) of the next row, nats.

    A node is a matrix of features of the rows placed so far.

    one: a function from the numbers of ones (node, feature) to the prior's term of each column.
    group: group(ones, size, node) gives the prior's terms of 0, …, size equal columns.
    """
    ones = np.maximum(columns.ones, 1)  # unopened columns are never taken here; any number will do
    skipped = one(ones)
    bit = one(ones + 1) - skipped
    base = np.where(columns.opened, skipped, 0.0)
    for node, first in np.argwhere(~columns.same[:, :-1] & columns.same[:, 1:]).tolist():
        size = 1 + int(np.argmin(np.append(columns.same[node, first + 1 :], False)))
        ones_before = int(columns.ones[node, first])
        takes = group(ones_before + 1, size, node) + group(ones_before, size, node)[::-1]
        base[node, first : first + size] = takes[0] / size
        bit[node, first : first + size] = np.diff(takes)
    return base.sum(axis=1), np.where(columns.opened, bit, 0.0)
