"""The words that distinguish a topic from the others, and names of topics made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lvsearch.models.plain_arguments import real_number

TINY = 1e-300
"""The number that replaces a probability of zero, which has no logarithm."""


@dataclass(frozen=True)
class TopicSketch:
    """A summary of one topic, from which a `namer` makes its name.

    | field | meaning |
    |---|---|
    | `topic` | the number of the topic |
    | `share` | the topic's share of the training tokens |
    | `words` | its most probable words, the most probable first |
    | `distinctive` | its most distinctive words by FREX, which leaves out words that topics share |
    | `documents` | names (else numbers) of the documents with the largest shares of it |
    """

    topic: int
    share: float
    words: tuple[str, ...]
    distinctive: tuple[str, ...]
    documents: tuple[str, ...]


EXCLUSIVITY = 0.7
"""The weight of exclusivity in FREX. It is high, since a name should distinguish a topic from the others."""
Namer = Callable[[TopicSketch], str]


def relevance_scores(
    topic_word: Float[np.ndarray, "topic word"], prevalence: Float[np.ndarray, " topic"], relevance: float | int
) -> Float[np.ndarray, "topic word"]:
    """Return the relevance of each word to each topic, (topic, word), in nats (Sievert & Shirley 2014, Eq. 1).

    It is λ log p(w | k) + (1 − λ) log [p(w | k) / p(w)] of word w and topic k.

    topic_word: p(w | k).
    prevalence: the share of each topic in the tokens.
    relevance: λ, from 0 (distinctive words first) to 1 (most probable words first).

    Raises ValueError unless λ is between 0 and 1.
    """
    relevance = real_number("relevance", relevance, least=0, most=1)
    log_overall = np.log(np.maximum(prevalence @ topic_word, TINY))
    return np.log(np.maximum(topic_word, TINY)) - (1 - relevance) * log_overall


def frex_scores(
    topic_word: Float[np.ndarray, "topic word"], exclusivity: float | int = EXCLUSIVITY
) -> Float[np.ndarray, "topic word"]:
    """Return the FREX score of each word in each topic, (topic, word), in (0, 1]; words with high scores name the topic
    well.

    FREX is the harmonic mean of the ranks of a word's frequency and of its exclusivity in a topic. The exclusivity of
    word w to topic k is p(w | k) / Σ_j p(w | j). A rank is the share of words of the topic that are no higher.

    topic_word: p(w | k).
    exclusivity: the weight of exclusivity, from 0 (frequency only) to 1.

    Raises ValueError for a weight outside 0 to 1.

    Source: Airoldi & Bischof (2016), Eq. 1.
    """
    if not 0 <= exclusivity <= 1:
        raise ValueError(f"got exclusivity={exclusivity}, expected a weight from 0 (frequency alone) to 1")
    from scipy.stats import rankdata

    share = topic_word / np.maximum(topic_word.sum(axis=0), TINY)
    frequent, exclusive = (rankdata(values, axis=1) / values.shape[1] for values in (topic_word, share))
    return 1.0 / (exclusivity / exclusive + (1 - exclusivity) / frequent)


def top_words(scores: Float[np.ndarray, "topic word"], vocabulary: Sequence[str], n_words: int) -> list[list[str]]:
    """Return the words with the highest scores in each topic, the highest first, as one list per topic.

    Ties are in the order of the vocabulary.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :n_words]
    return [[str(vocabulary[word]) for word in row] for row in order]


def names_of(sketches: Sequence[TopicSketch], namer: Namer | None, n_words: int) -> list[str]:
    """Return a distinct name for each topic: the result of `namer`, or the topic's most distinctive words.

    A name that occurs again gets a number, such as "price market (2)".

    sketches: a summary of each topic.
    namer: topic summary -> name; None joins the `n_words` most distinctive words.

    Raises ValueError for a name that is no text or empty.
    """
    if namer is None:
        return distinct_names([sketch.distinctive for sketch in sketches], n_words)
    return _numbered([namer(sketch) for sketch in sketches])


def distinct_names(distinctive: Sequence[Sequence[str]], n_words: int) -> list[str]:
    """Return a distinct name for each topic: its most distinctive words, joined by spaces.

    distinctive: the most distinctive words of each topic, the most distinctive first.
    n_words: the number of words in a name.

    Raises ValueError for a name that is empty.
    """
    return _numbered([" ".join(words[:n_words]) for words in distinctive])


def _numbered(names: Sequence[Any]) -> list[str]:
    """Return the names of all topics, where a name that occurs again gets a number, such as "price market (2)".

    Raises ValueError for a name that is no text or empty.
    """
    uses: dict[str, int] = {}
    numbered: list[str] = []
    for topic, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"got {name!r} as the name of topic {topic}, expected a text that is not empty")
        uses[name] = uses.get(name, 0) + 1
        numbered.append(name if uses[name] == 1 else f"{name} ({uses[name]})")
    return numbered
