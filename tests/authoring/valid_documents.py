"""Any document of valid shape: every key of every block, with values that it may have."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from orchestrator.core.errors import ErrorClass

KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True)
CHARACTERS = st.characters(exclude_characters="\x00", exclude_categories=("Cs",))
TEXTS = (
    st.text(CHARACTERS, max_size=12)
    | st.sampled_from(
        ["a\x85b", "a\u2028\n b", "\n  x", " x \n\n", "\ufeff", "a\rb\n", "\U0001f600", "#", "|\n"]
    )
    | st.sampled_from(
        [
            "on",
            "yes",
            "~",
            "0x1F",
            "0o17",
            "1e5",
            ".5",
            "- a",
            "a: b",
            "${{ input.a }}",
            "two\nlines\n",
        ]
    )
)
SOME_TEXT = TEXTS.filter(bool)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**64 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
SCHEMA = st.dictionaries(TEXTS, JSON, max_size=2)
DURATION = st.sampled_from(["500ms", "30s", "5m", "4h", "7d", "PT4H", "1.5h"])
MONEY = st.sampled_from([1, 2.0, 0.5, "0.50", "1000000"])
ON_ERROR = st.sampled_from(["fail", "pause", "continue"])
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=2)


def block(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the optional keys; a key that is a word of Python has an underscore behind it."""
    named = {key.removesuffix("_"): each for key, each in optional.items()}
    return st.fixed_dictionaries(required, optional=named)


RETRY = block(
    {},
    max_retries=st.integers(0, 1000),
    backoff=st.sampled_from(["exponential", "linear"]),
    base_delay=DURATION,
    max_delay=DURATION,
    on=st.lists(st.sampled_from([str(each) for each in ErrorClass]), max_size=3),
)
EFFECT = block(
    {"key": SOME_TEXT},
    money=st.booleans(),
    on_doubt=st.sampled_from(["review", "resend", "skip"]),
)
COMMON: dict[str, Any] = {
    "title": st.none() | TEXTS,
    "description": TEXTS,
    "join": st.sampled_from(["all", "strict", "any"]) | st.just({"at_least": 2}),
    "late": st.sampled_from(["ignore", "cancel"]),
    "merge": st.sampled_from(["nested", "shallow", "deep", "list", "first"])
    | block({"expression": SOME_TEXT}),
    "when": SOME_TEXT,
    "optional": st.booleans(),
    "input": JSON,
    "input_schema": SCHEMA,
    "output_schema": st.none() | SCHEMA,
    "timeout": DURATION,
    "retry": RETRY,
    "on_error": ON_ERROR,
    "for_each": block(
        {"items": JSON},
        as_=st.sampled_from(["item", "page"]),
        max_parallel=st.integers(1, 10_000),
        min_success=st.integers(0, 10_000),
    ),
    "repeat": block(
        {"until": SOME_TEXT, "max": st.integers(1, 1000)},
        delay=DURATION,
        on_exhausted=st.sampled_from(["fail", "continue"]),
    ),
    "labels": LABELS,
    "cost_limit_usd": MONEY,
    "effect": EFFECT,
    "compensate": block({"tool": SOME_TEXT}, input=JSON, effect=EFFECT, retry=RETRY),
    "irreversible": st.booleans(),
    "queue": SOME_TEXT,
    "service": st.just("erp"),
}


def steps_of(keys: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """A step for each key, in any order of kinds; needs and routes name any of the keys."""
    names = st.sampled_from(keys)
    needs = st.lists(
        names
        | block(
            {"step": names},
            when=SOME_TEXT,
            on=st.sampled_from(["completed", "failed", "skipped", "any"]),
        ),
        max_size=3,
    )
    common = {**COMMON, "needs": needs, "fallback": names}
    kinds = {
        "agent": block(
            {"model": SOME_TEXT},
            system=SOME_TEXT,
            prompt=SOME_TEXT,
            tools=st.lists(SOME_TEXT, max_size=2),
            max_tokens=st.integers(1, 10_000_000),
            temperature=st.floats(0, 2),
            max_turns=st.integers(1, 1000),
            **common,
        ),
        "tool": block({"tool": SOME_TEXT}, **common),
        "human_gate": block(
            {"assignees": st.lists(SOME_TEXT, max_size=2)},
            message=SOME_TEXT,
            form=SCHEMA,
            quorum=st.integers(1, 100),
            four_eyes=st.booleans(),
            remind=DURATION | st.lists(DURATION, max_size=2),
            on_timeout=st.sampled_from(["reject", "approve", "escalate"]),
            escalate=st.lists(
                block({"after": DURATION, "to": st.lists(SOME_TEXT, min_size=1, max_size=2)}),
                max_size=2,
            ),
            on_reject=st.sampled_from(["fail", "end", "continue"]),
            **common,
        ),
        "sub_workflow": block({"workflow": st.sampled_from(["child", "child@3"])}, **common),
        "router": block(
            {
                "routes": st.lists(
                    block(
                        {"id": st.sampled_from(["a", "b.c"]), "to": st.lists(names, max_size=2)},
                        when=SOME_TEXT,
                        at_least=NUMBERS,
                        description=TEXTS,
                    ),
                    min_size=1,
                    max_size=2,
                )
            },
            strategy=st.sampled_from(["rules", "llm", "score"]),
            value=SOME_TEXT,
            model=SOME_TEXT,
            question=SOME_TEXT,
            mode=st.sampled_from(["first", "all"]),
            default=st.just("a"),
            **common,
        ),
        "wait": block(
            {},
            for_=DURATION,
            until=SOME_TEXT,
            signal=st.just("go"),
            schema=SCHEMA,
            **{"on_timeout": st.sampled_from(["fail", "continue"]), **common},
        ),
    }
    step = st.one_of(
        *(body.map(lambda body, kind=kind: {"type": kind, **body}) for kind, body in kinds.items())
    )
    return st.fixed_dictionaries(dict.fromkeys(keys, step))


def documents() -> st.SearchStrategy[dict[str, Any]]:
    """Whole documents."""
    more = block(
        {"schema": st.just("orchestrator/v1"), "name": KEYS},
        title=st.none() | TEXTS,
        description=TEXTS,
        input=SCHEMA,
        output=JSON,
        budget=block(
            {},
            cost_usd=MONEY,
            duration=DURATION,
            on_exceeded=st.sampled_from(["pause", "fail", "alert"]),
        ),
        timeout=DURATION,
        sla=block({"complete_within": DURATION}),
        max_parallel=st.integers(1, 10_000),
        labels=LABELS,
        triggers=st.lists(
            st.fixed_dictionaries({"type": st.just("cron"), "schedule": JSON}), max_size=2
        ),
        on_error=ON_ERROR,
        defaults=block({}, timeout=DURATION, retry=RETRY),
    )
    keys = st.lists(KEYS, min_size=1, max_size=4, unique=True)
    steps = keys.flatmap(steps_of)
    return st.tuples(more, steps).map(lambda made: {**made[0], "steps": made[1]})
