//! What the layers hold, on real processes in real places.

use std::os::unix::process::ExitStatusExt;
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
    command
        .current_dir(scene.tree())
        .arg(scene.at("state/key"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    confine(&mut command, &scene.confinement(Access::Write)).unwrap();
    for _ in 0..2 {
        let output = command.output().await.unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
    }
}

/// Runs a script confined, with its network closed; what it prints and whether it did well.
async fn closed(scene: &Scene, script: &str) -> (bool, String) {
    let mut confinement = scene.confinement(Access::Write);
    confinement.network = Network::Closed;
    shell(scene, &confinement, script).await
}

#[tokio::test]
async fn what_leads_out_of_the_rooms_is_blocked() {
    if !has_rooms() {
        return;
    }
    let scene = Scene::new();
    let mut outside = std::process::Command::new("sleep").arg("600").env("CANARY", "canary").spawn().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(scene.at("home/.cargo/s")).unwrap();
    let abstract_name = format!("decode-test-{}", std::process::id());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&abstract_name);
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&address.unwrap()).unwrap();
    std::fs::write(scene.at("home/.bashrc"), "mine").unwrap();
    let (pid, tcp_port) = (outside.id(), tcp.local_addr().unwrap().port());
    let notes = scene.at("home/notes.txt");
    let before = std::fs::metadata(&notes).unwrap();
    let connects = |address: &str| {
        format!("python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.connect({address}); print('reached')\"")
    };
    let scripts = [
        format!("cat /proc/{pid}/environ"),
        format!("cat /proc/{pid}/mem"),
        format!("kill {pid}"),
        "cat /proc/1/environ".to_owned(),
        "head -c 1 /proc/1/mem".to_owned(),
        "cat /proc/1/maps | grep .".to_owned(),
        "ls /proc/1/root/ /proc/1/fd/0".to_owned(),
        "gdb -p 1 < /dev/null 2>&1 | grep -q Attaching && strace -p 1".to_owned(),
        connects(&format!("'{}'", scene.at("home/.cargo/s").display())),
        connects(&format!("'\\\\0{abstract_name}'")),
        format!("echo x > /dev/tcp/127.0.0.1/{tcp_port}"),
        "echo x >> ~/.bashrc".to_owned(),
        "mkdir -p ~/.config/git && echo x > ~/.config/git/config".to_owned(),
        "chmod 777 ~/notes.txt".to_owned(),
        "touch ~/.cargo/registry/crate.rs".to_owned(),
        "chmod 777 ~/.cargo/registry/crate.rs".to_owned(),
        "mount -t tmpfs x /tmp".to_owned(),
        "mount --bind /usr \"$PWD\"".to_owned(),
        "mount -o remount,rw /usr".to_owned(),
        "unshare -U true".to_owned(),
        "unshare -Ur mount -t tmpfs x /tmp".to_owned(),
        "nsenter -t 1 -m true".to_owned(),
        "python3 -c \"import ctypes,sys; l=ctypes.CDLL(None); sys.exit(l.syscall(250, 0, -3, 0) < 0)\"".to_owned(),
        "python3 -c 'import socket; socket.socket(40, socket.SOCK_STREAM)'".to_owned(),
        "echo core > /proc/sys/kernel/core_pattern".to_owned(),
        "ls /dev/mem /dev/sda /dev/vda /dev/kmsg".to_owned(),
        format!("ls {}/home/.ssh", scene.directory.path().display()),
    ];
    for script in scripts {
        let (ok, text) = closed(&scene, &script).await;
        assert!(!ok && !text.contains("canary") && !text.contains("reached"), "{script}: {text}");
    }
    let port = udp.local_addr().unwrap().port();
    closed(&scene, &format!("echo x > /dev/udp/127.0.0.1/{port}")).await;
    udp.set_nonblocking(true).unwrap();
    assert!(udp.recv(&mut [0; 8]).is_err(), "no datagram left the command's own network");
    assert_eq!(std::fs::read_to_string(scene.at("home/.bashrc")).unwrap(), "mine");
    let after = std::fs::metadata(&notes).unwrap();
    assert_eq!((before.permissions(), before.modified().unwrap()), (after.permissions(), after.modified().unwrap()));
    assert!(outside.try_wait().unwrap().is_none(), "it was not reached by a signal");
    outside.kill().unwrap();
    outside.wait().unwrap();
}

#[tokio::test]
async fn a_socket_that_is_made_after_the_command_started_is_not_there() {
    if !has_rooms() {
        return;
    }
    let scene = Scene::new();
    let late = scene.at("home/late.sock");
    let script = format!(
        "touch up; until [ -e go ]; do :; done; python3 -c \"import socket; \
         socket.socket(socket.AF_UNIX).connect('{}')\"",
        late.display()
    );
    let (up, go) = (scene.tree().join("up"), scene.tree().join("go"));
    let makes = async {
        while !up.exists() {
            tokio::task::yield_now().await;
        }
        let listener = std::os::unix::net::UnixListener::bind(&late).unwrap();
        std::fs::write(go, "").unwrap();
        listener
    };
    let ((ok, text), _listener) = tokio::join!(closed(&scene, &script), makes);
    assert!(!ok && is_refusal(&text), "{text}");
}

#[tokio::test]
async fn a_link_that_is_swapped_while_the_command_runs_leads_nowhere() {
    if !has_rooms() {
        return;
    }
    let scene = Scene::new();
    let script = "mkdir -p a && for i in 1 2 3 4 5 6 7 8 9; do ln -sfn \"$ROOT/home\" l; echo x > l/swapped; \
                  ln -sfn a l; echo x > l/swapped; done 2> /dev/null; cat a/swapped";
    assert_eq!(closed(&scene, script).await, (true, "x\n".to_owned()));
    assert!(!scene.at("home/swapped").exists());
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_though_it_hid_from_its_session_and_its_environment() {
    if !has_rooms() {
        return;
    }
    let scene = Scene::new();
    // A pipe that the process holds open is closed by its end.
    let script = "mkfifo hold; env -i setsid bash -c 'exec 3<>hold; touch up; setsid sleep 600 & exec sleep 600' \
                  > /dev/null 2>&1 < /dev/null & until [ -e up ]; do :; done";
    let began = std::time::Instant::now();
    assert!(closed(&scene, script).await.0);
    let writer = || {
        nix::fcntl::open(
            &scene.tree().join("hold"),
            nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_NONBLOCK,
            nix::sys::stat::Mode::empty(),
        )
    };
    while writer().is_ok() {
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "it lives on");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_commands_need_works_in_the_rooms() {
    if !has_rooms() {
        return;
    }
    let scene = Scene::new();
    for script in [
        "python3 -c 'print(1)' && ls / ~ > /dev/null && id > /dev/null",
        "echo x > /tmp/t && cat /tmp/t && echo y > /var/tmp/t && echo z > /dev/shm/t",
        "seq 10000 | sort -n | tail -1 | grep -q 10000",
        "cat <(echo 1) | tee /dev/stderr > /dev/null && script -qc true /dev/null < /dev/null",
        "test \"$(ls /proc | grep -c '^[0-9]*$')\" -lt 10 && ps > /dev/null",
        "kill -0 $$ && (exit 3); test $? = 3",
        "python3 -c \"
import socket, threading
s = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=lambda: s.accept()[0].send(b'own'), daemon=True).start()
print(socket.create_connection(s.getsockname()).recv(3))\" | grep -q own",
        "python3 -c \"
import socket, os
s = socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect('own.sock')\"",
        "git init -q r && cd r && git -c user.name=x -c user.email=x commit -q --allow-empty -m x && git status -s",
        "! getent hosts example.com",
    ] {
        let (ok, text) = closed(&scene, script).await;
        assert!(ok, "{script}: {text}");
    }
}

#[tokio::test]
async fn a_command_ends_as_it_would_without_rooms() {
    let scene = Scene::new();
    if without_landlock() {
        return;
    }
    for (script, code, signal) in [
        ("exit 7", Some(7), None),
        ("kill -9 $$", None, Some(9)),
        ("kill -TERM $$", None, Some(15)),
        ("true", Some(0), None),
    ] {
        let mut command = tokio::process::Command::new("bash");
        command.args(["-c", script]).current_dir(scene.tree()).kill_on_drop(true);
        confine(&mut command, &scene.confinement(Access::Write)).unwrap();
        let status = command.status().await.unwrap();
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
    let mut command = tokio::process::Command::new("no-such-program-at-all");
    command.current_dir(scene.tree());
    confine(&mut command, &scene.confinement(Access::Write)).unwrap();
    assert_eq!(command.status().await.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn killing_the_process_that_was_started_ends_all_that_it_started() {
    if !has_rooms() {
        return;
    }
    let scene = Scene::new();
    let mut command = tokio::process::Command::new("bash");
    command.args(["-c", "env -i setsid sleep 600 & touch up; wait"]).current_dir(scene.tree());
    command.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    confine(&mut command, &scene.confinement(Access::Write)).unwrap();
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let began = std::time::Instant::now();
    while !scene.tree().join("up").exists() {
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
        tokio::task::yield_now().await;
    }
    child.kill().await.unwrap();
    // All of them held the pipe.
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut pipe, &mut rest);
    tokio::time::timeout(std::time::Duration::from_secs(20), read).await.unwrap().unwrap();
}
