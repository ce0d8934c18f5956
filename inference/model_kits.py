"""The kit of every type of model: all that inference knows of a model beyond its log-joint, in one table.

A public function, such as `describe_units(model, estimate, data)`, looks up the kit of the model and calls the field of
the same name. A type of model has the kit of its row, or of its nearest base class with a row. What any log-joint gets
is the row of `Model`, `GENERIC_KIT`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lvsearch.inference.allocation_chains.contract import AllocationChain
from lvsearch.inference.allocation_chains.models import (
    block_chain,
    blocks_have_prior,
    feature_chain,
    features_have_prior,
    no_start,
    parameters_have_prior,
    partition_chain,
)
from lvsearch.inference.annealing.between_sizes import Gain
from lvsearch.inference.annealing.dispatch import annealed_chain, chain_from_prior, needs_no_fit, no_extra_bytes
from lvsearch.inference.annotation.estimator import AnnotationEstimator
from lvsearch.inference.annotation.predictions import describe_annotated_images
from lvsearch.inference.block_models.chain import evidence_chain_of_blocks, path_of_blocks_needs_fit
from lvsearch.inference.block_models.estimator import BlockEstimator, estimate_from_partitions
from lvsearch.inference.chains import Chain, Sampler
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.describing import (
    Described,
    UnitScores,
    bounds_up_to_ceilings,
    ceilings_one_by_one,
    describe_by_log_joint,
    score_by_description,
)
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import Estimator, GenericEstimator
from lvsearch.inference.evidence.hidden_markov import evidence_chain_of_hidden_markov
from lvsearch.inference.evidence.independent_normal import (
    evidence_chain_of_independent_normals,
    sampled_chain_of_independent_normals,
)
from lvsearch.inference.evidence.mixture_hyperparameters import evidence_chain_of_mixture
from lvsearch.inference.evidence.poisson_factorization import (
    evidence_chain_of_factorization,
    path_of_factorization_needs_fit,
)
from lvsearch.inference.evidence.unigram_mixtures import evidence_chain_of_unigrams
from lvsearch.inference.factor_analyzers.estimator import FactorAnalyzerEstimator
from lvsearch.inference.factor_analyzers.row_by_row import evidence_chain_of_factor_analyzers
from lvsearch.inference.factorizations.estimator import FactorizationEstimator
from lvsearch.inference.factorizations.scores import describe_rows_of_counts, score_rows_of_counts
from lvsearch.inference.features.estimator import FeatureEstimator
from lvsearch.inference.full_covariances.tied import TiedEstimator, evidence_chain_of_tied_mixture
from lvsearch.inference.hdp.estimator import HDPEstimator
from lvsearch.inference.hdp.groups import GroupsEstimator
from lvsearch.inference.hdp.occupied import (
    component_franchise,
    occupied_parts,
    occupied_shared_components,
    occupied_topics,
    topic_franchise,
)
from lvsearch.inference.hdp.units import (
    Contents,
    contents_of_documents,
    contents_of_groups,
    describe_units_of_process,
    no_contents,
)
from lvsearch.inference.kits import MODEL_KITS
from lvsearch.inference.mixture_samplers.sweeps import occupied_components, partitions
from lvsearch.inference.mixtures.estimator import MixtureEstimator
from lvsearch.inference.mixtures.partitions import OccupiedCounts
from lvsearch.inference.mixtures.predictive import score_rows_of_mixture
from lvsearch.inference.processes import OccupiedSampler, responsibilities_suffice
from lvsearch.inference.sampling.trace import Recorder
from lvsearch.inference.sequences.estimator import HiddenMarkovEstimator
from lvsearch.inference.topic_samplers.paths import (
    bytes_of_tokens,
    evidence_chain_of_admixture,
    evidence_chain_of_lda,
    first_gain_of_lda,
    path_of_topics_needs_fit,
)
from lvsearch.inference.topic_samplers.size_gain import gain_of_last_topic
from lvsearch.inference.topics.describing import (
    bound_documents_of_lda,
    ceilings_of_documents,
    describe_documents_of_lda,
    score_documents_of_topics,
)
from lvsearch.inference.topics.streaming import estimator_of_lda
from lvsearch.inference.trees.chain import occupied_nodes, trees
from lvsearch.inference.word_mixtures.mixture import (
    UnigramMixtureEstimator,
    bound_documents_of_unigrams,
    describe_documents_of_unigrams,
    no_proportions,
    proportions_of_topic_model,
    proportions_of_unigram_mixture,
)
from lvsearch.inference.word_mixtures.plsi import (
    PLSIEstimator,
    describe_documents_of_plsi,
    no_evidence_chain_of_plsi,
    proportions_of_plsi,
    score_documents_of_plsi,
)
from lvsearch.models.admixture import Admixture
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.contract import Model
from lvsearch.models.corr_lda import CorrLDA
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.gm_lda import GMLDA
from lvsearch.models.gm_mixture import GMMixture
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.hlda import HLDA
from lvsearch.models.ibp import IBP
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.lda import LDA
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams, Unigram
from lvsearch.models.plsi import PLSI
from lvsearch.models.poisson_factorization import PoissonFactorization
from lvsearch.models.tied_mixture import TiedMixture
from lvsearch.models.topic_model import TopicModel


class GainKit(NamedTuple):
    """A record of how the gain of one component more is measured.

    `first_size`: see `first_gain`. `measure`: see `gain_of_last_part`.
    """

    first_size: Callable[[Any, Dataset], int | None]
    measure: Callable[..., Gain]


class ProcessKit(NamedTuple):
    """A record of the exact samplers of a nonparametric process.

    `sampler`: see `process_sampler`. `occupied`: see `occupied_sampler`.
    """

    sampler: Callable[..., tuple[Sampler, Recorder]]
    occupied: Callable[[Any, Dataset], OccupiedSampler]


class AllocationKit(NamedTuple):
    """A record of chains over allocations of the rows, which compare all sizes at once.

    `exist`: model -> True if this model has them, see `has_allocation_chain`. `chain`: see `allocation_chain`. `start`:
    see `start_from_allocation`.
    """

    exist: Callable[[Any], bool]
    chain: Callable[..., AllocationChain]
    start: Callable[..., Estimate | None]


class ModelKit(NamedTuple):
    """A record of what inference knows of one type of model beyond its log-joint.

    Each of the first twelve fields is the implementation of the function of its name, for this type of model. The last
    three are records of their own, None for types without.

    | field | what it does |
    |---|---|
    | `estimator` | makes the fastest estimator of fits at one size |
    | `describe_units` | describes units under a fit |
    | `bound_units` | bounds log p(unit) under a fit from both sides |
    | `unit_ceilings` | bounds log p(unit) under any size and any parameters from above |
    | `score_units` | scores units under a fit by the best method |
    | `document_proportions` | returns the distribution of a new document's topic proportions |
    | `evidence_chain` | makes the best annealing path to the posterior |
    | `sampled_chain` | makes the chain whose draws are recorded for people |
    | `path_needs_fit` | True if the path should start from a fit instead of the prior |
    | `bytes_while_annealed` | says how many bytes annealing holds in addition to a fit |
    | `occupied_counts` | draws how many components are occupied under a fit; None if responsibilities suffice |
    | `contents_of` | of a process of two levels: how often each word or row occurs in each document or group |
    | `gains` | measures the gain of one component more |
    | `process` | samples a nonparametric process exactly |
    | `allocations` | compares all sizes at once by chains over allocations of the rows |
    """

    estimator: Callable[[Any, Dataset], Estimator]
    describe_units: Callable[[Any, Estimate, Dataset], Described]
    bound_units: Callable[[Any, Estimate, Dataset], tuple[np.ndarray, np.ndarray]]
    unit_ceilings: Callable[[Any, Dataset], np.ndarray]
    score_units: Callable[..., UnitScores]
    document_proportions: Callable[[Any, Estimate, Dataset], Any]
    evidence_chain: Callable[[Any, Dataset, tuple[int, ...], Estimate | None], Chain]
    sampled_chain: Callable[[Any, Dataset, tuple[int, ...]], Chain]
    path_needs_fit: Callable[[Any, Dataset], bool]
    bytes_while_annealed: Callable[[Any, Dataset], int]
    occupied_counts: Callable[..., OccupiedCounts | None]
    contents_of: Callable[[Any, Dataset], Contents]
    gains: GainKit | None
    process: ProcessKit | None
    allocations: AllocationKit | None


GENERIC_KIT = ModelKit(
    estimator=GenericEstimator,
    describe_units=describe_by_log_joint,
    bound_units=bounds_up_to_ceilings,
    unit_ceilings=ceilings_one_by_one,
    score_units=score_by_description,
    document_proportions=no_proportions,
    evidence_chain=chain_from_prior,
    sampled_chain=annealed_chain,
    path_needs_fit=needs_no_fit,
    bytes_while_annealed=no_extra_bytes,
    occupied_counts=responsibilities_suffice,
    contents_of=no_contents,
    gains=None,
    process=None,
    allocations=None,
)
"""The kit of any log-joint."""

TOPIC_MODELS = GENERIC_KIT._replace(
    unit_ceilings=ceilings_of_documents,
    score_units=score_documents_of_topics,
    document_proportions=proportions_of_topic_model,
)
UNIGRAMS = TOPIC_MODELS._replace(
    estimator=UnigramMixtureEstimator,
    describe_units=describe_documents_of_unigrams,
    bound_units=bound_documents_of_unigrams,
)
MIXTURE = GENERIC_KIT._replace(estimator=MixtureEstimator, score_units=score_rows_of_mixture)
IMAGES = GENERIC_KIT._replace(estimator=AnnotationEstimator, describe_units=describe_annotated_images)
TWO_LEVELS = GENERIC_KIT._replace(describe_units=describe_units_of_process, occupied_counts=occupied_parts)
PARTITIONS = AllocationKit(parameters_have_prior, partition_chain, no_start)
BLOCKS = AllocationKit(blocks_have_prior, block_chain, estimate_from_partitions)
FEATURES = AllocationKit(features_have_prior, feature_chain, no_start)

BUILT_IN_KITS: dict[type[Model], ModelKit] = {
    Model: GENERIC_KIT,
    # documents
    TopicModel: TOPIC_MODELS,
    LDA: TOPIC_MODELS._replace(
        estimator=estimator_of_lda,
        describe_units=describe_documents_of_lda,
        bound_units=bound_documents_of_lda,
        evidence_chain=evidence_chain_of_lda,
        path_needs_fit=path_of_topics_needs_fit,
        bytes_while_annealed=bytes_of_tokens,
        gains=GainKit(first_gain_of_lda, gain_of_last_topic),
    ),
    PLSI: TOPIC_MODELS._replace(
        estimator=PLSIEstimator,
        describe_units=describe_documents_of_plsi,
        score_units=score_documents_of_plsi,
        document_proportions=proportions_of_plsi,
        evidence_chain=no_evidence_chain_of_plsi,
    ),
    MixtureOfUnigrams: UNIGRAMS._replace(
        document_proportions=proportions_of_unigram_mixture, evidence_chain=evidence_chain_of_unigrams
    ),
    Unigram: UNIGRAMS,
    HLDA: GENERIC_KIT._replace(process=ProcessKit(trees, occupied_nodes)),
    Admixture: GENERIC_KIT._replace(
        evidence_chain=evidence_chain_of_admixture,
        path_needs_fit=path_of_topics_needs_fit,
        bytes_while_annealed=bytes_of_tokens,
    ),
    # processes of two levels
    HierarchicalProcess: TWO_LEVELS,
    HDP: TWO_LEVELS._replace(
        estimator=HDPEstimator,
        unit_ceilings=ceilings_of_documents,
        score_units=score_documents_of_topics,
        document_proportions=proportions_of_topic_model,
        contents_of=contents_of_documents,
        process=ProcessKit(topic_franchise, occupied_topics),
    ),
    HDPMixture: TWO_LEVELS._replace(
        estimator=GroupsEstimator,
        contents_of=contents_of_groups,
        process=ProcessKit(component_franchise, occupied_shared_components),
    ),
    # rows
    MixtureModel: MIXTURE,
    FiniteMixture: MIXTURE._replace(evidence_chain=evidence_chain_of_mixture, allocations=PARTITIONS),
    TiedMixture: MIXTURE._replace(
        estimator=TiedEstimator, evidence_chain=evidence_chain_of_tied_mixture, allocations=PARTITIONS
    ),
    FactorAnalyzerMixture: MIXTURE._replace(
        estimator=FactorAnalyzerEstimator, evidence_chain=evidence_chain_of_factor_analyzers
    ),
    DPMixture: MIXTURE._replace(process=ProcessKit(partitions, occupied_components)),
    IndependentNormalMixture: GENERIC_KIT._replace(
        evidence_chain=evidence_chain_of_independent_normals,
        sampled_chain=sampled_chain_of_independent_normals,
        allocations=PARTITIONS,
    ),
    HiddenMarkov: GENERIC_KIT._replace(estimator=HiddenMarkovEstimator, evidence_chain=evidence_chain_of_hidden_markov),
    LatentBlockModel: GENERIC_KIT._replace(
        estimator=BlockEstimator,
        evidence_chain=evidence_chain_of_blocks,
        path_needs_fit=path_of_blocks_needs_fit,
        allocations=BLOCKS,
    ),
    IBP: GENERIC_KIT._replace(estimator=FeatureEstimator, allocations=FEATURES),
    PoissonFactorization: GENERIC_KIT._replace(
        estimator=FactorizationEstimator,
        describe_units=describe_rows_of_counts,
        score_units=score_rows_of_counts,
        evidence_chain=evidence_chain_of_factorization,
        path_needs_fit=path_of_factorization_needs_fit,
    ),
    # images with captions
    AnnotatedModel: IMAGES,
    CorrLDA: IMAGES,
    GMLDA: IMAGES,
    GMMixture: IMAGES,
}
"""{type of model: its kit}, also where a row repeats its base class's, so that none is forgotten. A model of one's own
has that of `Model`, unless `register_kit` gives it another."""


def register_kit(model_type: Any, kit: Any) -> None:
    """Give a type of model, and its subclasses without a kit of their own, this kit.

    model_type: a subclass of `Model`. A kit that it had before is replaced.
    kit: a `ModelKit`, mostly `GENERIC_KIT._replace(estimator=…)`.

    Raises ValueError for a type that is no model, and for what is no kit.
    """
    if not (isinstance(model_type, type) and issubclass(model_type, Model)) or not isinstance(kit, ModelKit):
        raise ValueError(
            f"got {model_type!r} and a {type(kit).__name__}, expected a subclass of lvsearch.models.Model and a "
            "ModelKit: GENERIC_KIT._replace(…) makes one"
        )
    MODEL_KITS[model_type] = kit


for _type, _kit in BUILT_IN_KITS.items():
    register_kit(_type, _kit)
