"""`lv.sample(…, parameters=True)`: the parameters that chains integrate out, drawn given the states of the chains.

Latents and data are drawn from the joint. Given the indicators and hyper-parameters that a chain's state holds, the
true parameters are one more draw of what is drawn, so that their rank among DRAWS is uniform (Talts et al. 2018).
"""

import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare, norm
from tiers import in_tiers

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.evidence import evidence_chain, true_state
from lvsearch.inference.evidence.recorders import PathReader
from lvsearch.inference.evidence.simulation import Simulated, simulated_like
from lvsearch.inference.sampling.parameters import (
    ParameterRecorder,
    SiteValues,
    indicators_can_be_summed_out,
    latents_reader,
    site_value,
    with_parameters,
)
from lvsearch.inference.sampling.trace import LOG_LIKELIHOOD, Quantity, Trace, recorder, rows_of_units
from lvsearch.models.contract import Model

REPLICATES, DRAWS, PARTS = 200, 19, 5
SMALLEST_P = 1e-4
ROWS = np.random.default_rng(0).normal(0, 1, (6, 2))
COUNTS = np.random.default_rng(1).integers(0, 3, (5, 4)) + np.eye(5, 4, dtype=np.int64)
STUDENT = lv.models.StudentComponents(lv.models.DiagonalComponents())
MIXTURE = lv.models.FiniteMixture(lv.models.KnownCovarianceComponents(np.eye(2)))
WIDE = lv.models.GammaPrior(2.0, 1.5)


class Case(NamedTuple):
    """data: of which the simulated ones take their shape alone."""

    model: Model
    data: Any
    size: tuple[int, ...] = (2,)


CASES: dict[str, Callable[[], Case]] = {
    "LDA, hyper-priors": lambda: Case(lv.models.LDA(WIDE, lv.models.GammaPrior(1.5, 4.0)), COUNTS),
    "hidden Markov": lambda: Case(lv.models.HiddenMarkov(), [ROWS[:4], ROWS[4:]]),
    "LDA": lambda: Case(lv.models.LDA(0.9, 0.3), COUNTS),
    "mixture": lambda: Case(lv.models.FiniteMixture(lv.models.FullCovarianceComponents()), ROWS),
    "mixture, hyper-priors": lambda: Case(lv.models.FiniteMixture(lv.models.FullCovarianceComponents.weak(ROWS)), ROWS),
    "Student's t": lambda: Case(
        lv.models.FiniteMixture(lv.models.StudentComponents(lv.models.DiagonalComponents())), ROWS
    ),
    "tied mixture": lambda: Case(lv.models.TiedMixture(), ROWS),
    "factor analysers, hyper-priors": lambda: Case(
        lv.models.FactorAnalyzerMixture(lv.models.FactorAnalyzerComponents.weak(ROWS, 2)), ROWS
    ),
    "mixture of unigrams": lambda: Case(lv.models.MixtureOfUnigrams(), COUNTS),
    "block model": lambda: Case(lv.models.LatentBlockModel(), (ROWS > 0).astype(float), (2, 2)),
}
FAST = ("hidden Markov",)


def true_values(model: Model, simulated: Simulated, like: SiteValues) -> SiteValues:
    """The values with which the data were drawn, of the latent variables that `like` has, (1, …) each."""
    on = model.active(simulated.size, simulated.size)
    g, l = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (simulated.globals, simulated.locals))
    return SiteValues(
        {name: site_value(site, g[name], on) for name, site in model.globals().items() if name in like.globals},
        {name: [site_value(site, l[name], on)] for name, site in model.locals().items() if name in like.locals},
    )


def ranks(case: Case, replicates: int) -> dict[str, np.ndarray]:
    """Return the place of the truth among DRAWS for each number of each recorded parameter, (replicate, number)."""
    like, found = data_for(case.model, case.data).dataset(), {}

    @jax.jit
    def draw(record: ParameterRecorder, key: jax.Array, chain: Any, state: Any) -> tuple[jax.Array, ...]:
        return record.draw(key, chain, state)

    first = None
    for replicate in range(replicates):
        keys = jax.random.split(jax.random.key(replicate), 2)
        simulated = simulated_like(like, case.model, case.size, keys[0])
        data, chain = simulated.data, evidence_chain(case.model, simulated.data, case.size, None)
        state = true_state(chain, simulated, DRAWS)
        if first is None:
            own = recorder(chain, data, units=False)
            first = with_parameters(own, chain, case.model, data, units=True)
            assert isinstance(first, ParameterRecorder)
            first = replace(first, has_likelihood=False)  # which is computed, not drawn
            shapes = jax.eval_shape(ParameterRecorder.drawn_sites, first, keys[1], state)
            new = [q for q in first.quantities[len(own.quantities) :] if q.name != LOG_LIKELIHOOD]
        # the same recorder for other data, without tracing it again
        reader = latents_reader(chain, case.model, data)
        record = replace(first, reader=reader, batches=data.batches, unit_ids=data.unit_ids, order=rows_of_units(data))
        drawn = draw(record, keys[1], chain, state)[-len(new) :]
        truth = true_values(case.model, simulated, shapes).arrays(case.model, record.order)
        for quantity, values, true in zip(new, drawn, truth, strict=True):
            cut = np.asarray(values)[(slice(None), *map(slice, quantity.shape))]
            true = np.asarray(true)[(0, *map(slice, quantity.shape))]
            assert np.isfinite(cut).all()
            assert cut.shape[1:] == true.shape
            found.setdefault(quantity.name, []).append((cut < true).sum(0).ravel())
    return {name: np.stack(each) for name, each in found.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", in_tiers(CASES, lambda name: name in FAST))
def test_true_parameters_rank_evenly_among_draws_given_the_state(name: str):
    with jax.enable_x64(True):
        found = ranks(CASES[name](), REPLICATES)
    for parameter, each in found.items():
        number = zlib.crc32(parameter.encode()) % each.shape[1]  # one of the parameter's numbers, whichever
        counts = np.bincount(each[:, number] * PARTS // (DRAWS + 1), minlength=PARTS)
        assert chisquare(counts).pvalue > SMALLEST_P, parameter


@pytest.mark.slow
def test_paths_that_are_read_wrongly_are_noticed(monkeypatch: pytest.MonkeyPatch):
    read = PathReader.known

    def delayed(reader: PathReader, state: Any) -> Any:
        labels = jnp.roll(state.labels, 1, axis=0)  # of the row before
        return read(reader, state._replace(mixture=state.mixture._replace(labels=labels)))

    monkeypatch.setattr(PathReader, "known", delayed)
    with jax.enable_x64(True):
        found = ranks(CASES["hidden Markov"](), REPLICATES)
    worst = min(
        chisquare(np.bincount(column * PARTS // (DRAWS + 1), minlength=PARTS)).pvalue
        for each in found.values()
        for column in each.T
    )
    assert worst < SMALLEST_P**2


# ── as asked for by lv.sample ───────────────────────────────────────────────────────────────────────────────────────


def drawn(draws: int, *, parameters: bool = True, after: Trace | None = None) -> Trace:
    """Return draws of a mixture of three rows in two components."""
    return lv.sample(
        MIXTURE, ROWS[:3], size=2, chains=3, draws=draws, warmup=5, units=True, parameters=parameters,
        after=after, progress=False,
    )  # fmt: skip


@pytest.mark.thorough
def test_parameters_change_nothing_else_and_a_run_goes_on_to_the_same_bits():
    whole, without = drawn(12), drawn(12, parameters=False)
    assert whole.names == (*without.names, "weights", "components", LOG_LIKELIHOOD)
    for name in without.names:
        np.testing.assert_array_equal(whole[name], without[name])
    again = drawn(12, after=drawn(5))
    for name in whole.names:
        np.testing.assert_array_equal(again[name], whole[name])
    np.testing.assert_allclose(whole["weights"].sum(-1), 1.0)


# ── likelihoods of the units ────────────────────────────────────────────────────────────────────────────────────────


def of_mixture(trace: Trace, place: tuple[int, int]) -> np.ndarray:
    """log p(row given weights and means) of each of ROWS, whose covariance is known to be 1, in one draw."""
    means, weights = trace["components"][place], trace["weights"][place]
    distance = ((ROWS[:, None] - means) ** 2).sum(-1)
    return logsumexp(np.log(weights) - distance / 2 - np.log(2 * np.pi), axis=1)


def of_sequences(trace: Trace, place: tuple[int, int]) -> np.ndarray:
    """log p(sequence given the parameters) of the two sequences, summed over all paths one by one."""
    mean, precision = trace["components.mean"][place], trace["components.precision"][place]
    each = norm.logpdf(ROWS[:, None], mean, precision**-0.5).sum(-1)  # (row, state)
    start, step = np.log(trace["start"][place]), np.log(trace["transitions"][place])
    found = []
    for rows in (each[:4], each[4:]):
        paths = np.array(list(product(range(2), repeat=len(rows))))
        moves = step[paths[:, :-1], paths[:, 1:]].sum(1)
        found.append(logsumexp(start[paths[:, 0]] + moves + rows[np.arange(len(rows)), paths].sum(1)))
    return np.array(found)


def of_documents(trace: Trace, place: tuple[int, int]) -> np.ndarray:
    """log p(words of a document, in one order, given weights and topics) of each document of COUNTS, in one draw."""
    each = COUNTS @ np.log(trace["topic_word"][place]).T
    return logsumexp(np.log(trace["weights"][place]) + each, axis=1)


LIKELIHOODS = {"mixture": of_mixture, "hidden Markov": of_sequences, "mixture of unigrams": of_documents}


@pytest.mark.thorough
@pytest.mark.parametrize("name", in_tiers(LIKELIHOODS, lambda name: name == "mixture"))
def test_likelihoods_of_units_are_those_of_the_drawn_parameters(name: str):
    model, data = (MIXTURE, ROWS) if name == "mixture" else CASES[name]()[:2]
    trace = lv.sample(model, data, size=2, chains=2, draws=3, units=True, parameters=True, progress=False)
    for place in product(range(2), range(3)):
        np.testing.assert_allclose(trace[LOG_LIKELIHOOD][place], LIKELIHOODS[name](trace, place), rtol=1e-7)


def test_units_whose_latent_variables_are_no_indicators_have_no_likelihood():
    assert not indicators_can_be_summed_out(lv.models.LDA())
    assert not indicators_can_be_summed_out(lv.models.FiniteMixture(STUDENT))


def test_a_process_has_no_parameters_to_record():
    with pytest.raises(ValueError, match="parameters=True for HDP"):
        lv.sample(lv.models.HDP(), COUNTS, draws=2, parameters=True, progress=False)


# ── components matched between draws ────────────────────────────────────────────────────────────────────────────────


def shuffled_trace(noise: float = 0.1) -> tuple[Trace, np.ndarray, np.ndarray]:
    """Three components that every draw names in an order of its own -> (the trace, their values, their labels)."""
    random = np.random.default_rng(3)
    values, between, labels = random.normal(0, 3, (3, 2)), random.random((3, 3)), random.integers(0, 3, 7)
    order = np.array([[random.permutation(3) for _ in range(20)] for _ in range(2)])  # place -> component
    quantities = (
        Quantity("mean", ("component", "dim"), (3, 2), True),
        Quantity("between", ("component", "component"), (3, 3), True),
        Quantity("share", ("unit", "component"), (7, 3), True),
        Quantity("component", ("unit",), (7,), True, "component"),
        Quantity("number", (), (), False),
    )
    each = (
        values[order] + noise * random.normal(0, 1, (2, 20, 3, 2)),
        between[order[..., :, None], order[..., None, :]],
        np.moveaxis(np.eye(3)[labels][:, order], 0, 2),
        np.take_along_axis(np.argsort(order, 2), np.broadcast_to(labels, (2, 20, 7)), 2),
        random.normal(0, 1, (2, 20)),
    )
    density = random.normal(0, 1, (2, 20))
    return Trace(quantities, each, density, (), np.zeros(2, np.uint32), 20, 0, 1, 20), values, labels


def test_components_are_matched_in_every_quantity():
    trace, values, labels = shuffled_trace()
    found = trace.relabelled("mean")
    names = found["component"][0, 0]
    assert (found["component"] == names).all()
    assert len(set(zip(names.tolist(), labels.tolist(), strict=True))) == len(set(labels.tolist()))
    np.testing.assert_array_equal(found["share"].argmax(-1), found["component"])
    assert np.ptp(found["between"], axis=(0, 1)).max() == 0
    table = found.intervals("mean")
    assert table.index.names == ["component", "dim"]
    place = [int(np.abs(values - each).sum(1).argmin()) for each in table["mean"].to_numpy().reshape(3, 2)]
    assert sorted(place) == [0, 1, 2]
    np.testing.assert_allclose(table["mean"].to_numpy().reshape(3, 2), values[place], atol=0.15)
    assert (table["lower"] < table["upper"]).all()
    assert found.intervals("between").index.names == ["component", "component_2"]
    np.testing.assert_array_equal(found["number"], trace["number"])
    assert not any(quantity.labelled for quantity in found.quantities)
    notes = found.diagnostics()["note"]
    assert not notes.str.contains("names").any()


def test_draws_that_are_matched_already_stay():
    trace = shuffled_trace()[0].relabelled("mean")
    labelled = replace(trace, quantities=tuple(q._replace(labelled=bool(q.axes)) for q in trace.quantities))
    np.testing.assert_array_equal(labelled.relabelled("mean")["mean"], trace["mean"])


def test_a_side_that_was_not_renamed_stays_labelled():
    cells = Quantity("blocks", ("component", "column_cluster"), (3, 2), True)
    columns = Quantity("columns", ("column_cluster",), (2,), True)
    trace, random = shuffled_trace()[0], np.random.default_rng(0)
    trace = replace(
        trace,
        quantities=(*trace.quantities, cells, columns),
        values=(*trace.values, random.random((2, 20, 3, 2)), random.random((2, 20, 2))),
    )
    kept = {quantity.name for quantity in trace.relabelled("mean").quantities if quantity.labelled}
    assert kept == {"blocks", "columns"}


def test_what_cannot_be_matched_is_said(tmp_path: Path):
    trace = shuffled_trace()[0]
    with pytest.raises(
        ValueError, match="by='number', which does not have one value for each component; expected one of: mean"
    ):
        trace.relabelled("number")
    with pytest.raises(ValueError, match="by='component'"):
        trace.relabelled("component")
    with pytest.raises(ValueError, match="by='between'"):  # its columns are components too, with other names
        trace.relabelled("between")
    with pytest.raises(KeyError, match="expected one of"):
        trace.relabelled("weight")
    with pytest.raises(ValueError, match=r"probability=1\.5"):
        trace.intervals("mean", probability=1.5)
    lv.save_trace(trace, tmp_path / "trace")
    assert lv.load_trace(tmp_path / "trace").quantities == trace.quantities


@pytest.mark.thorough
def test_tokens_of_documents_in_several_batches_are_found():
    random = np.random.default_rng(5)
    counts = random.poisson(np.repeat([0.05, 3.0], [6, 4])[:, None] * np.ones(60))  # six short, four long documents
    model, whole = lv.models.LDA(0.9, 0.3), data_for(lv.models.LDA(), counts).dataset()
    data = Dataset(replace(whole.original, tokens_per_batch=64))
    assert len(data.batches) > 1
    with jax.enable_x64(True):
        chain = evidence_chain(model, data, (3,), None)
        state = chain.init(jax.random.key(0), 2)
        reader = latents_reader(chain, model, data)
        assert reader is not None
        known = reader.known(state).locals
    for batch, ids, variables in zip(data.batches, data.unit_ids, known, strict=True):
        tokens = np.einsum("pdck,dc->pdk", variables["assignment"], batch.units.counts)
        here = ids >= 0
        expected = np.moveaxis(np.asarray(state.document_topic), -1, 0)[:, ids[here]]
        np.testing.assert_allclose(tokens[:, here], expected, atol=1e-9)
        assert not tokens[:, ~here].any()


@pytest.mark.thorough
def test_allele_frequencies_of_populations_are_recorded():
    counts = np.array([[2, 0, 1, 1], [1, 1, 2, 0], [0, 2, 0, 2], [2, 0, 2, 0]])
    people = lv.Genotypes.from_matrix(counts, ["snp1=A", "snp1=G", "snp2=C", "snp2=T"])
    model = lv.models.Admixture(people.alleles)
    trace = lv.sample(model, people, size=2, chains=2, draws=3, parameters=True, progress=False)
    assert trace["frequencies"].shape == (2, 3, 2, 4)
    np.testing.assert_allclose(trace["frequencies"].sum(-1), 2.0)  # the two alleles of each of two loci
