"""Classes of one's own in folders: saved and loaded where they are registered, refused with the reason where not."""

import json
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
import pytest
from toy_models import PointMixture

import lvsearch as lv
from lvsearch.files.storage import CorruptFolderError
from lvsearch.fitted.stored_fits import decode_module, encode_module
from lvsearch.models import registry
from lvsearch.models.families import Gaussian, GaussianStatistics


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, type]:
    classes: dict[str, type] = {}
    monkeypatch.setattr(registry, "_REGISTERED", classes)
    return classes


class OwnPrior(NamedTuple):
    """A prior of one's own."""

    scale: Any


class OwnComponents(lv.models.Component):
    """Columns of known unit variance around Gaussian means."""

    strength: np.ndarray = eqx.field(converter=lv.models.hyperparameter)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    estimated: ClassVar[bool] = False

    @property
    def family(self) -> Gaussian:
        return Gaussian()

    prior_family = family

    def prior(self, n_dims: int) -> GaussianStatistics:
        zero = np.zeros(n_dims, np.float32)
        return GaussianStatistics(zero, zero + self.strength)

    def increment(self, coordinates: Any, observed: Any) -> GaussianStatistics:
        return GaussianStatistics(coordinates, observed.astype(coordinates.dtype))

    def log_carrier(self, coordinates: Any, observed: Any) -> Any:
        return (observed * -0.5 * (np.log(2 * np.pi) + coordinates**2)).sum()


@pytest.mark.thorough
def test_a_model_with_a_part_of_ones_own_is_searched_saved_and_loaded(empty_registry, tmp_path):
    """The same posterior and the same fit; from a process that does not know the class, the reason."""
    lv.models.register(OwnComponents)
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(-4, 1, (10, 2)), rng.normal(4, 1, (10, 2))])
    model = lv.models.FiniteMixture(OwnComponents(0.1))
    result = lv.search(model, rows, prior=lv.sizes.Poisson(2), max_size=2, evidence="bound", starts=1, progress=False)
    result.save(tmp_path / "run")
    again = lv.load(tmp_path / "run")
    assert again.best_size == result.best_size == (2,)
    assert again.posterior().equals(result.posterior())
    np.testing.assert_array_equal(again.best.transform(rows), result.best.transform(rows))
    assert isinstance(again.best.model.components, OwnComponents)  # pyright: ignore[reportAttributeAccessIssue]
    empty_registry.clear()
    with pytest.raises(CorruptFolderError, match=r"register it first: lv\.models\.register\(OwnComponents\)"):
        lv.load(tmp_path / "run")


def test_what_is_not_registered_is_not_stored(empty_registry):
    with pytest.raises(ValueError, match=r"Register it, lv\.models\.register\(PointMixture\), here and wherever"):
        encode_module(PointMixture(1.0, 0.2, 2.5))


def test_models_and_priors_come_back(empty_registry):
    for value in (lv.models.register(PointMixture)(1.0, 0.2, 2.5), lv.models.register(OwnPrior)(2.0)):
        again = decode_module(json.loads(json.dumps(encode_module(value))))
        assert type(again) is type(value)
        assert again == value if isinstance(value, OwnPrior) else float(again.precision) == 2.5


def test_a_name_is_taken_once(empty_registry):
    """A class that is defined again, as in a notebook, takes the place of the old one; another class does not."""

    def defined(module: str) -> type:
        return type("OwnPrior", (OwnPrior,), {"__module__": module, "__qualname__": "OwnPrior"})

    lv.models.register(defined("here"))
    newer = lv.models.register(defined("here"))
    assert registry.registered("OwnPrior") is newer
    with pytest.raises(ValueError, match=r"got there\.OwnPrior, but here\.OwnPrior is registered as 'OwnPrior'"):
        lv.models.register(defined("there"))


def test_what_cannot_be_made_again_is_not_registered(empty_registry):
    class Renamed(eqx.Module):
        """A field that the constructor calls something else."""

        value: float

        def __init__(self, number: float):
            self.value = number

    with pytest.raises(ValueError, match="Renamed, whose constructor does not take value"):
        lv.models.register(Renamed)
    with pytest.raises(ValueError, match="got <class 'int'>, expected a class: an eqx"):
        lv.models.register(int)
    assert not empty_registry


def test_a_name_of_lvsearch_is_not_replaced(empty_registry):
    """Folders written before still mean what they meant."""

    class LDA(lv.models.IBP):  # pyright: ignore[reportGeneralTypeIssues]
        """Another model of the same name."""

    lv.models.register(LDA)
    assert type(decode_module(encode_module(lv.models.LDA(1.0)))) is lv.models.LDA
    with pytest.raises(ValueError, match=r"lvsearch\.models\.lda\.LDA has its name: give it another"):
        encode_module(LDA())
