r"""Components of directions: rows of length 1, such as embeddings that are compared by their cosines.

A row x is from a von Mises–Fisher distribution, whose mean direction μ and concentration κ both are unknown. A
continuous κ has no prior whose posterior is in closed form, so κ is one of G values κ_1 … κ_G: then the posterior is
exact. With θ = κμ, x on the unit sphere of D columns, and E_u the average over all directions u,

    log p(x | θ) = ⟨θ, x⟩ − F(|θ|²) − log (area of the sphere),        F(|θ|²) = log E_u exp⟨θ, u⟩.

So the sufficient statistics are t(θ) = (θ, −F(|θ|²)), a row adds s(x) = (x, 1) to the natural parameters, and
−log(area) depends on no parameter. A priori every κ_g is as probable as any other, and μ uniform. With natural
parameters η = (v, n), where v is a sum of rows and n their number,

    A(v, n) = log (1/G) Σ_g exp(F(κ_g² |v|²) − n F(κ_g²)),

since E_μ exp(κ_g⟨μ, v⟩) = exp F(κ_g² |v|²). It is smooth in |v|², also at v = 0. Sources: Mardia & Jupp (2000),
*Directional Statistics*, §9.3 and §10.5, for the distribution; Banerjee, Dhillon, Ghosh & Sra (2005) for its mixtures.
"""

from functools import cache
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.polynomial import chebyshev, polynomial
from scipy.special import gammaln

from lvsearch.models.components.arguments import refuse_partial_rows
from lvsearch.models.components.component import Component
from lvsearch.models.exponential.family import NumpyroDistribution, RandomKey, UnitCarrierFamily
from lvsearch.models.families import Family
from lvsearch.models.plain_arguments import numbers
from lvsearch.models.units import Row

LEAST_ORDER, TERMS = 12, 12
"""The smallest order of a Bessel function that is computed by its uniform expansion, and the number of its terms.

Relative errors are below 1e-12 then; lower orders follow by recurrence, which makes errors smaller.
"""
NODES, NEGLIGIBLE = 128, 2e-14
"""The number of Chebyshev nodes at which the remainder of `log_average` is known, and the size of the last coefficients
that are left out, in nats."""
SAME_LENGTH = 1e-3
"""The largest difference of a row's length from 1. Rows are divided by their length, so rounding does not matter."""
NEWTON_STEPS, HALVINGS = 60, 24
"""The number of Newton's steps to the natural parameters of given means, and of the lengths 1, ½ … that each tries."""


# ── the average of an exponential over the sphere ───────────────────────────────────────────────────────────────────


class LogAverage(NamedTuple):
    """F(x) = log E_u exp⟨θ, u⟩ over all directions u, where x = |θ|², in nats, and twice its derivative by x."""

    value: Any
    slope: Any


def log_average(square: Any, n_dims: int, library: Any = jnp) -> LogAverage:
    """Return F(x) = log E_u exp⟨θ, u⟩ over all directions u, where x = |θ|², and 2F'(x), in the shape of `square`.

    2F'(x) is the length of the mean of a row divided by its concentration.

    In D columns, with M = D/2 + 1 and s = √(M² + x), it is a closed form and a smooth remainder R of M/s in [0, 1]:

        F(x) = s − M − ½(D − 1) log((M + s) / 2M) + R(M/s).

    R is a polynomial of some twenty terms. Errors of F are below 1e-12 (1 + F).

    square: x = |θ|², at least 0. n_dims: D, at least 2. library: `jax.numpy`, or `numpy` for constants.
    """
    coefficients, steepness = _remainder_powers(n_dims)
    top, half = n_dims / 2 + 1, 0.5 * (n_dims - 1)
    root = library.sqrt(top**2 + square)
    gap = square / (top + root)  # s − M without cancellation
    place = 2 * top / root - 1
    value = gap - half * library.log1p(gap / (2 * top)) + _polynomial(coefficients, place)
    slope = (1 - half / (top + root) - (1 + place) / root * _polynomial(steepness, place)) / root
    return LogAverage(value, slope)


def _polynomial(coefficients: tuple[float, ...], at: Any) -> Any:
    """Return the polynomial with these coefficients of powers 0, 1, … at some points, by Horner's rule."""
    total = coefficients[-1] + 0.0 * at
    for coefficient in coefficients[-2::-1]:
        total = total * at + coefficient
    return total


@cache
def _remainder_powers(n_dims: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the coefficients of R in `log_average` by powers of 2M/s − 1, and those of its derivative.

    They are those of a Chebyshev series, whose coefficients fall so fast that powers keep the digits. n_dims: D.
    """
    nodes = chebyshev.chebpts1(NODES)
    found = chebyshev.chebfit(nodes, _remainder(0.5 * (1 + nodes), n_dims), NODES - 1)
    kept = chebyshev.chebtrim(found, NEGLIGIBLE * max(1.0, n_dims / 32))  # rounding grows with D
    kept[0] -= chebyshev.chebval(1.0, kept)  # F(0) is 0
    powers = chebyshev.cheb2poly(kept)
    return tuple(powers.tolist()), tuple(polynomial.polyder(powers).tolist())


def _remainder(share: np.ndarray, n_dims: int) -> np.ndarray:
    """Return R of `log_average` at some values of M/s, to all digits.

    With ν = D/2 − 1 and κ = |θ|, exp F is Γ(ν + 1) (2/κ)^ν I_ν(κ). The Bessel function of an order T of at least 12 has
    a uniform expansion (Abramowitz & Stegun 1964, 9.7.7) with r = √(T² + x):

        log [I_T(κ) κ^−T] = r − T log(T + r) − ½ log r + log U(T/r) + constant,       U(p) = Σ_k u_k(p) / T^k.

    Let q_ν = I_{ν+1} / (κ I_ν) = 2F'(x). Lower orders follow from I_{ν−1} = I_{ν+1} + (2ν/κ) I_ν, which is
    1/q_{ν−1} = 2ν + x q_ν, so that F of order ν − 1 is F of order ν plus log(1 + x q_ν / 2ν).

    share: M/s, in (0, 1). n_dims: D, the number of columns.
    """
    top, order = n_dims / 2 + 1, n_dims / 2 - 1
    root = top / share
    square = (root - top) * (root + top)
    steps = max(0, int(np.ceil(LEAST_ORDER - order)))
    high = order + steps
    coefficients, high_root = _expansion(high), np.sqrt(high**2 + square)
    at, gap = high / high_root, square / (high + high_root)
    series = polynomial.polyval(at, coefficients)
    # r − T less s − M, without cancellation
    value = (high**2 - top**2) / (high_root + root) - (high - top)
    value = value - high * np.log1p(gap / (2 * high)) - 0.5 * np.log1p(gap / high)
    value = value + 0.5 * (n_dims - 1) * np.log((top + root) / (2 * top)) + np.log(series)
    steepness = at * polynomial.polyval(at, polynomial.polyder(coefficients)) / series
    slope = 1 / (high + high_root) - (0.5 + steepness) / high_root**2
    for number in range(steps):
        twice = 2 * (high - number)
        value = value + np.log1p(square * slope / twice)
        slope = 1 / (twice + square * slope)
    return value


def _expansion(order: float) -> np.ndarray:
    """Return the coefficients of U(p) = Σ_k u_k(p) / order^k by powers of p, for `_remainder`.

    Source: Abramowitz & Stegun (1964), 9.3.10: u_{k+1} = ½ p² (1 − p²) u_k' + ⅛ ∫_0^p (1 − 5r²) u_k(r) dr.
    """
    term = total = np.ones(1)
    for number in range(1, TERMS + 1):
        risen = polynomial.polymul([0, 0, 0.5, 0, -0.5], polynomial.polyder(term))
        term = polynomial.polyadd(risen, polynomial.polyint(polynomial.polymul([0.125, 0, -0.625], term)))
        total = polynomial.polyadd(total, term / order**number)
    return total


def log_area(n_dims: int) -> float:
    """Return the log of the area of the unit sphere in `n_dims` columns, log 2π^(D/2) / Γ(D/2)."""
    return float(np.log(2) + 0.5 * n_dims * np.log(np.pi) - gammaln(0.5 * n_dims))


def draw_direction(key: RandomKey, vector: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """Draw one row from the von Mises–Fisher distribution with θ = κμ, by rejection; from all directions where θ = 0.

    vector: θ, shape (dim,).

    Source: Wood (1994), *Simulation of the von Mises Fisher distribution*. The cosine is written as 1 − gap, so that no
    digits are lost where κ is large.
    """
    n_dims, dtype = vector.shape[-1], vector.dtype
    square = (vector**2).sum()
    is_uniform = square == 0
    kappa = jnp.sqrt(jnp.where(is_uniform, 1.0, square))
    centre = jnp.where(is_uniform, jnp.eye(n_dims, dtype=dtype)[0], vector / kappa)
    kappa = jnp.where(is_uniform, 0.0, kappa)
    key_gap, key_tangent = jax.random.split(key)

    b = (n_dims - 1) / (2 * kappa + jnp.sqrt(4 * kappa**2 + (n_dims - 1) ** 2))
    gap_of_mode = 2 * b / (1 + b)

    def propose(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        number, _, _ = carry
        key_beta, key_uniform = jax.random.split(jax.random.fold_in(key_gap, number))
        half = jnp.asarray(0.5 * (n_dims - 1), dtype)
        z = jax.random.beta(key_beta, half, half, dtype=dtype)
        gap = 2 * b * z / (1 - (1 - b) * z)
        # Wood's 1 − x₀w and 1 − x₀², in gaps
        of_row, of_mode = gap_of_mode + (1 - gap_of_mode) * gap, gap_of_mode * (2 - gap_of_mode)
        log_ratio = kappa * (gap_of_mode - gap) + (n_dims - 1) * jnp.log(of_row / of_mode)
        return number + 1, gap, jnp.log(jax.random.uniform(key_uniform, dtype=dtype)) <= log_ratio

    begin = jnp.zeros((), jnp.int32), jnp.zeros((), dtype), jnp.zeros((), bool)
    _, gap, _ = jax.lax.while_loop(lambda carry: ~carry[2], propose, begin)
    noise = jax.random.normal(key_tangent, vector.shape, dtype)
    across = noise - (noise * centre).sum() * centre
    across = across / jnp.sqrt((across**2).sum())
    return (1 - gap) * centre + jnp.sqrt(gap * (2 - gap)) * across


# ── the family of θ = κμ ────────────────────────────────────────────────────────────────────────────────────────────


class DirectionStatistics(NamedTuple):
    """Sufficient statistics (θ, −F(|θ|²)) of θ = κμ, or natural parameters (v, n).

    Elements lead; then the shapes are (D,) and () for D columns.
    """

    vector: Float[Array, "*element dim"]
    log_constant: Float[Array, "*element"]


class ConcentratedDirection(UnitCarrierFamily[DirectionStatistics]):
    """The conjugate prior of θ = κμ: μ is any direction, and κ one of G values.

    p(θ | η) = exp(⟨v, θ⟩ − n F(|θ|²) − A(v, n)), η = (v, n). It is a density relative to the distribution in which the
    values of κ are equally probable and μ is uniform, that of η = (0, 0). F and A are those of this file.

    concentrations: the values κ_1 … κ_G.
    """

    concentrations: tuple[float, ...] = eqx.field(static=True)

    event_ndim: ClassVar[int] = 1
    statistics_type: ClassVar[type | None] = DirectionStatistics
    field_event_ndims: ClassVar[tuple[int, ...] | None] = (1, 0)

    def log_normaliser(self, natural: DirectionStatistics, event_mask: None = None) -> Float[Array, "*element"]:
        return jax.nn.logsumexp(self._log_weights(natural)[0], axis=-1)

    def mean(self, natural: DirectionStatistics, event_mask: None = None) -> DirectionStatistics:
        log_weights, slope = self._log_weights(natural)
        probability = jax.nn.softmax(log_weights, axis=-1)
        kappa, constants = self._values(natural.vector)
        factor = (probability * kappa**2 * slope).sum(-1)
        return DirectionStatistics(factor[..., None] * natural.vector, -(probability * constants).sum(-1))

    def natural(self, mean: DirectionStatistics, event_mask: None = None) -> DirectionStatistics:
        """Return natural parameters η with the given mean.

        v has the direction of the mean of θ, so that its length r and n remain. They maximise the concave function
        r |E θ| − n E F − A, by Newton's method with the best of several step lengths.
        """
        n_dims = mean.vector.shape[-1]
        square = (mean.vector**2).sum(-1)
        exists = square > 0
        length = jnp.sqrt(jnp.where(exists, square, 1.0))
        axis = jnp.eye(n_dims, dtype=mean.vector.dtype)[0]

        def newton(length: Array, log_constant: Array) -> Array:
            def loss(at: Array) -> Array:
                natural = DirectionStatistics(at[0] * axis, at[1])
                return self.log_normaliser(natural) - at[0] * length - at[1] * log_constant

            steps = 0.5 ** jnp.arange(HALVINGS, dtype=length.dtype)

            def step(_: Any, at: Array) -> Array:
                slope, curvature = jax.grad(loss)(at), jax.hessian(loss)(at)
                ridge = jnp.finfo(at.dtype).eps * jnp.trace(curvature) + jnp.finfo(at.dtype).tiny
                ahead = jnp.linalg.solve(curvature + ridge * jnp.eye(2, dtype=at.dtype), slope)
                tried = jnp.concatenate([at[None], at - steps[:, None] * ahead])
                return tried[jnp.nanargmin(jax.vmap(loss)(tried))]

            return jax.lax.fori_loop(0, NEWTON_STEPS, step, jnp.ones(2, length.dtype))

        flat = jax.vmap(newton)(jnp.where(exists, length, 0.0).reshape(-1), mean.log_constant.reshape(-1))
        found = flat.reshape(*square.shape, 2)
        return DirectionStatistics((found[..., 0] / length)[..., None] * mean.vector, found[..., 1])

    def sample(self, key: RandomKey, natural: DirectionStatistics, event_mask: None = None) -> DirectionStatistics:
        """Draw κ, then μ given κ, for each element, and return the statistics of θ = κμ."""
        key_kappa, key_direction = jax.random.split(key)
        chosen = jax.random.categorical(key_kappa, self._log_weights(natural)[0])
        kappa, constants = (values[chosen] for values in self._values(natural.vector))
        vectors = (kappa[..., None] * natural.vector).reshape(-1, natural.vector.shape[-1])
        directions = jax.vmap(draw_direction)(jax.random.split(key_direction, len(vectors)), vectors)
        return DirectionStatistics(kappa[..., None] * directions.reshape(natural.vector.shape), -constants)

    def point(self, natural: DirectionStatistics, event_mask: None = None) -> DirectionStatistics:
        vector = self.mean(natural).vector
        return DirectionStatistics(vector, -log_average((vector**2).sum(-1), vector.shape[-1]).value)

    def value(self, statistics: DirectionStatistics, event_mask: None = None) -> Float[Array, "*element dim"]:
        return statistics.vector

    def to_numpyro(self, natural: DirectionStatistics) -> NumpyroDistribution:
        """Raise ValueError: NumPyro has no distribution of directions in any number of columns."""
        raise ValueError(
            "got the parameters of components of directions, of which NumPyro has no distribution; use the samplers of "
            "lvsearch"
        )

    def _values(self, like: Array) -> tuple[Float[Array, " value"], Float[Array, " value"]]:
        """Return (κ_g, F(κ_g²)) of each value of κ, shapes (value,), in the floating type of `like`, (…, dim)."""
        kappa = np.array(self.concentrations)
        constants = log_average(kappa**2, like.shape[-1], np).value
        return jnp.asarray(kappa, like.dtype), jnp.asarray(constants, like.dtype)

    def _log_weights(self, natural: DirectionStatistics) -> tuple[Array, Array]:
        """Return (log of the total mass of each κ_g, 2F'(κ_g² |v|²)), shapes (elements…, value).

        The first is log(1/G) + F(κ_g² |v|²) − n F(κ_g²).
        """
        kappa, constants = self._values(natural.vector)
        square = (natural.vector**2).sum(-1)[..., None]
        average = log_average(kappa**2 * square, natural.vector.shape[-1])
        return average.value - natural.log_constant[..., None] * constants - float(np.log(len(kappa))), average.slope


# ── the components ──────────────────────────────────────────────────────────────────────────────────────────────────


class VonMisesFisherComponents(Component):
    """Directions: x ~ von Mises–Fisher(μ, κ), rows of length 1 that lie about a mean direction μ.

    The prior is uniform over all directions μ, and κ is one of the values in `concentrations`, each equally probable.

    concentrations: the values of κ, positive and rising. A row's cosine with its mean direction is about
        κ / (D/2 + √(D²/4 + κ²)) in D columns. `weak(values)` chooses them by the number of columns.

    Rows have length 1, and no cell of a row may be missing.
    """

    concentrations: tuple[float, ...] = eqx.field(static=True)

    estimated: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = ("dim",)
    elliptical: ClassVar[bool] = False

    def __init__(self, concentrations: Any):
        values = np.atleast_1d(numbers("concentrations", concentrations))
        is_list = values.ndim == 1 and values.size > 0
        if not is_list or not np.isfinite(values).all() or not (np.diff(values, prepend=0.0) > 0).all():
            raise ValueError(
                f"got concentrations={concentrations!r}, expected positive numbers that rise, such as "
                "np.geomspace(1, 1000, 50)"
            )
        self.concentrations = tuple(values.tolist())

    @classmethod
    def weak(cls, values: Any, lowest: float | None = None, highest: float | None = None) -> "VonMisesFisherComponents":
        """Make the components with a weakly informative prior on how concentrated they are.

        values: (rows, columns): an array, a data frame of numbers, or `lv.Points`. Only the number of columns counts.
        lowest, highest: the ends of the values of κ. By default D/10 and 100 D in D columns, where the cosine of a row
            with its mean direction is about .1 and .995.

        From each value to the next, κ grows by at most a fifth, and in more than 41 columns by less. So a component
        whose κ lies between two values loses at most .1 nats a row.

        Raises ValueError unless 0 < lowest < highest.
        """
        n_dims = _required_columns(numbers("values", values).shape[-1])
        low = n_dims / 10 if lowest is None else lowest
        high = 100.0 * n_dims if highest is None else highest
        if not 0 < low < high < np.inf:
            raise ValueError(f"got lowest={lowest!r} and highest={highest!r}, expected 0 < lowest < highest")
        # the loss of a row is about (D − 1)/16 times the square of the step of log κ
        step = min(0.2, np.sqrt(1.6 / (n_dims - 1)))
        return cls(np.geomspace(low, high, 1 + int(np.ceil(np.log(high / low) / step))))

    @property
    def prior_family(self) -> Family:
        return ConcentratedDirection(self.concentrations)

    def describe(self) -> str:
        low, high = self.concentrations[0], self.concentrations[-1]
        return f"directions (concentration one of {len(self.concentrations)} values from {low:g} to {high:g})"

    def check(self, units: Row) -> None:
        values, whole = np.asarray(units.value, np.float64), np.asarray(units.observed).all(-1)
        _required_columns(values.shape[-1])
        refuse_partial_rows(units, "a direction has all of its cells")
        lengths = np.sqrt((values**2).sum(-1))
        wrong = np.flatnonzero(whole & ~(np.abs(lengths - 1) <= SAME_LENGTH))
        if wrong.size:
            raise ValueError(
                f"got row {int(wrong[0])} of length {lengths[wrong[0]]:g} for VonMisesFisherComponents, expected "
                "directions, rows of length 1: divide each row by its length, "
                "rows / np.linalg.norm(rows, axis=1, keepdims=True)"
            )

    def prior(self, n_dims: int) -> DirectionStatistics:
        return DirectionStatistics(jnp.zeros(n_dims), jnp.zeros(()))

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        """Return one row divided by its length, shape (dim,); 0 where a cell is missing. unit: the row."""
        x = jnp.where(jnp.asarray(unit.observed).all(), jnp.asarray(unit.value), 0.0)
        square = (x**2).sum()
        return x / jnp.sqrt(jnp.where(square > 0, square, 1.0))

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> DirectionStatistics:
        return DirectionStatistics(coordinates, observed.all().astype(coordinates.dtype))

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        return jnp.where(observed.all(), -log_area(coordinates.shape[-1]), 0.0).astype(coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return the greatest log-density of each row, in nats, shape (rows,).

        It is that of a component with the row as its mean direction and the highest concentration.
        """
        n_dims, kappa = np.shape(units.value)[-1], self.concentrations[-1]
        most = kappa - float(log_average(np.float64(kappa**2), n_dims, np).value) - log_area(n_dims)
        return np.where(np.asarray(units.observed).all(-1), most, 0.0)

    def free_parameters(self, n_dims: int) -> int:
        return n_dims

    def moments(self, statistics: DirectionStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """Return (mean, covariance) of a row of one component, shapes (dim,) and (dim, dim).

        With q = 2F'(|θ|²), the mean is qθ, and E[xxᵀ] = qI + (1 − Dq) μμᵀ.

        statistics: the statistics of the component's parameters.
        """
        theta = statistics.vector
        n_dims, square = len(theta), (theta**2).sum()
        slope = log_average(square, n_dims).slope
        along = (1 - n_dims * slope) / jnp.where(square > 0, square, 1.0) - slope**2
        return slope * theta, slope * jnp.eye(n_dims, dtype=theta.dtype) + along * theta[:, None] * theta

    def draw(self, key: Array, statistics: DirectionStatistics, unit: Row) -> Float[Array, " dim"]:
        return draw_direction(key, statistics.vector)


def _required_columns(n_dims: int) -> int:
    """Return the number of columns. Raises ValueError unless it is at least 2."""
    if n_dims < 2:
        raise ValueError(f"got rows of {n_dims} column, expected directions in at least 2 columns")
    return n_dims
