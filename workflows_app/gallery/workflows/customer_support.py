"""Classifies a ticket, researches it, drafts a reply, and sends it once a lead agrees."""

from orchestrator.authoring import Workflow, cel
from workflows_app.gallery.tools import search_knowledge, ticket_history

flow = Workflow(
    "customer_support",
    title="Customer support",
    description=(
        "Classifies a ticket, researches it, drafts a reply, and sends it once a lead agrees."
    ),
    input={
        "type": "object",
        "required": ["ticket_id", "customer_email", "subject", "message"],
        "additionalProperties": False,
        "properties": {
            "ticket_id": {"type": "string", "minLength": 1, "maxLength": 100},
            "customer_email": {"type": "string", "format": "email"},
            "customer_name": {"type": "string", "maxLength": 200},
            "subject": {"type": "string", "minLength": 1, "maxLength": 300},
            "message": {"type": "string", "minLength": 1, "maxLength": 20000},
        },
    },
    budget={"cost_usd": 2.00, "duration": "10m", "on_exceeded": "pause"},
    timeout="2d",
    sla={"complete_within": "8h"},
    labels={
        "running": "Being answered",
        "waiting": "Waiting for a support lead",
        "completed": "Answered",
    },
)
ticket = flow.input

classify = flow.agent(
    "classify",
    "fast",
    title="Classify the ticket",
    timeout="30s",
    system=(
        "You sort tickets of a support desk. Choose one category and one urgency, and say in one"
        " sentence what the customer wants."
    ),
    prompt=f"Subject: {ticket.subject}\nMessage: {ticket.message}",
    output_schema={
        "type": "object",
        "required": ["category", "urgency", "summary"],
        "additionalProperties": False,
        "properties": {
            "category": {"enum": ["billing", "technical", "shipping", "account", "other"]},
            "urgency": {"enum": ["low", "normal", "high"]},
            "summary": {"type": "string"},
        },
    },
)
found = classify.output

research = flow.agent(
    "research",
    "deep",
    title="Research the answer",
    needs=[classify],
    timeout="120s",
    cost_limit_usd=0.50,
    tools=[search_knowledge],
    system=(
        "You prepare answers for a support desk. Name the articles that apply and what follows"
        " from them for this customer. Invent nothing."
    ),
    prompt=f"Category: {found.category}\nSummary: {found.summary}\nMessage: {ticket.message}",
    output_schema={
        "type": "object",
        "required": ["articles", "findings"],
        "additionalProperties": False,
        "properties": {
            "articles": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "title"],
                    "properties": {"id": {"type": "string"}, "title": {"type": "string"}},
                },
            },
            "findings": {"type": "array", "items": {"type": "string"}},
        },
    },
)
history = flow.tool(
    "fetch_history",
    ticket_history,
    title="Fetch the customer's earlier tickets",
    needs=[classify],
    input={"customer_email": ticket.customer_email, "limit": 5},
    timeout="30s",
)
customer = cel("has(input.customer_name) ? input.customer_name : input.customer_email")
draft = flow.agent(
    "draft",
    "deep",
    title="Draft the reply",
    needs=[research, history],
    timeout="60s",
    system=(
        "You write for a support desk: friendly, short, concrete, and only what the research holds."
    ),
    prompt="\n".join(
        [
            f"Ticket: {ticket.ticket_id}",
            f"Customer: {customer}",
            f"Category: {found.category}",
            f"Urgency: {found.urgency}",
            f"Summary: {found.summary}",
            f"Research: {research.output}",
            f"History: {history.output}",
        ]
    ),
    output_schema={
        "type": "object",
        "required": ["subject", "reply"],
        "additionalProperties": False,
        "properties": {
            "subject": {"type": "string", "minLength": 1},
            "reply": {"type": "string", "minLength": 1},
        },
    },
)
review = flow.human_gate(
    "review",
    title="A support lead reads the reply",
    needs=[draft],
    assignees=["role:support_lead"],
    message=(
        f"Ticket {ticket.ticket_id} ({found.category}, {found.urgency}): {found.summary}\n\n"
        f"{draft.output.reply}"
    ),
    timeout="4h",
    on_timeout="reject",
    on_reject="end",
    labels={"waiting": "Waiting for a support lead"},
)
send = flow.tool(
    "send",
    "mail.send",
    title="Send the reply",
    needs=[review],
    input={
        "to": ticket.customer_email,
        "subject": draft.output.subject,
        "text": draft.output.reply,
    },
    effect={"key": f"mail:{ticket.ticket_id}", "on_doubt": "resend"},
)
flow.returns(
    {
        "ticket_id": ticket.ticket_id,
        "category": found.category,
        "reply": draft.output.reply,
        "message_id": send.output.message_id,
    }
)
