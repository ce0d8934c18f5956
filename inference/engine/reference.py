"""A reference posterior: the model as a NumPyro model on its continuous sites, its indicators summed out.

For checking the engines against NUTS on small data; slow, and exact as the chain grows. The density of a value x of a
site is that of its statistic, and the statistic is found from the site's family alone (Blei 2004, Eq. 2.1 and 2.3):

    log p(x | η) = log h(x) + ⟨η, t(x)⟩ − A(η),  so  t(x) = ∂ log p(x | η) / ∂η + E_η[t],   at any legal η.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import ImproperUniform

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.meanfield import local_lengths
from lvsearch.inference.engine.summed_out import log_unit_summed
from lvsearch.models.contract import Model, Site, Statistics
from lvsearch.models.families import Family, IndicatorFamily, zero_statistics


def reference_model(model: Model, data: Dataset, size: tuple[int, ...]) -> Callable[[], None]:
    """A function for `numpyro.infer.NUTS`, its joint density p(data, globals, continuous locals | size).

    Sites are named as in the model; locals of batch b are "name/b", units leading. Values are x, not statistics.
    Raises ValueError for a model with point estimates (they have no posterior), and as `log_unit_summed` does.
    """
    on = model.active(size, size)
    lengths = {**{axis: len(mask) for axis, mask in on.items()}, **data.extents}
    local_sites = model.locals()
    summed = tuple(name for name, site in local_sites.items() if isinstance(site.family, IndicatorFamily))

    def numpyro_model() -> None:
        g = {
            name: _draw(name, site, tuple(lengths[axis] for axis in site.axes))
            for name, site in model.globals().items()
        }
        total = model.log_prior(g, on)
        for position, batch in enumerate(data.batches):
            n_units = len(batch.weight)
            unit = jax.tree.map(lambda leaf: leaf[0], batch.units)
            extents = {**lengths, **local_lengths(model, unit, on)}
            l = {}
            for name, site in local_sites.items():
                shape = (n_units, *(extents[axis] for axis in site.axes))
                indicator = name in summed
                dtype = jnp.asarray(batch.weight).dtype
                drawn = (
                    zero_statistics(site.family, shape, dtype)
                    if indicator
                    else _draw(f"{name}/{position}", site, shape)
                )
                l[name] = drawn
            per_unit = jax.vmap(lambda u, lu: log_unit_summed(model, g, lu, u, on, summed)[0])(batch.units, l)
            total = total + jnp.where(batch.weight > 0, batch.weight * per_unit, 0).sum()
        numpyro.factor("log_joint", total)

    return numpyro_model


def _draw(name: str, site: Site, shape: tuple[int, ...]) -> Statistics:
    """Statistics of a value with the support of the site's family and no density of its own."""
    ones = jax.tree.map(jnp.ones_like, zero_statistics(site.family, shape, float))  # η = 1 is legal in every family
    like = site.family.to_numpyro(ones)
    if isinstance(like, dist.Delta):
        raise ValueError(f"site {name!r} is a point estimate and has no posterior; give the model a prior on it")
    value = numpyro.sample(name, ImproperUniform(like.support, like.batch_shape, like.event_shape))
    return statistics_of(site.family, value, ones)


def statistics_of(family: Family, value: Any, natural: Statistics) -> Statistics:
    """t(value), by the identity above at the legal natural parameters `natural`."""
    score = jax.grad(lambda eta: jnp.sum(family.to_numpyro(eta).log_prob(value)))(natural)
    return jax.tree.map(jnp.add, score, family.mean(natural))
