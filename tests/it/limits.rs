//! Limits that hold: of a child, of a run, of a provider. What is over is said, and the work until then is kept.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::environment::{Environment, looks, wait_for};
use crate::model_server::{Recorded, Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";

fn tools(request: &Recorded) -> usize {
    request.body["tools"].as_array().map_or(0, Vec::len)
}

/// Looks for as long as it may, and reports when it must.
fn insatiable(tokens: (u64, u64)) -> Script {
    Script::function(move |request, made| {
        let step = match tools(request) {
            0 => Step::text("As far as I got: src/lib.rs:1."),
            _ => Step::call(&format!("call-{made}"), "read", &json!({"path": "src/lib.rs"})),
        };
        step.tokens(tokens.0, 0, tokens.1)
    })
    .strict()
}

/// Looks, and then never ends its answer.
fn stalls() -> Script {
    Script::steps(vec![looks(), Step::text("I begin to").pause_ms(600_000)])
}

fn fan<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["fan", "-y", "--model", MODEL, "-o", "json"].into_iter().chain(more.iter().copied()).collect()
}

fn questions(number: usize) -> Vec<String> {
    (1..=number).map(|number| format!("Question {number:02}: where does it start?")).collect()
}

fn child(json: &Value, number: usize) -> &Value {
    &json["children"][number - 1]
}

fn error_of(child: &Value) -> &str {
    child["error"].as_str().unwrap_or_default()
}

#[test]
fn a_child_is_told_when_its_requests_run_out_and_its_last_one_is_for_the_report() {
    let environment = Environment::with_model(insatiable((10, 5)));
    let output = environment.decode(&fan(&["--child-budget", "requests=10", TASK])).expect_code(4);
    let json = output.json();
    assert_eq!((&json["outcome"], &child(&json, 1)["outcome"]), (&json!("limit"), &json!("limit")), "{json}");
    assert_eq!(json["usage"]["requests"], 10, "{json}");
    assert!(json["fold"].as_str().unwrap_or_default().contains("As far as I got"), "{json}");
    let asked = environment.model().requests();
    assert_eq!(asked.len(), 10);
    let warned = asked.iter().position(|request| request.body.to_string().contains("Most of what you may spend"));
    assert_eq!(warned, Some(8), "at four fifths");
    let offered: Vec<bool> = asked.iter().map(|request| tools(request) > 0).collect();
    assert_eq!(offered, [true, true, true, true, true, true, true, true, true, false]);
}

#[test]
fn a_childs_tokens_are_never_passed_and_a_request_that_does_not_fit_is_not_sent() {
    const LIMIT: u64 = 12_000;
    let environment = Environment::with_model(insatiable((2_500, 100)));
    let output = environment.decode(&fan(&["--child-budget", "tokens=12k", TASK])).expect_code(4);
    let json = output.json();
    assert_eq!(child(&json, 1)["outcome"], "limit", "{json}");
    let tokens = |usage: &Value| usage["input_tokens"].as_u64().zip(usage["output_tokens"].as_u64());
    let (input, output) = tokens(&json["usage"]).unwrap_or_else(|| panic!("{json}"));
    assert!(input + output <= LIMIT, "{json}");
    let asked = environment.model().requests();
    for (number, request) in asked.iter().enumerate() {
        let longest = request.body["max_tokens"].as_u64().or_else(|| request.body["max_completion_tokens"].as_u64());
        let spent = number as u64 * 2_600;
        assert!(longest.is_some_and(|longest| spent + longest <= LIMIT), "{number}: {longest:?}");
    }
    assert_eq!(asked.last().map(tools), Some(0), "the last one is for the report");
    // There is no room for even one request.
    let json = environment.decode(&fan(&["--child-budget", "tokens=300", TASK])).expect_code(4).json();
    assert_eq!((&child(&json, 1)["state"], &json["usage"]["requests"]), (&json!("failed"), &json!(0)), "{json}");
    assert!(error_of(child(&json, 1)).contains("0 of 300 tokens"), "{json}");
    assert_eq!(environment.model().requests().len(), asked.len());
}

#[test]
fn a_child_whose_model_stalls_ends_with_its_time() {
    let environment = Environment::with_model(stalls());
    let began = Instant::now();
    let output = environment.decode(&fan(&["--child-budget", "time=3s", TASK])).expect_code(4);
    // Its time, ten seconds to wrap up, and some for a machine that runs all other tests.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    let json = output.json();
    assert_eq!(child(&json, 1)["state"], "failed", "{json}");
    assert!(error_of(child(&json, 1)).contains("time"), "{json}");
    assert_eq!(child(&json, 1)["attempts"], 1, "time that is over is not tried again: {json}");
    environment.expect_no_workers();
}

#[test]
fn the_requests_of_a_run_are_never_passed_and_who_comes_too_late_is_skipped() {
    let environment = Environment::with_model(insatiable((10, 5)));
    let questions = questions(8);
    let mut words = fan(&["--budget", "requests=7", "--width", "2"]);
    words.extend(questions.iter().map(String::as_str));
    let json = environment.decode(&words).expect_code(4).json();
    assert!(environment.model().requests().len() <= 7, "{json}");
    assert_eq!(json["usage"]["requests"], environment.model().requests().len(), "{json}");
    assert_eq!(child(&json, 1)["outcome"], "limit", "{json}");
    let last = child(&json, 8);
    assert_eq!((&last["state"], &last["attempts"]), (&json!("skipped"), &json!(0)), "{json}");
    assert!(error_of(last).contains("limit left nothing"), "{json}");
    assert!(json["fold"].as_str().unwrap_or_default().contains("limit left nothing"), "the fold says why: {json}");
}

#[test]
fn the_tokens_of_a_run_are_never_passed_by_all_its_children_together() {
    const LIMIT: u64 = 20_000;
    let environment = Environment::with_model(insatiable((2_500, 100)));
    let questions = questions(6);
    let mut words = fan(&["--budget", "tokens=20k", "--width", "3"]);
    words.extend(questions.iter().map(String::as_str));
    let json = environment.decode(&words).expect_code(4).json();
    let spent = environment.model().requests().len() as u64 * 2_600;
    assert!((1..=LIMIT).contains(&spent), "{spent}: {json}");
}

#[test]
fn without_a_budget_a_run_goes_on_past_the_usual_tokens_and_says_that_nothing_holds_it() {
    let script = Script::steps(vec![looks().tokens(3_000_000, 0, 5), Step::text("It starts at src/lib.rs:1.")]);
    let environment = Environment::with_model(script);
    let held = environment.decode(&fan(&[TASK])).expect_code(4).json();
    assert_eq!(held["outcome"], "limit", "2 M tokens hold where the cost is unknown: {held}");
    let free = environment.decode(&fan(&["--budget", "none", "And where does it end, and why?"])).expect_code(0);
    assert!(free.stderr.contains("no limit"), "{}", free.stderr);
    assert_eq!(free.json()["usage"]["input_tokens"], 3_000_010, "{}", free.stdout);
}

#[test]
fn a_run_ends_with_its_time_those_that_work_and_those_that_wait() {
    let environment = Environment::with_model(stalls());
    let questions = questions(3);
    let mut words = fan(&["--budget", "time=4s", "--width", "2"]);
    words.extend(questions.iter().map(String::as_str));
    let began = Instant::now();
    let json = environment.decode(&words).expect_code(4).json();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    for number in 1..=3 {
        let error = error_of(child(&json, number));
        assert!(error.contains("time"), "{number}: {json}");
    }
    environment.expect_no_workers();
}

/// How a provider says that a subscription is used up for three seconds.
fn used_up(header: bool) -> Step {
    if header {
        let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() + 3;
        return Step::status(429)
            .header("anthropic-ratelimit-unified-status", "rejected")
            .header("anthropic-ratelimit-unified-reset", &until.to_string());
    }
    let error = json!({"type": "usage_limit_reached", "message": "You have used it up.", "resets_in_seconds": 3});
    Step::status(429).body(&json!({"error": error}).to_string())
}

fn used_up_once(header: bool) -> Script {
    Script::function(move |_, made| match made {
        0 => looks(),
        1 => used_up(header),
        _ => Step::text("It starts at src/lib.rs:1."),
    })
    .strict()
}

#[test]
fn a_child_at_a_usage_limit_parks_and_goes_on_in_the_same_session() {
    for header in [false, true] {
        let environment = Environment::with_model(used_up_once(header));
        let run = environment.detached(&["--retries", "0", "--model", MODEL, TASK]);
        wait_for("the child is parked", || {
            let ps = environment.decode(&["ps"]).expect_code(0).stdout;
            (ps.contains("parked") || ps.contains("the provider's limit")).then_some(())
        });
        let json = run.wait_json();
        assert_eq!(json["outcome"], "done", "{json}");
        assert_eq!(child(&json, 1)["attempts"], 1, "waiting for a provider is no attempt: {json}");
        let asked = environment.model().requests();
        assert_eq!(asked.len(), 3, "nothing is sent into a closed door");
        let waited = asked[2].at - asked[1].at;
        assert!(waited >= Duration::from_secs(2), "{waited:?}");
        assert_eq!(run.session(1, 1)[0]["id"], run.session(1, 2)[0]["id"]);
        assert!(asked[2].body.to_string().contains("pub fn start"), "it goes on with what it has seen");
        environment.expect_no_workers();
        wait_for("no window is left", || environment.windows(&run.name).is_empty().then_some(()));
    }
}

#[test]
fn a_single_run_waits_for_a_usage_limit_too_and_a_stop_ends_the_wait() {
    let environment = Environment::with_model(used_up_once(false));
    let output =
        environment.decode(&["run", "--retries", "0", "--agent", "explore", "--model", MODEL, TASK]).expect_code(0);
    assert_eq!(output.stdout, "It starts at src/lib.rs:1.\n");

    let error = json!({"type": "usage_limit_reached", "message": "Used up.", "resets_in_seconds": 3_600});
    let for_long = Step::status(429).body(&json!({"error": error}).to_string());
    let environment = Environment::with_model(Script::steps(vec![for_long]));
    let run = environment.detached(&["--model", MODEL, TASK]);
    wait_for("the child is parked", || run.events().contains("parked").then_some(()));
    environment.decode(&["stop", &run.name]).expect_code(0);
    assert_eq!(run.wait_json()["outcome"], "cancelled");
    environment.expect_no_workers();
}

#[test]
fn a_refused_key_is_told_once_a_child_and_not_tried_again() {
    let body = json!({"error": {"type": "authentication_error", "message": "invalid key"}}).to_string();
    let environment = Environment::with_model(Script::steps(vec![Step::status(401).body(&body)]));
    let json = environment.decode(&fan(&[TASK, "Where does it end, and why?"])).expect_code(5).json();
    assert_eq!(environment.model().requests().len(), 2, "{json}");
    for number in [1, 2] {
        assert!(error_of(child(&json, number)).contains("invalid key"), "{json}");
        assert_eq!(child(&json, number)["attempts"], 1, "{json}");
    }
}

#[test]
fn a_model_that_cannot_be_reached_is_given_up_within_the_childs_time() {
    let mut environment = Environment::new();
    // Bound and closed again: nobody listens there.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    environment.set("OPENAI_API_KEY", "x");
    environment.set("OPENAI_BASE_URL", &format!("http://127.0.0.1:{port}/v1"));
    let began = Instant::now();
    let json = environment.decode(&fan(&["--child-budget", "time=8s", TASK])).expect_code(5).json();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(error_of(child(&json, 1)).to_lowercase().contains("refused"), "{json}");
}

#[test]
fn twelve_children_that_all_are_told_to_wait_all_report() {
    let script = Script::function(|_, made| match made {
        0 => Step::status(429).header("retry-after", "1"),
        1 => looks(),
        2 => Step::status(429).header("retry-after-ms", "300"),
        _ => Step::text("It starts at src/lib.rs:1."),
    });
    let environment = Environment::with_model(script.strict());
    let questions = questions(12);
    let mut words = fan(&["--width", "12", "--retries", "0"]);
    words.extend(questions.iter().map(String::as_str));
    let json = environment.decode(&words).expect_code(0).json();
    assert_eq!(json["usage"]["requests"], 24, "a request that was turned away is none: {json}");
    assert_eq!(environment.model().requests().len(), 48);
    for number in 1..=12 {
        assert_eq!((&child(&json, number)["state"], &child(&json, number)["attempts"]), (&json!("done"), &json!(1)));
    }
    environment.expect_no_workers();
}
