"""Searches as scikit-learn estimators: `TopicSearch`, `MixtureSearch`, `FeatureSearch`.

They fit in a `Pipeline`, under `cross_val_score` and `GridSearchCV`, clone, and set their output to pandas. What a
search says beyond one best size is in `result_`. Loaded when `lvsearch.sklearn` is first used.
"""

from lvsearch.sklearn.feature_search import FeatureSearch
from lvsearch.sklearn.mixture_search import MixtureSearch
from lvsearch.sklearn.topic_search import TopicSearch

__all__ = ["FeatureSearch", "MixtureSearch", "TopicSearch"]
