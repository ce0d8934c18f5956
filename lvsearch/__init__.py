"""How many topics, clusters or features does the data have, and how sure can one be?"""

from lvsearch import datasets, inference, models, sizes
from lvsearch.api import fit, load, resume, search
from lvsearch.corpus import Corpus
from lvsearch.evaluators import from_function
from lvsearch.evidence import Evidence
from lvsearch.fitted import FittedModel
from lvsearch.points import Points
from lvsearch.result import SearchResult
from lvsearch.witness import WitnessSearch

__all__ = [
    "Corpus",
    "Evidence",
    "FittedModel",
    "Points",
    "SearchResult",
    "WitnessSearch",
    "datasets",
    "fit",
    "from_function",
    "inference",
    "load",
    "models",
    "resume",
    "search",
    "sizes",
]
