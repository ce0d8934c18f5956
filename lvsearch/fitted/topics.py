"""A fitted model of documents and its topics, for people."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.comparison.similarity import ComponentMembers, word_affinity
from lvsearch.data.corpus import Corpus
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.recommending import recommended
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.word_mixtures import document_proportions
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.topic_model import TopicModel
from lvsearch.pictures.captions import write_caption
from lvsearch.pictures.style import dressed
from lvsearch.topics.anndata_output import require_genes, write_anndata
from lvsearch.topics.coherence import npmi_coherence
from lvsearch.topics.coloured_text import ColouredText, coloured
from lvsearch.topics.coloured_words import ColouredDocument, ColouredWord
from lvsearch.topics.distinctive_words import (
    Namer,
    TopicSketch,
    frex_scores,
    names_of,
    relevance_scores,
    top_words,
)
from lvsearch.topics.prevalence import LEVEL, plot_prevalence, prevalence
from lvsearch.topics.pyldavis_inputs import PyLDAvisInputs, pyldavis_inputs
from lvsearch.topics.references import match_references
from lvsearch.topics.topic_map import draw_topic_map, topic_places
from lvsearch.topics.topic_shares import label_topics, share_correlations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SKETCHED_WORDS, SKETCHED_DOCUMENTS = 20, 5
"""How many words and documents of each topic a namer is shown."""


@dataclass(frozen=True)
class FittedTopics(FittedModel):
    """A model whose documents draw their words from topics, at one size."""

    @property
    def model(self) -> TopicModel:
        """The model with the hyper-parameters of this fit."""
        model = self.estimate.model
        assert isinstance(model, TopicModel)
        return model

    @property
    def alpha(self) -> Float[np.ndarray, " topic"]:
        """The Dirichlet parameters of a document's proportions, (K,). ValueError for models that have none."""
        prior = self.model.proportions_prior(self.estimate.size, self.estimate.natural)
        if prior is None:
            raise ValueError(f"{type(self.model).__name__} has no Dirichlet on document proportions and so no alpha")
        return prior

    def transform(self, data: Any) -> Float[np.ndarray, "docs topic"]:
        """Return the expected topic proportions, (docs, K), rows summing to 1. The data may be raw texts.

        Warns (UserWarning) of new documents without a known word. Their proportions are those of any document before
        its words are read, not a finding about these documents.
        """
        units = self.training.like_this(data)
        empty = np.flatnonzero(units.observations_per_unit == 0)
        if units is not self.training and len(empty):
            many = f"{len(empty):,} of {units.n_units:,} documents hold" if units.n_units > 1 else "the document holds"
            warnings.warn(
                f"{many} no word that the model knows (the first: document {empty[0]}); their proportions are those of "
                "documents before a word is read, no finding: leave them out (see corpus.document_lengths)",
                stacklevel=2,
            )
        return super().transform(units)

    def members(self) -> ComponentMembers:
        """Return the share of each topic in each word of each training document, and how often the word occurs there.

        The share is p(topic | word, document) ∝ share of the topic × p(word | topic). So a topic that every document
        has a little of is recognised by its words. In a model with one topic per document it is the document's share.
        """
        counts = self._corpus.counts
        documents = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        shares = self.proportions[documents]
        if not isinstance(self.model.locals()[self.model.representation].family, IndicatorFamily):
            shares = shares * self._topic_word.T[counts.indices]
            shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        return ComponentMembers(shares, np.asarray(counts.data, np.float64), self.training.nouns.observation)

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "topic other"]:
        """Return Σ √(p q) over words, for each topic of this fit and each of another over the same words."""
        assert isinstance(other, FittedTopics)
        return word_affinity(self._topic_word, other._topic_word)

    def component_names(self) -> tuple[str, ...]:
        """Return `names` in the order of the topics' numbers."""
        return tuple(self.names())

    def topics(self, n_words: int = 10, relevance: float | int = 1.0) -> pd.DataFrame:
        """Return one row per topic, most prevalent first: its share of the training tokens, its words, its label.

        relevance: λ in λ log p(word | topic) + (1 − λ) log [p(word | topic) / p(word)], which orders the words (Sievert
            & Shirley 2014, Eq. 1). 1 gives the most probable words, which topics share. About 0.6 gives words that
            distinguish the topic.

        The label is that of the documents that use the topic most out of proportion, if the corpus has labels.
        ValueError for a relevance outside 0 to 1.
        """
        words = self._topic_word
        top = top_words(relevance_scores(words, self._token_shares, relevance), self._words, n_words)
        frame = pd.DataFrame(
            {"prevalence": self._token_shares, "words": [" ".join(row) for row in top]},
            index=pd.RangeIndex(len(words), name="topic"),
        )
        if self.training.unit_labels is not None:
            lengths = self.training.observations_per_unit
            frame.insert(
                1, "label", label_topics(tuple(self.training.unit_labels), self.proportions * lengths[:, None])
            )
        return frame.sort_values("prevalence", ascending=False, kind="stable")

    @cached_property
    def proportions(self) -> Float[np.ndarray, "docs topic"]:
        """The topic proportions of the training documents, rows summing to 1: `transform(training)`, computed once."""
        return np.asarray(self.transform(self.training), np.float64)

    def names(self, n_words: int = 3, namer: Namer | None = None) -> pd.Series:
        """Return a distinct name for each topic: its most distinctive words by FREX, or what `namer` returns.

        namer: a function of a `TopicSketch` (share, words, distinctive words, documents). ValueError for a name that is
            no text.
        """
        return pd.Series(names_of(self.sketches, namer, n_words), index=pd.RangeIndex(len(self._topic_word)))

    @cached_property
    def sketches(self) -> tuple[TopicSketch, ...]:
        """A summary of each topic for choosing its name, in the order of the topics' numbers.

        It holds the topic's share of the tokens, its most probable and most distinctive words, and the documents with
        most of it.
        """
        probable = top_words(self._topic_word, self._words, SKETCHED_WORDS)
        distinctive = top_words(frex_scores(self._topic_word), self._words, SKETCHED_WORDS)
        names = self._document_names
        return tuple(
            TopicSketch(
                topic,
                float(self._token_shares[topic]),
                tuple(probable[topic]),
                tuple(distinctive[topic]),
                tuple(names[document] for document in self.representative(topic, SKETCHED_DOCUMENTS)["document"]),
            )
            for topic in range(len(probable))
        )

    @property
    def proportions_prior(self) -> Any:
        """The prior on proportions that `lv.inference.document_likelihood` and `document_completion` take for alpha.

        It is `alpha`, or another distribution from which a model's documents draw their proportions. For pLSI it is
        that of the training documents; `lvsearch.inference.likelihood.FoldedIn` refits them instead. ValueError for
        models with neither.
        """
        return document_proportions(self.model, self.estimate, self.training.dataset())

    def recommend(self, unit: Any, n: int = 10, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Return the words (films, items) that one document (user) does not have and is most likely to have next.

        unit: its counts, (1, V), or a corpus of one document. draws: of its proportions and of the topics, for
            intervals.

        The columns are `word`, `probability` that the next new word is this one, and `lower` and `upper`, the 5 % and
        95 % points of that probability under the fit. The interval assumes that the model is true. ValueError for more
        than one unit.
        """
        data = self.training.like_this(unit)
        if data.n_units != 1:
            raise ValueError(f"got {data.n_units} units, expected one: recommend for each by itself")
        words = self.table(self.model.topic_site)
        return recommended(
            self.model,
            self.estimate,
            words.to_numpy(np.float64),
            self.proportions_prior,
            counts_of(data.dataset()),
            np.asarray(words.columns, dtype=object),
            n=n,
            draws=draws,
            seed=seed,
        )

    def match(self, references: pd.DataFrame) -> pd.DataFrame:
        """Return the known distribution over words nearest to each topic, by cosine.

        references: a row for each word, words as the index, and a column for each reference, as signatures of mutations
            are published. Columns and errors are those of `lvsearch.topics.references.match_references`.
        """
        return match_references(self.table(self.model.topic_site), references)

    def coloured(self, text: str, n_topics: int = 4, threshold: float = 0.9) -> ColouredText:
        """Return a text with its words coloured by topic (Blei 2004, Figure 3.7).

        A word is coloured if its most probable topic has at least `threshold`, and is one of the `n_topics` topics that
        the text has most of. ValueError for a text without known words.
        """
        words = self.table(self.model.topic_site)
        vocabulary = tuple(str(word) for word in words.columns)
        top = self.topics().sort_index()["words"].tolist()
        return coloured(
            text, words.to_numpy(np.float64), self.alpha, vocabulary, top, n_topics=n_topics, threshold=threshold
        )

    def representative(self, topic: int, n: int = 5) -> pd.DataFrame:
        """Return the training documents with the largest share of a topic: document (its number), share, tokens.

        If the corpus has them, name, label and the columns of its metadata follow; " (metadata)" is added to a column's
        name that is taken. ValueError for a number that no topic has.
        """
        proportions = self.proportions
        if not 0 <= topic < proportions.shape[1]:
            raise ValueError(f"got topic={topic}, expected one of 0 … {proportions.shape[1] - 1}")
        first = np.argsort(-proportions[:, topic], kind="stable")[:n]
        frame = pd.DataFrame(
            {
                "document": first,
                "share": proportions[first, topic],
                "tokens": self.training.observations_per_unit[first],
            }
        )
        if self._corpus.document_names is not None:
            frame["name"] = [self._corpus.document_names[row] for row in first]
        if self.training.unit_labels is not None:
            frame["label"] = [self.training.unit_labels[row] for row in first]
        known = self._metadata
        if known is None:
            return frame
        chosen = known.iloc[first].reset_index(drop=True)
        return frame.join(chosen.rename(columns={name: f"{name} (metadata)" for name in frame.columns}))

    def document(self, number: int) -> ColouredDocument:
        """Return a training document with each word coloured by the topic that it most probably came from.

        p(topic | word, document) ∝ share of the topic × p(word | topic). ValueError for a number that no document has.
        """
        corpus = self._corpus
        if not 0 <= number < corpus.n_documents:
            raise ValueError(f"got document {number}, expected one of 0 … {corpus.n_documents - 1}")
        span = slice(corpus.counts.indptr[number], corpus.counts.indptr[number + 1])
        words, counts = corpus.counts.indices[span], np.asarray(corpus.counts.data[span], np.int64)
        shares, names = self.proportions[number], self.names()
        weight = shares[:, None] * self._topic_word[:, words]
        posterior = weight / np.maximum(weight.sum(axis=0), 1e-300)
        topic = posterior.argmax(axis=0)
        order = np.lexsort((-counts, topic, -shares[topic]))
        coloured = tuple(
            ColouredWord(self._words[words[i]], int(counts[i]), int(topic[i]), float(posterior[topic[i], i]))
            for i in order
        )
        return ColouredDocument(
            self._document_names[number], coloured, dict(enumerate(shares.tolist())), dict(enumerate(names))
        )

    def coherence(self, n_words: int = 10, reference: Any = None) -> pd.Series:
        """Return the coherence (NPMI) of each topic, −1 to 1: whether its most probable words occur in the same
        documents.

        reference: the documents to count in, over the same words; by default the training data. Other documents are the
            better check. ValueError for fewer than two words, and for documents over other words.
        """
        corpus = self.training if reference is None else self.training.like_this(reference)
        assert isinstance(corpus, Corpus)
        top = np.argsort(-self._topic_word, axis=1, kind="stable")[:, :n_words]
        return pd.Series(npmi_coherence(top, corpus.counts), index=pd.RangeIndex(len(top), name="topic"), name="npmi")

    def correlations(self) -> pd.DataFrame:
        """Return the correlation of each two topics' shares over the training documents: positive if found together.

        Shares sum to 1, so unrelated topics are slightly negative, about −1 / (K − 1). NaN for a topic with the same
        share everywhere.
        """
        return share_correlations(self.proportions)

    def prevalence(self, by: Any = None, *, bins: int = 5, level: float = LEVEL, seed: int = 0) -> pd.DataFrame:
        """Return the mean share of each topic in groups of the training documents, with intervals over documents.

        by: a value for each document, or the name of a column of the corpus' metadata; by default the documents'
            labels. ValueError if there is nothing to group by. Columns and other errors are those of
            `lvsearch.topics.prevalence.prevalence`.
        """
        return prevalence(self.proportions, self._covariate(by), bins=bins, level=level, seed=seed)

    def plot_prevalence(self, by: Any = None, *, bins: int = 5, ax: "Axes | None" = None) -> "Axes":
        """Draw `prevalence` for the topics that differ most between groups, and return the axes."""
        return plot_prevalence(self.prevalence(by, bins=bins), self.names(), ax)

    def topic_map(self) -> pd.DataFrame:
        """Return places of topics in a plane, near each other if they use the same words: columns x, y, prevalence,
        name.

        The method is classical scaling of Jensen–Shannon distances. `.attrs["shown"]` is the share of squared distances
        that the plane shows.
        """
        places, shown = topic_places(self._topic_word)
        frame = pd.DataFrame(places, columns=["x", "y"], index=pd.RangeIndex(len(places), name="topic"))
        frame["prevalence"], frame["name"] = self._token_shares, self.names().to_numpy()
        frame.attrs["shown"] = shown
        return frame

    def plot_topic_map(self, ax: "Axes | None" = None) -> "Axes":
        """Draw `topic_map`, with areas that are shares of the tokens, and return the axes."""
        axes, table = dressed(ax), self.topic_map()
        write_caption(axes, draw_topic_map(table, table.attrs["shown"], axes))
        return axes

    def to_anndata(self, data: Any, *, layer: str | None = None, posterior: pd.DataFrame | None = None) -> None:
        """Write the topics into an `AnnData` of cells.

        data: the one that the training corpus was made of (`Corpus.from_anndata`), or one of other cells over the same
            genes, with counts in `layer`.
        posterior: `result.posterior()`, whose sizes and probabilities are written too.

        Shares go into `.obsm["X_lvsearch"]`, p(gene | topic) into `.varm["lvsearch"]`. The model, the number of topics
        and the interval of the fit's log evidence (nats) go into `.uns["lvsearch"]`. ValueError for other genes, and as
        `Corpus.from_anndata`.
        """
        require_genes(data, self._words)
        cells = Corpus.from_anndata(data, layer=layer)
        write_anndata(
            data,
            self.proportions if cells.document_names == self._corpus.document_names else self.transform(cells),
            self._topic_word,
            {
                "model": self.model.describe(),
                "topics": self.estimate.size[0],
                "log_evidence": [self.evidence.lower, self.evidence.upper],
            },
            posterior,
        )

    def to_pyldavis(self) -> PyLDAvisInputs:
        """Return the arguments of `pyLDAvis.prepare`: `pyLDAvis.prepare(**fitted.to_pyldavis()._asdict())`.

        Empty documents are left out, since pyLDAvis refuses them.
        """
        return pyldavis_inputs(self._topic_word, self.proportions, self._corpus)

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _corpus(self) -> Corpus:
        assert isinstance(self.training, Corpus)  # what a model of documents is trained on
        return self.training

    @cached_property
    def _topic_word(self) -> Float[np.ndarray, "topic word"]:
        return self.table(self.model.topic_site).to_numpy(np.float64)

    @property
    def _words(self) -> tuple[str, ...]:
        return self._corpus.vocabulary

    @cached_property
    def _token_shares(self) -> Float[np.ndarray, " topic"]:
        """The share of each topic in the training tokens."""
        lengths = self.training.observations_per_unit
        return lengths @ self.proportions / max(int(lengths.sum()), 1)

    @property
    def _document_names(self) -> tuple[str, ...]:
        names = self._corpus.document_names
        return tuple(f"document {number}" for number in range(len(self._corpus))) if names is None else tuple(names)

    @property
    def _metadata(self) -> pd.DataFrame | None:
        known = getattr(self.training, "metadata", None)
        return known if isinstance(known, pd.DataFrame) else None

    def _covariate(self, by: Any) -> Any:
        """Return the value of each document by which to group.

        Raises ValueError for an unknown name, or without labels.
        """
        if by is None:
            if self.training.unit_labels is None:
                raise ValueError("got no `by`, and the corpus has no labels: pass a value for each document")
            return tuple(self.training.unit_labels)
        if not isinstance(by, str):
            return by
        known = self._metadata
        if known is None or by not in known:
            columns = "none" if known is None else ", ".join(map(repr, known))
            raise ValueError(
                f"got by={by!r}, expected a value for each document or a column of its metadata ({columns})"
            )
        return known[by]
