"""The base of all mixtures of rows: every row comes from one component, and all components are of one kind.

    log p(z, x | globals) = Σ_k z_k (log π_k + log p(x | θ_k))
    log p(globals) = log p(weights) + Σ_k log p(θ_k | h) + log p(h)

A subclass defines the distribution of the weights. The kind of component is a field (`models.components`). Those of its
hyper-parameters h that have priors are latent variables under their own names.

Some kinds have several *variants* of a row, such as the precision scales of a Student's t. Then a row has an indicator
v_k of its variant for each component k, which exists only as far as the row is in that component:

    log p(z, v, x | globals) = Σ_k z_k (log π_k + Σ_v v_kv (log p(v) + log p(x | θ_k, v)))
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
from lvsearch.models.contract import Gate, Masks, Model, Site, Statistics, first
from lvsearch.models.families import Categorical
from lvsearch.models.units import Row


class MixtureModel(Model):
    """A mixture of rows.

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
        """Return the global latent variables besides `components`."""

    @abstractmethod
    def log_weights(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, " component"]:
        """Return log π_k in nats, shape (component,), linear in the statistics of the weights' latent variables."""

    @abstractmethod
    def log_weights_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        """Return the log prior density of the weights' latent variables, in nats."""

    @abstractmethod
    def expected_weights(self, natural: Mapping[str, Statistics]) -> tuple[Float[np.ndarray, " component"], float]:
        """Return (E[π_k] of each component, the expected mass of all further components). They sum to 1.

        natural: natural parameters of the globals, of existing components only.
        """

    @abstractmethod
    def draw_weights(self, key: Array, size: tuple[int, ...]) -> dict[str, Statistics]:
        """Draw the weights' latent variables from their prior. Raises ValueError where they have none."""

    def prior_natural(self, component: Component, n_dims: int, on: Masks) -> Any:
        """Return λ, the natural parameters of one component that has no rows, without a component axis.

        component: the kind of component, all its hyper-parameters numbers.
        n_dims: the number of columns.
        """
        del on
        return component.prior(n_dims)

    def posterior_from_own_rows(self, component: Component, natural: Any, on: Masks) -> Any:
        """Return the natural parameters that each component would have if its rows were the only data.

        component: the kind of component, all its hyper-parameters numbers.
        natural: the natural parameters of `components`, axis component first in every leaf.
        """
        del component, on
        return natural

    def marginals(self, natural: Any) -> Any:
        """Return the natural parameters of each component's marginal posterior, in the family of its kind.

        natural: the natural parameters of `components`, of existing components only.
        """
        return natural

    def draw_components(self, key: Array, component: Component, n_components: int, n_dims: int) -> Any:
        """Draw the statistics of the components' parameters from their prior.

        Raises ValueError for estimated components, which have no prior.
        """
        return draw_parameters(component, key, n_components, n_dims)

    def globals(self) -> dict[str, Site]:
        """Return the sites shared by all rows: the weights, hyper-parameters with priors, and the components."""
        components = Site(self.components.family, ("component", *self.components.axes))
        return {**self.weight_sites(), **self.components.hyper_sites, "components": components}

    def locals(self) -> dict[str, Site]:
        """Return the sites of one row: its component, and its variant if the components have several."""
        component = {"component": Site(Categorical(), ("component",))}
        if self.components.n_variants == 1:
            return component
        gate = Gate("component", lambda chosen, on: chosen)
        return {**component, "variant": Site(Categorical(), ("component", "variant"), gate=gate)}

    def extents(self, unit: Row) -> dict[str, int]:
        return {}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        several = self.components.n_variants > 1
        variants = {"variant": jnp.ones(self.components.n_variants, bool)} if several else {}
        return {"component": first(size[0], capacity[0]), **self.components.own_axes, **variants}

    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        """Return log p(weights) + log p(hyper-parameters) + Σ_k log p(θ_k | hyper-parameters), in nats."""
        per_component = log_prior(self.components, g["components"], g)
        above = self.log_weights_prior(g, on) + log_hyper_prior(self.components, g)
        return above + jnp.where(on["component"], per_component, 0.0).sum()

    def log_unit(
        self, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: Row, on: Masks
    ) -> Float[Array, ""]:
        """Return log p(z | weights) + log p(x | θ_z) of one row with component z, in nats.

        If there are several variants v, the second term is log p(v) + log p(x | θ_z, v).
        """
        rows = variant_log_likelihoods(self.components, g["components"], unit)
        several = self.components.n_variants > 1
        rows = (l["variant"] * (rows + self.components.log_variants)).sum(-1) if several else rows[:, 0]
        each = self.log_weights(g, on) + rows
        return jnp.where(on["component"], l["component"] * each, 0.0).sum()

    def ceiling(self, units: Row) -> float:
        """Return the sum of each row's greatest density under any one component, in nats.

        The ceiling is `inf` where components of free variance have no greatest density.

        Proof: given the parameters, a row's density is an average of its components' densities, which is at most the
        greatest. Averaging over parameters or assignments keeps that.

        Raises ValueError for rows that have no density under the components.
        """
        self.components.check(units)
        return float(self.components.log_ceiling(units).sum())

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: Row, on: Masks
    ) -> Row:
        chosen = jnp.argmax(l["component"])
        parameters = jax.tree.map(lambda leaf: leaf[chosen], g["components"])
        if self.components.n_variants == 1:
            return Row(self.components.draw(key, parameters, unit), unit.observed)
        variant = jnp.argmax(l["variant"][chosen])
        return Row(self.components.draw_variant(key, parameters, unit, variant), unit.observed)

    def simulate(
        self, key: Array, size: tuple[int, ...], units: Row, extents: Mapping[str, int]
    ) -> tuple[dict[str, Statistics], dict[str, Statistics], Row]:
        """Draw parameters, components and rows from the joint.

        units: `units.observed` is kept.
        extents: {"dim": D}, the number of columns.

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
        l = {"component": jax.nn.one_hot(chosen, size[0])}
        if (n := self.components.n_variants) > 1:
            key_variants = jax.random.fold_in(key_z, 0)
            drawn = jax.random.categorical(key_variants, self.components.log_variants, shape=(n_rows, size[0]))
            l["variant"] = jax.nn.one_hot(drawn, n)
        keys = jax.random.split(key_data, n_rows)
        return g, l, jax.vmap(lambda k, lu, u: self.draw_unit(k, g, lu, u, on))(keys, l, units)


def component_rows(
    size: int, natural: Mapping[str, Statistics], names: tuple[str, ...]
) -> Float[np.ndarray, "k numbers"]:
    """Return the natural parameters of the named latent variables, one component in each row."""
    leaves = jax.tree.leaves([natural[name] for name in names])
    return np.concatenate([np.asarray(leaf)[:size].reshape(size, -1) for leaf in leaves], axis=1)
