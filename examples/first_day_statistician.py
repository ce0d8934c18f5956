"""A first day for a statistician: how many groups of iris petals, which petals belong together, doubts and pictures."""

from sklearn.datasets import load_iris

import lvsearch as lv

petals = load_iris(as_frame=True).frame[["petal length (cm)", "petal width (cm)"]]
model = lv.models.FiniteMixture(lv.models.FullCovarianceComponents.scaled_to(petals))
result = lv.search(model, petals, prior=lv.sizes.Poisson(3), max_size=6, seed=0)
print(result, result.best.means(), result.best.uncertain(3), sep="\n\n")
result.best.plot_clusters().figure.savefig("petals.png")

together = result.partition()  # of all numbers of groups together: the labels above are of the best number
print(together, together.table().nsmallest(3, "certainty"), sep="\n\n")
result.plot_coclustering().figure.savefig("together.png")
