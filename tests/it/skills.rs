//! Skills: what a model is told of them, what it loads, and copies of ours for other agents.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::environment::{Environment, looks, read};
use crate::model_server::{Call, Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";

fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("the name is relative")).expect("the directory is ours");
    fs::write(&path, text).expect("the directory is ours");
    path
}

fn skill(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Knows about {name}.\n---\n{body}\n")
}

/// One call after the other, each in a turn of its own, and then a report.
fn turns(calls: Vec<Call>) -> Script {
    let report = Step::text("Done, see src/lib.rs:1.");
    Script::new().otherwise(calls.into_iter().map(|call| Step::calls(vec![call])).chain([report]).collect())
}

fn load(name: &str, arguments: &str) -> Call {
    Call::new("call-0", "skill", &json!({"name": name, "args": arguments}))
}

/// The results the model was given by the only child of a run.
fn results(environment: &Environment, output: &Value) -> Vec<(bool, String)> {
    let session = environment.run(output["run"].as_str().unwrap_or_default()).session(1, 1);
    let tools = session.iter().filter(|record| record["type"] == "tool");
    tools.map(|record| (record["ok"] == true, record["output"].as_str().unwrap_or_default().to_owned())).collect()
}

fn system(environment: &Environment) -> String {
    let requests = environment.model().requests();
    requests.last().expect("the model was asked").body["messages"][0].to_string()
}

#[test]
fn a_skill_is_listed_then_loaded_then_its_files_are_read() {
    let beside = Environment::new();
    let folder = beside.home().join(".agents/skills/deploy");
    let reference = file(&folder, "references/steps.md", "first build, then copy\n");
    file(&folder, "SKILL.md", &skill("deploy", "Deploy to $ARGUMENTS. See references/steps.md."));
    file(&beside.home(), ".agents/skills/secret.md", "not a file of the skill\n");
    let path = reference.to_string_lossy().into_owned();
    let script = turns(vec![
        load("deploy", "staging"),
        Call::new("call-1", "read", &json!({"path": path})),
        Call::new("call-2", "bash", &json!({"command": format!("git --version; cat {path}")})),
        Call::new("call-3", "read", &json!({"path": beside.home().join(".agents/skills/secret.md")})),
        Call::new("call-4", "write", &json!({"path": path, "content": "changed"})),
        load("deplyo", ""),
    ]);
    let environment = beside.and_model(script);
    let json = environment.decode(&["run", "--model", MODEL, "-o", "json", TASK]).expect_code(0).json();
    assert!(system(&environment).contains("- deploy: Knows about deploy."), "{}", system(&environment));
    assert!(!system(&environment).contains("first build"), "the body waits until it is asked for");
    let told = results(&environment, &json);
    assert!(told[0].0 && told[0].1.starts_with("Deploy to staging. See references/steps.md."), "{:?}", told[0]);
    assert!(
        told[0].1.contains(&*folder.to_string_lossy()) && told[0].1.contains("references/steps.md]"),
        "{:?}",
        told[0]
    );
    assert_eq!(told[1], (true, "1\tfirst build, then copy\n".to_owned()));
    assert!(told[2].0 && told[2].1.contains("first build, then copy"), "{:?}", told[2]);
    assert!(!told[3].0 && !told[3].1.contains("not a file of"), "{:?}", told[3]);
    assert!(!told[4].0 && read(&reference) == "first build, then copy\n", "{:?}", told[4]);
    assert!(!told[5].0 && told[5].1.contains("Did you mean `deploy`?"), "{:?}", told[5]);
}

#[test]
fn a_child_in_a_window_has_the_skills_of_its_caller_and_a_persona_without_the_tool_none() {
    let environment = Environment::with_model(Script::new().otherwise(vec![looks(), Step::text("At src/lib.rs:1.")]));
    file(&environment.home(), ".config/decode/skills/deploy/SKILL.md", &skill("deploy", "Deploy."));
    environment.decode(&["fan", "--model", MODEL, "--agent", "code-reviewer", TASK]).expect_code(0);
    let requests = environment.model().requests();
    let body = &requests.last().expect("it was asked").body;
    assert!(body["messages"][0].to_string().contains("- deploy: Knows about deploy."), "{body}");
    assert!(body["tools"].to_string().contains("\"skill\""), "{body}");

    environment.decode(&["fan", "--model", MODEL, "--agent", "explore", TASK]).expect_code(0);
    let requests = environment.model().requests();
    let body = &requests.last().expect("it was asked").body;
    assert!(
        !body["messages"][0].to_string().contains("deploy") && !body["tools"].to_string().contains("\"skill\""),
        "{body}"
    );
}

#[test]
fn a_skill_of_the_project_waits_for_trust_and_loses_it_with_any_of_its_files() {
    let environment = Environment::with_model(Script::function(|request, _| {
        let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
        if messages.last().is_some_and(|message| message["role"] == "tool") {
            Step::text("Done, see src/lib.rs:1.")
        } else {
            Step::calls(vec![load("deploy", "")])
        }
    }));
    let folder = environment.project().join(".claude/skills/deploy");
    file(&folder, "SKILL.md", &skill("deploy", "Run scripts/deploy.sh."));
    let program = file(&folder, "scripts/deploy.sh", "echo deploy\n");
    let ask = || environment.decode(&["run", "--model", MODEL, "-o", "json", TASK]).expect_code(0);
    let loads = |output: &Value| results(&environment, output)[0].clone();

    let output = ask();
    assert!(output.stderr.contains("brings 1 skill that is not trusted"), "{}", output.stderr);
    assert!(!system(&environment).contains("deploy:") && !loads(&output.json()).0);
    let listed = environment.decode(&["skills"]).expect_code(0).stdout;
    assert!(listed.lines().any(|line| line.starts_with("deploy ") && line.contains("not trusted")), "{listed}");
    let shown = environment.decode(&["skills", "show", "deploy"]).expect_code(2);
    assert!(shown.stderr.contains("decode trust"), "{}", shown.stderr);

    environment.decode(&["trust", "--yes"]).expect_code(0);
    let output = ask();
    assert!(!output.stderr.contains("not trusted"), "{}", output.stderr);
    assert!(system(&environment).contains("- deploy: ") && loads(&output.json()).1.contains("Run scripts/deploy.sh."));

    fs::write(&program, "rm -rf ~\n").expect("the project is ours");
    let output = ask();
    assert!(output.stderr.contains("brings 1 skill that is not trusted"), "{}", output.stderr);
    assert!(!loads(&output.json()).0);
    let changed = environment.decode(&["trust"]).expect_code(3).stdout;
    assert!(
        changed.contains("changed  .claude/skills/deploy/scripts/deploy.sh") && !changed.contains("new"),
        "{changed}"
    );
}

#[test]
fn skills_are_checked_with_line_and_fix() {
    let environment = Environment::new();
    let project = environment.project();
    file(&project, "s/bom/SKILL.md", &format!("\u{feff}{}", skill("bom", "x")));
    file(&project, "s/find-it/SKILL.md", &skill("history", "x"));
    file(&project, "s/bad/SKILL.md", "---\nname: bad\ndescription: [x\n---\nx\n");
    let check = |path: &str| environment.decode(&["skills", "check", path]);
    assert!(check("s/bom").expect_code(0).stdout.ends_with(": ok\n"));
    let differs = check("s/find-it/SKILL.md").expect_code(0).stdout;
    assert!(differs.contains("SKILL.md:2: the directory is named `find-it`"), "{differs}");
    let bad = check("s/bad").expect_code(1).stdout;
    assert!(bad.starts_with("error: ") && bad.contains("not readable as YAML"), "{bad}");
    let bundled = environment.decode(&["skills", "check", "-o", "json"]).expect_code(0).json();
    assert_eq!(bundled["checked"][0]["diagnostics"], json!([]));
    let all = environment.decode(&["skills", "ls", "-o", "json"]).expect_code(0).json();
    assert_eq!(all["skills"].as_array().map(Vec::len), Some(2), "{all}");
    let shown = environment.decode(&["skills", "show", "review-swarm"]).expect_code(0).stdout;
    assert!(shown.starts_with("# Review swarm"), "{shown}");
}

#[test]
fn skills_are_installed_where_agents_look_and_removed_again() {
    let environment = Environment::new();
    let home = environment.home();
    let none = environment.decode(&["skills", "install"]).expect_code(6);
    assert!(none.stderr.contains("--for claude"), "{}", none.stderr);
    for name in [".claude", ".codex"] {
        fs::create_dir(home.join(name)).expect("the home is ours");
    }
    environment.decode(&["skills", "install"]).expect_code(0);
    let (claude, codex) = (home.join(".claude/skills"), home.join(".agents/skills"));
    let ours = include_str!("../../skills/subagent-tmux/SKILL.md");
    for skills in [&claude, &codex] {
        assert_eq!(read(&skills.join("subagent-tmux/SKILL.md")), ours);
        assert!(skills.join("review-swarm/SKILL.md").is_file());
    }
    // A copy of ours is no second skill to ourselves.
    let listed = environment.decode(&["skills"]).expect_code(0);
    assert_eq!((listed.stdout.matches("(bundled)").count(), listed.stderr.as_str()), (2, ""));

    fs::write(claude.join("subagent-tmux/SKILL.md"), "mine").expect("the home is ours");
    let kept = environment.decode(&["skills", "install", "-o", "json"]).expect_code(1);
    assert_eq!(kept.json()["copies"][0]["outcome"], "kept_changed");
    assert!(kept.stderr.contains("--force"), "{}", kept.stderr);
    environment.decode(&["skills", "uninstall"]).expect_code(1);
    assert_eq!(read(&claude.join("subagent-tmux/SKILL.md")), "mine");
    assert!(!claude.join("review-swarm").exists() && !codex.join("subagent-tmux").exists());
    environment.decode(&["skills", "install", "--force", "--for", "claude,gemini", "subagent-tmux"]).expect_code(0);
    assert_eq!(read(&claude.join("subagent-tmux/SKILL.md")), ours);
    assert_eq!(read(&home.join(".gemini/skills/subagent-tmux/SKILL.md")), ours);
    environment.decode(&["skills", "uninstall", "--for", "claude,gemini", "subagent-tmux"]).expect_code(0);
    assert!(!claude.join("subagent-tmux").exists() && !home.join(".gemini/skills/subagent-tmux").exists());
}
