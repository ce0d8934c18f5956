"""Fits on one device and on a mesh of all there are, in a process of its own: prints both as JSON, a line a model.

Run by test_sharding.py, with as many devices of the host as XLA_FLAGS says.
"""

import json
import re
import sys
from typing import Any

import jax
import numpy as np
from annotation_cases import simulate
from small_searches import corpus

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.data.packing import pack
from lvsearch.inference.mixtures.estimator import MixtureEstimator
from lvsearch.inference.mixtures.kernel import beliefs_from, survey
from lvsearch.inference.sharding import on_mesh, split
from lvsearch.inference.topics import kernel as kernels

SIZE = 3


def points() -> np.ndarray:
    random = np.random.default_rng(1)
    return np.concatenate([random.normal(centre, 0.7, (61, 2)) for centre in (-3.0, 0.0, 3.0)])


def documents() -> np.ndarray:
    """Enough of them for several tiles to each device."""
    random = np.random.default_rng(2)
    topics = random.dirichlet(np.full(60, 0.2), 3)
    return np.stack([random.multinomial(80, random.dirichlet(np.full(3, 0.3)) @ topics) for _ in range(200)])


def bound(model: lv.models.Model, data: Any, mesh: Any, evidence: str = "marginal") -> list[float]:
    fitted = lv.fit(model, data, size=SIZE, seed=1, evidence=evidence, mesh=mesh)
    return [fitted.estimate.log_lower]


def annealed(model: lv.models.Model, data: Any, mesh: Any) -> list[float]:
    """The ends of every path of a search of two sizes."""
    result = lv.search(model, data, max_size=2, starts=1, seed=0, progress=False, mesh=mesh)
    paths = [bracket for visit in result.visits for trial in visit.trials for bracket in trial.brackets]
    return [end for path in paths for end in (*path.forward, *path.backward)]


def shares(mesh: Any) -> list[float]:
    """Over how many devices the proportions of documents and the rows of a matrix are split, in how large parts."""
    with on_mesh(mesh):
        packed = pack(corpus().dataset().original.int32_counts, n_batches=1, tile_blocks=8)
        alpha = np.ones(8, np.float32)
        start = kernels.start_state(packed, np.ones((packed.n_words, 8)), alpha)
        small = np.float32(0)
        state, _, _ = kernels.memoized_passes(
            packed.tiles, start, alpha, small, rule=kernels.COLLAPSED, sweeps=1, passes=1, tolerance=small,
            momentum=small,
        )  # fmt: skip
        rows = split(np.zeros((1, 16, 2)), 1)
    parts = [array.addressable_shards[0].data.shape[1] for array in (state.proportions, rows)]
    return [len(state.proportions.sharding.device_set), packed.documents.shape[1] / parts[0], 16 / parts[1]]


def collectives(mesh: Any) -> list[int]:
    """How often a pass over rows sums over devices, and how often it moves rows between them."""
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents())
    with on_mesh(mesh):
        run = MixtureEstimator(model, data_for(model, points()).dataset()).run((SIZE,), np.float32)
        even = np.ones((*run.tiles.weight.shape, *run.capacity), np.float32)
        beliefs = beliefs_from(model, even, run.tiles, (SIZE,), **run.static)
        program = survey.lower(model, beliefs, run.tiles, (SIZE,), **run.static).compile().as_text()
    moved = ("all-gather", "all-to-all", "collective-permute")
    return [len(re.findall(r"all-reduce\(", program)), sum(len(re.findall(rf"{each}\(", program)) for each in moved)]


FITS = {
    "LDA": lambda mesh: bound(lv.models.LDA(), documents(), mesh),
    "LDA, plug-in": lambda mesh: bound(lv.models.LDA(), documents(), mesh, "plug-in"),
    "mixture": lambda mesh: bound(lv.models.FiniteMixture(lv.models.DiagonalComponents()), points(), mesh),
    "HDP": lambda mesh: bound(lv.models.HDP(), documents(), mesh),
    "Corr-LDA": lambda mesh: bound(lv.models.CorrLDA(), simulate(0, n_images=40, n_factors=3).corpus, mesh),
    "annealed LDA": lambda mesh: annealed(lv.models.LDA(), corpus(), mesh),
    "annealed mixture": lambda mesh: annealed(lv.models.FiniteMixture(lv.models.DiagonalComponents()), points(), mesh),
}

if __name__ == "__main__":
    mesh = jax.make_mesh((len(jax.devices()),), ("anything",))
    print(json.dumps({"name": "shares", "found": shares(mesh)}), flush=True)
    print(json.dumps({"name": "collectives", "found": collectives(mesh)}), flush=True)
    for name in sys.argv[1:] or FITS:
        one, several = FITS[name](None), FITS[name](mesh)
        print(json.dumps({"name": name, "one": one, "several": several}), flush=True)
