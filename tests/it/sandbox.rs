//! The sandbox around a child's commands, through the program: the network by permission, jobs, and the user's word.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::{Value, json};

use crate::environment::{Environment, Run, wait_for};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";

/// Calls of bash, each in a turn of its own, and a report.
fn turns(calls: &[Value]) -> Script {
    let step = |(number, call): (usize, &Value)| Step::call(&format!("call-{number}"), "bash", call);
    let steps = calls.iter().enumerate().map(step).chain([Step::text("Tried, see src/lib.rs:1.")]);
    Script::steps(steps.collect()).strict()
}

fn results(run: &Run<'_>) -> Vec<(bool, String)> {
    let session = run.session(1, 1);
    let tools = session.iter().filter(|record| record["type"] == "tool");
    tools.map(|record| (record["ok"] == true, record["output"].as_str().unwrap_or_default().to_owned())).collect()
}

fn build<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let words = ["fan", "--agent", "build", "--model", MODEL, "-o", "json"];
    words.into_iter().chain(more.iter().copied()).chain([TASK]).collect()
}

fn has_rooms(environment: &Environment) -> bool {
    environment.decode(&["doctor"]).stdout.contains("namespaces and landlock")
}

/// A server outside of every sandbox, which answers one request.
fn server() -> (u16, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let serve = move || {
        let (mut client, _) = listener.accept().expect("somebody comes");
        let mut buffer = [0; 4096];
        let count = client.read(&mut buffer).expect("it asks");
        client.write_all(b"HTTP/1.0 200 OK\r\n\r\nfrom outside\n").expect("it listens");
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    (port, thread::spawn(serve))
}

#[test]
fn a_command_reaches_the_hosts_that_a_rule_allows_and_no_others() {
    let (port, server) = server();
    let fetch = |host: &str| format!("curl -sS http://{host}:{port}/hello");
    let environment = Environment::with_model(turns(&[
        json!({"command": fetch("127.0.0.1")}),
        json!({"command": fetch("packages.example")}),
        json!({"command": fetch("packages.example"), "hosts": ["packages.example"]}),
        json!({"command": fetch("127.0.0.1"), "hosts": ["127.0.0.1"]}),
    ]));
    if !has_rooms(&environment) {
        // The server waits for one request.
        drop(std::net::TcpStream::connect(("127.0.0.1", port)));
        return;
    }
    environment.decode(&build(&["--allow", "web_fetch(127.0.0.1)"])).expect_code(0);
    let told = results(&environment.only_run());
    assert!(!told[0].0, "the loopback of a command is its own: {told:?}");
    assert!(told[1].1.contains("\"hosts\": [\"packages.example\"]"), "it is told how to ask: {told:?}");
    assert!(!told[2].0 && told[2].1.contains("packages.example"), "nobody is there to allow it: {told:?}");
    assert!(told[3].0 && told[3].1.starts_with("from outside\n"), "{told:?}");
    let asked = server.join().expect("it was asked once");
    assert!(asked.starts_with("GET /hello HTTP/1.") && asked.contains("Connection: close"), "{asked}");
}

#[test]
fn a_job_runs_between_calls_and_ends_with_the_attempt() {
    let environment = Environment::with_model(turns(&[
        json!({"command": "echo $$; touch up; exec sleep 1234", "background": true}),
        json!({"command": "until [ -e up ]; do :; done; echo beside it"}),
        json!({"job": "job-1"}),
    ]));
    environment.decode(&build(&[])).expect_code(0);
    let told = results(&environment.only_run());
    assert!(told.iter().all(|(ok, _)| *ok), "{told:?}");
    assert!(told[2].1.contains("[job-1 still runs]"), "{told:?}");
    wait_for("the job has ended", || {
        let left = environment.processes();
        (!left.iter().any(|(_, line)| line.contains("sleep 1234"))).then_some(())
    });
}

#[test]
fn the_user_turns_the_sandbox_off_and_is_told_so() {
    let environment = Environment::with_model(turns(&[json!({"command": "cat $HOME/notes && echo $TMPDIR"})]));
    let settings = environment.home().join(".config/decode");
    fs::create_dir_all(&settings).expect("the home is ours");
    fs::write(settings.join("settings.yaml"), "sandbox: off\n").expect("the home is ours");
    fs::write(environment.home().join("notes"), "of the user").expect("the home is ours");
    let refused = environment.decode(&build(&[])).expect_code(3);
    assert!(refused.stderr.contains("would have to ask"), "{}", refused.stderr);
    let output = environment.decode(&build(&["--permission-mode", "bypass"])).expect_code(0);
    assert!(output.stderr.contains("sandbox: off"), "{}", output.stderr);
    let told = results(&environment.only_run());
    assert!(told[0].0 && told[0].1.contains("of the user"), "{told:?}");
}
