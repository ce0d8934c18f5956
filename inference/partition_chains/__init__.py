"""The number of components of a mixture of rows from chains over partitions, which cover all sizes at once."""

from lvsearch.inference.partition_chains.chain import PartitionChain, PartitionState
from lvsearch.inference.partition_chains.run import (
    PartitionRun,
    PartitionTrace,
    RowMixture,
    advance,
    is_enough,
    partition_chain,
    run_one_more_block,
    run_partitions,
)
from lvsearch.inference.partition_chains.seating import SeatPrior, Seats, supported_sizes

__all__ = [
    "PartitionChain",
    "PartitionRun",
    "PartitionState",
    "PartitionTrace",
    "RowMixture",
    "SeatPrior",
    "Seats",
    "advance",
    "is_enough",
    "partition_chain",
    "run_one_more_block",
    "run_partitions",
    "supported_sizes",
]
