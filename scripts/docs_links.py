"""Hook of mkdocs: pages that lie in the root of the project, and links that lead out of docs/.

Links to files that are no pages become their paths: the site has pages only.
"""

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")
FROM_ROOT = {"security.md": "SECURITY.md", "changelog.md": "CHANGELOG.md"}
PAGES = {ROOT / name: ROOT / "docs" / page for page, name in FROM_ROOT.items()}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Take pages of the root from there, and rewrite links so that they lead to pages."""
    here = Path(page.file.abs_src_path).parent
    name = FROM_ROOT.get(page.file.src_uri)
    if name is not None:
        markdown = (ROOT / name).read_text(encoding="utf-8")
    folder = ROOT if name is not None else here

    def rewritten(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {found[2]}, which is not there")
        target = PAGES.get(target, target)
        if target.is_relative_to(ROOT / "docs") and target.suffix:
            return f"[{found[1]}]({os.path.relpath(target, here)}{found[3] or ''})"
        path = f"`{target.relative_to(ROOT)}`"
        same = found[1].strip("`") in (target.name, str(target.relative_to(ROOT)))
        return path if same else f"{found[1]} ({path})"

    return LINK.sub(rewritten, markdown)
