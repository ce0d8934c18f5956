"""What is believed: exponential families and pure log-joints. No inference, no I/O, no search."""

from lvsearch.models.contract import Model, Site
from lvsearch.models.lda import LDA, BagOfWords

__all__ = ["LDA", "BagOfWords", "Model", "Site"]
