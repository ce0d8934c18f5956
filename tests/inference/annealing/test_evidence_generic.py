"""The generic path, for every model of the table: the evidence it anneals to against the exact number."""

import jax
import numpy as np
import pytest
import test_models as table

from lvsearch.inference.evidence import Effort, anneal, evidence_chain, flat_chain, temperature_profile
from lvsearch.sizing.evidence import Bracket


def has_gates(case: table.Case) -> bool:
    """Some elements exist on chosen paths only: the generic chain refuses such models, by a test of its own."""
    return any(site.gate is not None for site in (*case.model.globals().values(), *case.model.locals().values()))


CASES = [case for case in table.CASES if case.drawable and not case.model.process and not has_gates(case)]
WORK = Effort(48, 2, 16)
ROUNDING = 0.01
"""Nats: what does not count."""


def bracket(chain, seed):
    key_pilot, key = jax.random.split(jax.random.key(seed))
    (ends,) = anneal(chain, key, WORK, temperature_profile(chain, key_pilot, WORK))
    return Bracket(tuple(ends.forward.tolist()), tuple(ends.backward.tolist()), WORK.steps, 32, ends.anchor_error)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_evidence_from_the_flat_start_is_exact_within_its_error(case):
    """Five seeds; an estimate off by more than four of its errors would be one in thousands."""
    chain = flat_chain(case.model, case.data, case.size, case.capacity)
    exact = case.exact(table.NUMBER, {})
    found = [bracket(chain, seed) for seed in range(5)]
    assert all(abs(b.estimate - exact) <= 4 * b.standard_error + 0.02 for b in found), (exact, found)
    assert np.mean([b.estimate for b in found]) == pytest.approx(exact, abs=0.15)


SEEDS, NOMINAL, LEAST = 100, 2.0, 0.87
"""Two standard errors hold 95 %: that 100 seeds hold fewer than 87 has a chance of 1 in 1,500 then."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_stated_errors_hold_as_often_as_they_say(case):
    """On the path that a search of this model takes. A fifth of an error, which holds 16 %, must be seen not to do."""
    chain, exact = evidence_chain(case.model, case.data, case.size, None), case.exact(table.NUMBER, {})
    found = [bracket(chain, seed) for seed in range(SEEDS)]
    off = np.array([abs(b.estimate - exact) for b in found])
    stated = np.array([b.standard_error for b in found])
    assert np.mean(off <= NOMINAL * stated + ROUNDING) >= LEAST, (off, stated)
    assert np.mean(off <= 0.2 * stated) < LEAST or off.max() <= ROUNDING


def test_models_with_gated_elements_are_refused():
    tree = next(case for case in table.CASES if case.name == "hLDA")
    with pytest.raises(ValueError, match="only on the chosen path"):
        flat_chain(tree.model, tree.data, tree.model.size_names and (2,) * len(tree.model.size_names), (2, 2))
