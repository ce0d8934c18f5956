"""Write files and folders atomically, by one process at a time, and read them back without trusting them."""
