"""How many topics, clusters or features does the data have, and how sure can one be?"""
