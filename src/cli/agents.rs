//! `decode agents`: the personas there are, what each may do, and whether a file of one is sound.

use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

use super::error::CliError;
use super::explain::{self, Explained};
use super::listing::{self, ListFormat, Listing};
use super::{exit, output, wire};
use crate::machine::gate::{Confinement, Policy};
use crate::model::persona::Persona;
use crate::model::tool_name::ToolName;
use crate::store::catalog::{self, Catalog, Entry, Source};
use crate::store::diagnostic::{Diagnostic, Severity};

/// List personas, show one, or check them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,

    #[command(flatten)]
    listing: Listing,
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
    /// Check files of personas, or tell what one may do, tool by tool
    ///
    /// Of a file: path, line, what is wrong, what helps; exit code 1 if it cannot be used. Of a name: the same for its
    /// file, then what the gate says to each of its tools. Without either: everything there is.
    ///
    /// Example: decode agents check .decode/agents/reviewer.md
    Check {
        /// Names of personas, or Markdown files
        #[arg(value_name = "NAME|FILE")]
        what: Vec<String>,
    },
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let format = args.listing.list_format;
    let catalog = wire::catalog(&wire::project(None)?);
    match &args.verb {
        None | Some(Verb::Ls) => list(&catalog, format),
        Some(Verb::Show { name }) => show(&catalog, name, format),
        Some(Verb::Check { what }) => check(&catalog, what, format),
    }
}

fn list(catalog: &Catalog, format: ListFormat) -> Result<u8, CliError> {
    match format {
        ListFormat::Json => {
            let agents: Vec<Value> = catalog.entries.iter().map(|entry| object(catalog, entry)).collect();
            let found = listing::json(&catalog.diagnostics);
            output::deliver(&json!({"v": 1, "agents": agents, "diagnostics": found}).to_string())?;
        }
        ListFormat::Text => {
            for entry in &catalog.entries {
                let Persona { name, mode, description, .. } = &entry.persona;
                let mark = if trusted(catalog, entry) { "" } else { ", not trusted" };
                let from = format!("{}{mark}", entry.source);
                let line = format!("{name:<16} {:<7} {mode:<8} {description}  ({from})", kind(&entry.persona));
                output::line(&crate::text::without_controls(&line));
            }
            listing::talk(&catalog.diagnostics);
        }
    }
    Ok(exit::DONE)
}

/// What a persona does to files.
fn kind(persona: &Persona) -> &'static str {
    let edits = edits(persona);
    match (edits, persona.only_reads()) {
        (true, _) => "edits",
        (false, true) => "reads",
        (false, false) => "runs",
    }
}

fn edits(persona: &Persona) -> bool {
    persona.tools.iter().any(|tool| matches!(tool, ToolName::Write | ToolName::Edit))
}

fn trusted(catalog: &Catalog, entry: &Entry) -> bool {
    match &entry.source {
        Source::Bundled | Source::User(_) => true,
        Source::Project(path) => !catalog.untrusted.contains(path),
    }
}

fn object(catalog: &Catalog, entry: &Entry) -> Value {
    let (source, path) = match &entry.source {
        Source::Bundled => ("bundled", None),
        Source::User(path) => ("user", Some(path)),
        Source::Project(path) => ("project", Some(path)),
    };
    let Persona { name, description, tools, mode, allow, deny, model, subagent } = &entry.persona;
    json!({
        "name": name,
        "description": description,
        "does": kind(&entry.persona),
        "tools": tools,
        "mode": mode,
        "allow": allow,
        "deny": deny,
        "model": model,
        "subagent": subagent,
        "source": source,
        "path": path.map(|path| path.to_string_lossy()),
        "trusted": trusted(catalog, entry),
    })
}

fn show(catalog: &Catalog, name: &str, format: ListFormat) -> Result<u8, CliError> {
    let entry = catalog.get(name)?;
    match format {
        ListFormat::Json => {
            let mut shown = object(catalog, entry);
            shown["prompt"] = json!(entry.prompt);
            output::deliver(&json!({"v": 1, "agent": shown}).to_string())?;
        }
        ListFormat::Text => {
            let header = serde_yaml::to_string(&entry.persona).unwrap_or_default();
            output::deliver(&format!("---\n{header}---\n{}", entry.prompt))?;
        }
    }
    Ok(exit::DONE)
}

/// One thing that was checked.
struct Checked {
    what: String,
    found: Vec<Diagnostic>,
    /// What a persona may do; nothing for a file, which is not in use.
    may: Vec<Explained>,
}

fn check(catalog: &Catalog, what: &[String], format: ListFormat) -> Result<u8, CliError> {
    let checked: Vec<Checked> = if what.is_empty() {
        vec![Checked { what: "all personas".to_owned(), found: catalog.diagnostics.clone(), may: Vec::new() }]
    } else {
        what.iter().map(|what| check_one(catalog, what)).collect::<Result<_, _>>()?
    };
    match format {
        ListFormat::Json => {
            let each = |checked: &Checked| {
                let may: Vec<Value> = checked.may.iter().map(Explained::json).collect();
                json!({"what": checked.what, "diagnostics": listing::json(&checked.found), "tools": may})
            };
            let all: Vec<Value> = checked.iter().map(each).collect();
            output::deliver(&json!({"v": 1, "checked": all}).to_string())?;
        }
        ListFormat::Text => checked.iter().for_each(print),
    }
    Ok(checked.iter().map(|checked| listing::code(&checked.found)).max().unwrap_or(exit::DONE))
}

fn print(checked: &Checked) {
    if checked.found.iter().all(|found| found.severity == Severity::Note) {
        output::line(&format!("{}: ok", checked.what));
    }
    for found in &checked.found {
        output::line(&listing::line(found));
    }
    for line in checked.may.iter().flat_map(Explained::lines) {
        output::line(&crate::text::without_controls(&line));
    }
}

fn check_one(catalog: &Catalog, what: &str) -> Result<Checked, CliError> {
    let path = Path::new(what);
    let is_file = what.contains('/') || path.extension().is_some_and(|extension| extension == "md") || path.is_file();
    if is_file {
        let text = crate::files::read(path, catalog::FILE_LIMIT).map_err(|error| {
            let mut wrapped = CliError::usage(error.to_string());
            wrapped.causes = crate::text::causes(&error);
            wrapped
        })?;
        return Ok(Checked { what: what.to_owned(), found: catalog::check(path, &text), may: Vec::new() });
    }
    let entry = match catalog.get(what) {
        Ok(entry) => entry,
        Err(catalog::CatalogError::Broken { found, .. }) => {
            return Ok(Checked { what: what.to_owned(), found: vec![found], may: Vec::new() });
        }
        Err(error) => return Err(error.into()),
    };
    let found = match &entry.source {
        Source::Bundled => Vec::new(),
        Source::User(path) | Source::Project(path) => {
            catalog.diagnostics.iter().filter(|found| found.path == *path).cloned().collect()
        }
    };
    Ok(Checked { what: what.to_owned(), found, may: may(&entry.persona)? })
}

/// What a persona may do here, with the user's own rules and what was answered with "always".
fn may(persona: &Persona) -> Result<Vec<Explained>, CliError> {
    let project = wire::project(None)?;
    let (settings, decided) = (wire::settings(&project)?, wire::decided(&project)?);
    let confined = edits(persona) && wire::sandbox_holds(settings.sandbox.unwrap_or_default());
    let policy = Policy {
        mode: persona.mode,
        allow: [persona.allow.clone(), settings.allow, decided.allow].concat(),
        deny: [persona.deny.clone(), settings.deny, decided.deny].concat(),
        confinement: if confined { Confinement::InForce } else { Confinement::None },
    };
    Ok(explain::explain(persona, &policy))
}
