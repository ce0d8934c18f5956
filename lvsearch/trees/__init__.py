"""Trees of topics, for people: fits, pictures, storage."""
