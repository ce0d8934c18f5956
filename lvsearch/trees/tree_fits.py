"""`lv.fit_tree`: a tree of topics of a corpus, by collapsed Gibbs sampling; and the tree of a mean-field fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.data.corpus import Corpus
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.occupied_posterior import OccupiedPosterior
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.engine.describing import site_value
from lvsearch.inference.mixtures import log_block_count_prior
from lvsearch.inference.trees import (
    MOST_DOCUMENTS,
    NEW,
    Allocation,
    DocumentPaths,
    TreeHyper,
    TreePriors,
    TreeTopics,
    TreeTrace,
    agglomerated_start,
    climb,
    describe_documents,
    hyper_of,
    level_names,
    sample_tree,
    tree_topics,
)
from lvsearch.models.hlda import HLDA
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.plain_arguments import checked_seed, real_number, whole_number, yes_or_no
from lvsearch.trees.topic_tree import TopicTree, TreeNode
from lvsearch.trees.tree_storage import TreeParts, load_parts, save_parts

INFERRED = TreePriors(GammaPrior(1.0, 1.0), GammaPrior(1.0, 0.1), GammaPrior(1.0, 1.0))


FEWEST_DRAWS = 4


@dataclass(frozen=True, repr=False)
class FittedTree:
    """The most probable tree that some chains visited. Scores are in nats, higher is better.

    `branches` says how many nodes other trees have at each level, and how probable that is.

    New documents are a `Corpus` on the training vocabulary, or counts over it; other data raise ValueError.
    `training.encode(texts)` makes such a corpus and reports unknown words, which are left out. New documents are
    described given this one tree, with topics at their posterior means.

    | field | meaning |
    |---|---|
    | `model` | the model that was fitted |
    | `training` | the corpus |
    | `traces` | one per chain, the best first |
    | `burn_in` | sweeps at the beginning of each chain that do not count as draws |
    | `inferred` | True if γ, α and η were drawn too |
    """

    model: HLDA
    training: Corpus
    traces: tuple[TreeTrace, ...]
    burn_in: int
    inferred: bool

    @property
    def allocation(self) -> Allocation:
        """The paths of the training documents and the levels of their tokens."""
        return self.traces[0].best

    @property
    def hyper(self) -> TreeHyper:
        """The hyper-parameters γ, α and η of the most probable tree visited."""
        return self.traces[0].best_hyper

    @property
    def log_joint(self) -> float:
        """The log joint density log p(words, levels, paths) of the most probable tree visited, in nats.

        Topics and proportions are integrated out. If γ, α and η were inferred, it includes the log of their prior
        density.
        """
        return self.traces[0].best_log_joint

    @property
    def topics(self) -> TreeTopics:
        """The topics' distributions over words at their posterior means, and the paths that a new document can take."""
        return tree_topics(self.training.counts, self.allocation, self.hyper)

    def branches(self) -> pd.DataFrame:
        """Return the posterior over the number of nodes at each level below the root: a row per level and number.

        It counts every sweep after the first half, in all chains. `occupied` says whether the chains agree.

        | column | meaning |
        |---|---|
        | `level`, `nodes` | the level, and a number of nodes at it |
        | `log_prior` | log prior probability of the number, nats; NaN except at the first level with a given γ |
        | `probability` | posterior probability of the number |
        | `standard_error` | of the probability, from the spread between and within chains |

        With one chain the standard error comes from batch means, which cannot see trees that the chain did not reach.

        Raises ValueError if chains have fewer than 4 draws.
        """
        frames = []
        for level, table in enumerate(self.occupied().tables(), start=1):
            absent = ["log_evidence_lower", "log_evidence_upper", "log_evidence"]
            frame = table.rename(columns={"size": "nodes"}).drop(columns=absent)
            frame.insert(0, "level", level)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def __repr__(self) -> str:
        """Return the tree as text, with how sure its numbers of branches are."""
        tree = self.tree(n_examples=0).text() + f"\nThe best tree visited: log joint {self.log_joint:,.1f} nats."
        if self.model.depth < 2:
            return tree
        if len(self.traces[0].nodes_each) - self.burn_in < FEWEST_DRAWS:
            return f"{tree} Too few sweeps to say how probable its numbers of nodes are."
        return f"{tree} {self.occupied().describe()}"

    def occupied(self) -> OccupiedPosterior:
        """Return the posterior of the number of nodes at each level, with R-hat and effective draws, in the form of
        `lv.occupied`.

        Raises ValueError if chains have fewer than 4 draws, or the tree has one level.
        """
        counts = np.stack([trace.nodes_each[:, 1:] for trace in self.traces])
        draws, depth = counts.shape[1] - self.burn_in, self.model.depth
        if draws < FEWEST_DRAWS or depth < 2:
            raise ValueError(
                f"got {max(draws, 0)} draws of trees with {depth} level(s), expected at least {FEWEST_DRAWS} draws of "
                "trees with 2 levels or more: raise sweeps, of which half are left out, or depth"
            )
        first = log_block_count_prior(len(self.training), float(self.model.branching), int(counts.max()))
        log_prior = (None if self.inferred else first, *[None] * (depth - 2))
        return OccupiedPosterior(level_names(depth), counts, self.burn_in, log_prior)

    def save(self, folder: str | Path) -> None:
        """Write the tree and its chains to a new folder (read by `lv.load_tree`).

        Raises FileExistsError if something is there, ValueError for a folder that is no path.
        """
        save_parts(TreeParts(self.model, self.training, self.traces, self.burn_in, self.inferred), folder)

    def tree(self, n_words: int = 10, n_examples: int = 3) -> TopicTree:
        """Return the tree for reading, with top words, document counts and example documents.

        The `number` of a node is its column in `transform`.

        n_words: how many words each node lists.
        n_examples: how many example documents each node lists.
        """
        return TopicTree(tuple(node for node, _ in self._numbered(n_words, n_examples)))

    def describe(self, data: Any, samples: int = 200, seed: int = 0) -> pd.DataFrame:
        """Return a table that describes documents by their paths in the tree: a row per document.

        Columns: log_likelihood (nats), its standard_error, the most probable path, its probability, and the expected
            share of
        each level. A path is numbers of nodes of `tree()`, or "new" for a new node.

        data: the documents.
        samples: the number of samples for each path of a document.
        seed: the seed of the samples.
        """
        result, topics = self._documents(data, samples, seed)
        number = {label: node.number for node, label in self._numbered(1, 0)} | {NEW: "new"}
        best = result.posterior.argmax(1)
        frame = pd.DataFrame(
            {
                "log_likelihood": result.log_likelihood,
                "standard_error": result.standard_error,
                "path": [" → ".join(str(number[node]) for node in topics.paths[p].tolist()) for p in best],
                "probability": result.posterior[np.arange(len(best)), best],
            }
        )
        for level in range(result.levels.shape[1]):
            frame[f"level {level}"] = result.levels[:, level]
        return frame

    def path_posterior(self, data: Any, samples: int = 200, seed: int = 0) -> pd.DataFrame:
        """Return the probability of each path given each document: a row per document, a column per path.

        There is a path to each leaf, and one to a new node below each inner node.

        data: the documents.
        samples: the number of samples for each path of a document.
        seed: the seed of the samples.
        """
        result, topics = self._documents(data, samples, seed)
        number = {label: node.number for node, label in self._numbered(1, 0)} | {NEW: "new"}
        names = [" → ".join(str(number[node]) for node in path) for path in topics.paths.tolist()]
        return pd.DataFrame(result.posterior, columns=names)

    def transform(self, data: Any, samples: int = 200, seed: int = 0) -> Float[np.ndarray, "docs node"]:
        """Return the probability that each document's path passes each node of `tree()`, (document, node).

        The column of the root is 1. The columns of a level sum to 1 minus the probability of new nodes.

        data: the documents.
        samples: the number of samples for each path of a document.
        seed: the seed of the samples.
        """
        result, topics = self._documents(data, samples, seed)
        labels = [label for _, label in self._numbered(1, 0)]
        passes = np.array([[(path == label).any() for label in labels] for path in topics.paths], np.float64)
        return result.posterior @ passes

    def score_units(self, data: Any, samples: int = 200, seed: int = 0) -> Float[np.ndarray, " docs"]:
        """Return an estimate of log p(document | this tree) for each document, (document,), in nats.

        `describe` has the standard errors.

        data: the documents.
        samples: the number of samples for each path of a document.
        seed: the seed of the samples.
        """
        return self._documents(data, samples, seed)[0].log_likelihood

    def score(self, data: Any, samples: int = 200, seed: int = 0) -> float:
        """Return an estimate of log p(all documents | this tree), in nats: the sum of `score_units`."""
        return float(self.score_units(data, samples, seed).sum())

    def _documents(self, data: Any, samples: int, seed: int) -> tuple[DocumentPaths, TreeTopics]:
        """Return the description of documents by this tree, and the tree's topics.

        samples: the number of samples for each path of a document. seed: the seed of the samples.
        """
        counts, topics = self.training.like_this(data).counts, self.topics
        return describe_documents(topics, self.hyper, counts, jax.random.key(seed), samples=samples), topics

    def _numbered(self, n_words: int, n_examples: int) -> list[tuple[TreeNode, int]]:
        """Return (node, label of the node in the allocation) of every node, the root first, siblings by documents.

        n_words: how many words each node lists. n_examples: how many example documents.
        """
        paths, level_counts = self.allocation
        counts = self.training.counts
        document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        lengths = np.maximum(np.asarray(counts.sum(1)).ravel(), 1)
        per_level = np.zeros((counts.shape[0], paths.shape[1]))
        np.add.at(per_level, document, level_counts)
        topics = self.topics
        row = {label: i for i, label in enumerate(topics.nodes.tolist())}
        vocabulary, names = np.asarray(self.training.vocabulary, dtype=object), self.training.document_names
        found: list[tuple[TreeNode, int]] = []

        def add(label: int, parent: int | None, level: int, members: np.ndarray) -> None:
            beta = topics.topics[row[label]]
            words = tuple((str(vocabulary[w]), float(beta[w])) for w in np.argsort(-beta, kind="stable")[:n_words])
            share = per_level[members, level] / lengths[members]
            chosen = members[np.argsort(-share, kind="stable")[:n_examples]]
            examples = tuple(f"document {d}" if names is None else names[d] for d in chosen.tolist())
            tokens = float(per_level[members, level].sum())
            number = len(found)
            found.append((TreeNode(number, parent, level, float(len(members)), tokens, words, examples), label))
            if level + 1 < paths.shape[1]:
                below, sizes = np.unique(paths[members, level + 1], return_counts=True)
                for child in below[np.argsort(-sizes, kind="stable")].tolist():
                    add(child, number, level + 1, members[paths[members, level + 1] == child])

        add(int(paths[0, 0]), None, 0, np.arange(len(paths)))
        return found


def fit_tree(
    model: HLDA,
    data: Any,
    *,
    sweeps: int = 200,
    chains: int = 1,
    climbs: int = 0,
    start_branching: float | None = None,
    infer: bool = False,
    temperatures: Sequence[float] = (),
    seed: int = 0,
) -> FittedTree:
    """Fit a tree of topics by collapsed Gibbs sampling and return it. The number of branches is part of the answer.

    model: `lv.models.HLDA(depth=3, branching=…, levels=…, topics=…)`.
    data: a `Corpus`, or counts.
    sweeps: how many sweeps each chain makes.
    chains: how many chains run. The first starts from a dendrogram of the documents, the others from draws of the
        prior. The most probable state of all is kept.
    climbs: start the first chain instead at the mode that hill climbing finds from this many random orders of the
        documents. Use it if topics are peaked (η far below 0.1), since a chain then does not leave the tree that it
        starts with. It takes a minute or so for some hundred documents and some dozen nodes. `sweeps=0` keeps that
        mode.
    start_branching: draw the first chain's start from the prior too, with this γ. The start from a dendrogram is often
        a mode with fewer inner nodes than typical trees have.
    infer: draw γ, each α and each η too, under Gamma priors of means 1, 10 and 1. States are then compared by joints
        that contain these priors.
    temperatures: of the first sweeps; above 1 anneals. Sweeps with temperatures are no draws.
    seed: the seed of the chains.

    γ, α and η are the concentrations of branching, of a document's level proportions, and of topics.

    The tree is one of many: `.branches()` says how probable each number of nodes is, and printing the result says so
    below the tree. With 2 chains or more, errors come from the spread between chains. `lv.fit` fits the same model by
    mean field on a truncated tree instead.

    Raises ValueError for bad data and settings, and for a model whose paths have several lengths.
    """
    if not isinstance(model, HLDA):
        raise ValueError(f"got {model!r}, expected a model such as lv.models.HLDA() (with its parentheses)")
    hyper = hyper_of(model)
    climbs, infer = whole_number("climbs", climbs, least=0), yes_or_no("infer", infer)
    sweeps, chains = whole_number("sweeps", sweeps, least=0), whole_number("chains", chains, least=1)
    if start_branching is not None:
        start_branching = real_number("start_branching", start_branching, above=0)
        if climbs:
            raise ValueError(f"got climbs={climbs} and start_branching={start_branching}, expected one way to start")
    training = data if isinstance(data, Corpus) else Corpus.from_any(data)
    key = jax.random.key(checked_seed(seed))
    prepare_programs()
    # where the first chain starts: hill climbing, a draw from the prior, or else a dendrogram
    starts: tuple[Allocation, ...] = ()
    if climbs:
        starts = (climb(training.counts, hyper, jax.random.fold_in(key, chains), orders=climbs),)
    elif start_branching is None and len(training) <= MOST_DOCUMENTS:
        starts = (agglomerated_start(training.counts, hyper),)
    traces = sample_tree(
        training.counts,
        hyper,
        key,
        sweeps=sweeps,
        chains=chains,
        starts=starts,
        start_branchings=(start_branching,),
        priors=INFERRED if infer else TreePriors(),
        temperatures=temperatures,
    )
    return FittedTree(model, training, traces, max(-(-sweeps // 2), len(temperatures)), infer)


def load_tree(folder: str | Path) -> FittedTree:
    """Return the fitted tree that `FittedTree.save` wrote. Nothing is fitted.

    Raises FileNotFoundError if there is no such folder, ValueError if it holds no tree or is damaged.
    """
    return FittedTree(*load_parts(folder))


def mean_field_tree(
    fitted: FittedModel, n_words: int = 10, n_examples: int = 3, min_documents: float | int = 0.5
) -> TopicTree:
    """Return the tree of topics of a mean-field fit, `lv.fit(lv.models.HLDA(…), …)`.

    Document counts are expected counts. Tokens are not counted by level: NaN.

    fitted: the fit.
    n_words: how many words each node lists.
    n_examples: how many example documents each node lists.
    min_documents: nodes that fewer documents are expected to pass are left out.

    Raises ValueError for a fit of another model.
    """
    model = fitted.model
    if not isinstance(model, HLDA):
        raise ValueError(f"got a fit of {type(model).__name__}, expected one of HLDA")
    passes, begin = fitted.transform(fitted.training), 0
    size = fitted.estimate.size
    assert isinstance(fitted.training, Corpus)
    names, vocabulary = fitted.training.document_names, np.asarray(fitted.training.vocabulary, dtype=object)
    # expected documents through each node: paths that end at a node pass all nodes above it
    through = {n: np.zeros((len(passes), *size[: n - 1])) for n in range(1, model.depth + 1)}
    for n in model.lengths:
        width = int(np.prod(size[: n - 1]))
        ends = passes[:, begin : begin + width].reshape(-1, *size[: n - 1])
        begin += width
        for level in range(1, n + 1):
            through[level] = through[level] + ends.sum(axis=tuple(range(level, n)))
    nodes: list[TreeNode] = []

    def add(index: tuple[int, ...], parent: int | None) -> None:
        level = len(index) + 1
        weight = through[level][(slice(None), *index)]
        if parent is not None and weight.sum() < min_documents:
            return
        beta = np.asarray(site_value(fitted.estimate, f"topic_word_{level}"))[index]
        words = tuple((str(vocabulary[w]), float(beta[w])) for w in np.argsort(-beta, kind="stable")[:n_words])
        chosen = np.argsort(-weight, kind="stable")[:n_examples]
        examples = tuple(f"document {d}" if names is None else names[d] for d in chosen.tolist())
        number = len(nodes)
        nodes.append(TreeNode(number, parent, level - 1, float(weight.sum()), float("nan"), words, examples))
        if level < model.depth:
            below = through[level + 1].sum(0)[index]
            for child in np.argsort(-below, kind="stable").tolist():
                add((*index, child), number)

    add((), None)
    return TopicTree(tuple(nodes))
