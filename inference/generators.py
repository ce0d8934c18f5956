"""Random numbers and keys on the host, from the keys that the device uses.

Outside of programs `jax.random` compiles one for every kind of call, which on little data is longer than the fit, and
calls it, which is longer than the few sums here. Keys of the kind that JAX makes unless it is told otherwise are
counters through Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror & Shaw, *Parallel Random Numbers: As Easy as 1, 2,
3*, 2011); the bits are those of `jax.random`. Of other keys, and of keys that are traced, `jax.random` is asked.
"""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int, Key

WORD = 0xFFFFFFFF
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
"""What Threefry's third key word is besides the other two."""
ROUNDS = 5
"""Of four rotations each."""
DISTINCT = 3.0
"""log of the largest number of sort keys drawn, over that of the numbers sorted: how rare it is that two are equal."""


def generator(key: Array) -> np.random.Generator:
    """NumPy's generator seeded by the bits of a JAX key: the same key, the same numbers."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def generators(key: Array, number: int) -> list[np.random.Generator]:
    """So many that are independent: those of `split_key`."""
    return [generator(each) for each in split_key(key, number)]


def key_of(seed: int) -> Key[Array, ""]:
    """The key that `jax.random.key` makes of a seed."""
    if not _by_default(None):
        return jax.random.key(seed)
    high = seed >> 32 & WORD if jax.config.jax_enable_x64 else 0  # pyright: ignore[reportAttributeAccessIssue]
    return _wrapped((high, seed & WORD))


def split_key(key: Key[Array, ""], number: int = 2) -> list[Key[Array, ""]]:
    """The keys of `jax.random.split`."""
    if not _by_default(key):
        return list(jax.random.split(key, number))
    words = _words(key)
    return [_wrapped(_threefry(words, 0, counter)) for counter in range(number)]


def folded(key: Key[Array, ""], *numbers: int) -> Key[Array, ""]:
    """The key of `jax.random.fold_in`, of one number after another."""
    if not _by_default(key):
        for number in numbers:
            key = jax.random.fold_in(key, number)
        return key
    words = _words(key)
    for number in numbers:
        words = _threefry(words, 0, int(np.uint32(number)))
    return _wrapped(words)


def shuffled(key: Key[Array, ""], number: int) -> Int[np.ndarray, " number"]:
    """The permutation of `jax.random.permutation`: sorted by random words, as often as leaves no two alike."""
    if not _by_default(key):
        return np.asarray(jax.random.permutation(key, number))
    order, words, counters = np.arange(number), _words(key), np.arange(number, dtype=np.uint64)
    for _ in range(int(np.ceil(DISTINCT * np.log(max(1, number)) / np.log(WORD)))):
        words, drawn = _threefry(words, 0, 0), _threefry(words, 0, 1)
        order = order[np.argsort(np.bitwise_xor(*_threefry(drawn, 0, counters)), kind="stable")]
    return order


def _by_default(key: Array | None) -> bool:
    """Whether keys, and this one, are of the kind whose words are known here, at a time when they are."""
    config, known = jax.config, "threefry2x32"
    if config.jax_default_prng_impl != known or not config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    return key is None or (not isinstance(key, Tracer) and str(jax.random.key_impl(key)) == known)


def _words(key: Array) -> tuple[int, int]:
    one, two = np.asarray(jax.random.key_data(key)).tolist()
    return one, two


def _wrapped(words: tuple[int, int]) -> Key[Array, ""]:
    bits: Any = np.array(words, np.uint32)
    return jax.random.wrap_key_data(bits)


def _threefry(words: tuple[int, int], high: Any, low: Any) -> tuple[Any, Any]:
    """Threefry-2x32 of the pair of words of a counter, or of many in arrays of 64 bits, under a key."""
    schedule = (*words, words[0] ^ words[1] ^ PARITY)
    high, low = high + schedule[0] & WORD, low + schedule[1] & WORD
    for number in range(ROUNDS):
        for rotation in ROTATIONS[number % 2]:
            high = high + low & WORD
            low = (low << rotation & WORD | low >> 32 - rotation) ^ high
        high = high + schedule[(number + 1) % 3] & WORD
        low = low + schedule[(number + 2) % 3] + number + 1 & WORD
    return high, low
