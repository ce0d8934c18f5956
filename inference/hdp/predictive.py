"""The predictive density of rows of a group under a fitted HDP mixture, with components integrated out over q.

    p(x | group j, data) ≈ Σ_k E[θ_jk] ∫ p(x | φ_k) q(φ_k) dφ + (1 − Σ_k E[θ_jk]) ∫ p(x | φ) p(φ) dφ

Here φ_k are the parameters of component k, and θ_j are the components' shares of the group's own rows. For a new group
E[θ_k] = E[β_k], the shared weights. The density integrates to 1.
"""

import numpy as np
from jaxtyping import Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.hdp.units import packed_alone, shares_at_means
from lvsearch.inference.mixtures.predictive import weighted_predictive
from lvsearch.models.hdp import HDPMixture


def group_predictive_log_density(
    estimate: Estimate, rows: Dataset, group: Dataset | None = None
) -> Float[np.ndarray, " rows"]:
    """Return log p(row | group, fitted data) of each row, in the order of `rows`, nats, float64.

    rows: a data set of rows.
    group: a data set of one group, with the rows of it that are known; None for a new group.

    Raises ValueError for a model that is no `HDPMixture`, rows without a density, and more groups than one.
    """
    model = estimate.model
    if not isinstance(model, HDPMixture):
        raise ValueError(f"got a fit of {model.describe()}, expected one of an HDPMixture")
    units, _ = rows_of(rows)
    model.components.check(units)
    weights, left = model.expected_weights(estimate.natural)
    if group is not None:
        if group.n_units != 1:
            raise ValueError(f"got {group.n_units} groups, expected the one that the rows belong to")
        packed, _ = packed_alone(model, group)
        gamma = packed.documents.gather(shares_at_means(model, estimate, packed).gamma)[0]
        weights, left = gamma[:-1] / gamma.sum(), float(gamma[-1] / gamma.sum())
    return weighted_predictive(model.components, estimate.natural["components"], weights, left, units)
