"""Runs any sweep over feature matrices in the one run loop: chains side by side, on the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float64, Int8

from lvsearch.inference.feature_samplers.chain import (
    FeatureState,
    Hyperparameters,
    Hyperpriors,
    Sweep,
    full_sweep,
    log_joint,
)
from lvsearch.inference.feature_samplers.loadings import Cells
from lvsearch.inference.generators import generators
from lvsearch.inference.sampling import Quantity, Recorder


class FeatureStates(NamedTuple):
    """Several chains side by side, and the best state that each has visited. Places beyond a chain's features are 0.

    | field | letter | shape | meaning |
    |---|---|---|---|
    | `features` | Z | (particle, row, place) | 0 or 1 |
    | `loadings` | A | (particle, place, column) | NaN where integrated out, and before the first sweep |
    | `alpha`, `sigma_x`, `sigma_a` | α, σ_x, σ_A | (particle,) | hyper-parameters |
    | `best` | | (particle, row, place) | the Z of the highest log p(X, [Z]) so far |
    | `best_log_joint` | | (particle,) | its log p(X, [Z]), nats |
    """

    features: Int8[np.ndarray, "particle row place"]
    loadings: Float64[np.ndarray, "particle place column"]
    alpha: Float64[np.ndarray, " particle"]
    sigma_x: Float64[np.ndarray, " particle"]
    sigma_a: Float64[np.ndarray, " particle"]
    best: Int8[np.ndarray, "particle row best_place"]
    best_log_joint: Float64[np.ndarray, " particle"]


class _OneChain(NamedTuple):
    """One chain: its state, and the best Z so far with its score."""

    state: FeatureState
    best: np.ndarray
    best_log_joint: float


@dataclass(frozen=True)
class FeatureSampler:
    """A `Hosted` sampler of features by any `Sweep`, with one chain from each of `starts`."""

    sweep: Sweep
    cells: Cells
    priors: Hyperpriors
    starts: tuple[FeatureState, ...]

    hosted: ClassVar[bool] = True

    def init(self, key: Array, particles: int) -> FeatureStates:
        """Return the starting states. Raises ValueError for another number of chains."""
        if particles != len(self.starts):
            raise ValueError(f"got {particles} chains, expected one for each of {len(self.starts)} starts")
        return _stack_chains([self._start_chain(start) for start in self.starts], self.cells)

    def step(self, key: Array, state: FeatureStates, temperature: Array, *, backward: bool) -> FeatureStates:
        """Sweep over each chain's features (and loadings) and hyper-parameters, with a generator of its own."""
        chains = _split_chains(state)
        pairs = zip(generators(key, len(chains)), chains, strict=True)
        return _stack_chains([self._sweep_chain(rng, chain) for rng, chain in pairs], self.cells)

    def log_density(self, state: FeatureStates) -> Float64[np.ndarray, " particle"]:
        """Return log p(X, [Z]) on left-ordered classes, loadings integrated out, at each state's own hyper-parameters,
        nats.
        """
        each = (chain.state for chain in _split_chains(state))
        return np.array([log_joint(self.cells, one.features, one.hyper) for one in each])

    def _start_chain(self, start: FeatureState) -> _OneChain:
        """Return a chain at its start."""
        return _OneChain(start, start.features, log_joint(self.cells, start.features, start.hyper))

    def _sweep_chain(self, rng: np.random.Generator, chain: _OneChain) -> _OneChain:
        """Return a chain after one full sweep, with its best Z updated."""
        state = full_sweep(rng, self.sweep, self.cells, chain.state, self.priors)
        score = log_joint(self.cells, state.features, state.hyper)
        if score > chain.best_log_joint:
            return _OneChain(state, state.features, score)
        return chain._replace(state=state)


class FeatureRecorder(Recorder):
    """Records the number of `occupied` features, the hyper-parameters and, where asked for, Z."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    @classmethod
    def for_rows(cls, n_rows: int, *, units: bool) -> "FeatureRecorder":
        """Return the recorder for a data set of n_rows rows.

        units: record `features` too, (row, feature).
        """
        names = ("occupied", "alpha", "sigma_x", "sigma_a")
        numbers = tuple(Quantity(name, (), (), False) for name in names)
        each = Quantity("features", ("row", "feature"), (n_rows, None), True)
        return cls((*numbers, each) if units else numbers)

    def values(self, chain: FeatureSampler, state: FeatureStates) -> tuple[np.ndarray, ...]:
        """Return the recorded values, in the order of the quantities."""
        numbers = state.features.any(1).sum(1), state.alpha, state.sigma_x, state.sigma_a
        return (*numbers, state.features)[: len(self.quantities)]


def _split_chains(state: FeatureStates) -> list[_OneChain]:
    """Return the chains of a state one by one, without padding."""
    found = []
    for z, a, alpha, sigma_x, sigma_a, best, best_score in zip(*state, strict=True):
        used = z.any(0)  # no feature of a state is without rows: places are padding
        drawn = a[used] if used.any() and not np.isnan(a).any() else None  # of no feature none is as good as all
        hyper = Hyperparameters(float(alpha), float(sigma_x), float(sigma_a))
        chain = FeatureState(z[:, used].astype(np.float64), hyper, drawn)
        found.append(_OneChain(chain, best[:, best.any(0)], float(best_score)))
    return found


def _stack_chains(chains: Sequence[_OneChain], cells: Cells) -> FeatureStates:
    """Return the chains side by side, padded to the widest."""
    n_columns = cells.values.shape[1]
    features = _pad_and_stack([chain.state.features for chain in chains]).astype(np.int8)
    loadings = np.zeros((len(chains), features.shape[2], n_columns))
    for place, (state, *_) in enumerate(chains):
        found = np.full((state.features.shape[1], n_columns), np.nan) if state.loadings is None else state.loadings
        loadings[place, : len(found)] = found
    alpha, sigma_x, sigma_a = np.array([chain.state.hyper for chain in chains], np.float64).T
    return FeatureStates(
        features,
        loadings,
        alpha,
        sigma_x,
        sigma_a,
        _pad_and_stack([chain.best for chain in chains]).astype(np.int8),
        np.array([chain.best_log_joint for chain in chains]),
    )


def _pad_and_stack(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Stack the matrices, with columns of 0 up to the widest."""
    widest = max(matrix.shape[1] for matrix in matrices)
    return np.stack([np.pad(matrix, ((0, 0), (0, widest - matrix.shape[1]))) for matrix in matrices])
