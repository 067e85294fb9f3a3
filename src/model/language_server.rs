//! A language server as the user names it, beside those that are known.

use serde::{Deserialize, Serialize};

/// `lsp: [{name: zls, command: [zls], extensions: [zig]}]` of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct LanguageServer {
    pub(crate) name: String,
    /// The program, by name or absolute path, and its arguments.
    pub(crate) command: Vec<String>,
    /// Of file names, without the dot.
    pub(crate) extensions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    command: Vec<String>,
    extensions: Vec<String>,
}

impl TryFrom<Written> for LanguageServer {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { name, command, extensions } = written;
        let program = command.first().map(String::as_str).unwrap_or_default();
        if program.is_empty() {
            return Err(format!("the language server `{name}` has no command"));
        }
        if program.contains('/') && !program.starts_with('/') {
            return Err(format!("`{program}` is a relative path; write a name or an absolute path"));
        }
        let extensions: Vec<String> = extensions.iter().map(|end| end.trim_start_matches('.').to_owned()).collect();
        if extensions.is_empty() || extensions.iter().any(String::is_empty) {
            return Err(format!("the language server `{name}` needs extensions, as in [zig]"));
        }
        Ok(Self { name, command, extensions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_program_or_files_is_refused() {
        let read = |json: &str| serde_json::from_str::<LanguageServer>(json).map_err(|error| error.to_string());
        let sound = read(r#"{"name": "zls", "command": ["zls", "-x"], "extensions": [".zig", "zon"]}"#).unwrap();
        assert_eq!(sound.extensions, ["zig", "zon"]);
        assert_eq!(read(&serde_json::to_string(&sound).unwrap()), Ok(sound));
        for (json, says) in [
            (r#"{"name": "x", "command": [], "extensions": ["x"]}"#, "has no command"),
            (r#"{"name": "x", "command": ["./x"], "extensions": ["x"]}"#, "relative path"),
            (r#"{"name": "x", "command": ["x"], "extensions": []}"#, "needs extensions"),
            (r#"{"name": "x", "command": ["x"], "extensions": ["x"], "more": 1}"#, "unknown field"),
        ] {
            assert!(read(json).unwrap_err().contains(says), "{json}");
        }
    }
}
