"""Run the command `lvsearch` as `python -m lvsearch`."""

from lvsearch.command.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
