"""The three samplers of Dirichlet-process mixtures: collapsed Gibbs, blocked Gibbs and slice sampling.

*Collapsed Gibbs sampling*: weights and parameters are integrated out, and rows are drawn one at a time (Eq. 5.12–5.14).

    p(z_n = k | the others) ∝ n_k · p(x_n | rows of k),        a new component: α · p(x_n)

Each density is a difference of two log-normalisers (Eq. 5.13; its denominator too leaves row n out).

*Blocked Gibbs sampling* of the truncated Dirichlet process: T components at most, and all rows are drawn at once. The
weights are broken off a stick of length 1: π_k = V_k Π_{j<k} (1 − V_j), with V_k ~ Beta(1, α) and V_T = 1. Source:
Ishwaran & James (2001); Blei (2004), §5.3.2.

*Slice sampling*: weights are drawn only as far as the smallest slice needs (Walker 2007). A slice u_n ~ Uniform(0,
π_{z_n}) lies below the weight π of row n's component z_n. Given it, row n can be only in components with π_k > u_n.
There are finitely many of them, and among them its component is drawn by density alone (lecture 23). Given the
partition and α, a sweep draws weights and parameters of all components afresh. Then come slices, then labels, then α
given the partition.

Weights are those of the process given the partition, whatever array slot a component has: (π_1, …, π_K, rest) ~
Dirichlet(n_1, …, n_K, α), with n_k the rows of component k. The rest is broken by sticks Beta(1, α) over the slots
without rows (Teh et al. 2006, §5.3).

Why not sticks in the order of the slots? Their weights would be those given the partition *and* the slots. The slots
say something about α too, so α would have to be drawn given both. Drawn given the partition alone, the chain would be
biased. For example, take three rows without data and α ~ Gamma(2, rate 1.5). Two of the rows would then be together
.468 of the time, while the truth is .491.

`lvsearch.occupied` and `lvsearch.sample` run the first. Chains start far apart: one in a single component, one in many,
others between.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln
from jaxtyping import Array, Float, Int

from lvsearch.inference.annealing.draws import choose_in_proportion
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixture_samplers.chain import (
    ChainRows,
    LabelState,
    draw_concentration,
    draw_parameters,
    log_occupancy,
    natural_of_labels,
    process_weights,
)
from lvsearch.inference.mixture_samplers.sampler import (
    MixtureTrace,
    PartitionRecorder,
    PartitionSampler,
    partition_sampler,
    run_chain,
)
from lvsearch.inference.mixtures.partitions import by_appearance, log_block_count_prior
from lvsearch.inference.mixtures.row_sums import RowEmission, RowSums
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, pack_statistics
from lvsearch.inference.mixtures.starts import nearest_rows, start_groups
from lvsearch.inference.processes import LogPrior, OccupiedSampler
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.families import Beta, BetaStatistics
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.mixture import MixtureModel


def collapsed_gibbs(
    model: MixtureModel, data: Dataset, *, key: Array, sweeps: int, keep: int = 1, start: Any = None
) -> MixtureTrace:
    """Run one collapsed Gibbs chain over partitions of the rows under the Dirichlet process, and return its trace.

    Mixture weights and component parameters are integrated out, and nothing is truncated.

    model: a `DPMixture`.
    data: the rows.
    key: the random key of the run.
    sweeps: how many sweeps to make, each over all rows.
    keep: keep the labels after every keep-th sweep; 0 keeps none.
    start: labels (row,) to begin with; None puts all rows into one component.

    Raises ValueError for a model that is no `DPMixture`, and for rows without a density.
    """
    return run_chain(collapsed_sweep, process_weights, model, data, key, sweeps, keep, start, None, one_by_one=True)


def collapsed_sweep(
    model: DPMixture, key: Array, state: LabelState, rows: ChainRows, capacity: int
) -> tuple[LabelState, Array]:
    """Draw the component of every row in turn, each given all others, and then α; return the new labels and α.

    A new component takes the first array slot that has no rows.

    key: random key of the sweep.
    state: labels and α before the sweep.
    capacity: how many array slots for components there are.

    Returns: (the state after the sweep, True if more slots were needed than there are; the state is then invalid).
    """
    emission, n_rows = RowEmission(model.components, rows.increments, rows.prior), len(state.labels)
    key_rows, key_alpha = jax.random.split(key)
    uniforms, log_alpha = jax.random.uniform(key_rows, (n_rows,), state.alpha.dtype), jnp.log(state.alpha)

    def one(n: Array, carry: tuple[RowSums, Array, Array, Array]) -> tuple[RowSums, Array, Array, Array]:
        sums, counts, labels, overflow = carry
        old = labels[n]
        counts = counts.at[old].add(-1.0)
        sums = emission.remove(sums, n, old, counts[old] < 0.5)
        # Score all places with the row in them; only the first free one stands for a new component.
        joined = emission.normalisers_with(sums, n)
        free = jnp.argmax(counts < 0.5)
        overflow = overflow | ~(counts[free] < 0.5)
        prior = jnp.where(jnp.arange(capacity) == free, log_alpha, -jnp.inf)
        prior = jnp.where(counts > 0.5, jnp.log(jnp.maximum(counts, 1.0)), prior)
        score = prior + joined - sums.normaliser
        (new,) = choose_in_proportion(score[:, None], uniforms[n, None], np.asarray(capacity))
        return emission.add(sums, n, new, joined[new]), counts.at[new].add(1.0), labels.at[n].set(new), overflow

    counts = natural_of_labels(state.labels, rows, capacity)[1]
    begin = emission.gather(state.labels, capacity), counts, state.labels, jnp.asarray(False)
    _, counts, labels, overflow = jax.lax.fori_loop(0, n_rows, one, begin)
    occupied = (counts > 0.5).sum()
    alpha = draw_concentration(model, key_alpha, n_rows, occupied, state.alpha)
    return LabelState(labels, alpha), overflow


def blocked_gibbs(
    model: MixtureModel, data: Dataset, *, key: Array, sweeps: int, truncation: int, keep: int = 1, start: Any = None
) -> MixtureTrace:
    """Run one blocked Gibbs chain for a Dirichlet-process mixture with at most `truncation` components.

    Returns the record of the chain.

    The last component takes all weight that the others leave. As the truncation grows, the posterior tends to that of
    the Dirichlet process itself.

    model: a `DPMixture`.
    data: the rows.
    key: the random key of the run.
    sweeps: how many sweeps to make, each over all rows.
    truncation: T, the largest number of components.
    keep: keep the labels after every keep-th sweep; 0 keeps none.
    start: labels (row,) to begin with; None puts all rows into one component.

    Raises ValueError for a truncation below 1 or below the number of components in `start`, a model that is no
    `DPMixture`, and rows without a density.
    """
    if truncation < 1:
        raise ValueError(f"got truncation={truncation}, expected at least 1")
    weights = partial(truncated_weights, truncation=truncation)
    return run_chain(blocked_sweep, weights, model, data, key, sweeps, keep, start, truncation, log_stick_occupancy)


def blocked_sweep(
    model: DPMixture, key: Array, state: LabelState, rows: ChainRows, capacity: int
) -> tuple[LabelState, Array]:
    """Make one sweep of blocked Gibbs sampling and return the new labels and α.

    Given the labels, stick fractions V_k and component parameters are drawn. Then α is drawn given the sticks (Eq.
    5.17), and all labels given sticks and parameters.

    key: random key of the sweep.
    state: labels and α before the sweep.
    capacity: T, the truncation.

    Returns: (the state after the sweep, False). False says that no more components are ever needed than there are.
    """
    key_sticks, key_parameters, key_alpha, key_labels = jax.random.split(key, 4)
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    beyond = counts.sum() - jnp.cumsum(counts)
    # V_k ~ Beta(1 + n_k, α + rows after k), given by its natural parameters; the last V is 1 by definition
    sticks = Beta().sample(key_sticks, BetaStatistics(counts, state.alpha - 1 + beyond))
    last = jnp.arange(capacity) == capacity - 1
    log_value = jnp.where(last, 0.0, sticks.log_value)
    log_complement = jnp.where(last, 0.0, sticks.log_complement)
    alpha = state.alpha
    if isinstance(model.concentration, GammaPrior):
        shape, rate = (jnp.asarray(value, alpha.dtype) for value in model.concentration)
        drawn = jax.random.gamma(key_alpha, shape + capacity - 1, dtype=alpha.dtype)
        alpha = drawn / (rate - log_complement.sum())
    # log π_k = log V_k + Σ_{j<k} log(1 − V_j); then every label by density times weight
    log_weights = log_value + jnp.cumsum(log_complement) - log_complement
    logits = rows.packed @ draw_parameters(model, key_parameters, natural).T + log_weights
    labels = jax.random.categorical(key_labels, logits).astype(state.labels.dtype)
    return LabelState(labels, alpha), jnp.asarray(False)


def log_stick_occupancy(counts: Float[Array, " place"], alpha: Float[Array, ""]) -> Float[Array, ""]:
    """Return log p(labels | α) under the truncated Dirichlet process, with the weights integrated out, in nats.

    It is Σ_k [log B(1 + n_k, α + n_>k) − log B(1, α)] over all components but the last. Here B is the Beta function and
    n_>k is the number of rows of the components after k.

    counts: n_k, the number of rows of each component, (component,).
    alpha: α, the concentration.
    """
    beyond = counts.sum() - jnp.cumsum(counts)
    return (betaln(1 + counts, alpha + beyond) - betaln(jnp.ones_like(alpha), alpha))[:-1].sum()


def truncated_weights(counts: Float[np.ndarray, " place"], alpha: float, truncation: int) -> tuple[np.ndarray, float]:
    """Return the expected weight of each component given the labels (Eq. 5.16), and the weight of all others together.

    The others are components up to the truncation for which `counts` has no entry. They have no rows, so their
    predictive density is the prior's. Entries of `counts` from the truncation on are of components that cannot exist:
    weight 0.

    counts: the number of rows of each component, (component,).
    alpha: α, the concentration.
    truncation: T, the largest number of components.

    Returns: (weights (component,) in the order of `counts`, the weight of the others). They sum to 1.
    """
    n = np.zeros(truncation)
    n[: len(counts)] = counts[:truncation]
    first, beyond = 1 + n, alpha + n.sum() - np.cumsum(n)
    taken = first / (first + beyond)
    taken[-1] = 1.0
    weights = taken * np.concatenate([[1.0], np.cumprod(1 - taken)[:-1]])
    given = np.pad(weights, (0, max(0, len(counts) - truncation)))[: len(counts)]
    return given, float(weights[len(counts) :].sum())


def slice_sampler(
    model: MixtureModel, data: Dataset, *, key: Array, sweeps: int, keep: int = 1, start: Any = None
) -> MixtureTrace:
    """Run one slice-sampling chain for a Dirichlet-process mixture, without truncation, and return its trace.

    model: a `DPMixture`.
    data: the rows.
    key: the random key of the run.
    sweeps: how many sweeps to make, each over all rows.
    keep: keep the labels after every keep-th sweep; 0 keeps none.
    start: labels (row,) to begin with; None puts all rows into one component.

    Raises ValueError for a model that is no `DPMixture`, and for rows without a density.
    """
    return run_chain(slice_sweep, process_weights, model, data, key, sweeps, keep, start, None)


def slice_sweep(
    model: DPMixture, key: Array, state: LabelState, rows: ChainRows, capacity: int
) -> tuple[LabelState, Array]:
    """Make one sweep of slice sampling over weights, parameters, slices, labels and α; return the new labels and α.

    Every array slot has a random key of its own, so more slots do not change the draws of the first ones.

    key: random key of the sweep.
    state: labels and α before the sweep.
    capacity: how many array slots for components there are.

    Returns: (the state after the sweep, True if the capacity was too small). It is too small if components beyond it
        could weigh more than the smallest slice; the state is then invalid.
    """
    key_weights, key_parameters, key_slices, key_labels, key_alpha = jax.random.split(key, 5)
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    places = jnp.arange(capacity)

    def parameters(place: Array, one: Any) -> Any:
        return model.components.family.sample(jax.random.fold_in(key_parameters, place), one)

    log_weights, log_beyond = draw_log_weights(key_weights, counts, state.alpha)
    packed = pack_statistics(model.components, jax.vmap(parameters)(places, natural))
    # u_n ~ Uniform(0, π_{z_n}); components beyond the capacity matter only if their weight exceeds the smallest slice
    log_slices = jnp.log(jax.random.uniform(key_slices, state.labels.shape, state.alpha.dtype, minval=1e-300))
    log_slices = log_slices + log_weights[state.labels]
    overflow = log_beyond >= log_slices.min()
    allowed = log_weights > log_slices[:, None]
    logits = jnp.where(allowed, rows.packed @ packed.T, -jnp.inf)
    # by density among the allowed components, with one uniform a row whatever the capacity
    uniforms = jax.random.uniform(key_labels, (len(logits),), state.alpha.dtype)
    labels = choose_in_proportion(logits.T, uniforms, np.asarray(capacity)).astype(state.labels.dtype)
    occupied = (jax.ops.segment_sum(jnp.ones(len(labels)), labels, capacity) > 0).sum()
    alpha = draw_concentration(model, key_alpha, len(labels), occupied, state.alpha)
    return LabelState(labels, alpha), overflow


def draw_log_weights(
    key: Array, counts: Float[Array, " place"], alpha: Float[Array, ""]
) -> tuple[Float[Array, " place"], Float[Array, ""]]:
    """Draw the mixture weights of the Dirichlet process given how many rows each component has.

    counts: the number of rows of each array slot, (slot,); 0 for an empty one, which gets the weight of a new
        component.
    alpha: α, the concentration.

    Returns: (log weight of every slot, (slot,); log of the weight left for all further components).
    """
    key_used, key_rest, key_sticks = jax.random.split(key, 3)
    used = counts > 0

    def one(place: Array, n: Array) -> tuple[Array, Array, Array]:
        # log of a Gamma(n) variable; log of a stick Beta(1, α), by inverting its distribution, and of its complement
        log_gamma = jax.random.loggamma(jax.random.fold_in(key_used, place), jnp.where(n > 0, n, 1.0))
        uniform = jax.random.uniform(jax.random.fold_in(key_sticks, place), (), alpha.dtype, minval=1e-300)
        log_complement = jnp.log(uniform) / alpha
        return log_gamma, jnp.log(-jnp.expm1(log_complement)), log_complement

    log_gamma, log_stick, log_complement = jax.vmap(one)(jnp.arange(len(counts)), counts)
    log_rest = jax.random.loggamma(key_rest, alpha)
    log_total = jnp.logaddexp(jax.nn.logsumexp(log_gamma, where=used), log_rest)
    passed = jnp.where(used, 0.0, log_complement)
    # empty slots break sticks off the rest, one after another; normalised Gamma variables are a Dirichlet draw
    broken = log_rest + jnp.cumsum(passed) - passed + log_stick
    return jnp.where(used, log_gamma, broken) - log_total, log_rest + passed.sum() - log_total


# ── samplers that `lvsearch.occupied` and `lvsearch.sample` run ───────────────────────────────────────────────────────


def occupied_components(model: DPMixture, data: Dataset) -> OccupiedSampler:
    """Return the sampler of the number of occupied components, which are those that have rows.

    Chain 0 begins with all rows in one component, chain 1 in many (up to 30), chains 2 and 3 with numbers in between.

    Raises ValueError for rows without a density.
    """
    return OccupiedSampler(("occupied components",), partial(_chain, model, data), partial(_log_prior, model, data))


def partitions(
    model: DPMixture, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[PartitionSampler, PartitionRecorder]:
    """Return a collapsed Gibbs sampler of partitions with all chains side by side, and the recorder of its draws.

    Chain 0 begins with all rows in one component, chain 1 in many (up to 30), chains 2 and 3 with numbers in between.

    key: the random key of the starting partitions.
    chains: how many chains run.
    units: True to record the component of each row too.
    """
    starts = np.stack([_start(model, data, jax.random.fold_in(key, number), number) for number in range(chains)])
    sampler = partition_sampler(collapsed_sweep, log_occupancy, model, data, starts, None, one_by_one=True)
    return sampler, PartitionRecorder.for_model(model, data.n_units, units=units)


def _start(model: DPMixture, data: Dataset, key: Array, number: int) -> Int[np.ndarray, " row"]:
    """Return the labels that a chain begins with, (row,): each row joins the nearest of a few rows drawn at random.

    key: the random key of the rows drawn.
    number: the number of the chain; it decides how many rows are drawn (`start_groups`).
    """
    units, _ = rows_of(data)
    coordinates, _ = coordinates_and_carriers(model.components, units)
    near = nearest_rows(key, np.asarray(coordinates), np.asarray(units.observed), start_groups(number, data.n_units))
    return by_appearance(near)


def _chain(model: DPMixture, data: Dataset, key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
    """Run one collapsed Gibbs chain and return how many components have rows after each sweep, (sweep, 1).

    number: the number of the chain, which decides how many components it begins with.
    sweeps: how many sweeps to make.
    """
    key_start, key_sweeps = jax.random.split(key)
    start = _start(model, data, key_start, number)
    return collapsed_gibbs(model, data, key=key_sweeps, sweeps=sweeps, keep=0, start=start).occupied[:, None]


def _log_prior(model: DPMixture, data: Dataset, most: int) -> tuple[LogPrior, ...]:
    """Return ([log p(1 component has rows), …, log p(`most` components have rows)],) before any data, in nats."""
    return (log_block_count_prior(data.n_units, model.concentration, most),)
