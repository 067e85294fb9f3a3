//! Git, asked so that neither the user's environment nor anything a child wrote decides what runs.
//!
//! Plumbing where there is a choice: it runs no hooks, signs nothing and needs no identity. Deliberately absent: what
//! is asked and when.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::WorkspaceError;
use crate::command::Invocation;

/// A checkout of a large repository takes a while; the supervisor gives up on preparing after 120 s.
const LIMIT: Duration = Duration::from_secs(110);

/// Variables that make git act on another repository, index or configuration than the one named.
const REMOVED: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_QUARANTINE_PATH",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_ATTR_SOURCE",
    "GIT_EXTERNAL_DIFF",
    "GIT_TEMPLATE_DIR",
    "GIT_DEFAULT_HASH",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
];

/// Settings that win over every configuration file: nothing configured is executed.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    // The index is copied as one file.
    "core.splitIndex=false",
    "core.quotePath=false",
    "commit.gpgsign=false",
    "tag.gpgsign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "diff.external=",
    "core.pager=cat",
];

/// Added once a child has run: no way to fetch anything, no attributes outside the tree.
const SETTINGS_AFTER_A_CHILD: &[&str] =
    &["core.sshCommand=false", "core.attributesFile=/dev/null", "protocol.allow=never"];

/// Whether a child may already have written where git reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Only the user has: a partial clone may fetch what a checkout needs.
    BeforeAChild,
    AfterAChild,
}

/// One way of asking git.
#[derive(Debug, Clone)]
pub(super) struct Git {
    directory: PathBuf,
    stage: Stage,
    options: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Git {
    /// Git as found from a directory.
    pub(super) fn at(directory: &Path, stage: Stage) -> Self {
        Self { directory: directory.to_owned(), stage, options: Vec::new(), environment: Vec::new() }
    }

    /// Git on a git directory, for references: no work tree, no index.
    pub(super) fn on(git_dir: &Path, stage: Stage) -> Self {
        Self::at(git_dir, stage).option("--git-dir", git_dir)
    }

    /// Adds `--name=value` before the command.
    pub(super) fn option(mut self, name: &str, value: &Path) -> Self {
        let mut option = OsString::from(name);
        option.push("=");
        option.push(value);
        self.options.push(option);
        self
    }

    pub(super) fn setting(mut self, name: &str, value: &Path) -> Self {
        let mut setting = OsString::from(name);
        setting.push("=");
        setting.push(value);
        self.options.extend(["-c".into(), setting]);
        self
    }

    pub(super) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    fn invocation<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Invocation {
        let mut words: Vec<OsString> = Vec::new();
        let later = match self.stage {
            Stage::BeforeAChild => &[],
            Stage::AfterAChild => SETTINGS_AFTER_A_CHILD,
        };
        for setting in SETTINGS.iter().chain(later) {
            words.extend(["-c".into(), setting.into()]);
        }
        words.extend(self.options.iter().cloned());
        words.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        let mut invocation = Invocation::new("git", words);
        invocation.directory = Some(self.directory.clone());
        invocation.limit = LIMIT;
        invocation.environment.extend(self.environment.iter().cloned());
        for (name, value) in [("LC_ALL", "C"), ("GIT_TERMINAL_PROMPT", "0"), ("GIT_OPTIONAL_LOCKS", "0")] {
            invocation.environment.push((name.into(), value.into()));
        }
        if self.stage == Stage::AfterAChild {
            invocation.environment.push(("GIT_NO_LAZY_FETCH".into(), "1".into()));
            invocation.environment.push(("GIT_NO_REPLACE_OBJECTS".into(), "1".into()));
        }
        // What is removed wins over what is set, so that what we set ourselves must stay out of the list.
        let ours = |name: &&&str| !self.environment.iter().any(|(set, _)| set == **name);
        invocation.removed = REMOVED.iter().filter(ours).map(Into::into).collect();
        invocation
    }

    /// Runs to the end; a failing status is told apart from a failure to run.
    pub(super) async fn try_run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Answer, WorkspaceError> {
        let finished = self.invocation(arguments).run().await?;
        let message = finished.stderr_text();
        Ok(Answer { ok: finished.status.success(), code: finished.status.code(), stdout: finished.stdout, message })
    }

    /// Runs to the end; a failing status is an error that keeps git's own words.
    pub(super) async fn run<A: AsRef<OsStr>>(
        &self,
        doing: &'static str,
        arguments: &[A],
    ) -> Result<Answer, WorkspaceError> {
        let answer = self.try_run(arguments).await?;
        if answer.ok { Ok(answer) } else { Err(WorkspaceError::Git { doing, message: answer.message }) }
    }

    /// The commit a name stands for, if there is one.
    pub(super) async fn commit(&self, name: &str) -> Result<Option<String>, WorkspaceError> {
        let answer = self.try_run(&["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]).await?;
        Ok(answer.ok.then(|| answer.line()))
    }

    /// Whether all of `old` is contained in `new`.
    pub(super) async fn contains(&self, new: &str, old: &str) -> Result<bool, WorkspaceError> {
        let answer = self.try_run(&["merge-base", "--is-ancestor", old, new]).await?;
        match answer.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(WorkspaceError::Git { doing: "compare two commits", message: answer.message }),
        }
    }
}

/// What git printed.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) ok: bool,
    code: Option<i32>,
    stdout: Vec<u8>,
    pub(super) message: String,
}

impl Answer {
    /// The output without its last line feed.
    pub(super) fn line(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// The records of a `-z` output.
    pub(super) fn records(&self) -> Vec<String> {
        let records = self.stdout.split(|byte| *byte == 0).filter(|record| !record.is_empty());
        records.map(|record| String::from_utf8_lossy(record).into_owned()).collect()
    }
}

/// Where a project lies in its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// The top of the work tree.
    pub(super) top: PathBuf,
    /// The project below the top: empty, or `sub/folder/`.
    pub(super) prefix: String,
    /// The git directory that all worktrees share.
    pub(super) common: PathBuf,
    /// The commit the user is on.
    pub(super) head: String,
}

/// Finds the repository around a project, or says what is missing and the way out.
pub(super) async fn discover(project: &Path) -> Result<Repository, WorkspaceError> {
    let git = Git::at(project, Stage::BeforeAChild);
    let asked = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir", "--show-prefix"];
    let answer = git.try_run(&asked).await?;
    if !answer.ok {
        return Err(not_found(project, &git, answer.message).await);
    }
    let text = answer.line();
    let mut lines = text.split('\n');
    let (Some(top), Some(common)) = (lines.next(), lines.next()) else {
        return Err(WorkspaceError::Git { doing: "find the repository", message: text });
    };
    let (top, common) = (PathBuf::from(top), PathBuf::from(common));
    let prefix = lines.next().unwrap_or_default().to_owned();
    if lines.next().is_some() || !top.is_dir() || !common.is_dir() {
        let message = "its path has characters that git cannot report".to_owned();
        return Err(WorkspaceError::Git { doing: "find the repository", message });
    }
    let answer = git.try_run(&["rev-parse", "--verify", "HEAD^{commit}"]).await?;
    if !answer.ok {
        return Err(WorkspaceError::NoCommits { path: project.to_owned(), message: answer.message });
    }
    Ok(Repository { top, prefix, common, head: answer.line() })
}

/// Tells apart: no repository here, a repository without files here, and one that git refuses to read.
async fn not_found(project: &Path, git: &Git, message: String) -> WorkspaceError {
    let path = project.to_owned();
    if message.contains("must be run in a work tree") {
        let trees = git.try_run(&["worktree", "list", "--porcelain", "-z"]).await;
        let trees = trees.map(|answer| answer.records()).unwrap_or_default();
        let bare = |path: &&str| !Path::new(path).join("HEAD").exists();
        let trees: Vec<&str> = trees.iter().filter_map(|line| line.strip_prefix("worktree ")).filter(bare).collect();
        return WorkspaceError::NoWorkTree { path, hint: start_in(&trees) };
    }
    if message.contains("not a git repository") {
        let below = worktrees_below(project);
        if !below.is_empty() {
            let below: Vec<&str> = below.iter().map(String::as_str).collect();
            return WorkspaceError::NoWorkTree { path, hint: start_in(&below) };
        }
        return WorkspaceError::NotARepository { path };
    }
    WorkspaceError::Git { doing: "find the repository", message }
}

fn start_in(trees: &[&str]) -> String {
    match trees {
        [] => "start in one of its worktrees, or make one with `git worktree add`".to_owned(),
        [tree, ..] => format!("start in one of its worktrees, such as `{tree}`"),
    }
}

/// Folders right below that are repositories: `proj/main` beside `proj/.bare`.
fn worktrees_below(project: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(project) else { return Vec::new() };
    let folders = entries.filter_map(Result::ok).map(|entry| entry.path()).take(200);
    let mut found: Vec<String> =
        folders.filter(|path| path.join(".git").exists()).map(|path| path.display().to_string()).collect();
    found.sort();
    found
}

/// How many paths of the user are changed or new: a child in a worktree does not see them.
pub(crate) async fn dirty_paths(project: &Path) -> usize {
    let git = Git::at(project, Stage::BeforeAChild);
    let status = ["status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames"];
    match git.try_run(&[&status[..], &["--ignore-submodules=dirty"]].concat()).await {
        Ok(answer) if answer.ok => answer.records().len(),
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_cannot_send_git_to_another_repository() {
        let git = Git::at(Path::new("/p"), Stage::AfterAChild).variable("GIT_INDEX_FILE", "/ours");
        let invocation = git.invocation(&["status"]);
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_CONFIG_COUNT", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND"] {
            assert!(invocation.removed.contains(&name.into()), "{name}");
        }
        // Removing wins over setting.
        assert!(!invocation.removed.contains(&"GIT_INDEX_FILE".into()));
        assert!(invocation.environment.contains(&("LC_ALL".into(), "C".into())));
        assert_eq!(invocation.arguments.last(), Some(&"status".into()));
    }

    #[tokio::test]
    async fn outside_a_repository_nothing_is_dirty() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(dirty_paths(directory.path()).await, 0);
    }
}
