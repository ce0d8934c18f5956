"""Documents on disk: packed to the same tiles, fitted to the same topics, in memory that does not grow with them."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.inference.data import mapped, streaming
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.mapped import CountFiles, files_of
from lvsearch.inference.data.packing import PackedDocuments, pack
from lvsearch.inference.data.streaming import ScratchArray, StreamedDocuments, pack_streamed, streamed_layout
from lvsearch.inference.engine.describing import bound_units, describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import Chunks, estimator
from lvsearch.inference.topics.describing import rough_proportions
from lvsearch.inference.topics.estimator import TopicEstimator
from lvsearch.inference.topics.passes import streamed_plan
from lvsearch.inference.topics.streaming import StreamedTopicEstimator
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.searching.evaluators import data_ceiling

ROOT = Path(__file__).resolve().parents[3]
SIZE, TILE_BLOCKS = (3,), 4


@cache
def counts() -> csr_array:
    """Documents of three kinds, of many lengths, one of them empty; several batches."""
    random = np.random.default_rng(6)
    topics = random.dirichlet(np.full(31, 0.1), 3)
    rates = random.dirichlet(np.full(3, 0.2), 240) @ topics
    found = random.poisson(rates * random.integers(1, 120, (240, 1))).astype(np.int32)
    found[17] = 0
    return csr_array(found)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CountFiles:
    folder = tmp_path_factory.mktemp("stored") / "corpus"
    lv.Corpus.from_matrix(counts()).save(folder)
    found = files_of(lv.Corpus.open(folder).counts)
    assert found is not None
    return found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs, several pieces of a batch, several parts: what large corpora have."""
    monkeypatch.setattr(streaming, "RUN_PAIRS", 700)
    monkeypatch.setattr(streaming, "PIECE_CELLS", 100 * 8)
    monkeypatch.setattr(mapped, "PAIRS_AT_ONCE", 900)
    monkeypatch.setattr(CountFiles.runs, "__defaults__", (900,))
    monkeypatch.setattr(mapped, "STARTS_AT_ONCE", 50)


def stored(files: CountFiles):
    return documents(mapped.MappedCounts.from_files(files))


def per_document(packed: PackedDocuments | StreamedDocuments) -> dict[int, list[tuple[int, float]]]:
    """Document -> its (word, count) in order, as they stand in tiles."""
    if isinstance(packed, PackedDocuments):
        batches = zip(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in (*packed.tiles, packed.documents)), strict=True)
    else:
        batches = (row for piece in packed.pieces() for row in zip(*piece.tiles, piece.documents, strict=True))
    found: dict[int, list[tuple[int, float]]] = {}
    for words, values, slots, ids in batches:
        for place, document in enumerate(ids.tolist()):
            if document >= 0:
                here = (slots == place)[:, None] & (values > 0)
                assert document not in found
                found[document] = sorted(zip(words[here].tolist(), values[here].tolist(), strict=True))
    return found


# ── packing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_run_is_packed_as_documents_at_hand_are(files):
    """To the last number."""
    at_hand = pack(counts(), 3, TILE_BLOCKS)
    layout = streamed_layout(files, TILE_BLOCKS)
    streamed = pack_streamed(files, layout, 3)
    assert (streamed.n_batches, streamed.pieces_per_batch) == (3, 1)
    pieces = list(streamed.pieces())
    for name in ("words", "counts", "slots"):
        together = np.stack([getattr(piece.tiles, name) for piece in pieces])
        np.testing.assert_array_equal(together, getattr(at_hand.tiles, name))
    np.testing.assert_array_equal(np.stack([piece.documents for piece in pieces]), at_hand.documents)
    np.testing.assert_array_equal(np.stack([piece.lengths for piece in pieces]), at_hand.lengths)
    assert streamed.n_with_words == 240 - int((counts().sum(1) == 0).sum())


def test_many_runs_and_pieces_hold_every_document_once(files, small_pieces):
    layout = streamed_layout(files, TILE_BLOCKS)
    assert len(layout.runs) > 3
    streamed = pack_streamed(files, layout, 3)
    assert streamed.pieces_per_batch > 1
    assert all(len(piece.lengths) == streamed.piece_tiles for piece in streamed.pieces())
    assert per_document(streamed) == per_document(pack(counts(), 3, TILE_BLOCKS))
    lengths = {
        document: length
        for piece in streamed.pieces()
        for document, length in zip(piece.documents.ravel().tolist(), piece.lengths.ravel().tolist(), strict=True)
        if document >= 0
    }
    assert [lengths[document] for document in range(240)] == counts().sum(1).tolist()
    in_batch = [np.concatenate([piece.documents.ravel() for piece in streamed.pieces(b)]) for b in range(3)]
    firsts = [np.mean(ids[ids >= 0] < 120) for ids in in_batch]
    assert all(0.2 < first < 0.8 for first in firsts)  # a batch is a sample of the corpus, whatever order it came in


def test_scratch_arrays():
    array = ScratchArray(5, np.dtype((np.float32, (2, 3))))
    assert not array.read(0, 5).any()
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    array.write(2, values)
    np.testing.assert_array_equal(array.read(2, 4), values)
    np.testing.assert_array_equal(array.read(3, 5), np.concatenate([values[1:], np.zeros((1, 2, 3))]))
    assert array.nbytes == 5 * 6 * 4
    array._file.truncate(60)
    with pytest.raises(OSError, match="bytes too few"):
        array.read(0, 5)


# ── fits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fits(model: lv.models.Model, files: CountFiles, start: Estimate | None = None) -> tuple[Estimate, Estimate]:
    """(at hand, on disk), from the same key."""
    key = jax.random.key(1)
    at_hand, on_disk = estimator(model, documents(counts())), estimator(model, stored(files))
    assert type(at_hand) is TopicEstimator
    assert isinstance(on_disk, StreamedTopicEstimator)
    for each in (at_hand, on_disk):
        each.settings = replace(each.settings, collapsed_passes=6, mean_field_passes=4, little_data_passes=5)
    return at_hand.fit(SIZE, key, start), on_disk.fit(SIZE, key, start)


@pytest.mark.thorough
def test_topics_with_seeds_are_fitted_on_disk_too(files):
    seeds = np.zeros((1, 31))
    seeds[0, 4] = 10_000  # holds the topic
    at_hand, on_disk = fits(lv.models.LDA(1.0, 0.2).with_seeds([str(word) for word in range(31)], seeds), files)
    assert on_disk.log_lower == pytest.approx(at_hand.log_lower, rel=1e-4)
    shares = (on_disk.natural["topic_word"] + 1) / (on_disk.natural["topic_word"] + 1).sum(1, keepdims=True)
    assert shares[0, 4] > 0.5
    assert shares[0].argmax() == 4


@pytest.mark.thorough
def test_a_small_corpus_is_fitted_to_the_same_topics(files):
    """One run, one piece a batch: the same tiles in the same order through the same kernel, in programs that XLA fuses
    otherwise: float32's last digit may differ, and no more."""
    at_hand, on_disk = fits(lv.models.LDA(), files)
    np.testing.assert_allclose(on_disk.natural["topic_word"], at_hand.natural["topic_word"], rtol=1e-5, atol=1e-4)
    assert on_disk.log_lower == pytest.approx(at_hand.log_lower, rel=1e-7)
    assert on_disk.passes == at_hand.passes


@pytest.mark.thorough
def test_a_fit_of_fewer_topics_leaves_out_the_same_ones(files):
    """A fit of three begins with one of five. What documents lose without a topic is added up over the pieces."""
    at_hand, on_disk = fits(lv.models.LDA(), files, lv.fit(lv.models.LDA(), counts(), size=5).estimate)
    np.testing.assert_allclose(on_disk.natural["topic_word"], at_hand.natural["topic_word"], rtol=1e-3, atol=1e-2)
    assert on_disk.log_lower == pytest.approx(at_hand.log_lower, rel=1e-6)


@pytest.mark.thorough
def test_many_pieces_are_fitted_to_the_same_topics(files, small_pieces):
    """Documents stand in other tiles and batches, so the passes go another way; the bound at the end is theirs."""
    at_hand, on_disk = fits(lv.models.LDA(), files)
    assert on_disk.log_lower == pytest.approx(at_hand.log_lower, rel=2e-3)


@pytest.mark.slow
def test_documents_in_many_pieces_are_described_alike(files, small_pieces):
    at_hand, on_disk = fits(lv.models.LDA(), files)
    described = describe_units(on_disk.model, on_disk, documents(counts()))
    streamed = describe_units(on_disk.model, on_disk, stored(files))
    np.testing.assert_allclose(streamed.representation, described.representation, atol=1e-5)
    np.testing.assert_allclose(streamed.log_lower, described.log_lower, rtol=1e-9, atol=1e-6)
    rough = rough_proportions(on_disk.model, on_disk, stored(files))
    assert np.abs(rough - described.representation).sum(1).mean() < 0.1  # of at most 2
    assert data_ceiling(at_hand.model, stored(files)) == pytest.approx(data_ceiling(at_hand.model, documents(counts())))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        lv.models.LDA(0.9, 0.2).plug_in(),
        lv.models.LDA(GammaPrior(2.0, 1.0), GammaPrior(1.0, 4.0)),
        lv.models.LDA(np.array([0.9, 0.3, 0.6]), 0.2),
    ],
    ids=["plug-in", "hyper-parameters inferred", "a vector"],
)
def test_every_form_of_the_model(files, model):
    """Also from a start; and the fitted hyper-parameters, the certified ends and those of each document."""
    for start in (None, lv.fit(lv.models.LDA(), counts(), size=2 if model.nested else 4).estimate):
        if start is not None and isinstance(model.concentration, np.ndarray) and model.concentration.ndim == 1:
            continue  # a vector has one size
        at_hand, on_disk = fits(model, files, start)
        assert on_disk.log_lower == pytest.approx(at_hand.log_lower, rel=1e-5)
        assert on_disk.log_upper == pytest.approx(at_hand.log_upper, rel=1e-5)
        for name, value in at_hand.model.numbers_by_name().items():
            np.testing.assert_allclose(on_disk.model.numbers_by_name()[name], value, rtol=1e-3)
        for mine, its in zip(
            bound_units(at_hand.model, at_hand, stored(files)),
            bound_units(at_hand.model, at_hand, documents(counts())),
            strict=True,
        ):
            np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-6)


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_plan_does_not_grow_with_the_documents(files):
    """The numbers of a real layout, and ten and a thousand times as many runs of it."""
    layout = streamed_layout(files, TILE_BLOCKS)._replace(tiles_of_runs=(10**5,))
    more = layout._replace(tiles_of_runs=(10**5,) * 1000)
    assert streamed_plan(layout, 5000, 112, 16) == streamed_plan(more, 5000, 112, 16)
    assert streamed_plan(layout, 5000, 112, 16).peak_bytes > streamed_plan(layout, 5000, 112, 8).peak_bytes
    assert streamed_plan(layout, 5000, 112, 16).peak_bytes > streamed_plan(layout, 5000, 48, 16).peak_bytes


def test_batches_are_as_many_as_fit(files):
    """Halved for the budget, and once more for every time that memory ran out."""
    fitting = estimator(lv.models.LDA(), stored(files))
    assert isinstance(fitting, StreamedTopicEstimator)
    most = fitting.memory_plan(SIZE).n_batches
    assert most == min(2506 // (12 * 31), fitting._layout.n_tiles)
    assert fitting.with_chunks(Chunks(0)).memory_plan(SIZE).n_batches == 1
    halved = fitting.with_chunks(fitting.chunks.halved())
    assert halved.memory_plan(SIZE).n_batches == most // 2
    assert isinstance(halved, StreamedTopicEstimator)
    halved._lay_out(8)
    assert halved._documents.n_batches == most // 2


@pytest.mark.slow
def test_memory_does_not_grow_with_the_documents():
    """In processes of their own, from where a piece and a run are full on."""
    command = [sys.executable, "tests/benchmarks/out_of_core.py", "--documents", "16000", "--scales", "1", "4"]
    command += ["--topics", "8", "--passes", "1", "--words", "2000"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    assert "bar below 10 %: met" in done.stdout, done.stdout
