"""What every kind of mixture component says about itself, and the three densities that follow.

A row x has an exponential-family density whose conjugate prior is the family of the component's parameters θ:

    log p(x | θ) = ⟨t(θ), s(x)⟩ + log h(x),        log p(θ) = ⟨t(θ), λ⟩ − A(λ)            (Blei 2004, §5.2.3)

so s(x), the `increment`, is what one row adds to the natural parameters, and with q(θ) or p(θ | rows) at natural τ

    log ∫ p(x | θ) q(θ) dθ = A(τ + s(x)) − A(τ) + log h(x)                                 (Eq. 5.13).

Everything that mixtures do is made of these: no engine or sampler knows which kind it has.
"""

from abc import abstractmethod
from dataclasses import fields
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.exponential.family import Family, inner
from lvsearch.models.units import Row


class Component(eqx.Module):
    """One kind of component. Array leaves are hyper-parameters.

    Increments, natural parameters and statistics are in the coordinates of `coordinates`: the data shifted and scaled
    by hyper-parameters, so that floats keep their digits whatever the unit of the data. Densities are of the data
    themselves. `axes` names the axes of one component's statistics, those of one row's cells ("dim") first.
    """

    axes: eqx.AbstractClassVar[tuple[str, ...]]
    elliptical: ClassVar[bool] = True
    """Whether the mean and covariance of a component say where its rows are, as an ellipse does."""
    cellwise: ClassVar[bool] = False
    """Cells are independent given the parameters, each with statistics of its own: one cell alone has a density."""
    estimated: eqx.AbstractVar[bool]
    """Parameters are points, with no prior (plug-in evidence), instead of integrated out."""

    @property
    @abstractmethod
    def family(self) -> Family:
        """The family of the parameters: that of their prior, or points where they are `estimated`."""

    @property
    @abstractmethod
    def prior_family(self) -> Family:
        """The family of the parameters' prior."""

    @property
    def own_extents(self) -> dict[str, int]:
        """Lengths of those of its `axes` that neither data nor size decide, such as {"level": 5}. By default none."""
        return {}

    def describe(self) -> str:
        """The kind and its hyper-parameters in a few words. By default the class and its fields."""
        values = ", ".join(f"{entry.name} {words(getattr(self, entry.name))}" for entry in fields(self))
        return f"{type(self).__name__} ({values})"

    def check(self, units: Row) -> None:
        """Raise ValueError for rows that have no density here: cells that are no counts, rows known in part… By default
        every row has one."""
        del units

    @abstractmethod
    def prior(self, n_dims: int) -> Any:
        """λ: the natural parameters of one component without rows, in `n_dims` columns."""

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        """The row in the coordinates of the statistics; 0 where nothing was observed. By default those of the data."""
        return jnp.where(unit.observed, jnp.asarray(unit.value), 0.0)

    @abstractmethod
    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Any:
        """s(x) of one row; 0 for cells that were not observed."""

    @abstractmethod
    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        """log h(x) of one row, in nats; 0 for a row without cells."""

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """For each row a number ≥ log p(row | any parameters), nats; `inf`, the default, where there is none."""
        return np.full(len(units.value), np.inf)

    def plug_in(self) -> "Component":
        """The same with `estimated` parameters. Raises ValueError, saying why, where that has no maximum."""
        raise ValueError(
            f"{type(self).__name__} has no plug-in form: give it plug_in(), which returns the same kind with "
            '`estimated` parameters of a point family, or use evidence="marginal" or "bound"'
        )

    def moments(self, statistics: Any) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """(mean, covariance) of a row given the statistics of its component's parameters, in the units of the data.

        ValueError for a kind that does not say: it is for people, no engine asks.
        """
        raise ValueError(f"{type(self).__name__} does not say the mean of its rows: define moments(statistics)")

    def draw(self, key: Array, statistics: Any, unit: Row) -> Float[Array, " dim"]:
        """Draw the cells of one row given the statistics of its component's parameters.

        Raises NotImplementedError where the kind does not say how.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot draw rows: give it draw(key, statistics, unit), which audits of the "
            "evidence need; searches do not"
        )


def log_prior(component: Component, statistics: Any) -> Float[Array, " component"]:
    """log p(θ_k) of each component from the statistics of its parameters, nats; 0 for estimated ones."""
    leaves = jax.tree.leaves(statistics)
    if component.estimated:
        return jnp.zeros(leaves[0].shape[:1], leaves[0].dtype)
    n_dims = max(leaves, key=lambda leaf: leaf.ndim).shape[1 + component.axes.index("dim")]
    natural = component.prior(n_dims)
    products = inner(component.family, natural, statistics, None)
    return (products - component.family.log_normaliser(natural)).reshape(len(products), -1).sum(-1)


def log_likelihood(component: Component, statistics: Any, unit: Row) -> Float[Array, " component"]:
    """⟨t(θ_k), s(x)⟩ + log h(x) of one row under each component, nats; linear in the statistics."""
    y = component.coordinates(unit)
    products = inner(component.family, component.increment(y, jnp.asarray(unit.observed)), statistics, None)
    return products.reshape(len(products), -1).sum(-1) + component.log_carrier(y, jnp.asarray(unit.observed))


def log_predictive(component: Component, natural: Any, unit: Row) -> Float[Array, " component"]:
    """log ∫ p(x | θ) p(θ | natural_k) dθ of one row under each component, nats (Eq. 5.13)."""
    y, observed = component.coordinates(unit), jnp.asarray(unit.observed)
    after = jax.tree.map(jnp.add, natural, component.increment(y, observed))
    gain = log_normalisers(component, after) - log_normalisers(component, natural)
    return gain + component.log_carrier(y, observed)


def log_normalisers(component: Component, natural: Any) -> Float[Array, " component"]:
    """A(τ_k) of each component, nats, columns together; a difference of two is the log density of what was added."""
    each = component.prior_family.log_normaliser(natural)
    return each.reshape(len(each), -1).sum(-1)


def refuse_partial_rows(units: Row, why: str) -> None:
    """ValueError where a row has some of its cells but not all."""
    observed = np.asarray(units.observed)
    partial = observed.any(-1) & ~observed.all(-1)
    if partial.any():
        row = int(np.flatnonzero(partial)[0])
        raise ValueError(
            f"got {int(partial.sum())} rows with missing cells (the first is row {row}), expected rows that are known "
            f"whole or not at all: {why}; use DiagonalComponents, or drop these rows with points.select"
        )


def words(value: Any) -> str:
    """A hyper-parameter for people: the number, or how many there are."""
    array = np.asarray(value)
    return f"{array.item():g}" if array.size == 1 else f"given for {array.shape[0]} columns"


def required_component(given: object) -> Component:
    """ValueError for anything but a kind of component."""
    if not isinstance(given, Component):
        raise ValueError(f"got components={given!r}, expected a kind of component, such as DiagonalComponents()")
    return given
