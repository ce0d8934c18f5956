"""The run loop of all samplers: chains side by side, which can be stopped and continued after any sweep.

Sweeps are numbered from 1, those of the warm-up included, and the random key of each sweep is folded with its number.
So draws do not depend on where a run was stopped: a continued run has the same bits as one that was never stopped. They
do depend on how many chains run side by side. A draw is recorded after every `thin`-th sweep that follows the warm-up.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64, Key

from lvsearch.inference.chains import Growing, Hosted, OneByOne, Sampler, State
from lvsearch.inference.compiles import counted
from lvsearch.inference.sampling.trace import Nothing, Recorder, Trace
from lvsearch.inference.sharding import one_after_another
from lvsearch.models.kernels import kernel

BLOCK = 64
"""The most sweeps of one compiled call. Slow sweeps are made in shorter calls, so that a run can be watched and
stopped.
"""
SHORTEST, LONGEST = 0.2, 1.0
"""Two durations of a compiled call in seconds. After a shorter one than the first, the next makes twice as many sweeps;
after a longer one than the second, half as many.
"""
GIVEN_STATE = 1
"""A number folded into the random key of a sweep, for what is drawn given the states that the sweep ended in."""


class _Position(NamedTuple):
    """The states of the chains and the number of the last sweep.

    Both are replaced as one object, so that an interruption finds either the old or the new pair.
    """

    state: State
    sweep: int


def run(
    chain: Sampler,
    key: Key[Array, ""],
    *,
    chains: int,
    draws: int,
    warmup: int,
    thin: int = 1,
    recorder: Recorder | None = None,
    after: Trace | None = None,
    done: Callable[[int], object] = lambda sweeps: None,
) -> Trace:
    """Draw `draws` times from the posterior with each of `chains` independent Markov chains, and return the trace.

    chain: the sampler. Its `init` draws where the chains begin.
    key: the random key of the whole run.
    chains: how many chains run side by side.
    draws: how many draws of each chain are recorded.
    warmup: how many sweeps are made before the first draw's.
    thin: how many sweeps lie between two draws.
    recorder: what to record beside log p(state, data); None records nothing else.
    after: a trace to continue, of the same chain, key, chains, warmup and thin. The run goes on until there are `draws`
        draws, those of the trace included.
    done: called with the number of sweeps just made, for example to show progress.

    The run is in float64. If a `Growing` sampler needed more array slots in some sweeps than it had, these sweeps are
    made again with more. An interruption by the keyboard ends the run early and keeps the draws made.

    Raises ValueError for counts that are too small, and for an `after` of another run.
    """
    if chains < 1 or draws < 0 or thin < 1 or warmup < 0:
        raise ValueError(
            f"got chains={chains}, draws={draws}, thin={thin}, warmup={warmup}; expected at least 1 of "
            "chains and of thin, and at least 0 of draws and of warmup"
        )
    record = Nothing() if recorder is None else recorder
    key_init, key_sweeps = jax.random.split(key)
    last, length = warmup + draws * thin, 1
    alone = isinstance(chain, OneByOne) and chain.one_by_one
    with jax.enable_x64(True), one_after_another() if alone else nullcontext():
        hosted = isinstance(chain, Hosted)
        advance = _advance_hosted if hosted else _advance
        fresh = chain.init(key_init, chains) if hosted else _init.eval_shape(chain, key_init, chains=chains)
        if after is None:
            state = fresh if hosted else jax.tree.map(np.asarray, _init(chain, key_init, chains=chains))
            position = _Position(state, 0)
            observe = _observed if hosted else _compiled_observed.eval_shape
            observed = observe(chain, record, key_sweeps, fresh)
            parts = [tuple(np.zeros((0, *one.shape), one.dtype) for one in observed)]
        else:
            _check_same_run(after, fresh, record, key, warmup, thin, last, any_shape=hosted)
            position = _Position(jax.tree.unflatten(jax.tree.structure(fresh), after.state), after.sweep)
            while isinstance(chain, Growing) and bool(chain.needs_more_room(position.state)):
                chain, before = chain.with_more_room(position.state)
                position = position._replace(state=before)
            _check_same_density(after, chain, position.state)
            parts = [tuple(np.moveaxis(values, 1, 0) for values in (after.log_density, *after.values))]
        try:
            while position.sweep < last:
                start, n = perf_counter(), min(length, last - position.sweep)
                state, seen = advance(chain, record, key_sweeps, position.state, position.sweep, n, warmup, thin)
                jax.block_until_ready(state)
                if isinstance(chain, Growing) and bool(chain.needs_more_room(state)):
                    chain, before = chain.with_more_room(position.state)
                    position = position._replace(state=before)
                    continue
                more = _draws_by(position.sweep + n, warmup, thin) - _draws_by(position.sweep, warmup, thin)
                if more:
                    parts.append(tuple(np.asarray(values)[:more] for values in seen))
                position = _Position(state, position.sweep + n)
                length = _next_length(length, perf_counter() - start)
                done(n)
        except KeyboardInterrupt:
            pass
        kept = _draws_by(position.sweep, warmup, thin)  # leave out draws of sweeps that an interruption made void
        log_density, *values = (np.moveaxis(_end_to_end(each)[:kept], 0, 1) for each in zip(*parts, strict=True))
        return Trace(
            quantities=record.quantities,
            values=tuple(values),
            log_density=log_density,
            state=tuple(np.asarray(leaf) for leaf in jax.tree.leaves(position.state)),
            key=np.asarray(jax.random.key_data(key)),
            sweep=position.sweep,
            warmup=warmup,
            thin=thin,
            asked=draws,
        )


def run_one_chain(
    chain: Sampler, key: Key[Array, ""], sweeps: int, recorder: Recorder
) -> tuple[Trace, Float64[np.ndarray, " sweep"]]:
    """Make `sweeps` sweeps of one chain, without a warm-up.

    chain: the sampler. key: the random key of the run. recorder: what to record after every sweep.

    Returns: (the trace, with a draw after every sweep; the seconds that each sweep took).

    Raises KeyboardInterrupt if the run was interrupted: a caller that asked for a whole chain cannot use a part of it.
    """
    seconds, begun = [], perf_counter()

    def note_seconds(n: int) -> None:
        """Share the seconds of one call of the loop evenly among the `n` sweeps that it made."""
        nonlocal begun
        now = perf_counter()
        seconds.extend([(now - begun) / n] * n)
        begun = now

    trace = run(chain, key, chains=1, draws=sweeps, warmup=0, recorder=recorder, done=note_seconds)
    if trace.draws < sweeps:
        raise KeyboardInterrupt
    return trace, np.array(seconds, np.float64)


def _next_length(length: int, seconds: float) -> int:
    """Return how many sweeps the next compiled call makes, if the last one made `length` sweeps in `seconds`
    seconds.
    """
    if seconds < SHORTEST:
        return min(2 * length, BLOCK)
    return -(-length // 2) if seconds > LONGEST else length


def _draws_by(sweep: Any, warmup: Any, thin: Any) -> Any:
    """Return how many draws are recorded in the first `sweep` sweeps.

    warmup: sweeps before the first draw's. thin: sweeps from one draw to the next.
    """
    return (sweep - warmup) // thin * (sweep >= warmup)


def _observed(chain: Sampler, record: Recorder, key: Array, state: State) -> tuple[Array | np.ndarray, ...]:
    """Return what is recorded of the present states: (log p(state, data), then each quantity).

    key: the random key of the last sweep; what is drawn given the states (`Recorder.draw`) has a key made from it.

    Each is an array (particle, …) with padding cut off. The log densities are in nats, float64.
    """
    pairs = zip(record.draw(jax.random.fold_in(key, GIVEN_STATE), chain, state), record.quantities, strict=True)
    cut = [values[(slice(None), *map(slice, quantity.shape))] for values, quantity in pairs]
    return (chain.log_density(state).astype(jnp.float64), *cut)


@kernel(static_argnames=("chains",))
@counted
def _init(chain: Sampler, key: Array, *, chains: int) -> State:
    """Return the first states of `chains` chains (`chain.init`), compiled."""
    return chain.init(key, chains)


@kernel()
@counted
def _advance(
    chain: Sampler, record: Recorder, key: Array, state: State, sweep: Any, n: Any, warmup: Any, thin: Any
) -> tuple[State, tuple[Array, ...]]:
    """Make `n` sweeps after sweep number `sweep`; return the new states and the draws recorded on the way.

    key: the random key of the run, which is folded with the number of each sweep.
    warmup, thin: sweeps before the first draw's, and from one draw to the next.

    Returns: (states, one array (`BLOCK` + 1, particle, …) for the log density and for each quantity, draws first).
        Entries after the last draw have no meaning.
    """
    one_row = jax.eval_shape(partial(_observed, chain, record), key, state)
    rows = tuple(jnp.zeros((BLOCK + 1, *row.shape), row.dtype) for row in one_row)  # the last one for no draw

    def one(index: Array, carry: tuple[State, tuple[Array, ...]]) -> tuple[State, tuple[Array, ...]]:
        state, rows = carry
        number = sweep + index + 1
        own_key = jax.random.fold_in(key, number)
        state = chain.step(own_key, state, jnp.ones(()), backward=False)
        before = _draws_by(number - 1, warmup, thin)
        due = _draws_by(number, warmup, thin) > before
        place = jnp.where(due, before - _draws_by(sweep, warmup, thin), BLOCK)
        row = jax.lax.cond(
            due,
            partial(_observed, chain, record, own_key),
            lambda _: tuple(jnp.zeros(row.shape, row.dtype) for row in one_row),
            state,
        )
        return state, tuple(old.at[place].set(new) for old, new in zip(rows, row, strict=True))

    return jax.lax.fori_loop(0, n, one, (state, rows))


def _advance_hosted(
    chain: Sampler, record: Recorder, key: Array, state: State, sweep: int, n: int, warmup: int, thin: int
) -> tuple[State, tuple[np.ndarray, ...]]:
    """Make `n` sweeps after sweep number `sweep` of a sampler that runs in Python (`Hosted`), one sweep after another.

    key: the random key of the run, which is folded with the number of each sweep.
    warmup, thin: sweeps before the first draw's, and from one draw to the next.

    Returns: (states, one array (draw, particle, …) for the log density and for each quantity); () if there was no draw.
    """
    rows, posterior = [], jnp.ones(())
    for number in range(sweep + 1, sweep + n + 1):
        own_key = _fold_in(key, number)
        state = chain.step(own_key, state, posterior, backward=False)
        if _draws_by(number, warmup, thin) > _draws_by(number - 1, warmup, thin):
            rows.append(_observed(chain, record, own_key, state))
    return state, tuple(_end_to_end([np.asarray(row)[None] for row in each]) for each in zip(*rows, strict=True))


def _end_to_end(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the draws of several calls as one array, (draw, …). Axes of varying length are padded with 0 to the
    longest.

    parts: the draws of each call, (draw, …).
    """
    longest = np.max([part.shape[1:] for part in parts], axis=0).tolist()

    def wide(part: np.ndarray) -> np.ndarray:
        more = [(0, length - now) for length, now in zip(longest, part.shape[1:], strict=True)]
        return np.pad(part, [(0, 0), *more]) if any(m for _, m in more) else part

    return np.concatenate([wide(part) for part in parts])


_fold_in = kernel()(jax.random.fold_in)
_compiled_observed = kernel()(_observed)
_log_density = kernel()(lambda chain, state: chain.log_density(state))


ANOTHER = (
    "got a trace of another run to continue; expected a trace of the same model, data, size, seed, number of chains "
    "and recorded quantities"
)
"""The message of the error for a trace that belongs to another run."""


def _check_same_run(
    trace: Trace, fresh: State, record: Recorder, key: Array, warmup: int, thin: int, last: int, *, any_shape: bool
) -> None:
    """Raise ValueError if a trace to be continued has another key, schedule, number of chains or shapes than this run.

    trace: the trace to continue.
    fresh: a first state of the chain, or its shapes.
    record: the recorder of this run.
    warmup, thin: sweeps before the first draw's, and from one draw to the next.
    last: the number of the last sweep of this run.
    any_shape: True if the shapes of states may differ beyond the number of chains.
    """
    if (trace.warmup, trace.thin) != (warmup, thin) or trace.sweep > last:
        raise ValueError(
            f"got a trace of warmup={trace.warmup}, thin={trace.thin} and {trace.draws} draws to continue, and "
            f"warmup={warmup}, thin={thin} and {(last - warmup) // thin} draws in all; expected the same warmup "
            "and thin, and no fewer draws"
        )

    def kind(leaf: Any) -> tuple[Any, ...]:
        return leaf.dtype, leaf.ndim, leaf.shape[: 1 if any_shape else None]

    same_key = np.array_equal(trace.key, jax.random.key_data(key))
    same_shapes = [*map(kind, jax.tree.leaves(fresh))] == [*map(kind, trace.state)]
    if not (same_key and same_shapes and trace.quantities == record.quantities):
        raise ValueError(ANOTHER)


def _check_same_density(trace: Trace, chain: Sampler, state: State) -> None:
    """Raise ValueError if the log density of the trace's last state differs from the recorded one.

    Then the model or the data are not those of the trace. Nothing is checked if the last sweep was not recorded.
    """
    if not trace.draws or trace.sweep != trace.warmup + trace.draws * trace.thin:
        return
    density = chain.log_density(state) if isinstance(chain, Hosted) else _log_density(chain, state)
    again = np.asarray(density)
    if not np.allclose(again, trace.log_density[:, -1], rtol=1e-6, atol=1e-6, equal_nan=True):
        raise ValueError(ANOTHER)
