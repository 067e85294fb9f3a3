//! Windows and workspaces from the outside: what closes, what stays, what is the user's and is not touched.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::environment::{Environment, header, looks, read, wait_for};
use crate::model_server::{Script, Step};

const MODEL: &str = "openai/test-model";
const FIRST: &str = "Where does it start, and why?";
const SECOND: &str = "Where does it end, and why?";

fn at_the_gate() -> Script {
    Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.").gated()]).strict()
}

#[test]
fn a_child_whose_window_is_closed_goes_on_and_reports() {
    let environment = Environment::with_model(at_the_gate());
    let run = environment.detached(&["--model", MODEL, FIRST, SECOND]);
    environment.wait_for_requests(4);
    let (pane, pid) = (run.claimed(1, 1, "pane"), run.pid(1, 1));
    environment.tmux(environment.socket(), &["kill-window", "-t", &pane]);
    wait_for("its window is gone", || (environment.windows(&run.name).len() == 2).then_some(()));
    // The signal of the closed window has reached it when it says so; it lives on.
    wait_for("it says that it has no window", || {
        read(&run.attempt(1, 1).join("status.md")).contains("window: gone").then_some(())
    });
    assert!(nix::sys::signal::kill(pid, None).is_ok());
    // Nor does it ask a terminal that is gone again and again: ten seconds cost a fraction of one.
    let beat = || header(&read(&run.attempt(1, 1).join("status.md")), "heartbeat");
    let (before, began) = (processor_ticks(pid), beat());
    wait_for("its heart beats", || (beat() != began).then_some(()));
    let beaten = beat();
    wait_for("its heart beats again", || (beat() != beaten).then_some(()));
    let spent = processor_ticks(pid) - before;
    assert!(spent < 100, "{spent} hundredths of a second");
    let ps = environment.decode(&["ps"]).expect_code(0).stdout;
    assert!(ps.contains("no window"), "{ps}");
    environment.model().release();
    let json = run.wait_json();
    assert_eq!((&json["outcome"], &json["children"][0]["attempts"]), (&"done".into(), &1.into()), "{json}");
    environment.expect_no_workers();
}

/// Hundredths of a second that a process has computed.
fn processor_ticks(pid: nix::unistd::Pid) -> u64 {
    let stat = read(&std::path::PathBuf::from(format!("/proc/{pid}/stat")));
    let rest = stat.rsplit(')').next().unwrap_or_default();
    rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn children_and_their_supervisor_outlive_the_tmux_server() {
    let environment = Environment::with_model(at_the_gate());
    let run = environment.detached(&["--model", MODEL, FIRST, SECOND]);
    environment.wait_for_requests(4);
    environment.tmux(environment.socket(), &["kill-server"]);
    wait_for("the server is gone", || {
        environment.tmux(environment.socket(), &["list-sessions"]).is_empty().then_some(())
    });
    environment.model().release();
    let output = run.wait().expect_code(0);
    assert_eq!(output.stdout.matches("It is at src/lib.rs:1.").count(), 2, "{}", output.stdout);
    assert_eq!(environment.model().requests().len(), 4);
    environment.expect_no_workers();
}

#[test]
fn windows_of_done_children_close_and_those_of_failed_ones_stay() {
    let script = Script::new()
        .on(FIRST, vec![looks(), Step::text("It is at src/lib.rs:1.")])
        .otherwise(vec![looks(), Step::empty()]);
    let environment = Environment::with_model(script);
    let run = environment.detached(&["--retries", "0", "--model", MODEL, FIRST, SECOND]);
    run.wait().expect_code(1);
    wait_for("only the failed one is left", || {
        let left = environment.windows(&run.name);
        (left.len() == 1 && left[0].starts_with("02-where-does-it-end")).then_some(())
    });
    environment.expect_no_workers();
}

#[test]
fn the_session_of_a_run_goes_with_its_last_child() {
    let environment = Environment::with_model(Script::steps(vec![looks(), Step::text("It is at src/lib.rs:1.")]));
    let run = environment.detached(&["--model", MODEL, FIRST, SECOND]);
    run.wait().expect_code(0);
    wait_for("the session is gone", || {
        let sessions = environment.tmux(environment.socket(), &["list-sessions", "-F", "#{session_name}"]);
        (!sessions.contains(&run.name)).then_some(())
    });
    environment.expect_no_workers();
}

#[test]
fn nothing_of_a_task_reaches_a_window_but_its_slug() {
    let environment = Environment::with_model(at_the_gate());
    let task = "Where is #(touch touched) `id` SECRETWORD; and #{pane_id} decided?";
    let run = environment.detached(&["--model", MODEL, task]);
    environment.wait_for_requests(2);
    let format = "#{window_name}|#{pane_title}|#{pane_start_command}|#{pane_current_path}";
    let told = environment.tmux(environment.socket(), &["list-panes", "-a", "-F", format]);
    assert!(!told.contains("SECRETWORD") && !told.contains("#("), "{told}");
    for name in environment.windows(&run.name) {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
    }
    let variables = environment.tmux(environment.socket(), &["show-environment", "-g"]);
    assert!(!variables.contains("OPENAI_API_KEY"), "{variables}");
    environment.model().release();
    run.wait().expect_code(0);
    assert!(!environment.project().join("touched").exists());
}

fn writer() -> Script {
    Script::function(|request, made| {
        let name = if request.first_user_text().contains("first") { "first" } else { "second" };
        match made {
            0 => Step::call("call-1", "write", &json!({"path": "NEW.md", "content": format!("by the {name}\n")})),
            1 => Step::call("call-2", "bash", &json!({"command": "cat NEW.md >> README.md"})),
            _ => Step::text(&format!("The {name} wrote NEW.md.")),
        }
    })
    .strict()
}

#[test]
fn writers_end_as_branches_and_the_users_tree_is_not_touched() {
    let environment = Environment::with_model(writer());
    environment.write("README.md", "# The user is at work here\n");
    let (head, status) = (environment.git(&["rev-parse", "HEAD"]), environment.git(&["status", "--porcelain"]));
    let words =
        ["fan", "--agent", "build", "--model", MODEL, "-o", "json", "Write the first file.", "Write the second."];
    let json = environment.decode(&words).expect_code(0).json();
    let run = json["run"].as_str().expect("a run has a name");
    for (index, name) in [(0, "first"), (1, "second")] {
        let child = &json["children"][index];
        let branch = child["branch"].as_str().unwrap_or_else(|| panic!("a branch: {json}"));
        assert_eq!(branch, format!("decode/{run}/{}", child["id"].as_str().unwrap_or_default()));
        assert_eq!(environment.git(&["show", &format!("{branch}:NEW.md")]), format!("by the {name}\n"));
        let readme = environment.git(&["show", &format!("{branch}:README.md")]);
        assert!(readme.ends_with(&format!("by the {name}\n")), "{readme}");
    }
    assert_eq!(environment.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(environment.git(&["status", "--porcelain"]), status);
    assert_eq!(read(&environment.project().join("README.md")), "# The user is at work here\n");
    assert!(!environment.project().join("NEW.md").exists());
    environment.expect_no_workers();
}

#[test]
fn the_work_of_a_killed_writer_is_on_its_branch() {
    let script = Script::function(|_, made| match made {
        0 => Step::call("call-1", "write", &json!({"path": "NEW.md", "content": "half done\n"})),
        _ => Step::text("never").gated(),
    });
    let environment = Environment::with_model(script);
    let run = environment.detached(&["--agent", "build", "--retries", "0", "--model", MODEL, "Write the file."]);
    environment.wait_for_requests(2);
    crate::environment::terminate(run.pid(1, 1), Signal::SIGKILL);
    let json = run.wait_json();
    assert_eq!(json["children"][0]["state"], "failed", "{json}");
    let branch = json["children"][0]["branch"].as_str().unwrap_or_else(|| panic!("a branch: {json}"));
    assert_eq!(environment.git(&["show", &format!("{branch}:NEW.md")]), "half done\n");
}

#[test]
fn a_run_of_one_writer_ends_as_a_branch_too() {
    let environment = Environment::with_model(writer());
    let output = environment.decode(&["run", "--model", MODEL, "-o", "json", "Write the first file."]).expect_code(0);
    let json = output.json();
    let changed: Vec<&str> =
        json["files_changed"].as_array().into_iter().flatten().filter_map(|file| file.as_str()).collect();
    assert_eq!(changed, ["NEW.md", "README.md"], "{json}");
    assert!(!environment.project().join("NEW.md").exists());
    let branches = environment.git(&["branch", "--list", "decode/*", "--format", "%(refname:short)"]);
    assert_eq!(branches.lines().count(), 1, "{branches}");
}
