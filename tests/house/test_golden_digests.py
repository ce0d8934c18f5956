"""Numbers of every family of models, by every path to them, are those of the table beside this file.

For changes that should change no number: a case that differs from `golden_digests.json` was changed. A change that
means to change numbers writes the table anew (`golden_digests.py`), and says why.

What is compared, for each array and each table that a case returns:

| values | compared |
|---|---|
| whole numbers, truth values | shape, sum, and sum of value × position, exactly |
| real numbers | shape; how many are finite; root mean square, mean and mean of value × cos(position), to 1 in 10⁵ |
| text | exactly, but for its numbers |

Another machine may have other last bits, so nothing finer is in the table. On one machine two commits can be compared
bit by bit: `--exact` writes a line with the SHA-256 of the bytes for each array, and `diff before.txt after.txt` shows
which arrays differ. Both ways run the tests below in a process of its own, as pytest does. A rare draw that lies on a
boundary can differ on another machine; then its case is the only one.

Data are tiny and chains short: the numbers mean nothing, and are only the same. All cases take about a
quarter of an hour of one core where nothing has been compiled, and less where an earlier session has.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import mixture_cases
import numpy as np
import pandas as pd
import programs
import pytest
import test_exact_ranks
from golden_digests import EXACT, TABLE, WRITE
from numpyro_cases import KNOWN

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.files.storage import read_folder
from lvsearch.inference.annealing.density import tune_step_lengths
from lvsearch.inference.chains import Chain
from lvsearch.inference.engine.describing import bound_units, describe_units, score_units
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.evidence import (
    Effort,
    anchored_chain,
    both_ways,
    draws_in_one_direction,
    effort,
    evidence_chain,
    temperature_profile,
)
from lvsearch.inference.topic_samplers.size_gain import GainEffort, gain_of_last_topics
from lvsearch.results.card import headline

TOLERANCE = 1e-5
WORK = Effort(steps=3, islands=2, particles=4)
"""The annealing of every evidence: enough particles for a pilot run."""
m = lv.models
COUNTS, ROWS, BITS, GROUPS = programs.COUNTS, programs.ROWS, programs.BITS, programs.GROUPS
Case = Callable[[], Any]


# ── cases ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def annealed_ends(make: Callable[[], Chain]) -> dict[str, Any]:
    """Anneal a chain both ways from its first q, and again from a q around where the particles ended if it has one."""
    chain, key = make(), jax.random.key(7)
    ends, states = both_ways(chain, key, WORK, temperature_profile(chain, key, WORK))
    anchor = anchored_chain(chain, key, states)
    found = {
        "work": [chain.elements, chain.efficient_particles, draws_in_one_direction(chain, 1), *effort(chain, 0)],
        "directed": chain.directed,
        "ends": ends,
        "states": states,
    }
    if anchor is None:
        return found
    second, _ = both_ways(anchor.chain, key, WORK, temperature_profile(anchor.chain, key, WORK))
    return {**found, "error of anchor": anchor.error, "second ends": second}


def chain_of(model: m.Model, data: Any, size: int, *, fitted: bool = False) -> Chain:
    """Return the chain of a model's evidence, which begins at a fit if `fitted`."""
    packed = data_for(model, data).dataset()
    start = estimator(model, packed).fit((size,), jax.random.key(0), None) if fitted else None
    return evidence_chain(model, packed, (size,), start)


def full_covariances() -> test_exact_ranks.Case:
    """Return a mixture with the default prior of full covariances, on the rows of `test_exact_ranks.py`."""
    return test_exact_ranks.Case(m.FiniteMixture(m.FullCovarianceComponents()), test_exact_ranks.ROWS)


def chain_of_ranks(name: str) -> Chain:
    """Return a chain of `test_exact_ranks.py` on its own data, or that of the mixture of `full_covariances`."""
    case = full_covariances() if name == "mixture" else test_exact_ranks.CASES[name]()
    return case.chain(data_for(case.model, case.data).dataset())


def chain_of_density() -> Chain:
    """Return the chain of a NumPyro model, with step lengths from a pilot run."""
    chain = lv.from_numpyro(KNOWN["summed_counts"].model).evaluator(KNOWN["summed_counts"].data, 0).chain((2,))
    return tune_step_lengths(chain, jax.random.key(3), WORK.islands * WORK.particles)[0]


def fit(model: m.Model, data: Any, size: Any) -> dict[str, Any]:
    """Fit a model, and describe, bound and score the units that it was fitted to."""
    found = lv.fit(model, data, size=size, seed=0)
    estimate, packed = found.estimate, found.training.dataset()
    settings = {"capacity": capacity_of(estimate.size), "samples": 8, "key": jax.random.key(1)}
    return {
        "evidence": [found.evidence.lower, found.evidence.upper],
        "natural": estimate.natural,
        "described": describe_units(estimate.model, estimate, packed),
        "bounds": bound_units(estimate.model, estimate, packed),
        "scores": score_units(estimate.model, estimate, packed, **settings),
    }


def sample(model: m.Model, data: Any, size: int | None = None, **settings: Any) -> dict[str, Any]:
    """Record the draws of two chains, made in two calls."""
    make = partial(lv.sample, model, data, size=size, chains=2, warmup=3, thin=1, seed=4, progress=False, **settings)
    trace = make(draws=5, after=make(draws=2))
    return {"log_density": trace.log_density, **{name: trace[name] for name in trace.names}, "key": trace.key}


def answer(result: lv.SearchResult) -> pd.DataFrame:
    """Return the table of sizes of a search: their posterior, or their predictions."""
    return result.posterior() if result.recommended is None else result.recommended.table()


def search(model: Any, data: Any = None, **settings: Any) -> dict[str, Any]:
    """Search at once; search again in a folder, stopped at its first step; resume it to the same end; load it."""
    make = partial(lv.search, model, data, seed=1, report=False, progress=False, **settings)
    whole = make()
    if isinstance(model, m.Model):  # a function cannot be stored
        with tempfile.TemporaryDirectory() as folder:
            make(out=f"{folder}/run", seconds=0)
            resumed = lv.resume(f"{folder}/run", report=False, progress=False)
            loaded, (_, stored) = lv.load(f"{folder}/run"), read_folder(Path(folder) / "run")
        for other in (resumed, loaded):
            pd.testing.assert_frame_equal(answer(other), answer(whole), rtol=1e-12)  # sums in another memory order
            assert headline(other) == headline(whole)
    else:
        loaded, stored = whole, {}
    return {
        "answer": answer(whole),
        "answer of folder": answer(loaded),
        "starts": whole.starts().drop(columns="seconds"),
        "headline": headline(whole),
        "stored": stored,
    }


def noisy_function(size: tuple[int, ...], seed: int) -> float:
    """Return a made-up log evidence of a size, with noise."""
    return -0.5 * (size[0] - 4) ** 2 - 20.0 + 0.5 * float(np.random.default_rng(seed).standard_normal())


def gain_of_topics(model: m.LDA) -> Any:
    """Measure the gain of the third topic."""
    packed = data_for(model, COUNTS).dataset()
    estimate = estimator(model, packed).fit((3,), jax.random.key(0), None)
    assert isinstance(estimate.model, m.LDA)
    work = GainEffort(temperatures=3, settling=2, averaging=2, settling_merged=2, groups=2)
    return gain_of_last_topics(estimate.model, packed, (3,), estimate, jax.random.key(5), work)


PRIORS = m.LDA(m.GammaPrior(2.0, 1.5), m.GammaPrior(1.5, 4.0))
CHAINS = (
    "LDA",
    "LDA, hyper-priors",
    "LDA, generic",
    "mixture",
    "mixture, hyper-priors",
    "tied mixture",
    "factor analysers",
    "mixture of unigrams",
    "independent normal",
    "hidden Markov",
    "Poisson factorization",
    "block model",
    "features",
    "Corr-LDA",
)
"""Chains of `test_exact_ranks.py`: one of each type."""
MIXTURES = {
    "diagonal": (mixture_cases.DIAGONAL.component, mixture_cases.HOLED),
    "Bernoulli": (mixture_cases.BERNOULLI.component, mixture_cases.BITS),
    "multinomial": (mixture_cases.MULTINOMIAL.component, mixture_cases.COUNTS),
    "Poisson": (m.PoissonComponents(1.5, 0.5), mixture_cases.COUNTS),
    "Student": (m.StudentComponents(m.DiagonalComponents(), 4.0), mixture_cases.VALUES),
}
"""Components of collapsed mixtures and their rows."""

CASES: dict[str, Case] = {
    **{f"evidence of {name}": partial(annealed_ends, partial(chain_of_ranks, name)) for name in CHAINS},
    **{
        f"evidence of a mixture, {name}": partial(
            annealed_ends, partial(chain_of, m.FiniteMixture(component), lv.Points.from_array(rows, missing="nan"), 2)
        )
        for name, (component, rows) in MIXTURES.items()
    },
    "evidence of admixture": partial(annealed_ends, partial(chain_of, m.Admixture((2, 3, 2)), COUNTS, 2)),
    "evidence of counts about a fit": partial(
        annealed_ends, partial(chain_of, m.PoissonFactorization(), 10_000 * COUNTS, 3, fitted=True)
    ),
    "evidence of LDA about a fit": partial(annealed_ends, partial(chain_of, m.LDA(), 40 * COUNTS, 3, fitted=True)),
    "evidence of a density": partial(annealed_ends, chain_of_density),
    **{
        f"fit {number} of {type(model).__name__}": partial(fit, model, data, size)
        for number, (model, data, size) in enumerate(programs.FITS)
    },
    "sample of LDA": partial(sample, m.LDA(0.9, 0.3), COUNTS, 2, units=True, parameters=True),
    "sample of LDA, hyper-priors": partial(sample, PRIORS, COUNTS, 2),
    "sample of a mixture": partial(sample, m.FiniteMixture(), ROWS, 2, units=True, parameters=True),
    "sample of independent normals": partial(sample, m.IndependentNormalMixture(), ROWS, 2, parameters=True),
    "sample of hidden Markov": partial(sample, m.HiddenMarkov(), GROUPS, 2, units=True, parameters=True),
    "sample of features": partial(sample, m.IBP(), ROWS, 3, units=True),
    "sample of a DP mixture": partial(sample, m.DPMixture(), ROWS, units=True),
    "sample of an HDP": partial(sample, m.HDP(), COUNTS, units=True),
    "sample of an HDP mixture": partial(sample, m.HDPMixture(), GROUPS, units=True),
    "sample of hLDA": partial(sample, m.HLDA(2), COUNTS, units=True),
    "search of LDA": partial(search, m.LDA(), COUNTS, max_size=3, starts=1),
    "search of LDA, bound": partial(search, m.LDA(), COUNTS, max_size=3, starts=2, evidence="bound"),
    "search of LDA, plug-in": partial(search, m.LDA(), COUNTS, max_size=3, starts=2, evidence="plug-in"),
    "search of LDA, predictive": partial(search, m.LDA(), COUNTS, max_size=2, starts=2, evidence="predictive"),
    "search of a mixture": partial(search, m.FiniteMixture(), ROWS, max_size=3, starts=1),
    "search of a mixture, annealed": partial(
        search, m.FiniteMixture(), ROWS, max_size=2, starts=1, evidence="annealed"
    ),
    "search of features": partial(search, m.IBP(), ROWS[:6], max_size=2, starts=1),
    "search of blocks, bound": partial(search, m.LatentBlockModel(), BITS, max_size=(2, 2), starts=1, evidence="bound"),
    "search of a function": partial(search, lv.from_function(noisy_function), max_size=6),
    "search of a NumPyro model": partial(
        search, lv.from_numpyro(KNOWN["summed_counts"].model), KNOWN["summed_counts"].data, max_size=2, starts=1
    ),
    "gain of a topic": partial(gain_of_topics, m.LDA()),
    "gain of a topic, hyper-priors": partial(gain_of_topics, PRIORS),
}
"""Name -> a function without arguments that returns arrays, tables and text, in dicts, tuples and lists."""


# ── digests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def parts(value: Any, name: str = "") -> Iterator[tuple[str, np.ndarray | str]]:
    """Yield (name, array or text) of everything that a case returned."""
    if value is None or isinstance(value, str):
        yield name, value or ""
    elif isinstance(value, pd.DataFrame):
        yield from parts({str(column): value[column].to_numpy() for column in value}, name)
    elif isinstance(value, dict) or hasattr(value, "_fields"):
        named = value if isinstance(value, dict) else value._asdict()
        for key, each in named.items():
            yield from parts(each, f"{name}/{key}".lstrip("/"))
    elif isinstance(value, list | tuple) and not all(np.isscalar(each) for each in value):
        for number, each in enumerate(value):
            yield from parts(each, f"{name}/{number}".lstrip("/"))
    elif isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield name, np.asarray(jax.random.key_data(value))
    else:
        array = np.asarray(value)
        yield name, " ".join(map(str, array.ravel())) if array.dtype.kind in "OUS" else array


def summary(value: np.ndarray | str) -> dict[str, Any]:
    """Return what the table says of an array or a text (see the top of the file)."""
    if isinstance(value, str):
        return {"text": re.sub(r"[0-9][0-9.,]*", "#", value)}
    flat = value.ravel()
    if value.dtype.kind in "biu":
        whole = [int(each) for each in flat]  # Python's integers do not overflow
        sums = [sum(whole), sum(number * each for number, each in enumerate(whole, start=1))]
        return {"shape": list(value.shape), "sums": sums}
    finite = np.isfinite(flat)
    kept = flat[finite].astype(np.float64)
    if not kept.size:
        return {"shape": list(value.shape), "finite": 0}
    numbers = np.sqrt(np.mean(kept**2)), kept.mean(), np.mean(kept * np.cos(1 + np.flatnonzero(finite)))
    return {"shape": list(value.shape), "finite": int(finite.sum()), "means": [float(f"{x:.9g}") for x in numbers]}


def same(written: dict[str, Any] | None, found: dict[str, Any]) -> bool:
    """Whether two summaries agree. Means may differ by `TOLERANCE` of the root mean square."""
    if written is None or {**written, "means": 0} != {**found, "means": 0}:
        return False
    scale = written.get("means", [0.0])[0]
    return bool(np.allclose(written.get("means", []), found.get("means", []), rtol=0, atol=TOLERANCE * scale))


def exact_line(name: str, part: str, value: np.ndarray | str) -> str:
    """Return a line with the SHA-256 of the bytes of an array or a text."""
    kind = "text" if isinstance(value, str) else f"{value.dtype}{list(value.shape)}"
    content = value.encode() if isinstance(value, str) else np.ascontiguousarray(value).tobytes()
    return f"{name} | {part} | {kind} | {hashlib.sha256(content).hexdigest()}\n"


@cache
def table() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the table: case -> part -> summary."""
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}


def write(name: str, found: dict[str, dict[str, Any]]) -> None:
    """Put the summaries of a case into the table, a part a line, and leave out cases that are gone."""
    cases = {case: found if case == name else table().get(case) for case in CASES}
    table().update({case: rows for case, rows in cases.items() if rows is not None})
    lines = [
        f" {json.dumps(case)}: {{\n"
        + ",\n".join(f"  {json.dumps(part)}: {json.dumps(row)}" for part, row in table()[case].items())
        + "\n }"
        for case in CASES
        if case in table()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of ends that cross, say: chains are short
@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_table(name: str):
    values = dict(parts(CASES[name]()))
    found = {part: summary(value) for part, value in values.items()}
    if EXACT in os.environ:
        with Path(os.environ[EXACT]).open("a", encoding="utf-8") as file:
            file.writelines(exact_line(name, part, value) for part, value in values.items())
    elif WRITE in os.environ:
        write(name, found)
    else:
        written = table().get(name, {})
        other = {part: (written.get(part), row) for part, row in found.items() if not same(written.get(part), row)}
        assert not other, f"differ from {TABLE.name} (there, here): {other}"
        assert list(written) == list(found)


def test_the_table_has_every_case():
    assert list(table()) == list(CASES)


def test_every_kind_of_difference_is_seen():
    """The checker is checked."""
    numbers, whole = np.array([[1.0, -2.0, np.nan]]), np.array([3, 1, 2])
    assert same(summary(numbers), summary(numbers * (1 + 1e-7)))
    assert not same(summary(numbers), summary(numbers * (1 + 1e-4)))
    assert not same(summary(numbers), summary(numbers[:, [1, 0, 2]]))
    assert not same(summary(numbers), summary(np.nan_to_num(numbers)))
    assert not same(summary(whole), summary(whole[::-1]))
    assert not same(summary(whole), summary(whole.astype(float)))
    assert not same(None, summary(whole))
    assert same(summary("3 topics: 0.81"), summary("2 topics: 0.5"))
    assert not same(summary("3 topics"), summary("3 clusters"))
    assert exact_line("case", "part", numbers) != exact_line("case", "part", np.nextafter(numbers, 5))
    assert [name for name, _ in parts({"a": [1, 2], "b": (np.ones(2), "x")})] == ["a", "b/0", "b/1"]
