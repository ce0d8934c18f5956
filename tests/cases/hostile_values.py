"""Every public entry × values that nobody should pass, in a process without the checks of types that tests have.

Prints a line of JSON for each entry: what was neither taken nor refused in words. Run by test_hostile_values.py.

Refused: ValueError or OSError (paths), each with a message. Taken: anything that returns, or that gets as far as
fitting. Everything else is a mistake of ours: other errors, and more than
20 seconds of the processor, where compiling takes 2 or 3.
"""

import contextlib
import datetime
import decimal
import json
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy import sparse

import lvsearch as lv
from lvsearch.fitted import occupied_posterior, sampling
from lvsearch.inference.features.estimator import FeatureEstimator
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.trees import tree_fits

READABLE = (ValueError, OSError)
SECONDS = 20


class BegunError(Exception):
    """The entry took its arguments: it would fit now."""


VALUES: dict[str, Any] = {
    **{
        repr(v): v
        for v in (None, True, False, -1, 0, 1, 2, 1.5, 1e308, -1e308, 1e-320, 10**30, -(10**30), 2**31, 2**63)
    },
    **{repr(v): v for v in ("", "x", "1", "\x00", b"x", [], [[]], (), {}, set(), [1, "a"], [None], [[1], [1, 2]], 1j)},
    **{repr(v): v for v in (float("nan"), float("inf"), float("-inf"), object, len, Ellipsis, pd.NA, pd.NaT)},
    "decimal": decimal.Decimal("0.1"),
    "date": datetime.date(2020, 1, 1),
    "object": object(),
    "nan32": np.float32("nan"),
    "zero-d": np.array(3.0),
    "no rows": np.zeros((0, 3)),
    "no columns": np.zeros((3, 0)),
    "three axes": np.ones((2, 2, 2)),
    "NaN cells": np.full((3, 3), np.nan),
    "infinite cells": np.full((3, 3), np.inf),
    "negative cells": -np.ones((3, 3)),
    "halves": np.full((3, 3), 0.5),
    "huge cells": np.full((3, 3), 1e300),
    "complex cells": np.ones((3, 3)) * 1j,
    "text cells": np.array([["a", "b"], ["c", "d"]]),
    "objects": np.array([[{}, None], [1, "x"]], object),
    "dates": np.zeros((2, 2), "M8[s]"),
    "structured": np.zeros((2, 2), [("x", float)]),
    "masked": np.ma.masked_all((2, 2)),
    "sparse NaN": sparse.csr_array(np.full((2, 2), np.nan)),
    "sparse, one axis": sparse.coo_array(np.ones(3)),
    "frame of text": pd.DataFrame({"a": ["x", "y"]}),
    "empty frame": pd.DataFrame(),
    "frame, a name twice": pd.DataFrame([[1, 2]], columns=["a", "a"]),
    "series": pd.Series([1, 2, 3]),
    "JAX array": lambda: jax.numpy.ones(3),
    "generator": lambda: (i for i in range(2)),
    "deep list": lambda: deep(100),
    "surrogate": "\ud800",
    "long text": "x" * 100_000,
    "a folder": Path(tempfile.gettempdir()),
}


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


COUNTS = np.random.default_rng(0).integers(0, 4, (6, 5)) + np.eye(6, 5, dtype=int)
ROWS = np.random.default_rng(0).normal(0, 1, (6, 2))
LDA, TREE, PROCESS = lv.models.LDA(), lv.models.HLDA(depth=2), lv.models.DPMixture()
PRIOR, QUIET = lv.sizes.Poisson(2), {"progress": False}
TOPICS, ALPHA = np.full((2, 5), 0.2), np.ones(2)


def searching(**given: Any) -> Any:
    settings = {"model": LDA, "data": COUNTS, "prior": PRIOR, "max_size": 2, **QUIET, **given}
    return lv.search(**settings)


def kinds() -> lv.Corpus:
    return lv.Corpus.from_matrix(COUNTS)


def witness(size: Any = 1, evidence: Any = -1.0) -> Any:
    return lv.WitnessSearch(PRIOR).record(size, evidence)


def function_search(value: Any) -> Any:
    return lv.search(lv.from_function(lambda size: value, ceiling=0.0), prior=PRIOR, max_size=2, **QUIET).posterior()


def likelihood(**given: Any) -> Any:
    settings = {"topics": TOPICS, "alpha": ALPHA, "docs": COUNTS, "method": "exact", **given}
    return lv.inference.document_likelihood(**settings)


def features(**given: Any) -> Any:
    settings = {"X": ROWS[:3], "alpha": 1.0, "sigma_x": 0.5, "sigma_a": 1.0, **given}
    return lv.inference.map_features(**settings)


def held(method: str, **fixed: Any) -> Callable[[Any], Any]:
    return lambda value: getattr(kinds(), method)(value, **fixed)


def argument(call: Callable[..., Any], *names: str) -> dict[str, Callable[[Any], Any]]:
    """Entries: a call with one argument after another replaced."""
    return {f"{call.__name__} {name}": lambda value, name=name: call(**{name: value}) for name in names}


def fitting(**given: Any) -> Any:
    return lv.fit(**{"model": LDA, "data": COUNTS, "size": 2, **given})


def drawing(**given: Any) -> Any:
    return lv.sample(**{"model": LDA, "data": COUNTS, "size": 2, "draws": 2, "chains": 2, **QUIET, **given})


def occupying(**given: Any) -> Any:
    return lv.occupied(**{"model": PROCESS, "data": ROWS, "draws": 4, "chains": 2, **QUIET, **given})


def sizes_of_few(prior: Any) -> Any:
    return prior.log_pmf(2), prior.log_mass((2,)), prior.describe()


def pooled(value: Any) -> Any:
    if isinstance(value, int) and value > 2:
        raise BegunError  # it would start so many processes
    lv.WorkerPool(value)


@cache
def fits() -> dict[str, Any]:
    """Fits and a trace, made before `main` forbids fitting."""
    images = lv.PairedCorpus.from_arrays([ROWS[:3], ROWS[3:]], [["sea", "sky"], ["sky"]])
    return {
        "topics": fitting(),
        "features": fitting(model=lv.models.IBP(), data=ROWS),
        "images": fitting(model=lv.models.GMMixture(), data=images),
        "search": lv.search(lv.from_function(lambda size: -1.0), prior=PRIOR, max_size=2, **QUIET),
        "trace": drawing(),
    }


def of_fit(kind: str, method: str) -> Callable[[Any], Any]:
    """Entry: a method of a fit with its first argument."""
    return lambda value: getattr(fits()[kind], method)(value)


def growing(**given: Any) -> Any:
    return lv.fit_tree(**{"model": TREE, "data": COUNTS, "sweeps": 2, **given})


ENTRIES: dict[str, Callable[[Any], Any]] = {
    **argument(searching, "model", "data", "prior", "evidence", "max_size", "seconds", "width", "seed", "starts"),
    **argument(
        searching, "keep", "per_token", "held_out", "out", "grow", "exhaustive", "robustness", "mesh", "executor"
    ),
    **argument(fitting, "model", "data", "size", "evidence", "seed", "starts", "mesh"),
    **argument(drawing, "model", "data", "size", "chains", "draws", "warmup", "thin", "seed", "units", "after"),
    **argument(occupying, "model", "data", "chains", "draws", "seed"),
    **argument(
        growing, "model", "data", "sweeps", "chains", "climbs", "start_branching", "infer", "temperatures", "seed"
    ),
    **argument(witness, "size", "evidence"),
    **argument(likelihood, "topics", "alpha", "docs", "method", "samples", "key"),
    **argument(
        features, "X", "alpha", "sigma_x", "sigma_a", "beam", "heuristic", "expansion", "observed", "max_features"
    ),
    "function's value": function_search,
    "from_function": lv.from_function,
    "from_numpyro": lv.from_numpyro,
    "WitnessSearch": lv.WitnessSearch,
    "Evidence": lambda value: lv.Evidence(value),
    "load": lv.load,
    "resume": lambda value: lv.resume(value, progress=False),
    "load_tree": lv.load_tree,
    "load_trace": lv.load_trace,
    "Corpus.from_texts": lv.Corpus.from_texts,
    "Corpus.from_texts stop_words": lambda value: lv.Corpus.from_texts(["one word", "two words"], stop_words=value),
    "Corpus.from_texts pattern": lambda value: lv.Corpus.from_texts(["one word"], token_pattern=value),
    "Corpus.from_texts least": lambda value: lv.Corpus.from_texts(["one word"], minimum_document_frequency=value),
    "Corpus.from_texts most": lambda value: lv.Corpus.from_texts(["one word"], maximum_document_fraction=value),
    "Corpus.from_matrix": lv.Corpus.from_matrix,
    "Corpus.from_matrix vocabulary": lambda value: lv.Corpus.from_matrix(COUNTS, value),
    "Corpus.from_matrix names": lambda value: lv.Corpus.from_matrix(COUNTS, document_names=value),
    "Corpus.from_matrix labels": lambda value: lv.Corpus.from_matrix(COUNTS, document_labels=value),
    "Corpus.from_ldac": lv.Corpus.from_ldac,
    "Corpus.split": held("split"),
    "Corpus.split seed": lambda value: kinds().split(0.5, seed=value),
    "Corpus.folds": held("folds"),
    "Corpus.select": held("select"),
    "Corpus.encode": held("encode"),
    "Points.from_array": lv.Points.from_array,
    "Points.from_array observed": lambda value: lv.Points.from_array(ROWS, value),
    "Points.from_array columns": lambda value: lv.Points.from_array(ROWS, columns=value),
    "Points.from_array missing": lambda value: lv.Points.from_array(ROWS, missing=value),
    "Points.from_frame": lv.Points.from_frame,
    "Points.from_csv": lv.Points.from_csv,
    "Points.from_npy": lv.Points.from_npy,
    "Groups.from_arrays": lv.Groups.from_arrays,
    "Groups.from_arrays names": lambda value: lv.Groups.from_arrays([ROWS, ROWS], names=value),
    "Groups.from_frame": lambda value: lv.Groups.from_frame(pd.DataFrame({"g": [1, 2], "x": [0.1, 2]}), value),
    "PairedCorpus regions": lambda value: lv.PairedCorpus.from_arrays(value, [["sea"], ["sky"]]),
    "PairedCorpus captions": lambda value: lv.PairedCorpus.from_arrays([ROWS, ROWS], value),
    "PairedCorpus vocabulary": lambda value: lv.PairedCorpus.from_arrays([ROWS, ROWS], [["a"], ["b"]], value),
    **{
        f"sizes.{kind.__name__}": kind
        for kind in (lv.sizes.Poisson, lv.sizes.Geometric, lv.sizes.Table, lv.sizes.Uniform)
    },
    "sizes.Poisson shifted": lambda value: sizes_of_few(lv.sizes.Poisson(2, value)),
    "sizes.Uniform, used": lambda value: sizes_of_few(lv.sizes.Uniform(value)),
    "sizes.Joint": lambda value: lv.sizes.Joint(lambda size: -1.0, value),
    "distributed timeout": lambda value: lv.distributed.initialize("127.0.0.1:1", 2, 2, timeout=value),
    "distributed coordinator": lambda value: lv.distributed.initialize(value, 2, 2),
    "distributed process_id": lambda value: lv.distributed.initialize("127.0.0.1:1", 0, value),
    "WorkerPool": pooled,
    "sizes.NegativeBinomial": lambda value: lv.sizes.NegativeBinomial(value, 2.0),
    "sizes.Product": lambda value: lv.sizes.Product(PRIOR, value),
    "sizes.Mixture": lambda value: lv.sizes.Mixture(value, [PRIOR, PRIOR]),
    "sizes.parse": lv.sizes.parse,
    "sizes.log_pmf": PRIOR.log_pmf,
    "models.LDA": lv.models.LDA,
    "models.LDA topics": lambda value: lv.models.LDA(1.0, value),
    "models.FiniteMixture": lv.models.FiniteMixture,
    "models.FiniteMixture concentration": lambda value: lv.models.FiniteMixture(concentration=value),
    "models.HiddenMarkov concentration": lambda value: lv.models.HiddenMarkov(concentration=value),
    "models.HiddenMarkov stickiness": lambda value: lv.models.HiddenMarkov(stickiness=value),
    "models.PoissonFactorization": lv.models.PoissonFactorization,
    "models.PoissonFactorization mean": lambda value: lv.models.PoissonFactorization(mean_count=value),
    "models.PoissonFactorization noise": lambda value: lv.models.PoissonFactorization(noise_shape=value),
    "models.PoissonFactorization scaled": lv.models.PoissonFactorization.scaled_to,
    "models.DPMixture concentration": lambda value: lv.models.DPMixture(concentration=value),
    "models.HDP": lv.models.HDP,
    "models.HLDA depth": lambda value: lv.models.HLDA(depth=value),
    "models.HLDA levels": lambda value: lv.models.HLDA(levels=value),
    "models.IBP": lv.models.IBP,
    "models.GammaPrior": lambda value: lv.models.GammaPrior(value, 1.0),
    "models.CorrLDA": lv.models.CorrLDA,
    "load_fit": lv.load_fit,
    "save_trace": lambda value: lv.save_trace(value, "/proc/trace"),
    "save_trace folder": lambda value: lv.save_trace(fits()["trace"], value),
    "fit.save": of_fit("topics", "save"),
    "fit.match": of_fit("topics", "match"),
    "fit.table": of_fit("topics", "table"),
    "fit.affinity": of_fit("topics", "affinity"),
    "fit.coloured threshold": lambda value: fits()["topics"].coloured("term0", threshold=value),
    "fit.topics relevance": lambda value: fits()["topics"].topics(relevance=value),
    "fit.prevalence level": lambda value: fits()["topics"].prevalence(by=np.arange(6), level=value),
    "fit.prevalence period": lambda value: fits()["topics"].prevalence(by=["2024-01"] * 6, period=value),
    "fit.renamed": of_fit("topics", "renamed"),
    "fit.renamed name": lambda value: fits()["topics"].renamed({0: value}),
    "fit.merged": of_fit("topics", "merged"),
    "fit.merged group": lambda value: fits()["topics"].merged([value]),
    "fit.without": of_fit("topics", "without"),
    "fit.plot_topic_map": of_fit("topics", "plot_topic_map"),
    "fit.plot_loadings": of_fit("features", "plot_loadings"),
    "fit.retrieve": lambda value: fits()["images"].retrieve(fits()["images"].training, value),
    "result.save": of_fit("search", "save"),
    "result.with_topics": of_fit("search", "with_topics"),
    "result.save_slide": of_fit("search", "save_slide"),
    "result.save_table": of_fit("search", "save_table"),
    "result.with_prior": of_fit("search", "with_prior"),
    "result.posterior": of_fit("search", "posterior"),
    "result.stable": of_fit("search", "stable"),
    "mixture_posterior precision": lambda value: lv.mixture_posterior(
        lv.models.FiniteMixture(), ROWS, precision=value, sweeps=0
    ),
    "result.plot_posterior": of_fit("search", "plot_posterior"),
    "models.scaled_to": lv.models.DiagonalComponents.scaled_to,
}


class HangError(BaseException):
    """An entry took too long."""


def hang(*_: object) -> None:
    raise HangError(f"longer than {SECONDS} s")


def begun(*_: object, **__: object) -> None:
    raise BegunError


def verdict(entry: Callable[[Any], Any], value: Any) -> str | None:
    """None where the value is taken or refused in words."""
    made = value() if callable(value) and getattr(value, "__name__", "") == "<lambda>" else value
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        entry(made)
    except BegunError:
        return None
    except READABLE as error:
        return None if str(error).strip() else f"{type(error).__name__} without a word"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def main() -> None:
    warnings.simplefilter("ignore")
    # Chains that find where a fit of features begins take 15 s to compile. Its values are not what is asked here.
    FeatureEstimator.likely_features = lambda self, size, key: ROWS > 0  # pyright: ignore[reportAttributeAccessIssue]
    fits()
    ModelEvaluator.evaluate = begun  # pyright: ignore[reportAttributeAccessIssue]
    sampling._sampler = occupied_posterior.occupied_sampler = begun  # pyright: ignore[reportAttributeAccessIssue]
    tree_fits.climb = tree_fits.agglomerated_start = tree_fits.sample_tree = begun  # pyright: ignore
    signal.signal(signal.SIGPROF, hang)
    chosen = sys.argv[1:] or list(ENTRIES)
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # "x" is a path that can be written to
            wrong = {
                label: found for label, value in VALUES.items() if (found := verdict(ENTRIES[name], value)) is not None
            }
        print(json.dumps([name, wrong]), flush=True)


if __name__ == "__main__":
    main()
