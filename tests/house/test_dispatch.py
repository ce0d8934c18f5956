"""What depends on a type is said for the type: no function falls back in silence where a registration was forgotten."""

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest
from test_structure import FILES, MODULES

from lvsearch.inference.annealing.between_sizes import ChainBetweenSizes
from lvsearch.inference.annealing.kits import chain_kit

RIGHT_BY_DEFINITION = {
    "bound_units": "a description gives the lower end, and the model's ceiling is the upper end",
    "bytes_while_annealed": "a chain holds less than the fit unless it has a latent variable for every token",
    "describe_units": "local variables are fitted from any log-joint",
    "document_proportions": "the model itself says its prior, and a model without one is refused",
    "estimator": "mean field from any log-joint",
    "evidence_chain": "the annealing path from the prior that any log-joint has",
    "fitted_type": "what every fit offers",
    "has_allocation_chain": "no chain over partitions is known, so sizes are compared one by one",
    "labels_chain": "the chain of any conjugate component, with or without hyper-parameters that have priors",
    "first_gain": "no path between sizes is known, so sizes are compared by their evidence",
    "occupied_counts": "a unit is in one component: its responsibilities say it",
    "parts_of": "the tables that every fit has",
    "path_needs_fit": "the generic path makes no use of a fit",
    "sampled_chain": "the chain that is annealed has the posterior at its end",
    "score_units": "the bound of a description, which says that it is one",
    "unit_ceilings": "the model's own ceiling, unit by unit",
    "with_other_missing_cells": "a type has no missing cells unless it says how they are marked",
    "with_padding": "the report says that units of the type have no padding",
    "_pack_by_type": "a data set is valid as it is; other forms are faster",
}
"""Function -> why its default is right for every type that registers nothing; the docstring says so too."""
TOGETHER = [("first_gain", "gain_of_last_part"), ("occupied_sampler", "process_sampler")]
"""Functions that the same types register."""
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
    assert len(found) > 20
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


@pytest.mark.thorough
def test_what_belongs_together_is_registered_together():
    types: dict[str, set[str]] = defaultdict(set)
    for node in (node for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for decorator in node.decorator_list:
            name, _, rest = ast.unparse(decorator).partition(".register")
            annotation = node.args.args[0].annotation if node.args.args else None
            types[name].add(rest.strip("()") or (ast.unparse(annotation) if annotation else ""))
    for one, other in TOGETHER:
        assert types[one] == types[other] != set()


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
    assert not {value.__name__ for value in chains if chain_kit.dispatch(value) is chain_kit.dispatch(object)}
    assert hasattr(ChainBetweenSizes, "log_switch")  # such chains join two sizes, and are not annealed from a q


def test_a_chain_that_says_nothing_is_refused():
    silent = type("Silent", (), dict.fromkeys([*METHODS, "efficient_particles", "directed"], lambda *_: None))
    with pytest.raises(TypeError, match="got a chain of type Silent, expected one that says what it offers"):
        chain_kit(silent())
