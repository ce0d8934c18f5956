"""The number of components or features from chains over allocations of the rows, which cover all sizes at once.

An allocation says which rows are in the same component of a mixture (a partition), which rows and which columns of a
matrix are in the same cluster (two partitions), or which rows have each feature.
"""

from lvsearch.inference.allocation_chains.blocks import BlockPartitionChain
from lvsearch.inference.allocation_chains.contract import AllocationChain, AllocationState
from lvsearch.inference.allocation_chains.features import FeatureChain
from lvsearch.inference.allocation_chains.models import (
    RowMixture,
    allocation_chain,
    block_chain,
    concentrations_by_size,
    feature_chain,
    has_allocation_chain,
    no_start,
    start_from_allocation,
)
from lvsearch.inference.allocation_chains.partitions import PartitionChain
from lvsearch.inference.allocation_chains.run import (
    NO_DRAWS,
    AllocationDraws,
    AllocationRun,
    AllocationTrace,
    advance,
    is_enough,
    run_chains,
    run_one_more_block,
)
from lvsearch.inference.allocation_chains.seating import (
    SeatPrior,
    Seats,
    log_seats_of_a_new_row,
    size_probabilities,
    supported_sizes,
)

__all__ = [
    "NO_DRAWS",
    "AllocationChain",
    "AllocationDraws",
    "AllocationRun",
    "AllocationState",
    "AllocationTrace",
    "BlockPartitionChain",
    "FeatureChain",
    "PartitionChain",
    "RowMixture",
    "SeatPrior",
    "Seats",
    "advance",
    "allocation_chain",
    "block_chain",
    "concentrations_by_size",
    "feature_chain",
    "has_allocation_chain",
    "is_enough",
    "log_seats_of_a_new_row",
    "no_start",
    "run_chains",
    "run_one_more_block",
    "size_probabilities",
    "start_from_allocation",
    "supported_sizes",
]
