"""Keys and permutations made on the host have the bits of `jax.random`."""

import jax
import numpy as np
import pytest
from jaxtyping import Array

from lvsearch.inference.generators import fold_in, generators, key_of, permutation, split_key

SEEDS = [0, 12345, 2**31 + 5, -3, 2**40 + 7]


def words(key: Array) -> list[int]:
    return np.asarray(jax.random.key_data(key)).ravel().tolist()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_make_the_same_keys(seed: int, wide: bool):
    with jax.enable_x64(wide):
        assert words(key_of(seed)) == words(jax.random.key(seed))


def test_keys_are_split_and_folded_as_on_the_device():
    key = jax.random.key(7)
    assert [words(each) for each in split_key(key, 5)] == np.asarray(
        jax.random.key_data(jax.random.split(key, 5))
    ).tolist()
    assert words(fold_in(key, 3, 2**32 - 1)) == words(jax.random.fold_in(jax.random.fold_in(key, 3), 2**32 - 1))
    assert words(fold_in(key)) == words(key)


@pytest.mark.parametrize("number", [0, 1, 2, 60, 5000])
def test_permutations_are_those_of_the_device(number: int):
    key = jax.random.key(1)
    assert np.array_equal(permutation(key, number), jax.random.permutation(key, number))


def test_numbers_that_are_no_words_are_refused():
    with pytest.raises(OverflowError):
        fold_in(jax.random.key(0), -1)


def test_other_kinds_of_keys_and_traced_ones_are_left_to_the_device():
    key = jax.random.key(0, impl="rbg")
    assert words(fold_in(key, 3)) == words(jax.random.fold_in(key, 3))
    assert [words(each) for each in split_key(key)] == [words(each) for each in jax.random.split(key)]
    assert np.array_equal(permutation(key, 9), jax.random.permutation(key, 9))
    plain = jax.random.key(0)
    assert words(jax.jit(lambda key: fold_in(key, 3))(plain)) == words(fold_in(plain, 3))


def test_generators_are_those_of_keys_that_are_split():
    key = jax.random.key(5)
    known = [np.random.default_rng(words(each)).random() for each in jax.random.split(key, 3)]
    assert [random.random() for random in generators(key, 3)] == known
