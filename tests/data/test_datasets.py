"""The corpora that come with lvsearch or lie in LVSEARCH_DATA."""

import sys
import textwrap

import numpy as np
import pytest

from lvsearch.data import datasets
from lvsearch.data.datasets import prose

# -- prose ------------------------------------------------------------------------------------------------------


def test_prose_keeps_sentences_and_drops_the_rest():
    docstring = """
        Return the singular vectors of a matrix.

        Parameters
        ----------
        rows, cols : array_like of int, optional
            Where the vectors start. Note: this sentence stays.
        *args : tuple

        Returns
        -------
        vectors : ndarray, shape (N,)
            Orthogonal directions, see :func:`numpy.linalg.svd` and ``full_matrices`` or `other`_.

        .. versionadded:: 1.4

        .. math::

            hidden = \\\\int_0^1 secret

        A block follows::

            concealed = code()

        and ends at https://example.org/page with foo_bar and os.path.join(x).

        See Also
        --------
        unwanted : Not this.

        References
        ----------
        .. [1] Nobody, "Journal of Nothing".

        Notes
        -----
        Golub describes the algorithm.

        Examples
        --------
        Invisible example.

        >>> invisible(3)
        4
    """
    text = prose(docstring)
    assert text == (
        "Return the singular vectors of a matrix. Where the vectors start. Note: this sentence stays. "
        "Orthogonal directions, see and or . and ends at with and Golub describes the algorithm."
    )


def test_doctests_are_dropped_with_their_output_and_prose_after_them_stays():
    assert prose("Before.\n\n>>> shown(1)\nprinted\n\nAfter.") == "Before. After."


# -- docstrings -------------------------------------------------------------------------------------------------


def words(*vocabulary, times):
    return " ".join(word for _ in range(times) for word in vocabulary)


@pytest.fixture
def source_tree(tmp_path, monkeypatch):
    """A small standard library and a small NumPy; importing any of it would fail."""
    monkeypatch.setattr(datasets, "_source_roots", lambda: {"": tmp_path / "lib", "numpy": tmp_path / "numpy"})
    files = {
        "lib/sockets/__init__.py": f'''
            """{words("server", "client", "protocol", times=20)}"""
            raise RuntimeError("imported")
            class Stream:
                """{words("buffer", "bytes", "protocol", times=25)}"""
                async def read(self):
                    """{words("timeout", "bytes", times=30)}"""
            ''',
        "lib/sockets/copy.py": f'def copied():\n    """{words("buffer", "bytes", "protocol", times=25)}"""\n',
        "lib/sockets/tests/test_it.py": f'"""{words("forbidden", "words", times=40)}"""\n',
        "lib/site-packages/other.py": f'"""{words("forbidden", "words", times=40)}"""\n',
        "lib/test_top.py": f'"""{words("forbidden", "words", times=40)}"""\n',
        "lib/broken.py": "def (:\n",
        "lib/short.py": '"""Too short to tell anything."""\n',
        "numpy/linalg/_solve.py": f'def solve():\n    """{words("matrix", "vector", times=30)}"""\n',
        "numpy/version.py": f'"""{words("release", "candidate", times=30)}"""\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.mark.usefixtures("source_tree")
def test_docstrings_are_found_labelled_and_named():
    corpus = datasets.docstrings()
    assert corpus.document_names == (
        "numpy.version",
        "numpy.linalg._solve.solve",
        "sockets",
        "sockets.Stream",
        "sockets.Stream.read",
    )
    assert corpus.document_labels == ("numpy", "numpy.linalg", "sockets", "sockets", "sockets")
    assert "forbidden" not in corpus.vocabulary
    assert corpus.counts.toarray()[1, corpus.vocabulary.index("matrix")] == 30
    assert corpus.notes[0].startswith("5 of 5 docstrings of 3 packages (seed 0): Python ")
    assert "NumPy" in corpus.notes[0]
    assert "SciPy" in corpus.notes[0]
    assert "sha256" in corpus.notes[1]


@pytest.mark.usefixtures("source_tree")
def test_a_sample_of_docstrings():
    assert len(datasets.docstrings(size=3)) == 3
    assert datasets.docstrings(size=3, seed=5) == datasets.docstrings(size=3, seed=5)
    assert len({datasets.docstrings(size=2, seed=seed).fingerprint for seed in range(8)}) > 1
    with pytest.raises(ValueError, match="size=0"):
        datasets.docstrings(size=0)


def test_no_source_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_source_roots", lambda: {"": tmp_path})
    with pytest.raises(ValueError, match=r"no docstring.*expected its source files"):
        datasets.docstrings()


def test_a_sample_keeps_proportions_and_has_the_right_size():
    found = [
        (label, str(n), "text") for label, count in (("big", 700), ("mid", 250), ("tiny", 50)) for n in range(count)
    ]
    for size, seed in ((100, 0), (101, 1), (999, 2), (1000, 3), (5000, 4)):
        sample = datasets._sample_by_label(found, size, seed)
        assert len(sample) == len(set(sample)) == min(size, 1000)
        share = np.mean([label == "big" for label, *_ in sample])
        assert abs(share - 0.7) <= 1 / len(sample) + 1e-12


def test_real_docstrings_of_one_package(monkeypatch):
    root = datasets._source_roots()["numpy"]
    monkeypatch.setattr(datasets, "_source_roots", lambda: {"numpy.linalg": root / "linalg"})
    loaded = set(sys.modules)
    corpus = datasets.docstrings(size=25)
    assert set(sys.modules) == loaded
    assert len(corpus) == 25
    assert "matrix" in corpus.vocabulary
    assert not datasets.DOCSTRING_STOP_WORDS & set(corpus.vocabulary)
    assert corpus.document_lengths.min() > 0


@pytest.mark.slow
def test_the_embedded_default_corpus():
    corpus = datasets.docstrings()
    assert len(corpus) == 2000
    assert corpus.n_terms > 1500
    assert {"asyncio", "numpy.linalg", "scipy.stats"} <= set(corpus.document_labels)
    assert not set(corpus.vocabulary) & {"parameters", "returns", "int", "array", "none", "scipy"}


# -- LVSEARCH_DATA ----------------------------------------------------------------------------------------------


def test_without_the_variable_there_is_nothing_to_load(monkeypatch):
    monkeypatch.delenv("LVSEARCH_DATA", raising=False)
    assert datasets.available() == ()
    with pytest.raises(ValueError, match=r"LVSEARCH_DATA to name one.*docstrings"):
        datasets.load("cora")


def test_names_and_labels_are_read_where_they_fit(tmp_path, monkeypatch):
    monkeypatch.setenv("LVSEARCH_DATA", str(tmp_path))
    for name in ("zoo", "ark"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.ldac").write_text("1 0:2\n2 0:1 1:4\n")
        (tmp_path / name / "vocab.txt").write_text("lion\nyak\n")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "zoo" / "titles.txt").write_text("One\nTwo\n")
    (tmp_path / "zoo" / "labels.txt").write_text("big\ttrain\nhairy\ttest\n")
    (tmp_path / "ark" / "titles.txt").write_text("Only one title\n")
    assert datasets.available() == ("ark", "zoo")
    zoo, ark = datasets.load("zoo"), datasets.load("ark")
    assert (zoo.document_names, zoo.document_labels) == (("One", "Two"), ("big", "hairy"))
    assert (ark.document_names, ark.document_labels) == (None, None)
    with pytest.raises(ValueError, match=r"got 'pictures'; expected one of the corpora in .*: ark, zoo"):
        datasets.load("pictures")


def test_a_folder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("LVSEARCH_DATA", str(tmp_path / "absent"))
    assert datasets.available() == ()
    with pytest.raises(ValueError, match="absent: there are none"):
        datasets.load("cora")


@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize(
    ("name", "documents", "terms", "tokens", "named", "labelled"),
    [
        ("cora", 2_410, 2_961, 136_394, True, False),
        ("ap", 2_246, 10_473, 435_838, False, False),
        ("nematode", 5_947, 5_655, 483_761, True, False),
        ("jacm", 536, 1_809, 69_879, True, False),
        ("reuters395", 395, 4_258, 84_010, True, False),
        ("reuters_r52", 9_100, 8_617, 524_753, False, True),
    ],
)
def test_real_corpora_have_the_stated_sizes(name, documents, terms, tokens, named, labelled):
    if name not in datasets.available():
        pytest.skip(f"LVSEARCH_DATA holds no {name}")
    corpus = datasets.load(name)
    assert (corpus.n_documents, corpus.n_terms, corpus.n_tokens) == (documents, terms, tokens)
    assert (corpus.document_names is not None) == named
    assert (corpus.document_labels is not None) == labelled
    assert corpus.n_empty_documents == 0
