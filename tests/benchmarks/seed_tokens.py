"""Count how many named topics are found, with few and with many imaginary tokens of their words.

    python tests/benchmarks/seed_tokens.py [--documents 200 2000] [--tokens 100 20 6 2] [--sizes 3 5 8] [--corpora 10]

Documents of 24 words come from three planted topics of 15 words each, beside 15 words that all topics share. Two topics
are named by their second and third most probable word. A named topic is found if its cosine with the planted one is
above .9. One line for a number of documents and of imaginary tokens: how many named topics were found at each size.
"""

import argparse

import numpy as np

import lvsearch as lv

NAMED, OWN, FOUND = 2, 15, 0.9
"""The number of named topics of the three, that of a topic's own words, and the least cosine of a found topic."""


def planted(seed: int, n_documents: int) -> tuple[lv.Corpus, np.ndarray, dict[str, list[str]]]:
    """Return documents, p(word | topic) of the topics that they were drawn from, (topic, word), and the seed words."""
    rng = np.random.default_rng(seed)
    topics = np.zeros((3, 4 * OWN))
    for topic in range(3):
        topics[topic, OWN * topic : OWN * topic + OWN] = 0.75 * rng.dirichlet(np.full(OWN, 2.0))
        topics[topic, 3 * OWN :] = 0.25 * rng.dirichlet(np.full(OWN, 2.0))
    shares = rng.dirichlet(np.full(3, 0.2), n_documents)
    counts = np.stack([rng.multinomial(24, share @ topics) for share in shares])
    words = [f"word{number}" for number in range(4 * OWN)]
    own = [np.argsort(-topics[topic, OWN * topic : OWN * topic + OWN])[1:3] + OWN * topic for topic in range(NAMED)]
    return (
        lv.Corpus.from_matrix(counts, words),
        topics,
        {f"topic {k}": [words[w] for w in own[k]] for k in range(NAMED)},
    )


def found_topics(corpus: lv.Corpus, topics: np.ndarray, model: lv.models.LDA, size: int, seed: int) -> int:
    """Return how many named topics are found by a fit of this size."""
    fitted = lv.fit(model, corpus, size=size, seed=seed).table("topic_word").to_numpy(np.float64)[:NAMED]
    true = topics[:NAMED]
    cosine = (fitted * true).sum(1) / np.sqrt((fitted**2).sum(1) * (true**2).sum(1))
    return int((cosine > FOUND).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, nargs="+", default=[200, 2000])
    parser.add_argument("--tokens", type=int, nargs="+", default=[100, 20, 6, 2])
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 5, 8])
    parser.add_argument("--corpora", type=int, default=10)
    options = parser.parse_args()
    print(f"| documents | imaginary tokens | {' | '.join(f'{size} topics' for size in options.sizes)} |")
    print("|---" * (2 + len(options.sizes)) + "|")
    for n_documents in options.documents:
        drawn = [planted(seed, n_documents) for seed in range(options.corpora)]
        for tokens in options.tokens:
            found = [
                sum(
                    found_topics(corpus, topics, lv.models.LDA().with_seeds(corpus, seeds, tokens=tokens), size, seed)
                    for seed, (corpus, topics, seeds) in enumerate(drawn)
                )
                for size in options.sizes
            ]
            told = " | ".join(f"{each} of {NAMED * len(drawn)}" for each in found)
            print(f"| {n_documents:,} | {tokens} | {told} |", flush=True)


if __name__ == "__main__":
    main()
