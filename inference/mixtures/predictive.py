"""The predictive density of a fitted mixture, with parameters integrated out over q.

    p(x | data) ≈ Σ_k E[π_k] ∫ p(x | θ) q(θ_k) dθ + (1 − Σ_k E[π_k]) ∫ p(x | θ) p(θ) dθ          (Blei 2004, Eq. 5.21)

The second term is the mass of the sticks beyond the truncation, with parameters from the prior. The thesis leaves it
out; with it the density integrates to 1.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.describing import UnitScores, describe_units, described_scores, site_value
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.models.components import Component, log_predictive
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.units import Row


def predictive_log_density(estimate: Estimate, data: Dataset) -> Float[np.ndarray, " rows"]:
    """Return log p(row | the fitted data) of each row, with parameters integrated out under q, in nats, float64.

    estimate: a fit of a mixture whose parameters are integrated out.
    data: the rows to score, in their order in the data set.

    Raises ValueError for a model that is no mixture or has estimated parameters, and for rows without a density.
    """
    model = estimate.model
    if not isinstance(model, MixtureModel) or model.components.estimated:
        raise ValueError(
            f"got a fit of {model.describe()}, expected a mixture with conjugate priors, whose parameters are "
            "integrated out; of other fits, fit.score_units(data) has the density of each row, or a lower bound"
        )
    units, _ = rows_of(data)
    model.components.check(units)
    (weights, left), own = model.expected_weights(estimate.natural), estimate.natural["components"]
    component = model.components.with_numbers({name: site_value(estimate, name) for name in model.components.inferred})
    with jax.enable_x64(True):
        natural = model.marginals(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), own))
    return weighted_predictive(component, natural, weights, left, units)


def score_rows_of_mixture(
    model: MixtureModel, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Return log p(row | fitted parameters) of each row of a mixture, in nats.

    The scores are closed-form predictive densities, with parameters integrated out. Those of a plug-in fit are
    likelihoods at the estimates. If the components themselves depend on latent scores of each row
    (`components.scored`), there is no closed form, and the scores are the lower bounds of `described_scores`.

    capacity, samples, key: not used, since nothing is sampled.
    """
    del capacity, samples, key  # nothing is sampled, and sizes share their programs by the capacity of their fits
    if model.components.scored:
        return described_scores(model, estimate, data)
    if model.components.estimated:  # rows are summed out exactly, whatever variants they arise in
        return UnitScores(describe_units(model, estimate, data).log_lower, 0.0, "exact, at the estimates")
    return UnitScores(predictive_log_density(estimate, data), 0.0, "closed form, parameters integrated out")


def weighted_predictive(
    component: Component, natural: Any, weights: Float[np.ndarray, " component"], left: float, units: Row
) -> Float[np.ndarray, " rows"]:
    """Return the log of a weighted sum of the components' predictive densities and the prior's, for each row, in nats.

    component: the kind of component.
    natural: natural parameters of q(component parameters) of all components, components on the leading axis.
    weights: the expected weight of each component.
    left: the weight of the prior predictive density, which is that of a component without rows.
    units: the rows to score.

    Returns: (row,), float64.
    """
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), natural)
        with np.errstate(divide="ignore"):  # a weight of 0 has the logarithm −inf, and its density takes no part
            log_weights = np.log(np.append(weights, left))
        return np.asarray(_each(component, wide, log_weights, Row(np.asarray(units.value), np.asarray(units.observed))))


@kernel(brief=True)
@counted
def _each(component: Component, natural: Any, log_weights: Any, units: Row) -> Array:
    """Return the log of the weighted predictive density of each row, (row,), in nats.

    natural: natural parameters of q(component parameters) of all components, components on the leading axis.
    log_weights: log weight of each component and, last, of the prior predictive density.
    units: the rows to score.
    """
    n_dims = units.value.shape[-1]
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64)[None], component.prior(n_dims))
    both = jax.tree.map(lambda leaf, p: jnp.concatenate([leaf, p]), natural, prior)

    def one(unit: Row) -> Array:
        return jax.nn.logsumexp(log_weights + log_predictive(component, both, unit))

    return jax.vmap(one)(units)
