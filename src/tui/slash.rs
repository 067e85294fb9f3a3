//! Lines that begin with a slash: what a person tells the session, not the model.
//!
//! Deliberately absent: doing it.

use crate::agent::Command;
use crate::model::persona::Mode;
use crate::text;

/// Commands with what they take and do; `/help` and completion are made of this.
pub(super) const COMMANDS: [(&str, &str, &str); 9] = [
    ("agent", "NAME", "go on as another persona"),
    ("mode", "MODE", "default, edit, plan or bypass"),
    ("model", "PROVIDER/NAME", "go on with another model"),
    ("compact", "", "summarise the conversation so far"),
    ("skills", "", "what can be loaded with /NAME"),
    ("cost", "", "what was used so far"),
    ("help", "", "this list, and the keys"),
    ("quit", "", "end; the session can be resumed"),
    ("exit", "", "the same"),
];

/// What a line means that begins with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slash {
    /// For the loop.
    Command(Command),
    Skills,
    Cost,
    Help,
    Skill {
        name: String,
        arguments: String,
    },
    /// Nothing of the kind; says so, with what is near.
    Wrong(String),
}

/// Reads a line; `None` if it is text for the model, as a path is.
pub(super) fn read(line: &str, skills: &[(String, String)], personas: &[String]) -> Option<Slash> {
    let rest = line.strip_prefix('/')?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let arguments = arguments.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':'));
    if !is_name {
        return None;
    }
    Some(match (name, arguments) {
        ("agent", "") => Slash::Wrong(format!("which? {}", personas.join(", "))),
        ("agent", agent) => Slash::Command(Command::Agent(agent.to_owned())),
        ("mode", mode) => match mode.parse::<Mode>() {
            Ok(mode) => Slash::Command(Command::Mode(mode)),
            Err(why) => Slash::Wrong(why),
        },
        ("model", "") => Slash::Wrong("which? as in /model provider/name".to_owned()),
        ("model", model) => Slash::Command(Command::Model(model.to_owned())),
        ("compact", _) => Slash::Command(Command::Compact),
        ("quit" | "exit", _) => Slash::Command(Command::Quit),
        ("skills", _) => Slash::Skills,
        ("cost", _) => Slash::Cost,
        ("help", _) => Slash::Help,
        (name, arguments) if skills.iter().any(|(skill, _)| skill == name) => {
            Slash::Skill { name: name.to_owned(), arguments: arguments.to_owned() }
        }
        (name, _) => Slash::Wrong(unknown(name, skills)),
    })
}

/// What is near a name that is none: it begins so, or is spelt nearly so.
fn unknown(name: &str, skills: &[(String, String)]) -> String {
    let all: Vec<&str> = names(skills).collect();
    let near: Vec<String> =
        all.iter().filter(|known| known.starts_with(name)).map(|known| format!("/{known}")).collect();
    let near = if near.is_empty() {
        text::closest(name, all.iter().copied()).map(|known| format!("/{known}")).into_iter().collect()
    } else {
        near
    };
    if near.is_empty() {
        format!("/{name} is not known; /help lists what is")
    } else {
        format!("/{name} is not known; did you mean {}?", near.join(", "))
    }
}

/// All that may stand after the slash.
pub(super) fn names(skills: &[(String, String)]) -> impl Iterator<Item = &str> {
    COMMANDS.iter().map(|(name, ..)| *name).chain(skills.iter().map(|(name, _)| name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(line: &str) -> Option<Slash> {
        read(line, &[("tidy".to_owned(), "cleans up".to_owned())], &["build".to_owned(), "plan".to_owned()])
    }

    #[test]
    fn commands_are_read_with_what_they_take() {
        assert_eq!(meant("/agent plan"), Some(Slash::Command(Command::Agent("plan".to_owned()))));
        assert_eq!(meant("/mode edit "), Some(Slash::Command(Command::Mode(Mode::Edit))));
        assert_eq!(meant("/model a/b"), Some(Slash::Command(Command::Model("a/b".to_owned()))));
        assert_eq!(meant("/quit"), Some(Slash::Command(Command::Quit)));
        let skill = Slash::Skill { name: "tidy".to_owned(), arguments: "src now".to_owned() };
        assert_eq!(meant("/tidy src now"), Some(skill));
    }

    #[test]
    fn every_command_of_the_help_is_known() {
        for (name, ..) in COMMANDS {
            let known = meant(&format!("/{name} default"));
            assert!(!matches!(&known, None | Some(Slash::Wrong(_))), "{name}: {known:?}");
        }
    }

    #[test]
    fn what_is_not_known_names_what_is_near() {
        let wrong = |line| match meant(line) {
            Some(Slash::Wrong(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(wrong("/hlep"), "/hlep is not known; did you mean /help?");
        assert_eq!(wrong("/co"), "/co is not known; did you mean /compact, /cost?");
        assert_eq!(wrong("/agent"), "which? build, plan");
        assert!(wrong("/mode fast").contains("default, edit, plan or bypass"));
    }

    #[test]
    fn a_path_is_text_for_the_model() {
        assert_eq!(meant("/etc/passwd is what?"), None);
        assert_eq!(meant("/"), None);
        assert_eq!(meant("look at /help"), None);
    }
}
