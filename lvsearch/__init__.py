"""How many topics, clusters or features do the data have, and how sure can one be?

```python
import lvsearch as lv

corpus = lv.Corpus.from_texts(texts)
result = lv.search(lv.models.LDA(), corpus)  # a posterior over the number of topics
result.best.topics()
```

`search` compares sizes, and `fit` fits one size. `Corpus`, `Points`, `Groups` and `PairedCorpus` hold data. Models are
in `lv.models`, priors over sizes in `lv.sizes`.
"""

from lvsearch import interrupts as _interrupts  # noqa: F401 — first, so that Ctrl-C is heard while the rest is imported

# isort: split

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lvsearch import distributed, functional, inference, models, sklearn
    from lvsearch.api import fit, load, resume, search
    from lvsearch.bridges.from_function import from_function
    from lvsearch.bridges.numpyro_models import from_numpyro, to_numpyro
    from lvsearch.data import datasets
    from lvsearch.data.corpus import Corpus
    from lvsearch.data.genotypes import Genotypes
    from lvsearch.data.groups import Groups
    from lvsearch.data.paired_corpus import PairedCorpus
    from lvsearch.data.points import Points
    from lvsearch.fitted.kinds import load_fit
    from lvsearch.fitted.mixture_posterior import MixturePosterior, mixture_posterior
    from lvsearch.fitted.model import FittedModel
    from lvsearch.fitted.occupied_posterior import OccupiedPosterior, occupied
    from lvsearch.fitted.sampling import load_trace, sample, save_trace
    from lvsearch.reading.converting import convert
    from lvsearch.results.result import SearchResult
    from lvsearch.sizing import sizes
    from lvsearch.sizing.evidence import Evidence
    from lvsearch.sizing.witness import WitnessSearch
    from lvsearch.trees.topic_tree import TopicTree
    from lvsearch.trees.tree_fits import FittedTree, fit_tree, load_tree, mean_field_tree
    from lvsearch.workers.worker_pool import WorkerPool

__all__ = [
    "Corpus",
    "Evidence",
    "FittedModel",
    "FittedTree",
    "Genotypes",
    "Groups",
    "MixturePosterior",
    "OccupiedPosterior",
    "PairedCorpus",
    "Points",
    "SearchResult",
    "TopicTree",
    "WitnessSearch",
    "WorkerPool",
    "convert",
    "datasets",
    "distributed",
    "fit",
    "fit_tree",
    "from_function",
    "from_numpyro",
    "functional",
    "inference",
    "load",
    "load_fit",
    "load_trace",
    "load_tree",
    "mean_field_tree",
    "mixture_posterior",
    "models",
    "occupied",
    "resume",
    "sample",
    "save_trace",
    "search",
    "sizes",
    "sklearn",
    "to_numpyro",
]

__version__ = version("lvsearch")

PUBLIC_MODULES = {
    "datasets": "lvsearch.data.datasets",
    "distributed": "lvsearch.distributed",
    "functional": "lvsearch.functional",
    "inference": "lvsearch.inference",
    "models": "lvsearch.models",
    "sizes": "lvsearch.sizing.sizes",
    "sklearn": "lvsearch.sklearn",
}
"""The full name of each public module."""
NAMES_IN = {
    "lvsearch.api": ("fit", "load", "resume", "search"),
    "lvsearch.bridges.from_function": ("from_function",),
    "lvsearch.bridges.numpyro_models": ("from_numpyro", "to_numpyro"),
    "lvsearch.data.corpus": ("Corpus",),
    "lvsearch.data.genotypes": ("Genotypes",),
    "lvsearch.data.groups": ("Groups",),
    "lvsearch.data.paired_corpus": ("PairedCorpus",),
    "lvsearch.data.points": ("Points",),
    "lvsearch.fitted.kinds": ("load_fit",),
    "lvsearch.fitted.mixture_posterior": ("MixturePosterior", "mixture_posterior"),
    "lvsearch.fitted.model": ("FittedModel",),
    "lvsearch.fitted.occupied_posterior": ("OccupiedPosterior", "occupied"),
    "lvsearch.fitted.sampling": ("load_trace", "sample", "save_trace"),
    "lvsearch.reading.converting": ("convert",),
    "lvsearch.results.result": ("SearchResult",),
    "lvsearch.sizing.evidence": ("Evidence",),
    "lvsearch.sizing.witness": ("WitnessSearch",),
    "lvsearch.trees.topic_tree": ("TopicTree",),
    "lvsearch.trees.tree_fits": ("FittedTree", "fit_tree", "load_tree", "mean_field_tree"),
    "lvsearch.workers.worker_pool": ("WorkerPool",),
}
"""The public classes and functions that each module defines."""
MODULE_OF = {name: module for module, names in NAMES_IN.items() for name in names}
"""The module in which each public class and function is defined."""


def __getattr__(name: str) -> Any:
    """Import and return a public name or a module when it is first used, so that `import lvsearch` takes no time.

    Raises AttributeError for any other name.
    """
    if name in PUBLIC_MODULES:
        found = import_module(PUBLIC_MODULES[name])
    elif name in MODULE_OF:
        found = getattr(import_module(MODULE_OF[name]), name)
    elif not name.startswith("_") and find_spec(f"lvsearch.{name}") is not None:
        found = import_module(f"lvsearch.{name}")
    else:
        raise AttributeError(f"module 'lvsearch' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names only; other modules can be reached by their full names."""
    return [*__all__, "__version__"]
