"""Look-up of kits: the records of what inference knows of a type of model, and of a type of chain.

The tables are written in `model_kits` and `chain_kits`, which import all rooms and fill the dictionaries here. This
file imports no room, not even for types, so that every room can look a kit up. So a kit is `Any` here; the functions
that look one up (`estimator`, `evidence_chain` …) say what they return.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

Entry = TypeVar("Entry")

MODEL_KITS: dict[type, Any] = {}
"""{type of model: its `ModelKit`}, filled by `model_kits`."""
CHAIN_KITS: dict[type, Any] = {}
"""{type of chain: its `ChainKit`}, filled by `chain_kits`."""
CHAINS_OF_COMPONENTS: dict[type, Any] = {}
"""{kind of component: its `labels_chain`}, filled by `chain_kits`."""


def model_kit(model: Any) -> Any:
    """Return the `ModelKit` of a model.

    Raises TypeError for what is no `Model`.
    """
    return row_of(MODEL_KITS, model, "a subclass of lvsearch.models.Model")


def chain_kit(chain: Any) -> Any:
    """Return the `ChainKit` of a chain.

    Raises TypeError for a type of chain without one, even one that says that it offers nothing.
    """
    return row_of(
        CHAIN_KITS, chain, "a chain with a kit: give its type one with lvsearch.inference.chain_kits.register_chain_kit"
    )


def labels_chain_of(component: Any) -> Any:
    """Return the function that makes the chain over the labels of a mixture of this kind of component."""
    return row_of(CHAINS_OF_COMPONENTS, component, "a kind of component: a subclass of lvsearch.models.Component")


def row_of(table: Mapping[type, Entry], thing: Any, expected: str) -> Entry:
    """Return the row of the type of `thing`, or of its nearest base class that has one.

    Raises TypeError where no class has a row.

    expected: what the message says was expected.
    """
    for each in type(thing).__mro__:
        if each in table:
            return table[each]
    raise TypeError(f"got an object of type {type(thing).__name__}, expected {expected}")
