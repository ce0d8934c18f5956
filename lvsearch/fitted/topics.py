"""Fitted topic models: `FittedTopics`, one fit with scores and recommendations, and `ArrangedTopics`, its topics as a
person arranged them.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from lvsearch.comparison.alignment import match_references
from lvsearch.comparison.similarity import ComponentMembers, word_affinity
from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.fitted.model import FittedModel, comparable_fit
from lvsearch.fitted.stored_fits import FitParts, save_parts
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.likelihood import expected_proportions, proportion_draws
from lvsearch.inference.likelihood.proportions import Proportions, draw_documents
from lvsearch.inference.word_mixtures import document_proportions, with_more_words
from lvsearch.models.families import Dirichlet, IndicatorFamily
from lvsearch.models.lda import LDA
from lvsearch.models.plain_arguments import as_path, checked_seed, real_number, shortened_repr, whole_number
from lvsearch.models.topic_model import TopicModel
from lvsearch.pictures.fact_card import Fact, html_card, text_card
from lvsearch.texts.analyzer import Analyzer
from lvsearch.texts.counting import is_words
from lvsearch.topics.coloured_text import ColouredText, colour_text
from lvsearch.topics.other_programs import PyLDAvisInputs, pyldavis_inputs, require_genes, write_anndata
from lvsearch.topics.readable_topics import Arrangement, ReadableTopics

Topics = TypeVar("Topics", bound="FittedTopics")
LEVELS = (5.0, 95.0)
"""The percentiles of the posterior draws that are the ends of the interval of a probability."""


@dataclass(frozen=True, repr=False)
class FittedTopics(FittedModel[TopicModel], ReadableTopics):
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

    @property
    def topic_numbers(self) -> tuple[int, ...]:
        """The numbers of the topics, 0 … K − 1."""
        return tuple(range(len(self._topic_word)))

    @cached_property
    def proportions(self) -> Float[np.ndarray, "docs topic"]:
        """The expected topic proportions of the training documents, (documents, topics); rows sum to 1."""
        return np.asarray(self.transform(self.training), np.float64)

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
        return recommended_words(
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

    def renamed(self, names: Mapping[int, str]) -> "ArrangedTopics":
        """Return the topics with names of your own, for tables, pictures and reports.

        names: the name of each topic that is to have one, by its number: {0: "sport", 3: "weather"}. The others keep
            the names that `names` makes of their words.

        Raises ValueError for a number that no topic has, a name that is no text or empty, and one name for two topics.
        """
        return self._all_topics.renamed(names)

    def merged(self, groups: Iterable[Sequence[int]]) -> "ArrangedTopics":
        """Return the topics with those of each group as one topic, for tables, pictures and reports.

        The shares of its members add up, and its words are the mean of theirs, weighted by their tokens. That is a way
        of reading this fit, and no fit of a model with fewer topics: `ArrangedTopics` has no evidence and no scores.

        groups: numbers of topics, [(2, 5), (1, 7, 8)]; a merged topic has the first number of its group.

        Raises ValueError for a number that no topic has or that is given twice, and for a group of one topic.
        """
        return self._all_topics.merged(groups)

    def without(self, topics: Iterable[int]) -> "ArrangedTopics":
        """Return the topics without some, such as topics of stop words, for tables, pictures and reports.

        Hidden topics keep their part of every document. So the shares of the others stay as they are and add up to less
        than 1; divide them by their sums if you want shares of what is shown.

        topics: the numbers of the topics to hide, such as [4, 9].

        Raises ValueError for a number that no topic has, and if none would be left.
        """
        return self._all_topics.without(topics)

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
    def _all_topics(self) -> "ArrangedTopics":
        """All topics of this fit as an arrangement that changes nothing."""
        return ArrangedTopics(self, Arrangement.of_all(len(self.topic_numbers)))

    @property
    def _corpus(self) -> Corpus:
        """The training documents."""
        return self._data_as(Corpus, None)

    @cached_property
    def _topic_word(self) -> Float[np.ndarray, "topic word"]:
        """The posterior mean of p(word | topic), (topics, words of the vocabulary); rows sum to 1."""
        return self.table(self.model.topic_site).to_numpy(np.float64)

    @property
    def _every_topic_word(self) -> Float[np.ndarray, "topic word"]:
        """The distributions over words of all topics: a fit hides none."""
        return self._topic_word

    @property
    def _every_token_share(self) -> Float[np.ndarray, " topic"]:
        """The shares of all topics in the training tokens: a fit hides none."""
        return self._token_shares

    @property
    def _given_names(self) -> Mapping[int, str]:
        """The names that came with the seeds of the first topics, by their numbers; `renamed` returns
        `ArrangedTopics`.
        """
        seeds = self.model.seeds if isinstance(self.model, LDA) else None
        return {} if seeds is None else dict(enumerate(seeds.names))

    def _word_weights(self, number: int, words: Int[np.ndarray, " held"]) -> Float[np.ndarray, "topic held"]:
        """Return the share of each topic in a training document × p(word | topic), for words of the document."""
        return self.proportions[number][:, None] * self._topic_word[:, words]

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


@dataclass(frozen=True, repr=False)
class ArrangedTopics(ReadableTopics):
    """Topics of a fit as a person arranged them: with given names, merged, or hidden.

    `FittedTopics.renamed`, `merged` and `without` make it, and it has them too, so that they follow each other. Tables,
    pictures, `transform` and, by `result.with_topics`, reports show the topics so. Numbers are those of the fit.

    Merged and hidden topics are a way of reading, and no optimum of a model. So there is no evidence here, no score and
    no recommendation: `fit` has those of the fit itself.

    | field | meaning |
    |---|---|
    | `fit` | the fit whose topics are shown |
    | `arrangement` | which of its topics are shown together, which not at all, and under which names |
    """

    fit: FittedTopics
    arrangement: Arrangement

    def __post_init__(self) -> None:
        """Raise ValueError for an arrangement of another number of topics."""
        if self.arrangement.n_topics != len(self.fit.topic_numbers):
            raise ValueError(
                f"got an arrangement of {self.arrangement.n_topics} topics for a fit of {len(self.fit.topic_numbers)}, "
                "expected one of as many"
            )

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError for what only a fit has, such as its evidence; the message says where it is."""
        if name in FittedTopics.__dataclass_fields__ or (not name.startswith("_") and hasattr(FittedTopics, name)):
            raise AttributeError(
                f"arranged topics have no {name!r}: merged and hidden topics are a way of reading a fit, and no fit of "
                f"their own. Those of the fit are in .fit.{name}"
            )
        raise AttributeError(f"arranged topics have no {name!r}")

    def __repr__(self) -> str:
        """Return a few lines that say how the topics of which fit are shown."""
        return text_card(self.arrangement.describe(), self._facts)

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows, with the same facts as `print`."""
        return html_card(self.arrangement.describe(), self._facts)

    def renamed(self, names: Mapping[int, str]) -> "ArrangedTopics":
        """Return the topics with further names of your own, {number of the topic: name}.

        Raises ValueError for a number that no topic has, a name that is no text or empty, and one name for two topics.
        """
        return replace(self, arrangement=self.arrangement.renamed(names))

    def merged(self, groups: Iterable[Sequence[int]]) -> "ArrangedTopics":
        """Return the topics with those of each group as one, which has the group's first number and its given name.

        groups: numbers of topics that are shown, [(2, 5), (1, 7, 8)].

        Raises ValueError for a number that no topic has or that is given twice, and for a group of one topic.
        """
        return replace(self, arrangement=self.arrangement.merged(groups))

    def without(self, topics: Iterable[int]) -> "ArrangedTopics":
        """Return the topics without some more; the shares of the others stay as they are, and add up to less than 1.

        topics: the numbers of the topics to hide, such as [4, 9].

        Raises ValueError for a number that no topic has, and if none would be left.
        """
        return replace(self, arrangement=self.arrangement.without(topics))

    def update(self, new: Any, *, seed: int = 0) -> "ArrangedTopics":
        """Return the same arrangement of a fit to the training documents and new ones together.

        Topics keep their numbers, so they keep their names, and stay merged or hidden.

        new, seed: as for `FittedTopics.update`, whose errors it raises.
        """
        return replace(self, fit=self.fit.update(new, seed=seed))

    @property
    def training(self) -> Data:
        """The documents that the model was fitted to."""
        return self.fit.training

    def transform(self, data: Any) -> Float[np.ndarray, "docs topic"]:
        """Return the expected share of each topic that is shown in each document, (documents, topics shown).

        Columns are in the order of `topic_numbers` and `names()`:
        `pd.DataFrame(view.transform(corpus), columns=list(view.names()))`. Rows sum to 1, less the hidden topics.

        data: new or training documents, as a `Corpus`, a matrix of counts, or raw texts.
        """
        return self.arrangement.shares(np.asarray(self.fit.transform(data), np.float64))

    @property
    def topic_numbers(self) -> tuple[int, ...]:
        """The number of each topic that is shown, in order: that of the fit, or of the first of several merged ones."""
        return self.arrangement.numbers

    @cached_property
    def proportions(self) -> Float[np.ndarray, "docs topic"]:
        """The expected share of each topic that is shown in each training document, (documents, topics shown)."""
        return self.arrangement.shares(self.fit.proportions)

    def save(self, folder: str | Path) -> None:
        """Write the fit, its training data and the arrangement to a new folder, which `lv.load_fit` reads.

        Raises FileExistsError if the folder exists, ValueError for a user's model that is not registered, and for a
        folder that is no path.
        """
        fit = self.fit
        parts = FitParts(fit.size, fit.evidence, fit.estimate, fit.training)
        save_parts(parts, as_path("folder", folder), self.arrangement.to_json())

    @property
    def _facts(self) -> tuple[Fact, ...]:
        """The facts of the card: what the fit is, that there is no evidence, and the names of the topics."""
        groups = {group[0]: group for group in self.arrangement.groups if len(group) > 1}
        merged = {number: f" (topics {', '.join(map(str, group))})" for number, group in groups.items()}
        return (
            Fact("fit", repr(self.fit).partition("\n")[0]),
            Fact("evidence", "none: merged and hidden topics are no fit; .fit.evidence is that of the fit"),
            *(
                Fact(f"topic {topic}", f"{name}{merged.get(topic, '')}")
                for topic, name in zip(self.topic_numbers, self.names(), strict=True)
            ),
        )

    @property
    def _corpus(self) -> Corpus:
        """The training documents."""
        return self.fit._corpus

    @property
    def _topic_word(self) -> Float[np.ndarray, "topic word"]:
        """The distributions over words of the topics that are shown, (topics shown, words of the vocabulary)."""
        return self._every_topic_word[: len(self.topic_numbers)]

    @cached_property
    def _every_topic_word(self) -> Float[np.ndarray, "every word"]:
        """The distributions over words of the topics that are shown, and then of the hidden ones."""
        return self.arrangement.words(self.fit._topic_word, self.fit._token_shares)

    @property
    def _every_token_share(self) -> Float[np.ndarray, " every"]:
        """The shares in the training tokens of the topics that are shown, and then of the hidden ones."""
        return np.concatenate([self._token_shares, self.fit._token_shares[list(self.arrangement.hidden)]])

    @property
    def _given_names(self) -> Mapping[int, str]:
        """The names that topics were given, by the seeds of the fit's model or here, by their numbers."""
        of_fit = {topic: name for topic, name in self.fit._given_names.items() if topic in self.topic_numbers}
        return {**of_fit, **dict(self.arrangement.names)}

    def _word_weights(self, number: int, words: Int[np.ndarray, " held"]) -> Float[np.ndarray, "every held"]:
        """Return p(topic, word | document) of words of a document, up to a factor, hidden topics last.

        A merged topic has the sum over its members, which the mean of their words would not give.
        """
        weights = self.fit._word_weights(number, words)
        return np.stack([weights[list(group)].sum(axis=0) for group in self.arrangement.every_group])


# ── recommendations ─────────────────────────────────────────────────────────────────────────────────────────────────


def recommended_words(
    model: TopicModel,
    estimate: Estimate,
    topics: np.ndarray,
    proportions: Any,
    counts: csr_array,
    names: np.ndarray,
    *,
    n: int,
    draws: int,
    seed: int,
) -> pd.DataFrame:
    """Return the words that one document does not have and is most likely to have next, the most probable first.

    model: the topic model.
    estimate: its fit, which has the Dirichlet posterior of the topics.
    topics: p(word | topic) at the posterior mean, (topics, words).
    proportions: the prior on topic proportions: Dirichlet parameters (topics,), or another distribution.
    counts: the words of the document, (1, words).
    names: the vocabulary, (words,).
    n: the number of words to return.
    draws: the number of draws of proportions and topics, for the intervals.

    Returns a table with columns `word`, `probability` (that the next new word is this one), and `lower` and `upper`,
    its 5 % and 95 % points.
    """
    n_words = topics.shape[1]
    row = csr_array(counts)
    # p(next word = w | the next word is new) ∝ Σ_k E[θ_k] p(w | k) over words that the document does not have
    had = np.zeros(n_words, bool)
    had[row.indices[row.data > 0]] = True
    new = np.where(had, 0.0, expected_proportions(topics, proportions, row)[0] @ topics)
    new = new / max(new.sum(), 1e-300)  # 0 for a document that has every word: there is nothing to recommend
    best = np.argsort(-new, kind="stable")[: min(n, int((~had).sum()))]
    # the interval: draws of proportions and topics, of which only the best words and all words in hand are needed
    random = np.random.default_rng(seed)
    theta = proportion_draws(topics, proportions, row, draws, random)
    groups = np.concatenate([topics[:, best], topics[:, had].sum(1, keepdims=True)], axis=1)
    share = np.repeat(groups[None], draws, 0)
    site = model.globals()[model.topic_site]
    if isinstance(site.family, Dirichlet):  # parts of a Dirichlet added up are a Dirichlet
        concentration = estimate.natural[model.topic_site].astype(np.float64) + 1
        parts = np.concatenate([concentration[:, best], concentration[:, had].sum(1, keepdims=True)], axis=1)
        rest = np.maximum(concentration.sum(1, keepdims=True) - parts.sum(1, keepdims=True), 1e-12)
        gamma = random.standard_gamma(np.concatenate([parts, rest], axis=1), (draws, len(topics), len(best) + 2))
        share = gamma[..., :-1] / gamma.sum(-1, keepdims=True)
    # p(w | new) of each draw: divide by 1 − the probability of all words that the document has (the last column)
    drawn = np.einsum("sk,skw->sw", theta, share)
    drawn = drawn[:, :-1] / (1 - drawn[:, -1:])
    low, high = np.percentile(drawn, LEVELS, axis=0)
    return pd.DataFrame({"word": names[best], "probability": new[best], "lower": low, "upper": high})
