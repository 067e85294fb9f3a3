//! `decode run`: one agent, its streams, its exit codes, its signals.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::environment::{Environment, looks, wait_for};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";

fn explorer(environment: &Environment, more: &[&str]) -> crate::environment::Output {
    let words: Vec<&str> = ["run", "--model", MODEL, "--agent", "explore", TASK].iter().chain(more).copied().collect();
    environment.decode(&words)
}

/// Looks, then reports, however often it is asked the same.
fn answers() -> Script {
    Script::function(|request, _| {
        if request.body.to_string().contains("pub fn start") {
            Step::text("It starts at src/lib.rs:1.")
        } else {
            looks()
        }
    })
    .strict()
}

fn at_the_gate() -> Script {
    Script::steps(vec![looks(), Step::text("never").gated()])
}

#[test]
fn the_report_and_nothing_else_is_on_stdout_and_what_is_started_is_said_on_stderr() {
    let environment = Environment::with_model(answers());
    let output = explorer(&environment, &[]).expect_code(0);
    assert_eq!(output.stdout, "It starts at src/lib.rs:1.\n");
    let first = output.stderr.lines().next().unwrap_or_default();
    for word in ["1 child", "explore", "openai/test-model (OPENAI_API_KEY)", "shared", "read only", "at most"] {
        assert!(first.contains(word), "{word}: {}", output.stderr);
    }
    let quiet = explorer(&environment, &["-q"]).expect_code(0);
    assert_eq!((quiet.stderr.as_str(), quiet.stdout.as_str()), ("", "It starts at src/lib.rs:1.\n"));
    let short = environment.decode(&["-p", TASK, "--model", MODEL, "--agent", "explore", "-q"]).expect_code(0);
    assert_eq!(short.stdout, "It starts at src/lib.rs:1.\n");
}

#[test]
fn the_json_has_the_keys_that_scripts_rely_on() {
    let environment = Environment::with_model(answers());
    let json = explorer(&environment, &["-o", "json"]).expect_code(0).json();
    let keys: Vec<&String> = json.as_object().expect("one object").keys().collect();
    let want =
        ["v", "run", "session", "outcome", "report", "usage", "tool_calls", "files_changed", "duration_s", "error"];
    assert_eq!(keys, want);
    let usage: Vec<&String> = json["usage"].as_object().expect("an object").keys().collect();
    assert_eq!(usage, ["requests", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"]);
    assert_eq!((&json["v"], &json["outcome"], &json["error"]), (&json!(1), &json!("done"), &Value::Null));
    assert_eq!((&json["usage"]["requests"], &json["tool_calls"]), (&json!(2), &json!(1)));
    assert_eq!(json["report"].as_str().map(str::trim), Some("It starts at src/lib.rs:1."));
}

#[test]
fn the_stream_begins_with_the_session_and_ends_with_the_result() {
    let environment = Environment::with_model(answers());
    let lines = explorer(&environment, &["-o", "stream-json"]).expect_code(0).json_lines();
    let last = lines.last().expect("there are lines");
    assert_eq!(lines[0]["session"], last["session"]);
    assert!(lines[0]["session"].is_string(), "{}", lines[0]);
    assert_eq!((&last["outcome"], &last["v"]), (&json!("done"), &json!(1)));
    assert!(lines.iter().any(|line| line["type"] == "tool" && line["name"] == "read"), "{lines:?}");
}

#[test]
fn a_signal_ends_it_within_a_second_and_the_stream_with_its_result() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let environment = Environment::with_model(at_the_gate());
        let mut run = environment.spawn(&["run", "--model", MODEL, "--agent", "explore", "-o", "stream-json", TASK]);
        environment.wait_for_requests(2);
        let sent = std::time::Instant::now();
        run.signal(signal);
        let output = run.wait().expect_code(code);
        // A second, and as much again for a machine that runs all other tests.
        assert!(sent.elapsed() < Duration::from_secs(2), "{:?}", sent.elapsed());
        let lines = output.json_lines();
        let last = lines.last().expect("there are lines");
        assert_eq!((&last["outcome"], &last["session"]), (&json!("cancelled"), &lines[0]["session"]), "{last}");
        environment.expect_no_workers();
    }
}

#[test]
fn a_tool_that_runs_ends_with_the_signal_too() {
    let sleeper = Step::call("call-1", "bash", &json!({"command": "sleep 600 & sleep 600"}));
    let environment = Environment::with_model(Script::steps(vec![sleeper, Step::text("never")]));
    let mut run = environment.spawn(&["run", "--model", MODEL, "--permission-mode", "bypass", "-o", "json", TASK]);
    wait_for("the command runs", || environment.workers().iter().any(|line| line.starts_with("sleep")).then_some(()));
    run.signal(Signal::SIGTERM);
    let output = run.wait().expect_code(143);
    assert_eq!(output.json()["outcome"], "cancelled");
    environment.expect_no_workers();
}

#[test]
fn each_way_to_fail_has_its_exit_code() {
    let empty = Environment::with_model(Script::steps(vec![looks(), Step::empty()]));
    let failed = explorer(&empty, &["--retries", "0"]).expect_code(1);
    assert!(failed.stdout.is_empty() && failed.stderr.contains("error:"), "{failed:?}");

    let refused = Environment::with_model(Script::steps(vec![Step::status(401)]));
    let told = explorer(&refused, &["-o", "json"]).expect_code(5);
    assert_eq!(told.json()["outcome"], "failed");
    assert_eq!(refused.model().requests().len(), 1, "a refused key is not tried again");

    let keyless = Environment::new();
    explorer(&keyless, &[]).expect_code(6);
    keyless.decode(&["run", "--no-such-flag", TASK]).expect_code(2);
    keyless.decode(&["run", "--model", "openai", TASK]).expect_code(2);
    keyless.decode(&["show", "zzzzzz"]).expect_code(2);

    let mut two = Environment::with_model(answers());
    two.set("ANTHROPIC_API_KEY", "x");
    let asked = two.decode(&["run", "--agent", "explore", TASK]).expect_code(2);
    assert!(asked.stderr.contains("settings.yaml"), "{}", asked.stderr);
    assert!(two.model().requests().is_empty());
}

#[test]
fn at_the_last_turn_there_are_no_tools_and_the_report_is_asked_for() {
    let script = Script::function(|request, _| match request.body["tools"].as_array().map(Vec::len) {
        None | Some(0) => Step::text("As far as I got: src/lib.rs:1."),
        Some(_) => looks(),
    });
    let environment = Environment::with_model(script);
    let output = explorer(&environment, &["--max-turns", "3", "-o", "json"]).expect_code(4);
    let json = output.json();
    assert_eq!((&json["outcome"], &json["usage"]["requests"]), (&json!("limit"), &json!(3)), "{json}");
    assert_eq!(json["report"].as_str().map(str::trim), Some("As far as I got: src/lib.rs:1."));
    assert_eq!(environment.model().requests().len(), 3);
}

#[test]
fn a_schema_is_kept_to_or_mended_once() {
    let script = Script::function(|_, made| match made {
        0 => looks(),
        1 => Step::text("The answer is four."),
        _ => Step::text("{\"lines\": 4}"),
    });
    let environment = Environment::with_model(script.strict());
    let schema = json!({"type": "object", "required": ["lines"], "properties": {"lines": {"type": "integer"}}});
    environment.write("schema.json", &schema.to_string());
    let output = explorer(&environment, &["--json-schema", "schema.json", "-q"]).expect_code(0);
    let report: Value = serde_json::from_str(&output.stdout).expect("the report is JSON");
    assert_eq!(report, json!({"lines": 4}));
    assert_eq!(environment.model().requests().len(), 3);
}

#[test]
fn it_goes_on_with_the_last_session_of_the_project() {
    let script = Script::function(|request, made| {
        let body = request.body.to_string();
        match made {
            0 => looks(),
            _ if body.contains("And where does it end") && body.contains("It starts at src/lib.rs:1.") => {
                Step::text("It ends at src/lib.rs:2.")
            }
            _ => Step::text("It starts at src/lib.rs:1."),
        }
    });
    let environment = Environment::with_model(script.strict());
    let first = explorer(&environment, &["-o", "json"]).expect_code(0).json();
    let go_on = ["run", "-c", "--model", MODEL, "--agent", "explore", "-q", "And where does it end, and why?"];
    let second = environment.decode(&go_on).expect_code(0);
    assert_eq!(second.stdout, "It ends at src/lib.rs:2.\n");
    let session = first["session"].as_str().expect("a session has an id");
    let by_id =
        ["run", "-r", session, "--model", MODEL, "--agent", "explore", "-q", "And where does it end, once more?"];
    assert_eq!(environment.decode(&by_id).expect_code(0).stdout, "It ends at src/lib.rs:2.\n");
}

#[test]
fn a_session_has_the_id_that_was_asked_for() {
    let environment = Environment::with_model(answers());
    let id = "0b6d4a52-7c1e-4c5e-9a65-3b1f0c7d2e11";
    let json = explorer(&environment, &["--session-id", id, "-o", "json"]).expect_code(0).json();
    assert_eq!(json["session"], id);
    explorer(&environment, &["--session-id", "no-uuid"]).expect_code(2);
}

#[test]
fn a_silent_pipe_beside_a_task_is_left_alone_and_text_in_it_is_appended() {
    let environment = Environment::with_model(answers());
    let words = ["run", "--model", MODEL, "--agent", "explore", TASK];
    let piped = |words: &[&str]| {
        let mut command = environment.command(words);
        command.stdin(Stdio::piped());
        environment.start(command)
    };
    let mut silent = piped(&words);
    let held = silent.stdin();
    let output = silent.wait().expect_code(0);
    assert!(output.stderr.contains("stdin is open and silent"), "{}", output.stderr);
    drop(held);

    let before = environment.model().requests().len();
    let mut talking = piped(&words);
    talking.stdin().write_all(b"a line from a pipe\n").expect("the command reads");
    talking.wait().expect_code(0);
    let asked = environment.model().requests()[before].first_user_text();
    assert!(asked.starts_with(TASK) && asked.contains("a line from a pipe"), "{asked}");

    let before = environment.model().requests().len();
    let mut dash = piped(&["run", "--model", MODEL, "--agent", "explore", "-"]);
    dash.stdin().write_all(b"Where is it said, and why?").expect("the command reads");
    dash.wait().expect_code(0);
    let asked = environment.model().requests()[before].first_user_text();
    assert!(asked.starts_with("Where is it said, and why?"), "{asked}");
}

#[test]
fn a_single_run_is_retried_and_listed_like_any_other() {
    let script = Script::function(|request, made| {
        let nudged = request.first_user_text().contains("An earlier attempt");
        match made {
            0 => looks(),
            _ if nudged => Step::text("It starts at src/lib.rs:1."),
            _ => Step::empty(),
        }
    });
    let environment = Environment::with_model(script.strict());
    let output = explorer(&environment, &["-q"]).expect_code(0);
    assert_eq!(output.stdout, "It starts at src/lib.rs:1.\n");
    let runs = environment.decode(&["ps", "--json"]).expect_code(0).json();
    assert_eq!(runs["runs"][0]["children"][0]["attempts"], 2, "{runs}");
}
