"""What a sampler says about itself, so that one loop runs them all and one annealer gives their evidence.

A `Chain` is a path of distributions over latent states, with moves that leave each of them as it is:

    π_t(state) ∝ q(state)^(1−t) p(state, data)^t,      0 ≤ t ≤ 1

from a distribution q that can be drawn from (a mean-field fit, or the prior) to the posterior. The complete conditional
of a site in an exponential family has, along the path, the natural parameter (1 − t) · q's + t · the gradient of the
log-joint (Blei 2004, Eq. 2.18 and §2.2.1): the tempered sweep is the Gibbs sweep with one line more.

States hold many independent particles at once, on an axis that the chain chooses: what is fast differs.
"""

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

State = Any
"""A NamedTuple of arrays: `n` particles side by side."""


@runtime_checkable
class Sampler(Protocol):
    """What one loop (`lvsearch.inference.sampling`) asks of any sampler. A pytree: data and hyper-parameters are its
    leaves. Every method is pure and, unless the sampler is `Hosted`, may be traced. Log densities are in nats, float64
    inside `jax.enable_x64`."""

    def init(self, key: Key[Array, ""], particles: int) -> State:
        """`particles` independent draws to begin with; of a `Chain`, from q."""
        ...

    def step(self, key: Key[Array, ""], state: State, temperature: Float[Array, ""], *, backward: bool) -> State:
        """One sweep over all latents that leaves π_t as it is; `backward` visits them in the reverse order, so that
        it is the time reversal of a forward sweep (where the chain is `directed`). A sampler that is no `Chain` knows
        the posterior alone, t = 1, and one direction."""
        ...

    def log_density(self, state: State) -> Float[Array | np.ndarray, " particle"]:
        """log p(state, data), nats, for traces."""
        ...


@runtime_checkable
class Hosted(Sampler, Protocol):
    """A sampler whose methods are not traced: loops of Python over NumPy arrays, and compiled calls between them.

    Its states are NumPy arrays, particles first, whose shapes may change from sweep to sweep.
    """

    hosted: ClassVar[bool]
    """True, and there to tell such a sampler from others."""


@runtime_checkable
class OneByOne(Sampler, Protocol):
    """A sampler that says whether its sweep is a loop over members, each drawn given all others: such run on the CPU
    (`lvsearch.inference.devices`)."""

    one_by_one: bool


@runtime_checkable
class Growing(Sampler, Protocol):
    """A sampler of a process, whose states have places for so many parts, and are made again where that was too few.

    More places change no draw that did not need them.
    """

    def outgrown(self, state: State) -> Bool[Array, ""]:
        """Whether some sweep since `state` was made or widened needed more places: the state then means nothing."""
        ...

    def grown(self, state: State) -> tuple["Growing", State]:
        """The sampler, and a state of it that is not outgrown, with more places."""
        ...


@runtime_checkable
class Selectable(Protocol):
    """What resampling asks of a population's sampler."""

    def take(self, state: State, particles: Int[Array, " chosen"]) -> State:
        """The named particles, in that order, with repetitions."""
        ...


@runtime_checkable
class Chain(Sampler, Selectable, Protocol):
    """A path from q to the posterior of one model at one size."""

    @property
    def elements(self) -> int:
        """Latents that one sweep of one particle draws: what a sweep costs, about."""
        ...

    @property
    def lanes(self) -> int:
        """Particles side by side up to which twice as many take less than twice as long: a multiple of 16."""
        ...

    @property
    def directed(self) -> bool:
        """Whether a backward sweep is another than a forward one."""
        ...

    def log_ratio(self, state: State) -> Float[Array, " particle"]:
        """log p(state, data) − log q(state), nats."""
        ...

    def label_scores(self, state: State) -> Float[Array, "particle component component"] | None:
        """S (nats) such that f(σ state) = exp Σ_l S[σ(l), l] for a fixed positive f that q's labelling makes large;
        None where q itself does not change under relabelling. See `lvsearch.inference.annealing.relabelling`."""
        ...

    def relabel(self, state: State, order: Int[Array, "particle component"]) -> State:
        """Each state with its component l called order[l]."""
        ...


@runtime_checkable
class Curved(Chain, Protocol):
    """A chain whose path is none of π_t ∝ q^(1−t) p^t, but ends in the same two: its weights are no straight line in t,
    and `log_ratio` is the gain from 0 to 1."""

    def log_gain(self, state: State, before: Float[Array, ""], after: Float[Array, ""]) -> Float[Array, " particle"]:
        """log π_after(state) − log π_before(state), nats, both without their normaliser, which at 0 is 1 and at 1
        p(data)."""
        ...


@runtime_checkable
class Sequential(Selectable, Protocol):
    """A sampler whose units come one after another (`lvsearch.inference.annealing.prefixes`). A pytree; methods are
    pure and traced."""

    @property
    def places(self) -> int:
        """Units with those of padding, which come last."""
        ...

    @property
    def n_units(self) -> Int[Array | np.ndarray, ""]:
        """Units without those of padding."""
        ...

    def none_yet(self, key: Key[Array, ""], particles: int) -> State:
        """Before any unit: what no unit has a part in drawn from its prior."""
        ...

    def append(
        self, key: Key[Array, ""], state: State, unit: Int[Array, ""]
    ) -> tuple[State, Float[Array, " particle"]]:
        """The state with the next unit, its latents drawn, and log p(unit | the units before and their latents), nats;
        of several latents drawn in turn the sum of what each of them predicted."""
        ...

    def remove(
        self, key: Key[Array, ""], state: State, unit: Int[Array, ""]
    ) -> tuple[State, Float[Array, " particle"]]:
        """`append` undone: the state without the last unit, and what `append` would say of the latents it had."""
        ...

    def revisit(self, key: Key[Array, ""], state: State, units: Int[Array, ""], *, backward: bool) -> State:
        """One sweep over the latents of the first `units` units, in reverse order where `backward`."""
        ...
