"""A test of a person's own model: `check` evaluates it at one small size and on a few units, and reports what is wrong.

It tests whether the model keeps the rules of `lvsearch.models.contract` ("the contract"). Most mistakes raise nothing
by themselves. A mask forgotten in `log_prior` shifts the evidence by tens of nats. A term that is not multilinear gives
a number that is no bound. Either can decide "how many".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from lvsearch.models.checks.invariance import check_capacity, check_padding, check_relabelling
from lvsearch.models.checks.probe import check_proper, probe
from lvsearch.models.checks.sites import check_declared, check_multilinear, check_normalisers
from lvsearch.models.contract import Model, Unit

UNITS = 4
"""How many units (observations) are looked at: the emptiest, the fullest, and some between."""
SIZE = 3
"""The value of each size variable in a check: enough components to be renamed and to interact."""


@runtime_checkable
class PackedBatch(Protocol):
    """Units (observations) stacked on a leading axis, and the weight of each unit (0 = padding)."""

    @property
    def units(self) -> Unit: ...
    @property
    def weight(self) -> Any: ...


@runtime_checkable
class BatchedData(Protocol):
    """Data in padded batches, with the lengths of those axes of the shared latent variables that the data decide."""

    @property
    def batches(self) -> Sequence[PackedBatch]: ...
    @property
    def extents(self) -> Mapping[str, int]: ...


@runtime_checkable
class Packable(Protocol):
    """A person's data object that can be packed into batches, such as `lv.Points`."""

    def dataset(self) -> BatchedData: ...


@dataclass(frozen=True)
class ContractReport:
    """The result of `check` for a model without mistakes.

    | field | meaning |
    |---|---|
    | `model` | the class of the model |
    | `size` | the size at which it was checked |
    | `n_units` | the number of units (observations) on which it was checked |
    | `findings` | (name of the check, its result), one for each check |
    """

    model: str
    size: tuple[int, ...]
    n_units: int
    findings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        size = " × ".join(map(str, self.size))
        lines = [f"{self.model} keeps the contract, at size {size} on {self.n_units} units:"]
        return "\n".join([*lines, *(f"  {name:<16} {found}" for name, found in self.findings)])


def check(model: Model, data: Any, *, size: tuple[int, ...] | None = None, seed: int = 0) -> ContractReport:
    """Test a model for mistakes that nothing else reports, and return a report. Takes a few seconds, to compile.

    model: the model, such as one of your own.
    data: the data that it is to be fitted to, such as `lv.Points` (or its `dataset()`). A few units are looked at.
    size: the size at which to check; 3 for each size variable by default, beside the components that are given.
    seed: seed of the random statistics at which the model is evaluated.

    A *site* is one latent variable of the model; its *statistics* are the sufficient statistics of its family.

    - declared: families, axes, slices, copies, gates and `representation` exist and fit together
    - multilinear: every term is linear in the statistics of each site
    - proper: the gradient by each site's statistics is a natural parameter of its family
    - empty places: value and gradients do not depend on the capacity, the number of array slots for components
    - padding: value and gradients do not depend on cells that were not observed
    - log-normalisers: their gradients are the families' means
    - relabellings: `log_symmetry` is log K! where K components can be renamed, 0 where they cannot

    Raises ValueError for the first mistake: which site, axis or term, what was found and expected, and what to do.
    """
    packed = data.dataset() if isinstance(data, Packable) else data
    if not isinstance(packed, BatchedData):
        raise ValueError(f"got {type(data).__name__} as data, expected such as lv.Points.from_array(values)")
    size = (model.n_given + SIZE,) * len(model.size_names) if size is None else size
    with jax.enable_x64(True):
        units = _some_units(packed.batches)
        declared = check_declared(model, jax.tree.map(lambda leaf: leaf[0], units), packed.extents, size)
        point = probe(model, units, packed.extents, size, size, seed)
        multilinear = check_multilinear(point, seed)  # first, since the next check needs it
        check_proper(point)
        findings = (
            ("declared", declared),
            ("multilinear", multilinear),
            ("empty places", check_capacity(point)),
            ("padding", check_padding(point, seed)),
            ("log-normalisers", check_normalisers(point)),
            ("relabellings", check_relabelling(point, seed)),
        )
    return ContractReport(type(model).__name__, size, len(jax.tree.leaves(units)[0]), findings)


def _some_units(batches: Sequence[PackedBatch]) -> Unit:
    """Return up to 4 units of one batch, stacked, from the emptiest to the fullest, with floats in float64.

    The batch is the one that holds the emptiest unit of all.
    """
    filled = [np.where(np.asarray(batch.weight) > 0, _fill_of(batch.units), np.inf) for batch in batches]
    chosen = min(range(len(batches)), key=lambda number: filled[number].min())
    order = np.argsort(filled[chosen], kind="stable")[: int(np.isfinite(filled[chosen]).sum())]
    rows = order[np.unique(np.linspace(0, len(order) - 1, UNITS).astype(int))]

    def chosen_rows(leaf: Any) -> np.ndarray:
        values = np.asarray(leaf)[rows]
        return values.astype(np.float64) if np.issubdtype(values.dtype, np.floating) else values

    return jax.tree.map(chosen_rows, batches[chosen].units)


def _fill_of(units: Unit) -> np.ndarray:
    """Return how full each unit is, shape (unit,): the sum over its arrays of the share of entries other than 0 or
    False.

    units: units stacked on a leading axis.
    """
    shares = [(np.asarray(leaf) != 0).reshape(len(leaf), -1).mean(1) for leaf in jax.tree.leaves(units)]
    return np.stack(shares).sum(0)
