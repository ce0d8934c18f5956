"""An annealing path for any model, from a q of independent latent variables to its posterior.

It is slow, and serves as the reference for every faster chain. q = Π_site Π_element q(element), each factor in the
exponential family of its latent variable (a *site*) with natural parameter λ. The complete conditional of a site under
π_t ∝ q^(1−t) p(·, data)^t is then in the same family, at

    (1 − t) λ + t ∂ log-joint / ∂ t(site) / copies                                        (Blei 2004, Eq. 2.18)

so the tempered sweep is the sweep of `gibbs` with one more line. q is *flat*: it is what the
priors alone say of each site. It is symmetric in the components and covers everything (for little data).

Sweeps visit sites in the model's order in both directions. So a backward path is not the exact time reversal of a
forward one; each is a valid annealing of its own.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.particle_arrays import AnnealingChain, SymmetricStart
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.gibbs import GibbsState, Tilt, conditional_draw, sweep_state
from lvsearch.inference.engine.meanfield import cast, expected_statistics, local_lengths, unit_masks
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.models.contract import Latents, Masks, Model, Site, Statistics, Unit
from lvsearch.models.exponential.family import inner
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import full_precision

PRIOR_SWEEPS = 5


class GenericChain(AnnealingChain, SymmetricStart):
    """The annealing chain of one model, data set and size. States are `GibbsState`s with particles on the first axis.

    | field | meaning |
    |---|---|
    | `model`, `batches`, `unit_ids`, `size` | the model and data to sample; `size` is traced |
    | `globals`, `locals` | λ of q: site -> natural parameters; locals of each batch, units leading |
    | `capacity` | how many array slots there are for components |

    A *site* is a latent variable of the model. *Globals* are shared by all units of data, *locals* belong to one unit.
    """

    model: Model
    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[Array | np.ndarray, " _"], ...]
    size: tuple[Any, ...]
    globals: dict[str, Statistics]
    locals: tuple[dict[str, Statistics], ...]
    capacity: tuple[int, ...] = eqx.field(static=True)

    directed: ClassVar[bool] = False
    """False: both directions visit sites in the same order."""

    @property
    def elements(self) -> int:
        """The number of values that one sweep of a particle draws, which is roughly what a sweep costs."""
        return sum(leaf.size for leaf in jax.tree.leaves((self.globals, self.locals)))

    def init(self, key: Key[Array, ""], particles: int) -> GibbsState:
        """Draw the first state: `particles` independent draws of q."""
        return jax.vmap(self._draw_particle)(jax.random.split(key, particles))

    def step(
        self, key: Key[Array, ""], state: GibbsState, temperature: Float[Array, ""], *, backward: bool
    ) -> GibbsState:
        """Return the state after one tempered Gibbs sweep over all latent variables of every particle.

        temperature: t, from 0 (q) to 1 (the posterior).
        backward: ignored, since both directions visit variables in the same order.
        """
        del backward  # both directions visit sites in the same order
        keys = jax.random.split(key, len(jax.tree.leaves(state)[0]))
        on = self.model.active(self.size, self.capacity)

        def one(particle_key: Array, s: GibbsState) -> GibbsState:
            tilt = Tilt(temperature, self.globals, self.locals)
            return sweep_state(self.model, particle_key, s, self.batches, self.unit_ids, on, tilt)

        return jax.vmap(one)(keys, state)

    def log_ratio(self, state: GibbsState) -> Float[Array, " particle"]:
        """Return log p(state, data) − log q(state) of each particle, (particle,), in nats."""
        return self.log_density(state) - jax.vmap(self._log_q)(state)

    def log_density(self, state: GibbsState) -> Float[Array, " particle"]:
        """Return log p(state, data) of each particle, (particle,), in nats."""
        return jax.vmap(self._log_joint)(state)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_joint(self, state: GibbsState) -> Float[Array, ""]:
        """Return log p(state, data) of one particle, nats."""
        on = self.model.active(self.size, self.capacity)
        total = self.model.log_prior(state.globals, on)
        for batch, l in zip(self.batches, state.locals, strict=True):
            per_unit = jax.vmap(
                lambda unit, lu: self.model.log_unit(state.globals, lu, unit, unit_masks(self.model, unit, on))
            )(batch.units, l)
            total = total + jnp.where(batch.weight > 0, batch.weight * per_unit, 0).sum()
        return total

    def _log_q(self, state: GibbsState) -> Float[Array, ""]:
        """Return log q(state) of one particle, nats."""
        on = self.model.active(self.size, self.capacity)
        total = jnp.zeros(())
        for name, site in self.model.globals().items():
            total = total + _log_density(site, self.globals[name], state.globals[name], on).sum()
        for batch, natural, l in zip(self.batches, self.locals, state.locals, strict=True):

            def one_unit(unit: Unit, eta: dict[str, Statistics], lu: dict[str, Statistics]) -> Array:
                exists = unit_masks(self.model, unit, on)
                log_q = jnp.zeros(())
                for name, site in self.model.locals().items():
                    density = _log_density(site, eta[name], lu[name], exists)
                    log_q = log_q + (density if site.copies is None else site.copies(unit) * density).sum()
                return log_q

            per_unit = jax.vmap(one_unit)(batch.units, natural, l)
            total = total + jnp.where(batch.weight > 0, batch.weight * per_unit, 0).sum()
        return total

    def _draw_particle(self, key: Key[Array, ""]) -> GibbsState:
        """Draw one particle from q: the sampled statistics of all latent variables."""
        on = self.model.active(self.size, self.capacity)
        key_globals, key_locals = jax.random.split(key)
        g = {
            name: conditional_draw(jax.random.fold_in(key_globals, place), site, self.globals[name], None, on)
            for place, (name, site) in enumerate(self.model.globals().items())
        }

        def one_unit(unit: Unit, unit_id: Any, natural: dict[str, Statistics]) -> dict[str, Statistics]:
            exists, unit_key = unit_masks(self.model, unit, on), jax.random.fold_in(key_locals, unit_id)
            return {
                name: conditional_draw(jax.random.fold_in(unit_key, place), site, natural[name], unit, exists)
                for place, (name, site) in enumerate(self.model.locals().items())
            }

        drawn = [
            jax.vmap(one_unit)(batch.units, ids, natural)
            for batch, ids, natural in zip(self.batches, self.unit_ids, self.locals, strict=True)
        ]
        return GibbsState(g, tuple(drawn))


def _log_density(site: Site, natural: Statistics, statistics: Statistics, on: Masks) -> Float[Array, "..."]:
    """Return log q of each element of a latent variable, in nats; 0 where the element does not exist.

    An element that stands for several copies counts once.

    natural: the natural parameters of q.
    statistics: the sufficient statistics of the values at which the density is taken.
    on: {axis: mask of the entries that exist}.
    """
    mask = site.event_mask(on)
    log = inner(site.family, natural, statistics, mask) - site.family.log_normaliser(natural, mask)
    exists = site.element_mask(on, len(site.element_axes))
    return log if exists is None or exists.ndim != log.ndim else jnp.where(exists, log, 0.0)


def flat_chain(model: Model, data: Dataset, size: tuple[int, ...], capacity: tuple[int, ...]) -> GenericChain:
    """Return the annealing chain whose path begins with a flat q, made from the priors alone.

    Global variables get a mean-field fit to the prior, which is exact where they are independent under the prior.
    Indicators get equal probability for every entry. Other local variables get what `log_unit` says of them with global
    variables at the means of q and no indicators.

    size: how many components, for each size variable.
    capacity: how many array slots for components, for each size variable.

    Raises ValueError for a model with gated elements or point estimates.
    """
    batches, sizes = cast(data, np.float64).batches, tuple(np.int32(n) for n in size)
    with jax.enable_x64(True):
        return chain_from_priors(model, batches, data.unit_ids, data.extents, sizes, capacity)


def chain_from_priors(
    model: Model,
    batches: tuple[Batch, ...],
    unit_ids: tuple[Array | np.ndarray, ...],
    extents: Mapping[str, int],
    size: tuple[Any, ...],
    capacity: tuple[int, ...],
) -> GenericChain:
    """Build the chain of `flat_chain` inside a traced caller, in the precision of the batches' weights.

    Globals are the latent variables that all units share.

    batches: the units of data.
    unit_ids: the number of each unit, (units,) for each batch.
    extents: lengths of the axes of the globals that the data decide, such as {"word": number of words}.
    size, capacity: how many components exist, which may be traced, and how many array slots there are for them.
    """
    _check_no_gates(model)
    dtype = jnp.asarray(batches[0].weight).dtype
    natural, mean = _flat_globals(model, extents, size, capacity, dtype)
    locals_ = tuple(_flat_locals(model, mean, batch, size, capacity=capacity) for batch in batches)
    return GenericChain(model, batches, unit_ids, size, natural, locals_, capacity)


def _check_no_gates(model: Model) -> None:
    """Raise ValueError for a model with gated elements, which exist only if an indicator chooses them."""
    sites = {**model.globals(), **model.locals()}
    if any(site.gate is not None for site in sites.values()):
        raise ValueError(
            f"{type(model).__name__} has elements that exist only on the chosen path: its evidence cannot be annealed "
            "by the generic chain; sample it instead"
        )


@eqx.filter_jit
@full_precision
def _flat_globals(
    model: Model, extents: Mapping[str, int], size: tuple[Any, ...], capacity: tuple[int, ...], dtype: Any
) -> tuple[dict[str, Statistics], dict[str, Statistics]]:
    """Return (natural parameters, expected statistics) by site of the global variables under a mean-field fit to the
    prior.

    extents: lengths of the axes that the data decide, such as {"word": number of words}.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)
    natural, mean = blank_globals(model, extents, size, capacity, dtype)
    natural, mean = dict(natural), dict(mean)
    sites = sorted(model.globals().items(), key=lambda entry: len(entry[1].axes))  # scales before scaled variables
    for _ in range(PRIOR_SWEEPS):
        for name, site in sites:
            gradient = jax.grad(lambda m, n=name: model.log_prior({**mean, n: m}, on))(mean[name])
            natural[name] = gradient
            mean[name] = expected_statistics(site, gradient, on)
    return natural, mean


@eqx.filter_jit
@full_precision
def _flat_locals(
    model: Model,
    g: Latents,
    batch: Batch,
    size: tuple[Any, ...],
    *,
    capacity: tuple[int, ...],
) -> dict[str, Statistics]:
    """Return natural parameters by site of the local variables of each unit in a batch, under the flat q, units
    leading.

    Global sites are the latent variables that all units share.

    g: {global site: expected sufficient statistics} under the flat q.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)
    dtype = jnp.asarray(batch.weight).dtype

    def one(unit: Unit) -> dict[str, Statistics]:
        """Return the natural parameters of one unit: 0 for indicators, the gradient of `log_unit` for other sites."""
        exists, sites = unit_masks(model, unit, on), model.locals()
        lengths = local_lengths(model, unit, on)
        blank = {n: s.family.zeros(tuple(lengths[axis] for axis in s.axes), dtype) for n, s in sites.items()}
        natural = dict(blank)
        for name, site in sites.items():
            if not isinstance(site.family, IndicatorFamily):
                gradient = jax.grad(lambda m, n=name: model.log_unit(g, {**blank, n: m}, unit, exists))(blank[name])
                natural[name] = gradient
        return natural

    return jax.vmap(one)(batch.units)
