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
"""The families of lvsearch. They are tested on their own, and compiling them here takes as long as all other checks."""
TOLERANCE = 1e-6
"""The largest relative difference. Families compute a digamma, or a gradient of log Γ, in more than one way."""


@kernel()
def _gradient_and_mean(family: Family, natural: Any) -> tuple[Any, Any]:
    """Return (gradient of the log-normaliser, mean) at natural parameters."""
    return jax.grad(lambda eta: family.log_normaliser(eta).sum())(natural), family.mean(natural)


def check_normalisers(p: Probe) -> str:
    """Check the families that are not lvsearch's own, at the natural parameters that the model gives its sites.

    Returns what was checked, as text. Raises ValueError naming site, family and statistic.
    """
    levels = [(p.model.globals(), p.natural_g), (p.model.locals(), p.natural_l)]
    own = [(n, s, nat[n]) for sites, nat in levels for n, s in sites.items() if type(s.family) not in OURS]
    for name, site, natural in own:
        _check_family(type(p.model).__name__, name, site, natural)
    return ", ".join(type(site.family).__name__ for _, site, _ in own) or "families of lv.models, tested on their own"


def _check_family(model: str, name: str, site: Site, natural: Any) -> None:
    """Raise ValueError if the family's mean differs from the gradient of its log-normaliser."""
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
