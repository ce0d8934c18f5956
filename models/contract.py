"""The contract of a model: its log-joint, its latent variables, its sizes.

A model is one pure function, log p(x, z, θ | size). It is written in the *sufficient statistics* of the latent
variables and is multilinear in them. `lvsearch.inference` derives everything else from that function: coordinate
ascent, Gibbs sampling, evidence bounds, summed-out indicators, plug-in estimates. It never asks which model it has.

The log-joint has two parts, so that data can come in batches:

    log p(x, z, θ) = log_prior(globals) + Σ_u weight_u · log_unit(globals, locals_u, unit_u)

A *site* is one latent variable, or an array of exchangeable ones. Global sites are shared by all units of data; local
sites belong to one unit.

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

Statistics = Any
"""A pytree of arrays: the statistics of one site. Its elements are on the leading axes, its event axis (if any) last.
"""
Unit = Any
"""A pytree of arrays: one document, point, image or row."""
Masks = Mapping[str, Bool[Array, " axis"]]
"""{axis name: which of its entries exist at this size}. All entries of axes that are not named exist."""


class Gate(NamedTuple):
    """A rule that the elements of a local site exist only as far as an entry of an indicator is chosen.

    An example is the level proportions of a path through a tree, which exist only if that path is chosen.

    | field | meaning |
    |---|---|
    | `site` | the local site of the indicator that decides; it has no gate itself |
    | `part` | (its statistic, masks) -> the gate of each element: entries of the indicator, broadcastable to elements |

    `log_unit` multiplies every term with a gated element by that element's gate, and by no other gate. So q has the
    factors q(indicator) Π q(element | its entry is chosen). The terms of a gated element in the bound, its entropy
    included, count as often as its entry is chosen (`lvsearch.inference.engine.gates`).
    """

    site: str
    part: Callable[[Any, Masks], Any]


class Site(NamedTuple):
    """One latent variable, or a whole array of exchangeable ones.

    | field | meaning |
    |---|---|
    | `family` | the exponential family of its complete conditional, and so of q |
    | `axes` | names of the statistic's axes, the family's event axis last; masks refer to them |
    | `copies` | unit -> copies per element: a word with count 3 is *one* indicator standing for three (0 = padding) |
    | `slices` | the axis whose elements interact with each other: they are updated one slice at a time |
    | `gate` | the indicator without which elements do not exist; for local sites |

    Copies divide the gradient and multiply the entropy.
    """

    family: Family
    axes: tuple[str, ...]
    copies: Callable[[Unit], Array] | None = None
    slices: str | None = None
    gate: Gate | None = None

    @property
    def element_axes(self) -> tuple[str, ...]:
        """The names of the axes of the elements, which are independent of each other."""
        return self.axes[: len(self.axes) - self.family.event_ndim]

    @property
    def event_axes(self) -> tuple[str, ...]:
        """The names of the axes of one event, such as "word" for a distribution over words."""
        return self.axes[len(self.axes) - self.family.event_ndim :]

    def event_mask(self, on: Masks) -> Bool[Array, "..."] | None:
        """Return which entries of the event exist, the outer product of the masks of its axes; None where all do."""
        return _outer_mask(self.event_axes, on, self.family.event_ndim)

    def element_mask(self, on: Masks, ndim: int) -> Bool[Array, "..."] | None:
        """Return which elements exist, the outer product of the masks of the `ndim` element axes; None where all do."""
        return _outer_mask(self.element_axes, on, ndim)


def _outer_mask(axes: tuple[str, ...], on: Masks, ndim: int) -> Bool[Array, "..."] | None:
    """Return the outer product of the masks of `axes`, broadcastable to `ndim` axes; None where no axis has a mask."""
    mask = None
    for position, axis in enumerate(axes):
        if axis in on:
            shaped = on[axis].reshape([-1 if p == position else 1 for p in range(ndim)])
            mask = shaped if mask is None else mask & shaped
    return mask


HyperparameterArray = np.ndarray | Array
"""The array of a hyper-parameter: NumPy's if its values are known, or JAX's inside a transformation."""


def traced(value: Any) -> bool:
    """Return True if the value is a JAX tracer (under `jit`, `vmap` or `grad`), so that it cannot be inspected."""
    return isinstance(value, Tracer)


def hyperparameter(value: Any) -> HyperparameterArray:
    """Return a hyper-parameter as a float64 NumPy array, with the axes of `value`; () for a number.

    As an array leaf it is traced, so a new value does not recompile; inside `jit` it takes the session's precision. It
    is allocated on no device. A value that is traced already stays as it is, and is not checked.

    Raises ValueError for values that are not finite.
    """
    if traced(value):
        return value
    array = numbers("a hyper-parameter", value)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"hyper-parameters must be finite, got {value!r}")
    return array


def refuted(condition: Any) -> bool:
    """Return True if a condition on a hyper-parameter is known to fail somewhere; False while its values are traced."""
    return not traced(condition) and not np.all(condition)


LARGEST_CONCENTRATION = 1e6
"""The largest concentration allowed. Beyond it float32 rounds away more than a nat of a Dirichlet's log-density."""


def concentration_parameter(name: str, value: Any) -> HyperparameterArray:
    """Return the concentration of a Dirichlet or a process as an array (see `hyperparameter`).

    name: what it is called in an error.

    Raises ValueError for values that are not finite or above 1e6.
    """
    array = hyperparameter(value)
    if refuted(array <= LARGEST_CONCENTRATION):
        raise ValueError(f"got {name}={value!r}, expected at most {LARGEST_CONCENTRATION:g}: float32 ends there")
    return array


class Model(eqx.Module):
    """A latent variable model of unknown size. Array leaves are hyper-parameters.

    `size_names`: the names of the size variables.
    `nested`: True if Proposition 1 of Chiang & Poole (Eq. 3) holds for the plug-in form: every θ_s has an equally
        likely θ_t for t ⪰ s. The proof is in the class's docstring.
    `unit_type`: the type of ONE unit of its data (`lvsearch.models.units`). It decides which data a person may pass.
    `representation`: the name of the local site whose expected value describes a unit (the result of `transform`).
    `process`: True if the model is one process without a size, and `size` truncates q alone. Every truncation then
        bounds the same evidence, so a posterior over truncations has no meaning. The number of parts that the data
        occupy is answered by samplers of the process (`lvsearch.inference.processes`).
    `only_size`: the one size of a model that has no choice of size; None, the default, for all others.

    Methods that every use needs are abstract. Methods that most uses never call have a default, which raises an error
    that says what to write. `lvsearch.models.checks` tests whether a model keeps the contract.
    """

    size_names: eqx.AbstractClassVar[tuple[str, ...]]
    nested: ClassVar[bool] = False
    unit_type: eqx.AbstractClassVar[type]
    representation: eqx.AbstractClassVar[str]
    process: ClassVar[bool] = False
    only_size: ClassVar[tuple[int, ...] | None] = None

    def describe(self) -> str:
        """Describe the model and its hyper-parameters for people, in one line.

        The text has the values, and the rule by which they spread over components as the size grows. The default lists
        the fields and their values.
        """
        values = ((entry.name, np.asarray(getattr(self, entry.name))) for entry in fields(self))
        told = ", ".join(f"{n}={v.item() if v.size == 1 else f'{v.size} numbers'}" for n, v in values)
        return f"{type(self).__name__}: {told}" if told else type(self).__name__

    @abstractmethod
    def globals(self) -> dict[str, Site]:
        """Return the sites shared by all units, in the order in which they are updated."""

    @abstractmethod
    def locals(self) -> dict[str, Site]:
        """Return the sites of ONE unit, in the order in which they are updated."""

    def extents(self, unit: Unit) -> Mapping[str, int | Bool[Array, " axis"]]:
        """Return the lengths of the axes of local sites that a unit's static shapes decide, as {axis name: length}.

        Where units are padded to one length, the value is the mask of the entries that this unit has. By default there
        are none.
        """
        return {}

    @abstractmethod
    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {axis name: mask of the entries that exist}.

        size: the size, traced. capacity: the number of places of each size variable, static.
        """

    @abstractmethod
    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        """Return log p(globals), nats: the prior density of the variables that all units share.

        g: {site: sufficient statistics t(value) of the variable, as its family defines them}. Engines may pass expected
            statistics, so the result must be linear in each site's statistics.
        on: {axis: mask of the entries that exist}, as `active` returns. Leave out terms of entries that do not exist.
        """

    @abstractmethod
    def log_unit(
        self, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: Unit, on: Masks
    ) -> Float[Array, ""]:
        """Return log p(locals, unit | globals) in nats. Missing cells of the unit are masked here.

        g, l: the statistics of the globals, and of the unit's locals, by site. unit: one unit of data. on: the masks of
            `active` and of the unit's own axes.
        """

    @abstractmethod
    def log_symmetry(self, size: tuple[int, ...], natural: Mapping[str, Statistics]) -> float:
        """Return the log of the number of distinct relabellings of the fitted globals, in nats.

        size: the size. natural: natural parameters of the globals.
        """

    def ceiling(self, units: Any) -> float:
        """Return a number ≥ log p(data | any size, any parameters), in nats; `inf`, the default, if there is none."""
        return math.inf

    def plug_in(self) -> "Model":
        """Return the model with its globals estimated (point families) instead of integrated out.

        Raises ValueError, saying why, for models that have no such form.
        """
        raise ValueError(
            f"{type(self).__name__} has no plug-in form: give it plug_in(), which returns the same model with point "
            'families (lv.models.families.PointSimplex…) at its globals, or use evidence="marginal" or "bound"'
        )

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: Unit, on: Masks
    ) -> Unit:
        """Draw ONE unit's data given all latent variables. `unit` says how long it is and which cells are missing.

        Raises NotImplementedError for models that do not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot draw data: give it draw_unit(key, g, l, unit, on)")

    def simulate(
        self, key: Array, size: tuple[int, ...], units: Unit, extents: Mapping[str, int]
    ) -> tuple[dict[str, Statistics], dict[str, Statistics], Unit]:
        """Draw (statistics of the globals, statistics of the locals, units) from the joint.

        units: says how many units there are and how long each is.
        extents: lengths of the axes of the globals that are not size axes, such as {"word": V}.

        Raises NotImplementedError for models that do not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot draw data: give it simulate(key, size, units, extents), which returns the "
            "statistics of its globals and locals, and the units. Audits of the evidence need it; searches do not"
        )


def first(size: Array | int, capacity: int) -> Bool[Array, " axis"]:
    """Return the mask of the first `size` of `capacity` entries.

    If the size is a Python number, nothing is compiled.
    """
    if isinstance(size, int | np.integer):
        return jax.device_put(np.arange(capacity) < size)
    return jnp.arange(capacity) < size
