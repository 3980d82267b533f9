"""List, read and decide approvals: body in, one use case, representation out."""

from __future__ import annotations

from typing import ClassVar, cast
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.pagination import BasePagination
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from approvals_app.api.serializers import (
    ApprovalPageSerializer,
    ApprovalSerializer,
    DecisionBodySerializer,
)
from approvals_app.decisions import PrincipalLike, decide, parse_body, person_of
from approvals_app.policy import RequestState
from approvals_app.queries import ALL_STATES, approval, approvals

TAG = "Approvals"


class ApprovalList(APIView):
    """Approvals of the caller's tenant."""

    required_scope = "gate:read"
    page_by = "-id"

    @extend_schema(
        operation_id="approvals_list",
        summary="List approvals",
        tags=[TAG],
        responses=ApprovalPageSerializer,
        parameters=[
            OpenApiParameter(
                "state", enum=[*RequestState, ALL_STATES], description="Not given: open."
            ),
            OpenApiParameter("instance_id", description="Only those of one run."),
            OpenApiParameter("workflow", description="Only those of one workflow."),
            OpenApiParameter("cursor", description="`next` of the page before."),
            OpenApiParameter("limit", int, description="Rows in a page, from 1 to 200."),
        ],
    )
    def get(self, request: HttpRequest) -> Response:
        """Open ones unless `state` says otherwise, newest first."""
        query = request.query_params
        rows = approvals(
            _principal(request).tenant,
            state=query.get("state", ""),
            instance_id=query.get("instance_id", ""),
            workflow=query.get("workflow", ""),
        )
        # A class once it is read from the settings.
        pagination = cast(type[BasePagination], api_settings.DEFAULT_PAGINATION_CLASS)
        pages = pagination()
        found = pages.paginate_queryset(rows, request, self)
        return pages.get_paginated_response(ApprovalSerializer(found, many=True).data)


class ApprovalDetail(APIView):
    """One approval."""

    required_scope = "gate:read"

    @extend_schema(summary="Read an approval", tags=[TAG], responses=ApprovalSerializer)
    def get(self, request: HttpRequest, approval_id: UUID) -> Response:
        """What is asked, of whom, until when, and what was said."""
        found = approval(_principal(request).tenant, approval_id)
        return Response(ApprovalSerializer(found).data)


class ApprovalDecision(APIView):
    """Where an assignee decides."""

    required_scope = "gate:decide"
    problem_statuses: ClassVar = {"POST": (409,)}

    @extend_schema(
        summary="Approve or reject",
        tags=[TAG],
        request=DecisionBodySerializer,
        responses=ApprovalSerializer,
    )
    def post(self, request: HttpRequest, approval_id: UUID) -> Response:
        """The approval after the decision. The same answer again changes nothing."""
        principal = _principal(request)
        body = parse_body(request.data)
        decide(approval_id, body, tenant=principal.tenant, person=person_of(principal))
        return Response(ApprovalSerializer(approval(principal.tenant, approval_id)).data)


def _principal(request: HttpRequest) -> PrincipalLike:
    # The authentication named in the settings puts a principal where Django would put a user.
    return cast(PrincipalLike, request.user)
