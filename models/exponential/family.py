"""The interface of every exponential family, p(x | η) = h(x) exp(⟨η, t(x)⟩ − A(η)), and functions that all share.

η are the natural parameters, t(x) the sufficient statistics, A the log-normaliser and h the carrier.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Key

if TYPE_CHECKING:
    from numpyro.distributions import Distribution as NumpyroDistribution
else:
    NumpyroDistribution = Any  # only `to_numpyro` imports NumPyro, which takes a quarter of a second

Element = Float[Array, "*element"]
Event = Float[Array, "*element event"]
EventMask = Bool[Array | np.ndarray, "*#element #event"] | None
RandomKey = Key[Array, ""]
T = TypeVar("T")


class Family(eqx.Module, Generic[T]):
    """An exponential family, p(x | η) = h(x) exp(⟨η, t(x)⟩ − A(η)); `T` is the pytree type of its sufficient statistics
    t(x).

    Natural parameters η, statistics t(x) and expected statistics are pytrees of one structure. Leading axes are
    *elements*, independent variables of this family. The last `event_ndim` axes are the *event*, one value such as a
    vector. `event_mask`, where a method takes it, is a mask of the entries of the event that exist, or None if all do.

    Classes are abstract or final.
    """

    event_ndim: eqx.AbstractClassVar[int]
    statistics_type: ClassVar[type | None] = None
    """The NamedTuple that holds the statistics; None if they are one array."""
    field_event_ndims: ClassVar[tuple[int, ...] | None] = None
    """The number of event axes of each field, such as 2 for a matrix and 0 for its determinant. None if all fields
    have `event_ndim`."""

    @abstractmethod
    def log_normaliser(self, natural: T, event_mask: Any = None) -> Array:
        """Return A(η) = log ∫ h(x) exp⟨η, t(x)⟩ dx, one number per element, shape (elements…), in nats.

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.

        Source: Blei (2004), Eq. 2.2.
        """

    @abstractmethod
    def mean(self, natural: T, event_mask: Any = None) -> T:
        """Return E[t(x)] = ∇A(η), the expected sufficient statistics, in the structure of `natural`.

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.

        Source: Blei (2004), Eq. 2.3.
        """

    @abstractmethod
    def natural(self, mean: T, event_mask: Any = None) -> T:
        """Return the natural parameters η whose expected statistics E[t(x)] are `mean`, the inverse of the method
        `mean`.

        It uses Newton's method where there is no closed form.

        event_mask: mask of the entries of the event that exist, or None.
        """

    @abstractmethod
    def entropy(self, natural: T, event_mask: Any = None) -> Array:
        """Return the entropy −E[log p(x | η)] = A(η) − ⟨η, E[t(x)]⟩ − E[log h(x)], one number per element, in nats.

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.
        """

    @abstractmethod
    def sample(self, key: RandomKey, natural: T, event_mask: Any = None) -> T:
        """Draw x once for each element, independently, and return its sufficient statistics t(x).

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.
        """

    @abstractmethod
    def point(self, natural: T, event_mask: Any = None) -> T:
        """Return t(E[x]), the sufficient statistics at the mean of x itself, for plug-in prediction; E[x] for an
        indicator.

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.
        """

    @abstractmethod
    def value(self, statistics: T, event_mask: Any = None) -> Any:
        """Return x from its sufficient statistics t(x).

        statistics: t(x). From expected statistics the result is the x that has them (a geometric mean where t is a
            logarithm).
        event_mask: mask of the entries of the event that exist, or None.
        """

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> T:
        """Return sufficient statistics of 0, which add nothing to a log-joint that is linear in them.

        shape: the axes of the elements, then the event axes if any.
        """
        fields: Any = self.statistics_type
        if fields is None:
            return cast(T, jnp.zeros(shape, dtype))
        elements = len(shape) - self.event_ndim
        event_ndims = self.field_event_ndims or (self.event_ndim,) * len(fields._fields)
        return fields(*[jnp.zeros(shape[: elements + ndim], dtype) for ndim in event_ndims])

    def legal(self, shape: tuple[int, ...], dtype: Any) -> T:
        """Return some natural parameters η that the family allows, for uses where any will do. The default is 1
        everywhere.

        shape: the axes of the elements, then the event axes if any.
        """
        return jax.tree.map(jnp.ones_like, self.zeros(shape, dtype))

    def statistics_at(self, value: Any, natural: T) -> T:
        """Return the sufficient statistics t(x) of a value x, in the form in which `to_numpyro` has x.

        value: x. natural: any natural parameters of the right shape.

        The default finds them from the density alone (Blei 2004, Eq. 2.1 and 2.3):

            log p(x | η) = log h(x) + ⟨η, t(x)⟩ − A(η),  so  t(x) = ∂ log p(x | η) / ∂η + E_η[t].
        """
        score = jax.grad(lambda eta: jnp.sum(self.to_numpyro(eta).log_prob(value)))(natural)
        return jax.tree.map(jnp.add, score, self.mean(natural))

    @abstractmethod
    def to_numpyro(self, natural: T) -> NumpyroDistribution:
        """Return the NumPyro distribution of x, in the form that `value` returns. Its batch shape is the elements.

        natural: η, the natural parameters.
        """


class UnitCarrierFamily(Family[T]):
    """An exponential family with carrier h(x) = 1, whose entropy is A(η) − ⟨η, E[t(x)]⟩."""

    def entropy(self, natural: T, event_mask: Any = None) -> Array:
        """Return the entropy −E[log p(x | η)], one number per element, shape (elements…), in nats.

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.
        """
        mean = self.mean(natural, event_mask)
        return self.log_normaliser(natural, event_mask) - inner(self, natural, mean, event_mask)


class PointFamily(Family[T]):
    """A family with all its mass at one value: a plug-in estimate."""

    def entropy(self, natural: T, event_mask: Any = None) -> Array:
        """Return 0 nats for each element, shape (elements…).

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.
        """
        return jnp.zeros_like(self.log_normaliser(natural, event_mask))

    def sample(self, key: RandomKey, natural: T, event_mask: Any = None) -> T:
        """Return the sufficient statistics of the value; `key` is not used.

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.
        """
        return self.mean(natural, event_mask)

    def point(self, natural: T, event_mask: Any = None) -> T:
        """Return the sufficient statistics of the value.

        natural: η, the natural parameters. event_mask: mask of the entries of the event that exist, or None.
        """
        return self.mean(natural, event_mask)


class IndicatorFamily(UnitCarrierFamily[T]):
    """An exponential family whose statistic is an indicator, so that one element can stand for several independent
    copies.
    """

    @abstractmethod
    def sample_counts(self, key: RandomKey, natural: T, copies: Any, event_mask: Any = None) -> T:
        """Draw x several times for each element and return the average of its statistics t(x); 0 where `copies` is 0.

        natural: η, the natural parameters.
        copies: the number of draws, whole numbers ≥ 0 (in a floating dtype), broadcastable to the elements.
        event_mask: mask of the entries of the event that exist, or None.
        """

    @abstractmethod
    def probability(self, mean: T) -> Array:
        """Return the probability of each entry, shape (elements…, entries); it describes a unit (observation) to
        people.

        mean: E[t(x)], the expected indicators.
        """


def inner(family: Family, natural: Any, statistics: Any, event_mask: Any) -> Array:
    """Return the inner product ⟨η, t⟩ of natural parameters and statistics, one number per element, shape (elements…).

    natural: η. statistics: t. event_mask: mask of the entries of the event that exist, or None.
    """
    products = jax.tree.map(jnp.multiply, natural, statistics)
    if family.field_event_ndims is not None:
        own = zip(jax.tree.leaves(products), family.field_event_ndims, strict=True)
        kept = [(keep(leaf, field_mask(event_mask, family.event_ndim - ndim)), ndim) for leaf, ndim in own]
        return jnp.stack([leaf.sum(tuple(range(-ndim, 0))) for leaf, ndim in kept]).sum(0)
    total = keep(jax.tree.reduce(jnp.add, products), event_mask)
    return total.sum(-1) if family.event_ndim else total


def field_mask(event_mask: Any, missing: int) -> Any:
    """Return the mask of a field without the last `missing` event axes: entries that exist anywhere along these axes.

    event_mask: the mask on all event axes, or None, which gives None.
    """
    return event_mask if event_mask is None or not missing else event_mask.any(tuple(range(-missing, 0)))


def keep(values: Array, event_mask: Any) -> Array:
    """Return `values` where the entry exists, and 0 elsewhere.

    event_mask: mask of the entries that exist, broadcastable to `values`, or None if all do.
    """
    return values if event_mask is None else jnp.where(event_mask, values, 0)


def keep_some(per_element: Array, event_mask: Any) -> Array:
    """Return `per_element` where at least one entry of the element's event exists, and 0 elsewhere.

    event_mask: mask of the entries that exist, event axis last, or None if all do.
    """
    return per_element if event_mask is None else jnp.where(event_mask.any(-1), per_element, 0)


def log_total(logits: Any, event_mask: Any) -> Array:
    """Return log Σ exp(logits) over the entries that exist, with the event axis kept at length 1; finite where none
    exists.

    event_mask: mask of the entries that exist, event axis last, or None if all do.
    """
    if event_mask is not None:
        absent = jnp.where(event_mask.any(-1, keepdims=True), -jnp.inf, 0)
        logits = jnp.where(event_mask, logits, absent)
    return logsumexp(logits, axis=-1, keepdims=True)


def log_normalised(logits: Any, event_mask: Any) -> Array:
    """Return logits minus their log total: the logs of numbers that sum to 1 over the entries that exist; 0 elsewhere.

    event_mask: mask of the entries that exist, event axis last, or None if all do.
    """
    return keep(logits - log_total(logits, event_mask), event_mask)
