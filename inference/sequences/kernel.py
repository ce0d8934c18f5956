"""Recursions over all sequences of a batch side by side: the mean field of hidden Markov models, and Viterbi's paths.

Row n has a hidden state z_n. ρ are the probabilities of the first state, A those of the transitions, and θ_k the
parameters of state k's rows. The result of the mean field is that of the generic one. With E[log ρ], E[log A] and the
rows' expected log densities l_nk, q(path) is a Markov chain with the potentials exp E[log A] and exp l. Let Z be its
normaliser. The bound is Σ_sequences log Z + log_prior(E[t]) + H[globals] in nats (Beal 2003, §3.4), with expected
statistics E[t] and the entropy H of q of all parameters.

The recursions run on probabilities, where every row is divided by its sum (Rabiner 1989, §V.A). So a row takes a matrix
product, where the exponential family's own recursion takes sums of exponentials. Potentials are kept above `floor`
times the largest, so that no sum is 0 in any precision. Recorded bounds are computed by the family's recursion, which
needs no floor.

`most_probable_paths` returns the most probable path of hidden states of every sequence, at a fit's parameters.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.ascent import AscentTrace, sweep_until_settled
from lvsearch.inference.engine.describing import in_data_order
from lvsearch.inference.engine.estimate import Estimate, capacity_of, padded_natural, point_of
from lvsearch.inference.engine.meanfield import Beliefs, cast, expected_statistics, globals_bound, unit_masks
from lvsearch.inference.mixtures.rows import pack_statistics, unpack_sums
from lvsearch.models.contract import Masks, Statistics
from lvsearch.models.families import MarkovChain, MarkovChainStatistics
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.kernels import kernel
from lvsearch.models.units import GroupOfRows

UNROLL = 4
"""The number of rows in one iteration of a compiled loop.

An iteration costs more overhead than a row of few sequences costs work.
"""


class Sequences(NamedTuple):
    """Sequences of one padded length.

    increments: sufficient statistics of each row, packed in one axis, (sequence, row, packed); 0 where nothing is
        known.
    present: which rows are not padding, (sequence, row).
    """

    increments: Float[Array | np.ndarray, "_ _ packed"]  # batches of one data set differ in length
    present: Bool[Array | np.ndarray, "_ _"]


class PathSums(NamedTuple):
    """The sums over all sequences that one forward–backward pass gives.

    | field | shape | meaning |
    |---|---|---|
    | `start` | (state,) | expected number of sequences that begin in each state |
    | `steps` | (state, state) | expected number of transitions, from and to |
    | `increments` | (state, packed) | sufficient statistics of the rows, summed with the probability of each state |
    | `log_total` | () | sum of the sequences' log normalisers, without the rows' base measure, nats |
    """

    start: Float[Array, " state"]
    steps: Float[Array, "state state"]
    increments: Float[Array, "state packed"]
    log_total: Float[Array, ""]


def log_rows(model: HiddenMarkov, g: dict[str, Statistics], batch: Sequences, on: Masks) -> Float[Array, "s row state"]:
    """Return E[log p(row | state)] of every row and state, nats, without the row's base measure log h.

    It is −inf for states that do not exist.

    g: expected statistics of the parameters, by variable.
    on: masks of the states that exist.
    """
    statistics = pack_statistics(model.components, g["components"]).astype(batch.increments.dtype)
    logits = jnp.einsum("srp,kp->srk", batch.increments, jnp.where(on["state"][:, None], statistics, 0.0))
    return jnp.where(on["state"], logits, -jnp.inf)


def forward_backward(
    model: HiddenMarkov, g: dict[str, Statistics], batch: Sequences, on: Masks
) -> tuple[Float[Array, "s row state"], Float[Array, "state state"], Float[Array, " s"]]:
    """Run the forward–backward recursions of all sequences of a batch.

    g: expected statistics of the parameters, by variable.
    on: masks of the states that exist.

    Returns the probability of each state for every row; expected transitions (from, to), summed over all sequences; and
    the log normaliser of each sequence without the rows' base measure, nats.
    """
    # Potentials are divided by their largest entry, and each α by its sum; both logs are added back in log Z.
    exists, here = on["state"], jnp.asarray(batch.present).T
    floor = jnp.finfo(batch.increments.dtype).tiny ** 0.45
    both = exists[:, None] & exists

    def potentials(log: Array, mask: Array) -> tuple[Array, Array]:
        """Return exp(log − largest) where `mask`, kept above the floor, and the largest."""
        known = jnp.where(mask, log, -jnp.inf)
        top = known.max(-1, keepdims=True)
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        return jnp.where(mask, jnp.maximum(jnp.exp(known - top), floor), 0.0), top[..., 0]

    dtype = batch.increments.dtype
    start, start_top = potentials(g["start"].astype(dtype), exists)
    transitions = jnp.where(both, jnp.maximum(jnp.exp(g["transitions"].astype(dtype)), floor), 0.0)
    rows, tops = potentials(jnp.swapaxes(log_rows(model, g, batch, on), 0, 1), exists)  # (row, s, state)

    def forth(before: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        """Make one step of the forward recursion."""
        potential, is_present = row
        arrived = (before @ transitions) * potential
        total = jnp.where(is_present, arrived.sum(-1), 1.0)
        alpha = jnp.where(is_present[:, None], arrived / total[:, None], before)
        return alpha, (alpha, total)

    # Forward: α_n(k) ∝ p(z_n = k, x_1 … x_n). Padding leaves α as it is.
    arrived = start * rows[0]
    total = jnp.where(here[0], arrived.sum(-1), 1.0)
    begin = arrived / total[:, None]
    alpha, totals = jax.lax.scan(forth, begin, (rows[1:], here[1:]), unroll=UNROLL)[1]
    alpha, totals = jnp.concatenate([begin[None], alpha]), jnp.concatenate([total[None], totals])
    log_z = jnp.where(here, jnp.log(totals) + tops, 0.0).sum(0) + jnp.where(here[0], start_top, 0.0)

    def back(after: Array, row: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        """Make one step of the backward recursion."""
        potential, is_present, total = row
        leaving = jnp.where(is_present[:, None], potential * after / total[:, None], 0.0)
        return jnp.where(is_present[:, None], leaving @ transitions.T, after), (after, leaving)

    # Backward: β_n(k) ∝ p(x_{n+1} … | z_n = k); then q(z_n) = α β, and steps are α (transition) (potential · β).
    end = jnp.ones_like(begin)
    beta, leaving = jax.lax.scan(back, end, (rows, here, totals), reverse=True, unroll=UNROLL)[1]
    shares = jnp.where(here[..., None], alpha * beta, 0.0)
    steps = transitions * jnp.einsum("rsi,rsj->ij", alpha[:-1], leaving[1:])
    return jnp.swapaxes(shares, 0, 1), steps, log_z


def path_sums(model: HiddenMarkov, g: dict[str, Statistics], batches: tuple[Sequences, ...], on: Masks) -> PathSums:
    """Run forward–backward over all sequences, and return the sums over rows and transitions.

    g: expected statistics of the parameters, by variable.
    on: masks of the states that exist.
    """
    found = []
    for batch in batches:
        shares, steps, log_z = forward_backward(model, g, batch, on)
        increments = jnp.einsum("srk,srp->kp", shares, batch.increments)
        found.append(PathSums(shares[:, 0].sum(0), steps, increments, log_z.sum()))
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *found)


def update_globals(model: HiddenMarkov, beliefs: Beliefs, sums: PathSums, on: Masks) -> Beliefs:
    """Return q of all parameters after a coordinate step, given the sums of a forward–backward pass.

    The parameters are independent of each other given the paths.

    on: masks of the states that exist.
    """
    prior = jax.grad(lambda g: model.log_prior(g, on))(beliefs.mean)
    components = unpack_sums(model.components, sums.increments, beliefs.natural["components"])
    counted = {"start": sums.start, "transitions": sums.steps, "components": components}
    natural = {name: jax.tree.map(jnp.add, prior[name], counted[name]) for name in prior}
    sites = model.globals()
    return Beliefs(natural, {name: expected_statistics(site, natural[name], on) for name, site in sites.items()})


@kernel(static_argnames=("capacity",), brief=True)
@counted
def ascend_paths(
    model: HiddenMarkov,
    beliefs: Beliefs,
    batches: tuple[Sequences, ...],
    size: tuple[Array | int, ...],
    tolerance: float | Array,
    sweeps: int | Array,
    *,
    capacity: tuple[int, ...],
) -> AscentTrace:
    """Run coordinate ascent until a sweep gains less than `tolerance` nats, and return its trace.

    It makes at most `sweeps` (and `TRACE_LENGTH`) sweeps. The bound recorded for a sweep belongs to the parameters
    before it, with q of the paths at its optimum. It leaves out the rows' base measure.

    beliefs: q of all parameters, to begin with.
    size, capacity: the number of states, and the number that arrays have room for.
    """
    on = model.active(size, capacity)

    def sweep(b: Beliefs, l: None) -> tuple[Beliefs, None, Array]:
        """Make one sweep: paths, then parameters. Returns q of the parameters, None, and the bound before the sweep,
        nats.
        """
        sums = path_sums(model, b.mean, batches, on)
        bound = sums.log_total + globals_bound(model, b, size, capacity=capacity)
        return update_globals(model, b, sums, on), l, bound

    return sweep_until_settled(sweep, beliefs, None, tolerance, sweeps, batches[0].increments.dtype)


@kernel(static_argnames=("capacity",), brief=True)
@counted
def beliefs_from(
    model: HiddenMarkov,
    shares: tuple[Float[Array | np.ndarray, "_ _ state"], ...],
    batches: tuple[Sequences, ...],
    blank: Beliefs,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Beliefs:
    """Return q of all parameters that follows from state probabilities of rows, with neighbouring rows independent.

    Starts and proposals enter the ascent this way.

    shares: the probability of each state for every row, (sequence, row, state), one array for each batch.
    blank: any beliefs of the right shapes, which are replaced.
    size, capacity: the number of states, and the number that arrays have room for.
    """
    sums = PathSums(*(jnp.zeros(()),) * 4)
    for batch, share in zip(batches, shares, strict=True):
        known = jnp.where(batch.present[..., None], share, 0.0)
        steps = jnp.einsum("sri,srj->ij", known[:, :-1], known[:, 1:])
        more = PathSums(known[:, 0].sum(0), steps, jnp.einsum("srk,srp->kp", known, batch.increments), jnp.zeros(()))
        sums = jax.tree.map(jnp.add, sums, more)
    return update_globals(model, blank, sums, model.active(size, capacity))


class PathSurvey(NamedTuple):
    """The results of one forward–backward pass at a fit.

    shares: the probability of each state for every row, (sequence, row, state), one array for each batch.
    log_total: sum of the sequences' log normalisers, without the rows' base measure, nats.
    of_globals: the bound's terms of the parameters, nats.
    """

    shares: tuple[Float[Array | np.ndarray, "_ _ state"], ...]
    log_total: Array
    of_globals: Array


@kernel(static_argnames=("capacity",), brief=True)
@counted
def survey_paths(
    model: HiddenMarkov,
    beliefs: Beliefs,
    batches: tuple[Sequences, ...],
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> PathSurvey:
    """Run forward–backward over all sequences at the given q of the parameters, and return what it says of the fit.

    size, capacity: the number of states, and the number that arrays have room for.
    """
    on = model.active(size, capacity)
    seen = [forward_backward(model, beliefs.mean, batch, on) for batch in batches]
    total = jnp.stack([log_z.sum() for _, _, log_z in seen]).sum()
    return PathSurvey(tuple(s for s, _, _ in seen), total, globals_bound(model, beliefs, size, capacity=capacity))


def path_potentials(
    model: HiddenMarkov, g: dict[str, Statistics], batch: Sequences, on: Masks
) -> tuple[MarkovChainStatistics, Bool[Array, "s row state state"]]:
    """Return the natural parameters of each sequence's path, and which of them exist.

    The rows' base measure is left out.

    g: expected statistics of the parameters, by variable.
    on: masks of the states that exist.
    """
    exists, rows = on["state"], log_rows(model, g, batch, on)
    first = (jnp.arange(rows.shape[1]) == 0)[:, None]
    state = jnp.where(exists, rows, 0.0) + jnp.where(first, g["start"], 0.0)
    step = jnp.broadcast_to(g["transitions"], (*rows.shape, rows.shape[-1]))
    present = jnp.asarray(batch.present)[..., None, None]
    return MarkovChainStatistics(state, step), present & exists[:, None] & exists


@kernel(static_argnames=("capacity",), brief=True)
@counted
def exact_log_totals(
    model: HiddenMarkov,
    g: dict[str, Statistics],
    batch: Sequences,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Float[Array, " sequence"]:
    """Return the log normaliser of each sequence without the rows' base measure, nats, without the floor on potentials.

    It uses the exponential family's own recursion, which is exact whatever the potentials are.

    g: expected statistics of the parameters, by variable.
    size, capacity: the number of states, and the number that arrays have room for.
    """
    return MarkovChain().log_normaliser(*path_potentials(model, g, batch, model.active(size, capacity)))


def most_probable_paths(estimate: Estimate, data: Dataset) -> list[Int[np.ndarray, " row"]]:
    """Return the most probable path of each sequence (Viterbi), at the posterior means of all parameters.

    A path is the hidden state of every row of the sequence, (row,). It is computed in float64.

    Raises ValueError for fits of other models than `HiddenMarkov`, and for rows without a density.
    """
    model, size = estimate.model, estimate.size
    if not isinstance(model, HiddenMarkov):
        raise ValueError(
            f"got a fit of {type(model).__name__}, expected one of HiddenMarkov: only its units have paths"
        )
    model.check(data.units_in_order())
    capacity, per_batch = capacity_of(size), []
    with jax.enable_x64(True):
        wide = padded_natural(model, estimate.natural, size, capacity, np.float64)
        g = point_of(model, wide, size, capacity=capacity)
        for batch in cast(data, np.float64).batches:
            states = np.asarray(_viterbi_states(model, g, batch.units, size, capacity=capacity))
            per_batch.append([row[here] for row, here in zip(states, np.asarray(batch.units.present), strict=True)])
    return in_data_order(data, per_batch)


@kernel(static_argnames=("capacity",), brief=True)
@counted
def _viterbi_states(
    model: HiddenMarkov,
    g: dict[str, Statistics],
    units: GroupOfRows,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Int[Array, "_ _"]:
    """Return the most probable state of each row, (sequence, row), padding included.

    g: parameter values in the form of sufficient statistics, by variable.
    units: the sequences of one batch.
    size, capacity: the number of states, and the number that arrays have room for.
    """
    on, site, family = model.active(size, capacity), model.locals()["path"], MarkovChain()

    def one(unit: Any) -> Array:
        exists = unit_masks(model, unit, on)
        blank = family.zeros((len(unit.present), *capacity, *capacity), jnp.result_type(float))
        natural = jax.grad(lambda path: model.log_unit(g, {"path": path}, unit, exists))(blank)
        return family.value(family.mode(natural, site.event_mask(exists)))

    return jax.vmap(one)(units)
