"""Hidden Markov models of one size, annealed from the prior of their paths, with all parameters integrated out.

    π_t(z) ∝ p(z) ∫ p(θ) Π_n p(x_n | θ_{z_n})^t dθ,      log of the integral: Σ_k A(λ + t S_k) − A(λ) + t Σ_n log h(x_n)

Here z_n is the hidden state of row x_n, θ_k are the parameters of state k, and λ the natural parameters of their prior,
with log-normaliser A. S_k = Σ_{z_n = k} s(x_n) (Blei 2004, Eq. 5.13, with the rows' statistics times t). p(z) is a
Dirichlet–multinomial for the start and for every state's transitions.

A sweep draws parameters given the path, and then a whole path given the parameters, by the forward recursion with the
rows' log-potentials times t (Chib 1996). Each is a complete conditional of π_t(z, θ), and only the path is kept. The
sweep is reversible, and is the same whatever the states are called.

The weight of a path is not linear in t, on purpose. With parameters in the state, or with the evidence of the rows to
the power t, the first temperatures would weigh what no data have determined yet.

From the prior, rows are annealed one after another in the order of time instead (`RowsInTime`), each weighted by

    p(x_m | x_1 … x_{m−1}, z_1 … z_{m−1}) = Σ_k p(z_m = k | z_1 … z_{m−1}) h(x_m) exp[A(λ + S_k + s(x_m)) − A(λ + S_k)].

A path along temperatures has all rows in a few states for long, and then parts them at once, where its two ends lie
far apart; along time a state comes up when its rows do.

All sequences lie one after another as one path. At the row where a sequence begins, every state is followed by a draw
from the start's distribution.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.annealing.draws import choose_in_proportion, log_gamma_draws
from lvsearch.inference.annealing.kits import ChainKit, chain_kit
from lvsearch.inference.annealing.particle_arrays import AnnealingChain, SymmetricStart
from lvsearch.inference.annealing.prefixes import InTurn
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of_groups
from lvsearch.inference.engine.estimate import Estimate, capacity_of, check_size
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, pack_increments, pack_statistics, unpack_sums
from lvsearch.models.components import log_normalisers
from lvsearch.models.contract import first
from lvsearch.models.exponential.family import log_normalised
from lvsearch.models.hidden_markov import HiddenMarkov

SWEEPS_IN_TIME = 3
"""The factor by which the cheapest annealing along time makes more sweeps than one along the rows of a mixture.

On one sequence of 400 rows and five states, 8 sweeps that drew whole paths alone gave an estimate 14 nats below that of
72, with a stated error of 2; 24 that redraw rows too, 2 nats below.
"""
ROWS_STEP = 32
"""The rows of all sequences are padded to a multiple of this, so that data sets of similar length share their programs.
"""


class PathState(NamedTuple):
    """The paths of all sequences, one after another, and what they count.

    | field | meaning |
    |---|---|
    | `labels` | the hidden state of each row, (particle, row); −1 for rows that have not come yet |
    | `sums` | S_k, the sum of the statistics of each state's rows, (particle, state, packed) |
    | `starts` | how many sequences begin in each state, (particle, state) |
    | `steps` | how many steps go from each state to each, (particle, state, state) |
    """

    labels: Int[Array, "particle row"]
    sums: Float[Array, "particle state packed"]
    starts: Float[Array, "particle state"]
    steps: Float[Array, "particle state state"]


class HiddenMarkovChain(AnnealingChain, SymmetricStart):
    """The annealing chain of a `HiddenMarkov` model, made by `from_data`. The first `size` of `capacity` states exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K, the number of hidden states | (), traced |
    | `increments` | s(x_n), the statistics of each row, packed into a vector, 0 for padding | (row, packed) |
    | `carriers` | log h(x_n) of each row, nats, 0 for padding | (row,) |
    | `present` | True for rows that are not padding, which come first | (row,) |
    | `begins` | True for rows that begin a sequence | (row,) |
    | `prior` | λ, natural parameters of the prior of a state's parameters | each leaf (…) |
    """

    model: HiddenMarkov
    size: Int[Array | np.ndarray, ""]
    increments: Float[Array | np.ndarray, "row packed"]
    carriers: Float[Array | np.ndarray, " row"]
    present: Bool[Array | np.ndarray, " row"]
    begins: Bool[Array | np.ndarray, " row"]
    prior: Any
    capacity: int = eqx.field(static=True)

    directed: ClassVar[bool] = False

    @classmethod
    def from_data(cls, model: HiddenMarkov, data: Dataset, size: int, capacity: int) -> "HiddenMarkovChain":
        """Return the annealing chain of a model with `size` hidden states. Rows are in the order of the sequences.

        capacity: how many array slots there are for states.

        Raises ValueError for estimated components, rows without a density, and a size that does not fit in the
        capacity.
        """
        if model.concentration is None:
            raise ValueError(
                f"got {model.describe()}, expected a model whose parameters have a prior: with estimated parameters "
                "nothing is integrated out"
            )
        check_size(size, capacity)
        component, (rows, lengths) = model.components, rows_of_groups(data)
        component.check(rows)
        n_rows = len(rows.value)
        pad = -n_rows % ROWS_STEP
        starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        with jax.enable_x64(True):
            coordinates, carriers = coordinates_and_carriers(component, rows)
            increments = pack_increments(component, coordinates, rows.observed)
            prior = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), component.prior(rows.value.shape[1]))
        return cls(
            model,
            np.asarray(size),
            np.pad(np.asarray(increments), [(0, pad), (0, 0)]),
            np.pad(np.asarray(carriers), (0, pad)),
            np.arange(n_rows + pad) < n_rows,
            np.isin(np.arange(n_rows + pad), starts),
            prior,
            capacity,
        )

    @property
    def elements(self) -> int:
        """The number of rows, padding included, which is roughly what a sweep costs."""
        return int(self.present.shape[0])

    def init(self, key: Key[Array, ""], particles: int) -> PathState:
        """Return the first state: the paths of `particles` particles, drawn from their prior."""
        nothing = self.state_from_labels(jnp.full((particles, len(self.present)), -1, jnp.int32))
        return self.draw_paths(key, nothing, jnp.zeros(()), jnp.asarray(self.present).sum())

    def state_from_labels(self, labels: Int[Array, "particle row"]) -> PathState:
        """Return the state with these paths. labels: the hidden state of each row; −1 for rows that count nowhere."""
        here = jax.vmap(self._indicators)(labels)
        sums = jnp.einsum("prk,rs->pks", here, jnp.asarray(self.increments, here.dtype))
        return PathState(labels.astype(jnp.int32), sums, *jax.vmap(self._counts)(here))

    def step(
        self, key: Key[Array, ""], state: PathState, temperature: Float[Array, ""], *, backward: bool
    ) -> PathState:
        """Return the state after one sweep: parameters are drawn given the path, and a path given the parameters.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        backward: ignored, since a sweep is its own time reversal.
        """
        del backward
        return self.draw_paths(key, state, temperature, jnp.asarray(self.present).sum())

    def draw_paths(
        self, key: Key[Array, ""], state: PathState, temperature: Float[Array, ""], units: Int[Array, ""]
    ) -> PathState:
        """Draw new paths of the first `units` rows, and return the new state; later rows get the label −1.

        Parameters are drawn given the old paths, and then the new paths given these parameters.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        units: the number of rows on the new paths.
        """
        key_parameters, key_paths = jax.random.split(key)
        particles, n_rows = state.labels.shape
        one = partial(self._draw_parameters, temperature=temperature)
        start, transitions, packed = jax.vmap(one)(jax.random.split(key_parameters, particles), state)
        begins, increments = jnp.asarray(self.begins), jnp.asarray(self.increments, start.dtype)

        def weigh(row: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Extend the forward messages, log p(rows up to this one, its state) up to a constant, by one row."""
            messages, before = carry
            into = jnp.where(begins[row], start, logsumexp(before[:, :, None] + transitions, axis=1))
            message = jnp.where(self._exists(), into + temperature * (packed @ increments[row]), -jnp.inf)
            return messages.at[row].set(message), message

        none = jnp.zeros_like(start)
        messages, _ = jax.lax.fori_loop(0, units, weigh, (jnp.zeros((n_rows, *start.shape), start.dtype), none))
        uniform = jax.random.uniform(key_paths, (n_rows, particles), start.dtype)

        def choose(done: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Draw the state of one row given the row after it, the last row first."""
            labels, after = carry
            row = units - 1 - done
            is_last = (done == 0) | begins[jnp.minimum(row + 1, n_rows - 1)]
            onward = jnp.take_along_axis(transitions, after[:, None, None], axis=2)[:, :, 0]
            scores = messages[row] + jnp.where(is_last, 0.0, onward)
            label = choose_in_proportion(scores.T, uniform[row], jnp.asarray(self.size))
            return labels.at[row].set(label), label

        nowhere = jnp.full((n_rows, particles), -1, jnp.int32)
        labels, _ = jax.lax.fori_loop(0, units, choose, (nowhere, jnp.zeros(particles, jnp.int32)))
        return self.state_from_labels(labels.T)

    def log_gain(
        self, state: PathState, before: Float[Array, ""], after: Float[Array, ""]
    ) -> Float[Array, " particle"]:
        """Return log π_after − log π_before of each particle's path, (particle,), in nats.

        π_t ∝ p(path) ∫ p(parameters) Π p(row | parameters)^t, without its normaliser.

        before, after: two temperatures in [0, 1].
        """

        def one(sums: Array) -> Array:
            ends = [log_normalisers(self.model.components, self._natural(sums, t)) for t in (before, after)]
            return jnp.where(self._exists(), ends[1] - ends[0], 0.0).sum()

        return jax.vmap(one)(state.sums) + (after - before) * jnp.asarray(self.carriers, state.sums.dtype).sum()

    def log_ratio(self, state: PathState) -> Float[Array, " particle"]:
        """Return log p(rows | path) of each particle, (particle,), in nats, with parameters integrated out."""
        return self.log_gain(state, jnp.zeros(()), jnp.ones(()))

    def log_density(self, state: PathState) -> Float[Array, " particle"]:
        """Return log p(rows, path) of each particle, (particle,), in nats, with parameters integrated out."""
        exists = self._exists()

        def one(starts: Array, steps: Array) -> Array:
            of_steps = _log_dirichlet_multinomial(steps, self.model.transition_prior(exists), exists)
            start = jnp.broadcast_to(jnp.asarray(self.model.start_concentration, starts.dtype), starts.shape)
            of_start = _log_dirichlet_multinomial(starts, start, exists)
            return of_start + jnp.where(exists, of_steps, 0.0).sum()

        return jax.vmap(one)(state.starts, state.steps) + self.log_ratio(state)

    # ── one particle ────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_parameters(
        self, key: Array, state: PathState, *, temperature: Array
    ) -> tuple[Float[Array, " state"], Float[Array, "state state"], Float[Array, "state packed"]]:
        """Draw parameters given the path, for one particle.

        state: of one particle, without the particle axis.
        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).

        Returns: (log probability of each state at a start, (state,); log probability of each step, (state, state); the
            statistics of each state's parameters, whose product with s(x_n) is log p(row n | state) without its
            carrier, (state, packed)).
        """
        keys, exists, model = jax.random.split(key, 3), self._exists(), self.model
        start = _log_simplex(keys[0], jnp.asarray(model.start_concentration, state.starts.dtype) + state.starts, exists)
        both = exists[:, None] & exists
        transitions = _log_simplex(keys[1], model.transition_prior(exists) + state.steps, both)
        components = model.components.prior_family.sample(keys[2], self._natural(state.sums, temperature))
        return start, transitions, pack_statistics(model.components, components)

    def _exists(self) -> Bool[Array, " state"]:
        """Return True for the hidden states that exist, (state,)."""
        return first(jnp.asarray(self.size), self.capacity)

    def _indicators(self, labels: Array) -> Float[Array, "row state"]:
        """Return 1 at each row's hidden state, else 0, (row, state). labels: the hidden states, −1 for none, (row,)."""
        return (labels[:, None] == jnp.arange(self.capacity)).astype(jnp.result_type(float))

    def _counts(self, here: Array) -> tuple[Float[Array, " state"], Float[Array, "state state"]]:
        """Return (how many sequences begin in each state (state,), how many steps go from each state to each (state,
        state)).

        here: 1 at each row's hidden state, else 0, (row, state).
        """
        began = jnp.asarray(self.begins)[:, None]
        return jnp.where(began, here, 0.0).sum(0), here[:-1].T @ jnp.where(began, 0.0, here)[1:]

    def _natural(self, sums: Array, temperature: Array | float = 1.0) -> Any:
        """Return λ + t S_k, the natural parameters of p(parameters of state k | its rows) at temperature t, each leaf
        (state, …).

        sums: S_k, (state, packed).
        """
        like = jax.tree.map(
            lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, sums.dtype), (self.capacity, *leaf.shape)), self.prior
        )
        return jax.tree.map(
            lambda prior, sum: prior + temperature * sum, like, unpack_sums(self.model.components, sums, like)
        )

    def redraw_rows(self, key: Key[Array, ""], state: PathState, units: Int[Array, ""], *, backward: bool) -> PathState:
        """Return the state with the hidden states of the first `units` rows drawn again one after another, given all
        others, with all parameters integrated out.

        backward: the last row first.
        """
        begins, model, exists = jnp.asarray(self.begins), self.model, self._exists()
        particle = jnp.arange(len(state.labels))

        def one_row(index: Array, state: PathState) -> PathState:
            row = units - 1 - index if backward else index
            goes_on = (row + 1 < units) & ~begins[jnp.minimum(row + 1, len(begins) - 1)]
            after = state.labels[:, jnp.minimum(row + 1, len(begins) - 1)]
            before = state.labels[:, row - 1]
            stays = jnp.where(begins[row], -1, before)  # the state from which the row is reached, −1 for none

            def out_of(state: PathState, labels: Array, times: int) -> PathState:
                """Add or take away the step from the row to the next one."""
                change = jnp.where(goes_on, times, 0).astype(state.steps.dtype)
                return state._replace(steps=state.steps.at[particle, labels, jnp.maximum(after, 0)].add(change))

            old = state.labels[:, row]
            left = self.with_row(out_of(state, old, -1), row, old, -1)
            prior = model.transition_prior(exists)
            same = (stays[:, None] == jnp.arange(self.capacity)).astype(left.steps.dtype)  # the step into it counts too
            to_next = jnp.take_along_axis(prior + left.steps, jnp.maximum(after, 0)[:, None, None], axis=2)[
                :, :, 0
            ] + same * (jnp.arange(self.capacity) == after[:, None])
            total = jnp.where(exists, prior + left.steps, 0.0).sum(2) + same
            log_out = jnp.where(goes_on, jnp.log(to_next) - jnp.log(jnp.where(total > 0, total, 1.0)), 0.0)
            scores = jnp.where(exists, self.log_next(left, row) + log_out, -jnp.inf)
            new = jax.random.categorical(jax.random.fold_in(key, row), scores, axis=1).astype(jnp.int32)
            return out_of(self.with_row(left, row, new, 1), new, 1)

        return jax.lax.fori_loop(0, units, one_row, state)

    def log_next(self, state: PathState, row: Int[Array, ""]) -> Float[Array, "particle state"]:
        """Return log p(row, its state | the rows before and their states), (particle, state), in nats; −∞ for states
        that do not exist.

        row: the number of a row that is in no state; those before it in its sequence are, and the one after is not.
        """
        exists, model = self._exists(), self.model
        increment = jnp.asarray(self.increments, state.sums.dtype)[row]
        start = jnp.asarray(model.start_concentration, state.sums.dtype)

        def one(labels: Array, sums: Array, starts: Array, steps: Array) -> Array:
            before = labels[row - 1]
            into = jnp.where(
                jnp.asarray(self.begins)[row], start + starts, (model.transition_prior(exists) + steps)[before]
            )
            into = jnp.where(exists, into, 0.0)
            ends = [log_normalisers(model.components, self._natural(each)) for each in (sums, sums + increment)]
            log_label = jnp.log(jnp.where(exists, into, 1.0)) - jnp.log(into.sum())
            return jnp.where(exists, log_label + ends[1] - ends[0], -jnp.inf)

        return jax.vmap(one)(*state) + jnp.asarray(self.carriers, increment.dtype)[row]

    def with_row(self, state: PathState, row: Int[Array, ""], labels: Int[Array, " particle"], times: int) -> PathState:
        """Return the state with a row put into a hidden state (`times` = 1), or taken out of it (−1).

        row: the number of the row. labels: the hidden state, (particle,).
        """
        here = times * jax.nn.one_hot(labels, self.capacity, dtype=state.sums.dtype)
        before = jax.nn.one_hot(state.labels[:, row - 1], self.capacity, dtype=state.sums.dtype)
        begins = jnp.asarray(self.begins)[row]
        increment = jnp.asarray(self.increments, state.sums.dtype)[row]
        return PathState(
            state.labels.at[:, row].set(labels if times > 0 else -1),
            state.sums + here[:, :, None] * increment,
            state.starts + jnp.where(begins, here, 0.0),
            state.steps + jnp.where(begins, 0.0, before[:, :, None] * here[:, None, :]),
        )


class RowsInTime(InTurn):
    """The rows of sequences in the order of time, one sequence after another, for annealing along them."""

    chain: HiddenMarkovChain

    def initial_state(self, key: Key[Array, ""], particles: int) -> PathState:
        """Return the state before any row has come. The key is not used."""
        return self.chain.state_from_labels(jnp.full((particles, self.places), -1, jnp.int32))

    def append(
        self, key: Key[Array, ""], state: PathState, unit: Int[Array, ""]
    ) -> tuple[PathState, Float[Array, " particle"]]:
        """Draw the hidden state of the next row given the rows before.

        unit: the number of the row.

        Returns: (the new state, log p(row | the rows before) of each particle in nats, (particle,)).
        """
        scores = self.chain.log_next(state, unit)
        labels = jax.random.categorical(key, scores, axis=1).astype(jnp.int32)
        return self.chain.with_row(state, unit, labels, 1), logsumexp(scores, axis=1)

    def remove(
        self, key: Key[Array, ""], state: PathState, unit: Int[Array, ""]
    ) -> tuple[PathState, Float[Array, " particle"]]:
        """Take the last row out of its hidden state. The key is not used.

        unit: the number of the row.

        Returns: (the new state, log p(row | the rows that are left) of each particle in nats, (particle,)).
        """
        left = self.chain.with_row(state, unit, state.labels[:, unit], -1)
        return left, logsumexp(self.chain.log_next(left, unit), axis=1)

    def revisit(self, key: Key[Array, ""], state: PathState, units: Int[Array, ""], *, backward: bool) -> PathState:
        """Return the state with the paths of the first `units` rows drawn again: parameters given the paths and paths
        given the parameters, and then one row after another.

        A path as a whole seldom takes up a state that has no rows yet, since its parameters are drawn from the prior. A
        row by itself does, since they are integrated out.

        backward: the rows first, the last one before the others.
        """
        key_paths, key_rows = jax.random.split(key)
        if backward:
            state = self.chain.redraw_rows(key_rows, self.chain.state_from_labels(state.labels), units, backward=True)
        state = self.chain.draw_paths(key_paths, state, jnp.ones(()), units)
        return state if backward else self.chain.redraw_rows(key_rows, state, units, backward=False)


@chain_kit.register
def _kit_of_hidden_markov(chain: HiddenMarkovChain) -> ChainKit:
    """Return the kit of a hidden Markov model, whose path goes along the rows in the order of time."""

    def in_time(key: Key[Array, ""]) -> RowsInTime:
        """Return the rows in the order of time, whatever the key."""
        del key
        return RowsInTime(chain, np.arange(len(chain.present)), np.asarray(chain.present.sum(), np.int32))

    return ChainKit(in_time, along_data=True, first_steps=lambda steps: SWEEPS_IN_TIME * steps)


def _log_simplex(key: Array, concentration: Array, exists: Array) -> Array:
    """Draw log θ, with θ ~ Dirichlet(concentration) over the existing entries of the last axis; other entries are 0.

    exists: which entries exist.
    """
    return log_normalised(log_gamma_draws(key, concentration), exists)


def _log_dirichlet_multinomial(counts: Array, concentration: Array, exists: Array) -> Array:
    """Return log ∫ Π θ^counts Dirichlet(θ | concentration) dθ over the existing entries of the last axis, in nats.

    The result has the leading axes of `counts`.

    exists: which entries exist.
    """
    total, n = jnp.where(exists, concentration, 0.0).sum(-1), jnp.where(exists, counts, 0.0).sum(-1)
    each = jnp.where(exists, gammaln(concentration + counts) - gammaln(concentration), 0.0).sum(-1)
    return each + gammaln(jnp.where(total > 0, total, 1.0)) - gammaln(jnp.where(total > 0, total, 1.0) + n)


@evidence_chain.register
def _evidence_chain_of_hidden_markov(
    model: HiddenMarkov, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> HiddenMarkovChain:
    """Return the annealing chain of a hidden Markov model, over the hidden paths, from their prior. The estimate is not
    used.
    """
    return HiddenMarkovChain.from_data(model, data, size[0], capacity_of(size)[0])
