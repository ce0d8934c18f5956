"""Positive hyper-parameters that are either given or inferred under a Gamma prior."""

from typing import Any, NamedTuple

import numpy as np

from lvsearch.models.contract import concentration_parameter, hyperparameter


class GammaPrior(NamedTuple):
    """Gamma(shape, rate), mean shape/rate: the prior of a positive number that is to be inferred."""

    shape: Any = 1.0
    rate: Any = 1.0


UNIT_PRIOR = GammaPrior()


def given_or_prior(name: str, value: Any) -> np.ndarray | GammaPrior:
    """A positive number, or a `GammaPrior` of positive numbers, as NumPy leaves. Raises ValueError otherwise."""
    if isinstance(value, GammaPrior):
        return GammaPrior(_positive(f"the shape of {name}", value.shape), _positive(f"the rate of {name}", value.rate))
    return _positive(name, concentration_parameter(name, value))


def in_words(value: np.ndarray | GammaPrior) -> str:
    """Such as "2" or "~ Gamma(1, rate 1)"."""
    if isinstance(value, GammaPrior):
        return f"~ Gamma({float(value.shape):g}, rate {float(value.rate):g})"
    return f"{float(value):g}"


def _positive(name: str, value: Any) -> np.ndarray:
    array = hyperparameter(value)
    if array.ndim or not array > 0:
        raise ValueError(f"{name} must be one positive number, got {value!r}; give a number or a GammaPrior")
    return array
