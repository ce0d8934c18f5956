"""What this project claims, as rows: a question, the script that answers it, the figure on record and its bar.

`reproduce.py` runs them. `documented` is a quotation from README.md of this folder, word for word (tested).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One row of the page that `reproduce.py` writes.

    | field | meaning |
    |---|---|
    | `question` | what is asked, as a person would |
    | `script` | the file in this folder that answers |
    | `quick` | its arguments for a small problem, or None where none is small enough |
    | `full` | its arguments for the problem of the figure on record |
    | `figure` | a regular expression: the lines of the output that hold the answer |
    | `documented` | the figure on record, quoted; "" where none is |
    | `bar` | what the figure should reach; "" where none was set |
    | `needs` | corpora (`data:cora`) and packages (`package:gensim`) without which it cannot run |
    | `full_needs` | more of them, for the full run alone |
    | `quick_seconds`, `full_minutes` | the time after which a run is ended |
    """

    question: str
    script: str
    quick: tuple[str, ...] | None
    full: tuple[str, ...]
    figure: str
    documented: str = ""
    bar: str = ""
    needs: tuple[str, ...] = ()
    full_needs: tuple[str, ...] = ()
    quick_seconds: float = 60.0
    full_minutes: float = 60.0


def words(text: str) -> tuple[str, ...]:
    """Return the arguments of a command line, which hold no quotes."""
    return tuple(text.split())


TABLE_LINE = r"^\| (?!-)(?=.*\d).*\|$"
"""A line of a Markdown table that holds a number."""
HELD = "95 % sets hold the truth as often as they say (in brackets)"

CALIBRATED = {
    "topics-hard": (200, "| `topics-hard` | annealed | 200 | 94.0 % (93.8) | 96.5 % (96.9) | 98.0 % (98.2) |", 300),
    "topics-easy": (200, "| `topics-easy` | annealed, second path | 200 | 100 % (99.9) | 100 % (99.9) |", 480),
    "known-overlapping": (100, "| `known-overlapping` | along the rows | 100 | 92.0 % (88.0) | 98.0 % (94.3) |", 30),
    "diagonal-overlapping": (100, "| `diagonal-overlapping` | along the rows | 100 | 87.0 % (87.5) |", 30),
    "diagonal-separated": (100, "| `diagonal-separated` | along the rows | 100 | 94.0 % (89.9) | 99.0 % (96.3) |", 30),
    "full-overlapping": (100, "| `full-overlapping` | along the rows | 100 | 92.0 % (87.6) | 96.0 % (94.0) |", 30),
    "full-separated": (100, "| `full-separated` | along the rows | 100 | 91.0 % (90.2) | 97.0 % (95.9) |", 30),
    "bernoulli-overlapping": (100, "| `bernoulli-overlapping` | along the rows | 100 | 88.0 % (86.9) |", 60),
    "bernoulli-separated": (100, "| `bernoulli-separated` | along the rows | 100 | 92.0 % (90.4) |", 90),
    "multinomial-overlapping": (100, "| `multinomial-overlapping` | along the rows | 100 | 94.0 % (90.4) |", 30),
    "multinomial-separated": (100, "| `multinomial-separated` | along the rows | 100 | 93.0 % (90.4) |", 30),
    "process-overlapping": (250, "| `process-overlapping` | `lv.occupied` | 250 | 82.8 % (86.4) | 92.0 % (93.8) |", 30),
    "process-separated": (100, "| `process-separated` | `lv.occupied` | 100 | 90.0 % (90.2) | 96.0 % (96.2) |", 30),
    "features": (100, "| `features` | annealed | 100 | 87.0 % (89.5) | 96.0 % (96.0) | 99.0 % (99.8) |", 30),
    "hidden-markov": (
        34,
        "| `hidden-markov` | annealed in time | 34 | 91.2 % (92.7) | 97.1 % (96.0) | 100 % (98.4) |",
        60,
    ),
    "hidden-markov-long": (
        44,
        "| `hidden-markov-long` | annealed in time | 44 | 93.2 % (95.3) | 95.5 % (97.3) | 97.7 % (98.6) |",
        60,
    ),
    "block-model": (69, "| `block-model` | annealed | 69 | 85.5 % (87.0) | 94.2 % (93.5) | 95.7 % (96.8) |", 120),
    "tied-overlapping": (30, "| `tied-overlapping` | annealed | 30 | 86.7 % (86.7) | 93.3 % (94.4) |", 60),
    "noisy-counts": (24, "| `noisy-counts` | annealed | 24 | 79.2 % (90.0) | 95.8 % (96.7) | 100 % (98.1) |", 60),
}
"""Further regimes of `calibration.py` for the full run: sets, the figure on record, minutes."""

CALIBRATED_CHAINS = {
    "known-overlapping": (100, "| `known-overlapping` | chains over partitions | 100 | 92.0 % (88.1) |", 10),
    "known-separated": (100, "| `known-separated` | chains over partitions | 100 | 95.0 % (90.1) |", 10),
    "diagonal-overlapping": (100, "| `diagonal-overlapping` | chains over partitions | 100 | 88.0 % (88.3) |", 10),
    "diagonal-separated": (100, "| `diagonal-separated` | chains over partitions | 100 | 94.0 % (90.4) |", 10),
    "full-overlapping": (100, "| `full-overlapping` | chains over partitions | 100 | 93.0 % (87.4) |", 10),
    "full-separated": (100, "| `full-separated` | chains over partitions | 100 | 91.0 % (90.2) |", 10),
    "bernoulli-separated": (100, "| `bernoulli-separated` | chains over partitions | 100 | 93.0 % (90.7) |", 20),
    "block-model": (69, "| `block-model` | chains over partitions | 69 | 87.0 % (86.4) | 94.2 % (93.7) |", 30),
    "full-gaps": (60, "| `full-gaps` | chains over partitions | 60 | 90.0 % (88.6) | 95.0 % (94.4) |", 40),
    "tied-gaps": (42, "| `tied-gaps` | chains over partitions | 42 | 88.1 % (87.3) | 95.2 % (94.9) |", 60),
}
"""The same for the default search of mixtures of rows, by chains over partitions."""


def calibration_claim(regime: str, sets: int, documented: str, minutes: float) -> Claim:
    """Return the claim that the ranges of one kind of simulated data hold the truth as often as they say."""
    evidence = documented.split(" | ")[1]
    beside = " --beside annealed" if evidence in ("along the rows", "annealed") else ""
    return Claim(
        f"Do ranges hold the true number as often as they say: {regime}, {evidence}?",
        "calibration.py",
        None,
        words(f"{regime} --sets {sets}{beside}"),
        r"sets hold the truth|ranks uniform",
        documented,
        HELD,
        full_minutes=minutes,
    )


CLAIMS = (
    Claim(
        "How long does `import lvsearch` take beside `import jax`?",
        "import_time.py",
        words("--runs 3"),
        words("--runs 9"),
        "^lvsearch over jax",
        bar="at most 1.2 times as long",
        quick_seconds=30,
        full_minutes=5,
    ),
    Claim(
        "How long is the first fit of a process, with nothing compiled and with programs kept?",
        "first_call.py",
        words("--models LDA"),
        (),
        TABLE_LINE,
        "| `LDA` | 2.6 (0.8) | 1.4 (0.5) | 0.04 (0.02) |",
        "3 s and 1 s",
        quick_seconds=40,
        full_minutes=15,
    ),
    Claim(
        "How probable are well-known data at several sizes, from below and from above?",
        "log_evidence.py",
        None,
        (),
        r"^ *(carcinoma|galaxy|iris|women) ",
        bar="docs/benchmark.md has the same within three standard errors",
        full_needs=("data:cora", "data:dpmix", "data:latent_class"),
        full_minutes=120,
    ),
    Claim(
        "What are the posteriors of LDA in posteriordb, which has no reference draws of them?",
        "posteriordb.py",
        None,
        words("three_docs1200"),
        r"^exact log evidence|^in random order|^a reference|^no reference",
        documented="| `three_docs1200` | −588.202 |",
        bar="R-hat at most 1.01",
    ),
    Claim(
        "How long is the first search of a mixture in a process, by chains over partitions, and how precise is it?",
        "first_call.py",
        None,
        words("--searches"),
        TABLE_LINE,
        bar="10 s and 5 s of the processor, Monte Carlo error at most .02",
        full_needs=("data:dpmix",),
        full_minutes=40,
    ),
    Claim(
        "Do ranges hold the true number as often as they say: clusters of known width?",
        "calibration.py",
        words("known-separated --sets 6 --beside annealed"),
        words("known-separated --sets 100 --beside annealed"),
        r"sets hold the truth|ranks uniform",
        "| `known-separated` | along the rows | 100 | 94.0 % (90.6) | 98.0 % (96.4) | 98.0 % (98.2) |",
        HELD,
        full_minutes=30,
    ),
    Claim(
        "Do answers hold where models, shapes and priors are drawn at random?",
        "random_regimes.py",
        words("--sets 3 --families bernoulli known diagonal --seed 0"),
        words("--sets 500"),
        r"^all:|without an answer",
        bar="95 % sets hold the truth as often as expected; rms z within .9 and 1.1",
        full_minutes=240,
    ),
    Claim(
        "How often is the number of clusters that a search finds by default the planted one?",
        "planted_clusters.py",
        words("--tables 1 --most-rows 300"),
        words("--tables 40"),
        r"^\d+ tables",
        bar="the 95 % range holds it at least 95 times in 100",
        full_minutes=240,
    ),
    Claim(
        "The same where a tenth of the cells is missing, under full covariances?",
        "planted_clusters.py",
        None,
        words("--gaps --tables 5"),
        r"^\d+ tables",
        full_minutes=30,
    ),
    Claim(
        "How many named topics are found, with few imaginary tokens of their words and with many?",
        "seed_tokens.py",
        words("--documents 200 --tokens 100 6 --sizes 5 --corpora 3"),
        (),
        TABLE_LINE,
        "| 200 | 6 | 20 of 20 | 13 of 20 | 4 of 20 |",
        full_minutes=10,
    ),
    Claim(
        "How often is the number of topics that a search finds by default the planted one, on 100,000 words?",
        "planted_sizes.py",
        None,
        words("--corpora 40 --seed 200"),
        r"^\d+ corpora",
        "| 200 to 239 | b894607 to 211, then 439cae7: every fit made anew | 40 (100 %) | 38 | 0 | 0 (11 %) |",
        "the 95 % range holds it at least 95 times in 100",
        full_minutes=180,
    ),
    Claim(
        "Does a pass grow no faster than tokens × K?",
        "growth.py",
        words("--scales 1 --topics 25 --repeats 1 --passes 1"),
        (),
        r"× linear in tokens|^ *\d+ .*\d$",
        "No pass grows faster than tokens × K (at most 1.00 × linear): met.",
        "at most 1.2 × linear (not to be seen at one scale)",
        full_minutes=30,
    ),
    Claim(
        "How much memory does a fit take, and is it what the plan says?",
        "memory.py",
        words("--scale 1 --topics 30"),
        (),
        "^the fit|^planned",
        "the plan says 1,375 MiB, the fit took 1,392 MiB: met (within 25 %)",
        "plan within 25 % (a small fit is mostly other memory)",
        full_minutes=15,
    ),
    Claim(
        "Mixtures along their rows and along temperatures: where do the two ends meet?",
        "along_rows.py",
        words("--rows 100 --sizes 2 --temperatures 48"),
        (),
        TABLE_LINE,
        "| 2 | −1,244.5, −1,231.3 | 4.7 | −1,237.9, −1,237.4 | 1.2 |",
        full_minutes=10,
    ),
    Claim(
        "Are published maxima of latent classes reached, by what share of starts?",
        "latent_classes.py",
        words("--starts 3"),
        words("--starts 100"),
        "published",
        "| carcinoma | 2, 3, 4 | −317.2568, −293.705, −289.2858 | the same | 100 %, 100 %, 14 % | 0.05, 0.05, 0.07 |",
        "the published maximum",
        needs=("data:latent_class",),
    ),
    Claim(
        "How wide is the bracket on Cora's evidence, after how many seconds?",
        "cora_bracket.py",
        words("--topics 12 --temperatures 20"),
        (),
        r"^ +\d+ +[\d.]+ +-",
        "| 20 | .7 | −852,019 | −845,683 |",
        needs=("data:cora",),
        full_minutes=20,
    ),
    Claim(
        "Plug-in evidence: how many fits of a size until the best is as good as any?",
        "plug_in_starts.py",
        words("--seeds 1 --starts 2"),
        (),
        "fits: within|: best",
        "| nothing shared | 85 % | 100 % | 85, 100, 100 % | 85, 100, 100, 100 % | 1.0 |",
        full_minutes=20,
    ),
    Claim(
        "How often do changed files end in anything but an answer or one line?",
        "faults.py",
        words("--only files --files 60"),
        words("--seed 23"),
        TABLE_LINE,
        "| **all** | 8,236, 8,235 | 0, 0 | 0, 0 | 0, 0 |",
        "0 lost, 0 wrong, 0 unexplained",
        full_minutes=120,
    ),
    Claim(
        "Does the size that holds over the longest stretch of units survive models that are wrong on purpose?",
        "robustness.py",
        words("normal --sets 1"),
        words("normal --sets 16"),
        "longest stretch",
        "| `normal` | 16 | 100 % | 100 % | 0 | 75 % | 100 % | 2.6 | −0.44 | 6 + 9 |",
        full_minutes=60,
    ),
    Claim(
        "Is a component that persists a true one, and does it come back as often as it says?",
        "persistence.py",
        words("graded --sets 1 --bootstraps 5"),
        words("graded --sets 60"),
        TABLE_LINE,
        ".9 and more | 187 | .97 | .96 | .86 | **.97** |",
        full_minutes=60,
    ),
    Claim(
        "What does a search over K = 1 … 60 cost beside one fit, and are its fits as good?",
        "size_search.py",
        words("--max-size 4 --sizes 2 4"),
        (),
        r"^ratio|over their median",
        "**ratio 15.1**",
        "a ratio of 3, and fits no worse than three from scratch",
        needs=("data:cora",),
        full_minutes=30,
    ),
    Claim(
        "How many clusters are in tables whose clusters are known?",
        "cluster_tables.py",
        None,
        words("iris"),
        "the default|auto:|robust:",
        "| iris | 3 | 2 full, .57 | 5, .60 | 3 (3–5), .90, −297 |",
        full_minutes=30,
    ),
    Claim(
        "How fast and how good are topics beside scikit-learn, gensim and tomotopy?",
        "topics_vs_peers.py",
        words("--corpus docstrings --topics 5 --snapshots 2 --samples 4 --no-gibbs --peers tomotopy"),
        words("--corpus ap --topics 100 --repeats 3 --no-gibbs"),
        r"\bratio\b|^ +(tomotopy|sklearn|gensim) .*±",
        "| AP, K = 100: to reach tomotopy's 500 sweeps (13.4 s) | 0.169 | 0.214 | 0.419 | 1/3: met |",
        "a third of tomotopy's time, a twentieth of scikit-learn's",
        needs=("package:gensim", "package:tomotopy"),
        full_needs=("data:ap",),
        full_minutes=90,
    ),
    Claim(
        "Is LDA ahead of tomotopy on documents of 50, 200 and 1,300 tokens?",
        "topic_grid.py",
        words("--tokens 50 --topics 20 --snapshots 2 --samples 5"),
        (),
        TABLE_LINE,
        "| 50 | 50 | 8.3 | 1.1 | .13 | +.0971 ± .0044 (120 passes; 4,000 sweeps) |",
        "a ratio of 1/3, and a best that is as good as its best of 60 s",
        needs=("package:tomotopy",),
        full_minutes=180,
    ),
    Claim(
        "How good are HDP topics beside tomotopy and gensim after the same time?",
        "hdp_vs_peers.py",
        None,
        (),
        r"±|nothing of ours",
        "tomotopy's 100, 200, 500, 1,000 sweeps +0.203, +0.302, +0.304, +0.308 (each ± .02)",
        needs=("data:cora", "package:gensim", "package:tomotopy"),
        full_minutes=30,
    ),
    Claim(
        "What do trees of topics reach beside tomotopy's, sweep for sweep and second for second?",
        "hlda_vs_tomotopy.py",
        words("--sweeps 10 --seeds 1"),
        words("--sweeps 10 30 100 300 1000 --seeds 3"),
        r"^ +\d+ +[+-]",
        "| 100 | −6.131 | 0.46 | −5.994 | 3.16 | +0.136 | 0.50 |",
        needs=("data:jacm", "package:tomotopy"),
        full_minutes=20,
    ),
    Claim(
        "How fast are hidden Markov models beside hmmlearn and dynamax, and do likelihoods agree?",
        "hidden_markov_vs_peers.py",
        None,
        (),
        "same parameters|^lvsearch|^hmmlearn|^dynamax",
        "| lvsearch (mean field), float64 | 7.0 | 1 |",
        needs=("package:hmmlearn", "package:dynamax"),
        full_minutes=20,
    ),
    Claim(
        "How fast and how good are Dirichlet-process mixtures beside scikit-learn's?",
        "mixtures_vs_sklearn.py",
        words("--rows 2000 --columns 4 --truncation 10 --rounds 1"),
        (),
        "times as long",
        "scikit-learn takes **12.9** and **28.4** times as long",
        "10 times, with a bound as high (on rows enough)",
        full_minutes=40,
    ),
    Claim(
        "How many mutational signatures are named where the noise is not the model's?",
        "signatures.py",
        words("--tumours 60 --planted 3 --largest 6 --ways nmf lda"),
        (),
        "precision",
        "| `PoissonFactorization` with noise (2026-11-27) | **20** | 20 | 1.00 | 1.00 | 469 |",
        "the planted number in the set, precision .9, recall .8",
        full_minutes=120,
    ),
    Claim(
        "How far is annealed evidence of a factorisation, around a fit, from the best known?",
        "hysteresis_around_fit.py",
        words("--tumours 30 --planted 3 --sizes 3 --fits 1"),
        (),
        "share",
        "The share that counts as standard error is .5.",
        full_minutes=40,
    ),
    Claim(
        "How many components do the galaxy velocities support, beside an independent sampler?",
        "galaxy.py",
        None,
        words("--along rows"),
        r"^\d+: |largest difference",
        "−235.29 ± .06 and −226.67 ± .09",
        "−235.25 and −226.68 at 2 and 3 components",
        needs=("data:dpmix",),
        full_minutes=180,
    ),
    Claim(
        "How many topics do real texts have by default, and do several seeds agree?",
        "default_topics.py",
        None,
        (),
        r"^\| \w+, seed",
        "| Cora (136,394 tokens), 0 | 158 topics (5 %); 95 %: 141–177 | 10 | 269 | 270 |",
        "5 minutes, ± 15 %, overlapping",
        full_needs=("data:cora", "data:ap", "data:nematode"),
        full_minutes=180,
    ),
    Claim(
        "How long from a file of 11,000 texts to an answer?",
        "from_file.py",
        words("--documents 300 --words 2000 --tokens 60 --topics 5 --seconds 10 --evidence bound"),
        words("--evidence bound --seconds 420"),
        "planted;|^read",
        "read in 2.4 s, searched for 431.6 s, told in .1 s, peak 1,765 MiB",
        "480 s",
        full_minutes=20,
    ),
    Claim(
        "How long does Corr-LDA take on 11,000 images with 200 factors?",
        "annotation_speed.py",
        None,
        words("--repeats 3"),
        "^CorrLDA",
        "53.6 s with compiling, then 40.9 s and 42.2 s (median 42.2 s; the bar is 180 s)",
        "180 s",
        needs=("data:corel16k",),
        full_minutes=20,
    ),
    Claim(
        "Is memory independent of the number of documents on disk, and what does streaming cost?",
        "out_of_core.py",
        words("--documents 200 --scales 1 2 --topics 8 --words 500 --passes 1"),
        (),
        "bar",
        "1,139 ns a token and pass from disk, 1,165 in memory",
        "20 % more time, 10 % more memory",
        full_minutes=60,
    ),
    Claim(
        "How long do the likelihood estimators take?",
        "likelihood_speed.py",
        words("mfi --documents 200"),
        (),
        "nats per token",
        full_minutes=20,
    ),
    Claim(
        "Do the likelihood estimators' stated errors hold, and what does each cost?",
        "document_likelihood_coverage.py",
        None,
        (),
        r"^\S+ .*\d$",
        full_minutes=60,
    ),
    Claim(
        "Do chains of lv.sample agree by default, on data where they mix slowly?",
        "default_draws.py",
        words("galaxies"),
        words("--seeds 0 1"),
        TABLE_LINE,
        "| galaxies | `weak` | 0 | 1.164 | 22 | 1.014 | 507 | 16 |",
        "R-hat by default at most 1.02",
        needs=("data:dpmix",),
        full_minutes=10,
    ),
    Claim(
        "What does an evidence of a given precision cost, from_numpyro beside BlackJAX's tempered SMC?",
        "numpyro_vs_blackjax.py",
        None,
        words("--seeds 24"),
        TABLE_LINE,
        "| lvsearch | 12.7 | 2.26 | -100.40 | 0.063 | 0.0090 |",
        "no more seconds than BlackJAX at equal error",
        needs=("package:blackjax",),
        full_minutes=10,
    ),
    Claim(
        "How many steps, one after another, does a sweep over topics take in wide groups?",
        "wide_groups.py",
        words("--corpus cora --topics 64 --sweeps 10"),
        (),
        TABLE_LINE,
        "| cora | 136,394 | 64 | 2,468 | 260 | 99.5 % | 98.8 % |",
        needs=("data:cora",),
        full_needs=("data:ap",),
        full_minutes=10,
    ),
    Claim(
        "Which size does a search by prediction recommend, beside what was planted?",
        "recommended.py",
        None,
        (),
        TABLE_LINE,
        full_minutes=120,
    ),
    Claim(
        "Does search for binary features beat sampling, and at what cost?",
        "feature_search.py",
        None,
        (),
        r"search|Gibbs",
        full_minutes=30,
    ),
    Claim(
        "Which model of documents predicts held-out text best?",
        "perplexity.py",
        None,
        (),
        r"^ *\d+ .*\d$|in all",
        needs=("data:ap", "data:nematode"),
        full_minutes=60,
    ),
    Claim(
        "Does the size of the best mean-field bound predict held-out documents?",
        "cora_sizes.py",
        None,
        (),
        "shortfall within",
        bar="0.02 nats per token",
        needs=("data:cora",),
        full_minutes=40,
    ),
    Claim(
        "How much calibration is lost to an annealing that is a hundred times as long?",
        "long_annealing.py",
        None,
        words("topics-hard --sets 40"),
        "truth",
        "difference +.015 ± .040 nats",
        needs=("package:numba",),
        full_minutes=120,
    ),
    Claim(
        "Does a process that searches again and again grow?",
        "soak.py",
        None,
        words("--minutes 21"),
        "slope|rounds in",
        "slope +5.9 ± 0.7 MiB an hour",
        full_minutes=40,
    ),
    *(
        calibration_claim(regime, *rest)
        for regimes in (CALIBRATED, CALIBRATED_CHAINS)
        for regime, rest in regimes.items()
    ),
)
"""The cheapest first: what the time of a quick run does not reach is left out at the end."""
