"""Components of independent cells, each with one of a few values: ratings, grades, answers."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.component import Component
from lvsearch.models.components.standard import positive_parameter
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.families import Dirichlet, Family, PointSimplex
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row


class LevelComponents(Component):
    """Independent cells of a few values: x_d = levels_c with probability θ_dc, θ_d ~ Dirichlet(concentration, …).

    levels: the values that a cell may have, two or more, such as (1, 2, 3, 4, 5). Their order and distances have no
        meaning.
    concentration: pseudo-counts of every level, positive.

    Missing cells are left out.
    """

    levels: tuple[float, ...] = eqx.field(static=True)
    concentration: HyperparameterArray
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim", "level")
    elliptical: ClassVar[bool] = False
    cellwise: ClassVar[bool] = True

    def __init__(self, levels: Any = (1, 2, 3, 4, 5), concentration: Any = 1.0, estimated: bool = False):
        given = np.unique(np.asarray(levels, np.float64))
        if given.size < 2 or given.size != np.size(levels) or not np.all(np.isfinite(given)):
            raise ValueError(f"got levels={levels!r}, expected two or more distinct numbers, such as (1, 2, 3, 4, 5)")
        self.levels = tuple(given.tolist())
        self.concentration = positive_parameter("concentration", concentration)
        self.estimated = estimated

    @property
    def family(self) -> Family:
        return PointSimplex() if self.estimated else self.prior_family

    @property
    def prior_family(self) -> Family:
        return Dirichlet()

    @property
    def own_extents(self) -> dict[str, int]:
        return {"level": len(self.levels)}

    def describe(self) -> str:
        cells = f"cells of {len(self.levels)} levels ({', '.join(f'{level:g}' for level in self.levels)})"
        if self.estimated:
            return f"{cells}, probabilities estimated"
        return f"{cells}, probabilities ~ Dirichlet, {as_text(self.concentration)} per level"

    def check(self, units: Row) -> None:
        values = np.asarray(units.value)[np.asarray(units.observed)]
        wrong = values[~np.isin(values, self.levels)]
        if wrong.size:
            raise ValueError(
                f"got a cell with {float(wrong[0])!r} for LevelComponents, expected one of its levels, "
                f"{', '.join(f'{level:g}' for level in self.levels)}: give all values of the data as levels="
            )

    def prior(self, n_dims: int) -> Float[Array, "dim level"]:
        return jnp.zeros((n_dims, len(self.levels))) + (self.concentration - 1)

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        """Return the index of each cell's value among the sorted levels, shape (dim,); 0 for missing cells."""
        value = jnp.asarray(unit.value)
        place = jnp.argmin(jnp.abs(value[..., None] - jnp.asarray(self.levels, value.dtype)), axis=-1)
        return jnp.where(unit.observed, place.astype(value.dtype), 0.0)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, "dim level"]:
        chosen = coordinates[..., None] == jnp.arange(len(self.levels))
        return jnp.where(observed[..., None], chosen, False).astype(coordinates.dtype)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        return jnp.zeros((), coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return an upper bound on each row's log-probability, 0 nats, shape (rows,): a probability is at most 1."""
        return np.zeros(len(units.value))

    def plug_in(self) -> "LevelComponents":
        return LevelComponents(self.levels, self.concentration, estimated=True)

    def moments(self, statistics: Float[Array, "dim level"]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        share, levels = jnp.exp(statistics), jnp.asarray(self.levels)
        mean = share @ levels
        return mean, jnp.diag(share @ levels**2 - mean**2)

    def draw(self, key: Array, statistics: Float[Array, "dim level"], unit: Row) -> Float[Array, " dim"]:
        return jnp.asarray(self.levels, statistics.dtype)[jax.random.categorical(key, statistics, axis=-1)]
