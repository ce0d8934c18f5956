"""A fitted tree that is saved is the one that is loaded."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from small_searches import assert_same_model, rewritten

import lvsearch as lv
from lvsearch.files.storage import CorruptFolderError, write_folder
from lvsearch.fitted.stored_fits import decode_module, encode_module

MODELS = (
    lv.models.HLDA(depth=2, levels=1.0, topics=0.2),
    lv.models.HLDA(depth=3, branching=0.5, levels=(1.0, 2.0, 3.0), topics=(0.1, 0.2, 0.3), lengths=(2, 3)),
)


@pytest.fixture(scope="module")
def fitted() -> lv.FittedTree:
    texts = ["the cat and the dog", "the dog and a cat"] * 4 + ["the tax and the vote", "a vote on the tax"] * 4
    corpus = lv.Corpus.from_texts(texts, stop_words=["a", "on"])
    return lv.fit_tree(MODELS[0], corpus, sweeps=8, chains=2, infer=True, seed=0)


@pytest.mark.parametrize("model", MODELS)
def test_the_model_of_trees_can_be_stored(model: lv.models.HLDA):
    assert_same_model(decode_module(encode_module(model)), model)


@pytest.mark.thorough
def test_what_is_loaded_is_what_was_saved(fitted: lv.FittedTree, tmp_path: Path):
    fitted.save(tmp_path / "tree")
    loaded = lv.load_tree(tmp_path / "tree")
    assert (str(loaded), loaded.training, loaded.burn_in) == (str(fitted), fitted.training, fitted.burn_in)
    assert loaded.inferred is fitted.inferred
    assert_same_model(loaded.model, fitted.model)
    assert loaded.branches().equals(fitted.branches())
    assert loaded.transform(fitted.training).tobytes() == fitted.transform(fitted.training).tobytes()
    for ours, theirs in zip(fitted.traces, loaded.traces, strict=True):
        for entry in fields(ours):
            if entry.name != "trace":
                np.testing.assert_equal(getattr(theirs, entry.name), getattr(ours, entry.name))
        assert theirs.trace.log_density.tobytes() == ours.trace.log_density.tobytes()
        assert theirs.trace.names == ours.trace.names


def test_nothing_is_overwritten_and_nothing_else_is_read(fitted: lv.FittedTree, tmp_path: Path):
    fitted.save(tmp_path / "tree")
    with pytest.raises(FileExistsError, match="not empty"):
        fitted.save(tmp_path / "tree")
    write_folder(tmp_path / "other", {"kind": "trace"}, {})
    with pytest.raises(CorruptFolderError, match="holds no fitted tree"):
        lv.load_tree(tmp_path / "other")


@pytest.mark.parametrize("part", ["model", "data", "traces", "burn_in"])
def test_a_tree_that_lacks_a_part_is_refused(fitted: lv.FittedTree, tmp_path: Path, part: str):
    fitted.save(tmp_path / "tree")
    with pytest.raises(CorruptFolderError, match="is damaged"):
        lv.load_tree(rewritten(tmp_path / "tree", tmp_path / "cut", lambda body, _: body.pop(part)))
