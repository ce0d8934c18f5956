"""The kit of every type of chain: what it offers the annealer, and how its states are recorded and read, in one table.

A type of chain without a kit is refused. Annealed without its better path, a chain would still run, with ends far apart
and no warning. So every type names its paths: `PLAIN` if it has only the usual one. The last table says, for each kind
of component, which chain draws the components of a mixture's rows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxtyping import Array, Key

from lvsearch.inference.annealing.density import DensityChain
from lvsearch.inference.annealing.generic import GenericChain
from lvsearch.inference.annealing.particles import Compilation
from lvsearch.inference.block_models.chain import BlockChain, reader_of_blocks, recorder_of_blocks, true_state_of_blocks
from lvsearch.inference.block_models.estimator import anchor_of_blocks
from lvsearch.inference.chains import Anchor, Chain, Sampler, Sequential, State
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.evidence.hidden_markov import HiddenMarkovChain, first_steps_in_time, rows_in_time
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain
from lvsearch.inference.evidence.mixture_hyperparameters import (
    HyperMixture,
    anchor_of_hyper_mixture,
    labels_chain_of_any_component,
)
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, anchor_of_mixture
from lvsearch.inference.evidence.poisson_factorization import PoissonFactorizationChain
from lvsearch.inference.evidence.recorders import (
    factor_recorder,
    generic_recorder,
    hyper_mixture_recorder,
    hyper_topic_recorder,
    mixture_recorder,
    normal_recorder,
    path_recorder,
    reader_of_hidden_markov,
    reader_of_hyper_topics,
    reader_of_mixtures,
    reader_of_topics,
    reader_of_unigram_mixtures,
    topic_recorder,
    unigram_mixture_recorder,
)
from lvsearch.inference.evidence.row_by_row import hyper_rows_in_turn, is_along_rows, rows_in_turn
from lvsearch.inference.evidence.simulation import (
    Simulated,
    true_document_labels,
    true_factor_state,
    true_factor_state_near_fit,
    true_gibbs_state,
    true_hyper_mixture_state,
    true_hyper_topic_state,
    true_mixture_state,
    true_normal_state,
    true_path_state,
    true_topic_state,
)
from lvsearch.inference.evidence.unigram_mixtures import UnigramMixtureChain
from lvsearch.inference.factor_analyzers.chain import FactorAnalyzerChain
from lvsearch.inference.factor_analyzers.row_by_row import (
    anchor_of_factor_analyzers,
    reader_of_factor_analyzers,
    recorder_of_factor_analyzers,
    scored_rows_in_turn,
    true_state_of_factor_analyzers,
)
from lvsearch.inference.factorizations.anchored import SHARE_AROUND_FIT, AnchoredFactorization, first_steps_around_fit
from lvsearch.inference.full_covariances.chain import labels_chain_of_full_covariances, labels_chain_of_students
from lvsearch.inference.kits import CHAIN_KITS, CHAINS_OF_COMPONENTS
from lvsearch.inference.sampling.parameters import LatentsReader, no_reader_needed
from lvsearch.inference.sampling.trace import Recorder
from lvsearch.inference.topic_samplers.anchor import (
    anchor_of_hyper_topics,
    anchor_of_topics,
    documents_in_turn,
)
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics
from lvsearch.inference.topic_samplers.paths import first_steps_of_hyper_topics, first_steps_of_topics
from lvsearch.models.components.component import Component
from lvsearch.models.components.covariances import FullCovarianceComponents
from lvsearch.models.components.student import StudentComponents
from lvsearch.models.contract import Model

FAR = 4000.0
"""Nats between both directions, times temperatures, beyond which a second path is annealed.

On a smooth path the distance falls as one over the temperatures, and then more temperatures suffice. The product was
2,000 to 2,600 on corpora that leave the number of topics open, and 14,000 on corpora that decide it.
"""


class AnnealingKit(NamedTuple):
    """A record of what a type of chain offers the annealer beside its path along temperatures.

    | field | meaning |
    |---|---|
    | `sequential` | chain, key -> its units in an order drawn with the key; None if they cannot come one by one |
    | `along_data` | chain -> True if it is annealed along its units in turn by default, False if along temperatures |
    | `second_path` | chain, key, states -> a path that starts near the best of these states, or None |
    | `second_path_beyond` | (nats between both directions) × (temperatures) beyond which a second path is annealed |
    | `first_steps` | chain, number of temperatures by default -> that of the cheapest annealing of this chain |
    | `in_small_steps` | True if a sweep takes thousands of small steps in turn, which a CPU does faster than a GPU |
    | `compilation` | how the programs of its paths along temperatures are compiled |
    | `hysteresis_share` | share of the nats between both directions that is a standard error; None: the usual one |

    A path around the best particle is shorter, but stays in one labelling and one mode. `states` are the ends of the
    first path's forward annealing: particles of each of its two independent halves, or of the one run if it ran forward
    only. `second_path_beyond` is 0 for chains whose second path, from a normalised q, is as cheap to draw from as the
    prior. A chain may have units in turn (`sequential`) for those who ask for them, and yet be annealed along
    temperatures by default.
    """

    sequential: Callable[[Any, Key[Array, ""]], Sequential | None]
    along_data: Callable[[Any], bool]
    second_path: Callable[[Any, Key[Array, ""], Sequence[State]], Anchor | None]
    second_path_beyond: float
    first_steps: Callable[[Any, int], int]
    in_small_steps: bool
    compilation: Compilation
    hysteresis_share: float | None


class StatesKit(NamedTuple):
    """A record of how the states of a type of chain are recorded, read, and made from known latent variables.

    Each field is the implementation of the function of the same name: `recorder`, `latents_reader`, `true_state`.
    """

    recorder: Callable[..., Recorder]
    latents_reader: Callable[[Any, Any, Dataset], LatentsReader | None]
    true_state: Callable[[Any, Simulated, int], State]


class ChainKit(NamedTuple):
    """A record of what is known of a type of chain: what it offers the annealer, and how its states are read."""

    annealing: AnnealingKit
    states: StatesKit


def all_at_once(chain: Chain, key: Key[Array, ""]) -> None:
    """Return None: the units of the chain cannot come one by one."""


def along_temperatures(chain: Chain) -> bool:
    """Return False: the path leads along temperatures."""
    return False


def along_data_alone(chain: HiddenMarkovChain | UnigramMixtureChain) -> bool:
    """Return True: the only path leads along the data."""
    return True


def one_path_alone(chain: Chain, key: Key[Array, ""], states: Sequence[State]) -> None:
    """Return None: there is no second path."""


def default_steps(chain: Chain, default: int) -> int:
    """Return the number of temperatures by default."""
    return default


def no_recorder(chain: Sampler, data: Dataset, *, units: bool) -> Recorder:
    """Raise TypeError: it is not said what is recorded of the chain, whose draws would hold the log density alone."""
    raise TypeError(f"got a chain of type {type(chain).__name__}, expected one with a recorder in its ChainKit")


def no_latents_reader(chain: Sampler, model: Model, data: Dataset) -> LatentsReader:
    """Raise TypeError: it is not said how the chain's states are read."""
    raise TypeError(
        f"got a chain of type {type(chain).__name__}, expected one that says how its states are read: a latents_reader "
        "in its ChainKit, or `no_reader_needed` if there is nothing to add to what its recorder has"
    )


def no_true_state(chain: Chain, simulated: Simulated, particles: int) -> State:
    """Raise ValueError: it is not said how the chain begins at given latent variables."""
    raise ValueError(
        f"got a {type(chain).__name__}, expected a chain that can begin at known latents: one with a true_state in its "
        "ChainKit"
    )


PLAIN = AnnealingKit(
    sequential=all_at_once,
    along_data=along_temperatures,
    second_path=one_path_alone,
    second_path_beyond=FAR,
    first_steps=default_steps,
    in_small_steps=False,
    compilation=Compilation.FULL_EFFORT,
    hysteresis_share=None,
)
"""The record of a chain whose own path, along temperatures, is all that it offers."""
NOT_READ = StatesKit(no_recorder, no_latents_reader, no_true_state)
"""The record of states that nothing is known of: each of its functions refuses."""
ROWS = PLAIN._replace(
    sequential=rows_in_turn, along_data=is_along_rows, second_path=anchor_of_mixture, second_path_beyond=0.0
)
TOPIC_CHAINS = PLAIN._replace(second_path=anchor_of_topics, first_steps=first_steps_of_topics, in_small_steps=True)

BUILT_IN_KITS: dict[type, ChainKit] = {
    # any log-joint, and any density
    GenericChain: ChainKit(PLAIN, StatesKit(generic_recorder, no_reader_needed, true_gibbs_state)),
    DensityChain: ChainKit(PLAIN, NOT_READ),
    # rows
    CollapsedMixtureChain: ChainKit(ROWS, StatesKit(mixture_recorder, reader_of_mixtures, true_mixture_state)),
    HyperMixture: ChainKit(
        ROWS._replace(sequential=hyper_rows_in_turn, second_path=anchor_of_hyper_mixture),
        StatesKit(hyper_mixture_recorder, reader_of_mixtures, true_hyper_mixture_state),
    ),
    FactorAnalyzerChain: ChainKit(
        ROWS._replace(sequential=scored_rows_in_turn, second_path=anchor_of_factor_analyzers),
        StatesKit(recorder_of_factor_analyzers, reader_of_factor_analyzers, true_state_of_factor_analyzers),
    ),
    IndependentNormalChain: ChainKit(PLAIN, StatesKit(normal_recorder, no_reader_needed, true_normal_state)),
    HiddenMarkovChain: ChainKit(
        PLAIN._replace(sequential=rows_in_time, along_data=along_data_alone, first_steps=first_steps_in_time),
        StatesKit(path_recorder, reader_of_hidden_markov, true_path_state),
    ),
    BlockChain: ChainKit(
        PLAIN._replace(second_path=anchor_of_blocks, second_path_beyond=0.0),
        StatesKit(recorder_of_blocks, reader_of_blocks, true_state_of_blocks),
    ),
    PoissonFactorizationChain: ChainKit(PLAIN, StatesKit(factor_recorder, no_reader_needed, true_factor_state)),
    AnchoredFactorization: ChainKit(
        PLAIN._replace(
            first_steps=first_steps_around_fit,
            compilation=Compilation.SOON_IN_ONE_THREAD,
            hysteresis_share=SHARE_AROUND_FIT,
        ),
        NOT_READ._replace(true_state=true_factor_state_near_fit),
    ),
    # documents
    CollapsedTopics: ChainKit(
        TOPIC_CHAINS._replace(sequential=documents_in_turn),
        StatesKit(topic_recorder, reader_of_topics, true_topic_state),
    ),
    HyperTopics: ChainKit(
        TOPIC_CHAINS._replace(second_path=anchor_of_hyper_topics, first_steps=first_steps_of_hyper_topics),
        StatesKit(hyper_topic_recorder, reader_of_hyper_topics, true_hyper_topic_state),
    ),
    UnigramMixtureChain: ChainKit(
        PLAIN._replace(sequential=rows_in_turn, along_data=along_data_alone),
        StatesKit(unigram_mixture_recorder, reader_of_unigram_mixtures, true_document_labels),
    ),
}
"""{type of chain: its kit}. Subclasses, such as the chains of full covariances, have that of their base class."""


def register_chain_kit(chain_type: Any, kit: Any) -> None:
    """Give a type of chain, and its subclasses without a kit of their own, this kit.

    kit: what is known of it, such as `ChainKit(PLAIN, NOT_READ)`. A kit that the type had before is replaced.

    Raises ValueError for what is no type, and for what is no kit.
    """
    if not isinstance(chain_type, type) or not isinstance(kit, ChainKit):
        raise ValueError(
            f"got {chain_type!r} and a {type(kit).__name__}, expected a type of chain and a ChainKit: "
            "ChainKit(PLAIN, NOT_READ) says that nothing is known of it"
        )
    CHAIN_KITS[chain_type] = kit


CHAIN_KITS.update(BUILT_IN_KITS)
CHAINS_OF_COMPONENTS.update(
    {
        Component: labels_chain_of_any_component,
        FullCovarianceComponents: labels_chain_of_full_covariances,
        StudentComponents: labels_chain_of_students,
    }
)
