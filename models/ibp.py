"""The Indian buffet process in its finite form: beta–Bernoulli features with Gaussian loadings.

Source: Griffiths & Ghahramani (2011), §2 and §4; CMU 10-708 lecture 23. The generative story:

    1. concentration       α   ~ Gamma(a, rate b)                 or a given value
    2. loading precision   λ_A ~ Gamma(a, rate b)                 or a given value;  λ_A = 1/σ_A²
    3. noise precision     λ_x ~ Gamma(a, rate b)                 or a given value;  λ_x = 1/σ_x²
    4. sticks              π_k ~ Beta(α/K, 1)                     k = 1…K features
    5. loadings            A_kd ~ Normal(0, 1/λ_A)                d = 1…D columns
    6. features            z_nk ~ Bernoulli(π_k)                  n = 1…N rows
    7. data                x_nd ~ Normal(Σ_k z_nk A_kd, 1/λ_x)    where observed

A latent variable of the model is called a site. The stick of a feature is the probability that a row has it.

| field | letter | shape | support |
|---|---|---|---|
| `concentration` | α | () or a `GammaPrior` | > 0 |
| `loading_precision` | λ_A | () or a `GammaPrior` | > 0 |
| `noise_precision` | λ_x | () or a `GammaPrior` | > 0 |
| site `sticks` | (log π_k, log(1 − π_k)) | (feature,) | (0, 1) |
| site `loadings` | (A_kd, −A_kd²/2) | (feature, dim) | real |
| site `features` | z_nk | (feature,) | 0 or 1 |

Each of the first three is a site of its own where it has a prior. As K grows the finite form becomes the Indian buffet
process: a row has α features on average (exactly α K / (K + α)) and N rows share α H_N different ones, H_N = Σ 1/n.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.contract import (
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Model,
    Site,
    Statistics,
    first,
    log_relabellings,
)
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.families import (
    Bernoulli,
    Beta,
    BetaStatistics,
    Gamma,
    GammaStatistics,
    Gaussian,
    GaussianStatistics,
)
from lvsearch.models.hyperpriors import UNIT_PRIOR, GammaPrior, as_text, log_gamma_density, positive_or_gamma_prior
from lvsearch.models.units import Row


class IBP(Model):
    """The finite linear-Gaussian Indian buffet: a row is the sum of the loadings of the features it has, plus noise.

    concentration, loading_precision, noise_precision: α, λ_A and λ_x. A number fixes one; with a `GammaPrior` it is a
        latent variable that is inferred. The default priors, Gamma(1, 1), expect data with a standard deviation of
        about 1: scale X, or give priors in the units of X.

    The features of a row interact, and so do the loadings of different features. So both are updated one feature at a
    time.

    What `size` means: the number of features that *can* be used. With α/K in the sticks' prior, features that no row
    has cost almost nothing, and the evidence tends to that of the infinite process as K grows. It rises while K is too
    small and is nearly flat beyond. The prior on sizes decides among the large ones.

    `nested` is False: Proposition 1 is about plug-in forms, and there is none here (`plug_in` says why).
    """

    concentration: HyperparameterArray | GammaPrior
    loading_precision: HyperparameterArray | GammaPrior
    noise_precision: HyperparameterArray | GammaPrior

    size_names: ClassVar[tuple[str, ...]] = ("features",)
    nested: ClassVar[bool] = False
    unit_type: ClassVar[type] = Row
    representation: ClassVar[str] = "features"
    size_is_limit: ClassVar[bool] = True

    def __init__(
        self,
        concentration: Any = UNIT_PRIOR,
        loading_precision: Any = UNIT_PRIOR,
        noise_precision: Any = UNIT_PRIOR,
    ):
        self.concentration = positive_or_gamma_prior("concentration", concentration)
        self.loading_precision = positive_or_gamma_prior("loading_precision", loading_precision)
        self.noise_precision = positive_or_gamma_prior("noise_precision", noise_precision)

    @property
    def hyperparameters(self) -> dict[str, HyperparameterArray | GammaPrior]:
        """The three hyper-parameters as {name of the field: number or `GammaPrior`}."""
        return {
            "concentration": self.concentration,
            "loading_precision": self.loading_precision,
            "noise_precision": self.noise_precision,
        }

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "IBP: concentration 2, spread evenly (sticks ~ Beta(2/K, 1)); loading precision 1; noise precision 4".
        """
        alpha = "α" if isinstance(self.concentration, GammaPrior) else as_text(self.concentration)
        return (
            f"IBP: concentration {as_text(self.concentration)}, spread evenly (sticks ~ Beta({alpha}/K, 1)); "
            f"loading precision {as_text(self.loading_precision)}; noise precision {as_text(self.noise_precision)}"
        )

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all rows share: inferred hyper-parameters, the feature probabilities, and
        the loadings.
        """
        inferred = {n: Site(Gamma(), ()) for n, v in self.hyperparameters.items() if isinstance(v, GammaPrior)}
        return {
            **inferred,
            "sticks": Site(Beta(), ("feature",)),
            "loadings": Site(Gaussian(), ("feature", "dim"), slices="feature"),
        }

    def locals(self) -> dict[str, Site]:
        """Return the latent variable of one row: which features it has, 0 or 1 on the axis (feature,)."""
        return {"features": Site(Bernoulli(), ("feature",), slices="feature")}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"feature": mask of the features that exist}, of length `capacity[0]`."""
        return {"feature": first(size[0], capacity[0])}

    def _log_and_value(self, name: str, g: Latents) -> tuple[Any, Any]:
        """Return (log x, x) of the hyper-parameter x called `name`.

        g: {name: statistics}; if x is inferred, the result is from its (expected) statistics, else from the given
            value.
        """
        given = self.hyperparameters[name]
        if isinstance(given, GammaPrior):
            return g[name].log_value, -g[name].negative_value
        return jnp.log(given), given

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return Σ_k [log Beta(π_k | α/K, 1) + Σ_d log Normal(A_kd | 0, 1/λ_A)], plus hyper-priors, in nats.

        π_k is the probability of feature k = 1…K, A_kd its loading in column d, and λ_A the precision of loadings.

        g: {"sticks", "loadings", inferred hyper-parameters: statistics}. on: {"feature": mask of the features that
            exist}.
        """
        exists = on["feature"]
        log_alpha, alpha = self._log_and_value("concentration", g)
        log_loading, loading = self._log_and_value("loading_precision", g)
        n_features = exists.sum()
        # log Beta(π_k | α/K, 1) and Σ_d log Normal(A_kd | 0, 1/λ_A)
        sticks = log_alpha - jnp.log(n_features) + (alpha / n_features - 1) * g["sticks"].log_value
        loadings = 0.5 * (log_loading - LOG_2PI) + loading * g["loadings"].negative_half_square  # (feature, dim)
        inferred = [
            log_gamma_density(prior, g[name])
            for name, prior in self.hyperparameters.items()
            if isinstance(prior, GammaPrior)
        ]
        return (sticks + loadings.sum(-1)).sum(where=exists) + sum(inferred)

    def log_unit(self, g: Latents, l: Latents, unit: Row, on: Masks) -> Float[Array, ""]:
        """Return log p(z | π) + Σ_d log Normal(x_d | Σ_k z_k A_kd, 1/λ_x) of one row, over observed cells, in nats.

        z_k is 1 if the row x has feature k, A_kd is the loading of feature k in column d, and λ_x the precision of
        noise.

        g: {"sticks", "loadings", inferred hyper-parameters: statistics}. l: {"features": z, shape (feature,)}.
        unit: the row. on: {"feature": mask of the features that exist}.
        """
        exists, z, loadings = on["feature"], l["features"], g["loadings"]
        log_precision, precision = self._log_and_value("noise_precision", g)
        log_features = (z * g["sticks"].log_value + (1 - z) * g["sticks"].log_complement).sum(where=exists)
        x = jnp.where(unit.observed, unit.value, 0.0)
        parts = z[:, None] * loadings.value  # (feature, dim)
        total = parts.sum(0)
        pairs = total**2 - (parts**2).sum(0)  # Σ_{k≠j} z_k z_j A_k A_j: different elements, so their means multiply
        squares = (z[:, None] * -2 * loadings.negative_half_square).sum(0)  # z² = z, and A² is a statistic of its own
        residual = x**2 - 2 * x * total + pairs + squares  # E[(x_d − Σ_k z_k A_kd)²]
        log_density = 0.5 * (log_precision - LOG_2PI - precision * residual)
        return log_features + jnp.where(unit.observed, log_density, 0.0).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K features in groups of m_j identical ones: the log number of
        relabellings.

        Features that no row has are the most common such group. size: (K,).
        natural: {name: natural parameters} of the globals.
        """
        leaves = jax.tree.leaves((natural["sticks"], natural["loadings"]))
        return log_relabellings(np.concatenate([np.asarray(x)[: size[0]].reshape(size[0], -1) for x in leaves], axis=1))

    def ceiling(self, units: Row) -> float:
        """Return ½ log(λ_x / 2π) per observed cell, summed, in nats, if the noise precision λ_x is given; inf if it is
        inferred.

        units: all rows.

        Proof: no Gaussian density of precision λ_x exceeds √(λ_x / 2π), whatever its mean. Where λ_x is free, data that
        the features fit exactly have a density without bound.
        """
        if isinstance(self.noise_precision, GammaPrior):
            return np.inf
        return float(0.5 * np.sum(units.observed) * (np.log(self.noise_precision) - LOG_2PI))

    def plug_in(self) -> "IBP":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            'IBP has no plug-in form, got evidence="plug-in": use evidence="marginal". Loadings estimated at a point '
            "can have one feature for each row, and their likelihood rises with the size without end"
        )

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: Row, on: Masks) -> Row:
        """Draw the cells of one row, given its features and their loadings.

        g: {"loadings": (A, −A²/2), and "noise_precision" if inferred}. l: {"features": 0 or 1, shape (feature,)}.
        unit: a row whose `observed` is kept.
        """
        mean = l["features"] @ g["loadings"].value
        _, precision = self._log_and_value("noise_precision", g)
        return Row(mean + jax.random.normal(key, mean.shape, mean.dtype) / jnp.sqrt(precision), unit.observed)

    def simulate(self, key: Array, size: tuple[int, ...], units: Row, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, features and rows from the joint distribution.

        size: (number of features,). units: rows of which `observed` is kept.
        extents: {"dim": D}, the number D of columns.

        Returns (statistics of the globals by name, statistics of the locals by name with rows leading, the drawn rows).
        """
        key_hyper, key_sticks, key_loadings, key_features, key_data = jax.random.split(key, 5)
        n_rows, on = np.shape(units.value)[0], self.active(size, size)
        g: dict[str, Statistics] = {}
        for position, (name, prior) in enumerate(self.hyperparameters.items()):
            if isinstance(prior, GammaPrior):
                natural = GammaStatistics(jnp.asarray(prior.shape) - 1, jnp.asarray(prior.rate))
                g[name] = Gamma().sample(jax.random.fold_in(key_hyper, position), natural)
        _, alpha = self._log_and_value("concentration", g)
        _, loading = self._log_and_value("loading_precision", g)
        sticks = BetaStatistics(jnp.broadcast_to(jnp.asarray(alpha / size[0] - 1), size), jnp.zeros(size))
        g["sticks"] = Beta().sample(key_sticks, sticks)
        loadings = jax.random.normal(key_loadings, (*size, extents["dim"])) / jnp.sqrt(loading)
        g["loadings"] = GaussianStatistics(loadings, -0.5 * loadings**2)
        has = jax.random.uniform(key_features, (n_rows, *size)) < jnp.exp(g["sticks"].log_value)
        l = {"features": has.astype(loadings.dtype)}
        return g, l, self._draw_units(key_data, g, l, units, on)
