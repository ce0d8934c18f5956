"""A model of the library as a NumPyro model, for whatever NumPyro can do with one."""

from collections.abc import Callable
from typing import Any

from lvsearch.data.kinds import data_for, require_model
from lvsearch.models.contract import Model
from lvsearch.sizing.sizes import Size, as_size


def to_numpyro(model: Model, data: Any, size: int | Size) -> Callable[[], None]:
    """The model at one size as a NumPyro model without arguments: for NUTS, SVI, `numpyro.infer.log_density`.

    model: one of `lv.models`, or of one's own. data: as for `lv.search`. Its density is p(data, globals, continuous
    locals | size) in nats, every indicator summed out exactly. Sites are called as in the model: `globals()` by their
    names, `locals()` of the b-th batch as "name/b", units leading; their values are what the family's `value` returns,
    as weights on the simplex, and for pairs one array: mean and precision on the last axis, or the mean in the first
    row above the precision matrix. A model of a process is cut off at `size`, without what lies beyond.

    Each site has the support of its family and no prior of its own: priors are in the factor "log_joint", one number
    with the likelihood. So draws of the prior cannot be had from it, and `lv.from_numpyro` refuses it.

    Raises ValueError for bad data and sizes. The NumPyro model raises it, when it is run, for a plug-in form, whose
    estimates have no posterior, and where indicators interact and cannot be summed out (`IBP`, `HLDA`).
    """
    require_model(model)
    size = as_size(size, len(model.size_names))
    packed = data_for(model, data).dataset()
    from lvsearch.inference.engine.reference import reference_model  # imports NumPyro

    return reference_model(model, packed, size)
