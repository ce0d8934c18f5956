"""PairedCorpus: what is taken, what is refused and in which words, parts, identity, storage, batches."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import lvsearch as lv
from lvsearch.inference.annotation import annotated_images
from lvsearch.reading.counts import canonical_counts

REGIONS = [[[1.0, 2.0], [3.0, -4.0]], [], [[0.5, 0.25]], [[7.0, 8.0], [9.0, 10.0], [11.0, 13.0]]]
WORDS = [["sky", "sea"], ["sea"], [], ["sky", "sky", "tree"]]
COUNTS = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 2, 1]])
TOKENS = np.array([[2, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])


@pytest.fixture
def corpus() -> lv.PairedCorpus:
    return lv.PairedCorpus.from_arrays(REGIONS, WORDS, region_names=["hue", "size"], image_names=list("abcd"))


# -- what is taken -----------------------------------------------------------------------------------------------------


def test_lists_of_features_and_words(corpus):
    assert corpus.vocabulary == ("sea", "sky", "tree")
    assert_array_equal(corpus.captions.counts.toarray(), COUNTS)
    assert_array_equal(corpus.region_counts, [2, 0, 1, 3])
    assert corpus.regions.shape == (6, 2)
    assert not corpus.has_tokens
    assert_array_equal(corpus.image_regions(3), REGIONS[3])
    assert corpus.caption(3) == ("sky", "sky", "tree")
    assert (corpus.n_units, len(corpus), corpus.n_observations) == (4, 4, 12)
    assert_array_equal(corpus.observations_per_unit, [4, 1, 1, 6])
    assert corpus.entries == {"word": ("sea", "sky", "tree"), "dim": ("hue", "size")}
    assert corpus.notes == (
        "1 of 4 images have no regions; kept in place",
        "1 of 4 images have no caption; kept in place",
    )
    assert corpus.describe() == "4 images, 6 regions of 2 features, 6 caption words of 3"
    assert "PairedCorpus(4 images" in repr(corpus)
    assert "hue, size" in corpus.summary()


def test_counts_and_equal_numbers_of_regions():
    cube = np.arange(12.0).reshape(2, 3, 2)
    corpus = lv.PairedCorpus.from_arrays(cube, np.array([[1, 0], [0, 2]]), ["x", "y"])
    assert_array_equal(corpus.region_counts, [3, 3])
    assert_array_equal(corpus.image_regions(1), cube[1])
    assert corpus.caption(1) == ("y", "y")
    sparse = lv.PairedCorpus.from_arrays(cube, sp.csr_array(np.array([[1, 0], [0, 2]])), ["x", "y"])
    assert sparse == corpus
    assert hash(sparse) == hash(corpus)


def test_tokens_are_spelled_out():
    corpus = lv.PairedCorpus.from_arrays(TOKENS, COUNTS)
    assert corpus.has_tokens
    assert_array_equal(corpus.regions, [0, 0, 2, 1, 0, 1, 2])
    assert_array_equal(corpus.region_counts, [3, 0, 1, 3])
    assert corpus.entries == {"word": ("term0", "term1", "term2"), "dim": ("token0", "token1", "token2")}
    assert lv.PairedCorpus.from_arrays(sp.coo_array(TOKENS), COUNTS) == corpus


def test_ldac_files(tmp_path):
    (tmp_path / "regions.ldac").write_text("2 0:2 2:1\n0\n1 1:1\n3 0:1 1:1 2:1\n")
    (tmp_path / "captions.ldac").write_text("2 0:1 1:1\n1 0:1\n0\n2 1:2 2:1\n")
    (tmp_path / "words.txt").write_text("sea\nsky\ntree\n")
    corpus = lv.PairedCorpus.from_ldac(
        tmp_path / "regions.ldac", tmp_path / "captions.ldac", tmp_path / "words.txt", n_tokens=3
    )
    assert corpus == lv.PairedCorpus.from_arrays(TOKENS, COUNTS, ["sea", "sky", "tree"])
    (tmp_path / "short.ldac").write_text("1 0:1\n")
    with pytest.raises(ValueError, match="regions of 1 images and 4 captions"):
        lv.PairedCorpus.from_ldac(tmp_path / "short.ldac", tmp_path / "captions.ldac")


def test_csv_files(tmp_path, corpus):
    rows = [(name, *region) for name, regions in zip("abcd", REGIONS, strict=True) for region in regions]
    order = [3, 0, 5, 2, 4, 1]  # lines of one image need not stand together
    frame = pd.DataFrame(rows, columns=["image", "hue", "size"])
    by_image = frame.iloc[[0, 1, 2, 3, 4, 5]]
    by_image.to_csv(tmp_path / "regions.csv", index=False)
    words = [(name, word) for name, caption in zip("abcd", WORDS, strict=True) for word in caption]
    pd.DataFrame(words, columns=["image", "word"]).to_csv(tmp_path / "captions.csv", index=False)
    read = lv.PairedCorpus.from_csv(tmp_path / "regions.csv", tmp_path / "captions.csv")
    assert read.captions.document_names == ("a", "c", "d", "b")  # those with regions first
    assert read.select([0, 3, 1, 2]) == corpus
    frame.iloc[order].to_csv(tmp_path / "shuffled.csv", index=False)
    shuffled = lv.PairedCorpus.from_csv(tmp_path / "shuffled.csv", tmp_path / "captions.csv")
    assert sorted(map(tuple, shuffled.regions)) == sorted(map(tuple, corpus.regions))
    names = shuffled.captions.document_names
    assert names is not None
    assert_array_equal(np.sort(shuffled.image_regions(names.index("d")), 0), np.sort(REGIONS[3], 0))
    pd.DataFrame({"image": list("aab"), "token": ["x", "y", "x"]}).to_csv(tmp_path / "tokens.csv", index=False)
    tokens = lv.PairedCorpus.from_csv(tmp_path / "tokens.csv", tmp_path / "captions.csv")
    assert tokens.has_tokens
    assert tokens.region_names == ("x", "y")
    with pytest.raises(ValueError, match="expected one named 'photo'"):
        lv.PairedCorpus.from_csv(tmp_path / "regions.csv", tmp_path / "captions.csv", image="photo")
    with pytest.raises(ValueError, match="expected one named 'term'"):
        lv.PairedCorpus.from_csv(tmp_path / "regions.csv", tmp_path / "captions.csv", word="term")


def test_a_pair_will_do_for_a_model():
    assert lv.PairedCorpus.from_any((REGIONS, WORDS)).n_units == 4
    with pytest.raises(ValueError, match=r"got list, expected a PairedCorpus or a pair \(regions, captions\)"):
        lv.PairedCorpus.from_any([1, 2])


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regions", "captions", "message"),
    [
        ([[[1.0, 2.0]], [[1.0]]], [["a"], ["a"]], r"\[1, 2\] features per region"),
        ([[[1.0, 2.0]]], [["a"], ["b"]], "regions of 1 images and 2 captions"),
        ([[[1.0, np.nan]]], [["a"]], "got nan in region 0, feature 'feature1'"),
        ([[[1.0, 1e16]]], [["a"]], "expected finite numbers"),
        ([[1.0, 2.0]], [["a"]], r"image 0 of shape \(2,\)"),
        ([[], []], [["a"], ["a"]], "without a single region"),
        ([[[1.0]]], ["a"], "a caption that is one string"),
        ([[[1.0]]], None, "no captions and no vocabulary"),
    ],
)
def test_what_is_refused(regions, captions, message):
    with pytest.raises(ValueError, match=message):
        lv.PairedCorpus.from_arrays(regions, captions)


def test_names_and_tokens_are_checked():
    with pytest.raises(ValueError, match="region name 'x' twice"):
        lv.PairedCorpus.from_arrays(REGIONS, WORDS, region_names=["x", "x"])
    with pytest.raises(ValueError, match="3 region names for 2 features"):
        lv.PairedCorpus.from_arrays(REGIONS, WORDS, region_names=["x", "y", "z"])
    with pytest.raises(ValueError, match="caption word 'sky', which the vocabulary of 1 words"):
        lv.PairedCorpus.from_arrays(REGIONS, WORDS, ["sea"])
    captions = lv.Corpus.from_matrix(COUNTS)
    with pytest.raises(ValueError, match="add up to 3 for 2 regions"):
        lv.PairedCorpus(np.array([0, 1]), np.array([3, 0, 0, 0]), ("a", "b"), captions)
    with pytest.raises(ValueError, match="tokens from 0 to 2 for 2 region names"):
        lv.PairedCorpus(np.array([0, 2]), np.array([2, 0, 0, 0]), ("a", "b"), captions)


def test_the_wrong_data_for_a_model_is_refused(corpus):
    with pytest.raises(ValueError, match=r"got PairedCorpus .* for LDA, expected data whose units are of type Bag"):
        lv.fit(lv.models.LDA(), corpus, size=2)
    with pytest.raises(ValueError, match=r"got Corpus .* for CorrLDA, expected data whose units are of type Annotated"):
        lv.fit(lv.models.CorrLDA(), corpus.captions, size=2)


# -- new data like the training data -----------------------------------------------------------------------------------


def test_like_this(corpus):
    assert corpus.like_this(corpus) is not None
    bare = corpus.like_this((REGIONS, None))
    assert bare.captions.n_tokens == 0
    assert bare.vocabulary == corpus.vocabulary
    with pytest.raises(ValueError, match="expected features as in the training data"):
        corpus.like_this((TOKENS, COUNTS))
    with pytest.raises(ValueError, match="got 1 features, expected the 2"):
        corpus.like_this(([[[1.0]]], [["sea"]]))
    with pytest.raises(ValueError, match="other features than the training data"):
        corpus.like_this(lv.PairedCorpus.from_arrays(REGIONS, WORDS))
    with pytest.raises(ValueError, match="expected a PairedCorpus like the training data"):
        corpus.like_this(corpus.captions)
    tokens = lv.PairedCorpus.from_arrays(TOKENS, COUNTS)
    fewer = tokens.like_this((TOKENS[:, :2], COUNTS))  # the last token does not occur there
    assert fewer.region_names == tokens.region_names


def test_standardised(corpus):
    scaled = corpus.standardised()
    np.testing.assert_allclose(scaled.regions.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.regions.std(0), 1)
    test = corpus.select([0, 2]).standardised(like=corpus)
    np.testing.assert_allclose(test.regions, scaled.regions[[0, 1, 2]])
    assert "6 other regions' mean" in test.notes[-1]
    constant = lv.PairedCorpus.from_arrays([[[1.0, 5.0]], [[2.0, 5.0]]], [["a"], ["a"]])
    assert_array_equal(constant.standardised().regions[:, 1], [0, 0])
    with pytest.raises(ValueError, match="got regions that are tokens"):
        lv.PairedCorpus.from_arrays(TOKENS, COUNTS).standardised()


def test_parts(corpus):
    some = corpus.select([3, 0])
    assert_array_equal(some.regions, [*REGIONS[3], *REGIONS[0]])
    assert some.caption(0) == ("sky", "sky", "tree")
    assert some.captions.document_names == ("d", "a")
    train, test = corpus.split(0.25, seed=1)
    assert (len(train), len(test)) == (3, 1)
    assert train.n_observations + test.n_observations == corpus.n_observations


def test_storage_and_identity(corpus):
    for paired in (corpus, lv.PairedCorpus.from_arrays(TOKENS, COUNTS)):
        again = lv.PairedCorpus.from_storage(*paired.to_storage())
        assert again == paired
        assert again.notes == paired.notes
    assert corpus != corpus.standardised()
    with pytest.raises(ValueError, match="read-only"):
        corpus.regions[0] = 0


# -- batches -----------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=60), seed=st.integers(0, 5))
def test_every_region_and_word_is_in_one_batch(counts, seed):
    """Whatever the lengths: nothing lost, nothing twice, padding empty, few distinct lengths."""
    random = np.random.default_rng(seed)
    tokens = random.integers(7, size=sum(counts)).astype(np.int32)
    words = random.integers(0, 3, size=(len(counts), 5))
    data = annotated_images(tokens, np.array(counts), canonical_counts(words), 7)
    starts = np.concatenate([[0], np.cumsum(counts)])
    seen = []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        assert len(ids) % 8 == 0
        for row, image in enumerate(ids):
            unit = [leaf[row] for leaf in batch.units]
            assert batch.weight[row] == (image >= 0)
            if image < 0:
                assert not unit[1].any()
                assert not unit[3].any()
                continue
            seen.append(image)
            assert_array_equal(unit[0][unit[1]], tokens[starts[image] : starts[image + 1]])
            row_counts = np.zeros(5)
            np.add.at(row_counts, unit[2], unit[3])
            assert_array_equal(row_counts, words[image])
    assert sorted(seen) == list(range(len(counts)))
    assert len({batch.units.present.shape[1] for batch in data.batches}) <= 4


def test_a_quote_that_encloses_no_value_swallows_no_line(tmp_path: Path):
    """The word of image 1 was 'sea', a line break, '2,sky', and image 2 had no caption."""
    (tmp_path / "regions.csv").write_text("image,x,y\n1,0.5,2\n2,1,1\n", encoding="utf-8")
    (tmp_path / "captions.csv").write_text('image,word\n1,"sea\n2,sky"\n', encoding="utf-8")
    images = lv.PairedCorpus.from_csv(tmp_path / "regions.csv", tmp_path / "captions.csv")
    assert images.captions.vocabulary == ('"sea', 'sky"')
    assert images.captions.counts.toarray().tolist() == [[1, 0], [0, 1]]
    assert any(note.startswith("captions.csv: quotes are part of the texts") for note in images.notes)
