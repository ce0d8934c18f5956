"""Slice sampling of the process: sticks are broken only as far as the smallest slice needs (Walker 2007).

With u_n ~ Uniform(0, π_{z_n}), row n can be only in components with π_k > u_n. There are finitely many of them, and
among them its component is drawn by density alone (lecture 23). In a sweep, given the partition and α, weights and
parameters of all places are drawn afresh. Then come slices, then labels, then α given the partition.

Weights are those of the process given the partition, whatever place a component has: (π_1, …, π_K, rest) ~
Dirichlet(n_1, …, n_K, α). The rest is broken by sticks Beta(1, α) over the places without rows (Teh et al. 2006, §5.3).

Drawn as sticks in the order of the places, weights would be those given the partition *and* the places. The places say
something about α too, so α would have to be drawn given both. Drawn given the partition alone, the chain would be
biased. For example, with three rows without data and α ~ Gamma(2, rate 1.5), two of them are together .468 of the time,
while the truth is .491.
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
    """Run a chain over assignments of rows to the sticks of the process itself, without truncation.

    sweeps, keep, start, errors: as in `collapsed_gibbs`.
    """
    return run_chain(slice_sweep, process_weights, model, data, key, sweeps, keep, start, None)


def slice_sweep(
    model: DPMixture, key: Array, state: LabelState, rows: ChainRows, capacity: int
) -> tuple[LabelState, Array]:
    """Make one sweep over weights, parameters, slices, labels and α.

    Every place has a key of its own, so that more places change no draw of the first ones.

    Returns: (the state, True if the capacity was too small, since places beyond it could weigh more than the smallest
        slice).
    """
    key_weights, key_parameters, key_slices, key_labels, key_alpha = jax.random.split(key, 5)
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    places = jnp.arange(capacity)

    def parameters(place: Array, one: Any) -> Any:
        return model.components.family.sample(jax.random.fold_in(key_parameters, place), one)

    log_weights, log_beyond = draw_log_weights(key_weights, counts, state.alpha)
    packed = pack_statistics(model.components, jax.vmap(parameters)(places, natural))
    log_slices = jnp.log(jax.random.uniform(key_slices, state.labels.shape, state.alpha.dtype, minval=1e-300))
    log_slices = log_slices + log_weights[state.labels]
    overflow = log_beyond >= log_slices.min()
    allowed = log_weights > log_slices[:, None]
    logits = jnp.where(allowed, rows.packed @ packed.T, -jnp.inf)
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
    """Draw the weights of the process given how many rows each place has.

    Returns: (log weight of every place, log of the weight left for places beyond).
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
    broken = log_rest + jnp.cumsum(passed) - passed + log_stick
    return jnp.where(used, log_gamma, broken) - log_total, log_rest + passed.sum() - log_total
