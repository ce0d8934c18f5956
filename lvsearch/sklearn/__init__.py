"""Searches as scikit-learn estimators: `TopicSearch`, `MixtureSearch`, `FeatureSearch`.

They work in a `Pipeline`, under `cross_val_score` and `GridSearchCV`, can be cloned, and can set their output to
pandas. `result_` is the full `SearchResult`. The module is loaded when `lvsearch.sklearn` is first used.
"""

from lvsearch.sklearn.mixture_search import MixtureSearch
from lvsearch.sklearn.searching import FeatureSearch
from lvsearch.sklearn.topic_search import TopicSearch

__all__ = ["FeatureSearch", "MixtureSearch", "TopicSearch"]
