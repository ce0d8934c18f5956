"""Slice sampling of the process: sticks are broken only as far as the smallest slice needs (Walker 2007).

With u_n ~ Uniform(0, π_{z_n}), row n can be only in components with π_k > u_n, of which there are finitely many, and
there its component is drawn by density alone (lecture 23). Given labels and α, sticks and parameters of all places are
drawn afresh (those no row is in from the prior), then slices, then labels, then α given the partition."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from lvsearch.inference.data import Dataset
from lvsearch.inference.mixture_samplers.chain import (
    ChainRows,
    ChainState,
    MixtureTrace,
    draw_concentration,
    natural_of_labels,
    process_weights,
    run_chain,
)
from lvsearch.inference.mixtures.packing import pack_statistics
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.families import Beta, BetaStatistics
from lvsearch.models.mixture import Mixture


def slice_sampler(
    model: Mixture, data: Dataset, *, key: Array, sweeps: int, keep: int = 1, start: Any = None
) -> MixtureTrace:
    """A chain over assignments to the sticks of the process itself, without truncation.

    start, keep, errors: as in `collapsed_gibbs`.
    """
    return run_chain(slice_sweep, process_weights, model, data, key, sweeps, keep, start, None)


def slice_sweep(
    model: DPMixture, key: Array, state: ChainState, rows: ChainRows, capacity: int
) -> tuple[ChainState, Array]:
    """One sweep; the capacity is too small where sticks beyond it could hold more than the smallest slice.

    Every place has a key of its own, so that more places change no draw of the first ones.
    """
    key_sticks, key_parameters, key_slices, key_labels, key_alpha = jax.random.split(key, 5)
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    beyond = counts.sum() - jnp.cumsum(counts)
    places = jnp.arange(capacity)

    def stick(place: Array, n: Array, after: Array) -> BetaStatistics:
        return Beta().sample(jax.random.fold_in(key_sticks, place), BetaStatistics(n, state.alpha - 1 + after))

    def parameters(place: Array, one: Any) -> Any:
        return model.components.family.sample(jax.random.fold_in(key_parameters, place), one)

    sticks = jax.vmap(stick)(places, counts, beyond)
    log_weights = sticks.log_value + jnp.cumsum(sticks.log_complement) - sticks.log_complement
    packed = pack_statistics(model.components, jax.vmap(parameters)(places, natural))
    log_slices = jnp.log(jax.random.uniform(key_slices, state.labels.shape, state.alpha.dtype, minval=1e-300))
    log_slices = log_slices + log_weights[state.labels]
    overflow = sticks.log_complement.sum() >= log_slices.min()
    allowed = log_weights > log_slices[:, None]
    logits = jnp.where(allowed, rows.packed @ packed.T, -jnp.inf)
    uniforms = jax.random.uniform(key_labels, (len(logits), 1), state.alpha.dtype)
    cumulative = jnp.cumsum(jnp.exp(logits - logits.max(1, keepdims=True)), axis=1)
    labels = (cumulative < uniforms * cumulative[:, -1:]).sum(1)
    labels = jnp.minimum(labels, capacity - 1).astype(state.labels.dtype)
    occupied = (jax.ops.segment_sum(jnp.ones(len(labels)), labels, capacity) > 0).sum()
    alpha = draw_concentration(model, key_alpha, len(labels), occupied, state.alpha)
    return ChainState(labels, alpha), overflow
