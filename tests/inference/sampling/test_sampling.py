"""`lv.sample` and its loop: exact on what can be enumerated, the same bits however a run is cut, honest about the rest.

False alarms. Every z below is a difference over its Monte Carlo error; keys are fixed, so that a test always passes or
always fails. Over keys, |z| < 4.5 for at most 30 numbers fails by chance in fewer than 1 of 1,000.
"""

import sys
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import oracles
import partition_oracles
import pytest
from jaxtyping import Array
from scipy.special import softmax

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.files.storage import CorruptFolderError, write_folder
from lvsearch.fitted import sampling
from lvsearch.fitted.sampling import _check_model
from lvsearch.inference.chain_kits import NOT_READ
from lvsearch.inference.chains import Sampler
from lvsearch.inference.diagnostics import mean_effective_sample_size
from lvsearch.inference.evidence import CollapsedMixtureChain, flat_chain, sampled_chain
from lvsearch.inference.sampling import Nothing, Quantity, Recorder, Trace, recorder, run
from lvsearch.inference.sampling.trace import rows_of_units

Z_LIMIT = 4.5
COUNTS = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]])
ALPHA, ETA = np.array([0.4, 0.9]), 0.3
LDA = lv.models.LDA(ALPHA, ETA)
EXACT = oracles.lda_posterior(COUNTS, ALPHA, ETA)
ROWS = mixture_cases.KNOWN.rows[:3]
MIXTURE = lv.models.FiniteMixture(mixture_cases.KNOWN.component, 0.8)
SEVERAL = ("topic", "word")


def z_scores(draws: np.ndarray, exact: Any) -> np.ndarray:
    """Of each element of (chain, draw, …) draws whose mean is known exactly."""
    elements = np.asarray(draws, np.float64).reshape(*draws.shape[:2], -1)
    moving = np.ptp(elements, axis=(0, 1)) > 0
    known = np.broadcast_to(np.asarray(exact, np.float64), draws.shape[2:]).ravel()
    np.testing.assert_allclose(elements[0, 0, ~moving], known[~moving], atol=1e-9)
    worth = [mean_effective_sample_size(elements[..., i]) for i in np.flatnonzero(moving)]
    error = elements[..., moving].std((0, 1)) / np.sqrt(worth)
    return (elements[..., moving].mean((0, 1)) - known[moving]) / error


@cache
def lda_trace() -> Trace:
    return lv.sample(LDA, COUNTS, size=2, draws=2000, warmup=100, seed=1, units=True, progress=False)


# ── against enumeration ─────────────────────────────────────────────────────────────────────────────────────────────


def test_occupied_components_of_three_rows():
    """A mixture of up to three components: how many some row is in, against all partitions."""
    trace = lv.sample(MIXTURE, ROWS, size=3, draws=2000, warmup=50, seed=0, units=True, progress=False)
    joint = partition_oracles.log_joint_of_partitions(
        ROWS,
        mixture_cases.KNOWN.log_marginal,
        partial(partition_oracles.log_finite_prior, n_components=3, concentration=0.8),
    )
    exact = Counter()
    for labels, probability in zip(joint, softmax(list(joint.values())), strict=True):
        exact[max(labels) + 1] += probability
    for number in (1, 2, 3):
        assert abs(z_scores(trace["occupied"] == number, exact[number])[0]) < Z_LIMIT
    assert trace["rows"].shape == (4, 2000, 3)
    assert (trace["rows"].sum(-1) == 3).all()
    assert (trace["occupied"] == (trace["rows"] > 0).sum(-1)).all()
    each = np.stack([(trace["component"] == k).sum(-1) for k in range(3)], axis=-1)
    assert (each == trace["rows"]).all()


@pytest.mark.thorough
def test_occupied_components_of_a_process():
    """From starts far apart, in more components than there were places for, and gone on with."""
    model = lv.models.DPMixture(mixture_cases.KNOWN.component, 1.3)
    settings = {"warmup": 50, "seed": 0, "units": True, "progress": False}
    trace = lv.sample(model, ROWS, draws=2000, **settings)
    joint = partition_oracles.log_joint_of_partitions(
        ROWS, mixture_cases.KNOWN.log_marginal, partial(partition_oracles.log_process_prior, alpha=1.3)
    )
    exact = Counter()
    for labels, probability in zip(joint, softmax(list(joint.values())), strict=True):
        exact[max(labels) + 1] += probability
    for number in (1, 2, 3):
        assert abs(z_scores(trace["occupied"] == number, exact[number])[0]) < Z_LIMIT
    assert trace.names == ("occupied", "largest", "component")
    visited = [partition_oracles.canonical(labels) for labels in trace["component"][0, :50]]
    np.testing.assert_allclose(trace.log_density[0, :50], [joint[labels] for labels in visited], atol=1e-9)
    part = lv.sample(model, ROWS, draws=20, **settings)
    assert_same(lv.sample(model, ROWS, draws=2000, after=part, **settings), trace)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "data", "size", "label", "counts"),
    [
        pytest.param(lv.models.MixtureOfUnigrams(), COUNTS, 2, "topic", "documents", id="unigrams"),
        pytest.param(
            *(lv.models.LatentBlockModel(), (COUNTS > 1).astype(float), (2, 2), "row_cluster_of_unit", "rows"),
            id="blocks",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(lv.models.HiddenMarkov(mixture_cases.KNOWN.component), [ROWS, ROWS[:2]], 2, "state", "rows"),
            id="states",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_labels_of_every_unit_are_recorded_where_they_are_asked_for(model, data, size, label, counts):
    """These chains recorded the log density alone, and of states no row, whatever was asked."""
    settings = {"size": size, "draws": 5, "warmup": 3, "seed": 0, "progress": False}
    trace = lv.sample(model, data, units=True, **settings)
    each = np.stack([(trace[label] == k).sum(-1) for k in range(2)], axis=-1)
    assert (each == trace[counts]).all()
    assert each.sum(-1).min() == trace[label].shape[-1]
    brief = lv.sample(model, data, **settings)
    assert label not in brief.names
    assert (brief[counts] == trace[counts]).all()


@pytest.mark.thorough
def test_a_process_outgrows_its_places_and_goes_on():
    """Twenty rows far apart are in twenty components: more than the 16 places that chains begin with."""
    model = lv.models.DPMixture(lv.models.KnownCovarianceComponents(0.01, 0.0, 1e-4), 20.0)
    rows, settings = np.linspace(-19, 19, 20)[:, None], {"warmup": 0, "chains": 2, "seed": 0, "progress": False}
    trace = lv.sample(model, rows, draws=12, **settings)
    assert trace["occupied"].max() > 16
    part = lv.sample(model, rows, draws=7, **settings)
    assert part["occupied"][:, -1].max() > 16
    assert_same(lv.sample(model, rows, draws=12, after=part, **settings), trace)


def test_topics_of_every_document_of_a_tiny_corpus():
    """Collapsed: E[n_dk] from the exact mean of the proportions, (n_dk + α_k) / (N_d + A)."""
    trace = lda_trace()
    lengths = COUNTS.sum(1, keepdims=True)
    exact = EXACT.proportions * (lengths + ALPHA.sum()) - ALPHA
    assert np.abs(z_scores(trace["document_tokens"], exact)).max() < Z_LIMIT
    assert (trace["tokens"] == trace["document_tokens"].sum(2)).all()
    table = trace.diagnostics()
    assert table["rhat"]["log_density"] < 1.01
    assert table["effective_sample_size"]["log_density"] > 500
    assert trace.agree
    assert "The chains agree" in repr(trace)


@pytest.mark.slow
def test_the_generic_chain_draws_the_same_posterior():
    """The sites of the model by their names: topics, and proportions in the order of the documents."""
    data = lv.Corpus.from_matrix(COUNTS).dataset()
    chain = flat_chain(LDA, data, (2,), (3,))
    trace = run(chain, jax.random.key(0), chains=4, draws=3000, warmup=100, recorder=recorder(chain, data, units=True))
    assert trace.names == ("occupied", "topic_word", "assignment", "proportions")
    assert [q.axes for q in trace.quantities] == [(), SEVERAL, ("unit", "token", "topic"), ("unit", "topic")]
    assert np.abs(z_scores(trace["topic_word"], EXACT.topics)).max() < Z_LIMIT
    assert np.abs(z_scores(trace["proportions"], EXACT.proportions)).max() < Z_LIMIT
    collapsed = lda_trace()["occupied"]
    difference = trace["occupied"].mean() - collapsed.mean()
    errors = [d.std() / np.sqrt(mean_effective_sample_size(d)) for d in (trace["occupied"], collapsed)]
    assert abs(difference) < Z_LIMIT * np.hypot(*errors)


def test_rows_in_several_batches_are_found_again():
    """Rows are dealt to batches in turn, and each batch is padded."""
    values = np.arange(4099.0)[:, None]
    data = lv.Points.from_array(values).dataset()
    assert len(data.batches) == 2
    together = np.concatenate([batch.units.value for batch in data.batches])
    np.testing.assert_array_equal(together[rows_of_units(data)], values)


# ── the same bits ───────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def small() -> tuple[Sampler, Recorder]:
    data = lv.Points.from_array(ROWS).dataset()
    chain = CollapsedMixtureChain.from_data(MIXTURE, data, 3, 4)
    return chain, recorder(chain, data, units=False)


def small_run(draws: int = 40, **changed: Any) -> Trace:
    chain, record = small()
    settings = {"chains": 2, "draws": draws, "warmup": 7, "thin": 3, "recorder": record, **changed}
    return run(chain, jax.random.key(settings.pop("seed", 5)), **settings)


def assert_same(one: Trace, other: Trace) -> None:
    for a, b in zip(one.state, other.state, strict=True):
        np.testing.assert_array_equal(a, b)
    for name in ("log_density", *one.names):
        np.testing.assert_array_equal(one[name], other[name])
    assert one.sweep == other.sweep


def stop_after(sweeps: int) -> Any:
    """Raises KeyboardInterrupt, as Ctrl-C does, once so many sweeps were made."""
    made = []

    def done(n: int) -> None:
        made.append(n)
        if sum(made) >= sweeps:
            raise KeyboardInterrupt

    return done


def test_same_key_same_bits_another_key_others():
    assert_same(small_run(), small_run())
    assert not np.array_equal(small_run()["log_density"], small_run(seed=6)["log_density"])


def test_continued_is_uninterrupted():
    assert_same(small_run(40, after=small_run(13)), small_run(40))


@pytest.mark.thorough
def test_chains_that_disagree_are_lengthened_by_default(monkeypatch):
    """The draws are those of a run at the pace that was reached."""
    few = {"size": 2, "chains": 2, "draws": 201, "seed": 3, "progress": False}
    slow = lv.sample(MIXTURE, ROWS, thin=4, warmup=201, **few)
    monkeypatch.setattr(sampling, "CLOSE_RHAT", 0.5)  # never reached
    elements = sampled_chain(MIXTURE, data_for(MIXTURE, ROWS).dataset(), (2,)).elements
    monkeypatch.setattr(sampling, "MOST_DRAWN", 201 * 7 * elements)  # with the warm-up: up to six sweeps a draw
    found = lv.sample(MIXTURE, ROWS, **few)
    assert (found.thin, found.warmup, found.draws) == (4, 201, 201)
    np.testing.assert_array_equal(found["rows"], slow["rows"])
    assert lv.sample(MIXTURE, ROWS, **few | {"draws": 199}).thin == 1  # R-hat of so few says little
    monkeypatch.setattr(sampling, "CLOSE_RHAT", 2.0)
    assert lv.sample(MIXTURE, ROWS, **few).thin == 1
    again = lv.sample(MIXTURE, ROWS, after=found, **few | {"draws": 230})
    assert (again.thin, again.draws) == (4, 230)
    np.testing.assert_array_equal(again["rows"][:, :201], found["rows"])


@pytest.mark.parametrize("sweeps", [1, 9, 50])
def test_an_interruption_keeps_what_was_drawn_and_can_be_gone_on_with(sweeps, tmp_path):
    """In the warm-up, between two draws, and later; by way of a folder."""
    whole = small_run()
    cut = small_run(done=stop_after(sweeps))
    assert sweeps <= cut.sweep < whole.sweep
    assert cut.draws == max(0, cut.sweep - 7) // 3
    np.testing.assert_array_equal(cut["rows"], whole["rows"][:, : cut.draws])
    assert "of 40 that were asked for" in repr(cut)
    lv.save_trace(cut, tmp_path / "trace")
    assert_same(small_run(after=lv.load_trace(tmp_path / "trace")), whole)


@pytest.mark.smoke
def test_a_folder_gives_the_trace_back(tmp_path):
    trace = small_run()
    lv.save_trace(trace, tmp_path / "trace")
    again = lv.load_trace(tmp_path / "trace")
    assert_same(trace, again)
    assert again.quantities == trace.quantities
    assert (again.warmup, again.thin, again.asked) == (7, 3, 40)
    with pytest.raises(FileExistsError):
        lv.save_trace(trace, tmp_path / "trace")
    write_folder(tmp_path / "other", {"kind": "result"}, {})
    with pytest.raises(CorruptFolderError, match="holds no trace"):
        lv.load_trace(tmp_path / "other")


@pytest.mark.parametrize(
    "changed",
    [{"seed": 6}, {"warmup": 8}, {"thin": 2}, {"draws": 5}, {"chains": 3}, {"recorder": Nothing()}],
    ids=lambda changed: next(iter(changed)),
)
def test_another_run_is_not_gone_on_with(changed):
    with pytest.raises(ValueError, match="got a trace"):
        small_run(**{"draws": 20, **changed}, after=small_run(13))


def test_nor_a_run_on_other_data():
    other = CollapsedMixtureChain.from_data(MIXTURE, lv.Points.from_array(ROWS + 1).dataset(), 3, 4)
    with pytest.raises(ValueError, match="another run"):
        run(other, jax.random.key(5), chains=2, draws=40, warmup=7, thin=3, recorder=small()[1], after=small_run(13))


# ── what is not known is said ───────────────────────────────────────────────────────────────────────────────────────


class Place(NamedTuple):
    x: Array


class Still(eqx.Module):
    """Chains that stay where they begin: the first `moving` of them excepted."""

    moving: int = eqx.field(static=True)

    def init(self, key: Array, particles: int) -> Place:
        return Place(jnp.arange(particles) / 7.0)

    def step(self, key: Array, state: Place, temperature: Array, *, backward: bool) -> Place:
        moved = jax.random.normal(key, state.x.shape, state.x.dtype)
        return Place(jnp.where(jnp.arange(len(state.x)) < self.moving, moved, state.x))

    def log_density(self, state: Place) -> Array:
        return state.x


def test_a_chain_without_a_recorder_is_refused():
    data = lv.Points.from_array(ROWS).dataset()
    with pytest.raises(TypeError, match="of type Still, expected a chain with a kit"):
        recorder(Still(0), data, units=False)
    with pytest.raises(TypeError, match="of type Still, expected one with a recorder"):
        NOT_READ.recorder(Still(0), data, units=False)


@pytest.mark.parametrize(("moving", "note"), [(0, "4 of 4 chains never moved"), (2, "2 of 4 chains never moved")])
def test_chains_that_never_move_are_reported(moving, note):
    trace = run(Still(moving), jax.random.key(0), chains=4, draws=200, warmup=0)
    row = trace.diagnostics().loc["log_density"]
    assert row["note"] == note
    assert np.isnan(row["effective_sample_size"])
    assert np.isnan(row["standard_error"])
    assert not row["rhat"] < 1.05
    assert not trace.agree
    assert "not an answer yet" in repr(trace)
    assert note in repr(trace)


def trace_of(log_density: np.ndarray, quantities: tuple = (), values: tuple = ()) -> Trace:
    draws = log_density.shape[1]
    return Trace(quantities, values, log_density, (), np.zeros(2, np.uint32), draws, 0, 1, draws)


def test_what_never_changes_says_nothing_of_how_fast_chains_move():
    noise = np.random.default_rng(0).standard_normal((4, 300))
    still, labelled = Quantity("still", (), (), False), Quantity("rows", ("component",), (2,), True)
    trace = trace_of(noise, (still, labelled), (np.ones((4, 300)), np.stack([noise, -noise], -1)))
    table = trace.diagnostics()
    assert table.loc[["still", "rows"], ["rhat", "effective_sample_size"]].isna().all(axis=None)
    assert table["note"]["still"].startswith("never moved")
    assert "names of components" in table["note"]["rows"]
    assert trace.agree  # the log density moves, and nothing denies it


@pytest.mark.parametrize(
    ("log_density", "words"),
    [
        (np.zeros((4, 300)), "never moved"),
        (np.arange(8.0).reshape(4, 2), "fewer than 4 draws"),
        (np.where(np.arange(300) == 7, np.nan, np.random.default_rng(0).standard_normal((4, 300))), "not a number"),
        (np.random.default_rng(0).standard_normal((4, 300)) + np.arange(4)[:, None], "Not an answer yet (R-hat"),
        (np.zeros((4, 0)), "nothing is known yet"),
    ],
)
def test_a_trace_that_answers_nothing_says_so(log_density, words):
    trace = trace_of(log_density)
    assert words in repr(trace)
    assert not trace.agree


def test_one_chain_is_said_to_be_alone():
    assert "One chain knows nothing" in repr(trace_of(np.random.default_rng(0).standard_normal((1, 500))))


# ── at the border ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "data", "changed", "words"),
    [
        (MIXTURE, ROWS, {"size": 0}, "size"),
        (MIXTURE, ROWS, {"size": (2, 2)}, "size"),
        (MIXTURE, ROWS, {"chains": 0}, "chains=0"),
        (MIXTURE, ROWS, {"draws": 0}, "draws=0"),
        (MIXTURE, ROWS, {"thin": 0}, "thin=0"),
        (MIXTURE, ROWS, {"warmup": -1}, "warmup=-1"),
        (MIXTURE, None, {}, "without data"),
        (LDA.plug_in(), COUNTS, {}, "estimated topic_word"),
        (MIXTURE, ROWS, {"size": None}, "number of components"),
        (lv.models.DPMixture(), ROWS, {}, "no size"),
        (lv.models.Unigram(), COUNTS, {}, r"expected \(1,\), the only size"),
        (lv.models.HLDA(3, lengths=(2, 3)), COUNTS, {"size": None}, "all reach level 3"),
    ],
)
def test_bad_input_is_an_error(model, data, changed, words):
    with pytest.raises(ValueError, match=words):
        lv.sample(model, data, **{"size": 2, "draws": 10, "progress": False, **changed})


def test_a_class_is_no_model():
    """Not through `lv.sample`, whose arguments' types are checked in tests."""
    with pytest.raises(ValueError, match="with its parentheses"):
        _check_model(lv.models.LDA)


@pytest.mark.parametrize("changed", [{"chains": 0}, {"draws": -1}, {"thin": 0}, {"warmup": -1}])
def test_and_in_the_loop(changed):
    with pytest.raises(ValueError, match="expected at least 1"):
        small_run(**changed)


def test_a_name_that_was_not_recorded():
    with pytest.raises(KeyError, match="log_density, occupied, rows"):
        small_run()["weights"]


def test_arviz_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"lvsearch\[arviz\]"):
        small_run().to_arviz()


def from_dict_of_0(*, posterior, sample_stats, dims):
    """As ArviZ 0.x takes groups."""
    return {"posterior": posterior, "sample_stats": sample_stats}, dims


def from_dict_of_1(data, *, dims):
    """As ArviZ 1.x takes groups."""
    return data, dims


@pytest.mark.parametrize(("version", "from_dict"), [("0.23.4", from_dict_of_0), ("1.2.0", from_dict_of_1)])
def test_arviz_gets_groups_and_names_of_axes(version, from_dict, monkeypatch):
    """A variable and an axis of one name are told apart."""
    module = ModuleType("arviz")
    vars(module).update(__version__=version, from_dict=from_dict)
    monkeypatch.setitem(sys.modules, "arviz", module)
    trace = lv.sample(MIXTURE, ROWS, size=3, draws=5, warmup=0, seed=0, units=True, progress=False)
    data, dims = trace.to_arviz()
    assert set(data) == {"posterior", "sample_stats"}
    assert data["posterior"]["rows"] is trace["rows"]
    assert data["sample_stats"]["lp"] is trace.log_density
    assert dims == {"occupied": [], "rows": ["component_index"], "component": ["unit"]}
    assert replace(trace, asked=9).describe() != trace.describe()
