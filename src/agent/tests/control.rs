//! Tools that talk to the loop: the list, questions, plan mode, permission, a pause.

use super::When::{Question, Tool};
use super::*;
use crate::agent::event::{QuestionKind, Todo, TodoState};

fn planner(answers: Vec<Vec<Step>>, mode: Mode) -> World {
    let mut world = World::new(answers);
    world.brief.spec.persona.mode = mode;
    world.brief.spec.persona.tools.extend([ToolName::EnterPlanMode, ToolName::TodoWrite, ToolName::Sleep]);
    world.brief.spec.ask = Ask::Always;
    world
}

fn write(id: &'static str, path: &str) -> Step {
    Call(id, "write", json!({"path": path}))
}

#[tokio::test(start_paused = true)]
async fn the_list_of_the_agent_is_shown_and_replaced() {
    let task = |text: &str, status: &str| json!({"content": text, "status": status});
    let mut world = planner(
        vec![
            vec![Call("1", "todo_write", json!({"tasks": [task("look", "in_progress"), task("mend", "pending")]}))],
            vec![Call("2", "todo_write", json!({"tasks": [task("mend", "done")]}))],
            vec![Call("3", "todo_write", json!({"tasks": [task("mend", "completed")]}))],
            vec![Say("done")],
        ],
        Mode::Default,
    );
    let ended = world.run().await;
    let lists: Vec<AgentEvent> =
        world.events().into_iter().filter(|event| matches!(event, AgentEvent::Todo(_))).collect();
    let todo = |text: &str, state| Todo { text: text.into(), state };
    assert_eq!(
        lists,
        [
            AgentEvent::Todo(vec![todo("look", TodoState::InProgress), todo("mend", TodoState::Pending)]),
            AgentEvent::Todo(vec![todo("mend", TodoState::Completed)]),
        ]
    );
    assert_eq!(world.last_told(1), "true kept: 2 open of 2 tasks");
    assert!(world.last_told(2).starts_with("false task 1: `done` is not a status"));
    assert_eq!(ended.report.evidence, 0, "a list is no look at the work");
}

#[tokio::test(start_paused = true)]
async fn approval_gives_back_the_mode_that_was_left_and_nothing_more() {
    let mut world = planner(
        vec![
            vec![Call("1", "enter_plan_mode", json!({}))],
            vec![write("2", "b.rs")],
            vec![Call("3", "exit_plan_mode", json!({"plan": "write b.rs"}))],
            vec![write("4", "b.rs")],
            vec![Say("done")],
        ],
        Mode::Default,
    );
    let person = world.person(vec![(Question(1), line("y")), (Question(2), line("n"))]);
    world.run().await;
    person.await.unwrap();
    assert!(world.last_told(2).contains("plan mode is read-only"), "{}", world.last_told(2));
    assert!(world.last_told(4).contains("said no"), "it still asks: {}", world.last_told(4));
    assert!(!world.directory.path().join("tree/b.rs").exists());
    let questions: Vec<AgentEvent> =
        world.events().into_iter().filter(|event| matches!(event, AgentEvent::Question { .. })).collect();
    assert!(
        matches!(&questions[0], AgentEvent::Question { text, kind: QuestionKind::Plan } if text.contains("mode default"))
    );
    let modes = world.events().into_iter().filter_map(|event| match event {
        AgentEvent::Now { mode, .. } => Some(mode),
        _ => None,
    });
    assert_eq!(modes.collect::<Vec<_>>(), [Mode::Plan, Mode::Default]);
}

#[tokio::test(start_paused = true)]
async fn in_plan_mode_no_command_runs_however_it_is_dressed_and_no_rule_frees_it() {
    let commands = [
        "python3 -c \"open('a.rs','w').write('x')\"",
        "python - <<EOF\nopen('a.rs','w').write('x')\nEOF",
        "bash <<EOF\necho x > a.rs\nEOF",
        "perl -e 'open F, q(>a.rs)'",
        "awk 'BEGIN { print 1 > \"a.rs\" }'",
        "sed -i s/a/b/ a.rs",
        "git status",
    ];
    let calls = commands.iter().zip(["1", "2", "3", "4", "5", "6", "7"]);
    let calls = calls.map(|(command, id)| Call(id, "bash", json!({"command": command}))).collect();
    let mut world = planner(vec![calls, vec![Say("I could not")]], Mode::Plan);
    world.brief.spec.persona.allow = vec!["bash".parse().unwrap(), "write".parse().unwrap()];
    world.run().await;
    let asked = world.asked();
    let outputs: Vec<&str> = asked[1].messages.iter().filter_map(output).collect();
    assert_eq!(outputs.len(), commands.len());
    assert!(outputs.iter().all(|output| output.starts_with("denied: plan mode is read-only")), "{outputs:?}");
}

#[tokio::test(start_paused = true)]
async fn tools_that_ask_are_offered_only_where_somebody_could_answer() {
    let asking = ["ask_user", "enter_plan_mode", "exit_plan_mode"];
    let offered = |world: &World| {
        let tools: Vec<&str> = world.asked()[0].tools.iter().map(|tool| tool.name).collect();
        asking.into_iter().filter(|name| tools.contains(name)).collect::<Vec<_>>()
    };
    let mut headless = planner(vec![vec![Say("done")]], Mode::Default);
    headless.brief.spec.ask = Ask::IfSomebodyIsThere;
    headless.typed_end = None;
    headless.run().await;
    assert!(offered(&headless).is_empty());
    // A window that somebody may come to, but nobody looks at: a question may wait, plan mode would be a trap.
    let mut window = planner(vec![vec![Say("done")]], Mode::Default);
    window.brief.spec.ask = Ask::IfSomebodyIsThere;
    window.run().await;
    assert_eq!(offered(&window), ["ask_user"]);
    let mut asks = planner(vec![vec![Say("done")]], Mode::Default);
    asks.run().await;
    assert_eq!(offered(&asks), asking);
}

/// A tool that shows what it would change.
struct Previewed(Tiny);

impl crate::tool::Tool for Previewed {
    fn name(&self) -> ToolName {
        self.0.name()
    }

    fn spec(&self) -> ToolSpec {
        self.0.spec()
    }

    fn subject(&self, input: &Input, scope: &Scope) -> Subject {
        self.0.subject(input, scope)
    }

    fn preview(&self, input: &Input, _: &Scope) -> Option<String> {
        Some(format!("+++ {}", input["path"].as_str().unwrap()))
    }

    fn run<'a>(&'a self, input: Input, scope: &'a Scope) -> Running<'a> {
        self.0.run(input, scope)
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_for_permission_shows_what_would_change_and_a_no_says_why() {
    let mut world = planner(vec![vec![write("1", "b.rs")], vec![write("2", "c.rs")], vec![Say("done")]], Mode::Default);
    world.more_tools.push(Arc::new(Previewed(Tiny(ToolName::Write, Kind::Write))));
    let person = world.person(vec![(Question(1), line("not b, write c")), (Question(2), line("Yes"))]);
    world.run().await;
    person.await.unwrap();
    let kinds = world.events().into_iter().filter_map(|event| match event {
        AgentEvent::Question { kind, .. } => Some(kind),
        _ => None,
    });
    let shown = |path: &str| QuestionKind::Permission {
        always: Some(format!("write({path})")),
        diff: Some(format!("+++ {path}")),
    };
    assert_eq!(kinds.collect::<Vec<_>>(), [shown("b.rs"), shown("c.rs")]);
    assert_eq!(world.last_told(1), "false denied: person pts/3 said: not b, write c");
    let tree = world.directory.path().join("tree");
    assert!(!tree.join("b.rs").exists() && tree.join("c.rs").exists());
}

#[tokio::test(start_paused = true)]
async fn escape_ends_a_pause() {
    let mut world =
        planner(vec![vec![Call("1", "sleep", json!({"seconds": 50}))], vec![Say("went on")]], Mode::Default);
    let person = world.person(vec![(Tool(1), Typed::Escape), (Tool(1), line("go on"))]);
    let ended = world.run().await;
    person.await.unwrap();
    let asked = world.asked();
    let outputs: Vec<&str> = asked[1].messages.iter().filter_map(output).collect();
    assert!(outputs[0].starts_with("cut after") && ended.report.body == "went on", "{outputs:?}");
}
