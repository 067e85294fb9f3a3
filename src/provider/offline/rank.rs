//! Which seen lines answer best: definitions before uses, rare words before common, source before tests before
//! documents before what nobody writes by hand.
//!
//! Deliberately absent: what to look at next and how to say it.

use std::collections::HashMap;

use super::definition::{self, Definition, FileClass, Kind};
use super::evidence::{Evidence, Lines};
use super::question::{Aim, LEAD, Question, Shelf, Term};
use super::words::{self, Part};

/// A line with its worth as an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hit<'a> {
    pub(super) path: &'a str,
    pub(super) line: usize,
    pub(super) text: &'a str,
    pub(super) definition: Option<Definition<'a>>,
    pub(super) class: FileClass,
    pub(super) score: f64,
    /// Which terms of the question stand in the name or the line, as bits.
    pub(super) terms: u32,
}

impl Hit<'_> {
    /// Whether the name is all that was asked for, so that looking further would only confirm it.
    pub(super) fn is_strong(&self, question: &Question) -> bool {
        let lead = question.terms.iter().take_while(|term| term.weight >= LEAD).count();
        let all = question.terms.len().min(lead.max(1));
        let asked = (1_u32 << all) - 1;
        match self.definition {
            Some(found) if found.kind != Kind::File => self.terms & asked == asked && self.score >= 1.0,
            Some(_) => false,
            None => {
                !question.quotes.is_empty() && question.quotes.iter().any(|quote| self.text.contains(quote.as_str()))
            }
        }
    }
}

/// A term of the question with the weight that its rarity leaves it.
struct Weighed<'q> {
    term: &'q Term,
    needles: Vec<String>,
    weight: f64,
    /// Stands before the noun it belongs to (`agent` in `agent tool`): rather the name than the other.
    leads: bool,
}

/// What a file's path says about every line in it.
struct Place {
    class: FileClass,
    folders: Vec<Part>,
    stem: Vec<Part>,
    named: bool,
}

/// All seen lines that say something about the question, the best first.
pub(super) fn rank<'a>(question: &Question, evidence: &Evidence<'a>) -> Vec<Hit<'a>> {
    let weighed = weigh(question, evidence);
    let mut hits: Vec<Hit<'a>> = Vec::new();
    for (path, lines) in &evidence.files {
        let place = place(path, question);
        let start = hits.len();
        hits.extend(lines.iter().filter_map(|(line, text)| score_line(question, &weighed, &place, path, *line, text)));
        hits.extend(score_file(question, &weighed, &place, path, lines));
        // A file that speaks of all the words is more likely the place than one that has a single word of them.
        let together = hits[start..].iter().fold(0, |bits, hit| bits | hit.terms);
        let factor = 0.85 + 0.3 * share(&weighed, together);
        for hit in &mut hits[start..] {
            hit.score *= factor * (0.75 + 0.5 * share(&weighed, hit.terms));
        }
    }
    hits.sort_by(|a, b| {
        let by_score = b.score.total_cmp(&a.score);
        by_score
            .then(a.class.cmp(&b.class))
            .then(a.path.len().cmp(&b.path.len()))
            .then(a.path.cmp(b.path))
            .then(a.line.cmp(&b.line))
    });
    hits
}

fn weigh<'q>(question: &'q Question, evidence: &Evidence<'_>) -> Vec<Weighed<'q>> {
    let context = question.context.iter().map(|term| (term, 0.15));
    let all = question.terms.iter().map(|term| (term, 1.0)).chain(context).take(32);
    all.map(|(term, share)| {
        let needles: Vec<String> = term.parts.iter().map(words::needle).collect();
        let holding = evidence.files.values().filter(|lines| lines.values().any(|line| holds(line, &needles))).count();
        let rarity = 1.0 / (1.0 + 0.2 * (1.0 + holding as f64).ln());
        let leads = question.pairs.iter().any(|(first, _)| term.parts.first() == Some(first));
        Weighed { term, needles, weight: term.weight * share * rarity, leads }
    })
    .collect()
}

/// Whether the line can hold the term at all; most lines cannot, and this is cheap.
fn holds(line: &str, needles: &[String]) -> bool {
    let lower = line.to_lowercase();
    needles.iter().any(|needle| lower.contains(needle.as_str()))
}

fn share(weighed: &[Weighed<'_>], bits: u32) -> f64 {
    let all: f64 = weighed.iter().map(|one| one.weight).sum();
    let held: f64 = weighed.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, one)| one.weight).sum();
    if all > 0.0 { held / all } else { 0.0 }
}

fn place(path: &str, question: &Question) -> Place {
    let (folders, stem) = definition::path_parts(path);
    let named = question
        .paths
        .iter()
        .any(|asked| path == asked || path.ends_with(&format!("/{asked}")) || path.starts_with(&format!("{asked}/")));
    Place { class: FileClass::of(path), folders, stem, named }
}

fn class_factor(class: FileClass, shelf: Shelf) -> f64 {
    match (class, shelf) {
        (FileClass::Test, Shelf::Tests) | (FileClass::Document, Shelf::Documents) => 1.8,
        (FileClass::Source, _) => 1.0,
        (FileClass::Config, _) => 0.8,
        (FileClass::Example, _) => 0.6,
        (FileClass::Test, _) => 0.5,
        (FileClass::Document, _) => 0.45,
        (FileClass::Foreign, _) => 0.2,
    }
}

fn score_line<'a>(
    question: &Question,
    weighed: &[Weighed<'_>],
    place: &Place,
    path: &'a str,
    line: usize,
    text: &'a str,
) -> Option<Hit<'a>> {
    let quoted: f64 = question.quotes.iter().map(|quote| quote_worth(quote, text)).sum();
    if quoted == 0.0 && !place.named && !weighed.iter().any(|one| holds(text, &one.needles)) {
        return None;
    }
    let definition = definition::definition(path, text);
    let body = words::parts(crate::text::prefix(text, 600));
    let (mut score, terms) = match definition {
        Some(found) => score_name(question, weighed, place, found, &body),
        None => score_use(weighed, place, &body),
    };
    if let Some(found) = definition {
        score *= kind_factor(found.kind, question) * testlike_factor(path, text, question.shelf);
        score *= if definition::is_local(path, text, found.kind) { 0.4 } else { 1.0 };
    }
    score += quoted;
    score *= class_factor(place.class, question.shelf);
    score += if place.named { 0.3 } else { 0.0 };
    (score > 0.02).then_some(Hit { path, line, text, definition, class: place.class, score, terms })
}

/// A quoted text, whole or with some of its words filled in at run time.
fn quote_worth(quote: &str, text: &str) -> f64 {
    if text.contains(quote) {
        return 4.0;
    }
    let words: Vec<&str> = quote.split_whitespace().filter(|word| word.chars().all(char::is_alphanumeric)).collect();
    let lower = text.to_lowercase();
    let there = words.iter().filter(|word| lower.contains(&word.to_lowercase())).count() as f64;
    let share = there / words.len().max(1) as f64;
    if words.len() >= 2 && share >= 0.6 { 2.5 * share } else { 0.0 }
}

/// A definition: what its name holds, then what the path and the rest of the line add.
fn score_name(
    question: &Question,
    weighed: &[Weighed<'_>],
    place: &Place,
    found: Definition<'_>,
    body: &[Part],
) -> (f64, u32) {
    let name = words::parts(found.name);
    let (mut by_name, mut beside, mut bits) = (0.0, 0.0, 0);
    for (i, one) in weighed.iter().enumerate() {
        let inside = one.term.likeness(&name);
        let around = around(one.term, place).max(0.15 * one.term.likeness(body));
        if inside.max(around) > 0.1 {
            bits |= 1 << i;
        }
        let category = one.term.is_category();
        if inside > 0.3 {
            by_name += one.weight * inside * if category { 0.8 } else { 1.0 } * if one.leads { 1.15 } else { 1.0 };
            by_name += if one.term.exact { exactness(&one.term.text, found.name) * one.weight } else { 0.0 };
        } else {
            beside += one.weight * around * if category { 1.3 } else { 1.0 };
        }
        // The path also speaks for a name that already fits, a little.
        beside += one.weight * inside.min(1.0) * around * 0.2;
    }
    let fits = |part: &Part| {
        weighed.iter().take(question.terms.len()).any(|one| one.term.parts.iter().any(|p| p.likeness(part) > 0.3))
    };
    let precision = name.iter().filter(|part| fits(part)).count() as f64 / name.len().max(1) as f64;
    // What goes wrong with a thing is seldom the thing.
    let failure = name.last().is_some_and(|part| ["error", "exception"].contains(&part.word.as_str()) && !fits(part));
    by_name *= if failure { 0.6 } else { 1.0 };
    // A name that shares nothing with the question is worth no more than a use.
    let weight = if by_name > 0.0 { 1.0 } else { 0.3 };
    (by_name * (0.4 + 0.6 * precision) + beside * weight, bits)
}

fn exactness(asked: &str, name: &str) -> f64 {
    if asked == name {
        2.0
    } else if words::parts(asked) == words::parts(name) {
        1.2
    } else {
        0.0
    }
}

fn around(term: &Term, place: &Place) -> f64 {
    (0.5 * term.likeness(&place.stem)).max(0.4 * term.likeness(&place.folders))
}

fn score_use(weighed: &[Weighed<'_>], place: &Place, body: &[Part]) -> (f64, u32) {
    let (mut score, mut bits) = (0.0, 0);
    for (i, one) in weighed.iter().enumerate() {
        let inside = one.term.likeness(body);
        if inside > 0.3 {
            bits |= 1 << i;
            score += 0.25 * one.weight * inside;
        }
        score += 0.1 * one.weight * around(one.term, place);
    }
    (score, bits)
}

fn kind_factor(kind: Kind, question: &Question) -> f64 {
    let usual = match kind {
        // A type says more about how something works than each of its functions.
        Kind::Function if question.aim == Aim::Explain => 0.9,
        Kind::Function | Kind::Type => 1.0,
        Kind::Constant => 0.9,
        Kind::Module | Kind::Key => 0.6,
        Kind::Block => 0.65,
        Kind::Heading => 0.5,
        Kind::File => 0.7,
    };
    if question.kinds.is_empty() {
        return usual;
    }
    if question.kinds.contains(&kind) { 1.3 } else { usual * 0.7 }
}

fn testlike_factor(path: &str, text: &str, shelf: Shelf) -> f64 {
    match (is_testlike(path, text), shelf) {
        (true, Shelf::Tests) => 1.8,
        (true, Shelf::Source | Shelf::Documents) => 0.35,
        (false, _) => 1.0,
    }
}

/// Tests that stand inside the source of Rust: indented, no arguments, no result, a sentence for a name.
pub(super) fn is_testlike(path: &str, text: &str) -> bool {
    let bare = text.trim();
    let sentence = bare.matches('_').count() >= 3 && bare.ends_with("() {") && !bare.starts_with("pub");
    definition::extension(path) == "rs" && text.starts_with(' ') && sentence
}

/// The file itself, cited by its first line, when its name fits and that line was seen.
fn score_file<'a>(
    question: &Question,
    weighed: &[Weighed<'_>],
    place: &Place,
    path: &'a str,
    lines: &Lines<'a>,
) -> Option<Hit<'a>> {
    let text = lines.get(&1)?;
    let (score, terms) = score_path(question, weighed, place);
    let definition = Some(Definition { kind: Kind::File, name: definition::file_name(path) });
    (score > 0.02).then_some(Hit { path, line: 1, text, definition, class: place.class, score, terms })
}

fn score_path(question: &Question, weighed: &[Weighed<'_>], place: &Place) -> (f64, u32) {
    let (mut score, mut bits) = (0.0, 0);
    for (i, one) in weighed.iter().enumerate() {
        let likeness = (one.term.likeness(&place.stem)).max(0.5 * one.term.likeness(&place.folders));
        if likeness > 0.3 {
            bits |= 1 << i;
            score += one.weight * likeness;
        }
    }
    let fits = |part: &&Part| weighed.iter().any(|one| one.term.parts.iter().any(|p| p.likeness(part) > 0.3));
    let precision = place.stem.iter().filter(fits).count() as f64 / place.stem.len().max(1) as f64;
    score *= (0.4 + 0.6 * precision) * kind_factor(Kind::File, question) * class_factor(place.class, question.shelf);
    (score + if place.named { 3.0 } else { 0.0 }, bits)
}

/// Paths that fit by their name, the best first, with their worth.
pub(super) fn rank_paths<'a>(question: &Question, evidence: &Evidence<'a>) -> Vec<(&'a str, f64)> {
    let weighed = weigh(question, evidence);
    let known = evidence.paths.iter().chain(evidence.files.keys()).copied();
    let mut worth: HashMap<&str, f64> =
        known.map(|path| (path, score_path(question, &weighed, &place(path, question)).0)).collect();
    let mut ranked: Vec<(&str, f64)> = worth.drain().filter(|(_, score)| *score > 0.05).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.len().cmp(&b.0.len())).then(a.0.cmp(b.0)));
    ranked
}
