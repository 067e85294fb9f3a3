//! A skill: instructions that an agent loads when it needs them. What of it is shown when.
//!
//! Three levels: name and description in the system prompt, the body when it is asked for, files beside it by the
//! ordinary tools. Deliberately absent: where skills are found, and which of two with one name is used.

use std::path::PathBuf;

use crate::text;

/// All that the system prompt says of skills. Past this it costs every request more than it helps one.
pub(crate) const INDEX: usize = 4 * 1024;
/// A description in the index; the whole one comes with the body.
const DESCRIPTION: usize = 200;
/// Files beside a skill that are named; a listing of hundreds helps nobody.
const SIBLINGS: usize = 40;
/// What the author writes where the words after the name belong.
const ARGUMENTS: &str = "$ARGUMENTS";

const HEADING: &str = "# Skills\n\nInstructions for certain kinds of work. When your task is of such a kind, call `skill` \
                       with the name first and follow what it says.\n\n";
/// Room that is kept for the line that counts what was left out.
const REST: usize = 80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skill {
    /// What `skill` and `/name` take.
    pub(crate) name: String,
    /// What it does and when to use it.
    pub(crate) description: String,
    pub(crate) body: String,
    /// Where its files lie; `None` for a bundled one, which has no others.
    pub(crate) directory: Option<PathBuf>,
    /// Files beside SKILL.md, relative to it, sorted.
    pub(crate) siblings: Vec<String>,
    pub(crate) callers: Callers,
    /// As its author lists them. They are shown and grant nothing: each action meets the gate as any other.
    pub(crate) allowed_tools: Vec<String>,
}

/// Who may load a skill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Callers {
    #[default]
    Anyone,
    /// Only a person, by `/name`: its author keeps it from models.
    People,
}

impl Skill {
    /// The body for whoever follows it: with the words after the name, and with where its other files are.
    pub(crate) fn invocation(&self, arguments: &str) -> String {
        let arguments = arguments.trim();
        let body = self.body.trim();
        let mut text = match (body.contains(ARGUMENTS), arguments) {
            (true, arguments) => body.replace(ARGUMENTS, arguments),
            (false, "") => body.to_owned(),
            (false, arguments) => format!("{body}\n\nARGUMENTS: {arguments}"),
        };
        if let Some(directory) = self.directory.as_ref().filter(|_| !self.siblings.is_empty()) {
            let named = self.siblings.iter().take(SIBLINGS).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = self.siblings.len().saturating_sub(SIBLINGS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.push_str(&format!(
                "\n\n[Files of this skill lie in {}; read them by their absolute path when they are needed: {named}{more}]",
                directory.display()
            ));
        }
        text
    }

    fn line(&self) -> String {
        let description = text::one_line(&self.description, 10 * DESCRIPTION);
        let kept = text::prefix(&description, DESCRIPTION);
        let mark = if kept.len() < description.len() { "…" } else { "" };
        format!("- {}: {kept}{mark}\n", self.name)
    }
}

/// The first level: a line a skill, in the order given, as many as have room; the rest is counted. Empty without any.
pub(crate) fn index<'a>(skills: impl IntoIterator<Item = &'a Skill>) -> String {
    let lines: Vec<String> =
        skills.into_iter().filter(|skill| skill.callers == Callers::Anyone).map(Skill::line).collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut text = HEADING.to_owned();
    for (number, line) in lines.iter().enumerate() {
        if text.len() + line.len() + REST > INDEX {
            text.push_str(&format!("- and {} more; `skill` names all when one is unknown\n", lines.len() - number));
            break;
        }
        text.push_str(line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, body: &str) -> Skill {
        Skill {
            name: name.to_owned(),
            description: format!("does {name}"),
            body: body.to_owned(),
            directory: None,
            siblings: Vec::new(),
            callers: Callers::Anyone,
            allowed_tools: Vec::new(),
        }
    }

    #[test]
    fn the_index_names_each_skill_that_a_model_may_load() {
        let hidden = Skill { callers: Callers::People, ..skill("secret", "x") };
        let text = index([&skill("one", "x"), &hidden, &skill("two", "x")]);
        assert!(text.ends_with("\n\n- one: does one\n- two: does two\n"), "{text}");
        assert_eq!(index([&hidden]), "");
    }

    #[test]
    fn the_index_stays_small_whatever_there_is_and_says_what_is_missing() {
        let many: Vec<Skill> = (0..300).map(|n| skill(&format!("skill-{n}"), "x")).collect();
        let text = index(&many);
        assert!(text.len() <= INDEX, "{}", text.len());
        let listed = text.matches("- skill-").count();
        assert!(text.contains(&format!("- and {} more", 300 - listed)), "{text}");

        let long = Skill { description: "é\n".repeat(4_000), ..skill("long", "x") };
        let line = index([&long]);
        let line = line.lines().last().unwrap();
        assert!(line.len() <= "- long: ".len() + 200 + "…".len() && line.ends_with('…'), "{line}");
    }

    #[test]
    fn arguments_go_where_the_author_wants_them_and_else_to_the_end() {
        assert_eq!(
            skill("a", "Look at $ARGUMENTS, then at $ARGUMENTS.\n").invocation(" src "),
            "Look at src, then at src."
        );
        assert_eq!(skill("a", "Look.\n").invocation("at src"), "Look.\n\nARGUMENTS: at src");
        assert_eq!(skill("a", "Look.\n").invocation("  "), "Look.");
        assert_eq!(skill("a", "Look at $ARGUMENTS.").invocation(""), "Look at .");
    }

    #[test]
    fn the_directory_is_named_only_where_there_is_more_to_read() {
        let alone = Skill { directory: Some("/s/a".into()), ..skill("a", "Look.") };
        assert_eq!(alone.invocation(""), "Look.");
        let siblings = vec!["references/a.md".to_owned(), "scripts/run.sh".to_owned()];
        let text = Skill { siblings, ..alone.clone() }.invocation("");
        assert!(text.contains("/s/a;") && text.ends_with("references/a.md, scripts/run.sh]"), "{text}");
        let siblings = (0..50).map(|n| n.to_string()).collect();
        assert!(Skill { siblings, ..alone }.invocation("").ends_with("39 and 10 more]"));
    }
}
