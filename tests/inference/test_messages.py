"""What processes say to each other comes back as it was, and bytes of somebody else run nothing."""

import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest
from small_searches import assert_same_model, searched

import lvsearch as lv
from lvsearch.files.storage import CorruptFolderError
from lvsearch.inference import several_processes
from lvsearch.inference.annealing.dispatch import TwoSided
from lvsearch.inference.engine.estimator import Chunks
from lvsearch.inference.several_processes import HEAD, MessageError, decode, encode

PLAIN = [
    *(None, True, 3, -0.0, float("inf"), "größe\ud800", (1, (2.5, "x")), [1, [None]], {"a": {(2, 3): 1.5}}, 10**40),
    *(Chunks(5, 1), TwoSided(np.arange(3.0), np.ones(2), None, False)),
]


def same(mine: Any, its: Any) -> bool:
    """Equal, of the same types, down to the bits of arrays."""
    if isinstance(mine, np.ndarray | np.generic | jax.Array):
        ours, theirs = np.asarray(mine), np.asarray(its)
        return type(mine) is type(its) and ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
    if isinstance(mine, tuple | list):
        return type(mine) is type(its) and len(mine) == len(its) and all(map(same, mine, its))
    return type(mine) is type(its) and repr(mine) == repr(its)


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_data_come_back_as_they_were(value: Any):
    assert same(decode(encode(value)), value)
    assert same(decode(encode((value, value)))[1], value)


@pytest.mark.parametrize(
    "array",
    [np.zeros((0, 3)), np.float32(2.5), np.array([True, False]), np.arange(6, dtype=">i2").reshape(2, 3)[:, ::2]],
    ids=repr,
)
def test_arrays_come_back_bit_for_bit(array: Any):
    found = decode(encode([array, 1]))[0]
    assert same(found, array)
    assert found.shape == array.shape
    assert same(decode(encode(jax.numpy.ones((2, 2)))), jax.numpy.ones((2, 2)))


@pytest.mark.thorough
@pytest.mark.parametrize("evidence", ["bound", "plug-in"])
def test_fits_come_back(evidence: str):
    """With and without one's own: another process may have none."""
    for fit in searched(evidence).state.kept.values():
        for own in (fit, None):
            found = decode(encode(fit), own)
            assert (found.size, found.evidence, found.info, found.brackets) == (
                fit.size,
                fit.evidence,
                fit.info,
                fit.brackets,
            )
            assert_same_model(found.state.model, fit.state.model)
            mine, its = (jax.tree.leaves(each.state.natural) for each in (fit, found))
            assert all(map(same, mine, its))


class Mine(eqx.Module):
    """A class that the receiver knows of its own value alone, with a function in it."""

    weight: np.ndarray
    rule: Any = eqx.field(static=True)


def test_classes_and_functions_of_ones_own_are_the_receivers():
    sent, own = Mine(np.arange(3.0), np.exp), Mine(np.zeros(3), np.log)
    found = decode(encode(sent), own)
    assert type(found) is Mine
    assert found.rule is np.log
    np.testing.assert_array_equal(found.weight, sent.weight)
    with pytest.raises(MessageError, match="expected one of lvsearch"):
        decode(encode(sent))
    with pytest.raises(MessageError, match="none of my own"):
        decode(encode(np.exp))


ran: list[str] = []


@dataclass
class Trap:
    """What runs something when it is made."""

    command: str

    def __post_init__(self) -> None:
        ran.append(self.command)

    def __reduce__(self) -> tuple[Any, ...]:
        return ran.append, ("pickled",)


class Pair(NamedTuple):
    a: int
    b: int


def record(module: str, name: str) -> bytes:
    text = f'["record", "{module}", "{name}", [["plain", "echo"]]]'.encode()
    return len(text).to_bytes(HEAD, "little") + text


def test_nothing_of_somebody_else_runs():
    pickled = pickle.dumps(Trap("x"))
    ran.clear()
    with pytest.raises(MessageError):
        decode(pickled)
    for module, name in (("os", "system"), ("lvsearch.inference.several_processes", "sys.modules"), (__name__, "Trap")):
        with pytest.raises(MessageError, match="expected one of lvsearch"):
            decode(record(module, name))
    for module, name in (("lvsearch.api", "search"), ("lvsearch.inference.several_processes", "MessageError")):
        with pytest.raises(MessageError):
            decode(record(module, name))
    assert ran == []


def test_changed_messages_are_values_or_refused():
    """One byte of a message anywhere: what comes is a value or a MessageError."""
    message = encode({"a": (Chunks(5, 1), np.arange(4.0)), "b": [None, "x", 1.5]})
    refused = 0
    for place in range(len(message)):
        for bit in (0, 3, 6):
            changed = bytearray(message)
            changed[place] ^= 1 << bit
            try:
                decode(bytes(changed))
            except MessageError:
                refused += 1
    assert refused > 100
    for length in range(len(message)):
        with pytest.raises(MessageError):
            decode(message[:length])


def test_errors_go_between_processes_as_words():
    for error, name in (
        (CorruptFolderError("x"), "ValueError"),
        (FileExistsError("x"), "FileExistsError"),
        (lv.files.storage.FolderInUseError("x"), "OSError"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), "ValueError"),
    ):
        assert several_processes._nearest(error) == name
        assert several_processes.ERRORS[name]


def test_process_0_listens_where_it_was_told(monkeypatch: pytest.MonkeyPatch):
    given: dict[str, Any] = {}
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **settings: given.update(settings))
    lv.distributed.initialize("127.0.0.1:1234", 2, 0)
    assert given["coordinator_bind_address"] == "127.0.0.1:1234"
    lv.distributed.initialize("10.0.0.1:1234", 2, 0, bind="192.168.0.7:1234")
    assert given["coordinator_bind_address"] == "192.168.0.7:1234"
    for wrong in ("1234", ":1234", "x:y"):
        with pytest.raises(ValueError, match="host:port"):
            lv.distributed.initialize("10.0.0.1:1234", 2, 0, bind=wrong)
    assert "pickle" not in vars(several_processes)
    assert "pickle" not in vars(several_processes)
