"""The estimator of the Indian buffet process: mean field that begins with more features than are asked for."""

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.engine.pruning import PruningEstimator
from lvsearch.models.ibp import IBP


@estimator.register
def _estimator_of_features(model: IBP, data: Dataset) -> PruningEstimator:
    """Return the estimator of binary features on a data set."""
    return PruningEstimator(model, data)
