"""The examples in docstrings and in the README do what they say.

Modules are imported by name: handing `models/` or `inference/` to pytest by path would load their files a second time.
"""

import doctest
import importlib

import pytest
from test_structure import MODULES, ROOT

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_readme_examples():
    assert doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=OPTIONS).failed == 0
