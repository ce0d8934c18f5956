"""Write the report of a search to a folder: Markdown, pictures, tables, and one page for the browser."""
