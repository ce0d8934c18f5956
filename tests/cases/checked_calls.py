"""Shapes and types of every call of the package are checked in tests, at less than `jaxtyping.jaxtyped` asks for it.

That decorator binds the arguments of a call to the signature, checks them, and checks them again with what is
returned; so does it with functions that know nothing of shapes. Where much is called and little is computed, as by the
search, this took half of the time. Here beartype checks arguments and what is returned, once, on the same ground: the
names of axes mean one number each within a call.
"""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, update_wrapper
from types import FunctionType
from typing import Any, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

CONFIGURATION = BeartypeConf(violation_type=jaxtyping.TypeCheckError)
_jaxtyped = jaxtyping.jaxtyped


def install() -> None:
    """What `--jaxtyping-packages` instruments is checked as here, if it is not imported yet."""
    jaxtyping.jaxtyped = jaxtyped


def jaxtyped(function: Any = None, *, typechecker: Any = None) -> Any:
    """As `jaxtyping.jaxtyped`: a function whose calls are checked, or a class whose `__init__` is."""
    if function is None:
        return partial(jaxtyped, typechecker=typechecker)
    if isinstance(function, FunctionType) and not inspect.isgeneratorfunction(function):
        return checked(function)
    if isinstance(function, type):
        made = function.__init__
        if is_dataclass(function) and isinstance(made, FunctionType) and not hasattr(made, "checks"):
            function.__init__ = checked(made)
        return function
    return _jaxtyped(function, typechecker=typechecker)


def checked(function: FunctionType) -> Callable[..., Any]:
    written = function.__annotations__
    if not written:
        return function
    function.__annotations__ = {name: resolved(hint, function.__globals__) for name, hint in written.items()}
    shaped = any("jaxtyping." in str(hint) for hint in function.__annotations__.values())
    try:
        once = beartype(conf=CONFIGURATION)(function)
    finally:
        function.__annotations__ = written
    if not shaped:
        return once

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with _jaxtyped("context"):
            return once(*args, **kwargs)

    call.checks = once
    return update_wrapper(call, function)


def resolved(hint: Any, names: dict[str, Any]) -> Any:
    """What a hint in quotes stands for; anything, where that is known to type checkers alone."""
    if not isinstance(hint, str):
        return hint

    def holder() -> None: ...

    holder.__annotations__ = {"value": hint}
    try:
        return get_type_hints(holder, names, include_extras=True)["value"]
    except Exception:  # as jaxtyping does, whatever stands there
        return Any
