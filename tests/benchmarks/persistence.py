"""Is a component that persists a true one, and does it come back as often as it says?

    python tests/benchmarks/persistence.py REGIME [--sets 100] [--first 0] [--evidence bound] [--fits 1]

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
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import lvsearch as lv
from lvsearch.fitted.similarity import Members, member_similarity, partners

TOPICS = (5, 8)
"""Sizes at which topics are fitted, in turn: as many as are planted, and more."""
BINS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Of probabilities."""


class Planted(NamedTuple):
    """Data, what of them is in each planted component, and how far each of these is from its nearest neighbour."""

    data: Any
    members: Members
    separation: np.ndarray


Draw = Callable[[np.random.Generator], Planted]
"""New data from the same planted components."""


def _rows(model_of: Callable[[np.ndarray], Any], points: np.ndarray, z: np.ndarray, separation: np.ndarray) -> Planted:
    return Planted(points, Members(np.eye(len(separation))[z], np.ones(len(z)), "row"), separation)


def _unions(members: Members) -> Members:
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
        return _rows(None, means[z] + rng.normal(size=(200, 2)), z, _nearest(means))

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
            return _rows(None, points, z, _nearest(means))

        return None, draw

    return regime


def uniform(rng: np.random.Generator) -> tuple[Any, Draw]:
    """One cluster that is no Gaussian."""
    ratio = rng.uniform(1, 3)

    def draw(rng: np.random.Generator) -> Planted:
        return _rows(None, rng.random((300, 2)) * [ratio, 1], np.zeros(300, np.int64), np.array([np.inf]))

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
        members = Members(counts[there] / cells[there][:, None], cells[there].astype(np.float64), "token")
        return Planted(lv.Corpus.from_matrix(sp.csr_matrix(cells)), members, 1 - shared)

    return lv.models.LDA(concentration=1.0, topic_concentration=0.1), draw


REGIMES = {
    "graded": graded,
    "topics": topics,
    "skewed": _misfit(lambda rng, n: (rng.gamma(1.5, size=(n, 2)) - 1.5) * [1.2, 0.5]),
    "heavy": _misfit(lambda rng, n: 0.7 * rng.standard_t(2, size=(n, 2))),
    "uniform": uniform,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--evidence", default="bound")
    parser.add_argument("--bootstraps", type=int, default=20)
    options = parser.parse_args()
    found, planted, sizes, seconds = [], [], [], []
    for number in range(options.first, options.first + options.sets):
        began = time.process_time()
        rng = np.random.default_rng([number, 7])
        size = TOPICS[number % len(TOPICS)] if options.regime == "topics" else None
        model, draw = REGIMES[options.regime](rng)
        here, elsewhere = draw(rng), draw(rng)
        components = lv.models.components.DiagonalComponents
        model = lv.models.FiniteMixture(components.scaled_to(here.data)) if model is None else model

        def searched(data: Any, seed: int, model: Any = model) -> lv.SearchResult:
            prior = None if size is None else lv.sizes.Table(np.eye(size)[-1])
            most = 10 if size is None else size
            return lv.search(
                model,
                data,
                prior=prior,
                evidence=options.evidence,
                max_size=most,
                exhaustive=size is not None,
                starts=1,
                seed=seed,
                progress=False,
            )

        result, other = searched(here.data, number), searched(elsewhere.data, number + 10_000)
        persistence = result.persistence(bootstraps=options.bootstraps, starts=0, seed=number, progress=False)
        reference = result.best
        members = reference.members()
        probability = persistence.probability()
        parameters = persistence.probability("parameters")
        true = partners(member_similarity(members, here.members)) > persistence.threshold
        union = member_similarity(members, _unions(here.members)).max(axis=1) > persistence.threshold
        again = replace(other.best, training=reference.training).members()
        replicated = partners(member_similarity(members, again)) > persistence.threshold
        found += zip(probability, parameters, true, union, replicated, strict=True)
        to_reference = member_similarity(here.members, members)
        known = partners(to_reference) > persistence.threshold
        called = (
            partners(to_reference[:, probability >= 0.9]) > persistence.threshold
            if (probability >= 0.9).any()
            else known & False
        )
        planted += zip(here.separation, known, called, strict=True)
        sizes.append((len(here.separation), result.best_size[0]))
        seconds.append(time.process_time() - began)
        print(
            number,
            sizes[-1],
            np.round(probability, 2),
            true.astype(int),
            union.astype(int),
            replicated.astype(int),
            flush=True,
        )
    _print(np.array(found, np.float64), np.array(planted, np.float64), np.array(sizes), seconds)


def _print(found: np.ndarray, planted: np.ndarray, sizes: np.ndarray, seconds: list[float]) -> None:
    print(f"\n{len(sizes)} sets, {np.median(seconds):.1f} processor seconds each; size found less planted: ", end="")
    print(dict(zip(*np.unique(sizes[:, 1] - sizes[:, 0], return_counts=True), strict=True)))
    probability, parameters, true, union, replicated = found.T
    print(
        "\n| probability | components | mean of it | exist in other data | are a planted one | or a union of some |\n|---|---|---|---|---|---|"
    )
    for low, high in zip(BINS[:-1], BINS[1:], strict=True):
        here = (probability >= low) & (probability < high)
        if here.any():
            print(
                f"| {low:.2f}–{high:.2f} | {here.sum()} | {probability[here].mean():.2f} | "
                f"{replicated[here].mean():.2f} | {true[here].mean():.2f} | {union[here].mean():.2f} |"
            )
    print(
        f"| all | {len(found)} | {probability.mean():.2f} | {replicated.mean():.2f} | {true.mean():.2f} | "
        f"{union.mean():.2f} |"
    )
    spurious = union == 0
    if spurious.any():
        print(f"\nspurious: {spurious.sum()}, of which {np.mean(probability[spurious] >= 0.9):.0%} are called stable")
    print(
        f"by parameters ≥ .9: {np.mean(parameters >= 0.9):.0%}, planted counterpart {true[parameters >= 0.9].mean():.2f}, other data {replicated[parameters >= 0.9].mean():.2f}"
    )
    separation, known, called = planted.T
    edges = np.unique(np.quantile(separation, np.linspace(0, 1, 6)))
    if len(edges) < 2:
        edges = np.array([separation.min(), separation.min()])
    print("\n| separation | planted | in the reference fit | called stable |\n|---|---|---|---|")
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        here = (separation >= low) & ((separation < high) | (high == edges[-1]))
        print(f"| {low:.2f}–{high:.2f} | {here.sum()} | {known[here].mean():.2f} | {called[here].mean():.2f} |")


if __name__ == "__main__":
    main()
