"""Exact numbers of hidden Markov models by enumeration of every path; NumPy only, no code shared with the model."""

from collections.abc import Callable, Sequence
from itertools import pairwise, product

import numpy as np
from scipy.special import gammaln, logsumexp

LogMarginal = Callable[[np.ndarray], float]


def log_dirichlet_multinomial(counts: np.ndarray, concentrations: np.ndarray) -> float:
    """log ∫ Π θ^counts Dirichlet(θ), nats."""
    before, after = concentrations, concentrations + counts
    return float(gammaln(before.sum()) - gammaln(before).sum() + gammaln(after).sum() - gammaln(after.sum()))


def paths(lengths: Sequence[int], size: int) -> list[list[tuple[int, ...]]]:
    """Every way to give each row of every sequence one of `size` states."""
    each = [list(product(range(size), repeat=length)) for length in lengths]
    return [list(chosen) for chosen in product(*each)]


def log_evidence(
    sequences: Sequence[np.ndarray],
    size: int,
    log_marginal: LogMarginal,
    concentration: float,
    start_concentration: float,
    stickiness: float = 0.0,
) -> float:
    """log p(sequences | size), parameters integrated out in closed form given each path. log_marginal: rows of one
    state (rows, columns), NaN = missing -> nats."""
    rows = np.concatenate(list(sequences))
    prior = concentration + stickiness * np.eye(size)
    total = []
    for chosen in paths([len(s) for s in sequences], size):
        start, steps = np.zeros(size), np.zeros((size, size))
        for path in chosen:
            if path:
                start[path[0]] += 1
            for before, after in pairwise(path):
                steps[before, after] += 1
        log = log_dirichlet_multinomial(start, np.full(size, start_concentration))
        log += sum(log_dirichlet_multinomial(steps[k], prior[k]) for k in range(size))
        of = np.concatenate([np.array(path, int) for path in chosen])
        log += sum(log_marginal(rows[of == k]) for k in range(size) if (of == k).any())
        total.append(log)
    return float(logsumexp(total))


def log_likelihood(
    log_rows: Sequence[np.ndarray], start: np.ndarray, transitions: np.ndarray
) -> tuple[float, list[tuple[int, ...]]]:
    """(log p(sequences | parameters), the most probable path of each). log_rows: (row, state) nats of each."""
    total, best = 0.0, []
    for rows in log_rows:
        heights = {}
        for (path,) in paths([len(rows)], len(start)):
            log = np.log(start[path[0]]) + sum(rows[t, k] for t, k in enumerate(path))
            heights[path] = log + sum(np.log(transitions[a, b]) for a, b in pairwise(path))
        total += float(logsumexp(list(heights.values())))
        best.append(max(heights, key=lambda path: heights[path]))
    return total, best
