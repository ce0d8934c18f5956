"""Compare sizes, by the fits that a search kept, on held-out documents or rows, paired unit by unit.

The comparison is a second opinion on the number of components. It shares neither the prior nor the variational bound
with the search.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lvsearch.data.base import Data, Nouns
from lvsearch.data.kinds import decode_data
from lvsearch.files.storage import CorruptFolderError, read_folder
from lvsearch.results.findings import SAMPLES, Findings
from lvsearch.results.wording import unit_name
from lvsearch.sizing.words import size_text

WITHIN = 0.02
"""Nats per token (or cell) within which a size counts as predicting as well as the best."""
CONTENT = "held-out data"


def held_out_comparison(result: Findings, test: Any, *, samples: int = SAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return a table of log p(test | parameters) at each size, and its paired difference to the most probable size.

    result: a search over a model.
    test: units that the search did not see: documents over the training vocabulary, or rows with the training columns.
    samples: the number of importance samples per unit, for models whose likelihood needs sampling.
    seed: the seed of these samples.

    Returns a row per size whose fit was kept, in increasing order. Scores are in nats per token of documents, or per
    observed cell of rows (then the columns end in `_per_cell`):

    - one column per size variable (`size` if there is one);
    - `log_p_per_token` and its `monte_carlo_error`;
    - `difference_per_token`: the score minus that of the most probable size;
    - `standard_error`: of this difference over units. Pairing cancels what makes a unit hard for every size. How much
      another fit of the same size would differ is not included;
    - `estimator`: how log p was computed. Topic models use annealed importance sampling, mixtures of rows a closed
      form, and models with one latent variable per unit an exact sum. For other models the score is a variational lower
      bound, and the column says so. More components may loosen a bound without worsening the prediction.

    `.attrs` holds `reference` (the most probable size), `size_names`, `unit` (what sizes count), `nouns` (what the test
    data are called), `n_units`, `n_observations` and `estimator`.

    Raises ValueError for a search over a plain function, data with other words or columns, fewer than two units, and
    test data with nothing observed.
    """
    if result.training is None:
        raise ValueError("got a search over a plain function, which has no data and no models: nothing can be held out")
    data = require_comparable(result.training.like_this(test))
    nouns, n_units, n_observations = data.nouns, data.n_units, data.n_observations
    reference = result.best_size
    sizes = sorted({size for size, fit in result.state.kept.items() if fit.state is not None} | {reference})
    scores = result.score_units_by_size(data, sizes, samples, seed)
    names = ("size",) if result.prior.dimension == 1 else tuple(result.evaluator.size_names)
    score_name, difference_name = _columns(nouns)
    rows = []
    # the standard error of a sum over units is √n times the sample standard deviation of the paired differences
    for size in sizes:
        difference = scores[size].per_unit - scores[reference].per_unit
        rows.append(
            {
                **dict(zip(names, size, strict=True)),
                score_name: float(scores[size].per_unit.sum()) / n_observations,
                "monte_carlo_error": scores[size].monte_carlo_error / n_observations,
                difference_name: float(difference.sum()) / n_observations,
                "standard_error": float(np.std(difference, ddof=1) * np.sqrt(n_units)) / n_observations,
                "estimator": scores[size].method,
            }
        )
    frame = pd.DataFrame(rows)
    frame.attrs = {
        "reference": reference,
        "size_names": names,
        "unit": unit_name(result),
        "nouns": nouns,
        "n_units": n_units,
        "n_observations": n_observations,
        "estimator": scores[reference].method,
    }
    return frame


def comparable(test: Data) -> bool:
    """Return True if sizes can be compared on `test`: it has at least two units and at least one observation."""
    return test.n_units > 1 and test.n_observations > 0


def require_comparable(test: Data) -> Data:
    """Return `test` itself. Raises ValueError unless it has at least two units and one observation.

    Fewer data would give a difference between sizes without a standard error.
    """
    if not comparable(test):
        nouns = test.nouns
        raise ValueError(
            f"got {test.n_units} held-out {nouns.unit}(s) with {test.n_observations} {nouns.observations}, expected at "
            f"least two {nouns.units} with {nouns.observations}, so that a difference has an error"
        )
    return test


def agreement(comparison: pd.DataFrame) -> str:
    """Return a sentence, without a full stop, that says whether held-out data agree with the most probable size.

    They agree if the size that predicts best is better by at most `WITHIN`, one standard error included. They disagree
    if it is better by more than `WITHIN` with one standard error taken off. Otherwise these data cannot tell.

    comparison: a table from `held_out_comparison`.
    """
    names, reference = list(comparison.attrs["size_names"]), comparison.attrs["reference"]
    nouns = comparison.attrs["nouns"]
    score_name, difference_name = _columns(nouns)
    best = comparison.loc[comparison[score_name].idxmax()]
    top = tuple(int(best[name]) for name in names)
    chosen = comparison[(comparison[names] == list(reference)).all(axis=1)].iloc[0]
    score = f"{chosen[score_name]:.4f} nats per {nouns.observation}".replace("-", "−")
    of = f"of the {len(comparison)} sizes kept, on {comparison.attrs['n_units']:,} {nouns.units}"
    if top == reference:
        return f"agrees: {size_text(reference)} predicts best {of} ({score}; {comparison.attrs['estimator']})"
    gain, error = float(best[difference_name]), float(best["standard_error"])
    if gain + error <= WITHIN:
        verdict = "agrees within"
    elif gain - error > WITHIN:
        verdict = "disagrees by more than"
    else:
        verdict = f"cannot tell on {comparison.attrs['n_units']:,} {nouns.units} whether sizes differ by more than"
    return (
        f"{verdict} {WITHIN} nats per {nouns.observation}: {size_text(top)} predicts best {of}, {gain:.4f} ± "
        f"{error:.4f} above {size_text(reference)} ({score}; {comparison.attrs['estimator']}; ± over {nouns.units}, "
        "not over fits)"
    )


def load_held_out(training: Data, folder: Path) -> Data | None:
    """Return the held-out data in a folder, where earlier versions kept them; None if there is no such folder.

    training: the training data, whose words or columns the held-out data must share.
    folder: the folder of the held-out data.
    Raises ValueError if the folder is damaged or in an earlier format, or if its data have other words or columns.
    """
    if not folder.is_dir():
        return None
    body, groups = read_folder(folder)
    try:
        if body["content"] != CONTENT:
            raise CorruptFolderError(
                f"{folder} holds {body['content']!r}, expected {CONTENT!r}: an earlier version wrote it. Remove it to "
                "go on without held-out data"
            )
        return training.like_this(decode_data(body["data"], groups["held-out"], folder))
    except KeyError as error:
        raise CorruptFolderError(f"{folder} holds no held-out data ({error}); restore it from a copy") from error


def _columns(nouns: Nouns) -> tuple[str, str]:
    """Return the names of the two columns of scores, such as ("log_p_per_token", "difference_per_token").

    nouns: the words for the parts of the data, among them the noun of an observation.
    """
    return f"log_p_per_{nouns.observation}", f"difference_per_{nouns.observation}"
