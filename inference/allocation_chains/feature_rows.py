"""The features of rows under the linear-Gaussian feature model, redrawn row by row with loadings integrated out.

Row n has data x_n and features z_n, 0 or 1 each. It is the sum of the loadings of its features, plus noise of precision
λ_x. Loadings have mean 0 and precision λ_A; let r = λ_A/λ_x. Columns that are observed in the same rows share a
*pattern*; without missing cells there is one. With Z_p the features of the rows in which the columns of pattern p are
observed, M_p = (Z_pᵀ Z_p + rI)⁻¹ is kept for each pattern, and B, whose column d is M_p Z_pᵀ x_d with the pattern p of
that column. Both change by rank one when a row is removed or added (Doshi-Velez & Ghahramani 2009, §4). Given the other
rows, from which M and B are,

    x_nd | z_n ~ Normal((z_n B)_d, (1 + z_nᵀ M_p z_n) / λ_x).

The probability of each of K features has the prior Beta(a, 1), with a = α/K. Given the other rows, of which m have a
feature, row n of N rows has it with odds (m + a)/(N − m) (Griffiths & Ghahramani 2005).

Everything here is for one particle. `features` runs particles side by side.
"""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.data.rows import column_patterns


class FeatureParameters(NamedTuple):
    """The numbers that a sweep over the rows is conditional on: λ_x, λ_A, a = α/K (`beta_shape`), and K."""

    noise_precision: Float[Array, ""]
    loading_precision: Float[Array, ""]
    beta_shape: Float[Array, ""]
    n_features: Float[Array, ""]


class FeatureTables(NamedTuple):
    """The features of all rows, and the posterior of the loadings given these rows.

    | field | shape | meaning |
    |---|---|---|
    | `features` | (row, place) | Z, 0.0 or 1.0; all 0 for a row that was taken out |
    | `counts` | (place,) | how many rows have the feature |
    | `covariance` | (pattern, place, place) | M: λ_x times the covariance of a column's loadings |
    | `mean` | (place, column) | B: the posterior mean of the loadings |

    A place is an array slot that a feature can take. One whose feature no row has keeps the prior: M is (1/r) I there,
    and B is 0.
    """

    features: Float[Array, "row place"]
    counts: Float[Array, " place"]
    covariance: Float[Array, "pattern place place"]
    mean: Float[Array, "place column"]


class RowVisit(NamedTuple):
    """The features of one row while they are redrawn one after another, and what follows from them.

    | field | shape | meaning |
    |---|---|---|
    | `features` | (place,) | the row's features, 0.0 or 1.0 |
    | `along` | (pattern, place) | M z |
    | `residual` | (column,) | x − z B, 0 where not observed |
    | `variance`, `squares` | (pattern,) | predictive variance of the cells, and sum of squared residuals |
    | `loss` | () | −log p(row's cells) up to a constant, nats |
    """

    features: Float[Array, " place"]
    along: Float[Array, "pattern place"]
    residual: Float[Array, " column"]
    variance: Float[Array, " pattern"]
    squares: Float[Array, " pattern"]
    loss: Float[Array, ""]


class FeatureData(eqx.Module):
    """The rows of a table, in the form in which their features are redrawn.

    | field | shape | meaning |
    |---|---|---|
    | `values` | (row, column) | the data, 0 where not observed |
    | `observed` | (row, column) | 1.0 for observed cells, else 0.0 |
    | `in_pattern` | (row, pattern) | 1.0 for the rows in which the columns of a pattern are observed |
    | `of_column` | (column, pattern) | 1.0 for the pattern of each column |
    """

    values: Float[Array | np.ndarray, "row column"]
    observed: Float[Array | np.ndarray, "row column"]
    in_pattern: Float[Array | np.ndarray, "row pattern"]
    of_column: Float[Array | np.ndarray, "column pattern"]

    @classmethod
    def of(cls, values: Float[np.ndarray, "row column"], observed: Bool[np.ndarray, "row column"]) -> "FeatureData":
        """Return the rows of a table. values: (row, column), anything where not observed. observed: (row, column)."""
        distinct, pattern = column_patterns(observed)
        of_column = np.eye(distinct.shape[1])[pattern]
        return cls(np.where(observed, values, 0.0), observed.astype(np.float64), distinct.astype(np.float64), of_column)

    @property
    def n_rows(self) -> int:
        """The number of rows N."""
        return self.values.shape[0]

    # ── all rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def tables(self, features: Float[Array, "row place"], parameters: FeatureParameters) -> FeatureTables:
        """Return features with the posterior of the loadings given all rows."""
        precision, products = self._posterior(features, parameters)
        covariance = jnp.linalg.inv(precision)
        return FeatureTables(features, features.sum(0), covariance, self._mean(covariance, products))

    def log_marginal(self, features: Float[Array, "row place"], parameters: FeatureParameters) -> Float[Array, ""]:
        """Return log p(observed cells | features), loadings integrated out, in nats.

        Source: Griffiths & Ghahramani (2005), Eq. 26, for each pattern of observed rows.

        features: (row, place), 0.0 or 1.0; features that no row has add nothing.
        """
        noise, loading = parameters.noise_precision, parameters.loading_precision
        precision, products = self._posterior(features, parameters)
        of_column, n_loadings = jnp.asarray(self.of_column), features.shape[1] * self.values.shape[1]
        root = jnp.linalg.cholesky(precision)
        wide = jnp.broadcast_to(products, (len(root), *products.shape))
        halves = jax.scipy.linalg.solve_triangular(root, wide, lower=True)  # (pattern, place, column)
        explained = ((halves**2).sum(1) * of_column.T).sum()
        log_determinant = 2 * of_column.sum(0) @ jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(1)
        squares = (jnp.asarray(self.values) ** 2).sum() - explained
        scale = jnp.asarray(self.observed).sum() * jnp.log(noise / (2 * jnp.pi)) + n_loadings * jnp.log(loading / noise)
        return 0.5 * (scale - log_determinant - noise * squares)

    def draw_loadings(
        self, key: Key[Array, ""], features: Float[Array, "row place"], parameters: FeatureParameters
    ) -> Float[Array, "place column"]:
        """Draw the loadings given data and features, (place, column); those that no row has come from their prior."""
        tables = self.tables(features, parameters)
        noise = jax.random.normal(key, tables.mean.shape, tables.mean.dtype) / jnp.sqrt(parameters.noise_precision)
        roots = jnp.linalg.cholesky(tables.covariance)
        return tables.mean + jnp.einsum("pkj,jd,dp->kd", roots, noise, jnp.asarray(self.of_column))

    def sweep(
        self, key: Key[Array, ""], features: Float[Array, "row place"], parameters: FeatureParameters
    ) -> Float[Array, "row place"]:
        """Return the features after those of each row were redrawn given those of all others, in the order of rows.

        First the row's features that other rows have too are redrawn one by one, while those that it alone has stay.
        Then the number of the latter is redrawn: a priori it is Binomial(K − t, a/(a + N)), if other rows have t
        features, and each of them adds 1/λ_A to the variance of the row's cells. They are put into free places drawn at
        random, so that the number of a place says nothing.
        """
        n_rows, n_places = features.shape
        keys = jax.random.split(key, 3)
        flips = jax.random.uniform(keys[0], features.shape)
        new, placing = jax.random.uniform(keys[1], (n_rows,)), jax.random.uniform(keys[2], features.shape)
        loading, beta_shape, number = (
            1 / parameters.loading_precision,
            parameters.beta_shape,
            jnp.arange(n_places + 1.0),
        )
        prior_covariance = jnp.eye(n_places) * parameters.noise_precision * loading
        log_has, log_lacks = jnp.log(beta_shape / (beta_shape + n_rows)), jnp.log(n_rows / (beta_shape + n_rows))

        def redraw(row: Array, tables: FeatureTables) -> FeatureTables:
            own = tables.features[row]
            tables = self.remove_row(tables, row, own)
            free = tables.counts < 0.5
            alone = (own * free).sum()
            # Places that become free get the prior exactly, so that rounding errors end there.
            tables = tables._replace(
                covariance=jnp.where(free[:, None] | free, prior_covariance, tables.covariance),
                mean=jnp.where(free[:, None], 0.0, tables.mean),
            )
            # Features that other rows have. The variance includes those that the row alone has.
            shared = jnp.where(free, 0.0, own)
            visit = self.visit(tables, row, shared, parameters, extra=alone * loading)
            visit = self.redraw_features(tables, row, visit, parameters, ~free, flips[row])
            # The number of features that the row alone has: 0, 1, … up to the number of free places.
            variance = (visit.variance - alone * loading) + number[:, None] * loading
            unused = parameters.n_features - (~free).sum()
            left = jnp.maximum(unused - number, 0.0)
            ways = gammaln(unused + 1) - gammaln(number + 1) - gammaln(left + 1)
            score = ways + number * log_has + left * log_lacks - self._losses(row, variance, visit.squares)
            score = jnp.where((number <= unused) & (number <= free.sum()), score, -jnp.inf)
            ends = jnp.cumsum(jnp.exp(score - score.max()))
            more = (new[row] * ends[-1] >= ends).sum()
            # Free places at random.
            order = jnp.where(free, placing[row], 2.0)
            rank = (order[:, None] > order).sum(1)
            return self.add_row(tables, row, jnp.where(free & (rank < more), 1.0, visit.features))

        return jax.lax.fori_loop(0, n_rows, redraw, self.tables(features, parameters)).features

    def without_feature(
        self,
        key: Key[Array, ""],
        features: Float[Array, "row place"],
        parameters: FeatureParameters,
        place: Int[Array, ""],
    ) -> Float[Array, "row place"]:
        """Return the features after one was taken from all rows, in a random order; each row that had it redraws the
        others.

        So rows that had c and a feature with loadings b − c can have b instead. The result is no draw of the posterior.

        place: the place of the feature.
        """
        key_flips, key_order = jax.random.split(key)
        flips = jax.random.uniform(key_flips, features.shape)
        order = jnp.argsort(jax.random.uniform(key_order, (len(features),)))
        others = jnp.arange(features.shape[1]) != place
        can_change = (features.sum(0) > 0.5) & others

        def take(index: Array, tables: FeatureTables) -> FeatureTables:
            row = order[index]
            own = tables.features[row]
            tables = self.remove_row(tables, row, own)
            visit = self.visit(tables, row, jnp.where(others, own, 0.0), parameters)
            visit = self.redraw_features(tables, row, visit, parameters, can_change, flips[row])
            return self.add_row(tables, row, jnp.where(own[place] > 0.5, visit.features, own))

        return jax.lax.fori_loop(0, len(features), take, self.tables(features, parameters)).features

    # ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def remove_row(self, tables: FeatureTables, row: Array, own: Float[Array, " place"]) -> FeatureTables:
        """Return the tables without a row. own: its features, (place,)."""
        return self._rank_one_update(tables, row, own, jnp.zeros_like(own), -1.0)

    def add_row(self, tables: FeatureTables, row: Array, own: Float[Array, " place"]) -> FeatureTables:
        """Return the tables with a row that was taken out before. own: its features, (place,)."""
        return self._rank_one_update(tables, row, own, own, 1.0)

    def _rank_one_update(
        self, tables: FeatureTables, row: Array, own: Array, after: Array, sign: float
    ) -> FeatureTables:
        """Return the tables after a row with features `own` joined (sign 1.0) or left (−1.0); `after` is stored."""
        values, seen = jnp.asarray(self.values)[row], jnp.asarray(self.observed)[row]
        along = tables.covariance @ own  # (pattern, place)
        scaled = sign * along / (1 + sign * (along @ own))[:, None] * jnp.asarray(self.in_pattern)[row][:, None]
        residual = (values - own @ tables.mean) * seen
        return FeatureTables(
            tables.features.at[row].set(after),
            tables.counts + sign * own,
            tables.covariance - scaled[:, :, None] * along[:, None, :],
            tables.mean + (jnp.asarray(self.of_column) @ scaled).T * residual,
        )

    def visit(
        self, tables: FeatureTables, row: Array, own: Array, parameters: FeatureParameters, extra: Array | float = 0.0
    ) -> RowVisit:
        """Return a row with features `own`, (place,), given the other rows; `extra` is added to its cells' variance."""
        along = tables.covariance @ own
        residual = (jnp.asarray(self.values)[row] - own @ tables.mean) * jnp.asarray(self.observed)[row]
        variance = (1 + along @ own) / parameters.noise_precision + extra
        squares = residual**2 @ jnp.asarray(self.of_column)
        return RowVisit(own, along, residual, variance, squares, self._losses(row, variance, squares))

    def redraw_features(
        self,
        tables: FeatureTables,
        row: Array,
        visit: RowVisit,
        parameters: FeatureParameters,
        can_change: Bool[Array, " place"],
        uniforms: Float[Array, " place"],
    ) -> RowVisit:
        """Return the row after its features in `can_change`, (place,), were redrawn one by one given its others.

        tables: without the row.
        uniforms: a number in [0, 1) for each place.
        """
        seen, of_column = jnp.asarray(self.observed)[row], jnp.asarray(self.of_column)
        log_odds = jnp.log(tables.counts + parameters.beta_shape) - jnp.log(self.n_rows - tables.counts)

        def redraw(place: Array, now: RowVisit) -> RowVisit:
            step = 1 - 2 * now.features[place]
            column = tables.covariance[:, :, place]
            variance = now.variance + (2 * step * now.along[:, place] + column[:, place]) / parameters.noise_precision
            residual = now.residual - step * tables.mean[place] * seen
            squares = residual**2 @ of_column
            loss = self._losses(row, variance, squares)
            against = loss - now.loss - step * log_odds[place]
            changes = can_change[place] & (uniforms[place] < jax.nn.sigmoid(-against))
            features = now.features.at[place].add(step)
            changed = RowVisit(features, now.along + step * column, residual, variance, squares, loss)
            return jax.tree.map(lambda new, old: jnp.where(changes, new, old), changed, now)

        return jax.lax.fori_loop(0, len(uniforms), redraw, visit)

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _posterior(self, features: Array, parameters: FeatureParameters) -> tuple[Array, Array]:
        """Return (ZᵀZ + rI of each pattern, (pattern, place, place); ZᵀX, (place, column))."""
        ratio = parameters.loading_precision / parameters.noise_precision
        of_rows = jnp.einsum("nk,np,nj->pkj", features, jnp.asarray(self.in_pattern), features)
        return of_rows + ratio * jnp.eye(features.shape[1]), features.T @ jnp.asarray(self.values)

    def _mean(self, covariance: Array, products: Array) -> Array:
        """Return the posterior mean of the loadings, (place, column), from M of each pattern and from ZᵀX."""
        return jnp.einsum("pkj,jd,dp->kd", covariance, products, jnp.asarray(self.of_column))

    def _losses(self, row: Array, variance: Array, squares: Array) -> Array:
        """Return −log p(row's cells) up to a constant, nats; variance and squares are (…, pattern)."""
        cells = jnp.asarray(self.observed)[row] @ jnp.asarray(self.of_column)
        return 0.5 * (cells * jnp.log(variance) + squares / variance).sum(-1)


def log_feature_prior(
    counts: Float[Array, " place"], beta_shape: Float[Array, "*size"], n_features: Float[Array, "*size"], n_rows: int
) -> Float[Array, "*size"]:
    """Return log p(Z | K, α) for one order of the K features, nats, shaped like `beta_shape`.

    The probabilities of the features are integrated out (Griffiths & Ghahramani 2005). It is −∞ if more than K features
    are in use.

    counts: rows that have each feature, (place,); 0 at free places.
    beta_shape: a = α/K. n_features: K. n_rows: N.
    """
    used = counts > 0.5
    a = beta_shape[..., None]
    held = jnp.log(a) + gammaln(counts + a) + gammaln(n_rows - counts + 1) - gammaln(n_rows + 1 + a)
    empty = gammaln(1 + beta_shape) + gammaln(n_rows + 1.0) - gammaln(n_rows + 1 + beta_shape)
    total = jnp.where(used, held, 0.0).sum(-1) + (n_features - used.sum()) * empty
    return jnp.where(n_features >= used.sum(), total, -jnp.inf)


def parameters_at(values: Mapping[str, Array], n_features: Float[Array, ""]) -> FeatureParameters:
    """Return the parameters at hyper-parameters by name and K features."""
    return FeatureParameters(
        values["noise_precision"], values["loading_precision"], values["concentration"] / n_features, n_features
    )
