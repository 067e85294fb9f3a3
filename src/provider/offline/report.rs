//! The report: the finding first, then the evidence, then what was searched and what was not found.
//!
//! Every `path:line` in it was seen in a tool's answer, with that text. Deliberately absent: conclusions. A search can
//! show where something stands and what its comment says; what it means is for the reader.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::definition::{self, FileClass, Kind};
use super::evidence::Evidence;
use super::overview;
use super::plan::{self, GOOD_ENOUGH};
use super::question::{Aim, Question, Shelf};
use super::rank::{self, Hit};
use crate::text;

/// Longer reports are cut: the fold gives each child a share, and a reader little patience.
const MOST_BYTES: usize = 5_600;
/// What is said of itself, always.
const PLAINLY: &str = "This is a search by words and definitions (offline/explorer), not a language model: it shows where things \
    stand and what they say of themselves, and judges nothing.";

/// Lines that use a name, by file, source first.
type Uses<'a> = BTreeMap<(FileClass, &'a str), Vec<(usize, &'a str)>>;

/// The last message of the explorer.
pub(super) fn write(question: &Question, evidence: &Evidence<'_>, had_tools: bool) -> String {
    let hits = if question.is_overview() { Vec::new() } else { rank::rank(question, evidence) };
    let mut report = match hits.first() {
        Some(best) => found(question, evidence, &hits, best),
        None if question.is_overview() && !evidence.files.is_empty() => overview::report(evidence),
        None => nothing(question, evidence, had_tools),
    };
    let tail = format!("\n{}{PLAINLY}\n", trace(question, evidence, &hits));
    if report.len() + tail.len() > MOST_BYTES {
        let kept = text::prefix(&report, MOST_BYTES.saturating_sub(tail.len() + 60));
        report = format!(
            "{}\n(cut here; the rest of the evidence was weaker)\n",
            kept.rsplit_once('\n').map_or(kept, |(whole, _)| whole)
        );
    }
    report.push_str(&tail);
    report
}

fn found(question: &Question, evidence: &Evidence<'_>, hits: &[Hit<'_>], best: &Hit<'_>) -> String {
    let mut report = String::new();
    let uses = uses(evidence, best);
    if question.aim == Aim::Uses && !uses.is_empty() {
        used(&mut report, best, &uses);
    } else {
        headline(&mut report, question, evidence, best);
    }
    if question.aim == Aim::Explain || question.aim == Aim::List {
        structure(&mut report, question, evidence, best);
    }
    let others = others(question, hits, best, &uses);
    if !others.is_empty() {
        report.push_str("\nEvidence, the closest first:\n");
        for hit in others {
            let _ = writeln!(report, "- {}{}", cited(hit), kind_note(hit));
        }
    }
    if question.aim != Aim::Uses && !uses.is_empty() {
        let _ = writeln!(report, "\nUsed in {}:", text::count(uses.len(), "file", "files"));
        use_list(&mut report, &uses, 4, 2);
    }
    report
}

/// What it is, where, its line and what its comment says.
fn headline(report: &mut String, question: &Question, evidence: &Evidence<'_>, best: &Hit<'_>) {
    let place = format!("{}:{}", best.path, best.line);
    let sure = best.score >= GOOD_ENOUGH;
    let _ = match best.definition {
        Some(found) if found.kind == Kind::File => writeln!(report, "**The file `{}`**: {place}", found.name),
        Some(found) if sure => {
            writeln!(report, "**`{}`** ({}) is defined at {place}", shown(found.name), found.kind.noun())
        }
        Some(found) => {
            writeln!(report, "The closest I found is `{}` ({}) at {place}", shown(found.name), found.kind.noun())
        }
        None if sure => writeln!(report, "**Found** at {place}"),
        None => writeln!(report, "No definition fits; the closest mention is at {place}"),
    };
    let _ = writeln!(report, "\n    {}", text::one_line(best.text, 200));
    if let Some(comment) = comment(evidence, best) {
        let _ = writeln!(report, "\nIts comment says: \"{comment}\"");
    }
    if !sure {
        let _ = writeln!(report, "\nNothing matched {} well; take this as a hint.", question.spoken());
    }
}

fn used(report: &mut String, best: &Hit<'_>, uses: &Uses<'_>) {
    let name = best.definition.map_or("it", |found| found.name);
    let places = uses.values().map(Vec::len).sum();
    let _ = writeln!(
        report,
        "**`{name}`** is used in {} ({}):",
        text::count(uses.len(), "file", "files"),
        text::count(places, "line", "lines")
    );
    use_list(report, uses, 12, 4);
    let _ = writeln!(report, "\nIt is defined at {}", cited(best));
}

/// Uses file by file, source first.
fn use_list(report: &mut String, uses: &Uses<'_>, files: usize, lines: usize) {
    for ((_, path), places) in uses.iter().take(files) {
        for (line, text) in places.iter().take(lines) {
            let _ = writeln!(report, "- {path}:{line} `{}`", quoted(text));
        }
        if places.len() > lines {
            let _ = writeln!(report, "  and {} more in {path}", places.len() - lines);
        }
    }
    if uses.len() > files {
        let _ = writeln!(report, "  and in {} more", text::count(uses.len() - files, "file", "files"));
    }
}

/// Lines that name what the hit defines and do not define it, by file.
fn uses<'a>(evidence: &Evidence<'a>, best: &Hit<'a>) -> Uses<'a> {
    let mut uses = Uses::new();
    let Some(name) = plan::named(best) else { return uses };
    for (path, lines) in &evidence.files {
        let class = FileClass::of(path);
        if matches!(class, FileClass::Foreign | FileClass::Document) {
            continue;
        }
        for (line, text) in lines {
            let defines = || definition::definition(path, text).is_some_and(|found| found.name == name);
            if has_word(text, name) && !is_comment(text) && !defines() {
                uses.entry((class, path)).or_default().push((*line, text));
            }
        }
    }
    uses
}

/// Whether the name stands there as a whole word.
fn has_word(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(word) && !text[at + name.len()..].chars().next().is_some_and(word)
    })
}

/// What else the best file defines, with the first sentence of each comment.
fn structure(report: &mut String, question: &Question, evidence: &Evidence<'_>, best: &Hit<'_>) {
    let Some(lines) = evidence.files.get(best.path) else { return };
    let mut told = String::new();
    let mut count = 0;
    for (line, text) in lines {
        let Some(found) = definition::definition(best.path, text) else { continue };
        let local = found.kind == Kind::Constant && text.starts_with([' ', '\t']);
        if (*line == best.line && question.aim == Aim::Explain)
            || local
            || count >= 14
            || rank::is_testlike(best.path, text)
        {
            continue;
        }
        let hit = Hit { line: *line, text, definition: Some(found), ..best.clone() };
        let comment =
            comment(evidence, &hit).map(|comment| format!(" — {}", text::one_line(&comment, 110))).unwrap_or_default();
        let _ = writeln!(told, "- {}{comment}", cited(&hit));
        count += 1;
    }
    if count > 0 {
        if let Some(head) = file_comment(evidence, best.path) {
            let _ = writeln!(report, "\nThe file says of itself ({}:1): \"{head}\"", best.path);
        }
        let _ = writeln!(report, "\nWhat {} defines, as far as I read it:\n{}", best.path, told.trim_end());
    }
}

/// The next best, with at least one for each word that the finding does not hold, and no more than three a file.
fn others<'h, 'a>(question: &Question, hits: &'h [Hit<'a>], best: &Hit<'_>, uses: &Uses<'_>) -> Vec<&'h Hit<'a>> {
    let wanted = match question.aim {
        Aim::Place | Aim::Explain => 7,
        Aim::Uses => 4,
        Aim::List => 20,
    };
    let mut chosen: Vec<&Hit<'_>> = Vec::new();
    let mut a_file: BTreeMap<&str, usize> = BTreeMap::new();
    let mut held = best.terms;
    for hit in &hits[1..] {
        let in_file = a_file.entry(hit.path).or_default();
        let most = if question.aim == Aim::List { 6 } else { 3 };
        // Structure has shown the rest of the best file already.
        let shown = question.aim == Aim::Explain && hit.path == best.path && hit.definition.is_some();
        let told =
            uses.get(&(hit.class, hit.path)).is_some_and(|lines| lines.iter().any(|(line, _)| *line == hit.line));
        let new_word = hit.terms & !held != 0;
        if shown || told || *in_file >= most || hit.score < best.score * 0.12 || (chosen.len() >= wanted && !new_word) {
            continue;
        }
        *in_file += 1;
        held |= hit.terms;
        chosen.push(hit);
        if chosen.len() >= wanted + 3 {
            break;
        }
    }
    chosen
}

fn cited(hit: &Hit<'_>) -> String {
    format!("{}:{} `{}`", hit.path, hit.line, quoted(hit.text))
}

fn quoted(line: &str) -> String {
    text::one_line(&line.replace('`', "'"), 110)
}

fn shown(name: &str) -> String {
    text::one_line(&name.replace('`', "'"), 80)
}

fn kind_note(hit: &Hit<'_>) -> String {
    let class = match hit.class {
        FileClass::Source | FileClass::Config => return String::new(),
        FileClass::Example => "example",
        FileClass::Test => "test",
        FileClass::Document => "document",
        FileClass::Foreign => "generated or vendored",
    };
    format!(" ({class})")
}

/// The first sentence of the comment above a definition, or of the docstring below it.
fn comment(evidence: &Evidence<'_>, hit: &Hit<'_>) -> Option<String> {
    if hit.definition.is_none_or(|found| found.kind == Kind::File) {
        return file_comment(evidence, hit.path).filter(|_| hit.definition.is_some());
    }
    let mut above: Vec<&str> = Vec::new();
    for line in (1..hit.line).rev().take(30) {
        let Some(text) = evidence.line(hit.path, line).map(str::trim) else {
            // The comment goes on above what was read: its first sentence is not known.
            above.clear();
            break;
        };
        if is_comment(text) {
            above.push(text);
        } else if !(text.starts_with("#[") || text.starts_with('@')) {
            break;
        }
    }
    above.reverse();
    let below = || (hit.line + 1..hit.line + 12).map_while(|line| evidence.line(hit.path, line));
    first_sentence(above.into_iter())
        .or_else(|| (definition::extension(hit.path) == "py").then(|| docstring(below()))?)
}

fn docstring<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let inside = lines.skip_while(|line| !line.trim_start().starts_with(['"', '\'', 'r']) || !line.contains("\"\"\""));
    let mut text: Vec<&str> = Vec::new();
    for line in inside {
        text.push(line.trim().trim_start_matches(['r', '"']).trim_end_matches('"'));
        if line.trim().len() > 3 && line.trim_end().ends_with("\"\"\"") || text.len() > 6 {
            break;
        }
    }
    first_sentence(text.into_iter())
}

/// What a file says in its first lines.
fn file_comment(evidence: &Evidence<'_>, path: &str) -> Option<String> {
    let first = evidence.line(path, 1)?;
    let lines = (1..12).map_while(|line| evidence.line(path, line));
    if first.trim_start().starts_with("\"\"\"") {
        return docstring(lines);
    }
    first_sentence(lines.take_while(|line| is_comment(line.trim()) && !line.starts_with("#!")))
}

fn is_comment(text: &str) -> bool {
    let text = text.trim_start();
    let hash =
        text.starts_with('#') && !text.starts_with("#[") && !text.starts_with("#!") && !text.starts_with("#define");
    hash || ["//", "/*", "*/", "* ", "-- ", "\"\"\""].iter().any(|mark| text.starts_with(mark)) || text == "*"
}

fn first_sentence<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut whole = String::new();
    for line in lines {
        let said = line.trim().trim_start_matches(['/', '*', '!', '#', '-']).trim_end_matches("*/").trim();
        if said.is_empty() && !whole.is_empty() {
            break;
        }
        whole.push_str(said);
        whole.push(' ');
    }
    let end = whole.find(". ").map_or(whole.len(), |end| end + 1);
    let sentence = text::one_line(whole[..end].trim(), 200).replace('"', "'");
    sentence.chars().any(char::is_alphanumeric).then_some(sentence)
}

fn nothing(question: &Question, evidence: &Evidence<'_>, had_tools: bool) -> String {
    let sought =
        if question.is_overview() { "anything that describes this repository".to_owned() } else { question.spoken() };
    let failed = evidence.asked.iter().filter_map(|asked| asked.result).filter(|result| !result.ok);
    let reason = failed.map(|result| text::one_line(&result.output, 160)).find(|line| !line.is_empty());
    let mut report = format!("Not found: {sought}.\n");
    if evidence.asked.is_empty() {
        let why = if had_tools { "None of my tools (glob, grep, read) is here" } else { "No tools were offered" };
        let _ = writeln!(report, "\n{why}, so nothing could be searched.");
    } else {
        report.push_str("\nNo line in the searched files holds these words, nor forms of them, nor a file named so.\n");
    }
    if let Some(reason) = reason {
        let _ = writeln!(report, "A tool answered: \"{}\"", reason.replace('"', "'"));
    }
    report
}

/// What was searched and what was not found.
fn trace(question: &Question, evidence: &Evidence<'_>, hits: &[Hit<'_>]) -> String {
    let count = |name: &str| evidence.asked.iter().filter(|asked| asked.call.name == name).count();
    let mut trace = String::from("How I searched: ");
    if !question.is_overview() {
        let _ = write!(trace, "for {}; ", question.spoken());
    }
    let _ = write!(
        trace,
        "{}, {}",
        text::count(count("grep"), "search", "searches"),
        text::count(count("glob"), "file listing", "file listings")
    );
    let read = evidence.read_files();
    if !read.is_empty() {
        let names: Vec<&str> = read.iter().take(5).copied().collect();
        let _ = write!(trace, ", read in {}", names.join(", "));
    }
    trace.push_str(".\n");
    let missing: Vec<String> = question
        .terms
        .iter()
        .enumerate()
        .filter(|(i, _)| !hits.iter().any(|hit| hit.terms & (1 << i) != 0))
        .map(|(_, term)| format!("`{}`", text::one_line(&term.text, 40)))
        .collect();
    if !missing.is_empty() && !hits.is_empty() {
        let _ = writeln!(trace, "Not found anywhere: {}.", missing.join(", "));
    }
    let wrong_shelf = hits.first().is_some_and(|hit| match question.shelf {
        Shelf::Source => false,
        Shelf::Tests => hit.class != FileClass::Test,
        Shelf::Documents => hit.class != FileClass::Document,
    });
    if wrong_shelf {
        let sort = if question.shelf == Shelf::Tests { "tests" } else { "documents" };
        let _ = writeln!(trace, "No {sort} fit better than this.");
    }
    trace
}
