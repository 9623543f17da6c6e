"""Pages of the documentation site that stand outside of docs/: the home page is the README."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    **{name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")},
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    outside = page.file.src_uri in PAGES.values()
    return LINK.sub(lambda link: _in_site(link, outside=outside), markdown)


def _in_site(link: re.Match[str], *, outside: bool) -> str:
    """The link as the site has it; the text alone if it leads to a file that is not part of the site."""
    picture, text, target, anchor = link.groups(default="")
    path = target.removeprefix("docs/") if outside else target.removeprefix("../")
    path = PAGES.get(path, path)
    if not outside and path == target and not target.startswith("../"):
        return link[0]
    if path in PAGES.values() or (ROOT / "docs" / path).is_file():
        return f"{picture}[{text}]({path}{anchor})"
    exists = (ROOT / ("" if outside else "docs") / target).exists()
    return text if exists else link[0]  # a dead link fails in strict mode
