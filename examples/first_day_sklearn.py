"""A first day for who knows scikit-learn: how many kinds of iris, as the last step of a pipeline."""

from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lvsearch as lv

flowers = load_iris(as_frame=True).data
search = make_pipeline(StandardScaler(), lv.sklearn.MixtureSearch(max_size=5)).set_output(transform="pandas")
print(search.fit_transform(flowers).round(2).head(3))
print(search[-1].sentence_)
search[-1].result_.plot_posterior().figure.savefig("iris.png")
