"""A check that the mean of a user's own family equals the gradient of its log-normaliser (Blei 2004, Eq. 2.3)."""

from typing import Any

import jax
import numpy as np

from lvsearch.models import families
from lvsearch.models.checks.probe import Probe, fields_of
from lvsearch.models.contract import Site
from lvsearch.models.families import Family
from lvsearch.models.kernels import kernel

OURS = frozenset(getattr(families, name) for name in families.__all__)
"""The families of lvsearch, which this check skips: they have tests, and compiling them here would double its time."""
TOLERANCE = 1e-6
"""The largest relative difference. Families compute a digamma, or a gradient of log Γ, in more than one way."""


@kernel()
def _gradient_and_mean(family: Family, natural: Any) -> tuple[Any, Any]:
    """Return (gradient of the log-normaliser, E[t(x)]) of a family at natural parameters, two pytrees of one
    structure.
    """
    return jax.grad(lambda eta: family.log_normaliser(eta).sum())(natural), family.mean(natural)


def check_normalisers(p: Probe) -> str:
    """Check the mean of those families that are not lvsearch's own, at the natural parameters of the model's variables.

    p: the model with natural parameters of its latent variables.

    Returns what was checked, as text. Raises ValueError naming the latent variable, the family and the statistic.
    """
    levels = [(p.model.globals(), p.natural_g), (p.model.locals(), p.natural_l)]
    own = [(n, s, nat[n]) for sites, nat in levels for n, s in sites.items() if type(s.family) not in OURS]
    for name, site, natural in own:
        _check_family(type(p.model).__name__, name, site, natural)
    return ", ".join(type(site.family).__name__ for _, site, _ in own) or "families of lv.models, tested on their own"


def _check_family(model: str, name: str, site: Site, natural: Any) -> None:
    """Raise ValueError if the mean of a latent variable's family differs from the gradient of its log-normaliser.

    model, name: the names of the model and of the variable, for the error. site: the latent variable.
    natural: natural parameters of its family.
    """
    gradient, mean = _gradient_and_mean(site.family, natural)
    for (field, got), (_, expected) in zip(fields_of(mean), fields_of(gradient), strict=True):
        if not np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE):
            index = np.unravel_index(np.argmax(np.abs(got - expected)), got.shape)
            family = type(site.family).__name__
            raise ValueError(
                f"{family}, the family of the site {name!r} of {model}, has a mean that is not the gradient of its "
                f"log-normaliser: got E[t] = {got[index]:.6g} {f'of {field} ' if field else ''}where the gradient is "
                f"{expected[index]:.6g}, expected the same; correct {family}.mean or {family}.log_normaliser"
            )
