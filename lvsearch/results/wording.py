"""The sentences that pictures, cards and reports share, so that they cannot disagree."""

import math
from collections.abc import Sequence

from lvsearch.fitted.mixture_posterior import largest_tabulated
from lvsearch.inference.diagnostics import MOST_RHAT
from lvsearch.models.plain_arguments import one_of
from lvsearch.results.findings import Findings
from lvsearch.searching.allocation_evaluator import AllocationEvaluator
from lvsearch.sizing.bounds import NOT_OF_SIZES, OF_FITS
from lvsearch.sizing.posterior import SETTLED, format_probability, in_percent, posterior
from lvsearch.sizing.racing import UNSETTLED
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import first_to_last, is_or_are, size_text, size_with_nouns, sizes_in_words, with_noun

NOTHING = 1e-12
"""A prior probability that counts as none."""


def unit_name(result: Findings) -> str:
    """Return the plural noun that sizes count, such as "topics"; "size" if there are several size variables."""
    names = result.evaluator.size_names
    return names[0] if len(names) == 1 else "size"


def component_name(result: Findings) -> str:
    """Return the singular noun that the first size variable counts, such as "topic"."""
    return result.evaluator.size_names[0].removesuffix("s").replace("_", " ")


def observation_name(result: Findings) -> str:
    """Return the singular noun of an observation, such as "token" or "cell"; "observation" if there are no data."""
    return "observation" if result.training is None else result.training.nouns.observation


def scale_in_words(result: Findings) -> str:
    """Return " per token" (or cell) if evidence is weighed per observation, else an empty string; it follows "nats"."""
    return f" per {observation_name(result)}" if result.settings.per_token else ""


def size_in_words(result: Findings, size: Size) -> str:
    """Return a size with its nouns, such as "18 topics", "size 18", or "3 topics × 2 regions"."""
    names = result.evaluator.size_names
    return f"size {size[0]}" if names == ("size",) else size_with_nouns(size, names)


def verb_of_size(result: Findings, size: Size) -> str:
    """Return "is" or "are", the verb that agrees with `size_in_words(result, size)`."""
    if len(size) != 1 or result.evaluator.size_names == ("size",):
        return "is"
    return is_or_are(size[0])


def kind_of(result: Findings, kind: str | None) -> str:
    """Return the kind of posterior table: `kind` itself, checked, or the default of the result for None.

    Kinds are "estimate" (with standard errors), "certified" (proved intervals) and "diminishing" (intervals that assume
    diminishing gains).

    Raises ValueError for an unknown kind, and for "certified" under marginal evidence.
    """
    kind = result.default_kind if kind is None else one_of("kind", kind, ("estimate", "certified", "diminishing"))
    if kind == "certified" and not result.evaluator.nested:
        raise ValueError(
            "a certified posterior under marginal evidence is [0, 1] everywhere: the only proved upper end is the "
            "ceiling. Use kind='estimate', or search with evidence=\"plug-in\""
        )
    return kind


RATIO_OPEN = 2
"""The ratio of the largest to the smallest size of a 95 % set above which the number may count as open."""
LEAST_WIDTH_OPEN = 9
"""The least width of the range from the smallest to the largest size, both counted, for the number to count as open."""
HIDDEN = 0.05
"""The share of the posterior that sizes not tried may hold before the headline mentions them."""


def best_estimate(result: Findings) -> str:
    """Return the answer of an estimated posterior in one sentence without a full stop.

    Examples are "12 topics (74 %); 95 %: 10–14", "12 topics (more than 99 %)", "Still rising at 60 topics, the largest
    allowed", and "No single number yet: the evidence cannot choose between 30 and 60 topics". The sentence begins by
    saying so if the search did not finish. It ends with the sizes that were not compared, and by saying so if the
    evidence is the mean-field bound.
    """
    by_bound = " (by the mean-field bound, which is not the evidence)" if result.settings.evidence == "bound" else ""
    start = _unfinished(result)
    found = f"{_most_probable(result)}{_not_compared_in_words(result)}{by_bound}"
    return f"{start}{found}" if start else f"{found[:1].upper()}{found[1:]}"


def _most_probable(result: Findings) -> str:
    """Return the answer in words, such as "12 topics (74 %); 95 %: 10–14", without saying if the search finished."""
    found, end = result.estimated, _end_reached(result)
    best = size_in_words(result, _best(result))
    if end is not None:
        return f"still rising at {best}, the {end}{_range_in_words(result)}"
    prior, posterior = result.unvisited
    hidden = f"; sizes not tried hold {format_probability(prior)} of the prior" if posterior > HIDDEN else ""
    if is_only_size_allowed(result):
        return f"nothing to compare: {best} {verb_of_size(result, found.best)} the only size allowed"
    if is_nothing_compared(result):
        return f"no comparison yet: {best} {verb_of_size(result, found.best)} the only size measured{hidden}"
    if may_fall_further(result):
        return f"no single number yet: fewer than {_smallest_measured(result)}, and smaller numbers were not measured"
    if not found.is_decided and result.partitions is not None:
        return f"no single number yet: {name_of_chains(result)} do not agree, and name {_candidates_in_words(result)}"
    if not found.is_decided:
        return f"no single number yet: the evidence cannot choose between {_candidates_in_words(result)}"
    if gives_number_in_use(result):
        assert result.partitions is not None
        return f"{best} ({in_percent(result.partitions.occupied_summary()[2])}){_range_in_words(result)}"
    if is_number_open(result):
        return ", ".join(_rows_held_in_words(result))
    chance = in_percent(float(found.probability[found.sizes.index(found.best)]))
    if result.partitions is not None and result.partitions.size_is_limit:
        return (
            f"{best} could be used ({chance}){_range_in_words(result)}; how many are in use is known under the "
            "search's own prior alone"
        )
    return f"{best} ({chance}){_range_in_words(result)}{_errors_in_words(result)}{hidden}"


def gives_number_in_use(result: Findings) -> bool:
    """Return True if the answer is how many components some unit has, because the size is only a limit on them.

    Returns False if the posterior of that number is not available, for example after `with_prior`.
    """
    found = result.partitions
    return found is not None and found.size_is_limit and found.occupied_probability.size > 0


def name_of_chains(result: Findings) -> str:
    """Return what the chains go over: "chains over partitions", or "chains over features"."""
    limited = isinstance(result.evaluator, AllocationEvaluator) and result.evaluator.base_model.size_is_limit
    return f"chains over {result.evaluator.size_names[0] if limited else 'partitions'}"


def _best(result: Findings) -> Size:
    """Return the most probable size, or the most probable number in use where that is the answer."""
    if not gives_number_in_use(result):
        return result.estimated.best
    assert result.partitions is not None
    return result.partitions.occupied_summary()[1]


def _together(result: Findings) -> tuple[Size, ...]:
    """Return the sizes that may be the best, or the numbers in use that hold 95 % where these are the answer."""
    if not gives_number_in_use(result):
        return result.estimated.indistinguishable
    assert result.partitions is not None
    return result.partitions.occupied_summary()[0]


def is_nothing_compared(result: Findings) -> bool:
    """Return True if the search was stopped when a single size had evidence and others may be better, or if it was
    allowed a single one.

    The probability of that size among the sizes tried is 1, whatever the data are.
    """
    if is_only_size_allowed(result):
        return True
    return not result.is_finished and len(result.estimated.sizes) == 1 and result.unvisited[1] > HIDDEN


def is_only_size_allowed(result: Findings) -> bool:
    """Return True if the largest size or the prior allowed a single size, so that its probability says nothing."""
    if result.settings.max_size is not None and max(result.settings.max_size) == 1:
        return True
    allowed = _log_allowed(result)
    return any(result.prior.log_pmf(visit.size) >= allowed - NOTHING for visit in result.visits)


def excludes_larger_sizes(result: Findings) -> bool:
    """Return True if the prior gives no probability to sizes above the largest allowed, so that these cannot matter."""
    return _log_allowed(result) >= -NOTHING


def _log_allowed(result: Findings) -> float:
    """Return the log of the prior probability of all sizes up to the largest allowed."""
    most = result.settings.max_size
    return 0.0 if most is None else result.prior.log_box((1,) * len(most), tuple(number + 1 for number in most))


def has_probabilities(result: Findings) -> bool:
    """Return True if the probabilities of sizes say something: two sizes or more were compared, errors are small
    enough, and the search was not stopped while the evidence rose, or fell from the smallest size measured on.
    """
    open_ended = may_rise_further(result) or may_fall_further(result)
    return result.estimated.is_decided and not is_nothing_compared(result) and not open_ended


def is_number_open(result: Findings) -> bool:
    """Return True if chains over partitions leave the number of components open, so that the prior decides much of it.

    The number counts as open if the range of the 95 % set is wide (`LEAST_WIDTH_OPEN`) and its largest size is more
    than `RATIO_OPEN` times the smallest; of several size variables one may be enough. In that case the headline gives
    the number of components that hold rows, which describes the data themselves. Returns False if the posterior of that
    number is not available, for example after `with_prior`.
    """
    if result.partitions is None or not result.estimated.is_decided or not result.partitions.occupied_probability.size:
        return False
    if gives_number_in_use(result):
        return False
    of_variables = zip(*result.estimated.indistinguishable, strict=True)
    ends = [(min(numbers), max(numbers)) for numbers in of_variables]
    return any(last > RATIO_OPEN * first and last - first + 1 >= LEAST_WIDTH_OPEN for first, last in ends)


def _rows_held_in_words(result: Findings) -> tuple[str, str]:
    """Return the answer where the number is open, in two parts: "7–33 components hold rows (95 %)" and "most probably
    16 (6 %); the data leave the number open".

    Of several size variables: "8–11 row clusters × 26–36 column clusters have members (95 %)".
    """
    assert result.partitions is not None
    held, best, chance = result.partitions.occupied_summary()
    hold = "have members"
    if len(best) == 1:
        hold = "holds rows" if held == ((1,),) else "hold rows"
    return (
        f"{_range_with_nouns(result, held)} {hold} (95 %)",
        f"most probably {size_text(best)} ({in_percent(chance)}); the data leave the number open",
    )


def _range_with_nouns(result: Findings, sizes: Sequence[Size]) -> str:
    """Return the range of each size variable with its noun, such as "7–33 components", or "2–3 row clusters × 4 column
    clusters".
    """
    told = []
    for numbers, name in zip(zip(*sizes, strict=True), result.evaluator.size_names, strict=True):
        least, most = min(numbers), max(numbers)
        noun = name.replace("_", " ")
        told.append(with_noun(least, noun) if least == most else f"{least}–{most} {noun}")
    return " × ".join(told)


def open_number_in_words(result: Findings) -> str | None:
    """Return what it means that the data leave the number open, and what to do; None if they do not."""
    if not is_number_open(result):
        return None
    others = result.evaluator.model.suggestions_if_open() if isinstance(result.evaluator, AllocationEvaluator) else ()
    advice = ["a narrower prior over sizes (prior=)", *others]
    return (
        f"with empty components counted, the model has {_range_with_nouns(result, result.estimated.indistinguishable)} "
        "(95 %). Rows of one cluster can be described by one component or by several, so that the "
        "priors strongly influence this range. If something is known about the number or the widths, put it into the "
        f"prior, search again, and see how far the answer moves. You can try: {'; '.join(advice)}"
    )


def each_number_in_words(result: Findings) -> str | None:
    """Return the most probable number of each size variable by itself, and its 95 % range; None if there is only one
    variable, if sizes have no probability, where the number is open, and where larger sizes were not allowed and may be
    better.

    Such as "2 row clusters (88 %; 95 %: 2–3) and 4 column clusters (22 %; 95 %: 2–12), each whatever the other number
    is".
    """
    found, names = result.estimated, result.evaluator.size_names
    if len(names) == 1 or not found.is_decided or len(found.sizes) == 1:
        return None
    if is_number_open(result) or _end_reached(result) is not None or is_nothing_compared(result):
        return None
    told = []
    for axis, name in enumerate(names):
        best, chance, held = found.one_variable(axis)
        within = f"; 95 %: {first_to_last([(number,) for number in held])}" if len(held) > 1 else ""
        told.append(f"{with_noun(best, name.replace('_', ' '))} ({in_percent(chance)}{within})")
    return f"{' and '.join(told)}, each whatever the other number is"


def _range_in_words(result: Findings) -> str:
    """Return the range of the sizes that cannot be told apart, such as "; 95 %: 10–14"; empty if there is only one.

    Sizes that cannot be told apart are the ones that may be the best. For one size variable the range includes every
    size between its ends, tried or not. For several see `first_to_last`.
    """
    together = _together(result)
    if len(together) < 2:
        return ""
    return f"; 95 %: {first_to_last(together)}"


def _errors_in_words(result: Findings) -> str:
    """Return the words that errors of annealed evidence leave the answer open; empty if they do not matter.

    Such as "; not settled: an exact computation may give 21 % to 57 %". They matter where a search would go on
    if it had trials or time left (`lvsearch.sizing.racing.UNSETTLED`).
    """
    found = result.estimated
    if found.moved_by_errors <= UNSETTLED or all(visit.annealed is None for visit in result.visits):
        return ""
    row = found.sizes.index(found.best)
    low, high = (in_percent(float(values[row])) for values in (found.probability_lower, found.probability_upper))
    if low == high:  # a chance in some hundreds that a large error decides: nothing that the percentage does not say
        return ""
    return f"; not settled: an exact computation may give {low} to {high}"


def _not_compared_in_words(result: Findings) -> str:
    """Return the sizes whose every fit failed, such as "; not compared: 2–3, whose fits failed"; empty if there are
    none.
    """
    sizes = list(result.not_compared)
    return f"; not compared: {sizes_in_words(sizes)}, whose fits failed" if sizes else ""


def _candidates_in_words(result: Findings) -> str:
    """Return the smallest and the largest size that may be the best in words, such as "30 and 60 topics"."""
    together, names = _together(result), result.evaluator.size_names
    if len(together) == 1:
        return f"{size_in_words(result, together[0])} and others"
    if len(together[0]) > 1:
        return first_to_last(together)
    first, last = min(together)[0], max(together)[0]
    return f"size {first} and size {last}" if names == ("size",) else f"{first} and {size_in_words(result, (last,))}"


def _unfinished(result: Findings) -> str:
    """Return the words with which the answer begins, such as "Unfinished (interrupted): "; empty if it finished."""
    return "" if result.is_finished else f"Unfinished ({result.why_unfinished}): "


def _end_reached(result: Findings) -> str | None:
    """Return "largest allowed" or similar words if the most probable size is at the end of the sizes; else None.

    The end is the largest size allowed. In an unfinished search, it may also be the largest size tried. For several
    size variables the words name the variable, such as "most column clusters tried".
    """
    best, allowed = _best(result), _largest_compared(result)
    if is_only_size_allowed(result):
        return None  # a single size rises above nothing
    tried, may_go_on = (), False
    if result.partitions is None:  # chains compare all sizes, whichever were fitted
        tried = tuple(max(numbers) for numbers in zip(*(visit.size for visit in result.visits), strict=True))
        may_go_on = not result.is_finished and max(tried) > 1
    for end, word in ((allowed, "allowed"), (tried if may_go_on else None, "tried")):
        if end == best:
            return f"largest {word}"
        names = zip(result.evaluator.size_names, best, end or (), strict=False)
        at_end = [name.replace("_", " ") for name, number, most in names if number == most > 1]
        if at_end:
            return f"most {' and '.join(at_end)} {word}"
    return None


def may_rise_further(result: Findings) -> bool:
    """Return True if the most probable size is the largest that an unfinished search has tried, and larger ones are
    allowed.
    """
    allowed = result.settings.max_size != _best(result)
    return not result.is_finished and allowed and _end_reached(result) is not None


def may_fall_further(result: Findings) -> bool:
    """Return True if an unfinished search has measured gains between sizes, and the most probable size is below all of
    them.
    """
    if result.curve is None or result.is_finished:
        return False
    smallest, least = int(result.curve.measured[0]), result.prior.first[0] + 1  # the first size of all has no gain
    return smallest > least and result.estimated.best[0] < smallest


def _smallest_measured(result: Findings) -> str:
    """Return the smallest size whose gain was measured in words, such as "64 topics"."""
    assert result.curve is not None
    return size_in_words(result, (int(result.curve.measured[0]),))


def short_answer(result: Findings) -> str:
    """Return the answer of an estimated posterior in a few words, for a title, such as "12 topics; 95 %: 10–14"."""
    found = result.estimated
    best = size_in_words(result, _best(result))
    start = "" if result.is_finished else "Unfinished: "
    if _end_reached(result) is not None:
        return f"{start}still rising at {best}" if start else f"Still rising at {best}"
    if is_only_size_allowed(result):
        return f"{start}nothing to compare" if start else "Nothing to compare"
    if is_nothing_compared(result):
        return f"{start}no comparison yet"
    if not found.is_decided or may_fall_further(result):
        return f"{start}no single number yet" if start else "No single number yet"
    if is_number_open(result):
        return f"{start}{_rows_held_in_words(result)[0]}{_not_compared_in_words(result)}"
    title = f"{best}{_range_in_words(result)}{_not_compared_in_words(result)}"
    return f"{start}{title}" if start else f"{title[:1].upper()}{title[1:]}"


def answer(result: Findings) -> str:
    """Return the answer of a search in one sentence, for any kind of evidence: the best size and its probability."""
    if result.by_prediction and result.recommended is not None:
        return f"{_unfinished(result)}{result.recommended.describe()}"
    if not result.evaluator.nested:
        return f"{best_estimate(result)}."
    best, kind = result.best_size, result.default_kind
    table = posterior(result.certified() if kind == "certified" else result.diminishing())
    if not table.is_vacuous:
        row = max(table.rows[:-1], key=lambda row: row.probability_lower)
        low, high = format_probability(row.probability_lower), format_probability(row.probability_upper)
        has = "has" if verb_of_size(result, row.size or ()) == "is" else "have"
        return f"{size_in_words(result, row.size or ())} {has} probability {low} to {high} ({table.basis})."
    has = "has" if verb_of_size(result, best) == "is" else "have"
    return (
        f"No size can be singled out under {kind} bounds {OF_FITS}; {size_in_words(result, best)} {has} the largest "
        f"prior × {result.settings.evidence} evidence of the sizes tried."
    )


def _advice_for_chains(result: Findings) -> str:
    """Return what to do where chains have not settled: more time helps only a search that was cut
    off.
    """
    if result.is_finished and result.settings.max_size is not None and limit_in_words(result) is not None:
        return (
            "The largest size may be too small for these data, and chains then hardly move: raise max_size, or compare "
            'with evidence="annealed"'
        )
    if result.is_finished:
        return 'Chains of this length do not answer: compare with evidence="annealed"'
    return 'Give the search more time (seconds=), or compare with evidence="annealed"'


def _advice_for_errors(result: Findings) -> str:
    """Return what to do where standard errors are too large: more time helps only a search that was cut short."""
    if not result.is_finished:
        return "Give the search more time (seconds=), or more data"
    if all(visit.annealed is None for visit in result.visits):
        return "Give evidence with smaller standard errors"
    return f"Search again with starts={2 * result.settings.starts} (it was {result.settings.starts}), or with more data"


def probability_in_words(result: Findings) -> str:
    """Return the probability of the best size in words, and the two numbers between which an exact one would lie.

    The two numbers are the 5 % and 95 % points of the probability under the errors of the evidence.

    If the evidence cannot decide between sizes, or compares none, the words say so and what to do.
    """
    found = result.estimated
    if is_only_size_allowed(result):
        return (
            f"none: {size_in_words(result, found.best)} {verb_of_size(result, found.best)} the only size allowed. "
            f"Allow more ({'prior' if excludes_larger_sizes(result) else 'max_size'}=)"
        )
    if is_nothing_compared(result):
        return (
            f"none yet: {size_in_words(result, found.best)} {verb_of_size(result, found.best)} the only size measured. "
            "Give the search more time (seconds=)"
        )
    if may_fall_further(result):
        return (
            f"none yet: the evidence already falls at {_smallest_measured(result)}, and smaller numbers were not "
            "measured. Give the search more time (seconds=)"
        )
    if not found.is_decided and result.partitions is not None:
        return (
            f"none yet: after {result.partitions.sweeps} sweeps of each chain R-hat is {result.partitions.rhat:.2f}, "
            f"expected at most {MOST_RHAT}, and the largest Monte Carlo error {result.partitions.largest_error:.3f}, "
            f"expected at most {result.partitions.precision:g}. {_advice_for_chains(result)}"
        )
    if not found.is_decided:
        return (
            f"none yet: standard errors of {sizes_in_words(found.unsettled)} are too large, above {SETTLED:g} nats, to "
            f"give any size a probability. {_advice_for_errors(result)}"
        )
    if gives_number_in_use(result):
        assert result.partitions is not None
        best, (_, _, chance) = _best(result), result.partitions.occupied_summary()
        noun = component_name(result)
        return (
            f"{format_probability(chance)} that {size_in_words(result, best)} {verb_of_size(result, best)} in use. The "
            f"model's size, the number of {noun}s that could be used, is "
            f"{first_to_last(found.indistinguishable)} (95 %)"
        )
    if may_rise_further(result):
        return (
            f"none yet: the evidence still rises at {size_in_words(result, found.best)}, and larger sizes were not "
            "tried. Give the search more time (seconds=)"
        )
    row = found.sizes.index(found.best)
    mean, low, high = (
        format_probability(float(values[row]))
        for values in (found.probability, found.probability_lower, found.probability_upper)
    )
    size = size_in_words(result, found.best)
    if low == high:  # the evidence is exact, or its errors do not matter
        return f"{mean} for {size}"
    return (
        f"{mean} for {size}. The computation has random errors; an exact one would give between {low} and {high}, with "
        "90 % probability"
    )


def limit_in_words(result: Findings) -> str | None:
    """Return a warning if a size that may be the best is at the largest size allowed; otherwise None."""
    if result.evaluator.nested or result.by_prediction:
        return None
    allowed = _largest_compared(result)
    if allowed is None:
        return None
    if any(size == most for sizes in _together(result) for size, most in zip(sizes, allowed, strict=True)):
        end, most = f"{size_text(allowed)} is the largest size", largest_tabulated(result.prior.dimension)
        if allowed == result.settings.max_size:
            return f"{end} allowed: raise it to see whether more would be better"
        # the end of the chains' own table: as long as it can be, or where the prior leaves little beyond
        other = 'take evidence="annealed"' if max(allowed) == most else "give a larger one (max_size=)"
        return f"{end} compared: {other} to see whether more would be better"
    return None


def _largest_compared(result: Findings) -> Size | None:
    """Return the largest size that the search could choose; None if the prior gives no larger one any probability.

    It is the largest size allowed, or the end of the table over sizes that chains over partitions have.
    """
    most = result.settings.max_size if result.partitions is None else result.partitions.probability.shape
    if most is None:
        return None
    log_allowed = result.prior.log_box((1,) * len(most), tuple(number + 1 for number in most))
    return most if log_allowed < -NOTHING else None


def bounds_in_words(result: Findings, kind: str) -> str:
    """Return the bounds on log p(data) and their assumption in words, without a full stop.

    kind: "certified" (proved bounds) or "diminishing" (bounds that assume diminishing gains).
    """
    if kind == "diminishing":
        found = result.diminishing()
        if found.still_rising:
            seen = "".join(f". The assumption failed: {violation.describe()}" for violation in found.violations)
            proved = f"that proved {OF_FITS}" if found.of_fits else "the certified one"
            return f"{found.basis}: gains are still rising, so there is no upper end yet but {proved}{seen}"
        return found.describe().rstrip(".")
    found = result.certified()
    low, high = (_nats(end) for end in (found.log_lower, found.log_upper))
    between = f"log p(data) between {low} and {high} nats"
    if not found.of_fits:
        return f"certified, no assumption: {between}, too far apart to prove anything about a size"
    outside = format_probability(math.exp(min(found.log_unvisited_prior, 0.0)))
    return f"{found.basis}, {NOT_OF_SIZES}: {between}; unvisited sizes hold {outside} of the prior"


def _nats(value: float) -> str:
    """Return a number of nats as text: whole numbers from 1,000 on, two decimals below, and a true minus sign."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}").replace("-", "−")
