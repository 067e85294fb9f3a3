//! What ran is what was judged: generated lines, run by a real shell, against what the gate saw in them.
//!
//! The programs of the lines are markers that write down what they were called with. For every line that is understood,
//! each call must be one of the commands the gate found; for every line that is allowed, each must have a rule, and no
//! file may appear that the line was not judged for. `DECODE_GATE_LINES` says how many lines; the numbers are printed.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::line;
use super::pattern::overlap;
use super::syntax::{Access, Word};
use super::tests::{bash, policy};
use super::*;

const LINES: usize = 2_000;
const BATCH: usize = 500;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// A batch takes about a second; a line that hangs would hang for ever.
const PATIENCE: Duration = Duration::from_mins(2);

/// These have a rule, the others have none.
const ALLOWED: &[&str] = &["ma", "mb"];
const OTHERS: &[&str] = &["mx", "my"];

/// Random numbers that are the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }
}

/// Makes lines. `depth` bounds how far commands nest.
struct Generator {
    dice: Dice,
    /// Each function has a name of its own: one that calls itself in a pipe would never end.
    functions: usize,
}

impl Generator {
    fn function(&mut self) -> String {
        self.functions += 1;
        format!("fn{}", self.functions)
    }

    fn program(&mut self) -> &'static str {
        // Others are rarer, so that many lines can be allowed as a whole.
        if self.dice.roll(6) == 0 { self.dice.of(OTHERS) } else { self.dice.of(ALLOWED) }
    }

    /// A program's name as hostile or sloppy people write it.
    fn name(&mut self) -> String {
        let name = self.program();
        match self.dice.roll(16) {
            0 => format!("'{name}'"),
            1 => format!("\"{name}\""),
            2 => format!("\\{name}"),
            3 => format!("{}\"{}\"", &name[..1], &name[1..]),
            4 => format!("$'{name}'"),
            5 => format!("{}\\\n{}", &name[..1], &name[1..]),
            6 => format!("''{name}"),
            _ => name.to_owned(),
        }
    }

    fn word(&mut self, depth: usize) -> String {
        let plain = [
            "a",
            "b1",
            "-n",
            "--x=y",
            "'q r'",
            "\"d e\"",
            "a\\ b",
            "\"\"",
            "''",
            "x'y'\"z\"",
            "\\;",
            "';'",
            "\"a;b\"",
            "a#b",
            "#c",
            "$v",
            "\"$v\"",
            "${v}",
            "${v:-w}",
            "\"${v%x}\"",
            "$?",
            "{a,b}",
            "{}",
            "{",
            "}",
            "a{1..2}",
            "~",
            "a=~",
            "*",
            "f*",
            "[a]",
            "e[c]ho",
            "!",
            "if",
            "then",
            "do",
            "done",
            "in",
            "esac",
            "fi",
            "time",
            "[[",
            "]]",
            "$'a\\'b'",
            "\"a\\\"b\"",
            "\"\\\\\"",
            "\\\\",
            "a\\\nb",
            "=",
            "a=b",
            "+",
            "2",
            "12",
            "%1",
            "@",
            "^",
            "a,b",
            "a:b",
            "-",
            "--",
            "\"a\nb\"",
            "'a\nb'",
            "$",
            "a$",
            "\"$\"",
            "\"`\"",
            "\\`",
            "\"\\`ma x\\`\"",
            "'$(mx q)'",
            "'`mx q`'",
            "\"'\"",
            "'\"'",
            "\u{e9}",
            "\u{a0}",
            "${#v}",
            "${v/a/b}",
            "${!v}",
            "${v@P}",
            "${v:=1}",
            "$((1+2))",
            "$((v))",
            "$[1]",
            "&",
            "\"&&\"",
        ];
        match self.dice.roll(if depth == 0 { 8 } else { 14 }) {
            8 => format!("$({})", self.line(depth - 1)),
            9 => format!("\"$({})\"", self.line(depth - 1)),
            10 => format!("`{}`", self.simple(0)),
            11 => format!("<({})", self.line(depth - 1)),
            12 => format!("\"x${{v:-$({})}}y\"", self.line(depth - 1)),
            13 => format!("a$({})b", self.simple(depth - 1)),
            0..=2 => self.dice.of(&plain).to_owned(),
            _ => self.dice.of(&plain[..16]).to_owned(),
        }
    }

    fn redirect(&mut self, depth: usize) -> String {
        let file = format!("f{}", self.dice.roll(4));
        match self.dice.roll(14) {
            0 => format!(">{file}"),
            1 => format!(">> {file}"),
            2 => "2>&1".to_owned(),
            3 => format!("&>{file}"),
            4 => format!(">&{file}"),
            5 => "</dev/null".to_owned(),
            6 => format!(">|{file}"),
            7 => "<<<word".to_owned(),
            8 => format!("<> {file}"),
            9 => format!("2>\"{file}\""),
            10 => format!(">$v{file}"),
            11 if depth > 0 => format!("<<<\"$({})\"", self.simple(depth - 1)),
            12 if depth > 0 => format!("> >({})", self.simple(depth - 1)),
            _ => ">/dev/null".to_owned(),
        }
    }

    fn simple(&mut self, depth: usize) -> String {
        let mut parts = Vec::new();
        if self.dice.roll(14) == 0 {
            parts.push(self.dice.of(&["v=1", "w='a b'", "V=2", "v=$w", "v+=x", "v=(a b)", "v="]).to_owned());
        }
        if self.dice.roll(16) == 0 {
            parts.push(self.redirect(depth));
        }
        if self.dice.roll(7) == 0 {
            let wrapper = [
                "env",
                "command",
                "nice",
                "timeout 5",
                "nohup",
                "exec",
                "time",
                "builtin",
                "env A=b",
                "env -u A",
                "nice -n 1",
                "stdbuf -o0",
                "setsid -w",
                "time -p",
                "eval",
                "xargs",
                "xargs -I X",
                "!",
                "coproc",
                "echo",
                "then",
                "timeout -s 9 5",
            ];
            parts.push(self.dice.of(&wrapper).to_owned());
        }
        parts.push(self.name());
        for _ in 0..self.dice.roll(4) {
            let word = self.word(depth);
            parts.push(word);
            if self.dice.roll(10) == 0 {
                parts.push(self.redirect(depth));
            }
        }
        parts.join(" ")
    }

    fn command(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.simple(0);
        }
        let d = depth - 1;
        match self.dice.roll(36) {
            0 => format!("({})", self.line(d)),
            1 => format!("{{ {}; }}", self.line(d)),
            2 => format!("if {}; then {}; else {}; fi", self.line(d), self.line(d), self.line(d)),
            3 => format!("for v in {} {}; do {}; done", self.word(d), self.word(d), self.line(d)),
            4 => format!("while {} && false; do {}; done", self.simple(d), self.line(d)),
            5 => format!("case {} in a) {} ;; *) {} ;; esac", self.word(d), self.line(d), self.line(d)),
            6 => {
                let name = self.function();
                format!("{name}() {{ {}; }}; {name}", self.line(d))
            }
            7 => format!("bash -c '{}'", self.simple(0).replace('\'', "\"")),
            8 => format!("sh -c '{}'", self.simple(0).replace('\'', "\"")),
            9 => format!("cat <<E\n{} $({})\nE\n{}", self.word(0), self.simple(d), self.simple(d)),
            10 => format!("cat <<'E'\n$({}) `x`\nE\n{}", self.simple(d), self.simple(d)),
            11 => format!("cat <<E | {}\nbody\nE", self.simple(d)),
            12 => format!("[[ {} == a ]] && {}", self.word(d), self.line(d)),
            13 => format!("[ {} = a ] || {}", self.word(d), self.line(d)),
            14 => format!("! {}", self.line(d)),
            15 => format!("{} & {}", self.simple(d), self.line(d)),
            16 => format!("cd d && {} > g{}", self.simple(d), self.dice.roll(3)),
            17 => format!("(cd d; {} > g{})", self.simple(d), self.dice.roll(3)),
            18 => format!("{} # {}", self.simple(d), self.simple(0)),
            19 => format!("{}() {{ {}; }}", self.function(), self.line(d)),
            20 => format!("cat <<-E && {}\n\tbody\n\tE\n{}", self.simple(d), self.simple(d)),
            21 => format!("{{ {}; }} > f{}", self.line(d), self.dice.roll(4)),
            22 => format!("trap '{}' EXIT", self.simple(0).replace('\'', "\"")),
            _ => self.simple(depth),
        }
    }

    fn line(&mut self, depth: usize) -> String {
        let mut line = self.command(depth);
        while self.dice.roll(3) == 0 {
            let operator =
                self.dice.of(&["; ", " && ", " || ", " | ", "\n", " |& ", "&&", "||", ";", " \\\n&& ", " &&\n", "|"]);
            line.push_str(operator);
            line.push_str(&self.command(depth));
        }
        line
    }
}

/// Writes a call down, in one piece, since others may write at the same time.
fn note(name: &str) -> String {
    format!("printf '%s\\037' {name} \"$@\" '\u{1e}' >> \"$LOG\"")
}

/// A place with marker programs, and a shell that runs lines in it.
struct Ground {
    root: tempfile::TempDir,
}

/// What a line did.
struct Deeds {
    calls: Vec<Vec<String>>,
    files: Vec<String>,
}

impl Ground {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for name in ALLOWED.iter().chain(OTHERS) {
            let program = bin.join(name);
            fs::write(&program, format!("#!/bin/sh\n{}\n", note(name))).unwrap();
            Command::new("chmod").arg("755").arg(&program).status().unwrap();
        }
        for name in ["env", "nice", "timeout", "nohup", "stdbuf", "setsid", "xargs", "bash", "sh", "cat"] {
            let found = ["/usr/bin", "/bin"].iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
            std::os::unix::fs::symlink(found.unwrap_or_else(|| panic!("{name} is not here")), bin.join(name)).unwrap();
        }
        Self { root }
    }

    /// One shell for all lines, each in a process, a directory and a log of its own.
    fn run(&self, lines: &[String]) -> Vec<Deeds> {
        let root = self.root.path();
        let work = root.join("work");
        let _ = fs::remove_dir_all(&work);
        for number in 0..lines.len() {
            fs::create_dir_all(work.join(number.to_string()).join("d")).unwrap();
        }
        fs::create_dir_all(work.join("logs")).unwrap();
        let mut input = String::new();
        for line in lines {
            let _ = write!(input, "{line}\0");
        }
        fs::write(root.join("lines"), input).unwrap();
        // Functions are quicker than programs; a wrapper finds the programs.
        let mut driver = String::new();
        for name in ALLOWED.iter().chain(OTHERS) {
            let _ = writeln!(driver, "{name}() {{ {}; }}", note(name));
        }
        driver.push_str(
            "FUNCNEST=40\nn=0\nwhile IFS= read -r -d '' line <&9; do\n( export LOG=\"$W/logs/$n\"; cd \"$W/$n\" || exit; unset n W; exec 9<&- \
             </dev/null >/dev/null 2>&1; eval \"$line\"; wait )\nn=$((n+1))\ndone 9<\"$W/../lines\"\n",
        );
        let mut shell = Command::new("/bin/bash")
            .args(["--norc", "--noprofile", "-c", &driver])
            .env_clear()
            .env("PATH", root.join("bin"))
            .env("W", &work)
            .env("HOME", root.join("bin"))
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let start = Instant::now();
        while shell.try_wait().unwrap().is_none() {
            if start.elapsed() > PATIENCE {
                Command::new("kill").args(["-KILL", "--", &format!("-{}", shell.id())]).status().unwrap();
                shell.wait().unwrap();
                panic!("a line of the batch does not end: {lines:#?}");
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        (0..lines.len()).map(|number| Deeds::of(&work, number)).collect()
    }
}

impl Deeds {
    fn of(work: &Path, number: usize) -> Self {
        let log = fs::read(work.join("logs").join(number.to_string())).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let calls = log.split_terminator("\u{1e}\u{1f}").map(|call| {
            let call = call.strip_suffix('\u{1f}').unwrap_or(call);
            call.split('\u{1f}').map(str::to_owned).collect::<Vec<_>>()
        });
        let home = work.join(number.to_string());
        let mut files = Vec::new();
        for (place, prefix) in [(home.clone(), ""), (home.join("d"), "d/")] {
            for entry in fs::read_dir(place).unwrap().flatten() {
                if entry.path().is_file() {
                    files.push(format!("{prefix}{}", entry.file_name().to_string_lossy()));
                }
            }
        }
        Self { calls: calls.collect(), files }
    }
}

/// A class that fits no file stays as it is written.
fn loose(word: &Word) -> Vec<pattern::Piece> {
    let any = |piece| if piece == pattern::Piece::One { pattern::Piece::Any } else { piece };
    word.glob().into_iter().map(any).collect()
}

/// Whether the call may have come from these words.
fn explains(words: &[Word], call: &[String]) -> bool {
    let mut reachable = vec![false; call.len() + 1];
    reachable[0] = true;
    for word in words {
        let mut next = vec![false; call.len() + 1];
        for at in (0..=call.len()).filter(|at| reachable[*at]) {
            if word.expands() {
                next[at..].fill(true);
                continue;
            }
            let Some(text) = call.get(at) else { continue };
            let text: Vec<pattern::Piece> = text.chars().map(pattern::Piece::Char).collect();
            // A glob may become several names.
            if word.known().map_or_else(|| overlap(&loose(word), &text), |known| known == call[at]) {
                next[at + 1] = true;
                if word.known().is_none() {
                    next[at + 1..].fill(true);
                }
            }
        }
        reachable = next;
    }
    reachable[call.len()]
}

/// What is wrong with how the line was judged, seen what it did.
fn fault(line: &str, deeds: &Deeds, decision: &Decision) -> Option<String> {
    let all = line::everything(line);
    let understood = all.unread.is_empty() && !all.hides;
    if understood {
        for call in &deeds.calls {
            if !all.steps.iter().any(|step| explains(&step.simple.words, call)) {
                return Some(format!("{call:?} ran and was not seen"));
            }
        }
        for file in &deeds.files {
            let judged = all.steps.iter().any(|step| {
                step.simple.redirects.iter().filter(|redirect| redirect.access == Access::Write).any(|redirect| {
                    let Some(path) = redirect.target.known() else { return true };
                    step.places.is_anywhere() || step.places.resolve(path).iter().any(|path| path == file)
                })
            });
            if !judged {
                return Some(format!("`{file}` was written and that was not seen"));
            }
        }
    }
    if *decision != Decision::Allow {
        return None;
    }
    if let Some(call) = deeds.calls.iter().find(|call| !ALLOWED.contains(&call[0].as_str())) {
        return Some(format!("it was allowed, and {call:?} ran"));
    }
    let outside = deeds.files.iter().find(|file| !matches!(file.as_str(), "f0" | "f1" | "d/g0" | "d/g1"));
    outside.map(|file| format!("it was allowed, and `{file}` was written"))
}

#[test]
fn what_a_real_shell_runs_is_what_was_judged() {
    let wanted = std::env::var("DECODE_GATE_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(LINES);
    let policy = policy(
        Mode::Default,
        &[
            "bash(ma *)",
            "bash(mb *)",
            "bash(cat *)",
            "bash(echo *)",
            "write(f0)",
            "write(f1)",
            "write(d/g0)",
            "write(d/g1)",
        ],
        &[],
    );
    let ground = Ground::new();
    let mut generator = Generator { dice: Dice(SEED), functions: 0 };
    let (mut done, mut allowed, mut read, mut ran) = (0, 0, 0, 0);
    let mut faults: Vec<String> = Vec::new();
    while done < wanted {
        let lines: Vec<String> = (0..BATCH.min(wanted - done)).map(|_| generator.line(2)).collect();
        for (line, deeds) in lines.iter().zip(ground.run(&lines)) {
            let decision = bash(line, &policy);
            allowed += usize::from(decision == Decision::Allow);
            read += usize::from(line::steps(line).is_ok());
            ran += deeds.calls.len();
            faults.extend(fault(line, &deeds, &decision).map(|fault| format!("{fault}: {line:?}")));
        }
        done += lines.len();
    }
    eprintln!("{done} lines: {read} understood, {allowed} allowed, {ran} commands ran, {} faults", faults.len());
    faults.sort_by_key(String::len);
    faults.truncate(40);
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(allowed * 10 > done && read * 3 > done, "the test shows nothing if hardly any line is allowed");
}
