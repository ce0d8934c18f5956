"""Held-out documents: what each kept size makes of them, paired document by document.

A second opinion on the number of components that shares neither the prior nor the variational bound with the search.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.sparse import csr_array

from lvsearch.corpus import Corpus
from lvsearch.fitted import FittedModel, corpus_of
from lvsearch.inference.estimator import capacity_of
from lvsearch.inference.likelihood.dispatch import document_likelihood
from lvsearch.storage import CorruptFolderError, read_folder, write_folder
from lvsearch.wording import unit_name

if TYPE_CHECKING:
    from lvsearch.result import SearchResult

SAMPLES = 200
PADDING = 1e-20
"""α of the topics that pad every size to one capacity, so that all compile once. They emit only a word that no document
holds, and change p(document) by a factor of 1 − N · 1e-20 / Σα at most, far below float64's resolution."""
WITHIN = 0.02
"""Nats per token within which a size counts as predicting as well as the best."""


class _Scores(NamedTuple):
    per_document: Float[np.ndarray, " docs"]
    monte_carlo_error: float
    estimator: str


def held_out_comparison(result: "SearchResult", test: Any, *, samples: int = SAMPLES, seed: int = 0) -> pd.DataFrame:
    """log p(test | parameters at each kept size), and the paired difference to the most probable size.

    test: documents over the training vocabulary that the search did not see. A row per size whose fit was kept, in
    increasing order; nats per token. Columns: one per size variable (`size` if one); log_p_per_token and its
    monte_carlo_error; difference_per_token, above the most probable size; standard_error, of that difference over
    documents (paired, so what makes a document hard for every size cancels); estimator, how log p was computed: by
    importance sampling with a mean-field proposal for topic models, else the variational lower bound.

    `.attrs` holds reference (the most probable size), size_names, unit, documents, tokens, estimator.
    Raises ValueError for documents over another vocabulary, fewer than two documents, and no tokens.
    """
    corpus = corpus_of(test)
    if corpus.n_documents < 2 or not corpus.n_tokens:
        raise ValueError(
            f"got {corpus.n_documents} held-out document(s) with {corpus.n_tokens} tokens, expected at least two "
            "documents with words, so that a difference has an error"
        )
    reference = result.best_size
    sizes = sorted({size for size, fit in result.state.kept.items() if fit.state is not None} | {reference})
    capacity = tuple(max(sizes_of_one) for sizes_of_one in zip(*map(capacity_of, sizes), strict=True))
    scores = {size: _score(result.fit(size), corpus, samples, seed, capacity[0]) for size in sizes}
    n_documents, n_tokens = corpus.n_documents, corpus.n_tokens
    names = ("size",) if result.prior.dimension == 1 else tuple(result.evaluator.size_names)
    rows = []
    for size in sizes:
        difference = scores[size].per_document - scores[reference].per_document
        rows.append(
            {
                **dict(zip(names, size, strict=True)),
                "log_p_per_token": float(scores[size].per_document.sum()) / n_tokens,
                "monte_carlo_error": scores[size].monte_carlo_error / n_tokens,
                "difference_per_token": float(difference.sum()) / n_tokens,
                "standard_error": float(np.std(difference, ddof=1) * np.sqrt(n_documents)) / n_tokens,
                "estimator": scores[size].estimator,
            }
        )
    frame = pd.DataFrame(rows)
    frame.attrs = {
        "reference": reference,
        "size_names": names,
        "unit": unit_name(result),
        "documents": n_documents,
        "tokens": n_tokens,
        "estimator": scores[reference].estimator,
    }
    return frame


def agreement(comparison: pd.DataFrame) -> str:
    """Whether held-out documents agree with the most probable size, in one sentence without a full stop."""
    names, reference = list(comparison.attrs["size_names"]), comparison.attrs["reference"]
    best = comparison.loc[comparison["log_p_per_token"].idxmax()]
    top = tuple(int(best[name]) for name in names)
    chosen = comparison[(comparison[names] == list(reference)).all(axis=1)].iloc[0]
    score = f"{chosen['log_p_per_token']:.4f} nats per token".replace("-", "−")
    of = f"of the {len(comparison)} sizes kept, on {comparison.attrs['documents']:,} documents"
    if top == reference:
        return f"agrees: {_name(reference)} predicts best {of} ({score}; {comparison.attrs['estimator']})"
    gain, error = float(best["difference_per_token"]), float(best["standard_error"])
    verdict = "agrees within" if gain <= WITHIN else "disagrees by more than"
    return (
        f"{verdict} {WITHIN} nats per token: {_name(top)} predicts best {of}, {gain:.4f} ± {error:.4f} above "
        f"{_name(reference)} ({score}; {comparison.attrs['estimator']})"
    )


def save_held_out(test: Corpus, folder: Path) -> None:
    """Keep the held-out documents beside a search, without pickle."""
    counts = csr_array(test.counts)
    arrays = {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr}
    write_folder(folder, {"content": "held-out documents", "notes": list(test.notes)}, {"held-out": arrays})


def load_held_out(result: "SearchResult", folder: Path) -> Corpus | None:
    """The documents that `save_held_out` kept, over the training vocabulary; None where there are none.

    Raises ValueError for a damaged folder.
    """
    if result.training is None or not folder.is_dir():
        return None
    body, groups = read_folder(folder)
    try:
        arrays = groups["held-out"]
        return Corpus.from_csr(
            arrays["data"], arrays["indices"], arrays["indptr"], result.training.vocabulary, notes=body["notes"]
        )
    except KeyError as error:
        raise CorruptFolderError(f"{folder} holds no held-out documents ({error}); restore it from a copy") from error


def _score(fitted: FittedModel, test: Corpus, samples: int, seed: int, capacity: int) -> _Scores:
    if "topic_word" not in fitted.model.globals():
        return _Scores(fitted.score_documents(test), 0.0, "variational lower bound")
    topics = fitted.table("topic_word").to_numpy(np.float64)
    n_topics, n_words = topics.shape
    padded = np.zeros((capacity, n_words + 1))
    padded[:n_topics, :n_words] = topics
    padded[n_topics:, n_words] = 1.0
    alpha = np.full(capacity, PADDING)
    alpha[:n_topics] = fitted.alpha
    counts = csr_array((test.counts.data, test.counts.indices, test.counts.indptr), (test.n_documents, n_words + 1))
    # One key for all sizes: a document's draws depend on the key and the document, so differences share their noise.
    found = document_likelihood(padded, alpha, counts, method="mfi", samples=samples, key=jax.random.key(seed))
    return _Scores(
        found.log_likelihood, found.total_standard_error, f"importance sampling (mfi, {found.samples} samples)"
    )


def _name(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))
