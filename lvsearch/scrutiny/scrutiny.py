"""The class `Scrutiny`: the checks that were made of a search after it ended, kept with its result."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvsearch.files.untrusted_files import as_declared
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.scrutiny.audit import Audit
from lvsearch.scrutiny.persistence import Persistence
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.scrutiny.sensitivity import Sensitivity
from lvsearch.sizing.sizes import SizePrior


@dataclass(frozen=True)
class Scrutiny:
    """The checks that were made of a search after it ended; None for a check that was not made.

    | field | meaning | method that adds it |
    |---|---|---|
    | `audit` | the error of the evidence itself | `with_audit` |
    | `persistence` | how surely each component exists | `with_persistence` |
    | `robustness` | the answer with fewer units | `with_robustness` |
    | `sensitivity` | whether the answer depends on the hyper-parameters | `with_sensitivity` |
    | `recommended` | the smallest size that predicts as well as any | `with_recommended` |
    """

    audit: Audit | None = None
    persistence: Persistence | None = None
    robustness: Robustness | None = None
    sensitivity: Sensitivity | None = None
    recommended: Recommendation | None = None

    def with_prior(self, prior: SizePrior) -> "Scrutiny":
        """Return a copy of the checks under another prior over sizes.

        The persistence of components is dropped, since its fits have sizes drawn under the old prior. Robustness and
        sensitivity are dropped if the prior gives none of their sizes any probability.
        """
        robustness, sensitivity = self.robustness, self.sensitivity
        return Scrutiny(
            self.audit,
            None,
            robustness.with_prior(prior) if robustness is not None and robustness.allows(prior) else None,
            sensitivity.with_prior(prior) if sensitivity is not None and sensitivity.allows(prior) else None,
            self.recommended,
        )

    def under(self, prior: SizePrior) -> "Scrutiny":
        """Return a copy of the checks under another prior. Deprecated: it warns; call `with_prior` instead."""
        warnings.warn("Scrutiny.under is called Scrutiny.with_prior now", DeprecationWarning, stacklevel=2)
        return self.with_prior(prior)

    def to_stored(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """Return the checks as JSON data {check: data} and arrays {check: {name: array}}, to store in a folder."""
        named = {
            "audit": self.audit,
            "persistence": self.persistence,
            "sensitivity": self.sensitivity,
            "recommended": self.recommended,
        }
        body: dict[str, Any] = {name: None if each is None else each.to_json() for name, each in named.items()}
        body["robustness"], arrays = None, {}
        if self.robustness is not None:
            body["robustness"], arrays["robustness"] = self.robustness.to_stored()
        return body, arrays

    @classmethod
    def from_stored(cls, body: Mapping[str, Any], arrays: Mapping[str, Mapping[str, np.ndarray]]) -> "Scrutiny":
        """Return the checks that `to_stored` encoded.

        body: JSON data of the folder, {check: data}; a check that is missing, as in older folders, becomes None.
        arrays: arrays of the folder, {check: {name: array}}.

        Raises KeyError or TypeError for data that are not those of a check.
        """
        audit, persistence = body.get("audit"), body.get("persistence")
        robustness, sensitivity = body.get("robustness"), body.get("sensitivity")
        recommended = body.get("recommended")
        return cls(
            None if audit is None else Audit.from_json(audit),
            None if persistence is None else as_declared(Persistence.from_json(persistence)),
            None if robustness is None else as_declared(Robustness.from_stored(robustness, arrays["robustness"])),
            None if sensitivity is None else as_declared(Sensitivity.from_json(sensitivity)),
            None if recommended is None else as_declared(Recommendation.from_json(recommended)),
        )


NOTHING_ASKED = Scrutiny()
"""The checks of a search for which none were made."""
