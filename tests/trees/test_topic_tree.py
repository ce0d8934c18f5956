"""The tree for people: text, JSON, graphs, a picture; and what a fitted tree says about new documents."""

import xml.etree.ElementTree as ElementTree

import jax
import numpy as np
import pytest
import tree_oracles
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.trees import NEW, Allocation, describe_documents, hyper_of, log_joint, tree_hyper, tree_topics

TREE = lv.TopicTree(
    (
        lv.trees.topic_tree.TreeNode(0, None, 0, 5.0, 50.0, (("the", 0.5), ("of", 0.3)), ("a <title>",)),
        lv.trees.topic_tree.TreeNode(1, 0, 1, 4.0, 20.0, (("graph", 0.4),), ("b", "c")),
        lv.trees.topic_tree.TreeNode(2, 1, 2, 3.0, 9.0, (('"tree"', 0.4),), ()),
        lv.trees.topic_tree.TreeNode(3, 1, 2, 1.0, 9.0, (("path", 0.4),), ()),
        lv.trees.topic_tree.TreeNode(4, 0, 1, 1.0, 2.5, (("logic", 0.4),), ()),
    )
)
TEXTS = ["cat dog cat the", "dog cat the the", "tax vote the", "vote vote tax the", "tax law the the"] * 3


@pytest.fixture(scope="module")
def corpus() -> lv.Corpus:
    return lv.Corpus.from_texts(TEXTS, stop_words=None, document_names=[f"text {i}" for i in range(len(TEXTS))])


@pytest.fixture(scope="module")
def fitted(corpus) -> lv.FittedTree:
    return lv.fit_tree(lv.models.HLDA(3, branching=0.5, levels=1.0, topics=0.3), corpus, sweeps=20, seed=1)


def test_text_shows_every_node():
    assert TREE.text() == "\n".join(
        [
            "the of  (5 documents)",
            "├─ graph  (4 documents)",
            '│  ├─ "tree"  (3 documents)',
            "│  └─ path  (1 document)",
            "└─ logic  (1 document)",
        ]
    )


def test_json_round_trip():
    assert lv.TopicTree.from_json(TREE.to_json()) == TREE
    for bad in ("{", "[]", '{"format": "other", "nodes": []}', '{"format": "lvsearch topic tree 1"}'):
        with pytest.raises(ValueError, match="JSON of a TopicTree"):
            lv.TopicTree.from_json(bad)


def test_picture_is_well_formed_and_complete():
    root = ElementTree.fromstring(TREE.to_svg())
    text = "".join(root.itertext())
    assert all(node.words[0][0] in text for node in TREE.nodes)
    assert "a <title>" in text
    assert len(root.findall(".//{*}rect")) == 5
    assert len(root.findall(".//{*}path")) == 4
    boxes = [(float(r.get("x")), float(r.get("y")), float(r.get("height"))) for r in root.findall(".//{*}rect")]
    for x, y, height in boxes:  # no two boxes of a level overlap
        others = [box for box in boxes if box[0] == x and box != (x, y, height)]
        assert all(y + height <= other[1] or other[1] + other[2] <= y for other in others)
    assert TREE._repr_html_() == TREE.to_svg()


def test_graphs():
    dot = TREE.to_graphviz()
    assert dot.count("->") == 4
    assert '\\"tree\\"' in dot
    networkx = pytest.importorskip("networkx", reason="networkx is not installed: to_networkx is optional")
    graph = TREE.to_networkx()
    assert networkx.is_arborescence(graph)
    assert graph.nodes[1]["documents"] == 4


def test_pruning_keeps_a_tree():
    pruned = TREE.pruned(2)
    assert [(n.number, n.parent, n.label()) for n in pruned.nodes] == [
        (0, None, "the of"),
        (1, 0, "graph"),
        (2, 1, '"tree"'),
    ]


@pytest.mark.thorough
def test_fitted_tree_adds_up(fitted, corpus):
    tree = fitted.tree()
    assert tree.nodes[0].documents == len(corpus)
    for node in tree.nodes:
        below = tree.children(node.number)
        if below:
            assert sum(child.documents for child in below) == node.documents
    assert sum(node.tokens for node in tree.nodes) == corpus.n_observations
    assert fitted.log_joint == log_joint(corpus.counts, fitted.allocation, fitted.hyper).total
    assert all(name in corpus.document_names for node in tree.nodes for name in node.examples)


BRANCHY = lv.models.HLDA(2, 1.2, (0.8, 1.1), (0.6, 0.5))
FOUR = ((0, 0), (0, 1), (2, 2), (1,))


@pytest.mark.slow
def test_branches_have_their_probabilities():
    """All states of four documents and seven tokens; z of four chains' frequencies, |z| < 4.5, and the sentence."""
    states, _ = tree_oracles.posterior(FOUR, hyper_of(BRANCHY), 3)
    exact = np.zeros(5)
    for (paths, _), probability in states.items():
        exact[len(set(paths))] += probability
    assert (exact[1:] > 0.02).all()
    counts, _ = tree_oracles.as_counts(FOUR, tuple((0,) * len(words) for words in FOUR), 3, 2)
    fitted = lv.fit_tree(BRANCHY, counts, sweeps=900, chains=4)
    table = fitted.branches()
    assert table["nodes"].tolist() == [1, 2, 3, 4]
    assert table["level"].tolist() == [1] * 4
    assert np.abs((table["probability"] - exact[1:]) / table["standard_error"]).max() < 4.5
    assert table["standard_error"].max() < 0.03
    np.testing.assert_allclose(np.exp(table["log_prior"]).sum(), 1)
    assert fitted.occupied().agree
    tree, sentence = repr(fitted).rsplit("\n", 1)
    assert tree == fitted.tree().text()
    assert sentence.startswith("The best tree visited: log joint -")
    assert f"{exact.argmax()} nodes at level 1 are most probable" in sentence
    # the largest mode is not the answer: the one tree returned has one number of branches
    assert 0.2 < exact[len(fitted.tree().nodes) - 1] < 0.6


@pytest.mark.thorough
def test_branches_of_one_chain_and_of_none(fitted, corpus):
    """One chain says that it is one; every level has its rows; the first half and heated sweeps are left out."""
    table = fitted.branches()
    assert table.groupby("level")["probability"].sum().tolist() == pytest.approx([1, 1])
    assert table.loc[table["level"] == 1, "log_prior"].notna().all()
    assert table.loc[table["level"] == 2, "log_prior"].isna().all()
    assert "From one chain" in repr(fitted)
    model = lv.models.HLDA(2, levels=1.0, topics=0.3)
    none = lv.fit_tree(model, corpus, sweeps=5, temperatures=(2.0,) * 4)
    assert none.burn_in == 4
    with pytest.raises(ValueError, match="got 1 draws"):
        none.branches()
    assert "Too few sweeps" in repr(none)
    inferred = lv.fit_tree(model, corpus, sweeps=8, infer=True)
    assert inferred.branches()["log_prior"].isna().all()
    assert inferred.log_joint != log_joint(corpus.counts, inferred.allocation, inferred.hyper).total


@pytest.mark.thorough
def test_new_documents(fitted, corpus):
    new = corpus.encode(["cat cat dog the", "vote law tax the", "zebra quark", ""])
    described = fitted.describe(new)
    posterior = fitted.path_posterior(new)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    passes = fitted.transform(new)
    assert passes.shape == (4, len(fitted.tree().nodes))
    np.testing.assert_allclose(passes[:, 0], 1)
    assert fitted.score(new) == pytest.approx(described["log_likelihood"].sum())
    # documents without a known word: probability 1, the prior over paths, no error
    prior = np.exp(fitted.topics.log_prior)
    np.testing.assert_allclose(posterior.iloc[2:], [prior, prior])
    assert described["log_likelihood"].tolist()[2:] == [0.0, 0.0]
    assert described["standard_error"].tolist()[2:] == [0.0, 0.0]
    assert (described["standard_error"][:2] > 0).all()
    np.testing.assert_allclose(described[["level 0", "level 1", "level 2"]].sum(axis=1), 1)
    with pytest.raises(ValueError, match="99"):
        fitted.transform(np.ones((2, 99), int))


def test_the_next_documents_path_has_the_prior_of_the_process(fitted):
    assert logsumexp(fitted.topics.log_prior) == pytest.approx(0, abs=1e-10)
    assert (fitted.topics.paths == NEW).any()


@pytest.mark.parametrize("depth", [1, 2])
def test_likelihood_of_short_documents_is_exact_within_its_error(depth):
    """Two tokens: every path and every pair of levels summed, E[θ_i θ_j] of a Dirichlet in closed form."""
    counts = lv.Corpus.from_matrix(np.array([[3, 1, 0, 2], [0, 4, 1, 0]])).counts
    alpha, gamma = np.array([0.7, 1.6])[:depth], 0.8
    hyper = tree_hyper(depth, gamma, alpha, np.array([0.5, 0.3])[:depth])
    level_counts = np.zeros((len(counts.data), depth), np.int64)
    level_counts[:, -1] = counts.data
    if depth == 2:
        level_counts[0] = [1, 2]
    allocation = Allocation(np.array([[0, 1], [0, 2]])[:, :depth], level_counts)
    topics = tree_topics(counts, allocation, hyper)
    new = lv.Corpus.from_matrix(np.array([[1, 1, 0, 0], [0, 0, 2, 0]])).counts
    result = describe_documents(topics, hyper, new, jax.random.key(0), samples=4000)
    moments = (np.outer(alpha, alpha) + np.diag(alpha)) / (alpha.sum() * (alpha.sum() + 1))
    for d, (first, second) in enumerate([(0, 1), (2, 2)]):
        each = [topics.topics[row, first] @ moments @ topics.topics[row, second] for row in topics.rows]
        exact = np.exp(topics.log_prior) * each
        off = abs(result.log_likelihood[d] - np.log(exact.sum()))
        assert off < 4 * result.standard_error[d] + 1e-9
        assert result.standard_error[d] < 0.02
        np.testing.assert_allclose(result.posterior[d], exact / exact.sum(), atol=0.02)


def test_bad_calls(corpus):
    with pytest.raises(ValueError, match="lengths"):
        lv.fit_tree(lv.models.HLDA(3, lengths=(2, 3)), corpus)
    with pytest.raises(ValueError, match="HLDA"):
        lv.mean_field_tree(lv.fit(lv.models.LDA(), corpus, size=2))
