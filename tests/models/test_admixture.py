"""Populations: admixture and the model without it against enumeration, and the files that genotypes come in.

False alarms. Keys are fixed: a test always passes or always fails. Over keys, |z| < 4.5 of at most ten numbers fails by
chance in fewer than 1 of 10,000.
"""

import gzip
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import partition_oracles as exact
import pytest
from admixture_oracles import log_evidence, log_joint
from numpy.testing import assert_allclose, assert_array_equal
from oracles import all_assignments, log_dirichlet_multinomial
from scipy.sparse import csr_array
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.annealing.prefixes import grow, sequential
from lvsearch.inference.evidence import CollapsedTopics, collapsed_topics, evidence_chain, simulated_like, true_state
from lvsearch.inference.topic_samplers.anchor import DocumentByDocument
from lvsearch.models import Admixture, FiniteMixture, GenotypeComponents

ALLELES, TOTAL, RATE = (2, 3), 0.9, 0.7
COUNTS = np.array([[2, 0, 0, 1, 0], [0, 1, 1, 0, 1], [1, 0, 0, 0, 0]])
"""Three individuals at two loci, some genotypes missing in part or whole."""
WORDS = ("a=1", "a=2", "b=4", "b=5", "b=6")
MODEL = Admixture(ALLELES, TOTAL, RATE)
GENOTYPES = lv.Genotypes.from_matrix(COUNTS, WORDS)
Z_LIMIT = 4.5


def chain_of(size: int) -> CollapsedTopics:
    chain = evidence_chain(MODEL, GENOTYPES.dataset(), (size,), None)
    assert isinstance(chain, CollapsedTopics)
    return chain


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.usefixtures("float64")
def test_densities_of_all_assignments():
    chain = chain_of(2)
    every = all_assignments(2, int(COUNTS.sum())).T
    padded = np.full((len(chain.word), every.shape[1]), -1, np.int32)
    padded[: len(every)] = every
    state = chain.state_of_topics(jnp.asarray(padded))
    expected = log_joint(COUNTS, ALLELES, 2, TOTAL, RATE)
    assert_allclose(chain.log_density(state), expected, atol=1e-5)
    means = np.asarray(chain.topic_means(state))[:5, :2]
    assert_allclose(means[:2].sum(0), 1.0, rtol=1e-5)
    assert_allclose(means[2:].sum(0), 1.0, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.usefixtures("float64")
def test_one_locus_is_lda():
    alone, lda = Admixture((5,), TOTAL, RATE), lv.models.LDA(TOTAL, RATE)
    chains = [evidence_chain(model, GENOTYPES.dataset(), (2,), None) for model in (alone, lda)]
    states = [jax.jit(lambda c: c.init(jax.random.key(1), 6))(chain) for chain in chains]
    assert_array_equal(states[0].assignment, states[1].assignment)
    assert_allclose(chains[0].log_density(states[0]), chains[1].log_density(states[1]), rtol=1e-6)
    one = MODEL.log_prior({"frequencies": jnp.log(jnp.full((1, 5), 0.5))}, {"population": jnp.ones(1, bool)})
    assert np.isfinite(one)


@pytest.mark.usefixtures("float64")
def test_individuals_in_turn_have_the_exact_evidence_of_every_prefix():
    sampler = sequential(chain_of(2), jax.random.key(1))
    assert isinstance(sampler, DocumentByDocument)
    documents = [int(sampler.chain.document[sampler.tokens[end - 1]]) for end in sampler.ends[:3]]
    expected = [log_evidence(COUNTS[documents[:m]], ALLELES, 2, TOTAL, RATE) for m in (1, 2, 3)]
    found = grow(sampler, jax.random.key(2), 3, islands=300, particles=8).log_evidence[:3]
    ratios = np.exp(found - np.array(expected)[:, None])
    z = (ratios.mean(1) - 1) / np.maximum(ratios.std(1, ddof=1) / np.sqrt(300), 1e-6)
    assert np.abs(z).max() < Z_LIMIT


@pytest.mark.slow
def test_a_search_has_the_enumerated_posterior_and_tells_people():
    result = lv.search(MODEL, GENOTYPES, prior=lv.sizes.Uniform(2), max_size=2, starts=1, progress=False)
    wanted = np.array([log_evidence(COUNTS, ALLELES, size, TOTAL, RATE) for size in (1, 2)])
    found = result.posterior()
    assert_allclose(found["log_evidence"], wanted, atol=0.1)
    assert_allclose(found["probability"], np.exp(wanted - logsumexp(wanted)), atol=0.03)
    fit = result.fit(2)
    assert fit.estimate.log_lower <= wanted[1] + 1e-5
    assert_allclose(fit.ancestry().sum(axis=1), 1.0, rtol=1e-5)
    assert_allclose(fit.frequencies().groupby(level="locus").sum(), 1.0, rtol=1e-5)
    assert fit.frequencies().index.names == ["locus", "allele"]
    assert fit.affinity(fit).max() <= 1 + 1e-6
    assert "2 loci, 5 alleles" in MODEL.describe()


@pytest.mark.thorough
@pytest.mark.usefixtures("float64")
def test_simulated_copies_stay_at_their_loci():
    simulated = simulated_like(GENOTYPES.dataset(), MODEL, (2,), jax.random.key(3))
    unit, before = simulated.data.batches[0].units, GENOTYPES.dataset().batches[0].units
    locus = MODEL.locus[np.asarray(unit.words)]
    for row, ids in enumerate(simulated.data.unit_ids[0]):
        own = np.repeat(MODEL.locus[before.words[row]], before.counts[row].astype(int)) if ids >= 0 else []
        assert_array_equal(np.sort(locus[row][np.asarray(unit.counts)[row] > 0]), np.sort(own))
    chain = evidence_chain(MODEL, simulated.data, (2,), None)
    state = true_state(chain, simulated, 2)
    assert np.all(np.isfinite(chain.log_density(state)))


@pytest.mark.thorough
def test_without_admixture_rows_are_products_over_copies():
    rows = np.array([[2, 0, 0, 1, 1], [0, 2, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 2, 0, 0.0]])
    component = GenotypeComponents(ALLELES, RATE)

    def log_marginal(group: np.ndarray) -> float:
        total = group.sum(0)
        both = (total[:2], total[2:])
        return float(sum(log_dirichlet_multinomial(each, np.full(len(each), RATE)) for each in both))

    for size in (1, 2):
        prior = partial(exact.log_finite_prior, n_components=size, concentration=1.0)
        wanted = exact.log_evidence(rows, log_marginal, prior)
        fit = lv.fit(FiniteMixture(component), lv.Points.from_array(rows), size=size)
        assert fit.estimate.log_lower <= wanted + 1e-5
        if size == 1:
            assert fit.estimate.log_lower == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(ValueError, match="whole numbers"):
        lv.fit(FiniteMixture(component), rows / 2, size=1)
    with pytest.raises(ValueError, match="5 alleles of 2 loci"):
        lv.fit(FiniteMixture(component), rows[:, :4], size=1)


def planted(rng: np.random.Generator, individuals: int, loci: int, purity: float) -> lv.Genotypes:
    """Three populations, two copies at each locus of three alleles."""
    frequencies = rng.dirichlet(np.full(3, 0.5), (3, loci))
    ancestry = rng.dirichlet(np.full(3, purity), individuals)
    counts = np.zeros((individuals, loci, 3), int)
    for i in range(individuals):
        for copy in rng.choice(3, (2, loci), p=ancestry[i]):
            alleles = [rng.choice(3, p=frequencies[k, l]) for l, k in enumerate(copy)]
            counts[i, np.arange(loci), alleles] += 1
    words = [f"l{l}={a}" for l in range(loci) for a in range(3)]
    return lv.Genotypes.from_matrix(csr_array(counts.reshape(individuals, -1)), words)


@pytest.mark.slow
def test_planted_populations_are_found():
    genotypes = planted(np.random.default_rng(0), 40, 30, 0.1)
    model = Admixture.from_vocabulary(genotypes.vocabulary)
    result = lv.search(model, genotypes, prior=lv.sizes.Poisson(3), max_size=5, starts=1, seed=1, progress=False)
    assert (3,) in result.estimated.indistinguishable


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────

STRUCTURE = """  locA locB locC
ann north 1 120 7
ann north 2 122 7
bob north 1 120 7
bob north -9 124 7
cyd south 2 122 7
cyd south 2 122 7
"""


def test_structure_files_in_both_forms(tmp_path):
    path = tmp_path / "two.str"
    path.write_text(STRUCTURE)
    found = lv.Genotypes.from_structure(path, populations=True)
    assert found.vocabulary == ("locA=1", "locA=2", "locB=120", "locB=122", "locB=124")
    assert_array_equal(found.counts.toarray(), [[1, 1, 1, 1, 0], [1, 0, 1, 0, 1], [0, 2, 0, 2, 0]])
    assert (found.document_names, found.document_labels) == (("ann", "bob", "cyd"), ("north", "north", "south"))
    assert found.notes == ("1 of 3 loci with one allele or none left out",)
    assert found.alleles == (2, 3)
    assert "3 individuals, 2 loci, 5 alleles, 11 allele copies" in found.describe()
    assert found.points().columns == found.vocabulary
    lines = [line.split() for line in STRUCTURE.splitlines()]
    one = ["  ".join(lines[0])] + [
        " ".join([*first[:2], *(cell for pair in zip(first[2:], last[2:], strict=True) for cell in pair)])
        for first, last in zip(lines[1::2], lines[2::2], strict=True)
    ]
    (tmp_path / "one.str").write_text("\n".join(one))
    same = lv.Genotypes.from_structure(tmp_path / "one.str", populations=True, one_row=True)
    assert same.fingerprint == found.fingerprint
    assert Admixture.from_vocabulary(found.vocabulary).alleles == (2, 3)
    assert lv.Genotypes.from_structure(path, populations=True, missing=-9).fingerprint == found.fingerprint
    with pytest.raises(ValueError, match=r"got missing=True, expected the mark as it stands in the file, such as '-9'"):
        lv.Genotypes.from_structure(path, populations=True, missing=True)


def test_plink_files(tmp_path):
    (tmp_path / "a.ped").write_text("F1 ann 0 0 1 -9 A A G T\nF1 bob 0 0 2 -9 A C 0 0\nF2 cyd 0 0 0 -9 C C T T\n")
    (tmp_path / "a.map").write_text("1 rs1 0 100\n1 rs2 0 200\n")
    found = lv.Genotypes.from_ped(tmp_path / "a.ped")
    assert found.vocabulary == ("rs1=A", "rs1=C", "rs2=G", "rs2=T")
    assert_array_equal(found.counts.toarray(), [[2, 0, 1, 1], [1, 1, 0, 0], [0, 2, 0, 2]])
    assert found.document_labels == ("F1", "F1", "F2")
    header = "FID IID PAT MAT SEX PHENOTYPE rs1_A rs2_G\n"
    (tmp_path / "a.raw").write_text(header + "F1 ann 0 0 1 -9 2 1\nF1 bob 0 0 2 -9 1 NA\nF2 cyd 0 0 0 -9 0 0\n")
    same = lv.Genotypes.from_raw(tmp_path / "a.raw")
    assert same.vocabulary == ("rs1=A", "rs1=other", "rs2=G", "rs2=other")
    assert_array_equal(same.counts.toarray(), found.counts.toarray())


PED = """\
F1 ann 0 0 1 0 G G 2 2 C C
F1 bob 0 0 1 0 A A 0 0 A C
F1 cyd 0 0 1 0 0 0 1 2 A C
F2 dan 0 0 1 0 A A 2 2 0 0
F2 eve 0 0 1 0 A A 2 2 0 0
F2 fay 0 0 1 0 A A 2 2 A A
"""
"""The example of PLINK's description of its files (cog-genomics.org/plink/1.9/formats#bed), under other names."""
BED = bytes.fromhex("6c1b01 dc0f e70f 6b01")
BIM = "1 snp1 0 1 G A\n1\tsnp2\t0\t2\t1\t2\n1 snp3 0 3 A C\n"
FAM = "".join(" ".join(line.split()[:6]) + "\n" for line in PED.splitlines())


def write_bed(folder: Path, bed: bytes = BED, bim: str = BIM, fam: str = FAM) -> Path:
    """Write the three files of PLINK's binary form, and return the path of the first."""
    (folder / "a.bed").write_bytes(bed)
    (folder / "a.bim").write_text(bim)
    (folder / "a.fam").write_text(fam)
    return folder / "a.bed"


def test_binary_plink_files_hold_what_text_files_hold(tmp_path):
    found = lv.Genotypes.from_bed(write_bed(tmp_path))
    assert found.vocabulary == ("snp1=A", "snp1=G", "snp2=1", "snp2=2", "snp3=A", "snp3=C")
    expected = [
        [0, 2, 0, 2, 0, 2],
        [2, 0, 0, 0, 1, 1],
        [0, 0, 1, 1, 1, 1],
        [2, 0, 0, 2, 0, 0],
        [2, 0, 0, 2, 0, 0],
        [2, 0, 0, 2, 2, 0],
    ]
    assert_array_equal(found.counts.toarray(), expected)
    assert found.document_names == ("ann", "bob", "cyd", "dan", "eve", "fay")
    assert found.document_labels == ("F1", "F1", "F1", "F2", "F2", "F2")
    assert found.notes == ("missing genotypes: 4 of 18",)
    (tmp_path / "b.ped").write_text(PED)
    (tmp_path / "b.map").write_text("1 snp1 0 1\n1 snp2 0 2\n1 snp3 0 3\n")
    assert lv.Genotypes.from_ped(tmp_path / "b.ped").fingerprint == found.fingerprint
    lines = ["FID IID PAT MAT SEX PHENOTYPE snp1_A snp2_1 snp3_A"]
    copies = ("0 0 0", "2 NA 1", "NA 1 1", "2 0 NA", "2 0 NA", "2 0 2")
    lines += [f"{person} {each}" for person, each in zip(FAM.splitlines(), copies, strict=True)]
    (tmp_path / "b.raw").write_text("\n".join(lines))
    assert_array_equal(lv.Genotypes.from_raw(tmp_path / "b.raw").counts.toarray(), expected)


@pytest.mark.parametrize("individuals", [3, 4, 9])
@pytest.mark.parametrize("at_once", [1, 20, 1 << 22])
def test_binary_plink_files_of_any_length(tmp_path, monkeypatch, individuals: int, at_once: int):
    monkeypatch.setattr("lvsearch.data.genotypes.GENOTYPES_AT_ONCE", at_once)
    rng = np.random.default_rng(individuals)
    alleles = [("AC", "A"), ("A", "AC"), ("T", "G"), ("98", "102"), ("102", "98"), ("G", "T"), ("C", "A")]
    codes = rng.integers(0, 4, (len(alleles), individuals))
    codes[:, 0], codes[:, 1] = 0b00, 0b11  # every locus varies
    codes[2] = rng.permuted(np.resize([0b11, 0b01], individuals))  # but this one
    bed, columns = b"\x6c\x1b\x01", []
    for (first, second), of_variant in zip(alleles, codes.tolist(), strict=True):
        bits = [f"{code:02b}" for code in of_variant]
        bits += ["11"] * (-individuals % 4)  # the codes behind the last individual mean nothing
        bed += b"".join(bytes([int("".join(bits[at : at + 4][::-1]), 2)]) for at in range(0, len(bits), 4))
        text = {0b00: f"{first} {first}", 0b01: "0 0", 0b10: f"{second} {first}", 0b11: f"{second} {second}"}
        columns.append([text[code] for code in of_variant])
    people = [f"F{each % 2} i{each} 0 0 0 -9" for each in range(individuals)]
    places = [f"1 rs{each} 0 {each}" for each in range(len(alleles))]
    bim = "\n".join(f"{place} {first} {second}" for place, (first, second) in zip(places, alleles, strict=True))
    found = lv.Genotypes.from_bed(write_bed(tmp_path, bed, bim, "\n".join(people)))
    (tmp_path / "b.map").write_text("\n".join(places))
    (tmp_path / "b.ped").write_text("\n".join(" ".join(each) for each in zip(people, *columns, strict=True)))
    assert found.fingerprint == lv.Genotypes.from_ped(tmp_path / "b.ped").fingerprint
    assert found.notes == (
        f"missing genotypes: {(codes == 0b01).sum()} of {codes.size}",
        "1 of 7 loci with one allele or none left out",
    )


def test_names_in_binary_plink_files(tmp_path):
    # a variant without a name has that of its place; copies of an allele without a name are unknown, as in .ped files
    path = write_bed(tmp_path, bim="1 . 0 1 G A\n1 . 0 2 0 2\nX . 0 2 A C\n")
    found = lv.Genotypes.from_bed(path)
    assert found.vocabulary == ("1:1=A", "1:1=G", "X:2=A", "X:2=C")
    assert found.notes == ("missing genotypes: 4 of 18", "1 of 3 loci with one allele or none left out")
    with_nothing_missing = write_bed(tmp_path, bytes.fromhex("6c1b01 cc0f"), "1 snp1 0 1 G A\n")
    assert lv.Genotypes.from_bed(with_nothing_missing).notes == ()


def test_binary_plink_files_that_are_wrong_say_why(tmp_path):
    def refused(message: str, bed: bytes = BED, bim: str = BIM, fam: str = FAM) -> None:
        with pytest.raises(ValueError, match=message):
            lv.Genotypes.from_bed(write_bed(tmp_path, bed, bim, fam))

    refused(r"a\.bed: got the first bytes 63 68 72, expected 6c 1b 01", b"chr1 100 200\n")
    refused(r"got the first bytes \(none\), expected 6c 1b 01", b"")
    refused("got the first bytes 6c 1b, expected 6c 1b 01", BED[:2])
    refused("got the first bytes 6c 1b 02, expected 6c 1b 01", b"\x6c\x1b\x02" + BED[3:])
    refused("got genotypes individual by individual.* --make-bed", b"\x6c\x1b\x00" + BED[3:])
    refused(r"got 8 bytes, expected 9: .* 2 for each of 3 variants in a\.bim, with 4 of 6 individuals", BED[:-1])
    refused("got 10 bytes, expected 9", BED + b"\x00")
    refused("got 9 bytes, expected 12: .* 3 for each of 3 variants", fam=FAM + FAM)
    refused(r"a\.fam, line 7: got 'F3 gil 0' alone; expected family, individual", fam=FAM + "F3 gil 0\n")
    refused(r"a\.fam: got no individuals", fam="\n")
    refused(r"a\.bim, line 4: got '1 snp4 0 4' alone; expected chromosome, variant", bim=BIM + "1 snp4 0 4\n")
    refused(r"a\.bim, line 1: got 'G' as both alleles of 'snp1'", bim=BIM.replace("G A", "G G"))
    refused(r"a\.bim: got two loci named 'snp1'", bim=BIM.replace("snp3", "snp1"))
    refused("got 0 loci with one allele or none each, expected some that vary", BED[:3], bim="")
    refused("got 1 loci .* some that vary; missing genotypes: 6 of 6", BED[:3] + b"\x55\x05", "1 snp1 0 1 G A\n")
    for ending in (".fam", ".bim", ".bed"):
        path = write_bed(tmp_path)
        path.with_suffix(ending).unlink()
        with pytest.raises(FileNotFoundError, match=rf"a\{ending}"):
            lv.Genotypes.from_bed(path)


VCF = """\
##fileformat=VCFv4.2
##FILTER=<ID=q10,Description="a text with = and \t in it">
#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT ann bob cyd
1 100 rs1 A C 9 PASS . GT 0/0 0|1 1/1
1 200 . G T,GA . . . DP:GT:GQ 9:0|2:. 8:./. 7:2/1:5
1 200 . G C . PASS . GT 0/1 . 0/.
1 300 rs2 A C 9 q10;LowQual . GT 0/1 0/1 1/1
1 400 rs3 A C 9 q10 . GT 0/1 0/1 1/1
1 500 rs4 A C 9 PASS . DP 3 4 5
1 600 rs5 A . 9 PASS . GT 0/0 0/0 0/0
X 700 rs6 A <DEL> 9 PASS . GT 0/1 1 1/1
""".replace(" ", "\t")


def test_variant_calls(tmp_path):
    path = tmp_path / "calls.vcf"
    path.write_text(VCF)
    found = lv.Genotypes.from_vcf(path)
    assert found.vocabulary == (
        "rs1=A",
        "rs1=C",
        "1:200=G",
        "1:200=T",
        "1:200=GA",
        "1:200:G>C=C",
        "1:200:G>C=G",
        "rs6=A",
        "rs6=<DEL>",
    )
    expected = [[2, 0, 1, 0, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 2, 0, 1, 1, 0, 1, 0, 2]]
    assert_array_equal(found.counts.toarray(), expected)
    assert found.document_names == ("ann", "bob", "cyd")
    assert found.document_labels is None
    assert found.notes == (
        "variants that failed a filter, left out: 2 of 8 (q10 2, LowQual 1)",
        "variants without genotypes (GT), left out: 1 of 8",
        "genotypes of another number of alleles than 2, taken as unknown: 1 (the first: bob at rs6)",
        "1 of 5 loci with one allele or none left out",
    )
    assert found.alleles == (2, 3, 2, 2)
    (tmp_path / "calls.vcf.gz").write_bytes(gzip.compress(VCF.replace("\n", "\r\n").encode()))
    assert lv.Genotypes.from_vcf(tmp_path / "calls.vcf.gz").fingerprint == found.fingerprint
    whole = lv.Genotypes.from_vcf(path, keep_filtered=True)
    assert {"rs2=A", "rs3=C"} <= set(whole.vocabulary)
    # one copy each: of X in males, say
    path.write_text("\n".join([*VCF.splitlines()[:3], "X\t1\tx\tA\tC\t.\t.\t.\tGT\t0\t1\t0/1"]))
    single = lv.Genotypes.from_vcf(path, ploidy=1)
    assert_array_equal(single.counts.toarray(), [[1, 0], [0, 1], [0, 0]])
    with pytest.raises(ValueError, match="got ploidy=0, expected a whole number of at least 1"):
        lv.Genotypes.from_vcf(path, ploidy=0)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("##fileformat=VCFv4.2", "##source=x", "line 1: got '##source=x', expected ##fileformat=VCFv4.2"),
        ("\tFORMAT\tann\tbob\tcyd", "", "line 3: got no individuals, expected the line #CHROM POS"),
        ("\tann\tbob\tcyd", "", "line 3: got no individuals"),
        ("#CHROM\tPOS", "#CHROM POS", "line 3: got '#CHROM POS"),
        ("#CHROM", "CHROM", "line 3: got 'CHROM"),
        ("ann\tbob", "ann\tann", "line 3: got two individuals named 'ann'"),
        ("\t0|1\t1/1", "\t0|1", "line 4: got 11 columns, expected 12, separated by tabs"),
        ("0|1", "0|2", r"line 4: got the genotype '0\|2' of bob, expected numbers of alleles from 0 to 1"),
        ("0|1", "A/C", "line 4: got the genotype 'A/C' of bob"),
        ("0|1", "", "line 4: got the genotype '' of bob"),
        ("rs6\tA\t<DEL>", "rs1\tA\t<DEL>", None),  # told apart by its alleles
        ("rs6\tA\t<DEL>", "rs1\tA\tC", None),
        ("1\t600\trs5\tA\t.", "X\t9\trs6\tA\t<DEL>", None),
    ],
)
def test_variant_calls_that_are_wrong_say_where(tmp_path, before: str, after: str, message: str | None):
    assert before in VCF
    path = tmp_path / "a.vcf"
    path.write_text(VCF.replace(before, after, 1))
    if message is None:
        assert lv.Genotypes.from_vcf(path).n_documents == 3
        return
    with pytest.raises(ValueError, match=r"a\.vcf, " + message):
        lv.Genotypes.from_vcf(path)


def test_variant_calls_without_a_locus_are_refused(tmp_path):
    path = tmp_path / "a.vcf"
    lines = VCF.splitlines()
    path.write_text("\n".join([*lines[:4], lines[3], lines[3]]))
    with pytest.raises(ValueError, match=r"line 6: got the variant 'rs1:A>C' again after line 5"):
        lv.Genotypes.from_vcf(path)
    path.write_text("\n".join([*lines[:3], lines[6]]))
    with pytest.raises(ValueError, match=r"got 0 loci .* expected some that vary; variants that failed.*: 1 of 1"):
        lv.Genotypes.from_vcf(path)
    path.write_text("\n".join(lines[:3]))
    with pytest.raises(ValueError, match="got 0 loci"):
        lv.Genotypes.from_vcf(path)
    path.write_text("")
    with pytest.raises(ValueError, match="line 1: got ''"):
        lv.Genotypes.from_vcf(path)
    (tmp_path / "cut.vcf.gz").write_bytes(gzip.compress(VCF.encode())[:-20])
    with pytest.raises(ValueError, match="expected a file written by gzip"):
        lv.Genotypes.from_vcf(tmp_path / "cut.vcf.gz")


@pytest.mark.thorough
def test_searches_of_genotypes_are_kept(tmp_path):
    fit = lv.fit(MODEL, GENOTYPES, size=2)
    fit.save(tmp_path / "fit")
    again = lv.load_fit(tmp_path / "fit")
    assert isinstance(again.training, lv.Genotypes)
    assert_allclose(again.ancestry(), fit.ancestry())
    axes = fit.plot_ancestry()
    assert "3 individuals in 2 populations" in axes.get_title(loc="left")
    assert axes.get_ylabel() == "share of the genome"


def broken(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    readers = {".str": partial(lv.Genotypes.from_structure, populations=True), ".ped": lv.Genotypes.from_ped}
    with pytest.raises(ValueError, match=message):
        readers.get(path.suffix, lv.Genotypes.from_raw)(path)


def test_files_that_are_wrong_say_where(tmp_path):
    broken(tmp_path, "a.str", STRUCTURE.replace("120 7\nann", "120\nann"), r"line 2: got 4 columns, expected 5")
    broken(tmp_path, "b.str", STRUCTURE.replace("bob north -9", "rob north -9"), r"line 5: got the individual 'rob'")
    broken(tmp_path, "c.str", STRUCTURE + "dan north 1 120 7\n", r"got 7 lines .* expected 2 lines an individual")
    broken(tmp_path, "d.str", "locA\nann north 1\nann north 1\n", "expected some that vary")
    broken(tmp_path, "e.str", "locA locA\nann n 1 2\nann n 2 1\n", "two loci named 'locA'")
    broken(tmp_path, "f.str", "", "got no individuals")
    broken(tmp_path, "a.ped", "F1 ann 0 0 1 -9 A A G\n", r"line 1: got 9 columns")
    broken(tmp_path, "b.ped", "", "got no individuals")
    (tmp_path / "c.map").write_text("1 rs1 0 100\nrs2\n")
    broken(tmp_path, "c.ped", "F1 ann 0 0 1 -9 A A G T\n", r"c\.map, line 2: got 'rs2' alone; expected the chromosome")
    broken(tmp_path, "a.raw", "FID IID\n", r"line 1: got 'FID IID', expected FID IID PAT")
    header = "FID IID PAT MAT SEX PHENOTYPE rs1_A\n"
    broken(tmp_path, "b.raw", header + "F1 ann 0 0 1 -9 3\n", r"line 2: got '3'")
    broken(tmp_path, "c.raw", header, "got no individuals")


def test_words_that_are_no_alleles_are_refused():
    with pytest.raises(ValueError, match="locus=allele"):
        Admixture.from_vocabulary(["apple", "pear"])
    with pytest.raises(ValueError, match="in two places"):
        Admixture.from_vocabulary(["a=1", "b=1", "a=2"])
    with pytest.raises(ValueError, match="5 words for 4 alleles of 2 loci"):
        lv.fit(Admixture((2, 2)), GENOTYPES, size=1)
    with pytest.raises(ValueError, match="no plug-in form"):
        MODEL.plug_in()
    with pytest.raises(ValueError, match="the number of alleles of each locus"):
        Admixture(())


@pytest.mark.thorough
def test_the_chain_of_a_corpus_has_one_block():
    chain = collapsed_topics(csr_array(COUNTS), np.array([0.5]), 0.3, 2)
    assert chain.widths.tolist() == [5.0]
    assert set(chain.block.tolist()) == {0}
