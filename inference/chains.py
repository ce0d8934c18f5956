"""The protocols of samplers. One loop runs every sampler, and one annealer estimates the evidence of every model.

A `Chain` is a path of distributions over latent states. Its moves leave each distribution of the path unchanged:

    π_t(state) ∝ q(state)^(1−t) p(state, data)^t,      0 ≤ t ≤ 1

The path leads from a distribution q that can be drawn from (a mean-field fit, or the prior) to the posterior. Along it
the complete conditional of a latent variable, in an exponential family, has a natural parameter that is a weighted sum:
(1 − t) · q's + t · the gradient of the log-joint (Blei 2004, Eq. 2.18 and §2.2.1). The tempered sweep is therefore the
Gibbs sweep with one more line.

A state holds many independent particles at once. Each chain chooses which axis of its arrays holds them, because what
is fast differs between chains.
"""

from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

State = Any
"""The latent variables of several particles side by side: a NamedTuple of arrays. Each sampler has a type of its
own.
"""


@runtime_checkable
class Sampler(Protocol):
    """A Markov chain that the one sampling loop (`lvsearch.inference.sampling`) can run.

    A sampler is a pytree whose leaves are data and hyper-parameters. Every method is pure, and may be traced by JAX
    unless the sampler is `Hosted`. Log densities are in nats, and are float64 inside `jax.enable_x64`.
    """

    def init(self, key: Key[Array, ""], particles: int) -> State:
        """Draw the first state, with independent particles. A `Chain` draws them from q, the first distribution of its
        path.

        particles: the number of particles.
        """
        ...

    def step(self, key: Key[Array, ""], state: State, temperature: Float[Array, ""], *, backward: bool) -> State:
        """Return the state after one sweep over all latent variables, which leaves π_t unchanged.

        state: the state before the sweep.
        temperature: t, from 0 (q) to 1 (the posterior). A sampler that is no `Chain` knows t = 1 alone.
        backward: visit the latent variables in the reverse order. If the chain is `directed`, such a sweep is the time
            reversal of a forward sweep. A sampler that is no `Chain` has one direction only.
        """
        ...

    def log_density(self, state: State) -> Float[Array | np.ndarray, " particle"]:
        """Return log p(state, data) of each particle, (particle,), in nats. The traces of runs record it."""
        ...


@runtime_checkable
class Hosted(Sampler, Protocol):
    """A sampler whose methods are not traced: they are Python loops over NumPy arrays with compiled calls in between.

    Its states are NumPy arrays with particles on the first axis. Their shapes may change from sweep to sweep.
    """

    hosted: ClassVar[bool]
    """Always True. The field exists to tell such a sampler from others."""


@runtime_checkable
class OneByOne(Sampler, Protocol):
    """A sampler that says whether its sweep draws tokens or rows one after another, each given all the others.

    Such sweeps run on the CPU (`lvsearch.inference.sharding`), whatever other devices there are.
    """

    one_by_one: bool


@runtime_checkable
class Growing(Sampler, Protocol):
    """A sampler of a process with any number of components, whose states have room for a limited number of them.

    If a sweep needs more components than there is room for, the sampling loop makes the state again with more room.
    More room changes no draw that did not need it.
    """

    def needs_more_room(self, state: State) -> Bool[Array, ""]:
        """Return True if some sweep since `state` was made or widened needed more room. Such a state is invalid."""
        ...

    def with_more_room(self, state: State) -> tuple["Growing", State]:
        """Return a sampler with room for more components, and `state` widened to that room.

        state: the state to go on from: that before the sweeps that needed more room.
        """
        ...


@runtime_checkable
class Selectable(Protocol):
    """A sampler whose particles can be selected and repeated, as resampling needs."""

    def take(self, state: State, particles: Int[Array, " chosen"]) -> State:
        """Return the state of the chosen particles, in the order in which they are named.

        particles: the numbers of the particles, (chosen,). A particle may be named several times.
        """
        ...


@runtime_checkable
class Chain(Sampler, Selectable, Protocol):
    """A path of distributions from q to the posterior of one model at one size, as an annealer needs it."""

    directed: ClassVar[bool]
    """Whether a backward sweep differs from a forward one, so that `step` has to be told the direction."""

    @property
    def elements(self) -> int:
        """The number of latent variables that one sweep of one particle draws, which is roughly what a sweep costs."""
        ...

    @property
    def efficient_particles(self) -> int:
        """The number of particles up to which doubling them less than doubles the time of a sweep on this chain.

        It is a multiple of 16.
        """
        ...

    def log_ratio(self, state: State) -> Float[Array, " particle"]:
        """Return log p(state, data) − log q(state) of each particle, (particle,), in nats.

        A step from temperature t to t + δ adds δ times this number to a particle's log weight.
        """
        ...

    def label_scores(self, state: State) -> Float[Array, "particle component component"] | None:
        """Return scores S in nats, (particle, component, component), from which relabellings are drawn, or None.

        A relabelling σ renames component l of a state to σ(l). It gets the weight f(σ state) = exp Σ_l S[σ(l), l]. Here
        f is one fixed positive function that is large at q's own labelling. None means that q does not change when
        components are relabelled (`lvsearch.inference.annealing.relabelling`).
        """
        ...

    def relabel(self, state: State, order: Int[Array, "particle component"]) -> State:
        """Return the state in which component l of each particle is called order[l].

        order: the new number of each component, (particle, component).
        """
        ...


@runtime_checkable
class Curved(Chain, Protocol):
    """A chain whose path from q to the posterior is not π_t ∝ q^(1−t) p^t, but another path with these two ends.

    The importance weights of such a path are not linear in t. `log_ratio` is the gain from t = 0 to t = 1.
    """

    def log_gain(self, state: State, before: Float[Array, ""], after: Float[Array, ""]) -> Float[Array, " particle"]:
        """Return log π_after(state) − log π_before(state) of each particle, (particle,), in nats.

        Neither density is divided by its normaliser, which is 1 at t = 0 and p(data) at t = 1.

        before, after: two temperatures in [0, 1].
        """
        ...


@runtime_checkable
class Sequential(Selectable, Protocol):
    """A sampler whose units (rows or documents) arrive one after another, for annealing along the data.

    A sampler is a pytree. Its methods are pure and may be traced. The annealing itself is
    `lvsearch.inference.annealing.prefixes`.
    """

    @property
    def places(self) -> int:
        """The number of units that the arrays have room for, padding included. Padding comes last."""
        ...

    @property
    def n_units(self) -> Int[Array | np.ndarray, ""]:
        """The number of units without padding."""
        ...

    def initial_state(self, key: Key[Array, ""], particles: int) -> State:
        """Return the state before any unit has arrived.

        Latent variables that are not tied to units are drawn from their prior.

        particles: the number of particles.
        """
        ...

    def on_way_back(self, state: State) -> "Sequential":
        """Return the sampler for the path from draws of the posterior back to no unit.

        Latent variables that are not tied to units may end in another distribution than their prior there: one that is
        closer to the draws. `remove` then has the share of each unit in this change in its log-probability.

        state: draws of the posterior of all units.
        """
        ...

    def append(
        self, key: Key[Array, ""], state: State, unit: Int[Array, ""]
    ) -> tuple[State, Float[Array, " particle"]]:
        """Add the next unit and draw its latent variables given those of the earlier units.

        unit: the number of the unit in the order of arrival.

        Returns: (the new state, log p(unit | earlier units and their latents) of each particle in nats, (particle,)).
            If a unit's latent variables are drawn one after another, the log-probability is the sum of the predictive
            log-probabilities met on the way.
        """
        ...

    def remove(
        self, key: Key[Array, ""], state: State, unit: Int[Array, ""]
    ) -> tuple[State, Float[Array, " particle"]]:
        """Take the last unit out: the reverse of `append`.

        unit: the number of the unit in the order of arrival.

        Returns: (the state without the unit, the log-probability in nats that `append` would return for the latents
            that the unit had, (particle,)).
        """
        ...

    def revisit(self, key: Key[Array, ""], state: State, units: Int[Array, ""], *, backward: bool) -> State:
        """Return the state after one sweep over the latent variables of the first `units` units, which leaves their
        posterior unchanged.

        units: how many units have arrived.
        backward: sweep in the reverse order.
        """
        ...


class Anchor(NamedTuple):
    """An annealing path from a q around one labelling (numbering of the components) and one mode of the posterior.

    `chain`: the path. `error`: the standard error of q's own normaliser, in nats; 0 if q is normalised.
    """

    chain: Chain
    error: float
