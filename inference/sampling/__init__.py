"""Draws from the posterior of any model that has a sampler: one loop for all samplers, and one kind of trace."""

from lvsearch.inference.sampling.run import run, run_one_chain
from lvsearch.inference.sampling.trace import Nothing, Quantity, Recorder, Trace, recorder

__all__ = ["Nothing", "Quantity", "Recorder", "Trace", "recorder", "run", "run_one_chain"]
