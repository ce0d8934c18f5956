"""Evaluation of topic models from any program: held-out likelihood with errors, and paired comparison of two topic
sets.

Scores are in nats over the words that the topics know, and add over documents. Other words are counted and reported.
"""

import argparse
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from scipy import stats

from lvsearch.command.argument_types import read_number, read_whole_number
from lvsearch.command.external_topics import ExternalTopics, encode, load_topics, shared_words
from lvsearch.data.corpus import Corpus
from lvsearch.files.plain_text import spreadsheet, visible
from lvsearch.inference.likelihood.completion import document_completion, split_documents
from lvsearch.inference.likelihood.dispatch import METHODS, document_likelihood


@dataclass(frozen=True, eq=False)
class HeldOutScore:
    """The held-out scores of one topic set, for each document of a test set.

    | field | meaning |
    |---|---|
    | `source`, `method` | names of the topic set and of the scoring method, for people |
    | `log_likelihood` | log p(document) under the topics, nats; with method "bounds" a certified lower bound on it |
    | `standard_error` | Monte Carlo error of each log-likelihood, nats; 0 if the method is deterministic |
    | `n_tokens`, `n_unknown` | numbers of tokens scored, and of tokens outside the vocabulary, which are not scored |
    | `unknown_words` | the words outside the vocabulary |
    | `upper` | with method "bounds" a certified upper bound on each log-likelihood, nats; else None |
    """

    source: str
    method: str
    log_likelihood: Float64[np.ndarray, " document"]
    standard_error: Float64[np.ndarray, " document"]
    n_tokens: Int64[np.ndarray, " document"]
    n_unknown: Int64[np.ndarray, " document"]
    unknown_words: tuple[str, ...]
    upper: Float64[np.ndarray, " document"] | None = None

    @property
    def total(self) -> float:
        """The log-likelihood of the whole test set, nats: the sum over documents."""
        return float(np.sum(self.log_likelihood))

    @property
    def monte_carlo_error(self) -> float:
        """The Monte Carlo standard error of `total`, from the finite number of samples, nats."""
        return float(np.sqrt(np.sum(self.standard_error**2)))

    @property
    def per_token(self) -> float:
        """The log-likelihood per scored token, nats: `total` over the number of tokens."""
        return self.total / int(self.n_tokens.sum())

    @property
    def per_token_error(self) -> float:
        """The standard error of `per_token` over test sets of this size, nats.

        It is the error of a ratio estimator and includes the Monte Carlo error. It is NaN for a single document, whose
        spread cannot be seen.
        """
        n_documents = len(self.n_tokens)
        if n_documents < 2 or not np.isfinite(self.total):
            return float("nan")
        residual = self.log_likelihood - self.per_token * self.n_tokens
        spread = np.sum(residual**2) * n_documents / (n_documents - 1)
        return float(np.sqrt(spread) / self.n_tokens.sum())

    @property
    def perplexity(self) -> float:
        """The perplexity, exp(−nats per token); lower is better."""
        return float(np.exp(-self.per_token))

    @property
    def perplexity_error(self) -> float:
        """The standard error of `perplexity`, to first order (the delta method)."""
        return self.perplexity * self.per_token_error

    def table(self) -> pd.DataFrame:
        """Return a table with one row per document: `log_likelihood`, `standard_error`, `tokens`, `unknown_tokens`."""
        return pd.DataFrame(
            {
                "log_likelihood": self.log_likelihood,
                "standard_error": self.standard_error,
                "tokens": self.n_tokens,
                "unknown_tokens": self.n_unknown,
            }
        )

    def __str__(self) -> str:
        """Return the scores in a few lines for people."""
        unknown, tokens = int(self.n_unknown.sum()), int(self.n_tokens.sum())
        lines = [
            f"{self.source}: {len(self.n_tokens)} documents, {tokens} tokens scored by {self.method}",
            f"  log-likelihood  {self.total:.2f} nats (Monte Carlo error {self.monte_carlo_error:.2f})",
            f"  per token       {self.per_token:.4f} ± {self.per_token_error:.4f} nats",
            f"  perplexity      {self.perplexity:.1f} ± {self.perplexity_error:.1f}",
        ]
        if self.upper is not None:
            lines.append(f"  certified       the log-likelihood lies in [{self.total:.2f}, {np.sum(self.upper):.2f}]")
        impossible = int(np.sum(np.isneginf(self.log_likelihood)))
        if impossible:
            lines.append(f"  {impossible} documents hold a word that no topic can produce: -inf")
        if unknown:
            share = unknown / (unknown + tokens)
            examples = ", ".join(self.unknown_words[:5])
            lines.append(
                f"  not scored      {unknown} tokens ({share:.1%}) of {len(self.unknown_words)} words outside the "
                f"vocabulary: {examples}{', …' if len(self.unknown_words) > 5 else ''}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class PairedComparison:
    """The difference of the log-likelihoods of two topic sets on the same documents, nats for the whole test set.

    | field | meaning |
    |---|---|
    | `first`, `second` | names of the topic sets |
    | `difference` | log-likelihood of the first minus that of the second, nats; positive if the first is better |
    | `standard_error` | of the difference, from its spread over documents, nats |
    | `lower`, `upper` | Student's t interval for the expected difference over test sets of this size, nats |
    | `confidence` | the probability of the interval |
    | `n_documents`, `n_tokens` | the documents compared, and their scored tokens |
    """

    first: str
    second: str
    difference: float
    standard_error: float
    lower: float
    upper: float
    confidence: float
    n_documents: int
    n_tokens: int

    def __str__(self) -> str:
        """Return a line for people with the difference, its interval, and which topic set is better."""
        verdict = "these documents cannot choose between the two"
        if self.lower > 0:
            verdict = f"{self.first} is better"
        if self.upper < 0:
            verdict = f"{self.second} is better"
        return (
            f"{self.first} − {self.second}: {self.difference:.2f} ± {self.standard_error:.2f} nats "
            f"({self.difference / self.n_tokens:.4f} per token), {self.confidence:.0%} interval "
            f"[{self.lower:.2f}, {self.upper:.2f}] over {self.n_documents} documents: {verdict}"
        )


def held_out(
    topics: ExternalTopics,
    docs: Any,
    *,
    method: str = "ais",
    samples: int | None = None,
    seed: int = 0,
    only_words: Collection[str] | None = None,
) -> HeldOutScore:
    """Score every document of a corpus by log p(document | topics, α), and return the scores in nats.

    topics: the topic set
    docs: the test documents, an `lv.Corpus`
    method: "ais" (annealed importance sampling), "mfi" (importance sampling from a mean-field fit, faster), "bounds"
        (certified bounds), or another method of `document_likelihood`
    samples: the number of samples per document; None for the method's default
    seed: gives every random number
    only_words: score only these words, so that topic sets over different vocabularies can be compared

    Raises ValueError if no token can be scored.
    """
    encoded = encode(topics, docs, only_words)
    n_tokens = np.asarray(encoded.counts.sum(axis=1)).ravel().astype(np.int64)
    _require_tokens(n_tokens, topics)
    deterministic = method in ("exact", "bounds")
    result = document_likelihood(
        topics.topics,
        topics.alpha,
        encoded.counts,
        method=method,
        samples=samples,
        key=None if deterministic else jax.random.key(seed),
    )
    label = method if result.samples is None else f"{method}, {result.samples} samples"
    return HeldOutScore(
        topics.source,
        label,
        result.log_likelihood,
        result.standard_error,
        n_tokens,
        encoded.n_unknown,
        encoded.unknown_words,
        result.upper,
    )


def completion(
    topics: ExternalTopics,
    docs: Any,
    *,
    observed_fraction: float = 0.5,
    seed: int = 0,
    only_words: Collection[str] | None = None,
) -> HeldOutScore:
    """Score each document by completion: fit its topic weights on a random part of its tokens, and score the rest.

    topics: the topic set
    docs: the test documents, an `lv.Corpus`
    observed_fraction: the part of each document's tokens to which its topic weights are fitted
    seed: the seed of the random parts
    only_words: score only these words; None for all

    Returns the scores of the other tokens, nats per document. Raises ValueError if no token can be scored.
    """
    encoded = encode(topics, docs, only_words)
    observed, rest = split_documents(encoded.counts, observed_fraction, seed)
    result = document_completion(topics.topics, topics.alpha, observed, rest)
    _require_tokens(result.n_tokens, topics)
    return HeldOutScore(
        topics.source,
        f"completion from {observed_fraction:.0%}",
        result.log_score,
        np.zeros(len(result.log_score)),
        result.n_tokens,
        encoded.n_unknown,
        encoded.unknown_words,
    )


def compare(first: HeldOutScore, second: HeldOutScore, confidence: float = 0.95) -> PairedComparison:
    """Return the paired difference of two topic sets on the same documents and the same words.

    first, second: the scores of the two topic sets
    confidence: the probability of the interval

    Raises ValueError for scores of different tokens or methods, −inf scores, or fewer than two documents.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"got confidence={confidence}; expected a number between 0 and 1, such as 0.95")
    if first.method != second.method:
        raise ValueError(f"got scores by {first.method!r} and {second.method!r}; expected the same method for both")
    if not np.array_equal(first.n_tokens, second.n_tokens):
        raise ValueError(
            "got scores of different tokens (the vocabularies differ); expected the same words of the same documents: "
            "pass only_words=shared_words((a, b)) to both"
        )
    if len(first.n_tokens) < 2:
        raise ValueError("got one document; expected at least two, so that a difference has an error")
    for score in (first, second):
        if not np.all(np.isfinite(score.log_likelihood)):
            raise ValueError(f"got scores of {score.source} that are not finite; smooth its topics, or compare by hand")
    # The error of a sum of n paired differences is √n times their standard deviation.
    differences = first.log_likelihood - second.log_likelihood
    n_documents = len(differences)
    error = float(np.std(differences, ddof=1) * np.sqrt(n_documents))
    total = float(differences.sum())
    reach = float(stats.t.ppf(0.5 + confidence / 2, n_documents - 1)) * error
    return PairedComparison(
        first.source,
        second.source,
        total,
        error,
        total - reach,
        total + reach,
        confidence,
        n_documents,
        int(first.n_tokens.sum()),
    )


def _require_tokens(n_tokens: np.ndarray, topics: ExternalTopics) -> None:
    """Raise ValueError if no document has a word of the topics' vocabulary.

    n_tokens: the number of scored tokens of each document, (documents,)
    topics: the topic set, for the message
    """
    if not n_tokens.sum():
        raise ValueError(
            f"got documents without a single word of {topics.source}'s vocabulary; expected documents in its language: "
            "check that both were cut into words and lower-cased in the same way"
        )


# ------------------------------------------------------------------------------------------------------ command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lvsearch evaluate` to a parser."""
    parser.description = (
        "Score anyone's topics on documents they were not fitted to: log p(document | topics, α) in nats with errors, "
        "perplexity, and a paired comparison when several topic sets are given."
    )
    parser.add_argument(
        "--topics",
        nargs="+",
        required=True,
        type=Path,
        metavar="FILE.npz",
        help="arrays topics (K, V) with rows summing to 1, alpha (K,), vocabulary (V,); several files are compared",
    )
    parser.add_argument("--corpus", required=True, type=Path, metavar="FILE.ldac", help="test documents, LDA-C format")
    parser.add_argument(
        "--vocabulary", required=True, type=Path, metavar="FILE.txt", help="the corpus' words, one a line"
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="ais",
        help="ais: unbiased, errors from independent particle groups (default); mfi: faster, but its errors leave out "
        "sets of topics that it missed; bounds: certified lower end",
    )
    parser.add_argument(
        "--samples", type=read_whole_number, help="samples per document (default: 128 for ais, 200 for mfi)"
    )
    parser.add_argument(
        "--completion",
        type=read_number,
        metavar="FRACTION",
        help="instead: fit on this part of each document, score the rest",
    )
    parser.add_argument(
        "--confidence", type=read_number, default=0.95, help="probability of the comparison's interval (default 0.95)"
    )
    parser.add_argument(
        "--seed", type=read_whole_number, default=0, help="every random number follows from it (default: %(default)s)"
    )
    parser.add_argument("--per-document", type=Path, metavar="FILE.csv", help="also write one row per document and set")


def _show(text: object) -> None:
    """Print a text line by line with control characters made visible, since it may hold words of other people."""
    print("\n".join(map(visible, str(text).split("\n"))))


def run(args: argparse.Namespace) -> int:
    """Run `lvsearch evaluate`, and return the exit status 0.

    It prints the score of every topic set, compares each later set with the first, and writes a table if asked to.

    Raises FileExistsError if the table exists already, FileNotFoundError for a missing file or a missing folder of the
    table, and ValueError for files of another form and a confidence that is no probability.
    """
    # What can be known to fail in the end is refused before hours of scoring.
    if args.per_document is not None and args.per_document.exists():
        raise FileExistsError(f"{args.per_document} exists: choose another name for --per-document, or remove it")
    if args.per_document is not None and not args.per_document.parent.is_dir():
        raise FileNotFoundError(f"no folder {args.per_document.parent} for --per-document: make it, or name another")
    if not 0 < args.confidence < 1:
        raise ValueError(f"got --confidence {args.confidence:g}, expected a number between 0 and 1, such as 0.95")
    corpus = Corpus.from_ldac(args.corpus, vocabulary=args.vocabulary)
    topic_sets = [load_topics(path) for path in args.topics]
    sources = [topics.source for topics in topic_sets]
    if len(set(sources)) < len(sources):  # files of one name in several folders: sentences then name the whole paths
        topic_sets = [replace(topics, source=str(path)) for topics, path in zip(topic_sets, args.topics, strict=True)]
    words = None
    if len(topic_sets) > 1:
        words = shared_words(topic_sets)
        if any(len(topics.vocabulary) > len(words) for topics in topic_sets):
            print(f"the vocabularies differ: only the {len(words)} words that all know are scored")
    scores = []
    for topics in topic_sets:
        if args.completion is None:
            score = held_out(topics, corpus, method=args.method, samples=args.samples, seed=args.seed, only_words=words)
        else:
            score = completion(topics, corpus, observed_fraction=args.completion, seed=args.seed, only_words=words)
        _show(score)
        scores.append(score)
    for other in scores[1:]:
        _show(compare(scores[0], other, args.confidence))
    if args.per_document is not None:
        tables = {str(path): score.table() for path, score in zip(args.topics, scores, strict=True)}
        table = pd.concat(tables, names=["topics", "document"]).reset_index()
        spreadsheet(table).to_csv(args.per_document, index=False)
        print(f"wrote {args.per_document}")
    return 0
