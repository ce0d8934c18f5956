"""A first day for who knows NumPyro: how many powers of body mass predict diabetes, by an evidence of one's own."""

import numpy as np
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes

import lvsearch as lv

numpyro.enable_x64()
frame = load_diabetes(as_frame=True).frame[["bmi", "target"]]
x, y = ((frame - frame.mean()) / frame.std()).to_numpy().T


def log_evidence(size):
    """log p(target | powers 1, x, x²…): coefficients ~ Normal(0, 1/2) are integrated out, noise ~ Normal(0, 0.8)."""
    powers = x[:, None] ** np.arange(*size)
    return float(dist.MultivariateNormal(0.0, 0.25 * powers @ powers.T + 0.64 * np.eye(len(x))).log_prob(y))


result = lv.search(lv.from_function(log_evidence, size_names=("powers",)), prior=lv.sizes.Geometric(0.5), max_size=8)
print(result)
result.plot_posterior().figure.savefig("diabetes.png")
