//! Workspaces: where a child's files are. Prepared once, entered by each attempt, collected, disposed.
//!
//! Names come from run and child, so that preparing and collecting twice does the same as once. Deliberately absent:
//! when any of it happens.

mod choose;
mod citation;
mod git;
mod pin;
mod shared;
mod worktree;

use std::path::{Path, PathBuf};

use crate::command::CommandError;
use crate::files::FileError;
use crate::front_matter::FrontMatterError;
use crate::model::child::{Collected, Lease};
use crate::model::id::{ChildId, RunId};

pub(crate) use choose::{Choice, choose};
pub(crate) use citation::unsound;

/// What a workspace is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) run: RunId,
    pub(crate) child: ChildId,
    /// A recipe that exists.
    pub(crate) recipe: String,
    /// The project's directory, absolute.
    pub(crate) project: PathBuf,
    /// `<state>/workspaces/<run>/<child>`.
    pub(crate) directory: PathBuf,
}

/// The recipes that are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// The project itself, read only.
    Shared,
    /// A git worktree on a branch of the child's own.
    Worktree,
}

impl Recipe {
    pub(crate) const ALL: &'static [Self] = &[Self::Shared, Self::Worktree];
    /// Named in the documentation, not there yet.
    const PLANNED: &'static [&'static str] =
        &["overlay", "reflink", "clone", "bwrap", "container", "ssh", "slurm", "kubernetes"];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shared => Lease::SHARED,
            Self::Worktree => "worktree",
        }
    }

    /// The recipe as bundled with the program: front matter and a text for people.
    #[cfg(test)]
    pub(crate) const fn document(self) -> &'static str {
        match self {
            Self::Shared => include_str!("../../workspaces/shared.md"),
            Self::Worktree => include_str!("../../workspaces/worktree.md"),
        }
    }
}

impl std::str::FromStr for Recipe {
    type Err = WorkspaceError;

    fn from_str(name: &str) -> Result<Self, WorkspaceError> {
        if let Some(recipe) = Self::ALL.iter().find(|recipe| recipe.name() == name) {
            return Ok(*recipe);
        }
        let name = name.to_owned();
        if Self::PLANNED.contains(&name.as_str()) {
            return Err(WorkspaceError::NotBuilt { name });
        }
        let known: Vec<&str> = Self::ALL.iter().map(|recipe| recipe.name()).collect();
        Err(WorkspaceError::UnknownRecipe { name, known: known.join(", ") })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    #[error("unknown workspace recipe `{name}`; known are {known}")]
    UnknownRecipe { name: String, known: String },
    #[error("recipe `{name}` is not built yet; use shared or worktree")]
    NotBuilt { name: String },
    #[error("`{path}` is not in a git repository; run `git init` and make a first commit, or use the recipe `shared`")]
    NotARepository { path: PathBuf },
    #[error("`{path}` belongs to a repository but has no files of it; {hint}")]
    NoWorkTree { path: PathBuf, hint: String },
    #[error("the repository of `{path}` has no commits yet; make a first commit (git: {message})")]
    NoCommits { path: PathBuf, message: String },
    #[error("branch `{branch}` is there and is not this child's: {why}; rename it with `git branch -m {branch} NAME`")]
    BranchTaken { branch: String, why: String },
    #[error("`{path}` is not this child's workspace: {why}")]
    NotOurs { path: PathBuf, why: &'static str },
    #[error("failed to {doing}: {message}")]
    Git { doing: &'static str, message: String },
    #[error("failed to run git")]
    Command(#[from] CommandError),
    #[error("failed to {doing} `{path}`")]
    Disk { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("failed to keep what was prepared")]
    Record(#[from] FileError),
    #[error("failed to read what was prepared in `{path}`")]
    BrokenRecord { path: PathBuf, source: FrontMatterError },
    #[error("`{path}` is not UTF-8; move the project to a path that is")]
    NotText { path: PathBuf },
}

impl WorkspaceError {
    /// Whether another try would fail the same way.
    pub(crate) const fn is_lasting(&self) -> bool {
        match self {
            Self::UnknownRecipe { .. }
            | Self::NotBuilt { .. }
            | Self::NotARepository { .. }
            | Self::NoWorkTree { .. }
            | Self::NoCommits { .. }
            | Self::NotText { .. }
            | Self::Command(CommandError::NotFound { .. }) => true,
            Self::BranchTaken { .. }
            | Self::NotOurs { .. }
            | Self::Git { .. }
            | Self::Command(_)
            | Self::Disk { .. }
            | Self::Record(_)
            | Self::BrokenRecord { .. } => false,
        }
    }

    fn disk(doing: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Disk { doing, path: path.to_owned(), source }
    }
}

/// What became of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disposed {
    Removed,
    /// Something would have been lost.
    Kept {
        why: String,
    },
}

/// What the kernel must let a child's commands reach besides the workspace itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) readable: Vec<PathBuf>,
}

/// Makes the workspace, or finds it made. Never falls back to the project.
pub(crate) async fn prepare(request: &Request) -> Result<Lease, WorkspaceError> {
    match request.recipe.parse()? {
        Recipe::Shared => shared::prepare(request),
        Recipe::Worktree => worktree::prepare(request).await,
    }
}

/// Secures the child's work. After it nothing the child wrote outside ignored files is only in the workspace,
/// except what the notes name.
pub(crate) async fn collect(request: &Request, lease: &Lease) -> Result<Collected, WorkspaceError> {
    match lease.recipe.parse()? {
        Recipe::Shared => Ok(shared::collect()),
        Recipe::Worktree => worktree::collect(request, lease).await,
    }
}

/// Removes the workspace if nothing is lost by it.
pub(crate) async fn dispose(request: &Request, lease: &Lease) -> Result<Disposed, WorkspaceError> {
    match lease.recipe.parse()? {
        Recipe::Shared => Ok(Disposed::Removed),
        Recipe::Worktree => worktree::dispose(request, lease).await,
    }
}

/// What a person should know about a recipe before a child starts: work that the child does not see.
pub(crate) async fn remarks(recipe: Recipe, project: &Path) -> Vec<String> {
    match recipe {
        Recipe::Worktree => worktree::remarks(project).await,
        Recipe::Shared => Vec::new(),
    }
}

/// What a child's commands must reach so that git works for them.
pub(crate) async fn reach(request: &Request, lease: &Lease) -> Result<Reach, WorkspaceError> {
    match lease.recipe.parse()? {
        Recipe::Shared => Ok(shared::reach(request).await),
        Recipe::Worktree => worktree::reach(request),
    }
}

fn text_of(path: &Path) -> Result<String, WorkspaceError> {
    path.to_str().map(str::to_owned).ok_or_else(|| WorkspaceError::NotText { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory whose name needs quoting everywhere. Canonical, as the state root is.
    pub(super) struct Scratch {
        _directory: tempfile::TempDir,
        path: PathBuf,
    }

    impl Scratch {
        pub(super) fn path(&self) -> &Path {
            &self.path
        }
    }

    pub(super) fn scratch() -> Scratch {
        let directory = tempfile::Builder::new().prefix("a 'b\" $c é-").tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        Scratch { _directory: directory, path }
    }

    /// Runs git as a user would and returns what it printed; fails the test if git fails.
    pub(super) fn git(directory: &Path, arguments: &[&str]) -> String {
        let output = try_git(directory, arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?} in {}: {text}", directory.display());
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    pub(super) fn try_git(directory: &Path, arguments: &[&str]) -> std::process::Output {
        std::process::Command::new("git")
            .args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"])
            .args(arguments)
            .current_dir(directory)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "User")
            .env("GIT_AUTHOR_EMAIL", "user@example.invalid")
            .env("GIT_COMMITTER_NAME", "User")
            .env("GIT_COMMITTER_EMAIL", "user@example.invalid")
            .output()
            .unwrap()
    }

    /// A repository with one commit, a nested folder and an ignored file.
    pub(super) fn project(scratch: &Path) -> PathBuf {
        let project = scratch.join("my project");
        std::fs::create_dir_all(project.join("sub")).unwrap();
        std::fs::write(project.join("a.txt"), "one\n").unwrap();
        std::fs::write(project.join("sub/b.txt"), "two\n").unwrap();
        std::fs::write(project.join(".gitignore"), "target/\n").unwrap();
        git(&project, &["init", "-q"]);
        git(&project, &["add", "."]);
        git(&project, &["commit", "-q", "-m", "first"]);
        project
    }

    pub(super) fn request(scratch: &Path, recipe: &str, project: &Path) -> Request {
        request_of(scratch, recipe, project, ChildId::new(1, "auth"))
    }

    pub(super) fn request_of(scratch: &Path, recipe: &str, project: &Path, child: ChildId) -> Request {
        let run = RunId::try_from("k3x9ab".to_owned()).unwrap();
        let directory = scratch.join("state/workspaces/k3x9ab").join(child.to_string());
        Request { run, child, recipe: recipe.to_owned(), project: project.to_owned(), directory }
    }

    #[test]
    fn bundled_recipes_say_what_they_are() {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "the test is that the header has these keys and no others")]
        struct Header {
            name: String,
            description: String,
            isolation: String,
            builtin: bool,
            #[serde(default)]
            prepare: Vec<String>,
            #[serde(default)]
            enter: Vec<String>,
            #[serde(default)]
            collect: Vec<String>,
            #[serde(default)]
            dispose: Vec<String>,
        }
        for recipe in Recipe::ALL {
            let (header, body) = crate::front_matter::read::<Header>(recipe.document()).unwrap();
            assert_eq!(header.name, recipe.name());
            assert!(header.builtin && !header.description.is_empty());
            assert!(body.contains("## Example"), "{}", header.name);
        }
    }

    #[tokio::test]
    async fn an_unknown_recipe_is_refused_with_those_that_are_known() {
        let scratch = scratch();
        let error = prepare(&request(scratch.path(), "nonsense", scratch.path())).await.unwrap_err().to_string();
        assert_eq!(error, "unknown workspace recipe `nonsense`; known are shared, worktree");
    }
}
