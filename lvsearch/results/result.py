"""The result of a search, for people: its numbers, in words, in pictures, audited, and in a folder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from lvsearch.comparison.similarity import HALF
from lvsearch.inference.partition_chains import RowMixture
from lvsearch.models.plain_arguments import as_path
from lvsearch.partitions.mixture_posterior import MixturePosterior, mixture_posterior
from lvsearch.recommending.asking import recommend_size
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.results import card as cards
from lvsearch.results import plots
from lvsearch.results.auditing import audit_search
from lvsearch.results.checkpoint import load_findings, save_result
from lvsearch.results.fewer_units import robust_search
from lvsearch.results.findings import Findings
from lvsearch.results.heldout import SAMPLES, held_out_comparison, require_comparable
from lvsearch.results.occupied_sizes import occupied_sizes
from lvsearch.results.persisting import persistence_of
from lvsearch.results.prior_members import prior_members
from lvsearch.results.scoring import score_sizes
from lvsearch.results.varying import vary
from lvsearch.scrutiny.audit import Audit
from lvsearch.scrutiny.other_scores import OtherScores
from lvsearch.scrutiny.persistence import PROBABILITY, Persistence
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.scrutiny.sensitivity import Sensitivity
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.partition_evaluator import PARTITIONS
from lvsearch.sizing.sizes import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class SearchResult(Findings):
    """What a search found: all of `Findings`, and what a person does with it."""

    @classmethod
    def load(cls, folder: str | Path) -> "SearchResult":
        """The result saved in a folder. FileNotFoundError or `CorruptFolderError`, saying what is wrong."""
        findings = load_findings(as_path("folder", folder))
        return cls(**{field.name: getattr(findings, field.name) for field in fields(findings)})

    # ── auditing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def audit(self, sizes: Iterable[Size | int] | None = None, *, seed: int = 0, progress: bool = True) -> Audit:
        """How far the estimated evidence is off, and whether the ranking holds, on data drawn from the model.

        Data of the shape of those searched (as many units, each as long, the same cells missing) are drawn at a few
        sizes, parameters from their priors, and searched with the same effort; the truth is bracketed from the latents
        that they were drawn with, which are an exact draw of the posterior (Grosse, Ghahramani & Adams 2015).

        sizes: by default the best and up to two others, the most probable ones that were tried. Their evidence is
        compared under a flat prior, whatever that of the search, and in nats of all the data, also where the search
        weighs them per token. seed: of the data drawn. It takes about as long as the search took for these sizes, times
        their number. `with_audit` puts it on the card.

        Raises ValueError for evidence that is not annealed (of mixtures of rows: search with evidence="annealed"),
        searches over a function, and sizes that are none.
        """
        return audit_search(self, sizes, seed=seed, progress=progress)

    def with_audit(self, audit: Audit) -> "SearchResult":
        """The same result with an audit on its card, in its report and in its folder. A search that goes on begins
        without one."""
        return replace(self, scrutiny=replace(self.scrutiny, audit=audit))

    # ── where the model is not true ─────────────────────────────────────────────────────────────────────────────────

    def robustness(
        self,
        *,
        orders: int = 8,
        most: int = 500,
        max_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Robustness:
        """How the answer depends on how much data it is asked of: what the first m units say, for every m up to all.

        Where the model is not quite true, many data ask for components that mend it; few cannot. `Robustness` says what
        is read off that, and what is not claimed. orders: random orders of the units, over which the logarithms of the
        evidence are averaged. most: units that come at most, drawn anew for each order where there are more. max_size:
        the largest size looked at, by default two beyond what the search could not tell from the best. It takes a pass
        over the data for every order and size, some ten sweeps' work each. `lv.search(…, robustness=True)` asks this
        when it has finished; `with_robustness` puts it on the card.

        Raises ValueError for evidence that is not annealed, searches over a function or over several size variables,
        and models other than `FiniteMixture`, `IndependentNormalMixture`, `MixtureOfUnigrams` and `LDA` with given
        concentrations.
        """
        return robust_search(self, orders, most, max_size, seed=seed, progress=progress)

    def with_robustness(self, robustness: Robustness) -> "SearchResult":
        """The same result with what fewer units say on its card and page and in its folder. A search that goes on
        begins without it."""
        return replace(self, scrutiny=replace(self.scrutiny, robustness=robustness))

    def sensitivity(
        self, names: Sequence[str] | str | None = None, *, factor: float | int = 3.0, progress: bool = True
    ) -> Sensitivity:
        """Whether the answer hangs on the numbers in the model's priors: the search again with each of them smaller and
        larger, the others as they are.

        names: of the hyper-parameters to change, such as "concentration" or "components.rate"; by default every
        positive number of the model, but those given column by column. factor: what each is divided by and multiplied
        with. It takes two searches for each, with the settings and the seed of this one; `Sensitivity` says what is
        read off. For the prior over sizes nothing is searched again: `with_prior`. `with_sensitivity` puts it on the
        card.

        Raises ValueError for evidence that is not annealed (of mixtures of rows: search with evidence="annealed"),
        searches over a function, a factor of at most 1, and names of no hyper-parameter.
        """
        return vary(self, names, factor, progress=progress)

    def with_sensitivity(self, sensitivity: Sensitivity) -> "SearchResult":
        """The same result with what other priors say on its card and page, in its report and in its folder. A search
        that goes on begins without it."""
        return replace(self, scrutiny=replace(self.scrutiny, sensitivity=sensitivity))

    # ── a number to act on ──────────────────────────────────────────────────────────────────────────────────────────

    def recommend(self, test: Any = None, *, progress: bool = True) -> Recommendation:
        """The smallest size that predicts new units as well as any: its rule, and the table behind it.

        test: units to judge sizes by, by default those that the search kept (`held_out`); without any, parts of the
        training data are left out one at a time. Sizes up to the search's largest are fitted, none of them annealed:
        a minute or two on 100,000 words. `with_recommended` keeps it as `recommended`. Raises ValueError for searches
        over a function, over several size variables and at estimated parameters, and for test data on other axes.
        """
        given = self.held_out if test is None else require_comparable(self._training().like_this(test))
        return recommend_size(self.evaluator, self.training, given, self.settings, progress=progress)

    def with_recommended(self, recommended: Recommendation) -> "SearchResult":
        """The same result with a recommended size beside its answer and in its folder. A search that goes on begins
        without it."""
        return replace(self, scrutiny=replace(self.scrutiny, recommended=recommended))

    # ── which components exist ──────────────────────────────────────────────────────────────────────────────────────

    def persistence(
        self,
        size: Size | int | None = None,
        *,
        bootstraps: int = 20,
        starts: int = 10,
        threshold: float | int = HALF,
        seed: int = 0,
        progress: bool = True,
    ) -> Persistence:
        """Which components exist, and how surely: each of one size's fit is looked for in other fits.

        size: of the fit whose components are looked for, by default the best. bootstraps: samples of as many units,
        drawn with replacement, each fitted from a start of its own at a size drawn from the posterior over sizes: how
        often a component comes back there is its probability. starts: fits from scratch of the same data at the same
        size, and the fits of the other sizes that hold a hundredth of the posterior, say which of these it hangs on.
        threshold: similarity of members, corrected for chance, above which a component exists in another fit; above ½
        no two of the other fit can claim the same one. seed: of samples and starts.

        A component that persists need not be true, only reproducible: `lvsearch.scrutiny.persistence`. Takes a fit for
        each, none of them annealed. `with_persistence` puts it on the card.

        Raises ValueError for searches over a function, models of several sizes or without components, a single unit,
        and counts that are too small.
        """
        return persistence_of(
            self, size, bootstraps=bootstraps, starts=starts, threshold=threshold, seed=seed, progress=progress
        )

    def with_persistence(self, persistence: Persistence) -> "SearchResult":
        """The same result with the persistence of its components on its card, in its report and in its folder. A search
        that goes on begins without it."""
        return replace(self, scrutiny=replace(self.scrutiny, persistence=persistence))

    def stable(self, probability: float | int = PROBABILITY) -> pd.DataFrame:
        """The components that exist with at least this probability: rows of `Persistence.table`.

        Of the persistence that `with_persistence` put here, else of one computed now with the defaults. ValueError as
        for `persistence`, and for no probability.
        """
        if not 0 <= probability <= 1:
            raise ValueError(f"got probability={probability}, expected a number from 0 to 1")
        return (self.scrutiny.persistence or self.persistence()).stable(probability)

    # ── other data ──────────────────────────────────────────────────────────────────────────────────────────────────

    def compare_held_out(self, test: Any = None, *, samples: int = SAMPLES, seed: int = 0) -> pd.DataFrame:
        """What each kept size makes of units that the search did not see, paired unit by unit: a second opinion.

        test: by default what the search kept (`held_out`). Columns and errors as `heldout.held_out_comparison` says;
        `plot_held_out` draws it. ValueError where there is neither.
        """
        test = self.held_out if test is None else test
        if test is None:
            raise ValueError("got no test data, and the search kept none: pass them here or to lv.search(held_out=)")
        return held_out_comparison(self, test, samples=samples, seed=seed)

    def other_scores(
        self,
        test: Any = None,
        *,
        sizes: Iterable[Size | int] | None = None,
        draws: int = 20,
        samples: int = 3,
        n_words: int = 10,
        seed: int = 0,
        progress: bool = True,
    ) -> OtherScores:
        """What other libraries' scores of a number of topics say of the fits of this search, beside its posterior.

        BIC; scikit-learn's perplexity; gensim's log_perplexity and the likelihood, both of held-out documents; UMass
        and NPMI coherence; ldatuning's Griffiths2004, CaoJuan2009, Arun2010 and Deveaud2014; stability. `OtherScores`
        holds each of them at each size, the size that it names, whether the posterior leaves that one open, and what
        it measures. It does not choose.

        test: held-out documents, by default those that the search kept; without any, no score of them. sizes: by
        default those that the search tried; a size whose fit it has not kept (`keep`) is fitted again, and one that it
        has not tried has scores and no probability. draws: of a Gibbs
        chain, for Griffiths2004, five sweeps apart after a hundred; samples: of four fifths of the documents, each
        fitted anew, for stability. Both take long where documents are many: 0 leaves the score out. n_words: of each
        topic, for coherence, or all where there are no more. seed: of draws and samples.

        Raises ValueError for evidence that is not annealed, models other than `LDA` with numbers for its
        concentrations, and counts that are too small.
        """
        return score_sizes(
            self, test, sizes, draws=draws, samples=samples, n_words=n_words, seed=seed, progress=progress
        )

    def prior_members(self) -> pd.DataFrame:
        """Under a prior that is a `sizes.Mixture`, the posterior over its members: which of them the data speak for.

        A row per member: prior (in words), weight, probability and its 5 % and 95 % points over the standard errors,
        of the sizes tried; under plug-in evidence probability_lower and probability_upper alone, proved of these fits.
        Raises ValueError for another prior.
        """
        return prior_members(self)

    def mixture_posterior(
        self, *, precision: float | int = 0.01, sweeps: int = 4096, seed: int = 0
    ) -> MixturePosterior:
        """Ask the same question of chains over partitions of the rows: the posterior of the number of components K and
        of the number K₊ that some row is in, for all sizes at once, without the fits and the evidence of this search.

        The two answers are independent of each other and should agree within their errors. Model, data, prior and
        largest size are those of the search. precision, sweeps, seed: as for `lv.mixture_posterior`.

        Raises ValueError for models other than mixtures of rows whose parameters are integrated out, and for evidence
        other than the marginal one of the data as they are.
        """
        if (
            not isinstance(self.evaluator, ModelEvaluator)
            or self.settings.evidence not in ("marginal", PARTITIONS)
            or self.settings.per_token
        ):
            raise ValueError(
                f'got a search with evidence="{self.settings.evidence}" and per_token={self.settings.per_token}, '
                'expected one of a mixture of rows with evidence="marginal" and without per_token: chains draw from '
                "the posterior of the data as they are"
            )
        largest = None if self.settings.max_size is None else self.settings.max_size[0]
        return mixture_posterior(
            cast(RowMixture, self.evaluator.base_model),
            self.training,
            prior=self.prior,
            max_size=largest,
            precision=precision,
            sweeps=sweeps,
            seed=seed,
        )

    def occupied_under_fits(self, *, draws: int = 2000, seed: int = 0) -> pd.DataFrame:
        """How many components some unit is in, K₊, beside how many the model has, K: a row per number of components.

        Columns: components, size_probability (of K = components), occupied_under_fits (of K₊ = components). A model
        may have components that no unit is in, most of all where concentrations are small or `dynamic`. Given K, K₊ is
        counted over `draws` draws from the mean-field fit of that size, which is narrower than the posterior; sizes
        that are not kept are fitted again, those below half a per cent left out. For mixtures of rows
        `mixture_posterior` has the posterior of K₊ itself.

        Raises ValueError for several size variables, plug-in evidence, and units that are not in one component each.
        """
        return occupied_sizes(self, draws, seed)

    # ── keeping and showing ─────────────────────────────────────────────────────────────────────────────────────────

    def save(self, folder: str | Path) -> None:
        """Write the result to a new folder (`lv.load`, `lv.resume`). FileExistsError where something is there."""
        save_result(self, Path(folder))

    def plot_bounds(self, ax: "Axes | None" = None) -> "Axes":
        """Evidence against size, with what is proved and what is estimated."""
        return plots.plot_bounds(self, ax)

    def plot_held_out(self, test: Any = None, ax: "Axes | None" = None) -> "Axes":
        """`compare_held_out` as a picture: difference to the most probable size, with its standard error."""
        return plots.plot_held_out(self.compare_held_out(test), ax)

    def plot_posterior(self, ax: "Axes | None" = None) -> "Axes":
        """Probability of each size with error bars."""
        return plots.plot_posterior(self, ax)

    def plot_lattice(self, ax: "Axes | None" = None) -> "Axes":
        """Probability over two size variables: a square for each size, those tried marked, its number where it counts.

        Raises ValueError for another number of size variables."""
        return plots.plot_lattice(self, ax)

    def plot_component_map(
        self, size: Size | int, larger: Size | int | None = None, ax: "Axes | None" = None
    ) -> "Axes":
        """`component_map` as a picture: what split and what merged between two sizes. Arguments and errors as there."""
        return plots.plot_component_map(self, size, larger, ax)

    def plot_progress(self, ax: "Axes | None" = None) -> "Axes":
        """The evidence against the time spent."""
        return plots.plot_progress(self, ax)

    def summary(self) -> str:
        """The answer in a few lines of text."""
        return cards.summary(self)

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return cards.card(self)
