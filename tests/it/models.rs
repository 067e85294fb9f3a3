//! Which model is asked, how, with which key; what it costs; and that no history is ever one a provider refuses.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::environment::{Environment, Run, looks, terminate};
use crate::model_server::{Call, ModelServer, Recorded, Script, Step};

const OPENAI: &str = "openai/test-model";
const ANTHROPIC: &str = "anthropic/test-model";
const GEMINI: &str = "gemini/test-model";
const TASK: &str = "Where does it start, and why?";
const SECRET: &str = "the-secret-of-anthropic";

fn answers() -> Script {
    Script::steps(vec![looks(), Step::text("It starts at src/lib.rs:1.")]).strict()
}

/// A world that speaks to its model in the other dialect; `path` is what stands behind the address.
fn anthropic(script: Script, path: &str) -> Environment {
    let mut environment = Environment::new();
    let server = ModelServer::start(script);
    let address = server.url();
    environment.set("ANTHROPIC_BASE_URL", &format!("{}{path}", address.trim_end_matches("/v1")));
    environment.set("ANTHROPIC_API_KEY", SECRET);
    environment.serve(server)
}

/// The same world for Gemini, whose key goes by either of two names.
fn gemini(script: Script) -> Environment {
    let mut environment = Environment::new();
    let server = ModelServer::start(script);
    environment.set("GOOGLE_GEMINI_BASE_URL", server.url().trim_end_matches("/v1"));
    environment.set("GOOGLE_API_KEY", SECRET);
    environment.serve(server)
}

/// A world and the name of its model, in each dialect.
fn every_dialect(script: impl Fn() -> Script) -> [(Environment, &'static str); 3] {
    [(Environment::with_model(script()), OPENAI), (anthropic(script(), ""), ANTHROPIC), (gemini(script()), GEMINI)]
}

/// The user's own settings.
fn settings(environment: &Environment, text: &str) {
    let directory = environment.home().join(".config/decode");
    fs::create_dir_all(&directory).expect("the home is ours");
    fs::write(directory.join("settings.yaml"), text).expect("the home is ours");
}

fn model_of(request: &Recorded) -> &str {
    request.body["model"].as_str().unwrap_or_default()
}

/// Files of this world that hold a text.
fn files_with(environment: &Environment, text: &str) -> String {
    let found = environment.plain("grep").args(["-rl", text, "."]).current_dir(environment.root()).output();
    String::from_utf8_lossy(&found.expect("grep is installed").stdout).into_owned()
}

/// Twelve questions, one of which is turned away, one of which is answered with nothing.
fn trouble() -> Script {
    Script::function(|request, made| {
        let first = request.first_user_text();
        let nudged = first.contains("An earlier attempt");
        match made {
            0 if first.contains("Question 2") => Step::status(429).header("retry-after", "1"),
            1.. if first.contains("Question 3") && !nudged => Step::empty(),
            1 if first.contains("Question 4") => Step::text("half of").pause_ms(1).cut_after(3),
            _ if request.body.to_string().contains("pub fn start") => Step::text("It starts at src/lib.rs:1."),
            _ => Step::call(&format!("call-{made}"), "read", &json!({"path": "src/lib.rs"})),
        }
    })
    .strict()
}

#[test]
fn a_fan_speaks_the_other_dialect_just_as_well_and_its_key_lies_nowhere() {
    for path in ["", "/v1", "/v1/"] {
        let environment = anthropic(trouble(), path);
        let questions: Vec<String> = (1..=4).map(|number| format!("Question {number}: where does it start?")).collect();
        let mut words = vec!["fan", "--model", ANTHROPIC, "-o", "json"];
        words.extend(questions.iter().map(String::as_str));
        let output = environment.decode(&words).expect_code(0);
        let json = output.json();
        let attempts: Vec<&Value> =
            json["children"].as_array().into_iter().flatten().map(|child| &child["attempts"]).collect();
        assert_eq!(attempts, [1, 1, 2, 1], "{json}");
        assert!(!json["fold"].as_str().unwrap_or_default().contains("half of"), "{json}");
        for request in environment.model().requests() {
            assert_eq!(request.path, "/v1/messages");
            assert_eq!(request.header("x-api-key"), Some(SECRET));
            assert_eq!(request.header("authorization"), None);
            assert!(!request.body.to_string().contains(SECRET));
            assert_eq!(model_of(&request), "test-model");
        }
        assert!(!output.stdout.contains(SECRET) && !output.stderr.contains(SECRET));
        assert!(output.stderr.contains("ANTHROPIC_API_KEY"), "{}", output.stderr);
        assert_eq!(files_with(&environment, SECRET), "");
        environment.expect_no_workers();
    }
}

#[test]
fn with_two_keys_the_line_to_write_is_told_and_written_it_holds() {
    let mut environment = Environment::with_model(answers());
    environment.set("ANTHROPIC_API_KEY", SECRET);
    let asked = environment.decode(&["fan", TASK]).expect_code(2);
    let line = asked.stderr.split('`').find(|part| part.starts_with("model")).unwrap_or_default().to_owned();
    assert!(asked.stderr.contains("settings.yaml") && !line.is_empty(), "{}", asked.stderr);
    assert!(environment.model().requests().is_empty());
    settings(&environment, &format!("{}\n", line.replace("anthropic/", "openai/")));
    environment.decode(&["fan", TASK]).expect_code(0);
    assert_eq!(environment.model().requests().len(), 2);
}

#[test]
fn a_provider_of_the_users_own_is_spoken_to_with_its_own_key() {
    for (kind, path) in [("openai", "/v1/chat/completions"), ("anthropic", "/v1/messages")] {
        let mut environment = Environment::new();
        let server = ModelServer::start(answers());
        let address = server.url();
        environment.set("MINE_SECRET", "my-own-key");
        let text = format!(
            "model: mine/big/model:7b\nproviders:\n  mine:\n    base_url: {address}\n    kind: {kind}\n    key_env: MINE_SECRET\n"
        );
        settings(&environment, &text);
        let environment = environment.serve(server);
        environment.decode(&["fan", TASK]).expect_code(0);
        let asked = environment.model().requests();
        assert_eq!((asked[0].path.as_str(), model_of(&asked[0])), (path, "big/model:7b"));
        let key = asked[0].header("authorization").or(asked[0].header("x-api-key")).unwrap_or_default();
        assert!(key.ends_with("my-own-key"), "{key}");
        assert_eq!(files_with(&environment, "my-own-key"), "");
    }
}

#[test]
fn settings_that_do_not_parse_name_their_line_and_a_project_names_no_server() {
    let environment = Environment::with_model(answers());
    settings(&environment, "width: 2\nmodle: openai/x\n");
    let wrong = environment.decode(&["fan", TASK]);
    assert!(wrong.code == 2 || wrong.code == 6, "{wrong:?}");
    assert!(wrong.stderr.contains("settings.yaml:2"), "{}", wrong.stderr);
    settings(&environment, "width: 2\n");
    fs::create_dir_all(environment.project().join(".decode")).expect("the project is ours");
    environment.write(".decode/settings.yaml", "providers:\n  openai:\n    base_url: http://127.0.0.1:1/v1\n");
    environment.decode(&["fan", "--model", OPENAI, TASK]).expect_code(0);
    assert_eq!(environment.model().requests().len(), 2, "the user's own server is asked");
}

#[test]
fn tiers_name_models_and_readers_use_the_cheap_one() {
    let environment = Environment::with_model(answers());
    settings(&environment, "models:\n  cheap: openai/small\n  default: openai/middle\n  strong: openai/large\n");
    for (words, model) in [
        (vec!["run", "--agent", "explore"], "small"),
        (vec!["run", "--agent", "build"], "middle"),
        (vec!["run", "--agent", "explore", "-m", "strong"], "large"),
        (vec!["run", "--agent", "explore", "-m", "opus"], "large"),
        (vec!["run", "--agent", "explore", "-m", "openai/other"], "other"),
    ] {
        let before = environment.model().requests().len();
        let task = format!("Where does it start, asked of {model} as {}?", words.len());
        let words: Vec<&str> = words.into_iter().chain(["-q", &task]).collect();
        environment.decode(&words).expect_code(0);
        assert_eq!(model_of(&environment.model().requests()[before]), model, "{words:?}");
    }
    settings(&environment, "models:\n  cheap: openai/small\n");
    let none = environment.decode(&["run", "-m", "enormous", TASK]).expect_code(2);
    assert!(none.stderr.contains("provider/name"), "{}", none.stderr);
}

#[test]
fn usage_is_exact_in_every_dialect_and_an_unknown_cost_is_null() {
    let script = || {
        Script::steps(vec![
            looks().tokens(1_000, 600, 30),
            Step::text("It starts at src/lib.rs:1.").tokens(1_200, 900, 44),
        ])
        .strict()
    };
    let want =
        json!({"requests": 2, "input_tokens": 2_200, "cached_tokens": 1_500, "output_tokens": 74, "cost_usd": null});
    let usage = |environment: &Environment, model: &str| {
        let run = ["run", "--agent", "explore", "--model", model, "-o", "json", TASK];
        let json = environment.decode(&run).expect_code(0).json();
        assert_eq!(json["usage"], want, "{model}");
        let twice = ["fan", "--model", model, "-o", "json", "Where does it start, one?", "Where does it start, two?"];
        let json = environment.decode(&twice).expect_code(0).json();
        assert_eq!((&json["children"][0]["usage"], &json["children"][1]["usage"]), (&want, &want), "{model}");
        let sum = json!({"requests": 4, "input_tokens": 4_400, "cached_tokens": 3_000, "output_tokens": 148, "cost_usd": null});
        assert_eq!(json["usage"], sum, "{model}");
    };
    for (environment, model) in every_dialect(script) {
        usage(&environment, model);
    }
}

#[test]
fn a_schema_is_kept_in_the_other_dialect_too_and_a_report_without_it_fails() {
    let schema = json!({"type": "object", "required": ["line"], "properties": {"line": {"type": "integer"}}});
    let script = Script::steps(vec![looks(), Step::text("```json\n{\"line\": 1}\n```")]);
    let environment = anthropic(script.strict(), "");
    environment.write("schema.json", &schema.to_string());
    let words = ["run", "--agent", "explore", "--model", ANTHROPIC, "--json-schema", "schema.json", "-q", TASK];
    let output = environment.decode(&words).expect_code(0);
    assert_eq!(serde_json::from_str::<Value>(&output.stdout).ok(), Some(json!({"line": 1})), "{}", output.stdout);

    let environment = anthropic(Script::steps(vec![looks(), Step::text("never JSON")]).strict(), "");
    environment.write("schema.json", &schema.to_string());
    let words = [&words[..7], &["--retries", "0", "-o", "json", TASK]].concat();
    let json = environment.decode(&words).expect_code(1).json();
    assert_eq!(json["outcome"], "failed", "{json}");
    assert!(json["error"].as_str().is_some_and(|error| error.contains("JSON")), "{json}");
}

/// A long session in which all goes wrong that a model can do wrong; it waits at the gate in the middle.
fn rough() -> Script {
    Script::function(|request, made| {
        let number = |what: &str| format!("call-{made}-{what}");
        let read = |what: &str| Call::new(&number(what), "read", &json!({"path": "src/lib.rs"}));
        let resumed = request.body.to_string().contains("The process was interrupted");
        match made {
            0 => Step::calls(vec![Call::raw(&number("a"), "read", "{\"path\": \"src/li")]),
            1 => Step::calls(vec![read("a"), Call::raw(&number("b"), "grep", "[1, 2]"), read("c")]),
            2 => Step::calls(vec![Call::new(&number("a"), "no_such_tool", &json!({}))]).saying("I try another."),
            3 => Step::calls(vec![
                Call::new(&number("a"), "bash", &json!({"command": "rm README.md"})),
                Call::new(&number("b"), "read", &json!({"path": "/etc/passwd"})),
                read("c"),
            ]),
            4 => Step::empty(),
            5 => Step::calls(vec![Call::raw(&number("a"), "read", "")]),
            6 => Step::calls(vec![read("a")]).cut_after(4),
            7 => Step::calls(vec![Call::new(&number("a"), "bash", &json!({"command": "sleep 614"}))]).saying("I wait."),
            8.. if resumed => Step::text("After all that: src/lib.rs:1."),
            _ => Step::text("It was not resumed."),
        }
    })
    .strict()
}

fn refusals(environment: &Environment, run: &Run<'_>) -> Vec<String> {
    // A refused history shows as an error of the child; its log has the words.
    let log = |attempt: u32| crate::environment::read(&run.attempt(1, attempt).join("log.txt"));
    let all = format!("{}{}{}", log(1), log(2), run.events());
    let _ = environment;
    all.lines().filter(|line| line.contains("status 400") || line.contains("messages.")).map(str::to_owned).collect()
}

fn survives(environment: &Environment, model: &str) {
    let words = ["--agent", "build", "--deny", "bash(rm *)", "--model", model, TASK];
    let run = environment.detached(&words);
    environment.wait_for_requests(8);
    crate::environment::wait_for("the command runs", || {
        environment.workers().iter().any(|line| line.starts_with("sleep 614")).then_some(())
    });
    terminate(run.pid(1, 1), Signal::SIGKILL);
    let json = run.wait_json();
    assert_eq!(refusals(environment, &run), Vec::<String>::new());
    assert_eq!((&json["outcome"], &json["children"][0]["attempts"]), (&json!("done"), &json!(2)), "{json}");
    assert!(json["fold"].as_str().unwrap_or_default().contains("After all that"), "{json}");
    assert!(environment.project().join("README.md").exists());
    environment.expect_no_workers();
}

#[test]
fn no_history_is_refused_by_a_strict_openai_provider_whatever_went_wrong() {
    survives(&Environment::with_model(rough()), OPENAI);
}

#[test]
fn no_history_is_refused_by_a_strict_anthropic_provider_whatever_went_wrong() {
    survives(&anthropic(rough(), ""), ANTHROPIC);
}

#[test]
fn no_history_is_refused_by_a_strict_gemini_provider_whatever_went_wrong() {
    survives(&gemini(rough()), GEMINI);
}

#[test]
fn gemini_is_asked_with_the_key_by_its_other_name_which_is_said_and_lies_nowhere() {
    let environment = gemini(answers());
    let output = environment.decode(&["fan", TASK]).expect_code(0);
    assert!(output.stderr.contains("gemini/") && output.stderr.contains("(GOOGLE_API_KEY)"), "{}", output.stderr);
    let asked = environment.model().requests();
    assert!(asked[0].path.starts_with("/v1beta/models/gemini-"), "{}", asked[0].path);
    assert_eq!(asked[0].header("x-goog-api-key"), Some(SECRET));
    assert_eq!(files_with(&environment, SECRET), "");
}

/// One fault after another, each before a step of the work.
fn passing_faults() -> Script {
    Script::function(|_, made| match made {
        0 | 1 => Step::text("Sorry, busy").then_error("overloaded_error", "busy busy"),
        2 => looks(),
        3 => Step::text("It starts at nowhere.rs:7, I think.").cut_after(3),
        4 => Step::text("It starts at nowhere.rs:8, I guess.").without_last_event(),
        5 => Step::raw(vec![b": hello\n\nevent: later\ndata: {\"lat      \n\n".to_vec()]),
        _ => Step::text("It starts at src/lib.rs:1."),
    })
    .strict()
}

#[test]
fn what_passes_is_tried_again_and_no_piece_of_it_is_ever_the_report() {
    for (environment, model) in every_dialect(passing_faults) {
        let output = environment.decode(&["run", "--agent", "explore", "-m", model, "--retries", "0", TASK]);
        let output = output.expect_code(0);
        assert!(output.stdout.contains("It starts at src/lib.rs:1."), "{model}: {}", output.stdout);
        for piece in ["busy", "nowhere", "lat"] {
            assert!(!output.stdout.contains(piece), "{model}: {}", output.stdout);
        }
        assert_eq!(environment.model().requests().len(), 7, "{model}");
    }
}

#[test]
fn what_will_fail_again_is_told_and_not_tried_again() {
    let quota = r#"{"error":{"type":"insufficient_quota","message":"check your plan"}}"#;
    let faults = [
        ("bad tool schema", Step::text("half").then_error("invalid_request_error", "bad tool schema")),
        ("no such key", Step::status(401).body(r#"{"error":{"message":"no such key"}}"#)),
        ("check your plan", Step::status(429).body(quota)),
        ("elsewhere.example", Step::status(301).header("location", "https://elsewhere.example/v1")),
    ];
    for (message, fault) in faults {
        for (environment, model) in every_dialect(|| Script::steps(vec![fault.clone()])) {
            let words = ["run", "--agent", "explore", "-m", model, "--retries", "0", "-o", "json", TASK];
            let output = environment.decode(&words);
            assert_ne!(output.code, 0, "{model}: {message}");
            let error = output.json()["error"].as_str().unwrap_or_default().to_owned();
            assert!(error.contains(message), "{model}: {error}");
            assert!(!output.json()["report"].to_string().contains("half"), "{model}");
            assert_eq!(environment.model().requests().len(), 1, "{model}: {message}");
        }
    }
}

#[test]
fn a_wait_that_a_server_asks_for_is_kept_to() {
    for (environment, model) in every_dialect(|| {
        let turned_away = || Step::status(429).header("retry-after", "2");
        Script::steps(vec![turned_away(), turned_away(), looks(), Step::text("It starts at src/lib.rs:1.")])
    }) {
        environment.decode(&["run", "--agent", "explore", "-m", model, "-q", TASK]).expect_code(0);
        let asked = environment.model().requests();
        for pair in asked[..3].windows(2) {
            let gap = pair[1].at.duration_since(pair[0].at).as_secs_f64();
            assert!((2.0..15.0).contains(&gap), "{model}: {gap}");
        }
    }
}

#[test]
fn letters_cut_between_two_reads_reach_tools_and_the_report_whole() {
    let letters = "日本語🙂é";
    for (environment, model) in every_dialect(|| {
        let grep = Step::call("call-1", "grep", &json!({"pattern": letters})).fragments(3);
        let report = Step::text(&format!("src/lib.rs:1 has no {letters}."));
        let steps = [looks(), grep, report].map(|step| step.one_byte_chunks().crlf());
        Script::steps(steps.to_vec()).strict()
    }) {
        let output = environment.decode(&["run", "--agent", "explore", "-m", model, "-q", TASK]).expect_code(0);
        assert!(output.stdout.contains(&format!("has no {letters}.")), "{model}: {}", output.stdout);
        let session = environment.only_run().session(1, 1);
        let told = session.iter().any(|record| record["output"].to_string().contains(letters));
        assert!(told, "{model}: the tool was asked for the same letters");
    }
}

#[test]
fn a_long_loop_of_tools_stays_within_a_small_window() {
    const WINDOW_BYTES: usize = 40_000;
    let environment = Environment::with_model(
        Script::function(|request, made| {
            let size = request.body["messages"].to_string().len();
            let error = r#"{"error":{"code":"context_length_exceeded","message":"This model's maximum context length is 10000 tokens."}}"#;
            let read = request.body["messages"].as_array().into_iter().flatten();
            let answers = read.filter(|message| message["role"] == "assistant").count();
            match answers {
                _ if size > WINDOW_BYTES => Step::status(400).body(error),
                0..20 => Step::call(&format!("call-{made}"), "read", &json!({"path": "long.txt"})),
                _ => Step::text("It is all in long.txt:1."),
            }
        })
        .strict(),
    );
    environment.write("long.txt", &"a line of some length, and of no other use\n".repeat(90));
    let words = ["run", "--agent", "explore", "-m", OPENAI, "-o", "json", TASK];
    let json = environment.decode(&words).expect_code(0).json();
    assert!(json["report"].to_string().contains("It is all in long.txt:1."), "{json}");
}

#[test]
fn a_child_in_a_window_asks_through_the_proxy_of_whoever_started_it() {
    let mut environment = Environment::new();
    let proxy = ModelServer::start(answers());
    environment.set("http_proxy", proxy.url().trim_end_matches("/v1"));
    environment.set("OPENAI_BASE_URL", "http://model.invalid/v1");
    environment.set("OPENAI_API_KEY", "x");
    let environment = environment.serve(proxy);
    environment.decode(&["fan", "--model", OPENAI, TASK]).expect_code(0);
    assert_eq!(environment.model().requests()[0].path, "http://model.invalid/v1/chat/completions");
}
