"""Mixtures of factor analysers whose rows arrive one after another.

    p(x_m | x_1 … x_{m−1}, their labels and scores, h)
        = Σ_k (n_k + a) / (m − 1 + Ka) ∫ Normal(f; 0, I) p(x_m | f, k) df,

with n_k and p(· | f, k) of the rows before. The integral is estimated by the candidates of a row (`chain`). The
estimate is unbiased, so the weights of the path stay exact. Forward, the row takes one candidate in proportion to the
weights. Backward, what the row has stands among newly drawn candidates. Each is the time reversal of the other.
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
from lvsearch.inference.evidence.mixture_anchors import settled_labels
from lvsearch.inference.factor_analyzers.candidates import CANDIDATES, Candidates
from lvsearch.inference.factor_analyzers.chain import FactorAnalyzerChain
from lvsearch.inference.factor_analyzers.scored_labels import ScoredLabels
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture


class ScoredRowByRow(eqx.Module):
    """A chain, and the order (row,) in which its `n_units` rows arrive. Rows of padding come after them."""

    chain: FactorAnalyzerChain
    order: Int[np.ndarray, " row"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        return len(self.order)

    def none_yet(self, key: Key[Array, ""], particles: int) -> ScoredLabels:
        """Return the state before any row: hyper-parameters from their prior, and labels −1."""
        labels = jnp.full((self.places, particles), -1, jnp.int32)
        scores = jnp.zeros((self.places, self.chain.component.n_factors, particles))
        return self.chain.state_of(labels, scores, self.chain.draw_hyperparameters(key, particles))

    def append(
        self, key: Key[Array, ""], state: ScoredLabels, unit: Int[Array, ""]
    ) -> tuple[ScoredLabels, Float[Array, " particle"]]:
        """Add the next row. Returns the state, and log of the estimate of the row's predictive density, nats."""
        row = jnp.asarray(self.order)[unit]
        key_row, key_choice = jax.random.split(key)
        found = self.chain.candidates(key_row, state, row)
        uniform = jax.random.uniform(key_choice, found.log_weight.shape[2:], found.log_weight.dtype)
        return self.chain.add_row(state, row, *self.chain.choose(found, uniform)), self._log_predictive(
            state, found, row
        )

    def remove(
        self, key: Key[Array, ""], state: ScoredLabels, unit: Int[Array, ""]
    ) -> tuple[ScoredLabels, Float[Array, " particle"]]:
        """Take the last row out. Returns the state, and log of the estimate that `append` would make, nats."""
        row = jnp.asarray(self.order)[unit]
        left = self.chain.remove_row(state, row)
        found = self.chain.candidates(key, left, row, (state.labels[row], state.scores[row]))
        nowhere = jnp.full_like(state.labels[0], -1)
        return left._replace(labels=left.labels.at[row].set(nowhere)), self._log_predictive(left, found, row)

    def revisit(
        self, key: Key[Array, ""], state: ScoredLabels, units: Int[Array, ""], *, backward: bool
    ) -> ScoredLabels:
        """Sweep over rows one by one, then all at once, then hyper-parameters; in the reverse order if `backward`."""
        key_rows, key_blocked, key_hyper = jax.random.split(key, 3)
        order = jnp.asarray(self.order)
        came = jnp.zeros(self.places, bool).at[order].set(jnp.arange(self.places) < units)
        if backward:
            state = self.chain.move_hyperparameters(key_hyper, state, 1.0, backward)
            state = self.chain.sweep_at_once(key_blocked, state, came, 1.0)
            return self.chain.sweep_in_turn(key_rows, state, order, units, backward)
        state = self.chain.sweep_in_turn(key_rows, state, order, units, backward)
        state = self.chain.sweep_at_once(key_blocked, state, came, 1.0)
        return self.chain.move_hyperparameters(key_hyper, state, 1.0, backward)

    def take(self, state: ScoredLabels, particles: Int[Array, " chosen"]) -> ScoredLabels:
        return self.chain.take(state, particles)

    def _log_predictive(self, before: ScoredLabels, found: Candidates, row: Array) -> Float[Array, " particle"]:
        """Return log of the estimate of p(row | the rows before, their labels and scores), nats."""
        seats = before.counts.sum(0) + self.chain.total_concentration()
        weight = found.log_weight.reshape(-1, len(seats))
        carrier = jnp.asarray(self.chain.carriers, weight.dtype)[row]
        return jax.scipy.special.logsumexp(weight, axis=0) - jnp.log(CANDIDATES * seats) + carrier


@evidence_chain.register
def _(
    model: FactorAnalyzerMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> FactorAnalyzerChain:
    return FactorAnalyzerChain.from_data(model, data, size[0], capacity_of(size)[0])


@sequential.register
def _(chain: FactorAnalyzerChain, key: Key[Array, ""]) -> ScoredRowByRow | None:
    if chain.anchor is not None:
        return None
    return ScoredRowByRow(chain, *in_turn(key, np.asarray(chain.weight) > 0))


@along_data.register
def _(chain: FactorAnalyzerChain) -> bool:
    """Return whether the path leads along the rows: True unless it is about a labelling."""
    return chain.anchor is None


@patience.register
def _(chain: FactorAnalyzerChain) -> float:
    """Return 0: no patience is needed, because q of the labels is normalised and as cheap to draw from as the prior."""
    return 0.0


@anchored_chain.register
def _(chain: FactorAnalyzerChain, key: Key[Array, ""], states: Sequence[ScoredLabels]) -> Anchor:
    """Return the chain about the labels and the hyper-parameters that the best particle ended with."""
    log_r, state = settled_labels(chain, key, states)
    starts = {name: gamma_about(jnp.exp(each)) for name, each in state.log_hyper.items()}
    courses = {name: course._replace(start=starts[name]) for name, course in chain.courses.items()}
    about = eqx.tree_at(lambda c: (c.anchor, c.courses), chain, (log_r, courses), is_leaf=lambda leaf: leaf is None)
    return Anchor(about, 0.0)
