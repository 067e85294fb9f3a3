//! A permission rule as people write it: `bash(git *)`, `read(secret/**)`, `write`.

use serde::{Deserialize, Serialize};

use super::tool_name::ToolName;

/// `tool` or `tool(pattern)`. What a pattern is matched against is the gate's business.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Rule {
    pub(crate) tool: ToolName,
    pub(crate) pattern: Option<String>,
}

impl std::str::FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let pattern = rest
                    .strip_suffix(')')
                    .ok_or_else(|| format!("rule `{text}` has no closing parenthesis; write tool(pattern)"))?;
                (tool.trim(), Some(pattern.trim().to_owned()))
            }
        };
        if tool.contains(')') {
            return Err(format!("rule `{text}` has no opening parenthesis; write tool(pattern)"));
        }
        let tool = tool.parse().map_err(|error| format!("rule `{text}`: {error}"))?;
        Ok(Self { tool, pattern: pattern.filter(|pattern| !pattern.is_empty() && pattern != "*") })
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pattern {
            None => write!(f, "{}", self.tool),
            Some(pattern) => write!(f, "{}({pattern})", self.tool),
        }
    }
}

/// What a rule's pattern is matched against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A path relative to the workspace, links resolved; or absolute where it lies outside.
    Path(String),
    /// A shell line.
    Command(String),
    /// An address that is fetched, by whatever tool.
    Url(String),
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_and_written_back() {
        for (text, want) in [("bash(git *)", "bash(git *)"), (" Bash ( git * ) ", "bash(git *)"), ("write", "write")] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), want);
        }
        for text in ["", "bash(", "bash)", "(x)", "nope(x)", "bash(git *) && x"] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }
}
