//! What is asked: the words sought, how much each counts, and what kind of answer fits.
//!
//! The newest message with words of its own leads; earlier ones stay as context. Deliberately absent: any look at the
//! repository.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use super::definition::Kind;
use super::words::{self, Part};
use crate::model::message::{Message, UserMessage};
use crate::text;

/// Words sought in one question; more would search for everything and find nothing.
const MOST_TERMS: usize = 6;
/// From this weight on a word is searched for; fainter ones only help to rank.
pub(super) const LEAD: f64 = 0.55;
/// Bytes of a message that are read at its start and at its end; a paste of megabytes is not searched word by word.
const HEAD_BYTES: usize = 12_000;
const TAIL_BYTES: usize = 3_000;

/// A word or identifier sought.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Term {
    /// As the asker wrote it.
    pub(super) text: String,
    pub(super) parts: Vec<Part>,
    /// How much it counts before its rarity is known.
    pub(super) weight: f64,
    /// Written as code: the whole name is meant.
    pub(super) exact: bool,
}

impl Term {
    fn new(text: &str, weight: f64) -> Self {
        let exact = words::looks_like_code(text);
        // A word with two humps is one name, a plain word is one part.
        Self { text: text.to_owned(), parts: words::parts(text), weight, exact }
    }

    /// Names a sort of thing (`tool`, `command`): rather the folder than the name.
    pub(super) fn is_category(&self) -> bool {
        self.parts.len() == 1 && CATEGORIES.split_whitespace().any(|category| category == self.parts[0].stem)
    }

    /// How well a name fits: 1 when it holds the whole term.
    pub(super) fn likeness(&self, name: &[Part]) -> f64 {
        let best = |part: &Part| name.iter().map(|other| part.likeness(other)).fold(0.0, f64::max);
        let sum: f64 = self.parts.iter().map(best).sum();
        let share = sum / self.parts.len().max(1) as f64;
        // Half of an identifier is another identifier.
        if self.parts.len() > 1 { share * share } else { share }
    }
}

/// Stems of words that name a sort of thing.
const CATEGORIES: &str = "tool command verb endpoint handl handler page step rule plugin provid modul skill persona screen \
    component hook job task event option flag servic controll controller middlewar rout util script stag view adapt driver";

/// What kind of answer fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// Where is it?
    Place,
    /// Who uses it?
    Uses,
    /// How does it work, what is it?
    Explain,
    /// Which are there?
    List,
}

/// Which files the answer should come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shelf {
    Source,
    Tests,
    Documents,
}

/// A question, ready to be searched for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    /// In the order of weight; empty when nothing can be searched for.
    pub(super) terms: Vec<Term>,
    /// From earlier messages; they only break ties.
    pub(super) context: Vec<Term>,
    /// Neighbours in the question, for names like `retry_delay`.
    pub(super) pairs: Vec<(Part, Part)>,
    pub(super) kinds: Vec<Kind>,
    /// Texts in quotes, to be found as they are.
    pub(super) quotes: Vec<String>,
    /// Paths named in the question.
    pub(super) paths: Vec<String>,
    pub(super) aim: Aim,
    pub(super) shelf: Shelf,
    /// Asked to end the search with what there is.
    pub(super) hurried: bool,
}

impl Question {
    /// The question that the conversation has come to, and where its last message stands.
    pub(super) fn of(messages: &[Message]) -> (Self, usize) {
        let mut users: Vec<(usize, &UserMessage)> = messages.iter().enumerate().filter_map(user).collect();
        let hurried = users.last().is_some_and(|(_, message)| is_hurry(&message.text));
        // What the machinery says of the work is no question about the repository.
        let asks = |message: &UserMessage| !matches!(message.by.as_str(), "supervisor" | "decode");
        if users.iter().any(|(_, message)| asks(message)) {
            users.retain(|(_, message)| asks(message));
        }
        let newest = users.last().map_or(0, |(index, _)| *index);
        let mut asked: Vec<Self> = users.iter().map(|(_, message)| Self::from_text(&message.text)).collect();
        let last = asked.last().cloned().unwrap_or_else(|| Self::from_text(""));
        let names = |at: &usize| asked[*at].is_searchable() && !is_aside(&users[*at].1.text);
        let lead = (0..asked.len()).rev().find(names).unwrap_or(0);
        let mut question = if asked.is_empty() { last.clone() } else { asked.swap_remove(lead) };
        question.context = asked.into_iter().take(lead).flat_map(|earlier| earlier.terms).take(MOST_TERMS).collect();
        if lead + 1 < users.len() {
            let aside = users.last().is_some_and(|(_, message)| is_aside(&message.text));
            // "And the tests?" asks the same of another shelf, "leave tests out" of the usual one.
            question.aim = if last.aim == Aim::Place { question.aim } else { last.aim };
            question.shelf = match last.shelf {
                Shelf::Source => question.shelf,
                Shelf::Tests | Shelf::Documents if aside => Shelf::Source,
                Shelf::Tests | Shelf::Documents => last.shelf,
            };
        }
        question.hurried = hurried;
        (question, newest)
    }

    fn is_searchable(&self) -> bool {
        !(self.terms.is_empty() && self.quotes.is_empty() && self.paths.is_empty())
    }

    /// Whether there is something to search for at all.
    pub(super) fn is_overview(&self) -> bool {
        !self.is_searchable()
    }

    fn from_text(whole: &str) -> Self {
        static WHOLE: LazyLock<Regex> = LazyLock::new(|| {
            let nouns = "repo|repository|project|code ?base|crate|program|app|application|library|package|code";
            Regex::new(&format!(r"(?i)\b(?:this|the whole|the entire)\s+(?:{nouns})\b")).expect("a constant")
        });
        let whole = text::without_controls(whole);
        let bounded = match whole.len() {
            0..=16_000 => whole,
            _ => format!("{}\n{}", text::prefix(&whole, HEAD_BYTES), text::suffix(&whole, TAIL_BYTES)),
        };
        let bounded = WHOLE.replace_all(&bounded, " ");
        let lower = bounded.to_lowercase();
        let mut reading = Reading::default();
        for sentence in sentences(&bounded).filter(|sentence| !is_housekeeping(sentence)) {
            reading.read(sentence);
        }
        let terms = reading.terms();
        // "Where are cookies parsed?" asks for what does it.
        if reading.kinds.is_empty() && reading.last_word.ends_with("ed") {
            reading.kinds.push(Kind::Function);
        }
        if reading.kinds.is_empty() && asks_a_value(&lower) {
            reading.kinds.push(Kind::Constant);
        }
        let pairs = reading.pairs.iter().filter(|(a, b)| terms.iter().any(|t| t.parts[0] == *a || t.parts[0] == *b));
        Self {
            pairs: pairs.take(3).cloned().collect(),
            context: Vec::new(),
            kinds: reading.kinds,
            quotes: reading.quotes.into_iter().take(3).collect(),
            paths: reading.paths.into_iter().take(4).collect(),
            aim: aim(&lower),
            shelf: shelf(&lower),
            hurried: false,
            terms,
        }
    }

    /// The words as a person would say them back.
    pub(super) fn spoken(&self) -> String {
        let quotes = self.quotes.iter().map(|quote| format!("\"{}\"", text::one_line(quote, 60)));
        let words = self.terms.iter().map(|term| format!("`{}`", text::one_line(&term.text, 40)));
        let paths = self.paths.iter().map(|path| format!("`{}`", text::one_line(path, 60)));
        quotes.chain(paths).chain(words).collect::<Vec<_>>().join(", ")
    }
}

fn user((index, message): (usize, &Message)) -> Option<(usize, &UserMessage)> {
    match message {
        Message::User(message) => Some((index, message)),
        Message::Assistant(_) | Message::Tool(_) => None,
    }
}

/// What is gathered sentence by sentence.
#[derive(Default)]
struct Reading {
    /// By lower-case text: the term, how often, where first.
    found: HashMap<String, (Term, usize, usize)>,
    faint: Vec<Term>,
    kinds: Vec<Kind>,
    kind_words: Vec<Term>,
    quotes: Vec<String>,
    paths: Vec<String>,
    pairs: Vec<(Part, Part)>,
    /// The last word sought that was no instruction.
    last_word: String,
}

impl Reading {
    fn read(&mut self, sentence: &str) {
        static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(
                r#"(?x) `(?P<tick>[^`\n]{1,200})` | ["“«「](?P<quote>[^"”»」\n]{3,200})["”»」] | (?:^|[\s(])'(?P<single>[^'\n]{3,200})'
                | (?P<path>[\w.@-]*(?:/[\w.@-]+)+/?|\b[\w-]+\.(?:rs|py|ts|tsx|js|jsx|go|java|kt|rb|c|h|cpp|hpp|cs|php|sh|sql|md|toml|yaml|yml|json|swift|lua|html|css)\b)
                | (?P<flag>--[a-z][\w-]+) | (?P<word>\w+(?:(?:::|\.|-)\w+)*) "#,
            )
            .expect("a constant, compiled by a test")
        });
        let instruction = is_instruction(sentence);
        let mut before: Option<Part> = None;
        for (place, token) in TOKEN.captures_iter(sentence).enumerate() {
            let taken = |name: &str| token.name(name).map(|found| found.as_str());
            if let Some(quoted) = taken("tick").or(taken("quote")).or(taken("single")) {
                self.quoted(quoted);
                before = None;
            } else if let Some(path) = taken("path") {
                self.path(path);
                before = None;
            } else if let Some(flag) = taken("flag") {
                self.add(Term { weight: 2.0, ..Term::new(flag.trim_start_matches('-'), 2.0) });
            } else if let Some(word) = taken("word") {
                before = self.word(word, place, instruction, before.as_ref());
            }
        }
    }

    fn quoted(&mut self, quoted: &str) {
        let quoted = quoted.trim().trim_end_matches("()");
        let is_name = quoted.chars().all(|c| c.is_alphanumeric() || "_:.-!$".contains(c));
        if is_name && !quoted.is_empty() && !words::parts(quoted).is_empty() {
            self.name(quoted, 3.0);
        } else if quoted.contains('/') && !quoted.contains(' ') {
            self.path(quoted);
        } else if quoted.len() >= 3 {
            self.quotes.push(quoted.to_owned());
        }
    }

    fn path(&mut self, path: &str) {
        let path = path.trim_start_matches("./").trim_end_matches('/').trim_end_matches('.');
        // `and/or` is no path, `read/write` hardly.
        let known = path.contains('.') || path.matches('/').count() > 1 || path.contains('_') || is_folder(path);
        if known && !self.paths.iter().any(|other| other == path) {
            self.paths.push(path.to_owned());
        } else {
            for word in path.split('/').filter(|word| !words::is_stop_word(&word.to_lowercase())) {
                self.add(Term::new(word, 0.8));
            }
        }
    }

    /// A dotted or `::` name: the last part is meant, the others say where.
    fn name(&mut self, name: &str, weight: f64) {
        let mut parts: Vec<&str> = name.split(['.', ':']).filter(|part| !part.is_empty()).collect();
        let Some(last) = parts.pop() else { return };
        self.add(Term { exact: true, ..Term::new(last, weight) });
        for part in parts.into_iter().filter(|part| !["self", "crate", "this", "super"].contains(part)) {
            self.add(Term::new(part, weight / 4.0));
        }
    }

    /// Takes one word; returns it when the next may form a pair with it.
    fn word(&mut self, word: &str, place: usize, instruction: bool, before: Option<&Part>) -> Option<Part> {
        let lower = word.to_lowercase();
        if words::looks_like_code(word) || (word.contains('.') && !word.contains(' ')) {
            self.name(word, 3.0);
            return None;
        }
        if let Some(kind) = kind(&lower) {
            if !instruction && !self.kinds.contains(&kind) {
                self.kinds.push(kind);
            }
            self.kind_words.push(Term::new(&lower, 0.5));
            return None;
        }
        if words::is_stop_word(&lower) || lower.chars().count() < 2 || lower.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
        if words::is_faint(&lower) || shelf(&lower) != Shelf::Source {
            if !instruction && shelf(&lower) == Shelf::Source {
                self.faint.push(Term::new(word, 0.3));
            }
            return None;
        }
        let named = place > 0 && word.chars().next().is_some_and(char::is_uppercase);
        let weight = if instruction { 0.35 } else { 1.0 } + if named { 0.4 } else { 0.0 };
        self.add(Term { exact: false, ..Term::new(word, weight) });
        if !instruction {
            self.last_word = lower;
        }
        let part = words::parts(word).pop()?;
        if let Some(before) = before.filter(|_| !instruction) {
            self.pairs.push((before.clone(), part.clone()));
        }
        Some(part)
    }

    fn add(&mut self, term: Term) {
        if term.parts.is_empty() {
            return;
        }
        let order = self.found.len();
        // Forms of a word are one term, an identifier only its own.
        let stems = term.parts.iter().map(|part| part.stem.as_str());
        let key = if term.exact { term.text.clone() } else { stems.collect() };
        let weight = term.weight;
        let entry = self.found.entry(key).or_insert((term, 0, order));
        entry.0.weight = entry.0.weight.max(weight);
        entry.1 += 1;
    }

    fn terms(&mut self) -> Vec<Term> {
        let mut found: Vec<(Term, usize, usize)> = std::mem::take(&mut self.found).into_values().collect();
        for (term, times, order) in &mut found {
            // What is sought mostly stands before what is said about it.
            term.weight *= 1.0 - 0.05 * (*order).min(5) as f64;
            term.weight += 0.15 * (*times).min(4).saturating_sub(1) as f64;
        }
        found.sort_by(|a, b| b.0.weight.total_cmp(&a.0.weight).then(a.2.cmp(&b.2)));
        let mut terms: Vec<Term> = found.into_iter().map(|(term, ..)| term).collect();
        // Half of the words of an instruction are about the answer; beside real ones they only mislead.
        if terms.iter().any(|term| term.weight >= 0.7) {
            terms.retain(|term| term.weight >= LEAD);
        }
        let enough = !terms.is_empty() || !self.quotes.is_empty() || !self.paths.is_empty();
        let faint = std::mem::take(&mut self.faint);
        match (enough, faint.is_empty()) {
            (true, _) => terms.extend(faint),
            (false, false) => terms = faint.into_iter().map(|term| Term { weight: 1.0, ..term }).collect(),
            (false, true) => {}
        }
        let mut seen = Vec::new();
        terms.retain(|term| {
            let new = !seen.contains(&term.parts);
            seen.push(term.parts.clone());
            new
        });
        terms.truncate(MOST_TERMS);
        terms
    }
}

fn is_folder(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    [
        "src", "lib", "tests", "test", "docs", "app", "apps", "packages", "cmd", "internal", "pkg", "crates", "bin",
        "scripts",
    ]
    .contains(&first)
}

/// Cuts where a sentence or a line ends.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[.?!;]+(?:\s|$)|\n|[。？！]").expect("a constant"));
    END.split(text).map(str::trim).filter(|sentence| !sentence.is_empty())
}

/// A sentence that says how to answer.
fn is_instruction(sentence: &str) -> bool {
    const VERBS: &[&str] = &[
        "report",
        "return",
        "reply",
        "respond",
        "cite",
        "give",
        "include",
        "answer",
        "keep",
        "format",
        "output",
        "do",
        "don't",
        "dont",
        "be",
        "quote",
        "write",
        "please",
        "you",
        "your",
        "use",
        "important",
        "note",
        "also",
        "end",
        "then",
    ];
    let mut first = sentence.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
    first.next().is_some_and(|word| VERBS.contains(&word.to_lowercase().as_str())) && !asks(&sentence.to_lowercase())
}

/// A sentence of whoever runs the agent, about the work and not about the repository.
fn is_housekeeping(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let about_report =
        ["previous report", "last report", "your report", "final report", "report now", "no usable report"];
    let about_work = ["wrap up", "no more tool", "cited no code", "use your tools"];
    about_report.iter().chain(&about_work).any(|phrase| lower.contains(phrase)) && !asks(&lower)
}

/// Whether a sentence asks something, whatever else it says.
fn asks(lower: &str) -> bool {
    lower.split_whitespace().any(|word| ["where", "how", "which", "find", "who", "what"].contains(&word))
}

/// A short message that says what to leave out or how to go on, and names nothing to look for.
fn is_aside(text: &str) -> bool {
    const VERBS: &[&str] =
        &["leave", "skip", "ignore", "exclude", "omit", "without", "no", "not", "never", "stop", "avoid", "dont", "do"];
    // An apostrophe is no hump of a name.
    let text = text.replace(['\'', '’'], "");
    let lower = text.trim().to_lowercase();
    let mut said = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !matches!(*word, "" | "please" | "just"));
    let first = said.next();
    let names = text.split_whitespace().any(words::looks_like_code) || text.contains(['`', '"', '/']);
    let short = lower.split_whitespace().count() <= 8;
    short && !names && !asks(&lower) && first.is_some_and(|word| VERBS.contains(&word))
}

/// A message that asks to end now.
fn is_hurry(text: &str) -> bool {
    let lower = text.to_lowercase();
    let short = text.len() < 600;
    short
        && !asks(&lower)
        && ["wrap up", "report now", "final report", "stop searching", "no more tool", "finish now"]
            .iter()
            .any(|p| lower.contains(p))
}

/// The kind that a word asks for.
fn kind(word: &str) -> Option<Kind> {
    Some(match word {
        "function" | "functions" | "method" | "methods" | "fn" | "func" | "procedure" | "macro" | "funktion"
        | "fonction" | "función" | "funcion" | "funzione" | "função" | "funcao" | "функция" | "函数" | "関数" => {
            Kind::Function
        }
        "struct" | "structs" | "class" | "classes" | "type" | "types" | "enum" | "enums" | "trait" | "traits"
        | "interface" | "interfaces" | "table" | "klasse" | "classe" | "clase" | "класс" => Kind::Type,
        "const" | "constant" | "constants" | "variable" | "variables" | "field" | "konstante" => Kind::Constant,
        "module" | "modules" | "package" | "namespace" => Kind::Module,
        _ => return None,
    })
}

/// Whether a number or setting is asked for.
fn asks_a_value(lower: &str) -> bool {
    ["how many", "how much", "how long", "how often", "value of", "set to", "the maximum", "the minimum"]
        .iter()
        .any(|p| lower.contains(p))
}

fn aim(lower: &str) -> Aim {
    static USES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"\b(?:who|what|which|where)\b[^.?!]*\b(?:calls?|called|uses?|used|usages?|imports?|imported|references?|referenced|consumes?)\b|\b(?:callers|usages|uses|references|call sites)\s+of\b|\bcallers\b",
        )
        .expect("a constant")
    });
    static OTHER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"\b(?P<place>where|find|locate|wo|où|dónde|donde|dove|onde|где)\b|\b(?P<list>list|which files|what files|enumerate|all the|what are the)\b|\b(?P<explain>how|explain|describe|what does|what do|what is|why|walk|summari[sz]e|investigate|understand|trace|explore|study|review|wie|comment|cómo|como|как)\b",
        )
        .expect("a constant")
    });
    if USES.is_match(lower) {
        return Aim::Uses;
    }
    match OTHER.captures(lower) {
        Some(found) if found.name("list").is_some() => Aim::List,
        Some(found) if found.name("explain").is_some() => Aim::Explain,
        _ => Aim::Place,
    }
}

fn shelf(lower: &str) -> Shelf {
    static TESTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:tests?|tested|testing|unit tests?|test coverage|tested by)\b").expect("a constant")
    });
    static DOCUMENTS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:docs?|documentation|documented|readme|changelog)\b").expect("a constant"));
    match (TESTS.is_match(lower), DOCUMENTS.is_match(lower)) {
        (true, _) => Shelf::Tests,
        (false, true) => Shelf::Documents,
        (false, false) => Shelf::Source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(texts: &[&str]) -> Question {
        let message = |text: &&str| Message::User(UserMessage { text: (*text).into(), by: "task".into() });
        Question::of(&texts.iter().map(message).collect::<Vec<_>>()).0
    }

    fn terms(text: &str) -> Vec<String> {
        asked(&[text]).terms.into_iter().map(|term| term.text).collect()
    }

    #[test]
    fn what_is_sought_is_kept_and_how_to_answer_is_not() {
        let question = asked(&["Where is the agent tool function? Report the path with file:line."]);
        let words: Vec<&str> = question.terms.iter().map(|term| term.text.as_str()).collect();
        assert_eq!((words, question.kinds, question.aim), (vec!["agent", "tool"], vec![Kind::Function], Aim::Place));
        assert_eq!(terms("How does `Limiter::acquire` wait?")[0], "acquire");
        assert_eq!(terms("Where is the report written?"), ["report", "written"]);
        assert_eq!(terms("What is MAX_RETRIES set to in src/net/http.rs?")[0], "MAX_RETRIES");
        assert_eq!(asked(&["What does src/net/http.rs do?"]).paths, ["src/net/http.rs"]);
        assert_eq!(asked(&["Who prints \"failed to open window\"?"]).quotes, ["failed to open window"]);
    }

    #[test]
    fn a_question_in_another_language_falls_back_on_what_can_be_found() {
        assert_eq!(terms("Где находится функция agent tool?"), ["agent", "tool"]);
        assert_eq!(terms("Wo ist die Funktion load_config definiert?"), ["load_config"]);
        assert_eq!(terms("Où est la fonction parse_header ?"), ["parse_header"]);
    }

    #[test]
    fn the_newest_words_lead_and_a_bare_hint_turns_the_old_question() {
        let steered = asked(&["Where is the limiter?", "Rather show me the scheduler"]);
        assert_eq!(steered.terms[0].text, "scheduler");
        assert_eq!(steered.context[0].text, "limiter");
        for aside in ["Leave tests out.", "Please skip the examples", "don't go too deep", "No vendored files!"] {
            let steered = asked(&["Where is the limiter?", aside]);
            assert_eq!((steered.terms[0].text.as_str(), steered.shelf), ("limiter", Shelf::Source), "{aside}");
        }
        assert_eq!(asked(&["Where is the limiter?", "Skip to `scheduler`"]).terms[0].text, "scheduler");
        let hinted = asked(&["Where is the limiter?", "tests?"]);
        assert_eq!((hinted.terms[0].text.as_str(), hinted.shelf), ("limiter", Shelf::Tests));
    }

    #[test]
    fn a_nudge_is_no_question_and_a_prompt_without_words_asks_for_an_overview() {
        let nudged =
            asked(&["Where is the limiter?\n\nIMPORTANT: your previous report was unusable: it had no evidence."]);
        assert_eq!(nudged.terms.iter().map(|term| term.text.as_str()).collect::<Vec<_>>(), ["limiter"]);
        assert!(
            asked(&["What is this?"]).is_overview() && asked(&[""]).is_overview() && asked(&["🙂 ?!"]).is_overview()
        );
        assert!(asked(&["Where is the limiter?", "Wrap up and report now."]).hurried);
    }

    #[test]
    fn a_paste_of_megabytes_is_bounded() {
        let huge = format!("Where is the limiter? {}", "lorem_ipsum_dolor sit amet\n".repeat(200_000));
        assert!(terms(&huge).len() <= MOST_TERMS);
    }
}
