"""The hierarchical Dirichlet process over groups of rows: shared components, and for every group its own weights.

Source: Teh, Jordan, Beal & Blei (2006), §2 and §4. Examples are pupils in schools, cells of patients and pixels of
images. The generative story is that of `lvsearch.models.hierarchical_process`, whose units are here groups and whose
parts are mixture components. Steps 3 and 7 are:

    3. components        θ_k ~ G₀, the conjugate prior of their kind
    7. row               x_jn ~ p(· | θ_k),             k = c_{j, z_jn}

A *table* is a stick of one group, which points to a component. A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `components` | the kind of p(x | θ) and G₀ | | `lvsearch.models.components` |
| `shared_concentration` | γ | () or a `GammaPrior` | > 0 |
| `group_concentration` | α | () or a `GammaPrior` | > 0 |
| `tables` | truncation of a group's sticks | | |
| site `components` | statistics of θ_k | (component, …) | |
| site `table` | z_jn | (row, table) | one-hot |

With one group it is a Dirichlet-process mixture whose weights have a prior of two levels. As α grows, all groups get
the weights β, and membership in a group carries no information. As α falls to 0, every group has a single component.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.component import Component, draw_parameters, draw_rows, log_prior
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.components.requirements import required_numbers
from lvsearch.models.contract import HyperparameterArray, Masks, Site, Statistics
from lvsearch.models.exponential.family import inner
from lvsearch.models.hierarchical_process import TABLES, Axes, HierarchicalProcess, Level, checked_tables
from lvsearch.models.hyperpriors import UNIT_PRIOR, GammaPrior, as_text, positive_or_gamma_prior
from lvsearch.models.units import GroupOfRows, Row


class Rows(NamedTuple):
    """Rows in the coordinates of the components.

    `coordinates`: (row, dim). `observed`: (row, dim), True where a cell is known. `log_carrier`: (row,), the part of
        each row's log-density that no parameter enters, in nats.
    """

    coordinates: Float[Array, "row dim"] | np.ndarray
    observed: Bool[Array, "row dim"] | np.ndarray
    log_carrier: Float[Array, " row"] | np.ndarray


class HDPMixture(HierarchicalProcess):
    """A mixture for every group of rows, with shared components; `size` is the truncation of q, not of the model.

    components: the kind of components and their prior, such as `DiagonalComponents.scaled_to(values)`. The default
        expects standardised columns.
    shared_concentration: γ. It controls how evenly components are used over all groups, and so how many there are.
    group_concentration: α. It controls how alike the weights of the groups are. A number fixes γ or α; with a
        `GammaPrior` it is inferred.
    tables: the truncation of a group's sticks. A group uses at most this many tables (sticks that point to components).

    The number of components is answered by a posterior over *occupied* components, from chains of a sampler
    (`lv.occupied`). Every truncation bounds the same evidence from below: a larger one is only a better bound.
    """

    components: Component
    shared_concentration: HyperparameterArray | GammaPrior
    group_concentration: HyperparameterArray | GammaPrior
    tables: int = eqx.field(static=True)

    unit_type: ClassVar[type] = GroupOfRows
    levels: ClassVar[tuple[Level, Level]] = (
        Level("shared_concentration", "shared_sticks"),
        Level("group_concentration", "group_sticks"),
    )
    axes: ClassVar[Axes] = Axes("component", "row")

    def __init__(
        self,
        components: Component | None = None,
        shared_concentration: Any = UNIT_PRIOR,
        group_concentration: Any = UNIT_PRIOR,
        tables: int = TABLES,
    ):
        self.components = DiagonalComponents() if components is None else required_numbers(components)
        if self.components.estimated:
            raise ValueError("got estimated components, expected components with a prior: the process draws them")
        self.shared_concentration = positive_or_gamma_prior("shared_concentration", shared_concentration)
        self.group_concentration = positive_or_gamma_prior("group_concentration", group_concentration)
        self.tables = checked_tables(tables, "row of a group")

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "HDPMixture: Gaussians of known variance 1 (…); shared concentration ~ Gamma(1, rate 1); …".
        """
        return (
            f"HDPMixture: {self.components.describe()}; shared concentration {as_text(self.shared_concentration)}; "
            f"group concentration {as_text(self.group_concentration)}; {self.tables} tables in a group"
        )

    def part_sites(self) -> dict[str, Site]:
        """Return the latent variable of the components' parameters, {"components": on the axes (component, dim, …)}."""
        return {"components": Site(self.components.family, ("component", *self.components.axes))}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"component": mask of the components below the truncation}, with the masks of the components' own
        axes.
        """
        return {**super().active(size, capacity), **self.components.own_axes}

    def log_parts_prior(self, g: Mapping[str, Statistics]) -> Float[Array, " component"]:
        """Return the log prior density of each component's parameters, in nats, shape (component,).

        g: {"components": statistics of the parameters, components leading}.
        """
        return log_prior(self.components, g["components"], {})

    def members(self, unit: GroupOfRows | Row) -> Rows:
        """Return the rows of a group in the coordinates of the components (relative to location and scale).

        unit: a group of rows, or stacked rows. In these coordinates floats keep their digits in any unit of the data.
        """
        rows = Row(unit.value, unit.observed)
        y = jax.vmap(self.components.coordinates)(rows)
        observed = jnp.asarray(unit.observed)
        return Rows(y, observed, jax.vmap(self.components.log_carrier)(y, observed))

    def copies(self, unit: GroupOfRows) -> Float[Array, " row"]:
        """Return 1 for each row of a group that exists and 0 for padding, shape (row,)."""
        return jnp.asarray(unit.present).astype(jnp.result_type(float))

    def log_likelihoods(self, g: Mapping[str, Statistics], members: Rows) -> Float[Array, "row component"]:
        """Return log p(row | component) of each row under each component, in nats, shape (row, component).

        g: {"components": statistics of the parameters, components leading}. members: the rows, from `members`.
        """
        component = self.components

        def log_likelihood(coordinates: Array, observed: Array, log_carrier: Array) -> Float[Array, " component"]:
            # ⟨E[t(θ_k)], s(x)⟩ + log h(x) for every component k
            products = inner(component.family, component.increment(coordinates, observed), g["components"], None)
            return products.reshape(len(products), -1).sum(-1) + log_carrier

        return jax.vmap(log_likelihood)(*map(jnp.asarray, members))

    def draw_parts(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """Draw the parameters of the components from their prior, and return {"components": statistics, components
        leading}.

        size: (truncation,). extents: {"dim": number of columns}.
        """
        return {"components": draw_parameters(self.components, key, size[0], extents["dim"])}

    def ceiling(self, units: GroupOfRows) -> float:
        """Return the sum of each row's greatest log-density under any one component, in nats.

        The ceiling is `inf` where components of free variance have no greatest density. units: all groups.

        Proof: given parameters, weights and assignments, a row's density is that of its component, which is at most the
        greatest. An average is at most the maximum.

        Raises ValueError for rows that have no density under the components.
        """
        n_dims = np.shape(units.value)[-1]
        observed = np.asarray(units.observed) & np.asarray(units.present)[..., None]
        rows = Row(np.asarray(units.value).reshape(-1, n_dims), observed.reshape(-1, n_dims))
        self.components.check(rows)
        return float(self.components.log_ceiling(rows).sum())

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: GroupOfRows, on: Masks
    ) -> GroupOfRows:
        """Draw the cells of every row of a group, given its table and the component of each table.

        g: {"components": statistics of the parameters}. l: {"table": (row, table); "pointer": (table, component)}.
        unit: a group whose `observed` and `present` are kept.
        """
        chosen = jnp.argmax(l["table"] @ l["pointer"], axis=-1)
        value = draw_rows(self.components, key, g["components"], chosen, Row(unit.value, unit.observed))
        return GroupOfRows(value, unit.observed, unit.present)
