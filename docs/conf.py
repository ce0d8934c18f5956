"""The documentation: python -m sphinx -W docs docs/_build

Sphinx, because it is kept by many, has the link checks and the doctests of the rest of Python, and fails on a warning;
furo for a plain page that reads at any width; MyST so that pages are the Markdown of README.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import lvsearch

project = "lvsearch"
author = "the lvsearch authors"
release = version = lvsearch.__version__
html_title = f"lvsearch {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "plain_docstrings",
    "reference_pages",
]
smartquotes = False  # "marginal" is an argument
suppress_warnings = ["toc.empty_glob"]  # a page that index.md names with a star may not be there yet
exclude_patterns = ["_build", "extensions", "pictures"]
myst_enable_extensions = ["dollarmath", "deflist", "attrs_inline"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["lvsearch.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
