"""Population structure with admixture: every individual has a share of its genome from each population.

Source: Pritchard, Stephens & Donnelly (2000), the model with admixture (STRUCTURE). As a model of documents it is
latent Dirichlet allocation with a vocabulary for every locus. The story:

    1. frequencies   β_kl ~ Dirichlet(λ, …, λ)        k = 1…K populations, l = 1…L loci, J_l alleles each
    2. proportions   θ_i ~ Dirichlet(A/K, …, A/K)     i = 1…N individuals, shared by their loci
    3. origin        z_in ~ Categorical(θ_i)          of each allele copy n
    4. allele        w_in ~ Categorical(β_{z_in, l})  at the copy's locus l

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `alleles` | J_l | (locus,) | ≥ 2 |
| `concentration` | A | () | > 0 |
| `allele_concentration` | λ | () | > 0 |
| site `frequencies` | log β, locus after locus | (population, word) | a simplex for each locus |
| site `proportions` | log θ_i | (population,) | simplex |
| site `assignment` | z_in, one row for each *distinct* allele of the individual | (token, population) | one-hot |

An individual is a bag of its allele copies. The vocabulary has one word for every allele of every locus. A diploid has
two copies at each locus, or fewer where a genotype is missing; a missing genotype adds nothing to the likelihood. The
locus of a copy is not modelled: the likelihood is conditional on it.
"""

import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int
from scipy.special import xlogy

from lvsearch.models.components.arguments import positive_parameter
from lvsearch.models.contract import (
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Model,
    Site,
    concentration_parameter,
    first,
    log_relabellings,
)
from lvsearch.models.exponential.simplex import SimplexBlocks, log_symmetric_dirichlet
from lvsearch.models.families import Categorical, Dirichlet
from lvsearch.models.units import BagOfWords


def alleles_of(vocabulary: Sequence[str]) -> tuple[int, ...]:
    """Return the number of alleles of each locus, in the order of the vocabulary.

    vocabulary: words of the form "locus=allele", the alleles of one locus next to each other.

    Raises ValueError for a word without "=", and for a locus whose words are not all next to each other.
    """
    for word in vocabulary:
        if "=" not in word:
            raise ValueError(
                f'got the word {word!r}, expected "locus=allele": lv.Genotypes.from_structure, .from_ped, .from_raw, '
                ".from_bed and .from_vcf make such corpora"
            )
    runs = [(name, len(list(each))) for name, each in groupby(vocabulary, key=lambda w: w.rpartition("=")[0])]
    names = [name for name, _ in runs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"got the alleles of locus {twice!r} in two places, expected them one after another")
    return tuple(number for _, number in runs)


class Admixture(Model):
    """Individuals of mixed ancestry from `size` populations.

    alleles: the number of alleles of each locus. `Admixture.from_vocabulary(corpus.vocabulary)` counts them.
    concentration: A, the total mass of the Dirichlet on an individual's ancestry, spread evenly over populations. A
        small value favours individuals of one population.
    allele_concentration: λ, of the Dirichlet on the allele frequencies of every locus in every population. With 1, the
        default, all frequencies are equally probable.

    The model of the same data without admixture, one population for each individual, is
    `FiniteMixture(GenotypeComponents(alleles))`.
    """

    concentration: HyperparameterArray
    allele_concentration: HyperparameterArray
    alleles: tuple[int, ...] = eqx.field(static=True)

    size_names: ClassVar[tuple[str, ...]] = ("populations",)
    unit_type: ClassVar[type] = BagOfWords
    representation: ClassVar[str] = "proportions"

    def __init__(self, alleles: Sequence[int], concentration: Any = 1.0, allele_concentration: Any = 1.0):
        self.alleles = tuple(int(n) for n in alleles)
        if not self.alleles or min(self.alleles) < 1:
            raise ValueError(f"got alleles={alleles!r}, expected the number of alleles of each locus, at least 1 each")
        both = {"concentration": concentration, "allele_concentration": allele_concentration}
        checked = [positive_parameter(name, concentration_parameter(name, value)) for name, value in both.items()]
        self.concentration, self.allele_concentration = checked

    @classmethod
    def from_vocabulary(
        cls, vocabulary: Sequence[str], concentration: Any = 1.0, allele_concentration: Any = 1.0
    ) -> "Admixture":
        """Make the model for a corpus of genotypes, whose words are "locus=allele".

        vocabulary: the words, the alleles of one locus next to each other.
        concentration: A, the total mass of the Dirichlet on an individual's ancestry.
        allele_concentration: λ, of the Dirichlet on the allele frequencies of each locus.

        Raises ValueError for words of another form, and for a locus whose words are not all next to each other.
        """
        return cls(alleles_of(vocabulary), concentration, allele_concentration)

    @classmethod
    def of_vocabulary(
        cls, vocabulary: Sequence[str], concentration: Any = 1.0, allele_concentration: Any = 1.0
    ) -> "Admixture":
        """Make the model for a corpus of genotypes. Deprecated: the former name of `from_vocabulary`; it warns."""
        warnings.warn(
            "Admixture.of_vocabulary is called Admixture.from_vocabulary now", DeprecationWarning, stacklevel=2
        )
        return cls.from_vocabulary(vocabulary, concentration, allele_concentration)

    @property
    def locus(self) -> Int[np.ndarray, " word"]:
        """The index of the locus of each word (allele), shape (word,)."""
        return np.repeat(np.arange(len(self.alleles)), self.alleles)

    def describe(self) -> str:
        """Describe the model in one line, such as "Admixture: 20 loci, 61 alleles; frequencies ~ Dirichlet, …"."""
        return (
            f"Admixture: {len(self.alleles)} loci, {sum(self.alleles)} alleles; frequencies ~ Dirichlet, "
            f"{float(self.allele_concentration):g} per allele; concentration {float(self.concentration):g} in total, "
            "spread evenly over populations"
        )

    def globals(self) -> dict[str, Site]:
        """Return the latent variable that all individuals share: the allele frequencies of each population, locus
        after locus.
        """
        return {"frequencies": Site(SimplexBlocks(Dirichlet(), self.alleles), ("population", "word"))}

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one individual: the population of each allele copy, and the shares of the
        populations.
        """
        return {
            "assignment": Site(Categorical(), ("token", "population"), copies=lambda unit: unit.counts),
            "proportions": Site(Dirichlet(), ("population",)),
        }

    def extents(self, unit: BagOfWords) -> dict[str, int]:
        """Return {"token": number of columns of the individual}, one for each distinct allele, padding included."""
        return {"token": unit.words.shape[-1]}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"population": mask of the populations that exist}, of length `capacity[0]`."""
        return {"population": first(size[0], capacity[0])}

    def require_words(self, n_words: int) -> None:
        """Raise ValueError unless the data's vocabulary has exactly one word for each allele.

        n_words: the number of words of the data's vocabulary.
        """
        if n_words != sum(self.alleles):
            raise ValueError(
                f"got data of {n_words} words for {sum(self.alleles)} alleles of {len(self.alleles)} loci, expected "
                "one word for each: Admixture.from_vocabulary(corpus.vocabulary)"
            )

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return Σ_k Σ_l log Dirichlet(frequencies of locus l in population k | λ), in nats.

        g: {"frequencies": log β, shape (population, word)}. on: {"population": mask of the populations that exist}.
        """
        log_beta = g["frequencies"]
        self.require_words(log_beta.shape[-1])
        a, widths = jnp.asarray(self.allele_concentration, log_beta.dtype), jnp.asarray(self.alleles, log_beta.dtype)
        # log-normaliser of a symmetric Dirichlet, summed over loci: Σ_l log Γ(J_l λ) − J_l log Γ(λ)
        constant = (gammaln(widths * a) - widths * gammaln(a)).sum()
        return jnp.where(on["population"], constant + ((a - 1) * log_beta).sum(-1), 0.0).sum()

    def log_unit(self, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> Float[Array, ""]:
        """Return log p(θ | α) + Σ_n [log p(z_n | θ) + log p(allele_n | z_n)] of one individual, in nats.

        θ are its shares of the populations, z_n is the population of its allele copy n, and α is the prior A/K per
        population.

        g: {"frequencies": log β, shape (population, word)}.
        l: {"proportions": log θ, shape (population,); "assignment": z, shape (token, population)}.
        unit: the individual as a bag of alleles. on: {"population": mask of the populations that exist}.
        """
        log_theta, exists = l["proportions"], on["population"]
        weighted = unit.counts[:, None] * l["assignment"]
        log_beta = g["frequencies"][:, unit.words].T  # (token, population)
        n = exists.sum()
        prior = log_symmetric_dirichlet(jnp.where(exists, log_theta, 0.0), self.concentration / n, n)
        return prior + (weighted * log_theta).sum() + (weighted * log_beta).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K populations in groups of m_j identical ones.

        It is the log number of relabellings. size: (K,). natural: {"frequencies": natural parameters, (population,
        word)}.
        """
        return log_relabellings(np.asarray(natural["frequencies"])[: size[0]])

    def ceiling(self, units: BagOfWords) -> float:
        """Return the log-likelihood if each individual had its own frequencies, Σ_i Σ_l Σ_a n_ila log(n_ila / n_il), in
        nats.

        n_ila is how many copies of allele a individual i has at locus l, and n_il their sum over alleles. units: all
        individuals.

        Proof: given the parameters, the copies of an individual at a locus are drawn independently from one
        distribution over the alleles there. By Gibbs' inequality no distribution gives them a higher probability than
        their own frequencies. The evidence is an average over parameters, and an average is at most the maximum.
        """
        words, counts = np.asarray(units.words), np.asarray(units.counts, np.float64)
        self.require_words(max(int(words.max(initial=0)) + 1, sum(self.alleles)))
        locus = self.locus[words]
        row = np.broadcast_to(np.arange(len(counts))[:, None], counts.shape)
        at_locus = np.zeros((len(counts), len(self.alleles)))
        np.add.at(at_locus, (row, locus), counts)
        return float(xlogy(counts, counts).sum() - xlogy(at_locus, at_locus).sum())

    def plug_in(self) -> "Admixture":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            'Admixture has no plug-in form: use evidence="marginal", which has its frequencies integrated out'
        )

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> BagOfWords:
        """Draw an allele for every allele copy of one individual, among the alleles of the copy's locus.

        g: {"frequencies": log β, shape (population, word)}. l: {"assignment": one-hot, shape (token, population)}.
        unit: an individual with one copy in every column (counts 0 or 1); its words say only the loci.
        """
        log_beta = l["assignment"] @ g["frequencies"]  # (token, word)
        locus = jnp.asarray(self.locus)
        own = locus[unit.words][:, None] == locus
        drawn = jax.random.categorical(key, jnp.where(own, log_beta, -jnp.inf))
        return BagOfWords(drawn.astype(unit.words.dtype), unit.counts)

    def simulate(self, key: Array, size: tuple[int, ...], units: BagOfWords, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, ancestry and alleles from the joint distribution.

        size: (number of populations,).
        units: individuals with one allele copy in each column; the copies keep the loci of the words given here.
        extents: {"word": V}, the number V of words in the vocabulary.

        Returns (statistics of the globals by name, statistics of the locals by name with individuals leading,
        individuals).
        """
        key_frequencies, key_theta, key_z, key_words = jax.random.split(key, 4)
        (n_rows, length), on = units.words.shape, self.active(size, size)
        self.require_words(extents["word"])
        site = self.globals()["frequencies"]
        natural = jnp.broadcast_to(jnp.asarray(self.allele_concentration) - 1, (size[0], extents["word"]))
        g = {"frequencies": site.family.sample(key_frequencies, natural)}
        alpha = jnp.broadcast_to(jnp.asarray(self.concentration) / size[0], (n_rows, size[0]))
        log_theta = Dirichlet().sample(key_theta, alpha - 1)
        chosen = jax.random.categorical(key_z, log_theta[:, None, :], shape=(n_rows, length))
        l = {"assignment": jax.nn.one_hot(chosen, size[0]), "proportions": log_theta}
        return g, l, self._draw_units(key_words, g, l, units, on)
