"""The argument parser of `lvsearch demo | search | resume | report | scores | convert | evaluate`.

Commands share the options that say how documents are read: columns, words of texts, layouts of counts.
"""

import argparse
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from lvsearch.command.argument_types import read_number, read_positive_number, read_two_numbers, read_whole_number

KEEP, SCORES_KEEP = 8, 64
"""The number of fits that `lvsearch search` keeps, and the number that `lvsearch scores` keeps.

The second command scores the fits by other criteria. It keeps more of them, so that none has to be made twice.
"""
DEMO_STARTS = 1
"""The most fits of a size that `lvsearch demo` makes, a budget in work: the answer is the same on a busy machine."""
FORMER_SCORES = "audit"
"""The former name of `lvsearch scores`; `result.audit()` is something else, a check of the evidence."""
COMPLETION = "--print-completion"
"""The option that prints a script for the completion of a shell."""
Run = Callable[[argparse.Namespace], int]
"""A function that runs a command with its options and returns the exit status."""


class Runs(NamedTuple):
    """The functions that run the commands, one field for each command (`evaluate` brings its own)."""

    demo: Run
    search: Run
    resume: Run
    report: Run
    scores: Run
    convert: Run


MAIN_EPILOG = """\
to begin with:
  lvsearch demo                    how many topics in the docstrings of Python, NumPy and SciPy (a minute or two)
  lvsearch demo --simulated        the same on simulated documents whose number of topics is known
  lvsearch search --texts docs.txt --out run/       your own documents, one per line
  lvsearch search --texts docs.csv --text-column body --out run/       or a column of a table
"""
SEARCH_EPILOG = """\
examples:
  lvsearch search --texts docs.txt --out run/
      one document per line; stops by itself when the sizes near the best are settled
  lvsearch search --texts docs.csv --text-column body --id-column title --out run/
      a table; the other columns stay beside the documents (Python: result.training.metadata)
  lvsearch search --corpus corpus.ldac --vocabulary vocab.txt --prior poisson:10 --max-size 40 --seed 0 --out run/
      word counts in LDA-C form: "N id:count id:count …" per line, ids from 0
  lvsearch search --texts docs.txt --prior negative-binomial:20,2 --seconds 600 --out run/
      a wide prior, ten minutes; go on later with: lvsearch resume run/
  lvsearch search --texts docs.txt --evidence plug-in --max-size 60 --out run/
      the bounds of Chiang & Poole, which need no assumption, at estimated parameters

what is written:
  run/           the search itself, after every step: lvsearch resume run/, or lv.load("run/") in Python
  run/report/    index.html, one page for a browser; summary.md, pictures, tables
"""
RESUME_EPILOG = """\
example:
  lvsearch resume run/ --seconds 300

The search goes on to the same result as if it had never stopped, and its report is written anew.
"""
REPORT_EPILOG = """\
examples:
  lvsearch report run/                  writes run/report/ anew
  lvsearch report run/ --out paper/     into a new folder
  lvsearch report run/ --slide slide.svg --table topics.xlsx
"""
SCORES_EPILOG = """\
examples:
  lvsearch scores run/
      what BIC, perplexity, coherence, ldatuning's indices and stability say of a search that was made
  lvsearch scores --texts docs.txt --max-size 12 --exhaustive --out run/
      makes the search first, as lvsearch search does, at every size up to 12

what is written:
  run/report/other_scores.csv, other_score_choices.csv, other_scores.png    beside the report of the search

Which of its components come back, what fewer documents say and how far the evidence itself is off are other questions:
persistence(), robustness() and audit() of a result in Python.
"""
CONVERT_EPILOG = """\
examples:
  lvsearch convert docs.parquet --text-column body --id-column title --out corpus/
      a table larger than memory, read twice a few rows at a time
  lvsearch convert docword.pubmed.txt.gz --vocabulary vocab.pubmed.txt --out corpus/
      word counts
  lvsearch search --corpus corpus/ --held-out 0 --evidence bound --max-size 50 --out run/
      what was converted is searched where it lies; what is held out of it is copied into memory, and so is the rest
"""
DEMO_EPILOG = """\
examples:
  lvsearch demo
  lvsearch demo --simulated --seed 3 --out planted/
"""


class OneLineParser(argparse.ArgumentParser):
    """A parser that says what is wrong with a command line in one line, without the list of all options before it."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where the options are explained, and exit with status 2."""
        self.exit(2, f"lvsearch: error: {message}; all options: {self.prog} --help\n")


class PrintCompletion(argparse.Action):
    """An option that prints a script with which a shell completes this command line, and ends the program."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Print the script for the shell `values` and exit with status 0; with status 2 if shtab is not installed."""
        try:
            import shtab  # pyright: ignore[reportMissingImports]
        except ImportError:
            parser.error(f"{COMPLETION} needs shtab: pip install 'lvsearch[completion]'")
        _complete_paths(parser, shtab.FILE)
        print(shtab.complete(parser, values))
        parser.exit()


def _complete_paths(parser: argparse.ArgumentParser, how: Any) -> None:
    """Mark every argument of a parser and of its commands that is a path, so that shells complete names of files.

    how: the mark, `shtab.FILE`
    """
    for action in parser._actions:
        if action.type is Path:
            action.complete = how  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command, how)


def parser(arguments: Sequence[str], runs: Runs) -> argparse.ArgumentParser:
    """Return the parser of all commands. Parsed options have the function that runs the chosen command as `run`.

    arguments: the command line; the options of `evaluate`, slow to import, are added only if it begins with that word
    runs: the functions that run the commands
    """
    top = OneLineParser(
        prog="lvsearch",
        description="How many topics do these documents have, and how sure can one be? A posterior over the number.",
        epilog=MAIN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"lvsearch {version('lvsearch')}")
    top.add_argument(
        COMPLETION,
        action=PrintCompletion,
        choices=("bash", "zsh", "fish"),
        help="print what completes commands and options in a shell, for a file of that shell (lvsearch[completion])",
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands, runs.demo)
    _add_search(commands, runs.search)
    _add_resume(commands, runs.resume)
    _add_report(commands, runs.report)
    _add_scores(commands, runs.scores, called=arguments[:1])
    _add_convert(commands, runs.convert)
    _add_evaluate(commands, wanted=bool(arguments) and arguments[0].startswith(("evaluate", COMPLETION)))
    return top


def _add_demo(commands: "argparse._SubParsersAction", run: Run) -> None:
    """Add the command `demo` with its options to the parser's commands; `run` is the function that runs it."""
    demo = _command(commands, "demo", "Show what lvsearch does, on text that every machine holds.", DEMO_EPILOG)
    demo.add_argument("--simulated", action="store_true", help="documents drawn with a known number of topics instead")
    _add_seed(demo)
    demo.add_argument("--out", type=Path, default=Path("lvsearch-demo"), help="a new folder (default: %(default)s)")
    _add_running(demo)
    demo.set_defaults(run=run, held_out=0.1, evidence="marginal", per_token=False, robustness=False, keep=KEEP)
    demo.set_defaults(seconds=None, width=None, starts=DEMO_STARTS, exhaustive=False)


def _add_search(commands: "argparse._SubParsersAction", run: Run) -> None:
    """Add the command `search` with its options to the parser's commands; `run` is the function that runs it."""
    search = _command(commands, "search", "How many topics do these documents have?", SEARCH_EPILOG)
    _add_documents(search.add_argument_group("documents (--texts or --corpus)"))
    model = _add_model(search)
    model.add_argument(
        "--evidence",
        choices=("marginal", "predictive", "bound", "plug-in"),
        default="marginal",
        help="marginal: parameters integrated out, annealed, answers how many; predictive: the smallest number that "
        "predicts documents left out as well as any, in two to three minutes on 100,000 words, without a prior; bound: "
        "a mean-field bound instead of the evidence, quick, but it does not answer how many; plug-in: at estimated "
        "parameters, with bounds proved for these fits, not for a size (default: %(default)s)",
    )
    model.add_argument(
        "--per-token",
        action="store_true",
        help="weigh evidence per token, to reproduce published figures; this is no probability of the data",
    )
    _add_stop(search)
    _add_seed(search)
    search.add_argument(
        "--robustness",
        action="store_true",
        help="then search parts of the documents too: no model is exactly true, and many documents show it",
    )
    search.add_argument("--out", type=Path, required=True, help="a new folder for the search and its report")
    _add_json(search)
    _add_running(search)
    _add_processes(search)
    search.set_defaults(run=run, keep=KEEP)


def _add_scores(commands: "argparse._SubParsersAction", run: Run, called: Sequence[str]) -> None:
    """Add the command `scores` with its options to the parser's commands.

    Its former name `audit` still works, and is in no help: the parser knows it only where the command line begins so.

    run: the function that runs it
    called: the first word of the command line, if there is one
    """
    text = "Score the same fits by other criteria for the number of topics, to compare with the posterior."
    former = [FORMER_SCORES] if FORMER_SCORES in called else []
    command = _command(commands, "scores", text, SCORES_EPILOG, former)
    command.add_argument(
        "folder", type=Path, nargs="?", help="the folder of a search; without it give documents and --out"
    )
    _add_documents(command.add_argument_group("documents (--texts or --corpus), to search first"), required=False)
    _add_model(command)
    _add_stop(command)
    _add_seed(command)
    slow = command.add_argument_group("scores that take long for many documents (0 leaves a score out)")
    slow.add_argument(
        "--draws",
        type=read_whole_number,
        default=20,
        metavar="N",
        help="draws of a Gibbs chain for Griffiths2004 (default: %(default)s)",
    )
    slow.add_argument(
        "--samples",
        type=read_whole_number,
        default=3,
        metavar="N",
        help="samples of the documents for stability (default: %(default)s)",
    )
    command.add_argument("--out", type=Path, help="a new folder for the search and its report")
    _add_running(command)
    command.set_defaults(run=run, evidence="marginal", per_token=False, robustness=False, keep=SCORES_KEEP)
    command.set_defaults(coordinator=None, num_processes=None, process_id=None, json=False)


def _add_model(command: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    """Add the options of the model and of the prior on its number of topics; return their group in the help."""
    model = command.add_argument_group("model and prior")
    model.add_argument(
        "--prior",
        help="prior on the number of topics: weak (each further topic 5 %% less probable), poisson:RATE, "
        "poisson-shifted:RATE, geometric:P, negative-binomial:MEAN,CONCENTRATION, uniform:LARGEST, table:P1,P2,… "
        "(default: weak); --evidence predictive has none",
    )
    model.add_argument(
        "--concentration",
        type=read_positive_number,
        default=5.0,
        help="total Dirichlet mass on a document's topics, spread evenly over them (default: %(default)s)",
    )
    model.add_argument(
        "--topic-concentration",
        type=read_positive_number,
        default=0.05,
        help="Dirichlet parameter of each word of a topic (default: %(default)s)",
    )
    model.add_argument(
        "--seed-words",
        type=Path,
        metavar="FILE",
        help="topics that come first and are about given words: a line for each, name: word word …; or a JSON object "
        "{name: [word, …]} (.json)",
    )
    model.add_argument(
        "--seed-tokens",
        type=read_whole_number,
        metavar="N",
        help="imaginary tokens by which each of these topics holds on to its words (default: a thousandth of the "
        "corpus' tokens, at most 100)",
    )
    return model


def _add_stop(command: argparse.ArgumentParser) -> None:
    """Add the options that say when a search stops."""
    stop = command.add_argument_group("when to stop (by default when the sizes near the best are settled)")
    stop.add_argument("--max-size", type=read_whole_number, metavar="N", help="the largest number of topics to try")
    _add_budget(stop)
    stop.add_argument("--exhaustive", action="store_true", help="visit every size up to --max-size")
    stop.add_argument(
        "--starts",
        type=read_whole_number,
        metavar="N",
        help="the most fits of each size near the best; plug-in: fits of every size (default: 3, or more for few data)",
    )


def _add_documents(data: "argparse._ArgumentGroup", required: bool = True) -> None:
    """Add the options that name the documents.

    data: the group of options to add them to
    required: True if --texts or --corpus must be given
    """
    source = data.add_mutually_exclusive_group(required=required)
    source.add_argument(
        "--texts",
        type=Path,
        metavar="FILE",
        help="a table (.csv, .tsv, .jsonl, .json, .xlsx, .dta, .sav, .parquet) with a text in every row; a folder or "
        ".zip of .txt files; any other file: one document per line; - for standard input; packed files are unpacked",
    )
    source.add_argument(
        "--corpus",
        type=Path,
        metavar="FILE",
        help="word counts: Matrix Market (.mtx, .mm), SciPy (.npz), SVMlight (.svmlight), UCI (docword…), AnnData "
        "(.h5ad), a folder of 10x Genomics, else LDA-C, ids from 0; or a folder that lvsearch convert wrote",
    )
    add_columns(data)
    add_cutting(data)
    add_counts(data)
    data.add_argument(
        "--format",
        choices=("lines", "csv", "tsv", "jsonl", "json"),
        help="the form of the texts, if the name of the file does not show it (standard input: lines)",
    )
    data.add_argument(
        "--vocabulary", type=Path, metavar="FILE", help="with --corpus: the words, one per line, id 0 first"
    )
    data.add_argument(
        "--held-out",
        type=read_number,
        default=0.1,
        metavar="FRACTION",
        help="keep this part of the documents out of the search and compare the sizes on it; 0 for none "
        "(default: %(default)s)",
    )


def _add_resume(commands: "argparse._SubParsersAction", run: Run) -> None:
    """Add the command `resume` with its options to the parser's commands; `run` is the function that runs it."""
    resume = _command(commands, "resume", "Go on with a search that was stopped, interrupted or killed.", RESUME_EPILOG)
    resume.add_argument("folder", type=Path, help="the folder of the search")
    _add_json(resume)
    _add_budget(resume)
    _add_running(resume)
    _add_processes(resume)
    resume.set_defaults(run=run)


def _add_report(commands: "argparse._SubParsersAction", run: Run) -> None:
    """Add the command `report` with its options to the parser's commands; `run` is the function that runs it."""
    report = _command(commands, "report", "Write the report of a search: pictures, tables, a summary.", REPORT_EPILOG)
    report.add_argument("folder", type=Path, help="the folder of the search")
    report.add_argument("--out", type=Path, help="a new folder (default: report/ in the folder of the search)")
    report.add_argument(
        "--slide",
        type=Path,
        metavar="FILE",
        help="write one slide too: answer, picture, topics (.png, .svg)",
    )
    report.add_argument("--table", type=Path, metavar="FILE", help="write the table of topics too (.csv, .xlsx)")
    _add_json(report)
    _add_cache(report)
    report.set_defaults(run=run)


def _add_convert(commands: "argparse._SubParsersAction", run: Run) -> None:
    """Add the command `convert` with its options to the parser's commands; `run` is the function that runs it."""
    text = "Convert documents to a folder that can be searched without reading it into memory."
    convert = _command(commands, "convert", text, CONVERT_EPILOG)
    convert.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="a table (.csv, .tsv, .jsonl, .json, .xlsx, .dta, .sav, .parquet, .feather, .arrow); .txt, a document per "
        "line; a folder of .txt files; word counts (.mtx, .mm, .npz, .ldac, .svmlight, docword…, .h5ad, a 10x folder)",
    )
    add_columns(convert)
    add_cutting(convert)
    add_counts(convert)
    convert.add_argument("--vocabulary", type=Path, metavar="FILE", help="for word counts: the words, one per line")
    convert.add_argument("--out", type=Path, required=True, help="a new folder for the corpus")
    convert.set_defaults(run=run)


def _add_evaluate(commands: "argparse._SubParsersAction", wanted: bool) -> None:
    """Add the command `evaluate` to the parser's commands.

    wanted: True if the command line calls it; otherwise its options, slow to import, are left out
    """
    text = "Score anyone's topics on held-out documents, with errors."
    command = commands.add_parser("evaluate", help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if wanted:  # the auditor is slow to import, and no other command needs it
        from lvsearch.command import evaluate

        evaluate.add_arguments(command)
        _add_cache(command)
        command.set_defaults(run=evaluate.run)


def _command(
    commands: "argparse._SubParsersAction", name: str, text: str, epilog: str, aliases: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Add a command to the parser's commands, and return the command's own parser.

    name: the word that calls the command
    text: its description in one sentence
    epilog: the examples at the end of its help
    aliases: other words that call it
    """
    return commands.add_parser(
        name,
        aliases=aliases,
        help=text,
        description=text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_seed(command: argparse.ArgumentParser) -> None:
    """Add the option --seed."""
    command.add_argument(
        "--seed", type=read_whole_number, default=0, help="every random number follows from it (default: %(default)s)"
    )


def _add_budget(command: argparse._ActionsContainer) -> None:
    """Add the options --seconds and --width, which end a search early."""
    command.add_argument("--seconds", type=read_number, metavar="S", help="stop after this many seconds")
    command.add_argument(
        "--width", type=read_number, metavar="NATS", help="stop when the proved bounds are this close, nats"
    )


def _add_running(command: argparse.ArgumentParser) -> None:
    """Add the options that every command with fits has: --quiet, --workers and the cache."""
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.add_argument(
        "--workers",
        type=read_whole_number,
        metavar="N",
        help="number of processes on this machine that make fits; the answer does not depend on it",
    )
    _add_cache(command)


def _add_json(command: argparse.ArgumentParser) -> None:
    """Add the option that prints the answer for programs."""
    command.add_argument(
        "--json", action="store_true", help="print the answer as one JSON object, for programs, and nothing else"
    )


def _add_processes(command: argparse.ArgumentParser) -> None:
    """Add the options for several processes that share each fit."""
    processes = command.add_argument_group(
        "several processes that share each fit (each runs this command and reads the data; process 0 writes)"
    )
    processes.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0 and a free port on it")
    processes.add_argument(
        "--num-processes",
        type=read_whole_number,
        metavar="N",
        help="how many processes (default: as mpiexec, Slurm or Kubernetes say)",
    )
    processes.add_argument(
        "--process-id",
        type=read_whole_number,
        metavar="I",
        help="number of this process, from 0 (default: as mpiexec, Slurm or Kubernetes say)",
    )
    processes.add_argument(
        "--process-timeout",
        type=read_whole_number,
        default=100,
        metavar="S",
        help="seconds without a sign of one process after which the others end (default: %(default)s)",
    )


def _add_cache(command: argparse.ArgumentParser) -> None:
    """Add the options that say where compiled programs are kept."""
    cache = command.add_argument_group("compiled programs (kept between runs, which saves much of a small run)")
    cache.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="where to keep them (default: the environment variable LVSEARCH_CACHE, else the user's cache folder)",
    )
    cache.add_argument("--no-cache", action="store_true", help="compile everything anew")


# ── how documents are read ────────────────────────────────────────────────────────────────────────────────────────────


def add_columns(data: argparse._ActionsContainer) -> None:
    """Add the options that say which columns of a table hold text, id and label, and in which encoding it is.

    data: a parser, or a group of its options
    """
    data.add_argument("--text-column", metavar="NAME", help="for a table: the column with the texts")
    data.add_argument("--id-column", metavar="NAME", help="for a table: the column that names the documents")
    data.add_argument("--label-column", metavar="NAME", help="for a table: a class to show beside topics, never fitted")
    data.add_argument(
        "--encoding", default="utf-8", help="encoding of texts and vocabulary, such as latin-1 (default: %(default)s)"
    )


def add_cutting(data: argparse._ActionsContainer) -> None:
    """Add the options that say how texts are cut into words, and which words are kept.

    data: a parser, or a group of its options
    """
    data.add_argument(
        "--stop-words",
        metavar="WORDS",
        help="english (the default for texts), another language such as german (lvsearch[stop-words]), a file with "
        "a word per line, or none",
    )
    data.add_argument(
        "--token-pattern",
        metavar="REGEX",
        help="for texts: every match is a word (default: letters, their marks and digits, joined by underscores; words "
        "with digits and, in alphabets, of fewer than three letters are left out)",
    )
    data.add_argument(
        "--ngram-range",
        type=read_two_numbers,
        metavar="FIRST,LAST",
        default=(1, 1),
        help="for texts: count runs of FIRST to LAST words; 1,2 for single words and pairs (default: 1,1)",
    )
    data.add_argument(
        "--minimum-document-frequency",
        type=read_whole_number,
        metavar="N",
        help="keep words in at least N documents (default: for 200 texts or more a hundredth of them, at most 5)",
    )
    data.add_argument(
        "--maximum-document-fraction",
        type=read_number,
        metavar="F",
        help="keep words in at most this part of the documents (default: 0.5 for 200 texts or more)",
    )


def add_counts(data: argparse._ActionsContainer) -> None:
    """Add the options that say how files of word counts are laid out.

    data: a parser, or a group of its options
    """
    data.add_argument(
        "--documents",
        choices=("rows", "columns"),
        default="rows",
        help="for a matrix (.mtx, .mm, .npz): whether documents are rows or columns (default: %(default)s)",
    )
    data.add_argument(
        "--first-id",
        type=read_whole_number,
        choices=(0, 1),
        help="for SVMlight: the id of the first word, if the file leaves it open",
    )
    data.add_argument("--layer", metavar="NAME", help="for .h5ad: the layer that holds counts (default: X)")
