"""Posteriors over the number of *occupied* components in the table form of a size search, and several side by side.

A Dirichlet-process mixture has no size; what corresponds to "how many components" is how many some row is in. A finite
mixture of size K has K components, occupied or not: footnote 1 of Chiang & Poole. Their tables can be read together, as
long as one says which is which.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.inference.mixtures.occupied import OccupiedCounts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Z_95 = 1.6448536269514722
"""The 5 % and 95 % points of a Gaussian, in standard deviations."""


def occupied_table(counts: OccupiedCounts, log_prior: Float[np.ndarray, " blocks"] | None = None) -> pd.DataFrame:
    """As `SearchResult.posterior("estimate")`: a row per number of occupied components.

    log_prior: log p(K) for K = 1, 2, …; None where it is not known. `standard_error` is that of the probability, by
    Monte Carlo, and `probability_lower`, `probability_upper` follow from it; there is no evidence per size, so those
    columns are NaN."""
    prior = np.full(len(counts.sizes), np.nan) if log_prior is None else log_prior[counts.sizes - 1]
    reach = Z_95 * counts.standard_error
    return pd.DataFrame(
        {
            "size": counts.sizes,
            "log_prior": prior,
            "log_evidence_lower": np.nan,
            "log_evidence_upper": np.nan,
            "standard_error": counts.standard_error,
            "probability": counts.probability,
            "probability_lower": np.clip(counts.probability - reach, 0, 1),
            "probability_upper": np.clip(counts.probability + reach, 0, 1),
        }
    )


def side_by_side(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Probabilities of each number of components, a column per table, 0 where a table does not have it.

    tables: name -> `SearchResult.posterior()` of one size variable, or `FittedModel.occupied()`.
    """
    columns = {name: table.set_index("size")["probability"] for name, table in tables.items()}
    return pd.DataFrame(columns).sort_index().fillna(0.0)


def plot_side_by_side(tables: Mapping[str, pd.DataFrame], ax: "Axes | None" = None) -> "Axes":
    """Bars of probability for each number of components, one colour per table, with the 5 % to 95 % range of each."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    axes = plt.subplots(figsize=(6.0, 3.4))[1] if ax is None else ax
    width = 0.8 / len(tables)
    for position, (name, table) in enumerate(tables.items()):
        shown = table.loc[table["probability_upper"] > 1e-3]
        at = np.asarray(shown["size"], np.float64) + (position - (len(tables) - 1) / 2) * width
        axes.bar(at, shown["probability"], width, label=name, alpha=0.75)
        axes.vlines(at, shown["probability_lower"], shown["probability_upper"], color="black", linewidth=1.0)
    axes.set_xlabel("components (finite: size; process: occupied)")
    axes.set_ylabel("probability")
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    return axes
