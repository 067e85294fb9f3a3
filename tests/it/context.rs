//! What a request carries: its size at the start, and what a schema makes of the answer.

use serde_json::{Value, json};

use crate::environment::{Environment, looks};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";

/// The bytes of the first request beside the task, as they were sent.
fn first_request(agent: &str) -> usize {
    let environment = Environment::with_model(Script::steps(vec![looks(), Step::text("It starts at src/lib.rs:1.")]));
    environment.decode(&["run", "--model", MODEL, "--agent", agent, "-q", TASK]).expect_code(0);
    let request = &environment.model().requests()[0];
    assert_eq!(request.first_user_text(), TASK);
    let length = request.header("content-length").map(|length| length.parse::<usize>().expect("a length is a number"));
    length.unwrap_or_else(|| request.body.to_string().len()) - TASK.len()
}

#[test]
fn the_first_request_of_a_reader_is_small_and_that_of_a_writer_bounded() {
    let (explore, build) = (first_request("explore"), first_request("build"));
    assert!(explore <= 4 * 1024, "explore: {explore}");
    assert!(build <= 14 * 1024, "build: {build}");
}

#[test]
fn the_beginning_of_a_request_does_not_change_between_turns() {
    let read = |id: &str| Step::call(id, "read", &json!({"path": "src/lib.rs"}));
    let steps = vec![read("1"), read("2"), read("3"), Step::text("It starts at src/lib.rs:1.")];
    let environment = Environment::with_model(Script::steps(steps));
    environment.write("AGENTS.md", "Name things once.\n");
    environment.decode(&["run", "--model", MODEL, "--agent", "explore", "-q", TASK]).expect_code(0);
    let requests = environment.model().requests();
    assert_eq!(requests.len(), 4);
    for pair in requests.windows(2) {
        assert_eq!(pair[0].body["tools"], pair[1].body["tools"]);
        let messages = |body: &Value| body["messages"].as_array().expect("there are messages").clone();
        let (before, after) = (messages(&pair[0].body), messages(&pair[1].body));
        assert_eq!(before[..], after[..before.len()]);
    }
    assert!(requests[0].body.to_string().contains("Name things once."));
}

#[test]
fn notes_of_earlier_sessions_come_last_and_change_nothing_about_the_task() {
    let environment = Environment::with_model(Script::steps(vec![looks(), Step::text("It starts at src/lib.rs:1.")]));
    std::fs::create_dir_all(environment.home().join(".config/decode")).expect("the home is ours");
    std::fs::write(environment.home().join(".config/decode/MEMORY.md"), "- prefers tabs\n").expect("the home is ours");
    environment.decode(&["run", "--model", MODEL, "--agent", "explore", "-q", TASK]).expect_code(0);
    let request = &environment.model().requests()[0];
    let system = request.body["messages"][0]["content"].to_string();
    assert!(system.contains("prefers tabs") && system.contains("Notes of earlier sessions"), "{system}");
    assert_eq!(request.first_user_text(), TASK);
}

#[test]
fn a_report_that_breaks_its_schema_is_mended_with_the_place_and_given_as_the_model_wrote_it() {
    let script = Script::steps(vec![
        looks(),
        Step::text("{\"lines\": \"four\"}"),
        Step::text("```json\n{ \"lines\":  4 }\n```"),
    ]);
    let environment = Environment::with_model(script);
    let schema = json!({"type": "object", "required": ["lines"], "properties": {"lines": {"type": "integer"}}});
    environment.write("schema.json", &schema.to_string());
    let words = ["run", "--model", MODEL, "--agent", "explore", "-q", "--json-schema", "schema.json", TASK];
    assert_eq!(environment.decode(&words).expect_code(0).stdout, "{ \"lines\":  4 }\n");
    assert!(environment.model().requests()[2].body.to_string().contains("at `/lines`"));
}

#[test]
fn a_report_that_never_fits_its_schema_fails_with_the_reason_and_no_data() {
    let environment = Environment::with_model(Script::function(|_, made| match made {
        0 => looks(),
        _ => Step::text("four"),
    }));
    environment.write("schema.json", "{\"type\": \"integer\"}");
    let words = ["run", "--model", MODEL, "--agent", "explore", "--json-schema", "schema.json", TASK];
    let output = environment.decode(&words).expect_code(1);
    assert_eq!(output.stdout, "");
    assert!(output.stderr.contains("not the JSON that was asked for"), "{}", output.stderr);
    assert_eq!(environment.model().requests().len(), 5, "the answer, and three mendings of it");
}

#[test]
fn a_schema_that_is_none_is_refused_before_anything_is_spent() {
    let environment = Environment::with_model(Script::steps(vec![Step::text("never")]));
    environment.write("broken.json", "{\"type\": ");
    environment.write("wrong.json", "{\"type\": \"nothing\"}");
    environment.write("remote.json", "{\"$ref\": \"http://127.0.0.1:1/schema.json\"}");
    environment.write("large.json", &json!({"description": "x".repeat(40_000)}).to_string());
    for name in ["missing.json", "broken.json", "wrong.json", "remote.json", "large.json"] {
        let words = ["run", "--model", MODEL, "--agent", "explore", "--json-schema", name, TASK];
        let output = environment.decode(&words).expect_code(2);
        assert!(output.stderr.contains(name), "{name}: {}", output.stderr);
    }
    assert!(environment.model().requests().is_empty());
}
