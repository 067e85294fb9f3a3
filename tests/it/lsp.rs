//! The tool `lsp` with the real rust-analyzer, held by the sandbox as in any attempt.
//!
//! Deliberately absent: servers that misbehave; those are tested where the protocol is spoken.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::environment::{Environment, PATIENCE, wait_within};
use crate::model_server::{Call, Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";

/// A crate without dependencies, with a definition, a reference and an error in it.
const LIB: &str =
    "mod bad;\n\npub fn start() -> u32 {\n    /* 🙂 */ helper() + bad::count()\n}\n\nfn helper() -> u32 {\n    7\n}\n";
const BAD: &str = "pub fn count() -> u32 {\n    \"no number\"\n}\n";

fn world(script: Script) -> Environment {
    let mut environment = Environment::with_model(script.strict());
    // rustup starts the server that fits the toolchain, and looks for it in the home of whoever runs the tests.
    for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
        let usual = || std::env::var("HOME").map(|home| format!("{home}/{folder}"));
        let path = std::env::var(name).or_else(|_| usual()).expect("there is a home");
        environment.set(name, &path);
    }
    let installed = environment
        .plain("rust-analyzer")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(installed, "rust-analyzer is not installed; run `make setup` or `rustup component add rust-analyzer`");
    environment.write("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    environment.write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"tiny\"\nversion = \"0.1.0\"\n");
    environment.write("src/lib.rs", LIB);
    environment.write("src/bad.rs", BAD);
    environment.git(&["add", "."]);
    environment.git(&["commit", "-q", "-m", "a crate"]);
    environment
}

fn lsp(id: &str, op: &str, path: &str, line: u32, column: u32) -> Call {
    Call::new(id, "lsp", &json!({"op": op, "path": path, "line": line, "column": column}))
}

/// Runs to the end, and gives the results of the tools in their order.
fn results(environment: &Environment, agent: &str) -> Vec<(bool, String)> {
    let mut run = environment.spawn(&["run", "--agent", agent, "--model", MODEL, TASK]);
    // A server needs its time on a machine that is busy.
    let asked = 2 * PATIENCE;
    wait_within(asked, "the report was asked for", || {
        (environment.model().requests().len() >= 2 || run.has_ended()).then_some(())
    });
    run.wait().expect_code(0);
    let session = environment.only_run().session(1, 1);
    let tools = session.iter().filter(|record| record["type"] == "tool");
    let text = |record: &Value| record["output"].as_str().unwrap_or_default().to_owned();
    tools.map(|record| (record["ok"] == true, text(record))).collect()
}

#[test]
fn a_reader_is_told_definitions_references_types_and_problems_by_rust_analyzer() {
    let calls = vec![
        lsp("1", "definition", "src/lib.rs", 4, 13),
        lsp("2", "references", "src/lib.rs", 7, 4),
        lsp("3", "hover", "src/lib.rs", 4, 13),
        Call::new("4", "lsp", &json!({"op": "diagnostics", "path": "src/bad.rs"})),
        lsp("5", "definition", "src/lib.rs", 4, 29),
        Call::new("6", "lsp", &json!({"op": "diagnostics", "path": "src/lib.rs"})),
    ];
    let environment = world(Script::steps(vec![Step::calls(calls), Step::text("See src/lib.rs:7.")]));
    let results = results(&environment, "explore");
    let texts: Vec<&str> =
        results.iter().map(|(ok, text)| if *ok { text.as_str() } else { panic!("{results:?}") }).collect();
    assert_eq!(texts[0], "src/lib.rs:7:4: fn helper() -> u32 {", "{results:?}");
    assert_eq!(texts[1], "src/lib.rs:4:13: /* 🙂 */ helper() + bad::count()\nsrc/lib.rs:7:4: fn helper() -> u32 {");
    assert!(texts[2].contains("fn helper() -> u32"), "{results:?}");
    assert!(texts[3].starts_with("src/bad.rs:2:5: error[E0308]: expected u32, found &"), "{results:?}");
    assert_eq!(texts[4], "src/bad.rs:1:8: pub fn count() -> u32 {", "{results:?}");
    assert_eq!(texts[5], "no problem found in src/lib.rs", "{results:?}");
    assert_eq!(environment.git(&["status", "--porcelain"]), "", "nothing is left in the project");
    environment.expect_no_workers();
}

#[test]
fn a_writer_is_told_what_its_edit_broke_and_not_what_was_broken_before() {
    let edit = |old: &str, new: &str| json!({"path": "src/lib.rs", "old_string": old, "new_string": new});
    let steps = vec![
        Step::calls(vec![lsp("1", "hover", "src/lib.rs", 4, 13)]),
        Step::call("2", "edit", &edit("7", "\"seven\"")),
        Step::call("3", "edit", &edit("\"seven\"", "8")),
        Step::text("See src/lib.rs:7."),
    ];
    let environment = world(Script::steps(steps));
    let results = results(&environment, "build");
    assert!(results[0].1.contains("fn helper() -> u32"), "{results:?}");
    let (ok, broken) = &results[1];
    assert!(
        *ok && broken.starts_with("Edited `src/lib.rs`: 1 place, line 8\nrust-analyzer says of this change:\n"),
        "{results:?}"
    );
    assert!(
        broken.contains("src/lib.rs:8:5: error[E0308]: expected u32, found &") && !broken.contains("bad.rs"),
        "{results:?}"
    );
    assert_eq!(results[2].1, "Edited `src/lib.rs`: 1 place, line 8", "{results:?}");
    environment.expect_no_workers();
}
