"""What `import lvsearch` may pull in. How long it takes is measured by `tests/benchmarks/import_time.py`."""

import subprocess
import sys

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
{{statement}}
from jax._src import xla_bridge
print("initialised", xla_bridge.backends_are_initialized())
print("heavy", *[name for name in {HEAVY!r} if name in sys.modules])
"""


def report(statement: str) -> dict[str, list[str]]:
    """What a fresh interpreter has loaded after `statement`."""
    done = subprocess.run([sys.executable, "-c", REPORT.format(statement=statement)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {key: rest for key, *rest in (line.split() for line in done.stdout.splitlines())}


def test_import_loads_nothing_heavy_and_starts_no_device():
    assert report("import lvsearch") == {"initialised": ["False"], "heavy": []}


def test_the_report_sees_what_it_looks_for():
    """The checker is checked: a text cut into words needs scikit-learn, an array needs a device."""
    seen = report(
        "import lvsearch, jax; lvsearch.Corpus.from_texts(['genes proteins', 'proteins']); jax.numpy.zeros(2)"
    )
    assert seen["initialised"] == ["True"]
    assert "sklearn" in seen["heavy"]
