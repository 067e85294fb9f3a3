//! Who may die without what: viewers, supervisors, and the work that goes on.

use std::path::Path;

use nix::sys::signal::Signal;

use crate::environment::{Environment, looks, terminate, wait_for};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const PROMPTS: [&str; 4] = [
    "Where does it start, and why?",
    "Where does it end, and why?",
    "Where is it said, and why?",
    "Where is it tested, and why?",
];

fn at_the_gate() -> Script {
    Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.").gated()]).strict()
}

fn fan<'a>(more: &[&'a str], children: usize) -> Vec<&'a str> {
    let words = ["fan", "--model", MODEL].into_iter().chain(more.iter().copied());
    words.chain(PROMPTS.into_iter().take(children)).collect()
}

#[test]
fn a_viewer_killed_in_the_middle_takes_nothing_with_it() {
    for terminal in ["tmux", "bare"] {
        let environment = Environment::with_model(at_the_gate());
        let mut viewer = environment.spawn(&fan(&["--terminal", terminal], 3));
        environment.wait_for_requests(6);
        viewer.signal(Signal::SIGKILL);
        assert_eq!(viewer.wait().code, 137);
        environment.model().release();
        let run = environment.only_run();
        let first = run.wait().expect_code(0);
        assert_eq!(first.stdout.matches("It is at src/lib.rs:1.").count(), 3, "{}", first.stdout);
        let second = run.wait().expect_code(0);
        assert_eq!(first.stdout, second.stdout, "a run is folded once and printed any number of times");
        environment.expect_no_workers();
    }
}

#[test]
fn term_hup_and_int_send_the_viewer_away_and_the_run_goes_on() {
    let environment = Environment::with_model(at_the_gate());
    let mut fan = environment.spawn(&fan(&[], 2));
    environment.wait_for_requests(4);
    let run = environment.only_run();
    let line = format!("the run goes on: decode wait {}", run.name);
    wait_for("the viewer shows the children", || fan.stderr().contains("Where does it").then_some(()));
    fan.signal(Signal::SIGTERM);
    let gone = fan.wait().expect_code(143);
    assert_eq!(gone.stderr.lines().last(), Some(line.as_str()));
    assert!(gone.stdout.is_empty());
    for (signal, code) in [(Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
        let mut wait = environment.spawn(&["wait", &run.name]);
        wait_for("the viewer shows the children", || wait.stderr().contains("Where does it").then_some(()));
        wait.signal(signal);
        let gone = wait.wait().expect_code(code);
        assert_eq!(gone.stderr.lines().last(), Some(line.as_str()));
    }
    environment.model().release();
    let output = run.wait().expect_code(0);
    assert_eq!(output.stdout.matches("It is at src/lib.rs:1.").count(), 2);
}

#[test]
fn a_run_bound_to_its_caller_stops_with_it() {
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let environment = Environment::with_model(at_the_gate());
        let mut viewer = environment.spawn(&fan(&["--on-exit", "stop"], 2));
        environment.wait_for_requests(4);
        wait_for("the viewer shows the children", || viewer.stderr().contains("Where does it").then_some(()));
        viewer.signal(signal);
        let gone = viewer.wait();
        assert!(!gone.stderr.contains("the run goes on"), "{}", gone.stderr);
        let run = environment.only_run();
        let json = run.wait_json();
        assert_eq!(
            (&json["outcome"], &json["children"][0]["state"]),
            (&"cancelled".into(), &"cancelled".into()),
            "{json}"
        );
        environment.expect_no_workers();
    }
}

#[test]
fn in_ci_a_run_is_bound_to_its_caller_unless_told_otherwise() {
    let mut environment = Environment::with_model(at_the_gate());
    environment.set("CI", "true");
    let mut viewer = environment.spawn(&fan(&["--terminal", "bare"], 1));
    environment.wait_for_requests(2);
    viewer.signal(Signal::SIGKILL);
    viewer.wait();
    assert_eq!(environment.only_run().wait_json()["outcome"], "cancelled");
}

fn reports(run: &Path) -> usize {
    let children = std::fs::read_dir(run.join("children")).into_iter().flatten().flatten();
    children.filter(|child| child.path().join("1/report.md").is_file()).count()
}

#[test]
fn children_outlive_their_supervisor_and_a_resume_folds_each_of_them_once() {
    for terminal in ["tmux", "bare"] {
        let environment = Environment::with_model(at_the_gate());
        let mut viewer = environment.spawn(&fan(&["--terminal", terminal], 4));
        environment.wait_for_requests(8);
        let run = environment.only_run();
        terminate(run.supervisor(), Signal::SIGKILL);
        let told = viewer.wait().expect_code(1);
        assert!(told.stderr.contains(&format!("decode resume {}", run.name)), "{}", told.stderr);
        environment.model().release();
        wait_for("all four reports are on the disk", || (reports(&run.directory) == 4).then_some(()));
        let ps = environment.decode(&["ps"]).expect_code(0);
        assert!(ps.stdout.contains("decode resume"), "{}", ps.stdout);
        let output = environment.decode(&["resume", &run.name, "-o", "json"]).expect_code(0);
        let json = output.json();
        let attempts: Vec<u64> =
            json["children"].as_array().into_iter().flatten().filter_map(|child| child["attempts"].as_u64()).collect();
        assert_eq!(attempts, [1, 1, 1, 1], "{json}");
        let fold = json["fold"].as_str().expect("the fold is text");
        assert_eq!(fold.matches("It is at src/lib.rs:1.").count(), 4, "{fold}");
        assert_eq!(environment.model().requests().len(), 8, "nothing is asked twice");
        environment.expect_no_workers();
    }
}

#[test]
fn a_resume_takes_up_children_that_still_run() {
    let environment = Environment::with_model(at_the_gate());
    let run = environment.detached(&fan(&[], 4)[1..]);
    environment.wait_for_requests(8);
    let first = run.supervisor();
    terminate(first, Signal::SIGKILL);
    wait_for("the supervisor is gone", || environment.processes().iter().all(|(pid, _)| *pid != first).then_some(()));
    let mut resumed = environment.spawn(&["resume", &run.name]);
    wait_for("somebody else drives it", || (run.supervisor() != first).then_some(()));
    let busy = environment.decode(&["resume", &run.name]).expect_code(1);
    assert!(busy.stderr.contains("decode wait"), "{}", busy.stderr);
    environment.model().release();
    let output = resumed.wait().expect_code(0);
    assert_eq!(output.stdout.matches("It is at src/lib.rs:1.").count(), 4, "{}", output.stdout);
    assert_eq!(environment.model().requests().len(), 8);
    environment.expect_no_workers();
}

#[test]
fn a_supervisor_killed_before_its_children_were_all_started_is_resumed_to_the_same_end() {
    let environment = Environment::with_model(at_the_gate());
    let mut words = fan(&["--width", "2"], 4);
    words.remove(0);
    let run = environment.detached(&words);
    environment.wait_for_requests(4);
    terminate(run.supervisor(), Signal::SIGKILL);
    environment.model().release();
    wait_for("those that ran have reported", || (reports(&run.directory) == 2).then_some(()));
    let output = environment.decode(&["resume", &run.name]).expect_code(0);
    assert_eq!(output.stdout.matches("It is at src/lib.rs:1.").count(), 4, "{}", output.stdout);
    assert_eq!(environment.model().requests().len(), 8);
}
