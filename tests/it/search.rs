//! The search tools through the program: what a user's own configuration of ripgrep must not change.
//!
//! Deliberately absent: what fits a pattern; that is proved beside the tools.

use serde_json::{Value, json};

use crate::environment::Environment;
use crate::model_server::{Script, Step};

#[test]
fn a_configuration_of_ripgrep_changes_no_search() {
    let steps = vec![
        Step::call("1", "grep", &json!({"pattern": "start", "path": "src"})),
        Step::text("It starts at src/lib.rs:1."),
    ];
    let mut environment = Environment::with_model(Script::steps(steps).strict());
    let configuration = environment.home().join("ripgreprc");
    std::fs::write(&configuration, "--invert-match\n--no-line-number\n").expect("the home is ours");
    environment.set("RIPGREP_CONFIG_PATH", &configuration.display().to_string());
    let task = "Where does it start, and why?";
    environment.decode(&["run", "--agent", "explore", "--model", "openai/test-model", task]).expect_code(0);
    let session = environment.only_run().session(1, 1);
    let found: Vec<&Value> = session.iter().filter(|record| record["type"] == "tool").collect();
    assert_eq!(found[0]["output"], "src/lib.rs:1:pub fn start() {}");
}
