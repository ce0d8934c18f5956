"""Seeds of LDA's topics: what they make of the prior, how many relabellings are left, and which seeds are refused."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import gammaln

import lvsearch as lv
from lvsearch.models.lda import TopicSeeds
from lvsearch.models.units import BagOfWords

LDA = lv.models.LDA
WORDS = ("ball", "bank", "loan", "match", "tree")
COUNTS = np.array([[4, 0, 0, 3, 0], [0, 4, 3, 0, 0]])
TOPICS = 5


def seeded(**model: Any) -> lv.models.LDA:
    return LDA(3.0, 0.3, **model).with_seeds(WORDS, {"sport": ["ball", "match"], "money": ["bank", "loan"]}, tokens=7)


@pytest.mark.smoke
def test_tokens_are_dealt_evenly_to_the_words_of_a_topic():
    model = seeded()
    assert model.seeds is not None
    np.testing.assert_array_equal(model.seeds.counts, COUNTS)
    assert model.seeds.names == ("sport", "money")
    assert (model.n_given, model.smallest_size, LDA().n_given, LDA().smallest_size) == (2, (2,), 0, (1,))
    assert "2 seeded topics (sport, money)" in model.describe()
    with_corpus = LDA(3.0, 0.3).with_seeds(lv.Corpus.from_tokens([list(WORDS)]), {"sport": ["ball", "match"]}, tokens=7)
    assert with_corpus.seeds is not None
    np.testing.assert_array_equal(with_corpus.seeds.counts, COUNTS[:1])


@pytest.mark.parametrize("capacity", [TOPICS, TOPICS + 3])
def test_the_prior_of_a_seeded_topic_is_dirichlet_with_its_tokens_added(float64, capacity):
    """Against the density of Dirichlet(η + s) written out; and a seed more in one place moves it."""
    model, rng = seeded(), np.random.default_rng(0)
    topics = rng.dirichlet(np.ones(len(WORDS)), capacity)
    concentration = 0.3 + np.pad(COUNTS, ((0, TOPICS - 2), (0, 0)))
    by_hand = gammaln(concentration.sum(1)) - gammaln(concentration).sum(1)
    by_hand += ((concentration - 1) * np.log(topics[:TOPICS])).sum(1)
    on = {"topic": lv.models.first(TOPICS, capacity)}
    found = float(model.log_prior({"topic_word": np.log(topics)}, on))
    assert found == pytest.approx(by_hand.sum(), abs=1e-10)
    more = LDA(3.0, 0.3).with_seeds(WORDS, COUNTS + np.eye(2, 5, 4, int))
    assert abs(float(more.log_prior({"topic_word": np.log(topics)}, on)) - found) > 0.1
    empty = float(LDA(3.0, 0.3).log_prior({"topic_word": np.log(topics)}, on))
    assert abs(empty - found) > 0.1


def test_only_free_topics_are_relabelled():
    rng, model = np.random.default_rng(1), seeded()
    natural = {"topic_word": rng.uniform(0, 9, (TOPICS, 5))}
    assert model.log_symmetry((TOPICS,), natural) == pytest.approx(np.log(6))
    assert model.log_symmetry((2,), {"topic_word": natural["topic_word"][:2]}) == 0
    assert LDA(3.0, 0.3).log_symmetry((TOPICS,), natural) == pytest.approx(np.log(120))


@pytest.mark.thorough
def test_the_contract_is_kept_and_a_wrong_number_of_relabellings_is_found():
    corpus = lv.Corpus.from_matrix(np.random.default_rng(2).integers(0, 4, (6, 5)), WORDS)
    assert ("relabellings", "log 3! = 1.792") in lv.models.check(seeded(), corpus).findings

    class Careless(lv.models.LDA):
        def log_symmetry(self, size: tuple[int, ...], natural: Any) -> float:
            return float(gammaln(size[0] + 1))

    careless = Careless(3.0, 0.3, seeds=seeded().seeds)  # pyright: ignore
    with pytest.raises(ValueError, match="expected log 3! ="):
        lv.models.check(careless, corpus)


@pytest.mark.thorough
def test_simulated_topics_are_about_their_words():
    """The mean of many draws of a topic is that of Dirichlet(η + s): a 5-sigma test."""
    model, draws = seeded(), 4000
    units = BagOfWords(np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32))

    def topics(key: jax.Array) -> jax.Array:
        return jax.numpy.exp(model.simulate(key, (3,), units, {"word": 5})[0]["topic_word"])

    found = np.asarray(jax.vmap(topics)(jax.random.split(jax.random.key(0), draws)))
    concentration = 0.3 + np.pad(COUNTS, ((0, 1), (0, 0)))
    expected = concentration / concentration.sum(1, keepdims=True)
    error = found.std(0) / np.sqrt(draws)
    assert np.all(np.abs(found.mean(0) - expected) < 5 * error)
    assert np.any(np.abs(found[:, 2].mean(0) - expected[0]) > 5 * error[2])


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ({"a": ["bal"]}, "did you mean 'ball'"),
        ({"a": ["piano"]}, "expected one of the 5 words"),
        ({"a": []}, "expected at least one, and none twice"),
        ({"a": ["ball", "ball"]}, "none twice"),
        ({"a": "ball"}, "expected a list"),
        ({"a": ["ball"], "b": ["ball"]}, "nothing could tell apart"),
        ({}, "expected .seeded topic, word."),
        (np.zeros((1, 5)), "at least 1 and at most"),
        (np.full((1, 5), 1e6), "at least 1 and at most"),
        (np.full((1, 5), 0.5), "not whole"),
        (np.full((1, 5), np.inf), "not whole"),
        (-np.eye(2, 5), "negative"),
        (np.eye(2, 4), "seeds over 4 words and documents over 5"),
        ("ball", "expected numbers"),
    ],
)
def test_seeds_that_say_nothing_are_refused(seeds, message):
    with pytest.raises(ValueError, match=message):
        LDA().with_seeds(WORDS, seeds)


def test_what_seeds_do_not_go_with_is_refused():
    with pytest.raises(ValueError, match="whole number of at least 2"):
        LDA().with_seeds(WORDS, {"a": ["ball", "match"]}, tokens=1)
    with pytest.raises(ValueError, match="all different"):
        LDA().with_seeds(WORDS, np.eye(2, 5), names=["a", "a"])
    with pytest.raises(ValueError, match="for an array alone"):
        LDA().with_seeds(WORDS, {"a": ["ball"]}, names=["b"])
    with pytest.raises(ValueError, match="GammaPrior"):
        LDA(topic_concentration=lv.models.GammaPrior(1.0, 1.0)).with_seeds(WORDS, {"a": ["ball"]})
    with pytest.raises(ValueError, match="with_seeds"):
        LDA(seeds=COUNTS)  # pyright: ignore
    with pytest.raises(ValueError, match='use evidence="marginal"'):
        seeded().plug_in()
    with pytest.raises(ValueError, match="expected at least 2: so many have seeds"):
        seeded().log_prior({"topic_word": np.zeros((1, 5), np.float32)}, {"topic": lv.models.first(1, 1)})


def test_seeds_survive_a_change_of_hyperparameters():
    prior = lv.models.GammaPrior(1.0, 1.0)
    model = LDA(prior, 0.3).with_seeds(WORDS, COUNTS)
    assert isinstance(model.with_numbers(2.0, 0.3).seeds, TopicSeeds)
    assert model.at_prior_means().n_given == 2
