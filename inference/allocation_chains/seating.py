"""The prior of a partition of rows when the number K of components is not known.

A part is the set of rows of one component. Let a_K be the Dirichlet concentration of each component, and let t parts
hold n_1 … n_t of N rows. Labels of components are exchangeable. Then (Nobile 2004; Miller & Harrison 2018, Eq. 3.1)

    p(partition | K) = K! / (K − t)! · Γ(K a_K) / Γ(K a_K + N) · Π_j Γ(n_j + a_K) / Γ(a_K),        t ≤ K
    p(K | partition) ∝ p(K) p(partition | K).

The second line does not contain the rows' values: given the partition they say nothing more about K. If a_K = a is the
same for every K, its factors come out of the sum over K. Then p(partition) = V(t) Π_j Γ(n_j + a) / Γ(a). The weight
V(t) = Σ_K p(K) K!/(K − t)! Γ(K a) / Γ(K a + N) does not depend on K. Otherwise K is drawn from the second line once a
sweep (the telescoping sampler of Frühwirth-Schnatter, Malsiner-Walli & Grün 2021), and V is one term of the sum.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, Key
from scipy import special


class Seats(NamedTuple):
    """The prior weights with which a row joins each part of a partition, for every particle (chain).

    A part of n rows attracts one more row with weight n + a. A new part attracts it with weight a V(t + 1) / V(t),
    where t parts exist.

    | field | meaning |
    |---|---|
    | `concentration` | a, the Dirichlet concentration of each component, (particle,) |
    | `log_weight` | log V(t), the prior weight of t parts, nats, t = 0 … places + 1, (part count, particle) |
    """

    concentration: Float[Array, " particle"]
    log_weight: Float[Array, "number particle"]

    def log_scores(self, counts: Float[Array, "place particle"]) -> Float[Array, "place particle"]:
        """Return the log prior weight with which one more row joins the part in each array slot, nats, (place,
        particle).

        A part of n rows has weight n + a, where a is the concentration. The first empty slot stands for a new part.
        Other empty slots have −∞.

        counts: rows of the part in each array slot.
        """
        occupied = counts > 0.5
        parts = occupied.sum(0, dtype=jnp.int32)
        # the first empty slot by a minimum: `argmin` is not made into vectors on a CPU
        slot = jnp.arange(len(occupied), dtype=jnp.int32)[:, None]
        first_free = slot == jnp.where(occupied, len(occupied), slot).min(0)
        new = jnp.log(self.concentration) + self._log_weight_of(parts + 1) - self._log_weight_of(parts)
        return jnp.where(occupied, jnp.log(counts + self.concentration), jnp.where(first_free, new, -jnp.inf))

    def log_split(
        self, first: Float[Array, " particle"], second: Float[Array, " particle"], parts: Int[Array, " particle"]
    ) -> Float[Array, " particle"]:
        """Return log p(partition with two parts) − log p(partition with these two as one), (particle,), nats.

        first, second: rows of the two parts.
        parts: how many parts there are when the two are one.
        """
        a = self.concentration
        new = self._log_weight_of(parts + 1) - self._log_weight_of(parts)
        return new + gammaln(first + a) + gammaln(second + a) - gammaln(first + second + a) - gammaln(a)

    def _log_weight_of(self, parts: Int[Array, " particle"]) -> Float[Array, " particle"]:
        """Return log V(t), the log prior weight of each particle's number t of parts, nats."""
        return jnp.take_along_axis(self.log_weight, parts[None], axis=0)[0]


class SeatPrior(eqx.Module):
    """The prior of the number of components K and of partitions of N rows into at most `places` parts.

    If the concentration a_K is the same for every K, K is summed out beforehand. Then there is one column in place of
    the sizes, p(K | partition) depends on the number of parts t alone, and programs hold no table over sizes. If V(t)
    differs from particle to particle, there is one column for each particle.

    | field | meaning |
    |---|---|
    | `concentrations` | a_K, the concentration of each of K = 1, 2, … components, (size,), or a, (1,) |
    | `log_weights` | log [p(K) K!/(K − t)! Γ(K a_K) / Γ(K a_K + N)] or log V(t), t = 0 … places + 1, nats, (t, size) |
    | `log_rising` | log Γ(n + a_K) / Γ(a_K), n = 0 … N, nats, (row count, size); None if K is summed out |
    | `size_given_parts` | p(K given t parts), (part count, size), if K is summed out; else None |
    """

    concentrations: Float[Array | np.ndarray, " size"]
    log_weights: Float[Array | np.ndarray, "number size"]
    log_rising: Float[Array | np.ndarray, "rows size"] | None
    size_given_parts: Float[Array | np.ndarray, "number sizes"] | None

    @classmethod
    def from_prior(
        cls, log_prior: Float[np.ndarray, " size"], concentrations: Float[np.ndarray, " size"], n_rows: int, places: int
    ) -> "SeatPrior":
        """Return the tables of the prior.

        log_prior: log p(K) of K = 1, 2, … components, nats; −inf for sizes that are excluded.
        concentrations: the Dirichlet concentration of each component at the same K.
        n_rows: the number of rows N.
        places: the largest number of parts.
        """
        log_weights = log_part_weights(log_prior, concentrations, n_rows, places)
        if np.ptp(concentrations) == 0:
            log_sum = np.logaddexp.reduce(log_weights, axis=1, keepdims=True)
            possible = log_sum > -np.inf
            given = np.where(possible, np.exp(log_weights - np.where(possible, log_sum, 0.0)), 0.0)
            return cls(concentrations[:1], log_sum, None, given)
        rows = np.arange(n_rows + 1)[:, None]
        log_rising = special.gammaln(rows + concentrations) - special.gammaln(concentrations)
        return cls(concentrations, log_weights, log_rising, None)

    @property
    def is_summed(self) -> bool:
        """True if K is summed out of the partition's prior, because the concentration is the same for every K."""
        return self.log_rising is None

    def log_sizes(self, counts: Float[Array, "place particle"]) -> Float[Array, "size particle"]:
        """Return log p(K | partition), (size, particle), nats. Only for priors in which K is not summed out.

        counts: rows of the part in each array slot.
        """
        rows = jnp.round(counts).astype(jnp.int32)
        of_parts = jnp.asarray(self.log_weights)[(rows > 0).sum(0)].T
        return jax.nn.log_softmax(of_parts + jnp.asarray(self.log_rising)[rows].sum(0).T, axis=0)

    def draw(self, key: Key[Array, ""], counts: Float[Array, "place particle"]) -> Seats:
        """Return the prior weights of parts. If K is not summed out, a K is first drawn given the partition.

        counts: rows of the part in each array slot.
        """
        weights, concentrations = jnp.asarray(self.log_weights), jnp.asarray(self.concentrations)
        n_particles = counts.shape[1]
        if self.is_summed:
            shape = (len(weights), n_particles)
            return Seats(jnp.broadcast_to(concentrations[0], n_particles), jnp.broadcast_to(weights, shape))
        drawn = jax.random.categorical(key, self.log_sizes(counts), axis=0)
        return Seats(concentrations[drawn], weights[:, drawn])


def log_part_weights(
    log_prior: Float[np.ndarray, " size"], concentrations: Float[np.ndarray, " size"], n_rows: int, places: int
) -> Float[np.ndarray, "number size"]:
    """Return log [p(K) K!/(K − t)! Γ(K a_K) / Γ(K a_K + N)] of t = 0 … places + 1 parts and K = 1, 2, … components,
    (part count, size), nats; −∞ for more parts than components.

    log_prior: log p(K), nats. concentrations: a_K, the Dirichlet concentration of each of K components.
    n_rows: N, the number of rows. places: the largest number of parts.
    """
    size, parts = np.arange(1, len(concentrations) + 1), np.arange(places + 2)[:, None]
    total = size * concentrations
    log_falling = special.gammaln(size + 1) - special.gammaln(np.maximum(size - parts, 0) + 1)
    of_size = log_prior + special.gammaln(total) - special.gammaln(total + n_rows)
    return np.where(parts <= size, log_falling + of_size, -np.inf)


def size_probabilities(
    log_prior: Float[np.ndarray, " size"],
    concentrations: Float[np.ndarray, " size"],
    counts: Int[np.ndarray, "draw part"],
) -> Float[np.ndarray, "draw size"]:
    """Return p(K | partition) of K = 1, 2, … components for each of several partitions of the same rows, (draw, size).

    log_prior: log p(K), nats. concentrations: the Dirichlet concentration of each component at the same K.
    counts: the number of rows in each part, 0 for none.
    """
    seating = SeatPrior.from_prior(log_prior, concentrations, int(counts[0].sum()), counts.shape[1])
    if seating.size_given_parts is not None:
        return np.asarray(seating.size_given_parts)[(counts > 0).sum(axis=1)]
    with jax.enable_x64(True):
        return np.exp(np.asarray(seating.log_sizes(jnp.asarray(counts.T, jnp.float64)))).T


def log_seats_of_a_new_row(
    log_prior: Float[np.ndarray, " size"],
    concentrations: Float[np.ndarray, " size"],
    counts: Int[np.ndarray, "draw part"],
) -> Float[np.ndarray, "draw part"]:
    """Return the log-probability that one more row joins each part of a partition, or a new part, (draw, part), nats.

    With K components it is (n + a_K) / (N + K a_K) for a part of n of the N rows. For a new part beside t parts it is
    (K − t) a_K / (N + K a_K). K is averaged over p(K | partition). The first part without rows stands for the new one.
    Other parts without rows have −∞.

    log_prior, concentrations, counts: as in `size_probabilities`.
    """
    of_sizes = size_probabilities(log_prior, concentrations, counts)
    size = np.arange(1, len(log_prior) + 1)
    joins = of_sizes / (counts.sum(axis=1, keepdims=True) + size * concentrations)  # (draw, size)
    occupied = counts > 0
    parts = occupied.sum(axis=1)
    of_parts = counts * joins.sum(axis=1, keepdims=True) + (joins @ concentrations)[:, None]
    of_new = (joins * concentrations * np.maximum(size - parts[:, None], 0)).sum(axis=1)
    is_first = ~occupied & (np.arange(counts.shape[1]) == np.argmin(occupied, axis=1)[:, None])
    with np.errstate(divide="ignore"):
        return np.log(np.where(occupied, of_parts, np.where(is_first, of_new[:, None], 0.0)))


def supported_sizes(log_prior: Any, *largest: int) -> Float[np.ndarray, "*size"]:
    """Return log p(K) of K = 1 … `largest` components, normalised over these, (size,), nats.

    With two size variables and two largest numbers it is log p(K, L), (size, size). If the prior excludes all of them,
    every entry is −∞.

    log_prior: K, or K and L -> its log prior probability, nats; it need not be normalised.
    """
    values = np.array([log_prior(*(place + 1 for place in places)) for places in np.ndindex(*largest)], np.float64)
    values = values.reshape(largest)
    if not np.isfinite(values).any():
        return values
    return values - np.asarray(special.logsumexp(values), np.float64)
