//! A prompt with nothing to search for: what the repository is, from its README, its manifest and its entry points.

use std::fmt::Write;

use super::definition::{self, FileClass, Kind};
use super::evidence::Evidence;
use super::plan::{Step, TEST_FILES, glob, read};
use super::question::{Question, Shelf};
use crate::text;

/// Files that say what a project is, and how many lines of each are worth reading.
const TELLING: &[(&str, usize)] = &[
    ("README.md", 40),
    ("README.rst", 40),
    ("README", 40),
    ("readme.md", 40),
    ("Cargo.toml", 30),
    ("package.json", 30),
    ("pyproject.toml", 30),
    ("go.mod", 10),
    ("pom.xml", 30),
    ("Gemfile", 20),
    ("Makefile", 30),
];

/// Names of files where a program begins.
const ENTRIES: &[&str] = &["main", "lib", "index", "__main__", "app", "cli", "server", "mod"];

/// What to look at, step by step.
pub(super) fn steps(question: &Question, evidence: &Evidence<'_>) -> Vec<Step> {
    let listing = match question.shelf {
        Shelf::Source => vec![glob("*"), glob("*/*"), glob("**/{main,lib,index,__main__,app,cli}.*")],
        Shelf::Tests => TEST_FILES.iter().map(|pattern| glob(pattern)).collect(),
        Shelf::Documents => vec![glob("*"), glob("**/*.md")],
    };
    let why = "The question names nothing to search for, so I look what the repository is.".to_owned();
    let reading = telling(question, evidence).into_iter().map(|(path, lines)| read(path, 1, lines)).collect();
    vec![
        Step { why, calls: listing },
        Step { why: "Reading what describes it and where it begins.".to_owned(), calls: reading },
    ]
}

/// The files to read, the most telling first.
fn telling<'a>(question: &Question, evidence: &Evidence<'a>) -> Vec<(&'a str, usize)> {
    let mut chosen: Vec<(&str, usize)> = Vec::new();
    if question.shelf == Shelf::Tests {
        let tests = evidence.paths.iter().filter(|path| FileClass::of(path) == FileClass::Test);
        return tests.take(4).map(|path| (*path, 60)).collect();
    }
    for (name, lines) in TELLING {
        chosen.extend(evidence.paths.get(name).map(|path| (*path, *lines)));
    }
    chosen.truncate(4);
    let mut entries: Vec<&str> = evidence.paths.iter().copied().filter(|path| is_entry(path)).collect();
    entries.sort_by_key(|path| (path.matches('/').count(), path.len(), *path));
    chosen.extend(entries.into_iter().take(3).map(|path| (path, 80)));
    chosen
}

fn is_entry(path: &str) -> bool {
    let stem = definition::file_name(path).split('.').next().unwrap_or_default();
    ENTRIES.contains(&stem) && FileClass::of(path) == FileClass::Source
}

/// The report: each read file by its first telling lines, then the folders.
pub(super) fn report(evidence: &Evidence<'_>) -> String {
    let mut told =
        String::from("What this repository is, by its own files (the question named nothing to search for):\n");
    let mut order: Vec<&str> = evidence.files.keys().copied().collect();
    let rank = |path: &str| TELLING.iter().position(|(name, _)| *name == path).unwrap_or(TELLING.len());
    order.sort_by_key(|path| (rank(path), *path));
    for path in order.into_iter().take(10) {
        told.push('\n');
        for (line, text) in lines_of(path, evidence) {
            let _ = writeln!(told, "- {path}:{line} `{}`", text::one_line(&text.replace('`', "'"), 140));
        }
    }
    let folders = folders(evidence);
    if !folders.is_empty() {
        let _ = writeln!(told, "\nAt the top: {}", folders.join(", "));
    }
    told
}

/// Up to five lines of a file that say the most.
fn lines_of<'a>(path: &str, evidence: &Evidence<'a>) -> Vec<(usize, &'a str)> {
    let Some(lines) = evidence.files.get(path) else { return Vec::new() };
    let said = lines.iter().map(|(line, text)| (*line, *text)).filter(|(_, text)| text.contains(char::is_alphanumeric));
    match FileClass::of(path) {
        FileClass::Document => {
            said.filter(|(_, text)| !text.trim_start().starts_with(['<', '[', '!'])).take(4).collect()
        }
        FileClass::Config => said
            .filter(|(_, text)| {
                let key = text.trim_start().trim_start_matches('"');
                ["name", "description", "version", "main", "module"].iter().any(|known| key.starts_with(known))
            })
            .take(4)
            .collect(),
        FileClass::Source | FileClass::Test | FileClass::Example | FileClass::Foreign => {
            let defining = |text: &str| {
                definition::definition(path, text)
                    .is_some_and(|found| matches!(found.kind, Kind::Function | Kind::Type | Kind::Key))
            };
            let (first, rest): (Vec<_>, Vec<_>) = said.partition(|(line, _)| *line == 1);
            first.into_iter().chain(rest.into_iter().filter(|(_, text)| defining(text))).take(5).collect()
        }
    }
}

fn folders(evidence: &Evidence<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for path in &evidence.paths {
        let name = path.split_once('/').map_or_else(|| (*path).to_owned(), |(folder, _)| format!("{folder}/"));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| (!name.ends_with('/'), name.clone()));
    names.truncate(30);
    names
}
