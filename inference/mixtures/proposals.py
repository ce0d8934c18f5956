"""Proposals that coordinate ascent cannot make: merge two components, delete one, split one, or sort sticks by size.

Each proposal is a new set of responsibilities, from which the globals follow and climb for a few sweeps. It is accepted
only if the bound then exceeds that of the converged fit it started from. Every proposal is recorded with the gain of
each term of the bound (the idea is Hughes & Sudderth's, 2013). How proposals are tried and recorded does not depend on
the kind of fit (`improve`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.mixtures.cuts import Cuts
from lvsearch.inference.mixtures.starts import emptied

EMPTY = 0.5
"""A component with fewer rows (or tokens) than this is free to be used again."""

Shares = TypeVar("Shares")


@dataclass(frozen=True)
class Proposal:
    """One proposal and its result.

    | field | meaning |
    |---|---|
    | `kind` | "merge", "delete", "birth" or "reorder"; "merges" and "births" for several at once; "passes" |
    | `components` | those it changes: (kept, emptied), (emptied,), (parent, child), … of several, or the new order |
    | `gain` | bound after minus bound before, nats |
    | `terms` | the gain of each term of the bound: units, log prior, entropy of each global site; they sum to `gain` |
    | `accepted` | True if the gain is above 0 by more than rounding |
    """

    kind: str
    components: tuple[int, ...]
    gain: float
    terms: Mapping[str, float]
    accepted: bool


class Standing(NamedTuple):
    """A fit as proposals see it.

    | field | meaning |
    |---|---|
    | `trace` | the ascent so far |
    | `shares` | responsibilities, (row, K) |
    | `counts` | rows of each component, (K,) |
    | `together` | log ∫ of the rows of two components together minus that of each, (K, K), nats |
    | `terms` | the terms of the bound by name, nats |
    """

    trace: AscentTrace
    shares: Float[np.ndarray, "row component"]
    counts: Float[np.ndarray, " component"]
    together: Float[np.ndarray, "component component"]
    terms: Mapping[str, float]

    @property
    def bound(self) -> float:
        """The bound, the sum of its terms, in nats."""
        return sum(self.terms.values())


class Idea(NamedTuple, Generic[Shares]):
    """A proposal that was not tried yet.

    | field | meaning |
    |---|---|
    | `kind`, `components` | as in `Proposal` |
    | `shares` | responsibilities (row, K) that a climb would start from, or another start of a climb |
    """

    kind: str
    components: tuple[int, ...]
    shares: Shares


@runtime_checkable
class WithTerms(Protocol):
    """A fit as `improve` sees it: the terms of its bound by name, in nats."""

    @property
    def terms(self) -> Mapping[str, float]:
        """The terms of the bound by name, nats."""
        ...


Fit = TypeVar("Fit", bound=WithTerms)


def ideas(
    standing: Standing,
    cuts: Cuts,
    coordinates: Float[np.ndarray, "row dim"],
    ordered: bool,
    most: int,
) -> Iterator[Idea[np.ndarray]]:
    """Yield the most promising proposals: first all that look better at once, then one by one, at most `most` of each
    kind.

    Births cut the components that gain most by it, into free places or the emptiest ones. Mergers join pairs whose rows
    one component explains best. Deletions empty the smallest components.

    standing: the fit. cuts: where each component would be cut. coordinates: of the rows.
    ordered: True if components are sticks, which are best in order of size.
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
            yield Idea("birth", (parent, child), _split_off(cleared, cuts.far(coordinates, parent), parent, child))


def _all_births(
    shares: np.ndarray, counts: np.ndarray, cuts: Cuts, coordinates: np.ndarray, parents: np.ndarray
) -> Iterator[Idea[np.ndarray]]:
    """Yield one proposal that splits two or more parents, each into a free place of its own, if there are as many."""
    free = np.flatnonzero(counts <= EMPTY)
    couples = list(zip(parents.tolist(), free.tolist(), strict=False))
    if len(couples) > 1:
        for parent, child in couples:
            shares = _split_off(shares, cuts.far(coordinates, parent), parent, child)
        yield Idea("births", tuple(number for couple in couples for number in couple), shares)


def _all_mergers(shares: np.ndarray, pairs: list[tuple[int, int]]) -> Iterator[Idea[np.ndarray]]:
    """Yield one proposal of two or more mergers without a component in common, the best pairs first."""
    touched: set[int] = set()
    apart = [pair for pair in pairs if not touched.intersection(pair) and not touched.update(pair)]
    if len(apart) > 1:
        for kept, gone in apart:
            shares = _merged(shares, kept, gone)
        yield Idea("merges", tuple(number for pair in apart for number in pair), shares)


def _split_off(shares: np.ndarray, far: np.ndarray, parent: int, child: int) -> np.ndarray:
    """Return responsibilities in which the child has the parent's rows on the far side.

    far: which rows are on the far side, (row,).
    """
    out = shares.copy()
    out[:, child] += np.where(far, out[:, parent], 0.0)
    out[:, parent] = np.where(far, 0.0, out[:, parent])
    return out


def _merged(shares: np.ndarray, kept: int, gone: int) -> np.ndarray:
    """Return responsibilities in which component `kept` has the rows of component `gone` too."""
    out = shares.copy()
    out[:, kept] += out[:, gone]
    out[:, gone] = 0.0
    return out


def _likely_pairs(standing: Standing, used: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs of used components, first those whose rows one component explains best."""
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
    """Try proposals until a round has none that is accepted, or `rounds` rounds are over.

    An accepted proposal ends its round and replaces the fit.

    standing: the fit to improve.
    new_ideas: the proposals for a fit, best first.
    climb: makes a converged fit from the start that an idea proposes.
    tolerance: nats by which the bound must rise.
    exhausted: returns True if no more work may be spent on proposals.

    Returns: (the best fit, every proposal that was tried).
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
