"""`python -m lvsearch` is the command `lvsearch`."""

from lvsearch.command.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
