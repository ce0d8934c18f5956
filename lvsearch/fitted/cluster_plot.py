"""The picture of a mixture: rows in two columns, coloured by component."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from lvsearch.data.points import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSIDE = 0.9
"""Share of a Gaussian inside its ellipse."""
PLATE = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
COLOURS = "tab10"


def plot_clusters(
    points: Points,
    shares: Float[np.ndarray, "row component"],
    means: Float[np.ndarray, "component dim"],
    covariances: Float[np.ndarray, "component dim dim"] | None,
    columns: tuple[Any, Any] | None,
    ax: "Axes | None",
) -> "Axes":
    """See `FittedMixture.plot_clusters`. covariances: None where components are not Gaussian."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Ellipse

    known = list(points.columns)
    chosen = tuple(known[:2]) if columns is None else tuple(columns)
    if len(chosen) != 2 or any(name not in known for name in chosen):
        raise ValueError(f"got columns {chosen}, expected two of {', '.join(map(repr, known))}")
    axes = plt.subplots(figsize=(6, 5), layout="constrained")[1] if ax is None else ax
    x, y = (known.index(name) for name in chosen)
    both = points.observed[:, x] & points.observed[:, y]
    palette = plt.get_cmap(COLOURS)
    of_row = shares.argmax(axis=1)
    colours = np.array([palette(component % palette.N) for component in of_row])
    colours[:, 3] = np.clip(shares.max(axis=1), 0.15, 0.9)
    axes.scatter(points.values[both, x], points.values[both, y], s=16, c=colours[both], linewidths=0)
    for component in np.unique(of_row).tolist():
        centre = float(means[component, x]), float(means[component, y])
        axes.annotate(str(component), centre, ha="center", va="center", weight="bold", zorder=4, bbox=PLATE)
        if covariances is not None:
            lengths, directions = np.linalg.eigh(covariances[component][np.ix_([x, y], [x, y])])
            width, height = 2 * np.sqrt(-2 * np.log(1 - INSIDE) * lengths)
            angle = np.degrees(np.arctan2(directions[1, 0], directions[0, 0]))
            colour = palette(component % palette.N)
            axes.add_patch(Ellipse(centre, width, height, angle=angle, fill=False, edgecolor=colour, linewidth=1.5))
    axes.set_xlabel(str(chosen[0]))
    axes.set_ylabel(str(chosen[1]))
    occupied = len(np.unique(of_row))
    axes.set_title(f"{occupied} component{'s' if occupied != 1 else ''}", loc="left")
    return axes
