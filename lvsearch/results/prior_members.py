"""Compute the posterior over the members of a prior that is a mixture of priors over sizes."""

import pandas as pd

from lvsearch.results.findings import Findings
from lvsearch.sizing.members import estimated_members, proved_members
from lvsearch.sizing.sizes import Mixture


def prior_members(result: Findings) -> pd.DataFrame:
    """Return a table with a row per member of a search's `Mixture` prior; see `SearchResult.prior_members`.

    Columns: `prior` (in words), `weight`, `probability` (marginal evidence only), `probability_lower`,
    `probability_upper`.
    Raises ValueError if the prior is not a `Mixture`.
    """
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
