"""Checks of the arguments of mixtures, rows and kinds of components, with errors that say what to do."""

import numpy as np

from lvsearch.models.components.component import Component
from lvsearch.models.units import Row


def refuse_partial_rows(units: Row, why: str) -> None:
    """Raise ValueError if a row has some of its cells but not all.

    units: the rows, stacked. why: the reason, for the error.
    """
    observed = np.asarray(units.observed)
    partial = observed.any(-1) & ~observed.all(-1)
    if partial.any():
        row = int(np.flatnonzero(partial)[0])
        raise ValueError(
            f"got {int(partial.sum())} rows with missing cells (the first is row {row}), expected rows that are known "
            f"whole or not at all: {why}; use DiagonalComponents, or drop these rows with points.select"
        )


def require_counts(units: Row, kind: str) -> None:
    """Raise ValueError if an observed cell is not a whole number ≥ 0.

    units: the rows, stacked. kind: the name of the kind of component, for the error.
    """
    values = np.asarray(units.value)[np.asarray(units.observed)]
    wrong = values[(values < 0) | (values != np.floor(values))]
    if wrong.size:
        raise ValueError(f"got a cell with {float(wrong[0])!r} for {kind}, expected whole numbers ≥ 0")


def required_component(given: object, name: str = "components") -> Component:
    """Return the argument `given` if it is a kind of component without factor scores. Raises ValueError otherwise.

    name: the name of the argument, for the error.
    """
    if not isinstance(given, Component):
        raise ValueError(f"got {name}={given!r}, expected a kind of component, such as DiagonalComponents()")
    if given.scored:
        raise ValueError(
            f"got {name} of {type(given).__name__}, whose rows have scores of their own, expected a kind without: "
            "FactorAnalyzerMixture(components) is their mixture"
        )
    return given


def required_numbers(given: object, name: str = "components") -> Component:
    """Return the argument `given` if it is a kind of component whose rows have one variant and whose hyper-parameters
    are numbers.

    name: the name of the argument, for the error.

    Raises ValueError for other objects, for several variants (`StudentComponents`), and for priors on hyper-parameters.
    """
    component = required_component(given, name)
    if component.n_variants > 1:
        raise ValueError(
            f"got {name} of {type(component).__name__}, whose rows arise in one of {component.n_variants} variants, "
            "expected a kind with one: `FiniteMixture` alone takes the others"
        )
    if component.inferred:
        raise ValueError(
            f"got {name} whose {' and '.join(component.inferred)} have priors, expected numbers: `FiniteMixture` "
            "alone infers them. components.at_prior_means() has the means of the priors in their place"
        )
    return component
