"""What a search found: tables, sentences, pictures, cards, and the folder that keeps it."""
