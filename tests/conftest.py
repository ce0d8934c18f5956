"""What every test session shares: one precision, one backend, strictness where it is wanted, data where it is present.

Tests run with x64 off, as production does; float64 oracles take the `float64` fixture. Shapes and types of functions
in `lvsearch` are checked (`--jaxtyping-packages` in pyproject.toml; `test_structure.py` holds the canary).
"""

import gc
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jaxlib.version import __version__ as jaxlib_version

# Compiling, not running, is what the fast tier waits for: with these flags it takes a third of the time. Bit and speed
# tests, which must run as production does, set XLA_FLAGS themselves: a level that is already given stays. XLA reads the
# flags once, so this comes before JAX; one that it does not know ends the process, so the last two go no further than
# where they were tried.
XLA_FLAGS = os.environ.get("XLA_FLAGS", "")
if "xla_backend_optimization_level" not in XLA_FLAGS:
    XLA_FLAGS += " --xla_backend_optimization_level=0"
    if jaxlib_version.startswith("0.10."):
        XLA_FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = XLA_FLAGS.strip()
# Cases, oracles, benchmarks and tables are imported by name from wherever they lie; no two files have the same.
sys.path.extend(sorted({str(file.parent) for file in Path(__file__).parent.rglob("*.py")}))
os.environ.setdefault("MPLBACKEND", "Agg")  # no test opens a window
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # processes that tests start read what the first has parsed
# Which line an operation came from is looked up for each that is lowered, and read by nobody here.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# What one worker has compiled, the other and the processes that tests start (commands, notebooks) need not compile. Nor
# does the next session: the folder stays, and programs not read for two weeks go. A folder that is already given is
# taken instead (an empty one: every program is compiled). What compiles faster than it is written and read is not kept.
# Programs hold instructions of the machine that compiled them, so each machine has a folder of its own.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    PROGRAMS = Path(__file__).resolve().parents[1] / ".pytest_cache" / "programs" / (platform.node() or "here")
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS.parent.glob("*/*"):
        with suppress(FileNotFoundError):  # another session may sweep too
            used = program.stat()
            if max(used.st_atime, used.st_mtime) < time.time() - 14 * 24 * 3600:
                program.unlink()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(PROGRAMS)  # workers inherit the variable
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import checked_calls  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

LONGEST = ("test_notebooks", "test_doctests")
"""Files of few and long tests go first: at the end one worker would wait for the other."""

checked_calls.install()

# Traced programs leave millions of objects that stay; looking through them again and again took half of the session.
# See `released_programs` too.
gc.set_threshold(100_000, 20, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="also run the tests marked thorough")
    parser.addoption("--slow", action="store_true", help="run every test: also those marked thorough or slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where smoke tests alone are asked for, files without one are not imported: that would take most of the time."""
    if config.getoption("-m") == "smoke" and collection_path.name.startswith("test_") and collection_path.is_file():
        return "mark.smoke" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONGEST)  # the rest stays in its order
    marks = config.getoption("-m") or ""
    if config.getoption("--slow") or "slow" in marks:
        return
    skips = {"slow": "slow tier: run with --slow, or -m slow for it alone"}
    if not config.getoption("--thorough") and "thorough" not in marks:
        skips["thorough"] = "thorough tier: run with --thorough, or -m thorough for it alone"
    for item in items:
        for tier, reason in skips.items():
            if tier in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def single_precision() -> None:
    """The session runs as production does."""
    assert not jax.config.jax_enable_x64, "unset JAX_ENABLE_X64: the tests run with x64 off, as production does"  # pyright: ignore


@pytest.fixture(scope="session", autouse=True)
def shared_programs() -> None:
    """Programs are let go by the fixture below, between files, and not by every search after so many. Samplers, which
    ask for some effort, are compiled with as little as everything else.
    """
    from lvsearch.inference import compiles
    from lvsearch.models import kernels

    compiles.MOST_TRACES = compiles.MOST_MAPS = 10**9
    some = kernels.SOME_EFFORT[0]
    assert isinstance(some, dict)
    some["xla_backend_optimization_level"] = 0  # in the dict itself, which the programs already have


@pytest.fixture(scope="module", autouse=True)
def released_programs() -> Iterator[None]:
    """Compiled programs go when they near what a process may hold.

    Each is a handful of memory maps. Linux gives a process 65,530, and XLA crashes on the next. A map goes with about a
    third of a MiB: by that a process holds some 5 GiB where programs go, and the other worker as much. Nearly all go
    with the caches; looking through all objects for the rest takes as long again.
    """
    yield
    from lvsearch.inference.compiles import _n_maps

    if _n_maps() > 15_000:
        jax.clear_caches()
        if _n_maps() > 7_500:
            gc.unfreeze()
            gc.collect()
    gc.freeze()  # what has stayed until here is not looked through again until programs go


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Figures go with their test: Matplotlib warns of the 21st that a process holds, whichever test opens it."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def float64() -> Iterator[None]:
    """Inside: JAX computes in float64, as every recorded evidence is."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def own_programs() -> Iterator[None]:
    """Inside: nothing is run that was compiled outside, and the other way round."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture
def strict_ranks() -> Iterator[None]:
    """Inside: arrays of different rank do not broadcast. Around our own kernels only; NumPyro and Optax raise."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def strict_dtypes() -> Iterator[None]:
    """Inside: arrays of different dtype do not mix. Around our own kernels only; NumPyro and Optax raise."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public corpora that LVSEARCH_DATA names; tests that need it are skipped where it is not."""
    folder = os.environ.get("LVSEARCH_DATA")
    if not folder:
        pytest.skip("LVSEARCH_DATA is not set: it names the folder that holds cora/, ap/, …")
    path = Path(folder).resolve()
    if not path.is_dir():
        pytest.skip(f"LVSEARCH_DATA={folder} is not a folder")
    return path
