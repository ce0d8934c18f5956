"""Latent block models against the enumeration of all labellings: bound, paths, labellings renamed, fits and searches.

False alarms. Keys are fixed: a test always passes or always fails. Over keys each z below is normal to good
approximation, and |z| < 4.5 for at most 300 numbers fails by chance in fewer than 1 of 400 keys.
"""

from functools import cache, partial
from itertools import permutations
from typing import Any

import block_oracles as exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import Compiled
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.annealing.relabelling import log_labelling
from lvsearch.inference.block_models import BlockChain, BlockStart
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.evidence import flat_chain, forward
from lvsearch.sizing.racing import TOLERANCE

BITS = np.array([[1, 0, 1], [1, np.nan, 0], [0, 1, 0], [1, 0, 1.0]])
GRADES = np.array([[1, 3, 3], [2, 1, np.nan], [3, 3, 1], [1, 2, 2.0]])
COUNTS = np.array([[4, 0, 2], [1, np.nan, 0], [0, 3, 1], [5, 1, 1.0]])
REALS = np.array([[1.3, -0.2, 0.4], [0.9, np.nan, -1.0], [-1.1, 0.6, 0.1], [1.7, 0.2, 0.8]])
SIZE, CAPACITY, CONCENTRATIONS = (2, 2), (3, 3), (0.8, 1.4)
m = lv.models
KINDS = {
    "links": (m.BernoulliComponents(0.6, 0.9), BITS, exact.bernoulli_marginal(0.6, 0.9)),
    "ratings": (m.LevelComponents((1, 2, 3), 0.7), GRADES, exact.categorical_marginal((1, 2, 3), 0.7)),
    "counts": (m.PoissonComponents(1.3, 0.6), COUNTS, exact.poisson_marginal(1.3, 0.6)),
    "numbers": (m.DiagonalComponents(0.0, 1.0, 0.3, 2.5, 0.7), REALS, exact.normal_marginal(0.3, 2.5, 0.7)),
}
Z_LIMIT = 4.5


def model_of(kind: str) -> lv.models.LatentBlockModel:
    return lv.models.LatentBlockModel(KINDS[kind][0], *CONCENTRATIONS)


def points_of(kind: str) -> lv.Points:
    return lv.Points.from_array(KINDS[kind][1], missing="nan")


def data_of(kind: str) -> Dataset:
    return points_of(kind).dataset()


@cache
def joints_of(kind: str, size: tuple[int, int]) -> dict[Any, float]:
    return exact.log_joints(KINDS[kind][1], size, KINDS[kind][2], CONCENTRATIONS)


def evidence_of(kind: str, size: tuple[int, int] = SIZE) -> float:
    return float(logsumexp(list(joints_of(kind, size).values())))


def about_one_labelling(chain: BlockChain) -> BlockChain:
    """A q that leans to one labelling, asymmetric everywhere."""
    rng = np.random.default_rng(4)
    k, l = (int(n) for n in chain.size)

    def log_labels(n: int, size: int, places: int) -> np.ndarray:
        probability = np.pad(rng.dirichlet(np.full(size, 0.7), n) * 0.9 + 0.1 / size, [(0, 0), (0, places - size)])
        return np.log(np.where(probability > 0, probability, 1.0))

    start = BlockStart(
        log_labels(len(chain.weight), k, 3),
        log_labels(3, l, 3),
        rng.uniform(1, 3, 3),
        rng.uniform(1, 3, 3),
        chain.prior + rng.uniform(0, 0.5, (3, 3, len(chain.prior))),
    )
    return BlockChain(
        chain.model, chain.size, chain.increments, chain.log_carrier, chain.weight, chain.prior, start, None, (3, 3)
    )


def estimates(chain: Any, key: int, steps: int = 6, islands: int = 800) -> np.ndarray:
    """Islands of two particles: log p, each estimate of p unbiased."""
    return forward(
        chain, jax.random.key(key), np.linspace(0, 1, steps + 1)[1:], islands=islands, particles=2
    ).log_evidence


def z_of_evidence(log_evidence: np.ndarray, truth: float) -> float:
    """The mean of unbiased estimates is normal around the truth."""
    ratio = np.exp(log_evidence - truth)
    return float((ratio.mean() - 1) / (ratio.std() / np.sqrt(len(ratio))))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [
        "links",
        pytest.param("ratings", marks=pytest.mark.slow),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("counts", "numbers")),
    ],
)
@pytest.mark.parametrize("about", [pytest.param(False, marks=pytest.mark.slow), True], ids=["prior", "labelling"])
def test_both_paths_give_the_evidence_of_all_labellings(kind, about):
    """From the prior, and from a q about one labelling; off by 0.3 nats they would not."""
    with jax.enable_x64(True):
        chain, truth = BlockChain.from_data(model_of(kind), data_of(kind), SIZE, CAPACITY), evidence_of(kind)
    steps = 40 if kind == "numbers" else 6  # precisions drawn about a prior of its own spread the weights
    found = estimates(about_one_labelling(chain) if about else chain, 7, steps)
    assert abs(z_of_evidence(found, truth)) < Z_LIMIT
    assert abs(z_of_evidence(found, truth + 0.3)) > Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_generic_path_gives_the_same(kind):
    """From the gradient of the log-joint, with a global indicator."""
    with jax.enable_x64(True):
        chain = flat_chain(model_of(kind), data_of(kind), SIZE, CAPACITY)
    assert abs(z_of_evidence(estimates(chain, 3, steps=12), evidence_of(kind))) < Z_LIMIT


@pytest.mark.parametrize(
    "kind", ["links", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("numbers", "ratings", "counts"))]
)
def test_one_block_is_conjugate(kind):
    """Size 1 × 1: nothing but the cells together."""
    cells = KINDS[kind][1]
    alone = KINDS[kind][2](cells[~np.isnan(cells)])
    assert evidence_of(kind, (1, 1)) == pytest.approx(alone, abs=1e-12)
    with jax.enable_x64(True):
        chain = BlockChain.from_data(model_of(kind), data_of(kind), (1, 1), CAPACITY)
        np.testing.assert_allclose(bayes(chain, jax.random.key(0)), alone, rtol=1e-9)


@jax.jit
def bayes(chain: BlockChain, key: Any) -> Any:
    """log p(cells) = log p(cells | blocks) + log p(blocks) − log p(blocks | cells), at any blocks: five draws."""
    state = chain.init(key, 5)
    prior = chain._log_blocks(jnp.broadcast_to(chain.prior, (*CAPACITY, len(chain.prior))), state)
    after = chain.prior + chain.sums(state.rows, state.columns)[..., 0]
    return state.log_likelihood + prior - chain._log_blocks(after, state)


@pytest.mark.slow
def test_a_sweep_leaves_the_posterior_as_it_is():
    """Labels of the posterior, blocks drawn given them, one sweep in each direction: the same labels' frequencies."""
    joints, particles = joints_of("links", SIZE), 40_000
    log = np.array(list(joints.values()))
    probability = np.exp(log - logsumexp(log))
    drawn = np.random.default_rng(1).choice(len(log), size=particles, p=probability)
    keys = [*joints]
    rows = np.array([keys[i][0] for i in drawn]).T
    columns = np.array([keys[i][1] for i in drawn]).T
    with jax.enable_x64(True):
        chain = BlockChain.from_data(model_of("links"), data_of("links"), SIZE, CAPACITY)
        rows = jnp.asarray(np.pad(rows, [(0, len(chain.weight) - 4), (0, 0)]), jnp.int32)
        state = chain.state_from_labels(jax.random.key(3), rows, jnp.asarray(columns, jnp.int32))
        for backward in (False, True):
            after = chain.step(jax.random.key(5), state, jnp.ones(()), backward=backward)
            code = np.concatenate([np.asarray(after.rows)[:4], np.asarray(after.columns)])
            found = (code * 2 ** np.arange(7)[:, None]).sum(0)
            expected = np.zeros(128)
            for (z, w), p in zip(keys, probability, strict=True):
                expected[int((np.array([*z, *w]) * 2 ** np.arange(7)).sum())] += p
            frequency = np.bincount(found, minlength=128) / particles
            usual = expected * particles > 10
            error = np.sqrt(expected * (1 - expected) / particles)
            assert np.abs((frequency - expected) / error)[usual].max() < Z_LIMIT
            assert not np.array_equal(np.asarray(after.rows), np.asarray(state.rows))


@pytest.mark.thorough
def test_labellings_are_renamed_on_both_sides_apart():
    """Σ over the 2! · 2! renamings of f, by hand; relabelling changes no density."""
    with jax.enable_x64(True):
        chain = about_one_labelling(BlockChain.from_data(model_of("links"), data_of("links"), SIZE, CAPACITY))
        state = jax.jit(partial(BlockChain.init, particles=6))(chain, jax.random.key(2))
        chain = Compiled(chain)
        scores = np.asarray(chain.label_scores(state))
        sums = np.zeros((6, 4))
        for number, (rows, columns) in enumerate((r, c) for r in permutations((0, 1)) for c in permutations((0, 1))):
            order = jnp.asarray(np.tile([*rows, 2, 3 + columns[0], 3 + columns[1], 5], (6, 1)))
            renamed = chain.relabel(state, order)
            np.testing.assert_allclose(chain.log_density(renamed), chain.log_density(state), rtol=1e-12)
            sums[:, number] = np.trace(np.asarray(chain.label_scores(renamed)), axis1=1, axis2=2)
    own = np.trace(scores, axis1=1, axis2=2)
    np.testing.assert_allclose(log_labelling(scores), np.log(4) + own - logsumexp(sums, axis=1), atol=1e-8)


@pytest.mark.thorough
def test_the_bound_is_below_the_evidence():
    """And close, once the labellings that it leaves out are counted."""
    model = model_of("links")
    estimate = estimator(model, data_of("links")).fit(SIZE, jax.random.key(0), None)
    truth = evidence_of("links")
    assert truth - 4.0 < estimate.log_lower < truth
    assert 0 <= model.log_symmetry(SIZE, estimate.natural) <= np.log(4) + 1e-12


@pytest.mark.parametrize("kind", ["links", pytest.param("ratings", marks=pytest.mark.slow)])
def test_the_contract_is_kept(kind):
    assert "2 empty places more" in str(lv.models.check(model_of(kind), data_of(kind)))


@pytest.mark.parametrize(
    "component",
    [
        lv.models.MultinomialComponents(),
        lv.models.BernoulliComponents().plug_in(),
        lv.models.DiagonalComponents([0.0, 1.0]),
        lv.models.KnownCovarianceComponents(1.0),
    ],
)
def test_cells_that_are_no_cells_are_refused(component):
    with pytest.raises(ValueError, match="expected a kind whose single cells"):
        lv.models.LatentBlockModel(component)


@cache
def planted() -> tuple[lv.Points, np.ndarray, np.ndarray]:
    """40 × 30 cells of 3 × 2 blocks, no doubt of who is with whom, some missing; labels of rows and columns."""
    rng = np.random.default_rng(2)
    rows, columns = rng.permutation(np.repeat([0, 1, 2], [18, 13, 9])), rng.permutation(np.repeat([0, 1], [19, 11]))
    means = np.array([[0.92, 0.1], [0.15, 0.25], [0.5, 0.95]])
    values = (rng.random((40, 30)) < means[rows[:, None], columns]).astype(float)
    values[rng.random((40, 30)) < 0.1] = np.nan
    names = [f"film {d}" for d in range(30)]
    return lv.Points.from_array(values, missing="nan", columns=names), rows, columns


def same_partition(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return len(set(zip(ours.tolist(), theirs.tolist(), strict=True))) == len(set(ours.tolist())) == len(set(theirs))


@pytest.mark.slow
def test_planted_blocks_are_found_shown_and_kept(tmp_path):
    points, rows, columns = planted()
    result = lv.search(
        lv.models.LatentBlockModel(), points, max_size=(5, 4), starts=1, out=tmp_path / "run", progress=False
    )
    # Every division over K clusters is as probable: one that leaves a fourth empty, or splits one, costs little.
    assert (3, 2) in result.estimated.indistinguishable
    assert all(of_rows >= 3 and of_columns >= 2 for of_rows, of_columns in result.estimated.indistinguishable)
    assert "{} row clusters × {} column clusters".format(*result.best_size) in result.summary()
    best = result.fit((3, 2))
    assert same_partition(best.row_labels().to_numpy(), rows)
    assert same_partition(best.column_labels().to_numpy(), columns)
    assert best.column_labels().index[0] == "film 0"
    np.testing.assert_allclose(
        np.sort(best.block_means().to_numpy().ravel()), [0.1, 0.15, 0.25, 0.5, 0.92, 0.95], atol=0.1
    )
    np.testing.assert_allclose(best.row_memberships().sum(axis=1), 1.0, atol=1e-6)
    best.plot_blocks()
    result.plot_lattice()
    again = lv.load(tmp_path / "run")
    assert again.posterior().equals(result.posterior())
    assert again.fit((3, 2)).row_labels().equals(best.row_labels())
    assert again.best.row_labels().equals(result.best.row_labels())
    assert "lattice" in (tmp_path / "run" / "report" / "index.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_search_of_numbers_goes_on_until_the_posterior_is_known(seed):
    """Sizes up to 2 × 2 of four rows and three columns. Precisions drawn from a wide prior spread the weights, so that
    the usual three annealings leave errors that matter."""
    result = lv.search(model_of("numbers"), points_of("numbers"), max_size=(2, 2), seed=seed, progress=False)
    sizes = [(k, l) for k in (1, 2) for l in (1, 2)]
    weights = np.array([result.prior.log_pmf(size) + evidence_of("numbers", size) for size in sizes])
    truth = np.exp(weights - logsumexp(weights))
    found = dict(zip(result.estimated.sizes, result.estimated.probability, strict=True))
    assert result.estimated.moved_by_errors < TOLERANCE
    assert max(abs(found[size] - p) for size, p in zip(sizes, truth, strict=True)) < 0.1
