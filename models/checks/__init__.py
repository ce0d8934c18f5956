"""Is a model what the contract says? `check` looks at one small size and a few units, and says what is wrong.

Most mistakes in a model raise nothing by themselves: a mask forgotten in `log_prior` shifts the evidence by tens of
nats, and a term that is not multilinear gives a bound that is none. Either decides "how many".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from lvsearch.models.checks.capacity import check_capacity
from lvsearch.models.checks.declared import check_declared
from lvsearch.models.checks.multilinear import check_multilinear
from lvsearch.models.checks.normalisers import check_normalisers
from lvsearch.models.checks.padding import check_padding
from lvsearch.models.checks.probe import check_proper, probe
from lvsearch.models.checks.relabelling import check_relabelling
from lvsearch.models.contract import Model, Unit

UNITS = 4
"""Units that are looked at: the emptiest, the fullest, and some between."""
SIZE = 3
"""Entries of each size variable: enough to be renamed and to interact."""


@runtime_checkable
class PackedBatch(Protocol):
    """Units stacked on a leading axis, and the weight of each (0 = padding)."""

    @property
    def units(self) -> Unit: ...
    @property
    def weight(self) -> Any: ...


@runtime_checkable
class BatchedData(Protocol):
    """Data in padded batches, with the lengths of the axes of the globals that they decide."""

    @property
    def batches(self) -> Sequence[PackedBatch]: ...
    @property
    def extents(self) -> Mapping[str, int]: ...


@runtime_checkable
class Packable(Protocol):
    """Data as a person holds them, such as `lv.Points`."""

    def dataset(self) -> BatchedData: ...


@dataclass(frozen=True)
class ContractReport:
    """What was found in order.

    | field | meaning |
    |---|---|
    | `model` | the class of the model |
    | `size` | at which it was looked |
    | `n_units` | on how many of the data's units |
    | `findings` | (what was looked at, what was found), one for each check |
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
    """Look for mistakes in a model that nothing else reports.

    data: what it is to be fitted to, such as `lv.Points` (or its `dataset()`); a few units are looked at. size: at
    which; 3 of each size variable by default. seed: of the random statistics. Takes a few seconds, to compile.

    - declared: families, axes, slices, copies, gates and `representation` exist and fit together
    - multilinear: every term is linear in the statistics of each site
    - proper: the gradient by each site's statistics is a natural parameter of its family
    - empty places: value and gradients do not depend on the capacity
    - padding: nor on what was not observed
    - log-normalisers: their gradients are the families' means
    - relabellings: `log_symmetry` is log K! where entries can be renamed, 0 where they cannot

    Raises ValueError for the first mistake: which site, axis or term, what was got and expected, and what to do.
    """
    packed = data.dataset() if isinstance(data, Packable) else data
    if not isinstance(packed, BatchedData):
        raise ValueError(f"got {type(data).__name__} as data, expected such as lv.Points.from_array(values)")
    size = (SIZE,) * len(model.size_names) if size is None else size
    with jax.enable_x64(True):
        units = _some_units(packed.batches)
        declared = check_declared(model, jax.tree.map(lambda leaf: leaf[0], units), packed.extents, size)
        point = probe(model, units, packed.extents, size, size, seed)
        multilinear = check_multilinear(point, seed)  # first: a term that is not has no complete conditional either
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
    """Units of the batch that has the emptiest one, from the emptiest to the fullest, floats in float64."""
    filled = [np.where(np.asarray(batch.weight) > 0, _filled(batch.units), np.inf) for batch in batches]
    chosen = min(range(len(batches)), key=lambda number: filled[number].min())
    order = np.argsort(filled[chosen], kind="stable")[: int(np.isfinite(filled[chosen]).sum())]
    rows = order[np.unique(np.linspace(0, len(order) - 1, UNITS).astype(int))]

    def taken(leaf: Any) -> np.ndarray:
        values = np.asarray(leaf)[rows]
        return values.astype(np.float64) if np.issubdtype(values.dtype, np.floating) else values

    return jax.tree.map(taken, batches[chosen].units)


def _filled(units: Unit) -> np.ndarray:
    """How much of each unit is not 0 or False."""
    shares = [(np.asarray(leaf) != 0).reshape(len(leaf), -1).mean(1) for leaf in jax.tree.leaves(units)]
    return np.stack(shares).sum(0)
