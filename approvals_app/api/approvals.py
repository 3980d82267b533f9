"""List, read and decide approvals: body in, one use case, representation out."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals_app.api.serializers import ApprovalSerializer, DecisionBodySerializer
from approvals_app.decisions import PrincipalLike, decide, parse_body, person_of
from approvals_app.models import Request, RequestQuerySet
from approvals_app.policy import RequestState
from approvals_app.queries import ALL_STATES, approval, approvals


class ApprovalList(ListAPIView[Request]):
    """Approvals of the caller's tenant, newest first."""

    required_scope = "gate:read"
    serializer_class = ApprovalSerializer
    queryset = Request.objects.none()
    page_by = "-id"

    @extend_schema(
        summary="List approvals",
        parameters=[
            OpenApiParameter(
                "state", enum=[*RequestState, ALL_STATES], description="Default: open."
            ),
            OpenApiParameter("instance_id", description="Only those of one run."),
            OpenApiParameter("workflow", description="Only those of one workflow."),
        ],
    )
    def get(self, request: HttpRequest, *args: object, **kwargs: object) -> Response:
        """A page of approvals."""
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> RequestQuerySet:
        """The tenant's, as the query asks."""
        query = self.request.query_params
        return approvals(
            _principal(self.request).tenant,
            state=query.get("state", ""),
            instance_id=query.get("instance_id", ""),
            workflow=query.get("workflow", ""),
        )


class ApprovalDetail(APIView):
    """One approval."""

    required_scope = "gate:read"

    @extend_schema(summary="Read an approval", responses=ApprovalSerializer)
    def get(self, request: HttpRequest, approval_id: UUID) -> Response:
        """What is asked, of whom, until when, and what was said."""
        found = approval(_principal(request).tenant, approval_id)
        return Response(ApprovalSerializer(found).data)


class ApprovalDecision(APIView):
    """Where an assignee decides."""

    required_scope = "gate:decide"

    @extend_schema(
        summary="Approve or reject", request=DecisionBodySerializer, responses=ApprovalSerializer
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
