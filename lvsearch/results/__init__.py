"""What a search found: tables, sentences, pictures, cards, reports, and the folder that keeps it."""
