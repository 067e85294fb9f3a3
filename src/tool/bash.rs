//! `bash`: one command line, run to its end or to its time, or in the background until the attempt ends.
//!
//! What a command leaves behind may outlive it by 0.2 s, while what it still prints is gathered, and is then ended: only
//! what was asked for as a job goes on. Deliberately absent: how a process is started and ended (`process.rs`), what the
//! kernel holds it to (`sandbox/`), and whether the line may run.

mod jobs;
mod process;

use std::fmt::Write as _;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use self::jobs::Jobs;
use self::process::{DRAIN, GRACE, LEFT_GRACE, Process};
use super::output::Output;
use super::{Answer, Input, Running, Scope, Tool, input};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::sandbox::Network;
use crate::sandbox::proxy::Host;
use crate::text;

/// A model may ask for less, never for more.
const LIMIT_S: u64 = 120;

/// Hosts that one call may name.
const HOSTS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Bash {
    jobs: Jobs,
}

impl Tool for Bash {
    fn name(&self) -> ToolName {
        ToolName::Bash
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Bash.as_str(),
            description: "Run a command line with bash in the workspace. Answers what it prints and its exit code. There is \
                no terminal and no input; each call starts afresh in the workspace. At most 120 seconds; what still runs \
                when the command has ended is ended too, unless `background` was set: then the answer names a job."
                .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": LIMIT_S, "description": "Seconds; default 120"},
                    "hosts": {"type": "array", "items": {"type": "string"},
                        "description": "Hosts the command must reach by HTTP(S); the network is closed to all others"},
                    "background": {"type": "boolean", "description": "Go on after the call, until the end of your work"},
                    "job": {"type": "string", "description": "Instead of a command: read what this job printed since; \
                        with `timeout` wait so long for its end"},
                    "stop": {"type": "boolean", "description": "End the job"}
                }
            }),
        }
    }

    fn subject(&self, input: &Input, _: &Scope) -> Subject {
        // What may run may be looked at and ended.
        let of_job = || input::text(input, "job").ok().and_then(|name| self.jobs.line(name));
        let line = input::text(input, "command").ok().map(str::to_owned).or_else(of_job);
        line.map_or(Subject::None, Subject::Command)
    }

    fn further(&self, input: &Input, scope: &Scope) -> Vec<Subject> {
        let closed = scope.sandbox.as_ref().is_some_and(|sandbox| sandbox.network == Network::Closed);
        match hosts(input) {
            Ok(hosts) if closed => {
                hosts.iter().map(|host| Subject::Url(format!("https://{}/", host.in_url()))).collect()
            }
            // An open network asks for no host, and a wrong one is corrected before anything runs.
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move { self.bash(&input, scope).await.unwrap_or_else(|correction| correction) })
    }
}

/// Why a call ended.
enum End {
    Exited(std::io::Result<ExitStatus>),
    TimedOut,
    Cut,
}

impl Bash {
    async fn bash(&self, input: &Input, scope: &Scope) -> Result<Answer, Answer> {
        let seconds = input::optional_count(input, "timeout")?.map(|seconds| seconds.min(LIMIT_S));
        if let Some(name) = input::optional_text(input, "job")? {
            if input::optional_text(input, "command")?.is_some() {
                return Err(Answer::correction("give either `command` or `job`"));
            }
            let patience = Duration::from_secs(seconds.unwrap_or(0));
            return if input::flag(input, "stop")? {
                self.jobs.stop(name, scope).await
            } else {
                self.jobs.read(name, patience, scope).await
            };
        }
        let line = input::text(input, "command")?;
        if line.trim().is_empty() {
            return Err(Answer::correction("the command is empty"));
        }
        let hosts = hosts(input)?;
        let failed = |error| Answer::correction(format!("the shell could not be started: {error}"));
        if input::flag(input, "background")? {
            self.jobs.has_room()?;
            return Ok(self.jobs.add(line, Process::start(line, hosts, scope).map_err(failed)?, scope));
        }
        let process = Process::start(line, hosts, scope).map_err(failed)?;
        Ok(to_its_end(process, Duration::from_secs(seconds.unwrap_or(LIMIT_S)), scope).await)
    }
}

/// The hosts a call names, each a sound one.
fn hosts(input: &Input) -> Result<Vec<Host>, Answer> {
    let wrong = || Answer::correction("`hosts` is a list of host names, as in [\"crates.io\"], at most 16");
    let texts: Vec<&str> = match input.get("hosts") {
        None | Some(serde_json::Value::Null) => return Ok(Vec::new()),
        Some(serde_json::Value::String(text)) => vec![text],
        Some(serde_json::Value::Array(list)) if list.len() <= HOSTS => {
            list.iter().map(|value| value.as_str().ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(wrong()),
    };
    let host = |text: &&str| Host::parse(text).ok_or_else(|| Answer::correction(format!("`{text}` is no host name")));
    texts.iter().map(host).collect()
}

async fn to_its_end(mut process: Process, limit: Duration, scope: &Scope) -> Answer {
    let mut output = Output::new(&scope.spill);
    let end = tokio::select! {
        biased;
        status = process.child.wait() => End::Exited(status),
        () = is_cut(scope) => End::Cut,
        () = sleep(limit) => End::TimedOut,
        never = process::gather_on(&mut process.pipe, &mut output) => match never {},
    };
    let note = match end {
        End::Exited(status) => {
            let _ = timeout(DRAIN, process::gather(&mut process.pipe, &mut output)).await;
            let left = process.tree.names();
            if left.is_empty() {
                process.tree.is_over = true;
            } else {
                process.end(LEFT_GRACE, &mut output).await;
            }
            return exited(status, &process, output, &left);
        }
        End::TimedOut => {
            format!("[timed out after {} s; the command and all it started were ended]", limit.as_secs())
        }
        End::Cut => "[cut short; the command and all it started were ended]".to_owned(),
    };
    process.end(GRACE, &mut output).await;
    let _ = timeout(DRAIN, process::gather(&mut process.pipe, &mut output)).await;
    let note = process.network_note().map_or_else(|| note.clone(), |more| format!("{note}\n{more}"));
    Answer { ok: false, ..Answer::done(joined(output, &note)) }
}

/// How a command ended, in brackets, and whether that is well.
fn ending(status: std::io::Result<ExitStatus>) -> (bool, String) {
    use std::os::unix::process::ExitStatusExt;
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => (code == 0, format!("[exit code {code}]")),
        Ok((None, signal)) => (false, format!("[ended by signal {}]", signal.unwrap_or_default())),
        Err(error) => (false, format!("[its end was not seen: {error}]")),
    }
}

fn exited(status: std::io::Result<ExitStatus>, process: &Process, output: Output, left: &[String]) -> Answer {
    let (ok, mut note) = ending(status);
    if !left.is_empty() {
        let were = text::count(left.len(), "process was", "processes were");
        let _ = write!(note, "\n[{were} left in the background and ended: {}]", left.join(", "));
    }
    if let Some(more) = process.network_note() {
        let _ = write!(note, "\n{more}");
    }
    Answer { ok, ..Answer::done(joined(output, &note)) }
}

fn joined(output: Output, note: &str) -> String {
    let printed = text::without_controls(&output.finish());
    let between = if printed.is_empty() || printed.ends_with('\n') { "" } else { "\n" };
    format!("{printed}{between}{note}")
}

async fn is_cut(scope: &Scope) {
    let mut cut = scope.cut.clone();
    if cut.wait_for(|cut| *cut).await.is_err() {
        // Nobody is left who could cut.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::*;
    use crate::command::identity::{Identity, Liveness, liveness};

    fn run(fixture: &Fixture, command: &str) -> Answer {
        fixture.run(&Bash::default(), input(json!({"command": command, "timeout": 20})))
    }

    /// The pid that a command wrote to a file, and whether that process still runs.
    fn survives(fixture: &Fixture, file: &str) -> bool {
        let pid = String::from_utf8(fixture.bytes(file)).unwrap().trim().parse().unwrap();
        Identity::of(pid).is_some_and(|process| liveness(&process) == Liveness::Alive)
    }

    #[test]
    fn output_comes_in_order_with_the_exit_code() {
        let fixture = Fixture::new();
        assert_eq!(run(&fixture, "echo a; echo b >&2; echo c"), Answer::done("a\nb\nc\n[exit code 0]"));
        let failed = run(&fixture, "printf x; exit 3");
        assert_eq!((failed.ok, failed.text.as_str()), (false, "x\n[exit code 3]"));
        assert_eq!(run(&fixture, "kill -9 $$").text, "[ended by signal 9]");
        assert_eq!(run(&fixture, "-x 2> /dev/null").text, "[exit code 127]");
        assert_eq!(run(&fixture, "printf '\\033[31mred\\033[0m'").text, "red\n[exit code 0]");
    }

    #[test]
    fn wrong_arguments_are_corrected() {
        let fixture = Fixture::new();
        for arguments in
            [json!({}), json!({"command": " "}), json!({"command": "a\0b"}), json!({"command": "true", "timeout": 0})]
        {
            assert!(!fixture.run(&Bash::default(), input(arguments.clone())).ok, "{arguments}");
        }
    }

    #[test]
    fn a_command_sees_the_given_environment_and_no_other() {
        let mut fixture = Fixture::new();
        fixture.write("trap.sh", "echo trapped");
        let trap = fixture.path("trap.sh").display().to_string();
        fixture.scope.environment.extend([("GIVEN".to_owned(), "1".to_owned()), ("BASH_ENV".to_owned(), trap)]);
        let names = run(&fixture, "env | cut -d= -f1 | sort | tr '\\n' ' '").text;
        assert_eq!(names, "DECODE_CALL GIVEN PATH PWD SHLVL _ \n[exit code 0]");
        assert_eq!(run(&fixture, "pwd; cat").text, format!("{}\n[exit code 0]", fixture.scope.root.display()));
    }

    #[test]
    fn a_background_process_does_not_hold_the_call_and_is_ended() {
        for command in [
            "sleep 300 & echo $! > pid; echo up",
            "nohup sleep 300 > /dev/null 2>&1 & echo $! > pid; disown; echo up",
            "setsid sh -c 'echo $$ > pid; exec sleep 300' & while [ ! -s pid ]; do :; done; echo up",
        ] {
            let fixture = Fixture::new();
            let started = std::time::Instant::now();
            let answer = run(&fixture, command);
            assert!(
                answer.ok && answer.text.starts_with("up\n[exit code 0]\n[1 process was left"),
                "{command}: {answer:?}"
            );
            assert!(answer.text.contains("sleep 300"), "{answer:?}");
            assert!(started.elapsed() < Duration::from_secs(5), "{command}");
            assert!(!survives(&fixture, "pid"), "{command}");
        }
    }

    #[test]
    fn at_the_time_limit_the_whole_tree_is_ended_and_the_output_kept() {
        for command in [
            "echo early; sleep 300 | sh -c 'echo $$ > pid; exec cat'",
            "echo early; (echo $BASHPID > pid; sleep 300; true)",
            "echo early; setsid -w sh -c 'echo $$ > pid; exec sleep 300'",
            "echo early; trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 1; done'",
        ] {
            let fixture = Fixture::new();
            let started = std::time::Instant::now();
            let answer = fixture.run(&Bash::default(), input(json!({"command": command, "timeout": 1})));
            assert!(!answer.ok && answer.text.starts_with("early\n[timed out after 1 s"), "{command}: {answer:?}");
            assert!(started.elapsed() < Duration::from_secs(10), "{command}");
            assert!(!survives(&fixture, "pid"), "{command}");
        }
    }

    #[test]
    fn a_call_that_is_cut_keeps_what_it_has() {
        let fixture = Fixture::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bash = Bash::default();
        let call = bash.run(
            input(json!({"command": "trap 'echo tidy; exit' TERM; echo $$ > pid; echo early; sleep 300 & wait"})),
            &fixture.scope,
        );
        let cut = async {
            while !fixture.path("pid").exists() {
                tokio::task::yield_now().await;
            }
            fixture.cut.send(true).unwrap();
        };
        let (answer, ()) = runtime.block_on(async { tokio::join!(call, cut) });
        assert!(!answer.ok && answer.text.contains("[cut short"), "{answer:?}");
        assert!(!survives(&fixture, "pid"));
    }

    #[test]
    fn a_call_that_is_dropped_takes_its_processes_along() {
        let fixture = Fixture::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bash = Bash::default();
            let call = bash.run(input(json!({"command": "sh -c 'echo $$ > pid; exec sleep 300'"})), &fixture.scope);
            let written = async {
                while std::fs::read(fixture.path("pid")).is_ok_and(|pid| pid.is_empty())
                    || !fixture.path("pid").exists()
                {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { _ = call => panic!("it ended"), () = written => {} }
        });
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while survives(&fixture, "pid") {
            assert!(std::time::Instant::now() < until, "it still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_has_no_terminal_to_take() {
        let fixture = Fixture::new();
        let answer =
            run(&fixture, "(: < /dev/tty) 2> /dev/null && echo terminal; ps -o sid= -p $$ | tr -d ' '; echo $$");
        let lines: Vec<&str> = answer.text.lines().collect();
        assert_eq!(lines.len(), 3, "{answer:?}");
        assert_eq!(lines[0], lines[1], "the shell leads its session: {answer:?}");
    }

    #[test]
    fn endless_output_is_cut_and_spilled() {
        let fixture = Fixture::new();
        let answer = run(&fixture, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last");
        assert!(
            answer.ok && answer.text.len() < 51_000 && answer.text.ends_with("[exit code 0]"),
            "{}",
            answer.text.len()
        );
        let path = answer.text.split("the whole is in ").nth(1).unwrap().split(']').next().unwrap();
        assert!(std::fs::read_to_string(path).unwrap().ends_with("x\nlast\n"));
    }

    /// A fixture whose commands are confined, with their network closed.
    fn confined() -> Option<Fixture> {
        use crate::sandbox::{Access, Confinement, Network, Rooms, support};
        if support().rooms != Rooms::Own {
            return None;
        }
        let mut fixture = Fixture::new();
        let base = fixture.scope.root.parent().unwrap().to_owned();
        let (temporary, state, home) = (base.join("t"), base.join("s"), base.join("h"));
        let mut confinement = Confinement::new(&fixture.scope.root, Access::Write, &temporary, &state, &home);
        confinement.network = Network::Closed;
        fixture.scope.sandbox = Some(confinement);
        Some(fixture)
    }

    #[test]
    fn a_named_host_is_reached_and_another_is_refused_and_named_in_the_answer() {
        let Some(fixture) = confined() else { return };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut client, _) = listener.accept().unwrap();
            let count = client.read(&mut [0; 4096]).unwrap();
            client.write_all(b"HTTP/1.0 200 OK\r\n\r\nfrom outside").unwrap();
            count
        });
        let fetch = |host: &str| {
            format!(
                "python3 -c \"import urllib.request as u; print(u.urlopen('http://{host}:{port}/').read().decode())\""
            )
        };
        let alone = run(&fixture, &fetch("127.0.0.1"));
        assert!(!alone.ok && alone.text.contains("refused"), "its own loopback is another one: {alone:?}");
        let other = run(&fixture, &fetch("crates.example"));
        assert!(!other.ok && other.text.contains("\"hosts\": [\"crates.example\"]"), "{other:?}");
        let named = json!({"command": fetch("127.0.0.1"), "hosts": ["127.0.0.1"], "timeout": 20});
        let reached = fixture.run(&Bash::default(), input(named));
        assert!(reached.ok && reached.text.starts_with("from outside"), "{reached:?}");
        assert!(server.join().unwrap() > 0);
    }

    #[test]
    fn the_gate_is_asked_for_each_host_where_the_network_is_closed() {
        let call = input(json!({"command": "true", "hosts": ["Crates.io", "::1"]}));
        let open = Fixture::new();
        assert_eq!(Bash::default().further(&call, &open.scope), []);
        let Some(fixture) = confined() else { return };
        let want = ["https://crates.io/", "https://[::1]/"].map(|url| Subject::Url(url.to_owned()));
        assert_eq!(Bash::default().further(&call, &fixture.scope), want);
        for wrong in [json!(["*"]), json!([1]), json!({}), json!(vec!["a.example"; 17])] {
            let answer = fixture.run(&Bash::default(), input(json!({"command": "true", "hosts": wrong.clone()})));
            assert!(!answer.ok, "{wrong}");
        }
    }

    #[test]
    fn what_a_confined_command_leaves_behind_is_named_and_ended() {
        let Some(fixture) = confined() else { return };
        let answer = run(
            &fixture,
            "env -i setsid sleep 300 > /dev/null 2>&1 & until pgrep -x sleep; do :; done > /dev/null; echo up",
        );
        assert!(answer.ok && answer.text.starts_with("up\n[exit code 0]\n[1 process was left"), "{answer:?}");
        assert!(answer.text.contains("sleep 300"), "{answer:?}");
        assert_eq!(run(&fixture, "echo a; exit 3").text, "a\n[exit code 3]");
    }

    /// Runs calls of one tool one after the other in one runtime, as an attempt does.
    fn session(fixture: &Fixture, calls: &[serde_json::Value]) -> Vec<Answer> {
        let bash = Bash::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = |call: &serde_json::Value| runtime.block_on(bash.run(input(call.clone()), &fixture.scope));
        calls.iter().map(run).collect()
    }

    #[test]
    fn a_job_goes_on_after_its_call_is_read_and_stopped_and_ends_with_the_attempt() {
        for fixture in [Some(Fixture::new()), confined()].into_iter().flatten() {
            let job = "echo one; until [ -e go ]; do :; done; echo two; exec sleep 300";
            let answers = session(
                &fixture,
                &[
                    json!({"command": job, "background": true}),
                    json!({"command": "exec sleep 300 # other", "background": true}),
                    json!({"job": "job-1"}),
                    json!({"command": "touch go; pgrep -f 'sleep 300' > /dev/null; echo between"}),
                    json!({"job": "job-1", "timeout": 1}),
                    json!({"job": "job-1", "stop": true}),
                    json!({"job": "job-1"}),
                ],
            );
            let texts: Vec<&str> = answers.iter().map(|answer| answer.text.as_str()).collect();
            assert!(texts[0].starts_with("[job-1 runs") && texts[1].starts_with("[job-2 runs"), "{texts:?}");
            assert_eq!(texts[2], "one\n[job-1 still runs]");
            assert_eq!(texts[3], "between\n[exit code 0]");
            assert_eq!(texts[4], "two\n[job-1 still runs]");
            assert_eq!(texts[5], "[stopped]\n[job-1 has ended]");
            assert!(!answers[6].ok && texts[6].contains("there are: job-2"), "{texts:?}");
            let root = fixture.scope.root.display().to_string();
            let lives = || {
                let pids = std::fs::read_dir("/proc").unwrap().flatten();
                pids.filter(|entry| {
                    std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.display().to_string() == root)
                })
                .count()
            };
            let until = std::time::Instant::now() + Duration::from_secs(10);
            while lives() > 0 {
                assert!(std::time::Instant::now() < until, "the second job outlives the attempt");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_job_that_ends_says_how_and_a_ninth_has_no_room() {
        let fixture = Fixture::new();
        let mut calls =
            vec![json!({"command": "echo last; exit 3", "background": true}), json!({"job": "job-1", "timeout": 20})];
        calls.extend((0..9).map(|_| json!({"command": "sleep 300", "background": true})));
        let answers = session(&fixture, &calls);
        assert_eq!((answers[1].ok, answers[1].text.as_str()), (false, "last\n[exit code 3]\n[job-1 has ended]"));
        assert!(answers[2..10].iter().all(|answer| answer.ok));
        assert!(!answers[10].ok && answers[10].text.contains("8 jobs run already"), "{:?}", answers[10]);
    }

    #[test]
    fn a_job_is_judged_as_the_command_it_runs() {
        let fixture = Fixture::new();
        let bash = Bash::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(bash.run(input(json!({"command": "sleep 300", "background": true})), &fixture.scope));
        let subject = bash.subject(&input(json!({"job": "job-1"})), &fixture.scope);
        assert_eq!(subject, Subject::Command("sleep 300".to_owned()));
        assert_eq!(bash.subject(&input(json!({"job": "job-9"})), &fixture.scope), Subject::None);
    }
}
