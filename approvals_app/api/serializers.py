"""The shape of an approval (FORMAT section 4, Gates)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from approvals_app.models import Decision, Request


class DecisionSerializer(serializers.ModelSerializer[Decision]):
    """What one person said."""

    decision = serializers.CharField(source="choice")

    class Meta:
        model = Decision
        fields = ["by", "decision", "notes", "data", "at"]
        read_only_fields = fields


class ApprovalSerializer(serializers.ModelSerializer[Request]):
    """One approval: what is asked, of whom, until when, and what was said."""

    instance_id = serializers.UUIDField(source="run_id")
    step = serializers.CharField(source="key")
    assignees = serializers.SerializerMethodField()
    decisions = DecisionSerializer(many=True)

    class Meta:
        model = Request
        fields = [
            "id",
            "instance_id",
            "workflow",
            "step",
            "scope",
            "title",
            "state",
            "outcome",
            "message",
            "form",
            "assignees",
            "quorum",
            "four_eyes",
            "opened_at",
            "due_at",
            "closed_at",
            "closed_by",
            "upstream",
            "decisions",
        ]
        read_only_fields = fields

    def get_assignees(self, request: Request) -> list[str]:
        """Who may decide by now (escalation adds to it)."""
        return [each.who for each in request.assignments.all()]


class ApprovalPageSerializer(serializers.Serializer[Any]):
    """For the API's document alone: one page of the list."""

    results = ApprovalSerializer(many=True)
    next = serializers.CharField(allow_null=True)


class DecisionBodySerializer(serializers.Serializer[Any]):
    """For the API's document alone: the body is checked by ``decisions.parse_body``."""

    decision = serializers.ChoiceField(choices=["approve", "reject"])
    notes = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    data = serializers.JSONField(  # type: ignore[assignment]  # the metaclass takes it out
        required=False, allow_null=True
    )
