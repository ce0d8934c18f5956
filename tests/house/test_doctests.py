"""The examples in docstrings, in the README and on the pages of docs/ do what they say.

Modules are imported by name: handing `models/` or `inference/` to pytest by path would load their files a second time.
"""

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_structure import MODULES, ROOT

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
DOCS = ROOT / "docs"
PAGES = sorted(
    str(page.relative_to(DOCS))
    for page in DOCS.rglob("*.md")
    if "_build" not in page.parts and ">>> " in page.read_text(encoding="utf-8")
)
CHEAP = ("how-to/own-model.md",)
"""Pages whose examples take no longer than importing does: they stay in the fast tier."""


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def check_page(page: Path, folder: Path) -> None:
    """As a reader runs it: in a process of its own, which has written the sample files as a reader does. Compiled with
    a little more effort than the tests are: what annealing here saves by it is more than it costs."""
    run = (
        f"import doctest, runpy, sys; sys.argv = ['sample_files.py', {str(folder)!r}]; "
        f"runpy.run_path({str(DOCS / 'sample_files.py')!r}, run_name='__main__'); "
        f"sys.exit(doctest.testfile({str(page)!r}, False, optionflags={OPTIONS}).failed)"
    )
    flags = os.environ["XLA_FLAGS"].replace("xla_backend_optimization_level=0", "xla_backend_optimization_level=1")
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", run], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_examples(tmp_path):
    check_page(ROOT / "README.md", tmp_path)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in CHEAP else pytest.mark.slow, id=page) for page in PAGES]
)
def test_page_examples(page, tmp_path):
    check_page(DOCS / page, tmp_path)


def test_cheap_pages_exist():
    assert set(CHEAP) <= set(PAGES)
