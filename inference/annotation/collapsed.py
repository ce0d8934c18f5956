"""Collapsed updates for images with captions, whose proportions are integrated out, from the model's gradients.

Source: Asuncion, Welling, Smyth & Teh (2009), *On smoothing and inference for topic models*. In the exact conditional
of a factor's indicator, counts are replaced by their expected values:

    q(z_n = k) ∝ exp(∂ log-joint / ∂ z_nk, without log θ) · (α_k + Σ_{n' ≠ n} q(z_n' = k)),

where n' runs over all things of the image that have a factor. Parameters are taken at their posterior means. These
updates do not ascend the evidence bound. But they commit later than mean field does, whose exp(E[log θ]) is far too
sure of itself where images have few regions. Fits that start with such passes end at higher bounds.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.meanfield import Beliefs, batch_log_joint, expected_statistics, sweep_site, unit_masks
from lvsearch.inference.sharding import units_of
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.contract import Masks, Site, Statistics
from lvsearch.models.kernels import kernel
from lvsearch.models.units import AnnotatedImage


class Counted(NamedTuple):
    """The result of one collapsed step on a tile of images (a few images that are worked on together).

    | field | meaning |
    |---|---|
    | `locals` | the expected statistics of the images' latent variables, by name, images leading |
    | `total` | the global parameters' natural parameters by name, with the tile's part added |
    """

    locals: Any
    total: dict[str, Statistics]


def collapsed_sweep(
    model: AnnotatedModel, g: Mapping[str, Statistics], unit: AnnotatedImage, l: dict[str, Statistics], on: Masks
) -> dict[str, Statistics]:
    """Return the expected statistics of an image's latent variables after one update of each except its proportions.

    The statistics of the proportions are neither read nor changed.

    g: {global parameter: expected statistics}.
    unit: the image with its caption.
    l: {latent variable of the image: expected statistics}.
    on: {axis: mask of the entries that exist}.
    """
    exists = unit_masks(model, unit, on)
    alpha = model.alpha(on)

    def log_joint(means: Mapping[str, Statistics]) -> Array:
        """Return the image's log-joint in nats without its proportions, whose statistics are set to 0."""
        without_theta = {**means, model.representation: jnp.zeros_like(means[model.representation])}
        return model.log_unit(g, without_theta, unit, exists)

    for name, site in model.locals().items():
        if name == model.representation:
            continue
        if site.axes[-1] != "factor":
            l = sweep_site(site, name, Beliefs(l, l), log_joint, unit, exists).mean  # an ordinary mean-field update
            continue
        # the formula above, per copy of an element; α_k + counts is taken without the element itself
        copies = _copies(site, unit, l[name])
        gradient = jax.grad(lambda m, n=name, here=l: log_joint({**here, n: m}))(l[name])
        per_copy = jnp.where(copies > 0, gradient / jnp.where(copies > 0, copies, 1), 0)
        weight = alpha + factor_counts(model, unit, l) - l[name]
        natural = per_copy + jnp.log(jnp.where(exists["factor"], jnp.maximum(weight, alpha), 1))
        mean = jnp.where(exists["factor"], jax.nn.softmax(natural, where=exists["factor"]), 0)
        l = {**l, name: jnp.where(copies > 0, mean, 0)}
    return l


def factor_counts(model: AnnotatedModel, unit: AnnotatedImage, l: Mapping[str, Statistics]) -> Array:
    """Return the expected number of an image's regions and caption words in each factor, (factor,).

    unit: the image with its caption.
    l: {latent variable of the image: expected statistics}.
    """
    sites = [(site, l[name]) for name, site in model.locals().items() if name != model.representation]
    of_factors = [(_copies(site, unit, mean) * mean).sum(0) for site, mean in sites if site.axes[-1] == "factor"]
    return jnp.stack(of_factors).sum(0)


def _copies(site: Site, unit: AnnotatedImage, mean: Array) -> Array:
    """Return how often each element of a latent variable occurs in an image, (element, 1).

    Elements are regions, of which absent ones occur 0 times, caption words, which occur as often as they are counted,
    or others, which occur once.

    mean: the variable's expected statistics, which give the number of elements and the floating type.
    """
    if site.axes[0] == "region":
        return jnp.asarray(unit.present)[:, None].astype(mean.dtype)
    return jnp.asarray(unit.counts)[:, None] if site.copies is not None else jnp.ones((len(mean), 1), mean.dtype)


@units_of("batch", "l")
@kernel(static_argnames=("capacity", "sweeps"), brief=True)
@counted
def collapsed_step(
    model: AnnotatedModel,
    g: dict[str, Statistics],
    batch: Batch,
    l: Any,
    total: dict[str, Statistics],
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
    sweeps: int,
) -> Counted:
    """Make `sweeps` collapsed sweeps over the images of a tile, then update their proportions given the factors.

    g: {global parameter: expected statistics}, at which the parameters stay.
    batch: the images of the tile.
    l: {latent variable: expected statistics} of the images before, images leading.
    total: the natural parameters of the global parameters, to which the images' part is added.
    size, capacity: how many factors exist, and how many array slots there are for them.
    sweeps: the number of sweeps.
    """
    on = model.active(size, capacity)
    proportions = model.locals()[model.representation]

    def update_proportions(unit: AnnotatedImage, means: dict[str, Statistics]) -> dict[str, Statistics]:
        """Set an image's proportions to their expected statistics given its factors."""
        natural = model.alpha(on) + factor_counts(model, unit, means) - 1
        return {**means, model.representation: expected_statistics(proportions, natural, on)}

    sweep = jax.vmap(lambda unit, here: collapsed_sweep(model, g, unit, here, on))
    means = jax.lax.fori_loop(0, sweeps, lambda _, here: sweep(batch.units, here), l)
    means = jax.vmap(update_proportions)(batch.units, means)
    added = jax.grad(lambda globals_: batch_log_joint(model, globals_, batch, means, on))(g)
    return Counted(means, jax.tree.map(jnp.add, total, added))
