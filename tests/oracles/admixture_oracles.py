"""Admixture exactly: the origin of every allele copy enumerated, ancestry and frequencies integrated out by formula.

Nothing here imports lvsearch. All numbers are in nats.
"""

import numpy as np
from oracles import all_assignments, log_dirichlet_multinomial, one_hot
from scipy.special import logsumexp


def log_joint(counts: np.ndarray, alleles: tuple[int, ...], size: int, total: float, rate: float) -> np.ndarray:
    """log p(copies, origins) of every assignment of the copies, in the order of `all_assignments`; counts: (N, ΣJ)."""
    individual, allele = (
        np.repeat(index, np.asarray(counts).ravel()) for index in np.indices(counts.shape).reshape(2, -1)
    )
    z = one_hot(all_assignments(size, len(allele)), size)
    in_individual = np.einsum("atk,ti->aik", z, one_hot(individual, counts.shape[0]))
    joint = log_dirichlet_multinomial(in_individual, np.full(size, total / size)).sum(-1)
    in_population, start = np.einsum("atk,tw->akw", z, one_hot(allele, counts.shape[1])), 0
    for n in alleles:
        joint = joint + log_dirichlet_multinomial(in_population[..., start : start + n], np.full(n, rate)).sum(-1)
        start += n
    return joint


def log_evidence(counts: np.ndarray, alleles: tuple[int, ...], size: int, total: float, rate: float) -> float:
    return float(logsumexp(log_joint(counts, alleles, size, total, rate)))
