"""Which words tell a topic from the others, and names made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

TINY = 1e-300
"""In place of a probability of zero, which has no logarithm."""


@dataclass(frozen=True)
class TopicSketch:
    """What a `namer` is shown of a topic.

    | field | meaning |
    |---|---|
    | `topic` | its number |
    | `share` | of the training tokens |
    | `words` | its most probable words, first the most probable |
    | `distinctive` | its words by FREX, which leave out what topics share |
    | `documents` | names (else numbers) of the documents with the largest shares of it |
    """

    topic: int
    share: float
    words: tuple[str, ...]
    distinctive: tuple[str, ...]
    documents: tuple[str, ...]


EXCLUSIVITY = 0.7
"""Weight of how exclusive a word is: names are there to tell topics apart, and what is in all of them does not."""
Namer = Callable[[TopicSketch], str]


def relevance_scores(
    topic_word: Float[np.ndarray, "topic word"], prevalence: Float[np.ndarray, " topic"], relevance: float | int
) -> Float[np.ndarray, "topic word"]:
    """λ log p(w | k) + (1 − λ) log [p(w | k) / p(w)], nats (Sievert & Shirley 2014, Eq. 1). λ: `relevance`.

    ValueError unless it is between 0 and 1.
    """
    if not 0 <= relevance <= 1:
        raise ValueError(f"got relevance={relevance}, expected a number from 0 (distinctive) to 1 (most probable)")
    log_overall = np.log(np.maximum(prevalence @ topic_word, TINY))
    return np.log(np.maximum(topic_word, TINY)) - (1 - relevance) * log_overall


def frex_scores(
    topic_word: Float[np.ndarray, "topic word"], exclusivity: float | int = EXCLUSIVITY
) -> Float[np.ndarray, "topic word"]:
    """The harmonic mean of the ranks of a word's frequency and of its exclusivity in a topic, in (0, 1].

    Exclusivity of w to k is p(w | k) / Σ_j p(w | j), and its weight `exclusivity`; ranks are shares of words of the
    topic that are no higher (Airoldi & Bischof 2016, Eq. 1). ValueError for a weight outside 0 … 1.
    """
    if not 0 <= exclusivity <= 1:
        raise ValueError(f"got exclusivity={exclusivity}, expected a weight from 0 (frequency alone) to 1")
    from scipy.stats import rankdata

    share = topic_word / np.maximum(topic_word.sum(axis=0), TINY)
    frequent, exclusive = (rankdata(values, axis=1) / values.shape[1] for values in (topic_word, share))
    return 1.0 / (exclusivity / exclusive + (1 - exclusivity) / frequent)


def top_words(scores: Float[np.ndarray, "topic word"], vocabulary: Sequence[str], n_words: int) -> list[list[str]]:
    """The words with the highest scores of each topic, first the highest; ties in the order of the vocabulary."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :n_words]
    return [[str(vocabulary[word]) for word in row] for row in order]


def names_of(sketches: Sequence[TopicSketch], namer: Namer | None, n_words: int) -> list[str]:
    """A name for each topic, no two alike: what `namer` says, by default its distinctive words.

    ValueError for a name that is no text or empty.
    """
    names: list[str] = []
    for sketch in sketches:
        name = " ".join(sketch.distinctive[:n_words]) if namer is None else namer(sketch)
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"got {name!r} as the name of topic {sketch.topic}, expected a text that is not empty")
        names.append(name)
    taken: dict[str, int] = {}
    for place, name in enumerate(names):
        taken[name] = taken.get(name, 0) + 1
        names[place] = name if taken[name] == 1 else f"{name} ({taken[name]})"
    return names
