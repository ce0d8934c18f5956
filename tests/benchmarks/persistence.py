"""Is a component that persists a true one, and does it come back as often as it says?

    python tests/benchmarks/persistence.py REGIME [--sets 100] [--first 0] [--evidence bound]

Data with planted components are searched, and the persistence of each component of the best fit is taken. Printed, by
the probability that a component was given: how many there were, what share has a planted counterpart (similarity of
members, corrected for chance, above ½, one to one), and what share exists in the fit of *another* data set drawn from
the same planted components and searched with the same effort: what the probability promises. Then, of the planted
ones by their separation: what share the reference fit has, and what share is called stable (probability ≥ .9).

| regime | what |
|---|---|
| `graded` | 200 rows of 3 to 5 Gaussian clusters in the plane, at distances from half a standard deviation on |
| `topics` | 150 documents of 40 tokens out of 5 topics over 60 words, 0 to 70 % of each shared; 5 or 8 are fitted |
| `skewed` | 300 rows of three skewed clusters (gamma of shape 1.5, rotated), fitted by Gaussians: the model is wrong |
| `heavy` | the same of Student's t with 2 degrees of freedom |
| `uniform` | 300 rows, uniform in a rectangle: there is one cluster, and Gaussians ask for several |
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import lvsearch as lv
from lvsearch.comparison.similarity import ComponentMembers, member_similarity, partners

TOPICS = (5, 8)
"""Sizes at which topics are fitted, in turn: as many as are planted, and more."""
STABLE = 0.9
LARGEST = 10
BINS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Of probabilities."""


class Planted(NamedTuple):
    """Data, what of them is in each planted component, and how far each of these is from its nearest neighbour."""

    data: Any
    members: ComponentMembers
    separation: np.ndarray


Draw = Callable[[np.random.Generator], Planted]
"""New data from the same planted components."""


def _rows(points: np.ndarray, z: np.ndarray, separation: np.ndarray) -> Planted:
    return Planted(points, ComponentMembers(np.eye(len(separation))[z], np.ones(len(z)), "row"), separation)


def _unions(members: ComponentMembers) -> ComponentMembers:
    """All unions of planted components, each of them among them."""
    size = members.shares.shape[1]
    chosen = np.array([[number >> k & 1 for number in range(1, 2**size)] for k in range(size)])
    return members._replace(shares=members.shares @ chosen)


def _nearest(means: np.ndarray, scale: float = 1.0) -> np.ndarray:
    apart = np.linalg.norm(means[:, None] - means, axis=-1)
    return (apart + np.diag(np.full(len(means), np.inf))).min(axis=1) / scale


def graded(rng: np.random.Generator) -> tuple[Any, Draw]:
    """Clusters of all separations, known to have standard deviation 1."""
    size = int(rng.integers(3, 6))
    means = rng.normal(size=(size, 2)) * rng.uniform(1.5, 4.5)
    weights = rng.dirichlet(np.full(size, 5.0))

    def draw(rng: np.random.Generator) -> Planted:
        z = rng.choice(size, size=200, p=weights)
        return _rows(means[z] + rng.normal(size=(200, 2)), z, _nearest(means))

    return lv.models.FiniteMixture(lv.models.components.KnownCovarianceComponents(np.eye(2), pseudo_count=0.1)), draw


def _misfit(noise: Callable[[np.random.Generator, int], np.ndarray]) -> Callable[[np.random.Generator], Any]:
    def regime(rng: np.random.Generator) -> tuple[Any, Draw]:
        angles = rng.uniform(0, 2 * np.pi) + np.arange(3) * 2 * np.pi / 3
        means = 5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        turns = rng.uniform(0, 2 * np.pi, 3)
        turn = np.stack([[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in turns])

        def draw(rng: np.random.Generator) -> Planted:
            z = rng.integers(3, size=300)
            points = means[z] + np.einsum("nij,nj->ni", turn[z], noise(rng, 300))
            return _rows(points, z, _nearest(means))

        return None, draw

    return regime


def uniform(rng: np.random.Generator) -> tuple[Any, Draw]:
    """One cluster that is no Gaussian."""
    ratio = rng.uniform(1, 3)

    def draw(rng: np.random.Generator) -> Planted:
        return _rows(rng.random((300, 2)) * [ratio, 1], np.zeros(300, np.int64), np.array([np.inf]))

    return None, draw


def topics(rng: np.random.Generator) -> tuple[Any, Draw]:
    """Topics of which each shares some part with a common one; separation: the part that is its own."""
    common, own = rng.dirichlet(np.full(60, 1.0)), rng.dirichlet(np.full(60, 0.1), 5)
    shared = np.linspace(0, 0.7, 5)
    words = (1 - shared)[:, None] * own + shared[:, None] * common

    def draw(rng: np.random.Generator) -> Planted:
        n, counts = 150, np.zeros((150, 60, 5), np.int64)
        theta = rng.dirichlet(np.full(5, 0.2), n)
        for document in range(n):
            tokens = rng.multinomial(40, theta[document])
            counts[document] = np.stack([rng.multinomial(m, p) for m, p in zip(tokens, words, strict=True)], axis=1)
        cells = counts.sum(-1)
        there = cells > 0
        members = ComponentMembers(counts[there] / cells[there][:, None], cells[there].astype(np.float64), "token")
        return Planted(lv.Corpus.from_matrix(sp.csr_matrix(cells)), members, 1 - shared)

    return lv.models.LDA(concentration=1.0, topic_concentration=0.1), draw


REGIMES = {
    "graded": graded,
    "topics": topics,
    "skewed": _misfit(lambda rng, n: (rng.gamma(1.5, size=(n, 2)) - 1.5) * [1.2, 0.5]),
    "heavy": _misfit(lambda rng, n: 0.7 * rng.standard_t(2, size=(n, 2))),
    "uniform": uniform,
}


class Outcome(NamedTuple):
    """Of one set: a row for each component of the reference fit, a row for each planted one, both sizes."""

    components: np.ndarray
    planted: np.ndarray
    sizes: tuple[int, int]


def outcome(regime: str, number: int, evidence: str, bootstraps: int) -> Outcome:
    """One set: searched, and another one from the same planted components."""
    rng = np.random.default_rng([number, 7])
    model, draw = REGIMES[regime](rng)
    here, elsewhere = draw(rng), draw(rng)
    components = lv.models.components.DiagonalComponents
    model = lv.models.FiniteMixture(components.scaled_to(here.data)) if model is None else model
    size = TOPICS[number % len(TOPICS)] if regime == "topics" else None
    prior = None if size is None else lv.sizes.Table(np.eye(size)[-1])

    def searched(data: Any, seed: int) -> lv.SearchResult:
        return lv.search(
            model,
            data,
            prior=prior,
            evidence=evidence,
            max_size=size or LARGEST,
            exhaustive=size is not None,
            starts=2 if size is None else 1,
            seed=seed,
            progress=False,
        )

    result, other = searched(here.data, number), searched(elsewhere.data, number + 10_000)
    persistence = result.persistence(bootstraps=bootstraps, starts=0, seed=number, progress=False)
    probability, members = persistence.probability(), result.best.members()
    again = replace(other.best, training=result.training).members()
    true, union, replicated = (
        each > persistence.threshold
        for each in (
            partners(member_similarity(members, here.members)),
            member_similarity(members, _unions(here.members)).max(axis=1),
            partners(member_similarity(members, again)),
        )
    )
    to_reference, stable = member_similarity(here.members, members), probability >= STABLE
    known = partners(to_reference) > persistence.threshold
    called = partners(np.where(stable, to_reference, 0.0)) > persistence.threshold
    print(number, np.round(probability, 2), true.astype(int), union.astype(int), replicated.astype(int), flush=True)
    return Outcome(
        np.stack([probability, persistence.probability("parameters"), true, union, replicated], axis=1),
        np.stack([here.separation, known, called], axis=1),
        (len(here.separation), result.best_size[0]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--evidence", default="bound", choices=("bound", "marginal"))
    parser.add_argument("--bootstraps", type=int, default=20)
    options = parser.parse_args()
    outcomes, seconds = [], []
    for number in range(options.first, options.first + options.sets):
        began = time.process_time()
        outcomes.append(outcome(options.regime, number, options.evidence, options.bootstraps))
        seconds.append(time.process_time() - began)
    more = [found - planted for planted, found in (each.sizes for each in outcomes)]
    print(f"\n{len(outcomes)} sets, {np.median(seconds):.1f} processor seconds each; size found less planted: ", end="")
    print({int(size): int(times) for size, times in zip(*np.unique(more, return_counts=True), strict=True)})
    print_components(np.concatenate([each.components for each in outcomes]))
    print_planted(np.concatenate([each.planted for each in outcomes]))


def print_components(found: np.ndarray) -> None:
    """By the probability that components were given."""
    probability, by_parameters, true, union, replicated = found.T
    print("\n| probability | components | mean | exist in other data | are a planted one | or a union of some |")
    print("|---|---|---|---|---|---|")
    rows = {f"{low:g}–{high:g}": (probability >= low) & (probability < high) for low, high in pairwise(BINS)}
    rows |= {f"≥ {STABLE:g} by parameters": by_parameters >= STABLE, "all": probability >= 0}
    for name, here in rows.items():
        if here.any():
            shares = [f"{each[here].mean():.2f}" for each in (probability, replicated, true, union)]
            print(f"| {name} | {here.sum()} | {' | '.join(shares)} |")
    spurious = union == 0
    if spurious.any():
        median, called = np.median(probability[spurious]), np.mean(probability[spurious] >= STABLE)
        print(f"\nno planted ones: {spurious.sum()}, median probability {median:.2f}, {called:.0%} called stable")


def print_planted(planted: np.ndarray) -> None:
    """By their separation, in fifths."""
    separation, known, called = planted.T
    separation = np.round(separation, 6)  # equal ones differ by rounding
    if not np.isfinite(separation).all():  # a single one has no neighbour
        return
    print("\n| separation | planted | in the reference fit | called stable |\n|---|---|---|---|")
    fifth = np.digitize(separation, np.unique(np.quantile(separation, [0.2, 0.4, 0.6, 0.8])))
    for number in np.unique(fifth):
        here = fifth == number
        ends = f"{separation[here].min():.2f}–{separation[here].max():.2f}"
        print(f"| {ends} | {here.sum()} | {known[here].mean():.2f} | {called[here].mean():.2f} |")


if __name__ == "__main__":
    main()
