"""Hidden Markov models with diagonal Gaussians: lvsearch beside hmmlearn (EM) and dynamax (EM).

    python tests/benchmarks/hidden_markov_vs_peers.py [--sequences 100] [--rows 200] [--columns 4] [--states 8]

The same simulated sequences for all, states planted. Two tables:

- one sweep (forward-backward over all sequences, and new parameters), in milliseconds, each library from a start of
  its own: the mean of many in one call, compiled beforehand. lvsearch in float64, as hmmlearn is, and in float32, as
  dynamax is; and lvsearch's generic engine, which the kernel stands in for.
- a whole fit from the rows to the parameters: hmmlearn with its defaults but `n_iter` 200; dynamax with its k-means
  start and as many iterations as hmmlearn made; lvsearch by `HiddenMarkovEstimator.fit`, starts and proposals included,
  the first call, which compiles, and a second one with another key. Log-likelihoods are hmmlearn's `score` of each
  library's parameters (ours at their posterior means), nats per row: what is scored is one thing for all.

And whether log-likelihoods at the same parameters agree. All times are processor seconds of all threads: they mean much
the same on a busy machine. Nothing is asserted.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from dynamax.hidden_markov_model import DiagonalGaussianHMM
from hmmlearn.hmm import GaussianHMM

import lvsearch as lv
from lvsearch.inference.engine.describing import site_value
from lvsearch.inference.engine.estimate import beliefs_of, capacity_of, pad_axes
from lvsearch.inference.engine.meanfield import ascend
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.sequences import HiddenMarkovEstimator
from lvsearch.inference.sequences.kernel import Sequences, ascend_paths
from lvsearch.models.contract import Model

SWEEPS = 50


def simulated(sequences: int, rows: int, columns: int, states: int, seed: int) -> np.ndarray:
    """(sequence, row, column), columns about standardised."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(states, 0.5), states) * 0.3 + 0.7 * np.eye(states)
    means, scales = 1.2 * rng.standard_normal((states, columns)), rng.uniform(0.4, 0.9, (states, columns))
    out = np.zeros((sequences, rows, columns))
    for sequence in range(sequences):
        state = int(rng.integers(states))
        for row in range(rows):
            state = int(rng.choice(states, p=transitions[state]))
            out[sequence, row] = rng.normal(means[state], scales[state])
    return out


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, of all threads, and what the call returned."""
    began = time.process_time()
    result = jax.block_until_ready(call())
    return time.process_time() - began, result


def a_sweep(fit: Callable[[int], Any], least: int = 2, most: int = 12) -> float:
    """Milliseconds of one sweep, from fits of few and of more: what a fit costs besides cancels. The best of three."""
    fit(least), fit(most)
    taken = [seconds(lambda: fit(most))[0] - seconds(lambda: fit(least))[0] for _ in range(3)]
    return min(taken) / (most - least) * 1e3


def scorer(start: Any, transitions: Any, means: Any, variances: Any) -> GaussianHMM:
    """hmmlearn's model at these parameters."""
    peer = GaussianHMM(len(start), covariance_type="diag")
    start, transitions = np.asarray(start, np.float64), np.asarray(transitions, np.float64)
    peer.startprob_, peer.transmat_ = start / start.sum(), transitions / transitions.sum(1, keepdims=True)
    peer.means_, peer.covars_ = np.asarray(means, np.float64), np.asarray(variances, np.float64)
    return peer


def ours(model: lv.models.HiddenMarkov, estimate: Any) -> GaussianHMM:
    with jax.enable_x64(True):
        family = model.components.family
        statistics = family.point(jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), estimate.natural["components"]))
        means, covariances = jax.vmap(model.components.moments)(statistics)
    variances = np.diagonal(np.asarray(covariances), axis1=1, axis2=2)
    return scorer(site_value(estimate, "start"), site_value(estimate, "transitions"), means, variances)


def our_sweeps(fitter: HiddenMarkovEstimator, estimate: Any, dtype: Any) -> float:
    """Milliseconds of one sweep of the kernel."""
    model, size = fitter.model, estimate.size
    capacity = capacity_of(size)
    with jax.enable_x64(dtype is np.float64):
        batches = tuple(Sequences(jnp.asarray(b.increments, dtype), jnp.asarray(b.present)) for b in fitter.batches)
        padded = pad_axes(model, estimate.natural, size, capacity)
        beliefs = beliefs_of(model, jax.tree.map(lambda x: np.asarray(x, dtype), padded), size, capacity=capacity)

        def run() -> Any:
            return ascend_paths(model, beliefs, batches, size, -np.inf, SWEEPS, capacity=capacity)

        run()
        return min(seconds(run)[0] for _ in range(3)) / SWEEPS * 1e3


def generic_sweeps(model: Model, data: Any, size: tuple[int, ...]) -> float:
    """Milliseconds of one sweep of the generic engine."""
    capacity = capacity_of(size)
    begin = scattered_start(model, jax.random.key(0), data, size, capacity)

    def run() -> Any:
        return ascend(model, data, begin, size, capacity=capacity, sweeps=5, local_sweeps=1, tolerance=-1.0).beliefs

    run()
    return min(seconds(run)[0] for _ in range(3)) / 5 * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("sequences", 100), ("rows", 200), ("columns", 4), ("states", 8), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    values = simulated(a.sequences, a.rows, a.columns, a.states, a.seed)
    flat, lengths, n_rows = values.reshape(-1, a.columns), [a.rows] * a.sequences, a.sequences * a.rows
    groups, model, size = lv.Groups.from_arrays(list(values)), lv.models.HiddenMarkov(), (a.states,)
    data = groups.dataset()

    fits: list[dict[str, Any]] = []

    def fitted(library: str, took: float, sweeps: int, peer: GaussianHMM) -> None:
        per_row = peer.score(flat, lengths) / n_rows
        fits.append({"library": library, "CPU seconds": took, "sweeps": sweeps, "nats per row": per_row})

    def of_hmmlearn(n_iter: int, tolerance: float) -> GaussianHMM:
        peer = GaussianHMM(a.states, covariance_type="diag", n_iter=n_iter, tol=tolerance, random_state=a.seed)
        return peer.fit(flat, lengths)

    took, peer = seconds(lambda: of_hmmlearn(200, 1e-2))
    fitted("hmmlearn", took, peer.monitor_.iter, peer)
    iterations = peer.monitor_.iter
    hmmlearn_sweep = a_sweep(lambda n: of_hmmlearn(n, -np.inf))

    dynamax, emissions = DiagonalGaussianHMM(a.states, a.columns), jnp.asarray(values, jnp.float32)
    parameters, properties = dynamax.initialize(
        jax.random.key(a.seed), method="kmeans", emissions=jnp.asarray(flat, jnp.float32)
    )

    def of_dynamax(n_iter: int) -> Any:
        return dynamax.fit_em(parameters, properties, emissions, num_iters=n_iter, verbose=False)

    for name in ("dynamax, first call, compiling", "dynamax"):
        took, (found, _) = seconds(lambda: of_dynamax(iterations))
        scales = np.asarray(found.emissions.scale_diags)
        fitted(
            name,
            took,
            iterations,
            scorer(found.initial.probs, found.transitions.transition_matrix, found.emissions.means, scales**2),
        )
    dynamax_sweep = a_sweep(of_dynamax)

    estimate = None
    for seed, name in ((0, "lvsearch, first call, compiling"), (1, "lvsearch")):
        fitter = HiddenMarkovEstimator(model, data)
        took, estimate = seconds(lambda s=seed, f=fitter: f.fit(size, jax.random.key(s), None))
        fitted(name, took, estimate.passes, ours(model, estimate))
    sweeps = pd.DataFrame(
        {
            "CPU milliseconds a sweep": {
                "hmmlearn": hmmlearn_sweep,
                "dynamax": dynamax_sweep,
                "lvsearch, float64": our_sweeps(fitter, estimate, np.float64),
                "lvsearch, float32": our_sweeps(fitter, estimate, np.float32),
                "lvsearch, generic engine": generic_sweeps(model, data, size),
            }
        }
    )
    print(f"{a.sequences} sequences of {a.rows} rows × {a.columns} columns, {a.states} states")
    print(sweeps.round(2).to_string(), "\n")
    print(pd.DataFrame(fits).round(3).to_string(index=False), "\n")

    peer = ours(model, estimate)
    by_peer = peer.score(flat, lengths)
    by_us = float(lv.inference.describe_units(model, estimate, data).log_lower.sum())
    with jax.enable_x64(True):
        one = DiagonalGaussianHMM(a.states, a.columns)
        found, _ = one.initialize(
            jax.random.key(0),
            initial_probs=jnp.asarray(peer.startprob_),
            transition_matrix=jnp.asarray(peer.transmat_),
            emission_means=jnp.asarray(peer.means_),
            emission_scale_diags=jnp.asarray(np.sqrt(np.diagonal(peer.covars_, axis1=1, axis2=2))),
        )
        log = jax.jit(jax.vmap(lambda x: one.marginal_log_prob(found, x)))(jnp.asarray(values)).sum()
    print(
        f"log-likelihood at the same parameters: lvsearch {by_us:.4f}, hmmlearn {by_peer:.4f}, dynamax {float(log):.4f}"
    )


if __name__ == "__main__":
    main()
