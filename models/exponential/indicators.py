"""Families of indicators, which are their own sufficient statistic: one of several entries, yes or no, a path.

A path z_1 … z_T through K hidden states, in which each state depends on the one before, is one element with structure
(`MarkovChain`):

    p(z | η) = exp(Σ_t η^state_{t, z_t} + Σ_{t>1} η^step_{t, z_{t−1}, z_t} − A(η))

A is computed by the forward recursion. ∇A is the state and pair probabilities of forward–backward (Rabiner 1989, Eq.
18–37). A draw runs the recursion forwards and then draws states backwards (Chib 1996). With a maximum in the place of
the sum, the way back is Viterbi's path.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from lvsearch.models.exponential.family import (
    Element,
    Event,
    EventMask,
    IndicatorFamily,
    NumpyroDistribution,
    RandomKey,
    keep,
    keep_some,
    log_normalised,
    log_total,
)

if TYPE_CHECKING:
    from numpyro.distributions import Distribution as NumpyroDistribution
else:
    NumpyroDistribution = Any


class Categorical(IndicatorFamily[Event]):
    """One of several entries: p(x | η) = exp(Σ_k η_k x_k − A(η)), x one-hot.

    A(η) = log Σ_k exp η_k; E[x] = softmax(η) (Blei 2004, Eq. 3.9).
    """

    event_ndim: ClassVar[int] = 1

    def log_normaliser(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        return keep_some(log_total(natural, event_mask)[..., 0], event_mask)

    def mean(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        return keep(jnp.exp(log_normalised(natural, event_mask)), event_mask)

    def natural(self, mean: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        """Return log E[x], natural parameters η with A(η) = 0. Others, which differ by a constant, have the same mean.

        mean: E[x], positive probabilities, shape (elements…, event).
        """
        return jnp.log(mean if event_mask is None else jnp.where(event_mask, mean, 1))

    def sample(self, key: RandomKey, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        logits = natural if event_mask is None else jnp.where(event_mask, natural, -jnp.inf)
        drawn = jax.random.categorical(key, logits, axis=-1)
        return keep(jax.nn.one_hot(drawn, natural.shape[-1], dtype=natural.dtype), event_mask)

    def sample_counts(
        self, key: RandomKey, natural: Event, copies: Float[Array | np.ndarray, "..."], event_mask: EventMask = None
    ) -> Float[Array, "*element event"]:
        """Draw from Multinomial(copies, softmax(η)) for each element, and return the counts divided by copies.

        natural: η, the log-odds. copies: the number of draws, broadcastable to the elements.
        """
        probabilities = self.mean(natural, event_mask)
        copies = jnp.broadcast_to(jnp.asarray(copies, probabilities.dtype), probabilities.shape[:-1])
        counts = jax.random.multinomial(key, copies, probabilities, dtype=probabilities.dtype)
        return counts / jnp.maximum(copies, 1)[..., None]

    def point(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        return self.mean(natural, event_mask)

    def probability(self, mean: Event) -> Float[Array, "*element event"]:
        return jnp.asarray(mean)

    def value(self, statistics: Event, event_mask: EventMask = None) -> Int[Array, "*element"]:
        """Return the position of the chosen entry, shape (elements…); of expected statistics, the most probable
        position.
        """
        known = statistics if event_mask is None else jnp.where(event_mask, statistics, -jnp.inf)
        return jnp.argmax(known, axis=-1)

    def to_numpyro(self, natural: Event) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.CategoricalLogits(natural)


class Bernoulli(IndicatorFamily[Element]):
    """A number x in {0, 1}: p(x | η) = exp(ηx − A(η)), A(η) = log(1 + exp η), E[x] = 1 / (1 + exp −η)."""

    event_ndim: ClassVar[int] = 0

    def log_normaliser(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jax.nn.softplus(natural)

    def mean(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jax.nn.sigmoid(natural)

    def natural(self, mean: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jnp.log(mean) - jnp.log1p(-mean)

    def sample(self, key: RandomKey, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jax.random.bernoulli(key, self.mean(natural)).astype(natural.dtype)

    def sample_counts(
        self, key: RandomKey, natural: Element, copies: Float[Array | np.ndarray, "..."], event_mask: None = None
    ) -> Float[Array, "*element"]:
        """Draw from Binomial(copies, E[x]) for each element, and return the count divided by copies.

        natural: η, the log-odds. copies: the number of draws, broadcastable to the elements.
        """
        probabilities = self.mean(natural)
        copies = jnp.broadcast_to(jnp.asarray(copies, probabilities.dtype), probabilities.shape)
        counts = jax.random.binomial(key, copies, probabilities, dtype=probabilities.dtype)
        return counts / jnp.maximum(copies, 1)

    def point(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return self.mean(natural)

    def probability(self, mean: Element) -> Float[Array, "*element"]:
        return jnp.asarray(mean)

    def value(self, statistics: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jnp.asarray(statistics)

    def to_numpyro(self, natural: Element) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.BernoulliLogits(natural)


NOWHERE = -1e30
"""The log-potential of a state that does not exist. It is finite, so that its gradient is finite too."""
PathMask = Bool[Array | np.ndarray, "*#element #row #state #state"] | None


class MarkovChainStatistics(NamedTuple):
    """The indicators of a path through states, the sufficient statistics of `MarkovChain`.

    | field | meaning |
    |---|---|
    | `state` | (row, state): one-hot, the state of each row |
    | `step` | (row, state, state): one-hot, the states of the row before and of the row; 0 at the first row |
    """

    state: Float[Array, "*element row state"]
    step: Float[Array, "*element row state state"]


class MarkovChain(IndicatorFamily[MarkovChainStatistics]):
    """The family of a path through hidden states. The event axes are (row, state, state).

    event_mask: the product of the masks of rows and of states. Rows that exist come first, and the path ends with the
        last of them.
    """

    event_ndim: ClassVar[int] = 3
    statistics_type: ClassVar[type | None] = MarkovChainStatistics
    field_event_ndims: ClassVar[tuple[int, ...] | None] = (2, 3)

    def log_normaliser(self, natural: MarkovChainStatistics, event_mask: PathMask = None) -> Float[Array, "*element"]:
        def log_sum(state: Array, step: Array, mask: Array) -> Array:
            return jnp.where(mask.any(), logsumexp(_forward(state, step, mask, logsumexp)[-1]), 0.0)

        return _each_path(log_sum, "()", natural, event_mask)

    def mean(self, natural: MarkovChainStatistics, event_mask: PathMask = None) -> MarkovChainStatistics:
        natural = MarkovChainStatistics(*map(jnp.asarray, natural))
        return jax.grad(lambda eta: self.log_normaliser(eta, event_mask).sum())(natural)

    def natural(self, mean: MarkovChainStatistics, event_mask: PathMask = None) -> MarkovChainStatistics:
        """Return the logs of p(z_1) and p(z_t | z_{t−1}), natural parameters η with A(η) = 0; others have the same
        mean.

        mean: probabilities of states and of pairs of states, positive.
        """
        first = jnp.arange(mean.state.shape[-2])[:, None] == 0
        begins, steps = first & (mean.state > 0), mean.step > 0
        into = jnp.where(steps, mean.step, 1.0)
        left = jnp.where(steps, mean.step, 0.0).sum(-1, keepdims=True)
        return MarkovChainStatistics(
            jnp.where(begins, jnp.log(jnp.where(begins, mean.state, 1.0)), 0.0),
            jnp.where(steps, jnp.log(into) - jnp.log(jnp.where(left > 0, left, 1.0)), 0.0),
        )

    def sample(
        self, key: RandomKey, natural: MarkovChainStatistics, event_mask: PathMask = None
    ) -> MarkovChainStatistics:
        return self._best_path(natural, jax.random.gumbel(key, natural.state.shape, natural.state.dtype), event_mask)

    def sample_counts(
        self, key: RandomKey, natural: MarkovChainStatistics, copies: Any, event_mask: PathMask = None
    ) -> MarkovChainStatistics:
        """Draw paths, `copies` for each element one after another, and return the average of their indicators.

        natural: η, the log-potentials. copies: the number of draws, broadcastable to the elements.
        """
        copies = jnp.broadcast_to(jnp.asarray(copies, natural.state.dtype), natural.state.shape[:-2])

        def one(number: Array, total: MarkovChainStatistics) -> MarkovChainStatistics:
            drawn = self.sample(jax.random.fold_in(key, number), natural, event_mask)
            share = jnp.where(number < copies, 1 / jnp.maximum(copies, 1), 0.0)
            return MarkovChainStatistics(
                total.state + share[..., None, None] * drawn.state,
                total.step + share[..., None, None, None] * drawn.step,
            )

        return jax.lax.fori_loop(0, copies.max().astype(int), one, jax.tree.map(jnp.zeros_like, natural))

    def mode(self, natural: MarkovChainStatistics, event_mask: PathMask = None) -> MarkovChainStatistics:
        """Return the indicators of the most probable path (Viterbi's), of the first one if there are several.

        natural: η, the log-potentials. event_mask: mask (row, state, state) of what exists, or None.
        """
        return self._best_path(natural, None, event_mask)

    def point(self, natural: MarkovChainStatistics, event_mask: PathMask = None) -> MarkovChainStatistics:
        return self.mean(natural, event_mask)

    def probability(self, mean: MarkovChainStatistics) -> Float[Array, "*element row state"]:
        return mean.state

    def value(self, statistics: MarkovChainStatistics, event_mask: PathMask = None) -> Int[Array, "*element row"]:
        """Return the state of each row, shape (elements…, row); of expected statistics, the most probable state of each
        row by itself.
        """
        known = statistics.state
        if event_mask is not None:
            known = jnp.where(jnp.asarray(event_mask).any((-3, -2))[..., None, :], known, -jnp.inf)
        return jnp.argmax(known, axis=-1)

    def to_numpyro(self, natural: MarkovChainStatistics) -> NumpyroDistribution:
        from lvsearch.models.exponential.numpyro_distributions import MarkovPath

        return MarkovPath(self, natural)

    def _best_path(
        self, natural: MarkovChainStatistics, noise: Array | None, event_mask: PathMask
    ) -> MarkovChainStatistics:
        """Return the indicators of the most probable path, or of a random one if `noise` is given.

        natural: η, the log-potentials of states and steps.
        noise: Gumbel noise (elements…, row, state), with which the path is a draw; None for the most probable path.
        event_mask: mask (row, state, state) of what exists, or None.

        The recursion runs forward over rows, and then comes back along the best path.
        """
        drawing = noise is not None
        noise = noise if drawing else jnp.zeros_like(natural.state)

        def one(state: Array, step: Array, mask: Array, noise: Array) -> Array:
            return _back(_forward(state, step, mask, logsumexp if drawing else jnp.max) + noise, step, mask)

        state = _each_path(one, "(t,k)", natural, event_mask, noise)
        step = state[..., :-1, :, None] * state[..., 1:, None, :]
        return MarkovChainStatistics(state, jnp.concatenate([jnp.zeros_like(natural.step[..., :1, :, :]), step], -3))


def _each_path(
    function: Callable[..., Array], result: str, natural: MarkovChainStatistics, event_mask: PathMask, *more: Array
) -> Array:
    """Apply a function of one path to every element, and return the results with the elements leading.

    function: called as function(state (t, k), step (t, k, k), mask (t, k, k), …(t, k)) with t rows and k states.
    result: the axes of the function's result, as in `jnp.vectorize`, such as "(t,k)".
    natural: η, the log-potentials of states and steps. event_mask: mask (row, state, state) of what exists, or None.
    more: further arguments of the function, (elements…, t, k).
    """
    step = jnp.asarray(natural.step)
    shape = step.shape if event_mask is None else np.broadcast_shapes(np.shape(event_mask), step.shape[-3:])
    mask = jnp.broadcast_to(True if event_mask is None else jnp.asarray(event_mask), shape)
    signature = f"(t,k),(t,k,l),(t,k,l){',(t,k)' * len(more)}->{result}"
    return jnp.vectorize(function, signature=signature)(jnp.asarray(natural.state), step, mask, *more)


def _forward(state: Array, step: Array, mask: Array, total: Callable[..., Array]) -> Float[Array, "row state"]:
    """Return the forward messages α_t = η^state_t + total_i (α_{t−1, i} + η^step_{t, i, ·}) of one path, shape (row,
    state).

    state, step, mask: log-potentials (row, state) and (row, state, state), and the mask of what exists.
    total: `logsumexp` for sums over paths, or `max` for the best path.

    After the last row that exists, α stays as it is.
    """
    exists, here = mask.any((0, 1)), mask.any((1, 2))

    def one(before: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        state_t, step_t, here_t = row
        after = jnp.where(here_t & exists, state_t + total(before[:, None] + step_t, axis=0), before)
        return after, after

    begin = jnp.where(exists, state[0], NOWHERE)
    rest = jax.lax.scan(one, begin, (state[1:], step[1:], here[1:]))[1]
    return jnp.concatenate([begin[None], rest])


def _back(alpha: Array, step: Array, mask: Array) -> Float[Array, "row state"]:
    """Return the best path as one-hot rows, (row, state): the best last state, then each time the best state before it.

    alpha: the result of `_forward`. step, mask: log-potentials (row, state, state), and the mask of what exists.
    """
    exists, here = mask.any((0, 1)), mask.any((1, 2))
    following = jnp.concatenate([here[1:], jnp.zeros(1, bool)])
    leaving = jnp.concatenate([step[1:], jnp.zeros_like(step[:1])])

    def one(after: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        alpha_t, leaving_t, follows = row
        height = alpha_t + jnp.where(follows, leaving_t[:, after], 0.0)
        chosen = jnp.argmax(jnp.where(exists, height, -jnp.inf))
        return chosen, chosen

    chosen = jax.lax.scan(one, jnp.asarray(0), (alpha, leaving, following), reverse=True)[1]
    return jnp.where(mask.any(-1), jax.nn.one_hot(chosen, alpha.shape[-1], dtype=alpha.dtype), 0.0)
