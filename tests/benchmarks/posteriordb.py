"""Reference draws for the posteriors of LDA in posteriordb, which has none of them (Magnusson et al. 2025).

    python tests/benchmarks/posteriordb.py three_docs1200              # known exactly; its data are made here
    python tests/benchmarks/posteriordb.py .../data/data/three_men1.json.zip --thin 20 --out FOLDER

A posterior of LDA has copies of each mode (topics have no names) and other modes besides, between which no chain that
draws one word's topic after another moves in reasonable time. So chains begin here with states that annealed importance
sampling ended in, drawn in proportion to their weights: a mode begins as many chains as its probability asks for. The
draws count as a reference only if all chains then agree once the topics are matched, by posteriordb's own rules: 10,000
draws, at least four chains, R-hat of at most 1.01, and an autocorrelation from one draw to the next of at most .05 on
average over the chains. Then the topics of each draw are put in an order drawn at random, as the posterior has all
orders alike, and the files have posteriordb's form: a list of chains, {"theta[1,1]": [1,000 numbers], ...}.

`three_docs1200` has 1,200 words in four kinds of cells, so that the number of words in each cell that belong to the
first topic has 361 × 41 × 401 × 401 possible values: all are summed, and draws are independent.
"""

import argparse
import io
import json
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.sparse import coo_array
from scipy.special import gammaln, logsumexp

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.annealing.dispatch import sampled_chain
from lvsearch.inference.diagnostics import autocorrelation, bulk_effective_sample_size, rhat
from lvsearch.inference.evidence import Effort, both_ways, temperature_profile
from lvsearch.inference.sampling.parameters import with_parameters
from lvsearch.inference.sampling.run import run
from lvsearch.inference.sampling.trace import recorder

CHAINS, DRAWS = 10, 1000
"""The number of chains, and of the draws kept of each: 10,000 in all, as posteriordb asks."""
MOST_RHAT, MOST_AUTOCORRELATION = 1.01, 0.05
"""The limits of posteriordb's checks."""
GROUPS, PARTICLES = 4, 64
"""Groups of annealed particles in each of two halves, and particles in a group."""


@dataclass(frozen=True)
class Problem:
    """A posterior of LDA in posteriordb's terms.

    | field | meaning |
    |---|---|
    | `name` | the name of the data set |
    | `counts` | how often each word is in each document, (document, word) |
    | `topics` | the number of topics |
    | `alpha`, `beta` | the Dirichlet parameters of a document's proportions and of a topic's words, all alike |
    """

    name: str
    counts: np.ndarray
    topics: int
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def title(self) -> str:
        """The name of the posterior."""
        return f"{self.name}-ldaK{self.topics}"


def three_docs() -> Problem:
    """Return three documents of 400 words: 360 and 40 of two kinds, 400 of the second, 400 of a third."""
    return Problem("three_docs1200", np.array([[360, 40, 0], [0, 400, 0], [0, 0, 400]]), 2)


def read(path: Path) -> Problem:
    """Return the problem in a data file of posteriordb, JSON or zipped JSON.

    Without `alpha` and `beta` the data belong to `ldaK2`, which sets both to 1. Raises ValueError where one of them has
    numbers that differ.
    """
    raw = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            raw = archive.read(archive.namelist()[0])
    data = json.loads(raw)
    places = np.array(data["doc"]) - 1, np.array(data["w"]) - 1
    counts = coo_array((np.ones(data["N"], int), places), shape=(data["M"], data["V"])).toarray()
    alpha, beta = data.get("alpha", [1.0, 1.0]), data.get("beta", [1.0])
    if len(set(alpha)) > 1 or len(set(beta)) > 1:
        raise ValueError(f"got alpha={alpha} and {len(set(beta))} values of beta, expected all alike in each")
    return Problem(path.name.split(".")[0], counts, len(alpha), float(alpha[0]), float(beta[0]))


class Cells:
    """The words of one kind in one document, of a problem with few such cells and two topics.

    Words of a cell can be exchanged, so that only the number n of them that belong to the first topic matters:
    p(n | counts) ∝ ∏_cells (N over n) ∏_documents B(α + n_d, α + N_d − n_d) ∏_topics ∏_words Γ(β + n_kv) / Γ(Vβ + n_k)
    with proportions and topics integrated out (Griffiths & Steyvers 2004). All n are summed, one of the first cell at
    a time.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.document, self.word = np.nonzero(problem.counts)
        self.total = problem.counts[self.document, self.word]
        alpha, beta, n_words = problem.alpha, problem.beta, problem.counts.shape[1]

        def both(prior: float, n: int) -> np.ndarray:
            """Return log Γ(prior + i) Γ(prior + n − i) for i from 0 to n."""
            terms = gammaln(prior + np.arange(n + 1))
            return terms + terms[::-1]

        self.of_cell = [-both(1.0, n) for n in self.total]
        self.of_document = [both(alpha, n) for n in problem.counts.sum(1)]
        self.of_word = [both(beta, n) for n in problem.counts.sum(0)]
        self.of_all = -both(n_words * beta, problem.counts.sum())
        of_proportions = gammaln(2 * alpha) - 2 * gammaln(alpha) - gammaln(2 * alpha + problem.counts.sum(1))
        of_topics = 2 * (gammaln(n_words * beta) - n_words * gammaln(beta))
        self.log_constant = of_proportions.sum() + of_topics + gammaln(1.0 + self.total).sum()

    def log_densities(self, first: int) -> np.ndarray:
        """Return log p(n, counts) up to a constant for all n that begin with `first`, (0 … N_2, …, 0 … N_last)."""
        grids = np.ogrid[tuple(slice(0, n + 1) for n in self.total[1:])]
        numbers = [np.full((1,) * len(grids), first), *grids]

        def sum_of(cells: np.ndarray) -> np.ndarray:
            """Return the words of the first topic in some cells."""
            return sum((numbers[cell] for cell in cells[1:]), numbers[cells[0]])

        terms = [table[number] for table, number in zip(self.of_cell, numbers, strict=True)]
        terms += [table[sum_of(np.flatnonzero(self.document == d))] for d, table in enumerate(self.of_document)]
        terms += [table[sum_of(np.flatnonzero(self.word == v))] for v, table in enumerate(self.of_word)]
        # tables of few axes first: most sums are then small
        return sum(sorted(terms, key=np.size), np.zeros(1)) + self.of_all[sum_of(np.arange(len(numbers)))]

    def draw(self, generator: np.random.Generator, draws: int) -> np.ndarray:
        """Return independent draws of the numbers, (draw, cell)."""
        log_first = np.array([logsumexp(self.log_densities(first)) for first in range(self.total[0] + 1)])
        print(f"exact log evidence {logsumexp(log_first) + self.log_constant:.3f}")
        chance = np.exp(log_first - logsumexp(log_first))
        firsts = generator.choice(len(chance), draws, p=chance)
        found = np.empty((draws, len(self.total)), int)
        for first in np.unique(firsts):
            chosen = np.flatnonzero(firsts == first)
            log_p = self.log_densities(first)
            cumulative = np.cumsum(np.exp(log_p - log_p.max()).ravel())
            flat = np.searchsorted(cumulative, generator.random(len(chosen)) * cumulative[-1])
            found[chosen] = np.column_stack([np.full(len(chosen), first), *np.unravel_index(flat, log_p.shape)])
        return found


@dataclass(frozen=True)
class Draws:
    """Draws of a posterior.

    | field | meaning |
    |---|---|
    | `theta` | the proportions of the documents, (chain, draw, document, topic) |
    | `phi` | the probabilities of the words, (chain, draw, topic, word) |
    """

    theta: np.ndarray
    phi: np.ndarray

    def in_random_order(self, generator: np.random.Generator) -> "Draws":
        """Return the draws with the topics of each in an order drawn at random, all orders alike."""
        order = generator.permuted(np.broadcast_to(np.arange(self.phi.shape[2]), self.phi.shape[:3]), axis=-1)
        return Draws(
            np.take_along_axis(self.theta, order[:, :, None, :], -1),
            np.take_along_axis(self.phi, order[:, :, :, None], 2),
        )

    def by_name(self) -> dict[str, np.ndarray]:
        """Return every number by its name in Stan, counted from one, (chain, draw)."""
        return {
            f"{name}[{i + 1},{j + 1}]": values[:, :, i, j]
            for name, values in (("theta", self.theta), ("phi", self.phi))
            for i, j in np.ndindex(values.shape[2:])
        }


def draw_exactly(problem: Problem, seed: int) -> Draws:
    """Return independent draws of a problem with two topics and few cells."""
    generator = np.random.default_rng(seed)
    cells = Cells(problem)
    first = cells.draw(generator, CHAINS * DRAWS)
    n_documents, n_words = problem.counts.shape
    of_document = np.zeros((len(first), n_documents, 2))
    of_topic = np.zeros((len(first), 2, n_words))
    for cell, (d, v, n) in enumerate(zip(cells.document, cells.word, cells.total, strict=True)):
        both = np.stack([first[:, cell], n - first[:, cell]], -1)
        of_document[:, d] += both
        of_topic[:, :, v] += both
    theta, phi = (
        (gamma / gamma.sum(-1, keepdims=True)).reshape(CHAINS, DRAWS, *gamma.shape[1:])
        for gamma in (
            generator.standard_gamma(problem.alpha + of_document),
            generator.standard_gamma(problem.beta + of_topic),
        )
    )
    return Draws(theta, phi)


def sample(problem: Problem, seed: int, *, temperatures: int, thin: int) -> tuple[Draws, float]:
    """Return draws of chains that begin where annealed paths ended, with topics matched; and R-hat of the log density.

    temperatures: how many the annealed paths pass. thin: sweeps from one draw to the next.
    """
    model = lv.models.LDA(problem.alpha * problem.topics, problem.beta)
    data = data_for(model, problem.counts).dataset()
    chain = sampled_chain(model, data, (problem.topics,))
    key_pilot, key_paths, key_chains = jax.random.split(jax.random.key(seed), 3)
    work = Effort(temperatures, GROUPS, PARTICLES)
    ends, states = both_ways(chain, key_paths, work, temperature_profile(chain, key_pilot, work))
    for way, found in (("below", ends.forward), ("above", ends.backward)):
        print(f"log evidence from {way}: {np.sort(found).round(1).tolist()} in eight groups of particles", flush=True)
    generator = np.random.default_rng(seed)
    share = np.exp(ends.forward - ends.forward.max())
    groups = generator.choice(len(share), CHAINS, p=share / share.sum())
    chosen = groups * PARTICLES + generator.integers(PARTICLES, size=CHAINS)
    begin = [np.concatenate(halves, -1)[..., chosen] for halves in zip(*map(jax.tree.leaves, states), strict=True)]
    record = with_parameters(recorder(chain, data, units=True), chain, model, data, units=True)
    settings = {"chains": CHAINS, "warmup": 0, "thin": thin, "recorder": record}
    before = replace(run(chain, key_chains, draws=0, **settings), state=tuple(begin))
    trace = run(chain, key_chains, draws=DRAWS, after=before, **settings)
    matched = trace.relabelled("topic_word")
    return Draws(matched["proportions"], matched["topic_word"]), rhat(trace.log_density)


def lag_one(values: np.ndarray) -> float:
    """Return the autocorrelation from one draw to the next, averaged over the chains of one number, (chain, draw)."""
    return float(np.mean([autocorrelation(chain, 1)[1] for chain in values]))


def judge(draws: Draws) -> dict[str, dict[str, float]]:
    """Return R-hat, effective draws and the mean autocorrelation of every number."""
    return {
        name: {"r_hat": rhat(values), "effective": bulk_effective_sample_size(values), "mean_lag1_ac": lag_one(values)}
        for name, values in draws.by_name().items()
    }


def write(
    problem: Problem, draws: Draws, judged: dict[str, dict[str, float]], folder: Path, method: dict[str, Any]
) -> None:
    """Write the draws and what is known of them as posteriordb stores both."""
    by_name = draws.by_name()
    chains = [{name: values[chain].tolist() for name, values in by_name.items()} for chain in range(CHAINS)]
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{problem.title}.json.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{problem.title}.json", json.dumps(chains))
    rhats, lags = ([each[key] for each in judged.values()] for key in ("r_hat", "mean_lag1_ac"))
    facts = {
        "name": problem.title,
        "inference": {"method": "analytical" if "cells" in method else "collapsed_gibbs", "method_arguments": method},
        "diagnostics": {
            "diagnostic_information": {"names": list(judged)},
            "ndraws": CHAINS * DRAWS,
            "nchains": CHAINS,
            "effective_sample_size_bulk": [each["effective"] for each in judged.values()],
            "r_hat": rhats,
            "mean_lag1_ac": lags,
        },
        "checks_made": {
            "ndraws_is_10k": draws.phi.shape[0] * draws.phi.shape[1] == 10_000,
            "nchains_is_gte_4": draws.phi.shape[0] >= 4,
            "r_hat_below_1_01": max(rhats) <= MOST_RHAT,
            "abs_mean_lag1_ac_below_0_05": max(map(abs, lags)) <= MOST_AUTOCORRELATION,
        },
        "comments": "The topics of every draw are in an order drawn at random: the posterior has all orders alike.",
        "added_by": f"lvsearch {lv.__version__}",
        "added_date": time.strftime("%Y-%m-%d"),
        "versions": None,
    }
    (folder / f"{problem.title}.info.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def report(what: str, judged: dict[str, dict[str, float]]) -> bool:
    """Print the worst of all numbers, and return whether posteriordb's limits are kept."""
    rhats, effective, lags = (np.array([one[key] for one in judged.values()]) for key in next(iter(judged.values())))
    kept = rhats.max() <= MOST_RHAT and np.abs(lags).max() <= MOST_AUTOCORRELATION
    print(
        f"{what}: {len(rhats)} numbers, R-hat at most {rhats.max():.4f}, effective draws {effective.min():.0f} to "
        f"{effective.max():.0f}, mean autocorrelation {lags.min():.3f} to {lags.max():.3f}: "
        f"{'within' if kept else 'NOT within'} the limits",
        flush=True,
    )
    return bool(kept)


def main(arguments: argparse.Namespace) -> None:
    """Make draws of one posterior, say what they are worth, and write them."""
    start, seed = time.process_time(), arguments.seed
    exact = arguments.data == "three_docs1200"
    problem = three_docs() if exact else read(Path(arguments.data))
    n_documents, n_words = problem.counts.shape
    print(f"{problem.title}: {n_documents} documents, {n_words} words, {problem.counts.sum()} tokens", flush=True)
    if exact and not arguments.sampled:
        draws, method, agree = draw_exactly(problem, seed), {"cells": "numbers of words per topic, summed"}, True
    else:
        method = {"temperatures": arguments.temperatures, "thin": arguments.thin, "seed": seed}
        draws, of_density = sample(problem, seed, temperatures=arguments.temperatures, thin=arguments.thin)
        print(f"R-hat of the log density {of_density:.4f}")
        agree = report("topics matched", judge(draws))
    mixed = draws.in_random_order(np.random.default_rng(seed + 1))
    judged = judge(mixed)
    agree = report("in random order", judged) and agree
    verdict = "a reference" if agree else "no reference: nothing is written"
    print(f"{verdict}; {time.process_time() - start:.0f} processor seconds")
    if agree and arguments.out:
        write(problem, mixed, judged, arguments.out, method)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="three_docs1200, or a data file of posteriordb")
    parser.add_argument("--temperatures", type=int, default=1000)
    parser.add_argument("--thin", type=int, default=10, help="sweeps from one draw to the next")
    parser.add_argument("--sampled", action="store_true", help="sample three_docs1200 too, as the others are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="the folder for the draws and what is known of them")
    main(parser.parse_args())
