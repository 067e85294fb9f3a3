//! What a child may do: rules, modes, questions, and the boundary that the kernel holds.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::environment::{Environment, Run, looks, read, wait_for};
use crate::model_server::{Call, Script, Step};

const MODEL: &str = "openai/test-model";
const TASK: &str = "Where does it start, and why?";
const CANARY: &str = "canary-of-a-private-key";
const PROGRAM: &str = env!("CARGO_BIN_EXE_decode");

fn bash(line: &str) -> Call {
    Call::new("call-1", "bash", &json!({"command": line}))
}

/// Makes these calls together, and then reports.
fn calls(calls: Vec<Call>) -> Script {
    let report = Step::text("Tried, see src/lib.rs:1.");
    Script::steps(vec![Step::calls(calls), report]).strict()
}

/// One call after the other, each in a turn of its own.
fn turns(lines: &[&str]) -> Script {
    let step =
        |(number, line): (usize, &&str)| Step::call(&format!("call-{number}"), "bash", &json!({"command": line}));
    let steps = lines.iter().enumerate().map(step).chain([Step::text("Tried, see src/lib.rs:1.")]);
    Script::steps(steps.collect()).strict()
}

/// A home with a secret in it.
fn with_secret(environment: &Environment) {
    let directory = environment.home().join(".ssh");
    fs::create_dir_all(&directory).expect("the home is ours");
    fs::write(directory.join("id_x"), CANARY).expect("the home is ours");
}

fn build<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let words = ["fan", "--agent", "build", "--model", MODEL, "-o", "json"];
    words.into_iter().chain(more.iter().copied()).chain([TASK]).collect()
}

/// The results the model was given, in their order.
fn results(run: &Run<'_>) -> Vec<(bool, String)> {
    let session = run.session(1, 1);
    let tools = session.iter().filter(|record| record["type"] == "tool");
    tools.map(|record| (record["ok"] == true, record["output"].as_str().unwrap_or_default().to_owned())).collect()
}

fn show(environment: &Environment, branch_of: &Value, path: &str) -> String {
    let branch = branch_of["children"][0]["branch"].as_str().unwrap_or_else(|| panic!("a branch: {branch_of}"));
    environment.git(&["show", &format!("{branch}:{path}")])
}

#[test]
fn a_writer_works_in_its_workspace_unasked_and_reaches_nothing_outside() {
    let mut environment = Environment::with_model(turns(&[
        "echo inside > inside.txt && mkdir -p a/b && echo x > a/b/c && mv a/b/c a/d && cat a/d && git status --short",
        "echo x > $HOME/out",
        "echo x > $OUTSIDE/out",
        "cat $HOME/.ssh/id_x; ls $HOME/.ssh",
        "cat $STATE_PATH/key",
        "cd / && rm -rf $HOME/keep; ls $HOME/keep $OUTSIDE",
        "echo $TMPDIR && echo private > $TMPDIR/mine && cat $TMPDIR/mine",
        "kill -0 $PPID && echo reached; cat /proc/$PPID/environ /proc/$PPID/mem | head -c 100 | wc -c",
    ]));
    with_secret(&environment);
    fs::write(environment.home().join("keep"), "kept").expect("the home is ours");
    environment.set("STATE_PATH", &environment.state().to_string_lossy());
    environment.set("OUTSIDE", &environment.project().to_string_lossy());
    let json = environment.decode(&build(&[])).expect_code(0).json();
    let told = results(&environment.only_run());
    let (ok, text) = &told[0];
    assert!(*ok && text.contains("inside.txt"), "{text}");
    // What is outside is not there, read-only or not to be opened, by what the kernel can do.
    let refusals = ["Permission denied", "No such file or directory", "Read-only file system"];
    for (number, (ok, text)) in told.iter().enumerate().take(6).skip(1) {
        assert!(!ok && refusals.iter().any(|words| text.contains(words)), "{number}: {text}");
    }
    assert!(told[6].0 && told[6].1.contains("private"), "{:?}", told[6]);
    assert!(!told[7].1.contains("reached") && told[7].1.contains("\n0\n"), "{:?}", told[7]);
    assert!(environment.home().join("keep").exists() && !environment.home().join("out").exists());
    assert!(!environment.project().join("out").exists());
    let asked = environment.model().requests().iter().map(|request| request.body.to_string()).collect::<String>();
    assert!(!asked.contains(CANARY) && !asked.contains(read(&environment.state().join("key")).trim()));
    assert_eq!(show(&environment, &json, "inside.txt"), "inside\n");
    assert_eq!(show(&environment, &json, "a/d"), "x\n");
}

#[test]
fn paths_outside_are_neither_read_nor_written_by_tools_in_any_mode() {
    for mode in ["default", "edit", "bypass"] {
        let environment = Environment::new();
        with_secret(&environment);
        let key = environment.home().join(".ssh/id_x").to_string_lossy().into_owned();
        let link = "src/link";
        std::os::unix::fs::symlink(&key, environment.project().join(link)).expect("the project is ours");
        environment.git(&["add", "."]);
        environment.git(&["commit", "-q", "-m", "a link"]);
        let script = calls(vec![
            Call::new("call-1", "read", &json!({"path": key})),
            Call::new("call-2", "read", &json!({"path": link})),
            Call::new("call-3", "read", &json!({"path": "../../../../../../../../etc/passwd"})),
            Call::new("call-4", "write", &json!({"path": link, "content": "overwritten"})),
            Call::new("call-5", "write", &json!({"path": "../outside.txt", "content": "outside"})),
            Call::new("call-6", "grep", &json!({"pattern": "canary", "path": "/"})),
        ]);
        let environment = environment.and_model(script);
        environment.decode(&build(&["--permission-mode", mode])).expect_code(0);
        let told = results(&environment.only_run());
        assert_eq!(told.len(), 6, "{told:?}");
        assert!(told.iter().all(|(ok, _)| !ok), "{mode}: {told:?}");
        assert!(told.iter().all(|(_, text)| !text.contains(CANARY)), "{mode}: {told:?}");
        assert_eq!(read(key.as_ref()), CANARY);
    }
}

#[test]
fn a_deny_rule_holds_in_bypass_mode_however_the_command_is_dressed() {
    let environment = Environment::with_model(turns(&[
        "rm README.md",
        "cd . && FOO=1 rm README.md",
        "bash -c 'rm README.md'",
        "true; (rm -f README.md) | cat",
        "echo free",
    ]));
    let words = ["--permission-mode", "bypass", "--deny", "bash(rm *)", "--deny", "write(src/**)"];
    environment.decode(&build(&words)).expect_code(0);
    let told = results(&environment.only_run());
    for (ok, text) in &told[..4] {
        assert!(!ok && text.contains("denies"), "{text}");
    }
    assert!(told[4].0, "{:?}", told[4]);
}

#[test]
fn plan_mode_changes_nothing_and_edit_mode_edits() {
    let script = || {
        calls(vec![
            Call::new("call-1", "write", &json!({"path": "NEW.md", "content": "new\n"})),
            Call::new("call-2", "bash", &json!({"command": "echo more >> NEW.md"})),
            Call::new("call-3", "read", &json!({"path": "README.md"})),
        ])
    };
    let environment = Environment::with_model(script());
    let json = environment.decode(&build(&["--permission-mode", "plan"])).expect_code(0).json();
    let told = results(&environment.only_run());
    assert!(!told[0].0 && !told[1].0 && told[2].0, "{told:?}");
    assert!(told[0].1.contains("plan mode") && told[1].1.contains("plan mode"), "{told:?}");
    assert_eq!(json["children"][0]["branch"], Value::Null, "nothing was changed: {json}");

    let environment = Environment::with_model(script());
    let json = environment.decode(&build(&["--permission-mode", "edit"])).expect_code(0).json();
    assert_eq!(show(&environment, &json, "NEW.md"), "new\nmore\n");
}

#[test]
fn a_reviewer_reads_with_git_in_the_shared_tree_and_changes_nothing() {
    let environment = Environment::with_model(turns(&[
        "git log --oneline && git diff HEAD && git status --short",
        "git commit --allow-empty -m x",
        "git -c core.pager='touch touched' log",
        "touch touched",
    ]));
    environment.write("README.md", "# Changed by the user\n");
    let head = environment.git(&["rev-parse", "HEAD"]);
    let words = ["fan", "--agent", "code-reviewer", "--model", MODEL, "-o", "json", TASK];
    let json = environment.decode(&words).expect_code(0).json();
    assert_eq!(json["children"][0]["workspace"], "shared", "{json}");
    let told = results(&environment.only_run());
    assert!(told[0].0 && told[0].1.contains("Changed by the user"), "it sees what is not committed: {:?}", told[0]);
    for (ok, text) in &told[1..] {
        assert!(!ok, "{text}");
    }
    assert_eq!(environment.git(&["rev-parse", "HEAD"]), head);
    assert!(!environment.project().join("touched").exists());
}

/// A reviewer that wants to run what no rule allows, and then says what came of it.
fn asks() -> Script {
    let wants = Step::calls(vec![bash("wc -l src/lib.rs")]);
    Script::function(move |request, made| match made {
        0 => wants.clone(),
        _ if request.body.to_string().contains("2 src/lib.rs") => Step::text("It has 2 lines: src/lib.rs:1."),
        _ => Step::text("I was not let: src/lib.rs:1."),
    })
    .strict()
}

fn asking(environment: &Environment) -> Run<'_> {
    environment.detached(&["--ask", "--agent", "code-reviewer", "--model", MODEL, TASK])
}

fn until_it_asks(environment: &Environment) {
    wait_for("the question is shown", || {
        let ps = environment.decode(&["ps"]).expect_code(0).stdout;
        (ps.contains("asks you") || ps.contains("May it run")).then_some(())
    });
}

#[test]
fn a_question_is_shown_by_ps_and_answered_by_a_command() {
    for (answer, report) in [("yes", "It has 2 lines"), ("no", "I was not let")] {
        let environment = Environment::with_model(asks());
        let run = asking(&environment);
        until_it_asks(&environment);
        let asked = run.show();
        let question = asked["children"][0]["question"]["text"].as_str().unwrap_or_default();
        assert!(question.contains("wc -l src/lib.rs"), "{asked}");
        environment.decode(&["answer", &run.child(1), answer]).expect_code(0);
        let output = run.wait().expect_code(0);
        assert!(output.stdout.contains(report), "{answer}: {}", output.stdout);
        let late = environment.decode(&["answer", &run.child(1), "yes"]).expect_code(1);
        assert!(late.stderr.contains("asks nothing"), "{}", late.stderr);
    }
}

#[test]
fn a_question_is_answered_from_the_window_and_no_with_words_reaches_the_model() {
    let environment = Environment::with_model(asks());
    let run = asking(&environment);
    until_it_asks(&environment);
    let pane = run.claimed(1, 1, "pane");
    wait_for("the window shows it", || {
        let shown = environment.tmux(environment.socket(), &["capture-pane", "-p", "-t", &pane]);
        shown.contains("May it run").then_some(())
    });
    environment.tmux(environment.socket(), &["send-keys", "-t", &pane, "-l", "count by reading it"]);
    environment.tmux(environment.socket(), &["send-keys", "-t", &pane, "Enter"]);
    let output = run.wait().expect_code(0);
    assert!(output.stdout.contains("I was not let"), "{}", output.stdout);
    let told = results(&run);
    assert!(told[0].1.contains("count by reading it") && told[0].1.contains("pts/"), "{told:?}");
}

#[test]
fn a_question_that_nobody_can_answer_is_refused_at_once_with_a_reason() {
    let environment = Environment::with_model(asks());
    let words = ["fan", "--agent", "code-reviewer", "--model", MODEL, TASK];
    let began = Instant::now();
    let output = environment.decode(&words).expect_code(0);
    assert!(output.stdout.contains("I was not let"), "{}", output.stdout);
    let asked = environment.model().requests();
    let waited = asked[1].at - asked[0].at;
    assert!(waited < Duration::from_secs(1), "{waited:?} of {:?}", began.elapsed());
    assert!(results(&environment.only_run())[0].1.contains("nobody is there"));
}

#[test]
fn a_command_of_a_child_starts_no_children_and_finds_neither_key_nor_state() {
    let mut environment = Environment::with_model(turns(&[
        "decode fan --model offline/explorer 'Where does it start, and why?'",
        "env -u DECODE_DEPTH -u DECODE_PARENT decode run --agent explore 'Where does it start, and why?'",
        "DECODE_STATE=$STATE_PATH decode ps",
        "DECODE_STATE=$STATE_PATH decode stop last",
        "env",
    ]));
    // Where a toolchain lies, which a command may run.
    let directory = environment.home().join(".cargo/bin");
    fs::create_dir_all(&directory).expect("the home is ours");
    let program = directory.join("decode");
    fs::hard_link(PROGRAM, &program).or_else(|_| fs::copy(PROGRAM, &program).map(drop)).expect("there is room");
    let path = std::env::var("PATH").unwrap_or_default();
    environment.set("PATH", &format!("{}:{path}", directory.display()));
    environment.set("STATE_PATH", &environment.state().to_string_lossy());
    environment.set("OPENAI_API_KEY", "the-secret-itself");
    environment.decode(&build(&["--permission-mode", "bypass"])).expect_code(0);
    let told = results(&environment.only_run());
    assert!(!told[0].0 && told[0].1.contains("may not start children"), "{:?}", told[0]);
    for (ok, text) in &told[1..4] {
        assert!(!ok && text.contains("error:"), "{text}");
    }
    assert!(told[4].0 && told[4].1.contains("DECODE_DEPTH=1"), "{:?}", told[4]);
    let all: String = told.iter().map(|(_, text)| text.as_str()).collect();
    assert!(!all.contains("the-secret-itself") && !all.contains("OPENAI_API_KEY="), "{all}");
    let runs = environment.decode(&["ps", "--all", "--json"]).expect_code(0).json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs}");
}

#[test]
fn a_reader_is_offered_no_tool_that_writes_and_a_call_of_one_is_corrected() {
    let wants = Step::call("call-1", "bash", &json!({"command": "touch touched"}));
    let environment = Environment::with_model(Script::steps(vec![wants, looks(), Step::text("src/lib.rs:1.")]));
    environment.decode(&["fan", "--model", MODEL, "--permission-mode", "bypass", TASK]).expect_code(0);
    let offered = environment.model().requests()[0].body["tools"].to_string();
    assert!(!offered.contains("bash") && !offered.contains("write"), "{offered}");
    let told = results(&environment.only_run());
    assert!(!told[0].0 && told[0].1.contains("no tool `bash`"), "{told:?}");
}

#[test]
fn a_command_reaches_no_socket_outside_not_even_the_server_of_its_own_window() {
    let mut environment = Environment::with_model(turns(&[
        "tmux -S $THEIRS run-shell \"touch $HOME/escaped\"; tmux -S $THEIRS ls",
        "tmux -S $OTHER run-shell \"touch $HOME/escaped\"; tmux -S $OTHER ls",
        "git status --short && echo fine",
    ]));
    let theirs = format!("{}/t/tmux-{}", environment.root().display(), nix::unistd::geteuid());
    environment.set("THEIRS", &format!("{theirs}/{}", environment.socket()));
    // A server that lies where no table names it.
    let other = environment.root().join("own.sock").to_string_lossy().into_owned();
    environment.set("OTHER", &other);
    let server = environment.plain("tmux").args(["-S", &other, "-f", "/dev/null", "new-session", "-d"]).status();
    assert!(server.is_ok_and(|status| status.success()));
    environment.decode(&build(&["--permission-mode", "bypass"])).expect_code(0);
    environment.plain("tmux").args(["-S", &other, "kill-server"]).status().expect("tmux is installed");
    let told = results(&environment.only_run());
    assert!(!told[0].0 && !told[1].0, "{told:?}");
    assert!(!environment.home().join("escaped").exists(), "{told:?}");
    assert!(told[2].0, "all else goes on: {told:?}");
}

#[test]
fn only_in_bypass_mode_a_command_speaks_to_the_network() {
    for (mode, reaches) in [("default", false), ("edit", false), ("bypass", true)] {
        let mut environment = Environment::with_model(turns(&["exec 3<>/dev/tcp/127.0.0.1/$MODEL_PORT && echo it is"]));
        let address = environment.model().url();
        environment.set("MODEL_PORT", address.trim_end_matches("/v1").rsplit(':').next().unwrap_or_default());
        environment.decode(&build(&["--permission-mode", mode])).expect_code(0);
        let told = results(&environment.only_run());
        assert_eq!((told[0].0, told[0].1.contains("it is\n")), (reaches, reaches), "{mode}: {told:?}");
    }
}
