"""Pure functions of a model and a batch, for JAX programs of your own: `jit`, `vmap`, `grad` go through all of them.

| function | what it returns |
|---|---|
| `batch_of` | data as one padded batch, and the lengths of the model's axes (on the host) |
| `mean_field` | mean-field inference: `init`, `update`, `run`, `settle`, `elbo`, `transform` |
| `gibbs` | Gibbs sampling: `init`, `step`, `log_joint` |
| `log_density` | the posterior on unconstrained reals, for NUTS of any library |
| `annealed_evidence` | estimates of log p(data | size) from both sides |

The model is an argument of every call, so its hyper-parameters may be traced. Models may be made inside a
transformation; traced values are not checked then. `fit.functional()` returns the functions of a fit.
"""

from lvsearch.functional.batches import Prepared, batch_of
from lvsearch.functional.sampling import Density, EvidenceEnds, GibbsFunctions, annealed_evidence, gibbs, log_density
from lvsearch.functional.variational import FittedFunctions, MeanFieldFunctions, MeanFieldState, mean_field
from lvsearch.inference.data.dataset import Batch
from lvsearch.models.units import AnnotatedImage, BagOfWords, GroupOfRows, Row

__all__ = [
    "AnnotatedImage",
    "BagOfWords",
    "Batch",
    "Density",
    "EvidenceEnds",
    "FittedFunctions",
    "GibbsFunctions",
    "GroupOfRows",
    "MeanFieldFunctions",
    "MeanFieldState",
    "Prepared",
    "Row",
    "annealed_evidence",
    "batch_of",
    "gibbs",
    "log_density",
    "mean_field",
]
