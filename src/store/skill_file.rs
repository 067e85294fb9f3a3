//! A skill as a file: `<name>/SKILL.md` by the Agent Skills specification, also as other agents write it.
//!
//! Deliberately absent: which of two skills is used, trust, and the files beside it (`skills.rs`).

use std::path::Path;

use serde::Deserialize;

use super::diagnostic::{Diagnostic, Severity};
use super::persona_file::{Words, split_words};
use crate::front_matter::{self, FrontMatterError, Reading};
use crate::model::skill::{Callers, Skill};
use crate::text;

/// The longest name; it is typed after a slash.
const NAME: usize = 64;
/// What the specification allows for a description.
const DESCRIPTION: usize = 1024;

const KEYS: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// Keys of other agents. All but `disable-model-invocation` mean nothing here and harm nobody.
const FOREIGN_KEYS: [&str; 12] = [
    "agent",
    "argument-hint",
    "context",
    "disable-model-invocation",
    "disallowed-tools",
    "effort",
    "hooks",
    "model",
    "paths",
    "user-invocable",
    "version",
    "when_to_use",
];

/// What a file gave. Without a skill there is an error among the diagnostics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) skill: Option<Skill>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    name: Option<String>,
    description: Option<String>,
    #[serde(rename = "allowed-tools")]
    allowed_tools: Option<Words>,
    #[serde(rename = "disable-model-invocation")]
    people_only: Option<bool>,
}

/// Reads one file. It is whole or not there.
pub(super) fn parse(path: &Path, text: &str) -> Parsed {
    let (header, body, reading) = match front_matter::read_leniently::<Header>(text) {
        Ok(read) => read,
        Err(error) => return Parsed { skill: None, diagnostics: vec![unreadable(path, &error)] },
    };
    let front = front_matter::split(text).map_or("", |document| document.front);
    let mut reader = Reader { path, front, diagnostics: Vec::new() };
    if let Reading::Quoted { line } = reading {
        let message = "this line is no YAML and was read as plain text";
        reader.tell(line, Severity::Warning, message, "put the value in quotes");
    }
    reader.unknown_keys();
    let name = reader.name(header.name);
    let description = reader.description(header.description);
    let allowed_tools = reader.allowed_tools(header.allowed_tools);
    if body.trim().is_empty() {
        let line = front.lines().count() + 2;
        reader.tell(line, Severity::Error, "the body is empty", "write the instructions after the second `---`");
    }
    let sound = reader.diagnostics.iter().all(|found| found.severity < Severity::Error);
    let skill = name.zip(description).filter(|_| sound).map(|(name, description)| Skill {
        name,
        description,
        body: body.trim().to_owned(),
        directory: path.parent().map(Path::to_owned),
        siblings: Vec::new(),
        callers: if header.people_only == Some(true) { Callers::People } else { Callers::Anyone },
        allowed_tools,
    });
    Parsed { skill, diagnostics: reader.diagnostics }
}

fn unreadable(path: &Path, error: &FrontMatterError) -> Diagnostic {
    let (line, message, fix) = match error {
        FrontMatterError::Missing => {
            (1, "no front matter".to_owned(), "start the file with `---`, the keys name and description, and `---`")
        }
        FrontMatterError::Unclosed => (1, "the front matter is never closed".to_owned(), "end it with a line `---`"),
        FrontMatterError::TooLarge { .. } => (1, error.to_string(), "move what is long into the body"),
        FrontMatterError::Yaml { line, message } => {
            (*line, format!("not readable as YAML: {message}"), "quote the value, or indent the lines that go on")
        }
    };
    Diagnostic::new(path, line, Severity::Error, message).with_fix(fix)
}

/// Collects diagnostics while the parts of one header are read.
struct Reader<'a> {
    path: &'a Path,
    front: &'a str,
    diagnostics: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn tell(&mut self, line: usize, severity: Severity, message: impl Into<String>, fix: &str) {
        self.diagnostics.push(Diagnostic::new(self.path, line, severity, message).with_fix(fix));
    }

    /// The line of a key, or the first line if the key is absent.
    fn line(&self, key: &str) -> usize {
        front_matter::line_of(self.front, key).unwrap_or(1)
    }

    fn unknown_keys(&mut self) {
        for (key, line) in front_matter::keys(self.front) {
            if KEYS.contains(&key) || FOREIGN_KEYS.contains(&key) {
                continue;
            }
            let found = Diagnostic::new(self.path, line, Severity::Warning, format!("unknown key `{key}` is ignored"));
            self.diagnostics.push(match text::closest(key, KEYS) {
                Some(near) => found.with_fix(format!("did you mean `{near}`?")),
                None => found,
            });
        }
    }

    /// The name, by which the skill is called whatever its directory is named.
    fn name(&mut self, name: Option<String>) -> Option<String> {
        let line = self.line("name");
        let Some(name) = present(name) else {
            self.tell(line, Severity::Error, "`name` is missing", "give it the name of its directory");
            return None;
        };
        let usable =
            name.len() <= NAME && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'));
        if !usable {
            let message = format!("`{}` is not a name", text::one_line(&text::without_controls(&name), 60));
            self.tell(line, Severity::Error, message, "use small letters, digits and hyphens, at most 64");
            return None;
        }
        if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
            let message = format!("`{name}` is no name by the specification: other agents may refuse it");
            self.tell(line, Severity::Warning, message, "use small letters, digits and hyphens");
        }
        let directory = self.path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        if let Some(directory) = directory.filter(|directory| *directory != name) {
            let message = format!("the directory is named `{directory}`; the skill is called by its name `{name}`");
            self.tell(line, Severity::Warning, message, "give both the same name");
        }
        Some(name)
    }

    fn description(&mut self, description: Option<String>) -> Option<String> {
        let line = self.line("description");
        let Some(description) = present(description) else {
            self.tell(line, Severity::Error, "`description` is missing", "say what it does and when to use it");
            return None;
        };
        let length = description.chars().count();
        if length > DESCRIPTION {
            let message = format!("the description has {length} characters; the specification allows {DESCRIPTION}");
            self.tell(line, Severity::Warning, message, "move the rest into the body");
        }
        Some(text::without_controls(&description))
    }

    fn allowed_tools(&mut self, words: Option<Words>) -> Vec<String> {
        let line = self.line("allowed-tools");
        let mut tools = Vec::new();
        for text in words.unwrap_or_default().0 {
            match split_words(&text) {
                Ok(words) => tools.extend(words.iter().map(|word| text::without_controls(word))),
                Err(error) => self.tell(line, Severity::Warning, error, "close each parenthesis that is opened"),
            }
        }
        tools
    }
}

fn present(value: Option<String>) -> Option<String> {
    value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Parsed {
        parse(Path::new("skills/a/SKILL.md"), text)
    }

    fn findings(text: &str) -> Vec<String> {
        read(text).diagnostics.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_skill_of_the_specification_loads_without_a_word() {
        let text = "---\nname: a\ndescription: Does a.\nlicense: MIT\ncompatibility: needs git\n\
                    metadata:\n  author: me\nallowed-tools: Read\n---\n# A\n\nDo a.\n";
        let Parsed { skill, diagnostics } = read(text);
        let skill = skill.unwrap();
        assert_eq!(diagnostics, []);
        assert_eq!((skill.name.as_str(), skill.body.as_str()), ("a", "# A\n\nDo a."));
        assert_eq!((skill.directory, skill.callers), (Some("skills/a".into()), Callers::Anyone));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_skill() {
        let parsed = read("\u{feff}---\r\nname: a\r\ndescription: d\r\n---\r\nDo a.\r\n");
        let skill = parsed.skill.unwrap();
        assert_eq!((skill.name.as_str(), skill.description.as_str(), skill.body.as_str()), ("a", "d", "Do a."));
        assert_eq!(parsed.diagnostics, []);
    }

    #[test]
    fn tools_keep_what_stands_in_parentheses_whatever_separates_them() {
        for list in [
            "Bash(git *), Read  Write",
            "[\"Bash(git *)\", Read, Write]",
            "\n  - Bash(git *)\n  - Read\n  - Write",
            "Bash(git *) Read,Write",
        ] {
            let parsed = read(&format!("---\nname: a\ndescription: d\nallowed-tools: {list}\n---\nx\n"));
            assert_eq!(parsed.skill.unwrap().allowed_tools, ["Bash(git *)", "Read", "Write"], "{list}");
        }
        let parsed = read("---\nname: a\ndescription: d\nallowed-tools: Bash(git log, git diff)\n---\nx\n");
        assert_eq!(parsed.skill.unwrap().allowed_tools, ["Bash(git log, git diff)"]);
    }

    #[test]
    fn a_colon_in_a_description_is_read_and_told_with_its_line() {
        let text = "---\nname: a\ndescription: Use when: asked\n---\nx\n";
        assert_eq!(read(text).skill.unwrap().description, "Use when: asked");
        assert_eq!(
            findings(text),
            ["skills/a/SKILL.md:3: this line is no YAML and was read as plain text; put the value in quotes"]
        );
    }

    #[test]
    fn a_name_unlike_its_directory_is_told_and_counts() {
        let parsed = parse(Path::new("skills/find-it/SKILL.md"), "---\nname: history\ndescription: d\n---\nx\n");
        assert_eq!(parsed.skill.unwrap().name, "history");
        assert_eq!(parsed.diagnostics.len(), 1);
        assert_eq!(parsed.diagnostics[0].severity, Severity::Warning);
        assert!(parsed.diagnostics[0].message.contains("`find-it`"));
    }

    #[test]
    fn what_is_missing_leaves_no_skill_and_all_of_it_is_told_at_once() {
        let found = findings("---\nname: ' '\n---\n\n");
        assert_eq!(found.len(), 3, "{found:?}");
        for text in
            ["# Heading\n", "---\nname: a\n", "---\nname: [a\n---\nx\n", "---\nname: ../a\ndescription: d\n---\nx"]
        {
            let parsed = read(text);
            assert!(parsed.skill.is_none() && parsed.diagnostics[0].severity == Severity::Error, "{text}");
        }
    }

    #[test]
    fn unknown_keys_are_named_with_their_line_and_those_of_other_agents_are_not() {
        let text = "---\nname: a\ndescription: d\nargument-hint: x\nlicence: MIT\nfrobnicate: 1\n---\nx\n";
        assert_eq!(
            findings(text),
            [
                "skills/a/SKILL.md:5: unknown key `licence` is ignored; did you mean `license`?",
                "skills/a/SKILL.md:6: unknown key `frobnicate` is ignored",
            ]
        );
    }

    #[test]
    fn what_its_author_keeps_from_models_stays_with_people() {
        let text = "---\nname: a\ndescription: d\ndisable-model-invocation: true\n---\nx\n";
        assert_eq!(read(text).skill.unwrap().callers, Callers::People);
    }
}
