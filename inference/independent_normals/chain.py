"""Mixtures of Gaussians with independent priors of means and precisions, annealed over labels and rates alone.

As diagonal Gaussians in `evidence.mixtures`, but that A is not that of a Normal–Gamma: where κ is the precision of the
prior of a mean itself, and not counted in rows, A is an integral over one precision (`quadrature`). The rate β of a
column has its prior and moves as any hyper-parameter (`evidence.mixture_hyperparameters`).
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
    """A `Chain` over the labels of an `IndependentNormalMixture`, means and precisions integrated out given the rates.

    `natural` is that of diagonal Gaussians: (a − ½, b, S, κ + n) in the letters of `quadrature`.
    """

    @classmethod
    def from_data(
        cls, model: FiniteMixture | IndependentNormalMixture, data: Dataset, size: int, capacity: int
    ) -> "IndependentNormalParts":
        """Raises ValueError as `CollapsedMixtureChain.from_data`."""
        alike = diagonal_form(model) if isinstance(model, IndependentNormalMixture) else model
        chain = CollapsedMixtureChain.from_data(alike, data, size, capacity)
        own = chain.component, chain.concentration, chain.size, chain.increments, chain.carriers, chain.tilts
        return cls(*own, chain.weight, chain.prior, chain.anchor, capacity)

    def normalisers(self, natural: Any) -> Float[Array, "component particle cell"]:
        """A of each component of each particle, cell by cell."""
        kappa = self._rows(self.component.number("pseudo_count"))
        shape = natural.log_precision.shape
        a, b, total, count = (leaf.ravel() for leaf in natural)
        return log_marginals(a + 0.5, b, total, count - kappa, kappa).reshape(*shape[:2], -1)


def diagonal_form(model: IndependentNormalMixture) -> FiniteMixture:
    """Return the mixture of diagonal Gaussians with the same hyper-parameters, κ in the place of the pseudo-count."""
    rate = GammaPrior(model.rate_shape, model.rate_rate)
    components = DiagonalComponents(model.location, model.scale, model.mean_precision, model.shape, rate)
    return FiniteMixture(components, model.concentration)


@evidence_chain.register
def _(model: IndependentNormalMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> HyperMixture:
    chain = IndependentNormalParts.from_data(model, data, size[0], capacity_of(size)[0])
    return HyperMixture.around(chain, diagonal_form(model).components, data)
