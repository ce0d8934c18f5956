"""The house style of pictures: colours, axes, captions, and pictures as part of a page.

It knows no model and no search.
"""
