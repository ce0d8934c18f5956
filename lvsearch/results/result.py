"""The class `SearchResult`: the result of a search, with tables, summaries, pictures, checks and storage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from lvsearch.comparison.similarity import HALF
from lvsearch.fitted.kinds import component_table
from lvsearch.fitted.mixture_draws import MixtureDraws
from lvsearch.fitted.mixture_posterior import MixturePosterior, members_from_chains, mixture_posterior
from lvsearch.fitted.partition_draws import Partition
from lvsearch.fitted.topics import ArrangedTopics, FittedTopics
from lvsearch.models.plain_arguments import as_path, real_number, shortened_repr
from lvsearch.recommending.evaluator import recommend_size
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.results import card as cards
from lvsearch.results import plots
from lvsearch.results.checkpoint import load_findings, save_result
from lvsearch.results.fewer_units import robust_search
from lvsearch.results.findings import SAMPLES, Findings
from lvsearch.results.heldout import held_out_comparison, require_comparable
from lvsearch.results.persisting import persistence_of
from lvsearch.results.repeated_searches import audit_search, search_with_more, vary
from lvsearch.results.scoring import likelihood_ratio_of_one_more, score_sizes
from lvsearch.scrutiny.audit import Audit
from lvsearch.scrutiny.other_scores import LikelihoodRatioTest, OtherScores
from lvsearch.scrutiny.persistence import PROBABILITY, Persistence
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.scrutiny.sensitivity import Sensitivity
from lvsearch.searching.allocation_evaluator import PARTITIONS
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.posterior import estimated_members, proved_members
from lvsearch.sizing.sizes import Mixture, Size, SizePrior
from lvsearch.sizing.words import size_text
from lvsearch.tables.table_files import write_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OCCUPIED_FROM = 0.005
"""The smallest posterior probability of a size that `occupied_under_fits` includes; sizes included are reweighted to
sum to 1."""


@dataclass(frozen=True, repr=False)
class SearchResult(Findings):
    """The result of a search, with methods for tables, pictures, checks of the answer and storage.

    In a notebook it shows a card, elsewhere a few lines of text. The answer is `best_size`. `posterior()` is the table
    of all sizes, `best` the fitted model, and `predict(test)` scores new data. `audit`, `robustness`, `sensitivity` and
    `persistence` check the answer; `save` keeps the result. Fields and tables are documented in `Findings`.

    ```python
    result = lv.search(lv.models.LDA(), corpus, seed=0)
    result.best_size  # such as (12,)
    result.posterior()  # a DataFrame with a row per size
    result.best.topics()
    ```
    """

    @classmethod
    def load(cls, folder: str | Path) -> "SearchResult":
        """Return the result that `save` wrote to a folder.

        Raises FileNotFoundError if there is no such folder, and `CorruptFolderError`, with the reason, if it is
        damaged.
        """
        findings = load_findings(as_path("folder", folder))
        return cls(**{field.name: getattr(findings, field.name) for field in fields(findings)})

    # ── auditing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def audit(self, sizes: Iterable[Size | int] | None = None, *, seed: int = 0, progress: bool = True) -> Audit:
        """Check the search on simulated data: how far off is the estimated evidence, and is the ranking of sizes right?

        Data of the same shape (as many units, each as long, the same cells missing) are drawn at a few sizes, with
        parameters from their priors. They are searched with the same effort as the real data. Their log evidence is
        bracketed from the latent variables that they were drawn with, which are an exact draw from the posterior.

        sizes: the sizes to draw data at; by default the best and up to two others, the most probable ones that were
            tried.
        seed: the seed of the data that are drawn.
        progress: show a progress bar.

        Evidence is compared under a flat prior over `sizes`, and in nats of all the data, also if the search weighs it
        per token. An audit takes about as long as the search took for these sizes, times their number. `with_audit`
        puts it on the card.

        Returns an `Audit`.
        Raises ValueError for evidence that is not annealed (of mixtures of rows and block models: search with
        evidence="annealed"), searches over a plain function, and invalid sizes.
        Source: Grosse, Ghahramani & Adams (2015).
        """
        return audit_search(self, sizes, seed=seed, progress=progress)

    def with_audit(self, audit: Audit) -> "SearchResult":
        """Return a copy of the result with an audit on its card, in its report and in its folder.

        A search that is resumed begins without the audit.
        """
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
        """Measure how the answer depends on the amount of data: the posterior from the first m units, for growing m.

        A unit is a document or row. If the model is not quite true, many data ask for components that repair it, and
        few data cannot. `Robustness` documents the answer that is read off, and what is not claimed.

        orders: the number of random orders of the units; the log evidence is averaged over them.
        most: the largest number of units; if there are more, units are drawn anew for each order.
        max_size: the largest size; by default two beyond the sizes that the search could not tell from the best.
        seed: the seed of orders and sampling paths.
        progress: show a progress bar.

        For every order and size it takes a pass over the data with the work of about ten sweeps. `lv.search(…,
        robustness=True)` computes it when the search has finished. `with_robustness` puts it on the card.

        Returns a `Robustness`.
        Raises ValueError for evidence that is not annealed, and for searches over a function or several size variables.
        Also for models other than `FiniteMixture`, `TiedMixture`, `FactorAnalyzerMixture`, `IndependentNormalMixture`,
        `MixtureOfUnigrams`, and `LDA` with given concentrations.
        """
        return robust_search(self, orders, most, max_size, seed=seed, progress=progress)

    def with_robustness(self, robustness: Robustness) -> "SearchResult":
        """Return a copy of the result with a robustness analysis on its card and page and in its folder.

        A search that is resumed begins without the analysis.
        """
        return replace(self, scrutiny=replace(self.scrutiny, robustness=robustness))

    def sensitivity(
        self, names: Sequence[str] | str | None = None, *, factor: float | int = 3.0, progress: bool = True
    ) -> Sensitivity:
        """Check whether the answer depends on the model's hyper-parameters, by searching again with changed ones.

        Each number in the model's priors is made smaller and larger, one at a time; the others stay as they are.

        names: hyper-parameters to change, such as "concentration" or "components.rate"; by default every positive
            number in the model's priors, except those given column by column.
        factor: the number, above 1, by which each hyper-parameter is divided and multiplied.
        progress: show a progress bar.

        It takes two searches per number, with the settings and the seed of this one. For another prior over sizes no
        search is needed: use `with_prior`. `with_sensitivity` puts it on the card.

        Returns a `Sensitivity`, with a row for each changed hyper-parameter.
        Raises ValueError for evidence that is not annealed (of mixtures of rows and block models: search with
        evidence="annealed"), searches over a plain function, a factor of at most 1, and unknown names.
        """
        return vary(self, names, factor, progress=progress)

    def with_sensitivity(self, sensitivity: Sensitivity) -> "SearchResult":
        """Return a copy of the result with its sensitivity to priors on its card and page, in its report and folder.

        A search that is resumed begins without the sensitivity.
        """
        return replace(self, scrutiny=replace(self.scrutiny, sensitivity=sensitivity))

    # ── more data ───────────────────────────────────────────────────────────────────────────────────────────────────

    def update(
        self,
        new: Any,
        *,
        prior: SizePrior | None = None,
        max_size: Size | int | None = None,
        seed: int | None = None,
        seconds: float | int | None = None,
        progress: bool = True,
    ) -> "SearchResult":
        """Ask "how many" again of the data and new units together, beginning where this search ended.

        The best size of this search and its two neighbours are tried first (after size 1, with which every search
        begins). The fit of the best size begins at this search's fit. The first fit of any other size is the better of
        two: one from this search's fits, and one that begins as in any search. Chains over partitions compare all sizes
        at once and begin anew; a search by prediction does so too, as its fits leave out parts of the data.

        Components of new fits have the numbers of those of `best` that they are most similar to, and further ones come
        last. So if there is one topic more, the tables of `best` and of the new `best` line up but for the last row.

        new: further units, as `joined` of the data takes them, such as a corpus, texts, or rows over the same columns.
            Words that are new come after the old ones.
        prior: the prior over sizes; by default that of this search.
        max_size: the largest size to try; by default that of this search.
        seed: seed of all random numbers; by default that of this search.
        seconds: the time after which this call stops.
        progress: show a progress bar.

        Evidence and all further settings are those of this search. Held-out data stay held out. Checks of this result,
        such as an audit, are not of the new one.

        Returns a new `SearchResult`, of all units. `save` keeps it, and `lv.resume` continues it if it was stopped.
        Raises ValueError for searches over a plain function, for data that cannot be joined (corpora and points can),
        for units of another kind, and for bad arguments.
        """
        return search_with_more(
            self, new, prior=prior, max_size=max_size, seed=seed, seconds=seconds, progress=progress
        )

    # ── a number to act on ──────────────────────────────────────────────────────────────────────────────────────────

    def recommend(self, test: Any = None, *, progress: bool = True) -> Recommendation:
        """Return the smallest size that predicts new units as well as any, with the rule and the table behind it.

        test: documents or rows on which sizes are judged; by default the held-out data that the search kept
            (`held_out`). Without held-out data, parts of the training data are left out one at a time.
        progress: show a progress bar.

        Sizes up to the search's largest are fitted without annealing. This takes two to three minutes on 100,000 words.
        `with_recommended` keeps the answer as `recommended`.

        Returns a `Recommendation`.
        Raises ValueError for searches over a plain function, over several size variables or at estimated parameters,
        and for test data with other words or columns.
        """
        given = self.held_out if test is None else require_comparable(self._training().like_this(test))
        return recommend_size(self.evaluator, self.training, given, self.settings, progress=progress)

    def with_recommended(self, recommended: Recommendation) -> "SearchResult":
        """Return a copy of the result with a recommended size beside its answer and in its folder.

        A search that is resumed begins without the recommendation.
        """
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
        """Return the probability that each component exists: the components of one fit are looked for in other fits.

        The other fits are of bootstrap samples, from other starts, and at other sizes. How often a component comes back
        in the bootstrap samples is its probability. The other two say whether it depends on the start or on the size.

        size: the size of the fit whose components are looked for; by default the best size.
        bootstraps: the number of bootstrap samples of the units, drawn with replacement. Each is fitted from its own
            start, at a size drawn from the posterior over sizes.
        starts: the number of fits of the same data at the same size from other starts.
        threshold: the similarity, corrected for chance, of the observations in two components (their members), above
            which a component counts as found again. Above ½ no two components of the other fit can match the same one.
        seed: the seed of samples and starts.
        progress: show a progress bar.

        A component that persists need not be true, only reproducible (`lvsearch.scrutiny.persistence`). Each sample,
        start and size takes one fit, without annealing. `with_persistence` puts the result on the card.

        Returns a `Persistence`.
        Raises ValueError for searches over a plain function, models with several size variables or without components,
        a single unit, and counts that are too small.
        """
        return persistence_of(
            self, size, bootstraps=bootstraps, starts=starts, threshold=threshold, seed=seed, progress=progress
        )

    def with_persistence(self, persistence: Persistence) -> "SearchResult":
        """Return a copy of the result with the persistence of its components on its card, in its report and folder.

        A search that is resumed begins without the persistence.
        """
        return replace(self, scrutiny=replace(self.scrutiny, persistence=persistence))

    def stable(self, probability: float | int = PROBABILITY) -> pd.DataFrame:
        """Return the components that come back in fits of resampled data with at least this probability, as a table.

        The rows are those of `Persistence.table`. The persistence is the one that `with_persistence` added. If there is
        none, it is computed now with the defaults of `persistence`.

        probability: the smallest probability, from 0 to 1.

        Raises ValueError for a number that is no probability. Also for searches over a plain function, models with
        several size variables or without components, and a single unit.
        """
        probability = real_number("probability", probability, least=0, most=1)
        return (self.scrutiny.persistence or self.persistence()).stable(probability)

    # ── topics as a person reads them ───────────────────────────────────────────────────────────────────────────────

    def with_topics(self, topics: ArrangedTopics) -> "SearchResult":
        """Return a copy of the result whose report, slide and tables show the topics of the best size so arranged.

        topics: topics of `best`, with names of your own, merged, or without some:
            `result.with_topics(result.best.renamed({0: "sport"}).without([4]))`.

        The answer stays what it is: merged topics do not change how many the data support. The picture of what split
        and merged between two sizes shows the fits as they are. A search that is resumed begins without the
        arrangement.

        Raises ValueError for anything but arranged topics of `best`.
        """
        if not isinstance(topics, ArrangedTopics):
            raise ValueError(
                f"got {shortened_repr(topics)}, expected topics that were arranged, such as "
                'result.best.renamed({0: "sport"})'
            )
        best = self.best
        if not isinstance(best, FittedTopics) or not best.topic_words().equals(topics.fit.topic_words()):
            raise ValueError(
                f"got topics of another fit, expected those of result.best, of size {size_text(self.best_size)}"
            )
        return replace(self, arrangement=topics.arrangement)

    # ── other data ──────────────────────────────────────────────────────────────────────────────────────────────────

    def compare_held_out(self, test: Any = None, *, samples: int = SAMPLES, seed: int = 0) -> pd.DataFrame:
        """Return how well each size predicts held-out units, as a table with a row per size whose fit was kept.

        It is a second opinion on the size, which uses neither the prior nor the evidence of the search.

        test: documents or rows that the search did not see, with the words or columns of the training data; by default
            the held-out data that the search kept (`held_out`).
        samples: the number of importance samples per unit, for models whose likelihood needs sampling.
        seed: the seed of these samples.

        Columns are the size, `log_p_per_token` (or `_per_cell`), `monte_carlo_error`, `difference_per_token` to the
        most probable size, `standard_error` of this difference, and `estimator`. Scores are in nats per token or cell.
        `lvsearch.results.heldout.held_out_comparison` documents them, and `plot_held_out` draws them.

        The comparison on the search's own held-out data, with the defaults, is kept: `print(result)` then shows it.

        Raises ValueError for no test data, fewer than two test units, and a search over a plain function.
        """
        compared = self.held_out if test is None else test
        if compared is None:
            raise ValueError("got no test data, and the search kept none: pass them here or to lv.search(held_out=)")
        if test is None and (samples, seed) == (SAMPLES, 0):
            return self._held_out_table.copy()
        return held_out_comparison(self, compared, samples=samples, seed=seed)

    @cached_property
    def _held_out_table(self) -> pd.DataFrame:
        """The comparison of sizes on the held-out data that the search kept, which are not None."""
        return held_out_comparison(self, self.held_out, samples=SAMPLES, seed=0)

    @property
    def _known_held_out_table(self) -> pd.DataFrame | None:
        """The comparison on the search's held-out data if it was computed already; None otherwise."""
        return self.__dict__.get("_held_out_table")

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
        """Return scores that others use to choose a number of topics or components, for the fits of this search.

        Of mixtures of rows the scores are BIC, ICL, adjusted BIC, CAIC, AIC, relative entropy, and the likelihood of
        held-out rows. Of LDA they are BIC; scikit-learn's perplexity; gensim's log_perplexity and the likelihood, both
        of held-out documents; UMass and NPMI coherence; ldatuning's Griffiths2004, CaoJuan2009, Arun2010 and
        Deveaud2014; and stability. `OtherScores` holds each of them at each size, the size that it selects, whether the
        posterior leaves this size open, and what the score measures. It does not choose.

        test: held-out documents or rows; by default the ones that the search kept. Without any, scores of held-out data
            are left out.
        sizes: the sizes to score; by default the sizes that the search tried. After chains over partitions, which fit
            few, it is all sizes up to one beyond the largest that was fitted. A size whose fit was not kept (`keep`) is
            fitted again. A size that was not tried has scores and no probability.
        draws: the number of draws of a Gibbs chain for Griffiths2004, five sweeps apart after a hundred; 0 leaves the
            score out.
        samples: the number of samples of four fifths of the documents, each fitted anew, for stability; 0 leaves the
            score out.
        n_words: the number of words of each topic for coherence.
        seed: the seed of draws and samples.
        progress: show a progress bar.

        `draws`, `samples`, `n_words` and `seed` are for topics alone. Raises ValueError for models other than mixtures
        of rows and `LDA` with numbers for its concentrations, for evidence of LDA that is not annealed, and for counts
        that are too small.
        """
        return score_sizes(
            self, test, sizes, draws=draws, samples=samples, n_words=n_words, seed=seed, progress=progress
        )

    def likelihood_ratio_test(
        self, size: Size | int | None = None, *, samples: int = 99, seed: int = 0, progress: bool = True
    ) -> LikelihoodRatioTest:
        """Return the bootstrap likelihood-ratio test of K components of a mixture of rows against K + 1.

        The statistic is twice the gain in log-likelihood by one more component. Its distribution under K components has
        no closed form, so tables are drawn from the fit with K components, and both sizes are fitted to each of them.
        The test is what poLCA's users and mclust (`mclustBootstrapLRT`) report. It answers another question than the
        posterior: whether K can be rejected, not how probable it is. If K was chosen by the same data, as the best size
        was, the p-value is not calibrated.

        size: K; by default the best size.
        samples: the number of tables that are drawn; the p-value is a multiple of 1 / (samples + 1).
        seed: the seed of the tables and of the starts of fits.
        progress: show a progress bar.

        The data and each table take two fits, each from one random start. Log-likelihoods are at the means of the
        variational fit, not at a maximum, which Gaussians of free variance do not have; so statistics and p-values
        differ from those of mclust and poLCA. A loss counts as no gain.

        Returns a `LikelihoodRatioTest`. Raises ValueError for models other than mixtures of rows, and for no samples.
        Source: McLachlan (1987), *On bootstrapping the likelihood ratio test statistic for the number of components in
        a normal mixture*.
        """
        return likelihood_ratio_of_one_more(self, size, samples=samples, seed=seed, progress=progress)

    def prior_members(self) -> pd.DataFrame:
        """Return the posterior probability of each prior in a `sizes.Mixture` prior, as a table with a row per member.

        A member is one of the priors over sizes that the mixture weighs.

        Returns a row per member: `prior` (in words), `weight`, `probability` and its 5 % and 95 % points over the
        standard errors of the sizes tried. Under plug-in evidence there are only `probability_lower` and
        `probability_upper`, proved for the parameters that were fitted.
        Raises ValueError for a prior that is not a mixture.
        """
        prior = self.prior
        if not isinstance(prior, Mixture):
            raise ValueError(f"got the prior {prior.describe()}, expected a lv.sizes.Mixture of several")
        if self.evaluator.nested:
            found = proved_members(prior, self.search)
        elif self.partitions is not None and self.state.partitions is not None:
            chains = self.state.partitions
            found = members_from_chains(prior, chains.run.trace(), chains.log_prior)
        else:
            sizes, _, estimate, error = self.estimates()
            found = estimated_members(prior, sizes, estimate, error)
        table = pd.DataFrame({"prior": found.members, "weight": found.weight})
        if found.probability is not None:
            table["probability"] = found.probability
        return table.assign(probability_lower=found.probability_lower, probability_upper=found.probability_upper)

    def mixture_posterior(
        self,
        *,
        precision: float | int = 0.01,
        sweeps: int = 4096,
        fewest_sweeps: int | None = None,
        seed: int = 0,
    ) -> MixturePosterior:
        """Return the posterior of the number of components from chains over partitions of the rows, as a check.

        One run of chains gives the posterior of K, the number of components, and of K₊, the number that some row is in,
        for all sizes at once. It uses none of the fits and none of the evidence of this search. So the two answers are
        independent and should agree within their errors. Model, data, prior and largest size are those of the search.

        precision: the Monte Carlo error of a probability that is small enough; chains run until they reach it.
        sweeps: the largest number of sweeps per chain.
        fewest_sweeps: the smallest number of sweeps per chain, for more independent draws.
        seed: the seed of the chains.

        `lv.mixture_posterior` has the defaults: chains are lengthened until R-hat is at most 1.02.

        Returns a `MixturePosterior`.
        For features of rows (`IBP`), K is the number of features that can be used, K₊ of those that some row has. For
        block models, both are pairs: of row clusters and of column clusters.
        Raises ValueError for models other than these and mixtures of rows whose parameters are integrated out, and for
        evidence other than the marginal one of the data as they are.
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
        return mixture_posterior(
            self.evaluator.base_model,
            self.training,
            prior=self.prior,
            max_size=self.settings.max_size,
            precision=precision,
            sweeps=sweeps,
            fewest_sweeps=fewest_sweeps,
            seed=seed,
        )

    # ── which rows belong together ──────────────────────────────────────────────────────────────────────────────────

    def coclustering(self, rows: Sequence[Any] | None = None) -> pd.DataFrame:
        """Return how probable it is that two rows are in one cluster, as a table (row, row) with 1 on its diagonal.

        It is averaged over all numbers of components, in draws of chains over partitions. `plot_coclustering` draws it.

        rows: names of the rows to compare; by default all rows.

        Raises ValueError if the search was not of a mixture of rows by chains over partitions, if the prior was changed
        afterwards, for more than 5,000 rows, and for unknown or repeated names.
        """
        return self._drawn().coclustering(rows)

    def partition(self, loss: str = "vi") -> Partition:
        """Return the partition of the rows that is closest to the draws on average, and its 95 % credible ball.

        Labels of a fit belong to one number of components. This partition stands for draws of all numbers, and need not
        have as many clusters as `best_size`.

        loss: "vi", the variation of information, or "binder", the share of pairs that are together in one partition but
            not in the other.

        Returns a `Partition` with `labels`, `certainty` and `table()`.
        Raises ValueError for another loss, if the search was not of a mixture of rows by chains over partitions, and if
        the prior was changed afterwards.
        Source: Wade & Ghahramani (2018), *Bayesian cluster analysis: point estimation and credible balls*.
        """
        return self._drawn().partition(loss)

    def draws(self, draws: int = 1000, seed: int = 0) -> MixtureDraws:
        """Return draws of everything in a mixture: the number of components, who is where, weights and parameters.

        They come from the posterior over all numbers of components, where a fit has one number and one mode. They have
        densities with bands, predictions, parameters with intervals, and `to_arviz()`.

        draws: about how many: equally many of each chain.
        seed: decides the random numbers.

        Raises ValueError if the search was not of a mixture of rows by chains over partitions, and as `partition`.
        Source: Miller & Harrison (2018), §7.
        """
        return self._drawn().draws(draws, seed)

    def plot_coclustering(self, loss: str = "vi", ax: "Axes | None" = None) -> "Axes":
        """Draw how probable it is that two rows are in one cluster, and return the axes.

        loss: "vi" or "binder", the loss of the partition whose order the rows follow.
        ax: matplotlib axes; None makes a new figure.

        Raises ValueError as `partition` does.
        """
        return plots.plot_coclustering(self._drawn(), loss, ax)

    def _drawn(self) -> MixturePosterior:
        """Return the posterior of all sizes from chains over partitions. Raises ValueError without such chains."""
        if self.partitions is None:
            raise ValueError(
                f'got a search with evidence="{self.settings.evidence}", expected one of a mixture of rows by chains '
                'over partitions, evidence="partitions": other searches draw none. lv.mixture_posterior(model, data) '
                "draws some"
            )
        return self.partitions

    def occupied_under_fits(self, *, draws: int = 2000, seed: int = 0) -> pd.DataFrame:
        """Return the distribution of the number of occupied components, K₊, beside that of all components, K.

        A component is occupied if at least one unit (document, row) is in it. A model may have empty components, most
        of all if concentrations are small or `dynamic`. Given K, K₊ is counted in draws from the mean-field fit of size
        K, which is narrower than the posterior. For mixtures of rows, `mixture_posterior` has the posterior of K₊
        itself.

        draws: the number of draws of all units' components per size.
        seed: the seed of the draws.

        Returns a row per number of components: `components`, `size_probability` (of K = components),
        `occupied_under_fits` (of K₊ = components). Sizes that were not kept are fitted again; those below half a per
        cent are left out.
        Raises ValueError for several size variables, plug-in evidence, and units that are not in one component each.
        """
        if len(self.evaluator.size_names) != 1 or self.evaluator.nested:
            raise ValueError(
                "got a search over several size variables, or of plug-in evidence, expected one size variable and "
                'evidence="marginal" or "bound": others have no table of occupied components'
            )
        table = self.posterior("estimate").set_index("size").loc[:, "probability"]
        kept = table.loc[table >= OCCUPIED_FROM]
        each = {
            size: self.fit(int(size)).occupied_under_fit(draws=draws, seed=seed).set_index("size")["probability"]
            for size in kept.index
        }
        occupied = pd.DataFrame(each).fillna(0.0) @ (kept / kept.sum())
        beside = pd.DataFrame({"size_probability": table, "occupied_under_fits": occupied}).fillna(0.0).sort_index()
        return beside.rename_axis("components").reset_index()

    # ── keeping and showing ─────────────────────────────────────────────────────────────────────────────────────────

    def save(self, folder: str | Path) -> None:
        """Write the result to a new folder, which `lv.load` and `lv.resume` read.

        Raises FileExistsError if the folder exists. Raises ValueError for a search over a plain function, which cannot
        be stored, and for a folder that is no path.
        """
        save_result(self, as_path("folder", folder))

    def save_slide(self, path: str | Path) -> None:
        """Write one slide as a .png or .svg file: the answer in one sentence, the posterior over sizes, the components.

        path: the file, which is replaced if it exists.

        Topics are shown as `with_topics` arranged them. Of components the ten largest are listed.

        Raises ValueError for a file of another ending, and for a search without a single successful fit.
        """
        plots.write_slide(self, path)

    def save_table(self, path: str | Path) -> None:
        """Write the components of the best size as a table to a .csv or .xlsx file, the largest component first.

        path: the file, which is replaced if it exists; .xlsx needs openpyxl (`lvsearch[excel]`).

        Columns are the number, `name` and `share` of each component. Topics have `label` (if documents have labels) and
        `words`, clusters the mean of each column, features what they add to each column. Topics are shown as
        `with_topics` arranged them. Text that a spreadsheet would run as a formula gets an apostrophe before it.

        Raises ValueError for a file of another ending, and for a search over a plain function, which has no components.
        """
        self._training()
        write_table(path, component_table(self.best_shown).reset_index(allow_duplicates=True))

    def plot_bounds(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the log evidence against size in nats, with proved bounds in the caption, and return the axes.

        ax: matplotlib axes; None makes a new figure.
        """
        return plots.plot_bounds(self, ax)

    def plot_held_out(self, test: Any = None, ax: "Axes | None" = None) -> "Axes":
        """Draw how well each size predicts held-out units, relative to the most probable size, and return the axes.

        Differences are in nats per token or cell, with their standard errors.

        test: held-out units; by default the held-out data that the search kept.
        ax: matplotlib axes; None makes a new figure.
        """
        return plots.plot_held_out(self.compare_held_out(test), ax)

    def plot_posterior(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the probability of each size, and return the axes.

        ax: matplotlib axes; None makes a new figure.
        """
        return plots.plot_posterior(self, ax)

    def plot_lattice(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the probability of each size of two size variables as a shaded square, and return the axes.

        Sizes that were tried are marked. Probabilities are written into squares that hold at least one per cent.

        ax: matplotlib axes; None makes a new figure.
        Raises ValueError for another number of size variables.
        """
        return plots.plot_lattice(self, ax)

    def plot_component_map(
        self, size: Size | int, larger: Size | int | None = None, ax: "Axes | None" = None
    ) -> "Axes":
        """Draw which components split and which merged between two sizes, and return the axes.

        size: the smaller size.
        larger: the larger size; None for the next larger size that was tried.
        ax: matplotlib axes; None makes a new figure.

        Raises ValueError if no larger size was tried.
        """
        return plots.plot_component_map(self, size, larger, ax)

    def plot_progress(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the log evidence of each size in nats against the time spent on fits, and return the axes.

        ax: matplotlib axes; None makes a new figure.
        """
        return plots.plot_progress(self, ax)

    def summary(self) -> str:
        """Return the answer and the facts behind it as a few lines of text; `print(result)` shows the same."""
        return cards.summary(self, self._known_held_out_table)

    def __repr__(self) -> str:
        """Return the answer and the facts behind it as a few lines of text."""
        return self.summary()

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows, as self-contained HTML."""
        return cards.card(self, self._known_held_out_table)
