"""A first day for a statistician: how many groups of wines, with means, doubtful rows and a picture."""

from sklearn.datasets import load_wine

import lvsearch as lv

wines = load_wine(as_frame=True).frame[["alcohol", "flavanoids"]]
model = lv.models.FiniteMixture(lv.models.FullCovarianceComponents.scaled_to(wines))
result = lv.search(model, wines, prior=lv.sizes.Poisson(3), max_size=5, seed=0)
print(result, result.best.means(), result.best.uncertain(3), sep="\n\n")
result.best.plot_clusters().figure.savefig("wines.png")
