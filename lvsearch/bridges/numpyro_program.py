"""A NumPyro model in the form that annealing needs: draws of its prior, the prior's density, and the data's density.

    p(data) = ∫ p(u) p(data | u) du

u are the unconstrained coordinates of all continuous latents; discrete latents are summed out
(`numpyro.contrib.funsor`). p(u) is the density of the model without everything observed, its factors included. p(data |
u) is the ratio of the joint density to p(u).
"""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lvsearch.inference.annealing.density import DensityChain, blank_step_lengths, traced

FARTHEST = 700.0
"""The largest absolute coordinate of a draw; coordinates beyond it are set to it. It is about log of the largest
float64.
"""
EXAMPLE = 0x5175
"""The seed of the run that shows which NumPyro sites a model has."""


class Sites(NamedTuple):
    """The NumPyro sites (random variables) that one run of a model had.

    | field | meaning |
    |---|---|
    | `continuous`, `discrete` | the names of the continuous and the discrete latents |
    | `observed` | the names of the observed sites |
    | `plates` | the number of nested plates |
    | `work` | how many numbers the sites have; a site that is summed out counts once for each of its values |
    """

    continuous: tuple[str, ...]
    discrete: tuple[str, ...]
    observed: frozenset[str]
    plates: int
    work: int


def chain_of(model: Callable[[Any], Any], size: Any) -> DensityChain:
    """Return the annealing path from the prior of `model(size)` to its posterior, with step lengths not tuned yet.

    model: a NumPyro model of the size alone.
    size: an array of one whole number per size variable, which may be traced.

    Call it inside `jax.enable_x64`, in one thread.

    Raises ValueError for models whose evidence has no meaning or cannot be computed; `sites_of` lists the reasons.
    """
    import numpyro
    from numpyro.infer.util import potential_energy

    sites = sites_of(model, size)
    summed = _enumerate_discrete(model, sites) if sites.discrete else model

    # a draw of the continuous latents, on unconstrained reals
    def coordinates(key: Any, size: Any) -> dict[str, Any]:
        run = numpyro.handlers.trace(numpyro.handlers.seed(model, key)).get_trace(size)
        return {
            name: numpyro.distributions.biject_to(run[name]["fn"].support).inv(run[name]["value"])
            for name in sites.continuous
        }

    key = jax.random.key(EXAMPLE)
    example, unraveled = ravel_pytree(coordinates(key, size))

    def draw(key: Any, size: Any) -> Any:
        return jnp.clip(ravel_pytree(coordinates(key, size))[0].astype(float), -FARTHEST, FARTHEST)

    def log_joint(program: Callable, u: Any, size: Any) -> Any:
        return jnp.asarray(-potential_energy(program, (size,), {}, unraveled(u), enum=bool(sites.discrete)), float)

    without_data = _hide_observed(summed, sites.observed)

    # log p(u), and log p(data | u) as the difference of the joint density and the prior's
    def log_densities(u: Any, size: Any) -> Any:
        log_prior = log_joint(without_data, u, size)
        return jnp.stack([log_prior, log_joint(summed, u, size) - log_prior])

    u = example.astype(float)
    return DensityChain(
        traced(draw, key, size), traced(log_densities, u, size), size, blank_step_lengths(len(u)), sites.work
    )


def sites_of(model: Callable[[Any], Any], size: Any) -> Sites:
    """Return the NumPyro sites (random variables) of one run of the model.

    Raises ValueError, saying what to do, for models whose evidence cannot be computed. These have improper priors,
    `numpyro.param`, discrete latents without finite support or inside of NumPyro's `scan`, plates that draw a
    subsample, priors that are scaled or masked, observations that are NaN, or no continuous latent. Raises ImportError
    if discrete latents need funsor and it is missing.
    """
    import numpyro
    from numpyro.distributions import MaskedDistribution

    loops: list[str] = []
    watched = _list_loops(_refuse_improper(model), loops)
    run = numpyro.handlers.trace(numpyro.handlers.seed(watched, EXAMPLE)).get_trace(size)
    continuous, discrete, observed, frames, loose, scaled, work = [], [], [], [0], [], [], 0
    for name, site in run.items():
        if site["type"] in ("param", "mutable"):
            raise _refusal(name, "is a parameter without a prior", "numpyro.sample with a prior: it is integrated out")
        if site["type"] == "plate" and site["args"][0] != (site["args"][1] or site["args"][0]):
            raise _refusal(name, "draws a subsample of its plate", "all of the data: the evidence is of all of them")
        if site["type"] != "sample":
            continue
        # batch axes that no plate declares would be confused with the axes on which values are enumerated
        dims = [-frame.dim for frame in site["cond_indep_stack"] if frame.dim is not None]
        frames += dims
        batch = site["fn"].batch_shape[::-1]
        loose += [name for dim, length in enumerate(batch, 1) if length > 1 and dim not in dims]
        work += int(np.size(site["value"]))
        scaled += [name] if site["scale"] is not None else []
        if site["is_observed"]:
            _refuse_nan(name, site["value"], site["fn"])
            observed.append(name)
            continue
        if site["fn"].support.is_discrete:
            if not site["fn"].has_enumerate_support:
                raise _refusal(
                    name,
                    f"is discrete without an end ({type(site['fn']).__name__})",
                    "a distribution with finitely many values, which are summed out, or a continuous one",
                )
            discrete.append(name)
            work += int(np.size(site["value"])) * (len(site["fn"].enumerate_support(expand=False)) - 1)
            continue
        if site["scale"] is not None or isinstance(site["fn"], MaskedDistribution):
            raise _refusal(
                name,
                "is a latent whose prior is scaled or masked, and so no longer a distribution",
                "scale and mask around what is observed only; latents that affect no data change nothing as they are",
            )
        continuous.append(name)
    if not continuous:
        raise ValueError("got a model without continuous latents, expected at least one numpyro.sample of them")
    if not observed:
        raise ValueError(
            "got a model that observes nothing, expected numpyro.sample(…, obs=…) or numpyro.factor: does it get data?"
        )
    if discrete and loops:
        raise ValueError(
            f"got discrete latents ({', '.join(discrete)}) beside numpyro.contrib.control_flow.scan, which are not "
            "summed out: expected lv.models.HiddenMarkov with lv.Groups, or the forward recursion written out: "
            "jax.lax.scan over logsumexp(log_alpha[:, None] + jnp.log(transition), 0) + log_likelihood_of_state, its "
            "end added by numpyro.factor"
        )
    if discrete and scaled:
        raise _refusal(
            scaled[0],
            "is scaled beside discrete latents that are summed out, so that a row's density would be a sum of powers",
            "rows as often as they count, or the discrete latents summed out by the model inside of the scale, as with "
            "numpyro.distributions.MixtureSameFamily",
        )
    if discrete and loose:
        raise _refusal(
            loose[0],
            "has several elements in no plate, beside latents that are summed out",
            ".to_event(1) on its distribution, or the site inside a numpyro.plate",
        )
    if discrete and find_spec("funsor") is None:
        raise ImportError(
            f"got a model with discrete latents ({', '.join(discrete)}), which funsor sums out: pip install "
            '"lvsearch[enumerate]", or sum them out yourself, as with numpyro.distributions.MixtureSameFamily'
        )
    return Sites(tuple(sorted(continuous)), tuple(discrete), frozenset(observed), max(frames), work)


def _refusal(name: str, what: str, instead: str) -> ValueError:
    """Return the ValueError for a NumPyro site that is not supported.

    name: the site. what: what is wrong with it, after its name. instead: what is expected.
    """
    return ValueError(f"site {name!r} {what}: expected {instead}")


def _refuse_nan(name: str, value: Any, distribution: Any) -> None:
    """Raise ValueError for observations that are NaN and are not masked: their log-density is NaN, or −∞ if validated.

    name: the site. value: the observations. distribution: theirs, in which masked observations count 0.
    """
    missing = np.isnan(np.asarray(value, float))
    if not missing.any():
        return
    with warnings.catch_warnings():  # NumPyro warns of values outside of the support
        warnings.simplefilter("ignore")
        has_no_density = ~np.isfinite(np.asarray(distribution.log_prob(value)))
    of_events = tuple(range(-len(distribution.event_shape), 0))
    is_counted = (has_no_density & missing.any(axis=of_events)).any()
    if is_counted:
        raise _refusal(
            name,
            f"observes NaN in {missing.sum():,} of {missing.size:,} numbers",
            "numbers; where NaN marks what is missing, leave these rows out, or mask them: numpyro.handlers.mask("
            "mask=~jnp.isnan(x)) around the site, with any number in their place",
        )


def _list_loops(model: Callable, loops: list[str]) -> Callable:
    """Return the model, changed so that it adds a word to `loops` for each loop of NumPyro, such as `scan`."""
    from numpyro.primitives import Messenger

    class Watched(Messenger):
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "control_flow":
                loops.append(msg["type"])

    return Watched(model)


def _enumerate_discrete(model: Callable, sites: Sites) -> Callable:
    """Return the model with its discrete latents enumerated, on axes to the left of all plates.

    sites: the NumPyro sites of the model.
    """
    from numpyro.contrib.funsor import config_enumerate, enum

    return enum(config_enumerate(model), -sites.plates - 1)


def _hide_observed(model: Callable, observed: frozenset[str]) -> Callable:
    """Return the model without the density of its observed NumPyro sites, so that only the prior is left.

    observed: the names of these sites.
    """
    from numpyro.primitives import Messenger

    class Unseen(Messenger):
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "sample" and msg["name"] in observed:
                msg["fn"] = msg["fn"].mask(False)

    return Unseen(model)


def _refuse_improper(model: Callable) -> Callable:
    """Return the model, changed so that it raises ValueError for latents with an improper prior."""
    from numpyro.primitives import Messenger

    class Proper(Messenger):
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "sample" and not msg["is_observed"] and _is_improper(msg["fn"]):
                raise _refusal(
                    msg["name"],
                    "has an improper prior, under which the evidence means nothing",
                    "a prior that integrates to 1",
                )

    return Proper(model)


def _is_improper(distribution: Any) -> bool:
    """Return True for NumPyro's ImproperUniform, also inside of other distributions."""
    from numpyro.distributions import ImproperUniform

    while distribution is not None:
        if isinstance(distribution, ImproperUniform):
            return True
        distribution = getattr(distribution, "base_dist", None)
    return False
