"""A search in a process of its own, which kills itself (SIGKILL) when asked to. Run by test_kill_resume.py.

arguments: the folder to search into or to go on in, "bound" or "plug-in", what is counted ("fits": calls of the
evaluator; "writes": files whose bytes are safe but not yet renamed), after how many of them to be killed, and how long
to rest before each fit (seconds), for parents that kill after a while.
"""

import os
import signal
import sys
import time
from pathlib import Path

from small_searches import MAX_SIZE, PRIOR, corpus

import lvsearch as lv
from lvsearch.files import storage
from lvsearch.searching import evaluators


def main(folder: str, evidence: str, counted: str, last: str, rest: str) -> None:
    counts = {"fits": 0, "writes": 0}

    def count(what: str) -> None:
        counts[what] += 1
        if what == counted and counts[what] == int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    evaluate, fsync = evaluators.ModelEvaluator.evaluate, os.fsync

    def counting_evaluate(self: evaluators.ModelEvaluator, *arguments: object) -> object:
        count("fits")
        time.sleep(float(rest))
        return evaluate(self, *arguments)  # pyright: ignore[reportArgumentType]

    def counting_fsync(handle: int) -> None:
        fsync(handle)
        count("writes")

    evaluators.ModelEvaluator.evaluate = counting_evaluate  # pyright: ignore[reportAttributeAccessIssue]
    storage.os.fsync = counting_fsync
    if (Path(folder) / storage.MANIFEST).exists():
        lv.resume(folder, report=False, progress=False)
    else:
        lv.search(
            lv.models.LDA(),
            corpus(),
            prior=PRIOR,
            evidence=evidence,
            max_size=MAX_SIZE,
            seed=2,
            progress=False,
            out=folder,
            report=False,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
