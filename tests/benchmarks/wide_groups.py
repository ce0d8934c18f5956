"""Count the steps, one after another, of a sweep over the topics of all tokens on a device, and what of it is accepted.

    python tests/benchmarks/wide_groups.py [--corpus cora ap] [--topics 64 200] [--sweeps 10] [--seed 0]

The sweeps of gains between sizes draw groups of tokens that share neither document nor word, at most 64, one group
after another. A word needs as many groups as it has tokens. A device could draw thousands of tokens together. Here a
group has one token of every document, so that a sweep has as many groups as the longest document has tokens, and words
repeat:

1. The topic of each token is drawn given all tokens outside of the group.
2. The tokens of each word are accepted or refused together. While the totals of topics are held at what the tokens
   outside have, words have nothing in common within a group, so that each word is a Metropolis step by itself.
3. All are accepted or refused by what the change of the totals makes of the density (the surrogate transition of Liu
   2001, Monte Carlo Strategies in Scientific Computing, §9.4.3).

Let a group put m'_k tokens of a word into topic k, where m_k were, and b_k be the word's tokens in topic k outside of
the group, plus η. The ratio of step 2 is Π_k Γ(b_k + m'_k) / Γ(b_k + m_k) · b_k^(m_k − m'_k). That of step 3 is the
reciprocal of the same for all words together, with b_k the total of topic k outside of the group, plus Vη. The last
column has steps 2 and 3 as one.

This is NumPy, for the counts; it does not say how fast such a sweep would be. `test_wide_groups.py` compares it with
enumeration.
"""

import argparse
from typing import NamedTuple

import numpy as np
from corpora import corpus_named
from scipy.special import gammaln

from lvsearch.inference.topic_samplers.collapsed import Tokens, expand
from lvsearch.inference.topic_samplers.topic_state import group_width, grouped

TOTAL_CONCENTRATION, TOPIC_CONCENTRATION = 5.0, 0.05
"""α of all topics together, and η."""


class Accepted(NamedTuple):
    """The share of the tokens accepted in step 2, and the mean probabilities of step 3 and of both steps as one."""

    words: float
    totals: float
    at_once: float


def one_of_each_document(random: np.random.Generator, document: np.ndarray) -> list[np.ndarray]:
    """Groups with one token of every document that has tokens left, in random order: numbers of tokens."""
    order = random.permutation(len(document))
    order = order[np.argsort(document[order], kind="stable")]
    lengths = np.bincount(document)
    place = np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return [order[place == number] for number in range(lengths.max())]


def log_correction(outside: np.ndarray, coming: np.ndarray, leaving: np.ndarray) -> np.ndarray:
    """Return log Π_k Γ(b_k + m'_k) / Γ(b_k + m_k) · b_k^(m_k − m'_k) by rows, nats. outside: b_k, above 0.

    It is minus the sum of `topic_state.total_corrections`, in NumPy because the number of words differs by group.
    """
    change = gammaln(outside + coming) - gammaln(outside + leaving) - (coming - leaving) * np.log(outside)
    return change.sum(-1)


class TopicsInWideGroups:
    """The topics of all tokens with the counts that follow, (document, topic) and (word, topic).

    n_topics: K. n_words: the number of words in the vocabulary. alpha, eta: concentrations of one topic and one word.
    """

    def __init__(self, tokens: Tokens, topics: np.ndarray, n_topics: int, n_words: int, alpha: float, eta: float):
        self.tokens, self.topics, self.alpha, self.eta = tokens, topics.copy(), alpha, eta
        self.in_document = np.zeros((tokens.document.max() + 1, n_topics))
        self.of_word = np.zeros((n_words, n_topics))
        self._add(np.arange(len(topics)), topics, 1)

    def _add(self, group: np.ndarray, topics: np.ndarray, amount: int) -> None:
        np.add.at(self.in_document, (self.tokens.document[group], topics), amount)
        np.add.at(self.of_word, (self.tokens.word[group], topics), amount)

    def sweep(self, random: np.random.Generator, *, exact: bool = True) -> Accepted:
        """Draw every token's topic once. exact: without it all is accepted, which is wrong."""
        shares = [self._redraw(random, group, exact) for group in one_of_each_document(random, self.tokens.document)]
        return Accepted(*np.mean(shares, axis=0))

    def _redraw(self, random: np.random.Generator, group: np.ndarray, exact: bool) -> Accepted:
        before = self.topics[group]
        self._add(group, before, -1)
        document, word = self.tokens.document[group], self.tokens.word[group]
        totals = self.of_word.sum(0) + len(self.of_word) * self.eta
        weight = (self.in_document[document] + self.alpha) * (self.of_word[word] + self.eta) / totals
        ends = weight.cumsum(1)
        proposed = (ends[:, :-1] <= random.random(len(group))[:, None] * ends[:, -1:]).sum(1)

        words, of_token = np.unique(word, return_inverse=True)
        leaving, coming = (np.zeros((len(words), weight.shape[1])) for _ in range(2))
        np.add.at(leaving, (of_token, before), 1)
        np.add.at(coming, (of_token, proposed), 1)
        log_words = log_correction(self.of_word[words] + self.eta, coming, leaving)
        at_once = log_words.sum() - log_correction(totals, coming.sum(0), leaving.sum(0))

        word_accepted = np.log(random.random(len(words))) < log_words
        after = np.where(word_accepted[of_token] | (not exact), proposed, before)
        now, then = (np.bincount(each, minlength=weight.shape[1]) for each in (after, before))
        log_totals = -log_correction(totals, now, then)
        if exact and np.log(random.random()) >= log_totals:
            after = before
        self.topics[group] = after
        self._add(group, after, 1)
        share = (word_accepted * leaving.sum(1)).sum() / len(group)
        return Accepted(share, np.exp(min(log_totals, 0.0)), np.exp(min(at_once, 0.0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", nargs="+", default=["cora", "ap"])
    parser.add_argument("--topics", nargs="+", type=int, default=[64, 200])
    parser.add_argument("--sweeps", type=int, default=10, help="before the one that is counted")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("| corpus | tokens | topics | groups of 64 | groups of all documents | words accepted | totals | at once |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.corpus:
        data = corpus_named(name).dataset()
        tokens = expand(data)
        width = group_width(tokens.document, tokens.word)
        for n_topics in given.topics:
            random = np.random.default_rng(given.seed)
            begin = random.integers(0, n_topics, len(tokens.word))
            alpha, n_words = TOTAL_CONCENTRATION / n_topics, data.extents["word"]
            chain = TopicsInWideGroups(tokens, begin, n_topics, n_words, alpha, TOPIC_CONCENTRATION)
            for _ in range(given.sweeps):
                chain.sweep(random)
            found = chain.sweep(random)
            numbers = (len(tokens.word), n_topics, len(grouped(tokens.document, tokens.word, width)))
            steps = np.bincount(tokens.document).max()
            shares = " | ".join(f"{100 * share:.1f} %" for share in found)
            print(f"| {name} | {' | '.join(f'{n:,}' for n in numbers)} | {steps} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
