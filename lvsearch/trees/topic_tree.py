"""A tree of topics in the form that users see: as text, JSON, a picture, or a graph for networkx or Graphviz."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lvsearch.files.plain_text import visible
from lvsearch.trees.tree_picture import MOST_HEIGHT, TreeNode, count_in_words, tree_svg

if TYPE_CHECKING:
    import networkx


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
                nodes.append(TreeNode(len(nodes), parent, *list(_fields(node))[2:]))
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


def _fields(node: TreeNode) -> tuple[Any, ...]:
    """Return the values of a node's fields, in the order of their declaration."""
    return tuple(getattr(node, name) for name in node.__dataclass_fields__)


def _escape(text: str) -> str:
    """Return a text with the escapes that a string in DOT, Graphviz' language, needs."""
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')
