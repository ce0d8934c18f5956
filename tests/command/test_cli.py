"""The command line, called in process on a tiny corpus: what it writes, what it refuses, how it ends."""

import contextlib
import inspect
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

import lvsearch as lv
from lvsearch import api
from lvsearch.command import cli
from lvsearch.command.simulated import planted
from lvsearch.command.sources import read_seed_words
from lvsearch.results import heldout
from lvsearch.searching.controller import SearchRules

ENDING = ["--no-cache", "--quiet"]


@pytest.fixture(scope="module", autouse=True)
def few_held_out_samples() -> Iterator[None]:
    """Score held-out documents with few samples, since no test here asks how precise the scores are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(heldout, "held_out_comparison", partial(heldout.held_out_comparison, samples=16))
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A corpus in LDA-C form with its vocabulary, and the same documents as texts."""
    folder = tmp_path_factory.mktemp("corpus")
    corpus = planted(3, n_documents=60, n_tokens=30, n_terms=40, seed=1).corpus
    names = ["".join(chr(ord("a") + int(digit)) for digit in word[4:]) + "word" for word in corpus.vocabulary]
    ldac, texts = [], []
    for row in range(len(corpus)):
        span = slice(corpus.counts.indptr[row], corpus.counts.indptr[row + 1])
        pairs = list(zip(corpus.counts.indices[span], corpus.counts.data[span], strict=True))
        ldac.append(f"{len(pairs)} " + " ".join(f"{word}:{count}" for word, count in pairs))
        texts.append(" ".join(" ".join([names[word]] * int(count)) for word, count in pairs))
    (folder / "corpus.ldac").write_text("\n".join(ldac) + "\n")
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    (folder / "docs.txt").write_text("\n".join(texts) + "\n")
    return folder


def search_arguments(files, out):
    return [
        "search",
        *("--corpus", str(files / "corpus.ldac"), "--vocabulary", str(files / "vocab.txt")),
        *("--prior", "poisson:3", "--max-size", "3", "--starts", "1", "--seed", "2", "--held-out", "0.3"),
        *("--evidence", "bound"),
        *("--out", str(out)),
        *ENDING,
    ]


@pytest.fixture(scope="module")
def searched(files, tmp_path_factory):
    """(The folder of one finished search, what the command printed of it with --json)."""
    out, printed = tmp_path_factory.mktemp("search") / "run", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main([*search_arguments(files, out), "--json"]) == 0
    return out, printed.getvalue()


@pytest.fixture(scope="module")
def run(searched):
    return searched[0]


def tree(folder):
    """Every file and its content."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ── completion ──────────────────────────────────────────────────────────────────────────────────────────────────────


def completed(script: str, words: list[str]) -> set[str]:
    """Return the completions that bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_lvsearch 2>/dev/null; echo ${{COMPREPLY[@]}}"
    run = [shutil.which("bash") or "bash", "--norc", "-c", f"{script}\n{ask}"]
    return set(subprocess.run(run, capture_output=True, text=True, check=False).stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_choices(capsys):
    pytest.importorskip("shtab")
    assert cli.main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, ["lvsearch", "re"]) == {"report", "resume"}
    assert completed(script, ["lvsearch", "report", "--sl"]) == {"--slide"}
    assert completed(script, ["lvsearch", "evaluate", "--met"]) == {"--method"}  # options that are slow to import
    assert completed(script, ["lvsearch", "search", "--evidence", "pre"]) == {"predictive"}


@pytest.mark.parametrize(("shell", "said"), [("zsh", "#compdef lvsearch"), ("fish", "complete -c lvsearch")])
def test_other_shells_have_scripts(capsys, shell, said):
    pytest.importorskip("shtab")
    assert cli.main(["--print-completion", shell]) == 0
    assert said in capsys.readouterr().out


def test_completion_without_its_library_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "needs shtab: pip install 'lvsearch[completion]'" in fails(capsys, "--print-completion", "bash")
    assert "invalid choice: 'ksh'" in fails(capsys, "--print-completion", "ksh")


# ── search, resume, report ──────────────────────────────────────────────────────────────────────────────────────────


def test_search_writes_the_search_the_held_out_documents_and_the_report(run):
    result = lv.load(run)
    assert result.state.stopped == "finished"
    assert result.settings.seed == 2
    assert len(result.training) == 42
    summary = (run / "report" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("# Still rising at 3 topics, the largest allowed")
    assert "18 documents" in summary  # held out, and compared
    held_out = pd.read_csv(run / "report" / "held_out.csv")
    assert set(held_out["size"]) == {size[0] for size in result.state.kept}


def test_search_is_the_one_of_python(run, files):
    corpus = lv.Corpus.from_ldac(files / "corpus.ldac", vocabulary=files / "vocab.txt")
    train, _ = corpus.split(0.3, seed=2)
    direct = lv.search(
        lv.models.LDA(),
        train,
        prior=lv.sizes.Poisson(3),
        max_size=3,
        starts=1,
        seed=2,
        evidence="bound",
        progress=False,
    )
    pd.testing.assert_frame_equal(lv.load(run).posterior(), direct.posterior())


def test_report_prints_answer_topics_and_where_it_is_and_leaves_the_search_alone(run, capsys, tmp_path):
    before, paper = tree(run), tmp_path / "paper"
    slide, table = tmp_path / "slide.svg", tmp_path / "topics.csv"
    also = ["--slide", str(slide), "--table", str(table)]
    assert cli.main(["report", str(run), "--out", str(paper), "--no-cache", *also]) == 0
    assert tree(run) == before
    assert slide.read_text(encoding="utf-8").startswith("<?xml")
    assert pd.read_csv(table).columns.tolist()[:3] == ["topic", "name", "share"]
    ours, theirs = (pd.read_csv(folder / "posterior.csv") for folder in (paper, run / "report"))
    pd.testing.assert_frame_equal(ours, theirs)
    printed = capsys.readouterr().out
    assert "Still rising at 3 topics, the largest allowed" in printed
    assert "held-out" in printed
    assert "share" in printed
    assert f"Report: {(paper / 'index.html').resolve().as_uri()}" in printed
    assert (paper / "index.html").is_file()


def test_the_command_asks_by_default_what_python_asks(files, tmp_path, monkeypatch):
    """Every argument of `lv.search` has the value that it has where a person writes lv.search(LDA(), corpus)."""

    class AskedError(ValueError):
        pass

    asked, documents = {}, []

    def record(model, data, **given):
        asked.update(given, model=model)
        documents.extend([data, given["held_out"]])
        raise AskedError

    monkeypatch.setattr(api, "search", record)
    arguments = ["search", "--texts", str(files / "docs.txt"), "--out", str(tmp_path / "run"), *ENDING]
    assert cli.main(arguments) == 2
    usual = {name: each.default for name, each in inspect.signature(lv.search).parameters.items()}
    of_command = {"model", "held_out", "out", "report", "progress"}
    assert "prior" in asked
    assert {name: value for name, value in asked.items() if name not in of_command} == {
        name: usual[name] for name in asked if name not in of_command
    }
    assert asked["model"].describe() == lv.models.LDA().describe()
    assert sum(map(len, documents)) == 60
    assert sum(corpus.n_tokens for corpus in documents) == 1800


@pytest.mark.parametrize(("quiet", "terminal"), [(False, True), (True, True), (False, False)])
def test_the_command_speaks_before_it_reads(quiet, terminal, tmp_path, monkeypatch, capsys):
    """Before anything slow is imported, on a terminal alone."""
    path, heard = tmp_path / "docs.txt", []
    path.write_text("apple pear\n", encoding="utf-8")

    def read(options):
        heard.append(capsys.readouterr().err)
        raise ValueError("enough")

    monkeypatch.setattr(cli, "read_corpus", read)
    monkeypatch.setattr(cli.sys.stderr, "isatty", lambda: terminal, raising=False)
    given = ["--no-cache", *(["--quiet"] if quiet else [])]
    assert cli.main(["search", "--texts", str(path), "--out", str(tmp_path / "run"), *given]) == 2
    assert heard == [f"lvsearch: reading {path} …\n" if terminal and not quiet else ""]


@pytest.mark.parametrize("command", ["search", pytest.param("report", marks=pytest.mark.slow)])
def test_json_is_one_object_with_the_documented_keys(command, searched, capsys, tmp_path):
    run, printed = searched
    copy = run
    if command == "report":
        copy = tmp_path / "run"
        shutil.copytree(run, copy)
        assert cli.main(["report", str(copy), "--no-cache", "--json"]) == 0
        printed = capsys.readouterr().out
    found, result = json.loads(printed), lv.load(run)
    page = Path(lv.__file__).parents[1] / "docs" / "how-to" / "topics-in-a-csv.md"
    documented = re.findall(r"^\| (`.*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(found) == {key for cell in documented for key in re.findall(r"`(\w+)`", cell)}
    assert found["size"] == result.best_size[0]
    assert [row["size"] for row in found["sizes"]] == result.posterior()["size"].tolist()
    assert found["sizes"][0]["probability"] == pytest.approx(result.posterior()["probability"].iloc[0])
    assert (found["is_finished"], found["why_unfinished"], found["evidence"], found["seed"]) == (True, None, "bound", 2)
    assert len(found["topics"]) == result.best_size[0]
    assert set(found["topics"][0]) == {"topic", "prevalence", "words"}
    assert Path(found["report"]).resolve() == (copy / "report" / "index.html").resolve()
    assert Path(found["report"]).is_file()


def test_ctrl_c_keeps_what_is_done_and_resume_finishes(run, files, tmp_path, monkeypatch, capsys):
    out, steps = tmp_path / "run", []
    real = SearchRules.step

    def step(*arguments):
        steps.append(arguments)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(SearchRules, "step", step)
        assert cli.main(search_arguments(files, out)) == cli.INTERRUPTED == 130
    assert lv.load(out).state.stopped == "interrupted"
    assert "interrupted" in (out / "report" / "summary.md").read_text(encoding="utf-8")
    assert len(lv.load(out).held_out) == 18
    assert cli.main(["resume", str(out), *ENDING]) == 0
    pd.testing.assert_frame_equal(lv.load(out).posterior(), lv.load(run).posterior())
    assert (out / "report" / "posterior.csv").read_text() == (run / "report" / "posterior.csv").read_text()
    assert "finished" in capsys.readouterr().out


@pytest.mark.slow  # what is read is compared in the test of what the command asks
def test_texts_are_read_line_by_line(files, tmp_path):
    arguments = ["search", "--texts", str(files / "docs.txt"), "--max-size", "1", "--held-out", "0", "--starts", "1"]
    assert cli.main([*arguments, "--evidence", "bound", "--out", str(tmp_path / "run"), *ENDING]) == 0
    result = lv.load(tmp_path / "run")
    assert len(result.training) == 60
    assert result.training.n_tokens == 1800
    assert result.held_out is None
    assert "not looked at" in (tmp_path / "run" / "report" / "summary.md").read_text(encoding="utf-8")


# ── demo ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # the other demo is in a shorter tier
def test_demo_with_planted_topics_gives_a_verdict(tmp_path, monkeypatch, capsys):
    small = planted(3, n_documents=24, n_tokens=12, n_terms=20, seed=1)
    monkeypatch.setattr("lvsearch.command.simulated.planted", lambda seed: small)
    monkeypatch.setattr(cli, "SIMULATED_MAX_SIZE", 3)
    assert cli.main(["demo", "--simulated", "--out", str(tmp_path / "demo"), *ENDING]) == 0
    printed = capsys.readouterr().out
    assert "24 simulated documents with 3 topics" in printed
    assert "Planted 3 topics: " in printed
    assert (tmp_path / "demo" / "report" / "summary.md").is_file()


@pytest.mark.slow
def test_demo_shows_labels_beside_topics(tmp_path, monkeypatch, capsys):
    drawn = planted(3, n_documents=24, n_tokens=12, n_terms=20, seed=1).corpus
    corpus = lv.Corpus.from_matrix(drawn.counts, drawn.vocabulary, document_labels=["numpy.linalg"] * 24)
    monkeypatch.setattr("lvsearch.data.datasets.docstrings", lambda size, seed: corpus)
    monkeypatch.setattr(cli, "DEMO_MAX_SIZE", 3)
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), *ENDING]) == 0
    printed = capsys.readouterr().out
    assert "label" in printed
    assert "numpy.linalg" in printed


# ── mistakes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fails(capsys, *arguments) -> str:
    """The one line on stderr of a command that ends with status 2."""
    assert cli.main([*arguments, "--no-cache"]) == cli.WRONG == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("lvsearch: error: ")
    return error


@pytest.mark.parametrize("command", ["search", "demo", "report"])
def test_a_folder_that_holds_something_is_left_alone(command, run, files, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    first = {
        "search": search_arguments(files, tmp_path)[:-2],
        "demo": ["demo", "--out", str(tmp_path)],
        "report": ["report", str(run), "--out", str(tmp_path)],
    }[command]
    assert "exists and is not empty" in fails(capsys, *first)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_mistakes_end_in_one_line_before_anything_is_written(files, tmp_path, capsys):
    texts, out = ["--texts", str(files / "docs.txt")], ["--out", str(tmp_path / "run")]
    for wrong, said in (
        (["--prior", "poison:10"], "expected one of weak, poisson:RATE"),
        (["--held-out", "1.5"], "expected a fraction"),
        (["--vocabulary", str(files / "vocab.txt")], "without --corpus"),
        (["--evidence", "plug-in"], "say when to stop"),
        (["--concentration", "0"], "argument --concentration: got '0', expected a finite number above 0"),
        (
            ["--topic-concentration", "nan"],
            "argument --topic-concentration: got 'nan', expected a finite number above 0",
        ),
        (["--stop-words", "missing.txt"], "there is no such file"),
        (["--prior", "poisson:5", "--evidence", "predictive"], 'got a prior with evidence="predictive"'),
        (["--starts", "0"], "starts=0"),
    ):
        assert said in fails(capsys, "search", *texts, *wrong, *out)
        assert not (tmp_path / "run").exists()
    taken = tmp_path / "taken.txt"
    taken.write_text("mine")
    assert "is a file and is left alone" in fails(capsys, "search", *texts, "--out", str(taken))
    assert f"{taken} is a file, so that there can be no" in fails(capsys, "search", *texts, "--out", str(taken / "run"))
    assert taken.read_text() == "mine"
    assert "no file" in fails(capsys, "search", "--texts", str(tmp_path / "none.txt"), *out)
    (tmp_path / "nothing.txt").touch()
    assert "nothing.txt, an empty file" in fails(capsys, "search", "--texts", str(tmp_path / "nothing.txt"), *out)
    assert "no folder" in fails(capsys, "resume", str(tmp_path / "none"))
    assert "no folder" in fails(capsys, "report", str(tmp_path / "none"))


def test_a_damaged_search_is_refused(run, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    manifest = copy / "manifest.json"
    manifest.write_text(manifest.read_text()[:-40])
    assert "damaged or foreign" in fails(capsys, "report", str(copy))


def test_a_damaged_corpus_is_named(files, tmp_path, capsys):
    (tmp_path / "bad.ldac").write_text("1 0:1\n2 0:1\n")
    assert "line" in fails(capsys, "search", "--corpus", str(tmp_path / "bad.ldac"), "--out", str(tmp_path / "run"))


# ── help and cache ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.smoke
@pytest.mark.parametrize("command", [[], ["demo"], ["search"], ["resume"], ["report"], ["scores"], ["evaluate"]])
def test_help_teaches(command, capsys):
    assert cli.main([*command, "--help"]) == 0
    printed = capsys.readouterr().out
    if command == []:
        for name in ("demo", "search", "resume", "report", "scores", "evaluate"):
            assert f"    {name} " in printed
    elif command != ["evaluate"]:
        assert f"  lvsearch {command[0]}" in printed
    if command == ["search"]:
        assert "(default: weak)" in " ".join(printed.split())


def test_words_where_numbers_are_expected_end_in_one_line(capsys):
    """Twenty lines of options came first, and of --ngram-range it said "invalid _two_numbers value"."""
    for command, wrong, said in (
        ("search", ["--seconds", "ten"], "--seconds: got 'ten', expected a number, such as 60 or 0.5"),
        ("search", ["--max-size", "2.5"], "--max-size: got '2.5', expected a whole number, such as 3"),
        ("search", ["--ngram-range", "2-3"], "--ngram-range: got '2-3', expected two whole numbers, such as 1,2"),
        ("evaluate", ["--samples", "few"], "--samples: got 'few', expected a whole number, such as 3"),
    ):
        error = fails(capsys, command, *wrong)
        assert said in error
        assert f"all options: lvsearch {command} --help" in error


@pytest.mark.smoke
def test_wrong_usage_ends_with_status_2(capsys):
    assert cli.main(["search"]) == 2
    assert "required" in capsys.readouterr().err
    assert cli.main([]) == 2


def test_version_is_that_of_the_library(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"lvsearch {lv.__version__}\n"


def test_seed_words_are_read_from_files(tmp_path):
    lines = tmp_path / "seeds.txt"
    lines.write_text("sport: ball match\n\nmoney:bank  loan\n")
    expected = {"sport": ["ball", "match"], "money": ["bank", "loan"]}
    assert read_seed_words(lines, "utf-8") == expected
    stored = tmp_path / "seeds.json"
    stored.write_text(json.dumps(expected))
    assert read_seed_words(stored, "utf-8") == expected
    for text, message in (
        ("ball match", "expected name: word word"),
        ("", "expected one name for each"),
        ("a: b\na: c", "expected one name for each"),
    ):
        lines.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_seed_words(lines, "utf-8")
    for text, message in (('["a"]', "other JSON"), ('{"a": "b"}', "other JSON"), ("{", "is not JSON")):
        stored.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_seed_words(stored, "utf-8")
