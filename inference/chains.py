"""The protocols of samplers, so that one loop runs every sampler and one annealer estimates the evidence of every
model.

A `Chain` is a path of distributions over latent states. Its moves leave each distribution of the path unchanged:

    π_t(state) ∝ q(state)^(1−t) p(state, data)^t,      0 ≤ t ≤ 1

The path leads from a distribution q that can be drawn from (a mean-field fit, or the prior) to the posterior. In an
exponential family the complete conditional of a latent variable has, along the path, the natural parameter (1 − t) ·
q's + t · the gradient of the log-joint (Blei 2004, Eq. 2.18 and §2.2.1). The tempered sweep is therefore the Gibbs
sweep with one more line.

A state holds many independent particles at once. Each chain chooses which axis of its arrays holds them, because what
is fast differs between chains.
"""

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

State = Any
"""The latent variables of `n` particles side by side: a NamedTuple of arrays."""


@runtime_checkable
class Sampler(Protocol):
    """A Markov chain that the one sampling loop (`lvsearch.inference.sampling`) can run.

    A sampler is a pytree whose leaves are data and hyper-parameters. Every method is pure, and may be traced unless the
    sampler is `Hosted`. Log densities are in nats, and are float64 inside `jax.enable_x64`.
    """

    def init(self, key: Key[Array, ""], particles: int) -> State:
        """Draw the first state: `particles` independent particles, which a `Chain` draws from q."""
        ...

    def step(self, key: Key[Array, ""], state: State, temperature: Float[Array, ""], *, backward: bool) -> State:
        """Make one sweep over all latent variables, which leaves π_t unchanged.

        temperature: t, from 0 (q) to 1 (the posterior). A sampler that is no `Chain` knows t = 1 alone.
        backward: visit the latent variables in the reverse order. Where the chain is `directed`, such a sweep is the
        time reversal of a forward sweep. A sampler that is no `Chain` has one direction only.
        """
        ...

    def log_density(self, state: State) -> Float[Array | np.ndarray, " particle"]:
        """Return log p(state, data) of each particle, nats, for traces."""
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
    """A sampler that says whether its sweep visits members one after another, each drawn given all the others.

    Such sweeps run on the CPU (`lvsearch.inference.devices`).
    """

    one_by_one: bool


@runtime_checkable
class Growing(Sampler, Protocol):
    """A sampler of a process, whose states have room for a limited number of parts.

    Where a sweep needs more parts than there is room for, the state is made again with more room. More room changes no
    draw that did not need it.
    """

    def outgrown(self, state: State) -> Bool[Array, ""]:
        """Return whether some sweep since `state` was made or widened needed more room. Such a state is invalid."""
        ...

    def grown(self, state: State) -> tuple["Growing", State]:
        """Return a sampler with more room, and a valid state of it."""
        ...


@runtime_checkable
class Selectable(Protocol):
    """A sampler whose particles can be resampled."""

    def take(self, state: State, particles: Int[Array, " chosen"]) -> State:
        """Return the state of the named particles, in that order. A particle may be named several times."""
        ...


@runtime_checkable
class Chain(Sampler, Selectable, Protocol):
    """A path of distributions from q to the posterior of one model at one size."""

    @property
    def elements(self) -> int:
        """The number of latent variables that one sweep of one particle draws, which is roughly what a sweep costs."""
        ...

    @property
    def lanes(self) -> int:
        """The number of particles up to which twice as many take less than twice as long. A multiple of 16."""
        ...

    @property
    def directed(self) -> bool:
        """Whether a backward sweep differs from a forward one."""
        ...

    def log_ratio(self, state: State) -> Float[Array, " particle"]:
        """Return log p(state, data) − log q(state) of each particle, nats."""
        ...

    def label_scores(self, state: State) -> Float[Array, "particle component component"] | None:
        """Return scores S (nats) by which `lvsearch.inference.annealing.relabelling` draws labels, or None.

        They satisfy f(σ state) = exp Σ_l S[σ(l), l] for one fixed positive function f that is large at q's own
        labelling. None means that q itself does not change when components are relabelled.
        """
        ...

    def relabel(self, state: State, order: Int[Array, "particle component"]) -> State:
        """Return the state in which component l of each particle is called order[l]."""
        ...


@runtime_checkable
class Curved(Chain, Protocol):
    """A chain whose path is not π_t ∝ q^(1−t) p^t, but which has the same two ends.

    The importance weights of such a path are not linear in t. `log_ratio` is the gain from t = 0 to t = 1.
    """

    def log_gain(self, state: State, before: Float[Array, ""], after: Float[Array, ""]) -> Float[Array, " particle"]:
        """Return log π_after(state) − log π_before(state) of each particle, nats, both without their normalisers.

        The normaliser is 1 at t = 0 and p(data) at t = 1.
        """
        ...


@runtime_checkable
class Sequential(Selectable, Protocol):
    """A sampler whose units arrive one after another (`lvsearch.inference.annealing.prefixes`).

    A sampler is a pytree. Its methods are pure and may be traced.
    """

    @property
    def places(self) -> int:
        """The number of units including padding. Padding comes last."""
        ...

    @property
    def n_units(self) -> Int[Array | np.ndarray, ""]:
        """The number of units without padding."""
        ...

    def none_yet(self, key: Key[Array, ""], particles: int) -> State:
        """Return the state before any unit has arrived.

        Latent variables that are not tied to units are drawn from their prior.
        """
        ...

    def append(
        self, key: Key[Array, ""], state: State, unit: Int[Array, ""]
    ) -> tuple[State, Float[Array, " particle"]]:
        """Add the next unit and draw its latent variables.

        Returns the new state, and log p(unit | earlier units and their latents) of each particle, nats. Where a unit's
        latent variables are drawn one after another, that is the sum of the predictive log-probabilities met on the
        way.
        """
        ...

    def remove(
        self, key: Key[Array, ""], state: State, unit: Int[Array, ""]
    ) -> tuple[State, Float[Array, " particle"]]:
        """Undo `append`: take the last unit out.

        Returns the state without the unit, and the log-probability that `append` would return for the latents it had,
        nats.
        """
        ...

    def revisit(self, key: Key[Array, ""], state: State, units: Int[Array, ""], *, backward: bool) -> State:
        """Make one sweep over the latent variables of the first `units` units, in reverse order if `backward`."""
        ...
