"""Tables of many columns: programs are as long for a thousand columns as for five, and nothing is columns × columns."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import lvsearch as lv
from lvsearch.inference.data.rows import rows
from lvsearch.inference.mixtures.kernel import ascend_rows, beliefs_from, blank_beliefs, survey
from lvsearch.inference.mixtures.rows import TILE, TILE_CELLS, prepare
from lvsearch.inference.mixtures.starts import split_along_spread
from lvsearch.models import DiagonalComponents, FiniteMixture, Model

SIZE, CAPACITY = (2,), (8,)


def table(n_rows: int, n_columns: int) -> np.ndarray:
    return np.random.default_rng(n_columns).standard_normal((n_rows, n_columns))


def n_operations(jaxpr: Any) -> int:
    """Operations of a program, those of its loops and branches among them, each once."""
    values = [value for eqn in jaxpr.eqns for value in eqn.params.values()]
    each = [one for value in values for one in (value if isinstance(value, tuple | list) else (value,))]
    inner = [getattr(one, "jaxpr", one) for one in each if hasattr(one, "jaxpr") or hasattr(one, "eqns")]
    return len(jaxpr.eqns) + sum(map(n_operations, inner))


def programs(n_columns: int) -> dict[str, int]:
    """How many operations each program of a fit has."""
    values = table(10, n_columns)
    model: Model = FiniteMixture(DiagonalComponents.scaled_to(values))
    prepared = prepare(model, rows(values, np.ones(values.shape, bool)))
    static = {"layout": prepared.layout, "capacity": CAPACITY}
    beliefs = blank_beliefs(model, n_columns, CAPACITY, np.float32)
    shares = np.zeros((*prepared.tiles.weight.shape, CAPACITY[0]), np.float32)
    traced = {
        "ascent": ascend_rows.trace(model, beliefs, prepared.tiles, SIZE, 1e-3, 10, **static),
        "survey": survey.trace(model, beliefs, prepared.tiles, SIZE, **static),
        "start": beliefs_from.trace(model, shares, prepared.tiles, SIZE, **static),
    }
    return {name: n_operations(each.jaxpr.jaxpr) for name, each in traced.items()}


def test_programs_do_not_grow_with_columns() -> None:
    few = programs(5)
    assert few == programs(1000)
    assert min(few.values()) > 20  # something was counted


def test_many_columns_are_split_as_few_are_and_without_a_matrix_of_columns() -> None:
    values = table(6, 9)
    values[:3] += 2.0
    shares = np.full((6, 2), 0.0)
    shares[:, 0] = [1.0, 0.5, 1.0, 0.7, 1.0, 0.2]
    wide = split_along_spread(shares, values, 0, 1)
    tall = split_along_spread(np.tile(shares, (2, 1)), np.tile(values, (2, 1)), 0, 1)[:6]  # 12 rows: by eigenvectors
    assert np.allclose(wide, tall) or np.allclose(wide, tall[:, ::-1])  # a direction has no sign
    tracemalloc.start()
    split_along_spread(shares, table(6, 20_000), 0, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 20_000 * 8  # fifty rows of float64; a matrix of columns would be 3.2 GB


def test_tiles_of_many_columns_have_fewer_rows() -> None:
    for n_columns in (4, TILE_CELLS // 64):
        values = np.zeros((100, n_columns))
        values[0] = 1.0
        tiles = prepare(FiniteMixture(DiagonalComponents()), rows(values, np.ones(values.shape, bool))).tiles
        assert tiles.weight.sum() == 100
        assert np.size(tiles.coordinates[0]) <= max(TILE * 4, TILE_CELLS)


@pytest.mark.thorough
def test_means_are_those_of_the_moments_without_covariances() -> None:
    values = table(12, 3)
    fit = lv.fit(FiniteMixture(DiagonalComponents.scaled_to(values)), values, size=2, seed=0)
    assert fit.means().to_numpy() == pytest.approx(fit._moments()[0], rel=1e-12)
