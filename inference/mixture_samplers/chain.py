"""What all chains over partitions share: their rows, their state, the loop, the trace, and α given the partition."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from lvsearch.inference.compiles import counted
from lvsearch.inference.data import Dataset
from lvsearch.inference.mixtures.packing import pack_increment, pack_statistics
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.mixtures.predictive import weighted_predictive
from lvsearch.inference.mixtures.rows import rows_of
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.mixture import Mixture

BLOCK = 50
"""Sweeps of one compiled call."""
FIRST_CAPACITY = 16
"""Places for components to begin with, doubled whenever a sweep needs more."""


class ChainRows(NamedTuple):
    """`increments` s(x_n), rows leading; the same packed (N, S); the prior λ of one component."""

    increments: Any
    packed: Float[Array, "row packed"]
    prior: Any


class ChainState(NamedTuple):
    """`labels` (N,): which place each row's component has; `alpha`: the concentration."""

    labels: Int[Array, " row"]
    alpha: Float[Array, ""]


Sweep = Callable[[DPMixture, Array, ChainState, ChainRows, int], tuple[ChainState, Array]]
"""(model, key, state, rows, capacity) -> (state, whether the capacity was too small, when the state means nothing)."""
Weights = Callable[[Float[np.ndarray, " place"], float], tuple[np.ndarray, float]]
"""(rows per place, α) -> (expected weight of each place, expected mass left over for new components)."""


@dataclass(frozen=True)
class MixtureTrace:
    """What a chain visited. Arrays have one entry per sweep.

    | field | meaning |
    |---|---|
    | `occupied` | components that some row is in |
    | `largest` | rows in the largest one |
    | `alpha` | concentration |
    | `seconds` | of each sweep, averaged over its block; the first block includes compiling |
    | `kept` | (kept, N) labels after every `keep`-th sweep, by place |
    | `kept_alpha` | (kept,) |
    """

    model: DPMixture
    data: Dataset
    weights: Weights
    occupied: Int[np.ndarray, " sweep"]
    largest: Int[np.ndarray, " sweep"]
    alpha: Float[np.ndarray, " sweep"]
    seconds: Float[np.ndarray, " sweep"]
    kept: Int[np.ndarray, "kept row"]
    kept_alpha: Float[np.ndarray, " kept"]

    def partitions(self) -> Int[np.ndarray, "kept row"]:
        """The kept labels, numbered in order of appearance."""
        return np.stack([by_appearance(labels) for labels in self.kept])

    def predictive_log_density(self, data: Dataset) -> Float[np.ndarray, " rows"]:
        """log of the average predictive density of each row over the kept partitions (Eq. 5.10, 5.16), nats.

        Raises ValueError where no partition was kept.
        """
        if not len(self.kept):
            raise ValueError("got a chain that kept no partitions, expected some: run it with keep=1")
        units, _ = rows_of(data)
        component = self.model.components
        component.check(units)
        places = -(-(int(self.kept.max()) + 1) // FIRST_CAPACITY) * FIRST_CAPACITY  # few shapes to compile
        with jax.enable_x64(True):
            rows = chain_rows(self.model, self.data)
            each = []
            for labels, alpha in zip(self.kept, self.kept_alpha, strict=True):
                natural, counts = _natural_of_labels(jnp.asarray(labels), rows, capacity=places)
                weights, left = self.weights(np.asarray(counts), float(alpha))
                each.append(weighted_predictive(component, natural, weights, left, units))
        return np.logaddexp.reduce(each, axis=0) - np.log(len(each))


def chain_rows(model: DPMixture, data: Dataset) -> ChainRows:
    """Increments in the floating type of the session. Raises ValueError for rows without a density."""
    units, _ = rows_of(data)
    component = model.components
    component.check(units)
    coordinates, observed = jax.vmap(component.coordinates)(units), jnp.asarray(units.observed)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, coordinates.dtype), component.prior(coordinates.shape[1]))
    return ChainRows(
        jax.vmap(component.increment)(coordinates, observed),
        jax.vmap(lambda y, o: pack_increment(component, y, o))(coordinates, observed),
        prior,
    )


def natural_of_labels(labels: Int[Array, " row"], rows: ChainRows, capacity: int) -> tuple[Any, Float[Array, " place"]]:
    """(prior + Σ s(x_n) of each place's rows, rows per place)."""

    def total(leaf: Array, prior: Array) -> Array:
        return prior + jax.ops.segment_sum(leaf, labels, capacity)

    ones = jnp.ones(len(labels), rows.packed.dtype)
    return jax.tree.map(total, rows.increments, rows.prior), jax.ops.segment_sum(ones, labels, capacity)


_natural_of_labels = partial(jax.jit, static_argnames=("capacity",))(natural_of_labels)


def draw_parameters(model: DPMixture, key: Array, natural: Any) -> Float[Array, "place packed"]:
    """One draw of every place's parameters given its rows, as packed statistics."""
    return pack_statistics(model.components, model.components.family.sample(key, natural))


def draw_concentration(model: DPMixture, key: Array, n_rows: int, occupied: Array, alpha: Array) -> Array:
    """α given the partition, by an auxiliary Beta variable (Escobar & West 1995, §6); the given value where fixed."""
    if not isinstance(model.concentration, GammaPrior):
        return alpha
    shape, rate = (jnp.asarray(value, alpha.dtype) for value in model.concentration)
    key_eta, key_which, key_alpha = jax.random.split(key, 3)
    log_eta = -jnp.log1p(jnp.exp(_log_gamma_ratio(key_eta, alpha + 1, float(n_rows))))
    odds = (shape + occupied - 1) / (n_rows * (rate - log_eta))
    extra = jax.random.uniform(key_which, dtype=alpha.dtype) * (1 + odds) < odds
    return jax.random.gamma(key_alpha, shape + occupied - 1 + extra, dtype=alpha.dtype) / (rate - log_eta)


def _log_gamma_ratio(key: Array, first: Array, second: float) -> Array:
    """log(G₂/G₁) with G₁ ~ Gamma(first), G₂ ~ Gamma(second): the Beta variable is 1 / (1 + G₂/G₁)."""
    key_first, key_second = jax.random.split(key)
    return jax.random.loggamma(key_second, jnp.asarray(second, first.dtype)) - jax.random.loggamma(key_first, first)


def log_partition(model: DPMixture, state: ChainState, rows: ChainRows, capacity: int) -> Float[Array, ""]:
    """log p(rows, partition | α) up to Σ log h(x), parameters and weights integrated out, nats."""
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    family = model.components.prior_family
    after = family.log_normaliser(natural).reshape(capacity, -1).sum(-1)
    used = counts > 0
    gains = jnp.where(used, after - family.log_normaliser(rows.prior).sum(), 0.0).sum()
    blocks = jnp.where(used, gammaln(jnp.where(used, counts, 1.0)) + jnp.log(state.alpha), 0.0).sum()
    return gains + blocks + gammaln(state.alpha) - gammaln(state.alpha + counts.sum())


class _Block(NamedTuple):
    state: ChainState
    labels: Array
    alpha: Array
    overflow: Array


@partial(jax.jit, static_argnames=("sweep", "capacity"))
@counted
def _run_block(
    model: DPMixture,
    key: Array,
    first: Array,
    n: Array,
    state: ChainState,
    rows: ChainRows,
    *,
    sweep: Sweep,
    capacity: int,
) -> _Block:
    """`n` sweeps, the first numbered `first`: keys are folded with the number, whatever the block."""

    def one(index: Array, block: _Block) -> _Block:
        new, overflow = sweep(model, jax.random.fold_in(key, first + index), block.state, rows, capacity)
        return _Block(
            new,
            block.labels.at[index].set(new.labels),
            block.alpha.at[index].set(new.alpha),
            block.overflow | overflow,
        )

    empty = _Block(
        state,
        jnp.zeros((BLOCK, len(state.labels)), state.labels.dtype),
        jnp.zeros(BLOCK, state.alpha.dtype),
        jnp.asarray(False),
    )
    return jax.lax.fori_loop(0, n, one, empty)


def run_chain(
    sweep: Sweep,
    weights: Weights,
    model: Mixture,
    data: Dataset,
    key: Array,
    sweeps: int,
    keep: int,
    start: Any,
    capacity: int | None,
) -> MixtureTrace:
    """`sweeps` sweeps from `start` (labels; all rows in one component where None), in float64.

    capacity: a fixed one, for a truncation; None to grow with need: a block that needed more places is made again with
    twice as many from the same state and keys, which changes no draw.
    """
    if not isinstance(model, DPMixture):
        raise ValueError(f"got a model of type {type(model).__name__}, expected a DPMixture")
    if sweeps < 1 or keep < 0:
        raise ValueError(f"got sweeps={sweeps}, keep={keep}; expected at least 1 sweep, and keep ≥ 0 (0 keeps nothing)")
    labels = by_appearance(np.zeros(data.n_units, int) if start is None else start)
    if len(labels) != data.n_units:
        raise ValueError(f"got start with {len(labels)} labels, expected one for each of {data.n_units} rows")
    grows = capacity is None
    places = FIRST_CAPACITY if capacity is None else capacity
    if grows:
        while places <= labels.max() + 1:
            places *= 2
    elif labels.max() >= places:
        raise ValueError(f"got start with {labels.max() + 1} components, expected at most the truncation {places}")
    prior = model.concentration
    alpha = float(prior.shape / prior.rate) if isinstance(prior, GammaPrior) else float(prior)
    counts, kept, alphas, seconds = [], [], [], []
    with jax.enable_x64(True):
        rows = chain_rows(model, data)
        state = ChainState(jnp.asarray(labels), jnp.asarray(alpha))
        done = 0
        while done < sweeps:
            n, begun = min(BLOCK, sweeps - done), perf_counter()
            block = _run_block(model, key, done, n, state, rows, sweep=sweep, capacity=places)
            if grows and bool(block.overflow):
                places *= 2
                continue
            state = block.state
            visited = np.asarray(block.labels)[:n]
            counts += [np.bincount(one) for one in visited]
            if keep:
                kept.append(visited[(np.arange(done, done + n) + 1) % keep == 0])
            alphas.append(np.asarray(block.alpha)[:n])
            seconds += [(perf_counter() - begun) / n] * n
            done += n
    chosen = slice(keep - 1, None, keep) if keep else slice(0, 0)
    return MixtureTrace(
        model,
        data,
        weights,
        np.array([int((c > 0).sum()) for c in counts]),
        np.array([int(c.max()) for c in counts]),
        np.concatenate(alphas),
        np.array(seconds),
        np.concatenate(kept) if keep else np.zeros((0, data.n_units), labels.dtype),
        np.concatenate(alphas)[chosen],
    )


def process_weights(counts: Float[np.ndarray, " place"], alpha: float) -> tuple[np.ndarray, float]:
    """n_k / (N + α), and α / (N + α) for a new component."""
    total = counts.sum() + alpha
    return counts / total, alpha / total
