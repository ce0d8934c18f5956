"""The interface of every exponential family, and the few functions that all of them share."""

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
    """An exponential family; `T` is the pytree of its statistics. Classes are abstract or final."""

    event_ndim: eqx.AbstractClassVar[int]
    statistics_type: ClassVar[type | None] = None
    """The NamedTuple that holds the statistics; None if they are one array."""
    field_event_ndims: ClassVar[tuple[int, ...] | None] = None
    """The number of event axes of each field, such as 2 for a matrix and 0 for its determinant. None if all fields
    have `event_ndim`."""

    @abstractmethod
    def log_normaliser(self, natural: T, event_mask: Any = None) -> Array:
        """Return A(η) = log ∫ h(x) exp⟨η, t(x)⟩ dx, one number per element (elements…), in nats.

        Source: Blei (2004), Eq. 2.2.
        """

    @abstractmethod
    def mean(self, natural: T, event_mask: Any = None) -> T:
        """Return E[t(x)] = ∇A(η) (Blei 2004, Eq. 2.3)."""

    @abstractmethod
    def natural(self, mean: T, event_mask: Any = None) -> T:
        """Return the η with `mean(η) = mean`; by Newton's method where there is no closed form."""

    @abstractmethod
    def entropy(self, natural: T, event_mask: Any = None) -> Array:
        """Return −E[log p(x | η)] = A(η) − ⟨η, E[t(x)]⟩ − E[log h(x)], one number per element, in nats."""

    @abstractmethod
    def sample(self, key: RandomKey, natural: T, event_mask: Any = None) -> T:
        """Return t(x) of one independent draw of x per element."""

    @abstractmethod
    def point(self, natural: T, event_mask: Any = None) -> T:
        """Return t(E[x]), the statistics at the mean of x itself, for plug-in prediction.

        For an indicator it is E[x].
        """

    @abstractmethod
    def value(self, statistics: T, event_mask: Any = None) -> Any:
        """Return x from t(x).

        From expected statistics it returns the x that has them (a geometric mean, where t is a logarithm).
        """

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> T:
        """Return statistics of 0, which add nothing to a log-joint that is linear in them.

        shape: the elements, then the event axes if any.
        """
        fields: Any = self.statistics_type
        if fields is None:
            return cast(T, jnp.zeros(shape, dtype))
        elements = len(shape) - self.event_ndim
        event_ndims = self.field_event_ndims or (self.event_ndim,) * len(fields._fields)
        return fields(*[jnp.zeros(shape[: elements + ndim], dtype) for ndim in event_ndims])

    def legal(self, shape: tuple[int, ...], dtype: Any) -> T:
        """Return some η that is a natural parameter, for uses where any will do. By default it is 1 everywhere.

        shape: the elements, then the event axes if any.
        """
        return jax.tree.map(jnp.ones_like, self.zeros(shape, dtype))

    def statistics_at(self, value: Any, natural: T) -> T:
        """Return t(x) of a value x over which `to_numpyro` is a distribution.

        natural: any natural parameter of its shape.

        By default it follows from the density alone (Blei 2004, Eq. 2.1 and 2.3):

            log p(x | η) = log h(x) + ⟨η, t(x)⟩ − A(η),  so  t(x) = ∂ log p(x | η) / ∂η + E_η[t].
        """
        score = jax.grad(lambda eta: jnp.sum(self.to_numpyro(eta).log_prob(value)))(natural)
        return jax.tree.map(jnp.add, score, self.mean(natural))

    @abstractmethod
    def to_numpyro(self, natural: T) -> NumpyroDistribution:
        """Return the NumPyro distribution of x, in the form that `value` returns. Its batch shape is the elements."""


class UnitCarrierFamily(Family[T]):
    """A family with h(x) = 1, whose entropy is A(η) − ⟨η, E[t(x)]⟩."""

    def entropy(self, natural: T, event_mask: Any = None) -> Array:
        """Return −E[log p(x | η)], one number per element (elements…), in nats."""
        mean = self.mean(natural, event_mask)
        return self.log_normaliser(natural, event_mask) - inner(self, natural, mean, event_mask)


class IndicatorFamily(UnitCarrierFamily[T]):
    """A family whose statistic is an indicator, so that one element can stand for several independent copies."""

    @abstractmethod
    def sample_counts(self, key: RandomKey, natural: T, copies: Any, event_mask: Any = None) -> T:
        """Return the average statistic of `copies` independent draws per element; 0 where `copies` is 0.

        copies: whole numbers ≥ 0 (in a floating dtype), broadcastable to the elements.
        """

    @abstractmethod
    def probability(self, mean: T) -> Array:
        """Return the probability of each entry from E[t], shape (elements…, entries); it describes a unit to people."""


def inner(family: Family, natural: Any, statistics: Any, event_mask: Any) -> Array:
    """Return ⟨η, t⟩ per element."""
    products = jax.tree.map(jnp.multiply, natural, statistics)
    if family.field_event_ndims is not None:
        own = zip(jax.tree.leaves(products), family.field_event_ndims, strict=True)
        kept = [(keep(leaf, field_mask(event_mask, family.event_ndim - ndim)), ndim) for leaf, ndim in own]
        return jnp.stack([leaf.sum(tuple(range(-ndim, 0))) for leaf, ndim in kept]).sum(0)
    total = keep(jax.tree.reduce(jnp.add, products), event_mask)
    return total.sum(-1) if family.event_ndim else total


def field_mask(event_mask: Any, missing: int) -> Any:
    """Return the mask of a field that lacks the last `missing` event axes: entries that exist anywhere along them."""
    return event_mask if event_mask is None or not missing else event_mask.any(tuple(range(-missing, 0)))


def keep(values: Array, event_mask: Any) -> Array:
    """Return `values` where the entry exists, and 0 elsewhere."""
    return values if event_mask is None else jnp.where(event_mask, values, 0)


def keep_some(per_element: Array, event_mask: Any) -> Array:
    """Return `per_element` where any entry of the element's event exists, and 0 elsewhere."""
    return per_element if event_mask is None else jnp.where(event_mask.any(-1), per_element, 0)


def log_total(logits: Any, event_mask: Any) -> Array:
    """Return log Σ exp(logits) over the entries that exist, with the event axis kept; finite where none exists."""
    if event_mask is not None:
        absent = jnp.where(event_mask.any(-1, keepdims=True), -jnp.inf, 0)
        logits = jnp.where(event_mask, logits, absent)
    return logsumexp(logits, axis=-1, keepdims=True)


def log_normalised(logits: Any, event_mask: Any) -> Array:
    """Return logits minus their log total: the logs of numbers that sum to 1 over the entries that exist."""
    return keep(logits - log_total(logits, event_mask), event_mask)
