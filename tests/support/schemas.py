"""Documents held against docs/reference/schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "reference" / "schemas"


def check(name: str, document: dict[str, Any]) -> None:
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)
