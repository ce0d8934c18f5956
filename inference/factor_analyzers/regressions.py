"""The posterior of factor analysers' parameters given rows and their scores, and candidates for the scores of one row.

Column d of row n is y_nd = w_dᵀ g_n + noise, with noise of precision τ_d and g_n = (1, f_n), a 1 before the scores. So
w_d is the column's mean and its loadings. Let κ and ℓ be the prior counts of mean and loadings, P₀ = diag(κ, ℓ, …), and
n_k the number of rows of a component. With sums over these rows,

    P = P₀ + Σ g gᵀ,    m_d = P⁻¹ Σ y_d g,    a = shape + ½n_k,    b_d = rate_d + ½ (Σ y_d² − m_dᵀ P m_d),
    w_d | τ_d ~ Normal(m_d, (τ_d P)⁻¹),       τ_d ~ Gamma(a, b_d),

where P is the same for all D columns. If a share t of a row counts, p(row | parameters)^t, every sum has t times what
the row adds. With scores f, that share adds to the evidence of the other rows

    Σ_d [log Γ(a + ½t) − log Γ(a) − ½t log b_d − (a + ½t) log(1 + t (y_d − m_dᵀg)² / (2 b_d s))] − ½D log s,

with s = 1 + t gᵀP⁻¹g. For t = 1 this is the density of Student's t (Bishop 2006, §3.3). The term −½t log 2π of each
cell is left out here. Matrices over factors are so small that their inverses are written out, entry by entry. Particles
are side by side.

Candidates. A row's component and scores f together have no closed form given all other rows. With the parameters
integrated out, the row is Student's t about a line in f. So J candidates f_kj are drawn in each component k from a
distribution q_k near that of the scores there, with weights

    ω_kj = (what the label adds) Normal(f_kj; 0, I) (what the row adds in k with these scores) / q_k(f_kj).

Their average over j, summed over k, is an unbiased estimate of the row's predictive density, whatever q_k is
(`row_by_row` computes it; here candidates are only drawn, weighed and chosen). To move a row, its current scores
replace one candidate of its component, and a candidate is chosen in proportion to the weights. This leaves π_t, the
distribution at the chain's temperature, unchanged and is its own time reversal (Tjelmeland 2004; Andrieu, Doucet &
Holenstein 2010, §4: iterated importance sampling). The state of a chain over labels and scores of rows (`ScoredLabels`)
is here too, since candidates are drawn given it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.draws import choose_in_proportion, log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import LogHyper
from lvsearch.models.exponential.digamma import log_gamma_positive


class RegressionSums(NamedTuple):
    """Sums over the rows of each component, where y_d is column d of a row and g = (1, scores of the row).

    | field | meaning | shape |
    |---|---|---|
    | `known` | the number of rows with cells | (component, particle) |
    | `gram` | Σ g gᵀ | (component, coefficient, coefficient, particle) |
    | `cross` | Σ y_d g | (component, dim, coefficient, particle) |
    | `squares` | Σ y_d² | (component, dim, particle) |
    """

    known: Float[Array, "component particle"]
    gram: Float[Array, "component coefficient coefficient particle"]
    cross: Float[Array, "component dim coefficient particle"]
    squares: Float[Array, "component dim particle"]


class RegressionPrior(NamedTuple):
    """The prior of a component's parameters, in each particle.

    counts: prior counts of the mean (first) and of the loadings on each factor, (coefficient, particle).
    shape: the shape of the Gamma of every column's noise precision, ().
    rate: the rate of the Gamma of each column's noise precision, (dim, particle).
    """

    counts: Float[Array, "coefficient particle"]
    shape: Float[Array, ""]
    rate: Float[Array, "dim particle"]


class Regressions(NamedTuple):
    """The posterior of each component's parameters given rows and scores.

    shape, rate: the Gamma of each column's noise precision.
    centre: the posterior mean of each column's mean (first) and loadings.
    covariance: their covariance times the noise precision, the same for all columns (P⁻¹ of the module).
    log_determinant: log of the determinant of P, nats.
    """

    shape: Float[Array, "component particle"]
    rate: Float[Array, "component dim particle"]
    centre: Float[Array, "component dim coefficient particle"]
    covariance: Float[Array, "component coefficient coefficient particle"]
    log_determinant: Float[Array, "component particle"]


class ScoreProposal(NamedTuple):
    """A Gaussian of a row's scores in each component: its mean, and the lower Cholesky root of its precision."""

    centre: Float[Array, "component factor particle"]
    root: Float[Array, "component factor factor particle"]

    def draw(self, noise: Float[Array, "component candidate factor particle"]) -> Array:
        """Return draws of scores, (component, candidate, factor, particle), made from standard Gaussian `noise`."""
        return self.centre[:, None] + solve_lower(self._wide(noise), noise, transposed=True)

    def log_density(self, scores: Float[Array, "component candidate factor particle"]) -> Array:
        """Return the Gaussian's log density at scores without −½ log 2π per factor, (component, candidate, particle),
        nats.
        """
        away = multiply_upper(self._wide(scores), scores - self.centre[:, None])
        return half_log_determinant(self.root)[:, None] - 0.5 * (away**2).sum(2)

    def _wide(self, scores: Array) -> Array:
        """Return the Cholesky root repeated for every candidate of `scores`: (component, candidate, factor, factor,
        particle).
        """
        return jnp.broadcast_to(self.root[:, None], (*scores.shape[:3], *self.root.shape[2:]))


class GivenParameters(NamedTuple):
    """The distribution of rows when the parameters are known and scores integrated out.

    The likelihood of a row is taken to the power of its share, from 0 to 1. Given the row, its scores f then have
    log density −½ fᵀ LLᵀ f + hᵀ f + constant.

    | field | meaning |
    |---|---|
    | `log_row` | log ∫ p(row \\| f, component)^share p(f) df, nats, without −½ share log 2π of each cell |
    | `root` | L, the lower Cholesky root of the precision LLᵀ of the row's scores in the component |
    | `along` | L⁻¹ h, from which the mean of the row's scores is (Lᵀ)⁻¹ `along` = (LLᵀ)⁻¹ h |
    """

    log_row: Float[Array, "row component particle"]
    root: Float[Array, "row component factor factor particle"]
    along: Float[Array, "row component factor particle"]


def rows_given_parameters(
    weight: Float[Array, "component dim coefficient particle"],
    log_precision: Float[Array, "component dim particle"],
    y: Float[Array, "row dim"],
    share: Float[Array, " row"],
) -> GivenParameters:
    """Return the distribution of every row in every component, with scores integrated out.

    The likelihood is N(y; μ + Λf, diag(1/τ))^share, integrated over the scores f ~ N(0, I). The term −½ share log 2π of
    each cell is left out.

    weight: mean μ (first coefficient) and loadings Λ of each column.
    log_precision: log of each column's noise precision τ.
    y: the rows in the components' coordinates.
    share: how much of each row counts, from 0 to 1.
    """
    precision = jnp.exp(log_precision)
    scaled = precision[:, :, None] * weight
    matrix = (scaled[:, :, :, None] * weight[:, :, None]).sum(1)
    root = lower_root(share[:, None, None, None, None] * matrix[:, 1:, 1:] + jnp.eye(weight.shape[2] - 1)[..., None])
    linear = jnp.einsum("nd,kdip->nkip", y, scaled[:, :, 1:]) - matrix[:, 1:, 0]
    along = solve_lower(root, share[:, None, None, None] * linear)
    square = jnp.einsum("nd,kdp->nkp", y**2, precision) - 2 * jnp.einsum("nd,kdp->nkp", y, scaled[:, :, 0])
    of_row = 0.5 * share[:, None, None] * (log_precision.sum(1) - matrix[:, 0, 0] - square)
    return GivenParameters(of_row + 0.5 * (along**2).sum(2) - half_log_determinant(root), root, along)


def row_sums(
    labels: Float[Array, "component particle"],
    scores: Float[Array, "factor particle"],
    y: Float[Array, " dim"],
    known: Float[Array, ""],
) -> RegressionSums:
    """Return what one row adds to the sums of every component.

    labels: 1 for the component that the row is in, else 0.
    scores: the row's coordinates on the factors.
    y: the row in the components' coordinates.
    known: 1 if the row has cells, 0 if all are missing.
    """
    g = prepend_one(scores[None])[0]
    own = known * labels
    gram = own[:, None, None] * (g[:, None] * g)
    cross = own[:, None, None] * (y[:, None, None] * g)
    return RegressionSums(own, gram, cross, own[:, None] * (y**2)[:, None])


def posterior_regressions(sums: RegressionSums, prior: RegressionPrior) -> Regressions:
    """Return the posterior of every component's parameters, given the sums over its rows and the prior."""
    eye = jnp.eye(len(prior.counts))[..., None]
    covariance, log_determinant = inverse(sums.gram + eye * prior.counts[:, None])
    centre = _contract(sums.cross[..., None, :, :], covariance[:, None])
    rate = prior.rate + 0.5 * (sums.squares - (centre * sums.cross).sum(2))
    return Regressions(prior.shape + 0.5 * sums.known, rate, centre, covariance, log_determinant)


def scale_sums(sums: RegressionSums, share: Float[Array, ""] | float) -> RegressionSums:
    """Return the sums over rows of which only a share (0 to 1) counts."""
    return jax.tree.map(lambda leaf: share * leaf, sums)


def log_gains(sums: RegressionSums, prior: RegressionPrior) -> Float[Array, "dim particle"]:
    """Return log p(rows | their scores and labels) in each column, with parameters integrated out, nats.

    It is summed over components, and without −½ log 2π of each cell.
    """
    found = posterior_regressions(sums, prior)
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
    """Return what a share of the row adds to the evidence under each component, for each candidate of its scores, nats.

    found: the posterior of each component's parameters given the other rows.
    scores: candidates for the row's scores.
    y: the row in the components' coordinates.
    share: how much of the row counts, from 0 to 1.
    """
    g = prepend_one(scores)
    spread = 1 + share * (g * _contract(g[:, :, None], found.covariance[:, None])).sum(2)
    away = y[:, None] - (found.centre[:, None] * g[:, :, None]).sum(3)
    ratio = share * away**2 / (2 * found.rate[:, None] * spread[:, :, None])
    shape, n_dims = found.shape[:, None], len(y)
    of_shape = log_gamma_positive(shape + 0.5 * share) - log_gamma_positive(shape)
    widths = 0.5 * (n_dims * jnp.log(spread) + share * jnp.log(found.rate).sum(1)[:, None])
    return n_dims * of_shape - widths - (shape + 0.5 * share) * jnp.log1p(ratio).sum(2)


def score_proposal(found: Regressions, y: Float[Array, " dim"], share: Float[Array, ""]) -> ScoreProposal:
    """Return a Gaussian near p(scores | row) in each component, from which scores are proposed.

    It is exact if each column's loadings and mean were their posterior means and the noise precision were shape / rate,
    slightly reduced for the spread of the mean.

    found: the posterior of each component's parameters given the other rows.
    y: the row in the components' coordinates.
    share: how much of the row counts, from 0 to 1.
    """
    loadings, away = found.centre[:, :, 1:], y[:, None] - found.centre[:, :, 0]
    precision = share * found.shape[:, None] / (found.rate * (1 + found.covariance[:, None, 0, 0]))
    scaled = precision[:, :, None] * loadings
    matrix = (scaled[:, :, :, None] * loadings[:, :, None]).sum(1) + jnp.eye(loadings.shape[2])[..., None]
    root = lower_root(matrix)
    return ScoreProposal(solve(root, (scaled * away[:, :, None]).sum(1)), root)


def draw_parameters(
    key_precision: Array, key_weight: Array, found: Regressions
) -> tuple[Float[Array, "component dim coefficient particle"], Float[Array, "component dim particle"]]:
    """Draw means with loadings, and log noise precisions, of every component from their posterior.

    key_precision, key_weight: random keys of the noise precisions, and of means and loadings.
    found: the posterior.
    """
    shape = jnp.broadcast_to(found.shape[:, None], found.rate.shape)
    log_precision = log_gamma_draws(key_precision, shape) - jnp.log(found.rate)
    root = lower_root(found.covariance)[:, None]
    noise = jax.random.normal(key_weight, found.centre.shape, found.centre.dtype)
    offset = (root * noise[:, :, None]).sum(3) * jnp.exp(-0.5 * log_precision)[:, :, None]
    return found.centre + offset, log_precision


def prepend_one(scores: Float[Array, "*element factor particle"]) -> Float[Array, "*element coefficient particle"]:
    """Return a 1 before the scores, so that the first coefficient of a regression is the mean."""
    return jnp.concatenate([jnp.ones_like(scores[..., :1, :]), scores], axis=-2)


def _contract(vector: Array, matrix: Array) -> Array:
    """Return Σ_j vector[…, j] matrix[…, i, j], both with particles last."""
    return (vector * matrix).sum(-2)


# ── matrices over factors ───────────────────────────────────────────────────────────────────────────────────────────


def inverse(
    matrix: Float[Array, "*element n n particle"],
) -> tuple[Float[Array, "*element n n particle"], Float[Array, "*element particle"]]:
    """Return the inverse of a positive definite matrix, and the log of its determinant (nats).

    Every row is swept in turn (Goodnight 1979).
    """
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
    """Return the lower Cholesky root of a matrix: the lower triangular L with LLᵀ = matrix."""
    n = matrix.shape[-2]
    root = [[jnp.zeros_like(matrix[..., 0, 0, :])] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            left = matrix[..., i, j, :] - sum((root[i][k] * root[j][k] for k in range(j)), jnp.zeros(()))
            root[i][j] = jnp.sqrt(left) if i == j else left / root[j][j]
    return jnp.stack([jnp.stack(row, axis=-2) for row in root], axis=-3)


def solve_lower(
    root: Float[Array, "*element n n particle"], right: Float[Array, "*element n particle"], transposed: bool = False
) -> Float[Array, "*element n particle"]:
    """Return the x with L x = right or, if `transposed`, Lᵀ x = right.

    root: L, lower triangular.
    """
    n = root.shape[-2]
    found: dict[int, Array] = {}
    for i in reversed(range(n)) if transposed else range(n):
        left = right[..., i, :]
        for j, known in found.items():
            left = left - (root[..., j, i, :] if transposed else root[..., i, j, :]) * known
        found[i] = left / root[..., i, i, :]
    return jnp.stack([found[i] for i in range(n)], axis=-2)


def solve(
    root: Float[Array, "*element n n particle"], right: Float[Array, "*element n particle"]
) -> Float[Array, "*element n particle"]:
    """Return the x with LLᵀ x = right, where L is the lower Cholesky root `root`."""
    return solve_lower(root, solve_lower(root, right), transposed=True)


def half_log_determinant(root: Float[Array, "*element n n particle"]) -> Float[Array, "*element particle"]:
    """Return ½ log |LLᵀ| of a matrix with the lower Cholesky root L = `root`, nats."""
    diagonal = jnp.stack([root[..., i, i, :] for i in range(root.shape[-2])], axis=-2)
    return jnp.log(diagonal).sum(-2)


def multiply_upper(
    root: Float[Array, "*element n n particle"], vector: Float[Array, "*element n particle"]
) -> Float[Array, "*element n particle"]:
    """Return Lᵀ x, where L is the lower triangular `root` and x the `vector`."""
    return (root * vector[..., :, None, :]).sum(-3)


class ScoredLabels(NamedTuple):
    """Labels and scores of all rows, with particles side by side.

    | field | meaning | shape |
    |---|---|---|
    | `labels` | the component of each row, −1 for a row in none | (row, particle) |
    | `scores` | the coordinates of each row on its component's factors | (row, factor, particle) |
    | `log_hyper` | log of each hyper-parameter by name | (column, particle) |
    | `counts` | the number of rows of each component | (component, particle) |
    | `sums` | sums over the rows of each component, from which the posterior of its parameters follows | |
    """

    labels: Int[Array, "row particle"]
    scores: Float[Array, "row factor particle"]
    log_hyper: LogHyper
    counts: Float[Array, "component particle"]
    sums: RegressionSums


CANDIDATES = 2
"""The number of candidate scores drawn in each component for one row."""
FROM_PRIOR = 0.1
"""The probability with which a candidate is drawn from the prior of the scores, which keeps weights bounded."""


class Candidates(NamedTuple):
    """Candidate scores of one row in each component, and their log importance weights.

    Weights are in nats, and −∞ in components that do not exist.
    """

    scores: Float[Array, "component candidate factor particle"]
    log_weight: Float[Array, "component candidate particle"]


def draw_candidates(
    key: Key[Array, ""],
    found: Regressions,
    row: tuple[Float[Array, " dim"], Float[Array, ""]],
    log_label: Float[Array, "component particle"],
    exists: Bool[Array, " component"],
    current: tuple[Int[Array, " particle"], Float[Array, "factor particle"]] | None,
) -> Candidates:
    """Draw candidate scores for a row in every component, with their log importance weights.

    found: the posterior of each component's parameters given the other rows.
    row: the row's coordinates, and 1 if it has cells, else 0.
    log_label: log of the prior weight of each label given the other labels, unnormalised, nats.
    exists: which components exist.
    current: a label and scores that replace the first candidate of their component; None for none.
    """
    y, known = row
    near = score_proposal(found, y, known)
    key_noise, key_prior = jax.random.split(key)
    shape = len(log_label), CANDIDATES, found.centre.shape[2] - 1, log_label.shape[1]
    noise = jax.random.normal(key_noise, shape, y.dtype)
    # q_k is a mixture of the Gaussian near the scores' posterior and of their prior
    from_prior = jax.random.uniform(key_prior, (*shape[:2], 1, shape[3]), y.dtype) < FROM_PRIOR
    scores = jnp.where(from_prior, noise, near.draw(noise))
    if current is not None:
        here = jnp.arange(len(log_label))[:, None, None, None] == current[0]
        scores = jnp.where(here & (jnp.arange(CANDIDATES) == 0)[:, None, None], current[1], scores)
    # ω = label × prior of the scores × what the row adds, over q_k
    log_prior = -0.5 * (scores**2).sum(2)
    log_q = jnp.logaddexp(jnp.log1p(-FROM_PRIOR) + near.log_density(scores), jnp.log(FROM_PRIOR) + log_prior)
    weight = log_label[:, None] + log_prior - log_q + log_row(found, scores, y, known)
    return Candidates(scores, jnp.where(exists[:, None, None], weight, -jnp.inf))


def choose_candidate(
    candidates: Candidates, uniform: Float[Array, " particle"], size: Int[Array | np.ndarray, ""]
) -> tuple[Int[Array, " particle"], Float[Array, "factor particle"]]:
    """Choose a component and its scores for each particle, with probability in proportion to the importance weights.

    uniform: one uniform random number of each particle.
    size: the number of components. The first `size` of the components exist.

    Returns labels (particle,) and scores (factor, particle).
    """
    weight = candidates.log_weight.reshape(-1, len(uniform))
    flat_index = choose_in_proportion(weight, uniform, size * CANDIDATES)
    flat = candidates.scores.reshape(-1, *candidates.scores.shape[2:])
    return flat_index // CANDIDATES, jnp.take_along_axis(flat, flat_index[None, None], axis=0)[0]
