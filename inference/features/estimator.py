"""The estimator of the Indian buffet process: mean field that begins with features from a short run of chains.

Mean field from a random start is trapped in local optima, where two features share the effect of one. So a fit begins
with features that a few short chains at its size find, with loadings integrated out (`allocation_chains.features`).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.inference.allocation_chains import AllocationState, FeatureChain, advance, feature_chain
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.estimator import GenericEstimator, needs_double
from lvsearch.inference.engine.meanfield import Beliefs, MeanField, ascend, cast, expected_statistics, resident_sweep
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.inference.generators import fold_in
from lvsearch.inference.sharding import one_after_another
from lvsearch.models.ibp import IBP
from lvsearch.models.kernels import kernel

CHAINS, BLOCKS = 4, 3
"""The number of chains of a fit, and of blocks of warm-up that each makes."""
PARAMETER_SWEEPS = 10
"""The number of sweeps over the parameters with the rows' features held at the start.

The loadings of one feature are updated given those of the others, and begin at 0. With a single sweep two of three
fits of 200 × 30 cells ended 1,236 and 1,695 nats lower.
"""
LOG_ODDS = 6.0
"""The log odds with which a fit begins that a row has a feature which it has in the chain; −6 for the others."""


class FeatureEstimator(GenericEstimator):
    """Fits binary features of rows by the generic engine, from the features that chains find."""

    model: IBP

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return the fit by coordinate ascent from the most probable of the chains' last states.

        size: (number of features,).
        key: the random key of the chains.
        start: not used. A fit always begins with what the chains find.
        """
        capacity, double = capacity_of(size), needs_double(self.data)
        features = self.likely_features(size, key)
        with jax.enable_x64(double):
            begin = self._start(features, size, capacity, np.float64 if double else np.float32)
            fitted = ascend(
                self.model, self.data, begin, size, capacity=capacity, sweeps=self.sweeps, tolerance=self.tolerance
            )
        return self._finished_estimate(fitted, size, capacity, len(fitted.trace))

    def likely_features(self, size: tuple[int, ...], key: Array) -> Bool[np.ndarray, "row place"]:
        """Return which rows have which features in the most probable of the chains' last states, (row, place).

        size: (number of features,). key: the random key of the chains.
        """
        log_prior = np.full(capacity_of(size), -np.inf)  # sizes of one capacity share their program
        log_prior[size[0] - 1] = 0.0
        with jax.enable_x64(True), one_after_another():
            chain = feature_chain(self.model, self.data, log_prior, size[0])
            state = chain.init(key, CHAINS)
            for block in range(BLOCKS):
                state, *_ = advance(chain, fold_in(key, block), state, warming_up=True)
            best = int(np.argmax(np.asarray(log_posterior(chain, state))))
        return np.asarray(state.labels)[:, :, best] > 0

    def _start(
        self, features: Bool[np.ndarray, "row place"], size: tuple[int, ...], capacity: tuple[int, ...], dtype: type
    ) -> MeanField:
        """Return the start of an ascent: q(features) near the given ones, and the q(globals) that follows."""
        in_use = features[:, features.any(0)]
        wanted = np.zeros((len(features) + 1, capacity[0]), bool)  # a last row for padding, whose number is −1
        wanted[:-1, : in_use.shape[1]] = in_use
        site, on = self.model.locals()["features"], self.model.active(size, capacity)

        def beliefs(ids: np.ndarray) -> Beliefs:
            """Return q(features) of the rows of one batch."""
            natural = jnp.asarray(np.where(wanted[ids], LOG_ODDS, -LOG_ODDS), dtype)
            mean = jax.vmap(lambda each: expected_statistics(site, each, on))(natural)
            return Beliefs({"features": natural}, {"features": mean})

        batches = cast(self.data, dtype).batches
        local = tuple(beliefs(ids) for ids in self.data.unit_ids)
        means = tuple(each.mean for each in local)
        parameters = blank_globals(self.model, self.data.extents, size, capacity, dtype)
        for _ in range(PARAMETER_SWEEPS):
            parameters = resident_sweep(self.model, parameters, batches, means, size, capacity=capacity)
        return MeanField(parameters, local, (), False)


@kernel(once=True)
def log_posterior(chain: FeatureChain, state: AllocationState) -> Float[Array, " particle"]:
    """Return log p(rows, features, hyper-parameters) of each particle, as one program.

    Outside of one, each of its operations would be compiled by itself: 130 programs, a third of a first fit.
    """
    return chain.log_posterior(state)
