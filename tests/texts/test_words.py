"""What a word is, in any script, and which rule leaves one out."""

import unicodedata

import pytest

import lvsearch as lv
from lvsearch.texts.analyzer import Analyzer, MissingTokenizer, Rule, words_of


def vocabulary(*texts, **options):
    return lv.Corpus.from_texts(texts, **{"stop_words": None, **options}).vocabulary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("new_york machine_learning __init__ a_", ["new_york", "machine_learning", "init", "a"]),
        ("हिन्दी में लिखना", ["हिन्दी", "में", "लिखना"]),  # vowel signs are marks
        ("كِتَابٌ مَدْرَسَةٌ", ["كِتَابٌ", "مَدْرَسَةٌ"]),
        ("ภาษาไทย ง่าย", ["ภาษาไทย", "ง่าย"]),
        ("می\u200cخواهم \u200cشد\u200c", ["می\u200cخواهم", "شد"]),  # a joiner inside a word, not at its ends
        ("e\u0301te\u0301 \u0301x", ["e\u0301te\u0301", "x"]),  # a mark begins no word
        ("m² 我们 喜欢, 大!", ["m²", "我们", "喜欢", "大"]),
        ("don't l'été", ["don", "t", "l", "été"]),
        ("\U0001f469\u200d\U0001f4bb … — ", []),
    ],
)
def test_words(text, words):
    assert words_of(text) == words


def test_accents_have_one_form():
    text = "élève château İstanbul Ma\u00adschine"
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert vocabulary(composed) == vocabulary(decomposed) == ("château", "istanbul", "maschine", "élève")


def test_words_that_differ_in_case_are_one_in_their_most_frequent_spelling():
    assert vocabulary("Straße STRASSE straße") == ("straße",)
    assert vocabulary("STRASSE strasse Straße") == ("strasse",)
    assert vocabulary("ΛΌΓΟΣ λόγος") == ("λόγος",)  # the last sigma as it is written
    corpus = lv.Corpus.from_texts(["Die Straße, die STRASSE, die Straße"], stop_words=["die"])
    assert corpus.counts.toarray().tolist() == [[3]]
    assert corpus.encode(["STRASSE strasse"]).n_tokens == 2
    assert vocabulary("Straße STRASSE der straße", ngram_range=(2, 2), token_pattern=r"\w+") == (
        "der straße",
        "straße der",
        "straße straße",
    )


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        ("of", Rule.STOP),
        ("uk", Rule.SHORT),
        ("ёж", Rule.SHORT),
        ("e_u", Rule.SHORT),
        ("x86", Rule.DIGITS),
        ("m²", Rule.DIGITS),
        ("gene_5", Rule.DIGITS),
        ("大", None),
        ("一", None),  # a number, and a letter
        ("물", None),
        ("में", None),
        ("new_york", None),
        ("fer", None),
    ],
)
def test_rules(word, rule):
    assert Analyzer().rule(word) == rule
    assert Analyzer(None, token_pattern=r"\w+").rule(word) is None
    assert Analyzer(None, tokenizer=str.split).rule(word) is None


def test_a_pattern_and_what_it_does_not_match():
    cut = Analyzer(token_pattern=r"#(\w+)").cut_text("the #Cat and #dog_s x #")
    assert cut.words == ["cat", "dog_s"]
    assert cut.unmatched == ["the", "and", "x"]
    corpus = lv.Corpus.from_texts(["the #cat and #dogs"], token_pattern=r"#(\w+)")
    assert corpus.vocabulary == ("cat", "dogs")
    assert "left out 2 tokens of 2 words that token_pattern does not match: and (1), the (1)" in corpus.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_pattern": r"(a)(b)"}, "2 groups; expected at most one"),
        ({"token_pattern": "a", "tokenizer": str.split}, "a tokenizer and a token_pattern"),
        ({"ngram_range": (0, 1)}, r"ngram_range=\(0, 1\); expected two whole numbers"),
        ({"ngram_range": (2, 1)}, "ngram_range"),
    ],
)
def test_analyzers_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        lv.Corpus.from_texts(["some words"], **options)


@pytest.mark.parametrize("ngram_range", [2, None, (1, 2.0), (1,), "12"])
def test_ranges_that_are_no_pairs_of_numbers(ngram_range):
    analyzer = Analyzer()
    object.__setattr__(analyzer, "ngram_range", ngram_range)  # past the checks of types that tests have
    with pytest.raises(ValueError, match=r"got ngram_range=.*; expected two whole numbers, such as \(1, 2\)"):
        analyzer.__post_init__()


def characters(text):
    return list(text)


def test_a_tokenizer_in_place_of_the_rules(tmp_path):
    corpus = lv.Corpus.from_texts(["我们喜欢苹果", "苹果"], tokenizer=characters, stop_words=["们"])
    assert corpus.vocabulary == ("喜", "我", "果", "欢", "苹")
    assert "test_words.characters" in corpus.notes[0]
    assert corpus.encode(["苹x"]).n_tokens == 1
    corpus.save(tmp_path / "corpus")
    again = lv.Corpus.open(tmp_path / "corpus")
    assert isinstance(again.analyzer.tokenizer, MissingTokenizer)
    with pytest.raises(ValueError, match=r"cut by the function .*characters.*encode\(texts, tokenizer=…\)"):
        again.encode(["苹"])
    assert again.encode(["苹x"], tokenizer=characters).n_tokens == 1
    with pytest.raises(ValueError, match=r"got \[1\] from the tokenizer; expected a list of words"):
        lv.Corpus.from_texts(["a"], tokenizer=lambda text: [1])
    for tokenizer, got in ((str.lower, "'apple pear'"), (lambda text: None, "None"), (str.encode, "b'Apple pear'")):
        with pytest.raises(ValueError, match=rf"got {got} from the tokenizer; expected a list of words"):
            lv.Corpus.from_texts(["Apple pear"], tokenizer=tokenizer)
    assert lv.Corpus.from_texts(["Apple pear"], tokenizer=lambda text: iter(text.split())).n_terms == 2


def test_texts_that_nobody_cut_into_words_are_said():
    for text in ("ฉันรักการเขียนโปรแกรมคอมพิวเตอร์", "我们喜欢苹果和香蕉因为它们很好吃", "私は昨日東京で友達に会いました"):
        assert any("cut the texts into words first" in note for note in lv.Corpus.from_texts([text]).notes)
    for text in ("我们 喜欢 苹果", "ภาษา ไทย", "donaudampfschifffahrt und straßenverkehrsordnung"):
        assert not any("cut the texts" in note for note in lv.Corpus.from_texts([text]).notes)


def test_an_analyzer_comes_back_from_json_and_an_old_one_cuts_as_it_did():
    for one in (Analyzer(), Analyzer(("a", "b"), r"\w+", False, (1, 3), False), Analyzer("english", normalize=False)):
        assert Analyzer.from_json(one.to_json()) == one
    old = Analyzer.from_json({"stop_words": "english", "token_pattern": r"(?u)\b[^\W\d_]{3,}\b", "lowercase": True})
    assert old.cut_text("Straße new_york été of").words == ["straße", "été"]
    assert not old.normalize


def test_stop_words_of_a_language():
    pytest.importorskip("stop_words")
    corpus = lv.Corpus.from_texts(["Die Katze und der Hund"], stop_words="german")
    assert corpus.vocabulary == ("hund", "katze")
    with pytest.raises(ValueError, match=r"stop_words='klingon'; expected .* one of arabic"):
        lv.Corpus.from_texts(["a word"], stop_words="klingon")


def test_a_vocabulary_with_bigrams_knows_them_again():
    from sklearn.feature_extraction.text import CountVectorizer

    texts = ["new york city", "deep learning model", "a new york c++ city"]
    for runs, pattern in (((1, 2), r"(?u)\b\w\w+\b"), ((2, 2), r"(?u)\b\w\w+\b"), ((1, 3), r"[^ ]+")):
        vectorizer = CountVectorizer(ngram_range=runs, token_pattern=pattern)
        counts = vectorizer.fit_transform(texts)
        corpus = lv.Corpus.from_matrix(counts, vectorizer.get_feature_names_out())
        encoded = corpus.encode(texts)
        assert (encoded.counts != corpus.counts).nnz == 0
        assert encoded.unknown.n_tokens == 0
