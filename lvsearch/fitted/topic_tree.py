"""A tree of topics for people: as text, JSON, a picture, a graph for networkx or Graphviz."""

import html
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lvsearch.files.plain_text import visible

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class TreeNode:
    """One topic of a tree.

    | field | meaning |
    |---|---|
    | `number` | its place in `TopicTree.nodes`; 0 is the root, parents come before their children |
    | `parent` | number of the parent; None for the root |
    | `level` | 0 for the root |
    | `documents` | training documents whose path passes it (expected, for a mean-field fit) |
    | `tokens` | training tokens drawn from it (likewise) |
    | `words` | (word, probability) of its most probable words |
    | `examples` | names of training documents on it, those with the largest part of their tokens there first |
    """

    number: int
    parent: int | None
    level: int
    documents: float
    tokens: float
    words: tuple[tuple[str, float], ...]
    examples: tuple[str, ...]

    def label(self, n_words: int | None = None) -> str:
        """Its top words, separated by spaces."""
        return " ".join(word for word, _ in self.words[:n_words])


@dataclass(frozen=True)
class TopicTree:
    """A tree of topics, siblings ordered by their documents, most first."""

    nodes: tuple[TreeNode, ...]

    def children(self, number: int) -> tuple[TreeNode, ...]:
        """The nodes directly below a node."""
        return tuple(node for node in self.nodes if node.parent == number)

    @property
    def depth(self) -> int:
        return 1 + max(node.level for node in self.nodes)

    def pruned(self, min_documents: float | int) -> "TopicTree":
        """Without nodes that fewer documents pass, and what is below them; numbers are given anew."""
        kept: dict[int, int] = {}
        nodes = []
        for node in self.nodes:
            if node.parent is None or (node.documents >= min_documents and node.parent in kept):
                kept[node.number] = len(nodes)
                parent = None if node.parent is None else kept[node.parent]
                nodes.append(TreeNode(len(nodes), parent, *list(_fields(node))[2:]))
        return TopicTree(tuple(nodes))

    # -- forms ---------------------------------------------------------------------------------------------------------

    def text(self, n_words: int = 8) -> str:
        """An indented line per node: top words and documents."""
        lines = []

        def add(node: TreeNode, lead: str, branch: str) -> None:
            lines.append(f"{lead}{branch}{visible(node.label(n_words))}  ({_count(node.documents)} documents)")
            below = self.children(node.number)
            inner = lead + ("   " if branch == "└─ " else "│  " if branch else "")
            for position, child in enumerate(below):
                add(child, inner, "└─ " if position == len(below) - 1 else "├─ ")

        add(self.nodes[0], "", "")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Every field of every node; `from_json` is the inverse."""
        return json.dumps({"format": "lvsearch topic tree 1", "nodes": [asdict(node) for node in self.nodes]}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "TopicTree":
        """The inverse of `to_json`. Raises ValueError for anything else."""
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
        """A directed graph from parents to children, the fields of a node as its attributes.

        Raises ImportError, saying what to install, where networkx is missing.
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
        """The tree in Graphviz' DOT language, for `dot -Tsvg` or `graphviz.Source`."""
        lines = ["digraph topics {", "  rankdir=LR;", '  node [shape=box, style=rounded, fontname="sans-serif"];']
        for node in self.nodes:
            words = [word for word, _ in node.words[:n_words]]
            label = "\\n".join([*(_escaped(word) for word in words), f"({_count(node.documents)} documents)"])
            lines.append(f'  {node.number} [label="{label}"];')
        lines += [f"  {node.parent} -> {node.number};" for node in self.nodes if node.parent is not None]
        return "\n".join([*lines, "}"])

    def to_svg(self, n_words: int = 6) -> str:
        """A picture, root at the left: top words and documents in each box, example documents on hovering."""
        row, width, gap, pad = 15, 190, 46, 6
        heights = {node.number: row * (-(-min(n_words, len(node.words)) // 2) + 1) + 2 * pad for node in self.nodes}
        top: dict[int, float] = {}
        at = 10.0

        def place(node: TreeNode) -> float:
            """The middle of a node: of its children, or the next free place."""
            nonlocal at
            below = self.children(node.number)
            if not below:
                top[node.number], at = at, at + heights[node.number] + 8
                return top[node.number] + heights[node.number] / 2
            begin = at
            middles = [place(child) for child in below]
            middle = max((middles[0] + middles[-1]) / 2, begin + heights[node.number] / 2)
            top[node.number] = middle - heights[node.number] / 2
            at = max(at, top[node.number] + heights[node.number] + 8)
            return middle

        place(self.nodes[0])
        total_width = self.depth * (width + gap) - gap + 20
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{at + 4:.0f}" '
            f'viewBox="0 0 {total_width} {at + 4:.0f}" font-family="sans-serif" font-size="11">'
        ]
        for node in self.nodes:
            x, y, height = 10 + node.level * (width + gap), top[node.number], heights[node.number]
            if node.parent is not None:
                x0, y0 = x - gap, top[node.parent] + heights[node.parent] / 2
                y1, bend = y + height / 2, x - gap / 2
                curve = f"M{x0},{y0:.1f} C{bend},{y0:.1f} {bend},{y1:.1f} {x},{y1:.1f}"
                out.append(f'<path d="{curve}" fill="none" stroke="#999"/>')
            examples = "\n".join(["Example documents:", *map(visible, node.examples)])
            title = html.escape(examples if node.examples else "no examples")
            out.append(
                f'<g><title>{title}</title><rect x="{x}" y="{y:.1f}" width="{width}" height="{height}" rx="6" '
                f'fill="{_SHADES[min(node.level, len(_SHADES) - 1)]}" stroke="#888"/>'
            )
            words = [visible(word) for word, _ in node.words[:n_words]]
            lines = [" ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
            for position, line in enumerate([*lines, f"{_count(node.documents)} documents"]):
                weight = ' fill="#666" font-style="italic"' if position == len(lines) else ""
                baseline = y + pad + row * (position + 0.8)
                out.append(f'<text x="{x + 8}" y="{baseline:.1f}"{weight}>{html.escape(line[:32])}</text>')
            out.append("</g>")
        return "".join([*out, "</svg>"])

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.to_svg()


_SHADES = ("#fdf3d8", "#e3eefa", "#e8f5e4", "#f5e6f0")


def _fields(node: TreeNode) -> tuple[Any, ...]:
    return tuple(getattr(node, name) for name in node.__dataclass_fields__)


def _count(documents: float) -> str:
    return f"{documents:,.0f}" if float(documents).is_integer() else f"{documents:,.1f}"


def _escaped(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')
