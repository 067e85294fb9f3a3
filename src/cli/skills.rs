//! `decode skills`: the skills there are, whether a file of one is sound, and copies of ours for other agents.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::error::CliError;
use super::listing::{self, ListFormat, Listing};
use super::{exit, output, wire};
use crate::model::skill::Callers;
use crate::store::catalog::Source;
use crate::store::diagnostic::{Diagnostic, Severity};
use crate::store::installed::{self, Outcome, Overwrite};
use crate::store::skills::{self, BUNDLED, Entry, SkillError, Skills};

/// List skills, show or check one, or copy ours to where other agents look
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,

    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List skills: name, when to use it, where it is from
    Ls,
    /// Show one as an agent gets it
    Show {
        /// As `decode skills` lists it
        name: String,
    },
    /// Check files of skills: path, line, what is wrong, what helps; exit code 1 if one cannot be used
    Check {
        /// Names of skills, their directories, or SKILL.md files
        #[arg(value_name = "NAME|FILE")]
        what: Vec<String>,
    },
    /// Copy bundled skills to where other agents look for theirs
    ///
    /// Without --for: for each of claude, codex and gemini that has a directory in home; decode itself has them anyway.
    /// A copy of an older decode is renewed; one that somebody changed stays as it is.
    ///
    /// Example: decode skills install --for claude
    Install {
        #[command(flatten)]
        copies: Copies,

        /// Overwrite what somebody changed
        #[arg(long)]
        force: bool,
    },
    /// Remove the copies that nobody changed
    Uninstall {
        #[command(flatten)]
        copies: Copies,
    },
}

/// Which copies.
#[derive(Debug, clap::Args)]
struct Copies {
    /// Names of bundled skills (default: all)
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// For which agents
    #[arg(long = "for", value_name = "AGENT", value_delimiter = ',')]
    agents: Vec<Agent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Agent {
    Claude,
    Codex,
    Gemini,
    Decode,
}

impl Agent {
    const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Decode => "decode",
        }
    }

    /// Where it looks for the skills of its user.
    fn skills(self, home: &Path, user: Option<&Path>) -> PathBuf {
        match self {
            Self::Claude => home.join(".claude/skills"),
            Self::Codex => home.join(".agents/skills"),
            Self::Gemini => home.join(".gemini/skills"),
            Self::Decode => user.map_or_else(|| home.join(".config/decode"), Path::to_owned).join("skills"),
        }
    }

    /// Whether its user has it and it needs a copy.
    fn is_there(self, home: &Path) -> bool {
        match self {
            Self::Claude => home.join(".claude").is_dir(),
            Self::Codex => home.join(".codex").is_dir(),
            Self::Gemini => home.join(".gemini").is_dir(),
            // It has them without a copy, and a copy would outlive the next version.
            Self::Decode => false,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let format = args.listing.list_format;
    match &args.verb {
        None | Some(Verb::Ls) => list(&found()?, format),
        Some(Verb::Show { name }) => show(&found()?, name, format),
        Some(Verb::Check { what }) => check(&found()?, what, format),
        Some(Verb::Install { copies, force }) => {
            let overwrite = if *force { Overwrite::Changed } else { Overwrite::Nothing };
            each_copy(copies, format, |state, skills, name, text| {
                installed::install(state, skills, name, text, overwrite)
            })
        }
        Some(Verb::Uninstall { copies }) => each_copy(copies, format, installed::uninstall),
    }
}

fn found() -> Result<Skills, CliError> {
    Ok(wire::skills(&wire::project(None)?))
}

fn list(skills: &Skills, format: ListFormat) -> Result<u8, CliError> {
    match format {
        ListFormat::Json => {
            let trusted = skills.entries.iter().map(|entry| object(entry, Standing::Usable));
            let others = skills.untrusted.iter().map(|entry| object(entry, Standing::NotTrusted));
            let all: Vec<Value> = trusted.chain(others).collect();
            let found = listing::json(&skills.diagnostics);
            output::deliver(&json!({"v": 1, "skills": all, "diagnostics": found}).to_string())?;
        }
        ListFormat::Text => {
            for Entry { skill, source } in &skills.entries {
                let only = match skill.callers {
                    Callers::Anyone => "",
                    Callers::People => ", only as a slash command",
                };
                let description = crate::text::one_line(&skill.description, 2_000);
                line(&format!("{:<16} {description}  ({source}{only})", skill.name));
            }
            for Entry { skill, source } in &skills.untrusted {
                line(&format!("{:<16} not trusted, not used: decode trust  ({source})", skill.name));
            }
            listing::talk(&skills.diagnostics);
        }
    }
    Ok(exit::DONE)
}

fn line(text: &str) {
    output::line(&crate::text::without_controls(text));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Usable,
    NotTrusted,
}

fn object(entry: &Entry, standing: Standing) -> Value {
    let (source, path) = match &entry.source {
        Source::Bundled => ("bundled", None),
        Source::User(path) => ("user", Some(path)),
        Source::Project(path) => ("project", Some(path)),
    };
    let skill = &entry.skill;
    json!({
        "name": skill.name,
        "description": skill.description,
        "for_models": skill.callers == Callers::Anyone,
        "allowed_tools": skill.allowed_tools,
        "files": skill.siblings,
        "source": source,
        "path": path.map(|path| path.to_string_lossy()),
        "trusted": standing == Standing::Usable,
    })
}

fn show(skills: &Skills, name: &str, format: ListFormat) -> Result<u8, CliError> {
    let entry = skills.get(name)?;
    match format {
        ListFormat::Json => {
            let mut shown = object(entry, Standing::Usable);
            shown["body"] = json!(entry.skill.body);
            output::deliver(&json!({"v": 1, "skill": shown}).to_string())?;
        }
        ListFormat::Text => output::deliver(&crate::text::without_controls(&entry.skill.invocation("")))?,
    }
    Ok(exit::DONE)
}

fn check(skills: &Skills, what: &[String], format: ListFormat) -> Result<u8, CliError> {
    let checked: Vec<(String, Vec<Diagnostic>)> = if what.is_empty() {
        vec![("all skills".to_owned(), skills.diagnostics.clone())]
    } else {
        let each = what.iter().map(|what| Ok((what.clone(), check_one(skills, what)?)));
        each.collect::<Result<_, CliError>>()?
    };
    match format {
        ListFormat::Json => {
            let each =
                |(what, found): &(String, Vec<Diagnostic>)| json!({"what": what, "diagnostics": listing::json(found)});
            let all: Vec<Value> = checked.iter().map(each).collect();
            output::deliver(&json!({"v": 1, "checked": all}).to_string())?;
        }
        ListFormat::Text => {
            for (what, found) in &checked {
                if found.iter().all(|found| found.severity == Severity::Note) {
                    output::line(&format!("{what}: ok"));
                }
                for found in found {
                    output::line(&listing::line(found));
                }
            }
        }
    }
    Ok(checked.iter().map(|(_, found)| listing::code(found)).max().unwrap_or(exit::DONE))
}

fn check_one(skills: &Skills, what: &str) -> Result<Vec<Diagnostic>, CliError> {
    let path = Path::new(what);
    let path = if path.is_dir() { path.join("SKILL.md") } else { path.to_owned() };
    if path.is_file() || what.contains('/') {
        // The name of a directory counts, so that `.` will not do.
        let path = std::fs::canonicalize(&path)
            .map_err(|error| CliError::usage(format!("`{}` cannot be read: {error}", path.display())))?;
        return Ok(skills::check(&path, &crate::files::read(&path, skills::FILE_LIMIT)?));
    }
    let of = |entry: &Entry| match &entry.source {
        Source::Bundled => Vec::new(),
        Source::User(path) | Source::Project(path) => {
            skills.diagnostics.iter().filter(|found| found.path == *path).cloned().collect()
        }
    };
    match skills.get(what) {
        Ok(entry) => Ok(of(entry)),
        Err(SkillError::Broken { found, .. }) => Ok(vec![found]),
        Err(error) => match skills.untrusted.iter().find(|entry| entry.skill.name == what) {
            Some(entry) => Ok(of(entry)),
            None => Err(error.into()),
        },
    }
}

/// Does something to each copy that is meant, and tells what came of it.
fn each_copy(
    copies: &Copies,
    format: ListFormat,
    change: impl Fn(&crate::store::StateRoot, &Path, &str, &str) -> Result<Outcome, installed::InstallError>,
) -> Result<u8, CliError> {
    let home = wire::home().ok_or_else(|| CliError::missing("there is no home directory").hint("set HOME"))?;
    let user = wire::places(Path::new("/")).user;
    let agents = agents(copies, &home)?;
    let bundled = bundled(&copies.names)?;
    let state = wire::state_root()?;
    let mut done = Vec::new();
    for agent in agents {
        let skills = agent.skills(&home, user.as_deref());
        for (name, text) in &bundled {
            let outcome = change(&state, &skills, name, text)?;
            done.push((agent, *name, skills.join(name), outcome));
        }
    }
    match format {
        ListFormat::Json => {
            let each = done.iter().map(|(agent, name, path, outcome)| {
                json!({"agent": agent.name(), "skill": name, "path": path.to_string_lossy(), "outcome": word(*outcome)})
            });
            let all: Vec<Value> = each.collect();
            output::deliver(&json!({"v": 1, "copies": all}).to_string())?;
        }
        ListFormat::Text => {
            for (agent, name, path, outcome) in &done {
                output::line(&format!("{:<8} {name:<16} {}  ({})", agent.name(), words(*outcome), path.display()));
            }
        }
    }
    let kept = done.iter().filter(|(.., outcome)| *outcome == Outcome::KeptChanged).count();
    if kept == 0 {
        return Ok(exit::DONE);
    }
    let what = crate::text::count(kept, "copy was changed", "copies were changed");
    Err(CliError::new(exit::FAILED, format!("{what} by somebody and stays"))
        .hint("look at it; `decode skills install --force` overwrites it"))
}

fn agents(copies: &Copies, home: &Path) -> Result<Vec<Agent>, CliError> {
    if !copies.agents.is_empty() {
        return Ok(copies.agents.clone());
    }
    let there: Vec<Agent> = Agent::value_variants().iter().copied().filter(|agent| agent.is_there(home)).collect();
    if there.is_empty() {
        let message = format!("neither claude nor codex nor gemini has a directory in {}", home.display());
        return Err(CliError::missing(message).hint("decode skills install --for claude makes it"));
    }
    Ok(there)
}

fn bundled(names: &[String]) -> Result<Vec<(&'static str, &'static str)>, CliError> {
    if names.is_empty() {
        return Ok(BUNDLED.to_vec());
    }
    let find = |name: &String| {
        BUNDLED.iter().find(|(known, _)| known == name).copied().ok_or_else(|| {
            let known = BUNDLED.map(|(known, _)| known).join(", ");
            CliError::usage(format!("`{name}` is not bundled; there are {known}"))
        })
    };
    names.iter().map(find).collect()
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Installed => "installed",
        Outcome::Renewed => "renewed",
        Outcome::UpToDate => "up_to_date",
        Outcome::KeptChanged => "kept_changed",
        Outcome::Removed => "removed",
        Outcome::NotThere => "not_there",
    }
}

const fn words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Installed => "installed",
        Outcome::Renewed => "renewed",
        Outcome::UpToDate => "up to date",
        Outcome::KeptChanged => "kept, somebody changed it",
        Outcome::Removed => "removed",
        Outcome::NotThere => "not there",
    }
}
