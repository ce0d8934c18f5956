"""Components of genotypes: populations of individuals with some copies of an allele at every locus."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.models.components.categorical import CategoricalComponents
from lvsearch.models.components.requirements import require_counts
from lvsearch.models.units import Row


class GenotypeComponents(CategoricalComponents):
    """Populations without admixture: each copy at locus j has an allele ~ Categorical(θ_j), θ_j ~
    Dirichlet(concentration, …).

    Copies are independent: Hardy–Weinberg and linkage equilibrium within populations.

    A row holds the counts of alleles, locus after locus: `categories[j]` cells for locus j. They sum to 2 for a
    diploid, and to 0 where the genotype is missing. Copies are told apart, as in `Admixture`, so the density has no
    multinomial coefficient. `GenotypeComponents.from_columns(corpus.vocabulary)` finds the loci.

    Source: Pritchard, Stephens & Donnelly (2000), the model without admixture.
    """

    def describe(self) -> str:
        return super().describe().replace("columns of categories", "loci")

    def check(self, units: Row) -> None:
        n_columns = np.shape(units.value)[-1]
        if n_columns != sum(self.categories):
            raise ValueError(
                f"got rows of {n_columns} cells for {sum(self.categories)} alleles of {len(self.categories)} loci, "
                "expected one cell for each"
            )
        observed = np.asarray(units.observed)
        if not (observed.all(-1) | ~observed.any(-1)).all():
            raise ValueError("got missing cells, expected counts of 0 where a genotype is missing")
        require_counts(units, "GenotypeComponents")

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return an upper bound on each row's log-probability, 0 nats, shape (rows,): a probability is at most 1."""
        return np.zeros(len(units.value))

    def plug_in(self) -> "GenotypeComponents":
        return GenotypeComponents(categories=self.categories, concentration=self.concentration, estimated=True)

    def draw(self, key: Array, statistics: Float[Array, " dim"], unit: Row) -> Float[Array, " dim"]:
        """Draw allele counts of one individual, shape (dim,), with as many copies at each locus as `unit` has.

        statistics: log-probabilities of the alleles of its population, shape (dim,).
        """
        ends, drawn = np.cumsum(self.categories), []
        for j, (end, n) in enumerate(zip(ends, self.categories, strict=True)):
            copies = jnp.asarray(unit.value)[end - n : end].sum()
            share = jnp.exp(statistics[end - n : end])
            drawn.append(jax.random.multinomial(jax.random.fold_in(key, j), copies, share, dtype=statistics.dtype))
        return jnp.concatenate(drawn)
