"""Every kernel as an accelerator would get it, on machines that have none: it is lowered for one, products of floats
keep all bits, and no program calls back into Python.

Kernels are found by walking the library's modules. A fit of every model is followed with nothing computed: a call of a
kernel is traced, and answered with ones of the right shapes. Kernels that no fit leads to are named here (`OTHERS`).
"""

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lvsearch as lv
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.models.contract import Model
from lvsearch.models.kernels import full_precision, kernel

ROOT = Path(__file__).resolve().parents[2]
PLATFORMS = ("cuda", "tpu")
m = lv.models

# ── what there is ───────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.walk_packages(lv.__path__, "lvsearch.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def is_kernel(value: object) -> bool:
    """Whether `kernel` made it: its function is one that `full_precision` returned."""
    made = getattr(getattr(value, "__wrapped__", None), "__code__", None)
    return made is full_precision(len).__code__ and hasattr(value, "trace")


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


SOURCES = [path for room in ("models", "inference", "lvsearch") for path in sorted((ROOT / room).rglob("*.py"))]


def dotted(node: ast.AST) -> str:
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def forbidden(source: str) -> Iterator[str]:
    """Ways to compile that leave the precision to the device, and calls back to the host."""
    if not any(word in source for word in ("jit", "pmap", "callback", "debug")):
        return
    calls_back = ("jax.pure_callback", "jax.experimental.io_callback", "pure_callback", "io_callback")
    for node in ast.walk(ast.parse(source)):
        name = dotted(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
        if name in ("jax.jit", "jit", "jax.pmap", "pjit", *calls_back) or name.startswith("jax.debug"):
            yield name
        if isinstance(node, ast.FunctionDef):
            made_by = [dotted(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list]
            if "eqx.filter_jit" in made_by and "full_precision" not in made_by:
                yield f"eqx.filter_jit of {node.name}"


def test_there_is_one_way_to_compile():
    found = {path: list(forbidden(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert set(found.pop(ROOT / "models" / "kernels.py")) == {"jax.jit"}
    assert not {path: names for path, names in found.items() if names}
    planted = (
        "@partial(jax.jit, static_argnames='n')\ndef f(n): jax.pure_callback(g, n, n)\n@eqx.filter_jit\ndef h(): ..."
    )
    assert set(forbidden(planted)) == {"jax.jit", "jax.pure_callback", "eqx.filter_jit of h"}


# ── what a program may not hold ─────────────────────────────────────────────────────────────────────────────────────


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


def test_faults_are_found():
    x = np.ones((3, 3), np.float32)

    def careless(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.einsum("ij,jk->ik", y, y), x)

    assert faults(jax.jit(careless).trace(x).jaxpr.jaxpr) == ["dot_general at precision None"]
    assert not faults(kernel()(careless).trace(x).jaxpr.jaxpr)
    assert not faults(jax.jit(careless).trace(x.astype(np.int32)).jaxpr.jaxpr)
    back = jax.jit(lambda x: jax.pure_callback(np.sin, x, x)).trace(x).jaxpr.jaxpr
    assert faults(back) == ["pure_callback"]
    gradient = jax.jit(jax.grad(lambda x: kernel()(careless)(x).sum()))
    assert not [f for f in faults(gradient.trace(x).jaxpr.jaxpr) if "precision" in f]


# ── watching ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Watch:
    """Calls of kernels from the host, one of each kernel, shape and precision: `traces`. None is run: each gives
    ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.traces: dict[tuple[Any, ...], Any] = {}
        self.known = kernels()
        for name, places in self.known.items():
            watched = self._watched(name, places[0][2])
            for module, attribute, _ in places:
                monkeypatch.setattr(module, attribute, watched)

    def _watched(self, name: str, kernel: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            leaves, structure = jax.tree.flatten((args, kwargs))
            if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                return kernel(*args, **kwargs)  # inside another, which is looked at as a whole
            shapes = tuple((np.shape(leaf), str(getattr(leaf, "dtype", leaf))) for leaf in leaves)
            key = (name, structure, shapes, bool(jax.config.jax_enable_x64))
            if key not in self.traces:
                self.traces[key] = kernel.trace(*args, **kwargs)
            return jax.tree.map(_ones, self.traces[key].out_info)

        call.eval_shape = kernel.eval_shape
        return call

    def names(self) -> set[str]:
        return {key[0] for key in self.traces}

    def check(self) -> None:
        """Every program is lowered for every platform, and has no fault."""
        assert self.traces
        for (name, *_, double), trace in self.traces.items():
            with jax.enable_x64(double):
                assert not faults(trace.jaxpr.jaxpr), name
                trace.lower(lowering_platforms=PLATFORMS)


def _ones(shape: Any) -> Any:
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), shape.shape)
    return jnp.ones(shape.shape, shape.dtype)


# ── the fast tier: fits ─────────────────────────────────────────────────────────────────────────────────────────────

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

OTHERS = {
    "inference.annealing.particles": {"_log_gain", "_log_ratio", "_relabel"},
    "inference.annealing.prefixes": {"_shrink"},
    "inference.annealing.tuning": {"_settled"},
    "inference.annotation.collapsed": {"collapsed_step"},
    "inference.block_models.anchor": {"_of_labels"},
    "inference.block_models.truth": {"_completed"},
    "inference.engine.empirical_bayes": {"_ascend"},
    "inference.engine.estimate": {"point_of"},
    "inference.engine.gibbs": {"gibbs_sweep"},
    "inference.engine.meanfield": {"batch_statistics"},
    "inference.engine.meanfield_starts": {"blank_locals"},
    "inference.engine.representation": {"representing_value"},
    "inference.evidence.independent_normal": {"_seen_by"},
    "inference.evidence.mixture_anchors": {"_averaged", "_log_density"},
    "inference.factorizations.anchored": {"_moments"},
    "inference.feature_samplers.compiled": {"_rows"},
    "inference.features.gaussian_scores": {"_scores"},
    "inference.generators": {"_split_data"},
    "inference.hdp.kernel": {"collect_documents", "memoized_passes"},
    "inference.hdp.sampler": {"_added"},
    "inference.likelihood.bounds": {"find_tile", "gamma_tile", "prove_tile"},
    "inference.likelihood.harmonic_mean": {"_log_inverses"},
    "inference.likelihood.left_to_right": {"_log_weights"},
    "inference.likelihood.mean_field_importance": {"_log_weights"},
    "inference.mixture_samplers.trace": {"_natural_of_labels"},
    "inference.mixtures.packing": {"pack_increments"},
    "inference.mixtures.predictive": {"_each"},
    "inference.mixtures.rows": {"increments", "variants"},
    "inference.sampling.run": {"_advance", "_compiled_observed", "_fold_in", "_init", "_log_density"},
    "inference.sequences.paths": {"_states"},
    "inference.streaming.stochastic": {"_moved"},
    "inference.streaming.streamed": {"_ahead", "_moved", "_topics", "_visited"},
    "inference.topics.anchor": {"_averaged", "_init", "_log_density"},
    "inference.topics.collapsed": {"_sweep"},
    "inference.topics.independent_documents": {"log_independent"},
    "inference.trees.sweep": {"tree_sweep"},
    "models.checks.normalisers": {"_both"},
    "models.checks.probe": {"global_statistics", "local_statistics", "per_copy", "prior_gradient", "unit_gradients"},
    "models.exponential.matrices": {"cholesky", "solve_lower"},
}
"""Module -> kernels that these fits do not call from the host: samplers, annealed evidence, likelihoods, checks, and
what only other kernels call. Their products keep all bits as those of all (`test_there_is_one_way_to_compile`)."""


def test_every_model_is_fitted_here():
    classes = {value for value in vars(lv.models).values() if isinstance(value, type) and issubclass(value, Model)}
    assert classes - {Model} == {type(model) for model, _, _ in FITS}


def test_kernels_of_fits_are_lowered_for_accelerators(monkeypatch: pytest.MonkeyPatch):
    watch = Watch(monkeypatch)
    for model, data, size in FITS:
        with suppress(ValueError):  # bounds that are all 1 contradict each other at the end
            lv.fit(model, data, size=size, seed=0)
    others = {f"{module}.{name}" for module, names in OTHERS.items() for name in names}
    assert watch.known.keys() - watch.names() <= others, "a new kernel: have a fit here call it, or name it in OTHERS"
    watch.check()


def test_functions_inside_programs_of_others_keep_all_bits():
    model, prepared = m.HDP(), lv.functional.batch_of(m.HDP(), COUNTS[:2])
    inside = lv.functional.mean_field(2, prepared.extents)
    sampling = lv.functional.gibbs(2, prepared.extents)

    def everything(state: Any, drawn: Any, batch: Any) -> Any:
        return inside.elbo(model, inside.update(model, state, batch), batch), sampling.log_joint(model, drawn, batch)

    state = jax.eval_shape(lambda key, batch: inside.init(model, key, batch), jax.random.key(0), prepared.batch)
    drawn = jax.tree.map(_ones, GibbsState(state.globals.mean, (state.locals.mean,)))
    program = jax.make_jaxpr(everything)(jax.tree.map(_ones, state), drawn, prepared.batch).jaxpr
    assert sum(each.primitive.name == "dot_general" for each in equations(program)) > 2
    assert not faults(program)
