"""What a search is trained on: units of one type, with names for people, parts to hold out, and a form to store.

A kind of data is a class here for what it is in `lvsearch.models.units` to a model: `Corpus` holds documents
(`BagOfWords`), `Points` the rows of a matrix (`Row`). Searches, results, cards and checkpoints know `Data` alone.
"""

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int

from lvsearch.files.plain_text import visible
from lvsearch.inference.data.dataset import Dataset
from lvsearch.models.plain_arguments import listed, real_number, whole_number
from lvsearch.seeds import checked_seed

D = TypeVar("D", bound="Data")


class Nouns(NamedTuple):
    """What people call the data and its parts: a corpus of documents with tokens, points in rows with cells."""

    whole: str
    unit: str
    units: str
    observation: str
    observations: str


class Data(ABC):
    """Data of one kind. Subclasses are frozen, checked when made, and equal where their fingerprints are.

    | class variable | meaning |
    |---|---|
    | `unit_type` | what one unit is to a model: `Model.unit_type` of the models that it can train |
    | `nouns` | what people call it |
    | `accepted` | what `of` takes, for messages |
    """

    unit_type: ClassVar[type]
    nouns: ClassVar[Nouns]
    accepted: ClassVar[str]

    notes: tuple[str, ...]
    """What was done to the data on the way in, in order."""

    # -- what each kind says ----------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def of(cls, data: Any) -> "Data":
        """From whatever a person passes for it. Raises ValueError for what is not such data."""

    @abstractmethod
    def like_this(self, data: Any) -> "Data":
        """New data (of this kind, or raw) on the same axes as this, the training data.

        Raises ValueError for data on other axes: other words, other columns.
        """

    @abstractmethod
    def dataset(self) -> Dataset:
        """The units in padded batches, for the engines."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Documents, rows."""

    @property
    @abstractmethod
    def observations_per_unit(self) -> Int[np.ndarray, " units"]:
        """Tokens, observed cells: (units,) int64."""

    @property
    @abstractmethod
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """Axis name of a model's sites -> names of its entries, such as {"word": vocabulary}."""

    @property
    @abstractmethod
    def unit_labels(self) -> Sequence[str] | None:
        """A class for each unit, shown and never used in fitting; None where there are none."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the content."""

    @abstractmethod
    def describe(self) -> str:
        """The sizes of the data in one line."""

    @abstractmethod
    def facts(self) -> tuple[tuple[str, str], ...]:
        """(what, how many) for people, a line each."""

    @abstractmethod
    def part(self: D, rows: Int[np.ndarray, " chosen"], note: str) -> D:
        """The units with these numbers, in this order, and a note saying so. A number may stand there several times, as
        in a bootstrap sample; one that stands there not at all is left out."""

    @abstractmethod
    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything, as settings for JSON and as arrays."""

    @classmethod
    @abstractmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Data":
        """The inverse of `to_storage`, checking what it is given. Raises ValueError; KeyError for what is missing."""

    # -- the same for all -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n_units

    @property
    def n_observations(self) -> int:
        """Tokens, observed cells, of all units together: what per-observation scores divide by."""
        return int(self.observations_per_unit.sum())

    def select(self: D, units: Iterable[Any]) -> D:
        """The units (documents, rows) with these numbers, in the given order, on the same axes.

        Args:
            units: numbers from 0, any of them several times (a bootstrap sample), or a boolean mask with one entry per
                unit.

        Raises:
            ValueError: none chosen; a number out of range; a mask of the wrong length.
        """
        rows = self._rows(units)
        return self.part(rows, f"selected {len(rows):,} of {self.n_units:,} {self.nouns.units}")

    def split(self: D, test_fraction: float | int = 0.1, seed: int = 0) -> tuple[D, D]:
        """(train, test): a random part of the units (documents, rows) held out, each side in the original order.

        Both are on the same axes. The test side has `test_fraction` of the units, rounded, at least one, and leaves at
        least one to train on. The same seed always gives the same split.

        Raises:
            ValueError: a fraction outside (0, 1); a single unit.
        """
        test_fraction, seed = real_number("test_fraction", test_fraction, above=0, below=1), checked_seed(seed)
        if self.n_units < 2:
            raise ValueError(f"got 1 {self.nouns.unit}; expected at least 2 {self.nouns.units} to split")
        n_test = min(max(round(test_fraction * self.n_units), 1), self.n_units - 1)
        held_out = np.random.default_rng(seed).permutation(self.n_units)[:n_test]
        return self._without_and_with(held_out, f"test_fraction={test_fraction}, seed={seed}")

    def folds(self: D, n: int, seed: int = 0) -> list[tuple[D, D]]:
        """(train, test) n times: every unit is in exactly one test part, whose sizes differ by one at most.

        Raises:
            ValueError: n below 2 or above the number of units.
        """
        n, seed = whole_number("n", n), checked_seed(seed)
        return [self.fold(number, n, seed) for number in range(n)]

    def fold(self: D, number: int, n: int, seed: int = 0) -> tuple[D, D]:
        """(train, test) of one of `n` folds, the others not made: `folds(n, seed)[number]`.

        Raises:
            ValueError: n below 2 or above the number of units; a number outside 0 … n − 1.
        """
        if not 2 <= n <= self.n_units:
            raise ValueError(f"got n={n} folds of {self.n_units:,} {self.nouns.units}; expected 2 to {self.n_units:,}")
        if not 0 <= number < n:
            raise ValueError(f"got fold {number} of {n}; expected a number from 0 to {n - 1}")
        shuffled = np.random.default_rng(seed).permutation(self.n_units)
        held_out = np.array_split(shuffled, n)[number]
        return self._without_and_with(held_out, f"fold {number + 1} of {n}, seed={seed}")

    def _without_and_with(self: D, held_out: Int[np.ndarray, " held_out"], how: str) -> tuple[D, D]:
        is_test = np.zeros(self.n_units, dtype=bool)
        is_test[held_out] = True
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        of = f"of {self.n_units:,} {self.nouns.units}"
        return (
            self.part(train, f"{len(train):,} {of} to train on ({how})"),
            self.part(test, f"{len(test):,} {of} held out ({how})"),
        )

    def _rows(self, units: Iterable[Any]) -> Int[np.ndarray, " chosen"]:
        ids = np.asarray(units if isinstance(units, np.ndarray) else listed("units", units))
        unit, many = self.nouns.unit, self.nouns.units
        if ids.dtype == bool and ids.shape != (self.n_units,):
            raise ValueError(f"got a mask of shape {ids.shape}; expected one entry for each of {len(self):,} {many}")
        rows = np.flatnonzero(ids) if ids.dtype == bool else ids
        if not rows.size:
            raise ValueError(f"got no {unit} ids; expected at least one")
        are_whole = rows.dtype.kind in "iu"
        if rows.ndim != 1 or not are_whole or rows.min() < 0 or rows.max() >= self.n_units:
            ends = f", from {rows.min()} to {rows.max()}" if are_whole else ""
            raise ValueError(
                f"got {unit} ids of type {rows.dtype}, shape {rows.shape}{ends}; expected a list of whole numbers "
                f"from 0 to {self.n_units - 1}"
            )
        return rows.astype(np.int64)

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def summary(self) -> str:
        """Sizes, fingerprint and notes as text, a line each."""
        lines = [f"{name + ':':<13}{visible(value)}" for name, value in self._all_facts()]
        return "\n".join([type(self).__name__, *lines, *(f"- {visible(note)}" for note in self.notes)])

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._all_facts())
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<table><caption>{type(self).__name__}</caption><tbody>{rows}</tbody></table><ul>{notes}</ul>"

    def _all_facts(self) -> tuple[tuple[str, str], ...]:
        return (*self.facts(), ("fingerprint", self.fingerprint[:16]))
