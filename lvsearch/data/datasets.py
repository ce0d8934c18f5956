"""Corpora to begin with: docstrings of installed libraries, and the corpora in the folder that LVSEARCH_DATA names."""

import ast
import hashlib
import importlib.util
import inspect
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from lvsearch.data.corpus import Corpus
from lvsearch.models.plain_arguments import whole_number
from lvsearch.reading.vocabulary import read_lines
from lvsearch.texts.analyzer import english_stop_words

# -- docstrings -------------------------------------------------------------------------------------------------

_OWN_STOP_WORDS = """
able according actual added additional allow allowed allows api applied applies apply appropriate aren arg args
argument arguments array arrays assume assumed attributes automatically available based behavior behaviour best
better bool boolean callable called calling calls case cases certain changed class classes cls code common commonly
compute computed computes computing considered contain contained containing contains corresponding create created
creates creating creation current currently default defaults define defined defines definition depending depends
deprecated description desired details determine determined determines dict dictionary did different directly
documentation does doesn doing don dtype dtypes easily element elements equal equivalent error errors example
examples exist existing exists false float floats following follows function functions future general gets given
gives good ignored implement implementation implementations implemented implements include included includes
including indicate indicates indicating inf information input inputs instance instances instead int integer integers
interface isn item items iterable just keyword keywords kind kwargs length let like list lists long main make makes
making means method methods module modules multiple named names nan ndarray necessary need needed needs new non
note notes number numbers numpy object objects optional order original output outputs parameter parameters
particular pass passed passes passing perform performed performs place possible possibly present provide provided
provides providing python raise raised raises references removed represent representing represents require required
requires result resulting results return returned returning returns scalar scalars scipy second self sequence set
sets setting settings shall shape shaped shapes short similar simple simply single size sizes specific specified
specifies specify specifying standard str string strings supplied support supported supports taken takes treated
true tuple tuples type typeerror types typically unless use used useful user users uses using usually value
valueerror values various version versions want way ways won work working works yields
"""
DOCSTRING_STOP_WORDS = frozenset(_OWN_STOP_WORDS.split())
"""Words about code or about docstrings, rather than about the subject of the code."""

_MINIMUM_WORDS = 50

_NOT_SOURCE = {
    *("test", "tests", "testing", "idle_test", "conftest.py"),
    *("idlelib", "lib2to3", "turtledemo"),  # demonstrations and tools that some distributions leave out
    *("site-packages", "dist-packages", "__pycache__"),
}


def docstrings(size: int = 2000, seed: int = 0) -> Corpus:
    """Return docstrings of the standard library, NumPy and SciPy as a corpus: real text that needs no download.

    Source files are parsed (`ast`), and nothing is imported. Each distinct text of at least 50 words after cleaning is
    a document, tests left out. Cleaning keeps the prose. It cuts out doctests, code blocks, formulas, reST markup,
    parameter names and types, identifiers, and the sections Examples, References and See Also. A document's label is
    its package (`numpy.linalg`, `asyncio`), its name the dotted name of the object. It takes some ten seconds.

    On top of the defaults of `Corpus.from_texts`, `DOCSTRING_STOP_WORDS` are removed: section titles ("parameters",
    "returns"), types ("int", "array", "none") and the filler of technical prose ("used", "given", "default").

    The notes hold the versions of Python, NumPy and SciPy, and a hash of the content. Other versions give another
    corpus.

    Args:
        size: the number of documents; fewer if there are not so many. The sample keeps the proportions of the packages.
        seed: seed of the random sample.

    Raises:
        ValueError: the size is below 1, or there are no source files (an installation of byte code only).
    """
    size = whole_number("size", size, least=1)
    found = _distinct_docstrings(_source_roots())
    if not found:
        raise ValueError("got no docstring of 50 words in the standard library; expected its source files (*.py)")
    chosen = _sample_by_label(found, size, seed)
    corpus = Corpus.from_texts(
        [text for _, _, text in chosen],
        stop_words=english_stop_words() | DOCSTRING_STOP_WORDS,
        document_names=[name for _, name, _ in chosen],
        document_labels=[label for label, _, _ in chosen],
    )
    packages = len({label for label, _, _ in found})
    about = (
        f"{len(chosen):,} of {len(found):,} docstrings of {packages} packages (seed {seed}): {_versions()}",
        f"texts: sha256 {hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]}",
    )
    return replace(corpus, notes=about + corpus.notes)


def _source_roots() -> dict[str, Path]:
    """Return the folders whose source files are read, as {prefix of their modules' names: folder}.

    Packages are found without being imported.
    """
    roots = {"": Path(sysconfig.get_paths()["stdlib"])}
    for package in ("numpy", "scipy"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            roots[package] = Path(next(iter(spec.submodule_search_locations)))
    return roots


def _distinct_docstrings(roots: Mapping[str, Path]) -> list[tuple[str, str, str]]:
    """Return (label, dotted name, prose) of every docstring of at least 50 words; of equal texts only the first.

    roots: {prefix of the modules' names: folder}. The label is the package.
    """
    seen: set[str] = set()
    found: list[tuple[str, str, str]] = []
    for prefix, root in roots.items():
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if any(part in _NOT_SOURCE or part.startswith("test_") for part in (*parts, path.name)):
                continue
            module = [part for part in (prefix, *parts) if part not in ("", "__init__")]
            # numpy/linalg/… is labelled numpy.linalg; numpy/version.py, which is no package, numpy.
            label = ".".join(module[: 2 if prefix and len(parts) > 1 else 1]) or prefix
            for name, docstring in _docstrings_of(path):
                text = prose(docstring)
                if len(text.split()) >= _MINIMUM_WORDS and text not in seen:
                    seen.add(text)
                    found.append((label, ".".join([*module, *name]), text))
    return found


def _docstrings_of(path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (names inside the module, docstring) of the module, classes and functions of a source file, breadth first.

    Docstrings of fewer than 200 characters are skipped, and so are files that cannot be parsed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a stray backslash in someone else's source is not our user's concern
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates and deliberately broken files cannot be parsed
        return
    waiting: list[tuple[tuple[str, ...], ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]
    waiting = [((), tree)]
    while waiting:
        name, node = waiting.pop(0)
        docstring = ast.get_docstring(node, clean=False)
        if docstring and len(docstring) >= 200:
            yield name, docstring
        waiting.extend(
            ((*name, child.name), child)
            for child in node.body
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        )


_SKIPPED_SECTION = re.compile(
    r"^(References|See Also|Examples?)\n[-=~]{3,}\n.*?(?=^[A-Z][\w ]+\n[-=~]{3,}\n|\Z)", re.M | re.S
)
_CUTS = (
    # A doctest and its output.
    re.compile(r"^[ \t]*>>>.*?(?:\n[ \t]*\n|\Z)", re.M | re.S),
    # A directive that holds no prose, with its indented block; then a literal block after `::`.
    re.compile(
        r"^([ \t]*)\.\. (?:math|code|code-block|plot|sourcecode|image|figure|\[).*\n?(?:\1[ \t]+.*\n?|[ \t]*\n)*", re.M
    ),
    re.compile(r"^([ \t]*)[^\n]*::[ \t]*\n(?:[ \t]*\n)*(?:\1[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)+", re.M),
    # A section's title and its underline; a parameter and its type; the name of a directive, whose text stays.
    re.compile(r"^[A-Z][\w ]+\n[-=~]{3,}[ \t]*$", re.M),
    re.compile(r"^[ \t]*\*{0,2}\w[\w, *.]* : .*$", re.M),
    re.compile(r"^[ \t]*\.\. [\w-]+::", re.M),
    # Roles, code, links, formulas; addresses, identifiers.
    re.compile(r":[\w:]+:`[^`]*`|``[^`]*``|`[^`]*`_{0,2}|\$[^$]*\$"),
    re.compile(r"\w+://\S+|\S+@\S+|\S*[_=(){}\[\]<>\\/#|]\S*|\w+\.\w[\w.]*"),
)


def prose(docstring: str) -> str:
    """Return the running text of a docstring on one line, without code, markup, parameter names and references."""
    text = _SKIPPED_SECTION.sub("", inspect.cleandoc(docstring) + "\n")
    for cut in _CUTS:
        text = cut.sub(" ", text)
    return " ".join(text.split())


def _sample_by_label(found: Sequence[tuple[str, str, str]], size: int, seed: int) -> list[tuple[str, str, str]]:
    """Return a systematic sample of `size` texts in which labels keep their proportions.

    found: (label, name, text) of each text. seed: seed of the sample.

    Texts are shuffled and sorted by label. Then texts at equal distances are taken.
    """
    random = np.random.default_rng(seed)
    ordered = sorted((found[position] for position in random.permutation(len(found))), key=lambda item: item[0])
    size = min(size, len(ordered))
    positions = (random.integers(len(ordered)) + np.arange(size) * len(ordered)) // size
    return sorted(ordered[position] for position in positions)


def _versions() -> str:
    """Return the versions of Python, NumPy and SciPy, in words."""
    versions = [f"Python {platform.python_version()}"]
    for package, title in (("numpy", "NumPy"), ("scipy", "SciPy")):
        try:
            versions.append(f"{title} {version(package)}")
        except PackageNotFoundError:  # importable without metadata, as from a source tree
            versions.append(f"{title} of unknown version")
    return ", ".join(versions)


# -- LVSEARCH_DATA ----------------------------------------------------------------------------------------------


def available() -> tuple[str, ...]:
    """Return the names of the corpora in the folder that the environment variable LVSEARCH_DATA names; () if it is
    not set.
    """
    folder = os.environ.get("LVSEARCH_DATA")
    if not folder or not Path(folder).is_dir():
        return ()
    folders = (path.parent for path in Path(folder).glob("*/corpus.ldac"))
    return tuple(sorted(path.name for path in folders if (path / "vocab.txt").is_file()))


def load(name: str) -> Corpus:
    """Return a corpus of the folder LVSEARCH_DATA: `<name>/corpus.ldac` (LDA-C, ids from 0) and `<name>/vocab.txt`.

    If `titles.txt` has one line per document, its lines become the documents' names. If `labels.txt` has one line per
    document, its first column becomes the labels.

    Args:
        name: one of `available()`.

    Raises:
        ValueError: LVSEARCH_DATA is not set, or has no such corpus (the message lists those it has).
    """
    folder = os.environ.get("LVSEARCH_DATA")
    if not folder:
        raise ValueError(
            f"got no folder to load {name!r} from; expected the environment variable LVSEARCH_DATA to name one, with "
            "a folder per corpus that holds corpus.ldac and vocab.txt; lv.datasets.docstrings() needs none"
        )
    names = available()
    if name not in names:
        raise ValueError(
            f"got {name!r}; expected one of the corpora in {folder}: {', '.join(names) or 'there are none'}"
        )
    root = Path(folder) / name
    corpus = Corpus.from_ldac(root / "corpus.ldac", root / "vocab.txt")
    titles = _lines_per_document(root / "titles.txt", len(corpus))
    labels = _lines_per_document(root / "labels.txt", len(corpus))
    return replace(
        corpus,
        document_names=titles,
        document_labels=None if labels is None else tuple(line.split("\t")[0] for line in labels),
        notes=(name, *corpus.notes),
    )


def _lines_per_document(path: Path, n_documents: int) -> tuple[str, ...] | None:
    """Return the lines of a file if there is one per document, else None."""
    lines = read_lines(path) if path.is_file() else []
    return tuple(line.strip() for line in lines) if len(lines) == n_documents else None
