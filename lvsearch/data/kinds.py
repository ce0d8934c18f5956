"""The kinds of data: which one a model needs, and how each is stored in a folder. To add one, add it to `KINDS`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.data.genotypes import Genotypes
from lvsearch.data.groups import Groups
from lvsearch.data.paired_corpus import PairedCorpus
from lvsearch.data.points import Points
from lvsearch.files.storage import CorruptFolderError
from lvsearch.models.contract import Model
from lvsearch.pictures.fact_card import Fact

KINDS: tuple[type[Data], ...] = (Corpus, Points, PairedCorpus, Groups, Genotypes)


FARTHER, NEARER = 3.0, 5.0
"""The factors beyond which a card says that cells lie farther, or nearer, than the prior expects."""


def kind_for(model: Model) -> type[Data]:
    """Return the class of data whose units (observations) are of the model's type. Raises ValueError if there is
    none.
    """
    for kind in KINDS:
        if kind.unit_type is model.unit_type:
            return kind
    raise ValueError(
        f"got raw data for {type(model).__name__}, whose units are of type {model.unit_type.__name__}; expected an "
        "lvsearch.data.Data of your own over such units"
    )


def require_model(model: Any) -> None:
    """Raise ValueError unless `model` is a model. A class instead of an object of it is a common mistake."""
    if not isinstance(model, Model):
        named = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
        raise ValueError(f"got {named}, expected a model such as lv.models.LDA() (with its parentheses)")


def data_for(model: Model, data: Any) -> Data:
    """Return the data that a person passed, as data that the model can be trained on.

    model: the model.
    data: a `Corpus`, `Points` or other `Data`, or raw input for one: counts for models of documents, a matrix of
        numbers for models of rows.

    Raises ValueError if `model` is no model, if data are missing or of another kind, and if no data can be made of the
    input.
    """
    require_model(model)
    if isinstance(data, Data):
        if data.unit_type is not model.unit_type:
            raise ValueError(
                f"got {type(data).__name__} ({data.describe()}) for {type(model).__name__}, expected data whose units "
                f"are of type {model.unit_type.__name__}"
            )
        return data
    kind = kind_for(model)
    if data is None:
        raise ValueError(f"got a model without data: pass {kind.accepted} as the second argument")
    return kind.from_any(data)


def unit_facts(model: Model, data: Data) -> tuple[Fact, ...]:
    """Return a fact that says in which column cells lie far from where the model's prior expects them, or much nearer.

    It is about the worst column. There is none if all lie about where they are expected, and for models without rows or
    without a unit to get wrong.

    model: the model. data: its data.
    """
    rows = data.rows if isinstance(data, Groups) else data
    if not isinstance(rows, Points):
        return ()
    expected = model.expected_cells(rows.values.shape[1])
    if expected is None:
        return ()
    apart = np.where(rows.observed, rows.values - expected.location, 0.0)
    distance = np.sqrt((apart**2).sum(0) / np.maximum(rows.observed.sum(0), 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = distance / expected.deviation
    off = np.nan_to_num(np.maximum(ratio / FARTHER, 1 / (ratio * NEARER)), nan=0.0, posinf=0.0)
    worst = int(np.argmax(off))
    if off[worst] <= 1:
        return ()
    middle, seen, prior = (
        f"{each[worst]:.3g}".replace("-", "−") for each in (expected.location, distance, expected.deviation)
    )
    said = (
        f"the prior expects the cells of column {rows.columns[worst]} about {prior} from {middle}, and they lie about "
        f"{seen} from it: the answer depends on the unit of the data. Take components that are made from the data, "
        "such as lv.models.DiagonalComponents.weak(points.values), or standardise the columns"
    )
    return (Fact("unit", said),)


def encode_data(data: Data) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return data as (settings that JSON can store, with kind and fingerprint, and {name: array}).

    Raises ValueError for a kind of data that `decode_data` does not know.
    """
    if type(data) not in KINDS:
        raise ValueError(
            f"got data of class {type(data).__qualname__!r}, expected one of "
            f"{', '.join(kind.__name__ for kind in KINDS)}: code is not stored. Leave out= away"
        )
    settings, arrays = data.to_storage()
    return {"kind": type(data).__name__, "fingerprint": data.fingerprint, **settings}, arrays


def decode_data(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray], folder: Path) -> Data:
    """Return the data that `encode_data` encoded as `entry` and `arrays`.

    folder: the folder that they were read from, named in errors.

    Raises `CorruptFolderError` for an unknown kind, and for data that do not match their fingerprint.
    """
    name = entry.get("kind", Corpus.__name__)  # a folder from before there were other kinds holds a corpus
    known = {kind.__name__: kind for kind in KINDS}
    if name not in known:
        raise CorruptFolderError(
            f"{folder}: got data of kind {name!r}, which this version of lvsearch does not have; read the folder with "
            "the version that wrote it"
        )
    data = known[name].from_storage(entry, arrays)
    if data.fingerprint != entry["fingerprint"]:
        raise CorruptFolderError(f"{folder}: the data differ from those searched; restore the folder from a copy")
    return data
