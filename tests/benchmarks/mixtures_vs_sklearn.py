"""Dirichlet-process Gaussian mixtures against scikit-learn's `BayesianGaussianMixture`, diagonal and full covariance.

    python tests/benchmarks/mixtures_vs_sklearn.py [--rows 50000] [--columns 16] [--truncation 60] [--seed 0]

The same rows (simulated: 40 Gaussians of unequal size and full covariance, columns standardised), the same prior and
the same truncation for both. Timed is everything from the rows to the fitted parameters, starts included; for lvsearch
the first call, which compiles, and a second one with another key. scikit-learn runs with its defaults (k-means start,
one initialisation, tol 1e-3) but for `max_iter`, 500.

The bounds are on *our* scale: scikit-learn's `lower_bound_` leaves out constants (and its diagonal form takes E[log τ]
of a Wishart), so what is compared is the bound on log p(rows) of our model at scikit-learn's fitted q, each
distribution read as the same distribution here: sticks Beta(weight_concentration_), means and precisions Normal–Wishart
(full) or Normal–Gamma (diagonal) with mean_precision_, means_, degrees_of_freedom_ and covariances_ ·
degrees_of_freedom_; rows are at their optimum. `+1 sweep` is that q after one of our coordinate sweeps, so that no
convention can cost it anything. Nothing is asserted. About ten minutes on two cores, nearly all of it scikit-learn's.
"""

import argparse
import time
import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
from sklearn.mixture import BayesianGaussianMixture

import lvsearch as lv
from lvsearch.inference.engine.estimate import beliefs_of, capacity_of, pad_axes
from lvsearch.inference.mixtures import MixtureEstimator, MixtureSettings
from lvsearch.inference.mixtures.kernel import ascend_rows
from lvsearch.inference.mixtures.rows import cast_tiles
from lvsearch.models.families import BetaStatistics, NormalGammaStatistics, NormalWishartStatistics

ALPHA, PSEUDO_COUNT, SPREAD = 1.0, 0.1, 0.5
PLANTED = 40


def simulated(rows: int, columns: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(PLANTED, 2.0))
    labels = rng.choice(PLANTED, rows, p=weights)
    centres = 2.5 * rng.standard_normal((PLANTED, columns))
    roots = rng.standard_normal((PLANTED, columns, columns)) / np.sqrt(columns)
    noise = rng.standard_normal((rows, columns))
    values = (
        centres[labels] + np.einsum("nij,nj->ni", roots[labels], noise) + 0.3 * rng.standard_normal((rows, columns))
    )
    return (values - values.mean(0)) / values.std(0)


def model_of(kind: str, columns: int) -> lv.models.DPMixture:
    """The prior that `sklearn_of` has too."""
    if kind == "full":
        component = lv.models.FullCovarianceComponents(
            0.0, 1.0, pseudo_count=PSEUDO_COUNT, excess_degrees=3.0, spread=SPREAD
        )
    else:
        degrees = columns + 2.0
        component = lv.models.DiagonalComponents(0.0, 1.0, PSEUDO_COUNT, shape=degrees / 2, rate=SPREAD / 2)
    return lv.models.DPMixture(component, ALPHA)


def sklearn_of(kind: str, columns: int, truncation: int, seed: int) -> BayesianGaussianMixture:
    prior = SPREAD * np.eye(columns) if kind == "full" else np.full(columns, SPREAD)
    return BayesianGaussianMixture(
        n_components=truncation,
        covariance_type=kind,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=ALPHA,
        mean_prior=np.zeros(columns),
        mean_precision_prior=PSEUDO_COUNT,
        degrees_of_freedom_prior=columns + 2.0,
        covariance_prior=prior,
        max_iter=500,
        random_state=seed,
    )


def natural_of(kind: str, fitted: BayesianGaussianMixture) -> dict[str, Any]:
    """scikit-learn's q as our natural parameters."""
    first, second = fitted.weight_concentration_
    count, degrees, means = fitted.mean_precision_, fitted.degrees_of_freedom_, fitted.means_
    if kind == "full":
        scale = fitted.covariances_ * degrees[:, None, None]
        outer = count[:, None, None] * means[:, :, None] * means[:, None, :]
        components = NormalWishartStatistics(degrees - means.shape[1], scale + outer, count[:, None] * means, count)
    else:
        rate = 0.5 * fitted.covariances_ * degrees[:, None]
        wide = np.broadcast_to(count[:, None], means.shape)
        shape = np.broadcast_to(0.5 * degrees[:, None], means.shape)
        components = NormalGammaStatistics(shape - 0.5, rate + 0.5 * wide * means**2, wide * means, wide)
    return {"sticks": BetaStatistics(first - 1, second - 1), "components": components}


def bounds_at(found: MixtureEstimator, natural: dict[str, Any], size: tuple[int, ...]) -> tuple[float, float]:
    """(our bound at these natural parameters, after one sweep from there), nats, float64."""
    capacity = capacity_of(size)
    with jax.enable_x64(True):
        wide = jax.tree.map(np.asarray, pad_axes(found.model, natural, size, capacity))
        beliefs = beliefs_of(found.model, wide, size, capacity=capacity)
        tiles = cast_tiles(found.prepared.tiles, np.float64)
        trace = ascend_rows(found.model, beliefs, tiles, size, -1.0, 2, layout=found.prepared.layout, capacity=capacity)
        at, after = np.asarray(trace.bounds)[:2] + found.prepared.log_carrier
    return float(at), float(after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--truncation", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=MixtureSettings().rounds, help="rounds of proposals of lvsearch")
    options = parser.parse_args()
    values, size = simulated(options.rows, options.columns, options.seed), (options.truncation,)
    print(f"{options.rows:,} rows × {options.columns}, truncation {options.truncation}, {jax.devices()[0].device_kind}")
    records = []
    for kind in ("diag", "full"):
        found = None
        for number, label in enumerate(("lvsearch, first call", "lvsearch")):
            begun = time.perf_counter()
            settings = MixtureSettings(rounds=options.rounds)
            data = lv.Points.from_array(values).dataset()
            found = MixtureEstimator(model_of(kind, options.columns), data, settings)
            fit = found.fit_with_history(size, jax.random.key(options.seed + 1 - number))
            seconds = time.perf_counter() - begun
            accepted = sum(proposal.accepted for proposal in fit.proposals)
            note = f"{accepted} of {len(fit.proposals)} proposals accepted"
            records.append((kind, label, seconds, fit.estimate.passes, fit.estimate.log_lower, note))
            print(records[-1], flush=True)
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where it has not converged after max_iter, the table says so
            fitted = sklearn_of(kind, options.columns, options.truncation, options.seed).fit(values)
        seconds = time.perf_counter() - begun
        assert found is not None
        at, after = bounds_at(found, natural_of(kind, fitted), size)
        note = f"+1 sweep {after:,.0f}; {'converged' if fitted.converged_ else 'not converged'}"
        records.append((kind, "scikit-learn", seconds, fitted.n_iter_, at, note))
        print(records[-1], flush=True)
    table = pd.DataFrame(records, columns=["covariance", "library", "seconds", "passes", "bound", "note"])
    for kind, part in table.groupby("covariance"):
        ours, theirs = part[part.library == "lvsearch"].iloc[0], part[part.library == "scikit-learn"].iloc[0]
        first = part[part.library == "lvsearch, first call"].iloc[0]
        print(
            f"{kind}: scikit-learn takes {theirs.seconds / ours.seconds:.1f} times as long as lvsearch "
            f"({theirs.seconds / first.seconds:.1f} with compiling); our bound is higher by "
            f"{ours.bound - theirs.bound:,.0f} nats"
        )
    with pd.option_context("display.width", 160, "display.float_format", "{:,.1f}".format):
        print(table.to_string(index=False))


if __name__ == "__main__":
    main()
