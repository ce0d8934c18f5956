"""The hierarchical Dirichlet process as a topic model, and over groups of rows, by stick-breaking on two levels.

Source: Teh, Jordan, Beal & Blei (2006), for groups of rows §2 and §4; Blei (2004), §5.6; Wang, Paisley & Blei (2011).
The generative story is that of `lvsearch.models.hierarchical_process`. A latent variable of the model is called a site.

`HDP`: units are documents and parts are topics. A *table* is a stick of one document, which points to a topic. Steps 3
and 7 of the story are:

    3. topics            φ_k ~ Dirichlet(η, …, η)
    7. word              w_dn ~ Categorical(φ_k),       k = c_{d, z_dn}

| field | letter | shape | support |
|---|---|---|---|
| `topic_concentration` | η | () | > 0 |
| `corpus_concentration` | γ | () or a `GammaPrior` | > 0 |
| `document_concentration` | α | () or a `GammaPrior` | > 0 |
| `tables` | truncation of a document's sticks | | |
| site `topic_word` | log φ | (topic, word) | simplex |
| site `table` | z_dn, one row for each *distinct* word of the document | (token, table) | one-hot |

`HDPMixture`: units are groups of rows, such as pupils in schools, cells of patients and pixels of images, and parts are
mixture components. A *table* is a stick of one group, which points to a component. Steps 3 and 7 are:

    3. components        θ_k ~ G₀, the conjugate prior of their kind
    7. row               x_jn ~ p(· | θ_k),             k = c_{j, z_jn}

| field | letter | shape | support |
|---|---|---|---|
| `components` | the kind of p(x | θ) and G₀ | | `lvsearch.models.components` |
| `shared_concentration` | γ | () or a `GammaPrior` | > 0 |
| `group_concentration` | α | () or a `GammaPrior` | > 0 |
| `tables` | truncation of a group's sticks | | |
| site `components` | statistics of θ_k | (component, …) | |
| site `table` | z_jn | (row, table) | one-hot |

With one group, the latter is a Dirichlet-process mixture whose weights have a prior of two levels. As α grows, all
groups get the weights β, and membership in a group carries no information. As α falls to 0, every group has a single
component.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import required_numbers
from lvsearch.models.components.component import (
    Component,
    draw_parameters,
    draw_rows,
    log_ceiling_of_groups,
    log_prior,
    rows_in_groups,
)
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.contract import (
    ExpectedCells,
    HyperparameterArray,
    Latents,
    Masks,
    Site,
    Statistics,
    concentration_parameter,
    is_known_false,
)
from lvsearch.models.exponential.family import inner
from lvsearch.models.exponential.simplex import log_symmetric_dirichlet
from lvsearch.models.families import Dirichlet
from lvsearch.models.hierarchical_process import TABLES, Axes, HierarchicalProcess, Level, checked_tables
from lvsearch.models.hyperpriors import UNIT_PRIOR, GammaPrior, as_text, positive_or_gamma_prior
from lvsearch.models.topic_model import TopicModel, draw_words
from lvsearch.models.units import BagOfWords, GroupOfRows, Row

CORPUS_PRIOR, DOCUMENT_PRIOR = GammaPrior(1.0, 0.1), GammaPrior(1.0, 1.0)
"""The default priors of γ (corpus concentration) and α (document concentration), from Teh et al. (2006), §6.1."""


class HDP(HierarchicalProcess, TopicModel):
    """Hierarchical Dirichlet process topics; `size` is the truncation of q's corpus sticks, not a size of the model.

    topic_concentration: parameter of the symmetric Dirichlet on each topic's words.
    corpus_concentration, document_concentration: γ and α. A number fixes one; with a `GammaPrior` it is a latent
        variable that is inferred.
    tables: the truncation of a document's sticks. A document uses at most this many tables (sticks that point to
        topics).

    The number of topics is answered by a posterior over *occupied* topics, from chains of a sampler (`lv.occupied`).
    Every truncation bounds the same evidence from below: a larger one is only a better bound.
    """

    topic_concentration: HyperparameterArray
    corpus_concentration: HyperparameterArray | GammaPrior
    document_concentration: HyperparameterArray | GammaPrior
    tables: int = eqx.field(static=True)

    unit_type: ClassVar[type] = BagOfWords
    topic_site: ClassVar[str] = "topic_word"
    levels: ClassVar[tuple[Level, Level]] = (
        Level("corpus_concentration", "corpus_sticks"),
        Level("document_concentration", "document_sticks"),
    )
    axes: ClassVar[Axes] = Axes("topic", "token")

    def __init__(
        self,
        topic_concentration: Any = 0.05,
        corpus_concentration: Any = CORPUS_PRIOR,
        document_concentration: Any = DOCUMENT_PRIOR,
        tables: int = TABLES,
    ):
        self.topic_concentration = concentration_parameter("topic_concentration", topic_concentration)
        if self.topic_concentration.ndim or is_known_false(self.topic_concentration > 0):
            raise ValueError(f"topic_concentration must be one positive number, got {topic_concentration!r}")
        self.corpus_concentration = positive_or_gamma_prior("corpus_concentration", corpus_concentration)
        self.document_concentration = positive_or_gamma_prior("document_concentration", document_concentration)
        self.tables = checked_tables(tables, "word of a document")

    def describe(self) -> str:
        """Describe the model in one line, such as "HDP: topic_concentration 0.05; corpus concentration ~ Gamma(1, rate
        0.1); …".
        """
        return (
            f"HDP: topic_concentration {float(self.topic_concentration):g}; corpus concentration "
            f"{as_text(self.corpus_concentration)}; document concentration {as_text(self.document_concentration)}; "
            f"{self.tables} tables in a document"
        )

    def part_sites(self) -> dict[str, Site]:
        """Return the latent variable of the topics: {"topic_word": log φ on the axes (topic, word)}."""
        return {"topic_word": Site(Dirichlet(), ("topic", "word"))}

    def log_parts_prior(self, g: Latents) -> Float[Array, " topic"]:
        """Return log Dirichlet(φ_k | η, …, η) of each topic, in nats, shape (topic,).

        g: {"topic_word": log φ, shape (topic, word)}.
        """
        log_phi = g["topic_word"]
        return log_symmetric_dirichlet(log_phi, self.topic_concentration, log_phi.shape[-1])

    def members(self, unit: BagOfWords) -> Any:
        """Return the vocabulary id of each distinct word of a document, shape (token,)."""
        return unit.words

    def copies(self, unit: BagOfWords) -> Any:
        """Return how often each distinct word occurs in a document, shape (token,); 0 for padding."""
        return unit.counts

    def log_likelihoods(self, g: Latents, members: Any) -> Float[Array, "token topic"]:
        """Return log p(word | topic) of each distinct word under each topic, in nats, shape (token, topic).

        g: {"topic_word": log φ, shape (topic, word)}. members: vocabulary ids, shape (token,).
        """
        return g["topic_word"][:, members].T

    def draw_parts(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """Draw the topics from their prior, and return {"topic_word": log φ, shape (topic, word)}.

        size: (truncation,). extents: {"word": number of words in the vocabulary}.
        """
        eta = jnp.broadcast_to(jnp.asarray(self.topic_concentration), (size[0], extents["word"]))
        return {"topic_word": Dirichlet().sample(key, eta - 1)}

    def proportions_prior(self, size: tuple[int, ...], natural: Latents) -> Float[np.ndarray, " topic"]:
        """Return E[α] E[β_k], the Dirichlet parameter of a document's proportions, for each topic k, shape (topic,).

        α is the document concentration and β are the corpus weights of topics. Given β, a document's shares of any
        finite partition of the topics are Dirichlet(α β). The mass of topics beyond the truncation is left out.

        size: not used. natural: {name: natural parameters} of the globals.
        """
        weights, _ = self.expected_weights(natural)
        return self.expected_concentration(self.levels[1], natural) * weights

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> BagOfWords:
        """Draw a word for every token of a document, given its table and the topic of each table.

        g: {"topic_word": log φ}. l: {"table": one-hot (token, table); "pointer": one-hot (table, topic)}.
        unit: a document with one token in every column (counts 0 or 1); its words are replaced.
        """
        return draw_words(key, l["table"] @ l["pointer"] @ g["topic_word"], unit)


class Rows(NamedTuple):
    """Rows in the coordinates of the components.

    `coordinates`: (row, dim). `observed`: (row, dim), True where a cell is known. `log_carrier`: (row,), the part of
        each row's log-density that no parameter enters, in nats.
    """

    coordinates: Float[Array, "row dim"] | np.ndarray
    observed: Bool[Array, "row dim"] | np.ndarray
    log_carrier: Float[Array, " row"] | np.ndarray


class HDPMixture(HierarchicalProcess):
    """A mixture for every group of rows, with shared components; `size` is the truncation of q, not of the model.

    components: the kind of components and their prior, such as `DiagonalComponents.scaled_to(values)`. The default
        expects standardised columns.
    shared_concentration: γ. It controls how evenly components are used over all groups, and so how many there are.
    group_concentration: α. It controls how alike the weights of the groups are. A number fixes γ or α; with a
        `GammaPrior` it is inferred.
    tables: the truncation of a group's sticks. A group uses at most this many tables (sticks that point to components).

    The number of components is answered by a posterior over *occupied* components, from chains of a sampler
    (`lv.occupied`). Every truncation bounds the same evidence from below: a larger one is only a better bound.
    """

    components: Component
    shared_concentration: HyperparameterArray | GammaPrior
    group_concentration: HyperparameterArray | GammaPrior
    tables: int = eqx.field(static=True)

    unit_type: ClassVar[type] = GroupOfRows
    levels: ClassVar[tuple[Level, Level]] = (
        Level("shared_concentration", "shared_sticks"),
        Level("group_concentration", "group_sticks"),
    )
    axes: ClassVar[Axes] = Axes("component", "row")

    def __init__(
        self,
        components: Component | None = None,
        shared_concentration: Any = UNIT_PRIOR,
        group_concentration: Any = UNIT_PRIOR,
        tables: int = TABLES,
    ):
        self.components = DiagonalComponents() if components is None else required_numbers(components)
        if self.components.estimated:
            raise ValueError("got estimated components, expected components with a prior: the process draws them")
        self.shared_concentration = positive_or_gamma_prior("shared_concentration", shared_concentration)
        self.group_concentration = positive_or_gamma_prior("group_concentration", group_concentration)
        self.tables = checked_tables(tables, "row of a group")

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "HDPMixture: Gaussians of known variance 1 (…); shared concentration ~ Gamma(1, rate 1); …".
        """
        return (
            f"HDPMixture: {self.components.describe()}; shared concentration {as_text(self.shared_concentration)}; "
            f"group concentration {as_text(self.group_concentration)}; {self.tables} tables in a group"
        )

    def part_sites(self) -> dict[str, Site]:
        """Return the latent variable of the components' parameters, {"components": on the axes (component, dim, …)}."""
        return {"components": Site(self.components.family, ("component", *self.components.axes))}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"component": mask of the components below the truncation}, with the masks of the components' own
        axes.
        """
        return {**super().active(size, capacity), **self.components.own_axes}

    def log_parts_prior(self, g: Latents) -> Float[Array, " component"]:
        """Return the log prior density of each component's parameters, in nats, shape (component,).

        g: {"components": statistics of the parameters, components leading}.
        """
        return log_prior(self.components, g["components"], {})

    def members(self, unit: GroupOfRows | Row) -> Rows:
        """Return the rows of a group in the coordinates of the components (relative to location and scale).

        unit: a group of rows, or stacked rows. In these coordinates floats keep their digits in any unit of the data.
        """
        rows = Row(unit.value, unit.observed)
        y = jax.vmap(self.components.coordinates)(rows)
        observed = jnp.asarray(unit.observed)
        return Rows(y, observed, jax.vmap(self.components.log_carrier)(y, observed))

    def copies(self, unit: GroupOfRows) -> Float[Array, " row"]:
        """Return 1 for each row of a group that exists and 0 for padding, shape (row,)."""
        return jnp.asarray(unit.present).astype(jnp.result_type(float))

    def log_likelihoods(self, g: Latents, members: Rows) -> Float[Array, "row component"]:
        """Return log p(row | component) of each row under each component, in nats, shape (row, component).

        g: {"components": statistics of the parameters, components leading}. members: the rows, from `members`.
        """
        component = self.components

        def log_likelihood(coordinates: Array, observed: Array, log_carrier: Array) -> Float[Array, " component"]:
            # ⟨E[t(θ_k)], s(x)⟩ + log h(x) for every component k
            products = inner(component.family, component.increment(coordinates, observed), g["components"], None)
            return products.reshape(len(products), -1).sum(-1) + log_carrier

        return jax.vmap(log_likelihood)(*map(jnp.asarray, members))

    def draw_parts(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """Draw the parameters of the components from their prior, and return {"components": statistics, components
        leading}.

        size: (truncation,). extents: {"dim": number of columns}.
        """
        return {"components": draw_parameters(self.components, key, size[0], extents["dim"])}

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        return self.components.expected_cells(n_dims)

    def check(self, units: GroupOfRows) -> None:
        """Raise ValueError for rows that have no density under the components."""
        self.components.check(rows_in_groups(units))

    def ceiling(self, units: GroupOfRows) -> float:
        """Return the sum of each row's greatest log-density under any one component, in nats.

        The ceiling is `inf` where components of free variance have no greatest density. units: all groups.

        Proof: given parameters, weights and assignments, a row's density is that of its component, which is at most the
        greatest. An average is at most the maximum.

        Raises ValueError for rows that have no density under the components.
        """
        return log_ceiling_of_groups(self.components, units)

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: GroupOfRows, on: Masks) -> GroupOfRows:
        """Draw the cells of every row of a group, given its table and the component of each table.

        g: {"components": statistics of the parameters}. l: {"table": (row, table); "pointer": (table, component)}.
        unit: a group whose `observed` and `present` are kept.
        """
        chosen = jnp.argmax(l["table"] @ l["pointer"], axis=-1)
        value = draw_rows(self.components, key, g["components"], chosen, Row(unit.value, unit.observed))
        return GroupOfRows(value, unit.observed, unit.present)
