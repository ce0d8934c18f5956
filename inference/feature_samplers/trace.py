"""Runs any sweep over feature matrices in the common run loop, and keeps the states that the chain visited.

Chains run side by side on the host, not on the accelerator (`FeatureSampler`). `run_chain` runs one chain from
beginning to end and returns its `FeatureTrace`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Array, Float64, Int8

from lvsearch.inference.feature_samplers.chain import (
    FeatureState,
    Hyperparameters,
    Hyperpriors,
    Sweep,
    full_sweep,
    log_joint,
    start_state,
)
from lvsearch.inference.feature_samplers.loadings import Cells, read_cells
from lvsearch.inference.features import left_ordered
from lvsearch.inference.features.marginal import check_positive
from lvsearch.inference.generators import generators
from lvsearch.inference.sampling import Quantity, Recorder, Trace, run_one_chain


class FeatureStates(NamedTuple):
    """Several chains side by side, and the best features that each has visited.

    Arrays have as many places (array slots) for features as the widest chain needs; the rest is 0.

    | field | shape | meaning |
    |---|---|---|
    | `features` | (particle, row, place) | 1 if the row has the feature, else 0 |
    | `loadings` | (particle, place, column) | what a feature adds to a row; NaN where integrated out or not drawn yet |
    | `alpha` | (particle,) | concentration of the process |
    | `sigma_x`, `sigma_a` | (particle,) | standard deviations of noise and of loadings |
    | `best` | (particle, row, place) | the features with the highest log p(data, features) so far |
    | `best_log_joint` | (particle,) | log p(data, features) of `best`, nats |
    """

    features: Int8[np.ndarray, "particle row place"]
    loadings: Float64[np.ndarray, "particle place column"]
    alpha: Float64[np.ndarray, " particle"]
    sigma_x: Float64[np.ndarray, " particle"]
    sigma_a: Float64[np.ndarray, " particle"]
    best: Int8[np.ndarray, "particle row best_place"]
    best_log_joint: Float64[np.ndarray, " particle"]


class _OneChain(NamedTuple):
    """One chain: its state, the best features so far (row, feature), and their log p(data, features) in nats."""

    state: FeatureState
    best: np.ndarray
    best_log_joint: float


@dataclass(frozen=True)
class FeatureSampler:
    """A sampler of features that runs any sweep function on the host, with one chain from each of `starts`.

    sweep: the function that makes one sweep over the features of one chain.
    cells: the data.
    priors: the priors of the hyper-parameters that are drawn.
    starts: the state in which each chain starts.
    """

    sweep: Sweep
    cells: Cells
    priors: Hyperpriors
    starts: tuple[FeatureState, ...]

    hosted: ClassVar[bool] = True

    def init(self, key: Array, particles: int) -> FeatureStates:
        """Return the starting states side by side. The key is not used.

        Raises ValueError if `particles` is not the number of starts.
        """
        if particles != len(self.starts):
            raise ValueError(f"got {particles} chains, expected one for each of {len(self.starts)} starts")
        return _stack_chains([self._start_chain(start) for start in self.starts], self.cells)

    def step(self, key: Array, state: FeatureStates, temperature: Array, *, backward: bool) -> FeatureStates:
        """Return the states after one sweep of each chain over its features (and loadings) and hyper-parameters.

        Each chain has a generator of its own. `temperature` and `backward` are not used.
        """
        chains = _split_chains(state)
        pairs = zip(generators(key, len(chains)), chains, strict=True)
        return _stack_chains([self._sweep_chain(rng, chain) for rng, chain in pairs], self.cells)

    def log_density(self, state: FeatureStates) -> Float64[np.ndarray, " particle"]:
        """Return log p(data, features) of each chain at its own hyper-parameters, loadings integrated out, nats.

        Feature matrices that differ only in the order of their columns count as one.
        """
        each = (chain.state for chain in _split_chains(state))
        return np.array([log_joint(self.cells, one.features, one.hyper) for one in each])

    def _start_chain(self, start: FeatureState) -> _OneChain:
        """Return a chain at the given starting state."""
        return _OneChain(start, start.features, log_joint(self.cells, start.features, start.hyper))

    def _sweep_chain(self, rng: np.random.Generator, chain: _OneChain) -> _OneChain:
        """Return a chain after one full sweep, with its best features updated."""
        state = full_sweep(rng, self.sweep, self.cells, chain.state, self.priors)
        score = log_joint(self.cells, state.features, state.hyper)
        if score > chain.best_log_joint:
            return _OneChain(state, state.features, score)
        return chain._replace(state=state)


class FeatureRecorder(Recorder):
    """Records the number of `occupied` features, the hyper-parameters and, where asked for, the features of every
    row.
    """

    @classmethod
    def for_rows(cls, n_rows: int, *, units: bool) -> "FeatureRecorder":
        """Return the recorder for a data set of `n_rows` rows.

        units: True to record `features` too, (row, feature).
        """
        names = ("occupied", "alpha", "sigma_x", "sigma_a")
        numbers = tuple(Quantity(name, (), (), False) for name in names)
        each = Quantity("features", ("row", "feature"), (n_rows, None), True)
        return cls((*numbers, each) if units else numbers)

    def values(self, chain: FeatureSampler, state: FeatureStates) -> tuple[np.ndarray, ...]:
        """Return the recorded values of every chain, chains first, in the order of `quantities`."""
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
    """Return the chains side by side, padded to the number of features of the widest."""
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
    """Stack matrices (row, feature) to (matrix, row, feature), with columns of 0 up to the widest."""
    widest = max(matrix.shape[1] for matrix in matrices)
    return np.stack([np.pad(matrix, ((0, 0), (0, widest - matrix.shape[1]))) for matrix in matrices])


@dataclass(frozen=True)
class FeatureTrace:
    """The states that a chain visited. Arrays have one entry per state: the start first, then one after each sweep.

    | field | meaning |
    |---|---|
    | `log_joint` | log p(data, features) at the state's own hyper-parameters, loadings integrated out, nats |
    | `n_features` | the number of features that some row has |
    | `alpha` | concentration of the process |
    | `sigma_x`, `sigma_a` | standard deviations of noise and of loadings |
    | `seconds` | of each sweep and its score, averaged over those of one call of the loop; the start 0 |
    | `features` | the last features, (row, feature), columns in left order |
    | `best` | the features with the highest `log_joint`, (row, feature), columns in left order |
    | `kept` | the features after every `keep`-th sweep; empty unless asked for |
    | `trace` | the chain as the run loop gives it: one chain, a draw for every sweep, with R̂ and effective draws |

    `log_joint` is the score of `map_features`, for every sampler. In left order, columns are sorted by the rows that
    have the feature, earlier rows first.
    """

    log_joint: np.ndarray
    n_features: np.ndarray
    alpha: np.ndarray
    sigma_x: np.ndarray
    sigma_a: np.ndarray
    seconds: np.ndarray
    features: np.ndarray
    best: np.ndarray
    kept: tuple[np.ndarray, ...]
    trace: Trace


def run_chain(
    sweep: Sweep,
    X: Any,
    observed: Any,
    hyper: Hyperparameters,
    key: Array,
    start: Any,
    sweeps: int,
    priors: Hyperpriors,
    keep: int,
) -> FeatureTrace:
    """Make `sweeps` full sweeps from `start`, and return the states visited.

    sweep: the function that makes one sweep over the features.
    X: the data, (row, column).
    observed: booleans of the shape of X; None if all cells are observed.
    hyper: the hyper-parameters, or their starting values.
    start: features to start with, (row, feature); None begins without features.
    priors: the priors of hyper-parameters that are to be drawn.
    keep: keep the features after every `keep`-th sweep; 0 keeps none.

    Raises ValueError for arguments that are not in range, and for shapes that do not fit; KeyboardInterrupt if
    interrupted.
    """
    cells = read_cells(X, observed)
    hyper = Hyperparameters(*(check_positive(name, value) for name, value in zip(hyper._fields, hyper, strict=True)))
    if sweeps < 0 or keep < 0:
        raise ValueError(f"got sweeps={sweeps}, keep={keep}; expected whole numbers ≥ 0 (keep=0 keeps no features)")
    sampler = FeatureSampler(sweep, cells, priors, (start_state(cells, start, hyper),))
    record = FeatureRecorder.for_rows(len(cells.values), units=keep > 0)
    trace, seconds = run_one_chain(sampler, key, sweeps, record)
    begin, end = sampler.init(key, 1), FeatureStates(*trace.state)
    first = sampler.log_density(begin), begin.features.any(1).sum(1), begin.alpha, begin.sigma_x, begin.sigma_a
    then = (trace[name][0] for name in ("log_density", "occupied", "alpha", "sigma_x", "sigma_a"))
    kept = trace["features"][0, keep - 1 :: keep] if keep else ()
    return FeatureTrace(
        *(np.concatenate(pair) for pair in zip(first, then, strict=True)),
        seconds=np.concatenate([[0.0], seconds]),
        features=left_ordered(end.features[0]),
        best=left_ordered(end.best[0]),
        kept=tuple(left_ordered(z) for z in kept),
        trace=trace,
    )
