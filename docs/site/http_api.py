"""The pages of the HTTP API, from docs/openapi.json: one for each tag, one of the schemas, one of the error codes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]


#: Titles of the tags that are named after other systems.
_DIALECTS = {"cloudflare": "Cloudflare", "e2b": "E2B", "isorun": "Isorun", "pokee": "Pokee"}


def _title(tag: str) -> str:
    return f"Dialect of {_DIALECTS[tag]}" if tag in _DIALECTS else tag.capitalize()


def navigation(document: Path) -> list[str | dict[str, str]]:
    """The entries of the navigation for the pages of the API."""
    tags = [tag["name"] for tag in json.loads(document.read_text())["tags"]]
    entries: list[str | dict[str, str]] = ["reference/api/README.md"]
    entries += [{_title(tag): f"reference/api/{tag}.md"} for tag in tags]
    return [*entries, {"Schemas": "reference/api/schemas.md"}]


def pages(document: Path) -> Iterator[tuple[str, str]]:
    """Generate the pages: path and Markdown."""
    api = json.loads(document.read_text())
    operations: dict[str, list[tuple[str, str, Json]]] = {tag["name"]: [] for tag in api["tags"]}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            operations[operation["tags"][0]].append((method.upper(), path, operation))
    yield "reference/api/README.md", _overview(api, operations)
    for tag in api["tags"]:
        yield f"reference/api/{tag['name']}.md", _tag(tag, operations[tag["name"]])
    yield "reference/api/schemas.md", _schemas(api["components"]["schemas"])
    yield "reference/errors.md", _errors(api["components"]["schemas"]["Error"])


def _overview(api: Json, operations: Mapping[str, list[tuple[str, str, Json]]]) -> str:
    rows = "".join(
        f"| [{tag['name']}]({tag['name']}.md) | {len(operations[tag['name']])} | {_cell(tag['description'])} |\n"
        for tag in api["tags"]
    )
    return (
        "# HTTP API\n\nThese pages are generated from [openapi.json](../../openapi.json), which a server also serves "
        f"at `/v1/openapi.json`.\n\n| part | calls | content |\n|---|---|---|\n{rows}\n{api['info']['description']}\n"
    )


def _tag(tag: Json, operations: list[tuple[str, str, Json]]) -> str:
    lines = [f"# {_title(tag['name'])}\n\n{tag['description']}\n\n| call | effect |\n|---|---|\n"]
    lines += [f"| `{method} {path}` | {operation['summary']} |\n" for method, path, operation in operations]
    lines += [_operation(method, path, operation) for method, path, operation in operations]
    return "".join(lines)


def _operation(method: str, path: str, operation: Json) -> str:
    lines = [f"\n## {operation['summary']}\n\n```text\n{method} {path}\n```\n\n{operation.get('description', '')}\n"]
    if parameters := operation.get("parameters"):
        lines.append("\n| parameter | in | type | meaning |\n|---|---|---|---|\n")
        for one in parameters:
            name = f"`{one['name']}`{' (required)' if one.get('required') and one['in'] != 'path' else ''}"
            lines.append(f"| {name} | {one['in']} | {_type(one['schema'])} | {_cell(one.get('description', ''))} |\n")
    if body := operation.get("requestBody"):
        for kind, content in body["content"].items():
            shape = _type(content.get("schema", {}))
            lines.append(f"\n**Body** (`{kind}`): {shape}\n{_example(content)}")
    lines.append("\n| answer | body | meaning |\n|---|---|---|\n")
    examples = []
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        shapes = ", ".join(f"{_type(one.get('schema', {}))} (`{kind}`)" for kind, one in content.items())
        lines.append(f"| {status} | {shapes} | {_cell(response['description'])} |\n")
        examples += [f"\nExample of {status}:\n{text}" for one in content.values() if (text := _example(one))]
    return "".join(lines + examples)


def _example(content: Json) -> str:
    if "example" not in content:
        return ""
    example = content["example"]
    text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
    return f"\n```json\n{text}\n```\n"


def _schemas(schemas: Mapping[str, Json]) -> str:
    lines = ["# Schemas\n\nThe objects that the calls of the HTTP API receive and return.\n"]
    for name, schema in schemas.items():
        lines.append(f"\n## {name}\n\n{schema.get('description', '')}\n{_fields(schema)}")
    return "".join(lines)


def _fields(schema: Json) -> str:
    """What a schema consists of, as Markdown."""
    for word, text in (("allOf", "All of"), ("oneOf", "One of"), ("anyOf", "Any of")):
        if word in schema:
            parts = [
                f"\n- {_type(part)}{': ' + _cell(part['description']) if part.get('description') else ''}\n"
                for part in schema[word]
            ]
            inner = "".join(_fields(part) for part in schema[word] if "properties" in part)
            return f"\n{text}:\n{''.join(parts)}{inner}"
    properties = schema.get("properties")
    if not properties:
        return f"\nType: {_type(schema)}\n" if schema.get("type") != "object" else ""
    required = schema.get("required", ())
    rows = [
        f"| `{name}`{'' if name in required else ' (optional)'} | {_type(one)} "
        f"| {_cell(one.get('description', ''))} |\n"
        for name, one in properties.items()
    ]
    return "\n| field | type | meaning |\n|---|---|---|\n" + "".join(rows)


def _type(schema: Json) -> str:
    """The type of a schema in a few words, with links to named ones."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # The same page has no link to itself by path, so a link works from all pages of this folder.
        return f"[{name}](schemas.md#{name.lower()})"
    for word, between in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")):
        if word in schema:
            return between.join(_type(one) for one in schema[word])
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    names = []
    for kind in kinds:
        if kind == "array":
            names.append(f"list of {_type(schema.get('items', {}))}")
        elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            names.append(f"map of {_type(schema['additionalProperties'])}")
        else:
            names.append(kind)
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " or ".join(names) + (f" {' '.join(bounds)}" if bounds else "")


def _errors(schema: Json) -> str:
    return f"# Error codes\n\n{schema['description']}\n{_fields(schema)}"


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
