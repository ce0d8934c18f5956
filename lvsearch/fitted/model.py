"""A model fitted at one size, as people use it: transform, score, tables.

Subclasses add what fits of one type of model can do (`lvsearch.fitted.kinds`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.comparison.similarity import ComponentMembers
from lvsearch.data.base import Data
from lvsearch.fitted.occupied_posterior import OccupiedPosterior, occupied, occupied_table
from lvsearch.fitted.stored_fits import FitParts, save_parts
from lvsearch.functional import FittedFunctions
from lvsearch.inference.engine.describing import Described, bound_units, describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.unit_scores import site_value
from lvsearch.models.contract import Model
from lvsearch.models.families import Categorical
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.sizes import Size


@dataclass(frozen=True)
class FittedModel:
    """A model at one size. `evidence` is the interval of its log evidence; scores are in nats, higher is better.

    A *unit* is one piece of the model's data: a document, a row. New data are of the same kind as the training data,
    with the same words or columns; or of a form from which such data can be made, such as a matrix. Other data raise
    ValueError.

    A search may record the fit of a smaller size (a *witness*) in the place of a worse fit of this size.
    `estimate.size` is then that of the witness. Its additional components are empty, and tables and `transform` leave
    them out.
    """

    size: Size
    evidence: Evidence
    estimate: Estimate
    training: Data

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError for what only fits of other models have, such as `topics`, and name what this fit
        has.
        """
        # the fields themselves are missing while the object is being made
        if name.startswith("_") or name in ("estimate", "training", "size", "evidence"):
            raise AttributeError(name)
        able = ", ".join(each for each in dir(type(self)) if not each.startswith("_"))
        raise AttributeError(f"a fit of {type(self.estimate.model).__name__} has no {name!r}; it has {able}")

    @property
    def model(self) -> Model:
        """The model with the hyper-parameters of this fit."""
        return self.estimate.model

    def save(self, folder: str | Path) -> None:
        """Write the fit and its data to a new folder (read by `lv.load_fit`), atomically, without pickle.

        Raises FileExistsError if something is there, ValueError for a user's model that is not registered.
        """
        save_parts(FitParts(self.size, self.evidence, self.estimate, self.training), Path(folder))

    def transform(self, data: Any) -> Any:
        """Return the expected description of each unit, (units, …), such as topic proportions (docs, K) with rows
        summing to 1.

        Where the descriptions of units differ in length, such as the states of a sequence, the result is a list of
        arrays.
        """
        return self._describe(data).representation

    def members(self) -> ComponentMembers:
        """Return the shares of the training data's observations in each component, (observations, K).

        They come from `transform`: an observation is a row, or a row of a sequence.

        Raises ValueError for models whose units are not described by shares of components.
        """
        described = self.transform(self.training)
        shares = np.concatenate(described) if isinstance(described, list) else np.asarray(described)
        shares = shares.astype(np.float64)
        if shares.ndim != 2 or shares.shape[1] != self.estimate.size[0] or shares.min() < 0 or shares.max() > 1.001:
            raise ValueError(
                f"got a fit of {type(self.model).__name__}, whose units are not described by shares of its "
                f"{self.estimate.size[0]} components; expected a model of clusters, states, features or topics"
            )
        return ComponentMembers(shares, np.ones(len(shares)), self.training.nouns.unit)

    def affinity(self, other: "FittedModel") -> Float[np.ndarray, "component other"] | None:
        """Return ∫ √(p q) of the distributions of one observation, for each component of this fit and each of another.

        It is 1 for equal distributions, and 0 where no observation is possible under both. Both fits have the same
        axes. The result is None for models whose components do not emit observations by themselves.
        """
        del other
        return None

    def component_names(self) -> tuple[str, ...]:
        """Return a short name for each component, for people. Names need not be distinct."""
        return tuple(f"component {number}" for number in range(self.estimate.size[0]))

    def score_units(self, data: Any) -> Float[np.ndarray, " units"]:
        """Return a lower bound on log p(unit | parameters at their posterior means) of each unit, in nats."""
        return self._describe(data).log_lower

    def interval_units(self, data: Any) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
        """Return (lower, upper), certified bounds on log p(unit | parameters at their posterior means) of each
        unit, in nats.
        """
        return bound_units(self.model, self.estimate, self.training.like_this(data).dataset())

    def score(self, data: Any) -> float:
        """Return the sum of `score_units`, in nats: score(A and B) = score(A) + score(B)."""
        return float(self.score_units(data).sum())

    def functional(self) -> FittedFunctions:
        """Return this fit as arrays with pure functions `transform`, `log_likelihood` and `score` of a batch of new
        units.

        They work under `jit`, `vmap`, `grad` and `shard_map`. `lv.functional.batch_of(fit.model, data)` makes batches.
        """
        natural = jax.tree.map(jnp.asarray, self.estimate.natural)
        return FittedFunctions(self.model, natural, self.estimate.size)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return every global latent variable that `table` can show, as {name: table}."""
        values = {name: site_value(self.estimate, name) for name in self.model.globals()}
        return {name: self.table(name) for name, value in values.items() if _is_table(value)}

    def table(self, name: str) -> pd.DataFrame:
        """Return a global latent variable at its posterior mean as a table: rows are elements, such as topics.

        name: such as "topic_word". A variable with one axis is a table of one column, a single number a table of one
            cell.

        Raises ValueError for a name the model does not have, and for variables with more than two axes.
        """
        sites = self.model.globals()
        if name not in sites:
            raise ValueError(f"no table {name!r}: {type(self.model).__name__} has {', '.join(sites)}")
        values, axes = site_value(self.estimate, name), sites[name].axes
        if not _is_table(values):
            shape = values.shape if isinstance(values, np.ndarray) else f"{len(values)} arrays"
            raise ValueError(f"{name!r} has shape {shape}, expected at most two axes; read estimate.natural[{name!r}]")
        if not axes:
            return pd.DataFrame({name: [values.item()]})
        index = self._index(axes[0], len(values))
        if values.ndim == 1:
            return pd.DataFrame({name: values}, index=index)
        return pd.DataFrame(values, index=index, columns=self._index(axes[1], values.shape[1]))

    def occupied(
        self, *, chains: int = 4, draws: int = 1000, seed: int = 0, progress: bool = True
    ) -> OccupiedPosterior:
        """Return the posterior over how many parts of the process the training data occupy: `lv.occupied` of this
        model.

        It comes from chains of a sampler, not from this fit, whose own distribution is another (`occupied_under_fit`).

        Raises ValueError for models that are no process, and as `lv.occupied` does.
        """
        return occupied(self.model, self.training, chains=chains, draws=draws, seed=seed, progress=progress)

    def occupied_under_fit(self, data: Any = None, draws: int = 2000, seed: int = 0) -> pd.DataFrame:
        """Return how many components have some unit under q, as a table like `posterior()`. This is not the posterior.

        data: the units; by default the training data.
        draws: the number of draws of all units' components. The standard errors are those of these draws alone.

        q knows one mode and takes components as independent of each other. So it is too narrow, and its most probable
        number may have little probability. Use `occupied` for a process, and `lv.search` for a model with a size.

        Raises ValueError for models whose units are not in one component each.
        """
        from lvsearch.inference.mixtures import log_block_count_prior, occupied_under
        from lvsearch.inference.occupied import occupied_counts
        from lvsearch.models.dp_mixture import DPMixture

        units = self.training if data is None else self.training.like_this(data)
        rng = np.random.default_rng(seed)
        in_parts = occupied_counts(self.model, self.estimate, units.dataset(), draws=draws, rng=rng)
        if in_parts is not None:
            return occupied_table(in_parts)
        site = self.model.locals()[self.model.representation]
        if not isinstance(site.family, Categorical) or site.element_axes:
            raise ValueError(f"{type(self.model).__name__} has no occupied components: its units are not in one each")
        shares = self.transform(self.training if data is None else data)
        counts = occupied_under(np.asarray(shares, np.float64), np.random.default_rng(seed), draws)
        model = self.model
        process = isinstance(model, DPMixture)
        return occupied_table(counts, log_block_count_prior(len(shares), model.concentration) if process else None)

    def _describe(self, data: Any) -> Described:
        """Return what the fit says of each unit: its expected description, and a lower bound on its log-likelihood."""
        return describe_units(self.model, self.estimate, self.training.like_this(data).dataset())

    def _index(self, axis: str, length: int) -> pd.Index:
        """Return the names of an axis' entries where the data have names, else numbers."""
        names = self.training.entries.get(axis)
        return pd.RangeIndex(length, name=axis) if names is None else pd.Index(names, name=axis)


def _is_table(values: Any) -> bool:
    """Return True for an array of at most two axes."""
    return isinstance(values, np.ndarray) and values.ndim <= 2
