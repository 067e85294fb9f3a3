//! Walks every state and event of a child against the table in `child.rs`, and the order of effects.

use super::*;
use crate::machine::Skip;
use crate::model::child::{Ask, Evidence, Harness};
use crate::model::persona::{Mode, Persona};
use crate::model::report::Outcome;
use crate::model::status::{Phase, WindowState};
use crate::model::usage::Usage;

const NOW: Now = Now { mono_ms: 0, wall: Timestamp::from_millis(1_000_000) };

pub(crate) fn spec() -> ChildSpec {
    ChildSpec {
        label: "auth".into(),
        prompt: "find it".into(),
        persona: Persona {
            name: "explore".into(),
            description: String::new(),
            tools: vec![],
            mode: Mode::Default,
            allow: vec![],
            deny: vec![],
            model: None,
            subagent: true,
        },
        system: String::new(),
        model: "script/x".into(),
        harness: Harness::Decode,
        workspace: "shared".into(),
        cwd: "/p".into(),
        budget: Budget::CHILD,
        retries: 1,
        evidence: Evidence::Required,
        needs: vec![],
        ask: Ask::IfSomebodyIsThere,
        resume: None,
        session: None,
        schema: None,
    }
}

fn lease() -> Lease {
    Lease { recipe: "shared".into(), path: "/p".into(), project: "/p".into(), branch: None, base: None }
}

fn report(body: &str) -> Report {
    crate::machine::verdict::tests::report(Outcome::Done, body)
}

fn status(phase: Phase, requests: u64) -> Status {
    Status {
        v: 1,
        nonce: "n".into(),
        phase,
        heartbeat: NOW.wall,
        progress: Timestamp::from_millis(requests.cast_signed()),
        usage: Usage { requests, ..Usage::ZERO },
        tool_calls: 0,
        doing: String::new(),
        question: None,
        seen: vec![],
        acted_on: vec![],
        window: WindowState::Open,
    }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Crash, "x")
}

fn child_in(state: State, holds: Option<Lease>) -> Child {
    let mut child = Child::new(ChildId::new(1, "auth"), spec());
    child.memory.state = state;
    child.memory.epoch = 7;
    child.memory.attempt = 1;
    child.memory.used = 1;
    child.memory.grant = Budget { requests: Some(10), ..Budget::CHILD };
    child.memory.lease = holds;
    child
}

fn states() -> Vec<(&'static str, State, Option<Lease>)> {
    let stopping = |stage| State::Stopping { stage, why: Why::Silence };
    let cooling = || State::Cooling { until: NOW.wall, after: failure() };
    vec![
        ("Waiting", State::Waiting, None),
        ("Waiting+lease", State::Waiting, Some(lease())),
        ("Preparing", State::Preparing, None),
        ("Opening", State::Opening, Some(lease())),
        ("Running", State::Running, Some(lease())),
        ("Exiting", State::Exiting, Some(lease())),
        ("Stopping(asked)", stopping(Stage::Asked), Some(lease())),
        ("Stopping(term)", stopping(Stage::Term), Some(lease())),
        ("Stopping(kill)", stopping(Stage::Kill), Some(lease())),
        ("Collecting", State::Collecting { why: None }, Some(lease())),
        ("Cooling", cooling(), None),
        ("Cooling+lease", cooling(), Some(lease())),
        ("Parked", State::Parked { until: NOW.wall }, None),
        ("Parked+lease", State::Parked { until: NOW.wall }, Some(lease())),
        ("Done", State::Done { outcome: Outcome::Done }, None),
        ("Failed", State::Failed { failure: failure() }, None),
        ("Cancelled", State::Cancelled { by: By::User }, None),
        ("Skipped", State::Skipped { reason: Skip::Upstream }, None),
    ]
}

fn events() -> Vec<(String, ChildEvent)> {
    let mut events: Vec<(String, ChildEvent)> = vec![
        ("Admitted".into(), ChildEvent::Admitted { grant: Budget::CHILD }),
        ("NeedsSettled".into(), ChildEvent::NeedsSettled { skip: Skip::Upstream }),
        ("Stop".into(), ChildEvent::Stop { by: By::User }),
        ("Retry".into(), ChildEvent::Retry),
        ("Prepared".into(), ChildEvent::Prepared { epoch: 7, lease: lease() }),
        (
            "PrepareFailed".into(),
            ChildEvent::PrepareFailed { epoch: 7, failure: Failure::new(FailureKind::Workspace, "") },
        ),
        ("Opened".into(), ChildEvent::Opened { epoch: 7 }),
        ("OpenFailed".into(), ChildEvent::OpenFailed { epoch: 7, detail: "no tmux".into() }),
        ("Started".into(), ChildEvent::Started { attempt: 1 }),
        ("Heard".into(), ChildEvent::Heard { attempt: 1, status: Box::new(status(Phase::Tool, 10)) }),
        ("Heard over grant".into(), ChildEvent::Heard { attempt: 1, status: Box::new(status(Phase::Tool, 11)) }),
        ("Reported".into(), ChildEvent::Reported { attempt: 1, report: Box::new(report("found")) }),
        ("Gone".into(), ChildEvent::Gone { attempt: 1, exit: Exit::Signal(9) }),
        ("Wall".into(), ChildEvent::Wall { attempt: 1 }),
        ("Collected".into(), ChildEvent::Collected { epoch: 7, collected: Collected::default() }),
        ("CollectFailed".into(), ChildEvent::CollectFailed { epoch: 7, detail: "disk".into() }),
    ];
    events.extend(
        Timer::ALL.iter().map(|timer| (format!("Fired {timer:?}"), ChildEvent::Fired { epoch: 7, timer: *timer })),
    );
    events
}

fn shown(state: &State) -> String {
    match state {
        State::Stopping { stage, .. } => format!("Stopping({})", format!("{stage:?}").to_lowercase()),
        other => {
            let debug = format!("{other:?}");
            debug.split([' ', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

/// The rows of the table in the file's own documentation.
fn table() -> Vec<(String, String, String)> {
    include_str!("child.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .map(|line| line.trim_end_matches(" |").split(" | ").map(str::to_owned).collect::<Vec<_>>())
        .filter(|cells| cells.len() == 3 && cells[0] != "from")
        .map(|cells| (cells[0].clone(), cells[1].clone(), cells[2].clone()))
        .collect()
}

fn wanted(table: &[(String, String, String)], from: &str, event: &str, state: &State) -> String {
    let plain = from.trim_end_matches("+lease");
    let exact = |name: &str| table.iter().find(|row| row.0 == name && row.1 == event).map(|row| row.2.clone());
    exact(from)
        .or_else(|| exact(plain))
        .or_else(|| plain.starts_with("Stopping").then(|| exact("Stopping")).flatten())
        .unwrap_or_else(|| shown(state))
}

#[test]
fn every_state_and_event_goes_where_the_table_says() {
    let table = table();
    assert!(table.len() > 35, "the table was found");
    let mut used = std::collections::BTreeSet::new();
    for (from, state, holds) in states() {
        for (name, event) in events() {
            let mut child = child_in(state.clone(), holds.clone());
            let effects = child.handle(event, NOW);
            let mut want = wanted(&table, from, &name, &state);
            used.insert((from.trim_end_matches("+lease").to_owned(), name.clone()));
            if want == "by verdict" {
                // A crash with an attempt left cools.
                want = "Cooling".into();
            }
            assert_eq!(shown(child.state()), want, "{from} on {name}");
            let moved = child.memory.epoch != 7;
            let journals = effects.iter().filter(|effect| matches!(effect, Effect::Journal(_))).count();
            let remembered = from == "Collecting" && name == "Stop";
            assert_eq!(journals, usize::from(moved || remembered), "{from} on {name}: one record a transition");
            if moved {
                assert!(matches!(effects[0], Effect::Journal(_)), "{from} on {name}: the record comes first");
            }
        }
    }
    for (from, event, _) in &table {
        let from = from.trim_end_matches("+lease");
        let known = used.iter().any(|(state, name)| {
            name == event && (state == from || (from == "Stopping" && state.starts_with("Stopping")))
        });
        assert!(known, "the table names `{from}` on `{event}`, which no test walks");
    }
}

#[test]
fn facts_of_another_attempt_and_results_of_another_epoch_are_dropped() {
    for (from, state, holds) in states() {
        for event in [
            ChildEvent::Started { attempt: 2 },
            ChildEvent::Gone { attempt: 2, exit: Exit::Status(0) },
            ChildEvent::Reported { attempt: 0, report: Box::new(report("late")) },
            ChildEvent::Wall { attempt: 0 },
            ChildEvent::Fired { epoch: 6, timer: Timer::Grace },
            ChildEvent::Collected { epoch: 6, collected: Collected::default() },
        ] {
            let mut child = child_in(state.clone(), holds.clone());
            let effects = child.handle(event.clone(), NOW);
            assert_eq!((child.state(), effects.len()), (&state, 0), "{from} on {event:?}");
        }
    }
}

#[test]
fn a_child_goes_from_waiting_to_done() {
    let mut child = Child::new(ChildId::new(1, "auth"), spec());
    let id = child.id.clone();
    child.handle(ChildEvent::Admitted { grant: Budget::CHILD }, NOW);
    child.handle(ChildEvent::Prepared { epoch: 1, lease: lease() }, NOW);
    let effects = child.handle(ChildEvent::Started { attempt: 1 }, NOW);
    assert_eq!(
        effects[1..],
        [
            Effect::Arm { child: id.clone(), epoch: 3, timer: Timer::Silence, after_ms: 120_000 },
            Effect::Arm { child: id.clone(), epoch: 3, timer: Timer::Stall, after_ms: 900_000 },
            Effect::ArmWall { child: id.clone(), attempt: 1, after_ms: 900_000 },
        ]
    );
    child.handle(ChildEvent::Reported { attempt: 1, report: Box::new(report("found")) }, NOW);
    let effects = child.handle(ChildEvent::Gone { attempt: 1, exit: Exit::Status(0) }, NOW);
    assert_eq!(
        effects[1..],
        [
            Effect::CloseInbox { child: id.clone(), attempt: 1 },
            Effect::Collect { child: id.clone(), epoch: 5, attempt: 1, lease: Some(lease()) },
        ]
    );
    let collected = Collected { clean: true, ..Collected::default() };
    let effects = child.handle(ChildEvent::Collected { epoch: 5, collected }, NOW);
    assert_eq!(child.state(), &State::Done { outcome: Outcome::Done });
    assert_eq!(
        effects[1..],
        [Effect::CloseWindow { child: id.clone(), attempt: 1 }, Effect::Dispose { child: id, lease: lease() },]
    );
    assert_eq!(child.memory.spent.total().requests, 2);
}

#[test]
fn a_silent_child_is_asked_to_stop_then_terminated_then_killed_then_given_up() {
    let mut child = child_in(State::Running, Some(lease()));
    let mut signals = Vec::new();
    let mut graces = Vec::new();
    let mut event = ChildEvent::Fired { epoch: 7, timer: Timer::Silence };
    for _ in 0..4 {
        for effect in child.handle(event, NOW) {
            match effect {
                Effect::Signal { signal, .. } => signals.push(signal),
                Effect::Arm { after_ms, .. } => graces.push(after_ms),
                _ => {}
            }
        }
        event = ChildEvent::Fired { epoch: child.memory.epoch, timer: Timer::Grace };
    }
    assert_eq!(signals, [Signal::Term, Signal::Kill]);
    assert_eq!(graces, [10_000, 3_000, 3_000]);
    assert!(matches!(child.state(), State::Failed { failure } if failure.kind == FailureKind::WontDie));
    assert!(child.memory.lease.is_some(), "everything is kept");
}

#[test]
fn a_crash_resumes_the_same_session_and_an_empty_report_is_nudged_into_a_new_one() {
    let mut crashed = child_in(State::Collecting { why: None }, Some(lease()));
    crashed.memory.exit = Some(Exit::Signal(9));
    crashed.handle(ChildEvent::Collected { epoch: 7, collected: Collected::default() }, NOW);
    assert_eq!(crashed.memory.next, Start::Resumed(1));
    let mut empty = child_in(State::Collecting { why: None }, Some(lease()));
    empty.report = Some(report(""));
    empty.handle(ChildEvent::Collected { epoch: 7, collected: Collected::default() }, NOW);
    assert_eq!(empty.memory.next, Start::Nudged("empty report".into()));
    empty.handle(ChildEvent::Fired { epoch: 8, timer: Timer::Cool }, NOW);
    empty.handle(ChildEvent::Admitted { grant: Budget::CHILD }, NOW);
    let effects = empty.handle(ChildEvent::Prepared { epoch: empty.memory.epoch, lease: lease() }, NOW);
    assert!(matches!(effects[1], Effect::Open { session: Session::New, attempt: 2, .. }));
}

#[test]
fn a_stop_while_collecting_is_remembered_and_no_attempt_follows() {
    let mut child = child_in(State::Collecting { why: None }, Some(lease()));
    child.handle(ChildEvent::Stop { by: By::User }, NOW);
    child.handle(ChildEvent::Collected { epoch: 7, collected: Collected::default() }, NOW);
    assert_eq!(child.state(), &State::Cancelled { by: By::User });
}

#[test]
fn a_lease_that_comes_too_late_is_disposed() {
    let mut child = child_in(State::Preparing, None);
    child.handle(ChildEvent::Stop { by: By::User }, NOW);
    let effects = child.handle(ChildEvent::Prepared { epoch: 7, lease: lease() }, NOW);
    assert_eq!(effects, [Effect::Dispose { child: child.id.clone(), lease: lease() }]);
}

#[test]
fn the_windows_of_all_attempts_go_with_a_child_that_is_done() {
    let mut child = child_in(State::Collecting { why: None }, None);
    child.memory.attempt = 3;
    child.report = Some(report("found"));
    let epoch = child.memory.epoch;
    let effects = child.handle(ChildEvent::Collected { epoch, collected: Collected::default() }, NOW);
    let closed: Vec<u32> = effects
        .iter()
        .filter_map(|effect| if let Effect::CloseWindow { attempt, .. } = effect { Some(*attempt) } else { None })
        .collect();
    assert_eq!(closed, [1, 2, 3]);
}

#[test]
fn a_child_that_waits_for_a_person_is_not_called_silent() {
    let mut child = child_in(State::Running, Some(lease()));
    let asks = ChildEvent::Heard { attempt: 1, status: Box::new(status(Phase::Asking, 1)) };
    let effects = child.handle(asks, NOW);
    assert_eq!(
        effects,
        [
            Effect::Disarm { child: child.id.clone(), timer: Timer::Silence },
            Effect::Disarm { child: child.id.clone(), timer: Timer::Stall },
        ]
    );
    let works = ChildEvent::Heard { attempt: 1, status: Box::new(status(Phase::Tool, 2)) };
    assert_eq!(child.handle(works, NOW).len(), 2, "both timers are armed again");
}

#[test]
fn the_memory_of_every_state_is_read_back_from_the_journal() {
    for (from, state, holds) in states() {
        let child = child_in(state, holds);
        let json = serde_json::to_string(&child.memory).unwrap();
        let memory: Memory = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{from}: {error}: {json}"));
        assert_eq!(memory, child.memory, "{from}");
    }
}
