"""log p(document | α, topics) by slow, plain NumPy that shares no code and no path with the estimators."""

import itertools

import numpy as np
from scipy.special import gammaln, logsumexp


def sum_over_topic_sets(topics: np.ndarray, alpha: np.ndarray, words: np.ndarray) -> dict[frozenset[int], float]:
    """Return log p(words, S) of every set S of topics that the tokens use, by the sum over all K^L assignments.

    topics: (topic, word); alpha: (topic,); words: the words of the tokens in turn. Nats.
    """
    assignments = np.array(list(itertools.product(range(len(alpha)), repeat=len(words))), dtype=int)
    counts = (assignments[:, :, None] == np.arange(len(alpha))).sum(axis=1)
    with np.errstate(divide="ignore"):
        log_joint = log_prior(counts, alpha) + np.log(topics[assignments, np.asarray(words, int)]).sum(axis=1)
    sets: dict[frozenset[int], list[float]] = {}
    for chosen, value in zip(assignments, log_joint, strict=True):
        sets.setdefault(frozenset(chosen.tolist()), []).append(value)
    return {topic_set: float(logsumexp(values)) for topic_set, values in sets.items()}


def log_prior(counts: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return log p(k | α) by the counts of its topics, (particle, topic), proportions integrated out; nats."""
    rising = gammaln(counts + alpha) - gammaln(alpha)
    return rising.sum(axis=1) - gammaln(counts.sum(axis=1) + alpha.sum()) + gammaln(alpha.sum())


def anneal_concentration(
    topics: np.ndarray,
    alpha: np.ndarray,
    words: np.ndarray,
    *,
    particles: int,
    steps: int,
    seed: int,
    moves: int = 2,
) -> tuple[float, float]:
    """Return log p(words | α, topics) and its standard error, nats, by long sequential Monte Carlo.

    The path is the concentration: at s = ∞ the tokens are independent and p is a product, and s falls to 1 in
    geometric steps of p(k | s α). Every step sweeps all tokens, and tries `moves` exchanges of two topics' tokens, a
    proposal that merges nothing and splits nothing but carries a whole topic over to another one, empty or not.
    Particles are resampled where weights are uneven, in eight islands, whose spread gives the error.
    """
    random = np.random.default_rng(seed)
    islands = 8
    size = particles // islands
    weight = topics[:, words].T  # (token, topic)
    n_tokens, n_topics = weight.shape
    lanes = np.arange(particles)
    start = weight * alpha
    topic = np.stack([random.choice(n_topics, size=particles, p=row / row.sum()) for row in start], axis=1)
    counts = (topic[:, :, None] == np.arange(n_topics)).sum(axis=1).astype(float)
    scales = np.geomspace(max(10.0, n_tokens**2 / alpha.sum()), 1.0, steps)
    log_first = np.log(start.sum(axis=1) / alpha.sum()).sum()
    log_weight = log_prior(counts, alpha * scales[0]) - counts @ np.log(alpha / alpha.sum())
    log_mean = np.full(islands, log_first)
    with np.errstate(divide="ignore"):
        log_likelihood = np.log(weight)
    for step, scale in enumerate(scales):
        a = alpha * scale
        if step:
            log_weight = log_weight + log_prior(counts, a) - log_prior(counts, alpha * scales[step - 1])
        for island in range(islands):
            lane = slice(island * size, (island + 1) * size)
            w = np.exp(log_weight[lane] - log_weight[lane].max())
            if w.sum() ** 2 / (w**2).sum() < size / 2:
                log_mean[island] += log_weight[lane].max() + np.log(w.mean())
                points = (np.arange(size) + random.random()) / size
                parent = np.minimum(np.searchsorted(np.cumsum(w) / w.sum(), points), size - 1)
                topic[lane], counts[lane], log_weight[lane] = topic[lane][parent], counts[lane][parent], 0.0
        for token in range(n_tokens):
            counts[lanes, topic[:, token]] -= 1
            running = np.cumsum((counts + a) * weight[token], axis=1)
            drawn = (random.random((particles, 1)) * running[:, -1:] > running).sum(axis=1)
            topic[:, token] = np.minimum(drawn, n_topics - 1)
            counts[lanes, topic[:, token]] += 1
        for _ in range(moves):
            _exchange(topic, counts, a, log_likelihood, random)
    ends = log_mean + logsumexp(log_weight.reshape(islands, size), axis=1) - np.log(size)
    return float(logsumexp(ends) - np.log(islands)), float(ends.std(ddof=1) / np.sqrt(islands))


def _exchange(
    topic: np.ndarray, counts: np.ndarray, alpha: np.ndarray, log_likelihood: np.ndarray, random: np.random.Generator
) -> None:
    """Exchange the tokens of two topics, one that is in use and any other, in each particle, or leave them.

    The first topic is that of a token chosen at random, the second any other: the pair is proposed with probability
    (n_first + n_second)/L · 1/(K − 1) in both directions, so that acceptance needs the ratio of targets only.
    """
    particles, n_tokens = topic.shape
    n_topics = len(alpha)
    lanes = np.arange(particles)
    first = topic[lanes, random.integers(n_tokens, size=particles)]
    second = (first + random.integers(1, n_topics, size=particles)) % n_topics
    is_first, is_second = topic == first[:, None], topic == second[:, None]
    proposed = np.where(is_first, second[:, None], np.where(is_second, first[:, None], topic))
    swapped = counts.copy()
    swapped[lanes, first], swapped[lanes, second] = counts[lanes, second], counts[lanes, first]
    tokens = np.arange(n_tokens)
    before = log_likelihood[tokens, topic].sum(axis=1) + log_prior(counts, alpha)
    after = log_likelihood[tokens, proposed].sum(axis=1) + log_prior(swapped, alpha)
    accepted = np.log(random.random(particles)) < after - before
    topic[accepted], counts[accepted] = proposed[accepted], swapped[accepted]
