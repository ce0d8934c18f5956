"""The class `FittedTopics`: a fitted topic model, with topics, document proportions, scores, tables and pictures."""

import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.sparse import csr_array

from lvsearch.comparison.alignment import match_references
from lvsearch.comparison.similarity import ComponentMembers, word_affinity
from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.fitted.model import FittedModel, comparable_fit
from lvsearch.fitted.recommending import recommended
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.likelihood.proportions import Proportions, draw_documents
from lvsearch.inference.word_mixtures import document_proportions, with_more_words
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.plain_arguments import checked_seed, real_number, shortened_repr, whole_number
from lvsearch.models.topic_model import TopicModel
from lvsearch.pictures.style import draw_captioned
from lvsearch.texts.analyzer import Analyzer
from lvsearch.texts.counting import is_words
from lvsearch.topics.coloured_text import ColouredDocument, ColouredText, ColouredWord, colour_text
from lvsearch.topics.distinctive_words import (
    Namer,
    TopicSketch,
    distinct_names,
    frex_scores,
    names_of,
    relevance_scores,
    top_words,
)
from lvsearch.topics.other_programs import PyLDAvisInputs, pyldavis_inputs, require_genes, write_anndata
from lvsearch.topics.topic_map import draw_topic_map, topic_places
from lvsearch.topics.topic_scores import npmi_coherence
from lvsearch.topics.topic_shares import LEVEL, label_topics, plot_prevalence, prevalence, share_correlations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Topics = TypeVar("Topics", bound="FittedTopics")
SKETCHED_WORDS, SKETCHED_DOCUMENTS = 20, 5
"""How many words and documents of each topic are passed to a function that chooses the topic's name."""


@dataclass(frozen=True, repr=False)
class FittedTopics(FittedModel):
    """A topic model, fitted at one size (number of topics): documents draw their words from topics.

    In shapes, `topic` stands for the number of topics K, `word` for the vocabulary, and `docs` for the documents.
    """

    _component_noun: ClassVar[str] = "topic"
    _useful_calls: ClassVar[tuple[str, ...]] = (
        "topics()",
        "transform(new)",
        "prevalence(by=…)",
        "representative(0)",
        "plot_topic_map()",
        "coherence()",
    )

    @property
    def model(self) -> TopicModel:
        """The model (its type and hyper-parameters) that was fitted, without its fitted parameters."""
        model = self.estimate.model
        assert isinstance(model, TopicModel)
        return model

    @property
    def alpha(self) -> Float[np.ndarray, " topic"]:
        """The parameters of the Dirichlet prior on a document's topic proportions, (topics,).

        Raises ValueError for models without this prior.
        """
        prior = self.model.proportions_prior(self.estimate.size, self.estimate.natural)
        if prior is None:
            raise ValueError(f"{type(self.model).__name__} has no Dirichlet on document proportions and so no alpha")
        return prior

    def transform(self, data: Any) -> Float[np.ndarray, "docs topic"]:
        """Return the expected topic proportions of each document, (documents, topics); rows sum to 1.

        data: new or training documents, as a `Corpus`, a matrix of counts, or raw texts.

        Warns (UserWarning) of new documents without a known word. They get the proportions expected before any word is
        read, which say nothing about these documents.
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
        """Return the share of each topic in each distinct word of each training document, (pairs, topics).

        The share is p(topic | word, document) ∝ share of the topic in the document × p(word | topic). So a topic that
        every document has a little of is recognised by its words. In a model with one topic per document it is the
        probability of the document's topic. Each pair (document, word) is weighted by the word's count in the document.
        """
        counts = self._corpus.counts
        documents = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        shares = self.proportions[documents]
        if not isinstance(self.model.locals()[self.model.representation].family, IndicatorFamily):
            shares = shares * self._topic_word.T[counts.indices]
            shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        return ComponentMembers(shares, np.asarray(counts.data, np.float64), self.training.nouns.observation)

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "topic other"]:
        """Return the Bhattacharyya coefficient Σ √(p q) over words of each topic of this fit with each of another.

        p and q are the word distributions of the two topics. The coefficient is 1 for equal distributions and 0 for
        distributions without a common word.

        other: a fitted topic model over the same vocabulary.

        Returns (topics of this fit, topics of `other`).
        """
        other = comparable_fit(FittedTopics, other, self.training)
        return word_affinity(self._topic_word, other._topic_word)

    def component_names(self) -> tuple[str, ...]:
        """Return a distinct name for each topic, in the order of the topics' numbers; `names` makes them."""
        return tuple(self.names())

    def topics(self, n_words: int = 10, relevance: float | int = 1.0) -> pd.DataFrame:
        """Return a table of the topics, one row each, most prevalent first.

        n_words: the number of words shown for each topic.
        relevance: λ in λ log p(word | topic) + (1 − λ) log [p(word | topic) / p(word)], which orders the words (Sievert
            & Shirley 2014, Eq. 1). 1 gives the most probable words, which topics share. About 0.6 gives words that
            distinguish the topic.

        Columns are `prevalence` (the topic's share of the training tokens) and `words` (joined by spaces). If the
        corpus has labels, `label` is the label whose documents use the topic most out of proportion.

        Raises ValueError for a relevance outside 0 to 1, and for fewer than one word.
        """
        n_words = whole_number("n_words", n_words, least=1)
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
        """The expected topic proportions of the training documents, (documents, topics); rows sum to 1."""
        return np.asarray(self.transform(self.training), np.float64)

    def names(self, n_words: int = 3, namer: Namer | None = None) -> pd.Series:
        """Return a distinct name for each topic as a series (topics,), by default its most distinctive words.

        Words are ranked by FREX, a mean of how frequent and how exclusive a word is in the topic.

        n_words: the number of words in a name.
        namer: a function that returns a name for a `TopicSketch` (share, words, distinctive words, documents); None
            for the distinctive words.

        Raises ValueError for a name that is no text, and for fewer than one word.
        """
        n_words = whole_number("n_words", n_words, least=1)
        if namer is None:  # only a namer needs the documents of each topic, for which inference runs
            names = distinct_names(self._distinctive_words, n_words)
        else:
            names = names_of(self.sketches, namer, n_words)
        return pd.Series(names, index=pd.RangeIndex(len(self._topic_word)))

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
                float(self._token_shares[topic]),
                tuple(probable[topic]),
                tuple(distinctive[topic]),
                tuple(names[document] for document in self.representative(topic, SKETCHED_DOCUMENTS)["document"]),
            )
            for topic in range(len(probable))
        )

    @property
    def proportions_prior(self) -> Any:
        """The distribution of a new document's topic proportions: Dirichlet parameters (topics,), or another object.

        Pass it as `alpha` to `lv.inference.document_likelihood` and `document_completion`. For pLSI it is the
        distribution over the training documents' proportions; `lvsearch.inference.likelihood.FoldedIn` refits new
        documents instead.

        Raises ValueError for models whose documents have no distribution of proportions.
        """
        return document_proportions(self.model, self.estimate, self.training.dataset())

    def update(self: Topics, new: Any, *, seed: int = 0) -> Topics:
        """Return a fit of the same model and size to the training documents and new ones together, begun at this fit.

        Topics keep their numbers: topic k of the new fit is topic k of this one, with what the new documents add. Words
        that the training documents do not have come after theirs (`Corpus.joined` says which words of texts are kept,
        and the notes of `.training` name them), so tables of both fits line up. Names are made of words and may change:
        a series that `names` returned for this fit is indexed by topic and fits the new one too.

        new: documents, as `Corpus.joined` takes them: a corpus, raw texts, or a matrix of counts over the same words.
        seed: decides what this fit does not say; of most models nothing.

        A topic that only the new documents have gets no number of its own here: `SearchResult.update` asks how many
        there are now, and `unusual` shows documents that no topic explains. Hyper-parameters that were inferred with
        this fit stay as they are.

        Raises ValueError for other data, and for processes (`HDP`), whose topics are kept in order of size.
        """
        self._require_numbers_that_stay()
        joined = self._corpus.joined(new)
        start = with_more_words(self.estimate, joined.term_totals[len(self._words) :])
        return self._continued(joined, start, checked_seed(seed))

    def recommend(self, unit: Any, n: int = 10, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Return the words (films, items) that one document (user) does not have and is most likely to have next.

        unit: the document's counts, (1, words of the vocabulary), or a corpus of one document.
        n: the number of words to return.
        draws: the number of draws of the document's proportions and of the topics, for intervals.

        Returns a table with a row per word, the most probable first. `probability` is the probability that the next
        new word is this one. `lower` and `upper` are its 5 % and 95 % points under the fit, if the model is true.

        Raises ValueError for more than one document, for fewer than one word or draw, and for a seed that is none.
        """
        n, draws, seed = whole_number("n", n, least=1), whole_number("draws", draws, least=1), checked_seed(seed)
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
        """Return the known distribution over words that is nearest to each topic, by cosine similarity.

        references: a table with a row for each word (the index) and a column for each known distribution, such as
            published signatures of mutations.

        Returns a row per topic. `reference` is its partner in a one-to-one matching with the greatest total cosine, and
        `cosine` their similarity. `nearest` and `nearest_cosine` are the most similar of all references. Topics beyond
        the number of references have no partner (None, NaN).

        Raises ValueError for references that lack a word, repeat one, or have no column. Also for a column that is all
        zero, negative or not finite.
        """
        return match_references(self.table(self.model.topic_site), references)

    def coloured(self, text: Any, n_topics: int = 4, threshold: float = 0.9) -> ColouredText:
        """Return a text whose words are coloured by topic; it shows itself in a notebook.

        text: any text; it is cut into words by the rules of the corpus, as by `Corpus.encode`. Or a list of words, such
            as a document of `Corpus.from_tokens`, which are kept as they are. The topics of the words are inferred with
            this fit.
        n_topics: the number of topics that get a colour: those that the text has most of.
        threshold: the smallest probability of a word's most probable topic with which the word is coloured.

        Raises ValueError for a text without known words, for anything but a text or a list of words, for fewer than one
        topic, and for a threshold that is no probability. Also for models without a Dirichlet on proportions, and if
        the corpus was cut by a function that a folder could not keep.

        Source: Blei (2004), Figure 3.7.
        """
        if not isinstance(text, str) and not is_words(text):
            raise ValueError(f"got {shortened_repr(text)}; expected a text or a list of words")
        n_topics = whole_number("n_topics", n_topics, least=1)
        threshold = real_number("threshold", threshold, least=0, most=1)
        words = self.table(self.model.topic_site)
        vocabulary = tuple(str(word) for word in words.columns)
        top = self.topics().sort_index()["words"].tolist()
        if isinstance(text, str):
            analyzer = self._corpus.analyzer or Analyzer.for_vocabulary(vocabulary)
        else:
            analyzer = Analyzer.for_words(self._corpus.analyzer)
        return colour_text(
            text if isinstance(text, str) else list(text),
            words.to_numpy(np.float64),
            self.alpha,
            vocabulary,
            top,
            analyzer,
            n_topics=n_topics,
            threshold=threshold,
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
        """Return a training document as a bag of words, each coloured by the topic that it most probably came from.

        The probability is p(topic | word, document) ∝ share of the topic in the document × p(word | topic).

        number: the number of the document in the training corpus, from 0.

        Raises ValueError for a number that no document has.
        """
        corpus, number = self._corpus, whole_number("number", number)
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
        """Return the coherence (NPMI) of each topic, from −1 to 1, as a series (topics,).

        A topic is coherent if its most probable words tend to occur in the same documents.

        n_words: the number of most probable words compared, at least two.
        reference: the documents to count in, over the same vocabulary; by default the training data. Other documents
            are the better check.

        Raises ValueError for fewer than two words, and for documents over other words.
        """
        n_words = whole_number("n_words", n_words, least=2)
        corpus = self.training if reference is None else self.training.like_this(reference)
        assert isinstance(corpus, Corpus)
        top = np.argsort(-self._topic_word, axis=1, kind="stable")[:, :n_words]
        return pd.Series(npmi_coherence(top, corpus.counts), index=pd.RangeIndex(len(top), name="topic"), name="npmi")

    def correlations(self) -> pd.DataFrame:
        """Return the correlation of each two topics' shares over the training documents, as a table (topics, topics).

        It is positive for topics that occur together. Shares sum to 1, so unrelated topics are slightly negative, about
        −1 / (K − 1) for K topics. It is NaN for a topic with the same share in every document.
        """
        return share_correlations(self.proportions)

    def prevalence(self, by: Any = None, *, bins: int = 5, level: float = LEVEL, seed: int = 0) -> pd.DataFrame:
        """Return the mean share of each topic in groups of the training documents, with bootstrap intervals.

        by: a value for each document, or the name of a column of the corpus' metadata; by default the documents'
            labels.
        bins: the number of groups of equal size into which numbers and dates with many values are divided.
        level: the probability with which an interval holds the mean of the population of documents.

        Returns a row per group and topic, with columns `group`, `topic`, `mean`, `lower`, `upper` and `documents`.

        Raises ValueError if there is nothing to group by, for values that are all missing or too few, for a series
        whose index has the documents' names in another order, and for a level outside (0, 1).
        """
        bins, seed = whole_number("bins", bins, least=1), checked_seed(seed)
        return prevalence(self.proportions, self._covariate(by), bins=bins, level=level, seed=seed)

    def plot_prevalence(self, by: Any = None, *, bins: int = 5, ax: "Axes | None" = None) -> "Axes":
        """Draw the mean share of the topics that differ most between groups of documents, and return the axes.

        by: a value for each document, or the name of a column of the corpus' metadata; by default the documents'
            labels.
        bins: the number of groups into which numbers and dates with many values are divided.
        ax: the axes to draw on; None for a new figure.
        """
        return plot_prevalence(self.prevalence(by, bins=bins), self.names(), ax)

    def topic_map(self) -> pd.DataFrame:
        """Return coordinates of the topics in a plane, where topics with similar words are near each other.

        Coordinates come from classical multidimensional scaling of Jensen–Shannon distances.

        Returns a row per topic, with columns `x`, `y`, `prevalence` (share of the training tokens) and `name`.
        `.attrs["shown"]` is the share of the squared distances that the plane shows.
        """
        places, shown = topic_places(self._topic_word)
        frame = pd.DataFrame(places, columns=["x", "y"], index=pd.RangeIndex(len(places), name="topic"))
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

    def to_anndata(self, data: Any, *, layer: str | None = None, posterior: pd.DataFrame | None = None) -> None:
        """Write the topics into an `AnnData` of cells, in place.

        data: the `AnnData` that the training corpus was made of (`Corpus.from_anndata`), or one of other cells over
            the same genes.
        layer: the name of the layer with the counts; None for `.X`.
        posterior: `result.posterior()`, whose sizes and probabilities are written too.

        Shares of topics in cells go into `.obsm["X_lvsearch"]`, and p(gene | topic) into `.varm["lvsearch"]`. The
        model, the number of topics and the interval of the fit's log evidence (nats) go into `.uns["lvsearch"]`.

        Raises ValueError for other genes, and for data that `Corpus.from_anndata` cannot read.
        """
        require_genes(data, self._words)
        cells = Corpus.from_anndata(data, layer=layer)
        # Cells of the same names may have other counts, in another layer: their shares are inferred from these.
        same_names = cells.document_names == self._corpus.document_names
        are_fitted = same_names and abs(cells.counts - self._corpus.counts).sum() == 0
        write_anndata(
            data,
            self.proportions if are_fitted else self.transform(cells),
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
        """The training documents."""
        return self._data_as(Corpus, None)

    @cached_property
    def _topic_word(self) -> Float[np.ndarray, "topic word"]:
        """The posterior mean of p(word | topic), (topics, words of the vocabulary); rows sum to 1."""
        return self.table(self.model.topic_site).to_numpy(np.float64)

    @cached_property
    def _distinctive_words(self) -> list[list[str]]:
        """The 20 most distinctive words of each topic by FREX, the most distinctive first."""
        return top_words(frex_scores(self._topic_word), self._words, SKETCHED_WORDS)

    def _shapes(self, units: Data) -> Any:
        """Return the length of each document, since documents of one length have the same shape."""
        return units.observations_per_unit

    def _drawn_like(self, units: Data, rng: np.random.Generator) -> Corpus:
        """Return documents of the same lengths that are drawn from this fit, with topics at their posterior means."""
        lengths, prior, topics = units.observations_per_unit, self.proportions_prior, self._topic_word
        topics = topics / topics.sum(1, keepdims=True)
        if isinstance(prior, Proportions):
            shares = prior.sample(topics, csr_array((1, topics.shape[1]), dtype=np.int64), len(lengths), rng)
        else:
            shares = rng.dirichlet(prior, len(lengths))
        return Corpus(draw_documents(topics, shares, lengths, rng), self._words)

    def _unit_index(self, units: Data) -> pd.Index:
        """Return the names of documents as the index of a table, or their numbers if they have no names."""
        names = units.document_names if isinstance(units, Corpus) else None
        return super()._unit_index(units) if names is None else pd.Index(list(names), name="document")

    def _numbers_read_by_names(self) -> int:
        """Return how many numbers `component_names` reads: the probabilities of words in topics, and no document."""
        return self._topic_word.size

    @property
    def _words(self) -> tuple[str, ...]:
        """The vocabulary, in the order of the columns of the counts."""
        return self._corpus.vocabulary

    @cached_property
    def _token_shares(self) -> Float[np.ndarray, " topic"]:
        """The expected share of each topic in the training tokens, (topics,); the shares sum to 1."""
        lengths = self.training.observations_per_unit
        return lengths @ self.proportions / max(int(lengths.sum()), 1)

    @property
    def _document_names(self) -> tuple[str, ...]:
        """The names of the training documents, or "document 0", … if they have none."""
        names = self._corpus.document_names
        return tuple(f"document {number}" for number in range(len(self._corpus))) if names is None else tuple(names)

    @property
    def _metadata(self) -> pd.DataFrame | None:
        """The table of metadata with a row per training document, or None if there is none."""
        known = getattr(self.training, "metadata", None)
        return known if isinstance(known, pd.DataFrame) else None

    def _covariate(self, by: Any) -> Any:
        """Return the value of each training document by which documents are grouped.

        by: None for the documents' labels, a column of the metadata, or values, which are returned as they are.

        Raises ValueError for an unknown name, for None without labels, and for a series whose index has the documents'
        names in another order.
        """
        if by is None:
            if self.training.unit_labels is None:
                raise ValueError("got no `by`, and the corpus has no labels: pass a value for each document")
            return tuple(self.training.unit_labels)
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
        known = self._metadata
        if known is None or by not in known:
            columns = "none" if known is None else ", ".join(map(repr, known))
            raise ValueError(
                f"got by={by!r}, expected a value for each document or a column of its metadata ({columns})"
            )
        return known[by]
