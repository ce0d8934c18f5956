"""A first day for who knows NumPyro: how many powers of body mass predict diabetes, by a model of one's own."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

import lvsearch as lv

patients = scale(load_diabetes(as_frame=True).frame[["bmi", "target"]])


def polynomial(size, data):
    """Powers 1, x, x² … of body mass, as many as the size says, and noise of unknown strength."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 0.5).expand([size]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("patients", len(data)):
        numpyro.sample("target", dist.Normal(data[:, :1] ** jnp.arange(size) @ weights, noise), obs=data[:, 1])


result = lv.search(lv.from_numpyro(polynomial, size_names=("powers",)), patients, max_size=6)
print(result)
result.plot_posterior().figure.savefig("diabetes.png")
