"""Hook of MkDocs: adds the generated reference and pages from outside of docs/, and rewrites links to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent))

import commands  # noqa: E402
import http_api  # noqa: E402
import links  # noqa: E402
import settings  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
#: Pages of the site whose source is outside of docs/, by the path of the source.
COPIED = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "PROMISES.md": "project/promises.md",
    "SECURITY.md": "security.md",
    "console/README.md": "console.md",
    "integrations/deepagents/README.md": "integrations/deepagents.md",
    "integrations/inspect/README.md": "integrations/inspect.md",
    "sdk/python/README.md": "sdk/python.md",
    "sdk/typescript/README.md": "sdk/typescript.md",
}


def _generated() -> Iterator[tuple[str, str]]:
    sources = {source: f"docs/{page}" for source, page in COPIED.items()}
    for source, page in COPIED.items():
        text = (ROOT / source).read_text()
        yield page, links.rewritten(text, source, f"docs/{page}", sources, ROOT)
    yield from http_api.pages(ROOT / "docs/openapi.json")
    yield "reference/cli.md", commands.page(commands.program(ROOT))
    yield "reference/configuration.md", settings.page((ROOT / "config/isolet.toml").read_text())


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the part of the navigation that has a page for each tag of the HTTP API."""
    reference = next(entry["Reference"] for entry in config.nav or [] if "Reference" in entry)
    api = next(entry for entry in reference if "HTTP API" in entry)
    api["HTTP API"] = http_api.navigation(ROOT / "docs/openapi.json")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of docs/."""
    for path, text in _generated():
        files.append(File.generated(config, path, content=text))
    scripts = ROOT / "target/docs/scripts"
    for asset in (scripts / "mermaid.min.js", scripts / "iframe-worker.js", ROOT / "docs/site/site.css"):
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links of the pages of docs/ that leave it lead to pages of the site, or be plain text."""
    if page.file.generated_by is not None:
        return markdown
    sources = {source: f"docs/{target}" for source, target in COPIED.items()}
    path = f"docs/{page.file.src_uri}"
    return links.rewritten(markdown, path, path, sources, ROOT)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load a script of the theme from the site instead of another host, and Mermaid only for diagrams."""
    here = "../" * page.file.dest_uri.count("/")
    if 'class="mermaid"' not in output:
        output = output.replace(f'<script src="{here}assets/mermaid.min.js"></script>', "")
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{here}assets/iframe-worker.js")


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Do the same for the page that says that a page is missing."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js")
