"""Edges, joins and fallbacks: does the graph hold together, and can every step be reached?"""

from __future__ import annotations

from orchestrator.core.document import Edge
from orchestrator.core.problems import suggestion
from orchestrator.core.step_kinds import AnyStep, RouterStep
from orchestrator.core.validation.review import Review


def check_structure(review: Review) -> None:
    """Everything about the shape of the graph."""
    for key, step in review.steps.items():
        _check_needs(review, key, step)
        _check_join(review, key, step)
        _check_fallback(review, key, step)
    _check_cycles(review)
    _check_reach(review)
    _check_lint(review)


def _check_needs(review: Review, key: str, step: AnyStep) -> None:
    seen: set[tuple[str, str, str | None]] = set()
    for index, need in enumerate(step.edges):
        path = ("steps", key, "needs", index)
        same = (need.step, need.on, need.when)
        if need.step not in review.steps:
            mend = suggestion(need.step, review.steps)
            review.error("dangling_need", path, f'there is no step "{need.step}": {mend}')
        elif same in seen:
            review.error("duplicate_need", path, f'"{need.step}" is needed twice: remove one.')
        seen.add(same)


def _check_join(review: Review, key: str, step: AnyStep) -> None:
    if step.join.kind != "at_least" or step.join.count is None:
        return
    count = len({edge.source for edge in review.edges_into[key]})
    if step.join.count > count:
        review.error(
            "join_too_large",
            ("steps", key, "join", "at_least"),
            f"at_least: {step.join.count} of {count} needs can never be met: use at most {count}.",
        )


def _check_fallback(review: Review, key: str, step: AnyStep) -> None:
    target = step.fallback
    if target is None:
        return
    path = ("steps", key, "fallback")
    if target not in review.steps:
        mend = suggestion(target, review.steps)
        review.error("dangling_fallback", path, f'there is no step "{target}": {mend}')
        return
    if len(review.owners[target]) > 1:
        owners = ", ".join(review.owners[target])
        review.error(
            "shared_fallback",
            path,
            f'"{target}" is the fallback of {owners}: give each step a fallback of its own.',
        )
    if review.edges_into[target]:
        review.error(
            "fallback_with_needs",
            path,
            f'"{target}" has needs (or is a route), but a fallback is started only by its owner: '
            "remove its needs.",
        )


def _check_cycles(review: Review) -> None:
    for cycle in review.graph.cycles():
        way = " → ".join((*cycle, cycle[0]))
        review.error(
            "cycle",
            ("steps", cycle[0], "needs"),
            f"steps wait for each other: {way}; remove one of these edges (a loop is "
            "written with repeat).",
        )


def _check_reach(review: Review) -> None:
    live = _live_steps(review)
    on_cycle = {key for cycle in review.graph.cycles() for key in cycle}
    for key in review.steps:
        if key in live or key in on_cycle:
            continue
        review.error(
            "unreachable",
            ("steps", key),
            f"the step can never start ({_why(review, key, live)}): mend what it needs or "
            "remove it.",
        )


def _check_lint(review: Review) -> None:
    """What may be meant, but seldom is: SPEC 2.4 asks for a warning, not for a refusal."""
    for key, step in review.steps.items():
        conditions = [step.when, *(edge.when for edge in review.edges_into[key])]
        if any(text is not None and text.strip() == "false" for text in conditions):
            review.warn(
                "never_true",
                ("steps", key),
                "a condition is always false, so the step is skipped: write a condition over "
                "input or steps, or remove the step.",
            )
        sources = {edge.source for edge in review.edges_into[key]}
        least = {"strict": len(sources), "at_least": min(step.join.count or 1, len(sources))}
        wanted = least.get(step.join.kind, 0)
        if wanted > 1 and _excluded(review, sources, wanted):
            review.warn(
                "join_unmet",
                ("steps", key, "join"),
                "the routes of a router exclude one another, so this join is never met and the "
                "step is skipped: use join: all, or mode: all in the router.",
            )


def _why(review: Review, key: str, live: set[str]) -> str:
    dead = [edge.source for edge in review.edges_into[key] if edge.source not in live]
    if dead:
        return f"it needs {', '.join(dict.fromkeys(dead))}, which never happens"
    return "no edge into it can be taken"


def _live_steps(review: Review) -> set[str]:
    """The steps that some run could start, going by everything that is written as constant."""
    live: set[str] = set()
    may_skip: set[str] = set()
    for key in review.graph.order():
        step = review.steps[key]
        possible = {e.source for e in review.edges_into[key] if _possible(e, live, may_skip)}
        if _may_start(review, key, step, possible):
            live.add(key)
        if step.when is not None or step.optional or review.edges_into[key]:
            may_skip.add(key)
    return live


def _possible(edge: Edge, live: set[str], may_skip: set[str]) -> bool:
    if edge.on == "skipped":
        return edge.source in may_skip
    return edge.source in live


def _may_start(review: Review, key: str, step: AnyStep, possible: set[str]) -> bool:
    if key in review.owners:
        return True
    sources = {edge.source for edge in review.edges_into[key]}
    if not sources:
        return True
    match step.join.kind:
        case "strict":
            return possible == sources
        case "at_least":
            least = min(step.join.count or 1, len(sources))
            return len(possible) >= least
        case _:
            return bool(possible)


def _excluded(review: Review, sources: set[str], least: int) -> bool:
    """Whether routers that take one route only never let ``least`` of the sources happen."""
    guards = {source: _guards(review, source) for source in sources}
    for router in {router for guard in guards.values() for router in guard}:
        routes = {route for guard in guards.values() for route in guard.get(router, ())}
        most = max(
            sum(router not in guard or route in guard[router] for guard in guards.values())
            for route in routes
        )
        if most < least:
            return True
    return False


def _guards(review: Review, key: str) -> dict[str, frozenset[str]]:
    """The routes that must be taken for ``key`` to happen, along edges that are its only one."""
    guards: dict[str, frozenset[str]] = {}
    seen: set[str] = set()
    while key not in seen and len(review.edges_into.get(key, ())) == 1:
        seen.add(key)
        edge = review.edges_into[key][0]
        if edge.on != "completed":
            break
        router = review.steps.get(edge.source)
        if edge.routes and isinstance(router, RouterStep) and router.mode == "first":
            guards[edge.source] = frozenset(edge.routes)
        key = edge.source
    return guards
