"""What an accelerator would get, on a machine that has none: every kernel, and calls that lead to all of them.

Kernels are found by walking the library's modules. A fit, a likelihood, an annealing is followed with nothing computed:
a call of a kernel is traced, and answered with ones of the right shapes.
"""

import importlib
import pkgutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import pytest
from numpyro_cases import KNOWN

import lvsearch as lv
from lvsearch.command.simulated import planted
from lvsearch.data.kinds import data_for
from lvsearch.fitted.mixture_draws import draw_mixtures
from lvsearch.inference.allocation_chains import AllocationDraws, allocation_chain
from lvsearch.inference.allocation_chains import run as allocation_chains
from lvsearch.inference.annealing.density import tune_step_lengths
from lvsearch.inference.annealing.particles import draw_from_q
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.evidence import (
    Effort,
    anchored_chain,
    both_ways,
    evidence_chain,
    simulated_like,
    temperature_profile,
    true_state,
)
from lvsearch.inference.features import LinearGaussian
from lvsearch.inference.hdp.estimator import HDPEstimator, HDPSettings
from lvsearch.inference.likelihood.completion import document_completion
from lvsearch.inference.mixture_samplers import sampler as label_traces
from lvsearch.inference.mixture_samplers.chain import chain_rows
from lvsearch.inference.mixtures.predictive import predictive_log_density
from lvsearch.inference.sequences import most_probable_paths
from lvsearch.inference.topic_samplers.size_gain import GainEffort, gain_of_last_topics
from lvsearch.models.checks import sites
from lvsearch.models.contract import Model
from lvsearch.models.kernels import full_precision

PLATFORMS = ("cuda", "tpu")
m = lv.models

# ── what there is ───────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.walk_packages(lv.__path__, "lvsearch.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


PRECISE = full_precision(len).__code__


def is_kernel(value: object) -> bool:
    """Whether `kernel` made it: its function is one that `full_precision` returned."""
    made = getattr(getattr(value, "__wrapped__", None), "__code__", None)
    return made is PRECISE and hasattr(value, "trace")


def compiled(value: object) -> Any:
    """The kernel that a name of a module stands for, looking through what splits its units over devices; or None."""
    inside = getattr(value, "__wrapped__", None)
    return value if is_kernel(value) else inside if is_kernel(inside) else None


def kernels() -> dict[str, list[tuple[ModuleType, str, Any]]]:
    """Kernel, called by where it was made -> the modules that hold it, and under which name."""
    places: dict[int, list[tuple[ModuleType, str, Any]]] = {}
    for module in modules():
        for name, value in vars(module).items():
            made = compiled(value)
            if made is not None:
                places.setdefault(id(made), []).append((module, name, made))
    found = {}
    for held in places.values():
        home, name, _ = next((p for p in held if p[0].__name__ == p[2].__module__), held[0])
        found[f"{home.__name__}.{name}".removeprefix("lvsearch.")] = held
    return found


# ── what a program may not hold ──────────────────────────────────────────────────────────────────────────────────────


def equations(jaxpr: Any) -> Iterator[Any]:
    """Those of a program, and of the programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inside = getattr(value, "jaxpr", value)
            if hasattr(inside, "eqns"):
                yield from equations(inside)


def faults(jaxpr: Any) -> list[str]:
    found = []
    for equation in equations(jaxpr):
        name = equation.primitive.name
        if "callback" in name:
            found.append(name)
        floats = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.invars if hasattr(v.aval, "dtype")]
        if name in ("dot_general", "conv_general_dilated") and any(floats):
            precision = equation.params["precision"]
            if precision not in (jax.lax.Precision.HIGHEST, (jax.lax.Precision.HIGHEST,) * 2):
                found.append(f"{name} at precision {precision}")
    return found


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Watch:
    """Calls of kernels from the host, one of each kernel, shape and precision: `traces`; kernels called from others:
    `inside`. None is run: each gives ones, unless `computing`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.traces: dict[tuple[Any, ...], Any] = {}
        self.inside: set[str] = set()
        self.computing = False
        self.known = kernels()
        for name, places in self.known.items():
            watched = self._watched(name, places[0][2])
            for module, attribute, _ in places:
                monkeypatch.setattr(module, attribute, watched)

    def _watched(self, name: str, kernel: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            leaves, structure = jax.tree.flatten((args, kwargs))
            if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                self.inside.add(name)
                return kernel(*args, **kwargs)  # inside another, which is looked at as a whole
            shapes = tuple((np.shape(leaf), str(getattr(leaf, "dtype", leaf))) for leaf in leaves)
            key = (name, structure, shapes, bool(jax.config.jax_enable_x64))
            if key not in self.traces:
                self.traces[key] = kernel.trace(*args, **kwargs)
            if self.computing:
                return kernel(*args, **kwargs)
            return jax.tree.map(ones_of, self.traces[key].out_info)

        call.eval_shape = kernel.eval_shape
        return call

    def names(self) -> set[str]:
        return {key[0] for key in self.traces}

    def follow(self, calls: Mapping[str, Callable[[], object]]) -> None:
        """Make these calls. What ones mean at their end is of no interest: ends of evidence, say, that cross."""
        for call in calls.values():
            with suppress(ValueError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()

    def check(self, every: bool = True) -> None:
        """Every program has no fault, and is lowered for every platform: `every` one, or the first of each kernel and
        precision."""
        assert self.traces
        lowered = set()
        for (name, *_, double), trace in self.traces.items():
            with jax.enable_x64(double):
                assert not faults(trace.jaxpr.jaxpr), name
                if every or (name, double) not in lowered:
                    trace.lower(lowering_platforms=PLATFORMS)
                    lowered.add((name, double))


def ones_of(shape: Any) -> Any:
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), shape.shape)
    return jnp.ones(shape.shape, shape.dtype)


# ── fits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(0, 1, (24, 3)) + 4 * (np.arange(24) % 2)[:, None]
COUNTS = RANDOM.poisson(1.0, (12, 7))
GROUPS = [ROWS[:8], ROWS[8:16], ROWS[16:]]
BITS = (ROWS > 2).astype(float)
PAIRS = ([ROWS[3 * i : 3 * i + 3] for i in range(8)], [["sea", "sky"] if i % 2 else ["tree"] for i in range(8)])
FITS: list[tuple[Model, Any, Any]] = [
    (m.LDA(), COUNTS, 3),
    (m.Unigram(), COUNTS, 1),
    (m.MixtureOfUnigrams(), COUNTS, 3),
    (m.Admixture((2, 3, 2)), COUNTS, 2),
    (m.PLSI(), COUNTS, 3),
    (m.FiniteMixture(), ROWS, 2),
    (m.FiniteMixture(m.FullCovarianceComponents()), ROWS, 2),
    (m.TiedMixture(), ROWS, 2),
    (m.FactorAnalyzerMixture(m.FactorAnalyzerComponents.weak(ROWS, 2)), ROWS, 2),
    (m.IndependentNormalMixture(), ROWS, 2),
    (m.DPMixture(), ROWS, 4),
    (m.HDP(), COUNTS, 4),
    (m.HDPMixture(), GROUPS, 4),
    (m.HLDA(2), COUNTS, 3),
    (m.IBP(), ROWS, 3),
    (m.HiddenMarkov(), GROUPS, 2),
    (m.PoissonFactorization(), COUNTS, 3),
    (m.LatentBlockModel(), BITS, (2, 2)),
    (m.GMMixture(), PAIRS, 2),
    (m.GMLDA(), PAIRS, 2),
    (m.CorrLDA(), PAIRS, 2),
]


def fits() -> dict[str, Callable[[], object]]:
    return {
        f"{type(model).__name__} {number}": partial(lv.fit, model, data, size=size, seed=0)
        for number, (model, data, size) in enumerate(FITS)
    }


# ── calls beside fits ───────────────────────────────────────────────────────────────────────────────────────────────

KEY = jax.random.key(0)
WORK = Effort(2, 2, 8)
TOPICS, ALPHA = np.full((2, 7), 1 / 7), np.full(2, 0.5)


def dataset(model: Model, data: Any) -> Dataset:
    return data_for(model, data).dataset()


def estimate(model: Model, data: Any, size: Any) -> Estimate:
    places = size if isinstance(size, tuple) else (size,)
    return estimator(model, dataset(model, data)).fit(places, KEY, None)


def annealed(model: Model, data: Any, size: Any, fitted: bool = False) -> None:
    """On the path from the prior, or from about a fit, both ways; and about where particles end."""
    places = size if isinstance(size, tuple) else (size,)
    beliefs = estimate(model, data, size) if fitted else None
    chain = evidence_chain(model, dataset(model, data), places, beliefs)
    both_ways(chain, KEY, WORK, temperature_profile(chain, KEY, WORK))
    with jax.enable_x64(True):
        ends = draw_from_q(chain, KEY, particles=WORK.islands * WORK.particles)
    anchor = anchored_chain(chain, KEY, (ends,))
    if anchor is not None:
        both_ways(anchor.chain, KEY, WORK, temperature_profile(anchor.chain, KEY, WORK))


def simulated_truth(model: m.Model, like: Any, size: tuple[int, ...]) -> None:
    simulated = simulated_like(dataset(model, like), model, size, KEY)
    with jax.enable_x64(True):
        true_state(evidence_chain(model, simulated.data, size, None), simulated, 4)


def numpyro_path() -> None:
    chain = lv.from_numpyro(KNOWN["summed_counts"].model).evaluator(KNOWN["summed_counts"].data, 0).chain((2,))
    tune_step_lengths(chain, KEY, WORK.islands * WORK.particles)


def topics_in_passes() -> None:
    data = dataset(m.HDP(), COUNTS)
    HDPEstimator(m.HDP(), data, HDPSettings(passes=1)).fit((4,), KEY, None)


def features_of_rows() -> None:
    scored = LinearGaussian(1.0, 1.0, jax.devices()[0])
    lv.inference.map_features(ROWS[:4], alpha=1.0, likelihood=scored)


def from_files() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lv.Corpus.from_matrix(COUNTS).save(f"{folder}/corpus")
        lv.fit(m.LDA(), lv.Corpus.open(f"{folder}/corpus"), size=2, seed=0)


def factors_from_fewer() -> None:
    model = m.FactorAnalyzerMixture(m.FactorAnalyzerComponents.weak(ROWS, 2))
    estimator(model, dataset(model, ROWS)).fit((2,), KEY, estimate(model, ROWS, 1))


def sampled_on() -> None:
    sample = partial(lv.sample, m.LDA(), COUNTS, size=2, chains=1, warmup=1, seed=0, progress=False)
    sample(draws=2, after=sample(draws=1))


def density_of_partitions() -> None:
    rows = chain_rows(m.DPMixture(), dataset(m.DPMixture(), ROWS))
    label_traces._natural_of_labels(jnp.zeros(len(ROWS), jnp.int32), rows, capacity=8)


def partitions_of_rows() -> None:
    make = partial(allocation_chain, m.FiniteMixture(), dataset(m.FiniteMixture(), ROWS), np.zeros(3))
    with jax.enable_x64(True):
        chain = make(4)
        state, *_ = allocation_chains.advance(chain, KEY, chain.init(KEY, 4))
        allocation_chains.end_warm_up(chain, KEY, state)


def draws_of_mixtures() -> None:
    recorded = AllocationDraws(np.zeros((2, len(ROWS), 4), np.int32), {})
    draws = draw_mixtures(m.FiniteMixture(), lv.Points.from_array(ROWS), np.zeros(3), recorded, 8, 0)
    for follow in (draws.log_likelihood, draws.density, draws.simulate, draws.means, draws.covariances):
        follow()
    draws.log_predictive(ROWS[:2])


def gain_of_a_topic() -> None:
    fitted = estimate(m.LDA(), COUNTS, 3)
    assert isinstance(fitted.model, m.LDA)
    work = GainEffort(temperatures=2, settling=1, averaging=1, settling_merged=1, groups=1)
    gain_of_last_topics(fitted.model, dataset(m.LDA(), COUNTS), (3,), fitted, KEY, work)


def fewer_topics() -> None:
    """A fit of two topics that begins with a fit of three."""
    estimator(m.LDA(), dataset(m.LDA(), COUNTS)).fit((2,), KEY, estimate(m.LDA(), COUNTS, 3))


def of_a_family() -> None:
    """What a check does for families of one's own."""
    model = m.FiniteMixture()
    sites._gradient_and_mean(model.globals()["weights"].family, estimate(model, ROWS, 2).natural["weights"])


QUICK: dict[str, Callable[[], object]] = {
    "left to right": partial(lv.inference.document_likelihood, TOPICS, ALPHA, COUNTS, method="lrs", samples=4, key=KEY),
    "annealed": partial(lv.inference.document_likelihood, TOPICS, ALPHA, COUNTS, method="ais", samples=16, key=KEY),
    "importance": partial(lv.inference.document_likelihood, TOPICS, ALPHA, COUNTS, method="mfi", samples=4, key=KEY),
    "harmonic mean": partial(lv.inference.document_likelihood, TOPICS, ALPHA, COUNTS, method="hm", samples=4, key=KEY),
    "completion": lambda: document_completion(TOPICS, ALPHA, COUNTS, COUNTS),
    "minibatches": lambda: lv.inference.stochastic_topics(m.LDA(), dataset(m.LDA(), COUNTS), 2, key=KEY, documents=4),
    "documents in files": from_files,
    "samples of topics": sampled_on,
    "factor analysers from fewer": factors_from_fewer,
    "fewer topics": fewer_topics,
    "means of components": lambda: lv.fit(m.FiniteMixture(), ROWS, size=2, seed=0).means(),
    "draws of mixtures": draws_of_mixtures,
    "planted corpus": partial(planted, 2, n_documents=3, n_tokens=4, n_terms=5),
}
"""Calls of the fast tier."""

CALLS: dict[str, Callable[[], object]] = {
    **{
        f"evidence of {type(model).__name__} {number}": partial(annealed, model, data, size)
        for number, (model, data, size) in enumerate(FITS)
        if not model.process and not isinstance(model, (m.Unigram, m.PLSI))
    },
    **{
        f"mixture of {kind.name}": partial(
            annealed, m.FiniteMixture(kind.component), mixture_cases.points(kind), 2, fitted=True
        )
        for kind in mixture_cases.CASES
    },
    "annealed, many documents": lambda: lv.inference.document_likelihood(
        TOPICS, ALPHA, np.tile(COUNTS, (1 + 1000 // len(COUNTS), 1)), method="ais", samples=8, key=KEY, certify=False
    ),
    "samples of normals": partial(
        lv.sample, m.IndependentNormalMixture(), ROWS, size=2, chains=1, warmup=1, draws=1, seed=0, progress=False
    ),
    "blocks about a fit": partial(annealed, m.LatentBlockModel(), BITS, (2, 2), fitted=True),
    "counts about a fit": partial(annealed, m.PoissonFactorization(), 10_000 * COUNTS, 3, fitted=True),
    "simulated blocks": partial(simulated_truth, m.LatentBlockModel(), BITS, (2, 2)),
    "simulated rows": partial(simulated_truth, m.FiniteMixture(), ROWS, (2,)),
    "images of tokens": lambda: lv.fit(
        m.CorrLDA(regions=m.MultinomialComponents(0.1)), lv.PairedCorpus.from_arrays(COUNTS, COUNTS[:, :4]), size=2
    ),
    "density of rows": lambda: predictive_log_density(
        estimate(m.FiniteMixture(), ROWS, 2), dataset(m.FiniteMixture(), ROWS)
    ),
    "units": lambda: lv.inference.describe_units(
        m.FiniteMixture(), estimate(m.FiniteMixture(), ROWS, 2), dataset(m.FiniteMixture(), ROWS)
    ),
    "NumPyro's": numpyro_path,
    "topics in passes": topics_in_passes,
    "features": features_of_rows,
    "paths": lambda: most_probable_paths(estimate(m.HiddenMarkov(), GROUPS, 2), dataset(m.HiddenMarkov(), GROUPS)),
    "density of partitions": density_of_partitions,
    "partitions of rows": partitions_of_rows,
    "gain of a topic": gain_of_a_topic,
    "normalisers": of_a_family,
}
"""And of the slow one."""
