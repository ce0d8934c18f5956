"""Mutated files of people's data: refused in one line, or read as a second, simpler reader reads them.

The second reader knows nothing of lvsearch: Python's csv module, `float`, `int` and `str.split`. Where it cannot read a
file either, the file must be refused. Nothing may be dropped or changed unsaid, and no file takes more than 5 seconds.
"""

import csv
import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fault_trials import READING, Row, refusal, trials_in_children, within

import lvsearch as lv
from lvsearch.command.external_topics import load_topics
from lvsearch.files.packed_files import read_text
from lvsearch.reading.opening import documents_in

PIECES = (
    *(b"\x00", b"\r", b"\r\n", b"\n", b"\n\n", b"\f", b"\x1a", b"\xef\xbb\xbf", b"\xff", b"\xc2\xa0", b"\xe2\x80\xa8"),
    *(b" ", b"\t", b",", b",,", b";", b":", b'"', b'""', b"'", b"#", b"\\", b"-", b"+", b".", b"_", b"%", b"=1+1"),
    *(b"NaN", b"nan", b"NA", b"inf", b"-inf", b"None", b"True", b"1e400", b"1e-400", b"0x10", b"1_0", b"1e5", b"-0"),
    *(b"\xef\xbc\x91", b"\xd9\xa1", b"007", b"99999999999999999999", b"2147483648", b"0.1", b"1.0", b"4294967297"),
)


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """The content with one to four mistakes in it."""
    data = bytearray(content)
    for _ in range(random.integers(1, 5)):
        place, span = int(random.integers(len(data) + 1)), int(random.integers(1, 12))
        what = int(random.integers(8))
        if what <= 2:
            data[place:place] = PIECES[random.integers(len(PIECES))]
        elif what == 3:
            data[place : place + span] = PIECES[random.integers(len(PIECES))]
        elif what == 4:
            del data[place : place + span]
        elif what == 5:
            data[place:place] = data[place : place + span]
        elif what == 6 and place < len(data):
            data[place] ^= 1 << int(random.integers(8))
        else:
            lines = bytes(data).split(b"\n")
            first, second = random.integers(len(lines), size=2)
            lines[first], lines[second] = lines[second], lines[first]
            data = bytearray(b"\n".join(lines))
    return bytes(data)


@dataclass(frozen=True)
class Reader:
    """A reader of lvsearch and a simpler one, both from files to something that can be compared; and sound files.

    simple: raises ValueError for what must be refused; None where there is no second reader, and only the end counts.
    """

    name: str
    files: dict[str, bytes]
    read: Callable[[Path], Any]
    simple: Callable[[Path], Any] | None


# ── the simple readers ──────────────────────────────────────────────────────────────────────────────────────────────


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def simple_documents(path: Path) -> list[str]:
    text = text_of(path / "docs.txt")
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def simple_ldac(path: Path) -> Any:
    words = [word.strip() for word in text_of(path / "words.txt").rstrip(" \t\n").split("\n")]
    if len(set(words)) < len(words):
        raise ValueError("a word twice")
    documents = []
    for line in text_of(path / "corpus.ldac").rstrip(" \t\n").split("\n"):
        stated, *pairs = [part for part in line.replace("\t", " ").split(" ") if part]
        document: dict[str, int] = {}
        for pair in pairs:
            term, count = map(whole, pair.split(":"))
            if words[term] in document:
                raise ValueError("a term twice")
            document[words[term]] = count
        if whole(stated) != len(document):
            raise ValueError("not as many terms as it says")
        documents.append({term: count for term, count in document.items() if count})
    return documents


def whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no count")
    return int(text)


def rows_of(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file; lines without anything on them are none, and short ones end in empty cells.

    Where a quote does not enclose a value, as in `""y`, quotes are part of the text, as those of inches are.
    """
    text = text_of(path)
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        lines = list(csv.reader(io.StringIO(text, newline=""), quoting=csv.QUOTE_NONE))
    rows = [row for row in lines if row and (len(row) > 1 or row[0].strip(" \t"))]
    if not rows or any(len(row) > len(rows[0]) for row in rows) or len(set(rows[0])) < len(rows[0]):
        raise ValueError("lines longer than the first, or a name twice")
    if not all(name.strip() for name in rows[0]):
        raise ValueError("a column without a name")
    return rows[0], [row + [""] * (len(rows[0]) - len(row)) for row in rows[1:]]


def number(text: str) -> float:
    value = float(text)
    if not text.isascii() or "_" in text or not np.isfinite(value):
        raise ValueError(f"{text!r} is no number")
    return value


def simple_points(path: Path) -> Any:
    names, rows = rows_of(path / "points.csv")
    return [name.strip() for name in names], [[number(cell.strip()) for cell in row] for row in rows]


def simple_pairs(path: Path) -> Any:
    (names, regions), (others, captions) = rows_of(path / "regions.csv"), rows_of(path / "captions.csv")
    image, features = names.index("image"), [place for place, name in enumerate(names) if name != "image"]
    whose, word = others.index("image"), others.index("word")
    found: dict[str, tuple[list[list[float]], list[str]]] = {}
    for row in regions:
        found.setdefault(row[image].strip(), ([], []))[0].append([number(row[place].strip()) for place in features])
    for row in captions:
        found.setdefault(row[whose].strip(), ([], []))[1].append(row[word].strip())
    if "" in found or any("" in words for _, words in found.values()):
        raise ValueError("an empty name or word")
    return [(name, held, sorted(words)) for name, (held, words) in found.items()]


# ── the readers of lvsearch, in the same form ───────────────────────────────────────────────────────────────────────


def read_counts(path: Path) -> Any:
    corpus = lv.Corpus.from_ldac(path / "corpus.ldac", vocabulary=path / "words.txt")
    dense = corpus.counts.toarray()
    return [{corpus.vocabulary[t]: int(row[t]) for t in np.flatnonzero(row)} for row in dense]


def read_points(path: Path) -> Any:
    points = lv.Points.from_csv(path / "points.csv")
    return [name.strip() for name in points.columns], points.values.tolist()


def read_pairs(path: Path) -> Any:
    pairs = lv.PairedCorpus.from_csv(path / "regions.csv", path / "captions.csv")
    cuts = np.cumsum(pairs.region_counts)[:-1]
    held = [part.tolist() for part in np.split(pairs.regions, cuts)]
    if pairs.regions.ndim == 1:
        held = [[[name] for name in part] for part in held]
    names = pairs.captions.document_names or ()
    return [(name, held[i], sorted(words_of(pairs, i))) for i, name in enumerate(names)]


def words_of(pairs: lv.PairedCorpus, image: int) -> list[str]:
    counts = pairs.captions.counts[[image]].toarray()[0]
    return list(itertools.chain.from_iterable([pairs.vocabulary[t]] * int(counts[t]) for t in np.flatnonzero(counts)))


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def array_npy(path: Path) -> Any:
    return lv.Points.from_npy(path / "points.npy").values.tolist()


def simple_npy(path: Path) -> Any:
    values = np.load(io.BytesIO((path / "points.npy").read_bytes()), allow_pickle=False)
    if values.ndim != 2 or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise ValueError("no matrix of numbers")
    return values.astype(np.float64).tolist()


VALUES = np.array([[1.5, -2, 0.1], [3.25, 1e-3, 7], [0, 4, -1e5], [2, 2, 2]])
READERS = (
    Reader(
        "texts", {"docs.txt": "the cat sat\non the mat\n\ngrößer – 本\nlast one\n".encode()},
        lambda path: documents_in(read_text(path / "docs.txt")), simple_documents,
    ),
    Reader(
        "LDA-C",
        {"corpus.ldac": b"2 0:1 3:2\n1 1:4\n0\n3 0:1 1:1 2:1\n", "words.txt": "cat\ndog\ntax\nvöte\n".encode()},
        read_counts, simple_ldac,
    ),
    Reader(
        "CSV of rows", {"points.csv": b"x,y,z\n1.5,-2,0.1\n3.25,1e-3,7\n0,4,-100000\n2,2,2\n"},
        read_points, simple_points,
    ),
    Reader(
        "CSVs of images", {
            "regions.csv": b"image,x,y\n1,0.5,2\n1,0.25,-3\n007,1.5,3\nc,1,1\n",
            "captions.csv": b"image,word\n1,sea\n1,sky\n007,tree\n1,sea\n",
        },
        read_pairs, simple_pairs,
    ),
    Reader("NPY of rows", {"points.npy": saved(lambda b: np.save(b, VALUES))}, array_npy, simple_npy),
    Reader(
        "NPZ of topics", {"topics.npz": saved(lambda b: np.savez(
            b, topics=np.full((2, 3), 1 / 3), alpha=np.ones(2), vocabulary=np.array(["a", "b", "c"])))},
        lambda path: load_topics(path / "topics.npz").topics.tolist(), None,
    ),
)  # fmt: skip


def verdict(reader: Reader, folder: Path) -> tuple[str, str] | None:
    """Compare what both readers make of the files of a folder."""
    expected, found = None, None
    if reader.simple is not None:
        try:
            expected = reader.simple(folder)
        except Exception as error:  # NumPy's reader, which is the second one of arrays, may end in anything
            expected = error
    try:
        with within(READING):
            found = reader.read(folder)
    except BaseException as error:
        wrong = refusal(error)
        return None if wrong is None else ("unexplained", wrong)
    if reader.simple is None:
        return None
    if isinstance(expected, BaseException):
        return "wrong", f"read as {str(found)[:300]}, where a simpler reader says {expected!r}"
    return None if found == expected else ("wrong", f"read as {str(found)[:300]}, expected {str(expected)[:300]}")


def mutated_files(work: Path, seed: int, trials: int) -> list[Row]:
    """So many files, dealt to the readers in turn: a row each."""
    rows = []
    for place, reader in enumerate(READERS):
        row = Row(f"mutated {reader.name}")
        rows.append(row)

        def trial(number: int, reader: Reader = reader, place: int = place) -> tuple[str, str] | None:
            random = np.random.default_rng([seed, number, place, 3])
            folder = work / f"files-{place}"
            folder.mkdir(exist_ok=True)
            chosen = sorted(reader.files)[random.integers(len(reader.files))]
            for name, content in reader.files.items():
                given = mutated(content, random) if name == chosen and number else content  # the first is sound
                (folder / name).write_bytes(given)
            found = verdict(reader, folder)
            if number == 0 and not sound(reader, folder):
                return "unexplained", "sound files refused"
            return (
                None
                if found is None
                else (found[0], f"{number} {chosen} {(folder / chosen).read_bytes()!r}: {found[1]}")
            )

        trials_in_children(trial, trials // len(READERS), work / f"logs-files-{place}", row, each=500)
    return rows


def sound(reader: Reader, folder: Path) -> bool:
    try:
        reader.read(folder)
    except ValueError:
        return False
    return True
