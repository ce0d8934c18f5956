"""Compute the posterior over the members of a mixture prior, that is, of a weighted set of priors over sizes."""

import pandas as pd

from lvsearch.results.findings import Findings
from lvsearch.sizing.members import estimated_members, proved_members
from lvsearch.sizing.sizes import Mixture


def prior_members(result: Findings) -> pd.DataFrame:
    """Return the posterior probability of each member of a search's `Mixture` prior, as a table with a row per member.

    A member is one of the priors over sizes that the mixture weighs.

    Columns: `prior` (in words), `weight` (prior probability), `probability` (marginal evidence only),
    `probability_lower` and `probability_upper`. The last two are 5 % and 95 % points over the errors of the evidence,
    or proved ends for plug-in evidence.

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
