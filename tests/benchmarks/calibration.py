"""Are the answers right as often as they say? Sizes from the prior, data from the model, a search of each.

    python tests/benchmarks/calibration.py topics-hard --sets 200 [--seed 0] [--out hard.jsonl] [--beside bound]
    python tests/benchmarks/calibration.py --report hard.jsonl [--planted 3]

Every set is a line of the file, written as it comes, so a run can be cut off and gone on with. What is counted:

| figure | what it is | where it should be |
|---|---|---|
| coverage | how often the smallest set of sizes with 80, 90, 95 % of the probability has the truth | that, or above |
| expected | what the reported probabilities say of the same sets | where coverage is |
| rank p | Kolmogorov-Smirnov test of the truth's randomised rank, uniform if the posterior is right | > .01 |
| told apart | how often one size is told apart from every other, and how often wrongly | wrong ≤ 5 % of them |
| confident errors | sizes with a probability above .95 that are not the truth, as a share of those above .95 | ≤ 5 % |
| log p(truth) | mean log probability of the true size, nats | as of exact evidence |

--beside bound: the same with the mean-field bound in the evidence's place. --beside annealed: mixtures of rows and
block models, which are searched by chains over partitions, size by size. --planted N: the report of answers in which
every component is worth N nats more than it is, which must fail.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.sparse import csr_array
from scipy.stats import kstest

import lvsearch as lv
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.contract import Model
from lvsearch.models.units import AnnotatedImage, BagOfWords, GroupOfRows, Row

LEVELS = (0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Regime:
    """A model, a prior over its sizes up to `max_size`, and how data of one size are drawn: (key, size) -> data.

    Sizes are numbers; of several size variables, tuples."""

    model: Model
    prior: lv.sizes.SizePrior
    max_size: int | tuple[int, ...]
    draw: Callable[[Any, Any], Any]

    @property
    def sizes(self) -> list[int] | list[tuple[int, ...]]:
        """All of them, in order."""
        if isinstance(self.max_size, int):
            return list(range(1, self.max_size + 1))
        return [tuple(n + 1 for n in index) for index in np.ndindex(*self.max_size)]

    def set_of(self, number: int, seed: int) -> tuple[Any, Any]:
        """The true size of one set, drawn from the prior, and its data."""
        key = jax.random.fold_in(jax.random.key(seed), number)
        rng = np.random.default_rng([seed, number])
        prior = np.exp([self.prior.log_pmf(size) for size in self.sizes])
        truth = self.sizes[int(rng.choice(len(prior), p=prior / prior.sum()))]
        return truth, self.draw(key, truth)


def truncated_poisson(rate: float, most: int) -> lv.sizes.Table:
    """Poisson on 1 … most."""
    log = np.array([lv.sizes.Poisson(rate).log_pmf((size,)) for size in range(1, most + 1)])
    weights = np.exp(log - log.max())
    return lv.sizes.Table(weights / weights.sum())


def topics(documents: int, tokens: int, words: int, eta: Any, total: Any, rate: float, most: int) -> Regime:
    """eta, total: numbers, or `GammaPrior`s, from which every set draws its own."""
    return texts(lv.models.LDA(total, eta), documents, tokens, words, rate, most)


def texts(model: Model, documents: int, tokens: int, words: int, rate: float, most: int) -> Regime:
    """Documents of equal lengths."""

    def draw(key: Any, size: int) -> lv.Corpus:
        shape = (documents, tokens)
        units = BagOfWords(np.zeros(shape, np.int32), np.ones(shape, np.float32))
        drawn = model.simulate(key, (size,), units, {"word": words})[2]
        rows = np.repeat(np.arange(documents), tokens)
        counts = csr_array((np.ones(rows.size, np.int32), (rows, np.asarray(drawn.words).ravel())), (documents, words))
        return lv.Corpus.from_matrix(counts)

    return Regime(model, truncated_poisson(rate, most), most, draw)


def rows(model: Model, n_rows: int, n_dims: int, rate: float, most: int, whole: bool = False) -> Regime:
    def draw(key: Any, size: int) -> np.ndarray:
        observed = np.ones((n_rows, n_dims), bool)
        start = np.full((n_rows, n_dims), 20.0 / n_dims) if whole else np.zeros((n_rows, n_dims))
        with jax.enable_x64(True):
            drawn = model.simulate(key, (size,), Row(start, observed), {"dim": n_dims})[2]
        return np.asarray(drawn.value, np.float64)

    return Regime(model, truncated_poisson(rate, most), most, draw)


def gaps(regime: Regime, share: float) -> Regime:
    """The same rows, of which a share of the cells is missing at random."""

    def draw(key: Any, size: int) -> lv.Points:
        values = regime.draw(key, size)
        missing = jax.random.uniform(jax.random.fold_in(key, 1), values.shape) < share
        return lv.Points.from_array(values, observed=~np.asarray(missing))

    return Regime(regime.model, regime.prior, regime.max_size, draw)


def mixture(components: Any, n_rows: int, n_dims: int, whole: bool = False) -> Regime:
    return rows(lv.models.FiniteMixture(components), n_rows, n_dims, 3.0, 8, whole)


def tied(components: Any, n_rows: int, n_dims: int) -> Regime:
    """One covariance for all components."""
    return rows(lv.models.TiedMixture(components), n_rows, n_dims, 3.0, 8)


def low_rank(components: Any, n_rows: int, n_dims: int) -> Regime:
    """Covariances of few factors and each column's noise."""
    return rows(lv.models.FactorAnalyzerMixture(components), n_rows, n_dims, 3.0, 8)


def blocks(component: Any, n_rows: int, n_dims: int, rate: float, most: tuple[int, int]) -> Regime:
    """Clusters of rows and of columns, independent a priori."""
    model = lv.models.LatentBlockModel(component)

    def draw(key: Any, size: tuple[int, ...]) -> np.ndarray:
        shape = (n_rows, n_dims)
        with jax.enable_x64(True):
            drawn = model.simulate(key, size, Row(np.zeros(shape), np.ones(shape, bool)), {"dim": n_dims})[2]
        return np.asarray(drawn.value, np.float64)

    return Regime(model, lv.sizes.Product(*(truncated_poisson(rate, n) for n in most)), most, draw)


@dataclass(frozen=True)
class Occupied:
    """A process, whose answer is how many of its parts the data occupy; `draw`: key -> (data, the true number)."""

    model: Model
    draw: Callable[[Any], tuple[np.ndarray, int]]


def process(components: Any, n_rows: int, n_dims: int) -> Occupied:
    """A Dirichlet-process mixture with concentration 1; the e^−60 of the mass that 60 sticks leave is never drawn."""
    model = lv.models.DPMixture(components, concentration=1.0)

    def draw(key: Any) -> tuple[np.ndarray, int]:
        shape = (n_rows, n_dims)
        with jax.enable_x64(True):
            _, of, drawn = model.simulate(key, (60,), Row(np.zeros(shape), np.ones(shape, bool)), {"dim": n_dims})
        return np.asarray(drawn.value, np.float64), len(np.unique(np.argmax(np.asarray(of["component"]), axis=1)))

    return Occupied(model, draw)


def annotated(model: AnnotatedModel, images: int, regions: int, words: int) -> Regime:
    """Images with as many regions of two features, captions of as many words out of six."""
    n_dims, n_words = 2, 6

    def draw(key: Any, size: int) -> lv.PairedCorpus:
        captions = np.zeros((images, words), np.int32)
        features = np.zeros((images, regions, n_dims))
        units = AnnotatedImage(features, np.ones((images, regions), bool), captions, np.ones((images, words)))
        with jax.enable_x64(True):
            drawn = model.simulate(key, (size,), units, {"word": n_words, "dim": n_dims})[2]
        counts = np.zeros((images, n_words), np.int64)
        np.add.at(counts, (np.arange(images)[:, None], np.asarray(drawn.words)), 1)
        return lv.PairedCorpus.from_arrays(np.asarray(drawn.regions, np.float64), counts)

    return Regime(model, truncated_poisson(2.0, 4), 4, draw)


def hidden_markov(
    components: Any, sequences: int, length: int, n_dims: int, mean: float = 2.0, largest: int = 4
) -> Regime:
    """Sequences of `length` rows. The number of states is Poisson with this mean, truncated at `largest`."""
    model = lv.models.HiddenMarkov(components)

    def draw(key: Any, size: int) -> lv.Groups:
        shape = (sequences, length)
        units = GroupOfRows(np.zeros((*shape, n_dims)), np.ones((*shape, n_dims), bool), np.ones(shape, bool))
        with jax.enable_x64(True):
            drawn = model.simulate(key, (size,), units, {"dim": n_dims})[2]
        return lv.Groups.from_arrays(list(np.asarray(drawn.value, np.float64)))

    return Regime(model, truncated_poisson(mean, largest), largest, draw)


HYPER = lv.models.GammaPrior(2.0, 4.0)
"""Of the scales and of how far components are apart: every set draws its own."""

GAPPED = lv.models.FullCovarianceComponents(0.0, 1.0, HYPER, 6.0, HYPER, partial_rows=True)
"""Gaussians whose rows may lack cells."""

NOISE = lv.models.GammaPrior(4.0, 0.4)
"""Of the shape of the noise of counts: every set draws its own, about 10."""

REGIMES: dict[str, Callable[[], Regime | Occupied]] = {
    "topics-hard": lambda: topics(60, 30, 40, 0.3, 3.0, 5.0, 14),
    "topics-easy": lambda: topics(120, 50, 80, 0.1, 2.0, 5.0, 14),
    "topics-gamma": lambda: topics(30, 20, 20, lv.models.GammaPrior(4, 16), lv.models.GammaPrior(4, 2), 3.0, 6),
    "unigrams-overlapping": lambda: texts(lv.models.MixtureOfUnigrams(1.0, 1.0), 60, 20, 20, 3.0, 8),
    "unigrams-separated": lambda: texts(lv.models.MixtureOfUnigrams(1.0, 0.2), 60, 20, 20, 3.0, 8),
    "diagonal-overlapping": lambda: mixture(lv.models.DiagonalComponents(pseudo_count=0.5), 60, 2),
    "diagonal-separated": lambda: mixture(lv.models.DiagonalComponents(pseudo_count=0.01), 60, 2),
    "full-overlapping": lambda: mixture(lv.models.FullCovarianceComponents(pseudo_count=0.5), 60, 2),
    "full-separated": lambda: mixture(lv.models.FullCovarianceComponents(pseudo_count=0.01), 60, 2),
    "tied-overlapping": lambda: tied(lv.models.FullCovarianceComponents(pseudo_count=0.5), 60, 2),
    "tied-separated": lambda: tied(lv.models.FullCovarianceComponents(pseudo_count=0.01), 60, 2),
    "tied-hyper": lambda: tied(lv.models.FullCovarianceComponents(0.0, 1.0, HYPER, 6.0, HYPER), 60, 2),
    "low-rank": lambda: low_rank(lv.models.FactorAnalyzerComponents(1, 0.0, 1.0, HYPER, 1.0, 4.0, HYPER), 60, 4),
    "diagonal-hyper": lambda: mixture(lv.models.DiagonalComponents(0.0, 1.0, HYPER, 4.0, HYPER), 60, 2),
    "full-hyper": lambda: mixture(lv.models.FullCovarianceComponents(0.0, 1.0, HYPER, 6.0, HYPER), 60, 2),
    "full-gaps": lambda: gaps(mixture(GAPPED, 100, 3), 0.15),
    "tied-gaps": lambda: gaps(tied(GAPPED, 100, 3), 0.15),
    "known-overlapping": lambda: mixture(lv.models.KnownCovarianceComponents(1.0, pseudo_count=0.3), 60, 2),
    "known-separated": lambda: mixture(lv.models.KnownCovarianceComponents(1.0, pseudo_count=0.01), 60, 2),
    "bernoulli-overlapping": lambda: mixture(lv.models.BernoulliComponents(1.0, 1.0), 80, 6),
    "bernoulli-separated": lambda: mixture(lv.models.BernoulliComponents(0.2, 0.2), 80, 12),
    "multinomial-overlapping": lambda: mixture(lv.models.MultinomialComponents(1.0), 60, 6, whole=True),
    "multinomial-separated": lambda: mixture(lv.models.MultinomialComponents(0.2), 60, 10, whole=True),
    "gm-mixture": lambda: annotated(lv.models.GMMixture(), 24, 2, 2),
    "corr-lda": lambda: annotated(lv.models.CorrLDA(), 24, 2, 2),
    "process-overlapping": lambda: process(lv.models.DiagonalComponents(pseudo_count=0.5), 30, 2),
    "process-separated": lambda: process(lv.models.DiagonalComponents(pseudo_count=0.01), 30, 2),
    "hidden-markov": lambda: hidden_markov(lv.models.DiagonalComponents(pseudo_count=0.1), 3, 10, 2),
    "hidden-markov-long": lambda: hidden_markov(lv.models.DiagonalComponents(pseudo_count=0.1), 1, 400, 2, 3.0, 6),
    "block-model": lambda: blocks(lv.models.BernoulliComponents(1.0, 1.0), 100, 80, 3.0, (6, 5)),
    "poisson-factorization": lambda: rows(lv.models.PoissonFactorization(mean_count=2.0), 24, 10, 2.5, 5),
    "noisy-counts": lambda: rows(lv.models.PoissonFactorization(mean_count=2.0, noise_shape=NOISE), 24, 10, 2.5, 5),
    "many-noisy-counts": lambda: rows(
        lv.models.PoissonFactorization(mean_count=100.0, noise_shape=NOISE), 24, 10, 2.5, 5
    ),
    "features": lambda: rows(lv.models.IBP(), 12, 3, 2.0, 4),
}


def one_set(regime: Regime, number: int, seed: int, evidence: str) -> dict[str, Any]:
    """One set of data and what the search says of it."""
    truth, data = regime.set_of(number, seed)
    return {"number": number, "truth": truth, **searched(regime, data, number, evidence)}


def searched(regime: Regime, data: Any, seed: int, evidence: str) -> dict[str, Any]:
    """What one search with a given seed says of one set of data."""
    began = time.perf_counter()
    result = lv.search(
        regime.model,
        data,
        prior=regime.prior,
        evidence=evidence,
        max_size=regime.max_size,
        seed=seed,
        progress=False,
    )
    seconds = time.perf_counter() - began
    table = result.posterior()
    trials = {visit.size: visit.trials for visit in result.visits}  # chains over partitions fit few sizes
    names = ["size"] if isinstance(regime.max_size, int) else list(regime.model.size_names)
    sizes = [tuple(size) for size in table[names].to_numpy().tolist()]
    return {
        "sizes": [plain(size) for size in sizes],
        "log_prior": table["log_prior"].tolist(),
        "log_evidence": table["log_evidence"].tolist(),
        "standard_error": table["standard_error"].tolist(),
        "probability": table["probability"].tolist(),
        "together": [plain(size) for size in result.estimated.indistinguishable],
        "trials": [len(trials.get(size, ())) for size in sizes],
        "brackets": [
            [
                (bracket.steps, bracket.anchor_error, rounded(bracket.forward), rounded(bracket.backward))
                for trial in trials.get(size, ())
                for bracket in trial.brackets
            ]
            for size in sizes
        ],
        "seconds": seconds,
    }


def plain(size: tuple[int, ...]) -> int | tuple[int, ...]:
    """One number where there is one size variable."""
    return size[0] if len(size) == 1 else size


def hashable(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry as it was before JSON made lists of its sizes."""

    def one(size: Any) -> Any:
        return tuple(size) if isinstance(size, list) else size

    return {**entry, "truth": one(entry["truth"])} | {
        name: [one(s) for s in entry[name]] for name in ("sizes", "together")
    }


def one_process(regime: Occupied, number: int, seed: int) -> dict[str, Any]:
    """One set of data and what `lv.occupied` says of it."""
    data, truth = regime.draw(jax.random.fold_in(jax.random.key(seed), number))
    began = time.perf_counter()
    table = lv.occupied(regime.model, data, draws=500, seed=number, progress=False).posterior()
    sizes, probability = table["size"].tolist(), table["probability"].tolist()
    seconds = time.perf_counter() - began
    return {
        "number": number,
        "truth": truth,
        "sizes": sizes,
        "probability": probability,
        "together": sizes,
        "seconds": seconds,
    }


def rounded(values: tuple[float, ...]) -> list[float]:
    return np.round(values, 2).tolist()


def with_planted(entry: dict[str, Any], nats: float) -> dict[str, Any]:
    """The same answer with every component worth `nats` more."""
    if "log_evidence" not in entry:
        sizes, probability = np.array(entry["sizes"]), np.array(entry["probability"])
        tilted = probability * np.exp(nats * (sizes - sizes.max()))
        return {**entry, "probability": (tilted / tilted.sum()).tolist()}
    from lvsearch.sizing.posterior import estimate_posterior

    sizes = [size if isinstance(size, tuple) else (size,) for size in entry["sizes"]]
    found = estimate_posterior(
        sizes,
        np.array(entry["log_prior"]),
        np.array(entry["log_evidence"]) + nats * np.array(sizes).sum(1),
        np.array(entry["standard_error"]),
    )
    together = [plain(size) for size in found.indistinguishable]
    return {**entry, "probability": found.probability.tolist(), "together": together}


@dataclass(frozen=True)
class Calibration:
    """What a campaign found; the module's docstring says what each figure is."""

    sets: int
    coverage: dict[float, float]
    expected: dict[float, float]
    rank_p: float
    apart: int
    wrongly_apart: int
    confident: int
    confident_errors: int
    log_probability: float
    best_is_truth: float
    seconds: float

    def describe(self) -> str:
        levels = "  ".join(
            f"{level:.0%} sets hold the truth {self.coverage[level]:.1%} (expected {self.expected[level]:.1%})"
            for level in LEVELS
        )
        return (
            f"{self.sets} sets: {levels}\n  ranks uniform p = {self.rank_p:.3f}; told apart {self.apart}, wrongly "
            f"{self.wrongly_apart}; above .95 {self.confident}, wrong {self.confident_errors}; mean log p(truth) "
            f"{self.log_probability:.3f}; best is the truth {self.best_is_truth:.1%}; median {self.seconds:.1f} s"
        )


def calibration(entries: list[dict[str, Any]]) -> Calibration:
    """The figures of a campaign; ranks are randomised with a fixed seed."""
    rng = np.random.default_rng(0)
    held: dict[float, list[bool]] = {level: [] for level in LEVELS}
    said: dict[float, list[float]] = {level: [] for level in LEVELS}
    ranks, logs, right = [], [], []
    apart = wrongly = confident = errors = 0
    for entry in entries:
        sizes, probability, truth = entry["sizes"], np.array(entry["probability"]), entry["truth"]
        of = dict(zip(sizes, probability.tolist(), strict=True))
        order = np.argsort(-probability, kind="stable")
        total = np.cumsum(probability[order])
        for level in LEVELS:
            last = int(np.searchsorted(total, level * (1 - 1e-9)))
            held[level].append(truth in {sizes[row] for row in order[: last + 1]})
            said[level].append(float(total[min(last, len(total) - 1)]))
        below = sum(p for size, p in of.items() if size < truth)
        ranks.append(below + rng.random() * of.get(truth, 0.0))
        logs.append(np.log(max(of.get(truth, 0.0), 1e-12)))
        best = sizes[int(np.argmax(probability))]
        right.append(best == truth)
        if len(entry["together"]) == 1:
            apart += 1
            wrongly += best != truth
        if probability.max() > 0.95:
            confident += 1
            errors += best != truth
    return Calibration(
        len(entries),
        {level: float(np.mean(held[level])) for level in LEVELS},
        {level: float(np.mean(said[level])) for level in LEVELS},
        float(kstest(ranks, "uniform").pvalue),
        apart,
        wrongly,
        confident,
        errors,
        float(np.mean(logs)),
        float(np.mean(right)),
        float(np.median([entry["seconds"] for entry in entries])),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("regime", nargs="?", choices=sorted(REGIMES))
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", default="marginal", choices=("marginal", "annealed", "partitions", "bound"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path, nargs="+")
    parser.add_argument("--planted", type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.report:
        entries = [hashable(json.loads(line)) for path in arguments.report for line in path.read_text().splitlines()]
    else:
        regime, entries = REGIMES[arguments.regime](), []
        done = set()
        if arguments.out is not None and arguments.out.exists():
            entries = [hashable(json.loads(line)) for line in arguments.out.read_text().splitlines()]
            done = {entry["number"] for entry in entries}
        for number in range(arguments.first, arguments.first + arguments.sets):
            if number in done:
                continue
            if isinstance(regime, Occupied):
                entries.append(one_process(regime, number, arguments.seed))
            else:
                entries.append(one_set(regime, number, arguments.seed, arguments.beside))
            if arguments.out is not None:
                with arguments.out.open("a") as file:
                    file.write(json.dumps(entries[-1]) + "\n")
    if arguments.planted:
        entries = [with_planted(entry, arguments.planted) for entry in entries]
    print(calibration(entries).describe())


if __name__ == "__main__":
    main()
