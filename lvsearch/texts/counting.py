"""Turn texts into counts of terms, and count every word that is left out by the rule that leaves it out."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lvsearch.models import plain_arguments
from lvsearch.texts.analyzer import Analyzer, Cut, Rule
from lvsearch.texts.choosing import DroppedWords, Limits, Loss, WordFrequency, chosen_terms, losses_of, spelling_of


class CountedTexts(NamedTuple):
    """The counts of all terms of some texts, before rare and common ones are left out.

    A term is a word or a run of words. The folded form of a word is shared by spellings that differ in case alone.

    counts: how often each term is in each text, (texts, terms)
    terms: the folded term of each column, in the order of their first occurrence
    dropped: {rule: {word that it left out: how often}}
    spellings: {folded word: {other spelling: how often}}
    """

    counts: csr_array
    terms: list[str]
    dropped: dict[str, Counter[str]]
    spellings: dict[str, Counter[str]]


class CountedWords(NamedTuple):
    """The counts of the terms of some texts that are kept.

    counts: how often each term is in each text, (texts, terms)
    terms: the term of each column, in its usual spelling, in alphabetical order
    notes: sentences for people on what was kept and left out
    dropped: all words that were left out
    """

    counts: csr_array
    terms: tuple[str, ...]
    notes: tuple[str, ...]
    dropped: DroppedWords


@dataclass(frozen=True)
class UnknownWords:
    """The words of encoded texts that are not in the vocabulary.

    Words that a rule leaves out, such as stop words, are not counted here.

    Attributes:
        n_tokens: occurrences of unknown words.
        n_all_tokens: occurrences of all words, known and unknown.
        n_distinct: the number of different unknown words.
        most_frequent: the up to ten most frequent (word, occurrences), ties in alphabetical order.
    """

    n_tokens: int
    n_all_tokens: int
    n_distinct: int
    most_frequent: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        if not self.n_tokens:
            return "every word is in the vocabulary"
        shown = ", ".join(f"{word} ({count:,})" for word, count in self.most_frequent)
        return (
            f"{self.n_tokens:,} of {self.n_all_tokens:,} tokens ({self.n_distinct:,} distinct words) are not in the "
            f"vocabulary and were left out; the most frequent: {shown}"
        )


# -- what texts are ---------------------------------------------------------------------------------------------


def checked_documents(documents: Iterable[Any]) -> list[Any]:
    """Return documents as a list, after checking that each is a string or a list of words.

    Raises ValueError for a single string, a data frame, a dict or a set, and for another kind of document.
    """
    documents = list_documents(documents)
    for document, words in enumerate(documents):
        if not is_words(words):
            checked_texts([words], first=document)
    return documents


def checked_texts(texts: Iterable[Any], first: int = 0) -> list[str]:
    """Return texts as a list, after checking that each is a string.

    texts: the texts
    first: the number of the first text, for messages

    Raises:
        ValueError: a single string; a data frame, a dict or a set, whose elements are not the texts or have no order;
            an element that is not a string (None, NaN, bytes, a list of words…).
    """
    texts = list_documents(texts)
    for document, text in enumerate(texts, start=first):
        if is_words(text):
            raise ValueError(
                f"got a list of words as document {document}; expected a string. For documents that are cut into words "
                "already: lv.Corpus.from_tokens(documents)"
            )
        if not isinstance(text, str):
            raise ValueError(
                f"got {text!r} ({type(text).__name__}) as document {document}; expected a string; "
                "write '' for a document without text (it is kept as an empty one)"
            )
    return texts


def list_documents(texts: Iterable[Any]) -> list[Any]:
    """Return documents as a list. An Arrow array becomes a list of Python's strings.

    Raises ValueError for a single string, a data frame, a dict or a set, whose elements are not documents in order.
    """
    if isinstance(texts, str):
        raise ValueError("got a single string; expected an iterable of texts, one per document: pass [text]")
    columns = getattr(texts, "columns", getattr(texts, "column_names", None))  # a data frame, or what is like one
    if columns is not None:
        names = [str(name) for name in columns]
        raise ValueError(
            f"got a {type(texts).__name__} with the columns {', '.join(map(repr, names[:8]))}"
            f"{', …' if len(names) > 8 else ''}; expected an iterable of texts: say which column holds them, "
            f"lv.Corpus.from_frame(frame, text=…), or pass that column alone"
        )
    if isinstance(texts, Mapping | Set):
        raise ValueError(
            f"got a {type(texts).__name__}; expected a list of texts, in order: of a dict list(texts.values()), its "
            "keys as document_names"
        )
    as_python: Callable[[], list[Any]] | None = getattr(texts, "to_pylist", None)
    return plain_arguments.as_list("texts", texts) if as_python is None else as_python()


def is_words(document: Any) -> bool:
    """Return True if a document is a list (tuple, array) of strings, which are its words."""
    return isinstance(document, list | tuple | np.ndarray) and all(isinstance(word, str) for word in document)


# -- counting ---------------------------------------------------------------------------------------------------


def count_terms(texts: Iterable[Any], analyzer: Analyzer) -> CountedTexts:
    """Return the counts of the terms of texts, and of the words that a rule of the analyzer leaves out.

    texts: strings, which the analyzer cuts into words, or lists of words
    analyzer: cuts strings into words, and decides which words count
    """
    columns: dict[str, int] = {}
    ids, values, starts = array("q"), array("q"), array("q", [0])
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    known: dict[str, tuple[str, Rule | None]] = {}  # spelling -> folded word and rule: asked once for each spelling
    for text in texts:
        cut = analyzer.cut_text(text) if isinstance(text, str) else Cut(list(text), [])
        dropped[Rule.UNMATCHED].update(cut.unmatched)
        kept = []
        for word in cut.words:
            if word not in known:
                folded = analyzer.fold(word)
                known[word] = (folded, analyzer.rule(folded))
            folded, rule = known[word]
            if folded != word:
                spellings[folded][word] += 1
            if rule is None:
                kept.append(folded)
            else:
                dropped[rule][folded] += 1
        terms = Counter(analyzer.terms(kept))
        ids.extend(columns.setdefault(term, len(columns)) for term in terms)
        values.extend(terms.values())
        starts.append(len(ids))
    shape = (len(starts) - 1, len(columns))
    counts = csr_array((np.asarray(values), np.asarray(ids), np.asarray(starts)), shape=shape)
    counts.sort_indices()
    return CountedTexts(counts, list(columns), dict(dropped), dict(spellings))


def count_texts(texts: Sequence[str], analyzer: Analyzer, least: int | None, most: float | int | None) -> CountedWords:
    """Return the counts of the terms of texts that are neither in too few nor in too many of them.

    texts: the texts
    analyzer: cuts texts into words, and decides which words count
    least: the smallest number of texts of a term that is kept
    most: the greatest fraction of texts of a term that is kept

    By default there are no limits below 200 texts. From there on `least` is a hundredth of the texts but at most 5, and
    `most` is a half.

    Raises:
        ValueError: no texts; a limit out of range; no word left.
    """
    if not texts:
        raise ValueError("got no texts; expected at least one document")
    return kept_counts(count_terms(texts, analyzer), analyzer, Limits.of_texts(len(texts), least, most))


def kept_counts(found: CountedTexts, analyzer: Analyzer, limits: Limits) -> CountedWords:
    """Return the counts of the terms that are in enough texts and not in too many.

    found: the counts of all terms
    analyzer: the analyzer that cut the texts, for messages
    limits: how many texts a term must and may be in

    Raises ValueError if no term is left.
    """
    chosen = chosen_terms(
        frequencies_of(found),
        {rule: (WordFrequency(word, 0, n) for word, n in words.items()) for rule, words in found.dropped.items()},
        found.spellings,
        analyzer,
        limits,
        found.counts.shape[0],
    )
    column = {term: place for place, term in enumerate(found.terms)}
    counts = found.counts[:, [column[term] for term in chosen.folded]]
    return CountedWords(counts, chosen.terms, chosen.notes, chosen.dropped)


def frequencies_of(found: CountedTexts) -> Iterator[WordFrequency]:
    """Yield, for each term in the order of columns, how many of the texts hold it and how often it occurs."""
    documents = np.bincount(found.counts.indices, minlength=len(found.terms)).tolist()
    tokens = np.asarray(found.counts.sum(axis=0)).tolist()
    return map(WordFrequency, found.terms, documents, tokens)


# -- texts over words that are known ----------------------------------------------------------------------------


class Encoded(NamedTuple):
    """New texts as counts over a known vocabulary.

    counts: how often each term of the vocabulary is in each text, (texts, terms)
    unknown: the words that are not in the vocabulary
    losses: the words that rules left out before, such as stop words, one entry per rule
    """

    counts: csr_array
    unknown: UnknownWords
    losses: tuple[Loss, ...]


def term_columns(vocabulary: Sequence[str], analyzer: Analyzer) -> dict[str, int]:
    """Return {folded term: its column} for a vocabulary; if two terms have one folded form, the column of the first."""
    columns: dict[str, int] = {}
    for position, term in enumerate(vocabulary):
        columns.setdefault(" ".join(map(analyzer.fold, term.split(" "))), position)
    return columns


def encode_texts(found: CountedTexts, columns: Mapping[str, int], n_terms: int) -> Encoded:
    """Return the counts of texts as counts over a known vocabulary, with the words that are not in it.

    found: the counts of all terms of the texts
    columns: {folded term of the vocabulary: its column}
    n_terms: the size of the vocabulary
    """
    tokens = np.asarray(found.counts.sum(axis=0)).tolist()
    unknown = Counter({term: n for term, n in zip(found.terms, tokens, strict=True) if term not in columns})
    known = [place for place, term in enumerate(found.terms) if term in columns]
    positions = np.array([columns[found.terms[place]] for place in known], np.int64)
    entries = found.counts[:, known].tocoo()
    shape = (found.counts.shape[0], n_terms)
    counts = csr_array((entries.data, (entries.row, positions[entries.col])), shape=shape)
    return Encoded(
        counts,
        UnknownWords(
            n_tokens=unknown.total(),
            n_all_tokens=sum(tokens),
            n_distinct=len(unknown),
            most_frequent=tuple(sorted(unknown.items(), key=lambda item: (-item[1], item[0]))[:10]),
        ),
        losses_of(found.dropped, Rule),
    )


LEFT_OUT_BEFORE = "that the corpus left out before"
"""The rule, completing "words …", by which words stay out of a corpus that is joined with new texts."""


def counts_with_new_words(
    found: CountedTexts,
    columns: Mapping[str, int],
    vocabulary: Sequence[str],
    left_out: Collection[str],
    n_texts: int,
) -> CountedWords:
    """Return the counts of texts over the known words that occur in them, and the new words that are kept.

    found: the counts of all terms of the texts
    columns: {folded term of a known vocabulary: its column}
    vocabulary: the known terms
    left_out: terms that stay out, in any spelling
    n_texts: the number of these texts and those that the vocabulary was made of, of which a new term must be in enough
        and not in too many
    """
    limits = Limits.of_texts(n_texts, None, None)
    frequencies = list(frequencies_of(found))
    spelled = spelling_of(found.spellings, {each.word: each.tokens for each in frequencies})
    kept, lost = dict[int, str](), defaultdict[str, dict[str, int]](dict)
    for place, (term, n_documents, n_tokens) in enumerate(frequencies):
        name = vocabulary[columns[term]] if term in columns else spelled(term)
        is_out = term not in columns and (term in left_out or name in left_out)
        by_number = None if term in columns else limits.rule(n_documents, n_texts)
        rule = LEFT_OUT_BEFORE if is_out else by_number
        if rule is None:
            kept[place] = name
        else:
            lost[rule][name] = n_tokens
    order = sorted(kept, key=lambda place: kept[place])
    losses = losses_of({**found.dropped, **lost}, (*Rule, LEFT_OUT_BEFORE, limits.rare, limits.common))
    terms = tuple(kept[place] for place in order)
    return CountedWords(csr_array(found.counts[:, order]), terms, tuple(map(str, losses)), DroppedWords(losses))
