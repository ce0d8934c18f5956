"""A tree of topics in the form that users see: as text, JSON, a picture, or a graph for networkx or Graphviz.

The picture has a box per node, from left to right, and is of limited height.
"""

import html
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from lvsearch.files.plain_text import visible

if TYPE_CHECKING:
    import networkx


MOST_HEIGHT = 1400
"""The default of the largest height of a picture in pixels, about two screens."""
ROW, BOX, ACROSS, PAD, BETWEEN = 15, 190, 46, 6, 8
"""Lengths in pixels: the height of a line of text, the width of a box, the space to the next level, the space inside a
box, and the space between boxes."""
SHADES = ("#fdf3d8", "#e3eefa", "#e8f5e4", "#f5e6f0")
INK, MUTED, LINE = "#1c2530", "#4b5563", "#888888"
"""Colours of text and lines. They are set, not inherited, since boxes are light on dark pages too."""
MOST_CHARACTERS = 30


@dataclass(frozen=True)
class TreeNode:
    """One topic of a tree.

    | field | meaning |
    |---|---|
    | `number` | the node's position in `TopicTree.nodes`; 0 is the root, parents come before their children |
    | `parent` | number of the parent; None for the root |
    | `level` | 0 for the root |
    | `documents` | training documents whose path passes the node (the expected number, for a mean-field fit) |
    | `tokens` | training tokens drawn from the node's topic (NaN for a mean-field fit) |
    | `words` | (word, probability) of the most probable words |
    | `examples` | names of training documents, those with the largest part of their tokens at this node first |
    """

    number: int
    parent: int | None
    level: int
    documents: float
    tokens: float
    words: tuple[tuple[str, float], ...]
    examples: tuple[str, ...]

    def label(self, n_words: int | None = None) -> str:
        """Return the node's top `n_words` words, separated by spaces; all listed words for None."""
        return " ".join(word for word, _ in self.words[:n_words])


def tree_svg(nodes: Sequence[TreeNode], n_words: int, most_height: float | int) -> str:
    """Return the picture of a tree as SVG (see `TopicTree.to_svg`).

    nodes: the root first, parents before their children.
    n_words: how many words a box shows.
    most_height: the largest height in pixels; nodes with the fewest documents are left out to keep within it.
    """
    shown = _fitting_numbers(nodes, n_words, most_height)
    left_out = {node.number: 0 for node in nodes}
    for node in nodes:
        if node.number not in shown and node.parent is not None:
            left_out[node.parent] += 1
    kept = [node for node in nodes if node.number in shown]
    top, height = _box_positions(kept, n_words, left_out)
    width = (1 + max(node.level for node in kept)) * (BOX + ACROSS) - ACROSS + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" role="img" '
        f'aria-label="tree of {len(nodes)} topics" viewBox="0 0 {width} {height:.0f}" font-family="sans-serif" '
        'font-size="11">'
    ]
    for node in kept:
        if node.parent is not None:
            parent = next(other for other in kept if other.number == node.parent)
            out.append(_line_svg(node, parent, top, n_words, left_out))
        out.append(_box_svg(node, top[node.number], n_words, left_out[node.number]))
    return "".join([*out, "</svg>"])


def count_in_words(documents: float) -> str:
    """Return a number of documents as text, such as "1 document" or "3.4 documents"."""
    number = f"{documents:,.0f}" if float(documents).is_integer() else f"{documents:,.1f}"
    return f"{number} document{'' if documents == 1 else 's'}"


def _fitting_numbers(nodes: Sequence[TreeNode], n_words: int, most_height: float | int) -> set[int]:
    """Return the numbers of the nodes that fit into the picture: those with most documents, each with all nodes above
    it.

    The root is always shown.
    """
    ranked = sorted(nodes, key=lambda node: (node.level != 0, -node.documents, node.level, node.number))
    # bisect the number of nodes; a parent has at least its children's documents, and comes first in ties
    low, high = 1, len(ranked)
    none = {node.number: 1 for node in nodes}
    while low < high:
        middle = (low + high + 1) // 2
        numbers = {node.number for node in ranked[:middle]}
        kept = [node for node in nodes if node.number in numbers]
        low, high = (middle, high) if _box_positions(kept, n_words, none)[1] <= most_height else (low, middle - 1)
    return {node.number for node in ranked[:low]}


def _height(node: TreeNode, n_words: int, left_out: int) -> int:
    """Return the height of a node's box, in pixels.

    left_out: how many of the node's children are not shown.
    """
    lines = -(-min(n_words, len(node.words)) // 2) + 1 + (left_out > 0)
    return ROW * lines + 2 * PAD


def _box_positions(kept: Sequence[TreeNode], n_words: int, left_out: dict[int, int]) -> tuple[dict[int, float], float]:
    """Return (the upper end of each node's box by node number, the height of the picture), in pixels.

    kept: the nodes that are shown. left_out: how many children of each node are not shown.
    """
    below: dict[int | None, list[TreeNode]] = {}
    for node in kept:
        below.setdefault(node.parent, []).append(node)
    top: dict[int, float] = {}

    def place(node: TreeNode, at: float) -> tuple[float, float]:
        """Place a node and all below it from height `at` on; return (middle of the node's box, where the next box may
        begin).
        """
        height, begin = _height(node, n_words, left_out[node.number]), at
        middles = []
        for child in below.get(node.number, ()):
            middle, at = place(child, at)
            middles.append(middle)
        if not middles:
            top[node.number] = at
            return at + height / 2, at + height + BETWEEN
        middle = max((middles[0] + middles[-1]) / 2, begin + height / 2)
        top[node.number] = middle - height / 2
        return middle, max(at, top[node.number] + height + BETWEEN)

    _, end = place(kept[0], 10.0)
    return top, end + 4


def _line_svg(node: TreeNode, parent: TreeNode, top: dict[int, float], n_words: int, left_out: dict[int, int]) -> str:
    """Return the SVG of the line from a node's parent to the node.

    top: the upper end of each node's box in pixels. left_out: how many children of each node are not shown.
    """
    x = 10 + node.level * (BOX + ACROSS)
    begin, bend = x - ACROSS, x - ACROSS / 2
    y0, y1 = (top[each.number] + _height(each, n_words, left_out[each.number]) / 2 for each in (parent, node))
    return f'<path d="M{begin},{y0:.1f} C{bend},{y0:.1f} {bend},{y1:.1f} {x},{y1:.1f}" fill="none" stroke="{LINE}"/>'


def _box_svg(node: TreeNode, y: float, n_words: int, left_out: int) -> str:
    """Return the SVG of a node's box.

    y: the upper end of the box in pixels. left_out: how many of the node's children are not shown.
    """
    x, height = 10 + node.level * (BOX + ACROSS), _height(node, n_words, left_out)
    examples = "\n".join(["Example documents:", *map(visible, node.examples)]) if node.examples else "no examples"
    words = [visible(word) for word, _ in node.words[:n_words]]
    lines = [" ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
    said = [count_in_words(node.documents), *([f"and {left_out} smaller below"] if left_out else [])]
    out = [
        f'<g><title>{html.escape(examples)}</title><rect x="{x}" y="{y:.1f}" width="{BOX}" height="{height}" rx="6" '
        f'fill="{SHADES[min(node.level, len(SHADES) - 1)]}" stroke="{LINE}"/>'
    ]
    for position, line in enumerate([*lines, *said]):
        look = f'fill="{MUTED}" font-style="italic"' if position >= len(lines) else f'fill="{INK}"'
        cut = line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"
        out.append(f'<text x="{x + 8}" y="{y + PAD + ROW * (position + 0.8):.1f}" {look}>{html.escape(cut)}</text>')
    return "".join([*out, "</g>"])


@dataclass(frozen=True)
class TopicTree:
    """A tree of topics.

    `nodes`: the nodes, the root first and parents before their children. Siblings are ordered by their numbers of
        documents, the most first.
    """

    nodes: tuple[TreeNode, ...]

    def children(self, number: int) -> tuple[TreeNode, ...]:
        """Return the nodes directly below node `number`."""
        return tuple(node for node in self.nodes if node.parent == number)

    @property
    def depth(self) -> int:
        """The number of levels, the root included."""
        return 1 + max(node.level for node in self.nodes)

    def pruned(self, min_documents: float | int) -> "TopicTree":
        """Return the tree without small nodes and without all nodes below them. The remaining nodes get new numbers.

        min_documents: a node is left out if fewer documents pass it.
        """
        kept: dict[int, int] = {}
        nodes = []
        for node in self.nodes:
            if node.parent is None or (node.documents >= min_documents and node.parent in kept):
                kept[node.number] = len(nodes)
                parent = None if node.parent is None else kept[node.parent]
                nodes.append(replace(node, number=len(nodes), parent=parent))
        return TopicTree(tuple(nodes))

    # -- forms ---------------------------------------------------------------------------------------------------------

    def text(self, n_words: int = 8) -> str:
        """Return the tree as text, with an indented line for each node: its top words and its number of documents."""
        lines = []

        def add(node: TreeNode, lead: str, branch: str) -> None:
            lines.append(f"{lead}{branch}{visible(node.label(n_words))}  ({count_in_words(node.documents)})")
            below = self.children(node.number)
            inner = lead + ("   " if branch == "└─ " else "│  " if branch else "")
            for position, child in enumerate(below):
                add(child, inner, "└─ " if position == len(below) - 1 else "├─ ")

        add(self.nodes[0], "", "")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the tree as JSON, with every field of every node, for `from_json` to read."""
        return json.dumps({"format": "lvsearch topic tree 1", "nodes": [asdict(node) for node in self.nodes]}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "TopicTree":
        """Return the tree that `to_json` wrote as JSON.

        Raises ValueError for any other text.
        """
        try:
            content = json.loads(text)
            if content["format"] != "lvsearch topic tree 1":
                raise ValueError(f"got format {content['format']!r}")
            nodes = tuple(
                TreeNode(**{**node, "words": tuple(map(tuple, node["words"])), "examples": tuple(node["examples"])})
                for node in content["nodes"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"expected the JSON of a TopicTree, as to_json writes it: {error}") from error
        return cls(nodes)

    def to_networkx(self) -> "networkx.DiGraph":
        """Return a directed graph from parents to children, with the fields of a node as its attributes.

        Raises ImportError, saying what to install, if networkx is missing.
        """
        try:
            import networkx
        except ImportError as error:
            raise ImportError("to_networkx needs networkx: pip install 'lvsearch[graph]'") from error
        graph = networkx.DiGraph()
        for node in self.nodes:
            graph.add_node(node.number, **{k: v for k, v in asdict(node).items() if k not in ("number", "parent")})
            if node.parent is not None:
                graph.add_edge(node.parent, node.number)
        return graph

    def to_graphviz(self, n_words: int = 6) -> str:
        """Return the tree in Graphviz' DOT language, for `dot -Tsvg` or `graphviz.Source`."""
        lines = ["digraph topics {", "  rankdir=LR;", '  node [shape=box, style=rounded, fontname="sans-serif"];']
        for node in self.nodes:
            words = [word for word, _ in node.words[:n_words]]
            label = "\\n".join([*(_escape(word) for word in words), f"({count_in_words(node.documents)})"])
            lines.append(f'  {node.number} [label="{label}"];')
        lines += [f"  {node.parent} -> {node.number};" for node in self.nodes if node.parent is not None]
        return "\n".join([*lines, "}"])

    def to_svg(self, n_words: int = 6, most_height: int = MOST_HEIGHT) -> str:
        """Return a picture of the tree as SVG, with the root at the left.

        Each box has top words and the number of documents; hovering shows example documents.

        n_words: how many words a box shows.
        most_height: pixels. If the picture would be taller, the nodes with the fewest documents are left out, and their
            parents say how many.
        """
        return tree_svg(self.nodes, n_words, most_height)

    def __str__(self) -> str:
        """Return the tree as text (`text`)."""
        return self.text()

    def _repr_html_(self) -> str:
        """Return the picture of the tree as SVG, for notebooks (`to_svg`)."""
        return self.to_svg()


def _escape(text: str) -> str:
    """Return a text with the escapes that a string in DOT, Graphviz' language, needs."""
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')
