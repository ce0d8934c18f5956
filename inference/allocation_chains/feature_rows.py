"""The features of rows under the linear-Gaussian feature model, redrawn row by row with loadings integrated out.

Row n has data x_n and features z_n, 0 or 1 each. A row is the sum of the loadings of its features, plus noise of
precision λ_x; loadings have precision λ_A, and r = λ_A/λ_x. Let a pattern be a set of rows in which some columns are
observed; without missing cells there is one. For each pattern, with Z the features of its rows, M = (ZᵀZ + rI)⁻¹ and
B = M ZᵀX are kept, and changed by rank one when a row leaves or joins (Doshi-Velez & Ghahramani 2009, §4):

    x_n | z_n, other rows ~ Normal(z_n B, (1 + z_nᵀ M z_n) / λ_x),    M and B from the other rows.

The prior has a_k = α/K for each of K features. Given the other rows, of which m have a feature, the row has it with
odds (m + a)/(N − m), for N rows (Griffiths & Ghahramani 2011, Eq. 13).

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

from lvsearch.inference.features.marginal import patterns

LARGEST_EXPONENT = 700.0
"""The largest exponent passed to exp, so that it does not overflow."""


class FeatureScales(NamedTuple):
    """The numbers that the features of all rows are drawn under: λ_x, λ_A, and a = α/K for each of K features."""

    noise_precision: Float[Array, ""]
    loading_precision: Float[Array, ""]
    stick: Float[Array, ""]
    n_features: Float[Array, ""]


class FeatureTables(NamedTuple):
    """The features of all rows, and the posterior of the loadings given these rows.

    | field | shape | meaning |
    |---|---|---|
    | `features` | (row, place) | Z, 0.0 or 1.0; all 0 for a row that was taken out |
    | `counts` | (place,) | how many rows have the feature |
    | `covariance` | (pattern, place, place) | M: the covariance of a column's loadings times λ_x |
    | `mean` | (place, column) | B: the posterior mean of the loadings |

    A place is an array slot that a feature can take. One whose feature no row has keeps the prior, M = 1/r and B = 0.
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
        distinct, pattern = patterns(observed)
        of_column = np.eye(distinct.shape[1])[pattern]
        return cls(np.where(observed, values, 0.0), observed.astype(np.float64), distinct.astype(np.float64), of_column)

    @property
    def n_rows(self) -> int:
        """The number of rows N."""
        return self.values.shape[0]

    # ── all rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def tables(self, features: Float[Array, "row place"], scales: FeatureScales) -> FeatureTables:
        """Return features with the posterior of the loadings given all rows."""
        precision, products = self._posterior(features, scales)
        covariance = jnp.linalg.inv(precision)
        return FeatureTables(features, features.sum(0), covariance, self._mean(covariance, products))

    def log_marginal(self, features: Float[Array, "row place"], scales: FeatureScales) -> Float[Array, ""]:
        """Return log p(observed cells | features), loadings integrated out, in nats (Griffiths & Ghahramani, Eq. 26).

        features: (row, place), 0.0 or 1.0; features that no row has add nothing.
        """
        noise, loading = scales.noise_precision, scales.loading_precision
        precision, products = self._posterior(features, scales)
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
        self, key: Key[Array, ""], features: Float[Array, "row place"], scales: FeatureScales
    ) -> Float[Array, "place column"]:
        """Draw the loadings given data and features, (place, column); those that no row has come from their prior."""
        tables = self.tables(features, scales)
        noise = jax.random.normal(key, tables.mean.shape, tables.mean.dtype) / jnp.sqrt(scales.noise_precision)
        roots = jnp.linalg.cholesky(tables.covariance)
        return tables.mean + jnp.einsum("pkj,jd,dp->kd", roots, noise, jnp.asarray(self.of_column))

    def sweep(
        self, key: Key[Array, ""], features: Float[Array, "row place"], scales: FeatureScales
    ) -> Float[Array, "row place"]:
        """Return the features after those of every row were redrawn given all other rows', one row after another.

        A feature that only this row has is dropped first. The row's other features are redrawn one by one. Then the row
        draws how many of the K − t features that no other row has it gets, for t features that others have: a priori
        Binomial(K − t, a/(a + N)). Each widens its cells by the variance of a loading. They take free places at
        random, so that numbers of places mean nothing.
        """
        n_rows, n_places = features.shape
        keys = jax.random.split(key, 3)
        flips = jax.random.uniform(keys[0], features.shape)
        new, placing = jax.random.uniform(keys[1], (n_rows,)), jax.random.uniform(keys[2], features.shape)
        loading, stick, number = 1 / scales.loading_precision, scales.stick, jnp.arange(n_places + 1.0)
        prior_covariance = jnp.eye(n_places) * scales.noise_precision * loading
        log_has, log_lacks = jnp.log(stick / (stick + n_rows)), jnp.log(n_rows / (stick + n_rows))

        def redraw(row: Array, tables: FeatureTables) -> FeatureTables:
            own = tables.features[row]
            tables = self.without(tables, row, own)
            free = tables.counts < 0.5
            alone = (own * free).sum()
            # Rounding errors of places that become free end here.
            tables = tables._replace(
                covariance=jnp.where(free[:, None] | free, prior_covariance, tables.covariance),
                mean=jnp.where(free[:, None], 0.0, tables.mean),
            )
            shared = jnp.where(free, 0.0, own)
            # While shared features are redrawn, the dropped ones still widen the row's variance; after that they don't.
            visit = self.visit(tables, row, shared, scales, extra=alone * loading)
            visit = self.redraw_features(tables, row, visit, scales, ~free, flips[row])
            variance = (visit.variance - alone * loading) + number[:, None] * loading
            unused = scales.n_features - (~free).sum()
            left = jnp.maximum(unused - number, 0.0)
            ways = gammaln(unused + 1) - gammaln(number + 1) - gammaln(left + 1)
            score = ways + number * log_has + left * log_lacks - self._losses(row, variance, visit.squares)
            score = jnp.where((number <= unused) & (number <= free.sum()), score, -jnp.inf)
            ends = jnp.cumsum(jnp.exp(score - score.max()))
            more = (new[row] * ends[-1] >= ends).sum()
            order = jnp.where(free, placing[row], 2.0)
            rank = (order[:, None] > order).sum(1)
            return self.with_row(tables, row, jnp.where(free & (rank < more), 1.0, visit.features))

        return jax.lax.fori_loop(0, n_rows, redraw, self.tables(features, scales)).features

    def without_feature(
        self, key: Key[Array, ""], features: Float[Array, "row place"], scales: FeatureScales, place: Int[Array, ""]
    ) -> Float[Array, "row place"]:
        """Return the features after one was taken from all rows, in a random order; each row that had it redraws the
        others.

        So rows that had a feature u = b − c, and c, can have b instead. The result is no draw of the posterior.

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
            tables = self.without(tables, row, own)
            visit = self.visit(tables, row, jnp.where(others, own, 0.0), scales)
            visit = self.redraw_features(tables, row, visit, scales, can_change, flips[row])
            return self.with_row(tables, row, jnp.where(own[place] > 0.5, visit.features, own))

        return jax.lax.fori_loop(0, len(features), take, self.tables(features, scales)).features

    # ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def without(self, tables: FeatureTables, row: Array, own: Float[Array, " place"]) -> FeatureTables:
        """Return the tables without a row. own: its features, (place,)."""
        return self._changed(tables, row, own, jnp.zeros_like(own), -1.0)

    def with_row(self, tables: FeatureTables, row: Array, own: Float[Array, " place"]) -> FeatureTables:
        """Return the tables with a row that was taken out before. own: its features, (place,)."""
        return self._changed(tables, row, own, own, 1.0)

    def _changed(self, tables: FeatureTables, row: Array, own: Array, after: Array, sign: float) -> FeatureTables:
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
        self, tables: FeatureTables, row: Array, own: Array, scales: FeatureScales, extra: Array | float = 0.0
    ) -> RowVisit:
        """Return a row with features `own`, (place,), given the other rows; `extra` is added to its cells' variance."""
        along = tables.covariance @ own
        residual = (jnp.asarray(self.values)[row] - own @ tables.mean) * jnp.asarray(self.observed)[row]
        variance = (1 + along @ own) / scales.noise_precision + extra
        squares = residual**2 @ jnp.asarray(self.of_column)
        return RowVisit(own, along, residual, variance, squares, self._losses(row, variance, squares))

    def redraw_features(
        self,
        tables: FeatureTables,
        row: Array,
        visit: RowVisit,
        scales: FeatureScales,
        can_change: Bool[Array, " place"],
        uniforms: Float[Array, " place"],
    ) -> RowVisit:
        """Return the row after its features in `can_change`, (place,), were redrawn one by one given its others.

        tables: without the row.
        uniforms: a number in [0, 1) for each place.
        """
        seen, of_column = jnp.asarray(self.observed)[row], jnp.asarray(self.of_column)
        log_odds = jnp.log(tables.counts + scales.stick) - jnp.log(self.n_rows - tables.counts)

        def redraw(place: Array, now: RowVisit) -> RowVisit:
            step = 1 - 2 * now.features[place]
            column = tables.covariance[:, :, place]
            variance = now.variance + (2 * step * now.along[:, place] + column[:, place]) / scales.noise_precision
            residual = now.residual - step * tables.mean[place] * seen
            squares = residual**2 @ of_column
            loss = self._losses(row, variance, squares)
            against = loss - now.loss - step * log_odds[place]
            # with probability 1 / (1 + e^against)
            changes = can_change[place] & (uniforms[place] * (1 + jnp.exp(jnp.minimum(against, LARGEST_EXPONENT))) < 1)
            features = now.features.at[place].add(step)
            changed = RowVisit(features, now.along + step * column, residual, variance, squares, loss)
            return jax.tree.map(lambda new, old: jnp.where(changes, new, old), changed, now)

        return jax.lax.fori_loop(0, len(uniforms), redraw, visit)

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _posterior(self, features: Array, scales: FeatureScales) -> tuple[Array, Array]:
        """Return (ZᵀZ + rI of each pattern, (pattern, place, place); ZᵀX, (place, column))."""
        ratio = scales.loading_precision / scales.noise_precision
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
    counts: Float[Array, " place"], stick: Float[Array, "*size"], n_features: Float[Array, "*size"], n_rows: int
) -> Float[Array, "*size"]:
    """Return log p(Z | K, α) of features numbered 1 … K, sticks integrated out, nats, shaped like `stick`.

    Source: Griffiths & Ghahramani (2011), Eq. 11. It is −∞ if more than K features are in use.

    counts: rows that have each feature, (place,); 0 at free places.
    stick: a = α/K. n_features: K. n_rows: N.
    """
    used = counts > 0.5
    a = stick[..., None]
    held = jnp.log(a) + gammaln(counts + a) + gammaln(n_rows - counts + 1) - gammaln(n_rows + 1 + a)
    empty = gammaln(1 + stick) + gammaln(n_rows + 1.0) - gammaln(n_rows + 1 + stick)
    total = jnp.where(used, held, 0.0).sum(-1) + (n_features - used.sum()) * empty
    return jnp.where(n_features >= used.sum(), total, -jnp.inf)


def chosen_scales(values: Mapping[str, Array], n_features: Float[Array, ""]) -> FeatureScales:
    """Return the scales at hyper-parameters by name and K features."""
    return FeatureScales(
        values["noise_precision"], values["loading_precision"], values["concentration"] / n_features, n_features
    )
