//! `bash`: one command line, run to its end or to its time, with all it started ended with it.
//!
//! A background process may outlive its command by 0.2 s, while what it still prints is gathered, and is then ended:
//! nothing a call starts outlives the call. Deliberately absent: a background mode, the sandbox around the shell, and
//! whether the line may run.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::output::Output;
use super::{Answer, Input, Running, Scope, Tool, input};
use crate::command;
use crate::command::identity::Identity;
use crate::command::tree::Marked;
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::sandbox;
use crate::text;

/// A model may ask for less, never for more.
const LIMIT_S: u64 = 120;

/// What a background process prints after its command has ended is still gathered for so long.
const DRAIN: Duration = Duration::from_millis(200);

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);

/// The same for what was left in the background, which nobody waits for.
const LEFT_GRACE: Duration = Duration::from_millis(500);

/// After KILL a process is gone as soon as the kernel gets to it.
const KILLED: Duration = Duration::from_secs(1);

/// The death of a process that is not our child announces itself to nobody; so we look.
const LOOK: Duration = Duration::from_millis(20);

/// In the environment of all that a call starts, so that what leaves its session is found too.
const MARK: &str = "DECODE_CALL";

/// Variables that make a shell run or print something of its own before the command.
const SHELL_VARIABLES: &[&str] = &["BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4"];

#[derive(Debug)]
pub(crate) struct Bash;

impl Tool for Bash {
    fn name(&self) -> ToolName {
        ToolName::Bash
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Bash.as_str(),
            description: "Run a command line with bash in the workspace. Answers what it prints and its exit code. There is \
                no terminal and no input; each call starts afresh in the workspace. At most 120 seconds; what still runs \
                when the command has ended is ended too."
                .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": LIMIT_S, "description": "Seconds; default 120"}
                },
                "required": ["command"]
            }),
        }
    }

    fn subject(&self, input: &Input, _: &Scope) -> Subject {
        input::text(input, "command").map_or(Subject::None, |line| Subject::Command(line.to_owned()))
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move { bash(&input, scope).await.unwrap_or_else(|correction| correction) })
    }
}

/// Why a call ended.
enum End {
    Exited(std::io::Result<ExitStatus>),
    TimedOut,
    Cut,
}

async fn bash(input: &Input, scope: &Scope) -> Result<Answer, Answer> {
    let line = input::text(input, "command")?;
    if line.trim().is_empty() {
        return Err(Answer::correction("the command is empty"));
    }
    let seconds = input::optional_count(input, "timeout")?.unwrap_or(LIMIT_S).min(LIMIT_S);
    let failed = |error| Answer::correction(format!("the shell could not be started: {error}"));
    let (mut child, mut pipe, mut tree) = start(line, scope).map_err(failed)?;
    let mut output = Output::new(&scope.spill);
    let end = tokio::select! {
        biased;
        status = child.wait() => End::Exited(status),
        () = is_cut(scope) => End::Cut,
        () = sleep(Duration::from_secs(seconds)) => End::TimedOut,
        never = gather_on(&mut pipe, &mut output) => match never {},
    };
    let note = match end {
        End::Exited(status) => {
            let _ = timeout(DRAIN, gather(&mut pipe, &mut output)).await;
            let left = tree.names();
            if left.is_empty() {
                tree.is_over = true;
            } else {
                end_tree(&mut tree, LEFT_GRACE, &mut pipe, &mut output).await;
            }
            return Ok(exited(status, output, &left));
        }
        End::TimedOut => format!("[timed out after {seconds} s; the command and all it started were ended]"),
        End::Cut => "[cut short; the command and all it started were ended]".to_owned(),
    };
    end_tree(&mut tree, GRACE, &mut pipe, &mut output).await;
    let _ = timeout(DRAIN, gather(&mut pipe, &mut output)).await;
    Ok(Answer { ok: false, ..Answer::done(joined(output, &note)) })
}

fn exited(status: std::io::Result<ExitStatus>, output: Output, left: &[String]) -> Answer {
    use std::os::unix::process::ExitStatusExt;
    let (ok, mut note) = match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => (code == 0, format!("[exit code {code}]")),
        Ok((None, signal)) => (false, format!("[ended by signal {}]", signal.unwrap_or_default())),
        Err(error) => (false, format!("[its end was not seen: {error}]")),
    };
    if !left.is_empty() {
        let were = text::count(left.len(), "process was", "processes were");
        let _ = write!(note, "\n[{were} left in the background and ended: {}]", left.join(", "));
    }
    Answer { ok, ..Answer::done(joined(output, &note)) }
}

fn joined(output: Output, note: &str) -> String {
    let printed = text::without_controls(&output.finish());
    let between = if printed.is_empty() || printed.ends_with('\n') { "" } else { "\n" };
    format!("{printed}{between}{note}")
}

/// The shell with its line. What wraps it in a sandbox wraps it here.
fn shell(line: &str, scope: &Scope, mark: &str) -> Command {
    let program = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let mut command = Command::new(program);
    // Without `--` a line that starts with a dash would be an option.
    command.args(["-c", "--", line]).current_dir(&scope.root).env_clear();
    let kept = scope.environment.iter().filter(|(name, _)| !SHELL_VARIABLES.contains(&name.as_str()));
    command.envs(kept.map(|(name, value)| (name, value))).env(MARK, mark);
    command
}

/// Starts the shell in a session of its own; both of its outputs come through one pipe, in order.
fn start(line: &str, scope: &Scope) -> std::io::Result<(Child, Receiver, Tree)> {
    let mark = uuid::Uuid::new_v4().to_string();
    let (reader, writer) = std::io::pipe()?;
    let mut command = shell(line, scope, &mark);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
    command::stand_alone(&mut command);
    if let Some(confinement) = &scope.sandbox {
        sandbox::confine(&mut command, confinement).map_err(std::io::Error::other)?;
    }
    let child = command.spawn()?;
    let leader = child.id().and_then(|id| Identity::of(id.cast_signed())).ok_or(std::io::ErrorKind::NotFound)?;
    // The tree comes first: from here on it is ended even if the next line fails.
    let tree = Tree { members: Marked::new(leader, format!("{MARK}={mark}")), is_over: false };
    Ok((child, Receiver::from_owned_fd(OwnedFd::from(reader))?, tree))
}

async fn is_cut(scope: &Scope) {
    let mut cut = scope.cut.clone();
    if cut.wait_for(|cut| *cut).await.is_err() {
        // Nobody is left who could cut.
        std::future::pending::<()>().await;
    }
}

/// Takes what is printed until every writer has closed the pipe.
async fn gather(pipe: &mut Receiver, output: &mut Output) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        output.push(&buffer[..count]);
    }
}

/// The same, without an end of its own.
async fn gather_on(pipe: &mut Receiver, output: &mut Output) -> Infallible {
    gather(pipe, output).await;
    std::future::pending().await
}

/// Ends the tree while its last words are still taken: a process that cannot write cannot tidy up.
async fn end_tree(tree: &mut Tree, grace: Duration, pipe: &mut Receiver, output: &mut Output) {
    tokio::select! {
        () = tree.end(grace) => {}
        never = gather_on(pipe, output) => match never {},
    }
}

/// All that a call has started.
struct Tree {
    members: Marked,
    is_over: bool,
}

impl Tree {
    /// TERM to all of it, KILL to what is left after the grace.
    async fn end(&mut self, grace: Duration) {
        for (signal, patience) in [(Signal::SIGTERM, grace), (Signal::SIGKILL, KILLED)] {
            let until = Instant::now() + patience;
            self.members.signal(signal);
            while !self.members.living().is_empty() && Instant::now() < until {
                sleep(LOOK).await;
                if signal == Signal::SIGKILL {
                    // What was forked since the last look.
                    self.members.signal(signal);
                }
            }
        }
        self.is_over = true;
    }

    /// What people call the members that still run.
    fn names(&self) -> Vec<String> {
        let name = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            format!("{pid} {}", text::one_line(&line, 60)).trim_end().to_owned()
        };
        self.members.living().iter().map(name).collect()
    }
}

impl Drop for Tree {
    /// A call that is dropped half-way takes all it started along.
    fn drop(&mut self) {
        if !self.is_over {
            self.members.signal(Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::*;
    use crate::command::identity::{Liveness, liveness};

    fn run(fixture: &Fixture, command: &str) -> Answer {
        fixture.run(&Bash, input(json!({"command": command, "timeout": 20})))
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
            assert!(!fixture.run(&Bash, input(arguments.clone())).ok, "{arguments}");
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
            let answer = fixture.run(&Bash, input(json!({"command": command, "timeout": 1})));
            assert!(!answer.ok && answer.text.starts_with("early\n[timed out after 1 s"), "{command}: {answer:?}");
            assert!(started.elapsed() < Duration::from_secs(10), "{command}");
            assert!(!survives(&fixture, "pid"), "{command}");
        }
    }

    #[test]
    fn a_call_that_is_cut_keeps_what_it_has() {
        let fixture = Fixture::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let call = Bash.run(
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
            let call = Bash.run(input(json!({"command": "sh -c 'echo $$ > pid; exec sleep 300'"})), &fixture.scope);
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
}
