"""Hidden Markov models: rows in sequences, each row emitted by one of `size` states, each state following the last.

Source: Rabiner (1989) for the model; MacKay (1997) and Beal (2003), §3 for its priors and mean field. The story:

    1. start        ρ ~ Dirichlet(b, …, b)                          (absent in the plug-in form)
    2. transitions  A_k ~ Dirichlet(a + κ [j = k])                  k = 1…K states   (absent in the plug-in form)
    3. components   θ_k ~ the conjugate prior of their kind         k = 1…K states   (absent in the plug-in form)
    4. path         z_n1 ~ Categorical(ρ),  z_nt ~ Categorical(A_{z_n,t−1})   t = 2…T_n rows of sequence n
    5. row          x_nt ~ p(· | θ_{z_nt})

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `components` | the kind of p(x | θ) and its prior | | `lvsearch.models.components` |
| `concentration` | a | () | > 0; None where nothing has a prior |
| `start_concentration` | b | () | > 0; None where nothing has a prior |
| `stickiness` | κ | () | ≥ 0 |
| site `start` | log ρ | (state,) | simplex |
| site `transitions` | log A | (state, state), from and to | rows on the simplex |
| site `components` | statistics of θ_k | (state, …) | |
| site `path` | z_n | (row, state, state) | `MarkovChain` |
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import positive_parameter, required_numbers
from lvsearch.models.components.component import (
    Component,
    draw_parameters,
    draw_rows,
    log_ceiling_of_groups,
    log_likelihood,
    log_prior,
    rows_in_groups,
)
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.contract import (
    ExpectedCells,
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Model,
    Site,
    concentration_parameter,
    first,
    is_known_false,
    log_relabellings,
)
from lvsearch.models.exponential.simplex import log_symmetric_dirichlet
from lvsearch.models.families import Dirichlet, MarkovChain, MarkovChainStatistics, PointSimplex
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import GroupOfRows, Row


class HiddenMarkov(Model):
    """Sequences from a chain of `size` hidden states, whose rows come from components of one kind.

    components: the kind of components and their prior, such as `DiagonalComponents.scaled_to(values)`. The default
        expects standardised columns.
    concentration: a, of the Dirichlet on each row of transitions, per state. Below 1 a state has few successors, above
        1 many.
    start_concentration: b, of the Dirichlet on the first state, per state.
    stickiness: κ, additional pseudo-counts for staying in a state. 0, the default, favours no duration of states.

    Both concentrations are None exactly where components are estimated: the plug-in form.

    A unit (observation) is a sequence, with its rows in order. Give `lv.Groups` with one group for each sequence, of
    any lengths. A row whose cells are all NaN is a missing step: time passes, but nothing is observed. Rows with some
    missing cells need components that accept them, such as `DiagonalComponents`.

    `nested` is True: Proposition 1 of Chiang & Poole holds for the plug-in form. Proof: given ρ, A, θ with K states,
    let state K + 1 be a twin of state k, with θ'_{K+1} = θ_k and A'_{K+1} = A'_k. Whatever entered k enters k or its
    twin with shares 1 − ε and ε, in ρ' and in every row of A'. The chain of "k or its twin" is that of k (it is
    lumpable), so every sequence keeps its density.
    """

    components: Component
    concentration: HyperparameterArray | None
    start_concentration: HyperparameterArray | None
    stickiness: HyperparameterArray

    size_names: ClassVar[tuple[str, ...]] = ("states",)
    nested: ClassVar[bool] = True
    unit_type: ClassVar[type] = GroupOfRows
    representation: ClassVar[str] = "path"

    def __init__(
        self,
        components: Component | None = None,
        concentration: Any = 1.0,
        start_concentration: Any = 1.0,
        stickiness: Any = 0.0,
    ):
        self.components = DiagonalComponents() if components is None else required_numbers(components)
        given = {"concentration": concentration, "start_concentration": start_concentration}
        if any((value is None) != self.components.estimated for value in given.values()):
            raise ValueError(
                f"got {', '.join(f'{name}={value!r}' for name, value in given.items())} with components whose "
                f"parameters are {'' if self.components.estimated else 'not '}estimated, expected None exactly where "
                "they are: leave all to plug_in()"
            )
        self.concentration, self.start_concentration = (
            None if value is None else positive_parameter(name, concentration_parameter(name, value))
            for name, value in given.items()
        )
        self.stickiness = concentration_parameter("stickiness", stickiness)
        if self.stickiness.ndim or is_known_false(self.stickiness >= 0):
            raise ValueError(f"got stickiness={stickiness!r}, expected a number of at least 0: it is a pseudo-count")

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "HiddenMarkov: Gaussians of known variance 1 (…); transitions ~ Dirichlet, 1 per state; …".
        """
        if self.concentration is None or self.start_concentration is None:
            return f"HiddenMarkov: {self.components.describe()}; start and transitions estimated"
        stays = f", {as_text(self.stickiness)} more for staying" if self.stickiness > 0 else ""
        return (
            f"HiddenMarkov: {self.components.describe()}; transitions ~ Dirichlet, {as_text(self.concentration)} per "
            f"state{stays}; start ~ Dirichlet, {as_text(self.start_concentration)} per state"
        )

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all sequences share: start and transition probabilities, and the components
        of the states.
        """
        family = PointSimplex() if self.concentration is None else Dirichlet()
        return {
            "start": Site(family, ("state",)),
            "transitions": Site(family, ("state", "state")),
            "components": Site(self.components.family, ("state", *self.components.axes)),
        }

    def locals(self) -> dict[str, Site]:
        """Return the latent variable of one sequence: its path of states, with axes (row, state, state)."""
        return {"path": Site(MarkovChain(), ("row", "state", "state"))}

    def extents(self, unit: GroupOfRows) -> dict[str, Bool[Array, " row"]]:
        """Return {"row": mask of the rows of the sequence that exist}."""
        return {"row": jnp.asarray(unit.present)}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"state": mask of the states that exist}, with the masks of the components' own axes."""
        return {"state": first(size[0], capacity[0]), **self.components.own_axes}

    def transition_prior(self, exists: Bool[Array, " state"]) -> Float[Array, "state state"]:
        """Return the Dirichlet parameters a + κ [j = k] of all transition rows, shape (from state, to state).

        exists: mask of the states that exist; the others get 1. Only for models whose transitions have a prior.
        """
        a = jnp.asarray(self.concentration)
        concentrations = a + jnp.asarray(self.stickiness, a.dtype) * jnp.eye(len(exists), dtype=a.dtype)
        return jnp.where(exists[:, None] & exists, concentrations, 1.0)

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return Σ_k log p(θ_k) + log Dirichlet(start | b) + Σ_k log Dirichlet(A_k | c_k), in nats.

        k runs over states, A_k are the transition probabilities from state k, and c_k is their `transition_prior`. If
        the probabilities are estimated, the result is Σ_k log p(θ_k) alone.

        g: {"start": log ρ; "transitions": log A, (from, to); "components": statistics of θ, states leading}.
        on: {"state": mask of the states that exist}.
        """
        exists = on["state"]
        log_components = jnp.where(exists, log_prior(self.components, g["components"], {}), 0.0).sum()
        if self.concentration is None or self.start_concentration is None:
            return log_components
        log_start = log_symmetric_dirichlet(jnp.where(exists, g["start"], 0.0), self.start_concentration, exists.sum())
        c = self.transition_prior(exists).astype(g["transitions"].dtype)
        both = exists[:, None] & exists
        # log Dirichlet(A_k | c_k) of every row: log Γ(Σ_j c_kj) + Σ_j [(c_kj − 1) log A_kj − log Γ(c_kj)]
        totals = gammaln(jnp.where(exists, jnp.where(both, c, 0.0).sum(1), 1.0))
        each = jnp.where(both, (c - 1) * g["transitions"] - gammaln(c), 0.0)
        return log_components + log_start + each.sum() + jnp.where(exists, totals, 0.0).sum()

    def log_rows(self, g: Latents, unit: GroupOfRows) -> Float[Array, "row state"]:
        """Return log p(row | θ_k) of every row under each state's component, in nats, shape (row, state); 0 for missing
        rows.

        It is linear in the components' statistics.

        g: {"components": statistics of θ, states leading}. unit: one sequence.
        """
        rows = Row(jnp.asarray(unit.value), jnp.asarray(unit.observed))
        return jax.vmap(lambda row: log_likelihood(self.components, g["components"], row))(rows)

    def log_unit(self, g: Latents, l: Latents, unit: GroupOfRows, on: Masks) -> Float[Array, ""]:
        """Return log p(z_1 | start) + Σ_t log p(z_t | z_{t−1}, A) + Σ_t log p(x_t | z_t) of one sequence, in nats.

        z_t is the state of row t, x_t its cells and A the transition probabilities.

        g: {"start": log ρ; "transitions": log A; "components": statistics of θ}. l: {"path": indicators of states and
            steps}.
        unit: one sequence. on: {"state": mask of the states that exist}.
        """
        path, exists, present = l["path"], on["state"], jnp.asarray(unit.present)
        begins = jnp.where(exists & present[0], path.state[0] * g["start"], 0.0).sum()  # log p(z_1 | ρ)
        stepped = present[1:, None, None] & exists[:, None] & exists
        steps = jnp.where(stepped, path.step[1:] * g["transitions"], 0.0).sum()  # Σ_t log p(z_t | z_{t−1}, A)
        rows = jnp.where(present[:, None] & exists, path.state * self.log_rows(g, unit), 0.0).sum()
        return begins + steps + rows

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K states in groups of m_j interchangeable ones: the log number of
        relabellings.

        size: (K,). natural: {name: natural parameters} of the globals.
        """
        n = size[0]
        transitions = np.asarray(natural["transitions"])[:n, :n]
        # two states are interchangeable if all their numbers agree; other states' order is removed by sorting
        off = ~np.eye(n, dtype=bool)
        to, into = (np.sort(matrix[off].reshape(n, -1), axis=1) for matrix in (transitions, transitions.T))
        own = [
            np.asarray(leaf)[:n].reshape(n, -1) for leaf in jax.tree.leaves((natural["start"], natural["components"]))
        ]
        return log_relabellings(np.concatenate([*own, np.diag(transitions)[:, None], to, into], axis=1))

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        return self.components.expected_cells(n_dims)

    def check(self, units: GroupOfRows) -> None:
        """Raise ValueError for rows that have no density under the components."""
        self.components.check(rows_in_groups(units))

    def ceiling(self, units: GroupOfRows) -> float:
        """Return the sum of each row's greatest log-density under any one component, in nats.

        The ceiling is `inf` where components of free variance have no greatest density. units: all sequences.

        Proof: given parameters and path, a row's density is that of its state's component, which is at most the
        greatest. An average is at most the maximum.

        Raises ValueError for rows that have no density under the components.
        """
        return log_ceiling_of_groups(self.components, units)

    def plug_in(self) -> "HiddenMarkov":
        """Return the model with all parameters estimated by maximum likelihood.

        Raises ValueError for kinds of components whose likelihood has no maximum.
        """
        if self.concentration is None:
            return self
        return HiddenMarkov(self.components.plug_in(), None, None, 0.0)

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: GroupOfRows, on: Masks) -> GroupOfRows:
        """Draw the cells of every row of a sequence, given its path of states.

        g: {"components": statistics of θ, states leading}. l: {"path": indicators of states and steps}.
        unit: a sequence whose `observed` and `present` are kept.
        """
        chosen = jnp.argmax(l["path"].state, axis=-1)
        value = draw_rows(self.components, key, g["components"], chosen, Row(unit.value, unit.observed))
        return GroupOfRows(value, unit.observed, unit.present)

    def simulate(self, key: Array, size: tuple[int, ...], units: GroupOfRows, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, paths and rows from the joint distribution.

        size: (number of states,). units: sequences of which `observed` and `present` are kept.
        extents: {"dim": D}, the number D of columns.

        Returns (statistics of the globals by name, statistics of the locals by name with sequences leading, the
        sequences).
        Raises ValueError for the plug-in form, whose parameters have no prior.
        """
        if self.concentration is None or self.start_concentration is None:
            raise ValueError("cannot draw parameters that have no prior: simulate the model before plug_in()")
        key_start, key_transitions, key_components, key_path, key_data = jax.random.split(key, 5)
        on = self.active(size, size)
        g = {
            "start": Dirichlet().sample(key_start, jnp.broadcast_to(jnp.asarray(self.start_concentration - 1), size)),
            "transitions": Dirichlet().sample(key_transitions, self.transition_prior(on["state"]) - 1),
            "components": draw_parameters(self.components, key_components, size[0], extents["dim"]),
        }
        present = jnp.asarray(units.present)
        first_row = (jnp.arange(present.shape[1]) == 0)[:, None]
        natural = MarkovChainStatistics(
            jnp.broadcast_to(jnp.where(first_row, g["start"], 0.0), (*present.shape, *size)),
            jnp.broadcast_to(g["transitions"], (*present.shape, *size, *size)),
        )
        l = {"path": MarkovChain().sample(key_path, natural, present[..., None, None])}
        return g, l, self._draw_units(key_data, g, l, units, on)
