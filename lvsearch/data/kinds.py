"""The kinds of data, and the function that finds which one a model needs. To add a kind, add it to `KINDS`."""

from typing import Any

from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.data.genotypes import Genotypes
from lvsearch.data.groups import Groups
from lvsearch.data.paired_corpus import PairedCorpus
from lvsearch.data.points import Points
from lvsearch.models.contract import Model

KINDS: tuple[type[Data], ...] = (Corpus, Points, PairedCorpus, Groups, Genotypes)


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
