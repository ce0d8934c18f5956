"""Corrections for relabelling: the log weight of the labelling of a state, and draws of labellings.

A model whose K components are exchangeable has p(σ state, data) = p(state, data) for all K! relabellings σ, while a fit
q is around one of them. For *any* positive function f,

    Σ_state p(state, data) f(state) / Σ_σ f(σ state) = p(data) / K!      exactly,

because averaging the left side over relabelled states replaces f by its own sum. So an annealing that ends with the
term log(K! f(state) / Σ_σ f(σ state)) is unbiased for p(data), whether or not the particles found other labellings. The
term is log K! where all particles kept q's labelling, and 0 where components are fully interchanged.

With f(σ state) = exp Σ_l S[σ(l), l] the sum is a permanent. After scaling to a doubly stochastic matrix it splits into
a few small blocks of components that cannot be told from each other. Each block is summed exactly, over subsets of its
rows.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.special import gammaln

NEGLIGIBLE = 1e-14
"""Entries of a doubly stochastic matrix below this value are ignored."""
PASSED_OVER = 1e-9
"""Entries of a large block below this value are left out where its permanent is sampled.

At 152 topics this changes the logarithm of the permanent by 4e-7, and its estimate takes a fifth of the time.
"""
LOWEST = -1e12
"""Replaces −∞ in the search for the best relabelling."""
LARGEST_BLOCK = 14
"""Components of the largest block that is summed exactly, over 2^14 subsets; larger blocks are sampled."""
MOST_DRAWS, LEAST_DRAWS, DRAWN_ROWS = 2000, 250, 80_000
"""The number of draws for a larger block of b components: 80,000 / b, between 250 and 2,000.

A draw takes b² operations. Where a hundred components cannot be told apart, the logarithm of an estimate from so few
draws may be a nat off; gains between such sizes have errors of several nats.
"""


def log_labelling(scores: Float[np.ndarray, "particle k k"]) -> Float[np.ndarray, " particle"]:
    """Return the log weight of the labelling of each particle, log(K! f(state) / Σ_σ f(σ state)), (particle,), in nats.

    It corrects an annealing for having seen one of the K! labellings of K components, some of them or all. f(σ state) =
    exp Σ_l S[σ(l), l].

    A component that does not exist has −∞ off the diagonal and is not counted among the K. Components of several kinds,
    such as clusters of rows and of columns, have −∞ between them; K! is then the product over kinds.

    scores: S[k, l] of each particle, nats, (particle, K, K).
    """
    from scipy.sparse.csgraph import connected_components  # imported here: it takes a tenth of a second

    _, kind = connected_components(csr_array(np.isfinite(scores[0])), directed=False)
    relabellings = gammaln(np.bincount(kind) + 1.0).sum()
    own = np.trace(scores, axis1=1, axis2=2)
    scaled, log_scale = _scale_doubly_stochastic(scores)
    return relabellings + own - np.array([_log_permanent(*each) for each in zip(scaled, log_scale, strict=True)])


def draw_orders(scores: Float[np.ndarray, "particle k k"], rng: np.random.Generator) -> Int[np.ndarray, "particle k"]:
    """Draw a relabelling σ for each particle in proportion to f(σ state) = exp Σ_l scores[σ(l), l].

    scores: of each particle, nats, (particle, K, K).

    Returns: order[l] = σ(l), the new number of component l, (particle, K).
    """
    return np.stack([_draw_order(each, rng) for each in _scale_doubly_stochastic(scores)[0]])


def _log_permanent(scaled: Float[np.ndarray, "k k"], log_scale: float) -> float:
    """Return the log of the permanent of a scaled matrix, plus `log_scale`.

    scaled: a matrix from `_scale_doubly_stochastic`, with rows and columns that sum to 1.
    log_scale: the log of the factor by which scaling changed the permanent.
    """
    total = log_scale
    for rows, columns in _blocks(scaled):
        block = scaled[np.ix_(rows, columns)]
        total += np.log(_subset_sums(block)[0] if len(rows) <= LARGEST_BLOCK else _sampled_permanent(block))
    return float(total)


def _scale_doubly_stochastic(
    scores: Float[np.ndarray, "particle k k"],
) -> tuple[Float[np.ndarray, "particle k k"], Float[np.ndarray, " particle"]]:
    """Scale exp(scores) of each particle to a matrix whose rows and columns sum to 1 (Sinkhorn).

    Returns: (the scaled matrices (particle, K, K), the log of the factor by which scaling changed each permanent
        (particle,)).

    All particles are scaled together, without components that stand alone in all of them, since the others are few.
    `_shift_scores` shifts the scores first. From scores hundreds of nats apart, Sinkhorn by itself would need hundreds
    of rounds.
    """
    finite = np.isfinite(scores).any(0)
    alone = (finite.sum(0) == 1) & (finite.sum(1) == 1) & np.diag(finite)
    rest = np.flatnonzero(~alone)
    log_scale = np.where(alone, np.diagonal(scores, axis1=1, axis2=2), 0.0).sum(1)
    log, lost = _shift_scores(np.array(scores[:, rest[:, None], rest], np.float64))
    log_scale = log_scale + lost
    shares = np.exp(log)  # at most 1, and 1 for the best relabelling, so that no sum below is 0
    for _ in range(200 if rest.size else 0):
        for axis in (1, 2):
            sums = shares.sum(axis, keepdims=True)
            shares, log_scale = shares / sums, log_scale + np.log(sums).sum((1, 2))
        if np.abs(shares.sum(1) - 1).max() < 1e-6:
            break
    # components that stand alone keep a 1 on the diagonal
    scaled = np.where(np.eye(len(alone), dtype=bool), 1.0, np.zeros_like(scores, np.float64))
    scaled[:, rest[:, None], rest] = shares
    return scaled, log_scale


def _shift_scores(
    scores: Float[np.ndarray, "particle k k"],
) -> tuple[Float[np.ndarray, "particle k k"], Float[np.ndarray, " particle"]]:
    """Shift rows and columns so that the entries of the best relabelling are 0 and no other entry is above 0.

    Returns: (the shifted scores (particle, K, K), the sum of the shifts of each particle (particle,), in nats).

    With the best relabelling on the diagonal and D[k, l] = scores[k, l] − scores[l, l], no cycle of D has a positive
    sum. So the longest paths r_l = max_k (r_k + D[k, l]) exist, and D[k, l] + r_k − r_l ≤ 0 (the dual of assignment).
    """
    from scipy.optimize import linear_sum_assignment  # imported here: the import takes a tenth of a second

    log, lost = np.empty_like(scores), np.zeros(len(scores))
    for number, each in enumerate(scores):
        row, column = linear_sum_assignment(np.where(np.isfinite(each), each, LOWEST), maximize=True)
        back = np.argsort(column)
        own = each[row, column][back]  # entry of the best relabelling in each column
        above = each[row[back]] - own
        longest = np.zeros(len(each))
        for _ in range(len(each)):
            longest = np.maximum(longest, (longest[:, None] + above).max(0, initial=-np.inf))
        log[number, row[back]] = above + longest[:, None] - longest
        lost[number] = own.sum()
    return log, lost


def _blocks(scaled: Float[np.ndarray, "k k"]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split a matrix into its connected blocks of non-negligible entries. Return (row numbers, column numbers) of each
    block.
    """
    from scipy.sparse.csgraph import connected_components

    n = len(scaled)
    row, column = np.nonzero(scaled > NEGLIGIBLE)
    graph = csr_array((np.ones(len(row)), (row, column + n)), shape=(2 * n, 2 * n))
    count, part = connected_components(graph, directed=False)
    return [(np.flatnonzero(part[:n] == p), np.flatnonzero(part[n:] == p)) for p in range(count)]


def _subset_sums(block: Float[np.ndarray, "b b"]) -> Float[np.ndarray, " subsets"]:
    """Return, for each set of rows, the sum over all ways to assign the other rows to the last columns, (2^b,).

    A set is numbered by its bits: row r is in set s if s has bit r. A way counts with the product of its entries. Entry
    0 is the permanent. Only positive numbers are added, so no digits are lost.

    block: a square matrix of b rows.
    """
    n = len(block)
    subsets = np.arange(1 << n)
    taken = np.array([int(s).bit_count() for s in subsets])
    sums = np.zeros(1 << n)
    sums[-1] = 1.0
    for column in range(n - 1, -1, -1):
        here = subsets[taken == column]
        free = ((here[:, None] >> np.arange(n)) & 1) == 0
        sums[here] = np.where(free, block[:, column] * sums[here[:, None] | (1 << np.arange(n))], 0.0).sum(1)
    return sums


def _sampled_permanent(block: Float[np.ndarray, "b b"]) -> float:
    """Return an unbiased estimate of a matrix's permanent, by drawing rows for each column in turn from a fixed
    seed.
    """
    rng = np.random.default_rng(0)
    draws = int(np.clip(DRAWN_ROWS // len(block), LEAST_DRAWS, MOST_DRAWS))
    weights, free, draw = np.ones(draws), np.ones((len(block), draws)), np.arange(draws)
    for column in range(len(block)):
        rows = np.flatnonzero(block[:, column] > PASSED_OVER)
        ends = np.cumsum(free[rows] * block[rows, column][:, None], axis=0)
        weights *= ends[-1]  # 0 where no row is left that could take the column
        chosen = (ends <= rng.random(draws) * ends[-1]).sum(0).clip(max=len(rows) - 1)
        free[rows[chosen], draw] = 0.0
    return float(weights.mean())


def _draw_order(scaled: Float[np.ndarray, "k k"], rng: np.random.Generator) -> Int[np.ndarray, " k"]:
    """Draw a relabelling in proportion to its product of entries of a scaled matrix, block by block.

    Returns: the row that each column is assigned to, (K,).
    """
    order = np.zeros(len(scaled), np.int64)
    for rows, columns in _blocks(scaled):
        block = scaled[np.ix_(rows, columns)]
        if len(rows) > LARGEST_BLOCK:
            order[columns] = rows[_draw_order_by_exchanges(block, rng)]
            continue
        sums, subset = _subset_sums(block), 0
        for position, column in enumerate(columns):
            odds = np.array(
                [0.0 if subset >> r & 1 else block[r, position] * sums[subset | 1 << r] for r in range(len(rows))]
            )
            row = int(rng.choice(len(rows), p=odds / odds.sum()))
            order[column] = rows[row]
            subset |= 1 << row
    return order


def _draw_order_by_exchanges(block: Float[np.ndarray, "b b"], rng: np.random.Generator) -> Int[np.ndarray, " b"]:
    """Draw a relabelling of a block too large to sum over, by a long Metropolis chain of exchanges of two rows.

    Returns: the row that each column is assigned to, (b,).
    """
    n = len(block)
    order, log = np.arange(n), np.log(block + NEGLIGIBLE)
    for a, b, uniform in zip(
        rng.integers(n, size=40 * n), rng.integers(n, size=40 * n), rng.random(40 * n), strict=True
    ):
        gain = log[order[b], a] + log[order[a], b] - log[order[a], a] - log[order[b], b]
        if np.log(uniform) < gain:
            order[a], order[b] = order[b], order[a]
    return order
