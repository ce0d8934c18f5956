"""Annealed paths of mixtures of factor analysers: labels and scores of rows, with all parameters integrated out.

Row n has a label z_n (its component) and scores f_n (its coordinates on the component's factors). Let θ be the
parameters of the components, π their weights and h the hyper-parameters that have priors. At temperature t a share t of
every row counts:

    π_t(z, f, h) ∝ p(h) Π_n Normal(f_n; 0, I) ∫ p(π) Π_n π_{z_n} dπ ∫ p(θ | h) Π_n p(row n | z_n, f_n, θ)^t dθ.

All integrals are in closed form (`regressions`). At t = 0 this is the prior, at t = 1 the posterior. Nothing on the
path prefers a labelling, or one rotation of the factors. On the path along the rows (`row_by_row`) each row counts
whole, t = 1.

If the forward and the backward estimate are far apart, there is a second path. It begins at a distribution q around one
labelling: r_n[k] is its probability that row n has label k, and q(h) is a Gamma about each h. Then

    π_t ∝ q(h)^(1−t) p(h)^t Π_n Normal(f_n; 0, I) r_n[z_n]^(1−t)
          · ∫ p(π) Π_n π_{z_n}^t dπ ∫ p(θ | h) Π_n p(row n | z_n, f_n, θ)^t dθ.

The scores of the second path begin in their prior. So it prefers labels, but no rotation of the factors either.

To move one row, candidates for its component and scores are drawn and weighed (`regressions`).

A sweep of all rows at once draws weights and parameters given labels and scores. Then it draws labels and scores given
weights and parameters. Both draws are exact. The sweep rotates the factors of a component, which moving one row after
another hardly does.
"""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import (
    Course,
    LogHyper,
    count_values,
    courses_from_priors,
    draw_log_hyper,
    log_prior_of_hyper,
    log_ratio_of_hyper,
    move_log_hyper,
)
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.engine.estimate import check_size
from lvsearch.inference.evidence.variant_labels import RowLabelsChain
from lvsearch.inference.factor_analyzers import regressions
from lvsearch.inference.factor_analyzers.regressions import (
    Candidates,
    RegressionPrior,
    Regressions,
    RegressionSums,
    ScoredLabels,
    choose_candidate,
    draw_candidates,
)
from lvsearch.inference.mixtures.rows import coordinates_and_carriers
from lvsearch.models.components import FactorAnalyzerComponents
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture

BLOCKED = 3
"""The number of sweeps over all rows at once in one step of the chain.

Together they cost less than one sweep over the rows in turn.
"""
Temperature = Float[Array, ""] | float
"""The temperature t of an annealing path, or the share of every row that counts; between 0 and 1."""


class FactorAnalyzerChain(RowLabelsChain):
    """The annealing chain of a `FactorAnalyzerMixture` at one size: it draws labels and scores of rows.

    Arrays have room for `capacity` components. The first `size` of them exist.

    | field | meaning | shape |
    |---|---|---|
    | `component` | the components' model, with the priors of its hyper-parameters | |
    | `concentration` | a, the Dirichlet concentration of each component's weight | () |
    | `size` | K, the number of components | (), traced |
    | `coordinates` | y, the rows in the components' coordinates | (row, dim) |
    | `known` | 1 for rows with cells, 0 for rows whose cells are all missing | (row,) |
    | `carriers` | log of the Jacobian or base measure of each row, which no parameter changes, nats | (row,) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `courses` | distributions of each hyper-parameter h at both ends of the path, by name; () or (column, 1) | |
    | `anchor` | log probability of each label at the path's start, nats; None from the prior | (row, component) |
    """

    component: FactorAnalyzerComponents
    concentration: HyperparameterArray
    size: Int[Array | np.ndarray, ""]
    coordinates: Float[Array | np.ndarray, "row dim"]
    known: Float[Array | np.ndarray, " row"]
    carriers: Float[Array | np.ndarray, " row"]
    weight: Float[Array | np.ndarray, " row"]
    courses: dict[str, Course]
    anchor: Float[Array | np.ndarray, "row component"] | None
    capacity: int = eqx.field(static=True)

    @classmethod
    def from_data(cls, model: FactorAnalyzerMixture, data: Dataset, size: int, capacity: int) -> "FactorAnalyzerChain":
        """Return the chain of a model on a data set, on the annealing path from the prior.

        Rows are in the order of the data's batches, padding included.

        model: the mixture, with its priors.
        data: the rows.
        size: the number of components.
        capacity: the number of components that arrays have room for, at least `size`.

        Raises ValueError for rows without a density, rows with a weight other than 0 or 1, and a size above the
        capacity.
        """
        check_size(size, capacity)
        units, weight = padded_rows(data)
        (component := model.analyzers).check(units)
        with jax.enable_x64(True):
            coordinates, carriers = map(np.asarray, coordinates_and_carriers(component, units))
            known = np.asarray(np.all(units.observed, axis=1), np.float64)
        concentration = np.asarray(model.concentration_at(size), np.float64)
        courses = courses_from_priors(component.inferred)
        own = component, concentration, np.asarray(size), coordinates, known, carriers, weight, courses
        return cls(*own, None, capacity)

    @classmethod
    def of(cls, model: FactorAnalyzerMixture, data: Dataset, size: int, capacity: int) -> "FactorAnalyzerChain":
        """Return what `from_data` returns, under its former name. Deprecated: it warns."""
        warnings.warn(
            "FactorAnalyzerChain.of is called FactorAnalyzerChain.from_data now", DeprecationWarning, stacklevel=2
        )
        return cls.from_data(model, data, size, capacity)

    def init(self, key: Key[Array, ""], particles: int) -> ScoredLabels:
        """Draw `particles` states from the distribution at the annealing path's start (t = 0).

        On the path from the prior, weights are drawn first, then labels given the weights. On the path around one
        labelling, each label comes from its probabilities in `anchor`. Scores are standard normal on both.
        """
        key_labels, key_scores, key_hyper = jax.random.split(key, 4)[1:]  # the numbers of an earlier version
        labels = self.draw_labels(key_labels, particles)
        scores = jax.random.normal(
            key_scores, (self.elements, self.component.n_factors, particles), jnp.result_type(float)
        )
        return self.state_of(labels, scores, self.draw_hyperparameters(key_hyper, particles))

    def step(
        self, key: Key[Array, ""], state: ScoredLabels, temperature: Float[Array, ""], *, backward: bool
    ) -> ScoredLabels:
        """Return the state after `BLOCKED` sweeps over all rows at once and a move of the hyper-parameters.

        If `backward`, the hyper-parameters move first. The step leaves π_t, the distribution at the temperature,
        unchanged.
        """
        key_rows, key_hyper = jax.random.split(key)

        def once(index: Array, state: ScoredLabels) -> ScoredLabels:
            """Sweep once over all rows at once, with random numbers of its own for each `index`."""
            return self.sweep_at_once(
                jax.random.fold_in(key_rows, index), state, self._as_float(self.weight) > 0, temperature
            )

        if backward:
            state = self.move_hyperparameters(key_hyper, state, temperature, backward, temperature)
        state = jax.lax.fori_loop(0, BLOCKED, once, state)
        if backward:
            return state
        return self.move_hyperparameters(key_hyper, state, temperature, backward, temperature)

    def draw_hyperparameters(self, key: Key[Array, ""], particles: int) -> LogHyper:
        """Draw the log of every hyper-parameter from its distribution at the path's start, for each particle.

        Returns {name: (column, particle)}, with one column if all columns of the data share a value.
        """
        n_values = count_values(self.component.hyper_axes, self.coordinates.shape[1])
        return draw_log_hyper(key, self.courses, n_values, particles)

    def state_of(
        self, labels: Int[Array, "row particle"], scores: Float[Array, "row factor particle"], log_hyper: LogHyper
    ) -> ScoredLabels:
        """Return the state with the given labels, scores and log hyper-parameters; its counts and sums are computed
        anew.
        """
        labels, y = labels.astype(jnp.int32), self._as_float(self.coordinates)
        in_component = (labels[:, None] == jnp.arange(self.capacity, dtype=jnp.int32)[:, None]).astype(scores.dtype)
        g, own = regressions.prepend_one(scores), in_component * self._as_float(self.known)[:, None, None]
        sums = RegressionSums(
            own.sum(0),
            jnp.einsum("nkp,nip,njp->kijp", own, g, g),
            jnp.einsum("nkp,nd,nip->kdip", own, y, g),
            jnp.einsum("nkp,nd->kdp", own, y**2),
        )
        counts = (in_component * self._as_float(self.weight)[:, None, None]).sum(0)
        return ScoredLabels(labels, scores, log_hyper, counts, sums)

    def prior(self, log_hyper: LogHyper, particles: int) -> RegressionPrior:
        """Return the prior of the components' parameters given the hyper-parameters, for each of `particles` particles.

        log_hyper: log of the hyper-parameters that have priors. The others keep the model's value.
        """

        def number(name: str, columns: int) -> Array:
            """Return a hyper-parameter's value, (columns, particle): each particle's own if it has a prior, else the
            model's.
            """
            if name in log_hyper:
                return jnp.broadcast_to(jnp.exp(log_hyper[name]), (columns, particles))
            return jnp.broadcast_to(self._as_float(self.component.number(name)).reshape(-1, 1), (columns, particles))

        counts = number("pseudo_count", 1), number("loading_count", self.component.n_factors)
        rate = number("rate", self.coordinates.shape[1]) + self.component.least_rate
        return RegressionPrior(jnp.concatenate(counts), self._as_float(self.component.shape), rate)

    # ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def candidates(
        self,
        key: Key[Array, ""],
        state: ScoredLabels,
        row: Int[Array, ""],
        current: tuple[Int[Array, " particle"], Float[Array, "factor particle"]] | None = None,
    ) -> Candidates:
        """Draw candidate scores for a row in every component, with their log importance weights.

        It serves the annealing path from the prior. The row must be in no component of `state`. It counts whole (t =
        1).

        row: the index of the row.
        current: the row's own label and scores, which replace the first candidate of their component; None for a new
            row.
        """
        y, known = self._as_float(self.coordinates)[row], self._as_float(self.known)[row]
        found = regressions.posterior_regressions(state.sums, self.prior(state.log_hyper, state.labels.shape[1]))
        log_label = jnp.log(state.counts + self._concentration())
        return draw_candidates(key, found, (y, known), log_label, self.exists()[:, 0], current)

    def choose(
        self, candidates: Candidates, uniform: Float[Array, " particle"]
    ) -> tuple[Int[Array, " particle"], Float[Array, "factor particle"]]:
        """Choose a component and scores among a row's candidates, with probability in proportion to their weights.

        uniform: one uniform random number of each particle.

        Returns labels (particle,) and scores (factor, particle).
        """
        return choose_candidate(candidates, uniform, self.size)

    def add_row(
        self,
        state: ScoredLabels,
        row: Int[Array, ""],
        label: Int[Array, " particle"],
        scores: Float[Array, "factor particle"],
    ) -> ScoredLabels:
        """Return the state with a row added that was in no component.

        row: the index of the row.
        label: the component of the row in each particle, −1 for none.
        scores: the row's coordinates on the factors.
        """
        return self._change_component(state, row, label, scores, 1.0)._replace(
            labels=state.labels.at[row].set(label), scores=state.scores.at[row].set(scores)
        )

    def remove_row(self, state: ScoredLabels, row: Int[Array, ""]) -> ScoredLabels:
        """Return the state with the row taken out of its component's counts and sums. Label and scores stay stored."""
        return self._change_component(state, row, state.labels[row], state.scores[row], -1.0)

    def _change_component(
        self, state: ScoredLabels, row: Array, label: Array, scores: Array, sign: float
    ) -> ScoredLabels:
        """Return the state with a row added to the counts and sums of a component (sign 1), or taken out (sign −1)."""
        here = (jnp.arange(self.capacity, dtype=jnp.int32)[:, None] == label).astype(scores.dtype) * sign
        more = regressions.row_sums(
            here, scores, self._as_float(self.coordinates)[row], self._as_float(self.known)[row]
        )
        return state._replace(counts=state.counts + here, sums=jax.tree.map(jnp.add, state.sums, more))

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def sweep_in_turn(
        self,
        key: Key[Array, ""],
        state: ScoredLabels,
        order: Int[Array, " row"],
        n_rows: Int[Array, ""],
        backward: bool,
    ) -> ScoredLabels:
        """Redraw label and scores of the first `n_rows` rows of `order` one after another; the last one first if
        `backward`.

        Rows count whole (t = 1).

        order: indices of rows, (row,).
        n_rows: the number of rows redrawn, ().
        """

        def one(position: Array, state: ScoredLabels) -> ScoredLabels:
            """Redraw label and scores of the row at one position in the order."""
            row = order[n_rows - 1 - position if backward else position]
            key_row, key_choice = jax.random.split(jax.random.fold_in(key, position))
            without_row, current = self.remove_row(state, row), (state.labels[row], state.scores[row])
            found = self.candidates(key_row, without_row, row, current)
            uniform = jax.random.uniform(key_choice, found.log_weight.shape[2:], found.log_weight.dtype)
            return self.add_row(without_row, row, *self.choose(found, uniform))

        # summed anew, so that rounding does not add up over sweeps
        return jax.lax.fori_loop(0, n_rows, one, self.state_of(state.labels, state.scores, state.log_hyper))

    def move_hyperparameters(
        self,
        key: Key[Array, ""],
        state: ScoredLabels,
        temperature: Temperature,
        backward: bool,
        hyper_temperature: Temperature,
    ) -> ScoredLabels:
        """Move each hyper-parameter given labels and scores, by slice sampling; in the reverse order if `backward`.

        temperature: t, the share of every row that counts.
        hyper_temperature: t of the hyper-parameters' own distribution, from 0 (q) to 1 (their prior).
        """
        sums, particles = regressions.scale_sums(state.sums, temperature), state.labels.shape[1]

        def log_rows(log_hyper: LogHyper) -> Array:
            """Return the log-probability of the rows given labels, scores and hyper-parameters, (dim, particle)."""
            return regressions.log_gains(sums, self.prior(log_hyper, particles))

        t = self._as_float(hyper_temperature)
        log_hyper = move_log_hyper(key, self.courses, state.log_hyper, log_rows, t, backward=backward)
        return state._replace(log_hyper=log_hyper)

    def sweep_at_once(
        self, key: Key[Array, ""], state: ScoredLabels, came: Bool[Array, " row"], temperature: Temperature
    ) -> ScoredLabels:
        """Redraw label and scores of all rows that are present, given freshly drawn weights and parameters.

        Weights and parameters are drawn given the old labels and scores. Then labels and scores are drawn given them.

        came: which rows are present, (row,). The others keep their labels and scores.
        temperature: t, the share of every row that counts.
        """
        key_parameters, key_labels, key_scores = jax.random.split(key, 3)
        prior = self.prior(state.log_hyper, state.labels.shape[1])
        found = regressions.posterior_regressions(regressions.scale_sums(state.sums, temperature), prior)
        log_weights, weight, log_precision = self._parameters(key_parameters, state, found, temperature)
        share = temperature * self._as_float(self.known)
        # labels given parameters, scores integrated out; then scores given labels
        row_laws = regressions.rows_given_parameters(weight, log_precision, self._as_float(self.coordinates), share)
        log_each = log_weights + row_laws.log_row
        if self.anchor is not None:
            log_each = log_each + (1 - temperature) * self.log_anchor()[..., None]
        log_each = jnp.where(self.exists(), log_each, -jnp.inf)
        labels = jax.random.categorical(key_labels, log_each, axis=1).astype(jnp.int32)
        noise = jax.random.normal(key_scores, state.scores.shape, state.scores.dtype)

        def at_label(leaf: Array) -> Array:
            """Return a leaf's entries (row, component, …, particle) at each row's new label: (row, …, particle)."""
            index = labels.reshape(len(labels), 1, *[1] * (leaf.ndim - 3), labels.shape[1])
            return jnp.take_along_axis(leaf, index, axis=1)[:, 0]

        scores = regressions.solve_lower(at_label(row_laws.root), at_label(row_laws.along) + noise, transposed=True)
        labels = jnp.where(came[:, None], labels, state.labels)
        return self.state_of(labels, jnp.where(came[:, None, None], scores, state.scores), state.log_hyper)

    def _parameters(
        self, key: Array, state: ScoredLabels, found: Regressions, temperature: Temperature
    ) -> tuple[Array, Array, Array]:
        """Draw weights and parameters of all components given labels and scores.

        found: the posterior of the components' parameters.
        temperature: t, the share of every row that counts.

        Returns three arrays. The first is log weights, times the power with which labels count, (component, particle).
        The second is means and loadings, (component, dim, coefficient, particle). The third is log noise precisions,
        (component, dim, particle).
        """
        key_weights, key_precision, key_weight = jax.random.split(key, 3)
        part = 1.0 if self.anchor is None else temperature  # from the prior, labels count all the way
        log_weights = log_gamma_draws(key_weights, part * state.counts + self._concentration())
        return part * log_weights, *regressions.draw_parameters(key_precision, key_weight, found)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_hyper_ratio(self, log_hyper: LogHyper) -> Float[Array, "*particle"]:
        """Return log p(h) − log q(h) of the hyper-parameters h of each particle, nats; 0 if none has a prior.

        log_hyper: log of each hyper-parameter by name, (column, particle).
        """
        return log_ratio_of_hyper(self.courses, log_hyper)

    def log_gain(
        self, state: ScoredLabels, before: Float[Array, ""], after: Float[Array, ""]
    ) -> Float[Array, " particle"]:
        """Return by how many nats the annealing path's log density at each particle's state grows between two
        temperatures.

        It is log π_after − log π_before of the unnormalised densities. Temperature t is the share of every row that
        counts, so (after − before) × the rows' log base measure (`carriers`) is included.

        before, after: the two temperatures.
        """
        prior = self.prior(state.log_hyper, state.labels.shape[1])

        def height(share: Array) -> Array:
            """Return the part of the path's log density that rows and labels make, at temperature `share`,
            (particle,), nats.
            """
            of_rows = regressions.log_gains(regressions.scale_sums(state.sums, share), prior).sum(0)
            return of_rows if self.anchor is None else of_rows + self.log_components(state.counts, share)

        gain = height(after) - height(before) + (after - before) * self._as_float(self.carriers).sum()
        if self.anchor is None:
            return gain
        of_anchor = self._as_float(self.weight) @ jnp.take_along_axis(self.log_anchor(), state.labels, axis=1)
        return gain + (after - before) * (self.log_hyper_ratio(state.log_hyper) - of_anchor)

    def log_ratio(self, state: ScoredLabels) -> Float[Array, " particle"]:
        """Return the log density of each particle's state at the path's end minus that at its start, unnormalised,
        nats.
        """
        return self.log_gain(state, jnp.zeros(()), jnp.ones(()))

    def log_density(self, state: ScoredLabels) -> Float[Array, " particle"]:
        """Return log p(rows, labels, scores, hyper-parameters) of each particle, nats.

        It is a density of the scores and of the hyper-parameters, not of their logs.
        """
        of_rows = regressions.log_gains(state.sums, self.prior(state.log_hyper, state.labels.shape[1])).sum(0)
        of_scores = self._as_float(self.weight) @ (-0.5 * (state.scores**2 + LOG_2PI).sum(1))
        of_hyper = log_prior_of_hyper(self.courses, state.log_hyper)
        of_labels = self.log_components(state.counts) + self._as_float(self.carriers).sum()
        return of_rows + of_labels + of_scores + of_hyper

    def relabel(self, state: ScoredLabels, order: Int[Array, "particle component"]) -> ScoredLabels:
        """Return the state in which component l of each particle is called order[l].

        It is unchanged on the annealing path from the prior.
        """
        labels = self.relabelled(state.labels, order)
        return state if labels is None else self.state_of(labels, state.scores, state.log_hyper)
