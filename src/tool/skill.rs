//! `skill`: instructions for a kind of work, loaded when they are needed.
//!
//! It hands out text and grants nothing: what the text asks for meets the gate as any other call. Deliberately absent:
//! where skills are found and whether they are trusted; what is here may be loaded.

use serde_json::json;

use super::output::Output;
use super::{Answer, Input, Running, Scope, Tool, input};
use crate::model::message::ToolSpec;
use crate::model::rule::Subject;
use crate::model::skill::Skill;
use crate::model::tool_name::ToolName;
use crate::text;

#[derive(Debug)]
pub(crate) struct LoadSkill {
    skills: Vec<Skill>,
}

impl LoadSkill {
    /// Absent where there is nothing to load.
    pub(super) fn of(skills: Vec<Skill>) -> Option<Self> {
        (!skills.is_empty()).then_some(Self { skills })
    }

    fn load(&self, input: &Input, scope: &Scope) -> Result<Answer, Answer> {
        let name = input::text(input, "name")?.trim().trim_start_matches('/');
        let arguments = input::optional_text(input, "args")?.unwrap_or_default();
        let Some(skill) = self.skills.iter().find(|skill| skill.name == name) else {
            return Err(self.unknown(name));
        };
        let denied = |pattern: &String| pattern == name;
        if scope.deny.iter().any(|rule| rule.tool == ToolName::Skill && rule.pattern.as_ref().is_some_and(denied)) {
            return Err(Answer::correction(format!("a rule denies the skill `{name}`")));
        }
        let mut output = Output::new(&scope.spill);
        output.push(skill.invocation(arguments).as_bytes());
        Ok(Answer::done(output.finish()))
    }

    fn unknown(&self, name: &str) -> Answer {
        let names: Vec<&str> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
        let near = text::closest(name, names.iter().copied());
        let near = near.map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default();
        let name = text::one_line(name, 60);
        Answer::correction(format!("there is no skill `{name}`; the skills are: {}.{near}", names.join(", ")))
    }
}

impl Tool for LoadSkill {
    fn name(&self) -> ToolName {
        ToolName::Skill
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Skill.as_str(),
            description: "Load the instructions of a skill that your system prompt lists, and follow them. Its files, \
                          if it has any, are read with read."
                .to_owned(),
            input: json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "As it is listed"},
                    "args": {"type": "string", "description": "What it is to be applied to, if that is open"}
                },
                "required": ["name"]
            }),
        }
    }

    fn subject(&self, _: &Input, _: &Scope) -> Subject {
        Subject::None
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        Box::pin(async move { self.load(&input, scope).unwrap_or_else(|correction| correction) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, input};
    use super::super::read::Read;
    use super::*;
    use crate::model::skill::Callers;

    fn skill(name: &str, body: &str) -> Skill {
        Skill {
            name: name.to_owned(),
            description: "d".to_owned(),
            body: body.to_owned(),
            directory: None,
            siblings: Vec::new(),
            callers: Callers::Anyone,
            allowed_tools: Vec::new(),
        }
    }

    fn tool(skills: &[Skill]) -> LoadSkill {
        LoadSkill::of(skills.to_vec()).unwrap()
    }

    #[test]
    fn without_a_skill_there_is_no_tool() {
        assert!(LoadSkill::of(Vec::new()).is_none());
    }

    #[test]
    fn a_skill_is_loaded_by_its_name_with_its_arguments() {
        let fixture = Fixture::new();
        let tool = tool(&[skill("deploy", "Deploy $ARGUMENTS."), skill("other", "x")]);
        let answer = fixture.run(&tool, input(json!({"name": "deploy", "args": "to prod"})));
        assert_eq!(answer, Answer::done("Deploy to prod."));
        assert_eq!(fixture.run(&tool, input(json!({"name": "/other"}))), Answer::done("x"));
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let fixture = Fixture::new();
        let answer = fixture.run(&tool(&[skill("deploy", "x"), skill("test", "x")]), input(json!({"name": "deplyo"})));
        let want = "there is no skill `deplyo`; the skills are: deploy, test. Did you mean `deploy`?";
        assert_eq!(answer, Answer::correction(want));
        assert!(!fixture.run(&tool(&[skill("a", "x")]), input(json!({}))).ok);
    }

    #[test]
    fn a_rule_denies_one_skill_and_no_other() {
        let mut fixture = Fixture::new();
        fixture.scope.deny = vec!["skill(deploy)".parse().unwrap()];
        let tool = tool(&[skill("deploy", "x"), skill("test", "x")]);
        assert!(!fixture.run(&tool, input(json!({"name": "deploy"}))).ok);
        assert!(fixture.run(&tool, input(json!({"name": "test"}))).ok);
    }

    #[test]
    fn a_long_body_is_cut_and_the_rest_is_named() {
        let fixture = Fixture::new();
        let answer = fixture.run(&tool(&[skill("a", &"line\n".repeat(20_000))]), input(json!({"name": "a"})));
        assert!(answer.ok && answer.text.len() < 60_000 && answer.text.contains("[cut: "), "{}", answer.text.len());
    }

    #[test]
    fn the_files_of_a_skill_can_be_read_and_nothing_beside_it() {
        let mut fixture = Fixture::new();
        let folder = fixture.scope.spill.with_file_name("skills").join("deploy");
        std::fs::create_dir_all(folder.join("references")).unwrap();
        std::fs::write(folder.join("references/a.md"), "the reference\n").unwrap();
        std::fs::write(folder.join("../secret.md"), "secret\n").unwrap();
        std::os::unix::fs::symlink("../secret.md", folder.join("link.md")).unwrap();
        fixture.scope.readable = vec![folder.clone()];
        let read = |fixture: &Fixture, path: &str| {
            let arguments = || input(json!({"path": folder.join(path)}));
            (Read.subject(&arguments(), &fixture.scope), fixture.run(&Read, arguments()))
        };
        let (subject, answer) = read(&fixture, "references/a.md");
        assert_eq!((subject, answer.ok), (Subject::None, true), "{answer:?}");
        for path in ["../secret.md", "link.md", "references/../../secret.md"] {
            let (subject, answer) = read(&fixture, path);
            assert!(matches!(subject, Subject::Path(_)) && !answer.ok, "{path}: {answer:?}");
        }
        fixture.scope.deny = vec![format!("read({}/**)", folder.display()).parse().unwrap()];
        let (subject, answer) = read(&fixture, "references/a.md");
        assert!(matches!(subject, Subject::Path(_)) && !answer.ok, "{answer:?}");
    }
}
