"""Random numbers and keys computed on the host, equal to those that `jax.random` would give.

Outside of compiled programs `jax.random` compiles a program for every kind of call. On little data that takes longer
than the fit itself. JAX's default keys are counters passed through Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror &
Shaw, *Parallel Random Numbers: As Easy as 1, 2, 3*, 2011). This module computes the same bits in NumPy. For traced
keys, and for keys of another kind, it calls `jax.random`.
"""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int, Key

WORD = 0xFFFFFFFF
"""The largest 32-bit word, used as a mask."""
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Threefry's rotation distances in bits. Rounds of four use the two rows in turn."""
PARITY = 0x1BD11BDA
"""Threefry's constant: its third key word is this number XOR the other two words."""
ROUNDS = 5
"""How often four rotations are made: 5 × 4 = 20 rounds."""
DISTINCT = 3.0
"""How much larger, in powers, the range of the sort keys is than the number of items sorted.

It decides how often `permutation` sorts: two equal sort keys should be rare.
"""


def generator(key: Array) -> np.random.Generator:
    """Return a NumPy generator seeded with the bits of a JAX key. The same key gives the same numbers."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def generators(key: Array, number: int) -> list[np.random.Generator]:
    """Return `number` independent NumPy generators, one for each key of `split_key`."""
    return [generator(each) for each in split_key(key, number)]


def key_of(seed: int) -> Key[Array, ""]:
    """Return the key that `jax.random.key(seed)` makes."""
    if not _is_threefry(None):
        return jax.random.key(seed)
    high = seed >> 32 & WORD if jax.config.jax_enable_x64 else 0  # pyright: ignore[reportAttributeAccessIssue]
    return _key_from_words((high, seed & WORD))


def split_key(key: Key[Array, ""], number: int = 2) -> list[Key[Array, ""]]:
    """Return the keys that `jax.random.split(key, number)` makes, as a list."""
    if not _is_threefry(key):
        return list(jax.random.split(key, number))
    words = _key_words(key)
    return [_key_from_words(_threefry(words, 0, counter)) for counter in range(number)]


def fold_in(key: Key[Array, ""], *numbers: int) -> Key[Array, ""]:
    """Return the key with numbers folded in one after another: the same key that repeated `jax.random.fold_in` gives.

    numbers: integers, such as the number of a chain or of a sweep, that make the keys of different uses differ.
    """
    if not _is_threefry(key):
        for number in numbers:
            key = jax.random.fold_in(key, number)
        return key
    words = _key_words(key)
    for number in numbers:
        words = _threefry(words, 0, int(np.uint32(number)))
    return _key_from_words(words)


def permutation(key: Key[Array, ""], number: int) -> Int[np.ndarray, " number"]:
    """Return the permutation of 0, …, number − 1 that `jax.random.permutation(key, number)` makes, (number,).

    Items are sorted by random words, so often that equal words are unlikely to matter.
    """
    if not _is_threefry(key):
        return np.asarray(jax.random.permutation(key, number))
    order, words, counters = np.arange(number), _key_words(key), np.arange(number, dtype=np.uint64)
    for _ in range(int(np.ceil(DISTINCT * np.log(max(1, number)) / np.log(WORD)))):
        words, drawn = _threefry(words, 0, 0), _threefry(words, 0, 1)
        order = order[np.argsort(np.bitwise_xor(*_threefry(drawn, 0, counters)), kind="stable")]
    return order


def _is_threefry(key: Array | None) -> bool:
    """Return True if this module can compute the bits of `key` itself, which needs JAX's default settings.

    JAX must use its default generator, Threefry, and the key must have known values rather than be traced. With
    `key=None` the settings alone are asked about.
    """
    config, known = jax.config, "threefry2x32"
    if config.jax_default_prng_impl != known or not config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    return key is None or (not isinstance(key, Tracer) and str(jax.random.key_impl(key)) == known)


def _key_words(key: Array) -> tuple[int, int]:
    """Return the two 32-bit words of a concrete Threefry key."""
    one, two = np.asarray(jax.random.key_data(key)).tolist()
    return one, two


def _key_from_words(words: tuple[int, int]) -> Key[Array, ""]:
    """Return the JAX key made of two 32-bit words."""
    bits: Any = np.array(words, np.uint32)
    return jax.random.wrap_key_data(bits)


def _threefry(words: tuple[int, int], high: Any, low: Any) -> tuple[Any, Any]:
    """Encrypt a counter of two 32-bit words by Threefry-2x32, and return the two words of the result.

    words: the two words of the key.
    high, low: the counter's words, as integers or as arrays of 64-bit integers.
    """
    # the key's words and their parity are added again after every four rotations
    schedule = (*words, words[0] ^ words[1] ^ PARITY)
    high, low = high + schedule[0] & WORD, low + schedule[1] & WORD
    for number in range(ROUNDS):
        for rotation in ROTATIONS[number % 2]:
            high = high + low & WORD
            low = (low << rotation & WORD | low >> 32 - rotation) ^ high
        high = high + schedule[(number + 1) % 3] & WORD
        low = low + schedule[(number + 2) % 3] + number + 1 & WORD
    return high, low
