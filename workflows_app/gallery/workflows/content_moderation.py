"""A model sorts a post; what is unclear goes to a moderator, what is removed may be appealed."""

from orchestrator.authoring import Workflow, cel, need
from workflows_app.gallery import posts
from workflows_app.gallery.workflows.content_appeal import flow as content_appeal

flow = Workflow(
    "content_moderation",
    title="Content moderation",
    description=(
        "A model sorts a post; what is unclear goes to a moderator, what is removed may be"
        " appealed."
    ),
    input={
        "type": "object",
        "required": ["content_id", "author_email", "text"],
        "additionalProperties": False,
        "properties": {
            "content_id": {"type": "string", "minLength": 1, "maxLength": 100},
            "author_email": {"type": "string", "format": "email"},
            "text": {"type": "string", "minLength": 1, "maxLength": 20000},
        },
    },
    budget={"cost_usd": 0.50, "duration": "5m", "on_exceeded": "pause"},
    timeout="20d",
    labels={
        "running": "Being looked at",
        "waiting": "Waiting for a moderator, or open to appeal",
        "completed": "Decided",
    },
)
post = flow.input

screen = flow.router(
    "screen",
    title="Sort the post",
    strategy="llm",
    model="fast",
    timeout="30s",
    question=f"Post: {post.content_id}\nText: {post.text}",
    routes=[
        {
            "id": "harmless",
            "to": ["show"],
            "description": "Nobody is hurt or deceived by it.",
        },
        {
            "id": "harmful",
            "to": ["remove"],
            "description": "It threatens, insults or defrauds somebody.",
        },
        {
            "id": "unclear",
            "to": ["judge"],
            "description": "It depends on what is not in the text.",
        },
    ],
    default="unclear",
)
judge = flow.human_gate(
    "judge",
    title="A moderator judges",
    assignees=["role:moderator"],
    message=f"Post {post.content_id}: {post.text}\nMay it be shown?",
    timeout="1d",
    on_timeout="reject",
    on_reject="continue",
)
flow.tool(
    "show",
    posts.show,
    title="Show the post",
    needs=[need(judge, when="output.decision == 'approved'")],
    input={"content_id": post.content_id},
    effect={"key": f"show:{post.content_id}"},
)
remove = flow.tool(
    "remove",
    posts.remove,
    title="Remove the post",
    needs=[need(judge, when="output.decision == 'rejected'")],
    input={"content_id": post.content_id},
    effect={"key": f"remove:{post.content_id}"},
    compensate={
        "tool": posts.show,
        "input": {"content_id": post.content_id, "note": "the removal was undone"},
        "effect": {"key": f"undo-remove:{post.content_id}"},
    },
)
flow.sub_workflow(
    "appeal",
    content_appeal,
    title="Appeal against the removal",
    needs=[remove],
    input={
        "content_id": post.content_id,
        "author_email": post.author_email,
        "text": post.text,
    },
)
flow.returns(
    {
        "content_id": post.content_id,
        "sorted_as": screen.output.routes[0],
        "shown": cel(
            "has(steps.show.output) || (has(steps.appeal.output) && steps.appeal.output.restored)"
        ),
    }
)
