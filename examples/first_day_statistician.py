"""A first day for a statistician: how many groups of petals, which belong together, densities, and az.compare."""

import arviz as az  # pip install "lvsearch[arviz]"
from sklearn.datasets import load_iris

import lvsearch as lv

petals = load_iris(as_frame=True).frame[["petal length (cm)", "petal width (cm)"]]  # or pd.read_csv("a table.csv")
kind = lv.models.FullCovarianceComponents.scaled_to(petals)
result = lv.search(lv.models.FiniteMixture(kind), petals, prior=lv.sizes.Poisson(3), max_size=6, seed=0)
print(result, result.best.means(), result.best.uncertain(3), sep="\n\n")
result.best.plot_clusters().figure.savefig("petals.png")

together = result.partition()  # of all numbers of groups together: the labels above are of the best number
print(together, together.table().nsmallest(3, "certainty"), sep="\n\n")
result.plot_coclustering().figure.savefig("together.png")

draws = result.draws()  # of everything: the number of groups, weights, means and covariances
print(draws.relabelled().table().round(2))
draws.plot_density(["petal length (cm)"]).figure.savefig("density.png")

tied = lv.search(lv.models.TiedMixture(kind), petals, prior=lv.sizes.Poisson(3), max_size=6, seed=0)
print(az.compare({"a covariance each": draws.to_arviz(), "one covariance": tied.draws().to_arviz()}))
