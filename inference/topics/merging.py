"""Make fewer topics from more: merge the pair whose merger costs least, or leave out the topic that is needed least.

Going down is the cheap direction. Words that two similar topics had learnt together stay together, while a topic added
to a converged fit has to find its words from nothing.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from lvsearch.inference.topics.kernel import Losses

CANDIDATES = 8
"""The number of pairs of topics that are compared exactly for each topic that goes, or at a time."""
FEWEST_TOKENS = 1e-30
"""The least number of tokens in divisions and logarithms, which takes the place of 0."""
ALIKE = 2.0
"""Mergers are averaged with the cheapest one if they cost at most so many times as much."""
FEWEST_SIZES = 5
"""The least number of sizes at which a bend of log likelihoods can be told (`size_at_bend`)."""
SHARP = 5.0
"""The least bend of log likelihoods (`size_at_bend`), as a multiple of the median change from step to step."""


def merge_topics(counts: Float[np.ndarray, "topic word"], size: int) -> Float[np.ndarray, "size word"]:
    """Return expected word counts of `size` topics, made from those of more topics by the cheapest mergers, (topic,
    word).

    The cost of a merger of topics a and b is what their words lose in log-likelihood if each topic's own distribution
    β_a or β_b is replaced by their common one β_ab. It is N_a KL(β_a ∥ β_ab) + N_b KL(β_b ∥ β_ab) ≥ 0, in nats, with N
    the number of tokens. Only the `closest_pairs` are compared.

    counts: expected word counts of each topic.
    """
    counts = counts.astype(np.float64)
    # What a merger leaves as it was is not computed again: only the merged topic's row of bounds is.
    totals, roots, own = counts.sum(1), _roots(counts), _self_information(counts)
    bounds = _cost_bounds(totals, roots, totals, roots)
    bounds[np.tril_indices(len(counts))] = np.inf
    remains = np.ones(len(counts), bool)
    for _ in range(len(counts) - size):
        number = min(CANDIDATES, bounds.size - 1)
        rows, columns = np.unravel_index(np.argpartition(bounds, number, axis=None)[:number], bounds.shape)
        is_open = bounds[rows, columns] < np.inf
        rows, columns = rows[is_open], columns[is_open]
        cheapest = np.argmin(_merger_costs(counts, own, rows, columns))
        kept, gone = int(rows[cheapest]), int(columns[cheapest])
        counts[kept] += counts[gone]
        one = slice(kept, kept + 1)
        totals[kept], roots[one], own[one] = counts[kept].sum(), _roots(counts[one]), _self_information(counts[one])
        remains[gone] = False
        bounds[gone], bounds[:, gone] = np.inf, np.inf
        of_kept = np.where(remains, _cost_bounds(totals[one], roots[one], totals, roots)[0], np.inf)
        bounds[kept, kept + 1 :], bounds[:kept, kept] = of_kept[kept + 1 :], of_kept[:kept]
    return counts[remains]


def dispensable_topics(
    losses: Losses, pairs: Int[np.ndarray, "two pair"], n_topics: int, most: int, given: int = 0
) -> Int[np.ndarray, " chosen"]:
    """Return the topics of which some may go: those that are needed least, and the second ones of the cheapest pairs.

    losses: the documents' losses. Arrays over topics may be longer than `n_topics`.
    pairs: the topics of each pair that may be merged.
    most: the largest number of topics that go. Twice as many that are needed least are returned.
    given: how many topics stay as they are, the first ones.

    Returns: up to 3 `most` topics, the last one again and again if there are fewer, in increasing order; none if all
        topics are given.
    """
    least = given + np.argsort(losses.without[given:n_topics], kind="stable")[: 2 * most]
    seconds = pairs[1, np.argsort(losses.merged, kind="stable")[:most]]
    chosen = np.union1d(least, seconds[seconds >= given])
    return np.pad(chosen, (0, 3 * most - len(chosen)), mode="edge") if len(chosen) else chosen


def remove_topics(
    counts: Float[np.ndarray, "topic word"],
    number: int,
    losses: Losses,
    pairs: Int[np.ndarray, "two pair"],
    chosen: Int[np.ndarray, " chosen"],
    joint: Float[np.ndarray, "chosen place"],
) -> Float[np.ndarray, "fewer word"]:
    """Return expected word counts after at most `number` topics were left out or merged, (topic, word).

    Each step makes the removal or the merger that costs the documents least. A merged topic is not touched again. The
    words of a topic left out are in no topic afterwards: passes have to follow.

    counts: expected word counts of each topic.
    losses: the documents' losses. Arrays over topics may be longer than `counts`.
    pairs: the topics of each pair that may be merged.
    chosen: the topics that may go (`dispensable_topics`).
    joint: how much more is lost without each of these and another topic (`joint_losses`), which may be longer too.
    """
    counts, n_topics = counts.copy(), len(counts)
    without, merged = losses.without[:n_topics].copy(), losses.merged.copy()
    remains, free = np.ones(n_topics, bool), np.ones(n_topics, bool)  # free: neither removed nor merged yet
    may_go = np.isin(np.arange(n_topics), chosen)
    for _ in range(number):
        of_topics = np.where(free & may_go, without, np.inf)
        of_pairs = np.where(free[pairs].all(0) & may_go[pairs[1]], merged, np.inf)
        if not np.isfinite([of_topics.min(), of_pairs.min()]).any():
            break
        if of_pairs.min() < of_topics.min():
            kept, gone = pairs[:, np.argmin(of_pairs)]
            counts[kept] += counts[gone]
            free[kept] = False
        else:
            gone = np.argmin(of_topics)
        remains[gone] = free[gone] = False
        # The others are needed more now: of two equal topics the second. So is the merger of such a topic.
        extra = joint[np.flatnonzero(chosen == gone)[0], :n_topics]
        without += extra
        merged += np.maximum(extra, 0.0)[pairs].sum(0)
    return counts[remains]


def size_at_bend(sizes: Sequence[int], log_likelihoods: Sequence[float]) -> int | None:
    """Return the number of topics at which leave-one-out log likelihoods bend; None if they do not bend sharply, or are
    not finite.

    Above a bend the data do not need the topics that are removed, which hardly changes the log likelihood. Below it
    each further topic removed lowers it by much more: by five times (`SHARP`) the median change from step to step, and
    by as much again as above. On real text it bends gradually.

    sizes: the numbers of topics, falling; of fewer than `FEWEST_SIZES` nothing is said.
    log_likelihoods: Σ log p(word | all other words) with each of them, approximately, nats.
    """
    if len(sizes) < FEWEST_SIZES or not np.isfinite(log_likelihoods).all():
        return None
    # The first step is left out: its topics came from nothing, and the others had not adapted to their removal.
    steps = -np.diff(sizes)[1:]
    gains = -np.diff(log_likelihoods)[1:] / steps  # of one topic more, at each step
    bends = gains[2:] - gains[:-2]
    sharpest = int(np.argmax(bends))
    above, within = gains[sharpest], gains[sharpest + 1]
    usual = float(np.median(np.abs(np.diff(gains))))
    if bends[sharpest] < max(SHARP * usual, abs(above)):
        return None
    share_below = np.clip((within - above) / bends[sharpest], 0.0, 1.0)  # of the topics removed in the step between
    return int(sizes[sharpest + 3] + round(share_below * steps[sharpest + 1]))


def closest_pairs(
    counts: Float[np.ndarray, "topic word"], most: int
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Return at most `most` pairs of topics that are cheap to merge, cheapest first, as two arrays (pair,).

    They are ordered by a bound on the cost (`merge_topics`), from Bhattacharyya coefficients, which needs one matrix
    product.

    counts: expected word counts of each topic.
    """
    firsts, seconds, _ = _pairs_by_bound(counts)
    return firsts[:most], seconds[:most]


def _pairs_by_bound(
    counts: Float[np.ndarray, "topic word"], given: int = 0
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Return pairs of topics, as two arrays, and lower bounds on the costs of their mergers, nats, lowest first.

    They are all pairs, but those of two of the first `given` topics.
    """
    firsts, seconds = (each[np.triu_indices(len(counts), 1)[1] >= given] for each in np.triu_indices(len(counts), 1))
    totals, roots = counts.sum(1), _roots(counts)
    bounds = _cost_bounds(totals, roots, totals, roots)[firsts, seconds]
    order = np.argsort(bounds, kind="stable")
    return firsts[order], seconds[order], bounds[order]


def _roots(counts: Float[np.ndarray, "topic word"]) -> Float[np.ndarray, "topic word"]:
    """Return the square root of each word's share in each topic, (topic, word)."""
    return np.sqrt(counts / np.maximum(counts.sum(1, keepdims=True), FEWEST_TOKENS))


def _cost_bounds(
    totals: Float[np.ndarray, " one"],
    roots: Float[np.ndarray, "one word"],
    other_totals: Float[np.ndarray, " other"],
    other_roots: Float[np.ndarray, "other word"],
) -> Float[np.ndarray, "one other"]:
    """Return a lower bound on the cost of merging each of some topics with each of others, in nats (`merge_topics`).

    For topics a and b with N_a and N_b of N tokens, π = N_a / N, it is

        2 N min(π log 1/π, (1 − π) log 1/(1 − π)) (1 − Σ_w √(β_aw β_bw))

    For each word, the cost divided by ½ (√β_aw − √β_bw)² depends on β_aw / β_bw alone, and 1 − Σ √(β_aw β_bw) is the
    sum of these squares. It is least where one of the two is 0, which gives the constant. If the topics share no word,
    and π = ½, the bound is the cost. For alike topics the cost is 1.44 times the bound at π = ½.

    totals: the number of tokens of each topic.
    roots: the `_roots` of each topic.
    other_totals, other_roots: those of the other topics.
    """
    both = np.maximum(totals[:, None] + other_totals, FEWEST_TOKENS)
    parts = (np.maximum(each / both, FEWEST_TOKENS) for each in (totals[:, None], other_totals))
    constant = np.minimum(*(-part * np.log(part) for part in parts))
    return 2 * both * constant * (1 - roots @ other_roots.T)


def cheapest_pairs(counts: Float[np.ndarray, "topic word"], number: int, given: int = 0) -> list[tuple[int, int]]:
    """Return `number` disjoint pairs of topics to merge, the pair whose merger costs least first (see `merge_topics`).

    Each further pair is the cheapest one among the remaining topics.

    counts: expected word counts of each topic, none negative.
    number: how many pairs, at most half as many as there are topics, and as many as are beyond the first `given`.
    given: of the first so many topics no two are merged, such as of those with seeds.
    """
    return [pair for _, pair in _disjoint_mergers(counts, number, given)]


def alike_pairs(counts: Float[np.ndarray, "topic word"], most: int, given: int = 0) -> list[tuple[int, int]]:
    """Return the disjoint pairs of `cheapest_pairs` whose merger costs at most `ALIKE` times that of the cheapest.

    Where two topics share one subject, their merger is cheap, and mergers of others cost many times as much. Mergers
    that cost about as much as each other say the same of the number of topics.

    counts: expected word counts of each topic, none negative.
    most: the largest number of pairs, with the limits of `cheapest_pairs`.
    given: of the first so many topics no two are merged.
    """
    mergers = _disjoint_mergers(counts, most, given)
    return [pair for cost, pair in mergers if cost <= ALIKE * mergers[0][0]]


def _disjoint_mergers(
    counts: Float[np.ndarray, "topic word"], number: int, given: int = 0
) -> list[tuple[float, tuple[int, int]]]:
    """Return the pairs of `cheapest_pairs` as (cost of the merger in nats, pair), the cheapest first.

    Exact costs are computed in order of their lower bounds, `CANDIDATES` at a time, until no bound left is below the
    least cost known. So hardly any are computed.

    counts: expected word counts of each topic, none negative.
    number, given: as of `cheapest_pairs`.
    """
    firsts, seconds, bounds = _pairs_by_bound(counts, given)
    own, free = _self_information(counts), np.ones(len(counts), bool)
    known: list[tuple[float, int]] = []  # a heap of exact costs, with the places of their pairs
    found: list[tuple[float, tuple[int, int]]] = []
    following = 0
    while len(found) < number:
        while following < len(bounds) and (not known or bounds[following] <= known[0][0]):
            places = np.arange(following, min(following + CANDIDATES, len(bounds)))
            places = places[free[firsts[places]] & free[seconds[places]]]
            for place, cost in zip(places, _merger_costs(counts, own, firsts[places], seconds[places]), strict=True):
                heapq.heappush(known, (float(cost), int(place)))
            following += CANDIDATES
        cost, place = heapq.heappop(known)
        pair = int(firsts[place]), int(seconds[place])
        if free[list(pair)].all():
            found.append((cost, pair))
            free[list(pair)] = False
    return found


def _merger_costs(
    counts: Float[np.ndarray, "topic word"],
    own: Float[np.ndarray, " topic"],
    firsts: Int[np.ndarray, " pair"],
    seconds: Int[np.ndarray, " pair"],
) -> Float[np.ndarray, " pair"]:
    """Return the cost of merging each pair of topics, (pair,), in nats (see `merge_topics`).

    counts: expected word counts of each topic. own: their `_self_information`.
    firsts, seconds: the topics of each pair.
    """
    return own[firsts] + own[seconds] - _self_information(counts[firsts] + counts[seconds])


def _self_information(counts: np.ndarray) -> np.ndarray:
    """Return Σ_w n_w log (n_w / N) of each row of counts n, with sum N, in nats, (row,).

    This is the largest log-likelihood of the row's tokens under any one distribution over words.
    """
    total = np.maximum(counts.sum(1, keepdims=True), FEWEST_TOKENS)
    return (counts * np.log(np.maximum(counts, FEWEST_TOKENS) / total)).sum(1)
