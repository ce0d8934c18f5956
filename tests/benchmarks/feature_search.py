"""Search for binary features against Gibbs sampling and the particle filter: Rai & Daumé's Table 1, rebuilt.

    python tests/benchmarks/feature_search.py [--seed 0] [--patience 12] [--growth 2000] [--beams 5 10 20] [--draws 10]

Two data sets are drawn from the prior (20 × 16 and 100 × 100), one is made of block images (200 × 16, four features).
Hyper-parameters are those that made the data, for search and samplers alike. Columns: seconds, mean squared error of
the reconstruction ZA with A at its posterior mean, log P(X, [Z]) in nats, features, the gap to the best possible
matrix, and `ratio`: the time collapsed Gibbs, begun with no features, needs to reach that search's log P over the
search's time; "> r" where it had not got there. The chain sweeps by NumPy or by the compiled loop, whichever is faster
(compiling is not counted), for `patience` times the seconds of the best search, at least 20 s, at most 60 s.

Then Gibbs started from search's answer (its clock starts with the search's), how many features search finds in further
draws of the block images, search online against the particle filter, and cost against N. Nothing is asserted; the
tables are the result. Five minutes on one core.
"""

import argparse
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array

import lvsearch as lv
from lvsearch.inference.feature_samplers import FeatureTrace, collapsed_gibbs, particle_filter
from lvsearch.inference.features import MapFeatures, left_ordered, log_marginal, log_prior, posterior_loadings

PAPER = pd.DataFrame(
    {
        "20 x 16": [6.5869, 0.1012, -129.6, 1.0153, 0.0094, -127.4, 1.0149, 0.0092, -127.8],
        "100 x 100": [27.3176, 0.0087, -4734.2, 7.1564, 0.0098, -4711.6, 5.6550, 0.0110, -4932.1],
        "blocks 200 x 16": [55.63, 0.0041, -3859.6, 17.95, 0.0044, -4276.7, 19.12, 0.0047, -4366.4],
    },
    index=pd.MultiIndex.from_product([["Gibbs", "admissible", "inadmissible"], ["seconds", "mse", "log P"]]),
)
"""Table 1 as printed, on machines and data of 2009."""

IMAGES = np.array(
    [
        [[0, 1, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
        [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]],
        [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]],
        [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0]],
    ]
).reshape(4, 16)
"""Four block images of 4 × 4 pixels, each present in half of the rows."""


REFINE, WARM_SWEEPS = 30, 100
"""Sweeps of hill climbing; sweeps of Gibbs begun at search's answer."""

LEAST_SECONDS, MOST_SECONDS, MOST_SWEEPS = 20.0, 60.0, 20_000
"""Of a chain from nothing."""

MOST_COMPLETE = 12
"""Features up to which all assignments of a row are tried: 2^12 for each of the nodes."""


class FeatureData(NamedTuple):
    """X (N, D), the features that made it, and the hyper-parameters."""

    X: np.ndarray
    features: np.ndarray
    alpha: float
    sigma_x: float
    sigma_a: float

    def settings(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "sigma_x": self.sigma_x, "sigma_a": self.sigma_a}

    def log_joint(self, features: np.ndarray) -> float:
        return log_prior(features, self.alpha) + log_marginal(self.X, features, self.sigma_x, self.sigma_a)

    def mean_squared_error(self, features: np.ndarray) -> float:
        loadings = posterior_loadings(self.X, features, self.sigma_x, self.sigma_a)[0]
        return float(np.mean((self.X - features @ loadings) ** 2))


def buffet(rng: np.random.Generator, n_rows: int, alpha: float) -> np.ndarray:
    """Z (N, K₊) from the Indian buffet process, customer by customer."""
    Z = np.zeros((n_rows, 0), int)
    for n in range(n_rows):
        taken = rng.random(Z.shape[1]) < Z.sum(axis=0) / (n + 1)
        Z = np.concatenate([Z, np.zeros((n_rows, rng.poisson(alpha / (n + 1))), int)], axis=1)
        Z[n] = 1
        Z[n, : len(taken)] = taken
    return Z


def from_prior(seed: int, n_rows: int, n_columns: int, alpha: float, sigma_x: float) -> FeatureData:
    rng = np.random.default_rng(seed)
    Z = buffet(rng, n_rows, alpha)
    X = Z @ rng.normal(size=(Z.shape[1], n_columns)) + sigma_x * rng.normal(size=(n_rows, n_columns))
    return FeatureData(X, left_ordered(Z), alpha, sigma_x, 1.0)


def block_images(seed: int, n_rows: int = 200, sigma_x: float = 0.5) -> FeatureData:
    rng = np.random.default_rng(seed)
    Z = rng.integers(0, 2, (n_rows, 4))
    return FeatureData(Z @ IMAGES + sigma_x * rng.normal(size=(n_rows, 16)), left_ordered(Z), 1.0, sigma_x, 1.0)


def table_one(seed: int) -> dict[str, FeatureData]:
    return {
        "20 x 16": from_prior(seed, 20, 16, 1.0, 0.1),
        "100 x 100": from_prior(seed, 100, 100, 2.0, 0.4),
        "blocks 200 x 16": block_images(seed),
    }


def seconds_to_reach(trace: FeatureTrace, log_joint: float) -> float:
    """Sampling time until the chain first scores at least log_joint; inf if it never does."""
    there = np.flatnonzero(trace.log_joint >= log_joint - 1e-6)
    return float(np.cumsum(trace.seconds)[there[0]]) if len(there) else float("inf")


class Found(NamedTuple):
    """A search, its seconds, and its answer."""

    name: str
    seconds: float
    answer: MapFeatures


def timed(name: str, data: FeatureData, **settings: Any) -> Found:
    begun = time.perf_counter()
    answer = lv.inference.map_features(data.X, **data.settings(), **settings)
    return Found(name, time.perf_counter() - begun, answer)


def searches(data: FeatureData, beams: list[int]) -> list[Found]:
    """Each setting of the search; complete expansion where the column-wise one shows that it is feasible."""
    timed("warming up", data, beam=5, expansion="column")
    tried = []
    for heuristic in ("admissible", "inadmissible"):
        for beam in beams:
            settings = {"beam": beam, "heuristic": heuristic, "expansion": "column"}
            tried.append(timed(f"{heuristic}, beam {beam}, column", data, **settings))
        if tried[-1].answer.features.shape[1] <= MOST_COMPLETE:
            settings = {"beam": max(beams), "heuristic": heuristic, "expansion": "complete"}
            tried.append(timed(f"{heuristic}, beam {max(beams)}, complete", data, **settings))
        settings = {"beam": 10, "heuristic": heuristic, "expansion": "column", "refine": REFINE}
        tried.append(timed(f"{heuristic}, beam 10, column, refined", data, **settings))
    return tried


def chain(data: FeatureData, seconds: float, key: Array) -> tuple[FeatureTrace, bool]:
    """Collapsed Gibbs from no features for about so many seconds of sampling, and whether its sweeps were compiled.

    Both kinds make 50 sweeps first, the compiled one after it is compiled for all capacities up to 64.
    """
    for features in (1, 9, 17, 33):
        start = np.random.default_rng(0).integers(0, 2, (len(data.X), features))
        collapsed_gibbs(data.X, sweeps=1, start=start, compiled=True, key=key, **data.settings())
    pilots = [collapsed_gibbs(data.X, sweeps=50, compiled=c, key=key, **data.settings()) for c in (False, True)]
    spent = [float(pilot.seconds.sum()) for pilot in pilots]
    compiled = spent[1] < spent[0]
    print(f"  50 sweeps from nothing: {spent[0]:.2f} s, compiled {spent[1]:.2f} s; the faster kind goes on")
    sweeps = min(MOST_SWEEPS, int(np.ceil(50 * seconds / min(spent))))
    return collapsed_gibbs(data.X, sweeps=sweeps, compiled=compiled, key=key, **data.settings()), compiled


def ratio(trace: FeatureTrace, found: Found) -> str:
    reached = seconds_to_reach(trace, found.answer.log_joint)
    return f"{reached / found.seconds:.1f}" if np.isfinite(reached) else f"> {trace.seconds.sum() / found.seconds:.1f}"


def compare(data: FeatureData, beams: list[int], patience: float, seed: int) -> pd.DataFrame:
    """Search in its settings; a chain from nothing; chains from the best of search, without and with hill climbing."""
    tried, key = searches(data, beams), jax.random.key(seed)
    plain, best = (
        max((f for f in tried if f.name.endswith(ends)), key=lambda found: found.answer.log_joint)
        for ends in (("column", "complete"), "refined")
    )
    cold, compiled = chain(data, float(np.clip(patience * best.seconds, LEAST_SECONDS, MOST_SECONDS)), key)
    peak = float(cold.log_joint.max())
    print(f"  from nothing Gibbs was at its best after {seconds_to_reach(cold, peak):.2f} s")
    rows = [(f.name, f.seconds, f.answer.features, f.answer.gap, ratio(cold, f)) for f in tried]
    rows.append((f"Gibbs, {len(cold.seconds) - 1} sweeps, from nothing", cold.seconds.sum(), cold.best, np.nan, ""))
    for kind, found in (("plain", plain), ("refined", best)):
        start = {"start": found.answer.features, "compiled": compiled, "key": key}
        warm = collapsed_gibbs(data.X, sweeps=WARM_SWEEPS, **start, **data.settings())
        overtaken = found.seconds + seconds_to_reach(warm, peak)
        print(f"  {kind} search ({found.seconds:.2f} s) and Gibbs from there were as high after {overtaken:.2f} s")
        name = f"Gibbs, {WARM_SWEEPS} sweeps, from {kind} search"
        rows.append((name, found.seconds + warm.seconds.sum(), warm.best, np.nan, ""))
    rows.append(("the features that made the data", np.nan, data.features, np.nan, ""))
    table = pd.DataFrame(
        [(n, s, data.mean_squared_error(Z), data.log_joint(Z), Z.shape[1], gap, r) for n, s, Z, gap, r in rows],
        columns=["method", "seconds", "mse", "log P", "features", "gap", "ratio"],
    )
    return table.set_index("method")


def four_features(draws: int) -> pd.DataFrame:
    """Block images drawn anew: K and log P − log P(the features that made them), by plain and by refined search."""
    rows = []
    for seed in range(draws):
        data = block_images(seed)
        truth = data.log_joint(data.features)
        for refine in (0, REFINE):
            found = [
                timed(heuristic, data, beam=10, heuristic=heuristic, expansion="column", refine=refine)
                for heuristic in ("admissible", "inadmissible", "clustered")
            ]
            best = max(found, key=lambda one: one.answer.log_joint)
            for name, one in (*((one.name, one) for one in found), ("best of the three", best)):
                features = one.answer.features.shape[1]
                rows.append((refine > 0, name, features, one.answer.log_joint - truth, one.seconds))
    table = pd.DataFrame(rows, columns=["refined", "heuristic", "features", "above", "seconds"])
    grouped = table.groupby(["refined", "heuristic"], sort=False)
    return pd.DataFrame(
        {
            "draws": grouped.size(),
            "with four features": grouped["features"].agg(lambda k: int((k == 4).sum())),
            "log P above truth's": grouped["above"].agg(lambda nats: int((nats >= 0).sum())),
            "median of the difference": grouped["above"].median(),
            "seconds, mean": grouped["seconds"].mean(),
        }
    )


def online(seed: int, beams: list[int]) -> pd.DataFrame:
    """One observation at a time: the beam against as many particles, and against more."""
    rows = []
    for name, data in table_one(seed).items():
        for beam in beams:
            begun = time.perf_counter()
            settings = {"beam": beam, "heuristic": "inadmissible", "expansion": "column"}
            found = lv.inference.map_features(data.X[:1], **data.settings(), **settings).extend(data.X[1:])
            rows.append((name, f"search, beam {beam}", time.perf_counter() - begun, found.log_joint))
        for particles in (max(beams), 10 * max(beams)):
            begun = time.perf_counter()
            trace = particle_filter(data.X, key=jax.random.key(seed), n_particles=particles, **data.settings())
            rows.append((name, f"{particles} particles", time.perf_counter() - begun, trace.log_joint))
    return pd.DataFrame(rows, columns=["data", "method", "seconds", "log P"]).set_index(["data", "method"])


def growth(seed: int, most: int) -> pd.DataFrame:
    """Seconds against the number of rows, and the slope between neighbours on log scales: 1 is linear."""
    sizes = [size for size in (125, 250, 500, 1000, 2000, 4000) if size <= most]
    rows = []
    for size in sizes:
        data = block_images(seed, size)
        begun = time.perf_counter()
        found = lv.inference.map_features(
            data.X, **data.settings(), beam=10, heuristic="inadmissible", expansion="column", max_features=12
        )
        rows.append((size, time.perf_counter() - begun, found.features.shape[1]))
    table = pd.DataFrame(rows, columns=["rows", "seconds", "features"])
    log_rows, log_seconds = np.log(table[["rows", "seconds"]].to_numpy().T)
    table["slope"] = np.diff(log_seconds, prepend=np.nan) / np.diff(log_rows, prepend=np.nan)
    return table.set_index("rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=12.0)
    parser.add_argument("--growth", type=int, default=2000)
    parser.add_argument("--beams", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    pd.set_option("display.width", 200, "display.max_columns", 10)
    print("As printed (2009)\n", PAPER, "\n", sep="")
    for name, data in table_one(arguments.seed).items():
        print(f"{name}: alpha {data.alpha}, sigma_x {data.sigma_x}, sigma_a {data.sigma_a}")
        print(compare(data, arguments.beams, arguments.patience, arguments.seed).round(4), "\n", flush=True)
    print("Further draws of the block images\n", four_features(arguments.draws).round(3), "\n", sep="")
    print("Online\n", online(arguments.seed, arguments.beams).round(3), "\n", sep="", flush=True)
    print("Cost against N, block images\n", growth(arguments.seed, arguments.growth).round(3), sep="")


if __name__ == "__main__":
    main()
