"""Samplers of binary features under the linear-Gaussian Indian buffet process, to compare `map_features` with.

Row n of the data X has binary features z_n, the n-th row of Z. It is the sum of the loadings A of the features it has,
plus noise. α is the concentration of the process, and σ_x and σ_A are the standard deviations of noise and loadings.

| sampler | loadings | a sweep | missing cells |
|---|---|---|---|
| `collapsed_gibbs` | integrated out | rows in turn, given all others | yes |
| `uncollapsed_gibbs` | sampled | columns in turn, all rows at once | yes |
| `slice_sampler` | integrated out | rows in turn, given explicit sticks | yes |
| `particle_filter` | integrated out | one pass over the rows, no iteration | no |

A *stick* is the probability that a row has a feature. The particle filter is no Markov chain: it makes one pass, and
cannot be continued. The other three are `FeatureSampler`s, which the common run loop runs
(`lvsearch.inference.sampling`). Their functions run one chain each and keep the loop's trace, `.trace`.

They start from any Z, such as `map_features(…).features` as Rai & Daumé recommend, or from no features. They may draw
α, σ_x and σ_A too. All are scored by log p(X, [Z]), where [Z] is the class of all Z that differ in the order of columns
only (a left-ordered class).
"""

from lvsearch.inference.feature_samplers.chain import Hyperpriors
from lvsearch.inference.feature_samplers.collapsed import collapsed_gibbs
from lvsearch.inference.feature_samplers.particles import ParticleTrace, particle_filter
from lvsearch.inference.feature_samplers.sticks import slice_sampler, uncollapsed_gibbs
from lvsearch.inference.feature_samplers.trace import FeatureTrace

__all__ = [
    "FeatureTrace",
    "Hyperpriors",
    "ParticleTrace",
    "collapsed_gibbs",
    "particle_filter",
    "slice_sampler",
    "uncollapsed_gibbs",
]
