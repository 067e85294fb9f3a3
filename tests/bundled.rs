//! What is shipped as Markdown keeps its contract: personas, skills and recipes.
//!
//! Reads the files as anybody would, with a YAML parser and nothing of ours. Deliberately absent: whether the program
//! understands them; that is tested beside the code that reads them.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_yaml::Value;

type Header = BTreeMap<String, Value>;

const TOOLS: &str = "read glob grep lsp write edit bash todo_write web_fetch web_search ask_user enter_plan_mode \
                     exit_plan_mode sleep skill agent invoke job";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown files of a bundled directory; none if there is no such directory.
fn markdown(directory: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root().join(directory)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    paths.sort();
    paths
}

/// Header and body of a file, or what is wrong with its form.
fn split(text: &str) -> Result<(Header, &str), String> {
    let rest = text.strip_prefix("---\n").ok_or("does not start with `---`")?;
    let (front, body) = rest.split_once("\n---\n").ok_or("has no closing `---`")?;
    Ok((serde_yaml::from_str(front).map_err(|error| error.to_string())?, body))
}

fn read(path: &Path) -> (Header, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let (header, body) = split(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (header, body.to_owned())
}

fn string<'a>(header: &'a Header, key: &str) -> Option<&'a str> {
    header.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

fn strings<'a>(header: &'a Header, key: &str) -> Option<Vec<&'a str>> {
    header.get(key)?.as_sequence()?.iter().map(Value::as_str).collect()
}

fn unknown_keys(header: &Header, known: &[&str]) -> Vec<String> {
    header.keys().filter(|key| !known.contains(&key.as_str())).map(|key| format!("unknown key {key}")).collect()
}

/// What is wrong with a persona.
fn persona_faults(stem: &str, header: &Header, body: &str) -> Vec<String> {
    let known = ["name", "description", "tools", "mode", "allow", "deny", "model", "subagent"];
    let mut faults = unknown_keys(header, &known);
    if string(header, "name") != Some(stem) {
        faults.push("name differs from the file's".to_owned());
    }
    if string(header, "description").is_none() {
        faults.push("no description".to_owned());
    }
    let exists = |tool: &str| TOOLS.split(' ').any(|known| known == tool);
    match strings(header, "tools") {
        None => faults.push("no list of tools".to_owned()),
        Some(tools) => faults.extend(tools.iter().filter(|tool| !exists(tool)).map(|tool| format!("no tool {tool}"))),
    }
    if !string(header, "mode").is_some_and(|mode| ["default", "plan", "edit", "bypass"].contains(&mode)) {
        faults.push("no mode".to_owned());
    }
    if header.get("subagent").is_some_and(|value| !value.is_bool()) {
        faults.push("subagent is not true or false".to_owned());
    }
    if body.trim().is_empty() {
        faults.push("no system prompt".to_owned());
    }
    faults
}

/// What is wrong with a skill by the Agent Skills specification.
fn skill_faults(directory: &str, header: &Header, body: &str) -> Vec<String> {
    let allowed = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];
    let mut faults = unknown_keys(header, &allowed);
    let name = string(header, "name").unwrap_or_default();
    let letters = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let hyphens = !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
    if name.is_empty() || name.len() > 64 || !letters || !hyphens {
        faults.push(format!("`{name}` is not a name"));
    }
    if name != directory {
        faults.push("name differs from the directory's".to_owned());
    }
    if string(header, "description").is_none_or(|text| text.chars().count() > 1024) {
        faults.push("no description of at most 1024 characters".to_owned());
    }
    if header.get("compatibility").is_some_and(|value| value.as_str().is_none_or(|text| text.chars().count() > 500)) {
        faults.push("compatibility is no text of at most 500 characters".to_owned());
    }
    let lines = body.lines().count();
    // 5,000 tokens are about 20,000 bytes.
    if body.trim().is_empty() || lines >= 500 || body.len() > 20_000 {
        faults.push(format!("a body of {lines} lines and {} bytes", body.len()));
    }
    faults
}

/// What is wrong with a recipe.
fn recipe_faults(stem: &str, header: &Header, body: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if string(header, "name") != Some(stem) {
        faults.push("name differs from the file's".to_owned());
    }
    for key in ["description", "isolation"] {
        if string(header, key).is_none() {
            faults.push(format!("no {key}"));
        }
    }
    if body.trim().is_empty() {
        faults.push("nothing for people to read".to_owned());
    }
    faults
}

/// All faults of some files, each with its path. A skill is named after its directory, all else after its file.
fn faults_of(paths: &[PathBuf], check: fn(&str, &Header, &str) -> Vec<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for path in paths {
        let (header, body) = read(path);
        let named = if path.ends_with("SKILL.md") { path.parent().unwrap() } else { path };
        let name = named.file_stem().unwrap().to_str().unwrap();
        faults.extend(check(name, &header, &body).into_iter().map(|fault| format!("{}: {fault}", path.display())));
    }
    faults
}

#[test]
fn every_persona_keeps_its_contract() {
    let paths = markdown("agents");
    assert!(paths.len() >= 4, "{paths:?}");
    assert_eq!(faults_of(&paths, persona_faults), Vec::<String>::new());
}

#[test]
fn the_four_personas_have_the_tools_that_users_count_on() {
    let persona = |name: &str| read(&root().join("agents").join(format!("{name}.md")));
    let (build, _) = persona("build");
    let tools = strings(&build, "tools").unwrap();
    let later = ["web_search", "invoke", "job"];
    assert_eq!((tools.len(), string(&build, "mode")), (15, Some("default")));
    assert!(TOOLS.split(' ').all(|tool| tools.contains(&tool) || later.contains(&tool)));

    let (plan, _) = persona("plan");
    let tools = strings(&plan, "tools").unwrap();
    assert_eq!((tools.len(), string(&plan, "mode")), (11, Some("plan")));
    assert!(["write", "edit", "bash"].iter().all(|tool| !tools.contains(tool)));

    let (reviewer, _) = persona("code-reviewer");
    let tools = strings(&reviewer, "tools").unwrap();
    assert!(tools.contains(&"bash") && !tools.contains(&"write") && !tools.contains(&"edit"));
    assert_eq!(strings(&reviewer, "allow"), Some(vec!["bash(git *)"]));

    let (explore, prompt) = persona("explore");
    assert_eq!(strings(&explore, "tools"), Some(vec!["read", "glob", "grep", "lsp"]));
    assert_eq!(explore.get("subagent"), Some(&Value::Bool(true)));
    for part in ["Your final message IS your report", "Finding", "Evidence", "Trace", "path:line"] {
        assert!(prompt.contains(part), "{part}");
    }
}

#[test]
fn every_skill_is_valid_by_the_specification() {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root().join("skills")).unwrap() {
        let path = entry.unwrap().path().join("SKILL.md");
        assert!(path.is_file(), "{} is missing", path.display());
        paths.push(path);
    }
    assert!(!paths.is_empty());
    assert_eq!(faults_of(&paths, skill_faults), Vec::<String>::new());
}

#[test]
fn the_review_swarm_asks_three_readers_at_once_and_names_what_comes_of_it() {
    let (header, body) = read(&root().join("skills/review-swarm/SKILL.md"));
    let description = string(&header, "description").unwrap();
    assert!(description.contains("three read-only reviewers") && description.contains("Use when"), "{description}");
    for part in [
        "$ARGUMENTS",
        "One `agent` call with three prompts",
        "decode fan --agent explore",
        "decode wait RUN",
        "`path:line`",
        "`Critical`, `Major` or `Minor`",
        "health from 1 to 10",
        "Mermaid",
        "Scorecard",
    ] {
        assert!(body.contains(part), "{part}");
    }
    // The brief itself passes the floor of eight words that the `agent` tool has.
    let brief: String = body.lines().filter_map(|line| line.strip_prefix("> ")).collect::<Vec<_>>().join(" ");
    assert!(brief.split_whitespace().count() > 60, "{brief}");
}

#[test]
fn every_recipe_keeps_its_contract() {
    assert_eq!(faults_of(&markdown("workspaces"), recipe_faults), Vec::<String>::new());
}

#[test]
fn the_checks_find_what_is_wrong() {
    let (header, body) = split("---\nname: b\ntools: [read, rm]\nmode: yolo\nsubagent: 1\ntool: x\n---\n\n").unwrap();
    assert_eq!(persona_faults("a", &header, body).len(), 7);
    let (header, body) = split("---\nname: a--b\ncolor: red\n---\n\n").unwrap();
    assert_eq!(skill_faults("a", &header, body).len(), 5);
    let (header, body) = split("---\nname: a\n---\n\n").unwrap();
    assert_eq!(recipe_faults("b", &header, body).len(), 4);
    assert!(split("# Heading\n").is_err() && split("---\nname: a\n").is_err());
}
