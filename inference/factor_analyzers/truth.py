"""The latents of simulated mixtures of factor analysers as states, and the recorder of their chain."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.evidence.recorders import OCCUPIED
from lvsearch.inference.evidence.simulation import Simulated, true_state
from lvsearch.inference.factor_analyzers.chain import FactorAnalyzerChain
from lvsearch.inference.factor_analyzers.regressions import ScoredLabels
from lvsearch.inference.sampling.trace import Quantity, Recorder, recorder, rows_of_units


@true_state.register
def _true_state_of_factor_analyzers(chain: FactorAnalyzerChain, simulated: Simulated, particles: int) -> ScoredLabels:
    """Return a state whose particles all have the simulated component and scores of every row, and hyper-parameters.

    chain: the chain whose state it is.
    simulated: the data set with the latent variables that it was simulated from.
    particles: the number of copies.
    """
    labels = np.argmax(simulated.locals["component"], -1)
    scores = np.asarray(simulated.locals["scores"].value, np.float64)[np.arange(len(labels)), labels]

    def copies(leaf: Any) -> Array:
        """Return an array with `particles` copies of `leaf` on a new last axis."""
        return jnp.asarray(np.repeat(np.asarray(leaf)[..., None], particles, axis=-1))

    log_hyper = {name: np.atleast_1d(simulated.globals[name].log_value) for name in chain.courses}
    each = {name: copies(np.asarray(value, np.float64)) for name, value in log_hyper.items()}
    return chain.state_of(copies(labels.astype(np.int32)), copies(scores), each)


class ScoredRecorder(Recorder):
    """Records the quantities that people ask about in a chain over labels and scores of rows.

    It records the hyper-parameters that have priors (in the components' coordinates), the number of `occupied`
    components and the number of `rows` in each. If `order` is given, it records the `component` of each row too.

    quantities: names and axes of the recorded values.
    order: the position in the chain of each row of the data; None if components of rows are not recorded.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: FactorAnalyzerChain, state: ScoredLabels) -> tuple[Array, ...]:
        """Return the recorded values of every particle, particles first, in the order of `quantities`.

        Padding has weight 0, so no component counts it.
        """
        rows = jnp.round(state.counts).astype(jnp.int32).T
        axes = chain.component.hyper_axes
        hyper = [
            jnp.exp(state.log_hyper[name]).T if axes[name] else jnp.exp(state.log_hyper[name][0])
            for name in axes
            if name in chain.courses
        ]
        each = () if self.order is None else (state.labels[self.order].T,)
        return (*hyper, (rows > 0).sum(1, dtype=jnp.int32), rows, *each)


@recorder.register
def _recorder_of_factor_analyzers(chain: FactorAnalyzerChain, data: Dataset, *, units: bool) -> ScoredRecorder:
    """Return the recorder of a chain over labels and scores of rows.

    data: the data set that the chain was made of.
    units: True to record the component of every row as well.
    """
    axes = chain.component.hyper_axes
    hyper = [Quantity(n, axes[n], (data.extents["dim"],) * len(axes[n]), False) for n in axes if n in chain.courses]
    rows = Quantity(OCCUPIED, (), (), False), Quantity("rows", ("component",), (int(chain.size),), True)
    each = (Quantity("component", ("unit",), (data.n_units,), True),) if units else ()
    return ScoredRecorder((*hyper, *rows, *each), rows_of_units(data) if units else None)
