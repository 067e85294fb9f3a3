//! Rows where somebody else does the same work: bare processes, `sleep`, a shell loop over git and tmux.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;

use super::lab::{DECODE, Failed, Lab, Side, succeed, wait};
use super::table::{Goal, Row, median};

const CHILDREN: usize = 196;
const WIDTH: usize = 8;
const WRITERS: usize = 6;
/// Files of the repository that is checked out.
const FILES: usize = 2_000;

/// One tool call, because a reader's report needs evidence; then a second of waiting, then the report.
const ONE_SECOND: &str = r#"{"type":"assistant","calls":[{"name":"glob","input":{"pattern":"Cargo.toml"}}]}
{"wait_ms":1000}
{"type":"assistant","text":"Found Cargo.toml:1."}
"#;

/// A child that waits until it is stopped.
pub(crate) const ASLEEP: &str = "{\"wait_ms\":900000}\n{\"type\":\"assistant\",\"text\":\"Slept.\"}\n";

fn rounds(otherwise: usize) -> usize {
    std::env::var("DECODE_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(otherwise)
}

/// So many prompts, one a line.
pub(crate) fn prompts(number: usize) -> String {
    (1..=number).map(|number| format!("child {number} waits and then says that it has waited\n")).collect()
}

/// Many short children through windows against the same processes without a supervisor.
pub(crate) fn throughput(lab: &Lab) -> Result<Vec<Row>, Failed> {
    let script = format!("script/{}", lab.write("second.jsonl", ONE_SECOND)?.display());
    let many = lab.write("many.txt", &prompts(CHILDREN))?;
    let one = lab.write("one.txt", &prompts(1))?;
    let brief = brief_of_one(lab, &one, &script)?;
    let rounds = rounds(3);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        ours.push(fan(lab, &many, &script, WIDTH)?);
        let directories = bare_attempts(lab, &brief, &format!("bare{round}"))?;
        bare.push(at_width(&directories, WIDTH, |directory| {
            let mut command = lab.decode(&["run", "--attempt"]);
            command.arg(directory).current_dir("/");
            command
        })?);
    }
    let sleeps = vec![PathBuf::new(); CHILDREN];
    let sleep = at_width(&sleeps, WIDTH, |_| {
        let mut command = lab.command("sleep");
        command.arg("1");
        command
    })?;
    let what = format!("{CHILDREN} children of 1 s, width {WIDTH}, windows");
    let row = |against: &str, theirs: f64, goal| Row {
        what: what.clone(),
        against: against.to_owned(),
        ours: format!("{:.2} s", median(ours.clone())),
        theirs: format!("{theirs:.2} s"),
        ratio: Some(median(ours.clone()) / theirs),
        goal,
    };
    Ok(vec![row("the same processes, bare", median(bare), Goal::Ratio(1.03)), row("sleep 1", sleep, Goal::Information)])
}

/// Seconds from the command to its end.
fn fan(lab: &Lab, prompts: &Path, model: &str, width: usize) -> Result<f64, Failed> {
    let (from, width) = (prompts.to_string_lossy(), width.to_string());
    let words = ["fan", "--from", &from, "-m", model, "--agent", "explore", "--width", &width, "-y", "-q"];
    let began = Instant::now();
    succeed(&mut lab.decode(&words))?;
    Ok(began.elapsed().as_secs_f64())
}

/// What a supervisor writes for such a child, to start the same one without it.
fn brief_of_one(lab: &Lab, prompts: &Path, model: &str) -> Result<String, Failed> {
    let before = lab.runs();
    fan(lab, prompts, model, 1)?;
    let run = lab.new_run(&before)?;
    let briefs = lab.files(&run, "brief.md");
    Ok(std::fs::read_to_string(briefs.first().ok_or("the child has no brief")?)?)
}

/// Directories of attempts as a supervisor makes them, all before the clock starts.
fn bare_attempts(lab: &Lab, brief: &str, run: &str) -> Result<Vec<PathBuf>, Failed> {
    let handover = json!({ "environment": lab.environment(), "access": [] }).to_string();
    let mut directories = Vec::new();
    for number in 1..=CHILDREN {
        let directory = lab.path("state/runs").join(run).join(format!("children/{number:03}-bare/1"));
        std::fs::create_dir_all(directory.join("inbox"))?;
        std::fs::create_dir_all(directory.join("seen"))?;
        let environment = directory.join("environment");
        std::fs::write(&environment, &handover)?;
        let lines = brief.lines().map(|line| match line.strip_prefix("environment:") {
            Some(_) => format!("environment: {}\n", environment.display()),
            None => format!("{line}\n"),
        });
        // The body is as long as its header says: no line end was there at its end.
        let text = lines.collect::<String>();
        std::fs::write(directory.join("brief.md"), text.strip_suffix('\n').unwrap_or(&text))?;
        directories.push(directory);
    }
    Ok(directories)
}

/// Seconds that it takes to run one command for each item, so many at a time.
fn at_width<'a>(
    items: &'a [PathBuf],
    width: usize,
    command: impl Fn(&'a Path) -> Command + Sync,
) -> Result<f64, Failed> {
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..width {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !command(item).status().is_ok_and(|status| status.success()) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        0 => Ok(began.elapsed().as_secs_f64()),
        failed => Err(format!("{failed} of {} bare processes failed", items.len()).into()),
    }
}

/// Writers in worktrees of their own, until all run, against a shell loop.
pub(crate) fn worktrees(lab: &Lab) -> Result<Vec<Row>, Failed> {
    let repository = repository(lab)?;
    let script = format!("script/{}", lab.write("asleep.jsonl", ASLEEP)?.display());
    let six = lab.write("six.txt", &prompts(WRITERS))?;
    succeed(&mut lab.tmux(Side::Theirs, &["new-session", "-d", "-s", "loop", "sleep 900"]))?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds(5) {
        ours.push(writers(lab, &repository, &six, &script)?);
        theirs.push(shell_loop(lab, &repository, round)?);
    }
    succeed(&mut lab.tmux(Side::Theirs, &["kill-server"]))?;
    let (ours, theirs) = (median(ours), median(theirs));
    Ok(vec![Row {
        what: format!("{WRITERS} worktree children of {FILES} files, until all run"),
        against: "git worktree add + tmux new-window, a shell loop".to_owned(),
        ours: format!("{:.0} ms", ours * 1e3),
        theirs: format!("{:.0} ms", theirs * 1e3),
        ratio: Some(ours / theirs),
        goal: Goal::Ratio(2.0),
    }])
}

/// A repository such as people have, generated: many small files in many directories, one commit.
fn repository(lab: &Lab) -> Result<PathBuf, Failed> {
    let repository = lab.path("repository");
    for number in 0..FILES {
        let directory = repository.join(format!("src/part{:02}", number % 50));
        std::fs::create_dir_all(&directory)?;
        let text: String = (0..80).map(|line| format!("fn f{number}_{line}() -> u32 {{ {line} }}\n")).collect();
        std::fs::write(directory.join(format!("file{number}.rs")), text)?;
    }
    let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    for words in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "all"]] {
        succeed(lab.command("git").args(identity).args(words).current_dir(&repository))?;
    }
    Ok(repository)
}

fn writers(lab: &Lab, repository: &Path, prompts: &Path, model: &str) -> Result<f64, Failed> {
    let before = lab.runs();
    let (from, width) = (prompts.to_string_lossy(), WRITERS.to_string());
    let words = ["fan", "--from", &from, "-m", model, "--agent", "build", "--workspace", "worktree"];
    let more = ["--permission-mode", "edit", "--width", &width, "-y", "-q", "-d"];
    let began = Instant::now();
    let mut viewer = lab.command(DECODE).args(words).args(more).current_dir(repository).spawn()?;
    let run = lab.new_run(&before)?;
    let all = wait("six claims", || (lab.files(&run, "claim.md").len() == WRITERS).then(Instant::now))?;
    viewer.wait()?;
    lab.stop(&run)?;
    Ok((all - began).as_secs_f64())
}

fn shell_loop(lab: &Lab, repository: &Path, round: usize) -> Result<f64, Failed> {
    const LOOP: &str = r#"i=1
while [ $i -le "$COUNT" ]; do
  git worktree add -q --no-track -b "theirs-$ROUND-$i" "$TREES/$ROUND-$i" || exit 1
  tmux -L "$SOCKET" new-window -d -t loop: -c "$TREES/$ROUND-$i" 'exec sleep 900' || exit 1
  i=$((i + 1))
done"#;
    let trees = lab.path("trees");
    std::fs::create_dir_all(&trees)?;
    let mut shell = lab.command("sh");
    shell.args(["-c", LOOP]).current_dir(repository);
    shell.env("COUNT", WRITERS.to_string()).env("ROUND", round.to_string()).env("TREES", &trees);
    shell.env("SOCKET", lab.socket(Side::Theirs));
    let began = Instant::now();
    succeed(&mut shell)?;
    Ok(began.elapsed().as_secs_f64())
}
