import pytest

from orchestrator.authoring import (
    DuplicateTool,
    ToolDefinitionError,
    ToolRegistry,
    ToolSpec,
    UnknownTool,
    registry,
    tool,
)
from orchestrator.authoring.signature import read_signature


def spec(name, function):
    return ToolSpec(
        name=name,
        function=function,
        signature=read_signature(function),
        idempotent=False,
        effect=None,
        reconcile=None,
        service=None,
        timeout=None,
    )


def charge(order_id: str) -> dict:
    """Charge."""
    return {"order_id": order_id}


def refund(order_id: str) -> dict:
    return {"order_id": order_id}


def test_a_registered_tool_is_found_by_name():
    tools = ToolRegistry()
    tools.register(spec("pay.charge", charge))

    assert tools.get("pay.charge").doc == "Charge."
    assert tools.names() == ("pay.charge",)
    assert "pay.charge" in tools
    assert "pay.refund" not in tools


def test_an_unknown_tool_is_an_error_that_says_where_tools_come_from():
    with pytest.raises(UnknownTool, match=r"no tool is called 'pay.nope'.*tools.py"):
        ToolRegistry().get("pay.nope")


def test_two_functions_under_one_name_are_refused_naming_both():
    tools = ToolRegistry()
    tools.register(spec("pay", charge))

    with pytest.raises(DuplicateTool) as caught:
        tools.register(spec("pay", refund))

    assert "test_registry.charge" in str(caught.value)
    assert "test_registry.refund" in str(caught.value)
    assert tools.get("pay").function is charge


def test_a_name_written_twice_in_one_module_is_refused():
    def make_first():
        def same(a: int) -> int:
            return a

        return same

    def make_second():
        def same(a: int) -> int:
            return -a

        return same

    first, second = make_first(), make_second()
    second.__qualname__ = first.__qualname__
    tools = ToolRegistry()
    tools.register(spec("same", first))

    with pytest.raises(DuplicateTool):
        tools.register(spec("same", second))


def test_the_same_function_again_replaces_itself():
    tools = ToolRegistry()
    tools.register(spec("pay", charge))

    tools.register(spec("pay", charge))

    assert tools.names() == ("pay",)


@pytest.mark.parametrize("name", ["", "Pay", "pay.", ".pay", "pay charge", "1pay", "a" * 101])
def test_a_bad_name_is_refused_at_the_decorator(name):
    with pytest.raises(ToolDefinitionError, match="is no tool name"):
        tool(name)(charge)


def test_the_decorator_registers_and_leaves_the_function_alone():
    @tool("authoring_test.double", idempotent=True, effect="required", service="maths", timeout=3)
    def double(number: int) -> int:
        return number * 2

    found = registry.get("authoring_test.double")

    assert double(2) == 4
    assert (found.idempotent, found.effect, found.service, found.timeout) == (
        True,
        "required",
        "maths",
        3,
    )
    assert found.parameters == ("number",)
    assert found.output_schema == {"type": "integer"}
