//! Rules about files. Allow rules are read narrowly, deny rules broadly.
//!
//! A subject is relative to the workspace with links resolved, or absolute where it lies outside. Deliberately absent:
//! any look at the disk.

use globset::{GlobBuilder, GlobMatcher};

use super::flow::Places;
use super::pattern;
use super::syntax::Word;
use crate::model::rule::Rule;
use crate::model::tool_name::{ToolKind, ToolName};

/// Deny rules with their patterns ready, for tools that look at many files.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathRules {
    denied: Vec<Denied>,
}

#[derive(Debug, Clone)]
enum Denied {
    /// A pattern that is no glob. In doubt it denies.
    Everything,
    /// A pattern without a slash: any part of the path may fit.
    Name(GlobMatcher),
    /// The path or a directory above it may fit.
    Whole(GlobMatcher),
}

impl PathRules {
    /// The deny rules that hold for this tool.
    ///
    /// A rule with a pattern protects files, whichever tool would reach them: one for `read` holds for glob, grep and
    /// lsp, one for `write` or `edit` for both. A rule without a pattern is about the tool and no other.
    pub(crate) fn denying(tool: ToolName, rules: &[Rule]) -> Self {
        let denied = rules.iter().filter(|rule| reaches(rule, tool)).map(|rule| Denied::new(rule.pattern.as_deref()));
        Self { denied: denied.collect() }
    }

    pub(crate) fn denies(&self, path: &str) -> bool {
        self.denied.iter().any(|denied| denied.fits(path))
    }
}

/// Whether deny rules keep this tool from this path.
pub(crate) fn denies_path(tool: ToolName, path: &str, rules: &[Rule]) -> bool {
    PathRules::denying(tool, rules).denies(path)
}

pub(super) fn reaches(rule: &Rule, tool: ToolName) -> bool {
    let reading = |tool| matches!(tool, ToolName::Read | ToolName::Glob | ToolName::Grep | ToolName::Lsp);
    let editing = |tool| matches!(tool, ToolName::Write | ToolName::Edit);
    let same_kind = (rule.tool == ToolName::Read && reading(tool)) || (editing(rule.tool) && editing(tool));
    rule.tool == tool || (rule.pattern.is_some() && same_kind)
}

impl Denied {
    fn new(pattern: Option<&str>) -> Self {
        let Some(pattern) = pattern else { return Self::Everything };
        // `secret/**` and `secret/` speak of the directory itself too: a search that starts there is a look inside.
        let pattern = plain(pattern);
        let pattern = pattern.strip_suffix("/**").unwrap_or(pattern).trim_end_matches('/');
        // Here `*` crosses slashes: a deny that is read too broadly is a question, one read too narrowly a leak.
        match GlobBuilder::new(pattern).literal_separator(false).build() {
            Err(_) => Self::Everything,
            Ok(glob) if pattern.contains('/') => Self::Whole(glob.compile_matcher()),
            Ok(glob) => Self::Name(glob.compile_matcher()),
        }
    }

    fn fits(&self, path: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Name(glob) => glob.is_match(path) || path.split('/').any(|name| glob.is_match(name)),
            Self::Whole(glob) => {
                std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(above, _)| above))
                    .any(|path| glob.is_match(path))
            }
        }
    }
}

/// Whether an allow pattern covers the path. `*` stays within a directory, `**` and a final slash do not.
pub(super) fn allows(tool: ToolName, pattern: &str, path: &str) -> bool {
    let pattern = plain(pattern);
    let pattern = if pattern.ends_with('/') { format!("{pattern}**") } else { pattern.to_owned() };
    if path.split('/').any(|part| part == "..") || (is_outside(path) && !pattern.starts_with('/')) {
        return false;
    }
    if must_be_named(tool, path) && !is_outside(path) && !is_of_git(&pattern) {
        return false;
    }
    GlobBuilder::new(&pattern).literal_separator(true).build().is_ok_and(|glob| glob.compile_matcher().is_match(path))
}

/// Whether a rule without a pattern, or with a wide one, is not enough: outside the workspace, and edits of git's files.
pub(super) fn must_be_named(tool: ToolName, path: &str) -> bool {
    is_outside(path) || (tool.kind() == ToolKind::Edit && is_of_git(path))
}

pub(super) fn is_outside(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

/// Whether a write there could make git run something: its configuration, its hooks.
pub(super) fn is_of_git(path: &str) -> bool {
    path.split('/').any(|part| part.eq_ignore_ascii_case(".git"))
}

fn plain(pattern: &str) -> &str {
    pattern.strip_prefix("./").unwrap_or(pattern)
}

/// A deny pattern about files, to be held against words of a command.
///
/// Words are not resolved: a link hides what it leads to, and there the sandbox holds.
pub(super) struct Named {
    globs: Vec<Vec<pattern::Piece>>,
}

/// What a word certainly or possibly names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Naming {
    No,
    Maybe,
    Yes,
}

impl Named {
    pub(super) fn new(pattern: &str) -> Self {
        let pattern = plain(pattern);
        let pattern = pattern.strip_suffix("/**").unwrap_or(pattern).trim_end_matches('/');
        let (pattern, deep) = match pattern.strip_prefix("**/") {
            Some(rest) => (rest, true),
            None => (pattern, !pattern.contains('/')),
        };
        let mut forms = vec![pattern.to_owned()];
        // An absolute word may lead into the workspace, whose place is not known here.
        if !pattern.starts_with('/') {
            forms.push(format!("/*/{pattern}"));
        }
        if deep {
            forms.push(format!("*/{pattern}"));
        }
        let globs = forms.iter().flat_map(|form| [pattern::pieces(form), pattern::pieces(&format!("{form}/*"))]);
        Self { globs: globs.collect() }
    }

    /// Whether the word, at one of the places, is the file or lies below it.
    pub(super) fn names(&self, word: &Word, places: &Places) -> Naming {
        let written = marked(word);
        let certain = !word.is_open() && !places.is_anywhere();
        let open = places.is_anywhere().then(|| format!("{ANYTHING}/"));
        let fits = candidates(&written).into_iter().any(|candidate| {
            let mut paths = places.resolve(candidate);
            paths.extend(open.as_ref().map(|open| format!("{open}{candidate}")));
            if candidate.starts_with(ANYTHING) {
                paths.push(candidate.to_owned());
            }
            paths.iter().any(|path| self.fits(path) || self.fits(&lexical(path)))
        });
        match (fits, certain) {
            (false, _) => Naming::No,
            (true, true) => Naming::Yes,
            (true, false) => Naming::Maybe,
        }
    }

    /// Whether it lies somewhere below what the word names.
    pub(super) fn is_below(&self, word: &Word, places: &Places) -> bool {
        places.is_anywhere()
            || places.resolve(&marked(word)).iter().any(|path| {
                let path = lexical(path);
                let below = if path.is_empty() { ANYTHING.to_string() } else { format!("{path}/{ANYTHING}") };
                self.fits(&below)
            })
    }

    fn fits(&self, path: &str) -> bool {
        let path: Vec<pattern::Piece> = path
            .chars()
            .map(|c| match c {
                ANYTHING => pattern::Piece::Any,
                ONE => pattern::Piece::One,
                c => pattern::Piece::Char(c),
            })
            .collect();
        self.globs.iter().any(|glob| pattern::overlap(glob, &path))
    }
}

const ANYTHING: char = pattern::ANY;
const ONE: char = '\u{fffd}';

/// The word with a character for each part that the shell fills in.
fn marked(word: &Word) -> String {
    let glob = word.glob().into_iter().map(|piece| match piece {
        pattern::Piece::Char(c) => c,
        pattern::Piece::One => ONE,
        pattern::Piece::Any => ANYTHING,
    });
    glob.collect()
}

/// What in a word may be a path: all of it, what follows `=`, `:`, `@` or `,`, the value of a short option.
fn candidates(word: &str) -> Vec<&str> {
    let mut found = vec![word];
    found.extend(word.match_indices(['=', ':', '@', ',']).map(|(at, mark)| &word[at + mark.len()..]));
    if word.starts_with('-') && !word.starts_with("--") {
        found.extend(word.char_indices().nth(2).map(|(at, _)| &word[at..]));
    }
    found.retain(|candidate| !candidate.is_empty());
    found
}

/// The path with `..` taken back, as if there were no links.
fn lexical(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("{}{}", if path.starts_with('/') { "/" } else { "" }, parts.join("/"))
}
