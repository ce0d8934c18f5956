"""The Indian buffet process on left-ordered classes: its probability, and the most it can become when rows are added.

Z is a binary matrix (rows, features), and [Z] the class of all matrices that differ from it in the order of columns
only. α is the mean number of features of a row. With N rows, K₊ columns that some row has, m_k = Σ_n z_nk, K_h the
number of columns with history h (equal columns) and H_N = Σ 1/n,

  log P([Z]) = K₊ log α − Σ_h log K_h! − α H_N + Σ_k log w(m_k),      w(m) = (N − m)! (m − 1)! / N!

(Griffiths & Ghahramani 2005, Eq. 14; the product Π_h K_h! is misprinted in Rai & Daumé 2009.) It does not depend on the
order of the rows: two columns are equal in every order or in none.

**The best completion.** Fix the first n rows, with R = N − n to come. Columns with the same first n rows form a group
of g columns with m ones. A completion gives each column one of 2^R endings. An ending with a ones has weight w(m + a),
and columns that share an ending cost a factorial. The groups, and the columns not yet opened, do not interact, so

  max log P([Z]) = −α H_N + Σ_groups G(m, g) + Σ_{a=1…R} C(R, a) · max_t [t log(α w(a)) − log t!]
  G(m, g) = max { Σ_e [t_e log(α w(m + a_e)) − log t_e!] : Σ_e t_e = g }

G is separable and concave in the counts t_e, so filling it greedily is exact. Its g best gains are among log(α w(m +
a)) − log t, t = 1, 2, …, each offered C(R, a) times. w is log-convex, so its largest values lie at the two ends a = 0
and a = R. For a single column G(m, 1) = log α + max(w(m), w(m + R)), not the majority rule that is printed. Within a
group, only the g endings nearest to either end can be among the g best.

**The change by one row.** A node is a matrix of features of the rows placed so far. The opened columns of a node
(features that some row has) fall into groups with equal histories, side by side in left-ordered form. A row takes the
first c columns of a group of g (any other choice gives the same class). So each column's bit within a group adds one
increment, and the prior after the row is linear in the bits:

  log prior(node + row) = base + bits · gain + new[j],     j new features.

This holds for the best completion (`best_completion_gains`), and for the class of the rows so far (`class_gains`).
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.special import comb, gammaln

Features = Int64[np.ndarray, "row feature"]
"""A binary feature matrix: 1 where the row has the feature."""


def harmonic(n_rows: int) -> float:
    """Return 1 + 1/2 + … + 1/n_rows.

    Times α, it is the mean number of different features of `n_rows` rows.
    """
    return float(np.sum(1.0 / np.arange(1, n_rows + 1)))


def log_poisson(count: int, mean: float) -> float:
    """Return the log probability of `count` under a Poisson distribution with this mean, nats."""
    return float(count * np.log(mean) - mean - gammaln(count + 1))


def binary(Z) -> Features:
    """Return a feature matrix (row, feature) as int64.

    Raises ValueError unless it is a matrix of zeros and ones.
    """
    array = np.asarray(Z)
    if array.ndim != 2:
        raise ValueError(f"got features of shape {array.shape}; expected a matrix (rows, features)")
    if not np.isin(array, (0, 1)).all():
        raise ValueError(
            "got features that are not all 0 or 1; expected a binary matrix: pass (Z > 0) if that is meant"
        )
    return array.astype(np.int64)


def left_ordered(Z) -> Features:
    """Return the feature matrix with its columns in left order, (row, feature), without columns of zeros.

    Columns are sorted by falling binary number, with the first row as the leading bit. So matrices that differ only in
    the order of columns give the same result.
    """
    array = binary(Z)
    array = array[:, array.any(axis=0)]
    return array[:, np.lexsort(-array[::-1])] if array.shape[1] else array


def column_groups(Z: Features) -> list[tuple[int, int]]:
    """Return (number of ones, number of columns) of each set of equal columns that are not all zero."""
    kept = Z[:, Z.any(axis=0)]
    if not kept.shape[1]:
        return []
    histories, sizes = np.unique(kept, axis=1, return_counts=True)
    return [(int(ones), int(size)) for ones, size in zip(histories.sum(axis=0), sizes, strict=True)]


def log_weight(ones, n_rows):
    """Return log w(m) = log (N − m)! (m − 1)! / N!, the prior's weight of a feature that m of N rows have, nats.

    ones: m, from 1 to N. n_rows: N. Numbers or arrays that broadcast.
    """
    ones = np.asarray(ones, np.float64)
    return gammaln(n_rows - ones + 1) + gammaln(ones) - gammaln(n_rows + 1)


def log_prior(Z, alpha: float) -> float:
    """Return the log probability of a feature matrix under the Indian buffet process, nats.

    All orders of its columns count as one matrix.

    Z: binary, (row, feature).
    alpha: the mean number of features of a row.

    Raises ValueError for α ≤ 0 or a non-binary Z.
    """
    if not alpha > 0:
        raise ValueError(f"got alpha={alpha}; expected a positive number: the mean number of features per row")
    array = binary(Z)
    groups = column_groups(array)
    return -alpha * harmonic(len(array)) + sum(group_log_prior(m, g, len(array), alpha) for m, g in groups)


@lru_cache(maxsize=1 << 16)
def group_log_prior(ones: int, columns: int, n_rows: int, alpha: float) -> float:
    """Return what equal columns add to the log prior of a feature matrix, nats: g log(α w(m)) − log g!.

    ones: m, how many rows have each of the features.
    columns: g, the number of equal columns.
    n_rows: the number of rows.
    alpha: α, the mean number of features of a row.
    """
    return float(columns * (np.log(alpha) + log_weight(ones, n_rows)) - gammaln(columns + 1)) if columns else 0.0


@lru_cache(maxsize=1 << 14)
def best_gains(ones: int, most: int, remaining: int, n_rows: int, alpha: float) -> Float64[np.ndarray, " columns"]:
    """Return the most that 0, 1, …, `most` equal columns can add to the log prior once the other rows are set, nats.

    It is G(m, g) of the file's docstring for g = 0, …, most. It is concave in g, so the gains are summed from the
    largest down.

    ones: m, how many of the rows placed so far have each feature.
    remaining: how many rows are still to come.
    n_rows: the number of all rows.
    alpha: the mean number of features of a row.
    """
    outer = np.arange(min(most, remaining + 1))
    endings = np.unique(np.concatenate([outer, remaining - outer]))
    offered = np.minimum(comb(remaining, endings), most)
    columns_per_ending = np.arange(most) // np.maximum(offered, 1)[:, None] + 1
    gains = np.log(alpha) + log_weight(ones + endings, n_rows)[:, None] - np.log(columns_per_ending)
    total = np.concatenate([[0.0], np.cumsum(-np.sort(-gains, axis=None)[:most])])
    total.flags.writeable = False  # shared by all callers
    return total


@lru_cache(maxsize=1 << 14)
def unopened_best(remaining: int, n_rows: int, alpha: float) -> float:
    """Return the most that features first taken in the `remaining` last rows can add to the log prior, nats.

    It is 0 unless the mean number of features `alpha` exceeds the number of all rows.
    """
    if remaining == 0 or alpha <= n_rows:  # w(a) ≤ 1/N: opening a feature cannot raise the prior
        return 0.0
    ones = np.arange(1, remaining + 1)
    rate = np.log(alpha) + log_weight(ones, n_rows)
    count = np.floor(np.exp(rate) * (1 + 1e-12))  # at a whole rate both neighbours are modes
    return float(np.sum(comb(remaining, ones) * (count * rate - gammaln(count + 1))))


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
