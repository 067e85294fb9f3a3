//! `decode trust`: shows what a project's own configuration would do, and lets it once the user has said yes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::error::CliError;
use super::listing::{ListFormat, Listing};
use super::{exit, output, wire};
use crate::model::persona::{Mode, Persona};
use crate::model::skill::{Callers, Skill};
use crate::store::catalog::{Catalog, Source};
use crate::store::digests::Digests;
use crate::store::places::{Places, Trust};
use crate::store::project::{self, Acting, Kind};
use crate::store::settings::Settings;
use crate::store::skills::Skills;

/// Let a project's personas, skills, settings and recipes act, after you have seen what they do
///
/// Nothing of a repository acts before that. What you trust is the content you were shown: a file that changes is not
/// trusted until you say so again, and only what changed is shown then. AGENTS.md and CLAUDE.md are text and need no
/// trust. Base URLs, keys, budgets, modes and the sandbox never come from a project.
///
/// Example: decode trust
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The project (default: the one around the current directory)
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Take it back, with the rules that were remembered for the project
    #[arg(long)]
    revoke: bool,

    /// Do not ask
    #[arg(short, long, conflicts_with = "revoke")]
    yes: bool,

    #[command(flatten)]
    listing: Listing,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let directory = wire::project(args.path.as_deref())?;
    let places = wire::places(&directory);
    let top = places.project.clone().unwrap_or(directory);
    if args.revoke {
        return revoke(&top, args.listing.list_format);
    }
    // A record that is damaged is said here and not written over.
    let known = wire::decided(&top)?.trust.files().clone();
    let acting = project::survey(&top)?;
    let shown = Shown::new(&places, &acting, &known);
    match args.listing.list_format {
        ListFormat::Json => output::deliver(&shown.json(&top).to_string())?,
        ListFormat::Text => shown.print(&top),
    }
    if shown.is_settled() {
        return Ok(exit::DONE);
    }
    if !args.yes && shown.open() > 0 && !agreed(&shown)? {
        output::talk("nothing was changed");
        return Ok(exit::FAILED);
    }
    project::trust(&wire::state_root()?, &top, project::digests_of(&acting), wire::clock().wall)?;
    output::talk(&format!("trusted: {}", top.display()));
    Ok(exit::DONE)
}

fn revoke(top: &Path, format: ListFormat) -> Result<u8, CliError> {
    let before = project::revoke(&wire::state_root()?, top)?;
    let (files, rules) = (before.trust.files().paths().count(), before.allow.len() + before.deny.len());
    match format {
        ListFormat::Json => {
            let told = json!({"v": 1, "project": top.to_string_lossy(), "revoked": {"files": files, "rules": rules}});
            output::deliver(&told.to_string())?;
        }
        ListFormat::Text => {
            let files = crate::text::count(files, "file is", "files are");
            let rules = crate::text::count(rules, "remembered rule", "remembered rules");
            output::line(&format!("{files} no longer trusted, and {rules} forgotten: {}", top.display()));
        }
    }
    Ok(exit::DONE)
}

/// Asks at a terminal. Headless, nobody has seen anything, so nothing is trusted.
fn agreed(shown: &Shown) -> Result<bool, CliError> {
    if !output::input_is_terminal() || !output::talks_to_terminal() {
        return Err(CliError::new(exit::APPROVAL, "to trust a project somebody must say so")
            .hint("look at the files above, then: decode trust --yes"));
    }
    let what = if shown.open() == 1 { "this file" } else { "these files" };
    output::draw(&format!("Trust {what}? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// One file of the project.
struct File {
    path: String,
    kind: Kind,
    state: State,
    /// What it does once it may, and what it widens.
    does: String,
}

/// How a file stands to what was trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Changed,
    Trusted,
    /// It was trusted and is not there any more.
    Gone,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Trusted => "trusted",
            Self::Gone => "gone",
        }
    }

    /// Whether it takes a decision.
    const fn is_open(self) -> bool {
        match self {
            Self::New | Self::Changed => true,
            Self::Trusted | Self::Gone => false,
        }
    }
}

/// All that is shown before somebody decides.
struct Shown {
    files: Vec<File>,
}

impl Shown {
    fn new(places: &Places, acting: &[Acting], known: &Digests) -> Self {
        let would = Would::new(places, acting);
        let there = acting.iter().map(|file| File {
            path: file.path.clone(),
            kind: file.kind,
            state: match known.get(&file.path) {
                None => State::New,
                Some(digest) if digest == file.digest => State::Trusted,
                Some(_) => State::Changed,
            },
            does: would.tell(file),
        });
        let gone = known.paths().filter(|path| acting.iter().all(|file| file.path != **path)).map(|path| File {
            path: path.to_owned(),
            kind: Kind::Other,
            state: State::Gone,
            does: String::new(),
        });
        Self { files: there.chain(gone).collect() }
    }

    /// Files that take a decision. To forget one that is gone takes none.
    fn open(&self) -> usize {
        self.files.iter().filter(|file| file.state.is_open()).count()
    }

    fn is_settled(&self) -> bool {
        self.files.iter().all(|file| file.state == State::Trusted)
    }

    fn print(&self, top: &Path) {
        let top = crate::text::without_controls(&top.to_string_lossy());
        if self.files.is_empty() {
            output::line(&format!("nothing in {top} acts; there is nothing to trust"));
            return;
        }
        if self.is_settled() {
            let files = crate::text::count(self.files.len(), "file", "files");
            output::line(&format!("{top} is trusted as it is ({files}); decode trust --revoke takes it back"));
            return;
        }
        output::line(&format!("{top}:"));
        for file in self.files.iter().filter(|file| file.state != State::Trusted) {
            let line = format!("  {:<8} {}  {}", file.state.word(), file.path, file.does);
            output::line(crate::text::without_controls(&line).trim_end());
        }
        let kept = self.files.iter().filter(|file| file.state == State::Trusted).count();
        if kept > 0 {
            output::line(&format!("  {} unchanged and trusted", crate::text::count(kept, "file is", "files are")));
        }
    }

    fn json(&self, top: &Path) -> Value {
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|file| {
                json!({
                    "path": file.path,
                    "kind": file.kind.to_string(),
                    "state": file.state.word(),
                    "does": file.does,
                })
            })
            .collect();
        json!({"v": 1, "project": top.to_string_lossy(), "files": files})
    }
}

/// The project's configuration as it would be with all of it trusted, beside what there is without it.
struct Would {
    project: PathBuf,
    with: (Catalog, Skills),
    without: (Catalog, Skills),
    settings: Result<(Settings, Settings), String>,
}

impl Would {
    fn new(places: &Places, acting: &[Acting]) -> Self {
        let trusting = Places { trust: Trust::in_files(project::digests_of(acting)), ..places.clone() };
        let without = Places { project: None, trust: Trust::default(), ..places.clone() };
        let load = |places: &Places| Settings::load(places).map_err(|error| crate::text::chain(&error));
        Self {
            project: places.project.clone().unwrap_or_default(),
            settings: load(&trusting).and_then(|with| Ok((with, load(&without)?))),
            with: (Catalog::load(&trusting), Skills::load(&trusting)),
            without: (Catalog::load(&without), Skills::load(&without)),
        }
    }

    fn tell(&self, file: &Acting) -> String {
        let path = self.project.join(&file.path);
        match file.kind {
            Kind::Persona => self.persona(&path),
            Kind::Skill => self.skill(&path),
            Kind::Settings => self.settings(),
            Kind::SkillFile if is_executable(&path) => "file of a skill, executable".to_owned(),
            Kind::SkillFile | Kind::Recipe | Kind::Program | Kind::Other => file.kind.to_string(),
        }
    }

    fn persona(&self, path: &Path) -> String {
        let (catalog, without) = (&self.with.0, &self.without.0);
        let source = Source::Project(path.to_owned());
        let Some(entry) = catalog.entries.iter().find(|entry| entry.source == source) else {
            let found = catalog.diagnostics.iter().find(|found| found.path == path);
            return found
                .map_or_else(|| "no persona".to_owned(), |found| format!("persona, not used: {}", found.message));
        };
        let Persona { name, tools, mode, allow, .. } = &entry.persona;
        let tools: Vec<&str> = tools.iter().map(|tool| tool.as_str()).collect();
        let mut words = vec![format!("persona `{name}`: {}", tools.join(", "))];
        match mode {
            Mode::Default | Mode::Plan => {}
            Mode::Edit => words.push("edits without asking".to_owned()),
            Mode::Bypass => words.push("asks for nothing (bypass)".to_owned()),
        }
        if !allow.is_empty() {
            let rules: Vec<String> = allow.iter().map(ToString::to_string).collect();
            words.push(format!("allows {}", rules.join(", ")));
        }
        if let Some(replaced) = without.entries.iter().find(|other| other.persona.name == *name) {
            words.push(replaces(&replaced.source));
        }
        words.join("; ")
    }

    fn skill(&self, path: &Path) -> String {
        let (skills, without) = (&self.with.1, &self.without.1);
        let source = Source::Project(path.to_owned());
        let Some(entry) = skills.entries.iter().find(|entry| entry.source == source) else {
            let found = skills.diagnostics.iter().find(|found| found.path == path);
            return found.map_or_else(|| "no skill".to_owned(), |found| format!("skill, not used: {}", found.message));
        };
        let Skill { name, description, callers, .. } = &entry.skill;
        let mut words = vec![format!("skill `{name}`: {}", crate::text::one_line(description, 100))];
        match callers {
            Callers::Anyone => {}
            Callers::People => words.push("only as a slash command".to_owned()),
        }
        if let Some(replaced) = without.entries.iter().find(|other| other.skill.name == *name) {
            words.push(replaces(&replaced.source));
        }
        words.join("; ")
    }

    fn settings(&self) -> String {
        let (with, without) = match &self.settings {
            Ok(both) => both,
            Err(error) => return format!("settings, not usable: {error}"),
        };
        let added = |with: &[String], without: &[String]| -> Vec<String> {
            with.iter().filter(|value| !without.contains(value)).cloned().collect()
        };
        let rules = |rules: &[crate::model::rule::Rule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut does: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        does.insert("allows", added(&rules(&with.allow), &rules(&without.allow)));
        does.insert("denies", added(&rules(&with.deny), &rules(&without.deny)));
        does.insert("carries into workspaces", added(&with.carry, &without.carry));
        if with.model != without.model {
            does.insert("model", with.model.iter().cloned().collect());
        }
        if with.models != without.models {
            let tiers = [&with.models.cheap, &with.models.default, &with.models.strong];
            does.insert("models", tiers.into_iter().flatten().cloned().collect());
        }
        if with.width != without.width {
            does.insert("width", with.width.iter().map(ToString::to_string).collect());
        }
        let words: Vec<String> = does
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(what, values)| format!("{what} {}", values.join(", ")))
            .collect();
        if words.is_empty() { "settings: nothing new".to_owned() } else { format!("settings: {}", words.join("; ")) }
    }
}

fn replaces(source: &Source) -> String {
    match source {
        Source::Bundled => "replaces the bundled one".to_owned(),
        Source::User(path) | Source::Project(path) => format!("replaces yours ({})", path.display()),
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// What a start says of a project that brings something the user has not trusted.
pub(super) fn note(directory: &Path, catalog: &Catalog) -> Option<String> {
    let places = wire::places(directory);
    let top = places.project.as_deref().filter(|top| project::brings_something(top))?;
    let skills = Skills::load(&places).untrusted.len();
    let personas = catalog.untrusted.len();
    let counted = [(personas, "persona", "personas"), (skills, "skill", "skills")];
    let parts: Vec<String> = counted
        .into_iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, one, many)| crate::text::count(number, one, many))
        .collect();
    if parts.is_empty() {
        return None;
    }
    let are = if personas + skills == 1 { "is" } else { "are" };
    let parts = parts.join(" and ");
    Some(format!("{} brings {parts} that {are} not trusted; `decode trust` shows what would act", top.display()))
}
