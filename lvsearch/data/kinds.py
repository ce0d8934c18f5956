"""The kinds of data, and which one a model takes. Adding a kind adds an entry to `KINDS`."""

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
    """The kind of data whose units are the model's. ValueError where there is none."""
    for kind in KINDS:
        if kind.unit_type is model.unit_type:
            return kind
    raise ValueError(
        f"got raw data for {type(model).__name__}, whose units are of type {model.unit_type.__name__}; expected an "
        "lvsearch.data.Data of your own over such units"
    )


def require_model(model: Any) -> None:
    """ValueError for what is no model, such as a class in place of a model made of it."""
    if not isinstance(model, Model):
        named = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
        raise ValueError(f"got {named}, expected a model such as lv.models.LDA() (with its parentheses)")


def data_for(model: Model, data: Any) -> Data:
    """What a person passes, as data that the model can be trained on.

    data: a `Corpus`, `Points` or other `Data`, or what makes one: counts for models of documents, a matrix of numbers
    for models of rows. Raises ValueError for what is no model, for no data, for data of another kind, and for what
    makes none.
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
    return kind.of(data)
