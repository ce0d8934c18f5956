"""What every kind of mixture component says about itself, and the three densities that follow.

A row x has an exponential-family density whose conjugate prior is the family of the component's parameters θ:

    log p(x | θ) = ⟨t(θ), s(x)⟩ + log h(x),        log p(θ) = ⟨t(θ), λ⟩ − A(λ)            (Blei 2004, §5.2.3)

so s(x), the `increment`, is what one row adds to the natural parameters, and with q(θ) or p(θ | rows) at natural τ

    log ∫ p(x | θ) q(θ) dθ = A(τ + s(x)) − A(τ) + log h(x)                                 (Eq. 5.13).

Everything that mixtures do is made of these: no engine or sampler knows which kind it has.

A row may arise in one of several *variants* v, as with one of several precisions, each of such a form with the same θ:

    log p(x | θ) = log Σ_v p(v) exp(⟨t(θ), s_v(x)⟩ + log h_v(x))

Which one it was is latent, beside which component the row is from. All kinds but those that say otherwise have one.

Hyper-parameters h may have Gamma priors of their own, shared by all components. Where λ(h) is linear in h and A(λ(h))
linear in log h, which is what a kind says with `hyper_axes`, log p(θ | h) is multilinear in t(θ) and in (log h, −h):

    log p(θ_1 … θ_K, h) = Σ_k [⟨t(θ_k), λ(h)⟩ − A(λ(h))] + log p(h)
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from lvsearch.models.contract import Site
from lvsearch.models.exponential.family import Family, inner
from lvsearch.models.families import Gamma, GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior, in_words
from lvsearch.models.units import Row

Kind = TypeVar("Kind", bound="Component")


class Component(eqx.Module):
    """One kind of component. Array leaves are hyper-parameters.

    Increments, natural parameters and statistics are in the coordinates of `coordinates`: the data shifted and scaled
    by hyper-parameters, so that floats keep their digits whatever the unit of the data. Densities are of the data
    themselves. `axes` names the axes of one component's statistics, those of one row's cells ("dim") first.
    """

    axes: eqx.AbstractClassVar[tuple[str, ...]]
    elliptical: ClassVar[bool] = True
    """Whether the mean and covariance of a component say where its rows are, as an ellipse does."""
    cellwise: ClassVar[bool] = False
    """Cells are independent given the parameters, each with statistics of its own: one cell alone has a density."""
    hyper_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Fields that may hold a `GammaPrior` in place of a number -> the axes along which each has a value of its own: ()
    or ("dim",). λ is linear in them and A(λ) linear in their logarithms, all of them together."""
    scored: ClassVar[bool] = False
    """Rows have scores of their own beside the component they are from, so that they are no sums of increments."""
    estimated: eqx.AbstractVar[bool]
    """Parameters are points, with no prior (plug-in evidence), instead of integrated out."""

    @property
    @abstractmethod
    def family(self) -> Family:
        """The family of the parameters: that of their prior, or points where they are `estimated`."""

    @property
    @abstractmethod
    def prior_family(self) -> Family:
        """The family of the parameters' prior."""

    @property
    def own_extents(self) -> dict[str, int]:
        """Lengths of those of its `axes` that neither data nor size decide, such as {"level": 5}. By default none."""
        return {}

    @property
    def own_axes(self) -> dict[str, Bool[Array, " axis"]]:
        """What exists along each of these: everything, for `Model.active` of a model with such components."""
        return {axis: jnp.ones(length, bool) for axis, length in self.own_extents.items()}

    def n_dims(self, statistics: Any) -> int:
        """How many columns rows have, from statistics of several components' parameters."""
        return max(jax.tree.leaves(statistics), key=lambda leaf: leaf.ndim).shape[1 + self.axes.index("dim")]

    def describe(self) -> str:
        """The kind and its hyper-parameters in a few words. By default the class and its fields."""
        values = ", ".join(f"{entry.name} {words(getattr(self, entry.name))}" for entry in fields(self))
        return f"{type(self).__name__} ({values})"

    @property
    def inferred(self) -> dict[str, GammaPrior]:
        """The hyper-parameters that have priors, by name."""
        values = {name: getattr(self, name) for name in self.hyper_axes}
        return {name: value for name, value in values.items() if isinstance(value, GammaPrior)}

    def number(self, name: str) -> Any:
        """A hyper-parameter that is given. Raises ValueError where it has a prior."""
        value = getattr(self, name)
        if isinstance(value, GammaPrior):
            raise ValueError(f"got {name} {in_words(value)}, expected a number: put one in its place with given()")
        return value

    @property
    def hyper_sites(self) -> dict[str, Site]:
        """Of the hyper-parameters that have priors: global sites of a model with these components."""
        return {name: Site(Gamma(), self.hyper_axes[name]) for name in self.inferred}

    def given(self: Kind, values: Mapping[str, Any]) -> Kind:
        """The same kind with these numbers, on the axes of `hyper_axes`, in place of priors; they may be traced."""
        if not values:
            return self
        return eqx.tree_at(lambda c: [getattr(c, name) for name in values], self, list(values.values()))

    def at(self: Kind, hyper: Mapping[str, Any]) -> Kind:
        """Given h at the expected statistics of its sites; others that `hyper` holds are not looked at. Its `prior` is
        E[λ(h)]."""
        return self.given({name: -hyper[name].negative_value for name in self.inferred})

    def at_prior_means(self: Kind) -> Kind:
        """With the mean of its prior in place of each."""
        return self.given({name: prior.shape / prior.rate for name, prior in self.inferred.items()})

    def check(self, units: Row) -> None:
        """Raise ValueError for rows that have no density here: cells that are no counts, rows known in part… By default
        every row has one."""
        del units

    @abstractmethod
    def prior(self, n_dims: int) -> Any:
        """λ: the natural parameters of one component without rows, in `n_dims` columns."""

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        """The row in the coordinates of the statistics; 0 where nothing was observed. By default those of the data."""
        return jnp.where(unit.observed, jnp.asarray(unit.value), 0.0)

    @abstractmethod
    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Any:
        """s(x) of one row; 0 for cells that were not observed."""

    @abstractmethod
    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        """log h(x) of one row, in nats; 0 for a row without cells."""

    # ── variants ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def log_variants(self) -> Float[np.ndarray, " variant"]:
        """log p(v), nats: of each way in which a row may arise."""
        return np.zeros(1)

    @property
    def n_variants(self) -> int:
        return np.shape(self.log_variants)[0]

    def variant_increments(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Any:
        """s_v(x) of one row, variants leading. `increment` is then that of a row as starts and proposals see it."""
        return jax.tree.map(lambda leaf: leaf[None], self.increment(coordinates, observed))

    def variant_tilts(self, observed: Bool[Array, " dim"]) -> Float[Array, " variant"]:
        """log h_v(x) − log h(x) of one row, in nats."""
        return jnp.zeros(self.n_variants)

    def draw_variant(self, key: Array, statistics: Any, unit: Row, variant: Int[Array, ""]) -> Float[Array, " dim"]:
        """As `draw`, of a row that arises in this variant."""
        return self.draw(key, statistics, unit)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_densities(self, statistics: Any, unit: Row) -> Float[Array, " component"]:
        """log p(x | θ_k) of one row under each component, nats, from the statistics of the parameters."""
        each = variant_log_likelihoods(self, statistics, unit)
        return each[:, 0] if self.n_variants == 1 else jax.nn.logsumexp(each + self.log_variants, axis=1)

    def log_predictives(self, natural: Any, unit: Row) -> Float[Array, " component"]:
        """log ∫ p(x | θ) p(θ | natural_k) dθ of one row under each component, nats (Eq. 5.13)."""
        y, observed = self.coordinates(unit), jnp.asarray(unit.observed)

        def after(increment: Any) -> Float[Array, " component"]:
            return log_normalisers(self, jax.tree.map(jnp.add, natural, increment))

        each = jax.vmap(after)(self.variant_increments(y, observed))
        tilts = (self.variant_tilts(observed) + self.log_variants).astype(each.dtype)
        gain = jax.nn.logsumexp(each + tilts[:, None], axis=0) - log_normalisers(self, natural)
        return gain + self.log_carrier(y, observed)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """For each row a number ≥ log p(row | any parameters), nats; `inf`, the default, where there is none."""
        return np.full(len(units.value), np.inf)

    def plug_in(self) -> "Component":
        """The same with `estimated` parameters. Raises ValueError, saying why, where that has no maximum."""
        raise ValueError(
            f"{type(self).__name__} has no plug-in form: give it plug_in(), which returns the same kind with "
            '`estimated` parameters of a point family, or use evidence="marginal" or "bound"'
        )

    def moments(self, statistics: Any) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """(mean, covariance) of a row given the statistics of its component's parameters, in the units of the data.

        ValueError for a kind that does not say: it is for people, no engine asks.
        """
        raise ValueError(f"{type(self).__name__} does not say the mean of its rows: define moments(statistics)")

    def draw(self, key: Array, statistics: Any, unit: Row) -> Float[Array, " dim"]:
        """Draw the cells of one row given the statistics of its component's parameters.

        Raises NotImplementedError where the kind does not say how.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot draw rows: give it draw(key, statistics, unit), which audits of the "
            "evidence need; searches do not"
        )


def log_prior(component: Component, statistics: Any, hyper: Mapping[str, Any]) -> Float[Array, " component"]:
    """log p(θ_k | h) of each component from the statistics of its parameters, nats; 0 for estimated ones.

    hyper: the statistics of `hyper_sites`, by name; others are not looked at. A(λ(h)) is linear in log h, so its mean
    is its value at exp E[log h].
    """
    leaves = jax.tree.leaves(statistics)
    if component.estimated:
        return jnp.zeros(leaves[0].shape[:1], leaves[0].dtype)
    n_dims = component.n_dims(statistics)
    products = inner(component.family, component.at(hyper).prior(n_dims), statistics, None)
    geometric = component.given({name: jnp.exp(hyper[name].log_value) for name in component.inferred})
    normaliser = component.family.log_normaliser(geometric.prior(n_dims))
    return (products - normaliser).reshape(len(products), -1).sum(-1)


def log_hyper_prior(component: Component, hyper: Mapping[str, Any]) -> Float[Array, ""]:
    """log p(h), nats, of the hyper-parameters that have priors; 0 where none has."""
    total = jnp.zeros(())
    for name, (shape, rate) in component.inferred.items():
        log_value, negative_value = hyper[name]
        a, b = jnp.asarray(shape, log_value.dtype), jnp.asarray(rate, log_value.dtype)
        each = a * jnp.log(b) - gammaln(a) + (a - 1) * log_value + b * negative_value
        total = total + each.sum()
    return total


def draw_hyper(component: Component, key: Array, n_dims: int) -> dict[str, GammaStatistics]:
    """Statistics of the hyper-parameters that have priors, drawn from these."""
    drawn = {}
    for number, (name, (shape, rate)) in enumerate(component.inferred.items()):
        blank = jnp.zeros((n_dims,) * len(component.hyper_axes[name]))
        natural = GammaStatistics(blank + (shape - 1), blank + rate)
        drawn[name] = Gamma().sample(jax.random.fold_in(key, number), natural)
    return drawn


def draw_parameters(component: Component, key: Array, n_components: int, n_dims: int) -> Any:
    """Statistics of as many components' parameters, drawn from their prior.

    Raises ValueError for estimated parameters, which have none.
    """
    if component.estimated:
        raise ValueError("cannot draw components that have no prior: simulate the model before plug_in()")
    natural = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (n_components, *jnp.shape(leaf))), component.prior(n_dims)
    )
    return component.family.sample(key, natural)


def draw_rows(
    component: Component, key: Array, statistics: Any, chosen: Int[Array, " row"], units: Row
) -> Float[Array, "row dim"]:
    """Draw each row's cells from its chosen component, statistics: of all components."""
    keys = jax.random.split(key, len(chosen))
    return jax.vmap(component.draw)(keys, jax.tree.map(lambda leaf: leaf[chosen], statistics), units)


def log_likelihood(component: Component, statistics: Any, unit: Row) -> Float[Array, " component"]:
    """log p(x | θ_k) of one row under each component, nats. Of kinds with one variant, ⟨t(θ_k), s(x)⟩ + log h(x), it is
    linear in the statistics."""
    return component.log_densities(statistics, unit)


def variant_log_likelihoods(component: Component, statistics: Any, unit: Row) -> Float[Array, "component variant"]:
    """⟨t(θ_k), s_v(x)⟩ + log h_v(x) of one row under each component in each variant, nats; linear in the statistics."""
    y, observed = component.coordinates(unit), jnp.asarray(unit.observed)

    def one(increment: Any) -> Float[Array, " component"]:
        products = inner(component.family, increment, statistics, None)
        return products.reshape(len(products), -1).sum(-1)

    products = jax.vmap(one, out_axes=1)(component.variant_increments(y, observed))
    return products + component.log_carrier(y, observed) + component.variant_tilts(observed)


def log_likelihoods(component: Component, statistics: Any, units: Row) -> Float[Array, "row component"]:
    """`log_likelihood` of several rows: products of matrices, ⟨t(θ_k), s(x)⟩ being linear in either side."""
    observed = jnp.asarray(units.observed)
    y = jax.vmap(component.coordinates)(units)
    increments = jax.tree.leaves(jax.vmap(component.increment)(y, observed))
    total = jax.vmap(component.log_carrier)(y, observed)[:, None]
    for s, t in zip(increments, jax.tree.leaves(statistics), strict=True):
        columns = t.reshape(len(t), -1)
        # not an accelerator's short floats: regions far from a factor would lose their digits
        total = total + jnp.matmul(s.reshape(len(s), -1), columns.T, precision=jax.lax.Precision.HIGHEST)
    return total


def log_predictive(component: Component, natural: Any, unit: Row) -> Float[Array, " component"]:
    """log ∫ p(x | θ) p(θ | natural_k) dθ of one row under each component, nats (Eq. 5.13)."""
    return component.log_predictives(natural, unit)


def log_normalisers(component: Component, natural: Any) -> Float[Array, " component"]:
    """A(τ_k) of each component, nats, columns together; a difference of two is the log density of what was added."""
    each = component.prior_family.log_normaliser(natural)
    return each.reshape(len(each), -1).sum(-1)


def refuse_partial_rows(units: Row, why: str) -> None:
    """ValueError where a row has some of its cells but not all."""
    observed = np.asarray(units.observed)
    partial = observed.any(-1) & ~observed.all(-1)
    if partial.any():
        row = int(np.flatnonzero(partial)[0])
        raise ValueError(
            f"got {int(partial.sum())} rows with missing cells (the first is row {row}), expected rows that are known "
            f"whole or not at all: {why}; use DiagonalComponents, or drop these rows with points.select"
        )


def require_counts(units: Row, kind: str) -> None:
    """ValueError, for components of this kind, where an observed cell is no whole number ≥ 0."""
    values = np.asarray(units.value)[np.asarray(units.observed)]
    wrong = values[(values < 0) | (values != np.floor(values))]
    if wrong.size:
        raise ValueError(f"got a cell with {float(wrong[0])!r} for {kind}, expected whole numbers ≥ 0")


def words(value: Any) -> str:
    """A hyper-parameter for people: the number, how many there are, or its prior."""
    return in_words(value)


def required_component(given: object, name: str = "components") -> Component:
    """ValueError, for the parameter of this name, unless it is a kind of component."""
    if not isinstance(given, Component):
        raise ValueError(f"got {name}={given!r}, expected a kind of component, such as DiagonalComponents()")
    if given.scored:
        raise ValueError(
            f"got {name} of {type(given).__name__}, whose rows have scores of their own, expected a kind without: "
            "FactorAnalyzerMixture(components) is their mixture"
        )
    return given


def required_numbers(given: object, name: str = "components") -> Component:
    """As `required_component`; ValueError also for a kind whose hyper-parameters have priors, or whose rows arise in
    several variants."""
    component = required_component(given, name)
    if component.n_variants > 1:
        raise ValueError(
            f"got {name} of {type(component).__name__}, whose rows arise in one of {component.n_variants} variants, "
            "expected a kind with one: `FiniteMixture` alone takes the others"
        )
    if component.inferred:
        raise ValueError(
            f"got {name} whose {' and '.join(component.inferred)} have priors, expected numbers: `FiniteMixture` "
            "alone infers them. components.at_prior_means() has the means of the priors in their place"
        )
    return component
