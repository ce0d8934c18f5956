"""Every kernel as an accelerator would get it, on machines that have none: it is lowered for one, products of floats
keep all bits, and no program calls back into Python (`programs`)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import CALLS, COUNTS, FITS, QUICK, Watch, equations, faults, fits, ones_of

import lvsearch as lv
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.models.contract import Model
from lvsearch.models.kernels import kernel

ROOT = Path(__file__).resolve().parents[2]
m = lv.models

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


# ── what leads to them ──────────────────────────────────────────────────────────────────────────────────────────────

SLOW = {
    "inference.annealing.anchors": {"_average_particles"},
    "inference.annealing.between_sizes": {"_smaller_scores", "_split", "_switch"},
    "inference.annealing.density": {"_adapt_step_lengths"},
    "inference.annealing.particles": {
        "_advance",
        "_advance_serially",
        "_log_gain",
        "_log_ratio",
        "draw_from_q",
        "relabel_all",
    },
    "inference.annealing.prefixes": {"_shrink"},
    "inference.annotation.estimator": {"collapsed_step"},
    "inference.block_models.chain": {"_completed"},
    "inference.block_models.estimator": {"_state_with_labels"},
    "inference.engine.describing": {"representing_value"},
    "inference.engine.estimate": {"point_of"},
    "inference.engine.meanfield_starts": {"blank_locals"},
    "inference.evidence.independent_normal": {"_coordinates_and_carriers"},
    "inference.evidence.simulation": {"_state_from_labels"},
    "inference.factorizations.anchored": {"_average_run"},
    "inference.features.linear_gaussian": {"_scores"},
    "inference.hdp.kernel": {"memoized_passes"},
    "inference.likelihood.annealed": {"_log_islands"},
    "inference.mixture_samplers.sampler": {"_natural_of_labels"},
    "inference.mixtures.predictive": {"_each"},
    "inference.mixtures.rows": {"increments", "pack_increments", "variants"},
    "inference.allocation_chains.run": {"advance", "end_warm_up"},
    "inference.sequences.kernel": {"_viterbi_states"},
    "inference.topic_samplers.anchor": {"log_independent"},
    "inference.topic_samplers.size_gain": {"_merged", "_with_counts", "settle"},
    "models.checks.probe": {"global_statistics", "local_statistics", "per_copy", "prior_gradient", "unit_gradients"},
    "models.checks.sites": {"_gradient_and_mean"},
}
"""Module -> kernels that only `CALLS` lead to, and neither fits nor quick calls."""
ON_THE_HOST = {
    "inference.topic_samplers.collapsed._sweep": "token by token, on the CPU whatever there is (`inference.sharding`)",
    "inference.trees.sweep.tree_sweep": "token by token, on the CPU whatever there is",
    "inference.feature_samplers.collapsed._sweep_rows": "row by row, on the CPU whatever there is",
    "inference.hdp.sampler._add_all_members": "begins such a sampler: member by member, on the CPU whatever there is",
    "inference.sampling.run._fold_in": "keys of sweeps that are made on the host: `Hosted` chains",
    "inference.sampling.run._compiled_observed": "asked for its shapes, never run",
}
"""Kernels that no accelerator gets, and why."""


def test_every_model_is_fitted_here():
    classes = {value for value in vars(lv.models).values() if isinstance(value, type) and issubclass(value, Model)}
    assert classes - {Model} == {type(model) for model, _, _ in FITS}


FIRST = ("LDA 0", "MixtureOfUnigrams 2", "FiniteMixture 5", "left to right", "samples of topics")
"""Fits and quick calls of the fast tier: passes over texts and over rows, an estimator, a chain."""


@pytest.mark.thorough
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["first", "every"])
def test_kernels_of_fits_and_of_quick_calls_are_lowered_for_accelerators(monkeypatch: pytest.MonkeyPatch, every: bool):
    """In the fast tier a few calls are followed, and the first program of each of their kernels is lowered."""
    watch, calls = Watch(monkeypatch), fits() | QUICK
    watch.follow(calls if every else {name: calls[name] for name in FIRST})
    if every:
        others = {f"{module}.{name}" for module, names in SLOW.items() for name in names} | ON_THE_HOST.keys()
        left = watch.known.keys() - watch.names() - watch.inside
        assert left <= others, "a new kernel: have a fit or a call in `programs` lead to it"
    watch.check(every)


@pytest.mark.slow
def test_the_other_kernels_are_lowered_for_accelerators(monkeypatch: pytest.MonkeyPatch):
    watch = Watch(monkeypatch)
    watch.follow(CALLS)
    watch.computing = True
    m.check(m.LDA(), lv.Corpus.from_matrix(COUNTS))
    assert {f"{module}.{name}" for module, names in SLOW.items() for name in names} <= watch.names()
    watch.check()


def test_functions_inside_programs_of_others_keep_all_bits():
    model, prepared = m.HDP(), lv.functional.batch_of(m.HDP(), COUNTS[:2])
    inside = lv.functional.mean_field(2, prepared.extents)
    sampling = lv.functional.gibbs(2, prepared.extents)

    def everything(state: Any, drawn: Any, batch: Any) -> Any:
        return inside.elbo(model, inside.update(model, state, batch), batch), sampling.log_joint(model, drawn, batch)

    state = jax.eval_shape(lambda key, batch: inside.init(model, key, batch), jax.random.key(0), prepared.batch)
    drawn = jax.tree.map(ones_of, GibbsState(state.globals.mean, (state.locals.mean,)))
    program = jax.make_jaxpr(everything)(jax.tree.map(ones_of, state), drawn, prepared.batch).jaxpr
    assert sum(each.primitive.name == "dot_general" for each in equations(program)) > 2
    assert not faults(program)
