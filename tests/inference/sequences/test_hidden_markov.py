"""Hidden Markov models: evidence against enumeration of every path, the kernel against the generic engine, and what
people read off a fit. The contract's behaviours are in `test_models.py`."""

from functools import partial

import hidden_markov_oracles as oracles
import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import pytest
from scipy.stats import chisquare

import lvsearch as lv
from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.engine.estimate import beliefs_of, capacity_of, pad_axes
from lvsearch.inference.engine.estimator import GenericEstimator, estimator, exact_bound
from lvsearch.inference.engine.meanfield import MeanField
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.evidence import HiddenMarkovChain, backward, flat_chain, forward, simulated_like, true_state
from lvsearch.inference.evidence.hidden_markov import RowsInTime
from lvsearch.inference.sequences import kernel
from lvsearch.inference.sequences.estimator import sequences_of
from lvsearch.models.families import MarkovChain
from lvsearch.models.units import GroupOfRows, Row

KIND = mixture_cases.DIAGONAL
PRIORS = (0.8, 1.3, 0.6)
MODEL = lv.models.HiddenMarkov(KIND.component, *PRIORS)
SEQUENCES = [KIND.rows[:4], KIND.rows[4:6]]
LEVELS, LEAVES = np.array([-4.0, 0.0, 5.0]), np.array([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.3, 0.0, 0.7]])


def tiny() -> lv.Groups:
    return lv.Groups.from_arrays(SEQUENCES, missing="nan")


def exact(size: int) -> float:
    return oracles.log_evidence(SEQUENCES, size, KIND.log_marginal, *PRIORS)


def machines(n: int = 12) -> tuple[lv.Groups, list[np.ndarray]]:
    """Sequences of three obvious states, one step missing; and the states."""
    rng, values, states = np.random.default_rng(0), [], []
    for length in rng.integers(8, 30, n):
        path = [1]
        for _ in range(length - 1):
            path.append(int(rng.choice(3, p=LEAVES[path[-1]])))
        states.append(np.array(path))
        values.append(rng.normal(LEVELS[path])[:, None])
    values[0][3] = np.nan
    return lv.Groups.from_arrays(values, missing="nan"), states


@pytest.fixture(scope="module")
def fitted() -> lv.FittedModel:
    groups, _ = machines()
    return lv.fit(lv.models.HiddenMarkov(lv.models.DiagonalComponents.scaled_to(groups.rows.values)), groups, size=3)


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_annealed_evidence_is_that_of_all_paths():
    """One state has one path, so every particle is exact; with more, both directions agree with enumeration."""
    data, temperatures = tiny().dataset(), np.linspace(0, 1, 33)[1:]
    for size, tolerance in ((1, 1e-9), (2, 0.25), (3, 0.25)):
        chain = HiddenMarkovChain.from_data(MODEL, data, size)
        there = forward(chain, jax.random.key(1), temperatures, islands=4, particles=16)
        back = backward(chain, jax.random.key(2), there.state, temperatures, islands=4)
        assert there.moved
        np.testing.assert_allclose(np.mean(there.log_evidence), exact(size), atol=tolerance)
        np.testing.assert_allclose(np.mean(back.log_evidence), exact(size), atol=2 * tolerance)


def test_density_and_gain_of_a_path_are_those_of_its_rows():
    """log p(rows, path) as the oracle has it for each path; the gain from 0 to 1 in two steps is that in one."""
    chain, paths = HiddenMarkovChain.from_data(MODEL, tiny().dataset(), 2), oracles.paths([4, 2], 2)
    labels = np.full((chain.elements, len(paths)), -1)
    labels[:6] = np.transpose([[*first, *second] for first, second in paths])
    with jax.enable_x64(True):
        state = chain.state_from_labels(jnp.asarray(labels))
        log = np.asarray(jax.jit(lambda c, s: c.log_density(s))(chain, state))
        gain = jax.jit(lambda c, s, a, b: c.log_gain(s, a, b))
        halves = gain(chain, state, 0.0, 0.3) + gain(chain, state, 0.3, 1.0)
        np.testing.assert_allclose(halves, gain(chain, state, 0.0, 1.0), rtol=1e-10)
    np.testing.assert_allclose(np.logaddexp.reduce(log), exact(2), rtol=1e-10)


def every_path(chain: HiddenMarkovChain) -> tuple[np.ndarray, np.ndarray]:
    """All paths of the tiny sequences through two states, (row, path), and their posterior probabilities."""
    paths = oracles.paths([4, 2], 2)
    labels = np.full((chain.elements, len(paths)), -1)
    labels[:6] = np.transpose([[*first, *second] for first, second in paths])
    with jax.enable_x64(True):
        log = np.asarray(chain.log_density(chain.state_from_labels(jnp.asarray(labels))))
    return labels, np.exp(log - np.logaddexp.reduce(log))


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, True])
def test_a_sweep_over_rows_leaves_the_posterior_of_paths_as_it_is(backward):
    """Frequencies of all 64 paths among 20,000 draws, each moved once."""
    chain = HiddenMarkovChain.from_data(MODEL, tiny().dataset(), 2)
    labels, chance = every_path(chain)
    drawn = np.random.default_rng(3).choice(len(chance), 20_000, p=chance)
    with jax.enable_x64(True):
        state = chain.state_from_labels(jnp.asarray(labels[:, drawn]))
        redraw = jax.jit(lambda chain, key, state, units: chain.redraw_rows(key, state, units, backward=backward))
        moved = redraw(chain, jax.random.key(4), state, np.int32(6))
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-8), moved, chain.state_from_labels(moved.labels))
    found = 2 ** np.arange(6) @ np.asarray(moved.labels)[:6]
    place = 2 ** np.arange(6) @ labels[:6]
    counts = np.bincount(found, minlength=64)[place]
    assert np.mean(found != place[drawn]) > 0.2
    assert chisquare(counts, 20_000 * chance).pvalue > 1e-4


@pytest.mark.thorough
def test_rows_in_time_have_the_exact_evidence_of_every_prefix():
    """The evidence up to each row is exact forwards, and that of all rows is on the way back from posterior draws."""
    data = tiny().dataset()
    sampler = sequential(HiddenMarkovChain.from_data(MODEL, data, 2), jax.random.key(0))
    assert isinstance(sampler, RowsInTime)
    cut = [[SEQUENCES[0][:n]] for n in (1, 2, 3, 4)] + [[SEQUENCES[0], SEQUENCES[1][:n]] for n in (1, 2)]
    expected = np.array([oracles.log_evidence(rows, 2, KIND.log_marginal, *PRIORS) for rows in cut])
    there = grow(sampler, jax.random.key(1), 2, islands=200, particles=8)
    ratios = np.exp(there.log_evidence[: len(expected)] - expected[:, None])
    np.testing.assert_allclose(ratios[0], 1.0, rtol=1e-9)  # the first row's is known
    assert np.all(np.abs(ratios.mean(1) - 1) < 4.5 * np.maximum(ratios.std(1), 1e-6) / np.sqrt(200))

    labels, chance = every_path(sampler.chain)
    with jax.enable_x64(True):
        drawn = labels[:, np.random.default_rng(2).choice(len(chance), 1600, p=chance)]
        state = sampler.chain.state_from_labels(jnp.asarray(drawn))
    back = shrink(sampler, jax.random.key(3), state, 2, islands=200)
    ratios = np.exp(exact(2) - back.log_evidence)
    assert abs(ratios.mean() - 1) < 4.5 * ratios.std() / np.sqrt(200)


@pytest.mark.slow
def test_generic_path_has_the_same_evidence():
    """From the log-joint alone: the path is one site of the generic Gibbs sweep."""
    chain, temperatures = flat_chain(MODEL, tiny().dataset(), (2,), (4,)), np.linspace(0, 1, 129)[1:]
    there = forward(chain, jax.random.key(1), temperatures, islands=8, particles=16)
    np.testing.assert_allclose(np.mean(there.log_evidence), exact(2), atol=0.2)


@pytest.mark.slow
def test_true_paths_begin_backward_ones():
    simulated = simulated_like(tiny().dataset(), MODEL, (3,), jax.random.key(0))
    chain = HiddenMarkovChain.from_data(MODEL, simulated.data, 3)
    with jax.enable_x64(True):
        state = true_state(chain, simulated, 2)
    states = np.argmax(simulated.locals["path"].state, -1)
    by_id = {int(i): row for i, row in zip(simulated.data.unit_ids[0], states, strict=True) if i >= 0}
    np.testing.assert_array_equal(np.asarray(state.labels)[:6, 1], [*by_id[0][:4], *by_id[1][:2]])


# ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # the recursions, below, are in a shorter tier
def test_kernel_is_the_generic_engine(fitted):
    """The same bound at the same state; states where they were planted, a missing step bridged."""
    groups, truth = machines()
    model, data, natural = fitted.model, groups.dataset(), fitted.estimate.natural
    capacity = capacity_of((3,))
    blank = tuple(blank_locals(model, batch, (3,), capacity=capacity) for batch in data.batches)
    settled = MeanField(
        beliefs_of(model, pad_axes(model, natural, (3,), capacity), (3,), capacity=capacity), blank, (), True
    )
    generic = exact_bound(model, data, natural, settled, (3,), capacity)
    assert fitted.estimate.log_lower == pytest.approx(generic, rel=1e-10)
    order = np.argsort(np.argsort(fitted.means()["column0"]))
    right = [order[path] == states for path, states in zip(fitted.paths(), truth, strict=True)]
    assert np.mean(np.concatenate(right)) > 0.97


@pytest.mark.slow
def test_ascent_is_the_generic_ascent():
    """From obvious states both engines end in the same place, within what float32 leaves."""
    groups, _ = machines()
    model = lv.models.HiddenMarkov(lv.models.DiagonalComponents.scaled_to(groups.rows.values))
    ours = estimator(model, groups.dataset()).fit((3,), jax.random.key(0), None)
    generic = GenericEstimator(model, groups.dataset()).fit((3,), jax.random.key(0), None)
    assert ours.log_lower == pytest.approx(generic.log_lower, abs=0.05)


@pytest.mark.thorough
def test_scaled_recursions_are_those_of_the_family():
    """Shares, steps and log Z of ragged sequences as the family has them, where potentials nearly vanish too."""
    data = tiny().dataset()
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        on = MODEL.active((2,), (3,))
        units = data.batches[0].units
        g = jax.jit(lambda key: MODEL.simulate(key, (3,), units, {"dim": 2})[0])(jax.random.key(0))
        g["transitions"] = jnp.asarray(rng.normal(size=(3, 3)) - np.array([[0, 400.0, 0]]).T)

        @jax.jit
        def of_both(g, sequences):
            return (
                kernel.forward_backward(MODEL, g, sequences, on),
                kernel.exact_log_totals(MODEL, g, sequences, (2,), capacity=(3,)),
                MarkovChain().mean(*kernel.path_potentials(MODEL, g, sequences, on)),
            )

        for sequences in sequences_of(MODEL.components, data)[0]:
            (shares, steps, log_z), expected, mean = of_both(g, sequences)
            np.testing.assert_allclose(log_z, expected, rtol=1e-9)
            np.testing.assert_allclose(shares, mean.state, atol=1e-9)
            np.testing.assert_allclose(steps, mean.step.sum((0, 1)), atol=1e-9)


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_what_people_read_off(fitted, tmp_path):
    groups, _ = machines()
    table = fitted.transitions()
    np.testing.assert_allclose(table.sum(axis=1), 1)
    np.testing.assert_allclose(fitted.dwell_times(), 1 / (1 - np.diag(table)))
    np.testing.assert_allclose(np.sort(fitted.means()["column0"]), LEVELS, atol=0.6)
    shares = fitted.transform(groups)
    assert [share.shape for share in shares] == [(n, 3) for n in groups.sizes]
    np.testing.assert_allclose(np.concatenate(shares).sum(1), 1, rtol=1e-5)
    frame = fitted.sample([4, 9], seed=1)
    assert frame.groupby("sequence").size().tolist() == [4, 9]
    again = lv.Groups.from_frame(frame.drop(columns="state"), group="sequence")
    assert np.isfinite(fitted.score(again))
    with pytest.raises(ValueError, match="got lengths=0, expected a whole number of at least 1"):
        fitted.sample([0])


@pytest.mark.slow
def test_scores_and_paths_are_those_of_all_paths():
    """log p(sequence | posterior means) and Viterbi's path, by enumeration, of ragged sequences with missing cells."""
    fit = lv.fit(MODEL, tiny(), size=2)
    start, transitions = fit.start().to_numpy(), fit.transitions().to_numpy()
    with jax.enable_x64(True):
        statistics = fit._statistics()
        from lvsearch.models.components import log_likelihood

        rows = [np.array([log_likelihood(MODEL.components, statistics, row) for row in units(s)]) for s in SEQUENCES]
    log, best = oracles.log_likelihood(rows, start, transitions)
    assert fit.score(tiny()) == pytest.approx(log, rel=1e-6)
    assert [tuple(path) for path in fit.paths()] == best


def units(sequence: np.ndarray) -> list[Row]:
    return [Row(np.nan_to_num(row), ~np.isnan(row)) for row in sequence]


@pytest.mark.slow
def test_a_search_finds_the_states_and_comes_back_from_its_folder(tmp_path):
    groups, _ = machines(5)
    model = lv.models.HiddenMarkov(lv.models.DiagonalComponents.scaled_to(groups.rows.values))
    result = lv.search(model, groups, max_size=4, starts=1, progress=False)
    assert result.best_size == (3,)
    result.save(tmp_path / "run")
    again = lv.load(tmp_path / "run")
    assert again.posterior().equals(result.posterior())
    np.testing.assert_array_equal(again.best.paths()[0], result.best.paths()[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", mixture_cases.CASES, ids=lambda kind: kind.name)
def test_every_kind_of_component_emits(kind):
    rows = kind.rows if kind.component.cellwise else np.nan_to_num(kind.rows)
    groups = lv.Groups.from_arrays([rows[:4], rows[4:7]], missing="nan")
    fit = lv.fit(lv.models.HiddenMarkov(kind.component), groups, size=2)
    assert np.isfinite(fit.estimate.log_lower)
    assert fit.means().shape == (2, rows.shape[1])
    chain = HiddenMarkovChain.from_data(fit.model, groups.dataset(), 1)
    one = oracles.log_evidence([rows[:4], rows[4:7]], 1, kind.log_marginal, 1.0, 1.0)
    found = forward(chain, jax.random.key(0), np.array([0.5, 1.0]), islands=2, particles=4)
    np.testing.assert_allclose(found.log_evidence, one, rtol=1e-9)


def test_refusals():
    with pytest.raises(ValueError, match="stickiness=-1"):
        lv.models.HiddenMarkov(stickiness=-1)
    with pytest.raises(ValueError, match="expected None exactly where they are"):
        lv.models.HiddenMarkov(lv.models.BernoulliComponents(estimated=True))
    plug_in, bits = (
        lv.models.HiddenMarkov(lv.models.BernoulliComponents()).plug_in(),
        lv.Groups.from_arrays([np.eye(2)]),
    )
    with pytest.raises(ValueError, match="expected a model whose parameters have a prior"):
        HiddenMarkovChain.from_data(plug_in, bits.dataset(), 2)
    with pytest.raises(ValueError, match="cannot draw parameters that have no prior"):
        plug_in.simulate(jax.random.key(0), (2,), GroupOfRows(*[np.ones((1, 2))] * 3), {"dim": 1})


# ── beside other libraries ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_likelihood_and_paths_are_those_of_other_libraries(fitted):
    """dynamax's log-likelihood and hmmlearn's, and its Viterbi path, at the same parameters."""
    hmm = pytest.importorskip("hmmlearn.hmm", reason="comes with the bench extra")
    inference = pytest.importorskip("dynamax.hidden_markov_model", reason="comes with the bench extra")
    groups, _ = machines()
    whole = list(range(1, groups.n_units))
    known = groups.part(np.array(whole), "without the missing step")
    peer = hmm.GaussianHMM(3, covariance_type="diag")
    peer.startprob_, peer.transmat_ = fitted.start().to_numpy(), fitted.transitions().to_numpy()
    with jax.enable_x64(True):
        means, covariances = jax.vmap(fitted.model.components.moments)(fitted._statistics())
    peer.means_, peer.covars_ = np.asarray(means), np.diagonal(np.asarray(covariances), axis1=1, axis2=2).copy()
    values, lengths = known.rows.values, known.sizes.tolist()
    assert fitted.score(known) == pytest.approx(peer.score(values, lengths), rel=1e-5)
    log = []
    with jax.enable_x64(True):
        for number in range(known.n_units):
            densities = peer._compute_log_likelihood(known.group(number).values)
            log.append(inference.hmm_filter(peer.startprob_, peer.transmat_, densities).marginal_loglik)
    np.testing.assert_allclose(fitted.score_units(known), np.array(log, float), rtol=1e-5)
    np.testing.assert_array_equal(np.concatenate(fitted.paths(known)), peer.predict(values, lengths))
