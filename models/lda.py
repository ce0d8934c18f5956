"""Latent Dirichlet allocation.

Source: Blei (2004), §3.2–3.4. The generative story, with the equations that define it:

    1. topics        β_k ~ Dirichlet(η, …, η)           k = 1…K topics      (Figure 3.6; absent in the plug-in form)
    2. proportions   θ_d ~ Dirichlet(α_1, …, α_K)       d = 1…D documents   (Eq. 3.1)
    3. assignment    z_dn ~ Categorical(θ_d)            n = 1…N_d tokens    (Eq. 3.5)
    4. word          w_dn ~ Categorical(β_{z_dn})                           (Eq. 3.5)

    0. α = A/K, A ~ Gamma and η ~ Gamma where these have priors; the thesis gives or estimates them (§3.4.3)

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `topic_concentration` | η (the thesis' λ of §3.4.3) | () or a `GammaPrior` | > 0; None where topics have no prior |
| `concentration` | α: () a total A, spread evenly, or a `GammaPrior` of it; (K,): one value per topic | | > 0 |
| site `topic_word` | log β | (topic, word) | simplex |
| site `proportions` | log θ_d | (topic,) | simplex |
| site `assignment` | z_dn, one row for each *distinct* word of the document | (token, topic) | one-hot |

Departure from the source. The copies of one word in a document share the q of their indicator. At the optimum of the
bound they would be equal anyway (Eq. 3.9 depends on n only through w_n), so nothing is lost.

Seeds (`TopicSeeds`) are imaginary tokens of the first S topics: s_kw copies of word w whose topic is known to be k.
These topics have the prior Dirichlet(η + s_k), which is what Dirichlet(η, …, η) becomes by seeing such tokens. So
wherever counts of words in topics are summed, the sums of these topics begin at s_k, and nothing else changes. Seeded
topics cannot be exchanged with others, and `log_symmetry` counts relabellings of the K − S free ones alone.

A and η stand inside log Γ, so the log-joint is not linear in any statistic of them, and they cannot be latent variables
of `Model`. Code that evaluates the log-joint needs numbers (`numbers`, `with_numbers`). Simulation, the annealed
evidence and the fit handle the priors.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from lvsearch.models.contract import (
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Site,
    Statistics,
    concentration_parameter,
    hyperparameter,
    is_known_false,
    log_relabellings,
)
from lvsearch.models.families import Categorical, Dirichlet, Family, Gamma, GammaStatistics, PointSimplex
from lvsearch.models.hyperpriors import GammaPrior, as_text, positive_or_gamma_prior
from lvsearch.models.plain_arguments import as_list, numbers, whole_number
from lvsearch.models.topic_model import TokenTopics
from lvsearch.models.units import BagOfWords

HYPER = 0xA1FA
"""A number folded into a random key for hyper-parameters, so that their draws differ from all others of that key."""


MOST_SEEDS = 1e6
"""The most imaginary tokens of one topic; chains count tokens in float32, which is exact up to 16 million."""
SEED_SHARE, MOST_BY_DEFAULT, WITHOUT_CORPUS = 1000, 100, 10
"""The default number of imaginary tokens of a topic: one for so many tokens of the corpus, at most so many, and so many
where only words are given.

More of them than the corpus supports make a topic of the words alone, and what they belong to goes to a free topic.
Where five topics were fitted to 4,800 tokens of three planted ones, 100 imaginary tokens found 4 of 20 named topics,
and 6 found 13 (`tests/benchmarks/seed_tokens.py`).
"""


@runtime_checkable
class HasVocabulary(Protocol):
    """The interface of a corpus, as far as seeds ask for it: the words, in the order of the columns of its counts."""

    @property
    def vocabulary(self) -> Sequence[str]:
        """The words of the corpus, one for each column."""
        ...

    @property
    def n_tokens(self) -> int:
        """The number of tokens of all documents together."""
        ...


class TopicSeeds(eqx.Module):
    """The seeds of the first topics of an `LDA`: imaginary tokens of words whose topic is known.

    `of_counts` makes them of a table.

    | field | shape | meaning |
    |---|---|---|
    | `tokens` | (entry,) | numbers of imaginary tokens of a word in a topic, none of them 0 |
    | `topics`, `words` | (entry,) | the number of the topic, and that of the word |
    | `n_topics`, `n_words` | | the number of seeded topics, and of words in the vocabulary |
    | `names` | | a name for each seeded topic, all different; () where they have none |

    Only entries are kept, because most words are in no seeds, and models are stored with every fit.
    """

    tokens: HyperparameterArray
    topics: tuple[int, ...] = eqx.field(static=True)
    words: tuple[int, ...] = eqx.field(static=True)
    n_topics: int = eqx.field(static=True)
    n_words: int = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        tokens: Any,
        topics: Sequence[int],
        words: Sequence[int],
        n_topics: int,
        n_words: int,
        names: Sequence[str] = (),
    ):
        self.tokens = hyperparameter(tokens)
        self.topics, self.words = (tuple(map(int, each)) for each in (topics, words))
        self.n_topics, self.n_words = int(n_topics), int(n_words)
        self.names = tuple(str(name) for name in names)

    @classmethod
    def of_counts(cls, counts: Any, names: Sequence[str] = ()) -> "TopicSeeds":
        """Return the seeds with these numbers of imaginary tokens of each word in each seeded topic.

        counts: (topic, word), whole numbers from 0 on, with one token at least and a million at most in each topic. No
            two topics are alike, since nothing could tell them apart.
        names: a name for each seeded topic, or ().

        Raises ValueError for other counts and names.
        """
        counts, names = numbers("seeds", counts), tuple(as_list("names", names))
        if counts.ndim != 2 or not counts.size:
            raise ValueError(f"got seeds of shape {counts.shape}, expected (seeded topic, word), none of them 0")
        if not np.all(np.isfinite(counts) & (counts >= 0) & (counts == np.floor(counts))):
            raise ValueError("got seeds that are negative or not whole, expected numbers of tokens: round them")
        if names and (len(names) != len(counts) or len(set(names)) < len(names)):
            raise ValueError(f"got the names {names} for {len(counts)} topics, expected one each, all different")
        totals = counts.sum(1)
        if totals.min() < 1 or totals.max() > MOST_SEEDS:
            raise ValueError(
                f"got topics with {totals.min():g} to {totals.max():g} seed tokens, expected at least 1 and at most "
                f"{MOST_SEEDS:g}: leave a topic without seeds out, it is free"
            )
        if len(np.unique(counts, axis=0)) < len(counts):
            raise ValueError(
                "got two topics with the same seeds, which nothing could tell apart: leave one of them out"
            )
        topics, words = np.nonzero(counts)
        return cls(counts[topics, words], topics.tolist(), words.tolist(), len(counts), counts.shape[1], names)

    @property
    def counts(self) -> Float[np.ndarray, "topic word"]:
        """The number of imaginary tokens of each word in each seeded topic, (topic, word), float64."""
        found = np.zeros((self.n_topics, self.n_words))
        found[self.topics, self.words] = self.tokens
        return found

    def padded(self, n_topics: int, dtype: Any) -> Float[Array, "topic word"]:
        """Return the imaginary tokens of `n_topics` topics, (topic, word): of the seeded ones, then rows of zeros.

        Raises ValueError for fewer topics than have seeds.
        """
        self.require_topics(n_topics)
        entries = np.array(self.topics, np.int32), np.array(self.words, np.int32)
        return jnp.zeros((n_topics, self.n_words), dtype).at[entries].set(jnp.asarray(self.tokens, dtype))

    def require_topics(self, n_topics: int) -> None:
        """Raise ValueError for fewer topics than have seeds."""
        if n_topics < self.n_topics:
            raise ValueError(f"got {n_topics} topics, expected at least {self.n_topics}: so many have seeds")

    def extend_to(self, n_words: int) -> "TopicSeeds":
        """Return the seeds over a vocabulary of `n_words` words, with new ones at the end, which have no tokens."""
        return TopicSeeds(self.tokens, self.topics, self.words, self.n_topics, n_words, self.names)

    def describe(self) -> str:
        """Describe the seeds in a few words, such as "2 seeded topics (sport, money)"."""
        named = f" ({', '.join(self.names)})" if self.names else ""
        return f"{self.n_topics} seeded topic{'' if self.n_topics == 1 else 's'}{named}"


class LDA(TokenTopics):
    """Latent Dirichlet allocation with `size` topics.

    concentration: total mass of the Dirichlet on a document's proportions, spread evenly over the topics, so that the
        prior on proportions does not sharpen as topics are added. Or a vector with one value per topic. Or a
        `GammaPrior` of the total, which is then inferred, and integrated out of the evidence.
    topic_concentration: parameter of the symmetric Dirichlet on each topic's words, or a `GammaPrior` of it. None means
        no prior on topics, which are then parameters (`plug_in`): the log-joint is log p(data, locals | topics).
    topics: the family of the topics; leave it to `plug_in`.
    seeds: the seeds of the first topics, as `with_seeds` makes them; None for topics that are all free.

    The default topic_concentration, 0.05, was chosen on one training split of Cora among 0.03, 0.05, 0.1 and 0.2. It
    had, with 0.03, the highest evidence, and its best size also predicted held-out documents best. Compare others with
    `tests/benchmarks/cora_sizes.py --topic-concentration 0.1`.

    `nested` is True, and concerns the plug-in form alone: Proposition 1 of Chiang & Poole holds there with a free
    vector α. Proof: β and α are given for K topics. For K + 1 topics put β'_{K+1} = β_k, α'_k = α_k − ε and α'_{K+1} =
    ε for any 0 < ε < α_k. By Dirichlet aggregation (θ'_k + θ'_{K+1}, the others) ~ Dirichlet(α). p(w | θ', β') depends
    on θ' only through that sum, so every document keeps its probability *exactly*; ε → 0 is an empty extra topic. The
    proof fails where α is fixed or symmetric: the prior then changes with K.
    """

    concentration: HyperparameterArray | GammaPrior
    topic_concentration: HyperparameterArray | GammaPrior | None
    topics: Family
    seeds: TopicSeeds | None

    nested: ClassVar[bool] = True

    def __init__(
        self,
        concentration: Any = 5.0,
        topic_concentration: Any = 0.05,
        topics: Family | None = None,
        seeds: Any = None,
    ):
        self.topics = Dirichlet() if topics is None else topics
        self.seeds = seeds
        # an estimated concentration may grow beyond the limit that is set for given ones
        estimated = isinstance(self.topics, PointSimplex)
        self.concentration = _positive_or_prior("concentration", concentration, estimated)
        if topic_concentration is None and not isinstance(self.topics, PointSimplex):
            raise ValueError(
                "got topic_concentration=None, expected a positive number: topics that are integrated out need a prior"
            )
        self.topic_concentration = (
            None if topic_concentration is None else _positive_or_prior("topic_concentration", topic_concentration)
        )
        if isinstance(self.topics, PointSimplex) and self.inferred:
            raise ValueError(
                f"got a GammaPrior of {' and '.join(self.inferred)} and topics that are estimated; expected numbers: "
                "nothing is integrated out there"
            )
        if seeds is None:
            return
        if not isinstance(seeds, TopicSeeds):
            raise ValueError(
                f"got seeds={seeds!r}, expected TopicSeeds: LDA().with_seeds(corpus, …) makes them of words"
            )
        if isinstance(self.topics, PointSimplex) or isinstance(self.topic_concentration, GammaPrior):
            raise ValueError(
                "got seeds with topics that are estimated, or whose concentration has a GammaPrior; expected a number "
                'as topic_concentration, and any evidence but "plug-in": seeds add to the prior of the topics'
            )

    @property
    def n_given(self) -> int:
        """The number of topics that have seeds; they come first."""
        return 0 if self.seeds is None else self.seeds.n_topics

    def with_seeds(
        self,
        vocabulary: HasVocabulary | Collection[str],
        seeds: Mapping[str, Collection[str]] | Any,
        *,
        tokens: int | None = None,
        names: Sequence[str] = (),
    ) -> "LDA":
        """Return the model with topics that come first and are about given words; all other topics stay free.

        vocabulary: the corpus, or its words in order.
        seeds: {name of a topic: its words}. Or an array (topic, word) of imaginary tokens, whole numbers from 0 on,
            such as the rounded counts of another fit's topics. A large number of them holds a topic where it is.
        tokens: for words, the number of imaginary tokens of each topic, which are dealt evenly to its words. The more
            they are, the less a topic moves away from its words. None for a thousandth of the tokens of the corpus,
            but at least one a word and at most 100; 10 or one a word if only words are given.
        names: for an array, a name for each topic.

        Raises ValueError for words that the vocabulary lacks, a topic without words or with one twice, fewer tokens
        than words, and numbers that `TopicSeeds` refuses.
        """
        words = tuple(vocabulary.vocabulary if isinstance(vocabulary, HasVocabulary) else as_list("words", vocabulary))
        if isinstance(seeds, Mapping):
            if names:
                raise ValueError(f"got names={names!r} beside seeds that have names, expected them for an array alone")
            usual = vocabulary.n_tokens // SEED_SHARE if isinstance(vocabulary, HasVocabulary) else WITHOUT_CORPUS
            counts = [
                _seed_counts(str(name), each, words, min(MOST_BY_DEFAULT, usual), tokens)
                for name, each in seeds.items()
            ]
            names = tuple(str(name) for name in seeds)
        else:
            counts = numbers("seeds", seeds)
        found = LDA(self.concentration, self.topic_concentration, self.topics, TopicSeeds.of_counts(counts, names))
        found.require_words(len(words))
        return found

    def require_words(self, n_words: int) -> None:
        """Raise ValueError if there are seeds, and they are of another number of words than `n_words`."""
        if self.seeds is not None and self.seeds.n_words != n_words:
            raise ValueError(
                f"got seeds over {self.seeds.n_words:,} words and documents over {n_words:,}, expected the same "
                "words: make the seeds with this corpus, LDA().with_seeds(corpus, …)"
            )

    @property
    def inferred(self) -> dict[str, GammaPrior]:
        """The priors of the hyper-parameters that have one, as {name of the field: prior}."""
        both = {"concentration": self.concentration, "topic_concentration": self.topic_concentration}
        return {name: value for name, value in both.items() if isinstance(value, GammaPrior)}

    def numbers(self) -> tuple[Any, Any]:
        """Return (`concentration`, `topic_concentration`) as arrays, the second None where topics have no prior.

        Raises ValueError where one of them has a `GammaPrior`.
        """
        if isinstance(self.concentration, GammaPrior) or isinstance(self.topic_concentration, GammaPrior):
            raise ValueError(
                f"got an LDA whose {' and '.join(self.inferred)} has a GammaPrior, expected numbers: its log-joint is "
                "no sum over statistics of these. Put numbers in their place with with_numbers(…)"
            )
        return self.concentration, self.topic_concentration

    def numbers_by_name(self) -> dict[str, np.ndarray]:
        """Return the hyper-parameters as {name of the field: number}, without topic_concentration where topics have no
        prior.

        Raises ValueError where one of them has a `GammaPrior`.
        """
        concentration, topic_concentration = self.numbers()
        found = {"concentration": concentration}
        return found if topic_concentration is None else {**found, "topic_concentration": topic_concentration}

    def with_numbers(self, concentration: Any, topic_concentration: Any) -> "LDA":
        """Return the model with numbers in place of the `GammaPrior`s of its hyper-parameters.

        concentration: the total A, used only if `concentration` has a prior.
        topic_concentration: η, used only if `topic_concentration` has a prior.

        A hyper-parameter without a prior keeps its value, whatever is passed for it.
        """
        alpha = concentration if isinstance(self.concentration, GammaPrior) else self.concentration
        eta = topic_concentration if isinstance(self.topic_concentration, GammaPrior) else self.topic_concentration
        return LDA(alpha, eta, self.topics, self.seeds)

    def on_longer_axes(self, extents: Mapping[str, int]) -> "LDA":
        """Return the model for documents over a longer vocabulary, whose seeds have no tokens of the new words.

        extents: {"word": the number of words}.
        """
        if self.seeds is None:
            return self
        return LDA(self.concentration, self.topic_concentration, self.topics, self.seeds.extend_to(extents["word"]))

    def at_prior_means(self) -> "LDA":
        """Return the model with each `GammaPrior` replaced by its mean, or the model itself if it has no such prior."""
        means = {name: prior.shape / prior.rate for name, prior in self.inferred.items()}
        return self.with_numbers(means.get("concentration"), means.get("topic_concentration")) if means else self

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "LDA: topic_concentration 0.1; concentration 5 in total, spread evenly (α = 5/K)".
        """
        words = [] if self.topic_concentration is None else [f"topic_concentration {as_text(self.topic_concentration)}"]
        if self.seeds is not None:
            words.append(self.seeds.describe())
        if isinstance(self.concentration, GammaPrior):
            words.append(f"concentration {as_text(self.concentration)} in total, spread evenly")
            return f"LDA: {'; '.join(words)}"
        total = float(self.concentration.sum())
        if isinstance(self.topics, PointSimplex):
            words.append(f"topics estimated, with {self.topics.smoothing:g} pseudo-counts per word")
            start = "" if self.concentration.ndim else "starting from "
            words.append(f"concentration estimated, one α per topic, {start}{total:g} in total")
        elif self.concentration.ndim:
            words.append(f"concentration {total:g} in total, one α per topic")
        else:
            words.append(f"concentration {total:g} in total, spread evenly (α = {total:g}/K)")
        return f"LDA: {'; '.join(words)}"

    def globals(self) -> dict[str, Site]:
        """Return the latent variable that all documents share: the topics, "topic_word", on the axes (topic, word)."""
        return {"topic_word": Site(self.topics, ("topic", "word"))}

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one document: the topic of each token, and the proportions of the topics."""
        return {
            "assignment": Site(Categorical(), ("token", "topic"), copies=lambda unit: unit.counts),
            "proportions": Site(Dirichlet(), ("topic",)),
        }

    def alpha(self, on: Masks) -> Float[Array, " topic"]:
        """Return α, the Dirichlet parameter of a document's proportions, shape (topic,); 0 for topics that do not
        exist.

        on: {"topic": mask of the topics that exist}.
        """
        return _concentration_per_topic(self.numbers()[0], on)

    def proportions_prior(self, size: tuple[int, ...], natural: Latents) -> Float[np.ndarray, " topic"]:
        """Return α, the Dirichlet parameter of a document's proportions, as float64 of shape (K,) for K topics.

        size: (K,). natural: not used by this model. A total concentration is spread evenly over the topics.
        """
        total = self.numbers()[0]
        spread = total / size[0] if np.ndim(total) == 0 else total
        return np.broadcast_to(np.asarray(spread, np.float64), (size[0],)).copy()

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return Σ_k log Dirichlet(β_k | η + s_k) over the topics in nats, with s_k the topic's seeds; 0 if topics have
        no prior.

        g: {"topic_word": log β, shape (topic, word)}. on: {"topic": mask of the topics that exist}.
        """
        log_beta, topic_concentration = g["topic_word"], self.numbers()[1]
        if topic_concentration is None:
            return jnp.zeros((), log_beta.dtype)
        n_words = log_beta.shape[-1]
        eta = jnp.asarray(topic_concentration, log_beta.dtype)
        if self.seeds is not None:
            of_words = eta + self.seeds.padded(len(log_beta), log_beta.dtype)
            constants = gammaln(of_words.sum(-1)) - gammaln(of_words).sum(-1)
            return jnp.where(on["topic"], constants + ((of_words - 1) * log_beta).sum(-1), 0.0).sum()
        constant = gammaln(n_words * eta) - n_words * gammaln(eta)  # log-normaliser of Dirichlet(η, …, η)
        per_topic = constant + ((eta - 1) * log_beta).sum(-1)
        return jnp.where(on["topic"], per_topic, 0.0).sum()

    def log_unit(self, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> Float[Array, ""]:
        """Return log p(θ | α) + Σ_n [log p(z_n | θ) + log p(w_n | z_n, β)] of one document with tokens n, in nats.

        g: {"topic_word": log β, shape (topic, word)}.
        l: {"proportions": log θ, shape (topic,); "assignment": z, shape (token, topic)}.
        unit: the document. on: {"topic": mask of the topics that exist}.
        """
        log_theta, z = l["proportions"], l["assignment"]
        log_beta = g["topic_word"][:, unit.words].T  # (token, topic)
        weighted = unit.counts[:, None] * z
        return (
            self._log_proportions(log_theta, on)  # log p(θ | α)
            + (weighted * log_theta).sum()  # Σ_n log p(z_n | θ)
            + (weighted * log_beta).sum()  # Σ_n log p(w_n | z_n, β)
        )

    def _log_proportions(self, log_theta: Float[Array, " topic"], on: Masks) -> Float[Array, ""]:
        """Return log Dirichlet(θ | α) of one document, in nats.

        log_theta: log proportions, shape (topic,). on: {"topic": mask of the topics that exist}.
        """
        topic = on["topic"]
        alpha = self.alpha(on).astype(log_theta.dtype)
        safe = jnp.where(topic, alpha, 1.0)  # log Γ(0) would be inf, and inf · 0 is not 0
        return gammaln(alpha.sum()) + jnp.where(topic, (safe - 1) * log_theta - gammaln(safe), 0.0).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K free topics in groups of m_j identical ones: the log number of
        relabellings. Topics with seeds keep their places and are not counted.

        size: (number of topics,). natural: {"topic_word": natural parameters, shape (topic, word)}.
        """
        rows = np.asarray(natural["topic_word"])[self.n_given : size[0]]
        return log_relabellings(rows)

    def plug_in(self) -> "LDA":
        """Return the model with point estimates of the topics, which no longer have a prior.

        The estimate is the posterior mean of a topic under η pseudo-counts per word, where η is `topic_concentration`.

        Raises ValueError where hyper-parameters have priors.
        """
        if self.inferred:
            raise ValueError(
                f"got a GammaPrior of {' and '.join(self.inferred)}, expected numbers for the plug-in form, in which "
                'nothing is integrated out: give numbers, or use evidence="marginal"'
            )
        if self.seeds is not None:
            raise ValueError(
                "got seeds, expected none for the plug-in form, in which topics have no prior that seeds could add to: "
                'use evidence="marginal", "predictive" or "bound"'
            )
        concentration, topic_concentration = self.numbers()
        if topic_concentration is None:
            return self
        return LDA(concentration, None, PointSimplex(smoothing=float(topic_concentration)))

    def simulate(self, key: Array, size: tuple[int, ...], units: BagOfWords, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, latent variables and words from the joint distribution.

        size: (number of topics,).
        units: documents with one token in each column (counts 0 or 1); their words are replaced.
        extents: {"word": V}, the number V of words in the vocabulary.

        Returns (statistics of the globals by name, statistics of the locals by name with documents leading, the
        documents). Hyper-parameters x that have priors are drawn first and returned among the globals, as (log x, −x)
        by name.

        Raises ValueError for topics that have no prior.
        """
        key_topics, key_theta, key_z, key_words = jax.random.split(key, 4)
        n_docs, length = units.words.shape
        on = self.active(size, size)
        if self.topic_concentration is None:
            raise ValueError("cannot draw topics that have no prior: give topic_concentration")
        # drawn on the log scale: sparse draws underflow, and 0 · log 0 would make words NaN
        g: dict[str, Statistics] = {}
        value: dict[str, Any] = {"concentration": self.concentration, "topic_concentration": self.topic_concentration}
        for position, (name, prior) in enumerate(self.inferred.items()):
            natural = GammaStatistics(jnp.asarray(prior.shape) - 1, jnp.asarray(prior.rate))
            g[name] = Gamma().sample(jax.random.fold_in(key, HYPER + position), natural)
            value[name] = -g[name].negative_value
        alpha = _concentration_per_topic(value["concentration"], on)
        eta = jnp.broadcast_to(jnp.asarray(value["topic_concentration"]), (size[0], extents["word"]))
        if self.seeds is not None:
            eta = eta + self.seeds.padded(size[0], eta.dtype)
        log_beta = Dirichlet().sample(key_topics, eta - 1)
        log_theta = Dirichlet().sample(key_theta, jnp.broadcast_to(alpha - 1, (n_docs, size[0])))
        chosen = jax.random.categorical(key_z, log_theta[:, None, :], shape=(n_docs, length))
        g["topic_word"] = log_beta
        l = {"assignment": jax.nn.one_hot(chosen, size[0]), "proportions": log_theta}
        return g, l, self._draw_units(key_words, g, l, units, on)


def _seed_counts(
    name: str, words: Collection[str], vocabulary: Sequence[str], usual: int, tokens: int | None
) -> Float[np.ndarray, " word"]:
    """Return the imaginary tokens of each word of the vocabulary in one topic, (word,).

    name: the name of the topic, for messages. words: its words.
    tokens: the number of tokens, dealt evenly to them; None for `usual` many, but at least one each.

    Raises ValueError for no words, a word twice, a word that the vocabulary lacks, and fewer tokens than words.
    """
    listed, place = as_list(f"words of the topic {name!r}", words), {word: at for at, word in enumerate(vocabulary)}
    if not listed or len(set(listed)) < len(listed):
        raise ValueError(f"got the words {listed} for the topic {name!r}, expected at least one, and none twice")
    for word in listed:
        if word not in place:
            near = difflib.get_close_matches(str(word), map(str, vocabulary), 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(
                f"got the word {word!r} for the topic {name!r}, expected one of the {len(vocabulary):,} words of the "
                f"corpus{meant}: words in few documents may have been left out of it"
            )
    tokens = max(usual, len(listed)) if tokens is None else whole_number("tokens", tokens, least=len(listed))
    counts = np.zeros(len(vocabulary))
    counts[[place[word] for word in listed]] = tokens // len(listed) + (np.arange(len(listed)) < tokens % len(listed))
    return counts


def _concentration_per_topic(concentration: Any, on: Masks) -> Float[Array, " topic"]:
    """Return one concentration per topic, shape (topic,); 0 for topics that do not exist.

    concentration: a total of shape (), shared evenly by the topics that exist, or one value per topic, shape (K,).
    on: {"topic": mask of the topics that exist}.
    """
    topic = on["topic"]
    if concentration.ndim == 0:
        return jnp.where(topic, concentration / topic.sum(), 0.0)
    return jnp.where(topic, jnp.pad(concentration, (0, len(topic) - len(concentration))), 0.0)


def _positive_or_prior(name: str, value: Any, estimated: bool = False) -> HyperparameterArray | GammaPrior:
    """Return positive numbers as an array, or a `GammaPrior` with its two parameters as arrays.

    name: the name of the hyper-parameter, for the error message. value: a number, a vector, or a `GammaPrior`.
    estimated: True if the number is only the starting point of an estimate; no largest value is then enforced.

    Raises ValueError for any other value.
    """
    if isinstance(value, GammaPrior):
        return positive_or_gamma_prior(name, value)
    array = hyperparameter(value) if estimated else concentration_parameter(name, value)
    if array.size == 0 or is_known_false(array > 0):
        raise ValueError(f"{name} must be positive, got {value!r}; small values make sparse draws, 0 is not a prior")
    return array
