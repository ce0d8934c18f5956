"""Two-level processes in the common run loop: the state that lasts from sweep to sweep, with chains side by side.

A *unit* is a document or a group of rows, a *member* a token or a row, and a *part* a topic or a component.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Float64, Int, Int32

from lvsearch.inference.compiles import counted
from lvsearch.inference.hdp import franchise
from lvsearch.inference.hdp.franchise import Franchise, MemberLikelihood
from lvsearch.inference.hdp.weights import prior_mean
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.sampling import Quantity, Recorder, Trace, run
from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel


class Members(NamedTuple):
    """The members (tokens or rows) of all units (documents or groups), which a chain moves between parts.

    | field | meaning |
    |---|---|
    | `unit_of` | the unit of each member |
    | `n_units` | the number of units |
    | `emission` | the likelihood of members given parts (topics or components) |
    | `log_carrier` | sum of the members' log base measure, which no part changes, nats |
    | `places` | array slots for parts at first, doubled whenever a sweep needs more |
    """

    unit_of: Int32[np.ndarray, " member"]
    n_units: int
    emission: MemberLikelihood
    log_carrier: float
    places: int


class FranchiseStates(NamedTuple):
    """The states of several chains (particles) of a two-level process, in float64.

    A member is a token (topics) or a row (mixtures). A part is the topic or component it belongs to. A place is the
    array slot of a part.

    | field | letter | shape | meaning |
    |---|---|---|---|
    | `labels` | z | (particle, member) | the place of each member's part |
    | `weight` | β_z | (particle, member) | the process's shared weight of that part |
    | `left` | β_u | (particle,) | the weight left for all parts without members |
    | `gamma`, `alpha` | γ, α | (particle,) | concentrations of the shared weights and of a unit's weights |
    | `outgrown` | | (particle,) | True if a sweep ran out of places: such a state is rerun with more of them |
    """

    labels: Int32[Array | np.ndarray, "particle member"]
    weight: Float[Array | np.ndarray, "particle member"]
    left: Float[Array | np.ndarray, " particle"]
    gamma: Float[Array | np.ndarray, " particle"]
    alpha: Float[Array | np.ndarray, " particle"]
    outgrown: Bool[Array | np.ndarray, " particle"]


class FranchiseSampler(eqx.Module):
    """The sampler of a two-level process by direct assignment, from given states; it grows when parts need more room.

    Parts are topics or components.

    model: the process.
    unit_of: the unit (document or group) of each member (token or row).
    emission: the likelihood of members given parts.
    log_carrier: sum of the members' log base measure, nats.
    begin: the state in which each chain begins.
    n_units: the number of units.
    capacity: the number of places (array slots) for parts.
    one_by_one: True, because a sweep is a loop over the members, each drawn given all others.
    """

    model: HierarchicalProcess
    unit_of: Int32[Array | np.ndarray, " member"]
    emission: MemberLikelihood
    log_carrier: Float[Array, ""] | float
    begin: FranchiseStates
    n_units: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    one_by_one: ClassVar[bool] = True

    @classmethod
    def from_members(cls, model: HierarchicalProcess, members: Members, begin: FranchiseStates) -> "FranchiseSampler":
        """Return the sampler of these members, with places (array slots) for at least one part more than `begin`
        has.

        Members are tokens or rows; parts are topics or components.
        """
        unit_of, n_units, emission, log_carrier, places = members
        while places <= begin.labels.max(initial=0) + 1:
            places *= 2
        return cls(model, unit_of, emission, log_carrier, begin, n_units, places)

    def init(self, key: Array, particles: int) -> FranchiseStates:
        """Return the given states. Raises ValueError if `particles` is not their number. The key is not used."""
        if particles != len(self.begin.left):
            raise ValueError(f"got {particles} chains, expected one for each of {len(self.begin.left)} starts")
        return jax.tree.map(jnp.asarray, self.begin)

    def step(
        self, key: Array, state: FranchiseStates, temperature: Float[Array, ""], *, backward: bool
    ) -> FranchiseStates:
        """Return the states after one sweep of each chain over members, tables, weights and concentrations.

        Members are tokens or rows. The members of a unit sit at tables, each of which serves one part.

        `temperature` and `backward` are not used.
        """

        def one(k: Array, old: FranchiseStates) -> FranchiseStates:
            """Return the state of one chain after a sweep."""
            unit_of = jnp.asarray(self.unit_of)
            new = franchise.sweep(self.model, self.expand_state(old), unit_of, self.emission, k, adding=False)
            return lasting_state(new)._replace(outgrown=old.outgrown | new.overflow)

        return jax.vmap(one)(jax.random.split(key, len(state.left)), state)

    def expand_state(self, state: FranchiseStates) -> Franchise:
        """Return the full state of one chain, as a sweep needs it, from the state that lasts."""
        labels = jnp.asarray(state.labels)
        empty = franchise.empty_state(
            len(self.unit_of), self.n_units, self.emission, self.capacity, state.gamma, state.alpha
        )
        return empty._replace(
            assignments=labels,
            in_unit=empty.in_unit.at[jnp.asarray(self.unit_of), labels].add(1),
            total=empty.total.at[labels].add(1),
            emitted=self.emission.gather(labels, self.capacity),
            beta=empty.beta.at[labels].set(state.weight),
            left=state.left,
        )

    def log_density(self, state: FranchiseStates) -> Float[Array, " particle"]:
        """Return the log density of members, partition, weights and concentrations of each chain, nats.

        Members are tokens or rows; parts are topics or components; units are documents or groups of rows.

        Parts, and the units' weights of them, are integrated out. A concentration with a fixed value is conditioned on.

        The weights β_k of K parts in use, in no order, and the weight β_u that is left have the density γ^K β_u^(γ − 1)
        / Π β_k. It is given in the coordinates log β_u and β_k / (1 − β_u), in which it stays bounded as γ becomes
        small.
        """
        priors = [self.model.concentration_of(level) for level in self.model.levels]

        def one(state: FranchiseStates) -> Array:
            """Return the log density of one chain's state, nats."""
            seats = self.expand_state(state)
            used = seats.total > 0
            beta, in_use = jnp.where(used, seats.beta, 1.0), seats.beta.sum()
            weights = jnp.where(used, jnp.log(state.gamma) - jnp.log(beta / in_use), 0.0).sum() - jnp.log(in_use)
            weights = weights + state.gamma * jnp.log(jnp.maximum(state.left, jnp.finfo(beta.dtype).tiny))
            mass = state.alpha * beta
            of_parts = jnp.where(seats.in_unit > 0, gammaln(mass + seats.in_unit) - gammaln(mass), 0.0).sum()
            of_units = (gammaln(state.alpha) - gammaln(state.alpha + seats.in_unit.sum(1))).sum()
            members = self.emission.log_density(seats.emitted, seats.total) + self.log_carrier
            pairs = zip(priors, (state.gamma, state.alpha), strict=True)
            return weights + of_parts + of_units + members + sum(_log_hyper(prior, value) for prior, value in pairs)

        return jax.vmap(one)(state)

    def needs_more_room(self, state: FranchiseStates) -> Bool[Array, ""]:
        """Return whether any chain needed more places (array slots) for parts than there are.

        Parts are topics or components.
        """
        return jnp.any(state.outgrown) | jnp.any(state.labels >= self.capacity)

    def with_more_room(self, state: FranchiseStates) -> tuple["FranchiseSampler", FranchiseStates]:
        """Return the sampler with twice as many places (array slots) for parts, and the state unchanged.

        Parts are topics or components.
        """
        return replace(self, capacity=2 * self.capacity), state


def lasting_state(state: Franchise) -> FranchiseStates:
    """Return the part of one chain's state that lasts when its sweep is over, from the full state."""
    weight = state.beta[state.assignments]
    return FranchiseStates(state.assignments, weight, state.left, state.gamma, state.alpha, state.overflow)


def _log_hyper(prior: Any, value: Any) -> Array:
    """Return the log prior density of a concentration, nats; 0 for a fixed one."""
    if not isinstance(prior, GammaPrior):
        return jnp.zeros(())
    shape, rate = (jnp.asarray(number, value.dtype) for number in prior)
    return shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * jnp.log(value) - rate * value


class FranchiseRecorder(Recorder):
    """Records the number of `occupied` parts, the members of the `largest` part, and concentrations that are drawn.

    Members are tokens or rows; parts are topics or components.

    Where asked for it records the part of each member, under the name of the parts ("topic" or "component").
    """

    @classmethod
    def for_model(cls, model: HierarchicalProcess, n_members: int, *, units: bool) -> "FranchiseRecorder":
        """Return the recorder of a model with `n_members` members (tokens or rows).

        Parts are topics or components.

        units: True to record the part of each member too.
        """
        varies = tuple(level.concentration for level in model.levels if model.has_prior(level))
        numbers = tuple(Quantity(name, (), (), False) for name in ("occupied", "largest", *varies))
        each = Quantity(model.axes.part, (model.axes.member,), (n_members,), True)
        return cls((*numbers, each) if units else numbers)

    def values(self, chain: FranchiseSampler, state: FranchiseStates) -> tuple[Array, ...]:
        """Return the recorded values of every chain, chains first, in the order of `quantities`."""
        counts = jax.vmap(lambda labels: jnp.bincount(labels, length=chain.capacity))(state.labels)
        upper, lower = chain.model.levels
        found = {
            "occupied": (counts > 0).sum(1),
            "largest": counts.max(1),
            upper.concentration: state.gamma,
            lower.concentration: state.alpha,
            chain.model.axes.part: jnp.asarray(state.labels),
        }
        return tuple(found[quantity.name] for quantity in self.quantities)


# ── where chains begin ──────────────────────────────────────────────────────────────────────────────────────────────


def states_by_adding(model: HierarchicalProcess, members: Members, key: Array) -> FranchiseStates:
    """Return one chain (with a particle axis of 1) whose members were added one at a time, each given those before
    it.

    Members are tokens or rows.
    """
    unit_of, n_units, emission, _, places = members
    means = _prior_means(model)
    with jax.enable_x64(True):
        while True:
            state = _add_all_members(model, unit_of, emission, means, key, n_units=n_units, places=places)
            if not bool(state.outgrown):
                return jax.tree.map(lambda leaf: np.asarray(leaf)[None], state)
            places *= 2


@kernel(static_argnames=("n_units", "places"))
@counted
def _add_all_members(
    model: HierarchicalProcess,
    unit_of: Any,
    emission: MemberLikelihood,
    means: Any,
    key: Array,
    *,
    n_units: int,
    places: int,
) -> FranchiseStates:
    """Return the state of one chain after all members were added one at a time, each given those before it (compiled).

    Members are tokens or rows; parts are topics or components; units are documents or groups of rows.

    unit_of: the unit of each member.
    emission: the likelihood of members given parts.
    means: values of γ and α, the concentrations.
    places: the number of array slots for parts.
    """
    empty = franchise.empty_state(len(unit_of), n_units, emission, places, *means)
    return lasting_state(franchise.sweep(model, empty, jnp.asarray(unit_of), emission, key, adding=True))


def states_of_partitions(model: HierarchicalProcess, labels: Int[np.ndarray, "particle member"]) -> FranchiseStates:
    """Return states of chains with the given partitions, one row of `labels` for each chain.

    Members are tokens or rows. The members of a unit sit at tables, each of which serves one part.

    Concentrations are at their prior means, and weights as if every member were a table.
    """
    labels = np.stack([by_appearance(one) for one in labels]).astype(np.int32)
    gamma, alpha = _prior_means(model)
    size = np.stack([np.bincount(one, minlength=1)[one] for one in labels])
    n_chains, n_members = labels.shape
    of_each = partial(np.full, n_chains)
    return FranchiseStates(
        labels,
        size / (n_members + gamma),
        of_each(gamma / (n_members + gamma)),
        of_each(gamma),
        of_each(alpha),
        np.zeros(n_chains, bool),
    )


def _prior_means(model: HierarchicalProcess) -> tuple[float, float]:
    """Return the prior means of γ and α, the concentrations of the shared weights and of a unit's weights.

    Units are documents or groups of rows.
    """
    upper, lower = model.levels
    return prior_mean(model.concentration_of(upper)), prior_mean(model.concentration_of(lower))


# ── where they end ──────────────────────────────────────────────────────────────────────────────────────────────────


class Seating(NamedTuple):
    """One state of a chain, with its parts numbered from 0, most members first.

    | field | shape | meaning |
    |---|---|---|
    | `assignments` | (member,) | the part (topic or component) of each token or row, int32 |
    | `in_unit` | (unit, part) | members of each part in each document or group, int32 |
    | `beta` | (part,) | shared weights; 1 − Σβ is left for others |
    """

    assignments: Int32[np.ndarray, " member"]
    in_unit: Int32[np.ndarray, "unit part"]
    beta: Float64[np.ndarray, " part"]


def seating(leaves: tuple[np.ndarray, ...], members: Members) -> Seating:
    """Return the first chain of a trace's state, with its parts (topics or components) numbered from 0, most members
    first.

    Empty parts are left out.

    leaves: the state's arrays, in the order of `FranchiseStates`, each with the chains in front.
    members: the tokens or rows that the chain moves between parts.
    """
    state = FranchiseStates(*(leaf[0] for leaf in leaves))
    total = np.bincount(state.labels)
    order = np.argsort(-total, kind="stable")[: (total > 0).sum()]
    rank = np.zeros(len(total), np.int32)
    rank[order] = np.arange(len(order))
    assignments = rank[np.asarray(state.labels)]
    in_unit = np.zeros((members.n_units, len(order)), np.int32)
    np.add.at(in_unit, (members.unit_of, assignments), 1)
    beta = np.zeros(len(order))
    beta[assignments] = state.weight
    return Seating(assignments, in_unit, beta)


class OneChain(NamedTuple):
    """The result of one chain.

    Parts are topics or components.

    | field | meaning |
    |---|---|
    | `seating` | the state in which the chain ended |
    | `history` | the number of parts in use, and the concentrations γ and α, after every sweep, (sweep,) each |
    | `trace` | the trace of the run loop |
    """

    seating: Seating
    history: tuple[Int[np.ndarray, " sweep"], Float64[np.ndarray, " sweep"], Float64[np.ndarray, " sweep"]]
    trace: Trace


def run_one_chain(
    model: HierarchicalProcess, members: Members, key: Array, *, sweeps: int, units: bool, after: Trace | None
) -> OneChain:
    """Make `sweeps` more sweeps of the chain that `key` determines, after those of a trace or from nothing.

    Members are tokens or rows; parts are topics or components.

    units: True to record the part of every member in every sweep.
    after: the trace of the sweeps so far; None for none.

    Raises ValueError for a number of sweeps below 1 and for the trace of another chain.
    """
    if sweeps < 1:
        raise ValueError(f"got sweeps={sweeps}, expected at least 1")
    key_start, key_sweeps = jax.random.split(key)
    begin = states_by_adding(model, members, key_start) if after is None else FranchiseStates(*after.state)
    trace = run_all_sweeps(model, members, begin, key_sweeps, sweeps=sweeps, units=units, after=after)
    history = [trace["occupied"][0]]
    for level in model.levels:
        varies = model.has_prior(level)
        given = np.full(trace.draws, prior_mean(model.concentration_of(level)))
        history.append(trace[level.concentration][0] if varies else given)
    return OneChain(seating(trace.state, members), tuple(history), trace)


def run_all_sweeps(
    model: HierarchicalProcess,
    members: Members,
    begin: FranchiseStates,
    key: Array,
    *,
    sweeps: int,
    units: bool,
    after: Trace | None = None,
) -> Trace:
    """Make `sweeps` more sweeps of every chain, and return the trace with a draw after each.

    Members are tokens or rows; parts are topics or components.

    begin: the states in which chains begin.
    units: True to record the part of every member in every sweep.
    after: the trace of the sweeps so far; None for none.

    Raises KeyboardInterrupt if the run was interrupted, because callers that asked for all sweeps cannot use a part.
    """
    draws = sweeps if after is None else after.draws + sweeps
    trace = run(
        FranchiseSampler.from_members(model, members, begin),
        key,
        chains=len(begin.left),
        draws=draws,
        warmup=0,
        recorder=FranchiseRecorder.for_model(model, len(members.unit_of), units=units),
        after=after,
    )
    if trace.draws < draws:
        raise KeyboardInterrupt
    return trace
