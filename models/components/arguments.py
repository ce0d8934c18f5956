"""Arguments of components, and of mixtures of them: how they are checked, and how defaults follow from data.

Hyper-parameters, rows and kinds of components are checked, with errors that say what to do. `location_and_scale`
computes the shift and the scale of the coordinates that Gaussian components share, and `standardised` applies them.
"""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.models.components.component import Component
from lvsearch.models.contract import HyperparameterArray, hyperparameter, is_known_false
from lvsearch.models.hyperpriors import GammaPrior, positive_or_gamma_prior
from lvsearch.models.plain_arguments import numbers, shortened_repr
from lvsearch.models.units import Row


def location_parameter(value: Any) -> HyperparameterArray:
    """Return a location as an array: one number, or one per column. Raises ValueError for other shapes."""
    array = hyperparameter(value)
    if array.ndim > 1:
        raise ValueError(f"got location of shape {array.shape}, expected one number, or one per column")
    return array


LEAST = 1e-8
"""What the weakly informative priors add to the variance that is expected of a component, in units of scale².

Widths below about a ten-thousandth of a column's standard deviation then count as rounding. Without it the evidence of
a table with many equal cells in a column is infinite: the variance of all components can shrink to 0 together.
"""


def least_parameter(name: str, value: Any) -> float:
    """Return a hyper-parameter that may be 0 as a float, for example what is added to a rate.

    name: the name of the hyper-parameter, for the error.

    Raises ValueError for anything but a finite number of at least 0.
    """
    if not (isinstance(value, int | float) and 0 <= value < float("inf")):
        raise ValueError(f"got {name}={value!r}, expected a number of at least 0")
    return float(value)


def positive_parameter(name: str, value: Any, ndim: int = 0) -> HyperparameterArray:
    """Return a hyper-parameter that must be positive as an array: one number, or with ndim 1 also one per column.

    name: the name of the hyper-parameter, for the error.
    ndim: 0 for one number; 1 allows one for each column.

    Raises ValueError for any other value.
    """
    array = hyperparameter(value)
    if array.ndim > ndim or array.size == 0 or is_known_false(array > 0):
        wanted = "one positive number" + (", or one per column" if ndim else "")
        raise ValueError(f"got {name}={value!r}, expected {wanted}")
    return array


def positive_or_prior(name: str, value: Any, ndim: int = 0) -> HyperparameterArray | GammaPrior:
    """Return a hyper-parameter: positive numbers as an array, or a `GammaPrior` with its parameters as arrays.

    name: the name of the hyper-parameter, for the error.
    ndim: 0 for one number; 1 allows one for each column.

    Raises ValueError for any other value.
    """
    return (
        positive_or_gamma_prior(name, value) if isinstance(value, GammaPrior) else positive_parameter(name, value, ndim)
    )


def standardised(unit: Row, location: Any, scale: Any) -> Float[Array, " dim"]:
    """Return (x − location) / scale of one row x, shape (dim,); 0 for missing cells.

    location, scale: a number, or one per column.
    """
    return jnp.where(unit.observed, (jnp.asarray(unit.value) - location) / scale, 0.0)


def location_and_scale(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each column, shape (dim,) each, over cells that are not NaN.

    values: (rows, columns), NaN where missing: an array, a data frame of numbers, or `lv.Points`.

    Raises ValueError for an array of another rank, and for a column that is constant or has fewer than two cells.
    """
    array = numbers("values", values)
    if array.ndim != 2:
        raise ValueError(f"got data of shape {array.shape}, expected (rows, columns)")
    seen = ~np.isnan(array)
    count = seen.sum(0)
    if np.any(count < 2):
        raise ValueError(
            f"got column {int(np.argmin(count))} with {int(count.min())} cells, expected at least two to find its "
            "scale; give location= and scale= yourself"
        )
    first = array[np.argmax(seen, axis=0), np.arange(array.shape[1])]
    # subtract the first cell: for data far from 0 differences keep the digits that squares would lose
    shifted = np.where(seen, array - first, 0.0)
    centre = shifted.sum(0) / count
    scale = np.sqrt((np.where(seen, shifted - centre, 0.0) ** 2).sum(0) / count)
    constant = np.flatnonzero(~(scale > 1e-12 * np.maximum(np.abs(first + centre), 1e-300)))
    if constant.size:
        raise ValueError(
            f"got column {int(constant[0])}, whose cells are all equal, expected a column that varies: it has no "
            "scale. Drop it, or give location= and scale= yourself"
        )
    return first + centre, scale


def has_missing_cells(values: Any) -> bool:
    """Return True if a cell is NaN, that is missing. values: an array, a data frame of numbers, or `lv.Points`."""
    return bool(np.isnan(numbers("values", values)).any())


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


def refuse_latent_cells(component: Component, name: str = "components") -> None:
    """Raise ValueError for a kind of component in which missing cells are latent variables of their rows.

    name: the name of the argument, for the error.
    """
    if component.partial_rows:
        raise ValueError(
            f"got {name} of {type(component).__name__} with partial_rows=True, in which missing cells are latent; "
            "expected a kind without: `FiniteMixture` and `TiedMixture` alone take these. Drop the rows with missing "
            "cells, or use DiagonalComponents, which leave missing cells out"
        )


def column_names(columns: Any) -> list[str]:
    """Return the names of columns that are given as names, or as a table that has them, such as `lv.Points`.

    Raises ValueError for anything else, and for a single name.
    """
    names = getattr(columns, "columns", columns)
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(
            f"got {shortened_repr(columns)}, expected the names of the columns, or a table that has them, such as "
            "lv.Points"
        )
    return list(names)


def required_numbers(given: object, name: str = "components") -> Component:
    """Return the argument `given` if it is a kind of component whose rows have one variant and no latent cells, and
    whose hyper-parameters are numbers.

    name: the name of the argument, for the error.

    Raises ValueError for other objects, for several variants (`StudentComponents`), for rows with missing cells that
    are latent (`partial_rows`), and for priors on hyper-parameters.
    """
    component = required_component(given, name)
    refuse_latent_cells(component, name)
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
