"""A report: the longest functions and files, and the largest rooms, in lines.

    python tests/house/sizes.py

Nothing here is a limit. A file that is cut in two to stay below some number is harder to read than a long one; a number
that has grown is a reason to look.
"""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWN = 12


def main() -> None:
    """Print the longest of each kind."""
    functions, files, rooms = Counter(), Counter(), Counter()
    for folder in ("models", "inference", "lvsearch"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents):
                continue  # the links in lvsearch/ to the other two folders
            name, text = path.relative_to(ROOT), path.read_text("utf-8")
            files[str(name)] = rooms_lines = len(text.splitlines())
            rooms[str(name.parent)] += rooms_lines
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                    functions[f"{name}: {node.name}"] = node.end_lineno - node.lineno + 1
    for what, lengths in (("functions", functions), ("files", files), ("rooms", rooms)):
        print(f"{what}: {len(lengths):,}, {sum(lengths.values()):,} lines; the longest:")
        for name, lines in lengths.most_common(SHOWN):
            print(f"  {lines:>6,}  {name}")


if __name__ == "__main__":
    main()
