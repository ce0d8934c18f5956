"""Nothing is lost without a note that names it: tokens in are tokens kept and tokens named as left out."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lvsearch as lv
from lvsearch.texts.analyzer import words_of

WORDS = (
    *("the", "of", "and", "apple", "Apple", "new_york", "x86", "42", "uk", "a", "don't", "Straße", "STRASSE"),
    *("été", "e\u0301te\u0301", "我们", "大", "हिन्दी", "كِتَابٌ", "İstanbul", "co\u00adop", "--", "…", "C++"),
)
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=8)
OPTIONS = st.fixed_dictionaries(
    {
        "stop_words": st.sampled_from(["english", None, ("apple", "été")]),
        "token_pattern": st.sampled_from([None, r"(?u)\b\w\w+\b", r"[a-z]+", r"(\w+)_", r"[^ ]+"]),
        "minimum_document_frequency": st.integers(1, 3),
        "maximum_document_fraction": st.sampled_from([0.3, 0.5, 1.0]),
    }
)


def named(notes):
    """(tokens left out, words that the notes name with their tokens), read out of the sentences."""
    found = [note for note in notes if note.startswith("left out ")]
    tokens = sum(int(re.match(r"left out ([\d,]+) token", note)[1].replace(",", "")) for note in found)
    pairs = [re.findall(r"(\S+) \(([\d,]+)\)", note.partition(": ")[2]) for note in found]
    words = Counter()
    for word, count in (pair for each in pairs for pair in each):
        words[word] += int(count.replace(",", ""))
    return tokens, words


@settings(max_examples=150, deadline=None)
@given(TEXTS, OPTIONS)
def test_tokens_in_are_tokens_kept_and_tokens_named(texts, options):
    """Words are counted anew here, by the definition alone, where every word is matched by the pattern."""
    try:
        corpus = lv.Corpus.from_texts(texts, **options)
    except ValueError as error:
        assert "without a single word" in str(error) or "got no word in at least" in str(error)  # noqa: PT017
        return
    tokens, words = named(corpus.notes)
    table = corpus.dropped.table()
    assert tokens == corpus.dropped.n_tokens == table["tokens"].sum()
    note = next(note for note in corpus.notes if note.startswith("kept "))
    kept, all_tokens = (int(n.replace(",", "")) for n in re.search(r"([\d,]+) of ([\d,]+) tokens", note).groups())
    assert kept == corpus.n_tokens
    assert kept + tokens == all_tokens
    assert len(corpus.dropped.losses) == len([note for note in corpus.notes if note.startswith("left out ")])
    if all(loss.n_words <= loss.shown for loss in corpus.dropped.losses):
        assert words == Counter(dict(table.groupby("word")["tokens"].sum().items()))
    if options["token_pattern"] is None:
        plain = [text.replace("\u00ad", "").replace("e\u0301", "é").replace("İ", "i") for text in texts]
        assert all_tokens == sum(len(words_of(text)) for text in plain)


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text(max_size=40), min_size=1, max_size=6), OPTIONS, st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 3)])
)
def test_tokens_of_any_characters_are_kept_or_named(texts, options, runs):
    """Texts of all of Unicode. Without limits nothing but the rules on single words takes tokens away."""
    try:
        corpus = lv.Corpus.from_texts(texts, **options, ngram_range=runs)
    except ValueError as error:
        assert "without a single word" in str(error) or "got no word in at least" in str(error)  # noqa: PT017
        return
    note = next(note for note in corpus.notes if note.startswith("kept "))
    kept, all_tokens = (int(n.replace(",", "")) for n in re.search(r"([\d,]+) of ([\d,]+) tokens", note).groups())
    assert kept == corpus.n_tokens == corpus.counts.sum()
    assert all_tokens == kept + corpus.dropped.n_tokens == kept + corpus.dropped.table()["tokens"].sum()
    notes = [note for note in corpus.notes if note.startswith("left out ")]
    said = [int(re.match(r"left out ([\d,]+) token", note)[1].replace(",", "")) for note in notes]
    assert said == [loss.n_tokens for loss in corpus.dropped.losses]
    assert len(set(corpus.vocabulary)) == len(corpus.vocabulary)
    known = corpus.encode(texts)
    assert known.n_tokens == corpus.n_tokens  # what was counted is found again
    assert (known.counts != corpus.counts).nnz == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=6).filter(np.any),
    st.sampled_from([None, "english", ("gene", "worm")]),
    st.integers(1, 3),
    st.sampled_from([0.3, 0.5, 1.0]),
)
def test_tokens_of_counts_are_kept_or_named_when_they_are_pruned(counts, stop_words, least, most):
    corpus = lv.Corpus.from_matrix(np.array(counts), ["The", "gene", "worm", "cell", "of"])
    limits = {"minimum_document_frequency": least, "maximum_document_fraction": most}
    try:
        pruned = corpus.pruned(stop_words=stop_words, **limits)
    except ValueError as error:
        assert "no word" in str(error)  # noqa: PT017
        return
    tokens, words = named(pruned.notes)
    assert tokens == pruned.dropped.n_tokens
    assert pruned.n_tokens + tokens == corpus.n_tokens
    totals = dict(zip(corpus.vocabulary, corpus.term_totals.tolist(), strict=True))
    lost = {word: totals[word] for word in corpus.vocabulary if word not in pruned.vocabulary}
    assert {word: count for word, count in words.items() if count} == {w: n for w, n in lost.items() if n}
    assert set(pruned.dropped.table()["word"]) == set(lost)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from([(1, 1), (1, 2), (2, 3)]))
def test_what_is_encoded_is_known_unknown_or_named(texts, runs):
    corpus = lv.Corpus.from_texts(["apple new_york été we", "apple pear"], ngram_range=runs)
    encoded = corpus.encode(texts)
    assert encoded.unknown.n_all_tokens == encoded.n_tokens + encoded.unknown.n_tokens
    tokens, _ = named(encoded.notes)
    assert tokens == encoded.dropped.n_tokens
    if runs == (1, 1):
        plain = [text.replace("\u00ad", "").replace("e\u0301", "é").replace("İ", "i") for text in texts]
        assert encoded.unknown.n_all_tokens + tokens == sum(len(words_of(text)) for text in plain)


def test_a_word_that_is_in_too_many_documents_is_named():
    """A name in most blogs of an election is what they are about."""
    blogs = [f"obama wins vote{'' if i % 2 else ' again'}" for i in range(150)] + ["garden roses"] * 100
    corpus = lv.Corpus.from_texts(blogs)
    assert (
        "left out 450 tokens of 3 words in more than 50% of the documents: obama (150), vote (150), wins (150)"
        in corpus.notes
    )
    common = [f"{'abcdefghij'[i // 10]}{'klmnopqrst'[i % 10]}word" for i in range(60)]
    corpus = lv.Corpus.from_texts([" ".join(common)] * 150 + ["garden roses"] * 100)
    note = next(note for note in corpus.notes if "in more than" in note)
    assert note.count("word (150)") == 50  # as many as a person reads
    assert note.endswith("and 10 more")
    assert len(corpus.dropped.table()) == 60


def test_two_looks_at_a_file_say_what_one_look_says(tmp_path):
    path = tmp_path / "docs.txt"
    lines = [f"the apple pear{'uvwxyz'[i % 6]} x{i % 7} uk Straße STRASSE été {'rare' * (i == 5)}" for i in range(300)]
    path.write_text("\n".join(lines), encoding="utf-8")
    for options in ({}, {"token_pattern": r"\w\w+"}, {"ngram_range": (1, 2)}, {"stop_words": ["apple"]}):
        whole = lv.Corpus.open(path, **options)
        found = lv.Corpus.open(lv.convert(path, tmp_path / f"corpus{len(str(options))}", **options))
        assert found == whole
        assert found.notes == whole.notes


def test_counts_are_pruned_and_what_goes_is_named(tmp_path):
    counts = np.array([[3, 1, 0, 2, 0], [1, 0, 0, 2, 0], [2, 0, 4, 2, 0]])
    corpus = lv.Corpus.from_matrix(counts, ["The", "gene", "worm", "cell", "unused"])
    assert corpus.pruned().counts.toarray().tolist() == counts.tolist()
    pruned = corpus.pruned(stop_words="english", minimum_document_frequency=1, maximum_document_fraction=0.5)
    assert pruned.vocabulary == ("gene", "worm")
    assert pruned.counts.toarray().tolist() == [[1, 0], [0, 0], [0, 4]]
    for note in (
        "kept 2 of 5 words, 5 of 17 tokens, with terms in at least 1 and at most 50% of the documents",
        "left out 6 tokens of 1 word that are stop words: The (6)",
        "left out 6 tokens of 1 word in more than 50% of the documents: cell (6)",
        "1 documents lost all their terms; kept in place",
    ):
        assert note in pruned.notes
    assert pruned.dropped.table()["word"].tolist() == ["The", "unused", "cell"]
    corpus.save(tmp_path / "corpus")
    stored = lv.Corpus.open(tmp_path / "corpus", minimum_document_frequency=2)
    assert stored == corpus.pruned(minimum_document_frequency=2)
    with pytest.raises(ValueError, match=r"holds a corpus; expected .* nothing that says how files are read"):
        lv.Corpus.open(tmp_path / "corpus", stop_words=None)
    with pytest.raises(ValueError, match="no word in at least 4"):
        corpus.pruned(minimum_document_frequency=4)
    with pytest.raises(ValueError, match="minimum_document_frequency=0"):
        corpus.pruned(minimum_document_frequency=0)


def test_lists_of_words_are_taken_as_they_stand():
    documents = [["New York", "of", "x86"], [], ["New York", "a"]]
    corpus = lv.Corpus.from_tokens(documents, document_names=list("pqr"))
    assert corpus.vocabulary == ("New York", "a", "of", "x86")
    assert corpus.n_empty_documents == 1
    assert lv.Corpus.from_any(documents) == lv.Corpus.from_tokens(documents)
    assert corpus.encode([["New York", "zebra"]]).unknown.most_frequent == (("zebra", 1),)
    assert (
        "left out 1 token of 1 word that are stop words: of (1)"
        in lv.Corpus.from_tokens(documents, stop_words=["of"]).notes
    )
    for texts, message in ((documents, r"a list of words as document 0.*from_tokens"), (["a b", ["c"]], "document 1")):
        with pytest.raises(ValueError, match=message):
            lv.Corpus.from_texts(texts)
    with pytest.raises(ValueError, match=r"a text as document 1; expected a list of words.*from_texts"):
        lv.Corpus.from_tokens([["a"], "b c"])
