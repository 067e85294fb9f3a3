//! Whole tasks: a repository, what is asked, a recorded transcript that solves it, and a check the agent never sees.
//!
//! The tools are the real ones: a transcript only says which are called. Each check must fail on the untouched
//! repository, or it would prove nothing, and pass on the branch that the agent leaves.
//!
//! `tests/tasks/NAME/`: `task.md`, `repository/`, `history.sh` (commits on top of it, where there are some),
//! `session.jsonl`, `check.sh`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::environment::{Environment, Output, read};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tasks").join(name)
}

/// The world of a task: its repository, committed, with its history.
fn world(task: &Path) -> Environment {
    let environment = Environment::new();
    let project = environment.project();
    fs::remove_dir_all(&project).expect("the project is ours");
    copy(&task.join("repository"), &project);
    environment.git(&["init", "-q", "-b", "main"]);
    // What the files are is the task: nothing is to be converted.
    environment.git(&["config", "core.autocrlf", "false"]);
    environment.git(&["add", "."]);
    environment.git(&["commit", "-q", "-m", "begin"]);
    let history = task.join("history.sh");
    if history.is_file() {
        let mut command = environment.plain("sh");
        command.arg(&history);
        environment.start(command).wait().expect_code(0);
    }
    environment
}

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.expect("the task is there");
        let target = to.join(entry.path().strip_prefix(from).expect("it lies beneath"));
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target).expect("the project is ours");
        } else {
            fs::copy(entry.path(), &target).expect("the project is ours");
            // How the task's own files came here must not matter.
            fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).expect("the project is ours");
        }
    }
}

/// Holds the check against a fresh clone of a branch.
fn check(environment: &Environment, task: &Path, branch: &str) -> Output {
    let clone = environment.root().join(format!("clone-{}", branch.replace('/', "-")));
    environment.git(&["clone", "-q", "--branch", branch, ".", &clone.to_string_lossy()]);
    let mut command = environment.plain("sh");
    command.arg(task.join("check.sh")).current_dir(&clone).env("PYTHONDONTWRITEBYTECODE", "1");
    environment.start(command).wait()
}

fn solves(name: &str) {
    let task = directory(name);
    let environment = world(&task);
    let untouched = check(&environment, &task, "main");
    assert_ne!(untouched.code, 0, "the check passes before anything was done: {}", untouched.stdout);
    let model = format!("script/{}", task.join("session.jsonl").display());
    let prompt = read(&task.join("task.md"));
    let before = environment.git(&["rev-parse", "main"]);
    let json = environment
        .decode(&["run", "--agent", "build", "--model", &model, "-o", "json", &prompt])
        .expect_code(0)
        .json();
    assert_eq!(json["outcome"], "done", "{json}");
    let run = environment.run(json["run"].as_str().expect("a run has a name"));
    for record in run.session(1, 1).iter().filter(|record| record["type"] == "tool") {
        assert_eq!(record["ok"], true, "every call of a recorded solution works: {record}");
    }
    let branch = run.show()["children"][0]["branch"].as_str().expect("its work is on a branch").to_owned();
    let solved = check(&environment, &task, &branch);
    assert_eq!(solved.code, 0, "{}{}", solved.stdout, solved.stderr);
    assert_eq!(environment.git(&["rev-parse", "main"]), before, "the user's branch is where it was");
}

macro_rules! tasks {
    ($($test:ident = $name:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            solves($name);
        })+

        #[test]
        fn every_task_has_its_test() {
            let mut listed = vec![$($name),+];
            listed.sort_unstable();
            let entries = fs::read_dir(directory("")).expect("the tasks are there");
            let mut there: Vec<String> =
                entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
            there.sort_unstable();
            assert_eq!(there, listed);
        }
    };
}

tasks! {
    a_failing_test_is_mended = "fix-a-failing-test",
    a_function_is_renamed_across_files = "rename-across-files",
    a_file_is_converted = "convert-a-file",
    a_module_is_written_from_its_specification = "write-from-a-specification",
    the_commit_that_broke_it_is_found_and_reverted = "bisect-and-revert",
    a_merge_with_conflicts_is_resolved = "resolve-a-merge",
    line_ends_and_byte_order_marks_stay = "keep-line-ends",
    errors_are_counted_in_a_log = "count-in-a-log",
    a_flag_is_added_with_its_test = "add-a-flag",
    a_script_is_made_to_run = "make-a-script-run",
}
