//! What the layers hold, on real processes in real places.

use std::path::PathBuf;

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
    !holds()
}

/// Whether commands get a root and processes of their own here.
fn has_rooms() -> bool {
    support().rooms == Rooms::Own
}

/// The words of a kernel that refuses: Landlock's, a mount's that is read-only, those of a place that is not there.
fn is_refusal(text: &str) -> bool {
    ["denied", "Read-only file system", "No such file", "not permitted", "cross-device"]
        .iter()
        .any(|words| text.contains(words))
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
        "f=$(mktemp) && echo x > \"$f\" && ls \"$TMPDIR\" | grep -q \"$(basename \"$f\")\"",
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
        "echo x > \"$ROOT/state/runs/k3x9ab/run.md\"",
        "echo x > \"/proc/self/root$HOME/notes.txt\"",
    ] {
        let (ok, text) = shell(&scene, &confinement, script).await;
        assert!(!ok && is_refusal(&text), "{script}: {text}");
    }
    assert_eq!(std::fs::read_to_string(scene.at("home/notes.txt")).unwrap(), before);
    assert!(!scene.at("home/new").exists());
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
        // What is hidden below a shared place is an empty file there.
        assert!(!text.contains("canary") && (is_refusal(&text) && !ok || text.is_empty()), "{script}: {text}");
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
        assert!(!ok && is_refusal(&text), "{script}: {text}");
    }
    if has_rooms() {
        let (ok, text) = shell(&scene, &confinement, "kill -0 $OUTER").await;
        assert!(!ok && text.contains("No such process"), "{text}");
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
    assert!(!ok && is_refusal(&text), "{text}");
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
    if landlock::version() < 4 {
        return;
    }
    let scene = Scene::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!("exec 3<> /dev/tcp/127.0.0.1/{}", listener.local_addr().unwrap().port());
    let mut confinement = scene.confinement(Access::Write);
    assert!(shell(&scene, &confinement, &script).await.0);
    confinement.network = Network::Closed;
    let (ok, text) = shell(&scene, &confinement, &script).await;
    assert!(!ok && (text.contains("denied") || text.contains("refused")), "{text}");
}

#[tokio::test]
async fn a_confined_command_may_be_started_twice() {
    if without_landlock() {
        return;
    }
    let scene = Scene::new();
    let mut command = tokio::process::Command::new("cat");
    command.current_dir(scene.tree()).arg(scene.at("state/key")).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    confine(&mut command, &scene.confinement(Access::Write)).unwrap();
    for _ in 0..2 {
        let output = command.output().await.unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
    }
}
