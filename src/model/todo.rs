//! The list an agent keeps of its own work.
//!
//! Deliberately absent: where it is shown. It lives as long as the attempt; the transcript has every version.

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Todo {
    pub(crate) text: String,
    pub(crate) state: TodoState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TodoState {
    Pending,
    InProgress,
    Completed,
}

impl std::str::FromStr for TodoState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pending" => Ok(Self::Pending),
            "in_progress" => Ok(Self::InProgress),
            "completed" => Ok(Self::Completed),
            other => {
                let shown = crate::text::one_line(other, 40);
                Err(format!("`{shown}` is not a status; write pending, in_progress or completed"))
            }
        }
    }
}
