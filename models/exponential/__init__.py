"""The exponential families, those of related variables in one file. `lvsearch.models.families` exports them."""
