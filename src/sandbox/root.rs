//! A root of the command's own: only what is granted is there, and what is only granted to read is mounted read-only.
//!
//! What is not there cannot be read, connected to, or have its mode and times changed, whoever owns it. The plan is made
//! before the fork; the forked child carries it out. Deliberately absent: what is granted (`mod.rs`, `places.rs`).

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::libc;

use super::system::{self, Descriptor, Held, Reach};
use super::{Confinement, places, sockets};

/// Where the new root is built before it becomes the root: nothing of the old `/proc` is wanted any more by then.
const SITE: &CStr = c"/proc";

/// What all users write in; the command's own temporary files lie there instead.
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];

/// Links may lead to links; more than the kernel follows are not followed here.
const LINKS: usize = 40;

/// How the new root is built, in this order.
#[derive(Debug)]
pub(super) struct Plan {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    /// The names from the root to the place.
    place: Vec<CString>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Bind {
        source: CString,
        kind: Kind,
        held: Held,
    },
    Hide(Kind),
    /// A file system of its own for the way to what is granted below it; read-only in the end.
    Way,
    Link {
        target: CString,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    File,
}

impl Kind {
    fn of(path: &Path) -> Self {
        if path.is_dir() { Self::Folder } else { Self::File }
    }
}

impl Plan {
    pub(super) fn new(confinement: &Confinement) -> Self {
        let grants = Grants::of(confinement);
        let mut steps = Vec::new();
        for (path, held) in &grants.kept {
            steps.extend(step(path, |source| Action::Bind { source, kind: Kind::of(path), held: *held }));
        }
        for path in &grants.hidden {
            steps.extend(step(path, |_| Action::Hide(Kind::of(path))));
        }
        for shared in SHARED {
            let Some(source) = text(&confinement.temporary) else { continue };
            let ways: BTreeSet<PathBuf> =
                grants.kept.iter().filter_map(|(path, _)| way(path, Path::new(shared))).collect();
            steps.extend(ways.iter().filter_map(|path| step(path, |_| Action::Way)));
            let action = |_| Action::Bind { source, kind: Kind::Folder, held: Held::Writable };
            steps.extend(step(Path::new(shared), action));
        }
        for (link, target) in &grants.links {
            let Some(target) = text(target) else { continue };
            steps.extend(step(link, |_| Action::Link { target }));
        }
        // Parents first, so that nothing is put where something else is yet to come.
        steps.sort_by_key(|step| step.place.len());
        Self { steps }
    }

    /// The devices and nothing else, to try whether such a root can be made.
    pub(super) fn of_system() -> Self {
        let devices = places::DEVICES.iter().map(Path::new);
        let devices = devices.filter(|path| path.exists() && !path.is_dir() && !path.ends_with("ptmx"));
        let bind = |source| Action::Bind { source, kind: Kind::File, held: Held::Writable };
        Self { steps: devices.filter_map(|path| step(path, bind)).collect() }
    }

    /// In the first process of the new process namespace: builds the root and enters it.
    pub(super) fn carry_out(&self) -> io::Result<()> {
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        system::mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)?;
        system::mount(Some(c"tmpfs"), SITE, Some(c"tmpfs"), flags, Some(c"mode=755,size=4m"))?;
        let root = system::open_folder(SITE)?;
        system::make_file(&root, c".hidden");
        for step in &self.steps {
            step.carry_out(&root)?;
        }
        for step in &self.steps {
            step.seal(&root)?;
        }
        for (name, target) in [
            (c"fd", c"/proc/self/fd"),
            (c"stdin", c"/proc/self/fd/0"),
            (c"stdout", c"/proc/self/fd/1"),
            (c"stderr", c"/proc/self/fd/2"),
            (c"ptmx", c"pts/ptmx"),
        ] {
            let devices = folder(&root, c"dev")?;
            system::make_link(&devices, name, target);
        }
        let devices = folder(&root, c"dev")?;
        folder(&devices, c"pts")?;
        folder(&devices, c"shm")?;
        folder(&root, c"proc")?;
        let terminals = Some(c"newinstance,ptmxmode=0666,mode=620");
        system::mount(
            Some(c"devpts"),
            c"/proc/dev/pts",
            Some(c"devpts"),
            libc::MS_NOSUID | libc::MS_NOEXEC,
            terminals,
        )?;
        system::mount(Some(c"tmpfs"), c"/proc/dev/shm", Some(c"tmpfs"), flags, Some(c"mode=1777,size=25%"))?;
        let nothing = flags | libc::MS_NOEXEC;
        system::mount(Some(c"proc"), c"/proc/proc", Some(c"proc"), nothing, None)?;
        drop(root);
        system::change_root(SITE)?;
        let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
        system::mount(None, c"/", None, read_only | flags, None)
    }
}

impl Step {
    fn carry_out(&self, root: &Descriptor) -> io::Result<()> {
        let Some((name, parents)) = self.place.split_last() else { return Ok(()) };
        let mut parent: Option<Descriptor> = None;
        for name in parents {
            parent = Some(folder(parent.as_ref().unwrap_or(root), name)?);
        }
        let parent = parent.as_ref().unwrap_or(root);
        match &self.action {
            Action::Bind { source, kind, held } => {
                let tree = match system::copy_of(source) {
                    Ok(tree) => tree,
                    Err(error) => return gone_is_absent(error),
                };
                system::hold(&tree, *held, Reach::AllBelow)?;
                system::attach(&tree, &made(parent, name, *kind)?)
            }
            Action::Hide(kind) => {
                let covered = match made(parent, name, *kind) {
                    Ok(covered) => covered,
                    Err(error) => return gone_is_absent(error),
                };
                match kind {
                    // Its own, because what is granted below it gets its place there.
                    Kind::Folder => system::attach(&empty_folder()?, &covered),
                    Kind::File => system::attach(&system::copy_of(c"/proc/.hidden")?, &covered),
                }
            }
            Action::Way => system::attach(&empty_folder()?, &made(parent, name, Kind::Folder)?),
            Action::Link { target } => {
                system::make_link(parent, name, target);
                Ok(())
            }
        }
    }

    /// Once all places are made, nothing more is.
    fn seal(&self, root: &Descriptor) -> io::Result<()> {
        match self.action {
            Action::Way => {}
            Action::Bind { .. } | Action::Hide(_) | Action::Link { .. } => return Ok(()),
        }
        let mut place: Option<Descriptor> = None;
        for name in &self.place {
            place = Some(system::place(place.as_ref().unwrap_or(root), name)?);
        }
        place.map_or(Ok(()), |place| system::hold(&place, Held::ReadOnly, Reach::This))
    }
}

/// A directory to put something on or in; made if it is not there.
fn folder(parent: &Descriptor, name: &CStr) -> io::Result<Descriptor> {
    system::make_folder(parent, name);
    system::place(parent, name)
}

fn made(parent: &Descriptor, name: &CStr, kind: Kind) -> io::Result<Descriptor> {
    match kind {
        Kind::Folder => folder(parent, name),
        Kind::File => {
            system::make_file(parent, name);
            system::place(parent, name)
        }
    }
}

/// An empty file system of its own, by way of a place that is used for nothing else.
fn empty_folder() -> io::Result<Descriptor> {
    let root = system::open_folder(SITE)?;
    folder(&root, c".empty")?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    system::mount(Some(c"tmpfs"), c"/proc/.empty", Some(c"tmpfs"), flags, Some(c"mode=755,size=1m"))?;
    let copy = system::copy_of(c"/proc/.empty")?;
    system::unmount(c"/proc/.empty")?;
    Ok(copy)
}

/// What was removed since the plan was made, or where the user may not look, is not granted.
fn gone_is_absent(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES) => Ok(()),
        _ => Err(error),
    }
}

fn text(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

fn step(path: &Path, action: impl FnOnce(CString) -> Action) -> Option<Step> {
    let names = path.components().filter_map(|part| match part {
        std::path::Component::Normal(name) => CString::new(name.as_bytes()).ok(),
        _ => None,
    });
    let place: Vec<CString> = names.collect();
    if place.is_empty() { None } else { Some(Step { place, action: action(text(path)?) }) }
}

/// The first directory on the way from a place that is replaced to one that is granted below it.
fn way(path: &Path, shared: &Path) -> Option<PathBuf> {
    let first = path.strip_prefix(shared).ok()?.components().next()?;
    let way = shared.join(first);
    (way != path).then_some(way)
}

/// What is granted, as the file system has it now.
#[derive(Debug, Default)]
struct Grants {
    kept: Vec<(PathBuf, Held)>,
    hidden: Vec<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
}

impl Grants {
    fn of(confinement: &Confinement) -> Self {
        let found =
            |paths: &[PathBuf]| -> Vec<PathBuf> { paths.iter().filter_map(|path| path.canonicalize().ok()).collect() };
        let hidden = found(&confinement.hidden);
        let writable = [found(&confinement.writable), found(std::slice::from_ref(&confinement.temporary))].concat();
        let devices: Vec<PathBuf> = places::DEVICES.iter().map(PathBuf::from).collect();
        // These are made anew.
        let own = [Path::new("/proc"), Path::new("/dev/pts"), Path::new("/dev/ptmx")];
        let readable: Vec<PathBuf> = found(&confinement.readable)
            .into_iter()
            .filter(|path| !own.iter().any(|own| path.starts_with(own)) && !writable.contains(path))
            .collect();
        let devices = devices.into_iter().filter(|path| !own.contains(&path.as_path()) && path.exists());
        let mut kept: Vec<(PathBuf, Held)> = readable.into_iter().map(|path| (path, Held::ReadOnly)).collect();
        kept.extend(devices.map(|path| (path, Held::Writable)));
        kept.extend(writable.iter().map(|path| (path.clone(), Held::Writable)));
        kept.retain(|(path, _)| !hidden.contains(path));
        let all = kept.clone();
        kept.retain(|(path, held)| !all.iter().any(|above| is_within(path, *held, above, &hidden)));
        kept.sort();
        kept.dedup();
        let lies_below = |path: &Path| kept.iter().any(|(grant, _)| path.starts_with(grant));
        let listed = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let open = sockets::named(&listed).map(PathBuf::from).filter(|path| path.exists());
        let open = open.chain(found(&confinement.sockets));
        // What a command may write may also be its own, from the call before.
        let open = open.filter(|path| !writable.iter().any(|own| path.starts_with(own) || own.starts_with(path)));
        let mut hidden: Vec<PathBuf> = hidden.iter().cloned().chain(open).filter(|path| lies_below(path)).collect();
        hidden.sort();
        hidden.dedup();
        let named = confinement.readable.iter().chain(&confinement.writable);
        let links = named.filter(|path| path.exists()).flat_map(|path| links(path)).collect();
        Self { kept, hidden, links }
    }
}

/// Whether a grant says nothing that another, above it, has not said.
fn is_within(path: &Path, held: Held, (above, above_held): &(PathBuf, Held), hidden: &[PathBuf]) -> bool {
    let between = |secret: &PathBuf| path.starts_with(secret) && secret.starts_with(above);
    path != above && path.starts_with(above) && held == *above_held && !hidden.iter().any(between)
}

/// The links on the way to a place, and where each leads.
fn links(path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    let mut path = path.to_owned();
    while found.len() < LINKS {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        let first = ancestors.iter().rev().find_map(|part| Some((part.to_path_buf(), part.read_link().ok()?)));
        let Some((link, target)) = first else { break };
        let rest = path.strip_prefix(&link).map(Path::to_owned).unwrap_or_default();
        let leads_to = link.parent().unwrap_or(Path::new("/")).join(&target);
        path = without_dots(&leads_to).join(rest);
        found.push((link, target));
    }
    found
}

/// A path without `.` and `..`, by name alone; a link before a `..` would make it another place, which is then absent.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                plain.pop();
            }
            std::path::Component::CurDir => {}
            std::path::Component::Normal(_) | std::path::Component::RootDir | std::path::Component::Prefix(_) => {
                plain.push(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::Access;
    use super::*;

    #[test]
    fn a_grant_below_one_that_says_the_same_is_left_out_unless_something_hidden_lies_between() {
        let at = |path: &str| PathBuf::from(path);
        let above = (at("/a"), Held::ReadOnly);
        assert!(is_within(&at("/a/b/c"), Held::ReadOnly, &above, &[]));
        assert!(!is_within(&at("/a/b/c"), Held::Writable, &above, &[]));
        assert!(!is_within(&at("/a/b/c"), Held::ReadOnly, &above, &[at("/a/b")]));
        assert!(!is_within(&at("/a"), Held::ReadOnly, &above, &[]));
        assert!(!is_within(&at("/ab"), Held::ReadOnly, &above, &[]));
    }

    #[test]
    fn the_way_to_a_grant_in_a_shared_place_begins_below_that_place() {
        let shared = Path::new("/tmp");
        assert_eq!(way(Path::new("/tmp/a/b/c"), shared), Some(PathBuf::from("/tmp/a")));
        assert_eq!(way(Path::new("/tmp/a"), shared), None);
        assert_eq!(way(Path::new("/tmpfs/a/b"), shared), None);
    }

    #[test]
    fn links_on_the_way_to_a_grant_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("data/real/tools")).unwrap();
        std::os::unix::fs::symlink("data/./x/../real", root.join("home")).unwrap();
        let want = vec![(root.join("home"), PathBuf::from("data/./x/../real"))];
        assert_eq!(links(&root.join("home/tools")), want);
        assert_eq!(links(&root.join("data/real")), []);
    }

    #[test]
    fn secrets_below_a_grant_are_hidden_and_those_elsewhere_are_not_there_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for path in ["home/.cargo/registry", "home/.ssh", "work", "private", "state"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::fs::write(root.join("home/.cargo/credentials.toml"), "secret").unwrap();
        let at = |path: &str| root.join(path);
        let confinement = Confinement::new(&at("work"), Access::Write, &at("private"), &at("state"), &at("home"));
        let grants = Grants::of(&confinement);
        assert!(grants.kept.contains(&(at("home/.cargo"), Held::ReadOnly)));
        assert!(grants.kept.contains(&(at("work"), Held::Writable)));
        assert!(grants.hidden.contains(&at("home/.cargo/credentials.toml")));
        assert!(!grants.hidden.contains(&at("home/.ssh")) && !grants.hidden.contains(&at("state")));
    }
}
