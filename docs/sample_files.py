"""The files that the how-tos begin with, small and simulated: python docs/sample_files.py FOLDER

reviews.csv     id, stars, text      short texts of three subjects, most of two
notes.txt       a document a line    for trees: words that all share, and two fields
samples.csv     three columns        rows of three clusters
gaps.csv        the same             with empty cells
pupils.csv      school, two scores   rows in groups
machines.csv    machine, load, heat  sequences of readings, a step missing
regions.csv     image, two features  three regions an image
captions.csv    image, word          a word an image
survey.csv      three questions      answers of two kinds of people, some missing
skewed.csv      two columns          two clusters that lean to one side
errors.csv      twelve kinds         how often each occurred, in forty files; a few never counted
mutations.tsv   kinds of mutations   how often each occurred, a column for each of sixty tumours
signatures.tsv  the same             three signatures: how often each kind is in each
clubs.csv       fourteen clubs       who is in which: two kinds of people, three of clubs
sheep.str       twenty loci          genotypes of forty sheep of two breeds and their crosses, as STRUCTURE has them
cells.csv       a count a gene       three kinds of cells
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

SUBJECTS = (
    "apple pear plum cherry quince",
    "iron tin zinc copper nickel",
    "robin wren finch heron stork",
)


def write(folder: Path) -> None:
    """All files, the same ones for every call."""
    rng = np.random.default_rng(0)
    reviews(folder)
    lines = ["the cat and the dog", "the dog and a cat"] * 5 + ["the tax and the vote", "a vote on the tax"] * 5
    (folder / "notes.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    centres = np.array([[0, 0, 1], [4, 1, -1], [-3, 3, 0.0]])
    samples = centres[rng.integers(0, 3, 90)] + rng.normal(0, 0.4, (90, 3))
    frame = pd.DataFrame(samples, columns=["length", "width", "depth"]).round(3)
    frame.to_csv(folder / "samples.csv", index=False)
    frame.mask(rng.random(frame.shape) < 0.1).to_csv(folder / "gaps.csv", index=False)
    uses = {"east": [0], "north": [0, 1], "south": [1, 2], "west": [2]}  # which kinds of pupils a school has
    pupils = [(school, *row) for school, kinds in uses.items() for row in centres[rng.choice(kinds, 20), :2]]
    scores = pd.DataFrame(pupils, columns=["school", "reading", "numbers"])
    scores[["reading", "numbers"]] += rng.normal(0, 0.4, (len(scores), 2))
    scores.round(3).to_csv(folder / "pupils.csv", index=False)
    images(folder, rng)
    survey(folder, rng)
    machines(folder)
    clubs(folder)
    errors(folder)
    skewed(folder)
    mutations(folder)
    sheep(folder)
    cells(folder)


def sheep(folder: Path) -> None:
    """Fifteen of each breed and ten crosses, two lines each; one genotype in twenty is missing."""
    rng = np.random.default_rng(1)
    frequencies = rng.dirichlet([0.5, 0.5, 0.5], (2, 20))
    lines = [" ".join(f"m{locus}" for locus in range(20))]
    for number in range(40):
        breed, share = ("hill", 0.0) if number < 15 else ("dale", 1.0) if number < 30 else ("cross", 0.5)
        missing = rng.random(20) < 0.05
        for _ in range(2):
            origin = (rng.random(20) < share).astype(int)
            alleles = [100 + 2 * rng.choice(3, p=frequencies[origin[locus], locus]) for locus in range(20)]
            shown = np.where(missing, -9, alleles)
            lines.append(" ".join([f"sheep{number}", breed, *map(str, shown)]))
    (folder / "sheep.str").write_text("\n".join(lines) + "\n", encoding="utf-8")


def cells(folder: Path) -> None:
    """Sixty cells of three kinds and a few between them, thirty genes: few counts, mostly 0."""
    rng = np.random.default_rng(2)
    programmes = rng.dirichlet(np.full(30, 0.1), 3)
    shares = rng.dirichlet(np.full(3, 0.1), 60)
    counts = np.array([rng.multinomial(rng.poisson(60), share @ programmes) for share in shares])
    names = [f"cell{number}" for number in range(60)]
    genes = [f"gene{number}" for number in range(30)]
    pd.DataFrame(counts, names, genes).to_csv(folder / "cells.csv", index_label="cell")


def skewed(folder: Path) -> None:
    """150 rows about two points, their distances from these exponential-like."""
    rng = np.random.default_rng(0)
    values = np.array([[0, 0], [8, 5]])[rng.integers(0, 2, 150)] + rng.gamma(2.0, 1.0, (150, 2))
    pd.DataFrame(values.round(3), columns=["width", "weight"]).to_csv(folder / "skewed.csv", index=False)


def errors(folder: Path) -> None:
    """Forty files and how often twelve kinds of errors occurred in each, from three causes with four kinds each."""
    rng = np.random.default_rng(0)
    causes = np.kron(np.eye(3), [12.0, 6.0, 3.0, 1.0]) + 0.1
    counts = rng.poisson(rng.gamma(0.5, 2.0, (40, 3)) @ causes)
    frame = pd.DataFrame(counts, columns=[f"{cause}{n}" for cause in ("ink", "crop", "skew") for n in range(4)])
    frame.index = pd.Index([f"file{n}" for n in range(40)], name="file")
    frame.mask(rng.random(frame.shape) < 0.03).astype("Int64").to_csv(folder / "errors.csv")


def clubs(folder: Path) -> None:
    """Thirty people of two kinds, four, six and four clubs of three kinds; one cell in twenty is empty."""
    rng = np.random.default_rng(0)
    chance = np.array([[0.95, 0.05, 0.9], [0.05, 0.9, 0.9]])
    people, kinds = rng.integers(0, 2, 30), np.repeat([0, 1, 2], [4, 6, 4])
    joined = (rng.random((30, 14)) < chance[people][:, kinds]).astype(float)
    frame = pd.DataFrame(joined, columns=[f"club{n}" for n in range(14)], index=[f"person{n}" for n in range(30)])
    frame.mask(rng.random(frame.shape) < 0.05).to_csv(folder / "clubs.csv", index_label="person")


def machines(folder: Path) -> None:
    """Ten machines that idle, work or overheat, a reading an hour; nothing was read of one hour of the first."""
    rng = np.random.default_rng(0)
    levels, leaves = np.array([[0, 1], [5, 2], [6, 7.0]]), np.array([[0.9, 0.1, 0], [0.1, 0.8, 0.1], [0.3, 0, 0.7]])
    readings = []
    for machine in range(10):
        state = 0
        for _ in range(rng.integers(15, 30)):
            readings.append((f"machine{machine}", *rng.normal(levels[state], 0.7).round(2)))
            state = rng.choice(3, p=leaves[state])
    frame = pd.DataFrame(readings, columns=["machine", "load", "heat"])
    frame.loc[4, ["load", "heat"]] = np.nan
    frame.to_csv(folder / "machines.csv", index=False)


def mutations(folder: Path) -> None:
    """Tumours with three signatures, most of them with one or two, in the form of mutation matrices: kinds are rows.
    Each cell varies by a tenth of its mean's square more than a Poisson's."""
    rng = np.random.default_rng(0)
    kinds = [f"{b}[{change}]{b}" for change in ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G") for b in "ACGT"]
    signatures = rng.dirichlet(np.full(len(kinds), 0.2), 3).T
    mean = signatures @ (1000 * rng.dirichlet(np.full(3, 0.3), 60)).T
    counts = rng.poisson(mean * rng.gamma(10.0, 0.1, mean.shape))
    index = pd.Index(kinds, name="MutationType")
    tumours = [f"tumour{i}" for i in range(counts.shape[1])]
    pd.DataFrame(counts, index, tumours).to_csv(folder / "mutations.tsv", sep="\t")
    pd.DataFrame(signatures.round(6), index, ["ageing", "smoking", "light"]).to_csv(folder / "signatures.tsv", sep="\t")


def reviews(folder: Path) -> None:
    """Every review has two subjects, or one twice: nine words of the first and one of the second."""
    texts = [
        f"{' '.join(first.split()[i % 5] for i in range(j, j + 9))} {second.split()[j % 5]}"
        for j in range(20)
        for first in SUBJECTS
        for second in SUBJECTS
    ]
    table = {"id": [f"r{n}" for n in range(len(texts))], "stars": [1 + n % 5 for n in range(len(texts))], "text": texts}
    pd.DataFrame(table).to_csv(folder / "reviews.csv", index=False)


def survey(folder: Path, rng: np.random.Generator) -> None:
    """Two kinds of people: of one nearly all say the first answer to every question, of the other the last."""
    questions = {"smokes": ("never", "sometimes", "often"), "drinks": ("no", "yes"), "votes": ("left", "right")}
    kind = rng.integers(0, 2, 120)
    said = {
        name: [answers[-1 if k else 0] if rng.random() < 0.9 else rng.choice(answers) for k in kind]
        for name, answers in questions.items()
    }
    frame = pd.DataFrame(said)
    frame.mask(rng.random(frame.shape) < 0.05).to_csv(folder / "survey.csv", index=False)


def images(folder: Path, rng: np.random.Generator) -> None:
    """Three regions an image, of two kinds that have a word each; the caption is of the first region."""
    kinds = rng.integers(0, 2, (40, 3))
    features = 8.0 * kinds[..., None] + rng.normal(size=(40, 3, 2))
    regions = [(f"image{i}", *features[i, region].round(3)) for i in range(40) for region in range(3)]
    pd.DataFrame(regions, columns=["image", "hue", "texture"]).to_csv(folder / "regions.csv", index=False)
    captions = [(f"image{i}", ("sea", "tree")[kinds[i, 0]]) for i in range(40)]
    pd.DataFrame(captions, columns=["image", "word"]).to_csv(folder / "captions.csv", index=False)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
