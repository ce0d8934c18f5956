"""Whether the answer depends on the model's hyper-parameters: the search is repeated with each of them changed.

A posterior over sizes is that of a model with its hyper-parameters, whose values are seldom known. Here each
hyper-parameter is divided and multiplied by one factor, with the others unchanged, and the search is made again. If the
answer stays, this choice does not decide it. Hyper-parameters are changed one at a time. Changed together, they may
change the answer more than any one of them does.

The evidence of a whole variant, log Σ_k p(k) p(data | k), shows which values the data favour. Choosing the best value
and forgetting the choice would be wrong. A prior on the hyper-parameter (`GammaPrior`) integrates over all values.

The picture shows the answers of the search under changed hyper-parameters.
"""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lvsearch.files.plain_text import visible
from lvsearch.pictures.style import Caption, draw_captioned, lay_out, palette_of
from lvsearch.sizing.posterior import EstimatedPosterior, estimate_posterior
from lvsearch.sizing.sizes import Size, SizePrior
from lvsearch.sizing.words import had_not_finished, size_with_nouns, sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Variant:
    """The answer of a search that was repeated with one hyper-parameter of the model changed.

    | field | meaning |
    |---|---|
    | `hyperparameter` | the name of the changed number, such as "components.rate"; "" for the original search |
    | `factor`, `value` | the factor of the change, and the new value; 1 and None for the original search |
    | `sizes` | sizes tried whose fit did not fail |
    | `log_prior` | log p(size) of each size, nats |
    | `estimate`, `standard_error` | estimated log evidence of each size, and its standard error, nats |
    """

    hyperparameter: str
    factor: float
    value: float | None
    sizes: tuple[Size, ...]
    log_prior: tuple[float, ...]
    estimate: tuple[float, ...]
    standard_error: tuple[float, ...]

    @cached_property
    def posterior(self) -> EstimatedPosterior | None:
        """The estimated posterior over the sizes that this variant tried.

        It is None if all fits failed, or if the prior gives none of the sizes any probability.
        """
        if not self.sizes or max(self.log_prior) == -np.inf:
            return None
        return estimate_posterior(self.sizes, *map(np.array, (self.log_prior, self.estimate, self.standard_error)))

    @property
    def log_evidence(self) -> float:
        """The log evidence of the variant, log Σ_k p(k) p(data | k) over the sizes k tried, nats; NaN without any."""
        return float(np.logaddexp.reduce(np.add(self.log_prior, self.estimate))) if self.sizes else float("nan")

    @property
    def name(self) -> str:
        """A short name of the variant, such as "components.rate ÷ 3"; "as searched" for the original search."""
        if not self.hyperparameter:
            return "as searched"
        sign, number = ("×", self.factor) if self.factor >= 1 else ("÷", 1 / self.factor)
        return f"{self.hyperparameter} {sign} {number:g}"


@dataclass(frozen=True)
class Sensitivity:
    """The result of `SearchResult.sensitivity`: the answers of the search under changed hyper-parameters (variants).

    | field | meaning |
    |---|---|
    | `variants` | the searches; the first is the original one |
    | `size_names` | the plural nouns that sizes count, such as ("components",) |
    | `unfinished` | why the original search had not finished when this was computed; None if it had |
    """

    variants: tuple[Variant, ...]
    size_names: tuple[str, ...]
    unfinished: str | None = None

    @property
    def answered(self) -> tuple[Variant, ...]:
        """The variants (searches with a changed hyper-parameter, and the original) that have a posterior over sizes."""
        return tuple(variant for variant in self.variants if variant.posterior is not None)

    @property
    def decided(self) -> tuple[Variant, ...]:
        """The variants that name a most probable size: no size that may be the best has a standard error above 3 nats.

        Where errors are larger, probabilities of sizes mean nothing.
        """
        return tuple(variant for variant in self.answered if _posterior_of(variant).is_decided)

    @property
    def is_decided(self) -> bool:
        """True if the original search names a most probable size, whose sensitivity can be asked."""
        return self.variants[0] in self.decided

    @property
    def best(self) -> Size:
        """The most probable size of the original search. It means nothing unless `is_decided`."""
        return _posterior_of(self.variants[0]).best

    @property
    def disagreeing(self) -> tuple[Variant, ...]:
        """The variants that name another most probable size than the original search; empty if that names none."""
        if not self.is_decided:
            return ()
        return tuple(variant for variant in self.decided if _posterior_of(variant).best != self.best)

    @property
    def moved(self) -> tuple[Variant, ...]:
        """The variants with another most probable size. Deprecated: it warns; call `disagreeing` instead."""
        warnings.warn("Sensitivity.moved is called Sensitivity.disagreeing now", DeprecationWarning, stacklevel=2)
        return self.disagreeing

    @property
    def surviving(self) -> tuple[Size, ...]:
        """The sizes that may be the best in every variant, increasing: the answer that holds under all priors tried."""
        kept = [set(_posterior_of(variant).indistinguishable) for variant in self.answered]
        return tuple(sorted(set.intersection(*kept)))

    @property
    def together(self) -> tuple[Size, ...]:
        """The sizes that may be the best in at least one variant, increasing."""
        return tuple(sorted({size for variant in self.answered for size in _posterior_of(variant).indistinguishable}))

    def describe(self) -> str:
        """Return in words how many variants agree with the original answer, and which sizes all variants allow.

        Variants without a single number are counted apart. If the original search has none, nothing can be compared,
        and the text says so. One more sentence follows if the search had not finished.
        """
        early = had_not_finished(self.unfinished)
        end = f" {early[0].upper()}{early[1:]}." if early else ""
        if not self.is_decided:
            return (
                "The search has no single number yet, so there is no answer whose sensitivity could be asked: the "
                f"evidence is not computed exactly enough.{end}"
            )
        changes, disagreeing = len(self.decided) - 1, self.disagreeing
        others = "; ".join(f"{each.name}: {sizes_in_words([_posterior_of(each).best])}" for each in disagreeing)
        parts = [
            f"{self._best_in_words}: most probable under {changes - len(disagreeing)} of {changes} changed priors",
            f", not under {others}" if others else "",
            f". {self._kept_in_words()}",
        ]
        open_ones, lost = len(self.answered) - len(self.decided), len(self.variants) - len(self.answered)
        parts.append(f" {open_ones} more of the searches had no single number yet." if open_ones else "")
        parts.append(f" {lost} of the searches found no answer." if lost else "")
        return "".join(parts) + end

    def table(self) -> pd.DataFrame:
        """Return a table with a row per variant, the original search first.

        - hyperparameter, factor, value: the number that was changed, the factor, and the new value
        - best: the most probable size, as text; empty if the variant has no single number yet
        - probability_of_answer: the probability of the size that is best in the original search; NaN if that search or
          the variant has no single number yet
        - together: the sizes that cannot be told apart, as text
        - log_evidence: log Σ_k p(k) p(data | k) over the sizes tried, nats
        """
        rows = []
        for variant in self.variants:
            found = variant.posterior
            best, of_answer = "", float("nan")
            if found is not None and found.is_decided:
                best = sizes_in_words([found.best])
                if self.is_decided:
                    of_answer = dict(zip(found.sizes, found.probability.tolist(), strict=True)).get(self.best, 0.0)
            rows.append(
                {
                    "hyperparameter": variant.hyperparameter,
                    "factor": variant.factor,
                    "value": float("nan") if variant.value is None else variant.value,
                    "best": best,
                    "probability_of_answer": of_answer,
                    "together": "" if found is None else sizes_in_words(found.indistinguishable),
                    "log_evidence": variant.log_evidence,
                }
            )
        return pd.DataFrame(rows)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw a row of dots per variant, as large as the probability of each size, and return the axes.

        Sizes that may be the best in every variant are shaded.

        ax: matplotlib axes; None makes a new figure.

        Raises ValueError for several size variables, which have no single axis.
        """
        if len(self.size_names) > 1:
            raise ValueError(f"got {len(self.size_names)} size variables, expected one: read table() instead")
        return draw_captioned(ax, self.draw)

    def draw(self, axes: "Axes") -> Caption:
        """Draw a row of dots per variant on existing axes, as large as the probability of each size.

        Returns a caption, without drawing it.
        """
        _draw_dots(self, axes)
        lay_out(axes)  # names take room, and the caption must know how much is left
        text = "Area: probability of each size; orange: the most probable; shaded: what every variant keeps."
        answer = self._best_in_words if self.is_decided else "No single number yet"
        return Caption(f"{answer} under other priors", f"{text} {self.describe()}")

    def with_prior(self, prior: SizePrior) -> "Sensitivity":
        """Return a copy with the same evidence under another prior over sizes. Nothing is searched again.

        Raises ValueError for a prior that gives no size of the original search any probability.
        """
        if not self.allows(prior):
            raise ValueError(
                "got a prior that gives no probability to any size that the original search tried "
                f"({sizes_in_words(self.variants[0].sizes)}); expected some: search again with this prior, and ask "
                "sensitivity() of the new result"
            )
        variants = (
            replace(variant, log_prior=tuple(float(prior.log_pmf(size)) for size in variant.sizes))
            for variant in self.variants
        )
        return replace(self, variants=tuple(variants))

    def allows(self, prior: SizePrior) -> bool:
        """Return True if a prior over sizes gives some size of the original search any probability."""
        return any(prior.log_pmf(size) > -np.inf for size in self.variants[0].sizes)

    def under(self, prior: SizePrior) -> "Sensitivity":
        """Return a copy under another prior over sizes. Deprecated: it warns; call `with_prior` instead."""
        warnings.warn("Sensitivity.under is called Sensitivity.with_prior now", DeprecationWarning, stacklevel=2)
        return self.with_prior(prior)

    def to_json(self) -> dict[str, Any]:
        """Return all fields of the result as JSON data, from which `from_json` restores it."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Sensitivity":
        """Return the result that `to_json` encoded. Raises KeyError and TypeError for anything else."""
        variants = []
        for entry in stored["variants"]:
            sizes = tuple(tuple(size) for size in entry["sizes"])
            numbers = [tuple(entry[name]) for name in ("log_prior", "estimate", "standard_error")]
            if any(len(one) != len(sizes) for one in numbers):
                raise TypeError(f"{len(sizes)} sizes with other numbers of estimates")
            variants.append(Variant(entry["hyperparameter"], entry["factor"], entry["value"], sizes, *numbers))
        return cls(tuple(variants), tuple(stored["size_names"]), stored.get("unfinished"))  # new in folders

    def __str__(self) -> str:
        """Return the result in words, followed by its table as text."""
        return f"{self.describe()}\n\n{self.table().round(3).to_string(index=False)}"

    @property
    def _best_in_words(self) -> str:
        """The most probable size of the original search, such as "3 components"."""
        return size_with_nouns(self.best, self.size_names)

    def _kept_in_words(self) -> str:
        """Return a sentence about the sizes that may be the best in every variant, and in at least one."""
        if self.surviving:
            return f"No variant rules out {sizes_in_words(self.surviving)}; some keep {sizes_in_words(self.together)}."
        return f"No size is kept by all: between them they keep {sizes_in_words(self.together)}."


def _posterior_of(variant: Variant) -> EstimatedPosterior:
    """Return the posterior over sizes of a variant, which must have one: its search found an answer."""
    assert variant.posterior is not None  # called for variants of `answered` only
    return variant.posterior


# ── the picture ───────────────────────────────────────────────────────────────────────────────────────────────────────


LARGEST = 260.0
"""The area of a dot of probability 1, in square points."""
SHOWN = 0.003
"""The smallest probability that gets a dot."""


def _draw_dots(found: Sensitivity, axes: "Axes") -> None:
    """Draw a row of dots for each variant with an answer, the first on top; areas are the probabilities of sizes.

    The most probable size is orange, unless the errors of the evidence are too large to name one. The sizes that may be
    the best in every row are shaded.
    """
    from matplotlib.ticker import MaxNLocator

    palette, names = palette_of(axes), [visible(variant.name) for variant in found.answered]
    for (size,) in found.surviving:
        axes.axvspan(size - 0.5, size + 0.5, color=palette.band, linewidth=0, zorder=0)
    shown: list[int] = []
    for row, posterior in enumerate(map(_posterior_of, found.answered)):
        sizes, probability = np.array(posterior.sizes)[:, 0], posterior.probability
        kept = probability >= SHOWN
        named = posterior.best if posterior.is_decided else None
        colours = [palette.accent if (size,) == named else palette.main for size in sizes[kept].tolist()]
        axes.scatter(
            sizes[kept], np.full(kept.sum(), row), s=LARGEST * probability[kept], c=colours, linewidths=0, zorder=3
        )
        shown += sizes[kept].tolist()
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(min(shown) - 0.8, max(shown) + 0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel(f"number of {visible(found.size_names[0].replace('_', ' '))}", parse_math=False)
