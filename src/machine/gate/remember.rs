//! What "always" means: the narrowest rules that would let the same call pass next time.
//!
//! Deliberately absent: where rules are kept, and whether the person meant the session or the project.

use super::commands::Allowing;
use super::syntax::{Simple, Word};
use super::unwrap::{Inner, Manner, unwrap};
use super::{line, paths, programs};
use crate::model::rule::{Rule, Subject};
use crate::model::tool_name::{ToolKind, ToolName};

/// Programs of which the first word says what they do, so that a rule about that word is one that people mean.
const SUBCOMMANDS: &[(&str, &[&str])] = &[
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "metadata", "nextest", "test", "tree"]),
    ("git", &["blame", "diff", "log", "ls-files", "rev-parse", "shortlog", "show", "status"]),
    ("go", &["build", "doc", "list", "test", "vet"]),
    ("npm", &["ls", "outdated", "test", "view"]),
    ("pnpm", &["test"]),
    ("yarn", &["test"]),
    ("docker", &["images", "inspect", "logs", "ps"]),
    ("kubectl", &["describe", "get", "logs"]),
    ("gh", &["issue", "pr"]),
];

/// Programs that only look, whatever their arguments; those that do harm are still asked.
const LOOKING: &[&str] = &[
    "cat", "cut", "diff", "du", "file", "find", "grep", "head", "jq", "ls", "nl", "rg", "sort", "stat", "tail", "tr",
    "tree", "uniq", "wc", "which",
];

/// The rules to remember for a call, or none where nothing sensible can be remembered.
///
/// What is proposed is tried: a rule that would not let this call pass is not offered.
pub(crate) fn always(tool: ToolName, subjects: &[Subject]) -> Option<Vec<Rule>> {
    let mut rules: Vec<Rule> = Vec::new();
    for subject in subjects {
        let tool = if matches!(subject, Subject::Url(_)) { ToolName::WebFetch } else { tool };
        for rule in of_subject(tool, subject)? {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    (!rules.is_empty()).then_some(rules)
}

fn of_subject(tool: ToolName, subject: &Subject) -> Option<Vec<Rule>> {
    let rule = |pattern: &str| Rule { tool, pattern: Some(pattern.to_owned()) };
    match subject {
        Subject::Command(line) if tool == ToolName::Bash => of_line(line),
        Subject::Command(text) => (!text.contains('*')).then(|| vec![rule(text)]),
        Subject::Url(url) => {
            let url = reqwest::Url::parse(url).ok().filter(|url| url.username().is_empty())?;
            Some(vec![rule(url.host_str()?)])
        }
        // Outside, and in git's own files, one answer is for one file.
        Subject::Path(path) if paths::must_be_named(tool, path) => {
            let plain = !path.contains(['*', '?', '[', '{', '\\']) && !path.split('/').any(|part| part == "..");
            plain.then(|| vec![rule(path)])
        }
        Subject::Path(path) if tool.kind() == ToolKind::Edit => {
            let directory = path.rsplit_once('/').map(|(directory, _)| directory);
            match directory {
                Some(directory) if !directory.contains(['*', '?', '[', '{', '\\']) => {
                    Some(vec![rule(&format!("{directory}/**"))])
                }
                Some(_) => None,
                // Beside the roots of everything one file is enough.
                None => (!path.contains(['*', '?', '[', '{', '\\'])).then(|| vec![rule(path)]),
            }
        }
        Subject::Path(_) | Subject::None => Some(vec![Rule { tool, pattern: None }]),
    }
}

fn of_line(line: &str) -> Option<Vec<Rule>> {
    let steps = line::steps(line).ok()?;
    let mut patterns: Vec<String> = Vec::new();
    for step in steps.iter().filter(|step| !step.simple.words.is_empty() && !step.is_function) {
        if !programs::is_free(&step.simple, &step.places) || steps.len() == 1 {
            of_simple(&step.simple, &mut patterns, 0)?;
        }
    }
    patterns.dedup();
    let given: Vec<&str> = patterns.iter().map(String::as_str).collect();
    // A file that the line writes is another question than the commands in it.
    Allowing::new(&given, &|_| Ok(())).allows(line).ok()?;
    Some(patterns.iter().map(|pattern| Rule { tool: ToolName::Bash, pattern: Some(pattern.clone()) }).collect())
}

fn of_simple(simple: &Simple, patterns: &mut Vec<String>, depth: usize) -> Option<()> {
    if let Some(wrapped) = unwrap(simple)
        && wrapped.manner == Manner::Clear
        && depth < 4
    {
        for inner in &wrapped.inner {
            match inner {
                Inner::Command(words) => of_simple(&line::inner_simple(words, simple.fed), patterns, depth + 1)?,
                Inner::Script { text, .. } => {
                    for step in line::steps(text).ok()?.iter().filter(|step| !step.simple.words.is_empty()) {
                        of_simple(&step.simple, patterns, depth + 1)?;
                    }
                }
                Inner::Tails(_) | Inner::Unknown => return None,
            }
        }
        return Some(());
    }
    let program = simple.words.first().and_then(Word::known)?;
    let second = simple.words.get(1).and_then(Word::known).unwrap_or_default();
    let mut sets = String::new();
    for set in &simple.assignments {
        sets.push_str(&format!(
            "{}={} ",
            set.name,
            set.value.known().filter(|value| !value.contains([' ', '*', '\'', '"']))?
        ));
    }
    let known = SUBCOMMANDS.iter().any(|(name, subcommands)| *name == program && subcommands.contains(&second));
    let pattern = if known {
        format!("{program} {second} *")
    } else if LOOKING.contains(&program) {
        format!("{program} *")
    } else {
        exactly(&simple.words)?
    };
    patterns.push(format!("{sets}{pattern}"));
    Some(())
}

/// The words as a pattern that fits them and no others.
fn exactly(words: &[Word]) -> Option<String> {
    let mut pattern = Vec::new();
    for word in words {
        let text = word.known().filter(|text| !text.contains('*') && !text.contains(':'))?;
        pattern.push(
            match (text.is_empty() || text.contains(char::is_whitespace), text.contains('\''), text.contains('"')) {
                (false, false, false) => text.to_owned(),
                (_, false, _) => format!("'{text}'"),
                (_, true, false) => format!("\"{text}\""),
                (_, true, true) => return None,
            },
        );
    }
    Some(pattern.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::{Confinement, Decision, Policy, judge_all};
    use super::*;
    use crate::model::persona::Mode;

    fn remembered(tool: ToolName, subject: Subject) -> Option<Vec<String>> {
        let rules = always(tool, std::slice::from_ref(&subject))?;
        let policy =
            Policy { mode: Mode::Default, allow: rules.clone(), deny: Vec::new(), confinement: Confinement::None };
        assert_eq!(judge_all(tool, &[subject], &policy), Decision::Allow, "{rules:?}");
        Some(rules.iter().map(ToString::to_string).collect())
    }

    fn of(line: &str) -> Option<Vec<String>> {
        remembered(ToolName::Bash, Subject::Command(line.to_owned()))
    }

    #[test]
    fn a_command_is_remembered_as_narrowly_as_makes_sense() {
        for (line, want) in [
            ("deploy prod --now", &["bash(deploy prod --now)"][..]),
            ("git log --oneline -5", &["bash(git log *)"]),
            ("cargo test gate 2>&1 | tail -20", &["bash(cargo test *)", "bash(tail *)"]),
            ("cd src && grep -rn foo . | head", &["bash(grep *)", "bash(head *)"]),
            ("timeout 5 deploy 'a b'", &["bash(deploy 'a b')"]),
            ("bash -c 'deploy now'", &["bash(deploy now)"]),
            ("git push origin main", &["bash(git push origin main)"]),
            ("rm -rf target", &["bash(rm -rf target)"]),
            ("PAGER=cat git log", &["bash(PAGER=cat git log *)"]),
        ] {
            assert_eq!(
                of(line).as_deref(),
                Some(&want.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>()[..]),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_not_certain_is_not_remembered() {
        for line in ["deploy $X", "$X", "for ((i=0;i<3;i++)); do x; done", "sudo rm x y*", "eval \"$X\"", "echo '", ""]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn a_file_is_remembered_by_its_directory_and_an_address_by_its_host() {
        let path = |path: &str| remembered(ToolName::Write, Subject::Path(path.to_owned()));
        assert_eq!(path("src/a/b.rs"), Some(vec!["write(src/a/**)".to_owned()]));
        assert_eq!(path("README.md"), Some(vec!["write(README.md)".to_owned()]));
        assert_eq!(path(".git/config"), Some(vec!["write(.git/config)".to_owned()]));
        assert_eq!(path("/etc/hosts"), Some(vec!["write(/etc/hosts)".to_owned()]));
        assert_eq!(path("../x"), None);
        let url = |url: &str| remembered(ToolName::WebFetch, Subject::Url(url.to_owned()));
        assert_eq!(url("https://docs.rs/serde"), Some(vec!["web_fetch(docs.rs)".to_owned()]));
        assert_eq!(url("https://user@docs.rs/"), None);
    }
}
