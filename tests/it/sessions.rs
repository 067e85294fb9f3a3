//! Sessions that go on: after a kill, with damage in the file, in the right project, one process at a time.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::environment::{Environment, Output, looks, wait_for};
use crate::model_server::{Call, Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";
const MORE: &str = "And where does it end, and why?";

fn explore(environment: &Environment, more: &[&str]) -> Output {
    let words: Vec<&str> = ["run", "--model", MODEL, "--agent", "explore"].iter().chain(more).copied().collect();
    environment.decode(&words)
}

/// Looks once, then answers with what it was asked last.
fn answers() -> Script {
    Script::function(|request, _| {
        let body = request.body.to_string();
        match (body.contains("pub fn start"), body.contains(MORE)) {
            (false, _) => looks(),
            (true, false) => Step::text("It starts at src/lib.rs:1."),
            (true, true) => Step::text("It ends at src/lib.rs:2."),
        }
    })
    .strict()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("it is a text")
}

fn session_file(environment: &Environment, run: &str) -> PathBuf {
    environment.run(run).attempt(1, 1).join("session.jsonl")
}

#[test]
fn a_session_keeps_its_id_when_it_goes_on_and_a_fork_gets_a_new_one() {
    let environment = Environment::with_model(answers());
    let first = explore(&environment, &["-o", "json", TASK]).expect_code(0).json();
    let id = text(&first["session"]);
    let on = explore(&environment, &["-c", "-o", "json", MORE]).expect_code(0).json();
    assert_eq!((text(&on["session"]), text(&on["report"]).trim()), (id, "It ends at src/lib.rs:2."));
    let fork = explore(&environment, &["-r", &id[..8], "--fork", "-o", "json", MORE]).expect_code(0).json();
    assert_ne!(text(&fork["session"]), id);
    let by_run = explore(&environment, &["-r", text(&first["run"]), "-o", "json", MORE]).expect_code(0).json();
    assert_eq!(text(&by_run["session"]), id);
    explore(&environment, &["--fork", MORE]).expect_code(2);
    // The file that was gone on from is as it was.
    let lines = std::fs::read_to_string(session_file(&environment, text(&first["run"]))).expect("it is there");
    assert!(!lines.contains(MORE));
}

#[test]
fn an_id_that_is_not_known_lists_the_last_sessions() {
    let environment = Environment::with_model(answers());
    let none = explore(&environment, &["-r", "ffffffff-0000", TASK]).expect_code(2);
    assert!(none.stderr.contains("this project has no sessions"), "{}", none.stderr);
    explore(&environment, &["-c", TASK]).expect_code(2);
    let first = explore(&environment, &["-o", "json", TASK]).expect_code(0).json();
    let told = explore(&environment, &["-r", "ffffffff-0000", TASK]).expect_code(2);
    assert!(told.stderr.contains(text(&first["session"])) && told.stderr.contains("Where does it start"), "{told:?}");
}

#[test]
fn two_processes_do_not_go_on_with_one_session() {
    let script = Script::function(|request, _| {
        let body = request.body.to_string();
        match (body.contains("pub fn start"), body.contains(MORE)) {
            (false, _) => looks(),
            (true, false) => Step::text("It starts at src/lib.rs:1."),
            (true, true) => Step::text("It ends at src/lib.rs:2.").gated(),
        }
    });
    let environment = Environment::with_model(script);
    let first = explore(&environment, &["-o", "json", TASK]).expect_code(0).json();
    let id = text(&first["session"]);
    let asked = environment.model().requests().len();
    let mut holder = environment.spawn(&["run", "--model", MODEL, "--agent", "explore", "-q", "-r", id, MORE]);
    environment.wait_for_requests(asked + 1);
    let refused = explore(&environment, &["-r", id, MORE]).expect_code(6);
    assert!(refused.stderr.contains("in use by another process"), "{}", refused.stderr);
    assert_eq!(environment.model().requests().len(), asked + 1, "nothing was spent");
    environment.model().release();
    assert_eq!(holder.wait().expect_code(0).stdout, "It ends at src/lib.rs:2.\n");
}

#[test]
fn a_process_that_was_killed_in_a_tool_goes_on_and_its_calls_get_results() {
    let three = Step::calls(vec![
        Call::new("a", "read", &json!({"path": "src/lib.rs"})),
        Call::new("b", "bash", &json!({"command": "sleep 600"})),
        Call::new("c", "read", &json!({"path": "README.md"})),
    ]);
    let script = Script::function(move |request, _| {
        let body = request.body.to_string();
        if body.contains("interrupted: the process ended") {
            Step::text("It starts at src/lib.rs:1.")
        } else if body.contains(MORE) {
            Step::text("no result was filled in")
        } else {
            three.clone()
        }
    });
    let environment = Environment::with_model(script.strict());
    let words = ["run", "--model", MODEL, "--permission-mode", "bypass", "--workspace", "worktree", TASK];
    let mut run = environment.spawn(&words);
    wait_for("the command runs", || environment.workers().iter().any(|line| line.starts_with("sleep")).then_some(()));
    run.signal(Signal::SIGKILL);
    run.wait();
    let go_on = ["run", "--model", MODEL, "--permission-mode", "bypass", "--workspace", "worktree", "-q", "-c", MORE];
    assert_eq!(environment.decode(&go_on).expect_code(0).stdout, "It starts at src/lib.rs:1.\n");
}

#[test]
fn damage_in_a_session_loses_no_sound_record_and_is_told() {
    let environment = Environment::with_model(answers());
    let first = explore(&environment, &["-o", "json", TASK]).expect_code(0).json();
    let path = session_file(&environment, text(&first["run"]));
    let bytes = std::fs::read(&path).expect("it is there");
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines.insert(2, vec![0; 300]);
    let mut damaged = lines.join(&b'\n');
    damaged.extend_from_slice(b"{\"v\":1,\"type\":\"user\",\"te");
    std::fs::write(&path, damaged).expect("the state is ours");
    let before = environment.model().requests().len();
    let on = explore(&environment, &["-c", "-o", "stream-json", MORE]).expect_code(0);
    let told: Vec<Value> = on.json_lines();
    assert!(told.iter().any(|line| text_or(line, "text").contains("300 NUL bytes")), "{told:?}");
    assert!(told.iter().any(|line| text_or(line, "text").contains("not a whole record")), "{told:?}");
    let body = environment.model().requests()[before].body.to_string();
    for part in [TASK, "pub fn start", "It starts at src/lib.rs:1.", MORE] {
        assert!(body.contains(part), "{part}: {body}");
    }
}

fn text_or<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_default()
}

#[test]
fn to_continue_means_the_last_session_of_this_project_and_no_child_of_a_fan() {
    let environment = Environment::with_model(answers());
    let other = environment.root().join("other");
    std::fs::create_dir_all(other.join("src")).expect("the directory is ours");
    std::fs::write(other.join("src/lib.rs"), "pub fn start() {}\n").expect("the directory is ours");
    let here = explore(&environment, &["-o", "json", TASK]).expect_code(0).json();
    let there = other.to_str().expect("the path is text");
    let elsewhere = explore(&environment, &["-C", there, "-o", "json", TASK]).expect_code(0).json();
    let two = ["How does it start, in which file and why?", "How does it stop, in which file and why?"];
    environment.decode(&["fan", "--terminal", "bare", "--model", MODEL, "-y", two[0], two[1]]).expect_code(0);
    let on = explore(&environment, &["-c", "-o", "json", MORE]).expect_code(0).json();
    assert_eq!(on["session"], here["session"]);
    assert_ne!(on["session"], elsewhere["session"]);
}

#[test]
fn a_signal_in_a_tool_ends_the_stream_with_its_result() {
    let sleeper = Step::call("call-1", "bash", &json!({"command": "sleep 600"}));
    for (format, code, signal) in [("json", 143, Signal::SIGTERM), ("stream-json", 130, Signal::SIGINT)] {
        let environment = Environment::with_model(Script::steps(vec![sleeper.clone(), Step::text("never")]));
        let mut run = environment.spawn(&["run", "--model", MODEL, "--permission-mode", "bypass", "-o", format, TASK]);
        wait_for("the command runs", || {
            environment.workers().iter().any(|line| line.starts_with("sleep")).then_some(())
        });
        run.signal(signal);
        let output = run.wait().expect_code(code);
        let last: Value = serde_json::from_str(output.stdout.lines().last().expect("there is a result")).expect("JSON");
        assert_eq!(last["outcome"], "cancelled", "{last}");
        environment.expect_no_workers();
    }
}
