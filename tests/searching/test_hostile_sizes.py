"""Numbers and names of a size that nobody has thought of: refused, or done in time and memory that fit them."""

import time
import tracemalloc
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from small_searches import PRIOR, Fake, fake_search, settings

import lvsearch as lv
from lvsearch.data.kinds import decode_data, encode_data
from lvsearch.files.storage import read_folder, write_folder
from lvsearch.files.string_arrays import has_strings, pack_strings, unpack_strings
from lvsearch.inference.likelihood.bounds import MOST_TERMS, log_tilted_mass, most_terms
from lvsearch.reading.counts import read_ldac
from lvsearch.searching.controller import Budget
from lvsearch.tables.frames import first_repeated

WORDS = ("plain", "", "größer 本", "ends in NUL\x00", "\x00", "half \ud800", "two\nlines", "x" * 1000)


def data() -> tuple[lv.data.Data, ...]:
    """One of each kind, under names that fixed-width arrays would change."""
    names = WORDS[:3]
    points = lv.Points.from_array(np.eye(3, 4), columns=WORDS[3:7], row_names=names)
    pairs = lv.PairedCorpus.from_arrays([np.eye(2)] * 3, [["sea"]] * 3, region_names=WORDS[3:5], image_names=names)
    groups = lv.Groups.from_arrays([np.eye(2)] * 3, columns=WORDS[3:5], names=names)
    corpus = lv.Corpus.from_matrix(np.ones((3, 5), int), WORDS[3:], document_names=names, document_labels=WORDS[2:5])
    return corpus, points, pairs, groups


# ── strings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("strings", [WORDS, (), ("",), ("", ""), WORDS[::-1]])
def test_strings_come_back(strings: tuple[str, ...]):
    arrays = pack_strings("words", strings)
    assert unpack_strings("words", arrays) == strings
    assert has_strings("words", arrays)
    assert not has_strings("word", arrays)


def test_strings_of_earlier_versions_are_read():
    assert unpack_strings("words", {"words": np.array(["a", "ö"])}) == ("a", "ö")


@pytest.mark.parametrize("ends", [[1, 3], [2, 1, 4], [5], []])
def test_ends_that_do_not_divide_the_text_are_refused(ends: list[int]):
    arrays = pack_strings("words", ("ab", "cd")) | {"words.ends": np.array(ends, np.int64)}
    with pytest.raises(ValueError, match="do not divide its text of 4 bytes"):
        unpack_strings("words", arrays)


@pytest.mark.parametrize("number", range(4))
def test_data_of_each_kind_keep_their_names(number: int, tmp_path: Path):
    kept = data()[number]
    entry, arrays = encode_data(kept)
    write_folder(tmp_path, entry, {"data": arrays})
    body, groups = read_folder(tmp_path)
    loaded = decode_data(body, groups["data"], tmp_path)
    assert loaded == kept
    assert loaded.notes == kept.notes


def test_one_long_name_costs_its_own_length():
    corpus = lv.Corpus.from_matrix(
        csr_array(np.ones((2000, 1), int)), ["word"], document_names=["x" * 20_000, *map(str, range(1999))]
    )
    tracemalloc.start()
    try:
        corpus.to_storage()
        assert tracemalloc.get_traced_memory()[1] < 2e6  # fixed-width: 160 MB
    finally:
        tracemalloc.stop()


# ── many names ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_repeated_names_are_found():
    assert first_repeated(("a", "b", "a", "b")) == "a"
    assert first_repeated(("a", "b")) is None
    for make in (
        lambda names: lv.Points.from_array(np.eye(3), columns=names),
        lambda names: lv.Groups.from_arrays([[[1.0]]] * 3, names=names),
        lambda names: lv.PairedCorpus.from_arrays([np.eye(3)], [["sea"]], region_names=names),
    ):
        with pytest.raises(ValueError, match=r"name 'b' twice"):
            make(("a", "b", "b"))


def test_so_many_names_are_compared_quickly():
    names = [f"group{number}" for number in range(20_000)]
    began = time.process_time()
    lv.Groups.from_arrays([[[1.0]]] * len(names), names=names)
    lv.Points.from_array(np.ones((1, len(names))), columns=names)
    assert time.process_time() - began < 3  # each with each: 10 to 20


@pytest.mark.parametrize("line", ["1 999999999:1", "1 2000000000:1"])
def test_ids_that_are_no_vocabulary_are_refused(line: str, tmp_path: Path):
    (tmp_path / "corpus.ldac").write_text(line + "\n")
    with pytest.raises(ValueError, match=r"columns and no vocabulary; expected at most 10,000,000"):
        lv.Corpus.from_ldac(tmp_path / "corpus.ldac")


def test_an_id_twice_is_named(tmp_path: Path):
    (tmp_path / "corpus.ldac").write_text("3 4:1 5:1 4:2\n")
    with pytest.raises(ValueError, match="line 1: got id 4 twice"):
        read_ldac(tmp_path / "corpus.ldac", None)


def test_counts_that_cannot_be_regions_are_refused():
    with pytest.raises(ValueError, match="2,000,000,000 region tokens, expected at most 100,000,000"):
        lv.PairedCorpus.from_arrays(np.array([[10**9, 10**9]]), [["sea"]])


# ── long documents, short times ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n_tokens", [3e7, 1e12])
def test_a_series_that_float32_cannot_count_ends(n_tokens: float):
    """The counter of its terms stops at 2²⁴, where adding 1 changes nothing."""
    assert float(most_terms(jnp.float32(100.0))) == 450
    terms = most_terms(jnp.float32(n_tokens))
    assert float(terms) == MOST_TERMS
    slope, alpha = jnp.array([n_tokens, 0.0], jnp.float32), jnp.array([0.5, 0.5], jnp.float32)
    value, _ = log_tilted_mass(slope, alpha, -9.0, terms)
    assert float(value) >= 0  # cut short: a bound still, +inf where nothing better is known


def test_a_budget_of_nothing_moves_on_by_a_step():
    evaluator = Fake(lambda size, trial: -abs(size[0] - 3.0), nested=False, repeatable=False)
    state = fake_search(evaluator, PRIOR, settings((4,)), Budget(seconds=0.0))[0].state
    seen = [len(evaluator.calls)]
    while state.stopped != "finished" and len(seen) < 20:
        state = fake_search(evaluator, PRIOR, settings((4,)), Budget(seconds=0.0), state)[0].state
        seen.append(len(evaluator.calls))
    assert state.stopped == "finished"
    assert np.all(np.diff(seen)[:-1] == 1)
