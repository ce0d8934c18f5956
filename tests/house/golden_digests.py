"""Write the table of golden digests anew, after a change that means to change numbers, or write exact digests.

    python tests/house/golden_digests.py                     # writes golden_digests.json anew
    python tests/house/golden_digests.py --exact before.txt  # writes exact digests, and not the table
    python tests/house/golden_digests.py -k "evidence"       # only cases with this in their name

`test_golden_digests.py` says what is in the table. It is run here as pytest does, in a process of its own.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).with_name("golden_digests.json")
TESTS = Path(__file__).with_name("test_golden_digests.py")
WRITE, EXACT = "LVSEARCH_GOLDEN_WRITE", "LVSEARCH_GOLDEN_EXACT"
"""Environment variables by which this script tells the tests to write the table or exact digests."""


def main() -> int:
    """Run the tests in a process that writes, and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--exact", type=Path, help="write exact digests to this file, and leave the table as it is")
    parser.add_argument("-k", default="", help="only cases with these words, as pytest's -k")
    arguments = parser.parse_args()
    if arguments.exact is not None:
        arguments.exact.unlink(missing_ok=True)
    setting = {WRITE: "1"} if arguments.exact is None else {EXACT: str(arguments.exact.resolve())}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "thorough", "-k", arguments.k]
    return subprocess.call([*command, str(TESTS)], env={**os.environ, **setting}, cwd=Path(__file__).parents[2])


if __name__ == "__main__":
    sys.exit(main())
