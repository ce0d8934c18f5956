"""The number of components of a mixture of rows from chains over partitions: all sizes at once."""

from lvsearch.inference.partition_chains.chain import PartitionChain, PartitionState
from lvsearch.inference.partition_chains.run import PartitionTrace, advance, begin, partition_chain, run_partitions
from lvsearch.inference.partition_chains.seating import Seating, Seats, supported_sizes

__all__ = [
    "PartitionChain",
    "PartitionState",
    "PartitionTrace",
    "Seating",
    "Seats",
    "advance",
    "begin",
    "partition_chain",
    "run_partitions",
    "supported_sizes",
]
