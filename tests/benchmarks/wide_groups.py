"""Count the steps, one after another, of a sweep over the topics of all tokens on a device, and what of it is accepted.

    python tests/benchmarks/wide_groups.py [--corpus cora ap] [--topics 64 200] [--sweeps 10] [--seed 0]

The sweeps of gains between sizes draw groups of tokens that share neither document nor word, at most 64, one group
after another. A word needs as many groups as it has tokens. Wide groups have one token of several hundred documents, so
that a sweep has as many groups as the longest document has tokens, and words repeat. There the tokens of each word are
accepted or refused together, and then the change of the topics' totals decides on the whole group
(`topic_samplers.topic_state`). The table has the share of the tokens with a new topic that are accepted with their
words, and that of the groups.

The seconds of a sweep are those of this machine, for one particle, without compiling; wide groups are meant for
accelerators.
"""

import argparse
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from corpora import corpus_named

from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.topic_samplers.chain import CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.topic_state import GroupUniforms, TopicState, redraw_group

TOTAL_CONCENTRATION, TOPIC_CONCENTRATION = 5.0, 0.05
"""α of all topics together, and η."""


class Judged(NamedTuple):
    """Counts of the tokens of each group in one sweep, each (group,), and whether the group was accepted.

    `proposed` counts the tokens that were proposed another topic, `words` those of them whose word was accepted;
    `totals` is True where the group was accepted.
    """

    proposed: Any
    words: Any
    totals: Any


@jax.jit
def swept(chain: CollapsedTopics, key: Any, state: TopicState, number: Any) -> TopicState:
    """Return the state after some sweeps."""
    return jax.lax.fori_loop(0, number, lambda i, now: chain.sweep_posterior(jax.random.fold_in(key, i), now), state)


@partial(jax.jit, static_argnames="groups")
def judged(chain: CollapsedTopics, key: Any, state: TopicState, groups: int) -> Judged:
    """Return what is accepted of each group in one sweep, each (group,)."""
    rule, shape = chain.posterior_rule(), (chain.width, 1)

    def one(now: TopicState, group: Any) -> tuple[TopicState, Judged]:
        at = chain.group_at(group)
        keys = jax.random.split(jax.random.fold_in(key, group), 3)
        whole = GroupUniforms(
            *(jax.random.uniform(k, s, jnp.float32) for k, s in zip(keys, (shape, 1, shape), strict=True))
        )
        anyhow = whole._replace(group=jnp.zeros(1))  # the group is accepted whatever its ratio
        each = (whole, anyhow, anyhow._replace(words=jnp.zeros(shape)))
        ends = [redraw_group(now, now.assignment, at, rule, numbers) for numbers in each]
        after, by_words, proposed = (
            jax.lax.dynamic_slice_in_dim(end.assignment, at.first, chain.width) for end in ends
        )
        before = jax.lax.dynamic_slice_in_dim(now.assignment, at.first, chain.width)
        moves = proposed != before
        return ends[0], Judged(moves.sum(), (moves & (by_words == proposed)).sum(), (after == by_words).all())

    return jax.lax.scan(one, state, jnp.arange(groups))[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", nargs="+", default=["cora", "ap"])
    parser.add_argument("--topics", nargs="+", type=int, default=[64, 200])
    parser.add_argument("--sweeps", type=int, default=10, help="before the one that is counted")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("| corpus | tokens | topics | small groups | wide groups | tokens accepted | groups accepted | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.corpus:
        counts = counts_of(corpus_named(name).dataset())
        for n_topics in given.topics:
            alpha, key, seconds, steps = (
                np.full(n_topics, TOTAL_CONCENTRATION / n_topics),
                jax.random.key(given.seed),
                [],
                [],
            )
            with jax.enable_x64(True):
                for wide in (False, True):
                    chain = collapsed_topics(counts, alpha, TOPIC_CONCENTRATION, n_topics, wide=wide)
                    begin = np.random.default_rng(given.seed).integers(0, n_topics, (len(chain.word), 1), np.int32)
                    state = chain.state_of_topics(jnp.where(jnp.asarray(chain.word)[:, None] >= 0, begin, -1))
                    state = jax.block_until_ready(swept(chain, key, state, given.sweeps))
                    other_key = jax.block_until_ready(jax.random.fold_in(key, 1))
                    began = time.perf_counter()
                    jax.block_until_ready(swept(chain, other_key, state, 3))
                    seconds.append((time.perf_counter() - began) / 3)
                    steps.append(int((chain.word.reshape(-1, chain.width) >= 0).any(1).sum()))
                found = judged(chain, jax.random.fold_in(key, 2), state, steps[1])
            of_tokens, of_groups = found.words.sum() / found.proposed.sum(), found.totals.mean()
            shares = f"{100 * float(of_tokens):.1f} % | {100 * float(of_groups):.1f} %"
            numbers = f"{int(counts.sum()):,} | {n_topics} | {steps[0]:,} | {steps[1]:,}"
            print(f"| {name} | {numbers} | {shares} | {seconds[0]:.2f}, {seconds[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
