"""The demo's forum: posts are shown and removed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from orchestrator.authoring import ToolContext, tool
from workflows_app.gallery.provider import find_entry, perform, reference

CONTENT = "content"

ContentId = Annotated[str, Field(min_length=1, max_length=200)]


class Post(TypedDict):
    """A post as the forum has it."""

    external_ref: str
    content_id: str
    visible: bool


def find_shown(ctx: ToolContext, **_input: Any) -> dict[str, Any] | None:
    """What was shown under the call's key."""
    return _answer_of(ctx, "show")


def find_removed(ctx: ToolContext, **_input: Any) -> dict[str, Any] | None:
    """What was removed under the call's key."""
    return _answer_of(ctx, "remove")


@tool(
    "demo.content.show",
    idempotent=True,
    effect="required",
    reconcile=find_shown,
    service="demo.content",
)
def show(ctx: ToolContext, content_id: ContentId, note: str = "") -> Post:
    """Let everybody see a post."""
    return _set(ctx, "show", content_id, visible=True, note=note)


@tool(
    "demo.content.remove",
    idempotent=True,
    effect="required",
    reconcile=find_removed,
    service="demo.content",
)
def remove(ctx: ToolContext, content_id: ContentId, note: str = "") -> Post:
    """Let nobody see a post any more."""
    return _set(ctx, "remove", content_id, visible=False, note=note)


def _set(ctx: ToolContext, operation: str, content_id: str, *, visible: bool, note: str) -> Post:
    asked = {"content_id": content_id, "note": note}

    def act() -> dict[str, Any]:
        ref = reference("post", ctx.tenant, content_id)
        return {"external_ref": ref, "content_id": content_id, "visible": visible}

    answer: Post = perform(ctx, service=CONTENT, operation=operation, request=asked, act=act)
    return answer


def _answer_of(ctx: ToolContext, operation: str) -> dict[str, Any] | None:
    entry = find_entry(ctx, service=CONTENT, operation=operation)
    return None if entry is None else entry.response
