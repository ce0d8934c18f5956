"""The evidence of documents under given topics, by importance sampling from draws of their posterior.

With topics φ and concentration α given, documents are independent. Let w_d be the words of document d, z the topics of
its tokens, n_d(z) their counts by topic, and θ_d its proportions. Then θ_d | z is Dirichlet(α + n_d(z)). So draws z^1,
…, z^P of the posterior make q(θ) = (1/P) Σ_p Dirichlet(θ; α + n_d(z^p)), which converges to the posterior of θ_d
itself, and

    p(w_d | φ, α) = E_{θ ~ q} [ Dirichlet(θ; α) / q(θ) · Π_i Σ_k θ_k φ_k,w_i ]

has weights that hardly vary. The prior is one more component of q, so weights are bounded, and the average is unbiased
whatever the draws are. For a mean-field q see `lvsearch.inference.likelihood`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.kernels import kernel

BROAD = (1.0, 0.5, 0.0)
"""Shares of the mean counts that make further components of q, because few draws of z miss much that is probable."""


@kernel(static_argnames=("samples",))
def log_independent(
    key: Key[Array, ""],
    word: Int[Array, "document token"],
    document_topic: Float[Array, "document topic particle"],
    alpha: Float[Array, " topic"],
    log_topics: Float[Array, "word topic"],
    *,
    samples: int,
) -> tuple[Float[Array, " document"], Float[Array, " document"]]:
    """Estimate log p(words | topics, α) of each document by importance sampling.

    word: words of each document, −1 for padding.
    document_topic: how many tokens of each document are in each topic, in posterior draws of the tokens' topics.
    alpha: the proportions' concentration on each topic, 0 for topics that do not exist.
    log_topics: log probability of each word in each topic.
    samples: number of samples from each component of the proposal distribution.

    Returns: (the estimates, nats, corrected for the bias of the logarithm; their squared standard errors).
    """
    exists = alpha > 0
    safe = jnp.where(exists, alpha, 1.0)
    topics = jnp.where(exists, jnp.exp(log_topics), 0.0)
    mean = document_topic.mean(2, keepdims=True)
    components = jnp.concatenate([document_topic, *(share * mean for share in BROAD)], axis=2).astype(topics.dtype)

    def one(given: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        """Return (the estimated log evidence of one document, its squared standard error)."""
        key, words, counts = given
        shape = jnp.where(exists[:, None], safe[:, None] + counts, 1.0)
        log_gamma = log_gamma_draws(key, jnp.broadcast_to(shape, (samples, *shape.shape)))
        log_gamma = jnp.where(exists[:, None], log_gamma, -jnp.inf)
        log_theta = log_gamma - jax.nn.logsumexp(log_gamma, axis=1, keepdims=True)
        log_theta = jnp.moveaxis(log_theta, 1, 2).reshape(-1, len(alpha))
        likelihood = jnp.exp(log_theta) @ topics[jnp.maximum(words, 0)].T
        fit = jnp.where(words >= 0, jnp.log(jnp.where(words >= 0, likelihood, 1.0)), 0.0).sum(1)
        # log Dir(θ; α + n) / Dir(θ; α) = Σ_k n_k log θ_k − log Γ(α_k + n_k) + log Γ(α_k) + log Γ(A + N) − log Γ(A)
        total = jnp.where(exists, alpha, 0.0).sum()
        constant = log_gamma_positive(total + counts.sum(0)) - log_gamma_positive(total)
        constant -= jnp.where(exists[:, None], log_gamma_positive(shape) - log_gamma_positive(safe)[:, None], 0.0).sum(
            0
        )
        log_ratio = jnp.where(exists, log_theta, 0.0) @ counts + constant
        log_weight = fit - (jax.nn.logsumexp(log_ratio, axis=1) - jnp.log(counts.shape[1]))
        estimate = jax.nn.logsumexp(log_weight) - jnp.log(len(log_weight))
        squared_error = jnp.var(jnp.exp(log_weight - estimate)) / len(log_weight)
        return estimate + 0.5 * squared_error, squared_error

    return jax.lax.map(one, (jax.random.split(key, len(word)), word, components))
