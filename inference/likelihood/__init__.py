"""log p(document | α, topics): estimates with stated bias, exact sums and certified intervals, on anyone's topics."""

from lvsearch.inference.likelihood.bounds import Interval, document_bounds, saturated_ceiling
from lvsearch.inference.likelihood.completion import DocumentCompletion, document_completion, split_documents
from lvsearch.inference.likelihood.dispatch import METHODS, document_likelihood
from lvsearch.inference.likelihood.proportions import Corners, FoldedIn, Proportions, TrainingDocuments, fold_in
from lvsearch.inference.likelihood.result import DocumentLikelihood

__all__ = [
    "METHODS",
    "Corners",
    "DocumentCompletion",
    "DocumentLikelihood",
    "FoldedIn",
    "Interval",
    "Proportions",
    "TrainingDocuments",
    "document_bounds",
    "document_completion",
    "document_likelihood",
    "fold_in",
    "saturated_ceiling",
    "split_documents",
]
