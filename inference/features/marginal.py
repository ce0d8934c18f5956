"""The linear-Gaussian feature model with its loadings integrated out, computed directly.

  a_kd ~ N(0, σ_a²),   x_nd | z_n, a_d ~ N(z_nᵀ a_d, σ_x²),   cells outside `observed` left out of every product

Row n has data x_n and features z_n of K; a_kd is what feature k adds to column d. Columns of X are independent given Z.
With Z_d the rows in which column d is observed, n_d of them, and M_d = Z_dᵀ Z_d + (σ_x²/σ_a²) I:

  log p(x_d | Z) = −n_d/2 log 2π − (n_d − K) log σ_x − K log σ_a − ½ log |M_d|
                   − (x_dᵀx_d − x_dᵀZ_d M_d⁻¹ Z_dᵀx_d)/(2σ_x²)
  a_d | Z, x_d ~ N(M_d⁻¹ Z_dᵀ x_d, σ_x² M_d⁻¹)

(Griffiths & Ghahramani 2005, Eq. 26.) Everything is float64. The incremental forms are tested against this file.
"""

import numpy as np
from jaxtyping import Bool, Float64

from lvsearch.inference.data.rows import column_patterns
from lvsearch.models.plain_arguments import numbers, real_number

MOST_SCALE = 1e100
"""The largest scale of noise and loadings; its inverse is the smallest. Their squares are then finite numbers."""


def check_positive(name: str, value: float, most: float = MOST_SCALE) -> float:
    """Return the value as a float if it is between 1e-100 and `most`; raise ValueError otherwise."""
    return real_number(name, value, least=1 / MOST_SCALE, most=most)


def read_points(X, observed) -> tuple[Float64[np.ndarray, "row column"], Bool[np.ndarray, "row column"]]:
    """Return the data in float64 with unobserved cells set to 0, and the mask, both (row, column).

    X: the data, (row, column).
    observed: booleans of the shape of X; None if all cells are observed.

    Raises ValueError for shapes that do not fit, and for an observed cell that is not finite.
    """
    points = numbers("X", X).copy()
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"got X of shape {points.shape}; expected a matrix (rows, columns) with at least one column")
    mask = np.ones(points.shape, bool) if observed is None else np.asarray(observed)
    if mask.dtype != bool or mask.shape != points.shape:
        raise ValueError(
            f"got observed of shape {mask.shape} and type {mask.dtype}; expected booleans of X's shape {points.shape}, "
            f"True where a cell is known"
        )
    bad = mask & ~np.isfinite(points)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"got {points[row, column]} in X at row {row}, column {column} ({bad.sum()} such cells); expected finite "
            f"numbers: mark missing cells with observed=~np.isnan(X)"
        )
    points[~mask] = 0.0
    return points, mask


def _read(X, Z, observed):
    """Return the data with unobserved cells set to 0, the mask, and the features as floats.

    Raises ValueError for shapes that do not fit, and for an observed cell that is not finite.
    """
    points, mask = read_points(X, observed)
    features = np.asarray(Z, np.float64)
    if features.ndim != 2 or len(features) != len(points):
        raise ValueError(f"got Z of shape {features.shape} for {len(points)} rows of X; expected (rows, features)")
    return points, mask, features


def log_marginal(X, Z, sigma_x: float, sigma_a: float, observed=None) -> float:
    """Return log p(data | features) in nats, loadings integrated out and missing cells summed out.

    Columns of zeros in Z add nothing.

    X: the data, (row, column).
    Z: binary features, (row, feature).
    sigma_x, sigma_a: standard deviations of noise and loadings, above 0.
    observed: booleans of the shape of X, True where a cell is known; None if all are.

    Raises ValueError for shapes that do not fit, scales that are not positive, or an observed cell that is not finite.
    """
    points, mask, features = _read(X, Z, observed)
    sigma_x, sigma_a = check_positive("sigma_x", sigma_x), check_positive("sigma_a", sigma_a)
    total = 0.0
    distinct, pattern = column_patterns(mask)
    n_features = features.shape[1]
    for which in range(distinct.shape[1]):
        seen = distinct[:, which]
        z, x = features[seen], points[np.ix_(seen, pattern == which)]
        n, columns = x.shape
        precision = z.T @ z + (sigma_x / sigma_a) ** 2 * np.eye(n_features)
        half = np.linalg.solve(np.linalg.cholesky(precision), z.T @ x) if n_features else np.zeros((0, columns))
        _, log_determinant = np.linalg.slogdet(precision)
        scale = n * np.log(2 * np.pi) / 2 + (n - n_features) * np.log(sigma_x) + n_features * np.log(sigma_a)
        total -= columns * (scale + log_determinant / 2) + (np.sum(x * x) - np.sum(half * half)) / (2 * sigma_x**2)
    return float(total)


def posterior_loadings(
    X, Z, sigma_x: float, sigma_a: float, observed=None
) -> tuple[Float64[np.ndarray, "feature column"], Float64[np.ndarray, "column feature feature"]]:
    """Return the posterior of the loadings given data and features.

    X: the data, (row, column).
    Z: binary features, (row, feature).
    sigma_x, sigma_a: standard deviations of noise and loadings, above 0.
    observed: booleans of the shape of X, True where a cell is known; None if all are.

    Returns the mean (feature, column) and, per column of X, the covariance over features (column, feature, feature).
    """
    points, mask, features = _read(X, Z, observed)
    sigma_x, sigma_a = check_positive("sigma_x", sigma_x), check_positive("sigma_a", sigma_a)
    n_features, n_columns = features.shape[1], points.shape[1]
    mean, covariance = np.zeros((n_features, n_columns)), np.zeros((n_columns, n_features, n_features))
    distinct, pattern = column_patterns(mask)
    for which in range(distinct.shape[1]):
        columns = pattern == which
        z = features[distinct[:, which]]
        precision = z.T @ z + (sigma_x / sigma_a) ** 2 * np.eye(n_features)
        inverse = np.linalg.inv(precision)
        mean[:, columns] = inverse @ (z.T @ points[np.ix_(distinct[:, which], columns)])
        covariance[columns] = sigma_x**2 * inverse
    return mean, covariance
