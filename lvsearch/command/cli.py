"""The command line: `lvsearch demo | search | resume | report | scores | convert | evaluate`.

Nothing heavy is imported before the arguments are known to be good. A mistake of the user ends in one line on stderr
and exit status 2. Ctrl-C keeps everything done, writes the report and exits with 130.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lvsearch.command.arguments import FORMER_SCORES, Runs, parser
from lvsearch.command.sources import check_sources, read_corpus, read_seed_words, stop_words_of
from lvsearch.files.plain_text import one_line, print_any_text, visible
from lvsearch.interrupts import INTERRUPTED, listen_again, remember_interrupts, was_interrupted
from lvsearch.models.plain_arguments import checked_seed

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from lvsearch.data.corpus import Corpus
    from lvsearch.models import LDA
    from lvsearch.results.result import SearchResult
    from lvsearch.sizing.sizes import SizePrior
    from lvsearch.workers.worker_pool import WorkerPool

WRONG = 2
"""The exit status after a mistake of the user."""
REPORT = "report"
"""The name of the folder with the report, inside the folder of a search."""
DEMO_MAX_SIZE, SIMULATED_MAX_SIZE = 32, 16  # a budget in work: the answer is the same on a busy machine
DEMO_DOCUMENTS = 700
"""The number of docstrings that `lvsearch demo` draws."""
DEMO_TOPIC_CONCENTRATION = 1.0  # broad topics, about ten: at LDA's own 0.05 the evidence still rises at 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status: 0, 2 for a mistake of the user, 130 after Ctrl-C.

    arguments: the words after `lvsearch`, such as ["resume", "run/"]; None: those of this process
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = argparse.Namespace()  # empty until the arguments are parsed
    try:
        listen_again()
        print_any_text()
        options = parser(arguments, Runs(_demo, _search, _resume, _report, _scores, _convert)).parse_args(arguments)
    except SystemExit as error:  # argparse has printed what is wrong, or the help
        return int(error.code or 0)
    except KeyboardInterrupt:
        return _report_interrupt(options)
    if arguments[:1] == [FORMER_SCORES]:
        print(f"lvsearch: lvsearch {FORMER_SCORES} is now called lvsearch scores", file=sys.stderr)
    try:
        if "seed" in options:
            checked_seed(options.seed)
        if getattr(options, "workers", None) is not None and options.workers < 1:
            raise ValueError(f"got --workers {options.workers}, expected at least 1")
        if "cache" in options:  # set here for all commands, because reports call no function that would do it
            from lvsearch.inference.compiles import keep_programs, keep_programs_in

            if options.no_cache or options.cache:
                keep_programs_in(None if options.no_cache else options.cache)
            else:
                keep_programs()
        with remember_interrupts():
            status = options.run(options)
            return INTERRUPTED if was_interrupted() else status  # a Ctrl-C after the end of the search raised nothing
    except (ValueError, OSError, MemoryError) as error:
        print(f"lvsearch: error: {_one_line(error)}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return _report_interrupt(options)


def _report_interrupt(options: argparse.Namespace) -> int:
    """Print what an interrupted command has written so far, and return the exit status 130.

    options: the options of the command; empty if Ctrl-C came before they were parsed
    """
    print(f"lvsearch: interrupted; {_describe_kept(options)}", file=sys.stderr)
    return INTERRUPTED


def _demo(options: argparse.Namespace) -> int:
    """Run `lvsearch demo`: search example documents, write the report, print the answer. Return the exit status.

    The documents are docstrings of Python's packages, or with `--simulated` drawn with a known number of topics.
    """
    from lvsearch.files.storage import refuse_existing

    refuse_existing(options.out)
    from lvsearch.data import datasets
    from lvsearch.models import LDA
    from lvsearch.sizing.sizes import Poisson

    # 1. documents: simulated ones, whose number of topics is known, or docstrings
    truth = None
    if options.simulated:
        from lvsearch.command.simulated import planted

        drawn = planted(seed=options.seed)
        corpus, truth = drawn.corpus, drawn.n_topics
        print(f"{len(corpus):,} simulated documents with {truth} topics, which the search is not told.")
    else:
        print("Collecting docstrings of the standard library, NumPy and SciPy …", flush=True)
        corpus = datasets.docstrings(DEMO_DOCUMENTS, seed=options.seed)
        print(
            f"{len(corpus):,} documents, {corpus.n_terms:,} words, {corpus.n_tokens:,} tokens. Searching …", flush=True
        )
    # 2. search; simulated documents keep LDA's own priors, since they were drawn from them
    result = _search_corpus(
        corpus,
        options,
        LDA() if options.simulated else LDA(topic_concentration=DEMO_TOPIC_CONCENTRATION),
        Poisson(10),
        SIMULATED_MAX_SIZE if options.simulated else DEMO_MAX_SIZE,
    )
    status = _conclude(result, options.out / REPORT)
    if truth is not None and result.visits:
        from lvsearch.command.simulated import verdict

        print(f"\n{verdict(truth, result.estimated)}")
    return status


def _search(options: argparse.Namespace) -> int:
    """Run `lvsearch search`: search the documents given, write the report, print the answer. Return the exit status.

    Raises ValueError for options that do not go together.
    """
    from lvsearch.files.storage import refuse_existing

    check_sources(options)
    if not 0 <= options.held_out < 1:
        raise ValueError(
            f"got --held-out {options.held_out}, expected a fraction from 0 (none) to below 1, such as 0.1"
        )
    if options.evidence == "plug-in" and options.max_size is options.seconds is options.width is None:
        raise ValueError(
            "plug-in evidence grows with size almost without end: say when to stop with --max-size, --seconds or "
            "--width"
        )
    mesh = _mesh(options)
    if mesh is None:
        refuse_existing(options.out)
    else:
        from lvsearch.inference.several_processes import check_in_first_process

        check_in_first_process(mesh, partial(refuse_existing, options.out))
    _tell(options, f"reading {options.texts or options.corpus}")
    from lvsearch.models import LDA
    from lvsearch.sizing.sizes import parse

    prior = None if options.prior is None else parse(options.prior)
    model, seeds = LDA(options.concentration, options.topic_concentration), None
    if options.seed_words is not None:
        seeds = read_seed_words(options.seed_words, options.encoding)
    corpus = read_corpus(options)
    model = model if seeds is None else model.with_seeds(corpus, seeds, tokens=options.seed_tokens)
    result = _search_corpus(corpus, options, model, prior, options.max_size, mesh)
    return _conclude(result, options.out / REPORT, mesh, as_json=options.json)


def _resume(options: argparse.Namespace) -> int:
    """Run `lvsearch resume`: go on with a search from its folder, and report as before. Return the exit status."""
    _tell(options, f"reading {options.folder}")
    from lvsearch.api import resume

    mesh = _mesh(options)
    with _workers(options) as executor:
        result = resume(
            options.folder,
            seconds=options.seconds,
            width=options.width,
            report=False,
            progress=not options.quiet,
            executor=executor,
            mesh=mesh,
        )
    return _conclude(result, options.folder / REPORT, mesh, as_json=options.json)


def _report(options: argparse.Namespace) -> int:
    """Run `lvsearch report`: write the report of a search anew, print the answer, and return the exit status 0."""
    from lvsearch.api import load
    from lvsearch.files.storage import known_folder, new_folder

    # A search that is still running writes its own report in the end: an older one must not take its place.
    with known_folder(options.folder) if options.out is None else new_folder(options.out):
        result = load(options.folder)
        if options.slide is not None:
            result.save_slide(options.slide)
        if options.table is not None:
            result.save_table(options.table)
        _conclude(result, options.folder / REPORT if options.out is None else options.out, as_json=options.json)
    return 0


def _scores(options: argparse.Namespace) -> int:
    """Run `lvsearch scores`: score the fits of a search by other criteria, such as BIC, and write and print the scores.

    If documents are given in place of a folder, they are searched first. Returns the exit status.
    """
    documents = options.texts or options.corpus
    if (options.folder is None) == (documents is None) or (options.folder is None) != (options.out is not None):
        raise ValueError(
            "expected the folder of a search, or documents (--texts or --corpus) with --out for a new one: "
            "lvsearch scores run/, lvsearch scores --texts docs.txt --out run/"
        )
    for name in ("draws", "samples"):
        if getattr(options, name) < 0:
            raise ValueError(f"got --{name} {getattr(options, name)}, expected at least 0, which leaves the score out")
    if options.folder is None:  # documents were given: search them first
        status = _search(options)
        if status:
            return status
        print()
    from lvsearch.api import load
    from lvsearch.files.storage import known_folder
    from lvsearch.reports.report import write_other_scores

    folder = options.out if options.folder is None else options.folder
    found = load(folder).other_scores(
        draws=options.draws, samples=options.samples, seed=options.seed, progress=not options.quiet
    )
    with known_folder(folder):
        write_other_scores(found, folder / REPORT)
    print(f"{found}\n\n{found.table().round(3).to_string(index=False)}")
    where = visible(str(folder / REPORT))
    print(f"\nWritten: other_scores.csv, other_score_choices.csv and other_scores.png in {where}")
    return 0


def _convert(options: argparse.Namespace) -> int:
    """Run `lvsearch convert`: write documents as a corpus to a new folder, print its size and notes, and return 0."""
    _tell(options, f"reading {options.source}")
    from lvsearch.data.corpus import Corpus
    from lvsearch.reading.converting import convert

    folder = convert(
        options.source,
        options.out,
        text=options.text_column,
        id=options.id_column,
        label=options.label_column,
        vocabulary=options.vocabulary,
        encoding=options.encoding,
        documents=options.documents,
        first_id=options.first_id,
        layer=options.layer,
        stop_words=stop_words_of(options),
        minimum_document_frequency=options.minimum_document_frequency,
        maximum_document_fraction=options.maximum_document_fraction,
        token_pattern=options.token_pattern,
        ngram_range=options.ngram_range,
    )
    corpus = Corpus.open(folder)
    print(visible(f"{corpus.describe()}, in {folder}"))
    for note in corpus.notes:
        print(visible(f"  {note}"))
    return 0


def _tell(options: argparse.Namespace, what: str) -> None:
    """Print what the command does now on a terminal: imports and reading may take longer than a person waits unasked.

    Nothing is printed with --quiet or into a file, where there is no progress bar either.

    options: the command's options
    what: a few words, such as "reading docs.txt"
    """
    from lvsearch.progress import is_on_terminal

    if is_on_terminal() and not getattr(options, "quiet", False):
        print(visible(f"lvsearch: {what} …"), file=sys.stderr, flush=True)


def _search_corpus(
    corpus: "Corpus",
    options: argparse.Namespace,
    model: "LDA",
    prior: "SizePrior | None",
    max_size: int | None,
    mesh: "Mesh | None" = None,
) -> "SearchResult":
    """Hold out part of the documents, search the rest, and return the result.

    corpus: all documents
    options: the command's options; most are arguments of `lv.search`, which documents them
    model, prior, max_size, mesh: passed on to `lv.search`
    """
    from lvsearch.api import search

    train, test = _hold_documents_out(corpus, options.held_out, options.seed)
    with _workers(options) as executor:
        return search(
            model,
            train,
            prior=prior,
            evidence=options.evidence,
            per_token=options.per_token,
            max_size=max_size,
            seconds=options.seconds,
            width=options.width,
            starts=options.starts,
            exhaustive=options.exhaustive,
            seed=options.seed,
            held_out=test,
            robustness=options.robustness,
            keep=options.keep,
            out=options.out,
            report=False,  # `_conclude` writes the report with the held-out comparison
            progress=not options.quiet,
            executor=executor,
            mesh=mesh,
        )


def _mesh(options: argparse.Namespace) -> "Mesh | None":
    """Return a mesh of all devices of the processes that share this command; None where there is only one process."""
    if options.coordinator is None and (options.num_processes, options.process_id) == (None, None):
        return None
    if options.workers is not None:
        raise ValueError("got --workers and --coordinator, expected one of them: workers make whole fits")
    import jax

    from lvsearch.distributed import initialize

    initialize(options.coordinator, options.num_processes, options.process_id, timeout=options.process_timeout)
    return jax.make_mesh((jax.device_count(),), ("units",))


def _workers(options: argparse.Namespace) -> "AbstractContextManager[WorkerPool | None]":
    """Return a context manager that opens a pool of `--workers` processes, or yields None without that option."""
    if options.workers is None:
        return nullcontext()
    from lvsearch.workers.worker_pool import WorkerPool

    return WorkerPool(options.workers)


def _hold_documents_out(corpus: "Corpus", fraction: float, seed: int) -> "tuple[Corpus, Corpus | None]":
    """Return (documents to train on, documents held out), drawn at random.

    If the documents are too few to compare sizes on a part of them, return (all documents, None) and print why.

    corpus: all documents
    fraction: the part to hold out, from 0 to below 1; 0 holds none out
    seed: the seed of the random choice
    """
    from lvsearch.results.heldout import comparable

    if not fraction:
        return corpus, None
    train, test = corpus.split(fraction, seed=seed) if len(corpus) > 1 else (corpus, None)
    if test is not None and comparable(test):
        return train, test
    print(
        f"lvsearch: {fraction:g} of {len(corpus)} document(s) is too little to compare sizes on, so "
        "no documents are held out",
        file=sys.stderr,
    )
    return corpus, None


def _conclude(result: "SearchResult", folder: Path, mesh: "Mesh | None" = None, *, as_json: bool = False) -> int:
    """Write the report, print the answer and the topics, and return the exit status: 0, or 130 after an interrupt.

    result: the search
    folder: where the report is written
    mesh: the devices of several processes that share the search; then only one of them writes and prints
    as_json: print one JSON object instead of text
    """
    from lvsearch.inference.several_processes import is_writing_process, wait_for_all

    if is_writing_process(mesh):
        _write_and_print(result, folder, as_json)
    wait_for_all(mesh)
    return INTERRUPTED if result.state.stopped == "interrupted" else 0


def _write_and_print(result: "SearchResult", folder: Path, as_json: bool) -> None:
    """Write the report into `folder`, and print the answer and the topics.

    as_json: print one JSON object instead of text
    """
    from lvsearch.command.json_answer import json_answer
    from lvsearch.reports.page import NAME
    from lvsearch.reports.report import topics_table, write_report
    from lvsearch.results.card import summary
    from lvsearch.results.heldout import comparable, held_out_comparison

    interrupted = result.state.stopped == "interrupted"
    if interrupted and not result.visits:
        print(
            "lvsearch: interrupted before the first fit was done; nothing to report yet: begin it with lvsearch resume",
            file=sys.stderr,
        )
        return
    if interrupted:  # a user who stops a search should wait for the report only, not for the comparison
        print(
            "lvsearch: interrupted: writing the report of what was found; Ctrl-C again leaves it out", file=sys.stderr
        )
    test = None if interrupted else result.held_out  # earlier versions held out documents too few to compare on
    comparison = held_out_comparison(result, test) if test is not None and comparable(test) else None
    path = write_report(result, folder, held_out=comparison)
    if as_json:
        print(json_answer(result, Path(path).with_name(NAME)))
        return
    print(f"\n{summary(result, comparison)}")
    topics = topics_table(result.best_shown).map(lambda cell: visible(cell) if isinstance(cell, str) else cell)
    if not topics.empty:
        print(f"\n{topics.to_string(index=False, justify='left', formatters=_left_aligning_formatters(topics))}")
    page = Path(path).with_name(NAME).resolve().as_uri()
    print(f"\nReport: {page}\n(a summary in Markdown, pictures and tables beside it, in {visible(str(folder))})")


def _describe_kept(options: argparse.Namespace) -> str:
    """Return a phrase that says which folder an interrupted command has written, and how to go on from it."""
    from lvsearch.files.storage import MANIFEST

    folder = getattr(options, "folder", None) or getattr(options, "out", None)
    if folder is None or not (folder / MANIFEST).is_file():
        return "nothing was written"
    return visible(f"everything done until then is in {folder}: go on with lvsearch resume {folder}")


def _left_aligning_formatters(table) -> dict:
    """Return {column: function from a cell to its text} for `DataFrame.to_string`; texts are padded on the right.

    table: a data frame; only its columns "label" and "words" are padded
    """
    text = [name for name in table.columns if name in ("label", "words")]
    widths = {name: max(len(name), *table[name].astype(str).map(len)) for name in text}
    return {name: f"{{:<{widths[name]}}}".format for name in text}


def _one_line(error: BaseException) -> str:
    """Return the message of an error in one line, with control characters made visible."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return visible(f"{error.strerror}: {error.filename}")
    return visible(one_line(error))
