//! `decode agents`: the personas there are, and whether a file of one is sound.

use std::path::PathBuf;

use clap::Subcommand;

use super::error::CliError;
use super::{exit, output, wire};
use crate::model::tool_name::ToolName;
use crate::store::catalog::{self, Source};
use crate::store::diagnostic::Severity;

/// List personas, show one, or check a file
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List personas: name, what it does to files (reads, runs commands, edits), permission mode, when to use it
    Ls,
    /// Show one with its prompt
    Show {
        /// As `decode agents` lists it
        name: String,
    },
    /// Check files of personas: path, line, what is wrong, what helps
    Check {
        /// Markdown files with a YAML header
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    match &args.verb {
        None | Some(Verb::Ls) => list(),
        Some(Verb::Show { name }) => show(name),
        Some(Verb::Check { files }) => check(files),
    }
}

fn list() -> Result<u8, CliError> {
    let catalog = wire::catalog(&wire::project(None)?);
    for entry in &catalog.entries {
        let persona = &entry.persona;
        let from = match &entry.source {
            Source::Bundled => "bundled".to_owned(),
            Source::User(path) | Source::Project(path) => path.display().to_string(),
        };
        let edits = persona.tools.iter().any(|tool| matches!(tool, ToolName::Write | ToolName::Edit));
        let kind = match (edits, persona.only_reads()) {
            (true, _) => "edits",
            (false, true) => "reads",
            (false, false) => "runs",
        };
        output::line(&crate::text::without_controls(&format!(
            "{:<16} {:<7} {:<8} {}  ({from})",
            persona.name, kind, persona.mode, persona.description
        )));
    }
    for diagnostic in &catalog.diagnostics {
        output::talk(&format!("{}: {diagnostic}", word(diagnostic.severity)));
    }
    Ok(exit::DONE)
}

fn show(name: &str) -> Result<u8, CliError> {
    let catalog = wire::catalog(&wire::project(None)?);
    let entry = catalog.get(name)?;
    let header = serde_yaml::to_string(&entry.persona).unwrap_or_default();
    output::line(&format!("---\n{header}---\n{}", entry.prompt));
    Ok(exit::DONE)
}

fn check(files: &[PathBuf]) -> Result<u8, CliError> {
    let mut code = exit::DONE;
    for path in files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| CliError::usage(format!("`{}` cannot be read: {error}", path.display())))?;
        let found = catalog::check(path, &text);
        if found.is_empty() {
            output::line(&format!("{}: ok", path.display()));
        }
        for diagnostic in found {
            if diagnostic.severity == Severity::Error {
                code = exit::FAILED;
            }
            output::line(&format!("{}: {diagnostic}", word(diagnostic.severity)));
        }
    }
    Ok(code)
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}
