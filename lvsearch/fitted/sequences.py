"""The class `FittedSequences`: a fitted hidden Markov model, with its states, transitions, paths and samples."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from lvsearch.comparison.similarity import ComponentMembers, row_affinity
from lvsearch.data.groups import Groups
from lvsearch.fitted.model import FittedModel, column_names_of, comparable_fit
from lvsearch.inference.engine.describing import site_value
from lvsearch.inference.sequences import most_probable_paths
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.plain_arguments import as_list, checked_seed, whole_number
from lvsearch.models.units import Row

STATE, SEQUENCE = "state", "sequence"


@dataclass(frozen=True, repr=False)
class FittedSequences(FittedModel[HiddenMarkov]):
    """A hidden Markov model, fitted at one size (number of states).

    Parameters are at their posterior means, in the units of the data. A unit is one sequence of rows. `transform`
    returns the probability of each state at every row, (rows, states) for each sequence. `score_units` returns log
    p(sequence | parameters) exactly, in nats, summed over all paths of states.
    """

    _useful_calls: ClassVar[tuple[str, ...]] = ("paths()", "transitions()", "means()", "dwell_times()", "sample([100])")

    def start(self) -> pd.Series:
        """Return the probability of each state at the beginning of a sequence, as a series (states,)."""
        return pd.Series(self._probabilities("start"), index=self._states, name="start")

    def transitions(self) -> pd.DataFrame:
        """Return the transition matrix, (states, states): the probability of each next state (column) after each state.

        Rows sum to 1.
        """
        return pd.DataFrame(self._probabilities("transitions"), index=self._states, columns=self._states.rename("to"))

    def dwell_times(self) -> pd.Series:
        """Return the mean number of rows that a stay in each state lasts, as a series (states,).

        It is 1 / (1 − the probability of staying), and infinite for a state that is never left.
        """
        stays = np.diag(self._probabilities("transitions"))
        with np.errstate(divide="ignore"):  # a state that is never left
            return pd.Series(1 / (1 - stays), index=self._states, name="rows")

    def means(self) -> pd.DataFrame:
        """Return the mean of a row in each state, as a table (states, columns), in the units of the data."""
        with jax.enable_x64(True):
            means, _ = jax.vmap(self.model.components.moments)(self._statistics())
        return pd.DataFrame(np.asarray(means), index=self._states, columns=list(self._data_as(Groups, None).columns))

    def members(self) -> ComponentMembers:
        """Return the probability of each state at each row of all training sequences, (rows, states)."""
        return super().members()._replace(noun=self._data_as(Groups, None).rows.nouns.unit)

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "state other"] | None:
        """Return the Bhattacharyya coefficient ∫ √(p q) of each state of this fit with each state of another.

        p and q are the densities of a row in the two states. The coefficient is 1 for equal densities and 0 for
        densities without overlap. It is estimated by Monte Carlo.

        other: a fitted hidden Markov model of rows with the same columns and the same kind of component.

        Returns (states of this fit, states of `other`), or None for components that cannot draw rows.
        """
        other = comparable_fit(FittedSequences, other, self.training)
        rows = self._data_as(Groups, None).rows
        with jax.enable_x64(True):
            statistics = self._statistics(), other._statistics()
        return row_affinity(self.model.components, *statistics, Row(rows.filled, rows.observed), jax.random.key(0))

    def component_names(self) -> tuple[str, ...]:
        """Return a name for each state, such as "petal width 0.25, petal length 1.5".

        A name has the two columns in which the state's mean is farthest from the data's mean, with the state's means.
        Kinds of components without means give "component 0", ….
        """
        try:
            return column_names_of(self.means(), self._data_as(Groups, None).rows, relative=True)
        except ValueError:  # a user's kind of component need not define `moments`
            return super().component_names()

    def paths(self, data: Any = None) -> list[Int[np.ndarray, " row"]]:
        """Return the most probable path of states of each sequence (Viterbi), as one array (rows,) per sequence.

        data: the sequences; by default the training data.

        The most probable state of each row by itself is `transform(data)[n].argmax(1)`. Put together, these states may
        form a path that is impossible.
        """
        return most_probable_paths(self.estimate, self._data_as(Groups, data).dataset())

    def sample(self, lengths: Iterable[int], seed: int = 0) -> pd.DataFrame:
        """Draw new sequences from the model, with parameters at their posterior means.

        lengths: the number of rows of each sequence, at least 1.

        Returns a table with a row per row of a sequence: `sequence` (its number), `state` (the hidden state), then the
        columns of the data. `lv.Groups.from_frame(frame.drop(columns="state"), group="sequence")` makes data of it.
        Rows of counts get the totals of training rows drawn at random. Columns of the data that have one of these two
        names stay too, so that a name may stand twice.

        Raises ValueError for no list of lengths, for lengths below 1 and for a seed that is none.
        """
        wanted = [whole_number("lengths", length, least=1) for length in as_list("lengths", lengths)]
        if not wanted:
            raise ValueError("got lengths=[], expected the number of rows of each sequence, such as [100, 100]")
        seed = checked_seed(seed)
        rng, key = np.random.default_rng(seed), jax.random.key(seed)
        start, transitions = (self._probabilities(name) for name in ("start", "transitions"))
        states: list[int] = []
        for length in wanted:
            for place in range(length):
                chances = start if place == 0 else transitions[states[-1]]
                states.append(int(rng.choice(len(start), p=chances)))
        like = self._data_as(Groups, None).rows
        totals = like.filled[rng.integers(len(like.filled), size=len(states))]
        with jax.enable_x64(True):
            parameters = jax.tree.map(lambda leaf: leaf[np.array(states)], self._statistics())
            keys = jax.random.split(key, len(states))
            rows = jax.vmap(self.model.components.draw)(keys, parameters, Row(totals, np.ones(totals.shape, bool)))
        frame = pd.DataFrame(np.asarray(rows), columns=list(like.columns))
        frame.insert(0, STATE, states, allow_duplicates=True)  # the data may have a column of this name
        frame.insert(0, SEQUENCE, np.repeat(np.arange(len(wanted)), wanted), allow_duplicates=True)
        return frame

    @property
    def _states(self) -> pd.Index:
        """The numbers of the states, 0, 1, …, as a pandas index (states,) for the rows of tables."""
        return pd.RangeIndex(self.estimate.size[0], name=STATE)

    def _probabilities(self, name: str) -> np.ndarray:
        """Return the posterior mean of the start probabilities (states,) or of the transition matrix (states, states).

        name: "start" or "transitions". The last axis sums to 1, in float64.
        """
        values = np.asarray(site_value(self.estimate, name), np.float64)
        return values / values.sum(-1, keepdims=True)

    def _statistics(self) -> Any:
        """Return the sufficient statistics of the states' parameters at their posterior means, in float64.

        It is a pytree of arrays with states on the first axis. Call it inside `jax.enable_x64(True)`.
        """
        return self.model.components.family.point(jax.tree.map(jnp.asarray, self.estimate.natural["components"]))
