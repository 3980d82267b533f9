"""Do the expressions compile, and do they name only what they can see?"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.cel_text import ExpressionError
from orchestrator.core.cel_text import Path as NamePath
from orchestrator.core.expressions import (
    Program,
    compile_expression,
    compile_template,
    template_texts,
)
from orchestrator.core.policies import Effect
from orchestrator.core.problems import pointer_parts, suggestion
from orchestrator.core.step_kinds import AnyStep
from orchestrator.core.validation.places import Path, Place, all_places
from orchestrator.core.validation.review import Review

_RUN_KEYS = frozenset({"id", "workflow", "correlation_id"})
_STEP_KEYS = frozenset({"output", "state"})


def check_expressions(review: Review) -> list[tuple[Place, Path, Program]]:
    """Compile everything; the programs that compiled are handed on to the check of types."""
    compiled: list[tuple[Place, Path, Program]] = []
    for place in all_places(review.document):
        for path, program in _programs(review, place):
            compiled.append((place, path, program))
            _check_names(review, place, path, program)
    _check_constant_keys(review)
    return compiled


def _programs(review: Review, place: Place) -> Iterator[tuple[Path, Program]]:
    texts = [("", place.value)] if place.bare else list(template_texts(place.value))
    for pointer, text in texts:
        path = (*place.path, *pointer_parts(pointer))
        try:
            if place.bare:
                yield path, compile_expression(text, names=place.names)
            else:
                for program in compile_template(
                    _as_value(text, pointer, place), names=place.names
                ).programs:
                    yield path, program
        except ExpressionError as error:
            hint = ""
            if place.bare and "${{" in text:
                hint = " Here CEL stands bare: leave ${{ }} away."
            review.error(f"expression_{error.code}", path, error.message + hint)


def _as_value(text: str, pointer: str, place: Place) -> object:
    """The text as the value it is, or as the key of an object that it is."""
    parts = pointer_parts(pointer)
    value = place.value
    for part in parts:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return text if value == text else {text: None}


def _check_names(review: Review, place: Place, path: Path, program: Program) -> None:
    for name in program.paths:
        if name[0] == "steps":
            _check_step(review, place, path, name, tested=_is_tested(program, name))
        elif name[0] == "run" and len(name) > 1 and name[1] not in _RUN_KEYS:
            mend = suggestion(str(name[1]), _RUN_KEYS)
            review.error("unknown_property", path, f"run has no {name[1]}: {mend}")


def _is_tested(program: Program, name: NamePath) -> bool:
    return any(
        name[: len(tested)] == tested or tested[: len(name)] == name for tested in program.tested
    )


def _check_step(review: Review, place: Place, path: Path, name: NamePath, *, tested: bool) -> None:
    key = str(name[1])
    if key not in review.steps:
        mend = suggestion(key, review.steps)
        review.error("unknown_step", path, f'there is no step "{key}": {mend}')
        return
    if len(name) > 2 and name[2] not in _STEP_KEYS:
        mend = suggestion(str(name[2]), _STEP_KEYS)
        review.error("unknown_property", path, f"steps.{key} has no {name[2]}: {mend}")
    if place.step is None or (place.sees_itself and key == place.step):
        return
    if not review.sight.leads_to(key, place.step):
        report = review.warn if tested else review.error
        report(
            "not_upstream",
            path,
            f'"{key}" need not have ended when "{place.step}" starts: add it to its needs.',
        )


def _check_constant_keys(review: Review) -> None:
    """An effect's key that never changes, or is the same for all items, hides later effects."""
    for key, step in review.steps.items():
        if step.effect is not None:
            _check_constant_key(review, ("steps", key), step, step.effect)
        if step.compensate is not None and step.compensate.effect is not None:
            path: Path = ("steps", key, "compensate")
            _check_constant_key(review, path, step, step.compensate.effect)


def _check_constant_key(review: Review, where: Path, step: AnyStep, effect: Effect) -> None:
    path: Path = (*where, "effect", "key")
    try:
        template = compile_template(effect.key, names=None)
    except ExpressionError:
        return  # reported elsewhere
    if template.is_constant:
        review.warn(
            "constant_key",
            path,
            "all runs share this key, so only the first one acts: put the business's id in "
            "it, e.g. ${{ input.order_id }}.",
        )
    elif step.for_each and not template.names & {step.for_each.as_, "item", "index"}:
        review.warn(
            "same_key_for_items",
            path,
            f"all items share this key, so only the first one acts: put ${{{{ "
            f"{step.for_each.as_} }}}} or ${{{{ index }}}} in it.",
        )
