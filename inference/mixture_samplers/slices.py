"""Slice sampling of the Dirichlet process: weights are drawn only as far as the smallest slice needs (Walker 2007).

A slice u_n ~ Uniform(0, π_{z_n}) lies below the weight π of row n's component z_n. Given it, row n can be only in
components with π_k > u_n. There are finitely many of them, and among them its component is drawn by density alone
(lecture 23). Given the partition and α, a sweep draws weights and parameters of all components afresh. Then come
slices, then labels, then α given the partition.

Weights are those of the process given the partition, whatever array slot a component has: (π_1, …, π_K, rest) ~
Dirichlet(n_1, …, n_K, α), with n_k the rows of component k. The rest is broken by sticks Beta(1, α) over the slots
without rows (Teh et al. 2006, §5.3).

Why not sticks in the order of the slots? Their weights would be those given the partition *and* the slots. The slots
say something about α too, so α would have to be drawn given both. Drawn given the partition alone, the chain would be
biased. For example, take three rows without data and α ~ Gamma(2, rate 1.5). Two of the rows would then be together
.468 of the time, while the truth is .491.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.mixture_samplers.chain import (
    ChainRows,
    LabelState,
    draw_concentration,
    natural_of_labels,
    process_weights,
)
from lvsearch.inference.mixture_samplers.trace import MixtureTrace, run_chain
from lvsearch.inference.mixtures.packing import pack_statistics
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.mixture import MixtureModel


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
    # Labels by inverting the cumulative density among the allowed components: one uniform a row whatever the capacity
    uniforms = jax.random.uniform(key_labels, (len(logits), 1), state.alpha.dtype)
    cumulative = jnp.cumsum(jnp.exp(logits - logits.max(1, keepdims=True)), axis=1)
    labels = (cumulative < uniforms * cumulative[:, -1:]).sum(1)
    labels = jnp.minimum(labels, capacity - 1).astype(state.labels.dtype)
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
