"""Tells the author of a removed post, waits for an appeal, and has a moderator decide about it."""

from orchestrator.authoring import Workflow, cel, need
from workflows_app.gallery import posts

flow = Workflow(
    "content_appeal",
    title="Appeal against a removal",
    description="Tells the author, waits for an appeal, and has a moderator decide about it.",
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
    timeout="14d",
    labels={"waiting": "Open to appeal", "completed": "Closed"},
)
post = flow.input

tell_author = flow.tool(
    "tell_author",
    "mail.send",
    title="Tell the author",
    input={
        "to": post.author_email,
        "subject": f"Your post {post.content_id} was removed",
        "text": (
            f"Your post {post.content_id} breaks our rules and was removed.\n"
            "If you think that this is wrong, you may appeal within 7 days."
        ),
    },
    effect={"key": f"removal-mail:{post.content_id}", "on_doubt": "resend"},
)
appeal = flow.wait(
    "appeal",
    title="The author may appeal",
    needs=[tell_author],
    signal="appeal",
    schema={
        "type": "object",
        "required": ["reason"],
        "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": 5000}},
    },
    timeout="7d",
    on_timeout="continue",
)
decide = flow.human_gate(
    "decide",
    title="A moderator decides about the appeal",
    needs=[need(appeal, when="output != null")],
    assignees=["role:moderator"],
    message=(
        f"Post {post.content_id}: {post.text}\n"
        f"The author says: {appeal.output.reason}\n"
        "May it be shown again?"
    ),
    timeout="3d",
    on_timeout="reject",
    escalate=[{"after": "2d", "to": ["role:compliance_officer"]}],
    on_reject="continue",
)
flow.tool(
    "restore",
    posts.show,
    title="Show the post again",
    needs=[need(decide, when="output.decision == 'approved'")],
    input={"content_id": post.content_id, "note": "appeal granted"},
    effect={"key": f"restore:{post.content_id}"},
)
flow.returns(
    {"appealed": appeal.output != None, "restored": cel("has(steps.restore.output)")}  # noqa: E711 - CEL's null
)
