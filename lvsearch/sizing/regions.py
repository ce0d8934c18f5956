"""Cut the unvisited sizes into disjoint boxes, each with its best witness (visited smaller size with most evidence).

A size precedes another if none of its numbers is larger. The distinct coordinates of the visited sizes G cut the
positive integers into a grid of cells. Every size t in a cell is preceded by the same members of G, namely those that
precede the cell's lower corner, and only that corner can itself be in G. So the complement of G is a disjoint union of
whole cells and of cells without their corner. The latter fall into one box per axis. No inclusion–exclusion and no
subtraction of masses is needed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lvsearch.sizing.sizes import OpenSize, Size


class Region(NamedTuple):
    """A box of unvisited sizes t, with lower ≤ t < upper in every variable, that have the same possible witnesses.

    A witness is a visited size that is no larger in any variable. None in `upper` means no end.
    """

    lower: Size
    upper: OpenSize
    log_mass: float  # lower end of the box's log prior mass, nats; −inf where only an upper end is known
    log_mass_upper: float  # upper end of the log prior mass, nats; never −inf
    witness: Size  # the visited size w ⪯ t with the highest lower end of evidence
    log_witness: float  # lower end of the witness's log evidence, nats


class Unvisited(NamedTuple):
    """All boxes of unvisited sizes with prior mass, and a smallest set of witnesses for them.

    A witness is a visited smaller size. Each box finds a witness with the best evidence in the set.
    """

    regions: tuple[Region, ...]
    witnesses: tuple[Size, ...]  # in the order in which they were generated


def unvisited(
    generated: Sequence[Size],
    evidence: Sequence[float],
    log_box: Callable[[Size, OpenSize], float],
    log_box_upper: Callable[[Size, OpenSize], float] | None = None,
) -> Unvisited:
    """Return the unvisited sizes, cut into disjoint boxes, with a witness (best visited smaller size) for each box.

    generated: the visited sizes, which must contain (1, …, 1).
    evidence: lower end of the log evidence of each, nats.
    log_box: function of (lower, upper) that returns the prior's log-mass of a box. Boxes without mass are left out.
    log_box_upper: function that returns an upper end of that mass, where the mass is only bounded.
    """
    points = np.array(generated, dtype=np.int64)
    axes = [np.unique(points[:, axis]) for axis in range(points.shape[1])]
    # the grid of cells: cell [i, j, …] begins at the i-th, j-th, … distinct coordinate
    where = tuple(np.searchsorted(axis, points[:, i]) for i, axis in enumerate(axes))
    visited = np.zeros([axis.size for axis in axes], dtype=bool)
    visited[where] = True
    boxes = [
        (cell, lower, upper, most)
        for cell, lower, upper in _boxes(axes, visited)
        if (most := (log_box_upper or log_box)(lower, upper)) > -math.inf
    ]
    if not boxes:
        return Unvisited((), ())
    # candidates for the witness of a cell: visited sizes that precede it and have the best evidence of these
    cells = np.array(sorted({cell for cell, _, _, _ in boxes}), dtype=np.int64)
    scores = np.array(evidence, dtype=np.float64)
    best = _best_preceding(visited.shape, where, scores)[tuple(cells.T)]
    precedes = np.all(np.stack(where, axis=1)[:, None, :] <= cells[None, :, :], axis=2)
    optimal = precedes & (scores[:, None] == best[None, :])
    kept = _prune(optimal, points)
    witness_of_cell = {
        tuple(cell): int(np.flatnonzero(optimal[:, column] & kept)[0]) for column, cell in enumerate(cells.tolist())
    }
    regions = tuple(
        Region(
            lower,
            upper,
            log_box(lower, upper),
            most,
            generated[witness_of_cell[cell]],
            float(scores[witness_of_cell[cell]]),
        )
        for cell, lower, upper, most in boxes
    )
    return Unvisited(regions, tuple(generated[index] for index in np.flatnonzero(kept).tolist()))


def _boxes(
    axes: Sequence[Int[np.ndarray, " _"]], visited: Bool[np.ndarray, " ..."]
) -> Iterator[tuple[Size, Size, OpenSize]]:
    """Yield (cell index, lower corner, upper end) of every box of unvisited sizes in the grid.

    A cell whose lower corner is visited is cut into one box per axis, which leave the corner out.

    axes: the distinct coordinates of the visited sizes along each variable, rising.
    visited: True for cells whose lower corner is visited, one axis per variable.
    """
    starts = [axis.tolist() for axis in axes]
    ends = [[*axis[1:], None] for axis in starts]
    for cell in product(*(range(len(axis)) for axis in starts)):
        corner = tuple(start[i] for start, i in zip(starts, cell, strict=True))
        upper = tuple(end[i] for end, i in zip(ends, cell, strict=True))
        if not visited[cell]:
            yield cell, corner, upper
            continue
        # Sizes equal to the corner before `axis`, beyond it on `axis`, and free after it: disjoint over axes.
        for axis in range(len(corner)):
            beyond = corner[axis] + 1
            end = upper[axis]
            if end is None or beyond < end:
                at_corner = tuple(part + 1 for part in corner[:axis])
                yield cell, (*corner[:axis], beyond, *corner[axis + 1 :]), (*at_corner, *upper[axis:])


def _best_preceding(
    shape: tuple[int, ...], where: tuple[Int[np.ndarray, " generated"], ...], scores: Float[np.ndarray, " generated"]
) -> Float[np.ndarray, " ..."]:
    """Return for each cell of the grid the highest score of the visited sizes that precede its lower corner.

    shape: of the grid of cells.
    where: the cell index of each visited size along each variable.
    scores: the lower end of the log evidence of each visited size, nats.
    """
    best = np.full(shape, -math.inf)
    best[where] = scores
    for axis in range(len(shape)):
        best = np.maximum.accumulate(best, axis=axis)
    return best


def _prune(
    optimal: Bool[np.ndarray, "generated cells"], points: Int[np.ndarray, "generated dimension"]
) -> Bool[np.ndarray, " generated"]:
    """Return True for each visited size that stays a witness, after dropping the ones that no cell needs, (generated,).

    A size is dropped if each of its cells keeps another optimal witness. The smallest size is dropped first, so that
    under ties a size gives way to larger ones and the search moves on.

    optimal: True where a visited size is a best witness of a cell.
    points: the visited sizes.
    """
    kept = np.asarray(optimal.any(axis=1))
    count = np.asarray(optimal.sum(axis=0))
    for index in np.lexsort((*points.T[::-1], points.sum(axis=1))).tolist():
        if kept[index] and bool(np.all(count[optimal[index]] > 1)):
            kept[index] = False
            count = count - optimal[index]
    return kept
