"""Latent block models at one size: their annealed path, and fits that begin where a short annealing ended."""

from lvsearch.inference.block_models.chain import BlockChain, BlockStart, BlockState
from lvsearch.inference.block_models.estimator import BlockEstimator

__all__ = ["BlockChain", "BlockEstimator", "BlockStart", "BlockState"]
