"""The chains over allocations of each model that has some: mixtures of rows, block models, and features of rows."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from lvsearch.inference.allocation_chains.blocks import BlockPartitionChain
from lvsearch.inference.allocation_chains.contract import AllocationChain
from lvsearch.inference.allocation_chains.feature_rows import FeatureData
from lvsearch.inference.allocation_chains.features import FeatureChain
from lvsearch.inference.allocation_chains.partitions import PartitionChain
from lvsearch.inference.allocation_chains.seating import SeatPrior
from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows, rows_of
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.full_covariances.partial_rows import PartialRows, without_missing_cells
from lvsearch.inference.kits import model_kit
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.contract import Model
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.ibp import IBP
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.tied_mixture import TiedMixture

FIRST_PARTS, FIRST_PARTS_OF_ONE_COLUMN, FIRST_PARTS_OF_BLOCKS, FIRST_FEATURES = 16, 32, 8, 8
"""The number of array slots (places) at first: for parts of a partition, for those of rows of one column, for those of
the rows and of the columns of a block model, and for features. It is doubled when many draws fill all of them
(`run.FULL`).

One column often supports many components, and slots are cheap there. To double them compiles another program, which
takes as long as some hundred sweeps. More would be too many: with 64 slots instead of 32, steps of 245 rows of one
column take two fifths longer.
"""
RowMixture = FiniteMixture | TiedMixture | IndependentNormalMixture
"""The types of mixtures of rows whose component parameters are integrated out."""


def has_allocation_chain(model: Any) -> bool:
    """Return True if MCMC over allocations of the rows can compare all sizes of this model.

    model: anything that `lv.search` takes, also a function or an evaluator, for which the result is False.
    """
    allocations = model_kit(model).allocations if isinstance(model, Model) else None
    return allocations is not None and allocations.exist(model)


def parameters_have_prior(model: RowMixture) -> bool:
    """Return True if the mixture's parameters have a prior; estimated parameters cannot be integrated out."""
    return model.concentration is not None


def blocks_have_prior(model: LatentBlockModel) -> bool:
    """Return True: weights and the parameters of the blocks are integrated out."""
    return True


def features_have_prior(model: IBP) -> bool:
    """Return True: loadings and the probabilities of features are integrated out."""
    return True


def allocation_chain(
    model: Model, data: Dataset, log_prior: Float64[np.ndarray, "*size"], places: int | None
) -> AllocationChain:
    """Return chains over allocations of the rows, which have room for about `places` parts.

    model: a model that has such chains (`has_allocation_chain`).
    data: the rows.
    log_prior: log prior probability of K = 1, 2, …, (size,), nats; of K and L, (size, size), for two size variables.
    places: the number of array slots for parts that is wanted; None: as many as chains begin with.

    Raises TypeError for any other model.
    """
    allocations = model_kit(model).allocations
    if allocations is None:
        raise TypeError(
            f"got {type(model).__name__}, expected a mixture of rows, LatentBlockModel or IBP: no other model has such "
            "chains"
        )
    return allocations.chain(model, data, log_prior, places)


def start_from_allocation(
    model: Model, data: Dataset, labels: Int[np.ndarray, "element *place"], size: tuple[int, ...]
) -> Estimate | None:
    """Return a fit whose parameters follow from an allocation that a chain found, for a fit of a size to begin from;
    None for models whose fits find as good starts by themselves.

    model: a model that has such chains (`has_allocation_chain`).
    data: the rows.
    labels: the allocation of one chain, as its states have it.
    size: the size, with at least as many components on each side as the allocation has parts.
    """
    allocations = model_kit(model).allocations
    return None if allocations is None else allocations.start(model, data, labels, size)


def no_start(
    model: Model, data: Dataset, labels: Int[np.ndarray, "element *place"], size: tuple[int, ...]
) -> Estimate | None:
    """Return None, as `start_from_allocation` does for models whose fits find as good starts by themselves."""
    return None


def partition_chain(
    model: RowMixture, data: Dataset, log_prior: Float64[np.ndarray, " size"], places: int | None
) -> PartitionChain:
    """Return chains over the partitions of some rows, which have room for about `places` parts.

    model: a mixture of rows.
    data: the rows.
    log_prior: log prior probability of K = 1, 2, … components, (size,), nats.
    places: the number of array slots for parts that is wanted; None: `FIRST_PARTS`, or `FIRST_PARTS_OF_ONE_COLUMN`. It
        is cut to the number of rows and then rounded up.

    Raises ValueError for a model whose component parameters are not integrated out.
    """
    at_first = FIRST_PARTS_OF_ONE_COLUMN if data.extents["dim"] == 1 else FIRST_PARTS
    places = capacity_of((min(places or at_first, data.n_units),))[0]
    partial = None
    if isinstance(model, FiniteMixture | TiedMixture) and model.components.partial_rows:
        partial = PartialRows.from_data(model.components, data)
        model, data = without_missing_cells(model, data)
    chain = evidence_chain(model, data, (places,), None)
    hyper = chain if isinstance(chain, HyperMixture) else None
    mixture = chain if hyper is None else hyper.mixture
    if not isinstance(mixture, CollapsedMixtureChain):
        raise ValueError(
            f"got {model.describe()}, expected a mixture of rows whose components are integrated out: a FiniteMixture, "
            "a TiedMixture or an IndependentNormalMixture"
        )
    concentrations = concentrations_by_size(model, len(log_prior))
    seating = SeatPrior.from_prior(log_prior, concentrations, int(np.sum(mixture.weight > 0)), mixture.capacity)
    return PartitionChain(mixture, hyper, seating, rows_in_order(data), partial)


def block_chain(
    model: LatentBlockModel, data: Dataset, log_prior: Float64[np.ndarray, "row_size column_size"], places: int | None
) -> BlockPartitionChain:
    """Return chains over the partitions of the rows and of the columns of a matrix.

    model: a block model. data: the rows.
    log_prior: log prior probability of K row clusters and L column clusters, (K, L), nats.
    places: the number of array slots for parts that is wanted on each side; None: `FIRST_PARTS_OF_BLOCKS`.
    """
    units, weight = padded_rows(data)
    return BlockPartitionChain.from_data(model, units, weight, log_prior, places or FIRST_PARTS_OF_BLOCKS)


def rows_in_order(data: Dataset) -> Int[np.ndarray, "column row"]:
    """Return the numbers of the rows in the order of their values in each column, padding last, (column, row).

    data: the rows, in the order of their batches. Missing cells have the value 0.
    """
    units, weight = padded_rows(data)
    values = np.where(np.asarray(units.observed), np.asarray(units.value), 0.0)
    return np.argsort(np.where(weight[:, None] > 0, values, np.inf), axis=0, kind="stable").T.astype(np.int32)


def concentration_at(model: RowMixture, size: int) -> float:
    """Return the Dirichlet concentration of each component when the mixture has `size` components."""
    if isinstance(model, IndependentNormalMixture):
        return float(model.concentration)
    if isinstance(model, TiedMixture):
        return float(model.independent.concentration_at(size))
    return float(model.concentration_at(size))


def concentrations_by_size(model: RowMixture, number: int) -> Float64[np.ndarray, " size"]:
    """Return the Dirichlet concentration of each component of a mixture with 1, 2, … `number` components, (size,)."""
    return np.array([concentration_at(model, size) for size in range(1, number + 1)])


def feature_chain(
    model: IBP, data: Dataset, log_prior: Float64[np.ndarray, " size"], places: int | None
) -> FeatureChain:
    """Return chains over the features of some rows, which have room for about `places` features.

    model: features of rows. data: the rows.
    log_prior: log prior probability of K = 1, 2, … features, (size,), nats.
    places: the number of array slots for features that is wanted (`FIRST_FEATURES` for None).
    """
    rows, _ = rows_of(data)
    hyper = model.hyperparameters
    return FeatureChain(
        FeatureData.of(np.asarray(rows.value, np.float64), np.asarray(rows.observed)),
        log_prior,
        {name: each for name, each in hyper.items() if not isinstance(each, GammaPrior)},
        {name: each for name, each in hyper.items() if isinstance(each, GammaPrior)},
        capacity_of((min(places or FIRST_FEATURES, len(log_prior)),))[0],
    )
