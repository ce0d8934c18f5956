"""What the benchmarks run on: named corpora, LDA-C files, and simulated ones of any size."""

from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array

import lvsearch as lv

AP_DOCUMENTS, AP_WORDS, AP_LENGTH = 2246, 10_473, 194.0
"""The Associated Press sample: documents, distinct words, tokens per document."""


def corpus_named(name: str) -> lv.Corpus:
    """A corpus of LVSEARCH_DATA by name; or a folder with corpus.ldac and vocab.txt; or an LDA-C file; or docstrings.

    Raises ValueError for anything else, as `lv.datasets.load` does.
    """
    path = Path(name)
    if name == "docstrings":
        return lv.datasets.docstrings()
    if path.is_dir() and (path / "corpus.ldac").is_file():
        return lv.Corpus.from_ldac(path / "corpus.ldac", path / "vocab.txt")
    return lv.Corpus.from_ldac(path) if path.is_file() else lv.datasets.load(name)


def simulated(scale: int, seed: int = 0, n_topics: int = 100) -> csr_array:
    """Counts (documents, words) of LDA with AP's number of words and lengths, and `scale` times its documents.

    The documents of a smaller scale are drawn in the same way, not the same ones.
    """
    return drawn_documents(scale * AP_DOCUMENTS, AP_LENGTH, n_topics, (seed, scale))


def drawn_documents(n_documents: int, length: float, n_topics: int, seed: int | tuple[int, ...]) -> csr_array:
    """Counts (documents, words) of LDA with AP's number of words: topics Dirichlet(0.05), proportions
    Dirichlet(5 / n_topics), lengths Gamma–Poisson with mean `length`."""
    random = np.random.default_rng(seed)
    topics = random.dirichlet(np.full(AP_WORDS, 0.05), n_topics)
    lengths = random.poisson(random.gamma(3.0, length / 3.0, n_documents))
    per_topic = random.multinomial(lengths, random.dirichlet(np.full(n_topics, 5 / n_topics), n_documents))
    documents, words = [], []
    for topic in range(n_topics):
        documents.append(np.repeat(np.arange(n_documents), per_topic[:, topic]))
        words.append(random.choice(AP_WORDS, len(documents[-1]), p=topics[topic]))
    cells = np.concatenate(documents), np.concatenate(words)
    counts = csr_array(coo_array((np.ones(len(cells[0]), np.int32), cells), shape=(n_documents, AP_WORDS)))
    counts.sum_duplicates()
    return counts
