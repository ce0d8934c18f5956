"""Latent block models at one size: their annealed path, and fits that begin where a short annealing ended."""

from lvsearch.inference.block_models.chain import BlockChain
from lvsearch.inference.block_models.estimator import BlockEstimator
from lvsearch.inference.block_models.state import BlockStart, BlockState

__all__ = ["BlockChain", "BlockEstimator", "BlockStart", "BlockState"]
