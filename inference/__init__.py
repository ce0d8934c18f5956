"""How beliefs are updated at a fixed size: engines, samplers, kernels, estimators."""

from lvsearch.inference import topic_estimator as _topic_estimator  # noqa: F401 — registers LDA's kernel
from lvsearch.inference.data import Batch, Dataset, documents
from lvsearch.inference.estimator import Estimate, Estimator, describe_units, estimator
from lvsearch.inference.likelihood import document_likelihood

__all__ = [
    "Batch",
    "Dataset",
    "Estimate",
    "Estimator",
    "describe_units",
    "document_likelihood",
    "documents",
    "estimator",
]
