"""Mixtures of Gaussians with independent priors of means and precisions, annealed over labels and rates alone.

They are annealed like diagonal Gaussians in `evidence.mixtures`, but the log normaliser of a component is not that of a
Normal–Gamma. Here κ is the precision of the prior of a mean itself, and not counted in rows. So the normaliser is an
integral over one precision (`quadrature`). The rate β of a column's precisions has its prior and moves like any
hyper-parameter (`evidence.mixture_hyperparameters`).
"""

from typing import Any

from jaxtyping import Array, Float

from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.independent_normals.quadrature import log_marginals
from lvsearch.models.components import DiagonalComponents
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.independent_normal import IndependentNormalMixture


class IndependentNormalParts(CollapsedMixtureChain):
    """The annealing chain over labels of an `IndependentNormalMixture`, with means and precisions integrated out.

    The rates of the precisions are given. `natural` of a state is that of diagonal Gaussians: (a − ½, b, S, κ + n) in
    the letters of `quadrature`.
    """

    @classmethod
    def from_data(
        cls, model: FiniteMixture | IndependentNormalMixture, data: Dataset, size: int, capacity: int
    ) -> "IndependentNormalParts":
        """Return the chain of a mixture with `size` components, on the path from the prior.

        capacity: the number of components that arrays have room for.

        Raises ValueError for rows without a density, rows whose weight is neither 0 nor 1, and a size above the
        capacity.
        """
        alike = diagonal_form(model) if isinstance(model, IndependentNormalMixture) else model
        chain = CollapsedMixtureChain.from_data(alike, data, size, capacity)
        own = chain.component, chain.concentration, chain.size, chain.increments, chain.carriers, chain.tilts
        return cls(*own, chain.weight, chain.prior, chain.anchor, capacity)

    def normalisers(self, natural: Any) -> Float[Array, "component particle cell"]:
        """Return the log normaliser of each component's posterior in each column, (component, particle, cell), nats.

        natural: natural parameters of the components, as of diagonal Gaussians.
        """
        kappa = self._as_float(self.component.number("pseudo_count"))
        shape = natural.log_precision.shape
        a, b, total, count = (leaf.ravel() for leaf in natural)
        return log_marginals(a + 0.5, b, total, count - kappa, kappa).reshape(*shape[:2], -1)


def diagonal_form(model: IndependentNormalMixture) -> FiniteMixture:
    """Return the mixture of diagonal Gaussians from which `HyperMixture` reads this model's hyper-parameters.

    It is another model. Its pseudo-count is the number that is the prior precision of a mean here; there the prior
    precision of a mean is the pseudo-count times the component's own precision.
    """
    rate = GammaPrior(model.rate_shape, model.rate_rate)
    components = DiagonalComponents(model.location, model.scale, model.mean_precision, model.shape, rate)
    return FiniteMixture(components, model.concentration)


@evidence_chain.register
def _evidence_chain_of_independent_normals(
    model: IndependentNormalMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> HyperMixture:
    """Return the annealing chain over labels and rates of a Gaussian mixture with independent priors. `estimate` is
    not used.
    """
    chain = IndependentNormalParts.from_data(model, data, size[0], capacity_of(size)[0])
    return HyperMixture.around(chain, diagonal_form(model).components, data)
