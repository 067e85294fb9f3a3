//! The names of the tools, one closed set, and what kind of thing each does.

use serde::{Deserialize, Serialize};

/// What a tool may do to the world; the mode decides by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
    /// Looks and does not touch.
    ReadOnly,
    /// Changes files.
    Edit,
    /// Runs commands.
    Command,
    /// Talks to the loop, not to the world; never asked about.
    Control,
}

macro_rules! tools {
    ($($variant:ident = $name:literal $kind:ident),+ $(,)?) => {
        /// A tool by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub(crate) enum ToolName { $($variant),+ }

        impl ToolName {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            pub(crate) const fn kind(self) -> ToolKind {
                match self { $(Self::$variant => ToolKind::$kind),+ }
            }
        }
    };
}

tools! {
    Read = "read" ReadOnly,
    Glob = "glob" ReadOnly,
    Grep = "grep" ReadOnly,
    Lsp = "lsp" ReadOnly,
    Write = "write" Edit,
    Edit = "edit" Edit,
    Bash = "bash" Command,
    TodoWrite = "todo_write" Control,
    WebFetch = "web_fetch" ReadOnly,
    WebSearch = "web_search" ReadOnly,
    AskUser = "ask_user" Control,
    EnterPlanMode = "enter_plan_mode" Control,
    ExitPlanMode = "exit_plan_mode" Control,
    Sleep = "sleep" Control,
    Skill = "skill" Control,
    Agent = "agent" ReadOnly,
    Invoke = "invoke" Command,
    Job = "job" Control,
}

impl ToolName {
    /// Whether a persona with only such tools is a reader (DESIGN: gets the workspace `shared`).
    pub(crate) const fn only_reads(self) -> bool {
        !matches!(self, Self::Write | Self::Edit | Self::Bash | Self::Invoke | Self::Job)
    }
}

impl std::fmt::Display for ToolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ToolName {
    type Err = String;

    /// Also as Claude Code writes them: `Read`, `WebFetch`, `Task`.
    fn from_str(text: &str) -> Result<Self, String> {
        let plain: String =
            text.trim().chars().filter(|c| *c != '_' && *c != '-').flat_map(char::to_lowercase).collect();
        let plain = match plain.as_str() {
            "task" => "agent",
            "multiedit" => "edit",
            "todowrite" => "todowrite",
            other => other,
        };
        Self::ALL.iter().copied().find(|tool| tool.as_str().replace('_', "") == plain).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|tool| tool.as_str()).collect();
            format!("`{}` is not a tool; known are {}", text.trim(), known.join(", "))
        })
    }
}

impl TryFrom<String> for ToolName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ToolName> for String {
    fn from(tool: ToolName) -> Self {
        tool.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_found_by_its_name_and_as_claude_code_writes_it() {
        for tool in ToolName::ALL {
            assert_eq!(tool.as_str().parse(), Ok(*tool));
        }
        assert_eq!("WebFetch".parse(), Ok(ToolName::WebFetch));
        assert_eq!("Bash".parse(), Ok(ToolName::Bash));
        assert!("[read".parse::<ToolName>().is_err());
    }
}
