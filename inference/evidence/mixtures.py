"""Mixtures of one size, annealed from the prior of their labels, with weights and parameters integrated out.

    π_t(z) ∝ p(z) p(rows | z)^t,      p(z) = Γ(Ka) / Γ(Ka + N) Π_k Γ(n_k + a) / Γ(a)        (Dirichlet–multinomial)
    log p(rows | z) = Σ_k [A(λ + Σ_{z_n = k} s(x_n)) − A(λ)] + Σ_n log h(x_n)                (Blei 2004, Eq. 5.13)

Here z_n is the component of row x_n, n_k the number of rows in component k, and a the concentration of the weights.
s(x) are the statistics of a row, λ the natural parameters of the prior of a component, and A its log-normaliser.

A sweep draws one row after another from its tempered conditional, in which both factors of the joint are ratios:

    π_t(z_n = k | the others) ∝ (n_k + a) · exp(t [A(λ + S_k + s(x_n)) − A(λ + S_k)]),

with n_k and S_k, the sum of the statistics of component k, taken without row n. h(x_n) is the same for every k. The
path does not change when components are renamed.

If rows arise in one of V variants (`models.components`), z_n is a component and a variant (`variant_labels`). Then p(z)
has the further factor Π_n p(v_n), and row n has s_v(x_n) and h_v(x_n).

If the forward and the backward paths end far apart, there is a second path (`anchored_chain`), around one labelling r
of the rows:

    π_t(z) ∝ q(z)^(1−t) p(rows, z)^t,      q(z) = Π_n r_n[z_n].
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.anchors import LABELS_RUN, mix_with_even, settle_best_particles
from lvsearch.inference.annealing.draws import choose_in_proportion
from lvsearch.inference.chains import Anchor
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.data.statistic_layout import StatisticLayout
from lvsearch.inference.engine.estimate import check_size
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining, RowLabelsChain, RowScores
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, prior_of, variants
from lvsearch.models.components import Component
from lvsearch.models.components.arguments import refuse_partial_rows
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.finite_mixture import FiniteMixture

Choose = Callable[[CollapsedState, RowScores], Int[Array, " particle"]]
"""A function that chooses a row's label: (the state without the row, the row's scores) -> labels, (particle,)."""


class CollapsedMixtureChain(RowLabelsChain):
    """The annealing chain over the labels of a `FiniteMixture`, made by `from_data`. The first `size` of `capacity`
    components exist.

    | field | meaning | shape |
    |---|---|---|
    | `component` | the kind of component | |
    | `concentration` | a, the Dirichlet parameter of each weight | () |
    | `size` | K, the number of components | (), traced |
    | `increments` | s_v(x_n), statistics of each row in each variant, packed by `layout` | (row, variant, statistic) |
    | `carriers` | log h(x_n), nats | (row,) |
    | `tilts` | log h_v(x_n) − log h(x_n), nats | (row, variant) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `prior` | λ, natural parameters of a component without rows, packed by `layout` | (statistic,) |
    | `anchor` | log r, log q of each row's label, nats; None for the path from the prior | (row, label) |
    | `layout` | how the statistics of a component lie on one axis | |

    Where rows have one variant, they may differ from particle to particle: then `increments` has an axis of particles
    too, (row, 1, statistic, particle).
    """

    component: Component
    concentration: HyperparameterArray
    size: Int[Array | np.ndarray, ""]
    increments: Any
    carriers: Float[Array | np.ndarray, " row"]
    tilts: Float[Array | np.ndarray, "row variant"]
    weight: Float[Array | np.ndarray, " row"]
    prior: Any
    anchor: Float[Array | np.ndarray, "row label"] | None
    capacity: int = eqx.field(static=True)
    layout: StatisticLayout = eqx.field(static=True)

    @classmethod
    def from_data(cls, model: FiniteMixture, data: Dataset, size: int, capacity: int) -> "CollapsedMixtureChain":
        """Return the annealing chain of a mixture with `size` components on the path from the prior.

        Rows are in the order of the batches, with their padding, so that data sets of one padded length share their
        programs.

        capacity: how many array slots there are for components.

        Raises ValueError for estimated components, rows without a density, rows whose weight is neither 0 nor 1, and a
        size that does not fit in the capacity.
        """
        component = model.components
        if model.concentration is None:
            raise ValueError(
                f"got {model.describe()}, expected a mixture whose parameters have a prior: with estimated parameters "
                "nothing is integrated out"
            )
        check_size(size, capacity)
        units, weight = padded_rows(data)
        component.check(units)
        if component.partial_rows:
            refuse_partial_rows(
                units,
                "their missing cells are latent variables, which annealed evidence and lv.sample do not draw. Take "
                'evidence="partitions", the default, or lv.mixture_posterior, whose chains draw them',
            )
        with jax.enable_x64(True):
            coordinates, carriers = coordinates_and_carriers(component, units)
            prior = prior_of(component.at_prior_means(), n_dims=units.value.shape[1])
            increments, tilts = variants(component, coordinates, units.observed)
            increments = jax.tree.map(np.asarray, increments)
            layout = StatisticLayout.of(prior, _equal_in_all_columns(component, increments))
            return cls(
                component,
                np.asarray(model.concentration_at(size), np.float64),
                np.asarray(size),
                layout.pack_on_host(increments),
                np.asarray(carriers),
                np.asarray(tilts),
                weight,
                np.asarray(layout.pack_on_host(prior), np.float64),
                None,
                capacity,
                layout,
            )

    @property
    def components_share(self) -> bool:
        """Whether components have parameters in common, so that a row's move changes the scores of all: False."""
        return False

    def init(self, key: Key[Array, ""], particles: int) -> CollapsedState:
        """Return the first state, with the labels of `particles` particles drawn from q."""
        return self.state_from_labels(self.draw_labels(key, particles))

    def step(
        self, key: Key[Array, ""], state: CollapsedState, temperature: Float[Array, ""], *, backward: bool
    ) -> CollapsedState:
        """Return the state after one sweep, which draws every row's label in turn from its tempered conditional.

        temperature: t, from 0 (q) to 1 (the posterior).
        backward: visit the last row first.
        """
        return self.sweep_rows(key, state, temperature, backward, self.own_prior())

    def sweep_rows(
        self, key: Key[Array, ""], state: CollapsedState, temperature: Float[Array, ""], backward: bool, prior: Any
    ) -> CollapsedState:
        """Return the state after one sweep over the rows' labels, under a given prior of the components.

        Rows of padding keep their labels.

        temperature: t, from 0 (q) to 1 (the posterior).
        backward: visit the last row first.
        prior: λ, the natural parameters of a component without rows, (statistic,), or (particle, statistic) if every
            particle has its own.
        """
        state = self.summed_anew(state, prior)
        uniforms = jax.random.uniform(key, state.labels.shape, state.counts.dtype)
        order = jnp.argsort(self._as_float(self.weight) == 0, stable=True)
        n_real = (self._as_float(self.weight) > 0).sum()

        def choose(row: Array, left: CollapsedState, scores: RowScores) -> Int[Array, " particle"]:
            return self.draw_label(self.log_conditional(scores, row, temperature), uniforms[row])

        return self.redraw_rows(state, order, n_real, choose, prior, backward=backward)

    def redraw_rows(
        self,
        state: CollapsedState,
        order: Int[Array, " row"],
        number: Int[Array, ""],
        choose: Callable[[Array, CollapsedState, RowScores], Int[Array, " particle"]],
        prior: Any,
        *,
        backward: bool = False,
    ) -> CollapsedState:
        """Take some rows out of their components and put them back, one after another, where `choose` says.

        order: numbers of rows, of which the first `number` are visited.
        choose: (number of the row, the state without it, its scores) -> its labels, (particle,), as in `redraw_row`.
        prior: λ, the natural parameters of a component without rows, (statistic,) or (particle, statistic).
        backward: visit the last of these rows first.
        """

        def one(place: Array, carry: tuple[CollapsedState, Array]) -> tuple[CollapsedState, Array]:
            row = order[number - 1 - place if backward else place]
            return self.redraw_row(*carry, row, partial(choose, row), prior)

        return jax.lax.fori_loop(0, number, one, (state, self.score_terms(state.natural)))[0]

    def score_terms(self, natural: Any) -> Float[Array, "#component particle"]:
        """Return the numbers of each component that `redraw_row` carries from row to row: the log-normalisers
        A(λ + S_k), (component, particle), nats.
        """
        return self.normalisers(natural)

    # ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def redraw_row(
        self,
        state: CollapsedState,
        normaliser: Float[Array, "component particle"],
        row: Int[Array, ""],
        choose: Choose,
        prior: Any,
    ) -> tuple[CollapsedState, Float[Array, "component particle"]]:
        """Take one row out of its component in every particle, let `choose` choose its label, and put it there.

        In a mixture whose rows have one variant, components that the row neither leaves nor joins are not touched.

        state: labels and sums.
        normaliser: A(λ + S_k), the log-normaliser of each component with all its rows, (component, particle). Component
            k has the sum S_k of its rows' statistics.
        row: the number of the row.
        choose: (the state without the row, the row's scores) -> the row's labels, (particle,). It may read labels and
            counts of that state, but not its sums.
        prior: λ, the natural parameters of a component without rows, (statistic,) or (particle, statistic).

        Returns: (the state, A(λ + S_k) with the row in its new component).
        """
        before = state.labels[row]
        leaves = self._component_numbers == self.names.components(before)
        counts = state.counts - leaves
        left = self._sums_without(state.natural, row, before, leaves & (counts < 0.5), prior)
        if self.names.n_variants > 1:
            normaliser = jnp.where(leaves, self.normalisers(left), normaliser)
            without = CollapsedState(state.labels, counts, jnp.where(leaves, left, state.natural))
            return self.place_row(without, normaliser, row, choose)

        # The row's own component is evaluated without it, all others with it: that is all that any choice can need.
        moved = jnp.where(leaves, left, state.natural + self._own(row, before))
        after = self.normalisers(moved)
        gain = jnp.where(leaves, normaliser - after, after - normaliser) + self._as_float(self.tilts)[row]
        of_label = jnp.log(counts + self._concentration()) + self._as_float(self.component.log_variants)
        label = choose(CollapsedState(state.labels, counts, state.natural), RowScores(of_label, gain))
        joins = self._component_numbers == label
        changes = leaves != joins
        return (
            CollapsedState(
                jax.lax.dynamic_update_index_in_dim(state.labels, label, row, 0),
                counts + joins,
                jnp.where(changes, moved, state.natural),
            ),
            jnp.where(changes, after, normaliser),
        )

    def place_row(
        self,
        state: CollapsedState,
        normaliser: Float[Array, "#component particle"],
        row: Int[Array, ""],
        choose: Choose,
    ) -> tuple[CollapsedState, Float[Array, "#component particle"]]:
        """Let `choose` choose the label of a row that is in no component, and put it there.

        normaliser: A(λ + S_k), the log-normaliser of each component without the row, (component, particle), nats.
        row: the number of the row.
        choose: (the state, the row's scores) -> the row's labels, (particle,); −1 leaves it in no component.

        Returns: (the state, A(λ + S_k) with the row in its component).
        """
        joining = self.score_row(state, row, normaliser)
        label = choose(state, joining.scores)
        return self.add_row(state, row, label, joining.natural), self._normaliser_with(normaliser, joining, label)

    def _normaliser_with(
        self, normaliser: Float[Array, "component particle"], joining: Joining, label: Int[Array, " particle"]
    ) -> Float[Array, "component particle"]:
        """Return the log-normaliser of each component after a row joined one, (component, particle), nats.

        normaliser: without the row. joining: the row's scores. label: the row's labels.
        """
        joins = self._component_numbers == self.names.components(label)
        return jnp.where(joins, self.names.in_variant_of(label, joining.normaliser), normaliser)

    def log_conditional(
        self, scores: RowScores, row: Int[Array, ""], temperature: Float[Array, ""] | None
    ) -> Float[Array, "label particle"]:
        """Return log π_t of a row's label given all other labels, up to a constant, (label, particle), in nats.

        scores: the row's scores at temperature 1.
        row: the number of the row.
        temperature: t; None means 1 on the path from the prior.
        """
        if temperature is None:
            return scores.score
        if self.anchor is None:
            return scores.of_label + temperature * scores.of_row
        return (1 - temperature) * self._as_float(self.anchor)[row][:, None] + temperature * scores.score

    def score_row(
        self, state: CollapsedState, row: Int[Array, ""], normaliser: Float[Array, "component particle"]
    ) -> Joining:
        """Return the scores of a row that is in no component, for each label that it might get.

        row: the number of the row.
        normaliser: A(λ + S_k), the log-normaliser of each component without the row, (component, particle).
        """

        # the sums of each component with the row added in each variant, (statistic, label, particle)
        more = jnp.moveaxis(self._statistics_of(row), 0, 1)[:, None]
        joined = (state.natural[:, :, None] + more).reshape(len(more), self.names.number, -1)
        after = self.normalisers(joined)
        of_label, of_row = jnp.log(state.counts + self._concentration()), after - self.names.in_all_variants(normaliser)
        log_variants = jnp.tile(self._as_float(self.component.log_variants), self.capacity)[:, None]
        tilts = jnp.tile(self._as_float(self.tilts)[row], self.capacity)[:, None]
        scores = RowScores(self.names.in_all_variants(of_label) + log_variants, of_row + tilts)
        return Joining(scores, joined, after)

    def draw_label(
        self, score: Float[Array, "label particle"], uniform: Float[Array, " particle"]
    ) -> Int[Array, " particle"]:
        """Draw a label for each particle in proportion to exp(score), among the labels of existing components,
        (particle,).

        score: log-probabilities up to a constant, (label, particle).
        uniform: one uniform draw for each particle, by which the label is found.
        """
        score = jnp.where(self.names.exist(self.size), score, -jnp.inf)
        return choose_in_proportion(score, uniform, jnp.asarray(self.size) * self.names.n_variants)

    def add_row(
        self, state: CollapsedState, row: Int[Array, ""], labels: Int[Array, " particle"], natural: Any
    ) -> CollapsedState:
        """Return the state with a row, which was in no component, put into components by its labels.

        row: the number of the row.
        labels: its label in each particle, (particle,).
        natural: λ + S_k + s_v(row), the sums with the row under each label, from `score_row`.
        """
        joins = self._component_numbers == self.names.components(labels)
        return CollapsedState(
            jax.lax.dynamic_update_index_in_dim(state.labels, labels, row, 0),
            state.counts + joins,
            jnp.where(joins, self.names.in_variant_of(labels, natural), state.natural),
        )

    def remove_row(self, state: CollapsedState, row: Int[Array, ""], prior: Any) -> CollapsedState:
        """Return the state with one row taken out of its component. Its entry of `labels` keeps the old label.

        A component that is left without rows gets the prior's natural parameters λ, not a difference with rounding
        errors.

        row: the number of the row.
        prior: λ, (statistic,) or (particle, statistic).
        """
        label = state.labels[row]
        leaves = self._component_numbers == self.names.components(label)
        counts = state.counts - leaves
        without = self._sums_without(state.natural, row, label, leaves & (counts < 0.5), prior)
        return CollapsedState(state.labels, counts, jnp.where(leaves, without, state.natural))

    def _sums_without(
        self,
        natural: Float[Array, "statistic component particle"],
        row: Int[Array, ""],
        labels: Int[Array, " particle"],
        emptied: Bool[Array, "component particle"],
        prior: Float[Array, "... statistic"],
    ) -> Float[Array, "statistic component particle"]:
        """Return the natural parameters of every component as if the row left it, (statistic, component, particle).

        labels: the row's labels, whose variants say which statistics it has.
        emptied: the components that would have no rows left: they get λ.
        prior: λ, (statistic,) or (particle, statistic).
        """
        return jnp.where(emptied, self.beside_components(prior), natural - self._own(row, labels))

    def _own(self, row: Int[Array, ""], labels: Int[Array, " particle"]) -> Float[Array, "statistic one #particle"]:
        """Return the statistics of a row in the variants of its labels, (statistic, 1, particle); (statistic, 1, 1)
        if there is one variant and the row is the same in all particles.
        """
        if self.names.n_variants > 1:
            return self.beside_components(self._as_float(self.increments)[row][self.names.variants(labels)])
        return jnp.moveaxis(self._statistics_of(row), 0, 1)

    def _statistics_of(self, row: Int[Array, ""]) -> Float[Array, "variant statistic #particle"]:
        """Return the statistics of a row in each variant, (variant, statistic, particle), or (variant, statistic, 1) if
        they are the same in all particles.
        """
        own = self._as_float(self.increments)[row]
        return own.reshape(*own.shape[:2], -1)

    @staticmethod
    def beside_components(statistics: Float[Array, "... statistic"]) -> Float[Array, "statistic one particle"]:
        """Return the statistics of each particle, or of all, with axes that fit those of a state's sums."""
        return jnp.atleast_2d(statistics).T[:, None, :]

    def own_prior(self) -> Any:
        """Return λ, the chain's own natural parameters of a component without rows, in the session's float type."""
        return jax.tree.map(self._as_float, self.prior)

    # ── densities and labels ────────────────────────────────────────────────────────────────────────────────────────

    def log_ratio(self, state: CollapsedState) -> Float[Array, " particle"]:
        """Return log p(rows, labels) − log q(labels) of each particle, (particle,), in nats.

        On the path from the prior this is log p(rows | labels).
        """
        return self.log_rows(state) + self.log_labels_ratio(state)

    def log_rows(self, state: CollapsedState) -> Float[Array, " particle"]:
        """Return log p(rows | labels) of each particle, (particle,), in nats, with parameters integrated out."""
        return self.gains(state.natural, self.own_prior()).sum(0) + self.log_carried(state.labels)

    def gains(self, natural: Any, prior: Any) -> Float[Array, "cell particle"]:
        """Return Σ_k A(λ + S_k) − A(λ) over components k for each cell of a row, (cell, particle), in nats.

        It is the log-probability of the rows given the labels without the carriers h. If the cells of a row are not
        independent given its component, there is one cell.

        natural: λ + S_k, the natural parameters of each component with its rows, (statistic, component, particle).
        prior: λ, (statistic,) or (particle, statistic).
        """
        before = self.cell_normalisers(self.beside_components(prior))
        return jnp.where(self.exists(), self.cell_normalisers(natural) - before, 0.0).sum(1)

    def prior_natural(self, component: Component, n_dims: int) -> Any:
        """Return λ, the natural parameters of one component without rows, (statistic,).

        component: the kind of component, with all its hyper-parameters given as numbers.
        n_dims: the number of columns.
        """
        return self.layout.pack(component.prior(n_dims))

    def log_carried(self, labels: Int[Array, "row particle"]) -> Float[Array, " particle"]:
        """Return Σ_n log h_v(x_n), the rows' carriers in the variants of their labels, of each particle, (particle,),
        in nats.
        """
        tilts = jnp.take_along_axis(self._as_float(self.tilts), self.names.variants(labels), axis=1).sum(0)
        return tilts + self._as_float(self.carriers).sum()

    def log_labels(self, state: CollapsedState) -> Float[Array, " particle"]:
        """Return log p(labels) of each particle, (particle,), in nats, with weights integrated out."""
        drawn = self._as_float(self.component.log_variants)[self.names.variants(state.labels)]
        return self.log_components(state.counts) + (self._as_float(self.weight)[:, None] * drawn).sum(0)

    def log_labels_ratio(self, state: CollapsedState) -> Float[Array, " particle"]:
        """Return log p(labels) − log q(labels), (particle,), in nats, which is 0 on the path from the prior."""
        if self.anchor is None:
            return jnp.zeros(state.labels.shape[1])
        chosen = jnp.take_along_axis(self._as_float(self.anchor), state.labels, axis=1)
        return self.log_labels(state) - (self._as_float(self.weight)[:, None] * chosen).sum(0)

    def log_density(self, state: CollapsedState) -> Float[Array, " particle"]:
        """Return log p(rows, labels) of each particle, (particle,), in nats, with weights and parameters integrated
        out.
        """
        return self.log_rows(state) + self.log_labels(state)

    def relabel(self, state: CollapsedState, order: Int[Array, "particle component"]) -> CollapsedState:
        """Return each state with its component l called order[l]; on the path from the prior, the state as it is.

        order: the new number of each component, (particle, component).
        """
        labels = self.relabelled(state.labels, order)
        return state if labels is None else self.state_from_labels(labels)

    def with_rows(
        self, coordinates: Float[Array, "row dim particle"], has_cells: Float[Array, " row"]
    ) -> "CollapsedMixtureChain":
        """Return the chain with other rows in each particle, where missing cells are latent variables.

        coordinates: the rows, all cells filled in. has_cells: 1, or 0 for rows without cells, which count for nothing.

        Raises TypeError for a kind of component without latent cells.
        """
        raise TypeError(f"got {type(self.component).__name__}, expected components whose missing cells are latent")

    def draw_components(self, key: Key[Array, ""], state: CollapsedState) -> Any:
        """Draw the parameters of the component in every place given its rows, and return their statistics, each leaf
        (particle, place, …).

        Raises TypeError for a kind of component without latent cells, for which alone they are needed.
        """
        raise TypeError(f"got {type(self.component).__name__}, expected components whose missing cells are latent")

    def state_from_labels(self, labels: Int[Array, "row particle"], prior: Any = None) -> CollapsedState:
        """Return the state with these labels, its sums computed from the rows.

        labels: (row, particle); −1 for a row in no component.
        prior: λ, the natural parameters of a component without rows, by default the chain's own; (statistic,), or
            (particle, statistic).
        """
        prior = self.own_prior() if prior is None else prior
        labels = labels.astype(jnp.int32)
        chosen = labels[:, None, :] == jnp.arange(self.names.number, dtype=jnp.int32)[:, None]
        chosen = chosen.reshape(len(labels), self.capacity, self.names.n_variants, -1)

        chosen = chosen.astype(jnp.result_type(float))
        counts = jnp.einsum("nkvp,n->kp", chosen, self._as_float(self.weight))
        return CollapsedState(labels, counts, self._summed(chosen, prior))

    def summed_anew(self, state: CollapsedState, prior: Any = None) -> CollapsedState:
        """Return the state with its sums computed anew from the rows, so that rounding does not add up over sweeps.

        prior: λ, as in `state_from_labels`.
        """
        return self.state_from_labels(state.labels, prior)

    def _summed(self, chosen: Float[Array, "row component variant particle"], prior: Any) -> Any:
        """Return λ + S_k, what a state keeps of each component in `natural`, (statistic, component, particle).

        chosen: 1 for the component and variant of a row.
        prior: λ, (statistic,) or (particle, statistic).
        """
        each = "nvsp" if np.ndim(self.increments) > 3 else "nvs"
        sums = jnp.einsum(f"nkvp,{each}->skp", chosen, self._as_float(self.increments))
        return self.beside_components(prior) + sums

    def normalisers(self, natural: Float[Array, "statistic component particle"]) -> Float[Array, "component particle"]:
        """Return the log-normaliser A of each component of each particle, (component, particle), in nats.

        natural: natural parameters, (statistic, component, particle).
        """
        return self.cell_normalisers(natural).sum(0)

    def cell_normalisers(
        self, natural: Float[Array, "statistic component particle"]
    ) -> Float[Array, "cell component particle"]:
        """Return the log-normaliser A of each cell of each component, (cell, component, particle), in nats.

        There is one cell, unless the cells of a row are independent given its component.

        natural: natural parameters, (statistic, component, particle).
        """
        family = self.component.prior_family
        if family.event_ndim == 0:
            return family.log_normaliser(self.layout.split(natural))
        each = family.log_normaliser(self.layout.unpack(jnp.moveaxis(natural, 0, -1).reshape(-1, len(natural))))
        return jnp.moveaxis(each.reshape(*natural.shape[1:], -1), -1, 0)

    @property
    def _component_numbers(self) -> Int[Array, "component one"]:
        """The numbers of the components, (component, 1), in the integer type of the labels."""
        return jnp.arange(self.capacity, dtype=jnp.int32)[:, None]


class JointNormaliserChain(CollapsedMixtureChain):
    """A chain over labels whose components have one log-normaliser A together, (1, particle), where others have one for
    each component.

    Its rows have one variant. A row is taken out, scored and put back, each by a method of its own.
    """

    def redraw_row(
        self,
        state: CollapsedState,
        normaliser: Float[Array, "one particle"],
        row: Int[Array, ""],
        choose: Choose,
        prior: Any,
    ) -> tuple[CollapsedState, Float[Array, "one particle"]]:
        """Take one row out of its component, let `choose` choose its label, and put it there.

        state: the labels and sums of all particles.
        normaliser: A, the log-normaliser of all components with the row at its old label, (1, particle), nats.
        row: the number of the row.
        choose: (the state without the row, the row's scores) -> the row's new labels, (particle,).
        prior: λ, the natural parameters of a component without rows, (statistic,) or (particle, statistic).

        Returns: (the new state, A with the row at its new label).
        """
        left = self.remove_row(state, row, prior)
        joining = self.score_row(left, row, normaliser)
        label = choose(left, joining.scores)
        before, after = (
            jnp.take_along_axis(joining.scores.of_row, each[None], axis=0) for each in (state.labels[row], label)
        )
        return self.add_row(left, row, label, joining.natural), normaliser + after - before

    def _normaliser_with(
        self, normaliser: Float[Array, "one particle"], joining: Joining, label: Int[Array, " particle"]
    ) -> Float[Array, "one particle"]:
        """Return A, the log-normaliser of all components, after a row joined one of them, (1, particle), nats.

        normaliser: without the row. joining: the row's scores. label: the row's labels; −1 where it joins none.
        """
        joins = self._component_numbers == label
        return normaliser + jnp.where(joins, joining.scores.of_row, 0.0).sum(0, keepdims=True)


def _equal_in_all_columns(component: Component, increments: Any) -> list[bool]:
    """Return for each statistic of a component whether it is the same in all columns, however rows are allocated.

    So are counts of cells where no cell is missing. Such a statistic is stored and evaluated once: sweeps over ten
    columns take 44 % less time. At least one statistic keeps its columns.

    component: the kind of component. increments: statistics of each row in each variant, leaves (row, variant, …), on
        the host.
    """
    leaves = jax.tree.leaves(increments)
    if component.prior_family.event_ndim:  # columns are not independent
        return [False] * len(leaves)
    n_dims = leaves[0].shape[-1]
    apart = 1 + np.arange(n_dims) / n_dims  # a number for each column, where hyper-parameters may have one
    numbers = {name: apart if component.hyper_axes[name] else 1.0 for name in component.inferred}
    priors = map(np.asarray, jax.tree.leaves(prior_of(component.with_numbers(numbers), n_dims=n_dims)))
    equal = [
        prior.shape == (n_dims,) and bool((prior == prior[0]).all() and (leaf == leaf[..., :1]).all())
        for prior, leaf in zip(priors, leaves, strict=True)
    ]
    return [False, *equal[1:]] if all(equal) else equal


# ── the second path ─────────────────────────────────────────────────────────────────────────────────────────────────


def anchor_of_mixture(chain: CollapsedMixtureChain, key: Key[Array, ""], states: Sequence[CollapsedState]) -> Anchor:
    """Return the second path of a mixture, from a q around the labels of the best particle of the first
    (`anchor_labels`).

    states: final states of the first path, one per half of the annealing.
    """
    anchor, _ = anchor_labels(chain, key, states)
    return Anchor(chain.around_labelling(anchor), 0.0)


def anchor_labels(chain: Any, key: Key[Array, ""], states: Sequence[Any]) -> tuple[Float[np.ndarray, "row label"], Any]:
    """Find the best labels that a path ended with, and return a distribution q of labels around them.

    q(row's label) is how often the row had the label while the best particle was swept on (`settle_best_particles`),
    mixed with a little of the even distribution.

    chain: a chain of a mixture, whose states have `labels`.
    states: final states of the first path.

    Returns: (log q of each row's label in nats, (row, label), and −inf for labels that do not exist; the final state of
        the best particle).
    """
    settled = settle_best_particles(chain, key, states, _count_labels, LABELS_RUN)
    with jax.enable_x64(True):
        state = jax.tree.map(np.asarray, chain.take(settled.state, jnp.asarray([settled.best])))
    exists = np.asarray(chain.names.exist(chain.size))[:, 0]
    mixed = mix_with_even(settled.averages, exists)
    return np.log(np.where(exists, mixed, 1.0)) + np.where(exists, 0.0, -np.inf), state


def _count_labels(chain: Any, state: Any) -> Float[Array, "row label particle"]:
    """Return 1 for the label that each row has in each particle, and 0 for all others."""
    return (state.labels[:, None] == jnp.arange(chain.names.number)[:, None]).astype(float)
