//! What must never happen: a process left behind, a key seen, a question that nobody can end, a path that breaks it.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::environment::{Environment, looks, read, terminate, wait_for};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";
const PROGRAM: &str = env!("CARGO_BIN_EXE_decode");

fn at_the_gate() -> Script {
    Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.").gated()]).strict()
}

/// Starts a command that outlasts any patience, in the background and in the foreground.
fn sleeper() -> Script {
    let sleeps = Step::call("call-1", "bash", &json!({"command": "sleep 611 & setsid sleep 612 & sleep 613"}));
    Script::steps(vec![sleeps, Step::text("It slept.")])
}

fn sleeps(environment: &Environment) -> usize {
    environment.workers().iter().filter(|line| line.starts_with("sleep 61")).count()
}

fn a_sleeping_child<'a>(environment: &'a Environment, terminal: &str) -> crate::environment::Run<'a> {
    let words = ["--terminal", terminal, "--agent", "build", "--permission-mode", "bypass", "--retries", "0"];
    let words: Vec<&str> = words.into_iter().chain(["--model", MODEL, TASK]).collect();
    let run = environment.detached(&words);
    wait_for("all three commands run", || (sleeps(environment) == 3).then_some(()));
    run
}

#[test]
fn commands_of_a_killed_child_do_not_outlive_it() {
    for terminal in ["tmux", "bare"] {
        let environment = Environment::with_model(sleeper());
        let run = a_sleeping_child(&environment, terminal);
        terminate(run.pid(1, 1), Signal::SIGKILL);
        let json = run.wait_json();
        assert_eq!(json["children"][0]["state"], "failed", "{json}");
        environment.expect_no_workers();
    }
}

#[test]
fn commands_of_a_stopped_child_do_not_outlive_it() {
    let environment = Environment::with_model(sleeper());
    let run = a_sleeping_child(&environment, "tmux");
    environment.decode(&["stop", &run.name]).expect_code(0);
    // Its commands are ended first, so that it still has the time for a report of what there is.
    assert_eq!(run.wait_json()["outcome"], "limit");
    environment.expect_no_workers();
}

#[test]
fn a_child_that_answers_nothing_any_more_is_killed_when_it_is_stopped() {
    let environment = Environment::with_model(at_the_gate());
    let run = environment.detached(&["--model", MODEL, TASK]);
    environment.wait_for_requests(2);
    terminate(run.pid(1, 1), Signal::SIGSTOP);
    environment.decode(&["stop", &run.child(1)]).expect_code(0);
    let json = run.wait_json();
    assert_eq!(json["children"][0]["state"], "cancelled", "{json}");
    environment.expect_no_workers();
}

#[test]
fn a_supervisor_that_is_asked_to_end_stops_its_run() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let environment = Environment::with_model(at_the_gate());
        let run = environment.detached(&["--terminal", "bare", "--model", MODEL, TASK]);
        environment.wait_for_requests(2);
        terminate(run.supervisor(), signal);
        assert_eq!(run.wait_json()["outcome"], "cancelled");
        environment.expect_no_workers();
    }
}

#[test]
fn a_key_is_in_no_environment_and_in_no_file_of_a_run() {
    let mut environment = Environment::with_model(Script::steps(vec![
        Step::call("call-1", "bash", &json!({"command": "env; cat /proc/$PPID/environ | tr '\\0' '\\n'"})),
        Step::text("Seen.").gated(),
    ]));
    environment.set("OPENAI_API_KEY", "the-secret-itself");
    environment.set("A_HARMLESS_ONE", "it-is-there");
    let run = environment.detached(&["--agent", "build", "--permission-mode", "bypass", "--model", MODEL, TASK]);
    environment.wait_for_requests(2);
    let asked = &environment.model().requests()[1];
    assert_eq!(asked.header("authorization"), Some("Bearer the-secret-itself"));
    let told = asked.body.to_string();
    assert!(told.contains("it-is-there") && !told.contains("the-secret-itself"), "{told}");
    for (pid, line) in environment.processes() {
        let variables = read(format!("/proc/{pid}/environ").as_ref());
        assert!(!line.contains("the-secret-itself") && !variables.contains("the-secret-itself"), "{line}");
    }
    let found =
        environment.plain("grep").args(["-rl", "the-secret-itself", "."]).current_dir(environment.state()).output();
    assert_eq!(String::from_utf8_lossy(&found.expect("grep is installed").stdout), "");
    environment.model().release();
    run.wait().expect_code(0);
}

#[test]
fn ctrl_c_at_a_terminal_asks_and_d_leaves_the_run_going() {
    let environment = Environment::with_model(at_the_gate());
    let socket = environment.other_socket();
    let line =
        format!("env -u TMUX -u TMUX_PANE {PROGRAM} fan --model {MODEL} '{TASK}'; echo ended with $?; exec sleep 600");
    environment.tmux(&socket, &["new-session", "-d", "-s", "mine", "-x", "150", "-y", "40", &line]);
    environment.wait_for_requests(2);
    let shows = |text: &str| {
        wait_for(text, || {
            environment.tmux(&socket, &["capture-pane", "-p", "-t", "mine"]).contains(text).then_some(())
        });
    };
    shows("running");
    environment.tmux(&socket, &["send-keys", "-t", "mine", "C-c"]);
    shows("d detach, s stop");
    environment.tmux(&socket, &["send-keys", "-t", "mine", "d", "Enter"]);
    shows("ended with 130");
    shows("the run goes on: decode wait");
    environment.model().release();
    environment.only_run().wait().expect_code(0);
}

#[test]
fn ctrl_c_twice_stops_the_run() {
    let environment = Environment::with_model(at_the_gate());
    let socket = environment.other_socket();
    let line =
        format!("env -u TMUX -u TMUX_PANE {PROGRAM} fan --model {MODEL} '{TASK}'; echo ended with $?; exec sleep 600");
    environment.tmux(&socket, &["new-session", "-d", "-s", "mine", "-x", "150", "-y", "40", &line]);
    environment.wait_for_requests(2);
    let shows = |text: &str| {
        wait_for(text, || {
            environment.tmux(&socket, &["capture-pane", "-p", "-t", "mine"]).contains(text).then_some(())
        });
    };
    shows("running");
    environment.tmux(&socket, &["send-keys", "-t", "mine", "C-c"]);
    shows("d detach, s stop");
    environment.tmux(&socket, &["send-keys", "-t", "mine", "C-c"]);
    shows("ended with 1");
    assert_eq!(environment.only_run().wait_json()["outcome"], "cancelled");
    environment.tmux(&socket, &["kill-server"]);
    environment.expect_no_workers();
}

#[test]
fn a_path_with_spaces_and_letters_of_all_kinds_is_a_path() {
    let environment = Environment::with_model(Script::function(|request, made| match made {
        0 if request.first_user_text().contains("Write") => {
            Step::call("call-1", "write", &json!({"path": "NEW.md", "content": "new\n"}))
        }
        0 => looks(),
        _ => Step::text("It is at src/lib.rs:1."),
    }));
    let odd = environment.project().join("ein Ordner; für 'alle' $HOME 🙂");
    fs::create_dir_all(odd.join("src")).expect("the project is ours");
    fs::write(odd.join("src/lib.rs"), "pub fn start() {}\n").expect("the project is ours");
    environment.git(&["init", "-q", &odd.to_string_lossy()]);
    let git = |words: &[&str]| {
        let mut all = vec!["-C", odd.to_str().expect("the path is text")];
        all.extend(words);
        environment.git(&all)
    };
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "begin"]);
    let path = odd.to_string_lossy().into_owned();
    let read = environment.decode(&["fan", "-C", &path, "--model", MODEL, TASK]).expect_code(0);
    assert!(read.stdout.contains("It is at src/lib.rs:1.") && !read.stdout.contains(":1 [does not hold]"), "{read:?}");
    let words = ["fan", "-C", &path, "--agent", "build", "--model", MODEL, "-o", "json", "Write it, in the odd place."];
    let json = environment.decode(&words).expect_code(0).json();
    let branch = json["children"][0]["branch"].as_str().unwrap_or_else(|| panic!("a branch: {json}"));
    assert_eq!(git(&["show", &format!("{branch}:NEW.md")]), "new\n");
}

#[test]
fn outside_of_a_repository_children_read_and_writers_are_told_why_not() {
    let environment = Environment::with_model(Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.")]));
    let plain = tempfile::Builder::new().prefix("dit").tempdir_in("/tmp").expect("there is room in /tmp");
    fs::create_dir(plain.path().join("src")).expect("the directory is ours");
    fs::write(plain.path().join("src/lib.rs"), "pub fn start() {}\n").expect("the directory is ours");
    let path = plain.path().to_string_lossy().into_owned();
    environment.decode(&["fan", "-C", &path, "--model", MODEL, TASK]).expect_code(0);
    let writer = environment.decode(&["fan", "-C", &path, "--workspace", "worktree", "--model", MODEL, TASK]);
    assert_ne!(writer.code, 0);
    assert!(format!("{}{}", writer.stdout, writer.stderr).contains("repository"), "{writer:?}");
}

#[test]
fn a_prompt_of_a_megabyte_arrives_whole() {
    let environment = Environment::with_model(Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.")]));
    let long = format!("{TASK}\n{}END", "0123456789abcde\n".repeat(65_536));
    environment.write("long.jsonl", &json!({"prompt": long}).to_string());
    environment.decode(&["fan", "--model", MODEL, "--from", "long.jsonl"]).expect_code(0);
    let asked = environment.model().requests()[0].first_user_text();
    assert!(asked.contains(&long), "{} bytes of {}", asked.len(), long.len());
}

#[test]
fn prompts_of_a_file_are_children_in_its_order() {
    let environment = Environment::with_model(Script::function(|request, made| match made {
        0 => looks(),
        _ => Step::text(&format!("src/lib.rs:1 for {}", request.first_user_text().lines().next().unwrap_or_default())),
    }));
    environment.write("three.md", "## One\n\nWhere is one, and why?\n\n## Two\n\nWhere is two, and why?\n");
    let json = environment.decode(&["fan", "--model", MODEL, "--from", "three.md", "-o", "json"]).expect_code(0).json();
    assert_eq!(json["children"].as_array().map(Vec::len), Some(2), "{json}");
    let fold = json["fold"].as_str().unwrap_or_default();
    assert!(fold.find("Where is one") < fold.find("Where is two"), "{fold}");
}

#[test]
fn a_state_directory_that_cannot_be_used_is_named() {
    let environment = Environment::new();
    environment.write("file", "no directory");
    let mut command = environment.command(&["fan", TASK]);
    command.env("DECODE_STATE", environment.project().join("file"));
    let output = environment.start(command).wait().expect_code(6);
    assert!(output.stderr.contains("DECODE_STATE"), "{}", output.stderr);
}
