"""The committed document is valid, readable, and lists the error codes of the sources."""

from __future__ import annotations

import copy
import re

import pytest
from document import ROOT, Json, load, operations
from jsonschema import Draft202012Validator
from lint import findings
from openapi_spec_validator import OpenAPIV31SpecValidator


@pytest.fixture(scope="module")
def document() -> Json:
    return load()


def test_the_document_is_valid_openapi_3_1(document: Json) -> None:
    errors = [f"{list(error.absolute_path)}: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]
    assert document["openapi"].startswith("3.1.")
    assert errors == []


def test_lint_finds_nothing(document: Json) -> None:
    assert findings(document) == []


@pytest.mark.parametrize(
    ("field", "value", "finding"),
    [
        ("operationId", "sandboxes_list", "is used 2 times"),
        ("summary", None, "has no summary"),
        ("tags", None, "has no tag"),
        ("tags", ["unknown"], "is not described"),
        ("security", None, "does not declare its security"),
        ("responses", {"200": {"description": ""}}, "without a description"),
    ],
)
def test_lint_finds_what_is_broken(document: Json, field: str, value: object, finding: str) -> None:
    broken = copy.deepcopy(document)
    operation = broken["paths"]["/v1/sandboxes"]["post"]
    if value is None:
        del operation[field]
    else:
        operation[field] = value
    assert any(finding in line for line in findings(broken))


def test_examples_match_their_schemas(document: Json) -> None:
    examples = 0
    for operation in operations(document):
        bodies = [operation.body.get("requestBody", {}), *operation.body["responses"].values()]
        for content in [content for body in bodies for content in body.get("content", {}).values()]:
            if "example" not in content:
                continue
            examples += 1
            schema = {**content["schema"], "components": document["components"]}
            errors = [error.message for error in Draft202012Validator(schema).iter_errors(content["example"])]
            assert errors == [], operation.name
    assert examples >= 15


def test_calls_without_a_key_say_so(document: Json) -> None:
    public = {operation.path for operation in operations(document) if operation.body["security"] == []}
    assert public == {"/health"}


#: A status and the code that stands behind it, as the sources of `crates/http` write them.
_CODE = re.compile(
    r'(?:ApiError|Self)::new\(\s*(?:StatusCode::\w+|status),\s*"(\w+)"|\bS::\w+,\s*"(\w+)"|\.coded\("(\w+)"\)'
    r'|StatusCode::\w+, "(\w+)"\)'
)


def test_every_error_code_is_documented(document: Json) -> None:
    listed = set(re.findall(r"^\| `(\w+)` \| \d", document["components"]["schemas"]["Error"]["description"], re.MULTILINE))
    used: set[str] = set()
    for path in (ROOT / "crates/http/src").rglob("*.rs"):
        if path.name == "health.rs":  # Its status is no error.
            continue
        source = path.read_text().split("#[cfg(test)]")[0]
        used |= {code for match in _CODE.finditer(source) for code in match.groups() if code}
    assert used - listed == set(), "add these to crates/http/src/router/openapi/error_codes.rs"
    assert listed - used == set(), "remove these from crates/http/src/router/openapi/error_codes.rs"
