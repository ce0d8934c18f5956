r"""The interface of every kind of mixture component, and the densities that follow from it.

A row x has an exponential-family density whose conjugate prior is the family of the component's parameters θ:

    log p(x | θ) = ⟨t(θ), s(x)⟩ + log h(x),        log p(θ) = ⟨t(θ), λ⟩ − A(λ)            (Blei 2004, §5.2.3)

| symbol | meaning |
|---|---|
| t(θ) | the *statistics*: the sufficient statistics of a component's parameters θ |
| s(x) | the *increment*: what one row adds to the natural parameters of its component |
| h(x) | the *carrier*: the part of a row's density that no parameter enters |
| λ, τ | natural parameters of p(θ), and of q(θ) or p(θ \| rows) |
| A | the log-normaliser of the family of θ |

If q(θ) or p(θ | rows) has the natural parameter τ,

    log ∫ p(x | θ) q(θ) dθ = A(τ + s(x)) − A(τ) + log h(x)                                 (Eq. 5.13).

Everything that mixtures do is made of these functions: no inference code knows which kind it has.

A row may arise in one of several *variants* v, such as one of several precisions. Each variant has a density of this
form, with the same θ:

    log p(x | θ) = log Σ_v p(v) exp(⟨t(θ), s_v(x)⟩ + log h_v(x))

Which variant a row is in is latent, in addition to which component it is from. Most kinds have a single variant.

Hyper-parameters h may have Gamma priors of their own, shared by all components. A kind declares with `hyper_axes` that
λ(h) is linear in h and A(λ(h)) linear in log h. Then log p(θ | h) is multilinear in t(θ) and in (log h, −h):

    log p(θ_1 … θ_K, h) = Σ_k [⟨t(θ_k), λ(h)⟩ − A(λ(h))] + log p(h)
"""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from lvsearch.models.contract import ExpectedCells, Site
from lvsearch.models.exponential.family import Family, inner
from lvsearch.models.families import Gamma, GammaStatistics, VectorGaussianStatistics
from lvsearch.models.hyperpriors import GammaPrior, as_text
from lvsearch.models.units import GroupOfRows, Row

Kind = TypeVar("Kind", bound="Component")


class CellsGivenOthers(NamedTuple):
    """The law of a row's missing cells in one component, given its observed cells: a Gaussian.

    A row has as many places as cells may be missing; those that it does not need are standard normal.

    | field | meaning | shape |
    |---|---|---|
    | `columns` | the columns of the missing cells, those of needless places last | (place,) |
    | `is_missing` | True for places that hold a missing cell | (place,) |
    | `centre` | the mean of the missing cells; 0 at needless places | (place,) |
    | `factor` | the lower Cholesky factor of their precision | (place, place) |
    | `log_mass` | log density of the observed cells without their carrier, nats | () |
    """

    columns: Int[Array, " place"]
    is_missing: Bool[Array, " place"]
    centre: Float[Array, " place"]
    factor: Float[Array, "place place"]
    log_mass: Float[Array, ""]


class Component(eqx.Module):
    """One kind of mixture component. Array leaves are hyper-parameters.

    Increments s(x), natural parameters and sufficient statistics t(θ) are in the coordinates of `coordinates`: the data
    shifted and scaled by hyper-parameters, so that floats keep their digits in any unit of the data. Densities are of
    the data themselves. `axes` names the axes of one component's statistics, beginning with the axis of the cells of a
    row, "dim".
    """

    axes: eqx.AbstractClassVar[tuple[str, ...]]
    elliptical: ClassVar[bool] = True
    """True if the mean and covariance of a component show where its rows are, so that an ellipse can be drawn."""
    cellwise: ClassVar[bool] = False
    """True if cells are independent given the parameters, each with statistics of its own: one cell has a density."""
    hyper_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """{field that may hold a `GammaPrior` in place of a number: its axes}. The axes are () or ("dim",), for one value
    or one per column. λ is linear in these fields together, perhaps plus a constant. A(λ) is linear in their logarithms
    together, or concave with a constant."""
    scored: ClassVar[bool] = False
    """True if each row has latent factor scores besides its component, so that s(x) of a row depends on them."""
    partial_rows: ClassVar[bool] = False
    """True if missing cells are latent variables of their rows, so that s(x) of a row depends on them; kinds whose
    columns are independent leave missing cells out instead."""
    estimated: eqx.AbstractVar[bool]
    """True if parameters are point estimates without a prior (plug-in evidence), instead of integrated out."""

    @property
    def family(self) -> Family:
        """The family of the parameters: that of their prior, or a point family where they are `estimated`."""
        return self.prior_family

    @property
    @abstractmethod
    def prior_family(self) -> Family:
        """The exponential family of the prior of a component's parameters."""

    @property
    def keeps_totals(self) -> bool:
        """True if `draw` gives a row the totals of another one, since the kind has no distribution of them."""
        return False

    @property
    def own_extents(self) -> dict[str, int]:
        """The lengths of those `axes` that neither data nor size decide, such as {"level": 5}. By default none."""
        return {}

    @property
    def own_axes(self) -> dict[str, Bool[Array, " axis"]]:
        """The masks of the axes of `own_extents`, as {axis: all True}; a model adds them to the masks of
        `Model.active`.
        """
        return {axis: jnp.ones(length, bool) for axis, length in self.own_extents.items()}

    def n_dims(self, statistics: Any) -> int:
        """Return the number of columns of a row of data.

        statistics: the sufficient statistics of several components' parameters, components leading.
        """
        return max(jax.tree.leaves(statistics), key=lambda leaf: leaf.ndim).shape[1 + self.axes.index("dim")]

    def describe(self) -> str:
        """Describe the kind and its hyper-parameters in a few words. The default is the class and its fields."""
        values = ", ".join(f"{entry.name} {as_text(getattr(self, entry.name))}" for entry in fields(self))
        return f"{type(self).__name__} ({values})"

    @property
    def inferred(self) -> dict[str, GammaPrior]:
        """The hyper-parameters that have a `GammaPrior`, as {name of the field: prior}."""
        values = {name: getattr(self, name) for name in self.hyper_axes}
        return {name: value for name, value in values.items() if isinstance(value, GammaPrior)}

    def number(self, name: str) -> Any:
        """Return the value of the hyper-parameter called `name`. Raises ValueError where it has a prior instead of a
        number.
        """
        value = getattr(self, name)
        if isinstance(value, GammaPrior):
            raise ValueError(
                f"got {name} {as_text(value)}, expected a number: put one in its place; use with_numbers()"
            )
        return value

    @property
    def hyper_sites(self) -> dict[str, Site]:
        """The hyper-parameters that have priors, as {name: latent variable shared by all rows}."""
        return {name: Site(Gamma(), self.hyper_axes[name]) for name in self.inferred}

    def with_numbers(self: Kind, values: Mapping[str, Any]) -> Kind:
        """Return the same kind with numbers in place of the priors of hyper-parameters.

        values: {name of the field: number}, on the axes of `hyper_axes`; numbers may be traced by JAX.
        """
        if not values:
            return self
        return eqx.tree_at(lambda c: [getattr(c, name) for name in values], self, list(values.values()))

    def with_expected_numbers(self: Kind, hyper: Mapping[str, Any]) -> Kind:
        """Return the same kind with the expected value of each hyper-parameter in place of its prior.

        hyper: {name: expected statistics (log h, −h)} of the hyper-parameters that have priors; other entries are
            ignored.

        The natural parameter λ is linear in h, so `prior` of the result is E[λ(h)].
        """
        return self.with_numbers({name: -hyper[name].negative_value for name in self.inferred})

    def given(self: Kind, values: Mapping[str, Any]) -> Kind:
        """Return the same kind with numbers in place of priors. Deprecated: the former name of `with_numbers`; it
        warns.
        """
        warnings.warn("Component.given is called Component.with_numbers now", DeprecationWarning, stacklevel=2)
        return self.with_numbers(values)

    def at(self: Kind, hyper: Mapping[str, Any]) -> Kind:
        """Return the same kind with expected values in place of priors. Deprecated: the former name of
        `with_expected_numbers`; it warns.
        """
        warnings.warn("Component.at is called Component.with_expected_numbers now", DeprecationWarning, stacklevel=2)
        return self.with_expected_numbers(hyper)

    def at_prior_means(self: Kind) -> Kind:
        """Return the same kind with each prior of a hyper-parameter replaced by its mean."""
        return self.with_numbers({name: prior.shape / prior.rate for name, prior in self.inferred.items()})

    def check(self, units: Row) -> None:
        """Raise ValueError for rows that have no density under this kind, such as fractions for a kind of counts.

        units: the rows, stacked. By default every row has a density.
        """
        del units

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        """Return where the prior expects the cells of each column; by default nothing is expected of any.

        n_dims: the number of columns of the data.
        """
        return ExpectedCells.from_numbers(np.nan, np.nan, n_dims)

    @abstractmethod
    def prior(self, n_dims: int) -> Any:
        """Return λ, the natural parameters of the prior of one component.

        n_dims: the number of columns of the data.

        Returns a pytree like the statistics of one component, without an axis of components.
        """

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        """Return one row in the coordinates of the statistics, shape (dim,); 0 for missing cells.

        unit: the row. The default keeps the coordinates of the data.
        """
        return jnp.where(unit.observed, jnp.asarray(unit.value), 0.0)

    @abstractmethod
    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Any:
        """Return s(x), what one row adds to the natural parameters of its component; 0 for missing cells.

        coordinates: the row in the coordinates of `coordinates`, shape (dim,).
        observed: True for cells that are not missing, shape (dim,).

        Returns a pytree like the statistics of one component.
        """

    @abstractmethod
    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        """Return log h(x) of one row in nats, the part of its log-density that no parameter enters; 0 without observed
        cells.

        coordinates: the row in the coordinates of `coordinates`, shape (dim,).
        observed: True for cells that are not missing, shape (dim,).
        """

    # ── variants ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def log_variants(self) -> Float[np.ndarray, " variant"]:
        """The log-probability log p(v) of each variant in which a row may arise, in nats, shape (variant,)."""
        return np.zeros(1)

    @property
    def n_variants(self) -> int:
        """The number of variants in which a row may arise, such as several precisions; 1 for most kinds."""
        return np.shape(self.log_variants)[0]

    def variant_increments(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Any:
        """Return s_v(x), what one row adds to the natural parameters if it arises in variant v, variants on the leading
        axis.

        Variants are the alternative densities of a row within one component, such as several precisions. Most kinds
        have one, as here: `increment`, with a leading axis of length 1.

        coordinates: the row in the coordinates of `coordinates`, shape (dim,).
        observed: True for cells that are not missing, shape (dim,).

        Where there are several variants, starts and proposals of a fit use `increment`, which knows no variants.
        """
        return jax.tree.map(lambda leaf: leaf[None], self.increment(coordinates, observed))

    def variant_tilts(self, observed: Bool[Array, " dim"]) -> Float[Array, " variant"]:
        """Return log h_v(x) − log h(x) of one row for each variant v, in nats, shape (variant,).

        observed: True for cells that are not missing, shape (dim,). h_v is the carrier of variant v.
        """
        return jnp.zeros(self.n_variants)

    def draw_variant(self, key: Array, statistics: Any, unit: Row, variant: Int[Array, ""]) -> Float[Array, " dim"]:
        """Draw the cells of one row that arises in a given variant, shape (dim,).

        statistics: the statistics of the parameters of its component. unit: the row, for its shape and missing cells.
        variant: the index of the variant.
        """
        return self.draw(key, statistics, unit)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_densities(self, statistics: Any, unit: Row) -> Float[Array, " component"]:
        """Return log p(x | θ_k) of one row under each component k, in nats, shape (component,).

        statistics: the sufficient statistics of the components' parameters, components leading. unit: the row.
        """
        each = variant_log_likelihoods(self, statistics, unit)
        return each[:, 0] if self.n_variants == 1 else jax.nn.logsumexp(each + self.log_variants, axis=1)

    def marginal_log_densities(
        self, statistics: Any, columns: tuple[int, ...], values: Float[Array, "point chosen"]
    ) -> Float[Array, "point component"]:
        """Return the log-density of some columns of a row under each component, all others integrated out, in nats.

        statistics: the sufficient statistics of the components' parameters, components leading.
        columns: the numbers of the columns. values: their values at several points.

        Raises ValueError for a kind that does not define it; kinds whose columns are independent do.
        """
        if not self.cellwise:
            raise ValueError(
                f"{type(self).__name__} has no density of single columns; kinds whose columns are independent "
                "have one, and Gaussians"
            )
        return self._densities_without_others(statistics, columns, values)

    def _densities_without_others(
        self, statistics: Any, columns: tuple[int, ...], values: Float[Array, "point chosen"]
    ) -> Float[Array, "point component"]:
        """Return `marginal_log_densities` of a kind that leaves missing cells out."""
        n_dims, chosen = self.n_dims(statistics), np.asarray(columns)
        cells = jnp.zeros((len(values), n_dims)).at[:, chosen].set(values)
        seen = np.isin(np.arange(n_dims), chosen)
        return jax.vmap(lambda row: self.log_densities(statistics, Row(row, seen)))(cells)

    def log_predictives(self, natural: Any, unit: Row) -> Float[Array, " component"]:
        """Return log ∫ p(x | θ) p(θ | natural_k) dθ of one row under each component k, in nats, shape (component,).

        natural: the natural parameters of the components, components leading. unit: the row.

        Source: Blei (2004), Eq. 5.13.
        """
        y, observed = self.coordinates(unit), jnp.asarray(unit.observed)

        def normalisers_after(increment: Any) -> Float[Array, " component"]:
            return log_normalisers(self, jax.tree.map(jnp.add, natural, increment))

        each = jax.vmap(normalisers_after)(self.variant_increments(y, observed))
        tilts = (self.variant_tilts(observed) + self.log_variants).astype(each.dtype)
        gain = jax.nn.logsumexp(each + tilts[:, None], axis=0) - log_normalisers(self, natural)
        return gain + self.log_carrier(y, observed)

    def log_rows_with_cells(
        self, statistics: Any, unit: Row, cells: VectorGaussianStatistics
    ) -> Float[Array, " component"]:
        """Return log p(x, missing cells | θ_k) of one row x under each component k, in nats, shape (component,).

        Only for kinds with `partial_rows`, in whose rows missing cells are latent variables.

        statistics: the sufficient statistics of the components' parameters, components leading. unit: the row.
        cells: statistics (c, −½ccᵀ) of the row's cells in each component, components leading; dummies that are standard
            normal at observed cells.

        Raises NotImplementedError for a kind without such cells, or that does not define it.
        """
        self._refuse_latent_cells("log_rows_with_cells(statistics, unit, cells)")

    def laws_of_cells(
        self,
        statistics: Any,
        coordinates: Float[Array, " dim"],
        observed: Bool[Array, " dim"],
        most: int | None = None,
    ) -> CellsGivenOthers:
        """Return the law of a row's missing cells in each component given its other cells, components leading.

        Only for kinds with `partial_rows`. `log_mass` is 0 for a row without cells.

        statistics: those of the components' parameters, or their expected values, components leading.
        coordinates: the row, shape (dim,); anything at missing cells. observed: True for other cells, shape (dim,).
        most: the largest number of missing cells in a row that has some cells; by default the number of columns.

        Raises NotImplementedError for a kind without such cells, or that does not define it.
        """
        self._refuse_latent_cells("laws_of_cells(statistics, coordinates, observed, most)")

    def expected_increments(
        self, laws: CellsGivenOthers, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]
    ) -> Any:
        """Return the expected s(x) of one row in each component under the laws of its missing cells, components
        leading.

        laws: from `laws_of_cells`. coordinates, observed: the row, as there.

        Raises NotImplementedError for a kind without such cells, or that does not define it.
        """
        self._refuse_latent_cells("expected_increments(laws, coordinates, observed)")

    def _refuse_latent_cells(self, method: str) -> NoReturn:
        """Raise NotImplementedError: the kind has no latent cells, or does not define this method for them."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how missing cells are distributed given the others: a kind with "
            f"partial_rows defines {method}"
        )

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return for each row an upper bound on log p(row | any parameters), in nats, shape (rows,).

        units: the rows, stacked. The default, `inf`, says that no bound is known.
        """
        return np.full(len(units.value), np.inf)

    def plug_in(self) -> "Component":
        """Return the same kind with `estimated` parameters: point estimates, without a prior.

        Raises ValueError, saying why, where the likelihood has no maximum.
        """
        raise ValueError(
            f"{type(self).__name__} has no plug-in form: give it plug_in(), which returns the same kind with "
            '`estimated` parameters of a point family, or use evidence="marginal" or "bound"'
        )

    def free_parameters(self, n_dims: int) -> int:
        """Return how many free numbers the parameters of one component are, which criteria such as BIC count.

        n_dims: the number of columns of the data.

        Raises NotImplementedError for a kind that does not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say how many free parameters a component has: define "
            "free_parameters(n_dims), which BIC and its relatives need; searches do not"
        )

    def moments(self, statistics: Any) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """Return (mean, covariance) of a row of one component, shapes (dim,) and (dim, dim), in the units of the data.

        statistics: the statistics of the parameters of that component.

        Raises ValueError for a kind that does not define it. Pictures and tables use it; inference does not.
        """
        raise ValueError(f"{type(self).__name__} does not say the mean of its rows: define moments(statistics)")

    def draw(self, key: Array, statistics: Any, unit: Row) -> Float[Array, " dim"]:
        """Draw the cells of one row of one component, shape (dim,).

        key: the random key. statistics: the sufficient statistics of the component's parameters.
        unit: a row that says which cells are missing (and the total, where a kind does not model it).

        Raises NotImplementedError for a kind that does not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot draw rows: give it draw(key, statistics, unit), which audits of the "
            "evidence need; searches do not"
        )


def log_prior(component: Component, statistics: Any, hyper: Mapping[str, Any]) -> Float[Array, " component"]:
    """Return log p(θ_k | h), the log prior density of each component's parameters, in nats, shape (component,).

    component: the kind of component.
    statistics: the sufficient statistics of the components' parameters, components leading.
    hyper: {name: statistics (log h, −h)} of the hyper-parameters that have priors; other entries are ignored.

    Estimated parameters have no prior and give 0. A(λ(h)) is linear in log h, so its mean is its value at exp E[log h].
    Where a constant c is added to h (`least_rate`), −A has log(h + c) in the place of log h, which is convex in log h:
    the value at exp E[log h] is below its mean then, so that the evidence lower bound stays one.
    """
    leaves = jax.tree.leaves(statistics)
    if component.estimated:
        return jnp.zeros(leaves[0].shape[:1], leaves[0].dtype)
    n_dims = component.n_dims(statistics)
    products = inner(component.family, component.with_expected_numbers(hyper).prior(n_dims), statistics, None)
    geometric = component.with_numbers({name: jnp.exp(hyper[name].log_value) for name in component.inferred})
    normaliser = component.family.log_normaliser(geometric.prior(n_dims))
    return (products - normaliser).reshape(len(products), -1).sum(-1)


def log_hyper_prior(component: Component, hyper: Mapping[str, Any]) -> Float[Array, ""]:
    """Return log p(h), the log prior density of the hyper-parameters that have priors, in nats; 0 where none has.

    hyper: {name: statistics (log h, −h)} of these hyper-parameters.
    """
    total = jnp.zeros(())
    for name, (shape, rate) in component.inferred.items():
        log_value, negative_value = hyper[name]
        a, b = jnp.asarray(shape, log_value.dtype), jnp.asarray(rate, log_value.dtype)
        each = a * jnp.log(b) - gammaln(a) + (a - 1) * log_value + b * negative_value
        total = total + each.sum()
    return total


def draw_hyper(component: Component, key: Array, n_dims: int) -> dict[str, GammaStatistics]:
    """Draw the hyper-parameters that have priors, and return {name: statistics (log h, −h)}.

    n_dims: the number of columns; a hyper-parameter with the axis "dim" gets one value for each.
    """
    drawn = {}
    for number, (name, (shape, rate)) in enumerate(component.inferred.items()):
        blank = jnp.zeros((n_dims,) * len(component.hyper_axes[name]))
        natural = GammaStatistics(blank + (shape - 1), blank + rate)
        drawn[name] = Gamma().sample(jax.random.fold_in(key, number), natural)
    return drawn


def draw_parameters(component: Component, key: Array, n_components: int, n_dims: int) -> Any:
    """Draw the parameters of `n_components` components from their prior, and return their statistics, components
    leading.

    n_dims: the number of columns of the data.

    Raises ValueError for estimated parameters, which have no prior.
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
    """Draw the cells of each row from its component, shape (row, dim).

    statistics: the sufficient statistics of the components' parameters, components leading.
    chosen: the index of each row's component, shape (row,). units: rows that say which cells are missing.
    """
    keys = jax.random.split(key, len(chosen))
    return jax.vmap(component.draw)(keys, jax.tree.map(lambda leaf: leaf[chosen], statistics), units)


def log_likelihood(component: Component, statistics: Any, unit: Row) -> Float[Array, " component"]:
    """Return log p(x | θ_k) of one row under each component k, in nats, shape (component,).

    statistics: the sufficient statistics of the components' parameters, components leading. unit: the row.

    For kinds with one variant it is ⟨t(θ_k), s(x)⟩ + log h(x), linear in the statistics.
    """
    return component.log_densities(statistics, unit)


def variant_log_likelihoods(component: Component, statistics: Any, unit: Row) -> Float[Array, "component variant"]:
    """Return the log-density of one row under each component k in each variant v, in nats, shape (component, variant).

    It is ⟨t(θ_k), s_v(x)⟩ + log h_v(x), linear in the statistics.

    statistics: the sufficient statistics t(θ_k) of the components' parameters, components leading. unit: the row.
    """
    y, observed = component.coordinates(unit), jnp.asarray(unit.observed)

    def inner_products(increment: Any) -> Float[Array, " component"]:
        products = inner(component.family, increment, statistics, None)
        return products.reshape(len(products), -1).sum(-1)

    products = jax.vmap(inner_products, out_axes=1)(component.variant_increments(y, observed))
    return products + component.log_carrier(y, observed) + component.variant_tilts(observed)


def log_likelihoods(component: Component, statistics: Any, units: Row) -> Float[Array, "row component"]:
    """Return log p(x_n | θ_k) of several rows x_n under each component k, in nats, shape (row, component).

    statistics: the sufficient statistics of the components' parameters, components leading. units: the rows, stacked.

    ⟨t(θ_k), s(x)⟩ is linear in either side, so the result is a sum of matrix products.
    """
    observed = jnp.asarray(units.observed)
    y = jax.vmap(component.coordinates)(units)
    increments = jax.tree.leaves(jax.vmap(component.increment)(y, observed))
    total = jax.vmap(component.log_carrier)(y, observed)[:, None]
    for s, t in zip(increments, jax.tree.leaves(statistics), strict=True):
        columns = t.reshape(len(t), -1)
        # all bits, also on an accelerator: otherwise regions far from a factor would lose their digits
        total = total + jnp.matmul(s.reshape(len(s), -1), columns.T, precision=jax.lax.Precision.HIGHEST)
    return total


def rows_in_groups(units: GroupOfRows) -> Row:
    """Return the rows of all groups one after another, (row, dim), without padding.

    units: all groups, stacked.
    """
    present = np.asarray(units.present)
    return Row(np.asarray(units.value)[present], np.asarray(units.observed)[present])


def log_ceiling_of_groups(component: Component, units: GroupOfRows) -> float:
    """Return the sum over the rows of all groups of each row's greatest log-density under any one component, in nats.

    units: all groups. Raises ValueError for rows that have no density under the components.
    """
    rows = rows_in_groups(units)
    component.check(rows)
    return float(component.log_ceiling(rows).sum())


def log_predictive(component: Component, natural: Any, unit: Row) -> Float[Array, " component"]:
    """Return log ∫ p(x | θ) p(θ | natural_k) dθ of one row under each component k, in nats, shape (component,).

    natural: the natural parameters of the components, components leading. unit: the row.

    Source: Blei (2004), Eq. 5.13.
    """
    return component.log_predictives(natural, unit)


def log_normalisers(component: Component, natural: Any) -> Float[Array, " component"]:
    """Return A(τ_k), the log-normaliser of each component's natural parameters τ_k, in nats, shape (component,).

    natural: the natural parameters, components leading. The sum is over columns.

    The difference of A before and after rows are added is the log-density of these rows, up to their carriers.
    """
    each = component.prior_family.log_normaliser(natural)
    return each.reshape(len(each), -1).sum(-1)
