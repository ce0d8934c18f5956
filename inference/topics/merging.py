"""Make fewer topics from more, by merging the two topics whose merger costs least, as often as needed.

Going down is the cheap direction. Words that two similar topics had learnt together stay together, while a topic added
to a converged fit has to find its words from nothing.
"""

import numpy as np
from jaxtyping import Float, Int

CANDIDATES = 8
"""How many pairs of topics are compared exactly before each merger."""
ALIKE = 2.0
"""Mergers are averaged with the cheapest one if they cost at most so many times as much."""


def merge_topics(counts: Float[np.ndarray, "topic word"], size: int) -> Float[np.ndarray, "size word"]:
    """Return expected word counts of `size` topics, made from those of more topics by the cheapest mergers, (topic,
    word).

    The cost of a merger of topics a and b is what their words lose in log-likelihood if each topic's own distribution
    β_a or β_b is replaced by their common one β_ab. It is N_a KL(β_a ∥ β_ab) + N_b KL(β_b ∥ β_ab) ≥ 0, in nats, with N
    the number of tokens. Only the `closest_pairs` are compared.

    counts: expected word counts of each topic.
    """
    counts = counts.astype(np.float64)
    while len(counts) > size:
        kept, gone = cheapest_pairs(counts, 1)[0]
        counts[kept] += counts[gone]
        counts = np.delete(counts, gone, axis=0)
    return counts


def closest_pairs(
    counts: Float[np.ndarray, "topic word"], most: int
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Return at most `most` pairs of topics that are cheap to merge, cheapest first, as two arrays (pair,).

    They are ordered by a bound on the cost (`merge_topics`), from Bhattacharyya coefficients, which needs one matrix
    product.

    counts: expected word counts of each topic.
    """
    totals = np.maximum(counts.sum(1), 1e-30)
    roots = np.sqrt(counts / totals[:, None])
    harmonic = totals[:, None] * totals / (totals[:, None] + totals)
    bound = harmonic * (1 - roots @ roots.T)
    rows, columns = np.triu_indices(len(counts), 1)
    order = np.argsort(bound[rows, columns], kind="stable")[:most]
    return rows[order], columns[order]


def cheapest_pairs(counts: Float[np.ndarray, "topic word"], number: int) -> list[tuple[int, int]]:
    """Return `number` disjoint pairs of topics to merge, the pair whose merger costs least first (see `merge_topics`).

    Each further pair is the cheapest one among the remaining topics.

    counts: expected word counts of each topic, none negative.
    number: how many pairs, at most half as many as there are topics.
    """
    candidates = CANDIDATES * number
    while True:
        rows, columns = closest_pairs(counts, candidates)
        costs = _merger_costs(counts, list(zip(rows.tolist(), columns.tolist(), strict=True)))
        chosen: list[tuple[int, int]] = []
        free = np.ones(len(counts), bool)
        for index in np.argsort(costs, kind="stable"):
            pair = int(rows[index]), int(columns[index])
            if len(chosen) < number and free[list(pair)].all():
                chosen.append(pair)
                free[list(pair)] = False
        if len(chosen) == number or candidates >= len(counts) ** 2:
            return chosen
        candidates *= 2  # too many of these pairs shared a topic


def alike_pairs(counts: Float[np.ndarray, "topic word"], most: int) -> list[tuple[int, int]]:
    """Return the disjoint pairs of `cheapest_pairs` whose merger costs at most `ALIKE` times that of the cheapest.

    Where two topics share one subject, their merger is cheap, and mergers of others cost many times as much. Mergers
    that cost about as much as each other say the same of the number of topics.

    counts: expected word counts of each topic, none negative.
    most: the largest number of pairs, at most half as many as there are topics.
    """
    pairs = cheapest_pairs(counts, most)
    costs = _merger_costs(counts, pairs)
    return [pair for pair, cost in zip(pairs, costs, strict=True) if cost <= ALIKE * costs[0]]


def _merger_costs(counts: Float[np.ndarray, "topic word"], pairs: list[tuple[int, int]]) -> list[float]:
    """Return the cost of merging each pair of topics, in nats (see `merge_topics`)."""
    own = _self_information(counts)
    return [float(own[a] + own[b] - _self_information((counts[a] + counts[b])[None])[0]) for a, b in pairs]


def _self_information(counts: np.ndarray) -> np.ndarray:
    """Return Σ_w n_w log (n_w / N) of each row of counts n, with sum N, in nats, (row,).

    This is the largest log-likelihood of the row's tokens under any one distribution over words.
    """
    total = np.maximum(counts.sum(1, keepdims=True), 1e-30)
    return (counts * np.log(np.maximum(counts, 1e-30) / total)).sum(1)
