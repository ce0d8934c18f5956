"""The base class of all mixtures of rows: every row comes from one component, and all components are of one kind.

    log p(z, x | globals) = Σ_k z_k (log π_k + log p(x | θ_k))
    log p(globals) = log p(weights) + Σ_k log p(θ_k | h) + log p(h)

z is the component of row x as an indicator, π_k and θ_k are the weight and the parameters of component k, and h are
hyper-parameters of the components. A subclass defines the distribution of the weights. The kind of component is a field
(`models.components`). Those of its hyper-parameters h that have priors are latent variables under their own names.

Some kinds have several *variants* of a row, such as the precision scales of a Student's t. Then a row has an indicator
v_k of its variant for each component k, which exists only as far as the row is in that component:

    log p(z, v, x | globals) = Σ_k z_k (log π_k + Σ_v v_kv (log p(v) + log p(x | θ_k, v)))

In kinds with `partial_rows`, missing cells are latent. A row has cells c_k for each component k, which exist only as
far as the row is in that component. They are the row's own at missing cells, and standard normal dummies at others:

    log p(z, c, x | globals) = Σ_k z_k (log π_k + log p(x, c_k where missing | θ_k) + log Normal(c_k elsewhere; 0, I))
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.component import (
    Component,
    draw_hyper,
    draw_parameters,
    log_hyper_prior,
    log_prior,
    variant_log_likelihoods,
)
from lvsearch.models.contract import ExpectedCells, Gate, JointDraw, Latents, Masks, Model, Site, Statistics, first
from lvsearch.models.families import Categorical, VectorGaussian, VectorGaussianStatistics
from lvsearch.models.units import Row


class MixtureModel(Model):
    """A mixture of rows: every row comes from one component.

    `components`: the kind of the components, with its hyper-parameters.
    `ordered`: True if components are not exchangeable but have an order, as sticks do. The best order is then by
        decreasing size.
    """

    components: eqx.AbstractVar[Component]
    ordered: eqx.AbstractClassVar[bool]

    unit_type: ClassVar[type] = Row
    representation: ClassVar[str] = "component"

    @abstractmethod
    def weight_sites(self) -> dict[str, Site]:
        """Return {name: latent variable} of the variables that decide the components' weights, such as weights or
        sticks.
        """

    @abstractmethod
    def log_weights(self, g: Latents, on: Masks) -> Float[Array, " component"]:
        """Return the log weight log π_k of each component k, in nats, shape (component,).

        g: {name: statistics} of the latent variables that all rows share; the result is linear in those of the weights.
        on: {"component": mask of the components that exist}.
        """

    @abstractmethod
    def log_weights_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return the log prior density of the latent variables that decide the weights, in nats.

        g: {name: statistics} of the latent variables that all rows share.
        on: {"component": mask of the components that exist}.
        """

    @abstractmethod
    def expected_weights(self, natural: Latents) -> tuple[Float[np.ndarray, " component"], float]:
        """Return (the expected weight E[π_k] of each component, the expected mass of all further components).

        The first has shape (component,); all together sum to 1.

        natural: {name: natural parameters} of the globals, of existing components only.
        """

    @abstractmethod
    def draw_weights(self, key: Array, size: tuple[int, ...]) -> dict[str, Statistics]:
        """Draw the latent variables that decide the weights from their prior, and return {name: statistics}.

        size: (number of components,). Raises ValueError where they have no prior.
        """

    def prior_natural(self, component: Component, n_dims: int, on: Masks) -> Any:
        """Return λ, the natural parameters of one component that has no rows, without a component axis.

        component: the kind of component, all its hyper-parameters numbers. n_dims: the number of columns.
        on: {"component": mask of the components that exist}; components that share parameters need their number.
        """
        del on
        return component.prior(n_dims)

    def posterior_from_own_rows(self, component: Component, natural: Any, on: Masks) -> Any:
        """Return the natural parameters that each component would have if its rows were the only data, components
        leading.

        component: the kind of component, all its hyper-parameters numbers.
        natural: the fitted natural parameters of `components`, axis component first in every leaf.
        on: {"component": mask of the components that exist}.
        """
        del component, on
        return natural

    def marginals(self, natural: Any) -> Any:
        """Return the natural parameters of each component's marginal posterior, in the family of its kind.

        natural: the natural parameters of `components`, of existing components only.
        """
        return natural

    def expected_components(self, natural: Latents) -> Any:
        """Return the statistics of the components' parameters at their posterior means, components leading.

        natural: {name: natural parameters} of the globals, of existing components only.
        """
        return self.components.family.point(self.marginals(natural["components"]))

    def component_statistics(self, g: Latents) -> Any:
        """Return the statistics of the components' parameters in the family of their kind, components leading.

        g: {name: statistics} of the latent variables that all rows share.
        """
        return g["components"]

    def free_parameters(self, size: int, n_dims: int) -> int:
        """Return how many free numbers all weights and parameters are, which criteria such as BIC count.

        size: the number of components. n_dims: the number of columns.

        Raises NotImplementedError for a kind of component that does not say how many it has.
        """
        return size - 1 + size * self.components.free_parameters(n_dims)

    def draw_components(self, key: Array, component: Component, n_components: int, n_dims: int) -> Any:
        """Draw the parameters of the components from their prior, and return their statistics, components leading.

        component: the kind of component, all its hyper-parameters numbers.
        n_components, n_dims: the numbers of components and of columns.

        Raises ValueError for estimated components, which have no prior.
        """
        return draw_parameters(component, key, n_components, n_dims)

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all rows share: the weights, hyper-parameters with priors, and the
        components.
        """
        components = Site(self.components.family, ("component", *self.components.axes))
        return {**self.weight_sites(), **self.components.hyper_sites, "components": components}

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one row: its component, its variant if the components have several, and its
        cells where missing ones are latent.
        """
        component = {"component": Site(Categorical(), ("component",))}
        gate = Gate("component", lambda chosen, on: chosen)
        if self.components.partial_rows:  # cells first: the odds of a component depend on them
            return {"cells": Site(VectorGaussian(), ("component", "dim", "dim"), gate=gate), **component}
        if self.components.n_variants == 1:
            return component
        return {**component, "variant": Site(Categorical(), ("component", "variant"), gate=gate)}

    def extents(self, unit: Row) -> dict[str, int]:
        """Return {"dim": number of columns} where missing cells are latent variables of a row; else {}."""
        return {"dim": unit.value.shape[-1]} if self.components.partial_rows else {}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"component": mask of the components that exist}, with the masks of the components' own axes and of
        variants.
        """
        several = self.components.n_variants > 1
        variants = {"variant": jnp.ones(self.components.n_variants, bool)} if several else {}
        return {"component": first(size[0], capacity[0]), **self.components.own_axes, **variants}

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log p(weights) + log p(hyper-parameters) + Σ_k log p(θ_k | hyper-parameters) over components k, in
        nats.

        g: {name: statistics} of the weights, of hyper-parameters with priors, and of "components".
        on: {"component": mask of the components that exist}.
        """
        per_component = log_prior(self.components, g["components"], g)
        above = self.log_weights_prior(g, on) + log_hyper_prior(self.components, g)
        return above + jnp.where(on["component"], per_component, 0.0).sum()

    def log_unit(self, g: Latents, l: Latents, unit: Row, on: Masks) -> Float[Array, ""]:
        """Return log p(z | weights) + log p(x | θ_z) of one row x with component z, in nats.

        If there are several variants v of a row, the second term is log p(v) + log p(x | θ_z, v).

        g: {name: statistics} of the weights and of "components".
        l: {"component": z, shape (component,); "variant": v, shape (component, variant), if there are several; "cells":
            statistics of the row's cells in each component, where missing cells are latent}.
        unit: the row. on: {"component": mask of the components that exist}.
        """
        if self.components.partial_rows:
            each = self.log_weights(g, on) + self.components.log_rows_with_cells(g["components"], unit, l["cells"])
            return jnp.where(on["component"], l["component"] * each, 0.0).sum()
        rows = variant_log_likelihoods(self.components, g["components"], unit)
        several = self.components.n_variants > 1
        rows = (l["variant"] * (rows + self.components.log_variants)).sum(-1) if several else rows[:, 0]
        each = self.log_weights(g, on) + rows
        return jnp.where(on["component"], l["component"] * each, 0.0).sum()

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        return self.components.expected_cells(n_dims)

    def check(self, units: Row) -> None:
        """Raise ValueError for rows that have no density under the components."""
        self.components.check(units)

    def ceiling(self, units: Row) -> float:
        """Return the sum of each row's greatest log-density under any one component, in nats.

        The ceiling is `inf` where components of free variance have no greatest density. units: all rows.

        Proof: given the parameters, a row's density is an average of its components' densities, which is at most the
        greatest. Averaging over parameters or assignments keeps that.

        Raises ValueError for rows that have no density under the components.
        """
        self.check(units)
        return float(self.components.log_ceiling(units).sum())

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: Row, on: Masks) -> Row:
        """Draw the cells of one row, given its component (and its variant, if there are several).

        g: {"components": statistics of the parameters, components leading}. l: {"component": one-hot, …}.
        unit: a row whose `observed` is kept.
        """
        chosen = jnp.argmax(l["component"])
        parameters = jax.tree.map(lambda leaf: leaf[chosen], g["components"])
        if self.components.n_variants == 1:
            return Row(self.components.draw(key, parameters, unit), unit.observed)
        variant = jnp.argmax(l["variant"][chosen])
        return Row(self.components.draw_variant(key, parameters, unit, variant), unit.observed)

    def simulate(self, key: Array, size: tuple[int, ...], units: Row, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, components and rows from the joint distribution.

        size: (number of components,), or the truncation of a process. units: rows of which `observed` is kept.
        extents: {"dim": D}, the number D of columns.

        Returns (statistics of the globals by name, statistics of the locals by name with rows leading, the drawn rows).
        In a process, rows that fall beyond the truncation are drawn again: the truncated model.
        """
        key_weights, key_components, key_z, key_data = jax.random.split(key, 4)
        n_rows, on = np.shape(units.value)[0], self.active(size, size)
        hyper = draw_hyper(self.components, jax.random.fold_in(key_components, 0), extents["dim"])
        components = self.draw_components(
            key_components, self.components.with_expected_numbers(hyper), size[0], extents["dim"]
        )
        g = {**self.draw_weights(key_weights, size), **hyper, "components": components}
        chosen = jax.random.categorical(key_z, self.log_weights(g, on), shape=(n_rows,))
        l: dict[str, Statistics] = {"component": jax.nn.one_hot(chosen, size[0])}
        if self.components.partial_rows:
            rows = self._draw_units(key_data, g, l, units, on)
            key_dummies = jax.random.fold_in(key_data, 0)
            return g, {**l, "cells": self._cells_of(key_dummies, rows, size[0])}, rows
        if (n := self.components.n_variants) > 1:
            key_variants = jax.random.fold_in(key_z, 0)
            drawn = jax.random.categorical(key_variants, self.components.log_variants, shape=(n_rows, size[0]))
            l["variant"] = jax.nn.one_hot(drawn, n)
        return g, l, self._draw_units(key_data, g, l, units, on)

    def _cells_of(self, key: Array, rows: Row, size: int) -> VectorGaussianStatistics:
        """Return the statistics of the cells of simulated rows, (row, component, …): those of missing cells, which are
        in the rows, and standard normal dummies for observed ones.

        rows: rows all of whose cells were drawn. size: the number of components; all have the same cells.
        """
        whole = Row(rows.value, jnp.ones_like(jnp.asarray(rows.observed)))
        y, observed = jax.vmap(self.components.coordinates)(whole), jnp.asarray(rows.observed)
        latent = ~observed & observed.any(-1, keepdims=True)
        c = jnp.where(latent, y, jax.random.normal(key, y.shape, y.dtype))
        c = jnp.broadcast_to(c[:, None], (len(c), size, c.shape[-1]))
        return VectorGaussianStatistics(c, -0.5 * c[..., :, None] * c[..., None, :])


def component_rows(size: int, natural: Latents, names: tuple[str, ...]) -> Float[np.ndarray, "k numbers"]:
    """Return the natural parameters of the named latent variables, one component in each row, shape (size, numbers).

    size: the number of components. natural: {name: natural parameters}, components leading.
    names: the latent variables to use.
    """
    leaves = jax.tree.leaves([natural[name] for name in names])
    return np.concatenate([np.asarray(leaf)[:size].reshape(size, -1) for leaf in leaves], axis=1)
