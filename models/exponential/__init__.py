"""The exponential families, one kind of variable in each file. `lvsearch.models.families` exports them."""
