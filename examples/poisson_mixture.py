"""A model of one's own: a mixture of Poissons over rows of counts. How many kinds of rows are there?

The model is its log-joint, written in the statistics of its sites and linear in each:

    weights  π      ~ Dirichlet(1, …, 1)            statistic log π              (component,)
    rates    λ_kd   ~ Gamma(shape, rate)            statistics log λ and −λ      (component, dim)
    kind     z_n    ~ Categorical(π)                statistic one-hot            (component,)
    counts   x_nd   ~ Poisson(λ_{z_n, d})

Mean field, Gibbs sampling, the annealed evidence and the search follow from it: python examples/poisson_mixture.py
"""

import tempfile
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import lvsearch as lv
from lvsearch.models import Row, Site, first, hyperparameter
from lvsearch.models.families import Categorical, Dirichlet, Gamma


@lv.models.register  # so that its searches can be saved and loaded
class PoissonMixture(lv.models.Model):
    """Rows of counts, each of one of `size` kinds. shape, rate: of the Gamma prior of every rate."""

    shape: np.ndarray = eqx.field(converter=hyperparameter, default=1.0)
    rate: np.ndarray = eqx.field(converter=hyperparameter, default=0.1)

    size_names: ClassVar[tuple[str, ...]] = ("components",)
    unit_type: ClassVar[type] = Row  # what one unit of the data is: a row of numbers, some of them not observed
    representation: ClassVar[str] = "kind"  # what `transform` returns

    def globals(self):
        return {"weights": Site(Dirichlet(), ("component",)), "rates": Site(Gamma(), ("component", "dim"))}

    def locals(self):
        return {"kind": Site(Categorical(), ("component",))}

    def active(self, size, capacity):
        return {"component": first(size[0], capacity[0])}

    def log_prior(self, g, on):
        exists, rates = on["component"], g["rates"]
        of_rates = (self.shape - 1) * rates.log_value + self.rate * rates.negative_value
        of_rates = of_rates + self.shape * jnp.log(self.rate) - gammaln(self.shape)
        log_weights = gammaln(exists.sum().astype(of_rates.dtype))  # the density of Dirichlet(1, …, 1): (K − 1)!
        return log_weights + jnp.where(exists[:, None], of_rates, 0.0).sum()  # places that stand empty add nothing

    def log_unit(self, g, l, unit, on):
        x, rates = jnp.where(unit.observed, unit.value, 0.0), g["rates"]
        cells = x * rates.log_value + rates.negative_value - gammaln(x + 1)
        of_kind = g["weights"] + jnp.where(unit.observed, cells, 0.0).sum(1)
        return (l["kind"] * of_kind).sum()

    def log_symmetry(self, size, natural):
        columns = [np.asarray(natural["weights"])[:, None], *map(np.asarray, natural["rates"])]
        return lv.models.log_relabellings(np.concatenate(columns, axis=1))


def main() -> None:
    """Three kinds of customers and what they buy: found, saved and loaded."""
    rng = np.random.default_rng(0)
    kinds = np.array([[9.0, 1.0, 1.0, 4.0], [1.0, 8.0, 2.0, 0.5], [3.0, 2.0, 12.0, 1.0]])
    customers = lv.Points.from_array(rng.poisson(kinds[rng.integers(0, 3, 60)]).astype(float))
    model = PoissonMixture()
    print(lv.models.check(model, customers))
    # by bounds, which takes seconds; leave `evidence` out for the annealed evidence, which takes a minute
    result = lv.search(model, customers, prior=lv.sizes.Poisson(2), max_size=5, evidence="bound", progress=False)
    print(result.posterior()[["size", "log_evidence_lower", "probability"]].round(3).to_string(index=False))
    with tempfile.TemporaryDirectory() as folder:
        result.save(f"{folder}/run")
        again = lv.load(f"{folder}/run")
    rates = again.best.table("rates").round(1)
    print(f"\nsize {again.best_size[0]}, their mean counts:\n{rates.to_string()}")


if __name__ == "__main__":
    main()
