"""What the pages of repair ask for: the target of each act, and the reason."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from orchestrator import engine
from orchestrator.core.json_text import JsonText
from orchestrator.models import Run, Step

MAX_OUTPUT = 1 << 20
_MOST_STEPS = 2000
_SMALL = {"rows": 3, "cols": 60}


class RepairForm(forms.Form):
    """What a repair is about, in one ``run``."""

    def __init__(self, *args: Any, run: Run, **named: Any) -> None:
        super().__init__(*args, **named)
        self.run = run


class TargetForm(RepairForm):
    """A step, or one item of its for_each; both come with the address."""

    step = forms.CharField(max_length=200, widget=forms.HiddenInput)
    scope = forms.RegexField(r"^\[[0-9]{1,9}\]$", required=False, widget=forms.HiddenInput)


class UndoForm(TargetForm):
    """A step, and whether what stands on it is undone with it."""

    with_dependents = forms.BooleanField(
        required=False,
        label="With what was done behind it",
        help_text="Steps behind it that can be undone are undone first, in reverse order.",
    )


class CheckpointForm(RepairForm):
    """Where to go on from: a step, or a line of the history."""

    step = forms.ChoiceField(required=False, help_text="It and everything behind it run again.")
    from_sequence = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=2**63 - 1,
        label="Or line of the history",
        help_text="Its number: every step that ended after it runs again.",
    )

    def __init__(self, *args: Any, run: Run, **named: Any) -> None:
        super().__init__(*args, run=run, **named)
        began = Step.objects.filter(run=run, scope="", attempt__gt=0)
        began = began.exclude(key__startswith=engine.UNDO)
        keys = began.order_by("position").values_list("key", flat=True)[:_MOST_STEPS]
        choices = [("", "---------"), *((key, key) for key in keys)]
        self.fields["step"].choices = choices  # type: ignore[attr-defined]  # it is a ChoiceField

    def clean(self) -> dict[str, Any]:
        """One of the two."""
        given = super().clean() or self.cleaned_data
        both = bool(given.get("step")), given.get("from_sequence") is not None
        if not self.errors and both[0] == both[1]:
            raise forms.ValidationError(
                "Choose a step, or give a line of the history: one of both."
            )
        return given


class SettleForm(RepairForm):
    """What a person found out about an effect."""

    effect_key = forms.CharField(max_length=1000, widget=forms.HiddenInput)
    step = forms.CharField(max_length=200, required=False, widget=forms.HiddenInput)
    outcome = forms.ChoiceField(
        choices=[("applied", "It happened"), ("not_applied", "It did not happen")],
        widget=forms.RadioSelect,
    )
    external_ref = forms.CharField(
        max_length=1000,
        required=False,
        label="Reference of the provider",
        help_text="If it happened: the number that the provider gave it.",
    )
    output = forms.CharField(
        max_length=MAX_OUTPUT,
        required=False,
        label="Output of the step, as JSON",
        help_text='If it happened. Left empty, it is {"external_ref": the reference}.',
        widget=forms.Textarea(attrs=_SMALL),
    )

    def clean_output(self) -> Any:
        """Read strictly: what neither JSON nor the database can keep is refused."""
        text = self.cleaned_data["output"]
        if not text:
            return None
        problems = JsonText(text).read().problems
        if problems:
            where = f"{problems[0].pointer}: " if problems[0].pointer else ""
            raise forms.ValidationError(f"{where}{problems[0].message}")
        return json.loads(text)

    def clean(self) -> dict[str, Any]:
        """An effect that happened has a reference or an output; one that did not has neither."""
        given = super().clean() or self.cleaned_data
        told = bool(given.get("external_ref")) or given.get("output") is not None
        if self.errors:
            return given
        if given["outcome"] == "applied" and not told:
            self.add_error("external_ref", "Give the provider's reference, or the output.")
        if given["outcome"] == "not_applied" and told:
            self.add_error("outcome", "What did not happen has no reference and no output.")
        return given


FORMS: dict[str, type[RepairForm]] = {
    "retry_step": TargetForm,
    "skip_step": TargetForm,
    "compensate_step": UndoForm,
    "resume": CheckpointForm,
    "settle_effect": SettleForm,
}
