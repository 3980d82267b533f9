"""Deny by default: a route is open to those whose credential has the scope it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from workflows_app.principal import Principal

if TYPE_CHECKING:  # DRF reads its settings, and so this module, while it defines the class
    from rest_framework.views import APIView


class HasScope(BasePermission):
    """Reads ``required_scope`` of the view: a scope, or a mapping from method to scope.

    A view that names none is closed to everybody. A method the view does not have is let through
    to its 405.
    """

    code = "missing_scope"

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the principal's credential has the scope."""
        principal = request.user
        if not isinstance(principal, Principal):
            return False
        method = request.method or ""
        if not hasattr(view, method.lower()):
            return True
        scope = scope_of(view, method)
        if scope is None:
            self.message = "This address is open to nobody: its code names no scope."
            return False
        self.message = f"The credential lacks the scope {scope}."
        return principal.may(scope)


def scope_of(view: APIView | type[APIView], method: str) -> str | None:
    """The scope that ``view`` asks for on ``method``; None when it names none."""
    declared: str | Mapping[str, str] | None = getattr(view, "required_scope", None)
    if isinstance(declared, Mapping):
        return declared.get("GET" if method == "HEAD" else method)
    return declared
