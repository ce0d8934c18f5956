"""Encode data of any kind as settings and arrays for folders, and decode them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.data.kinds import KINDS
from lvsearch.files.storage import CorruptFolderError


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
