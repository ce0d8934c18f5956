"""Whether the answer hangs on the numbers in the model's priors: what the search says with each smaller and larger.

A posterior over sizes is of a model with its hyper-parameters, and these are seldom known. Here each of them is divided
and multiplied by one factor, the others left as they are, and the search is made again: an answer that stays is one
that this choice does not decide. One at a time: numbers that act together may move it further than any of them does.

The evidence of a whole variant, log Σ_k p(k) p(data | k), says which values the data speak for. It is no reason to
choose the best and forget that it was chosen: a prior on the hyper-parameter (`GammaPrior`) integrates over them all.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import dressed
from lvsearch.scrutiny.sensitivity_plot import draw_sensitivity
from lvsearch.sizing.posterior import EstimatedPosterior, estimate_posterior
from lvsearch.sizing.sizes import Size, SizePrior
from lvsearch.sizing.words import counted, had_not_finished, sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Variant:
    """What the search says with one hyper-parameter changed.

    | field | meaning |
    |---|---|
    | `hyperparameter` | where it is in the model, such as "components.rate"; "" for the search as it was |
    | `factor`, `value` | what it was multiplied by, and what it is then; of the search as it was 1 and None |
    | `sizes` | those tried whose fit is a number |
    | `log_prior`, `estimate`, `standard_error` | of each of them, the last two of its log evidence, nats |
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
        """Over the sizes tried; None where no fit was a number."""
        if not self.sizes:
            return None
        return estimate_posterior(self.sizes, *map(np.array, (self.log_prior, self.estimate, self.standard_error)))

    @property
    def log_evidence(self) -> float:
        """log Σ_k p(k) p(data | k) over the sizes tried, nats; nan where there is none."""
        return float(np.logaddexp.reduce(np.add(self.log_prior, self.estimate))) if self.sizes else float("nan")

    @property
    def name(self) -> str:
        """Such as "components.rate ÷ 3"."""
        if not self.hyperparameter:
            return "as searched"
        sign, number = ("×", self.factor) if self.factor >= 1 else ("÷", 1 / self.factor)
        return f"{self.hyperparameter} {sign} {number:g}"


@dataclass(frozen=True)
class Sensitivity:
    """What `SearchResult.sensitivity` found: `variants`, the first of them the search as it was; `size_names`, such as
    ("components",); `unfinished`: why that search had not come to its end when this was asked, None where it had."""

    variants: tuple[Variant, ...]
    size_names: tuple[str, ...]
    unfinished: str | None = None

    @property
    def answered(self) -> tuple[Variant, ...]:
        """Those whose search found an answer."""
        return tuple(variant for variant in self.variants if variant.posterior is not None)

    @property
    def best(self) -> Size:
        """The most probable size of the search as it was."""
        return _found(self.variants[0]).best

    @property
    def moved(self) -> tuple[Variant, ...]:
        """The changes under which another size is most probable."""
        return tuple(variant for variant in self.answered if _found(variant).best != self.best)

    @property
    def surviving(self) -> tuple[Size, ...]:
        """The sizes that no variant tells from its best: what can be said whichever of these priors is meant."""
        kept = [set(_found(variant).indistinguishable) for variant in self.answered]
        return tuple(sorted(set.intersection(*kept)))

    @property
    def together(self) -> tuple[Size, ...]:
        """The sizes that some variant cannot tell from its best."""
        return tuple(sorted({size for variant in self.answered for size in _found(variant).indistinguishable}))

    def describe(self) -> str:
        """The answer in a sentence or two, and one more where it is of an unfinished search."""
        changes = len(self.answered) - 1
        others = "; ".join(f"{variant.name}: {sizes_in_words([_found(variant).best])}" for variant in self.moved)
        parts = [
            f"{self._best_in_words}: most probable under {changes - len(self.moved)} of {changes} changed priors",
            f", not under {others}" if others else "",
            f". {self._kept_in_words()}",
        ]
        lost = len(self.variants) - len(self.answered)
        early = had_not_finished(self.unfinished)
        parts.append(f" {lost} of the searches found no answer." if lost else "")
        return "".join(parts) + (f" {early[0].upper()}{early[1:]}." if early else "")

    def table(self) -> pd.DataFrame:
        """A row per variant: hyperparameter, factor, value, best (size), probability_of_answer (of the size that is
        best as searched), together (those that cannot be told apart, in words), log_evidence (nats)."""
        rows = []
        for variant in self.variants:
            found = variant.posterior
            of = {} if found is None else dict(zip(found.sizes, found.probability.tolist(), strict=True))
            rows.append(
                {
                    "hyperparameter": variant.hyperparameter,
                    "factor": variant.factor,
                    "value": float("nan") if variant.value is None else variant.value,
                    "best": "" if found is None else sizes_in_words([found.best]),
                    "probability_of_answer": float("nan") if found is None else of.get(self.best, 0.0),
                    "together": "" if found is None else sizes_in_words(found.indistinguishable),
                    "log_evidence": variant.log_evidence,
                }
            )
        return pd.DataFrame(rows)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """A row of dots per variant, as large as the probability of each size; those that every variant keeps shaded.

        ValueError for several size variables, whose sizes stand on no one axis."""
        if len(self.best) > 1:
            raise ValueError(f"got {len(self.best)} size variables, expected one: read table() instead")
        axes = dressed(ax)
        write_caption(axes, self.draw(axes))
        return axes

    def draw(self, axes: "Axes") -> Caption:
        """`plot` on axes that are there, without the words, which are returned."""
        names = [variant.name for variant in self.answered]
        draw_sensitivity(
            names, [_found(variant) for variant in self.answered], self.surviving, self.size_names[0], axes
        )
        figure = axes.get_figure(root=True)
        assert figure is not None  # axes have one
        figure.draw_without_rendering()  # names take room: the caption has to know how much is left
        text = "Area: probability of each size; orange: the most probable; shaded: what every variant keeps."
        return Caption(f"{self._best_in_words} under other priors", f"{text} {self.describe()}")

    def under(self, prior: SizePrior) -> "Sensitivity":
        """The same evidence under another prior over sizes: nothing is searched again."""
        variants = (
            replace(variant, log_prior=tuple(float(prior.log_pmf(size)) for size in variant.sizes))
            for variant in self.variants
        )
        return replace(self, variants=tuple(variants))

    def to_json(self) -> dict[str, Any]:
        """As settings for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Sensitivity":
        """The inverse of `to_json`. Raises KeyError and TypeError for anything else."""
        variants = []
        for entry in stored["variants"]:
            sizes = tuple(tuple(size) for size in entry["sizes"])
            numbers = [tuple(entry[name]) for name in ("log_prior", "estimate", "standard_error")]
            if any(len(one) != len(sizes) for one in numbers):
                raise TypeError(f"{len(sizes)} sizes with other numbers of estimates")
            variants.append(Variant(entry["hyperparameter"], entry["factor"], entry["value"], sizes, *numbers))
        return cls(tuple(variants), tuple(stored["size_names"]), stored.get("unfinished"))  # new in folders

    def __str__(self) -> str:
        return f"{self.describe()}\n\n{self.table().round(3).to_string(index=False)}"

    @property
    def _best_in_words(self) -> str:
        named = zip(self.best, self.size_names, strict=True)
        return " × ".join(counted(number, name.replace("_", " ")) for number, name in named)

    def _kept_in_words(self) -> str:
        if self.surviving:
            return f"No variant rules out {sizes_in_words(self.surviving)}; some keep {sizes_in_words(self.together)}."
        return f"No size is kept by all: between them they keep {sizes_in_words(self.together)}."


def _found(variant: Variant) -> EstimatedPosterior:
    assert variant.posterior is not None  # asked of those `answered`
    return variant.posterior
