"""Simulation-based calibration of the samplers of features (Talts et al. 2018), and Geweke's test of the filter.

Everything is drawn from the prior, the sampler is run on the data, and the rank of the true value among the posterior
draws is uniform if the sampler is right. Ranks of REPLICATES data sets fall into DRAWS + 1 cells; each χ² has a
p-value above 1e-4 unless it fails by chance, so that a test of 5 numbers raises a false alarm for fewer than 1 of 2,000
keys. The same test must fail on the sampler's planted bug.
"""

from typing import Any

import buffet
import jax
import numpy as np
import pytest
from buffet import SAMPLERS, Sampler
from scipy.stats import chisquare

from lvsearch.inference.feature_samplers import Hyperpriors, particle_filter
from lvsearch.inference.feature_samplers.chain import FeatureState, Hyperparameters, full_sweep, log_joint
from lvsearch.inference.feature_samplers.loadings import Cells, read_cells
from lvsearch.models.ibp import GammaPrior

PRIORS = Hyperpriors(GammaPrior(4.0, 4.0), GammaPrior(5.0, 2.0), GammaPrior(5.0, 5.0))
KNOWN = Hyperparameters(1.1, 0.6, 1.0)
REPLICATES, DRAWS = 600, 7
SMALLEST_P = 1e-4
pytestmark = pytest.mark.slow


def numbers(cells: Cells, features: np.ndarray, hyper: Hyperparameters) -> list[float]:
    """What is ranked: hyper-parameters, ones in Z, and log p(X, [Z])."""
    return [*hyper, features.sum(), log_joint(cells, features, hyper)]


def rank(rng: np.random.Generator, truth: Any, draws: Any) -> np.ndarray:
    """Of each true number (number,) among draws (draw, number), ties broken at random."""
    below, equal = (draws < truth).sum(0), (draws == truth).sum(0)
    return below + rng.integers(equal + 1)


def p_values(ranks: np.ndarray) -> np.ndarray:
    """Of uniformity of each column of ranks (replicate, number) over 0 … DRAWS."""
    return np.array([chisquare(np.bincount(column, minlength=DRAWS + 1)).pvalue for column in ranks.T])


def chain_p_values(sampler: Sampler, key: int) -> np.ndarray:
    """The chain starts without features and at the prior's means."""
    rng, burn = np.random.default_rng(key), 3 * sampler.thin
    ranks = []
    for _ in range(REPLICATES):
        truth = buffet.draw_joint(rng, 4, 2, PRIORS)
        cells = read_cells(truth.values, None)
        state, draws = FeatureState(np.zeros((4, 0)), Hyperparameters(1.0, 0.6, 1.0)), []
        for number in range(1, burn + DRAWS * sampler.thin + 1):
            state = full_sweep(rng, sampler.sweep, cells, state, PRIORS)
            if number > burn and number % sampler.thin == 0:
                draws.append(numbers(cells, state.features, state.hyper))
        ranks.append(rank(rng, np.array(numbers(cells, truth.features, truth.hyper)), np.array(draws)))
    return p_values(np.array(ranks))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
def test_chains_are_calibrated(sampler):
    assert chain_p_values(sampler, 7).min() > SMALLEST_P


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
def test_calibration_finds_planted_bugs(sampler, monkeypatch):
    sampler.plant(monkeypatch)
    assert chain_p_values(sampler, 7).min() < SMALLEST_P**2


def drawn_by_filter(rng: np.random.Generator, values: np.ndarray, draws: int) -> list[np.ndarray]:
    """Features drawn from the weighted particles of a pass over the rows."""
    trace = particle_filter(values, key=jax.random.key(int(rng.integers(2**31))), n_particles=400, **KNOWN._asdict())
    chosen = rng.choice(len(trace.particles), draws, p=np.exp(trace.log_weights))
    return [trace.particles[index] for index in chosen.tolist()]


def known_joint(rng: np.random.Generator) -> buffet.Joint:
    features = buffet.draw_buffet(rng, 4, KNOWN.alpha)
    loadings = KNOWN.sigma_a * rng.standard_normal((features.shape[1], 2))
    return buffet.Joint(KNOWN, features, loadings, buffet.draw_values(rng, features, loadings, KNOWN.sigma_x))


def filter_p_values(key: int) -> np.ndarray:
    rng = np.random.default_rng(key)
    ranks = []
    for _ in range(REPLICATES):
        truth = known_joint(rng)
        cells = read_cells(truth.values, None)
        draws = [numbers(cells, one, KNOWN)[3:] for one in drawn_by_filter(rng, truth.values, DRAWS)]
        ranks.append(rank(rng, np.array(numbers(cells, truth.features, KNOWN)[3:]), np.array(draws)))
    return p_values(np.array(ranks))


def test_filter_is_calibrated():
    assert filter_p_values(8).min() > SMALLEST_P


def test_filter_calibration_finds_a_planted_bug(monkeypatch):
    buffet.plant_in_filter(monkeypatch)
    assert filter_p_values(8).min() < SMALLEST_P**2


def filter_geweke_z(n_chains: int, steps: int, key: int) -> np.ndarray:
    """Forward draws against chains of (Z drawn by a pass | X, X | Z), each begun at a joint draw."""
    rng = np.random.default_rng(key)

    def moments(features: np.ndarray, values: np.ndarray) -> list[float]:
        m, size = features.sum(0), np.log1p(values**2).mean()
        return [len(m), m.sum(), m @ m, size, size * m.sum(), size * len(m)]

    forward = [known_joint(rng) for _ in range(20 * n_chains)]
    expected = np.array([moments(draw.features, draw.values) for draw in forward])
    averages = []
    for _ in range(n_chains):
        values, visited = known_joint(rng).values, []
        for _ in range(steps):
            features = drawn_by_filter(rng, values, 1)[0].astype(np.float64)
            loadings = KNOWN.sigma_a * rng.standard_normal((features.shape[1], 2))
            values = buffet.draw_values(rng, features, loadings, KNOWN.sigma_x)
            visited.append(moments(features, values))
        averages.append(np.mean(visited, axis=0))
    chains = np.array(averages)
    error = np.sqrt(expected.var(0, ddof=1) / len(expected) + chains.var(0, ddof=1) / n_chains)
    return np.abs(expected.mean(0) - chains.mean(0)) / error


def test_filter_passes_geweke():
    """6 functions, |z| < 4.5, false alarms below 1e-4; the bias of 400 particles is far below the standard error."""
    assert filter_geweke_z(200, 3, 9).max() < 4.5


def test_filter_geweke_finds_a_planted_bug(monkeypatch):
    buffet.plant_in_filter(monkeypatch)
    assert filter_geweke_z(200, 3, 9).max() > 1.5 * 4.5
