//! The recipe `worktree`: a git worktree on the branch `decode/<run>/<child>`.
//!
//! Adding and removing is done one at a time per repository: git's own bookkeeping is not safe against itself there.
//! Deliberately absent: merging, and anything that looks at the user's own changes.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sha2::Digest;

use super::git::{Git, Repository, Stage, dirty_paths, discover};
use super::pin::{self, Pin, Snapshot, freeze, snapshot};
use super::{Disposed, Reach, Request, WorkspaceError, text_of};
use crate::files::Locked;
use crate::model::child::{Collected, Lease};
use crate::text::count;

/// A carried file larger than this is no configuration.
const CARRY_LIMIT: u64 = 1024 * 1024;

/// States of an unfinished operation: git's own files in the worktree's part of the git directory.
const UNFINISHED: &[(&str, &str)] = &[
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
];

pub(super) async fn prepare(request: &Request) -> Result<Lease, WorkspaceError> {
    check_place(request)?;
    let repository = discover(&request.project).await?;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&request.directory).map_err(|source| WorkspaceError::disk("make", &request.directory, source))?;
    check_place(request)?;
    let _lock = lock(request, &repository.common).await?;
    let pin = match Pin::read(request)? {
        Some(pin) if pin::tree(&request.directory).is_dir() => pin,
        // The tree was removed by hand: made again from what the branch has.
        Some(pin) => make(request, &repository, pin.base).await?,
        None => match start(request, &repository).await {
            Ok(pin) => pin,
            Err(error) => {
                // Without a lease nobody would dispose of it. What cannot be removed either is left to the next start.
                let _ = forget_tree(request, &Git::at(&repository.top, Stage::BeforeAChild)).await;
                let _ = remove(&request.directory);
                return Err(error);
            }
        },
    };
    Ok(Lease {
        recipe: request.recipe.clone(),
        path: text_of(&project_in_tree(request, &pin.prefix))?,
        project: pin.project,
        branch: Some(pin.branch),
        base: Some(pin.base),
    })
}

async fn start(request: &Request, repository: &Repository) -> Result<Pin, WorkspaceError> {
    let base = free_branch(request, repository).await?;
    make(request, repository, base).await
}

/// Checks that the branch of a start that never finished has nothing of its own; returns the commit to start from.
async fn free_branch(request: &Request, repository: &Repository) -> Result<String, WorkspaceError> {
    let git = Git::at(&repository.top, Stage::BeforeAChild);
    let branch = branch(request);
    let tip = git.commit(&format!("refs/heads/{branch}")).await?;
    forget_tree(request, &git).await?;
    if let Some(tip) = tip {
        if !git.contains(&repository.head, &tip).await? {
            let why = "it has commits that no start of this child made".to_owned();
            return Err(WorkspaceError::BranchTaken { branch, why });
        }
        // Nobody worked there yet, so that the branch may start from where the user is now.
        drop_empty_branch(&git, &branch, &tip).await?;
    }
    Ok(repository.head.clone())
}

/// Adds the worktree and pins the repository. The record comes last: without it all of this is done again.
async fn make(request: &Request, repository: &Repository, base: String) -> Result<Pin, WorkspaceError> {
    let (directory, tree, branch) = (&request.directory, pin::tree(&request.directory), branch(request));
    let git = Git::at(&repository.top, Stage::BeforeAChild);
    forget_tree(request, &git).await?;
    let exists = git.commit(&format!("refs/heads/{branch}")).await?.is_some();
    let mut add: Vec<&OsStr> = ["worktree", "add", "--quiet"].map(AsRef::as_ref).to_vec();
    if exists {
        add.extend([tree.as_os_str(), branch.as_ref()]);
    } else {
        // Tracking would write the user's configuration, where two starts at once fail on its lock.
        add.extend(["--no-track".as_ref(), "-b".as_ref(), branch.as_ref(), tree.as_os_str(), base.as_ref()]);
    }
    let answer = git.try_run(&add).await?;
    if !answer.ok {
        let used = ["already used by worktree", "already checked out"].iter().any(|text| answer.message.contains(text));
        return Err(if used {
            WorkspaceError::BranchTaken { branch, why: answer.message }
        } else {
            WorkspaceError::Git { doing: "add a worktree", message: answer.message }
        });
    }
    let here = Git::at(&tree, Stage::BeforeAChild);
    let admin = here.run("find the new worktree", &["rev-parse", "--absolute-git-dir"]).await?.line();
    let admin = PathBuf::from(admin);
    let project = project_in_tree(request, &repository.prefix);
    // A folder that is not in the commit has no files there yet.
    std::fs::create_dir_all(&project).map_err(|source| WorkspaceError::disk("make", &project, source))?;
    let names = carry(&request.project, &project)?;
    freeze(directory, &repository.common, &admin, &branch).await?;
    let pin = Pin {
        v: Pin::VERSION,
        run: request.run.clone(),
        child: request.child.clone(),
        project: text_of(&request.project)?,
        prefix: repository.prefix.clone(),
        common: repository.common.clone(),
        admin,
        branch,
        base,
        carried: names.iter().map(|name| format!("{}{name}", repository.prefix)).collect(),
    };
    pin.write(directory)?;
    Ok(pin)
}

/// Copies `.env` and `.env.*` that the commit does not bring. Returns their names.
fn carry(from: &Path, to: &Path) -> Result<Vec<String>, WorkspaceError> {
    let mut carried = Vec::new();
    let entries = std::fs::read_dir(from).map_err(|source| WorkspaceError::disk("list", from, source))?;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| *name == ".env" || name.starts_with(".env.")) else { continue };
        // A link is not followed: it may lead to a secret that was never meant for a child.
        let fits = entry.metadata().is_ok_and(|data| data.is_file() && data.len() <= CARRY_LIMIT);
        let target = to.join(name);
        if fits && target.symlink_metadata().is_err() {
            std::fs::copy(entry.path(), &target)
                .map_err(|source| WorkspaceError::disk("carry", &entry.path(), source))?;
            carried.push(name.to_owned());
        }
    }
    carried.sort();
    Ok(carried)
}

pub(super) async fn remarks(project: &Path) -> Vec<String> {
    let mut remarks = Vec::new();
    let dirty = dirty_paths(project).await;
    if dirty > 0 {
        let paths = count(dirty, "changed path of yours is", "changed paths of yours are");
        remarks.push(format!("{paths} not included: a child in a worktree starts from your last commit"));
    }
    let listed = Git::at(project, Stage::BeforeAChild).run("list submodules", &pin::list_gitlinks("HEAD")).await;
    // Whether the repository can be worked in at all is found out, and told, when the workspace is made.
    for path in listed.map(|listed| pin::gitlinks(&listed.records())).unwrap_or_default() {
        remarks
            .push(format!("submodule `{path}` is not filled in a worktree; `git submodule update --init` there does"));
    }
    remarks
}

pub(super) fn reach(request: &Request) -> Result<Reach, WorkspaceError> {
    let Some(pin) = Pin::read(request)? else { return Ok(Reach::default()) };
    let run = request.run.as_str();
    let own = [pin.common.join("refs/heads/decode").join(run), pin.common.join("logs/refs/heads/decode").join(run)];
    for folder in &own {
        // Packing the user's references removes folders that became empty.
        std::fs::create_dir_all(folder).map_err(|source| WorkspaceError::disk("make", folder, source))?;
    }
    let mut writable = vec![pin::tree(&request.directory), pin.common.join("objects"), pin.admin];
    writable.extend(own);
    Ok(Reach { writable, readable: vec![pin.common] })
}

/// Where the child's work is, and what must be said about it.
#[derive(Debug)]
struct Work {
    /// The commit the child stands on.
    head: String,
    /// The commit its branch has, if the branch is there.
    tip: Option<String>,
    snapshot: Snapshot,
    notes: Vec<String>,
    unfinished: Option<&'static str>,
}

async fn look(request: &Request, pin: &Pin) -> Result<Work, WorkspaceError> {
    let references = pin.references();
    let tip = references.commit(&format!("refs/heads/{}", pin.branch)).await?;
    let mut notes = Vec::new();
    let head = references.commit(&pin.head_name()).await?;
    let on = references.try_run(&["symbolic-ref", "--quiet", &pin.head_name()]).await?;
    let on = on.ok.then(|| on.line());
    if on.as_deref() != Some(&format!("refs/heads/{}", pin.branch)) {
        let place = on.as_deref().map_or("no branch", |name| name.strip_prefix("refs/heads/").unwrap_or(name));
        notes.push(format!("the child was on {place}; its branch `{}` takes what it had there", pin.branch));
    }
    let unfinished = UNFINISHED.iter().find(|(file, _)| pin.admin.join(file).exists()).map(|(_, name)| *name);
    if let Some(name) = unfinished {
        notes.push(format!("the child left an unfinished {name}; its files are committed as they are"));
    }
    let head = head.or_else(|| tip.clone()).unwrap_or_else(|| pin.base.clone());
    let snapshot = snapshot(&request.directory, pin, &head).await?;
    notes.extend(snapshot.left.iter().map(|what| format!("{what} is only in the workspace")));
    Ok(Work { head, tip, snapshot, notes, unfinished })
}

pub(super) async fn collect(request: &Request, lease: &Lease) -> Result<Collected, WorkspaceError> {
    check_place(request)?;
    let Some(pin) = Pin::read(request)? else { return collect_from_branch(request, lease).await };
    if !pin::tree(&request.directory).is_dir() {
        let tip = pin.references().commit(&format!("refs/heads/{}", pin.branch)).await?;
        return describe(&pin.references(), &pin.base, &pin.prefix, &pin.branch, tip).await;
    }
    let mut work = look(request, &pin).await?;
    let commit = commit(&pin, request, &mut work).await?;
    let commit = point_branch(&pin, &mut work, commit).await?;
    settle(&pin, request, &mut work, &commit).await?;
    let mut collected = describe(&pin.references(), &pin.base, &pin.prefix, &pin.branch, Some(commit)).await?;
    collected.clean &= work.snapshot.left.is_empty();
    collected.notes = work.notes;
    Ok(collected)
}

/// The workspace is gone: what the branch has is all there is.
async fn collect_from_branch(request: &Request, lease: &Lease) -> Result<Collected, WorkspaceError> {
    let (Some(branch), Some(base)) = (&lease.branch, &lease.base) else { return Ok(Collected::default()) };
    let repository = discover(&request.project).await?;
    let git = Git::on(&repository.common, Stage::AfterAChild);
    let tip = git.commit(&format!("refs/heads/{branch}")).await?;
    describe(&git, base, &repository.prefix, branch, tip).await
}

async fn describe(
    git: &Git,
    base: &str,
    prefix: &str,
    branch: &str,
    tip: Option<String>,
) -> Result<Collected, WorkspaceError> {
    let Some(tip) = tip.filter(|tip| tip != base) else {
        return Ok(Collected { clean: true, ..Collected::default() });
    };
    let compare = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv"];
    let changed = git.run("list what changed", &[&compare[..], &[base, &tip]].concat()).await?;
    let files_changed = changed.records().iter().map(|path| from_project(prefix, path)).collect();
    Ok(Collected { files_changed, branch: Some(branch.to_owned()), ..Collected::default() })
}

/// A path of the repository as seen from the project's folder in it.
fn from_project(prefix: &str, path: &str) -> String {
    let folders: Vec<&str> = prefix.split('/').filter(|folder| !folder.is_empty()).collect();
    let parts: Vec<&str> = path.split('/').collect();
    let shared = folders.iter().zip(&parts[..parts.len() - 1]).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", folders.len() - shared);
    up.chain(parts[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

/// A commit that has all the child's files: one that exists, or a new one.
async fn commit(pin: &Pin, request: &Request, work: &mut Work) -> Result<String, WorkspaceError> {
    let secret = names_carried(pin, &work.head).await?;
    let parent = if secret { &pin.base } else { &work.head };
    for candidate in [Some(&work.head), work.tip.as_ref()].into_iter().flatten() {
        let same = tree_of(pin, candidate).await? == work.snapshot.tree;
        if same && pin.references().contains(candidate, parent).await? && !names_carried(pin, candidate).await? {
            return Ok(candidate.clone());
        }
    }
    if secret {
        work.notes
            .push(format!("the child committed {}; its commits were made one without it", pin.carried.join(", ")));
    }
    let mut git = pin.git(&request.directory);
    for (key, name, ours) in [("user.name", "NAME", "decode"), ("user.email", "EMAIL", "decode@localhost")] {
        if !git.try_run(&["config", "--get", key]).await?.ok {
            for role in ["AUTHOR", "COMMITTER"] {
                git = git.variable(&format!("GIT_{role}_{name}"), ours);
            }
        }
    }
    let message = format!("decode {}/{}: work of the child", request.run, request.child);
    let made = ["commit-tree", &work.snapshot.tree, "-p", parent, "-m", &message];
    Ok(git.run("commit the child's files", &made).await?.line())
}

async fn tree_of(pin: &Pin, commit: &str) -> Result<String, WorkspaceError> {
    let name = format!("{commit}^{{tree}}");
    Ok(pin.references().run("read a commit", &["rev-parse", "--verify", &name]).await?.line())
}

/// Whether the child committed a file that must never be committed.
async fn names_carried(pin: &Pin, commit: &str) -> Result<bool, WorkspaceError> {
    if pin.carried.is_empty() {
        return Ok(false);
    }
    let range = format!("{}..{commit}", pin.base);
    let mut list: Vec<String> = ["rev-list", "--max-count=1", &range, "--"].map(str::to_owned).to_vec();
    list.extend(pin.carried.iter().map(|path| format!(":(top,literal){path}")));
    Ok(!pin.references().run("look for carried files", &list).await?.line().is_empty())
}

/// Makes the branch have the commit. Nothing the branch had before is lost: it moves on, or is kept under a name.
async fn point_branch(pin: &Pin, work: &mut Work, commit: String) -> Result<String, WorkspaceError> {
    let git = pin.references();
    let name = format!("refs/heads/{}", pin.branch);
    let old = match &work.tip {
        Some(tip) if *tip == commit => return Ok(commit),
        // The child stood on an older commit of its own branch and changed nothing there.
        Some(tip) if git.contains(tip, &commit).await? && !names_carried(pin, tip).await? => return Ok(tip.clone()),
        Some(tip) => {
            if !git.contains(&commit, tip).await? && !names_carried(pin, tip).await? {
                let kept = format!("{}-kept-{}", pin.branch, tip.get(..10).unwrap_or(tip));
                git.run("keep the branch's commits", &["update-ref", &format!("refs/heads/{kept}"), tip]).await?;
                work.notes.push(format!("what the branch had before is on `{kept}`"));
            }
            tip.clone()
        }
        None => String::new(),
    };
    // The old value is checked, so that two collects at once cannot undo each other. Empty means: must not exist.
    let old = if old.is_empty() { "0".repeat(commit.len()) } else { old };
    git.run("move the child's branch", &["update-ref", "-m", "decode: collect", &name, &commit, &old]).await?;
    Ok(commit)
}

/// Leaves the child's worktree so that a further attempt finds its branch checked out and nothing to commit.
async fn settle(pin: &Pin, request: &Request, work: &mut Work, commit: &str) -> Result<(), WorkspaceError> {
    let lock = pin.admin.join("index.lock");
    // All the child's processes have ended before its work is collected, so that nobody holds the lock.
    if std::fs::remove_file(&lock).is_ok() {
        work.notes.push("a lock on the index was left by a process that died; it is removed".to_owned());
    }
    let whole = work.unfinished.is_none() && pin.admin.is_dir() && tree_of(pin, commit).await? == work.snapshot.tree;
    if !whole {
        return Ok(());
    }
    let git = Git::on(&pin.admin, Stage::AfterAChild);
    if !git.try_run(&["symbolic-ref", "HEAD", &format!("refs/heads/{}", pin.branch)]).await?.ok {
        // The work is secured by now; what the child did to its worktree's configuration only hurts itself.
        work.notes.push("git in the workspace does not work any more".to_owned());
        return Ok(());
    }
    let index = pin.admin.join("index");
    let fresh = pin.admin.join("index.decode");
    std::fs::copy(pin::index(&request.directory), &fresh)
        .and_then(|_| std::fs::rename(&fresh, &index))
        .map_err(|source| WorkspaceError::disk("write", &index, source))
}

pub(super) async fn dispose(request: &Request, lease: &Lease) -> Result<Disposed, WorkspaceError> {
    check_place(request)?;
    let Some(pin) = Pin::read(request)? else { return dispose_leftovers(request, lease).await };
    if pin.common.starts_with(&request.directory) {
        let path = request.directory.clone();
        return Err(WorkspaceError::NotOurs { path, why: "it contains a repository's git directory" });
    }
    let _lock = lock(request, &pin.common).await?;
    if pin::tree(&request.directory).is_dir()
        && let Some(why) = unsaved(request, &pin).await?
    {
        return Ok(Disposed::Kept { why });
    }
    let git = Git::on(&pin.common, Stage::AfterAChild);
    forget_tree(request, &git).await?;
    // git leaves the entry of a worktree whose own files the child has changed.
    let entry = pin.admin.parent() == Some(&pin.common.join("worktrees"));
    if entry && pin.admin.is_dir() {
        remove(&pin.admin)?;
    }
    drop_empty_branch(&git, &pin.branch, &pin.base).await?;
    remove(&request.directory)?;
    Ok(Disposed::Removed)
}

/// What would be lost by removing the tree.
async fn unsaved(request: &Request, pin: &Pin) -> Result<Option<String>, WorkspaceError> {
    let work = look(request, pin).await?;
    if !work.snapshot.left.is_empty() {
        return Ok(Some(format!("{} would be lost", work.snapshot.left.join(", "))));
    }
    let Some(tip) = &work.tip else {
        let clean = work.head == pin.base && tree_of(pin, &pin.base).await? == work.snapshot.tree;
        return Ok((!clean).then(|| "its branch is gone and it has changes".to_owned()));
    };
    if tree_of(pin, tip).await? != work.snapshot.tree && tree_of(pin, &work.head).await? != work.snapshot.tree {
        return Ok(Some("it has changes that are not committed".to_owned()));
    }
    let contained = pin.references().contains(tip, &work.head).await?;
    let same = tree_of(pin, tip).await? == work.snapshot.tree;
    Ok((!contained && !same).then(|| format!("it has commits that are not on `{}`", pin.branch)))
}

/// A start that was killed, or a disposal that was: no child has files here any more.
async fn dispose_leftovers(request: &Request, lease: &Lease) -> Result<Disposed, WorkspaceError> {
    // With the project gone there is no repository left to clean.
    if let Ok(repository) = discover(&request.project).await {
        let _lock = lock(request, &repository.common).await?;
        let git = Git::on(&repository.common, Stage::AfterAChild);
        forget_tree(request, &git).await?;
        if let (Some(branch), Some(base)) = (&lease.branch, &lease.base)
            && *branch == self::branch(request)
        {
            drop_empty_branch(&git, branch, base).await?;
        }
    }
    remove(&request.directory)?;
    Ok(Disposed::Removed)
}

/// Deletes a branch on which nothing happened, unless somebody has it checked out. The old value is checked by git.
async fn drop_empty_branch(git: &Git, branch: &str, at: &str) -> Result<(), WorkspaceError> {
    let name = format!("refs/heads/{branch}");
    if git.commit(&name).await?.as_deref() != Some(at) {
        return Ok(());
    }
    // `git branch -D` would look too, but it also rewrites the user's configuration.
    let trees = git.run("list worktrees", &["worktree", "list", "--porcelain", "-z"]).await?;
    if !trees.records().iter().any(|line| line.strip_prefix("branch ") == Some(&name)) {
        git.run("delete the empty branch", &["update-ref", "-d", &name, at]).await?;
    }
    Ok(())
}

/// Removes the tree, then git's entry for it. In this order a crash in between leaves an entry that git knows to be
/// stale, not files that nobody knows.
async fn forget_tree(request: &Request, git: &Git) -> Result<(), WorkspaceError> {
    let tree = pin::tree(&request.directory);
    remove(&tree)?;
    // Fails when there is no such entry, which is what we want.
    let words = ["worktree".as_ref(), "remove".as_ref(), "-f".as_ref(), "-f".as_ref(), tree.as_os_str()];
    git.try_run(&words).await?;
    Ok(())
}

/// Removes a directory of ours whatever modes a child gave its parts.
fn remove(path: &Path) -> Result<(), WorkspaceError> {
    let wrong = |source| WorkspaceError::disk("remove", path, source);
    if path.symlink_metadata().is_ok_and(|data| data.is_symlink()) {
        return Err(WorkspaceError::NotOurs { path: path.to_owned(), why: "it is a link" });
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            open_folders(path);
            std::fs::remove_dir_all(path).map_err(wrong)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(wrong),
    }
}

/// Module caches make their folders read only, which keeps even their owner from removing what is inside.
fn open_folders(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for entry in walkdir::WalkDir::new(path).follow_links(false).into_iter().filter_map(Result::ok) {
        if entry.file_type().is_dir() {
            let _ = std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(0o700));
        }
    }
}

/// Refuses any directory but `…/workspaces/<run>/<child>` outside the project. All removing goes through here first.
fn check_place(request: &Request) -> Result<(), WorkspaceError> {
    let directory = &request.directory;
    let wrong = |why| Err(WorkspaceError::NotOurs { path: directory.clone(), why });
    let ours = Path::new("workspaces").join(request.run.as_str()).join(request.child.to_string());
    if !directory.is_absolute() || !directory.ends_with(&ours) {
        return wrong("it is not named after this run and child");
    }
    if let (Ok(real), Some(Ok(parent))) = (directory.canonicalize(), directory.parent().map(Path::canonicalize))
        && real != parent.join(request.child.to_string())
    {
        return wrong("it is a link");
    }
    if request.project.starts_with(directory) {
        return wrong("it contains the project");
    }
    Ok(())
}

/// Held while worktrees of one repository are added or removed. The file lies with us: nothing of ours is in the
/// user's repository.
async fn lock(request: &Request, common: &Path) -> Result<Locked, WorkspaceError> {
    let workspaces = request.directory.ancestors().nth(2).unwrap_or(&request.directory);
    let digest = sha2::Sha256::digest(common.as_os_str().as_encoded_bytes());
    let name = digest.iter().take(8).fold(0_u64, |name, byte| name << 8 | u64::from(*byte));
    let path = workspaces.join(format!(".lock-{name:016x}"));
    let wrong = |source| WorkspaceError::disk("lock", &path, source);
    std::fs::create_dir_all(workspaces).map_err(wrong)?;
    let file = File::options().create(true).append(true).open(&path).map_err(wrong)?;
    let locked = tokio::task::spawn_blocking(move || Locked::when_free(file)).await;
    locked.map_err(std::io::Error::other).flatten().map_err(wrong)
}

fn branch(request: &Request) -> String {
    format!("decode/{}/{}", request.run, request.child)
}

/// The project's folder inside the tree.
fn project_in_tree(request: &Request, prefix: &str) -> PathBuf {
    let tree = pin::tree(&request.directory);
    if prefix.is_empty() { tree } else { tree.join(prefix.trim_end_matches('/')) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, git, project, request, request_of, scratch, try_git};
    use super::super::{Recipe, collect, dispose, prepare, reach, remarks};
    use super::*;
    use crate::model::id::ChildId;

    const BRANCH: &str = "decode/k3x9ab/01-auth";

    /// A prepared worktree of a repository with one commit.
    struct Prepared {
        scratch: Scratch,
        project: PathBuf,
        request: Request,
        lease: Lease,
    }

    impl Prepared {
        async fn new() -> Self {
            let scratch = scratch();
            let project = project(scratch.path());
            let request = request(scratch.path(), "worktree", &project);
            let lease = prepare(&request).await.unwrap();
            Self { scratch, project, request, lease }
        }

        fn file(&self, name: &str) -> PathBuf {
            Path::new(&self.lease.path).join(name)
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.file(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn git(&self, arguments: &[&str]) -> String {
            git(Path::new(&self.lease.path), arguments)
        }

        async fn collect(&self) -> Collected {
            collect(&self.request, &self.lease).await.unwrap()
        }

        async fn dispose(&self) -> Disposed {
            dispose(&self.request, &self.lease).await.unwrap()
        }

        /// A file as the child's branch has it.
        fn on_branch(&self, name: &str) -> String {
            git(&self.project, &["show", &format!("{BRANCH}:{name}")])
        }

        fn branches(&self) -> String {
            git(&self.project, &["for-each-ref", "--format=%(refname:short)", "refs/heads/decode"])
        }
    }

    #[tokio::test]
    async fn work_comes_home_as_a_branch_and_the_project_stays_as_it_was() {
        let it = Prepared::new().await;
        it.write("a.txt", "changed\n");
        it.write("new/ü \"q\".txt", "new\n");
        it.write("target/big", "ignored\n");
        std::fs::remove_file(it.file("sub/b.txt")).unwrap();
        let collected = it.collect().await;
        assert_eq!(collected.files_changed, ["a.txt", "new/ü \"q\".txt", "sub/b.txt"]);
        assert_eq!((collected.branch.as_deref(), collected.clean), (Some(BRANCH), false));
        assert_eq!(collected.notes, Vec::<String>::new());
        assert_eq!(it.on_branch("a.txt"), "changed");
        assert_eq!(git(&it.project, &["log", "-1", "--format=%s", BRANCH]), "decode k3x9ab/01-auth: work of the child");
        assert_eq!(git(&it.project, &["status", "--porcelain"]), "");
        assert_eq!(it.git(&["status", "--porcelain"]), "", "a further attempt starts from a clean tree");
        let tip = git(&it.project, &["rev-parse", BRANCH]);
        assert_eq!(it.collect().await, collected, "collecting twice does the same as once");
        assert_eq!(git(&it.project, &["rev-parse", BRANCH]), tip);
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert!(!it.request.directory.exists());
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert_eq!(it.branches(), BRANCH);
        assert_eq!(git(&it.project, &["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
        assert_eq!(it.collect().await.files_changed, collected.files_changed, "the branch still tells");
    }

    #[tokio::test]
    async fn a_child_that_did_nothing_leaves_nothing() {
        let it = Prepared::new().await;
        let collected = it.collect().await;
        assert!(collected.clean && collected.branch.is_none() && collected.files_changed.is_empty());
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert_eq!(it.branches(), "");
    }

    #[tokio::test]
    async fn preparing_twice_gives_the_same_lease_and_keeps_what_is_there() {
        let it = Prepared::new().await;
        it.write("a.txt", "work\n");
        git(&it.project, &["commit", "-q", "--allow-empty", "-m", "the user goes on"]);
        assert_eq!(prepare(&it.request).await.unwrap(), it.lease);
        assert_eq!(std::fs::read_to_string(it.file("a.txt")).unwrap(), "work\n");
    }

    #[tokio::test]
    async fn leftovers_of_a_killed_start_are_used_again() {
        let scratch = scratch();
        let project = project(scratch.path());
        let request = request(scratch.path(), "worktree", &project);
        let tree = request.directory.join("tree");
        let add = ["worktree", "add", "-q", "-b", BRANCH, tree.to_str().unwrap()];
        // Killed after git was done, before the record was written.
        git(&project, &add);
        let lease = prepare(&request).await.unwrap();
        assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
        // The same with the directory removed by hand, and with a branch alone.
        git(&project, &add);
        std::fs::remove_dir_all(&request.directory).unwrap();
        let lease = prepare(&request).await.unwrap();
        assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
        git(&project, &["branch", BRANCH]);
        std::fs::create_dir_all(tree.join("half")).unwrap();
        let lease = prepare(&request).await.unwrap();
        assert!(!tree.join("half").exists());
        assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
        assert_eq!(git(&project, &["branch", "--list", "decode/*"]), "");
    }

    #[tokio::test]
    async fn a_tree_removed_by_hand_is_made_again_with_the_childs_commits() {
        let it = Prepared::new().await;
        it.write("a.txt", "work\n");
        it.collect().await;
        std::fs::remove_dir_all(it.request.directory.join("tree")).unwrap();
        assert_eq!(it.collect().await.files_changed, ["a.txt"]);
        assert_eq!(prepare(&it.request).await.unwrap(), it.lease);
        assert_eq!(std::fs::read_to_string(it.file("a.txt")).unwrap(), "work\n");
        it.write("c.txt", "more\n");
        assert_eq!(it.collect().await.files_changed, ["a.txt", "c.txt"]);
    }

    #[tokio::test]
    async fn a_branch_of_somebody_else_is_not_taken() {
        let scratch = scratch();
        let project = project(scratch.path());
        let request = request(scratch.path(), "worktree", &project);
        git(&project, &["checkout", "-q", "-b", BRANCH]);
        let error = prepare(&request).await.unwrap_err();
        assert!(matches!(error, WorkspaceError::BranchTaken { .. }), "checked out by the user: {error}");
        git(&project, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        git(&project, &["checkout", "-q", "main"]);
        let error = prepare(&request).await.unwrap_err();
        assert!(matches!(error, WorkspaceError::BranchTaken { .. }), "has commits: {error}");
        assert_eq!(git(&project, &["log", "-1", "--format=%s", BRANCH]), "mine");
        assert!(!request.directory.exists(), "a start that failed leaves nothing");
    }

    #[tokio::test]
    async fn a_branch_that_the_user_looks_at_is_not_deleted_under_them() {
        let it = Prepared::new().await;
        it.git(&["checkout", "-q", "--detach"]);
        git(&it.project, &["checkout", "-q", BRANCH]);
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert_eq!(git(&it.project, &["status", "--porcelain", "--branch"]), format!("## {BRANCH}"));
    }

    #[tokio::test]
    async fn what_is_missing_is_said_with_a_way_out() {
        let scratch = scratch();
        let empty = request(scratch.path(), "worktree", scratch.path());
        let error = prepare(&empty).await.unwrap_err();
        assert!(matches!(error, WorkspaceError::NotARepository { .. }), "{error}");
        let fresh = scratch.path().join("fresh");
        std::fs::create_dir(&fresh).unwrap();
        git(&fresh, &["init", "-q"]);
        let error = prepare(&request(scratch.path(), "worktree", &fresh)).await.unwrap_err().to_string();
        assert!(error.contains("make a first commit") && error.contains("fatal: "), "{error}");
    }

    #[tokio::test]
    async fn a_state_directory_that_takes_no_files_starts_no_child_in_the_project() {
        let scratch = scratch();
        let project = project(scratch.path());
        // A file in the way refuses root too.
        std::fs::write(scratch.path().join("state"), "").unwrap();
        let error = prepare(&request(scratch.path(), "worktree", &project)).await.unwrap_err();
        assert!(matches!(error, WorkspaceError::Disk { .. }), "{error}");
        assert_eq!(git(&project, &["branch", "--list", "decode/*"]), "");
    }

    #[tokio::test]
    async fn a_project_below_the_top_is_the_same_folder_of_the_tree() {
        let scratch = scratch();
        let project = project(scratch.path()).join("sub");
        let request = request(scratch.path(), "worktree", &project);
        let lease = prepare(&request).await.unwrap();
        assert!(lease.path.ends_with("/tree/sub"));
        let tree = request.directory.join("tree");
        std::fs::write(tree.join("sub/b.txt"), "x\n").unwrap();
        std::fs::write(tree.join("a.txt"), "x\n").unwrap();
        assert_eq!(collect(&request, &lease).await.unwrap().files_changed, ["../a.txt", "b.txt"]);
    }

    #[test]
    fn paths_are_told_from_the_projects_folder() {
        let cases = [
            ("", "a/b", "a/b"),
            ("a/", "a/b", "b"),
            ("a/c/", "a/b", "../b"),
            ("a/b/", "a", "../../a"),
            ("a/", "b", "../b"),
        ];
        for (prefix, path, want) in cases {
            assert_eq!(from_project(prefix, path), want, "{path} from {prefix}");
        }
    }

    #[tokio::test]
    async fn a_linked_worktree_and_a_bare_layout_work_from_their_worktrees() {
        let scratch = scratch();
        let project = project(scratch.path());
        let bare = scratch.path().join("proj/.bare");
        git(scratch.path(), &["clone", "-q", "--bare", project.to_str().unwrap(), bare.to_str().unwrap()]);
        let main = scratch.path().join("proj/main");
        git(&bare, &["worktree", "add", "-q", main.to_str().unwrap(), "main"]);
        let request = request(scratch.path(), "worktree", &main);
        let lease = prepare(&request).await.unwrap();
        std::fs::write(Path::new(&lease.path).join("a.txt"), "x\n").unwrap();
        assert_eq!(collect(&request, &lease).await.unwrap().files_changed, ["a.txt"]);
        assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
        assert_eq!(git(&main, &["status", "--porcelain"]), "");
        for place in [scratch.path().join("proj"), bare] {
            let error = discover(&place).await.unwrap_err().to_string();
            assert!(error.contains("start in one of its worktrees") && error.contains("proj/main"), "{error}");
        }
    }

    #[tokio::test]
    async fn eight_children_are_prepared_at_once() {
        let scratch = scratch();
        let project = project(scratch.path());
        let requests = (1..=8).map(|n| request_of(scratch.path(), "worktree", &project, ChildId::new(n, "same")));
        let tasks: Vec<_> = requests.map(|request| tokio::spawn(async move { prepare(&request).await })).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(git(&project, &["worktree", "list"]).lines().count(), 9);
    }

    #[tokio::test]
    async fn the_child_starts_from_head_and_is_told_what_it_does_not_see() {
        let scratch = scratch();
        let project = project(scratch.path());
        std::fs::write(project.join("a.txt"), "committed\n").unwrap();
        git(&project, &["commit", "-q", "-am", "second, not pushed"]);
        std::fs::write(project.join("a.txt"), "dirty\n").unwrap();
        std::fs::write(project.join("untracked.txt"), "").unwrap();
        assert_eq!(dirty_paths(&project).await, 2);
        let request = request(scratch.path(), "worktree", &project);
        let lease = prepare(&request).await.unwrap();
        assert_eq!(std::fs::read_to_string(Path::new(&lease.path).join("a.txt")).unwrap(), "committed\n");
        let remarks = remarks(Recipe::Worktree, &project).await;
        assert_eq!(
            remarks,
            ["2 changed paths of yours are not included: a child in a worktree starts from your last commit"]
        );
    }

    #[tokio::test]
    async fn environment_files_come_along_and_are_never_committed() {
        let scratch = scratch();
        let project = project(scratch.path());
        std::fs::write(project.join(".env"), "SECRET=1\n").unwrap();
        std::fs::write(project.join(".env.local"), "SECRET=2\n").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", project.join(".env.link")).unwrap();
        let request = request(scratch.path(), "worktree", &project);
        let lease = prepare(&request).await.unwrap();
        let tree = Path::new(&lease.path);
        assert_eq!(std::fs::read_to_string(tree.join(".env.local")).unwrap(), "SECRET=2\n");
        assert!(!tree.join(".env.link").exists());
        assert!(collect(&request, &lease).await.unwrap().clean);
        // The child commits everything itself.
        std::fs::write(tree.join("a.txt"), "x\n").unwrap();
        git(tree, &["add", "-A"]);
        git(tree, &["commit", "-q", "-m", "all of it"]);
        let collected = collect(&request, &lease).await.unwrap();
        assert_eq!(collected.files_changed, ["a.txt"]);
        assert!(collected.notes[0].contains("made one without it"), "{:?}", collected.notes);
        assert_eq!(git(&project, &["log", "--format=%H", "--all", "--", ".env"]), "");
        assert!(tree.join(".env").exists());
        assert_eq!(collect(&request, &lease).await.unwrap().files_changed, ["a.txt"]);
        assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
    }

    #[tokio::test]
    async fn signing_hooks_and_a_missing_identity_of_the_user_do_not_matter() {
        let scratch = scratch();
        let project = project(scratch.path());
        git(&project, &["config", "commit.gpgsign", "true"]);
        git(&project, &["config", "gpg.program", "/bin/false"]);
        git(&project, &["config", "user.useConfigOnly", "true"]);
        let ran = tempfile::tempdir().unwrap();
        let marker = ran.path().join("marker");
        let hooks = project.join(".git/hooks");
        for hook in ["pre-commit", "commit-msg", "post-checkout", "reference-transaction", "post-index-change"] {
            executable(&hooks.join(hook), &format!("#!/bin/sh\ntouch '{}'\nexit 1\n", marker.display()));
        }
        let request = request(scratch.path(), "worktree", &project);
        let lease = prepare(&request).await.unwrap();
        std::fs::write(Path::new(&lease.path).join("a.txt"), "x\n").unwrap();
        assert_eq!(collect(&request, &lease).await.unwrap().files_changed, ["a.txt"]);
        assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
        assert!(!marker.exists());
    }

    fn executable(path: &Path, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn nothing_a_child_wrote_is_run_when_its_work_is_collected() {
        let it = Prepared::new().await;
        let ran = tempfile::tempdir().unwrap();
        let (marker, evil) = (ran.path().join("marker"), it.file("evil.sh"));
        executable(&evil, &format!("#!/bin/sh\ntouch '{}'\ncat\n", marker.display()));
        let evil = format!("'{}'", evil.display().to_string().replace('\'', "'\\''"));
        // As a child without a sandbox could: in the shared configuration and in that of its worktree.
        git(&it.project, &["config", "extensions.worktreeConfig", "true"]);
        for place in ["--local", "--worktree"] {
            for key in ["filter.x.clean", "filter.x.process", "diff.x.textconv", "diff.x.command", "core.fsmonitor"] {
                it.git(&["config", place, key, &evil]);
            }
            it.git(&["config", place, "core.hooksPath", "."]);
            it.git(&["config", place, "diff.external", &evil]);
        }
        it.write(".gitattributes", "* filter=x diff=x\n");
        it.write("a.txt", "changed\n");
        // A nested repository that would be looked into with its own configuration.
        let nested = it.file("nested");
        std::fs::create_dir(&nested).unwrap();
        git(&nested, &["init", "-q"]);
        git(&nested, &["commit", "-q", "--allow-empty", "-m", "x"]);
        let _ = std::fs::remove_file(&marker);
        git(&nested, &["config", "core.fsmonitor", &evil]);
        let collected = it.collect().await;
        assert_eq!(collected.files_changed, [".gitattributes", "a.txt", "evil.sh"]);
        assert!(matches!(it.dispose().await, Disposed::Kept { .. }));
        assert!(!marker.exists());
    }

    #[tokio::test]
    async fn a_childs_own_commits_are_kept_and_the_rest_added() {
        let it = Prepared::new().await;
        it.write("a.txt", "mine\n");
        it.write("forced/target/x", "x\n");
        it.git(&["add", "-f", "."]);
        it.git(&["mv", "sub/b.txt", "sub/c.txt"]);
        it.git(&["commit", "-q", "-m", "mine"]);
        it.write("later.txt", "two\n");
        let collected = it.collect().await;
        assert_eq!(collected.files_changed, ["a.txt", "forced/target/x", "later.txt", "sub/b.txt", "sub/c.txt"]);
        assert_eq!(git(&it.project, &["log", "--format=%s", &format!("main..{BRANCH}")]).lines().nth(1), Some("mine"));
    }

    #[tokio::test]
    async fn work_on_another_branch_or_on_none_ends_on_the_childs_branch() {
        for start in [&["checkout", "-q", "--detach"][..], &["checkout", "-q", "-b", "elsewhere"]] {
            let it = Prepared::new().await;
            it.git(start);
            it.write("a.txt", "mine\n");
            it.git(&["commit", "-q", "-am", "mine"]);
            it.write("b.txt", "two\n");
            let collected = it.collect().await;
            assert_eq!((collected.files_changed.len(), collected.branch.as_deref()), (2, Some(BRANCH)));
            assert!(collected.notes[0].starts_with("the child was on "), "{:?}", collected.notes);
            assert_eq!(it.on_branch("b.txt"), "two");
            assert_eq!(it.git(&["symbolic-ref", "--short", "HEAD"]), BRANCH);
            assert_eq!(it.collect().await.notes, Vec::<String>::new());
            assert_eq!(it.dispose().await, Disposed::Removed);
        }
    }

    #[tokio::test]
    async fn commits_that_a_diverging_child_left_behind_keep_a_name() {
        let it = Prepared::new().await;
        it.write("a.txt", "first try\n");
        it.git(&["commit", "-q", "-am", "first try"]);
        it.git(&["checkout", "-q", "--detach", "HEAD~1"]);
        it.write("a.txt", "second try\n");
        let collected = it.collect().await;
        assert_eq!(it.on_branch("a.txt"), "second try");
        let branches = it.branches();
        let kept = branches.lines().find(|name| name.contains("-kept-")).unwrap();
        assert_eq!(git(&it.project, &["show", &format!("{kept}:a.txt")]), "first try");
        assert!(collected.notes.iter().any(|note| note.contains(kept)), "{:?}", collected.notes);
    }

    #[tokio::test]
    async fn looking_at_an_older_commit_does_not_move_the_branch_back() {
        let it = Prepared::new().await;
        it.write("a.txt", "done\n");
        it.git(&["commit", "-q", "-am", "done"]);
        it.git(&["checkout", "-q", "--detach", "HEAD~1"]);
        it.collect().await;
        assert_eq!(it.on_branch("a.txt"), "done");
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert_eq!(it.on_branch("a.txt"), "done");
    }

    #[tokio::test]
    async fn an_unfinished_merge_or_rebase_and_a_stale_lock_are_secured_and_told() {
        for operation in ["merge", "rebase"] {
            let it = Prepared::new().await;
            it.git(&["checkout", "-q", "-b", "side"]);
            it.write("a.txt", "side\n");
            it.git(&["commit", "-q", "-am", "side"]);
            it.git(&["checkout", "-q", BRANCH]);
            it.write("a.txt", "ours\n");
            it.git(&["commit", "-q", "-am", "ours"]);
            assert!(!try_git(Path::new(&it.lease.path), &[operation, "side"]).status.success());
            it.write("c.txt", "more\n");
            let admin = PathBuf::from(it.git(&["rev-parse", "--absolute-git-dir"]));
            std::fs::write(admin.join("index.lock"), "").unwrap();
            let collected = it.collect().await;
            assert!(it.on_branch("a.txt").contains("<<<<<<<"), "{operation}");
            assert_eq!(it.on_branch("c.txt"), "more");
            assert!(collected.notes.iter().any(|note| note.contains(operation)), "{:?}", collected.notes);
            assert!(collected.notes.iter().any(|note| note.contains("lock")), "{:?}", collected.notes);
            let branches = it.branches();
            it.collect().await;
            assert_eq!(it.branches(), branches, "collecting twice makes nothing new");
            let reachable = git(&it.project, &["log", "--all", "--format=%s"]);
            assert!(reachable.lines().any(|subject| subject == "ours"), "{operation}: {reachable}");
        }
    }

    #[tokio::test]
    async fn a_child_that_broke_its_git_loses_no_work() {
        let it = Prepared::new().await;
        std::fs::remove_file(it.file(".git")).unwrap();
        it.git(&["init", "-q"]);
        it.write("a.txt", "work\n");
        assert_eq!(it.collect().await.files_changed, ["a.txt"]);
        assert_eq!(it.on_branch("a.txt"), "work");
        let it = Prepared::new().await;
        it.write("a.txt", "work\n");
        it.git(&["update-index", "--assume-unchanged", "a.txt"]);
        assert_eq!(it.collect().await.files_changed, ["a.txt"], "hidden from git by the child");
        let it = Prepared::new().await;
        it.write("a.txt", "work\n");
        it.git(&["checkout", "-q", "--orphan", "nothing"]);
        it.git(&["branch", "-D", BRANCH]);
        assert_eq!(it.collect().await.files_changed, ["a.txt"]);
    }

    #[tokio::test]
    async fn unsaved_work_and_nested_repositories_keep_the_workspace() {
        let it = Prepared::new().await;
        it.write("a.txt", "work\n");
        assert!(matches!(it.dispose().await, Disposed::Kept { .. }));
        it.collect().await;
        for commits in [false, true] {
            let nested = it.file("lib/nested");
            std::fs::create_dir_all(&nested).unwrap();
            git(&nested, &["init", "-q"]);
            if commits {
                git(&nested, &["commit", "-q", "--allow-empty", "-m", "x"]);
            }
            let collected = it.collect().await;
            assert!(collected.notes.iter().any(|note| note.contains("lib/nested")), "{:?}", collected.notes);
            let Disposed::Kept { why } = it.dispose().await else { panic!("the nested repository was removed") };
            assert!(why.contains("lib/nested"), "{why}");
        }
        assert!(it.file("lib/nested/.git").exists());
    }

    #[tokio::test]
    async fn repositories_of_unusual_make_work() {
        let makes: [(&[&str], &[&str]); 5] = [
            (&["--object-format=sha256"], &[]),
            (&["--ref-format=reftable"], &[]),
            (&[], &["update-index", "--split-index"]),
            (&[], &["sparse-checkout", "set", "sub"]),
            (&[], &["config", "core.splitIndex", "true"]),
        ];
        for (init, then) in makes {
            let scratch = scratch();
            let project = scratch.path().join("p");
            std::fs::create_dir_all(project.join("deep/er")).unwrap();
            git(&project, &[&["init", "-q"], init].concat());
            for name in ["a.txt", "deep/er/b.txt"] {
                std::fs::write(project.join(name), "x\n").unwrap();
            }
            git(&project, &["add", "."]);
            git(&project, &["commit", "-q", "-m", "first"]);
            if !then.is_empty() {
                git(&project, then);
            }
            let request = request(scratch.path(), "worktree", &project);
            let lease = prepare(&request).await.unwrap();
            assert!(collect(&request, &lease).await.unwrap().clean, "{init:?} {then:?}");
            let tree = Path::new(&lease.path);
            std::fs::write(tree.join("new.txt"), "n\n").unwrap();
            git(tree, &["add", "."]);
            git(tree, &["commit", "-q", "-m", "mine"]);
            std::fs::write(tree.join("a.txt"), "changed\n").unwrap();
            let collected = collect(&request, &lease).await.unwrap();
            assert_eq!(collected.files_changed, ["a.txt", "new.txt"], "{init:?} {then:?}");
            assert_eq!(dispose(&request, &lease).await.unwrap(), Disposed::Removed);
        }
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_confined_child_commits_and_its_work_comes_home() {
        use crate::sandbox::{Access, Confinement, confine, support};
        if !support().is_there() {
            return;
        }
        let it = Prepared::new().await;
        let reach = reach(&it.request, &it.lease).await.unwrap();
        let (home, state) = (it.scratch.path().join("home"), it.scratch.path().join("state"));
        let temporary = it.scratch.path().join("private");
        let mut confinement = Confinement::new(Path::new(&it.lease.path), Access::Write, &temporary, &state, &home);
        confinement.writable.extend(reach.writable);
        confinement.readable.extend(reach.readable);
        let script =
            "echo 2 > a.txt && git add -A && git -c user.name=x -c user.email=x@y commit -qm mine && echo 3 > b";
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", script]).current_dir(&it.lease.path).env("HOME", &home).kill_on_drop(true);
        confine(&mut command, &confinement).unwrap();
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(it.collect().await.files_changed, ["a.txt", "b"]);
        assert_eq!(git(&it.project, &["log", "--format=%s", &format!("main..{BRANCH}")]).lines().nth(1), Some("mine"));
    }

    #[tokio::test]
    async fn a_submodule_that_is_not_filled_is_told_and_a_filled_one_kept() {
        let scratch = scratch();
        let project = project(scratch.path());
        let library = scratch.path().join("library");
        std::fs::create_dir(&library).unwrap();
        git(&library, &["init", "-q"]);
        git(&library, &["commit", "-q", "--allow-empty", "-m", "x"]);
        git(&project, &["submodule", "--quiet", "add", library.to_str().unwrap(), "deps/library"]);
        git(&project, &["commit", "-q", "-m", "a submodule"]);
        let request = request(scratch.path(), "worktree", &project);
        let lease = prepare(&request).await.unwrap();
        let told = remarks(Recipe::Worktree, &project).await;
        assert!(told.iter().any(|remark| remark.contains("submodule `deps/library` is not filled")), "{told:?}");
        assert!(collect(&request, &lease).await.unwrap().clean);
        git(Path::new(&lease.path), &["submodule", "--quiet", "update", "--init"]);
        std::fs::write(Path::new(&lease.path).join("a.txt"), "x\n").unwrap();
        assert_eq!(collect(&request, &lease).await.unwrap().files_changed, ["a.txt"]);
        assert!(matches!(dispose(&request, &lease).await.unwrap(), Disposed::Kept { .. }));
    }

    #[tokio::test]
    async fn a_path_that_is_not_a_childs_workspace_is_never_removed() {
        let it = Prepared::new().await;
        for directory in [it.project.clone(), it.scratch.path().to_owned(), PathBuf::from("workspaces/k3x9ab/01-auth")]
        {
            let wrong = Request { directory, ..it.request.clone() };
            assert!(matches!(dispose(&wrong, &it.lease).await, Err(WorkspaceError::NotOurs { .. })));
        }
        // A project that lies where a workspace would, and one that is linked there.
        let inside = Request { project: it.request.directory.join("tree"), ..it.request.clone() };
        assert!(matches!(dispose(&inside, &it.lease).await, Err(WorkspaceError::NotOurs { .. })));
        let other = request_of(it.scratch.path(), "worktree", &it.project, ChildId::new(2, "link"));
        std::os::unix::fs::symlink(&it.project, &other.directory).unwrap();
        assert!(matches!(dispose(&other, &it.lease).await, Err(WorkspaceError::NotOurs { .. })));
        assert!(it.project.join(".git").is_dir() && it.project.join("a.txt").exists());
    }

    #[tokio::test]
    async fn another_childs_tree_is_not_touched() {
        let it = Prepared::new().await;
        let second = request_of(it.scratch.path(), "worktree", &it.project, ChildId::new(2, "auth"));
        let lease = prepare(&second).await.unwrap();
        std::fs::write(Path::new(&lease.path).join("a.txt"), "x\n").unwrap();
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert_eq!(collect(&second, &lease).await.unwrap().files_changed, ["a.txt"]);
        // The record of another child in this child's place is refused.
        std::fs::create_dir_all(&it.request.directory).unwrap();
        std::fs::copy(pin::record(&second.directory), pin::record(&it.request.directory)).unwrap();
        assert!(matches!(dispose(&it.request, &it.lease).await, Err(WorkspaceError::NotOurs { .. })));
    }

    #[tokio::test]
    async fn a_disposal_that_was_killed_is_finished_by_the_next() {
        let it = Prepared::new().await;
        std::fs::remove_dir_all(it.request.directory.join("tree")).unwrap();
        assert_eq!(it.dispose().await, Disposed::Removed);
        let it = Prepared::new().await;
        std::fs::remove_file(pin::record(&it.request.directory)).unwrap();
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert_eq!(it.branches(), "");
        assert_eq!(git(&it.project, &["worktree", "list"]).lines().count(), 1);
    }

    #[tokio::test]
    async fn folders_made_read_only_are_removed_too() {
        use std::os::unix::fs::PermissionsExt;
        let it = Prepared::new().await;
        it.write("target/cache/x", "x\n");
        std::fs::set_permissions(it.file("target/cache"), std::fs::Permissions::from_mode(0o500)).unwrap();
        assert_eq!(it.dispose().await, Disposed::Removed);
        assert!(!it.request.directory.exists());
    }

    #[tokio::test]
    async fn a_childs_commands_reach_what_a_commit_needs_and_no_more_of_the_repository() {
        let it = Prepared::new().await;
        let reach = reach(&it.request, &it.lease).await.unwrap();
        let common = it.project.join(".git");
        assert_eq!(reach.readable, std::slice::from_ref(&common));
        assert!(reach.writable.contains(&common.join("objects")));
        assert!(reach.writable.contains(&common.join("refs/heads/decode/k3x9ab")));
        for closed in [common.clone(), common.join("refs"), common.join("hooks"), common.join("worktrees")] {
            assert!(!reach.writable.contains(&closed));
        }
    }
}
