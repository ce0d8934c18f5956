"""The interface of priors over sizes, and the families on one size variable with closed-form tails.

Every prior has these methods, which return logarithms in nats:

    log_pmf(s)                    log p(S = s)
    log_mass(c)                   log p(S ⪰ c): every component at least that of c
    log_box(lower, upper)         log p(lower ⪯ S ≺ upper), `None` in `upper` for no end
    log_tilted_mass(start, g)     log Σ_{t ≥ start} p(t) e^{g (t − start)}, one size variable only; may be +inf

Where masses are only bounded (a `Joint` with a tail), this method gives their upper ends:

    log_box_upper(lower, upper)   ≥ log_box, equal to it for every other prior

Each is accurate to about 1e-12 of itself, also far in the tail. Tails are summed as positive series or taken in closed
form, never as one minus a distribution function that is near one. Zero mass is −inf.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betaln, gammaln

from lvsearch.models.plain_arguments import as_list, real_number, shortened_repr, whole_number, yes_or_no
from lvsearch.sizing.logspace import LOG_HALF, log_one_minus, log_ratio_series, log_sum

Size = tuple[int, ...]
OpenSize = tuple[int | None, ...]


def as_size(size: Any, dimension: int, name: str = "size") -> Size:
    """Return a size as a tuple of positive Python integers.

    dimension: the number of size variables.
    name: the name of the argument, for the error.

    Raises ValueError for anything but `dimension` positive integers.
    """
    try:
        values = tuple(whole_number(name, part, least=1) for part in (size if isinstance(size, tuple) else (size,)))
    except ValueError:  # said below, for all size variables together
        values = ()
    if len(values) != dimension:
        got = size[0] if isinstance(size, tuple) and len(size) == 1 else size
        wanted = "a" if dimension == 1 else f"a tuple with {dimension} numbers, one for each size variable, each a"
        raise ValueError(f"got {name}={shortened_repr(got)}, expected {wanted} whole number from 1 on")
    return values


def as_sizes(sizes: Iterable[Size | int], dimension: int) -> tuple[Size, ...]:
    """Return sizes as sorted tuples without repeats.

    dimension: the number of size variables.

    Raises ValueError if there are none, or one is not a size.
    """
    chosen = tuple(sorted({as_size(size, dimension) for size in as_list("sizes", sizes)}))
    if not chosen:
        raise ValueError("got no sizes, expected at least one, or None for the usual ones")
    return chosen


def require(condition: bool, rule: str, got: Any) -> None:
    """Raise ValueError with the message "rule: got value", unless the condition holds."""
    if not condition:
        raise ValueError(f"{rule}: got {got!r}.")


def require_prior(prior: Any) -> None:
    """Raise ValueError for anything but a prior over sizes."""
    if not isinstance(prior, SizePrior):
        raise ValueError(f"got prior={shortened_repr(prior)}, expected one of lv.sizes, such as lv.sizes.Poisson(10)")


class SizePrior(ABC):
    """A prior p(s) over sizes, tuples of `dimension` positive integers such as (numbers of topics,). It is immutable.

    All probabilities are logarithms in nats. `log_pmf` is of one size, `log_mass` of all sizes from a corner on,
    `log_box` of a box of sizes, and `log_tilted_mass` of a tail that is tilted by an exponential.
    """

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of size variables that the prior is over."""

    @property
    def first(self) -> Size:
        """The size at which a search begins: 1 in every variable, unless smaller sizes than another are excluded."""
        return (1,) * self.dimension

    @abstractmethod
    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "geometric with p = 0.05 (mean 20), on 1, …"."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""

    @abstractmethod
    def _pmf(self, size: Size) -> float:
        """Return the log prior probability of one size, nats. The caller has checked that the size is valid."""
        ...

    @abstractmethod
    def _box(self, lower: Size, upper: OpenSize) -> float:
        """Return the log prior mass of the sizes S with lower ≤ S < upper in every variable, nats.

        It is a lower bound where masses are only bounded. None in `upper` means no end. The caller has checked the box.
        """
        ...

    @abstractmethod
    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, nats, for one size variable; it may be +inf.

        start: the first size. slope: nats per unit of size.
        """
        ...

    def _box_upper(self, lower: Size, upper: OpenSize) -> float:
        """Return an upper bound on the log prior mass of the sizes S with lower ≤ S < upper in every variable, nats.

        It equals the mass except for priors whose tail is only bounded. None in `upper` means no end.
        """
        return self._box(lower, upper)

    def log_pmf(self, size: Size | int) -> float:
        """Return the log prior probability of one size, nats. Raises ValueError for anything that is not a size."""
        return self._pmf(as_size(size, self.dimension))

    def log_mass(self, corner: Size | int) -> float:
        """Return the log prior mass of all sizes that are at least `corner` in every variable, nats.

        Raises ValueError for anything that is not a size.
        """
        return self._box(as_size(corner, self.dimension), (None,) * self.dimension)

    def log_box(self, lower: Size, upper: OpenSize) -> float:
        """Return the log prior mass of the sizes S with lower ≤ S < upper in every variable, nats.

        None in `upper` means no end. For a prior whose tail is only bounded, the result is the known mass, a lower
        bound.

        Raises ValueError if the number of ends differs from the number of size variables.
        """
        lower, empty = self._checked_box(lower, upper)
        return -math.inf if empty else self._box(lower, upper)

    def log_box_upper(self, lower: Size, upper: OpenSize) -> float:
        """Return an upper bound on the log prior mass of the sizes S with lower ≤ S < upper in every variable, nats.

        It equals `log_box` where masses are known. None in `upper` means no end.

        Raises ValueError if the number of ends differs from the number of size variables.
        """
        lower, empty = self._checked_box(lower, upper)
        return -math.inf if empty else self._box_upper(lower, upper)

    def log_mass_upper(self, corner: Size | int) -> float:
        """Return an upper bound on the log prior mass of all sizes that are at least `corner` in every variable, nats.

        It equals `log_mass` where masses are known. Raises ValueError for anything that is not a size.
        """
        return self._box_upper(as_size(corner, self.dimension), (None,) * self.dimension)

    def _checked_box(self, lower: Size, upper: OpenSize) -> tuple[Size, bool]:
        """Return the checked lower corner of a box of sizes as a tuple, and True if the box holds no size.

        Raises ValueError if the number of ends differs from the number of size variables.
        """
        lower = as_size(lower, self.dimension)
        if len(upper) != self.dimension:
            raise ValueError(f"A box has {self.dimension} upper ends (None for no end): got {upper!r}.")
        return lower, any(end is not None and end <= start for start, end in zip(lower, upper, strict=True))

    def log_tilted_mass(self, start: int, slope: float | int) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, nats; may be +inf.

        It bounds the prior × evidence of all sizes from `start` on, if log evidence rises by at most `slope` per unit.

        start: the first size.
        slope: nats per unit of size.

        Raises ValueError for several size variables, and for a slope that is not a number.
        """
        if self.dimension != 1:
            raise ValueError(f"A tilted mass needs one size variable: this prior has {self.dimension}.")
        if math.isnan(slope):
            raise ValueError("The slope of a tilted mass is not a number; give nats per unit of size.")
        return self._tilted(as_size(start, 1)[0], float(slope))


class Univariate(SizePrior):
    """A prior over one size variable with infinite support, 1, 2, ….

    Subclasses define the probability of arrays of sizes and the tilted tail, in closed form.
    """

    @property
    def dimension(self) -> int:
        """The number of size variables that the prior is over."""
        return 1

    @abstractmethod
    def _log_pmf_at(self, sizes: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " sizes"]:
        """Return the log prior probability of each of several sizes, (sizes,), nats."""
        ...

    def _pmf(self, size: Size) -> float:
        """Return the log prior probability of one size, nats."""
        return float(self._log_pmf_at(np.array(size, dtype=np.float64))[0])

    def _box(self, lower: Size, upper: OpenSize) -> float:
        """Return log p(lower ⪯ S ≺ upper), the log prior mass of a box of sizes, nats.

        The box holds the sizes with lower ≤ S < upper in every variable; None in `upper` means no end.
        """
        (start,), (end,) = lower, upper
        from_start = 0.0 if start == 1 else self._tilted(start, 0.0)
        if end is None:
            return from_start
        beyond = self._tilted(end, 0.0) - from_start
        if beyond < LOG_HALF:  # subtracting less than half loses no digits
            return from_start + log_one_minus(beyond)
        return log_sum(self._log_pmf_at(np.arange(start, end, dtype=np.float64)))


@dataclass(frozen=True)
class Poisson(Univariate):
    """A Poisson prior over sizes 1, 2, …: Poisson(rate) given that it is positive; 1 + Poisson(rate) if `shifted`."""

    rate: float | int
    shifted: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for parameters of the prior that are out of range."""
        real_number("rate", self.rate, above=0)
        yes_or_no("shifted", self.shifted)

    def _log_normaliser(self) -> float:
        """Return the log-probability that a Poisson(rate) number is positive; 0 if the prior is shifted."""
        return 0.0 if self.shifted else log_one_minus(-float(self.rate))

    def _log_pmf_at(self, sizes: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " sizes"]:
        """Return the log prior probability of each of several sizes, (sizes,), nats."""
        counts = sizes - 1.0 if self.shifted else sizes
        return counts * math.log(self.rate) - self.rate - gammaln(counts + 1.0) - self._log_normaliser()

    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, a tail of the prior tilted by an exponential, nats.

        start: the first size. slope: nats per unit of size. The result may be +inf.
        """
        # e^{slope k} times a Poisson(rate) pmf is e^{tilted − rate} times a Poisson(tilted = rate e^slope) pmf.
        count = start - 1 if self.shifted else start
        tilted = self.rate * math.exp(slope) if slope < 700.0 else math.inf
        if math.isinf(tilted):
            return math.inf
        if count >= tilted:
            first = float(self._log_pmf_at(np.array([start], dtype=np.float64))[0])
            return first + log_ratio_series(lambda j: tilted / (count + 1.0 + j))
        below = -math.inf
        if count > 0:
            below = (count - 1) * math.log(tilted) - tilted - float(gammaln(count))
            below += log_ratio_series(lambda j: np.maximum(count - 1.0 - j, 0.0) / tilted)
        return -slope * count + (tilted - self.rate) + log_one_minus(below) - self._log_normaliser()

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "geometric with p = 0.05 (mean 20), on 1, …"."""
        form = f"1 + Poisson with rate {self.rate:g}" if self.shifted else f"zero-truncated Poisson, rate {self.rate:g}"
        return f"{form}, on 1, 2, 3, …"

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        return {"type": "poisson", "rate": self.rate, "shifted": self.shifted}


@dataclass(frozen=True)
class Geometric(Univariate):
    """The geometric prior p(s) = p (1 − p)^{s−1} for s = 1, 2, …, with mean 1/p."""

    p: float | int

    def __post_init__(self) -> None:
        """Raise ValueError for parameters of the prior that are out of range."""
        real_number("p", self.p, above=0, below=1)  # the mean is 1 / p

    def _log_pmf_at(self, sizes: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " sizes"]:
        """Return the log prior probability of each of several sizes, (sizes,), nats."""
        return math.log(self.p) + (sizes - 1.0) * math.log1p(-self.p)

    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, a tail of the prior tilted by an exponential, nats.

        start: the first size. slope: nats per unit of size. The result may be +inf.
        """
        tail = (start - 1) * math.log1p(-self.p)
        if slope == 0.0:
            return tail
        log_ratio = math.log1p(-self.p) + slope
        return math.inf if log_ratio >= 0.0 else tail + math.log(self.p) - log_one_minus(log_ratio)

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "geometric with p = 0.05 (mean 20), on 1, …"."""
        return f"geometric with p = {self.p:g} (mean {1 / self.p:g}), on 1, 2, 3, …"

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        return {"type": "geometric", "p": self.p}


@dataclass(frozen=True)
class NegativeBinomial(Univariate):
    """A negative binomial prior: S = 1 + N, where N has mean m = `mean` − 1 and variance m + m²/concentration.

    The distribution is shifted, not truncated, so `mean` is exactly the mean of S; it must exceed 1. Concentration 1 is
    Geometric(1/mean); a large concentration approaches the shifted Poisson.
    """

    mean: float | int
    concentration: float | int

    def __post_init__(self) -> None:
        """Raise ValueError for parameters of the prior that are out of range."""
        real_number("mean", self.mean, above=1)  # sizes are at least 1
        real_number("concentration", self.concentration, above=0)

    def _log_stop_and_go(self) -> tuple[float, float]:
        """Return log(1 − x) and log x of the negative binomial's parameter x = m / (m + concentration), m = mean − 1.

        x is the factor of each further count.
        """
        odds = (self.mean - 1.0) / self.concentration
        return -math.log1p(odds), -math.log1p(1.0 / odds)

    def _log_pmf_at(self, sizes: Float[np.ndarray, " sizes"]) -> Float[np.ndarray, " sizes"]:
        """Return the log prior probability of each of several sizes, (sizes,), nats."""
        log_stop, log_go = self._log_stop_and_go()
        counts, r = sizes - 1.0, float(self.concentration)
        log_coefficient = -np.log(counts + r) - betaln(counts + 1.0, r)  # Γ(k + r) / (k! Γ(r)) without cancellation
        return log_coefficient + r * log_stop + counts * log_go

    def _tilted(self, start: int, slope: float) -> float:
        """Return log Σ_{t ≥ start} p(t) e^{slope (t − start)}, a tail of the prior tilted by an exponential, nats.

        start: the first size. slope: nats per unit of size. The result may be +inf.
        """
        # Σ_{k ≥ n} pmf(k) e^{slope (k − n)} = pmf(n) ₂F₁(1, n + r; n + 1; x), x = (1 − stop) e^slope; the same
        # ₂F₁ stands in the incomplete beta function I_x(n, r), hence its continued fraction or its complement.
        log_stop, log_go = self._log_stop_and_go()
        n, r = start - 1, float(self.concentration)
        log_x = log_go + slope
        if log_x >= 0.0:
            return math.inf
        x, one_minus_x = math.exp(log_x), -math.expm1(log_x)
        if n > 0 and x < (n + 1.0) / (n + r + 2.0):
            first = float(self._log_pmf_at(np.array([start], dtype=np.float64))[0])
            return first + math.log(_incomplete_beta_fraction(float(n), r, x))
        below = float(betainc(r, n, one_minus_x)) if n > 0 else 0.0  # at most about a half here
        tilt = 0.0 if slope == 0.0 else r * (log_stop - math.log(one_minus_x)) - slope * n
        return tilt + math.log1p(-below)

    def describe(self) -> str:
        """Return the prior in words, in one line for people, such as "geometric with p = 0.05 (mean 20), on 1, …"."""
        return f"1 + negative binomial, mean {self.mean:g} in all, concentration {self.concentration:g}, on 1, 2, 3, …"

    def to_json(self) -> dict[str, Any]:
        """Return the type name and parameters as JSON data, from which `from_json` builds an equal prior."""
        return {"type": "negative-binomial", "mean": self.mean, "concentration": self.concentration}


def _incomplete_beta_fraction(a: float, b: float, x: float) -> float:
    """Compute ₂F₁(1, a + b; a + 1; x) = I_x(a, b) a B(a, b) / (x^a (1−x)^b) as a continued fraction, by Lentz's method.

    It converges in O(√max(a, b)) steps for x < (a + 1) / (a + b + 2).

    Source: DLMF 8.17.22.
    """
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    value, m = d, 0
    while True:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d, c = 1.0 / (1.0 + even * d), 1.0 + even / c
        value *= d * c
        d, c = 1.0 / (1.0 + odd * d), 1.0 + odd / c
        step = d * c
        value *= step
        if abs(step - 1.0) < 4e-16:
            return value
