"""Compute posteriors beside that of the size: of the members of a mixture prior, and of the number of occupied
components.

A mixture prior is a weighted set of priors over sizes.
"""

import pandas as pd

from lvsearch.fitted.mixture_posterior import members_from_chains
from lvsearch.results.findings import Findings
from lvsearch.sizing.posterior import estimated_members, proved_members
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
    elif result.partitions is not None and result.state.partitions is not None:
        chains = result.state.partitions
        found = members_from_chains(prior, chains.run.trace(), chains.log_prior)
    else:
        sizes, _, estimate, error = result.estimates()
        found = estimated_members(prior, sizes, estimate, error)
    table = pd.DataFrame({"prior": found.members, "weight": found.weight})
    if found.probability is not None:
        table["probability"] = found.probability
    return table.assign(probability_lower=found.probability_lower, probability_upper=found.probability_upper)


# ── occupied components ───────────────────────────────────────────────────────────────────────────────────────────────


COUNTS = 0.005
"""The smallest posterior probability of a size that is included; the sizes included are reweighted to sum to 1."""


def occupied_sizes(result: Findings, draws: int, seed: int) -> pd.DataFrame:
    """Return a table of the posterior over sizes and of the distribution of the number of occupied components.

    A component is occupied if it holds at least one unit. Its distribution is Σ_size p(size | data) q(occupied | size),
    where q is the mean-field fit of each size. q covers one mode and is narrower than the posterior, so the
    distribution is an indication and not calibrated.

    result: a search over one size variable with marginal evidence or the bound.
    draws: the number of draws of all units' components per size.
    seed: the seed of these draws.

    Returns a row per number of components. `components` is the number, `size_probability` the probability that the
    model has so many, and `occupied_under_fits` the probability that so many are occupied.
    Raises ValueError for several size variables, for plug-in evidence, and for units that are not in one component
    each.
    """
    if len(result.evaluator.size_names) != 1 or result.evaluator.nested:
        raise ValueError(
            "got a search over several size variables, or of plug-in evidence, expected one size variable and "
            'evidence="marginal" or "bound": others have no table of occupied components'
        )
    table = result.posterior("estimate").set_index("size").loc[:, "probability"]
    kept = table.loc[table >= COUNTS]
    each = {
        size: result.fit(int(size)).occupied_under_fit(draws=draws, seed=seed).set_index("size")["probability"]
        for size in kept.index
    }
    occupied = pd.DataFrame(each).fillna(0.0) @ (kept / kept.sum())
    beside = pd.DataFrame({"size_probability": table, "occupied_under_fits": occupied}).fillna(0.0).sort_index()
    return beside.rename_axis("components").reset_index()
