"""What a new provider must not forget: a branch in the factory, and a word in the docs."""

import ast
from pathlib import Path

import pytest

import crushpy.llm
from crushpy.llm import catalog, vendors
from crushpy.llm.provider_factory import PROTOCOLS, create_client, endpoint_protocol
from crushpy.llm.vendors import Endpoint
from crushpy.settings.schema import Settings

ROOM = Path(crushpy.llm.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "models.md"
FACTORY = ROOM / "provider_factory.py"
ENDPOINT = Endpoint("openai/test-model", "openai", "http://127.0.0.1:1/v1", "a key")


def providers() -> list[str]:
    """Every public class of the room that answers requests, with its module."""
    found: list[str] = []
    for path in sorted(ROOM.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_") or node.name == "Provider":
                continue
            names = {
                item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if "HttpProvider" in bases or ({"stream", "close"} <= names and "ABC" not in bases):
                parts = path.relative_to(ROOM.parent.parent).with_suffix("").parts
                module = ".".join(part for part in parts if part != "__init__")
                found.append(f"{module}.{node.name}")
    return found


@pytest.mark.parametrize("provider", providers())
def test_every_provider_is_made_by_the_factory(provider: str) -> None:
    made = {
        f"{type(built).__module__}.{type(built).__name__}"
        for protocol in PROTOCOLS
        for built in [create_client(protocol, ENDPOINT)]
    }
    assert provider in made, (
        f"{provider} answers requests, but no branch of create_client in {FACTORY.name} makes it: add one."
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_is_in_the_docs(protocol: str) -> None:
    assert f"`{protocol}`" in DOCS.read_text(), (
        f"docs/models.md does not say what `{protocol}` is for: add it."
    )


@pytest.mark.parametrize("vendor", vendors.PROVIDERS, ids=lambda vendor: vendor.name)
def test_every_vendor_has_a_key_a_known_model_and_a_protocol(vendor: vendors.Vendor) -> None:
    where = f"the row of {vendor.name} in llm/vendors.toml"
    assert vendor.variables, f"{where} names no variable that holds its key"
    assert catalog.is_known(vendor.default_model), f"{where} names {vendor.default_model}, which nobody knows"
    endpoint = Endpoint(vendor.default_model, vendor.name, key="a key")
    assert endpoint_protocol(endpoint, Settings()) in PROTOCOLS, f"{where} leads to no protocol"
