//! A run as a whole: slots, needs, limits, and the exit code.

use super::*;
use crate::machine::child::tests::spec;
use crate::machine::{Exit, Timer};
use crate::model::budget::Budget;
use crate::model::child::{ChildSpec, Collected, Failure, Lease};
use crate::model::id::RunId;
use crate::model::report::Report;
use crate::model::run::{OnExit, Place};

const NOW: Now = Now { mono_ms: 0, wall: Timestamp::from_millis(1_000_000) };

fn run(width: u32, limits: Budget) -> RunSpec {
    RunSpec {
        run: RunId::try_from("k3x9ab".to_owned()).unwrap(),
        goal: "g".into(),
        project: "/p".into(),
        created: NOW.wall,
        place: Place::Bare,
        width,
        limits,
        on_exit: OnExit::Detach,
        fold_bytes: 16_000,
        parent: None,
        depth: 0,
    }
}

fn machine(width: u32, specs: Vec<ChildSpec>, limits: Budget) -> Machine {
    let children = specs
        .into_iter()
        .enumerate()
        .map(|(index, spec)| Child::new(ChildId::new(index as u32 + 1, "c"), spec))
        .collect();
    Machine::new(run(width, limits), children, NOW)
}

fn lease() -> Lease {
    Lease { recipe: "shared".into(), path: "/p".into(), project: "/p".into(), branch: None, base: None }
}

fn report() -> Report {
    crate::machine::verdict::tests::report(Outcome::Done, "found")
}

/// Plays the world for one child until it needs something that is not told here.
fn play(machine: &mut Machine, number: u32, events: &[ChildEvent]) -> Vec<Effect> {
    let id = machine.children()[number as usize - 1].id.clone();
    let mut effects = Vec::new();
    for event in events {
        effects = machine.handle(Event::Child { child: id.clone(), event: event.clone() }, NOW);
    }
    effects
}

fn epoch(machine: &Machine, number: u32) -> u64 {
    machine.children()[number as usize - 1].memory().epoch
}

fn finish(machine: &mut Machine, number: u32) -> Vec<Effect> {
    let first = epoch(machine, number);
    play(
        machine,
        number,
        &[
            ChildEvent::Prepared { epoch: first, lease: lease() },
            ChildEvent::Started { attempt: 1 },
            ChildEvent::Reported { attempt: 1, report: Box::new(report()) },
            ChildEvent::Gone { attempt: 1, exit: Exit::Status(0) },
        ],
    );
    let last = epoch(machine, number);
    play(machine, number, &[ChildEvent::Collected { epoch: last, collected: Collected::default() }])
}

fn active(machine: &Machine) -> Vec<u32> {
    machine.children().iter().filter(|child| child.state().holds_slot()).map(|child| child.id.number()).collect()
}

#[test]
fn children_start_in_order_as_slots_come_free() {
    let mut machine = machine(2, vec![spec(), spec(), spec()], Budget::NONE);
    machine.start(NOW);
    assert_eq!(active(&machine), [1, 2]);
    finish(&mut machine, 1);
    assert_eq!(active(&machine), [2, 3]);
    finish(&mut machine, 2);
    let effects = finish(&mut machine, 3);
    assert_eq!(effects.last(), Some(&Effect::Finish));
    assert_eq!((machine.exit_code(), machine.spent().requests), (0, 6));
}

#[test]
fn a_rest_too_small_to_share_goes_to_the_first_who_waits() {
    let limits = Budget { requests: Some(3), ..Budget::NONE };
    let mut machine = machine(2, vec![spec(), spec(), spec()], limits);
    machine.start(NOW);
    assert_eq!(active(&machine), [1]);
    assert_eq!(machine.children()[0].memory().grant.requests, Some(3), "one for each of two would be nothing");
    finish(&mut machine, 1);
    let skipped = |child: &Child| *child.state() == State::Skipped { reason: Skip::Budget };
    assert!(skipped(&machine.children()[1]) && skipped(&machine.children()[2]));
}

#[test]
fn a_child_waits_for_its_needs_and_is_skipped_when_one_fails() {
    let needs = |needs: Vec<u32>| ChildSpec { needs, ..spec() };
    let mut machine = machine(4, vec![spec(), needs(vec![1]), needs(vec![2]), spec()], Budget::NONE);
    machine.start(NOW);
    assert_eq!(active(&machine), [1, 4]);
    let first = epoch(&machine, 1);
    let failure = Failure::new(FailureKind::Missing, "git");
    play(&mut machine, 1, &[ChildEvent::PrepareFailed { epoch: first, failure }]);
    let states: Vec<&str> =
        machine.children().iter().map(|child| crate::machine::view::name(child.state()).word()).collect();
    assert_eq!(states, ["failed", "skipped", "skipped", "preparing"]);
    finish(&mut machine, 4);
    assert!(machine.is_finished());
    assert_eq!(machine.exit_code(), 1);
}

#[test]
fn a_child_for_which_nothing_is_left_is_skipped_and_the_run_ends_with_the_limit() {
    let mut machine = machine(1, vec![spec(), spec()], Budget { requests: Some(3), ..Budget::NONE });
    machine.start(NOW);
    finish(&mut machine, 1);
    assert_eq!(machine.children()[1].state(), &State::Skipped { reason: Skip::Budget });
    assert_eq!(machine.exit_code(), 4);
}

#[test]
fn a_stopped_run_starts_nobody_and_ends() {
    let mut machine = machine(1, vec![spec(), spec()], Budget::NONE);
    machine.start(NOW);
    let effects = machine.handle(Event::StopAll { by: By::User }, NOW);
    assert_eq!(effects.last(), Some(&Effect::Finish));
    assert!(machine.children().iter().all(|child| matches!(child.state(), State::Cancelled { by: By::User })));
    assert_eq!(machine.exit_code(), 1);
}

#[test]
fn a_retry_after_the_end_opens_the_run_again() {
    let mut machine = machine(1, vec![spec()], Budget::NONE);
    machine.start(NOW);
    machine.handle(Event::StopAll { by: By::User }, NOW);
    play(&mut machine, 1, &[ChildEvent::Retry]);
    assert_eq!(active(&machine), [1]);
    assert!(!machine.is_finished());
}

#[test]
fn the_slots_are_never_more_than_the_width_whatever_comes() {
    // A small deterministic walk over events of all children; the invariants must hold after each.
    let mut machine = machine(3, (0..8).map(|_| spec()).collect(), Budget { requests: Some(300), ..Budget::NONE });
    machine.start(NOW);
    let mut seed = 42_u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (seed >> 33) as usize % 8;
        let memory = machine.children()[number].memory().clone();
        let (epoch, attempt) = (memory.epoch, memory.attempt);
        let event = match (seed >> 40) % 14 {
            0 => ChildEvent::Prepared { epoch, lease: lease() },
            1 => ChildEvent::PrepareFailed { epoch, failure: Failure::new(FailureKind::Workspace, "") },
            2 => ChildEvent::Started { attempt },
            3 => ChildEvent::Reported { attempt, report: Box::new(report()) },
            4 => ChildEvent::Gone { attempt, exit: Exit::Signal(9) },
            5 => ChildEvent::Collected { epoch, collected: Collected::default() },
            6 => ChildEvent::CollectFailed { epoch, detail: String::new() },
            7 => ChildEvent::Retry,
            8 => ChildEvent::Stop { by: By::User },
            9 => ChildEvent::OpenFailed { epoch, detail: String::new() },
            10 => ChildEvent::Wall { attempt },
            _ => ChildEvent::Fired { epoch, timer: Timer::ALL[(seed >> 50) as usize % Timer::ALL.len()] },
        };
        let id = machine.children()[number].id.clone();
        machine.handle(Event::Child { child: id, event }, NOW);
        assert!(active(&machine).len() <= 3);
        for child in machine.children() {
            assert!(child.memory().attempt == 0 || child.memory().used <= child.memory().allowed + 1);
        }
    }
}
