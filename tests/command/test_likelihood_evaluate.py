"""The auditor: readers of other people's models, held-out scores with errors, comparisons, document completion."""

import argparse
import warnings

import numpy as np
import pytest
from scipy import sparse

from lvsearch.command.evaluate import add_arguments, compare, completion, held_out, run
from lvsearch.command.external_topics import (
    ExternalTopics,
    encode,
    gensim_topics,
    load_topics,
    shared_words,
    sklearn_topics,
    tomotopy_topics,
)
from lvsearch.data.corpus import Corpus
from lvsearch.inference.likelihood import document_likelihood
from lvsearch.inference.likelihood.completion import document_completion, split_documents

WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")
ALPHA = np.array([0.3, 0.8])


def topic_set(source="ours", words=WORDS, seed=0) -> ExternalTopics:
    rng = np.random.default_rng(seed)
    return ExternalTopics(rng.dirichlet(np.full(len(words), 0.4), 2), ALPHA, words, source)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """11 documents of the seed-0 topics, over a shuffled vocabulary with two words that the topics do not know."""
    rng = np.random.default_rng(3)
    truth = topic_set()
    counts = np.array([rng.multinomial(14, rng.dirichlet(ALPHA) @ truth.topics) for _ in range(11)])
    foreign = np.zeros((11, 2), int)
    foreign[2, 1], foreign[5, 0], foreign[6, 1] = 3, 1, 2
    return Corpus.from_matrix(np.hstack([foreign, counts[:, ::-1]]), vocabulary=("yak", "zho", *WORDS[::-1]))


# --- readers ----------------------------------------------------------------------------------------------------------


def test_scikit_learn(corpus):
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(3, random_state=0, max_iter=2).fit(corpus.counts)
    topics = sklearn_topics(model, corpus.vocabulary)
    np.testing.assert_allclose(topics.topics, model.components_ / model.components_.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(topics.alpha, [1 / 3] * 3)
    assert np.isfinite(held_out(topics, corpus, method="exact").total)
    with pytest.raises(ValueError, match="without components_, doc_topic_prior_; expected a fitted"):
        sklearn_topics(LatentDirichletAllocation(), corpus.vocabulary)
    with pytest.raises(ValueError, match="got 7 words for topics over 9"):
        sklearn_topics(model, WORDS)


def test_gensim(corpus):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = pytest.importorskip("gensim.models")
        documents = [
            [(int(w), int(n)) for w, n in zip(row.indices, row.data, strict=True)]
            for row in (sparse.csr_array(corpus.counts[[i]]) for i in range(corpus.n_documents))
        ]
        model = models.LdaModel(
            documents, id2word=dict(enumerate(corpus.vocabulary)), num_topics=3, alpha=[0.1, 0.2, 0.3], random_state=0
        )
    topics = gensim_topics(model)
    assert topics.vocabulary == corpus.vocabulary
    np.testing.assert_allclose(topics.topics.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(topics.alpha, [0.1, 0.2, 0.3], rtol=1e-6)
    assert np.isfinite(held_out(topics, corpus, method="exact").total)


def test_tomotopy(corpus):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tomotopy = pytest.importorskip("tomotopy")
        model = tomotopy.LDAModel(k=3, seed=1)
        for row in range(corpus.n_documents):
            model.add_doc(np.repeat(corpus.vocabulary, corpus.counts[[row]].toarray()[0]).tolist())
        model.train(10)
    topics = tomotopy_topics(model)
    assert set(topics.vocabulary) == set(corpus.vocabulary)
    assert topics.topics.shape == (3, 9)
    assert np.isfinite(held_out(topics, corpus, method="exact").total)
    with pytest.raises(ValueError, match="got str without get_topic_word_dist"):
        tomotopy_topics("a path")


def test_files_round_trip(tmp_path):
    topics = topic_set()
    topics.save(tmp_path / "mine.npz")
    back = load_topics(tmp_path / "mine.npz")
    np.testing.assert_allclose(back.topics, topics.topics, rtol=1e-15)
    assert (back.vocabulary, back.source) == (WORDS, "mine")
    np.savez(tmp_path / "half.npz", topics=topics.topics)
    with pytest.raises(ValueError, match="'alpha', 'vocabulary'"):
        load_topics(tmp_path / "half.npz")


# --- words that do not fit --------------------------------------------------------------------------------------------


def test_unknown_words_are_counted_and_named(corpus):
    encoded = encode(topic_set(), corpus)
    assert encoded.n_unknown.sum() == 6
    assert encoded.n_unknown[2] == 3
    assert encoded.unknown_words == ("zho", "yak")
    np.testing.assert_array_equal(encoded.counts.toarray(), corpus.counts.toarray()[:, :1:-1])
    assert "6 tokens (3.8%) of 2 words outside the vocabulary: zho, yak" in str(
        held_out(topic_set(), corpus, method="exact")
    )


def test_no_known_word_is_an_error():
    foreign = Corpus.from_matrix(np.array([[1, 2]]), vocabulary=("un", "deux"))
    with pytest.raises(ValueError, match="without a single word of ours's vocabulary"):
        held_out(topic_set(), foreign)


# --- scores -----------------------------------------------------------------------------------------------------------


def test_held_out_is_the_likelihood_of_the_known_words(corpus):
    score = held_out(topic_set(), corpus, method="exact")
    direct = document_likelihood(topic_set().topics, ALPHA, corpus.counts.toarray()[:, :1:-1], method="exact")
    np.testing.assert_allclose(score.log_likelihood, direct.log_likelihood, rtol=1e-12)
    assert score.n_tokens.sum() == 11 * 14
    assert score.perplexity == pytest.approx(np.exp(-direct.total / (11 * 14)))
    sampled = held_out(topic_set(), corpus, method="mfi", seed=1)
    assert abs(sampled.total - score.total) < 5 * sampled.monte_carlo_error + 1
    assert sampled.method == "mfi, 200 samples"


def test_the_error_of_the_perplexity_is_the_bootstrap_s(corpus):
    score = held_out(topic_set(), corpus, method="exact")
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 11, (4000, 11))
    resampled = score.log_likelihood[rows].sum(axis=1) / score.n_tokens[rows].sum(axis=1)
    assert score.per_token_error == pytest.approx(resampled.std() * np.sqrt(11 / 10), rel=0.1)


def test_one_document_has_no_visible_spread(corpus):
    alone = held_out(topic_set(), corpus.select([0]), method="exact")
    assert np.isfinite(alone.perplexity)
    assert np.isnan(alone.perplexity_error)


def test_comparison_is_paired(corpus):
    first, second = (held_out(topic_set(str(seed), seed=seed), corpus, method="exact") for seed in (0, 1))
    result = compare(first, second, confidence=0.9)
    differences = first.log_likelihood - second.log_likelihood
    assert result.difference == pytest.approx(first.total - second.total)
    assert result.standard_error == pytest.approx(differences.std(ddof=1) * np.sqrt(11))
    assert result.lower < result.difference < result.upper
    assert "0 is better" in str(result)
    assert compare(second, first, confidence=0.9).lower == pytest.approx(-result.upper)
    same = compare(first, first)
    assert (same.difference, same.standard_error) == (0, 0)
    assert "these documents cannot choose between the two" in str(same)


def test_comparison_interval_covers():
    """500 pairs of scores with a known expected difference: the 90 % interval holds it 90 % of the time."""
    rng = np.random.default_rng(5)
    template = held_out(topic_set(), Corpus.from_matrix(np.eye(7, dtype=int), vocabulary=WORDS), method="exact")

    def scores(values):
        from dataclasses import replace

        return replace(template, log_likelihood=values)

    hits = 0
    for _ in range(500):
        common, noise = rng.normal(size=7) * 30, rng.normal(0.3, 1.0, size=7)
        result = compare(scores(common + noise), scores(common), confidence=0.9)
        hits += result.lower <= 7 * 0.3 <= result.upper
    assert abs(hits - 450) < 4 * np.sqrt(500 * 0.09)


def test_only_like_is_compared_with_like(corpus):
    exact = held_out(topic_set(), corpus, method="exact")
    with pytest.raises(ValueError, match="the same method"):
        compare(exact, held_out(topic_set(), corpus, method="bounds"))
    fewer = topic_set(words=WORDS[:5])
    with pytest.raises(ValueError, match="only_words=shared_words"):
        compare(exact, held_out(fewer, corpus, method="exact"))
    words = shared_words((topic_set(), fewer))
    assert words == set(WORDS[:5])
    both = [held_out(topics, corpus, method="exact", only_words=words) for topics in (topic_set(), fewer)]
    assert np.isfinite(compare(*both).difference)


# --- document completion ----------------------------------------------------------------------------------------------


def test_split_shares_out_every_token(corpus):
    observed, rest = split_documents(corpus, 0.5, seed=0)
    np.testing.assert_array_equal((observed + rest).toarray(), corpus.counts.toarray())
    np.testing.assert_array_equal(observed.sum(axis=1), np.round(0.5 * corpus.document_lengths))
    alone, _ = split_documents(corpus.counts[:1], 0.5, seed=0)
    np.testing.assert_array_equal(alone.toarray(), observed[[0]].toarray())
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        split_documents(corpus, 1.0, seed=0)


def test_completion_predicts_from_the_observed_part():
    """Topics that share no word: the posterior mean is exact, (α + observed counts) / sum."""
    observed, rest = np.array([[3, 0, 1], [0, 0, 0]]), np.array([[1, 0, 2], [0, 2, 0]])
    result = document_completion(np.eye(3), [0.5, 0.25, 1.0], observed, rest)
    theta = np.array([[3.5, 0.25, 2.0], [0.5, 0.25, 1.0]]) / np.array([[5.75], [1.75]])
    np.testing.assert_allclose(result.log_score, (rest * np.log(theta)).sum(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(result.n_tokens, [3, 2])


def test_completion_prefers_the_truth():
    rng = np.random.default_rng(1)
    truth = topic_set()
    counts = np.array([rng.multinomial(60, rng.dirichlet(ALPHA) @ truth.topics) for _ in range(40)])
    documents = Corpus.from_matrix(counts, vocabulary=WORDS)
    scores = [completion(topic_set(str(seed), seed=seed), documents) for seed in (0, 1)]
    assert compare(*scores).lower > 0
    assert scores[0].n_tokens.sum() == 40 * 30


# --- command line -----------------------------------------------------------------------------------------------------


def test_command_line(tmp_path, corpus, capsys):
    rows = [sparse.csr_array(corpus.counts[[i]]) for i in range(corpus.n_documents)]
    lines = [
        " ".join([str(len(row.data)), *(f"{w}:{n}" for w, n in zip(row.indices, row.data, strict=True))])
        for row in rows
    ]
    (tmp_path / "test.ldac").write_text("\n".join(lines) + "\n")
    (tmp_path / "words.txt").write_text("\n".join(corpus.vocabulary) + "\n")
    topic_set().save(tmp_path / "a.npz")
    topic_set(seed=1).save(tmp_path / "b.npz")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    common = ["--corpus", f"{tmp_path}/test.ldac", "--vocabulary", f"{tmp_path}/words.txt", "--method", "exact"]
    files = ["--topics", f"{tmp_path}/a.npz", f"{tmp_path}/b.npz"]
    assert run(parser.parse_args([*files, *common, "--per-document", f"{tmp_path}/out.csv"])) == 0
    printed = capsys.readouterr().out
    assert "a: 11 documents, 154 tokens scored by exact" in printed
    assert "a is better" in printed
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 23
    for wrong, said in (
        (["--per-document", f"{tmp_path}/none/out.csv"], "no folder .*none for --per-document: make it"),
        (["--confidence", "95"], "got --confidence 95, expected a number between 0 and 1"),
    ):
        with pytest.raises((ValueError, OSError), match=said):
            run(parser.parse_args([*files, *common, *wrong]))
        assert capsys.readouterr().out == ""  # it said so after all documents were scored
    assert run(parser.parse_args([*files, *common, "--completion", "0.5"])) == 0
    assert "completion from 50%" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    topic_set(seed=1).save(tmp_path / "other" / "a.npz")
    alike = [tmp_path / "a.npz", tmp_path / "other" / "a.npz"]
    assert run(parser.parse_args(["--topics", *map(str, alike), *common])) == 0
    printed = capsys.readouterr().out
    assert f"{alike[0]} is better" in printed  # both would be called "a"
    assert str(alike[1]) in printed


@pytest.mark.parametrize("method", ["mfi", pytest.param("ais", marks=pytest.mark.slow)])
def test_keys_are_the_callers(corpus, method):
    """Another seed, other draws; the same seed, the same bits."""
    first, again, other = (held_out(topic_set(), corpus, method=method, seed=seed).log_likelihood for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
