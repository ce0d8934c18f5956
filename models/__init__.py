"""What is believed: exponential families and pure log-joints. No inference, no I/O, no search."""

from lvsearch.models.contract import Model, Site
from lvsearch.models.ibp import IBP, GammaPrior
from lvsearch.models.lda import LDA
from lvsearch.models.units import BagOfWords, Row

__all__ = ["IBP", "LDA", "BagOfWords", "GammaPrior", "Model", "Row", "Site"]
