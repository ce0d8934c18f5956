"""The pictures of these pages, from searches small enough to make them all in minutes:

    python docs/pictures.py [NAME …]

Data are those that scikit-learn brings, the docstrings of the machine, and simulations. What docstrings there are
depends on versions, so pictures are kept in docs/pictures/ and made anew by hand.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

import lvsearch as lv

FOLDER = Path(__file__).parent / "pictures"


def iris() -> lv.Points:
    """150 flowers, the length and the width of a petal in cm; the three species are not looked at."""
    return lv.Points.from_frame(load_iris(as_frame=True).data[["petal length (cm)", "petal width (cm)"]])


def search_iris() -> lv.SearchResult:
    """How many clusters the flowers have."""
    kind = lv.models.FullCovarianceComponents.scaled_to(iris().values)
    return lv.search(lv.models.FiniteMixture(kind), iris(), max_size=6, seed=0)


def answer() -> None:
    """README's picture: a table of numbers, its clusters, how sure one can be of their number; the evidence behind."""
    result = search_iris()
    print(result)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), dpi=110, layout="constrained")
    result.best.plot_clusters(ax=left)
    result.plot_posterior(ax=right)
    save(figure, "answer")
    figure, axes = plt.subplots(figsize=(7.6, 4.6), dpi=110, layout="constrained")
    result.plot_bounds(ax=axes)
    save(figure, "evidence")


def coclustering() -> None:
    """The picture of which flowers belong together, by all four measures and over all numbers of clusters."""
    flowers = load_iris(as_frame=True).data
    kind = lv.models.FullCovarianceComponents.weak(flowers)
    result = lv.search(lv.models.FiniteMixture(kind), flowers, seed=0)
    print(result.partition())
    figure, axes = plt.subplots(figsize=(6.4, 5.6), dpi=110, layout="constrained")
    result.plot_coclustering(ax=axes)
    save(figure, "coclustering")


def density() -> None:
    """The density of the length of iris petals with its band, over all numbers of clusters."""
    result = lv.search(lv.models.FiniteMixture(lv.models.FullCovarianceComponents.weak(iris().values)), iris(), seed=0)
    figure, axes = plt.subplots(figsize=(7.6, 4.6), dpi=110, layout="constrained")
    result.draws().plot_density([iris().columns[0]], ax=axes)
    save(figure, "density")


def process() -> None:
    """A Dirichlet process on the same flowers: how many components they occupy."""
    kind = lv.models.FullCovarianceComponents.scaled_to(iris().values)
    occupied = lv.occupied(lv.models.DPMixture(kind), iris(), draws=300, seed=0, progress=False)
    print(occupied)
    figure, axes = plt.subplots(figsize=(7.6, 4.6), dpi=110, layout="constrained")
    occupied.plot_posterior(ax=axes)
    save(figure, "process")


def topics() -> None:
    """Topics of docstrings: the posterior over their number, and what held-out documents say."""
    train, test = lv.datasets.docstrings(200).split(test_fraction=0.2, seed=0)
    model = lv.models.LDA(concentration=1.0, topic_concentration=0.5)
    result = lv.search(model, train, held_out=test, max_size=8, starts=1, seed=0, progress=False)
    print(result, result.best.topics(n_words=8), sep="\n")
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), dpi=110, layout="constrained")
    result.plot_posterior(ax=left)
    result.plot_held_out(ax=right)
    save(figure, "topics")


def tour() -> None:
    """Topics of docstrings: how much each library writes about them, and which use the same words."""
    corpus = lv.datasets.docstrings(400)
    fit = lv.fit(lv.models.LDA(concentration=1.0, topic_concentration=0.1), corpus, size=8, seed=0)
    print(fit.topics(n_words=8))
    packages = {"numpy": "NumPy", "scipy": "SciPy"}
    libraries = [packages.get(str(name).partition(".")[0], "Python") for name in corpus.document_names]
    for name, draw in (
        ("prevalence", lambda axes: fit.plot_prevalence(by=libraries, ax=axes)),
        ("topic-map", lambda axes: fit.plot_topic_map(ax=axes)),
    ):
        figure, axes = plt.subplots(figsize=(9.4, 4.8), dpi=110, layout="constrained")
        draw(axes)
        save(figure, name)
    figure, axes = plt.subplots(figsize=(7.4, 1.4), dpi=130, layout="constrained")
    fit.coloured(
        "Return the eigenvalues of a sparse matrix. Draw random samples from a normal distribution. Write the "
        "lines of a text to an open file.",
        n_topics=3,
    ).plot(axes)
    axes.set_ylim(0.68, 1.03)  # the text stands at the top
    save(figure, "coloured")


def features() -> None:
    """Four bars, each row a sum of some of them with noise: found again."""
    rng = np.random.default_rng(0)
    bars = np.zeros((4, 6, 6))
    bars[0, 1], bars[1, 4], bars[2, :, 1], bars[3, :, 4] = 1, 1, 1, 1
    has = rng.random((80, 4)) < 0.3
    rows = np.einsum("nk,kij->nij", has, bars).reshape(80, 36) + rng.normal(0, 0.4, (80, 36))
    found = lv.inference.map_features(rows, alpha=1.0, sigma_x=0.4, sigma_a=1.0, heuristic="inadmissible")
    from lvsearch.inference.features import posterior_loadings

    loadings, _ = posterior_loadings(rows, found.features, sigma_x=0.4, sigma_a=1.0)
    figure, axes = plt.subplots(2, 6, figsize=(9.0, 3.4), dpi=110, layout="constrained")
    for number, axis in enumerate(axes[0]):
        axis.imshow(rows[number].reshape(6, 6), cmap="RdBu_r", vmin=-2, vmax=2)
        axis.set_title(
            f"row {number}: features {', '.join(map(str, np.flatnonzero(found.features[number]))) or 'none'}",
            fontsize=7.5,
        )
    for number, axis in enumerate(axes[1]):
        if number < found.features.shape[1]:
            axis.imshow(loadings[number].reshape(6, 6), cmap="RdBu_r", vmin=-2, vmax=2)
            axis.set_title(f"feature {number}", fontsize=8.5)
    for axis in axes.flat:
        axis.set_axis_off()
    save(figure, "features")


def tree() -> None:
    """A tree of topics of docstrings."""
    corpus = lv.datasets.docstrings(150, seed=0)
    fitted = lv.fit_tree(lv.models.HLDA(depth=3), corpus, sweeps=100, chains=2, seed=0)
    print(fitted)
    (FOLDER / "tree.svg").write_text(fitted.tree(n_words=5).pruned(4).to_svg(), encoding="utf-8")


def save(figure: "plt.Figure", name: str) -> None:
    """As PNG, without the time of day, so that the same picture is the same file."""
    figure.savefig(FOLDER / f"{name}.png", metadata={"Software": None}, facecolor="white")
    plt.close(figure)


PICTURES: tuple[Callable[[], None], ...] = (answer, coclustering, density, process, topics, tour, features, tree)


def main(names: list[str]) -> None:
    """All pictures, or those that are named."""
    for picture in PICTURES:
        if not names or picture.__name__ in names:
            print(f"── {picture.__name__}", flush=True)
            picture()


if __name__ == "__main__":
    main(sys.argv[1:])
