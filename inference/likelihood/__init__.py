"""log p(document | α, topics): estimates with stated bias, exact sums and certified intervals, on anyone's topics."""

from lvsearch.inference.likelihood.bounds import Interval, document_bounds, saturated_ceiling
from lvsearch.inference.likelihood.dispatch import METHODS, document_likelihood
from lvsearch.inference.likelihood.result import DocumentLikelihood

__all__ = [
    "METHODS",
    "DocumentLikelihood",
    "Interval",
    "document_bounds",
    "document_likelihood",
    "saturated_ceiling",
]
