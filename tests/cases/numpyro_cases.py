"""NumPyro models of people's own whose evidence is known: by conjugacy, and by adding up all assignments."""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import gammaln
from scipy.stats import multivariate_normal

COUNTS = np.array([0.0, 1.0, 1.0, 7.0, 9.0, 12.0])
VALUES = np.array([1.2, -0.4, 2.9, 1.7, 0.8, 2.2, 1.9])
SHAPE, RATE = 2.0, 0.5
NOISE, SPREAD = 0.7, 2.0


def normal_means(size: int, data: Any) -> None:
    """`size` independent means that are added up: the data know their sum alone."""
    means = numpyro.sample("means", dist.Normal(0.0, SPREAD).expand([size]).to_event(1))
    with numpyro.plate("rows", len(data)):
        numpyro.sample("value", dist.Normal(means.sum(), NOISE), obs=data)


def normal_evidence(size: int) -> float:
    """log p(VALUES | size), nats."""
    n = len(VALUES)
    return float(multivariate_normal.logpdf(VALUES, np.zeros(n), NOISE**2 * np.eye(n) + size * SPREAD**2))


def labelled_counts(size: int, data: Any) -> None:
    """A mixture of Poissons as people write it, its labels discrete sites."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
    rates = numpyro.sample("rates", dist.Gamma(SHAPE, RATE).expand([size]).to_event(1))
    with numpyro.plate("rows", len(data)):
        label = numpyro.sample("label", dist.Categorical(weights))
        numpyro.sample("count", dist.Poisson(rates[label]), obs=data)


def summed_counts(size: int, data: Any) -> None:
    """The same, its labels summed out by the model."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
    rates = numpyro.sample("rates", dist.Gamma(SHAPE, RATE).expand([size]).to_event(1))
    with numpyro.plate("rows", len(data)):
        numpyro.sample("count", dist.MixtureSameFamily(dist.Categorical(weights), dist.Poisson(rates)), obs=data)


def masked_counts(size: Any, data: Any, capacity: int) -> None:
    """The same with room for `capacity` components: Gamma weights, divided by their sum, are a Dirichlet's."""
    heights = numpyro.sample("heights", dist.Gamma(1.0, 1.0).expand([capacity]).to_event(1))
    rates = numpyro.sample("rates", dist.Gamma(SHAPE, RATE).expand([capacity]).to_event(1))
    logits = jnp.where(jnp.arange(capacity) < size, jnp.log(heights), -1e9)
    with numpyro.plate("rows", len(data)):
        numpyro.sample("count", dist.MixtureSameFamily(dist.Categorical(logits=logits), dist.Poisson(rates)), obs=data)


def counts_evidence(size: int) -> float:
    """log p(COUNTS | size), nats: Σ over all assignments of Dirichlet-multinomial times Gamma-Poisson marginals."""
    n, total = len(COUNTS), -math.inf
    for labels in itertools.product(range(size), repeat=n):
        held = [COUNTS[np.array(labels) == k] for k in range(size)]
        log_joint = gammaln(size) - gammaln(size + n) + sum(gammaln(len(rows) + 1) for rows in held)
        for rows in held:
            shape, rate = SHAPE + rows.sum(), RATE + len(rows)
            log_joint += SHAPE * math.log(RATE) - gammaln(SHAPE) + gammaln(shape) - shape * math.log(rate)
        total = np.logaddexp(total, log_joint - gammaln(COUNTS + 1).sum())
    return float(total)


class Known(NamedTuple):
    """A model, its data, and log p(data | size) by an oracle."""

    model: Callable[..., None]
    data: np.ndarray
    evidence: Callable[[int], float]


KNOWN = {
    "normal_means": Known(normal_means, VALUES, normal_evidence),
    "labelled_counts": Known(labelled_counts, COUNTS, counts_evidence),
    "summed_counts": Known(summed_counts, COUNTS, counts_evidence),
    "masked_counts": Known(masked_counts, COUNTS, counts_evidence),
}
