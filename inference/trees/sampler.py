"""Trees of topics as the one run loop takes them: sweeps, draws of hyper-parameters, chains side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float64, Int, Int8, Int32

from lvsearch.inference.generators import generator
from lvsearch.inference.sampling import Quantity, Recorder
from lvsearch.inference.trees.corpus import TreeCorpus, swept
from lvsearch.inference.trees.density import Allocation, log_joint
from lvsearch.inference.trees.hyper import DirichletLevels, GEMLevels, TreeHyper
from lvsearch.inference.trees.merge import merge_siblings
from lvsearch.inference.trees.sweep import SweepTables
from lvsearch.inference.trees.updates import FIXED, TreePriors, draw_hyper, log_hyper_prior


class Trees(NamedTuple):
    """Trees and allocations side by side.

    | field | letter | shape | meaning |
    |---|---|---|---|
    | `levels` | z | (particle, token) | level of each token, tokens in the order of the stored cells |
    | `paths` | c | (particle, document, level) | nodes, any labels |
    | `branching` | γ | (particle,) | |
    | `level_prior` | α, or (m, π) | (particle, parameter) | |
    | `topics` | η | (particle, level) | |
    """

    levels: Int8[np.ndarray, "*particle token"]
    paths: Int32[np.ndarray, "*particle document level"]
    branching: Float64[np.ndarray, "*particle"]
    level_prior: Float64[np.ndarray, "*particle parameter"]
    topics: Float64[np.ndarray, "*particle level"]


class TreeStates(NamedTuple):
    """Several chains side by side: `number` of sweeps made; where they are `now`; the `best` of the states that were
    scored and its `best_log_joint`, nats; all particles first."""

    number: Int[np.ndarray, "*particle"]
    now: Trees
    best: Trees
    best_log_joint: Float64[np.ndarray, "*particle"]


@dataclass(frozen=True)
class TreeSampler:
    """A `Hosted` sampler of trees and allocations, one chain from each of `starts`.

    priors: hyper-parameters with a prior are drawn after every sweep. temperatures: of the first sweeps, one each;
    those above 1 flatten the posterior and are no draws. merge_every: merge siblings where that gains after every so
    many sweeps, 0 never; draws are then not from the posterior. score_every: look for the best state after every so
    many sweeps, 0 never.
    """

    corpus: TreeCorpus
    hyper: TreeHyper
    starts: tuple[Allocation, ...]
    priors: TreePriors = FIXED
    temperatures: tuple[float, ...] = ()
    merge_every: int = 0
    score_every: int = 0

    hosted: ClassVar[bool] = True

    def init(self, key: Array, particles: int) -> TreeStates:
        """The starts. ValueError for another number of chains."""
        if particles != len(self.starts):
            raise ValueError(f"got {particles} chains, expected one for each of {len(self.starts)} starts")
        return _together([self._begun(start) for start in self.starts])

    def step(self, key: Array, state: TreeStates, temperature: Array, *, backward: bool) -> TreeStates:
        """Paths and levels of all documents of each chain, then its hyper-parameters. temperature: one number, ()."""
        chains = apart(state)
        pairs = zip(jax.random.split(key, len(chains)), chains, strict=True)
        return _together([self._swept(k, one) for k, one in pairs])

    def log_density(self, state: TreeStates) -> Float64[np.ndarray, " particle"]:
        """log p(w, z, c) in nats, topics and proportions integrated out, at each state's hyper-parameters; plus the
        log prior density of those that are drawn."""
        return np.array([self.score(*self.read(one.now)) for one in apart(state)])

    def score(self, allocation: Allocation, hyper: TreeHyper) -> float:
        """`log_density` of one state, nats.

        Without the prior of the hyper-parameters the best of several states is the one whose hyper-parameters fit it
        best, however improbable they are.
        """
        return log_joint(self.corpus.counts, allocation, hyper).total + log_hyper_prior(hyper, self.priors)

    def read(self, one: Trees) -> tuple[Allocation, TreeHyper]:
        """One chain's state, as `log_joint` takes it."""
        return self.corpus.allocation(one.levels, one.paths), self.hyper_of(one)

    def hyper_of(self, one: Trees) -> TreeHyper:
        """One chain's hyper-parameters."""
        if self.priors == FIXED:
            return self.hyper
        levels, numbers = self.hyper.levels, one.level_prior
        if isinstance(levels, DirichletLevels):
            levels = DirichletLevels(np.array(numbers))
        else:
            levels = levels._replace(mean_share=float(numbers[0]), scale=float(numbers[1]))
        return TreeHyper(float(one.branching), levels, np.array(one.topics))

    @cached_property
    def _tables(self) -> SweepTables:
        """Of sweeps at the given hyper-parameters, made once."""
        return self.corpus.tables(self.hyper)

    def _begun(self, start: Allocation) -> TreeStates:
        score = self.score(start, self.hyper) if self.score_every else -np.inf
        now = self._trees(start, self.hyper)
        return TreeStates(np.asarray(0), now, now, np.asarray(score))

    def _swept(self, key: Array, one: TreeStates) -> TreeStates:
        key_sweep, key_hyper = jax.random.split(key)
        number, hyper = int(one.number) + 1, self.hyper_of(one.now)
        hot = number <= len(self.temperatures)
        inverse = 1 / self.temperatures[number - 1] if hot else 1.0
        tables = self._tables if self.priors == FIXED and not hot else self.corpus.tables(hyper, inverse)
        sticks = isinstance(hyper.levels, GEMLevels)
        levels, paths = swept(self.corpus, one.now.levels, one.now.paths, tables, key_sweep, sticks=sticks)
        now = one.now._replace(levels=levels.astype(np.int8), paths=paths)
        if self.priors != FIXED:
            allocation = self.corpus.allocation(levels, paths)
            hyper = draw_hyper(generator(key_hyper), self.corpus.counts, allocation, hyper, self.priors)
            now = self._trees(allocation, hyper)
        if self.merge_every and number % self.merge_every == 0:
            merged = merge_siblings(self.corpus.counts, self.corpus.allocation(now.levels, now.paths), hyper)
            now = self._trees(merged, hyper)
        moved = one._replace(number=np.asarray(number), now=now)
        if not self.score_every or number % self.score_every:
            return moved
        score = self.score(*self.read(now))
        return moved._replace(best=now, best_log_joint=np.asarray(score)) if score > one.best_log_joint else moved

    def _trees(self, allocation: Allocation, hyper: TreeHyper) -> Trees:
        prior = hyper.levels
        numbers = prior.alpha if isinstance(prior, DirichletLevels) else np.array([prior.mean_share, prior.scale])
        return Trees(
            self.corpus.levels(allocation).astype(np.int8),
            np.unique(allocation.paths, return_inverse=True)[1].reshape(allocation.paths.shape).astype(np.int32),
            np.asarray(hyper.branching, np.float64),
            np.asarray(numbers, np.float64),
            np.asarray(hyper.topics, np.float64),
        )


class TreeRecorder(Recorder):
    """`nodes` in use at each level; hyper-parameters where they are drawn; where asked for, `levels` of all tokens and
    `paths` of all documents."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, sampler: TreeSampler, *, units: bool) -> "TreeRecorder":
        """units: record levels and paths."""
        depth, begin = sampler.hyper.depth, apart(sampler.init(jax.random.key(0), len(sampler.starts)))[0].now
        found = [Quantity("nodes", ("level",), (depth,), False)]
        if sampler.priors.branching is not None:
            found.append(Quantity("branching", (), (), False))
        if sampler.priors.levels is not None:
            found.append(Quantity("level_prior", ("parameter",), begin.level_prior.shape, False))
        if sampler.priors.topics is not None:
            found.append(Quantity("topics", ("level",), (depth,), False))
        if units:
            found.append(Quantity("levels", ("token",), begin.levels.shape, False))
            found.append(Quantity("paths", ("document", "level"), begin.paths.shape, True))
        return cls(tuple(found))

    def values(self, chain: TreeSampler, state: TreeStates) -> tuple[np.ndarray, ...]:
        """In the order of the quantities."""
        nodes = np.array([[len(np.unique(column)) for column in paths.T] for paths in state.now.paths])
        found = {"nodes": nodes, **state.now._asdict()}
        return tuple(found[quantity.name] for quantity in self.quantities)


def apart(state: TreeStates) -> list[TreeStates]:
    """Each chain by itself."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], state) for i in range(len(state.number))]


def _together(chains: Sequence[TreeStates]) -> TreeStates:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *chains)
