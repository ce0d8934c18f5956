"""Which of several priors over sizes the data speak for, as a table."""

import pandas as pd

from lvsearch.results.findings import Findings
from lvsearch.sizing.members import estimated_members, proved_members
from lvsearch.sizing.sizes import Mixture


def prior_members(result: Findings) -> pd.DataFrame:
    """A row per member of a search's `Mixture`: prior (in words), weight, probability and its ends; see
    `SearchResult.prior_members`. Raises ValueError for another prior."""
    prior = result.prior
    if not isinstance(prior, Mixture):
        raise ValueError(f"got the prior {prior.describe()}, expected a lv.sizes.Mixture of several")
    if result.evaluator.nested:
        found = proved_members(prior, result.search)
    else:
        sizes, _, estimate, error = result.estimates()
        found = estimated_members(prior, sizes, estimate, error)
    table = pd.DataFrame({"prior": found.members, "weight": found.weight})
    if found.probability is not None:
        table["probability"] = found.probability
    return table.assign(probability_lower=found.probability_lower, probability_upper=found.probability_upper)
