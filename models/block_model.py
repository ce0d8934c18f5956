r"""The latent block model: rows and columns of a matrix clustered together, a density for each pair of clusters.

Source: Govaert & Nadif (2003); Wyse & Friel (2012), §2, for the prior. The generative story:

    1. row weights          π ~ Dirichlet(a, …, a)                            K row clusters
    2. column weights       ρ ~ Dirichlet(b, …, b)                            L column clusters
    3. blocks               θ_kl ~ the conjugate prior of their kind          k = 1…K, l = 1…L
    4. column clusters      w_d ~ Categorical(ρ)                              d = 1…D columns
    5. row clusters         z_n ~ Categorical(π)                              n = 1…N rows
    6. cells                x_nd ~ p(· | θ_{z_n w_d})                         where observed

    log p(x_n, z_n | globals) = Σ_k z_nk [log π_k + Σ_l ⟨t(θ_kl), Σ_d w_dl s(x_nd)⟩] + Σ_d log h(x_nd)

t(θ) and s(x) are the sufficient statistics of a block's parameters and of a cell, and h(x) is the part of a cell's
density without parameters. A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `component` | the kind of p(x \| θ) and its prior | | `lvsearch.models.components`, one cell each |
| `row_concentration`, `column_concentration` | a, b | () | > 0 |
| site `row_weights` | log π | (row_cluster,) | simplex |
| site `column_weights` | log ρ | (column_cluster,) | simplex |
| site `blocks` | t(θ_kl) | (row_cluster, column_cluster, …) | |
| site `column_cluster` | w_d | (dim, column_cluster) | one-hot |
| site `row_cluster` | z_n | (row_cluster,) | one-hot |

Rows are the units of the data. The clusters of the columns are shared by all rows, so they are a global latent
variable. Given the blocks and the row clusters, columns do not interact with each other; nor do rows given the column
clusters. So each side is updated all at once.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import positive_parameter, required_numbers
from lvsearch.models.components.categorical import BernoulliComponents
from lvsearch.models.components.component import Component
from lvsearch.models.contract import (
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Model,
    Site,
    concentration_parameter,
    first,
    log_relabellings,
)
from lvsearch.models.exponential.family import inner
from lvsearch.models.exponential.simplex import log_symmetric_dirichlet
from lvsearch.models.families import Categorical, Dirichlet
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row

ROW, COLUMN = "row_cluster", "column_cluster"


class LatentBlockModel(Model):
    """A model that puts rows and columns of a matrix into clusters. Its size is (row clusters, column clusters).

    All cells of one row cluster and one column cluster, a block, have the same distribution. Such matrices say which
    user rated which film how, which animal has which attribute, or who links to whom. In size (2, 3) the rows form two
    clusters and the columns three:

        result = lv.search(lv.models.LatentBlockModel(), matrix)         # how many of each
        fit = lv.fit(lv.models.LatentBlockModel(), matrix, size=(2, 3))  # at numbers that you choose

    component: the distribution of one cell in a block. `BernoulliComponents(1, 1)`, the default, is for cells of 0 and
        1: before any data every probability of a 1 is equally probable. `LevelComponents(levels)` is for ratings,
        `PoissonComponents()` for counts and `DiagonalComponents(location, scale)` for real numbers. Its
        hyper-parameters are single numbers, the same for all cells.
    row_concentration, column_concentration: parameters of the symmetric Dirichlets on the weights, *per cluster*. With
        1, the default, all divisions of the rows into cluster sizes are equally probable.

    Missing cells are left out of the likelihood; most cells of a matrix may be missing. Rows and columns are
    exchangeable.

    `nested` is False: there is no plug-in form, since the likelihood of blocks sums over the clusters of all rows and
    columns together.
    """

    component: Component
    row_concentration: HyperparameterArray
    column_concentration: HyperparameterArray

    size_names: ClassVar[tuple[str, ...]] = ("row_clusters", "column_clusters")
    nested: ClassVar[bool] = False
    unit_type: ClassVar[type] = Row
    representation: ClassVar[str] = ROW

    def __init__(
        self, component: Component | None = None, row_concentration: Any = 1.0, column_concentration: Any = 1.0
    ):
        self.component = BernoulliComponents(1.0, 1.0) if component is None else required_numbers(component)
        if not self.component.cellwise or self.component.estimated or _differs_by_column(self.component):
            raise ValueError(
                f"got component={self.component.describe()}, expected a kind whose single cells have a density and a "
                "prior, the same in all columns: BernoulliComponents, LevelComponents, PoissonComponents, "
                "NegativeBinomialComponents or DiagonalComponents, with one number for each hyper-parameter"
            )
        names = ("row_concentration", "column_concentration")
        self.row_concentration, self.column_concentration = (
            positive_parameter(name, concentration_parameter(name, value))
            for name, value in zip(names, (row_concentration, column_concentration), strict=True)
        )

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "LatentBlockModel: independent yes-or-no cells (…) in each block; weights ~ Dirichlet, …".
        """
        return (
            f"LatentBlockModel: {self.component.describe()} in each block; weights ~ Dirichlet, "
            f"{as_text(self.row_concentration)} per row cluster and "
            f"{as_text(self.column_concentration)} per column cluster"
        )

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all rows share: weights of row and column clusters, blocks, and the cluster
        of each column.
        """
        return {
            "row_weights": Site(Dirichlet(), (ROW,)),
            "column_weights": Site(Dirichlet(), (COLUMN,)),
            "blocks": Site(self.component.family, (ROW, COLUMN, *self.component.axes[1:])),
            COLUMN: Site(Categorical(), ("dim", COLUMN)),
        }

    def locals(self) -> dict[str, Site]:
        """Return the latent variable of one row: its row cluster, one-hot on the axis (row_cluster,)."""
        return {ROW: Site(Categorical(), (ROW,))}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return the masks of the row clusters and of the column clusters that exist, by axis, with the component's
        own axes.
        """
        both = {ROW: first(size[0], capacity[0]), COLUMN: first(size[1], capacity[1])}
        return {**both, **self.component.own_axes}

    def block_prior(self) -> Any:
        """Return the natural parameters of the prior of one block, a pytree without axes for blocks or cells."""
        return jax.tree.map(lambda leaf: leaf[0], self.component.prior(1))

    def increments(self, unit: Row) -> Any:
        """Return the sufficient statistics s(x_nd) of each cell of one row, axis "dim" first; 0 for missing cells."""
        return self.component.increment(self.component.coordinates(unit), jnp.asarray(unit.observed))

    def log_carrier(self, unit: Row) -> Float[Array, ""]:
        """Return Σ_d log h(x_nd) of a row, in nats: the part of its log-density that no parameter enters."""
        return self.component.log_carrier(self.component.coordinates(unit), jnp.asarray(unit.observed))

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log p(row weights) + log p(column weights) + Σ_kl log p(θ_kl) + Σ_d log p(column cluster of d), in
        nats.

        k, l index row and column clusters, d columns, and θ_kl are the parameters of block (k, l).

        g: {name: statistics} of the weights, the blocks and the column clusters; shapes in the module's table.
        on: {"row_cluster", "column_cluster": masks of the clusters that exist}.
        """
        rows, columns, prior, family = on[ROW], on[COLUMN], self.block_prior(), self.component.family
        blocks = inner(family, prior, g["blocks"], None) - family.log_normaliser(prior)  # log p(θ_kl)
        row_weights = jnp.where(rows, g["row_weights"], 0.0)
        column_weights = jnp.where(columns, g["column_weights"], 0.0)
        return (
            log_symmetric_dirichlet(row_weights, self.row_concentration, rows.sum())
            + log_symmetric_dirichlet(column_weights, self.column_concentration, columns.sum())
            + jnp.where(rows[:, None] & columns, blocks, 0.0).sum()
            + jnp.where(columns, g[COLUMN] * g["column_weights"], 0.0).sum()
        )

    def log_unit(self, g: Latents, l: Latents, unit: Row, on: Masks) -> Float[Array, ""]:
        """Return log p(row cluster) + Σ_d log p(x_d | θ of the block of its row cluster and column cluster), in
        nats.

        g: {name: statistics} of the weights, the blocks and the column clusters. l: {"row_cluster": shape
            (row_cluster,)}.
        unit: one row, with cells x_d. on: {"row_cluster", "column_cluster": masks of the clusters that exist}.
        """
        chosen = jnp.where(on[COLUMN], g[COLUMN], 0.0)
        # Σ_d w_dl s(x_nd): statistics of the row's cells, added up within each column cluster
        sums = jax.tree.map(lambda leaf: jnp.tensordot(chosen, leaf, ((0,), (0,))), self.increments(unit))
        cells = jnp.where(on[COLUMN], inner(self.component.family, sums, g["blocks"], None), 0.0)
        each = g["row_weights"] + cells.sum(-1) + self.log_carrier(unit)
        return jnp.where(on[ROW], l[ROW] * each, 0.0).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j! · L! / Π_j n_j!) in nats, for K row clusters and L column clusters.

        It is the log number of relabellings. m_j and n_j are the sizes of the groups of identical row and column
        clusters.

        size: (K, L). natural: {name: natural parameters} of the globals.
        """
        blocks = [np.asarray(leaf) for leaf in jax.tree.leaves(natural["blocks"])]
        rows = [np.asarray(natural["row_weights"]), *(leaf[: size[0]] for leaf in blocks)]
        columns = [np.asarray(natural["column_weights"]), *(np.swapaxes(leaf, 0, 1)[: size[1]] for leaf in blocks)]
        columns.append(np.asarray(natural[COLUMN]).T)
        each = (
            np.concatenate([leaf[:n].reshape(n, -1) for leaf in leaves], axis=1)
            for n, leaves in zip(size, (rows, columns), strict=True)
        )
        return sum(map(log_relabellings, each))

    def check(self, units: Row) -> None:
        """Raise ValueError for cells that have no density under the component."""
        self.component.check(units)

    def ceiling(self, units: Row) -> float:
        """Return Σ over cells of the greatest log-density of a cell under parameters of its own, in nats.

        The ceiling is `inf` where densities have no maximum. units: all rows.

        Proof: parameters that may differ from cell to cell allow more than one parameter for each block. The evidence
        averages over parameters and clusters, and an average is at most the maximum.

        Raises ValueError for cells that have no density under the component.
        """
        self.check(units)
        return float(self.component.log_ceiling(units).sum())

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: Row, on: Masks) -> Row:
        """Draw the cells of one row, given the blocks, its row cluster and the cluster of every column.

        g: {"blocks": statistics, (row_cluster, column_cluster, …); "column_cluster": one-hot, (dim, column_cluster)}.
        l: {"row_cluster": one-hot}. unit: a row whose `observed` is kept.
        """
        chosen, columns = jnp.argmax(l[ROW]), jnp.argmax(g[COLUMN], axis=-1)
        cells = jax.tree.map(lambda leaf: leaf[chosen, columns], g["blocks"])
        return Row(self.component.draw(key, cells, unit), unit.observed)

    def simulate(self, key: Array, size: tuple[int, ...], units: Row, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, clusters and cells from the joint distribution.

        size: (number of row clusters, number of column clusters).
        units: rows of which `observed` is kept. extents: {"dim": D}, the number D of columns.

        Returns (statistics of the globals by name, row clusters by name with rows leading, the drawn rows).
        """
        keys, n_rows, on = jax.random.split(key, 6), np.shape(units.value)[0], self.active(size, size)
        prior = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*size, *jnp.shape(leaf))), self.block_prior())
        concentrations = self.row_concentration, self.column_concentration
        rows, columns = (
            Dirichlet().sample(each, jnp.broadcast_to(jnp.asarray(a - 1), (n,)))
            for each, a, n in zip(keys[:2], concentrations, size, strict=True)
        )
        chosen = jax.random.categorical(keys[3], columns, shape=(extents["dim"],))
        g = {
            "row_weights": rows,
            "column_weights": columns,
            "blocks": self.component.family.sample(keys[2], prior),
            COLUMN: jax.nn.one_hot(chosen, size[1], dtype=columns.dtype),
        }
        l = {ROW: jax.nn.one_hot(jax.random.categorical(keys[4], rows, shape=(n_rows,)), size[0], dtype=rows.dtype)}
        return g, l, self._draw_units(keys[5], g, l, units, on)


def _differs_by_column(component: Component) -> bool:
    """Return True if a hyper-parameter has one value per column: columns would then not be exchangeable."""
    return any(np.ndim(leaf) > 0 for leaf in jax.tree.leaves(component))
