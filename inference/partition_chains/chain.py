"""Markov chains over partitions of rows under a mixture of unknown size, with component parameters integrated out.

A partition says which rows belong to the same component; such a group of rows is called a part. A part occupies one of
`n_places` array slots, called places. One pass goes over the rows in a random order. It takes each row out of its part,
scores it under every part and puts it into one of them. There are two kinds of pass:

- A *sweep* lets every row join any part or a new one (collapsed Gibbs sampling; Neal 2000, algorithm 3).
- A *jump* splits one part in two, or merges two, by the sequentially allocated sampler of Dahl (2005). Two rows are
  drawn. If both are in one part, each begins a part of its own. The other rows of that part then join one of the two in
  turn, with the probabilities of the sweep. If the two rows are in two parts, these become one. The probability of the
  way back is that of the same pass with the labels as they are. The result is accepted or refused by
  Metropolis–Hastings.

The prior of the partition comes from `seating`. The probability of a row's values in a part comes from the collapsed
chain of the model (`evidence.mixtures` and its kinds), which knows conjugate components of every kind. Hyper-parameters
that have priors each move by slice sampling after every pass (`evidence.mixture_hyperparameters`).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture, HyperMixtureState, LogHyper
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining
from lvsearch.inference.generators import generator, split_key
from lvsearch.inference.partition_chains.seating import SeatPrior, Seats


class PartitionState(NamedTuple):
    """Partitions of the rows with the hyper-parameters, one per particle (chain), particles side by side.

    | field | meaning |
    |---|---|
    | `labels` | (row, particle): k V + v for a row in array slot k and variant v of V; −1 for a row in no part |
    | `log_hyper` | logarithm of each hyper-parameter by name, (column, particle); no entry if it has no prior |
    | `log_rows` | log p(rows given partition and hyper-parameters), nats, (particle,); 0 before the first sweep |

    A component may let its rows arise in one of V variants, such as several precisions; V is 1 for most components.
    `log_rows` leaves out the variants' probabilities, and the factors of the rows that depend neither on the partition
    nor on parameters (carriers).
    """

    labels: Int[Array, "row particle"]
    log_hyper: LogHyper
    log_rows: Float[Array, " particle"]


class PassPlan(NamedTuple):
    """A plan of one pass over the rows: which rows may join which parts.

    | field | meaning |
    |---|---|
    | `labels` | (row, particle) labels to begin with; −1: the row is in no part until its turn |
    | `kept` | (row, particle) True if the row takes the label of `target` instead of a drawn one |
    | `counted` | (row, particle) True if the probability of the row's label is a factor of the proposal's |
    | `target` | (row, particle) labels that kept rows take |
    | `places` | (place, particle) True for array slots whose parts a drawn row may join |
    | `is_jump` | () True if this is a split-merge jump, in which rows keep their variants |
    """

    labels: Int[Array, "row particle"]
    kept: Bool[Array, "row particle"]
    counted: Bool[Array, "row particle"]
    target: Int[Array, "row particle"]
    places: Bool[Array, "place particle"]
    is_jump: Bool[Array, ""]


class PartitionChain(eqx.Module):
    """Markov chains over partitions of rows into at most as many parts as there are array slots (places).

    | field | meaning |
    |---|---|
    | `mixture` | the collapsed chain that computes p(row's values given the other rows of a part) |
    | `hyper` | `mixture` with moves of the hyper-parameters that have priors; None if all are numbers |
    | `seating` | the prior of the number of components K and of the partition |
    """

    mixture: CollapsedMixtureChain
    hyper: HyperMixture | None
    seating: SeatPrior

    @property
    def n_places(self) -> int:
        """The number of array slots (places) that parts can take, which is the most parts of a partition."""
        return self.mixture.capacity

    @property
    def n_rows(self) -> int:
        """The number of rows, without padding."""
        return int(np.sum(np.asarray(self.mixture.weight) > 0))

    def init(self, key: Key[Array, ""], particles: int) -> PartitionState:
        """Return states to begin with that are far apart from each other.

        In half of the particles no row is in a part yet, so that the first sweep allocates the rows one after another.
        In a quarter all rows are in one part. In a quarter each row is in a part drawn from a quarter of the array
        slots.

        particles: the number of chains.
        """
        key_labels, key_hyper = split_key(key)
        shape, names = (self.mixture.elements, particles), self.mixture.names
        scattered = generator(key_labels).integers(0, max(1, self.n_places // 4), shape)
        kind = np.arange(particles) % 4
        labels = np.where(kind < 2, -1, names.n_variants * np.where(kind == 2, 0, scattered))
        labels = np.where(np.asarray(self.mixture.weight)[:, None] > 0, labels, -1).astype(np.int32)
        log_hyper = {} if self.hyper is None else self.hyper.drawn_hyper(key_hyper, particles)
        return PartitionState(jnp.asarray(labels), log_hyper, jnp.zeros(particles))

    def step(self, key: Key[Array, ""], state: PartitionState) -> PartitionState:
        """Return the states after a sweep and a split-merge jump, each followed by moves of the hyper-parameters."""

        def one_pass(index: Array, state: PartitionState) -> PartitionState:
            return self._make_pass(jax.random.fold_in(key, index), state, index == 1)

        return jax.lax.fori_loop(0, 2, one_pass, state)

    def counts(self, labels: Int[Array, "row particle"]) -> Float[Array, "place particle"]:
        """Return the number of rows in each part, (place, particle).

        A place is one of the `n_places` array slots that a part can take; empty slots have 0. Rows of padding and rows
        with label −1 are not counted.
        """
        chosen = self.mixture.names.components(labels) == jnp.arange(self.n_places, dtype=labels.dtype)[:, None, None]
        return (chosen * self._weight()[:, None]).sum(1)

    # ── one pass ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _make_pass(self, key: Array, state: PartitionState, is_jump: Bool[Array, ""]) -> PartitionState:
        """Return the states after one pass over the rows and moves of the hyper-parameters.

        is_jump: True for a split-merge jump, False for a sweep.
        """
        keys = jax.random.split(key, 6)
        counts = self.counts(state.labels)
        seats = self.seating.draw(keys[0], counts)
        jump, sweep = self._plan_jump(keys[1], state.labels, counts), self._plan_sweep(state.labels)
        plan = jax.tree.map(lambda a, b: jnp.where(is_jump, a, b), jump, sweep)
        order = jnp.argsort(jnp.where(self._weight() > 0, jax.random.uniform(keys[2], (len(plan.labels),)), jnp.inf))
        passed, log_proposal = self._run_pass(keys[3], plan, state.log_hyper, seats, order)
        return self._move_hyper(keys[5], self._decide_jump(keys[4], state, plan, passed.labels, log_proposal, seats))

    def _plan_sweep(self, labels: Int[Array, "row particle"]) -> PassPlan:
        """Return the plan of a pass in which every row may join every part."""
        nothing = jnp.zeros(labels.shape, bool)
        every = jnp.ones((self.n_places, labels.shape[1]), bool)
        return PassPlan(labels, nothing, nothing, labels, every, jnp.zeros((), bool))

    def _plan_jump(
        self, key: Array, labels: Int[Array, "row particle"], counts: Float[Array, "place particle"]
    ) -> PassPlan:
        """Return the plan of a split-merge jump: which rows are allocated anew, and to which two parts.

        A split allocates the rows of one part to two. A merge retraces, without drawing, how the rows of two parts
        would have been allocated, to get the probability of the reverse split.

        labels: array slot and variant of each row.
        counts: rows of each part.
        """
        names = self.mixture.names
        n_rows, n_particles = labels.shape
        first, second = self._two_rows(key, n_particles)
        particle = jnp.arange(n_particles)
        part, other = (names.components(labels[row, particle]) for row in (first, second))
        is_split = part == other
        occupied = counts > 0.5
        free = jnp.where(occupied.all(0), part, jnp.argmin(occupied, axis=0).astype(part.dtype))
        other = jnp.where(is_split, free, other)
        place = jnp.arange(self.n_places, dtype=labels.dtype)[:, None]
        here = names.components(labels)
        moving = ((here == part) | (here == other)) & (self._weight() > 0)[:, None]
        row = jnp.arange(n_rows)[:, None]
        seeds = (row == first) | (row == second)
        seeded = jnp.where((row == second) & is_split, names.combine(other, names.variants(labels)), labels)
        return PassPlan(
            jnp.where(moving & ~seeds, -1, seeded),
            seeds | ~moving | ~is_split,
            moving & ~seeds,
            seeded,
            (place == part) | (place == other),
            jnp.ones((), bool),
        )

    def _two_rows(self, key: Array, n_particles: int) -> tuple[Array, Array]:
        """Draw two different rows of each particle, none of them padding; the same row twice if there is only one.

        Returns: (numbers of the first rows, numbers of the second rows), each (particle,).
        """
        key_first, key_second = jax.random.split(key)
        real = jnp.where(self._weight() > 0, 0.0, -jnp.inf)
        first = jax.random.categorical(key_first, real, shape=(n_particles,))
        others = jnp.where(jnp.arange(len(real)) == first[:, None], -jnp.inf, real)
        second = jnp.where((real == 0).sum() > 1, jax.random.categorical(key_second, others, axis=1), first)
        return first, second

    def _run_pass(
        self, key: Array, plan: PassPlan, log_hyper: LogHyper, seats: Seats, order: Int[Array, " row"]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Take the rows out and put them back one after another as planned.

        plan: what the pass may do.
        log_hyper: logarithms of the hyper-parameters.
        seats: the prior weights of parts.
        order: the numbers of the rows in the order of the pass, padding last.

        Returns: (the state after the pass, log-probability of the counted rows' labels, (particle,), nats).
        """
        chain, prior = self.mixture, self._prior(log_hyper)
        begin = self.mixture.state_from_labels(plan.labels, prior)
        uniforms = jax.random.uniform(key, plan.labels.shape, begin.counts.dtype)
        log_variants = jnp.tile(chain.component.log_variants.astype(begin.counts.dtype), self.n_places)[:, None]
        label_of_score = jnp.arange(chain.names.number, dtype=jnp.int32)[:, None]

        def one(index: Array, carry: tuple[CollapsedState, Array, Array]) -> tuple[CollapsedState, Array, Array]:
            state, normaliser, log_proposal = carry
            row = order[index]
            drawn: list[Array] = []

            # Draw the row's label in proportion to the parts' prior weight times the density of its values there,
            # unless the plan fixes the label; keep the probability of the label that it got.
            def choose(left: CollapsedState, joining: Joining) -> Int[Array, " particle"]:
                of_place = jnp.where(plan.places, seats.log_scores(left.counts), -jnp.inf)
                score = chain.names.in_all_variants(of_place) + log_variants + joining.of_row
                other_variant = chain.names.variants(label_of_score) != chain.names.variants(plan.target[row])
                score = jnp.where(plan.is_jump & other_variant, -jnp.inf, score)
                cumulative = jnp.cumsum(jnp.exp(score - score.max(0)), axis=0)
                new = (cumulative < uniforms[row] * cumulative[-1]).sum(0, dtype=jnp.int32)
                label = jnp.where(plan.kept[row], plan.target[row], new)
                of_label = jnp.take_along_axis(score - score.max(0), label[None], axis=0)[0]
                drawn.append(of_label - jnp.log(cumulative[-1]))
                return label

            state, normaliser = chain.redraw_row(state, normaliser, row, choose, prior)
            return state, normaliser, log_proposal + jnp.where(plan.counted[row], drawn[0], 0.0)

        normaliser = chain.normalisers(begin.natural).sum(-1)
        start = begin, normaliser, jnp.zeros(plan.labels.shape[1], begin.counts.dtype)
        ended, _, log_proposal = jax.lax.fori_loop(0, (self._weight() > 0).sum(), one, start)
        return ended, log_proposal

    def _decide_jump(
        self,
        key: Array,
        state: PartitionState,
        plan: PassPlan,
        passed: Int[Array, "row particle"],
        log_proposal: Float[Array, " particle"],
        seats: Seats,
    ) -> PartitionState:
        """Return the states after a sweep as they are, or after a jump was accepted or refused by Metropolis–Hastings.

        state: the states before the pass.
        plan: what the pass was allowed to do.
        passed: the labels that the pass ended with. A jump ended in two parts, of which a merge makes one. A split for
            which there is no free array slot is refused.
        log_proposal: log-probability of the labels that the pass gave to the counted rows, nats.
        seats: the prior weights of parts.
        """
        names, chosen, n_particles = self.mixture.names, plan.places, passed.shape[1]
        here = jnp.take_along_axis(chosen, jnp.maximum(names.components(passed), 0), axis=0)
        first_place = jnp.argmax(chosen, axis=0).astype(passed.dtype)
        together = names.combine(first_place, names.variants(passed))
        merged = jnp.where(here & (passed >= 0), together, passed)
        # both at once, so that the program holds what they are worth only once
        prior = jax.tree.map(_with_particles_doubled, self._prior(state.log_hyper))
        both = self.mixture.state_from_labels(jnp.concatenate([passed, merged], axis=1), prior)
        log_rows = self.mixture.gains(both.natural, prior).sum(0)
        two, one = log_rows[:n_particles], log_rows[n_particles:]
        seated_two, seated_one = (seats.log_partition(each) for each in jnp.split(both.counts, 2, axis=1))
        log_split = two + seated_two - one - seated_one - log_proposal
        is_split = (passed != state.labels).any(0)
        log_ratio = jnp.where(is_split, log_split, -log_split)
        possible = chosen.sum(0) == 2
        is_accepted = possible & (jnp.log(jax.random.uniform(key, log_ratio.shape, log_ratio.dtype)) < log_ratio)
        takes_two = ~plan.is_jump | (is_accepted & is_split)
        takes_one = plan.is_jump & is_accepted & ~is_split
        labels = jnp.where(takes_two, passed, jnp.where(takes_one, merged, state.labels))
        worth = jnp.where(takes_two, two, jnp.where(takes_one, one, state.log_rows))
        return PartitionState(labels, state.log_hyper, worth)

    # ── states ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _prior(self, log_hyper: LogHyper) -> Any:
        """Return the natural parameters of the components' conjugate prior at these hyper-parameters.

        Each leaf is (particle, …), or (1, …) if no hyper-parameter has a prior.
        """
        if self.hyper is not None:
            return self.hyper.prior(log_hyper)
        dtype = self._weight().dtype
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype)[None], self.mixture.prior)

    def _move_hyper(self, key: Array, state: PartitionState) -> PartitionState:
        """Return the states with their hyper-parameters moved by slice sampling, given the labels."""
        if self.hyper is None:
            return state
        mixture = self.mixture.state_from_labels(state.labels, self._prior(state.log_hyper))
        begin = HyperMixtureState(mixture, state.log_hyper)
        ended = self.hyper.with_hyper_moved(key, begin, jnp.ones(()), False)
        worth = self.mixture.gains(ended.mixture.natural, self._prior(ended.log_hyper)).sum(0)
        return PartitionState(state.labels, ended.log_hyper, worth)

    def _weight(self) -> Float[Array, " row"]:
        """Return 1 for each row and 0 for padding, (row,), in the session's floating-point type."""
        return jnp.asarray(self.mixture.weight, jnp.result_type(float))


def _with_particles_doubled(leaf: Array) -> Array:
    """Return an array (particle, …) with all particles repeated behind themselves; (1, …) stays as it is."""
    return leaf if len(leaf) == 1 else jnp.concatenate([leaf, leaf])
