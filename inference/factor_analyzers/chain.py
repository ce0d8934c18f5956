"""Mixtures of factor analysers at one size: labels and scores of the rows, all parameters integrated out.

With θ the parameters, π the weights and h the hyper-parameters that have priors, at temperature t a share t of every
row has come:

    π_t(z, f, h) ∝ p(h) Π_n Normal(f_n; 0, I) ∫ p(π) Π_n π_{z_n} dπ ∫ p(θ | h) Π_n p(row n | z_n, f_n, θ)^t dθ.

All is in closed form (`regressions`); at 0 it is the prior, at 1 the posterior. Nothing on the path knows a labelling,
or one rotation of the factors. Along the rows (`row_by_row`) each comes whole, t = 1.

Where the two directions end far apart there is a second path, about labels r of the rows and a Gamma about each h:

    π_t ∝ q(h)^(1−t) p(h)^t Π_n Normal(f_n; 0, I) r_n[z_n]^(1−t)
          · ∫ p(π) Π_n π_{z_n}^t dπ ∫ p(θ | h) Π_n p(row n | z_n, f_n, θ)^t dθ.

Its scores begin in their prior, so that it knows labels, but no rotation of the factors either.

A row's component and scores together have no closed form given all others: with the parameters integrated out, the row
is Student's t about a line in f. So J candidates f_kj are drawn in each component from a distribution q_k near that of
the scores there, and each weighs

    ω_kj = (what the label adds) Normal(f_kj; 0, I) (what the row adds in k with these scores) / q_k(f_kj).

Their average over j, summed over k, is unbiased for what the other rows say of the row, whatever q_k is; and choosing
one in proportion, with what the row has now in the place of one of its component's candidates, leaves π_t as it is and
is its own time reversal (Tjelmeland 2004; Andrieu, Doucet & Holenstein 2010, §4: iterated importance sampling).

A sweep of all rows at once draws weights and parameters given labels and scores, then labels and scores given these,
both exactly; that turns the factors of a component as one by one they hardly turn.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import Course, slice_moved
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.engine.estimate import check_size
from lvsearch.inference.evidence.variant_labels import VariantLabels
from lvsearch.inference.factor_analyzers import regressions as of
from lvsearch.inference.factor_analyzers.regressions import RegressionPrior, Regressions, RegressionSums
from lvsearch.inference.factor_analyzers.scored_labels import Candidates, LogHyper, ScoredLabels
from lvsearch.inference.mixtures.rows import seen_by
from lvsearch.models.components import FactorAnalyzerComponents
from lvsearch.models.contract import HyperparameterArray, first
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture

CANDIDATES = 2
"""J."""
FROM_PRIOR = 0.1
"""Probability with which a candidate is drawn from the scores' prior, so that no weight is without bound."""
BLOCKED = 3
"""Sweeps over all rows at once in a step: together they cost less than one over the rows in turn."""
Temperature = Float[Array, ""] | float


class FactorAnalyzerChain(eqx.Module):
    """A `Curved` chain of a `FactorAnalyzerMixture`. `of` makes one; the first `size` of `capacity` components exist.

    | field | meaning | shape |
    |---|---|---|
    | `component` | with the priors of its hyper-parameters | |
    | `concentration` | a | () |
    | `size` | K | (), traced |
    | `coordinates` | y | (row, dim) |
    | `known` | 1 for rows with cells, else 0 | (row,) |
    | `carriers` | log h(x_n), nats | (row,) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `courses` | from where to where each h goes, by name; leaves () or (column, 1) | |
    | `anchor` | log r, nats; None on the path from the prior | (row, component) |
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
    def of(cls, model: FactorAnalyzerMixture, data: Dataset, size: int, capacity: int) -> "FactorAnalyzerChain":
        """Rows are in the order of the batches, their padding included. Raises ValueError for rows without a density,
        rows weighted otherwise than 0 or 1, and a size that does not fit in the capacity."""
        check_size(size, capacity)
        units, weight = padded_rows(data)
        (component := model.analyzers).check(units)
        with jax.enable_x64(True):
            coordinates, carriers = map(np.asarray, seen_by(component, units))
            known = np.asarray(np.all(units.observed, axis=1), np.float64)
        concentration = np.asarray(model.concentration_at(size), np.float64)
        courses = {name: Course(prior, prior) for name, prior in component.inferred.items()}
        own = component, concentration, np.asarray(size), coordinates, known, carriers, weight, courses
        return cls(*own, None, capacity)

    @property
    def elements(self) -> int:
        return len(self.weight)

    @property
    def lanes(self) -> int:
        return 32

    @property
    def directed(self) -> bool:
        return True

    @property
    def names(self) -> VariantLabels:
        """What labels say."""
        return VariantLabels(self.capacity, 1)

    def init(self, key: Key[Array, ""], particles: int) -> ScoredLabels:
        """From q. Labels of the prior: weights are drawn, then labels given the weights."""
        key_weights, key_labels, key_scores, key_hyper = jax.random.split(key, 4)
        shape = len(self.weight), particles
        if self.anchor is None:
            a = jnp.broadcast_to(self._number(self.concentration), (self.capacity, particles))
            log_weights = jnp.where(self.exists()[:, None], log_gamma_draws(key_weights, a), -jnp.inf)
            labels = jax.random.categorical(key_labels, log_weights, axis=0, shape=shape)
        else:
            labels = jax.random.categorical(key_labels, self._number(self.anchor)[:, None], shape=shape)
        scores = jax.random.normal(key_scores, (shape[0], self.component.n_factors, particles), jnp.result_type(float))
        return self.state_of(labels.astype(jnp.int32), scores, self.drawn_hyper(key_hyper, particles))

    def step(
        self, key: Key[Array, ""], state: ScoredLabels, temperature: Float[Array, ""], *, backward: bool
    ) -> ScoredLabels:
        """All rows at once, a few times, then the hyper-parameters; in the reverse order where `backward`."""
        key_rows, key_hyper = jax.random.split(key)

        def once(index: Array, state: ScoredLabels) -> ScoredLabels:
            return self.blocked(jax.random.fold_in(key_rows, index), state, self._number(self.weight) > 0, temperature)

        if backward:
            state = self.hyper_moved(key_hyper, state, temperature, backward)
        state = jax.lax.fori_loop(0, BLOCKED, once, state)
        return state if backward else self.hyper_moved(key_hyper, state, temperature, backward)

    def drawn_hyper(self, key: Key[Array, ""], particles: int) -> LogHyper:
        """log h from q."""
        log_hyper = {}
        for number, (name, course) in enumerate(self.courses.items()):
            shape, rate = map(self._number, course.start)
            columns = (self.coordinates.shape[1] if self.component.hyper_axes[name] else 1, particles)
            log_gamma = log_gamma_draws(jax.random.fold_in(key, number), jnp.broadcast_to(shape, columns))
            log_hyper[name] = log_gamma - jnp.log(rate)
        return log_hyper

    def state_of(
        self, labels: Int[Array, "row particle"], scores: Float[Array, "row factor particle"], log_hyper: LogHyper
    ) -> ScoredLabels:
        """The state of these, its sums taken anew."""
        labels, y = labels.astype(jnp.int32), self._number(self.coordinates)
        chosen = (labels[:, None] == jnp.arange(self.capacity, dtype=jnp.int32)[:, None]).astype(scores.dtype)
        g, own = of.with_one(scores), chosen * self._number(self.known)[:, None, None]
        sums = RegressionSums(
            own.sum(0),
            jnp.einsum("nkp,nip,njp->kijp", own, g, g),
            jnp.einsum("nkp,nd,nip->kdip", own, y, g),
            jnp.einsum("nkp,nd->kdp", own, y**2),
        )
        counts = (chosen * self._number(self.weight)[:, None, None]).sum(0)
        return ScoredLabels(labels, scores, log_hyper, counts, sums)

    def prior(self, log_hyper: LogHyper, particles: int) -> RegressionPrior:
        """That of the components, given h."""

        def number(name: str, columns: int) -> Array:
            if name in log_hyper:
                return jnp.broadcast_to(jnp.exp(log_hyper[name]), (columns, particles))
            return jnp.broadcast_to(self._number(self.component.number(name)).reshape(-1, 1), (columns, particles))

        counts = number("pseudo_count", 1), number("loading_count", self.component.n_factors)
        rate = number("rate", self.coordinates.shape[1])
        return RegressionPrior(jnp.concatenate(counts), self._number(self.component.shape), rate)

    # ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def candidates(
        self,
        key: Key[Array, ""],
        state: ScoredLabels,
        row: Int[Array, ""],
        current: tuple[Int[Array, " particle"], Float[Array, "factor particle"]] | None = None,
    ) -> Candidates:
        """For a row that is in no component and comes whole, on the path from the prior. current: what the row has, a
        label and scores, in the place of the first candidate of its component."""
        particles = state.labels.shape[1]
        y, known = self._number(self.coordinates)[row], self._number(self.known)[row]
        found = of.regressions(state.sums, self.prior(state.log_hyper, particles))
        near = of.proposal(found, y, known)
        key_noise, key_prior = jax.random.split(key)
        shape = self.capacity, CANDIDATES, self.component.n_factors, particles
        noise = jax.random.normal(key_noise, shape, y.dtype)
        vague = jax.random.uniform(key_prior, (*shape[:2], 1, particles), y.dtype) < FROM_PRIOR
        scores = jnp.where(vague, noise, near.at(noise))
        if current is not None:
            here = jnp.arange(self.capacity)[:, None, None, None] == current[0]
            scores = jnp.where(here & (jnp.arange(CANDIDATES) == 0)[:, None, None], current[1], scores)
        log_prior = -0.5 * (scores**2).sum(2)
        log_q = jnp.logaddexp(jnp.log1p(-FROM_PRIOR) + near.height(scores), jnp.log(FROM_PRIOR) + log_prior)
        of_label = jnp.log(state.counts + self._number(self.concentration))[:, None]
        weight = of_label + log_prior - log_q + of.log_row(found, scores, y, known)
        return Candidates(scores, jnp.where(self.exists()[:, None, None], weight, -jnp.inf))

    def chosen(
        self, candidates: Candidates, uniform: Float[Array, " particle"]
    ) -> tuple[Int[Array, " particle"], Float[Array, "factor particle"]]:
        """A component and scores in proportion to ω."""
        weight = candidates.log_weight.reshape(-1, len(uniform))
        cumulative = jnp.cumsum(jnp.exp(weight - weight.max(0)), axis=0)
        place = (cumulative < uniform * cumulative[-1]).sum(0, dtype=jnp.int32)
        place = jnp.minimum(place, jnp.asarray(self.size * CANDIDATES, jnp.int32) - 1)
        flat = candidates.scores.reshape(-1, *candidates.scores.shape[2:])
        return place // CANDIDATES, jnp.take_along_axis(flat, place[None, None], axis=0)[0]

    def with_row(
        self,
        state: ScoredLabels,
        row: Int[Array, ""],
        label: Int[Array, " particle"],
        scores: Float[Array, "factor particle"],
    ) -> ScoredLabels:
        """A row that is in no component in these, −1 for none."""
        return self._changed(state, row, label, scores, 1.0)._replace(
            labels=state.labels.at[row].set(label), scores=state.scores.at[row].set(scores)
        )

    def without(self, state: ScoredLabels, row: Int[Array, ""]) -> ScoredLabels:
        """The row in no component; its label and scores are still there."""
        return self._changed(state, row, state.labels[row], state.scores[row], -1.0)

    def _changed(self, state: ScoredLabels, row: Array, label: Array, scores: Array, sign: float) -> ScoredLabels:
        here = (jnp.arange(self.capacity, dtype=jnp.int32)[:, None] == label).astype(scores.dtype) * sign
        more = of.row_sums(here, scores, self._number(self.coordinates)[row], self._number(self.known)[row])
        return state._replace(counts=state.counts + here, sums=jax.tree.map(jnp.add, state.sums, more))

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def swept(
        self, key: Key[Array, ""], state: ScoredLabels, order: Int[Array, " row"], n_rows: Array, backward: bool
    ) -> ScoredLabels:
        """`n_rows`, (), of the order one after another, the last one first where `backward`; rows are whole."""

        def one(place: Array, state: ScoredLabels) -> ScoredLabels:
            row = order[n_rows - 1 - place if backward else place]
            key_row, key_choice = jax.random.split(jax.random.fold_in(key, place))
            left, current = self.without(state, row), (state.labels[row], state.scores[row])
            found = self.candidates(key_row, left, row, current)
            uniform = jax.random.uniform(key_choice, found.log_weight.shape[2:], found.log_weight.dtype)
            return self.with_row(left, row, *self.chosen(found, uniform))

        # summed anew, so that rounding does not add up over sweeps
        return jax.lax.fori_loop(0, n_rows, one, self.state_of(state.labels, state.scores, state.log_hyper))

    def hyper_moved(
        self, key: Key[Array, ""], state: ScoredLabels, temperature: Temperature, backward: bool
    ) -> ScoredLabels:
        """Each hyper-parameter given labels and scores, by a slice; in the reverse order where `backward`."""
        log_hyper, particles = dict(state.log_hyper), state.labels.shape[1]
        sums, names = of.in_part(state.sums, temperature), list(enumerate(self.courses))
        for number, name in reversed(names) if backward else names:
            shape, rate = self.courses[name].at(self._number(temperature))

            def density(log_value: Array, name: str = name, shape: Array = shape, rate: Array = rate) -> Array:
                of_rows = of.log_gains(sums, self.prior({**log_hyper, name: log_value}, particles))
                of_h = shape * log_value - rate * jnp.exp(log_value)
                return of_h + (of_rows if len(of_h) > 1 else of_rows.sum(0, keepdims=True))

            log_hyper[name] = slice_moved(jax.random.fold_in(key, number), log_hyper[name], density)
        return state._replace(log_hyper=log_hyper)

    def blocked(
        self, key: Key[Array, ""], state: ScoredLabels, came: Bool[Array, " row"], temperature: Temperature
    ) -> ScoredLabels:
        """Weights and parameters given labels and scores of the rows that came; then these anew, given the others."""
        key_parameters, key_labels, key_scores = jax.random.split(key, 3)
        found = of.regressions(of.in_part(state.sums, temperature), self.prior(state.log_hyper, state.labels.shape[1]))
        log_weights, weight, log_precision = self._parameters(key_parameters, state, found, temperature)
        share = temperature * self._number(self.known)
        given = of.given_parameters(weight, log_precision, self._number(self.coordinates), share)
        log_each = log_weights + given.log_row
        if self.anchor is not None:
            log_each = log_each + (1 - temperature) * self._log_r()[..., None]
        log_each = jnp.where(self.exists()[:, None], log_each, -jnp.inf)
        labels = jax.random.categorical(key_labels, log_each, axis=1).astype(jnp.int32)
        noise = jax.random.normal(key_scores, state.scores.shape, state.scores.dtype)

        def at_label(leaf: Array) -> Array:
            index = labels.reshape(len(labels), 1, *[1] * (leaf.ndim - 3), labels.shape[1])
            return jnp.take_along_axis(leaf, index, axis=1)[:, 0]

        scores = of.solved_lower(at_label(given.root), at_label(given.along) + noise, transposed=True)
        labels = jnp.where(came[:, None], labels, state.labels)
        return self.state_of(labels, jnp.where(came[:, None, None], scores, state.scores), state.log_hyper)

    def _parameters(
        self, key: Array, state: ScoredLabels, found: Regressions, temperature: Temperature
    ) -> tuple[Array, Array, Array]:
        """log of the weights to the power with which labels count, but for a constant, (component, particle); w
        (component, dim, coefficient, particle) and log τ (component, dim, particle), given labels and scores."""
        key_weights, key_precision, key_weight = jax.random.split(key, 3)
        part = 1.0 if self.anchor is None else temperature  # from the prior, labels count all the way
        log_weights = log_gamma_draws(key_weights, part * state.counts + self._number(self.concentration))
        shape = jnp.broadcast_to(found.shape[:, None], found.rate.shape)
        log_precision = log_gamma_draws(key_precision, shape) - jnp.log(found.rate)
        root = of.lower_root(found.covariance)[:, None]
        noise = jax.random.normal(key_weight, found.centre.shape, found.centre.dtype)
        offset = (root * noise[:, :, None]).sum(3) * jnp.exp(-0.5 * log_precision)[:, :, None]
        return part * log_weights, found.centre + offset, log_precision

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_gain(
        self, state: ScoredLabels, before: Float[Array, ""], after: Float[Array, ""]
    ) -> Float[Array, " particle"]:
        """log π_after − log π_before, nats, with log h(x_n) of what came between."""
        prior = self.prior(state.log_hyper, state.labels.shape[1])

        def height(share: Array) -> Array:
            of_rows = of.log_gains(of.in_part(state.sums, share), prior).sum(0)
            return of_rows if self.anchor is None else of_rows + self._log_labels(state, share)

        gain = height(after) - height(before) + (after - before) * self._number(self.carriers).sum()
        if self.anchor is None:
            return gain
        of_hyper = [course.log_ratio(state.log_hyper[name]).sum(0) for name, course in self.courses.items()]
        of_anchor = self._number(self.weight) @ jnp.take_along_axis(self._log_r(), state.labels, axis=1)
        return gain + (after - before) * (sum(of_hyper, jnp.zeros(())) - of_anchor)

    def log_ratio(self, state: ScoredLabels) -> Float[Array, " particle"]:
        """The gain from 0 to 1, nats."""
        return self.log_gain(state, jnp.zeros(()), jnp.ones(()))

    def log_density(self, state: ScoredLabels) -> Float[Array, " particle"]:
        """log p(rows, labels, scores, h), nats, a density of scores and h."""
        of_rows = of.log_gains(state.sums, self.prior(state.log_hyper, state.labels.shape[1])).sum(0)
        of_scores = self._number(self.weight) @ (-0.5 * (state.scores**2 + LOG_2PI).sum(1))
        of_hyper = [course.log_prior(state.log_hyper[name]).sum(0) for name, course in self.courses.items()]
        of_labels = self._log_labels(state, 1.0) + self._number(self.carriers).sum()
        return of_rows + of_labels + of_scores + sum(of_hyper, jnp.zeros(()))

    def _log_labels(self, state: ScoredLabels, part: Temperature) -> Float[Array, " particle"]:
        """log ∫ p(π) Π_n π_{z_n}^part dπ, nats."""
        a, total = self._number(self.concentration), self.total_concentration()
        each = log_gamma_positive(part * state.counts + a) - log_gamma_positive(a)
        of_all = log_gamma_positive(total) - log_gamma_positive(total + part * self._number(self.weight).sum())
        return jnp.where(self.exists()[:, None], each, 0.0).sum(0) + of_all

    def label_scores(self, state: ScoredLabels) -> Float[Array, "particle component component"] | None:
        """S[k, l] = Σ log r_n[k] over the rows of component l, nats; None on the path from the prior."""
        if self.anchor is None:
            return None
        exists, weight = self.exists(), self._number(self.weight)
        members = (state.labels[:, :, None] == jnp.arange(self.capacity)) * weight[:, None, None]
        scores = jnp.einsum("nk,npl->pkl", self._log_r(), members)
        return jnp.where(exists[:, None] & exists, scores, jnp.where(jnp.eye(self.capacity, dtype=bool), 0.0, -jnp.inf))

    def relabel(self, state: ScoredLabels, order: Int[Array, "particle component"]) -> ScoredLabels:
        """Each state with its component l called order[l]; on the path from the prior no labelling is better."""
        if self.anchor is None:
            return state
        return self.state_of(jnp.take_along_axis(order.T, state.labels, axis=0), state.scores, state.log_hyper)

    def take(self, state: ScoredLabels, particles: Int[Array, " chosen"]) -> ScoredLabels:
        """The named particles, in that order."""
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    def beside(self, states: Sequence[ScoredLabels]) -> ScoredLabels:
        """The particles of several states, one after another."""
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *states)

    def total_concentration(self) -> Float[Array, ""]:
        """Ka."""
        return jnp.asarray(self.size) * self._number(self.concentration)

    def exists(self) -> Bool[Array, " component"]:
        """Which places hold components."""
        return first(jnp.asarray(self.size), self.capacity)

    def _log_r(self) -> Array:
        """log r, 0 for components that do not exist."""
        return jnp.where(self.exists(), self._number(self.anchor), 0.0)

    def _number(self, leaf: Any) -> Array:
        """A leaf in the floating type of the session."""
        return jnp.asarray(leaf, jnp.result_type(float))
