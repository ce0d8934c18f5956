"""What `import lvsearch` may pull in. How long it takes is measured by `tests/benchmarks/import_time.py`."""

import subprocess
import sys

import pytest

import lvsearch

HEAVY = (
    "sklearn",
    "numpyro",
    "optax",
    "matplotlib",
    "IPython",
    "joblib",
    "scipy.stats",
    "scipy.optimize",
    "scipy.cluster",
    "scipy.spatial",
    "scipy.sparse.csgraph",
    "scipy.io",
)
"""Packages that cost about a tenth of a second or more each; who calls what needs one, waits for it then."""

REPORT = f"""
import sys
from jax._src import xla_bridge
for statement in sys.argv[1:]:
    exec(statement)
    print(xla_bridge.backends_are_initialized(), *[name for name in {HEAVY!r} if name in sys.modules])
"""


def loaded_after(*statements: str) -> list[list[str]]:
    """Run `statements` one after the other in a fresh interpreter, and return what it has loaded after each.

    Of each: whether JAX has begun to use a device ("True" or "False"), and the names of `HEAVY` packages.
    """
    done = subprocess.run([sys.executable, "-c", REPORT, *statements], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.thorough
def test_import_loads_nothing_heavy_and_starts_no_device():
    """And the checker is checked: a text cut into words needs scikit-learn, an array needs a device."""
    imported, used = loaded_after(
        "import lvsearch; lvsearch.search, lvsearch.models",
        "import lvsearch, jax; lvsearch.Corpus.from_texts(['genes proteins', 'proteins']); jax.numpy.zeros(2)",
    )
    assert imported == ["False"]
    assert used[0] == "True"
    assert "sklearn" in used


def test_import_itself_loads_neither_numpy_nor_jax():
    """Every public name is imported when it is first used."""
    look = "import sys, lvsearch; print(*sorted({'numpy', 'scipy', 'jax'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_public_name_is_found_where_the_package_says():
    assert sorted([*lvsearch.PUBLIC_MODULES, *lvsearch.MODULE_OF]) == sorted(lvsearch.__all__)
    for name in lvsearch.__all__:
        assert getattr(lvsearch, name) is not None
    with pytest.raises(AttributeError, match="module 'lvsearch' has no attribute 'serach'"):
        lvsearch.serach  # noqa: B018
