"""The common form of all data: units of one type, with names for people, parts to hold out, and a form to store.

A *unit* is one observation: a document, a row, an image or a group. `lvsearch.models.units` says what one unit is to a
model, such as `BagOfWords` or `Row`. Each such type has a class of data here, such as `Corpus` or `Points`. Searches,
results, reports and checkpoints know `Data` alone.
"""

import html
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from jaxtyping import Int

from lvsearch.files.plain_text import visible
from lvsearch.inference.data.dataset import Dataset
from lvsearch.models.plain_arguments import as_list, checked_seed, real_number, shortened_repr, whole_number

D = TypeVar("D", bound="Data")


class Nouns(NamedTuple):
    """The words that people use for one kind of data, such as "corpus" of "documents" with "tokens".

    | field | meaning | example |
    |---|---|---|
    | `whole` | all data together | "corpus" |
    | `unit`, `units` | one unit, and several | "document", "documents" |
    | `observation`, `observations` | what a unit is made of, one and several | "token", "tokens" |
    """

    whole: str
    unit: str
    units: str
    observation: str
    observations: str


class Data(ABC):
    """Data of one kind, made of units (documents, rows, images, groups).

    Objects are frozen and checked when made; two are equal if their fingerprints are. A kind of data of your own is a
    subclass that implements the abstract methods.

    | class variable | meaning |
    |---|---|
    | `unit_type` | the type of one unit: the `Model.unit_type` of models that can be trained on it |
    | `nouns` | the words that people use for it |
    | `accepted` | what `from_any` accepts, in words, for messages |
    """

    unit_type: ClassVar[type]
    nouns: ClassVar[Nouns]
    accepted: ClassVar[str]

    notes: tuple[str, ...]
    """Notes in words of what was done to the data when they were read and selected, in order."""

    # -- what each kind says ----------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def from_any(cls, data: Any) -> "Data":
        """Return data of this kind made from whatever a person passes, such as an array, a data frame or a file name.

        Raises ValueError if no such data can be made of it.
        """

    @abstractmethod
    def like_this(self, data: Any) -> "Data":
        """Return new data on the axes of this object, which holds the training data: the same words, or the same
        columns.

        data: data of this kind, or raw input as for `from_any`.

        Raises ValueError for data on other axes, such as other words or other columns.
        """

    @abstractmethod
    def dataset(self) -> Dataset:
        """Return the units in padded batches, the form in which `lvsearch.inference` reads them."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """The number of units: documents, rows, images or groups."""

    @property
    @abstractmethod
    def observations_per_unit(self) -> Int[np.ndarray, " units"]:
        """The number of observations in each unit, such as its tokens or observed cells, shape (units,), int64."""

    @property
    @abstractmethod
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the entries of each axis of a model, as {axis name: names}, such as {"word": vocabulary}."""

    @property
    def unit_labels(self) -> Sequence[str] | None:
        """A class label for each unit, which is shown but never used in fitting; None if there are none."""
        return None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The SHA-256 hash of the content, in hexadecimal."""

    @abstractmethod
    def describe(self) -> str:
        """Return the sizes of the data in one line."""

    @abstractmethod
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return facts about the data for people, as (name, value) pairs such as ("rows", "600")."""

    @abstractmethod
    def part(self: D, rows: Int[np.ndarray, " chosen"], note: str) -> D:
        """Return some of the units as new data, in the given order, with a note that says so.

        rows: numbers of units, from 0. A number may occur several times, as in a bootstrap sample. Units whose number
            is absent are left out.
        note: the note to add.
        """

    @abstractmethod
    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return everything that the data hold, as (settings that JSON can store, {name: array})."""

    @classmethod
    @abstractmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Data":
        """Return the data that `to_storage` encoded as `settings` and `arrays`.

        Raises ValueError for damaged content and KeyError for missing parts.
        """

    # -- the same for all -------------------------------------------------------------------------------------------

    @classmethod
    def of(cls: type[D], data: Any) -> D:
        """Return data of this kind made from `data`. Deprecated: the former name of `from_any`; it warns."""
        warnings.warn(f"{cls.__name__}.of is called {cls.__name__}.from_any now", DeprecationWarning, stacklevel=2)
        return cast(D, cls.from_any(data))

    def __len__(self) -> int:
        return self.n_units

    @property
    def n_observations(self) -> int:
        """The number of observations (tokens, cells) in all units together, by which scores per token or cell are
        divided.
        """
        return int(self.observations_per_unit.sum())

    def select(self: D, units: Iterable[Any]) -> D:
        """Return the units (documents, rows) with these numbers, in the given order, on the same axes.

        Args:
            units: numbers from 0, where a number may occur several times (a bootstrap sample), or a boolean mask with
                one entry per unit.

        Raises:
            ValueError: no unit is chosen, a number is out of range, or the mask has the wrong length.
        """
        rows = self._row_numbers(units)
        return self.part(rows, f"selected {len(rows):,} of {self.n_units:,} {self.nouns.units}")

    def repeated(self: D, counts: Any) -> D:
        """Return data in which each unit (document, row) occurs as often as `counts` says, copies side by side.

        For tables that list each distinct row once, with how often it was seen. Every fit, evidence and score is that
        of a table which has the row so often.

        Args:
            counts: a whole number of at least 0 for each unit, (unit,); 0 leaves the unit out.

        Raises:
            ValueError: another number of counts; counts that are negative, missing or no whole numbers, such as the
                weights of a survey, with which no probability of the data goes; 0 for all units.
        """
        numbers = np.asarray(counts if isinstance(counts, np.ndarray) else as_list("counts", counts))
        unit, many = self.nouns.unit, self.nouns.units
        if numbers.shape != (self.n_units,):
            raise ValueError(f"got counts of shape {numbers.shape}; expected one for each of {len(self):,} {many}")
        are_numbers = numbers.dtype.kind in "iuf"
        if not are_numbers or not np.all(np.isfinite(numbers)) or np.any(numbers < 0) or np.any(numbers % 1):
            raise ValueError(
                f"got {shortened_repr(numbers.tolist())}; expected a whole number of at least 0 for each {unit}: how "
                f"often it was seen. For weights of a survey, draw {many} in proportion to them instead: "
                "data.select(rng.choice(len(data), len(data), p=weights / weights.sum())), several times, and compare"
            )
        rows = np.repeat(np.arange(self.n_units), numbers.astype(np.int64))
        if not rows.size:
            raise ValueError(f"got 0 for all {many}; expected at least one {unit} that was seen")
        return self.part(rows, f"{self.n_units:,} {many} were seen {len(rows):,} times")

    def joined(self: D, other: Any) -> D:
        """Return these units followed by those of other data; nothing is fitted.

        Args:
            other: data of the same kind, or what `from_any` accepts.

        Raises:
            ValueError: other columns, or a kind of data that cannot be joined (only `Corpus` and `Points` can).
        """
        raise ValueError(
            f"got {type(self).__name__}, expected a Corpus or Points: other kinds of data cannot be joined. Read all "
            f"{self.nouns.units} at once"
        )

    def split(self: D, test_fraction: float | int = 0.1, seed: int = 0) -> tuple[D, D]:
        """Split the units at random into (train, test), for example to hold out documents.

        Both parts are on the same axes and keep the original order. The same seed always gives the same split.

        Args:
            test_fraction: the share of units in the test part, rounded to a whole number of units. Each part gets at
                least one.
            seed: of the random choice.

        Raises:
            ValueError: the fraction is not between 0 and 1, or there is a single unit.
        """
        test_fraction, seed = real_number("test_fraction", test_fraction, above=0, below=1), checked_seed(seed)
        if self.n_units < 2:
            raise ValueError(f"got 1 {self.nouns.unit}; expected at least 2 {self.nouns.units} to split")
        n_test = min(max(round(test_fraction * self.n_units), 1), self.n_units - 1)
        held_out = np.random.default_rng(seed).permutation(self.n_units)[:n_test]
        return self._split_off(held_out, f"test_fraction={test_fraction}, seed={seed}")

    def folds(self: D, n: int, seed: int = 0) -> list[tuple[D, D]]:
        """Return `n` pairs (train, test) for cross-validation: every unit is in exactly one test part.

        The sizes of the test parts differ by at most one.

        Args:
            n: the number of folds.
            seed: of the random division.

        Raises:
            ValueError: n is below 2 or above the number of units.
        """
        n, seed = whole_number("n", n), checked_seed(seed)
        return [self.fold(number, n, seed) for number in range(n)]

    def fold(self: D, number: int, n: int, seed: int = 0) -> tuple[D, D]:
        """Return one pair (train, test) of `n` folds without making the others: `folds(n, seed)[number]`.

        Args:
            number: the fold, from 0 to n − 1.
            n: the number of folds.
            seed: of the random division.

        Raises:
            ValueError: n is below 2 or above the number of units, or `number` is out of range.
        """
        if not 2 <= n <= self.n_units:
            raise ValueError(f"got n={n} folds of {self.n_units:,} {self.nouns.units}; expected 2 to {self.n_units:,}")
        if not 0 <= number < n:
            raise ValueError(f"got fold {number} of {n}; expected a number from 0 to {n - 1}")
        shuffled = np.random.default_rng(seed).permutation(self.n_units)
        held_out = np.array_split(shuffled, n)[number]
        return self._split_off(held_out, f"fold {number + 1} of {n}, seed={seed}")

    def _split_off(self: D, held_out: Int[np.ndarray, " held_out"], how: str) -> tuple[D, D]:
        """Return (data of the units that are not held out, data of those that are), each with a note.

        held_out: numbers of the units to hold out. how: the rule of the division, in words, for the note.
        """
        is_test = np.zeros(self.n_units, dtype=bool)
        is_test[held_out] = True
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        of = f"of {self.n_units:,} {self.nouns.units}"
        return (
            self.part(train, f"{len(train):,} {of} to train on ({how})"),
            self.part(test, f"{len(test):,} {of} held out ({how})"),
        )

    def _row_numbers(self, units: Iterable[Any]) -> Int[np.ndarray, " chosen"]:
        """Return the numbers of the chosen units, int64, shape (chosen,).

        units: numbers from 0, or a boolean mask with one entry per unit.

        Raises ValueError if no unit is chosen, a number is out of range, or the mask has the wrong length.
        """
        ids = np.asarray(units if isinstance(units, np.ndarray) else as_list("units", units))
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
        """Return the sizes, the fingerprint and the notes as text, one on each line; `print` shows the same text."""
        lines = [f"{name + ':':<13}{visible(value)}" for name, value in self._all_facts()]
        return "\n".join([type(self).__name__, *lines, *(f"- {visible(note)}" for note in self.notes)])

    def __repr__(self) -> str:
        """Return the class and a description of the data in one line."""
        return f"{type(self).__name__}({self.describe()})"

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._all_facts())
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<table><caption>{type(self).__name__}</caption><tbody>{rows}</tbody></table><ul>{notes}</ul>"

    def _all_facts(self) -> tuple[tuple[str, str], ...]:
        """Return (name, value) pairs for people: the facts of the data and the first 16 characters of their
        fingerprint.
        """
        return (*self.facts(), ("fingerprint", self.fingerprint[:16]))


def refuse_other_kind(data: Any, kind: type[Data], expected: str) -> None:
    """Raise ValueError for data of another kind than the training data; what is no `Data` passes.

    expected: what is expected, as the end of a sentence.
    """
    if isinstance(data, Data) and not isinstance(data, kind):
        raise ValueError(f"got {type(data).__name__} ({data.describe()}), expected {expected}")
