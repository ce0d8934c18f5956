"""Empirical Bayes: find the hyper-parameters that maximise the evidence bound while q is fixed.

Dirichlet parameters are found by Newton's method (Blei 2004, §3.4.2; the linear-time step is Minka 2000). That runs in
float64 on the host, since there are at most a few hundred numbers.
"""

import numpy as np
from jaxtyping import Float64
from scipy.special import digamma, polygamma

NEWTON_STEPS = 100
"""The largest number of Newton steps."""


def newton_dirichlet(
    concentration: Float64[np.ndarray, " entry"], mean_log: Float64[np.ndarray, " entry"], *, floor: float = 1e-6
) -> Float64[np.ndarray, " entry"]:
    """Return the parameter α of a Dirichlet that maximises the average log-likelihood of proportions, (entry,).

    It maximises log Γ(Σα) − Σ log Γ(α_k) + Σ (α_k − 1) mean_log_k by Newton's method. The Hessian is diagonal plus a
    constant, so a step takes time proportional to the number of entries. A step that would leave the positive numbers
    is halved until it does not.

    concentration: the α to start from, (entry,).
    mean_log: the average over documents of E[log θ_k], where θ_k is the document's proportion of entry k, (entry,).
    floor: the smallest value of an entry; it is reached by entries that no document uses.
    """
    alpha = np.maximum(concentration, floor)
    if alpha.size == 1:  # a simplex of one point: any α gives the same likelihood
        return alpha
    for _ in range(NEWTON_STEPS):
        # the Hessian is diag(curvature) + constant: Newton's step is (gradient − shift) / curvature (Blei 2004, §3.4.2)
        gradient = digamma(alpha.sum()) - digamma(alpha) + mean_log
        curvature = -polygamma(1, alpha)
        constant = polygamma(1, alpha.sum())
        shift = (gradient / curvature).sum() / (1 / constant + (1 / curvature).sum())
        step = (gradient - shift) / curvature
        rate = 1.0
        while np.any(alpha - rate * step <= 0):
            rate /= 2
        new = np.maximum(alpha - rate * step, floor)
        if np.max(np.abs(new - alpha) / alpha) < 1e-8:
            return new
        alpha = new
    return alpha


def newton_symmetric(total: float, entries: int, mean_log_sum: float) -> float:
    """Return the total A of a symmetric Dirichlet that maximises log Γ(A) − n log Γ(A/n) + (A/n) · mean_log_sum.

    This is the average log-likelihood of draws θ from a Dirichlet with parameter A/n in each of n entries. The method
    is Newton's in log A. With fewer than two entries the likelihood does not depend on A, and `total` is returned.

    total: the A to start from.
    entries: n, the number of entries of the Dirichlet.
    mean_log_sum: the average over draws of Σ_k E[log θ_k].
    """
    if entries < 2:
        return total
    log_total = np.log(total)
    for _ in range(NEWTON_STEPS):
        a = np.exp(log_total)
        slope = digamma(a) - digamma(a / entries) + mean_log_sum / entries
        curvature = polygamma(1, a) - polygamma(1, a / entries) / entries
        step = a * slope / (a * slope + a * a * curvature)  # in log A
        step = float(np.clip(step if a * slope + a * a * curvature < 0 else -np.sign(slope), -1.0, 1.0))
        log_total -= step
        if abs(step) < 1e-10:
            break
    return float(np.exp(log_total))
