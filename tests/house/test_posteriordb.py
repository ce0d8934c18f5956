"""Reference draws for posteriordb: exact sums against enumeration, sampled draws against exact ones, and the files."""

import json
import zipfile

import numpy as np
import oracles
import posteriordb
import pytest

TINY = posteriordb.Problem("tiny", np.array([[3, 1, 0], [0, 3, 0], [0, 0, 3]]), 2, alpha=0.7, beta=0.4)


def enumerated() -> oracles.LDAPosterior:
    """The posterior by enumeration of all topics of all tokens."""
    return oracles.lda_posterior(TINY.counts, np.full(2, TINY.alpha), TINY.beta)


def test_the_sum_over_cells_is_that_over_all_assignments(capsys):
    posteriordb.Cells(TINY).draw(np.random.default_rng(0), 1)
    assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(enumerated().log_evidence, abs=0.0006)


def shared_topic(draws: posteriordb.Draws) -> np.ndarray:
    """Σ_k θ_1k θ_2k and Σ_k θ_2k θ_3k of each draw, which names of topics do not change, (chain, draw, 2)."""
    theta = draws.theta
    return np.stack([(theta[:, :, i] * theta[:, :, i + 1]).sum(-1) for i in (0, 1)], -1)


def test_exact_draws_are_independent_and_right_on_average():
    """Draws keep posteriordb's limits, and average to the enumerated means, which are alike for both topics."""
    draws = posteriordb.draw_exactly(TINY, 0)
    assert draws.theta.shape == (posteriordb.CHAINS, posteriordb.DRAWS, 3, 2)
    np.testing.assert_allclose(draws.theta.sum(-1), 1.0)
    np.testing.assert_allclose(draws.phi.sum(-1), 1.0)
    assert posteriordb.report("exact", posteriordb.judge(draws))
    # averages over both names of the topics, as the posterior has both: half of every document each
    np.testing.assert_allclose(draws.theta.mean((0, 1)), 0.5, atol=0.02)
    np.testing.assert_allclose(draws.phi.mean((0, 1)), enumerated().topics, atol=0.02)


@pytest.mark.thorough
def test_sampled_draws_agree_with_exact_ones():
    sampled, _ = posteriordb.sample(TINY, 1, temperatures=200, thin=4)
    found, exact = (shared_topic(draws).mean((0, 1)) for draws in (sampled, posteriordb.draw_exactly(TINY, 0)))
    np.testing.assert_allclose(found, exact, atol=0.02)  # standard errors of some .004 each


def test_files_have_the_form_of_posteriordb(tmp_path):
    data = {"V": 3, "M": 2, "N": 3, "w": [1, 3, 3], "doc": [1, 1, 2], "alpha": [0.1] * 5, "beta": [0.2] * 3}
    with zipfile.ZipFile(tmp_path / "some.json.zip", "w") as archive:
        archive.writestr("some.json", json.dumps(data))
    problem = posteriordb.read(tmp_path / "some.json.zip")
    assert (problem.title, problem.alpha, problem.beta) == ("some-ldaK5", 0.1, 0.2)
    np.testing.assert_array_equal(problem.counts, [[1, 0, 1], [0, 0, 1]])
    (tmp_path / "bad.json").write_text(json.dumps(data | {"alpha": [0.1, 0.2]}))
    with pytest.raises(ValueError, match="all alike"):
        posteriordb.read(tmp_path / "bad.json")

    draws = posteriordb.draw_exactly(TINY, 0).in_random_order(np.random.default_rng(0))
    posteriordb.write(TINY, draws, posteriordb.judge(draws), tmp_path, {"cells": "summed"})
    facts = json.loads((tmp_path / "tiny-ldaK2.info.json").read_text())
    assert all(facts["checks_made"].values())
    with zipfile.ZipFile(tmp_path / "tiny-ldaK2.json.zip") as archive:
        chains = json.loads(archive.read("tiny-ldaK2.json"))
    assert len(chains) == facts["diagnostics"]["nchains"] == 10
    names = [f"theta[{m},{k}]" for m in (1, 2, 3) for k in (1, 2)] + [
        f"phi[{k},{v}]" for k in (1, 2) for v in (1, 2, 3)
    ]
    assert list(chains[0]) == facts["diagnostics"]["diagnostic_information"]["names"] == names
    assert {len(values) for chain in chains for values in chain.values()} == {1000}
    assert chains[3]["phi[2,1]"][5] == draws.phi[3, 5, 1, 0]
