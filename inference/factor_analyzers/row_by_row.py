"""Mixtures of factor analysers whose rows come one after another.

    p(x_m | x_1 … x_{m−1}, their labels and scores, h)
        = Σ_k (n_k + a) / (m − 1 + Ka) ∫ Normal(f; 0, I) p(x_m | f, k) df,

n_k and p(· | f, k) of the rows before. The integral is taken by the candidates of a row (`chain`), an unbiased
estimate, which is as good as the integral itself: forward, the row takes one of them in proportion; backward, what the
row has stands among candidates drawn anew, so that one is the time reversal of the other.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.dispatch import Anchor, along_data, anchored_chain, evidence_chain, patience
from lvsearch.inference.annealing.hyperparameters import gamma_about
from lvsearch.inference.annealing.prefixes import in_turn, sequential
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.evidence.mixture_anchors import settled
from lvsearch.inference.factor_analyzers.chain import CANDIDATES, FactorAnalyzerChain
from lvsearch.inference.factor_analyzers.scored_labels import Candidates, ScoredLabels
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture


class ScoredRowByRow(eqx.Module):
    """A chain, and the order in which its `n_units` rows come, (row,); after them those of padding."""

    chain: FactorAnalyzerChain
    order: Int[np.ndarray, " row"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        return len(self.order)

    def none_yet(self, key: Key[Array, ""], particles: int) -> ScoredLabels:
        """Hyper-parameters from their prior; no row has a label: −1."""
        labels = jnp.full((self.places, particles), -1, jnp.int32)
        scores = jnp.zeros((self.places, self.chain.component.n_factors, particles))
        return self.chain.state_of(labels, scores, self.chain.drawn_hyper(key, particles))

    def append(
        self, key: Key[Array, ""], state: ScoredLabels, unit: Int[Array, ""]
    ) -> tuple[ScoredLabels, Float[Array, " particle"]]:
        row = jnp.asarray(self.order)[unit]
        key_row, key_choice = jax.random.split(key)
        found = self.chain.candidates(key_row, state, row)
        uniform = jax.random.uniform(key_choice, found.log_weight.shape[2:], found.log_weight.dtype)
        return self.chain.with_row(state, row, *self.chain.chosen(found, uniform)), self._worth(state, found, row)

    def remove(
        self, key: Key[Array, ""], state: ScoredLabels, unit: Int[Array, ""]
    ) -> tuple[ScoredLabels, Float[Array, " particle"]]:
        row = jnp.asarray(self.order)[unit]
        left = self.chain.without(state, row)
        found = self.chain.candidates(key, left, row, (state.labels[row], state.scores[row]))
        nowhere = jnp.full_like(state.labels[0], -1)
        return left._replace(labels=left.labels.at[row].set(nowhere)), self._worth(left, found, row)

    def revisit(
        self, key: Key[Array, ""], state: ScoredLabels, units: Int[Array, ""], *, backward: bool
    ) -> ScoredLabels:
        """Rows one by one, all at once, hyper-parameters; in the reverse order where `backward`."""
        key_rows, key_blocked, key_hyper = jax.random.split(key, 3)
        order = jnp.asarray(self.order)
        came = jnp.zeros(self.places, bool).at[order].set(jnp.arange(self.places) < units)
        if backward:
            state = self.chain.hyper_moved(key_hyper, state, 1.0, backward)
            state = self.chain.blocked(key_blocked, state, came, 1.0)
            return self.chain.swept(key_rows, state, order, units, backward)
        state = self.chain.swept(key_rows, state, order, units, backward)
        state = self.chain.blocked(key_blocked, state, came, 1.0)
        return self.chain.hyper_moved(key_hyper, state, 1.0, backward)

    def take(self, state: ScoredLabels, particles: Int[Array, " chosen"]) -> ScoredLabels:
        return self.chain.take(state, particles)

    def _worth(self, before: ScoredLabels, found: Candidates, row: Array) -> Float[Array, " particle"]:
        """log of the estimate of p(row | the rows before, their labels and scores)."""
        seats = before.counts.sum(0) + self.chain.total_concentration()
        weight = found.log_weight.reshape(-1, len(seats))
        carrier = jnp.asarray(self.chain.carriers, weight.dtype)[row]
        return jax.scipy.special.logsumexp(weight, axis=0) - jnp.log(CANDIDATES * seats) + carrier


@evidence_chain.register
def _(
    model: FactorAnalyzerMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> FactorAnalyzerChain:
    return FactorAnalyzerChain.of(model, data, size[0], capacity_of(size)[0])


@sequential.register
def _(chain: FactorAnalyzerChain, key: Key[Array, ""]) -> ScoredRowByRow | None:
    if chain.anchor is not None:
        return None
    return ScoredRowByRow(chain, *in_turn(key, np.asarray(chain.weight) > 0))


@along_data.register
def _(chain: FactorAnalyzerChain) -> bool:
    return chain.anchor is None


@patience.register
def _(chain: FactorAnalyzerChain) -> float:
    """q of labels is normalised and as cheap to draw from as the prior."""
    return 0.0


@anchored_chain.register
def _(chain: FactorAnalyzerChain, key: Key[Array, ""], states: Sequence[ScoredLabels]) -> Anchor:
    """About the labels of the best particle, and Gammas about the hyper-parameters that it ended with."""
    log_r, state = settled(chain, key, states)
    starts = {name: gamma_about(jnp.exp(each)) for name, each in state.log_hyper.items()}
    courses = {name: course._replace(start=starts[name]) for name, course in chain.courses.items()}
    about = eqx.tree_at(lambda c: (c.anchor, c.courses), chain, (log_r, courses), is_leaf=lambda leaf: leaf is None)
    return Anchor(about, 0.0)
