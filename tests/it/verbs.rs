//! What a person asks of runs that go on and of runs that are over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::environment::{Environment, looks, wait_for};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const FIRST: &str = "Where does it start, and why?";
const SECOND: &str = "Where does it end, and why?";

/// The first child waits at the gate, the second does not.
fn one_waits() -> Script {
    Script::new()
        .on(FIRST, vec![looks(), Step::text("The first is at src/lib.rs:1.").gated()])
        .otherwise(vec![looks(), Step::text("The second is at src/lib.rs:2, and src/lib.rs:99 too.")])
        .strict()
}

fn two(environment: &Environment) -> crate::environment::Run<'_> {
    let run = environment.detached(&["--model", MODEL, FIRST, SECOND]);
    environment.wait_for_requests(4);
    run
}

#[test]
fn stopping_one_child_leaves_the_other_alone() {
    let environment =
        Environment::with_model(Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.").gated()]).strict());
    let run = two(&environment);
    environment.decode(&["stop", &run.child(1)]).expect_code(0);
    wait_for("the first child is stopped", || (run.show()["children"][0]["state"] == "cancelled").then_some(()));
    assert_eq!(run.show()["children"][1]["state"], "running");
    environment.model().release();
    let json = run.wait_json();
    assert_eq!((&json["children"][0]["state"], &json["children"][1]["state"]), (&"cancelled".into(), &"done".into()));
    run.wait().expect_code(1);
}

#[test]
fn stopping_a_run_ends_all_of_it_and_says_so_once() {
    let environment = Environment::with_model(one_waits());
    let run = two(&environment);
    run.report(2, 1);
    environment.decode(&["stop", &run.name]).expect_code(0);
    let output = run.wait().expect_code(1);
    assert!(output.stdout.contains("The second is at"), "what there was is kept: {}", output.stdout);
    environment.expect_no_workers();
    let again = environment.decode(&["stop", &run.name]).expect_code(1);
    assert!(again.stderr.contains("already over"), "{}", again.stderr);
}

#[test]
fn a_failed_child_is_retried_after_the_end_and_the_fold_is_made_anew() {
    for terminal in ["tmux", "bare"] {
        let mended = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&mended);
        let script = Script::function(move |request, _| {
            let looked = request.body["messages"].to_string().contains("pub fn start");
            let second = request.first_user_text().contains(SECOND);
            match (looked, second && !state.load(Ordering::SeqCst)) {
                (false, _) => looks(),
                (true, true) => Step::empty(),
                (true, false) => Step::text("Found at src/lib.rs:1."),
            }
        });
        let environment = Environment::with_model(script.strict());
        let words = ["--terminal", terminal, "--retries", "0", "--model", MODEL, FIRST, SECOND];
        let run = environment.detached(&words);
        let first = run.wait().expect_code(1);
        assert_eq!(first.stdout.matches("Found at").count(), 1, "{}", first.stdout);
        mended.store(true, Ordering::SeqCst);
        let output = environment.decode(&["retry", &run.child(2)]).expect_code(0);
        assert_eq!(output.stdout.matches("Found at").count(), 2, "{}", output.stdout);
        let json = run.wait_json();
        assert_eq!((&json["children"][0]["attempts"], &json["children"][1]["attempts"]), (&1.into(), &2.into()));
        let nothing = environment.decode(&["retry", &run.name]).expect_code(1);
        assert!(nothing.stderr.contains("nothing to retry"), "{}", nothing.stderr);
        environment.expect_no_workers();
    }
}

#[test]
fn a_run_can_be_looked_at_while_it_goes_on() {
    let environment = Environment::with_model(one_waits());
    let run = two(&environment);
    run.report(2, 1);
    wait_for("the second child is done", || (run.show()["children"][1]["state"] == "done").then_some(()));

    let ps = environment.decode(&["ps", "--json"]).expect_code(0).json();
    let listed = &ps["runs"][0];
    assert_eq!((&listed["run"], &listed["state"]), (&run.name.as_str().into(), &"running".into()), "{ps}");
    assert_eq!(listed["children"][0]["state"], "running");
    let lines = environment.decode(&["ps"]).expect_code(0).stdout;
    assert!(lines.contains(&run.name) && lines.contains("Where does it start"), "{lines}");

    let shown = environment.decode(&["show", &run.child(1)]).expect_code(0).stdout;
    for word in ["explore", MODEL, "running", FIRST] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let whole = environment.decode(&["report", &run.child(2)]).expect_code(0).stdout;
    assert_eq!(whole, "The second is at src/lib.rs:2, and src/lib.rs:99 too.\n");
    environment.decode(&["report", &run.child(1)]).expect_code(1);
    let fold = environment.decode(&["fold", &run.name]).expect_code(0).stdout;
    assert!(fold.contains("The second is at") && fold.contains("so far"), "{fold}");

    environment.model().release();
    let end = run.wait().expect_code(0).stdout;
    assert_eq!(environment.decode(&["fold", "last"]).expect_code(0).stdout, end);
    assert!(end.contains("src/lib.rs:99 [does not hold]") && !end.contains("src/lib.rs:2 [does not"), "{end}");
    let recent = environment.decode(&["ps"]).expect_code(0).stdout;
    assert!(recent.contains("ended"), "{recent}");
}

#[test]
fn a_log_is_followed_to_its_end() {
    let environment = Environment::with_model(one_waits());
    let run = two(&environment);
    let mut follows = environment.spawn(&["logs", "-f", &run.child(1)]);
    wait_for("the log shows what was read", || follows.stdout().contains("src/lib.rs").then_some(()));
    environment.model().release();
    let output = follows.wait().expect_code(0);
    assert!(output.stdout.contains("The first is at src/lib.rs:1."), "{}", output.stdout);
    run.wait().expect_code(0);
    let whole = environment.decode(&["logs", &run.child(1)]).expect_code(0);
    assert_eq!(whole.stdout, output.stdout);
    environment.decode(&["logs", &format!("{}/1.9", run.name)]).expect_code(1);
}

#[test]
fn what_is_here_can_be_asked() {
    let mut environment = Environment::new();
    let agents = environment.decode(&["agents"]).expect_code(0).stdout;
    for name in ["explore", "plan", "build", "code-reviewer"] {
        assert!(agents.contains(name), "{name}: {agents}");
    }
    environment.set("OPENAI_API_KEY", "the-secret-itself");
    let doctor = environment.decode(&["doctor"]).expect_code(0).stdout;
    assert!(doctor.contains("OPENAI_API_KEY") && !doctor.contains("the-secret-itself"), "{doctor}");
    let checks = environment.decode(&["doctor", "--json"]).expect_code(0).json();
    assert!(checks["checks"].as_array().is_some_and(|checks| checks.iter().any(|check| check["name"] == "tmux")));
    let help = environment.decode(&["--help"]).expect_code(0).stdout;
    assert!(help.contains("Exit codes"), "{help}");
}

/// Opens a terminal in a tmux server that stands for the person's own, and runs a line in it.
fn in_a_terminal(environment: &Environment, line: &str) {
    let socket = environment.other_socket();
    environment.tmux(&socket, &["new-session", "-d", "-s", "mine", "-x", "120", "-y", "40", line]);
}

fn viewers(environment: &Environment) -> Vec<String> {
    let clients = environment
        .tmux(environment.socket(), &["list-clients", "-F", "#{session_group} #{window_name} #{client_flags}"]);
    clients.lines().filter(|line| !line.contains("control-mode")).map(str::to_owned).collect()
}

#[test]
fn a_plain_terminal_attaches_to_the_window_of_a_child() {
    let environment = Environment::with_model(one_waits());
    let run = two(&environment);
    let program = env!("CARGO_BIN_EXE_decode");
    in_a_terminal(&environment, &format!("env -u TMUX -u TMUX_PANE {program} attach {}; sleep 600", run.child(1)));
    let seen = wait_for("a viewer is there", || viewers(&environment).into_iter().next());
    assert!(seen.contains("01-where-does-it-start"), "{seen}");
    let shown = environment.tmux(&environment.other_socket(), &["capture-pane", "-p", "-t", "mine"]);
    assert!(!shown.contains("error:"), "{shown}");
    environment.tmux(&environment.other_socket(), &["kill-server"]);
    wait_for("the viewer is gone", || viewers(&environment).is_empty().then_some(()));
    environment.model().release();
    run.wait().expect_code(0);
    environment.expect_no_workers();
}

#[test]
fn inside_another_tmux_attaching_opens_a_window_of_it() {
    let environment = Environment::with_model(one_waits());
    let run = two(&environment);
    let program = env!("CARGO_BIN_EXE_decode");
    in_a_terminal(&environment, &format!("{program} attach {}; sleep 600", run.name));
    wait_for("a viewer is there", || viewers(&environment).into_iter().next());
    let windows =
        environment.tmux(&environment.other_socket(), &["list-windows", "-t", "mine", "-F", "#{window_name}"]);
    assert_eq!(windows.lines().count(), 2, "{windows}");
    environment.model().release();
    run.wait().expect_code(0);
}

#[test]
fn attaching_to_what_is_closed_shows_its_log() {
    let environment = Environment::with_model(Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.")]));
    let run = environment.detached(&["--model", MODEL, FIRST]);
    run.wait().expect_code(0);
    wait_for("its window is closed", || environment.windows(&run.name).is_empty().then_some(()));
    let output = environment.decode(&["attach", &run.child(1)]).expect_code(0);
    assert!(output.stdout.contains("It is at src/lib.rs:1."), "{output:?}");
}
