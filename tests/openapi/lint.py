"""Finds what the OpenAPI schema allows and readers or tools do not forgive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from document import Json, Operation, operations


def findings(document: Json) -> list[str]:
    """Everything that is wrong with a document, one line each."""
    all_operations = list(operations(document))
    ids = Counter(operation.body.get("operationId") for operation in all_operations)
    found = [f"operationId {name} is used {count} times" for name, count in ids.items() if count > 1]
    tags = {tag["name"] for tag in document.get("tags", []) if tag.get("description")}
    schemes = set(document["components"]["securitySchemes"])
    for operation in all_operations:
        found += [f"{operation.name}: {finding}" for finding in _operation(operation, tags, schemes)]
    for name, schema in document["components"]["schemas"].items():
        found += [f"schema {name}: {finding}" for finding in _schema(schema)]
    return found


def _operation(operation: Operation, tags: set[str], schemes: set[str]) -> Iterator[str]:
    body = operation.body
    for field in ("operationId", "summary"):
        if not body.get(field):
            yield f"has no {field}"
    if "\n" in body.get("summary", "") or body.get("summary", "").endswith("."):
        yield "has a summary that is not one phrase"
    if not body.get("tags"):
        yield "has no tag"
    for tag in body.get("tags", []):
        if tag not in tags:
            yield f"has the tag {tag}, which is not described"
    if "security" not in body:
        yield "does not declare its security"
    for requirement in body.get("security", []):
        for scheme in requirement:
            if scheme not in schemes:
                yield f"needs the security scheme {scheme}, which does not exist"
    for status, response in body.get("responses", {}).items():
        if not response.get("description"):
            yield f"has a response {status} without a description"
    for parameter in body.get("parameters", []):
        if not parameter.get("description"):
            yield f"has a parameter {parameter['name']} without a description"


def _schema(schema: Json) -> Iterator[str]:
    if not schema.get("description"):
        yield "has no description"
    for name, field in schema.get("properties", {}).items():
        if not (field.get("description") or "$ref" in field):
            yield f"has a field {name} without a description"
