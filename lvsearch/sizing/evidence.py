"""The evidence of one fit, an interval on log p(data | size, parameters) in nats, and its entry in a search."""

import math
from dataclasses import dataclass

from lvsearch.models.plain_arguments import shortened_repr


@dataclass(frozen=True, init=False)
class Evidence:
    """The log evidence of one fit: an interval lower ≤ log p(data | size, parameters) ≤ upper, with a standard error.

    All numbers are in nats. For marginal evidence the parameters are integrated out.

    lower: the lower end; −inf means probability zero.
    upper: the upper end, by default `lower` (a known value); +inf means that nothing is known from above.
    standard_error: the standard error of an estimate, finite and at least 0.

    Raises ValueError for NaN (a failed fit is reported, not ranked), a `lower` of +inf, ends in the wrong order, or a
    standard error that is negative or infinite.
    """

    lower: float
    upper: float
    standard_error: float

    def __init__(self, lower: float | int, upper: float | int | None = None, standard_error: float | int = 0.0) -> None:
        try:
            lower, standard_error = float(lower), float(standard_error)
            upper = lower if upper is None else float(upper)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"Evidence is a number of nats: got {shortened_repr((lower, upper, standard_error))}."
            ) from error
        if any(math.isnan(number) for number in (lower, upper, standard_error)):
            raise ValueError(
                f"Evidence is not a number: got lower={lower}, upper={upper}, standard_error={standard_error}. "
                "A NaN is a failed fit and is not ranked; find out why the fit failed, or leave this size out."
            )
        if lower == math.inf or lower > upper:
            raise ValueError(
                f"Evidence must have lower <= upper with lower below infinity: got lower={lower}, upper={upper}. "
                "Give log-probabilities in nats, the lower end first."
            )
        if not 0.0 <= standard_error < math.inf:
            raise ValueError(f"A standard error must be finite and at least 0 (nats): got {standard_error}.")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "standard_error", standard_error)


@dataclass(frozen=True)
class Record:
    """A size that a search tried, with its evidence.

    size: one number per size variable.
    evidence: the evidence of the fit, or of a smaller size (a witness) that had a better one.
    replaced_by: the smaller size whose evidence was recorded instead; None if the evidence is the size's own.
    """

    size: tuple[int, ...]
    evidence: Evidence
    replaced_by: tuple[int, ...] | None = None
