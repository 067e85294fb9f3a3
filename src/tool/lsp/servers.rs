//! The language servers of an attempt: which there are, started when first needed, one for each language and root.
//!
//! Deliberately absent: what is asked of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::problem;
use super::session::{Launch, SHOWN, Session};
use crate::model::language_server::LanguageServer;
use crate::text;
use crate::tool::diff::Before;
use crate::tool::write::Change;
use crate::tool::{Answer, Scope, Unconfined};

/// A server that keeps ending is not started for ever.
const STARTS: u32 = 3;

/// How long a write waits for what it broke.
const AFTER_A_CHANGE: Duration = Duration::from_secs(2);

/// New errors that are shown after a change.
const NEW_ERRORS: usize = 10;

/// A language and the servers that speak it, the better one first.
struct Known {
    extensions: &'static [&'static str],
    commands: &'static [&'static [&'static str]],
    /// Files that mark the directory of a project.
    markers: &'static [&'static str],
}

const KNOWN: &[Known] = &[
    Known { extensions: &["rs"], commands: &[&["rust-analyzer"]], markers: &["Cargo.toml"] },
    Known {
        extensions: &["py", "pyi"],
        commands: &[&["basedpyright-langserver", "--stdio"], &["pyright-langserver", "--stdio"], &["ty", "server"]],
        markers: &["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"],
    },
    Known { extensions: &["go"], commands: &[&["gopls"]], markers: &["go.work", "go.mod"] },
    Known {
        extensions: &["ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs"],
        commands: &[&["typescript-language-server", "--stdio"]],
        markers: &["tsconfig.json", "jsconfig.json", "package.json"],
    },
];

/// A server by its command and the project it serves.
type Key = (Vec<String>, PathBuf);
type Started = Result<Arc<Session>, String>;

#[derive(Debug, Default)]
struct Slot {
    starts: u32,
    session: Arc<OnceCell<Started>>,
}

/// All of them. Dropped with the tools of the attempt, and every server with it.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    named: Vec<LanguageServer>,
    unconfined: Unconfined,
    slots: Mutex<BTreeMap<Key, Slot>>,
}

impl Servers {
    pub(in crate::tool) fn new(named: Vec<LanguageServer>, unconfined: Unconfined) -> Self {
        Self { named, unconfined, slots: Mutex::default() }
    }

    /// The server for a file, started if it does not run. An error says why there is none.
    pub(super) async fn session(&self, path: &Path, scope: &Scope) -> Started {
        let launch = self.launch(path, scope)?;
        if scope.sandbox.is_none() && self.unconfined == Unconfined::Refused {
            return Err(format!(
                "`{}` runs code of the project, and without a sandbox only in a trusted project or in mode edit",
                launch.name
            ));
        }
        let cell = self.cell(&launch)?;
        cell.get_or_init(|| async { Ok(Arc::new(Session::start(launch, scope).await?)) }).await.clone()
    }

    /// The place of a server. One that has ended makes room for the next.
    fn cell(&self, launch: &Launch) -> Result<Arc<OnceCell<Started>>, String> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry((launch.argv.clone(), launch.root.clone())).or_default();
        let ended = matches!(slot.session.get(), Some(Ok(session)) if session.is_over());
        if ended && slot.starts < STARTS {
            slot.session = Arc::default();
        } else if ended {
            return Err(format!("`{}` has ended {STARTS} times", launch.name));
        }
        if slot.session.get().is_none() {
            slot.starts += 1;
        }
        Ok(Arc::clone(&slot.session))
    }

    /// The server for a file if it runs already.
    fn running(&self, path: &Path, scope: &Scope) -> Option<Arc<Session>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.is_empty() {
            return None;
        }
        let launch = self.launch(path, scope).ok()?;
        let slot = slots.get(&(launch.argv, launch.root))?;
        slot.session.get()?.as_ref().ok().filter(|session| !session.is_over()).cloned()
    }

    fn launch(&self, path: &Path, scope: &Scope) -> Result<Launch, String> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let search = scope.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        let find = |program: &str| find(program, search, &scope.root);
        if let Some(named) = self.named.iter().find(|named| named.extensions.iter().any(|end| end == extension)) {
            let program = find(&named.command[0]).ok_or_else(|| {
                format!("`{}`, which settings name for .{extension}, is not installed", named.command[0])
            })?;
            let argv = [vec![program], named.command[1..].to_vec()].concat();
            return Ok(Launch { name: named.name.clone(), argv, root: scope.root.clone() });
        }
        let known = KNOWN.iter().find(|known| known.extensions.contains(&extension));
        let known = known.ok_or_else(|| format!("no language server is known for `.{extension}` files"))?;
        let found = known.commands.iter().find_map(|command| Some((command[0], find(command[0])?, &command[1..])));
        let Some((name, program, arguments)) = found else {
            let names: Vec<&str> = known.commands.iter().map(|command| command[0]).collect();
            return Err(format!("no language server for `.{extension}` files is installed ({})", names.join(", ")));
        };
        let argv = [vec![program], arguments.iter().map(ToString::to_string).collect()].concat();
        Ok(Launch { name: name.to_owned(), argv, root: root_of(path, &scope.root, known.markers) })
    }

    /// The answer to a change with the errors that it brought, if the server already runs and says so in time.
    pub(in crate::tool) async fn with_new_errors(&self, answer: Answer, change: &Change, scope: &Scope) -> Answer {
        let path = change.place.absolute();
        let Some(session) = self.running(&path, scope) else { return answer };
        let kind = if change.before == Before::Absent { 1 } else { 2 };
        let broken = async {
            // Whoever does not listen is asked nothing either.
            session.tell_changed(&path, kind).await.ok()?;
            if !session.is_settled() || change.after.len() as u64 > SHOWN {
                return None;
            }
            let language = language_of(&path);
            let old = match &change.before {
                Before::Absent => Vec::new(),
                Before::Text(text) => session.problems(&path, &language, text, AFTER_A_CHANGE).await.ok()?,
                Before::Other { .. } => return None,
            };
            let new = session.problems(&path, &language, &change.after, AFTER_A_CHANGE).await.ok()?;
            Some(problem::new_errors(&old, &new))
        };
        let new = tokio::select! {
            new = tokio::time::timeout(AFTER_A_CHANGE, broken) => new.ok().flatten().unwrap_or_default(),
            () = scope.is_cut() => Vec::new(),
        };
        if new.is_empty() {
            return answer;
        }
        let name = change.place.shown();
        let lines: Vec<&str> = change.after.lines().collect();
        let mut told: Vec<String> =
            new.iter().map(|problem| problem.line(&name, lines.get(problem.position.line).copied())).collect();
        if told.len() > NEW_ERRORS {
            let more = text::count(told.len() + 1 - NEW_ERRORS, "error", "errors");
            told.truncate(NEW_ERRORS - 1);
            told.push(format!("[{more} more]"));
        }
        let says = format!("{} says of this change:\n{}", session.name(), told.join("\n"));
        Answer { text: format!("{}\n{says}", answer.text), ..answer }
    }

    #[cfg(test)]
    pub(super) fn named(&self) -> &[LanguageServer] {
        &self.named
    }

    #[cfg(test)]
    pub(super) fn living(&self) -> Vec<i32> {
        let slots = self.slots.lock().unwrap();
        let sessions = slots.values().filter_map(|slot| slot.session.get()?.as_ref().ok());
        sessions.flat_map(|session| session.living()).collect()
    }
}

/// What the protocol calls a language.
pub(super) fn language_of(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    match extension.as_str() {
        "rs" => "rust",
        "py" | "pyi" => "python",
        "ts" | "mts" | "cts" => "typescript",
        "tsx" => "typescriptreact",
        "js" | "mjs" | "cjs" => "javascript",
        "jsx" => "javascriptreact",
        other => other,
    }
    .to_owned()
}

/// A program by its name. One that lies in the workspace, or would be found from where we are, is the repository's own.
fn find(program: &str, search: &str, workspace: &Path) -> Option<String> {
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if program.starts_with('/') {
        return is_program(Path::new(program)).then(|| program.to_owned());
    }
    let places = std::env::split_paths(search).filter(|place| place.is_absolute() && !place.starts_with(workspace));
    let found = places.map(|place| place.join(program)).find(|path| is_program(path))?;
    found.to_str().map(str::to_owned)
}

/// The outermost directory of the workspace above the file that a marker names; a member of a project is not one itself.
fn root_of(path: &Path, workspace: &Path, markers: &[&str]) -> PathBuf {
    let above: Vec<&Path> = path.ancestors().skip(1).take_while(|directory| directory.starts_with(workspace)).collect();
    let marked = above.iter().rev().find(|directory| markers.iter().any(|marker| directory.join(marker).is_file()));
    marked.map_or_else(|| workspace.to_owned(), |directory| directory.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::Fixture;
    use super::*;

    #[test]
    fn a_program_of_the_workspace_is_not_taken_for_a_server() {
        use std::os::unix::fs::PermissionsExt;
        let (fixture, outside) = (Fixture::new(), tempfile::tempdir().unwrap());
        let install = |path: PathBuf, mode: u32| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let root = &fixture.scope.root;
        install(root.join("bin/gopls"), 0o755);
        let search = format!("{}:bin:.:{}", root.join("bin").display(), outside.path().display());
        assert_eq!(find("gopls", &search, root), None);
        install(outside.path().join("gopls"), 0o644);
        assert_eq!(find("gopls", &search, root), None, "it cannot be run");
        install(outside.path().join("gopls"), 0o755);
        assert_eq!(find("gopls", &search, root), Some(outside.path().join("gopls").display().to_string()));
    }

    #[test]
    fn the_root_is_the_outermost_project_in_the_workspace() {
        let fixture = Fixture::new();
        for file in ["a/Cargo.toml", "a/crates/b/Cargo.toml", "a/crates/b/src/x.rs", "c/x.rs"] {
            fixture.write(file, "");
        }
        let root = &fixture.scope.root;
        assert_eq!(root_of(&root.join("a/crates/b/src/x.rs"), root, &["Cargo.toml"]), root.join("a"));
        assert_eq!(root_of(&root.join("c/x.rs"), root, &["Cargo.toml"]), *root);
    }

    #[test]
    fn why_there_is_no_server_is_said() {
        let mut fixture = Fixture::new();
        fixture.scope.environment.clear();
        let named = LanguageServer { name: "z".into(), command: vec!["zls".into()], extensions: vec!["zig".into()] };
        let servers = Servers::new(vec![named], Unconfined::Allowed);
        let why = |name: &str| servers.launch(&fixture.path(name), &fixture.scope).unwrap_err();
        assert_eq!(why("a.txt"), "no language server is known for `.txt` files");
        assert_eq!(why("a.rs"), "no language server for `.rs` files is installed (rust-analyzer)");
        assert_eq!(why("a.zig"), "`zls`, which settings name for .zig, is not installed");
    }
}
