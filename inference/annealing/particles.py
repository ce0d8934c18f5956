"""Annealing a chain from q to the posterior and back: sequential Monte Carlo in both directions.

Along temperatures 0 = t_0 < … < t_n = 1 a population of particles is weighted by

    log w += (t_j − t_{j−1}) (log p(state, data) − log q(state)),      state ~ π_{t_{j−1}}      (or `Curved.log_gain`)

and moved by a sweep that leaves π_{t_j} unchanged (Neal 2001; Jarzynski 1997). Particles are divided into groups,
called *islands* in the code, and resampled systematically within their group only. A group is resampled whenever its
effective sample size falls below half of it (Del Moral, Doucet & Jasra 2006).

Exact: forward, from draws of q, each group's p̂ has E[p̂] = p(data), whatever the number of particles, steps or sweeps,
    as long as the temperatures were fixed beforehand. So log p̂ is low on average. By Markov's inequality it is above
    log p(data) by more than c nats with probability at most e^−c. Backward, from draws of the posterior, the same holds
    for 1/p(data), so −log p̂ is high on average (Grosse, Ghahramani & Adams 2015).

Assumed: backward paths begin in the posterior. For simulated data they may begin at the true latents, which *are* a
    draw of the posterior. On real data they begin where the forward paths ended, which is the posterior only as far as
    these have converged.

Checked: a chain that never moves is plain importance sampling from q. Its forward paths end in the best draws of q, and
    its backward paths, which begin there, agree with them up to log(particles). Both can then be far below log p(data),
    and nothing in the two ends shows it. So each path says whether any state changed on it (`Annealed.moved`).
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Int, Key

from lvsearch.inference.annealing.relabelling import draw_orders, log_labelling
from lvsearch.inference.chains import Chain, Curved, Selectable, State
from lvsearch.inference.compiles import counted
from lvsearch.inference.generators import fold_in, generator, split_key
from lvsearch.models.kernels import kernel

CHUNK = 16
"""Number of temperatures in one call of the compiled program."""
CONDITIONAL_ESS = 0.5
"""Share of the effective sample size that a pilot's step leaves: about one nat of standard deviation per step."""
MOST_PILOT_STEPS = 400
STEP_PRECISION = 1e-3
"""Relative precision of a pilot's step. The step is found by halving, and every try weighs all particles."""
CONSTANT = 1e-6
"""Standard deviation in nats below which log p − log q counts as one number. Any chain is right then."""


class Compilation(Enum):
    """The way in which a CPU's program for a path is compiled: its effort, and the threads that it runs in.

    | member | effort | threads | for |
    |---|---|---|---|
    | `FULL_EFFORT` | full | all | paths in general |
    | `SOON_WHERE_DATA_ARE_FEW` | some; full unless data are few | one; all unless data are few | a single path |
    | `IN_ONE_THREAD` | full | the calling one | many small steps, which a GPU gets as one graph |
    | `SOON_IN_ONE_THREAD` | some | the calling one | paths side by side that run a few times |

    With some effort a program compiles sooner and runs longer.
    """

    FULL_EFFORT = auto()
    SOON_WHERE_DATA_ARE_FEW = auto()
    IN_ONE_THREAD = auto()
    SOON_IN_ONE_THREAD = auto()


class Population(NamedTuple):
    """Particles on an annealing path, stored group after group.

    | field | shape | meaning |
    |---|---|---|
    | `state` | | states of all particles |
    | `log_weight` | (particle,) | log weight since the particle's group was last resampled, nats |
    | `log_total` | (island,) | for each group, the log of its average weight up to its last resampling, nats |
    """

    state: State
    log_weight: Float[Array | np.ndarray, " particle"]
    log_total: Float[Array | np.ndarray, " island"]


class Profile(NamedTuple):
    """The mean and standard deviation of log p − log q over all particles at each temperature of a path, nats."""

    temperature: Float64[np.ndarray, " step"]
    mean: Float64[np.ndarray, " step"]
    deviation: Float64[np.ndarray, " step"]


class Annealed(NamedTuple):
    """The result of an annealing in one direction.

    | field | shape | meaning |
    |---|---|---|
    | `log_evidence` | (island,) | of each particle group; forward: log p̂; backward: −log of the estimate of 1/p; nats |
    | `state` | | states of all particles, equally weighted (resampled within groups) |
    | `profile` | | log p − log q along the way |
    | `labelled` | | whether q is around one labelling |
    | `moved` | | whether any state changed; forward also True where log p − log q is constant under q |
    """

    log_evidence: Float64[np.ndarray, " island"]
    state: State
    profile: Profile
    labelled: bool
    moved: bool


def forward(
    chain: Chain,
    key: Key[Array, ""],
    temperatures: Float64[np.ndarray, " step"],
    *,
    islands: int,
    particles: int,
    begin: State | None = None,
    compilation: Compilation = Compilation.FULL_EFFORT,
) -> Annealed:
    """Anneal from draws of q to the posterior; return estimates of log p(data) that are low on average.

    chain: the path from q to the posterior.
    temperatures: 0 < t_1 < … ≤ 1, the last one 1.
    islands: number of particle groups, each with an estimate of its own.
    particles: number of particles in each group.
    begin: states of all particles, which the first sweep at temperature 0 turns into draws of q. None: draw them from
        q.
    compilation: how the path's programs are compiled.
    """
    key_init, key_path, key_end = split_key(key, 3)
    with jax.enable_x64(True):
        if begin is None:
            begin = _draw_begin(chain, key_init, islands * particles, compilation)
        population = start_population(begin, islands, particles)
        before = np.concatenate([[0.0], temperatures])
        population, profile, moved = move_along(
            chain,
            key_path,
            population,
            before,
            np.append(np.diff(before), 0.0),
            islands=islands,
            backward=False,
            compilation=compilation,
        )
        moved = moved or bool(profile.deviation[0] <= CONSTANT)  # the first temperature is 0: draws of q
        scores = label_scores(chain, population.state)
        if scores is not None:
            worth = log_labelling(np.asarray(scores))
            population = population._replace(log_weight=np.asarray(population.log_weight) + worth)
        ended = end_paths(chain, key_end, population, islands=islands, sign=1.0)
        return Annealed(*ended, profile, scores is not None, moved)


def backward(
    chain: Chain,
    key: Key[Array, ""],
    state: State,
    temperatures: Float64[np.ndarray, " step"],
    *,
    islands: int,
    compilation: Compilation = Compilation.FULL_EFFORT,
) -> Annealed:
    """Anneal from draws of the posterior to q; return estimates of log p(data) that are high on average.

    chain: the path from q to the posterior.
    state: draws of the posterior, the particles of all groups.
    temperatures: 0 < t_1 < … ≤ 1, the last one 1. They are passed from 1 downwards.
    islands: number of particle groups, each with an estimate of its own.
    compilation: how the path's programs are compiled.
    """
    key_labels, key_path, key_end = split_key(key, 3)
    with jax.enable_x64(True):
        scores = label_scores(chain, state)
        worth = 0.0
        if scores is not None:
            order = draw_orders(np.asarray(scores), generator(key_labels))
            state = relabel_all(chain, state, order)
            worth = -log_labelling(np.asarray(label_scores(chain, state)))
        particles = _log_ratio.eval_shape(chain, state).shape[0] // islands
        population = start_population(state, islands, particles)
        population = population._replace(log_weight=population.log_weight + worth)
        before = np.concatenate([[0.0], temperatures])
        population, profile, moved = move_along(
            chain,
            key_path,
            population,
            temperatures[::-1],
            np.diff(before[::-1]),
            islands=islands,
            backward=True,
            compilation=compilation,
        )
        ended = end_paths(chain, key_end, population, islands=islands, sign=-1.0)
        return Annealed(*ended, profile, scores is not None, moved)


def pilot(
    chain: Chain,
    key: Key[Array, ""],
    *,
    islands: int,
    particles: int,
    most: int = MOST_PILOT_STEPS,
    compilation: Compilation = Compilation.FULL_EFFORT,
) -> Profile:
    """Run one cheap forward path that chooses its own temperatures, and return its profile.

    Every step leaves half of the effective sample size, computed over all particles together. The temperatures, refined
    by `schedule`, are then fixed beforehand for the runs that count. A pilot with as many particles as those runs uses
    the same compiled program.

    islands: number of particle groups.
    particles: number of particles in each group.
    most: largest number of steps.
    compilation: how the path's programs are compiled.
    """
    key_init, key_path = split_key(key)
    with jax.enable_x64(True):
        begin = _draw_begin(chain, key_init, islands * particles, compilation)
        population = start_population(begin, islands, particles)
        ratio = np.asarray(_log_ratio(chain, population.state))
        t, visited = 0.0, []
        while t < 1.0 and len(visited) < most:
            visited.append((t, ratio.mean(), ratio.std()))
            # step as far as half of the effective sample size remains, resample, and sweep there
            gain = _step_log_weights(chain, population.state, ratio, t)
            after = 1.0 if len(visited) == most else next_temperature(gain, t)
            population, *_ = move_along(
                chain,
                fold_in(key_path, len(visited)),
                population._replace(log_weight=np.asarray(population.log_weight) + gain(after - t)),
                np.array([after]),
                np.zeros(1),
                islands=islands,
                backward=False,
                always_resample=True,
                compilation=compilation,
            )
            ratio, t = np.asarray(_log_ratio(chain, population.state)), after
        visited.append((1.0, ratio.mean(), ratio.std()))
    return Profile(*np.array(visited, np.float64).T)


def schedule(profile: Profile, steps: int) -> Float64[np.ndarray, " step"]:
    """Return `steps` temperatures, rising to 1 and spaced in proportion to those of a pilot run, (steps,).

    profile: the pilot's profile.
    """
    known = profile.temperature
    return np.interp(np.linspace(0, len(known) - 1, steps + 1)[1:], np.arange(len(known)), known)


# ── the path ────────────────────────────────────────────────────────────────────────────────────────────────────────


def start_population(state: State, islands: int, particles: int) -> Population:
    """Return all particles at the start of a path, equally weighted.

    state: states of all particles.
    islands: number of particle groups.
    particles: number of particles in each group.
    """
    return Population(state, np.zeros(islands * particles), np.zeros(islands))


def move_along(
    chain: Chain,
    key: Key[Array, ""],
    population: Population,
    temperatures: Float64[np.ndarray, " step"],
    increments: Float64[np.ndarray, " step"],
    *,
    islands: int,
    backward: bool,
    always_resample: bool = False,
    compilation: Compilation = Compilation.FULL_EFFORT,
) -> tuple[Population, Profile, bool]:
    """Move the population along a path: at each temperature make a sweep, then add the weight of the step to the next
    one.

    population: the particles before.
    temperatures: the temperatures in the order in which they are passed, (step,).
    increments: the step from each temperature to the next one, (step,).
    islands: number of particle groups.
    backward: whether sweeps run in reverse order.
    always_resample: whether to resample before every sweep, not only below half the effective sample size.
    compilation: how the program is compiled.

    Returns: (the population, the profile of log p − log q, whether any state changed).
    """
    advance, visited = _advance_compiled(compilation), []
    for first in range(0, len(temperatures), CHUNK):
        n = min(CHUNK, len(temperatures) - first)
        chunk = np.zeros((2, CHUNK))
        chunk[:, :n] = temperatures[first : first + n], increments[first : first + n]
        population, seen = advance(
            chain,
            fold_in(key, first),
            population,
            chunk,
            np.int32(n),
            np.bool_(always_resample),
            islands=islands,
            backward=backward and chain.directed,
        )
        visited.append(np.asarray(seen)[:, :n])
    mean, deviation, moved = np.concatenate(visited, axis=1)
    return population, Profile(np.asarray(temperatures, np.float64), mean, deviation), bool(moved.any())


@kernel(static_argnames=("islands", "backward"))
@counted
def _advance(
    chain: Chain,
    key: Key[Array, ""],
    population: Population,
    chunk: Float[Array, "two chunk"],
    n: Int[Array, ""],
    always_resample: Bool[Array, ""],
    *,
    islands: int,
    backward: bool,
) -> tuple[Population, Float[Array, "three chunk"]]:
    """Move the population along one chunk of temperatures, of which the first `n` count (compiled).

    population: the particles before.
    chunk: temperatures and the steps to the next ones, (2, chunk).
    always_resample: whether to resample before every sweep, not only below half the effective sample size.
    islands: number of particle groups.
    backward: whether sweeps run in reverse order.

    Returns: (the population, numbers of each temperature (3, chunk)). The numbers are mean and deviation of log p − log
        q, and 1 if a state changed.
    """

    def one(index: Array, carry: tuple[Population, Array]) -> tuple[Population, Array]:
        """Resample poor groups, make one sweep, and weigh the step to the next temperature."""
        population, seen = carry
        key_resample, key_step = jax.random.split(jax.random.fold_in(key, index))
        population = resampled(chain, key_resample, population, islands, jnp.where(always_resample, jnp.inf, 0.5))
        state = chain.step(key_step, population.state, chunk[0, index], backward=backward)
        ratio = chain.log_ratio(state)
        leaves = zip(jax.tree.leaves(population.state), jax.tree.leaves(state), strict=True)
        moved = jnp.stack([jnp.any(before != after) for before, after in leaves]).any()
        seen = seen.at[:, index].set(jnp.stack([ratio.mean(), ratio.std(), moved.astype(ratio.dtype)]))
        gain = chunk[1, index] * ratio
        if isinstance(chain, Curved):
            gain = chain.log_gain(state, chunk[0, index], chunk[0, index] + chunk[1, index])
        return Population(state, population.log_weight + gain, population.log_total), seen

    return jax.lax.fori_loop(0, n, one, (population, jnp.zeros((3, chunk.shape[1]), chunk.dtype)))


_advance_shortly = kernel(static_argnames=("islands", "backward"), short=True)(_advance.__wrapped__)
_advance_serially = kernel(static_argnames=("islands", "backward"), serial=True)(_advance.__wrapped__)
_advance_alone = kernel(static_argnames=("islands", "backward"), short=True, once=True)(_advance.__wrapped__)


def _advance_compiled(compilation: Compilation) -> Callable[..., Any]:
    """Return `_advance` compiled in this way."""
    return {
        Compilation.FULL_EFFORT: _advance,
        Compilation.SOON_WHERE_DATA_ARE_FEW: _advance_shortly,
        Compilation.IN_ONE_THREAD: _advance_serially,
        Compilation.SOON_IN_ONE_THREAD: _advance_alone,
    }[compilation]


def traced_both_ways(
    chain: Chain, key: Key[Array, ""], temperatures: Float[Array, " step"], *, islands: int, particles: int
) -> tuple[Float[Array, " island"], Float[Array, " island"], State]:
    """Run `forward` from q and `backward` from where it ended, inside a traced caller.

    It is only for chains whose q is symmetric in the labels.

    temperatures: 0 < t_1 < … ≤ 1, the last one 1.
    islands: number of particle groups.
    particles: number of particles in each group.

    Returns: (log p̂, −log of the estimate of 1/p, the states of all particles where the forward paths ended, group after
        group). The first two have one number per group, (island,), in nats.
    """
    key_init, key_there, key_end, key_back, key_last = jax.random.split(key, 5)
    # there: from q, without a weight after the last temperature
    state = chain.init(key_init, islands * particles)
    blank = jnp.zeros_like(chain.log_ratio(state))
    begun = Population(state, blank, blank[:islands])
    steps, always = len(temperatures), np.bool_(False)
    before = jnp.concatenate([jnp.zeros(1), temperatures])
    there = jnp.stack([before, jnp.append(jnp.diff(before), 0.0)]).astype(blank.dtype)
    went, _ = _advance(chain, key_there, begun, there, steps + 1, always, islands=islands, backward=False)
    ended = resampled(chain, key_end, went, islands, jnp.inf)
    # and back, from the particles in which the forward paths ended
    back = jnp.stack([temperatures[::-1], jnp.diff(before[::-1])]).astype(blank.dtype)
    again = Population(ended.state, blank, blank[:islands])
    came, _ = _advance(chain, key_back, again, back, steps, always, islands=islands, backward=chain.directed)
    last = resampled(chain, key_last, came, islands, jnp.inf)
    return jnp.asarray(ended.log_total), -jnp.asarray(last.log_total), ended.state


def resampled(chain: Selectable, key: Array, population: Population, islands: int, least: Any) -> Population:
    """Return the population after systematic resampling of the groups whose weights have become uneven.

    A group is resampled if its effective sample size is below the share `least` of its number of particles. Its
    particles then have equal weights.

    islands: number of particle groups.
    least: a share; infinity resamples all groups.
    """
    weights = jnp.asarray(population.log_weight).reshape(islands, -1)
    particles = weights.shape[1]
    if particles == 1:  # nothing to choose: the same result by a much smaller program
        taken, weight = jnp.asarray(least) > 1.0, weights[:, 0]
        log_total = population.log_total + jnp.where(taken, weight, 0.0)
        return Population(population.state, jnp.where(taken, 0.0, weight), log_total)
    share = jax.nn.softmax(weights, axis=1)
    poor = 1.0 / (share**2).sum(1) < least * particles
    # systematic: equally spaced points, shifted by one uniform draw, choose the particles whose shares they fall into
    ends = jnp.cumsum(share, axis=1)
    places = (jnp.arange(particles) + jax.random.uniform(key, (islands, 1))) / particles
    chosen = jax.vmap(partial(jnp.searchsorted, side="right"))(ends, places * ends[:, -1:])
    chosen = jnp.where(poor[:, None], jnp.minimum(chosen, particles - 1), jnp.arange(particles))
    flat = (chosen + particles * jnp.arange(islands)[:, None]).ravel()
    average = jax.scipy.special.logsumexp(weights, axis=1) - jnp.log(particles)
    return Population(
        jax.lax.cond(poor.any(), lambda s: chain.take(s, flat), lambda s: s, population.state),
        jnp.where(poor[:, None], 0.0, weights).ravel(),
        population.log_total + jnp.where(poor, average, 0.0),
    )


_resample_all = kernel(static_argnames=("islands",), brief=True)(
    lambda chain, key, population, *, islands: resampled(chain, key, population, islands, jnp.inf)
)


def end_paths(
    chain: Chain, key: Array, population: Population, *, islands: int, sign: float
) -> tuple[Float64[np.ndarray, " island"], State]:
    """Return the estimate of each particle group at the end of its path, and equally weighted particles.

    islands: number of particle groups.
    sign: 1 for forward paths, −1 for backward ones.

    Returns: (`sign` times the log average weight of each group along the whole path in nats, (island,); the states).
    """
    population = _resample_all(chain, key, population, islands=islands)
    return sign * np.asarray(population.log_total, np.float64), population.state


@kernel(static_argnames=("particles",))
def draw_from_q(chain: Chain, key: Array, *, particles: int) -> State:
    """Draw `particles` particles from q, the first distribution of the chain's path.

    The program is compiled with full effort, because arguments are small and some chains sweep in order to draw.
    """
    return chain.init(key, particles)


_draw_soon = kernel(static_argnames=("particles",), once=True)(
    lambda chain, key, *, particles: chain.init(key, particles)
)


def _draw_begin(chain: Chain, key: Array, particles: int, compilation: Compilation) -> State:
    """Draw the particles that a path begins with from q, by the program for paths that are compiled in this way."""
    draw = _draw_soon if compilation is Compilation.SOON_IN_ONE_THREAD else draw_from_q
    return draw(chain, key, particles=particles)


@kernel()
def log_densities(chain: Any, state: Any) -> Float[Array, " particle"]:
    """Return log p(data, state) of each particle, (particle,), in nats, a density in the real-valued latent variables.

    chain: a chain, which defines the density. state: its particles.
    """
    return chain.log_density(state)


_log_ratio = kernel(brief=True)(lambda chain, state: chain.log_ratio(state))
_log_gain = kernel(brief=True)(lambda chain, state, before, after: chain.log_gain(state, before, after))


@kernel(once=True)
def label_scores(chain: Any, state: Any) -> Float[Array, "particle component component"] | None:
    """Return the scores from which relabellings of each particle are drawn, in nats; None where q is symmetric in the
    labels.

    They are (particle, component, component), as `Chain.label_scores` defines them.
    """
    return chain.label_scores(state)


@kernel(once=True)
def relabel_all(chain: Any, state: Any, order: Int[Array | np.ndarray, "particle component"]) -> Any:
    """Return the states with the components of each particle renamed: component l becomes order[l] (`Chain.relabel`).

    order: the new number of each component, (particle, component).
    """
    return chain.relabel(state, order)


def _step_log_weights(
    chain: Chain, state: State, ratio: np.ndarray, t: float
) -> Callable[[float], Float64[np.ndarray, " particle"]]:
    """Return the function that takes a step to the log weights of all particles, (particle,), in nats.

    The step leads from temperature t to t + step.

    ratio: log p − log q of each particle, (particle,), used unless the chain is `Curved`.
    """
    # Asked once, not at every step that is tried: on Python 3.11 the question makes every bound method of the chain.
    if isinstance(chain, Curved):
        return lambda step: np.asarray(_log_gain(chain, state, t, t + step))
    return lambda step: step * ratio


def next_temperature(gain: Callable[[float], np.ndarray], t: float) -> float:
    """Return the temperature, at most 1, at which one step leaves the share `CONDITIONAL_ESS` of the effective sample
    size.

    gain: a function of a step that returns log weights of all particles, (particle,), in nats.
    t: the present temperature, at which particles are equally weighted.
    """

    def remaining_share(step: float) -> float:
        """Return the effective sample size that remains after a step, as a share of the number of particles."""
        log_weight = gain(step)
        weight = np.exp(log_weight - log_weight.max())
        return float(weight.sum() ** 2 / (weight**2).sum() / len(weight))

    low, high = 0.0, 1.0 - t
    if remaining_share(high) >= CONDITIONAL_ESS:
        return 1.0
    for _ in range(60):
        if high - low <= STEP_PRECISION * high:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if remaining_share(middle) > CONDITIONAL_ESS else (low, middle)
    return t + high
