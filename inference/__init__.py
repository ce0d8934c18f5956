"""Inference at a fixed size: engines, samplers, kernels, estimators."""

from lvsearch.inference import chain_kits as _chain_kits  # noqa: F401 — fills the table of chains
from lvsearch.inference import trees
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import Estimator, estimator
from lvsearch.inference.features import map_features
from lvsearch.inference.likelihood import document_likelihood
from lvsearch.inference.model_kits import GENERIC_KIT, register_kit
from lvsearch.inference.topics.streaming import robbins_monro, stochastic_topics

__all__ = [
    "GENERIC_KIT",
    "Batch",
    "Dataset",
    "Estimate",
    "Estimator",
    "describe_units",
    "document_likelihood",
    "documents",
    "estimator",
    "map_features",
    "register_kit",
    "robbins_monro",
    "rows",
    "stochastic_topics",
    "trees",
]
