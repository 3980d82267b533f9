import pytest

from orchestrator.core.errors import NotFound
from orchestrator.executors.registry import executor_problems, get_executor, step_types

IN_THE_BOX = ("agent", "router", "sub_workflow", "tool", "undo_child", "wait")


@pytest.fixture
def executors(settings):
    def configure(**paths):
        settings.ORCHESTRATOR = {**getattr(settings, "ORCHESTRATOR", {}), "EXECUTORS": paths}

    return configure


def test_the_step_types_in_the_box_need_no_setting(executors):
    executors()

    assert step_types() == IN_THE_BOX
    assert executor_problems() == []


@pytest.mark.parametrize(
    ("step_type", "queue"),
    [
        ("agent", "agent"),
        ("tool", "tool"),
        ("router", "engine"),
        ("wait", "engine"),
        ("sub_workflow", "subworkflow"),
    ],
)
def test_a_step_type_has_its_queue_and_one_instance(step_type, queue):
    assert get_executor(step_type).queue == queue
    assert get_executor(step_type) is get_executor(step_type)


def test_a_further_step_type_is_one_line_in_the_settings(executors):
    executors(pause="orchestrator.executors.wait.WaitExecutor")

    assert "pause" in step_types()
    assert type(get_executor("pause")).__name__ == "WaitExecutor"


def test_an_unknown_step_type_is_not_found():
    with pytest.raises(NotFound, match="no executor for step type 'dance'"):
        get_executor("dance")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nowhere.at.All", "cannot be loaded"),
        ("orchestrator.executors.wait.Nothing", "cannot be loaded"),
        ("orchestrator.executors.base.StepContext", "cannot be loaded"),
        ("collections.OrderedDict", "lacks queue, execute, resume"),
    ],
)
def test_the_check_names_every_path_that_leads_nowhere(executors, path, problem):
    executors(broken=path)

    assert len(executor_problems()) == 1
    assert path in executor_problems()[0]
    assert problem in executor_problems()[0]
