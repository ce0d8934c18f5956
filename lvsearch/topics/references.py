"""Match topics to known distributions over the same words, such as published topics or mutational signatures."""

import numpy as np
import pandas as pd


def match_references(topic_word: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Match each topic to the known distribution (reference) that it is most similar to, by the cosine.

    Pairs are one to one, with the greatest total of cosines.

    topic_word: (topic, word), a row for each topic.
    references: (word, reference), a row for each word and a column for each reference, as COSMIC publishes signatures.
        Words may be in any order.

    The result has a row for each topic:

    | column | meaning |
    |---|---|
    | `reference` | the partner: one to one; None for topics beyond the number of references |
    | `cosine` | of topic and partner, 0 to 1; NaN without one. Above .9 they are usually called the same |
    | `nearest`, `nearest_cosine` | the most similar of all references, which another topic may have as its partner |

    Raises ValueError for references that lack a word of the topics or have one twice, have no column, or have a column
    that is all zero, negative or not finite.
    """
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    known = _checked_references(topic_word, references)
    topics = topic_word.to_numpy(np.float64)
    topics = topics / np.linalg.norm(topics, axis=1, keepdims=True)
    cosine = topics @ (known / np.linalg.norm(known, axis=0))
    rows, columns = linear_sum_assignment(-cosine)
    partner, alike = np.full(len(topics), None, dtype=object), np.full(len(topics), np.nan)
    names = np.asarray(references.columns, dtype=object)
    partner[rows], alike[rows] = names[columns], cosine[rows, columns]
    return pd.DataFrame(
        {
            "reference": pd.Series(
                partner, topic_word.index, dtype=object
            ),  # without dtype=object None would become NaN
            "cosine": alike,
            "nearest": names[cosine.argmax(1)],
            "nearest_cosine": cosine.max(1),
        },
        index=topic_word.index,
    )


def _checked_references(topic_word: pd.DataFrame, references: pd.DataFrame) -> np.ndarray:
    """Return the references as an array (word, reference), with words in the topics' order.

    Raises ValueError for references that lack a word of the topics or have one twice, have no column, or have a column
    that is all zero, negative or not finite.
    """
    if references.shape[1] == 0:
        raise ValueError("got references without a column, expected one for each reference, a row for each word")
    if not references.index.is_unique:
        raise ValueError(f"got the word {references.index[references.index.duplicated()][0]!r} twice in the references")
    missing = topic_word.columns.difference(references.index)
    if len(missing):
        raise ValueError(
            f"got references without {len(missing):,} of {topic_word.shape[1]:,} words, such as {missing[0]!r}; "
            "expected a row for each word, words as the index: pandas.read_csv(…, index_col=0)"
        )
    known = references.loc[topic_word.columns].to_numpy(np.float64)
    bad = ~np.isfinite(known).all(0) | (known < 0).any(0) | ~(known > 0).any(0)
    if bad.any():
        raise ValueError(
            f"got the reference {references.columns[bad.argmax()]!r} with values that are negative, not finite or all "
            "zero; expected weights of words"
        )
    return known
