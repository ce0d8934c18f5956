"""Write a search to a folder for reading: Markdown, pictures and tables, and one page for the browser."""
