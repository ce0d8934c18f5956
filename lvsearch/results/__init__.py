"""The result of a search: tables, sentences, pictures, cards, checks, and storage in a folder."""
