"""Trees of topics in the form that users see: fits, pictures, storage."""
