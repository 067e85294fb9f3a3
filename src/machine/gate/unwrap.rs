//! Commands that run another command: what it is, and whether it is the same as running it directly.
//!
//! One reading serves allowing, denying and explaining. A wrapper with an option that is not known hides what it runs.
//! Deliberately absent: whether any of it may run (`commands`).

use super::programs::base_name;
use super::syntax::{Piece, Simple, Word, Words};

/// What a command runs besides itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrapped {
    pub(super) manner: Manner,
    pub(super) inner: Vec<Inner>,
    /// From which word of the command on the (first) inner command stands.
    pub(super) at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Manner {
    /// As if it stood there alone.
    Clear,
    /// Beside what the program itself does, which needs a rule of its own (`find -exec`): these are its own words.
    Beside { own: Vec<Word> },
    /// Elsewhere, as somebody else, or later: needs a rule that names it.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inner {
    Command(Vec<Word>),
    /// One of the tails of these words, which one cannot be told.
    Tails(Vec<Word>),
    /// Text that is read as a shell line.
    Script {
        text: String,
        shell: Shell,
    },
    /// It runs something, and what cannot be told.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shell {
    Bash,
    /// Reads some operators otherwise.
    Plain,
}

/// How a simple wrapper's own words are told from the command's.
struct Shape {
    names: &'static [&'static str],
    /// Options that stand alone.
    flags: &'static [&'static str],
    /// Options that take a value, in the same word or the next.
    values: &'static [&'static str],
    /// Words of its own before the command.
    operands: usize,
    manner: Manner,
}

const SHAPES: &[Shape] = &[
    Shape { names: &["nohup", "builtin"], flags: &[], values: &[], operands: 0, manner: Manner::Clear },
    Shape { names: &["command"], flags: &["-p"], values: &[], operands: 0, manner: Manner::Clear },
    Shape { names: &["exec"], flags: &["-c", "-l"], values: &["-a"], operands: 0, manner: Manner::Clear },
    Shape { names: &["time"], flags: &["-p", "-v"], values: &[], operands: 0, manner: Manner::Clear },
    Shape { names: &["nice"], flags: &[], values: &["-n", "--adjustment"], operands: 0, manner: Manner::Clear },
    Shape {
        names: &["ionice"],
        flags: &["-t"],
        values: &["-c", "-n", "--class", "--classdata"],
        operands: 0,
        manner: Manner::Clear,
    },
    Shape {
        names: &["timeout", "gtimeout"],
        flags: &["--foreground", "--preserve-status", "-v", "--verbose"],
        values: &["-k", "-s", "--kill-after", "--signal"],
        operands: 1,
        manner: Manner::Clear,
    },
    Shape {
        names: &["stdbuf"],
        flags: &[],
        values: &["-i", "-o", "-e", "--input", "--output", "--error"],
        operands: 0,
        manner: Manner::Clear,
    },
    Shape {
        names: &["setsid"],
        flags: &["-c", "-f", "-w", "--ctty", "--fork", "--wait"],
        values: &[],
        operands: 0,
        manner: Manner::Clear,
    },
    Shape { names: &["busybox"], flags: &[], values: &[], operands: 0, manner: Manner::Clear },
    Shape {
        names: &["sudo", "doas"],
        flags: &["-n", "-E", "-H", "-i", "-s", "-k", "-S", "-A", "-b", "-P", "--preserve-env", "--non-interactive"],
        values: &["-u", "-g", "-C", "-D", "-h", "-p", "-r", "-t", "-T", "-U", "--user", "--group"],
        operands: 0,
        manner: Manner::Foreign,
    },
    Shape { names: &["chroot"], flags: &[], values: &["--userspec", "--groups"], operands: 1, manner: Manner::Foreign },
    Shape {
        names: &["flock"],
        flags: &["-n", "-s", "-x", "-e", "-u", "-o", "-F"],
        values: &["-w", "-E", "--timeout"],
        operands: 1,
        manner: Manner::Foreign,
    },
    Shape {
        names: &["strace", "ltrace"],
        flags: &["-f", "-ff", "-c", "-t", "-tt", "-y", "-q"],
        values: &["-e", "-o", "-s", "-u"],
        operands: 0,
        manner: Manner::Foreign,
    },
    Shape { names: &["taskset", "chrt"], flags: &["-c", "-a"], values: &[], operands: 1, manner: Manner::Foreign },
    Shape {
        names: &[
            "unshare",
            "nsenter",
            "firejail",
            "bwrap",
            "caffeinate",
            "dbus-run-session",
            "watch",
            "entr",
            "runuser",
        ],
        flags: &["-r", "-m", "-n", "-t", "-d", "-c", "-e", "-g", "-x"],
        values: &[],
        operands: 0,
        manner: Manner::Foreign,
    },
    Shape {
        names: &["parallel"],
        flags: &["-k", "--keep-order", "--will-cite", "-0", "--null", "-X", "-m", "--bar"],
        values: &["-j", "--jobs", "-n", "-N", "-I"],
        operands: 0,
        manner: Manner::Foreign,
    },
];

/// Commands of container programs that run nothing.
const LOOKING: &[&str] = &["describe", "get", "images", "info", "inspect", "logs", "ps", "top", "version"];

/// What the command runs besides itself, if it is known to run anything.
pub(super) fn unwrap(simple: &Simple) -> Option<Wrapped> {
    let words = &simple.words;
    let program = base_name(words.first()?.known()?);
    // Said about a command, not done with it.
    if matches!(program, "command") && words.get(1).is_some_and(|word| matches!(word.known(), Some("-v" | "-V"))) {
        return None;
    }
    let wrapped = match program {
        "bash" | "rbash" | "zsh" | "ksh" => shell(simple, Shell::Bash),
        "sh" | "dash" | "ash" => shell(simple, Shell::Plain),
        "fish" | "csh" | "tcsh" | "pwsh" => hidden(Manner::Foreign),
        "eval" => joined(Manner::Foreign, 1, &words[1..]),
        "trap" => trap(words),
        "source" | "." => hidden(Manner::Foreign),
        "env" => env(words),
        "xargs" | "gxargs" => xargs(words),
        "find" | "gfind" => find(words)?,
        "fd" | "fdfind" => fd(words)?,
        "ssh" => ssh(words),
        "docker" | "podman" | "kubectl"
            if words.get(1).and_then(Word::known).is_some_and(|word| LOOKING.contains(&word)) =>
        {
            return None;
        }
        "su" | "script" | "screen" | "tmux" | "docker" | "podman" | "kubectl" | "expect" | "gdb" | "rsh"
        | "systemd-run" | "at" | "batch" | "crontab" => texts(words),
        _ => shaped(program, words)?,
    };
    Some(wrapped)
}

fn hidden(manner: Manner) -> Wrapped {
    Wrapped { manner, inner: vec![Inner::Unknown], at: usize::MAX }
}

fn command(manner: Manner, at: usize, words: &[Word]) -> Wrapped {
    let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) else {
        return Wrapped { manner, inner: Vec::new(), at: usize::MAX };
    };
    Wrapped { manner, inner: vec![Inner::Command(rest.to_vec())], at }
}

/// Words that a shell joins with blanks and reads again.
fn joined(manner: Manner, at: usize, words: &[Word]) -> Wrapped {
    let texts: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    let inner = match texts {
        Some(texts) if !texts.is_empty() => Inner::Script { text: texts.join(" "), shell: Shell::Bash },
        Some(_) | None => Inner::Unknown,
    };
    Wrapped { manner, inner: vec![inner], at }
}

fn shaped(program: &str, words: &[Word]) -> Option<Wrapped> {
    let shape = SHAPES.iter().find(|shape| shape.names.contains(&program))?;
    let mut operands = shape.operands;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(text) = word.known() else { break };
        if text == "--" {
            at += 1 + operands;
            break;
        }
        if !text.starts_with('-') || text == "-" {
            if operands == 0 {
                break;
            }
            operands -= 1;
            at += 1;
            continue;
        }
        let (name, has_value) = text.split_once('=').map_or((text, false), |(name, _)| (name, true));
        let numeric = program == "nice" && text[1..].bytes().all(|b| b.is_ascii_digit());
        if shape.flags.contains(&name) || numeric {
            at += 1;
        } else if shape.values.contains(&name) {
            at += if has_value { 1 } else { 2 };
        } else if shape.values.iter().any(|value| value.len() == 2 && text.starts_with(value)) {
            at += 1;
        } else {
            return Some(hidden(shape.manner.clone()));
        }
    }
    let mut wrapped = command(shape.manner.clone(), at, words);
    if matches!(program, "watch" | "parallel" | "entr") {
        // A shell reads these again.
        wrapped = joined(shape.manner.clone(), at, words.get(at..).unwrap_or_default());
        wrapped.inner.push(Inner::Unknown);
    }
    Some(wrapped)
}

fn shell(simple: &Simple, shell: Shell) -> Wrapped {
    let words = &simple.words;
    let mut at = 1;
    let mut reads_line = false;
    while let Some(text) = words.get(at).and_then(Word::known).filter(|text| text.starts_with('-') && text.len() > 1) {
        at += 1;
        match text {
            "-o" if words.get(at).and_then(Word::known) == Some("pipefail") => at += 1,
            "--norc" | "--noprofile" => {}
            _ if text.ends_with('o')
                && words.get(at).and_then(Word::known) == Some("pipefail")
                && text[1..].chars().all(|c| "euo".contains(c)) =>
            {
                at += 1;
            }
            // Other letters trace, read files of the user, or take the line from elsewhere.
            _ if !text.starts_with("--") && text[1..].chars().all(|c| "ceu".contains(c)) => {
                reads_line |= text.contains('c');
            }
            _ => return texts(words),
        }
        if reads_line {
            break;
        }
    }
    if !reads_line {
        // A file: what is in it is not in the line. Without one, its input.
        return match words.get(at).map(Word::known) {
            Some(Some(_)) if !simple.fed => Wrapped { manner: Manner::Foreign, inner: Vec::new(), at: usize::MAX },
            Some(_) | None => hidden(Manner::Foreign),
        };
    }
    match words.get(at).and_then(Word::known) {
        Some(text) => Wrapped {
            manner: Manner::Clear,
            inner: vec![Inner::Script { text: text.to_owned(), shell }],
            at: usize::MAX,
        },
        None => hidden(Manner::Clear),
    }
}

fn env(words: &[Word]) -> Wrapped {
    let mut at = 1;
    let mut manner = Manner::Clear;
    while let Some(text) = words.get(at).map(Word::shown) {
        match text.as_str() {
            "-i" | "-" | "--ignore-environment" | "-0" | "--null" => {}
            "-u" | "--unset" => at += 1,
            "-C" | "--chdir" => {
                at += 1;
                manner = Manner::Foreign;
            }
            "--" => {}
            _ if text.starts_with("--unset=") => {}
            _ if text.starts_with("--chdir=") => manner = Manner::Foreign,
            _ if text.starts_with('-') => return texts(words),
            // Assignments stay with the command: it begins with them.
            _ => break,
        }
        at += 1;
    }
    command(manner, at, words)
}

fn xargs(words: &[Word]) -> Wrapped {
    const VALUES: &[&str] =
        &["-n", "-P", "-L", "-I", "-d", "-s", "--max-args", "--max-procs", "--max-lines", "--delimiter"];
    let mut at = 1;
    let mut replaced = None;
    while let Some(text) = words.get(at).and_then(Word::known).filter(|text| text.starts_with('-') && text.len() > 1) {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        match text {
            "--" => {
                at += 1;
                break;
            }
            "-0" | "-r" | "-t" | "-x" | "-0r" | "-r0" | "--null" | "--no-run-if-empty" | "--verbose" | "--exit" => {
                at += 1;
            }
            "-I" => {
                replaced = words.get(at + 1).and_then(Word::known);
                at += 2;
            }
            _ if VALUES.contains(&text) => at += 2,
            _ if text.starts_with("-I") => {
                replaced = Some(&text[2..]);
                at += 1;
            }
            _ if VALUES.contains(&name) || VALUES.iter().any(|value| value.len() == 2 && text.starts_with(value)) => {
                at += 1;
            }
            _ => return hidden(Manner::Clear),
        }
    }
    let mut inner: Vec<Word> = words.get(at..).unwrap_or_default().to_vec();
    match replaced {
        Some("") => return hidden(Manner::Clear),
        Some(mark) => replace(&mut inner, mark),
        None => inner.push(Word::unknown()),
    }
    if at >= words.len() {
        // Alone it prints like echo.
        inner.insert(0, Word::literal("echo"));
    }
    Wrapped { manner: Manner::Clear, inner: vec![Inner::Command(inner)], at }
}

fn replace(words: &mut [Word], mark: &str) {
    for word in words {
        if word.shown().contains(mark) {
            *word = Word::unknown();
        }
    }
}

/// The commands of `-exec` and its like. The names that take the place of `{}` start with a path, not with a dash.
fn find(words: &[Word]) -> Option<Wrapped> {
    let mut inner = Vec::new();
    let mut first = usize::MAX;
    let mut rest = words.iter().enumerate();
    let mut own = Vec::new();
    while let Some((at, word)) = rest.next() {
        if !matches!(word.known(), Some("-exec" | "-execdir" | "-ok" | "-okdir")) {
            own.push(word.clone());
            continue;
        }
        first = first.min(at + 1);
        let taken = rest.by_ref().map(|(_, word)| word);
        let mut command: Vec<Word> =
            taken.take_while(|word| !matches!(word.known(), Some(";" | "+"))).cloned().collect();
        for word in &mut command {
            if word.shown().contains("{}") {
                let mut file = Word::literal("./");
                file.pieces.push(Piece::Unknown(Words::One));
                *word = if word.known() == Some("{}") { file } else { Word::unknown() };
            }
        }
        inner.push(if command.is_empty() { Inner::Unknown } else { Inner::Command(command) });
    }
    (!inner.is_empty()).then_some(Wrapped { manner: Manner::Beside { own }, inner, at: first })
}

fn fd(words: &[Word]) -> Option<Wrapped> {
    let at = words.iter().position(|word| matches!(word.known(), Some("-x" | "-X" | "--exec" | "--exec-batch")))?;
    let mut inner = words[at + 1..].to_vec();
    inner.push(Word::unknown());
    let own = words[..at].to_vec();
    Some(Wrapped { manner: Manner::Beside { own }, inner: vec![Inner::Command(inner)], at: at + 1 })
}

fn ssh(words: &[Word]) -> Wrapped {
    // The first word that is no option is the host; options may take values and run things themselves.
    let host = words.iter().skip(1).position(|word| word.known().is_some_and(|text| !text.starts_with('-')));
    let rest = host.map(|host| &words[host + 2..]).unwrap_or_default();
    let mut wrapped = joined(Manner::Foreign, host.map_or(usize::MAX, |host| host + 2), rest);
    wrapped.inner.extend(texts(words).inner);
    wrapped
}

fn trap(words: &[Word]) -> Wrapped {
    match words.get(1).map(Word::known) {
        Some(Some(text)) if !text.starts_with('-') => Wrapped {
            manner: Manner::Foreign,
            inner: vec![Inner::Script { text: text.to_owned(), shell: Shell::Bash }],
            at: usize::MAX,
        },
        Some(Some(_)) => hidden(Manner::Foreign),
        Some(None) | None => hidden(Manner::Foreign),
    }
}

/// Every tail of the words may be a command, and every word a line.
fn texts(words: &[Word]) -> Wrapped {
    /// So far as it is looked, it is looked at every word; beyond, it is not known anyway.
    const FAR: usize = 64;
    let words = &words[..words.len().min(FAR)];
    let mut inner = vec![Inner::Unknown, Inner::Tails(words.get(1..).unwrap_or_default().to_vec())];
    let lines = words.iter().skip(1).filter_map(Word::known).filter(|text| text.contains(' '));
    inner.extend(lines.map(|text| Inner::Script { text: text.to_owned(), shell: Shell::Bash }));
    Wrapped { manner: Manner::Foreign, inner, at: usize::MAX }
}
