"""Common to samplers of partitions: the rows, a chain's state and, without a truncation, p(partition) and draws of α.

A partition says which rows belong to the same component. Arrays over components have a fixed length, the capacity. An
entry of such an array is called a place; places without rows are empty.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixtures.row_sums import RowEmission, RowSums, sum_rows
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, increments, pack_increments, pack_statistics
from lvsearch.models.components import log_normalisers
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hyperpriors import GammaPrior


class ChainRows(NamedTuple):
    """The rows of a data set in the form in which samplers of partitions read them.

    | field | meaning |
    |---|---|
    | `increments` | s(x_n), the sufficient statistics of each row, as a pytree with rows on the leading axis |
    | `packed` | s(x_n) flattened to one vector for each row, (row, statistic) |
    | `prior` | λ, the natural parameters of the conjugate prior, which are those of a component without rows |
    """

    increments: Any
    packed: Float[Array, "row packed"]
    prior: Any


class LabelState(NamedTuple):
    """The state of one chain: the component of each row, and the concentration.

    `labels`: the array slot of each row's component, (row,).
    `alpha`: α.
    """

    labels: Int[Array, " row"]
    alpha: Float[Array, ""]


Sweep = Callable[[DPMixture, Array, LabelState, ChainRows, int], tuple[LabelState, Array]]
"""The type of a sweep: a function (model, key, state, rows, capacity) -> (new state, True if it had no room).

The capacity is the number of array slots for components. If the sweep had too few, the new state is invalid.
"""


def chain_rows(model: DPMixture, data: Dataset) -> ChainRows:
    """Return the rows of a data set with their sufficient statistics, in the floating-point type of the session.

    Raises ValueError for rows that the model's components cannot have, such as counts below 0.
    """
    units, _ = rows_of(data)
    component = model.components
    component.check(units)
    coordinates, _ = coordinates_and_carriers(component, units)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, coordinates.dtype), component.prior(coordinates.shape[1]))
    return ChainRows(
        increments(component, coordinates, units.observed),
        pack_increments(component, coordinates, units.observed),
        prior,
    )


def natural_of_labels(labels: Int[Array, " row"], rows: ChainRows, capacity: int) -> tuple[Any, Float[Array, " place"]]:
    """Return the natural parameters of every component's posterior given the labels, and the number of rows of each.

    labels: the array slot of each row's component, (row,).
    capacity: how many array slots for components there are.

    Returns: (λ + Σ s(x_n) over the rows of each slot, a pytree with slots on the leading axis; rows of each slot,
        (slot,)). λ is the prior's natural parameter and s(x_n) the sufficient statistics of row n.
    """
    natural = sum_rows(rows.increments, rows.prior, labels, capacity)
    return natural, jax.ops.segment_sum(jnp.ones(len(labels), rows.packed.dtype), labels, capacity)


def draw_parameters(model: DPMixture, key: Array, natural: Any) -> Float[Array, "place packed"]:
    """Draw the parameters of every component from their posterior given the component's rows.

    natural: the natural parameters of the posteriors, a pytree with components on the leading axis.

    Returns: the sufficient statistics t(θ_k) of each draw, flattened, (component, statistic). Their product with a
        row's `packed` statistics is the row's log density, up to log h(x), which does not depend on the component.
    """
    return pack_statistics(model.components, model.components.family.sample(key, natural))


def draw_concentration(model: DPMixture, key: Array, n_rows: int, occupied: Array, alpha: Array) -> Array:
    """Draw the concentration α given the number of components that have rows (Escobar & West 1995, §6).

    The draw uses an auxiliary Beta(α + 1, N) variable. If α is a given number of the model, `alpha` itself is returned.

    n_rows: N, the number of rows.
    occupied: how many components have rows.
    alpha: α before the draw.
    """
    if not isinstance(model.concentration, GammaPrior):
        return alpha
    shape, rate = (jnp.asarray(value, alpha.dtype) for value in model.concentration)
    key_eta, key_which, key_alpha = jax.random.split(key, 3)
    log_eta = -jnp.log1p(jnp.exp(_log_gamma_ratio(key_eta, alpha + 1, float(n_rows))))
    # α given η is a mixture of Gamma(shape + K) and Gamma(shape + K − 1), with these odds of the first (Eq. 13–14)
    odds = (shape + occupied - 1) / (n_rows * (rate - log_eta))
    extra = jax.random.uniform(key_which, dtype=alpha.dtype) * (1 + odds) < odds
    return jax.random.gamma(key_alpha, shape + occupied - 1 + extra, dtype=alpha.dtype) / (rate - log_eta)


def _log_gamma_ratio(key: Array, first: Array, second: float) -> Array:
    """Draw log(G₂/G₁), with independent G₁ ~ Gamma(first, 1) and G₂ ~ Gamma(second, 1).

    Then 1 / (1 + G₂/G₁) has the distribution Beta(first, second), without loss of digits near 0.
    """
    key_first, key_second = jax.random.split(key)
    return jax.random.loggamma(key_second, jnp.asarray(second, first.dtype)) - jax.random.loggamma(key_first, first)


def log_rows(model: DPMixture, natural: Any, counts: Float[Array, " place"], rows: ChainRows) -> Float[Array, ""]:
    """Return log p(rows | partition) in nats, with component parameters integrated out.

    It is Σ_k [A(λ + Σ s(x_n)) − A(λ)] over the components that have rows, with A the prior's log-normaliser. The
    carrier Σ_n log h(x_n) is left out.

    natural: λ + Σ s(x_n), the natural parameters of each component's posterior, components on the leading axis.
    counts: the number of rows of each component, (component,).
    rows: the rows, of which only the prior's parameters λ are read.
    """
    sums = RowSums(natural, log_normalisers(model.components, natural))
    return RowEmission(model.components, rows.increments, rows.prior).log_density(sums, counts)


def log_occupancy(counts: Float[Array, " place"], alpha: Float[Array, ""]) -> Float[Array, ""]:
    """Return log p(partition | α) under the Dirichlet process, in nats.

    It is K log α + Σ_k log Γ(n_k) + log Γ(α) − log Γ(α + N) for K components with rows and N rows.

    counts: n_k, the number of rows of each component, (component,); components without rows add nothing.
    alpha: α, the concentration.

    Source: Ewens (1972).
    """
    used = counts > 0
    blocks = jnp.where(used, gammaln(jnp.where(used, counts, 1.0)) + jnp.log(alpha), 0.0).sum()
    return blocks + gammaln(alpha) - gammaln(alpha + counts.sum())


def process_weights(counts: Float[np.ndarray, " place"], alpha: float) -> tuple[np.ndarray, float]:
    """Return the probability with which a new row joins each component, and that with which it forms a new one.

    counts: n_k, the number of rows of each component, (component,); N is their sum.
    alpha: α, the concentration.

    Returns: (n_k / (N + α) of each component, (component,); α / (N + α)).
    """
    total = counts.sum() + alpha
    return counts / total, alpha / total
