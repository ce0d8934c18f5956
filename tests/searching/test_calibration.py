"""The reduced calibration campaign: sizes from the prior, data from the model, and how often the answers are right."""

import calibration
import numpy as np
import pytest

SETS = 60


def entries(errors: float, seed: int, sets: int = 400) -> list[dict]:
    """Made-up searches of exact posteriors, their evidence off by Gaussian errors that are stated."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(sets):
        evidence = random.normal(0.0, 2.0, 6)
        posterior = np.exp(evidence) / np.exp(evidence).sum()
        truth = int(random.choice(6, p=posterior)) + 1
        entry = {
            "number": number,
            "truth": truth,
            "sizes": list(range(1, 7)),
            "log_prior": [0.0] * 6,
            "log_evidence": (evidence + random.normal(0.0, errors, 6)).tolist(),
            "standard_error": [errors] * 6,
            "seconds": 1.0,
        }
        made.append(calibration.with_planted(entry, 0.0))
    return made


@pytest.mark.thorough
def test_figures_of_right_answers_are_where_they_should_be():
    found = calibration.calibration(entries(0.2, 0))
    assert all(found.coverage[level] == pytest.approx(found.expected[level], abs=0.05) for level in calibration.LEVELS)
    assert found.rank_p > 0.01
    assert found.confident_errors <= 0.1 * max(1, found.confident)


@pytest.mark.thorough
def test_figures_of_wrong_answers_are_not():
    """Three nats a component, planted."""
    wrong = calibration.calibration([calibration.with_planted(entry, 3.0) for entry in entries(0.2, 0)])
    assert wrong.coverage[0.9] < 0.7
    assert wrong.rank_p < 1e-6
    assert wrong.confident_errors > 0.3 * wrong.confident


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["known-overlapping", "bernoulli-separated"])
def test_searches_are_calibrated(regime):
    """60 sets: 90 % sets that hold the truth fewer than 48 times happen by chance in 1 of 200."""
    chosen = calibration.REGIMES[regime]()
    found = [calibration.one_set(chosen, number, 0, "marginal") for number in range(SETS)]
    summary = calibration.calibration(found)
    assert summary.coverage[0.9] >= 0.8, summary.describe()
    assert summary.rank_p > 1e-3, summary.describe()
    planted = calibration.calibration([calibration.with_planted(entry, 3.0) for entry in found])
    assert planted.coverage[0.9] < 0.8, planted.describe()
