//! The `agent` tool: an agent that sends others to look, in its own process or in windows, and answers with what they
//! found.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::environment::{Environment, Output, Run, Started, header, looks, read, terminate, wait_for};
use crate::model_server::{Recorded, Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Explain the whole of it to me";
const FIRST: &str = "Find where it starts; look into src first; report path:line";
const SECOND: &str = "Find where it stops; look into src first; report path:line";
const THIRD: &str = "Find who calls whom in all of it; report path:line";

/// A parent that calls `agent` once and then answers.
fn calls(prompts: &[&str]) -> Vec<Step> {
    vec![asks(prompts, "here"), Step::text("All is told, see src/lib.rs:1.")]
}

fn asks(prompts: &[&str], place: &str) -> Step {
    Step::call("call-0", "agent", &json!({"prompts": prompts, "place": place}))
}

fn reports(text: &str) -> Vec<Step> {
    vec![looks(), Step::text(text)]
}

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["run", "--model", MODEL, "--agent", "plan", "-o", "json", TASK].into_iter().chain(more.iter().copied()).collect()
}

fn parent(environment: &Environment, more: &[&str]) -> Output {
    environment.decode(&words(more))
}

/// The result of the `agent` call as the parent's model was given it.
fn result(environment: &Environment) -> String {
    let requests = environment.model().requests();
    let last =
        requests.iter().rev().find(|request| request.first_user_text().contains(TASK)).expect("the parent asked");
    result_in(last)
}

fn result_in(request: &Recorded) -> String {
    let mut messages = request.body["messages"].as_array().into_iter().flatten();
    let result = messages.rfind(|message| message["role"] == "tool");
    result.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
}

fn requests_of(environment: &Environment, prompt: &str) -> Vec<Recorded> {
    environment.model().requests().into_iter().filter(|request| request.first_user_text().contains(prompt)).collect()
}

/// The runs of this world: those of people, and those of agents with their parents.
fn runs(environment: &Environment) -> (Vec<Run<'_>>, Vec<(Run<'_>, String)>) {
    let entries = fs::read_dir(environment.state().join("runs")).expect("there are runs");
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let (mut people, mut agents) = (Vec::new(), Vec::new());
    for run in names.map(|name| environment.run(&name)) {
        match header(&read(&run.directory.join("run.md")), "parent") {
            Some(parent) => agents.push((run, parent)),
            None => people.push(run),
        }
    }
    (people, agents)
}

fn in_order(text: &str, parts: &[&str]) {
    let mut at = 0;
    for part in parts {
        let found = text[at..].find(part).unwrap_or_else(|| panic!("`{part}` is not behind byte {at}: {text}"));
        at += found + part.len();
    }
}

#[test]
fn three_children_are_folded_in_the_order_asked_and_all_that_was_spent_is_the_parents() {
    let script = Script::new()
        .on(TASK, calls(&[FIRST, SECOND, THIRD]))
        // The first is the slowest.
        .on(FIRST, vec![looks().delay_ms(300), Step::text("It starts at src/lib.rs:1.").tokens(100, 0, 7)])
        .on(SECOND, reports("It stops at src/lib.rs:2."))
        .on(THIRD, reports("Nobody calls anybody: src/lib.rs:1."))
        .strict();
    let environment = Environment::with_model(script);
    let output = parent(&environment, &[]).expect_code(0);
    let json = output.json();
    assert_eq!(
        (&json["outcome"], &json["report"]),
        (&json!("done"), &json!("All is told, see src/lib.rs:1.")),
        "{json}"
    );
    assert_eq!(json["usage"]["requests"], 8, "two of the parent and two of each child: {json}");
    assert_eq!(json["usage"]["input_tokens"], 170, "{json}");
    assert_eq!(environment.model().requests().len(), 8);
    let fold = result(&environment);
    let sections = ["# Fold of 3 children: 3 done", "## Child 1", "It starts at", "## Child 2", "It stops at"];
    in_order(&fold, &sections);
    in_order(&fold, &["## Child 2", "## Child 3", "Nobody calls anybody", "## How to answer"]);
    let (people, agents) = runs(&environment);
    assert_eq!(agents.len(), 1);
    let (run, parent) = &agents[0];
    assert_eq!(parent, &people[0].child(1));
    for number in 1..=3 {
        assert!(run.report(number, 1).contains("src/lib.rs"), "each report is on the disk");
    }
    let shown = environment.decode(&["ps", "--all", "--json"]).expect_code(0).json();
    let child = shown["runs"].as_array().and_then(|runs| runs.iter().find(|shown| shown["run"] == run.name.as_str()));
    assert_eq!(child.map(|child| &child["parent"]), Some(&json!(parent)), "{shown}");
    environment.expect_no_workers();
}

#[test]
fn a_child_has_only_tools_that_read_and_none_to_start_others() {
    let script = Script::new().on(TASK, calls(&[FIRST])).on(FIRST, reports("It starts at src/lib.rs:1.")).strict();
    let environment = Environment::with_model(script);
    parent(&environment, &[]).expect_code(0);
    let names = |request: &Recorded| -> Vec<String> {
        let tools = request.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
    };
    assert!(names(&requests_of(&environment, TASK)[0]).contains(&"agent".to_owned()));
    let child = names(&requests_of(&environment, FIRST)[0]);
    assert!(child.contains(&"read".to_owned()), "{child:?}");
    for name in ["agent", "write", "edit", "bash", "ask_user", "web_fetch"] {
        assert!(!child.contains(&name.to_owned()), "{child:?}");
    }
}

#[test]
fn prompts_reach_the_children_byte_for_byte() {
    let odd = "Find `id` $(id) $HOME !! ' \" #(touch x)\nand a second line of seven words \u{1f642} \\";
    let script = Script::new().on(TASK, calls(&[odd])).otherwise(reports("Found at src/lib.rs:1.")).strict();
    let environment = Environment::with_model(script);
    parent(&environment, &[]).expect_code(0);
    assert_eq!(requests_of(&environment, "Find `id`")[0].first_user_text(), odd);
}

#[test]
fn a_child_that_fails_is_told_with_its_reason_and_the_others_with_what_they_found() {
    let refused = json!({"error": {"message": "no such deployment", "type": "invalid_request_error"}}).to_string();
    let script = Script::new()
        .on(TASK, calls(&[FIRST, SECOND]))
        .on(FIRST, vec![Step::status(404).body(&refused)])
        .on(SECOND, reports("It stops at src/lib.rs:2."))
        .strict();
    let environment = Environment::with_model(script);
    parent(&environment, &[]).expect_code(0);
    let fold = result(&environment);
    in_order(
        &fold,
        &["1 done, 1 failed", "## Child 1", "State: failed", "no such deployment", "## Child 2", "It stops"],
    );
}

#[test]
fn an_empty_report_is_asked_for_once_more_and_then_told_as_what_it_is() {
    let nudged = format!("{FIRST}\n\nAn earlier attempt");
    let script = Script::new()
        .on(TASK, calls(&[FIRST, SECOND]))
        .on(&nudged, reports("It starts at src/lib.rs:1."))
        .on(FIRST, vec![Step::text("From memory: somewhere.")])
        .on(SECOND, vec![Step::text("From memory: nowhere.")])
        .strict();
    let environment = Environment::with_model(script);
    parent(&environment, &[]).expect_code(0);
    let fold = result(&environment);
    in_order(
        &fold,
        &["1 done, 1 failed", "2 attempts", "It starts at src/lib.rs:1.", "State: failed: report without evidence"],
    );
    let nudged = requests_of(&environment, FIRST)[1].body.to_string();
    assert!(nudged.contains("report without evidence"), "{nudged}");
    assert_eq!(requests_of(&environment, SECOND).len(), 2, "one retry and no more");
}

#[test]
fn prompts_that_say_too_little_start_nobody_and_the_model_can_mend_them() {
    let mended = vec![asks(&[FIRST, "Find auth"], "here"), asks(&[FIRST], "here"), Step::text("Told: src/lib.rs:1.")];
    let script = Script::new().on(TASK, mended).on(FIRST, reports("It starts at src/lib.rs:1.")).strict();
    let environment = Environment::with_model(script);
    let json = parent(&environment, &[]).expect_code(0).json();
    assert_eq!(json["usage"]["requests"], 5, "{json}");
    let told = result_in(&requests_of(&environment, TASK)[1]);
    assert!(told.contains("Prompt 2 (\"Find auth\") has 2 words"), "{told}");
    assert_eq!(runs(&environment).1.len(), 1, "the refused call made no run");
}

#[test]
fn children_of_whom_none_is_done_are_no_evidence_for_the_parents_report() {
    let script = Script::new().on(TASK, calls(&[FIRST])).on(FIRST, vec![Step::status(404).body("{}")]).strict();
    let environment = Environment::with_model(script);
    let json = parent(&environment, &["--retries", "0"]).expect_code(1).json();
    assert!(json["error"].as_str().unwrap_or_default().contains("without evidence"), "{json}");
}

#[test]
fn what_the_parent_may_spend_holds_for_all_its_children_together() {
    let insatiable = |request: &Recorded, made: usize| match request.body["tools"].as_array().map_or(0, Vec::len) {
        0 => Step::text("As far as I got: src/lib.rs:1."),
        _ if made == 0 && request.first_user_text().contains(TASK) => asks(&[FIRST, SECOND, THIRD, FIRST], "here"),
        _ => Step::call(&format!("call-{made}"), "read", &json!({"path": "src/lib.rs"})),
    };
    let environment = Environment::with_model(Script::function(insatiable).strict());
    let json = parent(&environment, &["--max-turns", "12"]).expect_code(4).json();
    assert_eq!(json["outcome"], "limit", "{json}");
    assert!(json["error"].as_str().unwrap_or_default().contains("of 12 requests"), "{json}");
    assert_eq!(json["usage"]["requests"], environment.model().requests().len(), "{json}");
    assert!(environment.model().requests().len() <= 12, "{json}");
    let fold = result_in(&requests_of(&environment, TASK)[1]);
    assert!(
        fold.contains("a limit was reached") && fold.contains("its limit: budget: "),
        "which limit is said: {fold}"
    );
}

#[test]
fn who_has_too_little_left_is_told_and_nobody_is_started() {
    let script = Script::new().on(TASK, calls(&[FIRST])).strict();
    let environment = Environment::with_model(script);
    parent(&environment, &["--max-turns", "3"]);
    assert!(result(&environment).contains("2 requests are left"), "{}", result(&environment));
    assert!(runs(&environment).1.is_empty());
}

fn at_work() -> (Environment, Started) {
    let slow = || vec![looks().saying("So far: src/lib.rs:1."), Step::text("never").gated()];
    let script = Script::new().on(TASK, calls(&[FIRST, SECOND])).on(FIRST, slow()).on(SECOND, slow()).strict();
    let environment = Environment::with_model(script);
    let started = environment.spawn(&words(&[]));
    environment.wait_for_requests(5);
    (environment, started)
}

#[test]
fn a_signal_ends_parent_and_children_within_a_second_and_keeps_what_they_had() {
    let (environment, mut started) = at_work();
    let sent = Instant::now();
    started.signal(Signal::SIGTERM);
    let output = started.wait().expect_code(143);
    // A second, and as much again for a machine that runs all other tests.
    assert!(sent.elapsed() < Duration::from_secs(2), "{:?}", sent.elapsed());
    let json = output.json();
    assert_eq!((&json["outcome"], &json["usage"]["requests"]), (&json!("cancelled"), &json!(5)), "{json}");
    let (_, agents) = runs(&environment);
    let (run, _) = &agents[0];
    assert!(run.report(1, 1).contains("So far: src/lib.rs:1."), "{}", run.report(1, 1));
    let states: Vec<Value> =
        run.show()["children"].as_array().into_iter().flatten().map(|c| c["state"].clone()).collect();
    assert_eq!(states, ["cancelled", "cancelled"]);
    environment.expect_no_workers();
}

#[test]
fn a_stop_of_the_run_stops_the_run_of_its_children() {
    let (environment, mut started) = at_work();
    let (people, agents) = runs(&environment);
    let status = people[0].attempt(1, 1).join("status.md");
    wait_for("it shows what its children are at", || {
        let status = read(&status);
        (status.contains("[1] read src/lib.rs") && status.contains("[2] read src/lib.rs")).then_some(())
    });
    environment.decode(&["stop", &people[0].name]).expect_code(0);
    started.wait();
    let run = &agents[0].0;
    wait_for("the run of the children is over", || run.directory.join("fold.md").is_file().then_some(()));
    assert_eq!(run.show()["state"], "ended");
    environment.expect_no_workers();
}

fn in_windows(steps: Vec<Step>) -> Environment {
    let script = Script::new()
        .on(TASK, steps)
        .on(FIRST, vec![looks(), Step::text("It starts at src/lib.rs:1.").gated()])
        .on(SECOND, reports("It stops at src/lib.rs:2."))
        .strict();
    Environment::with_model(script)
}

#[test]
fn children_in_windows_are_processes_that_people_see_and_their_parent_waits_for() {
    let environment = in_windows(vec![asks(&[FIRST, SECOND], "window"), Step::text("Told: src/lib.rs:1.")]);
    let mut started = environment.spawn(&words(&[]));
    environment.wait_for_requests(5);
    let (_, agents) = runs(&environment);
    let (run, _) = &agents[0];
    wait_for("the child has a window", || {
        environment.windows(&run.name).iter().any(|name| name.starts_with("01-")).then_some(())
    });
    assert_ne!(run.pid(1, 1), run.supervisor());
    environment.model().release();
    let json = started.wait().expect_code(0).json();
    assert_eq!(json["usage"]["requests"], 6, "{json}");
    in_order(&result(&environment), &["2 done", "It starts at", "It stops at"]);
}

#[test]
fn children_in_windows_outlive_their_parent_and_a_later_attempt_waits_for_the_same_run() {
    let environment = in_windows(vec![asks(&[FIRST, SECOND], "window"), Step::text("Told: src/lib.rs:1.")]);
    let run = environment.detached(&["--model", MODEL, "--agent", "plan", TASK]);
    environment.wait_for_requests(5);
    terminate(run.pid(1, 1), Signal::SIGKILL);
    // The parent's next attempt goes on with the session, and asks the same again.
    run.claimed(1, 2, "pid");
    wait_for("the parent asks again", || (requests_of(&environment, TASK).len() >= 2).then_some(()));
    assert_eq!(runs(&environment).1.len(), 1);
    environment.model().release();
    let (_, agents) = runs(&environment);
    let fold = environment.decode(&["wait", &agents[0].0.name]).expect_code(0);
    in_order(&fold.stdout, &["2 done", "It starts at", "It stops at"]);
    run.wait();
    assert_eq!(runs(&environment).1.len(), 1, "nobody was started twice");
}

#[test]
fn a_decode_that_an_agents_command_starts_is_refused_whatever_the_command_cleared() {
    let decode = env!("CARGO_BIN_EXE_decode");
    let command = format!(
        "env -u DECODE_DEPTH -u DECODE_PARENT setsid {decode} run --model offline/explorer 'Where does it start?'"
    );
    let steps = vec![Step::call("call-0", "bash", &json!({"command": command})), Step::text("It would not.")];
    let mut environment = Environment::with_model(Script::new().on(TASK, steps).strict());
    // A command may run what lies among the toolchains.
    let toolchain = std::path::Path::new(decode).parent().expect("a program lies in a directory");
    environment.set("CARGO_HOME", &toolchain.to_string_lossy());
    let words = ["run", "--model", MODEL, "--permission-mode", "bypass", "-o", "json", TASK];
    environment.decode(&words).expect_code(0);
    assert!(result(&environment).contains("a child may not start children of its own"), "{}", result(&environment));
    environment.decode(&["run", "--model", "offline/explorer", "Where does it start?"]).expect_code(0);
}

#[test]
fn a_run_whose_file_is_torn_is_listed_as_damaged_with_the_place_of_its_reports() {
    let script = Script::new().on(TASK, calls(&[FIRST])).on(FIRST, reports("It starts at src/lib.rs:1.")).strict();
    let environment = Environment::with_model(script);
    parent(&environment, &[]).expect_code(0);
    let (people, _) = runs(&environment);
    fs::write(people[0].directory.join("run.md"), "---\nv: 1\nstate: en").expect("the state is ours");
    let said = environment.decode(&["ps"]).expect_code(0).stdout;
    in_order(
        &said,
        &[&format!("{} damaged", people[0].name), "run.md", "what its children found is below", "/children"],
    );
    let json = environment.decode(&["ps", "--json"]).expect_code(0).json();
    assert_eq!(json["damaged"][0]["run"], people[0].name.as_str(), "{json}");
}

#[test]
fn a_fold_that_is_garbage_is_made_again_from_the_reports() {
    let script = Script::new().on(FIRST, reports("It starts at src/lib.rs:1.")).strict();
    let environment = Environment::with_model(script);
    let run = environment.detached(&["--model", MODEL, "--terminal", "bare", FIRST]);
    let first = run.wait().expect_code(0).stdout;
    for garbage in [&b"# Fold of 1 child"[..], b"\xff\xfe", b"", &vec![b'x'; 100_000]] {
        fs::write(run.directory.join("fold.md"), garbage).expect("the state is ours");
        let again = run.wait().expect_code(0).stdout;
        in_order(
            &again,
            &["# Fold of 1 child: 1 done", "made again from the reports", "It starts at", "How to answer"],
        );
        assert_eq!(environment.decode(&["fold", &run.name]).expect_code(0).stdout, again);
    }
    fs::write(run.directory.join("fold.md"), &first).expect("the state is ours");
    assert_eq!(run.wait().expect_code(0).stdout, first);
}
