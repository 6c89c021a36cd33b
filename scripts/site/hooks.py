"""What MkDocs asks of us while it builds the site (mkdocs.yml): links that leave docs/, lists as code hosts read them,
and the parts of pages that are written from the program."""

from pathlib import Path
from typing import Any

import code_host
import outside
from mkdocs.structure.files import File
from written import written

ROOT = Path(__file__).resolve().parents[2]


def on_files(files: Any, config: Any) -> Any:
    """Beside docs/: a page or a copy of every file of the project that a page links to."""
    pages = {f.src_uri: f.content_string for f in files.documentation_pages()}
    for place, content in outside.files(ROOT, pages).items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    return code_host.read(outside.relinked(written(markdown), place, ROOT))
