"""Poisson factorisation: every cell of a matrix of counts is a sum of counts from a few factors.

Source: Canny (2004); Cemgil (2009), §2; Gopalan, Hofman & Blei (2015), §2. The generative story:

    1. factors      β_kv ~ Gamma(c, rate c/μ_v)                    k = 1…K factors, v = 1…V columns
    2. intensities  θ_nk ~ Gamma(a/K, rate a)                      n = 1…N rows
    3. count        x_nv ~ Poisson(Σ_k θ_nk β_kv)                  where observed

Step 3 is the same as a Poisson number of single counts, each of which comes from one factor:

                    z ~ Categorical(θ_nk β_kv / Σ_j θ_nj β_jv)

With `noise_shape`, cells vary more than a Poisson distribution allows. Each cell then has a multiplier of mean 1:

    3'. noise       ε_nv ~ Gamma(r, rate r),      x_nv ~ Poisson(ε_nv Σ_k θ_nk β_kv),      z as before

So x_nv is negative binomial with mean m = Σ_k θ_nk β_kv and variance m + m²/r. A latent variable of the model is called
a site.

| field | letter | shape | support |
|---|---|---|---|
| `concentration` | a | () | > 0 |
| `factor_concentration` | c | () | > 0 |
| `mean_count` | μ | () or (dim,) | > 0 |
| `noise_shape` | r | () or a `GammaPrior` | > 0; None where there is no noise |
| site `factors` | (log β_kv, −β_kv) | (factor, dim) | > 0 |
| site `intensities` | (log θ_nk, −θ_nk) | (factor,) | > 0 |
| site `noise` | (log ε_nv, −ε_nv) | (dim,) | > 0; with a `noise_shape` |
| site `allocation` | z of the counts of each cell | (dim, factor) | one-hot, as many copies as the count |

Two prior expectations do not change as K grows, so that sizes compete over structure alone. The mean of a cell is
E[x_nv] = μ_v. The sum of a row's intensities is Σ_k θ_nk ~ Gamma(a, rate a), and the factors' shares of it are
~ Dirichlet(a/K, …), like the topics of a document in LDA. If each factor had a fixed mean intensity, every larger size
would expect larger counts, and pay for being wrong about them. If intensities had a fixed shape, larger sizes would
expect flatter rows.

The number r may have a Gamma prior. It stands inside log Γ, so the log-joint is not linear in any statistic of r, and r
cannot be a latent variable of `Model`. Code that evaluates the log-joint needs a number (`with_noise_shape`).
Simulation, the annealed evidence and the fit handle the prior.

Comparison with LDA. Write β_k = B_k φ_k with its sum B_k. Then φ_k ~ Dirichlet(c, …, c) if μ is one number, and a row
has Poisson(θ_nk B_k) counts of factor k, each in a column drawn from φ_k. If all B_k were the same number, the rows
given their totals would be LDA's documents. Here the B_k differ, by some √(1/Vc) of their mean, and the totals of the
rows are data too, including rows of zeros.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float
from scipy.special import gammaln as scipy_gammaln
from scipy.special import xlogy

from lvsearch.models.components.arguments import positive_parameter
from lvsearch.models.contract import (
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Model,
    Site,
    Statistics,
    concentration_parameter,
    first,
    log_relabellings,
)
from lvsearch.models.families import Categorical, Gamma, GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior, as_text, positive_or_gamma_prior
from lvsearch.models.plain_arguments import numbers
from lvsearch.models.units import Row

NOISE = 0x5012E
"""A number folded into a random key for the noise and its shape, so that their draws differ from all others of that
key.
"""


class PoissonFactorization(Model):
    """Rows of counts, each a sum of `size` factors; a factor has a mean count in every column.

    concentration: a, of the sum of a row's intensities, spread evenly over the factors. A small value means few factors
        in a row, and totals that differ much between rows.
    factor_concentration: c, of a factor over the columns. Below 1, most of a factor is in few columns.
    mean_count: μ, the expected count of a cell, one number or one per column. `scaled_to(counts)` computes it from
        data.
    noise_shape: r. The variance of a cell of mean m is m + m²/r. None, the default, means no noise: a variance of m.
        Without noise the model asks for more factors than there are wherever counts are large and vary for other
        reasons. With a `GammaPrior`, r is inferred, and integrated out of the evidence.

    Cells are whole numbers ≥ 0. Missing cells are left out of the likelihood; rows of zeros are data. Give `lv.Points`,
    rows × columns.

    `nested` is False: Proposition 1 is about plug-in forms, and there is none here (`plug_in` says why).
    """

    concentration: HyperparameterArray
    factor_concentration: HyperparameterArray
    mean_count: HyperparameterArray
    noise_shape: HyperparameterArray | GammaPrior | None

    size_names: ClassVar[tuple[str, ...]] = ("factors",)
    nested: ClassVar[bool] = False
    unit_type: ClassVar[type] = Row
    representation: ClassVar[str] = "intensities"

    def __init__(
        self,
        concentration: Any = 1.0,
        factor_concentration: Any = 0.3,
        mean_count: Any = 1.0,
        noise_shape: Any = None,
    ):
        self.concentration, self.factor_concentration = (
            positive_parameter(name, concentration_parameter(name, value))
            for name, value in (("concentration", concentration), ("factor_concentration", factor_concentration))
        )
        self.mean_count = positive_parameter("mean_count", mean_count, 1)
        self.noise_shape = None if noise_shape is None else positive_or_gamma_prior("noise_shape", noise_shape)

    @classmethod
    def scaled_to(
        cls,
        counts: Any,
        concentration: Any = 1.0,
        factor_concentration: Any = 0.3,
        *,
        by_column: bool = False,
        noise_shape: Any = None,
    ) -> "PoissonFactorization":
        """Make the model with `mean_count` computed from the observed cells.

        counts: (rows, columns), NaN where missing, as in `points.values`.
        concentration, factor_concentration, noise_shape: hyper-parameters of the class.
        by_column: if False, the mean of all observed cells. If True, the mean of each column, with one more cell of the
            overall mean. Use True for columns that differ much in all rows alike, such as genes or films: factors then
            describe deviations from the columns' means.

        Raises ValueError for an array that is no matrix, and for counts that are all 0 or missing.
        """
        values = numbers("counts", counts)
        observed = ~np.isnan(values)
        if values.ndim != 2 or not np.nansum(values) > 0:
            raise ValueError(
                f"got counts of shape {values.shape} with the sum {np.nansum(values)}, expected a matrix (rows, "
                "columns) of counts, some of them above 0"
            )
        mean = np.nansum(values) / observed.sum()
        if by_column:
            mean = (np.nansum(values, axis=0) + mean) / (observed.sum(0) + 1)
        return cls(concentration, factor_concentration, mean, noise_shape)

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "PoissonFactorization: intensities ~ Gamma(1/K, rate 1); factors ~ Gamma(0.3, mean 2.5)". With noise it
        ends "; cells vary by m²/20 beyond their means m".
        """
        a, c = float(self.concentration), float(self.factor_concentration)
        mean = f"mean {float(self.mean_count):g}" if self.mean_count.ndim == 0 else "a mean for each column"
        noise = ""
        if self.noise_shape is not None:
            prior = f", r {as_text(self.noise_shape)}" if self.inferred else ""
            number = "r" if self.inferred else as_text(self.noise_shape)
            noise = f"; cells vary by m²/{number} beyond their means m{prior}"
        return f"PoissonFactorization: intensities ~ Gamma({a:g}/K, rate {a:g}); factors ~ Gamma({c:g}, {mean}){noise}"

    @property
    def inferred(self) -> dict[str, GammaPrior]:
        """The priors of the hyper-parameters that have one, as {name of the field: prior}."""
        return {"noise_shape": self.noise_shape} if isinstance(self.noise_shape, GammaPrior) else {}

    def with_noise_shape(self, noise_shape: Any) -> "PoissonFactorization":
        """Return the model with a number in place of the prior of r (`noise_shape`), or the model itself if r has no
        prior.
        """
        if not self.inferred:
            return self
        return PoissonFactorization(self.concentration, self.factor_concentration, self.mean_count, noise_shape)

    def given_noise_shape(self) -> HyperparameterArray | None:
        """Return r (`noise_shape`), an array of shape (), or None for a model without noise.

        Raises ValueError where r has a prior.
        """
        if isinstance(self.noise_shape, GammaPrior):
            raise ValueError(
                "got a PoissonFactorization whose noise_shape has a GammaPrior, expected a number: its log-joint is no "
                "sum over statistics of it. Put a number in its place with with_noise_shape(…)"
            )
        return self.noise_shape

    def check(self, units: Row) -> None:
        """Raise ValueError for observed cells that are not whole numbers ≥ 0."""
        values = np.asarray(units.value)[np.asarray(units.observed)]
        wrong = values[(values < 0) | (values != np.floor(values))]
        if wrong.size:
            raise ValueError(
                f"got a cell with {float(wrong[0])!r} for {type(self).__name__}, expected counts: whole numbers ≥ 0"
            )

    def globals(self) -> dict[str, Site]:
        """Return the latent variable that all rows share: the mean count of each factor in each column."""
        return {"factors": Site(Gamma(), ("factor", "dim"))}

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one row: the intensities of the factors, the noise if there is any, and the
        factor of each count.
        """
        noise = {} if self.noise_shape is None else {"noise": Site(Gamma(), ("dim",))}
        return {
            "intensities": Site(Gamma(), ("factor",)),
            **noise,
            "allocation": Site(Categorical(), ("dim", "factor"), copies=_counts),
        }

    def extents(self, unit: Row) -> dict[str, int]:
        """Return {"dim": number of columns}."""
        return {"dim": np.shape(unit.value)[-1]}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"factor": mask of the factors that exist}, of length `capacity[0]`."""
        return {"factor": first(size[0], capacity[0])}

    def factor_rate(self) -> Any:
        """Return c/μ, the rate of the Gamma prior on factors, shape () or (dim,)."""
        return self.factor_concentration / self.mean_count

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return Σ_kv log Gamma(β_kv | concentration, rate) over factors k and columns v, in nats.

        g: {"factors": (log β, −β), shape (factor, dim)}. on: {"factor": mask of the factors that exist}.
        """
        per_cell = _log_gamma_density(g["factors"], self.factor_concentration, self.factor_rate())
        return jnp.where(on["factor"][:, None], per_cell, 0.0).sum()

    def log_unit(self, g: Latents, l: Latents, unit: Row, on: Masks) -> Float[Array, ""]:
        """Return log p(θ) + log p(noise) + Σ_kv log Poisson(x_kv | noise_v θ_k β_kv) of one row, in nats.

        θ_k is the intensity of factor k in the row and β_kv its mean count in column v. x_kv are the counts that column
        v has from factor k; over k they sum to the observed count.

        g: {"factors": (log β, −β), (factor, dim)}.
        l: {"intensities": (log θ, −θ), (factor,); "noise", if any, (dim,); "allocation", (dim, factor)}.
        unit: the row. on: {"factor": mask of the factors that exist}.
        """
        exists, factors, intensities = on["factor"], g["factors"], l["intensities"]
        per_factor = _log_gamma_density(intensities, self.concentration / exists.sum(), self.concentration)
        x, both = _counts(unit), jnp.asarray(unit.observed)[:, None] & exists
        counted = x[:, None] * l["allocation"] * (intensities.log_value + factors.log_value.T)
        expected = intensities.negative_value * factors.negative_value.T  # −θ times −β
        noise = jnp.zeros_like(x)
        if self.noise_shape is not None:
            expected = -l["noise"].negative_value[:, None] * expected
            r = self.given_noise_shape()
            noise = x * l["noise"].log_value + _log_gamma_density(l["noise"], r, r)
        # Σ_k [x_k log(θ_k β_kv) − θ_k β_kv] − log x!, where x_k are the counts of factor k
        cells = jnp.where(both, counted - expected, 0.0).sum(1) - jnp.where(unit.observed, gammaln(x + 1), 0.0)
        return jnp.where(exists, per_factor, 0.0).sum() + (cells + noise).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K factors in groups of m_j identical ones: the log number of
        relabellings.

        size: (K,). natural: {"factors": natural parameters, shape (factor, dim)}.
        """
        leaves = [np.asarray(leaf)[: size[0]] for leaf in jax.tree.leaves(natural["factors"])]
        return log_relabellings(np.concatenate(leaves, axis=1))

    def ceiling(self, units: Row) -> float:
        """Return Σ over observed cells of x log x − x − log x!, in nats: the log-likelihood if each cell had its own
        Poisson mean.

        units: all rows, with counts x.

        Proof: given its mean a cell's probability is a Poisson's, which is largest where the mean is the count. An
        average is at most the maximum.

        Raises ValueError for cells that are not whole numbers ≥ 0.
        """
        self.check(units)
        x = np.where(np.asarray(units.observed), np.asarray(units.value, np.float64), 0.0)
        return float((xlogy(x, x) - x - scipy_gammaln(x + 1)).sum())

    def plug_in(self) -> "PoissonFactorization":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            'PoissonFactorization has no plug-in form, got evidence="plug-in": use evidence="marginal". As many '
            "factors as there are columns fit any counts exactly, and likelihood alone never stops below that"
        )

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: Row, on: Masks) -> Row:
        """Draw the counts of one row given factors, intensities and noise. The allocation to factors is not used.

        g: {"factors": (log β, −β), (factor, dim)}. l: {"intensities": (factor,); "noise", if any, (dim,)}.
        unit: a row whose `observed` is kept. on: {"factor": mask of the factors that exist}.
        """
        mean = jnp.where(on["factor"], l["intensities"].negative_value, 0.0) @ g["factors"].negative_value
        if self.noise_shape is not None:
            mean = -l["noise"].negative_value * mean
        return Row(jax.random.poisson(key, mean).astype(mean.dtype), unit.observed)

    def simulate(self, key: Array, size: tuple[int, ...], units: Row, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, intensities and counts from the joint distribution.

        size: (number of factors,). units: rows of which `observed` is kept.
        extents: {"dim": V}, the number V of columns.

        Returns (statistics of the globals by name, statistics of the locals by name with rows leading, the drawn rows).
        A `noise_shape` r that has a prior is drawn too. It is returned among the globals, as (log r, −r).
        """
        key_factors, key_intensities, key_data, key_allocation = jax.random.split(key, 4)
        n_rows, n_dims, on = np.shape(units.value)[0], extents["dim"], self.active(size, size)
        shape, rate = jnp.asarray(self.factor_concentration), jnp.asarray(self.factor_rate())
        g: dict[str, Statistics] = {"factors": _draw_gamma(key_factors, shape, rate, (*size, n_dims))}
        a = jnp.asarray(self.concentration)
        intensities = _draw_gamma(key_intensities, a / size[0], a, (n_rows, *size))
        l: dict[str, Statistics] = {"intensities": intensities}
        if self.noise_shape is not None:
            r: Any = self.noise_shape
            if isinstance(r, GammaPrior):
                g["noise_shape"] = _draw_gamma(
                    jax.random.fold_in(key, NOISE + 1), jnp.asarray(r.shape), jnp.asarray(r.rate), ()
                )
                r = -g["noise_shape"].negative_value
            r = jnp.asarray(r)
            l["noise"] = _draw_gamma(jax.random.fold_in(key, NOISE), r, r, (n_rows, n_dims))
        drawn = self._draw_units(key_data, g, l, units, on)
        shares = intensities.log_value[:, None, :] + g["factors"].log_value.T
        copies = jax.vmap(_counts)(drawn)
        allocation = Categorical().sample_counts(key_allocation, shares, copies)
        return g, {**l, "allocation": allocation}, drawn


def _counts(unit: Row) -> Float[Array, " dim"]:
    """Return the counts of one row, shape (dim,); 0 for missing cells. They are the copies of `allocation`."""
    return jnp.where(unit.observed, unit.value, 0.0)


def _log_gamma_density(statistics: GammaStatistics, shape: Any, rate: Any) -> Array:
    """Return the log-density of Gamma(shape, rate) at each element x, in nats.

    statistics: (log x, −x).
    """
    kernel = (shape - 1) * statistics.log_value + rate * statistics.negative_value
    return kernel + shape * jnp.log(rate) - gammaln(shape)


def _draw_gamma(key: Array, shape: Any, rate: Any, elements: tuple[int, ...]) -> GammaStatistics:
    """Draw an array of independent values of Gamma(shape, rate), and return their statistics (log x, −x).

    elements: the shape of the array.
    """
    natural = GammaStatistics(jnp.broadcast_to(shape - 1, elements), jnp.broadcast_to(rate, elements))
    return Gamma().sample(key, natural)
