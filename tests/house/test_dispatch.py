"""Tests that every type of model, chain and fit says what it has: nothing that was forgotten falls back in silence."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import pytest
from test_structure import FILES, MODULES

import lvsearch as lv
from lvsearch.fitted.kinds import FITTED_TYPES
from lvsearch.inference import kits
from lvsearch.inference.allocation_chains import allocation_chain, has_allocation_chain, start_from_allocation
from lvsearch.inference.annealing.between_sizes import ChainBetweenSizes
from lvsearch.inference.annealing.density import DensityChain
from lvsearch.inference.annealing.dispatch import first_gain, gain_of_last_part
from lvsearch.inference.annealing.prefixes import sequential
from lvsearch.inference.chain_kits import BUILT_IN_KITS as CHAIN_ROWS
from lvsearch.inference.chain_kits import NOT_READ, PLAIN, ChainKit, register_chain_kit
from lvsearch.inference.engine.estimator import GenericEstimator
from lvsearch.inference.factorizations.anchored import AnchoredFactorization
from lvsearch.inference.mixtures.estimator import MixtureEstimator
from lvsearch.inference.model_kits import BUILT_IN_KITS, GENERIC_KIT, GainKit, ModelKit, ProcessKit, register_kit
from lvsearch.inference.processes import occupied_sampler, process_sampler
from lvsearch.models.contract import Model

RIGHT_BY_DEFINITION = {
    "component_table": "the names of components, and their shares where units are described by shares",
    "parts_of": "the tables that every fit has",
    "with_other_missing_cells": "a type has no missing cells unless it says how they are marked",
    "with_padding": "the report says that units of the type have no padding",
    "_pack_by_type": "a data set is valid as it is; other forms are faster",
}
"""Function -> why its default is right for every type that registers nothing; the docstring says so too."""
METHODS = {"init", "step", "log_density", "log_ratio", "label_scores", "relabel", "take", "elements"}
"""What an annealer asks of a chain."""


def dispatched(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions of a module that choose by the type of their first argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "singledispatch" in map(ast.unparse, node.decorator_list):
            yield node


def raises(function: ast.FunctionDef) -> bool:
    """Whether a function does nothing but raise."""
    return len(function.body) == 2 and isinstance(function.body[1], ast.Raise)


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for _, path in FILES]


@pytest.mark.thorough
def test_a_default_raises_or_is_right_by_definition():
    found = {function.name: raises(function) for tree in trees() for function in dispatched(tree)}
    assert {name for name, only_raises in found.items() if not only_raises} == set(RIGHT_BY_DEFINITION)


def test_a_silent_default_is_noticed():
    silent, empty = (
        next(dispatched(ast.parse(f'@singledispatch\ndef f(x):\n    """Doc."""\n{rest}')))
        for rest in ("    return None", "")
    )
    assert not raises(silent)
    assert not raises(empty)
    (loud,) = dispatched(ast.parse('@singledispatch\ndef f(x):\n    """Doc."""\n    raise TypeError("no")'))
    assert raises(loud)


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def models_of_the_package() -> set[type[Model]]:
    """Every class of model that is defined under lvsearch.models and can be made, and the contract itself."""
    classes = {
        value
        for name in MODULES
        if name.startswith("lvsearch.models.")
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value) and issubclass(value, Model) and value.__module__ == name
    }
    bases = {base for each in classes for base in each.__mro__[1:]}  # of the package: a test may extend a model too
    return {each for each in classes if not inspect.isabstract(each) and each not in bases} | {Model}


def test_every_model_has_a_row_of_its_own():
    models = models_of_the_package()
    assert models >= {lv.models.LDA, lv.models.Unigram, lv.models.FiniteMixture, Model}
    public = {value for name in lv.models.__all__ if inspect.isclass(value := getattr(lv.models, name))}
    assert models >= {value for value in public if issubclass(value, Model)}
    assert models - set(BUILT_IN_KITS) == set()


def bind(function: Any, like: Any) -> None:
    """Raise TypeError unless a function takes the arguments, by position and by name, that `like` takes."""
    given = [each for each in inspect.signature(like).parameters.values() if each.default is each.empty]
    named = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
    inspect.signature(function).bind(*[None for each in given if each.name not in named], **named)


def test_every_model_says_of_which_type_its_fits_are():
    """Its own row or a base class's, and not that of any log-joint."""
    found = {model: next(each for each in model.__mro__ if each in FITTED_TYPES) for model in models_of_the_package()}
    assert [model for model, row in found.items() if row is Model] == [Model]


@pytest.mark.parametrize("model", BUILT_IN_KITS, ids=lambda model: model.__name__)
def test_a_row_of_models_takes_what_is_handed_on(model):
    kit = BUILT_IN_KITS[model]
    for generic, own in zip(GENERIC_KIT, kit, strict=True):
        if generic is not None:
            bind(own, generic)
    for own in (each for each in (kit.gains, kit.process, kit.allocations) if each is not None):
        like = {GainKit: [first_gain, gain_of_last_part], ProcessKit: [process_sampler, occupied_sampler]}
        chains = [has_allocation_chain, allocation_chain, start_from_allocation]
        for function, public in zip(own, like.get(type(own), chains), strict=True):
            bind(function, public)


@pytest.mark.parametrize("chain", CHAIN_ROWS, ids=lambda chain: chain.__name__)
def test_a_row_of_chains_takes_what_is_handed_on(chain):
    kit = CHAIN_ROWS[chain]
    for like, own in zip((*PLAIN, *NOT_READ), (*kit.annealing, *kit.states), strict=True):
        if callable(like):
            bind(own, like)


def test_a_model_of_ones_own_has_the_nearest_kit_until_it_gets_another(monkeypatch):
    monkeypatch.setattr(kits, "MODEL_KITS", dict(kits.MODEL_KITS))
    monkeypatch.setattr("lvsearch.inference.model_kits.MODEL_KITS", kits.MODEL_KITS)
    own, nearer = type("Own", (Model,), {}), type("Nearer", (lv.models.FiniteMixture,), {})
    own.__abstractmethods__ = frozenset()  # pyright: ignore[reportAttributeAccessIssue] — only its kit is looked up
    assert kits.model_kit(object.__new__(own)) is GENERIC_KIT
    data = lv.Points.from_array([[0.0], [1.0]]).dataset()
    assert type(lv.inference.estimator(nearer(), data)) is MixtureEstimator
    register_kit(nearer, GENERIC_KIT)
    assert type(lv.inference.estimator(nearer(), data)) is GenericEstimator
    assert type(lv.inference.estimator(lv.models.FiniteMixture(), data)) is MixtureEstimator


@pytest.mark.parametrize(("model", "kit"), [(int, GENERIC_KIT), (lv.models.LDA, None), ("LDA", GENERIC_KIT)])
def test_what_is_no_model_and_what_is_no_kit_are_refused(model, kit):
    with pytest.raises(ValueError, match=r"expected a subclass of lvsearch\.models\.Model and a ModelKit"):
        register_kit(model, kit)
    with pytest.raises(TypeError, match=r"type int, expected a subclass of lvsearch\.models\.Model"):
        kits.model_kit(3)


def test_what_belongs_together_is_given_together():
    with pytest.raises(TypeError, match="measure"):
        GainKit(lambda model, data: 1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="describe_units"):
        ModelKit(GenericEstimator)  # pyright: ignore[reportCallIssue]


# ── chains ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_chain_says_what_it_offers_the_annealer():
    chains = {
        value
        for name in MODULES
        if name.startswith("lvsearch.inference.")
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value) and value.__module__ == name and set(dir(value)) >= METHODS
    }
    chains -= {value for value in chains if getattr(value, "_is_protocol", False) or hasattr(value, "log_switch")}
    assert len(chains) > 10
    assert not {each.__name__ for each in chains if not isinstance(kits.chain_kit(object.__new__(each)), ChainKit)}
    assert hasattr(ChainBetweenSizes, "log_switch")  # such chains join two sizes, and are not annealed from a q


def test_a_chain_of_the_evidence_is_also_recorded_and_read():
    """All but paths around a fit and densities of other people, which are named here."""
    for field in ("recorder", "latents_reader"):
        refused = getattr(NOT_READ, field)
        without = {each for each, kit in CHAIN_ROWS.items() if getattr(kit.states, field) is refused}
        assert without == {DensityChain, AnchoredFactorization}
    assert {each for each, kit in CHAIN_ROWS.items() if kit.states.true_state is NOT_READ.true_state} == {DensityChain}


def test_a_chain_that_says_nothing_is_refused_until_it_has_a_kit(monkeypatch):
    monkeypatch.setattr(kits, "CHAIN_KITS", dict(kits.CHAIN_KITS))
    monkeypatch.setattr("lvsearch.inference.chain_kits.CHAIN_KITS", kits.CHAIN_KITS)
    silent = type("Silent", (), dict.fromkeys([*METHODS, "efficient_particles", "directed"], lambda *_: None))
    with pytest.raises(TypeError, match="type Silent, expected a chain with a kit"):
        sequential(silent(), jax.random.key(0))  # pyright: ignore[reportArgumentType]
    for chain_type, kit in ((silent, PLAIN), ("Silent", ChainKit(PLAIN, NOT_READ))):
        with pytest.raises(ValueError, match="expected a type of chain and a ChainKit"):
            register_chain_kit(chain_type, kit)
    register_chain_kit(silent, ChainKit(PLAIN, NOT_READ))
    assert sequential(silent(), jax.random.key(0)) is None  # pyright: ignore[reportArgumentType]
