"""Images with captions: how they are packed, started and fitted, and what the fitted models predict about them."""

from lvsearch.inference.annotation.predictions import (
    AbsentFactors,
    absent_factors,
    caption_distributions,
    region_distributions,
)
from lvsearch.inference.data.images import annotated_images

__all__ = ["AbsentFactors", "absent_factors", "annotated_images", "caption_distributions", "region_distributions"]
