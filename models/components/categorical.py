r"""Components of cells and columns with a few possible values: yes or no, levels, categories, genotypes.

| kind | rows |
|---|---|
| `BernoulliComponents` | independent yes-or-no cells |
| `LevelComponents` | independent cells, each with one of a few values: ratings, grades, answers |
| `CategoricalComponents` | independent columns of categories as indicators: latent classes |
| `GenotypeComponents` | individuals with some copies of an allele at every locus |

Source of latent classes: Lazarsfeld & Henry (1968); as a mixture of products of multinomials, Goodman (1974), Linzer &
Lewis (2011).

Columns of 0 and 1 that stand for answers to a question have names "question=category" (`indicator_name`). The first "="
ends the question, so that a category may hold any ("age=>=10"). A "=" inside a question, or in the name of a column of
numbers, is written "\=", and a backslash in such a name is written twice.
"""

import re
import warnings
from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import column_names, positive_parameter, require_counts
from lvsearch.models.components.component import Component
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.exponential.simplex import SimplexBlocks
from lvsearch.models.families import Beta, BetaStatistics, Dirichlet, Family, PointProbability, PointSimplex
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row

_QUESTION = re.compile(r"((?:\\.|[^\\=])*)=", re.DOTALL)


def indicator_name(question: Any, category: Any) -> str:
    """Return the name of the column that is 1 where the answer to a question is `category`: "question=category"."""
    return f"{number_name(question)}={category}"


def number_name(column: Any) -> str:
    """Return the name of a column of numbers with "=" and backslashes escaped, so that no indicator has the same
    name.
    """
    return str(column).replace("\\", "\\\\").replace("=", "\\=")


def question_of(name: str) -> str | None:
    """Return the question in the name of an indicator, still escaped; None for the name of a column of numbers."""
    found = _QUESTION.match(name)
    return None if found is None else found.group(1)


class ProbabilityComponents(Component):
    """Base of the kinds whose cells are categories, so that a row has a probability in place of a density."""

    elliptical: ClassVar[bool] = False

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        """Return 0 nats: parameters enter the whole probability of a row."""
        return jnp.zeros((), coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return an upper bound on each row's log-probability, 0 nats, shape (rows,): a probability is at most 1."""
        return np.zeros(len(units.value))


class BernoulliComponents(ProbabilityComponents):
    """Independent cells of 0 or 1: x_d ~ Bernoulli(v_d), v_d ~ Beta(ones, zeros). Missing cells are left out.

    ones, zeros: pseudo-counts of cells with 1 and with 0, positive.
    estimated: True in the plug-in form, where probabilities are point estimates; leave it to `plug_in`.
    """

    ones: HyperparameterArray
    zeros: HyperparameterArray
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    cellwise: ClassVar[bool] = True

    def __init__(self, ones: Any = 0.5, zeros: Any = 0.5, estimated: bool = False):
        self.ones, self.zeros = positive_parameter("ones", ones), positive_parameter("zeros", zeros)
        self.estimated = estimated

    @property
    def family(self) -> Family:
        return PointProbability() if self.estimated else self.prior_family

    @property
    def prior_family(self) -> Family:
        return Beta()

    def describe(self) -> str:
        if self.estimated:
            return "independent yes-or-no cells (probabilities estimated)"
        return f"independent yes-or-no cells (probabilities ~ Beta({as_text(self.ones)}, {as_text(self.zeros)}))"

    def check(self, units: Row) -> None:
        values = np.asarray(units.value)[np.asarray(units.observed)]
        wrong = values[(values != 0) & (values != 1)]
        if wrong.size:
            raise ValueError(
                f"got a cell with {float(wrong[0])!r} for BernoulliComponents, expected 0 or 1 in every cell"
            )

    def prior(self, n_dims: int) -> BetaStatistics:
        zero = jnp.zeros(n_dims)
        return BetaStatistics(zero + (self.ones - 1), zero + (self.zeros - 1))

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> BetaStatistics:
        return BetaStatistics(coordinates, jnp.where(observed, 1 - coordinates, 0))

    def free_parameters(self, n_dims: int) -> int:
        return n_dims

    def plug_in(self) -> "BernoulliComponents":
        return BernoulliComponents(self.ones, self.zeros, estimated=True)

    def moments(self, statistics: BetaStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        probability = jnp.exp(statistics.log_value)
        return probability, jnp.diag(probability * (1 - probability))

    def draw(self, key: Array, statistics: BetaStatistics, unit: Row) -> Float[Array, " dim"]:
        probability = jnp.exp(statistics.log_value)
        return (jax.random.uniform(key, probability.shape) < probability).astype(probability.dtype)


class LevelComponents(ProbabilityComponents):
    """Independent cells of a few values: x_d = levels_c with probability θ_dc, θ_d ~ Dirichlet(concentration, …).

    levels: the values that a cell may have, two or more, such as (1, 2, 3, 4, 5). Their order and distances have no
        meaning.
    concentration: pseudo-counts of every level, positive.

    Missing cells are left out.
    """

    levels: tuple[float, ...] = eqx.field(static=True)
    concentration: HyperparameterArray
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim", "level")
    cellwise: ClassVar[bool] = True

    def __init__(self, levels: Any = (1, 2, 3, 4, 5), concentration: Any = 1.0, estimated: bool = False):
        given = np.unique(np.asarray(levels, np.float64))
        if given.size < 2 or given.size != np.size(levels) or not np.all(np.isfinite(given)):
            raise ValueError(f"got levels={levels!r}, expected two or more distinct numbers, such as (1, 2, 3, 4, 5)")
        self.levels = tuple(given.tolist())
        self.concentration = positive_parameter("concentration", concentration)
        self.estimated = estimated

    @property
    def family(self) -> Family:
        return PointSimplex() if self.estimated else self.prior_family

    @property
    def prior_family(self) -> Family:
        return Dirichlet()

    @property
    def own_extents(self) -> dict[str, int]:
        return {"level": len(self.levels)}

    def describe(self) -> str:
        cells = f"cells of {len(self.levels)} levels ({', '.join(f'{level:g}' for level in self.levels)})"
        if self.estimated:
            return f"{cells}, probabilities estimated"
        return f"{cells}, probabilities ~ Dirichlet, {as_text(self.concentration)} per level"

    def check(self, units: Row) -> None:
        values = np.asarray(units.value)[np.asarray(units.observed)]
        wrong = values[~np.isin(values, self.levels)]
        if wrong.size:
            raise ValueError(
                f"got a cell with {float(wrong[0])!r} for LevelComponents, expected one of its levels, "
                f"{', '.join(f'{level:g}' for level in self.levels)}: give all values of the data as levels="
            )

    def prior(self, n_dims: int) -> Float[Array, "dim level"]:
        return jnp.zeros((n_dims, len(self.levels))) + (self.concentration - 1)

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        """Return the index of each cell's value among the sorted levels, shape (dim,); 0 for missing cells."""
        value = jnp.asarray(unit.value)
        place = jnp.argmin(jnp.abs(value[..., None] - jnp.asarray(self.levels, value.dtype)), axis=-1)
        return jnp.where(unit.observed, place.astype(value.dtype), 0.0)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, "dim level"]:
        chosen = coordinates[..., None] == jnp.arange(len(self.levels))
        return jnp.where(observed[..., None], chosen, False).astype(coordinates.dtype)

    def free_parameters(self, n_dims: int) -> int:
        return n_dims * (len(self.levels) - 1)

    def plug_in(self) -> "LevelComponents":
        return LevelComponents(self.levels, self.concentration, estimated=True)

    def moments(self, statistics: Float[Array, "dim level"]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        share, levels = jnp.exp(statistics), jnp.asarray(self.levels)
        mean = share @ levels
        return mean, jnp.diag(share @ levels**2 - mean**2)

    def draw(self, key: Array, statistics: Float[Array, "dim level"], unit: Row) -> Float[Array, " dim"]:
        return jnp.asarray(self.levels, statistics.dtype)[jax.random.categorical(key, statistics, axis=-1)]


class CategoricalComponents(ProbabilityComponents):
    """Independent columns of categories: c_j ~ Categorical(θ_j), θ_j ~ Dirichlet(concentration, …) for every column j.

    A row holds its columns one after another as indicators: `categories[j]` cells for column j, one of them 1 and the
    others 0. Where an answer is missing, all cells of its column are. `lv.Points.from_categories(frame)` makes such
    rows, and `CategoricalComponents.from_columns(points)` the components.

    categories: the number of categories of each column, at least 2.
    concentration: pseudo-counts of every category, positive.
    """

    concentration: HyperparameterArray
    categories: tuple[int, ...] = eqx.field(static=True)
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)

    def __init__(self, categories: Sequence[int], concentration: Any = 1.0, estimated: bool = False):
        self.categories = tuple(int(n) for n in categories)
        if not self.categories or min(self.categories) < 2:
            raise ValueError(f"got categories={categories!r}, expected the number of each column, at least 2 each")
        self.concentration = positive_parameter("concentration", concentration)
        self.estimated = estimated

    @classmethod
    def from_columns(cls, columns: Any, concentration: Any = 1.0) -> "CategoricalComponents":
        """Make the components for the columns of `lv.Points.from_categories`, whose names are "name=category".

        columns: these points, or the names of all columns. Neighbours with one name before "=" are the categories of
            one column.
        concentration: pseudo-counts of every category, positive.

        Raises ValueError for a column without "=".
        """
        columns = column_names(columns)
        for column in columns:
            if question_of(column) is None:
                raise ValueError(f'got the column {column!r}, expected "name=category": see lv.Points.from_categories')
        groups = groupby(columns, key=question_of)
        return cls([len(list(members)) for _, members in groups], concentration)

    @classmethod
    def of_columns(cls, columns: Sequence[str], concentration: Any = 1.0) -> "CategoricalComponents":
        """Make the components for named columns. Deprecated: the former name of `from_columns`; it warns."""
        warnings.warn(
            "CategoricalComponents.of_columns is called CategoricalComponents.from_columns now",
            DeprecationWarning,
            stacklevel=2,
        )
        return cls.from_columns(columns, concentration)

    @property
    def family(self) -> Family:
        return SimplexBlocks(PointSimplex() if self.estimated else Dirichlet(), self.categories)

    @property
    def prior_family(self) -> Family:
        return SimplexBlocks(Dirichlet(), self.categories)

    def describe(self) -> str:
        columns = f"{len(self.categories)} columns of categories"
        if self.estimated:
            return f"{columns} (probabilities estimated)"
        return f"{columns} (probabilities ~ Dirichlet, {as_text(self.concentration)} per category)"

    def check(self, units: Row) -> None:
        values, observed = np.asarray(units.value), np.asarray(units.observed)
        if values.shape[-1] != sum(self.categories):
            raise ValueError(
                f"got rows of {values.shape[-1]} cells for {sum(self.categories)} categories of "
                f"{len(self.categories)} columns, expected one cell for each: lv.Points.from_categories makes them"
            )
        starts = np.concatenate([[0], np.cumsum(self.categories)[:-1]])
        # a column is right if none of its cells is known, or if all are and exactly one of them is 1
        seen = np.where(observed, values, 0.0)
        known = np.add.reduceat(observed, starts, axis=-1, dtype=np.int64)
        total = np.add.reduceat(seen, starts, axis=-1)
        indicators = ((seen == 0) | (seen == 1)).all(-1)[:, None]
        right = indicators & np.where(known == 0, True, (known == np.array(self.categories)) & (total == 1))
        if not right.all():
            row, column = np.argwhere(~right)[0]
            raise ValueError(
                f"got row {row} with no single category in column {column}, expected one cell of 1 and else 0, or all "
                "missing: lv.Points.from_categories makes such rows"
            )

    def prior(self, n_dims: int) -> Float[Array, " dim"]:
        return jnp.zeros(n_dims) + (self.concentration - 1)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, " dim"]:
        return coordinates

    def free_parameters(self, n_dims: int) -> int:
        return n_dims - len(self.categories)

    def plug_in(self) -> "CategoricalComponents":
        return CategoricalComponents(self.categories, self.concentration, estimated=True)

    def moments(self, statistics: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """Return (mean, covariance) of the indicators of a row of one component, shapes (dim,) and (dim, dim).

        statistics: log-probabilities of all categories, shape (dim,).

        The categories of one column exclude each other; columns are independent.
        """
        share = jnp.exp(statistics)
        column = np.repeat(np.arange(len(self.categories)), self.categories)
        return share, jnp.diag(share) - jnp.where(column[:, None] == column, share[:, None] * share, 0.0)

    def draw(self, key: Array, statistics: Float[Array, " dim"], unit: Row) -> Float[Array, " dim"]:
        ends = np.cumsum(self.categories)
        chosen = [
            jax.nn.one_hot(jax.random.categorical(jax.random.fold_in(key, j), statistics[end - n : end]), n)
            for j, (end, n) in enumerate(zip(ends, self.categories, strict=True))
        ]
        return jnp.concatenate(chosen).astype(statistics.dtype)


class GenotypeComponents(CategoricalComponents):
    """Populations without admixture: each copy at locus j has an allele ~ Categorical(θ_j), θ_j ~
    Dirichlet(concentration, …).

    Copies are independent: Hardy–Weinberg and linkage equilibrium within populations.

    A row holds the counts of alleles, locus after locus: `categories[j]` cells for locus j. They sum to 2 for a
    diploid, and to 0 where the genotype is missing. Copies are told apart, as in `Admixture`, so the density has no
    multinomial coefficient. `GenotypeComponents.from_columns(corpus.vocabulary)` finds the loci.

    Source: Pritchard, Stephens & Donnelly (2000), the model without admixture.
    """

    def describe(self) -> str:
        return super().describe().replace("columns of categories", "loci")

    def check(self, units: Row) -> None:
        n_columns = np.shape(units.value)[-1]
        if n_columns != sum(self.categories):
            raise ValueError(
                f"got rows of {n_columns} cells for {sum(self.categories)} alleles of {len(self.categories)} loci, "
                "expected one cell for each"
            )
        observed = np.asarray(units.observed)
        if not (observed.all(-1) | ~observed.any(-1)).all():
            raise ValueError("got missing cells, expected counts of 0 where a genotype is missing")
        require_counts(units, "GenotypeComponents")

    def plug_in(self) -> "GenotypeComponents":
        return GenotypeComponents(categories=self.categories, concentration=self.concentration, estimated=True)

    @property
    def keeps_totals(self) -> bool:
        return True

    def draw(self, key: Array, statistics: Float[Array, " dim"], unit: Row) -> Float[Array, " dim"]:
        """Draw allele counts of one individual, shape (dim,), with as many copies at each locus as `unit` has.

        statistics: log-probabilities of the alleles of its population, shape (dim,).
        """
        ends, drawn = np.cumsum(self.categories), []
        for j, (end, n) in enumerate(zip(ends, self.categories, strict=True)):
            copies = jnp.asarray(unit.value)[end - n : end].sum()
            share = jnp.exp(statistics[end - n : end])
            drawn.append(jax.random.multinomial(jax.random.fold_in(key, j), copies, share, dtype=statistics.dtype))
        return jnp.concatenate(drawn)
