"""Corpora: what is accepted, what is refused and why, and that nothing moves or vanishes on the way."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

import lvsearch as lv
from lvsearch.data.corpus import Corpus
from lvsearch.reading.counts import canonical_counts
from lvsearch.texts.analyzer import Analyzer

# 4 documents, 5 terms, 13 tokens; document 2 is empty and term 3 unused.
COUNTS = np.array([[3, 0, 1, 0, 0], [0, 2, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 5]])
TERMS = ("gene", "cell", "worm", "unseen", "neuron")
TEXTS = (
    "Worms have genes: genes!",
    "The neuron of a worm, and its genes.",
    "",
    "Neurons, neurons and the x86 gene_5 of 7 worms",
)


@pytest.fixture
def corpus():
    return Corpus.from_matrix(COUNTS, TERMS, document_names=["a", "b", "c", "d"], document_labels=["x", "y", "x", "z"])


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="corpus.ldac"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


# -- from_matrix ------------------------------------------------------------------------------------------------


def test_counts_are_canonical_and_sizes_add_up(corpus):
    assert isinstance(corpus.counts, sp.csr_array)
    assert corpus.counts.dtype == np.int32
    assert corpus.counts.has_sorted_indices
    assert np.all(corpus.counts.data > 0)
    assert_array_equal(corpus.counts.toarray(), COUNTS)
    assert (corpus.n_documents, corpus.n_terms, corpus.n_tokens, len(corpus)) == (4, 5, 13, 4)
    assert (corpus.n_empty_documents, corpus.n_unused_terms) == (1, 1)
    assert_array_equal(corpus.document_lengths, [4, 3, 0, 6])
    assert_array_equal(corpus.term_totals, [4, 2, 1, 0, 6])
    assert corpus.vocabulary == TERMS


def test_empty_documents_and_unused_terms_stay_and_are_reported(corpus):
    assert corpus.notes == ("1 of 4 documents are empty; kept in place", "1 of 5 terms occur nowhere; kept in place")
    assert all(note in corpus.summary() and note in corpus._repr_html_() for note in corpus.notes)
    assert "4, of which 1 empty" in str(corpus)
    assert repr(corpus) == "Corpus(4 documents, 5 terms, 13 tokens)"


def test_html_is_escaped():
    corpus = Corpus.from_texts(["alpha beta"], token_pattern=r"<?\w+")
    assert "<?" not in corpus._repr_html_()
    assert "&lt;?" in corpus._repr_html_()


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_every_sparse_format_gives_the_same_corpus(corpus, form, kind):
    same = Corpus.from_matrix(
        getattr(sp, f"{form}_{kind}")(COUNTS),
        TERMS,
        document_names=corpus.document_names,
        document_labels=corpus.document_labels,
    )
    assert same == corpus
    assert hash(same) == hash(corpus)


@pytest.mark.parametrize(
    "dense",
    [
        COUNTS.tolist(),
        COUNTS.astype(np.uint8),
        COUNTS.astype(np.uint64),
        COUNTS.astype(np.float16),
        COUNTS.astype(np.float64),
        jnp.asarray(COUNTS),
        jnp.asarray(COUNTS, dtype=jnp.float32),
        np.asfortranarray(COUNTS),
    ],
)
def test_dense_input(dense):
    assert_array_equal(Corpus.from_matrix(dense, TERMS).counts.toarray(), COUNTS)


def test_presence_as_booleans_counts_as_one():
    assert_array_equal(Corpus.from_matrix(COUNTS > 0).counts.toarray(), COUNTS > 0)


def test_wide_table_names_terms_and_documents():
    frame = pd.DataFrame(COUNTS, columns=list(TERMS), index=["p", "q", "r", "s"])
    corpus = Corpus.from_matrix(frame)
    assert corpus.vocabulary == TERMS
    assert corpus.document_names == ("p", "q", "r", "s")
    assert_array_equal(corpus.counts.toarray(), COUNTS)
    assert Corpus.from_matrix(frame.reset_index(drop=True)).document_names is None
    assert Corpus.from_matrix(frame.astype("Int64")) == corpus
    assert Corpus.from_matrix(frame, document_names=range(4)).document_names == ("0", "1", "2", "3")


def test_a_sparse_table_comes_back_the_same(corpus):
    frame = corpus.to_frame()
    assert frame.shape == COUNTS.shape
    assert frame.loc["d", "neuron"] == 5
    assert Corpus.from_matrix(frame, document_labels=corpus.document_labels) == corpus


def test_tables_that_are_not_counts_per_term():
    long = pd.DataFrame({"document": ["a", "b"], "word": ["gene", "cell"], "count": [1, 2]})
    with pytest.raises(ValueError, match=r"column 'document'.*wide table.*pivot_table"):
        Corpus.from_matrix(long)
    with pytest.raises(ValueError, match="a table and a vocabulary"):
        Corpus.from_matrix(pd.DataFrame(COUNTS), TERMS)
    with pytest.raises(ValueError, match="'gene' twice"):
        Corpus.from_matrix(pd.DataFrame(COUNTS[:, :2], columns=["gene", "gene"]))
    with pytest.raises(ValueError, match="got nan in document 1"):
        Corpus.from_matrix(pd.DataFrame({"gene": pd.array([1, None], dtype="Int64")}))


def test_entries_given_twice_are_added_without_wrapping_around():
    rows, columns = np.array([1, 1, 0]), np.array([2, 2, 1])
    coo = sp.coo_array((np.array([2, 3, 4], dtype=np.int8), (rows, columns)), shape=(2, 3))
    assert_array_equal(Corpus.from_matrix(coo).counts.toarray(), [[0, 4, 0], [0, 0, 5]])
    big = np.array([2**31 - 1, 2**31 - 1, 4], dtype=np.int32)
    with pytest.raises(ValueError, match=r"got 4294967294 in document 1, term 2.*int32"):
        Corpus.from_matrix(sp.coo_array((big, (rows, columns)), shape=(2, 3)))


def test_the_corpus_shares_no_memory_and_cannot_be_written_to():
    matrix = sp.csr_array(COUNTS.astype(np.int32))
    corpus = Corpus.from_matrix(matrix)
    before = corpus.fingerprint
    matrix.data[:] = 9
    assert_array_equal(corpus.counts.toarray(), COUNTS)
    with pytest.raises(ValueError, match="read-only"):
        corpus.counts.data[0] = 7
    with pytest.raises(AttributeError):
        corpus.vocabulary = ("other",)  # pyright: ignore
    assert corpus.fingerprint == before


def changed(value, row=3, column=0):
    counts = COUNTS.astype(np.float64)
    counts[row, column] = value
    return counts


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-2, r"got -2.0 in document 3, term 0 \('gene'\).*0 or more"),
        (0.5, r"got 0.5 in document 3, term 0 \('gene'\).*whole numbers; TF-IDF.*CountVectorizer"),
        (np.nan, r"got nan in document 3, term 0 \('gene'\).*finite"),
        (np.inf, r"got inf in document 3, term 0 \('gene'\).*finite"),
        (-np.inf, r"got -inf in document 3"),
        (2.0**31, r"got 2147483648.0 in document 3.*2,147,483,647 \(int32\)"),
    ],
)
def test_what_is_no_count_is_refused_with_its_place(value, message, sparse):
    counts = sp.csc_array(changed(value)) if sparse else changed(value)
    with pytest.raises(ValueError, match=message):
        Corpus.from_matrix(counts, np.array(TERMS))


def test_unsigned_counts_beyond_int64_do_not_wrap_around():
    with pytest.raises(ValueError, match="int32"):
        Corpus.from_matrix(np.array([[2**64 - 1, 1]], dtype=np.uint64))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((0, 3)), "no documents"),
        (np.zeros((2, 0), dtype=int), "no terms"),
        (np.zeros((2, 3), dtype=int), "2 documents without a single token"),
        ([1, 2], "got 1 axes"),
        (np.ones((2, 2, 2), dtype=int), "got 3 axes"),
        (sp.coo_array(np.array([1, 2])), "got 1 axes"),
        ([["a", "b"]], "got counts of type <U1"),
        (np.ones((2, 2), dtype=complex), "complex128"),
        (np.array([[1, None]], dtype=object), "got counts of type object"),
    ],
)
def test_what_is_no_matrix_of_counts_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        Corpus.from_matrix(matrix)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (TERMS[:4], "vocabulary of 4 terms for counts with 5 columns.*transpose"),
        ((*TERMS, "extra"), "vocabulary of 6 terms"),
        (("gene", "cell", "worm", "cell", "neuron"), r"'cell' twice in the vocabulary \(columns 1 and 3\)"),
        ("genes", "the string 'genes' as vocabulary"),
        (set(TERMS), "got a set as vocabulary"),
        ({term: position for position, term in enumerate(TERMS)}, "got a dict.*get_feature_names_out"),
    ],
)
def test_vocabularies_that_do_not_fit(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        Corpus.from_matrix(COUNTS, vocabulary)


def test_terms_without_names_are_numbered():
    assert Corpus.from_matrix(COUNTS).vocabulary == ("term0", "term1", "term2", "term3", "term4")


@pytest.mark.parametrize("what", ["document_names", "document_labels"])
def test_names_and_labels_have_one_entry_per_document(what):
    with pytest.raises(ValueError, match=f"got 3 {what} for 4 documents"):
        Corpus.from_matrix(COUNTS, **{what: ["a", "b", "c"]})
    with pytest.raises(ValueError, match=f"the string 'abcd' as {what}"):
        Corpus.from_matrix(COUNTS, **{what: "abcd"})


@pytest.mark.parametrize("what", ["document_names", "document_labels"])
@pytest.mark.parametrize("gone", [None, np.nan, pd.NA, pd.NaT])
def test_missing_names_and_labels_are_no_names(what, gone):
    with pytest.raises(ValueError, match=f"got 2 missing values of 4 in {what}, the first for document 1"):
        Corpus.from_matrix(COUNTS, **{what: ["a", gone, "c", gone]})
    with pytest.raises(ValueError, match=f"got 1 missing values of 2 in {what}, the first for document 0"):
        Corpus.from_texts(["apple pear", "iron tin"], **{what: pd.Series([gone, 3.0], dtype=object)})
    assert Corpus.from_texts(["apple pear", "iron tin"], document_labels=["nan", "None"]).document_labels[0] == "nan"


# -- from_csr ---------------------------------------------------------------------------------------------------


def test_a_corpus_is_rebuilt_from_its_arrays(corpus):
    counts = corpus.counts
    same = Corpus.from_csr(
        counts.data,
        counts.indices,
        counts.indptr,
        corpus.vocabulary,
        document_names=corpus.document_names,
        document_labels=corpus.document_labels,
        notes=corpus.notes,
    )
    assert same == corpus
    assert same.notes == corpus.notes


@pytest.mark.parametrize(
    ("data", "indices", "indptr", "message"),
    [
        ([1, 2, 3], [0, 1, 9], [0, 2, 3], "damaged csr matrix|form no matrix"),
        ([1, 2, 3], [0, 1, -1], [0, 2, 3], "damaged csr matrix|form no matrix"),
        ([1, 2, 3], [0, 1, 2], [0, 3, 2], "damaged csr matrix|form no matrix"),
        ([1, 2, 3], [0, 1, 2], [0, 2, 9], "form no matrix"),
        ([1, 2, 3], [0, 1, 2], [0, 2, 3, 0, 2, 3], "form no matrix"),  # SciPy wrote beyond its arrays
        ([1, 2, 3], [0, 1], [0, 1, 2], "form no matrix"),
        ([1, -2, 3], [0, 1, 2], [0, 2, 3], "got -2 in document 0, term 1"),
    ],
)
def test_damaged_arrays_are_refused(data, indices, indptr, message):
    with pytest.raises(ValueError, match=message):
        Corpus.from_csr(np.array(data), np.array(indices), np.array(indptr), ["a", "b", "c"])


def test_a_damaged_csc_matrix_is_refused():
    matrix = sp.csc_array(COUNTS)
    matrix.indices[-1] = 77
    with pytest.raises(ValueError, match="damaged csc matrix"):
        Corpus.from_matrix(matrix)


# -- from_ldac --------------------------------------------------------------------------------------------------

LDAC = "2 0:3 2:1\n2 4:1 1:2\n0\n2 0:1 4:5\n"


def test_ldac(write, corpus):
    path, terms = write(LDAC), write("\n".join(TERMS) + "\n", "vocab.txt")
    from_file = Corpus.from_ldac(path, str(terms))
    assert_array_equal(from_file.counts.toarray(), COUNTS)
    assert from_file.vocabulary == TERMS
    assert from_file == Corpus.from_ldac(str(path), list(TERMS)) == Corpus.from_matrix(COUNTS, TERMS)
    assert "1 of 4 documents are empty; kept in place" in from_file.notes
    assert Corpus.from_ldac(path).vocabulary == ("term0", "term1", "term2", "term3", "term4")
    assert Corpus.from_ldac(path, TERMS, document_names=["a", "b", "c", "d"]).document_names == ("a", "b", "c", "d")


def test_ldac_with_other_line_ends_and_trailing_blank_lines(write, corpus):
    path = write(LDAC.replace("\n", " \r\n") + "\n\n")
    assert_array_equal(Corpus.from_ldac(path).counts.toarray(), COUNTS)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3 0:3 2:1", "line 2: got N = 3 but 2 id:count pairs"),
        ("1 0:3 2:1", "line 2: got N = 1 but 2 id:count pairs"),
        ("2 0:3 0:1", "line 2: got id 0 twice"),
        ("2 0:3 5:1", "line 2: got id 5 with a vocabulary of 5 terms.*from 0 to 4.*from 1"),
        ("1 0:-3", "line 2: got '0:-3'; expected id:count"),
        ("1 -1:3", "line 2: got '-1:3'"),
        ("1 0:1.5", "line 2: got '0:1.5'"),
        ("1 0:nan", "line 2: got '0:nan'"),
        ("1 0", "line 2: got '0'; expected id:count"),
        ("x 0:1", "line 2: got 'x' first"),
        ("0:1", "line 2: got '0:1' first"),
        ("", "line 2: got an empty line.*written `0`"),
        ("1 0:99999999999999999999", "line 2: got '0:9+'"),
        ("1 0:2147483648", r"got 2147483648 in document 1, term 0 \('gene'\).*int32"),
    ],
)
def test_ldac_errors_name_the_line(write, line, message):
    with pytest.raises(ValueError, match=message):
        Corpus.from_ldac(write(f"1 0:3\n{line}\n1 1:1\n"), TERMS)


def test_ldac_with_a_vocabulary_out_of_order(write):
    with pytest.raises(ValueError, match="got a set as vocabulary"):
        Corpus.from_ldac(write(LDAC), set(TERMS))


def test_ldac_files_without_anything(write):
    with pytest.raises(ValueError, match="no documents"):
        Corpus.from_ldac(write("\n"))
    with pytest.raises(ValueError, match="no terms"):
        Corpus.from_ldac(write("0\n0\n"))
    with pytest.raises(ValueError, match="without a single token"):
        Corpus.from_ldac(write("0\n0\n"), TERMS)


def test_vocabulary_files(write):
    path = write(LDAC)
    with pytest.raises(ValueError, match=r"vocab.txt, line 2: got an empty line"):
        Corpus.from_ldac(path, write("gene\n\nworm\n", "vocab.txt"))
    with pytest.raises(ValueError, match="'gene' twice"):
        Corpus.from_ldac(path, write("gene\ncell\nworm\ngene\nneuron\n", "vocab.txt"))
    latin = path.with_name("latin.txt")
    latin.write_bytes("caf\xe9\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.txt: got bytes that are not UTF-8"):
        Corpus.from_ldac(path, latin)


# -- from_texts and encode --------------------------------------------------------------------------------------


def test_texts_are_cut_into_readable_words():
    corpus = Corpus.from_texts(TEXTS)
    assert corpus.vocabulary == ("genes", "neuron", "neurons", "worm", "worms")
    assert_array_equal(corpus.counts.toarray(), [[2, 0, 0, 0, 1], [1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 2, 0, 1]])
    assert any("English stop words removed" in note for note in corpus.notes)
    assert "1 of 4 documents are empty; kept in place" in corpus.notes


def test_limits_on_document_frequency_are_applied_and_reported():
    corpus = Corpus.from_texts(TEXTS, minimum_document_frequency=2, maximum_document_fraction=0.5)
    assert corpus.vocabulary == ("genes", "worms")
    assert any("kept 2 of 14 words, 5 of 21 tokens" in note for note in corpus.notes)
    assert "left out 4 tokens of 3 words in fewer than 2 documents: neurons (2), neuron (1), worm (1)" in corpus.notes


def test_default_limits_begin_at_200_documents():
    texts = ["common word rare" if document < 2 else "common word" for document in range(199)]
    assert Corpus.from_texts(texts).vocabulary == ("common", "rare", "word")
    # From here on 2 of 200 documents are enough, and 100 are not too many.
    texts = [*texts[:100], *(["peculiar thing"] * 100)]
    assert Corpus.from_texts(texts).vocabulary == ("common", "peculiar", "rare", "thing", "word")
    assert Corpus.from_texts(["common only"] * 150 + ["common twice"] * 50).vocabulary == ("twice",)


def test_stop_words_are_cut_like_the_texts():
    texts = ["I don't like Worms", "worms don't care"]
    assert Corpus.from_texts(texts, stop_words=["don't", "Like"]).vocabulary == ("care", "worms")
    assert Corpus.from_texts(texts, stop_words=None).vocabulary == ("care", "don", "like", "worms")
    two_letters = Corpus.from_texts(["AI 42 works"], token_pattern=r"(?u)\b\w\w+\b")
    assert two_letters.vocabulary == ("42", "ai", "works")


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "no texts"),
        ("one text", {}, r"a single string.*pass \[text\]"),
        (["fine", None], {}, r"got None \(NoneType\) as document 1"),
        (["fine", float("nan")], {}, r"got nan \(float\) as document 1"),
        (["", ""], {}, "2 texts without a single word"),
        (["the and of"], {}, "without a single word.*stop words"),
        (["worm", "gene"], {"minimum_document_frequency": 2}, "no word in at least 2.*lower minimum"),
        (["worm"], {"minimum_document_frequency": 0}, "minimum_document_frequency=0"),
        (
            ["worm"],
            {"maximum_document_fraction": 1.5},
            "maximum_document_fraction=1.5, expected a finite number above 0 and of at most 1",
        ),
        (["worm"], {"maximum_document_fraction": float("nan")}, "maximum_document_fraction=nan"),
        (["worm"], {"stop_words": "german"}, "stop_words='german'; expected 'english'"),
        (["worm"], {"token_pattern": "("}, "does not compile"),
        (["worm"], {"document_names": ["a", "b"]}, "got 2 document_names for 1 documents"),
    ],
)
def test_texts_that_are_refused(texts, options, message):
    with pytest.raises(ValueError, match=message):
        Corpus.from_texts(texts, **options)


def test_encoding_the_texts_again_gives_the_same_counts():
    corpus = Corpus.from_texts(TEXTS, stop_words=["have"], token_pattern=r"\w+")
    encoded = corpus.encode(TEXTS)
    assert encoded == corpus
    assert encoded.unknown.n_tokens == 0
    assert encoded.notes[0] == "every word is in the vocabulary"


def test_unknown_words_are_reported():
    corpus = Corpus.from_texts(TEXTS)
    encoded = corpus.encode(
        ["the zebra and the worm", "zebra yak", "", "Genes, genes, aardvark"], document_names=["k", "l", "m", "n"]
    )
    assert encoded.vocabulary == corpus.vocabulary
    assert encoded.document_names == ("k", "l", "m", "n")
    assert_array_equal(encoded.document_lengths, [1, 0, 0, 2])
    assert (encoded.unknown.n_tokens, encoded.unknown.n_all_tokens, encoded.unknown.n_distinct) == (4, 7, 3)
    assert encoded.unknown.most_frequent == (("zebra", 2), ("aardvark", 1), ("yak", 1))
    assert "4 of 7 tokens (3 distinct words)" in encoded.notes[0]
    assert encoded.select([0]).unknown is None  # the report is about all the texts
    assert "2 of 4 documents hold no known word; kept in place" in encoded.summary()


def test_texts_without_a_known_word_stay_as_empty_documents(corpus):
    encoded = corpus.encode(["zebra"])
    assert (len(encoded), encoded.n_tokens, encoded.unknown.n_tokens) == (1, 0, 1)
    with pytest.raises(ValueError, match="no documents"):
        corpus.encode([])
    with pytest.raises(ValueError, match="single string"):
        corpus.encode("zebra")


def test_words_of_a_foreign_vocabulary_are_never_hidden():
    corpus = Corpus.from_matrix([[1, 2, 3]], ["the", "NASA", "us"])
    assert_array_equal(corpus.encode(["the NASA of us"]).counts.toarray(), [[1, 1, 1]])
    assert Analyzer.for_vocabulary(("the", "us")).lowercase


# -- parts ------------------------------------------------------------------------------------------------------


def numbered(n):
    """n documents, document i with i + 1 tokens of term i % 3, so that every document is recognisable."""
    counts = np.zeros((n, 3), dtype=int)
    counts[np.arange(n), np.arange(n) % 3] = np.arange(1, n + 1)
    return Corpus.from_matrix(
        counts, ["u", "v", "w"], document_names=range(n), document_labels=[f"l{i}" for i in range(n)]
    )


def test_select_keeps_the_given_order_names_and_labels(corpus):
    part = corpus.select([3, 0])
    assert_array_equal(part.counts.toarray(), COUNTS[[3, 0]])
    assert (part.document_names, part.document_labels, part.vocabulary) == (("d", "a"), ("z", "x"), TERMS)
    assert part.notes[-1] == "selected 2 of 4 documents"
    assert corpus.select(np.array([True, False, False, True])) == corpus.select((0, 3))
    assert corpus.select(range(4)) == corpus
    assert corpus.select([2]).n_tokens == 0  # an empty document is still a document


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "no document ids"),
        ([4], "from 4 to 4; expected a list of whole numbers from 0 to 3"),
        ([-1], "from -1 to -1"),
        ([0.5], "type float64"),
        ([True, False], r"a mask of shape \(2,\); expected one entry for each of 4"),
        ([False] * 4, "no document ids"),
    ],
)
def test_select_refuses(corpus, ids, message):
    with pytest.raises(ValueError, match=message):
        corpus.select(ids)


@pytest.mark.parametrize("dtype", [int, float, "Int64"])
def test_repeated_has_every_unit_as_often_as_it_was_seen(corpus, dtype):
    counts = pd.Series([2, 0, 1, 3], dtype=dtype)
    assert_array_equal(corpus.repeated(counts).counts.toarray(), np.repeat(COUNTS, [2, 0, 1, 3], axis=0))
    assert corpus.repeated(counts).notes[-1] == "4 documents were seen 6 times"
    assert corpus.repeated([1] * 4) == corpus
    rows, groups = lv.Points.from_array(COUNTS), lv.Groups.from_arrays([COUNTS[:1], COUNTS])
    assert_array_equal(rows.repeated(counts).values, np.repeat(COUNTS, [2, 0, 1, 3], axis=0))
    assert groups.repeated([1, 2]).sizes.tolist() == [1, 4, 4]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2], r"got counts of shape \(2,\); expected one for each of 4 documents"),
        ([1, 2, 3, 0.5], "expected a whole number of at least 0 for each document: .* For weights of a survey, draw"),
        ([1, -1, 1, 1], "expected a whole number of at least 0"),
        ([1, np.nan, 1, 1], "expected a whole number of at least 0"),
        (["1", "1", "1", "1"], "expected a whole number of at least 0"),
        ([0, 0, 0, 0], "got 0 for all documents"),
        (3, "counts"),
    ],
)
def test_repeated_refuses(corpus, counts, message):
    with pytest.raises(ValueError, match=message):
        corpus.repeated(counts)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 40), fraction=st.floats(0.001, 0.999), seed=st.integers(0, 2**32 - 1))
def test_a_split_is_a_partition_in_order(n, fraction, seed):
    corpus = numbered(n)
    train, test = corpus.split(fraction, seed)
    assert 1 <= len(test) == min(max(round(fraction * n), 1), n - 1)
    ids = [[int(name) for name in part.document_names] for part in (train, test)]
    assert ids[0] == sorted(ids[0])
    assert ids[1] == sorted(ids[1])
    assert sorted(ids[0] + ids[1]) == list(range(n))
    for part, rows in zip((train, test), ids, strict=True):
        assert_array_equal(part.counts.toarray(), corpus.counts.toarray()[rows])
        assert part.document_labels == tuple(f"l{row}" for row in rows)
        assert part.vocabulary == corpus.vocabulary
    assert corpus.split(fraction, seed) == (train, test)


def test_another_seed_gives_another_split():
    corpus = numbered(30)
    assert corpus.split(0.3, seed=1) != corpus.split(0.3, seed=2)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), n_documents=st.integers(2, 25), seed=st.integers(0, 1000))
def test_folds_hold_every_document_out_once(data, n_documents, seed):
    n = data.draw(st.integers(2, n_documents))
    corpus = numbered(n_documents)
    folds = corpus.folds(n, seed)
    held_out = [int(name) for _, test in folds for name in test.document_names]
    assert sorted(held_out) == list(range(n_documents))
    sizes = [len(test) for _, test in folds]
    assert max(sizes) - min(sizes) <= 1
    assert all(len(train) + len(test) == n_documents for train, test in folds)
    assert corpus.folds(n, seed) == folds


def test_splits_and_folds_that_are_refused(corpus):
    for fraction in (0, 1, -0.1, float("nan")):
        with pytest.raises(ValueError, match="test_fraction"):
            corpus.split(fraction)
    with pytest.raises(ValueError, match="1 document"):
        corpus.select([0]).split()
    for n in (1, 5):
        with pytest.raises(ValueError, match=f"n={n} folds of 4 documents; expected 2 to 4"):
            corpus.folds(n)


# -- joining ----------------------------------------------------------------------------------------------------


WORDS = st.sampled_from(["cell", "Gene", "gene", "worm", "the", "b2b", "x", "Neuron", "nematode"])
BATCHES = st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(BATCHES)
def test_joined_texts_lose_no_word_in_silence(texts):
    """Tokens in = tokens kept + tokens named as left out; the first documents and words stay what they were."""
    first = Corpus.from_texts(["gene cell cell", "cell worm the"])
    joined = first.joined(texts)
    assert joined.vocabulary[: first.n_terms] == first.vocabulary
    assert_array_equal(joined.counts[:2, : first.n_terms].toarray(), first.counts.toarray())
    assert joined.counts[:2, first.n_terms :].nnz == 0
    lost = joined.dropped.n_tokens - first.dropped.n_tokens
    assert joined.n_tokens - first.n_tokens + lost == sum(len(text.split()) for text in texts)
    new = set(" ".join(texts).lower().split()) & {"neuron", "nematode"}
    assert set(joined.vocabulary[first.n_terms :]) == new
    assert all(word in " ".join(joined.notes) for word in new)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_joined_corpora_keep_every_count(data):
    terms = ["a", "b", "c", "d", "e"]
    mine = data.draw(st.lists(st.sampled_from(terms), min_size=1, unique=True))
    theirs = data.draw(st.lists(st.sampled_from(terms), min_size=1, unique=True))
    draw = st.integers(0, 3)
    one = Corpus.from_matrix(
        data.draw(arrays(np.int64, (2, len(mine)), elements=draw)) + np.eye(2, len(mine), dtype=int), mine
    )
    two = Corpus.from_matrix(
        data.draw(arrays(np.int64, (3, len(theirs)), elements=draw)) + np.eye(3, len(theirs), dtype=int), theirs
    )
    joined = one.joined(two)
    assert joined.vocabulary == (*mine, *(term for term in theirs if term not in mine))
    for part, rows in ((one, slice(0, 2)), (two, slice(2, 5))):
        found = joined.to_frame().iloc[rows]
        for term in joined.vocabulary:
            wanted = part.to_frame()[term].tolist() if term in part.vocabulary else [0] * len(part)
            assert found[term].tolist() == wanted


def test_joined_names_labels_and_metadata_belong_to_their_documents():
    one = Corpus.from_matrix(
        [[1, 0], [0, 2]], ["a", "b"], document_labels=["x", "y"], metadata=pd.DataFrame({"year": [1990, 1991]})
    )
    two = Corpus.from_matrix([[3]], ["c"], document_names=["new"], metadata=pd.DataFrame({"place": ["Rome"]}))
    joined = one.joined(two)
    assert joined.document_names == ("document 0", "document 1", "new")
    assert joined.document_labels == ("x", "y", "unlabelled")
    assert joined.metadata["year"].tolist()[:2] == [1990, 1991]
    assert joined.metadata["place"].tolist()[2] == "Rome"
    assert joined.metadata.isna().sum().tolist() == [1, 2]
    assert one.joined([[5, 6]]).counts.toarray().tolist() == [[1, 0], [0, 2], [5, 6]]


def test_new_words_are_kept_as_if_all_texts_had_been_read_together():
    """New words in fewer than three of 391 documents are left out, and so are words that were left out before."""
    first = Corpus.from_texts([f"cell gene {'rareword' * (number == 0)}" for number in range(190)] + ["worm"] * 190)
    assert "rareword" not in first.vocabulary
    joined = first.joined(["cell quince rareword"] * 4 + ["cell hapax"] + ["worm"] * 6)
    assert joined.vocabulary == (*first.vocabulary, "quince")
    table = joined.dropped.table().set_index("word")
    assert table["rule"]["hapax"] == "in fewer than 3 documents"
    assert "that the corpus left out before" in table["rule"]["rareword"].tolist()


def test_what_cannot_be_joined(corpus):
    with pytest.raises(ValueError, match="expected the 5"):
        corpus.joined([[1, 2]])
    with pytest.raises(ValueError, match="data frame of texts"):
        corpus.joined(pd.DataFrame({"text": ["a gene"]}))
    with pytest.raises(ValueError, match="expected documents"):
        corpus.joined(lv.Points.from_array([[1.0]]))
    with pytest.raises(ValueError, match="cannot be joined"):
        lv.Groups.from_arrays([np.ones((2, 2))]).joined([np.ones((2, 2))])


# -- identity ---------------------------------------------------------------------------------------------------


def test_equality_is_content(corpus):
    others = (
        Corpus.from_matrix(COUNTS + np.eye(4, 5, dtype=int), TERMS),
        Corpus.from_matrix(COUNTS, ("gene", "cell", "worm", "other", "neuron")),
        Corpus.from_matrix(COUNTS, TERMS),
        Corpus.from_matrix(COUNTS, TERMS, document_names=corpus.document_names),
        Corpus.from_matrix(COUNTS, TERMS, document_names=corpus.document_labels, document_labels=corpus.document_names),
    )
    assert len({corpus.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert corpus != "corpus"
    assert len(corpus.fingerprint) == 64


def test_the_fingerprint_is_the_same_on_every_machine(corpus):
    assert corpus.fingerprint == "dda302b71d032fb3949cd860b90f7a5338bec60c4bc9b00dda0031f55643b424"


@settings(max_examples=40, deadline=None)
@given(arrays(np.int64, (3, 4), elements=st.integers(0, 2**31 - 1)))
def test_canonical_counts_change_no_count(counts):
    canonical = canonical_counts(counts)
    assert_array_equal(canonical.toarray(), counts)
    assert canonical.nnz == np.count_nonzero(counts)
    assert canonical_counts(sp.coo_array(counts.astype(np.float64))).nnz == canonical.nnz
