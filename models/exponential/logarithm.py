"""The logarithm in float64, which decides how fast evidence is on a CPU: XLA's takes three times as long."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

MANY = 1000
"""Numbers from which on more time is saved than it takes to compile some fifty operations, or 15 % of a first call."""
MANTISSA = 52
"""Bits after the point of a float64, whose bits beyond these are its exponent and, where negative, its sign."""
ROOT_HALF = 0x3FE6A09E667F3BCD
"""Bits of √½, where the mantissas m begin, so that |m − 1| is small on both sides."""
EXPONENT = 0x4330000000000000
"""Bits of 2^52: a whole number below that, put in its place after the point, is a float64 without a conversion."""
LOG_2 = 0.6931471803691238, 1.9082149292705877e-10
"""log 2 in two parts, of which the first has zeros enough that its products with whole exponents are exact."""
ODD = (0.6666666666666735, 0.3999999999940942, 0.2857142874366239, 0.22222198432149784, 0.1818357216161805,
       0.15313837699209373, 0.14798198605116586)  # fmt: skip
"""log((1 + s) / (1 − s)) / s − 2 = Σ_i ODD_i s^(2i+2), nearly 2/3, 2/5, 2/7, …, chosen for the worst error."""


@jax.custom_jvp
def log_positive(x: Any) -> Array:
    """log x, of float64 within one unit of its last place; −inf at 0, NaN below it and at NaN. Of float32, of fewer
    than `MANY`, and on anything but a CPU, it is `jnp.log`.

    x = 2^k m, √½ ≤ m < √2, and s = (m − 1) / (m + 1): log x = k log 2 + log((1 + s) / (1 − s)). With integer operations
    for k and m a compiler makes vectors of all of it. Source of the numbers: Ng (1993), `e_log.c` of Sun's fdlibm.
    Numbers below 2^−1022 are not as exact.
    """
    x = jnp.asarray(x)
    if x.dtype != jnp.float64 or x.size < MANY:
        return jnp.log(x)
    return jax.lax.platform_dependent(x, cpu=_by_bits, default=jnp.log)


log_positive.defjvps(lambda tangent, _, x: tangent / x)


def _by_bits(x: Any) -> Array:
    bits = jax.lax.bitcast_convert_type(x, jnp.int64)
    exponent = (bits - ROOT_HALF) >> MANTISSA
    m = jax.lax.bitcast_convert_type(bits - (exponent << MANTISSA), x.dtype)
    shifted = jax.lax.bitcast_convert_type((exponent + 2048) | EXPONENT, x.dtype)  # exponents may be negative
    k = shifted - (2.0**MANTISSA + 2048)
    f = m - 1
    s = f / (2 + f)
    z = s * s
    w = z * z
    odd = z * (ODD[0] + w * (ODD[2] + w * (ODD[4] + w * ODD[6]))) + w * (ODD[1] + w * (ODD[3] + w * ODD[5]))
    half_square = 0.5 * f * f
    value = k * LOG_2[0] - ((half_square - (s * (half_square + odd) + k * LOG_2[1])) - f)
    return jnp.where(x > 0, jnp.where(x < jnp.inf, value, x), jnp.where(x == 0, -jnp.inf, jnp.nan))
