//! What was true before the child started, kept where the child cannot write: which repository, which commit, which
//! configuration, which files were carried.
//!
//! Collecting works with a git directory of our own that holds the pinned configuration and an index of our own. So the
//! child's `.git`, configuration, index and its locks decide nothing. Deliberately absent: the child's references; see
//! `worktree.rs`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::git::{Git, Stage};
use super::{Request, WorkspaceError};
use crate::files::{self, Durability};
use crate::front_matter;
use crate::model::id::{ChildId, RunId};

const RECORD_LIMIT: u64 = 256 * 1024;

/// `<state>/workspaces/<run>/<child>/pinned.md`. Written last, so that it proves a whole workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pin {
    pub(super) v: u32,
    pub(super) run: RunId,
    pub(super) child: ChildId,
    pub(super) project: String,
    /// The project below the top of the repository: empty, or `sub/folder/`.
    pub(super) prefix: String,
    /// The git directory that all worktrees share.
    pub(super) common: PathBuf,
    /// The worktree's own part of it, `<common>/worktrees/<id>`.
    pub(super) admin: PathBuf,
    pub(super) branch: String,
    pub(super) base: String,
    /// Files copied from the project that must never be committed, relative to the top.
    pub(super) carried: Vec<String>,
}

impl Pin {
    pub(super) const VERSION: u32 = 1;

    /// The pin of a workspace; `None` where none was made whole.
    pub(super) fn read(request: &Request) -> Result<Option<Self>, WorkspaceError> {
        let path = record(&request.directory);
        let text = match files::read(&path, RECORD_LIMIT) {
            Ok(text) => text,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (pin, _): (Self, _) =
            front_matter::read(&text).map_err(|source| WorkspaceError::BrokenRecord { path: path.clone(), source })?;
        let wrong = |why| Err(WorkspaceError::NotOurs { path: request.directory.clone(), why });
        if pin.v != Self::VERSION {
            return wrong("it was made by another version of decode");
        }
        if pin.run != request.run || pin.child != request.child {
            return wrong("it belongs to another child");
        }
        if Path::new(&pin.project) != request.project {
            return wrong("it was made from another project");
        }
        Ok(Some(pin))
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), WorkspaceError> {
        let text = front_matter::write(self, "What this workspace was made from. decode reads it; do not edit.\n");
        Ok(files::write(&record(directory), text.as_bytes(), Durability::Synced)?)
    }

    /// Git on the child's files with the pinned configuration and our own index. It cannot move a reference.
    pub(super) fn git(&self, directory: &Path) -> Git {
        let tree = tree(directory);
        Git::at(&tree, Stage::AfterAChild)
            .option("--git-dir", &git_dir(directory))
            .option("--work-tree", &tree)
            // Large files that a filter of the user's stores beside the objects belong to the user's repository.
            .setting("lfs.storage", &self.common.join("lfs"))
            .variable("GIT_OBJECT_DIRECTORY", self.common.join("objects"))
            .variable("GIT_INDEX_FILE", index(directory))
    }

    /// Git on the references that all worktrees share.
    pub(super) fn references(&self) -> Git {
        Git::on(&self.common, Stage::AfterAChild)
    }

    /// The child's position as git names it from the shared directory.
    pub(super) fn head_name(&self) -> String {
        let id = self.admin.file_name().unwrap_or_default().to_string_lossy();
        format!("worktrees/{id}/HEAD")
    }
}

/// The child's files.
pub(super) fn tree(directory: &Path) -> PathBuf {
    directory.join("tree")
}

pub(super) fn record(directory: &Path) -> PathBuf {
    directory.join("pinned.md")
}

pub(super) fn git_dir(directory: &Path) -> PathBuf {
    directory.join("git")
}

/// Our index of the child's files, made anew for each look.
pub(super) fn index(directory: &Path) -> PathBuf {
    git_dir(directory).join("index")
}

/// The index as the checkout left it: its file times spare reading files that never changed.
fn start_index(directory: &Path) -> PathBuf {
    git_dir(directory).join("start-index")
}

/// Makes our git directory beside the tree from what the user's repository says now.
pub(super) async fn freeze(directory: &Path, common: &Path, admin: &Path, branch: &str) -> Result<(), WorkspaceError> {
    let ours = git_dir(directory);
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |source| WorkspaceError::Disk { doing: "pin the repository in", path, source }
    };
    for folder in ["objects", "refs/heads", "info"] {
        std::fs::create_dir_all(ours.join(folder)).map_err(wrong(&ours))?;
    }
    std::fs::write(ours.join("HEAD"), format!("ref: refs/heads/{branch}\n")).map_err(wrong(&ours))?;
    for name in ["config", "info/attributes", "info/exclude", "shallow"] {
        copy_if_there(&common.join(name), &ours.join(name)).map_err(wrong(&ours))?;
    }
    std::fs::copy(admin.join("index"), start_index(directory)).map_err(wrong(&ours))?;
    // What only holds in the place the configuration was written for.
    let config = ours.join("config");
    let git = Git::at(directory, Stage::BeforeAChild);
    for key in ["core.worktree", "extensions.worktreeConfig", "extensions.refStorage"] {
        git.try_run(&["config".as_ref(), "--file".as_ref(), config.as_os_str(), "--unset-all".as_ref(), key.as_ref()])
            .await?;
    }
    let not_bare = ["config".as_ref(), "--file".as_ref(), config.as_os_str(), "core.bare".as_ref(), "false".as_ref()];
    git.run("pin the configuration", &not_bare).await?;
    Ok(())
}

fn copy_if_there(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::copy(from, to) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The child's files as git would store them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// A tree object, already in the repository.
    pub(super) tree: String,
    /// What is in the workspace and cannot be in the tree, for people.
    pub(super) left: Vec<String>,
}

/// Stores the child's files, `.gitignore` respected, as they differ from `head`. Moves no reference.
pub(super) async fn snapshot(directory: &Path, pin: &Pin, head: &str) -> Result<Snapshot, WorkspaceError> {
    let git = pin.git(directory);
    let index = index(directory);
    std::fs::copy(start_index(directory), &index)
        .map_err(|source| WorkspaceError::disk("copy the index to", &index, source))?;
    // A lock on our own index can only be that of a collect that was killed.
    let _ = std::fs::remove_file(index.with_extension("lock"));
    // Entries that the commit leaves as they were keep their file times; the files themselves are looked at by `add`.
    git.run("read the child's commit", &["read-tree", "-m", "-i", head]).await?;
    if !pin.carried.is_empty() {
        let mut forget = vec!["update-index", "--force-remove", "--"];
        forget.extend(pin.carried.iter().map(String::as_str));
        git.run("leave carried files out", &forget).await?;
    }
    let mut left = Vec::new();
    let mut outside = pin.carried.clone();
    // Submodules, filled or not, have a configuration of their own that git would obey when it looks inside.
    for path in gitlinks(&git.run("list submodules", &list_gitlinks(head)).await?.records()) {
        if has_files(&tree(directory).join(&path)) {
            left.push(format!("submodule `{path}`"));
        }
        outside.push(path);
    }
    let untracked = git.run("list new files", &["ls-files", "--others", "--exclude-standard", "-z"]).await?;
    for path in untracked.records().iter().filter_map(|path| path.strip_suffix('/')) {
        left.push(format!("nested repository `{path}`"));
        outside.push(path.to_owned());
    }
    let mut add: Vec<String> = ["add", "--all", "--ignore-errors", "--", "."].map(str::to_owned).to_vec();
    add.extend(outside.iter().map(|path| format!(":(exclude,literal){path}")));
    let added = git.try_run(&add).await?;
    if !added.ok {
        left.push(format!("files that cannot be read ({})", crate::text::one_line(&added.message, 200)));
    }
    let tree = git.run("store the child's files", &["write-tree"]).await?.line();
    Ok(Snapshot { tree, left })
}

/// Folders and submodules of a commit, without its files: there may be more of those than fit in an answer.
pub(super) fn list_gitlinks(commit: &str) -> [&str; 5] {
    ["ls-tree", "-r", "-d", "-z", commit]
}

/// The submodules among the records.
pub(super) fn gitlinks(records: &[String]) -> Vec<String> {
    let links = records.iter().filter(|record| record.starts_with("160000 "));
    links.filter_map(|record| record.split_once('\t')).map(|(_, path)| path.to_owned()).collect()
}

pub(super) fn has_files(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}
