"""Documents as batches: nothing of the counts is lost, whatever the lengths."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.inference.data import packing
from lvsearch.inference.data.documents import counts_of, documents
from lvsearch.inference.data.streaming import pack_streamed, streamed_layout_on_device
from lvsearch.inference.engine.describing import unit_ceilings
from lvsearch.inference.likelihood import saturated_ceiling
from lvsearch.models import LDA


def uneven_counts() -> csr_array:
    """67 documents of 0 to 240 distinct words of 251: several lengths, several batches, ids and counts unordered."""
    random = np.random.default_rng(6)
    counts = np.zeros((67, 251), np.int32)
    for document, n in enumerate(random.integers(0, 60, 67) * (1 + 3 * (np.arange(67) % 11 == 4))):
        counts[document, random.choice(251, n, replace=False)] = random.integers(1, 9, n)
    counts[5] = 0
    return csr_array(counts)


def test_counts_come_back():
    counts = uneven_counts()
    data = documents(counts, tokens_per_batch=512)
    assert len(data.batches) > 3
    again = counts_of(data)
    assert again.dtype == np.int32
    assert again.has_sorted_indices
    assert_array_equal(again.toarray(), counts.toarray())


def test_ceilings_of_documents_are_those_of_the_model():
    counts = uneven_counts()
    data, model = documents(counts), LDA()
    ceilings = unit_ceilings(model, data)
    assert_array_equal(ceilings, saturated_ceiling(counts))
    total = sum(model.ceiling(batch.units) for batch in data.batches)
    assert total <= ceilings.sum() <= total + 1e-6 * abs(total)  # rounded outwards, document by document


def on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing.jax, "default_backend", lambda: "gpu")


def test_an_accelerator_has_as_many_batches_as_were_asked_for(monkeypatch: pytest.MonkeyPatch):
    """Tiles of fixed size, larger than the corpus, made one batch of three: a fit of Cora lost 1,200 nats on a GPU."""
    counts = csr_array(np.random.default_rng(0).poisson(0.3, (400, 30)).astype(np.int32))
    on_an_accelerator(monkeypatch)
    for n_batches in (1, 2, 3, 7):
        packed = packing.pack(counts, n_batches)
        assert packed.n_batches == n_batches
        assert packed.tiles.words.shape[1] == 1  # one tile of each
        spare = packed.tiles.slots.size / np.sum(-(-np.diff(counts.indptr) // packing.BLOCK))
        assert spare < 1.05
        assert packed.lengths.sum() == counts.sum()


def test_large_batches_are_several_tiles_of_an_accelerator(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packing, "TILE_BLOCKS_ACCELERATOR", 40)
    on_an_accelerator(monkeypatch)
    counts = csr_array(np.random.default_rng(0).poisson(0.3, (400, 30)).astype(np.int32))
    packed = packing.pack(counts, 3)
    (n_batches, n_tiles), tile = packed.tiles.words.shape[:2], packed.tiles.slots.shape[-1]
    assert n_batches == 3
    assert n_tiles == -(-np.sum(-(-np.diff(counts.indptr) // packing.BLOCK)) // 3 // 40)
    assert tile <= 40 + 2  # and the longest document


def test_files_on_an_accelerator_are_divided_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counts = csr_array(np.random.default_rng(0).poisson(0.3, (400, 30)).astype(np.int32))
    lv.Corpus.from_matrix(counts).save(tmp_path / "corpus")
    files = lv.Corpus.open(tmp_path / "corpus").dataset().original.files
    on_an_accelerator(monkeypatch)
    layout = streamed_layout_on_device(files, 3)
    assert pack_streamed(files, layout, 3).n_batches == 3
