"""NumPyro models of one's own under the search: the evidence of each size annealed from the model's prior and back."""

import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.bridges.attempts import failed, told
from lvsearch.bridges.numpyro_program import chain_of
from lvsearch.inference.annealing.density import DensityChain
from lvsearch.inference.annealing.tuning import tuned
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.evidence import Profile, anneal, effort
from lvsearch.models.kernels import kernel
from lvsearch.searching.annealed import annealing_failure, brackets_of
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Fit, FitInfo
from lvsearch.sizing.sizes import Size

FEWEST_IN_PILOT = 16
"""Particles, where data are so large that the annealings have fewer."""
CAPACITY = "capacity"
"""The parameter by which a model says that it masks."""
MASK_DRAWS, MASK_CAPACITIES, MASK_LEVEL = 256, (2, 4), 1e-6
"""Of a model that masks, log p(data | latents) at so many draws of the prior, size 1 in these capacities, may not
differ more than by chance: the test of Kolmogorov and Smirnov, which a right model fails once in a million times."""
CHECK, PILOT = 0xC4EC, 0xF10D
"""What sets the keys of the check and of the pilot apart from those of the annealings."""


@dataclass(frozen=True)
class NumpyroModel:
    """A NumPyro model of unknown size, for `lv.search` with its data; from `from_numpyro`."""

    function: Callable[..., Any]
    size_names: tuple[str, ...]

    @property
    def masks(self) -> bool:
        """Whether one compiled program serves many sizes."""
        return CAPACITY in _parameters(self.function)

    def evaluator(self, data: Any, seed: int) -> "NumpyroEvaluator":
        """The model with its data, looked at once, at size 1. Raises what the model raises there, and ValueError as
        `from_numpyro` says."""
        evaluator = _remade(self, data, seed)
        first = (1,) * len(self.size_names)
        if self.masks:
            evaluator.check_masks(first)
        else:
            evaluator.chain(first)
        return evaluator


@dataclass(frozen=True, eq=False)
class NumpyroEvaluator:
    """A NumPyro model with its data: the first trial of a size anneals briefly, every further one for longer.

    Programs and pilots are kept, so that further trials of a size compile nothing; keys are folded from seed, size and
    trial, so that what is found does not depend on the order.
    """

    model: NumpyroModel
    data: Any
    seed: int
    ceiling: float = math.inf
    nested: bool = False
    repeatable: bool = True
    anneals: bool = True
    shrinks: bool = False
    scale: float = 1.0
    _chains: dict[Size, DensityChain] = field(default_factory=dict, repr=False)
    _tuned: dict[Size, tuple[DensityChain, Profile]] = field(default_factory=dict, repr=False)

    @property
    def size_names(self) -> tuple[str, ...]:
        return self.model.size_names

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes, without programs. Arrays as NumPy's: JAX's would come out in single precision."""
        return _remade, (self.model, jax.tree.map(_as_numpy, self.data), self.seed)

    def __copy__(self) -> "NumpyroEvaluator":
        """Itself: what it keeps serves everybody."""
        return self

    def describe(self) -> str:
        """For people, in one line."""
        name = getattr(self.model.function, "__name__", type(self.model.function).__name__)
        return f"the NumPyro model {name}, annealed from its prior{', sizes masked' if self.model.masks else ''}"

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Anneal one size; what the model raises is the failure of that size."""
        del start  # paths begin with the prior
        began = time.perf_counter()
        try:
            fit = self._annealed(size, trial)
        except Exception as error:  # a stranger's code, whatever it is: the other sizes may do
            return failed(size, self.ceiling, "prior", time.perf_counter() - began, told(error))
        return fit

    def chain(self, size: Size) -> DensityChain:
        """The path of a size before its pilot; one program for all sizes of a capacity where the model masks."""
        capacity = capacity_of(size) if self.model.masks else size
        with jax.enable_x64(True):
            if capacity not in self._chains:
                self._chains[capacity] = self.traced(size, capacity)
            return eqx.tree_at(lambda c: c.size, self._chains[capacity], jnp.asarray(size))

    def traced(self, size: Size, capacity: Size) -> DensityChain:
        """The model as one program, with places for `capacity`."""
        names, function = self.model.size_names, self.model.function
        if self.model.masks:

            def model(numbers: Any) -> Any:
                sizes = tuple(numbers[place] for place in range(len(names)))
                return function(_one_or_all(sizes), self.data, **{CAPACITY: _one_or_all(capacity)})
        else:

            def model(numbers: Any) -> Any:
                del numbers  # the size is part of the program
                return function(_one_or_all(size), self.data)

        try:
            return chain_of(model, jnp.asarray(size))
        except (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError) as error:
            why = str(error).splitlines()[0]
            raise ValueError(
                f"got a model with the argument {CAPACITY}, which uses its size as a number of Python ({why}), "
                f"expected arrays as long as {CAPACITY}, of which the first `size` count: "
                f"jnp.where(jnp.arange({CAPACITY}) < size, …). Or leave {CAPACITY} out: every size is then "
                "compiled by itself"
            ) from error

    def check_masks(self, size: Size) -> None:
        """ValueError where what the data are worth depends on how many places there are that hold nothing."""
        from scipy.stats import ks_2samp

        key = jax.random.fold_in(jax.random.key(self.seed), CHECK)
        with jax.enable_x64(True):
            worth = [
                _prior_worth(self.traced(size, (places,) * len(size)), jax.random.fold_in(key, places))
                for places in MASK_CAPACITIES
            ]
        if ks_2samp(worth[0], worth[1]).pvalue < MASK_LEVEL:  # pyright: ignore[reportAttributeAccessIssue]
            medians = " and ".join(f"{np.median(each):,.1f}" for each in worth)
            few, many = MASK_CAPACITIES
            raise ValueError(
                f"got log p(data | latents) of {medians} nats (medians over draws of the prior) at size {size[0]} "
                f"with {CAPACITY}={few} and {many}, expected the same: entries beyond the size may have their prior, "
                f"but may not touch the data. Mask them, as in jnp.where(jnp.arange({CAPACITY}) < size, logits, -1e9)"
            )

    def _annealed(self, size: Size, trial: int) -> Fit:
        began = time.perf_counter()
        key = jax.random.key(self.seed)
        for number in size:
            key = jax.random.fold_in(key, number)
        if size not in self._tuned:
            chain = self.chain(size)
            first = effort(chain, 0)
            particles = max(FEWEST_IN_PILOT, first.islands * first.particles)
            self._tuned[size] = tuned(chain, jax.random.fold_in(key, PILOT), particles)
        chain, profile = self._tuned[size]
        if not np.isfinite(profile.mean[-1]):
            why = f"has log p(data | latents) = {profile.mean[-1]:.3g} on average over draws of the prior"
            return failed(size, self.ceiling, "prior", time.perf_counter() - began, why)
        work = effort(chain, trial)
        found = anneal(chain, jax.random.fold_in(key, trial), work, profile)
        brackets = brackets_of(found, work)
        failure = annealing_failure(size, found, brackets)
        info = FitInfo("prior", time.perf_counter() - began, 0, failure)
        return Fit(size, Evidence(-math.inf, self.ceiling), 0.0, None, info, () if failure else brackets)


def from_numpyro(function: Callable[..., Any], *, size_names: tuple[str, ...] = ("size",)) -> NumpyroModel:
    """Search over the sizes of any NumPyro model: `lv.search(lv.from_numpyro(f), data)`.

    function: `f(size, data)`, a model of NumPyro. size: a whole number (a tuple of them where `size_names` has several
    names), data: as given to `lv.search`, floating arrays in it as float64. The evidence p(data | size) is annealed
    from the model's own prior to its posterior and back, by Hamiltonian Monte Carlo on all continuous latents; discrete
    ones are summed out exactly, marked or not (`pip install "lvsearch[enumerate]"`, and numpyro.plate or .to_event
    around every batch). It comes with a standard error and stochastic ends, in nats, and nothing has to be relabelled.

    Every size is compiled by itself, seconds each. With a third parameter, `f(size, data, capacity)`, many sizes share
    a program: size is then traced, and capacity a number ≥ size by which arrays are shaped. Entries beyond the size may
    keep their prior, which integrates to 1, but may not touch the data: `jnp.where(jnp.arange(capacity) < size,
    logits, -1e9)`. Whether they do is checked on draws of the prior.

    Sizes at which the model raises, or has no number, are reported and not ranked. For draws at the size found, run
    NumPyro's own NUTS on `f` there.

    Raises ValueError for what is no function of a size and data; `lv.search` raises what the model raises at size 1,
    ValueError for models whose evidence means nothing or is out of reach (improper or masked priors, numpyro.param,
    discrete latents without finite support, subsampled plates), and ImportError where funsor is missing.
    """
    if not callable(function):
        raise ValueError(f"got {function!r}, expected a NumPyro model, a function f(size, data)")
    try:
        inspect.signature(function).bind(1, None, **({CAPACITY: 1} if CAPACITY in _parameters(function) else {}))
    except TypeError as error:
        raise ValueError(
            f"got a function that does not take (size, data) ({error}), expected f(size, data) or "
            f"f(size, data, {CAPACITY})"
        ) from error
    return NumpyroModel(function, size_names)


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _one_or_all(numbers: tuple[Any, ...]) -> Any:
    """What people call the size: a number, or a tuple where there are several variables."""
    return numbers[0] if len(numbers) == 1 else numbers


def _remade(model: NumpyroModel, data: Any, seed: int) -> NumpyroEvaluator:
    with jax.enable_x64(True):
        return NumpyroEvaluator(model, jax.tree.map(_as_float64, data), seed)


def _as_numpy(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, Array) else leaf


def _as_float64(leaf: Any) -> Any:
    """Arrays of NumPy and JAX as JAX's, floats in float64; everything else as it is."""
    if not isinstance(leaf, np.ndarray | Array):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in "bifu":
        return leaf
    return jnp.asarray(array, jnp.float64 if array.dtype.kind == "f" else None)


def _prior_worth(chain: DensityChain, key: Array) -> np.ndarray:
    """log p(data | latents) at draws of the prior (draw,), nats."""
    return np.asarray(kernel()(lambda c, k: c.log_ratio(c.init(k, MASK_DRAWS)))(chain, key))
