//! Names the concrete adapters and puts them together; nothing else does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::error::CliError;
use super::exit;
use crate::agent::{Model, Switchboard};
use crate::command::identity::Identity;
use crate::model::brief::Claim;
use crate::model::id::{RunId, Target};
use crate::model::persona::Persona;
use crate::model::provider;
use crate::model::time::{Now, Timestamp};
use crate::provider::Provider;
use crate::provider::client::Proxies;
use crate::provider::http::{Endpoint, Http};
use crate::provider::offline::Explorer;
use crate::provider::script::ScriptModel;
use crate::store::catalog::Catalog;
use crate::store::handover::{Access, Handover};
use crate::store::key::Key;
use crate::store::places::{self, Places};
use crate::store::project::{self, Project};
use crate::store::run;
use crate::store::settings::{Sandbox, Settings};
use crate::store::skills::Skills;
use crate::store::{RunDir, StateRoot};
use crate::supervisor::{self, Here, World};
use crate::terminal::bare::Bare;
use crate::terminal::server::{Server, SocketName};
use crate::terminal::tmux::Tmux;
use crate::tool::{self, Tool};

/// Both clocks.
pub(super) fn clock() -> Now {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let mono_ms = BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64;
    // A clock before 1970 is a clock that is not set; the epoch is as good as any guess.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    Now { mono_ms, wall: Timestamp::from_millis(wall) }
}

/// A runtime of one thread, made where something waits.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::new(exit::MISSING, format!("the runtime cannot start: {source}")))
}

/// A variable of our own environment; one that is empty says nothing.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(super) fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

/// The state directory, made if it is not there.
pub(super) fn state_root() -> Result<StateRoot, CliError> {
    let path = state_path()
        .ok_or_else(|| CliError::missing("there is no home directory").hint("set DECODE_STATE to a directory"))?;
    let path = std::path::absolute(&path)?;
    Ok(run::open_root(&path)?)
}

fn state_path() -> Option<PathBuf> {
    variable("DECODE_STATE")
        .map(PathBuf::from)
        .or_else(|| variable("XDG_STATE_HOME").map(|path| Path::new(&path).join("decode")))
        .or_else(|| home().map(|home| home.join(".local/state/decode")))
}

pub(super) fn key(state: &StateRoot) -> Result<Key, CliError> {
    Ok(Key::load_or_create(&state.key())?)
}

/// The directory work is asked for, absolute and without links.
pub(super) fn project(cwd: Option<&Path>) -> Result<PathBuf, CliError> {
    let path = match cwd {
        Some(path) => path.to_owned(),
        None => std::env::current_dir()?,
    };
    let found = std::fs::canonicalize(&path)
        .map_err(|error| CliError::usage(format!("`{}` is not a directory to work in: {error}", path.display())))?;
    if !found.is_dir() {
        return Err(CliError::usage(format!("`{}` is not a directory", path.display())));
    }
    if found.to_str().is_none() {
        return Err(
            CliError::usage(format!("`{}` is not UTF-8", path.display())).hint("move the project to a path that is")
        );
    }
    Ok(found)
}

/// Where configuration lies for a project.
pub(super) fn places(project: &Path) -> Places {
    places_as(project, state_path().map(StateRoot::at).as_ref(), &variable)
}

/// The same for a child: its own environment is that of a window, so the caller's counts.
pub(super) fn places_of_caller(project: &Path, state: &StateRoot, environment: &[(String, String)]) -> Places {
    let of_caller = |name: &str| {
        let found = environment.iter().find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.clone()).or_else(|| variable(name))
    };
    places_as(project, Some(state), &of_caller)
}

fn places_as(project: &Path, state: Option<&StateRoot>, variable: &dyn Fn(&str) -> Option<String>) -> Places {
    // A project is held against home by its real path.
    let home = variable("HOME").map(|home| std::fs::canonicalize(&home).unwrap_or_else(|_| PathBuf::from(home)));
    let user = variable("XDG_CONFIG_HOME")
        .map(|path| Path::new(&path).join("decode"))
        .or_else(|| home.as_ref().map(|home| home.join(".config/decode")));
    let top = places::top_of(project);
    // Most projects bring nothing, and then nothing is read. A record that is damaged trusts nothing; whoever starts
    // something asks `decided`, which says so.
    let trust = match state.filter(|_| project::brings_something(top)) {
        Some(state) => project::load(state, top).unwrap_or_default().trust,
        None => places::Trust::default(),
    };
    Places { user, home, project: Some(top.to_owned()), trust }
}

/// What the user decided about a project: trust, and the rules that were answered with "always".
pub(super) fn decided(project: &Path) -> Result<Project, CliError> {
    match state_path() {
        Some(state) => Ok(project::load(&StateRoot::at(state), project)?),
        None => Ok(Project::default()),
    }
}

pub(super) fn skills(project: &Path) -> Skills {
    Skills::load(&places(project))
}

pub(super) fn catalog(project: &Path) -> Catalog {
    Catalog::load(&places(project))
}

pub(super) fn settings(project: &Path) -> Result<Settings, CliError> {
    Ok(Settings::load(&places(project))?)
}

/// The caller's environment, as far as it is text.
pub(super) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Where one-time files may lie that nobody else can read.
pub(super) fn private_directory() -> Option<PathBuf> {
    variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir())
}

pub(super) fn in_ci() -> bool {
    variable("CI").is_some()
}

/// The base URL a user's environment names for a provider.
pub(super) fn base_url_of(provider: &str) -> Option<String> {
    match provider {
        "openai" => variable("OPENAI_BASE_URL"),
        "anthropic" => variable("ANTHROPIC_BASE_URL"),
        "gemini" => variable("GOOGLE_GEMINI_BASE_URL"),
        "openrouter" => variable("OPENROUTER_BASE_URL"),
        "ollama" => variable("OLLAMA_HOST").map(|host| provider::url_of_host(&host)),
        _ => None,
    }
}

/// The model behind `provider/name`.
pub(super) fn provider(model: &str, handover: &Handover) -> Result<Arc<dyn Provider>, CliError> {
    let (provider, name) = model.split_once('/').unwrap_or((model, ""));
    match provider {
        "offline" => Ok(Arc::new(Explorer { pace: Duration::from_millis(handover.pace_ms) })),
        "script" => match ScriptModel::open(Path::new(name)) {
            Ok(script) => Ok(Arc::new(script)),
            Err(error) => Err(CliError::from_error(exit::MISSING, &error)
                .hint("give the path of a script, as in script/turns.jsonl: one JSON object a line")),
        },
        _ => {
            let access = handover.access.iter().find(|access| access.provider == provider).ok_or_else(|| {
                CliError::missing(format!("nothing is known of the provider `{provider}`"))
                    .hint("name it under `providers` in ~/.config/decode/settings.yaml")
            })?;
            Ok(Arc::new(Http::new(endpoint(access, handover))))
        }
    }
}

/// Finds personas and models that a person names in the middle of a session.
pub(super) struct Switches {
    /// Where the caller of the run keeps personas and settings.
    pub(super) places: Places,
    pub(super) handover: Handover,
}

impl Switchboard for Switches {
    fn persona(&self, name: &str) -> Result<(Persona, String), String> {
        let catalog = Catalog::load(&self.places);
        let entry = catalog.get(name).map_err(|error| error.to_string())?;
        // The user's own rules hold for every persona, also for one that comes later.
        let settings = Settings::load(&self.places).map_err(|error| crate::text::chain(&error))?;
        let mut persona = entry.persona.clone();
        persona.allow.extend(settings.allow);
        persona.deny.extend(settings.deny);
        Ok((persona, entry.prompt.clone()))
    }

    fn model(&self, name: &str) -> Result<Model, String> {
        let provider = provider(name, &self.handover).map_err(|error| error.message)?;
        Ok(Model { name: name.to_owned(), provider, price: None, window_tokens: super::here::WINDOW_TOKENS })
    }
}

fn endpoint(access: &Access, handover: &Handover) -> Endpoint {
    Endpoint {
        base_url: access.base_url.clone(),
        key: access.key.clone(),
        // This process has almost nothing of the caller's environment but what was handed over.
        proxies: Proxies::of(&handover.environment),
        ..Endpoint::new(access.kind)
    }
}

/// Every tool that an attempt can have.
pub(super) fn tools(kit: tool::Kit) -> Vec<Arc<dyn Tool>> {
    tool::all(kit)
}

/// The tmux server of all runs.
pub(super) fn tmux_server() -> Result<Server, CliError> {
    let socket = match variable("DECODE_TMUX_SOCKET") {
        Some(name) => SocketName::new(&name)?,
        None => SocketName::default(),
    };
    Ok(Server::new(socket, std::env::vars_os()))
}

/// The tmux server of all runs for a caller with this environment, which may not be our own.
pub(super) fn tmux_server_for(environment: &[(String, String)]) -> Result<Server, CliError> {
    let named = environment.iter().find(|(name, value)| name == "DECODE_TMUX_SOCKET" && !value.is_empty());
    let socket = match named {
        Some((_, name)) => SocketName::new(name)?,
        None => SocketName::default(),
    };
    Ok(Server::new(socket, environment.iter().map(|(name, value)| (name.into(), value.into()))))
}

/// What tmux tells a process of its window: the socket, and more.
pub(super) fn tmux_of_window() -> Option<String> {
    variable("TMUX")
}

/// The tmux server whose window this process runs in: its environment is tmux's, so that `TMUX` names the socket.
pub(super) fn tmux_server_of_window() -> Result<Server, CliError> {
    let socket = variable("TMUX")
        .and_then(|value| Some(Path::new(value.split(',').next()?).file_name()?.to_string_lossy().into_owned()));
    match socket {
        Some(name) => Ok(Server::new(SocketName::new(&name)?, std::env::vars_os())),
        None => tmux_server(),
    }
}

/// The user's own tmux configuration for this server.
pub(super) fn tmux_configuration() -> PathBuf {
    places(Path::new("/")).user.map_or_else(PathBuf::new, |user| user.join("tmux.conf"))
}

/// This binary, as every child is to run it.
pub(super) fn executable() -> Result<PathBuf, CliError> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    Err(CliError::missing(format!("`{}` was replaced while it ran", path.display())).hint("start decode again"))
}

/// What a supervisor of windows or detached processes is given.
pub(super) fn world(
    run: RunDir,
    handover: Handover,
    place: crate::model::run::Place,
    caller: Option<i32>,
) -> Result<World, CliError> {
    let state = run.state().ok_or_else(|| CliError::usage("this is not a run's directory"))?;
    let name = run.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (places, socket) = match place {
        crate::model::run::Place::Window => {
            let server = tmux_server_of_window()?;
            let socket = server.socket().as_str().to_owned();
            (supervisor::Places::Terminal(Arc::new(Tmux::new(server, &name)?)), Some(socket))
        }
        crate::model::run::Place::Bare | crate::model::run::Place::Here => {
            let environment: Vec<(OsString, OsString)> = plain_environment();
            (supervisor::Places::Terminal(Arc::new(Bare::new(environment, PathBuf::from("/")))), None)
        }
    };
    let key = key(&state)?;
    Ok(World {
        state,
        run,
        executable: executable()?,
        key,
        handover,
        private: private_directory(),
        clock,
        places,
        socket,
        caller,
    })
}

/// The same for attempts that are tasks of this process.
pub(super) fn world_here(run: RunDir, handover: Handover, here: Arc<dyn Here>) -> Result<World, CliError> {
    let state = run.state().ok_or_else(|| CliError::usage("this is not a run's directory"))?;
    let key = key(&state)?;
    Ok(World {
        state,
        run,
        executable: PathBuf::new(),
        key,
        handover,
        private: None,
        clock,
        places: supervisor::Places::Here(here),
        socket: None,
        caller: None,
    })
}

/// What a detached process needs of our environment; all else comes by handover.
pub(super) fn plain_environment() -> Vec<(OsString, OsString)> {
    const KEPT: [&str; 8] = ["PATH", "HOME", "LANG", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "TZ"];
    std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(|name| KEPT.contains(&name) || name.starts_with("LC_")))
        .collect()
}

/// Who this process is, for a claim.
pub(super) fn claim() -> Claim {
    let me = Identity::of_self();
    Claim {
        v: Claim::VERSION,
        revoked: false,
        at: clock().wall,
        pid: me.pid,
        start_time: me.start_time,
        boot_id: me.boot_id,
        host: me.host,
        process_group: nix::unistd::getpgrp().as_raw(),
        pane: variable("TMUX_PANE"),
    }
}

/// The run and its directory that a person named.
pub(super) fn find(target: &Target) -> Result<(StateRoot, RunId, RunDir), CliError> {
    let state = state_root()?;
    let run = run::resolve(&state, &target.run, &project(None)?)?;
    let directory = state.run(&run);
    Ok((state, run, directory))
}

/// Whether the kernel holds a writer's commands to its workspace.
pub(super) fn sandbox_holds(wanted: Sandbox) -> bool {
    match wanted {
        Sandbox::On => crate::sandbox::holds(),
        Sandbox::Off => false,
    }
}

/// What the start line says of it.
pub(super) fn sandbox_words(wanted: Sandbox) -> String {
    match wanted {
        Sandbox::On if crate::sandbox::holds() => format!("sandbox: {}", crate::sandbox::support().words()),
        Sandbox::On | Sandbox::Off => super::output::alarming("sandbox: off"),
    }
}
