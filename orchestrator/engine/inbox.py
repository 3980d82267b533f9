"""Answers to waits: signals and decisions are stored first, then applied if a step waits.

An answer may come before its waiter: the settle that parks the step consumes what is stored.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import orjson
from django.db import transaction

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import EventDraft
from orchestrator.core.errors import InvalidRequest, NotFound, StateConflict, StepError
from orchestrator.core.outcomes import Answer, Failed, Outcome
from orchestrator.core.schemas import compile_schema
from orchestrator.core.states import StepState
from orchestrator.crash import Unit
from orchestrator.engine import outbox
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.settle import carry_out, decide
from orchestrator.engine.settled import Settled
from orchestrator.engine.unwritable import Unwritable, or_refused
from orchestrator.engine.values import Values
from orchestrator.executors.registry import get_executor
from orchestrator.models import moves, outbox_rows, rows, signals
from orchestrator.models.rows import RunRow, StepRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalResult:
    """What became of a signal: stored (``accepted``), consumed by a waiter (``applied``), or seen
    before (``duplicate``). ``transition``: the step it moved, ``key: waiting -> state``."""

    accepted: bool
    applied: bool
    duplicate: bool
    transition: str | None = None


def payload_hash(payload: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)).hexdigest()


def send_signal(
    run_id: UUID, *, name: str, signal_id: str, payload: Any, actor: str
) -> SignalResult:
    """Store a signal and apply it if a step waits for it; opens or joins a transaction.

    The same id with the same payload again is a no-op (``duplicate``). Raises NotFound,
    InvalidRequest (``unknown_signal``, ``payload_invalid``, ``signal_id_reused``) and
    StateConflict when the run is over.
    """
    signal = _Signal(run_id=run_id, name=name, signal_id=signal_id, payload=payload, actor=actor)
    try:
        return or_refused(partial(_send, signal), "what the signal brought")
    except Unwritable as error:
        raise _unstorable(str(error)) from None


def _unstorable(words: str) -> InvalidRequest:
    problem = {"pointer": "/payload", "code": "unstorable", "detail": words}
    return InvalidRequest(words, code="unstorable", problems=[problem])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signal:
    """A signal as it was sent."""

    run_id: UUID
    name: str
    signal_id: str
    payload: Any
    actor: str


def _send(signal: _Signal, refused: StepError | None) -> SignalResult:
    run_id, name, signal_id = signal.run_id, signal.name, signal.signal_id
    payload, actor = signal.payload, signal.actor
    with Unit("signal"):
        run, workflow = _locked(run_id)
        _check_signal(workflow, name, payload)
        digest = payload_hash(payload)
        known = signals.find(run_id, name, signal_id)
        if known is not None:
            return _known(known, digest)
        if run.ended:
            raise StateConflict(f"the run is {run.state}: no signal reaches it", state=run.state)
        stored = signals.store(
            run_id=run_id,
            name=name,
            scope="",
            signal_id=signal_id,
            payload=payload,
            payload_hash=digest,
            actor=actor,
        )
        row = rows.longest_waiting(run_id, name)
        received = EventDraft("signal.received", None, {"name": name, "signal_id": signal_id})
        if row is not None:
            received.payload["for"] = row.key + row.scope
        if row is None:
            moves.append_event(run_id, received.type, received.payload, actor)
            return SignalResult(accepted=True, applied=False, duplicate=False)
        answer = Answer(kind="signal", payload=payload)
        state = _apply(
            run, workflow, row, answer, actor=actor, first=received, signal=stored, refused=refused
        )
    return SignalResult(
        accepted=True,
        applied=True,
        duplicate=False,
        transition=f"{row.key}{row.scope}: waiting -> {state}",
    )


def _locked(run_id: UUID) -> tuple[RunRow, CompiledWorkflow]:
    run = rows.lock_run(run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run, compiled(run.blueprint_id)


def _check_signal(workflow: CompiledWorkflow, name: str, payload: Any) -> None:
    if name in workflow.by_key and workflow.step(name).type == "human_gate":
        raise InvalidRequest(
            f"{name} is a gate: who may decide it is known to the approvals, decide it there",
            code="gate_not_signal",
            problems=[{"pointer": "/name", "code": "gate_not_signal", "detail": "decide the gate"}],
        )
    if name not in workflow.signals:
        known = ", ".join(sorted(workflow.signals)) or "none"
        raise InvalidRequest(
            f"the workflow declares no signal {name!r} (declared: {known})",
            code="unknown_signal",
            problems=[{"pointer": "/name", "code": "unknown_signal", "detail": f"use: {known}"}],
        )
    schema = workflow.signals[name]
    problems = compile_schema(schema).check(payload) if schema is not None else []
    if problems:
        raise InvalidRequest(
            f"the payload does not fit the schema of signal {name!r}",
            code="payload_invalid",
            problems=[
                {"pointer": f"/payload{p.pointer}", "code": "schema", "detail": p.message}
                for p in problems
            ],
        )


def _known(known: signals.StoredSignal, digest: str) -> SignalResult:
    if known.payload_hash != digest:
        raise InvalidRequest(
            "this signal_id was used with another payload: use a new id for a new signal",
            code="signal_id_reused",
            problems=[
                {"pointer": "/signal_id", "code": "signal_id_reused", "detail": "use a new id"}
            ],
        )
    return SignalResult(accepted=True, applied=known.consumed, duplicate=True)


def deliver_decision(
    run_id: UUID, *, key: str, scope: str, attempt: int, payload: Any, actor: str
) -> bool:
    """A person decided about this gate; call inside your transaction, your own row locked.

    True: the wait ended, or the answer is stored because the step is still on its way to waiting.
    False: the step no longer waits for this round (expired, cancelled, run over). Raises
    InvalidRequest (``unstorable``).
    """
    named = (run_id, key, scope)
    try:
        return or_refused(partial(_decide, named, attempt, payload, actor), "the decision")
    except Unwritable as error:
        raise _unstorable(str(error)) from None


def _decide(
    named: tuple[UUID, str, str],
    attempt: int,
    payload: Any,
    actor: str,
    refused: StepError | None,
) -> bool:
    run_id, key, scope = named
    with Unit("decision"):
        run = rows.lock_run(run_id)
        row = rows.read_item(run_id, key, scope) if run is not None else None
        if run is None or row is None or run.ended or row.attempt != attempt:
            return False
        if row.state == StepState.RUNNING:
            signals.store(
                run_id=run_id,
                name=key,
                scope=scope,
                signal_id=str(uuid4()),
                payload=payload,
                payload_hash=payload_hash(payload),
                actor=actor,
            )
            return True
        if row.state != StepState.WAITING or row.waiting_for != "person":
            return False
        answer = Answer(kind="decision", payload=payload)
        _apply(run, compiled(run.blueprint_id), row, answer, actor=actor, refused=refused)
        return True


def _apply(  # noqa: PLR0913 - the run as held, and the answer with its origin
    run: RunRow,
    workflow: CompiledWorkflow,
    row: StepRow,
    answer: Answer,
    *,
    actor: str,
    first: EventDraft | None = None,
    signal: int | None = None,
    refused: StepError | None = None,
) -> StepState:
    """End the wait in the open transaction; what follows is sent on commit. ``refused``: what it
    would be answered with could not be stored, so that it fails with this."""
    values = Values(run, workflow)
    settled, state = end_wait(
        run,
        workflow,
        values,
        row,
        answer,
        actor=actor,
        first=first,
        outcome=None if refused is None else Failed(error=refused),
    )
    if signal is not None:
        signals.consume(signal, row.id)
    transaction.on_commit(settled.send)
    posted = list(settled.posted)

    def handle_posted() -> None:
        outbox.handle(posted)

    if posted:
        transaction.on_commit(handle_posted)
    return state


def end_wait(  # noqa: PLR0913 - the run as held, and the answer with its origin
    run: RunRow,
    workflow: CompiledWorkflow,
    values: Values,
    row: StepRow,
    answer: Answer,
    *,
    actor: str = "",
    first: EventDraft | None = None,
    outcome: Outcome | None = None,
) -> tuple[Settled, StepState]:
    """Resume the parked step with ``answer`` (or with ``outcome``, when the engine itself says)."""
    step = workflow.steps[row.position]
    if outcome is None:
        executor = get_executor(step.type)
        outcome = executor.resume(step.config, answer, upstream=row.input)
    change = decide(run, workflow, values, row, outcome, actor=actor)
    if first is not None:
        change.decision.events.insert(0, first)
    settled = carry_out(change, values, row, outcome)
    subject = change.decision.subject
    return settled, subject.to if subject is not None else StepState.WAITING


def answer_early(
    run: RunRow, workflow: CompiledWorkflow, values: Values, step_id: UUID, settled: Settled
) -> None:
    """The step has just been parked: if its answer is here already, it ends its wait at once."""
    row = rows.read_step(step_id)
    if row is None or row.state != StepState.WAITING or not row.waiting_key:
        return
    decision = row.waiting_for == "person"
    stored = signals.oldest_open(run.id, row.waiting_key, row.scope if decision else None)
    if stored is None:
        return
    kind = "decision" if decision else "signal"
    answer = Answer(kind=kind, payload=stored.payload)  # type: ignore[arg-type]
    more, _ = end_wait(run, workflow, values, row, answer, actor=stored.actor)
    signals.consume(stored.id, row.id)
    if decision:  # a lost worker's question may have been asked anew: nobody needs an answer now
        named = {"step": row.key, "scope": row.scope, "attempt": row.attempt, "reason": "decided"}
        settled.posted.append(outbox_rows.post("gate.closed", run.id, named))
    settled.dispatch += more.dispatch
    settled.posted += more.posted
    settled.children += more.children
