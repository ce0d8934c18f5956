"""Gaussian mixtures with one covariance, by enumeration of all labellings. All numbers are in nats.

Given labels, rows are jointly a matrix-variate t (Gupta & Nagar 1999, ch. 4): with Z the indicators, rows covary as
C = I + Z Zᵀ / κ, columns as a covariance whose inverse is Wishart. No sums, means or scatter of any component appear.
"""

from itertools import product

import numpy as np
from scipy.special import gammaln, logsumexp, multigammaln


def log_marginal(
    rows: np.ndarray,
    labels: np.ndarray,
    location: np.ndarray,
    scale: np.ndarray,
    count: float,
    excess_degrees: float,
    spread: float,
) -> float:
    """log p(rows | labels), all parameters integrated out."""
    (n_rows, n_dims), degrees = rows.shape, excess_degrees + rows.shape[1] - 1
    x, base = rows - location, spread * np.diag(np.broadcast_to(scale, (n_dims,)) ** 2)
    between = np.eye(n_rows) + (labels[:, None] == labels) / count
    after = base + x.T @ np.linalg.solve(between, x)
    constant = multigammaln((degrees + n_rows) / 2, n_dims) - multigammaln(degrees / 2, n_dims)
    constant -= 0.5 * n_rows * n_dims * np.log(np.pi)
    log_det = [np.linalg.slogdet(each)[1] for each in (between, base, after)]
    return float(
        constant - 0.5 * n_dims * log_det[0] + 0.5 * degrees * log_det[1] - 0.5 * (degrees + n_rows) * log_det[2]
    )


def log_label_prior(labels: np.ndarray, size: int, concentration: float) -> float:
    """log p(labels), weights ~ Dirichlet(concentration, …) integrated out."""
    counts, total = np.bincount(labels, minlength=size), size * concentration
    each = (gammaln(concentration + counts) - gammaln(concentration)).sum()
    return float(each + gammaln(total) - gammaln(total + len(labels)))


def all_labels(n_rows: int, size: int) -> np.ndarray:
    """(labelling, row)"""
    return np.array(list(product(range(size), repeat=n_rows)), np.int64)


def log_joints(rows: np.ndarray, size: int, concentration: float, *prior: object) -> np.ndarray:
    """log p(rows, labels) of all labellings. prior: as of `log_marginal`."""
    every = all_labels(len(rows), size)
    return np.array([log_label_prior(one, size, concentration) + log_marginal(rows, one, *prior) for one in every])


def log_evidence(rows: np.ndarray, size: int, concentration: float, *prior: object) -> float:
    """log p(rows | size)."""
    return float(logsumexp(log_joints(rows, size, concentration, *prior)))
