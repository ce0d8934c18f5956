"""Probabilistic latent semantic indexing: topics and the proportions of every training document, as parameters.

Source: Hofmann (1999); Blei (2004), §3.3.3. The story of the words of document d, whose length and number are given:

    1. topic of a word   z_dn ~ Categorical(θ_d)      n = 1…N_d tokens
    2. word              w_dn ~ Categorical(β_{z_dn})

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `smoothing` | pseudo-counts of every word in each topic | static | ≥ 0 |
| `tempering` | b, the exponent of the E-step | static | in (0, 1] |
| site `topic_word` | log β | (topic, word) | simplex, a point |
| site `proportions` | log θ_d | (topic,) | simplex, a point |
| site `assignment` | z_dn, one row for each *distinct* word of the document | (token, topic) | one-hot |

How it fits the interface `Model`. β and θ_d have no prior, so the log-joint is Σ_n log p(w_dn, z_dn | θ_d, β), and only
the indicators are summed out. What inference calls evidence is then the likelihood log p(data | θ̂, β̂) at point
estimates of *everything*, including θ_d of each training document. It grows with size, like the plug-in evidence of
other models, but it is no evidence for a size: `lv.search` asks for `evidence="plug-in"`. A new document has no θ_d.
See `lvsearch.inference.likelihood.proportions` for the two published ways out: marginalising over the training
documents, and folding in.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.models.contract import Latents, Masks, Site, log_relabellings
from lvsearch.models.families import Categorical, PointSimplex
from lvsearch.models.topic_model import TokenTopics
from lvsearch.models.units import BagOfWords


class PLSI(TokenTopics):
    """Probabilistic latent semantic indexing with `size` topics, by point estimates: nothing is integrated out.

    smoothing: pseudo-counts added to every word of each topic in the M-step; 0 is maximum likelihood.
    tempering: b of Hofmann's tempered EM, whose E-step is p(z | d, w) ∝ (θ_dz β_zw)^b; 1 is EM. It changes how
        parameters are estimated and how new documents are folded in (`lvsearch.inference.word_mixtures`), not the
        log-joint: the likelihood reported is always that of the model itself. The generic mean-field code makes plain
        E-steps. `lvsearch.inference.word_mixtures.choose_tempering` chooses b on documents held out of training.

    `nested` is True (Proposition 1 of Chiang & Poole). Proof: given β and θ with K topics, put for K + 1 topics
    β'_{K+1} = β_k, θ'_{d,K+1} = ε θ_dk and θ'_dk = (1 − ε) θ_dk. Every word keeps its probability exactly.
    """

    smoothing: float = eqx.field(static=True)
    tempering: float = eqx.field(static=True)

    nested: ClassVar[bool] = True

    def __init__(self, smoothing: float | int = 0.0, tempering: float | int = 1.0):
        if not 0 <= smoothing < np.inf:
            raise ValueError(f"got smoothing={smoothing!r}, expected pseudo-counts ≥ 0")
        if not 0 < tempering <= 1:
            raise ValueError(f"got tempering={tempering!r}, expected an exponent in (0, 1]; 1 is EM without tempering")
        self.smoothing, self.tempering = float(smoothing), float(tempering)

    def describe(self) -> str:
        """Describe the model in one line, such as "PLSI: everything estimated; 0 pseudo-counts per word; tempering
        0.8".
        """
        return f"PLSI: everything estimated; {self.smoothing:g} pseudo-counts per word; tempering {self.tempering:g}"

    def globals(self) -> dict[str, Site]:
        """Return the latent variable that all documents share: the topics, as point estimates, on the axes (topic,
        word).
        """
        return {"topic_word": Site(PointSimplex(smoothing=self.smoothing), ("topic", "word"))}

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one document: the topic of each distinct word, and its proportions as
        point estimates.
        """
        return {
            "assignment": Site(Categorical(), ("token", "topic"), copies=lambda unit: unit.counts),
            "proportions": Site(PointSimplex(), ("topic",)),
        }

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return 0 nats: the parameters have no prior."""
        return jnp.zeros((), g["topic_word"].dtype)

    def log_unit(self, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> Float[Array, ""]:
        """Return Σ_n c_n [log θ_{z_n} + log β_{z_n, w_n}] of one document, nats.

        w_n is its n-th distinct word, c_n the count of that word (0 for padding), and z_n its topic.

        g: {"topic_word": log β, (topic, word)}. l: {"proportions": log θ, (topic,); "assignment": z,
        (token, topic), one row per distinct word}. unit: the document. on: {"topic": mask of the topics that exist}.
        """
        weighted = unit.counts[:, None] * l["assignment"]
        return (weighted * (l["proportions"] + g["topic_word"][:, unit.words].T)).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K topics in groups of m_j identical ones: the log number of
        relabellings.

        size: (K,). natural: {"topic_word": natural parameters, shape (topic, word)}.
        """
        return log_relabellings(np.asarray(natural["topic_word"])[: size[0]])

    def proportions_prior(self, size: tuple[int, ...], natural: Latents) -> None:
        """Return None: unlike in LDA, proportions have no distribution."""
        return

    def plug_in(self) -> "PLSI":
        """Return the model itself: all its parameters are estimated already."""
        return self
