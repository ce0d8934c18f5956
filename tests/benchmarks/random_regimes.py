"""Are the answers right as often as they say where models, shapes and priors are themselves drawn at random?

    python tests/benchmarks/random_regimes.py --sets 500 [--seed 20261126] [--out regimes.jsonl] [--families diagonal …]
    python tests/benchmarks/random_regimes.py --report regimes.jsonl [--planted 3]

`calibration.py` asks this of fixed regimes. Here every set of data draws a family (the kind of model), then numbers of
rows and columns, hyper-parameters, the unit and the origin of the columns, and the share of cells that are missing.
Then it draws a size from its prior, and data from the model of that size. The seed is today's date where none is given,
so that every day tries other sets. Each set is searched twice, with two seeds.

| figure | what it is | where it should be |
|---|---|---|
| coverage | how often the smallest set of sizes with 80 or 95 % has the truth | as expected, or above |
| rank p | Kolmogorov–Smirnov test of the truth's randomised rank, uniform if the posterior is right | > .01 |
| confident errors | sizes with a probability above .95 that are not the truth | ≤ 5 % of them |
| rms z | root mean square of the difference of the two searches over its stated error | .9–1.1 |
| beyond 3 | share of those differences beyond three errors | ≤ .6 % |
| no answer | sets of which a search said that it had no single number yet; they are counted nowhere else | |

z compares log evidences, or log probabilities, of sizes with a probability of at least .05. It judges the error of
sampling alone. An error that both searches share is seen by the ranks.
"""

import argparse
import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from calibration import (
    Calibration,
    Regime,
    annotated,
    blocks,
    calibration,
    hashable,
    hidden_markov,
    rows,
    searched,
    texts,
    with_planted,
)

import lvsearch as lv

FEWEST_PROBABLE = 0.05
"""The smallest probability of a size whose two evidences are compared."""
SECOND_SEED = 10**6
"""What is added to the seed of the first search to get that of the second."""


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a number between low and high, evenly in its logarithm."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def choose(rng: np.random.Generator, *values: Any) -> Any:
    """Draw one of the values. Shapes are drawn from few, so that programs are compiled once."""
    return values[int(rng.integers(len(values)))]


@dataclass(frozen=True)
class Columns:
    """Where the columns lie and in which unit: the model's prior and the data share both."""

    location: float
    scale: float

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "Columns":
        """A unit between a thousandth and a thousand, and an origin up to a million units away."""
        scale = log_uniform(rng, 1e-3, 1e3)
        return cls(float(rng.choice([-1, 0, 1])) * scale * log_uniform(rng, 1.0, 1e6), scale)


def with_missing(regime: Regime, share: float, seed: int) -> Regime:
    """The same regime, with a share of the cells missing at random; every row keeps at least one."""

    def draw(key: Any, size: Any) -> lv.Points:
        values = np.array(regime.draw(key, size), np.float64)
        rng = np.random.default_rng(seed)
        gone = rng.random(values.shape) < share
        gone[np.arange(len(values)), rng.integers(values.shape[1], size=len(values))] = False
        return lv.Points.from_array(np.where(gone, np.nan, values), missing="nan")

    return Regime(regime.model, regime.prior, regime.max_size, draw)


def count_or_prior(rng: np.random.Generator) -> Any:
    """Draw the number of rows that the prior of a mean is worth; in a third of the cases it has a prior of its own."""
    return lv.models.GammaPrior(2.0, 4.0) if rng.random() < 1 / 3 else log_uniform(rng, 0.01, 0.7)


def mixture_of(rng: np.random.Generator, components: Any, n_dims: int, whole: bool = False) -> Regime:
    """A finite mixture, static or dynamic, of 20, 40 or 80 rows."""
    model = lv.models.FiniteMixture(components, log_uniform(rng, 0.5, 2.0), dynamic=bool(rng.random() < 0.3))
    return rows(model, choose(rng, 20, 40, 80), n_dims, rng.uniform(2, 4), 8, whole)


def often_missing(rng: np.random.Generator, regime: Regime) -> Regime:
    """The regime as it is, or in half of the cases with a tenth or a third of its cells missing."""
    share = choose(rng, 0.0, 0.0, 0.1, 0.3)
    return with_missing(regime, share, int(rng.integers(2**31))) if share else regime


def diagonal(rng: np.random.Generator) -> lv.models.DiagonalComponents:
    """Gaussians with independent columns."""
    at = Columns.drawn(rng)
    shape, rate = rng.uniform(1.5, 4), log_uniform(rng, 0.2, 2)
    return lv.models.DiagonalComponents(at.location, at.scale, count_or_prior(rng), shape, rate)


def full(rng: np.random.Generator) -> lv.models.FullCovarianceComponents:
    """Gaussians with a covariance matrix."""
    at = Columns.drawn(rng)
    spread = log_uniform(rng, 0.2, 2)
    return lv.models.FullCovarianceComponents(at.location, at.scale, count_or_prior(rng), rng.uniform(3, 7), spread)


def gaussians_of_factors(rng: np.random.Generator) -> Regime:
    """A mixture of factor analysers."""
    at = Columns.drawn(rng)
    components = lv.models.FactorAnalyzerComponents(
        1, at.location, at.scale, count_or_prior(rng), log_uniform(rng, 0.5, 2), rng.uniform(3, 5), 1.0
    )
    return rows(lv.models.FactorAnalyzerMixture(components), choose(rng, 30, 60), choose(rng, 3, 4), 2.5, 6)


def independent_normals(rng: np.random.Generator) -> Regime:
    """Richardson & Green's mixture, in one column."""
    at = Columns.drawn(rng)
    model = lv.models.IndependentNormalMixture(at.location, at.scale, log_uniform(rng, 0.3, 1.0))
    return rows(model, choose(rng, 20, 40, 80), 1, 3.0, 8)


def known(rng: np.random.Generator) -> lv.models.KnownCovarianceComponents:
    """Gaussians of known variance."""
    at = Columns.drawn(rng)
    return lv.models.KnownCovarianceComponents(at.scale**2, at.location, log_uniform(rng, 0.01, 0.5))


def block_cells(rng: np.random.Generator) -> Any:
    """The kind of the cells of a block model."""
    return choose(
        rng,
        lv.models.BernoulliComponents(0.5, 0.5),
        lv.models.PoissonComponents(1.0, 0.3),
        lv.models.DiagonalComponents(0.0, 1.0, 0.2, 3.0, 1.0),
    )


def bernoulli(rng: np.random.Generator) -> lv.models.BernoulliComponents:
    """Cells of 0 or 1."""
    return lv.models.BernoulliComponents(log_uniform(rng, 0.2, 1.5), log_uniform(rng, 0.2, 1.5))


FAMILIES: dict[str, Callable[[np.random.Generator], Regime]] = {
    "diagonal": lambda rng: often_missing(rng, mixture_of(rng, diagonal(rng), choose(rng, 1, 2, 5))),
    "full": lambda rng: mixture_of(rng, full(rng), choose(rng, 2, 3)),
    "tied": lambda rng: rows(lv.models.TiedMixture(full(rng)), choose(rng, 30, 60), choose(rng, 2, 3), 3.0, 8),
    "low-rank": gaussians_of_factors,
    "independent-normals": independent_normals,
    "known": lambda rng: often_missing(rng, mixture_of(rng, known(rng), choose(rng, 1, 2, 4))),
    "student": lambda rng: mixture_of(
        rng, lv.models.StudentComponents(diagonal(rng), rng.uniform(3, 8)), choose(rng, 1, 2)
    ),
    "bernoulli": lambda rng: often_missing(rng, mixture_of(rng, bernoulli(rng), choose(rng, 3, 6, 12))),
    "poisson": lambda rng: often_missing(
        rng,
        mixture_of(rng, lv.models.PoissonComponents(rng.uniform(0.5, 3), log_uniform(rng, 0.05, 1)), choose(rng, 2, 4)),
    ),
    "multinomial": lambda rng: mixture_of(
        rng, lv.models.MultinomialComponents(log_uniform(rng, 0.2, 1)), choose(rng, 5, 10), whole=True
    ),
    "unigrams": lambda rng: texts(
        lv.models.MixtureOfUnigrams(1.0, log_uniform(rng, 0.2, 1)), choose(rng, 30, 60), 20, choose(rng, 15, 30), 3.0, 8
    ),
    "topics": lambda rng: texts(
        lv.models.LDA(log_uniform(rng, 1, 4), log_uniform(rng, 0.1, 0.5)), choose(rng, 20, 40), 20, 20, 3.0, 6
    ),
    "hidden-markov": lambda rng: hidden_markov(
        lv.models.DiagonalComponents(0.0, 1.0, log_uniform(rng, 0.02, 0.3)), choose(rng, 2, 4), 10, choose(rng, 1, 2)
    ),
    "blocks": lambda rng: blocks(lv.models.LatentBlockModel(block_cells(rng)).component, 20, 15, 2.0, (4, 4)),
    "counts": lambda rng: rows(
        lv.models.PoissonFactorization(mean_count=log_uniform(rng, 0.5, 5)), choose(rng, 12, 24), 8, 2.0, 4
    ),
    "features": lambda rng: often_missing(rng, rows(lv.models.IBP(), choose(rng, 8, 12), choose(rng, 2, 3), 2.0, 4)),
    "captions": lambda rng: annotated(choose(rng, lv.models.GMMixture(), lv.models.CorrLDA()), 20, 2, 2),
}
"""One function a family: a generator of random numbers -> a regime drawn with it."""


def one_set(number: int, seed: int, families: list[str]) -> dict[str, Any]:
    """Draw a regime and one set of data, search it twice, and return both answers."""
    rng = np.random.default_rng([seed, number])
    family = families[number % len(families)]
    regime = FAMILIES[family](rng)
    truth, data = regime.set_of(number, seed)
    first = searched(regime, data, number, "marginal")
    second = searched(regime, data, number + SECOND_SEED, "marginal")
    return {
        "number": number,
        "family": family,
        "model": regime.model.describe(),
        "shape": list(np.shape(data)) if isinstance(data, np.ndarray) else [],
        "truth": truth,
        **first,
        "second": {name: second[name] for name in ("sizes", "log_evidence", "standard_error", "probability")},
    }


def differences(entry: dict[str, Any]) -> list[float]:
    """The differences of the two searches over their stated errors, of sizes that are probable.

    They are of log evidences. Chains over partitions, which have no brackets, know these up to a constant that both
    searches fix by a fit. There log probabilities are compared.
    """
    second, name = entry["second"], "log_evidence" if any(entry["brackets"]) else "probability"
    place = {str(size): row for row, size in enumerate(second["sizes"])}
    found = []
    for row, size in enumerate(entry["sizes"]):
        other = place.get(str(list(size) if isinstance(size, tuple) else size))
        if other is None or not entry["probability"][row] >= FEWEST_PROBABLE:
            continue
        error = np.hypot(entry["standard_error"][row], second["standard_error"][other])
        values = np.array([entry[name][row], second[name][other]])
        first, again = values if name == "log_evidence" else np.log(np.maximum(values, np.finfo(float).tiny))
        if np.isfinite(error) and error > 0:
            found.append((first - again) / error)
    return found


def has_answer(entry: dict[str, Any]) -> bool:
    """Whether both searches gave probabilities."""
    return bool(np.all(np.isfinite([*entry["probability"], *entry["second"]["probability"]])))


def report(entries: list[dict[str, Any]], planted: float) -> str:
    """The table of all families, and the line of all sets together."""
    answered = [entry for entry in entries if has_answer(entry)]
    lines = [f"{len(entries)} sets, {len(entries) - len(answered)} without an answer"]
    names = sorted({entry["family"] for entry in entries})
    for name in [*names, "all"]:
        own = [entry for entry in answered if name in ("all", entry["family"])]
        if not own:
            lines.append(f"{name}: no set with an answer")
            continue
        judged = [with_planted(entry, planted) for entry in own] if planted else own
        z = np.array([one for entry in own for one in differences(entry)])
        tails = (
            f"z of {len(z)} sizes: rms {np.sqrt(np.mean(z**2)):.2f}, beyond 3 {np.mean(np.abs(z) > 3):.1%}"
            if len(z)
            else "no size with an error"
        )
        lines.append(f"{name}: {short(calibration(judged))}; {tails}")
    return "\n".join(lines)


def short(found: Calibration) -> str:
    """The figures of a campaign in one line."""
    levels = ", ".join(
        f"{level:.0%}: {found.coverage[level]:.1%} ({found.expected[level]:.1%})" for level in (0.8, 0.95)
    )
    return (
        f"{found.sets} sets, {levels}, ranks p {found.rank_p:.3f}, above .95 {found.confident}, wrong "
        f"{found.confident_errors}, log p(truth) {found.log_probability:.2f}, {found.seconds:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="number of the first set")
    parser.add_argument("--seed", type=int, default=int(datetime.date.today().strftime("%Y%m%d")))
    parser.add_argument("--families", nargs="+", choices=sorted(FAMILIES), default=sorted(FAMILIES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path, nargs="+")
    parser.add_argument("--planted", type=float, default=0.0, help="nats that every component is worth too much")
    arguments = parser.parse_args()
    paths = arguments.report or ([arguments.out] if arguments.out is not None and arguments.out.exists() else [])
    entries = [hashable(json.loads(line)) for path in paths for line in path.read_text().splitlines()]
    done = {entry["number"] for entry in entries}
    numbers = [] if arguments.report else range(arguments.first, arguments.first + arguments.sets)
    for number in numbers:
        if number in done:
            continue
        entries.append(one_set(number, arguments.seed, arguments.families))
        print(number, entries[-1]["family"], entries[-1]["truth"], f"{entries[-1]['seconds']:.1f} s", flush=True)
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(json.dumps(entries[-1]) + "\n")
        if number % 40 == 39:
            jax.clear_caches()  # shapes repeat, but programs of hundreds of sets fill the memory
    print(report(entries, arguments.planted))


if __name__ == "__main__":
    main()
