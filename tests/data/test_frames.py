"""From a data frame to a corpus: what is kept beside the words, where it goes, and what is refused."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest

import lvsearch as lv

TEXTS = ["apple pear plum", "iron tin zinc", "apple iron wren", "wren robin finch"]
KEPT = pd.DataFrame(
    {
        "year": [1999, 2004, 2004, 2011],
        "score": [0.5, np.nan, -1.0, 2.0],
        "open": [True, False, True, True],
        "when": pd.to_datetime(["2020-01-31", None, "2021-02-03", "1969-07-20"]),
        "source": ["press", None, "web", ""],
    }
)


@pytest.fixture
def frame():
    return KEPT.assign(
        body=TEXTS,
        title=["one", "two", "three", "four"],
        kind=pd.Categorical(["a", "b", "a", "b"]),
        tags=[[1], [2], [3], []],
    )


@pytest.fixture
def corpus(frame):
    return lv.Corpus.from_frame(frame, text="body", id="title", label="kind")


def stored(corpus: lv.Corpus) -> lv.Corpus:
    settings, arrays = corpus.to_storage()
    return lv.Corpus.from_storage(json.loads(json.dumps(settings)), arrays)


def test_texts_names_classes_and_the_rest(frame, corpus):
    assert corpus == lv.Corpus.from_frame(frame, text="body", id="title", label="kind")
    assert corpus.counts.toarray().tolist() == lv.Corpus.from_texts(TEXTS).counts.toarray().tolist()
    assert corpus.document_names == ("one", "two", "three", "four")
    assert corpus.document_labels == ("a", "b", "a", "b")
    assert corpus.notes[-1] == "metadata without 'tags', whose values files cannot keep"
    table = corpus.metadata
    assert table.index.tolist() == ["one", "two", "three", "four"]
    assert table.index.name == "title"
    assert table.columns.tolist() == [*KEPT.columns, "kind"]
    expected = KEPT.astype({"when": "datetime64[ns]"}).set_axis(table.index)
    pd.testing.assert_frame_equal(table[KEPT.columns], expected)
    assert "metadata:    year, score, open, when, source, kind" in corpus.summary()


def test_only_what_is_asked_for_is_kept(frame):
    assert lv.Corpus.from_frame(frame, text="body", keep=["year", "body"]).metadata.columns.tolist() == ["year", "body"]
    assert lv.Corpus.from_frame(frame, text="body", keep=[]).metadata.shape == (4, 0)
    with pytest.raises(ValueError, match="the column 'tags', whose values are of type list; expected numbers"):
        lv.Corpus.from_frame(frame, text="body", keep=["tags"])
    with pytest.raises(ValueError, match=r"keep='year'; expected a list of columns: keep=\['year'\]"):
        lv.Corpus.from_frame(frame, text="body", keep="year")


def test_a_list_is_no_column(frame, tmp_path):
    with pytest.raises(ValueError, match=r"got text=\['body'\], expected one of the columns"):
        lv.Corpus.from_frame(frame, text=["body"])
    path = tmp_path / "x.csv"
    frame.to_csv(path)
    for options in ({"text": ["body"]}, {"text": "body", "id": ["title"]}, {"text": "body", "label": ["kind"]}):
        for read in (lv.Corpus.open, partial(lv.convert, folder=tmp_path / "corpus")):
            with pytest.raises(ValueError, match=r"got (text|id|label)=\[.*, expected one of "):
                read(path, **options)


def test_the_index_names_documents_where_no_column_does(frame):
    rows = frame.iloc[[3, 1, 2]]
    corpus = lv.Corpus.from_frame(rows, text="body")
    assert corpus.document_names == ("3", "1", "2")
    assert corpus.metadata.index.tolist() == [3, 1, 2]  # of the frame: numbers, not their names
    assert frame.loc[corpus.metadata.index, "body"].tolist() == [TEXTS[3], TEXTS[1], TEXTS[2]]
    again = lv.Corpus.from_frame(frame, text="body")  # the default index is kept too: after a split it says which rows
    assert again.document_names == ("0", "1", "2", "3")


def test_metadata_goes_where_the_documents_go(frame):
    corpus = lv.Corpus.from_frame(frame, text="body")
    parts = [corpus.select([2, 0]), *corpus.split(0.4, seed=1), *(side for fold in corpus.folds(2) for side in fold)]
    for part in parts:
        chosen = [int(name) for name in part.document_names]
        assert part.metadata.index.tolist() == chosen
        assert part.metadata["year"].tolist() == KEPT["year"].iloc[chosen].tolist()
        pd.testing.assert_frame_equal(stored(part).metadata, part.metadata)
        assert stored(part) == part
    assert parts[0].select([1]).metadata.index.tolist() == [0]
    plain = lv.Corpus.from_texts(TEXTS, metadata=KEPT)
    train, _ = plain.split(0.4, seed=1)
    assert train.document_names is None
    assert plain.metadata.loc[train.metadata.index, "year"].tolist() == train.metadata["year"].tolist()


def test_it_is_part_of_the_content_and_cannot_be_written_to(corpus):
    before = corpus.fingerprint
    table = corpus.metadata
    table["year"] = 0
    assert corpus.metadata["year"].tolist() == KEPT["year"].tolist()
    with pytest.raises(ValueError, match="read-only"):
        corpus.document_table.columns[0].values[0] = 1
    plain = lv.Corpus.from_texts(TEXTS)
    changed = KEPT.assign(source=["press", "", "web", ""])  # a missing text is no empty one
    others = [lv.Corpus.from_texts(TEXTS, metadata=table) for table in (KEPT, changed, KEPT.iloc[:, ::-1])]
    assert len({plain, *others}) == 4
    assert corpus.fingerprint == before
    assert plain.metadata is None


def test_an_index_in_another_order_than_the_documents_is_refused():
    texts = pd.Series(TEXTS, index=list("abcd"))
    labels = pd.Series(["A", "B", "C", "D"], index=list("abcd"))
    table = pd.DataFrame({"year": [1, 2, 3, 4]}, index=list("abcd"))
    training = lv.Corpus.from_texts(texts, document_labels=labels, metadata=table)
    assert training.document_labels == ("A", "B", "C", "D")
    counts = pd.DataFrame(np.eye(4, dtype=int), index=texts.index)
    for make in (
        partial(lv.Corpus.from_texts, texts),
        partial(lv.Corpus.from_texts, TEXTS, document_names=list("abcd")),
        partial(lv.Corpus.from_tokens, texts.str.split(), document_names=list("abcd")),
        partial(lv.Corpus.from_matrix, counts),
        partial(training.encode, texts),
    ):
        with pytest.raises(ValueError, match=r"got metadata .* as index, in another order: row 0 is 'd', expected 'a'"):
            make(metadata=table.iloc[::-1])
        with pytest.raises(
            ValueError, match="got document_labels with the names of the documents as index, in another"
        ):
            make(document_labels=labels.iloc[::-1])
        assert make(metadata=table.iloc[::-1].reset_index(drop=True)).metadata["year"].tolist() == [4, 3, 2, 1]
        other = table.iloc[::-1].set_axis(list("wxyz"))  # names of something else
        assert make(metadata=other).metadata["year"].tolist() == [4, 3, 2, 1]


def test_metadata_of_any_corpus():
    counts = np.eye(4, dtype=int)
    assert lv.Corpus.from_matrix(counts, metadata=KEPT).metadata["year"].tolist() == KEPT["year"].tolist()
    trained = lv.Corpus.from_texts(TEXTS)
    assert trained.encode(TEXTS[:2], metadata=KEPT[:2]).metadata.shape == (2, 5)
    zoned = pd.DataFrame({"t": pd.to_datetime(["2020-01-01 02:00"] * 4).tz_localize("Europe/Paris")})
    assert lv.Corpus.from_matrix(counts, metadata=zoned).metadata["t"][0] == pd.Timestamp("2020-01-01 01:00")
    mixed = pd.DataFrame({"m": [1, "b", None, 2.5], "n": pd.array([1, None, 2, 3], dtype="Int64")})
    table = lv.Corpus.from_matrix(counts, metadata=mixed).metadata
    assert table["m"].dropna().tolist() == ["1", "b", "2.5"]
    np.testing.assert_array_equal(table["n"], [1, np.nan, 2, 3])
    with pytest.raises(ValueError, match="metadata of 5 rows for 4 documents"):
        lv.Corpus.from_matrix(counts, metadata=pd.DataFrame({"a": range(5)}))
    with pytest.raises(ValueError, match="got dict; expected a pandas DataFrame"):
        lv.Corpus.from_matrix(counts, metadata={"a": range(4)})


@pytest.mark.parametrize(
    "values",
    [
        pd.array([2**60 + 1, None], dtype="Int64"),
        np.array([2**64 - 1, 1], dtype=np.uint64),
        pd.Series([2**60 + 1, np.nan], dtype=object),
        pd.Series([2**60 + 1, 1.5], dtype=object),
        pd.Series([10**400, 2], dtype=object),
    ],
    ids=str,
)
def test_whole_numbers_that_no_number_type_holds_stay_what_they_were(values):
    table = lv.Corpus.from_frame(pd.DataFrame({"body": TEXTS[:2], "x": values}), text="body").metadata
    assert table["x"].dropna().tolist() == [str(value) for value in pd.Series(values).dropna()]
    held = lv.Corpus.from_frame(pd.DataFrame({"body": TEXTS[:2], "x": pd.array([2**60, None], "Int64")}), text="body")
    assert held.metadata["x"].tolist()[0] == 2.0**60


def test_times_that_nanoseconds_cannot_count_stay_what_they_were():
    dates = pd.to_datetime(pd.Series(["1066-10-14", None, "9999-12-31"], dtype=object).astype("datetime64[s]"))
    frame = pd.DataFrame({"body": TEXTS[:3], "y": dates})
    expected = ["1066-10-14 00:00:00", "", "9999-12-31 00:00:00"]
    assert stored(lv.Corpus.from_frame(frame, text="body")).metadata["y"].fillna("").tolist() == expected
    by_date = lv.Corpus.from_texts(TEXTS[::2], metadata=pd.DataFrame({"n": [1, 2]}, index=dates[[0, 2]]))
    assert by_date.metadata.index.tolist() == expected[::2]
    edges = pd.Series(pd.to_datetime(["1677-09-22", "2262-04-11"])).astype("datetime64[s]")
    assert lv.Corpus.from_texts(TEXTS[:2], metadata=edges.to_frame("y")).metadata["y"].tolist() == edges.tolist()


def test_tables_of_other_libraries(frame):
    class Dataset:
        """What Hugging Face's and Polars' tables have in common."""

        column_names = frame.columns.tolist()

        def to_pandas(self):
            return frame

        def __iter__(self):
            yield from frame.to_dict("records")

    assert lv.Corpus.from_frame(Dataset(), text="body") == lv.Corpus.from_frame(frame, text="body")
    with pytest.raises(ValueError, match=r"got a Dataset with the columns 'year', .*lv\.Corpus\.from_frame"):
        lv.Corpus.from_texts(Dataset())
    with pytest.raises(ValueError, match=r"several data sets \('train', 'test'\); expected one of them"):
        lv.Corpus.from_any({"train": Dataset(), "test": Dataset()})


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_tables_of_arrow_round_no_whole_numbers(library):
    package = pytest.importorskip(library)
    make = package.table if library == "pyarrow" else package.DataFrame
    table = make({"body": TEXTS[:3], "reply": [2**60 + 1, None, 5], "year": [1990, None, 2000], "x": [0.5, None, 1.0]})
    metadata = lv.Corpus.from_frame(table, text="body").metadata
    assert metadata["reply"].dropna().tolist() == [str(2**60 + 1), "5"]
    np.testing.assert_array_equal(metadata["year"], [1990, np.nan, 2000])
    points = lv.Points.from_frame(make({"year": [1990, None, 2000], "x": [0.5, 2.0, None]}), missing="nan")
    np.testing.assert_array_equal(points.values, [[1990, 0.5], [np.nan, 2], [2000, np.nan]])


def test_tables_without_arrow_round_no_whole_numbers():
    class Table(dict):
        """A frame of Polars where pyarrow is not installed."""

        columns = ("body", "reply", "x")

        def to_pandas(self):
            raise ImportError("pyarrow")

        def __getitem__(self, name):
            return pd.Series({"body": TEXTS[:2], "reply": [2**60 + 1, None], "x": [0.5, None]}[name], dtype=object)

    metadata = lv.Corpus.from_frame(Table(), text="body").metadata
    assert metadata["reply"].dropna().tolist() == [str(2**60 + 1)]
    np.testing.assert_array_equal(metadata["x"], [0.5, np.nan])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "words"}, r"text='words', expected one of the columns 'year', .*'tags'; text= names the one that"),
        ({"text": "body", "id": "name"}, "id='name', expected one of the columns"),
        ({"text": "body", "keep": ["pages"]}, "keep='pages', expected one of the columns"),
        (
            {"text": "source"},
            "1 missing values of 4 in the column 'source', the first in row 1; expected the documents",
        ),
        ({"text": "body", "label": "source"}, "1 missing values of 4 in the column 'source'"),
        ({"text": "year"}, r"got 1999 \(int\) as document 0; expected a string"),
    ],
)
def test_frames_that_are_refused(frame, options, message):
    with pytest.raises(ValueError, match=message):
        lv.Corpus.from_frame(frame, **options)


def test_a_frame_is_no_list_of_texts(frame, corpus):
    for mistaken in (lv.Corpus.from_texts, corpus.encode):
        with pytest.raises(ValueError, match=r"got a DataFrame with the columns 'year', .*from_frame\(frame, text=…\)"):
            mistaken(frame)
        with pytest.raises(ValueError, match=r"got a dict; expected a list of texts, in order: of a dict"):
            mistaken({"one": "apple"})
        with pytest.raises(ValueError, match="got a set"):
            mistaken({"apple", "pear"})


# -- what is plainly one thing ------------------------------------------------------------------------------------


def test_a_search_takes_what_is_plainly_texts(frame):
    of = lv.Corpus.from_any
    texts = lv.Corpus.from_texts(TEXTS)
    for same in (TEXTS, tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object), iter(TEXTS), pd.Series(TEXTS)):
        assert of(same) == texts
    named = of(pd.Series(TEXTS, index=list("wxyz")))
    assert named.document_names == ("w", "x", "y", "z")
    assert of(frame[["body"]]).counts.toarray().tolist() == texts.counts.toarray().tolist()
    assert of([[(0, 2), (2, 1)], [], [(1, 1)]]).counts.toarray().tolist() == [[2, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert of(frame[["year"]].rename(columns={"year": "apple"})).vocabulary == ("apple",)
    with pytest.raises(ValueError, match=r"text in 'source', 'body', 'title', 'kind'; expected to know which column"):
        of(frame)
    long = pd.DataFrame({"document": [0, 1], "word": ["apple", "pear"], "count": [1, 2]})
    with pytest.raises(ValueError, match="text in 'word'"):  # a table of counts, a row per pair: no texts
        of(long)


@pytest.fixture(scope="module")
def fitted():
    corpus = lv.Corpus.from_texts([f"{a} {b}" for a in TEXTS for b in TEXTS])
    return lv.fit(lv.models.LDA(), corpus, size=2, seed=0)


def test_texts_are_encoded_where_the_words_are_known(fitted):
    new = ["apple pear apple", "tin zinc"]
    expected = fitted.transform(fitted.training.encode(new))
    np.testing.assert_array_equal(fitted.transform(new), expected)
    np.testing.assert_array_equal(fitted.transform(pd.DataFrame({"body": new})["body"]), expected)
    assert fitted.score(new) == fitted.score(fitted.training.encode(new))
    with pytest.raises(ValueError, match=r"pass \[text\]"):
        fitted.transform("apple pear")
    with pytest.raises(ValueError, match=r"training\.encode"):
        fitted.transform(pd.DataFrame({"body": new, "title": new}))


def test_a_document_without_a_known_word_is_no_silent_answer(fitted):
    with pytest.warns(UserWarning, match=r"1 of 2 documents hold no word .* \(the first: document 1\)"):
        shares = fitted.transform(["apple", "quark gluon"])
    assert shares[1] == pytest.approx(0.5, abs=1e-6)
    with pytest.warns(UserWarning, match="the document holds no word"):
        fitted.transform(["quark gluon"])


def test_training_documents_without_words_are_no_surprise():
    corpus = lv.Corpus.from_texts([*TEXTS, ""])
    fit = lv.fit(lv.models.LDA(), corpus, size=1, seed=0)
    assert fit.transform(fit.training).shape == (5, 1)  # a warning would be an error


def test_scales_are_of_what_is_known():
    """`scaled_to(points.values)`: a cell that is missing is no 0."""
    values = np.array([[10.0, 1.0], [12.0, np.nan], [np.nan, 3.0], [14.0, 5.0]])
    points = lv.Points.from_array(values, missing="nan")
    for kind in (lv.models.DiagonalComponents, lv.models.IndependentNormalMixture):
        ours, expected = kind.scaled_to(points.values), kind.scaled_to(values)
        np.testing.assert_array_equal(ours.location, expected.location)
        np.testing.assert_array_equal(ours.scale, expected.scale)
        assert ours.location[0] == 12.0
    assert all(np.isfinite(batch.units.value).all() for batch in points.dataset().batches)
    groups = lv.Groups.from_arrays([np.ma.masked_invalid(values[:2]), np.ma.masked_invalid(values[2:])])
    assert all(np.isfinite(batch.units.value).all() for batch in groups.dataset().batches)
    assert groups.like_this([np.ma.masked_invalid(values)]).columns == groups.columns
