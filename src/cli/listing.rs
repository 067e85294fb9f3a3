//! What the verbs that list configuration have in common: their format, and how a finding in a file is told.
//!
//! Deliberately absent: what they list.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{exit, output};
use crate::store::diagnostic::{Diagnostic, Severity};

/// How a list is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Listing {
    /// What stdout carries
    // A name of its own: clap hands the value of a global flag up to flags of the same name.
    #[arg(short = 'o', long = "output-format", value_name = "text|json", default_value = "text", global = true)]
    pub(super) list_format: ListFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    Text,
    Json,
}

/// Findings on stderr, beside a list on stdout.
pub(super) fn talk(diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        output::talk(&line(diagnostic));
    }
}

pub(super) fn line(diagnostic: &Diagnostic) -> String {
    crate::text::without_controls(&format!("{}: {diagnostic}", word(diagnostic.severity)))
}

pub(super) fn json(diagnostics: &[Diagnostic]) -> Vec<Value> {
    let object = |found: &Diagnostic| {
        json!({
            "path": found.path.to_string_lossy(),
            "line": found.line,
            "severity": word(found.severity),
            "message": found.message,
            "fix": found.fix,
        })
    };
    diagnostics.iter().map(object).collect()
}

/// The exit code of a check: warnings are told and stop nothing.
pub(super) fn code(diagnostics: &[Diagnostic]) -> u8 {
    let fails = diagnostics.iter().any(|found| found.severity == Severity::Error);
    if fails { exit::FAILED } else { exit::DONE }
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}
