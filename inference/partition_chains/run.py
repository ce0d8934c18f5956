"""Run chains over partitions until they agree, and compute the posterior of the number of components from them.

Every draw of a partition gives p(K | partition) for all K at once. So p(K | rows) is the average of these, not a count
of visits (Rao–Blackwell). The number of occupied components is a count of visits. Chains are independent, so an error
is the standard deviation of their averages over the square root of their number.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Key

from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.diagnostics import bulk_effective_sample_size, rhat
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.generators import folded, split_key
from lvsearch.inference.partition_chains.chain import PartitionChain, PartitionState
from lvsearch.inference.partition_chains.seating import SeatPrior
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.kernels import kernel
from lvsearch.models.tied_mixture import TiedMixture

BLOCK = 32
"""Number of sweeps in one compiled call, and in one recorded average."""
FIRST_PLACES = 16
"""Number of places for parts at first; it is doubled whenever a chain has filled all."""
CHAINS = 32
"""Number of independent chains, side by side on the last axis of every array."""
MOST_RHAT = 1.05
"""R̂ above which chains do not agree."""
FEWEST_BLOCKS = 8
"""Number of blocks after which chains are first tested for agreement; the first half of all blocks is left out."""

RowMixture = FiniteMixture | TiedMixture | IndependentNormalMixture
"""Mixtures of rows whose components are integrated out."""


class PartitionTrace(NamedTuple):
    """The record of chains over partitions, without the first half of their sweeps.

    | field | meaning |
    |---|---|
    | `size_probability` | average of p(K given the partition), K = 1, 2, …, (chain, size) |
    | `parts` | occupied components after every sweep, (chain, draw) |
    | `log_rows` | log p(rows given the partition) after every sweep, without carriers, nats, (chain, draw) |
    | `sweeps` | number of sweeps of each chain, including those left out |
    """

    size_probability: Float64[np.ndarray, "chain size"]
    parts: Int[np.ndarray, "chain draw"]
    log_rows: Float64[np.ndarray, "chain draw"]
    sweeps: int

    @property
    def rhat(self) -> float:
        """The larger R̂ of the number of occupied components and of log p(rows | partition)."""
        return max(rhat(self.parts), rhat(self.log_rows))

    @property
    def effective_sample_size(self) -> float:
        """The effective sample size of all chains together for the number of occupied components.

        Where that number never varies it is that of log p(rows | partition), and NaN where neither varies.
        """
        of_parts = bulk_effective_sample_size(self.parts)
        return bulk_effective_sample_size(self.log_rows) if np.isnan(of_parts) else of_parts

    def sizes(self) -> tuple[Float64[np.ndarray, " size"], Float64[np.ndarray, " size"]]:
        """Return p(K | rows) of K = 1, 2, … and its Monte Carlo error.

        No error is smaller than the change that one missed visit elsewhere could make.
        """
        probability, error = _mean_and_error(self.size_probability)
        return probability, np.maximum(error, self._doubt)

    def occupied(self) -> tuple[Float64[np.ndarray, " number"], Float64[np.ndarray, " number"]]:
        """Return p(K₊ | rows) of K₊ = 1, 2, … up to the largest number visited, and its Monte Carlo error.

        No error is smaller than that of the same effective number of independent visits, one of which is in doubt.
        """
        numbers = np.arange(1, self.parts.max() + 1)
        probability, error = _mean_and_error((self.parts[..., None] == numbers).mean(1))
        doubted = self._doubt + probability * (1 - 2 * self._doubt)
        return probability, np.maximum(error, np.sqrt(doubted * (1 - doubted) * 2 * self._doubt))

    @property
    def _doubt(self) -> float:
        """Half a visit as a share of the effective number of independent visits, which is at least one per chain."""
        return 0.5 / (np.nan_to_num(self.effective_sample_size, nan=len(self.parts)) + 1)

    def is_settled(self, precision: float) -> bool:
        """Return whether chains agree and no probability of a size has a Monte Carlo error above `precision`."""
        return self.rhat <= MOST_RHAT and bool(self.sizes()[1].max() <= precision)


def _mean_and_error(each: Float64[np.ndarray, "chain number"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over chains and its standard error."""
    return each.mean(0), each.std(0, ddof=1) / np.sqrt(len(each))


class _Blocks(NamedTuple):
    """The record of blocks of sweeps, block after block."""

    size_probability: list[np.ndarray]  # (size, chain) each
    parts: list[np.ndarray]  # (sweep, chain) each
    log_rows: list[np.ndarray]  # (sweep, chain) each

    def late_half(self) -> PartitionTrace:
        """Return the trace of the blocks without their first half."""
        n = len(self.parts)
        late = slice(n // 2, n)
        return PartitionTrace(
            np.asarray(np.mean(self.size_probability[late], axis=0, dtype=np.float64)).T,
            np.concatenate(self.parts[late]).T,
            np.concatenate(self.log_rows[late]).T.astype(np.float64),
            n * BLOCK,
        )


def partition_chain(
    model: RowMixture, data: Dataset, log_prior: Float64[np.ndarray, " size"], places: int
) -> PartitionChain:
    """Return chains over the partitions of some rows into at most `places` parts.

    log_prior: log p(K) of K = 1, 2, …, nats.

    Raises ValueError for a model whose components are not integrated out.
    """
    places = capacity_of((min(places, data.n_units),))[0]
    chain = evidence_chain(model, data, (places,), None)
    hyper = chain if isinstance(chain, HyperMixture) else None
    mixture = chain if hyper is None else hyper.mixture
    if not isinstance(mixture, CollapsedMixtureChain):
        raise ValueError(
            f"got {model.describe()}, expected a mixture of rows whose components are integrated out: a FiniteMixture, "
            "a TiedMixture or an IndependentNormalMixture"
        )
    concentrations = np.array([concentration_at(model, size) for size in range(1, len(log_prior) + 1)])
    seating = SeatPrior.from_prior(log_prior, concentrations, int(np.sum(mixture.weight > 0)), mixture.capacity)
    return PartitionChain(mixture, hyper, seating)


def concentration_at(model: RowMixture, size: int) -> float:
    """Return a, each component's share of the concentration at this size."""
    if isinstance(model, IndependentNormalMixture):
        return float(model.concentration)
    if isinstance(model, TiedMixture):
        return float(model.independent.concentration_at(size))
    return float(model.concentration_at(size))


def run_partitions(
    make_chain: Callable[[int], PartitionChain],
    key: Key[Array, ""],
    *,
    precision: float,
    most_sweeps: int,
    chains: int = CHAINS,
) -> PartitionTrace:
    """Run chains until they agree and every p(K | rows) has a Monte Carlo error of at most `precision`.

    make_chain: returns the chains with room for the given number of parts; called with twice as many whenever one is
        full.
    precision: the largest Monte Carlo error.
    most_sweeps: number of sweeps of each chain after which the run ends in any case; the trace then says that it has
        not settled.
    chains: number of chains.
    """
    key_begin, key_run = split_key(key)
    with jax.enable_x64(True):
        chain = make_chain(FIRST_PLACES)
        state, blocks = begin(chain, key_begin, particles=chains), _Blocks([], [], [])
        asked = FEWEST_BLOCKS
        while True:
            number = len(blocks.parts)
            after, probability, parts, log_rows = advance(chain, folded(key_run, number, chain.n_places), state)
            if int(np.max(parts)) >= chain.n_places and chain.n_places < chain.n_rows:
                chain = make_chain(2 * chain.n_places)
                state = widen(chain, state)
                continue  # repeat the block with more places
            state = after
            for kept, new in zip(blocks, (probability, parts, log_rows), strict=True):
                kept.append(np.asarray(new))
            if number + 1 < asked:  # agreement is tested after numbers of blocks that grow by a factor of 1.5
                continue
            trace = blocks.late_half()
            if trace.is_settled(precision) or trace.sweeps >= most_sweeps:
                return trace
            asked = -(-3 * asked // 2)


@kernel(static_argnames=("particles",), brief=True)
def begin(chain: PartitionChain, key: Array, *, particles: int) -> PartitionState:
    """Return first states of the chains (compiled)."""
    return chain.init(key, particles)


@kernel(brief=True)
def widen(chain: PartitionChain, state: PartitionState) -> PartitionState:
    """Return states of a chain with fewer places as states of this one (compiled)."""
    return chain.widen(state)


@kernel(short=True)
def advance(
    chain: PartitionChain, key: Array, state: PartitionState
) -> tuple[PartitionState, Float[Array, "size particle"], Int[Array, "sweep particle"], Float[Array, "sweep particle"]]:
    """Run `BLOCK` sweeps of all chains (compiled).

    Returns the states after them, the average of p(K | partition) over them, and after every sweep the number of
    occupied parts and log p(rows | partition).
    """
    particles = state.labels.shape[1]

    def one(
        index: Array, carry: tuple[PartitionState, Array, Array, Array]
    ) -> tuple[PartitionState, Array, Array, Array]:
        state, probability, parts, log_rows = carry
        state = chain.step(jax.random.fold_in(key, index), state)
        counts = state.counts
        probability = probability + jnp.exp(chain.seating.log_sizes(counts)) / BLOCK
        parts = parts.at[index].set((counts > 0.5).sum(0).astype(jnp.int32))
        return state, probability, parts, log_rows.at[index].set(chain.log_rows(state))

    blank = jnp.zeros((len(chain.seating.concentrations), particles))
    parts = jnp.zeros((BLOCK, particles), jnp.int32)
    return jax.lax.fori_loop(0, BLOCK, one, (state, blank, parts, jnp.zeros((BLOCK, particles))))
