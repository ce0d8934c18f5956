"""The class `FittedModel`: a model fitted at one size, with methods to describe data, to score data and to make tables.

Each type of model can have a subclass with further methods, such as `FittedTopics.topics` (`lvsearch.fitted.kinds`).

`print(fit)` and a notebook show a card: what the fit is, its evidence, its components, and what to call next. For the
card nothing is inferred and no unit is described: everything is read off the fitted parameters and the sizes of the
data. Subclasses for rows name their components by columns (`column_names_of`), as topics are named by words.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.comparison.similarity import ComponentMembers
from lvsearch.data.base import Data
from lvsearch.data.kinds import unit_facts
from lvsearch.data.points import Points
from lvsearch.fitted.occupied_posterior import OccupiedPosterior, occupied, occupied_table
from lvsearch.fitted.stored_fits import FitParts, save_parts
from lvsearch.functional import FittedFunctions
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.engine.describing import Described, bound_units, describe_units, site_value
from lvsearch.inference.engine.estimate import Estimate, data_ceiling
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.generators import fold_in, key_of
from lvsearch.models.components.categorical import question_of
from lvsearch.models.contract import Model
from lvsearch.models.families import Categorical
from lvsearch.models.kernels import copied_arrays
from lvsearch.models.plain_arguments import as_path, checked_seed, shortened_repr, whole_number
from lvsearch.pictures.fact_card import Fact, html_card, text_card
from lvsearch.sizing.evidence import Evidence, evidence_below
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import with_noun

NAMED_BY = 2
"""The number of columns in a name."""
LEAST_LOADING = 1e-3
"""The smallest loading that a name has, in standard deviations of its column."""

UNITS_AT_ONCE, OBSERVATIONS_AT_ONCE = 20_000, 4_000_000
"""The most units, and the most tokens or cells, that `unusual` draws and scores at once."""

Kind = TypeVar("Kind", bound=Data)
Self = TypeVar("Self", bound="FittedModel")
ModelType = TypeVar("ModelType", bound=Model)


def column_names_of(values: pd.DataFrame, rows: Points, *, relative: bool) -> tuple[str, ...]:
    """Return a name for each component, such as "petal width 0.25, petal length 1.5".

    A name has the two columns in which the component stands out most, and the component's values in these columns.
    A column's distance counts in standard deviations of the data. Of columns that stand for the answers to one
    question, a name has one: the answer that is more frequent in the component than in the data. A component of
    loadings that are all below `LEAST_LOADING` has the name "adds to no column".

    values: the value of each component in each column, (components, columns), in the units of the data.
    rows: the data, from which the mean and the standard deviation of each column are computed.
    relative: True measures distance from the mean of the data, for means of clusters; False from 0, for loadings.

    Returns one name per component, in the order of the rows of `values`.
    """
    with np.errstate(invalid="ignore"):
        known = np.maximum(rows.observed.sum(axis=0), 1)
        mean = rows.filled.sum(axis=0) / known
        spread = np.sqrt((np.where(rows.observed, rows.filled - mean, 0.0) ** 2).sum(axis=0) / known)
    matrix = values.to_numpy(np.float64)
    questions = _questions(rows)
    is_answer = np.array([question is not None for question in questions])
    distance = matrix - mean if relative else matrix
    apart = np.where(is_answer & relative, distance, np.abs(distance)) / np.maximum(spread, 1e-300)
    names = []
    for numbers, standing in zip(matrix, apart, strict=True):
        order = np.argsort(-standing, kind="stable")
        if not relative:
            order = order[standing[order] >= LEAST_LOADING]
        columns = _one_per_question(order.tolist(), questions)
        told = ", ".join(f"{values.columns[column]} {numbers[column]:.3g}".replace("-", "−") for column in columns)
        names.append(told or "adds to no column")
    return tuple(names)


def _questions(rows: Points) -> list[str | None]:
    """Return the question that each column is an answer to, or None for a column of numbers, in the columns' order.

    Columns named "question=category" are answers if they hold 0 and 1 only, and the question has two or more of them.
    """
    filled = rows.filled
    is_binary = ((filled == 0) | (filled == 1)).all(axis=0)
    asked = [question_of(str(name)) if binary else None for name, binary in zip(rows.columns, is_binary, strict=True)]
    count = Counter(asked)
    return [question if count[question] > 1 else None for question in asked]


def _one_per_question(order: list[int], questions: list[str | None]) -> list[int]:
    """Return the first `NAMED_BY` numbers of `order`, of the answers to a question only the first."""
    chosen: list[int] = []
    for column in order:
        if len(chosen) == NAMED_BY:
            break
        question = questions[column]
        if question is None or all(questions[other] != question for other in chosen):
            chosen.append(column)
    return chosen


MOST_COMPONENTS = 20
"""The largest number of components that is listed."""
MOST_LETTERS = 100
"""The largest number of letters of a component's name that is shown."""
MOST_NUMBERS = 20_000_000
"""The number of parameters and data above which components are not named, since naming them would take seconds."""


def fit_headline(fit: Any) -> str:
    """Return what a fit is in one line: "LDA with 12 topics, fitted to 773 documents (105,000 tokens)"."""
    nouns, units, observations = fit.training.nouns, fit.training.n_units, fit.training.n_observations
    return (
        f"{type(fit.model).__name__} with {_size_in_words(fit, fit.size)}, fitted to "
        f"{_number_of(units, nouns.unit, nouns.units)} "
        f"({_number_of(observations, nouns.observation, nouns.observations)})"
    )


def fit_facts(fit: Any) -> tuple[Fact, ...]:
    """Return the facts about a fit that stand below its headline."""
    smaller = () if fit.estimate.size == fit.size else (Fact("note", _smaller_in_words(fit)),)
    return (
        Fact("evidence", _evidence_in_words(fit)),
        *smaller,
        *_component_facts(fit),
        Fact("model", fit.model.describe()),
        *unit_facts(fit.model, fit.training),
        Fact("try", ", ".join(f"fit.{call}" for call in fit._calls_to_try())),
    )


def _size_in_words(fit: Any, size: tuple[int, ...]) -> str:
    """Return a size with its nouns, such as "12 topics", "3 row clusters × 2 column clusters" or "truncation 30"."""
    names = [name.replace("_", " ") for name in fit.model.size_names]
    return " × ".join(
        f"{name} {number}" if name == "truncation" else with_noun(number, name)
        for number, name in zip(size, names, strict=True)
    )


def _smaller_in_words(fit: Any) -> str:
    """Return a sentence for a size that the search recorded with the better fit of a smaller size."""
    used = _size_in_words(fit, fit.estimate.size)
    return f"this is the fit of {used}: no fit of {_size_in_words(fit, fit.size)} was better, the others are empty"


def _evidence_in_words(fit: Any) -> str:
    """Return the proved bounds on the log evidence of a fit, in nats, and what they are bounds on."""
    low, high = fit.evidence.lower, fit.evidence.upper
    known = [
        *([f"at least {_nats(low, math.floor)}"] if low > -math.inf else []),
        *([f"at most {_nats(high, math.ceil)}"] if high < math.inf else []),
    ]
    given = "these estimated parameters" if _is_plug_in(fit.model) else _size_in_words(fit, fit.size)
    told = f"log p(data | {given})"
    if low == high:
        return f"{told} is {_nats(low, round)} nats"
    return f"{told} is {' and '.join(known)} nats (proved)" if known else f"nothing is proved about {told}"


def _is_plug_in(model: Any) -> bool:
    """Return True if the model's shared parameters are estimated, not integrated out: then plug_in() changes nothing.

    Models without a plug-in form raise ValueError there, and a user's model may raise anything.
    """
    try:
        estimated = model.plug_in().globals()
    except Exception:
        return False
    known = model.globals()
    return known.keys() == estimated.keys() and all(
        type(site.family) is type(estimated[name].family) for name, site in known.items()
    )


def _component_facts(fit: Any) -> tuple[Fact, ...]:
    """Return a fact for each of the first 20 components, with its name, and one that counts the others.

    () where the components have no names of their own, or where making the names would take long.
    """
    names = _names(fit)
    if not names:
        return ()
    noun = with_noun(1, fit.model.size_names[0].replace("_", " ")).removeprefix("1 ")
    noun = fit._component_noun if noun == "truncation" else noun
    shown = [Fact(f"{noun} {number}", _shortened(name)) for number, name in enumerate(names[:MOST_COMPONENTS])]
    left_out = len(names) - len(shown)
    return (*shown, *([Fact("…", f"{left_out} more: fit.component_names()")] if left_out else []))


def _names(fit: Any) -> tuple[str, ...]:
    """Return the names of the components, or () where they have none or where making them would fail or take long."""
    if fit._numbers_read_by_names() > MOST_NUMBERS:
        return ()
    try:
        names = fit.component_names()
    except Exception:  # a user's model may not be of the form that names need; a print must not fail for that
        return ()
    return () if names == tuple(f"component {number}" for number in range(len(names))) else names


def _shortened(name: str) -> str:
    """Return a name cut to at most 100 letters."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def _number_of(number: int, noun: str, nouns: str) -> str:
    """Return a number with its noun, such as "1 document" or "105,000 tokens"."""
    return f"{number:,} {noun if number == 1 else nouns}"


def _nats(value: float, to_whole: Callable[[float], int]) -> str:
    """Return a number of nats as text: whole numbers from 1,000 on, one decimal below, and a true minus sign.

    to_whole: floor for a lower bound, ceil for an upper one, so that the bound in words is proved too; else round.
    """
    text = f"{to_whole(value):,}" if abs(value) >= 1000 else f"{to_whole(value * 10) / 10:,.1f}"
    return text.replace("-", "−")


@dataclass(frozen=True, repr=False)
class FittedModel(Generic[ModelType]):
    """A model fitted at one size, with its training data. Scores are in nats; higher is better.

    | field | meaning |
    |---|---|
    | `size` | the size asked for, one number per size variable, such as (10,) for ten topics |
    | `evidence` | lower and upper end of log p(training data | size), nats |
    | `estimate` | the fitted variational distribution q of the parameters |
    | `training` | the data that the model was fitted to |

    A *unit* is one observation of the model: a document, a row or a sequence. New data are of the same kind as the
    training data, with the same words or columns; or of a form from which such data can be made, such as a matrix.
    Other data raise ValueError.

    A search may record the fit of a smaller size (a *witness*) in the place of a worse fit of this size.
    `estimate.size` is then the size of the witness. The additional components are empty, and tables and `transform`
    leave them out.

    `print(fit)` shows a few lines, and a notebook a card: the model, proved bounds on the evidence, the components by
    name, and methods to try.
    """

    _useful_calls: ClassVar[tuple[str, ...]] = ("tables()", "transform(new)", "score(new)", 'save("folder")')
    """The calls that `print(fit)` names; each subclass has its own."""
    _component_noun: ClassVar[str] = "component"
    """The noun by which `print(fit)` calls a component of a process, whose size is a truncation."""

    size: Size
    evidence: Evidence
    estimate: Estimate
    training: Data

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError for an attribute that this fit does not have; the message lists the ones that it has.

        Python calls it only for missing attributes, such as `topics` on a fit of clusters.
        """
        # the fields themselves are missing while the object is being made
        if name.startswith("_") or name in ("estimate", "training", "size", "evidence"):
            raise AttributeError(name)
        able = ", ".join(each for each in dir(type(self)) if not each.startswith("_"))
        raise AttributeError(f"a fit of {type(self.estimate.model).__name__} has no {name!r}; it has {able}")

    def __repr__(self) -> str:
        """Return a few lines that say what was fitted; nothing is computed from the data, and nothing is raised."""
        try:
            return text_card(fit_headline(self), fit_facts(self))
        except Exception:  # half-made objects, and models of a user's own: a print must not hide another error
            return object.__repr__(self)

    def _repr_html_(self) -> str | None:
        """Return the card that a notebook shows, with the same facts as `print(fit)`; None shows those as text."""
        try:
            return html_card(fit_headline(self), fit_facts(self))
        except Exception:
            return None

    @property
    def model(self) -> ModelType:
        """The model (its type and hyper-parameters) that was fitted, without its fitted parameters."""
        return cast(ModelType, self.estimate.model)  # `lvsearch.fitted.kinds` chooses the class of a fit by its model

    def save(self, folder: str | Path) -> None:
        """Write the fit and its training data to a new folder, which `lv.load_fit` reads; no pickle is used.

        Either the whole folder appears or none.

        Raises FileExistsError if the folder exists, ValueError for a user's model that is not registered, and for a
        folder that is no path.
        """
        save_parts(FitParts(self.size, self.evidence, self.estimate, self.training), as_path("folder", folder))

    def transform(self, data: Any) -> Any:
        """Return the expected value of the latent variable that describes each unit, as an array (units, …).

        For topics it is the proportions (documents, K), with K the number of topics; rows sum to 1. For mixtures it is
        the probability of each component, (rows, components). Where the descriptions of units differ in length, such
        as the states of a sequence, the result is a list with one array per unit.

        data: new or training data, of the kind that the model was fitted to.
        """
        return self._describe(data).representation

    def members(self) -> ComponentMembers:
        """Return the share of each training observation in each component, as shares (observations, components).

        The shares come from `transform`. An observation is a row of the data, or one row of a sequence. Shares of two
        fits are compared to find out which components correspond.

        Raises ValueError for models whose units are not described by shares of components.
        """
        described = self.transform(self.training)
        shares = np.concatenate(described) if isinstance(described, list) else np.asarray(described)
        shares = shares.astype(np.float64)
        if shares.ndim != 2 or shares.shape[1] != self.estimate.size[0] or shares.min() < 0 or shares.max() > 1.001:
            raise ValueError(
                f"got a fit of {type(self.model).__name__}, whose units are not described by shares of its "
                f"{self.estimate.size[0]} components; expected a model of clusters, states, features or topics"
            )
        return ComponentMembers(shares, np.ones(len(shares)), self.training.nouns.unit)

    def affinity(self, other: "FittedModel") -> Float[np.ndarray, "component other"] | None:
        """Return the Bhattacharyya coefficient ∫ √(p q) of each component of this fit with each of another.

        p and q are the distributions of one observation under the two components. The coefficient is 1 for equal
        distributions, and 0 where no observation is possible under both.

        other: a fit of the same type of model to data with the same columns or words; anything else raises ValueError.

        Returns (components of this fit, components of `other`). This base class returns None: a model's components
        need not emit observations by themselves.
        """
        del other
        return None

    def _calls_to_try(self) -> tuple[str, ...]:
        """Return the calls that `print(fit)` names: those of `_useful_calls` that a fit of this size answers."""
        return self._useful_calls

    def component_names(self) -> tuple[str, ...]:
        """Return a short name for each component, such as "component 0". Subclasses return names with a meaning.

        Names need not be distinct.
        """
        return tuple(f"component {number}" for number in range(self.estimate.size[0]))

    def score_units(self, data: Any) -> Float[np.ndarray, " units"]:
        """Return a lower bound on log p(unit | parameters at their posterior means) for each unit, (units,), in nats.

        data: new or training data, of the kind that the model was fitted to.
        """
        return self._describe(data).log_lower

    def interval_units(self, data: Any) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
        """Return proved lower and upper bounds on log p(unit | parameters at their posterior means) for each unit.

        data: new or training data, of the kind that the model was fitted to.

        Returns (lower, upper), each (units,), in nats.
        """
        return bound_units(self.model, self.estimate, self.training.like_this(data).dataset())

    def score(self, data: Any) -> float:
        """Return a lower bound on the log-likelihood of all units together: the sum of `score_units`, in nats.

        data: new or training data, of the kind that the model was fitted to.
        """
        return float(self.score_units(data).sum())

    def functional(self) -> FittedFunctions:
        """Return this fit as a JAX pytree with pure functions `transform`, `log_likelihood` and `score`.

        The functions take a batch of new units, made by `lv.functional.batch_of(fit.model, data)`. They work under
        `jit`, `vmap`, `grad` and `shard_map`.

        Two kinds of models differ from the methods of the fit. Of `HDP` and `HDPMixture`, `transform` returns the
        probability of each topic or component at each table of a unit, (units, tables, topics). Of `PLSI`,
        `log_likelihood` is that at proportions fitted to the scored words, which `score_units` avoids.
        """
        model, natural = copied_arrays((self.model, self.estimate.natural))
        return FittedFunctions(model, natural, self.estimate.size)

    def unusual(self, data: Any = None, *, draws: int = 199, seed: int = 0) -> pd.DataFrame:
        """Return how well each unit (document, row) fits anywhere, as a table with the most unusual unit first.

        Each unit is compared with units that are drawn from this fit: documents of the same length, rows with the same
        missing cells. `p` is a predictive p-value, (1 + how many of them score at most as high as the unit) /
        (1 + draws). It is small for a unit that no topic or cluster explains. If the fit is true, `p` of a new unit is
        below .05 with probability .05; of many units some are. Units that were fitted score a little higher than new
        ones do.

        data: new or training data, of the kind that the model was fitted to; by default the training data.
        draws: the number of units that each is compared with, which are the same for all units of one shape. The least
            possible `p` is 1 / (1 + draws).
        seed: decides the units that are drawn.

        Returns a table with a row per unit, by name or number: `score`, the `score_units` of the unit per token or cell
        (NaN for a unit without any), and `p`. Units of one `p` are ordered by their score.

        Raises ValueError for models whose units cannot be drawn (topic models and mixtures of rows can), and for fewer
        than one draw.
        """
        draws, seed = whole_number("draws", draws, least=1), checked_seed(seed)
        units = self.training if data is None else self.training.like_this(data)
        _, first, shape_of = np.unique(self._shapes(units), return_index=True, return_inverse=True)
        scores = np.asarray(self.score_units(units), np.float64)
        rng, lengths = np.random.default_rng(seed), units.observations_per_unit
        most = min(UNITS_AT_ONCE, OBSERVATIONS_AT_ONCE // max(1, int(lengths.max(initial=0))))
        at_once = max(1, most // draws)
        drawn = np.empty((len(first), draws))
        for begin in range(0, len(first), at_once):
            some = first[begin : begin + at_once]
            like = units.part(np.repeat(some, draws), "repeated, to draw others like them")
            drawn[begin : begin + at_once] = np.reshape(self.score_units(self._drawn_like(like, rng)), (-1, draws))
        lower = (drawn[shape_of] <= scores[:, None]).sum(1)
        each = np.where(lengths > 0, scores / np.maximum(lengths, 1), np.nan)
        frame = pd.DataFrame({"score": each, "p": (1 + lower) / (1 + draws)}, index=self._unit_index(units))
        return frame.sort_values(["p", "score"], kind="stable")

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return {name: table} of every global latent variable (one that all units share) with at most two axes.

        Each table holds posterior means, as `table(name)` returns it.
        """
        values = {name: site_value(self.estimate, name) for name in self.model.globals()}
        return {name: self.table(name) for name, value in values.items() if _is_table(value)}

    def table(self, name: str) -> pd.DataFrame:
        """Return the posterior mean of a global latent variable (one that all units share) as a table.

        name: the name of the variable, such as "topic_word", whose table has a row per topic and a column per word.

        Returns a table with the variable's first axis as rows and its second as columns. A variable with one axis
        becomes a single column, and a single number a single cell.

        Raises ValueError for a name the model does not have, and for variables with more than two axes.
        """
        sites = self.model.globals()
        if not isinstance(name, str) or name not in sites:
            raise ValueError(f"no table {name!r}: {type(self.model).__name__} has {', '.join(sites)}")
        values, axes = site_value(self.estimate, name), sites[name].axes
        if not _is_table(values):
            shape = values.shape if isinstance(values, np.ndarray) else f"{len(values)} arrays"
            raise ValueError(f"{name!r} has shape {shape}, expected at most two axes; read estimate.natural[{name!r}]")
        if not axes:
            return pd.DataFrame({name: [values.item()]})
        index = self._index(axes[0], len(values))
        if values.ndim == 1:
            return pd.DataFrame({name: values}, index=index)
        return pd.DataFrame(values, index=index, columns=self._index(axes[1], values.shape[1]))

    def occupied(
        self, *, chains: int = 4, draws: int = 1000, seed: int = 0, progress: bool = True
    ) -> OccupiedPosterior:
        """Return the posterior over how many components of a nonparametric process hold some training observation.

        It calls `lv.occupied`, which runs MCMC chains. It does not use this fit's variational distribution, which
        `occupied_under_fit` uses.

        chains: the number of chains, at least 2.
        draws: the number of draws kept of each chain, at least 4; as many sweeps before them are left out.
        progress: show a progress bar.

        Raises ValueError for models that are no process, and for fewer chains or draws.
        """
        return occupied(self.model, self.training, chains=chains, draws=draws, seed=seed, progress=progress)

    def occupied_under_fit(self, data: Any = None, draws: int = 2000, seed: int = 0) -> pd.DataFrame:
        """Return the distribution of the number of occupied components under this fit's variational distribution q.

        A component is occupied if it has at least one unit. The distribution is not the posterior. q knows one mode
        and takes the components of different units as independent. So the distribution is too narrow, and its most
        probable number may have little posterior probability. Use `occupied` for a process, and `lv.search` for a
        model with a size.

        data: the units to assign; by default the training data.
        draws: the number of times that a component is drawn for every unit.

        Returns a table with a row per number of components, in the column `size`. `probability` is the estimate,
        and `standard_error` is its Monte Carlo error.

        Raises ValueError for models whose units are not in one component each, for fewer than one draw, and for a seed
        that is none.
        """
        from lvsearch.inference.mixtures import log_block_count_prior, occupied_under
        from lvsearch.inference.processes import occupied_counts
        from lvsearch.models.dp_mixture import DPMixture

        draws, seed = whole_number("draws", draws, least=1), checked_seed(seed)
        units = self.training if data is None else self.training.like_this(data)
        rng = np.random.default_rng(seed)
        in_parts = occupied_counts(self.model, self.estimate, units.dataset(), draws=draws, rng=rng)
        if in_parts is not None:
            return occupied_table(in_parts)
        site = self.model.locals()[self.model.representation]
        if not isinstance(site.family, Categorical) or site.element_axes:
            raise ValueError(
                f"got a fit of {type(self.model).__name__}, whose units are not in one component each, so that none is "
                "occupied or empty; expected a mixture, such as lv.models.FiniteMixture or MixtureOfUnigrams"
            )
        shares = self.transform(self.training if data is None else data)
        counts = occupied_under(np.asarray(shares, np.float64), np.random.default_rng(seed), draws)
        model = self.model
        process = isinstance(model, DPMixture)
        return occupied_table(counts, log_block_count_prior(len(shares), model.concentration) if process else None)

    def _describe(self, data: Any) -> Described:
        """Return the expected value of the variable that describes each unit, and a lower bound on each log-likelihood.

        The first is the result of `transform`; the bounds are (units,), in nats.

        data: new or training data, of the kind that the model was fitted to.
        """
        return describe_units(self.model, self.estimate, self.training.like_this(data).dataset())

    def _shapes(self, units: Data) -> Any:
        """Return a number for each unit, (units,): units of one number have the same shape, such as the same length.

        Units that are drawn like one of them serve all.

        Raises ValueError in this base class, which cannot draw units.
        """
        raise ValueError(
            f"got a fit of {type(self.model).__name__}, whose units are not drawn from fits; expected a topic model or "
            "a mixture of rows"
        )

    def _drawn_like(self, units: Data, rng: np.random.Generator) -> Data:
        """Return units that are drawn from this fit, with parameters at their posterior means.

        units: as many units, whose lengths and missing cells the new ones have. rng: gives all random numbers.

        Raises NotImplementedError in this base class: classes that have `_shapes` say how.
        """
        raise NotImplementedError(f"{type(self).__name__} has _shapes, and no _drawn_like")

    def _unit_index(self, units: Data) -> pd.Index:
        """Return the names of units as the index of a table, or their numbers if they have no names."""
        return pd.RangeIndex(units.n_units, name=units.nouns.unit)

    def _require_numbers_that_stay(self) -> None:
        """Raise ValueError for a process, whose components are kept in order of size and change their numbers."""
        if self.model.process:
            raise ValueError(
                f"got a fit of the process {type(self.model).__name__}, expected a model with a size: components of a "
                "process are kept in order of size and cannot keep their numbers. Fit it anew to all data: "
                "lv.fit(model, data.joined(new), …)"
            )

    def _continued(self: Self, training: Data, start: Estimate, seed: int) -> Self:
        """Return a fit of the same model and size to other data, begun at this fit; components keep their numbers.

        training: the data to fit. start: this fit's estimate, on the axes of these data.
        seed: decides what the fit does not say, such as where q of new units begins.

        Raises ValueError if the fit is not a number.
        """
        model = start.model
        prepare_programs()
        dataset = training.dataset()
        key = fold_in(key_of(seed), *start.size, 0)
        found = estimator(model, dataset).continue_fit(start.size, key, start).in_file_order()
        if math.isnan(found.log_lower) or math.isnan(found.log_upper):
            raise ValueError(
                f"the fit of size {start.size} to the data with new {training.nouns.units} is not a number"
            )
        evidence = evidence_below(data_ceiling(model, dataset), found.log_lower, found.log_upper)
        return replace(self, size=found.size, evidence=evidence, estimate=found, training=training)

    def _data_as(self, kind: type[Kind], data: Any) -> Kind:
        """Return `data` in the form of the training data; for None, the training data.

        kind: the class of data that is needed, such as `Points`, whose columns have names.

        Raises ValueError for data of another class, such as a class of one's own.
        """
        found = self.training if data is None else self.training.like_this(data)
        if not isinstance(found, kind):
            raise ValueError(
                f"got data of the class {type(found).__name__}, expected lv.{kind.__name__}, which has the names that "
                "results are labelled with: fit the model to such data"
            )
        return found

    def _numbers_read_by_names(self) -> int:
        """Return how many parameters and data `component_names` reads, by which a print decides whether to name."""
        return sum(np.size(leaf) for leaf in jax.tree.leaves(self.estimate.natural)) + self.training.n_observations

    def _index(self, axis: str, length: int) -> pd.Index:
        """Return the labels of the rows or columns of a table: names from the training data, or numbers without names.

        axis: the name of the axis, such as "word". length: the number of entries of the axis.
        """
        names = self.training.entries.get(axis)
        return pd.RangeIndex(length, name=axis) if names is None else pd.Index(names, name=axis)


def _is_table(values: Any) -> bool:
    """Return True if a latent variable's value is one array of at most two axes, which a table can show."""
    return isinstance(values, np.ndarray) and values.ndim <= 2


Fitted = TypeVar("Fitted", bound=FittedModel)


def comparable_fit(kind: type[Fitted], other: Any, training: Data) -> Fitted:
    """Return `other` itself, checked to be a fit whose components can be compared with those of a fit of `training`.

    kind: the class that the other fit must have.
    training: the data of the first fit; the other fit's must have as many columns or words.

    Raises ValueError for anything else.
    """
    if not isinstance(other, kind):
        raise ValueError(
            f"got other={shortened_repr(other)}, expected a fit of the same type of model, such as lv.fit(…) or "
            "result.best"
        )
    own, others = ({axis: len(names) for axis, names in data.entries.items()} for data in (training, other.training))
    if own != others:
        raise ValueError(f"got a fit of data with {_counts(others)}, expected one of data with {_counts(own)}")
    return other


def _counts(lengths: dict[str, int]) -> str:
    """Return the numbers of entries of the axes of data in words, such as "word: 40"."""
    return ", ".join(f"{axis}: {length:,}" for axis, length in lengths.items())
