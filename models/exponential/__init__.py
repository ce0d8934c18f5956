"""The exponential families, one kind of variable per file; `lvsearch.models.families` is their public face."""
