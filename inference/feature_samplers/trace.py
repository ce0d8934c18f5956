"""Runs a chain over feature matrices from beginning to end, and keeps the states it visited."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Array

from lvsearch.inference.feature_samplers.chain import Hyperparameters, Hyperpriors, Sweep, start_state
from lvsearch.inference.feature_samplers.loadings import read_cells
from lvsearch.inference.feature_samplers.sampler import FeatureRecorder, FeatureSampler, FeatureStates
from lvsearch.inference.features import left_ordered
from lvsearch.inference.features.marginal import check_positive
from lvsearch.inference.sampling import Trace, run


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
    seconds, begun = [0.0], perf_counter()

    def done(n: int) -> None:
        """Note the seconds of the `n` sweeps that one call of the loop made."""
        nonlocal begun
        now = perf_counter()
        seconds.extend([(now - begun) / n] * n)
        begun = now

    record = FeatureRecorder.for_rows(len(cells.values), units=keep > 0)
    trace = run(sampler, key, chains=1, draws=sweeps, warmup=0, recorder=record, done=done)
    if trace.draws < sweeps:
        raise KeyboardInterrupt  # the loop was interrupted: a caller that asked for a whole chain cannot use a part
    begin, end = sampler.init(key, 1), FeatureStates(*trace.state)
    first = sampler.log_density(begin), begin.features.any(1).sum(1), begin.alpha, begin.sigma_x, begin.sigma_a
    then = (trace[name][0] for name in ("log_density", "occupied", "alpha", "sigma_x", "sigma_a"))
    kept = trace["features"][0, keep - 1 :: keep] if keep else ()
    return FeatureTrace(
        *(np.concatenate(pair) for pair in zip(first, then, strict=True)),
        seconds=np.array(seconds),
        features=left_ordered(end.features[0]),
        best=left_ordered(end.best[0]),
        kept=tuple(left_ordered(z) for z in kept),
        trace=trace,
    )
