"""Breakers and holds of models, looked at with each call, and what the history says of calls that
gave no answer.

An agent with several models behind its alias cannot wait for one of them before it starts, so a
model has no gate before the step: the call looks, goes to the next, and waits only when all are
shut. A breaker that is half-open lets so many calls through at once as it allows: a call takes a
place at the gate, as a step does that was let through; the sweep gives it to the next in line.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.conf import engine_settings
from orchestrator.core import breaker as machine
from orchestrator.core.errors import ErrorClass
from orchestrator.core.gates import Gate, gate_key, model_gates, model_service
from orchestrator.core.outcomes import Failed
from orchestrator.crash import Unit
from orchestrator.engine import breakers
from orchestrator.engine.gates import cache
from orchestrator.executors.model_desk import CallFailure, Shut
from orchestrator.models import gate_rows, rows, turn_rows
from orchestrator.models.call_rows import Holder
from orchestrator.models.rows import StepRow

_SHOWN = 300


@dataclass(slots=True, kw_only=True)
class StepDesk:
    """The desk of one attempt. ``row`` is its step, ``name`` as the history calls it."""

    holder: Holder
    row: StepRow
    name: str
    tenant: str
    probing: str = ""

    def look(self, model: str) -> Shut | None:
        """Why the model may not be asked now."""
        keys = (*model_gates(model), gate_key("model", model))
        for gate in cache.now().among(keys, passed=self.row.passed):
            if gate.allows == 0 or not self._passes(gate):
                return Shut(gate=gate.key, why=gate.why)
        return None

    def _passes(self, gate: Gate) -> bool:
        """Whether there is room behind a limited gate; then a place of it is ours for the call."""
        if self.row.passed and self.row.passed != gate.key:
            return False  # one place at a time
        with Unit("model_probe"):
            rows.lock_run(self.holder.run_id)
            if gate_rows.room(gate.key, lock=True) < 1:
                return False
            taken = turn_rows.take_place(self.holder, gate.key)
        if taken:
            self.probing = gate.key
        return taken

    def passed_over(self, model: str, shut: Shut) -> None:
        """It was not asked, as its gate is shut."""
        words = {"step": self.name, "model": model, "gate": shut.gate, "why": shut.why[:_SHOWN]}
        with Unit("model_passed_over"):
            turn_rows.note(self.holder, ("call.passed_over", words), billed=False)

    def answered(self, model: str) -> None:
        """It answered."""
        self._tell(model, None)

    def failed(self, model: str, failure: CallFailure) -> None:
        """It did not: the history tells, and its breaker hears of what speaks against it."""
        error = failure.error
        words = {
            "step": self.name,
            "model": model,
            "class": str(error.error_class),
            "message": error.message[:_SHOWN],
            "seconds": round(failure.seconds, 3),
        }
        if failure.retry_after is not None:
            words["retry_after"] = failure.retry_after
        with Unit("model_failed"):
            turn_rows.note(self.holder, ("call.failed", words), billed=failure.billed)
        against = failure.speaks_against_it and machine.counts(error)
        if error.error_class is ErrorClass.TIMEOUT:
            # Silence within moments says nothing about a model that others share.
            against = against and failure.allowed_s >= engine_settings().breaker.telling_timeout_s
        self._tell(model, Failed(error=error, retry_after=failure.retry_after) if against else None)

    def _tell(self, model: str, failed: Failed | None) -> None:
        service = model_service(model)
        key = gate_key("service", service)
        was_probe = key in (self.probing, self.row.passed)
        breakers.note_call(
            service,
            failed,
            tenant=self.tenant,
            was_retry=self.row.n_retries > 0,
            was_probe=was_probe,
        )
        if self.probing:
            with Unit("model_probed"):
                turn_rows.give_place(self.holder, self.probing)
            self.probing = ""
