"""Write README.md anew with absolute links, for the package index, which shows the page away from the repository.

    python .ci/absolute_links.py https://github.com/OWNER/NAME v1.0.0

The release workflow calls this before it builds. Nobody commits the result.
"""

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")
"""A link or a picture of Markdown whose target is a file of the repository: (picture mark, text, target)."""


def absolute_links(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose links to files of the repository name the files as they are at one tag.

    text: Markdown, links relative to the root of the repository.
    repository: its address, without a slash at the end.
    tag: the tag of the release, such as `v1.0.0`.

    A picture becomes a link to the bytes of its file, any other link one to the page that shows the file.
    """

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({repository}/{kind}/{tag}/{target})"

    return LINK.sub(absolute, text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    README.write_text(absolute_links(README.read_text(encoding="utf-8"), *sys.argv[1:]), encoding="utf-8")
