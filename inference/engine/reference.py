"""A model as a NumPyro model on its continuous sites, with its indicators summed out.

It checks the engines against NUTS on small data, and people get it as `lv.to_numpyro`. It is slow, and exact as the
chain grows. The density of a value x of a site is that of its statistic, which the site's family computes
(`statistics_at`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import ImproperUniform

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.meanfield import local_lengths
from lvsearch.inference.engine.summed_out import log_unit_summed
from lvsearch.models.contract import Model, Site, Statistics
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import full_precision


def reference_model(given: Model, data: Dataset, size: tuple[int, ...]) -> Callable[[], None]:
    """Return a NumPyro model function whose joint density is p(data, globals, continuous locals | size).

    Pass it to `numpyro.infer.NUTS`. Its sites are named as in the model. The local variables of batch b are called
    "name/b", with units on the leading axis. NumPyro's sites hold values x, not sufficient statistics t(x). Global
    sites are the latent variables that all units share, local sites those of one unit.

    given: the model.
    size: how many components, for each size variable.

    Raises ValueError for a model with point estimates, which have no posterior, for indicators that cannot be summed
    out (`log_unit_summed`), and for continuous variables that only a unit with a certain indicator has.
    """
    on = given.active(size, size)
    lengths = {**{axis: len(mask) for axis, mask in on.items()}, **data.extents}
    local_sites = given.locals()
    summed = tuple(name for name, site in local_sites.items() if isinstance(site.family, IndicatorFamily))
    for name, site in local_sites.items():
        if site.gate is not None and name not in summed:
            raise ValueError(
                f"got {type(given).__name__}, whose {name} exist only in the {site.gate.site} that a unit has, "
                "expected a model without such variables: with indicators summed out they have no density of their own"
            )

    @full_precision
    def numpyro_model() -> None:
        # draw values flat on their supports, then add the whole log-joint as one factor
        model, batches = jax.tree.map(_copied, (given, data.batches))
        g = {
            name: _draw(name, site, tuple(lengths[axis] for axis in site.axes))
            for name, site in model.globals().items()
        }
        total = model.log_prior(g, on)
        for position, batch in enumerate(batches):
            n_units = len(batch.weight)
            unit = jax.tree.map(lambda leaf: leaf[0], batch.units)
            extents = {**lengths, **local_lengths(model, unit, on)}
            l = {}
            for name, site in local_sites.items():
                shape = (n_units, *(extents[axis] for axis in site.axes))
                indicator = name in summed  # zeros give the shape only: `log_unit_summed` reads no values of these
                dtype = jnp.asarray(batch.weight).dtype
                drawn = site.family.zeros(shape, dtype) if indicator else _draw(f"{name}/{position}", site, shape)
                l[name] = drawn
            per_unit = jax.vmap(lambda u, lu: log_unit_summed(model, g, lu, u, on, summed)[0])(batch.units, l)
            total = total + jnp.where(batch.weight > 0, batch.weight * per_unit, 0).sum()
        numpyro.factor("log_joint", total)

    return numpyro_model


def _draw(name: str, site: Site, shape: tuple[int, ...]) -> Statistics:
    """Declare a NumPyro site, flat on the support of the site's family, and return the sufficient statistics of its
    value.

    A site is a latent variable of the model, or an array of them.

    name: the name of the NumPyro site. shape: the lengths of the axes of the site's statistics.
    """
    natural = site.family.legal(shape, float)
    like = site.family.to_numpyro(natural)
    if isinstance(like, dist.Delta):
        raise ValueError(f"site {name!r} is a point estimate and has no posterior; give the model a prior on it")
    value = numpyro.sample(name, ImproperUniform(like.support, like.batch_shape, like.event_shape))
    return site.family.statistics_at(value, natural)


def _copied(leaf: Any) -> Any:
    """Return a copy of an array, with floats in the session's precision.

    JAX (jaxlib 0.10) keeps arrays that a program closes over by identity. It would hand the same float32 array to later
    programs in float64.
    """
    array = np.asarray(leaf)
    return jnp.asarray(np.array(array, jnp.result_type(float) if array.dtype.kind == "f" else array.dtype))
