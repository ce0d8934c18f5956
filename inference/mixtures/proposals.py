"""Proposals to escape local maxima of a mixture's bound: merge two components, delete one, split one, or sort by size.

Coordinate ascent cannot make these moves. Each proposal is a new set of responsibilities. The parameters follow from
it, and the fit climbs on for a few sweeps. The proposal is accepted only if the bound then exceeds that of the
converged fit it started from. Every proposal is recorded with the gain of each term of the bound (the idea is Hughes &
Sudderth's, 2013). How proposals are tried and recorded does not depend on the kind of fit (`improve`).

A component is split by a plane that cuts its rows in two (`find_cuts`), which also says how much better two components
would explain the rows than one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.mixtures.rows import PackedColumns, RowTiles, pack_increment, unpack_sums
from lvsearch.inference.mixtures.starts import with_component_emptied
from lvsearch.models.components import Component, log_normalisers
from lvsearch.models.kernels import kernel

POWER_STEPS, TWO_MEANS_STEPS = 10, 4
"""Steps of the power iteration for a direction, and steps of two-means for where to cut."""


class Cuts(NamedTuple):
    """A hyperplane through each component's rows, and what splitting the component there would gain.

    | field | meaning |
    |---|---|
    | `directions` | (component, dim) the normal vector of each plane |
    | `middles` | (component,) a row x is on the far side of its plane if directions · x > middles |
    | `gains` | (component,) log evidence of the rows under two components minus that under one, nats |

    The gains include n log n of the rows n on each side, the weight that labels have.
    """

    directions: Float[Array, "component dim"]
    middles: Float[Array, " component"]
    gains: Float[Array, " component"]

    def far(self, coordinates: Float[np.ndarray, "row dim"], component: int) -> np.ndarray:
        """Return which rows are on the far side of one component's plane, (row,), bool."""
        return coordinates @ np.asarray(self.directions[component]) > float(self.middles[component])


@kernel(static_argnames=("layout",), brief=True, kept=True)
@counted
def find_cuts(
    component: Component, shares: Float[Array, "tile row component"], tiles: RowTiles, *, layout: PackedColumns
) -> Cuts:
    """Find a plane that cuts each component's rows in two, and what splitting the component there would gain.

    The first plane is normal to the direction in which the rows spread most: the first eigenvector of their covariance.
    The eigenvector is found by power iteration without a matrix of columns × columns. A few steps of two-means then
    move the plane.

    component: the kind of component.
    shares: responsibilities, (tile, row, component).
    tiles: the rows.
    layout: which columns of the rows' packed sufficient statistics vary.
    """
    weights = shares * tiles.weight[..., None]
    counts = jnp.maximum(weights.sum((0, 1)), 1e-12)
    means = jnp.einsum("trk,trd->kd", weights, tiles.coordinates) / counts[:, None]

    def spread(_: Any, directions: Array) -> Array:
        def one(total: Array, tile: tuple[Array, Array]) -> tuple[Array, None]:
            w, x = tile
            along = w * (x @ directions.T - (means * directions).sum(-1))
            return total + along.T @ x - along.sum(0)[:, None] * means, None

        new = jax.lax.scan(one, jnp.zeros_like(directions), (weights, tiles.coordinates))[0]  # pyright: ignore
        return new / jnp.maximum(jnp.linalg.norm(new, axis=-1, keepdims=True), 1e-30)

    def sums(directions: Array, middles: Array) -> tuple[Array, Array]:
        # Sums of packed increments of the far rows and of all rows (2K, S), and how many rows these are (2K,).

        def one(total: tuple[Array, Array], tile: tuple[Array, RowTiles]) -> tuple[tuple[Array, Array], None]:
            w, t = tile
            packed = jax.vmap(lambda y, o: pack_increment(component, y, o))(t.coordinates, t.observed)
            far = jnp.where(t.coordinates @ directions.T > middles, w, 0.0)
            both = jnp.concatenate([far, w], axis=-1)
            return (total[0] + both.T @ packed, total[1] + both.sum(0)), None

        width = len(layout.varying) + len(layout.constants)
        zero = jnp.zeros((2 * len(counts), width), weights.dtype), jnp.zeros(2 * len(counts), weights.dtype)
        return jax.lax.scan(one, zero, (weights, tiles))[0]

    def two_means(_: Any, plane: tuple[Array, Array]) -> tuple[Array, Array]:
        directions, middles = plane
        far = jnp.where(jnp.einsum("trd,kd->trk", tiles.coordinates, directions) > middles, weights, 0.0)
        n_far = far.sum((0, 1))
        n_near = counts - n_far
        beyond = jnp.einsum("trk,trd->kd", far, tiles.coordinates)
        far_mean = beyond / jnp.maximum(n_far, 1e-12)[:, None]
        near_mean = (means * counts[:, None] - beyond) / jnp.maximum(n_near, 1e-12)[:, None]
        between, centre = far_mean - near_mean, 0.5 * (far_mean + near_mean)
        both = (n_far > 1e-6) & (n_near > 1e-6)
        return jnp.where(both[:, None], between, directions), jnp.where(both, (between * centre).sum(-1), middles)

    # The plane: direction by power iteration, then both direction and place by two-means.
    begin = jax.random.normal(jax.random.key(0), means.shape, means.dtype)
    directions = jax.lax.fori_loop(0, POWER_STEPS, spread, begin)
    plane = directions, (means * directions).sum(-1)
    directions, middles = jax.lax.fori_loop(0, TWO_MEANS_STEPS, two_means, plane)
    # The gain: log normalisers of both sides, minus those of all rows and of an empty component.
    increments, n = sums(directions, middles)
    (far, everything), (n_far, n_all) = jnp.split(increments, 2), jnp.split(n, 2)
    # one call for everything: a log normaliser may be large to compile
    groups = jnp.concatenate([far, everything - far, everything, jnp.zeros_like(far)])
    n = jnp.concatenate([n_far, n_all - n_far, n_all, jnp.zeros_like(n_far)])
    prior = jax.tree.map(
        lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, weights.dtype), (len(n), *jnp.shape(leaf))),
        component.prior(layout.n_dims),
    )
    rows = jax.tree.map(jnp.add, unpack_sums(component, groups, prior), prior)
    heights = log_normalisers(component, rows) + jnp.where(n > 0, n * jnp.log(jnp.maximum(n, 1e-30)), 0.0)
    beyond, nearer, together, empty = jnp.split(heights, 4)
    return Cuts(directions, middles, beyond + nearer - together - empty)


EMPTY = 0.5
"""A component with fewer rows (or tokens) than this is free to be used again."""

Shares = TypeVar("Shares")


@dataclass(frozen=True)
class Proposal:
    """A proposal that was tried, and its result.

    | field | meaning |
    |---|---|
    | `kind` | "merge", "delete", "birth" or "reorder"; "merges" and "births" for several at once; "passes" |
    | `components` | the components it changes, see below |
    | `gain` | bound after minus bound before, nats |
    | `terms` | the gain of each term of the bound by its name, nats; the terms sum to `gain` |
    | `accepted` | True if the gain is above 0 by more than rounding |

    `components` are (kept, emptied) of a merger, (emptied,) of a deletion and (parent, child) of a birth. For several
    at once the pairs follow one another. A reorder has the new order. "passes" replaces a fit to groups of rows by
    sequential passes and has ().
    """

    kind: str
    components: tuple[int, ...]
    gain: float
    terms: Mapping[str, float]
    accepted: bool


class Standing(NamedTuple):
    """A converged fit in the form in which proposals are made from it.

    | field | meaning |
    |---|---|
    | `trace` | the coordinate ascent so far |
    | `shares` | responsibilities, (row, component) |
    | `counts` | rows of each component, (component,) |
    | `together` | by how many nats one component explains the rows of two better, (component, component) |
    | `terms` | the terms of the bound by name, nats |
    """

    trace: AscentTrace
    shares: Float[np.ndarray, "row component"]
    counts: Float[np.ndarray, " component"]
    together: Float[np.ndarray, "component component"]
    terms: Mapping[str, float]

    @property
    def bound(self) -> float:
        """The lower bound on the log evidence, the sum of its terms, in nats."""
        return sum(self.terms.values())


class Idea(NamedTuple, Generic[Shares]):
    """A proposal that was not tried yet.

    | field | meaning |
    |---|---|
    | `kind`, `components` | what it would change, as in `Proposal` |
    | `shares` | responsibilities (row, component) that an ascent would start from, or another start of one |
    """

    kind: str
    components: tuple[int, ...]
    shares: Shares


@runtime_checkable
class WithTerms(Protocol):
    """The type of fits that `improve` can improve: anything that has the terms of its bound by name."""

    @property
    def terms(self) -> Mapping[str, float]:
        """The terms of the lower bound on the log evidence by name, nats."""
        ...


Fit = TypeVar("Fit", bound=WithTerms)


def ideas(
    standing: Standing,
    cuts: Cuts,
    coordinates: Float[np.ndarray, "row dim"],
    ordered: bool,
    most: int,
) -> Iterator[Idea[np.ndarray]]:
    """Yield the most promising proposals for a fit.

    First come births of several components and mergers of several pairs at once, then single proposals, at most `most`
    of each kind. Births cut the components that gain most by it, into components without rows or the smallest ones.
    Mergers join pairs whose rows one component explains best. Deletions empty the smallest components.

    standing: the fit.
    cuts: the plane along which each component would be cut.
    coordinates: the rows.
    ordered: True if components are sticks of a stick-breaking prior, which are best in order of size.
    most: the most single proposals of each kind.
    """
    counts, shares = standing.counts, standing.shares
    used = np.flatnonzero(counts > EMPTY)
    order = np.argsort(-counts, kind="stable")
    gains = np.asarray(cuts.gains, np.float64)[: len(counts)]
    parents = used[np.argsort(-gains[used], kind="stable")]
    pairs = _likely_pairs(standing, used)
    yield from _all_births(shares, counts, cuts, coordinates, parents[gains[parents] > 0])
    yield from _all_mergers(shares, [pair for pair in pairs if standing.together[pair] > 0])
    if ordered and not np.array_equal(order, np.arange(len(order))):
        yield Idea("reorder", tuple(order.tolist()), shares[:, order])
    for kept, gone in pairs[:most]:
        yield Idea("merge", (kept, gone), _merged(shares, kept, gone))
    if len(used) > 1:
        for gone in used[np.argsort(counts[used], kind="stable")][:most].tolist():
            yield Idea("delete", (gone,), with_component_emptied(shares, gone))
    for parent in parents[:most].tolist():
        child = int(np.argmin(np.where(np.arange(len(counts)) == parent, np.inf, counts)))
        if child != parent and counts[parent] >= 2:
            cleared = with_component_emptied(shares, child) if counts[child] > EMPTY else shares
            yield Idea("birth", (parent, child), _split_off(cleared, cuts.far(coordinates, parent), parent, child))


def _all_births(
    shares: np.ndarray, counts: np.ndarray, cuts: Cuts, coordinates: np.ndarray, parents: np.ndarray
) -> Iterator[Idea[np.ndarray]]:
    """Yield one proposal that splits two or more components at once, or nothing if fewer than two can be split.

    shares: responsibilities, (row, component).
    counts: rows of each component; every split needs an empty one for the new half.
    cuts: the plane along which each component is cut.
    coordinates: the rows.
    parents: the components to split, the most promising first.
    """
    free = np.flatnonzero(counts <= EMPTY)
    couples = list(zip(parents.tolist(), free.tolist(), strict=False))
    if len(couples) > 1:
        for parent, child in couples:
            shares = _split_off(shares, cuts.far(coordinates, parent), parent, child)
        yield Idea("births", tuple(number for couple in couples for number in couple), shares)


def _all_mergers(shares: np.ndarray, pairs: list[tuple[int, int]]) -> Iterator[Idea[np.ndarray]]:
    """Yield one proposal that merges two or more pairs at once, or nothing if there are fewer.

    shares: responsibilities, (row, component).
    pairs: the pairs to merge, the best first. A pair that shares a component with a better one is left out.
    """
    touched: set[int] = set()
    apart = [pair for pair in pairs if not touched.intersection(pair) and not touched.update(pair)]
    if len(apart) > 1:
        for kept, gone in apart:
            shares = _merged(shares, kept, gone)
        yield Idea("merges", tuple(number for pair in apart for number in pair), shares)


def _split_off(shares: np.ndarray, far: np.ndarray, parent: int, child: int) -> np.ndarray:
    """Return responsibilities in which the child has got the parent's rows on the far side of a plane.

    shares: responsibilities, (row, component).
    far: which rows are on the far side, (row,).
    """
    out = shares.copy()
    out[:, child] += np.where(far, out[:, parent], 0.0)
    out[:, parent] = np.where(far, 0.0, out[:, parent])
    return out


def _merged(shares: np.ndarray, kept: int, gone: int) -> np.ndarray:
    """Return responsibilities in which component `kept` has the rows of component `gone` too, and `gone` has none.

    shares: responsibilities, (row, component).
    """
    out = shares.copy()
    out[:, kept] += out[:, gone]
    out[:, gone] = 0.0
    return out


def _likely_pairs(standing: Standing, used: np.ndarray) -> list[tuple[int, int]]:
    """Return all pairs of used components, those first whose rows are explained best by one component.

    used: the numbers of the components that have rows.
    """
    first, second = np.triu_indices(len(used), 1)
    pairs = list(zip(used[first].tolist(), used[second].tolist(), strict=True))
    return sorted(pairs, key=lambda pair: -standing.together[pair])


def improve(
    standing: Fit,
    new_ideas: Callable[[Fit], Iterator[Idea[Shares]]],
    climb: Callable[[Shares], Fit],
    tolerance: float,
    rounds: int,
    exhausted: Callable[[], bool],
) -> tuple[Fit, tuple[Proposal, ...]]:
    """Try proposals on a fit until none of a round is accepted, or `rounds` rounds are over.

    An accepted proposal replaces the fit and ends its round.

    standing: the fit to improve.
    new_ideas: fit -> the proposals for it, best first.
    climb: responsibilities (or another start) of a proposal -> a converged fit from there.
    tolerance: nats by which the bound must rise for a proposal to be accepted.
    exhausted: () -> True if no more work may be spent on proposals.

    Returns: (the best fit, every proposal that was tried, in order).
    """
    record: list[Proposal] = []
    for _ in range(rounds):
        for idea in new_ideas(standing):
            if exhausted():
                return standing, tuple(record)
            candidate = climb(idea.shares)
            terms = {name: candidate.terms[name] - value for name, value in standing.terms.items()}
            gain = sum(terms.values())
            accepted = bool(gain > tolerance)  # False for NaN
            record.append(Proposal(idea.kind, idea.components, gain, terms, accepted))
            if accepted:
                standing = candidate
                break
        else:
            break
    return standing, tuple(record)
