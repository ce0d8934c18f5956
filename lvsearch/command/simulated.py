"""A corpus with a known number of topics, to test whether a search finds it."""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import csr_array

from lvsearch.data.corpus import Corpus
from lvsearch.models.contract import JointDraw
from lvsearch.models.kernels import kernel
from lvsearch.models.lda import LDA
from lvsearch.models.plain_arguments import whole_number
from lvsearch.models.units import BagOfWords
from lvsearch.sizing.posterior import EstimatedPosterior


@dataclass(frozen=True, eq=False)
class Planted:
    """A corpus drawn from LDA, with the topics and proportions that it was drawn from.

    | field | shape | meaning |
    |---|---|---|
    | `corpus` | | the documents |
    | `topic_word` | (topics, words) | the probability of each word in each topic, rows summing to 1 |
    | `proportions` | (documents, topics) | the share of each topic in each document, rows summing to 1 |
    """

    corpus: Corpus
    topic_word: Float[np.ndarray, "topic word"]
    proportions: Float[np.ndarray, "doc topic"]

    @property
    def n_topics(self) -> int:
        """The number of topics that the corpus was drawn from."""
        return len(self.topic_word)


def planted(
    n_topics: int = 7,
    *,
    n_documents: int = 600,
    n_tokens: int = 80,
    n_terms: int = 300,
    concentration_per_topic: float = 0.7,
    topic_concentration: float = 0.05,
    seed: int = 0,
) -> Planted:
    """Draw a corpus from LDA with `n_topics` topics.

    n_topics, n_documents, n_terms: the numbers of topics, of documents and of words in the vocabulary.
    n_tokens: the number of tokens in each document.
    concentration_per_topic: α, each parameter of the symmetric Dirichlet on a document's topic proportions.
    topic_concentration: η, each parameter of the symmetric Dirichlet on a topic's words.

    The default topics can be recovered, but not trivially. Documents mix about five of seven topics (α = 0.7), whose
    words overlap. The hyper-parameters differ on purpose from `LDA`'s defaults, as they would for a real corpus.

    Returns the corpus with the topics and proportions that it was drawn from.

    Raises ValueError for counts below 1.
    """
    numbers = {"n_topics": n_topics, "n_documents": n_documents, "n_tokens": n_tokens, "n_terms": n_terms}
    for name, number in numbers.items():
        whole_number(name, number, least=1)
    model = LDA(concentration_per_topic * n_topics, topic_concentration)
    shape = (n_documents, n_tokens)
    units = BagOfWords(np.zeros(shape, np.int32), np.ones(shape, np.float32))
    g, l, drawn = _draw_corpus(model, jax.random.key(seed), units, n_topics, n_terms)
    rows = np.repeat(np.arange(n_documents), n_tokens)
    ones = np.ones(rows.size, np.int32)
    counts = csr_array((ones, (rows, np.asarray(drawn.words).ravel())), shape=(n_documents, n_terms))
    width = len(str(n_terms - 1))
    corpus = Corpus.from_matrix(counts, [f"word{term:0{width}}" for term in range(n_terms)])
    topics, proportions = (np.exp(np.asarray(logs, np.float64)) for logs in (g["topic_word"], l["proportions"]))
    return Planted(corpus, topics / topics.sum(-1, keepdims=True), proportions / proportions.sum(-1, keepdims=True))


@kernel(once=True, static_argnames=("n_topics", "n_terms"))
def _draw_corpus(model: LDA, key: Array, units: BagOfWords, n_topics: int, n_terms: int) -> JointDraw:
    """Return what `LDA.simulate` draws, as one compiled program: its operations one by one compile six times as long.

    units: documents with one token in each column; they say how many there are and how long they are.
    """
    return model.simulate(key, (n_topics,), units, {"word": n_terms})


def verdict(n_topics: int, found: EstimatedPosterior) -> str:
    """Return one sentence that says whether a search found the planted number of topics.

    n_topics: the number of topics that the corpus was drawn from.
    found: the posterior over sizes that the search estimated for this corpus.
    """
    best = found.best[0]
    if best == n_topics:
        return f"Planted {n_topics} topics: found, as the most probable number."
    if (n_topics,) in found.indistinguishable:
        return (
            f"Planted {n_topics} topics: {best} is most probable, but the evidence cannot choose between "
            f"{n_topics} and {best}."
        )
    if (n_topics,) not in found.sizes:
        return f"Planted {n_topics} topics: the search stopped before it tried that size; give it more time."
    return f"Planted {n_topics} topics: NOT found. {best} is most probable, and the evidence rules {n_topics} out."
