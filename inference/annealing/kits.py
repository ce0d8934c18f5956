"""The class `ChainKit`: a record, for each type of chain, of what it offers the annealer beside its own path.

A type of chain without a record is refused. A chain that is annealed as if it had no better path gives wide ends, and
nothing says so; hence a chain says that it has none (`plain_kit`).
"""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import NamedTuple

from jaxtyping import Array, Key

from lvsearch.inference.chains import Chain, Sequential, State

FAR = 4000.0
"""Nats between both directions, times temperatures, beyond which a second path is annealed.

On a smooth path the distance falls as one over the temperatures, and then more temperatures suffice. The product was
2,000 to 2,600 on corpora that leave the number of topics open, and 14,000 on corpora that decide it.
"""


class Anchor(NamedTuple):
    """An annealing path from a q around one labelling (numbering of the components) and one mode of the posterior.

    `chain`: the path. `error`: the standard error of q's own normaliser, in nats; 0 if q is normalised.
    """

    chain: Chain
    error: float


class ChainKit(NamedTuple):
    """A record of what a chain offers the annealer beside its path along temperatures.

    | field | meaning |
    |---|---|
    | `sequential` | key -> the chain's units in an order drawn with the key; None if they cannot come one by one |
    | `along_data` | True if the path from the prior leads along the data (`prefixes`), False if along temperatures |
    | `anchored` | key, states -> a path around the best of them, or None; None for chains without such a path |
    | `patience` | (nats between both directions) × (temperatures) below which no second path is annealed |
    | `first_steps` | number of temperatures by default -> that of the cheapest annealing of this chain |
    | `in_small_steps` | True if a sweep takes thousands of small steps in turn, which a CPU does faster than a GPU |

    A path around the best particle is shorter, but stays in one labelling and one mode. `states` are the ends of the
    first path's forward annealing: particles of each of its two independent halves, or of the one run if it ran forward
    only. `patience` is 0 for chains whose second path, from a normalised q, is as cheap to draw from as the prior.
    """

    sequential: Callable[[Key[Array, ""]], Sequential] | None = None
    along_data: bool = False
    anchored: Callable[[Key[Array, ""], Sequence[State]], Anchor | None] | None = None
    patience: float = FAR
    first_steps: Callable[[int], int] = int
    in_small_steps: bool = False


@singledispatch
def chain_kit(chain: Chain) -> ChainKit:
    """Return what this chain offers the annealer, as registered for its type.

    Raises TypeError for a type of chain that says nothing, not even that it offers nothing (`plain_kit`).
    """
    raise TypeError(
        f"got a chain of type {type(chain).__name__}, expected one that says what it offers the annealer: register a "
        "function with lvsearch.inference.annealing.kits.chain_kit, `plain_kit` if its own path is all there is"
    )


def plain_kit(chain: Chain) -> ChainKit:
    """Return the kit of a chain whose own path, along temperatures, is all that it offers."""
    return ChainKit()
