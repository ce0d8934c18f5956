"""Collapsed Gibbs sampling: weights and parameters are integrated out, and rows are drawn one at a time (Eq.
5.12–5.14).

    p(z_n = k | the others) ∝ n_k · p(x_n | rows of k),        a new component: α · p(x_n)

Each density is a difference of two log-normalisers (Eq. 5.13; its denominator too leaves row n out).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.mixture_samplers.chain import (
    ChainRows,
    LabelState,
    draw_concentration,
    natural_of_labels,
    process_weights,
)
from lvsearch.inference.mixture_samplers.trace import MixtureTrace, run_chain
from lvsearch.models.components import log_normalisers
from lvsearch.models.dp_mixture import DPMixture
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
    component, n_rows = model.components, len(state.labels)
    key_rows, key_alpha = jax.random.split(key)
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    uniforms = jax.random.uniform(key_rows, (n_rows,), state.alpha.dtype)
    empty = log_normalisers(component, jax.tree.map(lambda leaf: leaf[None], rows.prior))[0]
    log_alpha = jnp.log(state.alpha)

    def one(n: Array, carry: tuple[Any, Array, Array, Array, Array]) -> tuple[Any, Array, Array, Array, Array]:
        natural, normaliser, counts, labels, overflow = carry
        # Take row n out; a component without rows gets λ itself, so that rounding errors do not stay.
        old, increment = labels[n], jax.tree.map(lambda leaf: leaf[n], rows.increments)
        counts = counts.at[old].add(-1.0)
        alone = counts[old] < 0.5
        left = jax.tree.map(lambda t, s, p: jnp.where(alone, p, t[old] - s), natural, increment, rows.prior)
        natural = jax.tree.map(lambda t, one: t.at[old].set(one), natural, left)
        without = log_normalisers(component, jax.tree.map(lambda leaf: leaf[None], left))[0]
        normaliser = normaliser.at[old].set(without)
        # Score all places with the row in them; only the first free one stands for a new component.
        after = log_normalisers(component, jax.tree.map(jnp.add, natural, increment))
        free = jnp.argmax(counts < 0.5)
        overflow = overflow | ~(counts[free] < 0.5)
        prior = jnp.where(jnp.arange(capacity) == free, log_alpha, -jnp.inf)
        prior = jnp.where(counts > 0.5, jnp.log(jnp.maximum(counts, 1.0)), prior)
        score = prior + after - normaliser
        cumulative = jnp.cumsum(jnp.exp(score - score.max()))  # one uniform whatever the capacity
        new = jnp.minimum(jnp.searchsorted(cumulative, uniforms[n] * cumulative[-1]), capacity - 1)
        natural = jax.tree.map(lambda t, s: t.at[new].add(s), natural, increment)
        return natural, normaliser.at[new].set(after[new]), counts.at[new].add(1.0), labels.at[n].set(new), overflow

    normaliser = jnp.where(counts > 0.5, log_normalisers(component, natural), empty)
    begin = natural, normaliser, counts, state.labels, jnp.asarray(False)
    _, _, counts, labels, overflow = jax.lax.fori_loop(0, n_rows, one, begin)
    occupied = (counts > 0.5).sum()
    alpha = draw_concentration(model, key_alpha, n_rows, occupied, state.alpha)
    return LabelState(labels, alpha), overflow
