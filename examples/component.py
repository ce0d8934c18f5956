"""A component of one's own for the mixtures: rows of counts from Poissons.

The model of `poisson_mixture.py` again, as a *kind of component*: a conjugate prior, and what one row adds to it. All
that mixtures do comes with it, in `FiniteMixture` and in `DPMixture`: fits that try merges, splits and births, samplers
with the parameters integrated out, and an annealed evidence with an error far below a nat: python examples/component.py
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import lvsearch as lv
from lvsearch.models import Row, hyperparameter
from lvsearch.models.families import Gamma, GammaStatistics


@lv.models.register
class PoissonComponents(lv.models.Component):
    """x_d ~ Poisson(λ_d), λ_d ~ Gamma(shape, rate). Cells are counts; missing ones are left out."""

    shape: np.ndarray = eqx.field(converter=hyperparameter, default=1.0)
    rate: np.ndarray = eqx.field(converter=hyperparameter, default=0.1)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    estimated: ClassVar[bool] = False  # there is no plug-in form

    @property
    def family(self) -> Gamma:
        return Gamma()

    prior_family = family

    def check(self, units: Row) -> None:
        values = np.asarray(units.value)[np.asarray(units.observed)]
        wrong = values[(values < 0) | (values != np.round(values))]
        if wrong.size:
            raise ValueError(f"got a cell with {wrong[0]:g}, expected counts: 0, 1, 2, …")

    def prior(self, n_dims: int) -> GammaStatistics:
        """Natural parameters of one component's rates before any row."""
        zero = jnp.zeros(n_dims)
        return GammaStatistics(zero + (self.shape - 1), zero + self.rate)

    def increment(self, coordinates: Any, observed: Any) -> GammaStatistics:
        """What multiplies log λ and −λ in the log density of one row: its counts, and 1."""
        return GammaStatistics(coordinates, observed.astype(coordinates.dtype))

    def log_carrier(self, coordinates: Any, observed: Any) -> Any:
        """The part of a row's log density without λ: −log x!."""
        return -jnp.where(observed, gammaln(coordinates + 1), 0.0).sum()


def main() -> None:
    """How many kinds of customers are there, by what they buy?"""
    rng = np.random.default_rng(0)
    kinds = np.array([[9.0, 1.0, 1.0, 4.0], [1.0, 8.0, 2.0, 0.5], [3.0, 2.0, 12.0, 1.0]])
    customers = lv.Points.from_array(rng.poisson(kinds[rng.integers(0, 3, 30)]).astype(float))
    model = lv.models.FiniteMixture(PoissonComponents())
    print(lv.models.check(model, customers))
    result = lv.search(model, customers, prior=lv.sizes.Poisson(2), max_size=4, starts=1, seed=0, progress=False)
    shown = result.posterior()[["size", "log_evidence_lower", "log_evidence_upper", "probability"]].round(2)
    print(shown.to_string(index=False))
    print(result.best.table("components").round(1).to_string())


if __name__ == "__main__":
    main()
