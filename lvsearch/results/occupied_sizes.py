"""How many components some unit is in, beside how many the model has."""

import pandas as pd

from lvsearch.results.findings import Findings

COUNTS = 0.005
"""Sizes of less probability are left out; those that stay are weighted as if they were all."""


def occupied_sizes(result: Findings, draws: int, seed: int) -> pd.DataFrame:
    """A row per number: p(size | data), and p(occupied | data) = Σ_size p(size | data) q(occupied | size).

    q of each size is its mean-field fit's, of one mode and surer than it should be: an indication, not calibrated. From
    `draws` draws (`FittedModel.occupied_under_fit`). Raises ValueError for several size variables, a prior or evidence
    without probabilities, and units that are not in one component each.
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
