"""Chains over partitions run until they agree, and the posterior of the number of components from them.

Every draw of a partition says p(K | partition) for all K at once, so that p(K | rows) is the average of it, not a count
of visits (Rao and Blackwell). The number of occupied components is a count of visits. Chains are independent: an error
is the standard deviation of their averages over the square root of their number.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

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
"""Sweeps of one compiled call, and of one recorded average."""
FIRST_PLACES = 16
"""Number of array slots (places) for parts at first. It is doubled when chains fill all of them."""
FULL, FULL_SHARE = 0.05, 0.1
"""Two limits on the share of draws that fill all places, above which the places are doubled. `FULL` holds for the draws
of the last block. `FULL_SHARE`, times the precision, holds for all kept draws: above it the answer would be distorted.
"""
CHAINS = 16
"""Number of independent chains, side by side on the last axis of every array."""
MOST_RHAT = 1.05
"""R̂ above which chains do not agree."""
FEWEST_BLOCKS = 8
"""Number of blocks after which chains are first tested for agreement; the first half of all blocks is left out."""
LONGER = 1.25
"""The factor by which chains are lengthened before they are tested again."""

VISITED = ("parts", "log_rows", "size_probability")
"""The fields of a run that every block adds to."""

RowMixture = FiniteMixture | TiedMixture | IndependentNormalMixture
"""Mixtures of rows whose components are integrated out."""


class PartitionTrace(NamedTuple):
    """What chains over partitions visited after the first half of their sweeps, which is left out.

    | field | meaning |
    |---|---|
    | `size_probability` | average of p(K given the partition), K = 1, 2, …, (chain, size) |
    | `parts` | occupied components after every sweep, (chain, draw) |
    | `log_rows` | log p(rows given the partition) after every sweep but for carriers, nats, (chain, draw) |
    | `sweeps` | of each chain, those left out too |
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
        """Effective draws of all chains together for the number of occupied components, or, where that never varies,
        for log p(rows | partition); NaN where neither does."""
        of_parts = bulk_effective_sample_size(self.parts)
        return bulk_effective_sample_size(self.log_rows) if np.isnan(of_parts) else of_parts

    def sizes(self) -> tuple[Float64[np.ndarray, " size"], Float64[np.ndarray, " size"]]:
        """Return (p(K | rows), its Monte Carlo error) of K = 1, 2, …

        No error is smaller than what one visit elsewhere, which may have been missed, could change.
        """
        probability, error = _over_chains(self.size_probability)
        return probability, np.maximum(error, self._doubt)

    def occupied(self) -> tuple[Float64[np.ndarray, " number"], Float64[np.ndarray, " number"]]:
        """Return (p(K₊ | rows), its Monte Carlo error) of K₊ = 1, 2, … up to the most that was visited.

        No error is smaller than that of as many independent visits as the chains are worth, one of them in doubt.
        """
        numbers = np.arange(1, self.parts.max() + 1)
        probability, error = _over_chains((self.parts[..., None] == numbers).mean(1))
        doubted = self._doubt + probability * (1 - 2 * self._doubt)
        return probability, np.maximum(error, np.sqrt(doubted * (1 - doubted) * 2 * self._doubt))

    @property
    def _doubt(self) -> float:
        """Half a visit among as many independent ones as the chains are worth: at least one of each chain."""
        return 0.5 / (np.nan_to_num(self.effective_sample_size, nan=len(self.parts)) + 1)

    def is_settled(self, precision: float) -> bool:
        """Whether chains agree and no probability of a size has a Monte Carlo error above `precision`."""
        return self.rhat <= MOST_RHAT and bool(self.sizes()[1].max() <= precision)


def _over_chains(each: Float64[np.ndarray, "chain number"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over independent chains, and its standard error."""
    return each.mean(0), each.std(0, ddof=1) / np.sqrt(len(each))


class PartitionRun(NamedTuple):
    """Chains as far as they have come: all that it takes to go on with them, and what they have visited.

    | field | meaning |
    |---|---|
    | `labels` | place and variant of each row, (row, chain) |
    | `log_hyper` | log h by name, (column, chain); no entry where nothing has a prior |
    | `places` | places for parts |
    | `parts` | occupied components after every sweep, (block, sweep, chain) |
    | `log_rows` | log p(rows given partition) after every sweep but for carriers, nats, (block, sweep, chain) |
    | `size_probability` | averages of p(K given partition), (block, chain, size) |
    | `spent` | blocks that were run in all, those before places were added too |
    """

    labels: Int[np.ndarray, "row chain"]
    log_hyper: Mapping[str, Float64[np.ndarray, "column chain"]]
    places: int
    parts: Int[np.ndarray, "block sweep chain"]
    log_rows: Float64[np.ndarray, "block sweep chain"]
    size_probability: Float64[np.ndarray, "block chain size"]
    spent: int

    @property
    def blocks(self) -> int:
        """Blocks since places were last added."""
        return len(self.parts)

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask the chains whether they agree: after 8 blocks, 10, 13, 17, …"""
        return self.blocks in _asked_after(self.blocks)

    def trace(self) -> PartitionTrace:
        """Return what was visited, without the first half."""
        late = slice(self.blocks // 2, None)
        parts, log_rows = (np.concatenate(each[late]).T for each in (self.parts, self.log_rows))
        return PartitionTrace(self.size_probability[late].mean(0), parts, log_rows, self.blocks * BLOCK)

    def lacks_places(self, precision: float, n_rows: int) -> bool:
        """Whether draws that fill all places, and so had no room for one part more, are too many for this precision."""
        if self.places >= n_rows:
            return False
        if (self.parts[-1] >= self.places).mean() > FULL:
            return True
        return self.is_due and bool((self.trace().parts >= self.places).mean() > FULL_SHARE * precision)


@cache
def _asked_after(most: int) -> frozenset[int]:
    """Numbers of blocks, up to `most`, after which chains are asked whether they agree."""
    numbers = [FEWEST_BLOCKS]
    while numbers[-1] < most:
        numbers.append(math.ceil(LONGER * numbers[-1]))
    return frozenset(numbers)


def partition_chain(
    model: RowMixture, data: Dataset, log_prior: Float64[np.ndarray, " size"], places: int
) -> PartitionChain:
    """Return chains over the partitions of some rows into at most `places` parts.

    log_prior: log p(K) of K = 1, 2, …, nats. Raises ValueError for a model whose components are not integrated out.
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

    make_chain: the chains with room for so many parts.
    most_sweeps: after so many sweeps of each chain the run ends all the same; the trace then says that it has not
        settled.
    """
    run, make_chain = None, cache(make_chain)
    while run is None or not is_enough(run, precision, most_sweeps):
        run = lengthened(make_chain, key, run, precision=precision, chains=chains)
    return run.trace()


def is_enough(run: PartitionRun, precision: float, most_sweeps: int) -> bool:
    """Return whether chains agree and are precise enough, or have made `most_sweeps` sweeps.

    Agreement is tested after fixed numbers of blocks only. So a run that was interrupted and resumed ends at the same
    length as one that was not.
    """
    too_long = run.spent * BLOCK >= most_sweeps
    return run.blocks > 0 and (too_long or (run.is_due and run.trace().is_settled(precision)))


def lengthened(
    make_chain: Callable[[int], PartitionChain],
    key: Key[Array, ""],
    run: PartitionRun | None,
    *,
    precision: float,
    chains: int = CHAINS,
) -> PartitionRun:
    """Return the run after one more block of sweeps.

    make_chain: makes the chains that have a given number of places. Where too many draws fill all places, the number is
        doubled, and the draws recorded before are discarded.
    key: the key of the whole run.
    run: the run so far; None begins a new one.
    precision: the Monte Carlo error that is asked for.
    chains: number of chains of a new run.
    """
    key_begin, key_run = split_key(key)
    with jax.enable_x64(True):
        chain = make_chain(FIRST_PLACES if run is None else run.places)
        if run is None:
            state = chain.init(key_begin, chains)
        else:
            log_hyper = {name: jnp.asarray(each) for name, each in run.log_hyper.items()}
            worth = jnp.zeros(run.labels.shape[1])  # a block begins with a sweep, which knows it anew
            state = PartitionState(jnp.asarray(run.labels), log_hyper, worth)
        spent = 0 if run is None else run.spent
        state, probability, parts, log_rows = advance(chain, folded(key_run, spent), state)
        parts = np.asarray(parts)
        table = chain.seating.size_given_parts
        size_probability = np.asarray(probability).T if table is None else np.asarray(table)[parts].mean(0)
        log_hyper = {name: np.asarray(each, np.float64) for name, each in state.log_hyper.items()}
        new = PartitionRun(
            np.asarray(state.labels),
            log_hyper,
            chain.n_places,
            parts[None],
            np.asarray(log_rows, np.float64)[None],
            np.asarray(size_probability, np.float64)[None],
            spent + 1,
        )
        if run is not None and run.blocks:
            joined = (np.concatenate([getattr(run, name), getattr(new, name)]) for name in VISITED)
            new = new._replace(**dict(zip(VISITED, joined, strict=True)))
        if not new.lacks_places(precision, chain.n_rows):
            return new
        wider = make_chain(2 * chain.n_places)
        forgotten = {name: getattr(new, name)[:0] for name in VISITED}
        return new._replace(places=wider.n_places, **forgotten)


@kernel(once=True, short=True)
def advance(
    chain: PartitionChain, key: Array, state: PartitionState
) -> tuple[
    PartitionState, Float[Array, "size particle"] | None, Int[Array, "sweep particle"], Float[Array, "sweep particle"]
]:
    """Return the states after `BLOCK` sweeps, the average of p(K | partition) over them (None where the number of parts
    says it), and after every sweep the number of occupied parts and log p(rows | partition)."""
    particles, seating = state.labels.shape[1], chain.seating

    def one(index: Array, carry: Any) -> Any:
        state, probability, parts, log_rows = carry
        state = chain.step(jax.random.fold_in(key, index), state)
        counts = chain.counts(state.labels)
        if probability is not None:
            probability = probability + jnp.exp(seating.log_sizes(counts)) / BLOCK
        parts = parts.at[index].set((counts > 0.5).sum(0).astype(jnp.int32))
        return state, probability, parts, log_rows.at[index].set(state.log_rows)

    blank = None if seating.is_summed else jnp.zeros((len(seating.concentrations), particles))
    parts = jnp.zeros((BLOCK, particles), jnp.int32)
    return jax.lax.fori_loop(0, BLOCK, one, (state, blank, parts, jnp.zeros((BLOCK, particles))))
