"""Run chains over allocations of rows until they agree, and compute the posterior of the number of components K.

An allocation says which rows, or columns, are together in a part: an occupied component, or a feature that some row has
(`contract`). Every draw of an allocation yields p(K | allocation) for all K at once. So p(K | rows) is an average of
these, not a count of visits (Rao and Blackwell). The number of parts is a count of visits. Chains draw independently of
each other: an error is the standard deviation of their averages over the square root of their number. Chains may go on
from the same state after a warm-up; that they agree does not show then that each of them would have found this state.

Sixteen chains may agree by chance, and a run ends when their error is small enough. So it would end where the error is
understated. The blocks of sweeps of each chain are a second witness: the error is never below the one that they would
have if they were independent of each other.

K is one number for each side of a model: one for mixtures and features, two for the rows and columns of a block model.
So tables over sizes have the axes *size, and tables over numbers of parts *number. R̂ is the largest of those of the
number of parts on each side and of log p(rows | allocation).
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Key

from lvsearch.inference.allocation_chains.contract import AllocationChain, AllocationState
from lvsearch.inference.diagnostics import MOST_RHAT, bulk_effective_sample_size, rhat
from lvsearch.inference.generators import fold_in, split_key
from lvsearch.inference.sharding import one_after_another
from lvsearch.models.kernels import kernel

BLOCK = 32
"""How many sweeps one compiled call makes, and one recorded average covers."""
SWEEPS_PER_DRAW = 8
"""The allocation after every so many sweeps is recorded, where each row is in one part."""
FULL, FULL_SHARE = 0.05, 0.1
"""Two limits on the share of draws that fill all places, above which the places are doubled. `FULL` holds for the draws
of the last block. `FULL_SHARE`, times the precision, holds for all kept draws: above it the answer would be distorted.
"""
FULL_IN_WARM_UP = 0.5
"""The share of the draws of a block of warm-up that fill all places, above which the places are doubled at once."""
CHAINS = 16
"""The number of independent chains, side by side on the last axis of every array."""
WARM_UP_BLOCKS = 3
"""The number of blocks in which chains that have a warm-up make it, at first and after places were added. Nothing of
them is recorded.
"""
FEWEST_BLOCKS = 8
"""The number of blocks after which chains are first tested for agreement."""
FIRST_LOOK = FEWEST_BLOCKS // 2
"""The number of blocks after which it is first asked if chains without a warm-up need more places. So fewer sweeps are
lost. A warm-up asks by itself.
"""
BURN_IN, BURN_IN_AFTER_WARM_UP = 1 / 4, 1 / 2
"""The share of the recorded blocks, the first ones, that is discarded as burn-in: of chains without and with a warm-up.

Chains without one begin far apart, and R̂ of what is kept shows whether some have not arrived yet. After a warm-up they
may go on from one state, so that R̂ cannot show it, and more is discarded.
"""
LOG_ROWS_DECIMALS = 6
"""Decimal places, in nats, to which log p(rows | allocation) is rounded before chains are compared.

Chains sum the same allocation in different orders, and ranks would take the rounding errors for disagreement. R̂ was 2.4
on three clear clusters that all chains had found.
"""
LONGER = 1.25
"""The factor by which chains are lengthened before they are tested again."""

VISITED = ("parts", "log_rows", "size_probability")
"""The fields of an `AllocationRun` that every block adds to."""


class AllocationDraws(NamedTuple):
    """Allocations that were recorded after every eighth sweep, with the hyper-parameters of the same states.

    | field | meaning |
    |---|---|
    | `groups` | the part of each row, (draw, row, chain); without rows where a row may be in several |
    | `log_hyper` | the logarithm of each hyper-parameter that has a prior, by name, (draw, number, chain) |
    | `cells` | the cells of rows that lack some, where these are latent, (draw, partial, dim, chain); else None |
    """

    groups: Int[Array | np.ndarray, "draw row chain"]
    log_hyper: Mapping[str, Float[Array | np.ndarray, "draw number chain"]]
    cells: Float[Array | np.ndarray, "draw partial dim chain"] | None = None

    def last(self, number: int) -> "AllocationDraws":
        """Return the last `number` draws, or all of them if there are fewer."""
        first = max(0, len(self.groups) - number)
        return jax.tree.map(lambda each: each[first:], self)

    def followed_by(self, others: "AllocationDraws") -> "AllocationDraws":
        """Return these draws and then others of the same chains."""
        if not len(self.groups):
            return others
        return jax.tree.map(lambda *both: np.concatenate(both), self, others)


NO_DRAWS = AllocationDraws(np.zeros((0, 0, 0), np.int32), {})
"""No recorded allocations."""


class AllocationTrace(NamedTuple):
    """The record of chains over allocations, without their first sweeps (`BURN_IN`).

    | field | meaning |
    |---|---|
    | `size_probability` | average of p(K given the allocation) for sizes 1, 2, … of each side, (chain, *size) |
    | `parts` | number of parts on each side after every sweep, (side, chain, draw) |
    | `log_rows` | log p(rows given the allocation) without carriers after every sweep, nats, (chain, draw) |
    | `sweeps` | how many sweeps each chain made, with those left out |
    | `arrival` | from which sweep on all chains have been at one allocation, counted from 1 |
    | `least_error` | the standard error of p(K) if blocks of sweeps were independent (`error_of_blocks`), (*size) |
    | `draws` | the allocations after every eighth sweep, with their hyper-parameters |

    A carrier is the term of a row's log density that no parameter changes.
    """

    size_probability: Float64[np.ndarray, "chain *size"]
    parts: Int[np.ndarray, "side chain draw"]
    log_rows: Float64[np.ndarray, "chain draw"]
    sweeps: int
    arrival: int
    least_error: Float64[np.ndarray, "*size"] | float = 0.0
    draws: AllocationDraws = NO_DRAWS

    @property
    def rhat(self) -> float:
        """The largest R̂ of the numbers of parts on each side and of log p(rows | allocation)."""
        return max(rhat(each) for each in (*self.parts, self.log_rows))

    @property
    def effective_sample_size(self) -> float:
        """The number of independent draws that all chains together are worth, for the number of parts.

        It is the smallest of those of the sides whose number varies. If no number ever varies, the log-probability of
        the rows given the allocation stands in; NaN if that does not vary either. See `visits` for what the chains are
        worth then.
        """
        of_parts = [bulk_effective_sample_size(each) for each in self.parts]
        known = [each for each in of_parts if not np.isnan(each)]
        return min(known) if known else bulk_effective_sample_size(self.log_rows)

    def sizes(self) -> tuple[Float64[np.ndarray, "*size"], Float64[np.ndarray, "*size"]]:
        """Return the posterior of the sizes K = 1, 2, … and its Monte Carlo errors.

        No error is below `least_error`, nor smaller than the change that one visit to another size, which may have been
        missed, could make.

        Returns: (p(K | rows), standard errors), each (*size).
        """
        probability, error = _mean_and_standard_error(self.size_probability)
        return probability, np.maximum(np.maximum(error, self.least_error), self._doubt)

    def occupied(self) -> tuple[Float64[np.ndarray, "*number"], Float64[np.ndarray, "*number"]]:
        """Return the posterior of the number of parts, and its Monte Carlo errors.

        No error is below √(2 q (1 − q) d), with d = ½ / (n + 1), n the effective number of independent visits, and
        q = d + p (1 − 2 d) the probability p moved a little towards ½. So a number that was never or always visited has
        an error too.

        Returns: (probabilities of the numbers on each side from `fewest_parts` to the most that was visited, standard
            errors), each (*number).
        """
        places = tuple(self.parts - self.fewest_parts)
        shape = tuple(int(each.max()) + 1 for each in places)
        flat = np.asarray(np.ravel_multi_index(places, shape))  # which cell of the table each draw is in, (chain, draw)
        shares = (flat[..., None] == np.arange(math.prod(shape))).mean(1)
        probability, error = (each.reshape(shape) for each in _mean_and_standard_error(shares))
        doubted = self._doubt + probability * (1 - 2 * self._doubt)
        return probability, np.maximum(error, np.sqrt(doubted * (1 - doubted) * 2 * self._doubt))

    @property
    def fewest_parts(self) -> int:
        """The number of parts that tables of their number begin with: 0 if some draw had no part on a side, else 1."""
        return min(1, int(self.parts.min()))

    @property
    def visits(self) -> float:
        """The number of independent visits that all chains together are worth: their effective draws, if anything
        varies.

        If nothing varies, c chains that began far apart all came to one allocation within a sweeps (`arrival`), and in
        n sweeps none of them left it. In the long run a chain leaves as often as it comes back. So the odds of all
        other allocations are the chance to leave in one sweep over the chance to come back: about 1/(c n) at most over
        1/a at least. The chains are therefore worth c n / a visits, or c of them if that is more.
        """
        effective = self.effective_sample_size
        if not np.isnan(effective):
            return effective
        chains, draws = self.log_rows.shape
        return chains * max(1.0, draws / max(self.arrival, 1))

    @property
    def _doubt(self) -> float:
        """Half a visit, as a fraction of the independent visits that the chains are worth.

        Chains that disagree may be worth fewer visits than there are chains, because several of them may have stayed
        near their starts.
        """
        return 0.5 / (self.visits + 1)

    def is_settled(self, precision: float, *, of_parts: bool = False, most_rhat: float = MOST_RHAT) -> bool:
        """Return True if chains agree and no probability of a size has a Monte Carlo error above `precision`.

        of_parts: whether this must hold of the number of parts too.
        most_rhat: the largest R̂ at which chains count as agreeing.
        """
        tables = (self.sizes(), self.occupied()) if of_parts else (self.sizes(),)
        return self.rhat <= most_rhat and all(bool(error.max() <= precision) for _, error in tables)


def _mean_and_standard_error(each: Float64[np.ndarray, "chain *number"]) -> tuple[np.ndarray, np.ndarray]:
    """Return (the mean over independent chains, its standard error), each (*number).

    each: a quantity of every chain, (chain, *number).
    """
    return each.mean(0), each.std(0, ddof=1) / np.sqrt(len(each))


def error_of_blocks(averages: Float64[np.ndarray, "block chain *size"]) -> Float64[np.ndarray, "*size"]:
    """Return the standard error of the mean of all blocks if the blocks of a chain were independent of each other.

    Blocks that follow each other are alike, if anything, so that the error is at least this. It comes from how blocks
    differ within their chain: blocks × chains numbers, where the averages of chains are few and may agree by chance.

    averages: of p(K | allocation) over the sweeps of each block, (block, chain, *size).

    Returns: the standard error of p(K | rows), (*size); 0 if there is one block only, which says nothing.
    """
    n_blocks, n_chains, *sizes = averages.shape
    if n_blocks < 2:
        return np.zeros(sizes)
    return np.sqrt(averages.var(0, ddof=1).mean(0) / (n_blocks * n_chains))


class AllocationRun(NamedTuple):
    """Unfinished chains: all that it takes to go on with them, and what they have visited.

    | field | meaning |
    |---|---|
    | `labels` | the allocations, in the form that their chain gives them (`AllocationState`), (…, chain) |
    | `log_hyper` | logarithm of each hyper-parameter by name, (column, chain); no entry if it has no prior |
    | `places` | how many array slots for parts there are on each side |
    | `parts` | number of parts on each side after every sweep, (block, sweep, side, chain) |
    | `log_rows` | log p(rows given allocation) without carriers after every sweep, nats, (block, sweep, chain) |
    | `size_probability` | averages of p(K given allocation), (block, chain, *size) |
    | `spent` | how many blocks were run in all, also those before array slots were last added |
    | `warm_up_left` | how many blocks of warm-up are still to come |
    | `draws` | the allocations after every eighth sweep of the blocks not left out, with hyper-parameters |
    | `cells` | the cells of rows that lack some, where these are latent, (partial, dim, chain); else None |
    | `has_warm_up` | whether the chains make a warm-up (`AllocationChain.has_warm_up`) |
    """

    labels: Int[np.ndarray, "row *place chain"]
    log_hyper: Mapping[str, Float64[np.ndarray, "column chain"]]
    places: int
    parts: Int[np.ndarray, "block sweep side chain"]
    log_rows: Float64[np.ndarray, "block sweep chain"]
    size_probability: Float64[np.ndarray, "block chain *size"]
    spent: int
    warm_up_left: int = 0
    draws: AllocationDraws = NO_DRAWS
    cells: Float64[np.ndarray, "partial dim chain"] | None = None
    has_warm_up: bool = False

    @property
    def blocks(self) -> int:
        """The number of blocks recorded since array slots were last added."""
        return len(self.parts)

    @property
    def left_out(self) -> int:
        """The number of blocks at the beginning that answers leave out, while chains were still on their way."""
        return int(self.blocks * (BURN_IN_AFTER_WARM_UP if self.has_warm_up else BURN_IN))

    @property
    def is_due(self) -> bool:
        """True if agreement of the chains is to be tested now: after 8 blocks, 10, 13, 17, …"""
        return self.blocks in _block_counts_tested_at(self.blocks)

    def best_labels(self, size: tuple[int, ...]) -> np.ndarray | None:
        """Return the last allocation of the chain where log p(rows | allocation) is highest, of those that have no more
        parts on any side than a size; None if no chain is at such an allocation.

        size: the most parts on each side.
        """
        if not self.blocks:
            return None
        fits = (self.parts[-1, -1] <= np.array(size)[:, None]).all(0)
        return self.labels[..., np.where(fits, self.log_rows[-1, -1], -np.inf).argmax()] if fits.any() else None

    def trace(self) -> AllocationTrace:
        """Return the record of the sweeps since array slots were last added, without the first blocks (`left_out`)."""
        late = slice(self.left_out, None)
        parts, log_rows = (np.concatenate(each) for each in (self.parts, self.log_rows))
        log_rows = np.round(log_rows, LOG_ROWS_DECIMALS)
        first = len(parts) - len(np.concatenate(self.parts[late]))
        has_moved = (parts != parts[-1, :, :1]).any((1, 2))
        elsewhere = np.flatnonzero(has_moved | (log_rows != log_rows[-1, 0]).any(1))
        # From this sweep on all chains have been at one allocation. Sweeps that are not recorded any more come before.
        arrival = (self.spent - self.blocks) * BLOCK + int(elsewhere.max(initial=-1)) + 1
        return AllocationTrace(
            self.size_probability[late].mean(0),
            parts[first:].transpose(1, 2, 0),
            log_rows[first:].T,
            self.blocks * BLOCK,
            arrival,
            error_of_blocks(self.size_probability[late]),
            self.draws,
        )

    def with_draws(self, new: AllocationDraws) -> "AllocationRun":
        """Return the run with allocations recorded after those that it has. Of these the first blocks are left out, as
        in `trace`.

        new: the draws of the last block.
        """
        late = (self.blocks - self.left_out) * (BLOCK // SWEEPS_PER_DRAW)
        return self._replace(draws=self.draws.followed_by(new).last(late))

    def lacks_places(self, precision: float, most_places: tuple[int, ...]) -> bool:
        """Return True if too many draws fill all array slots for this precision; such draws had no room for one more
        part.

        precision: the Monte Carlo error that is asked for.
        most_places: the number of slots on each side that is always enough.
        """
        if share_of_full(self.parts[-1], self.places, most_places) > FULL:
            return True
        is_asked = self.is_due or (self.blocks == FIRST_LOOK and not self.has_warm_up)
        return (
            is_asked and share_of_full(self.parts[self.left_out :], self.places, most_places) > FULL_SHARE * precision
        )


def share_of_full(parts: Int[np.ndarray, "*sweep side chain"], places: int, most_places: tuple[int, ...]) -> float:
    """Return the share of draws that fill all array slots of a side that could have more.

    parts: the numbers of parts, (sweep, side, chain), or (block, sweep, side, chain).
    places: how many slots a side has. most_places: how many are always enough on each side.
    """
    is_full = (parts >= places) & (places < np.asarray(most_places)[:, None])
    return float(is_full.any(-2).mean())


@cache
def _block_counts_tested_at(most: int) -> frozenset[int]:
    """Return the numbers of blocks, up to `most` or a little more, after which agreement of the chains is tested."""
    numbers = [FEWEST_BLOCKS]
    while numbers[-1] < most:
        numbers.append(math.ceil(LONGER * numbers[-1]))
    return frozenset(numbers)


def run_chains(
    make_chain: Callable[[int | None], AllocationChain],
    key: Key[Array, ""],
    *,
    precision: float,
    most_sweeps: int,
    fewest_sweeps: int = 0,
    chains: int = CHAINS,
    of_parts: bool = False,
    most_rhat: float = MOST_RHAT,
) -> AllocationTrace:
    """Run chains until they agree and every p(K | rows) has a Monte Carlo error of at most `precision`.

    make_chain: number of array slots for parts -> chains with so many; None: with as many as they begin with.
    key: the random key of the run.
    precision: the largest Monte Carlo error of a probability.
    most_sweeps: after so many sweeps of each chain the run ends in any case; the trace then says that it has not
        settled.
    fewest_sweeps: the run does not end before so many sweeps of each chain.
    chains: how many independent chains run side by side.
    of_parts: whether the precision holds of the number of parts too.
    most_rhat: the largest R̂ at which chains count as agreeing.
    """
    run, make_chain = None, cache(make_chain)
    while (
        run is None
        or run.blocks * BLOCK < fewest_sweeps
        or not is_enough(run, precision, most_sweeps, of_parts=of_parts, most_rhat=most_rhat)
    ):
        run = run_one_more_block(make_chain, key, run, precision=precision, chains=chains)
    return run.trace()


def is_enough(
    run: AllocationRun, precision: float, most_sweeps: int, *, of_parts: bool = False, most_rhat: float = MOST_RHAT
) -> bool:
    """Return True if chains agree and are precise enough, or have made `most_sweeps` sweeps.

    Agreement is tested after fixed numbers of blocks only. So a run that was interrupted and resumed ends at the same
    length as one that was not.

    run: the run so far.
    precision: the largest Monte Carlo error of a probability.
    most_sweeps: the most sweeps of each chain.
    of_parts: whether the precision holds of the number of parts too.
    most_rhat: the largest R̂ at which chains count as agreeing.
    """
    if not run.blocks or run.spent * BLOCK >= most_sweeps:
        return run.blocks > 0
    return run.is_due and run.trace().is_settled(precision, of_parts=of_parts, most_rhat=most_rhat)


def run_one_more_block(
    make_chain: Callable[[int | None], AllocationChain],
    key: Key[Array, ""],
    run: AllocationRun | None,
    *,
    precision: float,
    chains: int = CHAINS,
) -> AllocationRun:
    """Return the run after one more block of sweeps.

    make_chain: number of array slots for parts -> chains with so many; None: with as many as they begin with. If too
        many draws fill all slots, their number is doubled, and the draws recorded before are discarded.
    key: the key of the whole run.
    run: the run so far; None begins a new one.
    precision: the Monte Carlo error that is asked for.
    chains: number of chains of a new run.
    """
    key_begin, key_run = split_key(key)
    with jax.enable_x64(True), one_after_another():
        chain = make_chain(None if run is None else run.places)
        state = chain.init(key_begin, chains) if run is None else chain.resume(run.labels, run.log_hyper, run.cells)
        spent, recorded = (0, 0) if run is None else (run.spent, run.blocks)
        warm_up_blocks = WARM_UP_BLOCKS if chain.has_warm_up else 0
        warm_up_left = warm_up_blocks if run is None else run.warm_up_left
        warming_up, key_block = warm_up_left > 0, fold_in(key_run, spent)
        state, probability, parts, log_rows, drawn = advance(chain, key_block, state, warming_up=warming_up)
        if warm_up_left == 1:
            state = end_warm_up(chain, fold_in(key_block, BLOCK), state)
        parts = np.asarray(parts)
        table = chain.size_given_parts
        if table is None:
            size_probability = np.moveaxis(np.asarray(probability), -1, 0)
        else:
            size_probability = np.asarray(table)[tuple(np.moveaxis(parts, 1, 0))].mean(0)
        log_hyper = {name: np.asarray(each, np.float64) for name, each in state.log_hyper.items()}
        new = AllocationRun(
            np.asarray(state.labels),
            log_hyper,
            chain.n_places,
            parts[None],
            np.asarray(log_rows, np.float64)[None],
            np.asarray(size_probability, np.float64)[None],
            spent + 1,
            max(0, warm_up_left - 1),
            cells=None if state.cells is None else np.asarray(state.cells, np.float64),
            has_warm_up=chain.has_warm_up,
        )
        if run is not None and recorded:
            joined = (np.concatenate([getattr(run, name), getattr(new, name)]) for name in VISITED)
            new = new._replace(**dict(zip(VISITED, joined, strict=True)), draws=run.draws)
        nothing = {name: getattr(new, name)[:0] for name in VISITED}
        if warming_up:
            lacks = share_of_full(parts, chain.n_places, chain.most_places()) > FULL_IN_WARM_UP
            new = new._replace(**nothing)
        else:
            groups = np.asarray(drawn.groups)
            log_hyper = {name: np.asarray(each, np.float64) for name, each in drawn.log_hyper.items()}
            cells = None if drawn.cells is None else np.asarray(drawn.cells, np.float64)
            new = new.with_draws(AllocationDraws(groups[:, groups[0, :, 0] >= 0], log_hyper, cells))  # without padding
            lacks = new.lacks_places(precision, chain.most_places())
        if not lacks:
            return new
        wider = make_chain(2 * chain.n_places)
        return new._replace(places=wider.n_places, warm_up_left=warm_up_blocks, draws=NO_DRAWS, **nothing)


@kernel(once=True, short=True, static_argnames=("warming_up",))
def advance(
    chain: AllocationChain, key: Array, state: AllocationState, *, warming_up: bool = False
) -> tuple[
    AllocationState,
    Float[Array, "*size particle"] | None,
    Int[Array, "sweep side particle"],
    Float[Array, "sweep particle"],
    AllocationDraws,
]:
    """Make `BLOCK` sweeps of every chain; return the new states and what was recorded.

    warming_up: whether chains make the moves of their warm-up instead of steps; then the draws must not be used.

    Returns: (the states; the average of p(K | allocation) over the sweeps, (size, particle); the number of parts on
        each side after every sweep, (sweep, side, particle); log p(rows | allocation) after every sweep, (sweep,
        particle), nats; the allocations after every eighth sweep). The average is None if p(K | allocation) depends on
        the numbers of parts alone.
    """
    particles = state.labels.shape[-1]
    move = chain.warm_up if warming_up else chain.step

    def to_record(state: AllocationState) -> AllocationDraws:
        groups = chain.groups(state.labels)
        return AllocationDraws(groups, state.log_hyper if len(groups) else {}, state.cells)

    def one(index: Array, carry: Any) -> Any:
        state, probability, parts, log_rows, drawn = carry
        state = move(jax.random.fold_in(key, index), state)
        if probability is not None:
            probability = probability + jnp.exp(chain.log_sizes(state)) / BLOCK
        parts = parts.at[index].set(chain.part_counts(state.labels))
        # a draw is written after each sweep, and the last one of its eight sweeps stays
        place = index // SWEEPS_PER_DRAW
        drawn = jax.tree.map(lambda kept, now: kept.at[place].set(now), drawn, to_record(state))
        return state, probability, parts, log_rows.at[index].set(state.log_rows), drawn

    blank = jnp.zeros_like(chain.log_sizes(state)) if chain.size_given_parts is None else None
    parts = jnp.zeros((BLOCK, *jax.eval_shape(chain.part_counts, state.labels).shape), jnp.int32)
    n_draws = BLOCK // SWEEPS_PER_DRAW
    drawn = jax.tree.map(lambda each: jnp.zeros((n_draws, *each.shape), each.dtype), jax.eval_shape(to_record, state))
    return jax.lax.fori_loop(0, BLOCK, one, (state, blank, parts, jnp.zeros((BLOCK, particles)), drawn))


@kernel(once=True)
def end_warm_up(chain: AllocationChain, key: Array, state: AllocationState) -> AllocationState:
    """Return the states with which chains go on after the last block of warm-up (`AllocationChain.end_warm_up`)."""
    return chain.end_warm_up(key, state)
