"""Proposals that a coordinate step cannot make: merge two components, delete one, split one, put sticks in order.

Each is a new set of responsibilities, from which the globals follow and climb for a few sweeps; it is accepted only
when the bound then exceeds that of the fit it started from, climbed to its end. Every proposal is recorded with what
each term of the bound gained (Hughes & Sudderth 2013 for the idea). How they are tried and recorded is the same for
whatever a fit can start from (`improve`)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.mixtures.cuts import Cuts
from lvsearch.inference.mixtures.starts import emptied

EMPTY = 0.5
"""Rows (or tokens) below which a component's place is free."""

Shares = TypeVar("Shares")


@dataclass(frozen=True)
class Proposal:
    """What was tried and what came of it.

    | field | meaning |
    |---|---|
    | `kind` | "merge", "delete", "birth" or "reorder"; "merges" and "births" of several at once; "passes" |
    | `components` | those it touches: (kept, emptied), (emptied,), (parent, child), … of several, or the new order |
    | `gain` | bound after minus bound before, nats |
    | `terms` | the gain of each term of the bound: units, log prior, entropy of each global site; they sum to `gain` |
    | `accepted` | gain > 0 by more than rounding |
    """

    kind: str
    components: tuple[int, ...]
    gain: float
    terms: Mapping[str, float]
    accepted: bool


class Standing(NamedTuple):
    """A fit as proposals see it: the ascent so far, responsibilities (rows, K), rows per component, log ∫ of the
    rows of two components together less that of each (K, K), and the terms of the bound (nats)."""

    trace: AscentTrace
    shares: Float[np.ndarray, "row component"]
    counts: Float[np.ndarray, " component"]
    together: Float[np.ndarray, "component component"]
    terms: Mapping[str, float]

    @property
    def bound(self) -> float:
        return sum(self.terms.values())


class Idea(NamedTuple, Generic[Shares]):
    """A proposal not yet tried; `shares`: responsibilities (rows, K), or what else a climb starts from."""

    kind: str
    components: tuple[int, ...]
    shares: Shares


@runtime_checkable
class WithTerms(Protocol):
    """A fit as `improve` sees it: the terms of its bound by name, nats."""

    @property
    def terms(self) -> Mapping[str, float]: ...


Fit = TypeVar("Fit", bound=WithTerms)


def ideas(
    standing: Standing,
    cuts: Cuts,
    coordinates: Float[np.ndarray, "row dim"],
    ordered: bool,
    most: int,
) -> Iterator[Idea[np.ndarray]]:
    """The most promising proposals: first everything at once that looks better, then one by one, at most `most` of each
    kind.

    Births: components cut in two where that gains most, into free places or the emptiest; merges: pairs whose rows one
    component explains best; deletions: the smallest components. ordered: components are sticks, which are best in order
    of size.
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
            yield Idea("delete", (gone,), emptied(shares, gone))
    for parent in parents[:most].tolist():
        child = int(np.argmin(np.where(np.arange(len(counts)) == parent, np.inf, counts)))
        if child != parent and counts[parent] >= 2:
            cleared = emptied(shares, child) if counts[child] > EMPTY else shares
            yield Idea("birth", (parent, child), _cut(cleared, cuts.far(coordinates, parent), parent, child))


def _all_births(
    shares: np.ndarray, counts: np.ndarray, cuts: Cuts, coordinates: np.ndarray, parents: np.ndarray
) -> Iterator[Idea[np.ndarray]]:
    """Two or more parents, each with a free place of its own."""
    free = np.flatnonzero(counts <= EMPTY)
    couples = list(zip(parents.tolist(), free.tolist(), strict=False))
    if len(couples) > 1:
        for parent, child in couples:
            shares = _cut(shares, cuts.far(coordinates, parent), parent, child)
        yield Idea("births", tuple(number for couple in couples for number in couple), shares)


def _all_mergers(shares: np.ndarray, pairs: list[tuple[int, int]]) -> Iterator[Idea[np.ndarray]]:
    """Two or more pairs without a component in common, the best first."""
    touched: set[int] = set()
    apart = [pair for pair in pairs if not touched.intersection(pair) and not touched.update(pair)]
    if len(apart) > 1:
        for kept, gone in apart:
            shares = _merged(shares, kept, gone)
        yield Idea("merges", tuple(number for pair in apart for number in pair), shares)


def _cut(shares: np.ndarray, far: np.ndarray, parent: int, child: int) -> np.ndarray:
    out = shares.copy()
    out[:, child] += np.where(far, out[:, parent], 0.0)
    out[:, parent] = np.where(far, 0.0, out[:, parent])
    return out


def _merged(shares: np.ndarray, kept: int, gone: int) -> np.ndarray:
    out = shares.copy()
    out[:, kept] += out[:, gone]
    out[:, gone] = 0.0
    return out


def _likely_pairs(standing: Standing, used: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of used components, those whose rows one component explains best first."""
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
    """Try proposals until a round has none that is accepted, or `rounds` are over.

    climb: from what an idea proposes to a settled fit. An accepted proposal starts a new round. tolerance: nats by
    which the bound must rise. exhausted: whether there is no more work to be spent on proposals.
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
