//! Rules about files. Allow rules are read narrowly, deny rules broadly.
//!
//! A subject is relative to the workspace with links resolved, or absolute where it lies outside. Deliberately absent:
//! any look at the disk.

use globset::{GlobBuilder, GlobMatcher};

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

fn reaches(rule: &Rule, tool: ToolName) -> bool {
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
