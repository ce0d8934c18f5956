"""Left-to-right estimators, weighted so that they are unbiased on p.

They are Wallach's particles (lr) and Buntine's sequential sampler (lrs). Token l of a document, counted from 0, has
word j_l and topic k_l. β_tj is the probability of word j in topic t, and α are the Dirichlet parameters of the topic
proportions. C_t counts the tokens of topic t.

  log p(j | α, β) = Σ_l log p(j_l | j_<l),   p(j_l | k_<l, j_<l) = Σ_t β_{t,j_l} (C_t(k_<l) + α_t) / (l + Σα)  (Eq. 5–7)

A chain goes from position to position. At position l it sweeps k_<l given j_<l R times, and records the predictive
probability w_r of j_l after each sweep. It goes on from the state of sweep r with probability w_r / Σw, draws k_l given
j_l, and multiplies its weight W by w̄_l = Σ_r w_r / R.

Claim: E W φ(k_≤l) = Σ_k p(k_≤l, j_≤l) φ(k_≤l) for every function φ, so E W = p(j) at the end, whatever R.

Proof by induction. A sweep leaves p(k_<l, j_<l) invariant, so each of its R states is as properly weighted as the last
one of position l − 1. The new factor and the choice give w̄ Σ_r (w_r / R w̄) Σ_t p(k_l = t | k_r, j_≤l) φ = Σ_r Σ_t
p(k_l = t, j_l | k_r) φ / R, whose mean is the claim at l. This is annealing's argument (Neal 2001, Jarzynski 1997) with
the data in the place of temperatures.

The estimate is the average of W over independent chains. An average over chains at each position, multiplied afterwards
(as printed, §3.5), is biased to either side. After one sweep chains are not draws from p(k_<l | j_<l), and W says by
how much.

One chain (§3.6) whose sweeps do not cross between modes of p(k | j) never finds the other modes, and its own spread
does not show it. At small α that is so for most documents. So a second annealing follows after the last word:

  α_0 = max(α, 1) falls to α in geometric steps, W ← W · p(k | α_t+1) / p(k | α_t), then one sweep at α_t+1       (A)

The claim holds by the same induction. At α ≥ 1 sweeps mix. On the way down modes part, and lose topics, slowly. A topic
of many tokens is not lost one token at a time. Far below α = 10⁻⁴, where a document may have to do without one,
estimates are low in nearly every run. Their errors say so (`doubted`), and mfi is to be preferred, since its proposal
has the smaller supports. A few chains that all missed a mode show it by no error. `annealed.py` resamples and moves
whole topics, which these chains do not.

  lr   `samples` chains, one sweep each per position
  lrs  2√samples chains, √samples/2 sweeps each per position (rounded up): less spread per chain, and (A) in steps that
       shrink with the sweeps. Twenty chains find a mode of a tenth of them in seven runs of eight, ten in two of three

log p̂ is low by Jensen's inequality, by half its squared error if that is small. Chains are independent, so the error
comes from the spread of W. At 50 topics log W has a standard deviation of 1 to 3 nats, and twenty chains may have none
of the large weights that make up the mean. The error allows for that (`average_of_chains`).

Departures from Buntine: the weights, and (A). Also, §3.6 as printed uses the sweep at l, which conditions on j_l, for
p(j_l | ·), which is biased. The order of a bag of words is by word index.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key
from scipy import sparse

from lvsearch.inference.likelihood.documents import DocumentTile, TopicSet
from lvsearch.inference.likelihood.gibbs_sweep import (
    Assignment,
    block_uniforms,
    choose,
    lane_keys,
    one_hot,
    sweep,
    sweep_keys,
    token_tile,
)
from lvsearch.inference.likelihood.sampling_estimates import (
    Bias,
    LikelihoodEstimate,
    average_of_chains,
    estimate_tiles,
    log_rising,
)
from lvsearch.models.kernels import kernel

WARM_ALPHA = 1.0
"""The least Dirichlet parameter at which a chain begins, before it falls to the given one.

Half of it, or a quarter, leaves more spread at every α below .1.
"""

LOG_STEP, AT_SWEEPS = 0.1, 2
"""The fall of log α per step of the annealing after the last word, and the sweeps per position up to which it holds.

With five sweeps a step is .04. Half the step takes a third off the errors at α = 10⁻⁴, where it is most of the work on
short documents.
"""

SLOW_FALL = 10.0  # of log α in steps that small: from 1 to 5e-5; below, no sweep changes the topics in use

LANES = 512  # documents × chains per call: enough to hide the loop's overhead, few enough to stay in cache


@kernel(static_argnames=("chains", "sweeps"))
def _log_weights(
    word_topic, warm, alpha, steps, slow_part, words, counts, lengths, rows, key, chains: int, sweeps: int
):
    """Return the log weight of every chain, and the part of it from the last step of the annealing, each (document,
    chain).

    A tile is a group of documents of one padded length.

    A chain's weight is an unbiased estimate of p(document). The annealing takes the Dirichlet parameters from `warm` to
    `alpha` after the last word.

    word_topic: p(word | topic), (word, topic).
    warm, alpha: Dirichlet parameters, (topic,).
    steps, slow_part: `steps` equal steps of log α cover the part `slow_part` of the way. The last of them goes on to
        the end.
    words, counts: a tile's tokens, and 1 for each (0 for padding), (document, position).
    lengths: the number of tokens of each document.
    rows: the number of each document in the corpus, with which its key is folded.
    chains, sweeps: how many chains each document has, and how many sweeps a chain makes at each position.
    """
    beta, real = token_tile(word_topic, words, counts)
    n_positions, n_topics, n_documents = beta.shape
    keys = lane_keys(key, rows, chains)
    longest = jnp.max(lengths)

    def joint(state: Assignment, position) -> Float[Array, "topic document chain"]:
        """Return the unnormalised probability of each topic and the word at a position, given the tokens before."""
        return (state.counts + warm[:, None, None]) * beta[position][:, :, None]

    def at_position(position, carry):
        """Move every chain on by one token: sweep, choose a state, draw the token's topic, and multiply the weight."""
        state, log_weight = carry

        def one_sweep(r, inner):
            """Make sweep `r` over the tokens so far, and keep one state of all sweeps made, drawn in proportion to the
            probability it gives the next word.

            inner: (state of the last sweep, state kept, sum of the sweeps' unnormalised probabilities of the next
                word).
            """
            state, kept, sum_ = inner
            step = sweep_keys(keys, position * (sweeps + 1) + r)
            state = sweep(step, position, state, warm, beta, real)
            w = jnp.sum(joint(state, position), axis=0)
            # Keep sweep r with probability w_r / Σw (reservoir sampling of one). Its uniform comes from a block of
            # draws that no sweep uses.
            replace = block_uniforms(step, n_positions, 1)[0] * (sum_ + w) < w
            kept = jax.tree.map(lambda new, old: jnp.where(replace, new, old), state, kept)
            return state, kept, sum_ + w

        start = state, state, jnp.zeros_like(log_weight)
        _, state, sum_ = lax.fori_loop(0, sweeps, one_sweep, start)
        uniform = block_uniforms(sweep_keys(keys, position * (sweeps + 1) + sweeps), 0, 1)[0]
        new = choose(joint(state, position), uniform)
        added = state.counts + one_hot(new, n_topics, real[position])
        predicted = jnp.log(sum_ / (sweeps * (position + jnp.sum(warm))))
        log_weight = log_weight + jnp.where(real[position][:, None] > 0, predicted, 0.0)
        return Assignment(state.topic.at[position].set(new), added), log_weight

    def log_prior(state: Assignment, a) -> Float[Array, "document chain"]:
        """Return log p(topics of tokens) under Dirichlet parameters `a`, nats."""
        per_topic = jnp.sum(log_rising(a[:, None, None], state.counts), axis=0)
        return per_topic - log_rising(jnp.sum(a), jnp.sum(real, axis=0))[:, None]

    def cool(step, carry):
        """Make one step of the annealing of the Dirichlet parameters: weigh, then sweep."""
        state, log_weight, before, _ = carry
        way = jnp.where(step + 1 < steps, slow_part * (step + 1) / steps, 1.0).astype(alpha.dtype)
        now = warm * (alpha / warm) ** way
        change = log_prior(state, now) - log_prior(state, before)
        first_unused = longest * (sweeps + 1)
        state = sweep(sweep_keys(keys, first_unused + step), longest, state, now, beta, real)
        return state, log_weight + change, now, change

    lanes = (n_documents, chains)
    start = Assignment(jnp.zeros((n_positions, *lanes), jnp.int32), jnp.zeros((n_topics, *lanes), beta.dtype))
    none = jnp.zeros(lanes, beta.dtype)
    state, log_weight = lax.fori_loop(0, longest, at_position, (start, none))
    _, log_weight, _, last = lax.fori_loop(0, steps, cool, (state, log_weight, warm, none))
    return log_weight, last


def doubted(estimate: LikelihoodEstimate, log_weights: np.ndarray, last: np.ndarray) -> LikelihoodEstimate:
    """Return the estimate with a further error, half of what the annealing's last step took from it.

    A chain that could have done without a topic would have lost less in that step. So the truth is between the estimate
    and the one before the step.

    log_weights: log weight of every chain, (document, chain), nats.
    last: the last step's part of each log weight.
    """
    taken = average_of_chains(log_weights - last).log_likelihood - estimate.log_likelihood
    return estimate._replace(standard_error=np.hypot(estimate.standard_error, np.maximum(taken, 0.0) / 2))


@dataclass(frozen=True)
class LeftToRight:
    """Estimates log p(document) by chains that go through its tokens from left to right.

    `particles`: True for one chain per sample (lr); False for a few chains of several sweeps that share the samples
        (lrs).
    """

    particles: bool
    bias: Bias = "unbiased"
    samples: int = 100

    def estimate(
        self, topics: TopicSet, counts: sparse.csr_array, samples: int, key: Key[Array, " "]
    ) -> LikelihoodEstimate:
        """Estimate log p of each document, nats, with errors from the spread of the chains' weights.

        topics: checked topics and Dirichlet parameters.
        counts: word counts, (document, word).
        samples: the number of sweeps at each token, over all chains.
        key: the random key.
        """
        chains = samples if self.particles else min(samples, ceil(2 * sqrt(samples)))
        sweeps = ceil(samples / chains)
        target = topics.active().alpha
        warm = np.maximum(target, WARM_ALPHA)
        fall = float(np.log(warm / target).max())
        slow = min(fall, SLOW_FALL)
        steps = ceil(slow / LOG_STEP * max(1.0, sweeps / AT_SWEEPS))

        def one_tile(tile: DocumentTile, word_topic, alpha) -> LikelihoodEstimate:
            """Estimate log p of the documents of one tile.

            A tile is a group of documents of one padded length.
            """
            log_weights, last = _log_weights(
                word_topic,
                jnp.asarray(warm, alpha.dtype),
                alpha,
                steps,
                slow / fall if fall else 1.0,
                tile.words,
                tile.counts,
                tile.counts.sum(axis=1),
                tile.padded_rows,
                key,
                chains,
                sweeps,
            )
            log_weights = np.asarray(log_weights, np.float64)
            estimate = average_of_chains(log_weights)
            return doubted(estimate, log_weights, np.asarray(last, np.float64)) if fall > slow else estimate

        # a tile has the same number of lanes whatever the length of its documents
        return estimate_tiles(topics, counts, one_tile, tokens=True, height_of=lambda _: max(1, LANES // chains))
