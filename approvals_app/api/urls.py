"""Addresses of the gate's API, to be included under /v1/."""

from django.urls import path

from approvals_app.api.approvals import ApprovalDecision, ApprovalDetail, ApprovalList

urlpatterns = [
    path("approvals", ApprovalList.as_view(), name="approval-list"),
    path("approvals/<uuid:approval_id>", ApprovalDetail.as_view(), name="approval-detail"),
    path(
        "approvals/<uuid:approval_id>/decision",
        ApprovalDecision.as_view(),
        name="approval-decision",
    ),
]
