"""What a model must say about itself: its log-joint, its sites, its sizes.

A model is one pure function, log p(x, z, θ | size), written in the *sufficient statistics* of its latents and
multilinear in them. Everything else — coordinate ascent, Gibbs sampling, evidence bounds, summed-out indicators,
plug-in estimates — is derived from that function by `lvsearch.inference`, which never asks which model it has.

The log-joint is cut in two so that data can come in batches:

    log p(x, z, θ) = log_prior(globals) + Σ_u weight_u · log_unit(globals, locals_u, unit_u)

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
"""A pytree of arrays: the statistic of one site, its elements on the leading axes, its event axis (if any) last."""
Unit = Any
"""A pytree of arrays: one document, point, image or row."""
Masks = Mapping[str, Bool[Array, " axis"]]
"""Axis name -> which of its entries exist at this size. Axes that are not named exist entirely."""


class Gate(NamedTuple):
    """Elements of a local site that exist only as far as an entry of an indicator is chosen, as the levels of a path.

    | field | meaning |
    |---|---|
    | `site` | the local site whose indicator decides; it has no gate itself |
    | `part` | (its statistic, masks) -> each element's gate, entries of the indicator; broadcastable to the elements |

    `log_unit` multiplies every term in which a gated element stands by that element's gate, and by no other. So q has
    the factors q(indicator) Π q(element | its entry is chosen), and the bound takes an element's part, its entropy
    too, as often as its entry is chosen (`lvsearch.inference.engine.gates`).
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
        return self.axes[: len(self.axes) - self.family.event_ndim]

    @property
    def event_axes(self) -> tuple[str, ...]:
        return self.axes[len(self.axes) - self.family.event_ndim :]

    def event_mask(self, on: Masks) -> Bool[Array, "..."] | None:
        """Which entries of the event exist: the outer product of the masks of its axes; None where all do."""
        return _outer_mask(self.event_axes, on, self.family.event_ndim)

    def element_mask(self, on: Masks, ndim: int) -> Bool[Array, "..."] | None:
        """Which elements exist: the outer product of the masks of the `ndim` element axes; None where all do."""
        return _outer_mask(self.element_axes, on, ndim)


def _outer_mask(axes: tuple[str, ...], on: Masks, ndim: int) -> Bool[Array, "..."] | None:
    mask = None
    for position, axis in enumerate(axes):
        if axis in on:
            shaped = on[axis].reshape([-1 if p == position else 1 for p in range(ndim)])
            mask = shaped if mask is None else mask & shaped
    return mask


HyperparameterArray = np.ndarray | Array
"""NumPy's where its values are known; JAX's inside a transformation, where they are not."""


def traced(value: Any) -> bool:
    """Whether a value stands for others under `jit`, `vmap` or `grad`, so that it cannot be looked at."""
    return isinstance(value, Tracer)


def hyperparameter(value: Any) -> HyperparameterArray:
    """A hyper-parameter as a NumPy leaf: traced, so a new value never retraces, and allocated on no device.

    float64, of the axes given: () for a number; inside `jit` it takes the session's precision. A value that is traced
    already, under `jit`, `vmap` or `grad`, stays as it is, and is not checked. Raises ValueError for what is not
    finite.
    """
    if traced(value):
        return value
    array = numbers("a hyper-parameter", value)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"hyper-parameters must be finite, got {value!r}")
    return array


def refuted(condition: Any) -> bool:
    """Whether a condition on a hyper-parameter is seen not to hold everywhere; not while its values are traced."""
    return not traced(condition) and not np.all(condition)


LARGEST_CONCENTRATION = 1e6
"""Beyond it the log-gammas of a Dirichlet's density are so large that float32 rounds away more than a nat of it."""


def concentration_parameter(name: str, value: Any) -> HyperparameterArray:
    """As `hyperparameter`, for what a Dirichlet or a process is concentrated by. ValueError beyond 1e6."""
    array = hyperparameter(value)
    if refuted(array <= LARGEST_CONCENTRATION):
        raise ValueError(f"got {name}={value!r}, expected at most {LARGEST_CONCENTRATION:g}: float32 ends there")
    return array


class Model(eqx.Module):
    """A latent variable model of unknown size. Array leaves are hyper-parameters.

    `size_names` names the size variables; `nested` says whether Proposition 1 of Chiang & Poole (Eq. 3) holds for the
    plug-in form — every θ_s has an equally likely θ_t for t ⪰ s — with the proof in the class's docstring.
    `unit_type` is what ONE unit of its data is (`lvsearch.models.units`), which decides what data a person may pass.
    `representation` names the local site whose expected value describes a unit (what `transform` returns).
    What a model must say is abstract; what most uses never ask for has a default, which says what is missing where it
    cannot be done without. `lvsearch.models.checks` says whether a model keeps the contract.
    `process` says that the model is one process without a size, of which `size` truncates q alone: every truncation
    bounds the same evidence, so that no posterior over them means anything. How many is then a question about the
    parts that the data occupy, which samplers of the process answer (`lvsearch.inference.processes`).
    `only_size`: the one size that a model without a choice of size has; None, the default, for all others.
    """

    size_names: eqx.AbstractClassVar[tuple[str, ...]]
    nested: ClassVar[bool] = False
    unit_type: eqx.AbstractClassVar[type]
    representation: eqx.AbstractClassVar[str]
    process: ClassVar[bool] = False
    only_size: ClassVar[tuple[int, ...] | None] = None

    def describe(self) -> str:
        """The model and its hyper-parameters for people, in one line: the values, and the rule by which they spread
        over components as the size grows. By default the fields and their values."""
        values = ((entry.name, np.asarray(getattr(self, entry.name))) for entry in fields(self))
        told = ", ".join(f"{n}={v.item() if v.size == 1 else f'{v.size} numbers'}" for n, v in values)
        return f"{type(self).__name__}: {told}" if told else type(self).__name__

    @abstractmethod
    def globals(self) -> dict[str, Site]:
        """The sites shared by all units, in the order in which they are updated."""

    @abstractmethod
    def locals(self) -> dict[str, Site]:
        """The sites of ONE unit, in the order in which they are updated."""

    def extents(self, unit: Unit) -> Mapping[str, int | Bool[Array, " axis"]]:
        """Axis name -> length, for the axes of the local sites that the unit's (static) shapes decide; or, where units
        are padded to one length, the mask of the entries that this unit has. By default there are none."""
        return {}

    @abstractmethod
    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Axis name -> mask of the entries that exist. `size` is traced, `capacity` static."""

    @abstractmethod
    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        """log p(globals), in nats, from their statistics."""

    @abstractmethod
    def log_unit(
        self, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: Unit, on: Masks
    ) -> Float[Array, ""]:
        """log p(locals, unit | globals), in nats; missing cells of the unit are masked here."""

    @abstractmethod
    def log_symmetry(self, size: tuple[int, ...], natural: Mapping[str, Statistics]) -> float:
        """log of the number of distinct relabellings of the fitted globals (natural parameters), in nats."""

    def ceiling(self, units: Any) -> float:
        """A number ≥ log p(data | any size, any parameters), in nats; `inf`, the default, where there is none."""
        return math.inf

    def plug_in(self) -> "Model":
        """The same model with its parameters estimated instead of integrated out: point families at the globals.

        Raises ValueError, saying why, for models that have no such form.
        """
        raise ValueError(
            f"{type(self).__name__} has no plug-in form: give it plug_in(), which returns the same model with point "
            'families (lv.models.families.PointSimplex…) at its globals, or use evidence="marginal" or "bound"'
        )

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: Unit, on: Masks
    ) -> Unit:
        """Draw ONE unit's data given every latent; `unit` says how long it is and which cells are missing.

        Raises NotImplementedError where the model does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot draw data: give it draw_unit(key, g, l, unit, on)")

    def simulate(
        self, key: Array, size: tuple[int, ...], units: Unit, extents: Mapping[str, int]
    ) -> tuple[dict[str, Statistics], dict[str, Statistics], Unit]:
        """Draw (statistics of the globals, statistics of the locals, units) from the joint.

        units: says how many units there are and how long each is. extents: lengths of the axes of the globals that are
        not size axes, such as {"word": V}. Raises NotImplementedError where the model does not say how.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot draw data: give it simulate(key, size, units, extents), which returns the "
            "statistics of its globals and locals, and the units. Audits of the evidence need it; searches do not"
        )


def first(size: Array | int, capacity: int) -> Bool[Array, " axis"]:
    """The mask of the first `size` of `capacity` entries; nothing is compiled where the size is known on the host."""
    if isinstance(size, int | np.integer):
        return jax.device_put(np.arange(capacity) < size)
    return jnp.arange(capacity) < size
