//! What to look at next: definitions first, then wider, then closer, then the report.
//!
//! Each step is derived from the conversation alone. A call that was made is not made again, so every step is taken
//! once and the search ends. Deliberately absent: how lines are judged (`rank.rs`) and worded (`report.rs`).

use serde_json::{Map, Value, json};

use super::definition::{FileClass, Kind};
use super::evidence::Evidence;
use super::overview;
use super::question::{Aim, LEAD, Question, Shelf, Term};
use super::rank::{self, Hit};
use super::report;
use super::words::{self, Part};
use crate::model::message::{AssistantMessage, StopReason, ToolCall, ToolInput};
use crate::model::usage::Usage;
use crate::provider::Request;
use crate::text;

/// Turns with calls for one question; then comes the report, whatever is known.
const MOST_TURNS: usize = 6;
/// Calls in one turn.
const MOST_CALLS: usize = 8;
/// From here on an answer is told as one; below, only as the closest that was found.
pub(super) const GOOD_ENOUGH: f64 = 0.45;

/// Calls that are worth making, and why.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) why: String,
    pub(super) calls: Vec<(&'static str, Map<String, Value>)>,
}

/// The next turn of the explorer: calls, or the report.
pub(super) fn next_turn(request: &Request) -> AssistantMessage {
    let (question, newest) = Question::of(&request.messages);
    let evidence = Evidence::of(&request.messages, newest);
    let enough = evidence.turns >= MOST_TURNS || (question.hurried && !evidence.files.is_empty());
    let step = if enough { None } else { next_step(&question, &evidence, request) };
    let Some(step) = step else {
        let text = report::write(&question, &evidence, !request.tools.is_empty());
        return answer(request, text, Vec::new());
    };
    let first = evidence.asked.len();
    let calls = step.calls.into_iter().enumerate().map(|(i, (name, input))| ToolCall {
        id: format!("explorer-{}", first + i + 1),
        name: name.to_owned(),
        input: ToolInput::Sound(input),
    });
    answer(request, step.why, calls.collect())
}

fn answer(request: &Request, text: String, calls: Vec<ToolCall>) -> AssistantMessage {
    let asked: usize = calls
        .iter()
        .map(|call| call.name.len() + serde_json::to_string(&call.input).map_or(0, |json| json.len()))
        .sum();
    let usage = Usage {
        requests: 1,
        input_tokens: (request_bytes(request) / 4) as u64,
        output_tokens: ((text.len() + asked) / 4) as u64,
        ..Usage::ZERO
    };
    let stop = if calls.is_empty() { StopReason::End } else { StopReason::ToolCalls };
    AssistantMessage { thinking: Vec::new(), text, calls, usage, stop }
}

fn request_bytes(request: &Request) -> usize {
    use crate::model::message::Message;
    let messages = request.messages.iter().map(|message| match message {
        Message::User(message) => message.text.len(),
        Message::Assistant(turn) => turn.text.len() + turn.calls.len() * 80,
        Message::Tool(result) => result.output.len(),
    });
    request.system.len() + messages.sum::<usize>()
}

/// The first step that still has a call to make with the tools at hand.
fn next_step(question: &Question, evidence: &Evidence<'_>, request: &Request) -> Option<Step> {
    let fresh = |step: Step| {
        let has_tool = |name: &str| request.tools.iter().any(|tool| tool.name == name);
        let calls = step.calls.into_iter().filter(|(name, input)| has_tool(name) && !evidence.has_asked(name, input));
        let calls: Vec<_> = calls.take(MOST_CALLS).collect();
        (!calls.is_empty()).then_some(Step { calls, ..step })
    };
    if question.is_overview() {
        return overview::steps(question, evidence).into_iter().find_map(fresh);
    }
    let steps = [wider, by_idea, closer, who_uses, deeper];
    // Each step looks at what the ones before it brought, so it is only worked out when they have nothing left.
    fresh(first_look(question, evidence, &[])).or_else(|| {
        let hits = rank::rank(question, evidence);
        steps.iter().find_map(|step| fresh(step(question, evidence, &hits)))
    })
}

/// Definitions named so, files named so, quoted texts as they are.
fn first_look(question: &Question, _: &Evidence<'_>, _: &[Hit<'_>]) -> Step {
    let lead: Vec<&Term> = lead(question).collect();
    let mut calls: Vec<_> = question.quotes.iter().map(|quote| grep(&regex::escape(quote))).collect();
    calls.extend(question.paths.iter().take(2).map(|path| glob(&path_pattern(path))));
    calls.extend(
        lead.iter().map(|term| grep(&said(&format!("definition of {}", term.text), &defines(&name_pattern(term))))),
    );
    calls.extend(question.pairs.first().map(|pair| grep(&pair_pattern(pair))));
    calls.extend(lead.iter().take(2).map(|term| glob(&file_pattern(term))));
    let why = format!(
        "Looking for {}: definitions and files named so first, because they say more than uses.",
        question.spoken()
    );
    Step { why, calls }
}

/// The words that searches are made for; faint ones only help to rank.
fn lead(question: &Question) -> impl Iterator<Item = &Term> {
    let strong = question.terms.iter().filter(|term| term.weight >= LEAD).count();
    // One real word is little to go by; then the fainter ones are searched for too.
    question.terms.iter().take(if strong > 1 { strong.min(5) } else { strong + 2 })
}

/// Any mention in any case, when no definition fits well.
fn wider(question: &Question, _: &Evidence<'_>, hits: &[Hit<'_>]) -> Step {
    if hits.first().is_some_and(|hit| hit.is_strong(question)) && question.shelf == Shelf::Source {
        return Step { why: String::new(), calls: Vec::new() };
    }
    let mut calls: Vec<_> = lead(question).take(3).map(|term| grep(&name_pattern(term))).collect();
    calls.extend(question.quotes.iter().filter_map(|quote| looser(quote)).map(|pattern| grep(&pattern)));
    calls.extend(question.pairs.iter().skip(1).map(|pair| grep(&pair_pattern(pair))));
    calls.extend(lead(question).skip(2).take(2).map(|term| glob(&file_pattern(term))));
    match question.shelf {
        Shelf::Source => {}
        Shelf::Tests => calls.extend(TEST_FILES.iter().map(|pattern| glob(pattern))),
        Shelf::Documents => calls.extend(["**/README*", "**/*.md"].map(glob)),
    }
    Step {
        why: format!(
            "No definition fits all of {} yet. Searching every mention, in any form and case.",
            question.spoken()
        ),
        calls,
    }
}

pub(super) const TEST_FILES: &[&str] = &["**/tests/**", "**/*_test.*", "**/test_*", "**/*.{test,spec}.*"];

/// Other words for the same, and shorter beginnings, when nothing of the kind was found.
fn by_idea(question: &Question, _: &Evidence<'_>, hits: &[Hit<'_>]) -> Step {
    let mut calls = Vec::new();
    if hits.first().is_none_or(|hit| hit.score < GOOD_ENOUGH) {
        for part in lead(question).flat_map(|term| &term.parts).take(4) {
            let others: Vec<String> =
                words::synonyms(&part.stem).map(|word| words::pattern(&Part::new(word))).collect();
            if !others.is_empty() {
                let pattern = defines(&format!("(?:{})", others.join("|")));
                calls.push(grep(&said(&format!("definition of what is like {}", part.word), &pattern)));
            }
            if part.stem.chars().count() >= 6 {
                calls.push(grep(&format!("(?i){}", regex::escape(text::prefix(&part.stem, part.stem.len() * 2 / 3)))));
            }
            calls.push(glob(&format!("**/*{}*/**", either_case(&words::needle(part)))));
        }
    }
    Step { why: "Little is called so. Trying other words for the same idea, and their beginnings.".to_owned(), calls }
}

/// Round the best lines, with the comments above them.
fn closer(question: &Question, evidence: &Evidence<'_>, hits: &[Hit<'_>]) -> Step {
    let most = if question.aim == Aim::Explain { 3 } else { 2 };
    let mut calls = Vec::new();
    let mut files: Vec<&str> = Vec::new();
    let by_path = rank::rank_paths(question, evidence);
    let best = hits.first().map_or(0.0, |hit| hit.score);
    for (path, score) in by_path.iter().take(2) {
        if (*score > best || question.paths.iter().any(|asked| path.ends_with(asked.as_str()))) && !files.contains(path)
        {
            files.push(path);
            calls.push(read(path, 1, 200));
        }
    }
    for hit in hits.iter().filter(|hit| hit.class != FileClass::Foreign) {
        if files.len() >= most {
            break;
        }
        if !files.contains(&hit.path) && hit.score > best * 0.4 {
            files.push(hit.path);
            calls.push(match question.aim {
                // To explain, the comments of the whole file help.
                Aim::Explain | Aim::List if hit.line <= 350 => read(hit.path, 1, 400),
                Aim::Explain | Aim::List => read(hit.path, hit.line - 60, 200),
                Aim::Place | Aim::Uses => read(hit.path, hit.line.saturating_sub(15).max(1), 40),
            });
        }
    }
    let read = evidence.read_files();
    let fresh = files.iter().any(|file| !read.contains(file));
    // What a reading brought may change the order a little; two rounds of it are enough.
    if !fresh || read.len() >= most + 2 {
        calls.clear();
    }
    let why = match hits.first() {
        Some(hit) => {
            format!("Best so far: {}:{} `{}`. Reading round it.", hit.path, hit.line, text::one_line(hit.text, 90))
        }
        None => "Reading the files whose names fit.".to_owned(),
    };
    Step { why, calls }
}

/// Who uses what was found.
fn who_uses(question: &Question, _: &Evidence<'_>, hits: &[Hit<'_>]) -> Step {
    let names = hits.iter().filter(|hit| hit.score >= GOOD_ENOUGH).filter_map(named).take(match question.aim {
        Aim::Place | Aim::List => 1,
        Aim::Uses | Aim::Explain => 2,
    });
    let names: Vec<&str> = names.collect();
    let calls = names.iter().map(|name| grep(&uses(name))).collect();
    Step { why: format!("Looking who uses `{}`.", names.first().unwrap_or(&"it")), calls }
}

/// The name of a hit that code can use.
pub(super) fn named<'a>(hit: &Hit<'a>) -> Option<&'a str> {
    let found = hit.definition?;
    let callable = matches!(found.kind, Kind::Function | Kind::Type | Kind::Constant);
    (callable && found.name.len() > 2 && found.name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        .then_some(found.name)
}

/// Every use of a name as a whole word.
pub(super) fn uses(name: &str) -> String {
    format!(r"\b{}\b", regex::escape(name))
}

/// To explain: the head of the best file, where it says what it is, and how it goes on below.
fn deeper(question: &Question, evidence: &Evidence<'_>, hits: &[Hit<'_>]) -> Step {
    let mut calls = Vec::new();
    if let (Aim::Explain | Aim::List, Some(hit)) =
        (question.aim, hits.iter().find(|hit| hit.class == FileClass::Source))
    {
        let lines = evidence.files.get(hit.path);
        if lines.is_some_and(|lines| !lines.contains_key(&1)) {
            calls.push(read(hit.path, 1, 60));
        }
        let pattern = r"^\s*(?:pub\b.*\b(?:fn|struct|enum|trait|type|const)\b|(?:async )?def |class |func |type \w|(?:export )?(?:async )?(?:function|class|interface|const) )";
        calls.push(grep_in(&said("every definition", pattern), hit.path));
    }
    Step { why: "Reading how the best file is built.".to_owned(), calls }
}

pub(super) fn grep(pattern: &str) -> (&'static str, Map<String, Value>) {
    ("grep", arguments(json!({ "pattern": pattern })))
}

fn grep_in(pattern: &str, path: &str) -> (&'static str, Map<String, Value>) {
    ("grep", arguments(json!({ "pattern": pattern, "path": path })))
}

pub(super) fn glob(pattern: &str) -> (&'static str, Map<String, Value>) {
    ("glob", arguments(json!({ "pattern": pattern })))
}

pub(super) fn read(path: &str, offset: usize, limit: usize) -> (&'static str, Map<String, Value>) {
    ("read", arguments(json!({ "path": path, "offset": offset, "limit": limit })))
}

fn arguments(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Finds the term in any convention: `retry_delay`, `retryDelay`, `retry-delay`.
fn name_pattern(term: &Term) -> String {
    match term.parts.as_slice() {
        [one] => words::pattern(one),
        parts => format!(
            "(?i:{})",
            parts.iter().map(|part| regex::escape(&words::needle(part))).collect::<Vec<_>>().join(r"\w{0,4}[_\- ]?")
        ),
    }
}

fn pair_pattern((a, b): &(Part, Part)) -> String {
    let (a, b) = (regex::escape(&words::needle(a)), regex::escape(&words::needle(b)));
    said(&format!("{a} with {b}"), &format!(r"(?i:{a}\w{{0,4}}[_\- ]?{b}|{b}\w{{0,4}}[_\- ]?{a})"))
}

/// A pattern that begins with what it is for, as a comment: people watch the searches in a window, where the rest of a
/// long one is cut.
fn said(words: &str, pattern: &str) -> String {
    let words: String = words.chars().filter(|c| c.is_alphanumeric() || " _-.".contains(*c)).collect();
    format!("(?x:#{words}\n){pattern}")
}

/// A line that defines a name with this in it, in any of the languages known; `definition.rs` looks again.
fn defines(name: &str) -> String {
    const KEYWORDS: &str = "fn|struct|enum|union|trait|impl|mod|macro_rules|type|const|static|def|defp|defmodule|defmacro|class|\
        interface|function|func|fun|module|namespace|object|record|protocol|extension|message|service|rpc|table|view|procedure|\
        trigger|package|val|define";
    [
        format!(r#"^\s*(?:[\w@"]+(?:\([^)]*\))?\s+){{0,4}}#?(?:{KEYWORDS})\b!?[^=({{;]*?{name}"#),
        format!(r"^func\s*\([^)]*\)\s*\w*{name}"),
        format!(r"^\s*(?:public|private|protected|internal|static|override|final|export|abstract|virtual|async|let|var)\b[^=;(]*?{name}\w*\s*[(=<:]"),
        format!(r"^[A-Za-z_][\w\s*&:<>,.\[\]-]*?{name}[\w-]*\s*[(=:]"),
        format!(r"^{name}[\w-]*\s*[(=:]"),
        format!(r"^\s+[*#]?\w*{name}\w*\s*(?:\([^;]*\{{\s*$|:)"),
        format!(r"(?i:^\s*create\s.*){name}"),
        format!(r"^#{{1,6}}\s.*{name}"),
    ]
    .join("|")
}

/// The start of a message whose rest may be filled in at run time.
fn looser(quote: &str) -> Option<String> {
    let words: Vec<&str> = quote.split_whitespace().filter(|word| word.chars().all(char::is_alphanumeric)).collect();
    (words.len() >= 2).then(|| {
        format!("(?i){}", words.iter().take(4).map(|word| regex::escape(word)).collect::<Vec<_>>().join(r"\W+"))
    })
}

fn file_pattern(term: &Term) -> String {
    let stems: Vec<String> = term.parts.iter().map(|part| either_case(&words::needle(part))).collect();
    format!("**/*{}*", stems.join("*"))
}

fn path_pattern(path: &str) -> String {
    let plain: String = path.chars().map(|c| if "*?[]{}!".contains(c) { '?' } else { c }).collect();
    let name = plain.rsplit('/').next().unwrap_or_default();
    if name.contains('.') { format!("**/{plain}") } else { format!("**/{plain}/**") }
}

/// Globs know no case folding: `[aA]gent`.
fn either_case(stem: &str) -> String {
    let mut chars = stem.chars();
    match chars.next() {
        Some(first) if first.is_ascii_alphabetic() => {
            format!("[{first}{}]{}", first.to_ascii_uppercase(), chars.as_str())
        }
        _ => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_says_what_it_is_for_matches_the_same() {
        let pattern = said("definition of a\nb)#(", "^fn x");
        assert_eq!(pattern, "(?x:#definition of ab\n)^fn x");
        let pattern = regex::Regex::new(&pattern).unwrap();
        assert!(pattern.is_match("fn x") && !pattern.is_match(" fn x"));
    }

    #[test]
    fn the_pattern_of_definitions_matches_definitions_and_not_calls() {
        let pattern = regex::Regex::new(&defines(&words::pattern(&Part::new("agent")))).unwrap();
        for line in [
            "async def agent(ctx, prompts):",
            "pub(crate) async fn run_agent(x: u8) {",
            "func (s *Server) HandleAgent(w io.Writer) {",
            "export const useAgent = () => {",
            "  private agentOf(x: number): Agent {",
            "AGENT_LIMIT = 3",
            "agent() {",
            "agent: build",
            "create table if not exists agents (",
            "## The agent tool",
            "static int agent_main(int argc)",
        ] {
            assert!(pattern.is_match(line), "{line}");
        }
        for line in ["    result = await agent(ctx)", "    let x = agent(1);", "// an agent is here"] {
            assert!(!pattern.is_match(line), "{line}");
        }
    }
}
