"""Check a user's own model for mistakes, once, before it is fitted."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax

import lvsearch.models as models
from lvsearch.inference.data.dataset import Dataset
from lvsearch.models import families
from lvsearch.models.contract import Model

_CHECKED: set[Any] = set()
"""The structures (classes, static fields and array shapes) of the models that were checked in this process."""


def check_own(model: Model, data: Dataset, size: tuple[int, ...]) -> None:
    """Run `lv.models.check` on a model of the user's own; a model of `lvsearch.models` is not checked.

    A model counts as the user's own if its class, or the class of one of its fields, is not from `lvsearch.models`.
    Each structure of a model is checked once in a process.

    size: the size at which to check, one number per size variable, raised to at least 2.

    Raises ValueError that says what is wrong with the model.
    """
    if all(_is_from_lvsearch(type(part)) for part in _parts(model)):
        return
    leaves, structure = jax.tree.flatten(model)
    key = structure, tuple(getattr(leaf, "shape", ()) for leaf in leaves), type(data.batches[0].units)
    if key not in _CHECKED:
        models.check(model, data, size=tuple(max(number, 2) for number in size))
        _CHECKED.add(key)


def _is_from_lvsearch(cls: type) -> bool:
    """Return True if a class is one of the models or families of `lvsearch.models`."""
    return any(getattr(where, cls.__name__, None) is cls for where in (models, families))


def _parts(module: eqx.Module) -> Iterator[eqx.Module]:
    """Yield an equinox module and every module in its fields, recursively."""
    yield module
    for value in vars(module).values():
        if isinstance(value, eqx.Module):
            yield from _parts(value)
