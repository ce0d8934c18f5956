"""What was fitted or drawn at one size, for people: tables, captions, clusters, occupied components."""
