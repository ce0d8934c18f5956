"""What the numbers were computed with."""

import importlib.metadata

import jax

PACKAGES = ("lvsearch", "jax", "jaxlib", "equinox", "numpyro", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers, and the device."""
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {"device": jax.devices()[0].device_kind}
