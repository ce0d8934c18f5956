"""Mixtures of factor analysers at one size: labels and scores of the rows, all parameters integrated out.

    π_t(z, f, h) ∝ p(h) p(z) Π_n Normal(f_n; 0, I) p(rows | z, f, h)^t,

h the hyper-parameters that have priors, p(z) the Dirichlet–multinomial, p(rows | z, f, h) in closed form
(`regressions`). q is the prior: nothing on the path knows a labelling, or one rotation of the factors.

A row's component and scores together have no closed form given all others: with the parameters integrated out, the row
is Student's t about a line in f. So J candidates f_kj are drawn in each component from a distribution q_k near that of
the scores there, and each weighs

    ω_kj = (n_k + a) Normal(f_kj; 0, I) p(row | f_kj, k)^t / q_k(f_kj).

Their average over j, summed over k, is unbiased for what the other rows say of the row, whatever q_k is; and choosing
one in proportion, with what the row has now in the place of one of its component's candidates, leaves π_t as it is and
is its own time reversal (Tjelmeland 2004; Andrieu, Doucet & Holenstein 2010, §4: iterated importance sampling).

A sweep of all rows at once draws the parameters given labels and scores, then labels and scores given the parameters,
both exactly; that turns the factors of a component as one by one they hardly turn.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import Course, slice_moved
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.evidence.rows import check_size, padded_rows
from lvsearch.inference.factor_analyzers import regressions as of
from lvsearch.inference.factor_analyzers.regressions import RegressionPrior, Regressions, RegressionSums
from lvsearch.inference.mixtures.rows import seen_by
from lvsearch.models.components import FactorAnalyzerComponents
from lvsearch.models.contract import HyperparameterArray, first
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture

CANDIDATES = 2
"""J."""
FROM_PRIOR = 0.1
"""Probability with which a candidate is drawn from the scores' prior, so that no weight is without bound."""
LogHyper = dict[str, Float[Array, "column particle"]]
"""log h by name; one column where all of them share a value."""


class ScoredLabels(NamedTuple):
    """Particles side by side.

    | field | meaning | shape |
    |---|---|---|
    | `labels` | the component of each row, −1 for a row in none | (row, particle) |
    | `scores` | f | (row, factor, particle) |
    | `log_hyper` | log h by name | (column, particle) |
    | `counts` | rows of each component | (component, particle) |
    | `sums` | what its rows say of a component | |
    """

    labels: Int[Array, "row particle"]
    scores: Float[Array, "row factor particle"]
    log_hyper: LogHyper
    counts: Float[Array, "component particle"]
    sums: RegressionSums


class Candidates(NamedTuple):
    """What a row might be: scores, and log ω of each, nats; −∞ in components that do not exist."""

    scores: Float[Array, "component candidate factor particle"]
    log_weight: Float[Array, "component candidate particle"]


class FactorAnalyzerChain(eqx.Module):
    """A `Chain` of a `FactorAnalyzerMixture`. `of` makes one; the first `size` of `capacity` components exist.

    | field | meaning | shape |
    |---|---|---|
    | `component` | with the priors of its hyper-parameters | |
    | `concentration` | a | () |
    | `size` | K | (), traced |
    | `coordinates` | y | (row, dim) |
    | `known` | 1 for rows with cells, else 0 | (row,) |
    | `carriers` | log h(x_n), nats | (row,) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `courses` | the prior of each h, leaves () | |
    """

    component: FactorAnalyzerComponents
    concentration: HyperparameterArray
    size: Int[Array | np.ndarray, ""]
    coordinates: Float[Array | np.ndarray, "row dim"]
    known: Float[Array | np.ndarray, " row"]
    carriers: Float[Array | np.ndarray, " row"]
    weight: Float[Array | np.ndarray, " row"]
    courses: dict[str, Course]
    capacity: int = eqx.field(static=True)

    @classmethod
    def of(cls, model: FactorAnalyzerMixture, data: Dataset, size: int, capacity: int) -> "FactorAnalyzerChain":
        """Rows are in the order of the batches, their padding included. Raises ValueError for rows without a density,
        rows weighted otherwise than 0 or 1, and a size that does not fit in the capacity."""
        check_size(size, capacity)
        units, weight = padded_rows(data)
        component = model.analyzers
        component.check(units)
        with jax.enable_x64(True):
            coordinates, carriers = map(np.asarray, seen_by(component, units))
            known = np.asarray(units.observed).all(1).astype(np.float64)
        concentration = np.asarray(model.concentration_at(size), np.float64)
        courses = {name: Course(prior, prior) for name, prior in component.inferred.items()}
        own = component, concentration, np.asarray(size), coordinates, known, carriers, weight, courses
        return cls(*own, capacity)

    @property
    def elements(self) -> int:
        return len(self.weight)

    @property
    def lanes(self) -> int:
        return 32

    @property
    def directed(self) -> bool:
        return True

    def init(self, key: Key[Array, ""], particles: int) -> ScoredLabels:
        """From the prior: weights are drawn, then labels given the weights."""
        key_weights, key_labels, key_scores, key_hyper = jax.random.split(key, 4)
        a = jnp.broadcast_to(self._number(self.concentration), (self.capacity, particles))
        log_weights = jnp.where(self.exists()[:, None], log_gamma_draws(key_weights, a), -jnp.inf)
        shape = len(self.weight), particles
        labels = jax.random.categorical(key_labels, log_weights, axis=0, shape=shape).astype(jnp.int32)
        scores = jax.random.normal(key_scores, (shape[0], self.component.n_factors, particles), a.dtype)
        return self.state_of(labels, scores, self.drawn_hyper(key_hyper, particles))

    def step(
        self, key: Key[Array, ""], state: ScoredLabels, temperature: Float[Array, ""], *, backward: bool
    ) -> ScoredLabels:
        """Every row in turn, then the hyper-parameters; in the reverse order where `backward`."""
        key_rows, key_hyper = jax.random.split(key)
        order = jnp.argsort(self._number(self.weight) == 0, stable=True)
        n_rows = (self._number(self.weight) > 0).sum()
        if backward:
            state = self.hyper_moved(key_hyper, state, temperature, backward)
        state = self.swept(key_rows, state, order, n_rows, temperature, backward)
        return state if backward else self.hyper_moved(key_hyper, state, temperature, backward)

    def drawn_hyper(self, key: Key[Array, ""], particles: int) -> LogHyper:
        """log h from the prior."""
        log_hyper = {}
        for number, (name, course) in enumerate(self.courses.items()):
            shape, rate = map(self._number, course.prior)
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
            value = jnp.exp(log_hyper[name]) if name in log_hyper else self._given(name)
            return jnp.broadcast_to(value, (columns, particles))

        counts = number("pseudo_count", 1), number("loading_count", self.component.n_factors)
        rate = number("rate", self.coordinates.shape[1])
        return RegressionPrior(jnp.concatenate(counts), self._number(self.component.shape), rate)

    # ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def candidates(
        self,
        key: Key[Array, ""],
        state: ScoredLabels,
        row: Int[Array, ""],
        temperature: Float[Array, ""] | float,
        current: tuple[Int[Array, " particle"], Float[Array, "factor particle"]] | None = None,
    ) -> Candidates:
        """For a row that is in no component. current: what the row has, a label and scores, in the place of the first
        candidate of its component."""
        particles = state.labels.shape[1]
        y, share = self._number(self.coordinates)[row], temperature * self._number(self.known)[row]
        found = of.regressions(state.sums, self.prior(state.log_hyper, particles))
        near = of.proposal(found, y, share)
        key_noise, key_prior = jax.random.split(key)
        shape = self.capacity, CANDIDATES, self.component.n_factors, particles
        noise = jax.random.normal(key_noise, shape, y.dtype)
        root, centre = near.root[:, None], near.centre[:, None]
        drawn = centre + of.solved_lower(jnp.broadcast_to(root, (*shape[:3], *root.shape[3:])), noise, transposed=True)
        vague = jax.random.uniform(key_prior, (*shape[:2], 1, particles), y.dtype) < FROM_PRIOR
        scores = jnp.where(vague, noise, drawn)
        if current is not None:
            label, own = current
            here = (jnp.arange(self.capacity, dtype=jnp.int32)[:, None] == label)[:, None, None]
            placed = here & (jnp.arange(CANDIDATES) == 0)[:, None, None]
            scores = jnp.where(placed, own, scores)
        log_prior = -0.5 * (scores**2).sum(2)
        about = of.half_log_determinant(root) - 0.5 * (of.product_upper(root, scores - centre) ** 2).sum(2)
        log_q = jnp.logaddexp(jnp.log1p(-FROM_PRIOR) + about, jnp.log(FROM_PRIOR) + log_prior)
        of_row = share * of.log_row(found, scores, y)
        of_label = jnp.log(state.counts + self._number(self.concentration))[:, None]
        weight = of_label + log_prior - log_q + of_row
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
        joined = self._changed(state, row, label, scores, 1.0)
        labels = jax.lax.dynamic_update_index_in_dim(state.labels, label, row, 0)
        return joined._replace(labels=labels, scores=jax.lax.dynamic_update_index_in_dim(state.scores, scores, row, 0))

    def without(self, state: ScoredLabels, row: Int[Array, ""]) -> ScoredLabels:
        """The row in no component; its label and scores are still there."""
        return self._changed(state, row, state.labels[row], state.scores[row], -1.0)

    def _changed(self, state: ScoredLabels, row: Array, label: Array, scores: Array, sign: float) -> ScoredLabels:
        here = (jnp.arange(self.capacity, dtype=jnp.int32)[:, None] == label).astype(scores.dtype) * sign
        more = of.row_sums(here, scores, self._number(self.coordinates)[row], self._number(self.known)[row])
        return state._replace(counts=state.counts + here, sums=jax.tree.map(jnp.add, state.sums, more))

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def swept(
        self,
        key: Key[Array, ""],
        state: ScoredLabels,
        order: Int[Array, " row"],
        n_rows: Int[Array, ""],
        temperature: Float[Array, ""] | float,
        backward: bool,
    ) -> ScoredLabels:
        """The first `n_rows` rows of the order one after another, the last one first where `backward`."""

        def one(place: Array, state: ScoredLabels) -> ScoredLabels:
            row = order[n_rows - 1 - place if backward else place]
            key_row, key_choice = jax.random.split(jax.random.fold_in(key, place))
            left, current = self.without(state, row), (state.labels[row], state.scores[row])
            found = self.candidates(key_row, left, row, temperature, current)
            uniform = jax.random.uniform(key_choice, found.log_weight.shape[2:], found.log_weight.dtype)
            return self.with_row(left, row, *self.chosen(found, uniform))

        # summed anew, so that rounding does not add up over sweeps
        return jax.lax.fori_loop(0, n_rows, one, self.state_of(state.labels, state.scores, state.log_hyper))

    def hyper_moved(
        self, key: Key[Array, ""], state: ScoredLabels, temperature: Float[Array, ""] | float, backward: bool
    ) -> ScoredLabels:
        """Each hyper-parameter given labels and scores, by a slice; in the reverse order where `backward`."""
        log_hyper, particles = dict(state.log_hyper), state.labels.shape[1]
        names = list(enumerate(self.courses))
        for number, name in reversed(names) if backward else names:
            shape, rate = map(self._number, self.courses[name].prior)

            def density(log_value: Array, name: str = name, shape: Array = shape, rate: Array = rate) -> Array:
                of_rows = of.log_gains(state.sums, self.prior({**log_hyper, name: log_value}, particles))
                of_h = shape * log_value - rate * jnp.exp(log_value)
                return of_h + temperature * (of_rows if len(of_h) > 1 else of_rows.sum(0, keepdims=True))

            log_hyper[name] = slice_moved(jax.random.fold_in(key, number), log_hyper[name], density)
        return state._replace(log_hyper=log_hyper)

    def blocked(self, key: Key[Array, ""], state: ScoredLabels, came: Bool[Array, " row"]) -> ScoredLabels:
        """Parameters given labels and scores of the rows that came; then these anew, given the parameters."""
        key_parameters, key_labels, key_scores = jax.random.split(key, 3)
        found = of.regressions(state.sums, self.prior(state.log_hyper, state.labels.shape[1]))
        log_weights, weight, log_precision = self._parameters(key_parameters, state, found)
        y, known, precision = self._number(self.coordinates), self._number(self.known), jnp.exp(log_precision)
        scaled = precision[:, :, None] * weight
        matrix = (scaled[:, :, :, None] * weight[:, :, None]).sum(1)
        root = of.lower_root(matrix[:, 1:, 1:] + jnp.eye(self.component.n_factors)[..., None])
        vague = of.lower_root(jnp.broadcast_to(jnp.eye(self.component.n_factors)[..., None], root.shape))
        has = known[:, None, None, None]
        linear = has * (jnp.einsum("nd,kdip->nkip", y, scaled[:, :, 1:]) - matrix[:, 1:, 0])
        roots = jnp.where(has[..., None] > 0, root, vague)
        along = of.solved_lower(roots, linear)
        square = jnp.einsum("nd,kdp->nkp", y**2, precision) - 2 * jnp.einsum("nd,kdp->nkp", y, scaled[:, :, 0])
        constant = log_precision.sum(1) - matrix[:, 0, 0] - 2 * of.half_log_determinant(root)
        log_each = log_weights + 0.5 * known[:, None, None] * (constant - square + (along**2).sum(2))
        log_each = jnp.where(self.exists()[:, None], log_each, -jnp.inf)
        labels = jax.random.categorical(key_labels, log_each, axis=1).astype(jnp.int32)
        noise = jax.random.normal(key_scores, state.scores.shape, y.dtype)

        def at_label(leaf: Array) -> Array:
            index = labels.reshape(len(labels), 1, *[1] * (leaf.ndim - 3), labels.shape[1])
            return jnp.take_along_axis(leaf, index, axis=1)[:, 0]

        scores = of.solved_lower(at_label(roots), at_label(along) + noise, transposed=True)
        labels = jnp.where(came[:, None], labels, state.labels)
        return self.state_of(labels, jnp.where(came[:, None, None], scores, state.scores), state.log_hyper)

    def _parameters(self, key: Array, state: ScoredLabels, found: Regressions) -> tuple[Array, Array, Array]:
        """log of the weights but for a constant, (component, particle); w (component, dim, coefficient, particle) and
        log τ (component, dim, particle), given labels and scores."""
        key_weights, key_precision, key_weight = jax.random.split(key, 3)
        log_weights = log_gamma_draws(key_weights, state.counts + self._number(self.concentration))
        shape = jnp.broadcast_to(found.shape[:, None], found.rate.shape)
        log_precision = log_gamma_draws(key_precision, shape) - jnp.log(found.rate)
        root = of.lower_root(found.covariance)[:, None]
        noise = of.normals_like(key_weight, found.centre)
        offset = (root * noise[:, :, None]).sum(3) * jnp.exp(-0.5 * log_precision)[:, :, None]
        return log_weights, found.centre + offset, log_precision

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_ratio(self, state: ScoredLabels) -> Float[Array, " particle"]:
        """log p(rows | labels, scores, h), nats."""
        gains = of.log_gains(state.sums, self.prior(state.log_hyper, state.labels.shape[1]))
        return gains.sum(0) + self._number(self.carriers).sum()

    def log_density(self, state: ScoredLabels) -> Float[Array, " particle"]:
        """log p(rows, labels, scores, h), nats, a density of scores and h."""
        a, total, weight = self._number(self.concentration), self.total_concentration(), self._number(self.weight)
        each = jnp.where(self.exists()[:, None], gammaln(state.counts + a) - gammaln(a), 0.0).sum(0)
        of_labels = each + gammaln(total) - gammaln(total + weight.sum())
        of_scores = -0.5 * (state.scores**2 + LOG_2PI).sum(1)
        of_hyper = [course.log_prior(state.log_hyper[name]).sum(0) for name, course in self.courses.items()]
        scored = (weight[:, None] * of_scores).sum(0)
        return self.log_ratio(state) + of_labels + scored + sum(of_hyper, jnp.zeros(()))

    def label_scores(self, state: ScoredLabels) -> None:
        """None: the prior knows no labelling."""
        del state

    def relabel(self, state: ScoredLabels, order: Int[Array, "particle component"]) -> ScoredLabels:
        """The same state: no labelling is better."""
        del order
        return state

    def take(self, state: ScoredLabels, particles: Int[Array, " chosen"]) -> ScoredLabels:
        """The named particles, in that order."""
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    def total_concentration(self) -> Float[Array, ""]:
        """Ka."""
        return jnp.asarray(self.size) * self._number(self.concentration)

    def exists(self) -> Bool[Array, " component"]:
        """Which places hold components."""
        return first(jnp.asarray(self.size), self.capacity)

    def _given(self, name: str) -> Array:
        """A hyper-parameter without a prior, (1, 1) or (column, 1)."""
        return self._number(self.component.number(name)).reshape(-1, 1)

    def _number(self, leaf: Any) -> Array:
        """A leaf in the floating type of the session."""
        return jnp.asarray(leaf, jnp.result_type(float))
