"""A first day for a statistician: how many groups of tumours, with means, doubtful rows and a picture."""

from sklearn.datasets import load_breast_cancer

import lvsearch as lv

tumours = load_breast_cancer(as_frame=True).frame[["mean radius", "mean texture"]]
model = lv.models.FiniteMixture(lv.models.FullCovarianceComponents.scaled_to(tumours))
result = lv.search(model, tumours, prior=lv.sizes.Poisson(3), max_size=6, seed=0)
print(result, result.best.means(), result.best.uncertain(3), sep="\n\n")
result.best.plot_clusters().figure.savefig("tumours.png")
