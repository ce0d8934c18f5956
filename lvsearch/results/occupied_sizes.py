"""Compute the posterior of the number of occupied components, beside that of the number of components in the model."""

import pandas as pd

from lvsearch.results.findings import Findings

COUNTS = 0.005
"""The smallest posterior probability of a size that is included; the sizes included are reweighted to sum to 1."""


def occupied_sizes(result: Findings, draws: int, seed: int) -> pd.DataFrame:
    """Return a table of p(size | data) and p(occupied | data) = Σ_size p(size | data) q(occupied | size).

    `q(occupied | size)` is that of the mean-field fit of the size. It covers one mode and is narrower than the
    posterior, so it is an indication and not calibrated.

    result: a search over one size variable with marginal evidence or the bound
    draws: how many draws of `FittedModel.occupied_under_fit` are counted per size
    seed: of the draws

    Returns a row per number of components: `components`, `size_probability`, `occupied_under_fits`.
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
