//! Landlock: the kernel's allow-list of places, put on a command between fork and exec.
//!
//! The rules are made before the fork; the child of the fork makes a few system calls and no allocation. Deliberately
//! absent: what is granted; see `mod.rs`.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};
use nix::libc;

use super::sockets::Masks;
use super::{Confinement, Network, SandboxError, Support, places};

/// The newest version whose rights were looked at one by one. Older kernels get what they know.
const NEWEST: ABI = ABI::V9;

/// Asks the kernel; nothing is confined by it.
pub(crate) fn support() -> Support {
    const ASK_VERSION: libc::c_uint = 1;
    #[expect(
        unsafe_code,
        reason = "the crate asks only when it confines; the call takes no pointer and changes nothing"
    )]
    // SAFETY: a null attribute of size 0 with this flag is the documented way to ask for the version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, ASK_VERSION)
    };
    Support::of(u32::try_from(version).unwrap_or(0))
}

/// Confines a command and all it starts. It fails rather than start one unconfined.
pub(crate) fn confine(command: &mut tokio::process::Command, confinement: &Confinement) -> Result<(), SandboxError> {
    if !support().is_there() {
        return Err(SandboxError::Unsupported);
    }
    let temporary = &confinement.temporary;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(temporary);
    made.map_err(|source| SandboxError::Temporary { path: temporary.clone(), source })?;
    for name in ["TMPDIR", "TMP", "TEMP"] {
        command.env(name, temporary);
    }
    let mut ruleset = Some(rules(confinement)?);
    let kept = [confinement.writable.as_slice(), std::slice::from_ref(temporary)].concat();
    let masks = Masks::new(&confinement.sockets, &kept);
    let restrict = move || {
        masks.hide()?;
        drop_capabilities();
        // Each fork has its own copy of the option, so that a command may be started again.
        let ruleset = ruleset.take().ok_or(std::io::ErrorKind::PermissionDenied)?;
        match ruleset.restrict_self() {
            Ok(_) => masks.refuse(),
            Err(_) => Err(std::io::Error::from_raw_os_error(libc::EPERM)),
        }
    };
    #[expect(unsafe_code, reason = "only the forked child can confine itself before it becomes the command")]
    // SAFETY: the closure makes a few system calls; none of them allocates or takes a lock.
    unsafe {
        command.pre_exec(restrict);
    }
    Ok(())
}

/// Powers with which root, as in a container, reaches round Landlock: on Linux 6.18 a confined root read the environment
/// of other processes until `CAP_PERFMON` was gone. In the order of the kernel's numbers.
const CAPABILITIES: &[libc::c_ulong] = &[
    2,  // CAP_DAC_READ_SEARCH: opens files by handle, without a path
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    19, // CAP_SYS_PTRACE
    21, // CAP_SYS_ADMIN
    27, // CAP_MKNOD
    38, // CAP_PERFMON
    39, // CAP_BPF
];

/// Takes these powers from what the command can have. For a user without them each call fails, as it should.
fn drop_capabilities() {
    for capability in CAPABILITIES {
        #[expect(unsafe_code, reason = "no crate at hand wraps this call")]
        // SAFETY: the call takes numbers only.
        unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0);
        }
    }
}

fn rules(confinement: &Confinement) -> Result<RulesetCreated, SandboxError> {
    let wrong = |source| SandboxError::Ruleset { source };
    let read = AccessFs::from_read(NEWEST);
    let all = AccessFs::from_all(NEWEST);
    let mut ruleset = Ruleset::default().handle_access(all).map_err(wrong)?;
    ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal).map_err(wrong)?;
    if confinement.network == Network::NoTcp {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp).map_err(wrong)?;
    }
    let mut ruleset = ruleset.create().map_err(wrong)?;
    let hidden: Vec<PathBuf> = confinement.hidden.iter().filter_map(|path| path.canonicalize().ok()).collect();
    for path in &confinement.readable {
        ruleset = grant(ruleset, path, &hidden, read)?;
    }
    for path in confinement.writable.iter().chain([&confinement.temporary]) {
        ruleset = grant(ruleset, path, &hidden, all)?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for path in places::DEVICES {
        ruleset = grant(ruleset, Path::new(path), &[], device | AccessFs::ReadDir)?;
    }
    // To list, not to open: memory and disks of the machine lie there too.
    grant(ruleset, Path::new("/dev"), &[], AccessFs::ReadDir.into())
}

/// Grants a place. One that holds hidden places is granted entry by entry, because a grant reaches all below it.
fn grant(
    mut ruleset: RulesetCreated,
    path: &Path,
    hidden: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    // What is not there needs no grant; the tables name more than any one machine has.
    let Ok(path) = path.canonicalize() else { return Ok(ruleset) };
    for granted in without(&path, hidden) {
        let Ok(place) = PathFd::new(&granted) else { continue };
        let is_folder = granted.metadata().is_ok_and(|data| data.is_dir());
        let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
        if access.is_empty() {
            continue;
        }
        ruleset =
            ruleset.add_rule(PathBeneath::new(place, access)).map_err(|source| SandboxError::Ruleset { source })?;
    }
    Ok(ruleset)
}

/// The largest parts of a place that hold nothing hidden. Links inside are not followed: where they lead is granted by
/// its own name or not at all.
fn without(path: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    if hidden.iter().any(|secret| secret == path) {
        return Vec::new();
    }
    if !hidden.iter().any(|secret| secret.starts_with(path)) {
        return vec![path.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let parts = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    parts.flat_map(|entry| without(&entry.path(), hidden)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Confinement};
    use super::*;

    /// A home, a state root and a workspace below the state root, as a child in a worktree has them.
    struct Scene {
        directory: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let it = Self { directory };
            for (path, text) in [
                ("home/.ssh/id", "canary"),
                ("home/.config/gh/hosts.yml", "canary"),
                ("home/.cargo/credentials.toml", "canary"),
                ("home/.cargo/registry/crate.rs", "source"),
                ("home/.netrc", "canary"),
                ("home/.gitconfig", ""),
                ("home/notes.txt", "canary"),
                ("other/.ssh/id", "canary"),
                ("state/key", "canary"),
                ("state/runs/k3x9ab/run.md", "canary"),
                ("state/workspaces/k3x9ab/01-x/tree/a.txt", "source"),
                ("state/workspaces/k3x9ab/01-x/pinned.md", "canary"),
            ] {
                std::fs::create_dir_all(it.at(path).parent().unwrap()).unwrap();
                std::fs::write(it.at(path), text).unwrap();
            }
            it
        }

        fn at(&self, path: &str) -> PathBuf {
            self.directory.path().join(path)
        }

        fn tree(&self) -> PathBuf {
            self.at("state/workspaces/k3x9ab/01-x/tree")
        }

        fn confinement(&self, access: Access) -> Confinement {
            Confinement::new(&self.tree(), access, &self.at("private"), &self.at("state"), &self.at("home"))
        }
    }

    /// Runs a script confined, in the workspace.
    async fn shell(scene: &Scene, confinement: &Confinement, script: &str) -> (bool, String) {
        let mut command = tokio::process::Command::new("bash");
        command.args(["-c", script]).current_dir(scene.tree()).env("HOME", scene.at("home"));
        command.env("ROOT", scene.directory.path()).env("OUTER", std::process::id().to_string());
        for (name, value) in [("NAME", "x"), ("EMAIL", "x@example.invalid")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.stdin(std::process::Stdio::null()).kill_on_drop(true);
        confine(&mut command, confinement).unwrap();
        let output = command.output().await.unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.success(), text)
    }

    /// Whether this kernel can be asked to prove anything below.
    fn without_landlock() -> bool {
        !support().is_there()
    }

    #[tokio::test]
    async fn a_command_works_in_its_workspace_and_its_own_temporary_directory() {
        if without_landlock() {
            return;
        }
        let scene = Scene::new();
        let confinement = scene.confinement(Access::Write);
        for script in [
            "echo new > b.txt && mkdir -p d/e && mv b.txt d/e/ && cat a.txt d/e/b.txt && rm -r d",
            "printf '#!/bin/sh\\necho ran\\n' > run && chmod +x run && ./run",
            "f=$(mktemp) && echo x > \"$f\" && case $f in \"$ROOT\"/private/*) ;; *) exit 1;; esac",
            "cat <<< heredoc && echo x > /dev/null && head -c 1 /dev/urandom | wc -c && ls /proc/self /dev > /dev/null",
            "cat ~/.cargo/registry/crate.rs && git --version && ls /usr /etc > /dev/null",
            "echo over | tee /dev/stderr | cat > /dev/stdout",
        ] {
            let (ok, text) = shell(&scene, &confinement, script).await;
            assert!(ok, "{script}: {text}");
        }
    }

    #[tokio::test]
    async fn nothing_is_written_outside() {
        if without_landlock() {
            return;
        }
        let scene = Scene::new();
        let confinement = scene.confinement(Access::Write);
        let before = std::fs::read_to_string(scene.at("home/notes.txt")).unwrap();
        for script in [
            "echo x > ~/new",
            "echo x > ~/notes.txt",
            "echo x >> ~/.cargo/registry/crate.rs",
            "truncate -s 0 ~/notes.txt",
            "rm ~/notes.txt",
            "mv ~/notes.txt ./",
            "ln ~/notes.txt here",
            "ln -s ~/notes.txt link && echo x > link",
            "mkdir ~/dir",
            "echo x > ../../beside",
            "echo x > /tmp/decode-landlock-probe",
            "echo x > \"$ROOT/state/runs/k3x9ab/run.md\"",
            "echo x > \"/proc/self/root$HOME/notes.txt\"",
        ] {
            let (ok, text) = shell(&scene, &confinement, script).await;
            assert!(!ok && text.contains("denied") || text.contains("cross-device"), "{script}: {text}");
        }
        assert_eq!(std::fs::read_to_string(scene.at("home/notes.txt")).unwrap(), before);
        assert!(!scene.at("home/new").exists() && !Path::new("/tmp/decode-landlock-probe").exists());
    }

    #[tokio::test]
    async fn secrets_of_home_the_state_root_and_other_homes_are_unreadable() {
        if without_landlock() {
            return;
        }
        let scene = Scene::new();
        let confinement = scene.confinement(Access::Write);
        for script in [
            "cat ~/.ssh/id",
            "ls ~/.ssh",
            "cat ~/.config/gh/hosts.yml",
            "cat ~/.cargo/credentials.toml",
            "cat ~/.netrc",
            "cat ~/notes.txt",
            "cat \"$ROOT/other/.ssh/id\"",
            "cat \"$ROOT/state/key\"",
            "cat ../pinned.md",
            "cat \"$ROOT/state/runs/k3x9ab/run.md\"",
            "ln -s ~/.ssh/id l && cat l",
            "cat \"/proc/self/root$ROOT/state/key\"",
        ] {
            let (ok, text) = shell(&scene, &confinement, script).await;
            assert!(!ok && !text.contains("canary"), "{script}: {text}");
            assert!(text.contains("denied"), "{script}: {text}");
        }
    }

    #[tokio::test]
    async fn the_process_that_started_it_is_neither_read_nor_signalled() {
        if without_landlock() {
            return;
        }
        let scene = Scene::new();
        let confinement = scene.confinement(Access::Write);
        for script in ["cat /proc/$OUTER/environ", "ls /proc/$OUTER/root/", "head -c 1 /proc/$OUTER/mem"] {
            let (ok, text) = shell(&scene, &confinement, script).await;
            assert!(!ok && text.contains("denied"), "{script}: {text}");
        }
        if support().abi >= 6 {
            let (ok, text) = shell(&scene, &confinement, "kill -0 $OUTER").await;
            assert!(!ok && text.contains("not permitted"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_reader_cannot_write_its_workspace() {
        if without_landlock() {
            return;
        }
        let scene = Scene::new();
        let confinement = scene.confinement(Access::Read);
        assert_eq!(shell(&scene, &confinement, "cat a.txt").await, (true, "source".to_owned()));
        let (ok, text) = shell(&scene, &confinement, "echo x > a.txt").await;
        assert!(!ok && text.contains("denied"), "{text}");
        assert!(shell(&scene, &confinement, "echo x > \"$TMPDIR/x\"").await.0);
    }

    #[tokio::test]
    async fn a_commit_works_in_a_worktree_and_the_rest_of_the_repository_is_closed() {
        if without_landlock() {
            return;
        }
        let scene = Scene::new();
        let (project, tree) = (scene.at("home/project"), scene.tree());
        std::fs::create_dir(&project).unwrap();
        std::fs::remove_dir_all(&tree).unwrap();
        let branch = "decode/k3x9ab/01-x";
        let set_up = format!(
            "git init -q && git config user.name x && git config user.email x@example.invalid && echo 1 > a.txt && \
             git add . && git commit -qm first && git worktree add -q -b {branch} '{}'",
            tree.display()
        );
        let done = std::process::Command::new("sh").args(["-c", &set_up]).current_dir(&project).status().unwrap();
        assert!(done.success());
        let common = project.join(".git");
        let mut confinement = scene.confinement(Access::Write);
        confinement.readable.push(common.clone());
        for part in ["objects", "refs/heads/decode/k3x9ab", "logs/refs/heads/decode/k3x9ab", "worktrees/tree"] {
            confinement.writable.push(common.join(part));
        }
        let script = "echo 2 > a.txt && git add -A && git commit -qm second && git log --format=%s && git status -s";
        // git also tries to tidy packed references, complains that it may not, and goes on.
        let (ok, text) = shell(&scene, &confinement, script).await;
        assert!(ok && text.starts_with("second\nfirst\n"), "{text}");
        for script in [
            "git config user.name evil",
            "git branch elsewhere",
            "git update-ref refs/heads/main HEAD || git update-ref refs/heads/master HEAD",
            "echo x > \"$HOME/project/.git/hooks/pre-commit\"",
            "echo x > \"$HOME/project/a.txt\"",
        ] {
            assert!(!shell(&scene, &confinement, script).await.0, "{script}");
        }
    }

    #[tokio::test]
    async fn tcp_is_refused_when_the_network_is_closed() {
        if support().abi < 4 {
            return;
        }
        let scene = Scene::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let script = format!("exec 3<> /dev/tcp/127.0.0.1/{}", listener.local_addr().unwrap().port());
        let mut confinement = scene.confinement(Access::Write);
        assert!(shell(&scene, &confinement, &script).await.0);
        confinement.network = Network::NoTcp;
        let (ok, text) = shell(&scene, &confinement, &script).await;
        assert!(!ok && text.contains("denied"), "{text}");
    }

    #[tokio::test]
    async fn a_confined_command_may_be_started_twice() {
        if without_landlock() {
            return;
        }
        let scene = Scene::new();
        let mut command = tokio::process::Command::new("cat");
        command.arg(scene.at("state/key")).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        confine(&mut command, &scene.confinement(Access::Write)).unwrap();
        for _ in 0..2 {
            let output = command.output().await.unwrap();
            assert!(!output.status.success() && output.stdout.is_empty());
        }
    }

    #[test]
    fn a_place_is_granted_without_what_is_hidden_in_it() {
        let scene = Scene::new();
        let home = scene.at("home").canonicalize().unwrap();
        std::os::unix::fs::symlink(home.join(".ssh"), home.join(".cargo/link")).unwrap();
        let hidden = [home.join(".cargo/credentials.toml"), home.join(".ssh")];
        assert_eq!(without(&home.join(".cargo"), &hidden), [home.join(".cargo/registry")]);
        assert_eq!(without(&home.join(".ssh"), &hidden), Vec::<PathBuf>::new());
        let mut all = without(&home, &hidden);
        all.sort();
        let want = [".cargo/registry", ".config", ".gitconfig", ".netrc", "notes.txt"].map(|name| home.join(name));
        assert_eq!(all, want);
    }
}
