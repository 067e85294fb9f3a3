//! From flags, personas and settings to what a run is made of. Every door ends here: one way to make a child.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::CliError;
use super::flags::{Common, Limits, OnExitFlag, TerminalFlag};
use super::{exit, trust, wire};
use crate::machine::environment;
use crate::machine::model_choice::{self, Candidate, ChoiceError, KNOWN, OFFLINE, Wishes, key_names};
use crate::machine::prompts::Prompt;
use crate::model::budget::Budget;
use crate::model::child::{Ask, ChildSpec, Evidence, Harness};
use crate::model::id::{RUN_LENGTH, RunId};
use crate::model::persona::{Mode, Persona};
use crate::model::provider::{ProviderKind, provider_of};
use crate::model::run::{OnExit, Place, RunSpec};
use crate::model::tool_name::ToolName;
use crate::store::catalog::{Catalog, Entry, Source};
use crate::store::diagnostic::{Diagnostic, Severity};
use crate::store::handover::{Access, Handover};
use crate::store::run::NewRun;
use crate::store::settings::Settings;
use crate::workspace::{self, Choice, Recipe};

/// Why there is no `web_search`.
pub(super) const NO_SEARCH: &str =
    "web_search is absent: settings name no `web_search: {endpoint: URL}` that answers with SearXNG's JSON";

/// What a run starts from.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) new: NewRun,
    pub(super) handover: Handover,
    /// One line: what is started.
    pub(super) start_line: String,
    /// What a person should know before it starts.
    pub(super) notes: Vec<String>,
}

/// What differs between the verbs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Door<'a> {
    pub(super) default_agent: &'a str,
    pub(super) place: Place,
    pub(super) session: Option<&'a str>,
    pub(super) resume: Option<&'a Path>,
    pub(super) append_system_prompt: Option<&'a str>,
    pub(super) schema: Option<&'a serde_json::Value>,
}

/// The place that flags ask for.
pub(super) fn place(common: &Common) -> Place {
    match common.terminal {
        TerminalFlag::Tmux => Place::Window,
        TerminalFlag::Bare => Place::Bare,
    }
}

/// How deep a run would be that starts here; a child starts none.
///
/// Asked before anything else: a command of a child that is told of an unwritable state directory makes one of its own.
pub(super) fn depth() -> Result<u32, CliError> {
    match super::depth::depth() {
        0 => Ok(0),
        _ => Err(CliError::usage("a child may not start children of its own (depth 1)")
            .hint("do the work in this session, or ask for it in your report")),
    }
}

/// Turns prompts into a run. Nothing is written and nothing spent yet.
pub(super) async fn build(prompts: Vec<Prompt>, common: &Common, door: Door<'_>) -> Result<Asked, CliError> {
    refuse_what_is_not_built(common)?;
    let depth = depth()?;
    let project = wire::project(common.cwd.as_deref())?;
    let settings = wire::settings(&project)?;
    let mut notes: Vec<String> = Vec::new();
    if let Some(path) = &settings.left_out {
        notes.push(format!("{} is not used: this project is not trusted", path.display()));
    }
    if !settings.carry.is_empty() {
        notes.push("`workspace.carry` is not built yet: of ignored files only .env and .env.* come along".to_owned());
    }
    let candidates = candidates(&settings);
    let known = Known::default();
    let mut builder = Builder { common, door, settings: &settings, project: &project, candidates: &candidates, known };
    let mut children = Vec::new();
    for prompt in &prompts {
        children.push(builder.build(prompt, &mut notes).await?);
    }
    let handover = handed(&children, &settings)?;
    let free = children.iter().all(|child| is_free(&child.model));
    let usual = settings.budget.map_or(Budget::RUN, |budget| budget.or(Budget::RUN));
    // Tokens bind where the cost is not known; where it is, dollars do.
    let usual = if free { Budget { tokens: None, ..usual } } else { usual };
    let limits = common.budget.map_or(usual, |flag| flag.over(usual));
    if children.len() > 8 && !free && !common.yes {
        return Err(CliError::new(
            exit::APPROVAL,
            format!("{} children with a model that costs need your word", children.len()),
        )
        .hint(format!("add --yes to spend at most {limits}")));
    }
    let spec = RunSpec {
        run: RunId::from_random([0; RUN_LENGTH]),
        goal: goal(&prompts),
        project: text(&project),
        created: wire::clock().wall,
        place: door.place,
        width: common.width.or(settings.width).unwrap_or(RunSpec::WIDTH),
        limits,
        on_exit: match common.on_exit {
            Some(OnExitFlag::Stop) => OnExit::Stop,
            Some(OnExitFlag::Detach) => OnExit::Detach,
            None if wire::in_ci() && !common.detach => OnExit::Stop,
            None => OnExit::Detach,
        },
        fold_bytes: RunSpec::FOLD_BYTES,
        parent: wire::variable(environment::PARENT).filter(|_| depth > 0),
        depth,
    };
    let start_line = start_line(&children, &handover, limits);
    let mut told = BTreeSet::new();
    notes.retain(|note| told.insert(note.clone()));
    Ok(Asked { new: NewRun { spec, children }, handover, start_line, notes })
}

fn refuse_what_is_not_built(common: &Common) -> Result<(), CliError> {
    if common.harness != "decode" {
        return Err(CliError::usage(format!("the harness `{}` is not built yet", common.harness))
            .hint("leave --harness out: decode runs the loop itself"));
    }
    Ok(())
}

pub(super) fn goal(prompts: &[Prompt]) -> String {
    match prompts {
        [one] => one.label(),
        [first, rest @ ..] => format!("{} (and {} more)", first.label(), rest.len()),
        [] => String::new(),
    }
}

/// Makes children, one after the other.
struct Builder<'a> {
    common: &'a Common,
    door: Door<'a>,
    settings: &'a Settings,
    project: &'a Path,
    candidates: &'a [Candidate],
    known: Known,
}

/// What was looked up for one child holds for the next: hundreds of prompts mostly mean one directory.
#[derive(Default)]
struct Known {
    catalogs: BTreeMap<PathBuf, Arc<Catalog>>,
    /// By recipe asked for, whether the child only reads, and where it works.
    choices: BTreeMap<(Option<String>, bool, PathBuf), Choice>,
    /// Scripts that were read and are sound.
    scripts: BTreeSet<PathBuf>,
}

impl Builder<'_> {
    async fn build(&mut self, prompt: &Prompt, notes: &mut Vec<String>) -> Result<ChildSpec, CliError> {
        if let Some(harness) = prompt.harness.as_deref().filter(|harness| *harness != "decode") {
            return Err(CliError::usage(format!("the harness `{harness}` is not built yet")));
        }
        let cwd = match &prompt.cwd {
            Some(cwd) => wire::project(Some(&self.project.join(cwd)))?,
            None => self.project.to_owned(),
        };
        let catalog = self.catalog(&cwd, notes)?;
        let name = prompt.agent.as_deref().or(self.common.agent.as_deref()).unwrap_or(self.door.default_agent);
        let entry = catalog.get(name)?;
        notes.extend(remarks(&catalog, entry));
        let mut persona = self.adjusted(&entry.persona);
        let model = self.model(prompt, &persona)?;
        if model == OFFLINE {
            // A search has no use for tools that change anything, and needs no workspace.
            persona.tools.retain(|tool| matches!(tool, ToolName::Read | ToolName::Glob | ToolName::Grep));
        }
        let asked = prompt.workspace.as_deref().unwrap_or(&self.common.workspace);
        let asked = (asked != "auto").then_some(asked);
        // Commands without edits share the project where the kernel keeps them from writing.
        let edits = persona.tools.iter().any(|tool| matches!(tool, ToolName::Write | ToolName::Edit));
        let confined = wire::sandbox_holds(self.settings.sandbox.unwrap_or_default());
        let held = !edits && confined;
        let choice = self.choice(asked, persona.only_reads() || held, &cwd).await?;
        if choice.recipe == Recipe::Shared {
            persona.tools.retain(|tool| tool.only_reads() || (*tool == ToolName::Bash && confined));
            if edits && choice.note.is_none() {
                notes
                    .push(format!("`{name}` cannot edit in `shared`; leave --workspace out to give it a git worktree"));
            }
        }
        notes.extend(choice.note);
        notes.extend(workspace::remarks(choice.recipe, &cwd).await);
        if persona.tools.contains(&ToolName::WebSearch) && self.settings.web_search.is_none() {
            notes.push(NO_SEARCH.to_owned());
        }
        self.refuse_what_would_ask(&persona)?;
        let mut system = entry.prompt.clone();
        if let Some(more) = self.door.append_system_prompt {
            system.push_str("\n\n");
            system.push_str(more);
        }
        let usual = self.settings.child_budget.map_or(Budget::CHILD, |budget| budget.or(Budget::CHILD));
        let evidence =
            if persona.only_reads() && self.door.schema.is_none() { Evidence::Required } else { Evidence::NotRequired };
        Ok(ChildSpec {
            label: prompt.label(),
            prompt: prompt.prompt.clone(),
            persona,
            system,
            model,
            harness: Harness::Decode,
            workspace: choice.recipe.name().to_owned(),
            cwd: text(&cwd),
            budget: prompt.budget.map(Limits::Some).or(self.common.child_budget).map_or(usual, |flag| flag.over(usual)),
            retries: self.common.retries,
            evidence,
            needs: Vec::new(),
            ask: if self.common.ask { Ask::Always } else { Ask::IfSomebodyIsThere },
            resume: self.door.resume.map(text),
            session: self.door.session.map(str::to_owned),
            schema: self.door.schema.cloned(),
        })
    }

    /// The personas of a directory; what its project brings is told when it is first met.
    fn catalog(&mut self, cwd: &Path, notes: &mut Vec<String>) -> Result<Arc<Catalog>, CliError> {
        if let Some(catalog) = self.known.catalogs.get(cwd) {
            return Ok(catalog.clone());
        }
        // Here, before anything is spent: an attempt that cannot read what was decided does not begin.
        wire::decided(cwd)?;
        let catalog = Arc::new(wire::catalog(cwd));
        notes.extend(trust::note(cwd, &catalog));
        self.known.catalogs.insert(cwd.to_owned(), catalog.clone());
        Ok(catalog)
    }

    async fn choice(&mut self, asked: Option<&str>, only_reads: bool, cwd: &Path) -> Result<Choice, CliError> {
        let question = (asked.map(str::to_owned), only_reads, cwd.to_owned());
        if let Some(choice) = self.known.choices.get(&question) {
            return Ok(choice.clone());
        }
        let choice = workspace::choose(asked, only_reads, cwd).await?;
        self.known.choices.insert(question, choice.clone());
        Ok(choice)
    }

    /// The persona with the flags and the user's rules on top.
    fn adjusted(&self, persona: &Persona) -> Persona {
        let mut persona = persona.clone();
        persona.mode = self.common.permission_mode.unwrap_or(persona.mode);
        persona.allow.extend(self.settings.allow.iter().chain(&self.common.allow).cloned());
        persona.deny.extend(self.settings.deny.iter().chain(&self.common.deny).cloned());
        persona
    }

    fn model(&mut self, prompt: &Prompt, persona: &Persona) -> Result<String, CliError> {
        let tiers = [
            ("cheap", self.settings.models.cheap.as_deref()),
            ("default", self.settings.models.default.as_deref()),
            ("strong", self.settings.models.strong.as_deref()),
        ];
        let wishes = Wishes {
            flag: prompt.model.as_deref().or(self.common.model.as_deref()),
            persona: persona.model.as_deref(),
            only_reads: persona.only_reads(),
            settings: self.settings.model.as_deref(),
            settings_tiers: tiers.into_iter().filter_map(|(tier, model)| Some((tier, model?))).collect(),
            candidates: self.candidates,
        };
        let model = model_choice::choose(&wishes).map_err(|error| match &error {
            ChoiceError::Ambiguous { example, .. } => CliError::usage(error.to_string())
                .hint(format!("write a line such as `{example}` to ~/.config/decode/settings.yaml, or give --model")),
            ChoiceError::NotAModel { .. } => CliError::usage(error.to_string()),
            ChoiceError::NoTier { tier } => CliError::usage(error.to_string())
                .hint(format!("write `models: {{{tier}: provider/name}}` to ~/.config/decode/settings.yaml")),
        })?;
        // A child works elsewhere: a script is named from where it was asked.
        match model.strip_prefix("script/") {
            Some(file) => {
                let path = std::path::absolute(file)?;
                if !self.known.scripts.contains(&path) {
                    wire::provider(&format!("script/{}", text(&path)), &Handover::default())?;
                    self.known.scripts.insert(path.clone());
                }
                Ok(format!("script/{}", text(&path)))
            }
            None if model.starts_with("offline/") && model != OFFLINE => {
                Err(CliError::usage(format!("`{model}` is not a model; the one without a key is {OFFLINE}")))
            }
            None => Ok(model),
        }
    }

    /// A headless start that would have to ask for its first write is refused before it spends anything.
    fn refuse_what_would_ask(&self, persona: &Persona) -> Result<(), CliError> {
        let writes = persona.tools.iter().any(|tool| !tool.only_reads());
        let covered = |tool: ToolName| persona.allow.iter().any(|rule| rule.tool == tool);
        let asks = persona.mode == Mode::Default
            && !covered(ToolName::Write)
            && !covered(ToolName::Edit)
            && !covered(ToolName::Bash);
        if !writes || !asks || self.common.ask || wire::sandbox_holds(self.settings.sandbox.unwrap_or_default()) {
            return Ok(());
        }
        Err(CliError::new(exit::APPROVAL, format!("`{}` would have to ask before its first write", persona.name))
            .hint("add --permission-mode edit, or --ask and answer in its window; the sandbox is not in force here"))
    }
}

/// What a start says of persona files: all that concerns the one that is used, and of the others what makes them unusable.
fn remarks(catalog: &Catalog, used: &Entry) -> Vec<String> {
    let concerns = |found: &&Diagnostic| {
        let of_it = match &used.source {
            Source::Bundled => false,
            Source::User(path) | Source::Project(path) => found.path == *path,
        };
        of_it || found.severity == Severity::Error
    };
    catalog.diagnostics.iter().filter(concerns).map(ToString::to_string).collect()
}

/// Providers whose key, or whose address, the user has set.
fn candidates(settings: &Settings) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (name, _, tiers) in KNOWN {
        if let Some((key_name, _)) = key(settings, name) {
            let tiers: BTreeMap<&'static str, &'static str> = tiers.iter().copied().collect();
            found.push(Candidate { provider: (*name).to_owned(), key_name, tiers });
        }
    }
    found
}

/// The variables that may hold a provider's key: the one that the settings name, else the usual ones.
fn keys(settings: &Settings, provider: &str) -> Vec<String> {
    let named = settings.providers.get(provider).and_then(|named| named.key_env.as_ref());
    match named {
        Some(name) => vec![name.as_str().to_owned()],
        None => key_names(provider).iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The first variable that holds a key, and the key.
fn key(settings: &Settings, provider: &str) -> Option<(String, String)> {
    keys(settings, provider).into_iter().find_map(|name| {
        let key = wire::variable(&name)?;
        Some((name, key))
    })
}

/// How to reach each provider that some child speaks to.
fn access(children: &[ChildSpec], settings: &Settings) -> Result<Vec<Access>, CliError> {
    let providers: BTreeSet<&str> =
        children.iter().map(|child| provider_of(&child.model)).filter(|name| !is_local(name)).collect();
    providers.into_iter().map(|provider| access_to(provider, settings)).collect()
}

fn access_to(provider: &str, settings: &Settings) -> Result<Access, CliError> {
    let named = settings.providers.get(provider);
    let told = named.and_then(|named| named.kind).or_else(|| ProviderKind::of(provider));
    let kind = match told {
        Some(kind) => kind,
        // What people run themselves mostly speaks this one.
        None if named.is_some() => ProviderKind::OpenAi,
        None => {
            return Err(CliError::usage(format!("nothing is known of the provider `{provider}`")).hint(format!(
                "write `providers: {{{provider}: {{base_url: URL}}}}` to ~/.config/decode/settings.yaml"
            )));
        }
    };
    let base_url = named
        .and_then(|named| named.base_url.as_ref())
        .map(|url| url.as_str().to_owned())
        .or_else(|| wire::base_url_of(provider));
    let key = key(settings, provider).map(|(_, key)| key);
    if key.is_none() && base_url.is_none() && kind != ProviderKind::Ollama {
        let usual = || format!("{}_API_KEY", provider.to_uppercase());
        let name = keys(settings, provider).into_iter().next().unwrap_or_else(usual);
        return Err(CliError::missing(format!("{name} is not set")).hint(format!("export {name}=…")));
    }
    Ok(Access { provider: provider.to_owned(), kind, base_url, key })
}

fn is_local(provider: &str) -> bool {
    matches!(provider, "offline" | "script")
}

fn is_free(model: &str) -> bool {
    is_local(provider_of(model))
}

/// What is started, in one line.
pub(super) fn start_line(children: &[ChildSpec], handover: &Handover, limits: Budget) -> String {
    let each = |of: fn(&ChildSpec) -> String| -> String {
        let set: BTreeSet<String> = children.iter().map(of).collect();
        set.into_iter().collect::<Vec<_>>().join(" + ")
    };
    let models: BTreeSet<String> = children.iter().map(|child| model_words(&child.model, handover)).collect();
    let reads = children.iter().all(|child| child.persona.only_reads());
    let mut words = vec![
        crate::text::count(children.len(), "child", "children"),
        each(|child| child.persona.name.clone()),
        models.into_iter().collect::<Vec<_>>().join(" + "),
        each(|child| child.workspace.clone()),
    ];
    words.push(if reads { "read only".to_owned() } else { wire::sandbox_words(handover.sandbox) });
    words.push(if limits == Budget::NONE { "no limit".to_owned() } else { format!("at most {limits}") });
    words.join(" · ")
}

fn model_words(model: &str, handover: &Handover) -> String {
    if model == OFFLINE {
        return format!("{model} (no model, search only)");
    }
    let provider = provider_of(model);
    let keyed = handover.access.iter().any(|access| access.provider == provider && access.key.is_some());
    // Where several variables may hold it, the one that does.
    let set = key_names(provider).iter().find(|name| wire::variable(name).is_some());
    match set.filter(|_| keyed) {
        Some(name) => format!("{model} ({name})"),
        None => model.to_owned(),
    }
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

/// What children of an earlier run need to go on: this caller's environment and keys.
pub(super) fn handover(children: &[ChildSpec]) -> Result<Handover, CliError> {
    let settings = wire::settings(&wire::project(None)?)?;
    handed(children, &settings)
}

fn handed(children: &[ChildSpec], settings: &Settings) -> Result<Handover, CliError> {
    Ok(Handover {
        environment: wire::environment(),
        access: access(children, settings)?,
        pace_ms: pace(settings),
        web_search: settings.web_search.as_ref().map(|url| url.as_str().to_owned()),
        lsp: settings.lsp.clone(),
        sandbox: settings.sandbox.unwrap_or_default(),
    })
}

/// How slowly the built-in search works, so that people can watch.
fn pace(settings: &Settings) -> u64 {
    wire::variable("DECODE_OFFLINE_PACE_MS")
        .and_then(|text| text.parse().ok())
        .or(settings.offline_pace_ms)
        .unwrap_or(0)
}

/// Random bytes for a run's name.
pub(super) fn random() -> [u8; RUN_LENGTH] {
    let mut bytes = [0; RUN_LENGTH];
    bytes.copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..RUN_LENGTH]);
    bytes
}
