//! What of the caller's environment a tool may see: all but what looks like a secret and what leads to a socket.

/// Parts of names that look like a secret.
const SECRET: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Names that lead to a socket or a terminal of the user.
const SOCKETS: &[&str] = &[
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DOCKER_HOST",
    "TMUX",
    "TMUX_PANE",
    "TMUX_TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
];
/// Prefixes of the same, and of what configures decode itself.
const PREFIXES: &[&str] = &["DBUS_", "DECODE_"];

/// Says whose commands these are: `RUN/NUMBER` of the child.
pub(crate) const PARENT: &str = "DECODE_PARENT";

/// Whether a variable may enter a tool's environment.
pub(crate) fn is_open(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    !SECRET.iter().any(|part| upper.contains(part))
        && !SOCKETS.contains(&upper.as_str())
        && !PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
}

/// The environment of tools: what is open of the caller's, and where in the run they are.
pub(crate) fn for_tools(caller: &[(String, String)], depth: u32, parent: &str) -> Vec<(String, String)> {
    let mut open: Vec<(String, String)> = caller.iter().filter(|(name, _)| is_open(name)).cloned().collect();
    open.push(("DECODE_DEPTH".to_owned(), (depth + 1).to_string()));
    open.push((PARENT.to_owned(), parent.to_owned()));
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_sockets_stay_out_and_the_rest_stays_in() {
        for name in [
            "ANTHROPIC_API_KEY",
            "github_token",
            "MY_SECRET_X",
            "PGPASSWORD",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "TMUX",
            "DECODE_STATE",
        ] {
            assert!(!is_open(name), "{name}");
        }
        for name in ["PATH", "HOME", "LANG", "CARGO_HOME", "VIRTUAL_ENV", "TRACEPARENT", "EDITOR"] {
            assert!(is_open(name), "{name}");
        }
    }

    #[test]
    fn a_tool_is_told_how_deep_it_is() {
        let environment = for_tools(&[("DECODE_DEPTH".into(), "0".into()), ("A".into(), "b".into())], 1, "k3x9ab/1");
        assert_eq!(environment[0], ("A".into(), "b".into()));
        assert!(environment.contains(&("DECODE_DEPTH".into(), "2".into())));
        assert_eq!(environment.iter().filter(|(name, _)| name == "DECODE_DEPTH").count(), 1);
    }
}
