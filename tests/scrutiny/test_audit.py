"""Audits: exact brackets of simulated data against enumeration, and a search that is wrong on purpose is caught."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import Compiled

import lvsearch as lv
from lvsearch.inference.annealing import dispatch
from lvsearch.inference.annealing.generic import flat_chain
from lvsearch.inference.chain_kits import NOT_READ
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.engine.meanfield import unit_masks
from lvsearch.inference.evidence import Effort, TwoSided, evidence_chain, sampled_chain
from lvsearch.inference.evidence.simulation import (
    Simulated,
    anneal_simulated,
    pack_simulated,
    simulated_like,
    true_state,
)
from lvsearch.inference.topic_samplers import paths as topics
from lvsearch.reports.report import write_report
from lvsearch.results import repeated_searches
from lvsearch.scrutiny.audit import Audit, AuditRow
from lvsearch.searching import evaluators
from lvsearch.sizing.evidence import Bracket

COUNTS = np.array([[2, 1, 1], [0, 0, 0], [1, 2, 1]])
CORPUS = lv.Corpus.from_matrix(COUNTS)
ETA, TOTAL, SEED = 0.5, 1.0, 1
MODEL = lv.models.LDA(TOTAL, ETA)
ROWS = lv.Points.from_array(
    np.where(np.eye(7, 2) > 0, np.nan, np.random.default_rng(0).normal(size=(7, 2))), missing="nan"
)
IMAGES = lv.PairedCorpus.from_arrays(
    [np.random.default_rng(n).normal(size=(n, 2)) for n in (3, 1, 2)], [["a", "b", "a"], ["b"], []]
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little data needs no long paths."""
    monkeypatch.setattr(dispatch, "FIRST_DRAWS", 3000)


def exact_topics(simulated: Simulated) -> float:
    """log p(words | size) by enumeration."""
    (size,) = simulated.size
    counts = np.asarray(counts_of(simulated.data).todense())
    return oracles.lda_posterior(counts, np.full(size, TOTAL / size), ETA).log_evidence


@cache
def searched() -> lv.SearchResult:
    return lv.search(MODEL, CORPUS, prior=lv.sizes.Poisson(2), max_size=3, starts=1, seed=3, progress=False)


# ── data of the same shape ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_documents_keep_their_lengths_and_are_packed_as_a_corpus_is():
    counts = np.array([[40, 0, 1, 0], [0, 0, 0, 0], [3, 3, 0, 0]])
    data = lv.Corpus.from_matrix(counts).dataset()
    simulated = simulated_like(data, MODEL, (3,), jax.random.key(0))
    drawn = counts_of(simulated.data)
    assert drawn.shape == counts.shape
    assert drawn.sum(1).tolist() == [41, 0, 6]
    assert (counts_of(pack_simulated(simulated.data)) != drawn).nnz == 0
    assert pack_simulated(simulated.data).batches[0].units.words.shape[1] < 41


@pytest.mark.thorough
def test_rows_keep_their_order_and_their_missing_cells():
    data = lv.Points.from_array(np.random.default_rng(0).normal(size=(4200, 1))).dataset()  # two batches
    simulated = simulated_like(data, lv.models.FiniteMixture(), (2,), jax.random.key(0))
    whole, batch = pack_simulated(simulated.data), simulated.data.batches[0]
    assert len(whole.batches) == 2
    dealt = data.gather([np.asarray(each.units.value) for each in whole.batches])
    np.testing.assert_array_equal(dealt, simulated.data.gather([batch.units.value]))
    missing = pack_simulated(simulated_like(ROWS.dataset(), lv.models.FiniteMixture(), (2,), jax.random.key(0)).data)
    np.testing.assert_array_equal(missing.gather([missing.batches[0].units.observed]), ROWS.observed)


@pytest.mark.slow
def test_images_keep_their_regions_and_their_captions_lengths():
    simulated = simulated_like(IMAGES.dataset(), lv.models.CorrLDA(), (2,), jax.random.key(0))
    images = pack_simulated(simulated.data)
    assert images.gather([np.asarray(b.units.present).sum(1) for b in images.batches]).tolist() == [3, 1, 2]
    assert images.gather([np.asarray(b.units.counts).sum(1) for b in images.batches]).tolist() == [3, 1, 0]


# ── the true latents ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("model", "data"),
    [
        (lv.models.IndependentNormalMixture(), ROWS),
        pytest.param(lv.models.IBP(), ROWS, marks=pytest.mark.slow),
        pytest.param(lv.models.CorrLDA(), IMAGES, marks=pytest.mark.slow),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_true_state_has_the_density_of_what_was_drawn(model: Any, data: Any):
    """By the model itself, without padding to a capacity, and of several particles."""
    size = (2,)
    simulated = simulated_like(data.dataset(), model, size, jax.random.key(4))
    chain = flat_chain(model, simulated.data, size, (8,))
    if isinstance(model, lv.models.IndependentNormalMixture):
        chain = sampled_chain(model, simulated.data, size)
    batch, on = simulated.data.batches[0], model.active(size, size)
    g, l, units = jax.tree.map(jnp.asarray, (simulated.globals, simulated.locals, batch.units))

    @jax.jit
    def of_model(g: Any, l: Any, units: Any) -> tuple[Any, Any]:
        each = jax.vmap(lambda unit, lu: model.log_unit(g, lu, unit, unit_masks(model, unit, on)))(units, l)
        return model.log_prior(g, on), each

    prior, each = of_model(g, l, units)
    expected = float(prior) + float(np.where(batch.weight > 0, each, 0.0).sum())
    found = jax.jit(lambda c, state: c.log_density(state))(chain, true_state(chain, simulated, 3))
    np.testing.assert_allclose(found, np.full(3, expected), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.usefixtures("float64")
def test_collapsed_states_count_the_true_labels():
    simulated = simulated_like(CORPUS.dataset(), MODEL, (2,), jax.random.key(4))
    chain = evidence_chain(MODEL, simulated.data, (2,), None)
    batch = simulated.data.batches[0]
    z = simulated.locals["assignment"] * np.asarray(batch.units.counts)[..., None]
    words = np.einsum("dtk,dtv->kv", z, oracles.one_hot(np.asarray(batch.units.words), 3))
    expected = oracles.log_dirichlet_multinomial(z.sum(1), np.full(2, TOTAL / 2)).sum()
    expected += oracles.log_dirichlet_multinomial(words, np.full(3, ETA)).sum()
    np.testing.assert_allclose(Compiled(chain).log_density(true_state(chain, simulated, 2)), np.full(2, expected))
    mixture = lv.models.FiniteMixture()
    rows = simulated_like(ROWS.dataset(), mixture, (3,), jax.random.key(4))
    state = true_state(evidence_chain(mixture, rows.data, (3,), None), rows, 2)
    real = rows.data.batches[0].weight > 0
    np.testing.assert_array_equal(state.counts[:3, 0], rows.locals["component"][real].sum(0))


def test_a_chain_that_cannot_begin_there_and_one_of_other_data_are_refused():
    simulated = simulated_like(CORPUS.dataset(), MODEL, (2,), jax.random.key(0))
    with pytest.raises(ValueError, match="begin at known latents"):
        NOT_READ.true_state(evidence_chain(MODEL, simulated.data, (2,), None), simulated, 1)
    other = simulated_like(CORPUS.dataset(), MODEL, (2,), jax.random.key(1))
    with pytest.raises(ValueError, match="other data"):
        true_state(evidence_chain(MODEL, other.data, (2,), None), simulated, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("from_fit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_both_ends_are_those_of_the_exact_evidence(monkeypatch: pytest.MonkeyPatch, from_fit: bool):
    """From the prior; and from the responsibilities of a fit, which know one labelling: where sweeps exchange the two,
    as on so few tokens, log 2 of the upper end hangs on one path in thousands that begins with the other."""
    simulated = simulated_like(CORPUS.dataset(), MODEL, (2,), jax.random.key(6))
    estimate = None
    if from_fit:
        monkeypatch.setattr(topics, "MOST_FROM_PRIOR", 0)
        estimate = estimator(MODEL, pack_simulated(simulated.data)).fit((2,), jax.random.key(0), None)
    chain = evidence_chain(MODEL, simulated.data, (2,), estimate)
    assert (chain.q is not None) == from_fit
    ends = anneal_simulated(chain, jax.random.key(1), simulated, Effort(48, 2, 16))
    bracket, exact = (
        Bracket(tuple(ends.forward), tuple(ends.backward), 48, 16, ends.anchor_error),
        exact_topics(simulated),
    )
    assert bracket.lower == pytest.approx(exact, abs=0.2)
    assert exact - 0.1 < bracket.upper < exact + (math.log(2) if from_fit else 0.0) + 0.1


# ── audits of a search ──────────────────────────────────────────────────────────────────────────────────────────────


@cache
def audited() -> tuple[Audit, tuple[float, ...]]:
    """An audit, and the enumerated evidence of the data that it drew."""
    drawn: list[Simulated] = []

    def kept(*arguments: Any) -> Simulated:
        drawn.append(simulated_like(*arguments))
        return drawn[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated_searches, "simulated_like", kept)
        audit = searched().audit(seed=SEED, progress=False)
    return audit, tuple(map(exact_topics, drawn))


def planted(monkeypatch: pytest.MonkeyPatch, nats: float) -> Audit:
    """The audit of a search in which every component is worth `nats` more than it is."""
    anneal = evaluators.anneal

    def shifted(chain: Any, *arguments: Any) -> tuple[TwoSided, ...]:
        more = nats * int(np.sum(chain.alpha > 0))
        found = anneal(chain, *arguments)
        return tuple(each._replace(forward=each.forward + more, backward=each.backward + more) for each in found)

    monkeypatch.setattr(evaluators, "anneal", shifted)
    return searched().audit([1, 3], seed=SEED, progress=False)


@pytest.mark.slow
def test_brackets_hold_the_enumerated_evidence_and_the_estimates_are_right():
    audit, exact = audited()
    assert [row.size for row in audit.rows] == [(1,), (2,), (3,)]
    for row, truth in zip(audit.rows, exact, strict=True):
        assert row.lower - 0.1 <= truth <= row.upper + 0.1
        assert row.upper - row.lower < 0.2
        assert row.estimate == pytest.approx(truth, abs=0.2)
    assert audit.within_error
    assert audit.ranking_held
    assert "within their errors; the ranking held" in audit.describe()


@pytest.mark.thorough
def test_an_evaluator_that_favours_components_is_caught(monkeypatch: pytest.MonkeyPatch):
    audit = planted(monkeypatch, 3.0)
    assert [row.off_by for row in audit.rows] == pytest.approx([3.0, 9.0], abs=0.2)
    assert not audit.within_error
    assert audit.ranking_held is False
    assert audit.rows[0].together == ((3,),)
    assert "at 3 too high by 9." in audit.describe()
    assert "ranking did NOT hold: of 1 it made 3" in audit.describe()


@pytest.mark.slow  # its mirror image is in a shorter tier
def test_an_evaluator_that_favours_few_components_is_caught(monkeypatch: pytest.MonkeyPatch):
    audit = planted(monkeypatch, -3.0)
    assert [row.off_by for row in audit.rows] == pytest.approx([-3.0, -9.0], abs=0.2)
    assert "at 3 too low by " in audit.describe()
    assert audit.rows[1].together == ((1,),)


@pytest.mark.thorough
def test_a_fit_that_failed_is_reported(monkeypatch: pytest.MonkeyPatch):
    search, anneal = searched(), evaluators.anneal

    def failing(chain: Any, *arguments: Any) -> tuple[TwoSided, ...]:
        found = anneal(chain, *arguments)
        return tuple(each._replace(forward=np.full_like(each.forward, np.nan)) for each in found)

    monkeypatch.setattr(evaluators, "anneal", failing)
    audit = search.audit([2], seed=SEED, progress=False)
    assert math.isnan(audit.rows[0].estimate)
    assert not audit.within_error
    assert "at 2 they are not a number" in audit.describe()


@pytest.mark.slow
def test_a_size_is_audited_the_same_again_whatever_the_others_and_otherwise_with_another_seed():
    audit, _ = audited()
    again = searched().audit((2, (2,)), seed=SEED, progress=False)
    assert again.rows == (replace(audit.rows[1], together=((2,),)),)
    assert again.ranking_held is None
    assert "no ranking" in again.describe()
    other = searched().audit([1], seed=SEED + 1, progress=False)
    assert other.rows[0].estimate != audit.rows[0].estimate


def test_ends_that_passed_each_other_and_directions():
    row = AuditRow((2,), -10.0, 0.1, -9.9, -10.1, 0.05, ((2,), (3,)))
    assert (row.off_by, row.within_error, row.ranked) == (0.0, True, True)
    low = AuditRow((2,), -12.0, 0.1, -10.0, -9.0, 0.05, ((3,),))
    assert (low.off_by, low.within_error, low.ranked) == (-2.0, False, False)
    near = AuditRow((2,), -8.8, 0.1, -10.0, -9.0, 0.05, ((3,),))
    assert near.off_by == pytest.approx(0.2)
    assert near.within_error  # 0.2 < 1.96 √(0.1² + 0.05²)


def test_a_bracket_too_wide_to_test_anything_fails_the_audit_in_words():
    wide = AuditRow((30,), -500.0, 0.1, -900.0, -284.0, 0.05, ((30,),))
    narrow = AuditRow((2,), -10.0, 0.1, -10.1, -9.9, 0.05, ((2,),))
    audit = Audit((narrow, wide), ("topics",), 0)
    assert not wide.is_tested
    assert narrow.is_tested
    assert not audit.within_error
    assert "could NOT test the estimates at 30 (616 nats)" in audit.describe()
    assert Audit((narrow,), ("topics",), 0).within_error
    outside = AuditRow((30,), -2000.0, 0.1, -900.0, -284.0, 0.05, ((30,),))
    assert outside.is_tested  # even a wide bracket shows that this is wrong
    assert "OFF: at 30 too low" in Audit((outside,), ("topics",), 0).describe()


def written_down() -> Audit:
    """One of size 2 as a search returns it."""
    return Audit((AuditRow((2,), -10.0, 0.1, -10.1, -9.9, 0.05, ((2,), (3,))),), ("topics",), SEED)


def test_the_table_names_its_columns():
    audit = written_down()
    table = audit.table()
    assert table.columns.tolist() == [
        *("size", "estimate", "standard_error", "lower", "upper", "off_by", "within_error", "ranked")
    ]
    assert str(audit).startswith(audit.describe())


@pytest.mark.thorough
def test_card_report_and_folder_show_an_audit_when_it_was_made(tmp_path: Path):
    plain, audit = searched(), written_down()
    result = plain.with_audit(audit)
    assert plain.scrutiny.audit is None
    assert "audit:" not in plain.summary()
    assert audit.describe() in result.summary()
    assert "audit" in result._repr_html_()
    result.save(tmp_path / "run")
    assert lv.load(tmp_path / "run").scrutiny.audit == audit
    write_report(result, tmp_path / "report")
    assert "ranked" in (tmp_path / "report" / "audit.csv").read_text()
    assert "**audit**" in (tmp_path / "report" / "summary.md").read_text()


@pytest.mark.thorough
def test_what_cannot_be_audited_is_refused_with_a_reason():
    function = lv.search(lv.from_function(lambda size: -float(size[0])), prior=lv.sizes.Poisson(2), progress=False)
    with pytest.raises(ValueError, match="without a model or without data"):
        function.audit()
    bound = lv.search(MODEL, CORPUS, prior=lv.sizes.Poisson(2), max_size=1, evidence="bound", starts=1, progress=False)
    with pytest.raises(ValueError, match="evidence='bound', expected annealed"):
        bound.audit()
    with pytest.raises(ValueError, match="got no sizes"):
        searched().audit([])
    with pytest.raises(ValueError, match="expected a whole number from 1 on"):
        searched().audit([0])
