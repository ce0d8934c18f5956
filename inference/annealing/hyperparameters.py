"""Hyper-parameters on an annealing path: the two ends of their path, draws and densities there, and a slice move along
it.

With a Gamma prior p(h) and a first distribution q(h) that is a Gamma, q(h)^(1−t) p(h)^t is a Gamma for every t. Any
other factor that depends on h is covered by a slice move on the log scale. That move leaves the product unchanged, and
is its own time reversal.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.hyperpriors import GammaPrior

ABOUT = 4.0
"""Shape of the Gamma q about a number, whose standard deviation is then half the number.

A q ten times as wide as the posterior costs two nats of distance. A q that is too narrow is corrected on the way.
"""
LogHyper = dict[str, Float[Array, "column particle"]]
"""Logarithms of hyper-parameters by name, (column, particle); there is one column if all columns share a value."""
WIDTH = 4.0
"""Width of a slice's first interval, in log h."""


class Course(NamedTuple):
    """The two ends of a hyper-parameter's annealing path: its prior p(h), and the first distribution q(h) (`start`)."""

    prior: GammaPrior
    start: GammaPrior

    def gamma_at(self, temperature: Float[Array, ""]) -> tuple[Array, Array]:
        """Return (shape, rate) of the Gamma distribution ∝ q(h)^(1−t) p(h)^t at temperature t."""
        (shape, rate), (first_shape, first_rate) = ((jnp.asarray(each) for each in prior) for prior in self)
        t = temperature
        return (1 - t) * first_shape + t * shape, (1 - t) * first_rate + t * rate

    def log_prior(self, log_value: Float[Array, "*number particle"]) -> Float[Array, "*number particle"]:
        """Return log p(h) at h = e^log_value, a density of h, in nats, shaped like `log_value`."""
        return _log_gamma_density(self.prior, log_value)

    def log_ratio(self, log_value: Float[Array, "*number particle"]) -> Float[Array, "*number particle"]:
        """Return log p(h) − log q(h) at h = e^log_value, in nats, shaped like `log_value`."""
        return self.log_prior(log_value) - _log_gamma_density(self.start, log_value)


def _log_gamma_density(prior: GammaPrior, log_value: Array) -> Array:
    """Return the log density of a Gamma distribution at h = e^log_value, a density of h, in nats."""
    shape, rate = (jnp.asarray(each, log_value.dtype) for each in prior)
    constant = shape * jnp.log(rate) - log_gamma_positive(shape)
    return constant + (shape - 1) * log_value - rate * jnp.exp(log_value)


def gamma_around(value: Any) -> GammaPrior:
    """Return a Gamma distribution with mean `value` and shape `ABOUT`, so that its standard deviation is half its
    mean.
    """
    return GammaPrior(np.asarray(ABOUT), np.asarray(ABOUT / value))


def courses_around(courses: Mapping[str, Course], log_hyper: Mapping[str, Any]) -> dict[str, Course]:
    """Return the courses of hyper-parameters with starts around given values (`gamma_around`), by name.

    log_hyper: the logarithm of each hyper-parameter's value, by name.
    """
    return {name: course._replace(start=gamma_around(jnp.exp(log_hyper[name]))) for name, course in courses.items()}


def courses_from_draws(courses: Mapping[str, Course], log_hyper: Mapping[str, Any]) -> dict[str, Course]:
    """Return the courses of hyper-parameters with starts that are as wide as some draws of the posterior, by name.

    No start has a shape below `ABOUT`. A path from the posterior back to such a start has weights of small variance.
    Back to a prior that is much wider than the posterior, their variance may be infinite: the prior has most of its
    mass where no draw is.

    log_hyper: the logarithm of each hyper-parameter in every draw, by name, (column, particle).
    """

    def start(log_draws: Any) -> GammaPrior:
        """Return the Gamma distribution around the draws' mean, (column, 1). The variance of a log Gamma is 1/shape."""
        shape = jnp.maximum(ABOUT, 1 / jnp.maximum(log_draws.var(-1, keepdims=True), 1e-6))
        return GammaPrior(shape, shape / jnp.exp(log_draws.mean(-1, keepdims=True)))

    return {name: course._replace(start=start(log_hyper[name])) for name, course in courses.items()}


def courses_from_priors(priors: Mapping[str, GammaPrior]) -> dict[str, Course]:
    """Return the courses of hyper-parameters that start from their priors, by name."""
    return {name: Course(prior, prior) for name, prior in priors.items()}


def count_values(hyper_axes: Mapping[str, tuple[str, ...]], n_dims: int) -> dict[str, int]:
    """Return the number of values of each hyper-parameter, by name: one for each column of the data, or one.

    hyper_axes: the axes of each hyper-parameter, by name: ("dim",) or ().
    n_dims: the number of columns.
    """
    return {name: n_dims if axes else 1 for name, axes in hyper_axes.items()}


def draw_log_hyper(
    key: Key[Array, ""], courses: Mapping[str, Course], n_values: Mapping[str, int], particles: int
) -> LogHyper:
    """Draw the logarithms of hyper-parameters from the starts of their courses.

    n_values: the number of values of each hyper-parameter, by name (`count_values`).
    particles: the number of draws of each value.
    """
    log_hyper = {}
    for number, (name, course) in enumerate(courses.items()):
        shape, rate = (jnp.asarray(each, jnp.result_type(float)) for each in course.start)
        shapes = jnp.broadcast_to(shape, (n_values[name], particles))
        log_hyper[name] = log_gamma_draws(jax.random.fold_in(key, number), shapes) - jnp.log(rate)
    return log_hyper


def draw_log_hyper_on_host(
    random: np.random.Generator, courses: Mapping[str, Course], n_values: Mapping[str, int], particles: int
) -> dict[str, Float[np.ndarray, "column particle"]]:
    """Draw what `draw_log_hyper` draws on the host, for which no program is compiled.

    random: the source of random numbers, which changes.
    n_values: the number of values of each hyper-parameter, by name (`count_values`).
    particles: the number of draws of each value.
    """
    log_hyper = {}
    for name, course in courses.items():
        shape, rate = (np.asarray(each, np.float64) for each in course.start)
        columns = (n_values[name], particles)
        # Gamma(a) is Gamma(a + 1) times u^(1/a), with uniform u; on the log scale small shapes do not underflow
        boost = random.exponential(size=columns) / shape
        log_hyper[name] = np.log(random.gamma(shape + 1, size=columns)) - boost - np.log(rate)
    return log_hyper


def log_prior_of_hyper(courses: Mapping[str, Course], log_hyper: Mapping[str, Array]) -> Float[Array, "*particle"]:
    """Return log p(h) of all hyper-parameters h together, a density of h, in nats, (particle,); 0 if there are none."""
    return sum((course.log_prior(log_hyper[name]).sum(0) for name, course in courses.items()), jnp.zeros(()))


def log_ratio_of_hyper(courses: Mapping[str, Course], log_hyper: Mapping[str, Array]) -> Float[Array, "*particle"]:
    """Return log p(h) − log q(h) of all hyper-parameters h together, in nats, (particle,); 0 if there are none."""
    return sum((course.log_ratio(log_hyper[name]).sum(0) for name, course in courses.items()), jnp.zeros(()))


def move_log_hyper(
    key: Key[Array, ""],
    courses: Mapping[str, Course],
    log_hyper: LogHyper,
    log_units: Callable[[LogHyper], Float[Array, "cell particle"]],
    temperature: Float[Array, ""],
    *,
    backward: bool,
) -> LogHyper:
    """Return the logarithms of hyper-parameters after a slice move of each, given everything else.

    Values of several columns move at once if the columns are independent given the hyper-parameter, else one after
    another.

    log_units: log_hyper -> the log-probability of the units given the hyper-parameters, up to a constant, in nats: a
        row for each column if the columns are independent, or one row.
    temperature: t of the hyper-parameters' own distribution, from 0 (q) to 1 (their prior).
    backward: move in the reverse order.
    """
    log_hyper, names = dict(log_hyper), list(enumerate(courses))
    for number, name in reversed(names) if backward else names:
        shape, rate = courses[name].gamma_at(temperature)

        def log_density(log_value: Array, name: str = name, shape: Array = shape, rate: Array = rate) -> Array:
            """Return the log density of one hyper-parameter at its logarithm: of each column's value, or of all."""
            of_units = log_units({**log_hyper, name: log_value})
            of_value = shape * log_value - rate * jnp.exp(log_value)
            if len(of_units) == len(of_value):
                return of_value + of_units
            return of_value.sum(0, keepdims=True) + of_units.sum(0, keepdims=True)

        log_hyper[name] = _slice_sample_columns(
            jax.random.fold_in(key, number), log_hyper[name], log_density, backward=backward
        )
    return log_hyper


def _slice_sample_columns(key: Array, start: Array, log_density: Callable[[Array], Array], *, backward: bool) -> Array:
    """Return the values of one hyper-parameter after a slice move: of all columns at once if they are independent, else
    of one after another.

    start: the logarithms before, (column, particle).
    log_density: the logarithms -> their log density, nats: a row for each column if they are independent.
    backward: take columns in the reverse order.
    """
    n_columns = len(start)
    if jax.eval_shape(log_density, start).shape == start.shape:
        return slice_sample(key, start, log_density)

    def move_one(index: Array, value: Array) -> Array:
        """Move the value of one column given the others."""
        column = n_columns - 1 - index if backward else index
        moved = slice_sample(
            jax.random.fold_in(key, column), value[column][None], lambda x: log_density(value.at[column].set(x[0]))
        )
        return value.at[column].set(moved[0])

    return jax.lax.fori_loop(0, n_columns, move_one, start)


def slice_sample(
    key: Key[Array, ""],
    start: Float[Array, "number particle"],
    log_density: Callable[[Float[Array, "number particle"]], Float[Array, "number particle"]],
) -> Float[Array, "number particle"]:
    """Return each number after one move of slice sampling, a reversible move that leaves its density unchanged.

    An interval of `WIDTH` is placed at random over the start, and shrunk towards the start wherever a draw falls
    outside the slice. There is no stepping out. A density that is NaN ends the search for a draw. The value is passed
    on, so that it is reported.

    start: the numbers before, on the log scale, (number, particle).
    log_density: numbers -> the log density of each, whatever the others are, (number, particle), in nats.

    Source: Neal 2003, §4.
    """
    key_slice, key_draws = jax.random.split(key)
    height, place = jax.random.uniform(key_slice, (2, *start.shape), start.dtype)
    level = log_density(start) + jnp.log1p(-height)
    low = start - WIDTH * place

    def searching(carry: tuple[Array, Array, Array, Array, Array]) -> Array:
        """Return True while any number still lacks a draw inside its slice."""
        return ~carry[-1].all()

    def draw(carry: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        """Draw from each interval again, and shrink the intervals whose draw falls outside the slice."""
        index, low, high, new, done = carry
        share = jax.random.uniform(jax.random.fold_in(key_draws, index), start.shape, start.dtype)
        proposed = jnp.where(done, new, low + share * (high - low))
        inside = done | ~(log_density(proposed) < level)
        low = jnp.where(~inside & (proposed < start), proposed, low)
        high = jnp.where(~inside & (proposed >= start), proposed, high)
        return index + 1, low, high, proposed, inside

    begin = jnp.asarray(0), low, low + WIDTH, start, jnp.zeros(start.shape, bool)
    return jax.lax.while_loop(searching, draw, begin)[3]
