//! How deep below another decode this one runs, whatever its environment says.
//!
//! An agent's command is told its depth in `DECODE_DEPTH`, and a command can clear that; its parents it cannot choose.
//! Deliberately absent: what depth is allowed (`asked.rs`).

use super::wire;
use crate::command::identity;

/// 0 for a person's decode, 1 for one below an agent.
pub(super) fn depth() -> u32 {
    let told = wire::variable("DECODE_DEPTH").and_then(|depth| depth.parse().ok()).unwrap_or(0);
    if told == 0 && is_below_an_agent() { 1 } else { told }
}

/// Looked at from the nearest parent on; a handful of reads in `/proc`. A process that holds a key cannot be looked
/// into, but its name and its command line are there for all.
fn is_below_an_agent() -> bool {
    let own = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    // The kernel keeps fifteen bytes of a name.
    let own = own.as_deref().map_or("", |name| crate::text::prefix(name, 15));
    identity::ancestors()
        .filter(|pid| identity::name(*pid).is_some_and(|name| name == own || name == "decode"))
        .any(|pid| runs_an_agent(&identity::command_line(pid)))
}

/// Whether a decode with this command line runs an agent in its own process. Those that start editors and shells for a
/// person, and supervisors, do not.
fn runs_an_agent(words: &[String]) -> bool {
    match words.get(1).map(String::as_str) {
        None => !words.is_empty(),
        Some(first) => first == "run" || first.starts_with('-') || first.contains(char::is_whitespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_decode_whose_own_process_runs_an_agent_makes_others_its_children() {
        let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for line in [
            &["decode"][..],
            &["decode", "run", "--attempt", "/s"],
            &["decode", "run", "fix it"],
            &["decode", "-p", "fix it"],
            &["decode", "fix the test"],
        ] {
            assert!(runs_an_agent(&words(line)), "{line:?}");
        }
        for line in
            [&[][..], &["decode", "attach", "last"], &["decode", "shell", "a/1"], &["decode", "supervise", "/s"]]
        {
            assert!(!runs_an_agent(&words(line)), "{line:?}");
        }
    }
}
