"""`python -m lvsearch` is the command `lvsearch`."""

from lvsearch.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
