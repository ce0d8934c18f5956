"""Shapes and types of every call of the package are checked in tests, at less than `jaxtyping.jaxtyped` asks for it.

That decorator binds the arguments of a call to the signature, checks them, and checks them again with what is
returned; so does it with functions that know nothing of shapes. Where much is called and little is computed, as by the
search, this took half of the time. Here beartype checks arguments and what is returned, once, on the same ground: the
names of axes mean one number each within a call. A function within a function is made anew by every call of the outer
one, and its check written anew: what was written for its code serves again.
"""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, update_wrapper
from types import CellType, CodeType, FunctionType
from typing import Any, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

CONFIGURATION = BeartypeConf(violation_type=jaxtyping.TypeCheckError)
CHECKED = "__beartype_func"
"""The default by which what beartype writes knows the function that it calls (0.20 to 0.23)."""
_jaxtyped = jaxtyping.jaxtyped
_written: dict[tuple[CodeType, str], tuple[str, FunctionType, bool]] = {}
"""By code and name: the hints in words (those of shapes are other classes each time), what checks them, and whether
shapes are among them."""


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
    if not function.__annotations__ or hasattr(function, "__wrapped__"):  # of a class, checked with its methods
        return function
    checks: list[tuple[Callable[..., Any], bool]] = []  # written by the first call: most functions are never called

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not checks:
            checks.append(checks_of(function))
        once, shaped = checks[0]  # of two threads that call it first, both write it
        if not shaped:
            return once(*args, **kwargs)
        with _jaxtyped("context"):
            return once(*args, **kwargs)

    call.checks = checks
    return update_wrapper(call, function)


def checks_of(function: FunctionType) -> tuple[Callable[..., Any], bool]:
    """Return (the function that checks its calls, whether shapes are among what it checks)."""
    which = function.__code__, f"{function.__module__}.{function.__qualname__}"
    hints, (known, once, shaped) = str(function.__annotations__), _written.get(which, ("", function, False))
    if known != hints:
        once, shaped = written_for(hollow(function))
        _written[which] = hints, once, shaped
    return rebound(once, function), shaped


def hollow(function: FunctionType) -> FunctionType:
    """The same without what it closes over, which is not to be kept."""
    empty = tuple(CellType() for _ in function.__closure__ or ())
    again = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, empty)
    again.__kwdefaults__, again.__annotations__ = function.__kwdefaults__, function.__annotations__
    again.__module__, again.__qualname__ = function.__module__, function.__qualname__
    return again


def written_for(function: FunctionType) -> tuple[FunctionType, bool]:
    """What checks its calls, and whether shapes are among what it checks."""
    hints = {name: resolved(hint, function.__globals__) for name, hint in function.__annotations__.items()}
    function.__annotations__ = hints
    shaped = any("jaxtyping." in str(hint) for hint in hints.values())
    return beartype(conf=CONFIGURATION)(function), shaped


def rebound(once: FunctionType, function: FunctionType) -> FunctionType:
    """What checks another function of the same code, about this one; that itself, where there is nothing to check."""
    if once.__code__ is function.__code__:
        return function
    if CHECKED not in (once.__kwdefaults__ or {}):
        raise RuntimeError(f"expected beartype to write checks with a default {CHECKED}; see how this one does it")
    again = FunctionType(once.__code__, once.__globals__, once.__name__, once.__defaults__, once.__closure__)
    again.__kwdefaults__ = {**once.__kwdefaults__, CHECKED: function}
    return update_wrapper(again, function)


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
