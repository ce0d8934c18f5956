"""Look-up of kits: the records of what inference knows of a type of model, and of a type of chain.

Both tables are written in one place each, `model_kits` and `chain_kits`, which import all rooms. This file imports none
of them, so that every room can look a kit up here.
"""

from typing import Any

MODEL_KITS: dict[type, Any] = {}
"""{type of model: its `ModelKit`}, filled by `model_kits`."""


def model_kit(model: Any) -> Any:
    """Return the `ModelKit` of a model: that of its type, or of the nearest base class that has one.

    Raises TypeError for what is no `Model`.
    """
    return _row_of(MODEL_KITS, model, "a subclass of lvsearch.models.Model")


def _row_of(table: dict[type, Any], thing: Any, expected: str) -> Any:
    """Return the row of the first class that has one, from the type of `thing` upwards through its base classes.

    expected: what the message of a TypeError says was expected, where no class has a row.
    """
    for each in type(thing).__mro__:
        if each in table:
            return table[each]
    raise TypeError(f"got an object of type {type(thing).__name__}, expected {expected}")
