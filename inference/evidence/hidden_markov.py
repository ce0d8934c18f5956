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

All sequences lie one after another as one path. At the row where a sequence begins, every state is followed by a draw
from the start's distribution.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.kits import chain_kit, plain_kit
from lvsearch.inference.annealing.particle_arrays import AnnealingChain, SymmetricStart
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of_groups
from lvsearch.inference.engine.estimate import Estimate, capacity_of, check_size
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, pack_increments, pack_statistics, unpack_sums
from lvsearch.models.components import log_normalisers
from lvsearch.models.contract import first
from lvsearch.models.exponential.family import log_normalised
from lvsearch.models.families import MarkovChain, MarkovChainStatistics
from lvsearch.models.hidden_markov import HiddenMarkov

ROWS_STEP = 32
"""The rows of all sequences are padded to a multiple of this, so that data sets of similar length share their programs.
"""


class PathState(NamedTuple):
    """The hidden state of each row, (particle, row): the paths of all sequences, one after another."""

    labels: Int[Array, "particle row"]


class HiddenMarkovChain(AnnealingChain, SymmetricStart):
    """The annealing chain of a `HiddenMarkov` model, made by `from_data`. The first `size` of `capacity` states exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K, the number of hidden states | (), traced |
    | `increments` | s(x_n), the statistics of each row, packed into a vector, 0 for padding | (row, packed) |
    | `log_carrier` | Σ log h(x_n), nats | () |
    | `present` | True for rows that are not padding, which come first | (row,) |
    | `begins` | True for rows that begin a sequence | (row,) |
    | `prior` | λ, natural parameters of the prior of a state's parameters | each leaf (…) |
    """

    model: HiddenMarkov
    size: Int[Array | np.ndarray, ""]
    increments: Float[Array | np.ndarray, "row packed"]
    log_carrier: Float[Array | np.ndarray, ""]
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
            np.asarray(np.asarray(carriers).sum()),
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
        nothing, unseen = jnp.zeros(len(self.present), int), jnp.zeros(len(self.present))
        one = partial(self._draw_path, labels=nothing, counted=unseen, temperature=jnp.zeros(()))
        return PathState(jax.vmap(one)(jax.random.split(key, particles)))

    def step(
        self, key: Key[Array, ""], state: PathState, temperature: Float[Array, ""], *, backward: bool
    ) -> PathState:
        """Return the state after one sweep: parameters are drawn given the path, and a path given the parameters.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        backward: ignored, since a sweep is its own time reversal.
        """
        del backward
        counted = jnp.asarray(self.present, jnp.result_type(float))
        one = partial(self._draw_path, counted=counted, temperature=temperature)
        return PathState(
            jax.vmap(lambda k, labels: one(k, labels=labels))(jax.random.split(key, len(state.labels)), state.labels)
        )

    def log_gain(
        self, state: PathState, before: Float[Array, ""], after: Float[Array, ""]
    ) -> Float[Array, " particle"]:
        """Return log π_after − log π_before of each particle's path, (particle,), in nats.

        π_t ∝ p(path) ∫ p(parameters) Π p(row | parameters)^t, without its normaliser.

        before, after: two temperatures in [0, 1].
        """

        def one(labels: Array) -> Array:
            here = self._indicators(labels, jnp.asarray(self.present, jnp.result_type(float)))
            ends = [log_normalisers(self.model.components, self._natural(here, t)) for t in (before, after)]
            return jnp.where(self._exists(), ends[1] - ends[0], 0.0).sum() + (after - before) * self.log_carrier

        return jax.vmap(one)(state.labels)

    def log_ratio(self, state: PathState) -> Float[Array, " particle"]:
        """Return log p(rows | path) of each particle, (particle,), in nats, with parameters integrated out."""
        return self.log_gain(state, jnp.zeros(()), jnp.ones(()))

    def log_density(self, state: PathState) -> Float[Array, " particle"]:
        """Return log p(rows, path) of each particle, (particle,), in nats, with parameters integrated out."""
        exists = self._exists()

        def one(labels: Array) -> Array:
            starts, steps = self._counts(self._indicators(labels, jnp.asarray(self.present, jnp.result_type(float))))
            of_steps = _log_dirichlet_multinomial(steps, self.model.transition_prior(exists), exists)
            start = jnp.broadcast_to(jnp.asarray(self.model.start_concentration, starts.dtype), starts.shape)
            of_start = _log_dirichlet_multinomial(starts, start, exists)
            return of_start + jnp.where(exists, of_steps, 0.0).sum()

        return jax.vmap(one)(state.labels) + self.log_ratio(state)

    # ── one particle ────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_path(self, key: Array, *, labels: Array, counted: Array, temperature: Array) -> Int[Array, " row"]:
        """Draw parameters given the rows that count, then a path of all rows given these parameters, for one particle.

        labels: the hidden states before, (row,).
        counted: 1 for rows that count, else 0, (row,).
        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).

        Returns: the hidden state of each row, (row,).
        """
        keys, exists = jax.random.split(key, 4), self._exists()
        here, model = self._indicators(labels, counted), self.model
        starts, steps = self._counts(here)
        both = exists[:, None] & exists
        start = _log_simplex(keys[0], jnp.asarray(model.start_concentration, starts.dtype) + starts, exists)
        transitions = _log_simplex(keys[1], model.transition_prior(exists) + steps, both)
        components = model.components.prior_family.sample(keys[2], self._natural(here, temperature))

        log_rows = jnp.asarray(self.increments, here.dtype) @ pack_statistics(model.components, components).T
        begins = jnp.asarray(self.begins)[:, None]
        first_row = jnp.arange(len(labels))[:, None] == 0
        natural = MarkovChainStatistics(
            temperature * log_rows + jnp.where(first_row, start, 0.0),
            jnp.where(begins[..., None], start, transitions),
        )
        return MarkovChain().sample(keys[3], natural, jnp.asarray(self.present)[:, None, None] & both).state.argmax(-1)

    def _exists(self) -> Bool[Array, " state"]:
        """Return True for the hidden states that exist, (state,)."""
        return first(jnp.asarray(self.size), self.capacity)

    def _indicators(self, labels: Array, counted: Array) -> Float[Array, "row state"]:
        """Return 1 at each row's hidden state if the row counts, else 0, (row, state).

        labels: the hidden states, (row,). counted: 1 for rows that count, else 0, (row,).
        """
        return (labels[:, None] == jnp.arange(self.capacity)) * counted[:, None]

    def _counts(self, here: Array) -> tuple[Float[Array, " state"], Float[Array, "state state"]]:
        """Return (how many sequences begin in each state (state,), how many steps go from each state to each (state,
        state)).

        here: 1 at each row's hidden state, else 0, (row, state).
        """
        began = jnp.asarray(self.begins)[:, None]
        return jnp.where(began, here, 0.0).sum(0), here[:-1].T @ jnp.where(began, 0.0, here)[1:]

    def _natural(self, here: Array, temperature: Array) -> Any:
        """Return λ + t S_k, the natural parameters of p(parameters of state k | its rows) at temperature t, each leaf
        (state, …).

        here: 1 at each row's hidden state, else 0, (row, state).
        """

        sums = here.T @ jnp.asarray(self.increments, here.dtype)
        like = jax.tree.map(
            lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, here.dtype), (self.capacity, *leaf.shape)), self.prior
        )
        return jax.tree.map(
            lambda prior, sum: prior + temperature * sum, like, unpack_sums(self.model.components, sums, like)
        )


chain_kit.register(HiddenMarkovChain, plain_kit)


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
