"""Mixtures whose scales have Gamma priors, by enumeration of labels and quadrature of hyper-parameters; nats.

Marginal likelihoods of a group are products of Student t densities from SciPy, at a grid of hyper-parameters at once.
Quadrature is the trapezium rule in log h, whose ends hold nothing: its error falls exponentially in the spacing.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma, t


class Grid(NamedTuple):
    """log h at the nodes, and the log weights of p(h) dh there."""

    log_value: Float[np.ndarray, " node"]
    log_weight: Float[np.ndarray, " node"]


def gamma_grid(shape: float, rate: float, nodes: int) -> Grid:
    """Of Gamma(shape, rate), within e^±(a dozen deviations)."""
    log_value = np.linspace(-28.0 / shape, np.log(shape + 10 * np.sqrt(shape) + 20), nodes) - np.log(rate)
    density = gamma.logpdf(np.exp(log_value), shape, scale=1 / rate) + log_value
    return Grid(log_value, density + np.log(log_value[1] - log_value[0]))


class Diagonal(NamedTuple):
    """Independent columns, κ and each column's rate with priors (shape, rate); Gamma shape of precisions `shape`.

    least: what is added to every rate."""

    pseudo_count: Grid
    rate: Grid
    shape: float
    least: float = 0.0

    def column(self, x: Float[np.ndarray, " row"]) -> Float[np.ndarray, "count rate"]:
        """log p(cells of one component | κ, b), missing cells left out."""
        k, b = np.exp(self.pseudo_count.log_value)[:, None], np.exp(self.rate.log_value)[None] + self.least
        a, centre = self.shape, np.zeros_like(k * b)
        k, b, total = k + 0 * centre, b + 0 * centre, np.zeros_like(centre)
        for value in x[~np.isnan(x)]:
            total = total + t(2 * a, centre, np.sqrt(b * (k + 1) / (a * k))).logpdf(value)
            b = b + 0.5 * k * (value - centre) ** 2 / (k + 1)
            centre, k, a = (k * centre + value) / (k + 1), k + 1, a + 0.5
        return total


class Enumerated(NamedTuple):
    """All K^N labellings: `labels` (row, labelling), log p(z), and log p(rows | z, κ, b_d) by column."""

    labels: Int[np.ndarray, "row labelling"]
    log_prior: Float[np.ndarray, " labelling"]
    log_rows: Float[np.ndarray, "labelling dim count rate"]
    model: Diagonal

    @property
    def log_given_count(self) -> Float[np.ndarray, "labelling count"]:
        """log p(rows | z, κ), rates integrated out."""
        return logsumexp(self.log_rows + self.model.rate.log_weight, axis=-1).sum(1)

    @property
    def log_joint(self) -> Float[np.ndarray, "labelling count"]:
        """log p(rows, z, κ) dκ."""
        return self.log_prior[:, None] + self.log_given_count + self.model.pseudo_count.log_weight

    @property
    def log_evidence(self) -> float:
        return float(logsumexp(self.log_joint))


def enumerated(rows: Float[np.ndarray, "row dim"], size: int, concentration: float, model: Diagonal) -> Enumerated:
    n = len(rows)
    every = np.array(list(product(range(size), repeat=n)), np.int32).reshape(-1, n)
    counts = (every[:, :, None] == np.arange(size)).sum(1)
    total = size * concentration
    each = gammaln(counts + concentration) - gammaln(concentration)
    log_prior = each.sum(1) + gammaln(total) - gammaln(total + n)
    masks = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(bool)
    of_group = np.stack([[model.column(rows[mask, d]) for d in range(rows.shape[1])] for mask in masks])
    codes = ((every[:, :, None] == np.arange(size)) << np.arange(n)[None, :, None]).sum(1)
    return Enumerated(every.T, log_prior, of_group[codes].sum(1), model)


def posterior_draws(
    exact: Enumerated, draws: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "row draw"], Float[np.ndarray, " draw"], Float[np.ndarray, "dim draw"]]:
    """(labels, log κ, log b of each column), at the nodes of the grids."""
    joint = np.exp(exact.log_joint - exact.log_evidence)
    which, count = np.divmod(rng.choice(joint.size, draws, p=joint.ravel() / joint.sum()), joint.shape[1])
    odds = exact.log_rows[which, :, count] + exact.model.rate.log_weight
    noise = rng.gumbel(size=odds.shape)
    rate = np.argmax(odds + noise, axis=-1).T
    return exact.labels[:, which], exact.model.pseudo_count.log_value[count], exact.model.rate.log_value[rate]
