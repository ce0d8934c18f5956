"""The file of log evidence: its problems are those of the page, and it says what closed forms and chains say."""

import os
from pathlib import Path

import log_evidence
import numpy as np
import pandas as pd
import pytest
from scipy.special import betaln, gammaln, multigammaln

ROOT = Path(__file__).parents[2]
FILE = pd.read_csv(ROOT / "docs" / "static" / "log_evidence.csv")
ROUNDING = 0.0006


def check_size_1(problem: str, closed_form: float) -> None:
    """The file has this log p(data | size 1), within three standard errors where it is an estimate."""
    first = FILE[FILE["problem"] == problem].iloc[0]
    assert first["size"] in ("1", "1 x 1")
    assert first["standard_error"] < 0.01
    assert first["log_evidence"] == pytest.approx(closed_form, abs=3 * first["standard_error"] + ROUNDING), problem


def log_beta_bernoulli(cells: np.ndarray) -> float:
    """log p(cells) with one Bernoulli(p) for each column, p ~ Beta(1, 1)."""
    ones = cells.sum(0)
    return float(betaln(1 + ones, 1 + len(cells) - ones).sum())


def log_dirichlet_multinomial(counts: np.ndarray, concentration: float) -> float:
    """log p(labels in their order) with probabilities ~ Dirichlet(concentration, …), summed over leading axes."""
    total = concentration * counts.shape[-1]
    each = gammaln(concentration + counts).sum(-1) - counts.shape[-1] * gammaln(concentration)
    return float((each + gammaln(total) - gammaln(total + counts.sum(-1))).sum())


def log_normal_gamma(rows: np.ndarray) -> float:
    """log p(rows) of independent columns with τ ~ Gamma(2, 1/2), μ | τ ~ Normal(0, 1/(0.1 τ))."""
    n, kappa, shape, rate = len(rows), 0.1, 2.0, 0.5
    means, squares = rows.mean(0), ((rows - rows.mean(0)) ** 2).sum(0)
    after = rate + 0.5 * squares + 0.5 * kappa * n * means**2 / (kappa + n)
    each = gammaln(shape + n / 2) - gammaln(shape) + shape * np.log(rate) - (shape + n / 2) * np.log(after)
    return float((each + 0.5 * np.log(kappa / (kappa + n)) - 0.5 * n * np.log(2 * np.pi)).sum())


def log_normal_wishart(rows: np.ndarray) -> float:
    """log p(rows) with Λ ~ Wishart(D + 3, (0.5 I)⁻¹), μ | Λ ~ Normal(0, (0.1 Λ)⁻¹)."""
    (n, d), kappa = rows.shape, 0.1
    degrees = d + 3
    mean, centred = rows.mean(0), rows - rows.mean(0)
    before = 0.5 * np.eye(d)
    after = before + centred.T @ centred + kappa * n / (kappa + n) * np.outer(mean, mean)
    log_determinants = 0.5 * degrees * np.linalg.slogdet(before)[1] - 0.5 * (degrees + n) * np.linalg.slogdet(after)[1]
    gammas = multigammaln((degrees + n) / 2, d) - multigammaln(degrees / 2, d)
    return float(-0.5 * n * d * np.log(np.pi) + 0.5 * d * np.log(kappa / (kappa + n)) + gammas + log_determinants)


def test_size_1_of_data_at_hand_has_the_closed_form() -> None:
    rows = {name: log_evidence.PROBLEMS[name].data() for name in ("iris", "wine", "women")}
    known = {
        "iris": log_normal_wishart(rows["iris"]),
        "iris-tied": log_normal_wishart(rows["iris"]),
        "iris-diagonal": log_normal_gamma(rows["iris"]),
        "wine": log_normal_gamma(rows["wine"]),
        "women": log_beta_bernoulli(rows["women"].reshape(-1, 1)),
    }
    for name, value in known.items():
        check_size_1(name, value)


@pytest.mark.skipif("LVSEARCH_DATA" not in os.environ, reason="LVSEARCH_DATA names no folder of corpora")
def test_size_1_of_public_data_has_the_closed_form() -> None:
    for name in ("carcinoma", "values"):
        cells = log_evidence.PROBLEMS[name].data()
        check_size_1(name, log_beta_bernoulli(cells))
    check_size_1("faithful", log_normal_wishart(log_evidence.faithful()))
    words = np.asarray(log_evidence.first_abstracts().counts.sum(0)).reshape(1, -1)
    check_size_1("abstracts", log_dirichlet_multinomial(words, 0.05))


def test_the_page_the_script_and_the_file_have_the_same_problems() -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    head, problems, *_ = page.split("\n## ")
    first_cells = [
        [line.split("|")[1].replace("`", "") for line in part.splitlines() if line.startswith("| `")]
        for part in (head, problems)
    ]
    columns, listed = ([name for cell in cells for name in cell.replace(",", " ").split()] for cells in first_cells)
    assert columns == list(FILE.columns)
    assert listed == list(log_evidence.PROBLEMS) == list(dict.fromkeys(FILE["problem"]))


def test_chains_over_partitions_say_the_same() -> None:
    """A difference beyond four joint standard errors in some fifty is no chance."""
    for _, of_problem in FILE.dropna(subset="log_ratio").groupby("problem", sort=False):
        best = of_problem["log_ratio"].to_numpy().argmax()
        value, error = (of_problem[name].to_numpy() for name in ("log_evidence", "standard_error"))
        difference = value - value[best] - of_problem["log_ratio"].to_numpy()
        joint = np.sqrt(error**2 + error[best] ** 2 + of_problem["ratio_error"].to_numpy() ** 2)
        assert np.all(np.abs(difference) < 4 * joint), of_problem
