"""Which model of documents predicts held-out text best: unigram, mixture of unigrams, pLSI, LDA, HDP?

    python tests/benchmarks/perplexity.py --corpus ap
    python tests/benchmarks/perplexity.py --corpus nematode --sizes 2 10 50 --store /tmp/perplexity

Blei (2004), §3.6.1, Figures 3.8 and 5.8, Table 3.1. A tenth of the documents is held out. Two measures, both exp(−nats
per token scored):

  completion   the same for all models: fit a document's proportions on half of its tokens, predict each of the others
  document     p(whole document): exact for unigram and mixture; of pLSI, whose documents have no distribution,
               marginalised over the training documents; of LDA and HDP its mean-field bound, as in the thesis, so
               that their perplexity is at most what is printed

Unsmoothed models give probability 0 to a document with a word that their topics do not hold: their perplexity is ∞, and
is printed under a floor of e^−100 a word too (what the LDA-C code puts for the logarithm of 0). The pseudo-counts that
smooth the topics of each model are chosen on a tenth of the *training* documents, by completion, at each size up to 50
topics (beyond it as at 50); the tempering of pLSI by `choose_tempering`, which holds another tenth out; α of LDA, one
for each topic, is estimated by empirical Bayes (§3.4.3) in its plug-in form. Seconds are of the processor, for fitting
and for choosing an exponent, with compiling.
`--causes` says what LDA owes to its α and to the rule by which it predicts.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import lvsearch as lv
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.likelihood import (
    CollapsedDirichlet,
    FoldedIn,
    document_completion,
    document_likelihood,
    split_documents,
)
from lvsearch.inference.word_mixtures import PLSIEstimator, choose_tempering, document_proportions
from lvsearch.inference.word_mixtures.plsi import point_topics
from lvsearch.models.families import PointSimplex
from lvsearch.models.hyperpriors import GammaPrior

SIZES = (2, 5, 10, 20, 50, 100, 200)
FLOOR = math.exp(-100.0)
CHOICE_SIZE = 50
"""Most topics with which hyper-parameters are chosen."""
CHOICES: dict[str, tuple[float, ...]] = {
    "unigram": (0.05, 0.3, 1.0, 3.0),
    "mixture": (0.1, 0.3, 1.0),
    "pLSI": (0.03, 0.1, 0.3),
    "LDA": (0.03, 0.1, 0.3),
}
GIVEN_ALPHA = 10.0
"""Σα of the LDA whose concentration is not estimated; 0.1 on topics."""
HDP_TRUNCATION = 150


@dataclass(frozen=True)
class Fitted:
    """topics (K, V); what completes a document and what a whole document is drawn by, as `document_completion` and
    `document_likelihood` take them."""

    topics: np.ndarray
    completing: Any
    drawing: Any
    note: str = ""


@dataclass(frozen=True)
class Record:
    """One line of the table. `floored`: under the floor, the same as without where no word is impossible. `seconds`: of
    the processor, all threads, for the fit and what chooses its exponent."""

    corpus: str
    model: str
    size: int
    completion: float
    completion_floored: float
    document: float
    document_floored: float
    seconds: float
    note: str


def read_corpus(name: str, documents: int | None = None) -> lv.Corpus:
    """A corpus of LVSEARCH_DATA; of the first `documents` documents where not all are wanted."""
    folder = Path(os.environ["LVSEARCH_DATA"]) / name
    corpus = lv.Corpus.from_ldac(folder / "corpus.ldac", vocabulary=folder / "vocab.txt")
    return corpus if documents is None else corpus.select(range(min(documents, len(corpus))))


# ── the models ──────────────────────────────────────────────────────────────────────────────────────────────────────


def fitted_lv(model: Any, train: lv.Corpus, size: int, seed: int, evidence: str = "marginal") -> Fitted:
    fit = lv.fit(model, train, size=size, seed=seed, evidence=evidence)
    drawing = document_proportions(fit.model, fit.estimate, train.dataset())
    dirichlet = isinstance(drawing, np.ndarray) and len(drawing) > 1
    return Fitted(fit.table("topic_word").to_numpy(), CollapsedDirichlet(drawing) if dirichlet else drawing, drawing)


def lda(smoothing: float, train: lv.Corpus, size: int, seed: int) -> Fitted:
    """Topics smoothed by pseudo-counts, as pLSI's are; α estimated, one for each topic."""
    fit = fitted_lv(lv.models.LDA(1.0, smoothing), train, size, seed, "plug-in")
    return replace(fit, note=f"Σα {fit.drawing.sum():.3g}")


def lda_of_given_alpha(train: lv.Corpus, size: int, seed: int) -> Fitted:
    """Numbers that nobody estimated, topics integrated out, mean field to the end."""
    fit = fitted_lv(lv.models.LDA(GIVEN_ALPHA, 0.1), train, size, seed)
    return replace(fit, completing=fit.drawing)


def unsmoothed(model: Any, train: lv.Corpus, size: int, seed: int) -> Fitted:
    """Maximum likelihood with its zeros: the fit's own table has the family's floor in their place."""
    fit = lv.fit(model, train, size=size, seed=seed, evidence="plug-in")
    counts = np.maximum(fit.estimate.natural["topic_word"].astype(np.float64), 0)
    topics = counts / np.maximum(counts.sum(1, keepdims=True), 1e-300)
    topics[counts.sum(1) == 0] = 1.0 / counts.shape[1]  # a topic of no document
    drawing = document_proportions(fit.model, fit.estimate, train.dataset())
    plsi = isinstance(fit.model, lv.models.PLSI)
    return Fitted(topics, FoldedIn() if plsi else drawing, drawing)


def plsi(smoothing: float, tempered: bool, train: lv.Corpus, size: int, seed: int) -> Fitted:
    if not tempered:
        fit = fitted_lv(lv.models.PLSI(smoothing), train, size, seed, "plug-in")
        return replace(fit, completing=FoldedIn())
    key = jax.random.key(seed)
    chosen = choose_tempering(train.counts, size, key=key, smoothing=smoothing)
    model, data = lv.models.PLSI(smoothing, chosen.best), train.dataset()
    estimate = PLSIEstimator(model, data).fit((size,), key, chosen.start)
    drawing = document_proportions(model, estimate, data)
    return Fitted(point_topics(estimate), FoldedIn(chosen.best), drawing, f"tempering {chosen.best:.3g}")


Fitter = Callable[[lv.Corpus, int, int], Fitted]


def smoothed_models(chosen: dict[str, float]) -> dict[str, Fitter]:
    """Name -> (train, size, seed) -> fit."""
    m = lv.models
    return {
        "mixture": partial(fitted_lv, m.MixtureOfUnigrams(1.0, chosen["mixture"])),
        "pLSI": partial(plsi, chosen["pLSI"], False),
        "pLSI, tempered": partial(plsi, chosen["pLSI"], True),
        "LDA": partial(lda, chosen["LDA"]),
    }


UNSMOOTHED: dict[str, Fitter] = {
    "mixture, unsmoothed": lambda train, size, seed: unsmoothed(lv.models.MixtureOfUnigrams(), train, size, seed),
    "pLSI, unsmoothed": lambda train, size, seed: unsmoothed(lv.models.PLSI(), train, size, seed),
}


def choose(train: lv.Corpus, seed: int, size: int) -> dict[str, float]:
    """The concentration or smoothing of each model that completes a tenth of the training documents best."""
    kept, deciding = train.split(test_fraction=0.1, seed=seed)
    observed, rest = split_documents(deciding, 0.5, seed)
    best = {}
    for name, values in CHOICES.items():
        scores = {}
        for value in values:
            if name == "unigram":
                fit = fitted_lv(lv.models.Unigram(value), kept, 1, seed)
            else:
                fit = smoothed_models({**dict.fromkeys(CHOICES, 1.0), name: value})[name](kept, size, seed)
            scores[value] = document_completion(fit.topics, fit.completing, observed, rest).perplexity
        best[name] = min(scores, key=scores.__getitem__)
    return best


# ── scoring ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def scored(fit: Fitted, observed: Any, rest: Any, test: lv.Corpus) -> tuple[float, float]:
    """(completion, document) perplexity."""
    completion = document_completion(fit.topics, fit.completing, observed, rest).perplexity
    if isinstance(fit.drawing, np.ndarray) and len(fit.drawing) > 1:
        # the same bound for LDA and HDP: documents of a Dirichlet at given topics
        given = Estimate(
            lv.models.LDA(fit.drawing, None, PointSimplex()),
            (len(fit.drawing),),
            {"topic_word": fit.topics},
            0.0,
            0.0,
            0,
        )
        total = float(describe_units(given.model, given, test.dataset()).log_lower.sum())
    else:
        total = document_likelihood(fit.topics, fit.drawing, test, method="exact").total
    return completion, perplexity_of(total, test.n_tokens)


def perplexity_of(nats: float, tokens: int) -> float:
    """exp(−nats per token), ∞ where a float cannot hold it."""
    return float(np.exp(np.minimum(-nats / tokens, 709.0))) if np.isfinite(nats) else math.inf


def record(corpus: str, model: str, size: int, fitter: Fitter, split: Any, seed: int) -> Record:
    train, test, observed, rest = split
    began = time.process_time()
    fit = fitter(train, size, seed)
    seconds = time.process_time() - began
    zeros = bool((fit.topics <= 0).any())
    plain = floored = (math.nan, math.nan)
    if zeros:
        raised = np.maximum(fit.topics, FLOOR)
        raised /= raised.sum(1, keepdims=True)
        floored = scored(replace(fit, topics=raised), observed, rest, test)
        plain = unfloored(fit, observed, rest, test)
    else:
        plain = floored = scored(fit, observed, rest, test)
    return Record(corpus, model, size, plain[0], floored[0], plain[1], floored[1], seconds, fit.note)


def unfloored(fit: Fitted, observed: Any, rest: Any, test: lv.Corpus) -> tuple[float, float]:
    """With the zeros as they are: one impossible word makes the perplexity of all documents ∞."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that documents are impossible is what is asked
        return scored(fit, observed, rest, test)


def measure(
    name: str,
    sizes: Sequence[int] = SIZES,
    *,
    documents: int | None = None,
    seed: int = 0,
    choice_size: int = CHOICE_SIZE,
    hdp_truncation: int | None = HDP_TRUNCATION,
    store: Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """The table of one corpus, a row for each model and size. store: a folder in which rows are kept as they are made,
    and from which a later call with the same settings goes on."""
    corpus = read_corpus(name, documents)
    train, test = corpus.split(test_fraction=0.1, seed=seed)
    split = (train, test, *split_documents(test, 0.5, seed))
    kept = Store(store, f"perplexity-{name}-{documents}-{seed}")

    chosen: dict[int, dict[str, float]] = {}
    for size in sorted({min(size, choice_size) for size in sizes}):
        chosen[size] = kept.get(f"chosen-{size}", lambda size=size: choose(train, seed, size))
        if progress:
            print(f"{name}: chosen on training documents at {size} topics: {chosen[size]}", flush=True)
    largest = chosen[max(chosen)]
    jobs: list[tuple[str, int, Fitter]] = [("unigram", 1, partial(fitted_lv, lv.models.Unigram(largest["unigram"])))]
    for size in sizes:
        fitters = UNSMOOTHED | smoothed_models(chosen[min(size, choice_size)]) | {"LDA, α given": lda_of_given_alpha}
        jobs += [(model, size, fitter) for model, fitter in fitters.items()]
    if hdp_truncation is not None:
        jobs.append(("HDP", hdp_truncation, partial(fitted_lv, lv.models.HDP(largest["LDA"]))))
    records = []
    for model, size, fitter in jobs:
        made = kept.get(f"{model}-{size}", lambda job=(model, size, fitter): asdict(record(name, *job, split, seed)))
        records.append(made)
        if progress:
            print(
                f"{name:9} {model:20} {size:4}  completion {shown(made['completion'])} "
                f"(floored {shown(made['completion_floored'])})  document {shown(made['document'])} "
                f"(floored {shown(made['document_floored'])})  {made['seconds']:6.1f} s  {made['note']}",
                flush=True,
            )
    return pd.DataFrame(records)


def over_starts(
    name: str,
    size: int,
    *,
    starts: int = 5,
    documents: int | None = None,
    seed: int = 0,
    choice_size: int = CHOICE_SIZE,
    store: Path | None = None,
) -> pd.DataFrame:
    """Perplexity of completion from several random starts (rows) by model; split and choices are the same for all."""
    train, test = read_corpus(name, documents).split(test_fraction=0.1, seed=seed)
    halves = split_documents(test, 0.5, seed)
    kept = Store(store, f"perplexity-{name}-{documents}-{seed}")
    chosen = kept.get(f"chosen-{min(size, choice_size)}", lambda: choose(train, seed, min(size, choice_size)))
    fitters = smoothed_models(chosen)

    def perplexity(model: str, start: int) -> float:
        fit = fitters[model](train, size, start)
        return document_completion(fit.topics, fit.completing, *halves).perplexity

    return pd.DataFrame(
        {
            model: [kept.get(f"{model}-{size}-start-{i}", partial(perplexity, model, seed + i)) for i in range(starts)]
            for model in ("pLSI", "pLSI, tempered", "LDA")
        }
    )


def causes(name: str, size: int, *, documents: int | None = None, seed: int = 0) -> pd.DataFrame:
    """Perplexity of completion by where the topics are from (rows) and by the rule that finds proportions (columns)."""
    train, test = read_corpus(name, documents).split(test_fraction=0.1, seed=seed)
    halves = split_documents(test, 0.5, seed)
    m, vague = lv.models, GammaPrior(1.0, 0.1)
    fits = {
        "LDA, Σα = 10 given": fitted_lv(m.LDA(GIVEN_ALPHA, 0.1), train, size, seed),
        "LDA, Σα and η inferred": fitted_lv(m.LDA(vague, GammaPrior(1.0, 1.0)), train, size, seed),
        "LDA, α estimated": lda(0.1, train, size, seed),
        "pLSI": plsi(0.1, False, train, size, seed),
    }
    rows = {}
    for label, fit in fits.items():
        rules = {"folding in": FoldedIn()}
        if label != "pLSI":
            rules |= {"mean field": fit.drawing, "collapsed": CollapsedDirichlet(fit.drawing)}
        rows[label] = {"Σα": fit.drawing.sum() if label != "pLSI" else math.nan} | {
            rule: document_completion(fit.topics, given, *halves).perplexity for rule, given in rules.items()
        }
    return pd.DataFrame(rows).T


def shown(value: float) -> str:
    """Such as 2,347.1, 1.93e+17 or ∞."""
    return "∞" if math.isinf(value) else f"{value:,.1f}" if value < 1e6 else f"{value:.2e}"


class Store:
    """Results by name in one JSON file, written as they come; none where there is no folder."""

    def __init__(self, folder: Path | None, name: str):
        self.path = None if folder is None else folder / f"{name}.json"
        self.values = json.loads(self.path.read_text()) if self.path is not None and self.path.exists() else {}

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """The value kept under the name, or a new one."""
        if name not in self.values:
            self.values[name] = make()
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.values))
        return self.values[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--corpus", nargs="+", default=["ap", "nematode"])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--documents", type=int, default=None, help="only the first so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path, default=None, help="a folder in which results are kept")
    parser.add_argument("--starts", type=int, default=None, help="only LDA and pLSI, from so many random starts")
    parser.add_argument("--causes", type=int, default=None, help="only what LDA owes to what, with so many topics")
    given = parser.parse_args()
    for name in given.corpus:
        began = time.perf_counter()
        if given.causes is not None:
            found = causes(name, given.causes, documents=given.documents, seed=given.seed)
            print(f"{name}, {given.causes} topics\n{found.round(1).to_string()}\n")
            continue
        if given.starts is not None:
            for size in given.sizes:
                found = over_starts(name, size, starts=given.starts, seed=given.seed, store=given.store)
                print(f"{name}, {size} topics\n{found.describe().round(1).to_string()}\n", flush=True)
            continue
        table = measure(name, given.sizes, documents=given.documents, seed=given.seed, store=given.store)
        print(table.pivot(index="size", columns="model", values="completion_floored").round(1).to_string())
        print(f"{name}: {time.perf_counter() - began:.0f} s in all\n")


if __name__ == "__main__":
    main()
