//! What programs do with their arguments: which run something else, which write where a reader would not look.
//!
//! Holds for words that came through the `*` of an allow rule; what a person wrote out is what they meant. The tables
//! are a filter and are never complete: the sandbox is the boundary. Deliberately absent: git, which has a file of its
//! own, and wrappers (`unwrap`).

use super::flow::Places;
use super::pattern::ANY;
use super::syntax::{Piece, Simple, Word};
use super::{git, paths};

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Programs that may show a page, and then run whatever the person, or the environment, has them run.
const PAGERS: &[&str] = &[
    "ed", "emacs", "ex", "info", "less", "man", "more", "most", "nano", "nvim", "printenv", "socat", "vi", "view",
    "vim",
];

/// Commands of the shell that change what later ones mean.
const CHANGERS: &[&str] = &[
    "alias",
    "bind",
    "compgen",
    "complete",
    "declare",
    "enable",
    "export",
    "hash",
    "history",
    "let",
    "local",
    "mapfile",
    "read",
    "readarray",
    "readonly",
    "set",
    "shopt",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "unsetenv",
    "fc",
];

/// Languages: their programs may run commands, so that a deny rule is looked for in them.
const LANGUAGES: &[&str] = &[
    "awk",
    "bun",
    "deno",
    "gawk",
    "lua",
    "luajit",
    "make",
    "gmake",
    "mawk",
    "nawk",
    "node",
    "osascript",
    "perl",
    "php",
    "python",
    "python2",
    "python3",
    "Rscript",
    "ruby",
    "sed",
    "sqlite3",
    "tclsh",
    "vim",
    "nvim",
    "emacs",
    "tar",
    "psql",
];

/// Programs that look at files and do no more, with any options but those that `hazard` names.
const READERS: &[&str] = &[
    "awk",
    "b2sum",
    "basename",
    "bat",
    "cat",
    "cksum",
    "cmp",
    "column",
    "comm",
    "cut",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "fgrep",
    "file",
    "find",
    "fd",
    "fmt",
    "fold",
    "git",
    "grep",
    "head",
    "hexdump",
    "jq",
    "ls",
    "md5sum",
    "nl",
    "od",
    "paste",
    "printf",
    "pwd",
    "readlink",
    "realpath",
    "rev",
    "rg",
    "sed",
    "sha1sum",
    "sha256sum",
    "sort",
    "stat",
    "strings",
    "tac",
    "tail",
    "test",
    "[",
    "[[",
    "tr",
    "tree",
    "true",
    "uniq",
    "wc",
    "which",
    "xxd",
];

/// Programs whose operands they write to.
const WRITERS: &[&str] = &[
    "chgrp", "chmod", "chown", "cp", "dd", "install", "ln", "mkdir", "mv", "rm", "rmdir", "rsync", "shred", "split",
    "csplit", "tee", "touch", "truncate", "unlink", "unzip", "zip",
];

pub(super) fn is_language(program: &str) -> bool {
    LANGUAGES.contains(&program)
}

/// Whether the command only looks, so that a rule about writing does not concern what it names.
pub(super) fn only_reads(simple: &Simple) -> bool {
    let Some(program) = simple.words.first().and_then(Word::known).map(base_name) else { return false };
    if program == "git" {
        let stages = matches!(simple.words.get(1).and_then(Word::known), Some("add" | "commit" | "stage"));
        return stages || hazard(simple, 1, &Places::start()).is_none();
    }
    READERS.contains(&program) && hazard(simple, 1, &Places::start()).is_none()
}

/// What makes a command more than its rule said, if anything; `named` words of it stand in the rule.
pub(super) fn hazard(simple: &Simple, named: usize, places: &Places) -> Option<&'static str> {
    let all = &simple.words;
    let shown: Vec<String> = all.iter().map(Word::shown).collect();
    let words: Vec<&str> = shown.iter().map(String::as_str).collect();
    let (program, free) = (*words.first()?, words.get(named..)?);
    if matches!(words.as_slice(), ["command", "-v" | "-V", ..]) {
        return None;
    }
    let program = base_name(program);
    if PAGERS.contains(&program) {
        return Some("it may run another program");
    }
    if CHANGERS.contains(&program) && named < 2 {
        return Some("it changes what later commands mean");
    }
    if WRITERS.contains(&program) && reaches_out(all, named, places) {
        return Some("it may write outside the workspace");
    }
    let reads = READERS.contains(&program)
        && !matches!(program, "git" | "echo" | "printf" | "[" | "test" | "basename" | "dirname" | "tr");
    if reads
        && operands(program, all)
            .into_iter()
            .any(|word| all.iter().skip(named).any(|free| std::ptr::eq(free, word)) && leads_out(word))
    {
        return Some("it reads outside the workspace");
    }
    let bad = if program == "git" { git::hazard(&words, named) } else { by_flags(program, &words, named, free)? };
    // An option that the shell puts in is not seen by the tables.
    let hidden = (named.max(1)..all.len())
        .take_while(|at| all[*at].known() != Some("--"))
        .any(|at| all[at].may_be_option() && !is_message(all, at));
    bad.or_else(|| hidden.then_some("an expansion may become one of its options"))
}

/// Whether the word is what `git commit -m` says, which is no option whatever it begins with.
fn is_message(words: &[Word], at: usize) -> bool {
    let known = |at: usize| words.get(at).and_then(Word::known);
    known(0) == Some("git")
        && matches!(known(1), Some("commit" | "tag" | "merge"))
        && matches!(known(at - 1), Some("-m" | "-am" | "--message"))
        && !words[at].expands()
}

/// `None`: no arguments of this program are known to do harm.
#[expect(clippy::option_option, reason = "a program without a table is another thing than one whose table is content")]
fn by_flags(program: &str, words: &[&str], named: usize, free: &[&str]) -> Option<Option<&'static str>> {
    let any = |test: &dyn Fn(&str) -> bool| free.iter().any(|word| test(word));
    let bad = match program {
        "find" | "gfind" => any(&|word| {
            ["-exec", "-ok", "-fprint", "-fls", "-files0-from"].iter().any(|flag| word.starts_with(flag))
                || word == "-delete"
        }),
        "fd" | "fdfind" => any(&|word| has_short(word, "xX") || is_long(word, &["exec", "exec-batch"])),
        "rg" => any(&|word| has_short(word, "z") || is_long(word, &["pre", "hostname-bin", "search-zip"])),
        "ack" | "ag" => any(&|word| is_long(word, &["pager", "output"])),
        "bat" => any(&|word| is_long(word, &["pager", "paging", "diagnostic"])),
        "sort" => {
            any(&|word| has_short(word, "oT") || is_long(word, &["output", "compress-program", "temporary-directory"]))
        }
        "uniq" => free.iter().filter(|word| !word.starts_with('-')).count() > 1,
        "tree" => any(&|word| has_short(word, "oR")),
        "date" => any(&|word| has_short(word, "s") || is_long(word, &["set"])),
        "diff" | "sdiff" => any(&|word| is_long(word, &["output"]) || (program == "sdiff" && has_short(word, "o"))),
        "tar" => {
            let flags = ["to-command", "checkpoint-action", "use-compress-program", "rsh-command", "info-script"];
            let bundled = words.get(1).is_some_and(|word| !word.starts_with('-') && word.contains(['I', 'F', 'P']));
            bundled
                || any(&|word| has_short(word, "IFP") || is_long(word, &flags) || is_long(word, &["new-volume-script"]))
        }
        "rsync" => any(&|word| has_short(word, "e") || is_long(word, &["rsh", "rsync-path", "daemon"])),
        "zip" => any(&|word| has_short(word, "T") || is_long(word, &["unzip-command", "test"])),
        "xxd" => free.iter().filter(|word| !word.starts_with('-')).count() > 1 || any(&|word| has_short(word, "r")),
        "curl" | "wget" => !is_tame_fetch(program, free),
        "sed" => !is_tame_sed(words, named),
        "awk" | "gawk" | "mawk" | "nawk" => any(&|word| {
            let telling = ["system", "getline", "|", ">", "@", "ENVIRON", "close"];
            (word.starts_with('-') && !word.starts_with("-F")) || telling.iter().any(|telling| word.contains(telling))
        }),
        "make" | "gmake" => any(&|word| {
            word.contains('=')
                || has_short(word, "fEIC")
                || is_long(word, &["eval", "file", "makefile", "include-dir", "directory"])
        }),
        "python" | "python2" | "python3" | "node" | "perl" | "ruby" | "php" | "lua" | "deno" | "bun" | "Rscript"
        | "tclsh" | "osascript" | "sqlite3" | "psql" | "luajit" => named < 2 && !is_tame_script(program, free),
        "printf" => any(&|word| word.starts_with("-v")),
        "test" | "[" => any(&|word| matches!(word, "-v" | "-R")),
        "cp" | "mv" | "install" | "ln" => {
            any(&|word| has_short(word, "tS") || is_long(word, &["target-directory", "suffix", "strip-program"]))
        }
        "split" => any(&|word| is_long(word, &["filter"])),
        "jq" => any(&|word| has_short(word, "fL") || is_long(word, &["from-file"])),
        "strings" | "column" | "tee" | "dd" => false,
        _ => return None,
    };
    Some(bad.then_some("one of its arguments writes a file or runs a command"))
}

/// Whether one of the free words is, or may be, a path outside of the workspace or one that git obeys.
fn reaches_out(words: &[Word], named: usize, places: &Places) -> bool {
    words.iter().skip(named.max(1)).any(|word| {
        let text = word.shown();
        let path = text.split_once('=').map_or(text.as_str(), |(_, path)| path);
        let option = text.starts_with('-') && !text.contains('=');
        let known = !path.starts_with(['~', ANY]) && !word.expands();
        !option
            && (!known
                || places.is_anywhere()
                || places.resolve(path).iter().any(|path| paths::is_outside(path) || paths::is_of_git(path)))
    })
}

/// The words that may name files; of searches, not what they search for.
pub(super) fn operands<'a>(program: &str, words: &'a [Word]) -> Vec<&'a Word> {
    let mut operands: Vec<&Word> = words.iter().collect();
    if words.first().and_then(Word::known).is_some_and(|name| !name.contains('/')) {
        operands.remove(0);
    }
    let has = |option: &str| words.iter().any(|word| word.beginning().starts_with(option));
    if matches!(program, "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack" | "sed" | "awk")
        && !has("-e")
        && !has("-f")
        && let Some(at) = operands.iter().position(|word| !word.beginning().starts_with('-'))
    {
        operands.remove(at);
    }
    operands
}

/// Whether the word is a path outside of the workspace, as far as it tells.
fn leads_out(word: &Word) -> bool {
    let beginning = word.beginning();
    let void = matches!(word.known(), Some("/dev/null" | "/dev/stdin"));
    !void
        && !beginning.starts_with('-')
        && (matches!(word.pieces.first(), Some(Piece::Home)) || paths::is_outside(&word.shown()))
}

/// `curl -s URL` to standard output; all else sends, writes or reads something.
fn is_tame_fetch(program: &str, free: &[&str]) -> bool {
    let long = ["--silent", "--show-error", "--fail", "--location", "--head", "--include", "--verbose", "--compressed"];
    program == "curl"
        && free.iter().all(|word| {
            let short = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            match short {
                Some(letters) => letters.chars().all(|c| "sSfLIiv46".contains(c)),
                None if word.starts_with('-') => long.contains(word),
                None => {
                    let scheme = word.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
                    scheme.is_some_and(|scheme| matches!(scheme.as_str(), "http" | "https")) && !word.contains(ANY)
                }
            }
        })
}

/// Whether an interpreter is asked for its version, or for a program that lies in a file.
fn is_tame_script(program: &str, free: &[&str]) -> bool {
    match free {
        ["--version" | "-V" | "-v"] => true,
        ["-m", "pytest" | "unittest" | "json.tool" | "compileall" | "mypy" | "ruff" | "black", ..] => {
            program.starts_with("python")
        }
        ["--test", ..] => program == "node",
        // deno, bun and the databases have commands of their own.
        [file, ..] => {
            !matches!(program, "deno" | "bun" | "sqlite3" | "psql")
                && !file.starts_with('-')
                && !file.contains(ANY)
                && !paths::is_outside(file)
        }
        [] => false,
    }
}

/// What a command may do beside one that has a rule: commands of the shell that change nothing.
pub(super) fn is_free(simple: &Simple, places: &Places) -> bool {
    let Some((program, words)) = simple.words.split_first() else { return false };
    let known = words.iter().all(|word| word.known().is_some());
    match program.known() {
        Some("cd") => match words {
            [directory] => directory.known().is_some_and(|directory| {
                !directory.starts_with('-')
                    && !directory.is_empty()
                    && !places.is_anywhere()
                    && places.resolve(directory).iter().all(|path| !paths::is_outside(path) && !paths::is_of_git(path))
            }),
            [] | [_, _, ..] => false,
        },
        Some("true" | "false" | ":" | "exit" | "break" | "continue" | "return" | "wait" | "echo") => known,
        Some("pwd") => words.is_empty(),
        // A script that stops at its first error only does less.
        Some("set") => {
            words.iter().all(|word| matches!(word.known(), Some("-e" | "-u" | "-eu" | "-o" | "-euo" | "pipefail")))
        }
        Some("read") => words.iter().all(|word| {
            word.known()
                .is_some_and(|word| matches!(word, "-r" | "-s") || (!word.starts_with('-') && is_free_name(word)))
        }),
        Some("printf") => known && words.first().is_some_and(|word| !word.beginning().starts_with('-')),
        Some("[[") => true,
        Some("[") => words.split_last().is_some_and(|(_, words)| is_tame_test(words)),
        Some("test") => is_tame_test(words),
        Some(_) | None => false,
    }
}

/// `[ -f x ]`, `[ "$x" = y ]`: an expansion must not become the operator, since `-v` runs what its operand says.
fn is_tame_test(words: &[Word]) -> bool {
    let text = |word: &Word| word.known().map(str::to_owned);
    if words.iter().any(|word| matches!(word.known(), Some("-v" | "-R")) || word.expands()) {
        return false;
    }
    match words {
        [not, rest @ ..] if text(not).as_deref() == Some("!") && !rest.is_empty() => is_tame_test(rest),
        [_] => true,
        [operator, _] => operator.known().is_some(),
        [_, operator, _] => operator.known().is_some_and(|operator| !operator.is_empty()),
        words => words.iter().all(|word| word.known().is_some()),
    }
}

/// Variables that a line may set for a command or for itself without a rule.
pub(super) fn is_free_name(name: &str) -> bool {
    const HARMLESS: &[&str] = &[
        "CARGO_TERM_COLOR",
        "CI",
        "CLICOLOR",
        "COLUMNS",
        "DEBUG",
        "FORCE_COLOR",
        "LANG",
        "LC_ALL",
        "LINES",
        "NO_COLOR",
        "NODE_ENV",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "TERM",
        "TZ",
    ];
    let own = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') || name.len() == 1;
    // What programs obey is upper case, but for proxies and npm.
    HARMLESS.contains(&name) || (own && name != "_" && !name.ends_with("_proxy") && !name.starts_with("npm_"))
}

/// Whether the word is a cluster of short options with one of the letters in it.
pub(super) fn has_short(word: &str, letters: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.chars().skip(1).any(|c| letters.contains(c))
}

/// Whether the word is one of the long options, or short for one: `--compress-prog` is `--compress-program`.
pub(super) fn is_long(word: &str, options: &[&str]) -> bool {
    let Some(name) = word.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name)) else { return false };
    !name.is_empty() && options.iter().any(|option| option.starts_with(name))
}

/// Whether sed only prints: its script is line numbers with `p`, `d` or `q`, or a plain substitution.
///
/// The first word that is no option is the script; `w.out` there writes, as a later word it is a file that is read.
fn is_tame_sed(words: &[&str], named: usize) -> bool {
    let mut script = None;
    words.iter().enumerate().skip(1).all(|(at, word)| {
        let tame = if word.starts_with('-') {
            matches!(*word, "-n" | "-E" | "-r" | "-s" | "-z" | "-u" | "-nE" | "-nr" | "-En")
        } else {
            *script.get_or_insert(at) != at || is_tame_sed_script(word)
        };
        tame || at < named
    })
}

fn is_tame_sed_script(script: &str) -> bool {
    if let Some(body) = script.strip_prefix("s/") {
        let flags = |flags: &str| flags.chars().all(|c| c.is_ascii_digit() || "gpiI".contains(c));
        let parts: Vec<&str> = body.split('/').collect();
        return matches!(parts.as_slice(), [_, _, last] if flags(last)) && !body.contains(['\\', '\n', ';']);
    }
    script.trim_end_matches(['p', 'd', 'q']).chars().all(|c| c.is_ascii_digit() || ",$".contains(c))
}
