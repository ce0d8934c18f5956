"""A model of one's own: a hidden Markov model over sequences of numbers. How many states does the system have?

    transitions  A_k     ~ Dirichlet(1, …, 1)       statistic log A_kj           (state, state)
    means        μ_k     ~ Normal(0, 100)           statistics μ and −μ²/2       (state,)
    first state  z_1     uniform
    state        z_t     ~ Categorical(A_{z_{t−1}}) statistic one-hot            (row, state)
    number       x_t     ~ Normal(μ_{z_t}, 1)

Neighbouring states interact, so that they are updated one after the other: `slices="row"`. Sequences are `lv.Groups`,
one group each, of different lengths: python examples/hidden_markov.py. For use, `lv.models.HiddenMarkov` is the same
and faster: its path is one site, summed out whole.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import lvsearch as lv
from lvsearch.models import GroupOfRows, Site, first, hyperparameter
from lvsearch.models.families import Categorical, Dirichlet, Gaussian


@lv.models.register
class HiddenMarkov(lv.models.Model):
    """Sequences of one number a step. precision: of the prior of a state's mean."""

    precision: np.ndarray = eqx.field(converter=hyperparameter, default=0.01)

    size_names: ClassVar[tuple[str, ...]] = ("states",)
    unit_type: ClassVar[type] = GroupOfRows
    representation: ClassVar[str] = "path"

    def globals(self):
        return {"transitions": Site(Dirichlet(), ("state", "state")), "means": Site(Gaussian(), ("state",))}

    def locals(self):
        return {"path": Site(Categorical(), ("row", "state"), slices="row")}

    def extents(self, unit):
        return {"row": jnp.asarray(unit.present)}  # sequences are padded to one length: which steps there are

    def active(self, size, capacity):
        return {"state": first(size[0], capacity[0])}

    def log_prior(self, g, on):
        of_means = self.precision * g["means"].negative_half_square + 0.5 * jnp.log(self.precision / (2 * jnp.pi))
        of_rows = gammaln(on["state"].sum().astype(of_means.dtype))  # the density of Dirichlet(1, …, 1): (K − 1)!
        return jnp.where(on["state"], of_means + of_rows, 0.0).sum()

    def log_unit(self, g, l, unit, on):
        path, means, x = l["path"], g["means"], jnp.where(unit.observed, unit.value, 0.0)
        density = x * means.value + means.negative_half_square - 0.5 * x**2 - 0.5 * jnp.log(2 * jnp.pi)  # (row, state)
        emissions = jnp.where(unit.observed, path * density, 0.0).sum()
        steps = jnp.einsum("ti,ij,tj->t", path[:-1], g["transitions"], path[1:])
        starting = -jnp.log(on["state"].sum().astype(density.dtype))
        return starting + jnp.where(unit.present[1:], steps, 0.0).sum() + emissions

    def log_symmetry(self, size, natural):
        return lv.models.log_relabellings(np.stack([np.asarray(leaf) for leaf in natural["means"]], axis=1))


def main() -> None:
    """Machines that idle, work and overheat: the states, how long they last, and when."""
    rng = np.random.default_rng(0)
    levels, leaves = np.array([-4.0, 0.0, 5.0]), np.array([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.3, 0.0, 0.7]])
    machines = []
    for length in rng.integers(8, 14, 8):
        states = [1]
        for _ in range(length - 1):
            states.append(rng.choice(3, p=leaves[states[-1]]))
        machines.append(rng.normal(levels[states])[:, None])
    sequences, model = lv.Groups.from_arrays(machines), HiddenMarkov()
    print(lv.models.check(model, sequences))
    # by bounds, which takes seconds; leave `evidence` out for the annealed evidence, which takes minutes
    result = lv.search(
        model, sequences, prior=lv.sizes.Poisson(2), max_size=4, evidence="bound", starts=2, progress=False
    )
    print(result.posterior()[["size", "log_evidence_lower", "probability"]].round(3).to_string(index=False))
    print("mean of each state:", ", ".join(f"{mean:.1f}" for mean in result.best.table("means")["means"]))
    paths = result.best.transform(sequences)
    print("the first sequence:", "".join(str(state) for state in paths[0].argmax(axis=1)))


if __name__ == "__main__":
    main()
