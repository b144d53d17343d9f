"""Links between the documents, in the repository and in the site."""

from __future__ import annotations

import re
from pathlib import Path

import markdown_links
import pytest
from conftest import ROOT

#: Attributes by which a page loads something, with an address of another host.
_LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"?(?:https?:)?//|<link[^>]+href=\"?(?:https?:)?//")


@pytest.mark.parametrize("path", markdown_links.files())
def test_links_of_a_document_lead_somewhere(path: str) -> None:
    assert list(markdown_links.broken(path, (ROOT / path).read_text())) == []


def test_a_wrong_link_is_found() -> None:
    text = "# One\n[a](#one) [b](#two) [c](docs/none.md) [d](docs/README.md#none) `[e](none)`\n```\n[f](none)\n```\n"
    assert list(markdown_links.broken("README.md", text)) == [
        "README.md: #two leads to no heading",
        "README.md: docs/none.md leads to no file",
        "README.md: docs/README.md#none leads to no heading",
    ]


def test_anchors_of_equal_headings_are_numbered() -> None:
    assert markdown_links.anchors("# A `b`: c\n## Twice\n## Twice\n") == {"a-b-c", "twice", "twice-1"}


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 70
    assert [page.name for page in pages if _LOADED.search(page.read_text())] == []


def test_the_site_has_the_generated_reference(site: Path) -> None:
    expected = {
        "reference/cli.html": "isolet snapshot create",
        "reference/configuration.html": "warm_pool_size",
        "reference/errors.html": "idempotency_mismatch",
        "reference/api/sandboxes.html": "POST /v1/sandboxes",
        "reference/api/schemas.html": "CreateSandbox",
        "security.html": "Reporting a vulnerability",
    }
    for page, text in expected.items():
        assert text in (site / page).read_text(), page
