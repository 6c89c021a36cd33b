"""The parts of reference pages that are written from the program when the site is built, where a page says so:

<!-- written when the site is built: commands -->
"""

import re

import command_pages
import file_formats
import policy_keys

MARK = re.compile(r"<!-- written when the site is built: (\w+) -->")
PARTS = {"commands": command_pages.text, "policy": policy_keys.text, "formats": file_formats.text}


def written(markdown: str) -> str:
    """A page with its marked parts written."""
    return MARK.sub(lambda mark: PARTS[mark[1]](), markdown)
