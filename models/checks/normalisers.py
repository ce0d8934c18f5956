"""Does the mean of a family of one's own equal the gradient of its log-normaliser? (Blei 2004, Eq. 2.3)"""

from typing import Any

import jax
import numpy as np

from lvsearch.models import families
from lvsearch.models.checks.probe import Probe, fields_of
from lvsearch.models.contract import Site
from lvsearch.models.families import Family
from lvsearch.models.kernels import kernel

OURS = frozenset(getattr(families, name) for name in families.__all__)
"""Tested on their own, and compiling all of them again takes as long as the rest of the check."""
TOLERANCE = 1e-6
"""Relative. Families compute a digamma, or a gradient of log Γ, in more than one way."""


@kernel()
def _both(family: Family, natural: Any) -> tuple[Any, Any]:
    return jax.grad(lambda eta: family.log_normaliser(eta).sum())(natural), family.mean(natural)


def check_normalisers(p: Probe) -> str:
    """At the natural parameters that the model gives its sites. Raises ValueError naming site, family and statistic."""
    of_sites = [(p.model.globals(), p.natural_g), (p.model.locals(), p.natural_l)]
    own = [(n, s, nat[n]) for sites, nat in of_sites for n, s in sites.items() if type(s.family) not in OURS]
    for name, site, natural in own:
        _check_family(type(p.model).__name__, name, site, natural)
    return ", ".join(type(site.family).__name__ for _, site, _ in own) or "families of lv.models, tested on their own"


def _check_family(model: str, name: str, site: Site, natural: Any) -> None:
    gradient, mean = _both(site.family, natural)
    for (field, got), (_, expected) in zip(fields_of(mean), fields_of(gradient), strict=True):
        if not np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE):
            index = np.unravel_index(np.argmax(np.abs(got - expected)), got.shape)
            family = type(site.family).__name__
            raise ValueError(
                f"{family}, the family of the site {name!r} of {model}, has a mean that is not the gradient of its "
                f"log-normaliser: got E[t] = {got[index]:.6g} {f'of {field} ' if field else ''}where the gradient is "
                f"{expected[index]:.6g}, expected the same; correct {family}.mean or {family}.log_normaliser"
            )
