"""A chain over partitions of rows with parameters integrated out, whatever the number of components.

One pass goes over the rows in a random order. It takes each row out of its part, scores it under every part and puts it
into one of them. There are two kinds of pass:

- a *sweep* lets every row join any part or a new one (collapsed Gibbs sampling; Neal 2000, algorithm 3);
- a *jump* splits one part in two, or merges two, by the sequentially allocated sampler of Dahl (2005). Two rows are
    drawn. Where both are in one part, each begins a part of its own. The other rows of that part then join one of the
    two in turn, with the probabilities of the sweep. Where they are in two parts, these become one. The probability of
    the way back is that of the same pass with the present labels. A Metropolis–Hastings step accepts or refuses.

The prior of the partition is in `seating`. The score of a row in a part comes from the collapsed chain of the model
(`evidence.mixtures` and its kinds), which knows conjugate components of every kind. Hyper-parameters that have priors
each move by a slice after every pass (`evidence.mixture_hyperparameters`).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture, HyperMixtureState, LogHyper
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining
from lvsearch.inference.partition_chains.seating import SeatPrior, Seats


class PartitionState(NamedTuple):
    """A partition of the rows with the hyper-parameters, particles side by side.

    | field | meaning |
    |---|---|
    | `mixture` | labels (place and variant; −1 for a row in no part), number of rows of each place, and their sums |
    | `log_hyper` | log h by name, (column, particle); no entry where nothing has a prior |
    """

    mixture: CollapsedState
    log_hyper: LogHyper

    @property
    def labels(self) -> Int[Array, "row particle"]:
        """The label (place and variant) of each row."""
        return self.mixture.labels

    @property
    def counts(self) -> Float[Array, "place particle"]:
        """The number of rows of each place."""
        return self.mixture.counts


class PassPlan(NamedTuple):
    """What one pass may change.

    | field | meaning |
    |---|---|
    | `labels` | (row, particle) labels at the start; −1: the row joins a part when it is its turn |
    | `kept` | (row, particle) whether the row takes the label of `target` instead of a drawn one |
    | `counted` | (row, particle) whether the probability of the row's label is part of the proposal's |
    | `target` | (row, particle) labels that kept rows take |
    | `places` | (place, particle) parts that a drawn row may join |
    | `is_jump` | () whether this is a jump, in which rows keep their variants |
    """

    labels: Int[Array, "row particle"]
    kept: Bool[Array, "row particle"]
    counted: Bool[Array, "row particle"]
    target: Int[Array, "row particle"]
    places: Bool[Array, "place particle"]
    is_jump: Bool[Array, ""]


class PartitionChain(eqx.Module):
    """Chains over partitions of rows into at most as many parts as the mixture has places.

    | field | meaning |
    |---|---|
    | `mixture` | the collapsed chain that scores rows in parts; its size is its capacity |
    | `hyper` | the same chain with hyper-parameters that have priors; None where all are numbers |
    | `seating` | the prior of K and of the partition |
    """

    mixture: CollapsedMixtureChain
    hyper: HyperMixture | None
    seating: SeatPrior

    @property
    def n_places(self) -> int:
        """The number of places for parts."""
        return self.mixture.capacity

    @property
    def n_rows(self) -> int:
        """The number of rows without padding."""
        return len(self.seating.log_rising) - 1

    def init(self, key: Key[Array, ""], particles: int) -> PartitionState:
        """Return first states, far apart from each other.

        In half of the particles no row is in a part yet, so that the first sweep adds the rows one after another. In a
        quarter all rows are in one part. In a quarter each row is in a part drawn from a quarter of the places.
        """
        key_labels, key_hyper = jax.random.split(key)
        shape, names = (self.mixture.elements, particles), self.mixture.names
        scattered = jax.random.randint(key_labels, shape, 0, max(1, self.n_places // 4), jnp.int32)
        kind = jnp.arange(particles) % 4
        variant = jnp.zeros(shape, jnp.int32)
        labels = jnp.where(kind < 2, -1, names.combine(jnp.where(kind == 2, 0, scattered), variant))
        real = (self._weight() > 0)[:, None]
        log_hyper = {} if self.hyper is None else self.hyper.drawn_hyper(key_hyper, particles)
        return self._state(jnp.where(real, labels, -1), log_hyper)

    def step(self, key: Key[Array, ""], state: PartitionState) -> PartitionState:
        """Return the states after a sweep and a jump, each followed by moves of the hyper-parameters."""

        def one_pass(index: Array, state: PartitionState) -> PartitionState:
            return self._make_pass(jax.random.fold_in(key, index), state, index == 1)

        return jax.lax.fori_loop(0, 2, one_pass, state)

    def widen(self, state: PartitionState) -> PartitionState:
        """Return states of a chain with fewer places as states of this one."""
        return self._state(state.labels, state.log_hyper)

    def log_rows(self, state: PartitionState) -> Float[Array, " particle"]:
        """Return log p(rows | partition, hyper-parameters) without the terms of carriers and variants, nats."""
        return self.mixture.gains(state.mixture.natural, self._prior(state.log_hyper)).sum(0)

    # ── one pass ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _make_pass(self, key: Array, state: PartitionState, is_jump: Bool[Array, ""]) -> PartitionState:
        """Make one pass, a sweep or a jump, and move the hyper-parameters."""
        keys = jax.random.split(key, 6)
        seats = self.seating.draw(keys[0], state.counts)
        jump, sweep = self._jump(keys[1], state), self._sweep(state.labels)
        plan = jax.tree.map(lambda a, b: jnp.where(is_jump, a, b), jump, sweep)
        order = jnp.argsort(jnp.where(self._weight() > 0, jax.random.uniform(keys[2], (len(plan.labels),)), jnp.inf))
        passed, log_proposal = self._run_pass(keys[3], plan, state.log_hyper, seats, order)
        decided = self._decide_jump(keys[4], state, plan, passed, log_proposal, seats)
        labels = jnp.where(is_jump, decided, passed.labels)
        # The sums are computed anew, so that rounding does not add up over passes.
        return self._move_hyper(keys[5], self._state(labels, state.log_hyper))

    def _sweep(self, labels: Int[Array, "row particle"]) -> PassPlan:
        """Plan a pass in which every row may join every part."""
        nothing = jnp.zeros(labels.shape, bool)
        every = jnp.ones((self.n_places, labels.shape[1]), bool)
        return PassPlan(labels, nothing, nothing, labels, every, jnp.zeros((), bool))

    def _jump(self, key: Array, state: PartitionState) -> PassPlan:
        """Plan the pass of a jump.

        Where both drawn rows are in one part, it allocates the rows of that part to two. Otherwise it retraces how the
        rows of the two parts would have been allocated.
        """
        names, labels = self.mixture.names, state.labels
        n_rows, n_particles = labels.shape
        # Two rows decide: in one part they propose its split, in two parts the merger of these.
        first, second = self._two_rows(key, n_particles)
        particle = jnp.arange(n_particles)
        part, other = (names.components(labels[row, particle]) for row in (first, second))
        is_split = part == other
        # A split needs a place without rows; if there is none, both parts are the same and the jump is refused later.
        occupied = state.counts > 0.5
        free = jnp.where(occupied.all(0), part, jnp.argmin(occupied, axis=0).astype(part.dtype))
        other = jnp.where(is_split, free, other)
        place = jnp.arange(self.n_places, dtype=labels.dtype)[:, None]
        here = names.components(labels)
        moving = ((here == part) | (here == other)) & (self._weight() > 0)[:, None]
        # The two rows begin the two parts; the other rows of the parts come back one by one.
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
        """Draw two different rows of each particle, none of padding; the same row twice where there is one."""
        key_first, key_second = jax.random.split(key)
        real = jnp.where(self._weight() > 0, 0.0, -jnp.inf)
        first = jax.random.categorical(key_first, real, shape=(n_particles,))
        others = jnp.where(jnp.arange(len(real)) == first[:, None], -jnp.inf, real)
        second = jnp.where((real == 0).sum() > 1, jax.random.categorical(key_second, others, axis=1), first)
        return first, second

    def _run_pass(
        self, key: Array, plan: PassPlan, log_hyper: LogHyper, seats: Seats, order: Int[Array, " row"]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Run a pass over the rows.

        order: the rows in the order of the pass, padding last.

        Returns the state after the pass, and log of the probability of the counted rows' labels, nats.
        """
        chain, prior = self.mixture, self._prior(log_hyper)
        begin = self.mixture.of_labels(plan.labels, prior)
        uniforms = jax.random.uniform(key, plan.labels.shape, begin.counts.dtype)
        log_variants = jnp.tile(chain.component.log_variants.astype(begin.counts.dtype), self.n_places)[:, None]
        label_of_score = jnp.arange(chain.names.number, dtype=jnp.int32)[:, None]

        def one(index: Array, carry: tuple[CollapsedState, Array, Array]) -> tuple[CollapsedState, Array, Array]:
            """Take one row out, and put it into a part."""
            state, normaliser, log_proposal = carry
            row = order[index]
            drawn: list[Array] = []

            def choose(left: CollapsedState, joining: Joining) -> Int[Array, " particle"]:
                """Return the row's label: a kept one, or one drawn by the scores."""
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

            state, normaliser = chain.redrawn(state, normaliser, row, choose, prior)
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
        passed: CollapsedState,
        log_proposal: Float[Array, " particle"],
        seats: Seats,
    ) -> Int[Array, "row particle"]:
        """Return the labels after a jump was accepted or refused.

        The pass ended in two parts, and a merge makes one of them. A split for which there is no second place is
        refused.
        """
        names, chosen = self.mixture.names, plan.places
        # The merged labels: all rows of both parts in the first of the two places.
        here = jnp.take_along_axis(chosen, jnp.maximum(names.components(passed.labels), 0), axis=0)
        first_place = jnp.argmax(chosen, axis=0).astype(passed.labels.dtype)
        together = names.combine(first_place, names.variants(passed.labels))
        merged = jnp.where(here & (passed.labels >= 0), together, passed.labels)
        two, one = PartitionState(passed, state.log_hyper), self._state(merged, state.log_hyper)
        log_two, log_one = (self.log_rows(each) + seats.log_partition(each.counts) for each in (two, one))
        # A merge retraces the present labels, so only a split changes labels in the pass.
        is_split = (passed.labels != state.labels).any(0)
        # Metropolis–Hastings ratio of a split: p(two parts) / p(one part) / p(proposal); of a merge its reciprocal.
        log_split = log_two - log_one - log_proposal
        log_ratio = jnp.where(is_split, log_split, -log_split)
        possible = chosen.sum(0) == 2
        accept = possible & (jnp.log(jax.random.uniform(key, log_ratio.shape, log_ratio.dtype)) < log_ratio)
        return jnp.where(accept, jnp.where(is_split, passed.labels, merged), state.labels)

    # ── states ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _state(self, labels: Int[Array, "row particle"], log_hyper: LogHyper) -> PartitionState:
        """Return the state of these labels, with its sums computed anew."""
        return PartitionState(self.mixture.of_labels(labels, self._prior(log_hyper)), log_hyper)

    def _prior(self, log_hyper: LogHyper) -> Any:
        """Return λ(h), (particle, …) a leaf; (1, …) where no hyper-parameter has a prior."""
        if self.hyper is not None:
            return self.hyper.prior(log_hyper)
        dtype = self._weight().dtype
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype)[None], self.mixture.prior)

    def _move_hyper(self, key: Array, state: PartitionState) -> PartitionState:
        """Return the state with its hyper-parameters moved given the labels."""
        if self.hyper is None:
            return state
        return PartitionState(*self.hyper.with_hyper_moved(key, HyperMixtureState(*state), jnp.ones(()), False))

    def _weight(self) -> Float[Array, " row"]:
        """Return the weight of each row, 0 for padding."""
        return jnp.asarray(self.mixture.weight, jnp.result_type(float))
