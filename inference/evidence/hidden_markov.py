"""Hidden Markov models of one size, annealed from the prior of their hidden paths, with all parameters integrated out.

    π_t(z) ∝ p(z) ∫ p(θ) Π_n p(x_n | θ_{z_n})^t dθ,   log of the integral: Σ_k [A(λ + t S_k) − A(λ)] + t Σ_n log h(x_n)

Here z_n is the hidden state of row x_n, θ_k are the parameters of state k, and λ the natural parameters of their prior,
with log-normaliser A. S_k = Σ_{z_n = k} s(x_n) (Blei 2004, Eq. 5.13, with the rows' statistics times t). p(z) is a
Dirichlet–multinomial for the start and for every state's steps, with parameters b and a + κ [j = k] for a step to j
from k (`HiddenMarkov`).

A sweep draws all parameters given the hidden path, and then a whole hidden path given the parameters, by forward
filtering and backward sampling with the rows' log-potentials times t (Chib 1996). Both draws are full conditionals of
the tempered joint density of z, θ, start and transition probabilities, whose marginal is π_t(z). Only z is kept. The
sweep is reversible, and does not depend on the numbering of the hidden states.

log π_t(z) is not linear in t, on purpose. A linear path would weigh particles by parameters drawn from the prior, or by
the full evidence of rows placed at random, at temperatures at which the data have decided nothing.

By default annealing does not go along temperatures. Rows arrive one after another in the order of time (`RowsInTime`),
and each particle's weight is multiplied by

    p(x_m | x_1 … x_{m−1}, z_1 … z_{m−1}) = Σ_k p(z_m = k | z_1 … z_{m−1}) h(x_m) exp[A(λ + S_k + s(x_m)) − A(λ + S_k)].

Along temperatures, particles keep all rows in a few states for long and then split them at once. There the forward and
the backward estimate differ most. Along time, a hidden state appears when its first rows do.

All sequences lie one after another as one hidden path. At the row where a sequence begins, every state is followed by a
draw from the start's distribution.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.draws import choose_by_weight, log_gamma_draws
from lvsearch.inference.annealing.particle_arrays import ParticleArrays, SymmetricStart
from lvsearch.inference.annealing.prefixes import InTurn
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.rows import rows_of_groups
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.evidence.mixture_hyperparameters import labels_chain
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, RowScores
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, pack_increments, pack_statistics, unpack_sums
from lvsearch.models.components import log_normalisers
from lvsearch.models.exponential.family import log_normalised
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.units import Row

SWEEPS_IN_TIME = 3
"""The sweeps of the cheapest annealing along time, as a multiple of those along the rows of a mixture.

On one sequence of 400 rows and five states, 8 sweeps of whole hidden paths alone gave an estimate 14 nats below that of
72 sweeps, with a stated error of 2. 24 sweeps that also redraw single rows gave one 2 nats below.
"""
ROWS_STEP = 32
"""The rows of all sequences are padded to a multiple of this, so that data sets of similar length share their programs.
"""


class PathState(NamedTuple):
    """The hidden paths of all sequences, one after another, and what they count.

    | field | meaning |
    |---|---|
    | `mixture` | the hidden state of each row (`labels`), and the sums over the rows of each state |
    | `starts` | how many sequences begin in each state, (state, particle) |
    | `steps` | how many steps go from each state to each, (from state, to state, particle) |
    """

    mixture: CollapsedState
    starts: Float[Array, "state particle"]
    steps: Float[Array, "state state particle"]

    @property
    def labels(self) -> Int[Array, "row particle"]:
        """The hidden state of each row, (row, particle); −1 for padding, and for rows that have not arrived yet where
        rows are added one after another (`RowsInTime`).
        """
        return self.mixture.labels


class HiddenMarkovChain(ParticleArrays, SymmetricStart):
    """The annealing chain of a `HiddenMarkov` model, made by `from_data`. The first `size` of `capacity` states exist.

    Given the hidden states, rows are distributed as in a mixture, so the chain of a mixture scores them.

    | field | meaning | shape |
    |---|---|---|
    | `model` | the model | |
    | `mixture_chain` | the chain of a mixture with one component for each state; its prior of labels is not used | |
    | `increments` | s(x_n), packed as `pack_statistics` packs parameters; 0 for padding | (row, packed) |
    | `begins` | True for rows that begin a sequence | (row,) |
    | `prior` | λ, natural parameters of the prior of a state's parameters | each leaf (…) |
    """

    model: HiddenMarkov
    mixture_chain: CollapsedMixtureChain
    increments: Float[Array | np.ndarray, "row packed"]
    begins: Bool[Array | np.ndarray, " row"]
    prior: Any

    directed: ClassVar[bool] = False

    @classmethod
    def from_data(cls, model: HiddenMarkov, data: Dataset, size: int) -> "HiddenMarkovChain":
        """Return the annealing chain of a model with `size` hidden states. Rows are in the order of the sequences.

        Raises ValueError for estimated components, rows without a density, and a size below 1.
        """
        if model.concentration is None:
            raise ValueError(
                f"got {model.describe()}, expected a model whose parameters have a prior: with estimated parameters "
                "nothing is integrated out"
            )
        component, (rows, lengths) = model.components, rows_of_groups(data)
        component.check(rows)
        n_rows, n_dims = rows.value.shape
        pad = [(0, -n_rows % ROWS_STEP), (0, 0)]
        rows = Row(np.pad(rows.value, pad), np.pad(rows.observed, pad))
        number = np.arange(len(rows.value))
        real = number < n_rows
        batch, ids = Batch(rows, real.astype(np.float32)), np.where(real, number, -1)
        one_mixture = Dataset.of_batches((batch,), (ids,), {"dim": n_dims}, n_rows)
        mixture = labels_chain(component, FiniteMixture(component), one_mixture, size)
        assert isinstance(mixture, CollapsedMixtureChain)  # the model takes no hyper-parameters with priors
        with jax.enable_x64(True):
            coordinates, _ = coordinates_and_carriers(component, rows)
            increments = np.asarray(pack_increments(component, coordinates, rows.observed))
            prior = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), component.prior(n_dims))
        starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        return cls(model, mixture, np.where(real[:, None], increments, 0.0), np.isin(number, starts), prior)

    @property
    def size(self) -> Int[Array | np.ndarray, ""]:
        """K, the number of hidden states."""
        return self.mixture_chain.size

    @property
    def capacity(self) -> int:
        """The number of array slots for states."""
        return self.mixture_chain.capacity

    @property
    def present(self) -> Bool[Array | np.ndarray, " row"]:
        """True for rows that are not padding, which come first, (row,)."""
        return self.mixture_chain.weight > 0

    @property
    def elements(self) -> int:
        """The number of rows, padding included, which is roughly what a sweep costs."""
        return self.mixture_chain.elements

    def init(self, key: Key[Array, ""], particles: int) -> PathState:
        """Return the initial `PathState`: the hidden paths of `particles` particles, drawn from their prior."""
        nothing = self.state_from_labels(jnp.full((self.elements, particles), -1, jnp.int32))
        return self.draw_paths(key, nothing, jnp.zeros(()), jnp.asarray(self.present).sum())

    def state_from_labels(self, labels: Int[Array, "row particle"]) -> PathState:
        """Return the `PathState` with these hidden paths.

        labels: the hidden state of each row, (row, particle); −1 for rows that are left out of all counts and sums.
        """
        here, began = self._indicators(labels), jnp.asarray(self.begins)[:, None, None]
        steps = jnp.einsum("rjp,rkp->jkp", here[:-1], jnp.where(began, 0.0, here)[1:])
        return PathState(self.mixture_chain.state_from_labels(labels), jnp.where(began, here, 0.0).sum(0), steps)

    def step(
        self, key: Key[Array, ""], state: PathState, temperature: Float[Array, ""], *, backward: bool
    ) -> PathState:
        """Return the `PathState` after one sweep: parameters are drawn given the hidden path, and a hidden path given
        the parameters.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        backward: ignored, since a sweep is its own time reversal.
        """
        del backward
        return self.draw_paths(key, state, temperature, jnp.asarray(self.present).sum())

    def draw_paths(
        self, key: Key[Array, ""], state: PathState, temperature: Float[Array, ""], n_arrived: Int[Array, ""]
    ) -> PathState:
        """Draw new hidden paths of the rows that have arrived, and return the new `PathState`; later rows get −1.

        Parameters are drawn given the old paths, and then the new paths given these parameters.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        n_arrived: the number of rows that have arrived.
        """
        key_parameters, key_paths = jax.random.split(key)
        n_rows, particles = state.labels.shape
        start, transitions, packed = self._draw_parameters(key_parameters, state, temperature)
        begins, increments = jnp.asarray(self.begins), jnp.asarray(self.increments, start.dtype)

        def weigh(row: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Extend the forward messages by one row: p(rows up to this one at temperature t, its state), divided by
            its largest entry.
            """
            messages, before = carry
            into = jnp.where(begins[row], start, (before[:, None] * transitions).sum(0))
            score = jnp.log(into) + temperature * jnp.tensordot(increments[row], packed, 1)
            score = jnp.where(self.mixture_chain.exists(), score, -jnp.inf)
            message = jnp.exp(score - score.max(0))
            return messages.at[row].set(message), message

        messages = jnp.zeros((n_rows, *start.shape), start.dtype)
        messages, _ = jax.lax.fori_loop(0, n_arrived, weigh, (messages, jnp.zeros_like(start)))
        uniform = jax.random.uniform(key_paths, (n_rows, particles), start.dtype)

        def choose(done: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Draw the state of one row given the row after it, the last row first."""
            labels, after = carry
            row = n_arrived - 1 - done
            # no row after it: the end of its sequence, or the last row that has arrived
            is_last = (done == 0) | begins[jnp.minimum(row + 1, n_rows - 1)]
            weights = messages[row] * jnp.where(is_last, 1.0, _select_to(transitions, after))
            label = choose_by_weight(weights, uniform[row], jnp.asarray(self.size))
            return labels.at[row].set(label), label

        nowhere = jnp.full((n_rows, particles), -1, jnp.int32)
        labels, _ = jax.lax.fori_loop(0, n_arrived, choose, (nowhere, jnp.zeros(particles, jnp.int32)))
        return self.state_from_labels(labels)

    def redraw_rows(
        self, key: Key[Array, ""], state: PathState, n_arrived: Int[Array, ""], *, backward: bool
    ) -> PathState:
        """Return the `PathState` with hidden states drawn again, one row after another, each given all others, with all
        parameters integrated out.

        n_arrived: the number of rows that have arrived, which are drawn; later rows must have the label −1.
        backward: the last row first.
        """
        uniforms = jax.random.uniform(key, state.labels.shape, state.steps.dtype)
        prior = self.mixture_chain.own_prior()

        def one_row(index: Array, carry: tuple[PathState, Array]) -> tuple[PathState, Array]:
            state, terms = carry
            row = n_arrived - 1 - index if backward else index
            # counts without the row's own steps in and out
            left = self._with_steps(state, row, state.labels[row], n_arrived, -1)
            log_path = jnp.log(self._entering_weights(left, row) * self._leaving_probabilities(left, row, n_arrived))

            def choose(others: CollapsedState, scores: RowScores) -> Int[Array, " particle"]:
                # `scores.of_label`, the mixture's own prior of labels, is left out: the steps take its place
                return self.mixture_chain.draw_label(log_path + scores.of_row, uniforms[row])

            mixture, terms = self.mixture_chain.redraw_row(state.mixture, terms, row, choose, prior)
            joined = left._replace(mixture=mixture)
            return self._with_steps(joined, row, mixture.labels[row], n_arrived, 1), terms

        begin = state, self.mixture_chain.score_terms(state.mixture.natural)
        return jax.lax.fori_loop(0, n_arrived, one_row, begin)[0]

    def append_row(
        self, key: Key[Array, ""], state: PathState, row: Int[Array, ""]
    ) -> tuple[PathState, Float[Array, " particle"]]:
        """Draw the hidden state of a row given the rows before it and their hidden states, where no later row has
        arrived.

        Returns: (the new state, log p(row | the rows before it and their hidden states) of each particle, with the
            row's own hidden state summed out, in nats, (particle,)).
        """
        joining, scores = self._next_row(state, row)
        labels = self.mixture_chain.draw_label(scores, jax.random.uniform(key, scores.shape[1:], scores.dtype))
        mixture = self.mixture_chain.add_row(state.mixture, row, labels, joining)
        return self._with_steps(state._replace(mixture=mixture), row, labels, row + 1, 1), logsumexp(scores, axis=0)

    def remove_row(self, state: PathState, row: Int[Array, ""]) -> tuple[PathState, Float[Array, " particle"]]:
        """Take out the last row that has arrived.

        Returns: (the new state, log p(row | the rows before it and their hidden states) of each particle, with the
            row's own hidden state summed out, in nats, (particle,)).
        """
        left = self._with_steps(state, row, state.labels[row], row + 1, -1)
        mixture = self.mixture_chain.remove_row(state.mixture, row, self.mixture_chain.own_prior())
        left = left._replace(mixture=mixture._replace(labels=mixture.labels.at[row].set(-1)))
        return left, logsumexp(self._next_row(left, row)[1], axis=0)

    def log_gain(
        self, state: PathState, before: Float[Array, ""], after: Float[Array, ""]
    ) -> Float[Array, " particle"]:
        """Return log π_after − log π_before of each particle's hidden path, (particle,), in nats.

        π_t ∝ p(path) ∫ p(parameters) Π p(row | parameters)^t d parameters, without its normaliser. All rows must have a
        hidden state.

        before, after: two temperatures in [0, 1].
        """
        ends = [
            jax.vmap(log_normalisers, (None, 0))(self.model.components, self._natural(state.labels, t))
            for t in (before, after)
        ]
        gain = jnp.where(self.mixture_chain.exists()[:, 0], ends[1] - ends[0], 0.0).sum(1)
        return gain + (after - before) * self._as_float(self.mixture_chain.carriers).sum()

    def log_ratio(self, state: PathState) -> Float[Array, " particle"]:
        """Return log p(rows | hidden path) of each particle, (particle,), in nats, with parameters integrated out. All
        rows must have a hidden state.
        """
        return self.mixture_chain.log_rows(state.mixture)

    def log_density(self, state: PathState) -> Float[Array, " particle"]:
        """Return log p(rows, hidden path) of each particle, (particle,), in nats, with parameters integrated out. All
        rows must have a hidden state.
        """
        exists = self.mixture_chain.exists()
        start = jnp.broadcast_to(self._as_float(self.model.start_concentration), (self.capacity, 1))
        of_start = _log_dirichlet_multinomial(state.starts, start, exists)
        of_steps = _log_dirichlet_multinomial(state.steps, self._transition_prior(), exists)
        return of_start + jnp.where(exists, of_steps, 0.0).sum(0) + self.log_ratio(state)

    # ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_parameters(
        self, key: Array, state: PathState, temperature: Array
    ) -> tuple[Float[Array, "state particle"], Float[Array, "state state particle"], Float[Array, "packed state _"]]:
        """Draw the parameters of every particle given its hidden path.

        temperature: t, from 0 (the prior) to 1 (the posterior).

        Returns: (probability of each state at a start, (state, particle); probability of each step, (from state, to
            state, particle); statistics of each state's parameters, (packed, state, particle)). The product of these
            statistics and s(x_n) is log p(row n | state) without its carrier.
        """
        keys, exists, model = jax.random.split(key, 3), self.mixture_chain.exists(), self.model
        start = _draw_simplex(keys[0], self._as_float(model.start_concentration) + state.starts, exists)
        both_exist = exists & exists[:, None]  # (from, to, 1)
        transitions = _draw_simplex(keys[1], self._transition_prior() + state.steps, both_exist)
        drawn = model.components.prior_family.sample(keys[2], self._natural(state.labels, temperature))
        packed = jax.vmap(pack_statistics, (None, 0))(model.components, drawn)
        return start, transitions, packed.T

    def _natural(self, labels: Int[Array, "row particle"], temperature: Array) -> Any:
        """Return λ + t S_k, the natural parameters of p(parameters of state k | its rows) at temperature t, each leaf
        (particle, state, …).
        """
        sums = jnp.einsum("rkp,rs->pks", self._indicators(labels), self._as_float(self.increments))

        def one(sums: Array) -> Any:
            """Return the natural parameters of one particle's states. sums: (state, packed)."""
            own_prior = jax.tree.map(self._as_float, self.prior)
            like = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(sums), *leaf.shape)), own_prior)
            own = unpack_sums(self.model.components, sums, like)
            return jax.tree.map(lambda prior, sum: prior + temperature * sum, like, own)

        return jax.vmap(one)(sums)

    # ── paths ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _transition_prior(self) -> Float[Array, "state state one"]:
        """Return the Dirichlet parameters of the steps, (from state, to state, 1); 1 for states that do not exist."""
        return self._as_float(self.model.transition_prior(self.mixture_chain.exists()[:, 0]))[..., None]

    def _indicators(self, labels: Int[Array, "row particle"]) -> Float[Array, "row state particle"]:
        """Return 1 at the hidden state of each row, else 0, (row, state, particle). labels: −1 for none."""
        return (labels[:, None] == self._numbers).astype(jnp.result_type(float))

    @property
    def _numbers(self) -> Int[Array, "state one"]:
        """The numbers of the states, (state, 1)."""
        return jnp.arange(self.capacity, dtype=jnp.int32)[:, None]

    def _next_row(self, state: PathState, row: Int[Array, ""]) -> tuple[Any, Float[Array, "state particle"]]:
        """Return the scores of a row that is in no state, where no later row has arrived.

        Returns: (what the mixture's `add_row` needs; log p(row, its state | the rows before and their states),
            (state, particle), in nats, −∞ for states that do not exist).
        """
        exists = self.mixture_chain.exists()
        joining = self.mixture_chain.score_row(
            state.mixture, row, self.mixture_chain.normalisers(state.mixture.natural)
        )
        into = jnp.where(exists, self._entering_weights(state, row), 0.0)
        scores = (
            jnp.log(into)
            - jnp.log(into.sum(0))
            + joining.scores.of_row
            + self._as_float(self.mixture_chain.carriers)[row]
        )
        return joining.natural, jnp.where(exists, scores, -jnp.inf)

    def _entering_weights(self, state: PathState, row: Int[Array, ""]) -> Float[Array, "state particle"]:
        """Return numbers in proportion to p(a row in state k | the row before, all other steps) for each k, (state,
        particle).

        They are c_ik + n_ik, where i is the state of the row before, c are the Dirichlet parameters of steps, and n the
        steps. At the first row of a sequence they are b + the number of other sequences that begin in k.

        state: without the start or the step to the row.
        """
        at_start = self._as_float(self.model.start_concentration) + state.starts
        into = _select_from(self._transition_prior() + state.steps, state.labels[row - 1])
        return jnp.where(jnp.asarray(self.begins)[row], at_start, into)

    def _leaving_probabilities(
        self, state: PathState, row: Int[Array, ""], n_arrived: Int[Array, ""]
    ) -> Float[Array, "state particle"]:
        """Return p(state of the next row | this row in state k, the row before, all other steps) for each k, (state,
        particle); 1 where no next row of the sequence has arrived.

            (c_kj + n_kj + [i = k = j]) / (Σ_l (c_kl + n_kl) + [i = k])

        Here i and j are the states of the rows before and after, c are the Dirichlet parameters of steps, and n the
        steps without those to and from this row. If i = k, the step to this row is one more step from k to k.

        n_arrived: the number of rows that have arrived.
        """
        before, after, comes, goes = self._neighbours(state, row, n_arrived)
        stays = ((self._numbers == before) & comes).astype(state.steps.dtype)
        steps = self._transition_prior() + state.steps
        total = jnp.where(self.mixture_chain.exists(), steps, 0.0).sum(1) + stays
        chance = (_select_to(steps, after) + stays * (self._numbers == after)) / total
        return jnp.where(goes, chance, 1.0)

    def _with_steps(
        self,
        state: PathState,
        row: Int[Array, ""],
        labels: Int[Array, " particle"],
        n_arrived: Int[Array, ""],
        sign: int,
    ) -> PathState:
        """Return the `PathState` with the start or step to a row, and the step from it, counted or no longer counted.

        labels: the hidden state of the row, (particle,).
        n_arrived: the number of rows that have arrived.
        sign: 1 to count them, −1 to remove them.
        """
        before, after, comes, goes = self._neighbours(state, row, n_arrived)
        here = self._numbers == labels
        into = ((self._numbers == before) & comes)[:, None] & here
        onward = here[:, None] & (self._numbers == after) & goes
        steps = state.steps + sign * (into.astype(state.steps.dtype) + onward)
        return state._replace(starts=state.starts + sign * (here & ~comes), steps=steps)

    def _neighbours(
        self, state: PathState, row: Int[Array, ""], n_arrived: Int[Array, ""]
    ) -> tuple[Int[Array, " particle"], Int[Array, " particle"], Bool[Array, ""], Bool[Array, ""]]:
        """Return (the state before a row, the state after it, whether there is a row before it in its sequence, and
        whether one after it has arrived). A state means nothing where there is no such row.

        n_arrived: the number of rows that have arrived.
        """
        begins, later = jnp.asarray(self.begins), jnp.minimum(row + 1, len(self.begins) - 1)
        return state.labels[row - 1], state.labels[later], ~begins[row], (row + 1 < n_arrived) & ~begins[later]


class RowsInTime(InTurn):
    """The rows of sequences in the order of time, one sequence after another, for annealing along them.

    What arrives, a unit of `InTurn`, is one row here and not a sequence.
    """

    chain: HiddenMarkovChain

    def append(
        self, key: Key[Array, ""], state: PathState, unit: Int[Array, ""]
    ) -> tuple[PathState, Float[Array, " particle"]]:
        """Draw the hidden state of the next row given the rows before it and their hidden states.

        unit: the number of the row.

        Returns: (the new state, log p(row | the rows before it and their hidden states) of each particle, with the
            row's own hidden state summed out, in nats, (particle,)).
        """
        return self.chain.append_row(key, state, unit)

    def remove(
        self, key: Key[Array, ""], state: PathState, unit: Int[Array, ""]
    ) -> tuple[PathState, Float[Array, " particle"]]:
        """Take the last row out of its hidden state. The key is not used.

        unit: the number of the row.

        Returns: (the new state, log p(row | the rows before it and their hidden states) of each particle, with the
            row's own hidden state summed out, in nats, (particle,)).
        """
        return self.chain.remove_row(state, unit)

    def revisit(self, key: Key[Array, ""], state: PathState, units: Int[Array, ""], *, backward: bool) -> PathState:
        """Return the `PathState` with the hidden paths of the first `units` rows drawn again.

        Parameters are drawn given the paths, paths given the parameters, and then one row after another.

        A path as a whole seldom takes up a state that has no rows yet, since its parameters are drawn from the prior.
        Redrawing single rows lets a row move there, since the state's parameters are then integrated out.

        backward: single rows first, from the last to the first, then whole paths: the time reversal of the other order.
        """
        key_paths, key_rows = jax.random.split(key)
        if backward:
            state = self.chain.redraw_rows(key_rows, self.chain.state_from_labels(state.labels), units, backward=True)
        state = self.chain.draw_paths(key_paths, state, jnp.ones(()), units)
        return state if backward else self.chain.redraw_rows(key_rows, state, units, backward=False)


def rows_in_time(chain: HiddenMarkovChain, key: Key[Array, ""]) -> RowsInTime:
    """Return the rows in the order of time, whatever the key."""
    return RowsInTime(chain, np.arange(chain.elements), np.asarray(chain.present.sum(), np.int32))


def first_steps_in_time(chain: HiddenMarkovChain, default: int) -> int:
    """Return the number of temperatures of the cheapest annealing, which is larger along the rows in time."""
    return SWEEPS_IN_TIME * default


def _select_from(matrix: Float[Array, "state state particle"], states: Int[Array, " particle"]) -> Array:
    """Return matrix[s, :] with s the given state of each particle, (state, particle)."""
    return jnp.take_along_axis(matrix, states[None, None, :], axis=0)[0]


def _select_to(matrix: Float[Array, "state state particle"], states: Int[Array, " particle"]) -> Array:
    """Return matrix[:, s] with s the given state of each particle, (state, particle)."""
    return jnp.take_along_axis(matrix, states[None, None, :], axis=1)[:, 0]


def _draw_simplex(key: Array, concentration: Array, exists: Array) -> Array:
    """Draw θ ~ Dirichlet(concentration) over the existing entries of the last axis but one; other entries are 0.

    exists: which entries exist.
    """
    log_gamma = jnp.moveaxis(log_gamma_draws(key, concentration), -2, -1)
    exists = jnp.moveaxis(jnp.broadcast_to(exists, concentration.shape), -2, -1)
    return jnp.where(exists, jnp.exp(log_normalised(log_gamma, exists)), 0.0).swapaxes(-2, -1)


def _log_dirichlet_multinomial(counts: Array, concentration: Array, exists: Array) -> Array:
    """Return log ∫ Π θ^counts Dirichlet(θ | concentration) dθ in nats, of draws in a given order: no multinomial
    coefficient is included. The last axis but one, that of the entries of θ, is summed over.

    exists: which entries exist.
    """
    total, n = jnp.where(exists, concentration, 0.0).sum(-2), jnp.where(exists, counts, 0.0).sum(-2)
    each = jnp.where(exists, gammaln(concentration + counts) - gammaln(concentration), 0.0).sum(-2)
    return each + gammaln(jnp.where(total > 0, total, 1.0)) - gammaln(jnp.where(total > 0, total, 1.0) + n)


def evidence_chain_of_hidden_markov(
    model: HiddenMarkov, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> HiddenMarkovChain:
    """Return the annealing chain of a hidden Markov model, over the hidden paths, from their prior. The estimate is not
    used.
    """
    return HiddenMarkovChain.from_data(model, data, size[0])
