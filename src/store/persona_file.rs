//! A persona as a file: `agents/<name>.md` of ours, and `.claude/agents/<name>.md` of Claude Code.
//!
//! People write these by hand, so the reading is lenient about form and strict about power: a list may be written in any
//! way that has one meaning, and nothing that is unclear ever adds a tool. Deliberately absent: which file wins, and trust.

use std::path::Path;

use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};

use crate::front_matter::{self, FrontMatterError, Reading};
use crate::model::persona::{Mode, Persona};
use crate::model::rule::Rule;
use crate::model::tool_name::ToolName;
use crate::text;

use super::diagnostic::{Diagnostic, Severity};

/// The longest name; it becomes part of listings and flags.
const NAME: usize = 64;

/// What a Claude Code persona without `tools` gets here. There it would get all; a default must not hand out power.
const READ_ONLY: [ToolName; 4] = [ToolName::Read, ToolName::Glob, ToolName::Grep, ToolName::Lsp];

const KEYS: [&str; 8] = ["name", "description", "tools", "mode", "allow", "deny", "model", "subagent"];

/// Keys of other harnesses that mean nothing here and harm nobody: looks, or powers that we do not hand out.
const FOREIGN_KEYS: [&str; 17] = [
    "background",
    "color",
    "disallowedTools",
    "effort",
    "hooks",
    "initialPrompt",
    "isolation",
    "kind",
    "maxTurns",
    "max_turns",
    "mcpServers",
    "memory",
    "permissionMode",
    "skills",
    "temperature",
    "timeout_mins",
    "version",
];

/// Whose conventions a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Decode,
    ClaudeCode,
}

impl Dialect {
    /// By the directory a file lies in: somewhere under `.claude/agents`, or anywhere else.
    pub(super) fn of(path: &Path) -> Self {
        let foreign = path.ancestors().skip(1).any(|directory| directory.ends_with(".claude/agents"));
        if foreign { Self::ClaudeCode } else { Self::Decode }
    }
}

/// What a file gave. Without a persona there is an error among the diagnostics, or a note that it is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) persona: Option<(Persona, String)>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// Reads one file. It is whole or not there: any error leaves no persona behind.
pub(super) fn parse(path: &Path, text: &str, dialect: Dialect) -> Parsed {
    let (header, body, reading) = match front_matter::read_leniently::<Header>(text) {
        Ok(read) => read,
        Err(error) => return Parsed { persona: None, diagnostics: vec![unreadable(path, &error, dialect)] },
    };
    let front = front_matter::split(text).map_or("", |document| document.front);
    let mut reader = Reader { path, front, dialect, diagnostics: Vec::new() };
    if let Reading::Quoted { line } = reading {
        reader.warning(line, "this line is no YAML and was read as plain text", "put the value in quotes");
    }
    reader.unknown_keys();
    let persona = reader.persona(header);
    if body.trim().is_empty() {
        let line = front.lines().count() + 2;
        reader.error(line, "the body is empty", "write the system prompt after the second `---`");
    }
    let sound = reader.diagnostics.iter().all(|diagnostic| diagnostic.severity < Severity::Error);
    let persona = persona.filter(|_| sound).map(|persona| (persona, body.trim().to_owned()));
    Parsed { persona, diagnostics: reader.diagnostics }
}

fn unreadable(path: &Path, error: &FrontMatterError, dialect: Dialect) -> Diagnostic {
    match error {
        // Directories of Claude Code hold notes too; there a heading is no fault.
        FrontMatterError::Missing if dialect == Dialect::ClaudeCode => {
            Diagnostic::new(path, 1, Severity::Note, "skipped: no front matter, so it is no agent")
        }
        FrontMatterError::Missing => Diagnostic::new(path, 1, Severity::Error, "no front matter")
            .with_fix("start the file with `---`, the keys name, description and tools, and `---`"),
        FrontMatterError::Unclosed => Diagnostic::new(path, 1, Severity::Error, "the front matter is never closed")
            .with_fix("end it with a line `---`"),
        FrontMatterError::TooLarge { .. } => Diagnostic::new(path, 1, Severity::Error, error.to_string()),
        FrontMatterError::Yaml { line, message } => {
            Diagnostic::new(path, *line, Severity::Error, format!("not readable as YAML: {message}"))
                .with_fix("quote the value, or indent the lines that go on")
        }
    }
}

/// The keys as they may be written; what they mean is decided by `Reader`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    name: Option<String>,
    description: Option<String>,
    tools: Option<Words>,
    mode: Option<String>,
    allow: Option<Words>,
    deny: Option<Words>,
    model: Option<String>,
    subagent: Option<bool>,
    #[serde(rename = "permissionMode")]
    permission_mode: Option<String>,
    #[serde(rename = "disallowedTools")]
    disallowed_tools: Option<Words>,
}

/// Collects diagnostics while the parts of one header are turned into a persona.
struct Reader<'a> {
    path: &'a Path,
    front: &'a str,
    dialect: Dialect,
    diagnostics: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn error(&mut self, line: usize, message: impl Into<String>, fix: &str) {
        self.diagnostics.push(Diagnostic::new(self.path, line, Severity::Error, message).with_fix(fix));
    }

    fn warning(&mut self, line: usize, message: impl Into<String>, fix: &str) {
        self.diagnostics.push(Diagnostic::new(self.path, line, Severity::Warning, message).with_fix(fix));
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

    /// The persona, as far as it goes; errors are in the diagnostics.
    fn persona(&mut self, header: Header) -> Option<Persona> {
        let name = self.name(header.name);
        let description = self.required("description", header.description, "say when this agent should be used");
        let (mut tools, mut allow) = self.tools(header.tools);
        let mode = self.mode(header.mode, header.permission_mode);
        allow.extend(self.rules("allow", header.allow));
        let mut deny = self.rules("deny", header.deny);
        for rule in self.disallowed(header.disallowed_tools) {
            if rule.pattern.is_none() {
                tools.retain(|tool| *tool != rule.tool);
            }
            deny.push(rule);
        }
        Some(Persona {
            name: name?,
            description: text::without_controls(&description?),
            tools,
            mode,
            allow,
            deny,
            model: header.model.and_then(|model| tier(&model)),
            subagent: header.subagent.unwrap_or(false),
        })
    }

    fn name(&mut self, name: Option<String>) -> Option<String> {
        let name = self.required("name", name, "give it the name that `--agent` takes")?;
        let sound =
            name.len() <= NAME && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'));
        if sound {
            return Some(name);
        }
        let line = self.line("name");
        self.error(line, format!("`{}` is not a name", shown(&name)), "use letters, digits and hyphens, at most 64");
        None
    }

    fn required(&mut self, key: &str, value: Option<String>, fix: &str) -> Option<String> {
        let value = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        if value.is_none() {
            let line = self.line(key);
            self.error(line, format!("`{key}` is missing"), fix);
        }
        value
    }

    /// The tools, and the allow rules that come with those written as `Bash(git *)`.
    fn tools(&mut self, words: Option<Words>) -> (Vec<ToolName>, Vec<Rule>) {
        let line = self.line("tools");
        // Claude Code takes a missing list, and a star, for all tools.
        let all = |words: &Words| words.0 == ["*"];
        let words = match (words, self.dialect) {
            (Some(words), Dialect::Decode) => words,
            (Some(words), Dialect::ClaudeCode) if !all(&words) => words,
            (None, Dialect::Decode) => {
                self.error(line, "`tools` is missing", "list what it needs, as in `tools: [read, glob, grep]`");
                return (Vec::new(), Vec::new());
            }
            (_, Dialect::ClaudeCode) => {
                let message = "no list of tools: it gets read, glob, grep and lsp only";
                self.warning(line, message, "list under `tools` what it needs beyond reading");
                return (READ_ONLY.to_vec(), Vec::new());
            }
        };
        self.listed(words, line)
    }

    fn listed(&mut self, words: Words, line: usize) -> (Vec<ToolName>, Vec<Rule>) {
        let (mut tools, mut allow) = (Vec::new(), Vec::new());
        let asked = words.0.len();
        for word in self.split(words, "tools") {
            match word.parse::<Rule>() {
                Ok(rule) => {
                    if !tools.contains(&rule.tool) {
                        tools.push(rule.tool);
                    }
                    if rule.pattern.is_some() {
                        allow.push(rule);
                    }
                }
                // A tool that only Claude Code has is no fault of the file; one less is safe.
                Err(_) if self.dialect == Dialect::ClaudeCode => {
                    let message = format!("there is no tool `{}` here", shown(&word));
                    self.warning(line, message, "the agent goes without it");
                }
                Err(error) => self.error(line, error, "take the name out, or mend it"),
            }
        }
        if tools.is_empty() && asked > 0 && self.dialect == Dialect::ClaudeCode {
            self.error(line, "none of its tools exist here", "list read, glob or grep");
        }
        (tools, allow)
    }

    fn mode(&mut self, own: Option<String>, foreign: Option<String>) -> Mode {
        let (key, text) = match (own, foreign) {
            (Some(text), _) => ("mode", text),
            (None, Some(text)) => ("permissionMode", text),
            (None, None) => return Mode::Default,
        };
        text.trim().parse().unwrap_or_else(|error: String| {
            let line = self.line(key);
            if key == "mode" {
                self.error(line, error, "without the key it is default");
            } else {
                // Claude Code has modes that we lack; to ask is never more than they allow.
                self.warning(line, error, "default is taken");
            }
            Mode::Default
        })
    }

    fn rules(&mut self, key: &str, words: Option<Words>) -> Vec<Rule> {
        let line = self.line(key);
        let words = words.unwrap_or_default();
        let words = self.split(words, key);
        let mut rules = Vec::with_capacity(words.len());
        for word in words {
            match word.parse() {
                Ok(rule) => rules.push(rule),
                Err(error) => self.error(line, error, "write `tool` or `tool(pattern)`"),
            }
        }
        rules
    }

    /// What a file of Claude Code takes away. A tool that does not exist here is away already.
    fn disallowed(&mut self, words: Option<Words>) -> Vec<Rule> {
        let words = words.unwrap_or_default();
        self.split(words, "disallowedTools").iter().filter_map(|word| word.parse().ok()).collect()
    }

    fn split(&mut self, words: Words, key: &str) -> Vec<String> {
        let mut split = Vec::new();
        for text in words.0 {
            match split_words(&text) {
                Ok(words) => split.extend(words),
                Err(error) => {
                    let line = self.line(key);
                    self.error(line, error, "close each parenthesis that is opened");
                }
            }
        }
        split
    }
}

/// A tier by its own name or by Claude's; any other text is a model. `inherit` is what no key means.
fn tier(model: &str) -> Option<String> {
    match model.trim() {
        "" | "inherit" => None,
        "haiku" => Some("cheap".to_owned()),
        "sonnet" => Some("default".to_owned()),
        "opus" => Some("strong".to_owned()),
        model => Some(model.to_owned()),
    }
}

fn shown(word: &str) -> String {
    text::one_line(&text::without_controls(word), 60)
}

/// Cuts at commas and white space outside of parentheses; brackets and quotes around are form, not content.
pub(super) fn split_words(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    let text = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let (mut words, mut word, mut depth) = (Vec::new(), String::new(), 0_usize);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Err(format!("`{}` closes a parenthesis that is not open", shown(text))),
            ')' => depth -= 1,
            c if depth == 0 && (c == ',' || c.is_whitespace()) => {
                words.push(std::mem::take(&mut word));
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if depth > 0 {
        return Err(format!("`{}` opens a parenthesis that is never closed", shown(text)));
    }
    words.push(word);
    Ok(words.iter().map(|word| word.trim_matches(['"', '\''])).filter(|w| !w.is_empty()).map(str::to_owned).collect())
}

/// A list, or one line that holds a list. Each item may still hold several words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Words;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of names, or names separated by commas")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Words, E> {
                Ok(Words(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(item) = items.next_element()? {
                    words.push(item);
                }
                Ok(Words(words))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = ".decode/agents/a.md";
    const THEIRS: &str = "/p/.claude/agents/a.md";

    fn read(path: &str, text: &str) -> Parsed {
        parse(Path::new(path), text, Dialect::of(Path::new(path)))
    }

    fn persona(path: &str, text: &str) -> Persona {
        let parsed = read(path, text);
        parsed.persona.unwrap_or_else(|| panic!("{text}\n{:?}", parsed.diagnostics)).0
    }

    /// All findings as people see them.
    fn findings(path: &str, text: &str) -> Vec<String> {
        read(path, text).diagnostics.iter().map(ToString::to_string).collect()
    }

    fn with_tools(tools: &str) -> String {
        format!("---\nname: a\ndescription: d\n{tools}\n---\nbody\n")
    }

    #[test]
    fn every_way_to_write_a_list_gives_the_same_tools() {
        for tools in [
            "tools:\n  - read\n  - grep",
            "tools:\n- read\n- grep",
            "tools: [read, grep]",
            "tools: [\"read\", 'grep']",
            "tools: \"[Read, Grep]\"",
            "tools: Read, Grep",
            "tools: read grep",
            "tools: 'read,grep'",
            "tools: READ,  Grep   # deliberately no Write",
            "tools: [Read, Grep, read]",
        ] {
            for path in [OURS, THEIRS] {
                assert_eq!(persona(path, &with_tools(tools)).tools, [ToolName::Read, ToolName::Grep], "{tools}");
            }
        }
    }

    #[test]
    fn parentheses_keep_their_spaces_and_commas_and_become_a_rule() {
        let persona = persona(OURS, &with_tools("tools: Bash(git log *, HEAD), Read  Write"));
        assert_eq!(persona.tools, [ToolName::Bash, ToolName::Read, ToolName::Write]);
        assert_eq!(persona.allow, ["bash(git log *, HEAD)".parse::<Rule>().unwrap()]);
        assert!(read(OURS, &with_tools("tools: Bash(git *, Read")).persona.is_none());
        assert!(read(OURS, &with_tools("tools: Bash git *), Read")).persona.is_none());
    }

    #[test]
    fn an_unknown_tool_is_named_and_never_offered() {
        let found = findings(OURS, &with_tools("tools: [read, raed]"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(".decode/agents/a.md:4: ") && found[0].contains("`raed`"), "{found:?}");
        assert!(read(OURS, &with_tools("tools: [read, raed]")).persona.is_none());
        let text = with_tools("tools: Read, NotebookEdit, mcp__web__get");
        assert_eq!(persona(THEIRS, &text).tools, [ToolName::Read]);
        assert_eq!(read(THEIRS, &text).diagnostics.len(), 2);
        assert!(read(THEIRS, &with_tools("tools: NotebookEdit")).persona.is_none(), "none left is not all");
    }

    #[test]
    fn missing_tools_are_an_error_here_and_read_only_from_claude_code() {
        assert!(read(OURS, &with_tools("mode: default")).persona.is_none());
        assert!(read(OURS, &with_tools("tools:")).persona.is_none());
        assert_eq!(persona(OURS, &with_tools("tools: []")).tools, []);
        for tools in ["color: red", "tools:", "tools: '*'", "tools: *"] {
            assert_eq!(persona(THEIRS, &with_tools(tools)).tools, READ_ONLY, "{tools}");
            assert!(read(THEIRS, &with_tools(tools)).diagnostics.iter().any(|d| d.severity == Severity::Warning));
        }
    }

    #[test]
    fn a_colon_in_a_description_loads_with_a_warning() {
        let text = "---\nname: a\ndescription: Use for: x, y\ntools: Read\nsubagent: true\n---\nbody";
        let persona = persona(OURS, text);
        assert_eq!((persona.description.as_str(), persona.subagent), ("Use for: x, y", true));
        let found = findings(OURS, text);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(".decode/agents/a.md:3: "), "{found:?}");
    }

    #[test]
    fn a_description_that_runs_over_lines_never_widens_the_tools() {
        let text =
            "---\nname: a\ndescription: Use this\n<example>\nuser: hi\nassistant: ok\n</example>\ntools: Read\n---\nb";
        for path in [OURS, THEIRS] {
            let parsed = read(path, text);
            assert_eq!(parsed.persona, None);
            assert_eq!(parsed.diagnostics.len(), 1);
            assert_eq!(parsed.diagnostics[0].severity, Severity::Error);
            assert!((3..=5).contains(&parsed.diagnostics[0].line), "{:?}", parsed.diagnostics);
        }
        let text = "---\nname: a\ndescription: Use this\nuser: hi\ntools: Read\n---\nb";
        assert_eq!(persona(THEIRS, text).tools, [ToolName::Read]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_anything() {
        let text = "\u{feff}---\r\nname: a\r\ndescription: d\r\ntools: [read]\r\n---\r\nbody\r\n";
        let (persona, prompt) = read(OURS, text).persona.unwrap();
        assert_eq!((persona.name.as_str(), persona.description.as_str(), prompt.as_str()), ("a", "d", "body"));
    }

    #[test]
    fn unknown_keys_are_named_with_their_line_and_known_foreign_ones_are_not() {
        let text = with_tools("tools: [read]\ntool: x\nfrobnicate: 1\ncolor: blue\nmaxTurns: 3");
        assert_eq!(
            findings(OURS, &text),
            [
                ".decode/agents/a.md:5: unknown key `tool` is ignored; did you mean `tools`?",
                ".decode/agents/a.md:6: unknown key `frobnicate` is ignored",
            ]
        );
    }

    #[test]
    fn what_is_missing_is_an_error_and_all_of_it_is_told_at_once() {
        let found = findings(OURS, "---\nname: ''\ntools: [read]\n---\n\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(read(OURS, "---\nname: a b\ndescription: d\ntools: [read]\n---\nx").persona.is_none());
        assert_eq!(findings(OURS, "# Notes\n").len(), 1);
        assert_eq!(read(THEIRS, "# Notes\n").diagnostics[0].severity, Severity::Note);
    }

    #[test]
    fn modes_models_and_rules_are_read_as_claude_code_writes_them() {
        let persona = persona(
            THEIRS,
            &with_tools(
                "tools: Read, Write, Bash\nmodel: haiku\npermissionMode: acceptEdits\ndisallowedTools: Write, Bash(rm *)",
            ),
        );
        assert_eq!(persona.model.as_deref(), Some("cheap"));
        assert_eq!(persona.mode, Mode::Edit);
        assert_eq!(persona.tools, [ToolName::Read, ToolName::Bash], "what is disallowed is not offered");
        assert_eq!(persona.deny.iter().map(ToString::to_string).collect::<Vec<_>>(), ["write", "bash(rm *)"]);
        let text = with_tools("tools: [read]\nmodel: inherit\npermissionMode: dontAsk");
        assert_eq!(super::tests::persona(THEIRS, &text).model, None);
        assert_eq!(super::tests::persona(THEIRS, &text).mode, Mode::Default);
    }

    #[test]
    fn a_rule_or_mode_that_is_not_understood_leaves_no_persona() {
        for line in ["allow: ['bash(git *']", "deny: [rm]", "mode: yolo", "subagent: 1", "tools: {a: b}"] {
            assert!(read(OURS, &with_tools(&format!("tools: [read]\n{line}"))).persona.is_none(), "{line}");
        }
    }
}
