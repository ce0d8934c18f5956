"""What is searched: corpora, points, groups, images with captions; how they are checked and kept."""

from lvsearch.data.base import Data, Nouns

__all__ = ["Data", "Nouns"]
