"""Draw how well the fit of each size predicts held-out data."""

from typing import TYPE_CHECKING

import pandas as pd

from lvsearch.pictures.captions import Caption
from lvsearch.pictures.size_axis import size_text
from lvsearch.recommending.differences_plot import draw_differences
from lvsearch.results.heldout import WITHIN
from lvsearch.results.posterior_plots import size_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_held_out(comparison: pd.DataFrame, axes: "Axes") -> Caption:
    """Draw the held-out score of each size relative to the most probable size, and return a caption without drawing it.

    Scores are log-likelihoods in nats per token or cell, with one standard error.

    comparison: a table from `lvsearch.results.heldout.held_out_comparison`.
    """
    reference, names, nouns = (comparison.attrs[name] for name in ("reference", "size_names", "nouns"))
    draw_differences(
        [tuple(int(part) for part in row) for row in comparison[list(names)].to_numpy()],
        comparison[f"difference_per_{nouns.observation}"].to_numpy(),
        comparison["standard_error"].to_numpy(),
        axes,
        marked=reference,
        within=WITHIN,
        label=size_label(comparison.attrs["unit"]),
        scale=f"nats per {nouns.observation}, above {size_text(reference)}",
    )
    return Caption(
        f"Held-out {nouns.units}: which size predicts best",
        f"{comparison.attrs['n_units']:,} {nouns.units}, {comparison.attrs['n_observations']:,} {nouns.observations}; "
        f"paired differences ± 1 standard error to {size_text(reference)}, the most probable size (orange); shaded: "
        f"within {WITHIN} nats per {nouns.observation}, as good; {comparison.attrs['estimator']}",
    )
