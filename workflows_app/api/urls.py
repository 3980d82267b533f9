"""Addresses of the desk, below /v1/."""

from django.urls import path

from workflows_app.api import (
    breakers,
    control,
    dead_letters,
    definitions,
    repairs,
    runs,
    sagas,
    simulations,
)

urlpatterns = [
    path("workflows", runs.RunsView.as_view(), name="runs"),
    path("workflows/<str:id>", runs.WorkflowView.as_view(), name="workflow"),
    path("workflows/<str:id>/history", runs.HistoryView.as_view(), name="history"),
    path("workflows/<str:id>/saga", sagas.SagaView.as_view(), name="saga"),
    path("workflows/<str:id>/steps", runs.ItemsView.as_view(), name="items"),
    path("workflows/<str:id>/signals", control.SignalsView.as_view(), name="signals"),
    path("workflows/<str:id>/pause", control.PauseView.as_view(), name="pause"),
    path("workflows/<str:id>/resume", control.ResumeView.as_view(), name="resume"),
    path("workflows/<str:id>/cancel", control.CancelView.as_view(), name="cancel"),
    path("workflows/<str:id>/repair", repairs.RepairView.as_view(), name="repair"),
    path("dead-letters", dead_letters.LettersView.as_view(), name="dead-letters"),
    path("dead-letters/retry", dead_letters.RetryLettersView.as_view(), name="retry-letters"),
    path("services", breakers.ServicesView.as_view(), name="services"),
    path("services/<path:name>/hold", breakers.HoldView.as_view(), name="hold-service"),
    path("services/<path:name>/release", breakers.ReleaseView.as_view(), name="release-service"),
    path(
        "dead-letters/<int:id>/settle",
        dead_letters.SettleLetterView.as_view(),
        name="settle-letter",
    ),
    path("definitions", definitions.DefinitionsView.as_view(), name="definitions"),
    path("definitions/validate", definitions.ValidateView.as_view(), name="validate"),
    path("definitions/simulate", simulations.SimulateView.as_view(), name="simulate"),
    path("definitions/<str:name>", definitions.DefinitionView.as_view(), name="definition"),
    path(
        "definitions/<str:name>/versions/<int:number>",
        definitions.VersionView.as_view(),
        name="version",
    ),
    path("schema/workflow.json", definitions.SchemaView.as_view(), name="document-schema"),
]
