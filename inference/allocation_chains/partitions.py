"""Markov chains over partitions of rows under a mixture of unknown size, with component parameters integrated out.

A partition says which rows belong to the same component; such a group of rows is called a part. A part occupies one of
`n_places` array slots, called places. There are two kinds of moves:

- A *sweep* goes over the rows in a random order. It takes each row out of its part, scores it under every part, and
  lets it join one of them or a new one (collapsed Gibbs sampling; Neal 2000, algorithm 3).
- A *jump* splits one part in two, or merges two, by the sequentially allocated sampler of Dahl (2005). Two rows are
  drawn. If both are in one part, each begins a part of its own. The other rows of that part then join one of the two in
  turn, with the probabilities of the sweep. If the two rows are in two parts, these become one. The probability of the
  reverse move is found by going through the same allocation with the labels as they are. The result is accepted or
  refused by Metropolis–Hastings. The two rows are mostly close to each other in some column, since parts that are far
  apart would rarely be merged. They are drawn by an order of the rows that is fixed before the chain starts, and not by
  the partition, so the probability of the pair cancels.

The prior of the partition comes from `seating`. The probability of a row's values in a part comes from the collapsed
chain of the model (`evidence.mixtures` and its kinds), which knows conjugate components of every kind. Hyper-parameters
that have priors each move by slice sampling after the jumps (`evidence.mixture_hyperparameters`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.allocation_chains.contract import AllocationState, state_on_host
from lvsearch.inference.allocation_chains.seating import SeatPrior, Seats
from lvsearch.inference.annealing.draws import choose_in_proportion
from lvsearch.inference.annealing.hyperparameters import LogHyper
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture, HyperMixtureState
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, RowScores
from lvsearch.inference.full_covariances.partial_rows import PartialRows
from lvsearch.inference.generators import generator, split_key

JUMPS = 8
"""The number of split-merge jumps after each sweep."""


class Pair(NamedTuple):
    """The two parts of a split-merge jump, and what may happen to their rows.

    | field | meaning |
    |---|---|
    | `chain` | the chain in which the parts lie: one of two array slots, or that of all parts |
    | `slots` | (array slot of the first part, array slot of the second), each (particle,) |
    | `target` | (row, particle) labels in that chain, as they are before a merge; the second row of a split is alone |
    | `drawn` | (row, particle) True for rows that are allocated one after another: all but the two that were drawn |
    | `is_split` | (particle,) True where one part is to become two, False where two are to become one |
    """

    chain: CollapsedMixtureChain
    slots: tuple[Int[Array, " particle"], Int[Array, " particle"]]
    target: Int[Array, "row particle"]
    drawn: Bool[Array, "row particle"]
    is_split: Bool[Array, " particle"]


class Move(NamedTuple):
    """The random numbers of a sweep, or of a split-merge jump, in all particles.

    | field | meaning |
    |---|---|
    | `key` | draws the number of components, unless it is summed out |
    | `order` | the numbers of the rows in the order in which they are visited, padding last, (row,) |
    | `of_rows` | a uniform random number for each row |
    | `acceptance` | one that accepts or refuses a jump; not used in a sweep |
    | `two_rows` | two that choose the two rows of a jump (`PartitionChain._two_rows`); not used in a sweep |
    """

    key: Key[Array, ""]
    order: Int[Array, " row"]
    of_rows: Float[Array, "row particle"]
    acceptance: Float[Array, " particle"]
    two_rows: Float[Array, "two particle"]


class PartitionChain(eqx.Module):
    """Markov chains over partitions of rows into at most as many parts as there are array slots (places).

    | field | meaning |
    |---|---|
    | `mixture` | the collapsed chain that computes p(row's values given the other rows of a part) |
    | `hyper` | `mixture` with moves of the hyper-parameters that have priors; None if all are numbers |
    | `seating` | the prior of the number of components K and of the partition |
    | `in_order` | the numbers of the rows in the order of their values in each column, padding last, (column, row) |
    | `partial` | the rows of which some cells are missing, if these are latent variables; else None |
    """

    mixture: CollapsedMixtureChain
    hyper: HyperMixture | None
    seating: SeatPrior
    in_order: Int[Array | np.ndarray, "column row"]
    partial: PartialRows | None = None

    @property
    def n_places(self) -> int:
        """The number of array slots (places) that parts can take, which is the most parts of a partition."""
        return self.mixture.capacity

    def most_places(self) -> tuple[int]:
        """Return the number of rows, without padding: a partition has no more parts."""
        return (int(np.sum(np.asarray(self.mixture.weight) > 0)),)

    @property
    def has_warm_up(self) -> bool:
        """False: split-merge jumps are enough."""
        return False

    @property
    def size_given_parts(self) -> Float[Array | np.ndarray, "number sizes"] | None:
        """The table p(K given t parts), if K is summed out of the partition's prior; else None."""
        return self.seating.size_given_parts

    def init(self, key: Key[Array, ""], particles: int) -> AllocationState:
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
        log_hyper = {} if self.hyper is None else self.hyper.first_hyper(generator(key_hyper), particles)
        cells = None if self.partial is None else self.partial.first_cells(particles)
        return state_on_host(labels, log_hyper, cells)

    def resume(
        self, labels: np.ndarray, log_hyper: Mapping[str, np.ndarray], cells: np.ndarray | None = None
    ) -> AllocationState:
        """Return states with these labels, (row, particle), hyper-parameters, and cells of rows that lack some."""
        return state_on_host(labels, log_hyper, cells)

    def warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after a step: there are no other moves."""
        return self.step(key, state)

    def end_warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states as they are."""
        return state

    def log_sizes(self, state: AllocationState) -> Float[Array, "size particle"]:
        """Return log p(K | partition) of K = 1, 2, …, (size, particle), nats; only if K is not summed out."""
        return self.seating.log_sizes(self.counts(state.labels))

    def step(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after a sweep, some split-merge jumps, and moves of the hyper-parameters.

        Where missing cells are latent variables, they are drawn first, and the other moves are those of whole rows.
        """
        if self.partial is None or state.cells is None:
            return self._moved(key, state)
        key_cells, key_moves = jax.random.split(key)
        labels, cells = self._redraw_cells(key_cells, state, self.partial, state.cells)
        moved = self._with_cells(self.partial, cells)._moved(key_moves, state._replace(labels=labels))
        return moved._replace(cells=cells)

    def _with_cells(self, partial: PartialRows, cells: Float[Array, "partial dim particle"]) -> "PartitionChain":
        """Return the chain with these cells in the rows of each particle."""
        mixture = self.mixture.with_rows(partial.fill(cells), jnp.asarray(partial.has_cells))
        chain = eqx.tree_at(lambda c: c.mixture, self, mixture)
        return chain if self.hyper is None else eqx.tree_at(lambda c: c.hyper.mixture, chain, mixture)

    def _redraw_cells(
        self, key: Key[Array, ""], state: AllocationState, partial: PartialRows, cells: Array
    ) -> tuple[Int[Array, "row particle"], Float[Array, "partial dim particle"]]:
        """Draw the missing cells anew, with the parts of their rows; return (labels, cells)."""
        key_seats, key_parameters, key_rows = jax.random.split(key, 3)
        mixture, prior = self._with_cells(partial, cells).mixture, self._prior(state.log_hyper)
        now = mixture.state_from_labels(state.labels, prior)
        statistics = mixture.draw_components(key_parameters, now)
        seats = self.seating.draw(key_seats, now.counts)
        return partial.redraw(key_rows, statistics, state.labels, now.counts, seats.log_scores)

    def _moved(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after a sweep, jumps, and moves of the hyper-parameters, all cells of rows as they are."""
        key_seats, key_order, key_uniforms, key_hyper = jax.random.split(key, 4)
        prior = self._prior(state.log_hyper)

        # All random numbers of the sweep and of the jumps are drawn here, because generators take long to compile.
        n_rows, n_particles = state.labels.shape
        share = jax.random.uniform(key_order, (1 + JUMPS, n_rows), self._weight().dtype)
        orders = jnp.argsort(jnp.where(self._weight() > 0, share, jnp.inf))  # padding last
        uniforms = jax.random.uniform(key_uniforms, (1 + JUMPS, n_rows + 3, n_particles), share.dtype)

        def move(index: int | Array) -> Move:
            """Return the random numbers of the sweep, whose number is 0, or of a jump."""
            of_rows, rest = uniforms[index, :n_rows], uniforms[index, n_rows:]
            return Move(jax.random.fold_in(key_seats, index), orders[index], of_rows, rest[0], rest[1:])

        def jump(index: Array, labels: Int[Array, "row particle"]) -> Int[Array, "row particle"]:
            return self._jump(move(index), labels, prior)

        labels = self._sweep(move(0), state.labels, prior)
        labels = jax.lax.fori_loop(1, 1 + JUMPS, jump, labels)
        return self._move_hyper(key_hyper, labels, state.log_hyper)

    def counts(self, labels: Int[Array, "row particle"]) -> Float[Array, "place particle"]:
        """Return the number of rows in each part, (place, particle).

        A place is one of the `n_places` array slots that a part can take; empty slots have 0. Rows of padding and rows
        with label −1 are not counted.
        """
        chosen = self.mixture.names.components(labels) == jnp.arange(self.n_places, dtype=labels.dtype)[:, None, None]
        return (chosen * self._weight()[:, None]).sum(1)

    def part_counts(self, labels: Int[Array, "row particle"]) -> Int[Array, "one particle"]:
        """Return the number of parts, (1, particle)."""
        return (self.counts(labels) > 0.5).sum(0, dtype=jnp.int32)[None]

    def groups(self, labels: Int[Array, "row particle"]) -> Int[Array, "row particle"]:
        """Return the number of the part that each row is in, (row, particle); −1 for padding."""
        return self.mixture.names.components(labels)

    def log_predictive(
        self,
        labels: Int[Array, "row particle"],
        log_hyper: LogHyper,
        log_seats: Float[Array, "place particle"],
        rows: Int[Array, " new"],
    ) -> Float[Array, "new particle"]:
        """Return log p(row | partition of the others, hyper-parameters) of some rows, each by itself, (new, particle),
        in nats. Parameters of components are integrated out.

        labels: of all rows, (row, particle); −1 for a row whose values are not known to the partition, such as `rows`.
        log_hyper: logarithm of each hyper-parameter by name, (column, particle).
        log_seats: log-probability that a new row joins the part in each place, nats; −∞ where it cannot.
        rows: the numbers of the rows to predict.
        """
        chain = self.mixture
        state = chain.state_from_labels(labels, self._prior(log_hyper))
        normaliser = chain.normalisers(state.natural)
        log_variants = jnp.tile(jnp.asarray(chain.component.log_variants, log_seats.dtype), self.n_places)[:, None]
        of_label = chain.names.in_all_variants(log_seats) + log_variants

        def one(row: Array) -> Float[Array, " particle"]:
            score = chain.score_row(state, row, normaliser).scores.of_row
            return jax.nn.logsumexp(of_label + score, axis=0) + jnp.asarray(chain.carriers, score.dtype)[row]

        return jax.lax.map(one, rows)

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _sweep(self, move: Move, labels: Int[Array, "row particle"], prior: Any) -> Int[Array, "row particle"]:
        """Return the labels after every row has joined a part or begun a new one.

        move: the random numbers of the sweep.
        prior: the natural parameters of a part without rows.
        """
        chain, seats, uniforms = self.mixture, self.seating.draw(move.key, self.counts(labels)), move.of_rows
        log_variants = jnp.tile(jnp.asarray(chain.component.log_variants, uniforms.dtype), self.n_places)[:, None]

        def choose(row: Array, left: CollapsedState, scores: RowScores) -> Int[Array, " particle"]:
            of_label = chain.names.in_all_variants(seats.log_scores(left.counts)) + log_variants
            return choose_in_proportion(of_label + scores.of_row, uniforms[row], np.asarray(chain.names.number))

        begin = chain.state_from_labels(labels, prior)
        return chain.redraw_rows(begin, move.order, self._n_real(), choose, prior).labels

    def _jump(self, move: Move, labels: Int[Array, "row particle"], prior: Any) -> Int[Array, "row particle"]:
        """Return the labels after a split-merge jump, which was accepted or refused by Metropolis–Hastings.

        A split for which there is no free array slot is refused.

        move: the random numbers of the jump.
        prior: the natural parameters of a part without rows.
        """
        names, particle, row = self.mixture.names, jnp.arange(labels.shape[1]), jnp.arange(len(labels))[:, None]
        first, second = self._two_rows(move)
        here, counts = names.components(labels), self.counts(labels)
        seats, occupied = self.seating.draw(move.key, counts), counts > 0.5
        one, other = here[first, particle], here[second, particle]
        is_split = one == other
        other = jnp.where(is_split, jnp.argmin(occupied, axis=0).astype(one.dtype), other)
        moving = ((here == one) | (here == other)) & (self._weight() > 0)[:, None]

        # The two parts stand alone in a chain of two array slots, which is quick, unless parts share parameters.
        if self.mixture.components_share:
            chain, slots, others = self.mixture, (one, other), labels
        else:
            chain, zero = dataclasses.replace(self.mixture, size=np.asarray(2), capacity=2), jnp.zeros_like(one)
            slots, others = (zero, zero + 1), jnp.full_like(labels, -1)
        in_second = (here == other) | ((row == second) & is_split)  # of a part to be split, its second row alone
        target, together = (
            jnp.where(moving, chain.names.combine(slot, names.variants(labels)), others)
            for slot in (jnp.where(in_second, slots[1], slots[0]), slots[0])
        )
        drawn = moving & (row != first) & (row != second)
        pair = Pair(chain, slots, target, drawn, is_split)
        split, log_proposal = self._allocate(move, pair, seats, prior)

        merged = chain.state_from_labels(together, prior)
        log_rows = [chain.gains(state.natural, prior).sum(0) for state in (split, merged)]
        in_one, in_other = (jnp.take_along_axis(split.counts, slot[None], axis=0)[0] for slot in slots)
        log_seats = seats.log_split(in_one, in_other, occupied.sum(0) - ~is_split)
        log_split = log_rows[0] - log_rows[1] + log_seats - log_proposal
        log_ratio = jnp.where(is_split, log_split, -log_split)
        possible = (first != second) & ~(is_split & occupied.all(0))
        accepted = possible & (jnp.log(move.acceptance) < log_ratio)
        joins_other = is_split & (chain.names.components(split.labels) == slots[1])
        after = names.combine(jnp.where(joins_other, other, one), names.variants(labels))
        return jnp.where(moving & accepted, after, labels)

    def _allocate(
        self, move: Move, pair: Pair, seats: Seats, prior: Any
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Allocate the rows of two parts to these one after another.

        In a split the rows are drawn. In a merge they retrace, without drawing, how they would have come to lie as they
        do, to get the probability of the reverse split.

        move: the random numbers of the jump.
        seats: the prior weights of parts.
        prior: the natural parameters of a part without rows.

        Returns: (the state of the pair's chain, log-probability of the rows' labels, (particle,), nats).
        """
        chain, order = pair.chain, move.order
        log_odds_drawn = jnp.log(move.of_rows) - jnp.log1p(-move.of_rows)

        def place(index: Array, carry: tuple[CollapsedState, Array, Array]) -> tuple[CollapsedState, Array, Array]:
            state, normaliser, log_proposal = carry
            row = order[index]
            target, drawn, log_probability = pair.target[row], pair.drawn[row], []

            # Draw which of the two parts the row joins, in proportion to their rows times the density of its values.
            def choose(state: CollapsedState, scores: RowScores) -> Int[Array, " particle"]:
                score = jnp.log(state.counts + seats.concentration) + chain.names.in_variant_of(target, scores.of_row)
                one, other = (jnp.take_along_axis(score, slot[None], axis=0)[0] for slot in pair.slots)
                log_odds = other - one
                is_in_other = chain.names.components(target) == pair.slots[1]
                joins_other = jnp.where(pair.is_split, log_odds_drawn[row] < log_odds, is_in_other)
                log_probability.append(jax.nn.log_sigmoid(jnp.where(joins_other, log_odds, -log_odds)))
                part = jnp.where(joins_other, pair.slots[1], pair.slots[0])
                # Rows that are not drawn stay where they are: in their parts since the beginning, or in neither.
                return jnp.where(drawn, chain.names.combine(part, chain.names.variants(target)), -1)

            state, normaliser = chain.place_row(state, normaliser, row, choose)
            return state, normaliser, log_proposal + jnp.where(drawn, log_probability[0], 0.0)

        begin = chain.state_from_labels(jnp.where(pair.drawn, -1, pair.target), prior)
        start = begin, chain.normalisers(begin.natural), jnp.zeros(pair.target.shape[1], log_odds_drawn.dtype)
        state, _, log_proposal = jax.lax.fori_loop(0, self._n_real(), place, start)
        return state._replace(labels=jnp.where(pair.drawn, state.labels, pair.target)), log_proposal

    def _n_real(self) -> Int[Array, ""]:
        """Return the number of rows without padding, as a number that JAX traces."""
        return (self._weight() > 0).sum()

    def _two_rows(self, move: Move) -> tuple[Array, Array]:
        """Draw two different rows for each particle, none of them padding; the same row twice if there is only one.

        A column and a row are drawn uniformly. The second row is r = 1 … N − 1 places further in the order of that
        column, with probability proportional to 1/r − 1/(r + 1); after the last row comes the first. Their roles are
        swapped with probability 1/2.

        move: the random numbers of a jump.

        Returns: (numbers of the first rows, numbers of the second rows), each (particle,).
        """
        number, (one, other), in_order = self._n_real(), move.two_rows, jnp.asarray(self.in_order)
        column = (one * len(in_order)).astype(jnp.int32)
        place = ((one * len(in_order) - column) * number).astype(jnp.int32)
        is_swapped, share = other < 0.5, 2 * other % 1
        away = (1 / (1 - share * (1 - 1 / number))).astype(jnp.int32)  # from 1 to the number of rows less 1
        first, second = in_order[column, place], in_order[column, (place + away) % number]
        return jnp.where(is_swapped, second, first), jnp.where(is_swapped, first, second)

    # ── states ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _prior(self, log_hyper: LogHyper) -> Any:
        """Return the natural parameters of the components' conjugate prior at these hyper-parameters.

        Each leaf is (particle, …), or (1, …) if no hyper-parameter has a prior.
        """
        if self.hyper is not None:
            return self.hyper.prior(log_hyper)
        return jax.tree.map(lambda leaf: leaf[None], self.mixture.own_prior())

    def _move_hyper(self, key: Array, labels: Int[Array, "row particle"], log_hyper: LogHyper) -> AllocationState:
        """Return the states with these labels, and hyper-parameters moved by slice sampling given the labels."""
        mixture = self.mixture.state_from_labels(labels, self._prior(log_hyper))
        if self.hyper is not None:
            begin = HyperMixtureState(mixture, log_hyper)
            mixture, log_hyper = self.hyper.with_hyper_moved(key, begin, jnp.ones(()), False, jnp.ones(()))
        log_rows = self.mixture.gains(mixture.natural, self._prior(log_hyper)).sum(0)
        return AllocationState(mixture.labels, log_hyper, log_rows, None)

    def _weight(self) -> Float[Array, " row"]:
        """Return 1 for each row and 0 for padding, (row,), in the session's floating-point type."""
        return jnp.asarray(self.mixture.weight, jnp.result_type(float))
