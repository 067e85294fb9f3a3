//! Rows that are held to a limit: start, memory, idleness.

use std::time::{Duration, Instant};

use serde_json::json;

use super::contests::{ASLEEP, prompts};
use super::lab::{Failed, Lab, Side, pid_in, processor_s, succeed, wait};
use super::model_server::{ModelServer, Script, Step};
use super::table::{Goal, Row, median};

/// Personas, and the bytes their first request may have.
const FIRST_REQUESTS: [(&str, f64); 2] = [("explore", 4096.0), ("build", 14336.0)];
const STARTS: usize = 40;
const START_LIMIT_MS: f64 = 12.0;
const MEMORY_LIMIT_MB: f64 = 16.0;
const SLEEPERS: usize = 100;
const IDLE_LIMIT_PERCENT: f64 = 0.5;
/// How long idleness is watched, and how long the start of many is left to settle before.
const WATCHED: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_secs(5);

const TASK: &str = "Which file names this package? Report the path with its line.";

fn limited(what: &str, ours: f64, limit: f64, unit: &str, digits: usize) -> Row {
    Row {
        what: what.to_owned(),
        against: "the limit".to_owned(),
        ours: format!("{ours:.digits$} {unit}"),
        theirs: format!("{limit} {unit}"),
        ratio: Some(ours / limit),
        goal: Goal::Limit,
    }
}

/// One call, because a reader's report needs evidence; then the report.
fn call_then(report: Step) -> Vec<Step> {
    vec![Step::call("c1", "glob", &json!({ "pattern": "Cargo.toml" })), report]
}

/// What the first request of an agent sends besides its task: it is sent again with every turn.
pub(crate) fn requests(lab: &Lab) -> Result<Vec<Row>, Failed> {
    let mut rows = Vec::new();
    for (agent, limit) in FIRST_REQUESTS {
        let server = ModelServer::start(Script::steps(call_then(Step::text("Found Cargo.toml:2."))));
        let mut command = lab.decode(&["run", TASK, "-m", "openai/bench", "--agent", agent, "-q"]);
        succeed(command.env("OPENAI_BASE_URL", server.url()).env("OPENAI_API_KEY", "bench"))?;
        let first = server.requests().into_iter().next().ok_or("no request came")?;
        let bytes = (first.body.to_string().len() - TASK.len()) as f64;
        rows.push(limited(&format!("first request of `{agent}` besides its task"), bytes, limit, "bytes", 0));
    }
    Ok(rows)
}

/// From the start of the process to its first request on the wire.
pub(crate) fn start(lab: &Lab) -> Result<Vec<Row>, Failed> {
    // Every run asks the same, so it is the request that says how far its conversation is.
    let server = ModelServer::start(Script::function(|request, _| {
        let called = request.body["messages"].as_array().is_some_and(|all| all.iter().any(|one| one["role"] == "tool"));
        call_then(Step::text("Found Cargo.toml:2.")).swap_remove(usize::from(called))
    }));
    let mut milliseconds = Vec::new();
    for _ in 0..STARTS {
        let before = server.requests().len();
        let began = Instant::now();
        let mut command = lab.decode(&["run", TASK, "-m", "openai/bench", "--agent", "explore", "-q"]);
        succeed(command.env("OPENAI_BASE_URL", server.url()).env("OPENAI_API_KEY", "bench"))?;
        let first = server.requests().get(before).ok_or("no request came")?.at;
        milliseconds.push((first - began).as_secs_f64() * 1e3);
    }
    Ok(vec![limited("start of decode run to its first request", median(milliseconds), START_LIMIT_MS, "ms", 1)])
}

/// The most memory a child had that spoke HTTP, read while it waits for its last answer.
pub(crate) fn memory(lab: &Lab) -> Result<Vec<Row>, Failed> {
    let server = ModelServer::start(Script::steps(call_then(Step::text("Found Cargo.toml:2.").gated())));
    let before = lab.runs();
    let mut viewer = lab.decode(&["fan", TASK, "-m", "openai/bench", "--agent", "explore", "--terminal", "bare", "-q"]);
    let mut viewer = viewer.env("OPENAI_BASE_URL", server.url()).env("OPENAI_API_KEY", "bench").spawn()?;
    let run = lab.new_run(&before)?;
    if !server.wait_for_requests(2, Duration::from_mins(1)) {
        return Err("the child did not ask twice".into());
    }
    let claims = lab.files(&run, "claim.md");
    let pid = claims.first().and_then(|claim| pid_in(claim)).ok_or("the child has no claim")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    let peak: f64 = peak.ok_or("the kernel tells no VmHWM")?;
    server.release();
    viewer.wait()?;
    Ok(vec![limited("peak memory of one child", peak / 1024.0, MEMORY_LIMIT_MB, "MB", 1)])
}

/// What a hundred children cost that do nothing.
pub(crate) fn idle(lab: &Lab) -> Result<Vec<Row>, Failed> {
    let script = format!("script/{}", lab.write("asleep.jsonl", ASLEEP)?.display());
    let from = lab.write("sleepers.txt", &prompts(SLEEPERS))?;
    let (from, width, before) = (from.to_string_lossy(), SLEEPERS.to_string(), lab.runs());
    let words = ["fan", "--from", &from, "-m", &script, "--agent", "explore", "--width", &width, "-y", "-q", "-d"];
    succeed(&mut lab.decode(&words))?;
    let run = lab.new_run(&before)?;
    wait("a hundred claims", || (lab.files(&run, "claim.md").len() == SLEEPERS).then_some(()))?;
    let children: Vec<i32> = lab.files(&run, "claim.md").iter().filter_map(|claim| pid_in(claim)).collect();
    let supervisor = pid_in(&lab.path("state/runs").join(&run).join("run.md")).ok_or("nobody drives the run")?;
    let server = succeed(&mut lab.tmux(Side::Ours, &["display-message", "-p", "#{pid}"]))?;
    let server: i32 = String::from_utf8(server.stdout)?.trim().parse()?;
    let used = || -> Result<[f64; 3], Failed> {
        let mut all = 0.0;
        for child in &children {
            all += processor_s(*child)?;
        }
        Ok([processor_s(supervisor)?, all / children.len() as f64, processor_s(server)?])
    };
    std::thread::sleep(SETTLE);
    let (began, first) = (Instant::now(), used()?);
    std::thread::sleep(WATCHED);
    let last = used()?;
    let watched = began.elapsed().as_secs_f64();
    lab.stop(&run)?;
    let percent = |which: usize| (last[which] - first[which]) / watched * 100.0;
    let told = |what: &str, which: usize| Row {
        what: what.to_owned(),
        against: String::new(),
        ours: format!("{:.3} %", percent(which)),
        theirs: String::new(),
        ratio: None,
        goal: Goal::Information,
    };
    let what = format!("one core, supervisor of {SLEEPERS} sleeping children");
    Ok(vec![
        limited(&what, percent(0), IDLE_LIMIT_PERCENT, "%", 3),
        told("one core, each of these children", 1),
        told("one core, their tmux server", 2),
    ])
}
