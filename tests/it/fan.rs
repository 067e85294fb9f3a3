//! Many children at once: the fold, and what becomes of those that something happens to.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::environment::{Environment, looks, terminate};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const CHILDREN: usize = 12;

fn prompts() -> Vec<String> {
    (1..=CHILDREN).map(|number| format!("Question {number:02}: where does it start?")).collect()
}

/// Which question a conversation is about, and whether it was told that an earlier attempt was of no use.
fn question(first: &str) -> (usize, bool) {
    let number = first.split("Question ").nth(1).and_then(|rest| rest.get(..2)?.parse().ok());
    (number.expect("each prompt has a number"), first.contains("An earlier attempt"))
}

/// Twelve children of which four have something happen to them.
fn trouble() -> Script {
    Script::function(|request, made| {
        let (number, nudged) = question(&request.first_user_text());
        let report = Step::text(&format!("Answer {number:02}: it starts in src/lib.rs:1."));
        match (number, made) {
            (3, 0) => Step::status(429).header("retry-after", "1"),
            (3, 1) => looks(),
            (5, 1..) if !nudged => Step::empty(),
            // The first answer of a child that is killed while it waits for it never comes.
            (9, 1) => report.gated(),
            (_, 0) => looks(),
            (7, 1) => Step::text("Answer 07: half of").pause_ms(1).cut_after(2),
            _ => report,
        }
    })
    .strict()
}

fn fan(environment: &Environment, more: &[&str]) -> Value {
    let prompts = prompts();
    let mut words = vec!["fan", "-y", "--model", MODEL, "--width", "4", "-o", "json"];
    words.extend(more);
    words.extend(prompts.iter().map(String::as_str));
    let mut started = environment.spawn(&words);
    let run = environment.only_run();
    let victim = run.pid(9, 1);
    // It has looked, and waits for what to say.
    crate::environment::wait_for("the ninth child asks a second time", || {
        let asked = environment.model().requests();
        let of_ninth = asked.iter().filter(|request| question(&request.first_user_text()).0 == 9).count();
        (of_ninth >= 2).then_some(())
    });
    terminate(victim, Signal::SIGKILL);
    environment.model().release();
    let output = started.wait();
    assert_eq!(output.code, 0, "{}{}{}", output.stdout, output.stderr, run.events());
    output.json()
}

fn expect_twelve_answers_in_order(environment: &Environment, json: &Value) {
    let fold = json["fold"].as_str().expect("the fold is text");
    let places: Vec<usize> = (1..=CHILDREN)
        .map(|number| {
            fold.find(&format!("Answer {number:02}: it starts")).unwrap_or_else(|| panic!("{number}: {fold}"))
        })
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(!fold.contains("half of"), "a cut answer is no report: {fold}");
    assert_eq!((&json["outcome"], json["children"].as_array().map(Vec::len)), (&"done".into(), Some(CHILDREN)));
    let attempts: Vec<u64> =
        json["children"].as_array().into_iter().flatten().filter_map(|child| child["attempts"].as_u64()).collect();
    // A limited and a cut answer are mended within an attempt; an empty report and a death take another.
    assert_eq!(attempts, [1, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1]);
    let run = environment.only_run();
    let events = run.events();
    assert!(events.contains("empty") && events.contains("crash"), "the journal says why: {events}");
    let resumed = run.session(9, 2);
    let looked = resumed.iter().filter(|record| record["type"] == "tool").count();
    assert_eq!(looked, 1, "the resumed child goes on where the killed one was: {resumed:?}");
    assert_ne!(run.session(5, 1)[0]["id"], run.session(5, 2)[0]["id"], "a nudged child begins anew");
    assert_eq!(run.wait_json()["fold"], fold, "waiting prints what fan printed");
}

#[test]
fn twelve_children_in_windows_four_of_them_in_trouble_all_report_in_order() {
    let environment = Environment::with_model(trouble());
    let json = fan(&environment, &[]);
    expect_twelve_answers_in_order(&environment, &json);
    environment.expect_no_workers();
}

#[test]
fn twelve_children_without_windows_four_of_them_in_trouble_all_report_in_order() {
    let environment = Environment::with_model(trouble());
    let json = fan(&environment, &["--terminal", "bare"]);
    expect_twelve_answers_in_order(&environment, &json);
    environment.expect_no_workers();
}

#[test]
fn without_retries_the_json_says_of_each_child_what_became_of_it() {
    let script = Script::function(|request, made| match (question(&request.first_user_text()).0, made) {
        (1, 1) => Step::text("One is at src/lib.rs:1."),
        (2, 1..) => Step::empty(),
        (3, 1) => Step::text("never").gated(),
        (4, 0) => Step::status(401),
        _ => looks(),
    });
    let environment = Environment::with_model(script);
    let four = prompts();
    let mut words = vec!["fan", "--model", MODEL, "--retries", "0", "-o", "json"];
    words.extend(four.iter().take(4).map(String::as_str));
    let mut started = environment.spawn(&words);
    let run = environment.only_run();
    let victim = run.pid(3, 1);
    crate::environment::wait_for("the third child asks a second time", || {
        let asked = environment.model().requests();
        let of_third = asked.iter().filter(|request| question(&request.first_user_text()).0 == 3).count();
        (of_third >= 2).then_some(())
    });
    terminate(victim, Signal::SIGKILL);
    let output = started.wait().expect_code(1);
    let json = output.json();
    let child = |number: usize, key: &str| json["children"][number - 1][key].clone();
    let states: Vec<Value> = (1..=4).map(|number| child(number, "state")).collect();
    assert_eq!(states, ["done", "failed", "failed", "failed"], "{json}");
    assert_eq!(child(1, "error"), Value::Null);
    for (number, reason) in [(2, "empty"), (3, "signal 9"), (4, "401")] {
        let error = child(number, "error");
        assert!(error.as_str().is_some_and(|text| text.contains(reason)), "{number}: {error}");
    }
    assert_eq!(json["outcome"], "failed");
    let fold = json["fold"].as_str().expect("the fold is text");
    assert!(fold.contains("signal 9") && fold.contains("One is at src/lib.rs:1."), "{fold}");
    assert!(json["children"][1]["usage"]["cost_usd"].is_null(), "a cost that is not known is null: {json}");
}

#[test]
fn a_fan_that_costs_is_refused_headless_beyond_eight_children() {
    let environment = Environment::with_model(Script::steps(vec![looks()]));
    let prompts = prompts();
    let mut words = vec!["fan", "--model", MODEL];
    words.extend(prompts.iter().map(String::as_str));
    let output = environment.decode(&words).expect_code(3);
    assert!(output.stderr.contains("--yes"), "{}", output.stderr);
    assert!(environment.model().requests().is_empty());
}

#[test]
fn forgotten_quotes_an_empty_prompt_and_an_unknown_persona_start_nothing() {
    let environment = Environment::new();
    for words in [
        &["fan", "where", "is", "the", "start"][..],
        &["fan", ""],
        &["fan", "Where does it start, and why?", "--agent", "explroe"],
        &["stauts"],
    ] {
        let output = environment.decode(words).expect_code(2);
        assert!(output.stdout.is_empty() && output.stderr.starts_with("error:"), "{words:?}: {output:?}");
    }
    let runs = environment.decode(&["ps", "--all", "--json"]).expect_code(0).json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(0), "{runs}");
    assert!(environment.workers().is_empty());
}

#[test]
fn a_prompt_full_of_what_shells_and_tmux_obey_is_only_text() {
    let environment = Environment::with_model(Script::steps(vec![looks(), Step::text("Seen at src/lib.rs:1.")]));
    let mark = environment.project().join("touched");
    let nasty = format!(
        "What of this?\n'\"$HOME `touch {0}` $(touch {0}) #(touch {0}) #{{pid}} 🙂 %if; -t ; {0};",
        mark.display()
    );
    let output = environment.decode(&["fan", "--model", MODEL, &nasty]).expect_code(0);
    assert!(output.stdout.contains("Seen at src/lib.rs:1."), "{}", output.stdout);
    assert!(!mark.exists());
    let asked = environment.model().requests()[0].first_user_text();
    assert!(asked.contains(&nasty), "every byte arrives: {asked}");
}

#[test]
fn without_tmux_the_way_out_is_named() {
    let environment = Environment::new();
    let mut command = environment.command(&["fan", "Where does it start, and why?"]);
    command.env("PATH", "/nonexistent");
    let output = environment.start(command).wait().expect_code(6);
    assert!(output.stderr.contains("--terminal bare"), "{}", output.stderr);
}
