"""What the model reads of a function, and which arguments reach it."""

import json
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from agentgym.errors import ConfigError
from agentgym.tools import ToolContext, tool
from agentgym.tools.schema import ArgumentError, read_signature


@dataclass
class Point:
    x: float
    y: float = 0.0


def find(
    query: str,
    top_k: Annotated[int, Field(ge=1)] = 5,
    kind: Literal["web", "news"] = "web",
    near: Point | None = None,
    context: ToolContext | None = None,
) -> list[str]:
    """Search the index.

    Returns the best matches first.

    Args:
        query: Words to look for.
        top_k: How many results.

    Returns:
        Titles.
    """
    return [query] * top_k


def test_schema_comes_from_signature_and_docstring() -> None:
    """One source of truth: what is written in the function is what the model reads."""
    schema = tool(find).to_schema()

    assert schema["type"] == "function"
    assert schema["function"]["name"] == "find"
    assert schema["function"]["description"] == (
        "Search the index.\n\nReturns the best matches first."
    )
    parameters = schema["function"]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["required"] == ["query"]
    assert parameters["properties"]["query"] == {
        "type": "string",
        "description": "Words to look for.",
    }
    assert parameters["properties"]["top_k"] == {
        "type": "integer",
        "minimum": 1,
        "description": "How many results.",
        "default": 5,
    }
    assert parameters["properties"]["kind"]["enum"] == ["web", "news"]
    assert "Point" in parameters["$defs"]
    assert json.loads(json.dumps(schema)) == schema


def test_the_context_is_hidden_from_the_model() -> None:
    """The model must neither see it nor be able to set it."""
    signature = read_signature(find, "find")

    assert signature.context_parameter == "context"
    assert "context" not in signature.json_schema["properties"]
    with pytest.raises(ArgumentError, match="unknown argument 'context'"):
        signature.validate({"query": "a", "context": {}})


def test_arguments_arrive_as_the_functions_own_types() -> None:
    """A function gets what it declares, and its own defaults where nothing is given."""
    assert read_signature(find, "find").validate({"query": "a", "near": {"x": 1}}) == {
        "query": "a",
        "near": Point(1.0),
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "argument 'query' is missing"),
        ({"query": 3}, "argument 'query': .*string.*got 3"),
        ({"query": None}, "argument 'query': .*string.*got None"),
        ({"query": "a", "top_k": "3"}, "argument 'top_k': .*integer.*got '3'"),
        ({"query": "a", "top_k": True}, "argument 'top_k': .*integer.*got True"),
        ({"query": "a", "top_k": 1.5}, "argument 'top_k': .*integer.*got 1.5"),
        ({"query": "a", "top_k": 0}, "argument 'top_k': .*greater than or equal to 1"),
        ({"query": "a", "kind": "x"}, "argument 'kind': .*'web' or 'news'"),
        ({"query": "a", "near": {"y": 1}}, "argument 'near.x' is missing"),
        ({"query": "a", "topk": 3}, r"unknown argument 'topk' \(known: query, top_k, kind, near\)"),
        ({"query": "a", "b": {1, 2}}, "the arguments are not JSON"),
        ({"query": "\ud800"}, "the arguments cannot be read"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], complaint: str) -> None:
    """The model can only mend what it is told."""
    with pytest.raises(ArgumentError, match=complaint):
        read_signature(find, "find").validate(arguments)


def test_long_values_are_shortened_in_messages() -> None:
    """An error must not flood the context."""
    with pytest.raises(ArgumentError) as caught:
        read_signature(find, "find").validate({"query": ["x" * 10_000]})

    assert len(str(caught.value)) < 300


JSON_VALUES = {
    str: st.text(st.characters(exclude_categories=["Cs"])),
    int: st.integers(-(2**100), 2**100),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    list[int]: st.lists(st.integers(-99, 99), max_size=3),
    dict[str, bool]: st.dictionaries(st.text(st.characters(codec="ascii")), st.booleans()),
    int | None: st.none() | st.integers(-99, 99),
}


@given(st.data(), st.lists(st.sampled_from(list(JSON_VALUES)), max_size=4))
def test_what_the_schema_allows_arrives_unchanged(data: st.DataObject, types: list[Any]) -> None:
    """For any signature, arguments of its types pass as they are, and a missing one is noticed."""
    names = [f"p{index}" for index in range(len(types))]
    namespace: dict[str, Any] = {"types": types}
    annotated = ", ".join(f"{name}: types[{index}]" for index, name in enumerate(names))
    exec(f"def function({annotated}): ...", namespace)
    signature = read_signature(namespace["function"], "function")
    arguments = {
        name: data.draw(JSON_VALUES[kind]) for name, kind in zip(names, types, strict=True)
    }

    assert signature.validate(json.loads(json.dumps(arguments))) == arguments
    assert signature.json_schema["required"] == names
    for name in names:
        with pytest.raises(ArgumentError, match=f"argument '{name}' is missing"):
            signature.validate({key: arguments[key] for key in names if key != name})


def test_parameters_may_have_any_name() -> None:
    """Names that a pydantic model would reserve are ordinary arguments."""

    def function(
        schema: int, json: int, model_config: int, _hidden: int, copy: int = 2
    ) -> None: ...

    arguments = {"schema": 1, "json": 2, "model_config": 3, "_hidden": 4, "copy": 5}
    assert read_signature(function, "function").validate(arguments) == arguments


def no_annotation(x): ...  # type: ignore[no-untyped-def]
def variadic(*values: int) -> None: ...
def keywords(**values: int) -> None: ...
def positional(x: int, /) -> None: ...
def unknown_type(x: "Nonsense") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def no_schema(x: threading.Event) -> None: ...


class Shop:
    def buy(self, item: str) -> str:
        """Buy it."""
        return f"{item} from {type(self).__name__}"


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (no_annotation, "parameter 'x' needs a type annotation$"),
        (variadic, "parameter 'values' is variadic positional"),
        (keywords, "parameter 'values' is variadic keyword"),
        (positional, "parameter 'x' is positional-only"),
        (unknown_type, "annotations cannot be read.*Nonsense"),
        (no_schema, "type cannot be validated"),
        (Shop.buy, r"parameter 'self' .*use tool\(instance.method\)"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_when_it_is_made(
    function: Any, complaint: str
) -> None:
    """Not in the middle of a run, at its first call."""
    with pytest.raises(ConfigError, match=complaint):
        tool(function)


def test_a_bound_method_is_a_tool() -> None:
    """Envs keep their state on themselves."""
    assert list(tool(Shop().buy).parameters["properties"]) == ["item"]
