"""The table of transitions itself."""

from tenure.jobs.lifecycle import TERMINAL_STATES, TRANSITIONS, EventType, State, sources_of


def test_every_event_has_exactly_one_row() -> None:
    assert [transition.event for transition in TRANSITIONS] == list(EventType)


def test_terminal_states_are_left_only_by_a_manual_retry() -> None:
    leaving = {t.event for t in TRANSITIONS for source in t.sources if source in TERMINAL_STATES}
    assert leaving == {EventType.MANUAL_RETRY}
    assert sources_of(EventType.MANUAL_RETRY) == {State.DEAD, State.FAILED}


def test_every_state_can_be_reached_and_every_running_job_can_end() -> None:
    reached = {target for transition in TRANSITIONS for target in transition.targets}
    assert reached == set(State)
    from_running = {t for transition in TRANSITIONS if State.RUNNING in transition.sources for t in transition.targets}
    assert from_running >= TERMINAL_STATES


def test_only_maintenance_and_submitters_act_on_running_jobs_without_the_token() -> None:
    unfenced = {t.event for t in TRANSITIONS if State.RUNNING in t.sources and not t.fenced}
    assert unfenced == {EventType.CANCEL_REQUESTED, EventType.LEASE_EXPIRED}
