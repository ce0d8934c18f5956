"""Topics for people, and how people arrange them: given names, merged and hidden topics.

`ReadableTopics` makes everything that is read off the words of topics and their shares in documents: tables, names,
documents, pictures. Fits of topic models have it (`FittedTopics`), and so have topics in an arrangement of one's own
(`ArrangedTopics`), which an `Arrangement` describes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from lvsearch.data.corpus import Corpus
from lvsearch.files.untrusted_files import as_declared
from lvsearch.models.plain_arguments import as_list, checked_seed, shortened_repr, whole_number
from lvsearch.pictures.style import draw_captioned
from lvsearch.topics.coloured_text import ColouredDocument, ColouredWord
from lvsearch.topics.distinctive_words import (
    Namer,
    TopicSketch,
    distinct_names,
    frex_scores,
    names_of,
    relevance_scores,
    top_words,
)
from lvsearch.topics.topic_map import draw_topic_map, topic_places
from lvsearch.topics.topic_scores import npmi_coherence
from lvsearch.topics.topic_shares import LEVEL, label_topics, plot_prevalence, prevalence, share_correlations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SKETCHED_WORDS, SKETCHED_DOCUMENTS = 20, 5
"""The numbers of words and of documents of each topic that a function which chooses its name is given."""


# ── arrangements ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Arrangement:
    """The arrangement in which the topics of a fit are shown: which are one, which are hidden, and their names.

    | field | meaning |
    |---|---|
    | `n_topics` | the number of topics of the fit |
    | `groups` | the topics that are shown, in the order of their numbers: the topics of the fit that each is made of |
    | `names` | (number, name) of the topics that were given a name, in the order of their numbers |

    The number of a topic that is shown is the first number of its group. So numbers stay those of the fit, and a number
    of a merged or hidden topic is not used again.
    """

    n_topics: int
    groups: tuple[tuple[int, ...], ...]
    names: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for groups and names that do not belong to `n_topics` topics, as a damaged file has them."""
        members, numbers = [member for group in self.groups for member in group], self.numbers
        if not members or len(set(members)) < len(members) or not set(members) <= set(range(self.n_topics)):
            raise ValueError(f"got groups={self.groups}, expected distinct topics of 0 … {self.n_topics - 1}")
        if list(numbers) != sorted(numbers) or not {number for number, _ in self.names} <= set(numbers):
            raise ValueError(
                f"got names={self.names} of the topics {numbers}, expected topics in order, and their names"
            )

    @classmethod
    def of_all(cls, n_topics: int) -> "Arrangement":
        """Return the arrangement in which every topic of a fit is shown by itself, without a given name."""
        return cls(n_topics, tuple((topic,) for topic in range(n_topics)))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the topics that are shown, in order."""
        return tuple(group[0] for group in self.groups)

    @property
    def hidden(self) -> tuple[int, ...]:
        """The numbers of the topics of the fit that are not shown, in order."""
        shown = {member for group in self.groups for member in group}
        return tuple(topic for topic in range(self.n_topics) if topic not in shown)

    @property
    def every_group(self) -> tuple[tuple[int, ...], ...]:
        """The groups of the topics that are shown, and after them a group for each hidden topic."""
        return (*self.groups, *((topic,) for topic in self.hidden))

    def renamed(self, names: Mapping[int, str]) -> "Arrangement":
        """Return the arrangement with further names, {number of a topic that is shown: name}.

        Raises ValueError for anything but a mapping, a topic that is not shown, a name that is no text or empty, and
        one name for two topics.
        """
        if not isinstance(names, Mapping):
            raise ValueError(f"got {shortened_repr(names)}, expected names by the number of the topic: {{0: 'sport'}}")
        given = dict(self.names)
        for topic, name in names.items():
            number = self._number(topic)
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"got {name!r} as the name of topic {number}, expected a text that is not empty")
            given[number] = name
        by_name: dict[str, int] = {}
        for topic, name in sorted(given.items()):
            if name in by_name:
                raise ValueError(
                    f"got the name {name!r} for the topics {by_name[name]} and {topic}, expected distinct names; if "
                    f"they are one topic to you, merge them: merged([({by_name[name]}, {topic})])"
                )
            by_name[name] = topic
        return replace(self, names=tuple(sorted(given.items())))

    def merged(self, groups: Iterable[Sequence[int]]) -> "Arrangement":
        """Return the arrangement in which the topics of each group are one, under the first number of the group.

        groups: numbers of topics that are shown, two or more in each group, and none in two groups. The name that the
            first topic was given stays; names given to the others go.

        Raises ValueError for other groups.
        """
        found = [self._shown("a group", group) for group in as_list("groups", groups)]
        taken = [number for group in found for number in group]
        twice = next((number for number in taken if taken.count(number) > 1), None)
        short = next((group for group in found if len(group) < 2), None)
        if twice is not None or short is not None or not found:
            got = f"topic {twice} twice" if twice is not None else f"the group {short}" if found else "no group"
            raise ValueError(
                f"got {got}, expected groups of two or more topics, none in two of them: [(2, 5), (1, 7, 8)]"
            )
        members = {group[0]: group for group in self.groups}
        for first, *others in found:
            members[first] = (*members[first], *(each for other in others for each in members.pop(other)))
        return self._with(members)

    def without(self, topics: Iterable[int]) -> "Arrangement":
        """Return the arrangement in which the given topics are hidden.

        topics: numbers of topics that are shown, not all of them.

        Raises ValueError for other numbers.
        """
        hidden = self._shown("topics", topics)
        members = {group[0]: group for group in self.groups if group[0] not in hidden}
        if not members:
            raise ValueError(f"got all {len(self.groups)} topics to hide, expected at least one to stay")
        return self._with(members)

    def shares(self, proportions: Float[np.ndarray, "docs topic"]) -> Float[np.ndarray, "docs shown"]:
        """Return the share of each topic that is shown, (documents, topics shown): shares of merged topics add up.

        proportions: the share of each topic of the fit in each document.
        """
        return np.stack([proportions[:, list(group)].sum(axis=1) for group in self.groups], axis=1)

    def words(
        self, topic_word: Float[np.ndarray, "topic word"], token_shares: Float[np.ndarray, " topic"]
    ) -> Float[np.ndarray, "every word"]:
        """Return p(word | topic) of the topics that are shown, then of the hidden ones, (topics, words).

        A merged topic has the mean of its members' distributions, weighted by their tokens.

        topic_word: p(word | topic) of the fit. token_shares: the share of each topic of the fit in the tokens.
        """
        rows = []
        for group in self.every_group:
            members = list(group)
            weight = token_shares[members] + 1e-300  # topics without a token count alike
            rows.append(weight @ topic_word[members] / weight.sum() if len(members) > 1 else topic_word[members[0]])
        return np.stack(rows)

    def describe(self) -> str:
        """Return the arrangement in a few words, such as "7 of 12 topics: 2 hidden, 5 merged into 2, 1 renamed"."""
        merged = [group for group in self.groups if len(group) > 1]
        told = [
            *([f"{len(self.hidden)} hidden"] if self.hidden else []),
            *([f"{sum(map(len, merged))} merged into {len(merged)}"] if merged else []),
            *([f"{len(self.names)} renamed"] if self.names else []),
        ]
        return f"{len(self.groups)} of {self.n_topics} topics" + (f": {', '.join(told)}" if told else "")

    def to_json(self) -> dict[str, Any]:
        """Return the arrangement as JSON data."""
        return {"n_topics": self.n_topics, "groups": self.groups, "names": self.names}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Arrangement":
        """Return the arrangement that `to_json` encoded. Raises KeyError or TypeError for other data."""
        groups, names = tuple(map(tuple, entry["groups"])), tuple(map(tuple, entry["names"]))
        try:
            return as_declared(cls(entry["n_topics"], groups, names))
        except ValueError as error:
            raise TypeError(str(error)) from error

    def _with(self, members: Mapping[int, tuple[int, ...]]) -> "Arrangement":
        """Return the arrangement of these topics, {number: topics of the fit}; names of others are dropped."""
        groups = tuple(members[number] for number in sorted(members))
        return replace(self, groups=groups, names=tuple(each for each in self.names if each[0] in members))

    def _shown(self, name: str, topics: Any) -> tuple[int, ...]:
        """Return numbers of topics as whole numbers of topics that are shown. Raises ValueError for anything else.

        name: the name of the argument, for the message.
        """
        return tuple(map(self._number, as_list(name, topics)))

    def _number(self, topic: Any) -> int:
        """Return the number of a topic that is shown. Raises ValueError for one that is hidden, and other values."""
        number = whole_number("topic", topic)
        if number in self.hidden:
            raise ValueError(f"got topic={number}, which is hidden here, expected one that is shown: {self.numbers}")
        return self.numbers[place_of_topic(number, self.numbers)]


def place_of_topic(topic: Any, numbers: Sequence[int]) -> int:
    """Return the place of a topic among those that are shown.

    topic: its number. numbers: the numbers of the topics that are shown, in order.

    Raises ValueError for a number that none of them has.
    """
    topic = whole_number("topic", topic)
    if topic not in numbers:
        whole = list(numbers) == list(range(len(numbers)))
        expected = f"0 … {len(numbers) - 1}" if whole else ", ".join(map(str, numbers))
        raise ValueError(f"got topic={topic}, expected one of {expected}")
    return list(numbers).index(topic)


# ── what is read off topics ─────────────────────────────────────────────────────────────────────────────────────────


class ReadableTopics(ABC):
    """Topics that people read: tables, names, documents and pictures of their words and of their shares in documents.

    In shapes, `topic` stands for the topics that are shown, `word` for the vocabulary, and `docs` for the documents
    that the model was fitted to. A topic is called by its number, which is no place in an array where topics are merged
    or hidden: `topic_numbers` has the number of each row and column.
    """

    training: Any

    @property
    @abstractmethod
    def topic_numbers(self) -> tuple[int, ...]:
        """The number of each topic that is shown, in the order of the columns of `proportions`."""

    @property
    @abstractmethod
    def proportions(self) -> Float[np.ndarray, "docs topic"]:
        """The expected share of each topic in each training document, (documents, topics)."""

    def component_names(self) -> tuple[str, ...]:
        """Return a distinct name for each topic that is shown, in the order of `topic_numbers`; `names` makes them."""
        return tuple(self.names())

    def topics(self, n_words: int = 10, relevance: float | int = 1.0) -> pd.DataFrame:
        """Return a table of the topics, one row each, most prevalent first.

        n_words: the number of words shown for each topic.
        relevance: λ in λ log p(word | topic) + (1 − λ) log [p(word | topic) / p(word)], which orders the words (Sievert
            & Shirley 2014, Eq. 1). 1 gives the most probable words, which topics share. About 0.6 gives words that
            distinguish the topic.

        Columns are `prevalence` (the topic's share of the training tokens) and `words` (joined by spaces). If the
        corpus has labels, `label` is the label whose documents use the topic most out of proportion. If topics were
        given names, `name` is the name of each.

        Raises ValueError for a relevance outside 0 to 1, and for fewer than one word.
        """
        n_words = whole_number("n_words", n_words, least=1)
        scores = relevance_scores(self._every_topic_word, self._every_token_share, relevance)[: len(self._topic_word)]
        top = top_words(scores, self._words, n_words)
        frame = pd.DataFrame(
            {"prevalence": self._token_shares, "words": [" ".join(row) for row in top]},
            index=self._topic_index("topic"),
        )
        if self._corpus.document_labels is not None:
            lengths = self._corpus.document_lengths
            frame.insert(
                1, "label", label_topics(tuple(self._corpus.document_labels), self.proportions * lengths[:, None])
            )
        if self._given_names:
            frame.insert(0, "name", self.names())
        return frame.sort_values("prevalence", ascending=False, kind="stable")

    def names(self, n_words: int = 3, namer: Namer | None = None) -> pd.Series:
        """Return a distinct name for each topic as a series (topics,), by default its most distinctive words.

        Words are ranked by FREX, a mean of how frequent and how exclusive a word is in the topic.

        n_words: the number of words in a name.
        namer: a function that returns a name for a `TopicSketch` (share, words, distinctive words, documents); None
            for the distinctive words.

        Topics that were given a name (`renamed`) have that one.

        Raises ValueError for a name that is no text, and for fewer than one word.
        """
        n_words = whole_number("n_words", n_words, least=1)
        if namer is None:  # only a namer needs the documents of each topic, for which inference runs
            names = distinct_names(self._distinctive_words, n_words)
        else:
            names = names_of(self.sketches, namer, n_words)
        given = self._given_names
        chosen = [given.get(topic, name) for topic, name in zip(self.topic_numbers, names, strict=True)]
        return pd.Series(chosen, index=self._topic_index())

    def topic_words(self, n_words: int = 30) -> pd.DataFrame:
        """Return the most probable words of each topic as a table with a row per topic and rank.

        n_words: the number of words of each topic.

        Columns are `topic`, `rank` (from 1), `word` and `probability`, p(word | topic).

        Raises ValueError for fewer than one word.
        """
        # fits have their parameters in single precision, and more digits would only look more exact
        values, words = self._topic_word.astype(np.float32), np.asarray(self._words, dtype=object)
        top = np.argsort(-values, axis=1, kind="stable")[:, : whole_number("n_words", n_words, least=1)]
        n_topics, n_ranks = top.shape
        return pd.DataFrame(
            {
                "topic": np.repeat(np.asarray(self.topic_numbers, np.int64), n_ranks),
                "rank": np.tile(np.arange(1, n_ranks + 1), n_topics),
                "word": words[top].ravel(),
                "probability": np.take_along_axis(values, top, axis=1).ravel(),
            }
        )

    @cached_property
    def sketches(self) -> tuple[TopicSketch, ...]:
        """A summary of each topic from which a name can be chosen, in the order of the topics' numbers.

        A summary holds the topic's share of the training tokens, and its 20 most probable and 20 most distinctive
        words. It also names the 5 documents with the largest share of the topic.
        """
        probable = top_words(self._topic_word, self._words, SKETCHED_WORDS)
        distinctive, names = self._distinctive_words, self._document_names
        return tuple(
            TopicSketch(
                topic,
                float(self._token_shares[place]),
                tuple(probable[place]),
                tuple(distinctive[place]),
                tuple(names[document] for document in self.representative(topic, SKETCHED_DOCUMENTS)["document"]),
            )
            for place, topic in enumerate(self.topic_numbers)
        )

    def representative(self, topic: int, n: int = 5) -> pd.DataFrame:
        """Return a table of the `n` training documents with the largest share of a topic, the largest share first.

        topic: the number of the topic.

        Columns are `document` (its number), `share` (of the topic in the document) and `tokens` (its length). If the
        corpus has them, `name`, `label` and the columns of its metadata follow. A metadata column whose name is taken
        gets " (metadata)" added to its name.

        Raises ValueError for a number that no topic has, and for fewer than one document.
        """
        n, topic = whole_number("n", n, least=1), whole_number("topic", topic)
        shares = self.proportions[:, place_of_topic(topic, self.topic_numbers)]
        first = np.argsort(-shares, kind="stable")[:n]
        frame = pd.DataFrame(
            {
                "document": first,
                "share": shares[first],
                "tokens": self._corpus.document_lengths[first],
            }
        )
        if self._corpus.document_names is not None:
            frame["name"] = [self._corpus.document_names[row] for row in first]
        if self._corpus.document_labels is not None:
            frame["label"] = [self._corpus.document_labels[row] for row in first]
        known = self._corpus.metadata
        if known is None:
            return frame
        chosen = known.iloc[first].reset_index(drop=True)
        return frame.join(chosen.rename(columns={name: f"{name} (metadata)" for name in frame.columns}))

    def document(self, number: int) -> ColouredDocument:
        """Return a training document as a bag of words, each coloured by the topic that it most probably came from.

        The probability is p(topic | word, document) ∝ share of the topic in the document × p(word | topic). Words that
        most probably came from a hidden topic are left out.

        number: the number of the document in the training corpus, from 0.

        Raises ValueError for a number that no document has.
        """
        corpus, number = self._corpus, whole_number("number", number)
        if not 0 <= number < corpus.n_documents:
            raise ValueError(f"got document {number}, expected one of 0 … {corpus.n_documents - 1}")
        span = slice(corpus.counts.indptr[number], corpus.counts.indptr[number + 1])
        words, counts = corpus.counts.indices[span], np.asarray(corpus.counts.data[span], np.int64)
        shares, numbers = self.proportions[number], self.topic_numbers
        weight = self._word_weights(number, words)
        posterior = weight / np.maximum(weight.sum(axis=0), 1e-300)
        place = posterior.argmax(axis=0)
        shown = np.flatnonzero(place < len(numbers))  # the others come from topics that are hidden
        order = shown[np.lexsort((-counts[shown], place[shown], -shares[place[shown]]))]
        coloured = tuple(
            ColouredWord(self._words[words[i]], int(counts[i]), numbers[place[i]], float(posterior[place[i], i]))
            for i in order
        )
        return ColouredDocument(
            self._document_names[number],
            coloured,
            dict(zip(numbers, shares.tolist(), strict=True)),
            dict(zip(numbers, self.names(), strict=True)),
        )

    def coherence(self, n_words: int = 10, reference: Any = None) -> pd.Series:
        """Return the coherence (NPMI) of each topic, from −1 to 1, as a series (topics,).

        A topic is coherent if its most probable words tend to occur in the same documents.

        n_words: the number of most probable words compared, at least two.
        reference: the documents to count in, over the same vocabulary; by default the training data. Other documents
            are the better check.

        Raises ValueError for fewer than two words, and for documents over other words.
        """
        n_words = whole_number("n_words", n_words, least=2)
        corpus = self._corpus if reference is None else self._corpus.like_this(reference)
        top = np.argsort(-self._topic_word, axis=1, kind="stable")[:, :n_words]
        return pd.Series(npmi_coherence(top, corpus.counts), index=self._topic_index("topic"), name="npmi")

    def correlations(self) -> pd.DataFrame:
        """Return the correlation of each two topics' shares over the training documents, as a table (topics, topics).

        It is positive for topics that occur together. Shares sum to 1, so unrelated topics are slightly negative, about
        −1 / (K − 1) for K topics. It is NaN for a topic with the same share in every document.
        """
        table = share_correlations(self.proportions)
        return table.set_axis(self._topic_index(), axis=0).set_axis(self._topic_index(), axis=1)

    def prevalence(
        self,
        by: Any = None,
        *,
        bins: int = 5,
        period: str | None = None,
        level: float = LEVEL,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Return the mean share of each topic in groups of the training documents, with bootstrap intervals.

        by: a value for each document, or the name of a column of the corpus' metadata; by default the documents'
            labels.
        bins: the number of groups of equal size into which numbers and dates with many values are divided.
        period: "month", "quarter" or "year", for dates or their ISO texts: a group for each such period of the calendar
            from the first to the last, also for periods without documents, whose means are NaN. None uses `bins`.
        level: the probability with which an interval holds the mean of the population of documents.

        Returns a row per group and topic, with columns `group`, `topic`, `mean`, `lower`, `upper` and `documents`.

        Raises ValueError if there is nothing to group by, for values that are all missing or too few, for a series
        whose index has the documents' names in another order, and for a level outside (0, 1). With a period also for
        values that are no dates.
        """
        bins, seed = whole_number("bins", bins, least=1), checked_seed(seed)
        groups = self._covariate(by)
        table = prevalence(self.proportions, groups, bins=bins, period=period, level=level, seed=seed)
        table["topic"] = np.asarray(self.topic_numbers, np.int64)[table["topic"]]
        return table

    def plot_prevalence(
        self, by: Any = None, *, bins: int = 5, period: str | None = None, ax: "Axes | None" = None
    ) -> "Axes":
        """Draw the mean share of the topics that differ most between groups of documents, and return the axes.

        by: a value for each document, or the name of a column of the corpus' metadata; by default the documents'
            labels.
        bins: the number of groups into which numbers and dates with many values are divided.
        period: "month", "quarter" or "year" of dates, as for `prevalence`; lines are broken where no document is.
        ax: the axes to draw on; None for a new figure.
        """
        return plot_prevalence(self.prevalence(by, bins=bins, period=period), self.names(), ax)

    def topic_map(self) -> pd.DataFrame:
        """Return coordinates of the topics in a plane, where topics with similar words are near each other.

        Coordinates come from classical multidimensional scaling of Jensen–Shannon distances.

        Returns a row per topic, with columns `x`, `y`, `prevalence` (share of the training tokens) and `name`.
        `.attrs["shown"]` is the share of the squared distances that the plane shows.
        """
        places, shown = topic_places(self._topic_word)
        frame = pd.DataFrame(places, columns=["x", "y"], index=self._topic_index("topic"))
        frame["prevalence"], frame["name"] = self._token_shares, self.names().to_numpy()
        frame.attrs["shown"] = shown
        return frame

    def plot_topic_map(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the topics as discs in a plane, near each other if they use similar words, and return the axes.

        The area of a disc is the topic's share of the training tokens. `topic_map` has the coordinates.

        ax: the axes to draw on; None for a new figure.
        """
        table = self.topic_map()
        return draw_captioned(ax, partial(draw_topic_map, table, table.attrs["shown"]))

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def _corpus(self) -> Corpus:
        """The training documents."""

    @property
    @abstractmethod
    def _topic_word(self) -> Float[np.ndarray, "topic word"]:
        """The posterior mean of p(word | topic), (topics, words of the vocabulary); rows sum to 1."""

    @property
    @abstractmethod
    def _every_topic_word(self) -> Float[np.ndarray, "every word"]:
        """p(word | topic) of the topics that are shown and then of hidden ones, which make words less distinctive."""

    @property
    @abstractmethod
    def _every_token_share(self) -> Float[np.ndarray, " every"]:
        """The share of each topic in the training tokens, of those that are shown and then of hidden ones."""

    @property
    @abstractmethod
    def _given_names(self) -> Mapping[int, str]:
        """The names that topics were given, by their numbers."""

    @abstractmethod
    def _word_weights(self, number: int, words: Int[np.ndarray, " held"]) -> Float[np.ndarray, "every held"]:
        """Return p(topic, word | document) of words of a training document, up to a factor, hidden topics last.

        number: the number of the document. words: the columns of the words in the vocabulary.
        """

    def _topic_index(self, name: str | None = None) -> pd.Index:
        """Return the numbers of the topics as the index of a table, whose name is `name`."""
        numbers = self.topic_numbers
        if list(numbers) == list(range(len(numbers))):
            return pd.RangeIndex(len(numbers), name=name)
        return pd.Index(numbers, name=name)

    @cached_property
    def _distinctive_words(self) -> list[list[str]]:
        """The 20 most distinctive words of each topic by FREX, the most distinctive first."""
        return top_words(frex_scores(self._every_topic_word)[: len(self._topic_word)], self._words, SKETCHED_WORDS)

    @property
    def _words(self) -> tuple[str, ...]:
        """The vocabulary, in the order of the columns of the counts."""
        return self._corpus.vocabulary

    @cached_property
    def _token_shares(self) -> Float[np.ndarray, " topic"]:
        """The expected share of each topic in the training tokens, (topics,); the shares sum to 1."""
        lengths = self._corpus.document_lengths
        return lengths @ self.proportions / max(int(lengths.sum()), 1)

    @property
    def _document_names(self) -> tuple[str, ...]:
        """The names of the training documents, or "document 0", … if they have none."""
        names = self._corpus.document_names
        return tuple(f"document {number}" for number in range(len(self._corpus))) if names is None else tuple(names)

    def _covariate(self, by: Any) -> Any:
        """Return the value of each training document by which documents are grouped.

        by: None for the documents' labels, a column of the metadata, or values, which are returned as they are.

        Raises ValueError for an unknown name, for None without labels, and for a series whose index has the documents'
        names in another order.
        """
        if by is None:
            if self._corpus.document_labels is None:
                raise ValueError("got no `by`, and the corpus has no labels: pass a value for each document")
            return tuple(self._corpus.document_labels)
        names = self._corpus.document_names
        if isinstance(by, pd.Series) and names is not None:
            given = tuple(map(str, by.index))
            if given != names and sorted(given) == sorted(names):
                raise ValueError(
                    f"got values of the documents in another order: value 0 is of document {given[0]!r}, expected "
                    f"{names[0]!r}; bring them into the order of corpus.document_names, or pass by.to_numpy() if they "
                    "are in it"
                )
        if not isinstance(by, str):
            return by
        known = self._corpus.metadata
        if known is None or by not in known:
            columns = "none" if known is None else ", ".join(map(repr, known))
            raise ValueError(
                f"got by={by!r}, expected a value for each document or a column of its metadata ({columns})"
            )
        return known[by]
