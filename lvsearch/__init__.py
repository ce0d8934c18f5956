"""How many topics, clusters or features does the data have, and how sure can one be?"""

from lvsearch import datasets, inference, models, sizes
from lvsearch.api import fit, load, resume, search
from lvsearch.corpus import Corpus
from lvsearch.evaluators import from_function
from lvsearch.evidence import Evidence
from lvsearch.fitted import FittedModel
from lvsearch.groups import Groups
from lvsearch.occupied_posterior import OccupiedPosterior, occupied
from lvsearch.paired_corpus import PairedCorpus
from lvsearch.points import Points
from lvsearch.result import SearchResult
from lvsearch.sampling import load_trace, sample, save_trace
from lvsearch.topic_tree import TopicTree
from lvsearch.tree_fits import FittedTree, fit_tree, mean_field_tree
from lvsearch.witness import WitnessSearch

__all__ = [
    "Corpus",
    "Evidence",
    "FittedModel",
    "FittedTree",
    "Groups",
    "OccupiedPosterior",
    "PairedCorpus",
    "Points",
    "SearchResult",
    "TopicTree",
    "WitnessSearch",
    "datasets",
    "fit",
    "fit_tree",
    "from_function",
    "inference",
    "load",
    "load_trace",
    "mean_field_tree",
    "models",
    "occupied",
    "resume",
    "sample",
    "save_trace",
    "search",
    "sizes",
]
