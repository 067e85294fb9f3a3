//! Prompts: from a Markdown file, from JSON lines, from plain lines, and what is wrong with those of a command line.
//!
//! | file | prompts |
//! |---|---|
//! | `.md`, `.markdown` | one `##` heading a prompt: the heading is the label, what follows is the prompt |
//! | `.jsonl`, `.ndjson` | one object a line: `prompt`, and any of the keys in [`KEYS`] |
//! | any other | one prompt a line; blank lines are skipped, nothing else is |
//!
//! A file is read to its end before anything is refused: all that is wrong with it is told at once, each with its line
//! and the way out. Deliberately absent: reading of files and stdin, and any default for what a prompt leaves open.

use serde_json::{Map, Value};
use unicode_width::UnicodeWidthChar;

use crate::model::budget::Budget;
use crate::text;

/// Bytes of one prompt.
pub(crate) const PROMPT_BYTES: usize = 10_000_000;
/// Prompts of one call.
pub(crate) const PROMPTS: usize = 1_000;
/// Characters of a label.
pub(crate) const LABEL: usize = 80;
/// The keys of a line of JSON.
pub(crate) const KEYS: &[&str] = &["prompt", "label", "agent", "model", "harness", "workspace", "cwd", "budget"];
/// Letters of the longest word that is taken for a mistake; what is longer is a sentence of a script without spaces.
const WORD: usize = 30;

/// One prompt and what its file says about it. What is `None` is for flags and settings to say.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_field_names, reason = "the fields are the keys that users write")]
pub(crate) struct Prompt {
    /// The task, byte for byte.
    pub(crate) prompt: String,
    pub(crate) label: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) harness: Option<String>,
    pub(crate) workspace: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) budget: Option<Budget>,
}

impl Prompt {
    /// A prompt that says nothing but the task.
    pub(crate) fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), ..Self::default() }
    }

    /// The label given, else one made of the task; one line either way.
    pub(crate) fn label(&self) -> String {
        match self.label.as_deref().map(cut_label) {
            Some(label) if !label.is_empty() => label,
            Some(_) | None => label_of(&self.prompt),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PromptError {
    #[error("{}", each_on_a_line(.0))]
    InFile(Vec<Problem>),
    #[error("no prompt in {file}; {}", way_out(file))]
    NoneInFile { file: String },
    #[error("no prompt; write the task in quotes, or `--from FILE`")]
    None,
    #[error("prompt {number} is empty; write a task, or leave it out")]
    Empty { number: usize },
    #[error(
        "prompt {number} has {bytes} bytes; at most {PROMPT_BYTES} are allowed: put the text in a file and name it in the prompt"
    )]
    TooLarge { number: usize, bytes: usize },
    #[error("{count} prompts; at most {PROMPTS} are allowed in one call: split them over several")]
    TooMany { count: usize },
    #[error("{count} prompts of one word each; did you forget the quotes? one task is \"{joined}\"")]
    ForgottenQuote { count: usize, joined: String },
    #[error("`{word}` is not a verb; did you mean `decode {closest}`? a task needs more than one word")]
    MistypedVerb { word: String, closest: String },
    #[error("`{word}` is not a verb; see `decode --help`. a task needs more than one word")]
    UnknownVerb { word: String },
}

/// Something wrong in a file of prompts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {fault}")]
pub(crate) struct Problem {
    pub(crate) file: String,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("text before the first `##` heading belongs to no prompt; put it below a heading, or remove it")]
    BeforeFirstHeading,
    #[error("this code fence is never closed and hides all that follows; close it with a line `{fence}`")]
    UnclosedFence { fence: String },
    #[error("the prompt is empty; write the task{}", below(*.place))]
    EmptyPrompt { place: Where },
    #[error("the prompt has {bytes} bytes; at most {PROMPT_BYTES} are allowed: name a file in it instead")]
    TooLarge { bytes: usize },
    #[error("not JSON: {message}; each line is one object such as {{\"prompt\": \"…\"}}")]
    NotJson { message: String },
    #[error("not an object; each line is one such as {{\"prompt\": \"…\"}}")]
    NotAnObject,
    #[error("no `prompt`; each line is one object such as {{\"prompt\": \"…\"}}")]
    NoPrompt,
    #[error("unknown key `{key}`; {}", known_keys(closest.as_deref()))]
    UnknownKey { key: String, closest: Option<String> },
    #[error("`{key}` must be a string that is not empty")]
    NotText { key: &'static str },
    #[error("`budget`: {message}; write \"usd=5,tokens=2m,requests=200,time=30m\", or a number of USD")]
    Budget { message: String },
    #[error("a `.json` file is not a list of prompts; write one object a line and call it `.jsonl`")]
    PlainJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    BelowHeading,
    InLine,
}

const fn below(place: Where) -> &'static str {
    match place {
        Where::BelowHeading => " below its heading, or remove the heading",
        Where::InLine => ", or remove the line",
    }
}

fn known_keys(closest: Option<&str>) -> String {
    match closest {
        Some(closest) => format!("did you mean `{closest}`?"),
        None => format!("the keys are {}", KEYS.join(", ")),
    }
}

fn each_on_a_line(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn way_out(file: &str) -> &'static str {
    match Format::of(file) {
        Format::Markdown => "each begins with a line `## LABEL`",
        Format::JsonLines => "each is a line such as {\"prompt\": \"…\"}",
        Format::Json | Format::Lines => "each is a line of its own",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Markdown,
    JsonLines,
    /// Refused: its lines would be taken for prompts.
    Json,
    Lines,
}

impl Format {
    fn of(file: &str) -> Self {
        let name = file.rsplit('/').next().unwrap_or(file);
        match name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).as_deref() {
            Some("md" | "markdown") => Self::Markdown,
            Some("jsonl" | "ndjson") => Self::JsonLines,
            Some("json") => Self::Json,
            Some(_) | None => Self::Lines,
        }
    }
}

/// The prompts of a file, read as the end of its name says.
pub(crate) fn parse(text: &str, file: &str) -> Result<Vec<Prompt>, PromptError> {
    match Format::of(file) {
        Format::Markdown => parse_markdown(text, file),
        Format::JsonLines => parse_jsonl(text, file),
        Format::Lines => parse_lines(text, file),
        Format::Json => {
            Err(PromptError::InFile(vec![Problem { file: file.to_owned(), line: 1, fault: Fault::PlainJson }]))
        }
    }
}

/// One `##` heading a prompt. A `#` title may stand before the first; a `##` inside a code fence is text.
pub(crate) fn parse_markdown(text: &str, file: &str) -> Result<Vec<Prompt>, PromptError> {
    let text = without_mark(text);
    let mut reading = Reading::new(file);
    let mut open: Option<Heading> = None;
    let mut fence: Option<(usize, &str)> = None;
    let mut told = false;
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let (start, number) = (at, index + 1);
        at += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some((_, mark)) = fence {
            if closes(line, mark) {
                fence = None;
            }
            continue;
        }
        if let Some(label) = second_level(line) {
            if let Some(heading) = open.replace(Heading { label, line: number, body: at }) {
                reading.end(&heading, &text[..start]);
            }
            continue;
        }
        fence = opens(line).map(|mark| (number, mark));
        let belongs_to_none = open.is_none() && !line.trim().is_empty() && !line.starts_with("# ");
        if belongs_to_none && !told {
            // Once is enough: the lines after it are the same text.
            told = true;
            reading.wrong(number, Fault::BeforeFirstHeading);
        }
    }
    if let Some((line, mark)) = fence {
        reading.wrong(line, Fault::UnclosedFence { fence: mark.to_owned() });
    }
    if let Some(heading) = open {
        reading.end(&heading, text);
    }
    reading.result()
}

/// A `##` heading whose prompt is being read.
struct Heading<'a> {
    label: &'a str,
    line: usize,
    /// Where its text starts.
    body: usize,
}

/// The text of a heading of the second level; `None` for any other line.
fn second_level(line: &str) -> Option<&str> {
    let rest = unindented(line)?.strip_prefix("##")?;
    if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
        return None;
    }
    let label = rest.trim();
    // A closing row of `#` is not part of the heading.
    let shorter = label.trim_end_matches('#');
    Some(if shorter.is_empty() || shorter.ends_with([' ', '\t']) { shorter.trim_end() } else { label })
}

/// The line without up to three spaces of indent; with four it is code.
fn unindented(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    (line.len() - rest.len() <= 3).then_some(rest)
}

/// The fence that this line opens.
fn opens(line: &str) -> Option<&str> {
    let rest = unindented(line)?;
    let mark = rest.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = rest.trim_start_matches(mark);
    let fence = &rest[..rest.len() - info.len()];
    // Three backticks with more behind them on the same line are a code span.
    (fence.len() >= 3 && !(mark == '`' && info.contains('`'))).then_some(fence)
}

fn closes(line: &str, fence: &str) -> bool {
    unindented(line).is_some_and(|rest| {
        let rest = rest.trim_end();
        rest.len() >= fence.len() && rest.chars().all(|c| fence.starts_with(c))
    })
}

/// One object a line; blank lines are skipped.
pub(crate) fn parse_jsonl(text: &str, file: &str) -> Result<Vec<Prompt>, PromptError> {
    let mut reading = Reading::new(file);
    for (index, line) in without_mark(text).lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match object(line).map(|object| reading.spec(object, index + 1)) {
            Ok(Some(prompt)) => reading.accept(prompt, index + 1, Where::InLine),
            Ok(None) => {}
            Err(fault) => reading.wrong(index + 1, fault),
        }
    }
    reading.result()
}

fn object(line: &str) -> Result<Map<String, Value>, Fault> {
    match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Fault::NotAnObject),
        // The parser's own position counts from this line; the column is all that is new.
        Err(error) => {
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or(&message);
            Err(Fault::NotJson { message: format!("{message} at column {}", error.column()) })
        }
    }
}

/// One prompt a line; blank lines are skipped. A line that starts with `#` is a prompt like any other.
pub(crate) fn parse_lines(text: &str, file: &str) -> Result<Vec<Prompt>, PromptError> {
    let mut reading = Reading::new(file);
    for (index, line) in without_mark(text).lines().enumerate() {
        if !line.trim().is_empty() {
            reading.accept(Prompt::new(line), index + 1, Where::InLine);
        }
    }
    reading.result()
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// What has been read of a file: prompts and problems side by side.
struct Reading<'a> {
    file: &'a str,
    prompts: Vec<Prompt>,
    problems: Vec<Problem>,
}

impl<'a> Reading<'a> {
    const fn new(file: &'a str) -> Self {
        Self { file, prompts: Vec::new(), problems: Vec::new() }
    }

    fn wrong(&mut self, line: usize, fault: Fault) {
        self.problems.push(Problem { file: self.file.to_owned(), line, fault });
    }

    fn accept(&mut self, prompt: Prompt, line: usize, place: Where) {
        if prompt.prompt.trim().is_empty() {
            self.wrong(line, Fault::EmptyPrompt { place });
        } else if prompt.prompt.len() > PROMPT_BYTES {
            self.wrong(line, Fault::TooLarge { bytes: prompt.prompt.len() });
        } else {
            self.prompts.push(prompt);
        }
    }

    /// Ends the prompt of a heading, whose text goes up to the end of `text`.
    fn end(&mut self, heading: &Heading<'_>, text: &str) {
        // Blank lines around a prompt are the file's layout; all between them is the task, byte for byte.
        let body = text[heading.body..].trim_end();
        let first = body.len() - body.trim_start().len();
        let body = &body[body[..first].rfind('\n').map_or(0, |at| at + 1)..];
        let label = cut_label(heading.label);
        let prompt = Prompt { label: (!label.is_empty()).then_some(label), ..Prompt::new(body) };
        self.accept(prompt, heading.line, Where::BelowHeading);
    }

    /// The prompt of one object; `None` if something is wrong with it, which is then noted.
    fn spec(&mut self, object: Map<String, Value>, line: usize) -> Option<Prompt> {
        let sound = self.problems.len();
        let mut prompt = Prompt::default();
        let mut has_prompt = false;
        for (key, value) in object {
            let Some(key) = KEYS.iter().copied().find(|known| *known == key) else {
                let closest = text::closest(&key, KEYS.iter().copied()).map(str::to_owned);
                self.wrong(line, Fault::UnknownKey { key: text::one_line(&key, 40), closest });
                continue;
            };
            has_prompt |= key == "prompt";
            // `null` is how generators of JSON say that they have nothing to say.
            if value.is_null() && key != "prompt" {
                continue;
            }
            if let Err(fault) = set(&mut prompt, key, value) {
                self.wrong(line, fault);
            }
        }
        if !has_prompt {
            self.wrong(line, Fault::NoPrompt);
        }
        (self.problems.len() == sound).then_some(prompt)
    }

    fn result(self) -> Result<Vec<Prompt>, PromptError> {
        if !self.problems.is_empty() {
            return Err(PromptError::InFile(self.problems));
        }
        match self.prompts.len() {
            0 => Err(PromptError::NoneInFile { file: self.file.to_owned() }),
            count if count > PROMPTS => Err(PromptError::TooMany { count }),
            _ => Ok(self.prompts),
        }
    }
}

fn set(prompt: &mut Prompt, key: &'static str, value: Value) -> Result<(), Fault> {
    if key == "budget" {
        prompt.budget = Some(budget(value)?);
        return Ok(());
    }
    let Value::String(value) = value else { return Err(Fault::NotText { key }) };
    // An empty prompt has an error of its own, with its own way out.
    if value.trim().is_empty() && key != "prompt" {
        return Err(Fault::NotText { key });
    }
    match key {
        "prompt" => prompt.prompt = value,
        "label" => prompt.label = Some(value),
        "agent" => prompt.agent = Some(value),
        "model" => prompt.model = Some(value),
        "harness" => prompt.harness = Some(value),
        "workspace" => prompt.workspace = Some(value),
        "cwd" => prompt.cwd = Some(value),
        _ => unreachable!("`{key}` is in KEYS and has a field here"),
    }
    Ok(())
}

/// `"usd=5,time=30m"` as on the command line, a number of USD, or an object with the same keys.
fn budget(value: Value) -> Result<Budget, Fault> {
    let plain = |value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err(Fault::Budget { message: "not a string, a number or an object of them".to_owned() })
        }
    };
    let words = match value {
        Value::Object(object) => object
            .into_iter()
            .map(|(key, value)| Ok(format!("{}={}", key.strip_suffix("_s").unwrap_or(&key), plain(value)?)))
            .collect::<Result<Vec<_>, _>>()?
            .join(","),
        other => plain(other)?,
    };
    words.parse().map_err(|message| Fault::Budget { message })
}

/// Refuses what no run could start with: no prompt, an empty one, one too large, too many.
pub(crate) fn check_limits(prompts: &[&str]) -> Result<(), PromptError> {
    if prompts.is_empty() {
        return Err(PromptError::None);
    }
    if prompts.len() > PROMPTS {
        return Err(PromptError::TooMany { count: prompts.len() });
    }
    for (index, prompt) in prompts.iter().enumerate() {
        if prompt.trim().is_empty() {
            return Err(PromptError::Empty { number: index + 1 });
        }
        if prompt.len() > PROMPT_BYTES {
            return Err(PromptError::TooLarge { number: index + 1, bytes: prompt.len() });
        }
    }
    Ok(())
}

/// Refuses what a person most likely did not mean, before it costs anything.
///
/// Several prompts of one word each are a forgotten quote. A single word is a mistyped verb where `verbs` could have
/// stood; a caller whose verb is already known gives none, and the word is a task.
pub(crate) fn check_words(prompts: &[String], verbs: &[&str]) -> Result<(), PromptError> {
    check_limits(&prompts.iter().map(String::as_str).collect::<Vec<_>>())?;
    if !prompts.iter().all(|prompt| is_word(prompt.trim())) {
        return Ok(());
    }
    match prompts {
        [word] if verbs.is_empty() => Ok(()),
        [word] => {
            let word = text::one_line(word.trim(), WORD);
            Err(match text::closest(&word.to_lowercase(), verbs.iter().copied()) {
                Some(closest) => PromptError::MistypedVerb { closest: closest.to_owned(), word },
                None => PromptError::UnknownVerb { word },
            })
        }
        _ => Err(PromptError::ForgottenQuote {
            count: prompts.len(),
            joined: text::one_line(&text::without_controls(&prompts.join(" ")), LABEL),
        }),
    }
}

/// Scripts that are written without spaces put a whole sentence into one "word"; those are wide or long.
fn is_word(text: &str) -> bool {
    let short = text.chars().nth(WORD).is_none();
    short && text.chars().all(|c| !c.is_whitespace() && c.width() != Some(2))
}

/// A label for a prompt: its first line that says something, cut to 80 characters.
pub(crate) fn label_of(prompt: &str) -> String {
    let prompt = without_mark(prompt);
    let says_something = |line: &&str| line.chars().any(char::is_alphanumeric);
    let line = prompt
        .lines()
        .filter(|line| opens(line).is_none())
        .find(says_something)
        .or_else(|| prompt.lines().find(|line| !line.trim().is_empty()))
        .unwrap_or_default();
    cut_label(without_marker(line.trim()))
}

/// The line without the marker of a heading, a quote or a list.
fn without_marker(line: &str) -> &str {
    let rest = line.trim_start_matches(['#', '>', '-', '*']);
    if rest.len() < line.len() && rest.starts_with(' ') && !rest.trim().is_empty() { rest.trim_start() } else { line }
}

/// One line of at most 80 characters, without escapes.
pub(crate) fn cut_label(label: &str) -> String {
    // Far more than a label, far less than a prompt: a prompt may be one line of megabytes.
    let start = text::prefix(label, LABEL * 64);
    let line = text::one_line(&text::without_controls(start), LABEL);
    match line.char_indices().nth(LABEL) {
        None => line,
        Some(_) => line.chars().take(LABEL - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What shells, templates and JSON have mangled elsewhere.
    const HOSTILE: &str = "say $HOME and `id` and $(id) !! 'one' \"two\" #(touch x) %s \\";

    fn prompts_of(parsed: Result<Vec<Prompt>, PromptError>) -> Vec<String> {
        parsed.unwrap().into_iter().map(|prompt| prompt.prompt).collect()
    }

    fn faults(parsed: Result<Vec<Prompt>, PromptError>) -> Vec<(usize, Fault)> {
        match parsed {
            Err(PromptError::InFile(problems)) => problems.into_iter().map(|p| (p.line, p.fault)).collect(),
            other => panic!("no faults in {other:?}"),
        }
    }

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_heading_of_the_second_level_is_a_prompt() {
        let text =
            "# Audit\n\n## Login ##\n\nFind the login.\n\n### Detail\nDeep.\n\n##\tCache\nFind it.\n## \nNo label.\n";
        let prompts = parse(&format!("\u{feff}{text}"), "dir/tasks.MD").unwrap();
        let pairs: Vec<(Option<&str>, &str)> =
            prompts.iter().map(|prompt| (prompt.label.as_deref(), prompt.prompt.as_str())).collect();
        assert_eq!(
            pairs,
            [(Some("Login"), "Find the login.\n\n### Detail\nDeep."), (Some("Cache"), "Find it."), (None, "No label.")]
        );
        assert_eq!(prompts[2].label(), "No label.");
    }

    #[test]
    fn a_heading_inside_a_code_fence_is_text() {
        let text = "## One\n````md\n## not one\n```\n## nor this\n````\n~~~\n## nor that\n~~~\n    ## code\n```a`b\n## Two\nx\n";
        let prompts = parse(text, "a.md").unwrap();
        assert_eq!(prompts.len(), 2);
        assert!(prompts[0].prompt.ends_with("```a`b"));
    }

    #[test]
    fn a_prompt_keeps_its_bytes_in_every_format() {
        let json = serde_json::json!({ "prompt": format!("[TEAM] <- lead\nRun id\n{HOSTILE}") }).to_string();
        assert_eq!(prompts_of(parse(&json, "a.jsonl")), [format!("[TEAM] <- lead\nRun id\n{HOSTILE}")]);
        assert_eq!(prompts_of(parse(&format!("{HOSTILE}\r\n\n# x\n"), "a.txt")), [HOSTILE, "# x"]);
        let body = format!("  indented\r\n\t{HOSTILE}\r\n\r\nend");
        assert_eq!(prompts_of(parse(&format!("## a\r\n\r\n{body}\r\n\r\n"), "a.md")), [body]);
    }

    #[test]
    fn text_before_the_first_heading_and_open_fences_are_refused() {
        let parsed = parse("# Title\nYou are a\nhelper\n## A\ntext\n## B\n\n## C\n```\nx\n## D\n", "a.md");
        assert_eq!(
            faults(parsed),
            [
                (2, Fault::BeforeFirstHeading),
                (6, Fault::EmptyPrompt { place: Where::BelowHeading }),
                (9, Fault::UnclosedFence { fence: "```".into() })
            ]
        );
    }

    #[test]
    fn a_line_of_json_carries_a_whole_spec() {
        let text = r#"
{"prompt":"Do it","label":"it","agent":"build","model":"a/b","harness":"decode","workspace":"worktree","cwd":"/x","budget":"usd=2,time=5m"}
{"prompt":"p","label":null,"budget":{"requests":25,"time_s":60}}
{"prompt":"q","budget":0.5}"#;
        let prompts = parse(text, "x.jsonl").unwrap();
        assert_eq!(
            prompts[0],
            Prompt {
                prompt: "Do it".into(),
                label: Some("it".into()),
                agent: Some("build".into()),
                model: Some("a/b".into()),
                harness: Some("decode".into()),
                workspace: Some("worktree".into()),
                cwd: Some("/x".into()),
                budget: Some(Budget { usd: Some(2.0), time_s: Some(300), ..Budget::NONE }),
            }
        );
        assert_eq!(prompts[1].budget, Some(Budget { requests: Some(25), time_s: Some(60), ..Budget::NONE }));
        assert_eq!((prompts[1].label.as_ref(), prompts[2].budget.unwrap().usd), (None, Some(0.5)));
    }

    #[test]
    fn all_that_is_wrong_with_a_file_is_told_at_once_with_its_lines() {
        let text = "{\"prompt\":\"a\",\"modle\":\"x\"}\n[1]\n\n{\"label\":\"b\"}\n{\"prompt\":\" \"}\n{\"prompt\":\n\
                    {\"prompt\":3,\"zzzzzz\":1}\n{\"prompt\":\"c\",\"agent\":\"\"}\n{\"prompt\":\"d\",\"budget\":\"usd=-1\"}\n";
        let error = parse(text, "x.jsonl").unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        let want = [
            "x.jsonl:1: unknown key `modle`; did you mean `model`?",
            "x.jsonl:2: not an object; each line is one such as {\"prompt\": \"…\"}",
            "x.jsonl:4: no `prompt`; each line is one object such as {\"prompt\": \"…\"}",
            "x.jsonl:5: the prompt is empty; write the task, or remove the line",
            "x.jsonl:6: not JSON: EOF while parsing a value at column 10; each line is one object such as {\"prompt\": \"…\"}",
            "x.jsonl:7: `prompt` must be a string that is not empty",
            "x.jsonl:7: unknown key `zzzzzz`; the keys are prompt, label, agent, model, harness, workspace, cwd, budget",
            "x.jsonl:8: `agent` must be a string that is not empty",
            "x.jsonl:9: `budget`: `-1` is not an amount of USD above 0; write \"usd=5,tokens=2m,requests=200,time=30m\", \
             or a number of USD",
        ];
        assert_eq!(lines, want);
    }

    #[test]
    fn every_known_key_has_a_field() {
        for key in KEYS {
            assert_eq!(set(&mut Prompt::default(), key, Value::String("1".into())), Ok(()), "{key}");
        }
    }

    #[test]
    fn a_file_without_prompts_or_of_another_kind_says_the_way_out() {
        assert_eq!(parse("\n \n", "a.txt").unwrap_err().to_string(), "no prompt in a.txt; each is a line of its own");
        assert_eq!(
            parse("# T\n", "a.md").unwrap_err().to_string(),
            "no prompt in a.md; each begins with a line `## LABEL`"
        );
        assert_eq!(faults(parse("[\n]", "a.json")), [(1, Fault::PlainJson)]);
    }

    #[test]
    fn limits_hold_for_files_and_arguments() {
        let many = "a b\n".repeat(PROMPTS + 1);
        assert_eq!(parse(&many, "a"), Err(PromptError::TooMany { count: PROMPTS + 1 }));
        let large = "a ".repeat(PROMPT_BYTES / 2 + 1);
        assert!(matches!(faults(parse(&format!("x y\n{large}b"), "a")).as_slice(), [(2, Fault::TooLarge { .. })]));
        assert!(matches!(check_limits(&[&large]), Err(PromptError::TooLarge { number: 1, .. })));
        assert_eq!(check_limits(&["a b", " \n"]), Err(PromptError::Empty { number: 2 }));
        assert_eq!(check_limits(&[]), Err(PromptError::None));
    }

    #[test]
    fn several_prompts_of_one_word_each_are_a_forgotten_quote() {
        let error = check_words(&strings(&["fix", "the", "tests!"]), &["fan"]).unwrap_err();
        assert_eq!(error, PromptError::ForgottenQuote { count: 3, joined: "fix the tests!".into() });
        assert_eq!(check_words(&strings(&["fix", "the tests"]), &["fan"]), Ok(()));
        assert_eq!(check_words(&strings(&["日本語で説明して", "修正"]), &["fan"]), Ok(()));
    }

    #[test]
    fn a_single_unknown_word_is_a_mistyped_verb() {
        let check = |word: &str, verbs: &[&str]| check_words(&strings(&[word]), verbs).map_err(|e| e.to_string());
        assert_eq!(
            check("Stauts", &["status", "stop"]),
            Err("`Stauts` is not a verb; did you mean `decode status`? a task needs more than one word".into())
        );
        assert!(check("refactor", &["status"]).unwrap_err().contains("see `decode --help`"));
        assert_eq!(check("fix it", &["status"]), Ok(()));
        assert_eq!(check("直して", &["status"]), Ok(()));
        assert_eq!(check("hello", &[]), Ok(()));
        assert!(check(" ", &[]).is_err());
    }

    #[test]
    fn a_label_is_the_first_line_that_says_something() {
        let cases = [
            ("Fix it\nnow", "Fix it"),
            ("\n---\n\n# Fix it ", "Fix it"),
            ("```rust\nfn a() {}\n```", "fn a() {}"),
            ("- [ ] one", "[ ] one"),
            ("#(touch x)", "#(touch x)"),
            ("-5 is wrong", "-5 is wrong"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("???", "???"),
            ("", ""),
        ];
        for (prompt, want) in cases {
            assert_eq!(label_of(prompt), want, "{prompt:?}");
        }
    }

    #[test]
    fn a_label_is_cut_to_80_characters_wherever_that_falls() {
        for letters in 76..84 {
            let label = label_of(&format!("{}🙂é日{}", "x".repeat(letters), "y".repeat(1_000_000)));
            assert!(label.chars().count() <= LABEL && label.ends_with('…'), "{label}");
        }
        assert!(cut_label(&format!("a{}", "\u{301}".repeat(1_000))).chars().count() <= LABEL);
    }
}
