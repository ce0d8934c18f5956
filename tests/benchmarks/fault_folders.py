"""Damaged folders, and crafted ones whose checksums are sound: refused in one line, or what they were.

Damage (bits, cuts, files exchanged or gone) must be noticed: what loads is what was saved. Crafted content is believed
where it makes sense; where it makes none, reading it and showing it ends in an error that people can read.
"""

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fault_trials import READING, Row, refusal, trials_in_children, within

import lvsearch as lv
from lvsearch.files.storage import read_folder, write_folder


@dataclass(frozen=True)
class Kind:
    """A kind of folder: how it is loaded, and all that shows what is in it."""

    name: str
    load: Callable[[Path], Any]
    use: Callable[[Any], object]


KINDS = (
    Kind("reference-0", lv.load, lambda r: (str(r), r.posterior(), r.bounds(), r.starts(), list(r.state.kept))),
    Kind("mixture", lv.load, lambda r: (str(r), r.posterior(), r.bounds(), r.starts(), list(r.state.kept))),
    Kind("tree", lv.load_tree, lambda t: (str(t), t.branches(), t.tree().text(3), t.tree().to_json())),
    Kind("trace", lv.load_trace, lambda t: (str(t), t.names, t["log_density"].mean())),
)


def prepare(work: Path) -> None:
    """A search over rows, a tree and a trace beside the searches over documents. In a process of its own."""
    random = np.random.default_rng(1)
    points = random.normal(0, 1, (12, 2)) + 4 * random.integers(0, 2, (12, 1))
    kind = lv.models.DiagonalComponents.scaled_to(points)
    model = lv.models.FiniteMixture(kind)
    lv.search(model, points, prior=lv.sizes.Poisson(2), evidence="bound", max_size=2, starts=1, progress=False).save(
        work / "mixture"
    )
    texts = ["the cat and the dog", "the dog and a cat"] * 4 + ["the tax and the vote", "a vote on the tax"] * 4
    corpus = lv.Corpus.from_texts(texts, stop_words=["a", "on"])
    lv.fit_tree(lv.models.HLDA(depth=2, levels=1.0, topics=0.2), corpus, sweeps=8, chains=2, infer=True, seed=0).save(
        work / "tree"
    )
    lv.save_trace(lv.sample(model, points, size=2, draws=4, chains=2, progress=False), work / "trace")


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def damage(folder: Path, other: Path, random: np.random.Generator) -> str:
    """Do one thing to one file of the folder; says what."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = files[random.integers(len(files))]
    content = bytearray(path.read_bytes())
    place = int(random.integers(len(content))) if content else 0
    what = int(random.integers(10))
    if what <= 2 and content:
        content[place] ^= 1 << int(random.integers(8))
    elif what == 3:
        del content[place:]
    elif what == 4:
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    elif what == 5:
        content[place:place] = bytes(random.integers(0, 256, int(random.integers(1, 40)), dtype=np.uint8))
    elif what == 6:
        path.unlink()
        return f"{path.name} gone"
    elif what == 7:
        path.unlink()
        path.mkdir()
        return f"{path.name} a folder"
    elif what == 8:
        theirs = sorted(p for p in other.rglob("*") if p.is_file() and p.suffix == path.suffix)
        if theirs:
            content = bytearray(theirs[random.integers(len(theirs))].read_bytes())
    else:
        second = files[random.integers(len(files))]
        content, ours = bytearray(second.read_bytes()), bytes(content)
        second.write_bytes(ours)
    path.write_bytes(bytes(content))
    return f"{path.name}, way {what}, at {place}"


def same(folder: Path, original: Path) -> bool:
    """Whether two folders hold the same body and arrays."""
    (ours, mine), (theirs, other) = read_folder(folder), read_folder(original)
    if str(ours) != str(theirs) or {name: set(group) for name, group in mine.items()} != {
        name: set(group) for name, group in other.items()
    }:
        return False
    return all(
        array.tobytes() == other[group][name].tobytes()
        for group, content in mine.items()
        for name, array in content.items()
    )


def damaged(work: Path, seed: int, trials: int, row: Row) -> None:
    """Copies of every kind of folder, damaged once or twice, and loaded."""

    def trial(number: int) -> tuple[str, str] | None:
        random = np.random.default_rng([seed, number, 1])
        kind, other = KINDS[number % len(KINDS)], KINDS[random.integers(len(KINDS))]
        folder = work / f"damaged-{number}"
        shutil.copytree(work / kind.name, folder)
        try:
            what = [damage(folder, work / other.name, random) for _ in range(random.integers(1, 3))]
            with within(READING):
                try:
                    kind.use(kind.load(folder))
                except BaseException as error:
                    wrong = refusal(error)
                    return None if wrong is None else ("unexplained", f"{number} {what}: {wrong}")
            return None if same(folder, work / kind.name) else ("wrong", f"{number} {what}: loaded")
        finally:
            shutil.rmtree(folder)

    trials_in_children(trial, trials, work / "logs-damaged", row)


# ── crafted content ─────────────────────────────────────────────────────────────────────────────────────────────────

NESTED: Any = []
for _ in range(300):
    NESTED = [NESTED]
HOSTILE = (
    *(None, True, False, -1, 0, 1, 2**31, 10**30, 0.5, -1e308, 1e308, float("nan"), float("inf"), 1e-320),
    *("", "x", "1", "../../x", "\x00", "\x1b[31m", "LDA", "x" * 10_000),
    *([], {}, [None], [[]], {"": 0}, NESTED, [0] * 1000),
)


def places(body: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every node but the root."""
    entries = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    found = []
    for key, value in entries:
        found += [(*path, key), *places(value, (*path, key))]
    return found


def craft(body: Any, arrays: dict[str, dict[str, np.ndarray]], random: np.random.Generator) -> str:
    """Change one thing in the content of a folder; says what."""
    if arrays and random.random() < 0.3:
        return craft_array(arrays, random)
    all_places = places(body)
    path = all_places[random.integers(len(all_places))]
    holder = body
    for key in path[:-1]:
        holder = holder[key]
    what = int(random.integers(4))
    if what == 0:
        del holder[path[-1]]
    elif what == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[path[-1]]))
    else:
        value = copy.deepcopy(HOSTILE[random.integers(len(HOSTILE))])
        holder[path[-1]] = value
        return f"{path} = {str(value)[:40]!r}"
    return f"{path}, way {what}"


def craft_array(arrays: dict[str, dict[str, np.ndarray]], random: np.random.Generator) -> str:
    filled = sorted(group for group in arrays if arrays[group])
    if not filled:
        return "no arrays are left"
    group = filled[random.integers(len(filled))]
    name = sorted(arrays[group])[random.integers(len(arrays[group]))]
    array = arrays[group][name]
    ways: tuple[Callable[[np.ndarray], Any], ...] = (
        lambda a: a.astype("S3"),
        lambda a: a.astype("U3"),
        lambda a: a.astype(np.complex128) if a.dtype.kind in "iuf" else a,
        lambda a: a[:0],
        lambda a: a.ravel()[: max(a.size - 1, 0)],
        lambda a: np.zeros((0, 3)),
        lambda a: np.full(a.shape, np.nan),
        lambda a: np.full(a.shape, np.inf),
        lambda a: np.full(a.shape, -1),
        lambda a: np.full(a.shape, 2**40),
        lambda a: a[..., None],
        lambda a: np.concatenate([a, a]) if a.ndim else a,
        lambda a: a.astype(bool),
        lambda a: np.float64(1.0),
    )
    what = int(random.integers(-2, len(ways)))
    if what == -2:
        del arrays[group]
    elif what == -1:
        del arrays[group][name]
    else:
        with np.errstate(all="ignore"):
            try:
                arrays[group][name] = np.asarray(ways[what](array if array.ndim else array.reshape(1)))
            except (ValueError, TypeError):
                arrays[group][name] = np.zeros(3)
    return f"array {group}/{name}, way {what}"


def crafted(work: Path, seed: int, trials: int, row: Row) -> None:
    """Copies of every kind of folder with one or two things changed and sound checksums, loaded and shown."""
    sound = {kind.name: read_folder(work / kind.name) for kind in KINDS}

    def trial(number: int) -> tuple[str, str] | None:
        random = np.random.default_rng([seed, number, 2])
        kind = KINDS[number % len(KINDS)]
        body, arrays = copy.deepcopy(sound[kind.name])
        what = [craft(body, arrays, random) for _ in range(random.integers(1, 3))]
        folder = work / f"crafted-{number}"
        write_folder(folder, body, arrays)
        try:
            with within(READING):
                kind.use(kind.load(folder))
        except BaseException as error:
            wrong = refusal(error)
            return None if wrong is None else ("unexplained", f"{number} {kind.name} {what}: {wrong}")
        finally:
            shutil.rmtree(folder)
        return None

    trials_in_children(trial, trials, work / "logs-crafted", row)
