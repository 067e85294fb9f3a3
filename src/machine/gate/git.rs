//! git: which of its commands only read, and which options make even those run or write something.
//!
//! Holds for words that came through the `*` of an allow rule; what a person wrote out is what they meant. The tables
//! are a filter and are never complete: the sandbox is the boundary.

use super::programs::{has_short, is_long};

/// Options of git before its subcommand that take the next word.
const GIT_VALUES: &[&str] = &[
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--super-prefix",
    "--config-env",
    "--attr-source",
];

/// How many words after `git` are options of git itself.
pub(super) fn git_options(words: &[&str]) -> usize {
    let mut at = 0;
    while at < words.len() && words[at].starts_with('-') {
        at += if GIT_VALUES.contains(&words[at]) { 2 } else { 1 };
    }
    at.min(words.len())
}

/// What makes a git command more than its rule said, if anything.
pub(super) fn hazard(words: &[&str], named: usize) -> Option<&'static str> {
    let at = 1 + git_options(&words[1..]);
    let harmless = ["--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"];
    if words[1..at].iter().skip(named - 1).any(|word| !harmless.contains(word)) {
        return Some("an option before the subcommand can make git run something");
    }
    let Some(subcommand) = words.get(at) else { return Some("there is no subcommand") };
    if at < named {
        let free = &words[named..];
        return free.iter().any(|word| writes_or_runs(subcommand, word)).then_some("an option makes git run or write");
    }
    let tame =
        READING.iter().find(|entry| entry.name == *subcommand).is_some_and(|entry| entry.covers(&words[at + 1..]));
    (!tame).then_some("it is not one of git's reading commands with options known to be harmless")
}

/// Options that make a subcommand the rule names run a program or write outside the repository.
fn writes_or_runs(subcommand: &str, word: &str) -> bool {
    let long = [
        "upload-pack",
        "receive-pack",
        "exec",
        "exec-path",
        "extcmd",
        "ext-diff",
        "open-files-in-pager",
        "config",
        "output",
        "output-directory",
        "strategy",
        "gpg-sign",
        "to-cmd",
        "cc-cmd",
        "sendmail-cmd",
        "smtp-server",
    ];
    // Spelled out, these are other options than the ones they abbreviate.
    let innocent = ["--output-indicator-new", "--strategy-option"];
    let short = match subcommand {
        "rebase" | "difftool" => "x",
        "merge" | "pull" | "cherry-pick" | "revert" => "s",
        "grep" => "O",
        "clone" => "cu",
        "archive" | "format-patch" => "o",
        _ => "",
    };
    let command = matches!((subcommand, word), ("submodule", "foreach") | ("bisect", "run"));
    command || has_short(word, short) || (is_long(word, &long) && !innocent.contains(&word))
}

/// A subcommand that reads, and the options it may have under a rule that does not name it.
struct Reading {
    name: &'static str,
    /// Options, white space between them. One that ends in `=` takes the next word if it has no value of its own.
    options: &'static [&'static str],
    words: Words,
}

/// What words that are no options may be.
#[derive(Clone, Copy)]
enum Words {
    Any,
    /// None, or the command makes something: `git branch name`.
    OnlyWith(&'static [&'static str]),
    /// The first one is a second subcommand and must be one of these; with "" it may be missing, and then no word
    /// follows the options: `git remote -v add` adds.
    First(&'static [&'static str]),
}

impl Reading {
    fn covers(&self, words: &[&str]) -> bool {
        let first = words.first().copied().unwrap_or_default();
        if let Words::First(known) = self.words
            && !known.contains(&if first.starts_with('-') { "" } else { first })
        {
            return false;
        }
        let mut rest = words.iter().copied();
        let mut plain = false;
        while let Some(word) = rest.next() {
            if word == "--" {
                plain |= rest.next().is_some();
                break;
            }
            if !word.starts_with('-') || word == "-" {
                plain = true;
                continue;
            }
            match self.option(word) {
                None => return false,
                Some(Takes::Nothing) => {}
                // A value that looks like an option might be one after all.
                Some(Takes::Next) => match rest.next() {
                    Some(value) if !value.starts_with('-') => {}
                    Some(_) | None => return false,
                },
            }
        }
        match self.words {
            Words::OnlyWith(options) => !plain || words.iter().any(|word| options.contains(word)),
            Words::First(_) => !plain || !first.starts_with('-'),
            Words::Any => true,
        }
    }

    fn option(&self, word: &str) -> Option<Takes> {
        let all = || self.options.iter().flat_map(|options| options.split_ascii_whitespace());
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        if let Some(option) = all().find(|option| option.trim_end_matches('=') == name) {
            let next = option.ends_with('=') && value.is_none();
            return Some(if next { Takes::Next } else { Takes::Nothing });
        }
        if word.starts_with("--") {
            return None;
        }
        let short = &word[1..];
        let count = all().any(|option| option == "-NUM") && short.chars().all(|c| c.is_ascii_digit());
        // `-n5`, `-U3`, `-Sfoo`: the value of a short option; `-sb`: several of them.
        let valued = all().any(|option| option.len() == 3 && option.ends_with('=') && word.starts_with(&option[..2]));
        let cluster =
            short.chars().all(|c| all().any(|option| option.strip_prefix('-') == c.encode_utf8(&mut [0; 4]).get(..)));
        (count || valued || cluster).then_some(Takes::Nothing)
    }
}

enum Takes {
    Nothing,
    Next,
}

const DIFF: &str = "-p -u --patch -s --no-patch --raw --patch-with-raw --patch-with-stat --minimal --patience --histogram \
    --stat --numstat --shortstat --dirstat --summary --compact-summary --name-only --name-status --color --no-color \
    --color-moved --no-color-moved --word-diff --color-words --no-renames --check --full-index --binary --abbrev \
    --no-abbrev -B -M -C -D --find-renames --find-copies --find-copies-harder --pickaxe-all --pickaxe-regex -R --relative \
    --no-relative -a --text --ignore-cr-at-eol --ignore-space-at-eol -b --ignore-space-change -w --ignore-all-space \
    --ignore-blank-lines -W --function-context --exit-code -q --quiet --no-ext-diff --no-textconv --no-prefix -z -r -t \
    --unified --diff-algorithm --submodule --merge-base -U= -S= -G= -l= --diff-filter= --inter-hunk-context= --find-object=";
const LOG: &str = "-NUM --oneline --graph --all --branches --tags --remotes --merges --no-merges --first-parent --follow \
    --decorate --no-decorate --source --date-order --topo-order --author-date-order --reverse --full-history \
    --simplify-by-decoration --left-right --cherry --cherry-pick --cherry-mark --boundary --parents --children --notes \
    --no-notes --relative-date -i --regexp-ignore-case -E --extended-regexp -F --fixed-strings -P --perl-regexp \
    --invert-grep --all-match -g --walk-reflogs --abbrev-commit --no-abbrev-commit --pretty --format -m -c --cc --no-walk \
    --use-mailmap -n= --max-count= --skip= --since= --after= --until= --before= --author= --committer= --grep= -L= --date=";

/// git's reading commands. What is not here is asked under `bash(git *)`.
const READING: &[Reading] = &[
    Reading { name: "log", options: &[DIFF, LOG], words: Words::Any },
    Reading { name: "show", options: &[DIFF, LOG], words: Words::Any },
    Reading { name: "diff", options: &[DIFF, "--cached --staged"], words: Words::Any },
    Reading { name: "diff-tree", options: &[DIFF, "--root --no-commit-id -m -c --cc"], words: Words::Any },
    Reading { name: "diff-index", options: &[DIFF, "--cached -m"], words: Words::Any },
    Reading { name: "diff-files", options: &[DIFF, "-c --cc"], words: Words::Any },
    Reading { name: "range-diff", options: &[DIFF, "--no-dual-color --left-only --right-only"], words: Words::Any },
    Reading { name: "rev-list", options: &[LOG, "--count --objects --max-parents --min-parents"], words: Words::Any },
    Reading { name: "shortlog", options: &["-n -s --summary --numbered -e --email -c", LOG], words: Words::Any },
    Reading {
        name: "status",
        options: &[
            "-s --short -b --branch --show-stash --porcelain --long -v --verbose -u -uno -unormal -uall --untracked-files \
            --ignore-submodules --ignored -z --column --no-column --ahead-behind --no-ahead-behind --no-renames",
        ],
        words: Words::Any,
    },
    Reading {
        name: "branch",
        options: &["--list -l -a --all -r --remotes -v -vv --verbose --show-current --no-column --color --no-color \
            --no-abbrev --abbrev --contains= --no-contains= --merged= --no-merged= --points-at= --sort= --format="],
        words: Words::OnlyWith(&["--list"]),
    },
    Reading {
        name: "tag",
        options: &[
            "-l --list -n --column --no-column --color --contains= --no-contains= --merged= --points-at= --sort= --format=",
        ],
        words: Words::OnlyWith(&["--list", "-l"]),
    },
    Reading { name: "remote", options: &["-v --verbose --all"], words: Words::First(&["", "get-url"]) },
    Reading { name: "stash", options: &[DIFF], words: Words::First(&["list", "show"]) },
    Reading { name: "reflog", options: &[LOG], words: Words::First(&["", "show", "HEAD"]) },
    Reading { name: "worktree", options: &["--porcelain -v -z"], words: Words::First(&["list"]) },
    Reading {
        name: "config",
        options: &["--get --get-all --list -l --get-regexp --show-origin --show-scope --name-only -z"],
        words: Words::OnlyWith(&["--get", "--get-all", "--get-regexp"]),
    },
    Reading {
        name: "rev-parse",
        options: &[
            "--show-toplevel --abbrev-ref --short --verify -q --quiet --is-inside-work-tree --git-dir --show-prefix \
            --is-bare-repository --show-cdup --symbolic-full-name --git-common-dir --absolute-git-dir --symbolic --all \
            --branches --tags --remotes",
        ],
        words: Words::Any,
    },
    Reading {
        name: "ls-files",
        options: &[
            "-c --cached -d --deleted -m --modified -o --others -i --ignored -s --stage -u --unmerged -t -v -z \
            --exclude-standard --full-name --error-unmatch --deduplicate --eol --directory --recurse-submodules -x= --exclude=",
        ],
        words: Words::Any,
    },
    Reading {
        name: "ls-tree",
        options: &["-r -d -t -l --long -z --name-only --name-status --object-only --full-name --full-tree --abbrev"],
        words: Words::Any,
    },
    Reading {
        name: "blame",
        options: &[
            "-w -l -s -e -f -n -c -p -b -t -C -M --porcelain --line-porcelain --incremental --root --show-name \
            --show-number --show-email --first-parent --abbrev --date= -L= --ignore-rev=",
        ],
        words: Words::Any,
    },
    Reading {
        name: "grep",
        options: &[
            "-NUM -n --line-number -i --ignore-case -w --word-regexp -v -l -L -c -h -H -E -F -P -G -o -q -z -I -a -p -W \
            --cached --untracked --and --or --not --all-match --heading --break --count --name-only --files-with-matches \
            --only-matching --column --show-function --function-context --color --no-color --full-name --recursive -r \
            -A= -B= -C= -e= -m= --max-depth= --max-count= --threads=",
        ],
        words: Words::Any,
    },
    Reading {
        name: "describe",
        options: &[
            "--tags --all --long --always --dirty --contains --first-parent --exact-match --abbrev --match= --exclude=",
        ],
        words: Words::Any,
    },
    Reading {
        name: "merge-base",
        options: &["-a --all --octopus --independent --is-ancestor --fork-point"],
        words: Words::Any,
    },
    Reading { name: "cat-file", options: &["-t -s -p -e"], words: Words::Any },
    Reading {
        name: "show-ref",
        options: &["--heads --tags --branches -d -s --hash --abbrev -q --verify --head"],
        words: Words::Any,
    },
    Reading {
        name: "for-each-ref",
        options: &["--count= --sort= --format= --points-at= --merged= --contains="],
        words: Words::Any,
    },
    Reading { name: "name-rev", options: &["--tags --name-only --always --refs="], words: Words::Any },
    Reading { name: "check-ignore", options: &["-v -q -n --non-matching --no-index -z"], words: Words::Any },
    Reading { name: "count-objects", options: &["-v -H"], words: Words::Any },
    Reading { name: "cherry", options: &["-v --abbrev"], words: Words::Any },
    Reading { name: "version", options: &["--build-options"], words: Words::Any },
];
