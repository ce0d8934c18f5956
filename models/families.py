"""Exponential families: the distributions that a complete conditional, and so a mean-field factor, can have.

Every family here is written as

    p(x | η) = h(x) exp(⟨η, t(x)⟩ − A(η))          (Blei 2004, Eq. 2.1)

with statistics t(x) chosen so that the natural parameter η is whatever multiplies t(x) *when the density is written as
the textbook writes it* — log θ carries a Dirichlet's concentration − 1, −τ carries a Gamma's rate. The gradient of a
log-joint with respect to the statistics of a latent variable (a *site*) is then its natural parameter, with no
translation. h(x) = 1 except for `KnownPrecisionGaussian`.

| family | x | t(x) | η |
|---|---|---|---|
| `Dirichlet` | θ on the simplex | log θ | concentration − 1 |
| `PointSimplex` | θ on the simplex, at one point | log θ | counts whose likelihood θ maximises |
| `Categorical` | one of the entries of the event axis | its indicator | log-odds |
| `Beta` | v in (0, 1) | (log v, log(1 − v)) | (a − 1, b − 1) |
| `Bernoulli` | 0 or 1 | x | log-odds |
| `MarkovChain` | a path z_1 … z_T | indicators of z_t and of (z_{t−1}, z_t) | log-potentials of states and of steps |
| `Gamma` | x > 0 | (log x, −x) | (shape − 1, rate) |
| `Gaussian` | x real | (x, −x²/2) | (precision · mean, precision) |
| `KnownPrecisionGaussian` | x real, Λ known | x | Λ · mean |
| `NormalGamma` | μ real, τ > 0 | (log τ, −τ, τμ, −τμ²/2) | (a − ½, b + κm²/2, κm, κ) |
| `NormalWishart` | μ in R^D, Λ positive definite | (½ log det Λ, −½Λ, Λμ, −½μᵀΛμ) | (ν − D, B + κmmᵀ, κm, κ) |
| `TiedNormalWishart` | μ_1 … μ_K in R^D, one Λ positive definite | for each k those of `NormalWishart` | see there |
| `VectorGaussian` | x in R^E | (x, −½xxᵀ) | (precision · mean, precision) |
| `NormalGammaRegression` | w in R^E, τ > 0 | (log τ, −τ, τw, −½τwwᵀ) | (a − 1 + ½E, b + ½mᵀPm, Pm, P) |
| `PointMean` | x real, at one point | (x, −x²/2) | sums whose likelihood x maximises |
| `PointProbability` | v in (0, 1), at one point | (log v, log(1 − v)) | counts whose likelihood v maximises |
| `PointGaussian` | μ real, τ > 0, at a point | (log τ, −τ, τμ, −τμ²/2) | sums whose likelihood they maximise |

Shapes. Statistics, expected statistics and natural parameters of a family are pytrees of one structure: an array, or a
NamedTuple of arrays. The arrays of a NamedTuple have the same leading axes; `Family.field_event_ndims` says how many
more each has. Leading axes are *elements*, independent of each other. A family on an event (`event_ndim` at least 1)
has the event on its last axes. Only such a family takes `event_mask`, a boolean array of the entries that exist, which
is broadcastable to the natural parameter.

This table says which axes a site of each family declares (`Site.axes`), and which statistics the model receives:

| family | `Site.axes` | statistics |
|---|---|---|
| `Dirichlet`, `PointSimplex`, `Categorical` | (elements…, event) | one array (elements…, event) |
| `Bernoulli`, `KnownPrecisionGaussian` | (elements…) | one array (elements…) |
| `MarkovChain` | (elements…, row, state, state) | `state`, on the first two of these, and `step` on all three |
| `Beta`, `PointProbability` | (elements…) | `log_value`, `log_complement`, each (elements…) |
| `Gamma` | (elements…) | `log_value`, `negative_value`, each (elements…) |
| `Gaussian`, `PointMean` | (elements…) | `value`, `negative_half_square`, each (elements…) |
| `NormalGamma`, `PointGaussian` | (elements…) | the four fields of `NormalGammaStatistics`, each (elements…) |
| `NormalWishart` | (elements…, event, event) | fields of `NormalWishartStatistics`: none, two, one and no event axes |
| `VectorGaussian` | (elements…, event, event) | fields of `VectorGaussianStatistics`: one and two event axes |
| `NormalGammaRegression` | (elements…, event, event) | fields of `RegressionStatistics`: none, none, one and two |
| `TiedNormalWishart` | (elements…, component, event, event) | as `NormalWishart`, each with the axis component first |

Entries that do not exist contribute exactly 0 to every result, and their gradients are 0. Everything follows the dtype
of its arguments. Log-normalisers and entropies are in nats.

Dirichlet, Beta, Gamma and Gaussian entropies are differences of large numbers when the posterior is sharp. In float32
expect an absolute error near 1e-7 · concentration · log(concentration). Use float64 where bounds are recorded.
"""

from lvsearch.models.exponential.family import Family, IndicatorFamily, UnitCarrierFamily
from lvsearch.models.exponential.indicators import Bernoulli, Categorical, MarkovChain, MarkovChainStatistics
from lvsearch.models.exponential.normal_wishart import (
    MeanAndPrecisionMatrix,
    NormalWishart,
    NormalWishartStatistics,
    TiedNormalWishart,
)
from lvsearch.models.exponential.regression import (
    NormalGammaRegression,
    RegressionStatistics,
    VectorGaussian,
    VectorGaussianStatistics,
    WeightAndPrecision,
)
from lvsearch.models.exponential.scalars import (
    Beta,
    BetaStatistics,
    Gamma,
    GammaStatistics,
    Gaussian,
    GaussianStatistics,
    KnownPrecisionGaussian,
    MeanAndPrecision,
    NormalGamma,
    NormalGammaStatistics,
    PointGaussian,
    PointMean,
    PointProbability,
)
from lvsearch.models.exponential.simplex import Dirichlet, PointSimplex

__all__ = [
    "Bernoulli",
    "Beta",
    "BetaStatistics",
    "Categorical",
    "Dirichlet",
    "Family",
    "Gamma",
    "GammaStatistics",
    "Gaussian",
    "GaussianStatistics",
    "IndicatorFamily",
    "KnownPrecisionGaussian",
    "MarkovChain",
    "MarkovChainStatistics",
    "MeanAndPrecision",
    "MeanAndPrecisionMatrix",
    "NormalGamma",
    "NormalGammaRegression",
    "NormalGammaStatistics",
    "NormalWishart",
    "NormalWishartStatistics",
    "PointGaussian",
    "PointMean",
    "PointProbability",
    "PointSimplex",
    "RegressionStatistics",
    "TiedNormalWishart",
    "UnitCarrierFamily",
    "VectorGaussian",
    "VectorGaussianStatistics",
    "WeightAndPrecision",
]
