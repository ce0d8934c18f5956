"""Positive hyper-parameters that are either fixed or inferred under a Gamma prior."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from lvsearch.models.contract import HyperparameterArray, concentration_parameter, hyperparameter, is_known_false
from lvsearch.models.families import GammaStatistics


class GammaPrior(NamedTuple):
    """Gamma(shape, rate), with mean shape/rate: the prior of a positive number that is to be inferred."""

    shape: Any = 1.0
    rate: Any = 1.0


UNIT_PRIOR = GammaPrior()


def positive_or_gamma_prior(name: str, value: Any) -> HyperparameterArray | GammaPrior:
    """Return a positive hyper-parameter: a number as an array, or a `GammaPrior` with its two parameters as arrays.

    name: the name of the hyper-parameter, for the error. value: a positive number or a `GammaPrior`.

    Raises ValueError for any other value.
    """
    if isinstance(value, GammaPrior):
        return GammaPrior(_positive(f"the shape of {name}", value.shape), _positive(f"the rate of {name}", value.rate))
    return _positive(name, concentration_parameter(name, value))


def log_gamma_density(prior: GammaPrior, x: GammaStatistics) -> Array:
    """Return the log-density of Gamma(shape, rate) at x, in nats.

    prior: the shape and the rate. x: statistics (log x, −x).
    """
    shape, rate = prior
    return shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * x.log_value + rate * x.negative_value


def prior_mean(value: Any) -> Any:
    """Return a hyper-parameter, or the mean of its prior if it has one."""
    return value.shape / value.rate if isinstance(value, GammaPrior) else value


def as_text(value: Any) -> str:
    """Describe a hyper-parameter as text, such as "2", "~ Gamma(1, rate 1)" or "given for 3 columns"."""
    if isinstance(value, GammaPrior):
        return f"~ Gamma({float(value.shape):g}, rate {float(value.rate):g})"
    array = np.asarray(value)
    return f"{array.item():g}" if array.size == 1 else f"given for {array.shape[0]} columns"


def described_rate(rate: Any, least: float) -> str:
    """Describe the rate of a Gamma and close its bracket, such as "0.5)", or "β), β ~ Gamma(1, rate 1)" with a prior.

    rate: a number, one per column, or a `GammaPrior`. least: what is added to the rate, named unless it is 0.
    """
    added = f" + {least:g}" if least else ""
    return f"β{added}), β {as_text(rate)}" if isinstance(rate, GammaPrior) else f"{as_text(rate)}{added})"


def _positive(name: str, value: Any) -> HyperparameterArray:
    """Return one positive number as an array of shape (). Raises ValueError, with `name`, for any other value."""
    array = hyperparameter(value)
    if array.ndim or is_known_false(array > 0):
        raise ValueError(f"{name} must be one positive number, got {value!r}; give a number or a GammaPrior")
    return array
