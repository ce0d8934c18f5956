"""The interface that every model implements ("the contract"): its log-joint, its latent variables and its sizes.

A model is one pure function, log p(x, z, θ | size). It is written in the *sufficient statistics* of the latent
variables and is multilinear in them. `lvsearch.inference` derives everything else from that function: coordinate
ascent, Gibbs sampling, evidence bounds, summed-out indicators, plug-in estimates. It never asks which model it has.

The log-joint has two parts, so that data can come in batches:

    log p(x, z, θ) = log_prior(globals) + Σ_u weight_u · log_unit(globals, locals_u, unit_u)

| word | meaning |
|---|---|
| unit | one observation: a document, a row, an image, a sequence |
| site | one latent variable of the model, or an array of exchangeable ones |
| global sites, `g` | the latent variables that all units share, such as topics |
| local sites, `l` | the latent variables of one unit, such as a document's topic proportions |
| statistics | the sufficient statistics t(value) of a latent variable; its exponential family defines them |
| natural | the natural parameters of that exponential family |
| size | the number of components (topics, clusters, …), one number for each size variable |
| capacity | the number of places (array slots) for components; at least the size, so some places are empty |
| `on` | {axis name: mask of the entries that exist}, which leaves out empty places |

`log_relabellings` computes what most models return from `log_symmetry`: the log number of distinct ways to relabel the
exchangeable components of a fit.

References: Blei (2004), §2.1–2.2.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from lvsearch.models.families import Family
from lvsearch.models.plain_arguments import numbers


def log_relabellings(rows: np.ndarray) -> float:
    """Return log(K! / Π_j m_j!) in nats: the log number of distinct ways to relabel K components.

    m_j are the sizes of the groups of equal components; exchanging equal components gives no new relabelling.

    rows: one component in each row, shape (K, numbers). Components are equal if their numbers agree within 1e-3,
        relative or absolute.
    """
    return float(_log_factorial(len(rows)) - sum(_log_factorial(m) for m in _group_sizes(rows)))


def _log_factorial(n: int) -> float:
    """Return log n! in nats."""
    return float(np.log(np.arange(1, n + 1)).sum())


def _group_sizes(rows: np.ndarray) -> list[int]:
    """Return the sizes of the groups of equal rows; a row belongs to the first group whose first row it equals.

    rows: shape (row, numbers). Numbers are equal if they agree within 1e-3, relative or absolute.
    """
    left, sizes = rows, []
    while len(left):
        same = np.isclose(left, left[0], rtol=1e-3, atol=1e-3).all(-1)
        sizes.append(int(same.sum()))
        left = left[~same]
    return sizes


Statistics = Any
"""A pytree of arrays: the sufficient statistics of one latent variable, elements on the leading axes, event axis
last.
"""
Latents = Mapping[str, Statistics]
"""{name of a latent variable: its statistics}."""
Unit = Any
"""A pytree of arrays: one observation, such as a document, a point, an image or a row."""
JointDraw = tuple[dict[str, Statistics], dict[str, Statistics], Any]
"""(Statistics of the latent variables that all units share, of those of the units, the units), as `simulate` draws."""
Masks = Mapping[str, Bool[Array, " axis"]]
"""{axis name: mask of the entries that exist at this size}. All entries of an axis that is not named exist."""


class Gate(NamedTuple):
    """A rule that elements of a unit's latent variable exist only if a certain entry of an indicator is chosen.

    An example is the level proportions of a path through a tree, which exist only if that path is chosen.

    | field | meaning |
    |---|---|
    | `site` | the name of the deciding indicator, a local site that has no gate itself |
    | `part` | function (statistic of the indicator, masks) -> gate of each element, 0 to 1, broadcastable to elements |

    `log_unit` multiplies every term with a gated element by that element's gate, and by no other gate. So q has the
    factors q(indicator) Π q(element | its entry is chosen). The terms of a gated element in the bound, its entropy
    included, count as often as its entry is chosen (`lvsearch.inference.engine.gates`).
    """

    site: str
    part: Callable[[Any, Masks], Any]


class Site(NamedTuple):
    """One latent variable of a model ("site"), or a whole array of exchangeable ones.

    | field | meaning |
    |---|---|
    | `family` | the exponential family of its complete conditional, and so of its variational factor q |
    | `axes` | names of the axes of its sufficient statistic, the family's event axis last; masks refer to them |
    | `copies` | function unit -> copies per element: a word with count 3 is *one* indicator for three (0 = padding) |
    | `slices` | the axis whose elements interact with each other: they are updated one slice at a time |
    | `gate` | the indicator that decides which elements exist; only for latent variables of one unit |

    Copies divide the gradient and multiply the entropy.
    """

    family: Family
    axes: tuple[str, ...]
    copies: Callable[[Unit], Array] | None = None
    slices: str | None = None
    gate: Gate | None = None

    @property
    def element_axes(self) -> tuple[str, ...]:
        """The names of the axes that index independent elements, such as ("token",) for the assignments of tokens."""
        return self.axes[: len(self.axes) - self.family.event_ndim]

    @property
    def event_axes(self) -> tuple[str, ...]:
        """The names of the axes of one event, such as "word" for a distribution over words."""
        return self.axes[len(self.axes) - self.family.event_ndim :]

    def event_mask(self, on: Masks) -> Bool[Array, "..."] | None:
        """Return which entries of one event exist, as the outer product of the masks of the event axes.

        on: {axis name: mask of the entries that exist}.

        Returns a mask on the event axes; None if none of these axes has a mask, since all entries then exist.
        """
        return _outer_mask(self.event_axes, on, self.family.event_ndim)

    def element_mask(self, on: Masks, ndim: int) -> Bool[Array, "..."] | None:
        """Return which elements exist, as the outer product of the masks of the element axes.

        on: {axis name: mask of the entries that exist}.
        ndim: the number of axes of the result.

        Returns a mask with `ndim` axes, of length 1 where an axis has no mask; None if no element axis has a mask.
        """
        return _outer_mask(self.element_axes, on, ndim)


def _outer_mask(axes: tuple[str, ...], on: Masks, ndim: int) -> Bool[Array, "..."] | None:
    """Return the outer product of the masks of several axes; None if no axis has a mask.

    axes: names of the axes. on: {axis name: mask of the entries that exist}.
    ndim: the number of axes of the result, which has length 1 on axes without a mask.
    """
    mask = None
    for position, axis in enumerate(axes):
        if axis in on:
            shaped = on[axis].reshape([-1 if p == position else 1 for p in range(ndim)])
            mask = shaped if mask is None else mask & shaped
    return mask


HyperparameterArray = np.ndarray | Array


class ExpectedCells(NamedTuple):
    """The place where the prior of a model of rows expects the cells of each column, in the unit of the data.

    | field | shape | meaning |
    |---|---|---|
    | `location` | (dim,) | the middle of the prior; NaN for columns of which it expects nothing |
    | `deviation` | (dim,) | how far cells lie from it under the prior, a standard deviation; NaN likewise |
    """

    location: Float[np.ndarray, " dim"]
    deviation: Float[np.ndarray, " dim"]

    @classmethod
    def from_numbers(cls, location: Any, deviation: Any, n_dims: int) -> "ExpectedCells":
        """Return it from a number for all columns, or one number per column, of either."""
        return cls(*(np.broadcast_to(np.asarray(each, np.float64), (n_dims,)) for each in (location, deviation)))


"""The array of a hyper-parameter: NumPy's if its values are known, or JAX's inside a transformation."""


def is_traced(value: Any) -> bool:
    """Return True if `value` is a JAX tracer (inside `jit`, `vmap` or `grad`), whose number cannot be inspected."""
    return isinstance(value, Tracer)


def hyperparameter(value: Any) -> HyperparameterArray:
    """Return a hyper-parameter as a float64 NumPy array with the axes of `value`, () for a number.

    Models keep hyper-parameters as arrays, so that `jit` does not recompile for a new value. Inside `jit` the array
    takes the session's precision. It is allocated on no device. A JAX tracer is returned unchanged and unchecked.

    Raises ValueError for values that are not finite.
    """
    if is_traced(value):
        return value
    array = numbers("a hyper-parameter", value)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"hyper-parameters must be finite, got {value!r}")
    return array


def is_known_false(condition: Any) -> bool:
    """Return True if a condition on a hyper-parameter is known to fail for at least one of its values.

    condition: a boolean or an array of booleans. While it is a JAX tracer nothing is known, and the result is False.
    """
    return not is_traced(condition) and not np.all(condition)


LARGEST_CONCENTRATION = 1e6
"""The largest concentration allowed. Beyond it float32 rounds away more than a nat of a Dirichlet's log-density."""


def concentration_parameter(name: str, value: Any) -> HyperparameterArray:
    """Return the concentration of a Dirichlet or of a Dirichlet process as a float64 array with the axes of `value`.

    name: the name of the hyper-parameter, for the error message.
    value: a number or an array. A JAX tracer is returned unchanged and unchecked.

    Raises ValueError for values that are not finite or above 1e6.
    """
    array = hyperparameter(value)
    if is_known_false(array <= LARGEST_CONCENTRATION):
        raise ValueError(f"got {name}={value!r}, expected at most {LARGEST_CONCENTRATION:g}: float32 ends there")
    return array


class Model(eqx.Module):
    """A latent variable model of unknown size. Its array leaves are hyper-parameters.

    `size_names`: the names of the size variables.
    `nested`: True if Proposition 1 of Chiang & Poole (Eq. 3) holds for the plug-in form: every θ_s has an equally
        likely θ_t for t ⪰ s. The proof is in the class's docstring.
    `unit_type`: the type of ONE unit (observation) of its data (`lvsearch.models.units`). It decides which data a
        person may pass.
    `representation`: the name of the local latent variable whose expected value describes a unit (the result of
        `transform`).
    `process`: True if the model is one process without a size, and `size` truncates q alone. Every truncation then
        bounds the same evidence, so a posterior over truncations has no meaning. Samplers of the process
        (`lvsearch.inference.processes`) answer how many components the data occupy.
    `size_is_limit`: True if the size only limits how many components the units can have. Then answers give the number
        of those that some unit has, and the size is no more than a part of the prior.
    `only_size`: the one size of a model that has no choice of size; None, the default, for all others.

    Methods that every use needs are abstract. Methods that most uses never call have a default, which raises an error
    that says what to write. `lvsearch.models.checks` tests whether a model keeps the rules of this interface.
    """

    size_names: eqx.AbstractClassVar[tuple[str, ...]]
    nested: ClassVar[bool] = False
    unit_type: eqx.AbstractClassVar[type]
    representation: eqx.AbstractClassVar[str]
    process: ClassVar[bool] = False
    size_is_limit: ClassVar[bool] = False
    only_size: ClassVar[tuple[int, ...] | None] = None

    def describe(self) -> str:
        """Describe the model and its hyper-parameters for people, in one line.

        The text says the values, and how they are spread over components as the size grows. The default lists the
        fields and their values.
        """
        values = ((entry.name, np.asarray(getattr(self, entry.name))) for entry in fields(self))
        told = ", ".join(f"{n}={v.item() if v.size == 1 else f'{v.size} numbers'}" for n, v in values)
        return f"{type(self).__name__}: {told}" if told else type(self).__name__

    @abstractmethod
    def globals(self) -> dict[str, Site]:
        """Return {name: latent variable} of the variables that all units share, in the order in which they are
        updated.
        """

    @abstractmethod
    def locals(self) -> dict[str, Site]:
        """Return {name: latent variable} of the variables of ONE unit, in the order in which they are updated."""

    def extents(self, unit: Unit) -> Mapping[str, int | Bool[Array, " axis"]]:
        """Return the lengths of those axes of local latent variables that the unit decides, as {axis name: length}.

        unit: one unit of data (a document, row, image, …).

        Where units are padded to one length, the value is a mask instead, True for the entries that this unit has. The
        default is {}.
        """
        return {}

    @abstractmethod
    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {axis name: mask of the entries that exist}, for the axes whose length the size decides.

        size: the number of components of each size variable; may be traced by JAX.
        capacity: the number of places (array slots) of each size variable, static; each mask has this length.
        """

    @abstractmethod
    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log p(globals), the log prior density of the latent variables that all units share, in nats.

        g: {name: sufficient statistics t(value) of the latent variable, as its family defines them}. Inference may pass
            expected statistics, so the result must be linear in the statistics of each variable.
        on: {axis: mask of the entries that exist}, as `active` returns. Leave out terms of entries that do not exist.
        """

    @abstractmethod
    def log_unit(self, g: Latents, l: Latents, unit: Unit, on: Masks) -> Float[Array, ""]:
        """Return log p(locals, unit | globals) of ONE unit, in nats, without the terms of its missing cells.

        g: {name: sufficient statistics} of the latent variables that all units share.
        l: {name: sufficient statistics} of the latent variables of this unit.
        unit: one unit of data (a document, row, image, …).
        on: {axis: mask of the entries that exist}, from `active` and from the unit's own axes (`extents`).
        """

    @abstractmethod
    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return the log of the number of distinct relabellings of the fitted components, in nats.

        size: the number of components of each size variable.
        natural: {name: natural parameters} of the latent variables that all units share.
        """

    @property
    def n_given(self) -> int:
        """The number of components that the model tells apart by itself, such as topics with words of their own; by
        default 0.

        They come first, in one order. So they are not renamed, and no size has fewer of them.
        """
        return 0

    @property
    def smallest_size(self) -> tuple[int, ...]:
        """The smallest size of the model: one component, or as many as are given, for each size variable."""
        return (max(1, self.n_given),) * len(self.size_names)

    def on_longer_axes(self, extents: Mapping[str, int]) -> "Model":
        """Return the model for data with more entries at the end of some axes, such as new words after the old ones.

        extents: {axis of the data: its new length}. Most models say nothing of single entries and return themselves.
        """
        del extents
        return self

    def suggestions_if_open(self) -> tuple[str, ...]:
        """Return phrases that suggest other priors or components to try where data leave the number of components open.

        There are none by default.
        """
        return ()

    def check(self, units: Any) -> None:
        """Raise ValueError for units that have no density under the model, such as a negative count; by default none.

        A fit calls it with all new units that it describes or scores. Models of rows ask their kind of component.

        units: all units of data, stacked on a leading axis, in the order of the data.
        """

    def expected_cells(self, n_dims: int) -> ExpectedCells | None:
        """Return where the prior expects the cells of each column of rows to lie, or None, the default, if it expects
        nothing or if units are no rows.

        n_dims: the number of columns of the data.
        """
        del n_dims
        return None

    def ceiling(self, units: Any) -> float:
        """Return an upper bound on log p(data | any size, any parameters), in nats; `inf`, the default, if there is
        none.

        units: all units of data, stacked on a leading axis.
        """
        return math.inf

    def plug_in(self) -> "Model":
        """Return the model with its global parameters estimated (point families) instead of integrated out.

        Raises ValueError, saying why, for models that have no such form.
        """
        raise ValueError(
            f"{type(self).__name__} has no plug-in form: give it plug_in(), which returns the same model with point "
            'families (lv.models.families.PointSimplex…) at its globals, or use evidence="marginal" or "bound"'
        )

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: Unit, on: Masks) -> Unit:
        """Draw ONE unit's data given all latent variables.

        key: the random key.
        g: {name: sufficient statistics} of the latent variables that all units share.
        l: {name: sufficient statistics} of the latent variables of this unit.
        unit: a unit that says how long the result is and which cells are missing; its values are not used.
        on: {axis: mask of the entries that exist}.

        Raises NotImplementedError for models that do not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot draw data: give it draw_unit(key, g, l, unit, on)")

    def _draw_units(self, key: Array, g: Latents, l: Latents, units: Unit, on: Masks) -> Unit:
        """Draw the data of several units given all latent variables, each unit with a key of its own, by `draw_unit`.

        The arguments are those of `draw_unit`, with units on the leading axis of `l` and `units`.
        """
        keys = jax.random.split(key, len(jax.tree.leaves(units)[0]))
        return jax.vmap(lambda k, lu, u: self.draw_unit(k, g, lu, u, on))(keys, l, units)

    def simulate(self, key: Array, size: tuple[int, ...], units: Unit, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, latent variables and data from the joint distribution.

        key: the random key. size: the number of components of each size variable.
        units: stacked units that say how many units to draw, how long each is and which cells are missing.
        extents: lengths of the axes of the globals that are not size axes, such as {"word": V} with V words.

        Returns ({name: statistics} of the globals, {name: statistics} of the locals with units leading, the drawn
        units).
        Raises NotImplementedError for models that do not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot draw data: give it simulate(key, size, units, extents), which returns the "
            "statistics of its globals and locals, and the units. Audits of the evidence need it; searches do not"
        )


def first(size: Array | int, capacity: int) -> Bool[Array, " axis"]:
    """Return a mask of length `capacity`, True for the first `size` entries.

    If the size is a Python number, nothing is compiled.
    """
    if isinstance(size, int | np.integer):
        return jax.device_put(np.arange(capacity) < size)
    return jnp.arange(capacity) < size
