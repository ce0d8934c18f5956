"""A first day for a statistician: how many groups of iris petals, with means, doubts and a picture."""

from sklearn.datasets import load_iris

import lvsearch as lv

petals = load_iris(as_frame=True).frame[["petal length (cm)", "petal width (cm)"]]
model = lv.models.FiniteMixture(lv.models.FullCovarianceComponents.scaled_to(petals))
result = lv.search(model, petals, prior=lv.sizes.Poisson(3), max_size=6, seed=0)
print(result, result.best.means(), result.best.uncertain(3), sep="\n\n")
result.best.plot_clusters().figure.savefig("petals.png")
