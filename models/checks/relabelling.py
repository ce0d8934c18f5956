"""A check that `log_symmetry` is the log of the number of relabellings of components that keep the log-joint."""

from math import lgamma
from typing import Any

import jax
import numpy as np

from lvsearch.models.checks.capacity import are_close
from lvsearch.models.checks.probe import Probe, prior_gradient, unit_gradients
from lvsearch.models.contract import Model, Site, Statistics


def check_relabelling(p: Probe, seed: int) -> str:
    """Check that `log_symmetry` is log K! where the K components can be renamed, and 0 where they cannot.

    Only models with one size variable and one axis of its length are checked; others may have symmetries of their own.

    p: the model, units and statistics at which to check. seed: seed that makes components distinct.

    Returns what was found, as text. Raises ValueError saying both numbers.
    """
    lengths = [{a: len(m) for a, m in p.model.active(p.size, each).items()} for each in (p.size, _one_more(p.size))]
    axes = [axis for axis, length in lengths[0].items() if lengths[1][axis] > length]
    name = type(p.model).__name__
    if len(axes) != 1 or len(p.size) != 1:
        return f"not looked at: {len(p.size)} size variable(s) with {len(axes)} axes"
    axis, k = axes[0], p.size[0]
    rng = np.random.default_rng(seed)
    distinct = jax.tree.map(lambda leaf: np.asarray(leaf) + rng.uniform(1, 2, np.shape(leaf)), p.natural_g)
    said, every = float(p.model.log_symmetry(p.size, distinct)), lgamma(k + 1)
    order = np.roll(np.arange(k), 1)
    # a hyper-parameter of K numbers may belong to the entries, so the check passes with it renamed or not
    models = (p.model, _renamed(p.model, k, order))
    renamed = min(abs(_relative_change(p, model, axis, order)) for model in models)
    symmetric = are_close(renamed, 0.0)
    if symmetric and not np.isclose(said, every):
        raise ValueError(
            f"log_symmetry of {name} is {said:.6g} for {k} distinct entries of {axis!r}, expected log {k}! = "
            f"{every:.6g}: renaming them changes nothing. Return lv.models.log_relabellings of one row of natural "
            "parameters for each entry"
        )
    if not symmetric and not np.isclose(said, 0):
        raise ValueError(
            f"log_symmetry of {name} is {said:.6g} for {k} distinct entries of {axis!r}, but renaming them moves the "
            f"log-joint by {renamed:.3g} of its size; expected 0, or a term that treats all of them alike"
        )
    return f"log {k}! = {every:.4g}" if symmetric else f"none: the entries of {axis} have an order"


def _one_more(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the size with 1 added to the number of components of every size variable."""
    return tuple(n + 1 for n in size)


def _relative_change(p: Probe, model: Model, axis: str, order: np.ndarray) -> float:
    """Return by how much the log-joint changes when the components are renamed, relative to 1 + its absolute value.

    model: the model that evaluates the renamed statistics. axis: the axis of the components.
    order: the new order of the components, shape (component,).
    """
    g = {n: _reordered(s, p.g[n], axis, order, 0) for n, s in p.model.globals().items()}
    l = {n: _reordered(s, p.l[n], axis, order, 1) for n, s in p.model.locals().items()}
    before = _log_joint(p, p.model, p.g, p.l)
    return (_log_joint(p, model, g, l) - before) / (1 + abs(before))


def _log_joint(p: Probe, model: Model, g: Any, l: Any) -> float:
    """Return the log-joint of the units of `p` in nats.

    g: {name: statistics} of the shared latent variables. l: {name: statistics} of the local ones, units leading.
    """
    return float(prior_gradient(model, g, p.on)[0]) + float(np.sum(unit_gradients(model, g, l, p.units, p.on)[0]))


def _reordered(site: Site, statistics: Statistics, axis: str, order: np.ndarray, lead: int) -> Statistics:
    """Return the statistics of one latent variable with the entries of `axis` in another order.

    site: the latent variable. order: the new order, shape (entry,).
    lead: the number of leading axes before those of the variable.
    """

    def one(leaf: Any) -> np.ndarray:
        values = np.asarray(leaf)
        for position, name in enumerate(site.axes[: values.ndim - lead]):
            if name == axis:
                values = np.take(values, order, position + lead)
        return values

    return jax.tree.map(one, statistics)


def _renamed(model: Model, k: int, order: np.ndarray) -> Model:
    """Return the model with its hyper-parameters of shape (k,), one value for each component, in another order.

    k: the number of components. order: the new order, shape (k,).
    """
    return jax.tree.map(lambda leaf: np.asarray(leaf)[order] if np.shape(leaf) == (k,) else leaf, model)
