"""One of two processes that search together, of which one is killed before its third fit.

Run by test_several_processes.py: COORDINATOR NUMBER FOLDER TIMEOUT KILLED
"""

import os
import signal
import sys
from typing import Any

import jax
from small_searches import corpus

import lvsearch as lv
from lvsearch.searching.evaluators import ModelEvaluator

THIRD = 3


def killed_before_third() -> Any:
    """`evaluate` that counts."""
    evaluate, calls = ModelEvaluator.evaluate, []

    def counting(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == THIRD:
            os.kill(os.getpid(), signal.SIGKILL)
        return evaluate(*args)

    return counting


if __name__ == "__main__":
    coordinator, number, folder, timeout, killed = sys.argv[1:]
    lv.distributed.initialize(coordinator, 2, int(number), timeout=int(timeout))
    if number == killed:
        ModelEvaluator.evaluate = killed_before_third()
    mesh = jax.make_mesh((jax.device_count(),), ("units",))
    lv.search(
        lv.models.LDA(), corpus(), evidence="bound", max_size=4, starts=1, seed=0, out=folder, report=False,
        progress=False, mesh=mesh,
    )  # fmt: skip
