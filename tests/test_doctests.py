"""The examples in docstrings and in the README do what they say.

Modules are imported by name: handing `models/` or `inference/` to pytest by path would load their files a second time.
"""

import doctest
import importlib
import os
import subprocess
import sys

import pytest
from test_structure import MODULES, ROOT

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_readme_examples():
    """As a reader runs them: in a process of its own, compiled as production is, which is three times as fast here."""
    run = f"import doctest, sys; sys.exit(doctest.testfile('README.md', False, optionflags={OPTIONS}).failed)"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
