"""What `print(fit)` and a notebook show of a fit: what it is, its evidence, its components, and what to call next.

Nothing is inferred and no unit is described: everything is read off the fitted parameters and the sizes of the data.
Every `fit` here is a `lvsearch.fitted.model.FittedModel`, which imports this file.
"""

import math
from collections.abc import Callable
from typing import Any

from lvsearch.pictures.fact_card import Fact
from lvsearch.sizing.words import with_noun

MOST_COMPONENTS = 20
"""How many components are listed."""
MOST_LETTERS = 100
"""How many letters of a component's name are shown."""
MOST_NUMBERS = 20_000_000
"""The number of parameters and data above which components are not named, since naming them would take seconds."""


def fit_headline(fit: Any) -> str:
    """Return what a fit is in one line: "LDA with 12 topics, fitted to 773 documents (105,000 tokens)"."""
    nouns, units, observations = fit.training.nouns, fit.training.n_units, fit.training.n_observations
    return (
        f"{type(fit.model).__name__} with {_size_in_words(fit, fit.size)}, fitted to "
        f"{_number_of(units, nouns.unit, nouns.units)} "
        f"({_number_of(observations, nouns.observation, nouns.observations)})"
    )


def fit_facts(fit: Any) -> tuple[Fact, ...]:
    """Return the facts about a fit that stand below its headline."""
    smaller = () if fit.estimate.size == fit.size else (Fact("note", _smaller_in_words(fit)),)
    return (
        Fact("evidence", _evidence_in_words(fit)),
        *smaller,
        *_component_facts(fit),
        Fact("model", fit.model.describe()),
        Fact("try", ", ".join(f"fit.{call}" for call in fit._useful_calls)),
    )


def _size_in_words(fit: Any, size: tuple[int, ...]) -> str:
    """Return a size with its nouns, such as "12 topics", "3 row clusters × 2 column clusters" or "truncation 30"."""
    names = [name.replace("_", " ") for name in fit.model.size_names]
    return " × ".join(
        f"{name} {number}" if name == "truncation" else with_noun(number, name)
        for number, name in zip(size, names, strict=True)
    )


def _smaller_in_words(fit: Any) -> str:
    """Return a sentence for a size that the search recorded with the better fit of a smaller size."""
    used = _size_in_words(fit, fit.estimate.size)
    return f"this is the fit of {used}: no fit of {_size_in_words(fit, fit.size)} was better, the others are empty"


def _evidence_in_words(fit: Any) -> str:
    """Return the proved bounds on the log evidence of a fit, in nats, and what they are bounds on."""
    low, high = fit.evidence.lower, fit.evidence.upper
    known = [
        *([f"at least {_nats(low, math.floor)}"] if low > -math.inf else []),
        *([f"at most {_nats(high, math.ceil)}"] if high < math.inf else []),
    ]
    given = "these estimated parameters" if _is_plug_in(fit.model) else _size_in_words(fit, fit.size)
    told = f"log p(data | {given})"
    if low == high:
        return f"{told} is {_nats(low, round)} nats"
    return f"{told} is {' and '.join(known)} nats (proved)" if known else f"nothing is proved about {told}"


def _is_plug_in(model: Any) -> bool:
    """Return True if the model's shared parameters are estimated, not integrated out: then plug_in() changes nothing.

    Models without a plug-in form raise ValueError there, and a user's model may raise anything.
    """
    try:
        estimated = model.plug_in().globals()
    except Exception:
        return False
    known = model.globals()
    return known.keys() == estimated.keys() and all(
        type(site.family) is type(estimated[name].family) for name, site in known.items()
    )


def _component_facts(fit: Any) -> tuple[Fact, ...]:
    """Return a fact for each of the first 20 components, with its name, and one that counts the others.

    () where the components have no names of their own, or where making the names would take long.
    """
    names = _names(fit)
    if not names:
        return ()
    noun = with_noun(1, fit.model.size_names[0].replace("_", " ")).removeprefix("1 ")
    noun = "component" if noun == "truncation" else noun
    shown = [Fact(f"{noun} {number}", _shortened(name)) for number, name in enumerate(names[:MOST_COMPONENTS])]
    left_out = len(names) - len(shown)
    return (*shown, *([Fact("…", f"{left_out} more: fit.component_names()")] if left_out else []))


def _names(fit: Any) -> tuple[str, ...]:
    """Return the names of the components, or () where they have none or where making them would fail or take long."""
    if fit._numbers_read_by_names() > MOST_NUMBERS:
        return ()
    try:
        names = fit.component_names()
    except Exception:  # a user's model may not be of the form that names need; a print must not fail for that
        return ()
    return () if names == tuple(f"component {number}" for number in range(len(names))) else names


def _shortened(name: str) -> str:
    """Return a name cut to at most 100 letters."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def _number_of(number: int, noun: str, nouns: str) -> str:
    """Return a number with its noun, such as "1 document" or "105,000 tokens"."""
    return f"{number:,} {noun if number == 1 else nouns}"


def _nats(value: float, to_whole: Callable[[float], int]) -> str:
    """Return a number of nats as text: whole numbers from 1,000 on, one decimal below, and a true minus sign.

    to_whole: floor for a lower bound, ceil for an upper one, so that the bound in words is proved too; else round.
    """
    text = f"{to_whole(value):,}" if abs(value) >= 1000 else f"{to_whole(value * 10) / 10:,.1f}"
    return text.replace("-", "−")
