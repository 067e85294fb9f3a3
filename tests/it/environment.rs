//! One world a test: home, state, repository, tmux server and model of its own, and nothing left of it afterwards.
//!
//! Deliberately absent: what is expected of the program; that is in the tests.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model_server::{ModelServer, Script, Step};

/// What hangs is said to hang after this; the machine may be busy with all the other tests.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at something that does not announce itself.
const LOOK: Duration = Duration::from_millis(20);

const DECODE: &str = env!("CARGO_BIN_EXE_decode");

/// Waits for something to be there, and says what was missing when it is not.
pub(crate) fn wait_for<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, found)
}

pub(crate) fn wait_within<T>(limit: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

/// How a command ended and what it said.
#[derive(Debug)]
pub(crate) struct Output {
    /// As a shell has it: 128 and the signal's number where one ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Fails with all that was said, unless the code is this one.
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// One object a line.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// A command that runs; ended with the test.
pub(crate) struct Started {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Started {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id is an i32");
        kill(Pid::from_raw(pid), signal).expect("the command runs");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child can be waited for").is_some()
    }

    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("stdin was asked for")
    }

    pub(crate) fn stderr(&self) -> String {
        read(&self.stderr)
    }

    pub(crate) fn stdout(&self) -> String {
        read(&self.stdout)
    }

    pub(crate) fn wait(&mut self) -> Output {
        let what = format!("the command ends; so far: {}{}", self.stdout(), self.stderr());
        let status = wait_for(&what, || self.child.try_wait().expect("our own child can be waited for"));
        Output { code: code(status), stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Waited for before: then there is no such child any more, which is an error of no interest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A file's text; empty while it is not there.
pub(crate) fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// One world.
pub(crate) struct Environment {
    root: TempDir,
    socket: String,
    variables: Vec<(String, String)>,
    model: Option<ModelServer>,
    commands: AtomicU32,
}

impl Environment {
    /// A world without a key.
    pub(crate) fn new() -> Self {
        // A socket's path has room for 107 bytes, so the directory is as near to the root as can be.
        let root = tempfile::Builder::new().prefix("dit").tempdir_in("/tmp").expect("there is room in /tmp");
        for name in ["h", "t", "x", "out"] {
            fs::create_dir(root.path().join(name)).expect("the directory is ours");
        }
        let name = root.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let environment = Self { root, socket: name, variables: Vec::new(), model: None, commands: AtomicU32::new(0) };
        environment.make_repository();
        environment
    }

    /// A world whose only model answers as scripted.
    pub(crate) fn with_model(script: Script) -> Self {
        Self::new().and_model(script)
    }

    /// The same world with a model.
    pub(crate) fn and_model(mut self, script: Script) -> Self {
        let server = ModelServer::start(script);
        self.set("OPENAI_BASE_URL", &server.url());
        self.set("OPENAI_API_KEY", "x");
        self.serve(server)
    }

    /// The same world with a model that it knows how to reach.
    pub(crate) fn serve(mut self, server: ModelServer) -> Self {
        self.model = Some(server);
        self
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("h")
    }

    /// A variable of every command from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    fn make_repository(&self) {
        fs::create_dir_all(self.project().join("src")).expect("the directory is ours");
        self.write("src/lib.rs", "pub fn start() {}\npub fn stop() {}\n");
        self.write("README.md", "# A small project\n");
        self.git(&["init", "-q", "-b", "main"]);
        self.git(&["add", "."]);
        self.git(&["commit", "-q", "-m", "begin"]);
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.root.path().join("p")
    }

    /// A file of the project.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.project().join(name), text).expect("the project is ours");
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = self
            .plain("git")
            .args(["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"])
            .args(arguments)
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn model(&self) -> &ModelServer {
        self.model.as_ref().expect("this world has a model")
    }

    /// Blocks until the model was asked so often.
    pub(crate) fn wait_for_requests(&self, number: usize) {
        let asked = self.model().wait_for_requests(number, PATIENCE);
        assert!(asked, "{} of {number} requests came", self.model().requests().len());
    }

    /// A command in this world's environment, and nothing of the caller's but the way to programs.
    pub(crate) fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root.path().join("h"))
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("TMUX_TMPDIR", self.root.path().join("t"))
            .env("XDG_RUNTIME_DIR", self.root.path().join("x"))
            .env("DECODE_STATE", self.state())
            .env("DECODE_TMUX_SOCKET", &self.socket)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .current_dir(self.project());
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.plain(DECODE);
        command.args(arguments);
        command
    }

    /// Runs to the end.
    pub(crate) fn decode(&self, arguments: &[&str]) -> Output {
        self.spawn(arguments).wait()
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> Started {
        self.start(self.command(arguments))
    }

    /// Output goes to files: a pipe that somebody else holds open would keep the test waiting.
    pub(crate) fn start(&self, mut command: Command) -> Started {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let path = |name: &str| self.root.path().join("out").join(format!("{number}.{name}"));
        let (stdout, stderr) = (path("stdout"), path("stderr"));
        let file = |path: &Path| File::create(path).expect("the directory is ours");
        command.stdout(file(&stdout)).stderr(file(&stderr));
        let child = command.spawn().expect("the program is there");
        Started { child, stdout, stderr }
    }

    /// Starts a run that goes on by itself, and gives its name.
    pub(crate) fn detached(&self, arguments: &[&str]) -> Run<'_> {
        let words: Vec<&str> = ["fan", "-d", "-y"].iter().chain(arguments).copied().collect();
        let output = self.decode(&words).expect_code(0);
        self.run(output.stdout.trim())
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("s")
    }

    pub(crate) fn run(&self, name: &str) -> Run<'_> {
        let directory = self.state().join("runs").join(name);
        assert!(!name.is_empty() && directory.is_dir(), "`{name}` is no run");
        Run { environment: self, name: name.to_owned(), directory }
    }

    /// The one run of this world, as soon as it is driven.
    pub(crate) fn only_run(&self) -> Run<'_> {
        let name = wait_for("the one run is there", || {
            let entry = fs::read_dir(self.state().join("runs")).ok()?.next()?.ok()?;
            entry.path().join("run.md").is_file().then(|| entry.file_name().to_string_lossy().into_owned())
        });
        self.run(&name)
    }

    pub(crate) fn socket(&self) -> &str {
        &self.socket
    }

    /// A second server, which stands for the person's own.
    pub(crate) fn other_socket(&self) -> String {
        format!("{}-own", self.socket)
    }

    /// Asks a tmux server of this world; empty where there is none.
    pub(crate) fn tmux(&self, socket: &str, arguments: &[&str]) -> String {
        let output = self.plain("tmux").args(["-L", socket, "-f", "/dev/null"]).args(arguments).output();
        String::from_utf8_lossy(&output.expect("tmux is installed").stdout).into_owned()
    }

    /// Names of the windows of a run, of those that are there.
    pub(crate) fn windows(&self, run: &str) -> Vec<String> {
        let target = format!("={run}");
        let names = self.tmux(&self.socket, &["list-windows", "-t", &target, "-F", "#{window_name}"]);
        names.lines().map(str::to_owned).collect()
    }

    /// Processes of this world: their command line or environment names its directory.
    pub(crate) fn processes(&self) -> Vec<(Pid, String)> {
        let mark = self.root.path().to_string_lossy().into_owned();
        let entries = fs::read_dir("/proc").expect("there is a /proc");
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = numbers.filter_map(|pid| {
            let directory = PathBuf::from(format!("/proc/{pid}"));
            let line = read(&directory.join("cmdline")).replace('\0', " ");
            let named = line.contains(&mark) || read(&directory.join("environ")).contains(&mark);
            let dead =
                read(&directory.join("stat")).rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z'));
            (named && !dead).then(|| (Pid::from_raw(pid), line))
        });
        ours.collect()
    }

    /// Supervisors, children and what they started, without tmux itself.
    pub(crate) fn workers(&self) -> Vec<String> {
        let all = self.processes().into_iter().map(|(_, line)| line);
        all.filter(|line| !line.starts_with("tmux")).collect()
    }

    /// Fails unless all ends by itself, soon.
    pub(crate) fn expect_no_workers(&self) {
        wait_within(Duration::from_secs(20), &format!("no process is left of {:?}", self.workers()), || {
            self.workers().is_empty().then_some(())
        });
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for socket in [self.socket.clone(), self.other_socket()] {
            self.tmux(&socket, &["kill-server"]);
        }
        let end = Instant::now() + Duration::from_secs(10);
        let mut left = self.processes();
        while !left.is_empty() && Instant::now() < end {
            for (pid, _) in &left {
                // Ended by itself since: all the better.
                let _ = kill(*pid, Signal::SIGKILL);
            }
            std::thread::sleep(LOOK);
            left = self.processes();
        }
        if !std::thread::panicking() {
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

/// A run on the disk.
pub(crate) struct Run<'a> {
    environment: &'a Environment,
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
}

impl Run<'_> {
    /// `RUN/number`.
    pub(crate) fn child(&self, number: usize) -> String {
        format!("{}/{number}", self.name)
    }

    /// The directory of an attempt; waits until it is there.
    pub(crate) fn attempt(&self, number: usize, attempt: u32) -> PathBuf {
        let start = format!("{number:02}-");
        let directory = wait_for("the child has a directory", || {
            let entries = fs::read_dir(self.directory.join("children")).ok()?;
            entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(&start))
        });
        directory.path().join(attempt.to_string())
    }

    /// A key of an attempt's claim, once it is claimed.
    pub(crate) fn claimed(&self, number: usize, attempt: u32, key: &str) -> String {
        let path = self.attempt(number, attempt).join("claim.md");
        wait_for("the attempt is claimed", || header(&read(&path), key))
    }

    /// The process of an attempt.
    pub(crate) fn pid(&self, number: usize, attempt: u32) -> Pid {
        Pid::from_raw(self.claimed(number, attempt, "pid").parse().expect("a claim names a process"))
    }

    pub(crate) fn supervisor(&self) -> Pid {
        let path = self.directory.join("run.md");
        let pid = wait_for("somebody drives the run", || header(&read(&path), "pid"));
        Pid::from_raw(pid.parse().expect("run.md names a process"))
    }

    /// The report as it lies on the disk, once it is there.
    pub(crate) fn report(&self, number: usize, attempt: u32) -> String {
        let path = self.attempt(number, attempt).join("report.md");
        wait_for("the report is on the disk", || path.is_file().then(|| read(&path)))
    }

    /// The records of an attempt's session.
    pub(crate) fn session(&self, number: usize, attempt: u32) -> Vec<Value> {
        let text = read(&self.attempt(number, attempt).join("session.jsonl"));
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// What was said to a child by anybody but the task.
    pub(crate) fn said(&self, number: usize, attempt: u32) -> Vec<(String, String)> {
        let word = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
        let session = self.session(number, attempt);
        let users = session.iter().filter(|record| record["type"] == "user" && record["by"] != "task");
        users.map(|record| (word(record, "by"), word(record, "text"))).collect()
    }

    pub(crate) fn events(&self) -> String {
        read(&self.directory.join("events.jsonl"))
    }

    pub(crate) fn show(&self) -> Value {
        self.environment.decode(&["show", &self.name, "--json"]).expect_code(0).json()
    }

    pub(crate) fn wait(&self) -> Output {
        self.environment.decode(&["wait", &self.name])
    }

    pub(crate) fn wait_json(&self) -> Value {
        self.environment.decode(&["wait", &self.name, "-o", "json"]).json()
    }
}

/// The value of a key of a front matter, at any depth.
pub(crate) fn header(text: &str, key: &str) -> Option<String> {
    let start = format!("{key}:");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&start))?;
    Some(line.trim().trim_matches('\'').to_owned()).filter(|value| !value.is_empty())
}

pub(crate) fn terminate(pid: Pid, signal: Signal) {
    kill(pid, signal).expect("the process runs");
}

/// A step that looks at a file: a report without evidence is not used.
pub(crate) fn looks() -> Step {
    Step::call("call-1", "read", &json!({"path": "src/lib.rs"}))
}
