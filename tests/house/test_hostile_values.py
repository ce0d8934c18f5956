"""Every public entry × values that nobody should pass: taken, or refused in words (`hostile_values.py` says how)."""

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from hostile_values import ENTRIES, VALUES, BegunError, verdict
from test_structure import ROOT

SCRIPT = ROOT / "tests" / "cases" / "hostile_values.py"


@cache
def verdicts() -> dict[str, dict[str, str]]:
    """Of all entries, from one process without the checks of types that tests have."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


@pytest.mark.parametrize("entry", ENTRIES)
def test_hostile_values_are_taken_or_refused_in_words(entry: str):
    assert verdicts()[entry] == {}


def test_a_careless_entry_is_noticed():
    def begun(_: object) -> None:
        raise BegunError

    assert verdict(begun, 1) is None
    assert verdict(lambda value: value.missing, 1) == "AttributeError: 'int' object has no attribute 'missing'"
    assert verdict(lambda value: [][value], 1) == "IndexError: list index out of range"
    assert verdict(lambda value: (_ for _ in ()).throw(ValueError), 1) == "ValueError without a word"
    assert len(VALUES) > 60
