"""log p(document | topics, prior of topic shares) for anyone's topics: estimates, exact sums and certified
intervals.
"""

from lvsearch.inference.likelihood.bounds import Interval, document_bounds, saturated_ceiling
from lvsearch.inference.likelihood.completion import (
    DocumentCompletion,
    dirichlet_posterior,
    document_completion,
    expected_proportions,
    proportion_draws,
    split_documents,
)
from lvsearch.inference.likelihood.dispatch import METHODS, document_likelihood
from lvsearch.inference.likelihood.proportions import (
    CollapsedDirichlet,
    Corners,
    FoldedIn,
    Proportions,
    TrainingDocuments,
    fold_in,
)
from lvsearch.inference.likelihood.sampling_estimates import DocumentLikelihood

__all__ = [
    "METHODS",
    "CollapsedDirichlet",
    "Corners",
    "DocumentCompletion",
    "DocumentLikelihood",
    "FoldedIn",
    "Interval",
    "Proportions",
    "TrainingDocuments",
    "dirichlet_posterior",
    "document_bounds",
    "document_completion",
    "document_likelihood",
    "expected_proportions",
    "fold_in",
    "proportion_draws",
    "saturated_ceiling",
    "split_documents",
]
