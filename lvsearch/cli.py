"""The command line: `lvsearch demo | search | resume | report | evaluate`.

Nothing heavy is imported before the arguments are known to be good. Mistakes of the user end in one line on stderr and
exit status 2; Ctrl-C keeps everything done, writes the report and exits with 130.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lvsearch.corpus import Corpus
    from lvsearch.result import SearchResult

WRONG, INTERRUPTED = 2, 130
REPORT, HELD_OUT = "report", "held-out"

MAIN_EPILOG = """\
to begin with:
  lvsearch demo                    how many topics in the docstrings of Python, NumPy and SciPy (about a minute)
  lvsearch demo --simulated        the same on simulated documents whose number of topics is known
  lvsearch search --texts docs.txt --out run/       your own documents, one per line
"""
SEARCH_EPILOG = """\
examples:
  lvsearch search --texts docs.txt --out run/
      one document per line; stops by itself when the sizes near the best are settled
  lvsearch search --corpus corpus.ldac --vocabulary vocab.txt --prior poisson:10 --max-size 40 --seed 0 --out run/
      word counts in LDA-C form: "N id:count id:count …" per line, ids from 0
  lvsearch search --texts docs.txt --prior negative-binomial:20,2 --seconds 600 --out run/
      a wide prior, ten minutes; go on later with: lvsearch resume run/
  lvsearch search --texts docs.txt --evidence plug-in --max-size 60 --out run/
      the bounds of Chiang & Poole, which need no assumption, at estimated parameters

what is written:
  run/           the search itself, after every step: lvsearch resume run/, or lv.load("run/") in Python
  run/report/    summary.md, pictures, tables
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
"""
DEMO_EPILOG = """\
examples:
  lvsearch demo
  lvsearch demo --simulated --seed 3 --out planted/
"""
DEMO_SECONDS, DEMO_MAX_SIZE, SIMULATED_MAX_SIZE = 26.0, 32, 16
DEMO_TOPIC_CONCENTRATION = 0.5  # broad topics, one or two dozen: at LDA's own 0.05 the evidence still rises at 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments (default: those of the process). Returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = parser(arguments).parse_args(arguments)
    except SystemExit as error:  # argparse has printed what is wrong, or the help
        return int(error.code or 0)
    try:
        if "cache" in options and not options.no_cache:
            use_cache(options.cache)
        return options.run(options)
    except (ValueError, OSError) as error:
        print(f"lvsearch: error: {_one_line(error)}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("lvsearch: interrupted", file=sys.stderr)
        return INTERRUPTED


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands; `arguments` say which command's options are needed."""
    top = argparse.ArgumentParser(
        prog="lvsearch",
        description="How many topics do these documents have, and how sure can one be? A posterior over the number.",
        epilog=MAIN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_search(commands)
    _add_resume(commands)
    _add_report(commands)
    _add_evaluate(commands, wanted="evaluate" in arguments[:1])
    return top


# ── what can be asked for ───────────────────────────────────────────────────────────────────────────────────────────


def _add_demo(commands: "argparse._SubParsersAction") -> None:
    demo = _command(commands, "demo", "Show what lvsearch does, on text that every machine holds.", DEMO_EPILOG)
    demo.add_argument("--simulated", action="store_true", help="documents drawn with a known number of topics instead")
    _add_seed(demo)
    demo.add_argument("--out", type=Path, default=Path("lvsearch-demo"), help="a new folder (default: %(default)s)")
    _add_running(demo)
    demo.set_defaults(run=_demo)


def _add_search(commands: "argparse._SubParsersAction") -> None:
    search = _command(commands, "search", "How many topics do these documents have?", SEARCH_EPILOG)
    data = search.add_argument_group("documents (one of the two)")
    source = data.add_mutually_exclusive_group(required=True)
    source.add_argument("--texts", type=Path, metavar="FILE", help="plain text, one document per line (UTF-8)")
    source.add_argument("--corpus", type=Path, metavar="FILE.ldac", help="word counts in LDA-C form, ids from 0")
    data.add_argument(
        "--vocabulary", type=Path, metavar="FILE", help="with --corpus: the words, one per line, id 0 first"
    )
    data.add_argument(
        "--held-out",
        type=float,
        default=0.1,
        metavar="FRACTION",
        help="keep this part of the documents out of the search and compare the sizes on it; 0 for none "
        "(default: %(default)s)",
    )
    model = search.add_argument_group("model and prior")
    model.add_argument(
        "--prior",
        default="poisson:10",
        help="on the number of topics: poisson:RATE, poisson-shifted:RATE, geometric:P, "
        "negative-binomial:MEAN,CONCENTRATION, table:P1,P2,… (default: %(default)s)",
    )
    model.add_argument(
        "--concentration",
        type=float,
        default=5.0,
        help="total Dirichlet mass on a document's topics, spread evenly over them (default: %(default)s)",
    )
    model.add_argument(
        "--topic-concentration",
        type=float,
        default=0.05,
        help="Dirichlet parameter of each word of a topic (default: %(default)s)",
    )
    model.add_argument(
        "--evidence",
        choices=("marginal", "plug-in"),
        default="marginal",
        help="marginal: parameters integrated out, answers how many; plug-in: at estimated parameters, with bounds "
        "that need no assumption (default: %(default)s)",
    )
    model.add_argument(
        "--per-token",
        action="store_true",
        help="weigh evidence per token, to reproduce published figures: not a probability of the data",
    )
    stop = search.add_argument_group("when to stop (by default when the sizes near the best are settled)")
    stop.add_argument("--max-size", type=int, metavar="N", help="the largest number of topics to try")
    _add_budget(stop)
    stop.add_argument("--exhaustive", action="store_true", help="visit every size up to --max-size")
    stop.add_argument("--starts", type=int, metavar="N", help="fits of each size near the best (default: 3; plug-in 1)")
    _add_seed(search)
    search.add_argument("--out", type=Path, required=True, help="a new folder for the search and its report")
    _add_running(search)
    search.set_defaults(run=_search)


def _add_resume(commands: "argparse._SubParsersAction") -> None:
    resume = _command(commands, "resume", "Go on with a search that was stopped, interrupted or killed.", RESUME_EPILOG)
    resume.add_argument("folder", type=Path, help="the folder of the search")
    _add_budget(resume)
    _add_running(resume)
    resume.set_defaults(run=_resume)


def _add_report(commands: "argparse._SubParsersAction") -> None:
    report = _command(commands, "report", "Write the report of a search: pictures, tables, a summary.", REPORT_EPILOG)
    report.add_argument("folder", type=Path, help="the folder of the search")
    report.add_argument("--out", type=Path, help="a new folder (default: report/ in the folder of the search)")
    _add_cache(report)
    report.set_defaults(run=_report)


def _add_evaluate(commands: "argparse._SubParsersAction", wanted: bool) -> None:
    text = "Score anyone's topics on held-out documents, with errors."
    command = commands.add_parser("evaluate", help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if wanted:  # the auditor is slow to import, and no other command needs it
        from lvsearch import evaluate

        evaluate.add_arguments(command)
        _add_cache(command)
        command.set_defaults(run=evaluate.run)


def _command(commands: "argparse._SubParsersAction", name: str, text: str, epilog: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=text, description=text, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _add_seed(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--seed", type=int, default=0, help="every random number follows from it (default: %(default)s)"
    )


def _add_budget(command: argparse._ActionsContainer) -> None:
    command.add_argument("--seconds", type=float, metavar="S", help="stop after so many seconds")
    command.add_argument("--width", type=float, metavar="NATS", help="stop when the certified bounds are so close")


def _add_running(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_cache(command)


def _add_cache(command: argparse.ArgumentParser) -> None:
    cache = command.add_argument_group("compiled programs (kept between runs, which saves much of a small run)")
    cache.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="where to keep them (default: the environment variable LVSEARCH_CACHE, else the user's cache folder)",
    )
    cache.add_argument("--no-cache", action="store_true", help="compile everything anew")


# ── what is done ────────────────────────────────────────────────────────────────────────────────────────────────────


def _demo(options: argparse.Namespace) -> int:
    from lvsearch.storage import refuse_existing

    refuse_existing(options.out)
    import lvsearch as lv

    truth = None
    if options.simulated:
        from lvsearch.simulated import planted

        drawn = planted(seed=options.seed)
        corpus, truth = drawn.corpus, drawn.n_topics
        print(f"{len(corpus):,} simulated documents with {truth} topics, which the search is not told.")
    else:
        print("Collecting docstrings of the standard library, NumPy and SciPy …", flush=True)
        corpus = lv.datasets.docstrings(seed=options.seed)
        print(
            f"{len(corpus):,} documents, {corpus.n_terms:,} words, {corpus.n_tokens:,} tokens. Searching …", flush=True
        )
    result, test = _searched(
        corpus,
        options,
        held_out=0.1,
        model=lv.models.LDA() if options.simulated else lv.models.LDA(topic_concentration=DEMO_TOPIC_CONCENTRATION),
        prior=lv.sizes.Poisson(10),
        max_size=SIMULATED_MAX_SIZE if options.simulated else DEMO_MAX_SIZE,
        seconds=DEMO_SECONDS,
    )
    status = _conclude(result, options.out / REPORT, test)
    if truth is not None and result.visits:
        from lvsearch.simulated import verdict

        print(f"\n{verdict(truth, result.estimated)}")
    return status


def _search(options: argparse.Namespace) -> int:
    from lvsearch.storage import refuse_existing

    if options.vocabulary is not None and options.corpus is None:
        raise ValueError("got --vocabulary without --corpus: texts bring their own words")
    if not 0 <= options.held_out < 1:
        raise ValueError(
            f"got --held-out {options.held_out}, expected a fraction from 0 (none) to below 1, such as 0.1"
        )
    if options.evidence == "plug-in" and options.max_size is options.seconds is options.width is None:
        raise ValueError(
            "plug-in evidence grows with size almost without end: say when to stop with --max-size, --seconds or "
            "--width"
        )
    for path in (options.texts, options.corpus, options.vocabulary):
        if path is not None and not path.is_file():
            raise FileNotFoundError(f"no file {path}")
    refuse_existing(options.out)
    import lvsearch as lv

    prior = lv.sizes.parse(options.prior)
    result, test = _searched(
        _corpus(options),
        options,
        held_out=options.held_out,
        model=lv.models.LDA(options.concentration, options.topic_concentration),
        prior=prior,
        evidence=options.evidence,
        per_token=options.per_token,
        max_size=options.max_size,
        seconds=options.seconds,
        width=options.width,
        starts=options.starts,
        exhaustive=options.exhaustive,
    )
    return _conclude(result, options.out / REPORT, test)


def _resume(options: argparse.Namespace) -> int:
    import lvsearch as lv
    from lvsearch.heldout import load_held_out

    result = lv.resume(options.folder, seconds=options.seconds, width=options.width, progress=not options.quiet)
    return _conclude(result, options.folder / REPORT, load_held_out(result, options.folder / HELD_OUT))


def _report(options: argparse.Namespace) -> int:
    import lvsearch as lv
    from lvsearch.heldout import load_held_out
    from lvsearch.storage import refuse_existing

    if options.out is not None:
        refuse_existing(options.out)
    result = lv.load(options.folder)
    test = load_held_out(result, options.folder / HELD_OUT)
    _conclude(result, options.folder / REPORT if options.out is None else options.out, test)
    return 0


def _corpus(options: argparse.Namespace) -> "Corpus":
    import lvsearch as lv

    if options.corpus is not None:
        return lv.Corpus.from_ldac(options.corpus, vocabulary=options.vocabulary)
    return lv.Corpus.from_texts(options.texts.read_text(encoding="utf-8").splitlines())


def _searched(
    corpus: "Corpus",
    options: argparse.Namespace,
    *,
    held_out: float,
    model,
    prior,
    max_size: int | None,
    seconds: float | None,
    width: float | None = None,
    evidence: str = "marginal",
    per_token: bool = False,
    starts: int | None = None,
    exhaustive: bool = False,
) -> "tuple[SearchResult, Corpus | None]":
    """Search, with part of the documents held out and kept beside the search before it begins in earnest."""
    import lvsearch as lv
    from lvsearch.heldout import save_held_out

    train, test = corpus.split(held_out, seed=options.seed) if held_out else (corpus, None)
    result = lv.search(
        model,
        train,
        prior=prior,
        evidence=evidence,
        per_token=per_token,
        max_size=max_size,
        # With documents held out: one step only, which makes the folder; then these are put there, so that a search
        # killed at any later moment still has them.
        seconds=seconds if test is None else 0,
        width=width,
        starts=starts,
        exhaustive=exhaustive,
        seed=options.seed,
        out=options.out,
        progress=test is None and not options.quiet,
    )
    if test is not None:
        save_held_out(test, options.out / HELD_OUT)
        if result.state.stopped != "interrupted":
            result = lv.resume(options.out, seconds=seconds, width=width, progress=not options.quiet)
    return result, test


def _conclude(result: "SearchResult", folder: Path, test: "Corpus | None") -> int:
    """Write the report, print the answer and the topics. Returns the exit status."""
    from lvsearch.card import summary
    from lvsearch.heldout import held_out_comparison
    from lvsearch.report import topics_table, write_report

    interrupted = result.state.stopped == "interrupted"
    if interrupted and not result.visits:
        print("lvsearch: interrupted before the first fit was done; nothing to report yet", file=sys.stderr)
        return INTERRUPTED
    comparison = None if test is None else held_out_comparison(result, test)
    path = write_report(result, folder, held_out=comparison)
    print(f"\n{summary(result, comparison)}")
    topics = topics_table(result.best)
    if not topics.empty:
        print(f"\n{topics.to_string(index=False, justify='left', formatters=_left_aligned(topics))}")
    print(f"\nReport: {path}")
    return INTERRUPTED if interrupted else 0


def _left_aligned(table) -> dict:
    """Formatters that keep text columns flush left."""
    text = [name for name in table.columns if name in ("label", "words")]
    widths = {name: max(len(name), *table[name].astype(str).map(len)) for name in text}
    return {name: f"{{:<{widths[name]}}}".format for name in text}


def use_cache(folder: Path | None) -> None:
    """Keep compiled programs in `folder`: by default LVSEARCH_CACHE, else lvsearch/ in the user's cache folder."""
    import jax

    if folder is None:
        user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(os.environ.get("LVSEARCH_CACHE") or Path(user) / "lvsearch")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    return " ".join(str(error).split())
