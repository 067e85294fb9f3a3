//! A person at a terminal: real keys through a real tmux, and what they see.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::environment::{Environment, looks, read, terminate, wait_for};
use crate::model_server::{Script, Step};

const PROGRAM: &str = env!("CARGO_BIN_EXE_decode");
const MODEL: &str = "openai/test-model";

/// A terminal of the person's own, with a line of a shell running in it.
struct Person<'a> {
    environment: &'a Environment,
    socket: String,
}

impl<'a> Person<'a> {
    /// Runs `decode WORDS` in a terminal of this size; what it left is said when it ends.
    fn starts(environment: &'a Environment, columns: u32, rows: u32, words: &str) -> Self {
        Self::runs(environment, columns, rows, &format!("{PROGRAM} {words}"))
    }

    fn runs(environment: &'a Environment, columns: u32, rows: u32, line: &str) -> Self {
        let person = Self { environment, socket: environment.other_socket() };
        let line = and_stays(line);
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let words = ["new-session", "-d", "-s", "mine", "-x", &columns, "-y", &rows, &line];
        person.tmux(&words);
        person
    }

    /// The next command in the same terminal.
    fn starts_again(&self, words: &str) {
        self.tmux(&["respawn-pane", "-k", "-t", "mine", &and_stays(&format!("{PROGRAM} {words}"))]);
    }

    fn goes(self) {
        self.tmux(&["kill-server"]);
    }

    fn tmux(&self, words: &[&str]) -> String {
        self.environment.tmux(&self.socket, words)
    }

    /// What is on the screen now.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "mine"])
    }

    /// All that was ever written, lines broken by the terminal joined.
    fn scrollback(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-", "-t", "mine"])
    }

    /// Waits until the screen shows this.
    fn sees(&self, part: &str) -> String {
        let mut last = String::new();
        let end = std::time::Instant::now() + crate::environment::PATIENCE;
        while std::time::Instant::now() < end {
            last = self.screen();
            if last.contains(part) {
                return last;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("`{part}` is not seen on:\n{last}");
    }

    /// Waits until the screen shows this no more.
    fn sees_no_more(&self, part: &str) {
        wait_for(&format!("`{part}` is gone"), || (!self.screen().contains(part)).then_some(()));
    }

    fn key(&self, name: &str) {
        self.tmux(&["send-keys", "-t", "mine", name]);
    }

    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-t", "mine", "-l", "--", text]);
    }

    fn says(&self, text: &str) {
        self.types(text);
        self.key("Enter");
    }

    /// Pastes as a terminal does.
    fn pastes(&self, text: &str) {
        let path = self.environment.root().join("pasted");
        fs::write(&path, text).expect("the directory is ours");
        self.tmux(&["load-buffer", &path.to_string_lossy()]);
        self.tmux(&["paste-buffer", "-p", "-t", "mine"]);
    }
}

/// The terminal is there after the command, and says how it was left.
fn and_stays(line: &str) -> String {
    format!("{line}; echo \"left with $?\"; stty -a; exec sleep 600")
}

fn bash(line: &str) -> Step {
    Step::call("call-1", "bash", &json!({"command": line}))
}

#[test]
fn a_task_is_typed_and_the_whole_transcript_stays_in_the_scrollback() {
    let long: String = (1..=60).map(|number| format!("- point {number}\n")).collect();
    let script = Script::steps(vec![looks(), Step::text(&format!("# Found\n\n{long}")), Step::text("And **again**.")]);
    let environment = Environment::with_model(script.strict());
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL}"));
    person.sees("what is to be done?");
    let runs = fs::read_dir(environment.state().join("runs")).map_or(0, Iterator::count);
    assert_eq!(runs, 0, "nothing is begun before there is a task");
    person.says("Where does it start?");
    person.sees("waits for you");
    person.says("once more");
    person.sees("And again.");
    let all = person.scrollback();
    for part in ["decode 0.", "> Where does it start?", "• read src/lib.rs", "# Found", "> once more", "And again."] {
        assert_eq!(all.matches(part).count(), 1, "{part}: {all}");
    }
    for number in 1..=60 {
        assert_eq!(all.matches(&format!("- point {number}\n")).count(), 1, "{number}: {all}");
    }
    // What is drawn anew leaves no trace above.
    assert_eq!(all.matches("what is to be done?").count(), 0, "{all}");
    assert_eq!(all.matches("waits for you").count(), 1, "{all}");
    person.says("/quit");
    let left = person.sees("left with 0");
    assert!(left.contains("goes on with it"), "{left}");
    wait_for("the terminal echoes again", || person.screen().contains(" echo ").then_some(()));
    let run = environment.only_run();
    let asked: Vec<String> =
        run.session(1, 1).iter().filter(|r| r["type"] == "user").map(|r| r["text"].to_string()).collect();
    assert!(asked.iter().any(|text| text.contains("once more")), "{asked:?}");
}

#[test]
fn what_needs_permission_is_asked_on_the_screen_and_a_key_answers() {
    let script =
        Script::steps(vec![bash("echo was-run"), Step::text("Done."), bash("echo never"), Step::text("Well.")]);
    let environment = Environment::with_model(script);
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL} --workspace shared"));
    person.sees("what is to be done?");
    person.says("say it");
    let asked = person.sees("[y] once");
    assert!(asked.contains("echo was-run") && asked.contains("asks you"), "{asked}");
    person.types("y");
    person.sees("Done.");
    person.says("again");
    person.sees("[y] once");
    person.says("use printf instead");
    person.sees("Well.");
    let told: Vec<String> = tools(&environment);
    assert!(told[0].contains("was-run") && !told[0].contains("said"), "{told:?}");
    assert!(told[1].contains("use printf instead"), "{told:?}");
}

fn tools(environment: &Environment) -> Vec<String> {
    let session = environment.only_run().session(1, 1);
    session.iter().filter(|record| record["type"] == "tool").map(|record| record["output"].to_string()).collect()
}

#[test]
fn escape_ends_a_command_and_holds_until_a_line_goes_on() {
    let script = Script::steps(vec![bash("echo began; sleep 300"), Step::text("Stopped, and went on.")]);
    let environment = Environment::with_model(script);
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL}"));
    person.sees("what is to be done?");
    person.says("wait for it");
    person.sees("runs bash");
    person.key("Escape");
    person.sees("held");
    assert!(environment.workers().iter().all(|line| !line.contains("sleep 300")), "{:?}", environment.workers());
    person.says("go on without it");
    person.sees("Stopped, and went on.");
    let all = person.scrollback();
    assert!(all.contains("> go on without it"), "{all}");
    person.key("C-d");
    person.sees("left with 0");
}

#[test]
fn a_session_is_resumed_with_what_was_said_before() {
    let environment =
        Environment::with_model(Script::steps(vec![Step::text("The word is heron."), Step::text("As before.")]));
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL} 'Which word is it?'"));
    person.sees("The word is heron.");
    person.says("/quit");
    person.sees("left with 0");
    person.starts_again(&format!("--model {MODEL} -c"));
    person.sees("goes on with an earlier session");
    // Lines of earlier sessions come back, newest first.
    person.says("which was it?");
    person.sees("As before.");
    let requests = environment.model().requests();
    let last = requests.last().expect("there were requests");
    assert!(last.body.to_string().contains("The word is heron."), "{}", last.body);
    person.key("Up");
    person.sees("> which was it?");
}

#[test]
fn forty_columns_and_a_terminal_that_changes_its_size_lose_and_double_nothing() {
    let script = Script::steps(vec![
        Step::text("A first answer that is a good deal longer than forty columns."),
        Step::text("The second answer."),
    ]);
    let environment = Environment::with_model(script);
    let person = Person::starts(&environment, 100, 24, &format!("--model {MODEL}"));
    person.sees("what is to be done?");
    person.says("first");
    person.sees("waits for you");
    for (columns, status) in
        [("40", "default"), ("100", "test-model"), ("38", "default"), ("90", "test-model"), ("40", "default")]
    {
        person.tmux(&["resize-window", "-t", "mine", "-x", columns, "-y", "20"]);
        // The line of state ends with what there is room for, once the program has heard of the new size.
        wait_for("the picture has the new size", || {
            let screen = person.screen();
            let line = screen.lines().find(|line| line.starts_with("waits for you"))?.trim_end().to_owned();
            line.ends_with(status).then_some(())
        });
        person.types(columns);
        person.sees(&format!("{columns}\n"));
    }
    person.key("C-c");
    person.says("second");
    person.sees("The second answer.");
    person.sees("waits for you");
    let all = person.scrollback();
    for part in ["A first answer", "> second", "The second answer.", "waits for you"] {
        assert_eq!(all.matches(part).count(), 1, "{part}: {all}");
    }
    let screen = person.screen();
    assert!(screen.lines().all(|line| line.chars().count() <= 40), "{screen}");
}

#[test]
fn a_paste_is_text_whatever_newlines_it_has_and_is_sent_whole() {
    let environment = Environment::with_model(Script::steps(vec![Step::text("Read it.")]));
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL}"));
    person.sees("what is to be done?");
    person.pastes("go\n");
    person.sees("> go");
    person.pastes(&(1..=14).map(|number| format!("line {number}\n")).collect::<String>());
    person.sees("[pasted 14 lines]");
    assert!(environment.model().requests().is_empty());
    person.key("Enter");
    person.sees("Read it.");
    let said = environment.model().requests()[0].first_user_text();
    assert!(said.contains("go\nline 1\nline 2\n") && said.trim_end().ends_with("line 14"), "{said:?}");
}

#[test]
fn a_session_that_is_told_to_end_gives_the_terminal_back() {
    let environment = Environment::with_model(Script::steps(vec![Step::text("never").gated()]));
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL} 'Wait for me, please.'"));
    environment.wait_for_requests(1);
    let pid = environment.only_run().pid(1, 1);
    terminate(pid, Signal::SIGTERM);
    person.sees("left with 143");
    let left = wait_for("the terminal echoes again", || Some(person.screen()).filter(|text| text.contains(" echo ")));
    assert!(left.contains("goes on with it"), "{left}");
    environment.model().release();
}

#[test]
fn plain_lines_are_only_appended_and_commands_work_there_too() {
    let mut environment = Environment::with_model(Script::steps(vec![Step::text("It is *here*.")]));
    environment.set("DECODE_PLAIN", "1");
    let path = environment.root().join("raw");
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL}"));
    person.sees("at most");
    person.tmux(&["pipe-pane", "-t", "mine", &format!("cat > {}", path.display())]);
    person.says("/help");
    person.sees("/compact");
    person.says("Where is it?");
    person.sees("It is *here*.");
    person.key("C-d");
    person.sees("left with 0");
    let raw = read(&path);
    assert!(raw.contains("It is *here*.") && !raw.contains('\u{1b}'), "{raw:?}");
}

#[test]
fn no_colour_is_written_where_none_is_wanted() {
    let mut environment = Environment::with_model(Script::steps(vec![Step::text("`code` here.")]));
    environment.set("NO_COLOR", "1");
    let path = environment.root().join("raw");
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL}"));
    person.sees("what is to be done?");
    person.tmux(&["pipe-pane", "-t", "mine", &format!("cat > {}", path.display())]);
    person.says("say");
    person.sees("code here.");
    let raw = wait_for("it is piped", || Some(read(&path)).filter(|raw| raw.contains("code")));
    let colour = regex::Regex::new("\x1b\\[(3|4|9|10)[0-7]m").expect("a pattern of ours");
    assert!(!colour.is_match(&raw), "{raw:?}");
}

#[test]
fn a_childs_window_is_steered_by_typing_and_left_with_control_d() {
    let script = Script::steps(vec![
        looks(),
        Step::text("It is at src/lib.rs:1.").gated(),
        Step::text("Both, see src/lib.rs:2."),
    ]);
    let environment = Environment::with_model(script);
    let run = environment.detached(&["--model", MODEL, "Where does it start, and why?"]);
    environment.wait_for_requests(2);
    let line = format!("env -u TMUX -u TMUX_PANE {PROGRAM} attach {}", run.child(1));
    let person = Person::runs(&environment, 90, 24, &line);
    person.sees("type to steer");
    person.says("and where does it end?");
    person.sees("queued: and where does it end?");
    environment.model().release();
    // The window closes with the child: whether the line was still seen there is a matter of milliseconds.
    run.wait().expect_code(0);
    let said = run.said(1, 1);
    assert!(
        said.iter().any(|(by, text)| by.starts_with("person pts/") && text == "and where does it end?"),
        "{said:?}"
    );
    person.goes();
    environment.expect_no_workers();
}

#[test]
fn control_d_leaves_a_window_and_the_child_goes_on() {
    let script = Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.").gated()]);
    let environment = Environment::with_model(script.strict());
    let run = environment.detached(&["--model", MODEL, "Where does it start, and why?"]);
    environment.wait_for_requests(2);
    let line = format!("env -u TMUX -u TMUX_PANE {PROGRAM} attach {}", run.child(1));
    let person = Person::runs(&environment, 90, 24, &line);
    person.sees("type to steer");
    person.key("C-d");
    person.sees("left with 0");
    environment.model().release();
    let output = run.wait().expect_code(0);
    assert!(output.stdout.contains("It is at src/lib.rs:1."), "{}", output.stdout);
}

#[test]
fn what_looks_like_a_key_is_not_kept_among_the_lines() {
    let environment = Environment::with_model(Script::steps(vec![Step::text("Thanks.")]));
    let person = Person::starts(&environment, 80, 24, &format!("--model {MODEL}"));
    person.sees("what is to be done?");
    person.says("use sk-abcdefgh0123456789 for it");
    person.sees("waits for you");
    person.says("an honest line");
    person.sees("> an honest line");
    person.sees_no_more("queued");
    let kept: Vec<String> = fs::read_dir(environment.state().join("history"))
        .expect("lines are kept")
        .flatten()
        .map(|entry| read(&entry.path()))
        .collect();
    assert_eq!(kept, ["\"an honest line\"\n"]);
}

#[test]
fn a_child_without_a_window_is_seen_by_its_log_and_steered_on_the_same_line() {
    let script = Script::steps(vec![
        looks(),
        Step::text("It is at src/lib.rs:1.").gated(),
        Step::text("Both, see src/lib.rs:2."),
    ]);
    let environment = Environment::with_model(script);
    let words = ["--model", MODEL, "Where does it start, and why?", "Where does it end, and why?"];
    let run = environment.detached(&words);
    environment.wait_for_requests(4);
    environment.tmux(environment.socket(), &["kill-window", "-t", &run.claimed(1, 1, "pane")]);
    let status = run.attempt(1, 1).join("status.md");
    wait_for("it has no window", || read(&status).contains("window: gone").then_some(()));
    let person = Person::starts(&environment, 90, 24, &format!("attach {}", run.child(1)));
    person.sees("its window is closed");
    person.sees("> read src/lib.rs");
    person.says("and where does it end?");
    person.sees("queued] and where does it end?");
    environment.model().release();
    person.sees("left with 0");
    let all = person.scrollback();
    assert!(all.contains("Both, see src/lib.rs:2."), "{all}");
    let said = run.said(1, 1);
    assert!(said.iter().any(|(by, text)| by.starts_with("send") && text == "and where does it end?"), "{said:?}");
    person.goes();
    run.wait().expect_code(0);
}

#[test]
fn commands_change_who_works_before_the_first_line_and_after_it() {
    let environment = Environment::with_model(Script::steps(vec![Step::text("One."), Step::text("Two.")]));
    let person = Person::starts(&environment, 100, 24, &format!("--model {MODEL}"));
    person.sees("ready · build · default");
    person.says("/agent explore");
    person.sees("ready · explore");
    person.says("/agent nobody");
    person.sees("nobody");
    person.says("begin");
    person.sees("waits for you · explore");
    person.says("/mode plan");
    person.sees("waits for you · explore · plan");
    person.says("/halp");
    person.sees("did you mean /help?");
    person.says("more");
    person.sees("Two.");
    let said = environment.model().requests();
    assert_eq!(said.len(), 2, "no command is sent to the model");
    let tools = said[0].body["tools"].to_string();
    assert!(!tools.contains("\"write\""), "explore reads only: {tools}");
}

#[test]
fn a_list_a_question_and_a_plan_are_shown_and_answered_at_the_line() {
    let tasks = json!({"tasks": [
        {"content": "look around", "status": "in_progress"},
        {"content": "write it down", "status": "pending"},
    ]});
    let script = Script::steps(vec![
        Step::call("call-1", "todo_write", &tasks),
        Step::call("call-2", "ask_user", &json!({"question": "Which colour?"})),
        Step::call("call-3", "exit_plan_mode", &json!({"plan": "# The plan\n\n1. look"})),
        Step::text("Carried out."),
    ]);
    let environment = Environment::with_model(script);
    let person = Person::starts(&environment, 80, 30, &format!("--model {MODEL} --permission-mode plan"));
    person.sees("ready · build · plan");
    person.says("plan it");
    let asked = person.sees("? Which colour?");
    assert!(asked.contains("[>] look around\n  [ ] write it down"), "{asked}");
    // A single key is a word of the answer here.
    person.says("yellow");
    let plan = person.sees("[y] go on");
    assert!(plan.contains("# The plan"), "{plan}");
    person.types("y");
    person.sees("Carried out.");
    let told = tools(&environment);
    assert!(told[1].contains("yellow"), "{told:?}");
}
