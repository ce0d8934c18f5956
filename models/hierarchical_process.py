"""The hierarchical Dirichlet process by stick-breaking on two levels: the base class for topics and for components.

Source: Teh, Jordan, Beal & Blei (2006); Blei (2004), §5.6. This is the form of Wang, Paisley & Blei (2011, Eq. 1–5).
Its lower sticks point to shared parts through indicators, so every complete conditional is an exponential family. A
*unit* is one observation: a document, or a group of rows. A *part* is a topic or a mixture component. A *member* is a
token of a document or a row of a group. A *table* is a stick of a unit, with the part that it points to; the word is
that of the Chinese restaurant franchise. A *site* is a latent variable of the model.

    1. concentrations    γ ~ Gamma, α ~ Gamma           or given values
    2. upper sticks      V_k ~ Beta(1, γ)               k = 1, 2, …          weights β_k = V_k Π_{l<k} (1 − V_l)
    3. parts             φ_k ~ their prior              topics, components
    4. lower sticks      π'_jt ~ Beta(1, α)             t = 1, 2, …          weights π_jt likewise, in every unit j
    5. pointers          c_jt ~ Categorical(β)
    6. tables            z_jn ~ Categorical(π_j)        for every member n of the unit
    7. member            x_jn ~ p(· | φ_k),             k = c_{j, z_jn}

| site (by its name in `levels`) | letter | shape | support |
|---|---|---|---|
| both `concentration`s | (log γ, −γ), (log α, −α) | () | only with a prior |
| upper `sticks` | (log V_k, log(1 − V_k)) | (part,) | (0, 1) |
| `pointer` | c_jt | (table, part) | one-hot |
| `table` | z_jn | (member, table) | one-hot |
| lower `sticks` | (log π', log(1 − π')) | (table,) | (0, 1) |

Departure from the source. The last stick of either level keeps its Beta prior, and only q(z > tables) = q(c > size) =
0. Sticks, pointers and parts beyond the truncation have their prior as q and cancel. So the bound is one on the
evidence of the process. A truncated model, whose last stick is 1, can have a higher evidence.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.contract import JointDraw, Latents, Masks, Model, Site, Statistics, Unit, first
from lvsearch.models.families import Beta, BetaStatistics, Categorical, Gamma, GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior, log_gamma_density

TABLES = 12
"""The default truncation of a unit's sticks (the most tables that a document or a group of rows may use).

A document of Cora has some five topics, and bounds and held-out scores hardly change beyond ten tables.
"""


class Level(NamedTuple):
    """The names of one level of sticks of a hierarchical process.

    | field | meaning |
    |---|---|
    | `concentration` | the field of the model, and (if it has a prior) the latent variable |
    | `sticks` | the latent variable of the sticks |
    """

    concentration: str
    sticks: str


class Axes(NamedTuple):
    """The names of two axes: `part` for the shared topics or components, `member` for the tokens or rows of one
    unit.
    """

    part: str
    member: str


class HierarchicalProcess(Model):
    """Units whose members come from parts that all units share; `size` is the truncation of q's upper sticks.

    A unit is a document or a group of rows, a member a token or a row, and a part a topic or a component. A table is a
    stick of one unit, with the part that it points to.

    `levels`: the names of the upper level, shared by all units, and of the lower level, one for each unit.
    `axes`: the names of the axes of parts and members.
    `tables`: the truncation of a unit's sticks. A unit uses at most this many tables.
    """

    tables: eqx.AbstractVar[int]
    levels: eqx.AbstractClassVar[tuple[Level, Level]]
    axes: eqx.AbstractClassVar[Axes]

    size_names: ClassVar[tuple[str, ...]] = ("truncation",)
    nested: ClassVar[bool] = False
    process: ClassVar[bool] = True
    representation: ClassVar[str] = "pointer"

    # -- what the parts are -------------------------------------------------------------------------------------

    @abstractmethod
    def part_sites(self) -> dict[str, Site]:
        """Return {name: latent variable} of the parameters of the parts (topics or components), which all units
        share.
        """

    @abstractmethod
    def log_parts_prior(self, g: Latents) -> Float[Array, " part"]:
        """Return log p(φ_k), the log prior density of each part (topic or component) k, in nats, shape (part,).

        g: {name: statistics} of the latent variables that all units share.
        """

    @abstractmethod
    def members(self, unit: Unit) -> Any:
        """Return the members of one unit (tokens or rows) as arrays, members on the leading axis, as `log_likelihoods`
        takes them.

        unit: a document or a group of rows. The members of several units, one after another, have the same form.
        """

    @abstractmethod
    def copies(self, unit: Unit) -> Float[Array, " member"]:
        """Return how often each member of one unit (token or row) occurs, shape (member,); 0 for padding."""

    @abstractmethod
    def log_likelihoods(self, g: Latents, members: Any) -> Float[Array, "member part"]:
        """Return log p(x_n | φ_k) of one copy of each member n under each part k, in nats, shape (member, part).

        g: {name: statistics} of the latent variables that all units share; the result is linear in those of the parts.
        members: tokens or rows, as `members` returns them.
        """

    @abstractmethod
    def draw_parts(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """Draw the parts (topics or components) from their prior, and return {name: statistics}, parts leading.

        size: (truncation,), the number of parts. extents: lengths of the other axes, such as {"word": V} with V words.
        """

    # -- sticks, pointers and tables ----------------------------------------------------------------------------

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all units share: concentrations with priors, the upper sticks, and the
        parts.
        """
        upper, _ = self.levels
        priors = {level.concentration: Site(Gamma(), ()) for level in self.levels if self.has_prior(level)}
        return {**priors, upper.sticks: Site(Beta(), (self.axes.part,)), **self.part_sites()}

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one unit: the part of each table, the table of each member, and the lower
        sticks.
        """
        return {
            "pointer": Site(Categorical(), ("table", self.axes.part)),
            "table": Site(Categorical(), (self.axes.member, "table"), copies=self.copies),
            self.levels[1].sticks: Site(Beta(), ("table",)),
        }

    def extents(self, unit: Unit) -> dict[str, int]:
        """Return the numbers of members (tokens or rows, padding included) and of tables of one unit, by axis."""
        return {self.axes.member: self.copies(unit).shape[-1], "table": self.tables}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return the mask of the parts (topics or components) below the truncation, as {name of the axis: mask}."""
        return {self.axes.part: first(size[0], capacity[0])}

    def concentration_of(self, level: Level) -> Any:
        """Return the concentration of one level of sticks: a number, or its `GammaPrior`."""
        return getattr(self, level.concentration)

    def has_prior(self, level: Level) -> bool:
        """Return True if the concentration of one level of sticks is inferred under a prior."""
        return isinstance(self.concentration_of(level), GammaPrior)

    def log_and_value(self, g: Latents, level: Level) -> tuple[Any, Any]:
        """Return (log c, c) of the concentration c of one level of sticks.

        g: {name: statistics}; if c is inferred, the result is from its (expected) statistics, else from the given
            value.
        """
        if self.has_prior(level):
            return g[level.concentration].log_value, -g[level.concentration].negative_value
        return jnp.log(self.concentration_of(level)), jnp.asarray(self.concentration_of(level))

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return Σ_k [log Beta(V_k | 1, γ) + log p(φ_k)], plus the log priors of concentrations, in nats.

        V_k are the upper sticks and φ_k the parts (topics or components).

        g: {name: statistics} of the latent variables that all units share. on: {axis of the parts: mask of those that
            exist}.
        """
        upper, _ = self.levels
        log_gamma, gamma = self.log_and_value(g, upper)
        sticks = log_gamma + (gamma - 1) * g[upper.sticks].log_complement  # log Beta(V | 1, γ)
        total = jnp.where(on[self.axes.part], sticks + self.log_parts_prior(g), 0.0).sum()
        for level in self.levels:
            prior = self.concentration_of(level)
            if isinstance(prior, GammaPrior):
                total = total + log_gamma_density(prior, g[level.concentration])
        return total

    def log_unit(self, g: Latents, l: Latents, unit: Unit, on: Masks) -> Float[Array, ""]:
        """Return log p(lower sticks) + Σ_t log p(c_t | β) + Σ_n [log p(z_n | π) + log p(x_n | φ of its table's
        part)], in nats, of one unit.

        c_t is the part that table t points to, z_n the table of member x_n; β and π are the weights of parts and
        tables.

        g, l: {name: statistics} of the latent variables that all units share, and of those of this unit.
        unit: a document or a group of rows. on: {axis of the parts: mask of those that exist}.
        """
        _, lower = self.levels
        log_alpha, alpha = self.log_and_value(g, lower)
        sticks, pointer, at_table = l[lower.sticks], l["pointer"], self.copies(unit)[:, None] * l["table"]
        return (
            (log_alpha + (alpha - 1) * sticks.log_complement).sum()  # log Beta(π' | 1, α)
            + (pointer * self.log_weights(g, on)).sum()  # Σ_t log p(c_t | β)
            + (at_table * log_stick_weights(sticks)).sum()  # Σ_n log p(z_n | π)
            + ((at_table.T @ self.log_likelihoods(g, self.members(unit))) * pointer).sum()  # Σ_n log p(x_n | φ_k)
        )

    def log_weights(self, g: Latents, on: Masks) -> Float[Array, " part"]:
        """Return log β_k = log V_k + Σ_{l<k} log(1 − V_l), the log weight of each part k, in nats, shape (part,).

        g: {name: statistics}, of which the upper sticks V are used. on: {axis of the parts: mask}; parts that do not
            exist get 0.
        """
        exists = on[self.axes.part]
        sticks = jax.tree.map(lambda leaf: jnp.where(exists, leaf, 0.0), g[self.levels[0].sticks])
        return jnp.where(exists, log_stick_weights(sticks), 0.0)

    def expected_weights(self, natural: Latents) -> tuple[Float[np.ndarray, " part"], float]:
        """Return (E[β_k], the expected weight of each part under the fitted sticks, and the mass beyond the
        truncation).

        The first has shape (part,), float64; all together sum to 1. natural: {name: natural parameters} of the globals.
        """
        a, b = (np.asarray(leaf, np.float64) + 1 for leaf in natural[self.levels[0].sticks])
        left = np.cumprod(b / (a + b))
        return a / (a + b) * np.concatenate([[1.0], left[:-1]]), float(left[-1])

    def expected_concentration(self, level: Level, natural: Latents) -> float:
        """Return the posterior mean of the concentration of one level of sticks, or its given value.

        natural: {name: natural parameters} of the globals.
        """
        value = self.concentration_of(level)
        if not isinstance(value, GammaPrior):
            return float(value)
        fitted = natural[level.concentration]
        return float((np.float64(fitted.log_value) + 1) / np.float64(fitted.negative_value))

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return 0 nats: sticks have an order, so no relabelling of a fit is equally good."""
        return 0.0

    def plug_in(self) -> Model:
        """Raise ValueError: the model has no plug-in form."""
        name = type(self).__name__
        raise ValueError(
            f'{name} has no plug-in form, got evidence="plug-in": use evidence="marginal". With estimated '
            f"{self.axes.part}s, every unit would be given one of its own"
        )

    def simulate(self, key: Array, size: tuple[int, ...], units: Unit, extents: Mapping[str, int]) -> JointDraw:
        """Draw from the joint of the truncated model: pointers and tables beyond the truncation are drawn again.

        size: (truncation,). units: documents or groups; each gets as many members as it has columns or rows.
        extents: the lengths of the axes of the parts' latent variables, such as {"word": V} with V words.

        Returns (statistics of the globals by name, statistics of the locals by name with units leading, the drawn
        units).
        """
        keys = jax.random.split(key, 8)
        upper, lower = self.levels
        n_units, length = jax.eval_shape(jax.vmap(self.copies), units).shape
        on = self.active(size, size)
        g: dict[str, Statistics] = {}
        for k, level in zip(keys[:2], self.levels, strict=True):
            prior = self.concentration_of(level)
            if isinstance(prior, GammaPrior):
                natural = GammaStatistics(jnp.asarray(prior.shape) - 1, jnp.asarray(prior.rate))
                g[level.concentration] = Gamma().sample(k, natural)
        _, gamma = self.log_and_value(g, upper)
        _, alpha = self.log_and_value(g, lower)
        g[upper.sticks] = _prior_sticks(keys[2], gamma, size)
        g |= self.draw_parts(keys[3], size, extents)
        sticks = _prior_sticks(keys[4], alpha, (n_units, self.tables))
        pointed = jax.random.categorical(keys[5], self.log_weights(g, on), shape=(n_units, self.tables))
        weights = jax.vmap(log_stick_weights)(sticks)
        seated = jax.random.categorical(keys[6], weights[:, None, :], shape=(n_units, length))
        l = {
            "pointer": jax.nn.one_hot(pointed, size[0]),
            "table": jax.nn.one_hot(seated, self.tables),
            lower.sticks: sticks,
        }
        return g, l, self._draw_units(keys[7], g, l, units, on)


def checked_tables(tables: int, what: str) -> int:
    """Return `tables`, the truncation of a unit's sticks, as an integer. Raises ValueError unless it is at least 1.

    what: the kind of member, such as "word of a document", for the error.
    """
    if tables < 1:
        raise ValueError(f"got tables={tables}, expected at least 1: every {what} sits at one")
    return int(tables)


def log_stick_weights(sticks: BetaStatistics) -> Float[Array, "*element stick"]:
    """Return log V_t + Σ_{s<t} log(1 − V_s), the log weight of each stick t, in nats.

    sticks: statistics (log V, log(1 − V)), sticks on the last axis; the result has the same shape and is linear in
        them.
    """
    return sticks.log_value + jnp.cumsum(sticks.log_complement, -1) - sticks.log_complement


def _prior_sticks(key: Array, concentration: Any, shape: tuple[int, ...]) -> BetaStatistics:
    """Draw sticks V ~ Beta(1, concentration) of the given shape, and return their statistics (log V, log(1 − V))."""
    natural = BetaStatistics(jnp.zeros(shape), jnp.broadcast_to(jnp.asarray(concentration) - 1, shape))
    return Beta().sample(key, natural)
