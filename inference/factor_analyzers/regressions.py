"""What rows and their scores say of the parameters of factor analysers, particles side by side.

With g_n = (1, f_n), P₀ = diag(κ, ℓ, …), and sums over the n_k rows of a component,

    P = P₀ + Σ g gᵀ,    m_d = P⁻¹ Σ y_d g,    a = shape + ½n_k,    b_d = rate_d + ½ (Σ y_d² − m_dᵀ P m_d),
    w_d | τ_d ~ Normal(m_d, (τ_d P)⁻¹),       τ_d ~ Gamma(a, b_d),

P being the same for all columns. Of a row of which a share t has come, p(row | parameters)^t, every sum has t times
what it adds. With scores f, its share adds to the evidence of the rows before

    Σ_d [log Γ(a + ½t) − log Γ(a) − ½t log b_d − (a + ½t) log(1 + t (y_d − m_dᵀg)² / (2 b_d s))] − ½D log s,

s = 1 + t gᵀP⁻¹g: for t = 1 the density of Student's t (Bishop 2006, §3.3). −½t log 2π of each cell is left out here.

Matrices over factors are so small that their inverses are written out, entry by entry.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.exponential.digamma import log_gamma_positive


class RegressionSums(NamedTuple):
    """Of the rows of each component.

    | field | meaning | shape |
    |---|---|---|
    | `known` | rows with cells | (component, particle) |
    | `gram` | Σ g gᵀ | (component, coefficient, coefficient, particle) |
    | `cross` | Σ y_d g | (component, dim, coefficient, particle) |
    | `squares` | Σ y_d² | (component, dim, particle) |
    """

    known: Float[Array, "component particle"]
    gram: Float[Array, "component coefficient coefficient particle"]
    cross: Float[Array, "component dim coefficient particle"]
    squares: Float[Array, "component dim particle"]


class RegressionPrior(NamedTuple):
    """(κ, ℓ, …) (coefficient, particle), the noise's shape (), and its rate (dim, particle)."""

    counts: Float[Array, "coefficient particle"]
    shape: Float[Array, ""]
    rate: Float[Array, "dim particle"]


class Regressions(NamedTuple):
    """p(parameters | rows, scores) of each component: a, b, m, P⁻¹, and log |P| in nats."""

    shape: Float[Array, "component particle"]
    rate: Float[Array, "component dim particle"]
    centre: Float[Array, "component dim coefficient particle"]
    covariance: Float[Array, "component coefficient coefficient particle"]
    log_determinant: Float[Array, "component particle"]


class ScoreProposal(NamedTuple):
    """A Gaussian of a row's scores in each component: its mean, and the lower root of its precision."""

    centre: Float[Array, "component factor particle"]
    root: Float[Array, "component factor factor particle"]

    def at(self, noise: Float[Array, "component candidate factor particle"]) -> Array:
        """Draws of it from standard Gaussians of several candidates."""
        return self.centre[:, None] + solved_lower(self._wide(noise), noise, transposed=True)

    def height(self, scores: Float[Array, "component candidate factor particle"]) -> Array:
        """Its log density but for −½ log 2π a factor, (component, candidate, particle), nats."""
        away = product_upper(self._wide(scores), scores - self.centre[:, None])
        return half_log_determinant(self.root)[:, None] - 0.5 * (away**2).sum(2)

    def _wide(self, scores: Array) -> Array:
        return jnp.broadcast_to(self.root[:, None], (*scores.shape[:3], *self.root.shape[2:]))


class GivenParameters(NamedTuple):
    """Rows when parameters are known, scores integrated out: log p(row | component) to the power of its share, nats; L
    and L⁻¹ times the sum h of the scores' distribution there, its precision LLᵀ and its mean (LLᵀ)⁻¹ h."""

    log_row: Float[Array, "row component particle"]
    root: Float[Array, "row component factor factor particle"]
    along: Float[Array, "row component factor particle"]


def given_parameters(
    weight: Float[Array, "component dim coefficient particle"],
    log_precision: Float[Array, "component dim particle"],
    y: Float[Array, "row dim"],
    share: Float[Array, " row"],
) -> GivenParameters:
    """Of rows of which a share has come, in every component: N(y; μ + Λf, diag(1/τ))^share integrated over f ~ N(0, I),
    without −½ share log 2π of each cell."""
    precision = jnp.exp(log_precision)
    scaled = precision[:, :, None] * weight
    matrix = (scaled[:, :, :, None] * weight[:, :, None]).sum(1)
    root = lower_root(share[:, None, None, None, None] * matrix[:, 1:, 1:] + jnp.eye(weight.shape[2] - 1)[..., None])
    linear = jnp.einsum("nd,kdip->nkip", y, scaled[:, :, 1:]) - matrix[:, 1:, 0]
    along = solved_lower(root, share[:, None, None, None] * linear)
    square = jnp.einsum("nd,kdp->nkp", y**2, precision) - 2 * jnp.einsum("nd,kdp->nkp", y, scaled[:, :, 0])
    of_row = 0.5 * share[:, None, None] * (log_precision.sum(1) - matrix[:, 0, 0] - square)
    return GivenParameters(of_row + 0.5 * (along**2).sum(2) - half_log_determinant(root), root, along)


def row_sums(
    labels: Float[Array, "component particle"],
    scores: Float[Array, "factor particle"],
    y: Float[Array, " dim"],
    known: Float[Array, ""],
) -> RegressionSums:
    """What one row adds. labels: 1 for the component that it is in."""
    g = with_one(scores[None])[0]
    own = known * labels
    gram = own[:, None, None] * (g[:, None] * g)
    cross = own[:, None, None] * (y[:, None, None] * g)
    return RegressionSums(own, gram, cross, own[:, None] * (y**2)[:, None])


def regressions(sums: RegressionSums, prior: RegressionPrior) -> Regressions:
    """Of every component."""
    eye = jnp.eye(len(prior.counts))[..., None]
    covariance, log_determinant = inverse(sums.gram + eye * prior.counts[:, None])
    centre = _contracted(sums.cross[..., None, :, :], covariance[:, None])
    rate = prior.rate + 0.5 * (sums.squares - (centre * sums.cross).sum(2))
    return Regressions(prior.shape + 0.5 * sums.known, rate, centre, covariance, log_determinant)


def in_part(sums: RegressionSums, share: Float[Array, ""] | float) -> RegressionSums:
    """Of rows of which a share has come."""
    return jax.tree.map(lambda leaf: share * leaf, sums)


def log_gains(sums: RegressionSums, prior: RegressionPrior) -> Float[Array, "dim particle"]:
    """Σ_k log p(rows of k | their scores), column by column, without −½ log 2π of each cell; nats."""
    found = regressions(sums, prior)
    of_shape = log_gamma_positive(found.shape) - log_gamma_positive(prior.shape)
    of_matrix = 0.5 * (jnp.log(prior.counts).sum(0) - found.log_determinant)
    of_rate = prior.shape * jnp.log(prior.rate) - found.shape[:, None] * jnp.log(found.rate)
    return ((of_shape + of_matrix)[:, None] + of_rate).sum(0)


def log_row(
    found: Regressions,
    scores: Float[Array, "component candidate factor particle"],
    y: Float[Array, " dim"],
    share: Float[Array, ""],
) -> Float[Array, "component candidate particle"]:
    """What a share of the row adds under each component, nats."""
    g = with_one(scores)
    spread = 1 + share * (g * _contracted(g[:, :, None], found.covariance[:, None])).sum(2)
    away = y[:, None] - (found.centre[:, None] * g[:, :, None]).sum(3)
    ratio = share * away**2 / (2 * found.rate[:, None] * spread[:, :, None])
    shape, n_dims = found.shape[:, None], len(y)
    of_shape = log_gamma_positive(shape + 0.5 * share) - log_gamma_positive(shape)
    widths = 0.5 * (n_dims * jnp.log(spread) + share * jnp.log(found.rate).sum(1)[:, None])
    return n_dims * of_shape - widths - (shape + 0.5 * share) * jnp.log1p(ratio).sum(2)


def proposal(found: Regressions, y: Float[Array, " dim"], share: Float[Array, ""]) -> ScoreProposal:
    """p(scores | y) to the power `share` of the row, if every τ_d were a/b_d and loadings their means."""
    loadings, away = found.centre[:, :, 1:], y[:, None] - found.centre[:, :, 0]
    precision = share * found.shape[:, None] / (found.rate * (1 + found.covariance[:, None, 0, 0]))
    scaled = precision[:, :, None] * loadings
    matrix = (scaled[:, :, :, None] * loadings[:, :, None]).sum(1) + jnp.eye(loadings.shape[2])[..., None]
    root = lower_root(matrix)
    return ScoreProposal(solved(root, (scaled * away[:, :, None]).sum(1)), root)


def with_one(scores: Float[Array, "*element factor particle"]) -> Float[Array, "*element coefficient particle"]:
    """g: a 1 before the scores."""
    return jnp.concatenate([jnp.ones_like(scores[..., :1, :]), scores], axis=-2)


def _contracted(vector: Array, matrix: Array) -> Array:
    """Σ_j vector[…, j] matrix[…, i, j], both with particles last."""
    return (vector * matrix).sum(-2)


# ── matrices over factors ───────────────────────────────────────────────────────────────────────────────────────────


def inverse(
    matrix: Float[Array, "*element n n particle"],
) -> tuple[Float[Array, "*element n n particle"], Float[Array, "*element particle"]]:
    """(Its inverse, the logarithm of its determinant) of a positive definite matrix: swept by every row (Goodnight
    1979)."""
    n = matrix.shape[-2]
    a = [[matrix[..., i, j, :] for j in range(n)] for i in range(n)]
    pivots = []
    for k in range(n):
        pivot = a[k][k]
        pivots.append(jnp.log(pivot))
        column = [a[i][k] / pivot for i in range(n)]
        swept = [[a[i][j] - column[i] * a[k][j] for j in range(n)] for i in range(n)]
        for i in range(n):
            swept[i][k] = swept[k][i] = column[i]
        swept[k][k] = -1 / pivot
        a = swept
    rows = [jnp.stack([-entry for entry in row], axis=-2) for row in a]
    return jnp.stack(rows, axis=-3), sum(pivots[1:], pivots[0])


def lower_root(matrix: Float[Array, "*element n n particle"]) -> Float[Array, "*element n n particle"]:
    """The lower L with LLᵀ = matrix."""
    n = matrix.shape[-2]
    root = [[jnp.zeros_like(matrix[..., 0, 0, :])] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            left = matrix[..., i, j, :] - sum((root[i][k] * root[j][k] for k in range(j)), jnp.zeros(()))
            root[i][j] = jnp.sqrt(left) if i == j else left / root[j][j]
    return jnp.stack([jnp.stack(row, axis=-2) for row in root], axis=-3)


def solved_lower(
    root: Float[Array, "*element n n particle"], right: Float[Array, "*element n particle"], transposed: bool = False
) -> Float[Array, "*element n particle"]:
    """The x of L x = right, or of Lᵀ x = right."""
    n = root.shape[-2]
    found: dict[int, Array] = {}
    for i in reversed(range(n)) if transposed else range(n):
        left = right[..., i, :]
        for j, known in found.items():
            left = left - (root[..., j, i, :] if transposed else root[..., i, j, :]) * known
        found[i] = left / root[..., i, i, :]
    return jnp.stack([found[i] for i in range(n)], axis=-2)


def solved(
    root: Float[Array, "*element n n particle"], right: Float[Array, "*element n particle"]
) -> Float[Array, "*element n particle"]:
    """The x of LLᵀ x = right."""
    return solved_lower(root, solved_lower(root, right), transposed=True)


def half_log_determinant(root: Float[Array, "*element n n particle"]) -> Float[Array, "*element particle"]:
    """½ log |LLᵀ|, nats."""
    diagonal = jnp.stack([root[..., i, i, :] for i in range(root.shape[-2])], axis=-2)
    return jnp.log(diagonal).sum(-2)


def product_upper(
    root: Float[Array, "*element n n particle"], vector: Float[Array, "*element n particle"]
) -> Float[Array, "*element n particle"]:
    """Lᵀ x."""
    return (root * vector[..., :, None, :]).sum(-3)
