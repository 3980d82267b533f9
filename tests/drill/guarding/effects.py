"""Guards of effects: intent, receipt, look-up, key and request."""

from __future__ import annotations

from tests.drill.guarding.guard import APPLY, Cut, Guard

EFFECTS = "orchestrator/core/effects.py"
HERE = "tests/engine/test_effect_guards.py::"

EFFECT_GUARDS = (
    Guard(
        name="intent",
        what="the intent of an effect is committed with the claim, before the call",
        cuts=(
            Cut(
                "orchestrator/engine/change.py",
                "if intent is not None and intent.course in (Course.CALL, Course.DOUBT):",
                "if intent is not None and intent.course is Course.DOUBT:",
            ),
        ),
        tests=(
            f"{HERE}test_the_intent_is_stored_before_the_provider_is_called",
            f"{HERE}test_an_effect_that_nobody_can_look_up_is_asked_about_and_never_sent_again",
        ),
    ),
    Guard(
        name="receipt check",
        what="a stored receipt is the answer, and nobody is called",
        cuts=(
            Cut(
                EFFECTS,
                "if stored.status in (EffectStatus.APPLIED, EffectStatus.GIVEN_UP):",
                "if stored.status is EffectStatus.GIVEN_UP:",
            ),
        ),
        tests=(
            f"{HERE}test_a_second_run_finds_the_receipt_of_the_first_and_calls_nobody",
            "tests/engine/test_repair.py::test_a_finished_effect_is_found_and_not_repeated",
        ),
    ),
    Guard(
        name="receipt check in the claim",
        what="the claim's statement takes a key only in the state that the decision saw",
        cuts=(
            Cut(
                APPLY,
                "AND (CASE WHEN take THEN f.status IN ('intended', 'in_doubt') "
                "ELSE f.status = 'not_applied' END)",
                "",
            ),
        ),
        tests=(f"{HERE}test_who_looked_before_another_run_acted_looks_again",),
    ),
    Guard(
        name="take-over as seen",
        what="a doubt is taken over only from the attempt that was seen to hold it",
        cuts=(Cut(APPLY, "AND (NOT take OR f.step_id", "AND (true OR f.step_id"),),
        tests=(f"{HERE}test_a_doubt_that_moved_since_it_was_looked_at_is_not_taken_over",),
    ),
    Guard(
        name="no blind retry",
        what="an intent without a receipt is in doubt, and never simply called again",
        cuts=(
            Cut(
                "orchestrator/engine/effects.py",
                '            if is_idempotent(step) or on_doubt(step) == "resend":\n'
                "                return _conclude(plan, step, context, call(), unsettled=True)",
                "            if step is not None:\n"
                "                return _conclude(plan, step, context, call(), unsettled=True)",
            ),
        ),
        tests=(f"{HERE}test_a_look_up_that_cannot_tell_leaves_it_to_a_person",),
    ),
    Guard(
        name="doubt outlives a refusal",
        what="a refused call says nothing about an earlier one whose answer was lost",
        cuts=(Cut("orchestrator/engine/effects.py", "if not unsettled and (", "if ("),),
        tests=(
            f"{HERE}test_a_refusal_says_nothing_about_the_call_before_it_whose_answer_was_lost",
        ),
    ),
    Guard(
        name="no blind retry after a loss",
        what="a dead worker's keyless effect goes to a person",
        cuts=(
            Cut(
                "orchestrator/engine/effects.py",
                "return Answered(outcome=failure) if key is None else of_lost(step, key, failure)",
                "return Answered(outcome=failure)",
            ),
            Cut(
                EFFECTS,
                "return Course.CALL if stored.status is EffectStatus.NOT_APPLIED else Course.DOUBT",
                "return Course.CALL",
            ),
        ),
        tests=(
            f"{HERE}test_an_effect_that_nobody_can_look_up_is_asked_about_and_never_sent_again",
        ),
    ),
    Guard(
        name="no blind retry after a lost answer",
        what="a call that failed without saying that nothing happened is in doubt",
        cuts=(
            Cut(
                "orchestrator/engine/effects.py",
                "    if not may_resend(step):\n        return by_rule(plan.key, step, reason)",
                "    if not may_resend(step):\n        return Answered(outcome=outcome, effect="
                "EffectEnd(key=plan.key, status=EffectStatus.NOT_APPLIED))",
            ),
        ),
        tests=(f"{HERE}test_a_lost_answer_is_no_reason_to_send_again",),
    ),
    Guard(
        name="look-up first",
        what="an effect in doubt is looked up before anything else is done about it",
        cuts=(
            Cut(
                "orchestrator/engine/effects.py",
                "    found = look_up_effect(context)\n",
                '    found: Applied | NotApplied | Unknown = Unknown(reason="not asked")\n',
            ),
        ),
        tests=(f"{HERE}test_an_effect_in_doubt_is_looked_up_and_not_sent_again",),
    ),
    Guard(
        name="request hash",
        what="one effect key stands for one request",
        cuts=(Cut(EFFECTS, "if stored.request_hash != request:", "if stored is None:"),),
        tests=(f"{HERE}test_one_effect_key_for_two_requests_is_an_error",),
    ),
    Guard(
        name="request hash in the claim",
        what="the claim's statement takes over a key for the same request only",
        cuts=(
            Cut(
                APPLY,
                "WHERE f.request_hash = excluded.request_hash\n      AND (CASE",
                "WHERE true\n      AND (CASE",
            ),
        ),
        tests=(f"{HERE}test_who_looked_before_another_request_took_the_key_is_refused",),
    ),
    Guard(
        name="effect under way",
        what="an effect that another step is calling right now is waited for",
        cuts=(Cut(EFFECTS, "if stored.busy:", "if stored is None:"),),
        tests=(f"{HERE}test_an_effect_that_another_run_is_calling_is_waited_for",),
    ),
    Guard(
        name="receipt needs an intent",
        what="a receipt is written only over an open intent that the step holds",
        cuts=(
            Cut(
                APPLY,
                "AND f.step_id = (m ->> 'id')::uuid AND f.status IN ('intended', 'in_doubt');\n"
                "    IF NOT FOUND THEN",
                "AND f.step_id = (m ->> 'id')::uuid;\n    IF false THEN",
            ),
        ),
        tests=(
            f"{HERE}test_no_receipt_is_written_without_an_intent",
            f"{HERE}test_no_receipt_is_written_over_another",
        ),
    ),
    Guard(
        name="unique effect key",
        what="the database holds one effect for a key of a tenant",
        drop="ALTER TABLE orchestrator_effect DROP CONSTRAINT orchestrator_effect_once",
        tests=(f"{HERE}test_a_second_run_finds_the_receipt_of_the_first_and_calls_nobody",),
    ),
)
