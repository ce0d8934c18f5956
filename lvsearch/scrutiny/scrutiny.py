"""What was asked of a search once it had ended, kept beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvsearch.files.declared import as_declared
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.scrutiny.audit import Audit
from lvsearch.scrutiny.persistence import Persistence
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.scrutiny.sensitivity import Sensitivity
from lvsearch.sizing.sizes import SizePrior


@dataclass(frozen=True)
class Scrutiny:
    """What was asked of a search once it had ended; None for what was not.

    | field | meaning | put there by |
    |---|---|---|
    | `audit` | how far the evidence itself is off | `with_audit` |
    | `persistence` | how surely each component exists | `with_persistence` |
    | `robustness` | what fewer units say | `with_robustness` |
    | `sensitivity` | whether the answer hangs on the numbers in priors | `with_sensitivity` |
    | `recommended` | the smallest size that predicts as well as any | `with_recommended` |
    """

    audit: Audit | None = None
    persistence: Persistence | None = None
    robustness: Robustness | None = None
    sensitivity: Sensitivity | None = None
    recommended: Recommendation | None = None

    def under(self, prior: SizePrior) -> "Scrutiny":
        """The same under another prior over sizes; without the persistence, which drew its sizes under the old one."""
        robustness = None if self.robustness is None else self.robustness.under(prior)
        sensitivity = None if self.sensitivity is None else self.sensitivity.under(prior)
        return Scrutiny(self.audit, None, robustness, sensitivity, self.recommended)

    def to_stored(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """Entries of a folder's body, and its arrays by name."""
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
        """What `to_stored` gave; older folders know of none. Errors of each part as its own."""
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
