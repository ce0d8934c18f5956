"""How each library is called, each in a process of its own: `topics_vs_peers.py` starts this file as a program.

    python tests/benchmarks/peers.py LIBRARY COUNTS.npz FOLDER --topics 100 --seed 0 --seconds 60

Trains LIBRARY on the sparse counts (documents, words) and writes one file per snapshot to FOLDER: topics, α, and the
seconds spent on training up to there. Making a library's own corpus from the counts, and taking a snapshot, are not
timed. A run goes on until both its required work is done (what the questions ask about) and its seconds are spent.

Settings are the library's defaults except for what stands in its function; all have two threads or jobs.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, load_npz

THREADS = 2
TOMOTOPY_SWEEPS, SKLEARN_ITERATIONS = 500, 100
"""The required work."""


class Snapshot(NamedTuple):
    """Topics (K, V) and α (K,) after `work` (sweeps, iterations, passes) and `seconds` of training.

    first_call: nothing was compiled yet; such a snapshot is for its seconds alone.
    """

    label: str
    work: int
    seconds: float
    topics: np.ndarray
    alpha: np.ndarray
    first_call: bool = False


class Prior(NamedTuple):
    """The hyper-parameters of ours: the total of α, and η."""

    concentration: float
    topic_concentration: float

    def model(self) -> Any:
        """The model; lvsearch is imported in its own process alone."""
        import lvsearch as lv

        return lv.models.LDA(self.concentration, self.topic_concentration)


# ── peers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def tomotopy(counts: csr_array, n_topics: int, seed: int, seconds: float, prior: Prior) -> Iterator[Snapshot]:
    """Collapsed Gibbs sampling in C++. α starts at 0.1 and is optimised every 10 sweeps, η = 0.01 (its defaults)."""
    import tomotopy as tp

    warnings.filterwarnings("ignore", "The training result may differ even with fixed seed")
    model = tp.LDAModel(k=n_topics, seed=seed)
    for row in range(counts.shape[0]):
        span = slice(counts.indptr[row], counts.indptr[row + 1])
        words = np.repeat(counts.indices[span], counts.data[span])
        if len(words):
            model.add_doc([str(word) for word in words])
    model.train(0)  # makes its tables; not timed
    spent, done = 0.0, 0
    for target in _ladder(10, 20, 50, 100, 200, 300, 400, TOMOTOPY_SWEEPS, then=500):
        began = time.perf_counter()
        model.train(target - done, workers=THREADS)
        spent, done = spent + time.perf_counter() - began, target
        topics = np.zeros((n_topics, counts.shape[1]))
        column = np.array([int(word) for word in model.used_vocabs])
        topics[:, column] = [model.get_topic_word_dist(topic) for topic in range(n_topics)]
        yield Snapshot(f"{done} sweeps", done, spent, topics, np.array(model.alpha, np.float64))
        if done >= TOMOTOPY_SWEEPS and spent >= seconds:
            return


def sklearn(counts: csr_array, n_topics: int, seed: int, seconds: float, prior: Prior) -> Iterator[Snapshot]:
    """Batch variational Bayes; α = η = 1/K fixed (its defaults). Every row is a fit from scratch, through `fit`."""
    yield from _sklearn(counts, n_topics, seed, seconds, "batch", (5, 10, 20, 50, SKLEARN_ITERATIONS))


def sklearn_online(counts: csr_array, n_topics: int, seed: int, seconds: float, prior: Prior) -> Iterator[Snapshot]:
    """Online variational Bayes, batches of 128 documents; α = η = 1/K fixed (its defaults)."""
    yield from _sklearn(counts, n_topics, seed, seconds, "online", (1, 2, 5, 10, 20, 50))


def _sklearn(
    counts: csr_array, n_topics: int, seed: int, seconds: float, method: str, iterations: tuple[int, ...]
) -> Iterator[Snapshot]:
    from sklearn.decomposition import LatentDirichletAllocation

    matrix = counts.astype(np.float64)
    LatentDirichletAllocation(2, max_iter=1, n_jobs=THREADS).fit(matrix[:20])  # starts its processes; not timed
    for done in iterations:
        model = LatentDirichletAllocation(
            n_topics, learning_method=method, max_iter=done, n_jobs=THREADS, random_state=seed
        )
        began = time.perf_counter()
        model.fit(matrix)
        spent = time.perf_counter() - began
        alpha = np.full(n_topics, model.doc_topic_prior_)
        yield Snapshot(f"{done} iterations", done, spent, model.components_, alpha)
        if method == "online" and spent >= seconds:
            return


def gensim(counts: csr_array, n_topics: int, seed: int, seconds: float, prior: Prior) -> Iterator[Snapshot]:
    """Online variational Bayes, `LdaMulticore` with two workers; α = η = 1/K fixed (its defaults).

    Batches of 256 documents: with its default of 2,000 a corpus of this size is one batch, and the topics move once a
    pass. Every row is a fit from scratch, since more passes change the step sizes of all.
    """
    from gensim.models import LdaMulticore

    corpus = [
        list(zip(counts.indices[a:b].tolist(), counts.data[a:b].tolist(), strict=True))
        for a, b in zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
    ]
    names = {word: str(word) for word in range(counts.shape[1])}
    for done in (1, 5, 10, 20, 50, 100):
        began = time.perf_counter()
        model = LdaMulticore(
            corpus, n_topics, id2word=names, workers=THREADS, passes=done, chunksize=256, random_state=seed
        )
        spent = time.perf_counter() - began
        yield Snapshot(f"{done} passes", done, spent, model.get_topics(), np.array(model.alpha, np.float64))
        if spent >= seconds:
            return


# ── ours ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def lvsearch_first_call(
    counts: csr_array, n_topics: int, seed: int, seconds: float, prior: Prior
) -> Iterator[Snapshot]:
    """What a process's first fit takes longer than its second: tracing, and compiling or reading the cache.

    A fit of two passes, twice: the programs are those of any fit of this size, whatever its number of passes.
    """
    import lvsearch as lv
    from lvsearch.inference.topics.estimator import TopicSettings

    training = lv.Corpus.from_matrix(counts)
    brief = TopicSettings(collapsed_passes=2, mean_field_passes=1)
    first, second = (_stopped_fit(training, n_topics, seed, prior, brief) for _ in range(2))
    yield first._replace(label="first call", seconds=first.seconds - second.seconds, first_call=True)


def lvsearch(counts: csr_array, n_topics: int, seed: int, seconds: float, prior: Prior) -> Iterator[Snapshot]:
    """The same estimator stopped after less work, or after more, and `lv.fit` with its defaults; all compiled."""
    import lvsearch as lv
    from lvsearch.inference.topics.estimator import TopicSettings

    yield from lvsearch_first_call(counts, n_topics, seed, seconds, prior)
    training = lv.Corpus.from_matrix(counts)
    began = time.perf_counter()
    model = lv.fit(prior.model(), training, size=n_topics, seed=seed)
    spent = time.perf_counter() - began
    yield Snapshot("lv.fit", model.estimate.passes, spent, model.table("topic_word").to_numpy(), model.alpha)
    for passes in (2, 5, 10, 20, 40, 60, 80, 120, 160, 240, 320):
        settings = TopicSettings(collapsed_passes=passes, mean_field_passes=0, tolerance=0.0)
        snapshot = _stopped_fit(training, n_topics, seed, prior, settings)
        yield snapshot
        if snapshot.seconds > seconds:
            return


def lvsearch_gibbs(counts: csr_array, n_topics: int, seed: int, seconds: float, prior: Prior) -> Iterator[Snapshot]:
    """Our collapsed Gibbs sampler, one core, α and η fixed at the defaults: the reference for quality."""
    import jax

    import lvsearch as lv
    from lvsearch.inference.topic_samplers.collapsed import collapsed_gibbs

    data, key, sample, spent = lv.Corpus.from_matrix(counts).dataset(), jax.random.key(seed), None, 0.0
    collapsed_gibbs(prior.model(), data, n_topics, sweeps=1, key=key)  # compiles; not timed
    for target in _ladder(1, 10, 20, 50, 100, then=100):
        done = 0 if sample is None else len(sample.log_joint)
        began = time.perf_counter()
        sample = collapsed_gibbs(prior.model(), data, n_topics, sweeps=target - done, key=key, start=sample)
        spent += time.perf_counter() - began
        yield Snapshot(f"{target} sweeps", target, spent, sample.topics(), sample.alpha)
        if spent > seconds:
            return


def _stopped_fit(training: Any, n_topics: int, seed: int, prior: Prior, settings: Any) -> Snapshot:
    """A fit from scratch by the estimator that `lv.fit` uses, with the work that `settings` say."""
    import jax

    from lvsearch.fitted.kinds import fitted_type
    from lvsearch.inference.topics.estimator import TopicEstimator
    from lvsearch.sizing.evidence import Evidence

    began = time.perf_counter()
    estimator = TopicEstimator(prior.model(), training.dataset(), settings)
    estimate = estimator.fit((n_topics,), jax.random.key(seed), None)
    spent = time.perf_counter() - began
    label = f"{settings.collapsed_passes} + {settings.mean_field_passes} passes"
    evidence = Evidence(estimate.log_lower, estimate.log_upper)
    model = fitted_type(estimate.model)(estimate.size, evidence, estimate, training)
    return Snapshot(label, estimate.passes, spent, model.table("topic_word").to_numpy(), model.alpha)


LIBRARIES = {
    library.__name__.replace("_", "-"): library
    for library in (tomotopy, sklearn, sklearn_online, gensim, lvsearch, lvsearch_first_call, lvsearch_gibbs)
}


def _ladder(*steps: int, then: int) -> Iterator[int]:
    yield from steps
    last = steps[-1]
    while True:
        last += then
        yield last


def write(folder: Path, number: int, snapshot: Snapshot) -> None:
    """One file per snapshot, in their order."""
    np.savez(folder / f"{number:03d}.npz", **snapshot._asdict())


def read(folder: Path) -> list[Snapshot]:
    """What `write` wrote, rows of topics normalised."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            topics = np.asarray(file["topics"], np.float64)
            found.append(
                Snapshot(
                    str(file["label"]),
                    int(file["work"]),
                    float(file["seconds"]),
                    topics / topics.sum(axis=1, keepdims=True),
                    file["alpha"],
                    bool(file["first_call"]),
                )
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("counts", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--concentration", type=float, default=5.0)
    parser.add_argument("--topic-concentration", type=float, default=0.05)
    parser.add_argument("--snapshots", type=int, help="stop after so many, to see that everything runs")
    arguments = parser.parse_args()
    counts = csr_array(load_npz(arguments.counts))
    prior = Prior(arguments.concentration, arguments.topic_concentration)
    snapshots = LIBRARIES[arguments.library](counts, arguments.topics, arguments.seed, arguments.seconds, prior)
    for number, snapshot in enumerate(snapshots):
        write(arguments.folder, number, snapshot)
        print(f"    {arguments.library:20s} {snapshot.label:20s} {snapshot.seconds:8.2f} s", flush=True)
        if number + 1 == arguments.snapshots:
            break


if __name__ == "__main__":
    main()
