"""One table, models × behaviours: what every model must do, whoever wrote it. Adding a model is adding a row.

All in float64, at one shape and one capacity per row, so that a row costs one trace per function.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import admixture_oracles
import annotation_cases
import annotation_oracles
import block_oracles
import equinox as eqx
import factor_oracles
import hdp_oracles
import hidden_markov_oracles
import independent_normal_oracles
import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import oracles
import partition_oracles
import poisson_oracles
import pytest
import scale_oracles
import tied_oracles
import tree_oracles
import word_mixture_oracles
from engine_steps import batch_statistics
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp
from tiers import in_tiers
from toy_models import Point, PointMixture

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.meanfield import (
    Beliefs,
    MeanField,
    ascend,
    batch_bound,
    bound,
    cast,
    expected_statistics,
    fit_locals,
    globals_bound,
    resident_sweep,
    unit_masks,
    update_globals,
)
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.trees import tree_hyper
from lvsearch.models.admixture import Admixture
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.checks import check
from lvsearch.models.components import (
    BernoulliComponents,
    DiagonalComponents,
    FactorAnalyzerComponents,
    FullCovarianceComponents,
    MultinomialComponents,
)
from lvsearch.models.contract import Model
from lvsearch.models.corr_lda import CorrLDA
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture
from lvsearch.models.families import PointSimplex
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.gm_lda import GMLDA
from lvsearch.models.gm_mixture import GMMixture
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.hlda import HLDA
from lvsearch.models.ibp import IBP, GammaPrior
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.lda import LDA, TopicSeeds
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams
from lvsearch.models.plsi import PLSI
from lvsearch.models.poisson_factorization import PoissonFactorization
from lvsearch.models.tied_mixture import TiedMixture
from lvsearch.models.units import BagOfWords, GroupOfRows, Row

NUMBER, PLACES = 3, 4
"""The size and the capacity of every row, on each of its size axes."""
SWEEPS = 20
SIZE_AXES = {
    "topic",
    "component",
    "feature",
    "factor",
    "branch_2",
    "end_2",
    "path",
    "state",
    "population",
    "row_cluster",
    "column_cluster",
}


@dataclass(frozen=True)
class Case:
    """A row: a model, tiny data in two batches of one shape (the last unit padding), and what is exactly true of them.

    | field | meaning |
    |---|---|
    | `exact` | (size, globals' natural parameters cut to it) -> log p(data | size), or log p(data | size, θ), nats |
    | `ignored` | units -> units that differ only where nothing was observed |
    | `repeated` | the same data with every copy spelled out as an element of its own, at the same shape |
    | `memoizable` | a batch's statistics do not depend on the globals they update |
    | `exchangeable` | components can be renamed; sticks, which have an order, cannot |
    | `certified` | the model has a ceiling |
    | `coupled` | global sites whose prior moves with a global updated before them |
    | `tight` | nothing is integrated out but indicators that q knows exactly: at the end the bound is what is exact |
    | `drawable` | has priors to be drawn from, and hyper-parameters |
    | `n_sizes` | sizes of the model: size axes of different numbers |
    """

    name: str
    model: Model
    data: Dataset
    exact: Callable[[int, dict[str, Any]], float]
    ignored: Callable[[Any], Any]
    repeated: Dataset | None = None
    memoizable: bool = True
    exchangeable: bool = True
    certified: bool = True
    coupled: tuple[str, ...] = ()
    tight: bool = False
    drawable: bool = True
    n_sizes: int = 1

    @property
    def size(self) -> tuple[int, ...]:
        return (NUMBER,) * self.n_sizes

    @property
    def capacity(self) -> tuple[int, ...]:
        return (PLACES,) * self.n_sizes


COUNTS = np.array(
    [[2, 0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 2, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 1, 0]]
)
FEW_COUNTS = np.array(
    [[2, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]]
)
ALPHA, ETA = np.array([0.5, 1.1, 0.2]), 0.4
SEEDS = np.array([[3, 0, 1, 0, 0, 2, 0]])
POINTS = np.array([-2.2, 2.3, 2.8, -1.6, 0.4])
CELLS = np.array([[2, 0, 0], [0, 1, np.nan], [0, 0, 0], [np.nan, 0, 1], [1, 0, 0]])
NOISY_CELLS = np.array([[2, 0], [0, 3], [np.nan, 1]])
BITS = np.minimum(CELLS, 1)
VALUES = np.array([[1.3, -0.2, 0.7], [0.4, 2.1, -1.0], [1.9, 1.7, 0.1]])
OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, True]])


def lda_data(counts: np.ndarray) -> Dataset:
    return documents(csr_array(counts.astype(np.int32)), tokens_per_batch=48)


def spelled_out(data: Dataset) -> Dataset:
    """A token a column."""

    def batch(old: Batch) -> Batch:
        words, counts = np.zeros_like(old.units.words), np.zeros_like(old.units.counts)
        for row, (w, c) in enumerate(zip(old.units.words, old.units.counts.astype(int), strict=True)):
            words[row, : c.sum()], counts[row, : c.sum()] = np.repeat(w, c), 1
        return Batch(BagOfWords(words, counts), old.weight)

    return Dataset.of_batches(tuple(map(batch, data.batches)), data.unit_ids, data.extents, data.n_units)


def other_padding_words(units: BagOfWords) -> BagOfWords:
    return BagOfWords(np.where(units.counts > 0, units.words, 5).astype(units.words.dtype), units.counts)


def in_two_batches(units: Any, extents: dict[str, int]) -> Dataset:
    """Units dealt to two batches in turn, the second padded with a copy of its first unit."""
    n = len(jax.tree.leaves(units)[0])
    rows = -(-n // 2)
    ids = [np.arange(n)[0::2], np.pad(np.arange(n)[1::2], (0, rows - n // 2), constant_values=-1)]
    weights = [(i >= 0).astype(np.float32) for i in ids]
    batches = tuple(Batch(jax.tree.map(lambda x, i=i: x[i], units), w) for i, w in zip(ids, weights, strict=True))
    return Dataset.of_batches(batches, tuple(ids), extents, n)


def lda_exact(size: int, natural: dict[str, Any]) -> float:
    return oracles.lda_posterior(COUNTS, np.full(size, 1.7 / size), ETA).log_evidence


def plug_in_exact(size: int, natural: dict[str, Any]) -> float:
    counts = np.maximum(natural["topic_word"], 0)
    topics = np.maximum(counts / counts.sum(1, keepdims=True), 1e-30)
    return oracles.corpus_log_likelihood(COUNTS, ALPHA[:size], topics / topics.sum(1, keepdims=True))


def plsi_exact(size: int, natural: dict[str, Any]) -> float:
    """The most that any proportions give at these topics, document by document."""
    counts = np.maximum(natural["topic_word"], 0)
    topics = np.maximum(counts / counts.sum(1, keepdims=True), 1e-30)
    return sum(word_mixture_oracles.best_proportions(row, topics)[1] for row in COUNTS)


def ibp_exact(size: int, natural: dict[str, Any]) -> float:
    grids = oracles.gamma_grid(2.0, 1.5), oracles.gamma_grid(3.0, 4.0), oracles.known(2.5)
    return oracles.features_log_evidence(VALUES, OBSERVED, size, *grids)


def rows_case(kind: mixture_cases.Kind, n: int) -> Dataset:
    values, observed = np.nan_to_num(kind.rows[:n]), ~np.isnan(kind.rows[:n])
    return in_two_batches(Row(values, observed), {"dim": values.shape[1]})


def other_missing_cells(units: Row) -> Row:
    return Row(np.where(units.observed, units.value, 99.0), units.observed)


TIED_PRIOR = (mixture_cases.LOCATION, mixture_cases.SCALE, 0.3, 2.5, 0.7)


def mixture_of(kind: mixture_cases.Kind) -> "Case":
    """A finite mixture of five rows of a kind."""

    def log_evidence(size: int, natural: dict[str, Any]) -> float:
        prior = partial(partition_oracles.log_finite_prior, n_components=size, concentration=0.8)
        return partition_oracles.log_evidence(kind.rows[:5], kind.log_marginal, prior)

    return Case(
        f"mixture of {kind.name}",
        FiniteMixture(kind.component, 0.8),
        rows_case(kind, 5),
        log_evidence,
        other_missing_cells,
        certified=kind.certified,
    )


@cache
def scales_exact(size: int) -> float:
    grids = scale_oracles.gamma_grid(1.5, 2.0, 70), scale_oracles.gamma_grid(2.0, 1.5, 90)
    prior = scale_oracles.Diagonal(*grids, 2.5)
    rows = (mixture_cases.HOLED[:5] - mixture_cases.LOCATION) / mixture_cases.SCALE
    unit = np.where(np.isnan(rows), 0.0, np.log(mixture_cases.SCALE)).sum()
    return scale_oracles.enumerated(rows, size, 0.8, prior).log_evidence - float(unit)


@cache
def factors_exact(size: int) -> float:
    """An average over the prior; its standard error is below .02."""
    rows = (mixture_cases.FULL.rows[:5] - mixture_cases.LOCATION) / mixture_cases.SCALE
    found, error = factor_oracles.log_evidence(rows, size, 1, 0.8, 0.3, 0.7, 2.5, np.full(2, 0.7), draws=500_000)
    assert error < 0.02
    return found - 5 * float(np.log(mixture_cases.SCALE).sum())


def process_exact(size: int, natural: dict[str, Any]) -> float:
    kind, prior = mixture_cases.DIAGONAL, partition_oracles.gamma_process_prior(2.0, 1.5)
    return partition_oracles.log_evidence(kind.rows[:5], kind.log_marginal, prior)


@cache
def independent_exact(size: int) -> float:
    prior = independent_normal_oracles.Prior(mixture_cases.LOCATION, mixture_cases.SCALE, 0.7, 2.2, 1.3, 1.9)
    return independent_normal_oracles.log_evidence(mixture_cases.HOLED[:5], size, 0.8, prior)


@cache
def franchise_evidence() -> float:
    grids = hdp_oracles.gamma_grid(2.0, 4.0), hdp_oracles.gamma_grid(3.0, 5.0)
    return hdp_oracles.log_evidence(FEW_COUNTS, 1.5, *grids)


GROUP_SIZES = (2, 1, 2)


def group_units() -> GroupOfRows:
    """Five rows in three groups of at most two."""
    rows, places = mixture_cases.DIAGONAL.rows[:5], np.array([[0, 1], [2, 2], [3, 4]])
    present = np.arange(2) < np.array(GROUP_SIZES)[:, None]
    observed = ~np.isnan(rows)[places] & present[..., None]
    return GroupOfRows(np.where(observed, np.nan_to_num(rows)[places], 0.0), observed, present)


@cache
def groups_evidence() -> float:
    kind = mixture_cases.DIAGONAL
    likelihood = hdp_oracles.row_likelihood(kind.rows[:5], kind.log_marginal)
    grids = hdp_oracles.gamma_grid(2.0, 4.0), hdp_oracles.gamma_grid(3.0, 5.0)
    return float(logsumexp(list(hdp_oracles.posterior_of(GROUP_SIZES, likelihood, *grids).values())))


def sequences_exact(size: int, natural: dict[str, Any]) -> float:
    kind, ends = mixture_cases.DIAGONAL, np.cumsum(GROUP_SIZES)
    sequences = [kind.rows[end - n : end] for end, n in zip(ends, GROUP_SIZES, strict=True)]
    return hidden_markov_oracles.log_evidence(sequences, size, kind.log_marginal, 0.8, 1.3, 0.6)


def other_absent_rows(units: GroupOfRows) -> GroupOfRows:
    return GroupOfRows(np.where(units.observed, units.value, 99.0), units.observed, units.present)


@cache
def factorization_exact(size: int) -> float:
    return poisson_oracles.log_evidence(CELLS, size, 0.9, 0.6, 0.7)


@cache
def noisy_factorization_exact(size: int) -> float:
    """To a hundredth of a nat: the average over draws of the prior."""
    drawn = poisson_oracles.sampled_log_evidence(NOISY_CELLS, size, 0.9, 0.6, 0.7, draws=400_000, noise_shape=4.0)
    return drawn[0]


def annotated_case(name: str, kind: Any, oracle: Callable[..., float], *, features: bool) -> Case:
    a = annotation_cases
    units = a.feature_units() if features else a.token_units()
    extents = {"word": a.N_WORDS, "dim": 2 if features else a.N_TOKENS}
    regions = a.REGIONS if features else MultinomialComponents(a.TOKEN_ETA)
    return Case(
        name,
        kind(a.TOTAL, MultinomialComponents(a.ETA), regions),
        in_two_batches(units, extents),
        lambda size, natural: a.log_evidence(oracle, features, size),
        a.other_padding,
        in_two_batches(a.spelled_out(units), extents),
        certified=not features,
    )


CASES = [
    Case("LDA", LDA(1.7, ETA), lda_data(COUNTS), lda_exact, other_padding_words, spelled_out(lda_data(COUNTS))),
    Case(
        "LDA plug-in",
        LDA(ALPHA, None, PointSimplex()),
        lda_data(COUNTS),
        plug_in_exact,
        other_padding_words,
        spelled_out(lda_data(COUNTS)),
        drawable=False,
    ),
    Case(
        "LDA with seeds",
        LDA(1.7, ETA, seeds=TopicSeeds.of_counts(SEEDS)),
        lda_data(COUNTS),
        lambda size, natural: (
            oracles.lda_posterior(
                COUNTS, np.full(size, 1.7 / size), ETA + np.pad(SEEDS, ((0, size - 1), (0, 0)))
            ).log_evidence
        ),
        other_padding_words,
        spelled_out(lda_data(COUNTS)),
        exchangeable=False,
    ),
    Case(
        "mixture of unigrams",
        MixtureOfUnigrams(0.8, ETA),
        lda_data(COUNTS),
        lambda size, natural: word_mixture_oracles.mixture_log_evidence(COUNTS, size, 0.8, ETA),
        other_padding_words,
        spelled_out(lda_data(COUNTS)),
    ),
    Case(
        "pLSI",
        PLSI(),
        lda_data(COUNTS),
        plsi_exact,
        other_padding_words,
        spelled_out(lda_data(COUNTS)),
        tight=True,
        drawable=False,
    ),
    Case(
        "admixture",
        Admixture((3, 2, 2), 1.7, ETA),
        lda_data(COUNTS),
        lambda size, natural: admixture_oracles.log_evidence(COUNTS, (3, 2, 2), size, 1.7, ETA),
        other_padding_words,
        spelled_out(lda_data(COUNTS)),
    ),
    Case(
        "point mixture",
        PointMixture(1.7, 0.2, 2.5),
        in_two_batches(Point(POINTS), {}),
        lambda size, natural: oracles.mixture_log_evidence(POINTS, size, 1.7, 0.2, 2.5),
        lambda units: units,
    ),
    Case(
        "IBP",
        IBP(GammaPrior(2.0, 1.5), GammaPrior(3.0, 4.0), 2.5),
        in_two_batches(Row(VALUES, OBSERVED), {"dim": 3}),
        ibp_exact,
        lambda units: Row(np.where(units.observed, units.value, 99.0), units.observed),
        memoizable=False,
    ),
    *map(mixture_of, mixture_cases.CASES),
    Case(
        "tied mixture",
        TiedMixture(FullCovarianceComponents(*TIED_PRIOR), 0.8),
        rows_case(mixture_cases.FULL, 5),
        lambda size, natural: tied_oracles.log_evidence(mixture_cases.FULL.rows[:5], size, 0.8, *TIED_PRIOR),
        other_missing_cells,
        certified=False,
    ),
    Case(
        "mixture of factor analysers",
        FactorAnalyzerMixture(
            FactorAnalyzerComponents(1, mixture_cases.LOCATION, mixture_cases.SCALE, 0.3, 0.7, 2.5, 0.7), 0.8
        ),
        rows_case(mixture_cases.FULL, 5),
        lambda size, natural: factors_exact(size),
        other_missing_cells,
        certified=False,
    ),
    Case(
        "finite mixture, scales inferred",
        FiniteMixture(
            DiagonalComponents(
                mixture_cases.LOCATION, mixture_cases.SCALE, GammaPrior(1.5, 2.0), 2.5, GammaPrior(2.0, 1.5)
            ),
            0.8,
        ),
        rows_case(mixture_cases.DIAGONAL, 5),
        lambda size, natural: scales_exact(size),
        other_missing_cells,
        certified=False,
        coupled=("components",),
    ),
    Case(
        "DP mixture",
        DPMixture(mixture_cases.DIAGONAL.component, GammaPrior(2.0, 1.5)),
        rows_case(mixture_cases.DIAGONAL, 5),
        process_exact,
        other_missing_cells,
        exchangeable=False,
        certified=False,
        coupled=("sticks",),
    ),
    Case(
        "independent normal mixture",
        IndependentNormalMixture(mixture_cases.LOCATION, mixture_cases.SCALE, 0.7, 2.2, 1.3, 1.9, 0.8),
        rows_case(mixture_cases.DIAGONAL, 5),
        lambda size, natural: independent_exact(size),
        other_missing_cells,
        memoizable=False,
        certified=False,
    ),
    Case(
        "hLDA",
        HLDA(2, 0.8, (0.9, 1.6), (0.5, 0.3)),
        lda_data(COUNTS),
        lambda size, natural: tree_oracles.two_level_evidence(COUNTS, tree_hyper(2, 0.8, (0.9, 1.6), (0.5, 0.3))),
        other_padding_words,
        spelled_out(lda_data(COUNTS)),
        exchangeable=False,
    ),
    Case(
        "HDP",
        HDP(1.5, GammaPrior(2.0, 4.0), GammaPrior(3.0, 5.0), tables=2),
        lda_data(FEW_COUNTS),
        lambda size, natural: franchise_evidence(),
        other_padding_words,
        spelled_out(lda_data(FEW_COUNTS)),
        exchangeable=False,
        coupled=("corpus_sticks",),
    ),
    Case(
        "HDP mixture",
        HDPMixture(mixture_cases.DIAGONAL.component, GammaPrior(2.0, 4.0), GammaPrior(3.0, 5.0), tables=2),
        in_two_batches(group_units(), {"dim": 2}),
        lambda size, natural: groups_evidence(),
        other_absent_rows,
        exchangeable=False,
        certified=False,
        coupled=("shared_sticks",),
    ),
    Case(
        "hidden Markov",
        HiddenMarkov(mixture_cases.DIAGONAL.component, 0.8, 1.3, 0.6),
        in_two_batches(group_units(), {"dim": 2}),
        sequences_exact,
        other_absent_rows,
        certified=False,
    ),
    Case(
        "Poisson factorization",
        PoissonFactorization(0.9, 0.6, 0.7),
        in_two_batches(Row(np.nan_to_num(CELLS), ~np.isnan(CELLS)), {"dim": 3}),
        lambda size, natural: factorization_exact(size),
        other_missing_cells,
    ),
    Case(
        "noisy Poisson factorization",
        PoissonFactorization(0.9, 0.6, 0.7, 4.0),
        in_two_batches(Row(np.nan_to_num(NOISY_CELLS), ~np.isnan(NOISY_CELLS)), {"dim": 2}),
        lambda size, natural: noisy_factorization_exact(size),
        other_missing_cells,
    ),
    Case(
        "block model",
        LatentBlockModel(BernoulliComponents(0.6, 0.9), 0.8, 1.3),
        in_two_batches(Row(np.nan_to_num(BITS), ~np.isnan(BITS)), {"dim": 3}),
        lambda size, natural: block_oracles.log_evidence(
            BITS, (size, size), block_oracles.bernoulli_marginal(0.6, 0.9), (0.8, 1.3)
        ),
        other_missing_cells,
        memoizable=False,
        n_sizes=2,
    ),
    annotated_case("GM-mixture", GMMixture, annotation_oracles.mixture_log_evidence, features=True),
    annotated_case("GM-LDA of tokens", GMLDA, annotation_oracles.gm_lda_log_evidence, features=False),
    annotated_case("Corr-LDA", CorrLDA, annotation_oracles.corr_lda_log_evidence, features=True),
]


@dataclass(frozen=True)
class Fitted:
    case: Case
    batches: tuple[Batch, ...]
    start: MeanField
    end: MeanField

    @property
    def model(self) -> Model:
        return self.case.model

    @property
    def size(self) -> tuple[int, ...]:
        return self.case.size

    @property
    def capacity(self) -> tuple[int, ...]:
        return self.case.capacity

    def bound(self, beliefs: Beliefs, l: tuple[Beliefs, ...], batches: tuple[Batch, ...] | None = None) -> float:
        return bound(self.model, batches or self.batches, beliefs, l, self.size, capacity=self.capacity)

    def exact(self, beliefs: Beliefs) -> float:
        cut = on_axes(self.model.globals(), beliefs.natural, lambda leaf, axis: np.take(leaf, range(NUMBER), axis))
        return self.case.exact(NUMBER, cut)


def fit_all_locals(fitted: Fitted, beliefs: Beliefs, l: tuple[Beliefs, ...]) -> tuple[Beliefs, ...]:
    return tuple(
        fit_locals(fitted.model, beliefs.mean, batch, lb, fitted.size, capacity=fitted.capacity, sweeps=SWEEPS)
        for batch, lb in zip(fitted.batches, l, strict=True)
    )


def means(l: tuple[Beliefs, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(b.mean for b in l)


@cache
def fit_case(index: int) -> Fitted:
    case = CASES[index]
    with jax.enable_x64(True):
        data = cast(case.data, np.float64)
        start = scattered_start(case.model, jax.random.key(3), data, case.size, case.capacity, np.float64)
        end = ascend(case.model, data, start, case.size, capacity=case.capacity, sweeps=1000, tolerance=1e-15)
        return Fitted(case, data.batches, start, end)


VARIATIONS = (
    *(f"mixture of {kind.name}" for kind in mixture_cases.CASES if kind is not mixture_cases.FULL),
    "LDA plug-in",
    "LDA with seeds",
    "admixture",
    "point mixture",
    "finite mixture, scales inferred",
    "HDP mixture",
    "noisy Poisson factorization",
    "GM-mixture",
    "GM-LDA of tokens",
)
"""Rows that vary another one, each with a test file of its own: all that is asked of them is asked in the slow tier."""
STRUCTURES = ("LDA", "IBP", "DP mixture", "HDP", "block model")
"""Rows of which everything is asked in the fast tier: of structures that the engine goes through in a way of its own
(memory, sticks, tables, two sizes). Elements that interact (hidden Markov) take as long as all of these: thorough."""


NO_VARIATIONS = tuple(case.name for case in CASES if case.name not in VARIATIONS)


def rows(
    asked: Callable[[Case], bool] = lambda _: True,
    fast: tuple[str, ...] = STRUCTURES,
    thorough: tuple[str, ...] = NO_VARIATIONS,
) -> list[Any]:
    """The rows of the table of which something is asked, as parameters.

    fast: the rows asked in the fast tier. thorough: more, asked in the thorough tier. The others are asked in the slow.
    """
    return in_tiers(
        filter(asked, CASES),
        lambda case: case.name in fast,
        lambda case: case.name,
        is_thorough=lambda case: case.name in thorough,
    )


@pytest.fixture(params=rows())
def fitted(request: pytest.FixtureRequest) -> Fitted:
    return fit_case(CASES.index(request.param))


@pytest.fixture(autouse=True)
def in_float64(float64: None) -> Iterator[None]:
    """Every behaviour is checked in float64."""
    return


@partial(jax.jit, static_argnames=("capacity",))
def log_joint_gradients(
    model: Model, g: Any, l: Any, batches: tuple[Batch, ...], size: Any, *, capacity: tuple[int, ...]
) -> tuple[Any, Any]:
    """(log p(everything), its gradient by model, globals and locals): the definition, without the engine."""
    on = model.active(size, capacity)

    def log_joint(model: Model, g: Any, l: Any) -> Any:
        total = model.log_prior(g, on)
        for batch, lb in zip(batches, l, strict=True):
            per_unit = jax.vmap(lambda unit, lu: model.log_unit(g, lu, unit, on))(batch.units, lb)
            total += (batch.weight * per_unit).sum()
        return total

    return jax.value_and_grad(log_joint, argnums=(0, 1, 2))(model, g, l)


def on_axes(sites: dict[str, Any], statistics: Any, change: Callable[[Any, int], Any], lead: int = 0) -> Any:
    """`change(leaf, axis)` on every axis of every site that the size decides."""
    out = {}
    for name, site in sites.items():

        def changed(leaf: Any, site: Any = site) -> Any:
            leaf = np.asarray(leaf)
            for position, axis in enumerate(site.axes[: leaf.ndim - lead]):
                if axis in SIZE_AXES:
                    leaf = change(leaf, position + lead)
            return leaf

        out[name] = jax.tree.map(changed, statistics[name])
    return out


def sized(fitted: Fitted, statistics: Any) -> Any:
    """The sites that have an axis the size decides (a hyper-parameter with a prior has none)."""
    sites = {**fitted.model.globals(), **fitted.model.locals()}
    return {name: leaf for name, leaf in statistics.items() if SIZE_AXES & set(sites[name].axes)}


def change_state(model: Model, state: MeanField, change: Callable[[Any, int], Any]) -> MeanField:
    state = jax.tree.map(np.asarray, state)
    beliefs = Beliefs(*(on_axes(model.globals(), part, change) for part in state.beliefs))
    l = tuple(Beliefs(*(on_axes(model.locals(), part, change, lead=1) for part in b)) for b in state.locals)
    return state._replace(beliefs=beliefs, locals=l)


def assert_close(actual: Any, desired: Any, atol: float = 1e-10) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10, atol=atol), actual, desired)


def assert_same(actual: Any, desired: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, actual, desired)


# ── the bound ───────────────────────────────────────────────────────────────────────────────────────────────────────


SMOKE = ("IBP", "hLDA", "HDP", "Poisson factorization", "block model", "Corr-LDA")
"""Cases of the smoke tier: one of each family that no other smoke test fits."""


@pytest.mark.parametrize(
    "fitted",
    [pytest.param(*row.values, marks=pytest.mark.smoke if row.id in SMOKE else row.marks, id=row.id) for row in rows()],
    indirect=True,
)
def test_bound_is_below_the_exact_evidence(fitted):
    """At the start and at the end; the gap at the end is that of mean field, not of a missing term."""
    assert fitted.bound(fitted.start.beliefs, fitted.start.locals) <= fitted.exact(fitted.start.beliefs) + 1e-9
    gap = fitted.exact(fitted.end.beliefs) - fitted.end.trace[-1]
    assert (-1e-6 < gap < 1e-3) if fitted.case.tight else 0 < gap < 8
    assert fitted.bound(fitted.end.beliefs, fitted.end.locals) == fitted.end.trace[-1]


def test_every_step_raises_the_bound(fitted):
    """Locals and globals in turn, from the start."""
    beliefs, l = fitted.start.beliefs, fitted.start.locals
    bounds = [fitted.bound(beliefs, l)]
    for _ in range(6):
        l = fit_all_locals(fitted, beliefs, l)
        bounds.append(fitted.bound(beliefs, l))
        beliefs = resident_sweep(fitted.model, beliefs, fitted.batches, means(l), fitted.size, capacity=fitted.capacity)
        bounds.append(fitted.bound(beliefs, l))
    assert np.diff([*bounds, *fitted.end.trace[6:]]).min() >= -1e-11
    assert bounds[-1] > bounds[0] + 1e-3


@partial(jax.jit, static_argnames=("capacity",))
def gated_gradients(model: Model, g: Any, units: Any, l: Beliefs, size: Any, *, capacity: tuple[int, ...]) -> Any:
    """∂/∂E[t(site)] of each unit's bound but for the site's own entropy, its gates open: by the definition of q."""
    sites = model.locals()

    def one(unit: Any, l: Beliefs) -> Any:
        on = unit_masks(model, unit, model.active(size, capacity))

        def by_site(name: str, site: Any) -> Any:
            at = dict(l.mean)
            if site.gate is not None:
                at[site.gate.site] = jnp.ones_like(at[site.gate.site])

            def bound_but_own_entropy(m: Any) -> Any:
                total = model.log_unit(g, {**at, name: m}, unit, on)
                for other, s in sites.items():
                    if s.gate is not None and s.gate.site == name:
                        copies = 1.0 if s.copies is None else s.copies(unit)
                        entropy = s.family.entropy(l.natural[other], s.event_mask(on))
                        total += (s.gate.part(m, on) * copies * entropy).sum()
                return total

            return jax.grad(bound_but_own_entropy)(l.mean[name])

        return {name: by_site(name, site) for name, site in sites.items()}

    return jax.vmap(one)(units, l)


@pytest.mark.parametrize("fitted", rows(thorough=()), indirect=True)
def test_the_end_is_stationary(fitted):
    """Each natural parameter is the gradient of the log-joint per copy: a rising bound alone proves little."""
    assert fitted.end.converged
    _, (_, by_globals, by_locals) = log_joint_gradients(
        fitted.model,
        fitted.end.beliefs.mean,
        means(fitted.end.locals),
        fitted.batches,
        fitted.size,
        capacity=fitted.capacity,
    )
    for name, natural in fitted.end.beliefs.natural.items():
        assert_close(by_globals[name], natural, atol=2e-6)
    on = fitted.model.active(fitted.size, fitted.capacity)
    for batch, gradient, l in zip(fitted.batches, by_locals, fitted.end.locals, strict=True):
        if any(site.gate is not None for site in fitted.model.locals().values()):
            g = fitted.end.beliefs.mean
            gradient = gated_gradients(fitted.model, g, batch.units, l, fitted.size, capacity=fitted.capacity)
        for name, site in fitted.model.locals().items():
            copies = np.ones(1) if site.copies is None else np.asarray(jax.vmap(site.copies)(batch.units))

            def per_copy(leaf: Any, natural: Any, copies: Any = copies, weight: Any = batch.weight) -> Any:
                divisor = copies.reshape(copies.shape + (1,) * (natural.ndim - copies.ndim))
                exists = (divisor > 0) & (weight > 0).reshape((-1,) + (1,) * (natural.ndim - 1))
                return np.where(exists, np.asarray(leaf) / np.where(divisor > 0, divisor, 1), natural)

            natural = jax.tree.map(per_copy, gradient[name], l.natural[name])

            def mean(unit: Any, eta: Any, site: Any = site) -> Any:  # on the scale where a probability of 0 is 0
                return expected_statistics(site, eta, unit_masks(fitted.model, unit, on))

            assert_close(jax.jit(jax.vmap(mean))(batch.units, natural), l.mean[name], atol=2e-6)


# ── padding ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_padding_contributes_exactly_nothing(fitted):
    """Padded units and what is not observed, whatever they hold: same bound, statistics and gradients, bit for bit."""

    def disturbed(batch: Batch) -> Batch:
        units = fitted.case.ignored(batch.units)
        real = np.asarray(batch.weight) > 0
        swapped = jax.tree.map(lambda x: np.where(real.reshape((-1,) + (1,) * (x.ndim - 1)), x, x[::-1]), units)
        return Batch(swapped, batch.weight)

    other = tuple(disturbed(batch) for batch in fitted.batches)
    g, l = fitted.end.beliefs, fitted.end.locals
    assert any(
        not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(fitted.batches), strict=True)
    )
    for batch, changed, lb in zip(fitted.batches, other, l, strict=True):
        per_unit = batch_bound(fitted.model, g.mean, changed, lb, fitted.size, capacity=fitted.capacity)
        assert_same(per_unit, batch_bound(fitted.model, g.mean, batch, lb, fitted.size, capacity=fitted.capacity))
        assert np.all(np.asarray(per_unit)[np.asarray(batch.weight) == 0] == 0)
        both = [
            batch_statistics(fitted.model, g.mean, b, lb.mean, fitted.size, capacity=fitted.capacity)
            for b in (batch, changed)
        ]
        assert_same(*both)
        none = Batch(batch.units, np.zeros_like(batch.weight))
        silent = batch_statistics(fitted.model, g.mean, none, lb.mean, fitted.size, capacity=fitted.capacity)
        assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(silent))


@partial(jax.jit, static_argnames=("capacity",))
def log_joint_alone(
    model: Model, g: Any, l: Any, batches: tuple[Batch, ...], size: Any, *, capacity: tuple[int, ...]
) -> Any:
    """The value of `log_joint_gradients`, compiled in a third of the time."""
    on = model.active(size, capacity)
    total = model.log_prior(g, on)
    for batch, lb in zip(batches, l, strict=True):
        total += (batch.weight * jax.vmap(lambda unit, lu: model.log_unit(g, lu, unit, on))(batch.units, lb)).sum()
    return total


def one_place_more(fitted: Fitted) -> tuple[MeanField, tuple[int, ...]]:
    def padded(leaf: Any, axis: int) -> Any:
        return np.pad(leaf, [(0, 1 if a == axis else 0) for a in range(leaf.ndim)])

    return change_state(fitted.model, fitted.end, padded), tuple(places + 1 for places in fitted.capacity)


@pytest.mark.parametrize("fitted", rows(thorough=()), indirect=True)
def test_capacity_contributes_exactly_nothing(fitted):
    """Components beyond the size: zero statistics, which are gradients at the end, and one more of them changes no
    number."""
    g, l = fitted.end.beliefs.mean, means(fitted.end.locals)
    value, _ = log_joint_gradients(fitted.model, g, l, fitted.batches, fitted.size, capacity=fitted.capacity)
    beyond = change_state(fitted.model, fitted.end, lambda leaf, axis: np.take(leaf, [NUMBER], axis))
    exactly_zero = [leaf for b in (beyond.beliefs, *beyond.locals) for leaf in jax.tree.leaves(sized(fitted, b.mean))]
    assert all(np.all(np.asarray(leaf) == 0) for leaf in exactly_zero)

    wider, more = one_place_more(fitted)
    wide_value = log_joint_alone(
        fitted.model, wider.beliefs.mean, means(wider.locals), fitted.batches, fitted.size, capacity=more
    )
    np.testing.assert_allclose(wide_value, value, rtol=1e-14)
    assert_close(
        globals_bound(fitted.model, wider.beliefs, fitted.size, capacity=more),
        globals_bound(fitted.model, fitted.end.beliefs, fitted.size, capacity=fitted.capacity),
    )


@pytest.mark.slow  # the gradients are compiled a second time
def test_one_place_more_has_no_gradient(fitted):
    g, l = fitted.end.beliefs.mean, means(fitted.end.locals)
    _, gradient = log_joint_gradients(fitted.model, g, l, fitted.batches, fitted.size, capacity=fitted.capacity)
    wider, more = one_place_more(fitted)
    _, wide_gradient = log_joint_gradients(
        fitted.model, wider.beliefs.mean, means(wider.locals), fitted.batches, fitted.size, capacity=more
    )
    assert_close(wide_gradient[0], gradient[0])
    by_globals = on_axes(fitted.model.globals(), wide_gradient[1], lambda leaf, axis: np.take(leaf, [-1], axis))
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(sized(fitted, by_globals)))


# ── symmetries ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fitted", rows(lambda case: case.exchangeable), indirect=True)
def test_components_can_be_renamed(fitted):
    """Renaming components (and hyper-parameters given one by one) renames the gradients and leaves the bound."""
    order = np.array([2, 0, 1, 3])

    def renamed(leaf: Any, axis: int) -> Any:
        return np.take(leaf, order, axis)

    model = jax.tree.map(lambda x: x[order[:3]] if np.shape(x) == fitted.size else x, fitted.model)
    state = change_state(fitted.model, fitted.start, renamed)
    before = fitted.bound(fitted.start.beliefs, fitted.start.locals)
    np.testing.assert_allclose(
        bound(model, fitted.batches, state.beliefs, state.locals, fitted.size, capacity=fitted.capacity),
        before,
        rtol=1e-12,
    )
    for batch, lb, old in zip(fitted.batches, state.locals, fitted.start.locals, strict=True):
        statistics = batch_statistics(model, state.beliefs.mean, batch, lb.mean, fitted.size, capacity=fitted.capacity)
        expected = batch_statistics(
            fitted.model, fitted.start.beliefs.mean, batch, old.mean, fitted.size, capacity=fitted.capacity
        )
        assert_close(statistics, on_axes(model.globals(), expected, renamed))


@pytest.mark.parametrize("fitted", rows(lambda case: case.exchangeable), indirect=True)
def test_log_symmetry_counts_the_relabellings(fitted):
    """log K! for distinct components, less log m! for m equal ones; of each size."""
    beliefs = change_state(fitted.model, fitted.end, lambda leaf, axis: np.take(leaf, [0, 1, 2], axis)).beliefs
    rng = np.random.default_rng(0)
    distinct = jax.tree.map(lambda x: np.asarray(x) + rng.uniform(1, 2, np.shape(x)), beliefs.natural)
    log = fitted.model.log_symmetry
    assert log(fitted.size, distinct) == pytest.approx(fitted.case.n_sizes * gammaln(4), abs=1e-12)
    sites = fitted.model.globals()
    pair = on_axes(sites, distinct, lambda leaf, axis: np.take(leaf, [0, 1, 0], axis))
    assert log(fitted.size, pair) == pytest.approx(fitted.case.n_sizes * (gammaln(4) - gammaln(3)), abs=1e-12)
    equal = on_axes(sites, distinct, lambda leaf, axis: np.take(leaf, [1, 1, 1], axis))
    assert log(fitted.size, equal) == pytest.approx(0, abs=1e-12)


# ── compilation ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # every operation is compiled by itself; what is compiled whole has the exact numbers above
def test_jit_changes_nothing(fitted):
    g, batch, lb = fitted.end.beliefs.mean, fitted.batches[0], fitted.end.locals[0]
    jitted = batch_bound(fitted.model, g, batch, lb, fitted.size, capacity=fitted.capacity)
    with jax.disable_jit():
        assert_close(batch_bound(fitted.model, g, batch, lb, fitted.size, capacity=fitted.capacity), jitted)


@pytest.mark.slow  # everything is compiled a second time, in float32
def test_single_precision_agrees(fitted):
    """Three sweeps from one start in float32, nothing of it promoted, and in float64: expected statistics, and the
    bounds of both ends, taken in float64, agree as far as 24 bits can."""

    def floats(tree: Any, dtype: Any) -> Any:
        def converted(leaf: Any) -> np.ndarray:
            leaf = np.asarray(leaf)
            return leaf.astype(dtype) if np.issubdtype(leaf.dtype, np.floating) else leaf

        return jax.tree.map(converted, tree)

    def swept(dtype: Any) -> tuple[Beliefs, tuple[Beliefs, ...]]:
        with jax.enable_x64(dtype == np.float64):
            start = replace(fitted, batches=floats(fitted.batches, dtype))
            beliefs, l = floats((fitted.start.beliefs, fitted.start.locals), dtype)
            for _ in range(3):
                l = fit_all_locals(start, beliefs, l)
                beliefs = resident_sweep(
                    fitted.model, beliefs, start.batches, means(l), fitted.size, capacity=fitted.capacity
                )
            return beliefs, l

    single, double = swept(np.float32), swept(np.float64)
    assert {leaf.dtype for leaf in jax.tree.leaves(single)} == {np.dtype(np.float32)}
    scale = max(1.0, *(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(double[0].mean)))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5 * scale), single[0].mean, double[0].mean)
    np.testing.assert_allclose(fitted.bound(*floats(single, np.float64)), fitted.bound(*double), rtol=1e-5)


def test_one_trace_serves_every_size(fitted):
    """Size and hyper-parameters are traced: after the first call nothing is compiled for another of either."""
    functions = (fit_locals, resident_sweep, batch_bound, globals_bound)
    before = [f._cache_size() for f in functions]
    model = jax.tree.map(lambda x: 1.25 * x if isinstance(x, np.ndarray) else x, fitted.model)
    bounds = []
    for size in (1, 2, 3):
        start = fitted.start
        l = tuple(
            fit_locals(
                model, start.beliefs.mean, b, lb, (size,) * len(fitted.size), capacity=fitted.capacity, sweeps=SWEEPS
            )
            for b, lb in zip(fitted.batches, start.locals, strict=True)
        )
        beliefs = resident_sweep(
            model, start.beliefs, fitted.batches, means(l), (size,) * len(fitted.size), capacity=fitted.capacity
        )
        bounds.append(bound(model, fitted.batches, beliefs, l, (size,) * len(fitted.size), capacity=fitted.capacity))
    assert [f._cache_size() for f in functions] == before
    assert len(set(bounds)) == 3


# ── hyper-parameters and weights ────────────────────────────────────────────────────────────────────────────────────


def test_every_hyperparameter_changes_the_log_joint(fitted):
    """A prior cannot be left out unseen; and every gradient is a number."""
    g, l = fitted.end.beliefs.mean, means(fitted.end.locals)
    value, gradient = log_joint_gradients(fitted.model, g, l, fitted.batches, fitted.size, capacity=fitted.capacity)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((value, gradient)))
    leaves, tree = jax.tree.flatten(fitted.model)
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
    assert where or not fitted.case.drawable
    for index in where:
        for entry in np.ndindex(leaves[index].shape):
            moved = leaves[index].copy()
            moved[entry] *= 1.1
            model = jax.tree.unflatten(tree, [moved if i == index else leaf for i, leaf in enumerate(leaves)])
            other, _ = log_joint_gradients(model, g, l, fitted.batches, fitted.size, capacity=fitted.capacity)
            assert abs(other - value) > 1e-6


def test_weight_two_is_a_unit_twice(fitted):
    batch, lb = fitted.batches[0], fitted.start.locals[0]
    n = len(batch.weight)
    twice = np.array([0, *range(n - 1)])  # the first unit twice, the last one not
    spelled = jax.tree.map(lambda x: x[twice], (batch.units, lb))
    weight = np.array([2.0, *[1.0] * (n - 2), 0.0])
    g = fitted.start.beliefs.mean
    weighted = batch_statistics(
        fitted.model, g, Batch(batch.units, weight), lb.mean, fitted.size, capacity=fitted.capacity
    )
    expected = batch_statistics(
        fitted.model, g, Batch(spelled[0], np.ones(n)), spelled[1].mean, fitted.size, capacity=fitted.capacity
    )
    assert_close(weighted, expected, atol=1e-12)


@pytest.mark.parametrize("fitted", rows(lambda case: case.repeated is not None), indirect=True)
def test_copies_are_repeated_elements(fitted):
    """A count of 3 is three tokens: the same evidence bound and the same globals, step by step."""
    repeated = cast(fitted.case.repeated, np.float64)
    start = scattered_start(fitted.model, jax.random.key(3), repeated, fitted.size, fitted.capacity, np.float64)
    assert_close(start.beliefs, fitted.start.beliefs, atol=1e-12)
    copies = Fitted(fitted.case, repeated.batches, start, start)
    a, b = (start.beliefs, start.locals), (fitted.start.beliefs, fitted.start.locals)
    for _ in range(3):
        np.testing.assert_allclose(copies.bound(*a), fitted.bound(*b), rtol=1e-12)
        l = fit_all_locals(copies, *a), fit_all_locals(fitted, *b)
        beliefs = [
            resident_sweep(fitted.model, old[0], f.batches, means(new), fitted.size, capacity=fitted.capacity)
            for old, f, new in zip((a, b), (copies, fitted), l, strict=True)
        ]
        a, b = (beliefs[0], l[0]), (beliefs[1], l[1])
        assert_close(a[0], b[0], atol=1e-11)


# ── memory and minibatches ──────────────────────────────────────────────────────────────────────────────────────────


def all_statistics(fitted: Fitted, g: Any, l: tuple[Beliefs, ...]) -> list[Any]:
    return [
        batch_statistics(fitted.model, g, batch, lb.mean, fitted.size, capacity=fitted.capacity)
        for batch, lb in zip(fitted.batches, l, strict=True)
    ]


def test_statistics_depend_on_the_globals_where_the_row_says_so(fitted):
    """Memory is only sound where a batch's statistics do not move with the global that they update."""
    moved = jax.tree.map(lambda x: 1.3 * x, fitted.end.beliefs.mean)
    a, b = (all_statistics(fitted, g, fitted.end.locals) for g in (fitted.end.beliefs.mean, moved))
    same = all(np.allclose(x, y, atol=1e-12) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    assert same == fitted.case.memoizable


@pytest.mark.parametrize("fitted", rows(lambda case: case.memoizable), indirect=True)
def test_memoized_and_stochastic_steps_are_the_coordinate_step(fitted):
    """Rate 1 with all statistics is the batch step; subtracting old statistics and adding new ones ends there too."""
    beliefs, l = fitted.start.beliefs, list(fit_all_locals(fitted, fitted.start.beliefs, fitted.start.locals))
    memory = all_statistics(fitted, beliefs.mean, tuple(l))
    total = jax.tree.map(lambda *x: sum(x), *memory)
    step = update_globals(fitted.model, beliefs, total, fitted.size, 1.0, capacity=fitted.capacity)
    assert_close(
        step,
        resident_sweep(fitted.model, beliefs, fitted.batches, means(tuple(l)), fitted.size, capacity=fitted.capacity),
    )

    half = update_globals(fitted.model, beliefs, total, fitted.size, 0.5, capacity=fitted.capacity)
    middle = jax.tree.map(lambda old, new: 0.5 * old + 0.5 * new, beliefs.natural, step.natural)
    for name in half.natural.keys() - set(fitted.case.coupled):
        assert_close(half.natural[name], middle[name])

    beliefs, bounds = step, []
    for _ in range(60):
        for index, batch in enumerate(fitted.batches):
            l[index] = fit_locals(
                fitted.model, beliefs.mean, batch, l[index], fitted.size, capacity=fitted.capacity, sweeps=SWEEPS
            )
            new = batch_statistics(
                fitted.model, beliefs.mean, batch, l[index].mean, fitted.size, capacity=fitted.capacity
            )
            total = jax.tree.map(lambda t, old, new: t - old + new, total, memory[index], new)
            memory[index] = new
            beliefs = update_globals(fitted.model, beliefs, total, fitted.size, 1.0, capacity=fitted.capacity)
            bounds.append(fitted.bound(beliefs, tuple(l)))
    assert np.diff(bounds).min() >= -1e-10
    assert_close(total, jax.tree.map(lambda *x: sum(x), *all_statistics(fitted, beliefs.mean, tuple(l))))
    l = fit_all_locals(fitted, beliefs, tuple(l))
    batch_step = resident_sweep(fitted.model, beliefs, fitted.batches, means(l), fitted.size, capacity=fitted.capacity)
    assert fitted.bound(batch_step, l) - bounds[-1] < 1e-6


# ── the model alone ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_ceiling_is_above_the_exact_evidence(fitted):
    ceiling = sum(fitted.model.ceiling(batch.units) for batch in fitted.case.data.batches)
    assert fitted.exact(fitted.end.beliefs) <= ceiling
    assert np.isfinite(ceiling) == fitted.case.certified


def cut_to_size(fitted: Fitted) -> MeanField:
    return change_state(fitted.model, fitted.end, lambda leaf, axis: np.take(leaf, [0, 1, 2], axis))


@pytest.mark.parametrize("fitted", rows(lambda case: case.drawable), indirect=True)
def test_simulate_has_the_shapes_of_the_contract(fitted):
    """Traced and not run: compiling it takes as long as fitting."""
    units = jax.tree.map(np.ones_like, fitted.batches[0].units)
    g, l, drawn = jax.eval_shape(
        lambda key: fitted.model.simulate(key, fitted.size, units, fitted.case.data.extents), jax.random.key(0)
    )
    cut = cut_to_size(fitted)
    assert jax.tree.map(np.shape, drawn) == jax.tree.map(np.shape, units)
    assert jax.tree.map(np.shape, g) == jax.tree.map(np.shape, cut.beliefs.mean)
    assert jax.tree.map(np.shape, l) == jax.tree.map(np.shape, cut.locals[0].mean)


DRAWN = ("mixture of full covariance", "hidden Markov", "IBP", "HDP", "Poisson factorization", "block model")
"""Cases whose simulated numbers are looked at, in the thorough tier: rows, sequences, features, tables, counts, two
sizes. Documents, images and genotypes are simulated where the density of their true latents is tested."""


@pytest.mark.parametrize("fitted", rows(lambda case: case.drawable, (), DRAWN), indirect=True)
def test_simulate_draws_from_the_model(fitted):
    """Finite numbers of which the model has a density, another draw for another key."""
    units = jax.tree.map(np.ones_like, fitted.batches[0].units)
    simulate = jax.jit(lambda key: fitted.model.simulate(key, fitted.size, units, fitted.case.data.extents))
    g, l, drawn = simulate(jax.random.key(0))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((g, l, drawn)))
    other = simulate(jax.random.key(1))
    assert not np.array_equal(jax.tree.leaves(g)[0], jax.tree.leaves(other[0])[0])
    on = fitted.model.active(fitted.size, fitted.size)
    log_units = jax.jit(jax.vmap(lambda unit, lu: fitted.model.log_unit(g, lu, unit, on)))(drawn, l)
    assert np.all(np.isfinite(log_units))


@pytest.mark.parametrize("case", rows(thorough=()))
def test_the_contract_is_kept(case):
    """What `lv.models.check` looks for in models of one's own, in ours; a symmetry where the row says that there is, of
    a single size: others it says it has not looked at."""
    report = check(case.model, case.data)
    are_renamed = case.exchangeable or case.model.n_given > 0  # free components beside those that are given
    assert ("log 3! = 1.792" in str(report)) == (are_renamed and case.n_sizes == 1)


def test_model_is_a_pytree_of_its_hyperparameters(fitted):
    """NumPy leaves, allocated on no device."""
    leaves = [leaf for leaf in jax.tree.leaves(eqx.filter(fitted.model, eqx.is_array_like)) if hasattr(leaf, "dtype")]
    if fitted.case.tight:
        assert not leaves  # everything is estimated
        return
    assert leaves
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
    assert not any(isinstance(leaf, jax.Array) for leaf in leaves)
    assert jnp.asarray(leaves[0]).dtype == np.float64
