//! A process and all it started: who they are, and how to signal every one of them.
//!
//! A child escapes its parent by setsid, and outlives it by ignoring a signal; a pid may be somebody else's by the
//! time it is used. Deliberately absent: the grace between TERM and KILL, which is the machine's.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;

use super::identity::{Identity, Stat, boot_id, hostname};
use super::signal_exactly;

/// A tree that forks as fast as we look is given up after so many looks; the caller's next signal goes on.
const LOOKS: usize = 16;

/// Signals the process and all that descend from it, those in sessions and process groups of their own too, and
/// returns the pids that were signalled. We ourselves are never among them.
///
/// If the process itself has ended, what is left of its session and group is still signalled: the kernel gives a pid
/// to nobody else while a session or group bears it.
pub(crate) fn kill_tree(root: &Identity, signal: Signal) -> Vec<i32> {
    let Some(root) = root_of(root) else { return Vec::new() };
    // What has ended meanwhile stays known: by it the next look finds what it left behind.
    let mut known = BTreeSet::from([root]);
    let mut signalled = signal_found(signal, || {
        let processes = snapshot();
        extend(&mut known, &processes);
        living(&processes, &known).copied().collect()
    });
    if cfg!(not(target_os = "linux")) {
        // Without /proc the group is all that can be reached.
        let group = nix::unistd::Pid::from_raw(root);
        if nix::sys::signal::killpg(group, signal).is_ok() {
            signalled.push(root);
        }
    }
    signalled
}

/// Kills all whose environment holds `entry`, as `DECODE_PARENT=k3x9ab/1`, and returns their pids.
///
/// What a dead process started has no tree any more by which it could be found, but it still bears the mark.
pub(crate) fn kill_marked(entry: &str) -> Vec<i32> {
    signal_found(Signal::SIGKILL, || {
        let marked = marked(entry);
        snapshot().into_iter().filter(|stat| marked.contains(&stat.pid)).collect()
    })
}

/// What one command has started: its tree, and all that bears its mark, wherever it went.
#[derive(Debug)]
pub(crate) struct Marked {
    root: Identity,
    entry: String,
    first: Option<Identity>,
}

impl Marked {
    /// `root` leads a session of its own and was started with `entry` in its environment.
    pub(crate) const fn new(root: Identity, entry: String) -> Self {
        Self { root, entry, first: None }
    }

    /// The same for a root whose only child is the first process of a process namespace. All others are below that one,
    /// and end with it whatever they did to their environment.
    #[must_use]
    pub(crate) fn in_namespace(mut self) -> Self {
        self.first = only_child(self.root.pid).and_then(Identity::of);
        self
    }

    /// The members that still run; the first process of a namespace only keeps the others.
    pub(crate) fn living(&self) -> Vec<i32> {
        let first = self.first.as_ref().map(|first| first.pid);
        self.look().iter().map(|stat| stat.pid).filter(|pid| Some(*pid) != first).collect()
    }

    /// Signals every one of them.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_found(signal, || self.look());
        if cfg!(not(target_os = "linux"))
            && let Some(root) = root_of(&self.root)
        {
            // A group that is gone has nothing left to signal.
            let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(root), signal);
        }
    }

    #[cfg(target_os = "linux")]
    fn look(&self) -> Vec<Stat> {
        let processes = snapshot();
        let mut known = marked(&self.entry);
        known.extend(root_of(&self.root));
        known.extend(self.first.as_ref().and_then(root_of));
        extend(&mut known, &processes);
        living(&processes, &known).copied().collect()
    }

    /// Without /proc only the group can be asked.
    #[cfg(not(target_os = "linux"))]
    fn look(&self) -> Vec<Stat> {
        let lives = |pid: &i32| nix::sys::signal::killpg(nix::unistd::Pid::from_raw(*pid), None).is_ok();
        root_of(&self.root).filter(lives).and_then(|pid| Stat::read(pid).ok().flatten()).into_iter().collect()
    }
}

/// The pid by which a tree is known; none if it was never of this system, or is somebody else's now: then nothing of
/// ours is left that bears it.
fn root_of(root: &Identity) -> Option<i32> {
    let here = root.pid > 1 && root.host == hostname() && root.boot_id == boot_id();
    let reused = || matches!(Stat::read(root.pid), Ok(Some(stat)) if stat.start_time != root.start_time);
    (here && !reused()).then_some(root.pid)
}

/// Signals what `find` finds, each process once, and returns the pids that were signalled.
fn signal_found(signal: Signal, mut find: impl FnMut() -> Vec<Stat>) -> Vec<i32> {
    // A killed process runs nothing more, so that looking again finds only what it forked before. After any other
    // signal a second look would hit what its handler starts to clean up.
    let looks = if signal == Signal::SIGKILL { LOOKS } else { 1 };
    let mut signalled = Vec::new();
    for _ in 0..looks {
        let fresh: Vec<Stat> = find().into_iter().filter(|stat| !signalled.contains(&stat.pid)).collect();
        if fresh.is_empty() {
            break;
        }
        signalled.extend(fresh.iter().filter(|stat| signal_one(stat, signal)).map(|stat| stat.pid));
    }
    signalled
}

/// The child of a process that has one.
fn only_child(pid: i32) -> Option<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    match listed.ok().and_then(|list| list.split_whitespace().next()?.parse().ok()) {
        Some(child) => Some(child),
        // Kernels may be built without that file.
        None => snapshot().iter().find(|stat| stat.parent == pid).map(|stat| stat.pid),
    }
}

/// All but ourselves whose environment holds `entry`.
fn marked(entry: &str) -> BTreeSet<i32> {
    let me = i32::try_from(std::process::id()).expect("a pid fits in an i32");
    pids().into_iter().filter(|pid| *pid != me && bears(*pid, entry)).collect()
}

/// The environment a process was started with; none of one that has ended or is not to be read by us.
fn bears(pid: i32, entry: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes()))
}

/// All living processes that descend from `pid`, or belong to a session or process group that it or one of them
/// leads.
#[cfg(test)]
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let processes = snapshot();
    let mut known = BTreeSet::from([pid]);
    extend(&mut known, &processes);
    known.remove(&pid);
    living(&processes, &known).map(|stat| stat.pid).collect()
}

/// Adds to `known` what belongs to it. Sessions and groups count only through their leaders: a process of the tree
/// that sits in the session of the user's shell does not make the shell one of the tree.
fn extend(known: &mut BTreeSet<i32>, processes: &[Stat]) {
    loop {
        let before = known.len();
        for stat in processes {
            if [stat.parent, stat.group, stat.session].iter().any(|id| known.contains(id)) {
                known.insert(stat.pid);
            }
        }
        if known.len() == before {
            return;
        }
    }
}

fn living<'a>(processes: &'a [Stat], known: &'a BTreeSet<i32>) -> impl Iterator<Item = &'a Stat> {
    let me = i32::try_from(std::process::id()).expect("a pid fits in an i32");
    processes.iter().filter(move |stat| known.contains(&stat.pid) && stat.pid != me && !stat.has_ended())
}

fn signal_one(stat: &Stat, signal: Signal) -> bool {
    let sent = signal_exactly(stat, signal).unwrap_or(false);
    if sent && stat.is_stopped() && signal != Signal::SIGKILL {
        // A stopped process would keep the signal until somebody wakes it. If it ended meanwhile, all is well.
        let _ = signal_exactly(stat, Signal::SIGCONT);
    }
    sent
}

/// Every process that we can see.
fn snapshot() -> Vec<Stat> {
    pids().into_iter().filter_map(|pid| Stat::read(pid).ok().flatten()).collect()
}

fn pids() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::super::identity::{Liveness, liveness};
    use super::*;

    #[test]
    fn what_bears_a_mark_is_killed_wherever_it_went_and_nothing_else_is() {
        let mark = format!("DECODE_PARENT=test{}/1", std::process::id());
        let mut tree = Tree::start(&format!("sleep 600 & echo $!; export {mark}; setsid sleep 600 & echo $!; wait"));
        let (other, marked) = (tree.pid(), tree.pid());
        // It bears the mark from its exec on.
        let end = Instant::now() + Duration::from_secs(20);
        while kill_marked(&mark) != [marked.pid] {
            assert!(Instant::now() < end, "it is found");
        }
        assert_eq!(liveness(&other), Liveness::Alive);
        assert_eq!(liveness(&tree.root), Liveness::Alive, "a shell that exports later does not bear it");
    }

    /// A shell in a session of its own; whatever the test does, nothing of it stays.
    struct Tree {
        child: Child,
        root: Identity,
        lines: BufReader<std::process::ChildStdout>,
    }

    impl Tree {
        fn start(script: &str) -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
            let mut child = command.spawn().unwrap();
            let root = Identity::of(i32::try_from(child.id()).unwrap()).unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap());
            Self { child, root, lines }
        }

        /// The next pid the script prints.
        fn pid(&mut self) -> Identity {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            Identity::of(line.trim().parse().unwrap()).unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            kill_tree(&self.root, Signal::SIGKILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn ends(identity: &Identity) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if liveness(identity) == Liveness::Gone {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn a_process_that_made_a_session_of_its_own_is_killed_with_the_tree() {
        let mut tree = Tree::start("setsid sh -c 'echo $$; exec sleep 600' & sh -c 'echo $$; exec sleep 600' & wait");
        let (one, two) = (tree.pid(), tree.pid());
        assert_eq!(descendants(tree.root.pid), {
            let mut both = [one.pid, two.pid];
            both.sort_unstable();
            both
        });
        let signalled = kill_tree(&tree.root, Signal::SIGKILL);
        assert_eq!(signalled.len(), 3, "{signalled:?}");
        assert!(ends(&one) && ends(&two) && ends(&tree.root));
    }

    #[test]
    fn a_tree_that_ignores_term_ends_with_kill() {
        let mut tree = Tree::start("trap '' TERM; sh -c 'echo $$; while :; do sleep 600; done' & echo $$; wait; wait");
        let (one, two) = (tree.pid(), tree.pid());
        assert!(kill_tree(&tree.root, Signal::SIGTERM).len() >= 2);
        assert_eq!((liveness(&one), liveness(&two)), (Liveness::Alive, Liveness::Alive));
        kill_tree(&tree.root, Signal::SIGKILL);
        assert!(ends(&one) && ends(&two));
        assert_eq!(descendants(tree.root.pid), [0; 0]);
    }

    #[test]
    fn what_is_left_of_a_session_is_killed_after_its_leader_has_ended() {
        let mut tree = Tree::start("sh -c 'echo $$; exec sleep 600' & exit 0");
        let orphan = tree.pid();
        tree.child.wait().unwrap();
        assert_eq!(kill_tree(&tree.root, Signal::SIGKILL), [orphan.pid]);
        assert!(ends(&orphan));
    }

    #[test]
    fn a_foreign_process_that_got_the_pid_is_not_touched() {
        let tree = Tree::start("sleep 600");
        let before = Identity { start_time: tree.root.start_time - 1, ..tree.root.clone() };
        assert_eq!(kill_tree(&before, Signal::SIGKILL), [0; 0]);
        let elsewhere = Identity { host: "elsewhere.example".to_owned(), ..tree.root.clone() };
        assert_eq!(kill_tree(&elsewhere, Signal::SIGKILL), [0; 0]);
        let init = Identity { pid: 1, ..Identity::of_self() };
        assert_eq!(kill_tree(&init, Signal::SIGCONT), [0; 0]);
        assert_eq!(liveness(&tree.root), Liveness::Alive);
    }

    #[test]
    fn a_stopped_process_hears_term() {
        let mut tree = Tree::start("echo $$; kill -STOP $$; sleep 600");
        let root = tree.pid();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !matches!(Stat::read(root.pid), Ok(Some(stat)) if stat.is_stopped()) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(kill_tree(&root, Signal::SIGTERM), [root.pid]);
        assert!(ends(&root));
    }

    #[test]
    fn the_session_of_the_users_shell_is_not_part_of_a_tree_inside_it() {
        let stat = |pid, parent, group, session| Stat::for_test(pid, parent, group, session);
        let processes = [
            stat(10, 1, 10, 10),
            stat(20, 10, 20, 10),
            stat(21, 20, 20, 10),
            stat(22, 21, 22, 22),
            stat(30, 10, 30, 10),
            stat(40, 1, 20, 10),
        ];
        let mut known = BTreeSet::from([20]);
        extend(&mut known, &processes);
        assert_eq!(known, BTreeSet::from([20, 21, 22, 40]));
    }
}
