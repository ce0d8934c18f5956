"""Annealed chains of mixtures of Gaussians with a full covariance per component, which score rows by stored inverses.

It is the chain of `evidence.mixtures`, with the same draws up to rounding. A component has a Normal–Wishart posterior
with log normaliser A, ν degrees of freedom, κ rows (prior included) and a matrix N over D + 1 sides (`inverses`). Let λ
be its prior natural parameters, S_k the sum of statistics of its rows, s(x) those of a row x, and z = (y, 1) with the
row's coordinates y. With s = zᵀN⁻¹z, and u the times that the row counts (1 except for variants), a row's gain is that
of Student's t (Bishop 2006, §2.3.7):

    A(λ + S_k + s(x)) − A(λ + S_k) = ½D log 2 + log Γ((ν + 1)/2) − log Γ((ν + 1 − D)/2) − ½ log|N|
                                     − ½(ν + 1) log(1 + us) + ½(ν + 1 − D) log(κ + u) − ½(ν − D) log κ.

On wine (178 rows of 13 columns, hyper-parameters with priors, 128 particles) a path along the rows takes 0.7 s of
processor time. With a matrix factor for every row, and for every draw of a slice, it took 40 s.

Hyper-parameters that have priors are annealed together with the labels (`HyperFullCovariances`). The diagonal of N of
an empty component is (spread + s₀ of each column, κ), with s₀ the constant `least_spread`. So a hyper-parameter that
changes from h to h' adds (h' − h) e eᵀ to every N, where e is one of the D + 1 unit vectors. With the prior's natural
parameters λ(h), and n the entry of N⁻¹ at e,

    A(λ(h') + S_k) − A(λ(h) + S_k) = −½ν log(1 + (h' − h) n) [+ ½(ν − D) log(κ'/κ) where h is κ of the prior],

so a slice weighs its draws by one number of each component.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy.special import gammaln

from lvsearch.inference.annealing.hyperparameters import LogHyper, count_values, slice_sample
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.evidence.mixture_hyperparameters import (
    HyperMixture,
    HyperMixtureState,
    labels_chain,
)
from lvsearch.inference.evidence.mixtures import Choose, CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining, RowScores
from lvsearch.inference.full_covariances.inverses import (
    Amounts,
    Direction,
    Inverses,
    add_square,
    direction,
    invert_all,
    replace_empty,
    replace_inverses,
    subtract_square,
    update_amounts,
)
from lvsearch.models.components import Component, FullCovarianceComponents, StudentComponents
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.exponential.normal_wishart import (
    LOG_2,
    LOG_PI,
    NormalWishart,
    NormalWishartStatistics,
    gamma_arguments,
)
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.finite_mixture import FiniteMixture


class FullCovarianceChain(CollapsedMixtureChain):
    """The annealing chain over labels of Gaussians with a full covariance per component; its states store inverse
    matrices.

    `natural` of a state is `Inverses`. The fields are those of `CollapsedMixtureChain` and

    | field | meaning | shape |
    |---|---|---|
    | `points` | the row's coordinates with a 1 after them; all 0 for rows without cells | (row, side), see below |
    | `log_gammas` | log Γ((ν + 1)/2) − log Γ((ν + 1 − D)/2) for ν of each number of rows | (number of rows,), from 0 |

    ν is the degrees of freedom of a component, and D the number of columns. The prior has mean 0 and a diagonal scale
    matrix. So the matrix N of an empty component is diagonal too. If missing cells are latent variables (`with_rows`),
    each particle has points of its own, (row, side, particle).
    """

    points: Float[Array | np.ndarray, "row side *particle"]
    log_gammas: Float[Array | np.ndarray, " number"]

    @classmethod
    def from_data(cls, model: FiniteMixture, data: Dataset, size: int, capacity: int) -> "FullCovarianceChain":
        """Return the chain of a mixture with `size` components, on the path from the prior.

        capacity: the number of components that arrays have room for.

        Raises ValueError for estimated components, rows without a density, rows whose weight is neither 0 nor 1, and a
        size above the capacity.
        """
        chain = CollapsedMixtureChain.from_data(model, data, size, capacity)
        increments, prior = (chain.layout.unpack(each) for each in (chain.increments, chain.prior))
        times, sums = (leaf[:, 0] for leaf in (increments.negative_half_square, increments.precision_mean))
        whole = times > 0
        points = np.append(sums / np.where(whole, times, 1.0)[:, None], whole[:, None], axis=1)
        n_dims = sums.shape[1]
        degrees = prior.half_log_determinant + n_dims + np.arange(len(whole) + 1)
        log_gammas = gammaln(0.5 * (degrees + 1)) - gammaln(0.5 * (degrees + 1 - n_dims))
        own = chain.component, chain.concentration, chain.size, increments, chain.carriers, chain.tilts
        return cls(*own, chain.weight, prior, chain.anchor, capacity, chain.layout, points, log_gammas)

    # ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def score_terms(self, natural: Inverses | Amounts) -> Float[Array, "*component particle"]:
        """Return the terms of a row's gain that do not depend on its values, nats.

        They are the gain of a row that counts once, without −½(ν + 1) log(1 + zᵀN⁻¹z).

        natural: the components' inverses, or the numbers beside them.
        """
        n_dims = self.points.shape[1] - 1
        rows = jnp.round(natural.degrees - self._prior_degrees).astype(jnp.int32)
        of_degrees = 0.5 * n_dims * LOG_2 + self._as_float(self.log_gammas)[rows] - 0.5 * natural.log_determinant
        of_count = (natural.degrees + 1 - n_dims) * jnp.log(natural.count + 1)
        return of_degrees + 0.5 * (of_count - (natural.degrees - n_dims) * jnp.log(natural.count))

    def redraw_row(
        self,
        state: CollapsedState,
        terms: Float[Array, "component particle"],
        row: Int[Array, ""],
        choose: Choose,
        prior: Any,
    ) -> tuple[CollapsedState, Float[Array, "component particle"]]:
        """Draw one row's label again and move the row to the component drawn.

        Terms and log|N| are computed anew only for the two components that the row leaves and joins, and both changes
        are made to the matrices in one pass. Scores are computed for all components. A sweep that computed everything
        anew for all, in two passes, took 1.3 times as long on iris (16 array slots), 1.6 times on the galaxies (64).

        state: labels of all rows, and the components' inverse matrices.
        terms: `score_terms` of the components.
        row: the index of the row.
        choose: a function from a state and the row's scores to labels. It may read labels and counts of that state,
            which are those without the row, but not its matrices.
        prior: natural parameters of an empty component.

        Returns the new state and the new `terms`.
        """
        own, before = state.natural, state.labels[row]
        point, whole = self._as_float(self.points)[row], self._as_float(self.increments.half_log_determinant)[row, 0]
        times = self._as_float(self.increments.negative_half_square)[row]
        leaves = self._component_numbers == self.names.components(before)
        counts, z = state.counts - leaves, direction(own, point)

        # The component that the row leaves, without the row: one of each particle.
        old, times_before = self.names.components(before), times[self.names.variants(before)]
        square, empty = pick_component(z.square, old), _empty_inverses(prior)
        left = update_amounts(pick_amounts(own, old), square, -times_before, -whole)
        square_left = square / (1 - times_before * square)
        emptied = (leaves & (counts < 0.5)).any(0)
        left = Amounts(*(jnp.where(emptied, of_empty[0], each) for of_empty, each in zip(empty[:3], left, strict=True)))
        square_left = jnp.where(
            emptied, (_beside_particles(point) ** 2 / _empty_diagonal(prior)[:, 0]).sum(0), square_left
        )
        terms_of_left = self.score_terms(left)

        without_row = Amounts(*(jnp.where(leaves, mine, each) for mine, each in zip(left, own[:3], strict=True)))
        squares, terms_now = jnp.where(leaves, square_left, z.square), jnp.where(leaves, terms_of_left, terms)
        scores = RowScores(self._of_labels(counts), self._gains_of_row(row, squares, without_row, terms_now))
        label = choose(CollapsedState(state.labels, counts, own), scores)

        # The component that the row joins, with the row: the one it left, in another variant, or another one.
        new, times_after, moves = self.names.components(label), times[self.names.variants(label)], label != before
        joined = update_amounts(pick_amounts(without_row, new), pick_component(squares, new), times_after, whole)
        joins = self._component_numbers == new
        arrives, departs = joins & moves, leaves & moves

        def stored(of_joined: Array, of_left: Array, of_all: Array) -> Array:
            """Return the numbers of all components, with those of the components that the row has left and joined."""
            return jnp.where(arrives, of_joined, jnp.where(departs, of_left, of_all))

        # Both changes of the matrices at once. They partly cancel where the component stays and its variant changes.
        more = arrives * times_after - departs * times_before
        inverse = subtract_square(own.inverse, more / (1 + more * z.square), z.along)
        inverse = replace_inverses(inverse, departs & ~joins & (counts < 0.5), empty.inverse)
        degrees, count, log_determinant = (stored(*each) for each in zip(joined, left, own[:3], strict=True))
        natural = Inverses(degrees, count, log_determinant, inverse)
        terms = stored(self.score_terms(joined), terms_of_left, terms)
        labels = jax.lax.dynamic_update_index_in_dim(state.labels, label, row, 0)
        return CollapsedState(labels, counts + joins, natural), terms

    def score_row(
        self, state: CollapsedState, row: Int[Array, ""], normaliser: Float[Array, "component particle"]
    ) -> Joining:
        """Return the scores of a row that is in no component, for each label.

        Their `natural` holds the row's products with each component's inverse matrix (`Direction`), which `add_row`
        takes.

        row: the index of the row.
        normaliser: the log normaliser of each component's posterior, nats.
        """
        own: Inverses = state.natural
        z = direction(own, self._as_float(self.points)[row])
        scores = RowScores(self._of_labels(state.counts), self._gains_of_row(row, z.square, own, self.score_terms(own)))
        return Joining(scores, z, self.names.in_all_variants(normaliser) + scores.of_row)

    def add_row(
        self, state: CollapsedState, row: Int[Array, ""], labels: Int[Array, " particle"], natural: Direction
    ) -> CollapsedState:
        """Return the state with a row, which was in no component, added under the given labels.

        row: the index of the row.
        natural: the row's products with each component's inverse matrix, as `score_row` returns them.
        """
        joins, times, degrees = self._contribution(row, labels)
        return CollapsedState(
            jax.lax.dynamic_update_index_in_dim(state.labels, labels, row, 0),
            state.counts + joins,
            add_square(state.natural, natural, times, degrees, times),
        )

    def remove_row(self, state: CollapsedState, row: Int[Array, ""], prior: Any) -> CollapsedState:
        """Return the state with the row taken out of its component. A component left without rows gets the prior
        itself.

        prior: natural parameters of an empty component.
        """
        leaves, times, degrees = self._contribution(row, state.labels[row])
        counts, z = state.counts - leaves, direction(state.natural, self._as_float(self.points)[row])
        natural = add_square(state.natural, z, -times, -degrees, -times)
        natural = replace_empty(natural, leaves & (counts < 0.5), _empty_inverses(prior))
        return CollapsedState(state.labels, counts, natural)

    def _gains_of_row(
        self, row: Array, squares: Array, own: Inverses | Amounts, terms: Array
    ) -> Float[Array, "label particle"]:
        """Return the gains of a row, A(λ + S_k + s_v(row)) − A(λ + S_k) + log h_v(row) − log h(row), nats.

        row: the index of the row, which is in no component.
        squares: zᵀN⁻¹z of the row with each component, (component, particle).
        own: the components without the row.
        terms: their `score_terms`, (component, particle).
        """
        n_dims = self.points.shape[1] - 1
        whole = self._as_float(self.increments.half_log_determinant)[row, 0]
        times = self._as_float(self.increments.negative_half_square)[row][:, None]
        # log1p takes three times as long. The absolute error of log(1 + x), about 1e-16, is small enough.
        of_value = 0.5 * (own.degrees + whole)[:, None] * jnp.log(1 + times * squares[:, None])
        gains = whole * terms[:, None] - of_value
        if self.names.n_variants > 1:  # a row of one variant counts once, or has no cells
            log_count = jnp.log(own.count[:, None] + times) - jnp.log(own.count + 1)[:, None]
            gains = gains + whole * 0.5 * (own.degrees + 1 - n_dims)[:, None] * log_count
        gains = gains.reshape(-1, squares.shape[-1])
        return gains + jnp.tile(self._as_float(self.tilts)[row], len(terms))[:, None]

    def _of_labels(self, counts: Float[Array, "component particle"]) -> Float[Array, "label particle"]:
        """Return log (n_k + a) + log p(v) of every label, (label, particle), nats."""
        log_variants = jnp.tile(self._as_float(self.component.log_variants), self.capacity)[:, None]
        return self.names.in_all_variants(jnp.log(counts + self._concentration())) + log_variants

    def _contribution(self, row: Array, labels: Int[Array, " particle"]) -> tuple[Array, Array, Array]:
        """Return what the row adds to each component in each particle, under the given labels: three arrays
        (component, particle).

        They say whether the row is there, how many times it counts in the matrix N, and how many degrees of freedom it
        adds.
        """
        here = self._component_numbers == self.names.components(labels)
        times = self._as_float(self.increments.negative_half_square)[row][self.names.variants(labels)]
        return here, jnp.where(here, times, 0.0), here * self._as_float(self.increments.half_log_determinant)[row, 0]

    # ── all rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def gains(self, natural: Inverses, prior: Any) -> Float[Array, "cell particle"]:
        """Return the log evidence of the rows given their labels, Σ_k A(λ + S_k) − A(λ), as one cell, (1, particle),
        nats.

        A is the log normaliser of a component's posterior.

        natural: the components' inverses.
        prior: λ, natural parameters of an empty component; each leaf (…) or (particle, …).
        """
        gains = self.normalisers(natural) - self.normalisers(_empty_inverses(prior))
        return jnp.where(self.exists(), gains, 0.0).sum(0, keepdims=True)

    def prior_natural(self, component: Component, n_dims: int) -> NormalWishartStatistics:
        """Return λ, the natural parameters of one component without rows, each leaf (…).

        component: the kind of component, with all its hyper-parameters given as numbers.
        n_dims: the number of columns.
        """
        return component.prior(n_dims)

    def state_from_labels(self, labels: Int[Array, "row particle"], prior: Any = None) -> CollapsedState:
        """Return the state with the given labels, its matrices inverted anew.

        prior: natural parameters of an empty component, by default the chain's own; each leaf (…) or (particle, …).
        """
        prior = self.own_prior() if prior is None else prior
        labels = labels.astype(jnp.int32)
        here = self.names.components(labels)[:, None] == self._component_numbers
        times = jnp.take_along_axis(
            self._as_float(self.increments.negative_half_square), self.names.variants(labels), axis=1
        )
        points, side = self._as_float(self.points), self.points.shape[1]
        counted = jnp.where(here, times[:, None], 0.0)
        if points.ndim > 2:
            sums = jnp.einsum("nap,nbp,nkp->abkp", points, points, counted)
        else:
            squares = (points[:, :, None] * points[:, None, :]).reshape(len(points), -1)
            sums = jnp.tensordot(squares, counted, [[0], [0]])
        on_diagonal = jnp.eye(side)[..., None, None] * _empty_diagonal(prior)
        inverse, log_determinant = invert_all(sums.reshape(side, side, self.capacity, -1) + on_diagonal)
        whole = self._as_float(self.increments.half_log_determinant)[:, 0]
        degrees = self._prior_degrees + jnp.tensordot(whole, here.astype(whole.dtype), 1)
        count = _empty_diagonal(prior)[-1] + sums.reshape(side, side, self.capacity, -1)[-1, -1]
        counts = jnp.tensordot(self._as_float(self.weight), here.astype(whole.dtype), 1)
        return CollapsedState(labels, counts, Inverses(degrees, count, log_determinant, inverse))

    def with_rows(
        self, coordinates: Float[Array, "row dim particle"], has_cells: Float[Array, " row"]
    ) -> "FullCovarianceChain":
        ones = jnp.ones_like(coordinates[:, :1])
        points = jnp.concatenate([coordinates, ones], axis=1) * has_cells[:, None, None]
        return eqx.tree_at(lambda c: c.points, self, points)

    def draw_components(self, key: Key[Array, ""], state: CollapsedState) -> NormalWishartStatistics:
        own, n_dims = state.natural, self.points.shape[1] - 1
        matrix = jnp.moveaxis(invert_all(own.inverse)[0], (3, 2), (0, 1))  # N, (particle, component, side, side)
        natural = NormalWishartStatistics(
            jnp.broadcast_to(own.degrees - n_dims, own.log_determinant.shape).T,
            matrix[..., :-1, :-1],
            matrix[..., :-1, -1],
            matrix[..., -1, -1],
        )
        return NormalWishart().sample(key, natural)

    def normalisers(self, natural: Inverses) -> Float[Array, "component particle"]:
        """Return the log normaliser of each component's posterior, (component, particle), nats."""
        n_dims = self.points.shape[1] - 1
        degrees = natural.degrees
        log_gamma = log_gamma_positive(gamma_arguments(degrees, n_dims)).sum(-1) + 0.25 * n_dims * (n_dims - 1) * LOG_PI
        of_matrix = 0.5 * degrees * (n_dims * LOG_2 - natural.log_determinant) + 0.5 * n_dims * LOG_2PI
        return log_gamma + of_matrix + 0.5 * (degrees - n_dims) * jnp.log(natural.count)

    @property
    def _prior_degrees(self) -> Array:
        """The degrees of freedom ν of an empty component."""
        return self._as_float(self.prior.half_log_determinant) + (self.points.shape[1] - 1)


def _beside_particles(point: Float[Array, "side *particle"]) -> Float[Array, "side #particle"]:
    """Return a row's point with an axis of particles, of length 1 if it is the same in all."""
    return point.reshape(len(point), -1)


def pick_component(
    leaf: Float[Array, "component particle"], components: Int[Array, " particle"]
) -> Float[Array, " particle"]:
    """Return each particle's entry for the component chosen in it, (particle,); −1 is the last component."""
    return leaf[components, jnp.arange(len(components))]


def pick_amounts(own: Inverses | Amounts, components: Int[Array, " particle"]) -> Amounts:
    """Return the amounts of the component chosen in each particle, leaves (particle,)."""
    return Amounts(*(pick_component(leaf, components) for leaf in own[:3]))


def _empty_diagonal(prior: NormalWishartStatistics) -> Float[Array, "side one particle"]:
    """Return the diagonal of the matrix N of an empty component, (side, 1, particle); its other entries are 0.

    prior: natural parameters of an empty component.
    """
    of_matrix = jnp.diagonal(prior.negative_half_precision, axis1=-2, axis2=-1)
    both = jnp.concatenate([of_matrix, prior.negative_half_square[..., None]], axis=-1)
    return jnp.moveaxis(jnp.atleast_2d(both), -1, 0)[:, None]


def _empty_inverses(prior: NormalWishartStatistics) -> Inverses:
    """Return the `Inverses` of an empty component.

    prior: its natural parameters, each leaf (…) or (particle, …).
    """
    diagonal = _empty_diagonal(prior)
    n_dims = len(diagonal) - 1
    return Inverses(
        jnp.atleast_1d(prior.half_log_determinant)[None] + n_dims,
        diagonal[-1],
        jnp.log(diagonal).sum(0),
        jnp.eye(n_dims + 1)[..., None, None] / diagonal,
    )


class HyperFullCovariances(HyperMixture):
    """The annealing chain over labels and hyper-parameters of Gaussians with a full covariance per component."""

    @property
    def _gaussians(self) -> FullCovarianceComponents:
        """The Gaussians of the mixture: the kind of component itself, or those that Student components are made of."""
        kind = self.component.gaussians if isinstance(self.component, StudentComponents) else self.component
        assert isinstance(kind, FullCovarianceComponents)
        return kind

    def _move_hyper(
        self, key: Array, state: HyperMixtureState, temperature: Array, backward: bool, hyper_temperature: Array
    ) -> LogHyper:
        """Return log of every hyper-parameter after a slice move of each given labels and the others; reversed if
        `backward`.

        temperature: t of the rows, from 0 (the start of the annealing path) to 1 (the posterior).
        hyper_temperature: t of the hyper-parameters' own distribution, from 0 (q) to 1 (their prior).
        """
        entries, own = self._entries(), state.mixture.natural
        courses = [self.courses[name].gamma_at(hyper_temperature) for name in self.courses]
        start = jnp.concatenate([state.log_hyper[name] for name in self.courses])
        keys_of_names = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(self.courses)))
        key_of_name = keys_of_names[entries.name]
        keys = jnp.where(entries.is_alone, key_of_name, jax.vmap(jax.random.fold_in)(key_of_name, entries.column))
        shapes, rates = (
            jnp.concatenate(
                [jnp.broadcast_to(jnp.ravel(each), n) for each, n in zip(of_names, entries.n_columns, strict=True)]
            )
            for of_names in zip(*courses, strict=True)
        )
        chain, exists = self.mixture, self.mixture.exists()
        prior_degrees = jnp.asarray(chain.prior.half_log_determinant) + self.n_dims
        sides, constants, counts = (
            jnp.asarray(each, kind)
            for each, kind in ((entries.side, int), (entries.constant, start.dtype), (entries.counted, start.dtype))
        )

        def one(index: Array, carry: tuple[Array, Inverses]) -> tuple[Array, Inverses]:
            """Move one entry, and update the inverses."""
            value, own = carry
            place = len(start) - 1 - index if backward else index
            side, constant, counted = sides[place], constants[place], counts[place]
            now, entry = value[place], own.inverse[side, side]

            def density(log_value: Array) -> Array:
                """Return log π_t of this entry up to a constant, (1, particle), nats."""
                more = jnp.exp(log_value) - jnp.exp(now)
                # A(λ(h') + S_k) − A(λ(h) + S_k), minus the same for an empty component
                of_empty = jnp.log(jnp.exp(log_value) + constant) - jnp.log(jnp.exp(now) + constant)
                of_matrix = own.degrees * jnp.log1p(more * entry) - prior_degrees * of_empty
                of_count = (own.degrees - self.n_dims) * jnp.log1p(counted * more / own.count)
                of_count = of_count - counted * (prior_degrees - self.n_dims) * (log_value - now)
                gain = jnp.where(exists, 0.5 * (of_count - of_matrix), 0.0).sum(0)
                return shapes[place] * log_value - rates[place] * jnp.exp(log_value) + temperature * gain

            moved = slice_sample(keys[place], now[None], density)[0]
            # the move adds (h' − h) e eᵀ to every matrix N
            more = jnp.broadcast_to(jnp.exp(moved) - jnp.exp(now), entry.shape)
            direction = Direction(own.inverse[side], entry)
            own = add_square(own, direction, more, jnp.zeros_like(more), counted * more)
            return value.at[place].set(moved), own

        # one loop over the entries of all hyper-parameters: a loop for each would be as many times the program
        moved, _ = jax.lax.fori_loop(0, len(start), one, (start, own))
        parts = jnp.split(moved, np.cumsum(entries.n_columns)[:-1])
        return dict(zip(self.courses, parts, strict=True))

    def _entries(self) -> "HyperEntries":
        """Return where the entries of all hyper-parameters stand in the matrices N."""
        n_columns = count_values(self.component.hyper_axes, self.n_dims)
        each = [(number, name, column) for number, name in enumerate(self.courses) for column in range(n_columns[name])]
        of_columns = np.array([bool(self.component.hyper_axes[name]) for _, name, _ in each])
        column = np.array([column for _, _, column in each])
        return HyperEntries(
            np.array([number for number, _, _ in each]),
            column,
            np.array([n_columns[name] == 1 for _, name, _ in each]),
            np.where(of_columns, column, self.n_dims),
            np.where(of_columns, self._gaussians.least_spread, 0.0),
            np.where(of_columns, 0.0, 1.0),
            tuple(n_columns[name] for name in self.courses),
        )


class HyperEntries(NamedTuple):
    """The entries of the matrices N that hyper-parameters are in, in the order in which they move.

    | field | meaning |
    |---|---|
    | `name` | the number of the hyper-parameter, (entry,) |
    | `column` | the column of the data that the entry belongs to; 0 if all share the hyper-parameter, (entry,) |
    | `is_alone` | True if the hyper-parameter has this entry alone, (entry,) |
    | `side` | the row and column of N in which the entry stands, (entry,) |
    | `constant` | what is added to the hyper-parameter there in an empty component, (entry,) |
    | `counted` | 1 for the number of rows κ, else 0, (entry,) |
    | `n_columns` | the number of entries of each hyper-parameter |
    """

    name: Int[np.ndarray, " entry"]
    column: Int[np.ndarray, " entry"]
    is_alone: Bool[np.ndarray, " entry"]
    side: Int[np.ndarray, " entry"]
    constant: Float[np.ndarray, " entry"]
    counted: Float[np.ndarray, " entry"]
    n_columns: tuple[int, ...]


def labels_chain_of_full_covariances(
    component: FullCovarianceComponents, model: FiniteMixture, data: Dataset, size: int
) -> CollapsedMixtureChain | HyperMixture:
    """Return the annealing chain of full-covariance components, with hyper-parameters that have priors annealed too."""
    chain = FullCovarianceChain.from_data(model, data, size, capacity_of((size,))[0])
    return HyperFullCovariances.around(chain, model.components, data) if component.inferred else chain


def labels_chain_of_students(
    component: StudentComponents, model: FiniteMixture, data: Dataset, size: int
) -> CollapsedMixtureChain | HyperMixture:
    """Return the annealing chain of the Gaussians from which Student components are made."""
    return labels_chain(component.gaussians, model, data, size)
