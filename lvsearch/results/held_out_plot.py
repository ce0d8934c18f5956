"""The picture of held-out data: what each kept size makes of units that the search did not see."""

from typing import TYPE_CHECKING

import pandas as pd

from lvsearch.pictures.captions import Caption
from lvsearch.pictures.size_axis import SizeAxis, short
from lvsearch.pictures.style import palette_of
from lvsearch.results.heldout import WITHIN
from lvsearch.results.posterior_plots import size_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_held_out(comparison: pd.DataFrame, axes: "Axes") -> Caption:
    """What `plots.plot_held_out` draws, and its caption, which is not written."""
    palette = palette_of(axes)
    reference, names, nouns = (comparison.attrs[name] for name in ("reference", "size_names", "nouns"))
    sizes = [tuple(int(part) for part in row) for row in comparison[list(names)].to_numpy()]
    where = SizeAxis.from_sizes(sizes)
    at = where.positions(sizes)
    difference = comparison[f"difference_per_{nouns.observation}"].to_numpy()
    error = comparison["standard_error"].to_numpy()
    axes.axhspan(-WITHIN, WITHIN, color=palette.band, linewidth=0, zorder=0)
    axes.axhline(0.0, color=palette.faint, linewidth=0.8, zorder=1)
    axes.vlines(at, difference - error, difference + error, color=palette.main, linewidth=2.4, zorder=3)
    axes.plot(at, difference, "o-", color=palette.main, markersize=5, linewidth=1, zorder=3)
    chosen = sizes.index(reference)
    axes.plot(at[chosen], difference[chosen], "o", color=palette.accent, markersize=8, zorder=4)
    low, high = float((difference - error).min()), float((difference + error).max())
    axes.set_ylim(min(1.1 * low, -1.6 * WITHIN), max(1.1 * high, 1.6 * WITHIN))
    where.ticks(axes, reference)
    axes.set_xlabel(size_label(comparison.attrs["unit"]), parse_math=False)
    axes.set_ylabel(f"nats per {nouns.observation}, above {short(reference)}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}".replace("-", "−"))
    return Caption(
        f"Held-out {nouns.units}: which size predicts best",
        f"{comparison.attrs['n_units']:,} {nouns.units}, {comparison.attrs['n_observations']:,} {nouns.observations}; "
        f"paired differences ± 1 standard error to {short(reference)}, the most probable size (orange); shaded: within "
        f"{WITHIN} nats per {nouns.observation}, as good; {comparison.attrs['estimator']}",
    )
