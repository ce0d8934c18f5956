"""Priors over model sizes: p(s) on positive integers, for one size variable or several (`lv.sizes`).

    Poisson, Geometric, NegativeBinomial     one size, infinite support
    Uniform                                  one size, up to a largest
    Table, Joint                             any number of sizes on a finite box, dependent or not
    Product, Mixture                         independent sizes; an uncertain prior
    AtLeast                                  another prior, given that the size is not below a smallest one

The methods of every prior (`log_pmf`, `log_mass`, `log_box`, `log_tilted_mass`) are defined in
`lvsearch.sizing.univariate`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from lvsearch.models.plain_arguments import as_list, real_number, shortened_repr, whole_number
from lvsearch.sizing.logspace import LOG_HALF, log_one_minus, log_sum
from lvsearch.sizing.univariate import (
    Geometric,
    NegativeBinomial,
    OpenSize,
    Poisson,
    Size,
    SizePrior,
    as_size,
    require,
)

__all__ = [
    "AtLeast",
    "Geometric",
    "Joint",
    "Mixture",
    "NegativeBinomial",
    "OpenSize",
    "Poisson",
    "Product",
    "Size",
    "SizePrior",
    "Table",
    "Uniform",
    "as_size",
    "from_json",
    "parse",
    "weak",
]

WEAK = 0.05
LARGEST_TABLE = 4_000_000  # cells of a Table or Joint: 32 MB of float64
JOINT_SLACK = 1e-9  # of a sum of probabilities that were given


class Tabulated(SizePrior):
    """A prior on a finite box of sizes, 1 ≤ s ≤ shape in every variable, stored as an array of log-probabilities."""

    shape: Size

    @property
    @abstractmethod
    def _log_table(self) -> Float[np.ndarray, " ..."]:
        """The log prior probability of every size in the box, nats; entry [i, j, …] is of size (i + 1, j + 1, …)."""
        ...

    @property
    def dimension(self) -> int:
        """The number of size variables that the prior is over."""
        return len(self.shape)

    def _pmf(self, size: Size) -> float:
        """Return the log prior probability of one size, nats; −inf outside the box."""
        inside = all(part <= end for part, end in zip(size, self.shape, strict=True))
        return float(self._log_table[tuple(part - 1 for part in size)]) if inside else -math.inf

    def _box(self, lower: Size, upper: OpenSize) -> float:
        """Return the log prior mass of the sizes s with lower ≤ s < upper in every variable, nats.

        None in `upper` means no end.
        """
        return _table_box(self._log_table, lower, upper)

    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, a tail of the prior tilted by an exponential, nats.

        start: the first size. slope: nats per unit of size. The result may be +inf.
        """
        tail = self._log_table[start - 1 :]
        return log_sum(tail + slope * np.arange(tail.size))


@dataclass(frozen=True, init=False)
class Table(Tabulated):
    """A prior with given probabilities of the sizes 1, 2, …; an array with several axes is for several size variables.

    Entry [i, j, …] is the probability of size (i + 1, j + 1, …). Entries must be at least 0 and sum to 1 within 1e-6.
    They are then divided by their sum.
    """

    shape: Size
    probabilities: tuple[float, ...]  # row-major, as given

    def __init__(self, probabilities: Sequence[Any] | np.ndarray) -> None:
        try:
            array = np.asarray(probabilities, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"A table needs numbers: got {shortened_repr(probabilities)}.") from error
        require(array.ndim >= 1 and 0 < array.size <= LARGEST_TABLE, "A table needs 1 to 4e6 entries", array.shape)
        require(
            bool(np.all(array >= 0.0)), "A table's probabilities must be at least 0 and not NaN", float(array.min())
        )
        total = float(array.sum())
        require(abs(total - 1.0) <= 1e-6, "A table's probabilities must sum to 1", total)
        object.__setattr__(self, "shape", array.shape)
        object.__setattr__(self, "probabilities", tuple(array.ravel().tolist()))

    @cached_property
    def _log_table(self) -> Float[np.ndarray, " ..."]:
        """The log prior probability of every size in the box, nats; entry [i, j, …] is of size (i + 1, j + 1, …)."""
        array = np.array(self.probabilities, dtype=np.float64).reshape(self.shape)
        return _log(array / array.sum())

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "uniform on 1…10"."""
        return f"table of probabilities on {_box_name(self.shape)}"

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        nested = np.array(self.probabilities, dtype=np.float64).reshape(self.shape).tolist()
        return {"type": "table", "probabilities": nested}


@dataclass(frozen=True)
class Uniform(Tabulated):
    """The uniform prior p(s) = 1 / largest on the sizes 1, …, largest."""

    largest: int

    def __post_init__(self) -> None:
        """Raise ValueError for parameters of the prior that are out of range."""
        whole_number("largest", self.largest, least=1, most=LARGEST_TABLE)

    @property
    def shape(self) -> Size:
        """The largest size that has prior mass, as a tuple with one number."""
        return (self.largest,)

    @cached_property
    def _log_table(self) -> Float[np.ndarray, " ..."]:
        """The log prior probability of every size in the box, nats; entry [i, j, …] is of size (i + 1, j + 1, …)."""
        return np.full(self.shape, -math.log(self.largest))

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "uniform on 1…10"."""
        return f"uniform on 1…{self.largest}"

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        return {"type": "uniform", "largest": self.largest}


@dataclass(frozen=True, init=False)
class Product(SizePrior):
    """A prior over several independent size variables: p(s, t, …) = p(s) p(t) ⋯.

    Each of its priors may itself be over several size variables.
    """

    priors: tuple[SizePrior, ...]

    def __init__(self, *priors: SizePrior) -> None:
        require(len(priors) > 0, "A product needs at least one prior", priors)
        _require_priors(priors)
        object.__setattr__(self, "priors", priors)

    @property
    def dimension(self) -> int:
        """The number of size variables that the prior is over."""
        return sum(prior.dimension for prior in self.priors)

    @cached_property
    def _parts(self) -> tuple[tuple[SizePrior, slice], ...]:
        """Each independent prior, with the slice of size variables that it covers."""
        ends = np.cumsum([prior.dimension for prior in self.priors]).tolist()
        return tuple((prior, slice(end - prior.dimension, end)) for prior, end in zip(self.priors, ends, strict=True))

    def _pmf(self, size: Size) -> float:
        """Return the log prior probability of one size, nats."""
        return math.fsum(prior.log_pmf(size[part]) for prior, part in self._parts)

    def _box(self, lower: Size, upper: OpenSize) -> float:
        """Return log p(lower ⪯ S ≺ upper), the log prior mass of a box of sizes, nats.

        The box holds the sizes with lower ≤ S < upper in every variable; None in `upper` means no end.
        """
        return math.fsum(prior.log_box(lower[part], upper[part]) for prior, part in self._parts)

    def _box_upper(self, lower: Size, upper: OpenSize) -> float:
        """Return an upper bound on log p(lower ⪯ S ≺ upper), the log prior mass of a box of sizes, nats.

        The box holds the sizes with lower ≤ S < upper in every variable; None in `upper` means no end.
        """
        return math.fsum(prior.log_box_upper(lower[part], upper[part]) for prior, part in self._parts)

    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, a tail of the prior tilted by an exponential, nats.

        start: the first size. slope: nats per unit of size. The result may be +inf.
        """
        return self.priors[0].log_tilted_mass(start, slope)

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "uniform on 1…10"."""
        return "independent: " + " × ".join(f"({prior.describe()})" for prior in self.priors)

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        return {"type": "product", "priors": [prior.to_json() for prior in self.priors]}


@dataclass(frozen=True)
class Joint(Tabulated):
    """A prior over dependent size variables, from a function that returns log p(size) in nats for a tuple of integers.

    With `tail=None`, the default, the function is known up to a constant on the finite box 1 ≤ s ≤ shape (in every
    variable), and the prior is zero outside. The function is tabulated once and normalised over the box, which makes
    every mass exact. Choose the box so large that what it leaves out does not matter.

    With `tail` in [0, 1), the function is normalised over *all* sizes. `tail` is then a bound, which you have proved,
    on the probability outside the box. Masses become intervals: `log_box` is the mass inside the box, and
    `log_box_upper` adds the tail, so that bounds on log p(data) hold. A box that holds less than 1 − tail, or more than
    1, raises ValueError, because one of the two is wrong.
    """

    function: Callable[[Size], float]
    shape: Size
    tail: float | int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for parameters of the prior that are out of range."""
        require(
            isinstance(self.shape, tuple), "Joint's shape is a tuple, the largest of each size variable", self.shape
        )
        as_size(self.shape, len(self.shape))
        if self.tail is not None:
            real_number("tail", self.tail, least=0, below=1)
        cells = math.prod(self.shape)
        require(len(self.shape) > 0 and cells <= LARGEST_TABLE, "Joint's box must hold 1 to 4e6 sizes", cells)
        if self.tail is not None:
            held = math.exp(log_sum(self._log_table.ravel()))
            legal = 1 - self.tail - JOINT_SLACK <= held <= 1 + JOINT_SLACK
            require(
                legal, f"Joint's box must hold a probability from {1 - self.tail:g} to 1 (tail={self.tail:g})", held
            )

    @cached_property
    def _log_table(self) -> Float[np.ndarray, " ..."]:
        """The log prior probability of every size in the box, nats; entry [i, j, …] is of size (i + 1, j + 1, …)."""
        values = [float(self.function(tuple(part + 1 for part in index))) for index in np.ndindex(*self.shape)]
        array = np.array(values, dtype=np.float64).reshape(self.shape)
        largest = float(array.max())  # NaN if any is
        legal = -math.inf < largest < math.inf
        require(legal, "Joint's log_pmf must be below +inf, not NaN, and finite somewhere; its largest", largest)
        return array - log_sum(array.ravel()) if self.tail is None else array

    def _pmf(self, size: Size) -> float:
        """Return the log prior probability of one size, nats."""
        inside = all(part <= end for part, end in zip(size, self.shape, strict=True))
        if inside or not self.tail:
            return super()._pmf(size)
        value = float(self.function(size))
        require(
            value <= math.log(self.tail) + JOINT_SLACK, f"Joint's tail bounds the mass outside its box: {size}", value
        )
        return value

    def _box(self, lower: Size, upper: OpenSize) -> float:
        """Return the log prior mass of the sizes lower ≤ s < upper that lie inside the tabulated box, nats.

        It is a lower bound on the mass if there is a tail. None in `upper` means no end.
        """
        if self.tail is None:
            return super()._box(lower, upper)
        box = tuple(slice(start - 1, None if end is None else end - 1) for start, end in zip(lower, upper, strict=True))
        return log_sum(self._log_table[box].ravel())

    def _box_upper(self, lower: Size, upper: OpenSize) -> float:
        """Return an upper bound on log p(lower ⪯ S ≺ upper), the log prior mass of a box of sizes, nats.

        The box holds the sizes with lower ≤ S < upper in every variable; None in `upper` means no end.
        """
        known = self._box(lower, upper)
        within = all(end is not None and end - 1 <= most for end, most in zip(upper, self.shape, strict=True))
        if not self.tail or within:
            return known
        return min(0.0, log_sum([known, math.log(self.tail)]))

    def _tilted(self, start: int, slope: float) -> float:
        """Return an upper bound on log Σ_{t ≥ start} p(t) e^{slope (t − start)}, nats; may be +inf.

        The sum inside the tabulated box is exact. The mass outside the box, at most `tail`, is multiplied by the
        largest e^{slope (t − start)} that it can have, which is +inf if slope > 0.

        start: the first size. slope: nats per unit of size.
        """
        known = super()._tilted(start, slope)
        if not self.tail:
            return known
        return (
            math.inf if slope > 0 else log_sum([known, math.log(self.tail) + slope * max(0, self.shape[0] + 1 - start)])
        )

    def table(self) -> Table:
        """Return the prior as a table of numbers, which can be stored; it leaves out the tail outside the box.

        Probabilities below 1e-308 become 0.
        """
        return Table(np.exp(self._log_table - log_sum(self._log_table.ravel())))

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "uniform on 1…10"."""
        if self.tail is None:
            return f"interdependent sizes, a function normalised on {_box_name(self.shape)}"
        return f"interdependent sizes, a function; at most {self.tail:g} outside {_box_name(self.shape)}"

    def to_json(self) -> dict[str, Any]:
        """Raise ValueError, because code is not stored. The prior that `table()` returns can be stored."""
        raise ValueError(
            "A Joint prior holds a Python function, and code is not stored (no pickle). "
            "Search with `prior.table()` instead: the same probabilities as numbers, which are stored exactly."
        )


@dataclass(frozen=True, init=False)
class Mixture(SizePrior):
    """A mixture of several priors over sizes (its members), p(s) = Σ_m weight_m p_m(s), for an uncertain prior.

    Weights are above 0 and sum to 1 within 1e-6. All members have equally many size variables.
    """

    weights: tuple[float, ...]
    priors: tuple[SizePrior, ...]

    def __init__(self, weights: Sequence[float | int], priors: Sequence[SizePrior]) -> None:
        weights, priors = as_list("weights", weights), as_list("priors", priors)
        require(len(weights) == len(priors) > 0, "A mixture needs one weight per prior", (len(weights), len(priors)))
        _require_priors(priors)
        weights = [real_number("weights", weight, above=0) for weight in weights]
        require(abs(sum(weights) - 1.0) <= 1e-6, "A mixture's weights must sum to 1", tuple(weights))
        dimensions = tuple(prior.dimension for prior in priors)
        require(len(set(dimensions)) == 1, "A mixture's priors must share one dimension", dimensions)
        object.__setattr__(self, "weights", tuple(float(weight) for weight in weights))
        object.__setattr__(self, "priors", tuple(priors))

    @property
    def dimension(self) -> int:
        """The number of size variables that the prior is over."""
        return self.priors[0].dimension

    def _mix(self, log_values: list[float]) -> float:
        """Return log Σ_m weight_m e^{log_value_m} over the member priors m, with normalised weights.

        log_values: one log-probability per member, nats.
        """
        total = math.log(math.fsum(self.weights))
        return log_sum([math.log(w) - total + value for w, value in zip(self.weights, log_values, strict=True)])

    def _pmf(self, size: Size) -> float:
        """Return the log prior probability of one size, nats."""
        return self._mix([prior.log_pmf(size) for prior in self.priors])

    def _box(self, lower: Size, upper: OpenSize) -> float:
        """Return log p(lower ⪯ S ≺ upper), the log prior mass of a box of sizes, nats.

        The box holds the sizes with lower ≤ S < upper in every variable; None in `upper` means no end.
        """
        if max(lower) == 1 and all(end is None for end in upper):
            return 0.0
        return min(self._mix([prior.log_box(lower, upper) for prior in self.priors]), 0.0)

    def _box_upper(self, lower: Size, upper: OpenSize) -> float:
        """Return an upper bound on log p(lower ⪯ S ≺ upper), the log prior mass of a box of sizes, nats.

        The box holds the sizes with lower ≤ S < upper in every variable; None in `upper` means no end.
        """
        return min(self._mix([prior.log_box_upper(lower, upper) for prior in self.priors]), 0.0)

    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, a tail of the prior tilted by an exponential, nats.

        start: the first size. slope: nats per unit of size. The result may be +inf.
        """
        return self._mix([prior.log_tilted_mass(start, slope) for prior in self.priors])

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "uniform on 1…10"."""
        parts = (f"{weight:g} of ({prior.describe()})" for weight, prior in zip(self.weights, self.priors, strict=True))
        return "mixture: " + " + ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        return {"type": "mixture", "weights": list(self.weights), "priors": [prior.to_json() for prior in self.priors]}


@dataclass(frozen=True)
class AtLeast(SizePrior):
    """Another prior, given that the size is at least `least` in every variable: p(s) / p(S ⪰ least), and 0 below.

    A search begins at the smallest size that is allowed. Searches of models some of whose components are given, such as
    topics with seeds, have it by themselves.
    """

    prior: SizePrior
    least: int

    def __post_init__(self) -> None:
        """Raise ValueError for parameters of the prior that are out of range."""
        _require_priors([self.prior])
        whole_number("least", self.least, least=1)
        held = f"A prior needs sizes from {self.least} on with some probability"
        require(self._log_held > -math.inf, held, self.prior.describe())

    @property
    def dimension(self) -> int:
        """The number of size variables that the prior is over."""
        return self.prior.dimension

    @property
    def first(self) -> Size:
        """The size at which a search begins: the smallest one that is allowed."""
        return (self.least,) * self.dimension

    @cached_property
    def _log_held(self) -> float:
        """The log mass that the other prior gives to the sizes that are allowed, nats; an upper end where bounded."""
        return self.prior.log_mass_upper(self.first)

    def _raised(self, lower: Size) -> Size:
        """Return the lower corner of a box without the sizes that are excluded."""
        return tuple(max(part, self.least) for part in lower)

    def _pmf(self, size: Size) -> float:
        """Return the log prior probability of one size, nats; −inf below the smallest."""
        return self.prior.log_pmf(size) - self._log_held if min(size) >= self.least else -math.inf

    def _box(self, lower: Size, upper: OpenSize) -> float:
        """Return the log prior mass of the sizes S with lower ≤ S < upper in every variable, nats.

        None in `upper` means no end.
        """
        return min(0.0, self.prior.log_box(self._raised(lower), upper) - self._log_held)

    def _box_upper(self, lower: Size, upper: OpenSize) -> float:
        """Return an upper bound on the log prior mass of the sizes S with lower ≤ S < upper in every variable, nats.

        None in `upper` means no end.
        """
        held = self.prior.log_mass(self.first)
        return min(0.0, self.prior.log_box_upper(self._raised(lower), upper) - held)

    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, a tail of the prior tilted by an exponential, nats.

        start: the first size. slope: nats per unit of size. The result may be +inf.
        """
        begin = max(start, self.least)
        return self.prior.log_tilted_mass(begin, slope) + slope * (begin - start) - self.prior.log_mass(self.first)

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "uniform on 1…10, given at least 3"."""
        return f"{self.prior.describe()}, given at least {self.least}"

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        return {"type": "at-least", "prior": self.prior.to_json(), "least": self.least}


def without_smaller(prior: SizePrior, smallest: Size) -> SizePrior:
    """Return the prior given that the size is not below `smallest`, the same number in every variable; the prior itself
    where it has no smaller sizes.
    """
    return prior if max(smallest) <= max(prior.first) else AtLeast(prior, max(smallest))


def from_json(stored: dict[str, Any]) -> SizePrior:
    """Return the prior that its `to_json` wrote as JSON data. Raises ValueError for anything else."""
    builders: dict[str, Callable[[dict[str, Any]], SizePrior]] = {
        "poisson": lambda o: Poisson(o["rate"], o["shifted"]),
        "geometric": lambda o: Geometric(o["p"]),
        "negative-binomial": lambda o: NegativeBinomial(o["mean"], o["concentration"]),
        "table": lambda o: Table(o["probabilities"]),
        "uniform": lambda o: Uniform(o["largest"]),
        "product": lambda o: Product(*(from_json(part) for part in o["priors"])),
        "mixture": lambda o: Mixture(o["weights"], [from_json(part) for part in o["priors"]]),
        "at-least": lambda o: AtLeast(from_json(o["prior"]), o["least"]),
    }
    try:
        return builders[stored["type"]](stored)
    except (KeyError, TypeError) as error:
        raise ValueError(f"Not a stored size prior: {stored!r}. Expected what `to_json` writes.") from error


def parse(text: str) -> SizePrior:
    """Return a prior from its command-line form, such as weak, poisson:10 or negative-binomial:20,3.

    Raises ValueError for any other text; the message lists all forms.
    """
    expected = (
        "weak, poisson:RATE, poisson-shifted:RATE, geometric:P, negative-binomial:MEAN,CONCENTRATION, "
        "uniform:LARGEST, table:P1,P2,…"
    )
    builders: dict[str, Callable[..., SizePrior]] = {
        "poisson": lambda rate: Poisson(rate),
        "poisson-shifted": lambda rate: Poisson(rate, shifted=True),
        "geometric": lambda p: Geometric(p),
        "negative-binomial": lambda mean, concentration: NegativeBinomial(mean, concentration),
        "table": lambda *probabilities: Table(probabilities),
        "uniform": lambda largest: Uniform(int(largest)),
    }
    if not isinstance(text, str):
        raise ValueError(f"Not a size prior: got {text!r}, expected one of {expected}.")
    if text.strip() == "weak":  # the default of a search, which has no numbers
        return weak()
    name, _, numbers = text.partition(":")
    try:
        parameters = [float(number) for number in numbers.split(",")]
        build = builders[name.strip()]
    except (KeyError, ValueError) as error:
        raise ValueError(f"Not a size prior: got {text!r}, expected one of {expected}.") from error
    try:
        return build(*parameters)
    except TypeError as error:
        raise ValueError(f"Wrong number of parameters: got {text!r}, expected one of {expected}.") from error


def weak(dimension: int = 1) -> SizePrior:
    """Return the default prior of a search: every further component is 5 % less probable, with mean size 20.

    So a component has to be worth .05 nats of evidence, however many there are. Several size variables are independent.

    dimension: the number of size variables.
    """
    one = Geometric(WEAK)
    return one if dimension == 1 else Product(*[one] * dimension)


def _require_priors(priors: Sequence[Any]) -> None:
    """Raise ValueError unless every argument is a size prior."""
    for prior in priors:
        require(isinstance(prior, SizePrior), "Expected priors, such as lv.sizes.Poisson(10)", prior)


def _box_name(shape: Size) -> str:
    """Return a box of sizes in words, such as "1…10 × 1…5". shape: the largest size in each variable."""
    return " × ".join(f"1…{end}" for end in shape)


def _log(probabilities: Float[np.ndarray, " ..."]) -> Float[np.ndarray, " ..."]:
    """Return the log of each probability in an array of any shape, −inf for 0."""
    logs = np.full(probabilities.shape, -math.inf)
    return np.log(probabilities, out=logs, where=probabilities > 0.0)


def _table_box(log_table: Float[np.ndarray, " ..."], lower: Size, upper: OpenSize) -> float:
    """Return the log prior mass of a box of a table, nats; where it holds more than half, through the mass outside it.

    log_table: the log-probability of every size; entry [i, j, …] is of size (i + 1, j + 1, …).
    lower, upper: the box holds the sizes with lower ≤ s < upper in every variable; None means no end.
    """
    box = tuple(slice(start - 1, None if end is None else end - 1) for start, end in zip(lower, upper, strict=True))
    inside = log_sum(log_table[box].ravel())
    if inside < LOG_HALF:
        return inside
    outside = log_table.copy()
    outside[box] = -math.inf
    return log_one_minus(log_sum(outside.ravel())) if outside.max() > -math.inf else 0.0
