"""A search in words: text for a terminal and an HTML card for a notebook, with the same facts in the same order."""

import base64
import io
import math
import platform

import numpy as np
import pandas as pd

from lvsearch.bridges.from_function import FunctionEvaluator
from lvsearch.data.kinds import unit_facts
from lvsearch.files.storage import versions
from lvsearch.pictures.fact_card import Fact, html_card, text_card
from lvsearch.results.findings import Findings
from lvsearch.results.wording import (
    answer,
    bounds_in_words,
    component_name,
    each_number_in_words,
    gives_number_in_use,
    has_probabilities,
    is_nothing_compared,
    limit_in_words,
    may_fall_further,
    may_rise_further,
    name_of_chains,
    observation_name,
    open_number_in_words,
    probability_in_words,
)
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.fit import SelfDescribed
from lvsearch.sizing.gains import PooledGain
from lvsearch.sizing.posterior import format_probability, in_percent, posterior
from lvsearch.sizing.words import size_text, sizes_in_words, with_noun

NEGLIGIBLE_ERROR = 0.001
"""The standard error, in nats, below which the number itself says nothing: rounding makes it."""
NEAR = 2
"""How many sizes the table of the card shows on each side of the sizes that cannot be told apart."""
MOST_ROWS = 24
BEYOND_THE_ERRORS = "; how far the bound is below the evidence is in none of these errors, and grows with the size"
FEWEST_TO_SPLIT = 8
"""The fewest units of which the card advises to hold some out."""


def summary(result: Findings, held_out: pd.DataFrame | None = None) -> str:
    """Return the answer and the facts of a search as a few lines of plain text.

    result: the search.
    held_out: the table from `SearchResult.compare_held_out`, if it was computed; then it comes first among the facts.
    """
    return text_card(headline(result), facts(result, held_out))


def facts(result: Findings, held_out: pd.DataFrame | None = None) -> tuple[Fact, ...]:
    """Return all facts about a search that stand below its answer, most important first.

    result: the search.
    held_out: the table from `SearchResult.compare_held_out`; without it one fact says how to compare sizes on held-out
        data.
    """
    if not has_answer(result):
        return (*_failures_fact(result), *_search_facts(result))
    if result.by_prediction:
        found = () if result.recommended is None else result.recommended.facts()
        return (*(Fact(*each) for each in found), *_failures_fact(result), *_search_facts(result))
    found, asked = _probability_fact(result), result.scrutiny
    limit, number_open, each = limit_in_words(result), open_number_in_words(result), each_number_in_words(result)
    open_ended = may_rise_further(result) or may_fall_further(result)
    is_weighed = not (result.evaluator.nested or is_nothing_compared(result) or open_ended)
    influence = f"; {result.influence.describe()}" if is_weighed else ""
    held_out_fact = Fact("held-out", _held_out_in_words(result, held_out))
    return (
        *([held_out_fact] if held_out is not None else []),
        *([Fact("each number", each)] if each else []),
        *found,
        *_unit_facts(result),
        *([Fact("recommended", result.recommended.describe())] if result.recommended is not None else []),
        *([Fact("fewer units", asked.robustness.describe())] if asked.robustness is not None else []),
        *([Fact("other priors", asked.sensitivity.describe())] if asked.sensitivity is not None else []),
        *([Fact("number open", number_open)] if number_open else []),
        *([Fact("limit", limit)] if limit else []),
        *_evidence_facts(result),
        *([Fact("audit", asked.audit.describe())] if asked.audit is not None else []),
        *([Fact("persistence", asked.persistence.describe())] if asked.persistence is not None else []),
        *([held_out_fact] if held_out is None else []),
        *_next_facts(result),
        Fact("prior", f"{result.prior.describe()}{influence}"),
        *_failures_fact(result),
        *_search_facts(result),
    )


def _next_facts(result: Findings) -> tuple[Fact, ...]:
    """Return what to ask next of the draws of partitions, after chains over partitions; else nothing."""
    if result.partitions is None or not result.partitions.recorded.groups.size:
        return ()
    told = "result.partition() says which rows belong together"
    if result.partitions.can_draw:
        told = f"{told}, result.draws() has parameters and densities with intervals"
    return (Fact("next", told),)


def card(result: Findings, held_out: pd.DataFrame | None = None) -> str:
    """Return the card of a search as self-contained HTML, for `_repr_html_`.

    The card shows the answer, the picture of the posterior, a table of the sizes near the best, and the facts. Its
    colours come from the page around it, light or dark. The picture stands on a white panel.

    result: the search.
    held_out: the table from `SearchResult.compare_held_out`, if it was computed; then it comes first among the facts.
    """
    between = ""
    if has_answer(result):
        table = near_table(result).to_html(index=False, border=0, escape=True, classes="lv-near")
        picture = f"<img alt='Probability of each size' src='{_picture(result)}'>"
        between = f"<div class='lv-row'>{picture}<div class='lv-scroll'>{table}</div></div>"
    return html_card(headline(result), facts(result, held_out), between)


def near_table(result: Findings) -> pd.DataFrame:
    """Return a table of the sizes around the best one, with numbers formatted for people, at most 24 rows.

    Marginal evidence: the sizes that cannot be told from the best, and two on each side. Plug-in evidence: the twelve
    sizes with the largest lower ends of probability, and a row for all sizes that were not tried. A search by
    prediction: the table of its recommendation. Probabilities are never shown as a bare 1.000.
    """
    if result.by_prediction:
        return pd.DataFrame() if result.recommended is None else result.recommended.table().round(4)
    if not result.evaluator.nested:
        return _near_estimates(result)
    table = posterior(_shown_bounds(result))
    ranked = sorted(table.rows[:-1], key=lambda row: (-row.probability_lower, -row.probability_upper, row.size))
    shown = sorted(ranked[: MOST_ROWS // 2], key=lambda row: row.size or ())
    return pd.DataFrame(
        {
            "size": ["unvisited" if row.size is None else size_text(row.size) for row in (*shown, table.unvisited)],
            "probability from": [format_probability(row.probability_lower) for row in (*shown, table.unvisited)],
            "to": [format_probability(row.probability_upper) for row in (*shown, table.unvisited)],
        }
    )


# ── the facts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def headline(result: Findings) -> str:
    """Return the answer in one sentence. If there is no answer yet, return a sentence that says so."""
    if not result.visits and result.partitions is None:
        return "No size was tried yet."
    return answer(result) if has_answer(result) else "No fit succeeded: see the failures."


def has_answer(result: Findings) -> bool:
    """Return True if the search has found an answer, however uncertain.

    Chains over partitions must have run, or a size with positive prior probability must have a fit that did not fail.
    """
    if result.partitions is not None:
        return True
    return any(not visit.failed and result.prior.log_pmf(visit.size) > -math.inf for visit in result.visits)


def _shown_bounds(result: Findings):
    """Return the bounds on log p(data) that the card shows: certified ones, or ones that assume diminishing gains.

    The result's `default_kind` chooses between the two.
    """
    return result.certified() if result.default_kind == "certified" else result.diminishing()


def _probability_fact(result: Findings) -> tuple[Fact, ...]:
    """Return a tuple with one fact: the probability of the best size, in words."""
    if not result.evaluator.nested:
        return (Fact("probability", probability_in_words(result)),)
    return (Fact("probability", posterior(_shown_bounds(result)).describe()),)


def _evidence_facts(result: Findings) -> tuple[Fact, ...]:
    """Return the facts about the evidence: how it was estimated, its error, the sizes not tried, and proved bounds."""
    scale = (
        f", weighed per {observation_name(result)} (a geometric-mean likelihood, for published figures)"
        if result.settings.per_token
        else ""
    )
    if not result.evaluator.nested:
        return (*_estimated_facts(result, scale), *_certified_fact(result))
    # plug-in evidence has bounds only, and no estimate with an error
    plug_in = "plug-in (at estimated parameters)" if result.settings.evidence == "plug-in" else "nested"
    kinds = [Fact("proved", bounds_in_words(result, "certified").removeprefix("proved "))]
    if result.prior.dimension == 1:
        kinds.append(Fact("diminishing", bounds_in_words(result, "diminishing")))
    return (Fact("evidence", f"{plug_in}{scale}{_spread_of_fits(result)}"), *kinds)


def _estimated_facts(result: Findings, scale: str) -> tuple[Fact, ...]:
    """Return the facts about estimated evidence, without proved bounds: how it was estimated, and what was not tried.

    scale: a phrase that says by what the evidence is divided.
    """
    # a plain function of the size, then chains over partitions, then gains, annealing or the bound of a model
    if isinstance(result.evaluator, FunctionEvaluator):
        return Fact("evidence", _function_errors_in_words(result)), Fact("not tried", _unvisited_in_words(result))
    if result.partitions is not None:
        return (Fact("evidence", _chains_in_words(result)), *_not_allowed_fact(result), *_occupied(result))
    if result.curve is not None:
        return (Fact("evidence", _gains_in_words(result)), *_not_allowed_fact(result))
    if any(visit.annealed is not None for visit in result.visits):
        told = (
            f"annealed{scale}: log p(data | size), parameters integrated out, from paths up and down; "
            f"{_annealed_error(result)}. The probabilities are estimates under these errors, not bounds"
        )
        return Fact("evidence", told), Fact("not tried", _unvisited_in_words(result))
    kind = result.settings.evidence
    if len(result.standard_errors) == 1:
        return (Fact("evidence", f"{kind}{scale}: of one size alone, so that nothing is compared"),)
    error = float(np.median(list(result.standard_errors.values())))
    about = f"about {error:,.3g}" if error >= NEGLIGIBLE_ERROR else f"below {NEGLIGIBLE_ERROR:g}"
    told = (
        f"{kind}{scale}: per size an estimate whose standard error, from the spread of repeated fits, is {about} nats. "
        "The probabilities are estimates over the sizes tried, not "
        f"bounds{BEYOND_THE_ERRORS if kind == 'bound' else ''}"
    )
    return (Fact("evidence", told),)


def _spread_of_fits(result: Findings) -> str:
    """Return a phrase that says how far apart the fits of one size ended at most, in nats.

    The phrase is empty if all fits of a size agree, or each size has one fit.
    """
    if not result.evaluator.repeatable:
        return ""
    ends = [[t.estimate for t in visit.trials if t.failure is None] for visit in result.visits]
    apart = max((max(each) - min(each) for each in ends if each), default=0.0) / result.evaluator.scale
    if not apart > 0:
        return ""
    return (
        f"; every size keeps the best of its fits, which ended up to {apart:,.3g} nats apart: a better one may have "
        "been missed"
    )


def _function_errors_in_words(result: Findings) -> str:
    """Return a phrase that says where the standard errors come from when the search is over a plain function."""
    best = next(visit for visit in result.visits if visit.size == result.best_size)
    noisy = [visit for visit in result.visits if visit.annealed is not None]
    if noisy:
        calls = [sum(bracket.steps for trial in visit.trials for bracket in trial.brackets) for visit in noisy]
        rest = "" if len(noisy) == len(result.visits) else ", the other sizes' calls agreed"
        often = f"{min(calls)} to {max(calls)}" if min(calls) < max(calls) else calls[0]
        return (
            f"the function is noisy: means of {often} calls of a size{rest}; standard error (Student's) of the best "
            f"size {result.standard_errors[best.size]:,.2g} nats. The probabilities are estimates under these errors"
        )
    stated = best.evidence.standard_error
    if any(visit.evidence.standard_error > 0 for visit in result.visits):
        return f"as the function states it, standard error of the best size {stated:,.2g} nats"
    checked = "every size's two calls agreed" if result.evaluator.anneals else "not checked by a second call"
    return f"values of the function, taken as exact: {checked}"


def _chains_in_words(result: Findings) -> str:
    """Return a phrase about the chains over partitions that compare all sizes: their number, R̂ and errors."""
    found = result.partitions
    assert found is not None
    worth = found.effective_sample_size
    never = math.isnan(worth)
    sides = "the rows" if result.prior.dimension == 1 else "the rows and of the columns"
    draws = f"{found.name_in_use} never change" if never else f"effective draws of {found.name_in_use} {worth:,.0f}"
    return (
        f"of all sizes at once, from {found.chains} {name_of_chains(result)} of {sides}, parameters integrated out, "
        f"{found.sweeps} sweeps of each: R-hat {found.rhat:.3f}, {draws}, "
        f"largest Monte Carlo error of a probability {found.largest_error:.3f}. The evidence of every size is "
        "known up to one factor that all sizes share: sizes can be compared, models cannot"
    )


def _certified_fact(result: Findings) -> tuple[Fact, ...]:
    """Return a fact about the proved bounds on log p(data); () if chains ran and no size was fitted yet.

    An interrupt or a kill during the chains leaves such a search.
    """
    if not result.visits:
        return ()
    return (Fact("certified", bounds_in_words(result, "certified").removeprefix("certified, no assumption: ")),)


def _occupied(result: Findings) -> tuple[Fact, ...]:
    """Return a fact about the number of components that some row is in.

    It is () if the prior over sizes was replaced after the chains ran: then that number's posterior is not known.
    """
    found = result.partitions
    assert found is not None
    text = found.describe_occupied()
    return () if text is None else (Fact("in use" if gives_number_in_use(result) else "occupied", text),)


def _gains_in_words(result: Findings) -> str:
    """Return a phrase with the measured evidence gains at the sizes around the best, and the assumption in between.

    A gain is the log evidence of a size minus that of the size before it, or the mean of several such differences.
    """
    curve = result.curve
    assert curve is not None
    name = component_name(result)
    (best,) = result.best_size
    below, above = curve.measured[curve.measured <= best], curve.measured[curve.measured > best]
    beside = [*below[-1:].tolist(), *above[:1].tolist()]
    gains = {visit.size[0]: visit.gain for visit in result.visits if visit.gain is not None}
    said = ", ".join(f"{name} {gain_in_words(size, gains[size], result.evaluator.scale)}" for size in beside)
    left_out = curve.measured[curve.contradicted].tolist()
    doubted = (
        f". Left out, because a larger size gains more: {', '.join(map(str, left_out))}: its fits may have missed the "
        "best arrangement"
        if left_out
        else ""
    )
    fading = (
        ". Here gains fade, as on real text: then the range comes from how far the gains of several fits scatter, and "
        "how often it is right was not counted"
        if curve.smooth is not None
        else ""
    )
    return (
        f"what one {name} more gains, annealed up and down between two sizes, "
        f"{with_noun(len(curve.measured), 'sizes')} measured: "
        f"{said}. Assumed: gains fall as sizes grow{doubted}. "
        "On simulated corpora of 100,000 words with 5 to 40 topics the ranges of 95 % held the planted number in "
        f"24 of 24, and in 60 of 60 by the two versions before{fading}"
    )


def gain_in_words(size: int, gain: PooledGain, scale: float = 1.0) -> str:
    """Return a measured gain of log evidence in words, such as "21: −200 ± 12 nats", or "124–128: +52 ± 9 nats each".

    The second form is the mean gain over several sizes, the last of which is `size`.

    scale: the divisor of the log evidence.
    """
    first = round(size - gain.sizes + 1)
    over, each = (f"{first}–{size}", " each") if first < size else (str(size), "")
    estimate, error = gain.estimate / scale, gain.standard_error / scale
    return f"{over}: {estimate:+,.0f} ± {error:,.0f} nats{each}".replace("-", "−")


def _annealed_error(result: Findings) -> str:
    """Return a phrase with the annealed evidence of the best size: its lower and upper estimate and standard error.

    The two estimates are of forward and of backward annealing; nats.
    """
    best = next(visit for visit in result.visits if visit.size == result.best_size)
    annealed = best.annealed
    assert annealed is not None
    error = annealed.standard_error / result.evaluator.scale
    # estimates that agree may cross
    low, high = sorted((annealed.lower / result.evaluator.scale, annealed.upper / result.evaluator.scale))
    return f"of the best size {low:,.1f} to {high:,.1f} nats, standard error {error:,.2g}".replace("-", "−")


def _unvisited_in_words(result: Findings) -> str:
    """Return a phrase that says how much of the prior, and about how much of the posterior, untried sizes hold.

    Both numbers count the allowed sizes. The phrase ends with the share of the prior of sizes that were not allowed.
    """
    prior, share = result.unvisited
    found = _not_allowed_in_words(result)
    not_allowed = "" if found is None else f". {found}"
    if prior == 0:
        return f"none: every size that is allowed and has prior probability was tried{not_allowed}"
    allowed = "allowed sizes" if not_allowed else "sizes"
    return (
        f"{allowed} with {format_probability(min(prior, 1.0))} of the prior. If their evidence is no better than that "
        f"of the tried sizes around them, they have {format_probability(min(share, 1.0))} of the posterior. The search "
        f"ends when this share stays below 0.001 even with a few nats more evidence{not_allowed}"
    )


def _not_allowed_fact(result: Findings) -> tuple[Fact, ...]:
    """Return one fact on the sizes above the largest allowed, where all smaller ones are compared; else ()."""
    found = _not_allowed_in_words(result)
    return () if found is None else (Fact("not tried", found),)


def _not_allowed_in_words(result: Findings) -> str | None:
    """Return a phrase on the share of the prior of sizes above the largest allowed; None if they have no share."""
    above, most = result.prior_above_largest, result.settings.max_size
    if most is None or above <= 0:
        return None
    return (
        f"Sizes above {size_text(most)} were not allowed and hold {format_probability(above)} of the prior; nothing is "
        "said about them"
    )


def _held_out_in_words(result: Findings, held_out: pd.DataFrame | None) -> str:
    """Return a phrase that says whether held-out data agree with the best size, or how to find out.

    Without a table nothing is computed here. The phrase says what the search kept, and which call compares sizes on it.

    held_out: the table from `SearchResult.compare_held_out`; None if it was not computed.
    """
    if held_out is not None:
        from lvsearch.results.heldout import agreement

        return agreement(held_out)
    kept = result.held_out
    if kept is not None:
        one = kept.n_units == 1
        told = f"{kept.n_units:,} {kept.nouns.unit if one else kept.nouns.units} {'was' if one else 'were'} kept out of"
        return f"{told} the search, and not looked at yet: result.compare_held_out() compares the sizes on them"
    if result.training is None:
        return "no data to hold out: the evaluator has them"
    nouns, n_units = result.training.nouns, result.training.n_units
    if n_units < FEWEST_TO_SPLIT:
        return f"not looked at: {n_units} {nouns.unit if n_units == 1 else nouns.units} cannot spare any"
    # a comparison needs two units
    share = "0.1" if n_units >= 2 / 0.1 else "0.3"
    return (
        f"not looked at. {nouns.units.capitalize()} that the search did not see are the best check: train, test = "
        f"{nouns.whole}.split({share}), search train, then result.compare_held_out(test)"
    )


def _failures_fact(result: Findings) -> tuple[Fact, ...]:
    """Return one fact that counts the failed fits and quotes the first reason; () if no fit failed."""
    failures = [trial.failure for visit in result.visits for trial in visit.trials if trial.failure is not None]
    if not failures:
        return ()
    return (Fact("failures", f"{len(failures)} fit(s) failed and were not ranked; the first: {failures[0]}"),)


def _search_facts(result: Findings) -> tuple[Fact, ...]:
    """Return the facts about the search itself: model, data, sizes, settings, compilation, memory and versions."""
    settings = result.settings
    fits = sum(len(visit.trials) for visit in result.visits)
    tried = sizes_in_words([visit.size for visit in result.visits]) if result.visits else "none"
    counted = f"{with_noun(len(result.visits), 'sizes')}, {with_noun(fits, 'fits')}"
    most = "no largest size" if settings.max_size is None else f"largest size allowed {size_text(settings.max_size)}"
    stopped = result.state.stopped or "not finished"
    which = "of each size" if result.evaluator.nested else "of each size near the best"
    each = settings.starts if result.evaluator.repeatable else 1
    starts = f"{each} fit{'s' if each != 1 else ''} {which}"
    did = "sizes tried" if result.partitions is None else "sizes fitted"
    if result.partitions is not None:
        starts = "fits of the most probable sizes"
    if result.by_prediction:
        starts = "the better of two starts for each fit"
    return (
        *_model_fact(result),
        *_data_facts(result),
        Fact(did, f"{tried} ({counted}, {result.seconds:,.0f} seconds)"),
        Fact("search", f"{stopped}; seed {settings.seed}, {starts}, {most}"),
        *_compiled_fact(result),
        *_memory_fact(result),
        Fact("versions", _versions_in_words()),
    )


def _compiled_fact(result: Findings) -> tuple[Fact, ...]:
    """Return one fact that says how often each compiled function (kernel) was compiled; () if none was compiled."""
    if not result.compiles:
        return ()
    ordered = sorted(result.compiles.items(), key=lambda entry: (-entry[1], entry[0]))
    return (Fact("compiled", ", ".join(f"{kernel} {times}" for kernel, times in ordered)),)


def _memory_fact(result: Findings) -> tuple[Fact, ...]:
    """Return one fact that says how often memory ran out, so that data were processed in smaller chunks; else ()."""
    evaluator = result.evaluator
    if not isinstance(evaluator, ModelEvaluator) or not evaluator.chunks.halvings:
        return ()
    times = evaluator.chunks.halvings
    return (Fact("memory", f"ran out {'once' if times == 1 else f'{times} times'}; chunks were halved each time"),)


def _model_fact(result: Findings) -> tuple[Fact, ...]:
    """Return one fact that names the model, or the user's own evaluator if there is no model."""
    evaluator = result.evaluator
    if isinstance(evaluator, ModelEvaluator):
        return (Fact("model", evaluator.model.describe()),)
    return (
        Fact("model", evaluator.describe() if isinstance(evaluator, SelfDescribed) else "an evaluator of one's own"),
    )


def _unit_facts(result: Findings) -> tuple[Fact, ...]:
    """Return a fact if the prior of the model expects cells in another unit than the data have."""
    evaluator = result.evaluator
    if not isinstance(evaluator, ModelEvaluator) or result.training is None:
        return ()
    return unit_facts(evaluator.model, result.training)


def _data_facts(result: Findings) -> tuple[Fact, ...]:
    """Return one or two facts about the data: description, fingerprint, and any notes taken when they were read."""
    data = result.training
    if data is None:
        return ()
    text = f"{data.describe()}; fingerprint {data.fingerprint[:16]}"
    return (Fact("data", text), *([Fact("notes", "; ".join(data.notes))] if data.notes else []))


def _versions_in_words() -> str:
    """Return the versions of the packages and the device in words, of the machine that shows the card.

    If the result was loaded elsewhere, this is not the machine that searched.
    """
    known = versions()
    device = known.pop("device")
    packages = ", ".join(f"{name} {number}" for name, number in known.items())
    return f"{packages}, Python {platform.python_version()}; device {device}"


# ── table and picture ───────────────────────────────────────────────────────────────────────────────────────────────


def _near_estimates(result: Findings) -> pd.DataFrame:
    """Return the card's table for estimated evidence: a row per size near the best, at most 24, in increasing order.

    Columns are the size, its log evidence relative to the best (nats) with its standard error, its probability with 5 %
    and 95 % points, and its number of fits.
    """
    found = result.estimated
    close = [size in found.indistinguishable for size in found.sizes]
    first, last = close.index(True), len(close) - 1 - close[::-1].index(True)
    rows = list(range(max(0, first - NEAR), min(len(close), last + NEAR + 1)))
    if len(rows) > MOST_ROWS:
        rows = sorted(sorted(rows, key=lambda row: -float(found.probability[row]))[:MOST_ROWS])
    by_size = {visit.size: visit for visit in result.visits}
    decimals = 4 if result.settings.per_token else 1
    known = {size: (value, error) for size, _, value, error in zip(*result.estimates(), strict=True)}
    relative = [known[found.sizes[row]][0] - known[found.best][0] for row in rows]
    errors = [known[found.sizes[row]][1] for row in rows]

    def shown(values: np.ndarray) -> list[str]:
        """Return `values` at the shown sizes in per cent, such as "74 %"; empty texts if probabilities say nothing."""
        return [in_percent(float(values[row])) if has_probabilities(result) else "" for row in rows]

    return pd.DataFrame(
        {
            "size": [("→ " if found.sizes[row] == found.best else "") + size_text(found.sizes[row]) for row in rows],
            "log evidence, nats": [f"{value:+,.{decimals}f}".replace("-", "−") for value in relative],
            "± s.e.": [f"{error:,.{decimals}f}" for error in errors],
            "probability": shown(found.probability),
            "5 %": shown(found.probability_lower),
            "95 %": shown(found.probability_upper),
            "fits": [len(by_size[found.sizes[row]].trials) if found.sizes[row] in by_size else 0 for row in rows],
        }
    )


def _picture(result: Findings) -> str:
    """Return the picture of the posterior over sizes, without its caption, as a PNG in a data URI.

    The figure is made outside pyplot, so that a notebook does not show it a second time.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from lvsearch.pictures.style import LIGHT, in_house_style, with_palette
    from lvsearch.results.size_plots import draw_posterior

    buffer = io.BytesIO()
    with with_palette(LIGHT):  # on a panel of its own, whatever the notebook's settings
        figure = Figure(figsize=(6.0, 3.4), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        draw_posterior(result, in_house_style(figure.add_subplot()))  # its caption is what the card says
        figure.savefig(buffer, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
