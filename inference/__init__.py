"""Inference at a fixed size: engines, samplers, kernels, estimators."""

from lvsearch.inference import block_models as _block_models  # noqa: F401 — registers block models
from lvsearch.inference import evidence as _evidence  # noqa: F401 — registers the annealed path of each model
from lvsearch.inference import factor_analyzers as _factor_analyzers  # noqa: F401 — registers factor analysers
from lvsearch.inference import factorizations as _factorizations  # noqa: F401 — registers the estimator of counts
from lvsearch.inference import full_covariances as _full_covariances  # noqa: F401 — registers paths of such mixtures
from lvsearch.inference import hdp as _hdp  # noqa: F401 — registers the estimator of HDP topics
from lvsearch.inference import mixture_samplers as _mixture_samplers  # noqa: F401 — registers the sampler of mixtures
from lvsearch.inference import mixtures as _mixtures  # noqa: F401 — registers the estimator of mixtures
from lvsearch.inference import sequences as _sequences  # noqa: F401 — registers the estimator of hidden Markov models
from lvsearch.inference import trees
from lvsearch.inference import word_mixtures as _word_mixtures  # noqa: F401 — registers the baselines' estimators
from lvsearch.inference.annotation import estimator as _annotation  # noqa: F401 — registers the estimator of images
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import Estimator, estimator
from lvsearch.inference.features import estimator as _feature_estimator  # noqa: F401 — registers the IBP's fits
from lvsearch.inference.features import map_features
from lvsearch.inference.likelihood import document_likelihood
from lvsearch.inference.topics import describing as _topic_describing  # noqa: F401 — registers what topics say
from lvsearch.inference.topics import streaming as _topic_estimators  # noqa: F401 — registers LDA's kernels
from lvsearch.inference.topics.streaming import robbins_monro, stochastic_topics

__all__ = [
    "Batch",
    "Dataset",
    "Estimate",
    "Estimator",
    "describe_units",
    "document_likelihood",
    "documents",
    "estimator",
    "map_features",
    "robbins_monro",
    "rows",
    "stochastic_topics",
    "trees",
]
