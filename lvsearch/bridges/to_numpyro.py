"""A model of the library as a NumPyro model, for everything that NumPyro can do with a model."""

from collections.abc import Callable
from typing import Any

from lvsearch.data.kinds import data_for, require_model
from lvsearch.models.contract import Model
from lvsearch.sizing.sizes import Size, as_size


def to_numpyro(model: Model, data: Any, size: int | Size) -> Callable[[], None]:
    """Return the model at one size as a NumPyro model without arguments: for NUTS, SVI, `numpyro.infer.log_density`.

    model: one of `lv.models`, or of your own.
    data: the data, or raw input for it, as `lv.search` takes it.
    size: a number, or one for each size variable. A model of a process is truncated at this size.

    Its density is p(data, globals, continuous locals | size) in nats, with every indicator summed out exactly.
    NumPyro's sites have the names of the model's latent variables: `globals()` by their names, `locals()` of the b-th
    batch as "name/b", with units (observations) on the leading axis. Their values are those that the family's `value`
    returns, such as weights on the simplex. Pairs are one array: mean and precision on the last axis, or the mean in
    the first row above the precision matrix.

    Each site has the support of its family and no prior of its own. Priors are in the factor "log_joint", together with
    the likelihood. So the prior cannot be sampled from this model, and `lv.from_numpyro` refuses it.

    Raises ValueError for bad data and sizes. When run, the NumPyro model raises ValueError for a plug-in form, whose
    estimates have no posterior, and for models whose indicators interact and cannot be summed out (`IBP`, `HLDA`).
    """
    require_model(model)
    size = as_size(size, len(model.size_names))
    packed = data_for(model, data).dataset()
    from lvsearch.inference.engine.reference import reference_model  # imports NumPyro

    return reference_model(model, packed, size)
