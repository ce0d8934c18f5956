"""A first day for who knows NumPyro: the degree of a polynomial in diabetes, from one's own log evidence."""

import numpyro.distributions as dist
from sklearn.datasets import load_diabetes

frame = load_diabetes(as_frame=True, scaled=False).frame[["bmi", "target"]]
x, y = (frame - frame.mean()).div(frame.std()).to_numpy().T
powers = [x[:, None] ** range(degree + 1) for (degree,) in [(d,) for d in range(8)]]
marginal = dist.MultivariateNormal  # y given the degree, coefficients ~ Normal(0, 0.5) and noise integrated out
