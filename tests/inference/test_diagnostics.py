"""R̂ and effective sample sizes against NumPyro's, theory, and chains with something planted in them."""

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from lvsearch.inference.diagnostics import (
    bulk_effective_sample_size,
    mean_effective_sample_size,
    raftery_lewis,
    rhat,
)

M, N = 4, 600


def autoregressive(correlation: float, seed: int, shape: tuple[int, int] = (M, N)) -> np.ndarray:
    """Stationary chains of variance 1."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    out = noise.copy()
    for i in range(1, shape[1]):
        out[:, i] = correlation * out[:, i - 1] + np.sqrt(1 - correlation**2) * noise[:, i]
    return out


def ranked(draws: np.ndarray) -> np.ndarray:
    halves = np.concatenate(np.split(draws, 2, axis=1))
    return norm.ppf((rankdata(halves).reshape(halves.shape) - 0.375) / (halves.size + 0.25))


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
def test_the_same_as_numpyros_on_ranks(correlation):
    """NumPyro knows the same formulas without ranks, and folds nothing."""
    from numpyro.diagnostics import effective_sample_size, gelman_rubin

    draws = autoregressive(correlation, 1)
    draws = np.round(2 * draws)  # ties, as counts have
    folded = np.abs(draws - np.median(draws))
    expected = max(gelman_rubin(ranked(draws)), gelman_rubin(ranked(folded)))
    assert rhat(draws) == pytest.approx(float(expected), rel=1e-9)
    ours, theirs = bulk_effective_sample_size(draws), float(effective_sample_size(ranked(draws)))
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_draws_of_an_autoregression(correlation):
    """M N (1 − ρ) / (1 + ρ), the mean of 20 estimates within a tenth; and the errors that follow are those seen."""
    chains = [autoregressive(correlation, seed, (M, 2000)) for seed in range(20)]
    theory = M * 2000 * (1 - correlation) / (1 + correlation)
    for measure in (bulk_effective_sample_size, mean_effective_sample_size):
        assert np.mean([measure(draws) for draws in chains]) == pytest.approx(theory, rel=0.1)
    z = [draws.mean() * np.sqrt(mean_effective_sample_size(draws)) for draws in chains]
    assert 0.4 < np.mean(np.square(z)) < 1.8  # χ² of 20: false alarm 1e-2 either side, the seeds are fixed


def test_disagreement_is_seen():
    agreeing = autoregressive(0.0, 2)
    assert rhat(agreeing) < 1.01
    shifted, wider, drifting = agreeing.copy(), agreeing.copy(), agreeing + np.linspace(-1, 1, N)
    shifted[0] += 1.0
    wider[0] *= 3.0
    assert min(rhat(shifted), rhat(wider), rhat(drifting)) > 1.05
    assert bulk_effective_sample_size(shifted) < 0.02 * M * N
    heavy = np.random.default_rng(0).standard_cauchy((M, N))
    assert rhat(heavy) < 1.02  # ranks need no moments


def test_chains_that_never_move():
    """Also where the mean of equal numbers is not that number, to the last bit."""
    for n in (10, 150, 333):
        assert rhat(np.full((3, n), 2)) == 1.0
        assert np.isnan(bulk_effective_sample_size(np.full((3, n), 2)))
        assert np.isnan(mean_effective_sample_size(np.full((3, n), 0.1)))
        assert rhat(np.repeat([[2], [3]], n, axis=1)) == np.inf
    with pytest.raises(ValueError, match="at least 4 draws"):
        rhat(np.ones((2, 3)))


def test_run_length_is_that_of_the_quantile_where_it_is_the_largest_value():
    """Of a series of 0, 1 and 2 the quantile 0.9 is 2: what counts is whether a draw is below 2."""
    rng = np.random.default_rng(0)
    series = rng.choice(3, size=4000, p=[0.3, 0.3, 0.4]).astype(float)
    series[1000:] = np.where(series[1000:] == 2, 2, np.repeat([0, 1], 1500))  # only 0 and 1 take turns slowly
    below = (series < 2).astype(float)
    assert raftery_lewis(series, 0.9) == raftery_lewis(below, 0.3)
    assert raftery_lewis(series, 0.9).lag == 1
