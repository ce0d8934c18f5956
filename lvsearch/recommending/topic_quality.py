"""Measure how readable the topics of a fit are, and how many of them a fit from another start finds too."""

from dataclasses import replace

import numpy as np

from lvsearch.comparison.similarity import HALF, member_similarity, partners
from lvsearch.data.base import Data
from lvsearch.fitted.topics import FittedTopics
from lvsearch.sizing.fit import TopicQuality


def topic_quality(first: FittedTopics, second: FittedTopics, new: Data) -> TopicQuality:
    """Measure the coherence of the topics of a fit, and count the topics that a second fit finds again.

    A topic is found again if a topic of the second fit holds the same tokens: the Jaccard coefficient of the two,
    corrected for chance, is above ½.

    Args:
        first: the fit that is measured. Coherence is computed in its training documents.
        second: a fit of the same documents at the same size from another seed.
        new: documents that neither fit has seen; topics are matched by their tokens in these documents.
    """
    coherence = first.coherence().to_numpy()
    members, others = (replace(fit, training=new).members() for fit in (first, second))
    return TopicQuality(
        coherence=float(coherence.mean()),
        coherence_error=float(coherence.std(ddof=1) / np.sqrt(len(coherence))) if len(coherence) > 1 else 0.0,
        found_again=int((partners(member_similarity(members, others)) > HALF).sum()),
    )
