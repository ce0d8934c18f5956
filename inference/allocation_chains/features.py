"""Markov chains over which rows have which features, for a linear-Gaussian feature model with an unknown number of
features.

Loadings, and the probabilities of the features, are integrated out. A step draws the number of features K given the
features Z of all rows, from

    p(K | Z, α) ∝ p(K) K!/(K − t)! p(Z | K, α),      t features that some row has,

then redraws each row's features given those of the others (`feature_rows`), and then the hyper-parameters: α by slice
sampling (Neal 2003), and the precisions of loadings and noise given loadings that are sampled for this purpose and then
discarded. So one set of chains gives the posterior of K, and of t, for all K at once.

Redrawing single rows can be trapped in an equivalent coding of the same sums. Say that most rows have a feature with
loadings a, and some have one with loadings b. A chain may hold one with a + b and one with −b instead. Replacing the
second by its exclusive-or with the first gives a and b. So each step proposes such replacements
(`propose_exclusive_or`), accepted by Metropolis–Hastings.

Other codings take more. With features b and c, a chain may hold a third one with loadings b − c: rows that should have
b alone have c and b − c. No single row can change that without fitting worse for a while. Such codings are less
probable by dozens of nats. So chains begin with a *warm-up*. One of its moves takes up to three features away, or
replaces one by an exclusive-or; rows that had what was taken away redraw their other features; two sweeps over all rows
follow; and the result is accepted by the ratio of p(rows, Z) before and after alone. This does not leave the posterior
unchanged, so that no draw of the warm-up is kept. On 80 rows of 20 columns with 6 features, four of 16 chains held 6
features after 400 sweeps, and all 16 after 30 such moves.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.allocation_chains.contract import AllocationState, state_on_host
from lvsearch.inference.allocation_chains.feature_rows import (
    FeatureData,
    FeatureParameters,
    log_feature_prior,
    parameters_at,
)
from lvsearch.inference.annealing.hyperparameters import slice_sample
from lvsearch.inference.generators import split_key
from lvsearch.models.hyperpriors import GammaPrior

EXCLUSIVE_ORS = 4
"""The number of replacements by an exclusive-or that a step proposes."""
MOST_TAKEN = 3
"""The largest number of features that one move of the warm-up takes away."""
SWEEPS_AFTER = 2
"""The number of sweeps in a move of the warm-up, before its result is compared."""
LEFT_BEHIND = 20.0
"""A chain so many nats below the best chain's log posterior, when the warm-up ends, goes on from another's state.

On tables of 43 and 142 rows, log p(rows | features) of chains in one coding differed by up to 10 nats. Where the data
say little, chains that mix freely differ by more: by 80 nats with 108 rows of 6 columns, where some held features that
nearly no cell supports. There they lose a copied state within a block, and chains begun at the truth agreed with them.
"""

Features = Float[Array, "row place"]


class FeatureChain(eqx.Module):
    """Chains over the features of rows, with at most one feature in each of `n_places` array slots (places).

    | field | meaning |
    |---|---|
    | `rows` | the data |
    | `log_prior` | log p(K) of K = 1, 2, … features, (size,), nats |
    | `fixed` | hyper-parameters that are numbers, by name |
    | `priors` | priors of the other hyper-parameters, by name |

    The hyper-parameters are "concentration" (α), "loading_precision" (λ_A) and "noise_precision" (λ_x).
    """

    rows: FeatureData
    log_prior: Float[Array | np.ndarray, " size"]
    fixed: Mapping[str, Any]
    priors: Mapping[str, GammaPrior]
    n_places: int = eqx.field(static=True)

    def most_places(self) -> tuple[int]:
        """Return the number of places that is enough for every allocation: the largest size."""
        return (len(self.log_prior),)

    @property
    def has_warm_up(self) -> bool:
        """True: before draws are kept, features are also taken away."""
        return True

    @property
    def size_given_parts(self) -> None:
        """Return None, since p(K | Z, α) depends on how many rows have each feature, and on α."""
        return None

    def init(self, key: Key[Array, ""], particles: int) -> AllocationState:
        """Return states without any feature, and with hyper-parameters drawn from their priors.

        Chains come to differ by what rows draw in the first sweep. particles: the number of chains.
        """
        log_hyper = {
            name: jnp.log(jax.random.gamma(each, prior.shape, (1, particles))) - jnp.log(prior.rate)
            for each, (name, prior) in zip(split_key(key, 3), self.priors.items(), strict=False)
        }
        none = jnp.zeros((self.rows.n_rows, self.n_places, particles), jnp.int8)
        return AllocationState(none, log_hyper, jnp.zeros(particles))

    def resume(
        self, labels: np.ndarray, log_hyper: Mapping[str, np.ndarray], cells: np.ndarray | None = None
    ) -> AllocationState:
        """Return states with these features, (row, place, particle), and hyper-parameters; free places are added.

        cells: not used; missing cells are summed out.
        """
        more = self.n_places - labels.shape[1]
        wider = np.pad(labels, ((0, 0), (0, more), (0, 0)))
        return state_on_host(wider, log_hyper)

    def step(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after draws of K, of all rows' features one row after another, some replacements by an
        exclusive-or, and draws of the hyper-parameters.
        """
        return self._each(self._step_one, key, state)

    def warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after one move of the warm-up (top of this file), and draws of the hyper-parameters."""
        return self._each(self._warm_up_one, key, state)

    def end_warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states, where a chain that was left behind (`LEFT_BEHIND`) has the state of one that was not."""
        log_posterior = self.log_posterior(state)
        behind = ~(log_posterior >= log_posterior.max() - LEFT_BEHIND)
        others = jax.random.categorical(key, jnp.where(behind, -jnp.inf, 0.0), shape=behind.shape)
        source = jnp.where(behind, others, jnp.arange(len(behind)))
        return jax.tree.map(lambda leaf: leaf[..., source], state)

    def log_posterior(self, state: AllocationState) -> Float[Array, " particle"]:
        """Return log p(rows, features, hyper-parameters) of each particle, K summed out, up to a constant, nats.

        Features that the same rows have are not told apart in it: K!/(K − t)! orders are counted for any Z.
        """
        return jax.vmap(self._log_posterior, (2, 1))(state.labels, state.log_hyper)

    def counts(self, labels: Array) -> Float[Array, "place particle"]:
        """Return how many rows have the feature in each place, (place, particle)."""
        return labels.sum(0, dtype=jnp.result_type(float))

    def part_counts(self, labels: Int[Array, "row place particle"]) -> Int[Array, "one particle"]:
        """Return the number of features that some row has, (1, particle)."""
        return (self.counts(labels) > 0.5).sum(0, dtype=jnp.int32)[None]

    def groups(self, labels: Int[Array, "row place particle"]) -> Int[Array, "none particle"]:
        """Return an array without rows, (0, particle): a row may have several features."""
        return jnp.zeros((0, labels.shape[-1]), jnp.int32)

    def log_sizes(self, state: AllocationState) -> Float[Array, "size particle"]:
        """Return log p(K | Z, α) of K = 1, 2, … features, (size, particle), nats."""
        scores = jax.vmap(self._size_scores, (1, 1), 1)(self.counts(state.labels), state.log_hyper)
        return jax.nn.log_softmax(scores, axis=0)

    # ── one particle ────────────────────────────────────────────────────────────────────────────────────────────────

    def _each(self, move: Any, key: Array, state: AllocationState) -> AllocationState:
        """Return the states after `move` of each particle: (key, features, log hyper-parameters) -> the two moved."""
        keys = jax.random.split(key, state.labels.shape[2])
        features = jnp.moveaxis(state.labels, 2, 0).astype(jnp.result_type(float))
        features, log_hyper = jax.vmap(move, (0, 0, 1), (0, 1))(keys, features, state.log_hyper)
        log_rows = jax.vmap(self._log_rows, (0, 1))(features, log_hyper)
        return AllocationState(jnp.moveaxis(features, 0, 2).astype(state.labels.dtype), log_hyper, log_rows)

    def _step_one(self, key: Array, features: Features, log_hyper: Any) -> tuple[Features, Any]:
        """Return one particle's features and log hyper-parameters after a step."""
        key_size, key_sweep, key_replace, key_hyper = jax.random.split(key, 4)
        parameters = self._draw_parameters(key_size, features, log_hyper)
        features = self.rows.sweep(key_sweep, features, parameters)

        def exchange(index: Array, now: tuple[Features, Array]) -> tuple[Features, Array]:
            key_pair, key_accept = jax.random.split(jax.random.fold_in(key_replace, index))
            proposed = propose_exclusive_or(key_pair, now[0])
            log_joint = self._log_joint(proposed, parameters)
            # The exclusive-or of two equal features is empty, and no reverse move would bring it back. With t
            # unchanged, the numbers of orders of features and of places are the same before and after.
            same_number = (proposed.sum(0) > 0.5).sum() == (now[0].sum(0) > 0.5).sum()
            accepted = same_number & (jnp.log(jax.random.uniform(key_accept)) < log_joint - now[1])
            return jnp.where(accepted, proposed, now[0]), jnp.where(accepted, log_joint, now[1])

        features, _ = jax.lax.fori_loop(0, EXCLUSIVE_ORS, exchange, (features, self._log_joint(features, parameters)))
        return features, self._draw_hyper(key_hyper, features, log_hyper, parameters)

    def _warm_up_one(self, key: Array, features: Features, log_hyper: Any) -> tuple[Features, Any]:
        """Return one particle's features and log hyper-parameters after a move of the warm-up."""
        keys = jax.random.split(key, 7)
        parameters = self._draw_parameters(keys[0], features, log_hyper)

        def take_one(index: Array, now: Features) -> Features:
            key_place, key_rows = jax.random.split(jax.random.fold_in(keys[1], index))
            in_use = now.sum(0) > 0.5
            place = jax.random.categorical(key_place, jnp.where(in_use, 0.0, -jnp.inf))
            return jnp.where(in_use.any(), self.rows.without_feature(key_rows, now, parameters, place), now)

        def sweep(index: Array, now: Features) -> Features:
            return self.rows.sweep(jax.random.fold_in(keys[2], index), now, parameters)

        # In a quarter of the moves nothing is taken away, but one feature is replaced by an exclusive-or.
        taken = jax.random.randint(keys[3], (), 0, MOST_TAKEN + 1)
        changed = jnp.where(taken == 0, propose_exclusive_or(keys[4], features), features)
        changed = jax.lax.fori_loop(0, taken, take_one, changed)
        changed = jax.lax.fori_loop(0, SWEEPS_AFTER, sweep, changed)
        gain = self._log_posterior(changed, log_hyper) - self._log_posterior(features, log_hyper)
        features = jnp.where(jnp.log(jax.random.uniform(keys[5])) < gain, changed, features)
        return features, self._draw_hyper(keys[6], features, log_hyper, parameters)

    def _numbers(self, log_hyper: Any) -> dict[str, Array]:
        """Return the hyper-parameters of one particle by name."""
        drawn = {name: jnp.exp(each[0]) for name, each in log_hyper.items()}
        return {**{name: jnp.asarray(each, jnp.result_type(float)) for name, each in self.fixed.items()}, **drawn}

    def _draw_parameters(self, key: Array, features: Features, log_hyper: Any) -> FeatureParameters:
        """Return the parameters under which one particle's rows are redrawn, with a K drawn given its features."""
        drawn = jax.random.categorical(key, self._size_scores(features.sum(0), log_hyper))
        return parameters_at(self._numbers(log_hyper), 1.0 + drawn)

    def _size_scores(self, counts: Float[Array, " place"], log_hyper: Any) -> Float[Array, " size"]:
        """Return log [p(K) K!/(K − t)! p(Z | K, α)] of K = 1, 2, … features, t of them in use, (size,), nats."""
        size, used = 1.0 + jnp.arange(len(self.log_prior)), (counts > 0.5).sum()
        ways = gammaln(size + 1) - gammaln(jnp.maximum(size - used, 0.0) + 1)
        beta_shape = self._numbers(log_hyper)["concentration"] / size
        return jnp.asarray(self.log_prior) + ways + log_feature_prior(counts, beta_shape, size, self.rows.n_rows)

    def _log_joint(self, features: Features, parameters: FeatureParameters) -> Float[Array, ""]:
        """Return log p(rows, features | K, hyper-parameters) of one particle, nats, for one order of its K features."""
        prior = log_feature_prior(features.sum(0), parameters.beta_shape, parameters.n_features, self.rows.n_rows)
        return self.rows.log_marginal(features, parameters) + prior

    def _log_rows(self, features: Features, log_hyper: Any) -> Float[Array, ""]:
        """Return log p(rows | features, hyper-parameters) of one particle, nats."""
        return self.rows.log_marginal(features, parameters_at(self._numbers(log_hyper), jnp.asarray(1.0)))

    def _log_posterior(self, features: Array, log_hyper: Any) -> Float[Array, ""]:
        """Return log p(rows, features, hyper-parameters) of one particle, K summed out, up to a constant, nats."""
        features = features.astype(jnp.result_type(float))
        of_hyper = sum(
            ((self.priors[name].shape - 1) * each - self.priors[name].rate * jnp.exp(each)).sum()
            for name, each in log_hyper.items()
        )
        of_features = logsumexp(self._size_scores(features.sum(0), log_hyper))
        return self._log_rows(features, log_hyper) + of_features + of_hyper

    def _draw_hyper(
        self, key: Array, features: Features, log_hyper: Any, parameters: FeatureParameters
    ) -> dict[str, Array]:
        """Return the log hyper-parameters that have priors after one draw of each, given features and K."""
        keys = jax.random.split(key, 4)
        moved, counts = dict(log_hyper), features.sum(0)
        if "concentration" in moved:
            shape, rate = self.priors["concentration"]

            def log_density(log_alpha: Float[Array, "number particle"]) -> Array:
                beta_shape = jnp.exp(log_alpha) / parameters.n_features
                n_features = jnp.full_like(beta_shape, parameters.n_features)
                of_features = log_feature_prior(counts, beta_shape, n_features, len(features))
                return of_features + shape * log_alpha - rate * jnp.exp(log_alpha)

            moved["concentration"] = slice_sample(keys[0], moved["concentration"][:, None], log_density)[:, 0]
        loadings = self.rows.draw_loadings(keys[1], features, parameters)
        in_use = (counts > 0.5)[:, None]  # the loadings of unused features are integrated out
        if "loading_precision" in moved:
            squares, number = jnp.where(in_use, loadings**2, 0.0).sum(), in_use.sum() * loadings.shape[1]
            moved["loading_precision"] = self._draw_log_precision(keys[2], "loading_precision", squares, number)
        if "noise_precision" in moved:
            seen = jnp.asarray(self.rows.observed)
            residual = (jnp.asarray(self.rows.values) - features @ loadings) * seen
            moved["noise_precision"] = self._draw_log_precision(
                keys[3], "noise_precision", (residual**2).sum(), seen.sum()
            )
        return moved

    def _draw_log_precision(self, key: Array, name: str, squares: Array, number: Array) -> Float[Array, " number"]:
        """Return the log of a precision, (1,), drawn given the sum of squares of so many Gaussian numbers of mean 0."""
        shape, rate = self.priors[name]
        drawn = jax.random.gamma(key, shape + 0.5 * number, dtype=jnp.result_type(float))
        return (jnp.log(drawn) - jnp.log(rate + 0.5 * squares))[None]


def propose_exclusive_or(key: Key[Array, ""], features: Features) -> Features:
    """Return the features with one replaced by its exclusive-or with another: rows have it that had one of the two.

    Both are drawn from the features in use; with fewer than two of these nothing changes. The same two replaced again
    give the features as they were, so that the proposal is as probable as its reverse while both stay in use.
    """
    key_replaced, key_other = jax.random.split(key)
    in_use = features.sum(0) > 0.5
    replaced = jax.random.categorical(key_replaced, jnp.where(in_use, 0.0, -jnp.inf))
    others = in_use & (jnp.arange(len(in_use)) != replaced)
    other = jax.random.categorical(key_other, jnp.where(others, 0.0, -jnp.inf))
    column = jnp.abs(features[:, replaced] - features[:, other])
    return jnp.where(others.any(), features.at[:, replaced].set(column), features)
