"""Rows of which some cells are missing, in chains over partitions of mixtures of Gaussians with free covariances.

Every particle has its own values of the missing cells, which are latent variables of their rows (`models.mixture`).
Given all cells, chains move the rows as if nothing were missing. In between, the cells are drawn anew, together with
the parts of their rows (`PartialRows.redraw`). Given the parameters of the parts, which are drawn for this alone, a row
with missing cells joins a part with probability proportional to

    p(joins the part | where the other rows are) · p(its observed cells | the part's parameters),

and its missing cells are Gaussian given the others and the part. Without this move a row would stay where its cells
were drawn. The move does not touch a row that is alone in its part, nor does it begin new parts; the sweeps do.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.draws import choose_in_proportion
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows, rows, rows_of
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, fill_in
from lvsearch.models.components import Component, FullCovarianceComponents
from lvsearch.models.exponential.matrices import solve_lower
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.units import Row

STEP = 32
"""Arrays over rows with missing cells are padded to a multiple of this many rows."""


class PartialRows(eqx.Module):
    """The rows of a data set of which some cells, but not all, are missing; made by `from_data`.

    Arrays are padded to a multiple of `STEP` rows, so that data sets share their programs.

    | field | meaning | shape |
    |---|---|---|
    | `component` | the kind of component, which says how cells are distributed given others | |
    | `number` | the number of these rows, without padding | () |
    | `places` | the number of each row among all rows of the chain; beyond the last row for padding | (partial,) |
    | `coordinates` | the rows; missing cells at their means under one Gaussian of all rows | (partial, dim) |
    | `missing` | True at missing cells | (partial, dim) |
    | `others` | all rows in coordinates, 0 where cells are missing | (row, dim) |
    | `has_cells` | 1 for rows with some cell, else 0 | (row,) |
    | `most` | the largest number of missing cells of one of these rows, rounded up to a power of two | |
    """

    component: Component
    number: Int[Array | np.ndarray, ""]
    places: Int[Array | np.ndarray, " partial"]
    coordinates: Float[Array | np.ndarray, "partial dim"]
    missing: Bool[Array | np.ndarray, "partial dim"]
    others: Float[Array | np.ndarray, "row dim"]
    has_cells: Float[Array | np.ndarray, " row"]
    most: int = eqx.field(static=True)

    @classmethod
    def from_data(cls, component: Component, data: Dataset) -> "PartialRows":
        """Return the rows with missing cells of a data set, in the order of its batches.

        component: the kind of component, whose coordinates are used.
        """
        units, _ = padded_rows(data)
        seen = np.asarray(units.observed)
        partial = np.flatnonzero(seen.any(1) & ~seen.all(1))
        y, filled = _filled_in(component, units)
        filled = filled[partial]
        padding = -len(partial) % STEP
        places = np.concatenate([partial, np.full(padding, len(seen))])
        missing = np.pad(~seen[partial], ((0, padding), (0, 0)))
        most = min(seen.shape[1], 1 << (int(missing.sum(1).max(initial=1)) - 1).bit_length())
        has_cells = np.asarray(seen.any(1), np.float64)
        filled = np.pad(filled, ((0, padding), (0, 0)))
        return cls(component, np.asarray(len(partial)), places, filled, missing, y, has_cells, most)

    def first_cells(self, particles: int) -> Float[np.ndarray, "partial dim particle"]:
        """Return the cells with which particles begin: missing ones are where one Gaussian expects them."""
        return np.repeat(self.coordinates[..., None], particles, axis=-1)

    def fill(self, cells: Float[Array, "partial dim particle"]) -> Float[Array, "row dim particle"]:
        """Return all rows in every particle, (row, dim, particle). cells: those of the rows with missing ones."""
        every = jnp.broadcast_to(jnp.asarray(self.others)[..., None], (*self.others.shape, cells.shape[-1]))
        return every.at[jnp.asarray(self.places)].set(cells, mode="drop")  # padding has no row

    def redraw(
        self,
        key: Key[Array, ""],
        statistics: Any,
        labels: Int[Array, "row particle"],
        counts: Float[Array, "place particle"],
        log_seats: Callable[[Float[Array, "place particle"]], Float[Array, "place particle"]],
    ) -> tuple[Int[Array, "row particle"], Float[Array, "partial dim particle"]]:
        """Draw the part and the missing cells of each row that has some, given the parts' parameters, one row after
        another.

        statistics: those of the parameters of the part in every place, each leaf (particle, place, …).
        labels: the part of each row, −1 for rows in none, which stay there.
        counts: the number of rows in each part.
        log_seats: (rows in each part without this row) -> log-probability that it joins each, up to a constant, nats.

        Returns: the new labels, and the cells of these rows.
        """
        n_particles = labels.shape[1]
        particle = jnp.arange(n_particles)
        key_label, key_cells = jax.random.split(key)
        shape = len(self.places), n_particles
        uniforms = jax.random.uniform(key_label, shape, counts.dtype)
        noise = jax.random.normal(key_cells, (*shape, self.most), counts.dtype)

        def one(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            labels, counts, cells = carry
            row = jnp.asarray(self.places)[index]
            y, observed = jnp.asarray(self.coordinates)[index], ~jnp.asarray(self.missing)[index]
            before = labels[row]
            leaves = jnp.arange(len(counts))[:, None] == before
            without = counts - leaves
            laws = jax.vmap(lambda own: self.component.laws_of_cells(own, y, observed, self.most))(statistics)
            open_parts = without > 0.5
            scores = jnp.where(open_parts, log_seats(without) + laws.log_mass.T, -jnp.inf)
            # a row that is alone in its part, or in none, stays there
            stays = ~(leaves & open_parts).any(0)
            drawn = choose_in_proportion(jnp.where(stays, 0.0, scores), uniforms[index], np.asarray(len(counts)))
            label = jnp.where(stays, before, drawn).astype(labels.dtype)
            factor, centre = (leaf[particle, label] for leaf in (laws.factor, laws.centre))
            drawn_cells = centre + solve_lower(factor, noise[index][..., None], transposed=True)[..., 0]
            columns, here = laws.columns[0, 0], laws.is_missing[0, 0]
            values = jnp.where(here[:, None], drawn_cells.T, y[columns][:, None])
            own = jnp.broadcast_to(y[:, None], (len(y), n_particles)).at[columns].set(values)
            joins = jnp.arange(len(counts))[:, None] == label
            return labels.at[row].set(label), without + joins, cells.at[index].set(own)

        cells = jnp.zeros((len(self.places), self.coordinates.shape[1], n_particles), counts.dtype)
        labels, _, cells = jax.lax.fori_loop(0, jnp.asarray(self.number), one, (labels, counts, cells))
        return labels, cells


def _filled_in(component: Component, units: Row) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in the components' coordinates, 0 where cells are missing, and the same rows filled in."""
    with jax.enable_x64(True):
        y = coordinates_and_carriers(component, units)[0]
        return np.asarray(y), np.asarray(fill_in(component.at_prior_means(), y, np.asarray(units.observed)))


Mixture = TypeVar("Mixture", bound=MixtureModel)


def without_missing_cells(model: Mixture, data: Dataset) -> tuple[Mixture, Dataset]:
    """Return (the mixture whose rows have all cells, rows with missing cells where one Gaussian of all rows has them).

    It is for chains that know no missing cells: to begin a fit with, or to get the cells of each particle later. Rows
    without cells stay as they are. If no cells of the model are latent, both are returned unchanged.

    model: the mixture. data: its rows.
    """
    component = model.components
    if not component.partial_rows:
        return model, data
    assert isinstance(component, FullCovarianceComponents)  # the only kind with partial rows
    units, _ = rows_of(data)
    seen = np.asarray(units.observed)
    expected = np.asarray(component.location) + np.asarray(component.scale) * _filled_in(component, units)[1]
    has_cells = np.broadcast_to(seen.any(1, keepdims=True), seen.shape).copy()
    whole = rows(np.where(seen, np.asarray(units.value), expected), has_cells)
    return replace(model, components=replace(component, partial_rows=False)), whole
