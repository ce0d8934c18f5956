"""NumPyro models in both directions: a user's models as evaluators of a search, and the library's models in NumPyro.

`from_numpyro` makes an evaluator of a user's models, which a search calls: each size's evidence is annealed from the
prior and back. `to_numpyro` makes a NumPyro model of a model of the library, for everything that NumPyro can do with a
model.
"""

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

from lvsearch.bridges.guards import error_in_words, failed_fit, parameters_of
from lvsearch.bridges.numpyro_program import chain_of
from lvsearch.data.kinds import data_for, require_model
from lvsearch.inference.annealing.density import DensityChain, tune_step_lengths
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.evidence import Profile, anneal, effort
from lvsearch.inference.generators import fold_in, key_of
from lvsearch.models.contract import Model
from lvsearch.models.kernels import kernel
from lvsearch.searching.evaluators import annealing_failure, brackets_of
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Fit, FitInfo
from lvsearch.sizing.sizes import Size, as_size

FEWEST_IN_PILOT = 16
"""The smallest number of particles of a pilot run, also where data are so large that annealings have fewer."""
CAPACITY = "capacity"
"""The name of the parameter that marks a model as one that masks entries beyond the size."""
MASK_DRAWS, MASK_CAPACITIES, MASK_LEVEL = 256, (2, 4), 1e-6
"""Settings of the check of a model that masks entries beyond its size: draws, capacities, and level of the test.

log p(data | latents) at `MASK_DRAWS` draws of the prior, at size 1, must have the same distribution in both capacities.
By the Kolmogorov–Smirnov test at this level, a correct model fails once in a million times.
"""
CHECK, PILOT = 0xC4EC, 0xF10D
"""Numbers folded into the random keys of the check and of the pilot, so that they differ from those of the
annealings.
"""


@dataclass(frozen=True)
class NumpyroModel:
    """A NumPyro model of unknown size, made by `from_numpyro`. `lv.search` takes it with its data.

    `function`: the model f(size, data), or f(size, data, capacity). `size_names`: one name per size variable.
    """

    function: Callable[..., Any]
    size_names: tuple[str, ...]

    @property
    def masks(self) -> bool:
        """True if the model masks entries beyond its size, so that one compiled program serves many sizes."""
        return CAPACITY in parameters_of(self.function)

    def evaluator(self, data: Any, seed: int) -> "NumpyroEvaluator":
        """Return the evaluator of the model on data, after one run at size 1 as a check.

        data: whatever the model takes. seed: seed of the random numbers.

        Raises the error that the model raises, and ValueError for the reasons in `from_numpyro`.
        """
        evaluator = _make_evaluator(self, data, seed)
        first = (1,) * len(self.size_names)
        if self.masks:
            evaluator.check_masks(first)
        else:
            evaluator.chain(first)
        return evaluator


@dataclass(frozen=True, eq=False)
class NumpyroEvaluator:
    """A NumPyro model with its data, in the form in which a search evaluates sizes by annealing.

    The first trial (evaluation) of a size anneals briefly, every further trial for longer. Programs and pilot runs are
    kept, so that further trials of a size compile nothing. Random keys depend only on seed, size and trial, so results
    do not depend on the order of evaluation.

    `model`, `data`, `seed`: the model, its data and the seed. Further public fields are the settings that every
        evaluator has (`lvsearch.sizing.fit.Evaluator`).
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
        """One name per size variable."""
        return self.model.size_names

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments with which another process makes the evaluator again, without compiled programs.

        Arrays are sent as NumPy arrays: JAX arrays would arrive in single precision.
        """
        return _make_evaluator, (self.model, jax.tree.map(_as_numpy, self.data), self.seed)

    def __copy__(self) -> "NumpyroEvaluator":
        """Return the evaluator itself: threads can share its programs."""
        return self

    def describe(self) -> str:
        """Describe the evaluator in one line, for people."""
        name = getattr(self.model.function, "__name__", type(self.model.function).__name__)
        return f"the NumPyro model {name}, annealed from its prior{', sizes masked' if self.model.masks else ''}"

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Anneal one size and return its evidence as a `Fit`. An error of the model is the failure of that size.

        size: the size. start: not used. trial: the number of the trial (evaluation) of this size; later ones are
            longer.
        """
        del start  # annealing starts from the prior
        began = time.perf_counter()
        try:
            return self._anneal(size, trial)
        except Exception as error:  # another person's code may raise anything; other sizes may still work
            return failed_fit(size, self.ceiling, "prior", time.perf_counter() - began, error_in_words(error))

    def chain(self, size: Size) -> DensityChain:
        """Return the annealing path of one size from prior to posterior, with step lengths not tuned yet.

        If the model masks, all sizes of a capacity share one program.
        """
        capacity = capacity_of(size) if self.model.masks else size
        with jax.enable_x64(True):
            if capacity not in self._chains:
                self._chains[capacity] = self.trace_model(size, capacity)
            return eqx.tree_at(lambda c: c.size, self._chains[capacity], jnp.asarray(size))

    def trace_model(self, size: Size, capacity: Size) -> DensityChain:
        """Return the annealing path of the model as one traced program, with `capacity` places (array slots) for
        components.

        size: the size at which it is traced. capacity: the number of places; used only if the model masks.

        Raises ValueError for a model that has a capacity but uses its size as a Python number.
        """
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
        """Raise ValueError if log p(data | latents) depends on the number of places (array slots) beyond the size.

        size: the size at which to compare two capacities.
        """
        from scipy.stats import ks_2samp

        key = jax.random.fold_in(jax.random.key(self.seed), CHECK)
        with jax.enable_x64(True):
            values = [
                _log_likelihoods_under_prior(
                    self.trace_model(size, (places,) * len(size)), jax.random.fold_in(key, places)
                )
                for places in MASK_CAPACITIES
            ]
        if ks_2samp(values[0], values[1]).pvalue < MASK_LEVEL:  # pyright: ignore[reportAttributeAccessIssue]
            medians = " and ".join(f"{np.median(each):,.1f}" for each in values)
            few, many = MASK_CAPACITIES
            raise ValueError(
                f"got log p(data | latents) of {medians} nats (medians over draws of the prior) at size {size[0]} "
                f"with {CAPACITY}={few} and {many}, expected the same: entries beyond the size may have their prior, "
                f"but may not touch the data. Mask them, as in jnp.where(jnp.arange({CAPACITY}) < size, logits, -1e9)"
            )

    def _anneal(self, size: Size, trial: int) -> Fit:
        """Return the fit of one size: tune its annealing path by a pilot run at the first trial, then anneal.

        trial: the number of the trial (evaluation) of this size; later ones anneal for longer.
        """
        began = time.perf_counter()
        key = fold_in(key_of(self.seed), *size)  # of seed and size alone
        if size not in self._tuned:
            chain = self.chain(size)
            first = effort(chain, 0)
            particles = max(FEWEST_IN_PILOT, first.islands * first.particles)
            self._tuned[size] = tune_step_lengths(chain, jax.random.fold_in(key, PILOT), particles)
        chain, profile = self._tuned[size]
        if not np.isfinite(profile.mean[-1]):
            why = f"has log p(data | latents) = {profile.mean[-1]:.3g} on average over draws of the prior"
            return failed_fit(size, self.ceiling, "prior", time.perf_counter() - began, why)
        work = effort(chain, trial)
        found = anneal(chain, jax.random.fold_in(key, trial), work, profile)
        brackets = brackets_of(found, work)
        failure = annealing_failure(size, found, brackets)
        info = FitInfo("prior", time.perf_counter() - began, 0, failure)
        return Fit(size, Evidence(-math.inf, self.ceiling), 0.0, None, info, () if failure else brackets)


def from_numpyro(function: Callable[..., Any], *, size_names: tuple[str, ...] = ("size",)) -> NumpyroModel:
    """Make a model for `lv.search` from any NumPyro model: `lv.search(lv.from_numpyro(f), data)`.

    function: `f(size, data)`, a NumPyro model. Its size is a whole number, or a tuple if `size_names` has several
        names. Its data are those given to `lv.search`, with floating arrays as float64.
    size_names: one name for each size variable.

    The evidence p(data | size) is annealed from the model's own prior to its posterior and back, by Hamiltonian Monte
    Carlo on all continuous latents. Discrete latents are summed out exactly, marked or not. This needs `pip install
    "lvsearch[enumerate]"`, and numpyro.plate or .to_event around every batch. The evidence comes with a standard error
    and stochastic bounds, in nats. Components need no relabelling.

    By default every size is compiled by itself, which takes seconds each. With a third parameter, `f(size, data,
    capacity)`, many sizes share a program. The size is then traced, and capacity is a number ≥ size that gives arrays
    their shapes. Entries beyond the size may keep their prior, which integrates to 1. They must not affect the data:
    `jnp.where(jnp.arange(capacity) < size, logits, -1e9)`. This is checked on draws of the prior.

    Sizes at which the model raises, or has no number, are reported and not ranked. For draws at the best size, run
    NumPyro's own NUTS on `f` at that size.

    Raises ValueError for anything but a function of size and data. `lv.search` raises the error that the model raises
    at size 1. It raises ValueError for models whose evidence has no meaning or cannot be computed: improper or masked
    priors, numpyro.param, discrete latents without finite support, subsampled plates. It raises ImportError if funsor
    is needed and missing.
    """
    if not callable(function):
        raise ValueError(f"got {function!r}, expected a NumPyro model, a function f(size, data)")
    try:
        inspect.signature(function).bind(1, None, **({CAPACITY: 1} if CAPACITY in parameters_of(function) else {}))
    except TypeError as error:
        raise ValueError(
            f"got a function that does not take (size, data) ({error}), expected f(size, data) or "
            f"f(size, data, {CAPACITY})"
        ) from error
    return NumpyroModel(function, size_names)


def _one_or_all(numbers: tuple[Any, ...]) -> Any:
    """Return the size as people write it: one number, or a tuple if there are several size variables."""
    return numbers[0] if len(numbers) == 1 else numbers


def _make_evaluator(model: NumpyroModel, data: Any, seed: int) -> NumpyroEvaluator:
    """Return the evaluator of a model on its data, with floating arrays in the data as float64."""
    with jax.enable_x64(True):
        return NumpyroEvaluator(model, jax.tree.map(_as_float64, data), seed)


def _as_numpy(leaf: Any) -> Any:
    """Return a JAX array as a NumPy array, and anything else unchanged."""
    return np.asarray(leaf) if isinstance(leaf, Array) else leaf


def _as_float64(leaf: Any) -> Any:
    """Return arrays of NumPy and JAX as JAX arrays, floats in float64; anything else unchanged."""
    if not isinstance(leaf, np.ndarray | Array):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in "bifu":
        return leaf
    return jnp.asarray(array, jnp.float64 if array.dtype.kind == "f" else None)


def _log_likelihoods_under_prior(chain: DensityChain, key: Array) -> np.ndarray:
    """Return log p(data | latents) at 256 draws of the prior, shape (draw,), in nats.

    chain: the annealing path of the model. key: the random key.
    """
    return np.asarray(kernel()(lambda c, k: c.log_ratio(c.init(k, MASK_DRAWS)))(chain, key))


def to_numpyro(model: Model, data: Any, size: int | Size) -> Callable[[], None]:
    """Return the model at one size as a NumPyro model without arguments: for NUTS, SVI, `numpyro.infer.log_density`.

    model: one of `lv.models`, or of your own.
    data: the data, or raw input for it, as `lv.search` takes it.
    size: a number, or one for each size variable. A model of a process is truncated at this size.

    Its density is p(data, globals, continuous locals | size) in nats, with every indicator summed out exactly.
    NumPyro's sites have the names of the model's latent variables: `globals()` by their names, `locals()` of the b-th
    batch as "name/b", with units (observations) on the leading axis. Their values are those that the family's `value`
    returns, such as weights on the simplex. Pairs are one array: mean and precision on the last axis, or the mean in
    the first row above the precision matrix.

    Each site has the support of its family and no prior of its own. Priors are in the factor "log_joint", together with
    the likelihood. So the prior cannot be sampled from this model, and `lv.from_numpyro` refuses it.

    Raises ValueError for bad data and sizes. When run, the NumPyro model raises ValueError for a plug-in form, whose
    estimates have no posterior, and for models whose indicators interact and cannot be summed out (`IBP`, `HLDA`).
    """
    require_model(model)
    size = as_size(size, len(model.size_names))
    packed = data_for(model, data).dataset()
    from lvsearch.inference.engine.reference import reference_model  # imports NumPyro

    return reference_model(model, packed, size)
