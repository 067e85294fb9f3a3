//! `grep`: lines that fit a regular expression.
//!
//! ripgrep's own search, without its configuration file. Holds one file's buffer and the lines to show. Deliberately
//! absent: context lines and counts; `read` shows what is around.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde_json::json;

use super::output::{BYTES, LINES};
use super::path::Place;
use super::walk::{self, Ignored};
use super::{Answer, Input, Running, Scope, Tool, glob, input, path};
use crate::files::Root;
use crate::machine::gate::PathRules;
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::tool_name::ToolName;
use crate::text;

/// A line longer than this is shown around the match only.
const SHOWN: usize = 500;

/// A single line may be this long; a file with a longer one is left out and named.
const HELD: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Grep;

impl Tool for Grep {
    fn name(&self) -> ToolName {
        ToolName::Grep
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Grep.as_str(),
            description: "Search the files of the workspace for a regular expression (Rust syntax), line by line. Answers \
                `path:line:text`, sorted by path. Hidden files are included; binary files and what git ignores are left out."
                .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "Regular expression; (?i) at its start ignores case"},
                    "path": {"type": "string", "description": "Default: the whole workspace"},
                    "glob": {"type": "string", "description": "Only files that fit: `*.rs` by name, `src/**/*.rs` by path"}
                },
                "required": ["pattern"]
            }),
        }
    }

    fn subject(&self, input: &Input, scope: &Scope) -> Subject {
        match input::optional_text(input, "path") {
            Ok(path) => path::subject(scope, path.unwrap_or(".")),
            Err(_) => Subject::None,
        }
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        walk::search(scope, move |scope| grep(&input, &scope).unwrap_or_else(|correction| correction))
    }
}

fn grep(input: &Input, scope: &Scope) -> Result<Answer, Answer> {
    let pattern = input::text(input, "pattern")?;
    if pattern.is_empty() {
        return Err(Answer::correction("the pattern is empty"));
    }
    let matcher = RegexMatcherBuilder::new().crlf(true).build(pattern).map_err(|error| {
        Answer::correction(format!(
            "the pattern is no regular expression: {error}; put \\ before ( ) [ ] {{ }} . * + ? | to mean them"
        ))
    })?;
    let place = path::locate(scope, ToolName::Grep, input::optional_text(input, "path")?.unwrap_or("."))?;
    let filter = match input::optional_text(input, "glob")? {
        None => Filter::All,
        Some(glob) => Filter::new(glob, place.root.path())?,
    };
    let metadata = place.metadata().map_err(|_| place.missing())?;
    let mut search = Search::new(scope, matcher);
    if metadata.is_dir() {
        search.directory(&place, &filter);
    } else {
        if path::is_env_file(&place.relative) {
            return Err(Answer::correction(format!("`{}` is for commands, not for grep", place.shown())));
        }
        drop(place.open()?);
        search.file(&place.root, &place.relative);
    }
    search.answer(pattern)
}

/// Which files are searched.
enum Filter {
    All,
    /// A pattern without a slash is held against names.
    Name(GlobMatcher),
    Path(GlobMatcher),
}

impl Filter {
    fn new(given: &str, root: &Path) -> Result<Self, Answer> {
        let pattern = glob::relative_pattern(given, root)?;
        let matcher = GlobBuilder::new(&pattern).literal_separator(true).build();
        let matcher =
            matcher.map_err(|error| Answer::correction(format!("the glob is wrong: {error}")))?.compile_matcher();
        Ok(if pattern.contains('/') { Self::Path(matcher) } else { Self::Name(matcher) })
    }

    fn fits(&self, relative: &Path) -> bool {
        match self {
            Self::All => true,
            Self::Name(matcher) => relative.file_name().is_some_and(|name| matcher.is_match(name)),
            Self::Path(matcher) => matcher.is_match(relative),
        }
    }
}

/// A search under way.
struct Search<'a> {
    scope: &'a Scope,
    matcher: RegexMatcher,
    searcher: Searcher,
    denied: PathRules,
    shown: String,
    lines: usize,
    files: usize,
    /// Files that could not be searched, with the reason.
    failed: Vec<String>,
    full: bool,
}

impl<'a> Search<'a> {
    fn new(scope: &'a Scope, matcher: RegexMatcher) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            .heap_limit(Some(HELD))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        let denied = PathRules::denying(ToolName::Grep, &scope.deny);
        Self {
            scope,
            matcher,
            searcher,
            denied,
            shown: String::new(),
            lines: 0,
            files: 0,
            failed: Vec::new(),
            full: false,
        }
    }

    fn directory(&mut self, place: &Place, filter: &Filter) {
        let root = place.root.path();
        for entry in walk::walk(&place.absolute(), Ignored::LeftOut).flatten() {
            if self.full || walk::is_cut(self.scope) {
                return;
            }
            let Some(relative) = walk::below(root, entry.path()) else { continue };
            let searched = entry.file_type().is_some_and(|kind| kind.is_file())
                && filter.fits(&relative)
                && !path::is_env_file(&relative)
                && !self.denied.denies(&relative.to_string_lossy());
            if searched {
                self.file(&place.root, &relative);
            }
        }
    }

    fn file(&mut self, root: &Root, relative: &Path) {
        self.files += 1;
        let name = path::shown(relative);
        let file = match root.read(relative) {
            Ok(file) => file,
            Err(error) => return self.failed.push(error.to_string()),
        };
        let reader = UntilCut { file, scope: self.scope };
        let mut lines = Lines {
            name: &name,
            matcher: &self.matcher,
            shown: &mut self.shown,
            count: &mut self.lines,
            full: &mut self.full,
        };
        if let Err(error) = self.searcher.search_reader(&self.matcher, reader, &mut lines)
            && !walk::is_cut(self.scope)
        {
            self.failed.push(format!("`{name}`: {error}"));
        }
    }

    fn answer(self, pattern: &str) -> Result<Answer, Answer> {
        let mut notes = String::new();
        if self.full {
            notes.push_str(
                "\n[the output limit is reached and the search has ended; narrow it with path, glob or pattern]",
            );
        }
        if walk::is_cut(self.scope) {
            notes.push_str("\n[the search was cut short]");
        }
        if let Some(first) = self.failed.first() {
            let files = text::count(self.failed.len(), "file was", "files were");
            let _ = write!(notes, "\n[{files} not searched: {first}]");
        }
        if self.lines == 0 {
            let files = text::count(self.files, "file", "files");
            return Err(Answer::correction(format!("no line fits `{pattern}` in {files}{notes}")));
        }
        Ok(Answer::done(self.shown.trim_end_matches('\n').to_owned() + &notes))
    }
}

/// A file whose reading ends with the call, however large it is.
struct UntilCut<'a> {
    file: std::fs::File,
    scope: &'a Scope,
}

impl Read for UntilCut<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if walk::is_cut(self.scope) {
            return Err(std::io::Error::other("cut short"));
        }
        self.file.read(buffer)
    }
}

/// Takes matching lines until there is no room.
struct Lines<'a> {
    name: &'a str,
    matcher: &'a RegexMatcher,
    shown: &'a mut String,
    count: &'a mut usize,
    full: &'a mut bool,
}

impl Sink for Lines<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, std::io::Error> {
        let bytes = found.bytes().trim_ascii_end();
        let at = self.matcher.find(found.bytes()).ok().flatten().map_or(0, |at| at.start());
        let line = format!("{}:{}:{}\n", self.name, found.line_number().unwrap_or(0), around(bytes, at));
        *self.full = *self.count >= LINES || self.shown.len() + line.len() > BYTES;
        if *self.full {
            return Ok(false);
        }
        self.shown.push_str(&line);
        *self.count += 1;
        Ok(true)
    }
}

/// The line, or if it is long the part of it around the match.
fn around(line: &[u8], at: usize) -> String {
    if line.len() <= SHOWN {
        return String::from_utf8_lossy(line).into_owned();
    }
    // Only the part that may be shown is turned into text: lines can be huge.
    let from = at.saturating_sub(SHOWN / 4).min(line.len());
    let to = (from + SHOWN).min(line.len());
    let from = (from..to).find(|at| !is_inside_character(line[*at])).unwrap_or(from);
    let to = (from..to)
        .rev()
        .find(|at| line.get(*at + 1).is_none_or(|byte| !is_inside_character(*byte)))
        .map_or(to, |at| at + 1);
    let part = String::from_utf8_lossy(&line[from..to]);
    let before = if from > 0 { format!("[{from} bytes] … ") } else { String::new() };
    let after = if to < line.len() { format!(" … [{} bytes]", line.len() - to) } else { String::new() };
    format!("{before}{part}{after}")
}

fn is_inside_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::*;

    fn run(fixture: &Fixture, arguments: serde_json::Value) -> Answer {
        fixture.run(&Grep, input(arguments))
    }

    #[test]
    fn lines_come_with_path_and_number_in_order() {
        let fixture = Fixture::new();
        fixture.write("b.rs", "needle\r\nx\nneedle 2\n");
        fixture.write("a/z.rs", "  needle");
        fixture.write(".github/workflows/ci.yml", "needle: 1\n");
        fixture.write(".git/config", "needle");
        fixture.write(".gitignore", "dist/\n");
        fixture.write("dist/x.rs", "needle");
        fixture.write("bin", b"needle\0needle");
        let all = ".github/workflows/ci.yml:1:needle: 1\na/z.rs:1:  needle\nb.rs:1:needle\nb.rs:3:needle 2";
        assert_eq!(run(&fixture, json!({"pattern": "needle"})), Answer::done(all));
        let some = |arguments| run(&fixture, arguments).text;
        assert_eq!(some(json!({"pattern": "^needle$"})), "b.rs:1:needle");
        assert_eq!(some(json!({"pattern": "needle", "glob": "z.*"})), "a/z.rs:1:  needle");
        assert_eq!(some(json!({"pattern": "needle", "path": "a"})), "a/z.rs:1:  needle");
        assert_eq!(
            some(json!({"pattern": "needle", "path": "b.rs", "glob": "a/**"})),
            "b.rs:1:needle\nb.rs:3:needle 2"
        );
        assert_eq!(some(json!({"pattern": "needle", "path": "dist/x.rs"})), "dist/x.rs:1:needle");
        assert_eq!(
            some(json!({"pattern": "needle", "glob": ".github/workflows/*.yml"})),
            ".github/workflows/ci.yml:1:needle: 1"
        );
    }

    #[test]
    fn what_finds_nothing_is_corrected() {
        let fixture = Fixture::new();
        fixture.write("a.rs", "x\n");
        fixture.write(".env", "KEY=needle\n");
        nix::unistd::mkfifo(&fixture.path("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        for (arguments, says) in [
            (json!({"pattern": "needle"}), "no line fits `needle` in 1 file"),
            (json!({"pattern": "("}), "no regular expression"),
            (json!({"pattern": ""}), "empty"),
            (json!({"pattern": "x", "path": "b.rs"}), "did you mean `a.rs`"),
            (json!({"pattern": "x", "path": "../"}), "outside"),
            (json!({"pattern": "x", "path": "fifo"}), "pipe"),
            (json!({"pattern": "x", "glob": "../*"}), "outside"),
            (json!({"pattern": "needle", "path": ".env"}), "for commands"),
            (json!({}), "missing"),
        ] {
            let answer = run(&fixture, arguments.clone());
            assert!(!answer.ok && answer.text.contains(says), "{arguments}: {answer:?}");
        }
    }

    #[test]
    fn a_search_opens_no_file_after_the_one_that_fills_the_answer() {
        let fixture = Fixture::new();
        for n in 0..LINES + 500 {
            fixture.write(&format!("f{n:04}"), "x\n");
        }
        let matcher = RegexMatcherBuilder::new().build(".").unwrap();
        let place = path::locate(&fixture.scope, ToolName::Grep, ".").unwrap();
        let mut search = Search::new(&fixture.scope, matcher);
        search.directory(&place, &Filter::All);
        assert!(search.full && search.files <= LINES + 1, "{} files were opened", search.files);
        assert!(search.shown.len() <= BYTES);
    }

    #[test]
    fn a_huge_line_is_shown_around_the_match() {
        let fixture = Fixture::new();
        fixture.write("min.json", format!("{}needle{}", "é".repeat(1_000_000), "🙂".repeat(700_000)));
        let answer = run(&fixture, json!({"pattern": "needle"}));
        assert!(answer.ok && answer.text.len() < 700, "{}", answer.text.len());
        assert!(
            answer.text.contains("needle🙂") && answer.text.contains("bytes] … é") && !answer.text.contains('\u{fffd}')
        );
    }

    #[test]
    fn a_cut_line_is_text_wherever_it_is_cut() {
        for shift in 0..8 {
            let line = format!("{}{}needle{}", "x".repeat(shift), "🙂".repeat(200), "é🙂".repeat(200));
            let part = around(line.as_bytes(), line.find("needle").unwrap());
            assert!(part.contains("needle") && !part.contains('\u{fffd}'), "{part}");
        }
    }

    #[test]
    fn a_search_that_finds_too_much_ends_early() {
        let fixture = Fixture::new();
        for n in 0..30 {
            fixture.write(&format!("f{n:02}"), "x\n".repeat(100));
        }
        let answer = run(&fixture, json!({"pattern": "."}));
        assert_eq!(answer.text.lines().count(), LINES + 1);
        assert!(answer.text.contains("f19:100:x\n[the output limit is reached"));
    }

    #[test]
    fn a_sparse_giant_does_not_hold_the_search_up() {
        let fixture = Fixture::new();
        std::fs::File::create(fixture.path("giant")).unwrap().set_len(2 << 30).unwrap();
        fixture.write("z", "needle\n");
        assert_eq!(run(&fixture, json!({"pattern": "."})).text, "z:1:needle");
    }

    #[test]
    fn denied_files_are_left_out_and_a_search_can_be_ended() {
        let mut fixture = Fixture::new();
        fixture.write("secret/a", "needle");
        fixture.write("b", "needle");
        fixture.scope.deny = vec!["read(secret/**)".parse().unwrap()];
        assert_eq!(run(&fixture, json!({"pattern": "needle"})).text, "b:1:needle");
        assert!(!run(&fixture, json!({"pattern": "needle", "path": "secret/a"})).ok);
        fixture.cut.send(true).unwrap();
        assert!(run(&fixture, json!({"pattern": "needle"})).text.contains("cut short"));
    }

    #[test]
    fn a_link_is_not_followed_out() {
        let fixture = Fixture::new();
        std::os::unix::fs::symlink("/etc", fixture.path("etc")).unwrap();
        fixture.write("a", "x");
        assert!(!run(&fixture, json!({"pattern": "root"})).ok);
        assert!(run(&fixture, json!({"pattern": "root", "path": "etc/passwd"})).text.contains("outside"));
    }
}
