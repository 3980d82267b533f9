"""Reads an invoice page by page, has a person look where the reading is unsure, and files it."""

from orchestrator.authoring import Workflow, cel
from workflows_app.gallery import invoices

flow = Workflow(
    "document_processing",
    title="Document processing",
    description=(
        "Reads an invoice page by page, has a person look where the reading is unsure, and files"
        " it."
    ),
    input={
        "type": "object",
        "required": ["document_id", "text"],
        "additionalProperties": False,
        "properties": {
            "document_id": {"type": "string", "minLength": 1, "maxLength": 100},
            "text": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200000,
                "description": "Pages are parted by form feeds.",
            },
            "reply_to": {"type": "string", "format": "email"},
        },
    },
    budget={"cost_usd": 1.00, "duration": "10m", "on_exceeded": "pause"},
    timeout="5d",
    sla={"complete_within": "1d"},
    labels={
        "running": "Being read",
        "waiting": "Waiting for somebody to look",
        "completed": "Filed",
    },
)
document_id = flow.input.document_id

split = flow.tool("split", invoices.split, title="Part the pages", input={"text": flow.input.text})
page = cel("page")
read = flow.agent(
    "read",
    "fast",
    title="Read each page",
    needs=[split],
    for_each={"items": split.output.pages, "as": "page", "max_parallel": 4},
    timeout="60s",
    system=(
        "You read pages of invoices. Give only what stands on the page, null for what does not,"
        " and how sure you are, from 0 to 1."
    ),
    prompt=f"Page: {page.number}\n{page.text}",
    output_schema={
        "type": "object",
        "required": ["vendor", "invoice_number", "total_cents", "currency", "confidence"],
        "additionalProperties": False,
        "properties": {
            "vendor": {"type": ["string", "null"]},
            "invoice_number": {"type": ["string", "null"]},
            "total_cents": {"type": ["integer", "null"]},
            "currency": {"type": ["string", "null"]},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        },
    },
)
combine = flow.tool(
    "combine",
    invoices.combine,
    title="Put the pages together",
    needs=[read],
    input={"pages": read.output},
)
whole = combine.output
flow.router(
    "trust",
    title="Is the reading sure enough?",
    needs=[combine],
    strategy="score",
    value=whole.confidence,
    routes=[
        {"id": "sure", "at_least": 0.8, "to": ["file"]},
        {"id": "unsure", "at_least": 0, "to": ["check"]},
    ],
    default="unsure",
)
check = flow.human_gate(
    "check",
    title="Somebody looks at the document",
    assignees=["role:operator"],
    message=(
        f"Document {document_id} was read with a confidence of {whole.confidence}.\n"
        f"Read: {whole.fields}\n"
        "Correct what is wrong; what is left out stays as it was read."
    ),
    form={
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "vendor": {"type": "string", "minLength": 1},
            "invoice_number": {"type": "string", "minLength": 1},
            "total_cents": {"type": "integer", "minimum": 0},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        },
    },
    timeout="2d",
    on_timeout="reject",
    on_reject="end",
    labels={"waiting": "Waiting for somebody to look"},
)
file = flow.tool(
    "file",
    invoices.file,
    title="File the document",
    needs=[check],
    input={
        "document_id": document_id,
        "fields": whole.fields,
        "corrections": cel("has(steps.check.output) ? steps.check.output.data : null"),
    },
    effect={"key": f"file:{document_id}"},
)
flow.tool(
    "tell",
    "mail.send",
    title="Tell whoever sent it",
    needs=[file],
    when=cel("has(input.reply_to)"),
    input={
        "to": flow.input.reply_to,
        "subject": f"Document {document_id}",
        "text": f"It has been filed as {file.output.external_ref}.",
    },
    effect={"key": f"filed-mail:{document_id}", "on_doubt": "resend"},
)
flow.returns(
    {
        "document_id": document_id,
        "filed_as": file.output.external_ref,
        "fields": file.output.fields,
        "checked_by": cel("has(steps.check.output) ? string(steps.check.output.by) : 'nobody'"),
    }
)
