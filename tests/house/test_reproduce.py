"""The plan of `benchmarks/reproduce.py`: every question has a row, every quotation is on record, output is read right.

No benchmark is run here.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import reproduce
from claims import CLAIMS, TABLE_LINE, Claim
from reproduce import Row, measure, missing, page, plan, read_figure, run_script

BENCHMARKS = Path(reproduce.__file__).parent
NO_CLAIM = {"dependencies.py", "device.py", "reproduce.py"}
"""Scripts of README's table that are themselves collections of checks, or need a device."""


def readme() -> str:
    return (BENCHMARKS / "README.md").read_text(encoding="utf-8")


def test_every_question_of_the_readme_has_a_row():
    rows = re.findall(r"^\|[^|]+\| `(\w+\.py)", readme(), re.MULTILINE)
    rows = [row for row in rows if (BENCHMARKS / row).exists()]
    assert len(rows) > 30
    assert set(rows) - NO_CLAIM == {claim.script for claim in CLAIMS}


def test_figures_on_record_are_quotations():
    text = " ".join(readme().split())
    wrong = [claim.documented for claim in CLAIMS if " ".join(claim.documented.split()) not in text]
    assert not wrong, "README.md of the benchmarks says otherwise"
    assert sum(bool(claim.documented) for claim in CLAIMS) > 30


FIGURE = re.compile(r"\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+|(?<![\d\w])\.\d+")
OWN_RECORD = {"benchmark.md", "how-to/gpu.md"}
"""Pages whose figures are those of one script alone: docs/static/log_evidence.csv, and what `device.py` printed."""
NO_MEASUREMENT = {
    "cora.md": {"4,100", "123,457", "25,000"},  # withdrawn; tokens; the difference of two figures on record
    "how-to/clusters-in-a-table.md": {"4,096"},
    "how-to/fewer-units.md": {"10.1080", "01621459.2018"},
    "how-to/hyper-priors.md": {"0.0025"},
    "how-to/many-machines.md": {"484,000", "2,400,000"},
    "how-to/mutational-signatures.md": {"375,000"},
    "how-to/processes.md": {"0.873", "0.013"},
    "how-to/reading-files.md": {"1,234", "3.14"},
    "how-to/samples.md": {"3,300", "5,000"},
    "how-to/trees.md": {"0.420"},
    "how-to/which-are-real.md": {".976"},
    "meaning.md": {"0.011", "0.300", "0.305", "0.735", "0.999", "73.5", "8,192"},
    "start.md": {"3.11"},
    "trust.md": {"1,500", "1,600", "3.11", "3.12", "3.13", "3.14"},
    "developers.md": {"2,300"},
}
"""Numbers of pages that no script measures: settings, sizes of data, versions, addresses, what a sentence is like."""


def figures_of(file: Path) -> set[str]:
    """The numbers with a decimal point or a thousands separator in a page without its code."""
    text = re.sub(r"```.*?```|`[^`]*`", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(FIGURE.findall(text))


def test_figures_of_all_pages_are_on_record():
    """Each stands in README.md of the benchmarks, where the script is named that prints it."""
    docs, on_record, n_found = BENCHMARKS.parents[1] / "docs", set(FIGURE.findall(readme())), 0
    for file in sorted(docs.rglob("*.md")):
        name = file.relative_to(docs).as_posix()
        if name not in OWN_RECORD:
            found = figures_of(file)
            n_found += len(found)
            assert not sorted(found - on_record - NO_MEASUREMENT.get(name, set())), f"{name}: not on record"
    assert n_found > 150


@pytest.mark.parametrize("script", sorted({claim.script for claim in CLAIMS}))
def test_scripts_know_the_options_they_are_given(script: str):
    """Read from the source: starting each script would take minutes."""
    source = (BENCHMARKS / script).read_text(encoding="utf-8")
    for claim in CLAIMS:
        if claim.script == script:
            for argument in (*(claim.quick or ()), *claim.full):
                if argument.startswith("--"):
                    named = f'"{argument}"' in source or f'"{argument[2:]}"' in source
                    assert named, f"{script} has no option {argument}"


def test_patterns_are_regular_expressions_and_questions_differ():
    for claim in CLAIMS:
        re.compile(claim.figure)
        assert claim.question.endswith("?")
    assert len({claim.question for claim in CLAIMS}) == len(CLAIMS)


def test_the_quick_plan_leaves_out_what_is_not_small_and_the_full_one_nothing():
    quick, full = plan(False), plan(True)
    assert {claim for claim, *_ in quick} == {claim for claim in CLAIMS if claim.quick is not None}
    assert [claim for claim, *_ in full] == list(CLAIMS)
    assert len(quick) >= 20
    assert all(seconds <= 60 for *_, seconds in quick)
    assert [seconds for *_, seconds in plan(True, patience=3.0)] == [3 * seconds for *_, seconds in full]
    (only,) = plan(False, ["memory.py"])
    assert only[1] == ("--scale", "1", "--topics", "30")
    with pytest.raises(ValueError, match=r"memori\.py"):
        plan(False, ["memori.py"])


OUTPUT = """| model | first fit |
|---|---|
| `LDA` | 0.8 |
planned             12 MiB   1.02 × measured; bar within 25 %: met
ratio 2.50; bar 3: met
"""


def test_figures_are_read_from_output():
    assert read_figure(OUTPUT, TABLE_LINE) == ("| `LDA` | 0.8 |",)
    assert read_figure(OUTPUT, "^planned|^ratio")[1] == "ratio 2.50; bar 3: met"
    assert read_figure(OUTPUT, "nothing") == ()
    assert read_figure("a 1\n" * 50, "^a") == ("a 1",) * reproduce.MOST_LINES


def test_what_is_missing_is_named(tmp_path: Path):
    (tmp_path / "cora").mkdir()
    needs = ("data:cora", "data:ap", "package:json", "package:no_such_package")
    found = missing(needs, {"LVSEARCH_DATA": str(tmp_path)})
    assert found == ["the corpus ap in LVSEARCH_DATA", "the package no_such_package"]
    assert missing(("data:cora",), {}) == ["the corpus cora in LVSEARCH_DATA"]


def test_a_script_is_ended_with_all_it_started_and_its_output_kept(tmp_path: Path):
    child = f"import time; time.sleep(600); open({str(tmp_path / 'late')!r}, 'w')"
    code = (
        f"import subprocess, sys, time; print('begun', flush=True); "
        f"print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid, flush=True); time.sleep(600)"
    )
    status, output = run_script([sys.executable, "-S", "-c", code], 3.0, {})
    assert status is None
    assert output.startswith("begun")
    (pid,) = output.split()[1:]
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False).stdout
    assert state.strip()[:1] in ("", "Z")
    assert run_script([sys.executable, "-S", "-c", "print(1); raise SystemExit(3)"], 60.0, {}) == (3, "1\n")


def test_a_row_says_what_became_of_it(monkeypatch: pytest.MonkeyPatch):
    claim = Claim("Is it?", "it.py", (), (), "^answer", "12 | 3", "4")
    for told, words, figure in (
        ((0, "answer 5\n"), "done", ("answer 5",)),
        ((0, "something\n"), "no line matches", ()),
        ((2, "Traceback\nError: x\n"), "exit status 2", ("Traceback", "Error: x")),
        ((None, "answer 1\n"), "ended after 9 s", ("answer 1",)),
    ):
        monkeypatch.setattr(reproduce, "run_script", lambda *_, told=told: told)
        row = measure(claim, (), 9.0, ())
        assert words in row.state
        assert row.figure == figure
    assert "the package no_such_package" in measure(claim, (), 9.0, ("package:no_such_package",)).state


def test_the_page_has_every_row_and_the_machine():
    rows = [
        Row(CLAIMS[0], "import_time.py --runs 3", "done", ("| a | 1 |", "b 2"), 3.0),
        Row(CLAIMS[1], "first_call.py", "not run"),
    ]
    text = page(rows, reproduce.about_the_machine(), False)
    assert "1 of 2 rows were measured, on smaller problems" in text
    assert "a · 1<br>b 2" in text
    assert "`LDA` · 2.6 (0.8) · 1.4 (0.5) · 0.04 (0.02)" in text
    assert "    python import_time.py --runs 3" in text
    for word in ("jax ", "Python ", "cores", "commit"):
        assert word in text
    table = [line for line in text.splitlines() if line.startswith("| ") and "import jax" in line]
    assert [line.count("|") for line in table] == [7]
