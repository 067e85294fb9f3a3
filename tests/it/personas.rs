//! Personas, the trust in a project that brings its own, and the rules that hold whoever works.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::environment::{Environment, read, wait_for};
use crate::model_server::{Call, Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";

/// Looks once in each run, and then reports.
fn reader() -> Script {
    caller(Call::new("call-1", "read", &json!({"path": "src/lib.rs"})))
}

/// Makes a call in each run, and then reports.
fn caller(call: Call) -> Script {
    Script::function(move |request, _| {
        let last = request.body["messages"].as_array().and_then(|messages| messages.last()).cloned();
        if last.is_some_and(|message| message["role"] == "tool") {
            Step::text("Tried, see src/lib.rs:1.")
        } else {
            Step::calls(vec![call.clone()])
        }
    })
}

fn bash(line: &str) -> Call {
    Call::new("call-1", "bash", &json!({"command": line}))
}

/// A file below a directory that may not be there yet.
fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("the name is relative")).expect("the directory is ours");
    fs::write(&path, text).expect("the directory is ours");
    path
}

fn agent(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Answers for {name}.\n{more}\n---\nYou are the {name} of the test.\n")
}

fn settings(environment: &Environment, text: &str) {
    file(&environment.home(), ".config/decode/settings.yaml", text);
}

/// Names of the tools that the last request offered.
fn offered(environment: &Environment) -> Vec<String> {
    let requests = environment.model().requests();
    let tools = requests.last().expect("the model was asked").body["tools"].clone();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
    tools.as_array().into_iter().flatten().map(name).collect()
}

fn system(environment: &Environment) -> String {
    let requests = environment.model().requests();
    requests.last().expect("the model was asked").body["messages"][0].to_string()
}

/// The results the model was given by the only child of a run.
fn results(environment: &Environment, run: &str) -> Vec<(bool, String)> {
    let session = environment.run(run).session(1, 1);
    let tools = session.iter().filter(|record| record["type"] == "tool");
    tools.map(|record| (record["ok"] == true, record["output"].as_str().unwrap_or_default().to_owned())).collect()
}

/// One run of one child; its name.
fn run(environment: &Environment, more: &[&str]) -> (String, String) {
    let words = ["run", "--model", MODEL, "-o", "json", TASK];
    let output = environment.decode(&[&words[..], more].concat()).expect_code(0);
    (output.json()["run"].as_str().unwrap_or_default().to_owned(), output.stderr)
}

#[test]
fn a_persona_of_the_project_replaces_a_bundled_one_only_while_it_is_trusted_as_it_is() {
    let environment = Environment::with_model(reader());
    let persona = file(&environment.project(), ".decode/agents/explore.md", &agent("explore", "tools: [read]"));
    let untrusted = |stderr: &str| stderr.matches("brings 1 persona that is not trusted").count();

    let (_, stderr) = run(&environment, &["--agent", "explore"]);
    assert_eq!(untrusted(&stderr), 1, "{stderr}");
    assert!(offered(&environment).contains(&"grep".to_owned()) && !system(&environment).contains("of the test"));

    let asked = environment.decode(&["trust"]).expect_code(3);
    assert!(asked.stdout.contains("replaces the bundled one") && asked.stderr.contains("--yes"), "{}", asked.stdout);
    environment.decode(&["trust", "--yes"]).expect_code(0);
    let (_, stderr) = run(&environment, &["--agent", "explore"]);
    assert_eq!(untrusted(&stderr), 0, "{stderr}");
    assert_eq!(offered(&environment), ["read"]);
    assert!(system(&environment).contains("You are the explore of the test."));

    let more = agent("explore", "tools: [read, bash]\nmode: bypass");
    fs::write(&persona, &more).expect("the project is ours");
    let (_, stderr) = run(&environment, &["--agent", "explore"]);
    assert_eq!(untrusted(&stderr), 1, "{stderr}");
    assert!(offered(&environment).contains(&"grep".to_owned()));

    environment.decode(&["trust", "--yes"]).expect_code(0);
    environment.decode(&["trust", "--revoke"]).expect_code(0);
    run(&environment, &["--agent", "explore"]);
    assert!(offered(&environment).contains(&"grep".to_owned()));
}

#[test]
fn trust_shows_only_what_is_new_or_changed_and_counts_the_rest() {
    let environment = Environment::new();
    let project = environment.project();
    file(&project, ".decode/agents/one.md", &agent("one", "tools: [read]"));
    let two =
        file(&project, ".claude/agents/two.md", &agent("two", "tools: Read, Bash\npermissionMode: bypassPermissions"));
    file(&project, ".claude/agents/README.md", "# Agents\n");
    file(&project, "AGENTS.md", "Be kind.\n");
    let first = environment.decode(&["trust", "--yes", "-o", "json"]).expect_code(0).json();
    let paths: Vec<&str> =
        first["files"].as_array().into_iter().flatten().filter_map(|file| file["path"].as_str()).collect();
    assert_eq!(paths, [".claude/agents/two.md", ".decode/agents/one.md"]);
    assert!(first["files"][0]["does"].to_string().contains("asks for nothing (bypass)"), "{first}");

    let again = environment.decode(&["trust"]).expect_code(0).stdout;
    assert!(again.contains("is trusted as it is (2 files)"), "{again}");
    fs::write(&two, agent("two", "tools: Read")).expect("the project is ours");
    let changed = environment.decode(&["trust"]).expect_code(3).stdout;
    assert!(changed.contains("changed  .claude/agents/two.md") && !changed.contains("one.md"), "{changed}");
    assert!(changed.contains("1 file is unchanged and trusted"), "{changed}");
    fs::remove_file(&two).expect("the project is ours");
    let gone = environment.decode(&["trust"]).expect_code(0).stdout;
    assert!(gone.contains("gone     .claude/agents/two.md"), "{gone}");
    let records = fs::read_dir(environment.state().join("projects")).expect("something was decided").flatten();
    let records: Vec<PathBuf> = records.map(|entry| entry.path()).filter(|path| path.extension().is_some()).collect();
    assert!(records.len() == 1 && read(&records[0]).ends_with("  .decode/agents/one.md\n"), "{records:?}");
}

#[test]
fn trust_asks_at_a_terminal_and_takes_no_for_an_answer() {
    let environment = Environment::new();
    file(&environment.project(), ".decode/agents/mine.md", &agent("mine", "tools: [read]"));
    let socket = environment.other_socket();
    let program = env!("CARGO_BIN_EXE_decode");
    for (answer, code, trusted) in [("n", 1, false), ("y", 0, true)] {
        let done = environment.root().join(format!("done-{answer}"));
        let line = format!("'{program}' trust; echo $? > '{}'", done.display());
        let project = environment.project();
        environment
            .tmux(&socket, &["new-session", "-d", "-s", answer, "-x", "200", "-c", &project.to_string_lossy(), &line]);
        wait_for("it asks", || {
            let shown = environment.tmux(&socket, &["capture-pane", "-p", "-t", answer]);
            (shown.contains(".decode/agents/mine.md") && shown.contains("[y/N]")).then_some(())
        });
        environment.tmux(&socket, &["send-keys", "-t", answer, answer, "Enter"]);
        let said = wait_for("it ends", || Some(read(&done)).filter(|text| !text.is_empty()));
        assert_eq!(said.trim(), code.to_string());
        let listed = environment.decode(&["agents"]).expect_code(0).stdout;
        let line = listed.lines().find(|line| line.starts_with("mine ")).unwrap_or_default();
        assert_eq!(line.contains("not trusted"), !trusted, "{listed}");
    }
}

#[test]
fn settings_of_a_project_count_when_trusted_and_never_spend() {
    let environment = Environment::with_model(caller(Call::new("call-1", "read", &json!({"path": "src/lib.rs"}))));
    let path = file(&environment.project(), ".decode/settings.yaml", "permissions: {deny: ['read(src/**)']}\n");
    let words = ["--agent", "explore", "--retries", "0"];
    let (before, stderr) = run(&environment, &words);
    assert!(results(&environment, &before)[0].0 && stderr.contains("is not used"), "{stderr}");
    let shown = environment.decode(&["trust", "--yes"]).expect_code(0).stdout;
    assert!(shown.contains("settings: denies read(src/**)"), "{shown}");
    let output = environment.decode(&[&["run", "--model", MODEL, TASK][..], &words].concat());
    assert!(!output.stderr.contains("is not used"), "{}", output.stderr);
    let asked = environment.model().requests();
    assert!(asked.last().expect("it was asked").body["messages"].to_string().contains("denies"), "a deny rule holds");

    fs::write(&path, "budget: usd=500\n").expect("the project is ours");
    let shown = environment.decode(&["trust", "--yes"]).expect_code(0).stdout;
    assert!(shown.contains("a project may not set `budget`"), "{shown}");
    let refused = environment.decode(&["run", "--model", MODEL, TASK]).expect_code(2);
    assert!(refused.stderr.contains("a project may not set `budget`"), "{}", refused.stderr);
}

#[test]
fn a_persona_for_claude_code_in_home_works_as_it_is_written() {
    let lists =
        ["tools:\n  - Read\n  - Grep", "tools: [Read, Grep]", "tools: \"Read, Grep\"", "tools: Read, Grep # no Write"];
    for (number, list) in lists.into_iter().enumerate() {
        let environment = Environment::with_model(reader());
        settings(&environment, "models: {cheap: openai/small}\n");
        let text = agent("scout", &format!("{list}\nmodel: haiku\ncolor: blue"));
        file(&environment.home(), ".claude/agents/scout.md", &text);
        // A note among them is no agent and stops nothing.
        file(&environment.home(), ".claude/agents/notes.md", "# Notes\n");
        environment.decode(&["fan", "--agent", "scout", TASK]).expect_code(0);
        assert_eq!(offered(&environment), ["read", "grep"], "{number}");
        let requests = environment.model().requests();
        assert_eq!(requests[0].body["model"], "small");
        let listed = environment.decode(&["agents"]).expect_code(0);
        assert!(listed.stderr.contains("notes.md:1: skipped: no front matter"), "{}", listed.stderr);
    }
}

#[test]
fn a_file_is_checked_with_line_and_fix_and_fails_only_for_errors() {
    let environment = Environment::new();
    let bad =
        "---\nname: a\ndescription: Use this\n<example>\nuser: hi\nassistant: ok\n</example>\ntools: Read\n---\nx\n";
    file(&environment.project(), "bad.md", bad);
    file(
        &environment.project(),
        "colon.md",
        &agent("a", "tools: [read]").replace("Answers", "Use for: a, b; it answers"),
    );
    let output = environment.decode(&["agents", "check", "bad.md"]).expect_code(1);
    assert!(output.stdout.contains("error: bad.md:5: not readable as YAML"), "{}", output.stdout);
    let output = environment.decode(&["agents", "check", "colon.md"]).expect_code(0);
    assert!(output.stdout.contains("warning: colon.md:3:") && output.stdout.contains("quotes"), "{}", output.stdout);
    let both = environment.decode(&["agents", "check", "bad.md", "colon.md", "-o", "json"]).expect_code(1).json();
    assert_eq!(both["checked"][0]["diagnostics"][0]["line"], 5);
    assert_eq!(both["checked"][1]["diagnostics"][0]["severity"], "warning");
    environment.decode(&["agents", "check", "nothing.md"]).expect_code(2);
}

#[test]
fn what_a_persona_may_do_is_told_with_the_rules_of_the_user() {
    let environment = Environment::new();
    settings(&environment, "permissions: {allow: ['bash(wc *)'], deny: ['bash(git push *)', 'web_fetch']}\n");
    let told = environment.decode(&["agents", "check", "code-reviewer", "-o", "json"]).expect_code(0).json();
    let tool = |name: &str| {
        let tools = told["checked"][0]["tools"].as_array().cloned().unwrap_or_default();
        tools.into_iter().find(|tool| tool["tool"] == name).unwrap_or_else(|| panic!("{name}: {told}"))
    };
    assert_eq!(tool("bash")["usually"], "asks in mode default");
    assert_eq!(tool("bash")["rules"], json!(["denied: bash(git push *)", "free: bash(git *)", "free: bash(wc *)"]));
    assert_eq!(tool("read")["usually"], "free inside the workspace");
    assert!(tool("web_fetch")["usually"].to_string().contains("denied"), "{told}");
    let plan = environment.decode(&["agents", "check", "plan"]).expect_code(0).stdout;
    assert!(!plan.contains("bash") && plan.contains("grep"), "{plan}");
    let unknown = environment.decode(&["agents", "check", "exlpore"]).expect_code(2);
    assert!(unknown.stderr.contains("did you mean `explore`?"), "{}", unknown.stderr);
}

#[test]
fn the_users_rules_reach_every_child_and_a_denial_holds_in_bypass_mode() {
    let environment = Environment::with_model(caller(bash("rm -f README.md")));
    settings(&environment, "permissions: {deny: ['bash(rm *)']}\n");
    let (name, _) = run(&environment, &["--agent", "build", "--permission-mode", "bypass"]);
    let told = results(&environment, &name);
    assert!(!told[0].0 && told[0].1.contains("denies"), "{told:?}");

    let environment = Environment::with_model(caller(bash("wc -l src/lib.rs")));
    let (name, _) = run(&environment, &["--agent", "code-reviewer"]);
    assert!(!results(&environment, &name)[0].0, "nobody is there to ask");
    settings(&environment, "permissions: {allow: ['bash(wc *)']}\n");
    let (name, _) = run(&environment, &["--agent", "code-reviewer"]);
    assert!(results(&environment, &name)[0].1.contains("2 src/lib.rs"), "{:?}", results(&environment, &name));
}

#[test]
fn what_was_answered_with_always_holds_in_this_project_and_in_no_other() {
    let environment = Environment::with_model(caller(bash("wc -l src/lib.rs")));
    file(&environment.project(), ".decode/agents/mine.md", &agent("mine", "tools: [read]"));
    environment.decode(&["trust", "--yes"]).expect_code(0);
    let projects = environment.state().join("projects");
    let record = fs::read_dir(&projects).expect("something was decided").flatten().map(|entry| entry.path());
    let record = record.filter(|path| path.extension().is_some()).last().expect("there is a record");
    let with_rule = read(&record).replace("allow: []", "allow:\n- bash(wc *)");
    fs::write(&record, &with_rule).expect("the state is ours");
    let words = ["--agent", "code-reviewer"];
    let (name, _) = run(&environment, &words);
    assert!(results(&environment, &name)[0].1.contains("2 src/lib.rs"), "{:?}", results(&environment, &name));
    let told = environment.decode(&["agents", "check", "code-reviewer"]).expect_code(0).stdout;
    assert!(told.contains("free: bash(wc *)"), "{told}");

    let other = environment.root().join("other");
    environment.git(&["clone", "-q", ".", &other.to_string_lossy()]);
    let (name, _) = run(&environment, &[&words[..], &["-C", &other.to_string_lossy()]].concat());
    assert!(!results(&environment, &name)[0].0, "a clone is another project");

    fs::write(&record, "garbage").expect("the state is ours");
    let refused = environment.decode(&["run", "--model", MODEL, TASK]).expect_code(6);
    assert!(refused.stderr.contains("damaged") && refused.stderr.contains("--revoke"), "{}", refused.stderr);
    environment.decode(&["trust", "--revoke"]).expect_code(0);
    let (name, _) = run(&environment, &words);
    assert!(!results(&environment, &name)[0].0, "what was remembered is forgotten");
}
