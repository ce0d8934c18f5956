"""Compilations are counted, shown with a result, and as few as promised."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_searches import rewritten

import lvsearch as lv
from lvsearch.inference import compiles as kept
from lvsearch.inference.compiles import compiles, compiles_since, counted
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.topics import kernel as kernels
from lvsearch.models.kernels import kernel

N_DOCUMENTS, N_TERMS = 29, 13  # a layout of this file's own: no other test has compiled for it
RULES = {"memoized_passes": 2}
"""Kernels that a fit compiles more than once: by the collapsed and by the mean-field rule."""


def data() -> lv.Corpus:
    return lv.Corpus.from_matrix(np.random.default_rng(3).poisson(0.8, (N_DOCUMENTS, N_TERMS)))


def searched(max_size: int, **settings) -> lv.SearchResult:
    counts = data()
    prior = lv.sizes.Poisson(4)
    return lv.search(
        lv.models.LDA(),
        counts,
        prior=prior,
        max_size=max_size,
        starts=1,
        exhaustive=True,
        evidence="bound",
        progress=False,
        **settings,
    )


def assert_no_more_than_promised(found: Mapping[str, int], n_capacities: int, n_layouts: int = 1) -> None:
    for name, times in found.items():
        assert times <= n_capacities * n_layouts * RULES.get(name, 1), f"{name} was compiled {times} times"


@pytest.fixture(scope="module")
def first() -> lv.SearchResult:
    """Sizes 1 to 10: two capacities, one layout of documents, and fits from one topic more at both."""
    assert {capacity_of((size,)) for size in range(1, 11)} == {(8,), (16,)}
    return searched(10)


@pytest.mark.thorough
def test_a_search_compiles_once_per_capacity_layout_and_rule(first: lv.SearchResult):
    assert len(first.visits) == 10
    assert first.compiles["memoized_passes"] == 4
    assert {"document_pass", "document_bounds", "topic_bound", "exp_log_topics"} <= set(first.compiles)
    assert_no_more_than_promised(first.compiles, n_capacities=2)


@pytest.mark.thorough
def test_sizes_inside_known_buckets_compile_nothing(first: lv.SearchResult):
    assert searched(16).compiles == {}


@pytest.mark.thorough
def test_a_kernel_compiled_per_size_is_noticed(first: lv.SearchResult, monkeypatch: pytest.MonkeyPatch):
    """Planted: the number of topics as a static argument."""

    @partial(jax.jit, static_argnames="n_topics")
    @counted
    def static_size(total: jax.Array, n_topics: int) -> jax.Array:
        return total + 0 * n_topics

    def careless(total: jax.Array, eta: object, alpha: np.ndarray) -> jax.Array:
        return static_size(right(total, eta, alpha), int((alpha > 0).sum()))

    right = kernels.exp_log_topics
    monkeypatch.setattr(kernels, "exp_log_topics", careless)
    found = searched(4).compiles
    assert found == {"static_size": 4}
    with pytest.raises(AssertionError, match="static_size was compiled 4 times"):
        assert_no_more_than_promised(found, n_capacities=1)


def test_counts_are_since_a_moment():
    double = jax.jit(counted(lambda x: 2 * x))
    before = compiles()
    for vector in (np.ones(5), np.zeros(5), np.ones(6)):
        double(vector.astype(np.float32))
    assert compiles_since(before) == {"<lambda>": 2}
    assert compiles_since(compiles()) == {}


def test_counts_are_shown_stored_and_added_up(first: lv.SearchResult, tmp_path: Path):
    line = next(line for line in first.summary().splitlines() if line.strip().startswith("compiled:"))
    assert "compiled:    memoized_passes 2, " in line  # one for each rule: all sizes share one length
    assert "compiled" in first._repr_html_()
    assert "compiled" not in replace(first, compiles={}).summary()

    first.save(tmp_path / "run")
    assert lv.load(tmp_path / "run").compiles == first.compiles
    assert lv.resume(tmp_path / "run", report=False, progress=False).compiles == first.compiles  # nothing new
    assert lv.load(tmp_path / "run").compiles == first.compiles

    def as_before_counts(body: dict, arrays: dict) -> None:
        del body["compiles"], body["chunks"]

    old = rewritten(tmp_path / "run", tmp_path / "old", as_before_counts)
    assert lv.load(old).compiles == {}


@pytest.mark.usefixtures("first")
def test_a_resumed_search_adds_what_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    searched(2, seconds=0, out=tmp_path / "run", report=False)
    known = {"memoized_passes": 3, "document_pass": 1}
    folder = rewritten(tmp_path / "run", tmp_path / "again", lambda body, _: body.update(compiles=known))
    right = kernels.exp_log_topics

    @counted
    def memoized_passes(total: jax.Array) -> jax.Array:
        return total

    monkeypatch.setattr(
        kernels, "exp_log_topics", lambda total, eta, alpha: jax.jit(memoized_passes)(right(total, eta, alpha))
    )
    found = lv.resume(folder, report=False, progress=False).compiles
    assert found == {"memoized_passes": 4, "document_pass": 1}


# ── what a process keeps ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of which an entry is added whenever programs would be let go."""
    times: list[int] = []
    monkeypatch.setattr(kept.jax, "clear_caches", lambda: times.append(1))
    monkeypatch.setattr(kept, "_traces_when_released", kept._traces.total())
    return times


def test_programs_are_let_go_where_there_are_many(released: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "MOST_TRACES", 3)
    for n in range(1, 10):
        jax.jit(counted(lambda x: x + 1))(np.zeros(n, np.float32))
        kept.bound_programs()
        assert len(released) == n // 3  # once they are gone, another three may come
    monkeypatch.setattr(kept, "_n_maps", lambda: kept.MOST_MAPS)
    assert kept.bound_programs()


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    "ask",
    [
        lambda: searched(2),
        lambda: lv.fit(lv.models.LDA(), data(), size=2),
        lambda: lv.sample(lv.models.LDA(), data(), size=2, draws=1, chains=1, warmup=0, progress=False),
        lambda: lv.occupied(lv.models.HDP(), data(), draws=4, chains=2, progress=False),
        lambda: lv.fit_tree(lv.models.HLDA(depth=2), data(), sweeps=1),
    ],
)
def test_every_entry_does_so_before_it_begins(ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch):
    """Stopped where programs would go: nothing is compiled before."""

    class Gone(Exception):
        pass

    def gone() -> None:
        raise Gone

    monkeypatch.setattr(kept, "MOST_TRACES", 0)
    monkeypatch.setattr(kept.jax, "clear_caches", gone)
    with pytest.raises(Gone):
        ask()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="programs are compiled with less effort on a CPU only")
def test_a_kernel_is_compiled_with_less_effort_where_its_arguments_are_few():
    total = kernel(short=True, few=lambda rows: len(rows) <= 3)(lambda rows: rows.sum())
    assert total(jnp.ones(4)) == 4.0
    assert not total._with_options  # four are many
    assert total(jnp.ones(3)) == 3.0
    assert total._with_options["cpu"]._cache_size() == 1


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a machine with a GPU needs no other in its place")
def test_a_serial_kernel_is_launched_at_once_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    """The programs run on a CPU here, which passes over the options of GPUs. What they do is in `test_gpu_programs`."""
    serial, other = (kernel(**options)(lambda rows: rows.sum()) for options in ({"serial": True}, {"once": True}))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [serial(jnp.ones(3)), other(jnp.ones(3))] == [3.0, 3.0]
    assert set(serial._with_options) == {"gpu"}
    assert not other._with_options
