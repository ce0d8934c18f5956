"""The hierarchical Dirichlet process as a topic model, by sticks on two levels, the bound one on the process itself.

Source: Teh, Jordan, Beal & Blei (2006); Blei (2004), §5.6. In the form of Wang, Paisley & Blei (2011, Eq. 1–5), whose
document sticks point to corpus topics through indicators, every complete conditional is an exponential family:

    1. concentrations    γ ~ Gamma, α ~ Gamma           or given values
    2. corpus sticks     V_k ~ Beta(1, γ)               k = 1, 2, …          weights β_k = V_k Π_{l<k} (1 − V_l)
    3. topics            φ_k ~ Dirichlet(η, …, η)
    4. document sticks   π'_dt ~ Beta(1, α)             t = 1, 2, …          weights π_dt likewise
    5. pointers          c_dt ~ Categorical(β)
    6. tables            z_dn ~ Categorical(π_d)
    7. word              w_dn ~ Categorical(φ_k),       k = c_{d, z_dn}

| field | letter | shape | support |
|---|---|---|---|
| `topic_concentration` | η | () | > 0 |
| `corpus_concentration` | γ | () or a `GammaPrior` | > 0 |
| `document_concentration` | α | () or a `GammaPrior` | > 0 |
| `tables` | truncation of a document's sticks | | |
| site `corpus_concentration`, `document_concentration` | (log γ, −γ), (log α, −α) | () | only with a prior |
| site `corpus_sticks` | (log V_k, log(1 − V_k)) | (topic,) | (0, 1) |
| site `topic_word` | log φ | (topic, word) | simplex |
| site `pointer` | c_dt | (table, topic) | one-hot |
| site `table` | z_dn, one row for each *distinct* word of the document | (token, table) | one-hot |
| site `document_sticks` | (log π', log(1 − π')) | (table,) | (0, 1) |

Departure. The last stick of either level keeps its Beta prior, and only q(z > tables) = q(c > size) = 0: sticks,
pointers and topics beyond have their prior as q and cancel. So the bound is one on the process, not on a truncated
model (whose last stick is 1, and whose evidence can be higher).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from lvsearch.models.contract import Masks, Site, Statistics, first, hyperparameter
from lvsearch.models.families import Beta, BetaStatistics, Categorical, Dirichlet, Gamma, GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior, given_or_prior, in_words
from lvsearch.models.topic_model import TopicModel
from lvsearch.models.units import BagOfWords

CORPUS_PRIOR, DOCUMENT_PRIOR = GammaPrior(1.0, 0.1), GammaPrior(1.0, 1.0)
"""Those of Teh et al. (2006), §6.1."""
TABLES = 12
"""A document of Cora has some five topics; bounds and held-out scores hardly move beyond ten tables."""


class HDP(TopicModel):
    """Hierarchical Dirichlet process topics; `size` is the truncation of q's corpus sticks, not a size of the model.

    topic_concentration: the symmetric Dirichlet on each topic's words.
    corpus_concentration, document_concentration: γ and α; a number fixes one, a `GammaPrior` makes it a site that is
        inferred.
    tables: the truncation of a document's sticks: at most so many of its tables have words.

    How many topics there are is read off a fit or a chain as a posterior over *occupied* topics. Every truncation
    bounds the same evidence from below: a larger one is only a better bound.
    """

    topic_concentration: np.ndarray
    corpus_concentration: np.ndarray | GammaPrior
    document_concentration: np.ndarray | GammaPrior
    tables: int = eqx.field(static=True)

    size_names: ClassVar[tuple[str, ...]] = ("truncation",)
    nested: ClassVar[bool] = False
    unit_type: ClassVar[type] = BagOfWords
    representation: ClassVar[str] = "pointer"
    topic_site: ClassVar[str] = "topic_word"

    def __init__(
        self,
        topic_concentration: Any = 0.05,
        corpus_concentration: Any = CORPUS_PRIOR,
        document_concentration: Any = DOCUMENT_PRIOR,
        tables: int = TABLES,
    ):
        self.topic_concentration = hyperparameter(topic_concentration)
        if self.topic_concentration.ndim or not self.topic_concentration > 0:
            raise ValueError(f"topic_concentration must be one positive number, got {topic_concentration!r}")
        self.corpus_concentration = given_or_prior("corpus_concentration", corpus_concentration)
        self.document_concentration = given_or_prior("document_concentration", document_concentration)
        if tables < 1:
            raise ValueError(f"got tables={tables}, expected at least 1: every word of a document sits at one")
        self.tables = int(tables)

    def describe(self) -> str:
        """Such as "HDP: topic_concentration 0.05; corpus concentration ~ Gamma(1, rate 0.1); …"."""
        return (
            f"HDP: topic_concentration {float(self.topic_concentration):g}; corpus concentration "
            f"{in_words(self.corpus_concentration)}; document concentration {in_words(self.document_concentration)}; "
            f"{self.tables} tables in a document"
        )

    def globals(self) -> dict[str, Site]:
        sites = {}
        if isinstance(self.corpus_concentration, GammaPrior):
            sites["corpus_concentration"] = Site(Gamma(), ())
        if isinstance(self.document_concentration, GammaPrior):
            sites["document_concentration"] = Site(Gamma(), ())
        sites["corpus_sticks"] = Site(Beta(), ("topic",))
        sites["topic_word"] = Site(Dirichlet(), ("topic", "word"))
        return sites

    def locals(self) -> dict[str, Site]:
        return {
            "pointer": Site(Categorical(), ("table", "topic")),
            "table": Site(Categorical(), ("token", "table"), copies=lambda unit: unit.counts),
            "document_sticks": Site(Beta(), ("table",)),
        }

    def extents(self, unit: BagOfWords) -> dict[str, int]:
        return {"token": unit.words.shape[-1], "table": self.tables}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        return {"topic": first(size[0], capacity[0])}

    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        log_gamma, gamma = _log_and_value(g, "corpus_concentration", self.corpus_concentration)
        sticks = log_gamma + (gamma - 1) * g["corpus_sticks"].log_complement  # log Beta(V | 1, γ)
        log_phi = g["topic_word"]
        n_words, eta = log_phi.shape[-1], jnp.asarray(self.topic_concentration, log_phi.dtype)
        topics = gammaln(n_words * eta) - n_words * gammaln(eta) + ((eta - 1) * log_phi).sum(-1)
        total = jnp.where(on["topic"], sticks + topics, 0.0).sum()
        for name, value in (
            ("corpus_concentration", self.corpus_concentration),
            ("document_concentration", self.document_concentration),
        ):
            if isinstance(value, GammaPrior):
                total = total + _log_gamma_density(g[name], value)
        return total

    def log_unit(
        self, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: BagOfWords, on: Masks
    ) -> Float[Array, ""]:
        log_alpha, alpha = _log_and_value(g, "document_concentration", self.document_concentration)
        sticks, pointer, at_table = l["document_sticks"], l["pointer"], unit.counts[:, None] * l["table"]
        log_phi = g["topic_word"][:, unit.words].T  # (token, topic)
        return (
            (log_alpha + (alpha - 1) * sticks.log_complement).sum()  # log Beta(π' | 1, α)
            + (pointer * self.log_weights(g, on)).sum()  # Σ_t log p(c_t | β)
            + (at_table * log_stick_weights(sticks)).sum()  # Σ_n log p(z_n | π)
            + ((at_table.T @ log_phi) * pointer).sum()  # Σ_n log p(w_n | φ, k = c_{z_n})
        )

    def log_weights(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, " topic"]:
        """log β_k = log V_k + Σ_{l<k} log(1 − V_l); 0 for topics that do not exist."""
        exists = on["topic"]
        sticks = jax.tree.map(lambda leaf: jnp.where(exists, leaf, 0.0), g["corpus_sticks"])
        return jnp.where(exists, log_stick_weights(sticks), 0.0)

    def expected_weights(self, natural: Mapping[str, Statistics]) -> tuple[Float[np.ndarray, " topic"], float]:
        """(E[β_k] under the fitted sticks, the mass left for topics beyond the truncation): they sum to 1."""
        a, b = (np.asarray(leaf, np.float64) + 1 for leaf in natural["corpus_sticks"])
        left = np.cumprod(b / (a + b))
        return a / (a + b) * np.concatenate([[1.0], left[:-1]]), float(left[-1])

    def expected_concentration(self, name: str, natural: Mapping[str, Statistics]) -> float:
        """E[γ] or E[α] by its field's name: of its site, or the given value."""
        value = getattr(self, name)
        if not isinstance(value, GammaPrior):
            return float(value)
        return float((np.float64(natural[name].log_value) + 1) / np.float64(natural[name].negative_value))

    def proportions_prior(
        self, size: tuple[int, ...], natural: Mapping[str, Statistics]
    ) -> Float[np.ndarray, " topic"]:
        """E[α] E[β_k]: given β, a document's shares of any finite partition of the topics are Dirichlet(α β). The mass
        left for topics beyond the truncation is left out."""
        weights, _ = self.expected_weights(natural)
        return self.expected_concentration("document_concentration", natural) * weights

    def log_symmetry(self, size: tuple[int, ...], natural: Mapping[str, Statistics]) -> float:
        """0: sticks have an order, so that no relabelling of a fit is equally good."""
        return 0.0

    def ceiling(self, units: BagOfWords) -> float:
        """Σ_d Σ_w n_dw log(n_dw / N_d): the saturated model.

        Proof: given topics and proportions every token of document d has one distribution over words, and
        Σ_w n_w log p_w over the simplex is greatest at p_w = n_w / N (Gibbs' inequality). An average is at most the
        maximum.
        """
        counts = np.asarray(units.counts, np.float64)
        return float(_xlogx(counts).sum() - _xlogx(counts.sum(-1)).sum())

    def plug_in(self) -> "HDP":
        raise ValueError(
            'HDP has no plug-in form, got evidence="plug-in": use evidence="marginal". With estimated topics, every '
            "document would be given one of its own"
        )

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: BagOfWords, on: Masks
    ) -> BagOfWords:
        """Draw a word for every token; needs one token a column (counts 0 or 1), since copies may differ."""
        words = jax.random.categorical(key, l["table"] @ l["pointer"] @ g["topic_word"])
        return BagOfWords(words.astype(unit.words.dtype), unit.counts)

    def simulate(
        self, key: Array, size: tuple[int, ...], units: BagOfWords, extents: Mapping[str, int]
    ) -> tuple[dict[str, Statistics], dict[str, Statistics], BagOfWords]:
        """Draw from the joint, one token a column of `units` (counts 0 or 1); extents: {"word": V}.

        Pointers and tables that fall beyond the truncation are drawn again: the truncated model.
        """
        keys = jax.random.split(key, 8)
        n_docs, length = units.words.shape
        on = self.active(size, size)
        g: dict[str, Statistics] = {}
        for k, name in zip(keys[:2], ("corpus_concentration", "document_concentration"), strict=True):
            prior = getattr(self, name)
            if isinstance(prior, GammaPrior):
                natural = GammaStatistics(jnp.asarray(prior.shape) - 1, jnp.asarray(prior.rate))
                g[name] = Gamma().sample(k, natural)
        _, gamma = _log_and_value(g, "corpus_concentration", self.corpus_concentration)
        _, alpha = _log_and_value(g, "document_concentration", self.document_concentration)
        g["corpus_sticks"] = _prior_sticks(keys[2], gamma, size)
        eta = jnp.broadcast_to(jnp.asarray(self.topic_concentration), (size[0], extents["word"]))
        g["topic_word"] = Dirichlet().sample(keys[3], eta - 1)
        sticks = _prior_sticks(keys[4], alpha, (n_docs, self.tables))
        pointed = jax.random.categorical(keys[5], self.log_weights(g, on), shape=(n_docs, self.tables))
        weights = jax.vmap(log_stick_weights)(sticks)
        seated = jax.random.categorical(keys[6], weights[:, None, :], shape=(n_docs, length))
        l = {
            "pointer": jax.nn.one_hot(pointed, size[0]),
            "table": jax.nn.one_hot(seated, self.tables),
            "document_sticks": sticks,
        }
        word_keys = jax.random.split(keys[7], n_docs)
        return g, l, jax.vmap(lambda k, lu, u: self.draw_unit(k, g, lu, u, on))(word_keys, l, units)


def log_stick_weights(sticks: BetaStatistics) -> Float[Array, " stick"]:
    """log V_t + Σ_{s<t} log(1 − V_s), linear in the sticks' statistics."""
    return sticks.log_value + jnp.cumsum(sticks.log_complement) - sticks.log_complement


def _log_and_value(g: Mapping[str, Statistics], name: str, value: Any) -> tuple[Any, Any]:
    if isinstance(value, GammaPrior):
        return g[name].log_value, -g[name].negative_value
    return jnp.log(value), jnp.asarray(value)


def _log_gamma_density(x: GammaStatistics, prior: GammaPrior) -> Array:
    shape, rate = prior
    return shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * x.log_value + rate * x.negative_value


def _prior_sticks(key: Array, concentration: Any, shape: tuple[int, ...]) -> BetaStatistics:
    natural = BetaStatistics(jnp.zeros(shape), jnp.broadcast_to(jnp.asarray(concentration) - 1, shape))
    return Beta().sample(key, natural)


def _xlogx(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.where(x > 0, x, 1.0))
