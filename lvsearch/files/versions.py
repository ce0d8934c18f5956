"""Report the versions of the packages that results were computed with."""

import importlib.metadata

import jax

PACKAGES = ("lvsearch", "jax", "jaxlib", "equinox", "numpyro", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide the numbers, and the device, as {name: text}."""
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {"device": jax.devices()[0].device_kind}
