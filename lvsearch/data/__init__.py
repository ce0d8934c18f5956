"""The kinds of data that a search is trained on: corpora, points, groups, images with captions; how they are checked
and stored.
"""

from lvsearch.data.base import Data, Nouns

__all__ = ["Data", "Nouns"]
