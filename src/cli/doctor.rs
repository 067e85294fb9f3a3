//! `decode doctor`: what is here, what is missing, and the line that helps. It never prints a secret.

use super::error::CliError;
use super::{exit, output, wire};
use crate::command::Invocation;
use crate::machine::model_choice::KNOWN;
use crate::sandbox;

/// Check what decode needs: tmux, git, sandbox, keys by name, limits
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
struct Check {
    name: &'static str,
    state: Health,
    said: String,
    hint: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Ok,
    /// Works, with less.
    Note,
    Missing,
}

impl Health {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Missing => "missing",
        }
    }
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let mut checks = wire::runtime()?.block_on(async {
        vec![
            program("tmux", &["-V"], "install tmux, or use --terminal bare").await,
            program("git", &["--version"], "install git: writers work in git worktrees").await,
            program("python3", &["--version"], "install python3: programs need it").await,
            program("bwrap", &["--version"], "install bubblewrap: programs and untrusted work need it").await,
        ]
    });
    checks.push(confinement());
    checks.push(state());
    checks.extend(keys());
    checks.extend(limits());
    let code = if checks.iter().any(|check| check.state == Health::Missing) { exit::MISSING } else { exit::DONE };
    if args.json {
        let list: Vec<serde_json::Value> = checks
            .iter()
            .map(|check| serde_json::json!({"name": check.name, "state": check.state.word(), "said": check.said, "hint": check.hint}))
            .collect();
        output::line(&serde_json::json!({"v": 1, "checks": list}).to_string());
        return Ok(code);
    }
    for check in &checks {
        let mut said = check.said.lines();
        output::line(&format!("{:<8} {:<14} {}", check.state.word(), check.name, said.next().unwrap_or_default()));
        for more in said {
            output::line(&format!("{:<23} {more}", ""));
        }
        if let Some(hint) = check.hint.filter(|_| check.state != Health::Ok) {
            output::line(&format!("{:<23} hint: {hint}", ""));
        }
    }
    Ok(code)
}

async fn program(name: &'static str, arguments: &[&str], hint: &'static str) -> Check {
    let needed = matches!(name, "tmux" | "git");
    match Invocation::new(name, arguments.iter().map(ToString::to_string)).run().await {
        Ok(finished) if finished.status.success() => {
            let said = crate::text::one_line(&finished.stdout_text(), 60);
            Check { name, state: Health::Ok, said, hint: None }
        }
        Ok(_) | Err(_) => Check {
            name,
            state: if needed { Health::Missing } else { Health::Note },
            said: "not found".to_owned(),
            hint: Some(hint),
        },
    }
}

fn confinement() -> Check {
    let support = sandbox::support();
    let said = if support.is_there() {
        let list = |head: &str, words: &[&str]| words.iter().map(|word| format!("\n{head} {word}")).collect::<String>();
        format!(
            "{} (Landlock {}){}{}",
            support.words(),
            support.abi,
            list("held:    ", &support.can),
            list("not held:", &support.cannot)
        )
    } else {
        format!("off: {}", support.cannot.join(", "))
    };
    Check {
        name: "sandbox",
        state: if support.is_there() && support.rooms == sandbox::Rooms::Own { Health::Ok } else { Health::Note },
        said,
        hint: Some(if support.is_there() {
            "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or a container with CAP_SYS_ADMIN"
        } else {
            "writers need --permission-mode edit or --ask here"
        }),
    }
}

fn state() -> Check {
    match wire::state_root() {
        Ok(root) => Check { name: "state", state: Health::Ok, said: root.path().display().to_string(), hint: None },
        Err(error) => Check {
            name: "state",
            state: Health::Missing,
            said: error.message,
            hint: Some("set DECODE_STATE to a directory of your own"),
        },
    }
}

/// Names only.
fn keys() -> Vec<Check> {
    let set: Vec<&str> = KNOWN.iter().map(|known| known.1).filter(|name| wire::variable(name).is_some()).collect();
    let (state, said) = if set.is_empty() {
        (Health::Note, "no key is set; offline/explorer answers, which is a search and no model".to_owned())
    } else {
        (Health::Ok, format!("set: {}", set.join(", ")))
    };
    vec![Check { name: "keys", state, said, hint: Some("export ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…") }]
}

fn limits() -> Vec<Check> {
    let read = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let mut checks = Vec::new();
    if let Ok((_, hard)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        let state = if hard < 1024 { Health::Note } else { Health::Ok };
        let said = format!("{hard} descriptors a process");
        checks.push(Check { name: "descriptors", state, said, hint: Some("raise `ulimit -Hn` above 1024") });
    }
    if let Some(instances) = read("/proc/sys/fs/inotify/max_user_instances") {
        let state = if instances < 64 { Health::Note } else { Health::Ok };
        let said = format!("{instances} inotify instances");
        checks.push(Check {
            name: "inotify",
            state,
            said,
            hint: Some("raise fs.inotify.max_user_instances; without inotify files are listed every 5 s"),
        });
    }
    checks
}
