"""A model fitted at one size, as people use it: transform, score, tables, topics."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.corpus import Corpus
from lvsearch.evidence import Evidence
from lvsearch.fit import Fit
from lvsearch.inference.data import Dataset, documents
from lvsearch.inference.estimator import Described, Estimate, bound_units, describe_units
from lvsearch.models.contract import Model
from lvsearch.sizes import Size


@dataclass(frozen=True)
class FittedModel:
    """A model at one size. `evidence` is the interval that the fit carries; scores: nats, higher is better.

    Where a search recorded a witness in place of this size's own fit, `estimate.size` is the witness's: its extra
    components are empty, and tables and `transform` leave them out.
    """

    size: Size
    evidence: Evidence
    estimate: Estimate
    training: Corpus

    @property
    def model(self) -> Model:
        """The model with the hyper-parameters of this fit."""
        return self.estimate.model

    @property
    def alpha(self) -> Float[np.ndarray, " topic"]:
        """Dirichlet parameters of a document's proportions, (K,). ValueError for models that have none."""
        concentration = getattr(self.model, "concentration", None)
        if concentration is None:
            raise ValueError(f"{type(self.model).__name__} has no document proportions and so no alpha")
        n_topics = self.estimate.size[0]
        spread = concentration / n_topics if np.ndim(concentration) == 0 else concentration
        return np.broadcast_to(np.asarray(spread, np.float64), (n_topics,)).copy()

    def transform(self, docs: Any) -> Float[np.ndarray, "units ..."]:
        """The expected value of each unit's describing latent: topic proportions (docs, K), rows summing to 1."""
        return self._describe(docs).representation

    def score_documents(self, docs: Any) -> Float[np.ndarray, " units"]:
        """A lower bound on log p(unit | parameters at their posterior means), nats, one number per unit."""
        return self._describe(docs).log_lower

    def interval_documents(self, docs: Any) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
        """Certified ends of log p(unit | parameters at their posterior means), nats, (lower, upper) per unit."""
        data = as_dataset(docs, self.training)
        return bound_units(self.model, self.estimate, data)

    def score(self, docs: Any) -> float:
        """The sum of `score_documents`, nats: score(A and B) = score(A) + score(B)."""
        return float(self.score_documents(docs).sum())

    def table(self, name: str) -> pd.DataFrame:
        """A global site at its posterior mean, rows = elements (topics): `table("topic_word")`.

        Raises ValueError for a name the model does not have, and for sites that are not a table.
        """
        sites = self.model.globals()
        if name not in sites:
            raise ValueError(f"no table {name!r}: {type(self.model).__name__} has {', '.join(sites)}")
        site = sites[name]
        natural = jax.tree.map(jnp.asarray, self.estimate.natural[name])
        values = np.asarray(site.family.value(site.family.point(natural)))
        if values.ndim != 2:
            raise ValueError(f"{name!r} has shape {values.shape}, expected two axes; read estimate.natural[{name!r}]")
        columns = pd.Index(self.training.vocabulary, name="word") if site.axes[-1] == "word" else None
        return pd.DataFrame(values, index=pd.RangeIndex(len(values), name=site.axes[0]), columns=columns)

    def topics(self, n_words: int = 10) -> pd.DataFrame:
        """One row per topic, most prevalent first: share of the training tokens, top words, and the label of the
        documents that use it most out of proportion (where the corpus has labels)."""
        words = self.table("topic_word")
        proportions = self.transform(self.training)
        lengths = self.training.document_lengths
        prevalence = lengths @ proportions / max(lengths.sum(), 1)
        top = np.argsort(-words.to_numpy(), axis=1, kind="stable")[:, :n_words]
        vocabulary = np.asarray(self.training.vocabulary, dtype=object)
        frame = pd.DataFrame(
            {"prevalence": prevalence, "words": [" ".join(vocabulary[row]) for row in top]}, index=words.index
        )
        if self.training.document_labels is not None:
            frame.insert(1, "label", _labels(self.training.document_labels, proportions * lengths[:, None]))
        return frame.sort_values("prevalence", ascending=False, kind="stable")

    def _describe(self, docs: Any) -> Described:
        return describe_units(self.model, self.estimate, as_dataset(docs, self.training))


def fitted(fit: Fit, training: Corpus) -> FittedModel:
    """What a search calls a fit, as people use it. ValueError for a fit that failed."""
    if fit.info.failure is not None or fit.state is None:
        raise ValueError(fit.info.failure or f"the fit of size {fit.size} carries no model; bring your own fits")
    return FittedModel(fit.size, fit.evidence, fit.state, training)


def as_dataset(data: Any, training: Corpus) -> Dataset:
    """Documents over the training vocabulary as batches. ValueError for another number of words."""
    counts = corpus_of(data).counts if not isinstance(data, Corpus) else data.counts
    if counts.shape[1] != training.n_terms:
        raise ValueError(
            f"got documents over {counts.shape[1]} words, expected the {training.n_terms} of the training corpus: "
            "use training.encode(texts), or split one corpus"
        )
    if isinstance(data, Corpus) and data.vocabulary != training.vocabulary:
        raise ValueError(
            "got documents over another vocabulary of the same length: use training.encode(texts), or split one corpus"
        )
    return documents(counts)


def corpus_of(data: Any) -> Corpus:
    """A corpus from a corpus, a matrix or a data frame of counts."""
    return data if isinstance(data, Corpus) else Corpus.from_matrix(data)


def _labels(labels: tuple[str, ...], tokens: Float[np.ndarray, "docs topic"]) -> list[str]:
    """For each topic the label with most of its tokens, weighted by how much more than elsewhere it uses the topic."""
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    table = np.zeros((len(names), tokens.shape[1]))
    np.add.at(table, index, tokens)
    share = table / np.maximum(table.sum(axis=0, keepdims=True), 1e-12)
    lift = share / np.maximum(table.sum(axis=1, keepdims=True) / max(table.sum(), 1e-12), 1e-12)
    return [str(names[i]) for i in np.argmax(share * np.log1p(lift), axis=0)]
